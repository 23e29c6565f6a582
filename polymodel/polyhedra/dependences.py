"""Dependences in one factor: elements that are read out of order, or lost before the stamp that reads them.

Every answer is the set of elements `[x...]` of one factor for which such stamps exist. The stamps of a node
are a product over factors, and so is each question here: it holds somewhere if it holds in every factor.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

import islpy as isl

from polymodel.polyhedra.build import parse_set
from polymodel.polyhedra.counting import points_of
from polymodel.polyhedra.steps import visits


def shared_element(one: str, other: str, np: int, nt: int, equal: int, later: bool) -> tuple[int, ...] | None:
    """An element x with t in `one`, t' in `other`, both touching x, t and t' equal in their first
    `equal` counters and, if `later`, t greater in the next; None if there is none."""
    a = parse_set(one).project_out(isl.dim_type.set, 0, np)
    b = parse_set(other).project_out(isl.dim_type.set, 0, np)
    nx = a.dim(isl.dim_type.set) - nt
    pairs = isl.Map.from_domain_and_range(a, b)
    for i in [*range(equal), *range(nt, nt + nx)]:
        pairs = pairs.equate(isl.dim_type.in_, i, isl.dim_type.out, i)
    if later:
        pairs = pairs.order_gt(isl.dim_type.in_, equal, isl.dim_type.out, equal)
    found = pairs.domain().project_out(isl.dim_type.set, 0, nt)
    return sample(found)


def sample(points: isl.Set) -> tuple[int, ...] | None:
    """The first point of a set, None if it has none."""
    if points.is_empty():
        return None
    if points.dim(isl.dim_type.set) == 0:
        return ()
    return points_of(isl.Set.from_point(points.lexmin().sample_point()))[0]


def missing(wanted: str, made: str | None, drop: int) -> tuple[int, ...] | None:
    """A point of `wanted` that is not in `made` (None: any point), ignoring the first `drop` dimensions."""
    points = parse_set(wanted).project_out(isl.dim_type.set, 0, drop)
    if made is not None:
        points = points.subtract(parse_set(made).project_out(isl.dim_type.set, 0, drop))
    return sample(points)


def made_once(made: str, np: int, nt: int) -> bool:
    """True if each element is touched at one stamp only, counters of instances included."""
    return bool(_stamps_of(made, np, nt).is_single_valued())


def made_apart(made: str, np: int, nt: int) -> tuple[int, ...]:
    """An element that is touched at several stamps, any element if none is."""
    where = _stamps_of(made, np, nt)
    others = where.subtract(where.lexmin()).domain()
    return sample(where.domain() if others.is_empty() else others) or ()


def _stamps_of(made: str, np: int, nt: int) -> isl.Map:
    """`{ [element] -> [stamp] }` of a factor."""
    points = parse_set(made)
    identity = isl.Map.identity(points.get_space().map_from_set()).intersect_domain(points)
    nx = points.dim(isl.dim_type.set) - np - nt
    return identity.project_out(isl.dim_type.in_, 0, np + nt).project_out(isl.dim_type.out, np + nt, nx)


Order = tuple[int, bool]
SET = isl.dim_type.set


@dataclass(frozen=True)
class Trace:
    """One factor over `[p..., t..., x...]`: what is made, what is read, all that the node ever holds."""

    made: str
    read: str
    held: str
    np: int
    nt: int

    @property
    def nx(self) -> int:
        return int(parse_set(self.made).dim(SET)) - self.np - self.nt


@lru_cache(maxsize=8192)
def elsewhere(trace: Trace, axis: int | None) -> isl.Set:
    """Elements made in one instance and read in another that differs in counter `axis` (None: in any)."""
    np, nt, nx = trace.np, trace.nt, trace.nx
    made = parse_set(trace.made).project_out(SET, np, nt).insert_dims(SET, np, np)
    read = parse_set(trace.read).project_out(SET, np, nt).insert_dims(SET, 0, np)
    pairs = made.intersect(read)
    if axis is not None:
        pairs = pairs.intersect(_where(2 * np + nx, [f"c{axis} != c{np + axis}"]))
    return pairs.project_out(SET, 0, 2 * np)


@lru_cache(maxsize=8192)
def revisited(trace: Trace, equal: int, differs: bool) -> isl.Set:
    """Elements made and read at stamps of one instance with `equal` equal counters, the next unequal."""
    np, nt, nx = trace.np, trace.nt, trace.nx
    pairs = _at(parse_set(trace.made), np, nt, 0, 2).intersect(_at(parse_set(trace.read), np, nt, 1, 2))
    facts = [f"c{np + i} = c{np + nt + i}" for i in range(equal)]
    if differs:
        facts.append(f"c{np + equal} != c{np + nt + equal}")
    return _elements(pairs.intersect(_where(np + 2 * nt + nx, facts)), nx)


@lru_cache(maxsize=8192)
def dropped(trace: Trace, after: Order, before: Order, idle: bool) -> isl.Set:
    """Elements made at s and read at t in one instance, with a visit v between; `idle`: v has not got them.

    `after`: how v follows s, `before`: how t follows v; each as (equal counters, the next is greater).
    """
    np, nt = trace.np, trace.nt
    between = _idle(trace.held, np, nt) if idle else _visited(trace.held, np, nt)
    since = _neighbour(trace.made, np, nt, after, later=False)
    until = _neighbour(trace.read, np, nt, before, later=True)
    return _elements(between.intersect(since).intersect(until), trace.nx)


@lru_cache(maxsize=8192)
def _neighbour(text: str, np: int, nt: int, order: Order, later: bool) -> isl.Set:
    """`[p, v, x]`: x is touched at a stamp before v (`later`: after it), in the given order."""
    points = parse_set(text)
    nx = points.dim(SET) - np - nt
    equal, greater = order
    facts = [f"c{np + i} = c{np + nt + i}" for i in range(equal)]
    if greater:
        facts.append(f"c{np + equal} < c{np + nt + equal}")
    pairs = _at(points, np, nt, int(later), 2).intersect(_where(np + 2 * nt + nx, facts))
    return pairs.project_out(SET, np if not later else np + nt, nt)


@lru_cache(maxsize=8192)
def _visited(text: str, np: int, nt: int) -> isl.Set:
    """`[p, v, x]` at the node's visits, any p and x."""
    nx = parse_set(text).dim(SET) - np - nt
    return visits(text, np, nt).insert_dims(SET, nt, nx).insert_dims(SET, 0, np)


@lru_cache(maxsize=8192)
def _idle(text: str, np: int, nt: int) -> isl.Set:
    return _visited(text, np, nt).subtract(parse_set(text)).coalesce()


def unfinished(trace: Trace, kept: tuple[int, ...]) -> isl.Set:
    """Elements that one instance made and still holds while another, that reads them, holds them too.

    For a node of a single factor. `kept`: the temporal counters over whose steps elements stay.
    """
    np, nt, nx = trace.np, trace.nt, trace.nx
    alive = _alive(trace, kept)
    made = alive.intersect(_at(parse_set(trace.made), np, nt, 0, 2)).project_out(SET, np, nt)
    read = alive.intersect(_at(parse_set(trace.read), np, nt, 1, 2)).project_out(SET, np + nt, nt)
    pairs = made.insert_dims(SET, np, np).intersect(read.insert_dims(SET, 0, np))
    apart = [f"c{i} != c{np + i}" for i in range(np)]
    return _elements(pairs.intersect(_where(2 * np + nt + nx, [f"({' or '.join(apart)})"])), nx)


def _alive(trace: Trace, kept: tuple[int, ...]) -> isl.Set:
    """`[p, s, v, x]`: instance p holds x at s and at v, and all the way from one to the other."""
    np, nt, nx = trace.np, trace.nt, trace.nx
    dims = np + 2 * nt + nx
    both = parse_set(trace.held)
    both = _at(both, np, nt, 0, 2).intersect(_at(both, np, nt, 1, 2))
    found = both.intersect(_where(dims, [f"c{np + i} = c{np + nt + i}" for i in range(nt)]))
    for axis in kept:
        steps = [f"c{np + i} = c{np + nt + i}" for i in range(axis)]
        steps.append(f"c{np + axis} < c{np + nt + axis}")
        found = found.union(both.intersect(_where(dims, steps)))
    idle = _idle(trace.held, np, nt).insert_dims(SET, np, nt).insert_dims(SET, np + 2 * nt, nt)
    for after in kept:
        for before in kept:
            facts = []
            for start, axis in ((np, after), (np + nt, before)):
                facts += [f"c{start + i} = c{start + nt + i}" for i in range(axis)]
                facts.append(f"c{start + axis} < c{start + nt + axis}")
            between = idle.intersect(_where(np + 3 * nt + nx, facts))
            found = found.subtract(between.project_out(SET, np + nt, nt))
    return found.coalesce()


def _at(points: isl.Set, np: int, nt: int, slot: int, slots: int) -> isl.Set:
    """`[p, t, x]` widened to `slots` stamps; t becomes number `slot` of them."""
    points = points.insert_dims(SET, np, slot * nt)
    return points.insert_dims(SET, np + (slot + 1) * nt, (slots - slot - 1) * nt)


def _where(dims: int, facts: list[str]) -> isl.Set:
    names = ", ".join(f"c{i}" for i in range(dims))
    return parse_set(f"{{ [{names}] : {' and '.join(facts) or 'true'} }}")


def _elements(points: isl.Set, nx: int) -> isl.Set:
    return points.project_out(SET, 0, points.dim(SET) - nx)
