"""The stamps and elements of one access of one Einsum: a box, or windows if an Einsum is inferred."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cached_property, lru_cache
from math import gcd, prod
from typing import Literal

from polymodel.analysis.symbolic.atoms import ChainLevel, Leaf, Role
from polymodel.analysis.symbolic.forms import ChainSize, Form
from polymodel.analysis.symbolic.regions import MOST_ROWS, Region
from polymodel.arithmetic import Affine, Constraint
from polymodel.errors import NotSeparable
from polymodel.frozen import dataclass
from polymodel.mapping.looptree import Loop
from polymodel.workload.einsum import Cascade, Einsum, TensorAccess

# The use of a counter in a count: kept apart, merged (a union), fixed at the first instance or at a numbered
# one; `most`: fixed at the instance with the largest count; `hops`: kept apart, and weighted by the counter,
# from 1 on. A temporal loop may be fixed at one iteration: the `first` one, a `later` one that is not the
# last, or the `last` one, which is not the first.
Use = Literal["keep", "merge", "at0", "most", "hops", "first", "later", "last"] | int
Iteration = Literal["first", "later", "last"]
ITERATIONS: tuple[Iteration, ...] = ("first", "later", "last")


def is_fixed(use: Use) -> bool:
    """Whether a counter is fixed at one instance."""
    return use == "at0" or isinstance(use, int)


# What a tile of the carried variable holds of a tensor that is carried forward. `later`: each tile but the
# first also holds an element further back; `each`: every tile does; `lacking`: the first tile holds one
# element less. `first`: for the tensor that holds what is before the first generation: only the first tile
# holds it. Where more than the previous generation is read, tiles near the first one hold less of it too.
Behind = Literal["", "later", "each", "lacking", "first"]
# One access to all elements of a tensor that an operation reads, if there are several.
Unions = Mapping[str, TensorAccess]


@dataclass(frozen=True)
class LoopAxis:
    """One loop above a node, or the offset of a variable in its innermost tile (`loop` is None)."""

    variable: str
    tile: int | str
    loop: Loop | None
    node: int

    @property
    def start(self) -> int | str | None:
        """The size of its first tile, if it differs."""
        first = self.loop.initial_tile_shape if self.loop is not None else None
        return None if first == self.tile else first

    @property
    def grows(self) -> bool:
        """True if tiles after the first one may be larger than it."""
        if isinstance(self.start, int) and isinstance(self.tile, int):
            return self.start < self.tile
        return self.start is not None

    @property
    def spatial(self) -> bool:
        return self.loop is not None and self.loop.spatial

    def level(self, role: Role, more: int | None = None) -> ChainLevel:
        """The loop as a level of an atom."""
        if not self.grows and role in ("widest", "nominal"):
            role = "first"
        return ChainLevel(self.tile, role, self.spatial, more, self.start)


@dataclass(frozen=True)
class Halo:
    """A rank `a p + b r`: with gcd 1, (p + b', r) and (p, r + a') touch the same element."""

    p: str
    r: str
    shift_p: int
    shift_r: int


@dataclass(frozen=True)
class SumRank:
    """A rank `a p + b r + c s ...` of three or more rank variables, by its place in the access."""

    rank: int
    variables: tuple[str, ...]
    factors: tuple[int, ...]


@dataclass(frozen=True)
class TiedGroup:
    """Rank variables coupled by bounds, and their points, counted from the smallest values.

    For an inferred Einsum: `deciding`: the loops that decide what executes, outermost first; `widths`: the
    widest windows of variables, in which tiles must fit; `further`: those deciding loops that are not above
    it but decide what its consumer executes.
    """

    variables: tuple[str, ...]
    region: Region
    deciding: tuple[LoopAxis, ...] = ()
    widths: tuple[tuple[str, ChainSize], ...] = ()
    further: tuple[LoopAxis, ...] = ()

    @property
    def u(self) -> str:
        """The first variable of a pair."""
        return self.variables[0]

    @property
    def v(self) -> str:
        """The second variable of a pair."""
        return self.variables[1]

    def beyond(self, axes: Sequence[LoopAxis]) -> tuple[LoopAxis, ...]:
        """The deciding loops that are not among those above."""
        above = {a.node for a in axes}
        return tuple(a for a in (*self.deciding, *self.further) if a.node not in above)


@lru_cache(maxsize=1024)
def groups(einsum: Einsum) -> tuple[TiedGroup, ...]:
    """The groups of variables coupled by bounds that the box of an Einsum does not imply.

    Raises NotSeparable for bounds without closed forms.
    """
    box = dict(zip(einsum.rank_variables, einsum.bounds, strict=True))
    bounds, tied = [], {v: {v} for v in box}
    for c in einsum.constraints:
        if c.kind != "ge":
            raise NotSeparable(
                f"the iteration space of {einsum.name} is not a box: {c}",
                code="unsupported-space",
            )
        least = c.expr.constant + sum(min(k * box[v][0], k * box[v][1]) for v, k in c.expr.terms)
        if least >= 0 or (len(c.expr.variables) == 1 and abs(c.expr.terms[0][1]) == 1):
            continue
        bounds.append(c.expr)
        together = set.union(*(tied[v] for v in c.expr.variables))
        tied |= dict.fromkeys(together, together)
    result: dict[tuple[str, ...], list[Affine]] = {}
    for expr in bounds:
        # In a fixed order, so that Einsums that share loops over them have equal regions.
        result.setdefault(tuple(sorted(tied[expr.variables[0]])), []).append(expr)
    return tuple(TiedGroup(names, _region(box, names, exprs)) for names, exprs in result.items())


def cuts(einsum: Einsum) -> Iterator[Constraint]:
    """The constraints that the bounding box does not imply."""
    box = dict(zip(einsum.rank_variables, einsum.bounds, strict=True))
    for c in einsum.constraints:
        single = len(c.expr.variables) == 1 and c.kind == "ge" and abs(c.expr.terms[0][1]) == 1
        least = c.expr.constant + sum(min(k * box[v][0], k * box[v][1]) for v, k in c.expr.terms)
        if c.kind != "ge" or (least < 0 and not single):
            yield c


def _region(box: Mapping[str, tuple[int, int]], names: tuple[str, ...], bounds: list[Affine]) -> Region:
    extents = tuple(box[x][1] - box[x][0] + 1 for x in names)
    if max(extents) > MOST_ROWS:
        raise NotSeparable(
            f"{' and '.join(names)} are tied, and have more than {MOST_ROWS} values",
            code="too-large",
        )
    rows = set()
    for expr in bounds:
        terms = dict(expr.terms)
        factors = [terms.get(v, 0) for v in names]
        rows.add((*factors, expr.constant + sum(c * box[v][0] for v, c in expr.terms)))
    return Region(extents, tuple(sorted(rows)))


@dataclass(frozen=True)
class Window:
    """Executed values of a rank variable of an inferred Einsum: an interval for each tile of a consumer.

    Loops over the consumer, the first `depth` of the path, cut `extent` into tiles; a tile of extent e gives
    `scale * e + more` values, where `more` is `start` at the first stamp and given by `later` (loop position
    -> more) at steps of a loop, never larger at a step than at one further out. `low`: the smallest value.
    """

    extent: int
    low: int
    scale: int
    start: int
    later: tuple[tuple[int, int], ...]
    depth: int

    @property
    def level(self) -> ChainLevel:
        return ChainLevel(self.scale, "window", more=self.start)

    @property
    def overlaps(self) -> bool:
        """True if the interval of some stamp intersects that of the previous one."""
        return any(more for _, more in self.later)


@dataclass(frozen=True)
class Stride:
    """Values `every * n + base` of a variable, expressed by n."""

    every: int
    base: int


Strides = Mapping[str, Stride]


@dataclass(frozen=True)
class CarriedDimension:
    """The rank of an access along which the tensor is carried forward, its variable, and what tiles hold of
    earlier generations. `rank` is -1 where the tensor has no such rank.

    In addition to its own element an iteration touches those that are `lags` further back. Of all these it
    touches none that is produced before iteration `since`; for `each` it touches all of them, for `first`
    none that is produced after it.
    """

    rank: int
    variable: str
    behind: Behind
    lags: tuple[int, ...] = ()
    since: int = 0

    @property
    def is_product(self) -> bool:
        """Whether tiles hold their own elements and those of one further generation, which all tiles hold, or
        all but the first; otherwise they are listed point by point."""
        key = self.lags, self.since
        return {
            "later": key == ((1,), 0),
            "each": self.lags == (1,),
            "lacking": key == ((), 1),
            "first": key == ((), 0),
        }.get(self.behind, True)


@dataclass(frozen=True)
class Space:
    """The stamps over `axes` (path order) of one Einsum's box, and the elements of one access.

    `sizes`: (rank variable, symbol) of extents that are symbols. `windows`: those of inferred rank variables.
    `carried`: the carried dimension of a tensor whose tiles hold part of the previous generation. `listed`:
    further groups listed value by value; `made`: the same without reads of earlier generations.
    """

    einsum: Einsum
    access: TensorAccess
    axes: tuple[LoopAxis, ...]
    sizes: tuple[tuple[str, str], ...] = ()
    windows: tuple[tuple[str, Window], ...] = ()
    carried: CarriedDimension | None = None
    listed: tuple[TiedGroup, ...] = ()
    made: Space | None = None

    @cached_property
    def alone(self) -> Space:
        """The space without what tiles hold of the previous generation."""
        return self.made or replace(self, carried=None)

    @cached_property
    def before(self) -> Space:
        """Return the elements of the previous generation in a tile, without the carried rank."""
        assert self.carried is not None
        rest = tuple(x for r, x in enumerate(self.access.projection) if r != self.carried.rank)
        ranks = tuple(x for r, x in enumerate(self.access.ranks) if r != self.carried.rank)
        return replace(self, access=replace(self.access, projection=rest, ranks=ranks), carried=None)

    @cached_property
    def generations(self) -> tuple[int, ...]:
        """Positions of the loops over the variable along which the tensor is carried."""
        return tuple(self.of(self.carried.variable)) if self.carried is not None else ()

    def window(self, variable: str) -> Window | None:
        for name, window in self.windows:
            if name == variable:
                return window
        return None

    def extent(self, variable: str) -> int | str:
        window = self.window(variable)
        if window is not None:
            return window.extent
        for name, symbol in self.sizes:
            if name == variable:
                return symbol
        low, high = self.einsum.bound(variable)
        return high - low + 1

    @cached_property
    def _windows(self) -> tuple[tuple[Halo, ...], tuple[SumRank, ...]]:
        if self.made is None:
            return windows(self.einsum, self.access)
        apart = tuple(Affine() if self.tied & {*e.variables} else e for e in self.access.projection)
        return windows(self.einsum, replace(self.access, projection=apart))

    @property
    def halos(self) -> tuple[Halo, ...]:
        return self._windows[0]

    @property
    def sums(self) -> tuple[SumRank, ...]:
        """Ranks of three or more rank variables."""
        return self._windows[1]

    @property
    def coupled(self) -> tuple[tuple[str, ...], ...]:
        """The variables of each rank that has several."""
        return (*((h.p, h.r) for h in self.halos), *(s.variables for s in self.sums))

    @cached_property
    def single(self) -> frozenset[str]:
        """Variables that are the only one of their rank."""
        every = (terms_of(self.einsum, e) for e in self.access.projection)
        return frozenset(terms[0][0] for terms in every if len(terms) == 1)

    @cached_property
    def spread(self) -> tuple[str, ...]:
        """Variables that do not index the tensor, also those of loops that compute the Einsum again."""
        again = (v for v, _ in self.windows if v not in self.einsum.rank_variables)
        indexing = {v for e in self.access.projection for v, _ in terms_of(self.einsum, e)}
        return tuple(v for v in (*self.einsum.rank_variables, *again) if v not in indexing)

    @cached_property
    def groups(self) -> tuple[TiedGroup, ...]:
        """Variables that bounds, or executed iterations of an inferred Einsum, couple."""
        listed = {v for g in self.listed for v in g.variables}
        return (*self.listed, *(g for g in groups(self.einsum) if not listed & set(g.variables)))

    @cached_property
    def tied(self) -> frozenset[str]:
        """The variables of the groups."""
        return frozenset(v for g in self.groups for v in g.variables)

    def of(self, variable: str) -> list[int]:
        """The positions of a variable's loops; the caller may modify the list."""
        return list(self._positions.get(variable, ()))

    @cached_property
    def _positions(self) -> dict[str, list[int]]:
        result: dict[str, list[int]] = {}
        for i, axis in enumerate(self.axes):
            result.setdefault(axis.variable, []).append(i)
        return result

    def ladder(
        self, variable: str, roles: Mapping[int, Role], since: int = -1, until: int | None = None
    ) -> tuple[ChainLevel, ...]:
        """The levels of a variable's loops at the positions that have a role, with its window among them.

        `since`, `until`: only loops from, or up to, that position.
        """
        window = self.window(variable)
        if window is None:
            axes = self.axes
            return tuple(axes[i].level(roles[i]) for i in self._positions.get(variable, ()) if i in roles)
        later = dict(window.later) if any(m != window.start for _, m in window.later) else {}
        result = {i: self.axes[i].level(roles[i], later.get(i)) for i in self.of(variable) if i in roles}
        outer = tuple(lv for i, lv in result.items() if i < window.depth)
        if since >= window.depth or (until is not None and until < window.depth):
            return tuple(result.values())
        return (*outer, window.level, *(lv for i, lv in result.items() if i >= window.depth))

    @cached_property
    def counted(self) -> dict[tuple[Use, ...], Form]:
        """A cache of counts: the use of each counter -> (counters, elements)."""
        return {}

    @cached_property
    def sized(self) -> dict[tuple[Role | None, ...], Form]:
        """A cache of tile sizes: the role of each loop -> elements."""
        return {}

    @cached_property
    def chains(self) -> dict[tuple[str, tuple[Role | None, ...], Leaf, int | None], Form]:
        """A cache of sums along single variables, by (variable, roles, what is summed, up to which loop)."""
        return {}

    @property
    def shrinking(self) -> list[int]:
        """Positions of loops at whose later steps windows of the tensor are smaller than at the first."""
        windows = (w for v, w in self.windows if v in self.access.variables)
        result = (i for w in windows for i, more in w.later if more != w.start)
        return [i for i in result if i < len(self.axes)]

    @cached_property
    def bare(self) -> Space:
        """Return the stamps at which anything is touched, without elements."""
        access, carried = TensorAccess(self.access.tensor, (), ()), self.carried
        if carried is not None and carried.behind == "first" and carried.is_product:
            return replace(self, access=access, carried=replace(carried, rank=-1))
        some = carried is not None and (carried.since > 0 or carried.behind == "first")
        touched = self._touched if some else ()
        return replace(self, access=access, carried=None, listed=(*self.listed, *touched))

    @property
    def _touched(self) -> tuple[TiedGroup, ...]:
        """The iterations that touch a tensor carried forward, or what is before its first generation."""
        carried = self.carried
        assert carried is not None
        v, extent = carried.variable, self.extent(carried.variable)
        if not isinstance(extent, int):
            raise NotSeparable(
                f"{self.einsum.name} touches {self.access.tensor} in some iterations only, which has no "
                "closed form where extents are symbols",
                "leave extents numbers: no --ranks, ranks=False in Python",
                code="unsupported-recurrence",
            )
        last = carried.since + max(carried.lags, default=0)
        bound = (-1, last) if carried.behind == "first" else (1, -carried.since)
        return (TiedGroup((v,), Region((extent,), (bound,))),)


def halos(einsum: Einsum, access: TensorAccess) -> tuple[Halo, ...]:
    """The coupled ranks of an access. Raises NotSeparable if it is not a product of such ranks."""
    result, sums = windows(einsum, access)
    if sums:
        raise _no_rank_of_its_own(einsum, access, sums[0].rank)
    return result


def windows(einsum: Einsum, access: TensorAccess) -> tuple[tuple[Halo, ...], tuple[SumRank, ...]]:
    """The ranks of an access that two, and that more rank variables index. Raises NotSeparable for accesses
    in which ranks share rank variables."""
    seen: set[str] = set()
    result, sums = [], []
    for place, expr in enumerate(access.projection):
        terms = terms_of(einsum, expr)
        if any(c < 0 for _, c in terms) or seen & {v for v, _ in terms}:
            raise _no_rank_of_its_own(einsum, access, place)
        seen |= {v for v, _ in terms}
        if len(terms) == 2:
            (p, a), (r, b) = terms
            g = gcd(a, b)
            result.append(Halo(p, r, b // g, a // g))
        elif len(terms) > 2:
            sums.append(SumRank(place, tuple(v for v, _ in terms), tuple(c for _, c in terms)))
    return tuple(result), tuple(sums)


def terms_of(einsum: Einsum, expr: Affine) -> list[tuple[str, int]]:
    """The terms of a rank; of more than two, without the variables that have a single value."""
    terms = [(v, c) for v, c in expr.terms if c]
    if len(terms) < 3:
        return terms
    box = dict(zip(einsum.rank_variables, einsum.bounds, strict=True))
    return [(v, c) for v, c in terms if box[v][0] < box[v][1]]


def _no_rank_of_its_own(einsum: Einsum, access: TensorAccess, rank: int) -> NotSeparable:
    return NotSeparable(
        f"rank {access.ranks[rank]} of {access.tensor} in {einsum.name} ({access.projection[rank]}) is not a "
        "sum of one or two rank variables of its own",
        code="unsupported-einsum",
    )


# Tensors that are carried forward (`generations`).


@dataclass(frozen=True)
class CarriedRank:
    """The rank along which a tensor is carried forward.

    `alone`: spatial loops (by node id) that have one instance in any legal mapping: they are above its
    producer, over the variable along which it is carried. `several`: all carried ranks, if more than one.
    """

    tensor: str
    rank: int
    alone: frozenset[int] = frozenset()
    several: frozenset[int] | None = None

    @property
    def ranks(self) -> frozenset[int]:
        return frozenset({self.rank}) if self.several is None else self.several


def carried_line(cascade: Cascade, maker: Einsum, tensor: str) -> CarriedRank:
    """The rank along which a tensor is carried forward. Raises NotSeparable if there are several."""
    write, earlier = maker.access_of(tensor), cascade.earlier_readers(tensor)
    moved = {
        rank
        for e in earlier or cascade.consumers(tensor)
        for access in e.accesses_of(tensor)
        if not access.output and (earlier or access.guard)
        for rank, (a, b) in enumerate(zip(access.projection, write.projection, strict=True))
        if a.constant != b.constant
    }
    if len(moved) != 1:
        raise NotSeparable(
            f"{tensor} is carried from one iteration to the next along several ranks, which has no closed "
            "form",
            code="unsupported-recurrence",
        )
    return CarriedRank(tensor, moved.pop())


def check_access(
    einsum: Einsum, access: TensorAccess, line: CarriedRank, write: TensorAccess | None = None
) -> None:
    """Refuse indices of the carried rank other than a rank variable of its own plus a constant, and accesses
    that do not touch their elements from some iteration on. `write`: the producer's access, if its iterations
    begin at the same value: an access then touches everything that is produced."""
    expr = access.projection[line.rank]
    others = {v for r, x in enumerate(access.projection) if r != line.rank for v in x.variables}
    if expr.terms and (len(expr.terms) > 1 or expr.terms[0][1] != 1 or expr.variables[0] in others):
        raise unlike_before(einsum, access)
    for bound in access.guard:
        v = expr.variables[0] if expr.terms else ""
        if len(access.guard) > 1 or bound.kind != "ge" or bound.expr.terms != ((v, 1),):
            raise unlike_before(einsum, access)
        if write is not None and expr.constant - write.projection[line.rank].constant != (
            bound.expr.constant + einsum.bound(v)[0]
        ):
            raise unlike_before(einsum, access)


def same_elements(einsum: Einsum, line: CarriedRank | None, tensor: str) -> bool:
    """Whether all accesses of a tensor touch the same element in one operation, except for its generation."""

    def rest(access: TensorAccess) -> list[Affine]:
        ranks = frozenset[int]() if line is None else line.ranks
        return [replace(x, constant=0) if r in ranks else x for r, x in enumerate(access.projection)]

    first, *others = einsum.accesses_of(tensor)
    return all(rest(a) == rest(first) for a in others)


def check_space(
    einsum: Einsum, lines: Mapping[str, CarriedRank] | None = None, unions: Unions | None = None
) -> None:
    """Refuse spaces that are neither boxes nor boxes cut by bounds on pairs of rank variables.

    `lines`: the carried ranks of tensors that are carried forward, which may be read at several generations;
    `unions`: accesses that stand for several elements of a tensor.
    """
    groups(einsum)
    for access in einsum.accesses:
        union = (unions or {}).get(access.tensor)
        if union is None and not same_elements(einsum, (lines or {}).get(access.tensor), access.tensor):
            raise NotSeparable(
                f"{einsum.name} accesses {access.tensor} at several elements in one operation, which are not "
                "neighbours at equal distances",
                code="unsupported-einsum",
            )
        windows(einsum, union or access)


def neighbours_joined(einsum: Einsum, lines: Mapping[str, CarriedRank]) -> tuple[Einsum, Unions]:
    """For each tensor read at several elements in one operation, one access to all.

    Equidistant elements along a rank are those of one access with an additional rank variable over which no
    loop runs: `A[x - 1]` and `A[x + 1]` are `A[x + 2 d - 1]` for d = 0, 1. Other accesses are unchanged.
    """
    unions: dict[str, TensorAccess] = {}
    more: dict[str, tuple[int, int]] = {}
    for tensor in einsum.tensors:
        every = einsum.accesses_of(tensor)
        if tensor in lines or any(a.output for a in every) or len(every) < 2:
            continue
        if any([e.terms for e in a.projection] != [e.terms for e in every[0].projection] for a in every):
            continue
        places = {tuple(e.constant for e in a.projection) for a in every}
        steps = [evenly({place[rank] for place in places}) for rank in range(len(every[0].projection))]
        if len(places) == 1 or None in steps or prod(n for _, n in filter(None, steps)) != len(places):
            continue
        projection = list(every[0].projection)
        for rank, (step, n) in enumerate(filter(None, steps)):
            if n > 1:
                name, least = f"{tensor}.{rank}", min(place[rank] for place in places)
                projection[rank] = replace(projection[rank], constant=least) + Affine(((name, step),), 0)
                more[name] = (0, n - 1)
        unions[tensor] = replace(every[0], projection=tuple(projection))
    if not more:
        return einsum, {}
    variables, bounds = (*einsum.rank_variables, *more), (*einsum.bounds, *more.values())
    return replace(einsum, rank_variables=variables, bounds=bounds), unions


def evenly(places: set[int]) -> tuple[int, int] | None:
    """(step, count) of equidistant numbers; None for others."""
    first, *others = sorted(places)
    step = others[0] - first if others else 1
    return (step, len(places)) if others == [first + step * (k + 1) for k in range(len(others))] else None


def unlike_before(einsum: Einsum, access: TensorAccess) -> NotSeparable:
    return NotSeparable(
        f"{einsum.name} reads {access.tensor} at another step than the preceding generation, which has no "
        "closed form",
        code="unsupported-recurrence",
    )
