"""Counts of single factors per instance, cached for the process: equal factors are counted once."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from math import prod

import numpy as np
from numpy.typing import NDArray

from polymodel.integers import dtype_of, largest
from polymodel.polyhedra import nests, sets, steps
from polymodel.polyhedra.nests import Nest
from polymodel.polyhedra.sets import count_at, count_by
from polymodel.polyhedra.steps import Mode

Array = NDArray[np.object_]
# From this many loops on, tiles are counted or compared by classes, which barvinok then need not find.
MANY_LOOPS, SEVERAL_LOOPS = 4, 2


@dataclass(frozen=True)
class FactorShape:
    """A factor's ISL text, its numbers of leading spatial and temporal dimensions, and its nest if it is
    one."""

    text: str
    np: int
    nt: int
    nest: Nest | None = None


def leading(shape: FactorShape, keep: int, stamps: int, drop: tuple[int, ...] = ()) -> tuple[int, ...]:
    """Positions of the first `keep` spatial and `stamps` temporal counters, without dimensions `drop`."""
    first = shape.np - sum(1 for d in drop if d < shape.np)
    return (*range(keep), *range(first, first + stamps))


@lru_cache(maxsize=32768)
def tally(shape: FactorShape, keep: int, drop: tuple[int, ...] = (), stamps: int = 0) -> Array:
    """Touches per value of the first `keep` spatial counters; dimensions `drop` are united over.

    Also per value of the first `stamps` temporal counters, on the following axes.
    """
    result = _by_classes(shape, keep, drop, stamps)
    if result is not None:
        return result
    return count_at(sets.without(sets.parse_set(shape.text), drop), leading(shape, keep, stamps, drop))


def _by_classes(shape: FactorShape, keep: int, drop: tuple[int, ...], stamps: int) -> Array | None:
    """The same by classes of tiles; None if loops are few or not a plain nest."""
    if shape.nest is None or len(shape.nest.loops) < MANY_LOOPS:
        return None
    counters = shape.np + shape.nt
    data = set(range(counters, counters + len(shape.nest.ranks)))
    if data & set(drop) and not data <= set(drop):
        return None
    left = tuple(i for i in range(counters) if i not in drop)
    shown = tuple(left[i] for i in leading(shape, keep, stamps, drop))
    return nests.tally(shape.nest, shown, left, data=not data & set(drop))


@lru_cache(maxsize=32768)
def resident_tally(
    shape: FactorShape,
    held: str,
    mode: Mode,
    forward: bool,
    keep: int,
    drop: tuple[int, ...] = (),
    stamps: int = 0,
) -> Array:
    """Touches that are also held at the neighbouring visit (by every instance along `drop`)."""
    candidates, stay = steps.resident_at_neighbor(shape.text, held, shape.np, shape.nt, mode, forward)
    counted = steps.united(candidates, stay, drop) if drop else stay
    return count_at(counted, leading(shape, keep, stamps, drop))


@lru_cache(maxsize=32768)
def located_tally(shape: FactorShape, held: str, mode: Mode | None, where: FactorShape) -> Array:
    """Touches of `shape` (with `mode`: only those kept) per instance of `where` that touches the element."""
    if mode is None:
        if not shape.np and not where.np and _same_elements(shape.nest, where.nest):
            return tally(shape, 0)  # the single instance touches all of them
        points = sets.parse_set(shape.text)
    else:
        points = steps.resident_at_neighbor(shape.text, held, shape.np, shape.nt, mode, False)[1]
    places = sets.without(sets.parse_set(where.text), tuple(range(where.np, where.np + where.nt)))
    return count_by(sets.located(points, places, shape.np, shape.nt, where.np), where.np)


def _same_elements(one: Nest | None, other: Nest | None) -> bool:
    """True if two nests, whatever their loops, touch the same elements."""
    if one is None or other is None:
        return False
    return (one.extents, one.bounds, one.ranks) == (other.extents, other.bounds, other.ranks)


@lru_cache(maxsize=32768)
def first_tally(shape: FactorShape) -> Array:
    """Elements per instance that is active at the element's very first stamp."""
    return count_by(steps.at_first(shape.text, shape.np, shape.nt), shape.np)


@dataclass(frozen=True)
class CountProduct:
    """`sign` (1, -1, or a weight) times the outer product of per-factor arrays; axes are stamp positions.

    Spatial ones, and where counts are per iteration of the outer loops (`per`) also temporal ones.
    """

    sign: int
    parts: tuple[tuple[tuple[int, ...], Array], ...]

    @property
    def total(self) -> int:
        return self.sign * prod(int(a.sum()) for _, a in self.parts)


def total(products: Sequence[CountProduct]) -> int:
    """The sum over all instances."""
    return sum(p.total for p in products)


def dense(products: Sequence[CountProduct], order: tuple[int, ...], shape: tuple[int, ...]) -> Array:
    """Counts per instance: one axis per stamp position in `order`, padded to `shape`."""
    bound = sum(abs(p.sign) * prod(largest(a) for _, a in p.parts) for p in products)
    held = dtype_of(bound)
    result = np.zeros(shape, dtype=held)
    for product in products:
        value = np.full((1,) * len(order), product.sign, dtype=held)
        empty = False
        for axes, array in product.parts:
            empty = empty or array.size == 0
            index = [1] * len(order)
            for k, axis in enumerate(axes):
                index[order.index(axis)] = array.shape[k]
            value = np.asarray(value * array.astype(held).reshape(index), dtype=held)
        if not empty:
            result[tuple(slice(0, n) for n in value.shape)] += np.broadcast_to(value, value.shape)
    return result
