"""All tilers under their names, with merging after any of them, and the best of them all.

A name is a tiler of `NAMES`, alone or with `+merge` or `+fixpoint`. After `qtree`, `+merge` merges siblings
as Tiler-Swift does; otherwise both merge neighbours until none fit together any more.
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

# The best of all tilers by one objective, and what the others reach.

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
class TilerTask:
    """What is cut, and by what it is judged. `sizes`: of uniform tiles."""

    pattern: Pattern
    op: Op
    fit: Fit
    objective: Objective
    launch: Launch
    sizes: Sizes = grid


@dataclass(frozen=True, eq=False)
class TilerChoice:
    """One tiler's cut. `more`: empty tiles that it has beside those of `costs`."""

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
        """Less in the objective; if equal, in the next figure. Figures are counted only when they decide."""
        for name in _FIGURES[objective]:
            mine, theirs = getattr(self, name), getattr(other, name)
            if mine != theirs:
                return bool(mine < theirs)
        return False


def chosen(task: TilerTask, makers: Mapping[str, Make]) -> Cut:
    """The cut with the least objective; ties go to the next figure, then to the first of `makers`.

    Refused only when every tiler refuses; SpecError where an entry fits nowhere.
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
    """Tiles of a cut that has been looked at, also `merged` or not, and its first figures by form."""

    rects: Rects
    merged: bool
    figures: dict[str, int]

    def serves(self, cut: Cut, mergeable: bool) -> bool:
        """Whether the figures are those of this cut, in its forms."""
        if not (self.merged == mergeable or (not mergeable and "" in self.figures)):
            return False
        mine, theirs = self.rects, cut.rects
        return mine.tiles == theirs.tiles and bool((mine.table() == theirs.table()).all())


@dataclass(eq=False)
class _Trial:
    """Tilers tried one after the other.

    `figures`: the first figure of each form of each. `before`: what has been looked at.

    `beaten`: those not tried because nothing can be less. `far`: those not tried, or not merged, because they
    have many times the tiles of the best; that these are no better is likely, not proven.
    """

    task: TilerTask
    best: TilerChoice | None = None
    figures: list[tuple[int, str]] = field(default_factory=list)
    before: list[_Before] = field(default_factory=list)
    refused: list[tuple[str, Refused]] = field(default_factory=list)
    beaten: list[str] = field(default_factory=list)
    far: list[str] = field(default_factory=list)

    def enter(self, name: str, make: Make) -> None:
        """A tiler's cut, also merged where that changes it; nothing where it refuses.

        For add merging never costs: empty tiles stay empty, two ramps become one, rows in both become one
        row. So there a merged cut stands for its tiler; for multiply two tiles may become one that must run.
        A cut into the same tiles as one before it is not looked at again.
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
        """The first figures of a cut, merged or not."""
        pattern, op, fit, launch = self.task.pattern, self.task.op, self.task.fit, self.task.launch
        plain = costs(pattern, cut, op, fit, launch)
        joined = merged(pattern, op, fit, cut, plain.counts) if mergeable else cut
        changed, result = joined.tiles < cut.tiles, {}
        if op == "multiply" or not changed:
            result[""] = self._judged(TilerChoice(name, plain))
        if changed:
            form = "+fixpoint"
            result[form] = self._judged(TilerChoice(name + form, costs(pattern, joined, op, fit, launch)))
        return result

    def _add(self, entry: TilerChoice) -> None:
        self.figures.append((self._judged(entry), entry.name))

    def _judged(self, entry: TilerChoice) -> int:
        """The first figure of an entry, which is the best from now on if it beats the one before."""
        if self.best is None or entry.beats(self.best, self.task.objective):
            self.best = entry
        return int(getattr(entry, _FIGURES[self.task.objective][0]))

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
        fits = self.task.fit.fits(TileCounts(some, count, points.size), rects, self.task.op)
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


def _without_empty(task: TilerTask) -> TilerChoice | None:
    """Uniform tiles with the empty ones only counted; None where there are few of them, or more than `simple`
    lists (which it then says).

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
    """The pattern cut by one tiler, or by whichever tiler is best.

    `objective` (of `best`): "tiles" (kernels launched, then tiles), "cycles" (run cycles, then kernels) or
    "total" (configuration and run). `grid`: cells (rows, columns) of guillotine. `watch`: stands between
    `best` and each tiler that it tries, to keep what that makes.

    Raises SpecError for unknown names and where an entry fits no tile; Refused where a tiler would make too
    many tiles, or the grid of guillotine is too coarse or too large.
    """
    name, merging = tiler_parts(tiler, objective)
    makers: dict[str, Make] = {**_TILERS, "guillotine": partial(guillotine, grid=grid)}
    if name == "best":
        # Whichever it is, its merged form has been tried too.
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
    """Tilers that have work in common, which is done once."""
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
    """A tiler's name and what merges after it. SpecError for these and for an unknown objective."""
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
