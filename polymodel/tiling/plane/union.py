"""The union of two operands' points, sorted, and who holds each of them.

Coordinates are packed into one number each where 62 bits hold them (bits, not products: unpacking them costs
no division) and the two sorted lists merged; other operands are sorted rank by rank.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from polymodel.sparse.fibertree import blocks
from polymodel.tiling.plane.pattern import Flags, Index, Ints

# What packed coordinates may take; one more bit tells the operands apart.
PACKED = 62


@dataclass(frozen=True, eq=False)
class Union:
    """Points of both operands in lexicographic order: a coordinate per rank (int32 where it reaches)."""

    columns: tuple[Index, ...]
    in_a: Flags
    in_b: Flags


@dataclass(frozen=True)
class Roll:
    """B is A with `by` (0 <= by < size) added to the first coordinate, around the end."""

    by: int


@dataclass(frozen=True)
class Swap:
    """B is A with its first two coordinates exchanged."""


# Coordinates of B, one array per rank, or how they follow from those of A.
Made = Sequence[Ints] | Roll | Swap


def union(a: Sequence[Ints], made: Made, shape: Sequence[int]) -> Union:
    """The union of A (one array per rank, in any order) and B."""
    bits = [(size - 1).bit_length() for size in shape]
    if sum(bits) <= PACKED:
        return _packed(a, made, shape, bits)
    return _by_ranks(a, made, shape)


def _narrow(shape: Sequence[int]) -> list[np.dtype[np.signedinteger]]:
    return [np.dtype(np.int32 if size < 2**31 else np.int64) for size in shape]


def _packed(a: Sequence[Ints], made: Made, shape: Sequence[int], bits: list[int]) -> Union:
    ours = a[0].size
    theirs = ours if isinstance(made, Roll | Swap) else made[0].size
    both = np.empty(ours + theirs, dtype=np.int64)
    first, second = both[:ours], both[ours:]
    _pack(a, bits, first)
    if isinstance(made, Roll):
        _roll(first, second, made.by, shape[0], sum(bits[1:]))
    elif isinstance(made, Swap):
        _pack((a[1], a[0], *a[2:]), bits, second)
    else:
        _pack(made, bits, second)
    both <<= 1
    second |= 1
    both.sort(kind="stable")  # two runs: merged in linear time
    return _unpacked(both, shape, bits)


def _pack(columns: Sequence[Ints], bits: list[int], out: Ints) -> None:
    """The points as numbers, ascending."""
    out[:] = columns[0]
    for column, width in zip(columns[1:], bits[1:], strict=True):
        out <<= width
        out |= column
    if not _ascending(out):
        out.sort()


def _ascending(numbers: Ints) -> bool:
    return all(bool((numbers[s][1:] >= numbers[s][:-1]).all()) for s in _overlapping(numbers.size))


def _overlapping(size: int) -> list[slice]:
    """Pieces that share their ends."""
    return [slice(max(0, s.start - 1), s.stop) for s in blocks(size)]


def _roll(numbers: Ints, out: Ints, by: int, height: int, below: int) -> None:
    """Rows that wrap around come first, so the order is kept."""
    wrapped = int(np.searchsorted(numbers, (height - by) << below)) if by else numbers.size
    tail = numbers.size - wrapped
    np.subtract(numbers[wrapped:], (height - by) << below, out=out[:tail])
    np.add(numbers[:wrapped], by << below, out=out[tail:])


def _unpacked(both: Ints, shape: Sequence[int], bits: list[int]) -> Union:
    """Points apart again; of two equal ones, the first, A's, stays."""
    met = np.zeros(both.size, dtype=np.bool_)
    for s in _overlapping(both.size):
        met[s][:-1] |= (both[s][1:] ^ both[s][:-1]) == 1
    # Numbers 2p and 2p + 1 are one point; 2p - 1 and 2p, which differ in more bits, are two.
    total = both.size - int(np.count_nonzero(met))
    columns = tuple(np.empty(total, dtype=kind) for kind in _narrow(shape))
    in_a, in_b = np.empty(total, dtype=np.bool_), np.empty(total, dtype=np.bool_)
    start = 0
    for s in blocks(both.size):
        kept = np.ones(s.stop - s.start, dtype=np.bool_)
        kept[1:] = ~met[s][:-1]
        kept[:1] = s.start == 0 or not met[s.start - 1]
        part = both[s][kept]
        here = slice(start, start + part.size)
        owner = (part & 1).astype(np.bool_)
        np.logical_not(owner, out=in_a[here])
        np.logical_or(owner, met[s][kept], out=in_b[here])
        part >>= 1
        for column, width in zip(reversed(columns), reversed(bits), strict=True):
            column[here] = part & ((1 << width) - 1)
            part >>= width
        start = here.stop
    return Union(columns, in_a, in_b)


def _by_ranks(a: Sequence[Ints], made: Made, shape: Sequence[int]) -> Union:
    b: Sequence[Ints]
    if isinstance(made, Roll):
        edge = shape[0] - made.by
        b = (np.where(a[0] >= edge, a[0] - edge, a[0] + made.by), *a[1:])
    elif isinstance(made, Swap):
        b = (a[1], a[0], *a[2:])
    else:
        b = made
    kinds = _narrow(shape)
    columns = [np.concatenate([x, y]).astype(k) for x, y, k in zip(a, b, kinds, strict=True)]
    theirs = np.arange(columns[0].size) >= a[0].size
    order = np.lexsort((theirs, *reversed(columns)))
    columns = [column.take(order) for column in columns]
    theirs = theirs.take(order)
    first = beginnings(columns)(len(columns))
    met = np.zeros(first.size, dtype=np.bool_)
    met[:-1] = ~first[1:]
    return Union(tuple(c[first] for c in columns), ~theirs[first], (theirs | met)[first])


def beginnings(columns: Sequence[Index]) -> Callable[[int], Flags]:
    """For points in order: where the first coordinates of a point differ from those of the one before it.

    The function found takes how many of them; ask in ascending order.
    """
    done, new = 0, np.zeros(columns[0].size, dtype=np.bool_)
    new[:1] = True

    def first(prefix: int) -> Flags:
        nonlocal done
        for column in columns[done:prefix]:
            new[1:] |= column[1:] != column[:-1]
        done = max(done, prefix)
        return new

    return first
