"""SIGTERM is Ctrl-C, for every command that takes long; workers end with their parent and hold no pipe."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Collection
from pathlib import Path

import pytest

from tests.fuzz.forked import ROOT, Parent
from tests.fuzz.test_written import SOME, made

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="signals and /proc")
# Sent as the command is about to write its first file.
TERMINATED = """
import signal
left = [1]
def hook(event, args):
    if event == "open" and ".new" in str(args[0]):
        left[0] -= 1
        if left[0] == 0:
            os.kill(os.getpid(), signal.SIGTERM)
sys.addaudithook(hook)
"""


@pytest.mark.parametrize("line", SOME)
def test_terminated_while_it_writes(line: str, parent: Parent, tmp_path: Path) -> None:
    """It ends as by Ctrl-C: a code of its own, a word, nothing half and nothing hidden."""
    here = made(tmp_path, "here")
    code, errors = parent.run(here, line, TERMINATED)
    assert code == 130, errors
    # A search that is interrupted while it saves ends with the best so far on stdout, in place of a word.
    assert errors.strip().endswith("interrupted") or (line.startswith(("explore", "codesign")) and not errors)
    assert "Traceback" not in errors
    assert not list((here / "saved").rglob("*.new*"))


def started(line: str, folder: Path) -> subprocess.Popen[bytes]:
    words = [sys.executable, "-m", "polymodel", *line.split()]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    return subprocess.Popen(
        words, cwd=folder, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )


def test_all_processes_are_started_in_one_place() -> None:
    """Where they are told to end with this one; those of `codesign` went on."""
    made = [f for f in (ROOT / "polymodel").rglob("*.py") if "Parallel(" in f.read_text(encoding="utf-8")]
    assert [f.name for f in made] == ["governor.py"]


HUGE = """\
symbols: {TM: null, TN: null, TK: null}
workload:
  rank_sizes: {M: 2000, N: 2000, K: 2000}
  bits_per_value: {All: 8}
  einsums: ["Z[m, n] = A[m, k] * B[k, n]"]
arch:
  nodes:
  - !Memory {name: DRAM, size: inf, tensors: {keep: All}, actions: [{name: read, energy: 1, throughput: 1}]}
  - !Memory {name: GLB, size: 4000, tensors: {keep: All}, actions: [{name: write, energy: 1, throughput: 1}]}
  - !Compute {name: MAC, actions: [{name: compute, energy: 1, throughput: 1}]}
mapping:
  nodes:
  - !Storage {component: DRAM, tensors: [A, B, Z]}
  - !Temporal {rank_variable: m, tile_shape: TM}
  - !Temporal {rank_variable: n, tile_shape: TN}
  - !Temporal {rank_variable: k, tile_shape: TK}
  - !Storage {component: GLB, tensors: [A, B, Z]}
  - !Compute {einsum: Z, component: MAC}
"""
LINE = "sweep huge.yaml --symbol TM=all_sizes(m) --symbol TN=all_sizes(n) --symbol TK=all_sizes(k) --no-prune"


def children(pid: int) -> list[int]:
    found = Path(f"/proc/{pid}/task/{pid}/children").read_text(encoding="ascii").split()
    return [int(c) for c in found]


def alive(pid: int) -> bool:
    try:
        return "State:\tZ" not in Path(f"/proc/{pid}/status").read_text(encoding="ascii")
    except FileNotFoundError:
        return False


def waited_for_workers(process: subprocess.Popen[bytes]) -> None:
    until = time.monotonic() + 60
    while len(children(process.pid)) < 3 and time.monotonic() < until:
        time.sleep(0.05)
    time.sleep(2.0)


@pytest.mark.slow
@pytest.mark.parametrize("workers", [1, 2])
def test_a_terminated_sweep_prints_and_saves_the_best_so_far(workers: int, tmp_path: Path) -> None:
    (tmp_path / "huge.yaml").write_text(HUGE, encoding="utf-8")
    process = started(f"{LINE} --store saved --out rows --workers {workers} --format json", tmp_path)
    if workers > 1:
        waited_for_workers(process)
    until = time.monotonic() + 60
    while not list(tmp_path.glob("saved/state-0-of-*.parquet")) and time.monotonic() < until:
        time.sleep(0.1)
    process.send_signal(signal.SIGTERM)
    out, errors = process.communicate(timeout=60)
    assert process.returncode == 130, errors
    assert len(json.loads(out)) > 0
    assert b"interrupted" in errors
    assert b"Traceback" not in errors
    assert (tmp_path / "rows" / "sweep.csv").exists()


SIZED = """\
symbols: {S: 4000}
workload:
  rank_sizes: {M: 55440, N: 55440, K: 55440, P: 55440}
  bits_per_value: {All: 8}
  einsums: ["T[m, n] = A[m, k] * B[k, n]", "Z[m, p] = T[m, n] * C[n, p]"]
arch:
  nodes:
  - !Memory
    name: DRAM
    size: inf
    tensors: {keep: ~Intermediates, may_keep: All}
    actions: [{name: read, energy: 9, throughput: 1}]
  - !Memory {name: GLB, size: 360000000, tensors: {may_keep: All}, actions: [{name: read, energy: 2}]}
  - !Memory {name: RF, size: 4000, tensors: {may_keep: All}, actions: [{name: write, energy: 1}]}
  - !Compute {name: MAC, actions: [{name: compute, energy: S, throughput: S * S}]}
"""
MACHINES = "codesign huge.yaml --hardware S=400,4000,40000 --objective energy --objective latency"


@pytest.mark.parametrize("ending", [signal.SIGKILL, pytest.param(signal.SIGTERM, marks=pytest.mark.slow)])
@pytest.mark.parametrize(
    ("line", "text"),
    [(LINE, HUGE), pytest.param(MACHINES, SIZED, marks=pytest.mark.slow)],
    ids=["sweep", "codesign"],
)
def test_workers_end_with_their_parent_and_hold_no_pipe(
    line: str, text: str, ending: signal.Signals, tmp_path: Path
) -> None:
    (tmp_path / "huge.yaml").write_text(text, encoding="utf-8")
    process = started(f"{line} --workers 2", tmp_path)
    waited_for_workers(process)
    before = children(process.pid)
    process.send_signal(ending)
    begun = time.monotonic()
    process.communicate(timeout=60)  # until nobody holds the other ends of the pipes
    assert time.monotonic() - begun < 10
    assert len(before) >= 3
    assert not left_of(before)


def left_of(pids: Collection[int]) -> list[int]:
    """Those that have not ended after a while: joblib's tracker clears up last."""
    begun = time.monotonic()
    while any(map(alive, pids)) and time.monotonic() - begun < 10:
        time.sleep(0.1)
    return [pid for pid in pids if alive(pid)]


@pytest.mark.slow
def test_a_terminated_codesign_with_workers_prints_the_best_so_far(tmp_path: Path) -> None:
    (tmp_path / "huge.yaml").write_text(SIZED, encoding="utf-8")
    process = started(f"{MACHINES} --workers 2 --format json --out rows", tmp_path)
    waited_for_workers(process)
    before = children(process.pid)
    time.sleep(10.0)  # some search has a mapping by then
    process.send_signal(signal.SIGTERM)
    out, errors = process.communicate(timeout=30)
    assert process.returncode == 130, errors
    assert len(json.loads(out)) > 0
    assert b"interrupted" in errors
    assert b"Traceback" not in errors
    assert (tmp_path / "rows" / "front.csv").exists()
    assert not left_of(before)


CLUSTER = """
import sys, joblib
from distributed import Client, LocalCluster
import polymodel as pm
if __name__ == "__main__":
    options = {"n_workers": 2, "threads_per_worker": 1, "dashboard_address": None}
    with LocalCluster(**options) as cluster, Client(cluster), joblib.parallel_config("dask"):
        print("begun", flush=True)
        hardware = {"S": [400, 4000, 40000]}
        found = pm.codesign(pm.load("huge.yaml"), hardware, objectives=["energy", "latency"], workers=2)
    print(found.interrupted, len(found))
"""


@pytest.mark.slow
def test_ctrl_c_ends_a_codesign_on_a_cluster_with_the_best_so_far(tmp_path: Path) -> None:
    pytest.importorskip("distributed")
    (tmp_path / "huge.yaml").write_text(SIZED, encoding="utf-8")
    (tmp_path / "run.py").write_text(CLUSTER, encoding="utf-8")
    process = subprocess.Popen([sys.executable, "run.py"], cwd=tmp_path, stdout=subprocess.PIPE)
    assert process.stdout is not None
    assert process.stdout.readline() == b"begun\n"
    time.sleep(15.0)  # some search has a mapping by then
    process.send_signal(signal.SIGINT)
    out, _ = process.communicate(timeout=60)
    interrupted, points = out.split()
    assert interrupted == b"True"
    assert int(points) > 0
