"""Factors of touches as arrays: which stamps a factor has, how much each holds, which of them meet.

One factor knows few loops and ranks, so its stamps can be listed, and mostly its elements too, where the
operations of the whole Einsum, the product over all factors, cannot.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from math import prod

import numpy as np
from numpy.typing import NDArray

from polymodel.analysis.exact.sweep import Ints, distinct, rank
from polymodel.errors import Refused

Flags = NDArray[np.bool_]
LIMIT = 20_000_000


def bounded(count: int) -> int:
    """`count`, or a refusal if arrays of this length would not fit."""
    if count > LIMIT:
        raise Refused(
            f"tiles that are carried past other Einsums have {count:,} stamps to list, at most {LIMIT:,} are",
            "use larger tiles in the loops above their split, or let those Einsums share no loops",
        )
    return count


@dataclass(frozen=True)
class Index:
    """Row numbers of distinct rows of non-negative integers, by their values."""

    shape: tuple[int, ...]
    rows: Ints

    @staticmethod
    def of(table: Ints) -> Index:
        shape = tuple(int(n) + 1 for n in table.max(axis=0, initial=0))
        found = np.full(bounded(prod(shape)), -1, dtype=np.int64)
        flat = np.zeros(len(table), dtype=np.int64)
        for column, n in zip(table.T, shape, strict=True):
            flat = flat * n + column
        found[flat] = np.arange(len(table))
        return Index(shape, found)

    def find(self, columns: Sequence[Ints], shape: tuple[int, ...]) -> Ints:
        """Row numbers for columns that broadcast to `shape`; -1 where there is no such row."""
        flat = np.zeros((1,) * len(shape), dtype=np.int64)
        known = np.ones((1,) * len(shape), dtype=bool)
        for column, n in zip(columns, self.shape, strict=True):
            known = known & (column < n)
            flat = flat * n + np.minimum(column, n - 1)
        found = np.where(known, self.rows[flat], -1)
        return np.asarray(np.broadcast_to(found, shape), dtype=np.int64)


NOWHERE = 2**62  # a counter beyond all


@dataclass(frozen=True)
class Ends:
    """First and last stamps of one factor under given counters of its outer loops (`axes`)."""

    axes: tuple[int, ...]
    index: Index
    starts: Ints
    stops: Ints

    def first(self, time: dict[int, Ints], rows: int) -> Ints:
        return self._at(self.starts, time, rows)

    def last(self, time: dict[int, Ints], rows: int) -> Ints:
        return self._at(self.stops, time, rows)

    def _at(self, stamps: Ints, time: dict[int, Ints], rows: int) -> Ints:
        """Stamps by rows; counters that no stamp has where nothing is touched."""
        found = self.index.find([time[a] for a in self.axes], (rows,))
        return np.where((found < 0)[:, None], NOWHERE, stamps[found])


@dataclass(frozen=True)
class Table(ABC):
    """One factor: its stamps [spatial..., temporal...] and what each holds.

    `spatial` and `temporal` are the stamp positions of the columns of `stamps`, which are distinct, in order.
    """

    spatial: tuple[int, ...]
    temporal: tuple[int, ...]

    @property
    def width(self) -> int:
        return len(self.spatial) + len(self.temporal)

    @property
    @abstractmethod
    def stamps(self) -> Ints:
        """Distinct stamps at which anything is touched, in order."""

    @property
    @abstractmethod
    def sizes(self) -> Ints:
        """Elements per stamp."""

    @property
    @abstractmethod
    def places(self) -> tuple[Index, Ints, Ints]:
        """Instances; for each, its class (the same but for where its data lie), and what it ever holds."""

    @abstractmethod
    def meeting(self, one: Ints, other: Ints) -> Flags:
        """Whether two different stamps hold a common element, for arrays of distinct pairs."""

    @cached_property
    def times(self) -> Ints:
        """Distinct temporal stamps, in order."""
        return distinct(self.stamps[:, len(self.spatial) :])

    @cached_property
    def index(self) -> Index:
        return Index.of(self.stamps)

    def find(self, place: dict[int, Ints], time: dict[int, Ints], shape: tuple[int, int]) -> Ints:
        """Stamps by (time, place), -1 where nothing is touched; counters by stamp position."""
        columns = [place[a][None, :] for a in self.spatial] + [time[a][:, None] for a in self.temporal]
        return self.index.find(columns, shape)

    def size_at(self, stamps: Ints) -> Ints:
        """Elements at stamps as `find` gives them; none at -1."""
        return np.where(stamps < 0, 0, self.sizes[stamps])

    def meet(self, one: Ints, other: Ints) -> Flags:
        """Whether two stamps hold a common element."""
        both = (one >= 0) & (other >= 0)
        result = both & (one == other)
        moved = both & (one != other)
        if moved.any():
            keys = one[moved] * len(self.stamps) + other[moved]
            pairs, which = np.unique(keys, return_inverse=True)
            found = self.meeting(pairs // len(self.stamps), pairs % len(self.stamps))
            result[moved] = found[which.reshape(-1)]
        return np.asarray(result, dtype=bool)

    def ends(self, outer: int) -> Ends:
        """The first and the last temporal stamp of any instance, by the first `outer` temporal counters."""
        heads = distinct(self.times[:, :outer])
        last = np.searchsorted(rank(self.times[:, :outer]), np.arange(len(heads)), side="right") - 1
        first = np.concatenate(([0], last[:-1] + 1))
        return Ends(self.temporal[:outer], Index.of(heads), self.times[first], self.times[last])


@dataclass(frozen=True)
class Listed(Table):
    """One factor listed: distinct rows [spatial..., temporal..., ranks...] in order."""

    rows: Ints

    @cached_property
    def _new(self) -> Flags:
        """Rows that begin a stamp."""
        result = np.zeros(len(self.rows), dtype=bool)
        result[:1] = True
        for column in self.rows.T[: self.width]:
            result[1:] |= column[1:] != column[:-1]
        return result

    @cached_property
    def stamps(self) -> Ints:
        """Distinct stamps at which anything is touched, in order."""
        return self.rows[self._new, : self.width]

    @cached_property
    def owner(self) -> Ints:
        """The stamp of each row."""
        return np.cumsum(self._new) - 1

    @cached_property
    def sizes(self) -> Ints:
        """Elements per stamp."""
        return np.bincount(self.owner, minlength=len(self.stamps)).astype(np.int64)

    @cached_property
    def _elements(self) -> Ints:
        return rank(self.rows[:, self.width :])

    def meeting(self, one: Ints, other: Ints) -> Flags:
        small = np.where(self.sizes[one] <= self.sizes[other], one, other)
        large = one + other - small
        lengths = self.sizes[small]
        bounded(int(lengths.sum()))
        starts = np.cumsum(self.sizes) - self.sizes
        pair = np.repeat(np.arange(len(small)), lengths)
        inside = np.arange(len(pair)) - np.repeat(np.cumsum(lengths) - lengths, lengths)
        elements = self._elements[starts[small][pair] + inside]
        count = int(self._elements.max()) + 1
        known = self.owner * count + self._elements  # ascending: rows are in order
        wanted = large[pair] * count + elements
        at = np.minimum(np.searchsorted(known, wanted), len(known) - 1)
        hits = np.bincount(pair[known[at] == wanted], minlength=len(small))
        return np.asarray(hits > 0)

    @cached_property
    def places(self) -> tuple[Index, Ints, Ints]:
        """Instances; for each, its class (the same but for where its data lie), and what it ever holds."""
        columns = len(self.spatial)
        where, each = distinct(self.rows[:, :columns]), rank(self.rows[:, :columns])
        bounds = np.searchsorted(each, np.arange(len(where) + 1))
        seen: dict[bytes, int] = {}
        kinds = np.zeros(len(where), dtype=np.int64)
        for i in range(len(where)):
            part = self.rows[bounds[i] : bounds[i + 1], columns:].copy()
            part[:, len(self.temporal) :] -= part[:, len(self.temporal) :].min(axis=0, initial=2**62)
            kinds[i] = seen.setdefault(part.tobytes(), len(seen))
        held = distinct(np.column_stack([each, self._elements]))
        return Index.of(where), kinds, np.bincount(held[:, 0], minlength=len(where)).astype(np.int64)
