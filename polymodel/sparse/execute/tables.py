"""A cascade as it ran on data, in tables: work, time, accesses per loop, slices, and load in space."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from polymodel.sparse.fibertree import Fibertree
from polymodel.view.table import Cell, Column, Table

if TYPE_CHECKING:
    from polymodel.sparse.execute.records import EinsumCounts, Execution, RankAccesses

NOTE = "every number is an exact count on the actual data"


def headline(execution: Execution) -> str:
    """Nonzeros of the inputs and sizes of the ranks."""
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
    return Table("einsums", columns, tuple(_einsum_row(e) for e in execution.einsums), (NOTE,))


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
    return Table("ranks", columns, tuple(rows), (NOTE,))


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
    return Table("slices", columns, tuple(rows), (NOTE,))


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
            rows.append((e.einsum, " ".join(t.space_ranks), stamp_text(row), load, stamps, load / most))
    return Table("space", columns, tuple(rows), (NOTE,))


def stamp_text(row: list[int]) -> str:
    return ",".join(str(n) for n in row) or "all"
