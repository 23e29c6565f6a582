"""Model nonzeros on some diagonals of a matrix, each with its own density, and few elsewhere: stencils and
bands."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from polymodel.frozen import dataclass
from polymodel.governor import look
from polymodel.integers import distinct_numbers
from polymodel.sparse.arguments import Arguments
from polymodel.sparse.density.banded import tiles_by_offset
from polymodel.sparse.density.diagonal_gaps import Gap, PeriodicGaps, crossed_tiles, mirrored
from polymodel.sparse.density.diagonal_laws import ListedLaws, PointCounts
from polymodel.sparse.density.laws import CountLaws
from polymodel.sparse.density.model import DensityModel, Floats, Ints, edge_classes
from polymodel.sparse.density.random import distinct_below
from polymodel.sparse.density.reader import Path, Reader
from polymodel.sparse.density.regions import NEVER, Kinds, Regional, Regions
from polymodel.sparse.tensor import SparseTensor
from polymodel.spec.faults import shown

Bools = NDArray[np.bool_]
# Rectangles x diagonals that are processed at once, and those whose points are listed by diagonal.
_BLOCK, _LISTED = 1 << 21, 1 << 23


@dataclass(frozen=True)
class Diagonals(Regional):
    """Each point of diagonal `offsets[d]` (column - row) is nonzero with probability `fill[d]`, and each
    other point with `background`, independently of all others. If `symmetric`, the mirror image of a point is
    nonzero exactly where the point is. `gaps`: (offset, period, start, length) of diagonals whose points in
    the rows i with (i - start) mod period < length are as those elsewhere: a grid of 48 columns, numbered row
    by row, has no link from the end of a row to the next one, (1, 48, 47, 1).

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
    gaps: tuple[tuple[int, int, int, int], ...] = ()

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
        gaps = self._gaps(read, offsets)
        if self.symmetric and not read.faults:
            self._mirrored(read, dict(zip(offsets, fill, strict=True)), gaps)
        read.raise_if_any()
        order = sorted(range(len(offsets)), key=offsets.__getitem__)
        object.__setattr__(self, "offsets", tuple(offsets[i] for i in order))
        object.__setattr__(self, "fill", tuple(fill[i] for i in order))
        object.__setattr__(self, "background", rest)
        object.__setattr__(self, "gaps", tuple((o, *gaps[o]) for o in sorted(gaps)))

    def _gaps(self, read: Arguments, offsets: Sequence[int]) -> dict[int, Gap]:
        """Return the checked gaps of diagonals."""
        given: object = self.gaps
        remedy = "write offset, period, start and length, e.g. (1, 48, 47, 1)"
        if not isinstance(given, Iterable) or isinstance(given, (str, Mapping)):
            read.add("gaps", f"{shown(given)} is not a list of gaps", remedy, code="wrong-type")
            return {}
        result: dict[int, Gap] = {}
        for i, gap in enumerate(given):
            if not isinstance(gap, Sequence) or isinstance(gap, str) or len(gap) != 4:
                read.add(f"gaps[{i}]", f"{shown(gap)} is not a gap", remedy, code="wrong-type")
                continue
            offset, *numbers = gap
            if offset not in offsets or offset in result:
                what = f"a gap of diagonal {shown(offset)}, which is not listed, or has a gap already"
                read.add(f"gaps[{i}]", what, "give each diagonal one gap", code="unknown-name")
                continue
            at = f"gaps[{i}]"
            period = read.whole(at, numbers[0], 2, what=f"a gap of period {shown(numbers[0])}")
            start = read.whole(at, numbers[1], 0, period - 1, f"a gap that starts at {shown(numbers[1])}")
            length = read.whole(at, numbers[2], 1, period - 1, f"a gap of {shown(numbers[2])} rows")
            result[offset] = (period, start, length)
        return result

    def _mirrored(self, read: Arguments, fill: Mapping[int, float], gaps: Mapping[int, Gap]) -> None:
        """Record a fault unless the matrix is square and has the diagonals of its transpose."""
        if self.shape[0] != self.shape[1]:
            sizes = " x ".join(map(str, self.shape))
            message = f"a symmetric matrix of {sizes}"
            read.add("symmetric", message, "give a square, or leave symmetric out", code="shape-mismatch")
        for offset, share in fill.items():
            if fill.get(-offset) != share:
                what = f"diagonal {offset} of a symmetric matrix is not filled as diagonal {-offset}"
                read.add("fill", what, "name both, with one share", code="inconsistent-values")
        for offset, gap in gaps.items():
            if gaps.get(-offset) != mirrored(offset, gap):
                what = f"diagonal {offset} of a symmetric matrix has a gap that diagonal {-offset} has not"
                remedy = f"give it {(-offset, *mirrored(offset, gap))}"
                read.add("gaps", what, remedy, code="inconsistent-values")

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
        rest += f", {len(self.gaps)} with gaps" if self.gaps else ""
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
        gaps: Sequence[tuple[int, int, int, int]] = (),
    ) -> Diagonals:
        """Make a model with one fill for all diagonals, or one for each."""
        # The checks convert all to tuples, and one number to one per diagonal.
        arrays: Any = offsets, fill, gaps
        return cls(tuple(ranks), tuple(shape), arrays[0], arrays[1], background, symmetric, arrays[2])

    @classmethod
    def written(cls, reader: Reader, path: Path, given: object) -> DensityModel | None:
        """Return the model with these parameters of a YAML file; None after a fault, which the reader has
        recorded."""
        keys = reader.keys(path, given, ("offsets", "fill", "background", "symmetric", "gaps"), ("offsets",))
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
        gaps: Any = keys.get("gaps", ())
        return reader.made(path, lambda: cls.of(reader.ranks, reader.shape, offsets, fill, rest, both, gaps))

    @cached_property
    def _lengths(self) -> Ints:
        """The number of points of each diagonal, without its gaps."""
        whole = np.array([[0, 0, *self.shape]], dtype=np.int64)
        return np.asarray(self._regions.along(whole)[0])

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
        for offset, period, start, length in self.gaps:
            place = self.offsets.index(offset)
            rows = np.arange(max(0, -offset), min(self.shape[0], self.shape[1] - offset))
            rows = rows[(rows - start) % period < length]
            result[rows + offset if over else rows] -= more[place]
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
        gaps = PeriodicGaps.of(self.offsets, self.gaps)
        return OfDiagonals(self.matrix, offsets, fill, gaps, self.background, self.symmetric)

    def kinds(self, tile: tuple[int, int]) -> Kinds:
        places, full, every = self._listed(tile) if self.gaps else self._by_offset(tile)
        whole = [s // t for s, t in zip(self.shape, tile, strict=True)]
        # Each kind counts half of its tiles, because two tiles mirror each other.
        half = self.symmetric and tile[0] == tile[1]
        single = np.where(places[:, 0] == places[:, 1], every, every / 2) if half else None
        return Kinds(places, full, every, float(whole[0]) * whole[1], single)

    def _listed(self, tile: tuple[int, int]) -> tuple[Ints, Floats, Floats]:
        """Return one rectangle for each kind of tiles, and the numbers of full tiles and of all tiles."""
        rects, weight = crossed_tiles(self.matrix, tile, np.array(self.offsets, dtype=np.int64))
        beyond = 2 * (self.shape[0] + self.shape[1])
        others = []
        for box, number in zip(*edge_classes(np.array(tile, dtype=np.int64), self.shape), strict=True):
            alike = (rects[:, 2] == box[0]) & (rects[:, 3] == box[1])
            left = number - float(weight[alike].sum())
            if number and left > 1e-6 * number:
                others.append(([beyond, 0, *box.tolist()], left))
        places = np.concatenate((rects, np.array([r for r, _ in others], dtype=np.int64).reshape(-1, 4)))
        every = np.append(weight, [number for _, number in others])
        keys = self._regions.keys(places)
        order = np.lexsort(keys.T)
        new = np.append(True, (keys[order[1:]] != keys[order[:-1]]).any(axis=1))
        starts = np.flatnonzero(new)
        places, every = keys[order[starts]], np.add.reduceat(every[order], starts)
        return places, np.where((places[:, 2:] == np.array(tile)).all(axis=1), every, 0.0), every

    def _by_offset(self, tile: tuple[int, int]) -> tuple[Ints, Floats, Floats]:
        """Return one rectangle for each kind of tiles, and the numbers of full tiles and of all tiles;
        without gaps only the offset of a tile matters."""
        rects, full, every = [], [], []
        low, high = (self.offsets[0], self.offsets[-1]) if self.offsets else (0, 0)
        beyond = self.shape[0] + self.shape[1] + max(abs(low), abs(high))
        for number, tiles in enumerate(tiles_by_offset(self.matrix, tile, low, high)):
            # A distant one represents tiles that no diagonal crosses.
            start = np.append(tiles.offsets, beyond)
            many = np.append(tiles.many, max(0.0, tiles.total - float(tiles.many.sum())))
            sizes = [np.full(start.size, size, dtype=np.int64) for size in tiles.box]
            rects.append(np.stack([start, np.zeros_like(start), sizes[0], sizes[1]], axis=1))
            every.append(many)
            full.append(many if number == 0 else np.zeros(many.size))
        return np.concatenate(rects), np.concatenate(full), np.concatenate(every)

    def apart(self, tile: tuple[int, int]) -> bool:
        return not self.symmetric or tile[0] == tile[1]

    def draw(self, seed: int, name: str = "A") -> SparseTensor:
        generator = np.random.default_rng(seed)
        columns = self.shape[1]
        parts = []
        gaps = {offset: (period, start, length) for offset, period, start, length in self.gaps}

        def in_gap(offset: int, rows: Ints) -> Bools:
            period, start, length = gaps.get(offset, (1, 0, 0))
            return np.asarray((rows - start) % period < length)

        for offset, fill in zip(self.offsets, self.fill, strict=True):
            length = min(self.shape[0], columns - offset) - max(0, -offset)
            along = np.flatnonzero(generator.random(length) < fill) + max(0, -offset)
            along = along[~in_gap(offset, along)]
            parts.append(np.stack([along, along + offset]))
        if self.background:
            number = int(generator.binomial(self.size, self.background))
            points = np.stack(np.divmod(distinct_below(generator, self.size, number), columns))
            away = points[1] - points[0]
            apart = ~np.isin(away, self.offsets)
            for offset in gaps:
                apart |= (away == offset) & in_gap(offset, points[0])
            parts.append(points[:, apart])
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
    gaps: PeriodicGaps
    background: float
    symmetric: bool = False

    def keys(self, rects: Ints) -> Ints:
        if self.gaps.common:
            return self.gaps.canonical(rects)
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
            inside[:, -1] -= size - inside[:, main].sum(axis=1)
            inside[:, main] = 0.0
            single -= inside
            twice = inside / 2
        return PointCounts(np.append(self.fill, self.background), single, twice)

    def along(self, rects: Ints) -> Ints:
        """Return the points of each diagonal in rectangles, without those in gaps."""
        row, column, height, width = (x[:, None] for x in rects.T)
        first = np.maximum(row, column - self.offsets)
        last = np.maximum(np.minimum(row + height, column + width - self.offsets), first)
        result: Ints = last - first
        return result - self.gaps.within(first, last) if self.gaps.common else result

    def _crossed(self, rects: Ints) -> Floats:
        """Return the points of each diagonal in rectangles, and last those of no diagonal."""
        on = self.along(rects).astype(np.float64)
        rest = rects[:, 2].astype(np.float64) * rects[:, 3] - on.sum(axis=1)
        return np.concatenate((on, rest[:, None]), axis=1)

    def _added(self, rects: Ints, on: Floats, elsewhere: float) -> Floats:
        """Return the sum over all points of a rectangle of `on[d]` for those of diagonal d, else
        `elsewhere`."""
        result = rects[:, 2].astype(np.float64) * rects[:, 3] * elsewhere
        step = max(1, _BLOCK // max(self.offsets.size, 1))
        for begin in range(0, rects.shape[0], step):
            part = slice(begin, begin + step)
            result[part] += self.along(rects[part]) @ (on - elsewhere)
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
        square = np.stack([low, low, size, size], axis=1)
        result: Floats = self._added(square, *each) - size * each[1]
        main = np.flatnonzero(self.offsets == 0)
        if main.size:
            on = size - (self.gaps.within(low[:, None], (low + size)[:, None])[:, main[0]])
            result -= on * (float(each[0][main[0]]) - each[1])
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
        """Return the expected nonempty rows. Without gaps the probability of a row depends only on the
        distance of its first point from the diagonal."""
        on, elsewhere = self._logs
        if self.gaps.common:
            return self._rows_with_gaps(rects, on - elsewhere, elsewhere)
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

    def _rows_with_gaps(self, rects: Ints, more: Floats, elsewhere: float) -> Floats:
        """Return the expected nonempty rows, one row after the other. `more`: by how much ln P(zero) of a
        point of each diagonal exceeds that of a point elsewhere."""
        result = np.zeros(rects.shape[0])
        many = rects[:, 2]
        step = max(1, _BLOCK // max(self.offsets.size, 1))
        ends = np.cumsum(many)
        for begin in range(0, int(many.sum()), step):
            look("rows of diagonals with gaps")
            every = np.arange(begin, min(begin + step, int(ends[-1])))
            own = np.searchsorted(ends, every, side="right")
            row = rects[own, 0] + every - (ends - many)[own]
            single = np.stack([row, rects[own, 1], np.ones_like(row), rects[own, 3]], axis=1)
            none = self.along(single) @ more + elsewhere * rects[own, 3]
            result += np.bincount(own, weights=-np.expm1(np.minimum(none, 0.0)), minlength=result.size)
        return result
