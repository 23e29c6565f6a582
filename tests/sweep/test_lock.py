"""One process at a time for a store; whoever has died makes room."""

from __future__ import annotations

import errno
import json
import os
import random
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest

import polymodel as pm
from polymodel.spec.files import JOURNAL, clear_unfinished, record
from polymodel.stores import store as lock
from polymodel.sweeps import run as sweeping
from polymodel.sweeps import work_units
from tests.faults import faults, refused
from tests.seeds import seeds
from tests.sweep.small import OBJECTIVES, SYMBOLS, matmul, same

ROOT = Path(__file__).resolve().parents[2]
HOLD = """
import sys, time
from pathlib import Path
from polymodel.stores.store import locked
with locked(Path(sys.argv[1])):
    print("held", flush=True)
    time.sleep(60)
"""
SWEEP = """
import sys
import polymodel as pm
from polymodel.sweeps import run, work_units
from tests.sweep.small import OBJECTIVES, SYMBOLS, matmul
run.LINES, run.BLOCK, work_units.SAVE_EVERY = 2, 64, 0.0
print("begun", flush=True)
pm.sweep(matmul(), SYMBOLS, objectives=OBJECTIVES, store=sys.argv[1])
print("done", flush=True)
"""


def started(code: str, store: Path) -> subprocess.Popen[str]:
    process = subprocess.Popen(
        [sys.executable, "-c", code, str(store)], cwd=ROOT, stdout=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    process.stdout.readline()
    return process


def test_a_second_process_is_told_and_a_dead_one_is_replaced(tmp_path: Path) -> None:
    holder = started(HOLD, tmp_path)
    with refused("store-in-use", "store"):
        pm.sweep(matmul(), SYMBOLS, objectives=OBJECTIVES, store=tmp_path)
    holder.send_signal(signal.SIGKILL)
    holder.communicate()
    assert (tmp_path / lock.NAME).exists()
    pm.sweep(matmul(), {"TM": [1], "TN": [2], "TK": [3]}, objectives=OBJECTIVES, store=tmp_path)
    assert not (tmp_path / lock.NAME).exists()
    assert not list(tmp_path.glob("*.new*"))


def held(tmp_path: Path, host: str, pid: int, born: str = "") -> Path:
    file = tmp_path / lock.NAME
    file.write_text(json.dumps({"host": host, "pid": pid, "born": born, "token": "x"}), encoding="utf-8")
    return file


def test_a_later_process_of_the_same_number_is_another_one(tmp_path: Path) -> None:
    here = socket.gethostname()
    held(tmp_path, here, os.getppid(), "1")  # it is there, but was not started then
    if sys.platform == "linux":
        with lock.locked(tmp_path):
            pass
    held(tmp_path, here, os.getppid(), "")
    with refused("store-in-use"), lock.locked(tmp_path):
        pass


def test_another_host_is_gone_when_it_is_silent(tmp_path: Path) -> None:
    file = held(tmp_path, "elsewhere", 1)
    with refused("store-in-use"), lock.locked(tmp_path):
        pass
    os.utime(file, (time.time() - lock.LOST - 1,) * 2)
    with lock.locked(tmp_path):
        assert json.loads(file.read_text(encoding="utf-8"))["pid"] == os.getpid()


def test_a_holder_gives_signs_of_life(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lock, "BEAT", 0.02)
    with lock.locked(tmp_path):
        os.utime(tmp_path / lock.NAME, (1, 1))
        time.sleep(0.3)
        assert (tmp_path / lock.NAME).stat().st_mtime > 1


def test_half_a_lock_is_nobodys(tmp_path: Path) -> None:
    file = tmp_path / lock.NAME
    record(file)
    file.write_text('{"host": "he', encoding="utf-8")
    os.utime(file, (time.time() - 60,) * 2)
    with lock.locked(tmp_path):
        pass
    assert not file.exists()


@pytest.mark.parametrize(
    "text",
    [
        '{"host": "HERE", "pid": 1000000000000000000000000000000, "born": "1", "token": "x"}',
        '{"host": "HERE", "pid": 1e999, "born": "", "token": ""}',
        '{"host": "HERE", "pid": -1, "born": "", "token": ""}',
        "[" * 100_000,
    ],
    ids=("too large", "infinite", "negative", "deep"),
)
def test_a_lock_of_no_process_is_nobodys(tmp_path: Path, text: str) -> None:
    file = tmp_path / lock.NAME
    record(file)
    file.write_text(text.replace("HERE", socket.gethostname()), encoding="utf-8")
    long_ago = time.time() - 2 * lock.BEAT
    os.utime(file, (long_ago, long_ago))
    with lock.locked(tmp_path):
        assert json.loads(file.read_text(encoding="utf-8"))["pid"] == os.getpid()
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("text", ["", "{}", '{"lockfileVersion": 3, "packages": {}}', "mine"])
def test_a_lock_of_somebody_else_stays(tmp_path: Path, text: str) -> None:
    file = tmp_path / lock.NAME
    file.write_text(text, encoding="utf-8")
    os.utime(file, (1, 1))
    with refused("file-exists"), lock.locked(tmp_path):
        pass
    assert {f.name: f.read_text(encoding="utf-8") for f in tmp_path.iterdir()} == {lock.NAME: text}


def test_a_folder_in_the_place_of_the_lock_stays_there(tmp_path: Path) -> None:
    (tmp_path / lock.NAME / "inside").mkdir(parents=True)
    with faults("file-exists", at=""), lock.locked(tmp_path):
        pass
    assert [p.name for p in tmp_path.rglob("*")] == [lock.NAME, "inside"]


def test_a_holder_that_clears_up_meanwhile(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    link, cleared = os.link, []

    def clearing(source: Path, target: Path) -> None:
        if not cleared:
            cleared.append(source)
            clear_unfinished(tmp_path)
        link(source, target)

    monkeypatch.setattr(os, "link", clearing)
    with lock.locked(tmp_path):
        assert cleared
    with faults("unwritable-file", at=""), lock.locked(tmp_path / "none"):
        pass


def test_a_disk_without_second_names(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def denied(*_: object) -> None:
        raise PermissionError(1, "Operation not permitted")

    monkeypatch.setattr(os, "link", denied)
    with lock.locked(tmp_path):
        with refused("store-in-use"), lock.locked(tmp_path):
            pass
        assert (tmp_path / lock.NAME).exists()
    assert not list(tmp_path.iterdir())


NO_LINKS = """
import errno, os, sys, time
from pathlib import Path
from polymodel.stores import store as lock
def refused(*_):
    raise OSError(errno.EOPNOTSUPP, "Operation not supported")
os.link = refused
lock.BEAT = 0.3
"""
DIES = f"""{NO_LINKS}
import io, signal
class Dying(io.FileIO):
    def write(self, data):
        os.kill(os.getpid(), signal.SIGKILL)
opened = Path.open
Path.open = lambda path, mode="r", *more, **named: (
    Dying(path, mode) if "x" in mode else opened(path, mode, *more, **named)
)
print("begun", flush=True)
with lock.locked(Path(sys.argv[1])):
    pass
"""


def test_killed_between_making_a_lock_and_writing_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """On a disk without second names: the lock is empty then, and put away once it has been silent."""
    process = started(DIES, tmp_path)
    process.communicate(timeout=60)
    assert process.returncode == -signal.SIGKILL
    assert (tmp_path / lock.NAME).read_bytes() == b""
    monkeypatch.setattr(lock, "PAUSE", 0.001)
    monkeypatch.setattr(lock, "TRIES", 3)
    with refused("store-in-use") as caught, lock.locked(tmp_path):
        pass
    assert f"remove {tmp_path / lock.NAME}" in caught.value.remedy
    monkeypatch.setattr(lock, "BEAT", 0.1)
    monkeypatch.setattr(lock, "TRIES", 1000)
    with lock.locked(tmp_path):
        assert json.loads((tmp_path / lock.NAME).read_text(encoding="utf-8"))["pid"] == os.getpid()
    assert not [f for f in tmp_path.iterdir() if f.name == lock.NAME]


def test_a_full_disk_leaves_no_empty_lock(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def denied(*_: object) -> None:
        monkeypatch.setattr(Path, "read_bytes", full)  # what is written comes from there
        raise PermissionError(1, "Operation not permitted")

    def full(_: Path) -> bytes:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "link", denied)
    with faults("unwritable-file", at=""), lock.locked(tmp_path):
        pass
    assert not list(tmp_path.iterdir())


RACE = f"""{NO_LINKS}
from polymodel.errors import Refused
store, entered = Path(sys.argv[1]), 0
print("begun", flush=True)
until = time.monotonic() + 40
while entered < 6 and time.monotonic() < until:
    try:
        with lock.locked(store):
            os.close(os.open(store / "inside", os.O_CREAT | os.O_EXCL))  # fails if another is there
            time.sleep(0.01)
            os.unlink(store / "inside")
            entered += 1
            if entered % 2:  # as one that was killed leaves it
                (store / lock.NAME).write_text("")
                os.utime(store / lock.NAME, (1, 1))
    except Refused:
        time.sleep(0.005)
print(entered, flush=True)
"""


@pytest.mark.slow
@pytest.mark.parametrize("links", [True, False])
def test_three_that_race_for_what_is_left_by_the_dead(tmp_path: Path, links: bool) -> None:
    code = RACE if not links else RACE.replace("os.link = refused", "")
    racing = [started(code, tmp_path) for _ in range(3)]
    for process in racing:
        out, _ = process.communicate(timeout=60)
        assert out.split() == ["6"]
        assert process.returncode == 0
    assert not (tmp_path / "inside").exists()


@pytest.mark.slow
@pytest.mark.parametrize("ending", seeds(1, [signal.SIGKILL, signal.SIGINT, signal.SIGTERM]))
def test_ended_at_random_moments_again_and_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, ending: signal.Signals
) -> None:
    """However often it was ended, what comes out is what an undisturbed sweep gives."""
    monkeypatch.setattr(sweeping, "LINES", 2)
    monkeypatch.setattr(sweeping, "BLOCK", 64)
    monkeypatch.setattr(work_units, "SAVE_EVERY", 0.0)
    moment = random.Random(ending)
    for _ in range(2):
        process = started(SWEEP, tmp_path)
        time.sleep(moment.uniform(0.05, 0.8))
        process.send_signal(ending)
        process.communicate(timeout=60)
    whole = pm.sweep(matmul(), SYMBOLS, objectives=OBJECTIVES)
    same(pm.sweep(matmul(), SYMBOLS, objectives=OBJECTIVES, store=tmp_path), whole)
    assert {f.name for f in tmp_path.iterdir()} == {JOURNAL, "rows.parquet", "state-0-of-1.parquet"}
