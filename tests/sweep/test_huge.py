"""10^9 points from the command line: memory that does not grow, Ctrl-C on the way, the same front."""

from __future__ import annotations

import os
import resource
import signal
import subprocess
import sys
import time
from pathlib import Path

import pandas as pd
import pytest

import polymodel as pm
from benchmarks.bench import grids
from polymodel.loading import mapping_to_yaml
from polymodel.sweeps.values import Choice

ROOT = Path(__file__).resolve().parents[2]
SIDE = 168
LOOPS: dict[str, Choice] = {
    "TM": range(1, 65), "TC": range(1, 65), "TP": range(1, SIDE + 1), "TQ": range(1, SIDE + 1),
    "TR": [1, 2, 3], "TS": [1, 2, 3],
}  # fmt: skip
OBJECTIVES = ("accesses:DRAM", "working_set:GLB")
GIGABYTE = 2**20  # in the kilobytes of ru_maxrss


def command(folder: Path, mapping: Path) -> list[str]:
    symbols = (f"{n}={','.join(map(str, v))}" for n, v in LOOPS.items())  # type: ignore[union-attr]  # all are ranges
    spec = ("simple_two_level", "conv2d", str(mapping), "--var", f"P={SIDE}", "--var", f"Q={SIDE}")
    sizes = ("--var", "M=64", "--var", "C=64", "--no-prune", "--store", str(folder / "store"))
    every = [word for s in symbols for word in ("--symbol", s)]
    wanted = [word for o in OBJECTIVES for word in ("--objective", o)]
    out = ("--out", str(folder / "out"))
    return [sys.executable, "-m", "polymodel.cli", "sweep", *spec, *sizes, *every, *wanted, *out]


def interrupted(folder: Path, mapping: Path) -> str:
    """Run until some states have been saved, then press Ctrl-C; gives what is printed."""
    process = subprocess.Popen(command(folder, mapping), cwd=ROOT, stdout=subprocess.PIPE, text=True)
    state = folder / "store" / "state-0-of-1.parquet"
    while not state.is_file() and process.poll() is None:
        time.sleep(0.5)
    time.sleep(6)
    os.kill(process.pid, signal.SIGINT)
    out, _ = process.communicate(timeout=120)
    assert process.returncode == 130
    return out


@pytest.mark.slow
def test_a_billion_points_in_bounded_memory_interrupted_and_resumed(tmp_path: Path) -> None:
    (bench, _) = grids()["sweep a conv2d, 6 symbols"]
    assert bench.template is not None
    mapping = tmp_path / "mapping.yaml"
    mapping.write_text(mapping_to_yaml(bench.template), encoding="utf-8")
    for _ in range(2):
        out = interrupted(tmp_path, mapping)
        assert "interrupted after" in out
    done = subprocess.run(command(tmp_path, mapping), cwd=ROOT, capture_output=True, text=True, timeout=1800)
    assert done.returncode == 0, done.stderr
    assert "1040449536 points" in done.stdout
    assert resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss < 2 * GIGABYTE
    found = pd.read_parquet(tmp_path / "out" / "sweep.parquet")
    spec = pm.load("simple_two_level", "conv2d", mapping, M=64, C=64, P=SIDE, Q=SIDE)
    # The same front by another way: choices that cannot be on it are left out first.
    pruned = pm.sweep(spec, LOOPS, objectives=OBJECTIVES)
    assert len(pruned.frame) > 50
    assert pruned.pruned > 10**8
    pd.testing.assert_frame_equal(found, pruned.frame, check_exact=True)
