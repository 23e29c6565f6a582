"""The options `--time-limit` and `--memory`, which are the same for all commands that may run long."""

from __future__ import annotations

import argparse
import importlib
import os
import select
import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from math import inf
from time import monotonic

from polymodel.errors import Diagnostic, SpecError
from polymodel.governor import bytes_of, counted_from, searches, seconds_of, started, waited_for_processors

# Commands that keep the best result so far end by themselves. The time to print it is added to the limit, and
# time during which other processes occupied the processors is not counted.
_SEARCHES = {
    "explore": "print the best so far", "sweep": "print what was found so far",
    "codesign": "print the best so far",
}  # fmt: skip
_SHORT = ("schema", "new", "import")  # the kinds of import have them
_TAIL, _LEAST_TAIL = 0.25, 3.0
_LAST = 2.0  # seconds after which a process that does not check the limit is killed
# Memory that the process loads in any case is not part of --memory.
_LOADED = (
    "pandas", "pyarrow.parquet", "scipy.sparse", "islpy", "polymodel.api.evaluation",
    "polymodel.mapper.search", "polymodel.report.export", "polymodel.sweeps.run",
)  # fmt: skip


def add_limits(parser: argparse.ArgumentParser, name: str) -> None:
    """Add the options to one command; commands that never run long get none."""
    if name in _SHORT:
        return
    end = _SEARCHES.get(name, "stop")
    parser.add_argument("--time-limit", metavar="S", help=f"after S seconds {end} (default: no limit)")
    rows = "; and of kept rows (default: 1GB of rows)" if name == "sweep" else " (default: no limit)"
    parser.add_argument("--memory", metavar="SIZE", help=f"at most so much memory, e.g. 2GB{rows}")
    parser.set_defaults(searches=name in _SEARCHES)


@contextmanager
def governed(options: argparse.Namespace, alone: bool) -> Iterator[None]:
    """Run a command within its limits. `alone`: this process runs nothing else, and may be killed.

    Raises SpecError for invalid limits, and TimeUp or MemoryUp where they are exceeded.
    """
    seconds, size = _read(options) if hasattr(options, "searches") else (inf, inf)
    if seconds == size == inf:
        yield
        return
    begun, waited = (started(), 0.0) if alone else (monotonic(), waited_for_processors())
    with ExitStack() as stack:
        if seconds < inf:
            if options.searches:
                stack.enter_context(searches(begun + seconds))
                seconds += max(_LEAST_TAIL, _TAIL * seconds)
            if alone:
                stack.enter_context(_outlasted(begun + seconds, seconds, options.searches))
        if size < inf:
            for name in _LOADED:
                with suppress(ImportError):  # the code that needs a missing package reports it
                    importlib.import_module(name)
        stack.enter_context(counted_from(begun, seconds, size, waited if options.searches else None))
        yield


def _read(options: argparse.Namespace) -> tuple[float, float]:
    """Read both limits; the first also as `options.seconds`. A search reports invalid limits together with
    its other faults."""
    from polymodel.spec.numbers import plain_number

    text = getattr(options, "time_limit", None)
    number = None if text is None else plain_number(text)
    options.seconds = text if number is None else number
    faults: list[Diagnostic] = []
    seconds = size = inf
    try:
        seconds = seconds_of(options.seconds)
    except SpecError:
        message = f"--time-limit {text} is not a time"
        faults.append(Diagnostic(message, "write seconds above 0, e.g. 30", code="out-of-range"))
    memory = getattr(options, "memory", None)
    try:
        size = bytes_of(memory)
    except SpecError:
        message = f"--memory {memory} is not an amount of memory"
        faults.append(Diagnostic(message, "write e.g. 500MB or 2GB", code="wrong-type"))
    if faults and not options.searches:
        raise SpecError(faults)
    return seconds, size


@contextmanager
def _outlasted(deadline: float, seconds: float, patient: bool) -> Iterator[None]:
    """Start a watchdog process that kills this one, which runs nothing else, soon after the deadline: a call
    into a library may never check the limit. `patient`: time during which other processes occupied the
    processors is not counted.

    The watchdog waits on a pipe that closes when this process ends, for whatever reason.
    """
    wait, hold = os.pipe()
    parent, end = os.getpid(), deadline + _LAST
    beside = os.fork()
    if not beside:
        os.close(hold)

        def left() -> float:
            waited = waited_for_processors(parent) if patient else 0.0
            return end + waited - monotonic()

        _guard(parent, wait, left, f"the time limit is over, in a call that cannot be stopped: {seconds:g} s")
    os.close(wait)
    try:
        yield
    finally:
        os.close(hold)
        os.waitpid(beside, 0)


def _guard(parent: int, wait: int, left: Callable[[], float], told: str) -> None:
    """The main function of the watchdog process. It ignores signals to the process group, which are meant for
    the other process."""
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    for stream in (sys.stdin, sys.stdout):  # no reader may wait for descriptors that the watchdog holds open
        os.close(stream.fileno())
    over: list[int] = []
    while not over and (seconds := left()) > 0:
        over, _, _ = select.select([wait], [], [], seconds)
    if not over:
        os.write(2, f"killed: {told}\n  remedy: allow more time, or give a smaller problem\n".encode())
        os.kill(parent, signal.SIGKILL)
    os._exit(0)
