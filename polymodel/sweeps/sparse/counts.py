"""Sparse counts of one Einsum at many points: `EinsumCounts` on arrays."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import product
from math import prod
from typing import Any

import numpy as np

from polymodel.analysis.result import ComputeCounts, Problem, Traffic
from polymodel.errors import NotSeparable
from polymodel.mapping.looptree import StorageNode
from polymodel.sparse.actions.busiest import Instances
from polymodel.sparse.actions.counts import ACTIONS, SKIPS, access_count, compute_count, in_order
from polymodel.sparse.actions.data import TensorData
from polymodel.sparse.actions.links import Condition, EinsumLinks, TransferEdge, sharpest
from polymodel.sparse.actions.places import differs, each_once, effectual_points, seen_by
from polymodel.sparse.actions.reach import Looked, Meeting, effectual_only, looked_at
from polymodel.sparse.actions.records import AccessCount, ComputeCount, ratio
from polymodel.sparse.actions.storage import Formats, KeptTensor, TileBits, moved, transfer_digits
from polymodel.sparse.actions.sums import NOTHING, overlaps
from polymodel.sparse.actions.zeros import require_known
from polymodel.sparse.density.model import Floats
from polymodel.sweeps.sparse.classes import Classes, classes_of, terms_of
from polymodel.sweeps.sparse.columns import Settings, VariableColumn, bound_problem
from polymodel.sweeps.sparse.contraction import Contraction
from polymodel.sweeps.sparse.factors import ClassFactor, Holds, Meets, WindowValues
from polymodel.sweeps.sparse.tiles import EinsumTilings

MOST_STRUCTURES = 256
Array = Any


@dataclass
class BlockPoints:
    """Points of one block.

    `settings`: per rank variable; `mask`: which of them count (None: all); and cached sums.
    """

    settings: Settings
    mask: Array = None
    sums: dict[tuple[object, ...], Floats] = field(default_factory=dict)


class LinkedSums:
    """`LinkSums` of one structure, for the points of a grid."""

    def __init__(
        self, structure: EinsumLinks, columns: Sequence[VariableColumn], data: Mapping[str, TensorData]
    ) -> None:
        self.structure = structure
        self.columns = columns
        self.data = data
        self._classes: dict[tuple[object, ...], dict[str, tuple[Classes, ...]]] = {}
        self._sums: dict[tuple[object, ...], Contraction] = {}
        self._looked: dict[tuple[object, ...], Looked] = {}

    def remaining(
        self,
        chain: tuple[TransferEdge, ...],
        kind: str,
        looked: Looked,
        dense: Array,
        nonzeros: bool,
        points: BlockPoints,
    ) -> Array:
        """The remaining part of `dense` (`EinsumCounts._kept`)."""
        if not looked and not nonzeros:
            return dense
        if not self.structure.box:
            return self._bounded(chain, kind, looked, dense, nonzeros, points, points.settings)
        own = self.data[chain[-1].tensor] if nonzeros else None
        scale = own.density if own is not None else 1.0
        access = self.structure.einsum.access_of(chain[-1].tensor) if own is not None else None
        if (
            own is not None
            and access is not None
            and differs(own, access)
            and (looked or not each_once(access))
        ):
            what = "the density model knows places, and what moves depends on them"
            raise NotSeparable(f"{self.structure.name}: {access.tensor}: {what}", code="unsupported-density")
        whole = self._total(chain, kind, NOTHING, False, points)
        result = self._total(chain, kind, looked, nonzeros, points) * scale
        if own is not None and looked and (own.computed or looked.by_value):
            result = self._total(chain, kind, looked, False, points)
            if not (own.computed and looked.by_value and effectual_only(self.structure, self.data, SKIPS)):
                result = np.minimum(result, whole * scale)
        followed = np.isclose(whole, dense, rtol=1e-13, atol=0)
        if points.mask is not None:
            followed = followed | ~points.mask
        if np.all(followed):
            return result
        shape = np.broadcast_shapes(np.shape(followed), *(s.shape for s in points.settings.values()))
        apart = ~np.broadcast_to(followed, shape)
        some = {v: np.broadcast_to(s, shape)[apart] for v, s in points.settings.items()}
        changed = np.broadcast_to(result, shape).copy()
        each = np.broadcast_to(dense, shape)[apart]
        changed[apart] = self._bounded(chain, kind, looked, each, nonzeros, points, some)
        return changed

    def followed(self, dense: Array, points: BlockPoints) -> Array:
        """Mask of points at which operations are followed tile by tile."""
        whole = self._total((), "operations", NOTHING, False, points)
        return np.isclose(whole, dense, rtol=1e-13, atol=0)

    def _bounded(
        self,
        chain: tuple[TransferEdge, ...],
        kind: str,
        looked: Looked,
        dense: Array,
        nonzeros: bool,
        points: BlockPoints,
        settings: Settings,
    ) -> Array:
        """Upper bound of what remains where transfers are not followed tile by tile."""
        scale = self.data[chain[-1].tensor].density if nonzeros else 1.0
        useful = self._useful(chain, looked, nonzeros)
        if not useful:
            return dense * scale
        shape = np.broadcast_shapes(*(s.shape for s in settings.values()))
        flat = {v: np.broadcast_to(s, shape).reshape(-1) for v, s in settings.items()}
        high = self._sum(chain, kind, useful).largest(flat).reshape(shape)
        return dense * high * scale

    def _useful(self, chain: Sequence[TransferEdge], looked: Looked, nonzeros: bool) -> Looked:
        own = chain[-1].tensor if nonzeros else ""
        return replace(looked, conditions=sharpest(c for c in looked.conditions if c.leader != own))

    def looked(self, chain: tuple[TransferEdge, ...], kinds: Sequence[str]) -> Looked:
        """Return the conditions on which transfers (operations) depend, as `LinkSums.looked`."""
        key = chain[-1:], tuple(kinds)
        if key not in self._looked:
            self._looked[key] = self._look(chain, kinds)
        return self._looked[key]

    def _look(self, chain: tuple[TransferEdge, ...], kinds: Sequence[str]) -> Looked:
        if not chain:
            executed = self.structure.executed()
            return Looked(tuple(c for c in executed if c.kind in kinds and not self.data[c.leader].dense))
        return looked_at(self.structure, chain[-1], kinds, self.data, gaps=False)

    def _total(
        self,
        chain: tuple[TransferEdge, ...],
        kind: str,
        looked: Looked,
        nonzeros: bool,
        points: BlockPoints,
    ) -> Array:
        useful = self._useful(chain, looked, nonzeros)
        key = self._key(chain, kind, useful)
        if key not in points.sums:
            points.sums[key] = self._sum(chain, kind, useful).values(points.settings)
        return points.sums[key]

    def _key(self, chain: tuple[TransferEdge, ...], kind: str, useful: Looked) -> tuple[object, ...]:
        place = (chain[-1].tensor, chain[-1].level) if chain else ()
        looked = frozenset(useful.conditions), useful.meetings
        return place, terms_of(kind, chain, self._output(chain)), looked

    def _output(self, chain: Sequence[TransferEdge]) -> bool:
        return bool(chain) and self.structure.einsum.access_of(chain[-1].tensor).output

    def _sum(self, chain: tuple[TransferEdge, ...], kind: str, useful: Looked) -> Contraction:
        key = self._key(chain, kind, useful)
        if key not in self._sums:
            self._sums[key] = self._made(chain, kind, useful)
        return self._sums[key]

    def _made(self, chain: tuple[TransferEdge, ...], kind: str, useful: Looked) -> Contraction:
        link = chain[-1] if chain else None
        each = [self.looked(chain, kinds) for kinds in (SKIPS, ACTIONS)]
        every = overlaps(tuple(dict.fromkeys(c for x in each for c in x.conditions)))
        meetings = tuple(dict.fromkeys(m for x in each for m in x.meetings))
        factors: list[ClassFactor] = []
        for m in useful.meetings:
            accesses = tuple(map(self.structure.einsum.access_of, m.leaders))
            data = tuple(self.data[t] for t in m.leaders)
            factors.append(Meets(accesses, data, len(every) + meetings.index(m)))
        for leader in dict.fromkeys(c.leader for c in useful.conditions):
            mine = tuple(c for c in useful.conditions if c.leader == leader)
            parts = mine if len(mine) == 1 else overlaps(mine)
            where = {(c.leader, c.digits): i for i, c in enumerate(every)}
            numbers = tuple(where[c.leader, c.digits] for c in parts)
            access = self.structure.einsum.access_of(leader)
            if not access.variables:
                message = f"{self.structure.name}: {leader} has no ranks"
                raise NotSeparable(message, code="unsupported-density")
            if not self.data[leader].placeless:
                message = f"{self.structure.name}: the density model of {leader} knows places"
                raise NotSeparable(message, code="unsupported-density")
            if sum(len(x.variables) for x in access.projection) > len(access.variables):
                message = f"{self.structure.name}: one rank variable indexes two ranks of {leader}"
                raise NotSeparable(message, code="unsupported-density")
            factors.append(Holds(access, self.data[leader], mine, parts, numbers))
        powers: dict[str, int] = {}
        for x in self.structure.einsum.access_of(link.tensor).projection if link else ():
            if len(x.variables) > 1:
                factors.append(WindowValues(x))
            for v in x.variables if len(x.variables) == 1 else ():
                powers[v] = powers.get(v, 0) + 1
        classes = self._of(chain, (*every, *meetings), any(x.by_value for x in each))
        return Contraction(classes, terms_of(kind, chain, self._output(chain)), factors, powers)

    def _of(
        self, chain: tuple[TransferEdge, ...], every: tuple[Condition | Meeting, ...], by_value: bool
    ) -> dict[str, tuple[Classes, ...]]:
        key = (chain[-1].tensor, chain[-1].level) if chain else ()
        if key not in self._classes:
            self._classes[key] = {
                c.variable: classes_of(self.structure, c, chain, every, by_value) for c in self.columns
            }
        return self._classes[key]


class EinsumSweep:
    """The counts of one Einsum under one structure of links."""

    def __init__(
        self,
        structure: EinsumLinks,
        columns: Sequence[VariableColumn],
        data: Mapping[str, TensorData],
        formats: Formats,
    ) -> None:
        self.structure = structure
        self.data = seen_by(structure.einsum, data)
        self.formats = formats
        self.sums = LinkedSums(structure, columns, self.data)
        self.tilings = EinsumTilings(structure, columns, self.data)
        self._effectual = self._share()
        self._instances: dict[tuple[Condition, ...], Instances] = {}

    def _share(self) -> float:
        """Effectual operations as a share of all."""
        einsum = self.structure.einsum
        require_known(einsum, self.data)
        result = effectual_points(einsum, self.data)
        if result.label == "estimate":
            message = f"{einsum.name}: which operations are effectual is not known"
            raise NotSeparable(message, code="unsupported-density")
        return result.number / result.of

    def compute(self, row: ComputeCounts[Array], points: BlockPoints) -> ComputeCount:
        """`EinsumCounts.compute`."""
        dense = row.operations
        effectual, executed, turns = dense, dense, dense
        if not self.structure.einsum.is_copy:
            turns = self.sums.remaining((), "operations", self.sums.looked((), SKIPS), dense, False, points)
            executed = self.sums.remaining(
                (), "operations", self.sums.looked((), ACTIONS), dense, False, points
            )
            effectual, executed, turns = in_order(dense * self._effectual, executed, turns, dense)
        busiest = self._busiest(dense, row.busiest, turns, points)
        return compute_count(row, effectual, executed, turns, busiest)

    def _busiest(self, dense: Array, most: Array, turns: Array, points: BlockPoints) -> Array:
        """Timed operations of the instance with the most of them (`EinsumCounts._busiest`).

        `most`: operations that the dense schedule gives one instance.
        """
        mean = most * ratio(turns, dense)
        useful = sharpest(self.sums.looked((), SKIPS).conditions)
        if len(useful) != 1 or not self.structure.box or self.structure.einsum.is_copy:
            return mean
        if useful not in self._instances:
            data = self.data[useful[0].leader]
            settings = {c.variable: map(c.counters, range(c.settings)) for c in self.sums.columns}
            self._instances[useful] = Instances(self.structure, settings, useful[0], data)
        instances = self._instances[useful]
        result = instances.busiest(points.settings)
        followed = self.sums.followed(dense, points) & np.isclose(
            instances.dense(points.settings), most, rtol=1e-13, atol=0
        )
        return np.where(followed & ~np.isnan(result), result, mean)

    def access(self, row: Traffic[Array], kind: str, points: BlockPoints) -> AccessCount:
        """`EinsumCounts._one`."""
        component, tensor, dense = row.component, row.tensor, getattr(row, kind)
        data = self.data[tensor]
        nonzeros = self.formats.compressed(component, tensor) and not data.dense
        how = self.formats.known.get((component, tensor))
        (chain,) = self.structure.ways(tensor, row.node, kind) or ((),)
        held = turns = actual = dense * data.density if nonzeros else dense
        if chain:
            each = (NOTHING, self.sums.looked(chain, SKIPS), self.sums.looked(chain, ACTIONS))
            held, turns, actual = (
                self.sums.remaining(chain, kind, some, dense, nonzeros, points) for some in each
            )

        def tiling(how: KeptTensor) -> TileBits:
            digits = transfer_digits(self.structure, tensor, row.node, kind)
            return self.tilings.bits((component, tensor), how, digits, points.settings)

        bits = self.formats.accesses[tensor].bits_per_value if how is not None else 0
        return access_count(row, kind, moved(dense, held, turns, actual, how, tiling, bits))


class _Turned(EinsumLinks):
    """The structure at settings for which it is known which loops have several iterations."""

    def __init__(self, problem: Problem, einsum: str, turning: frozenset[int]) -> None:
        super().__init__(problem, einsum)
        self._turning = turning

    @cached_property
    def turning(self) -> frozenset[int]:
        return self._turning


class Structures:
    """The structures of one Einsum over a grid.

    If a storage lets tiles stay, what distinguishes transfers depends on which loops have several iterations;
    otherwise there is one structure only.
    """

    def __init__(
        self, problem: Problem, einsum: str, columns: Sequence[VariableColumn], data: Mapping[str, TensorData]
    ) -> None:
        self.columns = columns
        formats = Formats(problem)
        base = bound_problem(problem, columns[0].values[0]) if columns else problem
        stays = any(isinstance(n, StorageNode) and n.reuse.carries for _, n, _ in problem.tree.walk())
        self.patterns: list[tuple[frozenset[int], ...]] = []
        self.pattern: list[Any] = []
        for c in columns:
            found = [_turning(c, i) if stays else frozenset() for i in range(c.settings)]
            distinct = tuple(dict.fromkeys(found))
            self.patterns.append(distinct)
            self.pattern.append(np.array([distinct.index(x) for x in found]))
        shape = tuple(map(len, self.patterns))
        if prod(shape) > MOST_STRUCTURES:
            message = f"{einsum}: which tiles stay where they are changes in {prod(shape)} ways"
            raise NotSeparable(message, code="too-large")
        self.number = np.zeros(shape, np.int64)
        self.each: list[EinsumSweep] = []
        kinds: dict[object, int] = {}
        for place in product(*map(range, shape)):
            turning: frozenset[int] = frozenset().union(
                *(p[i] for p, i in zip(self.patterns, place, strict=True))
            )
            structure = _Turned(base, einsum, turning)
            key = tuple(structure.links(t) for t in structure.einsum.tensors)
            if key not in kinds:
                kinds[key] = len(self.each)
                self.each.append(EinsumSweep(structure, columns, data, formats))
            self.number[place] = kinds[key]

    def parts(self, settings: Settings) -> list[tuple[EinsumSweep, BlockPoints]]:
        """The structures at these points, each with a mask."""
        if len(self.each) == 1:
            return [(self.each[0], BlockPoints(settings))]
        at = tuple(p[settings[c.variable]] for p, c in zip(self.pattern, self.columns, strict=True))
        number = self.number[at]
        return [(self.each[i], BlockPoints(settings, number == i)) for i in np.unique(number).tolist()]


def _turning(column: VariableColumn, setting: int) -> frozenset[int]:
    counters = column.counters(setting)
    pairs = zip(counters.loops, counters.counters, strict=True)
    return frozenset(i for (i, _), k in pairs if k.any())
