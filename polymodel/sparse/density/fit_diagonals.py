"""Fit the diagonals of a matrix, each with its own density and its periodic gap."""

from __future__ import annotations

from math import log

import numpy as np

from polymodel.sparse.density.diagonal_gaps import Gap, PeriodicGaps, mirrored
from polymodel.sparse.density.diagonals import Diagonals
from polymodel.sparse.density.model import Ints
from polymodel.sparse.density.observed import Bools, Observed

# The most diagonals that are distinguished, the most of them times rows and columns (tiles of one row are
# evaluated for each), and how far above the background one has to be.
_DIAGONALS, _WORK, _ABOVE, _TIMES = 4096, 1 << 28, 5.0, 2.0
# The most diagonals of which gaps are looked for, and periods at the beginning of each that are examined.
_GAPPED, _PERIODS = 32, 256
# Rows of a period are a gap if they have this share of the usual nonzeros at most, and if no chance but one
# of e^-8 leaves any row of a period without.
_EMPTY, _SURE = 0.1, 8.0


def diagonals(seen: Observed) -> Diagonals | None:
    """Fit the diagonals that are denser than the rest, each with its own density and gap; None if there are
    none, or too many."""
    rows, columns = seen.shape
    away = seen.tensor.coords[1] - seen.tensor.coords[0]
    numbers = np.bincount(away + (rows - 1), minlength=1)
    offsets = np.flatnonzero(numbers)
    counts, offsets = numbers[offsets], offsets - (rows - 1)
    kept = _denser(seen, offsets, counts)
    if not 0 < kept.sum() <= min(_DIAGONALS, _WORK // (rows + columns)):
        return None
    found, both_ways = offsets[kept], seen.symmetric()
    gaps = _gaps(seen, found, away, both_ways) if found.size <= _GAPPED else {}
    space = seen.open_diagonals(found)
    on = counts[kept].astype(np.float64)
    table = PeriodicGaps.of(found.tolist(), [(o, *gap) for o, gap in gaps.items()])
    first = np.maximum(0, -found)
    last = np.minimum(rows, columns - found)
    space *= 1 - table.within(first, last) / np.maximum(last - first, 1)
    for place in np.flatnonzero(table.length):
        on[place] -= table.at(int(place), seen.tensor.coords[0][away == found[place]]).sum()
    left = float(rows) * columns * seen.share() - float(space.sum())
    rest = (seen.tensor.nnz - float(on.sum())) / left if left > 0 else 0.0
    fill = np.minimum(on / np.maximum(space, 1.0), 1.0)
    if both_ways:
        share = dict(zip(found.tolist(), fill.tolist(), strict=True))
        both = sorted({away for offset in share for away in (offset, -offset)})
        found = np.array(both, dtype=np.int64)
        fill = np.array([(share.get(o, rest) + share.get(-o, rest)) / 2 for o in both])
    told = found.tolist(), fill.tolist(), min(rest, 1.0), both_ways, [(o, *gap) for o, gap in gaps.items()]
    return Diagonals.of(seen.tensor.ranks, seen.shape, *told)


def _denser(seen: Observed, offsets: Ints, counts: Ints) -> Bools:
    """Return which diagonals have clearly more nonzeros than all points together."""
    rows, columns = seen.shape
    length = np.minimum(rows, columns - offsets) - np.maximum(0, -offsets)
    points, result = float(rows) * columns * seen.share(), np.zeros(offsets.size, dtype=bool)
    space = length * seen.share()
    for _ in range(4):
        left = max(points - float(space[result].sum()), 1.0)
        usual = max(float(counts[~result].sum()), 0.5) / left * space
        before = result
        result = (counts > _TIMES * usual) & (counts > usual + _ABOVE * np.sqrt(usual) + 2)
        if (result == before).all():
            break
    return result


def _gaps(seen: Observed, offsets: Ints, away: Ints, both_ways: bool) -> dict[int, Gap]:
    """Return the gaps of these diagonals. Periods are distances of diagonals, or one more or less: the
    columns of a grid are as far from its rows' beginnings as the cell below is from a cell."""
    distances = np.unique(np.abs(offsets))
    periods = sorted({int(d) + more for d in distances for more in (-1, 0, 1) if d + more >= 2})
    result: dict[int, Gap] = {}
    for offset in offsets.tolist():
        if both_ways and -offset in result:
            result[offset] = mirrored(-offset, result[-offset])
            continue
        rows = seen.tensor.coords[0][away == offset]
        found = [gap for period in periods if (gap := _gap(seen, offset, rows, period)) is not None]
        if found:  # a wrong period leaves a part of the gap
            result[offset] = max(found, key=lambda gap: gap[2] / gap[0])
    if both_ways:
        result |= {-offset: mirrored(offset, gap) for offset, gap in result.items()}
    return result


def _gap(seen: Observed, offset: int, rows: Ints, period: int) -> Gap | None:
    """Return the gap of a diagonal that repeats after so many rows; None unless the rows without nonzeros are
    consecutive, are less than half of a period, and are not empty by chance. `rows`: those of its nonzeros,
    in ascending order."""
    first = max(0, -offset)
    last = min(seen.shape[0], seen.shape[1] - offset, first + _PERIODS * period)
    if last - first < 3 * period:
        return None
    every = np.arange(first, last)
    if seen.seen is not None:
        every = every[seen.seen(every, every + offset)]
    there = np.bincount(rows[: np.searchsorted(rows, last)] % period, minlength=period)
    possible = np.bincount(every % period, minlength=period)
    if not possible.all():
        return None
    usual = min(float(np.median(there / possible)), 1 - 1e-9)
    empty = there <= _EMPTY * usual * possible
    if not empty.any() or 2 * empty.sum() > period or usual <= 0:
        return None
    if -np.log1p(-usual) * float(possible.min()) < log(period) + _SURE:
        return None
    starts = np.flatnonzero(empty & ~np.roll(empty, 1))
    return (period, int(starts[0]), int(empty.sum())) if starts.size == 1 else None
