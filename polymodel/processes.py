"""How processes end: SIGTERM is Ctrl-C, and workers end with the process that started them."""

from __future__ import annotations

import contextlib
import os
import signal
import sys
import threading
import time
from collections.abc import Iterator
from types import FrameType
from typing import Any

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
        import ctypes

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
