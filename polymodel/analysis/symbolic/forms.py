"""Closed forms as data: sums of products of atoms, maxima over phases, and counts made of them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import fields, replace
from functools import cached_property, lru_cache
from typing import TYPE_CHECKING, Any, TypeVar

from polymodel.analysis.result import (
    Analysis,
    Buffet,
    ComputeCounts,
    InstanceLoad,
    LinkTraffic,
    RefillLoad,
    Resident,
    TollTraffic,
    Traffic,
    WholeActions,
    WorkingSet,
    mapped,
)
from polymodel.analysis.symbolic.atoms import INTEGERS, Atom, ChainLevel, Leaf, RoundedActions, Size, atom
from polymodel.analysis.symbolic.listings import DistinctValues
from polymodel.analysis.symbolic.pair_atoms import StepOverlap, Tabled
from polymodel.errors import NotSeparable
from polymodel.frozen import dataclass

if TYPE_CHECKING:
    from polymodel.analysis.symbolic.pipelines import PipelineForms

Factor = Atom | RoundedActions | StepOverlap | DistinctValues | Tabled
Product = tuple[Factor, ...]


_ONE: tuple[tuple[Product, int], ...] = (((), 1),)  # the terms of the number 1


def _key(a: Factor) -> tuple[str, ...]:
    if isinstance(a, StepOverlap):
        return (repr(a.p), repr(a.r), repr((a.a, a.b, a.any)))
    if isinstance(a, DistinctValues):
        return (repr(a.sides), repr(a.factors))
    if isinstance(a, RoundedActions):
        return (repr(a.chains), repr((a.bits, a.each)))
    if isinstance(a, Tabled):
        return (repr(a.region), repr(a.chains), repr(a))
    return (str(a.extent), repr(a.levels), repr(a.leaf))


@dataclass(frozen=True)
class Form:
    """`sum of coefficient * product of atoms`: integer-valued, exact for every tile size.

    The coefficient of the empty product is the constant. Forms are equal if their terms are.
    """

    terms: tuple[tuple[Product, int], ...] = ()

    @cached_property
    def symbols(self) -> frozenset[str]:
        return frozenset(s for product, _ in self.terms for a in product for s in a.symbols)

    @property
    def constant(self) -> int | None:
        """The number, if it depends on no symbol."""
        if not self.terms:
            return 0
        if len(self.terms) == 1 and not self.terms[0][0]:
            return self.terms[0][1]
        return None

    def __add__(self, other: Form | int) -> Form:
        if isinstance(other, int):
            other = number(other)
        if not other.terms or not self.terms:
            return self if self.terms else other
        return _collected([*self.terms, *other.terms])

    def __sub__(self, other: Form | int) -> Form:
        return self + other * -1

    def __mul__(self, other: Form | int) -> Form:
        if isinstance(other, int):
            return Form(tuple((p, c * other) for p, c in self.terms)) if other else Form()
        if other.terms == _ONE:
            return self
        if self.terms == _ONE:
            return other
        scale = other.constant  # without symbols forms are numbers
        if scale is not None:
            return self * scale
        return _collected(
            (tuple(sorted((*p, *q), key=_key)), c * d) for p, c in self.terms for q, d in other.terms
        )

    def at(self, values: Mapping[str, int]) -> int:
        """The number for given symbols (each name -> int). Raises KeyError if one is missing."""
        total = 0
        for product, coefficient in self.terms:
            for a in product:
                coefficient *= _number(a, values)
            total += coefficient
        return total


class _FactorValues(dict[str, int]):
    """Values of symbols, with the factors that were evaluated for them: many forms have common factors."""

    def __init__(self, values: Mapping[str, int]) -> None:
        super().__init__(values)
        self.known: dict[Factor, int] = {}


def _number(a: Factor, values: Mapping[str, int]) -> int:
    if not isinstance(values, _FactorValues):
        return int(a.value(INTEGERS, values))
    if a not in values.known:
        values.known[a] = int(a.value(INTEGERS, values))
    return values.known[a]


def _collected(terms: Iterable[tuple[Product, int]]) -> Form:
    result: dict[Product, int] = {}
    for product, coefficient in terms:
        result[product] = result.get(product, 0) + coefficient
    return Form(tuple((p, c) for p, c in result.items() if c))


ZERO = Form()


def number(n: int) -> Form:
    """A constant form."""
    return Form((((), n),)) if n else ZERO


def of_atom(a: Factor) -> Form:
    """One atom as a form; its number if it depends on no symbol."""
    if isinstance(a, Atom) and not a.levels and a.leaf.kind == "one":
        return number(1)  # no space is empty
    if not a.symbols:
        return number(_number(a, {}))
    return Form((((a,), 1),))


@lru_cache(maxsize=8192)  # a mapping needs the same sums in many places, and under each reuse policy again
def summed(extent: Size, levels: tuple[ChainLevel, ...], leaf: Leaf) -> Form:
    """The sum of `leaf` over the tiles that the levels cut from an extent."""
    return of_atom(atom(extent, levels, leaf))


def product(forms: Iterable[Form]) -> Form:
    result = number(1)
    for f in forms:
        result = result * f
    return result


@dataclass(frozen=True)
class HeldBuffet:
    """One buffet in a working set: `ceil(elements * bits * numerator / denominator) * count` bits."""

    node: int
    tensor: str
    elements: Form
    bits: int
    numerator: int = 1
    denominator: int = 1
    count: int = 1

    def of(self, elements: Form) -> HeldBuffet:
        """The same buffet with a given number of elements."""
        return self if elements is self.elements else replace(self, elements=elements)

    def at(self, values: Mapping[str, int]) -> int:
        bits = self.elements.at(values) * self.bits * self.numerator
        return -(-bits // self.denominator) * self.count


@dataclass(frozen=True)
class PeakForm:
    """The largest of several sums of buffets, one sum per phase that may be the peak."""

    phases: tuple[tuple[HeldBuffet, ...], ...]

    @cached_property
    def symbols(self) -> frozenset[str]:
        return frozenset(s for phase in self.phases for h in phase for s in h.elements.symbols)

    def at(self, values: Mapping[str, int]) -> tuple[int, tuple[tuple[HeldBuffet, int], ...]]:
        """(bits at the peak, the buffets and their elements at it)."""
        best: tuple[int, tuple[tuple[HeldBuffet, int], ...]] = (0, ())
        for phase in self.phases:
            each = tuple((h, h.at(values)) for h in phase)
            total = sum(n for _, n in each)
            if total > best[0]:
                best = total, each
        return best


def leading(phases: Sequence[tuple[Form, tuple[HeldBuffet, ...]]]) -> tuple[tuple[HeldBuffet, ...], ...]:
    """The phases that may be the peak, from pairs (1 if there is such a phase, what is held then).

    Omitted: a phase if another one that exists whenever it does holds at least the same, and, of the phases
    that depend on no symbol, all but the largest.
    """
    bits: dict[HeldBuffet, int] = {}
    found: dict[tuple[frozenset[Factor | Form], int], tuple[HeldBuffet, ...]] = {}
    for there, held in phases:
        here = tuple(h for h in held if h.elements != ZERO)
        if there == ZERO or not here:
            continue
        every = sum(1 << bits.setdefault(h, len(bits)) for h in here)
        found[_conditions(there), every] = tuple(h.of(h.elements * there) for h in here)
    kept = [
        phase
        for (there, every), phase in found.items()
        if not any(
            (other, more) != (there, every) and other <= there and every & ~more == 0 for other, more in found
        )
    ]
    fixed = (p for p in kept if _is_fixed(p))
    largest = max(fixed, key=lambda p: sum(h.at({}) for h in p), default=())
    return tuple(p for p in kept if p is largest or not _is_fixed(p))


def _is_fixed(phase: tuple[HeldBuffet, ...]) -> bool:
    return all(h.elements.constant is not None for h in phase)


def _conditions(there: Form) -> frozenset[Factor | Form]:
    """Factors of a form that is 0 or 1, which is 1 if all of them are."""
    ((factors, coefficient), *rest) = there.terms
    return frozenset(factors) if coefficient == 1 and not rest else frozenset((there,))


# What the symbolic engine returns: the records of `analysis.result`, with forms as numbers.

NONE = ((0, 0),)  # loads of rows that move nothing
TRAFFIC = ("reads_fill", "reads_drain", "writes_fill", "writes_drain")
READS = TRAFFIC[:2]


@dataclass(frozen=True)
class WorkingSetForm:
    """`analysis.result.WorkingSet`: the largest of several phases."""

    component: str
    einsum: str
    measure: str
    peak: PeakForm

    @property
    def bits(self) -> PeakForm:
        return self.peak

    @property
    def residents(self) -> tuple[Resident, ...]:
        """None: which phase is the peak, and so its residents, depends on the values of the symbols."""
        return ()

    def at(self, values: Mapping[str, int]) -> WorkingSet:
        return self.with_peak(*_residents_at(self.peak, values))

    def with_peak(self, bits: int, residents: tuple[Resident, ...]) -> WorkingSet:
        return WorkingSet(self.component, self.einsum, self.measure, bits, residents)


def _residents_at(peak: PeakForm, values: Mapping[str, int]) -> tuple[int, tuple[Resident, ...]]:
    bits, held = peak.at(values)
    return bits, tuple(Resident(h.node, h.tensor, n) for h, n in held if n)


@dataclass(frozen=True)
class Larger:
    """The larger of a loop's tile and its first tile; it encloses the tiles of the next loop."""

    tile: int | str
    start: int | str


@dataclass(frozen=True)
class Widest:
    """The widest window, `scale * tile + more`; it encloses the own tiles of an inferred Einsum."""

    tile: str | Larger
    scale: int
    more: int


@dataclass(frozen=True)
class Spanned:
    """The widest window of a sum of variables: `1 + sum of factor * (size - 1)`, at most each of `most`."""

    most: tuple[ChainSize, ...]
    terms: tuple[tuple[int, ChainSize], ...]


ChainSize = int | str | Larger | Widest | Spanned
Chain = tuple[ChainSize, ...]


def names_in(chain: Chain) -> Iterator[str]:
    """The symbols of a chain."""
    for s in chain:
        if isinstance(s, Widest):
            yield from names_in((s.tile,))
        elif isinstance(s, Spanned):
            yield from names_in((*s.most, *(size for _, size in s.terms)))
        elif isinstance(s, Larger):
            yield from names_in((s.start, s.tile))
        elif isinstance(s, str):
            yield s


def size_in(s: ChainSize, values: Mapping[str, Any], most: Callable[[Any, Any], Any] = max) -> Any:
    """One size of a chain for given symbols: numbers, or arrays or expressions with their own `most`.

    Raises KeyError if one is missing.
    """
    if isinstance(s, int):
        return s
    if isinstance(s, Larger):
        return most(size_in(s.tile, values), size_in(s.start, values))
    if isinstance(s, Spanned):
        width = 1 + sum(factor * (size_in(size, values, most) - 1) for factor, size in s.terms)
        for size in s.most:
            width = -most(-width, -size_in(size, values, most))
        return width
    return s.scale * size_in(s.tile, values, most) + s.more if isinstance(s, Widest) else values[s]


@dataclass(frozen=True)
class SymbolicAnalysis:
    """Everything that is counted, as closed forms.

    `symbols`: names of all tile sizes that are symbols; `chains`: per Einsum and rank variable its extent and
    then its loops' tiles, outermost first (a tile is legal if it is at most the one before it); a loop with a
    first tile of its own adds a chain for either size. `fanouts`: per Einsum, component and its dimension,
    the number of instances that the spatial loops need. `single_trips`: 1 if a loop runs only once, for loops
    whose chain has a first tile of its own. `same`: extents that must be equal, and the tensor or loop that
    requires it. `lives`: by node and tensor the most elements that are live at the same time, if requested.
    """

    buffets: tuple[Buffet[Form], ...]
    traffic: tuple[Traffic[Form], ...]
    compute: tuple[ComputeCounts[Form], ...]
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
    whole: tuple[WholeActions[Form], ...] = ()
    lives: tuple[tuple[int, str, PeakForm], ...] = ()
    pipelines: tuple[PipelineForms, ...] = ()

    @cached_property
    def coupled_symbols(self) -> frozenset[frozenset[str]]:
        """Symbols on which one factor depends, of one chain or of several: windows over two rank variables,
        and a producer's loops below those of the consumer that it is inferred from."""
        atoms = {a for form in self._forms() for product, _ in form.terms for a in product}
        return frozenset(a.symbols for a in atoms if len(a.symbols) > 1)

    def _forms(self) -> Iterator[Form]:
        moving = (*self.loads, *self.tolls, *self.refills, *self.links, *self.whole)
        rows = (*self.buffets, *self.traffic, *self.compute, *moving)
        for row in rows:
            yield from (value for value in vars(row).values() if isinstance(value, Form))
            yield from (x for pair in vars(row).get("loads", ()) for x in pair)
        for link in self.links:
            yield from (hops for _, hops in link.hops)
        for sets in self.working_sets:
            yield from (held.elements for phase in sets.peak.phases for held in phase)
        for run in self.pipelines:
            yield from run.forms

    def at(self, values: Mapping[str, int]) -> Analysis:
        """The numbers for given symbols (name -> int): what the other engines return.

        Tiles must be legal (1 to the enclosing extent), which is not checked.
        """

        values = _FactorValues(values)

        def numbers(rows: tuple[Any, ...]) -> tuple[Any, ...]:
            return tuple(mapped(row, Form, lambda form: form.at(values)) for row in rows)

        # Einsums below the same nodes have the same phases.
        peaks = {id(r.peak.phases): r.peak for r in self.working_sets}
        held = {phases: _residents_at(peak, values) for phases, peak in peaks.items()}
        working = (r.with_peak(*held[id(r.peak.phases)]) for r in self.working_sets)
        lives = {(node, tensor): peak.at(values)[0] for node, tensor, peak in self.lives}
        buffets = tuple(replace(b, live=lives.get((b.node, b.tensor))) for b in numbers(self.buffets))
        return Analysis(
            "symbolic",
            buffets,
            numbers(self.traffic),
            numbers(self.compute),
            tuple(r for r in map(_busiest, numbers(self.loads)) if r.loads != NONE),
            tuple(r for r in working if r.bits),
            tuple(r for r in numbers(self.tolls) if r.down or r.up),
            refills=_refilled(numbers(self.refills)),
            links=_crossed(numbers(self.links)),
            whole=numbers(self.whole),
            pipelines=tuple(run.at(values) for run in self.pipelines),
        )


def _busiest(row: InstanceLoad) -> InstanceLoad:
    """The row with only its Pareto-maximal pairs of loads."""
    if len(row.loads) == 1:
        return row
    pairs = sorted(set(row.loads))
    kept = [p for p in pairs if not any(q != p and q[0] >= p[0] and q[1] >= p[1] for q in pairs)]
    return replace(row, loads=tuple(kept))


def _crossed(rows: tuple[LinkTraffic, ...]) -> tuple[LinkTraffic, ...]:
    """Return the links with any transfers, and these transfers."""
    moved = (replace(r, hops=tuple((t, n) for t, n in r.hops if n)) for r in rows)
    return tuple(r for r in moved if r.hops or any(map(any, r.loads)))


def _refilled(rows: tuple[RefillLoad, ...]) -> tuple[RefillLoad, ...]:
    """Return refills with any transfers, and the remaining work of components at their ends."""
    moving = tuple(r for r in rows if r.loads != NONE)
    ends = {(r.einsum, r.component) for r in moving if r.storage}
    return tuple(r for r in rows if (r.einsum, r.component) in ends and (r in moving or not r.storage))


# One form out of several cases; in each case certain loops have one trip, and others more.
#
# What stays under `slide` depends on which loop is the innermost one that moves a tile, and so on whether the
# loops further in have a single trip: tile sizes decide that. Each case has forms of its own; the result is
# their sum, each times a form that is 1 where its case holds.

World = tuple[Form, SymbolicAnalysis]
Row = TypeVar(
    "Row",
    Buffet[Form],
    Traffic[Form],
    ComputeCounts[Form],
    InstanceLoad[Form],
    TollTraffic[Form],
    RefillLoad[Form],
    LinkTraffic[Form],
    WholeActions[Form],
)
Phase = tuple[HeldBuffet, ...]


def joined(worlds: Sequence[World]) -> SymbolicAnalysis:
    """All cases in one; for any legal tiles the condition of exactly one case is 1."""
    if len(worlds) == 1:
        return worlds[0][1]
    first = worlds[0][1]
    if first.pipelines:
        raise NotSeparable(
            "what stays beside a Pipeline depends on whether loops have one trip",
            code="unsupported-pipeline",
        )
    return replace(
        first,
        buffets=_rows([(w, a.buffets) for w, a in worlds]),
        traffic=_rows([(w, a.traffic) for w, a in worlds]),
        compute=_rows([(w, a.compute) for w, a in worlds]),
        loads=_rows([(w, a.loads) for w, a in worlds]),
        tolls=_rows([(w, a.tolls) for w, a in worlds]),
        refills=_rows([(w, a.refills) for w, a in worlds]),
        links=_rows([(w, a.links) for w, a in worlds]),
        working_sets=_working_sets(worlds),
        whole=_rows([(w, a.whole) for w, a in worlds]),
        # Conditions on tiles in one case hold in the others too, since their sizes are at least as large.
        chains=tuple(dict.fromkeys(chain for _, a in worlds for chain in a.chains)),
        fanouts=_fanouts(worlds),
        single_trips=tuple(dict.fromkeys(form for _, a in worlds for form in a.single_trips)),
        same=tuple({pair[:2]: pair for _, a in worlds for pair in a.same}.values()),
    )


def _fanouts(worlds: Sequence[World]) -> tuple[tuple[str, str, str, Form], ...]:
    """The number of instances that loops need in each case."""
    result: dict[tuple[str, str, str], list[tuple[Form, Form]]] = {}
    for world, analysis in worlds:
        for einsum, component, dim, form in analysis.fanouts:
            result.setdefault((einsum, component, dim), []).append((world, form))
    return tuple((*key, _sum(parts, len(worlds))) for key, parts in result.items())


def _rows(tables: Sequence[tuple[Form, tuple[Row, ...]]]) -> tuple[Row, ...]:
    longest = max((table for _, table in tables), key=len)
    result: dict[tuple[object, ...], list[tuple[Form, Row]]] = {_subject(row): [] for row in longest}
    for world, table in tables:
        for row in table:
            result.setdefault(_subject(row), []).append((world, row))
    return tuple(_row(rows, len(tables)) for rows in result.values())


def _subject(row: Row) -> tuple[object, ...]:
    """The key of a row: everything in it that is not a number."""
    values = ((f.name, getattr(row, f.name)) for f in fields(row))
    return tuple(v for name, v in values if name not in ("loads", "hops") and not isinstance(v, Form))


def _row(rows: list[tuple[Form, Row]], worlds: int) -> Row:
    """The sum of the cases of one row; in a case without the row nothing moves."""
    first = rows[0][1]
    changed: dict[str, Any] = {}
    for f in fields(first):
        value = getattr(first, f.name)
        if isinstance(value, Form):
            changed[f.name] = _sum([(world, getattr(row, f.name)) for world, row in rows], worlds)
        elif f.name == "hops":
            changed[f.name] = _hops(rows, worlds)
        elif f.name == "loads" and value:
            changed[f.name] = _loads(rows, worlds)
    return replace(first, **changed)


def _hops(rows: Sequence[tuple[Form, Any]], worlds: int) -> tuple[tuple[str, Form], ...]:
    """Element-hops by tensor; the order is that of the case with most tensors."""
    names = dict.fromkeys(t for _, row in sorted(rows, key=lambda x: -len(x[1].hops)) for t, _ in row.hops)
    each = {t: [(world, n) for world, row in rows for name, n in row.hops if name == t] for t in names}
    return tuple((t, _sum(parts, worlds)) for t, parts in each.items())


def _loads(rows: Sequence[tuple[Form, Any]], worlds: int) -> tuple[tuple[Form, Form], ...]:
    """Reads and writes of instances that may be the busiest; nothing for the others in cases with fewer of
    them."""
    result: dict[tuple[Form, Form], None] = {}
    for k in range(max(len(row.loads) for _, row in rows)):
        there = [(world, row.loads[k]) for world, row in rows if k < len(row.loads)]
        reads, writes = ([(world, pair[side]) for world, pair in there] for side in (0, 1))
        result[_sum(reads, worlds), _sum(writes, worlds)] = None
    return tuple(result)


def _sum(parts: list[tuple[Form, Form]], worlds: int) -> Form:
    if len(parts) == worlds and all(form == parts[0][1] for _, form in parts):
        return parts[0][1]
    total = ZERO
    for world, form in parts:
        total = total + world * form
    return total


def _working_sets(worlds: Sequence[World]) -> tuple[WorkingSetForm, ...]:
    """Phases of all cases; a phase that is not the same in all of them is empty outside its own case."""
    result: dict[tuple[str, str, str], tuple[WorkingSetForm, dict[Phase, list[Form]]]] = {}
    for world, analysis in worlds:
        for row in analysis.working_sets:
            key = row.component, row.einsum, row.measure
            phases = result.setdefault(key, (row, {}))[1]
            for phase in row.peak.phases:
                phases.setdefault(phase, []).append(world)
    return tuple(
        replace(
            row,
            peak=PeakForm(
                tuple(p for phase, where in phases.items() for p in _within(phase, where, len(worlds)))
            ),
        )
        for row, phases in result.values()
    )


def _within(phase: Phase, where: list[Form], worlds: int) -> list[Phase]:
    if len(where) == worlds:
        return [phase]
    return [tuple(replace(h, elements=world * h.elements) for h in phase) for world in where]
