"""Counts that float64 does not tell apart are compared digit by digit, while a sweep runs and afterwards."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pandas as pd
import pytest

import polymodel as pm
from polymodel.integers import in_order
from polymodel.sweeps import kernel, run, work_units

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


@pytest.mark.parametrize("power", [50, 57, 60, 62, 70])
def test_compiled_points_have_the_same_counts_alone_and_together(power: int) -> None:
    function = pm.compile(spec(2**power))
    for tiles in ([10], [1, 10]):
        found = function.arrays({"T": tiles})
        moved = [int(r) + int(w) for r, w in zip(found["reads:DRAM"], found["writes:DRAM"], strict=True)]
        assert moved == [60 * 2**power + 60 // t + 60 for t in tiles]
        assert [int(n) for n in found["working_set:GLB"]] == [t * 2**power + t + 1 for t in tiles]


@pytest.mark.parametrize("keep", ["front", "top"])
@pytest.mark.parametrize("power", [0, 50, 57, 62, 70])
def test_the_best_of_wide_counts_is_kept(keep: Any, power: int) -> None:
    """All counts of A are equal, and as float64 so are the sums."""
    wide, objectives = spec(2**power), ["accesses:DRAM"]
    found = pm.sweep(wide, {"T": TILES}, objectives=objectives, keep=keep, top=2)
    every = pm.sweep(wide, {"T": TILES}, objectives=objectives, keep="all")
    assert found.frame["T"].tolist() == ([60] if keep == "front" else [60, 10])
    assert found.best().tolist() == every.best().tolist()
    assert not any("float64" in n for n in found.notes if "compared" in n)


def test_fronts_of_wide_counts_beside_figures_and_needs() -> None:
    """Smaller tiles need less and read B more often, by one part in 2^64: each is on the front."""
    objectives = ["energy", "accesses:DRAM", "working_set:GLB"]
    for power in (0, 64):
        found = pm.sweep(spec(2**power), {"T": TILES}, objectives=objectives)
        every = pm.sweep(spec(2**power), {"T": TILES}, objectives=objectives, keep="all")
        assert sorted(found.frame["T"]) == sorted(every.front["T"]) == TILES


def test_wide_counts_in_stores_and_parts_of_fronts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A front that outgrows its memory, the state of a run that was broken off, and two processes."""
    objectives = ["accesses:DRAM", "working_set:GLB"]
    wide, grid = spec(2**64), {"T": pm.divisors("m")}
    whole = pm.sweep(wide, grid, objectives=objectives)
    assert len(whole.frame) == 12
    pd.testing.assert_frame_equal(pm.sweep(wide, grid, objectives=objectives, workers=2).frame, whole.frame)
    monkeypatch.setattr(kernel, "RIGHT", 1)
    monkeypatch.setattr(run, "LINES", 1)
    monkeypatch.setattr(run, "BLOCK", 1)
    monkeypatch.setattr(work_units, "SAVE_EVERY", 0.0)
    monkeypatch.setattr(run, "_limit", lambda order: 5)

    def interrupt(done: int, total: int, seconds: float) -> None:
        if done == 7:
            raise KeyboardInterrupt

    options: dict[str, Any] = {"objectives": objectives, "store": tmp_path}
    assert not pm.sweep(wide, grid, **options, progress=interrupt).complete
    found = pm.sweep(wide, grid, **options)
    assert found.complete
    pd.testing.assert_frame_equal(found.frame, whole.frame)


def test_order_of_numbers() -> None:
    assert in_order([3, 1, 2]).tolist() == [3, 1, 2]
    assert in_order([2**60 + 1, 2**60, 5, 2**60 + 1]).tolist() == [2, 1, 0, 2]
    assert in_order([1.5, float("inf")]).tolist() == [1.5, float("inf")]
