"""ISL sets and relations from checked affine data, and exact counts of their points."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import cached_property, lru_cache
from math import lcm, prod
from typing import TYPE_CHECKING, Any

from polymodel.arithmetic import Affine, Constraint
from polymodel.errors import Refused
from polymodel.frozen import dataclass
from polymodel.integers import SUMMED, dtype_of, largest, np
from polymodel.polyhedra import isl

if TYPE_CHECKING:
    from numpy.typing import NDArray


# ISL sets and relations from checked affine data, small operations on them, and a bound on isl's work.
#
# No free text ever reaches isl.

_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*\Z")
# In lower case: isl also reserves them in upper case.
_RESERVED = frozenset(
    "and or not exists mod floor ceil floord ceild infty infinity nan rat true false min max implies".split()
)


def isl_name(name: str) -> str:
    """`name` in a spelling that isl can read: reserved words and unusual characters are replaced.

    Different names stay different: `_and` becomes `__and`, because `and` becomes `_and`.
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
    """The integer points that satisfy `constraints`, as a set with tuple `name` and one dimension per
    variable, in order."""
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
    """True if the set contains every integer point of its bounding box."""
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
    """A set from text that this package wrote. Each text is parsed once and then reused."""
    return isl.Set(text)


def parse_map(text: str) -> isl.Map:
    """A relation from text that this package wrote."""
    return isl.Map(text)


def without(points: isl.Set, drop: tuple[int, ...]) -> isl.Set:
    """`points` with the dimensions at positions `drop` projected out."""
    if drop and drop == tuple(range(drop[0], drop[0] + len(drop))):
        return points.project_out(isl.dim_type.set, drop[0], len(drop))
    for position in sorted(drop, reverse=True):
        points = points.project_out(isl.dim_type.set, position, 1)
    return points


def located(points: isl.Set, places: isl.Set, np: int, nt: int, np_where: int) -> isl.Set:
    """`{ [p_where, t, x] }`: the points `[p, t, x]` joined with the places `[p_where, x]`, where p is a
    prefix of p_where."""
    nx = points.dim(isl.dim_type.set) - np - nt
    wide = points.insert_dims(isl.dim_type.set, np, np_where - np)
    assert places.dim(isl.dim_type.set) == np_where + nx
    return wide.intersect(places.insert_dims(isl.dim_type.set, np_where, nt))


def is_subset(one: str, other: str) -> bool:
    """True if every point of `one` is in `other`; both are texts over the same dimensions."""
    return bool(parse_set(one).is_subset(parse_set(other)))


def same(one: str, other: str) -> bool:
    return one == other or bool(parse_set(one).is_equal(parse_set(other)))


OPERATIONS = 20_000_000  # isl's own count of elementary steps; some seconds


@contextmanager
def bounded(message: str, remedy: str, operations: int | None = None) -> Iterator[None]:
    """Raises Refused with `message` and `remedy` when isl needs more than `operations` steps within this
    context."""
    context = isl.DEFAULT_CONTEXT
    context.reset_operations()
    context.set_max_operations(OPERATIONS if operations is None else operations)
    try:
        yield
    except isl.Error as error:
        if "maximal number of operations exceeded" not in str(error):
            raise
        raise Refused(message, remedy, code="too-large") from None
    finally:
        context.set_max_operations(0)


# Exact counts of integer points with barvinok; the one place that calls `card`.

_POINT_LIMIT = 200_000
# Tiles in tiles in tiles: with so many counters barvinok may take minutes for a few hundred points, while isl
# scans them in milliseconds. Sets are scanned if even their bounding box is small.
_MANY, _SCANNED = 4, 1_000_000
_VERY_MANY, _STAMPS = 8, 500  # the same for sizes by stamp, where few stamps make few pieces


def _box(points: isl.Set) -> int:
    """The number of points in the bounding box."""
    return prod(1 + high - low for low, high in spans(points))


def spans(points: isl.Set) -> tuple[tuple[int, int], ...]:
    """The smallest and the largest value of each dimension of a bounded, non-empty set."""
    dims = range(points.dim(isl.dim_type.set))
    ends = [(points.dim_min_val(i), points.dim_max_val(i)) for i in dims]
    return tuple((int(low.to_python()), int(high.to_python())) for low, high in ends)


def size(points: isl.Set) -> int:
    """The number of integer points of a bounded set."""
    if points.dim(isl.dim_type.set) == 0:
        return 0 if points.is_empty() else 1
    if points.is_empty():
        return 0
    if points.dim(isl.dim_type.set) >= _MANY and _box(points) <= _SCANNED:
        return int(points.count_val().to_python())
    counted = points.card()
    pieces = counted.get_pieces()
    if not pieces:
        return 0
    total = counted.eval(isl.Point.zero(counted.domain().get_space().params()))
    return int(total.to_python())


@dataclass(frozen=True)
class SizePiece:
    """A part of the domain of a relation: every point of `domain` has an image of `size` elements."""

    domain: isl.Set
    size: int


def _constant(poly: isl.QPolynomial) -> int | None:
    terms = poly.get_terms()
    if not terms:
        return 0
    if len(terms) > 1:
        return None
    term = terms[0]
    for kind in (isl.dim_type.set, isl.dim_type.div, isl.dim_type.param):
        for i in range(term.dim(kind)):
            if term.get_exp(kind, i):
                return None
    value = term.get_coefficient_val().to_python()
    return int(value)


def points_of(domain: isl.Set) -> list[tuple[int, ...]]:
    """All points of a small bounded set, in isl's order. Raises Refused for more than 200,000 points."""
    return [tuple(point) for point in point_table(domain).tolist()]


def point_table(domain: isl.Set) -> NDArray[np.int64]:
    """All points of a small bounded set as a table with one row per point and one column per dimension."""
    count, width = size(domain), domain.dim(isl.dim_type.set)
    # isl swallows exceptions of callbacks, so the size is checked before.
    if count > _POINT_LIMIT:
        message = "a piece of the iteration space has too many different tile sizes to enumerate"
        raise Refused(message, "use rectangular tiles or a smaller workload", code="too-large")
    result: list[str] = []
    # Read off the points' text, "{ [1, 2] }": five times as fast as asking for each coordinate.
    domain.flatten().reset_tuple_id().foreach_point(lambda point: result.append(str(point)[3:-3]))
    table = (
        np.fromstring(",".join(result), dtype=np.int64, sep=",")
        if width and result
        else np.zeros(0, np.int64)
    )
    if largest(table) >= SUMMED:  # numbers that do not fit read as the largest int64
        message = "coordinates exceed 62 bits: they cannot be listed"
        raise Refused(message, "use smaller coefficients", code="number-too-large")
    return table.reshape(len(result), width)


@lru_cache(maxsize=256)
def listed_points(text: str) -> NDArray[np.int64]:
    """The table of points of a set given as text. It is cached, and therefore read-only."""
    table = point_table(parse_set(text))
    table.flags.writeable = False
    return table


def fibre_sizes(relation: isl.Map) -> tuple[SizePiece, ...]:
    """The sizes of the images of `relation`: disjoint pieces of its domain, each with a constant size.

    Pieces on which the size varies from point to point are split into single points.
    """
    whole = relation.wrap()
    many = whole.dim(isl.dim_type.set) >= _VERY_MANY
    if many and not whole.is_empty() and _box(whole) <= _SCANNED and relation.domain().count_val() <= _STAMPS:
        return _scanned(relation, points_of(whole))
    result: list[SizePiece] = []
    for domain, poly in relation.card().get_pieces():
        constant = _constant(poly)
        if constant is not None:
            if constant:
                result.append(SizePiece(domain, constant))
            continue
        by_size: dict[int, isl.Set] = {}
        for point in points_of(domain):
            single = _single(domain, point)
            value = int(poly.eval(single.sample_point()).to_python())
            if value:
                by_size[value] = by_size[value].union(single) if value in by_size else single
        result.extend(SizePiece(d.coalesce(), s) for s, d in by_size.items())
    return tuple(result)


def _scanned(relation: isl.Map, points: list[tuple[int, ...]]) -> tuple[SizePiece, ...]:
    """The pieces, computed by listing all points of a small relation."""
    width = relation.dim(isl.dim_type.in_)
    by_size: dict[int, isl.Set] = {}
    universe = isl.Set.universe(relation.domain().get_space())
    for stamp, value in Counter(point[:width] for point in points).items():
        single = _single(universe, stamp)
        by_size[value] = by_size[value].union(single) if value in by_size else single
    return tuple(SizePiece(d.coalesce(), s) for s, d in by_size.items())


def _single(domain: isl.Set, point: tuple[int, ...]) -> isl.Set:
    for i, value in enumerate(point):
        domain = domain.fix_val(isl.dim_type.set, i, isl.Val(value))
    return domain


def count_by(points: isl.Set, keep: int) -> NDArray[np.object_]:
    """The number of points per value of the first `keep` dimensions (all >= 0), as a dense array of Python
    integers.

    Shape: one axis per kept dimension, whose length is the largest value plus one.
    """
    return count_at(points, tuple(range(keep)))


def count_at(points: isl.Set, kept: tuple[int, ...]) -> NDArray[np.object_]:
    """The number of points per value of the dimensions at positions `kept`, which are in ascending order;
    otherwise as `count_by`."""
    if not kept:
        out = np.empty((), dtype=object)
        out[()] = size(points)
        return out
    total = points.dim(isl.dim_type.set)
    if points.is_empty():
        return np.zeros((0,) * len(kept), dtype=object)
    outer = points
    for position in reversed(range(total)):
        if position not in kept:
            outer = outer.project_out(isl.dim_type.set, position, 1)
    shape = tuple(int(outer.dim_max_val(i).to_python()) + 1 for i in range(len(kept)))
    result = np.zeros(shape, dtype=object)
    if total == len(kept):
        for point in points_of(points):
            result[point] = 1
        return result
    relation = isl.Map.from_domain_and_range(
        isl.Set.universe(outer.get_space()), isl.Set.universe(points.get_space())
    )
    for i, position in enumerate(kept):
        relation = relation.equate(isl.dim_type.in_, i, isl.dim_type.out, position)
    relation = relation.intersect_range(points)
    for piece in fibre_sizes(relation):
        for point in points_of(piece.domain):
            result[point] += piece.size
    return result


def missing_points(points: isl.Set, sizes: Sequence[int]) -> tuple[int, tuple[int, ...]] | None:
    """The number of points of the box `0 <= x < sizes` that are not in `points`, and the first of them; None
    if none is missing."""
    dims = [f"x{k}" for k in range(len(sizes))]
    bounds = " and ".join(f"0 <= {x} < {n}" for x, n in zip(dims, sizes, strict=True)) or "true"
    box = isl.Set(f"{{ [{', '.join(dims)}] : {bounds} }}")
    missing = box.subtract(points.reset_tuple_id())
    if missing.is_empty():
        return None
    first = missing.lexmin()
    at = tuple(int(first.dim_min_val(k).to_python()) for k in range(len(sizes)))
    return prod(sizes) - size(points), at


# Counts with parameters, evaluated on arrays: the quasi-polynomials of `card` as array code.
#
# The count of a set with parameters is a polynomial in them and in floors of them, one for each piece of
# their space. Here such a piece works on columns of integers, one number per point.

Row = tuple[int, tuple[int, ...]]  # a constant, and one coefficient per column


@dataclass(frozen=True)
class Floor:
    """`floor(row / divisor)`, where `row` is affine in the parameters and in the floors before it."""

    row: Row
    divisor: int


@dataclass(frozen=True)
class ParameterRegion:
    """The parameter values at which the parameters and their floors satisfy all rows: `== 0` or `>= 0`."""

    floors: tuple[Floor, ...]
    equal: tuple[Row, ...]
    least: tuple[Row, ...]


@dataclass(frozen=True)
class CountPiece:
    """A piece of a count: in each of `regions` the count is the sum of `coefficient * product of columns`,
    divided by `denominator`."""

    regions: tuple[ParameterRegion, ...]
    floors: tuple[Floor, ...]
    terms: tuple[tuple[int, tuple[int, ...]], ...]
    denominator: int

    def most(self, value: int) -> int:
        """An upper bound of every intermediate number where no parameter exceeds `value`."""
        result = [1]
        for region in self.regions:
            bounds = _bounds(region.floors, value)
            result += [*bounds, *(_bound(r, value, bounds) for r in (*region.equal, *region.least))]
        bounds = _bounds(self.floors, value)
        size = max([value, 1, *bounds])
        result.append(sum(abs(c) * size**degree for c, degree in self.degrees))
        return max([*result, *bounds])

    @cached_property
    def degrees(self) -> tuple[tuple[int, int], ...]:
        """The coefficient and the degree of every term."""
        return tuple((c, int(sum(powers))) for c, powers in self.terms)


@dataclass(frozen=True)
class PointCount:
    """The number of points of a set as a function of its parameters."""

    pieces: tuple[CountPiece, ...]

    def at(self, columns: NDArray[Any]) -> NDArray[Any]:
        """The counts for a table with one row per parameter point and one column per parameter."""
        value = largest(columns)
        held = dtype_of(max((p.most(value) for p in self.pieces), default=0))
        table = columns.astype(held, copy=False)
        result = np.zeros(len(table), dtype=held)
        left = np.arange(len(table))  # pieces are disjoint
        for piece in self.pieces:
            if not len(left):
                break
            part = table[left]
            inside = np.zeros(len(left), dtype=bool)
            for region in piece.regions:
                inside |= _within(region, part)
            result[left[inside]] = _values(piece, part[inside])
            left = left[~inside]
        return result


def _bound(row: Row, value: int, floors: list[int]) -> int:
    params = len(row[1]) - len(floors)
    return abs(row[0]) + sum(abs(c) * s for c, s in zip(row[1], [value] * params + floors, strict=True))


def _bounds(floors: tuple[Floor, ...], value: int) -> list[int]:
    result: list[int] = []
    for floor in floors:
        result.append(_bound(floor.row, value, result) + 1)
    return result


def _row(row: Row, columns: list[NDArray[Any]], count: int, held: Any) -> NDArray[Any]:
    total = np.full(count, row[0], dtype=held)
    for coefficient, column in zip(row[1], columns, strict=False):
        if coefficient:
            total = total + coefficient * column
    return total


def _extended(floors: tuple[Floor, ...], table: NDArray[Any]) -> list[NDArray[Any]]:
    columns = list(table.T)
    for floor in floors:
        columns.append(_row(floor.row, columns, len(table), table.dtype) // floor.divisor)
    return columns


def _within(region: ParameterRegion, table: NDArray[Any]) -> NDArray[np.bool_]:
    columns = _extended(region.floors, table)
    inside = np.ones(len(table), dtype=bool)
    for row in region.equal:
        inside &= np.asarray(_row(row, columns, len(table), table.dtype) == 0, dtype=bool)
    for row in region.least:
        inside &= np.asarray(_row(row, columns, len(table), table.dtype) >= 0, dtype=bool)
    return inside


def _values(piece: CountPiece, table: NDArray[Any]) -> NDArray[Any]:
    columns = _extended(piece.floors, table)
    total = np.zeros(len(table), dtype=table.dtype)
    for coefficient, powers in piece.terms:
        term = np.full(len(table), coefficient, dtype=table.dtype)
        for column, power in zip(columns, powers, strict=True):
            for _ in range(power):
                term = term * column
        total = total + term
    return total // piece.denominator


@lru_cache(maxsize=4096)
def count_of(text: str) -> PointCount:
    """The parametric count of a bounded set that this package wrote."""
    return PointCount(tuple(_piece(domain, poly) for domain, poly in isl.Set(text).card().get_pieces()))


def _piece(domain: isl.Set, poly: isl.QPolynomial) -> CountPiece:
    regions = tuple(_region(part) for part in domain.compute_divs().make_disjoint().get_basic_sets())
    terms = poly.get_terms()
    params = domain.dim(isl.dim_type.param)
    floors = (
        tuple(_floor(terms[0].get_div(i), params, i) for i in range(terms[0].dim(isl.dim_type.div)))
        if terms
        else ()
    )
    parts = []
    for term in terms:
        powers = [term.get_exp(isl.dim_type.param, i) for i in range(params)]
        powers += [term.get_exp(isl.dim_type.div, i) for i in range(term.dim(isl.dim_type.div))]
        value = term.get_coefficient_val()
        below = value.get_den_val()
        parts.append((int(value.mul(below).to_python()), int(below.to_python()), tuple(powers)))
    denominator = lcm(*(d for _, d, _ in parts)) if parts else 1
    return CountPiece(regions, floors, tuple((n * denominator // d, p) for n, d, p in parts), denominator)


def _region(part: isl.BasicSet) -> ParameterRegion:
    params, divs = part.dim(isl.dim_type.param), part.dim(isl.dim_type.div)
    floors = tuple(_floor(part.get_div(i), params, i) for i in range(divs))
    equal: list[Row] = []
    least: list[Row] = []
    for constraint in part.get_constraints():
        values = [constraint.get_coefficient_val(isl.dim_type.param, i) for i in range(params)]
        values += [constraint.get_coefficient_val(isl.dim_type.div, i) for i in range(divs)]
        row = int(constraint.get_constant_val().to_python()), tuple(int(v.to_python()) for v in values)
        (equal if constraint.is_equality() else least).append(row)
    return ParameterRegion(floors, tuple(equal), tuple(least))


def _floor(div: isl.Aff, params: int, before: int) -> Floor:
    """Reads a floor from isl as a function of the parameters and the number `before` of floors that precede
    it."""
    scale = int(div.get_denominator_val().to_python())
    values = [div.get_coefficient_val(isl.dim_type.param, i).mul(isl.Val(scale)) for i in range(params)]
    values += [
        div.get_coefficient_val(isl.dim_type.div, i).mul(isl.Val(scale))
        for i in range(min(before, div.dim(isl.dim_type.div)))
    ]
    values += [isl.Val(0)] * (params + before - len(values))
    constant = div.get_constant_val().mul(isl.Val(scale))
    return Floor((int(constant.to_python()), tuple(int(v.to_python()) for v in values)), scale)
