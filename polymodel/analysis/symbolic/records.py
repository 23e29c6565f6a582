"""What the symbolic engine returns: the records of `analysis.result`, whose numbers are forms."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

from polymodel.analysis.result import (
    Analysis,
    Buffet,
    Compute,
    InstanceLoad,
    LinkTraffic,
    RefillLoad,
    Resident,
    TollTraffic,
    Traffic,
    WorkingSet,
    mapped,
)
from polymodel.analysis.symbolic.forms import Form, Peak

NONE = ((0, 0),)  # loads of what moves nothing
TRAFFIC = ("reads_fill", "reads_drain", "writes_fill", "writes_drain")


@dataclass(frozen=True)
class WorkingSetForm:
    """`analysis.result.WorkingSet`: the largest of several phases."""

    component: str
    einsum: str
    measure: str
    peak: Peak

    @property
    def bits(self) -> Peak:
        return self.peak

    @property
    def residents(self) -> tuple[Resident, ...]:
        """Which of the phases is the peak, and so who is in it, is known at values only."""
        return ()

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

    buffets: tuple[Buffet[Form], ...]
    traffic: tuple[Traffic[Form], ...]
    compute: tuple[Compute[Form], ...]
    loads: tuple[InstanceLoad[Form], ...]
    working_sets: tuple[WorkingSetForm, ...]
    tolls: tuple[TollTraffic[Form], ...] = ()
    refills: tuple[RefillLoad[Form], ...] = ()
    links: tuple[LinkTraffic[Form], ...] = ()
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
        moving = (*self.loads, *self.tolls, *self.refills, *self.links)
        rows = (*self.buffets, *self.traffic, *self.compute, *moving)
        for row in rows:
            yield from (value for value in vars(row).values() if isinstance(value, Form))
            yield from (x for pair in vars(row).get("loads", ()) for x in pair)
        for link in self.links:
            yield from (hops for _, hops in link.hops)
        for sets in self.working_sets:
            yield from (held.elements for phase in sets.peak.phases for held in phase)

    def at(self, values: Mapping[str, int]) -> Analysis:
        """The numbers for given symbols (name -> int): what the other engines return.

        Tiles must be legal (1 to the enclosing extent); that is the caller's business.
        """

        def numbers(rows: tuple[Any, ...]) -> tuple[Any, ...]:
            return tuple(mapped(row, Form, lambda form: form.at(values)) for row in rows)

        working = (r.at(values) for r in self.working_sets)
        return Analysis(
            "symbolic",
            numbers(self.buffets),
            numbers(self.traffic),
            numbers(self.compute),
            tuple(r for r in numbers(self.loads) if r.loads != NONE),
            tuple(r for r in working if r.bits),
            tuple(r for r in numbers(self.tolls) if r.down or r.up),
            refills=_refilled(numbers(self.refills)),
            links=_crossed(numbers(self.links)),
        )


def _crossed(rows: tuple[LinkTraffic, ...]) -> tuple[LinkTraffic, ...]:
    """Links that anything crosses, and what does."""
    moved = (replace(r, hops=tuple((t, n) for t, n in r.hops if n)) for r in rows)
    return tuple(r for r in moved if r.hops)


def _refilled(rows: tuple[RefillLoad, ...]) -> tuple[RefillLoad, ...]:
    """Refills that move anything, and what is left at components that are an end of any."""
    moving = tuple(r for r in rows if r.loads != NONE)
    ends = {(r.einsum, r.component) for r in moving if r.storage}
    return tuple(r for r in rows if (r.einsum, r.component) in ends and (r in moving or not r.storage))
