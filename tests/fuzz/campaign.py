"""Many inputs in child processes: `python -m tests.fuzz.campaign --total 1000000 --jobs 2 --seed 1`.

Input n of a target under seed s is made from `Random(f"{s}/{target}/{n}")`, so that a fault is replayed with
`--replay TARGET --seed S --number N`. A child is ended, and counted, when it takes longer than 5 s for an
input, holds more than 1 GB, or dies.
"""

from __future__ import annotations

import argparse
import json
import mmap
import multiprocessing
import os
import resource
import signal
import struct
import sys
import tempfile
import time
import traceback
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from types import TracebackType
from typing import Any

from polymodel.errors import InternalError, PolymodelError
from tests.fuzz.targets import TARGETS, Target, scaled

SECONDS = 5.0  # of a processor; others may be at work on it
WALL = 60.0  # for what waits instead of working
BYTES = 10**9
ADDRESSES = 4 << 30  # of address space beyond what a child starts with: what asks for more fails at once


@dataclass
class Caught:
    """What a reader raised, of whatever class, unless it is an error that polymodel means."""

    fault: str = ""
    trace: str = ""

    def __enter__(self) -> Caught:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> bool:
        if error is None or (isinstance(error, PolymodelError) and not isinstance(error, InternalError)):
            return True
        if isinstance(error, KeyboardInterrupt):
            return False
        frames = traceback.extract_tb(trace)
        own = [f for f in frames if "polymodel" in f.filename] or list(frames)
        where = f"{Path(own[-1].filename).name}:{own[-1].lineno}" if own else ""
        self.fault = f"{type(error).__name__} at {where}"
        self.trace = "".join(traceback.format_exception(kind, error, trace))[-4000:]
        return True


def made(target: Target, seed: int, number: int) -> Any:
    """The input of that number."""
    return target.make(Random(f"{seed}/{target.name}/{number}"))


def tried(target: Target, seed: int, number: int, folder: Path) -> Caught:
    """Make and read one input."""
    with Caught() as found:
        target.read(made(target, seed, number), folder)
    return found


@dataclass
class Count:
    """What came of the inputs of one target; `faults`: kind -> numbers of the inputs."""

    inputs: int = 0
    seconds: float = 0.0
    slowest: float = 0.0
    slowest_number: int = -1
    peak: int = 0
    faults: dict[str, list[int]] = field(default_factory=dict)
    traces: dict[str, str] = field(default_factory=dict)

    def fault(self, kind: str, number: int, trace: str = "") -> None:
        self.faults.setdefault(kind, []).append(number)
        self.traces.setdefault(kind, trace)


def _peak() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1 if sys.platform == "darwin" else 1024)


def _processor(pid: int) -> float:
    """Seconds of processor time that a process has had."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text(encoding="ascii").rpartition(")")[2].split()
    except OSError:
        return 0.0
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def _child(name: str, seed: int, first: int, last: int, board: mmap.mmap, report: str) -> None:
    """Inputs first..last-1. The board has the number of the one at work and when it began."""
    os.setpgid(0, 0)
    parent = os.getppid()
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    with open("/proc/self/statm", "rb") as file:
        there = int(file.read().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (there + ADDRESSES, there + ADDRESSES))
    quiet = os.open(os.devnull, os.O_WRONLY)
    os.dup2(quiet, 2)
    target, found = TARGETS[name], Count()
    with tempfile.TemporaryDirectory(prefix="fuzz") as folder:
        os.chdir(folder)
        for number in range(first, last):
            if os.getppid() != parent:
                break  # nobody waits for this
            before = time.process_time()
            board[:24] = struct.pack("qdd", number, before, time.monotonic())
            caught = tried(target, seed, number, Path(folder))
            took = time.process_time() - before
            found.inputs += 1
            found.seconds += took
            if took > found.slowest:
                found.slowest, found.slowest_number = took, number
            if caught.fault:
                found.fault(caught.fault, number, caught.trace)
            found.peak = max(found.peak, _peak())
            if found.peak > BYTES:
                found.fault("more than 1 GB", number)
                last = number + 1
                break
        board[:24] = struct.pack("qdd", -1, 0.0, 0.0)
        os.chdir("/")
    Path(report).write_text(json.dumps({**vars(found), "until": last}), encoding="utf-8")
    os._exit(0)


@dataclass
class Job:
    """One child at work on a part of a target's inputs."""

    target: str
    first: int
    last: int
    board: mmap.mmap
    report: Path
    process: Any

    def overdue(self) -> tuple[int, bool]:
        """The input at work, and whether it takes too long."""
        number, began, at = struct.unpack("qdd", self.board[:24])
        wall = time.monotonic() - at
        if number < 0 or wall < SECONDS:
            return number, False
        return number, wall > WALL or _processor(self.process.pid) - began > SECONDS


class Campaign:
    """All parts of all targets, `jobs` children at a time."""

    def __init__(self, targets: Sequence[Target], seed: int, jobs: int, piece: int = 5000) -> None:
        self.seed, self.jobs = seed, jobs
        self.counts = {t.name: Count() for t in targets}
        # Small parts, in turn, so that no target comes last.
        parts = [
            (start / t.share, t.name, start, min(start + _step(t, piece), int(t.share)))
            for t in targets
            for start in range(0, int(t.share), _step(t, piece))
        ]
        self.waiting = [(n, a, b) for _, n, a, b in sorted(parts)]
        self.running: list[Job] = []
        self.context = multiprocessing.get_context("fork")
        self.files = 0

    def run(self, deadline: float | None = None, tell: Callable[[str], object] | None = None) -> None:
        """Until all is done, or until the deadline (time.monotonic). `tell` hears every half minute."""
        told = time.monotonic()
        with tempfile.TemporaryDirectory(prefix="campaign") as folder:
            try:
                while self.waiting or self.running:
                    if deadline is not None and time.monotonic() > deadline:
                        return
                    while self.waiting and len(self.running) < self.jobs:
                        self._start(*self.waiting.pop(0), Path(folder))
                    time.sleep(0.02)
                    if tell is not None and time.monotonic() > told + 30:
                        told = time.monotonic()
                        tell(self.table())
                    for job in list(self.running):
                        self._look(job)
            finally:
                for job in self.running:
                    job.process.kill()
                    job.process.join()

    def _start(self, name: str, first: int, last: int, folder: Path) -> None:
        self.files += 1
        board, report = mmap.mmap(-1, 24), folder / f"{self.files}.json"
        board[:24] = struct.pack("qdd", -1, 0.0, 0.0)
        process = self.context.Process(target=_child, args=(name, self.seed, first, last, board, str(report)))
        process.start()
        self.running.append(Job(name, first, last, board, report, process))

    def _look(self, job: Job) -> None:
        number, late = job.overdue()
        if job.process.is_alive() and not late:
            return
        self.running.remove(job)
        count = self.counts[job.target]
        if late or not job.report.exists():
            if job.process.is_alive():
                os.kill(job.process.pid, signal.SIGKILL)
            job.process.join()
            kind = "hang" if late else f"died ({job.process.exitcode})"
            count.fault(kind, number)
            count.slowest = max(count.slowest, SECONDS) if late else count.slowest
            # What came before it is done again, without it: its figures died with the child.
            self.waiting[:0] = [
                p
                for p in ((job.target, job.first, number), (job.target, number + 1, job.last))
                if p[1] < p[2]
            ]
            count.inputs += 1
            return
        job.process.join()
        told = json.loads(job.report.read_text(encoding="utf-8"))
        count.inputs += told["inputs"]
        count.seconds += told["seconds"]
        if told["slowest"] > count.slowest:
            count.slowest, count.slowest_number = told["slowest"], told["slowest_number"]
        count.peak = max(count.peak, told["peak"])
        for kind, numbers in told["faults"].items():
            for n in numbers:
                count.fault(kind, n, told["traces"][kind])
        if told["until"] < job.last:
            self.waiting.insert(0, (job.target, told["until"], job.last))

    @property
    def faults(self) -> dict[str, dict[str, list[int]]]:
        return {name: c.faults for name, c in self.counts.items() if c.faults}

    def table(self) -> str:
        """Inputs, faults, the slowest and the peak of memory, by target."""
        lines = [f"{'target':26} {'inputs':>9} {'faults':>7} {'ms each':>8} {'slowest':>8} {'peak MB':>8}"]
        for name, c in self.counts.items():
            wrong = sum(map(len, c.faults.values()))
            each = 1000 * c.seconds / max(c.inputs, 1)
            lines.append(
                f"{name:26} {c.inputs:9,} {wrong:7} {each:8.2f} {c.slowest:7.2f}s {c.peak / 1e6:8.0f}"
            )
        every = self.counts.values()
        wrong = sum(len(n) for c in every for n in c.faults.values())
        peak, slowest = max((c.peak for c in every), default=0), max((c.slowest for c in every), default=0)
        lines.append(
            f"{'all':26} {sum(c.inputs for c in every):9,} {wrong:7} {'':8} {slowest:7.2f}s {peak / 1e6:8.0f}"
        )
        for name, c in self.counts.items():
            for kind, numbers in c.faults.items():
                lines.append(f"{name}: {kind}: {len(numbers)} times, e.g. --number {numbers[0]}")
        return "\n".join(lines)


def _step(target: Target, piece: int) -> int:
    return max(1, min(piece, int(target.share / 20) or int(target.share)))


@contextmanager
def prepared() -> Iterator[None]:
    """What every child needs is imported once, before they are forked."""
    with tempfile.TemporaryDirectory() as folder:
        there = Path.cwd()
        os.chdir(folder)
        for target in TARGETS.values():
            for number in range(3):
                tried(target, 0, number, Path(folder))
        os.chdir(there)
    yield


def main(arguments: Sequence[str] | None = None) -> int:
    """The command line; 1 if there was any fault."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--total", type=int, default=20_000)
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--only", action="append")
    parser.add_argument("--replay", metavar="TARGET")
    parser.add_argument("--number", type=int, default=0)
    options = parser.parse_args(arguments)
    if options.replay:
        with tempfile.TemporaryDirectory() as folder:
            os.chdir(folder)
            target = TARGETS[options.replay]
            sys.stdout.write(f"{made(target, options.seed, options.number)!r}\n")
            sys.stdout.flush()
            found = tried(target, options.seed, options.number, Path(folder))
            os.chdir("/")
        sys.stdout.write(f"{found.trace or 'fine'}\n")
        return bool(found.fault)
    targets = [t for t in scaled(options.total) if not options.only or t.name in options.only]
    with prepared():
        campaign = Campaign(targets, options.seed, options.jobs)
        began = time.perf_counter()
        campaign.run(tell=lambda text: sys.stderr.write(f"{text}\n\n"))
    traces = [f"--- {n}: {k}\n{t}" for n, c in campaign.counts.items() for k, t in c.traces.items() if t]
    took = time.perf_counter() - began
    text = [*traces, campaign.table(), f"{took:.0f} s with {options.jobs} children, seed {options.seed}"]
    sys.stdout.write("\n".join(text) + "\n")
    return bool(campaign.faults)


if __name__ == "__main__":
    sys.exit(main())
