"""Tables of counts: tiles, accesses, reuse, lifetimes, working sets."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from polymodel.analysis.result import Buffet, Problem, Traffic
from polymodel.cost.capacity import stored_bits
from polymodel.cost.context import Counts, row_order
from polymodel.cost.records import Need
from polymodel.mapping.looptree import Loop, Split, Step
from polymodel.reuse import Reuse
from polymodel.view.table import Cell, Column, Table

KEY = (Column("einsum"), Column("component"), Column("tensor"))


def rows_of(counts: Counts) -> list[tuple[str, Buffet]]:
    """Every buffet once per Einsum that uses it: by order of execution, then tree order."""
    return [(e, b) for e in counts.einsums for b in counts.analysis.buffets if e in b.einsums]


def says_sparse(problem: Problem) -> bool:
    """True if the workload gives a density, or a component does anything about zeros."""
    given = (a.density is not None for e in problem.cascade for a in e.accesses)
    return any(given) or any(c.sparse is not None for c in problem.hierarchy.components)


def says_tiles(problem: Problem) -> bool:
    """True if a memory cuts operands into tiles and the workload gives a density of any operand."""
    cuts = any(c.data_tiles is not None for c in problem.hierarchy.components)
    return cuts and any(a.density is not None for e in problem.cascade for a in e.inputs)


def tiles(counts: Counts, live: Mapping[tuple[int, str], int], notes: tuple[str, ...] = ()) -> Table:
    """Tile sizes per Einsum, component and tensor (elements of one instance; bits; stamps).

    `tile` is the largest over all stamps, `average` and `total` are over all stamps with a tile,
    `visits` is how many there are. A node above a split has a row, the same one, for each Einsum that
    uses it. Backing nodes' bits are scaled by `backing_storage_size_scale`. `live_bits` is the peak
    between first and last use.
    """
    columns = (
        *KEY, Column("node"), Column("reuse"),
        Column("tile_elements", "element"), Column("tile_bits", "bit"),
        Column("average_elements", "element"), Column("average_bits", "bit"),
        Column("total_elements", "element"), Column("live_elements", "element"), Column("live_bits", "bit"),
        Column("visits", "stamp"), Column("instances"),
    )  # fmt: skip
    rows = []
    for einsum, b in rows_of(counts):
        backing = b.parent is None
        alive = live.get((b.node, b.tensor))
        rows.append((
            einsum, b.component, b.tensor, b.node, b.reuse,
            b.tile_max, stored_bits(counts, b.tensor, b.tile_max, backing),
            float(b.tile_average), float(b.tile_average * counts.bits(b.tensor)), b.tile_total,
            alive, None if alive is None else stored_bits(counts, b.tensor, alive, backing),
            b.visits, b.instances,
        ))  # fmt: skip
    return Table("tiles", columns, tuple(rows), notes)


def accesses(counts: Counts) -> Table:
    """What is read and written at each component, all instances and executions.

    `fill` is the part of the writes that comes from the parent, `drain` the part of the reads that goes
    to it. A toll's reads are what it passes downwards, its writes what it passes upwards.
    """
    names = ("read", "write", "fill", "drain")
    columns = (
        *KEY,
        *(Column(f"{n}_bits", "bit") for n in names),
        *(Column(f"{n}_elements", "element") for n in names),
    )
    found: dict[tuple[str, str, str], list[int]] = {}
    for t in counts.analysis.traffic:
        cell = found.setdefault((t.einsum, t.component, t.tensor), [0, 0, 0, 0])
        for i, n in enumerate((t.reads, t.writes, t.writes_fill, t.reads_drain)):
            cell[i] += n
    for p in counts.analysis.tolls:
        cell = found.setdefault((p.einsum, p.component, p.tensor), [0, 0, 0, 0])
        cell[0] += p.down
        cell[1] += p.up
    order = row_order(counts.problem)
    rows: list[tuple[Cell, ...]] = []
    for key in sorted(found, key=lambda k: order(k[0], k[1])):
        elements = [n * counts.executions(key[0]) for n in found[key]]
        rows.append((*key, *(n * counts.bits(key[2]) for n in elements), *elements))
    return Table("accesses", columns, tuple(rows))


def _by_buffet(traffic: Iterable[Traffic]) -> dict[tuple[str, int, str], list[Traffic]]:
    """(Einsum, storage node, tensor) -> its rows of traffic."""
    found: dict[tuple[str, int, str], list[Traffic]] = {}
    for t in traffic:
        found.setdefault((t.einsum, t.node, t.tensor), []).append(t)
    return found


def _moved(rows: Iterable[Traffic]) -> int:
    """Elements that one buffet exchanges with its parent for one Einsum: fills and drains."""
    return sum(t.writes_fill + t.reads_drain for t in rows)


def reuse(counts: Counts, by_policy: Mapping[str, Sequence[Traffic]], notes: tuple[str, ...] = ()) -> Table:
    """How often what is brought in is used, and what each reuse policy would move.

    `accesses_per_element`: reads and writes over different elements ever held. `reuse_factor`: reads
    served downwards per element filled. `moved_bits` are fills and drains on the link to the parent
    (none for backing nodes), as given and under each policy; `gap_bits` is what the given policy moves
    beyond `keep_previous`, the reuse that a better placement would win. Where a policy cannot be counted, or
    would read elements that are not there, its figures are absent and `left_out` says why.
    """
    columns = (
        *KEY, Column("node"), Column("reuse"), Column("distinct_elements", "element"),
        Column("accesses_per_element", "element/element"), Column("reuse_factor", "element/element"),
        Column("moved_bits", "bit"), *(Column(f"{p}_bits", "bit", words=p.moved) for p in Reuse),
        Column("gap_bits", "bit"), Column("left_out"),
    )  # fmt: skip
    missing = "; ".join(notes)
    rows = []
    own = _by_buffet(counts.analysis.traffic)
    others = {p: _by_buffet(traffic) for p, traffic in by_policy.items()}
    for einsum, b in rows_of(counts):
        key = (einsum, b.node, b.tensor)
        mine = own.get(key, [])
        reads = sum(t.reads_fill for t in mine)
        fills = sum(t.writes_fill for t in mine)
        total = sum(t.reads + t.writes for t in mine)
        scale = counts.bits(b.tensor) * counts.executions(einsum)
        given = _moved(mine) * scale
        policies: list[Cell] = [
            _moved(others[p].get(key, ())) * scale if p in others else None for p in Reuse
        ]
        least = policies[-1]
        rows.append((
            einsum, b.component, b.tensor, b.node, b.reuse, b.distinct,
            total / b.distinct if b.distinct else None, reads / fills if fills else None,
            given, *policies, given - least if isinstance(least, int) else None,
            missing,
        ))  # fmt: skip
    return Table("reuse", columns, tuple(rows), notes)


def lifetimes(counts: Counts, live: Mapping[tuple[int, str], int], notes: tuple[str, ...] = ()) -> Table:
    """Which Einsums each tile lives through, one row per buffet.

    `first_einsum` and `last_einsum` are the first and the last of its users below the node; `alive_in` are
    the Einsums that run from its first to its last use in a visit, users or not, also between two iterations
    of a loop around a split. `residencies` is counted per instance; it is known where
    every visit is one (`refill`) and for backing nodes, whose tile stays.
    """
    columns = (
        Column("component"), Column("tensor"), Column("node"), Column("reuse"),
        Column("first_einsum"), Column("last_einsum"), Column("alive_in"), Column("crosses_branches"),
        Column("visits", "stamp"), Column("residencies"), Column("tile_bits", "bit"),
        Column("live_bits", "bit"),
    )  # fmt: skip
    rows = []
    for b in counts.analysis.buffets:
        within = alive_in(counts.problem, b)
        backing = b.parent is None
        alive = live.get((b.node, b.tensor))
        residencies = b.instances if backing and b.visits == b.instances else None
        if not backing and not b.reuse.carries:
            residencies = b.visits
        rows.append((
            b.component, b.tensor, b.node, b.reuse, b.einsums[0], b.einsums[-1],
            " ".join(within), len(within) > 1, b.visits, residencies,
            stored_bits(counts, b.tensor, b.tile_max, backing),
            None if alive is None else stored_bits(counts, b.tensor, alive, backing),
        ))  # fmt: skip
    return Table("lifetimes", columns, tuple(rows), notes)


def working_sets(needs: Sequence[Need], notes: tuple[str, ...] = ()) -> Table:
    """The peak that each component holds during each Einsum (bits of the busiest instance).

    `measure`: `tile` (buffets resident in the same phase), `live` (elements between first and last use) or
    `reserved` (nodes above a split count in all branches). `checked` marks the measure that the
    capacity is held against. `residents` are tensors with their bits, as in "A=2048 B=512".
    """
    columns = (
        Column("component"), Column("einsum"), Column("measure"), Column("bits", "bit"),
        Column("capacity_bits", "bit"), Column("utilisation", "1"), Column("checked"), Column("fits"),
        Column("residents", "bit"),
    )  # fmt: skip
    rows = tuple(
        (
            n.component, n.einsum, n.measure, n.bits, n.capacity_bits, n.utilisation, n.counts, n.fits,
            " ".join(f"{r.tensor}={r.bits}" for r in n.residents),
        )
        for n in needs
    )  # fmt: skip
    return Table("working_sets", columns, rows, notes)


def alive_in(problem: Problem, b: Buffet) -> tuple[str, ...]:
    """The Einsums that run from the first to the last use of a visit's tile, in order of execution.

    A loop between the storage node and a split runs the split's branches again and again: a tile that one
    of them uses in every iteration is alive in all of them. Where one Einsum alone uses the tile and no such
    loop is there, it is alive in that one. A persistent tensor stays in its backing node while anything runs.
    """
    order = problem.tree.einsums
    accesses = problem.cascade.accesses_of(b.tensor)
    if b.parent is None and any(a.persistent for a in accesses):
        return order
    found = set(b.einsums)
    for user in b.einsums:
        path = problem.tree.path(user)
        start = next(i for i, step in enumerate(path) if step.id == b.node)
        split = _repeated(problem, path[start:])
        if split is not None:
            found.update(problem.tree.below[split])
    places = [order.index(e) for e in found]
    return order[min(places) : max(places) + 1]


def _repeated(problem: Problem, path: Sequence[Step]) -> int | None:
    """The outermost split on the path that stands below a temporal loop of more than one iteration."""
    again = False
    for step in path:
        if isinstance(step.node, Split) and again:
            return step.id
        again |= isinstance(step.node, Loop) and not step.node.spatial and _iterates(problem, step)
    return None


def _iterates(problem: Problem, step: Step) -> bool:
    """True if a loop splits the range of any Einsum below it into more than one tile."""
    return any(_trips(problem, einsum, step) > 1 for einsum in problem.tree.below[step.id])


def _trips(problem: Problem, einsum: str, step: Step) -> int:
    """Tiles of the largest enclosing tile; 1 where the Einsum has no such rank variable."""
    assert isinstance(step.node, Loop)
    one = problem.cascade[einsum]
    variable = step.node.variable_in(einsum)
    if variable not in one.rank_variables:
        return 1
    low, high = one.bound(variable)
    extent = high - low + 1
    for here, loop in problem.tree.loops(einsum):
        if loop.variable_in(einsum) == variable:
            tile = int(loop.tile_shape)
            if here == step.id:
                first = extent if loop.initial_tile_shape is None else int(loop.initial_tile_shape)
                return 1 + -(-(extent - min(first, tile)) // tile) if extent > min(first, tile) else 1
            extent = min(extent, max(tile, int(loop.initial_tile_shape or 0)))
    return 1
