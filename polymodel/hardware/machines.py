"""The machines of a co-design: values of symbols of the architecture, and which of them one search serves."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from math import fsum

from polymodel.architecture.hierarchy import Hierarchy
from polymodel.cost.area import area_items
from polymodel.errors import SpecError
from polymodel.loading import Spec
from polymodel.spec.symbols import words_of
from polymodel.sweeps.expressions import Constraint
from polymodel.sweeps.grid import Grid, Uses
from polymodel.sweeps.values import Number


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
    """Machines that differ in nothing but area and the sizes of some memories: mappings cost the same on all.

    `largest`: the one whose memories are all at least as large as those of each other machine; `sized`: the
    memories whose sizes differ.
    """

    largest: Machine
    members: tuple[Machine, ...]
    sized: tuple[str, ...]


def families(every: Sequence[Machine], grid: Grid) -> tuple[Family, ...]:
    """Machines by what mappings cost on them; one without a largest is split into machines of their own.

    Symbols that stand in a workload or in an `explore` section change what is searched: machines with
    different values of them are never in one family.

    What fits a memory fits every larger one, and costs there what it costs here, so that the front of the
    largest machine over the objectives and the working sets has the front of each other one among its points.
    """
    groups: dict[tuple[Hierarchy, tuple[Number, ...]], list[Machine]] = {}
    asked = _elsewhere(every[0].layers, grid) if every else ()
    for machine in every:
        key = _without_sizes(machine.arch), tuple(machine.symbols[n] for n in asked)
        groups.setdefault(key, []).append(machine)
    found: list[Family] = []
    for members in groups.values():
        sized = tuple(name for name in _sizes(members[0]) if len({_sizes(m)[name] for m in members}) > 1)
        largest = next((m for m in members if all(_covers(m, other) for other in members)), None)
        if largest is None:
            found += (Family(m, (m,), ()) for m in members)
        else:
            found.append(Family(largest, tuple(members), sized))
    return tuple(found)


def _elsewhere(layers: Sequence[Spec], grid: Grid) -> tuple[str, ...]:
    """The symbols of the grid on which workloads, or what their searches are asked, depend."""
    found: set[str] = set()
    for spec in layers:
        texts = {n: t for n, t in spec.declared.items() if isinstance(t, str)}
        sections = (spec.raw_workload, spec.raw_renames, spec.raw_explore)
        words = words_of(s.model_dump() for s in sections if s is not None)
        found |= Uses(grid, {**texts, **dict(grid.linked)}).of_all(words)
    return tuple(n for n in grid.names if n in found)


def _sizes(machine: Machine) -> dict[str, float]:
    return {c.name: c.size_bits for c in machine.arch.components if c.kind == "memory"}


def _covers(one: Machine, other: Machine) -> bool:
    sizes = _sizes(other)
    return all(size >= sizes[name] for name, size in _sizes(one).items())


def _without_sizes(arch: Hierarchy) -> Hierarchy:
    """The architecture as the costs of a mapping see it."""
    plain = (replace(c, size_bits=0.0, area=0.0, area_provenance="") for c in arch.components)
    return replace(arch, components=tuple(plain))


def fits(machine: Machine, working_sets: Mapping[str, float]) -> bool:
    """True if working sets (bits of one instance) are within the machine's memories."""
    return all(working_sets.get(name, 0.0) <= size for name, size in _sizes(machine).items())
