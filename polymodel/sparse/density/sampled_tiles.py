"""Count the nonzeros of those tiles of a tensor that contain drawn nonzeros, and what they say of all tiles.

A nonzero is drawn at random and the nonzeros of its tile are counted, so that the fullest tiles are the most
likely to be drawn. A tile of x nonzeros is among those of n draws out of N with probability
p = 1 - (1 - n/N)^x, so that each drawn tile represents 1/p tiles (Horvitz and Thompson, "A Generalization of
Sampling Without Replacement From a Finite Universe", 1952). These weights are corrected so that all tiles
together hold N nonzeros, by the regression that leaves the least variance (Deville and Sarndal, "Calibration
Estimators in Survey Sampling", 1992).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cached_property
from math import prod

import numpy as np

from polymodel.frozen import dataclass
from polymodel.governor import look
from polymodel.sparse.density.model import Floats, Ints
from polymodel.sparse.tensor import SparseTensor

# The number of drawn nonzeros in the fullest tiles from which the tail is estimated.
_TAIL = 40
# Tiles that one table lists, tiles that 64 bits number, and nonzeros or rows of tiles in a block of work.
_TABLE, _NUMBERED, _BLOCK = 1 << 25, 1 << 62, 1 << 18
# Looking up one row of a tile takes as long as counting so many nonzeros.
_PER_ROW = 16


@dataclass(frozen=True, eq=False)
class Seen:
    """The tiles of one shape that contain drawn nonzeros: the occupancy of each, the number of drawn nonzeros
    in it, whether it is a full-size tile, and the number of tiles that it represents (`weight`)."""

    occupancy: Ints
    draws: Ints
    whole: Floats
    weight: Floats

    @cached_property
    def shares(self) -> tuple[float, float]:
        """The number of nonempty tiles, and the sum of squared occupancies, per nonzero."""
        full = self.occupancy.astype(np.float64)
        nonzeros = float(self.weight @ full)
        return float(self.weight.sum()) / nonzeros, float(self.weight @ full**2) / nonzeros

    def errors(self, nonzeros: float) -> tuple[float, float]:
        """Return the relative standard errors of the means of 1/x and of x over all draws, without
        replacement, out of `nonzeros`. The means estimate the same two quantities as `shares`, with a larger
        variance."""
        number = float(self.draws.sum())
        scale = float((max(0.0, 1 - number / nonzeros) / number) ** 0.5)

        def relative(values: Floats) -> float:
            mean = float(self.draws @ values) / number
            return float((self.draws @ (values - mean) ** 2 / number) ** 0.5 / mean * scale)

        full = self.occupancy.astype(np.float64)
        return relative(1 / full), relative(full)

    def greatest(self, nonzeros: float, room: float) -> float:
        """Estimate the maximum occupancy of all tiles: that of the drawn tiles, extrapolated by an
        exponential tail."""
        top, behind, excess = self.tail(nonzeros)
        if behind <= np.log(2) or top >= room:
            return top
        # The median of the maximum of that many: ln 2 of them are expected beyond it.
        return float(min(top + excess * np.log(behind / np.log(2)), room))

    def tail(self, nonzeros: float) -> tuple[float, float, float]:
        """Return the maximum occupancy drawn, the expected number of equally full tiles that were not drawn,
        and the mean excess of the tail over its start."""
        order = np.argsort(-self.occupancy, kind="stable")[:_TAIL]
        full = self.occupancy[order].astype(np.float64)
        top, share = float(full[0]), min(1.0, float(self.draws.sum()) / nonzeros)
        same = float(self.draws[self.occupancy == self.occupancy[order[0]]].sum())
        behind = same / (share * top) * (1 - share) ** top
        tail = np.repeat(full, np.minimum(self.draws[order], _TAIL))[:_TAIL]
        excess = float(((tail - tail[-1]) / tail).sum() / (1 / tail).sum())
        return top, behind, excess


def tiles_met(tensor: SparseTensor, tile: tuple[int, ...], drawn: Ints) -> Seen:
    """Return the tiles of one shape that contain drawn nonzeros (`drawn`: their places in the list); all
    tiles that contain any, if the tiling has no more tiles than nonzeros were drawn."""
    sizes = np.array(tile, dtype=np.int64)[:, None]
    sides = [-(-s // t) for s, t in zip(tensor.shape, tile, strict=True)]

    def where(part: Ints | slice) -> Ints:
        result: Ints = tensor.coords[:, part] // sizes
        return result

    numbers, cells = _numbering(where, sides)
    if prod(sides) <= drawn.size:
        counts = _counted(numbers, cells, np.arange(cells), tensor.nnz)
        at = np.indices(sides).reshape(len(sides), -1)[:, counts > 0]
        counts = draws = counts[counts > 0]
        weight = np.ones(counts.size)
    else:
        known, first, draws = np.unique(numbers(drawn), return_index=True, return_counts=True)
        at = where(drawn[first])
        few = float(known.size) * tile[0] * _PER_ROW < tensor.nnz
        if len(tile) == 2 and few and tensor.size <= _NUMBERED:
            counts = _looked_up(tensor, at * sizes, tile)
        else:
            counts = _counted(numbers, cells, known, tensor.nnz)
        weight = _weights(counts, drawn.size, tensor.nnz)
    whole = np.ones(counts.size, dtype=bool)
    for row, size, step in zip(at, tensor.shape, tile, strict=True):
        whole &= row < size // step
    return Seen(counts, draws.astype(np.int64), whole.astype(np.float64), weight)


def parts_met(tensor: SparseTensor, parts: Sequence[Ints], drawn: Ints) -> Seen:
    """Return the combinations of parts (one part number per coordinate of each rank) that contain drawn
    nonzeros."""
    sides = [int(part.max(initial=0)) + 1 for part in parts]

    def where(chosen: Ints | slice) -> Ints:
        return np.stack([part[row[chosen]] for part, row in zip(parts, tensor.coords, strict=True)])

    numbers, cells = _numbering(where, sides)
    known, draws = np.unique(numbers(drawn), return_counts=True)
    counts = _counted(numbers, cells, known, tensor.nnz)
    weight = _weights(counts, drawn.size, tensor.nnz)
    return Seen(counts, draws.astype(np.int64), np.ones(counts.size), weight)


Numbers = Callable[[Ints | slice], Ints]


def _numbering(where: Numbers, sides: Sequence[int]) -> tuple[Numbers, int]:
    """Return the function that numbers the tiles of chosen nonzeros, given where these tiles are (ranks x
    nonzeros), and how many numbers there are. Where 64 bits are too few, only tiles with nonzeros have
    numbers."""
    if prod(sides) <= _NUMBERED:

        def numbers(part: Ints | slice) -> Ints:
            result, *rest = where(part)
            for row, side in zip(rest, sides[1:], strict=True):
                result = result * side + row
            return np.asarray(result)

        return numbers, prod(sides)
    every, cells = np.zeros(1, dtype=np.int64), 1
    for row in where(slice(None)):
        compact = np.unique(row, return_inverse=True)[1].reshape(-1)
        every = np.unique(every * (int(compact.max()) + 1) + compact, return_inverse=True)[1].reshape(-1)
        cells = int(every.max()) + 1
    return lambda part: every[part], cells


def _counted(numbers: Numbers, cells: int, known: Ints, nonzeros: int) -> Ints:
    """Return the occupancy of the `known` tiles (their numbers, ascending), counting all nonzeros."""
    result = np.zeros(known.size + 1, dtype=np.int64)
    table = None
    if cells <= _TABLE:
        table = np.full(cells, known.size, dtype=np.int32)
        table[known] = np.arange(known.size, dtype=np.int32)
    for start in range(0, nonzeros, _BLOCK):
        look("counting sampled tiles")
        own = numbers(slice(start, start + _BLOCK))
        if table is not None:
            place = table[own]
        else:
            place = np.minimum(np.searchsorted(known, own), known.size - 1)
            place = place[known[place] == own]
        result += np.bincount(place, minlength=result.size)
    return result[:-1]


def _looked_up(tensor: SparseTensor, starts: Ints, tile: tuple[int, ...]) -> Ints:
    """Return the occupancy of tiles of a matrix that start at these points (2 x tiles), row by row."""
    rows, columns = tensor.shape
    numbers, high = tensor.numbers, min(tile[0], rows)
    result = np.zeros(starts.shape[1], dtype=np.int64)
    ends = np.minimum(starts[1] + tile[1], columns)
    step = max(1, _BLOCK // max(starts.shape[1], 1))
    for begin in range(0, high, step):
        look("counting sampled tiles")
        row = starts[0] + np.arange(begin, min(begin + step, high))[:, None]
        base = np.minimum(row, rows) * columns
        first, last = (np.searchsorted(numbers, base + column) for column in (starts[1], ends))
        result += np.where(row < rows, last - first, 0).sum(axis=0)
    return result


def _weights(counts: Ints, drawn: int, nonzeros: int) -> Floats:
    """Return the number of tiles that each drawn tile represents, at least one. `counts`: the occupancies of
    the drawn tiles; `drawn`: the number of draws out of `nonzeros`."""
    if drawn >= nonzeros:
        return np.ones(counts.size)
    full = counts.astype(np.float64)
    chance = -np.expm1(full * np.log1p(-drawn / nonzeros))
    result = 1 / chance
    # The correction is largest where the variance is: for full tiles that are rarely drawn.
    lean = (1 - chance) / chance**2 * full
    result += (nonzeros - float(result @ full)) * lean / max(float(lean @ full), 1e-300)
    more = np.maximum(result - 1, 0.0)
    others = nonzeros - float(full.sum())
    return 1 + more * (others / float(more @ full)) if float(more @ full) > 0 else np.ones(counts.size)
