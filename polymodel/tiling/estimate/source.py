"""What is known of the data, and the laws of tiles that follow from it."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass

import numpy as np

from polymodel.sparse.density.hypergeometric import Hypergeometric
from polymodel.sparse.density.maxima import cdf_max
from polymodel.sparse.density.model import MOST_POINTS, Floats, Ints
from polymodel.tiling.estimate import uniform
from polymodel.tiling.estimate.entry_capacity import most_entries
from polymodel.tiling.estimate.joint_fit import pairwise_fit, sampled_fit
from polymodel.tiling.estimate.loads import BINS, Loads, binned, either, tail, written
from polymodel.tiling.fits.fit import Elements, Fit, Op

# Chances that are as good as none, and the largest capacity whose laws are written out.
_NEVER, _WRITTEN = 1e-12, 20_000
# Tiles that are few enough for the total of their entries to matter.
_FEW = 64


@dataclass(frozen=True, eq=False)
class Source(ABC):
    """Two operands of one shape, under an operation and a fit.

    Rectangles are k x (row, column, height, width).
    """

    shape: tuple[int, int]
    op: Op
    fit: Fit

    @property
    @abstractmethod
    def method(self) -> str:
        """What the laws are, in words."""

    @property
    @abstractmethod
    def same(self) -> bool:
        """Whether B is A."""

    @abstractmethod
    def keys(self, rects: Ints) -> Ints:
        """Rectangles with what does not matter left out: equal ones have one law."""

    @abstractmethod
    def loads(self, rects: Ints) -> Loads:
        """The law of each rectangle."""

    def all_fit(self, size: tuple[int, int], rects: Ints, counts: Floats, laws: Loads) -> float:
        """P(all tiles of a size fit), as if they were independent; `counts`: how many have each law."""
        return together(counts, 1 - np.minimum(laws.over, 1.0), laws.over)

    def distinct(self, rects: Ints) -> tuple[Loads, Ints]:
        """Laws of the distinct rectangles, and of each rectangle which is its."""
        keys, place = np.unique(self.keys(rects), axis=0, return_inverse=True)
        return self.loads(keys), place.reshape(-1)


def together(counts: Floats, fits: Floats, over: Floats) -> float:
    """P(all fit) of so many independent tiles each."""
    with np.errstate(divide="ignore"):
        logs = np.where(over < 0.5, np.log1p(-np.minimum(over, 1.0)), np.log(np.maximum(fits, 0.0)))
    return float(np.exp((counts * logs).sum()))


@dataclass(frozen=True, eq=False)
class UniformSource(Source):
    """Uniform random A; B is A rolled by `rolled` rows, or `second` with places of its own, or nothing.

    `mirrored`: `second` is A transposed, so that tiles of B are the mirror images of tiles of A.
    """

    first: Hypergeometric
    rolled: int | None
    second: Hypergeometric | None
    mirrored: bool = False

    @property
    def method(self) -> str:
        return "worked out from hypergeometric laws"

    @property
    def same(self) -> bool:
        return self.rolled is not None and self.rolled % self.shape[0] == 0

    def keys(self, rects: Ints) -> Ints:
        found = rects.copy()
        found[:, :2] = 0
        return found

    def loads(self, rects: Ints) -> Loads:
        k = rects.shape[0]
        height, width = rects[:, 2].astype(np.float64), rects[:, 3].astype(np.float64)
        places = rects[:, 2] * rects[:, 3]
        mean, variance, share = self._moments(rects)
        room = most_entries(self.fit, self.op, height, width, places, share, self.same)
        over, entries, mass = np.zeros(k), np.zeros((k, BINS)), np.zeros((k, BINS))
        both = room.astype(np.float64)
        if self.op == "multiply":
            both = both / np.maximum(share, 1 - share)
        wide = []
        for i in range(k):
            law = self._law(int(rects[i, 2]), int(rects[i, 3]), int(room[i]))
            if law is None:
                wide.append(i)
                continue
            over[i] = law.over
            entries[i], mass[i] = binned(law.first + np.arange(law.mass.size, dtype=np.float64), law.mass)
        if wide:
            over[wide] = self._smooth(rects[wide], room[wide])
            entries[wide], mass[wide] = written(both[wide], mean[wide], variance[wide], 1 - over[wide])
        return Loads(
            over, entries, mass, mean, variance, share, both, self._apart(rects, share), height, width
        )

    def all_fit(self, size: tuple[int, int], rects: Ints, counts: Floats, laws: Loads) -> float:
        """P(all tiles of a size fit), with the dependence of tiles that take the same places of A."""
        plain = super().all_fit(size, rects, counts, laws)
        if plain < _NEVER or plain > 1 - _NEVER:
            return plain
        room = self._room(rects, laws)
        if self.rolled is not None and not self.same:
            by = self.rolled % self.shape[0]
            if counts.sum() <= _FEW:
                return sampled_fit(self.first, self.shape, size, by, self._each(size, rects, room), self.op)
            return pairwise_fit(self.first, rects, counts, room, by, self.op, plain)
        if np.unique(room).size > 1 or room[0] > _WRITTEN:
            return plain
        places, capacity = rects[:, 2] * rects[:, 3], room[:1].astype(np.float64)
        if self.same or (self.rolled is None and self.second is None):
            capacity = capacity // 2 if self.same and self.op == "add" else capacity
            return float(cdf_max(self.first, places, counts, capacity)[0])
        second = self.second or self.first
        if self.op == "multiply":
            if self.mirrored and isinstance(self.fit, Elements):
                # The tiles of B hold what those of A hold: all of them fit where all of these do.
                return float(cdf_max(self.first, places, counts, capacity)[0])
            both = [float(cdf_max(law, places, counts, capacity)[0]) for law in (self.first, second)]
            return both[0] * both[1]
        if self.first.nnz != second.nnz or 2 * self.first.points > MOST_POINTS:
            return plain
        # Entries of both at random places of two matrices: that each has half of them matters little.
        law = Hypergeometric(2 * self.first.points, 2 * self.first.nnz)
        return float(cdf_max(law, 2 * places, counts, capacity)[0])

    def _room(self, rects: Ints, laws: Loads) -> Ints:
        places = rects[:, 2] * rects[:, 3]
        return most_entries(self.fit, self.op, laws.height, laws.width, places, laws.share, self.same)

    def _each(self, size: tuple[int, int], rects: Ints, room: Ints) -> Ints:
        """The capacity of each tile in row-major order, from that of each kind."""
        extents = [
            np.minimum(one, total - np.arange(0, total, one))
            for one, total in zip(size, self.shape, strict=True)
        ]
        kinds = {(int(h), int(w)): int(c) for (_, _, h, w), c in zip(rects.tolist(), room, strict=True)}
        return np.array([kinds[int(h), int(w)] for h in extents[0] for w in extents[1]], dtype=np.int64)

    def shared_rows(self, height: Ints) -> Ints:
        """Rows that a tile takes of A for both operands."""
        if self.rolled is None:
            return np.zeros_like(height)
        rows, by = self.shape[0], self.rolled % self.shape[0]
        wrapped = np.maximum(0, height - rows + by) if by else 0
        found: Ints = (np.maximum(0, height - by) + wrapped).astype(np.int64)
        return found

    def _moments(self, rects: Ints) -> tuple[Floats, Floats, Floats]:
        """Mean and variance of the entries of A and B together, and A's share."""
        places = rects[:, 2] * rects[:, 3]
        mean, variance = self.first.mean(places), self.first.variance(places)
        if self.second is not None:
            other = self.second.mean(places)
            share = mean / np.maximum(mean + other, 1e-300)
            return (
                mean + other,
                variance + self.second.variance(places),
                np.where(mean + other > 0, share, 0.5),
            )
        if self.rolled is None:
            return mean, variance, np.ones_like(mean)
        common = self.shared_rows(rects[:, 2]) * rects[:, 3]
        union, shared = self.first.variance(2 * places - common), self.first.variance(common)
        # Entries are those of the union and of the shared part; cov(shared, union) by proportion.
        together = union * common / np.maximum(2 * places - common, 1)
        return 2 * mean, union + shared + 2 * together, np.full_like(mean, 0.5)

    def _apart(self, rects: Ints, share: Floats) -> Floats:
        """Variance of A's entries less B's, per entry of both: only those that they do not share differ."""
        if self.rolled is None:
            full = self.first.nnz / self.first.points
            return 4 * share * (1 - share) * (1 - full)
        rows = rects[:, 2]
        found: Floats = (rows - self.shared_rows(rows)) / rows * (1 - self.first.nnz / self.first.points)
        return found

    def _law(self, height: int, width: int, capacity: int) -> uniform.Law | None:
        """The law written out; None where it is too wide."""
        places = height * width
        if self.second is not None:
            return uniform.independent(self.first, self.second, places, capacity, self.op)
        if self.rolled is None:
            return uniform.alone(self.first, places, capacity)
        if self.same:
            return uniform.same(self.first, places, capacity, self.op)
        common = int(self.shared_rows(np.array(height))) * width
        return uniform.rolled(self.first, common, places - common, capacity, self.op)

    def _smooth(self, rects: Ints, room: Ints) -> Floats:
        """P(over) by mean and variance, for laws that are too wide to be written out."""
        mean, variance, _ = self._moments(rects)
        if self.op == "add":
            return tail(room, mean, variance)
        places = rects[:, 2] * rects[:, 3]
        ours = self.first.mean(places), self.first.variance(places)
        second = self.second or self.first
        theirs = second.mean(places), second.variance(places)
        return either(room, ours, theirs, (variance - ours[1] - theirs[1]) / 2)
