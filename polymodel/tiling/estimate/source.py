"""What is known of the data, and the distributions of tiles that follow from it."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass

import numpy as np

from polymodel.integers import distinct_numbers
from polymodel.sparse.density.hypergeometric import Hypergeometric
from polymodel.sparse.density.maxima import cdf_max
from polymodel.sparse.density.model import MOST_POINTS, Floats, Ints
from polymodel.sparse.density.regions import Regions, turned
from polymodel.tiling.estimate.loads import (
    BINS,
    MORE,
    REACH,
    Loads,
    binned,
    either,
    exceedance,
    most_entries,
    written,
)
from polymodel.tiling.fits.fit import Elements, Fit, Op

# Loads of tiles of uniform random data: hypergeometric distributions of the regions of A and B in a tile.
#
# B is A rolled by d rows: its entries in a tile are those of A d rows above the tile. The two regions share
# rows (counted twice) and have rows of their own; occupancies of disjoint regions are jointly hypergeometric.
# So entries of A and B are 2 X + Y, X those of the shared region, Y of the others, and A's own part of Y is
# hypergeometric given Y.

# Largest table of (shared, other) entries that is computed.
_TABLE = 1 << 17
# Longest distribution of one operand that is tabulated.
_LONGEST = 1 << 13


@dataclass(frozen=True)
class EntryLaw:
    """P(entries = first, first + 1, ...) of tiles within capacity, and P(over); no table if the distribution
    is `wide`."""

    first: int
    mass: Floats
    over: float


@dataclass(frozen=True)
class One:
    """One operand: the number of entries among `points` positions."""

    law: Hypergeometric

    def pmf(self, points: int, capacity: int) -> tuple[int, Floats]:
        """Return the first likely value up to capacity, and the probabilities from there on."""
        t = np.array(points)
        mean, spread = float(self.law.mean(t)), float(self.law.variance(t)) ** 0.5
        low = max(0, int(mean - REACH * spread - MORE))
        high = min(points, self.law.nnz, capacity, int(mean + REACH * spread + MORE))
        if high < low:
            return low, np.zeros(0)
        return low, self.law.pmf(points, np.arange(low, high + 1))


def alone(law: Hypergeometric, points: int, capacity: int) -> EntryLaw:
    """The distribution of tiles of one operand."""
    first, mass = One(law).pmf(points, capacity)
    return EntryLaw(first, mass, _rest(mass))


def same(law: Hypergeometric, points: int, capacity: int, op: Op) -> EntryLaw:
    """The distribution if B is A: every entry counts twice."""
    first, mass = One(law).pmf(points, capacity // 2 if op == "add" else capacity)
    doubled = np.zeros(max(0, 2 * mass.size - 1))
    doubled[::2] = mass
    return EntryLaw(2 * first, doubled, _rest(mass))


def independent(a: Hypergeometric, b: Hypergeometric, points: int, capacity: int, op: Op) -> EntryLaw | None:
    """The distribution if B has entries of its own: the convolution of both, each cut at the capacity for
    multiply; None if the tables are too long."""
    first_a, mass_a = One(a).pmf(points, capacity)
    first_b, mass_b = One(b).pmf(points, capacity)
    if not mass_a.size or not mass_b.size:
        return EntryLaw(0, np.zeros(0), 1.0)
    if max(mass_a.size, mass_b.size) > _LONGEST:
        return None
    mass = np.convolve(mass_a, mass_b)
    if op == "add":
        mass = mass[: max(0, capacity - first_a - first_b + 1)]
    return EntryLaw(first_a + first_b, mass, _rest(mass))


def rolled(law: Hypergeometric, shared: int, own: int, capacity: int, op: Op) -> EntryLaw | None:
    """The distribution for `shared` positions that A and B have in common and `own` further ones of each;
    None if the table is too large."""
    limit = capacity // 2 if op == "add" else capacity
    low_x, mass_x = One(law).pmf(shared, limit)
    if not mass_x.size:
        return EntryLaw(0, np.zeros(0), 1.0)
    # Given x entries at the shared positions, the others hold a hypergeometric number of the remaining ones.
    rest, mean = law.points - shared, float(law.mean(np.array(2 * own)))
    spread = float(law.variance(np.array(2 * own))) ** 0.5
    low_y = max(0, int(mean - REACH * spread - MORE))
    high_y = min(2 * own, law.nnz, 2 * capacity, int(mean + REACH * spread + MORE))
    depth = mass_x.size if op == "add" else max(mass_x.size, high_y)
    if (high_y - low_y + 1) * depth > _TABLE:
        return None
    x, y = low_x + np.arange(mass_x.size), np.arange(low_y, max(high_y, low_y - 1) + 1)
    if own:
        others = Hypergeometric(rest, 2 * own)
        table = mass_x[:, None] * others.pmf(np.maximum(law.nnz - x, 0)[:, None], y[None, :])
    else:
        table, y = mass_x[:, None].copy(), np.zeros(1, dtype=np.int64)
    if op == "multiply" and own:
        table *= _both_within(own, y, capacity - x)
    total = 2 * x[:, None] + y[None, :]
    mass: Floats = np.bincount(total.ravel(), table.ravel()).astype(np.float64)
    if op == "add":
        mass = mass[: capacity + 1]
    return EntryLaw(0, mass, _rest(mass))


def _both_within(own: int, y: Ints, limit: Ints) -> Floats:
    """Return (limits, y): P(neither half of `own` positions holds more than the limit), given y entries of
    both together."""
    halves = Hypergeometric(2 * own, own)
    most = int(y.max(initial=0))
    k = np.arange(most + 1)
    below = np.cumsum(halves.pmf(y[:, None], k[None, :]), axis=1)
    cut = np.clip(limit, 0, most)
    # One half is above the limit where the other is below y - limit, which by symmetry is equally likely.
    above = 1 - below[:, cut].T
    result: Floats = np.where(y[None, :] <= limit[:, None], 1.0, 1 - 2 * above)
    return np.where((y[None, :] > 2 * limit[:, None]) | (limit[:, None] < 0), 0.0, np.clip(result, 0.0, 1.0))


def _rest(mass: Floats) -> float:
    rest = 1 - float(mass.sum())
    return rest if rest > 1e-13 else 0.0


# Whether all tiles of one size fit, if neighbouring tiles use the same positions of A for A and for B.
#
# B is A rolled by d rows, so a tile's B is A d rows above it: part of the A of tiles above. For multiply each
# tile requires that two windows of A fit, and the windows of a column of tiles overlap in a chain. For add
# two tiles have some positions in common, each counted once in both. P(all fit) is the product over tiles
# times that over pairs of P(both fit) / (P(one) P(other)): exact for chains, and close for chains of pairs.
#
# If few tiles contain all entries of the matrix, their total matters, and `sampled_fit` draws the entries.
# Boundaries of the tiles of A, and of those of B on the rows of A that B uses, cut A into cells. Numbers of
# entries of cells are jointly hypergeometric; a fixed generator draws them, so that the answer is always the
# same one.


def pairwise_fit(
    law: Hypergeometric, rects: Ints, counts: Floats, room: Ints, by: int, op: Op, plain: float
) -> float:
    """Return P(all tiles fit); `plain`: as if they were independent."""
    log = 0.0 if op == "multiply" else float(np.log(plain))
    for (_, _, height, width), count, capacity in zip(rects.tolist(), counts, room.tolist(), strict=True):
        found = (_windows if op == "multiply" else _linked)(law, height, width, capacity, by)
        if found is None:
            return plain
        log += float(count) * found
    return float(np.exp(min(log, 0.0)))


def _windows(law: Hypergeometric, height: int, width: int, capacity: int, by: int) -> float | None:
    """Return ln P(both windows of a tile fit), given the windows before them in the chain."""
    offset = by % height
    chances = []
    for shared in (height - offset, offset, height):
        found = rolled(law, shared * width, (height - shared) * width, capacity, "multiply")
        if found is None:
            return None
        chances.append(max(1 - found.over, 1e-300))
    return float(np.log(chances[0]) + np.log(chances[1]) - 2 * np.log(chances[2]))


def _linked(law: Hypergeometric, height: int, width: int, capacity: int, by: int) -> float | None:
    """Return ln of P(both fit) / (P(one) P(other)), over the pairs of which a tile is the upper one."""
    offset = by % height
    if by < height:
        # Rows counted twice lie within a tile; it shares `by` rows with the tile below, counted once in each.
        links = [(by, height - by, by)]
    else:
        links = [(rows, 0, 2 * height - rows) for rows in (height - offset, offset) if rows]
    result = 0.0
    for common, double, single in links:
        both = _both(law, common * width, double * width, single * width, capacity)
        if both is None:
            return None
        result += both
    return result


def _both(law: Hypergeometric, common: int, double: int, single: int, capacity: int) -> float | None:
    first, mass = One(law).pmf(common, capacity)
    own = _weighted(law, double, single, capacity)
    if own is None or not mass.size:
        return None
    below = np.cumsum(own)
    inside = below[np.clip(capacity - first - np.arange(mass.size), 0, capacity)]
    alone, pair = float(mass @ inside), float(mass @ inside**2)
    return float(np.log(max(pair, 1e-300)) - 2 * np.log(max(alone, 1e-300)))


def _weighted(law: Hypergeometric, double: int, single: int, capacity: int) -> Floats | None:
    """Return P(2 X + Y = 0 .. capacity), with X entries among `double` positions and Y among `single`
    ones.
    """
    twice, once = np.zeros(capacity + 1), np.zeros(capacity + 1)
    for points, into, factor in ((double, twice, 2), (single, once, 1)):
        first, mass = One(law).pmf(points, capacity // factor)
        if not mass.size:
            return None
        into[factor * (first + np.arange(mass.size))] = mass
    return np.convolve(twice, once)[: capacity + 1]


# Numbers drawn for one answer, most matrices, and numpy's limit for draws without replacement.
_NUMBERS, _MATRICES, _LARGEST = 2_000_000, 20_000, 10**9


def sampled_fit(
    law: Hypergeometric, shape: tuple[int, int], size: tuple[int, int], by: int, room: Ints, op: Op
) -> float:
    """Return P(all tiles fit). `room`: capacity per tile, in row-major order; `by`: the number of rows by
    which B is rolled."""
    rows, cols = shape
    tops = np.arange(0, rows, size[0])
    edges = distinct_numbers(np.concatenate([tops, (tops - by) % rows, [0, (rows - by) % rows, rows]]))
    heights, lefts = np.diff(edges), np.arange(0, cols, size[1])
    widths = np.minimum(size[1], cols - lefts)
    places = (heights[:, None] * widths).ravel()
    draws = int(min(_MATRICES, max(1, _NUMBERS // places.size)))
    generator = np.random.default_rng(0)
    if law.points < _LARGEST:
        found = generator.multivariate_hypergeometric(places, law.nnz, size=draws, method="marginals")
    else:
        found = generator.multinomial(law.nnz, places / law.points, size=draws)
    cells = found.reshape(draws, heights.size, widths.size)
    ours = _of_tiles(edges[:-1] // size[0], cells, tops.size)
    theirs = _of_tiles((edges[:-1] + by) % rows // size[0], cells, tops.size)
    loads = ours + theirs if op == "add" else np.maximum(ours, theirs)
    return float((loads.reshape(draws, -1) <= room).all(axis=1).mean())


def _of_tiles(tile: Ints, cells: Ints, tiles: int) -> Ints:
    """Return entries per draw, row of tiles and column of tiles; `tile`: the row of tiles of each row of
    cells."""
    result = np.zeros((cells.shape[0], tiles, cells.shape[2]), dtype=np.int64)
    for row, into in enumerate(tile.tolist()):
        result[:, into] += cells[:, row]
    return result


# Probabilities that are treated as 0, and the largest capacity whose distributions are tabulated.
_NEVER, _WRITTEN = 1e-12, 20_000
# Number of tiles below which the total of their entries matters.
_FEW = 64


@dataclass(frozen=True, eq=False)
class OperandPair(ABC):
    """Two operands of one shape, under an operation and a fit.

    Rectangles are k x (row, column, height, width).
    """

    shape: tuple[int, int]
    op: Op
    fit: Fit

    @property
    @abstractmethod
    def method(self) -> str:
        """A description of the distributions."""

    @property
    @abstractmethod
    def same(self) -> bool:
        """Whether B is A."""

    @abstractmethod
    def keys(self, rects: Ints) -> Ints:
        """Return rectangles reduced to what determines their distribution: equal keys have the same one."""

    @abstractmethod
    def loads(self, rects: Ints) -> Loads:
        """Return the distribution of each rectangle."""

    def all_fit(self, size: tuple[int, int], rects: Ints, counts: Floats, laws: Loads) -> float:
        """Return P(all tiles of a size fit), as if they were independent; `counts`: the number of tiles with
        each distribution."""
        return together(counts, 1 - np.minimum(laws.over, 1.0), laws.over)

    def distinct(self, rects: Ints) -> tuple[Loads, Ints]:
        """Return the distinct distributions of the rectangles, and the index of the distribution of each
        rectangle."""
        keys, place = np.unique(self.keys(rects), axis=0, return_inverse=True)
        return self.loads(keys), place.reshape(-1)


def together(counts: Floats, fits: Floats, over: Floats) -> float:
    """Return P(all fit) for the given numbers of independent tiles."""
    with np.errstate(divide="ignore"):
        logs = np.where(over < 0.5, np.log1p(-np.minimum(over, 1.0)), np.log(np.maximum(fits, 0.0)))
    return float(np.exp((counts * logs).sum()))


@dataclass(frozen=True, eq=False)
class UniformSource(OperandPair):
    """Uniformly random A; B is A rolled by `rolled` rows, or `second` with independent positions, or absent.

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
        result = rects.copy()
        result[:, :2] = 0
        return result

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
        """Return P(all tiles of a size fit), with the dependence of tiles that use the same positions of
        A.
        """
        plain = super().all_fit(size, rects, counts, laws)
        if plain < _NEVER or plain > 1 - _NEVER:
            return plain
        room = self._room(rects, laws)
        if self.rolled is not None and not self.same:
            by = self.rolled % self.shape[0]
            if counts.sum() <= _FEW:
                return sampled_fit(self.first, self.shape, size, by, self._each(size, rects, room), self.op)
            return pairwise_fit(self.first, rects, counts, room, by, self.op, plain)
        if distinct_numbers(room).size > 1 or room[0] > _WRITTEN:
            return plain
        places, capacity = rects[:, 2] * rects[:, 3], room[:1].astype(np.float64)
        if self.same or (self.rolled is None and self.second is None):
            capacity = capacity // 2 if self.same and self.op == "add" else capacity
            return float(cdf_max(self.first, places, counts, capacity)[0])
        second = self.second or self.first
        if self.op == "multiply":
            if self.mirrored and isinstance(self.fit, Elements):
                # The tiles of B have the contents of those of A, so that all of them fit where all of these
                # do.
                return float(cdf_max(self.first, places, counts, capacity)[0])
            both = [float(cdf_max(law, places, counts, capacity)[0]) for law in (self.first, second)]
            return both[0] * both[1]
        if self.first.nnz != second.nnz or 2 * self.first.points > MOST_POINTS:
            return plain
        # Entries of both at random positions of two matrices; that each has exactly a half has little effect.
        law = Hypergeometric(2 * self.first.points, 2 * self.first.nnz)
        return float(cdf_max(law, 2 * places, counts, capacity)[0])

    def _room(self, rects: Ints, laws: Loads) -> Ints:
        places = rects[:, 2] * rects[:, 3]
        return most_entries(self.fit, self.op, laws.height, laws.width, places, laws.share, self.same)

    def _each(self, size: tuple[int, int], rects: Ints, room: Ints) -> Ints:
        """Return the capacity of each tile in row-major order, given the capacity of each kind."""
        extents = [
            np.minimum(one, total - np.arange(0, total, one))
            for one, total in zip(size, self.shape, strict=True)
        ]
        kinds = {(int(h), int(w)): int(c) for (_, _, h, w), c in zip(rects.tolist(), room, strict=True)}
        return np.array([kinds[int(h), int(w)] for h in extents[0] for w in extents[1]], dtype=np.int64)

    def shared_rows(self, height: Ints) -> Ints:
        """Return the rows of A that a tile uses for both operands."""
        if self.rolled is None:
            return np.zeros_like(height)
        rows, by = self.shape[0], self.rolled % self.shape[0]
        wrapped = np.maximum(0, height - rows + by) if by else 0
        result: Ints = (np.maximum(0, height - by) + wrapped).astype(np.int64)
        return result

    def _moments(self, rects: Ints) -> tuple[Floats, Floats, Floats]:
        """Return the mean and variance of the entries of A and B together, and the fraction of A."""
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
        """Return the variance of the entries of A minus those of B, per entry of both: only those that they
        do not share differ."""
        if self.rolled is None:
            full = self.first.nnz / self.first.points
            return 4 * share * (1 - share) * (1 - full)
        rows = rects[:, 2]
        result: Floats = (rows - self.shared_rows(rows)) / rows * (1 - self.first.nnz / self.first.points)
        return result

    def _law(self, height: int, width: int, capacity: int) -> EntryLaw | None:
        """Return the tabulated distribution, or None if it is too wide."""
        places = height * width
        if self.second is not None:
            return independent(self.first, self.second, places, capacity, self.op)
        if self.rolled is None:
            return alone(self.first, places, capacity)
        if self.same:
            return same(self.first, places, capacity, self.op)
        common = int(self.shared_rows(np.array(height))) * width
        return rolled(self.first, common, places - common, capacity, self.op)

    def _smooth(self, rects: Ints, room: Ints) -> Floats:
        """Return P(over) from mean and variance, for distributions that are too wide to be tabulated."""
        mean, variance, _ = self._moments(rects)
        if self.op == "add":
            return exceedance(room, mean, variance)
        places = rects[:, 2] * rects[:, 3]
        ours = self.first.mean(places), self.first.variance(places)
        second = self.second or self.first
        theirs = second.mean(places), second.variance(places)
        return either(room, ours, theirs, (variance - ours[1] - theirs[1]) / 2)


# Loads of tiles by mean and variance, for models with known positions or without uniformity.


@dataclass(frozen=True, eq=False)
class MomentSource(OperandPair):
    """A and B under any models. `rolled`: B is A with its rows moved down by this number; `second`: the model
    of B, `swapped` if it describes the transposed matrix; without either there is no B."""

    first: Regions
    rolled: int | None
    second: Regions | None
    swapped: bool = False

    @property
    def method(self) -> str:
        return "worked out from means and variances"

    @property
    def same(self) -> bool:
        return self.rolled is not None and self.rolled % self.shape[0] == 0

    def keys(self, rects: Ints) -> Ints:
        if self.second is None:
            return self.first.keys(rects)
        ours = self.first.keys(rects)
        theirs = turned(self.second.keys(turned(rects))) if self.swapped else self.second.keys(rects)
        return np.maximum(ours, theirs)

    def loads(self, rects: Ints) -> Loads:
        mean_a, var_a, rows_a = (f(rects) for f in (self.first.mean, self.first.variance, self.first.rows))
        mean_b, var_b, rows_b, together = self._other(rects)
        mean, variance = mean_a + mean_b, np.maximum(var_a + var_b + 2 * together, 0.0)
        share = np.where(mean > 0, mean_a / np.maximum(mean, 1e-300), 1.0 if self._single else 0.5)
        places, width = rects[:, 2] * rects[:, 3], rects[:, 3].astype(np.float64)
        height = _height(rects, np.where(mean_a >= mean_b, mean_a, mean_b), np.maximum(rows_a, rows_b))
        room = most_entries(self.fit, self.op, height, width, places, share, self.same)
        apart = np.maximum(var_a + var_b - 2 * together, 0.0) / np.maximum(mean, 1e-300)
        if self.op == "add":
            over, both = exceedance(room, mean, variance), room.astype(np.float64)
        else:
            over = either(room, (mean_a, var_a), (mean_b, var_b), together)
            both = room / np.maximum(share, 1 - share)
        # A tile with space for all of its positions never overflows, although a distribution by moments may
        # exceed it.
        every = places if self.op == "multiply" or self._single else 2 * places
        over = np.where(room >= every, 0.0, over)
        entries, mass = written(both, mean, variance, 1 - over)
        return Loads(over, entries, mass, mean, variance, share, both, apart, height, width)

    @property
    def _single(self) -> bool:
        return self.rolled is None and self.second is None

    def _other(self, rects: Ints) -> tuple[Floats, Floats, Floats, Floats]:
        """Return mean, variance and rows of B, and its covariance with A."""
        none = np.zeros(rects.shape[0])
        if self._single:
            return none, none, none, none
        if self.second is not None:
            if not self.swapped:
                result = self.second.mean(rects), self.second.variance(rects), self.second.rows(rects)
                return *result, none
            there = turned(rects)
            mean = self.second.mean(there)
            height = rects[:, 2].astype(np.float64)
            rows: Floats = height * -np.expm1(-mean / np.maximum(height, 1.0))
            return mean, self.second.variance(there), rows, none
        total, by = self.shape[0], (self.rolled or 0) % self.shape[0]
        start, stop = rects[:, 0], rects[:, 0] + rects[:, 2]
        # Rows start - by .. of A, in the two parts before and after the end of the roll.
        above = _rows(rects, np.maximum(start - by, 0), np.maximum(stop - by, 0))
        wrapped = _rows(rects, np.minimum(start - by + total, total), np.minimum(stop - by + total, total))
        parts = (above, wrapped)
        mean = self.first.mean(above) + self.first.mean(wrapped)
        variance = self.first.variance(above) + self.first.variance(wrapped)
        rows = self.first.rows(above) + self.first.rows(wrapped)
        shared: Floats = none
        for part in parts:
            low = np.maximum(part[:, 0], start)
            high = np.maximum(np.minimum(part[:, 0] + part[:, 2], stop), low)
            shared = shared + self.first.variance(_rows(rects, low, high))
        return mean, variance, rows, shared


def _rows(rects: Ints, low: Ints, high: Ints) -> Ints:
    """Return the same columns in rows low .. high - 1; an empty part begins within the matrix."""
    height = np.maximum(high - low, 0)
    start = np.where(height > 0, low, 0)
    return np.stack([start, rects[:, 1], height, rects[:, 3]], axis=1)


def _height(rects: Ints, mean: Floats, rows: Floats) -> Floats:
    """Return the number of rows h over which uniformly distributed entries would leave the same number of
    rows nonempty: h (1 - e^(-n/h))."""
    top = rects[:, 2].astype(np.float64)
    low, high = np.zeros_like(top), top
    for _ in range(40):
        middle = (low + high) / 2
        few = middle * -np.expm1(-mean / np.maximum(middle, 1e-12)) < rows
        low, high = np.where(few, middle, low), np.where(few, high, middle)
    return np.maximum(high, 1e-9)
