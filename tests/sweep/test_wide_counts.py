"""Counts that float64 does not tell apart: kept rows are compared digit by digit, others with a note."""

from __future__ import annotations

from typing import Any

import pytest

import polymodel as pm
from polymodel.integers import in_order

TILES = [1, 2, 3, 10, 60]


def spec(bits: int) -> pm.Spec:
    """Values of A are wide, those of B are one bit; smaller tiles read B more often, and change little."""
    action = [{"name": n, "energy": 0} for n in ("read", "write")]
    plain: dict[str, Any] = {"type": "Memory", "size": "inf", "tensors": {"keep": "All"}, "actions": action}
    mac = {"type": "Compute", "name": "MAC", "actions": [{"name": "compute", "energy": 0}]}
    every = ["A", "B", "Z"]
    return pm.load(
        {
            "schema_version": 1,
            "symbols": {"T": None},
            "arch": {"nodes": [{**plain, "name": "DRAM"}, {**plain, "name": "GLB"}, mac]},
            "workload": {
                "rank_sizes": {"M": 60, "K": 1},
                "bits_per_value": {"A": bits, "B": 1, "Z": 1},
                "einsums": ["Z[m] = A[m] * B[k]"],
            },
            "mapping": {
                "nodes": [
                    {"type": "Storage", "component": "DRAM", "tensors": every},
                    {"type": "Temporal", "rank_variable": "m", "tile_shape": "T"},
                    {"type": "Storage", "component": "GLB", "tensors": every},
                    {"type": "Compute", "einsum": "Z", "component": "MAC"},
                ]
            },
        }
    )


@pytest.mark.parametrize("power", [0, 50, 62, 70])
def test_kept_rows_are_compared_digit_by_digit(power: int) -> None:
    found = pm.sweep(spec(2**power), {"T": TILES}, objectives=["accesses:DRAM"], keep="all")
    wanted = [60 * 2**power + 60 // t + 60 for t in TILES]
    assert found.frame["accesses:DRAM"].tolist() == wanted
    assert found.best()["T"] == 60
    assert found.front["T"].tolist() == [60]
    assert found.best()["accesses:DRAM"] == min(wanted)


@pytest.mark.parametrize("keep", ["front", "top"])
def test_what_is_compared_as_floats_says_so(keep: Any) -> None:
    for power, wide in ((0, False), (50, True), (70, True)):
        found = pm.sweep(spec(2**power), {"T": TILES}, objectives=["accesses:DRAM"], keep=keep)
        assert any("compared as float64" in n for n in found.notes) == wide
        assert ("compared as float64" in str(found)) == wide
    if keep == "top":
        assert found.best()["T"] == 60


def test_order_of_numbers() -> None:
    assert in_order([3, 1, 2]).tolist() == [3, 1, 2]
    assert in_order([2**60 + 1, 2**60, 5, 2**60 + 1]).tolist() == [2, 1, 0, 2]
    assert in_order([1.5, float("inf")]).tolist() == [1.5, float("inf")]
