"""Resolution of workloads and architectures: what specs say becomes what is counted."""

from __future__ import annotations

from fractions import Fraction
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from polymodel.arithmetic import Affine
from polymodel.errors import SpecError
from polymodel.loading import load, mapping_to_yaml
from polymodel.mapping.looptree import ComputeNode, Loop, LoopTree, Node, Split, StorageNode
from polymodel.mapping.resolve import resolve_mapping
from polymodel.spec.document import Document, read_file
from polymodel.spec.faults import Faults
from polymodel.spec.section_schemas import MappingSpec
from tests.faults import faults

CASCADE = """\
workload:
  rank_sizes: {M: 8, K: 6, N: 4, P: 5, R: 3, H: 9}
  iteration_space_shape: {m: m mod 2 = 0, zz: 0 <= zz < 3}
  bits_per_value: {weight: 4, Intermediates: 16, Other: 8}
  n_instances: 2
  persistent_tensors: weight
  einsums:
  - name: Copy
    is_copy_operation: true
    tensor_accesses:
    - {name: In, projection: [m, k]}
    - {name: A, projection: [m, k], output: true}
    renames: {weight: Nothing}
  - name: Mul
    n_instances: 3
    rank_sizes: {N: 3}
    iteration_space_shape: [k <= n, n >= 1]
    operations: {map: mul, reduce: max}
    tensor_accesses:
    - {name: A, projection: {K: k, M: m}, backing_storage_size_scale: 0.5}
    - {name: W, projection: [k, n], density: {uniform: 0.1}}
    - {name: B, projection: [m, n], output: true, bits_per_value: 32}
    renames:
    - {name: reduced, source: All.rank_variables - Outputs.rank_variables, expected_count: 1}
  - O[p, zz] = I[H=2*p + r - 1] * F[r, ZZ=zz] + 0 if
renames:
  einsums:
  - name: default
    tensor_accesses:
    - {name: input, source: Inputs & Intermediates, expected_count: 1}
    - {name: weight, source: Inputs - Intermediates}
  - name: O
    tensor_accesses: {weight: F}
    rank_variables: {window: r}
""".replace(" + 0 if", "")


def test_a_cascade_with_everything(tmp_path: Path) -> None:
    path = tmp_path / "w.yaml"
    path.write_text(CASCADE)
    cascade = load(path).workload
    copy, mul, conv = cascade.einsums
    assert copy.is_copy
    assert (copy.n_instances, mul.n_instances) == (2, 6)
    a = mul.access_of("A")
    assert (a.ranks, a.projection) == (("M", "K"), (Affine.variable("m"), Affine.variable("k")))
    assert (a.bits_per_value, a.backing_scale) == (16, Fraction(1, 2))
    assert copy.access_of("A").backing_scale == Fraction(1, 2)
    assert [mul.access_of(t).bits_per_value for t in ("W", "B")] == [4, 32]
    assert copy.access_of("In").bits_per_value == 8
    assert [a.tensor for e in cascade for a in e.accesses if a.persistent] == ["W", "F"]
    assert mul.access_of("W").density == {"uniform": 0.1}
    assert mul.operations == (("map", "mul"), ("reduce", "max"))
    assert dict(mul.renames)["reduced"] == {"k"}
    assert dict(mul.renames)["input"] == {"A"}
    assert "input" not in dict(copy.renames)
    assert dict(conv.renames) == {"weight": {"F"}, "window": {"r"}}
    assert mul.rank_variables == ("m", "k", "n")
    assert mul.bounds == ((0, 6), (0, 2), (1, 2))
    assert conv.rank_variables == ("p", "r", "zz")
    assert conv.bounds == ((0, 4), (0, 2), (0, 2))
    points = [(p, r) for p in range(5) for r in range(3) if 0 <= 2 * p + r - 1 < 9]
    assert conv.iteration_space.count_val().to_python() == 3 * len(points)


def test_default_renames_are_lazy_and_own_ones_strict(tmp_path: Path) -> None:
    path = tmp_path / "w.yaml"
    chained = CASCADE.replace("source: Inputs - Intermediates", "source: Inputs - input").replace(
        "tensor_accesses: {weight: F}", ""
    )
    path.write_text(
        chained.replace(
            "bits_per_value: {weight: 4, Intermediates: 16, Other: 8}", "bits_per_value: {All: 8}"
        )
    )
    with faults("syntax-error", "O", at="workload.persistent_tensors[0]") as caught:
        load(path)
    assert caught.value.diagnostics[0].path.startswith("workload.persistent_tensors")
    path.write_text(CASCADE.replace("expected_count: 1}\n  - O[p", "expected_count: 2}\n  - O[p"))
    with faults("syntax-error", at="workload.einsums[1].renames[0]"):
        load(path)


ARCH = """\
arch:
  assume_overlap: false
  nodes:
  - !Memory
    name: DRAM
    energy_model: {name: constants, values: {read: 2e-12, area: 1e-6}, source: a paper}
    actions:
    - {name: read, throughput: 1e9, bits_per_action: 64}
    - {name: write, energy: 3e-12, source: measured}
  - !Toll
    name: Net
    tensors: {keep: All}
    actions: [{name: read, energy: 1e-12}]
  - !Memory
    name: GLB
    energy_model: {name: table, file: energies.csv}
    allocation: live
    ports: separate
    buffering: single
    read_first: true
    fill_drain_latency: 1e-9
    clock: 1e9
  - !Compute
    name: MAC
    spatial:
    - {name: X, fanout: 4, broadcast_partials: true, link: {energy_per_bit_hop: 1e-13, topology: mesh}}
"""


def test_an_architecture_with_everything(tmp_path: Path) -> None:
    path = tmp_path / "a.yaml"
    path.write_text(ARCH)
    table = (Path(__file__).parent / "energies.csv").read_text()
    (tmp_path / "energies.csv").write_text(table)
    arch = load(path).arch
    assert not arch.assume_overlap
    dram, net, glb, mac = arch.components
    read, write = dram.action("read"), dram.action("write")
    assert (read.energy, read.throughput, read.bits_per_action, read.provenance) == (
        2e-12,
        1e9,
        64,
        "constants: a paper",
    )
    assert (write.energy, write.provenance) == (3e-12, "measured")
    assert (dram.area, dram.area_provenance) == (1e-6, "constants: a paper")
    assert net.kind == "toll"
    assert [a.energy for a in glb.actions] == [1.9e-12, 2.4e-12]
    assert glb.action("read").provenance == "table energies.csv:3: a datasheet"
    assert (glb.area, glb.leak_power) == (8e-7, 0.01)
    assert (glb.allocation, glb.ports, glb.buffering, glb.read_first) == ("live", "separate", "single", True)
    assert (glb.fill_drain_latency, glb.clock) == (1e-9, 1e9)
    dim = mac.dim("X")
    assert dim.may_reuse is None
    assert dim.broadcast_partials
    assert dim.link is not None
    assert (dim.link.topology, dim.link.energy_per_bit_hop) == ("mesh", 1e-13)


@pytest.mark.parametrize(
    ("table", "word"),
    [
        ("component,quantity\nGLB,read\n", "energies.csv:1:1: no column value"),
        ("component,quantity,value\nGLB,read,fast\n", "energies.csv:2:10: 'fast'"),
        ("component,quantity,value\nGLB,read,-1\n", "energies.csv:2:10: read of GLB is -1"),
        (
            "component,quantity,value\nGLB,read,1\nGLB,read,2\n",
            "energies.csv:3:5: read of GLB is given twice",
        ),
        ("component,quantity,value\nGLB\n", "too short"),
        ("component,quantity,value\nGLBB,read,1\n", "did you mean GLBB"),
    ],
)
def test_faulty_tables(tmp_path: Path, table: str, word: str) -> None:
    (tmp_path / "a.yaml").write_text(ARCH)
    (tmp_path / "energies.csv").write_text(table)
    with pytest.raises(SpecError, match=word):
        load(tmp_path / "a.yaml")


SIZES = st.one_of(st.integers(1, 64), st.sampled_from(["TM", "TN"]))
PAIRS = st.lists(st.tuples(st.sampled_from(["E1", "E2", "E3"]), st.sampled_from(["p", "q"])), max_size=3)
OWN = st.dictionaries(st.sampled_from(["E1", "E2", "on"]), SIZES, max_size=3).map(lambda d: tuple(d.items()))
LOOPS = st.builds(
    lambda v, t, i, s, pairs, own, firsts: Loop(
        v, own[0][1] if own else t, None if firsts else i, s, s * "PE", s * "X",
        tuple(dict(pairs).items()), own, firsts,
    ),
    st.sampled_from(["m", "n0", "no", "y"]), SIZES, st.one_of(st.none(), SIZES), st.booleans(), PAIRS,
    OWN, OWN,
)  # fmt: skip
TENSORS = st.lists(st.sampled_from(["A", "NO", "null_", "T1", "e5"]), min_size=1, max_size=3, unique=True)
STORES = st.builds(
    StorageNode, st.sampled_from(["DRAM", "GLB"]), TENSORS.map(tuple),
    st.sampled_from(["refill", "slide", "keep_previous"]),
)  # fmt: skip
COMPUTES = st.builds(ComputeNode, st.sampled_from(["E1", "on", "E2"]), st.just("MAC"))


def branches(depth: int) -> st.SearchStrategy[tuple[Node, ...]]:
    above = st.lists(st.one_of(LOOPS, STORES), max_size=3)
    last: st.SearchStrategy[Node] = COMPUTES
    if depth:
        below = st.lists(branches(depth - 1), min_size=1, max_size=3).map(tuple)
        last = st.one_of(COMPUTES, st.builds(Split, below, st.booleans()))
    return st.tuples(above, last).map(lambda pair: (*pair[0], pair[1]))


@settings(max_examples=80, deadline=None)
@given(branches(2), st.sampled_from(["", "fused"]))
def test_every_tree_saves_and_loads_unchanged(
    tmp_path_factory: pytest.TempPathFactory, nodes: tuple[Node, ...], name: str
) -> None:
    tree = LoopTree(nodes, name)
    path = tmp_path_factory.getbasetemp() / "tree.yaml"
    path.write_text(mapping_to_yaml(tree))
    document = Document()
    read_file(path, document, {})
    document.faults.raise_if_any()
    written = document.sections["mapping"]
    assert isinstance(written, MappingSpec)
    faults = Faults()
    found = resolve_mapping(written, faults)
    assert not faults.found
    assert found is not None
    assert found.tree == tree
    assert len(found.paths) == sum(1 for _ in tree.walk())
