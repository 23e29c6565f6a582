"""Tiles of a matrix by how far they lie from its diagonal: counted, not searched."""

from __future__ import annotations

from dataclasses import dataclass
from math import gcd

import numpy as np

from polymodel.sparse.density.model import Floats, Ints


@dataclass(frozen=True, eq=False)
class Offsets:
    """Tiles of one size, `box`: there are `total`, of which `many` have their first row so far beyond their
    first column."""

    box: tuple[int, int]
    offsets: Ints
    many: Floats
    total: float


def tiles_by_offset(shape: tuple[int, int], tile: tuple[int, int], low: int, high: int) -> list[Offsets]:
    """Tiles in which column - row may lie within low .. high, by size: full ones first, then edge tiles."""
    whole = tuple(s // t for s, t in zip(shape, tile, strict=True))
    rest = tuple(s % t for s, t in zip(shape, tile, strict=True))
    found = []
    for at_edge in ((False, False), (True, False), (False, True), (True, True)):
        if any(e and not r for e, r in zip(at_edge, rest, strict=True)):
            continue
        spans = [(w, w + 1) if e else (0, w) for e, w in zip(at_edge, whole, strict=True)]
        box = tuple(r if e else t for e, r, t in zip(at_edge, rest, tile, strict=True))
        total = float(spans[0][1] - spans[0][0]) * float(spans[1][1] - spans[1][0])
        reach = -high - (box[0] - 1), box[1] - 1 - low
        found.append(_of_box(tile, (box[0], box[1]), spans, reach, total))
    return found


def _of_box(
    step: tuple[int, int], box: tuple[int, int], spans: list[tuple[int, int]], reach: tuple[int, int],
    total: float,
) -> Offsets:  # fmt: skip
    """Tiles of size `box` at multiples of `step` whose first row - first column lies within `reach`."""
    common = gcd(*step)
    offsets = np.arange(-(-reach[0] // common), reach[1] // common + 1, dtype=np.int64)
    p, q = step[0] // common, step[1] // common
    # Tiles (i, j) with p i - q j = offset: i runs over one residue class modulo q.
    residue = (offsets % q) * pow(p, -1, q) % q if q > 1 else np.zeros_like(offsets)
    (i_low, i_high), (j_low, j_high) = spans
    low = np.maximum(i_low, -(-(offsets + q * j_low) // p))
    high = np.minimum(i_high - 1, (offsets + q * (j_high - 1)) // p)
    first = low + (residue - low) % q
    many = np.maximum(0, (high - first) // q + 1)
    kept = many > 0
    return Offsets(box, offsets[kept] * common, many[kept].astype(np.float64), total)
