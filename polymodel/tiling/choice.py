"""The best of all tilers by one objective, and what the others reach."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np

from polymodel.errors import Refused
from polymodel.tiling.fit import Fit, Op
from polymodel.tiling.merge import merged
from polymodel.tiling.model import Costs, Launch, costs
from polymodel.tiling.pattern import Cut, Pattern, Rects
from polymodel.tiling.uniform import grid

Objective = Literal["tiles", "cycles", "total"]
Make = Callable[[Pattern, Op, Fit], Cut]

_FIGURES: dict[Objective, tuple[str, ...]] = {
    "tiles": ("kernels", "tiles", "run_cycles"),
    "cycles": ("run_cycles", "kernels", "tiles"),
    "total": ("total_cycles", "kernels", "tiles"),
}
_WORDS = {"tiles": "kernels", "cycles": "run cycles", "total": "configuration and run cycles"}
# Empty tiles of `simple` are counted, not made, when there are many more than points.
_EMPTY = 1 << 16


@dataclass(frozen=True, eq=False)
class Task:
    """What is cut, and by what it is judged."""

    pattern: Pattern
    op: Op
    fit: Fit
    objective: Objective
    launch: Launch


@dataclass(frozen=True, eq=False)
class Entry:
    """One tiler's cut. `more`: empty tiles that it has beside those of `costs`."""

    name: str
    costs: Costs
    more: int = 0

    @property
    def _launched(self) -> int:
        return self.more if self.costs.launch.run == "all" else 0

    @property
    def tiles(self) -> int:
        return self.costs.tiles + self.more

    @property
    def kernels(self) -> int:
        return self.costs.kernels + self._launched

    @property
    def run_cycles(self) -> int:
        return self.costs.run_cycles + self._launched * self.costs.launch.empty

    @property
    def total_cycles(self) -> int:
        launch = self.costs.launch
        return self.kernels * launch.config(self.costs.op) + self.run_cycles

    def beats(self, other: Entry, objective: Objective) -> bool:
        """Less in the objective; if equal, in the next figure. Figures are counted only when they decide."""
        for name in _FIGURES[objective]:
            mine, theirs = getattr(self, name), getattr(other, name)
            if mine != theirs:
                return bool(mine < theirs)
        return False


def chosen(task: Task, makers: Mapping[str, Make]) -> Cut:
    """The cut with the least objective; ties go to the next figure, then to the first of `makers`.

    Refused only when every tiler refuses; SpecError where an entry fits nowhere.
    """
    refused: list[Refused] = []
    best: Entry | None = None
    figure, others = _FIGURES[task.objective][0], []
    for entry in _entries(task, makers, refused):
        others.append((getattr(entry, figure), entry.name))
        if best is None or entry.beats(best, task.objective):
            best = entry
    if best is None:
        raise refused[0]
    cut = best.costs.cut
    if best.more:
        cut = makers[best.name](task.pattern, task.op, task.fit)
    told = ", ".join(f"{name} {n:,}" for n, name in sorted(others) if name != best.name)
    note = f"best of all tilers by {_WORDS[task.objective]}: {best.name} {getattr(best, figure):,}"
    return replace(cut, tiler=best.name, notes=(*cut.notes, f"{note} ({told})" if told else note))


def _entries(task: Task, makers: Mapping[str, Make], refused: list[Refused]) -> Iterator[Entry]:
    """All cuts, each also merged where that changes it.

    For add merging never costs: empty tiles stay empty, two ramps become one, rows in both become one row.
    So there a merged cut stands for its tiler; for multiply two tiles may become one that has to run.
    """
    pattern, op, fit = task.pattern, task.op, task.fit
    for name, make in makers.items():
        try:
            if name == "simple" and (sparse := _without_empty(task)):
                yield sparse
                continue
            cut = make(pattern, op, fit)
        except Refused as refusal:
            refused.append(refusal)
            continue
        joined = merged(pattern, op, fit, cut) if cut.tiles > 1 and "+" not in name else cut
        changed = joined.tiles < cut.tiles
        if op == "multiply" or not changed:
            yield Entry(name, costs(pattern, cut, op, fit, task.launch))
        if changed:
            yield Entry(f"{name}+fixpoint", costs(pattern, joined, op, fit, task.launch))


def _without_empty(task: Task) -> Entry | None:
    """Uniform tiles with the empty ones only counted; None where there are few of them.

    Merging many empty tiles is not tried.
    """
    pattern = task.pattern
    height, width = grid(pattern, task.op, task.fit)
    down, across = -(-pattern.shape[0] // height), -(-pattern.shape[1] // width)
    if down * across <= 4 * pattern.points + _EMPTY:
        return None
    number = (pattern.rows // height).astype(np.int64) * across + pattern.cols // width
    filled, ids = np.unique(number, return_inverse=True)
    row, col = filled // across * height, filled % across * width
    rects = Rects(
        row, col, np.minimum(height, pattern.shape[0] - row), np.minimum(width, pattern.shape[1] - col)
    )
    cut = Cut(rects, ids.astype(np.int32), "simple")
    found = costs(pattern, cut, task.op, task.fit, task.launch)
    return Entry("simple", found, down * across - filled.size)
