"""The machines of a co-design: values of symbols of the architecture, and the machines that share a
search."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, reduce
from math import fsum, inf
from typing import Any

import numpy as np

from polymodel.architecture.hierarchy import SEARCHED, Component, FanoutDim, Hierarchy, link_name
from polymodel.cost.costs import area_items
from polymodel.errors import SpecError
from polymodel.loading import Spec
from polymodel.mapper.einsum_rules import side_by_side
from polymodel.objectives import InstancesUsed
from polymodel.spec.arch_schema import Action, ComputeUnit, Memory
from polymodel.spec.document import words_of
from polymodel.spec.section_schemas import ExploreSection
from polymodel.sweeps.expressions import SymbolConstraint
from polymodel.sweeps.grid import Grid, SymbolUses
from polymodel.sweeps.values import Number
from polymodel.workload import totals

Array = Any
WAYS = ("read", "write")
DEEP = 2  # memories
MANY = 2  # stands for any number of instances
MOST = 2**39  # distinct sums of numbers of instances, ignoring rounding
SHARED = 3  # above this many prices, single searches are faster than a joint one over more figures


@dataclass(frozen=True)
class DesignPoint:
    """One choice of the hardware's symbols: its values, its architecture, and every layer on it."""

    number: int
    symbols: Mapping[str, Number]
    layers: tuple[Spec, ...]

    @property
    def arch(self) -> Hierarchy:
        return self.layers[0].arch

    @cached_property
    def single(self) -> bool:
        """Whether each layer is one Einsum."""
        return all(len(layer.workload.einsums) == 1 for layer in self.layers)

    @cached_property
    def area(self) -> float:
        """Square metres."""
        return fsum(item.area for item in area_items(self.arch))

    @property
    def name(self) -> str:
        """Its values as text: `KIB=8, F=4`."""
        return ", ".join(f"{n}={v:g}" for n, v in self.symbols.items())


def machines(layers: Sequence[Spec], grid: Grid) -> tuple[tuple[DesignPoint, ...], dict[str, int]]:
    """Every machine of a grid that satisfies its constraints, and the number of invalid ones by reason.

    Raises SpecError if no machine is valid.
    """
    result: list[DesignPoint] = []
    refused: dict[str, int] = {}
    faults: list[SpecError] = []
    for number in range(grid.size):
        values = grid.point(number)
        if not _holds(grid.where, {**_fixed(layers), **values}):
            refused["left out by `where`"] = refused.get("left out by `where`", 0) + 1
            continue
        try:
            bound = tuple(s.bind(**{n: v for n, v in values.items() if n in s.symbols}) for s in layers)
            for one in bound:
                _ = one.arch
        except SpecError as fault:
            faults.append(fault)
            reason = fault.diagnostics[0].message
            refused[reason] = refused.get(reason, 0) + 1
            continue
        result.append(DesignPoint(number, values, bound))
    if not result and faults:
        raise faults[0]
    return tuple(result), refused


def _holds(where: Iterable[SymbolConstraint], values: Mapping[str, Number]) -> bool:
    return all(bool(c.holds(values)) for c in where)


def _fixed(layers: Sequence[Spec]) -> dict[str, Number]:
    return {n: v for s in layers for n, v in s.symbols.items() if v is not None}


@dataclass(frozen=True)
class Prices:
    """The costs of one component that may differ within a family.

    Joules per bit read and written, watts of leakage, and seconds per bit read and written or per operation
    (empty if they are equal on all machines, or if machines with other ones are in other families).
    """

    energies: tuple[float, ...]
    leak: float
    seconds: tuple[float, ...]

    def least(self, other: Prices) -> Prices:
        """The elementwise minimum."""
        energies = tuple(map(min, self.energies, other.energies))
        seconds = tuple(map(min, self.seconds, other.seconds))
        return Prices(energies, min(self.leak, other.leak), seconds)


@dataclass(frozen=True)
class Busy:
    """The busy time of a component: seconds per unit of a mapping's figures.

    The figures are what its busiest instance reads, writes, or both, or the operations that it executes. With
    separate ports the slower one counts (`apart`).
    """

    rates: Mapping[str, float]
    apart: bool

    def seconds(self, figures: Mapping[str, Array]) -> Array:
        each = [rate * figures[name] for name, rate in self.rates.items()]
        return np.max(each, axis=0) if self.apart else np.sum(each, axis=0)


@dataclass(frozen=True)
class Family:
    """Machines on which mappings differ only in prices, areas, what fits, and busy times: one search serves
    all.

    `layers`: the specs that are searched: each layer on a machine with the largest memories and fanouts and
    the lowest prices of all members (it need not be a member). `sized`: memories whose sizes differ.
    `fanned`: fanout dimensions whose numbers of instances differ. `surcharges`: for each member, figures of a
    mapping (`reads:GLB` in bits, `latency` in seconds) -> joules per unit above the price on the searched
    machine, nonnegative. `busy`: for each member, the components that may take longer there. `operations`:
    for each member and layer, the joules of what is executed above those on the searched machine.
    """

    layers: tuple[Spec, ...]
    members: tuple[DesignPoint, ...]
    sized: tuple[str, ...] = ()
    surcharges: tuple[Mapping[str, float], ...] = ()
    busy: tuple[tuple[Busy, ...], ...] = ()
    fanned: tuple[str, ...] = ()
    operations: tuple[tuple[float, ...], ...] = ()

    @property
    def figures(self) -> tuple[str, ...]:
        """The figures from which, with its energy, a mapping's costs and space on the members follow."""
        priced = [name for each in self.surcharges for name in each]
        timed = [name for each in self.busy for one in each for name in one.rates]
        return tuple(dict.fromkeys([*self._places, *priced, *timed, *(["latency"] if timed else [])]))

    @property
    def _places(self) -> list[str]:
        """The figures of a mapping that decide where it fits: bits of memories, instances of fanouts."""
        used = (self._used(name).written for name in self.fanned)
        return [*(f"working_set:{name}" for name in self.sized), *used]

    def _used(self, name: str) -> InstancesUsed:
        """The instances in use along a dimension; only the members that have as many matter."""
        einsums = max(len(layer.workload.einsums) for layer in self.layers)
        return InstancesUsed(name, einsums, tuple(sorted({_width(m, name) for m in self.members})))

    def fits(self, machine: DesignPoint, figures: Mapping[str, Array], count: int) -> Array:
        """Mask of the `count` mappings that are within a member's memories (bits of one instance) and
        fanouts."""
        result = np.ones(count, bool)
        there = {f"working_set:{name}": bits for name, bits in _sizes(machine).items()}
        for used in map(self._used, self.fanned):
            there[used.written] = float(used.most(_width(machine, used.dimension)))
        for name in self._places:
            result &= figures[name] <= there[name]
        return result

    def on(self, machine: DesignPoint, layer: int, figures: Mapping[str, Array]) -> dict[str, Array]:
        """The figures of mappings of a layer on a member, with their latency and energy there."""
        result = dict(figures)
        at = self.members.index(machine)
        for one in self.busy[at] if self.busy else ():
            result["latency"] = np.maximum(result["latency"], one.seconds(figures))
        rates = self.surcharges[at] if self.surcharges else {}
        charged = sum((rate * result[name] for name, rate in rates.items()), start=0.0)
        operations = self.operations[at][layer] if self.operations else 0.0
        result["energy"] = result["energy"] + charged + operations
        return result


def alone(machine: DesignPoint) -> Family:
    """A family of one machine, which is searched as it is."""
    return Family(machine.layers, (machine,))


def families(every: Sequence[DesignPoint], grid: Grid, given: ExploreSection) -> tuple[Family, ...]:
    """Machines grouped by the costs of mappings on them, apart from sizes of memories, areas and prices.

    A mapping fits a machine if its working sets do, its energy is linear in what it moves and in its time,
    and its time is that of its slowest component. So for each mapping on a member, the mappings that are
    undominated in energy, time and `figures` on the searched machine include one that is at least as good on
    the member. Symbols in a workload, in an `explore` section or in the constraints (`given`) change what is
    searched: machines with different values of them are never in one family. Limits in these apply to the
    figures of each machine, and the time of a pipeline is not that of its slowest component: each machine
    then is a family of its own.
    """
    layers = every[0].layers if every else ()
    if any(section.limits or section.moves for section in _sections(layers, given)):
        return tuple(map(alone, every))
    groups: dict[object, list[DesignPoint]] = {}
    asked = relevant_symbols(layers, grid, given)
    sections = _sections(layers, given)
    free = _free_fanouts(every, sections)
    ordered = all(section.force_memory_order for section in sections)
    recomputed = any("recomputed" in section.halos for section in sections)
    for machine in every:
        beside = tuple(side_by_side(s.workload, s.arch) for s in machine.layers) if free else ()
        units = sum(c.computes for c in machine.arch.components)
        priced = _operation_prices(machine) if units > 1 or recomputed else ()
        key = _plain(machine, free, ordered), priced, beside, tuple(machine.symbols[n] for n in asked)
        groups.setdefault(key, []).append(machine)
    result: list[Family] = []
    for members in (part for group in groups.values() for part in _by_widths(group, free)):
        if len({_compared(m) for m in members}) >= SHARED:
            result.append(_family(members))
            continue
        alike: dict[tuple[Prices, ...], list[DesignPoint]] = {}
        for machine in members:
            alike.setdefault(_compared(machine), []).append(machine)
        result += (_family(some) for some in alike.values())
    return tuple(result)


def _sections(layers: Sequence[Spec], given: ExploreSection) -> tuple[ExploreSection, ...]:
    """The constraints of searches: those of the specs, and those of the call."""
    return (*(s.raw_explore for s in layers if s.raw_explore is not None), given)


def relevant_symbols(layers: Sequence[Spec], grid: Grid, given: ExploreSection) -> tuple[str, ...]:
    """The symbols of the grid on which workloads, or the constraints of their searches, depend."""
    result: set[str] = set()
    for spec in layers:
        texts = {n: t for n, t in spec.declared.items() if isinstance(t, str)}
        sections = (spec.raw_workload, spec.raw_renames, *_sections((spec,), given))
        words = words_of(s.model_dump() for s in sections if s is not None)
        result |= SymbolUses(grid, {**texts, **dict(grid.linked)}).of_all(words)
    return tuple(n for n in grid.names if n in result)


def _family(members: Sequence[DesignPoint]) -> Family:
    """The machines with one search: on the member with the largest memories and the lowest prices, or on one
    that combines these."""
    first = members[0]
    if len(members) == 1:
        return alone(first)
    sizes = {name: max(_sizes(m)[name] for m in members) for name in _sizes(first)}
    prices = tuple(reduce(Prices.least, rows) for rows in zip(*map(_prices, members), strict=True))
    timed = tuple(
        c.name
        for c, rows in zip(first.arch.components, zip(*map(_prices, members), strict=True), strict=True)
        if len({row.seconds for row in rows}) > 1
    )
    wide = {n: max(_width(m, n) for m in members) for n in _dimensions(first)}
    fanned = tuple(n for n in wide if len({_width(m, n) for m in members}) > 1)
    if timed or fanned:  # leakage over other times or in more instances is added for each member
        prices = tuple(replace(row, leak=0.0) for row in prices)
    sized = tuple(name for name in sizes if len({_sizes(m)[name] for m in members}) > 1)
    same = (m for m in members if _sizes(m) == sizes and _prices(m) == prices and _is_as_wide(m, wide))
    member = next(same, None)
    layers = member.layers if member else tuple(_best_case(s, sizes, prices, wide) for s in first.layers)
    operations = (
        tuple(_operation_surcharges(m, prices) for m in members)
        if len({*map(_operation_prices, members)}) > 1
        else ()
    )
    surcharges = tuple(_above(m, prices) for m in members)
    used = {name for each in surcharges for name, rate in each.items() if rate}
    kept = tuple({n: r for n, r in each.items() if n in used} for each in surcharges)
    one = {name: all(m.arch.instances(name) == 1 for m in members) for name in timed}
    busy = tuple(tuple(_busy(m.arch, n, one[n]) for n in timed) for m in members) if timed else ()
    return Family(layers, tuple(members), sized, kept if used else (), busy, fanned, operations)


def _free_fanouts(every: Sequence[DesignPoint], asked: Sequence[ExploreSection]) -> tuple[str, ...]:
    """The fanout dimensions whose instances may differ among machines of one family, that with most values
    first.

    The costs of a mapping do not depend on the number of instances, as long as the ones in use exist. That
    does not hold if a share of them must be in use, nor for a tree with costs, whose depth depends on the
    total. In deep hierarchies the comparison of mappings by this number costs more than it saves.
    """
    if not every or sum(c.stores for c in every[0].arch.components) > DEEP:
        return ()
    required = {
        link_name(c, d) for section in asked for c, row in section.min_utilisation.items() for d in row
    }
    widths: dict[str, set[int]] = {}
    for machine in every:
        for name, d in _dimensions(machine).items():
            if name not in required and not (
                d.link is not None and d.link.costs and d.link.topology not in SEARCHED
            ):
                widths.setdefault(name, set()).add(d.fanout)
    einsums = max(len(layer.workload.einsums) for layer in every[0].layers)
    free = [name for name, each in widths.items() if len(each) > 1 and (einsums + 1) ** len(each) < MOST]
    return tuple(sorted(free, key=lambda name: -len(widths[name])))


def _by_widths(members: Sequence[DesignPoint], free: Sequence[str]) -> Iterator[list[DesignPoint]]:
    """Machines that differ in `free` dimensions, grouped by search.

    All of them if one machine has the most instances along every dimension; otherwise those that differ only
    in the first dimension, since no machine would fit the best mappings for the largest numbers together.
    """
    every = [tuple(_width(m, name) for name in free) for m in members]
    together = tuple(map(max, zip(*every, strict=True))) in every
    groups: dict[tuple[int, ...], list[DesignPoint]] = {}
    for machine, widths in zip(members, every, strict=True):
        groups.setdefault(() if together else widths[1:], []).append(machine)
    yield from groups.values()


def _alike_if_one(machine: DesignPoint, c: Component, ordered: bool) -> bool:
    """Whether one instance of a fanout at a component is equivalent to several of which one is in use.

    That does not hold if it takes space (a memory with `allocation: live` holds the whole tile above a
    fanout), or constrains which storage may be above which (`ordered`: it does not), or above which fused
    loops.
    """
    memories = [m for m in machine.arch.components if m.stores]
    inside = any(machine.arch.index(m.name) >= machine.arch.index(c.name) for m in memories)
    return all(m.allocation != "live" for m in memories) and (not inside or (ordered and machine.single))


def _dimensions(machine: DesignPoint) -> dict[str, FanoutDim]:
    """The fanout dimensions of a machine, by name."""
    return {link_name(c, d.name): d for c, d in machine.arch.dimensions}


def _width(machine: DesignPoint, dimension: str) -> int:
    """The number of instances along a fanout dimension."""
    return _dimensions(machine)[dimension].fanout


def _is_as_wide(machine: DesignPoint, wide: Mapping[str, int]) -> bool:
    return all(_width(machine, name) == most for name, most in wide.items())


def _prices(machine: DesignPoint) -> tuple[Prices, ...]:
    """The costs that may differ within a family, by component."""
    return tuple(
        Prices(
            tuple(c.action(name).energy for name in _linear(c)),
            c.leak_power,
            tuple(1 / c.action(way).throughput for way in _timed(machine, c)),
        )
        for c in machine.arch.components
    )


def _compared(machine: DesignPoint) -> tuple[Prices, ...]:
    """Prices by which mappings are compared: all but those of operations, of which mappings have equally
    many."""
    each = zip(machine.arch.components, _prices(machine), strict=True)
    return tuple(replace(row, energies=()) if c.computes else row for c, row in each)


def _operation_prices(machine: DesignPoint) -> tuple[float, ...]:
    """The joules of an operation of each compute unit, where operators cost alike."""
    each = zip(machine.arch.components, _prices(machine), strict=True)
    return tuple(energy for c, row in each if c.computes for energy in row.energies)


def _linear(c: Component) -> tuple[str, ...]:
    """The actions with an energy per bit, or per operation."""
    if c.computes:
        return () if c.by_operator else ("compute",)
    return WAYS if c.stores and all(c.action(way).bits_per_action is None for way in WAYS) else ()


def _timed(machine: DesignPoint, c: Component) -> tuple[str, ...]:
    """The actions whose throughputs determine a component's time: seconds per bit read and written, or per
    operation.

    Empty if layers may take longer than their slowest component, or costs of operators differ.
    """
    if c.fill_drain_latency or not machine.arch.assume_overlap or not machine.single:
        return ()
    return _linear(c)


def _busy(arch: Hierarchy, name: str, one: bool) -> Busy:
    """The busy time of a component on its machine. `one`: it is the only instance, on all members."""
    c = arch[name]
    if c.computes:
        return Busy({f"busiest_operations:{name}": 1 / c.action("compute").throughput}, apart=False)
    of = "" if one else "busiest_"  # a single instance reads everything that is read
    reads, writes = (1 / c.action(way).throughput for way in WAYS)
    if c.ports != "shared":
        return Busy({f"{of}reads:{name}": reads, f"{of}writes:{name}": writes}, apart=True)
    both = min(reads, writes)
    rates = {"accesses": both, "reads": reads - both, "writes": writes - both}
    used = {f"{of}{what}:{name}": rate for what, rate in rates.items() if rate}
    return Busy(used or {f"{of}accesses:{name}": 0.0}, apart=False)


def _above(machine: DesignPoint, prices: tuple[Prices, ...]) -> dict[str, float]:
    result = {"latency": 0.0}
    for c, mine, least in zip(machine.arch.components, _prices(machine), prices, strict=True):
        result["latency"] += machine.arch.instances(c.name) * (mine.leak - least.leak)
        if not c.stores:
            continue
        more = [here - there for here, there in zip(mine.energies, least.energies, strict=True)]
        both = min(more, default=0.0)  # one figure for reads and writes together if neither costs more
        result[f"accesses:{c.name}"] = both
        result |= {f"{way}s:{c.name}": rate - both for way, rate in zip(WAYS, more, strict=False)}
    return result


def _operation_surcharges(machine: DesignPoint, prices: tuple[Prices, ...]) -> tuple[float, ...]:
    """Return, for each layer, the joules above these prices of its operations, which are the same in all
    mappings."""
    each = zip(machine.arch.components, _prices(machine), prices, strict=True)
    above = sum(
        mine.energies[0] - least.energies[0] for c, mine, least in each if c.computes and mine.energies
    )
    return tuple(above * sum(map(totals.operations, layer.workload.einsums)) for layer in machine.layers)


def _best_case(
    spec: Spec, sizes: Mapping[str, float], prices: tuple[Prices, ...], wide: Mapping[str, int]
) -> Spec:
    """The spec with these sizes of memories, prices, and numbers of instances along each fanout."""
    assert spec.raw_arch is not None
    of = {c.name: row for c, row in zip(spec.arch.components, prices, strict=True)}
    nodes = []
    for node in spec.raw_arch.nodes:
        mine = of[node.name]
        fans = (d.model_copy(update={"fanout": wide[link_name(node.name, d.name)]}) for d in node.spatial)
        changed: dict[str, object] = {"leak_power": mine.leak, "spatial": tuple(fans)}
        if node.name in sizes:
            changed["size"] = sizes[node.name]
        if isinstance(node, (Memory, ComputeUnit)):
            written = {a.name: a for a in node.actions}
            for k, way in enumerate(WAYS if isinstance(node, Memory) else ("compute",)):
                update = {"energy": mine.energies[k]} if mine.energies else {}
                if mine.seconds and mine.seconds[k] != 1 / spec.arch[node.name].action(way).throughput:
                    update["throughput"] = 1 / mine.seconds[k] if mine.seconds[k] else inf
                if update:
                    written[way] = written.get(way, Action(name=way)).model_copy(update=update)
            changed["actions"] = tuple(written.values())
        nodes.append(node.model_copy(update=changed))
    return replace(spec, raw_arch=spec.raw_arch.model_copy(update={"nodes": tuple(nodes)}))


def _sizes(machine: DesignPoint) -> dict[str, float]:
    """The sizes that may differ within a family: of all memories but the backing storage, which holds every
    tensor."""
    memories = [c for c in machine.arch.components if c.stores]
    return {c.name: c.size_bits for c in memories[1:]}


def _plain(machine: DesignPoint, free: Sequence[str], ordered: bool) -> Hierarchy:
    """The architecture without what may differ within a family, including `free` fanouts.

    `ordered`: storage of outer memories is above that of inner ones.
    """
    arch = machine.arch

    def many(c: Component, d: FanoutDim) -> bool:
        return link_name(c.name, d.name) in free and (d.fanout > 1 or _alike_if_one(machine, c, ordered))

    backing = next((c.name for c in arch.components if c.stores), "")
    plain = (
        replace(
            _without_prices(machine, c),
            size_bits=c.size_bits if c.name == backing else 0.0,
            spatial=tuple(replace(d, fanout=MANY) if many(c, d) else d for d in c.spatial),
        )
        for c in arch.components
    )
    return replace(arch, components=tuple(plain))


def _without_prices(machine: DesignPoint, c: Component) -> Component:
    timed, linear = _timed(machine, c), _linear(c)
    actions = tuple(
        replace(
            a,
            energy=0.0 if a.name in linear else a.energy,
            provenance="" if a.name in linear else a.provenance,
            throughput=inf if a.name in timed else a.throughput,
        )
        for a in c.actions
    )
    return replace(c, area=0.0, area_provenance="", leak_power=0.0, actions=actions)
