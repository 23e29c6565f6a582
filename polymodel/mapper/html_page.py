"""An explored front as a page: points, their pictures, the mappings of the best, what was searched."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import fields
from functools import partial
from itertools import combinations
from typing import TYPE_CHECKING

from polymodel.mapper.records import Limits
from polymodel.quantities import engineering
from polymodel.report.search_page import Best, Finding, Plot, picked
from polymodel.view.table import Column, Table

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from polymodel.mapper.front import Front

MOST_PICTURES = 3
STAGES = ("of", "templates", "points", "kept", "too_large", "seconds")


def finding(front: Front) -> Finding:
    looked = sum(s.points for s in front.found.stages)
    facts = [("objectives", ", ".join(front.objectives)), ("mappings", f"{len(front):,}")]
    facts += [("combinations", f"{looked:,} looked at")] if looked else []
    promise, *notes = front.notes or ("",)
    return Finding(
        facts=[*facts, ("time", engineering(front.seconds, "s"))],
        promise=(promise[:1].upper() + promise[1:],),
        notes=tuple(notes),
        table=front.rows.bare(),
        best=tuple(_best(front)),
        pictures=tuple(_pictures(front)),
        looked=(("What was looked at", stages(front)),),
        asked=tuple(_asked(front)),
        specs=(("Spec as loaded", front.spec),),
        found=len(front) > 0,
    )


def _best(front: Front) -> Iterator[Best]:
    """The best in each objective, and some along the way between them."""
    if not front.points:
        return
    first = [front.best(o).number for o in front.objectives]
    for row in picked(len(front), first):
        point = front[row]
        figures = [f"{o} {engineering(point.value(o), front.unit(o))}" for o in front.objectives]
        fused = f"; fuses {', '.join(point.fused)}" if point.fused else ""
        text = f"{', '.join(figures)}{fused}"
        yield Best(row, f"mapping-{point.number}", text, point.spec, point.mapping, point.yaml)


def _pictures(front: Front) -> Iterator[Plot]:
    """Pairs of objectives; the first that vary come first."""
    if not front.points or len(front.objectives) < 2:
        return
    varying = [o for k, o in enumerate(front.objectives) if len({p.values[k] for p in front.points}) > 1]
    pairs = list(combinations(varying, 2))[:MOST_PICTURES] or [(front.objectives[0], front.objectives[1])]
    for x, y in pairs:
        yield Plot(f"{y} over {x}", partial(_drawn, front, x, y))


def _drawn(front: Front, x: str, y: str, ax: Axes) -> None:
    front.plot(x, y, ax=ax)


def stages(front: Front) -> Table:
    """What each step of the search looked at, a row each."""
    columns = [Column(n, "s" if n == "seconds" else "") for n in STAGES]
    rows = tuple(tuple(getattr(s, n) for n in STAGES) for s in front.found.stages)
    return Table("stages", tuple(columns), rows)


def _asked(front: Front) -> Iterator[tuple[str, str]]:
    request, usual = front.request, Limits()
    yield "objectives", ", ".join(front.objectives)
    yield "eps", f"{request.eps:g}"
    if request.time_limit is not None:
        yield "time limit", f"{request.time_limit:g} s"
    for f in fields(Limits):
        value = getattr(request.limits, f.name)
        if value != getattr(usual, f.name):
            shown = ", ".join(sorted(value)) if isinstance(value, frozenset) else str(value)
            yield f.name, shown
