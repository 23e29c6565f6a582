"""Format, architecture and bindings: read, checked against names, kept as records."""

from __future__ import annotations

from pathlib import Path

import pytest

import polymodel as pm
from polymodel.spec.teaal import read_teaal
from polymodel.spec.teaal.records import Binding, EinsumBindings, RankFormat, TeaalSpec
from tests.faults import every_fault, faults

CASES = Path(__file__).parent / "cases"
TEXT = (CASES / "two_levels.yaml").read_text(encoding="utf-8")


def spec() -> TeaalSpec:
    return read_teaal(TEXT, "x.yaml")


def test_a_tree_of_levels_with_their_components() -> None:
    machine = spec().configuration()
    assert (machine.name, machine.clock_frequency) == ("Machine", 10**9)
    found = [(c.name, c.kind, c.instances, c.path) for c in machine.components]
    assert found == [
        ("Memory", "DRAM", 1, ("System",)),
        ("Meet", "Intersector", 1, ("System",)),
        ("Buffer", "Buffet", 4, ("System", "PE")),
        ("Multiply", "Compute", 4, ("System", "PE")),
        ("Add", "Compute", 4, ("System", "PE")),
    ]
    assert machine.component("Meet").type == "leader-follower"
    assert machine.component("Buffer").number("depth") == 4096
    assert machine.component("Buffer").number("bandwidth") is None
    with pytest.raises(pm.Refused, match="bandwidth of Memory is 64 \\* BW, no number yet"):
        machine.component("Memory").number("bandwidth")
    with pytest.raises(KeyError, match="no component Bufer; there are Memory"):
        machine.component("Bufer")


def test_attributes_get_the_values_of_symbols() -> None:
    found = pm.load({**_plain(), "symbols": {"BW": 1e9}}).teaal
    assert found is not None
    assert found.configuration("Machine").component("Memory").number("bandwidth") == 64e9


def _plain(text: str = TEXT) -> dict[str, object]:
    from polymodel.spec.faults import Source
    from polymodel.spec.yaml_text import parse_yaml

    root, faults = parse_yaml(text, Source("x.yaml", tuple(text.split("\n"))))
    assert not faults
    assert root is not None
    plain = root.plain()
    assert isinstance(plain, dict)
    return plain


def test_formats_rank_by_rank_in_the_order_stored() -> None:
    tiles = spec().format_of("A", "tiles")
    assert tiles is not None
    assert tiles.rank_order == ("M2", "K1", "M1", "M0", "K0")
    assert tiles.ranks[0] == RankFormat("M2")
    assert tiles.ranks[3:] == (
        RankFormat("M0", "U"),
        RankFormat("K0", "C", cbits=32, pbits=64, layout="interleaved"),
    )
    rows = spec().format_of("B", "rows")
    assert rows is not None
    assert rows.ranks == (
        RankFormat("K", "U", pbits=32, rhbits=32),
        RankFormat("N", "B", pbits=64, fhbits=16),
    )
    assert spec().format_of("Z", "rows") is None


def test_bindings_of_an_einsum_to_a_component() -> None:
    found = spec().bindings_of("Z")
    assert (found.config, found.prefix) == ("Machine", "out/machine")
    assert found.of("Buffer")[0] == Binding(
        "Buffer", "A", "M0", "elem", "tiles", evict_on="K1", style="eager"
    )
    assert [b.style for b in found.of("Buffer")] == ["eager", "lazy", "lazy"]
    assert found.of("Meet") == (Binding("Meet", rank="K0", leader="A"),)
    assert found.of("Add") == (Binding("Add", op="add"),)
    assert spec().bindings_of("Y") == EinsumBindings("Y")


def test_the_older_spelling() -> None:
    old = read_teaal((CASES / "older.yaml").read_text(encoding="utf-8"))
    assert old.configuration("subtree").component("Sort").number("radix") == 64
    assert old.configuration("subtree").component("MAC").instances == 16
    form = old.format_of("B", "default")
    assert form is not None
    assert form.rank_order == ("K", "N")
    assert [b.tensor for b in old.bindings_of("T").of("Memory")] == ["A"]
    assert [b.tensor for b in old.bindings_of("Z").of("Memory")] == ["A", "Z"]
    assert old.bindings_of("T").of("Sort")[0].init_ranks == ("K", "M", "N")
    assert old.bindings_of("Z").of("MAC") == (Binding("MAC", op="mul"),)
    assert old.bindings_of("T").of("MAC") == ()


def test_levels_below_a_component_and_a_unit_of_any_operation() -> None:
    """In older files a level stands below a memory, and a compute unit has no type, or has it as `op`."""
    head = (
        "einsum:\n  declaration: {A: [K, M], B: [K, M], Z: [M]}\n"
        "  expressions: ['Z[m] = A[k, m] * B[k, m]']\n"
    )
    rest = (
        "architecture:\n  subtree:\n  - name: System\n    attributes: {clock_frequency: 1000}\n    local:\n"
        "    - name: Buffer\n      class: Buffet\n      subtree:\n      - name: PE[0..3]\n        local:\n"
        "        - {name: MAC, class: compute}\n"
        "        - {name: Adder, class: compute, attributes: {op: add}}\n"
        "bindings:\n- {name: MAC, bindings: [{einsum: Z, op: mul}, {einsum: Z, op: add}]}\n"
    )
    machine = read_teaal(head + rest).configuration()
    found = [(c.name, c.type, c.instances, c.path) for c in machine.components]
    assert found == [
        ("Buffer", "", 1, ("System",)),
        ("MAC", "", 4, ("System", "PE")),
        ("Adder", "add", 4, ("System", "PE")),
    ]
    ones = pm.random_tensor(["K", "M"], [3, 5], 1.0, seed=1)
    (unit,) = pm.traffic(pm.load(_plain(head + rest)), {"A": ones, "B": ones}).einsums[0].units
    assert (dict(unit.counts), unit.time) == ({"mul": 15, "add": 10}, 25 / 4000)
    with faults("inconsistent-values", at="bindings[0].bindings[0].op"):
        read_teaal((head + rest).replace("name: MAC, bindings", "name: Adder, bindings"))
    with every_fault(("missing-section", "architecture"), ("missing-section", "bindings")):
        pm.load(_plain(rest))


CHANGES = [
    ("class: DRAM", "class: DRAMM", "unknown class 'DRAMM'", "did you mean DRAM?"),
    ("bandwidth:", "bandwith:", "unknown attribute bandwith", "did you mean bandwidth?"),
    ("width: 64\n", "width: -64\n", "width is -64", "above 0"),
    ("width: 64\n", "width: 64\n          read_energy: -1e-12\n", "read_energy is -1e-12", "finite number"),
    ("width: 64\n", "width: 64\n          write_energy: inf\n", "write_energy is inf", "finite number"),
    ("width: 64\n", "width: 64\n          red_energy: 1\n", "unknown attribute red_energy", "read_energy?"),
    ("type: mul", "type: mull", "'mull' is not a valid type of Compute", "did you mean mul?"),
    ("PE[0..3]", "PE[1..3]", "not a range from 0", "PE[0..31]"),
    ("name: Buffer", "name: Memory", "component Memory stands twice", "rename"),
    ("      class: LeaderFollower\n", "      class: Intersector\n",
     "Intersector Meet has no type", "two-finger"),
    ("format: B, fhbits", "format: X, fhbits", "'X' is not a valid format of a rank", "C, U, B"),
    ("fhbits: 16", "fhbits: -1", "-1 is not a whole number of at least 0", "0"),
    ("fhbits: 16", "fhbts: 16", "unknown key `fhbts`", "did you mean fhbits?"),
    ("rank-order: [K, N]", "rank-order: [K, P]", "unknown rank P of B", "its ranks: K, N"),
    ("      rank-order: [K, N]\n", "", "key `rank-order` is missing", "as stored"),
    ("config: Machine", "config: Machin", "unknown architecture 'Machin'", "did you mean Machine?"),
    ("component: Meet", "component: Met", "unknown component 'Met'", "did you mean Meet?"),
    ("rank: K0, leader: A", "rank: K, leader: A", "unknown rank 'K'", "did you mean K1?"),
    ("rank: K0, leader: A", "rank: K0, leader: C", "'C' is not an operand of Z", "operands: A, B"),
    ("rank: K0, leader: A", "rank: K0", "the binding to Meet has no leader", "add `leader:`"),
    ("evict-on: K1,", "evict-on: K3,", "unknown rank 'K3'", "root, M2, K1"),
    ("evict-on: K1, ", "", "the binding to Buffer has no evict-on", "add `evict-on:`"),
    ("style: eager", "style: keen", "'keen' is not a valid style of a binding", "lazy, eager"),
    ("type: coord, format", "type: cord, format", "not a valid type of a binding", "did you mean coord?"),
    ("format: tiles, evict", "format: tile, evict", "A has no format 'tile'", "did you mean tiles?"),
    ("tensor: A, rank: M0", "tensor: C, rank: M0", "unknown tensor 'C'", "tensors of Einsum Z"),
    ("tensor: A, rank: M0", "tensor: A, rank: M3", "unknown rank 'M3' of A", "root, M2, K1"),
    ("type: coord, format", "type: payload, format", "B N payload is bound twice", "keep one"),
    ("op: add", "op: mul", "Add executes add, not mul", "write add"),
    ("- op: add", "- {op: add, tensor: A}", "unknown key `tensor`", "op"),
    ("bindings:\n  Z:", "bindings:\n  Y:", "unknown Einsum Y", "Z"),
]  # fmt: skip


@pytest.mark.parametrize(("old", "new", "reason", "remedy"), CHANGES)
def test_names_are_checked_where_they_stand(old: str, new: str, reason: str, remedy: str) -> None:
    assert old in TEXT
    text = TEXT.replace(old, new, 1)
    with pytest.raises(pm.SpecError) as caught:
        read_teaal(text, "x.yaml")
    found = [d for d in caught.value.diagnostics if reason in d.message]
    assert found, caught.value
    assert remedy in found[0].remedy
    assert found[0].place.file == "x.yaml"
    assert found[0].place.line > 20


def test_an_sram_of_older_files_is_a_buffet() -> None:
    old = read_teaal(TEXT.replace("class: Buffet", "class: SRAM"))
    assert old.configurations == read_teaal(TEXT).configurations


def test_bindings_need_an_architecture() -> None:
    text = TEXT[: TEXT.index("architecture:")] + TEXT[TEXT.index("bindings:\n  Z") :]
    with faults("missing-section", at="bindings"):
        read_teaal(text)


def test_an_architecture_has_one_root() -> None:
    text = TEXT.replace("bindings:\n  Z", "  - name: Second\nbindings:\n  Z")
    with faults("wrong-count", at="architecture.Machine"):
        read_teaal(text)
