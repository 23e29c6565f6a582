"""How many whole mappings there are: pmappings of one Einsum after another, counted by open loops, their
tile sizes and live tensors, as the join of the search goes along the cascade (`states.step`).

Tile sizes below open loops have positions, which depend only on what these loops split: there Einsums meet.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from polymodel.mapper.chain_counts import fused_sizes
from polymodel.mapper.space import EinsumSpace
from polymodel.mapper.states import Lives, Structure, above_of, step
from polymodel.mapper.templates import Shape

Array = Any


@dataclass(frozen=True)
class Counted:
    """One shape. `keys` [D, n]: tile sizes below its fused loops; `counts` [n]: how many pmappings have
    them (integers of any size)."""

    shape: Shape
    keys: Array
    counts: Array


@dataclass(frozen=True)
class _Entry:
    shape: Shape
    above: tuple[int, ...]
    counts: Array


Exchanges = frozenset[tuple[str, int, int]]


class Joining:
    """Counts of partial mappings by structure, as a plain dictionary."""

    def __init__(self, lives: Lives, even: bool) -> None:
        self.lives, self.even = lives, even
        self.states: dict[Structure, Array] = {Structure((), ()): np.array([1], dtype=object)}
        self._keys: dict[tuple[int, ...], Array] = {}
        self._positions: dict[tuple[int, ...], dict[tuple[int, ...], int]] = {}
        self._groups: dict[tuple[tuple[int, ...], int], Array] = {}

    def add(self, space: EinsumSpace, number: int, shapes: Sequence[Counted]) -> None:
        """The next Einsum of the cascade."""
        known: dict[tuple[tuple[int, ...], Exchanges], list[_Entry]] = {}
        for one in shapes:
            entry = self._entry(space, one)
            reads = _reads(space, one.shape)
            for c in range(len(entry.above) + 1):
                known.setdefault((entry.above[:c], reads), []).append(entry)
        after: dict[Structure, Array] = {}
        for structure, counts in self.states.items():
            live = frozenset(
                (x.tensor, x.memory, x.depth)
                for x in structure.live
                if x.memory and space.operand(x.tensor) is not None
            )
            for entry in known.get((structure.above, live), ()):
                found = step(structure, space, entry.shape, number, self.lives)
                if found is not None:
                    joined = counts[self._group(entry.above, structure.depth)] * entry.counts
                    joined = self._summed(joined, entry.above, found.after.depth)
                    old = after.get(found.after)
                    after[found.after] = joined if old is None else old + joined
        self.states = after

    def total(self) -> int:
        return sum(int(n) for counts in self.states.values() for n in counts)

    def _entry(self, space: EinsumSpace, one: Counted) -> _Entry:
        order = np.lexsort(one.keys[::-1]) if len(one.keys) else np.zeros(1, np.int64)
        above = above_of(space, one.shape.prefix)
        self._keys.setdefault(above, one.keys[:, order])
        return _Entry(one.shape, above, one.counts[order])

    def _sizes(self, above: tuple[int, ...]) -> dict[tuple[int, ...], int]:
        """All tile sizes below open loops that split these: size tuples -> position."""
        if above not in self._positions:
            found: list[tuple[int, ...]] = [()]
            for split in above:
                found = [
                    (*outer, *inner)
                    for outer in found
                    for inner in fused_sizes(split if split > 0 else outer[-1 - split], 1, self.even)
                ]
            self._positions[above] = {sizes: i for i, sizes in enumerate(found)}
        return self._positions[above]

    def _group(self, above: tuple[int, ...], depth: int) -> Array:
        """[n]: position of each column's first `depth` sizes among those of so many loops."""
        if (above, depth) not in self._groups:
            positions = self._sizes(above[:depth])
            columns = self._keys[above][:depth].T.tolist()
            self._groups[above, depth] = np.array([positions[tuple(c)] for c in columns], np.int64)
        return self._groups[above, depth]

    def _summed(self, counts: Array, above: tuple[int, ...], depth: int) -> Array:
        group = self._group(above, depth)
        found = np.zeros(len(self._sizes(above[:depth])), dtype=object)
        if len(group):
            starts = np.flatnonzero(np.concatenate([[True], group[1:] != group[:-1]]))
            found[group[starts]] = np.add.reduceat(counts, starts)
        return found


def _reads(space: EinsumSpace, shape: Shape) -> Exchanges:
    """What an Einsum takes from where it was exchanged."""
    return frozenset(
        (space.operands[i].tensor, m, d) for i, m, d in shape.shared if not space.operands[i].output
    )
