"""An exploration with a store goes on where it was ended, to the answer of an undisturbed one."""

from __future__ import annotations

import os
import pickle
import signal
import subprocess
import sys
import textwrap
import time
from pathlib import Path
from random import Random
from typing import Any

import pytest

import polymodel as pm
from polymodel.mapper import budget
from polymodel.mapping.looptree import StorageNode
from polymodel.stores.store import write_table
from tests.faults import refused
from tests.fuzz.forked import ROOT
from tests.mapper.test_slides import array_of

SOURCES = ("matmul_chain_2", "simple_two_level")
OBJECTIVES = ("energy", "latency")


def explored(store: Path | None = None, **more: Any) -> pm.Front:
    return pm.explore(pm.load(*SOURCES), objectives=more.pop("objectives", OBJECTIVES), store=store, **more)


def answer(front: pm.Front) -> object:
    """All that a front tells but for seconds."""
    stages = front.stages.drop(columns=[c for c in front.stages.columns if c.startswith("seconds")])
    return front.table().rows, [p.yaml for p in front.points], front.notes, stages.values.tolist()


@pytest.fixture(autouse=True)
def saved_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(budget, "SAVE_EVERY", 0.0)
    monkeypatch.setattr(budget, "SHARE", 0.0)


@pytest.fixture(scope="module")
def whole() -> object:
    return answer(explored())


DYING = """
    import os, signal, sys
    import polymodel as pm
    from polymodel.mapper import budget
from polymodel.mapping.looptree import StorageNode
    budget.SAVE_EVERY = budget.SHARE = 0.0
    left, put = [int(sys.argv[2])], budget.Finished.put
    def counted(store, key, result):
        put(store, key, result)
        left[0] -= 1
        if left[0] == 0:
            os.kill(os.getpid(), signal.SIGKILL)
    budget.Finished.put = counted
    spec = pm.load("matmul_chain_2", "simple_two_level")
    pm.explore(spec, objectives=("energy", "latency"), store=sys.argv[1])
"""


@pytest.mark.slow
def test_killed_and_resumed_again_and_again(
    tmp_path: Path, whole: object, monkeypatch: pytest.MonkeyPatch
) -> None:
    for steps in (1, 3, 9):  # of those that are not done yet
        run = subprocess.run(
            [sys.executable, "-c", textwrap.dedent(DYING), str(tmp_path), str(steps)],
            env={**os.environ, "PYTHONPATH": str(ROOT)},
        )
        assert run.returncode == -signal.SIGKILL
    done: list[int] = []
    get = budget.Finished.get

    def counted(store: budget.Finished, key: bytes, space: Any) -> Any:
        found = get(store, key, space)
        done.append(found is not None)
        return found

    monkeypatch.setattr(budget.Finished, "get", counted)
    assert answer(explored(tmp_path)) == whole
    assert sum(done) >= 13
    assert not all(done)
    assert answer(explored(tmp_path)) == whole


@pytest.mark.slow
def test_the_next_run_goes_on_after_a_time_limit(tmp_path: Path, whole: object) -> None:
    for _ in range(3):
        explored(tmp_path, time_limit=0.2)
    assert answer(explored(tmp_path)) == whole
    assert answer(explored(tmp_path, resume=False)) == whole


@pytest.mark.slow
def test_terminated_on_the_command_line(tmp_path: Path) -> None:
    line = [sys.executable, "-m", "polymodel", "explore", "matmul_chain_3", "edge_npu", "--store", "saved"]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    process = subprocess.Popen(
        [*line, "--out", "front"],
        cwd=tmp_path,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    until = time.monotonic() + 60
    while not list(tmp_path.glob("saved/found-*.parquet")) and time.monotonic() < until:
        time.sleep(0.1)
    process.send_signal(signal.SIGTERM)
    out, errors = process.communicate(timeout=60)
    assert process.returncode == 130, errors
    assert b"interrupted" in out
    assert (tmp_path / "front" / "front.csv").exists()
    assert not (tmp_path / "saved" / "lock.json").exists()
    assert list(tmp_path.glob("saved/found-*.parquet"))


def test_a_store_of_another_exploration_is_refused(tmp_path: Path) -> None:
    explored(tmp_path, objectives=["energy"])
    for other in ({"objectives": ["latency"]}, {"objectives": ["energy"], "eps": 0.1}):
        with refused("store-mismatch") as caught:
            explored(tmp_path, **other)
        assert "resume=False" in caught.value.remedy
    with refused("store-mismatch"):
        pm.explore(pm.load("matmul", "simple_two_level"), objectives=["energy"], store=tmp_path)
    assert len(explored(tmp_path, objectives=["latency"], resume=False)) == 1


@pytest.mark.slow
def test_workers_and_limits_may_differ(tmp_path: Path, whole: object) -> None:
    explored(tmp_path, time_limit=1)
    assert answer(explored(tmp_path, workers=2))[0] == whole[0]  # type: ignore[index]  # a tuple


@pytest.mark.slow
def test_any_changed_byte_is_told(tmp_path: Path) -> None:
    explored(tmp_path, objectives=["energy"])
    file = next(tmp_path.glob("found-*.parquet"))
    sound, random = file.read_bytes(), Random(3)
    for at in random.sample(range(len(sound)), 10):
        file.write_bytes(sound[:at] + bytes([sound[at] ^ 1 << random.randrange(8)]) + sound[at + 1 :])
        with refused("damaged-file"):
            explored(tmp_path, objectives=["energy"])


def test_nothing_in_a_store_runs_code(tmp_path: Path) -> None:
    """Not even of one whose seal is right."""
    explored(tmp_path, objectives=["energy"])
    file = next(tmp_path.glob("found-*.parquet"))
    columns, about = budget.read_table(file)

    class Evil:
        def __reduce__(self) -> tuple[Any, ...]:
            return os.system, (f"touch {tmp_path / 'ran'}",)

    columns["result"] = [pickle.dumps(Evil()) for _ in columns["step"]]
    write_table(file, columns, about)
    with refused("damaged-file"):
        explored(tmp_path, objectives=["energy"])
    assert not (tmp_path / "ran").exists()


def test_wrong_arguments(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    for wrong in ({"store": 3}, {"store": tmp_path / "file"}, {"resume": "no"}):
        with pytest.raises(pm.SpecError):
            explored(**wrong)  # type: ignore[arg-type]  # on purpose


def test_nodes_that_keep_tiles_above_their_instances_are_read_back(tmp_path: Path) -> None:
    asked = {"memories": {"RF": {"reuse": ["refill", "slide"]}}}
    first, again = (pm.explore(array_of(Random(6)), constraints=asked, store=tmp_path) for _ in range(2))
    kept = (n.reuse for p in first for _, n, _ in p.mapping.walk() if isinstance(n, StorageNode))
    assert "slide" in set(kept)
    assert answer(again) == answer(first)
