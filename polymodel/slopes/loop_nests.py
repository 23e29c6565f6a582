"""Mappings of one Einsum on one tile level: which loops run, in which order, over which tile sizes.

The searches over one Einsum's mappings (alone, below fused loops of a chain, inside a graph) have the same
choices: a set of loops of more than one trip, their order, and tile sizes per axis. `nests` gives sets and
orders, the latter as classes of equal traffic without dominated ones; `blocks` gives all combinations of
choices, in parts that fit, as arrays that broadcast against each other.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import chain, combinations, permutations
from math import prod
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

T = TypeVar("T")
Ints = NDArray[np.int64]
Indexed = tuple[tuple[str, frozenset[str]], ...]
Moves = tuple[frozenset[str], str]  # outer loops that do not index the tensor, the loop it slides along


@dataclass(frozen=True)
class OrderClass:
    """Orders with equal traffic: `order` is one of them (outermost first).

    `outside`: per tensor, the loops that do not index it but are outside a loop that does; each of their
    steps moves the whole tensor again (with `slide`; loops of one trip do not count). `slid`: per tensor, the
    innermost loop that indexes it if its tiles overlap along that loop, otherwise "".
    """

    order: tuple[str, ...]
    outside: tuple[tuple[str, frozenset[str]], ...]
    slid: tuple[tuple[str, str], ...] = ()


def subsets(items: Sequence[T], least: int = 0) -> Iterator[tuple[T, ...]]:
    """Return all subsets of at least `least` items, small ones first."""
    return chain.from_iterable(combinations(items, n) for n in range(least, len(items) + 1))


def nests(
    able: Sequence[str], tensors: Mapping[str, frozenset[str]], windows: Mapping[str, frozenset[str]]
) -> Iterator[tuple[tuple[str, ...], OrderClass]]:
    """Return every set of loops of more than one trip with each of its undominated orders.

    `able`: rank variables that may have such a loop. `tensors`: per tensor those that index it; `windows`:
    those along which its tiles overlap.
    """
    for active in subsets(able):
        for order in order_classes(active, as_indexed(tensors), as_indexed(windows)):
            yield active, order


@dataclass(frozen=True)
class ChoiceBlock:
    """Combinations of one choice per axis: some choices of the first axis with all of the others.

    `shape`: number of choices of each axis. `begin`: the first choice of the first axis.
    """

    shape: tuple[int, ...]
    begin: int = 0

    def cut(self, axis: int) -> tuple[slice, tuple[int, ...]]:
        """Return the slice of choices of an axis, and the shape in which they broadcast against the
        others."""
        begin = 0 if axis else self.begin
        broadcast = tuple(-1 if k == axis else 1 for k in range(len(self.shape)))
        return slice(begin, begin + self.shape[axis]), broadcast

    def along(self, values: Ints, axis: int) -> Ints:
        """Return values of the choices of one axis, shaped to broadcast."""
        choices, shape = self.cut(axis)
        made: Ints = values[choices].reshape(shape)
        return made

    def flat(self, figure: Any) -> Ints:
        """Return a figure of every combination, the last axis fastest."""
        made: Ints = np.broadcast_to(figure, self.shape).ravel()
        return made

    def choices(self, at: int) -> tuple[int, ...]:
        """Return the choice of every axis for the combination at this position of `flat`."""
        if not self.shape:
            return ()
        first, *others = map(int, np.unravel_index(at, self.shape))
        return (self.begin + first, *others)


def blocks(lengths: Sequence[int], most: int) -> Iterator[ChoiceBlock]:
    """Return all combinations of choices of axes of these lengths, about `most` at a time."""
    if not lengths:
        yield ChoiceBlock(())
        return
    others = prod(lengths[1:])
    step = max(1, most // others) if others else lengths[0]
    for begin in range(0, lengths[0] if others else 0, step):
        yield ChoiceBlock((min(step, lengths[0] - begin), *lengths[1:]), begin)


@lru_cache(maxsize=4096)
def order_classes(active: tuple[str, ...], tensors: Indexed, windows: Indexed = ()) -> tuple[OrderClass, ...]:
    """Return the orders of these loops that no other order dominates over all tensors.

    `windows`: per tensor, the variables along which its tiles overlap (none if it is missing).
    """
    overlapping = dict(windows)
    result: dict[tuple[Moves, ...], tuple[str, ...]] = {}
    for order in permutations(active):
        moves = (_moves(order, indexed, overlapping.get(t, frozenset())) for t, indexed in tensors)
        result.setdefault(tuple(moves), order)
    kept = [m for m in result if not any(o != m and all(map(_no_more, o, m)) for o in result)]
    names = [name for name, _ in tensors]
    return tuple(
        OrderClass(
            result[moves],
            tuple((t, outside) for t, (outside, _) in zip(names, moves, strict=True)),
            tuple((t, slid) for t, (_, slid) in zip(names, moves, strict=True)),
        )
        for moves in kept
    )


def _moves(order: tuple[str, ...], indexed: frozenset[str], overlapping: frozenset[str]) -> Moves:
    innermost = max((i for i, v in enumerate(order) if v in indexed), default=-1)
    slid = order[innermost] if innermost >= 0 and order[innermost] in overlapping else ""
    return frozenset(v for v in order[: innermost + 1] if v not in indexed), slid


def _no_more(one: Moves, other: Moves) -> bool:
    """Return whether a tensor moves no more in the first way than in the second."""
    return one[0] <= other[0] and other[1] in ("", one[1])


def as_indexed(tensors: Mapping[str, frozenset[str]]) -> Indexed:
    """Return a hashable table of the variables that index each tensor."""
    return tuple(tensors.items())
