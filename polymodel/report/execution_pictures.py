"""Pictures of a small run, beside its tables: fibertrees, and what happens where and when."""

from __future__ import annotations

from dataclasses import dataclass

from polymodel.errors import Refused
from polymodel.report.activity import LIMIT
from polymodel.report.execution import ExecutionReport
from polymodel.report.svg_fibertree import draw_fibertrees
from polymodel.sparse.execute.records import Execution
from polymodel.view.blocks import Block, Line, Picture, notes
from polymodel.view.picture import Drawing, Page

# A fibertree is made whole before it is cut to what is drawn.
MOST_DRAWN = 10_000


@dataclass(frozen=True)
class Pictures:
    """`trees`: inputs and results; `grids`: (Einsum, its computes in space and time); `page`: steps through
    them; `left_out`: what is not drawn, and why."""

    trees: Drawing | None
    grids: tuple[tuple[str, Drawing], ...]
    page: Page | None
    left_out: tuple[str, ...]


def is_small(execution: Execution) -> bool:
    """Whether steps can be drawn one by one: such a run is made again with `keep_loops`, to be drawn."""
    return all(e.activities <= LIMIT for e in execution.einsums)


def pictures(execution: Execution) -> Pictures:
    """What can be drawn of a run; its activity if it kept its loops."""
    tensors = [*execution.tensors.values(), *execution.results.values()]
    left_out = []
    trees = None
    if all(t.nnz <= MOST_DRAWN for t in tensors):
        trees = draw_fibertrees([t for t in tensors if t.ranks]) if any(t.ranks for t in tensors) else None
    else:
        left_out.append(f"fibertrees are not drawn: a tensor has more than {MOST_DRAWN:,} nonzeros")
    if not is_small(execution):
        left_out.append(f"steps in space and time are not drawn: an Einsum has more than {LIMIT} computes")
        return Pictures(trees, (), None, tuple(left_out))
    report = ExecutionReport(execution)
    grids: list[tuple[str, Drawing]] = []
    for name in (e.einsum for e in execution.einsums):
        try:
            grids.append((name, report.draw_activity(name)))
        except Refused as refused:
            left_out.append(f"{name} in space and time is not drawn: {refused.message}")
    page = report.activity_page(*(name for name, _ in grids)) if grids else None
    return Pictures(trees, tuple(grids), page, tuple(left_out))


def drawn_blocks(drawn: Pictures | None) -> list[Block]:
    """The pictures as a page shows them, each under its heading, and what is not drawn."""
    if drawn is None:
        return []
    found = [] if drawn.trees is None else [("Fibertrees", drawn.trees.svg)]
    found += [(f"{name} in space and time", grid.svg) for name, grid in drawn.grids]
    shown = (block for head, svg in found for block in (Line(head, "title"), Picture(head, svg)))
    return [*shown, *notes(drawn.left_out)]
