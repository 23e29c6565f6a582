"""ISL sets and relations from checked affine data, small operations on them, and a bound on isl's work.

No free text ever reaches isl.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import lru_cache

import islpy as isl

from polymodel.affine import Affine, Constraint
from polymodel.errors import Refused

_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*\Z")
# In small letters: isl knows them in large ones too.
_RESERVED = frozenset(
    "and or not exists mod floor ceil floord ceild infty infinity nan rat true false min max implies".split()
)


def isl_name(name: str) -> str:
    """`name` as isl can read it: reserved words and odd characters get a harmless spelling.

    Two names stay two: `_and` becomes `__and`, since `and` becomes `_and`.
    """
    if _NAME.match(name) and name.lstrip("_").lower() not in _RESERVED:
        return name
    return "_" + re.sub(r"[^A-Za-z0-9_]", "_", name)


def affine_text(expr: Affine) -> str:
    return str(Affine(tuple((isl_name(v), c) for v, c in expr.terms), expr.constant))


def constraint_text(constraint: Constraint) -> str:
    return str(
        Constraint(
            Affine(tuple((isl_name(v), c) for v, c in constraint.expr.terms), constraint.expr.constant),
            constraint.kind,
            constraint.modulus,
        )
    )


def set_from_constraints(name: str, variables: Sequence[str], constraints: Sequence[Constraint]) -> isl.Set:
    """The integer points of `constraints`; tuple `name`, one dimension per variable, in order."""
    unknown = {v for c in constraints for v in c.expr.variables} - set(variables)
    if unknown:
        raise ValueError(f"constraints of {name} use unknown variables {sorted(unknown)}")
    dims = ", ".join(isl_name(v) for v in variables)
    body = " and ".join(constraint_text(c) for c in constraints) or "true"
    return isl.Set(f"{{ {isl_name(name)}[{dims}] : {body} }}")


def map_from_affine(
    source: str, variables: Sequence[str], target: str, ranks: Sequence[str], exprs: Sequence[Affine]
) -> isl.Map:
    """`{ source[variables] -> target[ranks = exprs] }`, with dimension names on both sides."""
    dims = ", ".join(isl_name(v) for v in variables)
    image = ", ".join(affine_text(e) for e in exprs)
    relation = isl.Map(f"{{ {isl_name(source)}[{dims}] -> {isl_name(target)}[{image}] }}")
    for i, rank in enumerate(ranks):
        relation = relation.set_dim_name(isl.dim_type.out, i, isl_name(rank))
    return relation


def bounding_box(points: isl.Set) -> tuple[tuple[int, int], ...] | None:
    """Inclusive (low, high) per dimension; None if the set is empty or unbounded."""
    if points.is_empty() or not points.is_bounded():
        return None
    box = []
    for i in range(points.dim(isl.dim_type.set)):
        low, high = points.dim_min_val(i), points.dim_max_val(i)
        box.append((int(low.to_python()), int(high.to_python())))
    return tuple(box)


def is_box(points: isl.Set) -> bool:
    """True if all integer points between the least and the largest of each dimension are in the set."""
    box = bounding_box(points)
    if box is None:
        return bool(points.is_empty())
    whole = isl.Set.universe(points.get_space())
    for i, (low, high) in enumerate(box):
        whole = whole.lower_bound_val(isl.dim_type.set, i, isl.Val(low))
        whole = whole.upper_bound_val(isl.dim_type.set, i, isl.Val(high))
    return bool(whole.is_subset(points))


@lru_cache(maxsize=65536)
def parse_set(text: str) -> isl.Set:
    """A set from text that this package wrote itself; the same text is parsed once."""
    return isl.Set(text)


def parse_map(text: str) -> isl.Map:
    """A relation from text that this package wrote itself."""
    return isl.Map(text)


def without(points: isl.Set, drop: tuple[int, ...]) -> isl.Set:
    """`points` with the dimensions at positions `drop` projected out."""
    if drop and drop == tuple(range(drop[0], drop[0] + len(drop))):
        return points.project_out(isl.dim_type.set, drop[0], len(drop))
    for position in sorted(drop, reverse=True):
        points = points.project_out(isl.dim_type.set, position, 1)
    return points


def located(points: isl.Set, places: isl.Set, np: int, nt: int, np_where: int) -> isl.Set:
    """`{ [p_where, t, x] }`: points `[p, t, x]` joined with places `[p_where, x]`, p a prefix of p_where."""
    nx = points.dim(isl.dim_type.set) - np - nt
    wide = points.insert_dims(isl.dim_type.set, np, np_where - np)
    assert places.dim(isl.dim_type.set) == np_where + nx
    return wide.intersect(places.insert_dims(isl.dim_type.set, np_where, nt))


def is_subset(one: str, other: str) -> bool:
    """Every point of `one` is in `other` (texts over the same dimensions)."""
    return bool(parse_set(one).is_subset(parse_set(other)))


def same(one: str, other: str) -> bool:
    return one == other or bool(parse_set(one).is_equal(parse_set(other)))


OPERATIONS = 20_000_000  # isl's own count of elementary steps; some seconds


@contextmanager
def bounded(message: str, remedy: str, operations: int | None = None) -> Iterator[None]:
    """Refuse with `message` and `remedy` when isl needs more than `operations` steps inside."""
    context = isl.DEFAULT_CONTEXT
    context.reset_operations()
    context.set_max_operations(OPERATIONS if operations is None else operations)
    try:
        yield
    except isl.Error as error:
        if "maximal number of operations exceeded" not in str(error):
            raise
        raise Refused(message, remedy) from None
    finally:
        context.set_max_operations(0)
