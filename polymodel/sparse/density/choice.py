"""Which model describes a matrix: fitted to a part of it, judged by the likelihood of the rest."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np

from polymodel.errors import Diagnostic, Refused, SpecError
from polymodel.governor import look
from polymodel.sparse.density.actual import Actual
from polymodel.sparse.density.candidates import candidates, occupancies
from polymodel.sparse.density.model import DensityModel, Floats
from polymodel.sparse.density.observed import Observed, Split, chosen
from polymodel.sparse.tensor import SparseTensor

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
        raise Refused(what, "take RankNnz or Actual")
    if not tensor.nnz:
        raise SpecError([Diagnostic(f"{tensor.name} has no nonzeros", "take Uniform with nnz=0", "tensor")])
    whole, split = Observed.whole(tensor), Split.of((tensor.shape[0], tensor.shape[1]))
    part = Observed.part(tensor, split)
    held = chosen(tensor, ~split.seen(tensor.coords[0], tensor.coords[1]))
    data, asked = Actual.of(tensor), tuple(_questions(tensor, tuple(tiles), units))
    tried, scores = [], []
    for candidate in candidates(whole):
        look(f"fitting {candidate.name} to {tensor.name}")
        model = candidate.fit(whole)
        trial = candidate.fit(part) if part.tensor.nnz else model
        if model is None or trial is None:
            continue
        tried.append((candidate.name, model, tuple(_compared(q, data, model) for q in asked)))
        scores.append(_likelihoods(trial, held, split))
    return _chosen(tried, scores)


def _chosen(tried: list[tuple[str, DensityModel, tuple[Compared, ...]]], scores: list[Floats]) -> Choice:
    sums = np.array([float(s.sum()) for s in scores])
    best = int(sums.argmax())
    found = []
    for (name, model, compared), score in zip(tried, scores, strict=True):
        behind, error = _behind(scores[best], score)
        found.append(Fitted(name, model, float(score.sum()), behind, error, compared))
    able = [i for i, f in enumerate(found) if f.near] or list(range(len(found)))
    first = max(able, key=sums.__getitem__)
    for i in able:
        behind, error = _behind(scores[first], scores[i])
        if behind <= error:
            return Choice(tuple(found), found[i])
    return Choice(tuple(found), found[first])


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


def _likelihoods(model: DensityModel, held: SparseTensor, split: Split) -> Floats:
    """Logarithms of the likelihood of the tiles of each block that is held out, as tiles at random places."""
    side, shape = split.side, split.shape
    grid = [np.arange(s // side, dtype=np.int64) for s in shape]
    hidden = ~split.seen(grid[0][:, None] * side, grid[1][None, :] * side)
    number = np.full(hidden.shape, -1, dtype=np.int64)
    number[hidden] = np.arange(int(hidden.sum()))
    found = np.zeros(int(hidden.sum()))
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
        found += told[0] * (side * side / points)
        own = number[where[0] // side, where[1] // side]
        np.add.at(found, own, told[1:][place.reshape(-1)] - told[0])
    return found
