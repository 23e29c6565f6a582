"""Run one Einsum: walk its loops, count, and compute values."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property
from math import prod
from typing import Any

import numpy as np
from numpy.typing import NDArray

from polymodel.frozen import dataclass
from polymodel.sparse.execute import merged as merging
from polymodel.sparse.execute import streamed as streaming
from polymodel.sparse.execute.dense_ranks import Tail, Thin, candidates, enter
from polymodel.sparse.execute.loops import LoopWalk
from polymodel.sparse.execute.merged import Merged
from polymodel.sparse.execute.output import Bools, Grown, effectual, grow
from polymodel.sparse.execute.plan import Plan
from polymodel.sparse.execute.records import EinsumCounts, ExecutionTimes, LoopLevel, RankAccesses
from polymodel.sparse.execute.streamed import ReducingLoop, Streamed
from polymodel.sparse.execute.times import distinct, measure, measure_counted
from polymodel.sparse.execute.values import (
    Values,
    coordinates,
    gathered,
    innermost_dense_values,
    leaf_values,
    leaves_of,
    merged_result,
    presence,
    term_multiplies,
    ufunc_of,
)
from polymodel.sparse.fibertree import Ints, changes, sorting
from polymodel.sparse.tensor import SparseTensor
from polymodel.spec.teaal.records import Expression, FactorProduct, IndexedTensor, SpaceTime


@dataclass(frozen=True, eq=False)
class EinsumRunState:
    """A walked Einsum: the walk (down to the tail, the merged or the streamed loop, if there is one), the
    nodes of the last loop that compute (per term, and for any term; None: all), the same nodes per loop, and
    the output along the loops."""

    plan: Plan
    walk: LoopWalk
    tail: Tail | None
    terms: tuple[Bools | None, ...]
    there: Bools | None
    alive: tuple[Bools | None, ...]
    grown: tuple[Grown, ...]
    thin: Thin | None = None
    merged: Merged | None = None
    streamed: Streamed | None = None

    @property
    def activities(self) -> int:
        """The number of all activities, where the walk has a tail."""
        tail = self.tail
        assert tail is not None
        visits = np.bincount(tail.kind, minlength=tail.kinds)
        return int((tail.counts(len(tail.loops) - 1) * visits).sum())

    def below(self, nodes: Ints) -> int:
        """Return the number of activities below some nodes of the last loop walked."""
        tail = self.tail
        assert tail is not None
        counts = tail.counts(len(tail.loops) - 1)
        if tail.kinds == 1:
            return int(counts[0]) * int(nodes.size)
        return int(counts[tail.kind[nodes]].sum())

    @cached_property
    def outputs(self) -> tuple[Ints, int]:
        """The output that each node of the last loop walked belongs to, and the number of outputs.

        An output is an element of the output's tree, unless a point of the output has several parts, which
        then count as one.
        """
        last = self.grown[-1]
        if not self.plan.scattered or not last.element.size:
            return last.element, last.count
        _, one, element = np.unique(last.element, return_index=True, return_inverse=True)
        found = coordinates(self.plan, self.walk, one)
        columns = [found[i] for i in sorted(found)]
        order = sorting(columns)
        point = np.arange(one.size) if order is None else order
        number = np.cumsum(changes([c[point] for c in columns])) - 1
        points = np.empty(one.size, dtype=np.int64)
        points[point] = number
        return points[element], int(number[-1]) + 1

    @cached_property
    def first_nodes(self) -> Ints:
        """One node of the last loop walked for each of its outputs that get a result."""
        element, count = self.outputs
        one = np.full(count, -1, dtype=np.int64)
        if self.there is None:
            one[element[::-1]] = np.arange(element.size - 1, -1, -1, dtype=np.int64)
        else:
            nodes = np.flatnonzero(self.there)[::-1]
            one[element[nodes]] = nodes
        return one[one >= 0]


def walk_through(
    plan: Plan, spacetime: SpaceTime | None, keep_loops: bool, thin: Thin | None, values: bool, read: bool
) -> EinsumRunState:
    """Walk all loops. Unless the loops are kept, innermost loops over dense fibers are walked once per kind
    of node, and loops over a `thin` rank, or that merge one tensor's fibers into the output's, are not
    walked. `values`: the values of the output are needed. `read`: at least its pattern is needed."""
    timed = {s.rank for s in spacetime.time} if spacetime is not None else set()
    if spacetime is not None and spacetime.space:
        timed.add(spacetime.space[0].rank)
    enters = len(plan.order) if keep_loops else candidates(plan, timed)
    enters = enters if thin is None else len(plan.order) - thin.inner
    merges = thin is None and not keep_loops and merging.applies(plan, spacetime, values)
    reduces = None if keep_loops or read else streaming.reducing(plan, spacetime, thin)
    walk = LoopWalk(plan, keep_loops)
    while walk.at < len(plan.order):
        if reduces is not None and walk.at == reduces.at:
            ran = _with_streamed(plan, walk, reduces, thin)
            if ran is not None:
                return ran
        if 0 < walk.at == enters:
            ran = _with_tail(plan, walk, thin)
            if ran is not None:
                return ran
        if merges and walk.at == len(plan.order) - 1:
            ran = _with_merged(plan, walk)
            if ran is not None:
                return ran
        walk.step()
    terms, there = presence(plan, walk)
    alive = effectual(walk.loops, there)
    return EinsumRunState(
        plan, walk, None, tuple(terms), there, tuple(alive), tuple(grow(plan, walk.loops, alive))
    )


def _with_tail(plan: Plan, walk: LoopWalk, thin: Thin | None) -> EinsumRunState | None:
    """Run the remaining loops as a tail; return None where the nodes or the output's fibers are of too many
    kinds."""
    tail = enter(walk) if thin is None else thin.innermost_loops(walk)
    if tail is None:
        return None
    filled = tail.counts(len(tail.loops) - 1) > 0
    there = None if filled.all() else filled[tail.kind]
    alive = effectual(walk.loops, there)
    grown = grow(plan, walk.loops, alive)
    if tail.kinds > 1:
        table = np.zeros(grown[-1].count, dtype=np.int64)
        table[grown[-1].element] = tail.kind
        if (table[grown[-1].element] != tail.kind).any():
            return None
    return EinsumRunState(plan, walk, tail, (None,), there, tuple(alive), tuple(grown), thin)


def _with_merged(plan: Plan, walk: LoopWalk) -> EinsumRunState | None:
    """Run the innermost loop as a merged loop; return None where it does more than merging."""
    result = merging.enter(walk)
    if result is None:
        return None
    return EinsumRunState(
        plan, walk, None, (None,), result.there, result.alive, result.grown, merged=result.merged
    )


def _with_streamed(
    plan: Plan, walk: LoopWalk, loop: ReducingLoop, thin: Thin | None
) -> EinsumRunState | None:
    """Run the remaining loops as a streamed loop, whose iterations are not kept; return None where tensors
    have no fiber at some nodes."""
    result = streaming.stream(walk, loop)
    if result is None:
        return None
    filled = result.lengths > 0
    there = None if filled.all() else filled
    alive = effectual(walk.loops, there)
    grown = grow(plan, walk.loops, alive)
    return EinsumRunState(plan, walk, None, (None,), there, tuple(alive), tuple(grown), thin, streamed=result)


def count(ran: EinsumRunState, spacetime: SpaceTime | None, zeros: int, keep_loops: bool) -> EinsumCounts:
    """Return all counts of a walked Einsum."""
    plan = ran.plan
    if ran.merged is not None:
        activities = ran.merged.iterations
        present = [activities]
        outputs = ran.merged.tally.elements
    elif ran.streamed is not None:
        activities = ran.streamed.iterations * ran.streamed.loop.width
        present = [activities]
        outputs = int(_alive_outputs(ran).size) * ran.streamed.loop.width
    elif ran.tail is None:
        nodes = ran.walk.nodes
        activities = nodes if ran.there is None else int(ran.there.sum())
        present = [nodes if t is None else int(t.sum()) for t in ran.terms]
        outputs = _alive_outputs(ran).size
    else:
        activities = ran.activities
        present = [activities]
        outputs = ran.below(ran.first_nodes)
    return EinsumCounts(
        plan.einsum,
        tuple(rank.name for rank in plan.order),
        sum(term_multiplies(t) * n for t, n in zip(plan.terms, present, strict=True)),
        activities,
        0 if assigns(plan) else activities - outputs,
        sum(present) - activities,
        activities,
        outputs,
        zeros,
        tuple(_accesses(ran)),
        None if spacetime is None else _times(ran, spacetime),
        {s.name: s.tree for s in plan.slots},
        _levels(ran) if keep_loops else None,
        {} if ran.thin is None else _stands_for(ran.plan, ran.thin),
    )


def constant(expression: Expression, scalars: Mapping[str, float]) -> tuple[SparseTensor, EinsumCounts]:
    """Return the single value of an Einsum that reads no tensor, and the counts of writing it."""
    products = [t for t in expression.terms if isinstance(t, FactorProduct)]
    signs = [-1.0 if t.negative else 1.0 for t in products]
    named = [[scalars[f] if isinstance(f, str) else f for f in t.factors] for t in products]
    each = [prod(float(n) for n in numbers if not isinstance(n, IndexedTensor)) for numbers in named]
    value = sum(sign * one for sign, one in zip(signs, each, strict=True))
    made = SparseTensor.from_coo(expression.name, (), (), np.zeros((0, 1), dtype=np.int64), [value])
    zero = int(value == 0)
    multiplies = sum(len(t.factors) - 1 for t in products)
    added = len(products) - 1
    return made, EinsumCounts(expression.name, (), multiplies, 1, 0, added, 1, 1, zero, (), None, {})


def _times(ran: EinsumRunState, spacetime: SpaceTime) -> ExecutionTimes:
    if ran.merged is not None:
        return measure_counted(ran.plan, ran.walk, ran.merged, spacetime, ran.there)
    if ran.streamed is not None:
        return measure_counted(ran.plan, ran.walk, ran.streamed, spacetime, ran.there)
    return measure(ran.plan, ran.walk, ran.tail, spacetime, ran.there)


def assigns(plan: Plan) -> bool:
    """Return whether a later value of an output replaces an earlier one."""
    return any(t.take is not None for t in plan.terms)


def _stands_for(plan: Plan, thin: Thin) -> dict[str, tuple[str, int, int]]:
    named = (s.name for s in plan.slots if any(thin.rank in lv.rank.bases for lv in s.tree.levels))
    return dict.fromkeys(named, (thin.rank, thin.size, thin.step))


def _alive_outputs(ran: EinsumRunState) -> Ints:
    """Return the outputs at the nodes of the last loop walked that get a result."""
    element, count = ran.outputs
    element = element if ran.there is None else element[ran.there]
    present = np.zeros(count, dtype=bool)
    present[element] = True
    return np.flatnonzero(present)


def _accesses(ran: EinsumRunState) -> list[RankAccesses]:
    plan, result = ran.plan, []
    names = [s.name for s in plan.slots]
    for at, (loop, grown) in enumerate(zip(ran.walk.loops, ran.grown, strict=True)):
        reads = {names[s]: n for s, n in loop.totals.items()}
        looked = {names[s]: n for s, n in loop.lookups.items()}
        result.append(_one(plan, at, loop.nodes, reads, looked, grown.reads, grown.writes))
    if ran.merged is not None:
        one, tally = ran.merged, ran.merged.tally
        reads = {names[one.slot]: one.iterations}
        last = len(plan.order) - 1
        result.append(_one(plan, last, one.iterations, reads, {}, tally.reads, tally.writes))
    if ran.streamed is not None:
        result += _streamed_accesses(ran, ran.streamed, names)
    if ran.tail is None:
        return result
    tail = ran.tail
    visits = np.bincount(tail.kind, minlength=tail.kinds)
    filled = np.bincount(tail.kind[ran.first_nodes], minlength=tail.kinds)
    above = np.arange(tail.kinds)
    for i, loop in enumerate(tail.loops):
        reads = {}
        for s, r in loop.reads.items():
            per_kind = np.bincount(above, weights=r, minlength=tail.kinds).astype(np.int64)
            reads[names[s]] = int((per_kind * visits).sum())
        alive = tail.counts(i, with_result=True)
        writes = int((alive * visits).sum())
        again = writes - int((alive * filled).sum())
        nodes = int((tail.counts(i) * visits).sum())
        result.append(_one(plan, tail.start + i, nodes, reads, {}, again, writes))
        above = tail.owner(i)
    return result


def _streamed_accesses(ran: EinsumRunState, one: Streamed, names: list[str]) -> list[RankAccesses]:
    reads = {names[s]: n for s, n in one.reads.items()}
    result = [_one(ran.plan, one.loop.at, one.iterations, reads, {}, 0, 0)]
    if one.loop.below:
        total = one.iterations * one.loop.width
        new = int(_alive_outputs(ran).size) * one.loop.width
        reads = {names[s]: total for s in one.loop.below}
        result.append(_one(ran.plan, one.loop.at + 1, total, reads, {}, total - new, total))
    return result


def _one(
    plan: Plan,
    at: int,
    nodes: int,
    reads: dict[str, int],
    looked: dict[str, int],
    output_reads: int,
    output_writes: int,
) -> RankAccesses:
    alone = len(reads) == 1
    populated = at in plan.populate
    return RankAccesses(
        plan.order[at].name,
        nodes,
        {} if alone else reads,
        reads if alone else {},
        {plan.einsum: output_reads} if populated else {},
        {plan.einsum: output_writes} if populated else {},
        looked,
    )


def _levels(ran: EinsumRunState) -> tuple[LoopLevel, ...]:
    result = []
    names = [s.name for s in ran.plan.slots]
    for at, (loop, grown, alive) in enumerate(zip(ran.walk.loops, ran.grown, ran.alive, strict=True)):
        output = None
        if at in ran.plan.populate:
            kept = grown.element if alive is None else grown.element[alive]
            present = np.zeros(grown.count, dtype=bool)
            present[kept] = True
            output = np.where(present, np.cumsum(present) - 1, -1)[grown.element]
        result.append(
            LoopLevel(
                ran.plan.order[at],
                loop.parent,
                loop.coords,
                loop.pos(),
                {names[s]: e for s, e in loop.element.items()},
                {names[s]: b for s, b in loop.begin.items()},
                {names[s]: r for s, r in loop.reads.items()},
                output,
            )
        )
    return tuple(result)


def result(ran: EinsumRunState, values: bool) -> tuple[SparseTensor, int]:
    """Return the output, and how many of its values are exactly the value that it leaves out (they are not
    stored).

    Without `values`, every output that is touched is 1.
    """
    if ran.merged is not None:
        elements = ran.merged.tally.elements
        made = merged_result(ran.plan, ran.walk, ran.merged, elements, values)
        return made, elements - made.nnz
    coords, data = _with_tail_values(ran, values) if ran.tail is not None else _plain_values(ran, values)
    absent = ran.plan.semiring.absent
    zeros = int((data == absent).sum())
    ranks = tuple(rank for rank, _, _ in ran.plan.output)
    return SparseTensor.from_coo(ran.plan.einsum, ranks, ran.plan.shape, coords, data, fill=absent), zeros


def _plain_values(ran: EinsumRunState, values: bool) -> tuple[Ints, Values]:
    nodes = ran.first_nodes
    columns = coordinates(ran.plan, ran.walk, nodes)
    rows = [columns[i] for i in sorted(columns)]
    coords = np.array(rows, dtype=np.int64).reshape(len(rows), nodes.size)
    if not values:
        return coords, np.ones(nodes.size, dtype=np.int8)
    result = leaf_values(ran.plan, ran.walk, list(ran.terms))
    element, count = ran.outputs
    if ran.there is not None:
        result, element = result[ran.there], element[ran.there]
    number = np.full(count, -1, dtype=np.int64)
    kept = _alive_outputs(ran)
    number[kept] = np.arange(kept.size)
    return coords, gathered(result, number[element], int(kept.size), assigns(ran.plan), ufunc_of(ran.plan))


def _with_tail_values(ran: EinsumRunState, values: bool) -> tuple[Ints, Values]:
    tail = ran.tail
    assert tail is not None
    pieces: list[Ints] = []
    data: list[NDArray[Any]] = []
    start, element = len(ran.walk.loops), ran.grown[-1].element
    first = np.full(ran.grown[-1].count, -1, dtype=np.int64)
    one = ran.first_nodes
    first[element[one]] = one
    for kind in range(tail.kinds):
        leaves = leaves_of(tail, kind)
        if not leaves.size:
            continue
        if ran.thin is not None:
            leaves = leaves[:1]
        nodes = np.flatnonzero(tail.kind == kind)
        if values:
            outputs, rows = innermost_dense_values(ran.plan, ran.walk, tail, kind, nodes, element[nodes])
        else:
            outputs = distinct(element[nodes], ran.grown[-1].count)
            rows = np.ones((outputs.size, leaves.size), dtype=np.int8)
        columns = coordinates(ran.plan, ran.walk, first[outputs])
        below = {
            i: ran.plan.order[loop].decode(tail.spread(loop - start)[leaves])[column]
            for i, (_, loop, column) in enumerate(ran.plan.output)
            if loop >= start
        }
        if columns and max(columns) == len(columns) - 1:
            # Rows sorted in the result's order here need not be sorted value by value later.
            order = sorting([columns[i] for i in range(len(columns))])
            if order is not None:
                columns, rows = {i: c[order] for i, c in columns.items()}, rows[order]
        coords = np.empty((len(ran.plan.output), outputs.size, leaves.size), dtype=np.int64)
        for i, column in columns.items():
            coords[i] = column[:, None]
        for i, column in below.items():
            coords[i] = column[None, :]
        pieces.append(coords.reshape(len(coords), rows.size))
        data.append(rows.ravel())
    if not pieces:
        return np.zeros((len(ran.plan.output), 0), dtype=np.int64), np.zeros(0)
    if len(pieces) == 1:
        return pieces[0], data[0]
    return np.concatenate(pieces, axis=1), np.concatenate(data)
