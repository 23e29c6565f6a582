"""How few tiles a cutting can have, however the plane is cut (numbers labelled `bound`).

Both bounds count words or entries. Every entry lies in one tile; a tile that fits holds so many at most.
"""

from __future__ import annotations

import numpy as np

from polymodel.errors import Diagnostic, SpecError
from polymodel.tiling.fits.fit import Elements, Fit, Op, Words
from polymodel.tiling.fits.stored import Stored
from polymodel.tiling.plane.counts import Counts
from polymodel.tiling.plane.pattern import Flags, Pattern, Rects

# Words of a compressed tile that holds nothing, and of one with a single entry.
_HEADER, _SMALLEST = 3, 7


def lower_bound(pattern: Pattern, op: Op, fit: Fit) -> int:
    """At least so many tiles hold entries of A or of B.

    `Elements`: a tile takes `capacity` entries, for add of both operands together, for multiply of each.
    `Words`: a tile with n entries in r rows takes 2 n + 2 r + 3 words, and a row counts in every tile that it
    reaches, so that all tiles together hold at least 2 n + 2 R words beside 3 apiece; n and R are those of
    the larger operand, for add those of the union (which the bound of the output holds whole). `Stored`: a
    tile has room for `capacity` bits, of which every entry of the larger operand, or (add) of the output,
    takes its value and the coordinates that are kept for it alone; pointers and masks come on top. Other
    fits: what they say of the smallest rectangle with all entries (1, or 2 if it does not fit). SpecError if
    no entry fits at all.

    For add these are the kernels launched. For multiply they are not: see `kernel_bound`.
    """
    if isinstance(fit, Elements):
        return _entries(
            pattern.nnz_a + pattern.nnz_b if op == "add" else max(pattern.nnz_a, pattern.nnz_b), fit
        )
    if isinstance(fit, Words):
        either = np.ones(pattern.points, dtype=np.bool_)
        return max(_words(pattern, which, fit) for which in (pattern.in_a, pattern.in_b, either)[: _SETS[op]])
    values = 0
    if isinstance(fit, Stored):
        most = pattern.points if op == "add" else max(pattern.nnz_a, pattern.nnz_b)
        values = -(-most * fit.entry_bits(pattern) // fit.capacity)
    return max(values, _whole(pattern, op, fit))


def kernel_bound(pattern: Pattern, op: Op, fit: Fit) -> int:
    """At least so many tiles are launched when only tiles that can have a result are (run="nonempty").

    For add that is `lower_bound`. For multiply a tile in which one operand is empty holds entries and is not
    launched: two operands that never meet may need many tiles and no kernel. But a place that both hold is
    always in a launched tile, so the bound is that of these places alone.
    """
    if op == "add":
        return lower_bound(pattern, op, fit)
    met: Flags = pattern.in_a & pattern.in_b
    if isinstance(fit, Elements):
        return _entries(int(np.count_nonzero(met)), fit)
    if isinstance(fit, Words):
        return _words(pattern, met, fit)
    values = fit.entry_bits(pattern) if isinstance(fit, Stored) else 0
    return max(-(-int(np.count_nonzero(met)) * values // fit.capacity), int(bool(met.any())))


# How many of A, B and their union bound the words: the union only where the output may hold it.
_SETS: dict[Op, int] = {"add": 3, "multiply": 2}


def _entries(entries: int, fit: Elements) -> int:
    return -(-entries // fit.capacity)


def _words(pattern: Pattern, which: Flags, fit: Words) -> int:
    rows = pattern.rows[which]
    if not rows.size:
        return 0
    if fit.capacity < _SMALLEST:
        fault = f"no entry fits {fit.capacity} words"
        raise SpecError([Diagnostic(fault, f"give at least {_SMALLEST} words")])
    begun = 1 + int(np.count_nonzero(rows[1:] != rows[:-1]))
    return -(-(2 * rows.size + 2 * begun) // (fit.capacity - _HEADER))


def _whole(pattern: Pattern, op: Op, fit: Fit) -> int:
    """A tile with all entries contains the smallest rectangle around them; what is empty can be cut off."""
    if not pattern.points:
        return 0
    counts = Counts(pattern, np.zeros(pattern.points, dtype=np.int32), 1)
    (top, left), (bottom, right) = (
        (int(end(pattern.rows)), int(end(pattern.cols))) for end in (np.min, np.max)
    )
    around = Rects.of([(top, left, bottom - top + 1, right - left + 1)])
    return 1 if fit.fits(counts, around, op)[0] else 2
