"""Determine which executed operations reach an element of an output: the element moves only where at least
one of its operations was executed.

Operations that share a transfer of an element differ in the counters of loops over reductions. A condition of
the compute unit examines a part of its leader. Over all operations of a transfer it examines the union of
these parts, which is a condition with fewer counters. Conditions on different leaders that vary with the same
counter are examined together as a joint condition (`Meeting`), which holds if for some value of these
counters all parts hold a nonzero.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

import numpy as np

from polymodel.frozen import dataclass
from polymodel.sparse.actions.counters import Counters, Ints, digit_columns, group_numbers
from polymodel.sparse.actions.data import TensorData
from polymodel.sparse.actions.join import GroupTable, VariableParts, joined_rows, prepared
from polymodel.sparse.actions.links import Condition, Digits, EinsumLinks, TransferEdge, sharpest
from polymodel.sparse.density.hypergeometric import Hypergeometric
from polymodel.sparse.density.model import Floats

# The most points of all parts of one leader for which the distribution of nonempty parts is computed.
MOST_POINTS = 1024
# The most parts of one point whose occupancies are summed one by one.
MOST_PARTS = 1_000_000


@dataclass(frozen=True)
class Meeting:
    """A joint condition: for some values of the counters `shared`, the parts of all conditions hold a
    nonzero.

    `digits`: the remaining counters that the conditions depend on. `fixed`: all counters that distinguish
    transfers.
    """

    conditions: tuple[Condition, ...]
    shared: Digits
    digits: Digits
    fixed: Digits

    @property
    def leaders(self) -> tuple[str, ...]:
        return tuple(c.leader for c in self.conditions)


@dataclass(frozen=True)
class Looked:
    """The conditions under which a transfer takes place: all `conditions` and all joint conditions in
    `meetings` hold. `loose`: the transfer depends on further conditions, so that counts are upper bounds.
    `by_value`: elements of one transfer have different conditions."""

    conditions: tuple[Condition, ...] = ()
    meetings: tuple[Meeting, ...] = ()
    loose: bool = False
    by_value: bool = False

    def __bool__(self) -> bool:
        return bool(self.conditions or self.meetings)

    @property
    def leaders(self) -> tuple[str, ...]:
        return (*(c.leader for c in self.conditions), *(t for m in self.meetings for t in m.leaders))


def looked_at(
    structure: EinsumLinks,
    link: TransferEdge,
    kinds: Sequence[str],
    data: Mapping[str, TensorData],
    gaps: bool = True,
) -> Looked:
    """Return the conditions of the transfers of a link: those of actions of these kinds, and for an output
    those of the operations that reach it.

    `gaps`: leave out conditions on parts of windows with gaps, whose probability does not follow from a
    density.
    """
    own, less = one_of_each(structure, link.conditions, kinds, data)
    reached, fewer = one_of_each(structure, link.reached, kinds, data, own)
    useful = sharpest(reached)
    if not useful:
        return Looked(own, loose=less or fewer)
    access = structure.einsum.access_of(link.tensor)
    if any(len(x.variables) > 1 for x in access.projection):
        return Looked(own, loose=True)  # several operations of one transfer touch one element
    alone, meetings, loose = _joint_conditions(structure, useful, link.fixed, data)
    kept = tuple(c for c in alone if _is_unknown(structure, c, (*own, *alone), data, gaps))
    conditions, apart = _apart((*own, *kept), meetings, data)
    loose = loose or less or fewer or len(kept) < len(alone) or apart != meetings
    return Looked(conditions, apart, loose, True)


def one_of_each(
    structure: EinsumLinks,
    conditions: Iterable[Condition],
    kinds: Sequence[str],
    data: Mapping[str, TensorData],
    others: Iterable[Condition] = (),
) -> tuple[tuple[Condition, ...], bool]:
    """Return the conditions of these kinds whose leader may be zero, and whether any was left out, so that
    counts are upper bounds.

    If a tensor with a density leads with several of its elements, the probabilities are not independent and
    only one of these conditions is kept. None is kept for a recurrent tensor, because some iterations read
    elements before its first generation, and none whose instances share elements of overlapping windows.
    `others`: conditions that are already taken into account.
    """
    useful = [c for c in conditions if c.kind in kinds and not data[c.leader].dense]
    chosen = {structure.led(c.leader).tensor: c.leader for c in reversed((*others, *useful))}
    kept = tuple(
        c
        for c in useful
        if not c.overlapping
        and not any(a.guard for a in structure.led(c.leader).accesses)
        and (data[c.leader].actual is not None or c.leader == chosen[structure.led(c.leader).tensor])
    )
    return kept, len(kept) < len(useful)


def _is_unknown(
    structure: EinsumLinks,
    condition: Condition,
    others: Sequence[Condition],
    data: Mapping[str, TensorData],
    gaps: bool,
) -> bool:
    """Return False where the probability of a condition does not follow from the density model."""
    known = data[condition.leader]
    if known.actual is not None:
        return True
    mine = sharpest(c for c in (*others, condition) if c.leader == condition.leader)
    several = len(mine) > 1
    if several and known.law is None:
        return False
    union = structure.led(condition.leader).union
    windows = [x for x in union.projection if len(x.variables) > 1] if union is not None else []
    names = {v for x in windows for v in x.variables}
    for counters in structure.counters if names and gaps else ():
        if counters.variable in names:
            parts = group_numbers(digit_columns(counters, condition.digits), counters.size)
            if (np.diff(parts) < 0).any():
                return known.law is not None and not several  # the part has gaps: its points are counted
    return True


def _apart(
    conditions: Sequence[Condition], meetings: Sequence[Meeting], data: Mapping[str, TensorData]
) -> tuple[tuple[Condition, ...], tuple[Meeting, ...]]:
    """Keep a set of independent conditions, tensor by tensor. Conditions that a joint condition implies are
    dropped, and so are joint conditions that share a leader with another remaining condition. For given data
    all are kept."""
    result: list[Meeting] = []
    for m in meetings:
        modelled = [c for c in m.conditions if data[c.leader].actual is None]
        others = [c for c in conditions if not any(_implies(p, c) for p in modelled)]
        taken = {c.leader for c in others} | {t for x in result for t in x.leaders}
        if not any(c.leader in taken for c in modelled):
            result.append(m)
            conditions = others
    return tuple(conditions), tuple(result)


def _implies(one: Condition, other: Condition) -> bool:
    return one.leader == other.leader and other.digits <= one.digits


def effectual_only(structure: EinsumLinks, data: Mapping[str, TensorData], kinds: Sequence[str]) -> bool:
    """Return True if actions of these kinds eliminate every ineffectual operation, because every zero operand
    makes its operation idle."""
    if structure.union:
        return False
    executed = {(c.leader, c.digits) for c in structure.executed() if c.kind in kinds}
    for leader, used in structure.operands.items():
        own = used.variables
        every = {i for i, x in structure.loops if structure.variable(x) in own} | set(own)
        if not data[leader].dense and (leader, frozenset(every)) not in executed:
            return False
    return True


def _joint_conditions(
    structure: EinsumLinks, conditions: Sequence[Condition], fixed: Digits, data: Mapping[str, TensorData]
) -> tuple[tuple[Condition, ...], tuple[Meeting, ...], bool]:
    """Return the conditions over all operations of a transfer, the joint conditions, and whether any was left
    out."""
    alone: list[Condition] = []
    meetings: list[Meeting] = []
    loose = False
    for group in _varying_together(conditions, fixed):
        coarse = [replace(c, kind="skip", digits=c.digits & fixed) for c in group]
        if len(group) == 1:
            alone += coarse
            continue
        shared = frozenset.intersection(*(c.digits for c in group)) - fixed
        fine = tuple(replace(c, kind="skip", digits=c.digits & (fixed | shared)) for c in group)
        digits = frozenset().union(*(c.digits for c in coarse))
        given = all(data[c.leader].actual is not None for c in group)
        meeting = Meeting(fine if not given else tuple(group), shared, digits, fixed)
        if given or _is_counted(structure, meeting, data):
            meetings.append(meeting)
        else:
            loose = True
            alone += list({c.leader: c for c in coarse}.values())
    return tuple(alone), tuple(meetings), loose


def _varying_together(conditions: Sequence[Condition], fixed: Digits) -> list[list[Condition]]:
    """Group the conditions that vary with the same counters among the operations of one transfer."""
    groups: list[tuple[Digits, list[Condition]]] = []
    for c in conditions:
        free = c.digits - fixed
        mine = [g for g in groups if g[0] & free]
        joined = [c] + [x for g in mine for x in g[1]]
        groups = [g for g in groups if g not in mine]
        groups.append((free.union(*(g[0] for g in mine)), joined))
    return [sorted(g[1], key=conditions.index) for g in groups]


def _is_counted(structure: EinsumLinks, meeting: Meeting, data: Mapping[str, TensorData]) -> bool:
    """Return True for two uniform tensors whose parts do not overlap."""
    if len(meeting.conditions) != 2 or len(set(meeting.leaders)) != 2 or not meeting.shared:
        return False
    for leader in meeting.leaders:
        access = structure.led(leader).accesses[0]
        plain = all(len(x.variables) == 1 for x in access.projection)
        if (
            len(structure.led(leader).accesses) > 1
            or not plain
            or len(access.variables) < len(access.projection)
        ):
            return False
        if data[leader].law is None:
            return False
    return True


def meeting_table(structure: EinsumLinks, meeting: Meeting, tables: Sequence[GroupTable]) -> GroupTable:
    """Return the values of the counters in `digits` for which a joint condition on given data holds.
    `tables`: those of its conditions."""
    axes: dict[str, VariableParts] = {}
    listed, names = list(tables), []
    for counters in structure.counters:
        users = [k for k, t in enumerate(tables) if counters.variable in t.variables]
        if not users:
            continue
        groups = {
            k: group_numbers(digit_columns(counters, meeting.conditions[k].digits), counters.size)
            for k in users
        }
        place = group_numbers(digit_columns(counters, meeting.digits), counters.size)
        if place.any():
            name = f"{counters.variable}@"
            groups[len(listed)] = np.arange(counters.size)
            names.append(name)
            ids = (np.arange(counters.size), place)
            listed.append(GroupTable((counters.variable, name), ids, counters.size))
        axes[counters.variable] = VariableParts(np.ones(counters.size, np.int64), groups)
    total, waiting = prepared(listed, axes)
    if not total or any(not t.rows for t in waiting):
        return GroupTable(tuple(n[:-1] for n in names), tuple(np.zeros(0, np.int64) for _ in names), 0)
    result = joined_rows(waiting, names)
    some = np.flatnonzero(result.weighed())
    return GroupTable(tuple(n[:-1] for n in result.variables), tuple(c[some] for c in result.ids), some.size)


@dataclass(frozen=True)
class Inner:
    """For every value of one rank variable: into how many parts the shared counters divide the values with
    equal fixed counters, the extent of the largest part of each condition, and whether all parts are
    equal."""

    parts: Ints
    extents: tuple[Ints, ...]
    even: Ints

    @property
    def columns(self) -> tuple[Ints, ...]:
        return (self.parts, *self.extents, self.even)

    def at(self, pick: Ints) -> Inner:
        """Return the rows of these values."""
        return Inner(self.parts[pick], tuple(x[pick] for x in self.extents), self.even[pick])


def inner(counters: Counters, meeting: Meeting) -> Inner:
    """Return what a joint condition examines along one rank variable."""

    def numbers(digits: Digits) -> Ints:
        return group_numbers(digit_columns(counters, digits), counters.size)

    cell, part = numbers(meeting.fixed), numbers(meeting.fixed | meeting.shared)
    firsts = np.unique(part, return_index=True)[1]
    parts = np.bincount(cell[firsts])[cell]
    even = np.ones(counters.size, np.bool_)
    extents = []
    for condition in meeting.conditions:
        group = numbers(condition.digits)
        size = np.bincount(group)[group]
        top, low = np.zeros(int(cell.max()) + 1, np.int64), np.full(int(cell.max()) + 1, counters.size)
        np.maximum.at(top, cell, size)
        np.minimum.at(low, cell, size)
        extents.append(top[cell])
        even &= (top == low)[cell]
    return Inner(parts, tuple(extents), even.astype(np.int64))


def chances(
    parts: Ints, points: Sequence[Ints], even: Ints, pair: Sequence[TensorData]
) -> tuple[Floats, bool]:
    """Return the probability that two tensors both hold a nonzero in at least one of `parts` parts with this
    many points. The second result is False where some probabilities are upper bounds. Arrays broadcast."""
    columns = np.broadcast_arrays(parts, *points, even)
    distinct, back = np.unique(np.array([c.reshape(-1) for c in columns]), axis=1, return_inverse=True)
    result, sure = np.empty(distinct.shape[1]), True
    for i, (count, first, second, same) in enumerate(distinct.T.tolist()):
        result[i], exactly = _chance(count, (first, second), bool(same), pair)
        sure = sure and exactly
    return result[back.reshape(-1)].reshape(columns[0].shape), sure


def _chance(
    parts: int, points: tuple[int, int], even: bool, pair: Sequence[TensorData]
) -> tuple[float, bool]:
    total, sure = 0.0, True
    for weight, first in pair[0].laws:
        for other, second in pair[1].laws:
            found, exactly = _uniform(parts, points, even, first, second)
            total += weight * other * found
            sure = sure and exactly
    return min(total, 1.0), sure


def _uniform(
    parts: int, points: tuple[int, int], even: bool, first: Hypergeometric, second: Hypergeometric
) -> tuple[float, bool]:
    """Return the probability for one combination: the sum over s of P(s parts of one tensor are nonempty)
    P(the other tensor has a nonzero in these parts). The sum has only positive terms, so that it is accurate
    where the result is small. The second result is False for an upper bound."""
    (small, one), (large, other) = sorted(zip(points, (first, second), strict=True), key=lambda x: x[0])
    single = float(one.p_nonempty(small)), float(other.p_nonempty(large))
    if parts == 1:
        return single[0] * single[1], even
    if even and small == 1 and parts <= MOST_PARTS:
        occupied = np.arange(1, min(parts, one.nnz) + 1)
        law = one.pmf(np.full(occupied.shape, parts), occupied)
    elif even and small * parts <= MOST_POINTS:
        law = _nonempty_parts(parts, small, one)[1:]
        occupied = np.arange(1, parts + 1)
    else:
        whole = [float(u.p_nonempty(min(parts * t, u.points))) for t, u in ((small, one), (large, other))]
        return min(whole[0] * whole[1], parts * single[0] * single[1]), False
    return float((law * other.p_nonempty(occupied * large)).sum()), True


def _nonempty_parts(parts: int, points: int, law: Hypergeometric) -> Floats:
    """Return P(exactly s of `parts` equal parts hold a nonzero) for s from 0, summed over the number of
    nonzeros in all parts and over their distribution among the parts. Every term is positive, so that there
    is no cancellation."""
    whole = parts * points
    inside = np.arange(min(whole, law.nnz) + 1)
    held = law.pmf(np.full(inside.shape, whole), inside)
    # ways[s, j]: probability that the j nonzeros of the parts so far lie in exactly s of these parts.
    ways = np.zeros((parts + 1, inside.size))
    ways[0, 0] = 1.0
    for done in range(1, parts + 1):
        last = np.arange(min(points, inside.size - 1) + 1)
        # The number of j nonzeros in the last part is that of its points among j points drawn at random.
        drawn = Hypergeometric(done * points, points)
        fallen = drawn.pmf(np.minimum(inside, done * points)[:, None], last[None, :])
        more = np.zeros_like(ways)
        for n in last.tolist():
            kept = ways[: parts + (n == 0), : inside.size - n] * fallen[n:, n]
            more[int(n > 0) :, n:] += kept
        ways = more
    return np.asarray(ways @ held)
