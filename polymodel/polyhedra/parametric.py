"""Counts with parameters, evaluated on arrays: the quasi-polynomials of `card` as array code.

The count of a set with parameters is a polynomial in them and in floors of them, one for each piece of their
space. Here such a piece works on columns of integers, one number per point.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property, lru_cache
from math import lcm
from typing import TYPE_CHECKING, Any

import islpy as isl

from polymodel.arrays import np
from polymodel.integers import dtype_of, largest

if TYPE_CHECKING:
    from numpy.typing import NDArray

PARAM, DIV = isl.dim_type.param, isl.dim_type.div

Row = tuple[int, tuple[int, ...]]  # a constant, and one coefficient per column


@dataclass(frozen=True)
class Floor:
    """`floor(row / divisor)` of the parameters and of the floors before it."""

    row: Row
    divisor: int


@dataclass(frozen=True)
class Region:
    """Where the parameters and their floors satisfy all of the rows: `== 0` or `>= 0`."""

    floors: tuple[Floor, ...]
    equal: tuple[Row, ...]
    least: tuple[Row, ...]


@dataclass(frozen=True)
class Piece:
    """In any of `regions` the count is the sum of `coefficient * product of columns`, over `denominator`."""

    regions: tuple[Region, ...]
    floors: tuple[Floor, ...]
    terms: tuple[tuple[int, tuple[int, ...]], ...]
    denominator: int

    def most(self, value: int) -> int:
        """A bound on all that is computed where no parameter exceeds `value`."""
        found = [1]
        for region in self.regions:
            bounds = _bounds(region.floors, value)
            found += [*bounds, *(_bound(r, value, bounds) for r in (*region.equal, *region.least))]
        bounds = _bounds(self.floors, value)
        size = max([value, 1, *bounds])
        found.append(sum(abs(c) * size**degree for c, degree in self.degrees))
        return max([*found, *bounds])

    @cached_property
    def degrees(self) -> tuple[tuple[int, int], ...]:
        """The coefficient and the degree of every term."""
        return tuple((c, int(sum(powers))) for c, powers in self.terms)


@dataclass(frozen=True)
class Count:
    """How many points a set has, for each value of its parameters."""

    pieces: tuple[Piece, ...]

    def at(self, columns: NDArray[Any]) -> NDArray[Any]:
        """The counts of a table of one row per point and one column per parameter."""
        value = largest(columns)
        held = dtype_of(max((p.most(value) for p in self.pieces), default=0))
        table = columns.astype(held, copy=False)
        found = np.zeros(len(table), dtype=held)
        left = np.arange(len(table))  # pieces are disjoint
        for piece in self.pieces:
            if not len(left):
                break
            part = table[left]
            inside = np.zeros(len(left), dtype=bool)
            for region in piece.regions:
                inside |= _within(region, part)
            found[left[inside]] = _values(piece, part[inside])
            left = left[~inside]
        return found


def _bound(row: Row, value: int, floors: list[int]) -> int:
    params = len(row[1]) - len(floors)
    return abs(row[0]) + sum(abs(c) * s for c, s in zip(row[1], [value] * params + floors, strict=True))


def _bounds(floors: tuple[Floor, ...], value: int) -> list[int]:
    found: list[int] = []
    for floor in floors:
        found.append(_bound(floor.row, value, found) + 1)
    return found


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


def _within(region: Region, table: NDArray[Any]) -> NDArray[np.bool_]:
    columns = _extended(region.floors, table)
    inside = np.ones(len(table), dtype=bool)
    for row in region.equal:
        inside &= np.asarray(_row(row, columns, len(table), table.dtype) == 0, dtype=bool)
    for row in region.least:
        inside &= np.asarray(_row(row, columns, len(table), table.dtype) >= 0, dtype=bool)
    return inside


def _values(piece: Piece, table: NDArray[Any]) -> NDArray[Any]:
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
def count_of(text: str) -> Count:
    """The count of a bounded set with parameters, written by this package."""
    return Count(tuple(_piece(domain, poly) for domain, poly in isl.Set(text).card().get_pieces()))


def _piece(domain: isl.Set, poly: isl.QPolynomial) -> Piece:
    regions = tuple(_region(part) for part in domain.compute_divs().make_disjoint().get_basic_sets())
    terms = poly.get_terms()
    params = domain.dim(PARAM)
    floors = tuple(_floor(terms[0].get_div(i), params, i) for i in range(terms[0].dim(DIV))) if terms else ()
    parts = []
    for term in terms:
        powers = [term.get_exp(PARAM, i) for i in range(params)]
        powers += [term.get_exp(DIV, i) for i in range(term.dim(DIV))]
        value = term.get_coefficient_val()
        below = value.get_den_val()
        parts.append((int(value.mul(below).to_python()), int(below.to_python()), tuple(powers)))
    denominator = lcm(*(d for _, d, _ in parts)) if parts else 1
    return Piece(regions, floors, tuple((n * denominator // d, p) for n, d, p in parts), denominator)


def _region(part: isl.BasicSet) -> Region:
    params, divs = part.dim(PARAM), part.dim(DIV)
    floors = tuple(_floor(part.get_div(i), params, i) for i in range(divs))
    equal: list[Row] = []
    least: list[Row] = []
    for constraint in part.get_constraints():
        values = [constraint.get_coefficient_val(PARAM, i) for i in range(params)]
        values += [constraint.get_coefficient_val(DIV, i) for i in range(divs)]
        row = int(constraint.get_constant_val().to_python()), tuple(int(v.to_python()) for v in values)
        (equal if constraint.is_equality() else least).append(row)
    return Region(floors, tuple(equal), tuple(least))


def _floor(div: isl.Aff, params: int, before: int) -> Floor:
    """A floor as isl has it, of the parameters and of so many floors `before` it."""
    scale = int(div.get_denominator_val().to_python())
    values = [div.get_coefficient_val(PARAM, i).mul(isl.Val(scale)) for i in range(params)]
    values += [div.get_coefficient_val(DIV, i).mul(isl.Val(scale)) for i in range(min(before, div.dim(DIV)))]
    values += [isl.Val(0)] * (params + before - len(values))
    constant = div.get_constant_val().mul(isl.Val(scale))
    return Floor((int(constant.to_python()), tuple(int(v.to_python()) for v in values)), scale)
