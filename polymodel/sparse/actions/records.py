"""What sparse counting returns: frozen counts, and of every number how certain it is."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from polymodel.sparse.density.model import Label

# Parts and wholes in floating point: a difference of roundings is not a difference.

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


def larger(one: Any, other: Any) -> Any:
    """The larger one. Numbers or arrays."""
    return max(one, other) if np.ndim(one) == np.ndim(other) == 0 else np.maximum(one, other)


def choose(mask: Any, then: Any, otherwise: Any) -> Any:
    """`then` where the mask is true, else `otherwise`. Numbers or arrays."""
    if np.ndim(mask) == 0:
        return then if mask else otherwise
    return then if np.all(mask) else np.where(mask, then, otherwise)


def ratio(part: Any, whole: Any, otherwise: float = 1.0) -> Any:
    """part / whole, and `otherwise` where there is no whole. Numbers or arrays."""
    if np.ndim(whole) == 0 and np.ndim(part) == 0:
        return part / whole if whole else otherwise
    shape = np.broadcast_shapes(np.shape(part), np.shape(whole))
    result = np.full(shape, otherwise)
    return np.divide(part, whole, out=result, where=np.broadcast_to(np.asarray(whole) != 0, shape))


# Of the busiest instance: `lower bound` is the mean of instances that the dense schedule gives equal shares;
# `estimate` the mean where it is neither, as shares are unequal or the operations themselves are a bound.
# Other numbers are an `estimate` where places of nonzeros matter that are not followed: they may be more or
# less.
Certainty = Literal["exact", "expected", "bound", "lower bound", "estimate"]
KINDS = ("reads_fill", "reads_drain", "writes_fill", "writes_drain")


def least_certain(labels: Iterable[Certainty]) -> Certainty:
    """How certain a number is that follows from numbers of these labels.

    What is at most so much and what is at least so much bound nothing together.
    """
    result = set(labels)
    if {"bound", "lower bound"} <= result:
        return "estimate"
    order: tuple[Certainty, ...] = ("estimate", "bound", "lower bound", "expected")
    return next((x for x in order if x in result), "exact")


@dataclass(frozen=True)
class AccessCount:
    """Elements of one kind of access (`analysis.result.Traffic`) at one node, of one execution of the Einsum.

    dense + refetched = actual + gated + skipped + absent. `actual`: moved. `gated`: the turn is taken,
    nothing moves.
    `skipped`: not even the turn. `absent`: zeros that a compressed storage does not hold. `metadata_bits` go
    with what is moved: those of all that is held, less the share that is gated or skipped. Labels tell what
    the numbers are; of a `bound`, `actual` is the most it can be. `refetched`: of what moves, what an
    overbooked tile had no room for.
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
    """Operations of one Einsum, one execution: dense = effectual + ineffectual + gated + skipped.

    `effectual`: the result may be nonzero. `ineffectual`: executed, though a factor is zero. `busiest`: timed
    operations of the instance that has most of them, or the mean (`busiest_label`).
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
        """Operations of the busiest instance over the mean of all that the dense schedule uses."""
        return self.busiest * self.instances / self.timed if self.timed else 1.0

    @property
    def executed(self) -> float:
        """Operations that cost energy."""
        return self.effectual + self.ineffectual

    @property
    def timed(self) -> float:
        """Operations that cost time."""
        return self.effectual + self.ineffectual + self.gated


@dataclass(frozen=True)
class IntersectionCount:
    """Coordinates read where fibers of `tensors` are intersected, of one execution of the Einsum.

    `kind`: two_finger, leader_follower (coordinates of the leader) or skip_ahead (steps). `place`: the rank
    variable, and the node of its loop, at which they meet.
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
    """How certain the loads of one component in one Einsum are.

    `label`: what all its instances move together. `busiest_label`: what the busiest of them moves, which
    decides on its time.
    """

    einsum: str
    component: str
    label: Certainty
    busiest_label: Certainty


@dataclass(frozen=True)
class TileFootprint:
    """Bits of the largest tile of one tensor in one node, under the format that the component keeps it in.

    `bits` = `payload_bits` + `metadata_bits`, expected (or exact). `quantile_bits` are not exceeded by a tile
    with probability `confidence`; `dense_bits` is what all its points take. `extents`: of the tile, per rank.
    Near its mean a tile of s nonzeros has `base_bits` + s `bits_per_nonzero`; `spread`: standard deviation.
    `needed_bits`: what has to be there for it to fit, by the rule of its memory.
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
    """Everything sparse that is counted for one analysis. Rows in the order of the dense ones."""

    compute: tuple[ComputeCount, ...]
    accesses: tuple[AccessCount, ...]
    footprints: tuple[TileFootprint, ...] = ()
    notes: tuple[str, ...] = ()
    intersections: tuple[IntersectionCount, ...] = ()
    loads: tuple[LoadLabel, ...] = ()

    def energy_label(self, einsum: str | None = None) -> Certainty:
        """What the least certain of the operations and accesses is, of one Einsum or of all."""
        return least_certain(self._moved(einsum))

    def label(self, einsum: str | None = None) -> Certainty:
        """The same with the busiest instances, which decide on latencies."""
        return least_certain((*self._moved(einsum), *self._busiest(einsum)))

    @property
    def whole_label(self) -> Certainty:
        """The same of everything that is counted, footprints and intersections among it."""
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
