"""Stores, resuming and several processes: the same result, bit for bit."""

from __future__ import annotations

from itertools import product
from pathlib import Path
from random import Random
from typing import Any

import pandas as pd
import pytest

import polymodel as pm
from polymodel.stores.store import read_table
from polymodel.sweeps import run as sweeping
from polymodel.sweeps import work_units
from tests.faults import faults, refused
from tests.matmul import Actions, matmul
from tests.seeds import seeds

SYMBOLS = {"TM": pm.all_sizes("m"), "TN": pm.all_sizes("n"), "TK": pm.all_sizes("k")}


@pytest.fixture(autouse=True)
def many_units(monkeypatch: pytest.MonkeyPatch) -> None:
    """Small blocks, so that small grids have many units."""
    monkeypatch.setattr(sweeping, "LINES", 2)
    monkeypatch.setattr(sweeping, "BLOCK", 64)
    monkeypatch.setattr(work_units, "SAVE_EVERY", 0.0)


@pytest.fixture
def spec() -> pm.Spec:
    actions: Actions = {
        "DRAM": [{"name": "read", "energy": 1, "throughput": 1}],
        "GLB": [{"name": "write", "energy": 0.1, "throughput": 7}],
        "MAC": [{"name": "compute", "throughput": 2}],
    }
    ranks = {"M": 24, "N": 20, "K": 18}
    return matmul("DRAM m:TM n:TN k:TK GLB", ranks, {"GLB": 2000}, actions)


OBJECTIVES = ("accesses:DRAM", "working_set:GLB")


def same(a: Any, b: Any) -> None:
    pd.testing.assert_frame_equal(a.frame, b.frame, check_exact=True)
    assert a.infeasible == b.infeasible
    assert (a.points, a.evaluated) == (b.points, b.evaluated)


# Each way to keep points with another moment first, then the rest of the table.
FIRST = [(1, "front"), (9, "top"), (4, "all")]
BROKEN = FIRST + [pair for pair in product((1, 4, 9), ("front", "all", "top")) if pair not in FIRST]


@pytest.mark.parametrize(("after", "keep"), seeds(2, BROKEN))
def test_a_resumed_sweep_is_an_uninterrupted_one(
    spec: pm.Spec, tmp_path: Path, keep: Any, after: int
) -> None:
    whole = pm.sweep(spec, SYMBOLS, objectives=OBJECTIVES, keep=keep, where=["TM*TN < 60"])
    calls = 0

    def interrupt(done: int, total: int, seconds: float) -> None:
        nonlocal calls
        calls += 1
        if calls == after:
            raise KeyboardInterrupt

    options: dict[str, Any] = {
        "objectives": OBJECTIVES, "keep": keep, "where": ["TM*TN < 60"], "store": tmp_path / "store",
    }  # fmt: skip
    broken = pm.sweep(spec, SYMBOLS, **options, progress=interrupt)
    assert calls == after
    assert "interrupted" in broken.notes[0]
    again = pm.sweep(spec, SYMBOLS, **options)
    same(again, whole)
    same(pm.sweep(spec, SYMBOLS, **options), whole)
    rows = pd.read_parquet(tmp_path / "store" / "rows.parquet")
    assert len(rows) == len(whole.frame)


def test_a_store_of_another_sweep_is_refused(spec: pm.Spec, tmp_path: Path) -> None:
    pm.sweep(spec, SYMBOLS, store=tmp_path)
    with refused("store-mismatch"):
        pm.sweep(spec, {**SYMBOLS, "TM": [1, 2]}, store=tmp_path)
    fresh = pm.sweep(spec, {**SYMBOLS, "TM": [1, 2]}, store=tmp_path, resume=False)
    assert fresh.points == 2 * 20 * 18


@pytest.mark.parametrize("keep", seeds(1, ["top", "front", "all"]))
def test_two_processes_find_the_same(spec: pm.Spec, tmp_path: Path, keep: Any) -> None:
    one = pm.sweep(spec, SYMBOLS, objectives=OBJECTIVES, keep=keep)
    two = pm.sweep(spec, SYMBOLS, objectives=OBJECTIVES, keep=keep, workers=2, store=tmp_path)
    same(two, one)
    assert {p.name for p in tmp_path.glob("state-*")} == {"state-0-of-2.parquet", "state-1-of-2.parquet"}


def test_a_store_goes_on_with_as_many_workers(spec: pm.Spec, tmp_path: Path) -> None:
    whole = pm.sweep(spec, SYMBOLS, workers=2, store=tmp_path)
    with refused("store-mismatch"):
        pm.sweep(spec, SYMBOLS, store=tmp_path)
    same(pm.sweep(spec, SYMBOLS, store=tmp_path, resume=False), whole)


def test_wrong_options_are_refused(spec: pm.Spec) -> None:
    with faults("not-positive-integer", at=""):
        pm.sweep(spec, SYMBOLS, workers=0)
    with faults("out-of-range", at=""):
        pm.sweep(spec, SYMBOLS, eps=-1)


def test_a_thinned_front_is_within_eps(spec: pm.Spec) -> None:
    whole = pm.sweep(spec, SYMBOLS, objectives=OBJECTIVES)
    thin = pm.sweep(spec, SYMBOLS, objectives=OBJECTIVES, eps=0.25)
    assert 1 < len(thin.frame) < len(whole.frame)
    assert set(thin.frame["point"]) <= set(whole.frame["point"])
    assert "1.25" in thin.notes[-1]
    for _, row in whole.frame.iterrows():
        near = (thin.frame[list(OBJECTIVES)] <= 1.25 * row[list(OBJECTIVES)].astype(float)).all(axis=1)
        assert near.any()


@pytest.mark.slow
def test_a_dask_cluster_finds_the_same(spec: pm.Spec) -> None:
    """Through joblib's backend; needs the extra `polymodel[dask]`."""
    distributed = pytest.importorskip("distributed")
    import joblib

    one = pm.sweep(spec, SYMBOLS, objectives=OBJECTIVES)
    with (
        distributed.LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address=None) as cluster,
        distributed.Client(cluster),
        joblib.parallel_config("dask"),
    ):
        two = pm.sweep(spec, SYMBOLS, objectives=OBJECTIVES, workers=3)
    same(two, one)


@pytest.mark.slow
def test_an_interrupted_sweep_counts_what_it_evaluated(spec: pm.Spec, tmp_path: Path) -> None:
    options: dict[str, Any] = {"objectives": OBJECTIVES, "keep": "all", "where": ["TM*TN < 60"]}
    whole = pm.sweep(spec, SYMBOLS, **options)
    assert whole.feasible == int(whole.frame["feasible"].sum())
    calls = 0

    def interrupt(done: int, total: int, seconds: float) -> None:
        nonlocal calls
        calls += 1
        if calls == 3:
            raise KeyboardInterrupt

    broken = pm.sweep(spec, SYMBOLS, **options, store=tmp_path, progress=interrupt)
    assert 0 < broken.feasible < whole.feasible
    assert broken.feasible == int(broken.frame["feasible"].sum())
    assert f"{broken.feasible} feasible" in repr(broken)
    assert not broken.complete
    again = pm.sweep(spec, SYMBOLS, **options, store=tmp_path)
    assert again.feasible == whole.feasible
    two = pm.sweep(spec, SYMBOLS, **options, workers=2)
    assert two.feasible == whole.feasible


def test_any_changed_byte_of_a_state_is_told(spec: pm.Spec, tmp_path: Path) -> None:
    """Bytes that hold no figure as well: names, lengths, sums, the fingerprint itself."""
    pm.sweep(spec, SYMBOLS, objectives=OBJECTIVES, store=tmp_path)
    file = tmp_path / "state-0-of-1.parquet"
    sound = file.read_bytes()
    columns, about = read_table(file)
    random = Random(6)
    seal = range(sound.index(b'"release"') - 20, sound.index(b'"file_sha256"') + 90)
    for at in (*random.sample(range(len(sound)), 200), *seal):
        file.write_bytes(sound[:at] + bytes([sound[at] ^ 1 << random.randrange(8)]) + sound[at + 1 :])
        with refused("damaged-file"):
            read_table(file)
    for end in (0, 1, len(sound) // 2, len(sound) - 1):
        file.write_bytes(sound[:end])
        with refused("damaged-file", "sweep"):
            pm.sweep(spec, SYMBOLS, objectives=OBJECTIVES, store=tmp_path)
    file.write_bytes(sound)
    again = read_table(file)
    assert again[1] == about
    assert all((again[0][name] == column).all() for name, column in columns.items())
