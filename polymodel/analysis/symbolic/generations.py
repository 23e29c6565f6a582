"""Tensors that are carried forward: the elements of the previous generation in a tile.

Where an Einsum reads R[p] and writes R[p+1], the tile of iterations a..b of p holds what is written in
them, and one element further back along p for each index of the other ranks: what iteration a reads. The
first tile holds nothing further back if `init` says what is before. So counts are those of the tensor without
the elements further back, plus those of a tensor without that rank, whose elements are in each tile of p, or
in each but the first. Where an Einsum reads more than the previous generation, tiles that begin near the
first generation hold fewer elements, and these are listed point by point along p.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence, Set
from dataclasses import replace

from polymodel.analysis.result import Problem
from polymodel.analysis.symbolic.atoms import FullAgain
from polymodel.analysis.symbolic.forms import Form, number, of_atom
from polymodel.analysis.symbolic.regions import MOST_ROWS, BoxUnion, Region
from polymodel.analysis.symbolic.spaces import (
    Behind,
    CarriedDimension,
    CarriedRank,
    Space,
    TiedGroup,
    Use,
    carried_line,
    check_access,
    evenly,
    neighbours_joined,
    same_elements,
    unlike_before,
)
from polymodel.arithmetic import Affine, Constraint
from polymodel.errors import NotSeparable
from polymodel.workload.einsum import Einsum, TensorAccess

Uses = Mapping[int, Use]
Count = Callable[[Space, Uses], Form]  # like counts.count
Names = tuple[str, ...]
Box = tuple[tuple[int, int], ...]
Stays = Callable[[Space, int, Uses, bool], Form]  # like counts.carried


def carried_lines(problem: Problem) -> dict[str, CarriedRank]:
    """The carried rank of each tensor that is carried forward. Raises NotSeparable for tensors without closed
    forms."""
    result = {}
    for tensor in problem.cascade.shifted:
        maker = problem.cascade.producer(tensor)
        if maker is None or maker.name not in problem.tree.paths:
            continue
        line = _line(problem, maker, tensor)
        forward = maker.access_of(tensor).projection[line.rank].variables
        waits = tensor in problem.cascade.recurrent
        loops = ((i, n) for i, n in problem.tree.loops(maker.name) if n.spatial and waits)
        alone = frozenset(i for i, n in loops if n.variable_in(maker.name) in forward)
        result[tensor] = replace(line, alone=alone)
    for einsum in map(problem.cascade.__getitem__, problem.tree.einsums):
        for access in einsum.accesses:
            if access.tensor in result:
                continue
            if access.stands_for and not _is_first(problem, access):
                result[access.tensor] = _line_of_initial(problem, access)
            elif access.guard and not access.stands_for:
                raise NotSeparable(
                    f"{einsum.name} reads {access.tensor} in some iterations only, which has no closed form",
                    "use engine exact, or give init as a number",
                    code="unsupported-recurrence",
                )
    return result


def _users(problem: Problem, tensor: str) -> Iterator[tuple[Einsum, TensorAccess]]:
    """The accesses of a tensor, with their Einsums."""
    for einsum in map(problem.cascade.__getitem__, problem.tree.einsums):
        yield from ((einsum, access) for access in einsum.accesses_of(tensor))


def _line(problem: Problem, maker: Einsum, tensor: str) -> CarriedRank:
    """The ranks along which a tensor is carried forward."""
    try:
        line = carried_line(problem.cascade, maker, tensor)
        for einsum, access in _users(problem, tensor):
            check_access(einsum, access, line)
    except NotSeparable as fault:
        return _several_ranks(problem, tensor, fault)
    return line


def _several_ranks(problem: Problem, tensor: str, fault: NotSeparable) -> CarriedRank:
    """All ranks along which accesses of a tensor are at constant distances. Raises NotSeparable for other
    tensors."""
    ranks: set[int] = set()
    for einsum, access in _users(problem, tensor):
        first = einsum.access_of(tensor)
        for rank, (one, other) in enumerate(zip(first.projection, access.projection, strict=True)):
            if one.terms != other.terms:
                raise fault
            ranks |= {rank} if one.constant != other.constant else set()
        if any(bound.kind != "ge" for bound in access.guard):
            raise fault
    if not ranks and not any(a.guard for _, a in _users(problem, tensor)):
        raise fault
    return CarriedRank(tensor, min(ranks, default=0), several=frozenset(ranks))


def _line_of_initial(problem: Problem, access: TensorAccess) -> CarriedRank:
    """For a tensor that holds several initial generations of another one: the rank along which that one is
    carried."""
    places = {_edge(e, a) for e, a in _users(problem, access.tensor)}
    rank = places.pop()
    line = None if places or rank is None else CarriedRank(access.tensor, rank)
    if line is None or not all(
        same_elements(e, line, access.tensor) for e, _ in _users(problem, access.tensor)
    ):
        fault = NotSeparable(
            f"{access.tensor} is read in some iterations only, otherwise than as the generations before the "
            f"first of {access.stands_for}, which has no closed form",
            "use engine exact, or give init as a number",
            code="unsupported-recurrence",
        )
        return _several_ranks(problem, access.tensor, fault)
    return line


def _edge(einsum: Einsum, access: TensorAccess) -> int | None:
    """The rank of an access that touches the tensor up to an iteration of one rank variable.

    The variable indexes no other rank and is the rank's only variable.
    """
    bounds = [g.expr for g in access.guard if g.kind == "ge"]
    if len(bounds) != 1 or len(bounds[0].terms) != 1 or bounds[0].terms[0][1] != -1:
        return None
    v = bounds[0].terms[0][0]
    ranks = [r for r, x in enumerate(access.projection) if v in x.variables]
    alone = len(ranks) == 1 and access.projection[ranks[0]].terms == ((v, 1),)
    return ranks[0] if alone else None


def _is_first(problem: Problem, access: TensorAccess) -> bool:
    """Whether all accesses to a tensor read it in the first iteration only, and an operation reads one
    element of it or neighbours at equal distances."""
    for name in problem.tree.einsums:
        einsum = problem.cascade[name]
        every = einsum.accesses_of(access.tensor)
        joined = not every or same_elements(einsum, None, access.tensor)
        if not joined and access.tensor not in neighbours_joined(einsum, {})[1]:
            return False
        for a in every:
            terms = [g.expr.terms for g in a.guard if g.kind == "ge"]
            if len(terms) != 1 or len(terms[0]) != 1 or terms[0][0][1] != -1:
                return False
            if a.guard[0].expr.constant != einsum.bound(terms[0][0][0])[0]:
                return False
    return True


def unlike_first(space: Space) -> NotSeparable:
    return NotSeparable(
        f"first tiles of {space.access.tensor} in {space.einsum.name} do not hold what is read of the "
        "previous generation, which has no closed form",
        code="unsupported-recurrence",
    )


def begins_again(space: Space) -> NotSeparable:
    assert space.carried is not None
    return NotSeparable(
        f"{space.access.tensor} may stay in {space.einsum.name} while {space.carried.variable}, over which "
        "it is carried forward, begins again",
        "use engine exact, or reuse: slide",
        code="unsupported-recurrence",
    )


def several_before(space: Space) -> NotSeparable:
    return NotSeparable(
        f"{space.einsum.name} reads {space.access.tensor} of several generations, which has no closed form "
        "where extents are symbols",
        "leave extents numbers: no --ranks, ranks=False in Python",
        code="unsupported-recurrence",
    )


def only_at_first(space: Space) -> Space:
    """The space of a tensor that holds what is before the first generation."""
    v = space.access.guard[0].expr.variables[0]
    ranks = [r for r, x in enumerate(space.access.projection) if v in x.variables]
    if len(ranks) > 1:
        raise unlike_before(space.einsum, space.access)
    end = up_to(space.einsum, space.access)
    return _along(space, CarriedDimension(ranks[0] if ranks else -1, v, "first", (), end))


def reads(einsum: Einsum, line: CarriedRank) -> Iterator[tuple[int, TensorAccess]]:
    """The accesses of a tensor, with the first index that each touches along the carried rank."""
    for access in einsum.accesses_of(line.tensor):
        expr = access.projection[line.rank]
        yield expr.constant + sum(einsum.bound(v)[0] for v in expr.variables), access


def without(einsum: Einsum, access: TensorAccess) -> int:
    """The number of first iterations of the carrying variable in which an access touches nothing."""
    return sum(-bound.expr.constant - einsum.bound(bound.expr.variables[0])[0] for bound in access.guard)


def up_to(einsum: Einsum, access: TensorAccess) -> int:
    """The last iteration in which an access touches what is before the first generation."""
    (bound,) = access.guard
    return bound.expr.constant - einsum.bound(bound.expr.variables[0])[0]


def behind(einsums: Sequence[Einsum], line: CarriedRank) -> CarriedDimension:
    """Return the elements of earlier generations in the tile that some Einsums touch together."""
    every = [(place, access, e) for e in einsums for place, access in reads(e, line)]
    last = max(place for place, _, _ in every)
    lags = tuple(sorted({last - place for place, _, _ in every} - {0}))
    if any(access.stands_for for _, access, _ in every):
        ends = {up_to(e, access) - (last - place) for place, access, e in every}
        return CarriedDimension(line.rank, "", "first", lags, ends.pop())
    found = [(place, access, without(e, access)) for place, access, e in every]
    since = {missed - (last - place) for place, access, missed in found if access.guard}
    begin = max(since, default=0)
    if len(since) > 1 or any(last - place + begin > 0 and not a.guard for place, a, _ in found if since):
        raise NotSeparable(
            f"some generations of {line.tensor} are read only once they are produced, others also before, "
            "which has no closed form",
            code="unsupported-recurrence",
        )
    held: Behind = ""
    if lags:
        held = "later" if since else "each"
    elif begin > 0:
        held = "lacking"
    return CarriedDimension(line.rank, "", held, lags, begin)


def first_reader_of_previous(einsums: Sequence[Einsum], line: CarriedRank) -> str:
    """Among the Einsums that share a tile, the first that reads the previous generation."""
    last = max(place for e in einsums for place, _ in reads(e, line))
    return next(e.name for e in einsums for place, _ in reads(e, line) if place < last)


def with_generations(space: Space, line: CarriedRank, held: CarriedDimension) -> Space:
    """The space of a tile that holds these elements of earlier generations."""
    variables = space.access.projection[line.rank].variables
    if not held.behind or not variables:
        return space
    return _along(space, replace(held, variable=variables[0]), line.alone)


def touched_since(space: Space, line: CarriedRank) -> Space:
    """The space of one access that touches nothing in the first iterations."""
    since = without(space.einsum, space.access)
    return with_generations(space, line, CarriedDimension(line.rank, "", "lacking", (), since))


def of_one_access(space: Space, line: CarriedRank | None) -> Space:
    """The space of one access, in the iterations in which it touches anything."""
    if line is not None and line.several is not None:
        return points_touched(space, (space.access,))
    if space.access.stands_for:
        return only_at_first(space)
    return space if line is None or not space.access.guard else touched_since(space, line)


def _is_one_instance(space: Space, axis: int) -> bool:
    """Whether a spatial loop has one instance: its tile is as large as any of those that enclose it."""
    own, v = space.axes[axis], space.axes[axis].variable
    above = [space.axes[i] for i in space.of(v) if i < axis]
    if not own.spatial or any(a.start is not None for a in (own, *above)) or not isinstance(own.tile, int):
        return False
    return any(isinstance(n, int) and own.tile >= n for n in (space.extent(v), *(a.tile for a in above)))


def _along(space: Space, carried: CarriedDimension, alone: Set[int] = frozenset()) -> Space:
    v = carried.variable
    spread = [i for i in space.of(v) if not (space.axes[i].node in alone and space.axes[i].start is None)]
    axes = [space.axes[i] for i in spread if not _is_one_instance(space, i)]
    if any(a.spatial or a.start is not None for a in axes) or v in space.tied or space.window(v) is not None:
        raise NotSeparable(
            f"{space.access.tensor} is carried forward over {v}, which is spread over instances, has a first "
            "tile of its own, or is tied to another rank variable",
            code="unsupported-recurrence",
        )
    return replace(space, carried=carried)


def tied_generations(space: Space) -> Space:
    """The same tiles without a carried rank: points of a group of variables are listed.

    The elements that an iteration reads and writes are those of one rank with additional variables over which
    no loop runs: 1 or the like for its own element, less for each that is further back. Points that nothing
    produces are omitted, see `behind`.
    """
    carried = space.carried
    assert carried is not None
    v, extent = carried.variable, space.extent(carried.variable)
    if not isinstance(extent, int):
        raise begins_again(space) if carried.is_product else several_before(space)
    if extent > MOST_ROWS:
        raise NotSeparable(f"{v}, over which {space.access.tensor} is carried forward, has more than "
                           f"{MOST_ROWS} values", code="too-large")  # fmt: skip
    sign = -1 if carried.behind == "first" else 1
    if not carried.lags:
        bound = (sign, -sign * carried.since)
        group = TiedGroup((v,), Region((extent,), (bound,)))
        return replace(space, carried=None, listed=(*space.listed, group))
    even = evenly({0, *carried.lags})
    step, most = even or (0, 0)
    # Distances that are not equidistant have a variable each, of which at most one is 0.
    steps = (step,) if even else carried.lags
    extents = (most,) if even else (2,) * len(steps)
    furthest = sum(n * (size - 1) for n, size in zip(steps, extents, strict=True))
    own = tuple(f"{space.access.tensor}.{n}.before" for n in steps)
    limit = (1, *steps, -furthest - carried.since)
    bounds = [] if carried.behind == "each" else [tuple(sign * x for x in limit)]
    bounds += [] if even else [(0, *(1 for _ in steps), 1 - len(steps))]
    group = TiedGroup((v, *own), Region((extent, *extents), tuple(bounds)))
    projection = list(space.access.projection)
    projection[carried.rank] += Affine(tuple(zip(own, steps, strict=True)), -furthest)
    einsum = replace(
        space.einsum,
        rank_variables=(*space.einsum.rank_variables, *own),
        bounds=(*space.einsum.bounds, *((0, size - 1) for size in extents)),
    )
    access = replace(space.access, projection=tuple(projection))
    return replace(space, einsum=einsum, access=access, carried=None, listed=(*space.listed, group))


# Tensors that are carried forward along several ranks, such as the points of a stencil in time.
#
# What an operation touches is one element with a number n for each access but the first, of which at most
# one is 1: it says which access it is. `g + w (1 - n) >= 0`, with -w the least value of g, says that g is at
# least 0 where n is 1.


def tile_along_several(spaces: Sequence[Space], line: CarriedRank, made: bool) -> Space:
    """The tile of a tensor that is carried forward along several ranks, as one Einsum touches it.

    `spaces`: those of its users; `made`: whether one of them produces it. If so, and no loop above is over
    these ranks, everything that is read was produced in the same visit.
    """
    accesses = [space.einsum.accesses_of(line.tensor) for space in spaces]
    each = zip(spaces, accesses, strict=True)
    names = [variables_that_decide(s.einsum, every, line.ranks) for s, every in each]
    if made and not any(s.of(v) for s, every in zip(spaces, names, strict=True) for v in every):
        return spaces[0]
    users = tuple(dict.fromkeys(space.einsum.name for space in spaces))
    if len(users) > 1:
        raise NotSeparable(
            f"{users[0]} and {users[1]} share tiles of {line.tensor}, which is carried from one iteration to "
            "the next along several ranks",
            f"give {line.tensor} storage of its own in the branch of each of them, or use engine exact",
            code="unsupported-recurrence",
        )
    return points_touched(spaces[0], accesses[0])


def variables_that_decide(
    einsum: Einsum, accesses: Sequence[TensorAccess], ranks: Set[int] = frozenset()
) -> Names:
    """The rank variables that jointly determine what accesses touch, including those of some ranks."""
    first, every = accesses[0], [a.projection for a in accesses]
    names = {v for a in accesses for g in a.guard for v in g.expr.variables}
    apart = {r for r in range(len(first.projection)) if len({p[r] for p in every}) > 1}
    names |= {v for r in apart | ranks for v in first.projection[r].variables}
    for _ in first.projection:
        names |= {v for x in first.projection if names & set(x.variables) for v in x.variables}
    return tuple(v for v in einsum.rank_variables if v in names)


def points_touched(space: Space, accesses: Sequence[TensorAccess]) -> Space:
    """The elements that some accesses at constant distances touch, point by point of their variables."""
    einsum, first = space.einsum, accesses[0]
    every = tuple(dict.fromkeys((a.projection, a.guard) for a in accesses))
    names = variables_that_decide(einsum, accesses)
    if not names:
        return space
    extents = tuple(map(space.extent, names))
    if not all(isinstance(n, int) for n in extents):
        raise several_before(space)
    if set(names) & space.tied or any(space.window(v) is not None for v in names):
        raise NotSeparable(
            f"{first.tensor} is carried forward in {einsum.name} along several ranks, and other bounds tie "
            "their rank variables",
            "use engine exact",
            code="unsupported-recurrence",
        )
    numbers = tuple(f"{first.tensor}.n{n}" for n in range(1, len(every)))
    rows = [(*(0 for _ in names), *(-1 for _ in numbers), 1)] if len(numbers) > 1 else []
    projection = list(first.projection)
    for n, (indices, guard) in enumerate(every):
        for rank, (one, other) in enumerate(zip(first.projection, indices, strict=True)):
            away = other.constant - one.constant
            projection[rank] += Affine(((numbers[n - 1], away),) if away else ())
        for bound in guard:
            factors = [bound.expr.coefficient(v) for v in names]
            rest = bound.expr.constant + sum(c * einsum.bound(v)[0] for v, c in bound.expr.terms)
            least = rest + sum(min(0, c * (int(x) - 1)) for c, x in zip(factors, extents, strict=True))
            if least < 0:
                free = [least * (k == n) if n else -least for k in range(1, len(every))]
                rows.append((*factors, *free, rest - least * bool(n)))
    sizes = (*map(int, extents), *(2 for _ in numbers))
    boxes = [box_of(einsum, names, guard) for _, guard in every]
    whole = tuple(rows)
    region = Region(sizes, whole) if None in boxes else BoxUnion(sizes, whole, tuple(filter(None, boxes)))
    group = TiedGroup((*names, *numbers), region)
    more = replace(
        einsum,
        rank_variables=(*einsum.rank_variables, *numbers),
        bounds=(*einsum.bounds, *((0, 1) for _ in numbers)),
    )
    access = replace(first, projection=tuple(projection))
    return replace(space, einsum=more, access=access, listed=(*space.listed, group), made=space)


def box_of(einsum: Einsum, names: Names, guard: Sequence[Constraint]) -> Box | None:
    """The first and last value of each variable, counted from its smallest one, at which an access touches
    anything; None if these values do not form a box."""
    ends = {v: [0, einsum.bound(v)[1] - einsum.bound(v)[0]] for v in names}
    for bound in guard:
        if bound.kind != "ge" or len(bound.expr.terms) != 1:
            return None
        ((v, factor),) = bound.expr.terms
        rest = bound.expr.constant + factor * einsum.bound(v)[0]
        if factor > 0:
            ends[v][0] = max(ends[v][0], -(rest // factor))
        else:
            ends[v][1] = min(ends[v][1], rest // -factor)
    return tuple((low, high) for low, high in ends.values())


def counted(count: Count, space: Space, uses: Uses) -> Form:
    """Return the result of `count`, including the elements of the previous generation in tiles."""
    assert space.carried is not None
    if not space.carried.is_product:
        return count(tied_generations(space), uses)
    if space.carried.behind == "first":
        return count(space.before, _at_first(space, uses))
    result = count(space.alone, uses)
    if space.carried.behind != "lacking":
        result = result + count(space.before, uses)
    return result if space.carried.behind == "each" else result - count(space.before, _at_first(space, uses))


def _at_first(space: Space, uses: Uses) -> Uses:
    """At the first tile of the variable along which a tensor is carried."""
    return {i: "merge" if i in space.generations else use for i, use in uses.items()}


def more_later(space: Space) -> Form:
    """1 if the largest tile of a variable holds an element of the previous generation."""
    assert space.carried is not None
    if space.carried.behind == "each":
        return number(1)
    if not space.generations:
        return Form()
    levels = tuple(space.axes[i].level("each") for i in space.generations)
    return of_atom(FullAgain(space.extent(space.carried.variable), levels))


def generation_stays(carried: Stays, space: Space, axis: int, uses: Uses, sliding: bool) -> Form:
    """The result of `carried` for a tensor that is carried forward.

    Over a step of its variable, what the later tile holds of the previous generation stays; over steps of
    other variables, the whole tile.
    """
    assert space.carried is not None
    moves, inside = axis in space.generations, any(i > axis for i in space.generations)
    if not space.carried.is_product:
        return carried(tied_generations(space), axis, uses, sliding)
    if space.carried.behind == "first":
        if moves:
            return Form()
        if inside:
            return carried(tied_generations(space), axis, uses, sliding)
        return carried(space.before, axis, _at_first(space, uses), sliding)
    if not (moves and space.carried.behind == "lacking") and (
        space.carried.behind == "lacking" or (not sliding and inside)
    ):
        return carried(tied_generations(space), axis, uses, sliding)
    result = carried(space.alone, axis, uses, sliding)
    if space.carried.behind == "lacking":
        return result
    result = result + carried(space.before, axis, uses, sliding)
    if moves or space.carried.behind == "each":
        return result
    return result - carried(space.before, axis, _at_first(space, uses), sliding)
