"""Counts along rank variables coupled by bounds: pieces of intervals, or points value by value."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import lru_cache
from itertools import product
from math import prod
from typing import TYPE_CHECKING, Literal

from polymodel.analysis.result import Problem
from polymodel.analysis.symbolic.forms import Form, number, of_atom
from polymodel.analysis.symbolic.listings import Listing, values_of
from polymodel.analysis.symbolic.pair_atoms import CutAtom, StepAtom
from polymodel.analysis.symbolic.regions import LoopStep, Made, NeededRegion, Region, Turn, What, total
from polymodel.analysis.symbolic.spaces import (
    CarriedRank,
    LoopAxis,
    Space,
    TiedGroup,
    Unions,
    Use,
    groups,
    neighbours_joined,
    same_elements,
)
from polymodel.arithmetic import Affine
from polymodel.errors import NotSeparable
from polymodel.mapping.looptree import Loop, users
from polymodel.workload.einsum import Einsum, TensorAccess

if TYPE_CHECKING:
    from polymodel.analysis.symbolic.listed_peaks import OneTrip

Uses = Mapping[int, Use]
MOST_INSTANCES = 256
Values = tuple[int, int, int]  # the lowest, the highest, and the number of values

_DETERMINED: dict[tuple[bool, bool], What] = {
    (False, False): "none", (True, False): "u", (False, True): "v", (True, True): "both",
}  # fmt: skip


def touched(space: Space, group: TiedGroup) -> tuple[What, tuple[int, int]]:
    """The variables of a pair that an element determines, and the coefficients of a rank of both."""
    ranks = ranks_of(space, group)
    for u, v in ranks:
        if u and v:
            return "rank", (u, v)
    return _DETERMINED[any(u for u, _ in ranks), any(v for _, v in ranks)], (0, 0)


def ranks_of(space: Space, group: TiedGroup) -> tuple[tuple[int, ...], ...]:
    """The coefficients of each rank that is indexed by variables of a group."""
    result = []
    for expr in space.access.projection:
        terms = dict(expr.terms)
        factors = tuple(terms.get(v, 0) for v in group.variables)
        others = {v for v in terms.keys() - set(group.variables) if len(set(space.einsum.bound(v))) > 1}
        if any(factors) and others:
            raise NotSeparable(
                f"a rank of {space.access.tensor} in {space.einsum.name} ({expr}) has a rank variable that a "
                "bound ties to another one",
                code="unsupported-space",
            )
        result += [factors] if any(factors) else []
    return tuple(result)


def is_listed(space: Space, group: TiedGroup) -> bool:
    """Whether the tiles of a group are listed value by value, because they are not pieces of intervals."""
    spread = any(space.axes[i].spatial for v in group.variables for i in space.of(v))
    return spread or has_holes(space, group)


def has_holes(space: Space, group: TiedGroup) -> bool:
    """Whether the elements in tiles of a group may fail to be intervals, so that they are listed value by
    value: a rank has both a stride and a dilation, or there are several ranks, or more than two variables."""
    if isinstance(group.region, NeededRegion):
        return True
    ranks = ranks_of(space, group)
    return len(group.variables) != 2 or any(all(r) and (1 not in r or len(ranks) > 1) for r in ranks)


def listing(
    space: Space, group: TiedGroup, uses: Uses, axis: int | None = None, settled: bool = False
) -> Listing:
    """Distinct (kept counters, element) along the variables of a group, value by value; with `axis` those
    that stay over the steps of that loop, or whether tiles do not depend on it."""
    if isinstance(group.region, NeededRegion):
        uses = {i: 0 if use == "at0" and not space.axes[i].grows else use for i, use in uses.items()}
    positions = sorted(i for v in group.variables for i in space.of(v))
    if any(uses[i] in ("hops", "at0") for i in positions):
        raise NotSeparable(
            f"instances along {' and '.join(group.variables)} share {space.access.tensor} in "
            f"{space.einsum.name} in parts, and a link, or a first tile, distinguishes them",
            code="unsupported-instances",
        )
    axes = [(i, space.axes[i]) for i in positions]
    # A buffet further out holds what all iterations of loops inside need.
    further = group.beyond(space.axes)
    uses = {**uses, **dict.fromkeys(range(len(space.axes), len(space.axes) + len(further)), "merge")}
    axes += list(enumerate(further, len(space.axes)))
    loops = tuple(tuple(a.level("each") for _, a in axes if a.variable == v) for v in group.variables)
    turns = tuple(Turn(group.variables.index(a.variable), a.spatial, _turned(uses[i])) for i, a in axes)
    step = None if axis is None else LoopStep(sum(i < axis for i in positions), axis in positions)
    needed = isinstance(group.region, NeededRegion)
    grown = () if needed else tuple(made(space, v) for v in group.variables)
    return Listing(group.region, loops, ranks_of(space, group), turns, grown, step, settled)


def listed_group_of(space: Space, variable: str) -> TiedGroup | None:
    """The group of a variable whose executed values are listed, if it is in one."""
    result = (g for g in space.listed if variable in g.variables)
    return next((g for g in result if isinstance(g.region, NeededRegion)), None)


def one_trip(space: Space, group: TiedGroup, axis: int) -> OneTrip:
    """Whether a loop over a variable of a listed group has one trip at every stamp of the loops down to it,
    including at least the deciding loops."""
    from polymodel.analysis.symbolic.listed_peaks import OneTrip

    deciding = {a.node for a in group.deciding}
    axes = [a for i, a in enumerate(space.axes) if i <= axis or a.node in deciding]
    axes = [a for a in (*axes, *group.beyond(space.axes)) if a.variable in group.variables]
    loops = tuple(tuple(a.level("each") for a in axes if a.variable == v) for v in group.variables)
    turns = tuple(group.variables.index(a.variable) for a in axes)
    place = sum(a.variable in group.variables for a in space.axes[:axis])
    return OneTrip(group.region, loops, turns, place)


def executes_at_first(group: TiedGroup, axis: LoopAxis) -> bool:
    """Whether a loop has one trip whatever its tiles: the Einsum below it has no variable of its own along
    the group, so that it executes only at the first stamp of the loops inside its storage."""
    region = group.region
    if not isinstance(region, NeededRegion) or region.own or any(s.bounds for s in region.sources):
        return False
    inside = group.deciding[region.home :]
    return not axis.spatial and any(a.node == axis.node for a in inside)


def within(space: Space, group: TiedGroup, uses: Uses) -> CutAtom | Listing:
    """Distinct (kept counters, element) along the variables of a group."""
    if is_listed(space, group):
        return listing(space, group, uses)
    what, rank = touched(space, group)
    chains, determined = [], []
    for v, element in ((group.u, what in ("u", "both")), (group.v, what in ("v", "both"))):
        positions = space.of(v)
        kept = [i for i in positions if uses[i] == "keep"]
        if not element and kept != positions[: len(kept)]:
            return listing(space, group, uses)
        points = (
            what != "rank"
            and bool(kept)
            and space.axes[kept[-1]].tile == 1
            and space.axes[kept[-1]].start is None
        )
        determined.append(element or points)
        chains.append(() if determined[-1] else tuple(space.axes[i].level("each") for i in kept))
    if what != "rank":
        what = _DETERMINED[determined[0], determined[1]]
    return CutAtom(group.region, chains[0], chains[1], what, rank)


def retained_within(space: Space, group: TiedGroup, axis: int, uses: Uses) -> CutAtom | StepAtom | Listing:
    """The elements that stay over a step along the variables of a group."""
    positions = sorted(i for v in group.variables for i in space.of(v))
    kept = [i for i in positions if uses[i] == "keep"]
    if is_listed(space, group) or kept != positions[: len(kept)]:
        return listing(space, group, uses, axis)
    what, rank = touched(space, group)
    outside = sum(i < axis for i in kept)
    if axis not in kept and outside == len(kept):
        return within(space, group, uses)
    u, v = (tuple(space.axes[i].level("each") for i in kept if i in space.of(x)) for x in (group.u, group.v))
    kind: Literal["moves", "wraps"] = "moves" if axis in kept else "wraps"
    return StepAtom(group.region, u, v, loop_order(space, group, kept), outside, kind, what, rank)


def loop_order(space: Space, group: TiedGroup, positions: Sequence[int]) -> str:
    """The loops of a group, one letter each, outermost first."""
    return "".join("u" if space.axes[i].variable == group.u else "v" for i in positions)


def untouched(space: Space, axis: int) -> Form:
    """1 if the tile does not depend on a loop over a variable that a bound couples with another one."""
    (group,) = (g for g in space.groups if space.axes[axis].variable in g.variables)
    if not ranks_of(space, group):
        return number(1)
    if is_listed(space, group):
        uses: dict[int, Use] = dict.fromkeys(range(len(space.axes)), "keep")
        return of_atom(listing(space, group, uses, axis, settled=True))
    what, rank = touched(space, group)
    positions = sorted((*space.of(group.u), *space.of(group.v)))
    u, v = (tuple(space.axes[i].level("each") for i in space.of(x)) for x in (group.u, group.v))
    order, place = loop_order(space, group, positions), positions.index(axis)
    return of_atom(StepAtom(group.region, u, v, order, place, "settled", what, rank))


def _turned(use: Use) -> Literal["keep", "merge", "most"] | int:
    assert isinstance(use, int) or use in ("keep", "merge", "most"), use
    return use


def made(space: Space, variable: str) -> Made | None:
    """The executed values of a variable of an inferred Einsum, for each loop that decides them."""
    window = space.window(variable)
    if window is None:
        return None
    later, loops = dict(window.later), [i for i in space.of(variable) if i < window.depth]
    return Made(window.scale, window.start, tuple(later.get(i) for i in loops))


def values_of_rank(space: Space, group: TiedGroup) -> Values | None:
    ranks = ranks_of(space, group)
    if len(ranks) > 1:
        return None  # the touched elements of two ranks are not a product
    if has_holes(space, group):
        return values_of(group.region, ranks[0])
    what, rank = touched(space, group)
    u, low, high = group.region.rows
    if what == "rank":
        first, last = (rank[0] * u + rank[1] * end for end in (low, high))
        return int(first.min()), int(last.max()), total(group.region, (), (), what, rank)
    rows = u if what == "u" else group.region.turned.rows[0]
    return (int(rows[0]), int(rows[-1]), len(rows)) if max(ranks[0]) == 1 else None


def instances_of(problem: Problem, space: Space) -> Iterator[dict[int, int]]:
    """The instances that spatial loops over coupled variables distinguish: by node id, the number of each.

    Any of them may be the busiest, depending on how the bounds cut their tiles.
    """
    hierarchy, name = problem.hierarchy, space.einsum.name
    waiting = any(hierarchy.waits(c.name) for c in hierarchy.components)
    if hierarchy.costly_links or waiting or any(problem.rounding()):
        raise NotSeparable(
            f"{name} is spread over instances along a rank variable that a bound ties to another one, and "
            "links cost, refills wait, or transfers take whole actions",
            code="unsupported-space",
        )
    loops, counts = [a for a in space.axes if a.spatial and a.variable in space.tied], []
    for a in loops:
        assert a.loop is not None
        most = hierarchy[a.loop.component].dim(a.loop.dim).fanout
        counts.append(min(int(space.extent(a.variable)), most))
    if prod(counts) > MOST_INSTANCES:
        raise NotSeparable(
            f"each of more than {MOST_INSTANCES} instances along {loops[0].variable}, which a bound ties to "
            f"another rank variable, may be the busiest of {name}",
            code="too-large",
        )
    for numbers in product(*map(range, counts)):
        yield dict(zip((a.node for a in loops), numbers, strict=True))


def is_whole(group: TiedGroup, variable: str) -> bool:
    """Whether there are points at every value of a variable."""
    place = group.variables.index(variable)
    factors = tuple(int(k == place) for k in range(len(group.variables)))
    if len(group.variables) != 2:
        return values_of(group.region, factors)[2] == group.region.extents[place]
    region = group.region if place == 0 else group.region.turned
    return len(region.rows[0]) == region.extents[0]


def runs_through(problem: Problem, name: str, node_id: int) -> bool:
    """Whether an Einsum executes in each iteration of a loop that others share, and of the loops above it.

    It does if, of the variables coupled by its bounds, these loops are over one only, and every value of that
    one has points.
    """
    einsum, shared = problem.cascade[name], _looped(problem, name, node_id)
    for group in groups(einsum):
        over = shared & set(group.variables)
        if len(over) > 1 or not all(is_whole(group, v) for v in over):
            return False
    return True


def _looped(problem: Problem, name: str, node_id: int) -> set[str]:
    """The variables of the loops of an Einsum down to a given one, without loops of one iteration."""
    loops = [(i, loop) for i, loop in problem.tree.loops(name) if i <= node_id]
    return {loop.variable_in(name) for i, loop in loops if not runs_once(problem, i, loop)}


def needs_boxes(problem: Problem, name: str, node_id: int) -> bool:
    """Whether an Einsum needs of others, in each iteration of the loops down to a given one, what it would
    need without bounds: of the variables coupled by bounds, the loops and a tensor's ranks are over one only,
    and every value of that one has points."""
    einsum, shared = problem.cascade[name], _looped(problem, name, node_id)
    if any(loop.spatial for i, loop in problem.tree.loops(name) if i <= node_id):
        return False  # each instance needs something else
    made = [a for a in einsum.inputs if problem.cascade.producer(a.tensor) is not None]
    for group in groups(einsum):
        for touched in (set(), *(set(a.variables) for a in made)):
            over = (shared | touched) & set(group.variables)
            if len(over) > 1 or not all(is_whole(group, v) for v in over):
                return False
    return True


def runs_once(problem: Problem, node_id: int, loop: Loop) -> bool:
    """Whether a loop has one trip in all Einsums that it binds: its tile is at least as large as their
    range."""
    extents = []
    for e in users(problem.tree, node_id):
        variable = loop.variable_in(e)
        if variable in problem.cascade[e].rank_variables:
            low, high = problem.cascade[e].bound(variable)
            extents.append(high - low + 1)
    sizes = [s for s in (loop.tile_shape, loop.initial_tile_shape) if s is not None]
    return all(isinstance(s, int) and s >= n for s in sizes for n in extents)


def loosened(space: Space) -> Space:
    """The space without irrelevant bounds: of the variables that such bounds couple, the loops and the
    tensor's ranks are over one only, and every value of that one has points."""
    loose: set[str] = set()
    for group in space.groups:
        if isinstance(group.region, NeededRegion):
            continue
        over = {v for v in group.variables if space.of(v)}
        for rank in ranks_of(space, group):
            over |= {v for v, factor in zip(group.variables, rank, strict=True) if factor}
        if len(over) < 2 and all(is_whole(group, v) for v in over):
            loose |= set(group.variables)
    return replace(space, einsum=_boxed(space.einsum, frozenset(loose))) if loose else space


@lru_cache(maxsize=1024)
def _boxed(einsum: Einsum, loose: frozenset[str]) -> Einsum:
    kept = (c for c in einsum.constraints if len(c.expr.variables) < 2 or not loose & set(c.expr.variables))
    return replace(einsum, constraints=tuple(kept))


# Tensors that an operation reads at several elements, such as A[m] and A[k].
#
# All of them become one access, A[x]: a number n identifies the access, and bounds tie x to the rank
# variables of that access only. For values at most w apart, `x - m <= w n` and `m - x <= w n` restrict
# nothing unless n is 0.


def accesses_joined(
    einsum: Einsum, lines: Mapping[str, CarriedRank]
) -> tuple[Einsum, Unions, Mapping[str, TiedGroup]]:
    """One access to all elements of each tensor that is read at several elements in one operation, and the
    bounds between its rank variables and others if the elements are not equidistant."""
    joined, unions = neighbours_joined(einsum, lines)
    tied: dict[str, TiedGroup] = {}
    for tensor in dict.fromkeys(a.tensor for a in einsum.operands):
        if tensor not in unions and tensor not in lines and not same_elements(einsum, None, tensor):
            joined, access, tied[tensor] = _choice(joined, einsum.accesses_of(tensor))
            unions = {**unions, tensor: access}
    return joined, unions, tied


def _choice(einsum: Einsum, accesses: Sequence[TensorAccess]) -> tuple[Einsum, TensorAccess, TiedGroup]:
    """The Einsum with rank variables for the elements of some accesses, the access to these elements, and the
    bounds."""
    first, every = accesses[0], tuple(dict.fromkeys(a.projection for a in accesses))
    apart = [r for r in range(len(first.projection)) if len({p[r] for p in every}) > 1]
    numbers = tuple(f"{first.tensor}.n{n}" for n in range(1, len(every)))
    ranges = {f"{first.tensor}.{r}": _range(einsum, [p[r] for p in every]) for r in apart}
    more = {**{v: (0, high - low) for v, (low, high) in ranges.items()}, **dict.fromkeys(numbers, (0, 1))}
    variables, bounds = (*einsum.rank_variables, *more), (*einsum.bounds, *more.values())
    result = replace(einsum, rank_variables=variables, bounds=bounds)
    projection = list(first.projection)
    read = sorted({v for p in every for r in apart for v in p[r].variables})
    names = (*read, *more)
    extents = tuple(high - low + 1 for low, high in map(result.bound, names))
    rows = []
    if len(numbers) > 1:
        rows.append((*(-int(v in numbers) for v in names), 1))  # at most one access at a time
    for (own, (low, high)), r in zip(ranges.items(), apart, strict=True):
        projection[r] = Affine(((own, 1),), low)
        for n, p in enumerate(every):
            # A bound is slack by the whole range unless the number of its access is set; that of the first
            # unless none is set.
            free = {v: low - high if n and v == numbers[n - 1] else (high - low) * (not n) for v in numbers}
            factors = {**dict(p[r].terms), own: -1}
            rest = p[r].constant - low + sum(c * einsum.bound(v)[0] for v, c in p[r].terms)
            for sign in (1, -1):
                row = [sign * factors.get(v, 0) + free.get(v, 0) for v in names]
                rows.append((*row, sign * rest + (high - low) * bool(n)))
    access = replace(first, projection=tuple(projection))
    return result, access, TiedGroup(names, Region(extents, tuple(rows)))


def _range(einsum: Einsum, every: Sequence[Affine]) -> tuple[int, int]:
    """The least and the largest value of some expressions."""
    ends = [
        [e.constant + sum(f(c * b for b in einsum.bound(v)) for v, c in e.terms) for e in every]
        for f in (min, max)
    ]
    return min(ends[0]), max(ends[1])


def with_choice(space: Space, choice: TiedGroup | None) -> Space:
    """The space of a tensor that is read at several elements, with the bounds between them and rank
    variables."""
    if choice is None:
        return space
    if space.listed or space.windows or groups(space.einsum):
        what = f"{space.einsum.name} reads {space.access.tensor} at several elements, and is not a box"
        raise NotSeparable(what, "use engine exact", code="unsupported-einsum")
    return replace(space, listed=(choice,))
