"""The progress of an exploration on sparse data: searches, evaluations and a local search as one share."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from math import inf
from time import monotonic

from polymodel.mapper.records import Progress
from polymodel.mapper.sparse_local import CPU_SECONDS
from polymodel.mapper.sparse_objectives import LONGEST

MACHINES = 0.7  # share of the searches on all machines; the rest is the local search
SEARCHED = 0.4  # of one machine the share of the search by lower bounds; the rest is the evaluation
EVALUATED = 0.4  # of the evaluation the share of the mappings of that search; the rest is further searches
AGAIN = 0.25  # seconds between reports of steps that count nothing


@dataclass
class SparseProgress:
    """Reports to `heard` how much of all steps is done: a share that never decreases.

    `stopped`: whether the exploration is to end. `machines`: how many are searched. `end` of the whole
    (`time.monotonic`).
    """

    heard: Callable[[Progress], None]
    stopped: Callable[[], bool]
    machines: int
    end: float
    begun: float = field(default_factory=monotonic)
    share: float = 0.0
    part: tuple[float, float] = (0.0, 1.0)
    since: float = 0.0
    seconds: float = inf  # that the step is expected to take
    told: float = 0.0
    last: Progress = field(default_factory=lambda: Progress(0, 1, "begins"))
    which: str = ""
    searching: bool = False
    until: float = inf

    def search(self, number: int, until: float) -> None:
        """The search on one machine begins; it and its evaluation end at `until`."""
        width = MACHINES / self.machines
        self.which = f", choice {number + 1} of {self.machines}" if self.machines > 1 else ""
        self._begin(width * number, width * (number + SEARCHED), inf)
        self.searching, self.until = True, until

    def evaluated(self, number: int, total: int) -> bool:
        """So many mappings of a search are evaluated. False if the evaluation is to end."""
        if self.searching:
            begin, width = self.part[1], MACHINES / self.machines
            left = self.until - monotonic()
            self._begin(begin, begin + width * (1 - SEARCHED), min(left, LONGEST) if left < inf else LONGEST)
            self.searching = False
        self._report(EVALUATED * number / max(total, 1), Progress(number, total, f"evaluate{self.which}"))
        return not self.stopped()

    def local_search(self) -> Callable[[], bool]:
        """The local search begins, which is the last step. Returns whether it is to stop."""
        left = self.end - monotonic()
        self._begin(MACHINES, 1.0, left if left < inf else CPU_SECONDS)
        self._report(0.0, Progress(0, 1, "neighbours"))
        return self.stop

    def __call__(self, progress: Progress) -> None:
        """Progress of the search by lower bounds, whose best figures are bounds and not those of mappings."""
        step = f"{progress.of or 'begins'}{self.which}"
        self._report(progress.share, replace(progress, of=step, best=None, bound=0.0))

    def stop(self) -> bool:
        """Whether to stop. Steps that count nothing progress with time."""
        if monotonic() - self.told > AGAIN:
            self._report(0.0, self.last)
        return self.stopped()

    def _begin(self, begin: float, end: float, seconds: float) -> None:
        self.part, self.since, self.seconds = (begin, end), monotonic(), max(seconds, AGAIN)

    def _report(self, inside: float, progress: Progress) -> None:
        self.last, self.told = progress, monotonic()
        inside = min(max(inside, (self.told - self.since) / self.seconds), 1.0)
        begin, end = self.part
        share = begin + (end - begin) * inside
        if self.end < inf:
            share = max(share, (self.told - self.begun) / max(self.end - self.begun, AGAIN))
        self.share = max(self.share, min(share, 1.0))
        self.heard(replace(progress, overall=self.share))
