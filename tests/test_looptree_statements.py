"""What the LoopTree document says of moving storage nodes, statement by statement, on generated mappings.

"If we move storage nodes lower in the LoopTree, then tile size, data reuse, and data lifetime stay the same
or decrease." A move takes one tensor of a storage node anywhere in the tree below the next loop, or into the
branches of the split that follows. Figures are the referee's, which shares no formula with the engines.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import cast

import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from polymodel.analysis.enumerate import ENGINE as REFEREE
from polymodel.analysis.enumerate.buffets import build_buffets
from polymodel.analysis.enumerate.execute import walk_all
from polymodel.analysis.enumerate.legality import phases_of
from polymodel.analysis.enumerate.occupancy import runs
from polymodel.analysis.enumerate.walk import Place, Time
from polymodel.analysis.result import Analysis, Buffet, Problem
from polymodel.errors import Refused
from polymodel.mapping.looptree import Loop, LoopTree, Node, Split, StorageNode, storage_chain, ties, users
from polymodel.schedule.touch import essential_constraints
from tests.analysis.test_agreement import drawing
from tests.fused import fused_problems
from tests.generators import legal, problems
from tests.report.test_ffmr import chains
from tests.seeds import seeds
from tests.test_looptree_document import lowered, used

Found = Callable[["Move"], bool]  # checks a statement, and tells whether anything changed
MANY = pytest.mark.parametrize("count", seeds(1, [3, 20, 80, 500]))


@dataclass(frozen=True)
class Move:
    """The same mapping before and after a tensor went down past one node (its id, in the tree before)."""

    tensor: str
    component: str
    crossed: int
    before: Problem
    after: Problem

    @property
    def node(self) -> Node:
        return next(n for i, n, _ in self.before.tree.walk() if i == self.crossed)

    def users(self) -> tuple[str, ...]:
        """Einsums below the crossed node that use the tensor."""
        below = users(self.before.tree, self.crossed)
        return tuple(e for e in below if self.tensor in self.before.cascade[e].tensors)

    def analyses(self) -> tuple[Analysis, Analysis]:
        return REFEREE.analyse(self.before, live=True), REFEREE.analyse(self.after, live=True)


def size(nodes: tuple[Node, ...]) -> int:
    return sum(1 + sum(size(b) for b in n.branches) if isinstance(n, Split) else 1 for n in nodes)


def passed(nodes: tuple[Node, ...], at: int, tensor: str) -> int:
    """The position of the node that `lowered` moves a tensor past."""
    for i in range(at + 1, len(nodes)):
        if not isinstance(nodes[i], StorageNode):
            return i
    return len(nodes) - 1


def lowerings(nodes: tuple[Node, ...], begin: int = 0) -> Iterator[tuple[int, str, int, tuple[Node, ...]]]:
    """(storage node, tensor, crossed node, tree after) for every move in a list of nodes and below it."""
    for at, node in enumerate(nodes):
        if isinstance(node, StorageNode):
            for tensor in node.tensors:
                after = lowered(nodes, at, tensor)
                if after is not None:
                    yield begin + at, tensor, begin + passed(nodes, at, tensor), after
        elif isinstance(node, Split):
            start = begin + at + 1
            for k, branch in enumerate(node.branches):
                for i, tensor, crossed, below in lowerings(branch, start):
                    branches = (*node.branches[:k], below, *node.branches[k + 1 :])
                    yield i, tensor, crossed, (*nodes[:at], replace(node, branches=branches))
                start += size(branch)


def moves(problem: Problem, backing: bool) -> list[Move]:
    """All moves; with `backing` also of outermost storage nodes, of intermediates alone."""
    uses = {e.name: e.tensors for e in problem.cascade}
    found = []
    for i, tensor, crossed, nodes in lowerings(problem.tree.nodes):
        ways = [storage_chain(problem.tree, e, tensor) for e in uses if e in problem.tree.paths]
        node = next(n for k, n, _ in problem.tree.walk() if k == i)
        assert isinstance(node, StorageNode)
        outermost = any(chain and chain[0].id == i for chain in ways)
        if outermost and not (backing and tensor in problem.cascade.intermediates):
            continue
        after = replace(problem, tree=LoopTree(used(nodes, uses)))
        found.append(Move(tensor, node.component, crossed, problem, after))
    return found


def on_generated_moves(
    count: int, statement: Found, of: Callable[[Move], bool] = lambda move: True
) -> Counter[bool]:
    """Check a statement on moves of generated legal mappings that stay legal; how often it was told what."""
    tally: Counter[bool] = Counter()

    @settings(max_examples=count, deadline=None, suppress_health_check=list(HealthCheck))
    @given(problem=problems(apart=True) | fused_problems() | chains(), choose=st.data())
    def check(problem: Problem, choose: st.DataObject) -> None:
        found = [m for m in moves(problem, True) if of(m)]
        assume(found)
        move = choose.draw(st.sampled_from(found))
        try:
            assume(legal(move.after) is None)
            tally[statement(move)] += 1
        except Refused:
            assume(False)

    cast(Callable[[], None], check)()
    return tally


def told(move: Move) -> str:
    return f"{move.tensor} in {move.component} below node {move.crossed}\n{drawing(move.before)}"


def held(found: Analysis, move: Move) -> list[Buffet]:
    """The tensor's buffets at the component."""
    return [b for b in found.buffets if (b.component, b.tensor) == (move.component, move.tensor)]


def most(buffets: list[Buffet], live: bool = False) -> int:
    """The largest tile, or live count, of some buffets; a copy's have none further in."""
    return max(((b.live or 0) if live else b.tile_max for b in buffets), default=0)


def moved(found: Analysis, move: Move) -> int:
    """What they exchange with their parents."""
    rows = [t for t in found.traffic if (t.component, t.tensor) == (move.component, move.tensor)]
    return sum(t.writes_fill + t.reads_drain for t in rows)


def residencies(problem: Problem, move: Move) -> list[tuple[Place, Time, Time]]:
    """(instance, first and last operation time) of every stay of the tensor at the component."""
    walks = walk_all(problem)
    phases = phases_of(walks)
    times = {number: time for time, number in phases.items()}
    found = []
    for b in build_buffets(problem, walks, phases, None)[0].values():
        if (b.component, b.tensor) == (move.component, move.tensor):
            for p, visits in runs(b):
                first = min(use.first for use in b.tiles[visits[0]][p].values())
                last = max(use.last for use in b.tiles[visits[-1]][p].values())
                found.append((p, times[first], times[last]))
    return found


def holders(problem: Problem, move: Move) -> int:
    """How many nodes of the component hold the tensor."""
    nodes = (n for _, n, _ in problem.tree.walk() if isinstance(n, StorageNode))
    return sum(n.component == move.component and move.tensor in n.tensors for n in nodes)


def trips(move: Move, indexing: bool) -> int:
    """Iterations of the crossed loop if it is the outermost over a variable that all users of the tensor
    have, over boxes, and goes over one of its ranks (or, not `indexing`, over none); 1 for any other."""
    loop, problem = move.node, move.before
    if not isinstance(loop, Loop) or loop.initial_tile_shape is not None or loop.uneven:
        return 1
    ranges = set()
    for name in move.users():
        e, v = problem.cascade[name], loop.variable_in(name)
        tied = ties(problem.cascade, problem.tree, name)
        above = [x for i, x in problem.tree.loops(name) if i < move.crossed]
        box = len(essential_constraints(e)) == 2 * len(e.rank_variables)
        if set(tied.values()) != {"bound"} or not box or e.is_copy:
            return 1
        if (
            any(x.variable_in(name) == v for x in above)
            or (v in e.access_of(move.tensor).variables) != indexing
        ):
            return 1
        ranges.add(e.bound(v))
    bound = [
        e
        for e in users(problem.tree, move.crossed)
        if loop.variable_in(e) in problem.cascade[e].rank_variables
    ]
    ranges |= {problem.cascade[e].bound(loop.variable_in(e)) for e in bound}
    low, high = next(iter(ranges), (0, 0))
    return -(-(high - low + 1) // int(loop.tile_shape)) if len(ranges) == 1 else 1


@MANY
def test_tile_size_stays_or_decreases_when_a_storage_node_moves_lower(count: int) -> None:
    def statement(move: Move) -> bool:
        high, low = (held(a, move) for a in move.analyses())
        assert most(low) <= most(high), told(move)
        assert most(low, live=True) <= most(high, live=True), told(move)
        return most(low) < most(high)

    tally = on_generated_moves(count, statement)
    assert tally[True] > min(3, count // 25), tally


@MANY
def test_data_reuse_stays_or_decreases_when_a_storage_node_moves_lower(count: int) -> None:
    """The nodes of the tensor at its component exchange as much with their parents, or more."""

    def statement(move: Move) -> bool:
        high, low = (moved(a, move) for a in move.analyses())
        assert low >= high, told(move)
        return low > high

    tally = on_generated_moves(count, statement)
    assert tally[True] > min(3, count // 25), tally


@MANY
def test_data_lifetime_stays_or_decreases_when_a_storage_node_moves_lower(count: int) -> None:
    """Every residency after the move lies within one before it."""

    def statement(move: Move) -> bool:
        high, low = residencies(move.before, move), residencies(move.after, move)
        for place, begin, end in low:
            assert any(place[: len(p)] == p and first <= begin and end <= last for p, first, last in high), (
                told(move)
            )
        return low != high

    tally = on_generated_moves(count, statement)
    assert tally[True] > min(3, count // 25), tally


@MANY
def test_tile_size_decreases_below_a_loop_that_indexes_the_tensor(count: int) -> None:
    def statement(move: Move) -> bool:
        high, low = (held(a, move) for a in move.analyses())
        assert most(low) < most(high), told(move)
        return True

    def of(move: Move) -> bool:
        alone = holders(move.before, move) == len(move.users()) == 1
        return alone and trips(move, indexing=True) > 1

    tally = on_generated_moves(count, statement, of)
    assert tally[True] > min(3, count // 25), tally


@MANY
def test_reuse_is_lost_below_a_loop_that_does_not_index_the_tensor(count: int) -> None:
    """The same tile is fetched again in every iteration; policies that look back fetch it once."""

    def statement(move: Move) -> bool:
        for policy in ("refill", "slide", "keep_previous"):
            before, after = (REFEREE.analyse(p, reuse=policy) for p in (move.before, move.after))
            times = trips(move, indexing=False) if policy == "refill" else 1
            high, low = held(before, move), held(after, move)
            assert most(low) == most(high), told(move)
            if move.before.cascade.producer(move.tensor) is None:
                assert moved(after, move) == times * moved(before, move), told(move)
        return True

    def of(move: Move) -> bool:
        return holders(move.before, move) == 1 and trips(move, indexing=False) > 1

    tally = on_generated_moves(count, statement, of)
    assert tally[True] > min(3, count // 25), tally


@MANY
def test_lifetime_decreases_below_the_loop_above_a_branch(count: int) -> None:
    """Below that loop a tile that one branch uses is freed before the next branch begins."""

    def statement(move: Move) -> bool:
        before, after = (refilled(p) for p in (move.before, move.after))
        assume(legal(before) is None and legal(after) is None)
        others = [
            o.time
            for einsum, walk in walk_all(after).items()
            if einsum in users(move.before.tree, move.crossed) and branch_of(move, einsum) != mine(move)
            for o in walk.operations
        ]
        high, low = residencies(before, move), residencies(after, move)
        assert not any(a <= t <= b for t in others for _, a, b in low), told(move)
        return any(a <= t <= b for t in others for _, a, b in high)

    def of(move: Move) -> bool:
        loop, tree = move.node, move.before.tree
        if not isinstance(loop, Loop) or move.tensor in move.before.cascade.intermediates or not move.users():
            return False
        below = [s.node for s in tree.path(move.users()[0]) if s.id > move.crossed]
        follows = next(n for n in below if not isinstance(n, StorageNode))
        return isinstance(follows, Split) and len({branch_of(move, e) for e in move.users()}) == 1

    tally = on_generated_moves(count, statement, of)
    assert tally[True] > min(3, count // 25), tally


def branch_of(move: Move, einsum: str) -> int:
    """The branch of the first split below the crossed node that leads to an Einsum."""
    path = move.before.tree.path(einsum)
    return next(s.branch for s in path if s.id > move.crossed and isinstance(s.node, Split))


def mine(move: Move) -> int:
    return branch_of(move, move.users()[0])


def refilled(problem: Problem) -> Problem:
    """The same mapping with `reuse: refill` everywhere."""

    def visit(nodes: tuple[Node, ...]) -> tuple[Node, ...]:
        found: list[Node] = []
        for n in nodes:
            if isinstance(n, Split):
                n = replace(n, branches=tuple(visit(b) for b in n.branches))
            found.append(replace(n, reuse="refill") if isinstance(n, StorageNode) else n)
        return tuple(found)

    return replace(problem, tree=LoopTree(visit(problem.tree.nodes)))
