"""Consecutive visits as relations: which stamp precedes which, and what both hold.

Sets are over `[p..., t..., x...]` with `np` spatial, `nt` temporal and then data dimensions.
A transition is named by where the first differing temporal counter stands relative to this
factor: `("eq", 0)` inside another factor and after all of ours, `("at", q)` is our counter q,
`("wrap", q)` another factor's, so that our counters from q on wrap from their last to their first values.
"""

from __future__ import annotations

from functools import lru_cache

import islpy as isl

from polymodel.polyhedra.build import parse_set

Mode = tuple[str, int]


@lru_cache(maxsize=16384)
def visits(text: str, np: int, nt: int) -> isl.Set:
    """The temporal stamps at which anything is touched."""
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
    """`{ t -> t' }`: t' is the visit before t, for the transitions that `mode` names."""
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
def kept(text: str, held: str, np: int, nt: int, mode: Mode, forward: bool) -> tuple[isl.Set, isl.Set]:
    """(touched at a stamp that has a neighbour, of these also held at the neighbour).

    The neighbour is the preceding visit, or the following one if `forward`. `text` is what is
    touched now, `held` what the node touches at any visit (it defines the visits).
    """
    now, all_held = parse_set(text), parse_set(held)
    total = now.dim(isl.dim_type.set)
    step = transition(held, np, nt, mode)
    if forward:
        step = step.reverse()
    lifted = _lift(step, np, nt, total - np - nt)
    return now.intersect(lifted.domain()), now.intersect(lifted.intersect_range(all_held).domain())


def united(candidates: isl.Set, stay: isl.Set, drop: tuple[int, ...]) -> isl.Set:
    """Stamps and elements that no instance along the dropped dimensions has to move.

    `candidates` minus `stay` move; dropping the shared dimensions, an element is left alone
    only if every instance that touches it keeps it.
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
    """True if temporal counter q takes two values somewhere with all counters before it equal."""
    stamps = visits(text, np, nt)
    heads = stamps.project_out(isl.dim_type.set, q + 1, nt - q - 1)
    before = isl.Map.lex_gt(heads.get_space())
    for i in range(q):
        before = before.equate(isl.dim_type.in_, i, isl.dim_type.out, i)
    return not before.intersect_domain(heads).intersect_range(heads).is_empty()


@lru_cache(maxsize=16384)
def instance_of_element(text: str, np: int, nt: int) -> bool:
    """True if every element is only ever touched in one instance (x determines p)."""
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
    """True if the same instances are active at every stamp (no data dimensions here)."""
    points = parse_set(text)
    where = points.project_out(isl.dim_type.set, np, nt)
    when = points.project_out(isl.dim_type.set, 0, np)
    whole = where.insert_dims(isl.dim_type.set, np, nt).intersect(when.insert_dims(isl.dim_type.set, 0, np))
    return bool(whole.is_subset(points))


@lru_cache(maxsize=16384)
def first_is_fullest(text: str, np: int, nt: int) -> bool:
    """True if every instance active at some stamp is active at the first stamp with each prefix."""
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
    """True if counter 0 of dimensions keep..np is active whenever any of them is."""
    points = parse_set(text)
    group = points.project_out(isl.dim_type.set, keep, np - keep)
    lowest = points
    for i in range(keep, np):
        lowest = lowest.fix_val(isl.dim_type.set, i, isl.Val(0))
    return bool(group.is_subset(lowest.project_out(isl.dim_type.set, keep, np - keep)))


@lru_cache(maxsize=16384)
def at_first(text: str, np: int, nt: int) -> isl.Set:
    """The touches that happen at each element's first stamp over all instances: `[p, x]`."""
    points = parse_set(text)
    total = points.dim(isl.dim_type.set)
    nx = total - np - nt
    times = points.project_out(isl.dim_type.set, 0, np)
    identity = isl.Map.identity(times.get_space().map_from_set()).intersect_domain(times)
    first = identity.project_out(isl.dim_type.in_, 0, nt)
    first = first.lexmin().range() if nx else times.lexmin()
    early = points.intersect(first.insert_dims(isl.dim_type.set, 0, np))
    return early.project_out(isl.dim_type.set, np, nt)
