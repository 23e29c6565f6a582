"""Sweeps over the sizes of first tiles, beside those of all others."""

from __future__ import annotations

from random import Random
from typing import Any

import pytest

import polymodel as pm
from tests.sweep.small import same, written
from tests.sweep.test_legal import NODES, ROW
from tests.sweep.test_sweep import check_blocks, check_rows

SPEC = """
arch:
  nodes:
  - !Memory {name: DRAM, actions: [{name: read, energy: 7, throughput: 1.0e9}]}
  - !Memory {name: GLB, size: 300, actions: [{name: write, energy: 1, throughput: 3.0e9}]}
  - !Container {name: PE, spatial: [{name: X, fanout: 4}]}
  - !Compute {name: MAC, actions: [{name: compute, throughput: 1.0e9}]}
workload:
  rank_sizes: {P: 9, R: 3, M: 6}
  bits_per_value: {All: 8}
  einsums: ["O[p, m] = I[H=2*p+r] * F[r, m]"]
"""
TREE: list[dict[str, Any]] = [
    {"type": "Storage", "component": "DRAM", "tensors": ["I", "F", "O"]},
    {"type": "Temporal", "rank_variable": "p", "tile_shape": "TP", "initial_tile_shape": "FP"},
    {"type": "Temporal", "rank_variable": "p", "tile_shape": "TQ", "initial_tile_shape": 2},
    {"type": "Storage", "component": "GLB", "tensors": ["I", "F", "O"], "reuse": "slide"},
    {
        "type": "Spatial", "rank_variable": "m", "tile_shape": "TM", "initial_tile_shape": "FM",
        "component": "PE", "name": "X",
    },
    {"type": "Compute", "einsum": "O", "component": "MAC"},
]  # fmt: skip
GRID = {
    "TP": [1, 2, 3, 5, 7, 9],
    "FP": [1, 2, 3, 4, 6, 9],
    "TQ": [1, 2, 4, 7],
    "TM": [1, 2, 4, 6],
    "FM": [1, 2, 5, 6],
}


@pytest.mark.slow
def test_points_equal_evaluate() -> None:
    spec = written(SPEC, TREE)
    check_blocks(spec, GRID, count=40)
    swept = pm.sweep(spec, GRID, objectives=("energy", "latency"), keep="all")
    assert swept.notes == ()
    check_rows(swept)
    # The inner loop over p stands in tiles of at most max(TP, FP); 2, the first of its own, fits there too.
    around = [max(tp, fp) for tp in GRID["TP"] for fp in GRID["FP"]]
    inner = sum(whole >= 2 and tq <= whole for whole in around for tq in GRID["TQ"])
    instances = sum(1 - (f - 6) // t <= 4 for t in GRID["TM"] for f in GRID["FM"])
    assert len(swept.frame) == inner * instances


def test_pruned_fronts_are_those_of_the_whole_grid() -> None:
    spec, wanted = written(SPEC, TREE), ("energy", "working_set:GLB")
    fronts = [pm.sweep(spec, GRID, objectives=wanted, prune=prune) for prune in (True, False)]
    assert fronts[0].frame.equals(fronts[1].frame)
    same(fronts[1], pm.sweep(spec, GRID, objectives=wanted, prune=False, workers=2))


def test_winners_load_back() -> None:
    swept = pm.sweep(written(SPEC, TREE), GRID, objectives=("energy",))
    best = swept.best()
    text = swept.mapping_yaml(best)
    assert f"initial_tile_shape: {best['FP']:.0f}" in text
    report = pm.evaluate(swept.spec(best))
    assert report.costs.total_energy == pytest.approx(float(best["energy"]), rel=1e-12)


def test_a_first_tile_may_follow_from_the_others() -> None:
    """The classic first tile: as large as the others and a halo."""
    spec = written(SPEC + "symbols: {TP: null, TM: null, FP: TP + 2, TQ: TP, FM: TM}\n", TREE)
    swept = pm.sweep(spec, {"TP": pm.all_sizes("p"), "TM": pm.all_sizes("m")}, keep="all")
    assert swept.notes == ()
    assert set(swept.frame["TP"]) == set(range(1, 8))
    check_rows(swept)


@pytest.mark.slow
def test_dependences_are_those_of_evaluate() -> None:
    """Summed up in one instance only where the first and all other tiles of time have one tile in space."""
    nodes = [dict(n) for n in NODES]
    nodes[1]["initial_tile_shape"] = "F"
    spec, pick, closed = written(ROW.replace("{A: null", "{F: null, A: null"), nodes), Random(5), 0
    for _ in range(25):
        grid = {n: sorted(pick.sample(range(1, 9), 2)) for n in "AFB"}
        legal = set()
        for point in [{"A": a, "F": f, "B": b} for a in grid["A"] for f in grid["F"] for b in grid["B"]]:
            try:
                pm.evaluate(spec.bind(**point))
            except pm.SpecError:
                continue
            legal.add(tuple(point.values()))
        try:
            swept = pm.sweep(spec, grid, objectives=("energy",), keep="all")
        except pm.SpecError:
            assert not legal
            continue
        assert set(zip(*(swept.frame[n] for n in "AFB"), strict=True)) == legal
        closed += swept.notes == ()
    assert closed
