"""`load` and `Spec`: whole specs from files, names, plain data and schema objects."""

from __future__ import annotations

import math
import pickle
from pathlib import Path

import pytest

from polymodel.api.evaluation import evaluate
from polymodel.errors import SpecError
from polymodel.loading import load, mapping_to_yaml
from polymodel.mapping.looptree import Loop, LoopTree, Split, StorageNode
from polymodel.spec.arch_schema import Arch
from polymodel.spec.schemas import schema
from polymodel.spec.section_schemas import MappingSpec, Renames, Storage, Temporal, TensorAccess, Workload
from tests.faults import every_fault, faults

HERE = Path(__file__).parent
EXAMPLE = HERE / "two_matmuls.yaml"


def test_the_example_of_the_design_loads() -> None:
    spec = load(EXAMPLE)
    assert spec.check() == ()
    first, second = spec.workload.einsums
    assert (first.name, first.rank_variables, first.bounds) == (
        "T1",
        ("m", "n0", "n1"),
        ((0, 63), (0, 31), (0, 47)),
    )
    assert dict(second.renames) == {
        "input": frozenset({"T1"}),
        "output": frozenset({"T2"}),
        "weight": frozenset({"W1"}),
    }
    assert spec.workload.intermediates == {"T1"}
    dram, glb, pe, mac = spec.arch.components
    assert (dram.size_bits, glb.size_bits, glb.leak_power, glb.area) == (math.inf, 1048576, 0.01, 1.1e-6)
    assert dram.action("read").throughput == 8 * 614e9
    assert dram.action("read").provenance == "given"
    assert dram.keep is not None
    assert glb.keep is not None
    assert dram.keep.tensors("T1") == {"T0", "W0"}
    assert glb.keep.tensors("T1") == glb.keep.tensors("Second") == {"T1"}
    assert pe.dim("X").reuses("Second", "T1")
    assert not pe.dim("X").reuses("Second", "W1")
    assert (pe.kind, mac.kind, spec.arch.instances("MAC")) == ("container", "compute", 256)
    tree = spec.mapping
    assert tree is not None
    assert tree.einsums == ("T1", "Second")
    assert tree.loops("Second")[1][1] == Loop("n2", 3, None, True, "PE", "X")


def test_iteration_spaces_are_isl_sets() -> None:
    spec = load(EXAMPLE)
    assert spec.workload["T1"].iteration_space.count_val().to_python() == 64 * 32 * 48
    assert "T0[" in str(spec.workload["T1"].access("T0"))


def test_symbols() -> None:
    spec = load(EXAMPLE)
    assert dict(spec.symbols) == {"TN2": 3}
    bound = spec.bind(TN2=4)
    assert bound.mapping is not None
    assert spec.mapping is not None
    assert bound.mapping.loops("Second")[1][1].tile_shape == 4
    assert spec.mapping.loops("Second")[1][1].tile_shape == 3
    assert spec.template is not None
    assert spec.template.loops("Second")[1][1].tile_shape == "TN2"
    tile = "mapping.nodes[4].nodes[1].nodes[0].tile_shape"
    for values, code, at in (
        ({"TN3": 1}, "unknown-name", "symbols.TN3"),
        ({"TN2": 41}, "invalid-tile-size", tile),
        ({"TN2": 2}, "over-fanout", tile),
    ):
        with faults(code, at=at):
            spec.bind(**values)
    for value in (0, 2.5, math.inf):
        with every_fault(
            ("not-positive-integer", "mapping.nodes[4].nodes[1].nodes[0].tile_shape"),
            ("over-fanout", "mapping.nodes[4].nodes[1].nodes[0].tile_shape"),
        ):
            spec.bind(TN2=value)


def test_check_tells_of_broken_dependences_too() -> None:
    """What `evaluate` and `polymodel validate` refuse as a fault of the input, `check` has in its list."""
    nodes = [
        {"type": "Storage", "component": "DRAM", "tensors": ["T0", "W0", "W1", "T2"]},
        {"type": "Storage", "component": "GLB", "tensors": ["T1"]},
        {"type": "Temporal", "rank_variable": "n0", "tile_shape": "TN0"},
        {
            "type": "Sequential",
            "nodes": [{"type": "Compute", "einsum": e, "component": "MAC"} for e in ("T1", "Second")],
        },
    ]
    spec = load(EXAMPLE).with_mapping(load({"mapping": {"nodes": nodes}, "symbols": {"TN0": 8}}).mapping)
    (fault,) = spec.check()
    assert fault.code == "illegal-dependence"
    with pytest.raises(SpecError) as told:
        evaluate(spec)
    assert told.value.diagnostics == (fault,)


def test_unbound_symbols_wait_for_bind(tmp_path: Path) -> None:
    text = EXAMPLE.read_text().replace("symbols: {TN2: 3}", "symbols: {GLB: , HALF: GLB / 2}")
    path = tmp_path / "spec.yaml"
    path.write_text(text.replace("size: 8 * 128 * 1024", "size: HALF"))
    spec = load(path)
    assert {d.code for d in spec.check()} == {"unbound-symbol"}
    assert dict(spec.symbols) == {"GLB": None, "HALF": None, "TN2": None}
    with every_fault(
        ("unbound-symbol", "arch.nodes[1].size"),
        ("unbound-symbol", "mapping.nodes[4].nodes[1].nodes[0].tile_shape"),
    ):
        _ = spec.arch
    bound = spec.bind(TN2=5, GLB=4096)
    assert bound.check() == ()
    assert bound.arch["GLB"].size_bits == 2048
    assert bound.bind(GLB=64).arch["GLB"].size_bits == 32


def test_three_files_and_plain_data(tmp_path: Path) -> None:
    import yaml

    whole = EXAMPLE.read_text()
    start = {
        name: whole.index(f"\n{name}:") for name in ("arch", "workload", "renames", "mapping", "symbols")
    }
    parts = {
        "a.yaml": whole[start["arch"] : start["workload"]],
        "w.yaml": whole[start["workload"] : start["mapping"]],
        "m.yaml": whole[start["mapping"] :],
    }
    for name, text in parts.items():
        (tmp_path / name).write_text(text)
    spec = load(*(tmp_path / name for name in parts))
    assert spec.check() == ()
    assert (spec.workload, spec.arch, spec.mapping) == (
        load(EXAMPLE).workload,
        load(EXAMPLE).arch,
        load(EXAMPLE).mapping,
    )
    with faults("duplicate-name", at="mapping"):
        load(EXAMPLE, tmp_path / "m.yaml")
    data = yaml.safe_load(whole[start["workload"] : start["mapping"]])
    assert load(data).workload == spec.workload
    assert load(data, tmp_path / "a.yaml").arch == spec.arch
    for part in (str(tmp_path / "w.yaml"), tmp_path / "w.yaml"):
        with faults("missing-section", at="arch"):
            _ = load(part).arch


def test_schema_objects_are_checked_like_yaml() -> None:
    workload = Workload(
        rank_sizes={"M": 4, "K": 3},
        bits_per_value={"All": 8},
        einsums=[{"name": "Y", "tensor_accesses": [
            TensorAccess(name="A", projection=["m", "k"]),
            TensorAccess(name="Y", projection={"M": "m"}, output=True),
        ]}],
    )  # fmt: skip
    arch = Arch(nodes=[{"type": "Memory", "name": "D"}, {"type": "Compute", "name": "C"}])
    nodes = [Storage(component="D", tensors=["A", "Y"]), Temporal(rank_variable="m", tile_shape=1)]
    mapping = MappingSpec(nodes=[*nodes, {"type": "Compute", "einsum": "Y", "component": "C"}])
    spec = load(workload, {"arch": arch}, mapping, Renames())
    assert spec.check() == ()
    assert spec.workload["Y"].bounds == ((0, 3), (0, 2))
    for build, code, at in (
        (lambda: Storage(component="D", tensors=["A"], resue="slide"), "unknown-key", "resue"),
        (lambda: Storage(component="D"), "missing-key", ""),
        (lambda: Storage(component="D", tensors=["A"], reuse="slid"), "unknown-choice", "reuse"),
        (lambda: Temporal(rank_variable="m", tile_shape="2 *"), "syntax-error", "tile_shape"),
        (lambda: Workload(einsums=["Y[m] = A[m * m]"]), "not-affine", "einsums[0]"),
        (lambda: Arch(nodes=[{"type": "Memry", "name": "D"}]), "invalid-structure", "nodes[0]"),
        (lambda: TensorAccess(name="A", projection=["m + k"]), "syntax-error", "projection[0]"),
    ):
        with faults(code, at=at):
            build()
    with faults("unknown-name", at="mapping.nodes[0].tensors[0]"):
        load(workload, arch, MappingSpec(nodes=[Storage(component="D", tensors=["B"]), *mapping.nodes]))
    assert hash(nodes[0]) == hash(Storage(component="D", tensors=["A", "Y"]))


def test_all_faults_of_all_sections_at_once(tmp_path: Path) -> None:
    text = (
        EXAMPLE.read_text()
        .replace("energy: 7.0e-12", "energy: -1")
        .replace("expected_count", "expected_cont")
    )
    text = text.replace("reuse: refill", "reuse: refil").replace("N2: 40", "N2: [40]")
    path = tmp_path / "bad.yaml"
    path.write_text(text)
    with pytest.raises(SpecError) as caught:
        load(path)
    shown = str(caught.value)
    for word in ("expected_count?", "did you mean refill", "a list is not a number"):
        assert word in shown
    assert [d.place.line for d in caught.value.diagnostics] == sorted(
        d.place.line for d in caught.value.diagnostics
    )


def test_sources_that_are_none(tmp_path: Path) -> None:
    (tmp_path / "matmul.yaml").write_text("workload: {einsums: []}\n")
    for source, word in (
        (str(tmp_path / "matmull.yaml"), "did you mean .*matmul.yaml"),
        ("matmull", "did you mean matmul"),
        ("workload:\n  einsums: []\n", "YAML text is not a source"),
        ("../nowhere/spec", "no such file"),
        ("a\0b.yaml", "no such file"),
        (tmp_path, "not a regular file"),
        (3, "3 is not a source"),
    ):
        with pytest.raises(SpecError, match=word):
            load(source)
    with faults("missing-argument", "load", at=""):
        load()


def test_bytes_that_are_no_text(tmp_path: Path) -> None:
    path = tmp_path / "binary.yaml"
    path.write_bytes(b"workload: \xff\xfe")
    with faults("unreadable-file", at=""):
        load(path)
    path.write_bytes(b"\xef\xbb\xbfworkload:\r\n  rank_sizes: {M: 4}\r\n  bits_per_value: {All: 1}\r\n"
                     b"  einsums:\r\n  - Y[m] = A[m]\r\n")  # fmt: skip
    assert load(path).workload["Y"].bounds == ((0, 3),)


@pytest.mark.parametrize(
    ("section", "remedy"),
    [
        ("constraints: {max_fused_loops: 0}", "explore: {max_fused_loops: 0}"),
        ("objectives: [energy]", "write it in `sweep:` or `explore:`"),
        ("max_fused_loops: 0", "write it in `explore:`"),
        ("nodes: []", "write it in `arch:` or `mapping:`"),
        ("architecture: {}", "the machine stands in `arch:`"),
        ("problem: {}", "the Einsums stand in `workload:`"),
        ("exlore: {}", "did you mean explore?"),
        ("foo: 1", "sweep, explore, codesign, symbols, schema_version;"),
        ("config: {}", "`x-config:`"),
    ],
)
def test_unknown_sections_are_told(section: str, remedy: str, tmp_path: Path) -> None:
    path = tmp_path / "spec.yaml"
    path.write_text(f"{EXAMPLE.read_text()}\n{section}\n")
    with pytest.raises(SpecError) as caught:
        load(path)
    (found,) = caught.value.diagnostics
    assert found.message == f"unknown section `{section.partition(':')[0]}`"
    assert remedy in found.remedy
    assert found.place.line == len(path.read_text().splitlines())


def test_a_section_of_a_teaal_spec_alone_asks_for_the_others(tmp_path: Path) -> None:
    path = tmp_path / "spec.yaml"
    path.write_text(f"{EXAMPLE.read_text()}\nbindings: {{}}\n")
    with faults("missing-section", at="bindings"):
        load(path)


def test_keys_for_notes_and_anchors_are_free(tmp_path: Path) -> None:
    path = tmp_path / "spec.yaml"
    head = "x-sizes: &size 5\nname: ours\ndescription: a trial\nnotes: [one]\n"
    path.write_text(head + EXAMPLE.read_text().replace("{TN2: 3}", "{TN2: *size}"))
    spec = load(path)
    assert set(spec.extras) == {"x-sizes", "name", "description", "notes"}
    assert spec.symbols["TN2"] == 5


def test_library_names() -> None:
    spec = load("matmul/output_stationary", "simple_two_level", M=32)
    assert spec.library == ("matmul", "simple_two_level")
    assert dict(spec.workload.rank_sizes)["M"] == 32
    assert spec.mapping is not None
    other = spec.with_mapping("weight_stationary")
    assert other.mapping != spec.mapping
    assert other.workload == spec.workload
    with faults("unknown-name", "weight_stationary", at=""):
        spec.with_mapping("weigth_stationary")
    with faults("unknown-name", "simple_two_level", at=""):
        load("matmul/nonsense", "simple_two_level")
    assert load("matmul").mapping is None


def test_a_mapping_named_with_its_architecture_goes_with_another_one(tmp_path: Path) -> None:
    mine = tmp_path / "mine.yaml"
    library = (HERE.parents[1] / "arch" / "simple_two_level.yaml").read_text(encoding="utf-8")
    mine.write_text(library.replace("8 * {{ GLB_KIB | default(32) }} * 1024", "64 KiB"), encoding="utf-8")
    spec = load(mine, "matmul/simple_two_level/weight_stationary", M=30)
    assert spec.mapping == load("matmul/weight_stationary", "simple_two_level", M=30).mapping
    assert spec.arch["GLB"].size_bits == 8 * 64 * 1024
    with faults("unknown-name", "matmul/simple_two_level/weight_stationary", at=""):
        load(mine, "matmul/weight_stationary")
    with faults("unknown-name", "weight_stationary", at=""):
        load(mine, "matmul/simple_two_level/weight_stationery")


def test_with_mapping_takes_trees_and_files(tmp_path: Path) -> None:
    spec = load(EXAMPLE)
    assert spec.template is not None
    path = tmp_path / "mapping.yaml"
    path.write_text(mapping_to_yaml(spec.template))
    again = spec.with_mapping(path)
    assert again.template == spec.template
    assert again.mapping == spec.mapping
    tree = LoopTree((StorageNode("DRAM", ("T0",)), *spec.template.nodes))
    with faults("invalid-structure", "DRAM", "T0", at="mapping.component") as caught:
        spec.with_mapping(tree)
    assert caught.value.diagnostics[0].place.file == ""
    split = spec.template.nodes[-1]
    assert isinstance(split, Split)
    with faults("unmapped-einsum", at="mapping"):
        spec.with_mapping(LoopTree((*spec.template.nodes[:-1], *split.branches[0])))


def test_specs_travel_between_processes() -> None:
    spec = load(EXAMPLE).bind(TN2=4)
    again = pickle.loads(pickle.dumps(spec))
    assert (again.workload, again.arch, again.mapping) == (spec.workload, spec.arch, spec.mapping)
    assert repr(again) == f"Spec(files=[{str(EXAMPLE)!r}], workload, arch, mapping, symbols: TN2=4)"


@pytest.mark.parametrize(
    "text",
    [
        "[" * 100_000,
        "{a: " * 50_000,
        "- " * 100_000,
        "? " * 50_000,
        "\n".join(" " * i + "a:" for i in range(900)),
    ],
)
def test_deep_nesting_is_refused_before_it_is_built(tmp_path: Path, text: str) -> None:
    path = tmp_path / "deep.yaml"
    path.write_text(text)
    with faults("too-large", at="") as caught:
        load(path)
    assert len(str(caught.value)) < 1000


def test_json_schema_covers_the_example() -> None:
    found = schema("spec")
    properties = found["properties"]
    assert isinstance(properties, dict)
    sections = {"workload", "renames", "arch", "mapping", "sweep", "explore", "codesign"}
    assert set(properties) == {"schema_version", "symbols", *sections}
    definitions = found["$defs"]
    assert isinstance(definitions, dict)
    assert {"Memory", "Storage", "Temporal", "TensorAccess"} <= set(definitions)


def test_ranks_in_another_order_are_refused_in_one_line_form_only() -> None:
    """A list projection names its ranks, whatever their order; one line reads like a transpose."""
    sizes = {"rank_sizes": {"M": 4, "N": 3, "K": 2}, "bits_per_value": {"All": 8}}
    first, second = "T[m, n] = A[m, k] * B[k, n]", "U[m, n] = T[n, m] * D[m, n]"
    with faults("shape-mismatch", at="workload.einsums[1]"):
        load({"workload": {**sizes, "einsums": [first, second]}})
    listed = {"name": "U", "tensor_accesses": [
        {"name": "T", "projection": ["n", "m"]}, {"name": "U", "projection": ["m", "n"], "output": True},
    ]}  # fmt: skip
    assert len(load({"workload": {**sizes, "einsums": [first, listed]}}).workload) == 2
    turned = "U[m, n] = T[M=n, N=m] * D[m, n]"
    square = {**sizes, "rank_sizes": {"M": 4, "N": 4, "K": 2}}
    access = load({"workload": {**square, "einsums": [first, turned]}}).workload["U"].accesses[0]
    assert access.ranks == ("M", "N")
    assert [p.variables for p in access.projection] == [("n",), ("m",)]


def test_a_template_that_fails_tells_one_fault() -> None:
    with pytest.raises(SpecError) as caught:
        load("conv1d", "simple_two_level", STRIDE="two")
    assert len(caught.value.diagnostics) == 1
