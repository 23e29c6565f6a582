"""Parts and wholes in floating point: a difference of roundings is no difference."""

from __future__ import annotations

from typing import Any

import numpy as np

# Of the whole: some hundreds of units in the last place, as sums of many terms have them. No digit of a
# smaller difference is known.
ROUNDING = 1e-13


def at_most(part: Any, whole: Any) -> Any:
    """`part`, which is no more than `whole`; the whole itself where roundings alone tell them apart. Numbers
    or arrays; ints are exact and stay so."""
    if isinstance(part, int) and isinstance(whole, int):
        return min(part, whole)
    if np.ndim(part) == 0 and np.ndim(whole) == 0:
        return whole if part >= whole * (1 - ROUNDING) else part
    return np.where(np.asarray(part) >= np.asarray(whole) * (1 - ROUNDING), whole, part)


def ratio(part: Any, whole: Any, otherwise: float = 1.0) -> Any:
    """part / whole, and `otherwise` where there is no whole. Numbers or arrays."""
    if np.ndim(whole) == 0 and np.ndim(part) == 0:
        return part / whole if whole else otherwise
    shape = np.broadcast_shapes(np.shape(part), np.shape(whole))
    found = np.full(shape, otherwise)
    return np.divide(part, whole, out=found, where=np.broadcast_to(np.asarray(whole) != 0, shape))
