"""The tables of a report: counts and costs."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence

from polymodel.analysis.result import Buffet, Problem, Traffic
from polymodel.cost.costs import Cost, elasticities, stored_bits
from polymodel.cost.records import Costs, Counts, EinsumTime, Need, RooflinePoint, row_order
from polymodel.mapping.looptree import Loop, PathStep, Split
from polymodel.quantities import engineering
from polymodel.reuse import Reuse
from polymodel.view.table import Cell, Column, Table
from polymodel.workload.einsum import Passes

# Tables of counts: tiles, accesses, reuse, lifetimes, working sets.

KEY = (Column("einsum"), Column("component"), Column("tensor"))


def rows_of(counts: Counts) -> list[tuple[str, Buffet]]:
    """Every buffet once per Einsum that uses it: by order of execution, then tree order."""
    return [(e, b) for e in counts.einsums for b in counts.analysis.buffets if e in b.einsums]


def says_sparse(problem: Problem) -> bool:
    """True if the workload gives a density, or a component treats zeros specially."""
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
    """Bits read and written at each component, over all instances and executions.

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
    result: dict[tuple[str, int, str], list[Traffic]] = {}
    for t in traffic:
        result.setdefault((t.einsum, t.node, t.tensor), []).append(t)
    return result


def _moved(rows: Iterable[Traffic]) -> int:
    """Elements that one buffet exchanges with its parent for one Einsum: fills and drains."""
    return sum(t.writes_fill + t.reads_drain for t in rows)


def reuse(counts: Counts, by_policy: Mapping[str, Sequence[Traffic]], notes: tuple[str, ...] = ()) -> Table:
    """The reuse of transferred data, and the transfers under each reuse policy.

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
    """The Einsums during which each tile is live, one row per buffet.

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


def _repeated(problem: Problem, path: Sequence[PathStep]) -> int | None:
    """The outermost split on the path that stands below a temporal loop of more than one iteration."""
    again = False
    splits = [place for place, step in enumerate(path) if isinstance(step.node, Split)]
    for step in path[: max(splits, default=-1) + 1]:
        if isinstance(step.node, Split) and again:
            return step.id
        again |= isinstance(step.node, Loop) and not step.node.spatial and _iterates(problem, step)
    return None


def _iterates(problem: Problem, step: PathStep) -> bool:
    """True if a loop splits the range of any Einsum below it into more than one tile."""
    return any(_trips(problem, einsum, step) > 1 for einsum in problem.tree.below[step.id])


def _trips(problem: Problem, einsum: str, step: PathStep) -> int:
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


# Tables of costs: summary, latency, energy, bottleneck, roofline, area.


def latency(costs: Costs) -> Table:
    """Busy time per Einsum and component, all executions: of the busiest instance, whose bits these are.

    Einsums of pipelines overlap: how is in the table `pipelines`.
    """
    columns = (
        Column("einsum"), Column("component"), Column("read_bits", "bit"), Column("write_bits", "bit"),
        Column("operations", "operation"), Column("latency_s", "s"), Column("cycles", "cycle"),
        Column("limiting"), Column("instances_used"), Column("instances"), Column("utilisation", "1"),
    )  # fmt: skip
    whole = {t.einsum: t for t in costs.latency}
    rows = tuple(
        (
            t.einsum, t.component, t.read_bits, t.write_bits, t.operations, t.seconds, t.cycles,
            whole[t.einsum].limiting == t.component, t.instances, t.available, t.instances / t.available,
        )
        for t in costs.times
    )  # fmt: skip
    refills = tuple(
        f"{r.component} is refilled for {r.seconds:.6g} s during {r.einsum} while nothing else runs"
        for t in costs.latency
        for r in t.refills
    )
    return Table("latency", columns, rows, refills)


def energy(costs: Costs) -> Table:
    """Energy of every action: `count` units at `energy_per_unit_J` each. Leakage counts instance-seconds."""
    columns = (
        Column("einsum"), Column("component"), Column("tensor"), Column("action"), Column("count"),
        Column("unit"), Column("energy_per_unit_J", "J"), Column("energy_J", "J"), Column("provenance"),
    )  # fmt: skip
    rows = tuple(
        (i.einsum, i.component, i.tensor, i.action, i.count, i.unit, i.energy_each, i.energy, i.provenance)
        for i in costs.energy
    )
    return Table("energy", columns, rows)


def energy_by_component(costs: Costs) -> Table:
    """Joules per component, split into dynamic energy and leakage."""
    columns = (
        Column("component"), Column("dynamic_J", "J"), Column("leakage_J", "J"), Column("energy_J", "J"),
        Column("share", "1"),
    )  # fmt: skip
    total = costs.total_energy
    rows: list[tuple[str, float, float, float, float]] = []
    for name in dict.fromkeys(i.component for i in costs.energy):
        mine = [i for i in costs.energy if i.component == name]
        leak = math.fsum(i.energy for i in mine if i.action == "leak")
        dynamic = math.fsum(i.energy for i in mine if i.action != "leak")
        rows.append((name, dynamic, leak, dynamic + leak, (dynamic + leak) / total if total else 0.0))
    rows.sort(key=lambda r: r[3], reverse=True)
    return Table("energy_by_component", columns, tuple(rows))


def summary(costs: Costs) -> Table:
    """One row per Einsum and one for the whole, which has `einsum` = `total`."""
    columns = (
        Column("einsum"), Column("n_instances"), Column("operations", "operation"), Column("latency_s", "s"),
        Column("cycles", "cycle"), Column("energy_J", "J"), Column("limiting"), Column("feasible"),
        Column("assume_overlap"),
    )  # fmt: skip
    rows: list[tuple[Cell, ...]] = []
    for t in costs.latency:
        joules = math.fsum(i.energy for i in costs.energy if i.einsum == t.einsum)
        fits = not any(v.einsum == t.einsum for v in costs.violations)
        rows.append((
            t.einsum, t.n_instances, t.operations, t.seconds, t.cycles, joules, t.limiting, fits,
            costs.assume_overlap,
        ))  # fmt: skip
    rows.append((
        "total", None, sum(t.operations for t in costs.latency), costs.total_latency,
        total_cycles(costs.latency), costs.total_energy, "", not costs.violations, costs.assume_overlap,
    ))  # fmt: skip
    return Table("summary", columns, tuple(rows))


def total_cycles(latency: tuple[EinsumTime, ...]) -> float | None:
    """Cycles of the whole; None unless every Einsum that takes time counts in the same clock."""
    timed = [t for t in latency if t.seconds]
    clocks = {round(t.cycles / t.seconds, 6) if t.cycles is not None else None for t in timed}
    if len(clocks) != 1 or None in clocks:
        return None
    return math.fsum(t.cycles or 0.0 for t in timed)


def time_taken(costs: Costs) -> str:
    """The latency of the whole as text, with its cycles where there is one clock."""
    cycles, spent = total_cycles(costs.latency), engineering(costs.total_latency, "s")
    return spent if cycles is None else f"{spent} ({engineering(cycles)} cycles)"


def bottleneck(costs: Costs) -> Table:
    """Components of each Einsum from slowest to fastest.

    `slack_s` is how much longer a component could take before it limits; `speedup` is what the Einsum
    would gain if the limiting component took no time, and `next_limiter` what would limit it then.
    """
    columns = (
        Column("einsum"), Column("rank"), Column("component"), Column("latency_s", "s"),
        Column("slack_s", "s"), Column("next_limiter"), Column("speedup"),
    )  # fmt: skip
    rows = tuple(
        (x.einsum, x.rank, x.component, x.seconds, x.slack, x.next_limiter, x.speedup) for x in costs.limiters
    )
    return Table("bottleneck", columns, rows)


def pipelines(costs: Costs) -> Table:
    """Stages of each pipeline (`node`: its split) in order, then the whole, which has `stage` = `total`.

    `slots` are those in which the stage works (of the whole: all), `fill`, `steady` and `drain` its busy time
    in slots of each phase (of the whole: the duration of these slots), `sets_s` the time of the slots in
    which it is the slowest stage, `utilisation` its busy time over the whole.
    """
    columns = (
        Column("node"), Column("stage"), Column("einsums"), Column("slots"), Column("fill_slots"),
        Column("steady_slots"), Column("drain_slots"), Column("fill_s", "s"), Column("steady_s", "s"),
        Column("drain_s", "s"), Column("busy_s", "s"), Column("sets_s", "s"), Column("utilisation", "1"),
    )  # fmt: skip
    rows: list[tuple[Cell, ...]] = []
    for p in costs.pipelines:
        for s in p.stages:
            share = s.busy / p.seconds if p.seconds else 0.0
            rows.append((
                p.node, str(s.stage + 1), " ".join(s.einsums), s.slots, None, None, None,
                s.fill, s.steady, s.drain, s.busy, s.sets, share,
            ))  # fmt: skip
        rows.append((
            p.node, "total", " ".join(p.einsums), p.slots, p.fill_slots, p.steady_slots, p.drain_slots,
            p.fill, p.steady, p.drain, p.seconds, p.seconds, 1.0 if p.seconds else 0.0,
        ))  # fmt: skip
    return Table("pipelines", columns, tuple(rows))


def sensitivity(counts: Counts, costs: Costs, of: Cost) -> Table:
    """The sensitivity of a cost to each number of the architecture, largest first.

    `elasticity` is per cent of cost per per cent of the number, as it grows a little or shrinks a little:
    latency differs in the two where components tie. `slope` is the same in absolute terms.
    """
    unit = "J" if of == "energy" else "s"
    columns = (
        Column("component"), Column("action"), Column("number"), Column("value"), Column("unit"),
        Column("elasticity_growing", "1"), Column("elasticity_shrinking", "1"),
        Column(f"slope_growing_{unit}_per_unit"), Column(f"slope_shrinking_{unit}_per_unit"),
    )  # fmt: skip
    rows = tuple(
        (
            e.knob.component,
            e.knob.action,
            e.knob.name,
            e.value,
            e.unit,
            e.up,
            e.down,
            e.slope_up,
            e.slope_down,
        )
        for e in elasticities(counts, costs, of)
    )
    return Table("sensitivity", columns, rows)


def roofline(points: Iterable[RooflinePoint], name: str = "roofline") -> Table:
    """Operational intensity at the outermost memory in use, and throughput attainable there and achieved."""
    columns = (
        Column("einsum"), Column("memory"), Column("compute"), Column("operations", "operation"),
        Column("moved_bits", "bit"), Column("intensity_operations_per_bit", "operation/bit"),
        Column("bandwidth_bits_per_s", "bit/s"), Column("peak_operations_per_s", "operation/s"),
        Column("attainable_operations_per_s", "operation/s"),
        Column("achieved_operations_per_s", "operation/s"),
        Column("limiting"),
    )  # fmt: skip
    rows = tuple(
        (
            p.einsum, p.memory, p.compute, p.operations, p.moved_bits, p.intensity, p.bandwidth, p.peak,
            p.attainable, p.achieved, p.limiting,
        )
        for p in points
    )  # fmt: skip
    return Table(name, columns, rows)


def area(costs: Costs) -> Table:
    """Square metres of all instances of each component."""
    columns = (
        Column("component"), Column("instances"), Column("area_per_instance_m2", "m^2"),
        Column("area_m2", "m^2"), Column("provenance"),
    )  # fmt: skip
    rows = tuple((a.component, a.instances, a.area_each, a.area, a.provenance) for a in costs.area)
    return Table("area", columns, rows)


def passes(found: Iterable[Passes]) -> Table:
    """One row for each rank of each workload input: the least number of passes over it under any mapping."""
    columns = (
        Column("tensor"), Column("rank"), Column("passes", words="walks of each fiber of the rank, at least"),
        Column("begun_by", words="Einsums in which a pass begins, in their order"),
    )  # fmt: skip
    return Table("passes", columns, tuple((p.tensor, p.rank, p.passes, ", ".join(p.begun_by)) for p in found))
