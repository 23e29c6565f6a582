"""Stable orders of short keys."""

from __future__ import annotations

import numpy as np

from polymodel.tiling.plane.pattern import Index

# From so many keys on it is worth loading SciPy; up to so many its numbers have 32 bits.
_MANY, _MOST = 1 << 20, (1 << 31) - 1


def sorted_by(keys: Index, number: int) -> Index:
    """Stable order of keys below `number`; short keys are sorted by their digits, several times faster."""
    if number <= min(keys.size, _MOST) and _MANY <= keys.size <= _MOST:
        return _counted(keys, number)
    if number <= 1 << 16:
        return np.argsort(keys.astype(np.uint16), kind="stable")
    if number <= 1 << 32:
        low = np.argsort((keys & 0xFFFF).astype(np.uint16), kind="stable")
        return low[np.argsort((keys[low] >> 16).astype(np.uint16), kind="stable")]
    return np.argsort(keys, kind="stable")


def _counted(keys: Index, number: int) -> Index:
    """The same for keys of which most occur: as a matrix of one row by columns, which SciPy counts out."""
    from scipy.sparse import csr_array

    places = np.arange(keys.size, dtype=np.int32)
    ends = np.array([0, keys.size], dtype=np.int32)
    found: Index = (
        csr_array((places, keys.astype(np.int32, copy=False), ends), shape=(1, number)).tocsc().data
    )
    return found
