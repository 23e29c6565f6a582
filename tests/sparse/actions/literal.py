"""Gating and skipping by the letter: the loop nest is walked point by point, every transfer is looked at.

Of one Einsum on a box, `refill` everywhere, spatial loops with `may_reuse` of everything. Shares no formula
and no look-up with the room `sparse`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from itertools import product

from polymodel.analysis.result import Problem
from polymodel.mapping.looptree import ComputeNode, Loop, StorageNode

Point = tuple[int, ...]
State = str  # actual, gated, skipped
ORDER = ("actual", "gated", "skipped")


class Operation:
    """One point of the iteration space: counters of the loops above each node, and what it touches."""

    def __init__(
        self, counters: dict[int, int], offsets: Point, touched: dict[str, tuple[Point, ...]]
    ) -> None:
        self.counters = counters
        self.offsets = offsets
        self.touched = touched
        self.state: State = "actual"


def operations(problem: Problem) -> list[Operation]:
    """Every point in the order of execution."""
    (einsum,) = problem.cascade.einsums
    path = problem.tree.path(einsum.name)
    loops = [(s.id, s.node) for s in path if isinstance(s.node, Loop)]
    found: list[Operation] = []

    def visit(at: int, ranges: dict[str, range], counters: dict[int, int]) -> None:
        if at == len(loops):
            names = einsum.rank_variables
            for values in product(*(ranges[v] for v in names)):
                point = dict(zip(names, values, strict=True))
                touched = {
                    t: tuple(tuple(x.value(point) for x in a.projection) for a in einsum.accesses_of(t))
                    for t in einsum.tensors
                }
                offsets = tuple(ranges[v].index(point[v]) for v in names)
                found.append(Operation(dict(counters), offsets, touched))
            return
        number, loop = loops[at]
        inside = ranges[loop.rank_variable]
        start, step = 0, loop.initial_tile_shape or loop.tile_shape
        k = 0
        while start < len(inside):
            part = inside[start : start + step]
            visit(at + 1, {**ranges, loop.rank_variable: part}, {**counters, number: k})
            start, step, k = start + step, loop.tile_shape, k + 1

    box = {
        v: range(low, high + 1) for v, (low, high) in zip(einsum.rank_variables, einsum.bounds, strict=True)
    }
    visit(0, box, {})
    return found


class Literal:
    """One Einsum under one mapping. Call with nonzeros per tensor: counts of accesses by state.

    Of the last call, `timed`: operations of each instance that are not skipped, and `moved`: elements that
    each instance of a storage reads or writes, gated turns included, by (tensor, component, instance, way).
    """

    def __init__(self, problem: Problem) -> None:
        self.problem = problem
        (self.einsum,) = problem.cascade.einsums
        self.path = problem.tree.path(self.einsum.name)
        self.operations = operations(problem)
        self.loops = {s.id: s.node for s in self.path if isinstance(s.node, Loop)}
        self.sum = dict(self.einsum.operations).get("map") == "add"

    def empty(self, ops: Sequence[Operation], leader: str, data: Mapping[str, set[Point]]) -> bool:
        """Whether what some operations use of a leader is zero: of one of its accesses, of a sum of all."""
        if leader not in data:
            return False
        parts = [{op.touched[leader][i] for op in ops} for i in range(len(ops[0].touched[leader]))]
        return (all if self.sum else any)(not part & data[leader] for part in parts)

    def chain(self, tensor: str) -> list[int]:
        return [s.id for s in self.path if isinstance(s.node, StorageNode) and tensor in s.node.tensors]

    def component(self, node: int) -> str:
        return next(s.node.component for s in self.path if s.id == node)

    def time(self, op: Operation, node: int | None) -> Point:
        found = tuple(
            op.counters[i] for i, x in self.loops.items() if not x.spatial and (node is None or i < node)
        )
        return found + (op.offsets if node is None else ())

    def place(self, op: Operation, node: int | None, below: int = -1) -> Point:
        return tuple(
            op.counters[i]
            for i, x in self.loops.items()
            if x.spatial and below < i and (node is None or i < node)
        )

    def rules(self, node: int, tensor: str) -> list[tuple[str, tuple[str, ...]]]:
        sparse = self.problem.hierarchy[self.component(node)].sparse
        found = []
        for action in sparse.actions if sparse else ():
            targets, leaders = action.of(self.einsum.name)
            if tensor in targets:
                found.append((action.kind, leaders))
        return found

    def drained_densely(self, node: int) -> tuple[str, ...]:
        sparse = self.problem.hierarchy[self.component(node)].sparse
        return sparse.dense_outputs if sparse else ()

    def __call__(
        self, nonzero: Mapping[str, Iterable[Point]], compressed: Sequence[tuple[str, str]] = ()
    ) -> Counter[tuple[str, int, str, str]]:
        """(tensor, node, kind, state) -> elements; operations under ("", 0, "operations", state)."""
        data = {t: set(points) for t, points in nonzero.items()}
        self.timed: Counter[Point] = Counter()
        self.moved: Counter[tuple[str, str, Point, str]] = Counter()
        found: Counter[tuple[str, int, str, str]] = Counter()
        states: dict[str, dict[tuple[int, Point, Point, Point], State]] = {}
        inputs = {a.tensor: a for a in self.einsum.inputs}.values()
        self.links(inputs, data, compressed, states, found)
        self.compute(data, states, found)
        # What of an output is touched depends on the operations, these on their operands.
        self.links(self.einsum.outputs, data, compressed, states, found)
        return found

    def links(self, accesses, data, compressed, states, found) -> None:
        for access in accesses:
            states[access.tensor] = {}
            for level in range(len(self.chain(access.tensor))):
                self.link(access.tensor, level, data, compressed, states[access.tensor], found)

    def link(self, tensor, level, data, compressed, states, found) -> None:
        chain = self.chain(tensor)
        parent, child = chain[level], chain[level + 1] if level + 1 < len(chain) else None
        access = self.einsum.access_of(tensor)
        groups: dict[tuple[Point, Point, Point], list[Operation]] = {}
        stamps: dict[tuple[Point, Point], list[Operation]] = {}
        for op in self.operations:
            stamps.setdefault((self.time(op, child), self.place(op, child)), []).append(op)
        reads = range(len(self.einsum.accesses_of(tensor)))
        # Compute reads access by access; what fills a storage serves all of them.
        for each in [reads] if child is not None else [[i] for i in reads]:
            groups.clear()
            for ops in stamps.values():
                for x in {op.touched[tensor][i] for op in ops for i in each}:
                    key = self.time(ops[0], child), self.place(ops[0], parent), x
                    groups.setdefault(key, []).extend(ops)
            for key in sorted(groups):
                self.transfer(
                    key, groups[key], each, parent, child, level, access, data, compressed, states, found
                )

    def transfer(self, key, ops, each, parent, child, level, access, data, compressed, states, found) -> None:
        time, above, x = key
        tensor = access.tensor

        def touches(op: Operation) -> bool:
            return any(op.touched[tensor][i] == x for i in each)

        outer = self.time(ops[0], parent)
        state = states.get((level - 1, outer, above, x), "actual") if level else "actual"
        for kind, leaders in self.rules(parent, tensor):
            for leader in leaders:
                if self.empty(ops, leader, data):
                    state = "skipped" if kind == "skip" or state == "skipped" else "gated"
        receivers = sorted({self.place(op, child) for op in ops if touches(op)})
        for place in receivers:
            states[level, time, place, x, *(each if child is None else ())] = state
        if access.output and tensor not in self.drained_densely(parent):
            state = _harder(state, min((op.state for op in ops if touches(op)), key=ORDER.index))

        def note(kind: str, node: int, places: Sequence[Point]) -> None:
            packed = (self.component(node), tensor) in compressed
            absent = packed and tensor in data and x not in data[tensor]
            found[tensor, node, kind, "absent" if absent else state] += len(places)
            for place in places if not absent and state != "skipped" else ():
                self.moved[tensor, self.component(node), place, kind.split("_")[0]] += 1

        if not access.output:
            note("reads_fill", parent, [above])
            if child is not None:
                note("writes_fill", child, receivers)
            return
        earlier = states.setdefault(("drained", level, parent), set())
        visit = () if level == 0 else outer
        came = states.setdefault("came", set())
        there = level == 0 and access.accumulates
        if there or (visit, above, x) in earlier or (level and (level - 1, outer, above, x) in came):
            note("reads_fill", parent, [above])
            if child is not None:
                note("writes_fill", child, receivers[:1])
                came.add((level, time, receivers[0], x))
        earlier.add((visit, above, x))
        note("writes_drain", parent, [above])
        if child is not None:
            note("reads_drain", child, receivers)

    def compute(self, data, states, found) -> None:
        leaf = self.path[-1].node
        assert isinstance(leaf, ComputeNode)
        unit = self.problem.hierarchy[leaf.component].sparse
        for op in self.operations:
            state = "actual"
            tensors = dict.fromkeys(a.tensor for a in self.einsum.inputs)
            for tensor in tensors if not self.sum else ():
                last = len(self.chain(tensor)) - 1
                for i, x in enumerate(op.touched[tensor]):
                    key = (last, self.time(op, None), self.place(op, None), x, i)
                    state = _harder(state, states[tensor][key])
            for action in unit.actions if unit else ():
                for leader in action.of(self.einsum.name)[1]:
                    if self.empty([op], leader, data):
                        state = _harder(state, "skipped" if action.kind == "skip" else "gated")
            full = (any if self.sum else all)(x in data.get(t, {x}) for t in tensors for x in op.touched[t])
            op.state = state
            if state == "actual":
                state = "effectual" if full else "ineffectual"
            found["", 0, "operations", state] += 1
            self.timed[self.place(op, None)] += state != "skipped"


def _harder(a: State, b: State) -> State:
    return max(a, b, key=ORDER.index)
