"""Choose a density model for a matrix: models are fitted to a part of it and evaluated by the likelihood of
the rest."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from itertools import product
from math import comb, log, prod

import numpy as np

from polymodel.errors import Diagnostic, Refused, SpecError
from polymodel.frozen import dataclass
from polymodel.governor import look
from polymodel.sparse.density.actual import Actual
from polymodel.sparse.density.blocks import Blocks
from polymodel.sparse.density.fit_diagonals import diagonals
from polymodel.sparse.density.held_out import HeldOut
from polymodel.sparse.density.hierarchical import Hierarchical
from polymodel.sparse.density.model import DensityModel, Floats
from polymodel.sparse.density.observed import BlockSample, Bools, Observed
from polymodel.sparse.density.row_column import RowColumn
from polymodel.sparse.density.sampled import SAMPLES, Sampled
from polymodel.sparse.density.structured import FixedStructured
from polymodel.sparse.density.uniform import Uniform
from polymodel.sparse.tensor import SparseTensor

# Models fitted to the observed part of a matrix, from the least specific to the most specific one.

# Sizes of groups and of blocks that are tried, and the minimum density of blocks.
GROUPS, SIZES, FULL = (2, 4, 8, 16), (2, 3, 4, 5, 6, 8, 10, 12, 16, 24, 32), 0.5
# Side of the corner of a matrix where structure is searched for first; the number of groups of blocks below
# which all may be equal by chance.
_CORNER, _FEW = 512, 32
# Nonzeros of which blocks are counted to choose their size: all but in large matrices.
_DRAWN = 1 << 16
# How many times more samples are drawn where no model is near the data.
_MORE = 4


@dataclass(frozen=True)
class ModelCandidate:
    """A kind of model, and the function that fits it; None where the observed part does not have this
    structure."""

    name: str
    fit: Callable[[Observed], DensityModel | None]


def candidates(whole: Observed) -> Iterator[ModelCandidate]:
    """Yield the kinds of models to try, simplest first. Blocks and groups of blocks are searched for in the
    whole matrix."""
    yield ModelCandidate("uniform", uniform)
    yield ModelCandidate("fixed_structured", groups)
    nested = nested_groups(whole)
    if nested is not None:
        yield ModelCandidate(nested.name, nested.fit)
    yield ModelCandidate("diagonals", diagonals)
    for size in sizes_of_blocks(whole):
        yield ModelCandidate(f"blocks of {size}", partial(blocks, size=size, arranged=uniform))
        yield ModelCandidate(f"blocks of {size} on diagonals", partial(blocks, size=size, arranged=diagonals))
    yield ModelCandidate("row_column", row_column)


def samplings(whole: Observed) -> Iterator[ModelCandidate]:
    """Yield models of sampled data with increasing numbers of samples."""
    samples = SAMPLES
    yield ModelCandidate("sampled", partial(sampled, samples=samples))
    while samples < whole.tensor.nnz:
        samples *= _MORE
        yield ModelCandidate(f"sampled {samples:,}", partial(sampled, samples=samples))


def uniform(seen: Observed) -> Uniform:
    """Fit the number of nonzeros."""
    nnz = min(round(seen.nonzeros), seen.shape[0] * seen.shape[1])
    return Uniform.of(seen.tensor.ranks, seen.shape, nnz=nnz)


def groups(seen: Observed) -> FixedStructured | None:
    """Fit n of m structured sparsity; None unless all groups have equally many nonzeros."""
    points = seen.shape[0] * seen.shape[1] * seen.share()
    found = _alike(seen.tensor, points, seen.shape)
    return None if found is None else found.over(seen.tensor.ranks, seen.shape)


@dataclass(frozen=True)
class Grouped:
    """n of every m consecutive coordinates along an axis."""

    n: int
    m: int
    axis: int

    def over(self, ranks: tuple[str, ...], shape: tuple[int, int]) -> FixedStructured:
        """Return the model of a matrix, or of a block, with this structure."""
        return FixedStructured(ranks, shape, self.n, self.m, ranks[self.axis])

    def nats(self, points: float) -> float:
        """Return the information, in nats, that determines which of this many points are nonzero."""
        return points / self.m * log(comb(self.m, self.n))


def _alike(tensor: SparseTensor, points: float, sides: tuple[int, int]) -> Grouped | None:
    """Return the shortest groups that all hold equally many nonzeros, if all `points` are in such groups;
    else None.

    `sides`: the lengths that group sizes must divide: the sides of the matrix, or of the blocks that contain
    the nonzeros.
    """
    for m in GROUPS:
        held = tensor.nnz * m / points
        if abs(held - round(held)) > 1e-6 * held or not 0 < round(held) < m:
            continue
        for axis in (1, 0):
            if sides[axis] % m:
                continue
            other = tensor.coords[1 - axis]
            numbers = other * (tensor.shape[axis] // m) + tensor.coords[axis] // m
            counts = np.unique(numbers, return_counts=True)[1]
            n, every = int(counts[0]), points / m
            if n < m and (counts == n).all() and abs(counts.size - every) < 1e-6 * every:
                return Grouped(n, m, axis)
    return None


@dataclass(frozen=True)
class NestedGroups:
    """Nested structured sparsity: n of every m blocks hold nonzeros, and each of these is full, has n of m
    itself, or is filled at random."""

    size: tuple[int, int]
    outer: Grouped
    inner: Grouped | None
    full: bool

    @property
    def name(self) -> str:
        """Its name among the kinds of models."""
        inside = "" if self.inner is None else f", {self.inner.n}:{self.inner.m} inside"
        return f"{self.outer.n}:{self.outer.m} of blocks of {self.size[0]} x {self.size[1]}{inside}"

    def fit(self, seen: Observed) -> Blocks:
        """Fit the density of a random filling, the only parameter that depends on the observed part."""
        ranks, (rows, columns), (height, width) = seen.tensor.ranks, seen.shape, self.size
        arrangement = self.outer.over(ranks, (rows // height, columns // width))
        if self.inner is not None:
            inside: DensityModel = self.inner.over(ranks, self.size)
        else:
            counts = seen.blocks(self.size)[1]
            room = float(rows) * columns * self.outer.n / self.outer.m
            mean = float(counts.mean()) / (height * width) if counts.size else seen.nonzeros / room
            share = 1.0 if self.full else min(mean, 1.0)
            inside = Hierarchical(ranks, self.size, (1.0, share))
        return Blocks(ranks, seen.shape, self.size, arrangement, inside)


def nested_groups(whole: Observed) -> NestedGroups | None:
    """Return N:M sparsity of blocks if all groups of the matrix have it; else None. Of several block sizes
    choose the one with the shortest description of the nonzeros."""
    corner = np.zeros([min(s, _CORNER) for s in whole.shape], dtype=bool)
    rows, columns = whole.tensor.coords
    near = (rows < corner.shape[0]) & (columns < corner.shape[1])
    corner[rows[near], columns[near]] = True
    found = []
    for size in product((1, *SIZES), (1, *SIZES)):
        cut = any(s % b for s, b in zip(whole.shape, size, strict=True))
        if size == (1, 1) or cut or not _may_be_alike(corner, size):
            continue
        of_blocks = whole.blocks(size)[0]
        number = prod(of_blocks.shape)
        outer = _alike(of_blocks.tensor, number, of_blocks.shape)
        if outer is None or number < _FEW * outer.m:
            continue
        room, nnz = of_blocks.tensor.nnz * prod(size), whole.tensor.nnz
        inner = None if nnz == room else _alike(whole.tensor, room, size)
        inside = _nats(room, nnz) if inner is None else inner.nats(room)
        found.append((outer.nats(number) + inside, NestedGroups(size, outer, inner, nnz == room)))
    return min(found, key=lambda told: told[0])[1] if found else None


def _may_be_alike(corner: Bools, size: tuple[int, int]) -> bool:
    """Return whether all whole groups of blocks in the corner of a matrix have equally many nonempty
    blocks."""
    high, wide = (s // b for s, b in zip(corner.shape, size, strict=True))
    points = corner[: high * size[0], : wide * size[1]].reshape(high, size[0], wide, size[1])
    filled: Bools = np.logical_or.reduce(points, axis=(1, 3))
    for m in GROUPS:
        for lines in (filled, filled.T):
            if lines.shape[1] < m:
                continue
            counts = lines[:, : lines.shape[1] // m * m].reshape(lines.shape[0], -1, m).sum(axis=2)
            if 0 < counts[0, 0] < m and (counts == counts[0, 0]).all():
                return True
    return False


def row_column(seen: Observed) -> RowColumn:
    """Fit the nonzeros of rows and columns: those observed, extrapolated to the whole line."""
    lines = []
    for axis in (0, 1):
        counts = np.bincount(seen.tensor.coords[axis], minlength=seen.shape[axis]).astype(np.float64)
        space, length = seen.open_points(axis), float(seen.shape[1 - axis])
        lines.append(np.minimum(counts * length / np.maximum(space, 1.0), length))
    least = min(float(x.sum()) for x in lines)
    rows, columns = (x * (least / max(float(x.sum()), 1e-300)) for x in lines)
    return RowColumn.of(seen.tensor.ranks, seen.shape, rows, columns)


def sizes_of_blocks(seen: Observed) -> list[int]:
    """Return the two block sizes with the shortest description of the nonzeros."""
    told, sample = [], sampled(seen, _DRAWN)
    for size in SIZES:
        if 4 * size > min(seen.shape):
            break
        filled = float(sample.expected_tiles((size, size)))
        if seen.tensor.nnz < FULL * filled * size**2:
            continue
        number = float(sample.number_of_tiles((size, size)))
        told.append((_nats(number, filled) + _nats(filled * size**2, seen.tensor.nnz), size))
    return [size for _, size in sorted(told)[:2]]


def _nats(points: float, nonzeros: float) -> float:
    """Return the information, in nats, that determines which points are nonzero."""
    share = nonzeros / points
    inside = 0.0 < share < 1.0
    return -points * (share * np.log(share) + (1 - share) * np.log1p(-share)) if inside else 0.0


def blocks(seen: Observed, size: int, arranged: Callable[[Observed], DensityModel | None]) -> Blocks | None:
    """Fit blocks of this size, arranged according to another model."""
    of_blocks, counts = seen.blocks((size, size))
    arrangement = arranged(of_blocks) if counts.size else None
    if arrangement is None:
        return None
    fill = Hierarchical(seen.tensor.ranks, (size, size), (1.0, float(counts.mean()) / size**2))
    return Blocks(seen.tensor.ranks, seen.shape, (size, size), arrangement, fill)


def sampled(seen: Observed, samples: int) -> Sampled:
    """Fit a sample of tiles."""
    return Sampled.scaled(seen.tensor, seen.nonzeros, samples, 0)


# Shapes of tiles, and numbers of units, of which counts are compared as well where a model is near in the
# others: squares of other sizes, and tiles that are longer than wide or wider than long.
FURTHER_TILES = ((24, 24), (100, 100), (16, 64), (64, 16), (1, 256), (256, 1))
FURTHER_UNITS = (64, 256)
# The part of the tolerance that errors there may have: shapes that are not compared may be further off.
_PART = 0.75
# Sizes of tiles, and units that rows are dealt to, of which counts are compared; how near a model has to
# be in most of them, and in the fullest tile and unit.
TILES, UNITS, NEAR, FAR = (8, 32, 128), 16, 0.1, 0.2


@dataclass(frozen=True)
class Compared:
    """One quantity under one model: `actual` is counted; `expected` is None where the model refuses it."""

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
        """True if the relative error is within the tolerance."""
        return self.error is not None and abs(self.error) <= self.room


@dataclass(frozen=True)
class Fitted:
    """One kind of model, fitted to the whole matrix, and how well its fit to the observed part predicts the
    rest.

    `likelihood`: the log-likelihood of the tiles held out. `behind`: how much lower it is than that of the
    best model; `error`: the standard error of this difference. `compared`: the quantities that the model
    predicts for the whole matrix.
    """

    name: str
    model: DensityModel
    likelihood: float
    behind: float
    error: float
    compared: tuple[Compared, ...]

    @property
    def near(self) -> bool:
        """True if every quantity is within the tolerance."""
        return all(c.near for c in self.compared)


@dataclass(frozen=True)
class Choice:
    """All models that were tried, simplest first, and the one that is chosen."""

    tried: tuple[Fitted, ...]
    chosen: Fitted


def choose(tensor: SparseTensor, tiles: Sequence[int] = TILES, units: int = UNITS) -> Choice:
    """Try the kinds of structured models on a matrix.

    Among the models whose quantities are within the tolerance (among all, if there are none), the one with
    the highest likelihood of the tiles held out is chosen. A simpler model is preferred if its likelihood is
    lower by no more than the standard error.
    """
    if len(tensor.ranks) != 2:
        what = f"{tensor.name} has {len(tensor.ranks)} ranks: models of structure are those of matrices"
        raise Refused(what, "take RankNnz or Actual", code="unsupported-shape")
    if not tensor.nnz:
        message = f"{tensor.name} has no nonzeros"
        raise SpecError([Diagnostic(message, "take Uniform with nnz=0", "tensor", code="empty-tensor")])
    whole, split = Observed.whole(tensor), BlockSample.of((tensor.shape[0], tensor.shape[1]))
    part = Observed.part(tensor, split)
    held = HeldOut.of(tensor, split)
    asked, further = _questions(tensor, tuple(tiles), units)
    data, tried, scores = Actual.of(tensor), [], []

    def attempt(candidate: ModelCandidate) -> bool:
        """Fit the candidate, and return whether it is within the tolerance."""
        look(f"fitting {candidate.name} to {tensor.name}")
        model = candidate.fit(whole)
        trial = candidate.fit(part) if part.tensor.nnz else model
        if model is None or trial is None:
            return False
        compared = [_compared(q, data, model) for q in asked]
        for question in further:
            if not all(c.near for c in compared):
                break
            compared.append(_compared(question, data, model))
        tried.append((candidate.name, model, tuple(compared)))
        scores.append(held.likelihoods(trial))
        return all(c.near for c in compared)

    near = [attempt(candidate) for candidate in candidates(whole)]
    for candidate in samplings(whole):
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
    """Return the difference of two scores, and its standard error."""
    away = better - score
    return float(away.sum()), float(away.std()) * away.size**0.5


Question = tuple[str, str, float, Callable[[DensityModel], float]]


def _questions(
    tensor: SparseTensor, tiles: tuple[int, ...], units: int
) -> tuple[list[Question], list[Question]]:
    """Return the quantities of which every model is asked, and those of which models that are near in these
    are asked: the name, unit and tolerance, and the function that computes it from a model."""
    rows, columns = tensor.shape
    square: Question
    if rows == columns:
        square = (f"multiplies of {tensor.name} x {tensor.name}", "multiplies", NEAR, _square)
    else:
        what = f"multiplies of {tensor.name} x {tensor.name}^T"
        square = (what, "multiplies", NEAR, partial(_transposed, rows))
    asked: list[Question] = [("nonempty rows", "rows", NEAR, lambda m: float(m.expected_fibers(1)))]
    shapes = [(min(t, rows), min(t, columns)) for t in tiles]
    asked += (q for tile in dict.fromkeys(shapes) for q in _of_tiles(tile))
    heights = [-(-rows // units)]
    asked += [_mean_load(rows, heights[0]), _greatest_load(tensor, heights[0]), square]
    others = [(min(t, rows), min(u, columns)) for t, u in FURTHER_TILES]
    further = [q for tile in dict.fromkeys(others) if tile not in shapes for q in _of_tiles(tile)]
    more = [-(-rows // number) for number in FURTHER_UNITS]
    further += (_greatest_load(tensor, height) for height in dict.fromkeys(more) if height not in heights)
    return asked, [(what, unit, room * _PART, answer) for what, unit, room, answer in further]


def _of_tiles(tile: tuple[int, int]) -> Iterator[Question]:
    size = " x ".join(map(str, tile))
    yield f"nonempty tiles of {size}", "tiles", NEAR, partial(_nonempty, tile)
    yield f"fullest tile of {size}", "nonzeros", FAR, partial(_fullest, tile)


def _mean_load(rows: int, height: int) -> Question:
    number = -(-rows // height)
    return f"mean load of {number} units", "nonzeros", NEAR, lambda m: m.expected_nnz / number


def _greatest_load(tensor: SparseTensor, height: int) -> Question:
    part, number = (height, tensor.shape[1]), -(-tensor.shape[0] // height)
    return f"greatest load of {number} units", "nonzeros", FAR, partial(_fullest, part)


def _nonempty(tile: tuple[int, ...], model: DensityModel) -> float:
    return float(model.expected_tiles(tile))


def _fullest(tile: tuple[int, ...], model: DensityModel) -> float:
    return float(model.expected_max(tile))


def _square(model: DensityModel) -> float:
    return model.square_multiplies()


def _transposed(rows: int, model: DensityModel) -> float:
    """Return the multiplications of a matrix by its transpose: every nonzero of a column is multiplied by all
    of that column."""
    return float(model.expected_squares((rows, 1)))


def _compared(question: Question, data: Actual, model: DensityModel) -> Compared:
    name, unit, room, answer = question
    try:
        expected: float | None = answer(model)
    except Refused:
        expected = None
    return Compared(name, unit, answer(data), expected, room)
