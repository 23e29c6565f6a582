"""Distinct tuples of counters and elements, and what stays from one visit to the next.

Everything is a product over the rank variables of one Einsum: its space is a box. A rank `a p + b r`
couples two of them, but `|{a i + b j}| = n m - (n - b')^+ (m - a')^+` for i < n, j < m, with
a' = a / gcd, b' = b / gcd, so even there every sum over tiles is a sum of two products.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from math import gcd
from typing import Literal

from polymodel.analysis.symbolic.atoms import ONE, SIZE, Leaf, Level, Role, atom
from polymodel.analysis.symbolic.forms import Form, number, of_atom
from polymodel.errors import NotSeparable
from polymodel.mapping.looptree import Loop
from polymodel.workload.einsum import Einsum, TensorAccess

# What happens to a counter in a count: kept apart, merged (a union), or held at the first instance.
Use = Literal["keep", "merge", "at0"]


@dataclass(frozen=True)
class Axis:
    """One loop above a node, or the offset of a variable in its innermost tile (`loop` is None)."""

    variable: str
    tile: int | str
    loop: Loop | None
    node: int

    @property
    def spatial(self) -> bool:
        return self.loop is not None and self.loop.spatial


@dataclass(frozen=True)
class Halo:
    """A rank `a p + b r`: with gcd 1, elements i b' further in p meet those a' further in r."""

    p: str
    r: str
    shift_p: int
    shift_r: int


@dataclass(frozen=True)
class Space:
    """The stamps over `axes` (path order) of one Einsum's box, and the elements of one access.

    `sizes`: (rank variable, symbol) of extents that are symbols.
    """

    einsum: Einsum
    access: TensorAccess
    axes: tuple[Axis, ...]
    sizes: tuple[tuple[str, str], ...] = ()

    def extent(self, variable: str) -> int | str:
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
        """Variables that do not index the tensor."""
        return tuple(v for v in self.einsum.rank_variables if v not in self.access.variables)

    def of(self, variable: str) -> list[int]:
        return [i for i, a in enumerate(self.axes) if a.variable == variable]

    def cut(self, count: int) -> Space:
        """The same above a node further out."""
        return replace(self, axes=self.axes[:count])

    def bare(self) -> Space:
        """The stamps alone, without elements."""
        return replace(self, access=TensorAccess(self.access.tensor, (), ()))


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


Uses = Mapping[int, Use]


def _levels(
    space: Space, positions: Sequence[int], roles: Mapping[Use, Role], uses: Uses
) -> tuple[Level, ...]:
    return tuple(Level(space.axes[i].tile, roles[uses[i]], space.axes[i].spatial) for i in positions)


# How each use reads for a variable that indexes the tensor (an element fixes the counters) or not.
_INDEXED: dict[Use, Role] = {"keep": "each", "merge": "each", "at0": "first"}
_SPREAD: dict[Use, Role] = {"keep": "each", "merge": "first", "at0": "first"}


def count(space: Space, uses: Uses) -> Form:
    """How many distinct (kept counters, element) there are."""
    result = number(1)
    for v in space.spread:
        levels = _levels(space, space.of(v), _SPREAD, uses)
        result = result * of_atom(atom(space.extent(v), levels, ONE))
    for v in sorted(space.single):
        levels = _levels(space, space.of(v), _INDEXED, uses)
        result = result * of_atom(atom(space.extent(v), levels, SIZE))
    for halo in space.halos:
        result = result * _windows(space, halo, uses)
    return result


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
        chains[v] = _levels(space, [i for i in positions if i not in inside], _INDEXED, uses)
    p, r = (space.extent(v) for v in (halo.p, halo.r))
    whole = of_atom(atom(p, chains[halo.p], SIZE)) * of_atom(atom(r, chains[halo.r], SIZE))
    return whole - (
        of_atom(atom(p, chains[halo.p], Leaf("over", halo.shift_p)))
        * of_atom(atom(r, chains[halo.r], Leaf("over", halo.shift_r)))
    )


def _points(space: Space, halo: Halo, merged: str, uses: Uses) -> Form:
    """Windows of a merged variable with kept loops inside: plain if the other one is down to points."""
    other = halo.r if merged == halo.p else halo.p
    positions = space.of(other)
    point = positions and space.axes[positions[-1]].tile == 1
    if not point or any(uses[i] == "merge" for i in positions):
        raise NotSeparable(
            f"tiles of {space.access.tensor} in {space.einsum.name} overlap between instances along "
            f"{merged} in more than one way",
            "use engine exact",
        )
    here = of_atom(atom(space.extent(merged), _levels(space, space.of(merged), _INDEXED, uses), SIZE))
    there = of_atom(atom(space.extent(other), _levels(space, positions, _SPREAD, uses), ONE))
    return here * there


def largest(space: Space) -> Form:
    """The largest tile: the first one."""
    return count(space, dict.fromkeys(range(len(space.axes)), "at0"))


def settled(space: Space, axis: int) -> Form:
    """1 if the loop at `axis` has one trip only, however large its enclosing tile."""
    v = space.axes[axis].variable
    above = [i for i in space.of(v) if i < axis]
    levels = [Level(space.axes[i].tile, "first", space.axes[i].spatial) for i in above]
    return of_atom(atom(space.extent(v), (*levels, Level(space.axes[axis].tile, "only")), ONE))


def carried(space: Space, axis: int, uses: Uses, sliding: bool) -> Form:
    """Distinct (kept counters, element) that stay over the steps of the temporal loop at `axis`.

    A step: the loops outside stay, this one advances by one, those inside wrap from last to first.
    Counters that are merged count as carried if every active instance has the element already.
    `sliding`: the caller multiplies by "no dependent loop inside has a second trip".
    """
    moving = space.axes[axis].variable
    if moving in space.single:
        return Form()
    result = number(1)
    for v in space.spread:
        result = result * (_pairs(space, v, axis, uses) if v == moving else _wrapped(space, v, axis, uses))
    for v in sorted(space.single):
        result = result * of_atom(atom(space.extent(v), _stays(space, v, axis, uses), SIZE))
    for halo in space.halos:
        still = not any(_temporal_inside(space, v, axis, uses) for v in (halo.p, halo.r))
        if still and moving not in (halo.p, halo.r):
            # The windows are the same before and after, also those that instances share.
            result = result * _windows(space, halo, uses)
            continue
        _refuse_wrapping(space, halo, axis, uses, sliding)
        result = result * _shared_window(space, halo, axis, uses)
    return result


def _stays(space: Space, variable: str, axis: int, uses: Uses) -> tuple[Level, ...]:
    """Levels of an indexing variable whose tile must be the same before and after the step."""
    levels = []
    for i in space.of(variable):
        a = space.axes[i]
        wraps = i > axis and not a.spatial and uses[i] == "keep"
        levels.append(Level(a.tile, "only" if wraps else _INDEXED[uses[i]], a.spatial))
    return tuple(levels)


def _temporal_inside(space: Space, variable: str, axis: int, uses: Uses) -> list[int]:
    return [i for i in space.of(variable) if i > axis and not space.axes[i].spatial and uses[i] == "keep"]


def _wrapped(space: Space, variable: str, axis: int, uses: Uses) -> Form:
    """A variable that does not index: instances active at the last counters and again at the first."""
    positions = space.of(variable)
    wraps = _temporal_inside(space, variable, axis, uses)
    merged = [i for i in positions if space.axes[i].spatial and uses[i] == "merge"]
    x = space.extent(variable)
    if not wraps or not merged:
        levels = []
        for i in positions:
            a = space.axes[i]
            role: Role = "last" if i in wraps else _SPREAD[uses[i]]
            levels.append(Level(a.tile, role, a.spatial))
        held = all(uses[i] == "at0" for i in positions if space.axes[i].spatial)
        if held:
            # The first instance is active whenever any is.
            levels = [Level(lv.tile, "first" if lv.role == "last" else lv.role) for lv in levels]
        return of_atom(atom(x, tuple(levels), ONE))
    rest = positions[positions.index(min(merged[0], wraps[0])) :]
    if len(merged) > 1 or any(i not in wraps and i not in merged for i in rest):
        raise _uneven(space, variable)
    head = _levels(space, [i for i in positions if i not in rest], _SPREAD, uses)
    return of_atom(atom(x, head, Leaf("steady", rest=_rest(space, rest))))


def _rest(space: Space, positions: Sequence[int]) -> tuple[Level, ...]:
    return tuple(Level(space.axes[i].tile, "each", space.axes[i].spatial) for i in positions)


def _uneven(space: Space, variable: str) -> NotSeparable:
    return NotSeparable(
        f"instances along {variable} hold {space.access.tensor} in {space.einsum.name} at different times",
        "use engine exact",
    )


def _pairs(space: Space, variable: str, axis: int, uses: Uses) -> Form:
    """Steps of a loop that does not index, times the instances inside that are active on both sides."""
    positions = space.of(variable)
    inside = [i for i in positions if i > axis]
    spatial = {uses[i] for i in inside if space.axes[i].spatial}
    head = _levels(space, [i for i in positions if i < axis], _SPREAD, uses)
    step = Level(space.axes[axis].tile, "pair")
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
        leaf = Leaf("kept" if spatial == {"merge"} else "both", rest=_rest(space, inside))
    return of_atom(atom(space.extent(variable), (*head, step), leaf))


def _refuse_wrapping(space: Space, halo: Halo, axis: int, uses: Uses, sliding: bool) -> None:
    """Refuse steps between windows of which both ends move, and windows shared by instances."""
    moving = space.axes[axis].variable
    both = [*space.of(halo.p), *space.of(halo.r)]
    if any(uses[i] == "merge" for i in both if space.axes[i].spatial):
        raise NotSeparable(
            f"instances share parts of windows of {space.access.tensor} in {space.einsum.name} that "
            "others keep",
            "use engine exact, or reuse: refill",
        )
    if moving in (halo.p, halo.r) and any(space.axes[i].spatial for i in space.of(moving) if i > axis):
        raise NotSeparable(
            f"windows of {space.access.tensor} in {space.einsum.name} along {moving} alternate between "
            "instances",
            "use engine exact, or reuse: refill",
        )
    if sliding:
        return
    fixed = {halo.p, halo.r} - {moving}
    if any(_temporal_inside(space, v, axis, uses) for v in fixed):
        raise NotSeparable(
            f"under keep_previous, windows of {space.access.tensor} in {space.einsum.name} overlap across "
            f"the wrap of an inner loop when {moving} advances",
            "use reuse: slide, or engine exact",
        )


def _shared_window(space: Space, halo: Halo, axis: int, uses: Uses) -> Form:
    """What consecutive windows share: all of it, or the seam between neighbours along p or r."""
    moving = space.axes[axis].variable
    shifts = {halo.p: halo.shift_p, halo.r: halo.shift_r}
    if moving in shifts:
        other = halo.r if moving == halo.p else halo.p
        head = _levels(space, [i for i in space.of(moving) if i < axis], _INDEXED, uses)
        inside = [i for i in space.of(moving) if i > axis and uses[i] == "keep"]
        leaf = Leaf("bridge", shifts[moving], _rest(space, inside))
        step = (*head, Level(space.axes[axis].tile, "pair"))
        return of_atom(atom(space.extent(moving), step, leaf)) * of_atom(
            atom(space.extent(other), _stays(space, other, axis, uses), Leaf("over", shifts[other]))
        )
    chains = {v: _stays(space, v, axis, uses) for v in shifts}
    whole = number(1)
    rest = number(1)
    for v, shift in shifts.items():
        whole = whole * of_atom(atom(space.extent(v), chains[v], SIZE))
        rest = rest * of_atom(atom(space.extent(v), chains[v], Leaf("over", shift)))
    return whole - rest
