"""Tiles per Einsum: tied ranks of other names and sizes share a loop, each with a tile size of its own."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import cast

import pytest
from hypothesis import given, settings

import polymodel as pm
from polymodel.analysis.result import Problem
from polymodel.errors import NotSeparable, SpecError
from polymodel.loading import mapping_to_yaml
from polymodel.mapping.looptree import Loop
from tests.analysis.test_agreement import SETTINGS
from tests.analysis.test_fused import compare
from tests.faults import faults, refused
from tests.fused import lawless_fused
from tests.generators import lawless

# A convolution of 16 rows, then a pool of two rows into one.
POOLED = """
arch:
  nodes:
  - !Memory {name: DRAM, actions: [{name: read, energy: 1}, {name: write, energy: 1}]}
  - !Memory {name: GLB, actions: [{name: read, energy: 0}, {name: write, energy: 0}]}
  - !Container {name: PE, spatial: [{name: X, fanout: 4}]}
  - !Compute {name: MAC, actions: [{name: compute, energy: 0, throughput: 1}]}
workload:
  bits_per_value: {All: 8}
  iteration_space_shape: {p1: 0 <= p1 < 16, r: 0 <= r < 3, p2: 0 <= p2 < 8, s: 0 <= s < 2}
  einsums:
  - name: Conv
    tensor_accesses:
    - {name: A, projection: {H: p1 + r}}
    - {name: B, projection: {Y: p1}, output: true}
  - name: Pool
    tensor_accesses:
    - {name: B, projection: {Y: 2*p2 + s}}
    - {name: C, projection: {P: p2}, output: true}
mapping:
  nodes:
  - !Storage {component: DRAM, tensors: [A, C]}
  - LOOP
  - !Storage {component: GLB, tensors: [A, B, C]}
  - !Sequential
    nodes:
    - !Compute {einsum: Conv, component: MAC}
    - !Compute {einsum: Pool, component: MAC}
"""
EINSUMS = {"B": "B[n, k] = A[n, k]", "Z": "Z[n, k] = B[n, k] * C[n, k]"}
LINK = {"topology": "mesh", "energy_per_bit_hop": 1, "throughput": 1}
TIED = "!Temporal {rank_variable: {Conv: p1, Pool: p2}, tile_shape: {Conv: 8, Pool: 4}}"


def pooled(folder: Path, loop: str = TIED) -> pm.Spec:
    file = folder / "pooled.yaml"
    file.write_text(POOLED.replace("LOOP", loop))
    return pm.load(str(file))


@pytest.mark.parametrize("engine", ["exact", "enumerate", "auto"])
def test_each_tile_of_the_pool_reads_its_tile_of_the_convolution(tmp_path: Path, engine: str) -> None:
    found = pm.evaluate(pooled(tmp_path), engine=engine).analysis
    held = {b.tensor: b for b in found.buffets if b.component == "GLB"}
    assert {t: (b.tile_max, b.visits) for t, b in held.items()} == {"A": (10, 2), "B": (8, 2), "C": (4, 2)}
    assert {c.einsum: c.operations for c in found.compute} == {"Conv": 48, "Pool": 16}
    reads = {t.tensor: t.reads for t in found.traffic if t.component == "DRAM"}
    assert reads == {"A": 20, "C": 0}


@pytest.mark.parametrize("engine", ["exact", "enumerate"])
def test_spatial_tiles_of_their_own_use_as_many_instances(tmp_path: Path, engine: str) -> None:
    loop = TIED.replace("Temporal", "Spatial").replace("8, Pool: 4}", "4, Pool: 2}, component: PE, name: X")
    # The storage is per instance: a memory below the fanout.
    memory = next(line for line in POOLED.splitlines(keepends=True) if "name: GLB" in line)
    fanout = next(line for line in POOLED.splitlines(keepends=True) if "Container" in line)
    text = POOLED.replace(memory, "").replace(fanout, fanout + memory)
    file = tmp_path / "pooled.yaml"
    file.write_text(text.replace("LOOP", loop))
    found = pm.evaluate(pm.load(str(file)), engine=engine).analysis
    assert {(c.einsum, c.instances, c.busiest) for c in found.compute} == {("Conv", 4, 12), ("Pool", 4, 4)}


def test_the_tree_prints_saves_and_loads(tmp_path: Path) -> None:
    loop = TIED.replace("8,", "TC,").replace("}}", "}, initial_tile_shape: {Pool: 3}}")
    spec = pooled(tmp_path, loop)
    assert spec.template is not None
    assert "tile TC in Conv, 4 in Pool, first tile 3 in Pool" in repr(spec.template)
    (tmp_path / "m.yaml").write_text(mapping_to_yaml(spec.template, {"TC": 6}))
    again = spec.with_mapping(tmp_path / "m.yaml")
    assert again.template == spec.template
    assert again.mapping is not None
    assert dict(again.mapping.loops("Conv"))[1].tile_shape == 6
    assert dict(again.mapping.loops("Pool"))[1].initial_tile_shape == 3
    # Its tiles are sound; its dependences are those of a Pool that reads rows not yet made.
    assert {d.code for d in again.check()} == {"illegal-dependence"}
    theta = again.mapping.schedule("Pool")
    assert theta.range().dim_max_val(0).to_python() == 2


def test_closed_forms_refuse_tiles_per_einsum_by_name(tmp_path: Path) -> None:
    with refused("unsupported-loop", "p1", "Conv", "Pool", kind=NotSeparable):
        pm.evaluate(pooled(tmp_path), engine="symbolic")


@pytest.mark.parametrize(
    ("tiles", "fault"),
    [
        ("{Conv: 8}", "Einsum Pool has no tile size"),
        ("{Conv: 8, Pool: 4, Pol: 4}", "unknown Einsum Pol"),
        ("{Conv: 8, Pool: 9}", "tile size 9 of p2 is larger than the enclosing extent 8"),
        ("{Conv: 0, Pool: 4}", "tile size 0 is not a whole number of at least 1"),
        ("{Conv: 8, Pool: 2 * T}", "`2 \\* T` is an expression, and a tile size is a number or a symbol"),
        ("{}", "no tile size is given"),
        ("[8, 4]", "a tile size must be 8, TM or"),
    ],
)
def test_faults_of_tiles_are_located(tmp_path: Path, tiles: str, fault: str) -> None:
    with pytest.raises(SpecError, match=fault) as caught:
        pooled(tmp_path, TIED.replace("{Conv: 8, Pool: 4}", tiles))
    assert all(d.place.line for d in caught.value.diagnostics)


def test_a_tile_of_an_einsum_that_the_loop_does_not_bind_is_a_fault(tmp_path: Path) -> None:
    loop = "!Temporal {rank_variable: p2, tile_shape: {Pool: 4, Conv: 8}}"
    with faults("invalid-loop", at="mapping.nodes[1].tile_shape.Conv"):
        pooled(tmp_path, loop)
    assert pm.evaluate(pooled(tmp_path, loop.replace(", Conv: 8", ""))).analysis.compute[0].operations == 48


def test_a_symbol_in_one_tile_is_swept(tmp_path: Path) -> None:
    file = tmp_path / "pooled.yaml"
    loop = TIED.replace("8,", "TC,").replace("Pool: 4", "Pool: TP")
    file.write_text(POOLED.replace("LOOP", loop) + "symbols: {TC: 8, TP: 4}\n")
    spec = pm.load(str(file))
    found = pm.sweep(spec, {"TC": [4, 8], "TP": [2, 4]}, where=["TC == 2 * TP"], keep="all")
    reads = {p: pm.evaluate(spec, symbols={"TC": p[0], "TP": p[1]}).total_energy for p in ((4, 2), (8, 4))}
    rows = {(r.TC, r.TP): r.energy for r in found.frame.itertuples()}
    assert rows == pytest.approx(reads)


def own(problem: Problem) -> bool:
    return any(isinstance(n, Loop) and n.uneven for _, n, _ in problem.tree.walk())


def run_many(count: int) -> Counter[str]:
    tally: Counter[str] = Counter()

    @settings(max_examples=count, **SETTINGS)
    @given((lawless() | lawless_fused()).filter(own))
    def agree(problem: Problem) -> None:
        compare(problem, tally)

    cast(Callable[[], None], agree)()
    return tally


@pytest.mark.slow
def test_tiles_per_einsum_agree() -> None:
    tally = run_many(20)
    assert tally["kept"] > 8, tally
    assert tally["broken"] > 1, tally


@pytest.mark.slow
def test_tiles_per_einsum_agree_at_length() -> None:
    tally = run_many(3000)
    assert tally["refused"] < 0.15 * tally["kept"], tally


def test_instances_of_several_loops_along_a_dimension_are_the_same_for_all_einsums() -> None:
    """Where the outer loop cuts the variable of one Einsum alone, both count as many of the inner one."""
    arch = [
        {"type": "Memory", "name": "DRAM"},
        {"type": "Container", "name": "PE", "spatial": [{"name": "X", "fanout": 2, "link": LINK}]},
        {"type": "Memory", "name": "RF"},
        {"type": "Compute", "name": "MAC"},
    ]
    along = {"type": "Spatial", "tile_shape": 2, "component": "PE", "name": "X"}
    nodes = [
        {"type": "Storage", "component": "DRAM", "tensors": ["A", "C", "Z"]},
        {**along, "rank_variable": "n"},
        {**along, "rank_variable": {"B": "n", "Z": "k"}},
        {"type": "Storage", "component": "RF", "tensors": ["B"]},
        {"type": "Sequential", "nodes": [{"type": "Compute", "einsum": e, "component": "MAC"} for e in "BZ"]},
    ]
    workload = {"rank_sizes": {"N": 4, "K": 2}, "bits_per_value": {"All": 1}, "einsums": [*EINSUMS.values()]}
    spec = pm.load({"arch": {"nodes": arch}, "workload": workload, "mapping": {"nodes": nodes}})
    exact, walked = (pm.evaluate(spec, engine=e).analysis for e in ("exact", "enumerate"))
    assert exact.loads == walked.loads
    assert {x.instances for x in walked.loads if x.component == "RF"} == {2}
    # Of both operands half goes one link on, to the second instance, and all of it over the one at the root.
    assert {x.einsum: dict(x.hops) for x in walked.links} == {"B": {"A": 12}, "Z": {"C": 12, "Z": 12}}
    assert exact.links == walked.links
