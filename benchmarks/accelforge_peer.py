"""AccelForge as a peer: one fused chain of three matmuls that both tools evaluate, timed in the same run.

It installs only under Python 3.12, so it gets an environment of its own in `benchmarks/.peers`, built at
the first run. Where that cannot be done its rows say "not installed" and why.
"""

from __future__ import annotations

import json
import math
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import polymodel as pm
from benchmarks.rows import Row, rate

HERE = Path(__file__).resolve().parent
PEERS = HERE / ".peers"
VERSION = "1.0.467"
CHECKED = 300  # seconds in which it must be imported
SPEC = HERE / "chain3.yaml"
SYMBOLS = ("TM", "TN0", "TN1", "TN2", "TN3", "TQ1", "TQ2")
# Divisors of the rank sizes that fit the buffer: with other tiles AccelForge counts padded steps.
POINTS = tuple(
    dict(zip(SYMBOLS, sizes, strict=True))
    for sizes in (
        (32, 16, 32, 16, 32, 8, 64),
        (16, 32, 16, 64, 8, 128, 4),
        (8, 64, 4, 16, 128, 32, 2),
        (32, 8, 8, 8, 8, 8, 8),
        (4, 128, 32, 2, 64, 16, 32),
        (16, 4, 64, 32, 16, 16, 16),
    )
)
Counts = dict[str, float]


class NotInstalled(Exception):
    """AccelForge cannot be run here; the text says why."""


@dataclass(frozen=True)
class Peer:
    """CPU seconds of one point, and what was counted at each of POINTS."""

    seconds: float
    counts: tuple[Counts, ...]


def spec(**tiles: int | str) -> pm.Spec:
    """The chain; each tile size that is not given remains a symbol."""
    return pm.load(SPEC, variables={**{name: name for name in SYMBOLS}, **tiles})


def rows(seconds: float, sweep_rate: float, swept: str) -> tuple[dict[str, Row], list[str]]:
    """Points per second of `evaluate` (its CPU `seconds` for one point) and of the sweep named `swept`.

    Without AccelForge the rows say why. Also each count in which the tools differ.
    """
    values = {"evaluate a fused chain of three matmuls": 1 / seconds, swept: sweep_rate}
    try:
        peer = measure()
    except NotInstalled as fault:
        name = f"AccelForge {VERSION}: not installed ({fault})"
        return {k: rate(v, None, name) for k, v in values.items()}, []
    result = differences(peer)
    agree = f"{len(result)} counts differ" if result else "all counts equal"
    name = f"AccelForge {VERSION}, the same mapping at {len(POINTS)} points, {agree}"
    return {k: rate(v, 1 / peer.seconds, name) for k, v in values.items()}, result


def candidates() -> Iterator[str]:
    """Interpreters that may be Python 3.12: this one, the PATH's, and pyenv's."""
    yield sys.executable
    if on_path := shutil.which("python3.12"):
        yield on_path
    pyenv = Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv"))
    yield from map(str, sorted(pyenv.glob("versions/3.12*/bin/python3.12"), reverse=True))


def run(python: str | Path, *arguments: str | Path, seconds: int) -> str:
    """Run an interpreter, isolated, to its end; its last line of complaint if it fails, else nothing."""
    try:
        done = subprocess.run(
            [str(python), "-I", *map(str, arguments)], capture_output=True, text=True, timeout=seconds
        )
    except subprocess.TimeoutExpired:
        return _silent(seconds)
    except OSError as error:
        return str(error)
    lines = [line for line in (done.stderr or done.stdout).splitlines() if line.strip()]
    return "" if done.returncode == 0 else (lines[-1].strip() if lines else f"exit {done.returncode}")


def _silent(seconds: int) -> str:
    return f"no answer in {seconds} s"


def environment() -> Path:
    """A Python with AccelForge; raises NotInstalled."""
    folder = PEERS / f"accelforge-{VERSION}"
    python, ready = folder / "bin" / "python", folder / ".ready"
    if ready.exists():
        fault = run(python, "-c", "import accelforge", seconds=CHECKED)
        if not fault:
            return python
        if fault == _silent(CHECKED):  # on a busy machine: it is there, and must not be made anew
            raise NotInstalled(fault)
    check = "import sys, venv, ensurepip; sys.exit(sys.version_info[:2] != (3, 12))"
    found = next((c for c in candidates() if not run(c, "-c", check, seconds=30)), None)
    if found is None:
        raise NotInstalled("no Python 3.12 with venv was found")
    pip = (
        "-m",
        "pip",
        "install",
        "--quiet",
        "--disable-pip-version-check",
        "--retries",
        "1",
        "--timeout",
        "15",
    )
    fault = run(found, "-m", "venv", "--clear", folder, seconds=120) or run(
        python, *pip, f"accelforge=={VERSION}", seconds=600
    )
    if fault:
        raise NotInstalled(fault)
    try:
        ready.touch()
    except OSError as error:
        raise NotInstalled(str(error)) from error
    return python


def measure() -> Peer:
    """AccelForge at POINTS; raises NotInstalled."""
    python = environment()
    with tempfile.TemporaryDirectory() as name:
        points, out = Path(name) / "points.json", Path(name) / "out.json"
        points.write_text(json.dumps(POINTS), encoding="utf-8")
        fault = run(python, HERE / "accelforge_points.py", SPEC, points, out, seconds=300)
        if fault:
            raise NotInstalled(f"it does not run: {fault}")
        result = json.loads(out.read_text(encoding="utf-8"))
    return Peer(result["seconds"], tuple(result["counts"]))


def ours(point: dict[str, int]) -> Counts:
    """What polymodel counts at one point, named as AccelForge names it."""
    report = pm.evaluate(spec(**point))
    result: Counts = {}
    for row in report.accesses.to_dict("records"):
        where = f"{row['einsum']} {row['component']} {row['tensor']}"
        result |= {f"{where} read": row["read_bits"], f"{where} write": row["write_bits"]}
    for row in report.summary.to_dict("records"):
        if row["einsum"] == "total":
            result |= {"energy": row["energy_J"], "latency": row["latency_s"]}
        else:
            result[f"{row['einsum']} MAC None compute"] = row["operations"]
    return result


def differences(peer: Peer) -> list[str]:
    """Where the tools disagree: bits and operations to the last one, sums of floats to a millionth."""
    result = []
    for point, theirs in zip(POINTS, peer.counts, strict=True):
        mine = ours(point)
        for name in sorted({*mine, *theirs}):
            a, b = mine.get(name, 0), theirs.get(name, 0)
            loose = 1e-6 if name in ("energy", "latency") else 0.0
            if not math.isclose(a, b, rel_tol=loose):
                result.append(f"{name} at {point}: polymodel {a}, AccelForge {b}")
    return result
