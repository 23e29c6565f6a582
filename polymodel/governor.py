"""How long and how large work may be (deadline, memory), and how processes and threads end."""

from __future__ import annotations

import contextlib
import os
import resource
import signal
import sys
import threading
import time
import warnings
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from functools import partial
from math import inf
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Any, TypeVar

from polymodel.errors import Diagnostic, LimitReached, MemoryUp, Refused, SpecError, TimeUp
from polymodel.frozen import dataclass

if TYPE_CHECKING:
    from concurrent.futures import Executor, Future

# How processes and threads end: SIGTERM acts as Ctrl-C, workers end with the process that started them, and
# threads with the block of code that did; and whether a process has ended.

S = TypeVar("S")
T = TypeVar("T")
LOOK = 0.2  # seconds between checks whether the parent is running
_ENDING = (signal.SIGINT, signal.SIGTERM)
_WORKER = threading.Event()  # whether this process is a worker
_PDEATHSIG = 1  # prctl's PR_SET_PDEATHSIG


@contextlib.contextmanager
def terminable() -> Iterator[None]:
    """Inside the block, SIGTERM, which schedulers send, acts as Ctrl-C. A handler set by the caller is kept,
    and nothing changes outside the main thread, which alone receives signals."""
    number = signal.SIGTERM
    main = threading.current_thread() is threading.main_thread()
    if not main or signal.getsignal(number) is not signal.SIG_DFL:
        yield
        return

    def interrupted(_: int, frame: FrameType | None) -> None:
        handler = signal.getsignal(signal.SIGINT)
        # A shell makes a background command ignore Ctrl-C; SIGTERM must still end it.
        called = handler if callable(handler) else signal.default_int_handler
        called(signal.SIGINT, frame)

    signal.signal(number, interrupted)
    try:
        yield
    finally:
        signal.signal(number, signal.SIG_DFL)


def end_with(parent: int, told: bool) -> None:
    """In a worker: end as soon as the process of that number is no longer its parent. `told`: let the kernel
    signal this (Linux); the signal follows the thread that started the worker, so that must outlive it."""
    if told and sys.platform == "linux":
        import ctypes

        with contextlib.suppress(OSError, AttributeError):
            ctypes.CDLL(None).prctl(_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    for number in _ENDING:  # the parent handles it and ends its workers
        signal.signal(number, signal.SIG_IGN)
    _WORKER.set()
    threading.Thread(target=_watch, args=(parent,), daemon=True).start()


@contextlib.contextmanager
def at_work() -> Iterator[None]:
    """In a worker: Ctrl-C and SIGTERM, sent to a whole group, interrupt the block to save results."""
    if not _WORKER.is_set() or threading.current_thread() is not threading.main_thread():
        yield
        return
    before = {number: signal.signal(number, signal.default_int_handler) for number in _ENDING}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _watch(parent: int) -> None:
    while os.getppid() == parent:
        time.sleep(LOOK)
    os._exit(1)


def workers() -> dict[str, Any]:
    """Options of `joblib.Parallel` for workers of joblib's own backend that end with this process. Workers of
    other backends, such as Dask, have other parents."""
    from joblib.parallel import LokyBackend, get_active_backend

    active, _ = get_active_backend()
    if type(active) is not LokyBackend:
        return {}
    main = threading.current_thread() is threading.main_thread()
    return {"backend": LokyBackend(initializer=end_with, initargs=(os.getpid(), main))}


@contextlib.contextmanager
def elsewhere(count: int, tasks: Iterable[Any], ahead: str = "2 * n_jobs") -> Iterator[Iterator[Any]]:
    """The results of joblib's delayed tasks, in order, from so many workers, which end with this process.

    The workers are those of joblib's current backend: processes here, or a Dask cluster's within
    `joblib.parallel_config("dask")`. `ahead`: number of tasks submitted in advance.
    """
    from joblib import Parallel

    parallel = Parallel(
        n_jobs=count,
        return_as="generator",
        batch_size=1,
        pre_dispatch=ahead,
        temp_folder=scratch(),
        **workers(),
    )
    running = parallel(tasks)
    try:
        yield running
    finally:
        with warnings.catch_warnings():  # joblib warns about tasks whose results are no longer used
            warnings.simplefilter("ignore", UserWarning)
            running.close()


@dataclass(frozen=True)
class ClusterFlag:
    """A flag on the scheduler of a Dask cluster, with the methods of a file that serves as one on a host."""

    name: str

    def exists(self) -> bool:
        return bool(self._event().is_set())

    def touch(self) -> None:
        self._event().set()

    def _event(self) -> Any:
        from distributed import Event

        return Event(self.name)  # type: ignore[no-untyped-call]  # Dask has no types


@contextlib.contextmanager
def halting() -> Iterator[Path | ClusterFlag | None]:
    """A file, or a flag of the cluster, that the first Ctrl-C inside the block creates, so that workers can
    end with what they have; the next one interrupts as usual. None outside the main thread, which alone
    receives signals, and where the workers are threads."""
    if threading.current_thread() is not threading.main_thread() or not (workers() or _client()):
        yield None
        return
    from tempfile import TemporaryDirectory

    before = signal.getsignal(signal.SIGINT)
    with TemporaryDirectory(dir=scratch()) as folder:
        flag = Path(folder) / "halt" if workers() else ClusterFlag(folder)
        pressed = threading.Event()

        def note(number: int, frame: FrameType | None) -> None:
            if pressed.is_set():
                raise KeyboardInterrupt
            pressed.set()
            threading.Thread(target=flag.touch, daemon=True).start()  # a cluster answers in its own time

        signal.signal(signal.SIGINT, note)
        try:
            yield flag
        finally:
            signal.signal(signal.SIGINT, before or signal.default_int_handler)


@dataclass
class Crew:
    """Workers of a cluster that share the steps of one piece of work, a given number of tasks at a time.
    `held`: the handle under which an argument of many tasks is sent once for all."""

    executor: Executor
    count: int
    held: Callable[[Any], Any]

    def each(
        self, action: Callable[[Any, S], T], common: object, items: Iterable[S], ask: Callable[[], None]
    ) -> Iterator[T]:
        """The results of `action(common, item)` for each item, in order. `ask` is called from time to time;
        if it raises, running tasks are cancelled."""
        sent: deque[Future[T]] = deque()
        given = self.held(common)
        try:
            for item in items:
                sent.append(self.executor.submit(action, given, item))
                if len(sent) > 2 * self.count:
                    yield _result_of(sent.popleft(), ask)
            while sent:
                yield _result_of(sent.popleft(), ask)
        finally:
            for run in sent:
                run.cancel()


def _result_of(run: Future[T], ask: Callable[[], None]) -> T:
    """The result of a task. Raises Refused if its workers have ended repeatedly."""
    from concurrent.futures import BrokenExecutor, wait

    try:
        while not wait([run], LOOK).done:
            ask()
    finally:
        run.cancel()  # without effect on the results
    error = None if run.cancelled() else run.exception()
    # Dask reassigns the task of a worker that has ended three times before it gives up.
    ended = isinstance(error, BrokenExecutor) or type(error).__name__ == "KilledWorker"
    if not run.cancelled() and not ended:
        return run.result()
    what = "it is gone" if error is None else type(error).__name__
    message = f"workers of the cluster have ended before they gave a result ({what})"
    remedy = "see why in their logs; if they ran out of memory, give each more, or start fewer of them"
    raise Refused(message, remedy, code="lost-workers") from error


def _client() -> Any:
    """The client of the cluster that joblib's current backend is; None for other backends."""
    from joblib.parallel import get_active_backend

    return getattr(get_active_backend()[0], "client", None)


@contextlib.contextmanager
def crew(count: int) -> Iterator[Crew | None]:
    """So many workers of the cluster of joblib's current backend (`joblib.parallel_config("dask")`); None
    without a cluster, where the work runs in threads of this process."""
    if count < 2 or "joblib" not in sys.modules:  # no backend was chosen
        yield None
        return
    client = _client()
    if client is None:
        yield None
        return
    executor = client.get_executor(pure=False)
    try:
        # A separate task, so that it is recomputed if the worker that holds it ends.
        yield Crew(executor, count, partial(client.submit, _itself, pure=False))
    finally:
        executor.shutdown(wait=False)


def _itself(given: T) -> T:
    return given


def born(pid: int) -> str:
    """The start time of the process as the system reports it, which distinguishes it from a later process of
    the same number; empty if unknown."""
    try:
        return Path(f"/proc/{pid}/stat").read_text(encoding="ascii").rpartition(")")[2].split()[19]
    except (OSError, IndexError, UnicodeDecodeError):
        return ""


def started() -> float:
    """When this process was started, on the clock of `time.monotonic`; the current time if unknown."""
    ticks = born(os.getpid())
    if not ticks or not hasattr(time, "CLOCK_BOOTTIME"):
        return time.monotonic()
    age = time.clock_gettime(time.CLOCK_BOOTTIME) - int(ticks) / os.sysconf("SC_CLK_TCK")
    return time.monotonic() - max(age, 0.0)


def gone(pid: int, since: str) -> bool:
    """True if the process of this host with that start time has ended."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return True
    except (OSError, OverflowError):  # it exists and belongs to another user
        return False
    return bool(since) and born(pid) not in (since, "")


def scratch() -> str:
    """The folder for data that joblib's processes share: the user's choice, or the temporary folder."""
    from tempfile import gettempdir

    return os.environ.get("JOBLIB_TEMP_FOLDER") or gettempdir()


# The governor: one deadline and one bound of memory that all long work charges to.
#
# `limits` sets both for everything that runs inside it. Loops call `tick`, and code about to allocate much
# memory calls `charge`. Where the platform has interval timers and /proc, in the main thread, loops that do
# neither are stopped as well: a timer checks clock and memory, and the operating system refuses memory
# beyond the bound. A search that keeps the best result so far checks `left` and ends normally before the
# deadline.

STRIDE = 1024  # ticks between two checks of the clock
BEAT = 0.1  # seconds between two checks by the timer
PAUSE = 1.0  # seconds without a check after a limit has passed, so that interrupted code can clean up
LEAST_MEMORY = 128 * 10**6  # bytes; about the size of libraries that may still be imported
HELD = 16 * 10**9  # most bytes of one table of a computation if no limit is given
_UNITS = {"KB": 10**3, "MB": 10**6, "GB": 10**9, "TB": 10**12}
_PAGE = resource.getpagesize()


@dataclass
class Governor:
    """The limits in force. `end`: deadline (`time.monotonic`), `seconds` after the start; `bytes` beyond
    `base`, the memory of the process at the start. `since`: the time waited for processors before the start;
    waiting after that moves the deadline (None: it does not)."""

    end: float = inf
    seconds: float = inf
    bytes: float = inf
    base: int = 0
    ticks: int = 0
    since: float | None = None

    def look(self, doing: str = "") -> None:
        """Raise TimeUp or MemoryUp if a limit has passed."""
        if (now := time.monotonic()) > self.end and now > self.end + self.waited():
            raise _time_up(self.seconds, doing)
        if self.bytes < inf and resident_bytes() - self.base > self.bytes:
            raise _memory_up(self.bytes, doing)

    def waited(self) -> float:
        """Seconds by which the deadline has moved."""
        return 0.0 if self.since is None else waited_for_processors() - self.since


_none = Governor()
_current: ContextVar[Governor] = ContextVar("governor", default=_none)
_searches: ContextVar[float] = ContextVar("searches", default=inf)  # when the searches of a command end


def tick(doing: str = "", count: int = 1) -> None:
    """Count a step of a loop; every `STRIDE` steps the limits are checked. `doing`: the work, for errors."""
    now = _current.get()
    if now is _none:
        return
    now.ticks += count
    if now.ticks >= STRIDE:
        now.ticks = 0
        now.look(doing)


def look(doing: str = "") -> None:
    """Check the limits now, for a step that takes long by itself."""
    _current.get().look(doing)


def charge(size: float, doing: str, remedy: str = "", most: float = HELD) -> None:
    """Raise MemoryUp before `size` bytes are allocated that exceed the limit (without one, `most`)."""
    now = _current.get()
    room = now.bytes - (resident_bytes() - now.base) if now.bytes < inf else most
    if size > room:
        raise _memory_up(now.bytes if now.bytes < inf else most, doing, size, remedy)


def left() -> float:
    """Seconds until the deadline; infinite without one."""
    now = _current.get()
    return max(now.end + now.waited() - time.monotonic(), 0.0)


def crowded() -> float:
    """The slowdown of this process by others on the same processors, measured from the start of a command
    that searches (1 if unknown)."""
    now = _current.get()
    passed = time.monotonic() - now.end + now.seconds
    return 1.0 if now.since is None else passed / max(passed - now.waited(), passed / 100)


def spare(seconds: float | None = None) -> float:
    """The time for a search that keeps its best result so far: at most so many seconds, and less than remains
    until the deadline, so that the result can be reported."""
    asked = min(inf if seconds is None else seconds, _searches.get() - time.monotonic())
    return max(min(asked, 0.8 * left()), 0.0)


def soft(seconds: float | None = None) -> float:
    """When (`time.monotonic`) such a search has to end."""
    return time.monotonic() + spare(seconds)


@contextmanager
def searches(end: float) -> Iterator[None]:
    """Inside the block, searches end at that time (`time.monotonic`), whenever they begin: the work of a
    command before its search counts too."""
    token = _searches.set(end)
    try:
        yield
    finally:
        _searches.reset(token)


@dataclass(frozen=True)
class Share:
    """The limits of a worker process; it enters `within(share)`."""

    seconds: float
    bytes: float

    def with_tail(self) -> Share:
        """The same with the time that a search may take beyond its own end to finish its current step."""
        return Share(self.seconds + max(1.0, 0.1 * self.seconds), self.bytes)


def share(of: int = 1, seconds: float | None = None) -> Share:
    """The time of a search (`soft`), and one of so many equal parts of the memory."""
    return Share(spare(seconds), _current.get().bytes / of)


@contextmanager
def within(share: Share) -> Iterator[None]:
    """Apply the limits that another process has assigned."""
    with _governed(share.seconds, share.bytes):
        yield


@contextmanager
def limits(time: float | None = None, memory: str | None = None) -> Iterator[None]:
    """Limit everything inside the block: `time` in seconds of wall-clock time, `memory`, e.g. "500MB" or
    "2GB", beyond what the process uses already. Inside other limits the tighter ones hold.

    Raises TimeUp or MemoryUp when a limit has passed, SpecError for invalid limits; `explore`, `sweep` and
    `tile_matmul` return the best result so far instead. In the main thread any code is interrupted, in other
    threads the next step that checks; a call into ISL or numpy is never interrupted.
    """
    seconds, size = seconds_of(time), bytes_of(memory)
    with _governed(seconds, size):
        yield


@contextmanager
def counted_from(begun: float, seconds: float, size: float, waited: float | None = None) -> Iterator[None]:
    """Limits as `limits` sets them, infinite for None; the time counts from `begun` (`time.monotonic`), so
    that imports since then are included, less what the process waits for processors after `waited`."""
    with _governed(seconds, size, begun, since=waited):
        yield


@contextmanager
def until(end: float, asked: float | None = None) -> Iterator[None]:
    """Raise TimeUp inside the block once `time.monotonic` passes `end`: the unfinished step of a search is
    dropped. `asked`: the limit in seconds for the message, if it counts from earlier."""
    with _governed(end - time.monotonic(), inf, told=asked):
        yield


def seconds_of(value: object, name: str = "time") -> float:
    """A time limit as seconds, infinite for None. Raises SpecError."""
    if value is None:
        return inf
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not value > 0:
        message = f"{name}={value!r} is not a time"
        raise SpecError([Diagnostic(message, "write seconds above 0, e.g. 30", code="wrong-type")])
    return float(value)


def bytes_of(value: object, name: str = "memory") -> float:
    """An amount of memory as bytes, infinite for None: a text such as 500MB. Raises SpecError."""
    if value is None:
        return inf
    if isinstance(value, str):
        head, unit = value.strip()[:-2].strip(), value.strip()[-2:].upper()
        if unit in _UNITS and head.replace(".", "", 1).isdecimal() and len(head) <= 18:
            return int(float(head) * _UNITS[unit])
    message = f"{name}={value!r} is not an amount of memory"
    raise SpecError([Diagnostic(message, "write e.g. 500MB or 2GB", code="wrong-type")])


def waited_for_processors(process: int | str = "self") -> float:
    """Seconds during which the main thread was ready but not running; 0 if unknown."""
    try:
        return int(Path(f"/proc/{process}/schedstat").read_text(encoding="ascii").split()[1]) * 1e-9
    except (OSError, LookupError, ValueError):
        return 0.0


def resident_bytes() -> int:
    """Bytes of memory that this process uses; where that is unknown, its peak."""
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
def _governed(
    seconds: float,
    size: float,
    begun: float | None = None,
    told: float | None = None,
    since: float | None = None,
) -> Iterator[None]:
    outer, start = _current.get(), time.monotonic() if begun is None else begun
    if seconds == inf and size == inf:
        yield
        return
    base = resident_bytes() if size < inf else 0
    mine = Governor(start + seconds, told or seconds, max(size, LEAST_MEMORY), base, since=since)
    if outer.end + outer.waited() <= mine.end:
        mine.end, mine.seconds, mine.since = outer.end, outer.seconds, outer.since
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
    """A timer that checks the limits whatever code runs; not in other threads, nor beside another timer."""
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
        mine.end = mine.bytes = inf  # from here on it must not interrupt anything
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
    """Lets the operating system refuse memory beyond the limit, so that no single array exceeds it."""
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
    """Bytes of private memory that the operating system counts for RLIMIT_DATA; 0 if unknown."""
    try:
        lines = Path("/proc/self/status").read_text().splitlines()
    except OSError:
        return 0
    return next((int(line.split()[1]) * 1024 for line in lines if line.startswith("VmData:")), 0)
