"""Model a band around the diagonal: dense inside it, empty outside."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from math import gcd, prod

import numpy as np

from polymodel.frozen import dataclass
from polymodel.sparse.arguments import Arguments
from polymodel.sparse.density.model import (
    MOST_PLACES,
    ByPlace,
    DensityModel,
    Floats,
    Ints,
    edge_classes,
    points_of,
)
from polymodel.sparse.density.placed import CountedTiles, Placed, TilesOfShape
from polymodel.sparse.density.reader import Path, Reader, is_number
from polymodel.sparse.tensor import SparseTensor
from polymodel.spec.faults import shown

# Tiles of a matrix are counted by their distance from the diagonal, without enumerating them.


@dataclass(frozen=True, eq=False)
class Offsets:
    """Tiles of one size, `box`: `total` in number, of which `many[i]` have a difference of first row and
    first column equal to `offsets[i]`."""

    box: tuple[int, int]
    offsets: Ints
    many: Floats
    total: float


def tiles_by_offset(shape: tuple[int, int], tile: tuple[int, int], low: int, high: int) -> list[Offsets]:
    """Return the tiles in which column - row may lie within low .. high, grouped by size: full tiles first,
    then edge tiles."""
    whole = tuple(s // t for s, t in zip(shape, tile, strict=True))
    rest = tuple(s % t for s, t in zip(shape, tile, strict=True))
    result = []
    for at_edge in ((False, False), (True, False), (False, True), (True, True)):
        if any(e and not r for e, r in zip(at_edge, rest, strict=True)):
            continue
        spans = [(w, w + 1) if e else (0, w) for e, w in zip(at_edge, whole, strict=True)]
        box = tuple(r if e else t for e, r, t in zip(at_edge, rest, tile, strict=True))
        total = float(spans[0][1] - spans[0][0]) * float(spans[1][1] - spans[1][0])
        reach = -high - (box[0] - 1), box[1] - 1 - low
        result.append(_of_box(tile, (box[0], box[1]), spans, reach, total))
    return result


def _of_box(
    step: tuple[int, int], box: tuple[int, int], spans: list[tuple[int, int]], reach: tuple[int, int],
    total: float,
) -> Offsets:  # fmt: skip
    """Return the tiles of size `box` at multiples of `step` whose first row - first column lies within
    `reach`."""
    common = gcd(*step)
    offsets = np.arange(-(-reach[0] // common), reach[1] // common + 1, dtype=np.int64)
    p, q = step[0] // common, step[1] // common
    # Tiles (i, j) with p i - q j = offset: i runs over one residue class modulo q.
    residue = (offsets % q) * pow(p, -1, q) % q if q > 1 else np.zeros_like(offsets)
    (i_low, i_high), (j_low, j_high) = spans
    low = np.maximum(i_low, -(-(offsets + q * j_low) // p))
    high = np.minimum(i_high - 1, (offsets + q * (j_high - 1)) // p)
    first = low + (residue - low) % q
    many = np.maximum(0, (high - first) // q + 1)
    kept = many > 0
    return Offsets(box, offsets[kept] * common, many[kept].astype(np.float64), total)


@dataclass(frozen=True)
class Banded(Placed):
    """A model in which a point is nonzero if its coordinates in two ranks differ by at most `width`, in every
    fiber of the other ranks.

    `band`: the two ranks; by default the last two. Width 0 is the diagonal. Occupancies are known, so that
    all numbers are exact for the model.
    """

    width: int
    band: tuple[str, str] = ("", "")

    def __post_init__(self) -> None:
        super().__post_init__()
        points_of(self.shape)
        read = Arguments()
        if len(self.ranks) < 2:
            what = f"a band needs two ranks, and there is {', '.join(self.ranks) or 'none'}"
            read.add("ranks", what, "add a rank, or take Uniform", code="wrong-count")
            read.raise_if_any()
        itself = "a band between a rank and itself, {}"
        band = (
            self.ranks[-2:] if self.band == ("", "") else read.names("band", self.band, "('M', 'K')", itself)
        )
        for i, rank in enumerate(band):
            read.one_of(f"band[{i}]", rank, self.ranks, "a band on")
        if len(band) != 2 and not read.faults:
            message = f"a band lies between two ranks, not {len(band)}"
            read.add("band", message, "name two of the ranks", code="wrong-count")
        what = f"a band of width {shown(self.width)}: that is not a whole number from 0 on"
        width = read.whole("width", self.width, 0, what=what)
        read.raise_if_any()
        object.__setattr__(self, "band", band)
        object.__setattr__(self, "width", width)

    @classmethod
    def written(cls, reader: Reader, path: Path, given: object) -> DensityModel | None:
        """Return the model with these parameters of a YAML file; None after a fault, which the reader has
        recorded."""
        keys = reader.keys(path, {"width": given} if is_number(given) else given, ("width", "ranks"))
        if not keys and not isinstance(given, Mapping):
            return None
        width = reader.whole((*path, "width"), keys.get("width"), 0, float("inf"), "width")
        two = reader.named((*path, "ranks"), keys["ranks"]) if "ranks" in keys else reader.ranks[-2:]
        if two is not None and len(two) != 2:
            message = f"a band on {len(two)} ranks"
            remedy = "it needs two"
            reader.add((*path, "ranks") if "ranks" in keys else path, message, remedy, code="wrong-count")
            two = None
        if width is None or two is None:
            return None
        return reader.made(path, lambda: cls(reader.ranks, reader.shape, width, (two[0], two[1])))

    @property
    def _axes(self) -> tuple[int, int]:
        return self.ranks.index(self.band[0]), self.ranks.index(self.band[1])

    @property
    def settled(self) -> bool:
        return True

    @property
    def expected_nnz(self) -> float:
        first, second = self._axes
        others = prod(s for axis, s in enumerate(self.shape) if axis not in (first, second))
        sizes = self.shape[first], self.shape[second]
        return float(others * int(_inside(np.zeros(1, dtype=np.int64), sizes, self.width)[0]))

    def part(self, touched: Sequence[range]) -> Banded | None:
        """Return the model of a part whose band also begins on the diagonal; else None."""
        first, second = (touched[axis] for axis in self._axes)
        if first.step != 1 or second.step != 1 or first.start != second.start:
            return None
        return replace(self, shape=tuple(map(len, touched)))

    def by_place(self) -> ByPlace | None:
        first, second = (self.shape[axis] for axis in self._axes)
        if first * second > MOST_PLACES:
            return None
        apart = np.abs(np.subtract.outer(np.arange(first), np.arange(second)))
        return ByPlace(self._axes, (apart <= self.width).astype(np.int64), 1)

    def nonempty_by_place(self, tile: tuple[int, ...]) -> Floats | None:
        """Return 1 for each tile with a point inside the band, and 0 for the others."""
        many = tuple(-(-s // t) for s, t in zip(self.shape, tile, strict=True))
        if prod(many) > MOST_PLACES:
            return None
        first, last = [], []
        for axis in self._axes:
            start = np.arange(0, self.shape[axis], tile[axis], dtype=np.int64)
            shape = [-1 if i == axis else 1 for i in range(len(many))]
            first.append(start.reshape(shape))
            last.append(np.minimum(start + tile[axis], self.shape[axis]).reshape(shape) - 1)
        away = np.maximum(first[0] - last[1], first[1] - last[0])
        return np.broadcast_to(away <= self.width, many).astype(np.float64)

    def known_rows(self) -> Ints | None:
        first, second = self._axes
        rows = np.arange(self.shape[0], dtype=np.int64)
        if 0 not in (first, second):
            return np.full(rows.size, round(self.expected_nnz) // rows.size, dtype=np.int64)
        other = self.shape[second if first == 0 else first]
        inside = np.minimum(rows + self.width, other - 1) - np.maximum(rows - self.width, 0) + 1
        result: Ints = np.maximum(inside, 0) * (self.size // (rows.size * other))
        return result

    def square_multiplies(self) -> float:
        rows = self.known_rows()
        if rows is None or len(self.shape) != 2 or self.shape[0] != self.shape[1]:
            return super().square_multiplies()
        many = rows.astype(np.float64)  # the sum of the squares may exceed 64 bits
        return float(many @ many)

    def draw(self, seed: int, name: str = "A") -> SparseTensor:
        if len(self.shape) != 2:
            return super().draw(seed, name)
        rows, cols = self.shape
        line = np.arange(rows, dtype=np.int64)
        low, high = np.clip(line - self.width, 0, cols), np.clip(line + self.width + 1, 0, cols)
        count = np.maximum(high - low, 0)
        row = np.repeat(line, count)
        start = np.repeat(low - (np.cumsum(count) - count), count)
        coords = np.stack([row, start + np.arange(row.size)])
        return self.ones_at(coords, name)

    def make_tiling(self, tile: tuple[int, ...]) -> TilesOfShape:
        axes = self._axes
        shape = (self.shape[axes[0]], self.shape[axes[1]])
        box = (tile[axes[0]], tile[axes[1]])
        values, numbers = _grid(shape, box, self.width)
        full = values[0], numbers[0]
        others = [axis for axis in range(len(tile)) if axis not in axes]
        if not others:
            return CountedTiles(full, (np.concatenate(values), np.concatenate(numbers)))
        sizes, counts = edge_classes(
            np.array([tile[a] for a in others], dtype=np.int64), tuple(self.shape[a] for a in others)
        )
        every_values = [v * int(p) for p in sizes.prod(axis=-1) for v in values]
        every_numbers = [n * c for c in counts for n in numbers]
        whole = float(np.prod([self.shape[a] // tile[a] for a in others], dtype=np.float64))
        depth = prod(tile[a] for a in others)
        return CountedTiles(
            (full[0] * depth, full[1] * whole), (np.concatenate(every_values), np.concatenate(every_numbers))
        )


def _inside(offset: Ints, box: tuple[int, int], width: int) -> Ints:
    """Count the points (x, y) of a box with |x - y + offset| <= width, for an array of offsets."""

    def below(k: Ints) -> Ints:
        """Count the points with x - y <= k: a quadratic function that changes at the corners of the box."""
        result: Ints = (
            _triangle(k + box[1]) - _triangle(k + box[1] - box[0]) - _triangle(k) + _triangle(k - box[0])
        )
        return result

    return below(width - offset) - below(-width - 1 - offset)


def _triangle(n: Ints) -> Ints:
    cut = np.maximum(n, 0)
    result: Ints = cut * (cut + 1) // 2
    return result


def _grid(shape: tuple[int, int], tile: tuple[int, int], width: int) -> tuple[list[Ints], list[Floats]]:
    """Return the occupancies of the tiles of a grid, and the number of tiles of each: full tiles first."""
    values, numbers = [], []
    for tiles in tiles_by_offset(shape, tile, -width, width):
        found = _inside(tiles.offsets, tiles.box, width)
        values.append(np.concatenate(([0], found)))
        numbers.append(np.concatenate(([tiles.total - tiles.many.sum()], tiles.many)))
    return values, numbers
