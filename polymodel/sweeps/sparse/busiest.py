"""Operations of the busiest instance at the points of a grid: `EinsumCounts._fullest` with arrays."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from polymodel.sparse.actions.busiest import Split, most_nonzeros, split_of
from polymodel.sparse.actions.data import TensorData
from polymodel.sparse.actions.links import Condition, Structure
from polymodel.sweeps.sparse.columns import Column, Settings

Array = Any


class Instances:
    """How instances share the operations that one condition leaves, for every setting of every variable."""

    def __init__(
        self, structure: Structure, columns: Sequence[Column], condition: Condition, data: TensorData
    ) -> None:
        self.access = structure.einsum.access_of(condition.leader)
        self.data = data
        spatial = {i for i, loop in structure.loops if loop.spatial}
        self.most: dict[str, Array] = {}
        self.kinds: dict[str, tuple[Split, ...]] = {}
        self.kind: dict[str, Array] = {}
        for c in columns:
            splits = [split_of(c.counters(i), spatial, condition) for i in range(c.settings)]
            self.most[c.variable] = np.array([s.most for s in splits], dtype=np.float64)
            if c.variable in self.access.variables:
                keys = [s.key for s in splits]
                distinct = tuple(dict.fromkeys(keys))
                self.kinds[c.variable] = tuple(splits[keys.index(k)] for k in distinct)
                self.kind[c.variable] = np.array([distinct.index(k) for k in keys])
        self._known: dict[tuple[int, ...], float] = {}

    def dense(self, settings: Settings) -> Array:
        """Operations of the busiest instance if nothing is left out."""
        found: Array = np.ones(())
        for v, most in self.most.items():
            found = found * most[settings[v]]
        return found

    def busiest(self, settings: Settings) -> Array:
        """Those that are left, in the mean over all data; NaN where that is not worked out."""
        names = tuple(self.kinds)
        columns = np.broadcast_arrays(*(self.kind[v][settings[v]] for v in names))
        flat = np.array([c.reshape(-1) for c in columns])
        distinct, back = np.unique(flat, axis=1, return_inverse=True)
        each = np.array([self._nonzeros(tuple(row)) for row in distinct.T.tolist()])
        found: Array = each[back.reshape(-1)].reshape(columns[0].shape)
        for v, most in self.most.items():
            if v not in self.kinds:
                found = found * most[settings[v]]
        return found

    def _nonzeros(self, kinds: tuple[int, ...]) -> float:
        if kinds not in self._known:
            splits = {v: self.kinds[v][k] for v, k in zip(self.kinds, kinds, strict=True)}
            found = most_nonzeros(self.access, self.data, splits)
            self._known[kinds] = np.nan if found is None else found[0]
        return self._known[kinds]
