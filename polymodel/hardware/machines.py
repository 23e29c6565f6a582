"""The machines of a co-design: values of symbols of the architecture, and which of them one search serves."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from math import fsum
from typing import Any

import numpy as np

from polymodel.architecture.hierarchy import Component, Hierarchy
from polymodel.cost.costs import area_items
from polymodel.errors import SpecError
from polymodel.loading import Spec
from polymodel.spec.arch_schema import Action, Memory
from polymodel.spec.document import words_of
from polymodel.spec.section_schemas import ExploreSection
from polymodel.sweeps.expressions import Constraint
from polymodel.sweeps.grid import Grid, Uses
from polymodel.sweeps.values import Number

Array = Any
WAYS = ("read", "write")
SHARED = 3  # so many prices are dearer to search one by one than at once, over more figures


@dataclass(frozen=True)
class Machine:
    """One choice of the hardware's symbols: its values, its architecture, and every layer on it."""

    number: int
    symbols: Mapping[str, Number]
    layers: tuple[Spec, ...]

    @property
    def arch(self) -> Hierarchy:
        return self.layers[0].arch

    @cached_property
    def area(self) -> float:
        """Square metres."""
        return fsum(item.area for item in area_items(self.arch))

    @property
    def name(self) -> str:
        """Its values in words: `KIB=8, F=4`."""
        return ", ".join(f"{n}={v:g}" for n, v in self.symbols.items())


def machines(layers: Sequence[Spec], grid: Grid) -> tuple[tuple[Machine, ...], dict[str, int]]:
    """Every machine of a grid that satisfies its constraints, and how many are none, by reason.

    Raises SpecError where no machine is right.
    """
    found: list[Machine] = []
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
        found.append(Machine(number, values, bound))
    if not found and faults:
        raise faults[0]
    return tuple(found), refused


def _holds(where: Iterable[Constraint], values: Mapping[str, Number]) -> bool:
    return all(bool(c.holds(values)) for c in where)


def _fixed(layers: Sequence[Spec]) -> dict[str, Number]:
    return {n: v for s in layers for n, v in s.symbols.items() if v is not None}


@dataclass(frozen=True)
class Family:
    """Machines on which mappings differ in nothing but prices, areas and what fits: one search serves all.

    `layers`: what is searched: each layer on a machine that has the largest memories and the lowest prices
    of all members (it need not be one of them). `sized`: the memories whose sizes differ. `surcharges`: of
    each member, figures of a mapping (`reads:GLB` in bits, `latency` in seconds) -> joules per unit above
    the price on the machine that is searched, none below 0.
    """

    layers: tuple[Spec, ...]
    members: tuple[Machine, ...]
    sized: tuple[str, ...] = ()
    surcharges: tuple[Mapping[str, float], ...] = ()

    @property
    def figures(self) -> tuple[str, ...]:
        """The figures that a mapping's energies and places on the members follow from, with its energy."""
        priced = (name for each in self.surcharges for name in each)
        return tuple(dict.fromkeys([*(f"working_set:{name}" for name in self.sized), *priced]))

    def surcharge(self, machine: Machine, figures: Mapping[str, Array]) -> Array:
        """Joules that mappings with these figures take on a member above what they take where it was
        searched."""
        rates = self.surcharges[self.members.index(machine)] if self.surcharges else {}
        return sum((rate * figures[name] for name, rate in rates.items()), start=0.0)


def alone(machine: Machine) -> Family:
    """One machine, which is searched as it is."""
    return Family(machine.layers, (machine,))


def families(every: Sequence[Machine], grid: Grid, given: ExploreSection) -> tuple[Family, ...]:
    """Machines by what mappings cost on them, sizes of memories, areas and prices apart.

    A mapping fits a machine if its working sets do, and its energy is linear in what it moves and in its
    time. So each mapping on a member has one that is no worse there among those that none beats in energy,
    time and `figures` on the machine that is searched. Symbols that stand in a workload, in an `explore`
    section or in the constraints (`given`) change what is searched: machines with different values of them
    are never in one family. Limits that stand there hold for the figures of each machine, which then is a
    family of its own.
    """
    layers = every[0].layers if every else ()
    if any(section.limits for section in _sections(layers, given)):
        return tuple(map(alone, every))
    groups: dict[tuple[Hierarchy, tuple[Number, ...]], list[Machine]] = {}
    asked = asked_symbols(layers, grid, given)
    for machine in every:
        key = _plain(machine.arch), tuple(machine.symbols[n] for n in asked)
        groups.setdefault(key, []).append(machine)
    found: list[Family] = []
    for members in groups.values():
        if len({_prices(m) for m in members}) >= SHARED:
            found.append(_family(members))
            continue
        alike: dict[tuple[tuple[float, ...], ...], list[Machine]] = {}
        for machine in members:
            alike.setdefault(_prices(machine), []).append(machine)
        found += (_family(some) for some in alike.values())
    return tuple(found)


def _sections(layers: Sequence[Spec], given: ExploreSection) -> tuple[ExploreSection, ...]:
    """What searches are asked: by the specs, and by the constraints of the call."""
    return (*(s.raw_explore for s in layers if s.raw_explore is not None), given)


def asked_symbols(layers: Sequence[Spec], grid: Grid, given: ExploreSection) -> tuple[str, ...]:
    """The symbols of the grid on which workloads, or what their searches are asked, depend."""
    found: set[str] = set()
    for spec in layers:
        texts = {n: t for n, t in spec.declared.items() if isinstance(t, str)}
        sections = (spec.raw_workload, spec.raw_renames, *_sections((spec,), given))
        words = words_of(s.model_dump() for s in sections if s is not None)
        found |= Uses(grid, {**texts, **dict(grid.linked)}).of_all(words)
    return tuple(n for n in grid.names if n in found)


def _family(members: Sequence[Machine]) -> Family:
    """The machines under one search: on the member that has the largest memories and the lowest prices, else
    on one that is put together."""
    first = members[0]
    if len(members) == 1:
        return alone(first)
    sizes = {name: max(_sizes(m)[name] for m in members) for name in _sizes(first)}
    each = zip(*map(_prices, members), strict=True)  # by component
    prices = tuple(tuple(map(min, zip(*rows, strict=True))) for rows in each)
    sized = tuple(name for name in sizes if len({_sizes(m)[name] for m in members}) > 1)
    same = (m for m in members if _sizes(m) == sizes and _prices(m) == prices)
    member = next(same, None)
    layers = member.layers if member else tuple(_at_best(s, sizes, prices) for s in first.layers)
    surcharges = tuple(_above(m, prices) for m in members)
    used = {name for each in surcharges for name, rate in each.items() if rate}
    kept = tuple({n: r for n, r in each.items() if n in used} for each in surcharges)
    return Family(layers, tuple(members), sized, kept if used else ())


def _prices(machine: Machine) -> tuple[tuple[float, ...], ...]:
    """What may differ within a family, by component: joules per bit read and written, watts that leak."""
    return tuple(
        (*((c.action(way).energy for way in WAYS) if _linear(c) else ()), c.leak_power)
        for c in machine.arch.components
    )


def _linear(c: Component) -> bool:
    """True if the energy of accesses is so many joules per bit."""
    return c.stores and all(c.action(way).bits_per_action is None for way in WAYS)


def _above(machine: Machine, prices: tuple[tuple[float, ...], ...]) -> dict[str, float]:
    found = {"latency": 0.0}
    for c, mine, least in zip(machine.arch.components, _prices(machine), prices, strict=True):
        found["latency"] += machine.arch.instances(c.name) * (mine[-1] - least[-1])
        more = [here - there for here, there in zip(mine[:-1], least[:-1], strict=True)]
        both = min(more, default=0.0)  # of reads and writes alike: one figure where neither costs more
        found[f"accesses:{c.name}"] = both
        found |= {f"{way}s:{c.name}": rate - both for way, rate in zip(WAYS, more, strict=False)}
    return found


def _at_best(spec: Spec, sizes: Mapping[str, float], prices: tuple[tuple[float, ...], ...]) -> Spec:
    """The spec with these sizes of memories and these prices."""
    assert spec.raw_arch is not None
    of = {c.name: row for c, row in zip(spec.arch.components, prices, strict=True)}
    nodes = []
    for node in spec.raw_arch.nodes:
        changed: dict[str, object] = {"leak_power": of[node.name][-1]}
        if node.name in sizes:
            changed["size"] = sizes[node.name]
        if isinstance(node, Memory) and len(of[node.name]) > 1:
            energies = dict(zip(WAYS, of[node.name], strict=False))
            written = [a.name for a in node.actions]
            by_model = [a.name for a in spec.arch[node.name].actions if a.name not in written]
            changed["actions"] = tuple(
                a.model_copy(update={"energy": energies[a.name]}) if a.name in energies else a
                for a in (*node.actions, *(Action(name=name) for name in by_model))
            )
        nodes.append(node.model_copy(update=changed))
    return replace(spec, raw_arch=spec.raw_arch.model_copy(update={"nodes": tuple(nodes)}))


def _sizes(machine: Machine) -> dict[str, float]:
    """What may differ within a family: of all memories but the backing storage, which holds every tensor."""
    memories = [c for c in machine.arch.components if c.stores]
    return {c.name: c.size_bits for c in memories[1:]}


def _plain(arch: Hierarchy) -> Hierarchy:
    """The architecture without what may differ within a family."""
    backing = next((c.name for c in arch.components if c.stores), "")
    plain = (
        replace(_priceless(c), size_bits=c.size_bits if c.name == backing else 0.0) for c in arch.components
    )
    return replace(arch, components=tuple(plain))


def _priceless(c: Component) -> Component:
    actions = tuple(
        replace(a, energy=0.0, provenance="") if _linear(c) and a.name in WAYS else a for a in c.actions
    )
    return replace(c, area=0.0, area_provenance="", leak_power=0.0, actions=actions)


def fits(machine: Machine, working_sets: Mapping[str, Array], count: int) -> Array:
    """True where the working sets of so many mappings (bits of one instance) are within the machine's
    memories."""
    found = np.ones(count, bool)
    sizes = _sizes(machine)
    for name, bits in working_sets.items():
        found &= bits <= sizes[name]
    return found
