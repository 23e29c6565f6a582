"""A front that outgrows its memory: spilled, thinned, or the sweep stops and says so."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

import polymodel as pm
from polymodel.spec.files import record
from polymodel.sweeps import run as sweeping
from polymodel.sweeps import work_units
from polymodel.sweeps.stored import StoredColumns, write_rows
from tests.faults import refused
from tests.sweep.small import OBJECTIVES, SYMBOLS, matmul, same


@pytest.fixture(autouse=True)
def many_units(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sweeping, "LINES", 2)
    monkeypatch.setattr(sweeping, "BLOCK", 64)
    monkeypatch.setattr(work_units, "SAVE_EVERY", 0.0)


THREE = (*OBJECTIVES, "energy")


@pytest.mark.slow
@pytest.mark.thin(3)
@pytest.mark.parametrize("objectives", [OBJECTIVES, THREE])
@pytest.mark.parametrize("workers", [1, 2])
def test_a_spilled_front_is_the_whole_front(tmp_path: Path, objectives: Any, workers: int) -> None:
    options: dict[str, Any] = {"objectives": objectives, "workers": workers}
    whole = pm.sweep(matmul(), SYMBOLS, **options)
    assert len(whole.frame) > 12
    spilled = pm.sweep(matmul(), SYMBOLS, **options, memory="5KB", store=tmp_path)
    same(spilled, whole)
    assert any("went to the store" in n and "memory=5KB" in n for n in spilled.notes)
    parts = list(tmp_path.glob("front-*.parquet"))
    assert len(parts) >= 2
    same(pm.sweep(matmul(), SYMBOLS, **options, memory="5KB", store=tmp_path), whole)
    rows = pd.read_parquet(tmp_path / "rows.parquet")
    assert rows["point"].tolist() == whole.frame["point"].tolist()
    assert not list(tmp_path.glob("*.new"))


def test_a_spilled_sweep_resumes_and_leaves_no_stale_parts(tmp_path: Path) -> None:
    whole = pm.sweep(matmul(), SYMBOLS, objectives=THREE)
    calls = 0

    def interrupt(done: int, total: int, seconds: float) -> None:
        nonlocal calls
        calls += 1
        if calls == 5:
            raise KeyboardInterrupt

    options: dict[str, Any] = {"objectives": THREE, "memory": "5KB", "store": tmp_path}
    broken = pm.sweep(matmul(), SYMBOLS, **options, progress=interrupt)
    assert not broken.complete
    assert list(tmp_path.glob("front-*.parquet"))
    stale, foreign = (tmp_path / f"front-0-of-1-{n}.parquet" for n in (98, 99))
    record(stale)
    for file in (stale, foreign):
        file.write_bytes(b"written just before the process was killed")
    again = pm.sweep(matmul(), SYMBOLS, **options)
    same(again, whole)
    assert again.complete
    assert again.before > 0
    assert not stale.exists()
    assert foreign.exists()  # not in the journal: polymodel did not write it


def test_a_missing_part_is_told(tmp_path: Path) -> None:
    options: dict[str, Any] = {"objectives": THREE, "memory": "5KB", "store": tmp_path}
    pm.sweep(matmul(), SYMBOLS, **options)
    next(iter(tmp_path.glob("front-*.parquet"))).unlink()
    with refused("damaged-file"):
        pm.sweep(matmul(), SYMBOLS, **options)


@pytest.mark.parametrize("workers", [1, 2])
def test_without_a_store_a_front_is_thinned_by_eps(workers: int) -> None:
    whole = pm.sweep(matmul(), SYMBOLS, objectives=THREE)
    thin = pm.sweep(matmul(), SYMBOLS, objectives=THREE, memory=f"{24 * workers}KB", eps=1.0, workers=workers)
    assert thin.complete
    assert any("was thinned" in n and "factor of 2" in n for n in thin.notes)
    for _, row in whole.frame.iterrows():
        near = (thin.frame[list(THREE)] <= 2 * (1 + 1e-12) * row[list(THREE)].astype(float)).all(axis=1)
        assert near.any()


@pytest.mark.parametrize("workers", [1, 2])
def test_without_a_store_or_eps_the_sweep_stops_and_keeps_what_it_has(workers: int) -> None:
    found = pm.sweep(matmul(), SYMBOLS, objectives=THREE, memory="6KB", workers=workers)
    assert not found.complete
    (note,) = (n for n in found.notes if "stopped" in n)
    assert "outgrew memory=6KB" in note
    assert "store" in note
    assert len(found.frame) > 5
    assert found.evaluated < pm.sweep(matmul(), SYMBOLS, objectives=THREE).evaluated
    for _, row in found.frame.head(3).iterrows():
        assert row["energy"] == pm.evaluate(found.spec(row)).costs.total_energy


@pytest.mark.slow
def test_a_run_that_is_interrupted_at_once_shows_what_the_store_has(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The state has points of blocks that this run did not come to."""
    sizes = {"X": [6, 12, 24], **{n: [2, 3, 5] for n in SYMBOLS}}
    spec = matmul("X")
    options: dict[str, Any] = {"keep": "all", "store": tmp_path}
    calls = 0

    def interrupt(done: int, total: int, seconds: float) -> None:
        nonlocal calls
        calls += 1
        if calls == 3:
            raise KeyboardInterrupt

    first = pm.sweep(spec, sizes, **options, progress=interrupt)
    compiled, calls = sweeping.scenario, 0

    def interrupted(*arguments: Any, **named: Any) -> Any:
        nonlocal calls
        calls += 1
        if calls == 1:
            raise KeyboardInterrupt
        return compiled(*arguments, **named)

    monkeypatch.setattr(sweeping, "scenario", interrupted)
    second = pm.sweep(spec, sizes, **options)
    assert not second.complete
    assert set(second.frame["X"]) == {6, 12} <= set(first.frame["X"])
    same(pm.sweep(spec, sizes, **options), pm.sweep(spec, sizes, keep="all"))


def test_counts_beyond_int64_are_stored(tmp_path: Path) -> None:
    size = 2**58
    symbols = {"TM": [size // 3, size], "TN": [5], "TK": [18]}
    found = pm.sweep(matmul(size), symbols, keep="all", store=tmp_path)
    rows = pd.read_parquet(tmp_path / "rows.parquet")
    assert [int(v) for v in rows["reads:DRAM"]] == found.frame["reads:DRAM"].tolist()
    assert max(found.frame["reads:DRAM"]) > np.iinfo(np.int64).max


def test_columns_of_huge_integers_read_back_exactly(tmp_path: Path) -> None:
    file = tmp_path / "rows.parquet"
    write_rows(
        file,
        [{"a": [2**70, 1], "b": [0.5, 1.5], "c": ["x", ""]}, {"a": [3], "b": [2.0], "c": ["y"], "d": [7]}],
    )
    columns = StoredColumns(file)
    assert {n: columns[n] for n in columns} == {
        "a": [2**70, 1, 3], "b": [0.5, 1.5, 2.0], "c": ["x", "", "y"], "d": [0, 0, 7],
    }  # fmt: skip
    write_rows(file, [{"a": [10**60]}])
    assert StoredColumns(file)["a"] == [10**60]
    write_rows(file, [{"a": [2**70, 3]}, {"a": [7]}, {"a": [-(10**60)]}, {"b": [1]}])
    assert StoredColumns(file)["a"] == [2**70, 3, 7, -(10**60), 0]
    write_rows(file, [{"a": [str(10**60)]}])
    assert StoredColumns(file)["a"] == [str(10**60)], "text that looks like a number stays text"


def test_more_points_than_numbers_are_refused() -> None:
    tree = matmul().template
    assert tree is not None
    values = {**SYMBOLS, **{f"S{i}": range(2**16) for i in range(3)}}
    where = [f"S{i} >= 0" for i in range(3)]
    with refused("too-large"):
        pm.sweep(matmul(), values, mappings=[tree, tree], where=where)


def test_sizes_beyond_int64_are_evaluated_one_by_one() -> None:
    found = pm.sweep(matmul(2**70), {"TM": [2**65, 3], "TN": [5], "TK": [18]}, keep="all")
    assert "beyond 2^62: points evaluated one by one" in found.notes[0]
    assert found.frame["TM"].tolist() == [2**65, 3]
