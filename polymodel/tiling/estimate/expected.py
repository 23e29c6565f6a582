"""The result of an estimate, and the expected leaves of trees and expected strips."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from polymodel.errors import Refused
from polymodel.sparse.density.model import Floats, Ints, Label
from polymodel.tiling.estimate.loads import Loads, exceedance, launched, tokens
from polymodel.tiling.estimate.source import OperandPair
from polymodel.tiling.fits.fit import Elements, Op

# The result of an estimate.


@dataclass(frozen=True)
class Estimate:
    """The expected tiling of data that are described by a density model only.

    `tiles`: all tiles; `nonempty`: those where A or B has entries; `kernels`: those launched. Cycles: to
    configure the kernels, to run them, and both. `label`: `expected`, `exact` where the model determines the
    data, or `bound`. `method`: a description of the derivation; `notes`: approximations.
    """

    tiler: str
    op: str
    tiles: float
    nonempty: float
    kernels: float
    config_cycles: float
    run_cycles: float
    label: Label
    method: str
    notes: tuple[str, ...] = ()

    @property
    def total_cycles(self) -> float:
        return self.config_cycles + self.run_cycles


@dataclass(frozen=True)
class Sums:
    """Expected sums over the tiles of a tiling: the number of all tiles, of nonempty ones and of those that
    can have a result (`useful`), and the cycles of the latter without ramps."""

    tiles: float
    nonempty: float
    useful: float
    tokens: float
    method: str
    notes: tuple[str, ...] = ()


# Expected leaves of quad trees and binary trees.
#
# The positions of a tree's cuts do not depend on the data, only whether a cut is made; and as loads grow with
# rectangles, a node of the full hierarchy is split exactly if its own load exceeds the capacity. So
#
#     E[tiles] = 1 + sum over nodes of (children - 1) P(load > capacity)
#
# and a child is a tile if it fits and its parent does not, with probability P(child fits) - P(parent fits).
# Nodes with the same distribution are combined: the hierarchy has a few sizes per level.

# Splits with an expected number below this fraction of all tiles are ignored.
_LEAST = 1e-9
_MOST = 1 << 22


@dataclass(eq=False)
class _Total:
    tiles: float = 0.0
    nonempty: float = 0.0
    useful: float = 0.0
    tokens: float = 0.0

    def add(self, source: OperandPair, laws: Loads, mass: Floats) -> None:
        """Add tiles with these distributions; `mass`: the expected number of tiles for each number of
        entries."""
        run = launched(source.op, laws.entries, laws.share[:, None], source.same)
        each = tokens(source.op, laws, source.same)
        self.tiles += float(mass.sum())
        self.nonempty += float((mass * (laws.entries > 0.5)).sum())
        self.useful += float((mass * run).sum())
        self.tokens += float((mass * each).sum())


def tree(source: OperandPair, binary: bool) -> Sums:
    """Return expected sums over the leaves of the binary tree or the quad tree."""
    rects = np.array([[0, 0, *source.shape]], dtype=np.int64)
    count, total = np.ones(1), _Total()
    laws, place = source.distinct(rects)
    total.add(source, laws, laws.mass)
    while True:
        busy = count * laws.over[place] > _LEAST * max(1.0, total.tiles)
        rects, count, own = rects[busy], count[busy], place[busy]
        if not rects.size:
            return Sums(total.tiles, total.nonempty, total.useful, total.tokens, source.method)
        if (rects[:, 2] * rects[:, 3] == 1).any():
            message = f"{source.fit.capacity} {source.fit.unit} do not hold a single entry"
            raise Refused(message, "give more", code="over-capacity")
        children, parent = halved(rects, binary)
        parents = laws.taken(own[parent])
        laws, place = source.distinct(children)
        mass = split_mass(source.op, parents, laws.taken(place)) * count[parent][:, None]
        total.add(source, laws.taken(place), mass)
        rects, count = _grouped(source, children, count[parent])
        if rects.shape[0] > _MOST:
            message = f"more than {_MOST} kinds of tiles"
            raise Refused(message, "estimate with a model that knows less", code="too-large")
        laws, place = source.distinct(rects)


def halved(rects: Ints, binary: bool) -> tuple[Ints, Ints]:
    """Return the children of each rectangle, and the indices of their parents."""
    height, width = rects[:, 2], rects[:, 3]
    top = np.where(height > 1, height // 2, height)
    left = np.where(width > 1, width // 2, width)
    if binary:
        wide = (width > height) | (height == 1)
        top, left = np.where(wide, height, top), np.where(wide, left, width)
    parts = []
    for lower in (False, True):
        for right in (False, True):
            row = rects[:, 0] + top * lower
            col = rects[:, 1] + left * right
            parts.append((row, col, height - top if lower else top, width - left if right else left))
    table = np.stack([np.stack(p, axis=1) for p in parts], axis=1).reshape(-1, 4)
    parent = np.repeat(np.arange(rects.shape[0]), 4)
    real = (table[:, 2] > 0) & (table[:, 3] > 0)
    return table[real], parent[real]


def split_mass(op: Op, parents: Loads, children: Loads) -> Floats:
    """Return P(a child fits with this number of entries, and its parent does not), for each child.

    The sum over entries is P(child fits) - P(parent fits). It is distributed over the number of entries in
    proportion to the probability that the parent then overflows: given the entries of its child, the entries
    of the parent are a count whose mean grows with them and whose variance is the unexplained part.
    """
    from scipy.special import ndtri

    slope = parents.variance * children.mean / np.maximum(parents.mean * children.variance, 1e-300)
    slope = np.minimum(slope, 1.0)[:, None]
    mean = parents.mean[:, None] + slope * (children.entries - children.mean[:, None])
    left = np.maximum(parents.variance[:, None] - slope**2 * children.variance[:, None], 0.0)
    room = parents.room
    if op == "multiply":
        # The fuller operand decides: the entries of both together determine it up to a deviation.
        own = parents.apart * parents.mean
        room = parents.mean - np.sqrt(parents.variance + own) * ndtri(np.clip(parents.over, 1e-15, 1 - 1e-15))
        left = left + own[:, None]
    room = np.where(parents.over > 1 - 1e-9, -1.0, room)[:, None]
    weight = children.mass * (exceedance(np.floor(room), np.maximum(mean, 1e-9), left) + 1e-30)
    wanted = np.maximum(children.fits - parents.fits, 0.0)
    result: Floats = weight * (wanted / np.maximum(weight.sum(axis=1), 1e-300))[:, None]
    return result


def _grouped(source: OperandPair, rects: Ints, count: Floats) -> tuple[Ints, Floats]:
    """Return one rectangle for each distribution, with the number of such rectangles."""
    keys, place = np.unique(source.keys(rects), axis=0, return_inverse=True)
    number: Floats = np.bincount(place.reshape(-1), count, keys.shape[0]).astype(np.float64)
    return keys, number


# Expected tiles of strips: as many whole lines as fit, again and again; heavy lines are cut across.
#
# A strip reaches k lines if the rectangle of its first k lines fits, so its length T has P(T >= k) =
# P(load(k lines) <= capacity), except that its first line is the one that overflowed the previous strip: that
# line is heavier than others, by its variance over its mean if strips are long. The number of strips that
# cover the matrix is a renewal count: in lines if strips are short, in entries (whose total is known) if they
# are long.

# Lengths at which the distribution of a strip is evaluated, strips counted one by one, and short lengths.
_LENGTHS, _COUNTED, _SHORT = 40, 200, 6
_NEVER, _SURELY = 1e-9, 1e-12
# Nodes of a rule over a normal deviation, and the mean of its absolute value.
_NODES, _MEAN_DEVIATION = 24, 0.798


@dataclass(frozen=True)
class _Lines:
    """Lines of a rectangle: `many` rows of `cross` columns each (or columns of `cross` rows)."""

    source: OperandPair
    many: int
    cross: int
    columns: bool

    def loads(self, lengths: Ints) -> Loads:
        cross = np.full_like(lengths, self.cross)
        zero = np.zeros_like(lengths)
        size = (cross, lengths) if self.columns else (lengths, cross)
        return self.source.loads(np.stack([zero, zero, *size], axis=1))

    def at(self, length: float) -> Loads:
        """Return the distribution of a typical strip of `length` lines with the average number of entries."""
        one = self.loads(np.ones(1, dtype=np.int64))
        entries = one.mean * length
        grown = {"width": one.width * length} if self.columns else {"height": one.height * length}
        return replace(
            one, entries=entries[:, None], mass=np.ones((1, 1)), mean=entries,
            room=np.maximum(self._room(length), entries), **grown,
        )  # fmt: skip

    def tokens(self, length: float) -> float:
        """Return the cycles of a typical strip of `length` lines, without its ramp."""
        if length < 1e-6:
            return 0.0
        return float(tokens(self.source.op, self.at(length), self.source.same)[0, 0])

    def launched(self, length: float) -> float:
        """Return P(a typical strip of `length` lines can have a result)."""
        laws = self.at(length)
        return float(launched(self.source.op, laws.entries, laws.share[:, None], self.source.same)[0, 0])

    def _room(self, length: float) -> Floats:
        return self.loads(np.array([max(1, round(length))], dtype=np.int64)).room


@dataclass(frozen=True)
class _Strips:
    """Strips of lines: the expected number of tiles and of tiles that can have a result, and the cycles
    without ramps."""

    tiles: float
    useful: float
    tokens: float


def strips(source: OperandPair, columns: bool) -> Sums:
    """Return expected sums over strips of rows, or of columns."""
    rows, cols = source.shape
    lines = _Lines(source, cols, rows, True) if columns else _Lines(source, rows, cols, False)
    whole = source.loads(np.array([[0, 0, rows, cols]], dtype=np.int64))
    over = float(whole.over[0])
    one = float((whole.mass * tokens(source.op, whole, source.same)).sum())
    some = float((whole.mass * (whole.entries > 0.5)).sum())
    run = launched(source.op, whole.entries, whole.share[:, None], source.same)
    alone = float((whole.mass * run).sum())
    result = _covered(lines) if over > _NEVER else _Strips(0.0, 0.0, 0.0)
    cut = max(result.tiles, 2.0) * over
    useful = alone + cut * result.useful / max(result.tiles, 1.0)
    notes = ("lengths of strips as if drawn one by one",)
    return Sums(1 - over + cut, some + cut, useful, one + over * result.tokens, source.method, notes)


def _covered(lines: _Lines) -> _Strips:
    """Return the strips that cover all lines, if one strip does not."""
    lengths = np.arange(1, min(lines.many, 2) + 1, dtype=np.int64)
    first = lines.loads(lengths)
    heavy = float(first.over[0])
    across = _Strips(0.0, 0.0, 0.0)
    if heavy > _NEVER and lines.cross > 1:
        # A line that is too heavy by itself is cut into strips of single positions.
        across = _covered(_Lines(lines.source, lines.cross, 1, not lines.columns))
    if heavy > 1 - _NEVER:
        return _Strips(*(n * lines.many for n in (across.tiles, across.useful, across.tokens)))
    length = _length(lines, heavy)
    light = lines.many * (1 - heavy)
    if heavy > _NEVER:
        number = light / length.mean
    elif length.mean <= _SHORT:
        number = _renewals(lines.many, length)
    else:
        number = _in_entries(lines, first, length.mean)
    # Strips of the average length, and a last one with the remaining lines.
    mean = min(length.mean, light)
    full = np.floor(light / mean + 1e-9)
    cost = full * lines.tokens(mean) + lines.tokens(light - full * mean) + heavy * lines.many * across.tokens
    pieces = heavy * lines.many * max(2.0, across.tiles)
    useful = number * lines.launched(mean) + pieces * across.useful / max(across.tiles, 1.0)
    return _Strips(number + pieces, useful, cost)


@dataclass(frozen=True)
class _Length:
    """P(T >= k) of the number of lines of a strip, for k = first, first + 1, ... where it is tabulated (up to
    `reach`)."""

    mean: float
    variance: float
    first: int
    reach: Floats


def _length(lines: _Lines, heavy: float) -> _Length:
    """Return the distribution of the length of a strip that begins with a line that fits."""
    grid = _grid(lines)
    laws = lines.loads(grid)
    one = lines.loads(np.ones(1, dtype=np.int64))
    bias = float(one.variance[0] / max(one.mean[0], 1e-300))
    reach = np.where(grid > 1, _with_more(laws, bias), laws.fits)
    reach = np.minimum(np.minimum.accumulate(reach) / max(1 - heavy, 1e-300), 1.0)
    first, last = int(grid[0]), int(grid[-1])
    # It is interpolated linearly between the points of the grid, and is 1 before them.
    step = max(1, (last - first) // 4096)
    k = np.arange(first, last + 1, step, dtype=np.float64)
    each = np.interp(k, grid, reach)
    mean = first - 1 + float(each.sum()) * step
    second = (first - 1) ** 2 + float(((2 * k - 1) * each).sum()) * step
    return _Length(max(mean, 1.0), max(second - mean**2, 0.0), first, each if step == 1 else np.zeros(0))


def _with_more(laws: Loads, more: float) -> Floats:
    """Return P(this number of additional entries still fits)."""
    from scipy.special import ndtr, ndtri

    wide = np.sqrt(laws.variance + laws.apart * laws.mean)
    over = np.clip(laws.over, 1e-15, 1 - 1e-15)
    # The distribution is shifted by `more` relative to its spread; without a spread it remains a step.
    moved = 1 - ndtr(ndtri(over) + more / np.maximum(wide, 1e-9))
    result: Floats = np.where((laws.over > 0) & (laws.over < 1), moved, 1 - laws.over)
    return result


def _grid(lines: _Lines) -> Ints:
    """Return lengths between those that surely fit and those that surely do not."""
    if not isinstance(lines.source.fit, Elements):
        # Rows take space as well, so the number of entries that fit depends on the length.
        rough = np.unique(np.geomspace(1, lines.many, _LENGTHS).astype(np.int64))
        over = lines.loads(rough).over
        first = int(rough[over <= _SURELY].max(initial=1))
        last = int(rough[over >= 1 - _SURELY].min(initial=lines.many))
        return np.unique(np.linspace(first, last, min(_LENGTHS, last - first + 1)).astype(np.int64))
    one = lines.loads(np.ones(1, dtype=np.int64))
    mean, variance = max(float(one.mean[0]), 1e-300), float(one.variance[0])
    most = float(lines.loads(np.array([lines.many], dtype=np.int64)).room[0])
    least = min(float(one.room[0]), most)
    # Entries of k lines are k means, within 7 deviations (lines of both operands share some) and a margin.
    spread = 7 * np.sqrt(2 * variance / mean * max(most, 1.0)) + 12
    low = int(max(1, min(lines.many, (least - spread) / mean)))
    high = int(max(low, min(lines.many, (most + spread) / mean + 1)))
    return np.unique(np.linspace(low, high, min(_LENGTHS, high - low + 1)).astype(np.int64))


def _renewals(many: int, length: _Length) -> float:
    """Return the expected number of strips that cover `many` lines, for independent lengths."""
    mean, variance = length.mean, length.variance
    if many > _COUNTED * mean or not length.reach.size:
        return many / mean + (variance + mean**2 - mean) / (2 * mean**2)
    reach = np.concatenate([np.ones(length.first), length.reach[1:], np.zeros(1)])
    law = np.zeros(many + 1)
    law[1 : reach.size + 1] = (reach[: many + 1] - np.append(reach, 0.0)[1 : many + 2])[:many]
    number, done = 0.0, np.zeros(many)
    done[0] = 1.0
    while (short := float(done.sum())) > 1e-9:
        number += short
        done = np.convolve(done, law)[:many]
    return number


def _in_entries(lines: _Lines, one: Loads, mean: float) -> float:
    """Return the expected number of strips, counted by the entries that they take, plus one where the rest
    overflows."""
    from scipy.special import ndtr

    each, variance = float(one.mean[0]), float(one.variance[0])
    every = lines.loads(np.array([lines.many], dtype=np.int64))
    typical = lines.loads(np.array([max(1, round(mean))], dtype=np.int64))
    total, fill = float(every.mean[0]), each * mean
    last = max(float(typical.room[0]), fill)
    # The unused space of a full strip is a part of the line that overflows.
    spread = (variance + each**2) / (3 * each) * (1 + each) - ((variance + each**2) / (2 * each)) ** 2
    number = np.arange(0, int(min(2 * total / fill, 2 * _COUNTED)) + 20)
    left = np.maximum(total - number * fill, 0.0)
    if lines.source.op == "multiply":
        # The fuller operand must fit; with known totals of both, the rest differs as much as the used part.
        known = 1 - min(float(every.variance[0]) / max(total, 1e-300), 1.0)
        apart = np.sqrt(float(typical.apart[0]) * left * (1 - known * left / max(total, 1e-300)))
    else:
        apart = np.zeros_like(left)
    if total > _COUNTED * fill:
        # Far from the end only the excess of the last strip over the others matters.
        return (total - last + float(apart[1]) * _MEAN_DEVIATION) / fill + 1.5
    wide = np.sqrt(np.maximum(number * max(spread, 0.0) + float(every.variance[0]), 1e-6))
    nodes, weights = np.polynomial.hermite_e.hermegauss(_NODES)
    excess = total - last - 0.5 - number * fill + np.abs(nodes)[:, None] * apart
    return 1 + float((weights @ ndtr(excess / wide)).sum() / weights.sum())
