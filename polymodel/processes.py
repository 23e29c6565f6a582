"""How processes and threads end: SIGTERM is Ctrl-C, workers end with the process that started them, and
threads with the block of code that did; and whether a process has ended."""

from __future__ import annotations

import contextlib
import ctypes
import os
import signal
import sys
import tempfile
import threading
import time
import warnings
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor, wait
from pathlib import Path
from types import FrameType, TracebackType
from typing import Any, ParamSpec, TypeVar

P = ParamSpec("P")
S = TypeVar("S")
T = TypeVar("T")
LOOK = 0.2  # seconds between looks whether the parent is still there
_ENDING = (signal.SIGINT, signal.SIGTERM)
_WORKER = threading.Event()  # whether this process is a worker
_PDEATHSIG = 1  # prctl's PR_SET_PDEATHSIG


@contextlib.contextmanager
def terminable() -> Iterator[None]:
    """Meanwhile SIGTERM, which schedulers send, does what Ctrl-C does at that moment. A handler that the
    caller has set stays; so does one in another thread than the main one, which gets no signals."""
    number = signal.SIGTERM
    main = threading.current_thread() is threading.main_thread()
    if not main or signal.getsignal(number) is not signal.SIG_DFL:
        yield
        return

    def interrupted(_: int, frame: FrameType | None) -> None:
        handler = signal.getsignal(signal.SIGINT)
        # A shell that starts a command in the background has it ignore Ctrl-C, and SIGTERM is meant for it.
        called = handler if callable(handler) else signal.default_int_handler
        called(signal.SIGINT, frame)

    signal.signal(number, interrupted)
    try:
        yield
    finally:
        signal.signal(number, signal.SIG_DFL)


def end_with(parent: int, told: bool) -> None:
    """In a worker: end as soon as the process of that number is not its parent any more, so that no pipe of
    it stays open. `told`: the kernel may tell (Linux), which takes no turn of the interpreter; it speaks of
    the thread that started the worker, so that must be one which lasts."""
    if told and sys.platform == "linux":
        with contextlib.suppress(OSError, AttributeError):
            ctypes.CDLL(None).prctl(_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    for number in _ENDING:  # the parent is told, and ends its workers; they heed it only at work
        signal.signal(number, signal.SIG_IGN)
    _WORKER.set()
    threading.Thread(target=_watch, args=(parent,), daemon=True).start()


@contextlib.contextmanager
def at_work() -> Iterator[None]:
    """In a worker: meanwhile Ctrl-C and SIGTERM, which may reach a whole group of processes, interrupt it, so
    that it can save what it has."""
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
    """Options of `joblib.Parallel` for workers that end with this process: those of joblib's own backend.
    Those of others, such as Dask, have parents of their own."""
    from joblib.parallel import LokyBackend, get_active_backend

    active, _ = get_active_backend()
    if type(active) is not LokyBackend:
        return {}
    main = threading.current_thread() is threading.main_thread()
    return {"backend": LokyBackend(initializer=end_with, initargs=(os.getpid(), main))}


@contextlib.contextmanager
def elsewhere(count: int, tasks: Iterable[Any], ahead: str = "2 * n_jobs") -> Iterator[Iterator[Any]]:
    """The results of joblib's delayed tasks, in order, from so many workers that end with this process.

    The workers are those of joblib's current backend: processes here, or a Dask cluster's within
    `joblib.parallel_config("dask")`. `ahead`: how many tasks are sent before they are asked for.
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
        with warnings.catch_warnings():  # joblib advises on tasks that nobody waits for any more
            warnings.simplefilter("ignore", UserWarning)
            running.close()


def born(pid: int) -> str:
    """When the process was started, in the system's own words, which tells it from a later one of the same
    number; empty where the system does not say."""
    try:
        return Path(f"/proc/{pid}/stat").read_text(encoding="ascii").rpartition(")")[2].split()[19]
    except (OSError, IndexError, UnicodeDecodeError):
        return ""


def gone(pid: int, since: str) -> bool:
    """True if the process of this host that was `born` then is no more."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return True
    except (OSError, OverflowError):  # it is there, and another user's
        return False
    return bool(since) and born(pid) not in (since, "")


class Broken(BaseException):
    """Raised in a thread whose work nobody waits for any more."""


class Threads(ThreadPoolExecutor):
    """Threads that do not outlast their `with` block: an exception that ends it, a limit of time for example,
    breaks off what they run at the next instruction of the interpreter. One call into a library goes on to
    its end."""

    def __init__(self, count: int) -> None:
        super().__init__(count)
        self.busy: set[int] = set()
        self.guard = threading.Lock()
        self.broken = False

    def submit(self, fn: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> Future[T]:
        def run() -> T:
            with self.guard:
                if self.broken:
                    raise Broken
                self.busy.add(threading.get_ident())
            try:
                return fn(*args, **kwargs)
            finally:
                with self.guard:
                    self.busy.discard(threading.get_ident())

        return super().submit(run)

    def each(self, action: Callable[[S], T], items: Iterable[S]) -> Iterator[T]:
        """What the action gives for each item, in order. Unlike `map`, it waits in small steps: a signal does
        not end the wait for a lock."""
        for run in [self.submit(action, item) for item in items]:
            while not wait([run], LOOK).done:
                pass
            yield run.result()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if kind is not None:
            self.shutdown(wait=False, cancel_futures=True)
            with self.guard:
                self.broken = True
                for number in self.busy:
                    ctypes.pythonapi.PyThreadState_SetAsyncExc(
                        ctypes.c_ulong(number), ctypes.py_object(Broken)
                    )
        self.shutdown(wait=True)


def scratch() -> str:
    """Where joblib may put what its processes share: the temporary folder, unless the user names another."""
    return os.environ.get("JOBLIB_TEMP_FOLDER") or tempfile.gettempdir()
