"""Sweeps where windows stay over the wrap of an inner loop: one factor depends on tiles of two variables."""

from __future__ import annotations

import pytest

import polymodel as pm
from tests.sweep.small import same
from tests.sweep.test_sweep import check_blocks, check_rows

SPEC = {
    "schema_version": 1,
    "arch": {
        "nodes": [
            {
                "type": "Memory",
                "name": "DRAM",
                "size": "inf",
                "actions": [{"name": "read", "energy": 7.0e-12, "throughput": 1.0e9}],
            },
            {
                "type": "Memory",
                "name": "GLB",
                "size": 8 * 18,
                "actions": [{"name": "write", "energy": 1.0e-12, "throughput": 3.0e9}],
            },
            {"type": "Compute", "name": "MAC", "actions": [{"name": "compute", "throughput": 1.0e9}]},
        ]
    },
    "workload": {
        "rank_sizes": {"P": 9, "R": 5, "M": 4},
        "bits_per_value": {"All": 8},
        "einsums": ["O[p, m] = I[H=2*p+r] * F[r, m]"],
    },
    "mapping": {
        "nodes": [
            {"type": "Storage", "component": "DRAM", "tensors": ["I", "F", "O"]},
            {"type": "Temporal", "rank_variable": "p", "tile_shape": "TP"},
            {"type": "Temporal", "rank_variable": "m", "tile_shape": "TM"},
            {"type": "Temporal", "rank_variable": "r", "tile_shape": "TR"},
            {"type": "Temporal", "rank_variable": "p", "tile_shape": "TQ"},
            {"type": "Storage", "component": "GLB", "tensors": ["I", "F", "O"], "reuse": "keep_previous"},
            {"type": "Compute", "einsum": "O", "component": "MAC"},
        ]
    },
}
GRID = {"TP": list(range(1, 10)), "TM": [1, 3, 4], "TR": list(range(1, 6)), "TQ": list(range(1, 10))}


@pytest.mark.slow
def test_points_equal_evaluate() -> None:
    spec = pm.load(SPEC)
    check_blocks(spec, GRID, count=20)
    swept = pm.sweep(spec, GRID, objectives=("energy", "latency"), keep="all")
    assert swept.notes == ()
    check_rows(swept)
    assert swept.points == 9 * 3 * 5 * 9


def test_pruned_fronts_are_those_of_the_whole_grid() -> None:
    spec = pm.load(SPEC)
    fronts = [
        pm.sweep(spec, GRID, objectives=("energy", "working_set:GLB"), prune=prune) for prune in (True, False)
    ]
    assert fronts[0].frame.equals(fronts[1].frame)
    same(fronts[1], pm.sweep(spec, GRID, objectives=("energy", "working_set:GLB"), prune=False, workers=2))


@pytest.mark.parametrize(
    ("textbook", "points"),
    [(False, ((4, 3, 2, 3), (9, 4, 5, 9), (5, 1, 3, 2), (1, 1, 1, 1))), (True, ((9, 2, 1, 3), (3, 4, 5, 1)))],
)
def test_expressions_give_the_numbers_of_evaluate(
    textbook: bool, points: tuple[tuple[int, ...], ...]
) -> None:
    """The general forms at any tiles, those of perfect factors where tiles divide."""
    found = pm.closed_forms(pm.load(SPEC))
    assert set(found.symbols) == set(GRID)
    assert frozenset({"TP", "TR", "TQ"}) in found.analysis.coupled_symbols
    forms = found.assuming("divides") if textbook else found
    for tiles in points:
        values = dict(zip(GRID, tiles, strict=True))
        wanted = pm.evaluate(pm.load(SPEC).bind(**values)).accesses
        table = forms.at(**values).accesses
        columns = [c for c in wanted.columns if c in table.columns and c.endswith("elements")]
        assert columns
        for column in columns:
            assert [int(x) for x in table[column]] == list(wanted[column]), column
