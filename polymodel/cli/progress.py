"""The progress line of a command: shown on stderr once the work has taken two seconds."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from threading import Event, Thread
from time import perf_counter

from polymodel.errors import masked

BAR_AFTER = 2.0
LINE_EVERY = 30.0  # seconds between lines where stderr is a file or a pipe
WIDTH = 24


class ProgressLine:
    """A line on stderr that is rewritten. Quiet for the first 2 s.

    `live=False`, for files and pipes: a new line now and then.
    """

    def __init__(self, write: Callable[[str], object], live: bool = True) -> None:
        self.write = write
        self.live = live
        self.shown = 0
        self.last = 0.0

    def due(self, seconds: float) -> bool:
        """True if it is time to show something, so many seconds after the start."""
        if seconds < BAR_AFTER or seconds - self.last < (0.2 if self.live else LINE_EVERY):
            return False
        self.last = seconds
        return True

    def show(self, share: float, text: str) -> None:
        """Show a bar of which `share` is done, and a text."""
        filled = int(WIDTH * share)
        self.say(f"[{'#' * filled}{'.' * (WIDTH - filled)}] {100 * share:5.1f} %  {text}")

    def say(self, line: str) -> None:
        """Show this text in the place of what was there."""
        line = masked(line)
        if not self.live:
            self.write(line + "\n")
            return
        self.write("\r" + line.ljust(self.shown))
        self.shown = len(line)

    def finish(self) -> None:
        """Leave the line."""
        if self.shown:
            self.write("\n")


@contextmanager
def waiting(what: str) -> Iterator[None]:
    """Says on stderr what takes so long, and for how long it has, while work that tells no progress runs."""
    live = sys.stderr.isatty()
    line, done, begun = ProgressLine(sys.stderr.write, live), Event(), perf_counter()

    def tell() -> None:
        while not done.wait(0.2):
            seconds = perf_counter() - begun
            if line.due(seconds):
                line.say(f"{what}: {seconds:.0f} s so far")
                sys.stderr.flush()

    teller = Thread(target=tell, daemon=True)
    teller.start()
    try:
        yield
    finally:
        done.set()
        teller.join()
        line.finish()


class Searches(ProgressLine):
    """How many of several searches are done."""

    def __call__(self, done: int, total: int, seconds: float) -> None:
        if self.due(seconds):
            self.show(done / max(total, 1), f"{done} of {total} searches  {seconds:.0f} s")
