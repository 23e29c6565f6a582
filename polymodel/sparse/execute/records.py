"""Define the results of running a cascade on data. All numbers are exact counts on the actual data.

Representation of loops: an Einsum runs rank by rank in loop order, and a *loop node* of a rank is one
iteration of its loop. `LoopLevel` stores the nodes of one rank as arrays in loop order; node n belongs to
iteration `parent[n]` of the next outer rank (the outermost rank: to a single root). The visits of fibers
follow from these arrays: at node n, tensor t is at `element[t][n]`, an element of the `Level` of that rank in
its partitioned `Fibertree` (which gives fiber and coordinate). The loop below node p of the next outer rank
reads the first `reads[t][p]` coordinates of the fiber of t there, from element `begin[t][p]` on, whether they
match or not.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from polymodel.frozen import dataclass
from polymodel.sparse.fibertree import Fibertree, LoopRank
from polymodel.sparse.tensor import SparseTensor
from polymodel.spec.teaal.records import TeaalSpec
from polymodel.view.answer import Answer, Block, Line, Section, declared, notes
from polymodel.view.table import Cell, Column, Table

if TYPE_CHECKING:
    from polymodel.sparse.execute.check import Check, Unchecked


# A cascade as it ran on data, in tables: work, time, accesses per loop, slices, and load in space.

NOTE = "every number is an exact count on the actual data"


def headline(execution: Execution) -> str:
    """Return the nonzeros of the inputs and the sizes of the ranks as text."""
    sizes = ", ".join(f"{r} {s}" for r, s in execution.rank_sizes.items())
    tensors = ", ".join(f"{n} {t.nnz:,} nonzeros" for n, t in execution.tensors.items())
    return "; ".join(part for part in (tensors, sizes) if part)


def einsums(execution: Execution) -> Table:
    """Return work and time per Einsum.

    `ideal`: computes divided by the space points that compute. `utilisation`: ideal over lock-step time.
    `imbalance`: maximum over mean computes, over the coordinates of the outermost space rank.
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
    every = (*execution.earlier, execution)
    rows = (
        _einsum_row(e, f" ({k + 1})" if execution.earlier else "")
        for k, g in enumerate(every)
        for e in g.einsums
    )
    return Table("einsums", columns, tuple(rows), execution.notes)


def _einsum_row(e: EinsumCounts, generation: str) -> tuple[Cell, ...]:
    work = (e.activities, e.multiplies, e.adds_excluding_first_touch, e.term_adds, e.updates)
    row: tuple[Cell, ...] = (e.einsum + generation, " ".join(e.loop_order), *work, e.output_nnz, e.zeros)
    if e.times is None:
        return (*row, *[None] * 7)
    t, ideal = e.times, e.ideal_time()
    used = ideal / t.lock_step if t.lock_step else 0.0
    return (*row, t.lock_step, t.slip, ideal, t.distinct_space_stamps, used, t.imbalance, t.collisions)


def ranks(execution: Execution) -> Table:
    """Return coordinate accesses per Einsum, loop rank and tensor; see `RankAccesses`."""
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
    result = (a.intersect_coord_accesses, a.driver_coord_accesses, a.lookups, a.output_reads, a.output_writes)
    return tuple({name: int(n) for name, n in part.items()} for part in result)


def slices(execution: Execution) -> Table:
    """Return the parts of each input that is partitioned at its outermost rank, with their nonzeros."""
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
    """Return whether the two outermost ranks are parts of the same rank."""
    return len(tree.levels) > 1 and tree.levels[0].rank.bases == tree.levels[1].rank.bases


def space(execution: Execution) -> Table:
    """Return computes and distinct time stamps of every space point that computes."""
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


Ints = NDArray[np.int64]
PRINTED = 48  # rows of a table that are printed; the DataFrames have all


@dataclass(frozen=True)
class RankAccesses:
    """Coordinate accesses at one loop rank by tensor, summed over the Einsum.

    `intersect_coord_accesses`: coordinates that a two-finger co-iteration reads (both fingers advance after a
    match; it stops when one fiber ends, so that the other may have one trailing read).
    `driver_coord_accesses`: coordinates of the only tensor that has the rank. `output_reads`,
    `output_writes`: those of populating the output's fibers, where it has the rank. `lookups`: coordinates
    looked up one by one, in tensors that have a part of a flattened rank.
    """

    rank: str
    iterations: int
    intersect_coord_accesses: Mapping[str, int] = field(default_factory=dict)
    driver_coord_accesses: Mapping[str, int] = field(default_factory=dict)
    output_reads: Mapping[str, int] = field(default_factory=dict)
    output_writes: Mapping[str, int] = field(default_factory=dict)
    lookups: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True, eq=False)
class LoopLevel:
    """The iterations of one loop rank, in loop order; see the description of the module.

    `parent`, `coords`, `pos` (position within the fiber as iterated, from 0): one per node. `element`: per
    tensor with this rank, -1 where a union lacks it. `begin`, `reads`: per tensor and node of the next outer
    rank (where the end of another fiber stopped the iteration, only what was read). `output`: element of the
    output's level, -1 for one that stays empty; None where the output does not have the rank.
    """

    rank: LoopRank
    parent: Ints
    coords: Ints
    pos: Ints
    element: Mapping[str, Ints]
    begin: Mapping[str, Ints]
    reads: Mapping[str, Ints]
    output: Ints | None = None

    @property
    def nodes(self) -> int:
        return int(self.parent.size)


@dataclass(frozen=True)
class ExecutionTimes:
    """Numbers of time steps under three models, and the distribution of work in space. Stamps are tuples over
    the ranks of `spacetime`.

    `lock_step`: distinct time stamps (all points of space advance together). `slip`: the maximum number of
    distinct time stamps at one point of space (points run independently). Ideal time is `activities` divided
    by the number of points: see `EinsumCounts.ideal_time`. `collisions`: activities at an occupied point of
    space and time.
    """

    space_ranks: tuple[str, ...]
    time_ranks: tuple[str, ...]
    lock_step: int
    slip: int
    distinct_space_stamps: int
    distinct_spacetime_stamps: int
    collisions: int
    space: Ints  # one row per occupied point of space, one column per space rank, ascending
    load: Ints  # activities there
    stamps: Ints  # distinct time stamps there
    by_first: Mapping[
        int, tuple[int, int]
    ]  # stamp of the first space rank -> activities, distinct time stamps

    @property
    def imbalance(self) -> float:
        """Maximum over mean activities, over the occupied positions of the first space rank."""
        loads = [load for load, _ in self.by_first.values()]
        return max(loads) / (sum(loads) / len(loads)) if loads else 0.0


@dataclass(frozen=True, eq=False)
class EinsumCounts:
    """The counts of one Einsum of a cascade as it ran. All counts are exact.

    `activities`: innermost iterations that compute. `updates`: those of the output (one each). `multiplies`:
    products of two values. `adds_excluding_first_touch`: updates of an output that was updated before (none
    for a take, which overwrites). `term_adds`: additions of terms to each other. `output_nnz`: points of the
    output touched (the structural pattern); each is counted once however ranks are split, also where several
    parts of a data-dependent split hold it. `zeros`: values among these that are exactly zero; the result
    does not store them, so that a later Einsum does not read them. `levels`: the loops, None where they were
    counted without being walked. `stands_for`: for a tensor counted without values, (rank, size, step) if its
    tree has one coordinate per tile of `step` of that rank, which is dense.
    """

    einsum: str
    loop_order: tuple[str, ...]
    multiplies: int
    updates: int
    adds_excluding_first_touch: int
    term_adds: int
    activities: int
    output_nnz: int
    zeros: int
    accesses: tuple[RankAccesses, ...]
    times: ExecutionTimes | None
    inputs: Mapping[str, Fibertree]
    levels: tuple[LoopLevel, ...] | None = None
    stands_for: Mapping[str, tuple[str, int, int]] = field(default_factory=dict)

    def ideal_time(self, points: int | None = None) -> float:
        """Activities over the number of points of space; without one, over the occupied points."""
        if points is None:
            points = self.times.distinct_space_stamps if self.times is not None else 1
        return self.activities / points if points else 0.0

    def slices(self, tensor: str) -> tuple[Slice, ...]:
        """Return the content of each coordinate of the outermost rank of a partitioned input."""
        tree = self.inputs[tensor]
        loads = tree.leaves(0)
        if tensor in self.stands_for:
            rank, size, step = self.stands_for[tensor]
            at = max(i for i, level in enumerate(tree.levels) if level.rank.bases == (rank,))
            weights = np.concatenate(([0], np.cumsum(np.minimum(step, size - tree.columns()[at]))))
            ends = np.cumsum(loads)
            loads = weights[ends] - weights[ends - loads]
        result = []
        for at, coord in enumerate(tree.levels[0].coords.tolist()):
            rows: tuple[int, ...] = ()
            if len(tree.levels) > 1:
                below = tree.levels[1]
                rows = tuple(below.coords[below.starts[at] : below.starts[at + 1]].tolist())
            result.append(Slice(coord, rows, int(loads[at])))
        return tuple(result)


@dataclass(frozen=True)
class Slice:
    """One coordinate of a partitioned tensor's outermost rank: the coordinates below it and its nonzeros."""

    coord: int
    rows: tuple[int, ...]
    nnz: int


@dataclass(frozen=True, eq=False)
class Execution(Answer):
    """A cascade as it ran: `results` by tensor (every output, including intermediate ones), and counts per
    Einsum.

    `tensors`: the inputs. `valued`: True if results have their values, False if they are 1 because they were
    only counted. `earlier`: the generations before this one, of a cascade that ran several times.
    """

    results: Mapping[str, SparseTensor]
    einsums: tuple[EinsumCounts, ...]
    tensors: Mapping[str, SparseTensor]
    rank_sizes: Mapping[str, int]
    spec: TeaalSpec
    scalars: Mapping[str, float] = field(default_factory=dict)
    valued: bool = True
    sources: tuple[str, ...] = field(default=(), repr=False, compare=False)
    earlier: tuple[Execution, ...] = field(default=(), repr=False)

    @declared(title="Work and time per Einsum", name="einsums")
    def work(self) -> Table:
        """Per Einsum: multiplies, adds, updates, outputs, and time under three models. Of all generations."""
        return einsums(self)

    @declared(title="Coordinate accesses per loop rank")
    def ranks(self) -> Table:
        """Coordinates read and written per Einsum, loop rank and tensor."""
        return ranks(self)

    @declared(title="Parts of partitioned inputs")
    def slices(self) -> Table:
        """The parts of each input that is partitioned at its outermost rank."""
        return slices(self)

    @declared(title="Load per space point")
    def space(self) -> Table:
        """Every Einsum and space point that computes anything."""
        return space(self)

    @property
    def notes(self) -> tuple[str, ...]:
        """What the numbers are, and of which generation."""
        if not self.earlier:
            return (NOTE,)
        count = len(self.earlier) + 1
        return (NOTE, f"{count} generations: work of all of them, else figures of the last one")

    @property
    def title(self) -> str:
        """The heading of its page."""
        return f"Execution of {', '.join(e.einsum for e in self.einsums)}"

    def content(self, live: bool = True) -> list[Block]:
        """Return the tables that have rows, without empty columns, limited to the printed length."""
        result: list[Block] = [Line(headline(self))]
        for name, one in self.declared.items():
            table = self.table(name).without_empty((None, "", 0))
            if table.rows:
                left = len(table.rows) - PRINTED
                more = f"… {left:,} more rows: .{name}" if left > 0 else ""
                opened = name == "einsums"
                result += [Line(), Section(one.title, table.first(PRINTED), opened=opened, more=more)]
        return [*result, *notes(self.notes)]

    def __repr__(self) -> str:
        parts = ", ".join(f"{e.einsum}: {e.multiplies:,} multiplies" for e in self.einsums)
        return f"Execution({parts})"

    def check(self) -> tuple[Check, ...]:
        """Compare each result with numpy.einsum or, where it is large, with SciPy's sparse products.

        One check serves every kernel. Raises Refused for a run without values, and where an Einsum is too
        large.
        """
        from polymodel.sparse.execute.check import check

        return check(self)

    def checks(self) -> tuple[Check | Unchecked, ...]:
        """Compare each result, with the reason in place of an Einsum that cannot be checked."""
        from polymodel.sparse.execute.check import checks

        return checks(self)

    def rows(self) -> list[dict[str, int | float | str]]:
        """One plain row per Einsum: its counts and the three times."""
        result: list[dict[str, int | float | str]] = []
        for e in self.einsums:
            row: dict[str, int | float | str] = {
                "einsum": e.einsum,
                "multiplies": e.multiplies,
                "adds": e.adds_excluding_first_touch + e.term_adds,
                "updates": e.updates,
                "outputs": e.output_nnz,
                "zeros": e.zeros,
            }
            if e.times is not None:
                row |= {"lock_step": e.times.lock_step, "slip": e.times.slip, "ideal": e.ideal_time()}
                row |= {"points": e.times.distinct_space_stamps, "imbalance": e.times.imbalance}
            result.append(row)
        return result

    def einsum(self, name: str) -> EinsumCounts:
        """Return the counts of one Einsum, named after its output. Raises KeyError if there is none."""
        for result in self.einsums:
            if result.einsum == name:
                return result
        raise KeyError(f"no Einsum {name}; there are {', '.join(e.einsum for e in self.einsums)}")
