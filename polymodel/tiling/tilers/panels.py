"""Panels: the plane cut into panels, each panel into strips of its rows (or columns).

A strip that is full leaves room for half a line on average, so short lines waste less: with P panels a line
is a P-th of a row, but the last strip of each panel is half empty. Which panels are best is searched for.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from functools import cache, partial

import numpy as np

from polymodel.tiling.cost.bounds import lower_bound
from polymodel.tiling.fits.faults import check_empty
from polymodel.tiling.fits.fit import Elements, Fit, Op
from polymodel.tiling.plane.pattern import Cut, Ints, Pattern
from polymodel.tiling.tilers.lines import summed
from polymodel.tiling.tilers.strips import Panels, Whole, in_panels, strips_needed
from polymodel.tiling.tilers.unequal import unequal_edges

# Numbers of panels tried first, each about 4/3 of the one before; then those around the best.
_COARSE = (1, 2, 3, 4, 6, 8, 11, 15, 20, 27, 36, 48, 64, 85, 113, 151)
# Strips of the whole plane that are so near the bound are not divided further.
_NEAR = 1.01
# Lines are counted one by one while they are not many more than the points.
_EVERY = 1 << 16
# Above so many points one number of panels is tried, which follows from the mean line.
_SEARCHED = 200_000
# A search ends after so many numbers in a row that are no better.
_FINE = 3


def panels(pattern: Pattern, op: Op, fit: Fit, whole: Whole | None = None) -> Cut:
    """The fewest tiles over panels of rows and of columns: unequal ones, and numbers of about equal ones.

    Raises SpecError where a single entry does not fit. Fits that cannot be added up line by line are tried
    with fewer numbers of panels, and with panels of columns only. `whole`: keeps what strips need too.
    """
    check_empty(pattern, op, fit)
    whole = whole or Whole()
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


def _divided(pattern: Pattern, op: Op, fit: Fit, by_columns: bool) -> list[tuple[int, Panels]]:
    """Unequal panels; about equal ones where those cannot be chosen."""
    edges = unequal_edges(pattern, op, fit, by_columns) if summed(fit) else None
    if edges is not None:
        uneven = Panels.of(pattern, edges, by_columns, fit)
        return [(strips_needed(uneven, op, fit), uneven)]
    numbers = _numbers(pattern, fit, by_columns)
    # Of few points or of one number: what has been counted is at hand for the best.
    made = cache(partial(_made, pattern, by_columns, fit))
    tried = _searched(lambda number: strips_needed(made(number), op, fit), numbers)
    best = min(tried, key=tried.__getitem__)
    return [(tried[best], made(best))]


def _numbers(pattern: Pattern, fit: Fit, by_columns: bool) -> list[int]:
    """Numbers of panels to try, fewest first."""
    most = min(pattern.shape[0 if by_columns else 1], max(pattern.points // 64, 1))
    if pattern.points > _SEARCHED:
        # n / C tiles lose half a line of each P-th of r entries, and half a tile each panel.
        entries = pattern.nnz_a + pattern.nnz_b
        line = max(entries / pattern.shape[int(by_columns)], 1.0)
        return [min(max(round(math.sqrt(entries * line) / fit.capacity), 1), most)]
    coarse = _COARSE if summed(fit) else _COARSE[:4]
    return [n for n in coarse if n <= most]


def _searched(tiles: Callable[[int], int], numbers: list[int]) -> dict[int, int]:
    """Tiles for numbers of panels: the coarse ones until they get worse three times, then those between."""
    found: dict[int, int] = {}
    best, worse = 0, 0
    for number in numbers:
        found[number] = tiles(number)
        if not best or found[number] < found[best]:
            best, worse = number, 0
        else:
            worse += 1
            if worse == _FINE:
                break
    tried = sorted(found)
    at = tried.index(best)
    below, above = tried[max(at - 1, 0)], tried[min(at + 1, len(tried) - 1)]
    step = max((above - below) // (2 * _FINE), 1)
    for number in range(below + step, above, step):
        if number not in found:
            found[number] = tiles(number)
    return found


def _made(pattern: Pattern, by_columns: bool, fit: Fit, number: int) -> Panels:
    return Panels.of(pattern, _edges(pattern, number, by_columns), by_columns, fit)


def _edges(pattern: Pattern, number: int, by_columns: bool) -> Ints:
    """Edges of panels of about equally many entries, on whole lines."""
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
    return np.unique(np.concatenate([[0], inner[inner < size], [size]])).astype(np.int64)
