"""The stamps and elements of one access of one Einsum: a box, or windows where an Einsum is inferred."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache
from math import gcd, prod
from typing import Literal

from polymodel.analysis.result import Problem
from polymodel.analysis.symbolic.atoms import ChainLevel, FullAgain, Leaf, Role
from polymodel.analysis.symbolic.forms import Form, number, of_atom
from polymodel.analysis.symbolic.regions import MOST_ROWS, Region
from polymodel.arithmetic import Affine
from polymodel.errors import NotSeparable
from polymodel.mapping.looptree import Loop
from polymodel.workload.einsum import Cascade, Einsum, TensorAccess

# What happens to a counter in a count: kept apart, merged (a union), held at the first instance, or at that
# of a number; `most`: held at the instance with the largest count; `hops`: kept apart, and counted as often
# as the counter says, from 1 on.
Use = Literal["keep", "merge", "at0", "most", "hops"] | int


def is_held(use: Use) -> bool:
    """Whether a counter is held at one instance."""
    return use == "at0" or isinstance(use, int)


# Of a tensor that is carried forward, what the tile of its variable holds: `later`: in each tile but the
# first also an element further back, `each`: in each tile; `lacking`: in the first tile an element less.
# `first`: of the tensor that holds what is before the first generation, it is there in the first tile only.
Behind = Literal["", "later", "each", "lacking", "first"]
# One access to all elements of a tensor that an operation reads, where these are several.
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
        """The size of its first tile, if that is another one."""
        first = self.loop.initial_tile_shape if self.loop is not None else None
        return None if first == self.tile else first

    @property
    def grows(self) -> bool:
        """True if tiles behind the first one may be larger."""
        if isinstance(self.start, int) and isinstance(self.tile, int):
            return self.start < self.tile
        return self.start is not None

    @property
    def spatial(self) -> bool:
        return self.loop is not None and self.loop.spatial

    def level(self, role: Role, more: int | None = None) -> ChainLevel:
        """The loop in an atom."""
        if not self.grows and role in ("widest", "nominal"):
            role = "first"
        return ChainLevel(self.tile, role, self.spatial, more, self.start)


@dataclass(frozen=True)
class Halo:
    """A rank `a p + b r`: with gcd 1, elements i b' further in p meet those a' further in r."""

    p: str
    r: str
    shift_p: int
    shift_r: int


@dataclass(frozen=True)
class TiedGroup:
    """Rank variables that bounds of the iteration space tie together, and their points from the smallest
    values on."""

    variables: tuple[str, ...]
    region: Region

    @property
    def u(self) -> str:
        """The first variable of a pair."""
        return self.variables[0]

    @property
    def v(self) -> str:
        """The second variable of a pair."""
        return self.variables[1]


@lru_cache(maxsize=1024)
def groups(einsum: Einsum) -> tuple[TiedGroup, ...]:
    """The bounds that the box of an Einsum does not imply, by their variables; NotSeparable for others."""
    box = dict(zip(einsum.rank_variables, einsum.bounds, strict=True))
    bounds, tied = [], {v: {v} for v in box}
    for c in einsum.constraints:
        if c.kind != "ge":
            raise NotSeparable(f"the iteration space of {einsum.name} is no box: {c}", "use engine exact")
        least = c.expr.constant + sum(min(k * box[v][0], k * box[v][1]) for v, k in c.expr.terms)
        if least >= 0 or (len(c.expr.variables) == 1 and abs(c.expr.terms[0][1]) == 1):
            continue
        bounds.append(c.expr)
        together = set.union(*(tied[v] for v in c.expr.variables))
        tied |= dict.fromkeys(together, together)
    found: dict[tuple[str, ...], list[Affine]] = {}
    for expr in bounds:
        # In one order, so that Einsums that share loops over them have equal regions.
        found.setdefault(tuple(sorted(tied[expr.variables[0]])), []).append(expr)
    return tuple(TiedGroup(names, _region(box, names, exprs)) for names, exprs in found.items())


def _region(box: Mapping[str, tuple[int, int]], names: tuple[str, ...], bounds: list[Affine]) -> Region:
    extents = tuple(box[x][1] - box[x][0] + 1 for x in names)
    if max(extents) > MOST_ROWS:
        raise NotSeparable(
            f"{' and '.join(names)} are tied, and have more than {MOST_ROWS} values", "use engine exact"
        )
    rows = set()
    for expr in bounds:
        terms = dict(expr.terms)
        factors = [terms.get(v, 0) for v in names]
        rows.add((*factors, expr.constant + sum(c * box[v][0] for v, c in expr.terms)))
    return Region(extents, tuple(sorted(rows)))


@dataclass(frozen=True)
class Window:
    """What executes of a rank variable of an inferred Einsum: an interval for each tile of a consumer.

    Loops over the consumer, the first `depth` of the path, cut `extent` into tiles; one of extent e gives
    `scale * e + more`, `more` being `start` at the first stamp and that of `later` (loop position -> more)
    at steps of a loop. It is never more at a step than at one further out. `low`: its smallest value of all.
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
        """True if some stamp's interval meets that of the one before."""
        return any(more for _, more in self.later)


@dataclass(frozen=True)
class Carried:
    """The rank of an access along which the tensor is carried forward, its variable, and what tiles hold of
    the generation before. `rank` is -1 where the tensor has no such rank."""

    rank: int
    variable: str
    behind: Behind


@dataclass(frozen=True)
class Space:
    """The stamps over `axes` (path order) of one Einsum's box, and the elements of one access.

    `sizes`: (rank variable, symbol) of extents that are symbols. `windows`: of inferred rank variables.
    `carried`: of a tensor of which tiles hold something of the generation before.
    """

    einsum: Einsum
    access: TensorAccess
    axes: tuple[LoopAxis, ...]
    sizes: tuple[tuple[str, str], ...] = ()
    windows: tuple[tuple[str, Window], ...] = ()
    carried: Carried | None = None

    @cached_property
    def alone(self) -> Space:
        """Without what tiles hold of the generation before."""
        return replace(self, carried=None)

    @cached_property
    def before(self) -> Space:
        """What a tile holds of the generation before, as if it were a tensor without the carried rank."""
        assert self.carried is not None
        rest = tuple(x for r, x in enumerate(self.access.projection) if r != self.carried.rank)
        ranks = tuple(x for r, x in enumerate(self.access.ranks) if r != self.carried.rank)
        return replace(self, access=replace(self.access, projection=rest, ranks=ranks), carried=None)

    @cached_property
    def generations(self) -> tuple[int, ...]:
        """Positions of the loops over the variable along which the tensor is carried."""
        return tuple(self.of(self.carried.variable)) if self.carried is not None else ()

    def window(self, variable: str) -> Window | None:
        return next((w for v, w in self.windows if v == variable), None)

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
    def halos(self) -> tuple[Halo, ...]:
        return halos(self.einsum, self.access)

    @cached_property
    def single(self) -> frozenset[str]:
        """Variables that are the only one of their rank."""
        return frozenset(e.variables[0] for e in self.access.projection if len(e.variables) == 1)

    @cached_property
    def spread(self) -> tuple[str, ...]:
        """Variables that do not index the tensor; also those of loops that infer the Einsum again."""
        again = (v for v, _ in self.windows if v not in self.einsum.rank_variables)
        return tuple(v for v in (*self.einsum.rank_variables, *again) if v not in self.access.variables)

    @cached_property
    def groups(self) -> tuple[TiedGroup, ...]:
        """Variables that bounds tie together."""
        return groups(self.einsum)

    @cached_property
    def tied(self) -> frozenset[str]:
        """The variables of the groups."""
        return frozenset(v for g in self.groups for v in g.variables)

    def of(self, variable: str) -> list[int]:
        return [i for i, a in enumerate(self.axes) if a.variable == variable]

    def ladder(
        self, variable: str, roles: Mapping[int, Role], since: int = -1, until: int | None = None
    ) -> tuple[ChainLevel, ...]:
        """The levels of a variable's loops at the positions that have a role, and its window among them.

        With `since` or `until` only loops from or up to that position are wanted.
        """
        window = self.window(variable)
        later = dict(window.later) if window and any(m != window.start for _, m in window.later) else {}
        found = {i: self.axes[i].level(roles[i], later.get(i)) for i in self.of(variable) if i in roles}
        if window is None:
            return tuple(found.values())
        outer = tuple(lv for i, lv in found.items() if i < window.depth)
        if since >= window.depth or (until is not None and until < window.depth):
            return tuple(found.values())
        return (*outer, window.level, *(lv for i, lv in found.items() if i >= window.depth))

    @cached_property
    def counted(self) -> dict[tuple[Use, ...], Form]:
        """Counts that were worked out before: what happens to each counter -> (counters, elements)."""
        return {}

    @cached_property
    def sized(self) -> dict[tuple[Role | None, ...], Form]:
        """Sizes of tiles that were worked out before: the role of each loop -> elements."""
        return {}

    @cached_property
    def chains(self) -> dict[tuple[str, tuple[Role | None, ...], Leaf, int | None], Form]:
        """The same along single variables: (variable, roles, what is summed, up to which loop)."""
        return {}

    @property
    def shrinking(self) -> list[int]:
        """Positions of loops at whose later steps windows of the tensor are smaller than at first."""
        windows = (w for v, w in self.windows if v in self.access.variables)
        found = (i for w in windows for i, more in w.later if more != w.start)
        return [i for i in found if i < len(self.axes)]

    def bare(self) -> Space:
        """The stamps alone, at which anything is touched, without elements."""
        first = self.carried is not None and self.carried.behind == "first"
        carried = replace(self.carried, rank=-1) if self.carried is not None and first else None
        return replace(self, access=TensorAccess(self.access.tensor, (), ()), carried=carried)


def halos(einsum: Einsum, access: TensorAccess) -> tuple[Halo, ...]:
    """The coupled ranks of an access; NotSeparable for accesses that are no products of such."""
    seen: set[str] = set()
    found = []
    for rank, expr in zip(access.ranks, access.projection, strict=True):
        terms = [(v, c) for v, c in expr.terms if c]
        if any(c < 0 for _, c in terms) or len(terms) > 2 or seen & {v for v, _ in terms}:
            raise NotSeparable(
                f"rank {rank} of {access.tensor} in {einsum.name} ({expr}) is not a sum of one or two "
                "rank variables of its own",
                "use engine exact",
            )
        seen |= {v for v, _ in terms}
        if len(terms) == 2:
            (p, a), (r, b) = terms
            g = gcd(a, b)
            found.append(Halo(p, r, b // g, a // g))
    return tuple(found)


def unlike_first(space: Space) -> NotSeparable:
    return NotSeparable(
        f"tiles of {space.access.tensor} in {space.einsum.name} lack at first what is read of the generation "
        "before, which has no closed form",
        "use engine exact",
    )


def begins_again(space: Space) -> NotSeparable:
    assert space.carried is not None
    return NotSeparable(
        f"{space.access.tensor} may stay in {space.einsum.name} while {space.carried.variable}, over which "
        "it is carried forward, begins again",
        "use engine exact, or reuse: slide",
    )


# Tensors that are carried forward: what a tile holds of the generation before it.
#
# Where an Einsum reads R[p] and writes R[p+1], the tile of iterations a..b of p holds what is written in
# them, and one element further back along p for each index of the other ranks: what iteration a reads. The
# first tile holds nothing further back if `init` says what is before. So counts are those of the tensor
# without the elements further back, plus those of a tensor without that rank, whose elements are there in
# each tile of p, or in each but the first.

Uses = Mapping[int, Use]
Count = Callable[[Space, Uses], Form]  # as counts.count
Stays = Callable[[Space, int, Uses, bool], Form]  # as counts.carried


@dataclass(frozen=True)
class CarriedRank:
    """The rank along which a tensor is carried forward."""

    tensor: str
    rank: int


def carried_lines(problem: Problem) -> dict[str, CarriedRank]:
    """By tensor that is carried forward; NotSeparable for those without closed forms."""
    found = {}
    for tensor in problem.cascade.recurrent:
        maker = problem.cascade.producer(tensor)
        if maker is None or maker.name not in problem.tree.paths:
            continue
        found[tensor] = carried_line(problem.cascade, maker, tensor)
    for einsum in map(problem.cascade.__getitem__, problem.tree.einsums):
        for access in einsum.accesses:
            if access.tensor in found:
                check_access(einsum, access, found[access.tensor])
            elif access.guard and (not access.stands_for or not _is_first(problem, access)):
                raise NotSeparable(
                    f"{einsum.name} reads {access.tensor} in some iterations only, which has no closed form",
                    "use engine exact, or give init as a number",
                )
    return found


def _is_first(problem: Problem, access: TensorAccess) -> bool:
    """Whether a tensor is read in the first iteration alone, in all of its accesses."""
    for name in problem.tree.einsums:
        einsum = problem.cascade[name]
        for a in einsum.accesses_of(access.tensor):
            terms = [g.expr.terms for g in a.guard if g.kind == "ge"]
            if len(terms) != 1 or len(terms[0]) != 1 or terms[0][0][1] != -1:
                return False
            if a.guard[0].expr.constant != einsum.bound(terms[0][0][0])[0]:
                return False
    return True


def only_at_first(space: Space) -> Space:
    """The space of a tensor that holds what is before the first generation."""
    v = space.access.guard[0].expr.variables[0]
    ranks = [r for r, x in enumerate(space.access.projection) if v in x.variables]
    if len(ranks) > 1:
        raise _unlike(space.einsum, space.access)
    return _along(space, Carried(ranks[0] if ranks else -1, v, "first"))


def in_einsum(space: Space, tile: Space) -> Space:
    """The space of another Einsum, with what the tile holds of the generation before."""
    if tile.carried is None:
        return space
    if tile.carried.behind == "first":
        return only_at_first(space)
    variables = space.access.projection[tile.carried.rank].variables
    return replace(space, carried=replace(tile.carried, variable=variables[0])) if variables else space


def carried_line(cascade: Cascade, maker: Einsum, tensor: str) -> CarriedRank:
    """The rank along which a tensor is carried forward; NotSeparable where these are several."""
    write = maker.access_of(tensor)
    moved = {
        rank
        for e in cascade.earlier_readers(tensor)
        for access in e.accesses_of(tensor)
        if not access.output
        for rank, (a, b) in enumerate(zip(access.projection, write.projection, strict=True))
        if a.constant != b.constant
    }
    if len(moved) != 1:
        raise NotSeparable(
            f"{tensor} is carried from one iteration to the next along several ranks, which has no closed "
            "form",
            "use engine exact",
        )
    return CarriedRank(tensor, moved.pop())


def check_access(einsum: Einsum, access: TensorAccess, line: CarriedRank) -> None:
    """Refuse indices of the carried rank that are no rank variable of their own and a constant."""
    expr = access.projection[line.rank]
    others = {v for r, x in enumerate(access.projection) if r != line.rank for v in x.variables}
    if expr.terms and (len(expr.terms) > 1 or expr.terms[0][1] != 1 or expr.variables[0] in others):
        raise _unlike(einsum, access)
    for bound in access.guard:
        v = expr.variables[0] if expr.terms else ""
        first = bound.kind == "ge" and bound.expr.terms == ((v, 1),)
        if len(access.guard) > 1 or not first or bound.expr.constant != -(einsum.bound(v)[0] + 1):
            raise _unlike(einsum, access)


def _unlike(einsum: Einsum, access: TensorAccess) -> NotSeparable:
    return NotSeparable(
        f"{einsum.name} reads {access.tensor} otherwise than of the generation before, which has no closed "
        "form",
        "use engine exact",
    )


def same_elements(einsum: Einsum, line: CarriedRank | None, tensor: str) -> bool:
    """Whether all accesses of a tensor touch the same element in one operation, but for its generation."""

    def rest(access: TensorAccess) -> list[Affine]:
        found = list(access.projection)
        if line is not None:
            found[line.rank] = replace(found[line.rank], constant=0)
        return found

    first, *others = einsum.accesses_of(tensor)
    return all(rest(a) == rest(first) for a in others)


def neighbours_joined(einsum: Einsum, lines: Mapping[str, CarriedRank]) -> tuple[Einsum, Unions]:
    """Of each tensor that is read at several elements in one operation one access to all of them.

    Elements that stand evenly apart along a rank are those of one access with a rank variable more, which no
    loop runs over: `A[x - 1]` and `A[x + 1]` are `A[x + 2 d - 1]` for d = 0, 1. Others stay as they are.
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
        steps = [_evenly({place[rank] for place in places}) for rank in range(len(every[0].projection))]
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


def _evenly(places: set[int]) -> tuple[int, int] | None:
    """(step, how many) of numbers that stand evenly apart; None for others."""
    first, *others = sorted(places)
    step = others[0] - first if others else 1
    return (step, len(places)) if others == [first + step * (k + 1) for k in range(len(others))] else None


def reads(einsum: Einsum, line: CarriedRank) -> Iterator[tuple[int, TensorAccess]]:
    """The accesses of a tensor, with the first index that each touches along the carried rank."""
    for access in einsum.accesses_of(line.tensor):
        expr = access.projection[line.rank]
        yield expr.constant + sum(einsum.bound(v)[0] for v in expr.variables), access


def behind(einsums: Sequence[Einsum], line: CarriedRank) -> Behind:
    """What the tile that some Einsums touch together holds of the generation before."""
    found = [pair for e in einsums for pair in reads(e, line)]
    last = max(place for place, _ in found)
    before = {bool(a.guard) for place, a in found if place == last - 1}
    if any(place < last - 1 for place, _ in found) or len(before) > 1:
        raise NotSeparable(
            f"{line.tensor} is read of several generations before, which has no closed form",
            "use engine exact",
        )
    if any(a.guard for place, a in found if place == last):
        if before or not all(a.guard for _, a in found):
            raise NotSeparable(
                f"{line.tensor} is read of several generations before, which has no closed form",
                "use engine exact",
            )
        return "lacking"
    return "" if not before else "later" if before == {True} else "each"


def first_behind(einsums: Sequence[Einsum], line: CarriedRank) -> str:
    """The first Einsum that reads the generation before, of those that share a tile."""
    last = max(place for e in einsums for place, _ in reads(e, line))
    return next(e.name for e in einsums for place, _ in reads(e, line) if place < last)


def with_generations(space: Space, line: CarriedRank, held: Behind) -> Space:
    """The space of a tile that holds what is said of the generation before."""
    variables = space.access.projection[line.rank].variables
    if not held or not variables:
        return space
    return _along(space, Carried(line.rank, variables[0], held))


def _along(space: Space, carried: Carried) -> Space:
    v = carried.variable
    axes = [space.axes[i] for i in space.of(v)]
    if any(a.spatial or a.start is not None for a in axes) or v in space.tied or space.window(v) is not None:
        raise NotSeparable(
            f"{space.access.tensor} is carried forward over {v}, which is spread over instances, has a first "
            "tile of its own, or is tied to another rank variable",
            "use engine exact",
        )
    return replace(space, carried=carried)


def counted(count: Count, space: Space, uses: Uses) -> Form:
    """What `count` counts, with what tiles hold of the generation before."""
    assert space.carried is not None
    if space.carried.behind == "first":
        return count(space.before, _at_first(space, uses))
    found = count(space.alone, uses)
    if space.carried.behind != "lacking":
        found = found + count(space.before, uses)
    return found if space.carried.behind == "each" else found - count(space.before, _at_first(space, uses))


def _at_first(space: Space, uses: Uses) -> Uses:
    """At the first tile of the variable along which a tensor is carried."""
    return {i: "merge" if i in space.generations else use for i, use in uses.items()}


def more_later(space: Space) -> Form:
    """1 if the largest tile of a variable holds an element of the generation before."""
    assert space.carried is not None
    if space.carried.behind == "lacking":
        raise unlike_first(space)
    if space.carried.behind == "each":
        return number(1)
    if not space.generations:
        return Form()
    levels = tuple(space.axes[i].level("each") for i in space.generations)
    return of_atom(FullAgain(space.extent(space.carried.variable), levels))


def generation_stays(carried: Stays, space: Space, axis: int, uses: Uses, sliding: bool) -> Form:
    """What `carried` says stays of a tensor that is carried forward: over a step of its variable, what the
    later tile holds of the generation before; over steps of others the whole tile."""
    assert space.carried is not None
    moves, inside = axis in space.generations, any(i > axis for i in space.generations)
    if space.carried.behind == "first":
        if moves:
            return Form()
        if inside:
            raise begins_again(space)
        return carried(space.before, axis, _at_first(space, uses), sliding)
    found = carried(space.alone, axis, uses, sliding)
    if space.carried.behind == "lacking" and moves:
        return found
    if space.carried.behind == "lacking" or (not sliding and inside):
        raise begins_again(space)
    found = found + carried(space.before, axis, uses, sliding)
    if moves or space.carried.behind == "each":
        return found
    return found - carried(space.before, axis, _at_first(space, uses), sliding)
