"""All tilers under their names, with merging after any of them, and the best of them all.

A name is a tiler of `NAMES`, alone or with `+merge` or `+fixpoint`. After `qtree`, `+merge` merges siblings
as Tiler-Swift does; otherwise both merge neighbours until none fit together any more.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import cache, partial
from types import MappingProxyType

from polymodel.errors import Diagnostic, SpecError
from polymodel.spec.faults import suggestion
from polymodel.tiling.cost.model import Launch
from polymodel.tiling.fits.fit import Fit, Op
from polymodel.tiling.plane.pattern import Cut, Pattern
from polymodel.tiling.tilers.choice import Make, Objective, Task, chosen
from polymodel.tiling.tilers.guillotine import Grid, guillotine
from polymodel.tiling.tilers.merge import merged
from polymodel.tiling.tilers.panels import panels
from polymodel.tiling.tilers.strips import Whole, columns, strips
from polymodel.tiling.tilers.trees import btree, qtree, qtree_merge, quartered, simple
from polymodel.tiling.tilers.uniform import Sizes
from polymodel.tiling.tilers.uniform import grid as uniform

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
        return chosen(Task(pattern, op, fit, objective, launch or Launch(), sizes), rivals)
    if (name, merging) == ("qtree", "merge"):
        return qtree_merge(pattern, op, fit)
    made = makers[name](pattern, op, fit)
    return replace(merged(pattern, op, fit, made), tiler=tiler) if merging else made


def _sharing(sizes: Sizes) -> dict[str, Make]:
    """Tilers that have work in common, which is done once."""
    whole, leaves = Whole(), cache(quartered)
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
        faults.append(Diagnostic(f"tiler: {tiler!r} is unknown", suggestion(name, NAMES, "tilers")))
    elif plus and merging not in _MERGING:
        remedy = suggestion(merging, _MERGING, f"after {name}+")
        faults.append(Diagnostic(f"tiler: {tiler!r} merges in no known way", remedy))
    if objective not in _OBJECTIVES:
        remedy = suggestion(str(objective), _OBJECTIVES, "objectives")
        faults.append(Diagnostic(f"objective: {objective!r} is unknown", remedy))
    if faults:
        raise SpecError(faults)
    return name, merging
