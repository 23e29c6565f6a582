"""Manage extents that tensors share, and their common refinement, by which heads become ranks.

An *axis* is an extent. A reshape splits an axis into parts, outermost first, for every tensor that has it. An
operation that iterates over one index of two tensors unifies their axes. A product whose result is reshaped
into heads therefore has ranks H and E from the start, and nothing has to be computed from a flat index.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from math import prod


class Axes:
    """A forest of axes, each identified by a number. Unified axes have one root; split axes have parts."""

    def __init__(self) -> None:
        self._size: list[int] = []
        self._hint: list[str] = []
        self._up: list[int] = []
        self._parts: dict[int, tuple[int, ...]] = {}

    def new(self, size: int, hint: str) -> int:
        """Create an axis of `size` elements. `hint`: the preferred name of its rank."""
        self._size.append(size)
        self._hint.append(hint)
        self._up.append(len(self._up))
        return len(self._up) - 1

    def root(self, axis: int) -> int:
        """Return the representative of all axes that were unified with this one."""
        while self._up[axis] != axis:
            self._up[axis] = self._up[self._up[axis]]
            axis = self._up[axis]
        return axis

    def size(self, axis: int) -> int:
        return self._size[axis]

    def hint(self, axis: int) -> str:
        return self._hint[self.root(axis)]

    def leaves(self, axis: int) -> tuple[int, ...]:
        """Return the parts of the axis that are not split any further, outermost first."""
        axis = self.root(axis)
        if axis not in self._parts:
            return (axis,)
        return tuple(leaf for part in self._parts[axis] for leaf in self.leaves(part))

    def flat(self, sequence: Sequence[int]) -> tuple[int, ...]:
        return tuple(leaf for axis in sequence for leaf in self.leaves(axis))

    def joined(self, sequence: Sequence[int], hint: str) -> int:
        """Return the axis that the given ones form together, outermost first."""
        if len(sequence) == 1:
            return sequence[0]
        axis = self.new(prod(self._size[a] for a in sequence), hint)
        self._parts[axis] = tuple(sequence)
        return axis

    def split(self, sequence: Sequence[int], sizes: Sequence[int], hints: Sequence[str]) -> bool:
        """Refine `sequence` so that groups of its leaves have `sizes`. Return False if that is impossible."""
        return self.unify([self.new(s, h) for s, h in zip(sizes, hints, strict=True)], sequence)

    def unify(self, left: Sequence[int], right: Sequence[int]) -> bool:
        """Unify both sequences, refining each where the other is finer. Return False if they have no common
        refinement (such as 3 x 2 and 2 x 3)."""
        while True:
            a, b = self.flat(left), self.flat(right)
            cuts = sorted({*self._cuts(a), *self._cuts(b)})
            if self._cuts(a)[-1] != self._cuts(b)[-1]:
                return False
            if any(high % low for low, high in pairwise(cuts)):
                return False
            # One leaf at a time, because the same axis may occur in the sequences more than once.
            if not (self._split_one(a, cuts) or self._split_one(b, cuts)):
                break
        for x, y in zip(a, b, strict=True):
            self._join(self.root(x), self.root(y))
        return True

    def _join(self, x: int, y: int) -> None:
        low, high = min(x, y), max(x, y)
        self._up[high] = low
        self._hint[low] = self._hint[low] or self._hint[high]

    def _cuts(self, leaves: Sequence[int]) -> list[int]:
        """Return the number of elements in the last 0, 1, 2, ... leaves."""
        result = [1]
        for leaf in reversed(leaves):
            result.append(result[-1] * self._size[leaf])
        return result

    def _split_one(self, leaves: Sequence[int], cuts: Sequence[int]) -> bool:
        below = 1
        for leaf in reversed(leaves):
            above = below * self._size[leaf]
            inner = [c for c in cuts if below <= c <= above]
            if len(inner) > 2:
                steps = list(pairwise(inner))
                self._parts[leaf] = tuple(self.new(high // low, "") for low, high in reversed(steps))
                return True
            below = above
        return False
