"""The shapes of an Einsum with all tile sizes of their fused loops, and which structures they may follow."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import prod
from typing import Any

import numpy as np

from polymodel.mapper.join import Rules
from polymodel.mapper.lower_bounds import Floors
from polymodel.mapper.records import Limits
from polymodel.mapper.space import EinsumSpace
from polymodel.mapper.states import Structure, above_of
from polymodel.mapper.templates import Exchanges, Passing, Shape, shapes
from polymodel.mapper.tilechains import sizes_below

Array = Any


@dataclass
class Choice:
    """One shape of an Einsum: its tile sizes `keys` [fused loops, n], the bits of its exchanged tensors
    `own` [memories, n], and where its tile sizes stand among all of the Einsum."""

    shape: Shape
    keys: Array
    own: Array
    first: int

    def __len__(self) -> int:
        return int(self.keys.shape[1])

    @property
    def places(self) -> slice:
        return slice(self.first, self.first + len(self))

    def of(self, keys: Array) -> Array:
        """Positions of tile sizes among `keys`."""
        if not len(keys) or (len(self) == 1 and not self.keys.any()):
            return np.zeros(keys.shape[1], np.int64)
        base = int(max(keys.max(initial=0), self.keys.max(initial=0))) + 1
        mine, theirs = _numbered(self.keys, base), _numbered(keys, base)
        order = np.argsort(mine)
        found: Array = order[np.searchsorted(mine[order], theirs)]
        return found


def _numbered(keys: Array, base: int) -> Array:
    found = np.zeros(keys.shape[1], object if base ** len(keys) > 2**62 else np.int64)
    for row in keys:
        found = found * base + row
    return found


def open_shapes(
    space: EinsumSpace, limits: Limits, passing: Passing, depth: int, floors: Floors
) -> Iterator[Shape]:
    """Shapes of up to so many fused loops for which there are mappings."""
    for shape in every_shape(space, limits, passing, depth):
        if floors.of(shape.exchanges) is not None:
            yield shape


def every_shape(space: EinsumSpace, limits: Limits, passing: Passing, depth: int) -> Iterator[Shape]:
    """Shapes of up to so many fused loops."""
    reach = len(space.memories) if space.copy else max(u.memories for u in space.units)
    for d in range(depth + 1):
        yield from shapes(space, limits, passing, d, reach)


def exchanged_inside(
    space: EinsumSpace, limits: Limits, passing: Passing, depth: int, rules: Rules
) -> set[Exchanges]:
    """What may be handed on further inside than the first memory and fits there at some tile size."""
    some = [s for s in every_shape(space, limits, passing, depth) if s.innermost > 1]
    found = set()
    for c in choices_of(space, some, "", rules):  # at tile sizes of 1, which take the least
        if (c.own <= rules.capacity[:, None]).all(axis=0).any():
            found.add(c.shape.exchanges)
    return found


def choices_of(space: EinsumSpace, some: Sequence[Shape], sizes: str, rules: Rules) -> Iterator[Choice]:
    count = 0
    for shape in some:
        keys = keys_of(space, shape.prefix, sizes)
        own = np.zeros((len(rules.which), keys.shape[1]))
        for i, m, k in shape.shared:
            if m in rules.which:
                o = space.operands[i]
                ranks = [o.ranks.index(v) for v in shape.prefix[:k]]
                own[rules.which.index(m)] += rules.lives.size(o.tensor, ranks, np.maximum(keys[:k], 1))
        yield Choice(shape, keys, own, count)
        count += keys.shape[1]


def keys_of(space: EinsumSpace, prefix: tuple[int, ...], sizes: str) -> Array:
    """All tile sizes of fused loops [loops, n]; without `sizes` a column of zeros stands for all."""
    if not sizes:
        return np.zeros((len(prefix), 1), np.int64)
    found: list[tuple[int, ...]] = [()]
    for k, v in enumerate(prefix):
        before = next((j for j in range(k - 1, -1, -1) if prefix[j] == v), None)
        found = [
            (*t, size)
            for t in found
            for now in [space.extents[v] if before is None else t[before]]
            for size in sizes_below(now, sizes)
            if size < now
        ]
    return np.array(found, np.int64).reshape(len(found), len(prefix)).T


def most_keys(space: EinsumSpace, prefix: tuple[int, ...], sizes: str) -> int:
    """How many tile sizes there are at most."""
    return prod(len(sizes_below(space.extents[v], sizes)) for v in prefix)


def entries_of(space: EinsumSpace, shape: Shape) -> Iterator[object]:
    """What structures that the shape may follow have in common."""
    above = above_of(space, shape.prefix)
    reads = frozenset(
        (space.operands[i].tensor, m, d) for i, m, d in shape.shared if not space.operands[i].output
    )
    for c in range(len(above) + 1):
        if len(above) == max(c, shape.own_depth):
            yield above[:c], reads


def follows(space: EinsumSpace, structure: Structure) -> object:
    reads = frozenset(
        (x.tensor, x.memory, x.depth)
        for x in structure.live
        if x.memory and space.operand(x.tensor) is not None
    )
    return structure.above, reads


def unlike(some: Mapping[Shape, Array], done: Mapping[Shape, Array]) -> dict[Shape, Array]:
    """Tile sizes of shapes that are not done."""
    left = {shape: mine & ~done.get(shape, np.zeros(len(mine), bool)) for shape, mine in some.items()}
    return {shape: mine for shape, mine in left.items() if mine.any()}
