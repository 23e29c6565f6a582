"""What sparse data leave of every access and operation at least, whatever the mapping is.

Sparse counts (`sparse.actions`) eliminate a transfer where a part of a leader is empty. The part holds at
least one point, so it is not empty with at least the chance of one point: the product of these chances over
the leaders bounds the share of transfers that happen from below. With prices that are so much lower, the
figures of the search are lower bounds of sparse energy and latency, and exact where all actions look at
single points.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import combinations
from math import prod

import numpy as np

from polymodel.architecture.hierarchy import Component, Hierarchy
from polymodel.errors import Refused
from polymodel.mapper.records import Shares, Sizes, Toll
from polymodel.mapper.terms import READS
from polymodel.mapper.ties import is_box
from polymodel.sparse.actions.data import TensorData
from polymodel.sparse.actions.join import Axis, Table, weighted_count
from polymodel.sparse.actions.places import differs, effectual_points, seen_by
from polymodel.sparse.actions.records import KINDS
from polymodel.sparse.actions.storage import Kept, kept, written_format
from polymodel.sparse.actions.zeros import is_union, require_known
from polymodel.sparse.formats import CISS, CP, RLE, B, NamedFormat, PerRank, RankRule
from polymodel.workload.einsum import Cascade, Einsum

OUTER = ("reads_fill", "writes_drain")  # at the memory that serves what is further in
PARTIAL = ("reads_fill", "writes_fill")  # of outputs: visits that find a partial sum
REMEDY = "evaluate mappings written by hand, or sweep them"


def least_shares(
    cascade: Cascade, hierarchy: Hierarchy, data: Mapping[str, TensorData], sizes: Sizes
) -> tuple[Shares, ...]:
    """One record per Einsum. Refused for data whose tiles differ, where tile sizes need not divide, and where
    more than memories and compute takes energy or time."""
    paid = any(c.kind == "toll" and c.actions for c in hierarchy.components) or bool(hierarchy.costly_links)
    several = any(c.by_operator for c in hierarchy.components)
    if paid or several or not hierarchy.assume_overlap:
        what = "tolls, links with costs, operators with costs of their own and `assume_overlap: false`"
        raise Refused(f"the search on sparse data does not cover {what}", REMEDY)
    moving = [(c, a) for c in hierarchy.components if c.kind == "memory" for a in c.actions]
    for c in (c for c, a in moving for e in cascade for x in e.accesses if a.rounds(x.bits_per_value)):
        what = f"`bits_per_action` of {c.name} that divides no value"
        raise Refused(f"the search on sparse data does not cover {what}", REMEDY)
    for one in (e for e in cascade if not is_box(e)):
        what = f"the iteration space of {one.name}, which is no box"
        raise Refused(f"the search on sparse data does not cover {what}", REMEDY)
    return tuple(_Least(e, hierarchy, data, sizes).shares() for e in cascade.einsums)


class _Least:
    def __init__(
        self, einsum: Einsum, hierarchy: Hierarchy, data: Mapping[str, TensorData], sizes: Sizes
    ) -> None:
        self.einsum, self.hierarchy, self.data, self.sizes = einsum, hierarchy, data, sizes
        self.memories = [c for c in hierarchy.components if c.kind == "memory"]
        self._joint: dict[frozenset[str], float] = {}

    def shares(self) -> Shares:
        moved = tuple(
            tuple(
                tuple((kind, self._toll(a.tensor, m, kind)) for kind in KINDS)
                for m in range(len(self.memories))
            )
            for a in self.einsum.accesses
        )
        units = tuple(self._unit(c) for c in self.hierarchy.components if c.kind == "compute")
        return Shares(moved, units)

    def _leaders(self, component: Component, tensor: str, kinds: Sequence[str]) -> set[str]:
        """What makes accesses of a tensor idle at a component ("": its operations)."""
        result: set[str] = set()
        for action in component.sparse.actions if component.sparse else ():
            targets, leaders = action.of(self.einsum.name)
            if action.kind in kinds and (tensor in targets or not tensor):
                result |= set(leaders)
        return result

    def _above(self, tensor: str, outermost: int, kinds: Sequence[str]) -> frozenset[str]:
        """The same at any of the first memories that may hold it; without leaders that have no zeros."""
        if self.einsum.is_copy:
            return frozenset()
        result: set[str] = set()
        for number, c in enumerate(self.memories[:outermost]):
            if not number or self._may(c, tensor):
                result |= self._leaders(c, tensor, kinds)
        return self._sparse(result)

    def _may(self, component: Component, tensor: str) -> bool:
        rules = (component.keep, component.may_keep)
        return rules[1] is None or any(r is not None and tensor in r.tensors(self.einsum.name) for r in rules)

    def _sparse(self, leaders: set[str]) -> frozenset[str]:
        return frozenset(x for x in leaders if not self.data[x].dense)

    def _chance(self, leaders: frozenset[str]) -> float:
        """The least probability (of data: share of transfers) that parts of all of them hold anything."""
        given = frozenset(x for x in leaders if self.data[x].actual is not None)
        if self._tied(leaders):
            return 0.0  # the nonzeros of one may all lie where the other has none
        result = self._common(given)
        for x in sorted(leaders - given):
            result *= self._point(x)
        return result

    def _tied(self, tensors: frozenset[str]) -> bool:
        """True if a model says where nonzeros lie along a rank variable of a tensor of which that is known,
        too."""
        accesses = [self.einsum.access_of(t) for t in sorted(tensors)]
        differing = [a for a in accesses if differs(self.data[a.tensor], a)]
        return any(
            set(a.variables) & set(b.variables)
            for a, b in combinations(differing, 2)
            if self.data[a.tensor].actual is None or self.data[b.tensor].actual is None
        )

    def _differ(self, tensors: frozenset[str]) -> bool:
        return any(differs(self.data[t], self.einsum.access_of(t)) for t in tensors)

    def _point(self, tensor: str) -> float:
        """Probability that one point is not zero."""
        self._even(tensor)
        ones = tuple(np.ones(1, np.int64) for _ in self.einsum.access_of(tensor).ranks)
        return float(self.data[tensor].nonempty(ones).reshape(-1)[0])

    def _common(self, tensors: frozenset[str]) -> float:
        """Of given data: the share of iterations in which none of them is zero.

        Where tiles divide, every transfer stands for as many iterations, and happens if any of them has
        nonzeros only.
        """
        if not tensors:
            return 1.0
        if tensors not in self._joint:
            size = {v: high - low + 1 for v, (low, high) in self._bounds().items()}
            tables = [self._table(t) for t in sorted(tensors)]
            axes = {
                v: Axis(
                    np.ones(n, np.int64), {k: np.arange(n) for k, t in enumerate(tables) if v in t.variables}
                )
                for v, n in size.items()
            }
            self._joint[tensors] = weighted_count(tables, axes) / prod(size.values())
        return self._joint[tensors]

    def _bounds(self) -> dict[str, tuple[int, int]]:
        return dict(zip(self.einsum.rank_variables, self.einsum.bounds, strict=True))

    def _table(self, tensor: str) -> Table:
        self._even(tensor)
        access, actual, bounds = self.einsum.access_of(tensor), self.data[tensor].actual, self._bounds()
        assert actual is not None, "asked for given data only"
        names = [x.terms[0][0] for x in access.projection]
        ids = [
            actual.rank(r) - x.constant - bounds[v][0]
            for r, x, v in zip(access.ranks, access.projection, names, strict=True)
        ]
        return Table.of(names, ids, actual.nnz, different=True)

    def _even(self, tensor: str) -> None:
        """Refused where tiles of data that are not alike everywhere may differ in size."""
        known, access, bounds = self.data[tensor], self.einsum.access_of(tensor), self._bounds()
        if known.placeless and known.actual is None:
            return
        reason = ""
        if self.sizes == "all":
            reason = "with `sizes: all` tiles of different sizes"
        elif not all(len(x.terms) == 1 and x.terms[0][1] == 1 for x in access.projection):
            reason = "behind ranks of several rank variables tiles"
        else:
            spans = [bounds[x.terms[0][0]] for x in access.projection]
            source = known.model if known.actual is None else known.actual
            assert source is not None, "a tensor without data or model is the same everywhere"
            if tuple(high - low + 1 for low, high in spans) != tuple(source.shape):
                reason = f"of {tensor}, of which {self.einsum.name} uses a part, tiles"
        if reason:
            raise Refused(
                f"{self.einsum.name}: {reason} hold unknown shares of the nonzeros of {tensor}",
                f"give {tensor} a uniform density, leave `sizes` at divisors, or {REMEDY}",
            )

    def _kept(self, component: Component, tensor: str) -> Kept | None:
        """How a component keeps a tensor; None if point by point."""
        for name, written in component.sparse.formats if component.sparse else ():
            if name == tensor:
                result = kept(written_format(self.einsum.access_of(tensor), written))
                return result if result.elides or result.blocks else None
        return None

    def _toll(self, tensor: str, memory: int, kind: str) -> Toll:
        """Joules and bits of one element: at least, on average over all of the dense counts."""
        component, access = self.memories[memory], self.einsum.access_of(tensor)
        way, bits = "read" if kind in READS else "write", access.bits_per_value
        price, gated = price_of(component, way), price_of(component, f"gated_{way}")
        how, known = self._kept(component, tensor), self.data[tensor]
        nonzeros = how is not None and how.elides and not known.dense
        held = self._held(tensor) if nonzeros else 1.0
        turns, actual = (
            self._left(
                tensor,
                nonzeros,
                self._leading(tensor, memory, kind, kinds),
                access.output and kind in PARTIAL,
            )
            for kinds in (("skip",), ("skip", "gate"))
        )
        if how is not None and how.blocks:
            least = self._held(tensor) * _payload(how) / bits
            held, turns, actual = held * least, turns * least, actual * least
        more = 0.0
        if how is not None and how.elides and held:
            # What goes with a value besides: stored bits of a nonzero, less the value as counted.
            density = known.model.density if known.model is not None else held
            more = (density * _stored(how, len(access.ranks)) - held * bits) / held
        named = any(a.name == f"metadata_{way}" for a in component.actions)
        about = price_of(component, f"metadata_{way}") if named else price
        each = bits * price + more * about  # of an element that moves
        other = bits * gated
        joules = actual * max(each - other, 0.0) + turns * min(each, other)
        if each < 0:
            joules = held * each
        time = turns * bits + actual * more if more >= 0 else turns * (bits + more)
        return joules, time

    def _leading(self, tensor: str, memory: int, kind: str, kinds: Sequence[str]) -> frozenset[str]:
        """Tensors whose zeros spare transfers: leaders of actions, and of an output what makes operations
        idle on any unit, as its elements move only where one is executed."""
        result = self._above(tensor, memory + (kind in OUTER), kinds)
        if self.einsum.is_copy or not self.einsum.access_of(tensor).output:
            return result
        # The memory further out of the two that exchange it decides whether it moves densely.
        outer = [m for i, m in enumerate(self.memories[:memory]) if not i or self._may(m, tensor)]
        outer = [self.memories[memory]] if kind in OUTER else outer
        if all(m.sparse is not None and tensor in m.sparse.dense_outputs for m in outer):
            return result
        units = (c for c in self.hierarchy.components if c.kind == "compute")
        return result.union(*(self._idle(c, len(self.memories), kinds) for c in units))

    def _held(self, tensor: str) -> float:
        """Share of the points that are not zero."""
        known = self.data[tensor]
        self._even(tensor)
        return self._common(frozenset({tensor})) if known.actual is not None else known.density

    def _left(self, tensor: str, nonzeros: bool, leaders: frozenset[str], partial: bool) -> float:
        """Share of the elements that move: nonzeros only, if asked, whose leaders' parts hold anything."""
        known = self.data[tensor]
        if partial and self._differ(leaders):
            return 0.0  # the nonzeros may all lie where sums begin
        if not nonzeros:
            return self._chance(leaders)
        leaders -= {tensor}
        if known.actual is not None:
            return self._chance(leaders | {tensor})
        if self._tied(leaders | {tensor}):
            return 0.0
        if known.computed and leaders:
            return min(self._chance(leaders), known.density)  # as the counts have it
        return self._chance(leaders) * known.density

    def _unit(self, component: Component) -> tuple[str, float, float]:
        if self.einsum.is_copy:
            return component.name, 0.0, 0.0
        within = self.hierarchy.index(component.name)
        reach = sum(self.hierarchy.index(m.name) < within for m in self.memories)
        effectual = self._effectual()
        turns, executed = (
            max(effectual, self._chance(self._idle(component, reach, kinds)))
            for kinds in (("skip",), ("skip", "gate"))
        )
        price, gated = component.action("compute").energy, component.action("gated_compute").energy
        joules = executed * max(price - gated, 0.0) + turns * min(price, gated)
        return component.name, joules, turns

    def _idle(self, component: Component, reach: int, kinds: Sequence[str]) -> frozenset[str]:
        """What makes operations idle: the unit's actions, and (but of sums) all on the operands on their way
        in."""
        result = self._sparse(self._leaders(component, "", kinds))
        if is_union(self.einsum):
            return result
        return result.union(*(self._above(a.tensor, reach, kinds) for a in self.einsum.inputs))

    def _effectual(self) -> float:
        """Share of the operations whose result may be nonzero: they are executed."""
        einsum = self.einsum
        require_known(einsum, self.data)
        if any(self.data[a.tensor].actual is not None for a in einsum.inputs):
            return 0.0
        found = effectual_points(einsum, seen_by(einsum, self.data))
        return 0.0 if found.label == "estimate" else found.number / found.of


def price_of(component: Component, action: str) -> float:
    """Joules per bit; an action that is not named is free."""
    result = component.action(action)
    return result.energy / (result.bits_per_action or 1)


def _payload(how: Kept) -> int:
    """Bits of one value as it is stored."""
    form = how.format
    if isinstance(form, NamedFormat | CISS):
        return form.widths.data
    assert isinstance(form, PerRank), "formats are per rank or of whole tensors"
    return int(getattr(form.rules[-1], "pbits", 0))


def _stored(how: Kept, ranks: int) -> int:
    """Bits that every nonzero takes at least; coordinates take one bit each where their width follows from
    the sizes of tiles."""
    form = how.format
    if isinstance(form, NamedFormat):
        index = 1 if form.widths.index is None else form.widths.index
        return _payload(how) + index * (ranks if form.kind == "COO" else min(ranks, 1))
    return _payload(how) + (_beside(form.rules[-1]) if isinstance(form, PerRank) else 0)


def _beside(rule: RankRule) -> int:
    """Bits beside a value in the last rank."""
    width: int | None = 0
    if isinstance(rule, CP | B):
        width = rule.cbits
    elif isinstance(rule, RLE):
        width = rule.rbits
    return 1 if width is None else width
