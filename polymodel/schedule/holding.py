"""Does a storage node still hold, when an element is read, all that was made of it? Decided exactly.

An instance holds an element in one run as long as it touches it at every visit and the policy carries it over
every step between visits. So the element is lost if, for one stamp that makes it and one that reads it,
the two are in different instances, or differ in a counter over whose steps nothing stays, or some visit
between them does not touch it. Each is a union of products over the factors of the node, and a product has a
point if each factor has one: no joint relation is ever built. docs/semantics.md, Carry and Legality.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property, partial
from typing import TYPE_CHECKING

from polymodel.polyhedra import dependences, steps
from polymodel.polyhedra.build import bounded
from polymodel.polyhedra.dependences import Order, Trace
from polymodel.reuse import Reuse
from polymodel.schedule.touch import Touch, View, joint_blocks, merge_blocks, partition, touch

if TYPE_CHECKING:
    import islpy

Query = Callable[[int], "islpy.Set"]  # of the factor at a position, the elements that are lost


@dataclass(frozen=True)
class Held:
    """What one Einsum makes, another reads and all users together hold, factor by factor."""

    made: Touch
    read: Touch
    all: Touch

    @cached_property
    def traces(self) -> tuple[Trace, ...]:
        triples = zip(self.made.factors, self.read.factors, self.all.factors, strict=True)
        return tuple(Trace(m.text, r.text, h.text, len(m.spatial), len(m.temporal)) for m, r, h in triples)

    def order(self, position: int, axis: int) -> Order:
        """How many temporal axes of a factor come before `axis`, and whether that one is its own."""
        mine = self.all.factors[position].temporal
        return sum(1 for a in mine if a < axis), axis in mine

    def elsewhere(self, axis: int, position: int) -> islpy.Set:
        """Lost because made in another instance along `axis`."""
        mine = self.all.factors[position].spatial
        return dependences.elsewhere(self.traces[position], mine.index(axis) if axis in mine else None)

    def revisited(self, axis: int, position: int) -> islpy.Set:
        """Lost because `axis` is the first counter that differs, and nothing stays over its steps."""
        return dependences.revisited(self.traces[position], *self.order(position, axis))

    def dropped(self, after: int, before: int, idle: int, position: int) -> islpy.Set:
        """Lost because a visit between, that differs from both at these axes, has not got it in `idle`."""
        orders = self.order(position, after), self.order(position, before)
        return dependences.dropped(self.traces[position], *orders, position == idle)


def held(producer: View, consumer: View, users: tuple[View, ...]) -> Held:
    """The touches of a node; every view has the loops above it, `users` are all of them."""
    blocks = joint_blocks(users, partition(users))
    return Held(touch((producer,), blocks), touch((consumer,), blocks), touch(users, blocks))


def innermost_dependent(node: Touch) -> int:
    """The innermost temporal axis on which the tile depends, -1 if there is none."""
    found = -1
    for factor in node.factors:
        for q, axis in enumerate(factor.temporal):
            if axis > found and steps.depends(factor.text, len(factor.spatial), len(factor.temporal), q):
                found = axis
    return found


def lost(node: Held, reuse: Reuse, what: str, remedy: str) -> dict[int, int] | None:
    """An element that is read but not held, as rank -> index; None if there is none.

    Raises Refused, with `what` and `remedy`, when isl needs too long.
    """
    if all(
        dependences.missing(t.read, t.made, 0) is None and dependences.made_once(t.made, t.np, t.nt)
        for t in node.traces
    ):
        return None  # all of it is made at the stamp that reads it
    with bounded(what, remedy):
        for query in _losses(node, reuse):
            element = _common(node, query)
            if element is not None:
                return element
    return None


def scattered(node: Held) -> dict[int, int] | None:
    """An element that is made in one instance and read in another; None if there is none."""
    for axis in node.all.spatial:
        element = _common(node, partial(node.elsewhere, axis))
        if element is not None:
            return element
    return None


def kept_axes(node: Touch, reuse: Reuse) -> tuple[int, ...]:
    """The temporal axes over whose steps the policy lets elements stay."""
    if not reuse.carries:
        return ()
    innermost = innermost_dependent(node) if reuse.by_tile else -1
    return tuple(a for a in node.temporal if reuse.stays(a, innermost))


def unfinished(
    users: tuple[View, ...], pair: tuple[View, View], kept: tuple[int, ...], what: str, remedy: str
) -> dict[int, int] | None:
    """An element that the second of `pair` reads in one instance while parts of it are still in another.

    Partial sums get together at the parent only when their runs end. Raises Refused as `lost` does.
    """
    blocks = partition(users)
    first, second, every = (touch(views, blocks) for views in (pair[:1], pair[1:], users))
    if scattered(Held(first, second, every)) is None:
        return None
    whole = merge_blocks(blocks, range(len(blocks)))
    (made,), (read,), (held_,) = (touch(views, whole).factors for views in (pair[:1], pair[1:], users))
    trace = Trace(made.text, read.text, held_.text, len(made.spatial), len(made.temporal))
    positions = tuple(held_.temporal.index(a) for a in kept)
    with bounded(what, remedy):
        point = dependences.sample(dependences.unfinished(trace, positions))
    return None if point is None else dict(zip(held_.ranks, point, strict=True))


def _losses(node: Held, reuse: Reuse) -> Iterator[Query]:
    """All ways to lose an element; each asks every factor one question."""
    for axis in node.all.spatial:
        yield partial(node.elsewhere, axis)
    kept = kept_axes(node.all, reuse)
    for axis in node.all.temporal:
        if axis not in kept:
            yield partial(node.revisited, axis)
    for idle in range(len(node.all.factors)):
        for after in kept:
            for before in kept:
                yield partial(node.dropped, after, before, idle)


def _common(node: Held, query: Query) -> dict[int, int] | None:
    """One element for which every factor answers with something, None if a factor has nothing."""
    factors = node.all.factors
    answers = []
    for position in range(len(factors)):
        answers.append(query(position))
        if answers[-1].is_empty():
            return None
    points = (dependences.sample(a) or () for a in answers)
    pairs = zip(factors, points, strict=True)
    return {rank: value for f, point in pairs for rank, value in zip(f.ranks, point, strict=True)}
