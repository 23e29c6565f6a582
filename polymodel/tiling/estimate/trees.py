"""Expected leaves of quad trees and binary trees.

Where a tree cuts does not depend on the data, only whether it does; and as loads grow with rectangles, a node
of the full hierarchy is split exactly where its own load exceeds the capacity. So

    E[tiles] = 1 + sum over nodes of (children - 1) P(load > capacity)

and a child is a tile where it fits and its parent does not, which has P(child fits) - P(parent fits). Nodes
with one law are taken together: the hierarchy has a few sizes per level.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from polymodel.errors import Refused
from polymodel.sparse.density.model import Floats, Ints
from polymodel.tiling.estimate.loads import Loads, tail
from polymodel.tiling.estimate.record import Sums
from polymodel.tiling.estimate.source import Source
from polymodel.tiling.estimate.work import launched, tokens
from polymodel.tiling.fits.fit import Op

# Splits that are expected less often than this share of all tiles are left out.
_LEAST = 1e-9
_MOST = 1 << 22


@dataclass(eq=False)
class _Total:
    tiles: float = 0.0
    nonempty: float = 0.0
    useful: float = 0.0
    tokens: float = 0.0

    def add(self, source: Source, laws: Loads, mass: Floats) -> None:
        """Tiles of these laws; `mass`: how many of them are expected with each number of entries."""
        run = launched(source.op, laws.entries, laws.share[:, None], source.same)
        each = tokens(source.op, laws, source.same)
        self.tiles += float(mass.sum())
        self.nonempty += float((mass * (laws.entries > 0.5)).sum())
        self.useful += float((mass * run).sum())
        self.tokens += float((mass * each).sum())


def tree(source: Source, binary: bool) -> Sums:
    """Expected sums over the leaves of the binary tree or the quad tree."""
    rects = np.array([[0, 0, *source.shape]], dtype=np.int64)
    count, total = np.ones(1), _Total()
    laws, place = source.distinct(rects)
    total.add(source, laws, laws.mass)
    while True:
        busy = count * laws.over[place] > _LEAST * max(1.0, total.tiles)
        rects, count, own = rects[busy], count[busy], place[busy]
        if not rects.size:
            return Sums(total.tiles, total.nonempty, total.useful, total.tokens, source.method)
        if (rects[:, 2] * rects[:, 3] == 1).any():
            raise Refused(f"{source.fit.capacity} {source.fit.unit} do not hold a single entry", "give more")
        children, parent = halved(rects, binary)
        parents = laws.taken(own[parent])
        laws, place = source.distinct(children)
        mass = split_mass(source.op, parents, laws.taken(place)) * count[parent][:, None]
        total.add(source, laws.taken(place), mass)
        rects, count = _grouped(source, children, count[parent])
        if rects.shape[0] > _MOST:
            raise Refused(f"more than {_MOST} kinds of tiles", "estimate with a model that knows less")
        laws, place = source.distinct(rects)


def halved(rects: Ints, binary: bool) -> tuple[Ints, Ints]:
    """The children of each rectangle, and the positions of their parents."""
    height, width = rects[:, 2], rects[:, 3]
    top = np.where(height > 1, height // 2, height)
    left = np.where(width > 1, width // 2, width)
    if binary:
        wide = (width > height) | (height == 1)
        top, left = np.where(wide, height, top), np.where(wide, left, width)
    parts = []
    for lower in (False, True):
        for right in (False, True):
            row = rects[:, 0] + top * lower
            col = rects[:, 1] + left * right
            parts.append((row, col, height - top if lower else top, width - left if right else left))
    table = np.stack([np.stack(p, axis=1) for p in parts], axis=1).reshape(-1, 4)
    parent = np.repeat(np.arange(rects.shape[0]), 4)
    real = (table[:, 2] > 0) & (table[:, 3] > 0)
    return table[real], parent[real]


def split_mass(op: Op, parents: Loads, children: Loads) -> Floats:
    """P(a child fits with so many entries, and its parent does not), child by child.

    Their sum is P(child fits) - P(parent fits). Over the entries it is divided as the parent is then likely
    to overflow: given its child's entries the parent's are a count, whose mean grows with them and whose
    variance is what they leave unexplained.
    """
    from scipy.special import ndtri

    slope = parents.variance * children.mean / np.maximum(parents.mean * children.variance, 1e-300)
    slope = np.minimum(slope, 1.0)[:, None]
    mean = parents.mean[:, None] + slope * (children.entries - children.mean[:, None])
    left = np.maximum(parents.variance[:, None] - slope**2 * children.variance[:, None], 0.0)
    room = parents.room
    if op == "multiply":
        # The fuller operand decides: the entries of both together tell of it with a deviation.
        own = parents.apart * parents.mean
        room = parents.mean - np.sqrt(parents.variance + own) * ndtri(np.clip(parents.over, 1e-15, 1 - 1e-15))
        left = left + own[:, None]
    room = np.where(parents.over > 1 - 1e-9, -1.0, room)[:, None]
    weight = children.mass * (tail(np.floor(room), np.maximum(mean, 1e-9), left) + 1e-30)
    wanted = np.maximum(children.fits - parents.fits, 0.0)
    found: Floats = weight * (wanted / np.maximum(weight.sum(axis=1), 1e-300))[:, None]
    return found


def _grouped(source: Source, rects: Ints, count: Floats) -> tuple[Ints, Floats]:
    """Rectangles of one law once, with their number."""
    keys, place = np.unique(source.keys(rects), axis=0, return_inverse=True)
    number: Floats = np.bincount(place.reshape(-1), count, keys.shape[0]).astype(np.float64)
    return keys, number
