"""What fits no tile, however small."""

from __future__ import annotations

import numpy as np

from polymodel.errors import Diagnostic, SpecError
from polymodel.tiling.fits.fit import Fit, Op
from polymodel.tiling.plane.counts import Counts
from polymodel.tiling.plane.pattern import Pattern, Rects

_NAMED = 8


def check_empty(pattern: Pattern, op: Op, fit: Fit) -> None:
    """A capacity that not even a tile of one empty place keeps to is a SpecError."""
    single = Rects.of([(0, 0, 1, 1)])
    none = pattern.taken(np.zeros(0, dtype=np.int64))
    load = int(fit.loads(Counts(none, np.zeros(0, dtype=np.int32), 1), single, op)[0])
    if load > fit.capacity:
        fault = f"even an empty tile needs {load} {fit.unit}; the capacity is {fit.capacity}"
        raise SpecError([Diagnostic(fault, f"give a capacity of {load} {fit.unit} or more")])


def check_single(pattern: Pattern, op: Op, fit: Fit, rects: Rects) -> None:
    """Among tiles that do not fit a single place cannot be cut: all such places are one SpecError."""
    if not ((rects.height == 1) & (rects.width == 1)).any():
        return
    begins = np.ones(pattern.points, dtype=np.bool_)
    begins[1:] = (np.diff(pattern.rows) != 0) | (np.diff(pattern.cols) != 0)
    row, col = (at[begins].astype(np.int64) for at in (pattern.rows, pattern.cols))
    places = Rects(row, col, np.ones_like(row), np.ones_like(row))
    loads = fit.loads(Counts(pattern, np.cumsum(begins) - 1, places.tiles), places, op)
    full = np.nonzero(loads > fit.capacity)[0]
    if not full.size:
        return
    most = int(loads.max())
    remedy = f"give a capacity of at least {most} {fit.unit}, the most that one of them needs"
    if pattern.depth > 1:
        remedy += ", or cut other ranks"
    faults = []
    for at in full[:_NAMED]:
        place = f"{pattern.ranks[0]} {int(row[at])}, {pattern.ranks[1]} {int(col[at])}"
        who = "the entry alone needs" if pattern.depth == 1 else "its entries alone need"
        needs = f"{who} {int(loads[at])} {fit.unit}; the capacity is {fit.capacity}"
        faults.append(Diagnostic(f"{pattern.name}, row and column ({place}): {needs}", remedy))
    if full.size > _NAMED:
        faults.append(Diagnostic(f"{full.size - _NAMED} further places do not fit either", remedy))
    raise SpecError(faults)
