"""Rank variables that bounds of an iteration space tie together: padded windows, masks, bands.

A space that is a box but for such pairs is a product: of the ranges of its other variables, and of one set of
points per pair. So each pair is one factor of every count, which depends on the tile sizes of both.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from math import prod
from typing import TYPE_CHECKING

from polymodel.analysis.symbolic.pair_atoms import Asked, front
from polymodel.analysis.symbolic.regions import Region, Tiles, What, total
from polymodel.analysis.symbolic.spaces import groups
from polymodel.errors import NotSeparable, Refused
from polymodel.workload.einsum import Einsum

if TYPE_CHECKING:
    from polymodel.mapper.space import Operand

Elements = tuple[
    What, tuple[int, int]
]  # which elements of a pair are counted, and the coefficients of a rank
POINTS: Elements = ("both", (0, 0))


@dataclass(frozen=True)
class Tie:
    """Two rank variables (positions) and the points of their region."""

    u: int
    v: int
    region: Region

    @property
    def both(self) -> frozenset[int]:
        return frozenset((self.u, self.v))

    @property
    def points(self) -> int:
        return self.moved((0, 0), POINTS)

    def of(self, operand: Operand) -> Elements:
        """What the values of both variables tell apart in a tensor."""
        for w in operand.windows:
            if {w.p, w.r} == self.both:
                coefficients = (w.step_r, w.step_p) if w.p == self.u else (w.step_p, w.step_r)
                return "rank", coefficients
        indexed = self.both & operand.alone
        if indexed == self.both:
            return POINTS
        return ("u" if self.u in indexed else "v" if self.v in indexed else "none"), (0, 0)

    def moved(self, sizes: tuple[int, int], elements: Elements) -> int:
        """Elements of all tiles that have points, each once per tile; sizes of 0 leave a variable whole."""
        one, other = (self._tiles(k, size) for k, size in enumerate(sizes))
        return total(self.region, one, other, *elements)

    def largest(self, sizes: tuple[int, int], elements: Elements) -> int:
        """Elements of the largest tile."""
        what, rank = elements
        if what == "none":
            return 1
        one, other = (self._tiles(k, size) for k, size in enumerate(sizes))
        return front(self.region, one, other, (Asked(len(one), len(other), what, rank),))[0][0]

    def _tiles(self, axis: int, size: int) -> Tiles:
        return ((size, size),) if 0 < size < self.region.extents[axis] else ()


def is_box(one: Einsum) -> bool:
    """Whether no bound ties rank variables together."""
    try:
        return not groups(one)
    except NotSeparable:
        return False


def ties_of(one: Einsum, variables: Sequence[str], remedy: str) -> tuple[Tie, ...]:
    """Those of an Einsum. Refused where its space starts elsewhere than at 0 or is no product of pairs."""
    for v, (low, _) in zip(one.rank_variables, one.bounds, strict=True):
        if low:
            what = f"rank variable {v} of {one.name} starts at {low}, as where a halo shifts rows"
            raise Refused(f"{what}; the search covers those that start at 0", f"shift {v}, or {remedy}")
    try:
        found = groups(one)
    except NotSeparable as fault:
        raise Refused(
            f"the search covers boxes and pairs of tied variables: {fault.message}", remedy
        ) from None
    return tuple(Tie(variables.index(g.u), variables.index(g.v), g.region) for g in found)


def require_counted(one: Einsum, ties: Iterable[Tie], operands: Iterable[Operand], remedy: str) -> None:
    """Refuses tensors of which the tiles of a pair do not tell how many elements there are."""
    for tie in ties:
        for o in operands:
            partly = any(w for w in o.windows if len({w.p, w.r} & tie.both) == 1)
            what, rank = tie.of(o)
            if partly or (what == "rank" and 1 not in rank):
                told = f"the windows of {o.tensor} in {one.name}, whose iteration space is no box"
                raise Refused(f"the search does not cover {told}", remedy)


def refuse_beside(one: Einsum, ties: Sequence[Tie], besides: Iterable[str], remedy: str) -> None:
    """Refuses what is counted only where all tiles are equal."""
    for what in besides if ties else ():
        told = f"the iteration space of {one.name} is no box"
        raise Refused(f"{told}, which the search does not cover beside {what}", remedy)


def elements_of(operand: Operand, extents: Sequence[int], ties: Sequence[Tie]) -> int:
    """Elements of a tensor that the Einsum touches."""
    tied = frozenset(v for t in ties for v in t.both)
    result = prod(t.moved((0, 0), t.of(operand)) for t in ties)
    result *= prod(extents[v] for v in operand.alone - tied)
    return result * prod(w.elements(extents[w.p], extents[w.r]) for w in operand.windows if w.p not in tied)


def points_of(extents: Sequence[int], ties: Sequence[Tie]) -> int:
    """Points of the iteration space."""
    tied = frozenset(v for t in ties for v in t.both)
    return prod(n for v, n in enumerate(extents) if v not in tied) * prod(t.points for t in ties)
