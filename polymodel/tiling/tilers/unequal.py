"""Panels of unequal width, chosen so that the strips in them waste least.

The plane is cut into many narrow units; a panel is a run of units. How many strips each run needs is counted
for all runs at once, from sums per unit and line; the runs with the fewest strips are a shortest path
from the first unit to the last.
"""

from __future__ import annotations

import numpy as np

from polymodel.tiling.fits.fit import Elements, Fit, Op, Words
from polymodel.tiling.plane.pattern import Index, Ints, Pattern

# Sums to look at (runs x lines), and how many at once.
_EFFORT = 20_000_000
_CHUNK = 1 << 20
# Tiles in a unit: the fewest that keep to the effort.
_UNITS = (2, 4, 8, 16, 32, 64, 128)
# Runs of every length up to here, then longer ones from some units on; no run of more tiles than this.
_LENGTHS = 12
_LONGER = (16, 24, 32, 48, 64, 96, 128, 192, 256)
_MOST_TILES = 512


def unequal_edges(pattern: Pattern, op: Op, fit: Fit, by_columns: bool) -> Ints | None:
    """Edges of the panels; None where there are too few tiles or too many lines to choose.

    For words the strips are counted roughly (the output's rows by those of the union).
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
    """How many lines hold something."""
    if size > 4 * along.size + _CHUNK:
        return int(np.unique(along).size)
    return int(np.count_nonzero(np.bincount(along, minlength=size)))


def _numbered(along: Index, size: int) -> Index:
    """Each point's line; those that hold something are numbered in order."""
    if size > 4 * along.size + _CHUNK:
        return np.unique(along, return_inverse=True)[1]
    number = np.cumsum(np.bincount(along, minlength=size) > 0) - 1
    return number[along]


def _most(pattern: Pattern, op: Op, fit: Fit) -> tuple[int, int]:
    """What all points add to the fullest memory, beside their rows, and the capacity for that."""
    if isinstance(fit, Words):
        held = (
            2 * (nnz + (0 if inner is None else int(inner.sum())))
            for nnz, inner in ((pattern.nnz_a, pattern.inner_a), (pattern.nnz_b, pattern.inner_b))
        )
        return max(held), max(fit.capacity - 3 - (pattern.levels - 2), 1)
    a, b = pattern.nnz_a, pattern.nnz_b
    return (a + b if op == "add" else max(a, b)), fit.capacity


def _weights(pattern: Pattern, op: Op, fit: Fit) -> list[Ints]:
    """What each point adds to each memory, beside its row."""
    if isinstance(fit, Words):
        inner = (0 if x is None else x for x in (pattern.inner_a, pattern.inner_b))
        return [
            2 * (x.astype(np.int64) + i) for x, i in zip((pattern.in_a, pattern.in_b), inner, strict=True)
        ]
    a, b = pattern.in_a.astype(np.int64), pattern.in_b.astype(np.int64)
    return [a + b] if op == "add" else [a, b]


def _units(over: Index, weight: Ints, units: int, size: int) -> Ints:
    """Edges of units of about equal weight, on whole lines."""
    if size > 4 * over.size + _CHUNK:
        lines, number = np.unique(over, return_inverse=True)
    else:
        lines, number = np.arange(size, dtype=np.int64), over
    upto = np.cumsum(np.bincount(number, weights=weight, minlength=lines.size))
    inner = lines[np.searchsorted(upto, upto[-1] * np.arange(1, units) / units)].astype(np.int64) + 1
    return np.unique(np.concatenate([[0], inner[inner < size], [size]])).astype(np.int64)


def _runs(units: int, tiles: int) -> tuple[Ints, Ints]:
    """First unit of each run, and the one after its last; short runs begin anywhere."""
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
    """Strips that each run needs."""
    each = max(_CHUNK // upto[0].shape[1], 1)
    found = np.zeros(first.size, dtype=np.int64)
    for at in range(0, first.size, each):
        piece = slice(at, at + each)
        held = [u[last[piece]] - u[first[piece]] for u in upto]
        if type(fit) is not Elements:
            held = _with_rows(held, op)
        found[piece] = _greedy(held, capacity)
    return found


def _with_rows(held: list[Index], op: Op) -> list[Index]:
    """Words of entries, with those of their rows: of A, of B, and for add of a bound of the output."""
    if op == "add":
        held = [*held, held[0] + held[1]]
    for words in held:
        words[:, 1:] += 2 * np.cumsum(np.diff(words, axis=1) > 0, axis=1, dtype=words.dtype)
    return held


def _greedy(held: list[Index], capacity: int) -> Ints:
    """Strips of as many lines as fit, for all runs (rows of `held`) in step; sums up to each line ascend.

    A line that does not fit alone counts as the tiles that its load fills.
    """
    runs, width = held[0].shape
    # Runs are so far apart that no strip reaches into the next one.
    most = max(int(h[:, -1].max(initial=0)) for h in held) + capacity + 1
    kind = np.int32 if runs * most < 2**31 else np.int64
    shift = (np.arange(runs) * most).astype(kind)
    flat = [(h + shift[:, None]).ravel() for h in held]
    found, active = np.zeros(runs, dtype=np.int64), np.arange(runs)
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
        found[active] += tiles
        at = end - row + heavy
        going = at < width - 1
        active, at = active[going], at[going]
    return found


def _shortest(first: Ints, last: Ints, strips: Ints) -> Ints:
    """The units at which panels end, and 0: the path of runs with the fewest strips."""
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
