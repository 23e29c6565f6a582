"""Chances that follow the place of a tile: the mean over all places of one must not be multiplied by another.

A model that knows places says how often a full tile of its tiling is empty, in the mean over all places. The
share of transfers that happen is that mean where every place counts alike; where something else differs along
the same rank variables, it is none.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from polymodel.sparse.actions.data import TensorData
from polymodel.sparse.actions.links import Condition
from polymodel.sparse.actions.places import differs, each_once
from polymodel.sparse.actions.tally import Bools, Floats, Tally
from polymodel.workload.einsum import TensorAccess


@dataclass(frozen=True, eq=False)
class Tied:
    """Per combination of classes: what transfers count (`counted`), with which chance meetings happen (`met`)
    and conditions hold (`chance`). `given`: leaders whose nonzeros are given. `own`: the tensor of which only
    nonzeros count, if any."""

    tally: Tally
    data: Mapping[str, TensorData]
    counted: Bools
    met: Floats
    given: Sequence[str]
    own: TensorAccess | None
    chance: Callable[[Sequence[Condition]], Floats]

    def free(self, conditions: Sequence[Condition]) -> tuple[Condition, ...]:
        """Those of which the mean over all places is the share of transfers; without the others the share is
        at most so much."""
        placed = {c: v for c in conditions if (v := self._along(c))}
        if not placed:
            return tuple(conditions)
        elsewhere = [c for c in conditions if c not in placed]
        taken = self._varying(elsewhere, self.tally.elements()) | self._given()
        if self.own is not None:
            taken |= set(self.own.variables) if differs(self.data[self.own.tensor], self.own) else set()
        kept = list(elsewhere)
        for condition, along in placed.items():
            if not along & taken:
                kept.append(condition)
                taken |= along
        return tuple(c for c in conditions if c in kept)

    def own_is_tied(self, conditions: Sequence[Condition]) -> bool:
        """True if the density of the tensor itself, whose model knows places, is not the share of nonzeros
        among what moves. `conditions`: what is free."""
        if self.own is None:
            return False
        if self.data[self.own.tensor].actual is not None or not differs(self.data[self.own.tensor], self.own):
            return False
        elsewhere = [c for c in conditions if not self._along(c)]
        return not each_once(self.own) or bool(
            set(self.own.variables) & (self._varying(elsewhere) | self._given())
        )

    def _given(self) -> set[str]:
        accesses = self.tally.structure.einsum.access_of
        return {v for t in self.given for v in accesses(t).variables}

    def _along(self, condition: Condition) -> frozenset[str]:
        """The rank variables along which the chance of a condition depends on the place."""
        known = self.data[condition.leader]
        if known.placeless:
            return frozenset()
        if known.alike(tuple(int(extents.max()) for extents in self.tally.part(condition))):
            return frozenset()
        number = self.tally.conditions.index(condition)
        several = (a for a in self.tally.axes if number in a.groups and a.groups[number].any())
        return frozenset(a.variable for a in several)

    def _varying(self, conditions: Sequence[Condition], *more: Floats) -> set[str]:
        """The rank variables along which what counts differs."""
        arrays = (self.counted, self.met, self.chance(conditions), *more)
        return {
            atoms.variable
            for n, atoms in enumerate(self.tally.axes)
            for array in arrays
            if array.shape[n] > 1 and bool((array != np.take(array, [0], axis=n)).any())
        }
