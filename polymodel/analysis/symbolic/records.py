"""What the symbolic engine returns: the records of `analysis.result` with forms for numbers."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from polymodel.analysis.result import (
    Analysis,
    Buffet,
    Compute,
    InstanceLoad,
    Resident,
    TollTraffic,
    Traffic,
    WorkingSet,
)
from polymodel.analysis.symbolic.forms import ZERO, Form, Peak
from polymodel.reuse import Reuse

TRAFFIC = ("reads_fill", "reads_drain", "writes_fill", "writes_drain")


@dataclass(frozen=True)
class BuffetForm:
    """`analysis.result.Buffet`, in elements."""

    node: int
    component: str
    tensor: str
    reuse: Reuse
    einsums: tuple[str, ...]
    parent: int | None
    tile_max: Form
    tile_total: Form
    visits: Form
    instances: Form
    distinct: Form

    def at(self, values: Mapping[str, int]) -> Buffet:
        numbers = (self.tile_max, self.tile_total, self.visits, self.instances, self.distinct)
        return Buffet(
            self.node, self.component, self.tensor, self.reuse, self.einsums, self.parent,
            *(n.at(values) for n in numbers),
        )  # fmt: skip


@dataclass(frozen=True)
class TrafficForm:
    """`analysis.result.Traffic`, in elements."""

    einsum: str
    node: int
    component: str
    tensor: str
    reads_fill: Form = ZERO
    reads_drain: Form = ZERO
    writes_fill: Form = ZERO
    writes_drain: Form = ZERO

    def at(self, values: Mapping[str, int]) -> Traffic:
        numbers = (getattr(self, kind).at(values) for kind in TRAFFIC)
        return Traffic(self.einsum, self.node, self.component, self.tensor, *numbers)


@dataclass(frozen=True)
class TollForm:
    """`analysis.result.TollTraffic`, in elements."""

    einsum: str
    component: str
    tensor: str
    down: Form
    up: Form

    def at(self, values: Mapping[str, int]) -> TollTraffic:
        return TollTraffic(self.einsum, self.component, self.tensor, self.down.at(values), self.up.at(values))


@dataclass(frozen=True)
class ComputeForm:
    """`analysis.result.Compute`, in operations."""

    einsum: str
    component: str
    operations: Form
    busiest: Form
    instances: Form

    def at(self, values: Mapping[str, int]) -> Compute:
        numbers = (self.operations, self.busiest, self.instances)
        return Compute(self.einsum, self.component, *(n.at(values) for n in numbers))


@dataclass(frozen=True)
class LoadForm:
    """`analysis.result.InstanceLoad`: bits that the first instance, the busiest, reads and writes."""

    einsum: str
    component: str
    reads: Form
    writes: Form
    instances: Form

    def at(self, values: Mapping[str, int]) -> InstanceLoad:
        load = (self.reads.at(values), self.writes.at(values))
        return InstanceLoad(self.einsum, self.component, (load,), self.instances.at(values))


@dataclass(frozen=True)
class WorkingSetForm:
    """`analysis.result.WorkingSet`: the largest of several phases."""

    component: str
    einsum: str
    measure: str
    peak: Peak

    def at(self, values: Mapping[str, int]) -> WorkingSet:
        bits, held = self.peak.at(values)
        residents = tuple(Resident(h.node, h.tensor, n) for h, n in held if n)
        return WorkingSet(self.component, self.einsum, self.measure, bits, residents)


@dataclass(frozen=True)
class Larger:
    """The larger one of a loop's tile and its first tile, in which the tiles of the next loop stand."""

    tile: int | str
    start: int | str


@dataclass(frozen=True)
class Widest:
    """The widest window, `scale * tile + more`, in which own tiles of an inferred Einsum stand."""

    tile: str | Larger
    scale: int
    more: int


ChainSize = int | str | Larger | Widest
Chain = tuple[ChainSize, ...]


def names_in(chain: Chain) -> Iterator[str]:
    """The symbols of a chain."""
    for s in chain:
        if isinstance(s, Widest):
            yield from names_in((s.tile,))
        elif isinstance(s, Larger):
            yield from names_in((s.start, s.tile))
        elif isinstance(s, str):
            yield s


def size_in(s: ChainSize, values: Mapping[str, Any], most: Callable[[Any, Any], Any] = max) -> Any:
    """One size of a chain for given symbols: numbers, or arrays or expressions with a `most` of theirs.

    KeyError if one is missing.
    """
    if isinstance(s, int):
        return s
    if isinstance(s, Larger):
        return most(size_in(s.tile, values), size_in(s.start, values))
    return s.scale * size_in(s.tile, values, most) + s.more if isinstance(s, Widest) else values[s]


@dataclass(frozen=True)
class SymbolicAnalysis:
    """Everything that is counted, as closed forms.

    `symbols`: names of all tile sizes that are symbols; `chains`: per Einsum and rank variable its extent
    and then its loops' tiles, outermost first (a tile is legal if it is at most the one before it); a loop
    with a first tile of its own adds a chain for either size.
    `fanouts`: per Einsum, component and its dimension, how many instances the spatial loops need.
    `single_trips`: 1 where a loop runs only once, for loops whose chain has a first tile of its own.
    `same`: extents that must be equal, and the tensor or loop that asks for it.
    """

    buffets: tuple[BuffetForm, ...]
    traffic: tuple[TrafficForm, ...]
    compute: tuple[ComputeForm, ...]
    loads: tuple[LoadForm, ...]
    working_sets: tuple[WorkingSetForm, ...]
    tolls: tuple[TollForm, ...] = ()
    symbols: tuple[str, ...] = ()
    chains: tuple[Chain, ...] = ()
    fanouts: tuple[tuple[str, str, str, Form], ...] = ()
    single_trips: tuple[Form, ...] = ()
    same: tuple[tuple[int | str, int | str, str], ...] = ()

    @cached_property
    def meetings(self) -> frozenset[frozenset[str]]:
        """Symbols on which one factor depends, of one chain or of several: windows over two rank variables,
        and a producer's loops below those of the consumer that it is inferred from."""
        atoms = {a for form in self._forms() for product, _ in form.terms for a in product}
        return frozenset(a.symbols for a in atoms if len(a.symbols) > 1)

    def _forms(self) -> Iterator[Form]:
        for row in (*self.buffets, *self.traffic, *self.compute, *self.loads, *self.tolls):
            yield from (value for value in vars(row).values() if isinstance(value, Form))
        for sets in self.working_sets:
            yield from (held.elements for phase in sets.peak.phases for held in phase)

    def at(self, values: Mapping[str, int]) -> Analysis:
        """The numbers for given symbols (name -> int): what the other engines return.

        Tiles must be legal (1 to the enclosing extent); that is the caller's business.
        """
        loads = (r.at(values) for r in self.loads)
        working = (r.at(values) for r in self.working_sets)
        tolls = (r.at(values) for r in self.tolls)
        return Analysis(
            "symbolic",
            tuple(r.at(values) for r in self.buffets),
            tuple(r.at(values) for r in self.traffic),
            tuple(r.at(values) for r in self.compute),
            tuple(r for r in loads if r.loads != ((0, 0),)),
            tuple(r for r in working if r.bits),
            tuple(r for r in tolls if r.down or r.up),
        )
