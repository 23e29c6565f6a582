"""Points without closed forms, evaluated one by one, for small grids only."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from math import prod

from polymodel.api.evaluation import evaluate
from polymodel.errors import Refused, SpecError
from polymodel.loading import Spec
from polymodel.sweeps.grid import Grid, SymbolRoles
from polymodel.sweeps.infeasibility import WHERE
from polymodel.sweeps.rows import Cells, cells
from polymodel.sweeps.sparse.rows import is_sparse, sparse_cells
from polymodel.sweeps.values import Number

MOST = 10_000


def evaluate_points(
    spec: Spec,
    grid: Grid,
    mapping: int,
    share: int,
    parts: SymbolRoles,
    objectives: Sequence[str],
    reason: Refused,
    notes: list[str],
    mine: Callable[[], bool],
) -> Iterator[tuple[int, Cells]]:
    """Evaluate those points of one block for which `mine`, called once per point in order, returns True.

    Raises Refused if the block has many points.
    """
    names = (*parts.arch, *parts.tiles)
    count = prod(len(grid.of(n)) for n in names)
    if count > MOST:
        raise Refused(
            f"{reason.message}: {count} points would be evaluated one by one",
            f"sweep at most {MOST} points of this mapping; {reason.remedy}".rstrip("; "),
            code="too-large",
        )
    note = f"{reason.message}: points evaluated one by one"
    if note not in notes:
        notes.append(note)
    for part, _ in grid.combinations(names):
        if mine():
            yield mapping * grid.size + share + part, point_cells(spec, grid, share + part, objectives)


def point_cells(spec: Spec, grid: Grid, number: int, objectives: Sequence[str]) -> Cells:
    """The figures of `evaluate` (and `sparsify`, if requested) at a point, or why there are none."""
    point: dict[str, Number] = grid.point(number)
    values = {**{n: v for n, v in spec.symbols.items() if v is not None}, **point}
    if not all(bool(c.holds(values)) for c in grid.where):
        return {"feasible": False, "reason": WHERE}
    try:
        report = evaluate(spec.bind(**{n: v for n, v in point.items() if n in spec.symbols}))
        sparse = sparse_cells(report.sparse, objectives) if is_sparse(objectives) else {}
    except SpecError as fault:
        return {"feasible": False, "reason": fault.diagnostics[0].message}
    except Refused as refusal:
        return {"feasible": False, "reason": refusal.message}
    return cells(report.counts, report.costs, objectives) | sparse
