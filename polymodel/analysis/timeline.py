"""The contents of one memory over time, as plain arrays; both engines produce the same."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from polymodel.integers import row_sums

Measure = Literal["tile", "live"]
Ints = NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class Timeline:
    """Bits in one instance of a component, phase by phase, in order of time.

    A phase is one iteration of the innermost temporal loop of an Einsum; changes within it are shown at their
    largest sum. `einsums`: names; `einsum[i]`: the index of the one that runs in phase i. `loops`: node ids
    of temporal loops; `stamps[i, k]`: counter of loop k in phase i, -1 if the loop is not above that Einsum
    (or inside a phase). `buffets`: (node id, tensor); `bits[i, k]`: bits of buffet k in phase i. `instance`:
    nonzero coordinates, as (component.dimension, coordinate). Beyond 62 bits, `bits` is an object array of
    Python integers.
    """

    component: str
    measure: Measure
    einsums: tuple[str, ...]
    einsum: Ints
    loops: tuple[int, ...]
    stamps: Ints
    buffets: tuple[tuple[int, str], ...]
    bits: Ints
    instance: tuple[tuple[str, int], ...] = ()
    notes: tuple[str, ...] = ()

    @cached_property
    def total(self) -> Ints:
        """Bits of all buffets together, by phase."""
        return row_sums(self.bits)

    @property
    def peak(self) -> int:
        """The first phase in which most is held."""
        return int(np.argmax(self.total))
