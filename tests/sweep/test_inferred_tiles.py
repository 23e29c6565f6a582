"""Sweeps of fused windows, where a producer's extent follows from the loops over its consumer."""

from __future__ import annotations

from typing import Any

import polymodel as pm
from tests.sweep.test_sweep import check_blocks, check_rows


def fused(*, outer: int | str, inner: int | str) -> pm.Spec:
    """Two fused convolutions: loops over p2 above the split, a loop over p1, which is inferred, below."""
    actions = [{"name": n, "energy": 2.0, "throughput": 1e9} for n in ("read", "write")]
    document: dict[str, Any] = {
        "arch": {
            "nodes": [
                {"type": "Memory", "name": "DRAM", "actions": actions},
                {"type": "Memory", "name": "GLB", "size": 1600, "actions": actions},
                {"type": "Compute", "name": "MAC", "actions": [{"name": "compute", "throughput": 1e9}]},
            ]
        },
        "workload": {
            "rank_sizes": {"P2": 6, "R2": 2, "P1": 7, "R1": 2, "P0": 8},
            "bits_per_value": {"All": 1},
            "einsums": ["T1[p1] = T0[P0=p1+r1] * W1[r1]", "T2[p2] = T1[P1=p2+r2] * W2[r2]"],
        },
        "mapping": {
            "nodes": [
                {"type": "Storage", "component": "DRAM", "tensors": ["T0", "W1", "W2", "T2"]},
                {"type": "Temporal", "rank_variable": "p2", "tile_shape": outer},
                {"type": "Temporal", "rank_variable": "p2", "tile_shape": 2},
                {"type": "Storage", "component": "GLB", "tensors": ["T0", "T1"]},
                {
                    "type": "Sequential",
                    "nodes": [
                        {
                            "type": "Nested",
                            "nodes": [
                                {"type": "Temporal", "rank_variable": "p1", "tile_shape": inner},
                                {"type": "Storage", "component": "GLB", "tensors": ["W1"]},
                                {"type": "Compute", "einsum": "T1", "component": "MAC"},
                            ],
                        },
                        {
                            "type": "Nested",
                            "nodes": [{"type": "Compute", "einsum": "T2", "component": "MAC"}],
                        },
                    ],
                },
            ]
        },
    }
    return pm.load(document)


def test_a_factor_has_symbols_of_the_consumer_and_of_the_inferred_producer() -> None:
    spec = fused(outer="TO", inner="TI")
    grid = {"TO": [2, 3, 4, 5, 6], "TI": [1, 2, 3]}
    check_blocks(spec, grid, count=15)
    swept = pm.sweep(spec, grid, objectives=("energy", "latency"), keep="all")
    assert swept.points == 15
    check_rows(swept)


def test_a_tile_beyond_the_inferred_extent_leaves_no_point() -> None:
    # Tiles of 2 of p2 need 3 of T1, however p2 is split above.
    swept = pm.sweep(fused(outer="TO", inner=4), {"TO": [2, 3, 4]}, objectives=("energy",), keep="all")
    assert (swept.evaluated, sum(swept.infeasible.values())) == (0, 3)
    fits = pm.sweep(fused(outer="TO", inner=3), {"TO": [2, 3, 4]}, objectives=("energy",), keep="all")
    assert fits.evaluated == len(fits.frame) == 3
