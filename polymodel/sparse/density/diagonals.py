"""Model nonzeros on some diagonals of a matrix, each with its own density, and few elsewhere: stencils and
bands."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import cached_property
from typing import Any

import numpy as np

from polymodel.frozen import dataclass
from polymodel.integers import distinct_numbers
from polymodel.sparse.arguments import Arguments
from polymodel.sparse.density.banded import tiles_by_offset
from polymodel.sparse.density.diagonal_laws import ListedLaws, PointCounts
from polymodel.sparse.density.laws import CountLaws
from polymodel.sparse.density.model import DensityModel, Floats, Ints
from polymodel.sparse.density.random import distinct_below
from polymodel.sparse.density.reader import Path, Reader
from polymodel.sparse.density.regions import NEVER, Kinds, Regional, Regions
from polymodel.sparse.tensor import SparseTensor
from polymodel.spec.faults import shown

# Rectangles x diagonals that are processed at once, and those whose points are listed by diagonal.
_BLOCK, _LISTED = 1 << 21, 1 << 23


@dataclass(frozen=True)
class Diagonals(Regional):
    """Each point of diagonal `offsets[d]` (column - row) is nonzero with probability `fill[d]`, and each
    other point with `background`, independently of all others. If `symmetric`, the mirror image of a point is
    nonzero exactly where the point is.

    Offsets are kept in ascending order. Tiles are independent, so that E[max] is not a bound. The
    distributions of occupancies are exact; those of very many or very large tiles with several fills, or with
    mirror images, are binomial with the same mean, variance and P(0). In a symmetric matrix two square tiles
    that mirror each other count as one. Other tiles share points with several tiles, so that E[max] of
    independent tiles is an upper bound.
    """

    offsets: tuple[int, ...]
    fill: tuple[float, ...]
    background: float = 0.0
    symmetric: bool = False

    def __post_init__(self) -> None:
        super().__post_init__()
        read = Arguments()
        offsets = self._offsets(read)
        given: object = self.fill
        listed = list(given) if isinstance(given, Iterable) and not isinstance(given, str) else None
        several = [given] * len(offsets) if listed is None else listed
        remedy = "give the share of nonzeros on a diagonal"
        fill = [float(read.share(f"fill[{i}]", f, "", remedy)) for i, f in enumerate(several)]
        if len(fill) != len(offsets) and not read.faults:
            what = f"{len(fill)} fills for {len(offsets)} diagonals"
            read.add("fill", what, "give one per diagonal, or one number for all", code="wrong-count")
        rest = float(read.share("background", self.background, "", "give the share of nonzeros elsewhere"))
        if self.symmetric and not read.faults:
            self._mirrored(read, dict(zip(offsets, fill, strict=True)))
        read.raise_if_any()
        order = sorted(range(len(offsets)), key=offsets.__getitem__)
        object.__setattr__(self, "offsets", tuple(offsets[i] for i in order))
        object.__setattr__(self, "fill", tuple(fill[i] for i in order))
        object.__setattr__(self, "background", rest)

    def _mirrored(self, read: Arguments, fill: Mapping[int, float]) -> None:
        """Record a fault unless the matrix is square and has the diagonals of its transpose."""
        if self.shape[0] != self.shape[1]:
            sizes = " x ".join(map(str, self.shape))
            message = f"a symmetric matrix of {sizes}"
            read.add("symmetric", message, "give a square, or leave symmetric out", code="shape-mismatch")
        for offset, share in fill.items():
            if fill.get(-offset) != share:
                what = f"diagonal {offset} of a symmetric matrix is not filled as diagonal {-offset}"
                read.add("fill", what, "name both, with one share", code="inconsistent-values")

    def _offsets(self, read: Arguments) -> list[int]:
        """Return the checked offsets: whole numbers of existing diagonals, each once."""
        given: object = self.offsets
        if not isinstance(given, Iterable) or isinstance(given, (str, Mapping)):
            message = f"{shown(given)} is not a list of offsets"
            read.add("offsets", message, "write e.g. [-1, 0, 1]", code="wrong-type")
            return []
        low, high = 1 - self.shape[0], self.shape[1] - 1
        result = []
        for i, offset in enumerate(given):
            what = f"diagonal {shown(offset)}: the matrix has those from {low} to {high}"
            result.append(read.whole(f"offsets[{i}]", offset, low, high, what))
        if len(set(result)) < len(result) and not read.faults:
            read.add("offsets", "a diagonal stands there twice", "name each once", code="duplicate-name")
        return result

    def __repr__(self) -> str:
        sizes = " x ".join(f"{r}={s:,}" for r, s in zip(self.ranks, self.shape, strict=True))
        near = ", ".join(map(str, self.offsets)) if len(self.offsets) < 9 else f"{len(self.offsets)} of them"
        rest = f", {self.background:.3g} elsewhere" if self.background else ""
        rest += ", symmetric" if self.symmetric else ""
        return f"Diagonals({sizes}, offsets {near}{rest}; {self.expected_nnz:,.6g} nonzeros)"

    @classmethod
    def of(
        cls,
        ranks: Sequence[str],
        shape: Sequence[int],
        offsets: Sequence[int],
        fill: float | Sequence[float] = 1.0,
        background: float = 0.0,
        symmetric: bool = False,
    ) -> Diagonals:
        """Make a model with one fill for all diagonals, or one for each."""
        # The checks convert both to tuples, and one number to one per diagonal.
        arrays: Any = offsets, fill
        return cls(tuple(ranks), tuple(shape), arrays[0], arrays[1], background, symmetric)

    @classmethod
    def written(cls, reader: Reader, path: Path, given: object) -> DensityModel | None:
        """Return the model with these parameters of a YAML file; None after a fault, which the reader has
        recorded."""
        keys = reader.keys(path, given, ("offsets", "fill", "background", "symmetric"), ("offsets",))
        if not keys:
            return None
        offsets: Any = keys["offsets"]
        fill: Any = keys.get("fill", 1.0)
        rest: Any = keys.get("background", 0.0)
        both: Any = keys.get("symmetric", False)
        if not isinstance(both, bool):
            message = f"symmetric is {both!r}"
            reader.add((*path, "symmetric"), message, "write true or false", code="wrong-type")
            return None
        return reader.made(path, lambda: cls.of(reader.ranks, reader.shape, offsets, fill, rest, both))

    @cached_property
    def _lengths(self) -> Ints:
        """The number of points of each diagonal."""
        offsets = np.array(self.offsets, dtype=np.int64)
        rows, columns = self.matrix
        return np.minimum(rows, columns - offsets) - np.maximum(0, -offsets)

    @property
    def settled(self) -> bool:
        return self.background in (0.0, 1.0) and all(f in (0.0, 1.0) for f in self.fill)

    @property
    def independent(self) -> bool:
        return not self.symmetric

    @property
    def expected_nnz(self) -> float:
        on = float(self._lengths @ np.array(self.fill)) if self.offsets else 0.0
        return on + self.background * (self.size - int(self._lengths.sum()))

    def _means(self, over: int) -> Floats:
        """Return the expected nonzeros of each row (over = 0) or column (1)."""
        steps = np.zeros(self.shape[over] + 1)
        away = (-1 if over else 1) * np.array(self.offsets, dtype=np.int64)
        first = np.maximum(0, -away)
        last = np.minimum(self.shape[over], self.shape[1 - over] - away)
        more = np.array(self.fill) - self.background
        np.add.at(steps, first, more)
        np.add.at(steps, last, -more)
        result: Floats = np.cumsum(steps[:-1]) + self.background * self.shape[1 - over]
        return result

    def known_rows(self) -> Ints | None:
        return np.rint(self._means(0)).astype(np.int64) if self.settled else None

    def row_pmf(self, loads: Ints, stride: int) -> Floats:
        """Return relative probabilities of the nonzeros of a row. Rows are independent, and identically
        distributed away from both ends."""
        result: Floats = np.diff(self.cdf((1, self.shape[1]), np.append(int(loads[0]) - stride, loads)))
        return result

    def square_multiplies(self) -> float:
        if self.shape[0] != self.shape[1]:
            return super().square_multiplies()
        # A row and a column are independent except for the point in both.
        own = dict(zip(self.offsets, self.fill, strict=True)).get(0, self.background)
        result = float(self._means(0) @ self._means(1)) + self.shape[0] * own * (1 - own)
        if self.symmetric:  # every other point of the row is one of the column as well
            whole = np.array([[0, 0, *self.shape]], dtype=np.int64)
            result += float(self._regions.mirrored(whole, self._regions.spread)[0])
        return result

    def regions(self) -> Regions:
        return self._regions

    @cached_property
    def _regions(self) -> OfDiagonals:
        offsets, fill = np.array(self.offsets, dtype=np.int64), np.array(self.fill, dtype=np.float64)
        return OfDiagonals(self.matrix, offsets, fill, self.background, self.symmetric)

    def kinds(self, tile: tuple[int, int]) -> Kinds:
        rects, full, every = [], [], []
        low, high = (self.offsets[0], self.offsets[-1]) if self.offsets else (0, 0)
        beyond = self.shape[0] + self.shape[1] + max(abs(low), abs(high))
        for number, tiles in enumerate(tiles_by_offset(self.matrix, tile, low, high)):
            # Only the offset of a position matters; a distant one represents tiles that no diagonal crosses.
            start = np.append(tiles.offsets, beyond)
            many = np.append(tiles.many, max(0.0, tiles.total - float(tiles.many.sum())))
            sizes = [np.full(start.size, size, dtype=np.int64) for size in tiles.box]
            rects.append(np.stack([start, np.zeros_like(start), sizes[0], sizes[1]], axis=1))
            every.append(many)
            full.append(many if number == 0 else np.zeros(many.size))
        whole = [s // t for s, t in zip(self.shape, tile, strict=True)]
        places, tiles_of_kind = np.concatenate(rects), np.concatenate(every)
        # Each kind counts half of its tiles, because two tiles mirror each other.
        half = self.symmetric and tile[0] == tile[1]
        single = np.where(places[:, 0] == 0, tiles_of_kind, tiles_of_kind / 2) if half else None
        return Kinds(places, np.concatenate(full), tiles_of_kind, float(whole[0]) * whole[1], single)

    def apart(self, tile: tuple[int, int]) -> bool:
        return not self.symmetric or tile[0] == tile[1]

    def draw(self, seed: int, name: str = "A") -> SparseTensor:
        generator = np.random.default_rng(seed)
        columns = self.shape[1]
        parts = []
        for offset, fill, length in zip(self.offsets, self.fill, self._lengths, strict=True):
            along = np.flatnonzero(generator.random(int(length)) < fill) + max(0, -offset)
            parts.append(np.stack([along, along + offset]))
        if self.background:
            number = int(generator.binomial(self.size, self.background))
            points = np.stack(np.divmod(distinct_below(generator, self.size, number), columns))
            parts.append(points[:, ~np.isin(points[1] - points[0], self.offsets)])
        coords = np.concatenate(parts, axis=1) if parts else np.zeros((2, 0), dtype=np.int64)
        if self.symmetric:
            above = coords[:, coords[0] < coords[1]]
            coords = np.concatenate((coords[:, coords[0] == coords[1]], above, above[::-1]), axis=1)
        return self.ones_at(coords, name)


@dataclass(frozen=True, eq=False)
class OfDiagonals(Regions):
    """Statistics of rectangles, computed from the number of points of each diagonal inside."""

    shape: tuple[int, int]
    offsets: Ints
    fill: Floats
    background: float
    symmetric: bool = False

    def keys(self, rects: Ints) -> Ints:
        result = rects.copy()
        result[:, 0] -= rects[:, 1]
        result[:, 1] = 0
        return result

    def reach(self, start: Ints, size: Ints) -> tuple[Ints, Ints]:
        if self.background or not self.offsets.size:
            return super().reach(start, size)
        low = np.clip(start + self.offsets[0], 0, self.shape[1])
        return low, np.clip(start + size + self.offsets[-1], low, self.shape[1])

    def laws(self, rects: Ints) -> CountLaws:
        plain = super().laws(rects)
        if float(rects.shape[0]) * (self.offsets.size + 1) > _LISTED:
            return plain
        points = self._points(rects)
        return ListedLaws(plain.mean, plain.variance, plain.log_empty, plain.sure, points.most, points)

    def _points(self, rects: Ints) -> PointCounts:
        """Return how many points of each diagonal, and elsewhere, are in a rectangle with their mirror images
        (as pairs) and without."""
        single = self._crossed(rects)
        twice = np.zeros_like(single)
        if self.symmetric:
            low = np.maximum(rects[:, 0], rects[:, 1])
            high = np.minimum(rects[:, 0] + rects[:, 2], rects[:, 1] + rects[:, 3])
            size = np.maximum(high - low, 0)
            inside = self._crossed(np.stack([low, low, size, size], axis=1))
            # A point of the main diagonal is its own mirror image.
            main = np.flatnonzero(self.offsets == 0)
            inside[:, main] = 0.0
            inside[:, -1] -= 0 if main.size else size
            single -= inside
            twice = inside / 2
        return PointCounts(np.append(self.fill, self.background), single, twice)

    def _crossed(self, rects: Ints) -> Floats:
        """Return the points of each diagonal in rectangles, and last those of no diagonal."""
        row, column, height, width = (x[:, None] for x in rects.T)
        first = np.maximum(row, column - self.offsets)
        last = np.minimum(row + height, column + width - self.offsets)
        on = np.maximum(last - first, 0).astype(np.float64)
        rest = rects[:, 2].astype(np.float64) * rects[:, 3] - on.sum(axis=1)
        return np.concatenate((on, rest[:, None]), axis=1)

    def _added(self, rects: Ints, on: Floats, elsewhere: float) -> Floats:
        """Return the sum over all points of a rectangle of `on[d]` for those of diagonal d, else
        `elsewhere`."""
        result = rects[:, 2].astype(np.float64) * rects[:, 3] * elsewhere
        step = max(1, _BLOCK // max(self.offsets.size, 1))
        for begin in range(0, rects.shape[0], step):
            row, column, height, width = (x[:, None] for x in rects[begin : begin + step].T)
            first = np.maximum(row, column - self.offsets)
            last = np.minimum(row + height, column + width - self.offsets)
            result[begin : begin + step] += np.maximum(last - first, 0) @ (on - elsewhere)
        return result

    def mean(self, rects: Ints) -> Floats:
        return self._added(rects, self.fill, self.background)

    @property
    def spread(self) -> tuple[Floats, float]:
        """The variance of a point, on the diagonals and elsewhere."""
        return self.fill * (1 - self.fill), self.background * (1 - self.background)

    def variance(self, rects: Ints) -> Floats:
        result = self._added(rects, *self.spread)
        return result + self.mirrored(rects, self.spread) if self.symmetric else result

    def mirrored(self, rects: Ints, each: tuple[Floats, float]) -> Floats:
        """Return the sum over the points of a rectangle, off the main diagonal, whose mirror images are also
        in it."""
        low = np.maximum(rects[:, 0], rects[:, 1])
        high = np.minimum(rects[:, 0] + rects[:, 2], rects[:, 1] + rects[:, 3])
        size = np.maximum(high - low, 0)
        main = np.flatnonzero(self.offsets == 0)
        on = float(each[0][main[0]]) if main.size else each[1]
        result: Floats = self._added(np.stack([low, low, size, size], axis=1), *each) - size * on
        return result

    def sure(self, rects: Ints) -> Floats:
        return self._added(rects, (self.fill == 1).astype(np.float64), float(self.background == 1))

    @property
    def _logs(self) -> tuple[Floats, float]:
        """ln P(a point is zero), on the diagonals and elsewhere."""
        return (
            np.log(np.maximum(1 - self.fill, NEVER)) * (self.fill > 1e-8) - self.fill * (self.fill <= 1e-8),
            float(np.log1p(-self.background)) if self.background < 1 else float(np.log(NEVER)),
        )

    def log_empty(self, rects: Ints) -> Floats:
        result = self._added(rects, *self._logs)
        if self.symmetric:  # a point and its mirror image are empty together
            result = result - self.mirrored(rects, self._logs) / 2
        return np.minimum(result, 0.0)

    def rows(self, rects: Ints) -> Floats:
        """Return the expected nonempty rows. The probability of a row depends only on the distance of its
        first point from the diagonal."""
        on, elsewhere = self._logs
        summed = np.concatenate(([0.0], np.cumsum(on - elsewhere)))
        result = np.zeros(rects.shape[0])
        row, column, height, width = rects.T
        for one in distinct_numbers(width):
            here = width == one
            away = column[here] - row[here]
            low, high = int((away - height[here] + 1).min()), int(away.max())
            starts = np.arange(low, high + 1)
            first, last = (np.searchsorted(self.offsets, starts + more) for more in (0, int(one)))
            none = summed[last] - summed[first] + elsewhere * float(one)
            some = np.concatenate(([0.0], np.cumsum(-np.expm1(np.minimum(none, 0.0)))))
            result[here] = some[away - low + 1] - some[away - height[here] + 1 - low]
        return result
