"""How many entries fit a tile: the capacity of a fit, told in entries."""

from __future__ import annotations

import numpy as np

from polymodel.errors import Refused
from polymodel.sparse.density.model import Floats, Ints
from polymodel.sparse.density.regions import untouched
from polymodel.tiling.fits.fit import Elements, Fit, Op, Words


def most_entries(
    fit: Fit, op: Op, height: Floats, width: Floats, places: Ints, share: Floats, same: bool
) -> Ints:
    """Per tile the most entries that fit: of A and B together for add, of the fuller one for multiply.

    Words also count nonempty rows; they are taken at their expected number for so many entries at random
    places. Refused for other fits.
    """
    if isinstance(fit, Elements):
        return np.full(np.shape(height), fit.capacity, dtype=np.int64)
    if not isinstance(fit, Words):
        raise Refused(
            f"how many {fit.unit} in a format tiles take is not estimated from a model",
            "ask for elements(C) or words(M)",
        )
    budget = (fit.capacity - 3) / 2
    top = 2 * places if op == "add" else places
    low, high = np.zeros(np.shape(height)), np.minimum(top, max(1.0, budget + 1)).astype(np.float64)
    used = _add if op == "add" else _multiply
    roomy = used(high, height, width, places, share, same) <= budget + 0.5
    for _ in range(50):
        middle = (low + high) / 2
        within = used(middle, height, width, places, share, same) <= budget + 0.5
        low, high = np.where(within, middle, low), np.where(within, high, middle)
    # A row more or less is as likely: the limit is met half an entry below.
    found: Ints = np.where(roomy, top, np.maximum(np.rint(low - 0.5), 0)).astype(np.int64)
    return found


def _add(entries: Floats, height: Floats, width: Floats, places: Ints, share: Floats, same: bool) -> Floats:
    area = height * width
    rows = height * (
        2 - untouched(width, area, entries * share) - untouched(width, area, entries * (1 - share))
    )
    found: Floats = np.minimum(entries, places) + np.minimum(height, rows)
    return found


def _multiply(
    entries: Floats, height: Floats, width: Floats, places: Ints, share: Floats, same: bool
) -> Floats:
    found: Floats = entries + height * (1 - untouched(width, height * width, entries))
    return found
