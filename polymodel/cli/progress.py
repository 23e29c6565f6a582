"""The progress line of a command, shown on stderr once the work has taken two seconds."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from threading import Event, Thread
from time import perf_counter

from polymodel.errors import masked

BAR_AFTER = 2.0
LINE_EVERY = 30.0  # seconds between two lines where stderr is a file or a pipe
WIDTH = 24


class ProgressLine:
    """A line on stderr that is overwritten in place; nothing is shown during the first 2 s.

    With `live=False`, for files and pipes, a new line is written at intervals instead.
    """

    def __init__(self, write: Callable[[str], object], live: bool = True) -> None:
        self.write = write
        self.live = live
        self.shown = 0
        self.last = 0.0

    def due(self, seconds: float) -> bool:
        """Return whether a refresh is due, the given number of seconds after the start."""
        if seconds < BAR_AFTER or seconds - self.last < (0.2 if self.live else LINE_EVERY):
            return False
        self.last = seconds
        return True

    def show(self, share: float, text: str) -> None:
        """Show a bar that is filled to `share`, and a text."""
        filled = int(WIDTH * share)
        self.say(f"[{'#' * filled}{'.' * (WIDTH - filled)}] {100 * share:5.1f} %  {text}")

    def say(self, line: str) -> None:
        """Replace the shown text by this one."""
        line = masked(line)
        if not self.live:
            self.write(line + "\n")
            return
        self.write("\r" + line.ljust(self.shown))
        self.shown = len(line)

    def finish(self) -> None:
        """End the line with a line break."""
        if self.shown:
            self.write("\n")


@contextmanager
def waiting(what: str) -> Iterator[None]:
    """Context that shows on stderr the name of the running work and its elapsed time, for work that reports
    no progress."""
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
    """Progress as the number of completed searches out of several."""

    def __call__(self, done: int, total: int, seconds: float) -> None:
        if self.due(seconds):
            self.show(done / max(total, 1), f"{done} of {total} searches  {seconds:.0f} s")
