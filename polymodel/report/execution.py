"""A cascade as it ran on data, with its pictures: activity in space and time, load per space point."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from polymodel.errors import Diagnostic, Refused, SpecError
from polymodel.report.activity import LIMIT, activities, iterated
from polymodel.report.activity_page import activity_page
from polymodel.report.svg_activity import draw_activity
from polymodel.report.svg_fibertree import draw_fibertrees
from polymodel.sparse.execute.records import Execution, Times
from polymodel.sparse.execute.tables import stamp_text
from polymodel.spec.faults import not_a
from polymodel.view.answer import Answer, Block, Line, Picture, declared, notes
from polymodel.view.inline import Drawing, Page
from polymodel.view.table import Table

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_BARS = 64


@dataclass(frozen=True, repr=False)
class ExecutionReport(Answer):
    """What an execution counted: DataFrames `einsums`, `ranks`, `slices` and `space`.

    Units stand in `attrs["units"]`. Printed, it is text; in a notebook, HTML.
    """

    execution: Execution

    def __post_init__(self) -> None:
        if not isinstance(self.execution, Execution):
            raise not_a(
                "execution", "ExecutionReport", self.execution, "pass what pm.execute(spec, tensors) gives"
            )

    @declared(title="Work and time per Einsum")
    def einsums(self) -> Table:
        """Per Einsum: multiplies, adds, updates, outputs, and time under three models."""
        return self.execution.table("einsums")

    @declared(title="Coordinate accesses per loop rank")
    def ranks(self) -> Table:
        """Coordinates read and written per Einsum, loop rank and tensor."""
        return self.execution.table("ranks")

    @declared(title="Parts of partitioned inputs")
    def slices(self) -> Table:
        """The parts of each input that is partitioned at its outermost rank."""
        return self.execution.table("slices")

    @declared(title="Load per space point")
    def space(self) -> Table:
        """Every Einsum and space point that computes anything."""
        return self.execution.table("space")

    @property
    def notes(self) -> tuple[str, ...]:
        """What the numbers are."""
        return self.execution.notes

    @property
    def sources(self) -> tuple[str, ...]:
        """The files that the spec was read from."""
        return self.execution.sources

    @property
    def title(self) -> str:
        """The heading of its page."""
        return self.execution.title

    def content(self, live: bool = True) -> list[Block]:
        """What the execution shows."""
        return self.execution.content(live)

    def plot(self, einsum: str = "", ax: Axes | None = None) -> Axes:
        """The picture of `plot_load`."""
        return self.plot_load(einsum, ax)

    def __repr__(self) -> str:
        names = ", ".join(e.einsum for e in self.execution.einsums)
        return f"ExecutionReport({names})"

    def draw_activity(self, einsum: str = "", *, slip: bool | None = None, limit: int = LIMIT) -> Drawing:
        """One Einsum (the first, if none is named) in space and time; it must have kept its loops."""
        return draw_activity(activities(self.execution, einsum, limit=limit), slip=slip, limit=limit)

    def activity_page(self, *einsums: str, limit: int = LIMIT) -> Page:
        """A page that steps through these Einsums (all, if none is named), fibertrees beside each other."""
        names = einsums or tuple(e.einsum for e in self.execution.einsums)
        runs = [activities(self.execution, name, limit=limit) for name in names]
        return activity_page(
            runs, [iterated(self.execution, name, limit=limit) for name in names], limit=limit
        )

    def plot_load(self, einsum: str = "", ax: Axes | None = None) -> Axes:
        """Computes per space point as bars, their mean as a line; beyond 64 points per outermost coordinate.

        The default is the first Einsum with space and time stamps. Refused for one that has none.
        """
        from polymodel.report.plots_sparse import load_axes

        stamped = [e for e in self.execution.einsums if e.times is not None]
        if einsum and einsum not in [e.einsum for e in self.execution.einsums]:
            known = ", ".join(e.einsum for e in self.execution.einsums)
            raise SpecError([Diagnostic(f"there is no Einsum {einsum!r}", f"Einsums: {known}")])
        found = next((e for e in stamped if einsum in ("", e.einsum)), None)
        if found is None or found.times is None:
            who = f"{einsum} has no" if einsum else "no Einsum has"
            raise Refused(f"{who} space and time stamps", "give `spacetime` in the mapping")
        names, loads, unit = bars(found.times)
        title = f"Load of Einsum {found.einsum}: {found.activities:,} computes"
        return load_axes(names, loads, unit, title, ax)


def bars(times: Times) -> tuple[list[str], list[int], str]:
    """Name and computes of every bar, and what a bar stands for."""
    if times.load.size <= _BARS or not times.by_first:
        return (
            [stamp_text(row) for row in times.space.tolist()],
            times.load.tolist(),
            ", ".join(times.space_ranks),
        )
    names = [str(k) for k in sorted(times.by_first)]
    return names, [times.by_first[k][0] for k in sorted(times.by_first)], times.space_ranks[0]


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
