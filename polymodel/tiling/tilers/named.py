"""Provide all tilers by name, with optional merging afterwards, and the best of them.

A name is a tiler of `NAMES`, alone or with `+merge` or `+fixpoint`. After `qtree`, `+merge` merges siblings
like Tiler-Swift; otherwise both merge neighbours until no two fit together any more.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import cache, cached_property, partial
from types import MappingProxyType
from typing import Literal

import numpy as np

from polymodel.errors import Diagnostic, Refused, SpecError
from polymodel.spec.faults import suggestion
from polymodel.tiling.cost.model import CutCosts, Launch, cost_bound, costs, lower_bound
from polymodel.tiling.fits.fit import Fit, Op
from polymodel.tiling.plane.pattern import Cut, Pattern, Rects, TileCounts
from polymodel.tiling.tilers.guillotine import Grid, guillotine
from polymodel.tiling.tilers.lines import summed
from polymodel.tiling.tilers.merge import merged
from polymodel.tiling.tilers.panels import panels
from polymodel.tiling.tilers.strips import WholePlane, columns, strips
from polymodel.tiling.tilers.trees import btree, qtree, qtree_merge, quartered, simple
from polymodel.tiling.tilers.uniform import MOST_TILES, Sizes, grid
from polymodel.tiling.tilers.uniform import grid as uniform

# The best of all tilers by one objective, and the results of the others.

Objective = Literal["tiles", "cycles", "total"]
Make = Callable[[Pattern, Op, Fit], Cut]

_FIGURES: dict[Objective, tuple[str, ...]] = {
    "tiles": ("kernels", "tiles", "run_cycles"),
    "cycles": ("run_cycles", "kernels", "tiles"),
    "total": ("total_cycles", "kernels", "tiles"),
}
_WORDS = {"tiles": "kernels", "cycles": "run cycles", "total": "configuration and run cycles"}
# Tilers that are skipped once no cut can be better; for fits that are evaluated tile by tile, all tilers are.
_SLOW = ("panels", "guillotine")
# For such fits, cuts with this many times the tiles of the best are not made or not merged (above `_EMPTY`).
_FAR = 16
# Empty tiles of `simple` are counted, not created, if there are many more of them than points.
_EMPTY = 1 << 16


@dataclass(frozen=True, eq=False)
class TilerTask:
    """A tiling task: what is cut, and the criteria. `sizes`: the function that gives the size of uniform
    tiles."""

    pattern: Pattern
    op: Op
    fit: Fit
    objective: Objective
    launch: Launch
    sizes: Sizes = grid


@dataclass(frozen=True, eq=False)
class TilerChoice:
    """The cut of one tiler. `more`: the number of its empty tiles that `costs` does not contain."""

    name: str
    costs: CutCosts
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

    def beats(self, other: TilerChoice, objective: Objective) -> bool:
        """Return whether this cut is better in the objective or, if equal, in the next figure. Figures are
        computed only as far as needed."""
        for name in _FIGURES[objective]:
            mine, theirs = getattr(self, name), getattr(other, name)
            if mine != theirs:
                return bool(mine < theirs)
        return False


def chosen(task: TilerTask, makers: Mapping[str, Make]) -> Cut:
    """Return the cut with the best objective. Ties are resolved by the next figure, then by the order of
    `makers`.

    Raises Refused only if every tiler refuses; SpecError where a single entry does not fit.
    """
    trial = _Trial(task)
    for name, make in makers.items():
        if not trial.leaves(name):
            trial.enter(name, make)
    best, figure = trial.best, _FIGURES[task.objective][0]
    if best is None:
        raise trial.refused[0][1]
    cut = best.costs.cut
    if best.more:
        cut = makers[best.name](task.pattern, task.op, task.fit)
    told = ", ".join(f"{name} {n:,}" for n, name in sorted(trial.figures) if name != best.name)
    note = f"best of all tilers by {_WORDS[task.objective]}: {best.name} {getattr(best, figure):,}"
    note = f"{note} ({told})" if told else note
    if trial.beaten:
        note += f"; {', '.join(trial.beaten)} could not be better"
    if trial.far:
        note += f"; not tried, or not merged, for many times as many tiles: {', '.join(trial.far)}"
    note += "".join(f"; {name} refused ({refusal.message})" for name, refusal in trial.refused)
    return replace(cut, tiler=best.name, notes=(*cut.notes, note))


@dataclass(frozen=True, eq=False)
class _Before:
    """The tiles of a cut that has been evaluated, whether its `merged` form was too, and the first figures of
    these forms."""

    rects: Rects
    merged: bool
    figures: dict[str, int]

    def serves(self, cut: Cut, mergeable: bool) -> bool:
        """Return whether these figures apply to this cut in its forms."""
        if not (self.merged == mergeable or (not mergeable and "" in self.figures)):
            return False
        mine, theirs = self.rects, cut.rects
        return mine.tiles == theirs.tiles and bool((mine.table() == theirs.table()).all())


@dataclass(eq=False)
class _Trial:
    """Tilers that are tried one after the other.

    `figures`: the first figure of each form of each tiler. `before`: the cuts that have been evaluated.

    `beaten`: tilers that were not tried because nothing can be better than the best. `far`: tilers that were
    not tried, or not merged, because they have many times the tiles of the best; it is likely, but not
    proven, that these are no better.
    """

    task: TilerTask
    best: TilerChoice | None = None
    figures: list[tuple[int, str]] = field(default_factory=list)
    before: list[_Before] = field(default_factory=list)
    refused: list[tuple[str, Refused]] = field(default_factory=list)
    beaten: list[str] = field(default_factory=list)
    far: list[str] = field(default_factory=list)

    def enter(self, name: str, make: Make) -> None:
        """Evaluate a tiler's cut, and its merged form if that differs; do nothing if the tiler refuses.

        For add, merging never increases the cost: empty tiles stay empty, two ramps become one, and rows in
        both tiles become one row. Therefore only the merged cut is evaluated. For multiply, two tiles may
        become one that must run. A cut into the same tiles as an earlier one is not evaluated again.
        """
        pattern, op, fit = self.task.pattern, self.task.op, self.task.fit
        try:
            if name == "simple" and (sparse := _without_empty(self.task)):
                self._add(sparse)
                return
            cut = make(pattern, op, fit)
        except Refused as refusal:
            self.refused.append((name, refusal))
            return
        mergeable = cut.tiles > 1 and "+" not in name
        if mergeable and self._far(cut.tiles):
            mergeable = False
            self.far.append(name)
        before = next((b for b in self.before if b.serves(cut, mergeable)), None)
        if before is None:
            before = _Before(cut.rects, mergeable, self._forms(name, cut, mergeable))
            self.before.append(before)
        told = before.figures if mergeable else {"": before.figures[""]}
        self.figures += [(figure, name + form) for form, figure in told.items()]

    def _forms(self, name: str, cut: Cut, mergeable: bool) -> dict[str, int]:
        """Return the first figures of a cut, merged or not."""
        pattern, op, fit, launch = self.task.pattern, self.task.op, self.task.fit, self.task.launch
        plain = costs(pattern, cut, op, fit, launch)
        joined = merged(pattern, op, fit, cut, plain.counts) if mergeable else cut
        changed, result = joined.tiles < cut.tiles, {}
        if op == "multiply" or not changed:
            result[""] = self._evaluated(TilerChoice(name, plain))
        if changed:
            form = "+fixpoint"
            result[form] = self._evaluated(TilerChoice(name + form, costs(pattern, joined, op, fit, launch)))
        return result

    def _add(self, entry: TilerChoice) -> None:
        self.figures.append((self._evaluated(entry), entry.name))

    def _evaluated(self, entry: TilerChoice) -> int:
        """Return the first figure of an entry, and keep the entry as the best one if it beats the best so
        far."""
        if self.best is None or entry.beats(self.best, self.task.objective):
            self.best = entry
        return int(getattr(entry, _FIGURES[self.task.objective][0]))

    def leaves(self, name: str) -> bool:
        """Return whether this tiler need not be tried, because it is slow and cannot win or is far off;
        record the reason."""
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
        """Return whether this many tiles are far more than those of the best, for a fit that must be
        evaluated tile by tile."""
        if self.best is None or summed(self.task.fit):
            return False
        return tiles > max(_EMPTY, _FAR * self.best.tiles)

    def _heavy_lines(self, by_columns: bool) -> int:
        """Return the number of lines with entries that must be cut across, because they would not fit even
        with a single entry."""
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
        fits = self.task.fit.fits(TileCounts(some, count, points.size), rects, self.task.op)
        return points.size - int(np.count_nonzero(fits))

    @cached_property
    def _bounds(self) -> dict[str, int]:
        """Lower bounds of the figures by which cuts are compared."""
        pattern, op, fit, launch = self.task.pattern, self.task.op, self.task.fit, self.task.launch
        kernels, run, total = (
            cost_bound(pattern, op, fit, launch, objective) for objective in ("tiles", "cycles", "total")
        )
        tiles = max(1, kernels, lower_bound(pattern, op, fit))
        known = {"kernels": kernels, "run_cycles": run, "total_cycles": total, "tiles": tiles}
        return {figure: known[figure] for figure in _FIGURES[self.task.objective]}


def _without_empty(task: TilerTask) -> TilerChoice | None:
    """Return uniform tiles whose empty tiles are only counted; None if there are few empty tiles, or more
    tiles than `simple` lists (for which it raises an error).

    Merging many empty tiles is not tried.
    """
    pattern = task.pattern
    height, width = task.sizes(pattern, task.op, task.fit)
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
    result = costs(pattern, cut, task.op, task.fit, task.launch)
    return TilerChoice("simple", result, down * across - filled.size)


__all__ = ["NAMES", "Grid", "Objective", "cut"]

_TILERS: Mapping[str, Make] = MappingProxyType(
    {
        "simple": simple,
        "qtree": qtree,
        "btree": btree,
        "strips": strips,
        "columns": columns,
        "panels": panels,
        "guillotine": guillotine,
    }
)
NAMES = (*_TILERS, "best")
_MERGING = ("merge", "fixpoint")
_OBJECTIVES: tuple[Objective, ...] = ("tiles", "cycles", "total")
_SIBLINGS = "qtree+merge"


def cut(
    pattern: Pattern,
    op: Op,
    fit: Fit,
    tiler: str = "best",
    objective: Objective = "total",
    launch: Launch | None = None,
    grid: Grid | None = None,
    watch: Callable[[str, Make], Make] | None = None,
) -> Cut:
    """Return the pattern cut by one tiler, or by the best one.

    `objective` (for `best`): "tiles" (kernels launched, then tiles), "cycles" (run cycles, then kernels) or
    "total" (configuration and run). `grid`: cells (rows, columns) of guillotine. `watch`: wraps each tiler
    that `best` tries, to store its results.

    Raises SpecError for unknown names and where a single entry does not fit; Refused where a tiler would make
    too many tiles, or the grid of guillotine is too coarse or too fine.
    """
    name, merging = tiler_parts(tiler, objective)
    makers: dict[str, Make] = {**_TILERS, "guillotine": partial(guillotine, grid=grid)}
    if name == "best":
        # The merged form of each tiler is tried, too.
        sizes = cache(uniform)
        rivals = {**makers, **_sharing(sizes)}
        if watch is not None:
            rivals = {n: watch(n, make) for n, make in rivals.items()}
        return chosen(TilerTask(pattern, op, fit, objective, launch or Launch(), sizes), rivals)
    if (name, merging) == ("qtree", "merge"):
        return qtree_merge(pattern, op, fit)
    made = makers[name](pattern, op, fit)
    return replace(merged(pattern, op, fit, made), tiler=tiler) if merging else made


def _sharing(sizes: Sizes) -> dict[str, Make]:
    """Return tilers that share intermediate results, which are computed once."""
    whole, leaves = WholePlane(), cache(quartered)
    return {
        "simple": partial(simple, sizes=sizes),
        "qtree": partial(qtree, leaves=leaves),
        "strips": partial(strips, whole=whole),
        "columns": partial(columns, whole=whole),
        "panels": partial(panels, whole=whole),
        _SIBLINGS: partial(qtree_merge, leaves=leaves),
    }


def tiler_parts(tiler: str, objective: str) -> tuple[str, str]:
    """Return the name of a tiler and the kind of merging after it. Raises SpecError for invalid ones and for
    an unknown objective."""
    faults = []
    name, plus, merging = tiler.partition("+") if isinstance(tiler, str) else ("", "", "")
    if name not in NAMES:
        message = f"tiler: {tiler!r} is unknown"
        faults.append(Diagnostic(message, suggestion(name, NAMES, "tilers"), code="unknown-choice"))
    elif plus and merging not in _MERGING:
        remedy = suggestion(merging, _MERGING, f"after {name}+")
        faults.append(Diagnostic(f"tiler: {tiler!r} merges in no known way", remedy, code="unknown-choice"))
    if objective not in _OBJECTIVES:
        remedy = suggestion(str(objective), _OBJECTIVES, "objectives")
        faults.append(Diagnostic(f"objective: {objective!r} is unknown", remedy, code="unknown-choice"))
    if faults:
        raise SpecError(faults)
    return name, merging
