"""The governor: one deadline and one bound of memory that all long work charges to.

`limits` sets both for everything that runs inside it. Loops call `tick`, and what is about to take much
memory calls `charge`. Where the platform has interval timers and /proc, in the main thread, loops that do
neither are stopped as well: a timer looks at clock and memory, and the operating system refuses memory beyond
the bound. A search that keeps the best so far asks `left` and ends in good order before the deadline.
"""

from __future__ import annotations

import resource
import signal
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from math import inf
from pathlib import Path
from types import FrameType

from polymodel.errors import Diagnostic, LimitReached, MemoryUp, SpecError, TimeUp

STRIDE = 1024  # ticks between two looks at the clock
BEAT = 0.1  # seconds between two looks of the timer
PAUSE = 1.0  # seconds without a look after a limit is passed, so that what was broken off can clean up
LEAST_MEMORY = 128 * 10**6  # bytes; libraries that are loaded on the way take about as much
HELD = 16 * 10**9  # bytes that one table of a computation may take where no limit is given
_UNITS = {"KB": 10**3, "MB": 10**6, "GB": 10**9, "TB": 10**12}
_PAGE = resource.getpagesize()


@dataclass
class Governor:
    """The limits in force. `end`: when (`time.monotonic`), `seconds` from the start; `bytes` beyond `base`,
    what the process held at the start."""

    end: float = inf
    seconds: float = inf
    bytes: float = inf
    base: int = 0
    ticks: int = 0

    def look(self, doing: str = "") -> None:
        """Raises TimeUp or MemoryUp where a limit is passed."""
        if time.monotonic() > self.end:
            raise _time_up(self.seconds, doing)
        if self.bytes < inf and held() - self.base > self.bytes:
            raise _memory_up(self.bytes, doing)


_none = Governor()
_current: ContextVar[Governor] = ContextVar("governor", default=_none)
_searches: ContextVar[float] = ContextVar("searches", default=inf)  # when those of a command have to end


def tick(doing: str = "", count: int = 1) -> None:
    """A step of a loop: now and then the limits are looked at. `doing` is told where one is passed."""
    now = _current.get()
    if now is _none:
        return
    now.ticks += count
    if now.ticks >= STRIDE:
        now.ticks = 0
        now.look(doing)


def look(doing: str = "") -> None:
    """The same for a step that takes long by itself."""
    _current.get().look(doing)


def charge(size: float, doing: str, remedy: str = "", most: float = HELD) -> None:
    """Raises MemoryUp before `size` bytes are taken for which the limit has no room; without one, if that is
    more than `most`."""
    now = _current.get()
    room = now.bytes - (held() - now.base) if now.bytes < inf else most
    if size > room:
        raise _memory_up(now.bytes if now.bytes < inf else most, doing, size, remedy)


def left() -> float:
    """Seconds until the deadline; infinite if there is none."""
    return max(_current.get().end - time.monotonic(), 0.0)


def spare(seconds: float | None = None) -> float:
    """How long a search may take that keeps the best so far: at most so many seconds, and less than there are
    up to the deadline, so that what it has found can still be told."""
    asked = min(inf if seconds is None else seconds, _searches.get() - time.monotonic())
    return max(min(asked, 0.8 * left()), 0.0)


def soft(seconds: float | None = None) -> float:
    """When (`time.monotonic`) such a search has to end."""
    return time.monotonic() + spare(seconds)


@contextmanager
def searches(seconds: float) -> Iterator[None]:
    """Meanwhile searches end so many seconds from now, whenever they begin: what a command does before them
    is part of its time."""
    token = _searches.set(time.monotonic() + seconds)
    try:
        yield
    finally:
        _searches.reset(token)


@dataclass(frozen=True)
class Share:
    """What a worker process may still take; it enters `within(share)`."""

    seconds: float
    bytes: float

    def with_tail(self) -> Share:
        """With the time that a search may take beyond its own end, to finish the step that it is at."""
        return Share(self.seconds + max(1.0, 0.1 * self.seconds), self.bytes)


def share(of: int = 1, seconds: float | None = None) -> Share:
    """The time that a search has (`soft`), and one of so many equal parts of the memory."""
    return Share(spare(seconds), _current.get().bytes / of)


@contextmanager
def within(share: Share) -> Iterator[None]:
    """The limits that another process has shared out."""
    with _governed(share.seconds, share.bytes):
        yield


@contextmanager
def limits(time: float | None = None, memory: str | None = None) -> Iterator[None]:
    """Bound everything inside: `time` in seconds by the clock on the wall, `memory`, e.g. "500MB" or
    "2GB", beyond what the process holds already.

    Within other limits the narrower ones hold. Raises TimeUp or MemoryUp when a limit is passed, SpecError
    for what is no limit; `explore`, `sweep` and `tile_matmul` return the best so far instead. In the main
    thread whatever runs is stopped, in other threads at the next step that looks; one call into the
    library of integer sets or into numpy is never broken off in the middle.
    """
    seconds, size = seconds_of(time), bytes_of(memory)
    with _governed(seconds, size):
        yield


@contextmanager
def counted_from(begun: float, seconds: float, size: float) -> Iterator[None]:
    """Limits as `limits` sets them, infinite where there is none; the time counts from `begun`
    (`time.monotonic`), so that what was loaded since then is part of it."""
    with _governed(seconds, size, begun):
        yield


@contextmanager
def until(end: float) -> Iterator[None]:
    """Raises TimeUp inside once `time.monotonic` passes `end`: the step of a search that is not finished then
    is left out."""
    with _governed(end - time.monotonic(), inf):
        yield


def seconds_of(value: object, name: str = "time") -> float:
    """A time limit as seconds, infinite for None. Raises SpecError."""
    if value is None:
        return inf
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not value > 0:
        raise SpecError([Diagnostic(f"{name}={value!r} is no time", "write seconds above 0, e.g. 30")])
    return float(value)


def bytes_of(value: object, name: str = "memory") -> float:
    """An amount of memory as bytes, infinite for None: a text such as 500MB. Raises SpecError."""
    if value is None:
        return inf
    if isinstance(value, str):
        head, unit = value.strip()[:-2].strip(), value.strip()[-2:].upper()
        if unit in _UNITS and head.replace(".", "", 1).isdecimal() and len(head) <= 18:
            return int(float(head) * _UNITS[unit])
    raise SpecError([Diagnostic(f"{name}={value!r} is no amount of memory", "write e.g. 500MB or 2GB")])


def held() -> int:
    """Bytes of memory that this process holds now; where that cannot be read, the most it ever held."""
    try:
        return int(Path("/proc/self/statm").read_text().split()[1]) * _PAGE
    except OSError:
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss  # bytes where there is no /proc


def _time_up(seconds: float, doing: str) -> TimeUp:
    what = f" while {doing}" if doing else ""
    return TimeUp(
        f"the time limit of {seconds:g} s is over{what}", "allow more time, or give a smaller problem"
    )


def _memory_up(limit: float, doing: str, size: float = 0, remedy: str = "") -> MemoryUp:
    need = f"{_amount(size)}, more" if size else "more memory"
    what = f"{doing or 'the work'} takes {need} than the limit of {_amount(limit)} leaves"
    return MemoryUp(what, remedy or "allow more memory, or give a smaller problem")


def _amount(size: float) -> str:
    unit = next((u for u in ("TB", "GB", "MB") if size >= _UNITS[u]), "KB")
    return f"{size / _UNITS[unit]:.3g} {unit}"


@contextmanager
def _governed(seconds: float, size: float, begun: float | None = None) -> Iterator[None]:
    outer, start = _current.get(), time.monotonic() if begun is None else begun
    if seconds == inf and size == inf:
        yield
        return
    mine = Governor(start + seconds, seconds, max(size, LEAST_MEMORY), held() if size < inf else 0)
    if outer.end <= mine.end:
        mine.end, mine.seconds = outer.end, outer.seconds
    if size == inf or outer.base + outer.bytes <= mine.base + mine.bytes:
        mine.bytes, mine.base = outer.bytes, outer.base
    token, bound = _current.set(mine), mine.bytes
    try:
        with _watched(outer, mine), _walled(mine):
            yield
    except MemoryError as error:
        if bound == inf:
            raise
        raise _memory_up(bound, "") from error
    finally:
        _current.reset(token)


@contextmanager
def _watched(outer: Governor, mine: Governor) -> Iterator[None]:
    """A timer looks at the limits, whatever runs. Not where somebody else uses it, nor in other threads."""
    before = signal.getsignal(signal.SIGALRM)
    free = before in (signal.SIG_DFL, _beat)
    if threading.current_thread() is not threading.main_thread() or not free:
        yield
        return
    signal.signal(signal.SIGALRM, _beat)
    signal.siginterrupt(signal.SIGALRM, False)
    try:
        _arm(mine)
        yield
    finally:
        mine.end = mine.bytes = inf  # from here on nothing is to be stopped by it
        _arm(outer)
        signal.signal(signal.SIGALRM, before)


def _arm(governor: Governor) -> None:
    first = max(governor.end - time.monotonic(), 1e-3)
    first = min(first, BEAT) if governor.bytes < inf else first
    signal.setitimer(signal.ITIMER_REAL, 0 if first == inf else first, BEAT)


def _beat(number: int, frame: FrameType | None) -> None:
    try:
        _current.get().look()
    except LimitReached:
        signal.setitimer(signal.ITIMER_REAL, PAUSE, BEAT)
        raise


@contextmanager
def _walled(mine: Governor) -> Iterator[None]:
    """The operating system refuses memory beyond the limit, so that not even one large array passes it."""
    data = _data()
    if mine.bytes == inf or not data:
        yield
        return
    soft, hard = resource.getrlimit(resource.RLIMIT_DATA)
    wall = data + int(mine.bytes)
    wall = wall if soft == resource.RLIM_INFINITY else min(wall, soft)
    resource.setrlimit(resource.RLIMIT_DATA, (wall, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_DATA, (soft, hard))


def _data() -> int:
    """Bytes of private memory that the operating system counts for RLIMIT_DATA; 0 where it does not tell."""
    try:
        lines = Path("/proc/self/status").read_text().splitlines()
    except OSError:
        return 0
    return next((int(line.split()[1]) * 1024 for line in lines if line.startswith("VmData:")), 0)
