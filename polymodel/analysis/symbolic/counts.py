"""Distinct tuples of counters and elements, and what stays from one visit to the next.

Everything is a product over the rank variables of one Einsum: its space is a box. A rank `a p + b r`
couples two of them, but `|{a i + b j}| = n m - (n - b')^+ (m - a')^+` for i < n, j < m, with
a' = a / gcd, b' = b / gcd, so even there every sum over tiles is a sum of two products.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence, Set
from dataclasses import replace
from math import gcd
from typing import Literal

from polymodel.analysis.result import Problem
from polymodel.analysis.symbolic.atoms import ONE, SIZE, ChainLevel, Leaf, Role, atom
from polymodel.analysis.symbolic.forms import Form, number, of_atom, summed
from polymodel.analysis.symbolic.generations import (
    counted,
    generation_stays,
    more_later,
    tied_generations,
)
from polymodel.analysis.symbolic.listings import DistinctValues, Listing, values_of
from polymodel.analysis.symbolic.pair_atoms import CutAtom, Side, StepOverlap
from polymodel.analysis.symbolic.regions import Region, TileQuery
from polymodel.analysis.symbolic.spaces import (
    ITERATIONS,
    Halo,
    Space,
    SumRank,
    TiedGroup,
    Use,
    groups,
)
from polymodel.analysis.symbolic.tied_groups import (
    Uses,
    Values,
    executes_at_first,
    is_listed,
    listed_group_of,
    listing,
    needs_boxes,
    one_trip,
    ranks_of,
    retained_within,
    runs_once,
    runs_through,
    touched,
    values_of_rank,
    within,
)
from polymodel.arithmetic import Affine
from polymodel.errors import NotSeparable
from polymodel.mapping.looptree import Loop, users

# How each use is interpreted for a variable that indexes the tensor (an element fixes the counters) or not.
_INDEXED: dict[Use, Role] = {
    "keep": "each", "merge": "each", "at0": "widest", "most": "widest", "hops": "hops",
    "first": "first", "later": "first", "last": "last",
}  # fmt: skip
_SPREAD: dict[Use, Role] = {**_INDEXED, "merge": "widest"}


def count(space: Space, uses: Uses) -> Form:
    """The number of distinct (kept counters, element)."""
    key = tuple(map(uses.__getitem__, range(len(space.axes))))
    if key not in space.counted and space.carried is not None:
        space.counted[key] = counted(count, space, uses)
    if key not in space.counted:
        result = _uncoupled_count(space, uses)
        for group in space.groups:
            result = result * of_atom(within(space, group, uses))
        space.counted[key] = result
    return space.counted[key]


def _uncoupled_count(space: Space, uses: Uses) -> Form:
    """Return the count over all variables except those that bounds couple."""
    result = number(1)
    for v in space.spread:
        if v not in space.tied:
            levels = space.ladder(v, {i: _SPREAD[uses[i]] for i in space.of(v)})
            result = result * summed(space.extent(v), levels, ONE)
    for v in sorted(space.single - space.tied):
        result = result * summed(space.extent(v), _elements_of(space, v, uses), SIZE)
    for halo in space.halos:
        if halo.p not in space.tied:
            result = result * _windows(space, halo, uses)
    for one in space.sums:
        if one.variables[0] not in space.tied:
            result = result * _sums(space, one, uses)
    return result


def _sums(space: Space, one: SumRank, uses: Uses) -> Form:
    """The sum of the numbers of values of a rank over the kept tiles of all its variables."""
    sides = []
    for v in one.variables:
        positions = space.of(v)
        merged = [i for i in positions if uses[i] == "merge"]
        inside = positions[positions.index(merged[0]) :] if merged else []
        if any(uses[i] != "merge" for i in inside):
            return of_atom(_overlap(space, one.variables, uses))
        # The union of the tiles of merged innermost loops is the tile above them.
        levels = space.ladder(v, {i: _INDEXED[uses[i]] for i in positions if i not in inside})
        sides.append(Side(space.extent(v), levels))
    return of_atom(DistinctValues(tuple(sides), one.factors))


def _elements_of(
    space: Space, variable: str, uses: Uses, wraps: Sequence[int] = ()
) -> tuple[ChainLevel, ...]:
    """Levels of an indexing variable; windows of merged loops, which may overlap, count as one window.

    Loops that wrap must have one trip.
    """
    positions = space.of(variable)
    window = space.window(variable)
    overlaps = window is not None and window.start > 0  # otherwise windows are adjacent
    merged = [i for i in positions if uses[i] == "merge" and overlaps and window and i < window.depth]
    if merged:
        positions = [i for i in positions if i < merged[0]]
        if any(uses[i] != "merge" for i in space.of(variable) if i > merged[0]):
            raise NotSeparable(
                f"windows of {space.access.tensor} in {space.einsum.name} overlap along {variable}",
                code="unsupported-window",
            )
    return space.ladder(variable, {i: "only" if i in wraps else _INDEXED[uses[i]] for i in positions})


def _windows(space: Space, halo: Halo, uses: Uses) -> Form:
    """Sum of window sizes over the kept tiles of both variables."""
    chains = {}
    for v in (halo.p, halo.r):
        positions = space.of(v)
        merged = [i for i in positions if uses[i] == "merge"]
        inside = positions[positions.index(merged[0]) :] if merged else []
        if any(uses[i] != "merge" for i in inside):
            return _points(space, halo, v, uses)
        # The union of the tiles of merged innermost loops is the tile above them.
        chains[v] = space.ladder(v, {i: _INDEXED[uses[i]] for i in positions if i not in inside})
    p, r = (space.extent(v) for v in (halo.p, halo.r))
    whole = summed(p, chains[halo.p], SIZE) * summed(r, chains[halo.r], SIZE)
    return whole - (
        summed(p, chains[halo.p], Leaf("over", halo.shift_p))
        * summed(r, chains[halo.r], Leaf("over", halo.shift_r))
    )


def _points(space: Space, halo: Halo, merged: str, uses: Uses) -> Form:
    """Windows of a merged variable with kept loops inside: plain if the other one is divided into points."""
    other = halo.r if merged == halo.p else halo.p
    positions = space.of(other)
    innermost = space.axes[positions[-1]] if positions else None
    point = innermost is not None and innermost.tile == 1 and innermost.start is None
    if not point or any(uses[i] == "merge" for i in positions):
        return of_atom(_overlap(space, (halo.p, halo.r), uses))
    here = _elements_of(space, merged, uses)
    there = space.ladder(other, {i: _SPREAD[uses[i]] for i in positions})
    return summed(space.extent(merged), here, SIZE) * summed(space.extent(other), there, ONE)


def largest(space: Space) -> Form:
    """The largest tile.

    It is the first one, except for variables that bounds couple, and tensors that are carried forward.
    """
    if space.carried is not None and (space.carried.behind == "lacking" or not space.carried.is_product):
        return largest(tied_generations(space))
    if space.carried is not None and space.carried.behind == "first":
        return largest(space.before)
    if space.carried is not None:
        return largest(space.alone) + largest(space.before) * more_later(space)
    result = _uncoupled_count(space, dict.fromkeys(range(len(space.axes)), "at0"))
    for group in space.groups:
        if is_listed(space, group):
            result = result * of_atom(listing(space, group, dict.fromkeys(range(len(space.axes)), "most")))
            continue
        what, rank = touched(space, group)
        if what != "none":
            u, v = (tuple(space.axes[i].level("each") for i in space.of(x)) for x in (group.u, group.v))
            asked = (TileQuery(len(u), len(v), what, rank),)
            result = result * of_atom(CutAtom(group.region, u, v, asked=asked))
    return result


def settled(space: Space, axis: int) -> Form:
    """1 if the loop at `axis` has one trip only, however large its enclosing tile is."""
    v = space.axes[axis].variable
    group = listed_group_of(space, v) if space.listed else None
    if group is not None:
        if executes_at_first(group, space.axes[axis]):
            return number(1)
        return of_atom(one_trip(space, group, axis))
    roles: dict[int, Role] = {i: "widest" for i in space.of(v) if i < axis}
    levels = space.ladder(v, {**roles, axis: "only"}, until=axis)
    if any(lv.role == "widest" and lv.more is not None for lv in levels):
        # Any of several windows may be the widest: the loop has a second trip if any window gives it one.
        again = space.ladder(v, {**roles, axis: "second"}, until=axis)
        return number(1) - summed(space.extent(v), again, ONE)
    return summed(space.extent(v), levels, ONE)


def nominal_trips(stamps: Space, axis: int) -> Form:
    """The number of trips of a loop in its nominal enclosing tile, or in the widest window that executes."""
    v = stamps.axes[axis].variable
    above, window = [i for i in stamps.of(v) if i < axis], stamps.window(v)
    widths = {w: width for g in stamps.listed for w, width in g.widths}
    if v in widths and not above:
        from polymodel.analysis.symbolic.listed_peaks import NominalTrips

        a = stamps.axes[axis]
        level = a.level("each")
        return of_atom(NominalTrips(Region((), ()), widths[v], level.begin, level.tile))
    if window is not None and axis >= window.depth and not [i for i in above if i >= window.depth]:
        roles: dict[int, Role] = dict.fromkeys(above, "nominal")
        return summed(window.extent, stamps.ladder(v, {**roles, axis: "each"}), ONE)
    if above and stamps.axes[above[-1]].start is not None:
        return summed(stamps.extent(v), stamps.ladder(v, {above[-1]: "nominal", axis: "each"}), ONE)
    enclosing = stamps.axes[above[-1]].tile if above else stamps.extent(v)
    return of_atom(atom(enclosing, (replace(stamps.axes[axis].level("each"), spatial=False),), ONE))


def carried(space: Space, axis: int, uses: Uses, sliding: bool) -> Form:
    """Distinct (kept counters, element) that stay over the steps of the temporal loop at `axis`.

    In a step the loops outside stay, this one advances by one, and those inside wrap from last to first.
    Merged counters count as carried if every active instance has the element already. `sliding`: the caller
    multiplies by "no dependent loop inside has a second trip".
    """
    moving = space.axes[axis].variable
    if space.carried is not None:
        return generation_stays(carried, space, axis, uses, sliding)
    window = space.window(moving)
    met = dict(window.later).get(axis, 0) if window is not None else 0
    if moving in space.single and not met:
        return Form()
    result = number(1)
    for group in space.groups:
        result = result * of_atom(retained_within(space, group, axis, uses))
    for v in space.spread:
        if v not in space.tied:
            of = _pairs if v == moving else _wrapped
            result = result * of(space, v, axis, uses)
    for v in sorted(space.single - space.tied):
        seam = v == moving
        apart = seam and any(space.axes[i].spatial for i in space.of(v) if i > axis)
        if apart or (not sliding and _seams(space, v, axis, uses)):
            result = result * of_atom(StepOverlap(_side(space, v, axis, uses), Side(1, ()), 1, 1))
            continue
        levels, leaf = _step(space, axis, uses, "seam") if seam else (_stays(space, v, axis, uses), SIZE)
        result = result * summed(space.extent(v), levels, leaf)
    for halo in space.halos:
        if halo.p in space.tied:
            continue
        still = not any(_temporal_inside(space, v, axis, uses) for v in (halo.p, halo.r))
        if still and moving not in (halo.p, halo.r):
            # The windows are the same before and after, also those that instances share.
            result = result * _windows(space, halo, uses)
            continue
        both = (*space.of(halo.p), *space.of(halo.r))
        if any(uses[i] == "merge" for i in both if space.axes[i].spatial):
            result = result * of_atom(_overlap(space, (halo.p, halo.r), uses, axis))
        elif _both_move(space, halo, axis, uses, sliding):
            result = result * _met_windows(space, halo, axis, uses)
        else:
            result = result * _shared_window(space, halo, axis, uses)
    for one in space.sums:
        if one.variables[0] in space.tied:
            continue
        if moving in one.variables or any(_temporal_inside(space, v, axis, uses) for v in one.variables):
            result = result * of_atom(_overlap(space, one.variables, uses, axis))
        else:
            result = result * _sums(space, one, uses)
    return result


def _stays(space: Space, variable: str, axis: int, uses: Uses) -> tuple[ChainLevel, ...]:
    """Levels of an indexing variable whose tile must be the same before and after the step."""
    return _elements_of(space, variable, uses, _temporal_inside(space, variable, axis, uses))


def _temporal_inside(space: Space, variable: str, axis: int, uses: Uses) -> list[int]:
    return [i for i in space.of(variable) if i > axis and not space.axes[i].spatial and uses[i] == "keep"]


def _wrapped(space: Space, variable: str, axis: int, uses: Uses) -> Form:
    """For a variable that does not index the tensor: instances active both at the last counters and at the
    first."""
    positions = space.of(variable)
    wraps = _temporal_inside(space, variable, axis, uses)
    merged = [i for i in positions if space.axes[i].spatial and uses[i] == "merge"]
    x = space.extent(variable)
    if not wraps or not merged:
        # The first instance is active whenever any instance is.
        held = all(uses[i] == "at0" for i in positions if space.axes[i].spatial)
        wrapped: Role = "first" if held else "last"
        roles = {i: wrapped if i in wraps else _SPREAD[uses[i]] for i in positions}
        return summed(x, space.ladder(variable, roles), ONE)
    rest = positions[positions.index(min(merged[0], wraps[0])) :]
    if len(merged) > 1 or any(i not in wraps and i not in merged for i in rest):
        raise _uneven(space, variable)
    head = space.ladder(variable, {i: _SPREAD[uses[i]] for i in positions if i not in rest}, until=rest[0])
    return summed(x, head, Leaf("steady", rest=_rest(space, variable, rest, rest[0])))


def _rest(space: Space, variable: str, positions: Sequence[int], since: int) -> tuple[ChainLevel, ...]:
    return space.ladder(variable, dict.fromkeys(positions, "each"), since)


def _uneven(space: Space, variable: str) -> NotSeparable:
    return NotSeparable(
        f"instances along {variable} hold {space.access.tensor} in {space.einsum.name} at different times",
        code="unsupported-instances",
    )


def _pairs(space: Space, variable: str, axis: int, uses: Uses) -> Form:
    """Steps of a loop that does not index the tensor, times the instances inside that are active both before
    and after."""
    positions = space.of(variable)
    inside = [i for i in positions if i > axis]
    spatial = {uses[i] for i in inside if space.axes[i].spatial}
    roles: dict[int, Role] = {i: _SPREAD[uses[i]] for i in positions if i < axis}
    step = space.ladder(variable, {**roles, axis: "pair"}, until=axis)
    if spatial <= {"at0"}:
        leaf = Leaf("both")
    else:
        alone = sum(space.axes[i].spatial for i in inside) == 1
        if (
            len(spatial) > 1
            or not alone
            or any(uses[i] != "keep" for i in inside if not space.axes[i].spatial)
        ):
            raise _uneven(space, variable)
        kind: Literal["kept", "both"] = "kept" if spatial == {"merge"} else "both"
        leaf = Leaf(kind, rest=_rest(space, variable, inside, axis))
    return summed(space.extent(variable), step, leaf)


def _step(
    space: Space, axis: int, uses: Uses, kind: Literal["seam", "bridge"], shift: int = 0
) -> tuple[tuple[ChainLevel, ...], Leaf]:
    """Neighbours along an indexing variable over the steps of the loop at `axis`."""
    v = space.axes[axis].variable
    roles: dict[int, Role] = {i: _INDEXED[uses[i]] for i in space.of(v) if i < axis}
    inside = [i for i in space.of(v) if i > axis and uses[i] == "keep"]
    return (
        space.ladder(v, {**roles, axis: "pair"}, until=axis),
        Leaf(kind, shift, _rest(space, v, inside, axis)),
    )


def _seams(space: Space, variable: str, axis: int, uses: Uses) -> bool:
    """True if windows of an inferred Einsum along the variable may overlap when an inner loop wraps."""
    window = space.window(variable)
    if window is None or not window.overlaps:
        return False
    wraps = _temporal_inside(space, variable, axis, uses)
    own = variable == space.axes[axis].variable
    return any((i >= window.depth) == own for i in wraps)


def _overlap(space: Space, variables: tuple[str, ...], uses: Uses, axis: int | None = None) -> Listing:
    """Windows of which instances share parts; with `axis`, what stays of them over the steps of that loop."""
    positions = sorted(i for v in variables for i in space.of(v))
    extents = tuple(space.extent(v) for v in variables)
    odd = any(
        uses[i] in ("hops", *ITERATIONS) or (uses[i] == "at0" and space.axes[i].grows) for i in positions
    )
    together = axis is not None and any(uses[i] == "merge" and not space.axes[i].spatial for i in positions)
    if odd or together or not all(isinstance(n, int) for n in extents):
        raise NotSeparable(
            f"instances share parts of windows of {space.access.tensor} in {space.einsum.name}, and "
            + ("a buffet outside keeps them together" if together else "extents or first tiles are symbols"),
            "use engine exact, or reuse: refill",
            code="unsupported-window",
        )
    group = TiedGroup(variables, Region(tuple(map(int, extents)), ()))
    return listing(space, group, {i: 0 if uses[i] == "at0" else uses[i] for i in positions}, axis)


def _both_move(space: Space, halo: Halo, axis: int, uses: Uses, sliding: bool) -> bool:
    """True if the step is not a product: tiles of a variable that does not advance wrap, or instances
    alternate.

    `sliding`: loops that wrap have one trip, and their tiles do not advance.
    """
    moving = space.axes[axis].variable
    if moving in (halo.p, halo.r) and any(space.axes[i].spatial for i in space.of(moving) if i > axis):
        return True
    if sliding:
        return False
    fixed = {halo.p, halo.r} - {moving}
    seams = any(_seams(space, v, axis, uses) for v in (halo.p, halo.r))
    return seams or any(_temporal_inside(space, v, axis, uses) for v in fixed)


def _met_windows(space: Space, halo: Halo, axis: int, uses: Uses) -> Form:
    """The common part of the windows before and after the step, for any movement of both variables' tiles."""
    p, r = (_side(space, v, axis, uses) for v in (halo.p, halo.r))
    return of_atom(StepOverlap(p, r, halo.shift_r, halo.shift_p))


def _side(space: Space, variable: str, axis: int, uses: Uses) -> Side:
    """A variable's tiles before and after a step.

    Each instance keeps its own elements, even if instances are merged: where a variable alone indexes its
    rank, they have no element in common.
    """
    positions = space.of(variable)
    merged = [i for i in positions if uses[i] == "merge" and not space.axes[i].spatial]
    inside = positions[positions.index(merged[0]) :] if merged else []
    if any(uses[i] != "merge" or i < axis for i in inside):
        raise NotSeparable(
            f"windows of {space.access.tensor} in {space.einsum.name} that a buffet outside keeps together "
            f"overlap in part along {variable} when a loop wraps",
            "use reuse: slide",
            code="unsupported-window",
        )
    roles: dict[int, Role] = {i: _INDEXED[uses[i]] for i in positions if i not in inside}
    roles |= dict.fromkeys(_temporal_inside(space, variable, axis, uses), "wrap")
    if axis in roles and variable == space.axes[axis].variable:
        roles[axis] = "pair"
    return Side(space.extent(variable), space.ladder(variable, roles))


def _shared_window(space: Space, halo: Halo, axis: int, uses: Uses) -> Form:
    """The common part of consecutive windows: all of it, or the seam between neighbours along p or r."""
    moving = space.axes[axis].variable
    shifts = {halo.p: halo.shift_p, halo.r: halo.shift_r}
    if moving in shifts:
        other = halo.r if moving == halo.p else halo.p
        step, leaf = _step(space, axis, uses, "bridge", shifts[moving])
        still = _stays(space, other, axis, uses)
        shared = summed(space.extent(moving), step, leaf) * of_atom(
            atom(space.extent(other), still, Leaf("over", shifts[other]))
        )
        window = space.window(moving)
        if window is None or axis >= window.depth or not dict(window.later)[axis]:
            return shared
        step, leaf = _step(space, axis, uses, "seam")
        seam = summed(space.extent(moving), step, leaf)
        return shared + seam * summed(space.extent(other), still, SIZE)
    chains = {v: _stays(space, v, axis, uses) for v in shifts}
    whole = number(1)
    rest = number(1)
    for v, shift in shifts.items():
        whole = whole * summed(space.extent(v), chains[v], SIZE)
        rest = rest * summed(space.extent(v), chains[v], Leaf("over", shift))
    return whole - rest


# Rank variables coupled by bounds: which mappings of them have closed forms.


def _tied(problem: Problem, einsum: str) -> dict[str, tuple[TiedGroup, int]]:
    """Coupled rank variable -> its group, and its place among the variables of the group."""
    result = groups(problem.cascade[einsum])
    return {v: (g, k) for g in result for k, v in enumerate(g.variables)}


def tied_loops(problem: Problem) -> tuple[frozenset[int], frozenset[int]]:
    """The loops (by node id) that Einsums share although their bounds differ, and those of them in some
    iteration or instance of which not every Einsum executes."""
    result, uneven = set(), set()
    for node_id, loop, _ in problem.tree.walk():
        if not isinstance(loop, Loop):
            continue
        ways: set[tuple[Region | None, int]] = set()
        ranges, unbound = set(), False
        for e in users(problem.tree, node_id):
            variable = loop.variable_in(e)
            if variable not in problem.cascade[e].rank_variables:
                unbound = True
            else:
                group, side = _tied(problem, e).get(variable, (None, 0))
                ways.add((None if group is None else group.region, side))
                ranges.add(problem.cascade[e].bound(variable))
        if unbound and any(region is not None for region, _ in ways):
            result.add(node_id)
        if len(ways) < 2:
            continue
        result.add(node_id)
        if runs_once(problem, node_id, loop):
            continue
        through = all(runs_through(problem, e, node_id) for e in users(problem.tree, node_id))
        if loop.spatial or len(ranges) > 1 or not through:
            uneven.add(node_id)
    return frozenset(result), frozenset(uneven)


def shares_tied_loops(problem: Problem) -> bool:
    """True if several Einsums run below one loop over a rank variable that a bound couples with another."""
    for node_id, loop, _ in problem.tree.walk():
        if isinstance(loop, Loop):
            below = users(problem.tree, node_id)
            if len(below) > 1 and any(loop.variable_in(e) in _tied(problem, e) for e in below):
                return True
    return False


def symbols_refused(where: str) -> NotSeparable:
    what = f"extents that are symbols have no closed form where {where}"
    return NotSeparable(
        what, "leave extents numbers: no --ranks, ranks=False in Python", code="unsupported-symbol"
    )


def check_tied(problem: Problem, decided: Mapping[str, Set[int]]) -> None:
    """Refuse inferred Einsums in cases that have closed forms for boxes only.

    `decided`: by Einsum, the loops (by node id) that decide what it executes if these do not all bind it.
    """
    loops = set().union(*decided.values())
    for e in problem.tree.einsums:
        tied = _tied(problem, e)
        over = loops & {i for i, loop in problem.tree.loops(e) if loop.variable_in(e) in tied}
        if tied and (decided.get(e) or (over and not needs_boxes(problem, e, max(over)))):
            raise NotSeparable(
                f"the iteration space of {e} is not a box, and what some Einsum executes is inferred",
                code="unsupported-inference",
            )


def whole_rank(space: Space, expr: Affine) -> tuple[int, int] | None:
    """(lowest, highest) index of a rank that every stamp touches entirely, without holes; else None."""
    names = {v for v, c in expr.terms if c}
    group = next((g for g in space.groups if names & set(g.variables)), None)
    every = names if group is None else names | set(group.variables)
    if space.sizes or any(moving(space, v) for v in every):
        return None
    if group is not None and any(space.window(v) is not None for v in every):
        return None  # the executed iterations are inferred
    base = expr.constant + sum(c * span(space, v)[0] for v, c in expr.terms)
    found = _box_rank(space, expr) if group is None else values_of_rank(space, group)
    if found is None:
        return None
    low, high, count = found
    return (base + low, base + high) if count == high - low + 1 else None


def moving(space: Space, variable: str) -> list[int]:
    """Positions of the loops over a variable, without those that have one trip."""
    positions = space.of(variable)
    if variable in space.tied:
        return positions
    return [i for i in positions if settled(space, i).constant != 1]


def span(space: Space, variable: str) -> tuple[int, int]:
    """The lowest value of a variable that executes at any stamp, and the number of values from it on."""
    window = space.window(variable)
    if window is not None:
        return window.low, window.scale * window.extent + window.start
    low, high = space.einsum.bound(variable)
    return low, high - low + 1


def _box_rank(space: Space, expr: Affine) -> Values | None:
    sizes = [(c, span(space, v)[1]) for v, c in expr.terms if c]
    if any(c < 0 for c, _ in sizes):
        return None
    if len(sizes) > 2:
        return values_of(Region(tuple(n for _, n in sizes), ()), tuple(c for c, _ in sizes))
    (a, n), (b, m) = [*sizes, (1, 1), (1, 1)][:2]
    common = gcd(a, b)
    count = n * m - max(0, n - b // common) * max(0, m - a // common)
    return 0, a * (n - 1) + b * (m - 1), count


def tied_signature(space: Space) -> tuple[object, ...]:
    """Return everything in the bounds that determines which elements are touched at each stamp."""
    result: list[object] = []
    for g in space.groups:
        if not any(space.of(v) for v in g.variables) and len(ranks_of(space, g)) < 2:
            continue  # `whole_rank` decides
        nodes = tuple(tuple(space.axes[i].node for i in space.of(v)) for v in g.variables)
        ranks = tuple(
            tuple(dict(expr.terms).get(v, 0) for expr in space.access.projection) for v in g.variables
        )
        result.append((g.region, nodes, ranks))
    return tuple(result)
