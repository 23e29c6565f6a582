"""Count the coordinates that intersections read, where a loop iterates over a rank that several sparse
tensors share.

At each such loop (or, below all loops, in the point-by-point order of a rank variable) the fibers of the
tensors under the counters of all outer loops are intersected, provided that none is empty. A coordinate is
present if anything below it is nonzero. Two-finger: both fingers advance after a match; the intersection
stops when one fiber ends, and the other may have one trailing read. Skip-ahead: one read per match, and one
per run of comparisons that advance the same finger. Leader-follower: the leader's coordinates are read, and
each is looked up in the other fibers.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import prod

import numpy as np

from polymodel.architecture.hierarchy import IntersectionUnit
from polymodel.errors import Refused
from polymodel.frozen import dataclass
from polymodel.integers import distinct_numbers
from polymodel.mapping.looptree import storage_chain
from polymodel.sparse.actions.counters import Counters, Ints, group_numbers
from polymodel.sparse.actions.data import TensorData
from polymodel.sparse.actions.join import MOST_ROWS
from polymodel.sparse.actions.links import POINT, EinsumLinks
from polymodel.sparse.actions.places import differs
from polymodel.sparse.actions.records import IntersectionCount
from polymodel.sparse.density.model import Label

# A counter of the schedule: (loop id or POINT, rank variable).
Digit = tuple[int, str]


def intersection_counts(
    structure: EinsumLinks, data: Mapping[str, TensorData]
) -> tuple[IntersectionCount, ...]:
    """Return one record per loop at which a rule intersects, for each rule of a component whose tensors this
    Einsum all uses."""
    result = []
    for component in structure.problem.hierarchy.components:
        for rule in component.sparse.intersections if component.sparse else ():
            if all(t in structure.einsum.tensors for t in rule.tensors):
                several = [t for t in rule.tensors if len(structure.used(t).accesses) > 1]
                if several:
                    raise Refused(
                        f"{structure.name} reads {several[0]} at several elements: fibers are not counted",
                        "leave out the intersection",
                        code="unsupported-einsum",
                    )
                for digit, before in _places(structure, component.name, rule):
                    reads, label = _reads(structure, data, rule, digit, before)
                    name = f"{digit[1]}" if digit[0] == POINT else f"{digit[1]} (node {digit[0]})"
                    result.append(
                        IntersectionCount(
                            structure.name, component.name, rule.tensors, rule.kind, name, reads, label
                        )
                    )
    return tuple(result)


def _order(structure: EinsumLinks) -> list[Digit]:
    """Return every counter in temporal order: loops from the outermost inwards, then positions within the
    innermost tiles."""
    loops = [(i, structure.variable(x)) for i, x in structure.loops]
    return [*loops, *((POINT, v) for v in structure.einsum.rank_variables)]


def _places(
    structure: EinsumLinks, component: str, rule: IntersectionUnit
) -> list[tuple[Digit, tuple[Digit, ...]]]:
    """Return the counters at which a rule intersects, each with all outer counters.

    The rule of a memory applies between its own nodes and the next inner storage of any of the tensors. The
    rule of a compute unit applies below the innermost storages.
    """
    tree = structure.problem.tree
    chains = [storage_chain(tree, structure.name, t) for t in rule.tensors]
    inner: float = float("inf")
    if structure.problem.hierarchy[component].computes:
        outer = max((chain[-1].id for chain in chains if chain), default=-1)
    else:
        own = [[s.id for s in c if getattr(s.node, "component", "") == component] for c in chains]
        if not all(own):
            return []
        outer = max(ids[-1] for ids in own)
        inner = min((s.id for chain in chains for s in chain if s.id > outer), default=inner)
    shared = set.intersection(*(set(structure.einsum.access_of(t).variables) for t in rule.tensors))
    order, result = _order(structure), []
    for at, (i, variable) in enumerate(order):
        inside = outer < i < inner or (i == POINT and inner == float("inf"))
        if variable in shared and inside and _columns(structure, variable, [(i, variable)])[1] > 1:
            result.append(((i, variable), tuple(order[:at])))
    return result


def _columns(structure: EinsumLinks, variable: str, digits: Sequence[Digit]) -> tuple[Ints, int]:
    """Return a number for each value of a rank variable, which is equal where these counters are equal, and
    how many numbers there are."""
    counters = next(c for c in structure.counters if c.variable == variable)
    numbers = group_numbers(_picked(counters, {i for i, v in digits if v == variable}), counters.size)
    return numbers, int(numbers.max()) + 1


def _picked(counters: Counters, ids: set[int]) -> list[Ints]:
    result = [k for (i, _), k in zip(counters.loops, counters.counters, strict=True) if i in ids]
    return [*result, counters.offset] if POINT in ids else result


def _reads(
    structure: EinsumLinks,
    data: Mapping[str, TensorData],
    rule: IntersectionUnit,
    digit: Digit,
    before: tuple[Digit, ...],
) -> tuple[float, Label]:
    others = [
        c for c in structure.counters if not any(c.variable in _own(structure, t) for t in rule.tensors)
    ]
    times = prod(_visits(c, before) for c in others)
    known = [data[t] for t in rule.tensors]
    if all(d.actual is not None for d in known) and len(known) == 2:
        fibers = [_NonemptyFibers(structure, t, data[t], digit, before) for t in rule.tensors]
        return times * _exact(structure, rule, *fibers), "exact"
    result = {t: _expected(structure, data, rule, t, digit, before) for t in rule.tensors}
    if rule.kind == "leader_follower":
        label: Label = "exact" if all(d.dense for d in known) else "expected"
        reads, sure = result[rule.leader]
        return times * reads, label if sure else "bound"
    return times * sum(reads for reads, _ in result.values()), "bound"


def _own(structure: EinsumLinks, tensor: str) -> tuple[str, ...]:
    return structure.einsum.access_of(tensor).variables


def _visits(counters: Counters, before: tuple[Digit, ...]) -> int:
    ids = {i for i, v in before if v == counters.variable}
    if counters.foreign:
        ids.discard(POINT)
    return int(group_numbers(_picked(counters, ids), counters.size).max()) + 1


def _expected(
    structure: EinsumLinks,
    data: Mapping[str, TensorData],
    rule: IntersectionUnit,
    tensor: str,
    digit: Digit,
    before: tuple[Digit, ...],
) -> tuple[float, bool]:
    """Return the expected number of coordinates of one tensor's fibers over all visits at which no other
    fiber is empty.

    The second result is False where the number is an upper bound. A position-dependent model does not
    describe tiles of several sizes, nor how often its tiles coincide with those of another such model; in
    these cases none of them is taken to be empty.
    """
    names = [
        c.variable for c in structure.counters if any(c.variable in _own(structure, t) for t in rule.tensors)
    ]
    axes: dict[str, dict[str, Ints]] = {}
    for variable in names:
        fine, _ = _columns(structure, variable, (*before, digit))
        coarse, _ = _columns(structure, variable, before)
        pick = np.unique(fine, return_index=True)[1]
        columns = {
            "fine": np.bincount(fine)[fine][pick],
            "coarse": np.bincount(coarse)[coarse][pick],
        }
        labels = group_numbers(list(columns.values()), pick.size)
        kinds = np.unique(labels, return_index=True)[1]
        axes[variable] = {k: c[kinds] for k, c in columns.items()} | {"count": np.bincount(labels)}
    shape = {v: [1] * len(names) for v in names}
    for at, v in enumerate(names):
        shape[v][at] = -1
    total = np.ones([1] * len(names))
    for v in names:
        total = total * axes[v]["count"].reshape(shape[v])
    sure = True
    for t in rule.tensors:
        which = "fine" if t == tensor else "coarse"
        extents = []
        for x in structure.einsum.access_of(t).projection:
            if len(x.terms) != 1:
                raise Refused(
                    f"{structure.name}: rank {x} of {t} has several variables: its fibers are not counted",
                    "leave out the intersection",
                    code="unsupported-window",
                )
            extents.append(axes[x.terms[0][0]][which].reshape(shape[x.terms[0][0]]))
        placed = not data[t].placeless and not data[t].alike(tuple(int(e.max()) for e in extents))
        tied = t != tensor and any(
            differs(data[o], structure.einsum.access_of(o)) for o in rule.tensors if o != t
        )
        if placed and (tied or any(distinct_numbers(e).size > 1 for e in extents)):
            sure = False
            continue
        total = total * data[t].nonempty(tuple(extents))
    return float(total.sum()), sure


@dataclass(frozen=True)
class _FiberGroup:
    """Fibers of one tensor: the concatenated coordinates, the `starts` of each fiber, and the shared keys of
    each fiber."""

    coords: Ints
    starts: Ints
    shared: Ints

    @property
    def lengths(self) -> Ints:
        return np.diff(self.starts)


class _NonemptyFibers:
    """The nonempty fibers of one tensor at one counter: keys by rank variable, and coordinates in order."""

    def __init__(
        self, structure: EinsumLinks, tensor: str, data: TensorData, digit: Digit, before: tuple[Digit, ...]
    ) -> None:
        access = structure.einsum.access_of(tensor)
        assert data.actual is not None, "asked for given data only"
        self.keys: dict[str, Ints] = {}
        rows: list[Ints] = []
        for rank, x in zip(access.ranks, access.projection, strict=True):
            if len(x.terms) != 1 or x.terms[0][1] != 1:
                raise Refused(
                    f"{structure.name}: rank {rank} of {tensor} is {x}: fibers of actual data are followed "
                    "through ranks of one rank variable",
                    "leave out the intersection, or describe the tensor by its density",
                    code="unsupported-window",
                )
            variable = x.terms[0][0]
            at = data.actual.rank(rank) - x.constant - structure.einsum.bound(variable)[0]
            numbers, count = _columns(structure, variable, before)
            if count > 1:
                self.keys[variable] = numbers[at]
            if variable == digit[1]:
                rows.append(_columns(structure, variable, [digit])[0][at])
        self.coords = rows[0]

    def part(self, shared: Sequence[str], numbers: Ints) -> _FiberGroup:
        """Return the fibers in order. `numbers`: one per nonzero, equal where the shared keys are equal."""
        own = [k for v, k in self.keys.items() if v not in shared]
        size = self.coords.size
        fiber = group_numbers([numbers, *own], size)
        each = group_numbers([fiber, self.coords], size)
        first = np.unique(each, return_index=True)[1]
        heads = np.flatnonzero(np.diff(fiber[first], prepend=-1))
        starts = np.append(heads, first.size)
        return _FiberGroup(self.coords[first], starts, numbers[first][heads] if heads.size else heads)


def _exact(structure: EinsumLinks, rule: IntersectionUnit, a: _NonemptyFibers, b: _NonemptyFibers) -> int:
    shared = [v for v in a.keys if v in b.keys]
    both = [np.concatenate((a.keys[v], b.keys[v])) for v in shared]
    numbers = group_numbers(both, a.coords.size + b.coords.size)
    first = a.part(shared, numbers[: a.coords.size])
    second = b.part(shared, numbers[a.coords.size :])
    if rule.kind == "leader_follower":
        leader, follower = (first, second) if rule.leader == rule.tensors[0] else (second, first)
        count = np.bincount(follower.shared, minlength=int(leader.shared.max(initial=-1)) + 1)
        return int((leader.lengths * count[leader.shared]).sum())
    order, starts = np.argsort(second.shared, kind="stable"), None
    sizes = np.bincount(second.shared, minlength=int(first.shared.max(initial=-1)) + 1)
    starts = np.cumsum(sizes) - sizes
    pairs = int(sizes[first.shared].sum())
    if pairs > MOST_ROWS:
        message = f"{structure.name}: {pairs:,} pairs of fibers meet, too many to follow"
        raise Refused(message, "use leader_follower, or describe a tensor by its density", code="too-large")
    mine = np.repeat(np.arange(first.shared.size), sizes[first.shared])
    begin = np.cumsum(sizes[first.shared]) - sizes[first.shared]
    theirs = order[np.arange(pairs) - begin[mine] + starts[first.shared][mine]]
    if rule.kind == "two_finger":
        return _trailing(first, mine, second, theirs) + _trailing(second, theirs, first, mine)
    return _steps(structure, first, mine, second, theirs)


def _trailing(a: _FiberGroup, mine: Ints, b: _FiberGroup, theirs: Ints) -> int:
    """Count the coordinates of a's fibers that are read until b ends: those up to b's last one, and one more
    if there is one."""
    last = b.coords[b.starts[1:] - 1][theirs] if b.coords.size else np.zeros(0, np.int64)
    span = int(max(a.coords.max(initial=0), last.max(initial=0))) + 2
    keys = np.repeat(np.arange(a.lengths.size), a.lengths) * span + a.coords
    upto = np.searchsorted(keys, mine * span + last, side="right") - a.starts[:-1][mine]
    return int((upto + (upto < a.lengths[mine])).sum())


def _steps(structure: EinsumLinks, a: _FiberGroup, mine: Ints, b: _FiberGroup, theirs: Ints) -> int:
    """Count matches, and runs of comparisons that advance the same finger."""
    rows = int(a.lengths[mine].sum() + b.lengths[theirs].sum())
    if rows > MOST_ROWS:
        message = f"{structure.name}: {rows:,} comparisons are too many to follow"
        raise Refused(message, "use two_finger", code="too-large")
    stop = np.minimum(a.coords[a.starts[1:] - 1][mine], b.coords[b.starts[1:] - 1][theirs])
    span = int(max(a.coords.max(initial=0), b.coords.max(initial=0))) + 1
    keys = []
    for part, which in ((a, mine), (b, theirs)):
        lengths = part.lengths[which]
        visit = np.repeat(np.arange(which.size), lengths)
        begin = np.cumsum(lengths) - lengths
        coords = part.coords[part.starts[:-1][which][visit] + np.arange(visit.size) - begin[visit]]
        kept = coords <= stop[visit]
        keys.append(visit[kept] * span + coords[kept])
    every, counts = np.unique(np.concatenate(keys), return_counts=True)
    side = np.where(counts == 2, 2, np.where(np.isin(every, keys[0], assume_unique=True), 0, 1))
    visit = every // span
    same = (visit[1:] == visit[:-1]) & (side[1:] == side[:-1]) & (side[1:] < 2)
    return int(side.size - same.sum())
