"""Consecutive visits as relations: which stamp precedes which, and what both hold.

Sets are over `[p..., t..., x...]` with `np` spatial, `nt` temporal and then data dimensions. A transition is
named by the position, relative to this factor, of the first temporal counter that differs: `("eq", 0)` in
another factor and inside all counters of this one; `("at", q)` at counter q of this factor; `("wrap", q)` in
another factor, such that the counters of this factor from q on go from their last to their first values.
"""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING

from polymodel.frozen import dataclass
from polymodel.polyhedra import isl
from polymodel.polyhedra.sets import count_by, parse_map, parse_set, points_of, without

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    Counts = NDArray[np.object_]

Mode = tuple[str, int]


@lru_cache(maxsize=16384)
def visits(text: str, np: int, nt: int) -> isl.Set:
    """The temporal stamps at which any element is touched."""
    points = parse_set(text)
    total = points.dim(isl.dim_type.set)
    points = points.project_out(isl.dim_type.set, np + nt, total - np - nt)
    return points.project_out(isl.dim_type.set, 0, np)


def _prefix_map(stamps: isl.Set, nt: int, length: int) -> isl.Map:
    """`{ t[:length] -> t }` on the given stamps."""
    identity = isl.Map.identity(stamps.get_space().map_from_set()).intersect_domain(stamps)
    return identity.project_out(isl.dim_type.in_, length, nt - length)


@lru_cache(maxsize=16384)
def transition(text: str, np: int, nt: int, mode: Mode) -> isl.Map:
    """`{ t -> t' }`, where t' is the visit before t, for the transitions that `mode` names."""
    stamps = visits(text, np, nt)
    kind, q = mode
    if kind == "eq":
        return isl.Map.identity(stamps.get_space().map_from_set()).intersect_domain(stamps)
    length = q + 1 if kind == "at" else q
    spread = _prefix_map(stamps, nt, length)
    first, last = spread.lexmin(), spread.lexmax()
    if kind == "wrap":
        return first.reverse().apply_range(last)
    heads = spread.domain()
    before = isl.Map.lex_gt(heads.get_space())
    for i in range(q):
        before = before.equate(isl.dim_type.in_, i, isl.dim_type.out, i)
    before = before.intersect_domain(heads).intersect_range(heads).lexmax()
    return first.reverse().apply_range(before).apply_range(last)


def _lift(step: isl.Map, np: int, nt: int, nx: int) -> isl.Map:
    """`{ [p, t, x] -> [p, t', x] }` from `{ t -> t' }`."""
    for kind in (isl.dim_type.in_, isl.dim_type.out):
        step = step.insert_dims(kind, 0, np)
        step = step.insert_dims(kind, np + nt, nx)
    for i in [*range(np), *range(np + nt, np + nt + nx)]:
        step = step.equate(isl.dim_type.in_, i, isl.dim_type.out, i)
    return step


@lru_cache(maxsize=16384)
def resident_at_neighbor(
    text: str, held: str, np: int, nt: int, mode: Mode, forward: bool
) -> tuple[isl.Set, isl.Set]:
    """Returns (elements touched at a stamp that has a neighbour, those of them that are also held at the
    neighbour).

    The neighbour is the preceding visit, or the following one if `forward`. `text` is what is touched at the
    stamp, `held` what the node touches at any visit, which defines the visits.
    """
    now, all_held = parse_set(text), parse_set(held)
    total = now.dim(isl.dim_type.set)
    step = transition(held, np, nt, mode)
    if forward:
        step = step.reverse()
    lifted = _lift(step, np, nt, total - np - nt)
    return now.intersect(lifted.domain()), now.intersect(lifted.intersect_range(all_held).domain())


def united(candidates: isl.Set, stay: isl.Set, drop: tuple[int, ...]) -> isl.Set:
    """The stamps and elements that have to move once for all instances along the dropped dimensions.

    These are `candidates` minus `stay`: when shared dimensions are dropped, an element does not move only if
    every instance that touches it keeps it.
    """
    moving = candidates.subtract(stay)
    for position in sorted(drop, reverse=True):
        candidates = candidates.project_out(isl.dim_type.set, position, 1)
        moving = moving.project_out(isl.dim_type.set, position, 1)
    return candidates.subtract(moving)


@lru_cache(maxsize=16384)
def depends(text: str, np: int, nt: int, q: int) -> bool:
    """True if two stamps that differ only in temporal counter q hold different non-empty tiles."""
    points = parse_set(text)
    total = points.dim(isl.dim_type.set)
    nx = total - np - nt
    if nx == 0:
        return False
    # Otherwise every stamp holds all that the stamps which differ from it in q alone hold together.
    stamps = points.project_out(isl.dim_type.set, np + nt, nx).insert_dims(isl.dim_type.set, np + nt, nx)
    merged = points.project_out(isl.dim_type.set, np + q, 1).insert_dims(isl.dim_type.set, np + q, 1)
    return not stamps.intersect(merged).is_subset(points)


@lru_cache(maxsize=16384)
def moves(text: str, np: int, nt: int, q: int) -> bool:
    """True if temporal counter q takes two values at some stamp prefix, with all counters before it equal."""
    stamps = visits(text, np, nt)
    heads = stamps.project_out(isl.dim_type.set, q + 1, nt - q - 1)
    before = isl.Map.lex_gt(heads.get_space())
    for i in range(q):
        before = before.equate(isl.dim_type.in_, i, isl.dim_type.out, i)
    return not before.intersect_domain(heads).intersect_range(heads).is_empty()


@lru_cache(maxsize=16384)
def instance_of_element(text: str, np: int, nt: int) -> bool:
    """True if each element is touched in one instance only, that is, if x determines p."""
    points = parse_set(text)
    total = points.dim(isl.dim_type.set)
    places = points.project_out(isl.dim_type.set, np, nt)
    nx = total - np - nt
    relation = isl.Map.from_domain_and_range(
        places.project_out(isl.dim_type.set, 0, np), places.project_out(isl.dim_type.set, np, nx)
    )
    wide = isl.Map.identity(places.get_space().map_from_set()).intersect_domain(places)
    wide = wide.project_out(isl.dim_type.in_, 0, np).project_out(isl.dim_type.out, np, nx)
    return bool(relation.intersect(wide).is_single_valued())


@lru_cache(maxsize=16384)
def uniform(text: str, np: int, nt: int) -> bool:
    """True if the same instances are active at every stamp. The set has no data dimensions."""
    points = parse_set(text)
    where = points.project_out(isl.dim_type.set, np, nt)
    when = points.project_out(isl.dim_type.set, 0, np)
    whole = where.insert_dims(isl.dim_type.set, np, nt).intersect(when.insert_dims(isl.dim_type.set, 0, np))
    return bool(whole.is_subset(points))


@lru_cache(maxsize=16384)
def first_is_fullest(text: str, np: int, nt: int) -> bool:
    """True if each instance that is active at some stamp is also active at the first stamp with the same
    prefix."""
    points = parse_set(text)
    stamps = points.project_out(isl.dim_type.set, 0, np)
    for length in range(nt):
        first = _prefix_map(stamps, nt, length).lexmin().range()
        early = points.intersect(first.insert_dims(isl.dim_type.set, 0, np))
        early = early.project_out(isl.dim_type.set, np + length, nt - length)
        if not points.project_out(isl.dim_type.set, np + length, nt - length).is_subset(early):
            return False
    return True


@lru_cache(maxsize=16384)
def lowest_receives(text: str, keep: int, np: int, nt: int) -> bool:
    """True if the instance with counter 0 in dimensions keep..np is active whenever any of them is."""
    points = parse_set(text)
    group = points.project_out(isl.dim_type.set, keep, np - keep)
    lowest = points
    for i in range(keep, np):
        lowest = lowest.fix_val(isl.dim_type.set, i, isl.Val(0))
    return bool(group.is_subset(lowest.project_out(isl.dim_type.set, keep, np - keep)))


@lru_cache(maxsize=16384)
def at_first(text: str, np: int, nt: int) -> isl.Set:
    """The touches `[p, x]` at the first stamp of each element over all instances."""
    points = parse_set(text)
    total = points.dim(isl.dim_type.set)
    nx = total - np - nt
    times = points.project_out(isl.dim_type.set, 0, np)
    identity = isl.Map.identity(times.get_space().map_from_set()).intersect_domain(times)
    first = identity.project_out(isl.dim_type.in_, 0, nt)
    first = first.lexmin().range() if nx else times.lexmin()
    early = points.intersect(first.insert_dims(isl.dim_type.set, 0, np))
    return early.project_out(isl.dim_type.set, np, nt)


# Dependences in one factor: elements that are read out of order, or lost before the stamp that reads them.
#
# Each result is the set of elements `[x...]` of one factor for which such stamps exist. The stamps of a node
# are a product over factors, and so is each question here: it holds somewhere if it holds in every factor.


def shared_element(one: str, other: str, np: int, nt: int, equal: int, later: bool) -> tuple[int, ...] | None:
    """An element x with a stamp t in `one` and a stamp t' in `other` that both touch x, such that t and t'
    are equal in their first `equal` counters and, if `later`, t is greater in the next one; None if there is
    none."""
    a = parse_set(one).project_out(isl.dim_type.set, 0, np)
    b = parse_set(other).project_out(isl.dim_type.set, 0, np)
    nx = a.dim(isl.dim_type.set) - nt
    pairs = isl.Map.from_domain_and_range(a, b)
    for i in [*range(equal), *range(nt, nt + nx)]:
        pairs = pairs.equate(isl.dim_type.in_, i, isl.dim_type.out, i)
    if later:
        pairs = pairs.order_gt(isl.dim_type.in_, equal, isl.dim_type.out, equal)
    result = pairs.domain().project_out(isl.dim_type.set, 0, nt)
    return sample(result)


def sample(points: isl.Set) -> tuple[int, ...] | None:
    """The first point of a set; None if the set is empty."""
    if points.is_empty():
        return None
    if points.dim(isl.dim_type.set) == 0:
        return ()
    return points_of(isl.Set.from_point(points.lexmin().sample_point()))[0]


def missing(wanted: str, made: str | None, drop: int) -> tuple[int, ...] | None:
    """A point of `wanted` that is not in `made` (if that is None: any point of `wanted`), ignoring the first
    `drop` dimensions."""
    points = parse_set(wanted).project_out(isl.dim_type.set, 0, drop)
    if made is not None:
        points = points.subtract(parse_set(made).project_out(isl.dim_type.set, 0, drop))
    return sample(points)


def touched_once(made: str, np: int, nt: int) -> bool:
    """True if each element is touched at one stamp only, where the counters of instances are part of the
    stamp."""
    return bool(_stamps_of(made, np, nt).is_single_valued())


def touched_repeatedly(made: str, np: int, nt: int) -> tuple[int, ...]:
    """An element that is touched at several stamps; if there is none, any element."""
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


@dataclass(frozen=True)
class Trace:
    """One factor over `[p..., t..., x...]`: what is made, what is read, and all that the node ever holds."""

    made: str
    read: str
    held: str
    np: int
    nt: int

    @property
    def nx(self) -> int:
        return int(parse_set(self.made).dim(isl.dim_type.set)) - self.np - self.nt


@lru_cache(maxsize=8192)
def elsewhere(trace: Trace, axis: int | None) -> isl.Set:
    """Elements made in one instance and read in another that differs in counter `axis` (None: in any
    counter)."""
    np, nt, nx = trace.np, trace.nt, trace.nx
    made = parse_set(trace.made).project_out(isl.dim_type.set, np, nt).insert_dims(isl.dim_type.set, np, np)
    read = parse_set(trace.read).project_out(isl.dim_type.set, np, nt).insert_dims(isl.dim_type.set, 0, np)
    pairs = made.intersect(read)
    if axis is not None:
        pairs = pairs.intersect(_where(2 * np + nx, [f"c{axis} != c{np + axis}"]))
    return pairs.project_out(isl.dim_type.set, 0, 2 * np)


@lru_cache(maxsize=8192)
def revisited(trace: Trace, equal: int, differs: bool) -> isl.Set:
    """Elements made and read in the same instance at stamps whose first `equal` counters are equal and whose
    next one differs."""
    np, nt, nx = trace.np, trace.nt, trace.nx
    pairs = _at(parse_set(trace.made), np, nt, 0, 2).intersect(_at(parse_set(trace.read), np, nt, 1, 2))
    facts = [f"c{np + i} = c{np + nt + i}" for i in range(equal)]
    if differs:
        facts.append(f"c{np + equal} != c{np + nt + equal}")
    return _elements(pairs.intersect(_where(np + 2 * nt + nx, facts)), nx)


@lru_cache(maxsize=8192)
def dropped(trace: Trace, after: Order, before: Order, idle: bool) -> isl.Set:
    """Elements made at stamp s and read at stamp t in the same instance with a visit v in between. With
    `idle`, only those that v does not hold.

    `after` says how v follows s, `before` how t follows v; each is a pair (number of equal counters, whether
    the next one is greater).
    """
    np, nt = trace.np, trace.nt
    between = _idle(trace.held, np, nt) if idle else _visited(trace.held, np, nt)
    since = _neighbour(trace.made, np, nt, after, later=False)
    until = _neighbour(trace.read, np, nt, before, later=True)
    return _elements(between.intersect(since).intersect(until), trace.nx)


@lru_cache(maxsize=8192)
def _neighbour(text: str, np: int, nt: int, order: Order, later: bool) -> isl.Set:
    """`[p, v, x]` such that x is touched at a stamp before v (with `later`: after v) in the given order."""
    points = parse_set(text)
    nx = points.dim(isl.dim_type.set) - np - nt
    equal, greater = order
    facts = [f"c{np + i} = c{np + nt + i}" for i in range(equal)]
    if greater:
        facts.append(f"c{np + equal} < c{np + nt + equal}")
    pairs = _at(points, np, nt, int(later), 2).intersect(_where(np + 2 * nt + nx, facts))
    return pairs.project_out(isl.dim_type.set, np if not later else np + nt, nt)


@lru_cache(maxsize=8192)
def _visited(text: str, np: int, nt: int) -> isl.Set:
    """`[p, v, x]` for the visits v of the node, with any p and x."""
    nx = parse_set(text).dim(isl.dim_type.set) - np - nt
    return visits(text, np, nt).insert_dims(isl.dim_type.set, nt, nx).insert_dims(isl.dim_type.set, 0, np)


@lru_cache(maxsize=8192)
def _idle(text: str, np: int, nt: int) -> isl.Set:
    return _visited(text, np, nt).subtract(parse_set(text)).coalesce()


def unfinished(trace: Trace, kept: tuple[int, ...]) -> isl.Set:
    """Elements that one instance made and still holds while another instance, which reads them, holds them
    too.

    Applies to a node with a single factor. `kept`: the temporal counters over whose steps elements stay.
    """
    np, nt, nx = trace.np, trace.nt, trace.nx
    alive = _alive(trace, kept)
    made = alive.intersect(_at(parse_set(trace.made), np, nt, 0, 2)).project_out(isl.dim_type.set, np, nt)
    read = alive.intersect(_at(parse_set(trace.read), np, nt, 1, 2)).project_out(
        isl.dim_type.set, np + nt, nt
    )
    pairs = made.insert_dims(isl.dim_type.set, np, np).intersect(read.insert_dims(isl.dim_type.set, 0, np))
    apart = [f"c{i} != c{np + i}" for i in range(np)]
    return _elements(pairs.intersect(_where(2 * np + nt + nx, [f"({' or '.join(apart)})"])), nx)


def _alive(trace: Trace, kept: tuple[int, ...]) -> isl.Set:
    """`[p, s, v, x]` such that instance p holds x at s, at v, and at every visit in between."""
    np, nt, nx = trace.np, trace.nt, trace.nx
    dims = np + 2 * nt + nx
    both = parse_set(trace.held)
    both = _at(both, np, nt, 0, 2).intersect(_at(both, np, nt, 1, 2))
    result = both.intersect(_where(dims, [f"c{np + i} = c{np + nt + i}" for i in range(nt)]))
    for axis in kept:
        steps = [f"c{np + i} = c{np + nt + i}" for i in range(axis)]
        steps.append(f"c{np + axis} < c{np + nt + axis}")
        result = result.union(both.intersect(_where(dims, steps)))
    idle = (
        _idle(trace.held, np, nt)
        .insert_dims(isl.dim_type.set, np, nt)
        .insert_dims(isl.dim_type.set, np + 2 * nt, nt)
    )
    for after in kept:
        for before in kept:
            facts = []
            for start, axis in ((np, after), (np + nt, before)):
                facts += [f"c{start + i} = c{start + nt + i}" for i in range(axis)]
                facts.append(f"c{start + axis} < c{start + nt + axis}")
            between = idle.intersect(_where(np + 3 * nt + nx, facts))
            result = result.subtract(between.project_out(isl.dim_type.set, np + nt, nt))
    return result.coalesce()


def _at(points: isl.Set, np: int, nt: int, slot: int, slots: int) -> isl.Set:
    """`[p, t, x]` extended to `slots` stamps, among which t has number `slot`."""
    points = points.insert_dims(isl.dim_type.set, np, slot * nt)
    return points.insert_dims(isl.dim_type.set, np + (slot + 1) * nt, (slots - slot - 1) * nt)


def _where(dims: int, facts: list[str]) -> isl.Set:
    names = ", ".join(f"c{i}" for i in range(dims))
    return parse_set(f"{{ [{names}] : {' and '.join(facts) or 'true'} }}")


def _elements(points: isl.Set, nx: int) -> isl.Set:
    return points.project_out(isl.dim_type.set, 0, points.dim(isl.dim_type.set) - nx)


# Links: those that transfers cross, and receivers of partial sums, for one factor `[p..., t..., x...]`.
#
# A transfer is one combination of the dimensions that are neither dropped nor the coordinate; it crosses
# the links on the way to every coordinate that it holds, each once. docs/semantics.md, Interconnect.
#
# Receivers:
# `np`, `nt`: the child's spatial and temporal dimensions; `np_parent`, `nt_parent`: those that are
# the parent's, which lead. Sets, not counts: docs/semantics.md, Links.


@dataclass(frozen=True)
class CrossingCount:
    """What to count per value of the dimensions `labels`.

    `coordinate` holds pairs (dimension, weight) whose sum is the coordinate of the instance. With `shift`
    None, the links 0..coordinate of a chain are counted; otherwise the links of a tree at height `shift`,
    numbered coordinate >> shift. `ring` counts instead the links of the shorter direction around a ring of so
    many instances. `beyond` counts links from number 1 on. With an empty `coordinate`, transfers are counted.
    `drop` lists dimensions that are united over. With `by_link`, the number of the link is one more label.
    """

    labels: tuple[int, ...]
    drop: tuple[int, ...]
    coordinate: tuple[tuple[int, int], ...] = ()
    shift: int | None = None
    by_link: bool = False
    ring: int = 0
    beyond: bool = False

    def relation(self, dims: int) -> isl.Map:
        """`{ [dims] -> [labels, link, transfer] }`."""
        names = [f"d{i}" for i in range(dims)]
        link = ["e"] if self.coordinate else []
        rest = [i for i in range(dims) if i not in self.labels and i not in self.drop]
        image = [names[i] for i in self.labels] + link + [names[i] for i in rest]
        where = " + ".join(f"{w}*{names[i]}" for i, w in self.coordinate)
        body = "true"
        if self.coordinate:
            body = f"0 <= e <= {where}" if self.shift is None else f"e = floor(({where})/{2**self.shift})"
            if self.ring:  # links of the downward direction have negative numbers
                half, back = self.ring // 2, f"{where} - {self.ring}"
                body = f"(1 <= e <= {where} <= {half}) or ({back} <= e < 0 and {where} > {half})"
            if self.beyond:
                body = f"({body}) and e >= 1"
        return parse_map(f"{{ [{', '.join(names)}] -> [{', '.join(image)}] : {body} }}")

    def count(self, points: isl.Set) -> Counts:
        """The number of pairs (transfer, link), per label."""
        crossed = points.apply(self.relation(points.dim(isl.dim_type.set)))
        return count_by(crossed.coalesce(), len(self.labels) + self.by_link)


@lru_cache(maxsize=8192)
def crossed(text: str, crossing: CrossingCount) -> Counts:
    """The crossings of all that is touched in the factor."""
    return crossing.count(parse_set(text))


@lru_cache(maxsize=8192)
def crossed_at_steps(
    text: str, held: str, np: int, nt: int, mode: Mode, forward: bool, crossing: CrossingCount
) -> tuple[Counts, Counts]:
    """The crossings of what is touched at stamps that have a neighbour: of all of it, and of the part not
    held at the neighbour."""
    candidates, stay = resident_at_neighbor(text, held, np, nt, mode, forward)
    return crossing.count(candidates), crossing.count(candidates.subtract(stay))


@lru_cache(maxsize=8192)
def wholly_resident(
    text: str, held: str, np: int, nt: int, mode: Mode, forward: bool, crossing: CrossingCount
) -> Counts:
    """The transfers, per label, of which every instance keeps its part."""
    candidates, stay = resident_at_neighbor(text, held, np, nt, mode, forward)
    if not crossing.drop:
        return crossing.count(stay)
    relation = crossing.relation(candidates.dim(isl.dim_type.set))
    left = candidates.apply(relation).subtract(candidates.subtract(stay).apply(relation))
    return count_by(left.coalesce(), len(crossing.labels))


def widen(points: isl.Set, positions: tuple[int, ...]) -> isl.Set:
    """Inserts unconstrained dimensions so that they end up at `positions`, which are in ascending order."""
    for position in sorted(positions):
        points = points.insert_dims(isl.dim_type.set, position, 1)
    return points


def of_each(points: isl.Set, touched: isl.Set) -> isl.Set:
    """Touches whose dimensions other than the last ones, which `points` does not have, are in `points`."""
    total = points.dim(isl.dim_type.set)
    return touched.intersect(
        points.insert_dims(isl.dim_type.set, total, touched.dim(isl.dim_type.set) - total)
    )


def inner_first(points: isl.Set, np: int, nt: int, np_parent: int, nt_parent: int) -> isl.Set:
    """Touches at the first time, over all children of one parent instance, within the stamp of the parent."""
    between = tuple(range(np_parent, np))
    times = without(points, between)
    spread = isl.Map.identity(times.get_space().map_from_set()).intersect_domain(times)
    spread = spread.project_out(isl.dim_type.in_, np_parent + nt_parent, nt - nt_parent)
    first = spread.lexmin().range()
    return points.intersect(widen(first, between))


def receivers(points: isl.Set, single: tuple[int, ...], every: tuple[int, ...]) -> isl.Set:
    """Per stamp and element, the instances that receive it: the first one along `single`, all along
    `every`.
    """
    if not single:
        return points
    narrow = without(points, every)
    positions = [s - sum(1 for e in every if e < s) for s in single]
    spread = isl.Map.identity(narrow.get_space().map_from_set()).intersect_domain(narrow)
    for position in sorted(positions, reverse=True):
        spread = spread.project_out(isl.dim_type.in_, position, 1)
    return points.intersect(widen(spread.lexmin().range(), every))


def under(points: isl.Set, parents: isl.Set, np: int, nt: int, np_parent: int, nt_parent: int) -> isl.Set:
    """Touches whose parent's stamp and element are in `parents` (`[p_parent, t_parent, x]`)."""
    wide = widen(parents, tuple(range(np_parent, np)))
    return points.intersect(widen(wide, tuple(range(np + nt_parent, np + nt))))
