"""The benchmark's peer: where AccelForge cannot run its rows say why, and a difference in counts is seen."""

import pytest

import polymodel as pm
from benchmarks import accelforge_peer
from benchmarks.accelforge_peer import POINTS, VERSION, NotInstalled, Peer, differences, ours, rows
from benchmarks.rows import table
from benchmarks.sparse import sparse
from benchmarks.sparse_sweeps import sparse_sweeps
from benchmarks.tiling import tiling
from benchmarks.tiling_matmul import tiling_matmul


def test_without_python_3_12_the_rows_say_not_installed(monkeypatch, tmp_path):
    monkeypatch.setattr(accelforge_peer, "PEERS", tmp_path)
    monkeypatch.setattr(accelforge_peer, "candidates", lambda: iter(["/no/such/python"]))
    found, faults = rows(0.01, 1e7, "sweep")
    assert faults == []
    assert found["sweep"] == {
        "value": 1e7,
        "unit": "points/s",
        "peer": None,
        "ratio": None,
        "peer_name": f"AccelForge {VERSION}: not installed (no Python 3.12 with venv was found)",
    }
    assert "not installed" in table(found)


@pytest.mark.parametrize("broken", ["venv", "pip"])
def test_an_environment_that_cannot_be_built_is_named(broken, monkeypatch, tmp_path):
    monkeypatch.setattr(accelforge_peer, "PEERS", tmp_path)
    monkeypatch.setattr(
        accelforge_peer, "run", lambda python, *given, seconds: "no network" if broken in given else ""
    )
    with pytest.raises(NotInstalled, match="no network"):
        accelforge_peer.environment()


@pytest.mark.slow
def test_counts_of_a_peer_are_compared_one_by_one():
    mine = [ours(point) for point in POINTS]
    assert differences(Peer(0.1, tuple(mine))) == []
    mine[1] = {**mine[1], "Matmul2 DRAM W1 read": mine[1]["Matmul2 DRAM W1 read"] + 1}
    (found,) = differences(Peer(0.1, tuple(mine)))
    assert found.startswith("Matmul2 DRAM W1 read at {'TM': 16, ")


@pytest.mark.slow
def test_sparse_rows_count_what_a_loop_counts():
    timed = []
    found = sparse(lambda action, repeats: timed.append(action()) or 1.0, nnz=2000)
    assert len(found) == 4
    assert len(timed) == 7
    assert all(row["ratio"] == 1 for row in found.values())


@pytest.mark.slow
def test_sparse_sweeps_look_at_many_points_at_once():
    (row,) = sparse_sweeps([(4, "all sizes")]).values()
    assert row["unit"] == "points/s"
    assert row["ratio"] > 1


@pytest.mark.slow
def test_tiling_rows_make_the_tiles_of_a_naive_tiler():
    timed = []
    found = tiling(lambda action, repeats: timed.append(action()) or 1.0, 200, 900, 2000, (300, 600))
    assert len(found) == 9
    assert len(timed) == 5
    whole, memory, best, best_memory, power = list(found.values())[4:]
    assert min(whole["value"], best["value"]) > 0
    assert min(memory["ratio"], best_memory["ratio"]) > 1  # an interpreter is larger than these operands
    assert power["unit"] == "power"


def test_matmul_rows_count_what_a_walk_over_dense_tiles_counts():
    timed = []
    a = pm.random_tensor(("I", "J"), (40, 40), 0.1, 1)
    found = tiling_matmul(lambda action, repeats: timed.append(action()) or 1.0, a, (8, 8, 8), 100)
    assert [row["ratio"] for row in found.values()] == [1.0, 1.0]
    walked, orders, best = timed
    assert orders[1] == walked
    assert best > 0
