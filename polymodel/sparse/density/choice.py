"""Which model describes a matrix: fitted to a part of it, judged by the likelihood of the rest."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np
from numpy.typing import NDArray

from polymodel.errors import Diagnostic, Refused, SpecError
from polymodel.governor import look
from polymodel.sparse.density.actual import Actual
from polymodel.sparse.density.blocks import Blocks
from polymodel.sparse.density.diagonals import Diagonals
from polymodel.sparse.density.hierarchical import Hierarchical
from polymodel.sparse.density.model import DensityModel, Floats, Ints
from polymodel.sparse.density.row_column import RowColumn
from polymodel.sparse.density.sampled import SAMPLES, Sampled
from polymodel.sparse.density.structured import FixedStructured
from polymodel.sparse.density.uniform import Uniform
from polymodel.sparse.tensor import SparseTensor

# A part of a matrix that models are fitted to, so that the rest can judge them.

Bools = NDArray[np.bool_]
# Blocks along a side that are wanted, and most that there are.
_WANTED, _MOST = 20, 1000
# Points of a diagonal that are looked at, and of a whole matrix.
_LOOKED, _ALL = 1024, 1 << 15


@dataclass(frozen=True, eq=False)
class BlockSample:
    """Blocks of `side` x `side` points: of each row, column and diagonal of blocks three in five are seen.

    The block (I, J) is seen where (I + 2 J) mod 5 is below 3: a Latin square whose diagonals hold all
    numbers, too.
    """

    shape: tuple[int, int]
    side: int

    @classmethod
    def of(cls, shape: tuple[int, int]) -> BlockSample:
        """Blocks of a power of two, about twenty along the shorter side."""
        least = max(1, -(-max(shape) // _MOST))
        wanted = max(4, min(shape) // _WANTED, least)
        below = 1 << (int(wanted).bit_length() - 1)
        return cls(shape, below if below >= least else 2 * below)

    def seen(self, rows: Ints, columns: Ints) -> Bools:
        """Whether points are seen."""
        result: Bools = (rows // self.side + 2 * (columns // self.side)) % 5 < 3
        return result

    def open_points(self, axis: int) -> Floats:
        """How many points of each line are seen."""
        blocks = [np.arange(-(-s // self.side), dtype=np.int64) for s in self.shape]
        seen = (blocks[0][:, None] + 2 * blocks[1][None, :]) % 5 < 3
        other = self.shape[1 - axis]
        widths = np.minimum(self.side, other - blocks[1 - axis] * self.side).astype(np.float64)
        each: Floats = seen @ widths if axis == 0 else widths @ seen
        return each[np.arange(self.shape[axis]) // self.side]


@dataclass(frozen=True, eq=False)
class Observed:
    """Nonzeros of a matrix at seen points; `split` None: all are seen."""

    tensor: SparseTensor
    split: BlockSample | None
    seen: Callable[[Ints, Ints], Bools] | None

    @classmethod
    def whole(cls, tensor: SparseTensor) -> Observed:
        """All of a matrix."""
        return cls(tensor, None, None)

    @classmethod
    def part(cls, tensor: SparseTensor, split: BlockSample) -> Observed:
        """What is seen of a matrix."""
        kept = split.seen(tensor.coords[0], tensor.coords[1])
        return cls(chosen(tensor, kept), split, split.seen)

    @property
    def shape(self) -> tuple[int, int]:
        return self.tensor.shape[0], self.tensor.shape[1]

    def open_points(self, axis: int) -> Floats:
        """How many points of each line are seen."""
        if self.split is None:
            return np.full(self.shape[axis], float(self.shape[1 - axis]))
        return self.split.open_points(axis)

    @property
    def nonzeros(self) -> float:
        """Of all points, seen or not."""
        return self.tensor.nnz / max(self.share(), 1e-12)

    def share(self) -> float:
        """Of the points that are seen."""
        if self.seen is None:
            return 1.0
        if self.split is not None:
            return float(self.open_points(0).sum()) / self.shape[0] / self.shape[1]
        draw = np.random.default_rng(0)
        rows, columns = (draw.integers(0, s, _ALL) for s in self.shape)
        return float(self.seen(rows, columns).mean())

    def open_diagonals(self, offsets: Ints) -> Floats:
        """How many points of each of some diagonals are seen."""
        rows, columns = self.shape
        first = np.maximum(0, -offsets)
        length = np.minimum(rows, columns - offsets) - first
        if self.seen is None:
            return length.astype(np.float64)
        # One in each of so many equal parts.
        places = (np.arange(_LOOKED) + np.random.default_rng(0).random(_LOOKED)) / _LOOKED
        along = (first[:, None] + places * length[:, None]).astype(np.int64)
        result: Floats = self.seen(along, along + offsets[:, None]).mean(axis=1) * length
        return result

    def symmetric(self) -> bool:
        """Whether all nonzeros whose mirror images are seen have them, and there are such."""
        if self.shape[0] != self.shape[1]:
            return False
        rows, columns = self.tensor.coords
        there = rows != columns
        if self.seen is not None:
            there &= self.seen(columns, rows)
        mirrored = columns[there] * self.shape[1] + rows[there]
        return bool(mirrored.size) and bool(np.isin(mirrored, self.tensor.numbers).all())

    def blocks(self, size: int) -> tuple[Observed, Floats]:
        """The matrix of blocks of this size that hold a nonzero, as far as whole blocks are seen, and the
        nonzeros of each of those."""
        grid = tuple(-(-s // size) for s in self.shape)

        def seen(rows: Ints, columns: Ints) -> Bools:
            if self.seen is None:
                return np.ones(np.broadcast_shapes(rows.shape, columns.shape), dtype=bool)
            low, high = (rows * size, columns * size), (rows * size + size - 1, columns * size + size - 1)
            corners = [(low[0], low[1]), (low[0], high[1]), (high[0], low[1]), (high[0], high[1])]
            result: Bools = np.logical_and.reduce([self.seen(r, c) for r, c in corners])
            return result

        rows, columns = self.tensor.coords // size
        kept = seen(rows, columns)
        numbers, counts = np.unique(rows[kept] * grid[1] + columns[kept], return_counts=True)
        coords = np.stack(np.divmod(numbers, grid[1]))
        ones = np.ones(numbers.size, dtype=np.int8)
        tensor = SparseTensor.from_coo("blocks", self.tensor.ranks, grid, coords, ones)
        return Observed(tensor, None, None if self.seen is None else seen), counts.astype(np.float64)


def chosen(tensor: SparseTensor, kept: Bools) -> SparseTensor:
    """Some of the nonzeros."""
    return SparseTensor(
        tensor.name, tensor.ranks, tensor.shape, tensor.coords[:, kept], tensor.values[kept]
    )  # fmt: skip


# Models fitted to what is seen of a matrix, from the one that says least to the one that says most.

# Sizes of groups and of blocks that are tried; blocks of which less is full are none.
GROUPS, SIZES, FULL = (2, 4, 8, 16), (2, 3, 4, 5, 6, 8, 10, 12, 16, 24, 32), 0.5
# Diagonals that are told apart, at most, and how far above the background one has to be.
_DIAGONALS, _ABOVE, _TIMES = 4096, 5.0, 2.0
# How many times more samples are drawn where no model is near the data.
_MORE = 4


@dataclass(frozen=True)
class ModelCandidate:
    """A kind of model, and how it is fitted: None where what is seen is nothing of the kind."""

    name: str
    fit: Callable[[Observed], DensityModel | None]


def candidates(whole: Observed) -> Iterator[ModelCandidate]:
    """Kinds worth a trial, simplest first. Sizes of blocks are chosen from the whole matrix."""
    yield ModelCandidate("uniform", uniform)
    yield ModelCandidate("fixed_structured", groups)
    yield ModelCandidate("diagonals", diagonals)
    for size in sizes_of_blocks(whole):
        yield ModelCandidate(f"blocks of {size}", partial(blocks, size=size, arranged=uniform))
        yield ModelCandidate(f"blocks of {size} on diagonals", partial(blocks, size=size, arranged=diagonals))
    yield ModelCandidate("row_column", row_column)


def samplings(whole: Observed, also: Sequence[tuple[int, int]]) -> Iterator[ModelCandidate]:
    """Samples of the data, more and more of them. `also`: shapes of tiles beside the usual ones."""
    samples = SAMPLES
    yield ModelCandidate("sampled", partial(sampled, samples=samples, also=also))
    while samples < whole.tensor.nnz:
        samples *= _MORE
        yield ModelCandidate(f"sampled {samples:,}", partial(sampled, samples=samples, also=also))


def uniform(seen: Observed) -> Uniform:
    """The number of nonzeros."""
    nnz = min(round(seen.nonzeros), seen.shape[0] * seen.shape[1])
    return Uniform.of(seen.tensor.ranks, seen.shape, nnz=nnz)


def groups(seen: Observed) -> FixedStructured | None:
    """n of m, where all groups are alike."""
    tensor = seen.tensor
    for m in GROUPS:
        for axis in (1, 0):
            if seen.shape[axis] % m:
                continue
            other = tensor.coords[1 - axis]
            numbers = other * (seen.shape[axis] // m) + tensor.coords[axis] // m
            counts = np.unique(numbers, return_counts=True)[1]
            n = int(counts[0])
            every = seen.shape[0] * seen.shape[1] * seen.share() / m
            if n < m and (counts == n).all() and abs(counts.size - every) < 1e-6 * every:
                return FixedStructured(tensor.ranks, seen.shape, n, m, tensor.ranks[axis])
    return None


def row_column(seen: Observed) -> RowColumn:
    """Nonzeros of rows and columns: those seen, for all of the line."""
    lines = []
    for axis in (0, 1):
        counts = np.bincount(seen.tensor.coords[axis], minlength=seen.shape[axis]).astype(np.float64)
        space, length = seen.open_points(axis), float(seen.shape[1 - axis])
        lines.append(np.minimum(counts * length / np.maximum(space, 1.0), length))
    least = min(float(x.sum()) for x in lines)
    rows, columns = (x * (least / max(float(x.sum()), 1e-300)) for x in lines)
    return RowColumn.of(seen.tensor.ranks, seen.shape, rows, columns)


def diagonals(seen: Observed) -> Diagonals | None:
    """Diagonals that stand out from the rest, each with its own share."""
    rows, columns = seen.shape
    away = seen.tensor.coords[1] - seen.tensor.coords[0]
    offsets, counts = np.unique(away, return_counts=True)
    length = np.minimum(rows, columns - offsets) - np.maximum(0, -offsets)
    points, chosen = float(rows) * columns * seen.share(), np.zeros(offsets.size, dtype=bool)
    space = length * seen.share()
    for _ in range(4):
        left = max(points - float(space[chosen].sum()), 1.0)
        usual = max(float(counts[~chosen].sum()), 0.5) / left * space
        before = chosen
        chosen = (counts > _TIMES * usual) & (counts > usual + _ABOVE * np.sqrt(usual) + 2)
        if (chosen == before).all():
            break
    if not chosen.any() or chosen.sum() > _DIAGONALS:
        return None
    found = offsets[chosen]
    space = seen.open_diagonals(found)
    fill = np.minimum(counts[chosen] / np.maximum(space, 1.0), 1.0)
    left = points - float(space.sum())
    rest = float(counts[~chosen].sum()) / left if left > 0 else 0.0
    both_ways = seen.symmetric()
    if both_ways:
        share = dict(zip(found.tolist(), fill.tolist(), strict=True))
        both = sorted({away for offset in share for away in (offset, -offset)})
        found = np.array(both, dtype=np.int64)
        fill = np.array([(share.get(o, rest) + share.get(-o, rest)) / 2 for o in both])
    told = found.tolist(), fill.tolist(), min(rest, 1.0), both_ways
    return Diagonals.of(seen.tensor.ranks, seen.shape, *told)


def sizes_of_blocks(seen: Observed) -> list[int]:
    """The two sizes that say most briefly where the nonzeros are."""
    told = []
    for size in SIZES:
        if 4 * size > min(seen.shape):
            break
        arranged, counts = seen.blocks(size)
        full = float(counts.mean()) / size**2 if counts.size else 0.0
        if full < FULL:
            continue
        number = float(arranged.shape[0]) * arranged.shape[1]
        told.append((_bits(number, counts.size) + _bits(counts.size * size**2, float(counts.sum())), size))
    return [size for _, size in sorted(told)[:2]]


def _bits(points: float, nonzeros: float) -> float:
    """Nats that tell which points are nonzero."""
    share = nonzeros / points
    inside = 0.0 < share < 1.0
    return -points * (share * np.log(share) + (1 - share) * np.log1p(-share)) if inside else 0.0


def blocks(seen: Observed, size: int, arranged: Callable[[Observed], DensityModel | None]) -> Blocks | None:
    """Blocks of this size, arranged as another model says."""
    of_blocks, counts = seen.blocks(size)
    arrangement = arranged(of_blocks) if counts.size else None
    if arrangement is None:
        return None
    fill = Hierarchical(seen.tensor.ranks, (size, size), (1.0, float(counts.mean()) / size**2))
    return Blocks(seen.tensor.ranks, seen.shape, (size, size), arrangement, fill)


def sampled(seen: Observed, samples: int, also: Sequence[tuple[int, int]]) -> Sampled:
    """Some thousand tiles."""
    return Sampled.scaled(seen.tensor, seen.nonzeros, samples, 0, also)


def occupancies(coords: Ints, tile: tuple[int, int], columns: int) -> tuple[Ints, Floats]:
    """The first point of each nonempty tile, and its nonzeros."""
    step = -(-columns // tile[1])
    numbers, counts = np.unique(coords[0] // tile[0] * step + coords[1] // tile[1], return_counts=True)
    where = np.stack(np.divmod(numbers, step)) * np.array(tile, dtype=np.int64)[:, None]
    return where, counts.astype(np.float64)


# Sizes of tiles, and units that rows are dealt to, of which counts are compared; how near a model has to
# be in most of them, and in the fullest tile and unit.
TILES, UNITS, NEAR, FAR = (8, 32, 128), 16, 0.1, 0.2
# What is beyond a model is not impossible, but this rare.
_RARE = 1e-6
# Sizes of tiles that are judged, beside those of the blocks that are held out and their rows and columns.
_SIZES = 8, 32


@dataclass(frozen=True)
class Compared:
    """One quantity under one model: `actual` is counted, `expected` None where it is refused."""

    quantity: str
    unit: str
    actual: float
    expected: float | None
    room: float

    @property
    def error(self) -> float | None:
        """(expected - actual) / actual."""
        return None if self.expected is None else (self.expected - self.actual) / self.actual

    @property
    def near(self) -> bool:
        """Whether the model is as near to the data as is asked of it."""
        return self.error is not None and abs(self.error) <= self.room


@dataclass(frozen=True)
class Fitted:
    """One kind of model: fitted to the whole matrix, and how well its fit to a part told of the rest.

    `likelihood`: the logarithm, of the tiles held out; `behind`: by how much the best one of all is better,
    and `error`, the standard error of that. `compared`: what the model expects of the whole matrix.
    """

    name: str
    model: DensityModel
    likelihood: float
    behind: float
    error: float
    compared: tuple[Compared, ...]

    @property
    def near(self) -> bool:
        """Whether every quantity is near that of the data."""
        return all(c.near for c in self.compared)


@dataclass(frozen=True)
class Choice:
    """All models that were tried, the simplest first, and the one that is chosen."""

    tried: tuple[Fitted, ...]
    chosen: Fitted


def choose(tensor: SparseTensor, tiles: Sequence[int] = TILES, units: int = UNITS) -> Choice:
    """Try the kinds of models of structure on a matrix.

    Of the models whose counts are near those of the data (of all, where none's are) the one is chosen that
    tells the tiles held out best; simpler ones that are behind it by no more than the standard error come
    first.
    """
    if len(tensor.ranks) != 2:
        what = f"{tensor.name} has {len(tensor.ranks)} ranks: models of structure are those of matrices"
        raise Refused(what, "take RankNnz or Actual", code="unsupported-shape")
    if not tensor.nnz:
        message = f"{tensor.name} has no nonzeros"
        raise SpecError([Diagnostic(message, "take Uniform with nnz=0", "tensor", code="empty-tensor")])
    whole, split = Observed.whole(tensor), BlockSample.of((tensor.shape[0], tensor.shape[1]))
    part = Observed.part(tensor, split)
    held = chosen(tensor, ~split.seen(tensor.coords[0], tensor.coords[1]))
    data, asked = Actual.of(tensor), tuple(_questions(tensor, tuple(tiles), units))
    tried, scores = [], []

    def attempt(candidate: ModelCandidate) -> bool:
        """Whether it is near the data."""
        look(f"fitting {candidate.name} to {tensor.name}")
        model = candidate.fit(whole)
        trial = candidate.fit(part) if part.tensor.nnz else model
        if model is None or trial is None:
            return False
        tried.append((candidate.name, model, tuple(_compared(q, data, model) for q in asked)))
        scores.append(_likelihoods(trial, held, split))
        return all(c.near for c in tried[-1][2])

    near = [attempt(candidate) for candidate in candidates(whole)]
    rows, columns = tensor.shape
    shapes = [*((t, t) for t in tiles), (-(-rows // units), columns)]
    for candidate in samplings(whole, shapes):
        if attempt(candidate) or any(near):
            break
    return _chosen(tried, scores)


def _chosen(tried: list[tuple[str, DensityModel, tuple[Compared, ...]]], scores: list[Floats]) -> Choice:
    sums = np.array([float(s.sum()) for s in scores])
    best = int(sums.argmax())
    result = []
    for (name, model, compared), score in zip(tried, scores, strict=True):
        behind, error = _behind(scores[best], score)
        result.append(Fitted(name, model, float(score.sum()), behind, error, compared))
    able = [i for i, f in enumerate(result) if f.near] or list(range(len(result)))
    first = max(able, key=sums.__getitem__)
    for i in able:
        behind, error = _behind(scores[first], scores[i])
        if behind <= error:
            return Choice(tuple(result), result[i])
    return Choice(tuple(result), result[first])


def _behind(better: Floats, score: Floats) -> tuple[float, float]:
    """By how much one score is better than another, and the standard error of that."""
    away = better - score
    return float(away.sum()), float(away.std()) * away.size**0.5


Question = tuple[str, str, float, Callable[[DensityModel], float]]


def _questions(tensor: SparseTensor, tiles: tuple[int, ...], units: int) -> Iterator[Question]:
    """Name, unit, how near a model has to be, and what is asked of it."""
    rows, columns = tensor.shape
    yield "nonempty rows", "rows", NEAR, lambda m: float(m.expected_fibers(1))
    for tile in dict.fromkeys((min(t, rows), min(t, columns)) for t in tiles):
        size = " x ".join(map(str, tile))
        yield f"nonempty tiles of {size}", "tiles", NEAR, partial(_nonempty, tile)
        yield f"fullest tile of {size}", "nonzeros", FAR, partial(_fullest, tile)
    part = -(-rows // units), columns
    number = -(-rows // part[0])
    yield f"mean load of {number} units", "nonzeros", NEAR, lambda m: m.expected_nnz / number
    yield f"greatest load of {number} units", "nonzeros", FAR, partial(_fullest, part)
    if rows == columns:
        yield f"multiplies of {tensor.name} x {tensor.name}", "multiplies", NEAR, _square


def _nonempty(tile: tuple[int, ...], model: DensityModel) -> float:
    return float(model.expected_tiles(tile))


def _fullest(tile: tuple[int, ...], model: DensityModel) -> float:
    return float(model.expected_max(tile))


def _square(model: DensityModel) -> float:
    return model.square_multiplies()


def _compared(question: Question, data: Actual, model: DensityModel) -> Compared:
    name, unit, room, answer = question
    try:
        expected: float | None = answer(model)
    except Refused:
        expected = None
    return Compared(name, unit, answer(data), expected, room)


def _likelihoods(model: DensityModel, held: SparseTensor, split: BlockSample) -> Floats:
    """Logarithms of the likelihood of the tiles of each block that is held out, as tiles at random places."""
    side, shape = split.side, split.shape
    grid = [np.arange(s // side, dtype=np.int64) for s in shape]
    hidden = ~split.seen(grid[0][:, None] * side, grid[1][None, :] * side)
    number = np.full(hidden.shape, -1, dtype=np.int64)
    number[hidden] = np.arange(int(hidden.sum()))
    result = np.zeros(int(hidden.sum()))
    inside = (held.coords[0] < grid[0].size * side) & (held.coords[1] < grid[1].size * side)
    coords = held.coords[:, inside]
    square = [(s, s) for s in _SIZES if 2 * s <= side and side % s == 0]
    for tile in [(side, side), *square, (1, side), (side, 1)]:
        where, counts = occupancies(coords, tile, shape[1])
        values, place = np.unique(counts, return_inverse=True)
        asked = np.concatenate(([0.0], values))
        points = float(tile[0]) * tile[1]
        chance = model.cdf(tile, asked) - np.where(asked > 0, model.cdf(tile, asked - 1), 0.0)
        told = np.log((1 - _RARE) * np.maximum(chance, 0.0) + _RARE / (points + 1))
        result += told[0] * (side * side / points)
        own = number[where[0] // side, where[1] // side]
        np.add.at(result, own, told[1:][place.reshape(-1)] - told[0])
    return result
