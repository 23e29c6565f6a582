"""Define the interface of all density models, their labels, and tilings with edge tiles."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from decimal import Decimal
from itertools import product
from math import prod
from typing import TYPE_CHECKING, Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

from polymodel.errors import Diagnostic, Refused, SpecError
from polymodel.frozen import dataclass
from polymodel.governor import tick
from polymodel.sparse.arguments import Arguments
from polymodel.sparse.tensor import SparseTensor

if TYPE_CHECKING:
    from polymodel.sparse.density.hypergeometric import Hypergeometric
    from polymodel.sparse.density.regions import Regions

Label = Literal["exact", "expected", "bound"]
# Labels of the fullest part: the true number may be larger or smaller than an `estimate`.
Fullness = Literal["exact", "expected", "bound", "estimate"]
Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
# Points of a tile and nonzeros are counted in 64 bits.
MOST_POINTS = 2**63 - 1
# The most positions whose probabilities are listed.
MOST_PLACES = 1 << 22


class SparseWarning(UserWarning):
    """Warning that numbers of a sparse analysis are valid but may mislead."""


@dataclass(frozen=True)
class ByPlace:
    """Probabilities by position: a point is nonzero with probability numbers / of, at its coordinates along
    the ranks `axes`."""

    axes: tuple[int, ...]
    numbers: Ints | Floats
    of: int


@dataclass(frozen=True)
class DensityModel(ABC):
    """A model of the positions of the nonzeros of one tensor.

    `ranks`, `shape`: outermost first. A `tile` is a box of points, given as an array whose last axis has one
    size per rank. Leading axes are evaluated element by element (a grid of tile shapes in one call), and
    results are arrays of the leading axes. Sizes larger than the shape mean the whole rank; sizes below 1
    raise SpecError.

    `expected` .. `quantile` describe one *full* tile at a random position of the tiling by its shape. The
    tiles of a tiling start at multiples of the tile's sizes; the last one of a rank may be smaller (an edge
    tile). `expected_tiles`, `expected_max` and `expected_squares` describe all tiles, edge tiles included.

    Methods that are not abstract have a default: the model does not provide the result (None, False), or the
    call raises Refused. No caller tests the class of a model.
    """

    ranks: tuple[str, ...]
    shape: tuple[int, ...]

    def __post_init__(self) -> None:
        # Names given as text or list, and sizes of numpy, become tuples of str and int.
        read = Arguments()
        ranks, shape = read.ranks(self.ranks, self.shape)
        read.raise_if_any()
        object.__setattr__(self, "ranks", ranks)
        object.__setattr__(self, "shape", shape)

    @property
    def label(self) -> Label:
        """The certainty label of the results: `exact` for given data, `expected` for a model."""
        return "expected"

    @property
    def placeless(self) -> bool:
        """True if the results for a tile depend on its shape alone, not on its position."""
        return False

    @property
    def independent(self) -> bool:
        """True if the contents of disjoint boxes of points are independent."""
        return False

    @property
    def settled(self) -> bool:
        """True if the model determines every point, so that nothing is random."""
        return False

    @property
    def data(self) -> SparseTensor | None:
        """The tensor itself, for a model that consists of data; else None."""
        return None

    @property
    def points(self) -> Hypergeometric | None:
        """The distribution of the number of nonzeros among t points, where it is the same for every set of t
        points; else None."""
        return None

    @property
    def size(self) -> int:
        """The number of points of the tensor."""
        return prod(self.shape)

    @property
    @abstractmethod
    def expected_nnz(self) -> float:
        """The expected number of nonzeros of the whole tensor."""

    @property
    def density(self) -> float:
        """The expected number of nonzeros per point."""
        return self.expected_nnz / self.size

    @abstractmethod
    def expected(self, tile: ArrayLike) -> Floats:
        """Expected occupancy (nonzeros) of a full tile."""

    @abstractmethod
    def variance(self, tile: ArrayLike) -> Floats:
        """Variance of the occupancy of a full tile, including the variance due to its random position."""

    @abstractmethod
    def p_empty(self, tile: ArrayLike) -> Floats:
        """Probability that a full tile has no nonzero."""

    def p_nonempty(self, tile: ArrayLike) -> Floats:
        """Probability that a full tile has a nonzero."""
        return 1 - self.p_empty(tile)

    @abstractmethod
    def cdf(self, tile: ArrayLike, occupancy: ArrayLike) -> Floats:
        """Probability that a full tile has at most `occupancy` nonzeros (broadcast over the tiles)."""

    @abstractmethod
    def quantile(self, tile: ArrayLike, confidence: ArrayLike) -> Ints:
        """The smallest occupancy that a full tile does not exceed with probability `confidence` in (0, 1]."""

    @abstractmethod
    def expected_tiles(self, tile: ArrayLike) -> Floats:
        """Expected number of nonempty tiles of the tiling, edge tiles included."""

    @abstractmethod
    def expected_squares(self, tile: ArrayLike) -> Floats:
        """Expected sum of the squared occupancies of all tiles."""

    @abstractmethod
    def expected_max(self, tile: ArrayLike) -> Floats:
        """Expected maximum occupancy over all tiles; `max_label` says whether it is a bound."""

    def cdf_max(self, tile: ArrayLike, occupancy: ArrayLike) -> Floats:
        """P(no tile of the tiling has more than `occupancy` nonzeros), for one tile shape and any
        occupancies. Where `max_label` is a bound, tiles are taken to be independent."""
        what = f"the law of the fullest tile of {type(self).__name__} is not worked out"
        raise Refused(what, "ask expected_max, or another model", code="unsupported-density")

    def max_label(self, tile: ArrayLike) -> Label:
        """Return the label of `expected_max` for these tiles: `bound` if it is only a bound for any of
        them."""
        self.tiles(tile)
        return self.label

    def fullest_part(self, parts: Sequence[Ints]) -> tuple[float, Fullness] | None:
        """Return the expected nonzeros of the fullest of several parts, and the label of that number; None
        where the model does not provide it. `parts`: for each rank the number of the part that each
        coordinate belongs to; coordinates of the rank beyond these are in no part."""
        return None

    def alike(self, tile: tuple[int, ...]) -> bool:
        """Return True if all full tiles of the tiling by this shape are empty with the same probability."""
        return self.placeless

    def part(self, touched: Sequence[range]) -> DensityModel | None:
        """Return the model of the points with these coordinates, one range per rank; None where it does not
        follow from this one."""
        return None

    def by_place(self) -> ByPlace | None:
        """Return the probability that each point is nonzero; None where the model does not provide it."""
        return None

    def nonempty_by_place(self, tile: tuple[int, ...]) -> Floats | None:
        """Return P(nonempty) of every tile of a tiling, edge tiles included, with one axis per rank. Return
        None where the model does not provide it, or there are too many tiles."""
        place = self.by_place() if all(t == 1 for t in tile) and self.size <= MOST_PLACES else None
        if place is None:
            return None
        shape = [s if i in place.axes else 1 for i, s in enumerate(self.shape)]
        numbers = np.transpose(place.numbers, np.argsort(place.axes)) if place.axes else place.numbers
        return np.broadcast_to(numbers.reshape(shape) / place.of, self.shape)

    def nonempty_by_parts(self, parts: Sequence[Ints]) -> Floats | None:
        """Return P(nonempty) of every combination of parts, with one axis per rank. The coordinates of a part
        need not be consecutive.

        `parts`: for each rank the number of the part that each coordinate belongs to. None where the model
        does not provide it, or there are too many combinations.
        """
        return None

    def nonempty_of_parts(self, parts: Sequence[Ints]) -> float | None:
        """Return the mean of P(nonempty) over all combinations of parts, as in `nonempty_by_parts`; None
        where the model does not provide it."""
        each = self.nonempty_by_parts(parts)
        return None if each is None else float(each.mean())

    def expected_in(self, rects: Ints) -> Floats | None:
        """Return the expected nonzeros of rectangles (k x row, column, height, width) of a matrix; None where
        the model does not provide them."""
        return None

    def known_rows(self) -> Ints | None:
        """Return the nonzeros of every row (fiber of the top rank) where the model determines them, else
        None."""
        return None

    def row_pmf(self, loads: Ints, stride: int) -> Floats:
        """Return relative probabilities that a row has these numbers of nonzeros, which are `stride` apart.
        Raises Refused unless all rows are random, identically distributed and (nearly) independent."""
        what = f"slices of {type(self).__name__} data: its rows are neither known nor alike and independent"
        raise Refused(what, "give a histogram of the rows, or the tensor", code="unsupported-density")

    def square_multiplies(self) -> float:
        """Return the expected number of multiplications of a square matrix by itself: the sum over k of
        nonzeros of column k times nonzeros of row k."""
        what = f"a square of {type(self).__name__} data: there is no formula for its multiplications"
        remedy = "give a uniform density, a histogram of the rows, or the tensor"
        raise Refused(what, remedy, code="unsupported-density")

    def regions(self) -> Regions:
        """Return the mean, variance and nonempty rows of rectangles of a matrix, which estimates of tilings
        use."""
        message = f"tiles of {type(self).__name__} are not estimated"
        remedy = "give Uniform, Hierarchical, FixedStructured, RankNnz along one rank, RowColumn or Diagonals"
        raise Refused(message, remedy, code="unsupported-density")

    def draw(self, seed: int, name: str = "A") -> SparseTensor:
        """Draw a matrix from the model; the same seed gives the same matrix."""
        what = f"data of {type(self).__name__} are not drawn"
        raise Refused(what, "ask for qtree, btree or simple", code="unsupported-density")

    def drawn_apart(self, generator: np.random.Generator, many: int) -> tuple[Ints, Ints]:
        """Draw `many` independent tensors from the model. Return the number of the tensor that each nonzero
        belongs to, and its coordinates (ranks x nonzeros)."""
        drawn = []
        for seed in generator.integers(0, 2**31, many).tolist():
            tick("drawing data")
            drawn.append(self.draw(int(seed)).coords)
        numbers = np.repeat(np.arange(many), [d.shape[1] for d in drawn])
        return numbers, np.concatenate([np.zeros((len(self.ranks), 0), dtype=np.int64), *drawn], axis=1)

    def ones_at(self, coords: Ints, name: str) -> SparseTensor:
        """Return the tensor of this shape with a 1 at each of these coordinates (ranks x points)."""
        ones = np.ones(coords.shape[1], dtype=np.int8)
        return SparseTensor.from_coo(name, self.ranks, self.shape, coords, ones)

    def tiles(self, tile: ArrayLike) -> Ints:
        """Return the tile shapes as an integer array (.., ranks), limited to the shape."""
        return tile_shapes(tile, self.ranks, self.shape)

    def each(self, tile: ArrayLike, answer: Callable[[tuple[int, ...]], float]) -> Floats:
        """Apply `answer` to every tile shape of the array; equal shapes are evaluated once."""
        shapes = self.tiles(tile)
        flat = shapes.reshape(prod(shapes.shape[:-1]), len(self.ranks))
        distinct, place = np.unique(flat, axis=0, return_inverse=True)
        found = np.array([answer(tuple(int(t) for t in one)) for one in distinct], dtype=np.float64)
        chosen: Floats = found[place.reshape(-1)].reshape(shapes.shape[:-1])
        return chosen

    def number_of_tiles(self, tile: ArrayLike) -> Floats:
        """Return the number of tiles of the tiling, including empty tiles and edge tiles."""
        counts = -(-np.array(self.shape, dtype=np.int64) // self.tiles(tile))
        result: Floats = counts.astype(np.float64).prod(axis=-1)
        return result

    def fraction_nonempty(self, tile: ArrayLike) -> Floats:
        """Return the expected fraction of nonempty tiles among all tiles of the tiling, edge tiles
        included."""
        return self.expected_tiles(tile) / self.number_of_tiles(tile)

    def expected_fibers(self, depth: int, tile: ArrayLike | None = None) -> Floats:
        """Return the expected number of nonempty prefixes of `depth` ranks, which are the fibers of rank
        number `depth` (from 0).

        It equals the number of coordinates present at rank `depth - 1`. For depth 0 it is 1 where the tensor
        is not empty; for the number of ranks it is the number of nonzeros. With `tile` the fibers are summed
        over all tiles of the tiling, each with its own fibers; divide by `number_of_tiles` or
        `expected_tiles` for the mean of one tile.
        """
        boxes = self.tiles(self.shape if tile is None else tile).copy()
        if not 0 <= depth <= len(self.ranks):
            message = f"no prefix of {depth} ranks"
            raise SpecError([Diagnostic(message, f"0 to {len(self.ranks)}", code="out-of-range")])
        # Prefixes within all tiles are boxes of one coordinate in the ranks of the prefix.
        boxes[..., :depth] = 1
        return self.expected_tiles(boxes)

    def expected_coordinates(self, level: int, tile: ArrayLike | None = None) -> Floats:
        """Return the expected number of coordinates present at rank number `level`, equal to
        `expected_fibers(level + 1)`."""
        return self.expected_fibers(level + 1, tile)


def tile_shapes(tile: ArrayLike, ranks: tuple[str, ...], shape: tuple[int, ...]) -> Ints:
    """Return checked tile shapes (.., ranks), limited to `shape`. Raises SpecError for shapes that do not
    match."""
    given = np.asarray(tile)
    if given.ndim == 0 or given.shape[-1] != len(ranks):
        what = f"a tile needs {len(ranks)} sizes on its last axis, there are {given.shape}"
        raise SpecError([Diagnostic(what, f"one per rank: {list(ranks)}", code="wrong-count")])
    found = given.astype(np.int64)
    if given.size and ((found < 1).any() or (found != given).any()):
        bad = given[(found < 1) | (found != given)].flat[0]
        message = f"tile size {bad}"
        remedy = "sizes are whole numbers of at least 1"
        raise SpecError([Diagnostic(message, remedy, code="not-positive-integer")])
    cut: Ints = np.minimum(found, np.array(shape, dtype=np.int64))
    return cut


def edge_classes(tiles: Ints, shape: tuple[int, ...]) -> tuple[Ints, Floats]:
    """Return the distinct shapes of the tiles of each tiling, and the number of tiles of each shape.

    Tiles (.., ranks) give sizes (.., 2^ranks, ranks) and counts (.., 2^ranks). Where the tile size divides a
    rank, its edge has count 0 (and the full size, so that no size is 0).
    """
    full = np.array(shape, dtype=np.int64)
    whole, rest = full // tiles, full % tiles
    edge = np.where(rest > 0, rest, tiles)
    sizes = np.empty((*tiles.shape[:-1], 2 ** len(shape), len(shape)), dtype=np.int64)
    counts = np.ones(sizes.shape[:-1], dtype=np.float64)
    for number, choice in enumerate(product((False, True), repeat=len(shape))):
        for rank, at_edge in enumerate(choice):
            sizes[..., number, rank] = (edge if at_edge else tiles)[..., rank]
            counts[..., number] *= ((rest > 0) if at_edge else whole)[..., rank]
    return sizes, counts


def points_of(shape: tuple[int, ...], what: str = "a tensor") -> int:
    """Return the number of points of a shape. Raises Refused if it does not fit into 64 bits."""
    size = prod(shape)
    if size > MOST_POINTS:
        shown = f"{Decimal(size):.2e}"  # of any size; a float is not
        message = f"{what} of {shown} points: more than 64 bits can count"
        raise Refused(message, "model a part of it", code="number-too-large")
    return size
