"""The exchanges of chips that share a cascade: sets of elements from the relations, and the links they cross.

Each Einsum is split over the chips along one rank variable, in blocks of equal size, or computed by all of
them. A chip produces what its iterations write and needs what they read. An element is reduced if several
chips produce parts of it, and sent to the chips that need it and do not hold it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import inf
from typing import TYPE_CHECKING, Literal

from polymodel.errors import Diagnostic, Refused, SpecError
from polymodel.governor import look
from polymodel.polyhedra.members import points_by_members, united, within
from polymodel.spec.faults import Faults, TextFault, plainly
from polymodel.spec.numbers import ENERGY, RATE, Dimension, in_base_units, plain_number
from polymodel.workload.einsum import Cascade, Einsum

if TYPE_CHECKING:
    import islpy

Topology = Literal["ring", "mesh", "switch", "all-to-all"]
TOPOLOGIES = ("ring", "mesh", "switch", "all-to-all")
Chips = frozenset[int]
NONE = (0, -1)  # stands for the block of a chip without iterations
Link = tuple[object, object]  # source, destination
Bounds = tuple[tuple[str, int, int], ...]  # rank variables with inclusive bounds; others are whole


@dataclass(frozen=True)
class Interconnect:
    """Links between chips.

    `throughput`: bits per second of one link in one direction; `energy_per_bit_hop`: joules per bit and link
    crossed; both may have a unit, `50 GB/s` and `5 pJ`. `ring`: chip i is linked to i - 1 and i + 1; `mesh`:
    a grid of `shape` (rows, columns), numbered row by row; `switch`: each chip has one link to a switch and
    one from it; `all-to-all`: each pair has a link in each direction. Raises SpecError for an invalid
    topology or figure.
    """

    topology: Topology = "ring"
    throughput: float | str = inf
    energy_per_bit_hop: float | str = 0.0
    shape: tuple[int, int] | None = None

    def __post_init__(self) -> None:
        faults = Faults()
        if self.topology not in TOPOLOGIES:
            remedy = f"use one of {', '.join(TOPOLOGIES)}"
            message = f"{self.topology!r} is not a topology"
            faults.note(Diagnostic(message, remedy, "link.topology", code="wrong-type"))
        for name, dimension in (("throughput", RATE), ("energy_per_bit_hop", ENERGY)):
            value = _number(getattr(self, name), dimension)
            limitless = name == "throughput"  # a throughput may be infinite, an energy may not
            if value is None or not (value > 0 if limitless else 0 <= value < inf):
                what = f"{getattr(self, name)!r} is not a {dimension.name}"
                faults.note(
                    Diagnostic(what, f"write e.g. {dimension.examples}", f"link.{name}", code="wrong-type")
                )
            else:
                object.__setattr__(self, name, value)
        if (self.topology == "mesh") != (self.shape is not None):
            what = "a mesh needs its rows and columns" if self.shape is None else "only a mesh has a shape"
            faults.note(
                Diagnostic(
                    what,
                    "give the topology mesh and a shape such as (2, 4)",
                    "link.shape",
                    code="conflicting-arguments",
                )
            )
        elif self.shape is not None and not _is_shape(self.shape):
            message = f"{self.shape!r} is not a shape"
            faults.note(Diagnostic(message, "write e.g. (2, 4)", "link.shape", code="wrong-type"))
        faults.raise_if_any()

    def route(self, owner: int, others: Iterable[int], chips: int) -> tuple[tuple[Link, ...], ...]:
        """The links that an element crosses from its owner to other chips, each once where it is copied on
        the way.

        Several equally short routes are used in turn.
        """
        targets = sorted(set(others) - {owner})
        if self.topology == "ring":
            return _ring(owner, targets, chips)
        if self.topology == "mesh":
            assert self.shape is not None
            return (_mesh(owner, targets, self.shape[1]),)
        if self.topology == "switch":
            return (tuple(link for t in targets for link in ((owner, "switch"), ("switch", t))),)
        return (tuple((owner, t) for t in targets),)


def _number(value: object, dimension: Dimension) -> float | None:
    """A figure in the units of an architecture; None if it is invalid."""
    try:
        result = plainly(in_base_units(value, dimension))
    except TextFault:
        return None
    result = plain_number(result) if isinstance(result, str) else result
    return float(result) if isinstance(result, (int, float)) and not isinstance(result, bool) else None


def _is_shape(shape: object) -> bool:
    sides = shape if isinstance(shape, tuple) else ()
    return len(sides) == 2 and all(type(n) is int and n >= 1 for n in sides)


def _ring(owner: int, targets: Sequence[int], chips: int) -> tuple[tuple[Link, ...], ...]:
    """The shortest arcs in both directions that reach all targets.

    Of equally short ones, those whose longer arc is shorter.
    """
    ahead = sorted((t - owner) % chips for t in targets)
    ways = []
    for k in range(len(ahead) + 1):  # the first k are reached forwards, the others backwards
        right, left = (ahead[k - 1] if k else 0), (chips - ahead[k] if k < len(ahead) else 0)
        ways.append((right + left, max(right, left), right, left))
    best = min(way[:2] for way in ways)
    return tuple(
        (
            *(((owner + i) % chips, (owner + i + 1) % chips) for i in range(right)),
            *(((owner - i) % chips, (owner - i - 1) % chips) for i in range(left)),
        )
        for total, longest, right, left in ways
        if (total, longest) == best
    )


def _mesh(owner: int, targets: Sequence[int], columns: int) -> tuple[Link, ...]:
    """The route along the row of the owner first, then along the columns."""
    row, column = divmod(owner, columns)
    places = [divmod(t, columns) for t in targets]
    links: list[Link] = []
    for step, far in _spans(column, [c for _, c in places]):
        links += (
            ((row * columns + c), row * columns + c + step) for c in range(column, column + step * far, step)
        )
    for here in sorted({c for _, c in places}):
        for step, far in _spans(row, [r for r, c in places if c == here]):
            steps = range(row, row + step * far, step)
            links += ((r * columns + here, (r + step) * columns + here) for r in steps)
    return tuple(links)


def _spans(start: int, ends: Sequence[int]) -> Iterator[tuple[int, int]]:
    """Return, in each direction, the step and the distance of the farthest end."""
    for step in (1, -1):
        yield step, max([(e - start) * step for e in ends] + [0])


@dataclass(frozen=True)
class ElementClass:
    """`elements` of a tensor that the same chips produce and the same chips need."""

    made: Chips
    needed: Chips
    elements: int


@dataclass(frozen=True)
class Exchange:
    """The exchange of one tensor: its classes of elements, and the name of the pattern."""

    tensor: str
    kind: str
    classes: tuple[ElementClass, ...]
    bits_per_value: int
    times: int = 1

    def moved(self, chips: int, link: Interconnect) -> CollectiveWords:
        """Words received and sent by chip, and bits on each link, over all executions."""
        received, sent, bits = Counter[int](), Counter[int](), Counter[Link]()
        for c in self.classes:
            for owner, elements in owners(c):
                takers, givers = c.needed - {owner}, c.made - {owner}
                reduced = givers if len(c.made) > 1 else frozenset()
                n = elements * self.times
                received[owner] += n * len(reduced)
                sent.update(dict.fromkeys(reduced, n))
                received.update(dict.fromkeys(takers, n))
                sent[owner] += n * len(takers)
                _cross(bits, link.route(owner, takers, chips), n * self.bits_per_value, back=False)
                _cross(bits, link.route(owner, reduced, chips), n * self.bits_per_value, back=True)
        each = range(chips)
        return CollectiveWords(tuple(received[i] for i in each), tuple(sent[i] for i in each), dict(bits))


@dataclass(frozen=True)
class CollectiveWords:
    """Words that each chip receives and sends, and bits by directed link.

    A word that is copied on the way counts as sent once for each chip that receives it.
    """

    received: tuple[int, ...]
    sent: tuple[int, ...]
    bits: Mapping[Link, int]

    @property
    def bit_hops(self) -> int:
        return sum(self.bits.values())

    @property
    def busiest(self) -> int:
        """Bits on the busiest link."""
        return max(self.bits.values(), default=0)


def owners(c: ElementClass) -> Iterator[tuple[int, int]]:
    """The chips that reduce or hold elements, distributed evenly over chips that produce and need them."""
    able = sorted(c.made & c.needed) or sorted(c.made)
    if len(c.made) == 1:
        yield able[0], c.elements
        return
    share, rest = divmod(c.elements, len(able))
    for i, owner in enumerate(able):
        if share + (i < rest):
            yield owner, share + (i < rest)


def _cross(bits: Counter[Link], ways: tuple[tuple[Link, ...], ...], amount: int, *, back: bool) -> None:
    share, rest = divmod(amount, len(ways))
    for i, way in enumerate(ways):
        for here, there in way:
            bits[(there, here) if back else (here, there)] += share + (i < rest)


@dataclass(frozen=True)
class ChipSplit:
    """A cascade over chips: the rank variable along which each Einsum is split (none: all chips compute it).

    `whole`: its results are required on every chip.
    """

    cascade: Cascade
    chips: int
    along: Mapping[str, str]
    whole: bool = True

    def block(self, einsum: Einsum, chip: int) -> tuple[int, int] | None:
        """Inclusive bounds of the split variable on a chip; NONE if it has no iterations.

        None if the Einsum is not split.
        """
        name = self.along.get(einsum.name)
        if name is None:
            return None
        return nth_block(einsum.bound(name), self.chips, chip)

    def exchanges(self) -> tuple[Exchange, ...]:
        """The exchange of each tensor that the cascade produces, in order of Einsums.

        Raises Refused if there are too many sets of elements.
        """
        result = []
        for einsum in self.cascade:
            for tensor in dict.fromkeys(a.tensor for a in einsum.outputs):
                look(f"what chips exchange of {tensor}")
                result.append(self._exchange(einsum, tensor))
        return tuple(e for e in result if e is not None)

    def _exchange(self, einsum: Einsum, tensor: str) -> Exchange | None:
        readers = self.cascade.consumers(tensor)
        made = [self.touched([einsum], tensor, c, output=True) for c in range(self.chips)]
        if readers:
            needed = [self.touched(readers, tensor, c, output=False) for c in range(self.chips)]
        else:
            every = united([s for some in made for s in some])
            needed = [[every]] * self.chips if self.whole else [[] for _ in range(self.chips)]
        if einsum.name not in self.along:  # each chip has produced all of it
            return None
        moving = tuple(
            c
            for c in _classes(made, needed)
            if c.needed - c.made or (len(c.made) > 1 and (c.needed or not readers))
        )
        if not moving:
            return None
        bits = next(a.bits_per_value for a in einsum.outputs if a.tensor == tensor)
        kind = kind_of(moving, frozenset(range(self.chips)))
        return Exchange(tensor, kind, moving, bits, einsum.n_instances)

    def bounds(self, einsum: Einsum, chip: int) -> Bounds | None:
        """The rank variables of an Einsum that are bounded on a chip; None if it has no iterations there."""
        block = self.block(einsum, chip)
        if block is None:
            return ()
        return None if block == NONE else ((self.along[einsum.name], *block),)

    def touched(self, einsums: Sequence[Einsum], tensor: str, chip: int, *, output: bool) -> list[islpy.Set]:
        return touched([(e, self.bounds(e, chip)) for e in einsums], tensor, output=output)


def touched(einsums: Iterable[tuple[Einsum, Bounds | None]], tensor: str, *, output: bool) -> list[islpy.Set]:
    """The elements of a tensor that Einsums write, or read, in the given parts of their iterations."""
    result = []
    for einsum, bounds in einsums:
        for access in einsum.accesses_of(tensor) if bounds is not None else ():
            if access.output != output:
                continue
            relation = einsum.relation(access)
            for name, low, high in bounds or ():
                relation = within(relation, einsum.rank_variables.index(name), low, high)
            points = relation.range()
            if not points.is_empty():
                result.append(points)
    return result


def nth_block(ends: tuple[int, int], parts: int, which: int) -> tuple[int, int]:
    """One of `parts` blocks of equal size of a range, the last ones shorter; NONE if it is empty."""
    low, high = ends
    width = -(-(high - low + 1) // parts)
    begin = low + which * width
    return (begin, min(high, begin + width - 1)) if begin <= high else NONE


def _classes(
    made: Sequence[Sequence[islpy.Set]], needed: Sequence[Sequence[islpy.Set]]
) -> tuple[ElementClass, ...]:
    """Classes of the produced elements, by the chips that produce and need them."""
    chips = len(made)
    classes = []
    for members, elements in points_by_members([*made, *needed]).items():
        makers = frozenset(i for i in members if i < chips)
        takers = frozenset(i - chips for i in members if i >= chips)
        if makers:
            classes.append(ElementClass(makers, takers, elements))
    return tuple(sorted(classes, key=lambda c: (sorted(c.made), sorted(c.needed))))


def kind_of(classes: Sequence[ElementClass], every: Chips) -> str:
    """The name of the pattern among these chips in the literature; `exchange` if it has none."""
    chips = len(every)
    reduced = [len(c.made) > 1 for c in classes]
    if all(reduced):
        if all(c.needed == every for c in classes):
            return "all-reduce"
        return "reduce-scatter" if all(len(c.needed) <= 1 for c in classes) else "reduce"
    if any(reduced):
        return "exchange"
    if all(c.needed >= every - c.made for c in classes):
        return "all-gather"
    pairs = {(o, t) for c in classes for o in c.made for t in c.needed - c.made}
    if all(len(c.needed - c.made) == 1 for c in classes) and len(pairs) == chips * (chips - 1):
        return "all-to-all"
    return "halo" if all(abs(o - t) == 1 for o, t in pairs) else "exchange"


def split_of(
    cascade: Cascade, chips: int, variables: Sequence[str], *, whole: bool, of: str = "split"
) -> ChipSplit:
    """Each Einsum split along the first of the variables (argument `of`) that it has.

    Raises SpecError for a variable that no Einsum has; Refused for cascades that iterate, and for outputs
    that results are added to.
    """
    known = dict.fromkeys(v for e in cascade for v in e.rank_variables)
    unknown = [v for v in variables if v not in known]
    if unknown:
        remedy = f"rank variables: {', '.join(known)}"
        what = "no Einsum has the rank variable"
        raise SpecError([Diagnostic(f"{what} {v}", remedy, of, code="out-of-range") for v in unknown])
    if cascade.generational:
        message = "a cascade that iterates is not split over chips"
        raise Refused(message, "split its body, one iteration", code="unsupported-recurrence")
    if any(a.accumulates for e in cascade for a in e.outputs):
        message = "Einsums that add to existing values are not split over chips"
        raise Refused(message, "write them anew", code="unsupported-recurrence")
    along = {e.name: next((v for v in variables if v in e.rank_variables), "") for e in cascade}
    return ChipSplit(cascade, chips, {n: v for n, v in along.items() if v}, whole)
