"""Divide the plane into panels, and each panel into strips of its rows (or columns).

A full strip leaves half a line unused on average, so that short lines waste less: with P panels a line is a
P-th of a row, but the last strip of each panel is half empty. The best panels are found by a search.

Panels of unequal width are chosen so that the strips in them waste the least. The plane is divided into many
narrow units, and a panel is a run of units. The number of strips of each run is counted for all runs at once,
from prefix sums per unit and line; the runs with the fewest strips are a shortest path from the first unit to
the last.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from functools import cache, partial

import numpy as np

from polymodel.integers import distinct_numbers
from polymodel.tiling.cost.model import lower_bound
from polymodel.tiling.fits.fit import Elements, Fit, Op, Words, check_empty
from polymodel.tiling.plane.pattern import Cut, Index, Ints, Pattern
from polymodel.tiling.tilers.lines import summed
from polymodel.tiling.tilers.strips import StripPanels, WholePlane, in_panels, strips_needed

# Numbers of panels tried first, each about 4/3 of the one before; then those around the best.
_COARSE = (1, 2, 3, 4, 6, 8, 11, 15, 20, 27, 36, 48, 64, 85, 113, 151)
# If strips of the whole plane are within this factor of the bound, the plane is not divided.
_NEAR = 1.01
# Lines are counted one by one while they are not many more than the points.
_EVERY = 1 << 16
# Above this number of points only one number of panels is tried, which follows from the mean line.
_SEARCHED = 200_000
# A search ends after this many numbers in a row that are no better.
_FINE = 3


def panels(pattern: Pattern, op: Op, fit: Fit, whole: WholePlane | None = None) -> Cut:
    """Return the cut with the fewest tiles over panels of rows and of columns, with unequal panels and with
    several numbers of about equal panels.

    Raises SpecError where a single entry does not fit. Fits whose loads are not sums over lines are tried
    with fewer numbers of panels, and with panels of columns only. `whole`: stores what `strips` needs as
    well.
    """
    check_empty(pattern, op, fit)
    whole = whole or WholePlane()
    sides = (False, True) if type(fit) is Elements else (False,)
    plain = [whole.panels(pattern, fit, by_columns) for by_columns in sides]
    found = [(strips_needed(panel, op, fit), panel) for panel in plain]
    fewest = min(tiles for tiles, _ in found)
    if type(fit) is not Elements or fewest > _NEAR * lower_bound(pattern, op, fit):
        for by_columns in sides:
            found += _divided(pattern, op, fit, by_columns)
    best = min(found, key=lambda f: f[0])[1]
    if best in plain:
        return replace(whole.cut(pattern, op, fit, best.by_columns), tiler="panels")
    return in_panels(best, op, fit, "panels")


def _divided(pattern: Pattern, op: Op, fit: Fit, by_columns: bool) -> list[tuple[int, StripPanels]]:
    """Return unequal panels, or about equal ones where unequal ones cannot be chosen, with their number of
    tiles."""
    edges = unequal_edges(pattern, op, fit, by_columns) if summed(fit) else None
    if edges is not None:
        uneven = StripPanels.of(pattern, edges, by_columns, fit)
        return [(strips_needed(uneven, op, fit), uneven)]
    numbers = _numbers(pattern, fit, by_columns)
    # With few points, or one number, the panels of the best number are still in the cache.
    made = cache(partial(_made, pattern, by_columns, fit))
    tried = _searched(lambda number: strips_needed(made(number), op, fit), numbers)
    best = min(tried, key=tried.__getitem__)
    return [(tried[best], made(best))]


def _numbers(pattern: Pattern, fit: Fit, by_columns: bool) -> list[int]:
    """Return the numbers of panels to try, smallest first."""
    most = min(pattern.shape[0 if by_columns else 1], max(pattern.points // 64, 1))
    if pattern.points > _SEARCHED:
        # Each of the n / C tiles loses half a line of r / P entries (P panels), and each panel half a tile.
        entries = pattern.nnz_a + pattern.nnz_b
        line = max(entries / pattern.shape[int(by_columns)], 1.0)
        return [min(max(round(math.sqrt(entries * line) / fit.capacity), 1), most)]
    coarse = _COARSE if summed(fit) else _COARSE[:4]
    return [n for n in coarse if n <= most]


def _searched(tiles: Callable[[int], int], numbers: list[int]) -> dict[int, int]:
    """Return the tiles for several numbers of panels: coarse steps until three in a row are no better, then
    numbers around the best."""
    result: dict[int, int] = {}
    best, worse = 0, 0
    for number in numbers:
        result[number] = tiles(number)
        if not best or result[number] < result[best]:
            best, worse = number, 0
        else:
            worse += 1
            if worse == _FINE:
                break
    tried = sorted(result)
    at = tried.index(best)
    below, above = tried[max(at - 1, 0)], tried[min(at + 1, len(tried) - 1)]
    step = max((above - below) // (2 * _FINE), 1)
    for number in range(below + step, above, step):
        if number not in result:
            result[number] = tiles(number)
    return result


def _made(pattern: Pattern, by_columns: bool, fit: Fit, number: int) -> StripPanels:
    return StripPanels.of(pattern, _edges(pattern, number, by_columns), by_columns, fit)


def _edges(pattern: Pattern, number: int, by_columns: bool) -> Ints:
    """Return the edges of panels with about equally many entries, on whole lines."""
    size = pattern.shape[0 if by_columns else 1]
    over = pattern.rows if by_columns else pattern.cols
    if number == 1:
        return np.array([0, size], dtype=np.int64)
    both = over[pattern.in_a & pattern.in_b]
    if size > 4 * pattern.points + _EVERY:  # a count of every line would outgrow the points
        lines, held = np.unique(np.concatenate([over, both]), return_counts=True)
    else:
        held = np.bincount(over, minlength=size) + np.bincount(both, minlength=size)
        lines = np.arange(size, dtype=np.int64)
    upto = np.cumsum(held)
    wanted = upto[-1] * np.arange(1, number) / number
    inner = lines[np.searchsorted(upto, wanted)].astype(np.int64) + 1
    return distinct_numbers(np.concatenate([[0], inner[inner < size], [size]])).astype(np.int64)


# The most sums to evaluate (runs x lines), and the number evaluated at once.
_EFFORT = 20_000_000
_CHUNK = 1 << 20
# Tiles in a unit: the smallest number that keeps within the limit.
_UNITS = (2, 4, 8, 16, 32, 64, 128)
# Runs of every length up to here, then longer ones from some units on; no run of more tiles than this.
_LENGTHS = 12
_LONGER = (16, 24, 32, 48, 64, 96, 128, 192, 256)
_MOST_TILES = 512


def unequal_edges(pattern: Pattern, op: Op, fit: Fit, by_columns: bool) -> Ints | None:
    """Return the edges of unequal panels; None if there are too few tiles, or too many lines.

    For words the strips are counted approximately (the output's rows by those of the union).
    """
    along, over = (pattern.cols, pattern.rows) if by_columns else (pattern.rows, pattern.cols)
    total, capacity = _most(pattern, op, fit)
    lines = _filled(along, pattern.shape[int(by_columns)])
    for tiles in _UNITS:
        units = total // (capacity * tiles)
        if units * lines * (_LENGTHS + 2) <= _EFFORT:
            break
    else:
        return None
    if units < 2:
        return None
    line, weights = _numbered(along, pattern.shape[int(by_columns)]), _weights(pattern, op, fit)
    edges = _units(over, np.sum(weights, axis=0), units, pattern.shape[int(not by_columns)])
    unit = np.searchsorted(edges, over, side="right") - 1
    shape = (edges.size, lines + 1)
    upto: list[Index] = []
    for weight in weights:
        held = np.zeros(shape, dtype=np.int64)
        sums = np.bincount(unit * lines + line, weights=weight, minlength=(edges.size - 1) * lines)
        held[1:, 1:] = sums.reshape(edges.size - 1, lines)
        upto.append(held.cumsum(axis=0).cumsum(axis=1).astype(np.int32 if total < 2**28 else np.int64))
    first, last = _runs(edges.size - 1, tiles)
    return edges[_shortest(first, last, _strips(upto, first, last, fit, op, capacity))]


def _filled(along: Index, size: int) -> int:
    """Return the number of lines with points."""
    if size > 4 * along.size + _CHUNK:
        return int(distinct_numbers(along).size)
    return int(np.count_nonzero(np.bincount(along, minlength=size)))


def _numbered(along: Index, size: int) -> Index:
    """Return the line of each point; lines with points are numbered in order."""
    if size > 4 * along.size + _CHUNK:
        return np.unique(along, return_inverse=True)[1]
    number = np.cumsum(np.bincount(along, minlength=size) > 0) - 1
    return number[along]


def _most(pattern: Pattern, op: Op, fit: Fit) -> tuple[int, int]:
    """Return the load that all points add to the fullest memory, apart from their rows, and the capacity for
    it."""
    if isinstance(fit, Words):
        held = (
            2 * (nnz + (0 if inner is None else int(inner.sum())))
            for nnz, inner in ((pattern.nnz_a, pattern.inner_a), (pattern.nnz_b, pattern.inner_b))
        )
        return max(held), max(fit.capacity - 3 - (pattern.levels - 2), 1)
    a, b = pattern.nnz_a, pattern.nnz_b
    return (a + b if op == "add" else max(a, b)), fit.capacity


def _weights(pattern: Pattern, op: Op, fit: Fit) -> list[Ints]:
    """Return the load that each point adds to each memory, apart from its row."""
    if isinstance(fit, Words):
        inner = (0 if x is None else x for x in (pattern.inner_a, pattern.inner_b))
        return [
            2 * (x.astype(np.int64) + i) for x, i in zip((pattern.in_a, pattern.in_b), inner, strict=True)
        ]
    a, b = pattern.in_a.astype(np.int64), pattern.in_b.astype(np.int64)
    return [a + b] if op == "add" else [a, b]


def _units(over: Index, weight: Ints, units: int, size: int) -> Ints:
    """Return the edges of units with about equal weight, on whole lines."""
    if size > 4 * over.size + _CHUNK:
        lines, number = np.unique(over, return_inverse=True)
    else:
        lines, number = np.arange(size, dtype=np.int64), over
    upto = np.cumsum(np.bincount(number, weights=weight, minlength=lines.size))
    inner = lines[np.searchsorted(upto, upto[-1] * np.arange(1, units) / units)].astype(np.int64) + 1
    return distinct_numbers(np.concatenate([[0], inner[inner < size], [size]])).astype(np.int64)


def _runs(units: int, tiles: int) -> tuple[Ints, Ints]:
    """Return the first unit of each run, and the one after its last; short runs may start at any unit."""
    first, last = [], []
    for length in (*range(1, _LENGTHS + 1), *_LONGER):
        if length <= units and (length < 4 or length * tiles <= _MOST_TILES):
            step = 1 if length <= _LENGTHS else length // 8
            begin = np.arange(0, units - length + 1, step)
            first.append(begin)
            last.append(begin + length)
    if units * tiles <= _MOST_TILES:
        first.append(np.zeros(1, dtype=np.int64))
        last.append(np.full(1, units))
    return np.concatenate(first), np.concatenate(last)


def _strips(upto: list[Index], first: Ints, last: Ints, fit: Fit, op: Op, capacity: int) -> Ints:
    """Return the number of strips that each run needs."""
    each = max(_CHUNK // upto[0].shape[1], 1)
    result = np.zeros(first.size, dtype=np.int64)
    for at in range(0, first.size, each):
        piece = slice(at, at + each)
        held = [u[last[piece]] - u[first[piece]] for u in upto]
        if type(fit) is not Elements:
            held = _with_rows(held, op)
        result[piece] = _greedy(held, capacity)
    return result


def _with_rows(held: list[Index], op: Op) -> list[Index]:
    """Return words of entries including those of their rows: of A, of B, and for add of a bound of the
    output."""
    if op == "add":
        held = [*held, held[0] + held[1]]
    for words in held:
        words[:, 1:] += 2 * np.cumsum(np.diff(words, axis=1) > 0, axis=1, dtype=words.dtype)
    return held


def _greedy(held: list[Index], capacity: int) -> Ints:
    """Return the number of strips of as many lines as fit, for all runs (rows of `held`) in parallel; the
    prefix sums ascend.

    A line that does not fit alone counts as the number of tiles that its load fills.
    """
    runs, width = held[0].shape
    # Runs are so far apart that no strip reaches into the next one.
    most = max(int(h[:, -1].max(initial=0)) for h in held) + capacity + 1
    kind = np.int32 if runs * most < 2**31 else np.int64
    shift = (np.arange(runs) * most).astype(kind)
    flat = [(h + shift[:, None]).ravel() for h in held]
    result, active = np.zeros(runs, dtype=np.int64), np.arange(runs)
    at = np.zeros(runs, dtype=np.int64)
    while active.size:
        row = active * width
        here = row + at
        end = np.full(active.size, flat[0].size)
        for sums in flat:
            end = np.minimum(
                end, np.searchsorted(sums, sums[here] + sums.dtype.type(capacity), side="right") - 1
            )
        heavy = end == here
        tiles = np.ones(active.size, dtype=np.int64)
        for sums in flat:
            over = sums[here[heavy] + 1] - sums[here[heavy]]
            tiles[heavy] = np.maximum(tiles[heavy], -(-over // capacity))
        result[active] += tiles
        at = end - row + heavy
        going = at < width - 1
        active, at = active[going], at[going]
    return result


def _shortest(first: Ints, last: Ints, strips: Ints) -> Ints:
    """Return the units at which panels end, and 0: the path of runs with the fewest strips."""
    units = int(last.max())
    order = np.argsort(last, kind="stable")
    bounds = np.searchsorted(last[order], np.arange(units + 2))
    fewest, before = np.zeros(units + 1, dtype=np.int64), np.zeros(units + 1, dtype=np.int64)
    for unit in range(1, units + 1):
        runs = order[bounds[unit] : bounds[unit + 1]]
        reached = fewest[first[runs]] + strips[runs]
        best = int(np.argmin(reached))
        fewest[unit], before[unit] = reached[best], first[runs[best]]
    path = [units]
    while path[-1]:
        path.append(int(before[path[-1]]))
    return np.array(path[::-1])
