"""Lower bounds on the costs of mappings: of one Einsum regardless of the others, and of the whole cascade."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import field, replace
from itertools import pairwise, product
from math import ceil, log2, prod
from typing import Any

import numpy as np

from polymodel.cost.algebra import NUMBERS
from polymodel.cost.records import busy_time, operation_cost, port_time
from polymodel.frozen import dataclass
from polymodel.mapper.aims import Added
from polymodel.mapper.budget import Late, SearchTally, each_part, once, runs_of
from polymodel.mapper.combine import Interest
from polymodel.mapper.einsum_rules import spread_choices
from polymodel.mapper.join import Lives
from polymodel.mapper.pmappings import Explorer, SearchedRegions
from polymodel.mapper.records import Limits
from polymodel.mapper.regions import moved_once
from polymodel.mapper.space import EinsumSpace, Operand
from polymodel.mapper.templates import Exchanges, Passing, Template
from polymodel.mapper.terms import READS, price_of

# Bounds of one Einsum that hold whatever the others do, by the memories of its exchanged tensors and by the
# space left beside these. A mapping below fused loops becomes one without fused loops if its exchanged
# tensors take no space (`Interest.relaxed`). So the few mappings without fused loops bound all shapes with
# equal exchanges.

Array = Any
STEPS = 2  # levels per octave of a memory's size
MOST = 2**18  # entries of a table
SMALLEST = 8.0


@dataclass(frozen=True)
class Floors:
    """Least sums of one Einsum, by exchanges and by available space.

    `ladders`: levels of space (bits) per memory of interest. `least`: per exchanges (operand, memory) the
    least sums [sums, levels of each ladder] of mappings that take no more than these levels. None: not known
    by space; `unknown` then has lower bounds of the sums for any (0 where it is empty), and `backed` what
    operands add to these that are exchanged in the backing storage.
    """

    ladders: tuple[Array, ...]
    sums: int
    least: Mapping[Exchanges, Array] | None
    unknown: tuple[float, ...] = ()
    backed: Mapping[int, tuple[float, ...]] = field(default_factory=dict)

    def of(self, exchanges: Exchanges) -> Array | None:
        """The table for these exchanges, or None if no mapping has them."""
        if self.least is None:
            sums = np.array(self.unknown or (0.0,) * self.sums)
            sums = sums + sum(np.array(x) for i, x in self.backed.items() if i not in dict(exchanges))
            sums = sums.reshape(-1, *(1 for _ in self.ladders))
            return np.broadcast_to(sums, (self.sums, *(len(x) for x in self.ladders)))
        return self.least.get(exchanges)


def ladders(capacities: Array, most: float) -> tuple[Array, ...]:
    """Levels of space per memory, ascending; `most`: bits of all tensors, for unbounded memories."""
    result = []
    entries = 1
    for capacity in capacities:
        top = capacity if np.isfinite(capacity) else most
        count = max(1, ceil(log2(max(top / SMALLEST, 1)) * STEPS) + 1)
        if entries * count > MOST:
            count = 1
        entries *= count
        levels = top * 2.0 ** (-np.arange(count - 1, -1, -1) / STEPS)
        levels[-1] = capacity
        result.append(levels)
    return tuple(result)


def lower_bounds_of(
    space: EinsumSpace,
    limits: Limits,
    interest: Interest,
    steps: tuple[Array, ...],
    regions: SearchedRegions,
    tally: SearchTally,
    before: Floors | None = None,
    wanted: Collection[Exchanges] | None = None,
) -> Floors:
    """Lower bounds of one Einsum; unknown if the time limit passes.

    `regions`: the searched regions below a cut, and their bound; with a bound, only mappings that may be
    part of a better whole one count. `before`: bounds for exchanges in the first memory only, whatever
    memories further inside hold; with it, of other exchanges only those in `wanted` are computed.
    """
    given = before is None, None if before is None else before.least, None if wanted is None else set(wanted)
    return once(
        tally,
        lambda: ("floors", space, limits, interest, steps, given, regions.bound),
        lambda: _worked_out(space, limits, interest, steps, regions, tally, before, wanted),
        lambda found: found.least is not None,
    )


def _worked_out(
    space: EinsumSpace,
    limits: Limits,
    interest: Interest,
    steps: tuple[Array, ...],
    regions: SearchedRegions,
    tally: SearchTally,
    before: Floors | None,
    wanted: Collection[Exchanges] | None,
) -> Floors:
    alone = replace(interest, buffers=(), relaxed=True, eps=0.0, ties=False)
    sums = int(interest.energy) + int(interest.latency) + len(space.more)
    explorer = Explorer(space, limits, alone, Passing(), regions)
    result: dict[Exchanges, Array] = {}
    try:
        some = explorer.without_fused_loops(None if before is None else wanted, tally)
        step = FloorsStep(explorer, some, steps, interest, sums)
        for tables in each_part(_tables, step, runs_of(len(some), tally), tally):
            for exchanges, table in tables.items():
                result[exchanges] = np.minimum(result.get(exchanges, np.inf), table)
    except Late:
        return Floors(steps, sums, None)
    shaped = {k: table.reshape(sums, *(len(x) for x in steps)) for k, table in result.items()}
    for table in shaped.values():
        for axis in range(1, table.ndim):
            np.minimum.accumulate(table, axis=axis, out=table)
    for exchanges, table in (before.least or {}).items() if before is not None else ():
        shape = (sums, *(len(x) if k < table.ndim - 1 else 1 for k, x in enumerate(steps)))
        shaped[exchanges] = np.broadcast_to(table.reshape(shape), (sums, *(len(x) for x in steps)))
    return Floors(steps, sums, shaped)


@dataclass(frozen=True)
class FloorsStep:
    """Inputs for the least sums of an Einsum: templates, levels of the ladders, figures."""

    explorer: Explorer
    templates: tuple[Template, ...]
    steps: tuple[Array, ...]
    interest: Interest
    sums: int


def _tables(step: FloorsStep, numbers: range, tally: SearchTally) -> dict[Exchanges, Array]:
    """Per exchanges the least sums of some templates [sums, levels of all ladders], by the least levels
    that fit."""
    result: dict[Exchanges, Array] = {}
    for exchanges, points in step.explorer.lower_bounds(step.templates, numbers, tally):
        entry = np.zeros(len(points.energy), np.int64)
        for x, bits in zip(step.steps, points.local, strict=True):
            entry = entry * len(x) + np.searchsorted(x, bits * (1 - 1e-12))
        table = result.setdefault(exchanges, np.full((step.sums, prod(map(len, step.steps))), np.inf))
        figures = step.interest.figures(points.energy, points.latency, points.more, ())
        for row, figure in zip(table, figures, strict=True):
            np.minimum.at(row, entry, figure)
    return result


# Lower bounds that need no search: each element moves once, and each operation is executed. They do not
# depend on the sizes of memories. An element of a tensor that is never exchanged leaves the backing storage
# once in each Einsum that reads it, or reaches it once; every operation reads and writes its operands in
# the innermost memory that holds them, except for what a fanout shares.

MOST_STATES = 4096  # states of exchanged tensors between two Einsums; above it, each Einsum is bounded alone
MOST_WIDTHS = 20_000  # numbers of instances in use that are distinguished


def compulsory(space: EinsumSpace) -> tuple[float, float]:
    """Return lower bounds of one Einsum's energy (J) and latency (s), each on its own."""
    if space.copy:
        return 0.0, 0.0
    each = [c for u in range(len(space.units)) for c in _on_unit(space, u)]
    return min(e for e, _ in each), min(t for _, t in each)


def compulsory_of(space: EinsumSpace, figure: Added) -> float:
    """Return a lower bound of a figure that adds up.

    Of transfers, only those of the backing storage count: each element of a tensor that is never exchanged is
    moved from or to it once.
    """
    joules, seconds = compulsory(space)
    figure = figure.of(space.name)
    result = figure.energy * joules + figure.latency * seconds
    if space.copy:
        return result
    for component, way, weight in figure.moved:
        moving = (o for o in space.operands if not o.fusable and o.output == (way == "writes"))
        if component == space.memories[0].name:
            result += weight * sum(o.elements * o.bits for o in moving) * space.times
    return result + figure.places * space.operations * space.times


def compulsory_sums(spaces: Sequence[EinsumSpace], added: Sequence[Added]) -> list[Array]:
    """Lower bounds of the figures of each Einsum [sums], computed once for Einsums of equal shape."""
    known: dict[object, Array] = {}
    keys = [(s.shape, tuple(o.elements for o in s.operands)) for s in spaces]
    for key, s in zip(keys, spaces, strict=True):
        if key not in known:
            known[key] = np.array([compulsory_of(s, figure) for figure in added])
    return [known[key] for key in keys]


def compulsory_peaks(spaces: Sequence[EinsumSpace], memories: Sequence[str]) -> tuple[float, ...]:
    """Lower bounds of the peak of each memory (bits).

    While an Einsum runs, the memory holds one element of each tensor that it must keep, and twice that with
    double buffering. 0 on sparse data, which may be empty.
    """
    result = dict.fromkeys(memories, 0.0)
    for space in spaces:
        if space.copy or space.shares is not None:
            continue
        for m, keep in zip(space.memories, space.keep, strict=True):
            twice = space.hierarchy.doubles(m.name) and not m.live
            held = (
                o.bits * (2 if twice and not o.fusable else 1) for o in space.operands if o.tensor in keep
            )
            result[m.name] = max(result.get(m.name, 0.0), float(sum(held)))
    return tuple(result[name] for name in memories)


def _unit_price(space: EinsumSpace, number: int) -> tuple[float, float]:
    """Joules and seconds of one operation on a compute unit."""
    name = space.units[number].name
    cost = operation_cost(space.hierarchy[name], space.operators)
    if space.shares is None:
        return cost.energy + cost.finish_energy, 1 / cost.throughput + cost.finish_seconds
    energy, share = space.shares.executed(name)
    return energy, share / cost.throughput + cost.finish_seconds


def _on_unit(space: EinsumSpace, number: int) -> Iterator[tuple[float, float]]:
    """Energy and latency for every choice of the innermost memories of the operands."""
    joules, seconds = _unit_price(space, number)
    time = space.operations * seconds / _instances(space, number)
    unit = space.hierarchy[space.units[number].name]
    time = max(busy_time(unit, time, time, 1, NUMBERS) if time else 0.0, _backing_time(space))
    each = [list(_operand(space, number, i)) for i in range(len(space.operands))]
    for chosen in product(*each):
        ports: dict[tuple[int, str], float] = {}
        for _, loads in chosen:
            for port, load in loads:
                ports[port] = ports.get(port, 0.0) + load
        longest = max(time, *ports.values()) * space.times
        moved = space.operations * joules + sum(e for e, _ in chosen)
        yield moved * space.times + space.leak * longest, longest


def _instances(space: EinsumSpace, unit: int) -> float:
    """Upper bound on the compute instances that are in use at a time."""
    reach = space.units[unit].fanouts
    used = {(1,) * reach}
    for members in space.bundles:
        extent = prod(space.extents[v] for v in members)
        choices = spread_choices(space, unit, 0, members[0], extent)[:reach]
        for f, several in enumerate(choices):
            if several in ((1,), ()):
                continue
            more = {(*u[:f], u[f] * s, *u[f + 1 :]) for u in used for s in several}
            used = {u for u in more if u[f] <= space.fanouts[f].width} or used
            if len(used) > MOST_WIDTHS:
                return float(prod(f.width for f in space.fanouts[:reach]))
    return float(max(map(prod, used)))


def _backing_time(space: EinsumSpace) -> float:
    """Seconds of the backing storage for tensors that are exchanged nowhere else."""
    read, write = 0.0, 0.0
    instances = prod(f.width for f in space.fanouts if f.below == 0)
    for i, o in enumerate(space.operands):
        if not o.fusable and not o.output:
            read += o.elements * price_of(space, i, 0, "reads_fill")[1]
        elif not o.fusable:
            write += o.elements * price_of(space, i, 0, "writes_drain")[1]
    seconds: float = port_time(space.component(0), (read, write))
    return seconds / instances


Loads = tuple[tuple[tuple[int, str], float], ...]  # seconds at ports: (memory, read or write)


def _operand(space: EinsumSpace, unit: int, i: int) -> Iterator[tuple[float, Loads]]:
    """Least energy of one operand's accesses and the times of those by operations.

    One for every memory that may be the innermost one that holds the operand.
    """
    o, reach = space.operands[i], space.units[unit].memories
    must = [m for m in range(1, reach) if o.tensor in space.keep[m]]
    for inner in range(reach):
        if (must and inner < max(must)) or (o.tensor not in space.may[inner] and inner):
            continue
        held = [0, *(m for m in must if m < inner), inner] if inner else [0]
        chain = 0.0 if o.fusable else sum(moved_once(space, i, a, b) for a, b in pairwise(held))
        at_compute = list(_at_compute(space, unit, i, inner))
        loads = tuple(_load(space, i, inner, kind, n) for kind, n in at_compute)
        yield chain + sum(n * price_of(space, i, inner, kind)[0] for kind, n in at_compute), loads


def _load(
    space: EinsumSpace, i: int, memory: int, kind: str, elements: float
) -> tuple[tuple[int, str], float]:
    """Lower bound of the time that one kind of access takes at a port of the busiest instance."""
    component, read = space.component(memory), kind in READS
    instances = prod(f.width for f in space.fanouts if f.below <= memory)
    side = "both" if component.ports == "shared" else "read" if read else "write"
    bits = elements * price_of(space, i, memory, kind)[1] / instances
    return (memory, side), port_time(component, (bits, 0.0) if read else (0.0, bits))


def _at_compute(space: EinsumSpace, unit: int, i: int, inner: int) -> Iterator[tuple[str, float]]:
    """The kinds of accesses by operations in the innermost memory that holds the operand, and their
    numbers."""
    o, reach = space.operands[i], space.units[unit].memories
    asked = space.operations / _shared(space, unit, o, inner, reach)
    if not o.output:
        yield "reads_fill", asked * o.reads_per_operation(space.extents)
        return
    yield "writes_drain", asked
    if o.behind >= 0:
        yield "reads_fill", asked * o.reads_per_operation(space.extents)
    if space.memories[inner].read_first:
        yield "reads_fill", asked
    elif o.accumulates:  # one of the instances that reduce together gets the old value
        yield "reads_fill", asked / _shared(space, unit, o, -1, inner)
    else:  # instances that reduce together each begin a sum of their own
        yield "reads_fill", max(asked / _shared(space, unit, o, -1, inner) - o.elements, 0.0)


def _shared(space: EinsumSpace, unit: int, o: Operand, outer: int, inner: int) -> float:
    """Return the largest number of instances that one access serves, between two memories (or a memory and
    compute)."""
    most, apart = 1.0, 1.0
    others = [b for b in space.bundles if b[0] not in o.alone]
    for members in others:
        apart *= prod(space.extents[v] for v in members)
    for f, fanout in enumerate(space.fanouts[: space.units[unit].fanouts]):
        if outer < fanout.below <= inner and o.tensor in fanout.reuses:
            widest = 1.0
            for members in others:
                extent = prod(space.extents[v] for v in members)
                widest *= max(spread_choices(space, unit, 0, members[0], extent)[f], default=1)
            most *= min(widest, fanout.width)
    return min(most, apart)


def exchange_bound(
    spaces: Sequence[EinsumSpace], floors: Sequence[Floors], least: Sequence[Array], lives: Lives
) -> Array:
    """Lower bounds of whole mappings [sums], where each tensor is exchanged in one memory.

    They add the floors of the Einsums (`least` where these are unknown); each sum is minimised on its own.
    """
    none = np.zeros(len(least[0]))
    states: dict[tuple[tuple[str, int], ...], Array] = {(): none}
    for i, space in enumerate(spaces):
        options = list(_options(floors[i], least[i]))
        after: dict[tuple[tuple[str, int], ...], Array] = {}
        for live, before in states.items():
            for exchanges, cost in options:
                key = _after(space, i, dict(live), exchanges, lives)
                if key is not None:
                    after[key] = np.minimum(after.get(key, np.inf), before + cost)
        if not after or len(after) > MOST_STATES:
            return sum((least_alone(f, x) for f, x in zip(floors, least, strict=True)), none)
        states = after
    return np.min(list(states.values()), axis=0)


def _options(floors: Floors, least: Array) -> Iterator[tuple[Exchanges | None, Array]]:
    if floors.least is None:
        yield None, least
        return
    for exchanges, table in floors.least.items():
        yield exchanges, np.maximum(table[(slice(None), *[-1] * (table.ndim - 1))], least)


def least_alone(floors: Floors, least: Array) -> Array:
    """Return lower bounds of one Einsum [sums], wherever its tensors are exchanged."""
    return np.min([cost for _, cost in _options(floors, least)] or [least], axis=0)


def _after(
    space: EinsumSpace, number: int, live: dict[str, int], exchanges: Exchanges | None, lives: Lives
) -> tuple[tuple[str, int], ...] | None:
    """Return the memories of tensors that are still to be read (-1: any); None if the Einsum reads another
    memory."""
    mine: Mapping[int, int] = dict(exchanges) if exchanges is not None else {}
    for i, o in enumerate(space.operands):
        where = mine.get(i, 0) if exchanges is not None else -1
        if o.tensor in live and not o.output:
            if -1 not in (where, live[o.tensor]) and where != live[o.tensor]:
                return None
            live[o.tensor] = max(where, live[o.tensor])
        elif o.output and lives.last.get(o.tensor, number) > number:
            live[o.tensor] = where
    return tuple(sorted((t, m) for t, m in live.items() if lives.last[t] > number))
