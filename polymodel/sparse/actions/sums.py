"""Count the transfers of one link whose conditions hold, from the tiles and from what is known of the
data."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import field, replace
from itertools import combinations
from math import prod
from typing import Protocol

import numpy as np

from polymodel.errors import Refused
from polymodel.frozen import dataclass
from polymodel.sparse.actions.by_place import PlacedTiles, class_means, most_of_an_instance
from polymodel.sparse.actions.counters import Ints
from polymodel.sparse.actions.data import TensorData
from polymodel.sparse.actions.join import GroupTable
from polymodel.sparse.actions.links import (
    POINT,
    Condition,
    Digits,
    EinsumLinks,
    TransferEdge,
    UsedElements,
    sharpest,
)
from polymodel.sparse.actions.places import differs, each_once
from polymodel.sparse.actions.points import full_tensor
from polymodel.sparse.actions.reach import Looked, Meeting, chances, looked_at, meeting_table, one_of_each
from polymodel.sparse.actions.storage import LoopTiles
from polymodel.sparse.actions.tally import Bools, Floats, LinkTally, region_table
from polymodel.sparse.density.hypergeometric import Hypergeometric
from polymodel.sparse.tensor import SparseTensor
from polymodel.workload.einsum import TensorAccess

# Where probabilities depend on the position of a tile, their means over all positions must not be multiplied.
#
# A position-dependent model gives the mean probability, over all positions, that a full tile of its tiling is
# empty. The fraction of transfers that happen equals that mean only where every position counts equally, and
# not where something else varies along the same rank variables.


@dataclass(frozen=True, eq=False)
class ClassTransfers:
    """Properties of each combination of classes: which transfers count (`counted`), and the probabilities
    that joint conditions (`met`) and conditions (`chance`) hold. `given`: leaders whose nonzeros are given.
    `own`: the tensor of which only nonzeros count, if any."""

    tally: LinkTally
    data: Mapping[str, TensorData]
    counted: Bools
    met: Floats
    given: Sequence[str]
    own: TensorAccess | None
    chance: Callable[[Sequence[Condition]], Floats]

    def free(self, conditions: Sequence[Condition]) -> tuple[Condition, ...]:
        """Return the conditions for which the mean probability over all positions equals the fraction of
        transfers. Without the others the fraction is an upper bound."""
        placed = {c: v for c in conditions if (v := self._along(c))}
        if not placed:
            return tuple(conditions)
        elsewhere = [c for c in conditions if c not in placed]
        arrays = (*self._arrays(elsewhere), self.tally.elements())
        varying, taken = self._varying(arrays), self._actual_variables()
        if self.own is not None:
            taken |= set(self.own.variables) if differs(self.data[self.own.tensor], self.own) else set()
        kept = list(elsewhere)
        for condition, along in placed.items():
            if not along & taken and all(self._evenly(condition, v, arrays) for v in along & varying):
                kept.append(condition)
                taken |= along
        return tuple(c for c in conditions if c in kept)

    def _evenly(self, condition: Condition, variable: str, arrays: Sequence[Floats | Bools]) -> bool:
        """Return True if every full part of the leader along a rank variable has equal counts, such as one
        read for the instances that share it; smaller parts are taken never to be empty. `arrays`: the counts
        of classes, and what they are multiplied by."""
        axis = next(n for n, a in enumerate(self.tally.axes) if a.variable == variable)
        number, atoms = self.tally.conditions.index(condition), self.tally.axes[axis]
        part, sizes = atoms.groups[number], atoms.sizes[number]
        rows = [np.moveaxis(x, axis, 0) for x in arrays if x.shape[axis] > 1]
        columns = np.concatenate([x.reshape(x.shape[0], -1) for x in rows], axis=1)
        labels = np.unique(columns, axis=0, return_inverse=True)[1].reshape(-1)[self.tally.labels[axis]]
        table = np.zeros((int(part.max()) + 1, int(labels.max()) + 1), np.int64)
        np.add.at(table, (part, labels), 1)
        full = table[np.unique(part[sizes == sizes.max()])]
        return bool((full == full[0]).all())

    def own_is_tied(self, conditions: Sequence[Condition]) -> bool:
        """Return True if the tensor itself has a position-dependent model and its density is not the fraction
        of nonzeros among what moves. `conditions`: the result of `free`."""
        if self.own is None:
            return False
        if self.data[self.own.tensor].actual is not None or not differs(self.data[self.own.tensor], self.own):
            return False
        elsewhere = [c for c in conditions if not self._along(c)]
        return not each_once(self.own) or bool(
            set(self.own.variables) & (self._varying(self._arrays(elsewhere)) | self._actual_variables())
        )

    def taken(self, placed: Sequence[PlacedTiles]) -> bool:
        """Return True if counts differ inside classes along rank variables of these tiles, because of given
        nonzeros or of those of the tensor itself."""
        inside = self._actual_variables()
        if self.own is not None and differs(self.data[self.own.tensor], self.own):
            inside |= set(self.own.variables)
        return any(inside & {*p.along} for p in placed)

    def _actual_variables(self) -> set[str]:
        return {v for t in self.given for v in self.tally.structure.led(t).variables}

    def _along(self, condition: Condition) -> frozenset[str]:
        """Return the rank variables along which the probability of a condition depends on the position."""
        known = self.data[condition.leader]
        if known.placeless:
            return frozenset()
        if known.alike(tuple(int(extents.max()) for extents in self.tally.part(condition))):
            return frozenset()
        number = self.tally.conditions.index(condition)
        several = (a for a in self.tally.axes if number in a.groups and a.groups[number].any())
        return frozenset(a.variable for a in several)

    def _arrays(self, conditions: Sequence[Condition]) -> tuple[Floats | Bools, ...]:
        """Return which transfers count, and the probabilities that they are multiplied by."""
        return self.counted, self.met, self.chance(conditions)

    def _varying(self, arrays: Sequence[Floats | Bools]) -> set[str]:
        """Return the rank variables along which counts differ."""
        return {
            atoms.variable
            for n, atoms in enumerate(self.tally.axes)
            for array in arrays
            if array.shape[n] > 1 and bool((array != np.take(array, [0], axis=n)).any())
        }


class PartExtents(Protocol):
    """An object that gives the extents of each condition's part. `axes`: its length is their number of
    dimensions."""

    @property
    def axes(self) -> Sequence[object]: ...

    def part(self, condition: Condition) -> tuple[Ints, ...]:
        """Return the extents per rank of the leader."""


Number = float  # an int where every datum is exact
NOTHING = Looked()


@dataclass
class Tables:
    """Tables of one Einsum, shared by its links: which tiles of a tensor, distinguished by these loops, hold
    a nonzero. Sums that were computed before are kept, too."""

    known: dict[tuple[object, ...], GroupTable] = field(default_factory=dict)
    sums: dict[tuple[object, ...], tuple[Number, bool]] = field(default_factory=dict)
    meetings: dict[Meeting, GroupTable] = field(default_factory=dict)
    shares: dict[tuple[str, Digits], float | None] = field(default_factory=dict)


# The end of a link at which an access is counted, and the access that writes back the sums that one fetches.
_SIDES = {"reads_fill": "read", "writes_drain": "read", "writes_fill": "write", "reads_drain": "write"}
_WRITTEN = {"reads_fill": "writes_drain", "writes_fill": "reads_drain"}


class LinkSums:
    """Sums over the transfers of the last link of `chain` (if it is empty, over the operations of the
    Einsum).

    `tables` is filled during use.
    """

    def __init__(
        self,
        structure: EinsumLinks,
        data: Mapping[str, TensorData],
        tables: Tables,
        chain: Sequence[TransferEdge] = (),
    ) -> None:
        self.structure = structure
        self.data = data
        self._tables = tables
        self.chain = tuple(chain)
        self.link = chain[-1] if chain else None
        self.tensor = self.link.tensor if self.link else ""

    def looked(self, kinds: Sequence[str]) -> Looked:
        """Return the conditions that actions of these kinds put on the transfers (or operations)."""
        if self.link is not None:
            return looked_at(self.structure, self.link, kinds, self.data)
        kept, loose = one_of_each(self.structure, self.structure.executed(), kinds, self.data)
        return Looked(kept, loose=loose)

    @property
    def followed(self) -> bool:
        """False where some iterations touch none of the tensor, such as the first iteration of a
        recurrence."""
        return not any(a.guard for a in self.structure.einsum.accesses_of(self.tensor))

    def alone(self, kinds: Sequence[str]) -> Looked:
        """Return the conditions that actions on the tensor itself put on the transfers, which give an upper
        bound."""
        assert self.link is not None, "operations have no tensor of their own"
        kept, _ = one_of_each(self.structure, self.link.conditions, kinds, self.data)
        return Looked(kept, loose=bool(kept) or bool(self.looked(kinds)))

    def total(self, kind: str, looked: Looked = NOTHING, nonzeros: bool = False) -> Number:
        """Return the number of elements that move in one kind of access where all conditions hold; with
        `nonzeros`, only nonzeros count.

        Raises Refused for what is too large to list.
        """
        return self._known(kind, looked, nonzeros)[0]

    def sure(self, kind: str, looked: Looked, nonzeros: bool) -> bool:
        """Return False where the number that `total` returns is an upper bound."""
        return not looked.loose and self._known(kind, looked, nonzeros)[1]

    def _known(self, kind: str, looked: Looked, nonzeros: bool) -> tuple[Number, bool]:
        useful = sharpest(c for c in looked.conditions if self._matters(c, nonzeros))
        side = kind if self.partial(kind) else _SIDES.get(kind, "all")
        place = self.link and (self.link.used.accesses, self.link.level)
        key = (place, side, frozenset(useful), frozenset(looked.meetings), looked.by_value, nonzeros)
        if key not in self._tables.sums:
            found = self._total(kind, replace(looked, conditions=useful), nonzeros)
            if self.partial(kind) and not found[1]:
                # At most as many sums are read again as are written.
                found = min(found[0], self._known(_WRITTEN[kind], looked, nonzeros)[0]), False
            self._tables.sums[key] = found
        result, sure = self._tables.sums[key]
        return result, sure and not (nonzeros and self.tied(looked.conditions))

    def partial(self, kind: str) -> bool:
        """Return True for fills of an output, which move partial sums and are absent from some transfers."""
        fills = kind in ("reads_fill", "writes_fill")
        return fills and self.link is not None and self.structure.einsum.access_of(self.tensor).output

    def _total(self, kind: str, looked: Looked, nonzeros: bool) -> tuple[Number, bool]:
        useful = looked.conditions
        own = self.data[self.tensor] if nonzeros else None
        given_own = own is not None and own.actual is not None and not own.dense
        scattered = self.link is not None and self.link.used.union is None
        plain = self.link is not None and all(
            len(x.terms) == 1 for a in self.link.used.accesses for x in a.projection
        )
        by_value = given_own and plain and self.link is not None and len(self.link.used.accesses) == 1
        modelled = tuple(c for c in useful if self.data[c.leader].actual is None)
        given = tuple(c for c in useful if c not in modelled)
        met = tuple(m for m in looked.meetings if self._is_actual(m))
        parts: tuple[Condition | Meeting, ...] = (*given, *met, *overlaps(modelled))
        parts += tuple(m for m in looked.meetings if m not in met)
        by_value = by_value or looked.by_value
        tally = LinkTally(self.structure, self.chain, parts, by_value, self._pointwise)
        counted = self._counted(tally, kind)
        factor, sure = self._met(tally, looked.meetings)
        leaders = [c.leader for c in given] + [t for m in met for t in m.leaders]
        leaders += [self.tensor] if given_own else []
        tied = ClassTransfers(
            tally, self.data, counted, factor, leaders, self.structure.einsum.access_of(self.tensor)
            if nonzeros else None,
            lambda some: self._factor(tally, some),
        )  # fmt: skip
        free = tied.free(modelled)
        scale = own.density if own is not None and not given_own else 1.0
        if tied.own_is_tied(free):
            scale, sure = 1.0, False
        placed = self._placed(tally, modelled, free)
        means = class_means(tally, placed) if placed and not tied.taken(placed) else None
        if means is not None:
            others = [p.condition for p in placed]
            factor = factor * means * self._factor(tally, [c for c in modelled if c not in others])
        else:
            sure = sure and len(free) == len(modelled) and not any(map(self.uneven, free))
            sure = sure and not self.overlap(free)
            factor = factor * self._factor(tally, free)
        tables = {i: self.table(c) for i, c in enumerate(given)}  # numbers as the tally has them
        tables |= {i: self._joint_table(m) for i, m in enumerate(met, len(given))}
        if not tables and not given_own and not scattered:
            result = float((tally.counts() * tally.elements() * counted * factor).sum()) * scale
            return (round(result) if scale == 1 and (factor == 1).all() else result), sure
        mine = self._own_table(by_value, given_own) if given_own or scattered else None
        result = tally.actual(counted, factor, tables, mine)
        return (result if scale == 1 else result * scale), sure

    def _placed(
        self, tally: LinkTally, modelled: Sequence[Condition], free: Sequence[Condition]
    ) -> tuple[PlacedTiles, ...]:
        """Return the conditions that must be evaluated position by position, together with all other
        position-dependent conditions. Return none where the mean over all positions suffices, or one of them
        is not known by position."""
        if len(free) == len(modelled) and not any(map(self.uneven, free)):
            return ()
        result = [PlacedTiles.of(tally, c, self.data[c.leader]) for c in modelled if self._is_placed(c)]
        known = tuple(p for p in result if p is not None)
        apart = len({p.condition.leader for p in known}) == len(result)
        return known if apart else ()

    def _is_placed(self, condition: Condition) -> bool:
        return not self.data[condition.leader].placeless

    def most_of_an_instance(self, useful: Sequence[Condition], instances: Mapping[str, Ints]) -> float | None:
        """Return the largest expected number of operations of an instance at which all these conditions hold;
        None where it does not follow position by position. `instances`: for each rank variable, the part that
        each value belongs to."""
        alike = [c for c in useful if not self._is_placed(c)]
        tally = LinkTally(self.structure, (), tuple(useful), False, self._pointwise)
        known = [PlacedTiles.of(tally, c, self.data[c.leader]) for c in useful if c not in alike]
        placed = [p for p in known if p is not None]
        chances = [self._holds(tally, c) for c in alike]
        given = any(self.data[c.leader].actual is not None for c in useful)
        twice = len({self.structure.led(c.leader).tensor for c in useful}) < len(useful)
        if given or twice or not placed or len(placed) < len(known) or any(np.ptp(c) > 0 for c in chances):
            return None
        result = most_of_an_instance(tally, placed, instances)
        return None if result is None else result * prod(float(c.flat[0]) for c in chances)

    def _is_actual(self, meeting: Meeting) -> bool:
        return all(self.data[t].actual is not None for t in meeting.leaders)

    def _joint_table(self, meeting: Meeting) -> GroupTable:
        """Return where a joint condition on given data holds."""
        if meeting not in self._tables.meetings:
            tables = [self.table(c) for c in meeting.conditions]
            self._tables.meetings[meeting] = meeting_table(self.structure, meeting, tables)
        return self._tables.meetings[meeting]

    def _met(self, tally: LinkTally, meetings: Sequence[Meeting]) -> tuple[Floats, bool]:
        """Return the probability that all joint conditions on tensors with densities hold. The second result
        is False for an upper bound."""
        result, sure = np.ones([1] * len(tally.axes)), True
        for meeting in meetings:
            if not self._is_actual(meeting):
                pair = [self.data[t] for t in meeting.leaders]
                each, exactly = chances(*tally.joint_parts(meeting), pair)
                result, sure = result * each, sure and exactly
        return result, sure

    def shares(self, looked: Looked, kind: str) -> tuple[float, float]:
        """Return the minimum and maximum probability, over all transfers, that all conditions hold."""
        useful = sharpest(c for c in looked.conditions if self._matters(c, False))
        modelled = tuple(m for m in looked.meetings if not self._is_actual(m))
        # For given data a joint condition has no probability, but each of its conditions has one.
        useful += tuple(
            replace(c, digits=c.digits & m.fixed)
            for m in looked.meetings
            if m not in modelled
            for c in m.conditions
        )
        useful = sharpest(useful)
        asked: tuple[Condition | Meeting, ...] = (*overlaps(useful), *modelled)
        tally = LinkTally(self.structure, self.chain, asked, looked.by_value, self._pointwise)
        counted = np.broadcast_to(self._counted(tally, kind), [p.size for p in tally.picks])
        each = self._met(tally, modelled)[0] * self._factor(tally, useful)
        factor = np.broadcast_to(each, counted.shape)
        some = factor[counted]
        return (float(some.min()), float(some.max())) if some.size else (1.0, 1.0)

    def _matters(self, condition: Condition, nonzeros: bool) -> bool:
        if self.data[condition.leader].dense:
            return False
        if not nonzeros or self.structure.led(condition.leader).tensor != self.tensor:
            return True
        # The part that belongs to a nonzero of the leader itself holds that nonzero. For another of its
        # elements the two events are dependent, so that their probabilities must not be multiplied.
        return self.data[self.tensor].actual is not None and not self._holds_own(condition)

    def _holds_own(self, condition: Condition) -> bool:
        """Return whether the elements that move are among those of the leader's part."""
        assert self.link is not None, "operations have no tensor of their own"
        return {*self.link.used.accesses} <= {*self.structure.led(condition.leader).accesses}

    def tied(self, conditions: Iterable[Condition]) -> bool:
        """Return True if the probability that a nonzero moves depends on other elements of the same tensor,
        of which only the density is known. Then all nonzeros that might move are counted."""
        own = [c for c in conditions if self.structure.led(c.leader).tensor == self.tensor]
        return self.data[self.tensor].actual is None and not all(map(self._holds_own, own))

    @property
    def _pointwise(self) -> frozenset[str]:
        """Tensors of whose parts only the number of points matters."""
        return frozenset(
            t for t, known in self.data.items() if known.actual is None and known.law is not None
        )

    def _counted(self, tally: LinkTally, kind: str) -> Bools:
        if self.link is None:
            return tally.masks("all")
        result = tally.masks(_SIDES[kind])
        if self.partial(kind):
            result = result & tally.partial()
            if kind == "writes_fill":
                result = result & tally.receives()
        return result

    def uneven(self, condition: Condition) -> bool:
        """Return True if the leader's model is position-dependent and its parts differ in size, or have gaps
        which the model does not describe, so that the result is a bound."""
        data = self.data[condition.leader]
        if data.actual is not None or data.placeless:
            return False
        tiles = LoopTiles(self.structure, condition.leader, condition.digits)
        if sum(1 for _ in tiles.classes()) > 1:
            return True
        return not tiles.regular() and self._share_of_parts(condition) is None

    def overlap(self, conditions: Iterable[Condition]) -> bool:
        """Return True if conditions look at several windows of one leader: what they have in common depends
        on their positions, so that the probability of all is only known to be at most that of each."""
        number = Counter(c.leader for c in conditions if self.data[c.leader].actual is None)
        accesses = (a for leader, n in number.items() if n > 1 for a in self.structure.led(leader).accesses)
        return any(len(x.terms) > 1 for a in accesses for x in a.projection)

    def has_gaps(self, condition: Condition) -> bool:
        """Return True if parts of the leader do not consist of consecutive elements."""
        return not LoopTiles(self.structure, condition.leader, condition.digits).regular()

    def _share_of_parts(self, condition: Condition) -> float | None:
        """Return the mean probability that a part with gaps holds a nonzero; None where the model does not
        give it."""
        key = condition.leader, condition.digits
        if key not in self._tables.shares:
            model = self.data[condition.leader].model
            tiles = LoopTiles(self.structure, condition.leader, condition.digits)
            parts = None if model is None else tiles.parts(model.shape)
            found = None if model is None or parts is None else model.nonempty_of_parts(parts)
            self._tables.shares[key] = found
        return self._tables.shares[key]

    def _holds(self, tally: LinkTally, condition: Condition) -> Floats:
        """Return the probability that the leader's part is not empty.

        A position-dependent model gives the mean for the full tiles of a tiling, and for parts of one size
        with gaps. Smaller tiles, and parts that it does not describe, are taken never to be empty.
        """
        parts = tally.part(condition)
        chances = self.data[condition.leader].nonempty(parts)
        known = self.data[condition.leader]
        gaps = known.actual is None and not known.placeless and self.has_gaps(condition)
        if gaps:
            share = None if self.uneven(condition) else self._share_of_parts(condition)
            return np.full_like(chances, 1.0 if share is None else share)
        if not self.uneven(condition):
            return chances
        full = np.ones(chances.shape, np.bool_)
        for sizes in parts:
            full = full & (sizes == sizes.max())
        return np.where(full, chances, 1.0)

    def _factor(self, tally: LinkTally, conditions: Sequence[Condition]) -> Floats:
        """Return the probability that all conditions hold, with leaders independent of each other."""
        result = np.ones([1] * len(tally.axes))
        for leader in dict.fromkeys(c.leader for c in conditions):
            mine = [c for c in conditions if c.leader == leader]
            data = self.data[leader]
            if len(mine) == 1:
                result = result * self._holds(tally, mine[0])
            elif self.overlap(mine):
                each = np.broadcast_arrays(*(self._holds(tally, c) for c in mine))
                result = result * np.minimum.reduce(each)
            elif data.law is not None:
                result = result * all_hold(tally, mine, data.law)
            else:
                raise Refused(
                    f"{self.structure.name}: actions on {self.tensor or 'operations'} look at several parts "
                    f"of {leader}, of which none contains the other",
                    f"give {leader} a uniform density or its nonzeros, or keep one of the actions",
                    code="unsupported-window",
                )
        return result

    def table(self, condition: Condition) -> GroupTable:
        """Return which parts of a condition's leader hold a nonzero."""
        return self._cached(
            self.structure.led(condition.leader), condition.digits, self.data[condition.leader].actual
        )

    def _own_table(self, by_value: bool, nonzeros: bool) -> GroupTable:
        """Return the nonzeros of the tensor, or all its points; where ranks depend on several variables, once
        for each transfer that moves them."""
        every = frozenset(i for i, _ in self.structure.loops) | {POINT}
        assert self.link is not None, "operations have no tensor of their own"
        digits = every if by_value else self.link.fine
        data = (
            self.data[self.tensor].actual
            if nonzeros
            else full_tensor(self.structure.einsum, self.link.used.accesses)
        )
        return self._cached(self.link.used, digits, data, not by_value, nonzeros)

    def _cached(
        self,
        used: UsedElements,
        digits: Digits,
        data: SparseTensor | None,
        each: bool = False,
        nonzeros: bool = True,
    ) -> GroupTable:
        key = used.accesses, digits, each, nonzeros
        result = self._tables.known.get(key)
        if result is None:
            assert data is not None, "only tensors with actual data have tables"
            result = region_table(self.structure, used, digits, data, each)
            self._tables.known[key] = result
        return result


def _joint(conditions: Sequence[Condition]) -> Condition:
    """Return the condition on the intersection of parts of one leader, which the counters of all of them
    determine."""
    digits: Digits = frozenset().union(*(c.digits for c in conditions))
    return Condition("skip", conditions[0].leader, digits)


def _subsets(conditions: Sequence[Condition]) -> Iterator[tuple[Condition, ...]]:
    for n in range(1, len(conditions) + 1):
        yield from combinations(conditions, n)


def overlaps(conditions: Sequence[Condition]) -> tuple[Condition, ...]:
    """Return the conditions, and those on the intersections of all parts of one leader."""
    result = dict.fromkeys(conditions)
    for leader in dict.fromkeys(c.leader for c in conditions):
        result |= dict.fromkeys(map(_joint, _subsets([c for c in conditions if c.leader == leader])))
    return tuple(result)


def all_hold(tally: PartExtents, conditions: Sequence[Condition], law: Hypergeometric) -> Floats:
    """Return the probability that no part of several parts of one leader is empty. Both the probability and
    the points of unions of parts follow by inclusion and exclusion."""
    result = np.ones([1] * len(tally.axes))
    for some in _subsets(conditions):
        points = np.zeros([1] * len(tally.axes), np.int64)
        for common in _subsets(some):
            extents = tally.part(_joint(common))
            points = points - (-1) ** len(common) * np.prod(np.broadcast_arrays(*extents), axis=0)
        result = result + (-1) ** len(some) * law.p_empty(points)
    return result
