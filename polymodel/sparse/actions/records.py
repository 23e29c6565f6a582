"""Define the records that sparse counting returns: frozen counts, each with a certainty label."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, Literal

import numpy as np

from polymodel.frozen import dataclass
from polymodel.sparse.density.model import Label

# Parts are compared with wholes in floating point, where rounding differences must not count.

# Relative to the whole: some hundreds of units in the last place, the rounding error of a sum of many terms.
# Smaller differences have no correct digit.
ROUNDING = 1e-13


def at_most(part: Any, whole: Any) -> Any:
    """Return `part`, limited to `whole`. Where the two differ by rounding only, return `whole`. Accepts
    numbers or arrays; ints are exact and remain ints."""
    if isinstance(part, int) and isinstance(whole, int):
        return min(part, whole)
    if np.ndim(part) == 0 and np.ndim(whole) == 0:
        return whole if part >= whole * (1 - ROUNDING) else part
    return np.where(np.asarray(part) >= np.asarray(whole) * (1 - ROUNDING), whole, part)


def larger(one: Any, other: Any) -> Any:
    """Return the larger of two values. Accepts numbers or arrays."""
    return max(one, other) if np.ndim(one) == np.ndim(other) == 0 else np.maximum(one, other)


def choose(mask: Any, then: Any, otherwise: Any) -> Any:
    """Return `then` where the mask is true, else `otherwise`. Accepts numbers or arrays."""
    if np.ndim(mask) == 0:
        return then if mask else otherwise
    return then if np.all(mask) else np.where(mask, then, otherwise)


def ratio(part: Any, whole: Any, otherwise: float = 1.0) -> Any:
    """Return part / whole, and `otherwise` where the whole is 0. Accepts numbers or arrays."""
    if np.ndim(whole) == 0 and np.ndim(part) == 0:
        return part / whole if whole else otherwise
    shape = np.broadcast_shapes(np.shape(part), np.shape(whole))
    result = np.full(shape, otherwise)
    return np.divide(part, whole, out=result, where=np.broadcast_to(np.asarray(whole) != 0, shape))


# For the busiest instance, `lower bound` is the mean over instances to which the dense schedule gives equal
# shares; `estimate` is the mean where it bounds nothing, because shares are unequal or the operations
# themselves are a bound. Other numbers are an `estimate` where they depend on positions of nonzeros that are
# not modelled: the true number may be larger or smaller.
Certainty = Literal["exact", "expected", "bound", "lower bound", "estimate"]
KINDS = ("reads_fill", "reads_drain", "writes_fill", "writes_drain")


def least_certain(labels: Iterable[Certainty]) -> Certainty:
    """Return the certainty label of a number that is computed from numbers with these labels.

    A number that depends on both an upper and a lower bound is neither: its label is `estimate`.
    """
    result = set(labels)
    if {"bound", "lower bound"} <= result:
        return "estimate"
    order: tuple[Certainty, ...] = ("estimate", "bound", "lower bound", "expected")
    return next((x for x in order if x in result), "exact")


@dataclass(frozen=True)
class AccessCount:
    """Elements of one kind of access (`analysis.result.Traffic`) at one node, for one execution of the
    Einsum.

    dense + refetched = actual + gated + skipped + absent. `actual`: elements that are moved. `gated`:
    elements that take a cycle, but are not moved. `skipped`: elements that do not take a cycle either.
    `absent`: zeros that compressed storage leaves out. `metadata_bits`: metadata moved with the
    elements, which is the metadata of all held elements less the share that is gated or skipped. `refetched`:
    moved elements that are fetched again because an overbooked tile has no room for them. The labels give the
    certainty of the numbers; for `bound`, `actual` is an upper bound.
    """

    einsum: str
    node: int
    component: str
    tensor: str
    kind: str
    dense: int
    actual: float
    gated: float = 0
    skipped: float = 0
    absent: float = 0
    label: Certainty = "exact"
    metadata_bits: float = 0
    metadata_label: Certainty = "exact"
    refetched: float = 0


@dataclass(frozen=True)
class ComputeCount:
    """Operations of one Einsum, for one execution: dense = effectual + ineffectual + gated + skipped.

    `effectual`: operations whose result may be nonzero. `ineffectual`: operations that are executed although
    a factor is zero. `busiest`: timed operations of the busiest instance, or of the mean instance (see
    `busiest_label`).
    """

    einsum: str
    component: str
    dense: int
    effectual: float
    ineffectual: float = 0
    gated: float = 0
    skipped: float = 0
    label: Certainty = "exact"
    busiest: float = 0
    instances: int = 1
    busiest_label: Certainty = "exact"

    @property
    def imbalance(self) -> float:
        """The operations of the busiest instance, divided by the mean over all instances that the dense
        schedule uses."""
        return self.busiest * self.instances / self.timed if self.timed else 1.0

    @property
    def executed(self) -> float:
        """The number of operations that cost energy."""
        return self.effectual + self.ineffectual

    @property
    def timed(self) -> float:
        """The number of operations that cost time."""
        return self.effectual + self.ineffectual + self.gated


@dataclass(frozen=True)
class IntersectionCount:
    """Coordinates read where fibers of `tensors` are intersected, for one execution of the Einsum.

    `kind`: two_finger, leader_follower (coordinates of the leader) or skip_ahead (steps). `place`: the rank
    variable, and the node of its loop, at which they are intersected.
    """

    einsum: str
    component: str
    tensors: tuple[str, ...]
    kind: str
    place: str
    coordinates: float
    label: Label


@dataclass(frozen=True)
class LoadLabel:
    """Certainty labels of the loads of one component in one Einsum.

    `label`: that of the total load of all its instances. `busiest_label`: that of the load of its busiest
    instance, which determines its time.
    """

    einsum: str
    component: str
    label: Certainty
    busiest_label: Certainty


@dataclass(frozen=True)
class TileFootprint:
    """Bits of the largest tile of one tensor in one node, in the format of the component.

    `bits` = `payload_bits` + `metadata_bits`, expected (or exact). A tile exceeds `quantile_bits` with
    probability at most 1 - `confidence`. `dense_bits`: the bits of all its points. `extents`: those of the
    tile, per rank. Near its mean a tile with s nonzeros has `base_bits` + s `bits_per_nonzero`; `spread`: the
    standard deviation. `needed_bits`: the size that the fit rule of the memory requires.
    """

    node: int
    component: str
    tensor: str
    format: str
    points: int
    dense_bits: int
    payload_bits: float
    metadata_bits: float
    quantile_bits: float
    confidence: float
    label: Label = "exact"
    extents: tuple[int, ...] = ()
    base_bits: float = 0
    bits_per_nonzero: float = 0
    spread: float = 0
    needed_bits: float = 0

    @property
    def bits(self) -> float:
        return self.payload_bits + self.metadata_bits


@dataclass(frozen=True)
class SparseCounts:
    """All sparse counts of one analysis. The rows have the order of the dense ones."""

    compute: tuple[ComputeCount, ...]
    accesses: tuple[AccessCount, ...]
    footprints: tuple[TileFootprint, ...] = ()
    notes: tuple[str, ...] = ()
    intersections: tuple[IntersectionCount, ...] = ()
    loads: tuple[LoadLabel, ...] = ()

    def energy_label(self, einsum: str | None = None) -> Certainty:
        """Return the lowest certainty label among the operations and accesses, of one Einsum or of all."""
        return least_certain(self._moved(einsum))

    def label(self, einsum: str | None = None) -> Certainty:
        """Return the lowest certainty label among the operations, the accesses and the busiest instances,
        which determine latencies; of one Einsum or of all."""
        return least_certain((*self._moved(einsum), *self._busiest(einsum)))

    @property
    def whole_label(self) -> Certainty:
        """The lowest certainty label among all counts, including footprints and intersections."""
        footprints, met = (f.label for f in self.footprints), (x.label for x in self.intersections)
        return least_certain((self.label(), *footprints, *met))

    def _moved(self, einsum: str | None) -> Iterator[Certainty]:
        for c in self.compute:
            if einsum in (None, c.einsum):
                yield c.label
        for a in self.accesses:
            if einsum in (None, a.einsum):
                yield from (a.label, a.metadata_label)
        for x in self.loads:
            if einsum in (None, x.einsum):
                yield x.label

    def _busiest(self, einsum: str | None) -> Iterator[Certainty]:
        for c in self.compute:
            if einsum in (None, c.einsum):
                yield c.busiest_label
        for x in self.loads:
            if einsum in (None, x.einsum):
                yield x.busiest_label
