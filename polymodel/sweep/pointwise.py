"""Points without closed forms, evaluated one by one: small grids only."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from math import prod

from polymodel.cost.context import Counts
from polymodel.errors import Refused, SpecError
from polymodel.evaluate import evaluate
from polymodel.loading import Spec
from polymodel.sweep.grid import Grid, Roles
from polymodel.sweep.rows import Cells, accesses_of, cells
from polymodel.sweep.values import Number

MOST = 10_000


def evaluate_points(
    spec: Spec,
    grid: Grid,
    mapping: int,
    share: int,
    parts: Roles,
    objectives: Sequence[str],
    reason: Refused,
    notes: list[str],
) -> Iterator[tuple[int, Cells]]:
    """Every point of one block; Refused if there are many."""
    names = (*parts.arch, *parts.tiles)
    count = prod(len(grid.of(n)) for n in names)
    if count > MOST:
        raise Refused(
            f"{reason.message}: {count} points would be evaluated one by one",
            f"sweep at most {MOST} points of this mapping; {reason.remedy}".rstrip("; "),
        )
    note = f"{reason.message}: points evaluated one by one"
    if note not in notes:
        notes.append(note)
    for part, _ in grid.combinations(names):
        number = share + part
        yield mapping * grid.size + number, _cells(spec, grid, number, objectives)


def _cells(spec: Spec, grid: Grid, number: int, objectives: Sequence[str]) -> Cells:
    point: dict[str, Number] = grid.point(number)
    values = {**{n: v for n, v in spec.symbols.items() if v is not None}, **point}
    if not all(bool(c.holds(values)) for c in grid.where):
        return {"feasible": False, "reason": "left out by `where`"}
    try:
        report = evaluate(spec.bind(**{n: v for n, v in point.items() if n in spec.symbols}))
    except SpecError as fault:
        return {"feasible": False, "reason": fault.diagnostics[0].message}
    except Refused as refusal:
        return {"feasible": False, "reason": refusal.message}
    counts = Counts(report.problem, report.analysis)
    return cells(report.costs, accesses_of(counts), objectives)
