"""The best of all tilers by one objective, and what the others reach."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Literal

import numpy as np

from polymodel.errors import Refused
from polymodel.tiling.cost.bounds import lower_bound
from polymodel.tiling.cost.cost_bound import cost_bound
from polymodel.tiling.cost.model import Costs, Launch, costs
from polymodel.tiling.fits.fit import Fit, Op
from polymodel.tiling.plane.counts import Counts
from polymodel.tiling.plane.pattern import Cut, Pattern, Rects
from polymodel.tiling.tilers.lines import summed
from polymodel.tiling.tilers.merge import merged
from polymodel.tiling.tilers.uniform import MOST_TILES, grid

Objective = Literal["tiles", "cycles", "total"]
Make = Callable[[Pattern, Op, Fit], Cut]

_FIGURES: dict[Objective, tuple[str, ...]] = {
    "tiles": ("kernels", "tiles", "run_cycles"),
    "cycles": ("run_cycles", "kernels", "tiles"),
    "total": ("total_cycles", "kernels", "tiles"),
}
_WORDS = {"tiles": "kernels", "cycles": "run cycles", "total": "configuration and run cycles"}
# Not tried once no cutting can be better; of fits that must be asked about every tile, no tiler is.
_SLOW = ("panels", "guillotine")
# Of such fits, cuts with so many times the tiles of the best are not made or not merged (above `_EMPTY`).
_FAR = 16
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
    trial = _Trial(task)
    figure, others = _FIGURES[task.objective][0], []
    for name, make in makers.items():
        if trial.leaves(name):
            continue
        for entry in trial.entries(name, make):
            others.append((getattr(entry, figure), entry.name))
            if trial.best is None or entry.beats(trial.best, task.objective):
                trial.best = entry
    best = trial.best
    if best is None:
        raise trial.refused[0][1]
    cut = best.costs.cut
    if best.more:
        cut = makers[best.name](task.pattern, task.op, task.fit)
    told = ", ".join(f"{name} {n:,}" for n, name in sorted(others) if name != best.name)
    note = f"best of all tilers by {_WORDS[task.objective]}: {best.name} {getattr(best, figure):,}"
    note = f"{note} ({told})" if told else note
    if trial.beaten:
        note += f"; {', '.join(trial.beaten)} could not be better"
    if trial.far:
        note += f"; not tried, or not merged, for many times as many tiles: {', '.join(trial.far)}"
    note += "".join(f"; {name} refused ({refusal.message})" for name, refusal in trial.refused)
    return replace(cut, tiler=best.name, notes=(*cut.notes, note))


@dataclass(eq=False)
class _Trial:
    """Tilers tried one after the other.

    `beaten`: those not tried because nothing can be less. `far`: those not tried, or not merged, because they
    have many times the tiles of the best; that these are no better is likely, not proven.
    """

    task: Task
    best: Entry | None = None
    refused: list[tuple[str, Refused]] = field(default_factory=list)
    beaten: list[str] = field(default_factory=list)
    far: list[str] = field(default_factory=list)

    def entries(self, name: str, make: Make) -> Iterator[Entry]:
        """A tiler's cut, also merged where that changes it; nothing where it refuses.

        For add merging never costs: empty tiles stay empty, two ramps become one, rows in both become one
        row. So there a merged cut stands for its tiler; for multiply two tiles may become one that must run.
        """
        pattern, op, fit, launch = self.task.pattern, self.task.op, self.task.fit, self.task.launch
        try:
            if name == "simple" and (sparse := _without_empty(self.task)):
                yield sparse
                return
            cut = make(pattern, op, fit)
        except Refused as refusal:
            self.refused.append((name, refusal))
            return
        mergeable = cut.tiles > 1 and "+" not in name
        if mergeable and self._far(cut.tiles):
            mergeable = False
            self.far.append(name)
        joined = merged(pattern, op, fit, cut) if mergeable else cut
        changed = joined.tiles < cut.tiles
        if op == "multiply" or not changed:
            yield Entry(name, costs(pattern, cut, op, fit, launch))
        if changed:
            yield Entry(f"{name}+fixpoint", costs(pattern, joined, op, fit, launch))

    def leaves(self, name: str) -> bool:
        """Whether this tiler is slow, and cannot win or is far off; then it is noted as left."""
        if self.best is None or (summed(self.task.fit) and name not in _SLOW):
            return False
        if all(getattr(self.best, figure) <= least for figure, least in self._bounds.items()):
            self.beaten.append(name)
            return True
        if name in ("strips", "columns") and self._far(self._heavy_lines(name == "columns")):
            self.far.append(name)
            return True
        return False

    def _far(self, tiles: int) -> bool:
        """Far more tiles than the best has, of a fit that must be asked about them."""
        if self.best is None or summed(self.task.fit):
            return False
        return tiles > max(_EMPTY, _FAR * self.best.tiles)

    def _heavy_lines(self, by_columns: bool) -> int:
        """Lines with an entry that must be cut across: they would not fit if they had no more than one."""
        pattern, one = self.task.pattern, np.int64(1)
        along = pattern.cols if by_columns else pattern.rows
        points = np.sort(np.unique(along, return_index=True)[1])
        some = pattern.taken(points)
        none, count = np.zeros(points.size, dtype=np.int64), np.arange(points.size, dtype=np.int32)
        height, width = (np.full(points.size, n, dtype=np.int64) for n in pattern.shape)
        if by_columns:
            rects = Rects(none, some.cols.astype(np.int64), height, none + one)
        else:
            rects = Rects(some.rows.astype(np.int64), none, none + one, width)
        fits = self.task.fit.fits(Counts(some, count, points.size), rects, self.task.op)
        return points.size - int(np.count_nonzero(fits))

    @cached_property
    def _bounds(self) -> dict[str, int]:
        """The figures by which cuts are judged, at least."""
        pattern, op, fit, launch = self.task.pattern, self.task.op, self.task.fit, self.task.launch
        kernels, run, total = (
            cost_bound(pattern, op, fit, launch, objective) for objective in ("tiles", "cycles", "total")
        )
        tiles = max(1, kernels, lower_bound(pattern, op, fit))
        known = {"kernels": kernels, "run_cycles": run, "total_cycles": total, "tiles": tiles}
        return {figure: known[figure] for figure in _FIGURES[self.task.objective]}


def _without_empty(task: Task) -> Entry | None:
    """Uniform tiles with the empty ones only counted; None where there are few of them, or more than `simple`
    lists (which it then says).

    Merging many empty tiles is not tried.
    """
    pattern = task.pattern
    height, width = grid(pattern, task.op, task.fit)
    down, across = -(-pattern.shape[0] // height), -(-pattern.shape[1] // width)
    if not 4 * pattern.points + _EMPTY < down * across <= MOST_TILES:
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
