"""A cascade as it ran on data, in tables: work, time, accesses per loop, slices, and load in space."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from polymodel.errors import Diagnostic, Refused, SpecError
from polymodel.report.activity import LIMIT
from polymodel.report.activity_of import activities, iterated
from polymodel.report.activity_page import activity_page
from polymodel.report.svg_activity import draw_activity
from polymodel.sparse.execute.records import EinsumCounts, Execution, RankAccesses, Times
from polymodel.sparse.fibertree import Fibertree
from polymodel.spec.faults import not_a
from polymodel.view.answer import Answer, declared
from polymodel.view.blocks import Block, Line, Section, notes
from polymodel.view.picture import Drawing, Page
from polymodel.view.table import Cell, Column, Table

if TYPE_CHECKING:
    from matplotlib.axes import Axes

# Rows of a table that are printed; the DataFrames have all.
PRINTED = 48
_BARS = 64
_NOTE = "every number is an exact count on the actual data"


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
        return einsums(self.execution)

    @declared(title="Coordinate accesses per loop rank")
    def ranks(self) -> Table:
        """Coordinates read and written per Einsum, loop rank and tensor."""
        return ranks(self.execution)

    @declared(title="Parts of partitioned inputs")
    def slices(self) -> Table:
        """The parts of each input that is partitioned at its outermost rank."""
        return slices(self.execution)

    @declared(title="Load per space point")
    def space(self) -> Table:
        """Every Einsum and space point that computes anything."""
        return space(self.execution)

    @property
    def notes(self) -> tuple[str, ...]:
        """What the numbers are."""
        return (_NOTE,)

    @property
    def title(self) -> str:
        """The heading of its page."""
        return f"Execution of {', '.join(e.einsum for e in self.execution.einsums)}"

    def content(self, live: bool = True) -> list[Block]:
        """The tables that have rows, without columns that say nothing, cut to what is read."""
        found: list[Block] = [Line(_head(self.execution))]
        for name, one in self.declared.items():
            table = self.table(name).without_empty((None, "", 0))
            if table.rows:
                left = len(table.rows) - PRINTED
                more = f"… {left:,} more rows: .{name}" if left > 0 else ""
                opened = name == "einsums"
                found += [Line(), Section(one.title, table.first(PRINTED), opened=opened, more=more)]
        return [*found, *notes(self.notes)]

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
            [_stamp(row) for row in times.space.tolist()],
            times.load.tolist(),
            ", ".join(times.space_ranks),
        )
    names = [str(k) for k in sorted(times.by_first)]
    return names, [times.by_first[k][0] for k in sorted(times.by_first)], times.space_ranks[0]


def _head(execution: Execution) -> str:
    sizes = ", ".join(f"{r} {s}" for r, s in execution.rank_sizes.items())
    tensors = ", ".join(f"{n} {t.nnz:,} nonzeros" for n, t in execution.tensors.items())
    return "; ".join(part for part in (tensors, sizes) if part)


def einsums(execution: Execution) -> Table:
    """Work and time per Einsum.

    `ideal`: computes over the space points that compute; `utilisation`: ideal over lock-step;
    `imbalance`: largest over mean computes, over the coordinates of the outermost space rank.
    """
    columns = (
        Column("einsum"),
        Column("loop_order"),
        *(Column(n, "operation") for n in ("computes", "multiplies", "adds", "term_adds", "updates")),
        *(Column(n, "element") for n in ("outputs", "zeros")),
        *(Column(n, "stamp") for n in ("lock_step", "slip", "ideal")),
        Column("space_points"),
        Column("utilisation", "1"),
        Column("imbalance", "element/element"),
        Column("collisions", "operation"),
    )
    return Table("einsums", columns, tuple(_einsum_row(e) for e in execution.einsums), (_NOTE,))


def _einsum_row(e: EinsumCounts) -> tuple[Cell, ...]:
    work = (e.activities, e.multiplies, e.adds_excluding_first_touch, e.term_adds, e.updates)
    row: tuple[Cell, ...] = (e.einsum, " ".join(e.loop_order), *work, e.output_nnz, e.zeros)
    if e.times is None:
        return (*row, *[None] * 7)
    t, ideal = e.times, e.ideal_time()
    used = ideal / t.lock_step if t.lock_step else 0.0
    return (*row, t.lock_step, t.slip, ideal, t.distinct_space_stamps, used, t.imbalance, t.collisions)


def ranks(execution: Execution) -> Table:
    """Coordinate accesses per Einsum, loop rank and tensor; what they are: `RankAccesses`."""
    kinds = ("intersect", "driver", "lookup", "output_read", "output_write")
    columns = (
        Column("einsum"),
        Column("rank"),
        Column("iterations"),
        Column("tensor"),
        *(Column(f"{kind}_coords", "element") for kind in kinds),
    )
    rows: list[tuple[Cell, ...]] = []
    for e in execution.einsums:
        for a in e.accesses:
            parts = _kinds(a)
            names = list(dict.fromkeys(name for part in parts for name in part))
            for name in names or [""]:
                rows.append((e.einsum, a.rank, a.iterations, name, *(part.get(name) for part in parts)))
    return Table("ranks", columns, tuple(rows), (_NOTE,))


def _kinds(a: RankAccesses) -> tuple[dict[str, int], ...]:
    found = (a.intersect_coord_accesses, a.driver_coord_accesses, a.lookups, a.output_reads, a.output_writes)
    return tuple({name: int(n) for name, n in part.items()} for part in found)


def slices(execution: Execution) -> Table:
    """The parts of each input that is partitioned at its outermost rank, with their nonzeros."""
    columns = (
        Column("einsum"),
        Column("tensor"),
        Column("rank"),
        Column("part"),
        Column("coordinates", "element"),
        Column("nonzeros", "element"),
        Column("share_of_mean", "1"),
    )
    rows: list[tuple[Cell, ...]] = []
    for e in execution.einsums:
        for name, tree in e.inputs.items():
            if not _partitioned(tree):
                continue
            loads = tree.leaves(0)
            below = np.diff(tree.levels[1].starts)
            mean = float(loads.mean()) if loads.size else 0.0
            for at, coord in enumerate(tree.levels[0].coords.tolist()):
                part = str(tree.levels[0].rank.shown(coord))
                rows.append(
                    (
                        e.einsum,
                        name,
                        tree.ranks[0],
                        part,
                        int(below[at]),
                        int(loads[at]),
                        int(loads[at]) / mean,
                    )
                )
    return Table("slices", columns, tuple(rows), (_NOTE,))


def _partitioned(tree: Fibertree) -> bool:
    """Whether the two outermost ranks are parts of one."""
    return len(tree.levels) > 1 and tree.levels[0].rank.bases == tree.levels[1].rank.bases


def space(execution: Execution) -> Table:
    """Computes and different time stamps of every space point that computes anything."""
    columns = (
        Column("einsum"),
        Column("space_ranks"),
        Column("space_point"),
        Column("computes", "operation"),
        Column("stamps", "stamp"),
        Column("share_of_largest", "1"),
    )
    rows: list[tuple[Cell, ...]] = []
    for e in execution.einsums:
        if e.times is None:
            continue
        t, most = e.times, int(e.times.load.max(initial=0))
        for row, load, stamps in zip(t.space.tolist(), t.load.tolist(), t.stamps.tolist(), strict=True):
            rows.append((e.einsum, " ".join(t.space_ranks), _stamp(row), load, stamps, load / most))
    return Table("space", columns, tuple(rows), (_NOTE,))


def _stamp(row: list[int]) -> str:
    return ",".join(str(n) for n in row) or "all"
