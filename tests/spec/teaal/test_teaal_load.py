"""TeAAL specs as part of a whole spec: workload, LoopTree, values of symbols, the command line."""

from __future__ import annotations

from dataclasses import replace
from itertools import product
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

import polymodel as pm
from polymodel.cli import main
from polymodel.mapping.looptree import Loop, LoopTree, StorageNode
from polymodel.spec import files
from polymodel.spec.teaal import read_teaal
from tests.faults import every_fault, faults, refused

CASES = Path(__file__).parent / "cases"
MACHINE = CASES / "two_levels.yaml"
SIZES = {
    "mttkrp": {"I": 20, "J": 12, "K": 10, "F": 64},
    "ttmc": {"I": 20, "J": 12, "K": 10, "U": 64, "V": 16},
    "spmm": {"I": 20, "J": 12, "K": 70},
    "spmv": {"I": 20, "J": 12},
}
OPERATIONS = {
    "mttkrp": 20 * 12 * 10 * 64 + 20 * 12 * 64,
    "ttmc": 20 * 12 * 10 * 64 + 20 * 12 * 16 * 64,
    "spmm": 20 * 12 * 70,
    "spmv": 20 * 12,
}


def loops(tree: LoopTree | None, einsum: str) -> list[tuple[str, int | str, str]]:
    assert tree is not None
    return [(v.rank_variable, v.tile_shape, v.dim) for _, v in tree.loops(einsum)]


@pytest.mark.parametrize("name", SIZES)
def test_seeds_become_a_workload_and_a_looptree_that_is_evaluated(name: str) -> None:
    spec = pm.load(CASES / f"seed_{name}.yaml", "tensaurus", symbols=SIZES[name])
    assert spec.teaal is not None
    assert [e.name for e in spec.workload] == [e.name for e in spec.teaal.expressions]
    report = pm.evaluate(spec)
    assert report.summary["operations"].iloc[-1] == OPERATIONS[name]
    assert pm.evaluate(spec, engine="exact").summary["operations"].iloc[-1] == OPERATIONS[name]


@pytest.mark.parametrize("name", SIZES)
def test_dense_counts_are_those_of_a_run_on_full_tensors(name: str) -> None:
    spec = pm.load(CASES / f"seed_{name}.yaml", "tensaurus", symbols=SIZES[name])
    assert spec.teaal is not None
    full = {
        t: np.ones([SIZES[name][r] for r in spec.teaal.declaration[t]], dtype=np.int64)
        for t in spec.teaal.inputs
    }
    ran = {c.einsum: c.multiplies for c in pm.execute(spec, full).einsums}
    summary = pm.evaluate(spec).summary.set_index("einsum")["operations"]
    assert {e: int(summary[e]) for e in ran} == ran


def test_loops_stand_in_loop_order_with_the_sizes_of_the_splits() -> None:
    spec = pm.load(CASES / "seed_mttkrp.yaml", "tensaurus", symbols={"I": 20, "J": 12, "K": 70, "F": 64})
    assert loops(spec.mapping, "T") == [
        ("i", 8, "column"), ("i", 1, ""), ("f", 32, ""), ("j", 8, ""), ("k", 8, ""),
        ("j", 1, ""), ("k", 1, ""), ("f", 4, "row"), ("f", 1, "lane"),
    ]  # fmt: skip
    assert loops(spec.mapping, "Y")[-2:] == [("f", 4, "row"), ("f", 1, "lane")]
    assert spec.mapping is not None
    assert spec.mapping.nodes[0] == StorageNode("DRAM", ("A", "C", "T", "B", "Y"))


def test_a_space_rank_with_more_tiles_than_instances_is_folded() -> None:
    spec = pm.load("tensaurus/spmm_dense", "tensaurus", symbols={"I": 100, "J": 20, "K": 64})
    assert loops(spec.mapping, "Y")[:3] == [("i", 64, ""), ("i", 8, "row"), ("i", 1, "")]
    assert "I1 has 13 tiles on the 8 instances of Row.row, so they run in 2 rounds" in spec.remarks[0]
    assert pm.evaluate(spec).summary["operations"].iloc[-1] == 100 * 20 * 64


def test_tiles_are_no_larger_than_the_rank() -> None:
    spec = pm.load("tensaurus/spmm_dense", "tensaurus", symbols={"I": 5, "J": 2, "K": 3})
    assert loops(spec.mapping, "Y") == [
        ("i", 5, "row"), ("i", 1, ""), ("k", 3, ""), ("j", 1, ""), ("k", 3, "column"), ("k", 1, "lane"),
    ]  # fmt: skip


def test_without_sizes_or_architecture_the_mapping_is_none_and_says_why() -> None:
    spec = pm.load(CASES / "seed_spmv.yaml")
    assert spec.mapping is None
    assert "needs the sizes of its ranks" in spec.remarks[0]
    bound = spec.bind(I=20, J=12)
    assert bound.mapping is None
    assert len(bound.workload) == 1
    assert "needs an architecture (load one beside it" in bound.remarks[0]
    with refused("unsupported-operation"):
        pm.evaluate(bound)
    with every_fault(
        ("unbound-symbol", "workload.rank_sizes.I"), ("unbound-symbol", "workload.rank_sizes.J")
    ):
        _ = spec.workload


@pytest.mark.parametrize("name", ["tensaurus/mttkrp", "teaal/gamma", "teaal/outerspace", "teaal/sigma"])
def test_what_depends_on_the_data_is_refused_by_name(name: str) -> None:
    spec = pm.load(name)
    assert spec.mapping is None
    with refused("unsupported-partitioning") as caught:
        pm.evaluate(spec)
    assert (
        caught.value.remedy
        == "run it on data: polymodel execute SPEC TENSOR=FILE ..., or pm.execute(spec, tensors)"
    )


def test_every_packaged_spec_loads_and_prints() -> None:
    assert {"tensaurus/mttkrp", "tensaurus/ttmc", "tensaurus/spmm", "tensaurus/spmv"} <= set(files.specs())
    assert {"teaal/gamma", "teaal/outerspace", "teaal/extensor", "teaal/sigma"} <= set(files.specs())
    for name in files.specs():
        spec = pm.load(name)
        assert spec.teaal is not None
        assert f"TeAAL spec {name.partition('/')[2]}" in str(spec)
    with faults("unknown-name", "tensaurus/mttkrp", at=""):
        pm.load("tensaurus/mtkrp")


def test_extensor_with_symbols_is_swept_and_has_closed_forms() -> None:
    spec = pm.load("teaal/extensor", "simple_two_level", symbols={"K": 100, "M": 90, "N": 64})
    assert [s for s, v in spec.symbols.items() if v is None] == ["K1", "K0", "M1", "M0", "N1", "N0"]
    assert [t for _, t, _ in loops(spec.template, "Z")] == ["N1", "K1", "M1", "M0", "N0", "K0", 1, 1, 1]
    rest = spec.bind(M1=32, N1=32, K0=4, M0=4, N0=4)
    swept = pm.sweep(rest, {"K1": [8, 16, 32]})
    energies = {k: pm.evaluate(rest.bind(K1=k)).energy["energy_J"].sum() for k in (8, 16, 32)}
    assert int(swept.best("energy")["K1"]) == min(energies, key=lambda k: energies[k])
    assert "K1" in repr(pm.closed_forms(spec))


def test_energies_of_components_are_those_of_dense_counts(tmp_path: Path) -> None:
    text = MACHINE.read_text(encoding="utf-8")
    priced = text.replace("width: 64\n", "width: 64\n          read_energy: 2e-12\n", 1).replace(
        "type: mul", "type: mul\n          energy: 1e-12", 1
    )
    path = tmp_path / "priced.yaml"
    path.write_text(priced, encoding="utf-8")
    arch = pm.load(path, symbols=dict.fromkeys(("K", "M", "N", "K0", "M1", "M0", "BW"), 8)).arch
    assert [a.energy for c in ("Buffer", "Multiply") for a in arch[c].actions] == [2e-12, 0, 1e-12]


def test_another_mapping_may_stand_beside_it(tmp_path: Path) -> None:
    path = tmp_path / "mapping.yaml"
    path.write_text(
        "mapping:\n  nodes:\n  - !Storage {component: DRAM, tensors: [A, B, Y]}\n"
        "  - !Temporal {rank_variable: i, tile_shape: 1}\n  - !Compute {einsum: Y, component: MAC}\n",
        encoding="utf-8",
    )
    sources: list[str | Path] = [CASES / "seed_spmv.yaml", path, "simple_two_level"]
    for order in (sources, sources[::-1]):
        spec = pm.load(*order, symbols=SIZES["spmv"])
        assert loops(spec.mapping, "Y") == [("i", 1, "")]
        assert not spec.remarks
        assert pm.evaluate(spec).summary["operations"].iloc[-1] == 240


def machine(folder: Path, bound: bool = False) -> Path:
    """The small machine; without the bindings to its intersector, unless they are `bound`."""
    text = MACHINE.read_text(encoding="utf-8")
    meet = "  - component: Meet\n    bindings:\n    - {rank: K0, leader: A}\n"
    assert meet in text
    path = folder / "machine.teaal.yaml"
    path.write_text(text if bound else text.replace(meet, ""), encoding="utf-8")
    return path


def test_what_has_no_counterpart_is_refused_by_name_where_it_is_used(tmp_path: Path) -> None:
    sizes = {"K": 20, "M": 48, "N": 6, "K0": 5, "M1": 12, "M0": 3, "BW": 1}
    spec = pm.load(machine(tmp_path, bound=True), symbols=sizes)
    with refused("unsupported-operation", "Z", "Meet", "Intersector"):
        pm.evaluate(spec)
    beside = pm.load(machine(tmp_path, bound=True), "simple_two_level", symbols=sizes)
    assert pm.evaluate(beside).summary["operations"].iloc[-1] == 20 * 48 * 6


def test_its_own_architecture_serves_where_it_has_a_counterpart(tmp_path: Path) -> None:
    spec = pm.load(
        machine(tmp_path), symbols={"K": 20, "M": 48, "N": 6, "K0": 5, "M1": 12, "M0": 3, "BW": 1e9}
    )
    assert [c.name for c in spec.arch.components] == ["Memory", "PE", "Buffer", "Multiply", "Add"]
    assert spec.arch["Memory"].action("read").throughput == 64e9
    assert spec.arch["Buffer"].size_bits == 64 * 4096
    assert spec.arch["PE"].dim("PE").fanout == 4
    assert spec.arch["Multiply"].action("compute").throughput == 1e9
    assert any("Meet (leader-follower Intersector) has no counterpart" in r for r in spec.remarks)
    assert spec.mapping is not None
    shown = []
    for step in spec.mapping.path("Z"):
        if isinstance(step.node, StorageNode):
            shown.append("+".join(step.node.tensors))
        elif isinstance(step.node, Loop):
            shown.append(step.node.rank_variable)
    assert shown == ["A+B+Z", "m", "k", "m", "A", "n", "B", "m", "k"]


def tile_of(extent: int, sizes: list[int], value: int) -> tuple[int, ...]:
    """Where a value lies: the start of its part at every split, the value last. Plain splits by shape."""
    start, width, found = 0, extent, []
    for size in sizes:
        start = start + (value - start) // size * size
        width = min(size, width)
        found.append(start)
    return (*found, value)


@settings(max_examples=12, deadline=None)
@given(
    st.tuples(*(st.integers(2, 9) for _ in range(3))),
    st.tuples(*(st.integers(1, 5) for _ in range(3))),
)
def test_counts_are_those_of_the_partitioned_loops(
    extents: tuple[int, int, int], splits: tuple[int, int, int]
) -> None:
    """Fills of a bound buffer, against loops over the partitioned ranks written out."""
    k_size, m_size, n_size = extents
    k0, m1, m0 = splits
    sizes = {"K": k_size, "M": m_size, "N": n_size, "K0": k0, "M1": m1, "M0": m0, "BW": 1}
    with TemporaryDirectory() as folder:
        spec = pm.load(machine(Path(folder)), symbols=sizes)
    accesses = pm.evaluate(spec).accesses
    held: dict[str, set[tuple[int, ...]]] = {"A": set(), "B": set()}
    for k, m, n in product(range(k_size), range(m_size), range(n_size)):
        k1, _ = tile_of(k_size, [k0], k)
        m2, tile, _ = tile_of(m_size, [m1, m0], m)
        held["A"].add((m2, k1, tile, k, m))
        # Four tiles of M1 run at a time, and share what they read of B.
        held["B"].add((m2, k1, (tile - m2) // m0 // 4, n, k, n))
    for tensor, filled in held.items():
        row = accesses[(accesses["component"] == "Memory") & (accesses["tensor"] == tensor)]
        assert int(row["read_elements"].iloc[0]) == len(filled)


def test_the_command_line_shows_and_validates(capsys: pytest.CaptureFixture[str]) -> None:
    file = str(CASES / "seed_spmm.yaml")
    assert main(["validate", file]) == 0
    assert "TeAAL spec with 1 Einsum" in capsys.readouterr().out
    assert main(["show", file]) == 0
    assert "loop order    I1 I0 K2 J K1 K0" in capsys.readouterr().out
    sizes = ["--set", "I=100", "--set", "J=20", "--set", "K=64"]
    assert main(["validate", file, "tensaurus", *sizes]) == 0
    shown = capsys.readouterr().out
    assert "legal mapping" in shown
    assert "so they run in 2 rounds" in shown
    assert main(["show", "tensaurus/spmm"]) == 0
    assert "uniform_slice(8)" in capsys.readouterr().out
    assert main(["evaluate", "tensaurus/spmm", "tensaurus", *sizes]) == 3
    assert "data-dependent: uniform_slice of I in Einsum Y" in capsys.readouterr().err
    assert main(["evaluate", file, "tensaurus", *sizes]) == 0


def test_the_example_of_the_documentation(capsys: pytest.CaptureFixture[str]) -> None:
    text = (Path(__file__).parents[3] / "docs/sparse/teaal.md").read_text(encoding="utf-8")
    code = text.split("```python\n")[1].split("```")[0]
    names: dict[str, object] = {}
    exec(compile(code, "teaal.md", "exec"), names)
    printed = capsys.readouterr().out
    head = text.split("begins with\n\n```\n")[1].split("```")[0]
    assert head in printed
    assert printed.rstrip().endswith("128000")
    spec = pm.load("tensaurus/spmm_dense", "tensaurus", symbols={"I": 100, "J": 20, "K": 64})
    reads = pm.evaluate(spec).accesses.set_index("tensor")["read_elements"]
    assert (reads["A"], reads["B"]) == (4000, 20480)
    for told in ("128000", "20480 reads", "4000 reads"):
        assert told in text
    yaml = text.split("```yaml\n")[1].split("format: ...")[0]
    assert read_teaal(yaml).mapping_of("Z").loop_order == ("K1", "MK01", "N", "MK00")


def test_a_variable_of_another_tensors_rank_runs_over_the_rank_that_it_indexes() -> None:
    given = {"B": ["K", "L"], "C": ["I", "J"], "D": ["I"]}
    raw = {"einsum": {"declaration": given, "expressions": ["D[i] = B[i, j]"]}}
    B = pm.random_tensor(["K", "L"], [5, 3], 0.7, seed=1)
    run = pm.execute(pm.load(raw), {"B": B})
    assert run.check()[0].agrees
    assert [a.rank for a in run.einsums[0].accesses] == ["I", "J"]
    dense = pm.load(raw, "simple_two_level", symbols={"I": 5, "K": 5, "L": 3})
    assert pm.evaluate(dense).summary["operations"].iloc[-1] == 15
    with faults("unknown-name", at="einsum.expressions[0]"):
        pm.load({"einsum": {"declaration": given, "expressions": ["D[i] = B[i, x]"]}})


def test_another_einsums_rank_of_that_name_may_have_another_size() -> None:
    """j runs over the 6 of J in T, and over the 8 of L in D, an input and an intermediate alike."""
    declared = {"B": ["K", "L"], "X": ["K", "L"], "C": ["I", "J"], "T": ["I"], "D": ["I"]}
    B = pm.random_tensor(["K", "L"], [4, 8], 0.5, seed=1)
    C = pm.random_tensor(["I", "J"], [4, 6], 0.5, seed=2)
    for read, made in (("B", []), ("X", ["X[k, l] = B[k, l]"])):
        expressions = [*made, "T[i] = C[i, j]", f"D[i] = {read}[i, j]"]
        ours = {k: v for k, v in declared.items() if k != "X" or made}
        mapping = {"partitioning": {"D": {"J": ["uniform_shape(3)"]}}, "loop-order": {"D": ["I", "J1", "J0"]}}
        raw = {"einsum": {"declaration": ours, "expressions": expressions}, "mapping": mapping}
        run = pm.execute(pm.load(raw), {"B": B, "C": C})
        assert all(c.agrees for c in run.check())
        assert list(run.results["D"].to_dense()) == list(B.to_dense().sum(axis=1))
        counted = pm.execute(pm.load(raw), {"B": B, "C": C}, values=False).einsums[-1]
        assert counted.accesses == run.einsums[-1].accesses
        dense = pm.load(raw, "simple_two_level", symbols={"I": 4, "J": 6, "K": 4, "L": 8})
        assert pm.evaluate(dense).summary["operations"].iloc[-1] == 32 * len(made) + 24 + 32
    ranks = {"A": ["M"], "B": ["K", "L"], "E": ["K", "N"], "F": ["K"]}
    several = {"einsum": {"declaration": ranks, "expressions": ["F[k] = B[k, m] * E[k, m]"]}}
    with faults("inconsistent-values", "L of B", "N of E", at=""):
        pm.execute(pm.load(several), {"B": B, "E": pm.random_tensor(["K", "N"], [4, 7], 0.5, seed=3)})


EINSUM = {
    "declaration": {"A": ["K", "M"], "B": ["K", "N"], "Z": ["M", "N"]},
    "expressions": ["Z[m, n] = A[k, m] * B[k, n]"],
}
SECTIONS: dict[str, dict[str, Any]] = {
    "einsum": EINSUM,
    "mapping": {
        "partitioning": {"Z": {"K": ["uniform_shape(4)"]}},
        "loop-order": {"Z": ["M", "K1", "K0", "N"]},
    },
    "format": {"A": {"CSR": {"rank-order": ["K", "M"], "K": {"format": "U"}, "M": {"format": "C"}}}},
    "architecture": {"one": [{"name": "S", "local": [{"name": "Mul", "class": "Compute"}]}]},
    "bindings": {"Z": [{"config": "one", "prefix": "s"}, {"component": "Mul", "bindings": [{"op": "mul"}]}]},
}


@pytest.mark.parametrize("backwards", [False, True])
def test_sections_may_stand_in_files_of_their_own(backwards: bool, tmp_path: Path) -> None:
    whole = tmp_path / "whole.yaml"
    whole.write_text(yaml.safe_dump(SECTIONS, sort_keys=False))
    for name, section in SECTIONS.items():
        (tmp_path / f"{name}.yaml").write_text(yaml.safe_dump({name: section}))
    files = [tmp_path / f"{name}.yaml" for name in SECTIONS]
    apart = pm.load(*(reversed(files) if backwards else files))
    together = pm.load(whole)
    assert apart.raw_teaal is not None
    assert together.raw_teaal is not None
    assert replace(apart.raw_teaal, name="") == replace(together.raw_teaal, name="")
    assert len(apart.files) == len(SECTIONS)
    tree = {"nodes": [{"type": "Compute", "einsum": "Z", "component": "MAC"}]}
    both = pm.load(*files, {"mapping": tree})
    assert both.raw_mapping is not None
    assert both.raw_teaal == apart.raw_teaal


def test_sections_without_their_einsums_and_sections_twice_are_told() -> None:
    parts = [{name: section} for name, section in SECTIONS.items()]
    for part in parts[1:]:
        with faults("missing-section", at=next(iter(part))):
            pm.load(part)
        with faults("duplicate-name", at=next(iter(part))):
            pm.load(*parts, part)
    with faults("duplicate-name", at="workload"):
        pm.load(*parts, parts[0])


def test_execute_takes_the_files_of_a_spec_in_front_of_the_data(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    for name in ("einsum", "mapping"):
        Path(f"{name}.yaml").write_text(yaml.safe_dump({name: SECTIONS[name]}))
    data = ["A=random:0.3", "B=random:0.5", "--size", "K=9", "--size", "M=5", "--size", "N=4"]
    assert main(["execute", "einsum.yaml", "mapping.yaml", *data, "--table", "einsums"]) == 0
    assert "M K1 K0 N" in capsys.readouterr().out


def test_a_mapping_of_a_teaal_spec_is_loaded_with_its_einsums(tmp_path: Path) -> None:
    einsum = {"declaration": {"A": ["K", "M"], "Z": ["M"]}, "expressions": ["Z[m] = A[k, m]"]}
    mapping = {"loop-order": {"Z": ["K", "M"]}}
    for name, section in (("einsum", einsum), ("mapping", mapping)):
        (tmp_path / f"{name}.yaml").write_text(yaml.safe_dump({name: section}))
    with faults("no-counterpart", at="mapping"):
        pm.load(tmp_path / "einsum.yaml").with_mapping(tmp_path / "mapping.yaml")
    loaded = pm.load(tmp_path / "einsum.yaml", tmp_path / "mapping.yaml")
    assert loaded.teaal is not None
    assert [m.loop_order for m in loaded.teaal.mappings] == [("K", "M")]
