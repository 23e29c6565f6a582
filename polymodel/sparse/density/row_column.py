"""Model random matrices with known numbers of nonzeros in every row and every column, such as graphs with
hubs (Chung and Lu)."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cached_property
from math import prod
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from polymodel.errors import Diagnostic, Refused, SpecError
from polymodel.frozen import dataclass
from polymodel.sparse.arguments import Arguments
from polymodel.sparse.density.laws import CountLaws
from polymodel.sparse.density.model import MOST_PLACES, DensityModel, Floats, Fullness, Ints
from polymodel.sparse.density.reader import Path, Reader
from polymodel.sparse.density.regions import Kinds, Regional, Regions, summed
from polymodel.sparse.tensor import SparseTensor
from polymodel.spec.faults import shown

# Probabilities of the points of a matrix follow from weights of rows and columns, and are summed over
# rectangles.
#
# Rows with equally many nonzeros have the same weight, and so do columns, so that there are few kinds of
# points. A function of the two weights is a sum of few products of functions of either (its singular values
# decrease fast). Sums over a rectangle are therefore products of sums over its rows and over its columns.

# The most distinct kinds of rows and of columns, terms of a sum of products, and rounds of fitting.
_KINDS, _TERMS, _STEPS = 512, 40, 200
# Weights are fitted until the nonzeros of lines have this relative error.
_NEAR = 1e-11


@dataclass(frozen=True, eq=False)
class Products:
    """A function of points as a sum of products, stored as prefix sums along rows and along columns (with a
    first row of zeros)."""

    rows: Floats
    columns: Floats

    @classmethod
    def of(cls, values: Floats, row_kinds: Ints, column_kinds: Ints) -> Products:
        """Make the sums from the values of kinds of rows x kinds of columns."""
        left, right = _factors(values)
        return cls(_running(left[row_kinds]), _running(right[column_kinds]))

    def sorted_by(self, rows: Ints, columns: Ints) -> Products:
        """Return the sums with rows and columns in this order."""
        left, right = np.diff(self.rows, axis=0), np.diff(self.columns, axis=0)
        return Products(_running(left[rows]), _running(right[columns]))

    def over(self, rects: Ints) -> Floats:
        """Return the sum over all points of each rectangle."""
        row, column, height, width = rects.T
        result = np.zeros(rects.shape[0])
        for rows, columns in zip(self.rows.T, self.columns.T, strict=True):
            result += (rows[row + height] - rows[row]) * (columns[column + width] - columns[column])
        return result


@dataclass(frozen=True, eq=False)
class Chances:
    """Sums over points of the probability p of a nonzero, of p squared, and of ln(1 - p)."""

    mean: Products
    square: Products
    log_empty: Products


def chances_of(rows: Floats, columns: Floats) -> Chances:
    """Return the probabilities x y / (1 + x y) under which rows and columns have these expected nonzeros."""
    (row_values, row_kinds), (column_values, column_kinds) = (_kinds(x) for x in (rows, columns))
    row_number, column_number = (
        np.bincount(k, minlength=v.size).astype(np.float64)
        for k, v in ((row_kinds, row_values), (column_kinds, column_values))
    )
    chance = _weighed(row_values, row_number, column_values, column_number)
    functions: tuple[Callable[[Floats], Floats], ...] = (
        lambda p: p,
        lambda p: p * p,
        lambda p: np.maximum(np.log1p(-np.minimum(p, 1.0)), -40.0),
    )
    with np.errstate(divide="ignore"):
        made = [Products.of(f(chance), row_kinds, column_kinds) for f in functions]
    return Chances(*made)


def _kinds(values: Floats) -> tuple[Floats, Ints]:
    """Return the distinct numbers of nonzeros, and the one of each line. If there are very many, neighbouring
    numbers are replaced by their mean."""
    result, place = np.unique(values, return_inverse=True)
    place = place.reshape(-1)
    if result.size <= _KINDS:
        return result, place
    group = np.searchsorted(np.linspace(0, 1, _KINDS), np.arange(result.size) / result.size, side="right") - 1
    own = group[place]
    total = np.bincount(own, weights=values, minlength=_KINDS)
    number = np.maximum(np.bincount(own, minlength=_KINDS), 1)
    return total / number, own


def _weighed(rows: Floats, row_number: Floats, columns: Floats, column_number: Floats) -> Floats:
    """Return the probability of each kind of point, by adjusting the weights of rows and of columns
    alternately."""
    some, any_column = rows > 0, columns > 0
    result = np.zeros((rows.size, columns.size))
    if not some.any():
        return result
    full_rows, full_columns = float(column_number[any_column].sum()), float(row_number[some].sum())
    total = float(rows @ row_number)
    x, y = np.log(rows[some] / total**0.5), np.log(columns[any_column] / total**0.5)
    many, many_columns = row_number[some], column_number[any_column]
    chance = np.zeros((x.size, y.size))
    for _ in range(_STEPS):
        x = _solved(x, y, rows[some], many_columns, full_rows)
        y = _solved(y, x, columns[any_column], many, full_columns)
        chance = _logistic(x[:, None] + y[None, :])
        off = np.abs(chance @ many_columns - rows[some]) / rows[some]
        if off.max() < _NEAR:
            break
    result[np.ix_(some, any_column)] = chance
    return result


def _solved(own: Floats, other: Floats, wanted: Floats, number: Floats, most: float) -> Floats:
    """Return the logarithms of weights under which lines have the desired nonzeros, given those of the
    crossing lines."""
    for _ in range(4):
        chance = _logistic(own[:, None] + other[None, :])
        mean, slope = chance @ number, (chance * (1 - chance)) @ number
        # A line that is full wherever anything is has no finite weight.
        step = np.where(wanted < most, (wanted - mean) / np.maximum(slope, 1e-300), 1.0)
        own = np.minimum(own + np.clip(step, -2.0, 2.0), 60.0)
    return own


def _logistic(z: Floats) -> Floats:
    from scipy.special import expit

    result: Floats = expit(z)
    return result


def _factors(values: Floats) -> tuple[Floats, Floats]:
    """Return values = left @ right.T up to rounding, with few columns, by a randomised singular value
    decomposition."""
    terms = min(_TERMS, *values.shape)
    if not terms:
        return np.zeros((values.shape[0], 1)), np.zeros((values.shape[1], 1))
    probe = np.random.default_rng(0).standard_normal((values.shape[1], terms))
    base = np.linalg.qr(values @ probe)[0]
    left, sizes, right = np.linalg.svd(base.T @ values, full_matrices=False)
    kept = max(1, int((sizes > 1e-13 * sizes[0]).sum()))
    return base @ left[:, :kept] * sizes[:kept], right[:kept].T


def _running(values: Floats) -> Floats:
    result: Floats = np.concatenate([np.zeros((1, values.shape[1])), np.cumsum(values, axis=0)])
    return result


# Recursive graphs (R-MAT): the expected nonzeros of their rows and columns.
#
# A nonzero falls into one of the four quarters of the matrix with probabilities a, b, c, d, then into one of
# the quarters of that quarter, and so on; one that falls onto another is drawn again. All rows whose numbers
# have equally many 1 bits have the same distribution, and the number of such rows is a binomial coefficient.

# Quarters: the upper left, upper right, lower left, lower right one.
Quarters = Sequence[float]


def rmat_lines(side: int, nnz: int, quarters: Quarters) -> tuple[Floats, Floats]:
    """Return the expected nonzeros of rows and of columns, in the order of their numbers. `side` is a power
    of two."""
    from scipy.optimize import brentq

    levels = side.bit_length() - 1
    a, b, c, d = quarters
    rates, number = _rates(levels, (a, b, c, d))
    ones = np.arange(levels + 1)
    rows_of_kind = _binomials(levels)[levels, ones]

    def short(log_draws: float) -> float:
        filled = (-np.expm1(-np.exp(log_draws) * rates) * number).sum(axis=(1, 2)) @ rows_of_kind
        return float(filled) - nnz

    # More draws than nonzeros, as some fall onto others.
    low, high = np.log(nnz) - 1, np.log(nnz) + 1
    while short(high) < 0 and high < 600:
        high += 2
    draws = np.exp(brentq(short, low, high, xtol=1e-12))
    found = []
    for own in ((a, b, c, d), (a, c, b, d)):
        rates, number = _rates(levels, own)
        by_ones = (-np.expm1(-draws * rates) * number).sum(axis=(1, 2))
        found.append(by_ones[_ones(side)])
    rows, columns = found
    scale = float(nnz)
    return rows * (scale / float(rows.sum())), columns * (scale / float(columns.sum()))


def _rates(levels: int, quarters: Quarters) -> tuple[Floats, Floats]:
    """Return, for a row whose number has `row` 1 bits and for columns whose numbers have x 1 bits where the
    row has 0 and y where it has 1, the fraction of nonzeros that fall onto the point, and the number of such
    columns."""
    a, b, c, d = quarters
    row, x, y = (n.astype(np.float64) for n in np.indices((levels + 1,) * 3))
    zeros = levels - row
    ways = _binomials(levels)
    index = [n.astype(np.int64) for n in (zeros, x, row, y)]
    number = ways[index[0], index[1]] * ways[index[2], index[3]]
    there = number > 0
    left, left_ones = (np.where(there, n, 0.0) for n in (zeros - x, row - y))
    return np.where(there, a**left * b**x * c**left_ones * d**y, 0.0), number


def _binomials(most: int) -> Floats:
    """Return the table of C(n, k), with 0 for k > n."""
    result = np.zeros((most + 1, most + 1))
    result[:, 0] = 1
    for n in range(1, most + 1):
        result[n, 1:] = result[n - 1, 1:] + result[n - 1, :-1]
    return result


def _ones(side: int) -> Ints:
    """Return the number of 1 bits of each number below `side`."""
    result = np.zeros(1, dtype=np.int64)
    while result.size < side:
        result = np.concatenate([result, result + 1])
    return result


# The most tiles of one tiling that are listed; beyond that, some rows and columns of tiles represent all.
_MOST, _FULLEST = 1 << 18, 128
# Quarters of a recursive graph, as in the Graph 500 benchmark.
QUARTERS = 0.57, 0.19, 0.19, 0.05
# Rounds in which nonzeros that were drawn at the same position are moved.
_ROUNDS = 10_000


@dataclass(frozen=True, eq=False)
class RowColumn(Regional):
    """`rows[i]` nonzeros in row i and `columns[k]` in column k; all matrices with these numbers are equally
    likely.

    Point (i, k) is nonzero with probability x y / (1 + x y), where the weights x of rows and y of columns
    give all lines their nonzeros. In a sparse matrix this is rows[i] columns[k] / nnz, as in the model of
    Chung and Lu, but it never exceeds 1. Multiplications of the matrix by itself are exact where these
    numbers are whole. The numbers of nonzeros of tiles are negatively associated, so that E[max] is a lower
    bound unless tiles hold whole rows or columns. Numbers that are not whole are expectations, and points are
    then independent.
    """

    rows: Floats
    columns: Floats

    def __post_init__(self) -> None:
        super().__post_init__()
        read = Arguments()
        found = [self._read(read, name, axis) for axis, name in enumerate(("rows", "columns"))]
        sums = [float(x.sum()) for x in found]
        if not read.faults and abs(sums[0] - sums[1]) > 1e-6 * max(sums[0], 1.0):
            what = f"the rows have {sums[0]:,.10g} nonzeros in all, the columns {sums[1]:,.10g}"
            read.add("columns", what, "both are those of the matrix", code="inconsistent-values")
        read.raise_if_any()
        for name, values in zip(("rows", "columns"), found, strict=True):
            values.flags.writeable = False
            object.__setattr__(self, name, values)

    def _read(self, read: Arguments, name: str, axis: int) -> Floats:
        """Return the checked nonzeros of all lines along one axis."""
        given, length, room = read.array(name, getattr(self, name)), self.shape[axis], self.shape[1 - axis]
        if given.dtype.kind not in "iuf" or given.shape != (length,):
            what = f"{name} are {given.dtype} of shape {given.shape}, not {length:,} numbers of nonzeros"
            read.add(name, what, "give one number per coordinate", code="shape-mismatch")
            return np.zeros(0)
        with np.errstate(invalid="ignore"):
            wrong = np.flatnonzero(~((given >= 0) & (given <= room)))
        if wrong.size:
            what = f"{wrong.size} of the {name} have no number of nonzeros from 0 to {room}"
            first = f"the first is {given[wrong[0]]} at {wrong[0]}"
            read.add(name, f"{what}, {first}", f"there is room for {room}", code="out-of-range")
        return given.astype(np.float64)

    def __repr__(self) -> str:
        sizes = " x ".join(f"{r}={s:,}" for r, s in zip(self.ranks, self.shape, strict=True))
        most = f"up to {self.rows.max():,.6g} in a row and {self.columns.max():,.6g} in a column"
        return f"RowColumn({sizes}, {self.expected_nnz:,.6g} nonzeros, {most})"

    @classmethod
    def of(cls, ranks: Sequence[str], shape: Sequence[int], rows: ArrayLike, columns: ArrayLike) -> RowColumn:
        """Make a model from lists or arrays of numbers."""
        return cls(tuple(ranks), tuple(shape), rows, columns)  # type: ignore[arg-type]  # the checks turn them

    @classmethod
    def from_rmat(
        cls,
        ranks: Sequence[str],
        side: int,
        nnz: int,
        quarters: Sequence[float] = QUARTERS,
        seed: int | None = 0,
    ) -> RowColumn:
        """Make the model of a recursive graph (R-MAT) with `side` rows and columns, a power of two, from the
        expected nonzeros of each row and column.

        `quarters`: the probabilities of the upper left, upper right, lower left and lower right quarter. Rows
        and columns are shuffled independently unless `seed` is None.
        """
        read = Arguments()
        names, size = read.names("ranks", ranks), read.whole("side", side, 1, 2**31)
        number = read.whole("nnz", nnz, 0, float(size) ** 2)
        start = 0 if seed is None else read.whole("seed", seed, 0)
        asked: object = quarters
        given = tuple(asked) if isinstance(asked, Iterable) and not isinstance(asked, str) else ()
        shares = [float(read.share(f"quarters[{i}]", q, "", "give four shares")) for i, q in enumerate(given)]
        if not read.faults and (len(shares) != 4 or abs(sum(shares) - 1) > 1e-9):
            what = f"quarters {shown(quarters)} are not four shares that add up to 1"
            read.add("quarters", what, "write e.g. [0.57, 0.19, 0.19, 0.05]", code="out-of-range")
        if not read.faults and size & (size - 1):
            message = f"a recursive graph of {size} rows"
            read.add("side", message, "take a power of two", code="not-positive-integer")
        room = sum(s > 0 for s in shares) ** (size.bit_length() - 1)
        if not read.faults and number > room:
            what = f"{number:,} nonzeros, and quarters {shares} lead to {room:,} of the points alone"
            read.add("nnz", what, f"take at most {room:,}, or give each quarter a share", code="out-of-range")
        read.raise_if_any()
        lines = rmat_lines(size, number, shares) if number else (np.zeros(size), np.zeros(size))
        draw = np.random.default_rng(start)
        rows, columns = lines if seed is None else tuple(draw.permutation(x) for x in lines)
        return cls.of(names, (size, size), np.minimum(rows, size), np.minimum(columns, size))

    @classmethod
    def written_rmat(cls, reader: Reader, path: Path, given: object) -> DensityModel | None:
        """Return the model of a recursive graph with these parameters of a YAML file."""
        keys = reader.keys(path, given, ("nnz", "quarters", "seed"), ("nnz",))
        if not keys:
            return None
        number: Any = keys["nnz"]
        quarters: Any = keys.get("quarters", QUARTERS)
        seed: Any = keys.get("seed", 0)
        if len(reader.shape) != 2 or reader.shape[0] != reader.shape[1]:
            message = f"a recursive graph of the shape {list(reader.shape)}"
            reader.add(path, message, "it is a square matrix", code="shape-mismatch")
            return None
        side = reader.shape[0]
        return reader.made(path, lambda: cls.from_rmat(reader.ranks, side, number, quarters, seed))

    @classmethod
    def from_tensor(cls, tensor: SparseTensor) -> RowColumn:
        """Make the model with the rows and columns of a matrix."""
        if len(tensor.ranks) != 2:
            what = f"{tensor.name} has {len(tensor.ranks)} ranks: rows and columns are those of a matrix"
            raise SpecError([Diagnostic(what, "take RankNnz", "tensor", code="wrong-count")])
        lines = [
            np.bincount(own, minlength=size) for own, size in zip(tensor.coords, tensor.shape, strict=True)
        ]
        return cls.of(tensor.ranks, tensor.shape, lines[0], lines[1])

    @classmethod
    def written(cls, reader: Reader, path: Path, given: object) -> DensityModel | None:
        """Return the model with these parameters of a YAML file; None after a fault, which the reader has
        recorded."""
        keys = reader.keys(path, given, ("rows", "columns", "file"), ("rows", "file"))
        if not isinstance(given, Mapping) or not keys:
            return None
        if "file" in keys:
            data = reader.file((*path, "file"), keys["file"])
            return None if data is None else reader.made(path, lambda: cls.from_tensor(data))
        if "columns" not in keys:
            message = "row_column needs columns beside rows"
            reader.add(path, message, "give the nonzeros of each column", code="missing-key")
            return None
        rows: Any = keys["rows"]
        columns: Any = keys["columns"]
        return reader.made(path, lambda: cls.of(reader.ranks, reader.shape, rows, columns))

    @property
    def expected_nnz(self) -> float:
        return float(self.rows.sum())

    @cached_property
    def _whole(self) -> tuple[Ints, Ints] | None:
        """The numbers of rows and columns, if all of them are whole; else None."""
        result = np.rint(self.rows), np.rint(self.columns)
        off = (np.abs(w - x).max() for w, x in zip(result, (self.rows, self.columns), strict=True))
        return (result[0].astype(np.int64), result[1].astype(np.int64)) if max(off) < 1e-9 else None

    @property
    def independent(self) -> bool:
        """True if the numbers of rows and columns are only expectations, which do not make points
        dependent."""
        return self._whole is None

    def known_rows(self) -> Ints | None:
        return None if self._whole is None else self._whole[0]

    def square_multiplies(self) -> float:
        if self.shape[0] != self.shape[1]:
            return super().square_multiplies()
        met = float(self.columns @ self.rows)
        if not self.independent:
            return met
        # The point (k, k) is in column k and in row k: where rows and columns are random its variance adds.
        start = np.arange(self.shape[0], dtype=np.int64)
        own = self.regions().mean(np.stack([start, start, *np.ones((2, start.size), np.int64)], axis=1))
        return met + float((own * (1 - own)).sum())

    def regions(self) -> Regions:
        return self._regions

    @cached_property
    def _regions(self) -> OfMargins:
        chances = chances_of(self.rows, self.columns)
        return OfMargins(self.matrix, chances, summed(self.rows), summed(self.columns), not self.independent)

    def apart(self, tile: tuple[int, int]) -> bool:
        return self.independent or tile[0] == self.shape[0] or tile[1] == self.shape[1]

    def fullest_part(self, parts: Sequence[Ints]) -> tuple[float, Fullness] | None:
        """Return the maximum over parts, which is known for parts of whole rows or whole columns."""
        if self.independent:
            return super().fullest_part(parts)
        for axis, lines in enumerate((self.rows, self.columns)):
            other = parts[1 - axis]
            if other.size == self.shape[1 - axis] and not other.any():
                sums = np.bincount(parts[axis], weights=lines[: parts[axis].size])
                return float(sums.max(initial=0.0)), "exact"
        return super().fullest_part(parts)

    def nonempty_by_parts(self, parts: Sequence[Ints]) -> Floats | None:
        """Return P(nonempty) of parts: rectangles of the matrix whose rows and columns are sorted by part."""
        sizes = [np.bincount(part) for part in parts]
        if prod(size.size for size in sizes) > MOST_PLACES:
            return None
        regions = self._regions.sorted_by(*(np.argsort(part, kind="stable") for part in parts))
        starts = [np.cumsum(size) - size for size in sizes]
        columns = [*np.meshgrid(*starts, indexing="ij"), *np.meshgrid(*sizes, indexing="ij")]
        rects = np.stack([c.reshape(-1) for c in columns], axis=1)
        return -np.expm1(regions.log_empty(rects)).reshape([size.size for size in sizes])

    def kinds(self, tile: tuple[int, int]) -> Kinds:
        most = max(int(_MOST**0.5), _FULLEST * 2)
        many = [-(-s // t) for s, t in zip(self.shape, tile, strict=True)]
        if many[0] * many[1] > _MOST:
            # Where one side has few tiles the other may have more.
            limits = [max(most, _MOST // min(n, most)) for n in reversed(many)]
        else:
            limits = many
        sides = [
            _side(values, size, limit)
            for values, size, limit in zip((self.rows, self.columns), tile, limits, strict=True)
        ]
        (start, size, weight, full), (start_1, size_1, weight_1, full_1) = sides
        grid = [np.repeat(x, start_1.size) for x in (start, size)]
        grid_1 = [np.tile(x, start.size) for x in (start_1, size_1)]
        rects = np.stack([grid[0], grid[1] * 0 + grid_1[0], grid[1], grid_1[1]], axis=1)
        every = np.multiply.outer(weight, weight_1).reshape(-1)
        kept = np.multiply.outer(weight * full, weight_1 * full_1).reshape(-1)
        whole = [s // t for s, t in zip(self.shape, tile, strict=True)]
        return Kinds(rects, kept, every, float(whole[0]) * whole[1])

    def draw(self, seed: int, name: str = "A") -> SparseTensor:
        """Draw a matrix with these rows and columns. Nonzeros at the same point swap columns with others."""
        if self._whole is None:
            message = "data of RowColumn whose rows or columns are not whole numbers"
            raise Refused(message, "give whole ones", code="unsupported-density")
        generator = np.random.default_rng(seed)
        row, column = (np.repeat(np.arange(e.size), e) for e in self._whole)
        column = generator.permutation(column)
        for _ in range(_ROUNDS):
            numbers = row * self.shape[1] + column
            order = np.argsort(numbers, kind="stable")
            again = order[1:][numbers[order][1:] == numbers[order][:-1]]
            if not again.size:
                return self.ones_at(np.stack([row, column]), name)
            other = generator.integers(0, row.size, again.size)
            # One after the other, because a nonzero may be chosen twice.
            for a, b in zip(again.tolist(), other.tolist(), strict=True):
                column[a], column[b] = column[b], column[a]
        message = "rows and columns that hardly any matrix has"
        raise Refused(message, "give the tensor itself", code="unsupported-density")


def _side(values: Floats, size: int, limit: int) -> tuple[Ints, Ints, Floats, Floats]:
    """Return blocks of `size` lines: starts, sizes, the number of blocks that each represents, and 1 for full
    ones.

    If there are more than `limit`, the fullest ones represent themselves. Of the others, ordered by fullness,
    equally spaced ones represent their neighbours.
    """
    starts = np.arange(0, values.size, size, dtype=np.int64)
    sizes = np.minimum(size, values.size - starts)
    weight = np.ones(starts.size)
    if starts.size > limit:
        last = starts.size - 1
        order = np.argsort(-np.add.reduceat(values, starts)[:last], kind="stable")
        rest = order[_FULLEST:]
        edges = np.linspace(0, rest.size, limit - _FULLEST).astype(np.int64)
        groups = np.diff(edges)
        chosen = rest[((edges[:-1] + edges[1:]) // 2)[groups > 0]]
        kept = np.concatenate([order[:_FULLEST], chosen, [last]])
        weight = np.concatenate([np.ones(_FULLEST), groups[groups > 0].astype(np.float64), [1.0]])
        starts, sizes = starts[kept], sizes[kept]
    return starts, sizes, weight, (sizes == size).astype(np.float64)


@dataclass(frozen=True, eq=False)
class OfMargins(Regions):
    """Statistics of rectangles from sums of the probabilities of points. Known rows and columns reduce the
    variance."""

    shape: tuple[int, int]
    chances: Chances
    rows_below: Floats
    columns_below: Floats
    fixed: bool

    def sorted_by(self, rows: Ints, columns: Ints) -> OfMargins:
        """Return the statistics of the matrix with its rows and columns in this order."""
        c = self.chances
        chances = Chances(*(x.sorted_by(rows, columns) for x in (c.mean, c.square, c.log_empty)))
        below = summed(np.diff(self.rows_below)[rows]), summed(np.diff(self.columns_below)[columns])
        return OfMargins(self.shape, chances, *below, self.fixed)

    def keys(self, rects: Ints) -> Ints:
        return rects

    def _margin_nonzeros(self, rects: Ints) -> tuple[Floats, Floats]:
        """Return the nonzeros of the rows, and of the columns, that each rectangle covers."""
        row, column, height, width = rects.T
        down, across = self.rows_below, self.columns_below
        return down[row + height] - down[row], across[column + width] - across[column]

    def mean(self, rects: Ints) -> Floats:
        rows, columns = self._margin_nonzeros(rects)
        result = np.clip(self.chances.mean.over(rects), 0.0, np.minimum(rows, columns))
        # Counts of whole rows and columns, and of empty ones, are set without rounding errors.
        result = np.where(rects[:, 3] == self.shape[1], rows, result)
        return np.where(rects[:, 2] == self.shape[0], columns, result)

    def _left(self, rects: Ints) -> Floats:
        """Return the fraction of the variance that remains when rows and columns are known."""
        if not self.fixed:
            return np.ones(rects.shape[0])
        total = self.rows_below[-1]
        result = np.ones(rects.shape[0])
        for axis, below in enumerate((self.rows_below, self.columns_below)):
            start, size = rects[:, axis], np.maximum(rects[:, 2 + axis], 1)
            start = np.minimum(start, self.shape[axis] - size)
            held = below[start + size] - below[start]
            one = np.maximum(total - held / size, 1e-300)
            # The variance of all lines but this one; a single line is not reduced.
            result *= np.where(size == 1, 1.0, np.clip((total - held) / one, 0.0, 1.0))
        whole = (rects[:, 2:] == np.array(self.shape)).any(axis=1)
        return np.where(whole, 0.0, result)

    def variance(self, rects: Ints) -> Floats:
        own = np.maximum(self.mean(rects) - self.chances.square.over(rects), 0.0)
        return own * self._left(rects)

    def log_empty(self, rects: Ints) -> Floats:
        """Return that of independent points, times the ratio of P(0) with and without known rows and
        columns."""
        free = np.minimum(self.chances.log_empty.over(rects), 0.0)
        mean = self.mean(rects)
        own = np.maximum(mean - self.chances.square.over(rects), 0.0)
        left = own * self._left(rects)
        result: Floats = free + _log_none(mean, left) - _log_none(mean, own)
        return np.where(mean > 0, np.minimum(result, 0.0), 0.0)

    def sure(self, rects: Ints) -> Floats:
        return np.zeros(rects.shape[0])

    def rows(self, rects: Ints) -> Floats:
        """Return the expected nonempty rows, row by row; if there are many, some represent all."""
        result = np.zeros(rects.shape[0])
        for number, (row, column, height, width) in enumerate(rects.tolist()):
            if not height or not width:
                continue
            step = max(1, height // 1024)
            rows = np.arange(row, row + height, step, dtype=np.int64)
            ones = np.ones_like(rows)
            each = np.stack([rows, column * ones, ones, width * ones], axis=1)
            result[number] = float(-np.expm1(self.log_empty(each)).mean()) * height
        return result


def _log_none(mean: Floats, variance: Floats) -> Floats:
    """Return ln P(0) of the binomial distribution with this mean and variance."""
    zero = np.zeros_like(mean)
    counts = CountLaws(mean, np.minimum(variance, mean), zero, zero, zero)
    return np.maximum(counts.log_plain_empty, -700.0)
