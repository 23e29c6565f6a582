"""Tiles that stay from visit to visit: one transfer goes with all that is used while the element stays."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

from hypothesis import given, settings
from hypothesis import strategies as st

from polymodel.analysis.enumerate import ENGINE
from polymodel.analysis.result import Problem
from polymodel.mapping.looptree import LoopTree, Node, StorageNode
from polymodel.sparse.actions.counts import sparse_counts
from tests.sparse.actions.literal import Literal, Operation, Point
from tests.sparse.actions.small import small_problems
from tests.sparse.actions.test_literal import drawn_data, legal


class Kept(Literal):
    """Reads of operands that serve fills: elements stay as long as the next visit has them."""

    def fills(self, tensor: str, data: dict[str, set[Point]]) -> Counter[str]:
        """State -> reads at the tensor's outermost storage."""
        parent, child = self.chain(tensor)[:2]
        visits: dict[Point, dict[Point, list[Operation]]] = {}
        for op in self.operations:
            visits.setdefault(self.place(op, child), {}).setdefault(self.time(op, child), []).append(op)
        reads: dict[tuple[Point, Point, Point], list[Operation]] = {}
        for times in visits.values():
            open_runs: dict[Point, tuple[Point, Point, Point]] = {}
            for time in sorted(times):
                ops = times[time]
                here = {op.touched[tensor][0] for op in ops}
                open_runs = {x: key for x, key in open_runs.items() if x in here}
                for x in here:
                    key = open_runs.setdefault(x, (time, self.place(ops[0], parent), x))
                    reads.setdefault(key, []).extend(ops)
        found: Counter[str] = Counter()
        for key in sorted(reads):
            state = "actual"
            for kind, leaders in self.rules(parent, tensor):
                for leader in leaders:
                    if leader in data and not {op.touched[leader][0] for op in reads[key]} & data[leader]:
                        state = "skipped" if kind == "skip" or state == "skipped" else "gated"
            found[state] += 1
        return found


def keeping(problem: Problem, policy: str) -> Problem:
    """Operands of the inner storages stay, results are refilled; only DRAM's own rules are left."""
    nodes: list[Node] = []
    for n in problem.tree.nodes:
        if isinstance(n, StorageNode) and n.component != "DRAM":
            operands = tuple(t for t in n.tensors if t != "Z")
            nodes += [StorageNode(n.component, operands, policy)] if operands else []
            nodes += [StorageNode(n.component, ("Z",))] if "Z" in n.tensors else []
        else:
            nodes.append(n)
    return replace(problem, tree=LoopTree(tuple(nodes)))


@settings(max_examples=150, deadline=None)
@given(small_problems(), st.sampled_from(["slide", "keep_previous"]), st.data())
def test_what_stays_goes_with_all_that_is_used_meanwhile(
    problem: Problem, policy: str, data: st.DataObject
) -> None:
    problem = keeping(problem, policy)
    legal(problem)
    nonzero, known = drawn_data(problem, data)
    found = sparse_counts(problem, ENGINE.analyse(problem), known)
    walk = Kept(problem)
    for t in ("A", "B"):
        chain = walk.chain(t)
        if len(chain) < 2:
            continue
        wanted = walk.fills(t, nonzero)
        (a,) = (x for x in found.accesses if (x.node, x.tensor, x.kind) == (chain[0], t, "reads_fill"))
        if a.dense != sum(wanted.values()):
            assert policy == "slide"  # keeps less than the walk does
        elif a.label == "exact":
            assert [a.actual, a.gated, a.skipped] == [wanted[s] for s in ("actual", "gated", "skipped")]
