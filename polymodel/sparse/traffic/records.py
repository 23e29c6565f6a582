"""Define the results of the traffic model on actual data. Every count is exact, and labelled `exact`."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import field, replace
from typing import Literal

from polymodel.frozen import dataclass
from polymodel.quantities import engineering
from polymodel.view.answer import Answer, Block, Line, Section, declared, notes
from polymodel.view.table import Cell, Column, Table

Label = Literal["exact"]
ENERGY = "energy of what this row counts, where the architecture gives it"


def known_sum(energies: Iterable[float | None]) -> float | None:
    """Return the sum of the energies that are known; None where none is."""
    known = [e for e in energies if e is not None]
    return sum(known) if known else None


@dataclass(frozen=True)
class TensorTraffic:
    """Bits of one tensor read from and written to one memory; `write` is None for an input.

    `note`: the assumption about the instances of the buffers that load it, empty if there is none. `energy`:
    joules of these bits, None where the architecture does not give the energy of all of them.
    """

    tensor: str
    read: int
    write: int | None = None
    note: str = ""
    energy: float | None = None

    @property
    def bits(self) -> int:
        return self.read + (self.write or 0)


@dataclass(frozen=True)
class MemoryTraffic:
    """All traffic of one Einsum between a memory and the buffers that load from it.

    `time`: bits divided by the bandwidth of all instances, in seconds; None where the architecture gives
    none. `energy`: joules of all traffic; None where that of some of it is not known.
    """

    memory: str
    moved: tuple[TensorTraffic, ...]
    time: float | None = None
    label: Label = "exact"

    def of(self, tensor: str) -> TensorTraffic:
        """Return the traffic of one tensor. Raises KeyError if the tensor does not move here."""
        for result in self.moved:
            if result.tensor == tensor:
                return result
        raise KeyError(f"{self.memory} moves no {tensor}; it moves {', '.join(m.tensor for m in self.moved)}")

    @property
    def energy(self) -> float | None:
        return None if any(m.energy is None for m in self.moved) else known_sum(m.energy for m in self.moved)

    @property
    def bits(self) -> int:
        return sum(m.bits for m in self.moved)


@dataclass(frozen=True)
class UnitWork:
    """The work of one unit (compute, intersector, merger, sequencer) in one Einsum: counts by name.

    `time`: the sum of the counts divided by clock frequency times instances, in seconds; None without a
    clock. `joules`: the energy of one operation, None where the architecture gives none.
    """

    unit: str
    counts: tuple[tuple[str, int], ...]
    time: float | None = None
    label: Label = "exact"
    joules: float | None = None

    @property
    def total(self) -> int:
        return sum(n for _, n in self.counts)

    @property
    def energy(self) -> float | None:
        """Joules of all operations that are counted."""
        return self.energy_of(self.total)

    def energy_of(self, count: int) -> float | None:
        """Return the joules of `count` operations."""
        return None if self.joules is None else count * self.joules


@dataclass(frozen=True)
class EinsumTraffic:
    """The traffic of one Einsum; memories and units are in the order of the architecture."""

    einsum: str
    memories: tuple[MemoryTraffic, ...]
    units: tuple[UnitWork, ...]

    def memory(self, name: str) -> MemoryTraffic:
        """Return the traffic of one memory. Raises KeyError if nothing moves to or from it."""
        for result in self.memories:
            if result.memory == name:
                return result
        raise KeyError(f"{self.einsum} moves nothing from {name}")

    def unit(self, name: str) -> UnitWork:
        """Return the work of one unit. Raises KeyError if the Einsum does not use it."""
        for result in self.units:
            if result.unit == name:
                return result
        raise KeyError(f"{self.einsum} does not use {name}")

    @property
    def times(self) -> dict[str, float | None]:
        """Seconds by component."""
        return {**{m.memory: m.time for m in self.memories}, **{u.unit: u.time for u in self.units}}

    @property
    def energies(self) -> dict[str, float | None]:
        """Joules by component."""
        return {**{m.memory: m.energy for m in self.memories}, **{u.unit: u.energy for u in self.units}}


@dataclass(frozen=True)
class CascadeTraffic(Answer):
    """The traffic of a cascade. `blocks`: fused Einsums run at the same time, so that a block takes as long
    as its busiest component (whose times in the Einsums of the block are added). `time`: the sum over blocks,
    in seconds. `generations`: the traffic of each generation, for a cascade that ran several times; all other
    numbers are sums over them."""

    einsums: tuple[EinsumTraffic, ...]
    blocks: tuple[tuple[str, ...], ...]
    time: float | None
    sources: tuple[str, ...] = field(default=(), repr=False, compare=False)
    generations: tuple[CascadeTraffic, ...] = field(default=(), repr=False)

    @declared(title="Bits moved")
    def memories(self) -> Table:
        """Bits read and written per Einsum, memory and tensor; `note` says what instances share."""
        columns = (
            Column("einsum"), Column("component"), Column("tensor"), Column("read_bits", "bit"),
            Column("write_bits", "bit"), Column("time", "s"), Column("energy", "J", words=ENERGY),
            Column("note"),
        )  # fmt: skip
        rows: list[tuple[Cell, ...]] = []
        for e in self.einsums:
            for memory in e.memories:
                time = memory.time
                for m in memory.moved:
                    where = (e.einsum, memory.memory, m.tensor)
                    rows.append((*where, m.read, m.write, time, m.energy, m.note))
                    time = None
        return Table("memories", columns, tuple(rows), self.notes)

    @declared(title="Work of units")
    def units(self) -> Table:
        """Counts per Einsum, unit and kind of operation."""
        columns = (
            Column("einsum"),
            Column("component"),
            Column("kind"),
            Column("count", "operation"),
            Column("time", "s"),
            Column("energy", "J", words=ENERGY),
        )
        rows: list[tuple[Cell, ...]] = []
        for e in self.einsums:
            for unit in e.units:
                time = unit.time
                for name, count in unit.counts:
                    rows.append((e.einsum, unit.unit, name, count, time, unit.energy_of(count)))
                    time = None
        return Table("units", columns, tuple(rows), self.notes)

    @property
    def notes(self) -> tuple[str, ...]:
        """Statements on which Einsums run at the same time, on the total time, and on the certainty of the
        numbers."""
        return tuple(self._notes())

    def _notes(self) -> Iterator[str]:
        yield "every number is an exact count on the actual data"
        if self.generations:
            yield f"the sum of {len(self.generations)} generations, which run one after the other"
        blocks = "; then ".join(
            " and ".join(block) + (" at once" if len(block) > 1 else "") for block in self.blocks
        )
        if blocks:
            yield f"order: {blocks}"
        if self.time is not None:
            yield f"time of all: {engineering(self.time, 's')}, each block as long as its busiest component"
        if self.energy is not None:
            lacking = ", ".join(self.without_energy)
            more = f", without {lacking}: the architecture gives these no energy" if lacking else ""
            yield f"energy of all: {engineering(self.energy, 'J')}{more}"

    @property
    def energy(self) -> float | None:
        """Joules of everything whose energy is known (see `without_energy` for the rest); None if nothing is
        known."""
        return known_sum(joules for e in self.einsums for joules in e.energies.values())

    @property
    def without_energy(self) -> tuple[str, ...]:
        """Components that move or count something, and whose energy the architecture does not give."""
        each = ((name, joules) for e in self.einsums for name, joules in e.energies.items())
        return tuple(dict.fromkeys(name for name, joules in each if joules is None))

    @property
    def title(self) -> str:
        """The heading of its page."""
        return f"Traffic of {', '.join(e.einsum for e in self.einsums)}"

    def content(self, live: bool = True) -> list[Block]:
        """Return the tables that have rows, and the notes."""
        spaced = [block for section in self.sections() for block in (section, Line())]
        return [*spaced, *notes(self.notes)]

    def sections(self) -> list[Section]:
        """Return the tables that have rows, without empty columns."""
        shown = ((d.title, self.table(n).bare().without_empty()) for n, d in self.declared.items())
        return [Section(title, table, opened=True) for title, table in shown if table.rows]

    def __repr__(self) -> str:
        times = f", {engineering(self.time, 's')}" if self.time is not None else ""
        return f"Traffic({', '.join(e.einsum for e in self.einsums)}{times})"

    def einsum(self, name: str) -> EinsumTraffic:
        """Return one Einsum by the name of its output. Raises KeyError if there is none."""
        for result in self.einsums:
            if result.einsum == name:
                return result
        raise KeyError(f"no Einsum {name}; there are {', '.join(e.einsum for e in self.einsums)}")

    def rows(self) -> Iterator[dict[str, str | int | float | None]]:
        """Yield one row per Einsum, component and tensor or count; times are in the first row of a
        component."""
        for e in self.einsums:
            for memory in e.memories:
                time: float | None = memory.time
                for m in memory.moved:
                    row = _row(
                        e.einsum, memory.memory, m.tensor, m.read, m.write, time, m.energy, memory.label
                    )
                    yield row | {"note": m.note}
                    time = None
            for unit in e.units:
                time = unit.time
                for name, count in unit.counts:
                    joules = unit.energy_of(count)
                    yield _row(e.einsum, unit.unit, name, count, None, time, joules, unit.label)
                    time = None

    def metrics(self) -> dict[str, object]:
        """Return the same numbers nested like the report of TeAAL's generated code."""
        result: dict[str, object] = {}
        for e in self.einsums:
            by_component: dict[str, dict[str, object]] = {}
            for memory in e.memories:
                moved: dict[str, object] = {}
                for m in memory.moved:
                    moved[m.tensor] = {"read": m.read} | ({} if m.write is None else {"write": m.write})
                by_component[memory.memory] = moved | {"time": memory.time}
            for unit in e.units:
                by_component[unit.unit] = dict(unit.counts) | {"time": unit.time}
            result[e.einsum] = by_component
        return result | {"blocks": [list(b) for b in self.blocks], "time": self.time}


def _row(
    einsum: str,
    component: str,
    what: str,
    read: int,
    write: int | None,
    time: float | None,
    energy: float | None,
    label: str,
) -> dict[str, str | int | float | None]:
    return {
        "einsum": einsum,
        "component": component,
        "what": what,
        "read_bits_or_count": read,
        "write_bits": write,
        "time_s": time,
        "energy_j": energy,
        "label": label,
        "note": "",
    }


# Generations of a cascade that runs again and again.


def summed(generations: Sequence[CascadeTraffic]) -> CascadeTraffic:
    """Return the total traffic and work of generations that run one after the other."""
    einsums = tuple(_together(same) for same in zip(*(g.einsums for g in generations), strict=True))
    time = _total(g.time for g in generations)
    first = generations[0]
    return CascadeTraffic(einsums, first.blocks, time, first.sources, tuple(generations))


def _together(same: Sequence[EinsumTraffic]) -> EinsumTraffic:
    """Return the sum of one Einsum over all generations."""
    memories: dict[str, list[MemoryTraffic]] = {}
    units: dict[str, list[UnitWork]] = {}
    for e in same:
        for memory in e.memories:
            memories.setdefault(memory.memory, []).append(memory)
        for unit in e.units:
            units.setdefault(unit.unit, []).append(unit)
    moved = tuple(
        MemoryTraffic(n, _moved(each), _total(m.time for m in each)) for n, each in memories.items()
    )
    return EinsumTraffic(same[0].einsum, moved, tuple(_work(each) for each in units.values()))


def _moved(each: Sequence[MemoryTraffic]) -> tuple[TensorTraffic, ...]:
    tensors: dict[str, list[TensorTraffic]] = {}
    for m in (m for memory in each for m in memory.moved):
        tensors.setdefault(m.tensor, []).append(m)
    result = []
    for tensor, parts in tensors.items():
        writes = [m.write for m in parts if m.write is not None]
        said = "; ".join(dict.fromkeys(m.note for m in parts if m.note))
        energy = _total(m.energy for m in parts)
        read = sum(m.read for m in parts)
        result.append(TensorTraffic(tensor, read, sum(writes) if writes else None, said, energy))
    return tuple(result)


def _work(each: Sequence[UnitWork]) -> UnitWork:
    counts: dict[str, int] = {}
    for name, count in (pair for unit in each for pair in unit.counts):
        counts[name] = counts.get(name, 0) + count
    return replace(each[0], counts=tuple(counts.items()), time=_total(u.time for u in each))


def _total(parts: Iterable[float | None]) -> float | None:
    """Return the sum; None where a part is not known."""
    known = list(parts)
    return None if any(p is None for p in known) else sum(p for p in known if p is not None)
