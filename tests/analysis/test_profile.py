"""Tile sizes and fills at every stamp: products of factor arrays against sets of elements."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from typing import Any, cast

import numpy as np
import pytest
from hypothesis import given, settings

from polymodel.analysis.enumerate.buffets import BuffetWalk, build_buffets, settle
from polymodel.analysis.enumerate.execute import walk_all
from polymodel.analysis.enumerate.legality import phases_of
from polymodel.analysis.enumerate.walk import EinsumWalk
from polymodel.analysis.exact.buffets import lay_out
from polymodel.analysis.exact.flows import fill_carries
from polymodel.analysis.exact.profile import Profile, fills_at, sizes_at
from polymodel.analysis.result import Problem
from polymodel.errors import Refused
from polymodel.mapping.looptree import Loop, Split
from polymodel.reuse import Reuse
from polymodel.schedule.executed import retained_axes
from polymodel.schedule.touch import partition, touch
from tests.analysis.small import dram, einsum, glb, loop, mac, problem, rf, spread
from tests.analysis.test_agreement import SETTINGS, drawing
from tests.fused import fused_problems
from tests.generators import problems

Stamp = tuple[int, ...]


def counted(profile: Profile) -> dict[Stamp, int]:
    found = profile.array()
    return {tuple(int(i) for i in at): int(found[tuple(at)]) for at in np.argwhere(found != 0)}


def stamps(problem: Problem, einsum: str, node: int, time: Stamp, place: Stamp) -> Stamp:
    """Counters in path order, without branch numbers."""
    times, places, found = iter(time), iter(place), []
    for step in problem.tree.path(einsum):
        if step.id >= node:
            break
        if isinstance(step.node, Split):
            next(times)
        elif isinstance(step.node, Loop):
            found.append(next(places if step.node.spatial else times))
    return tuple(found)


def referee(problem: Problem, b: BuffetWalk, einsum: str) -> tuple[dict[Stamp, int], dict[Stamp, int]]:
    """Sizes and fills by stamp; those without elements are left out."""
    sizes, fills = {}, {}
    for t, places in b.tiles.items():
        for p, tile in places.items():
            at = stamps(problem, einsum, b.node, t, p)
            sizes[at], fills[at] = len(tile), len(tile) - len(b.carried[t][p])
    return sizes, {s: n for s, n in fills.items() if n}


def alone(walk: EinsumWalk, buffet: BuffetWalk, policy: Reuse) -> BuffetWalk:
    """The buffet as it would be if the Einsum were its only user, and only read it."""
    own = BuffetWalk(
        buffet.node, buffet.component, buffet.tensor, policy, None, 0, (walk.einsum.name,), None,
        buffet.n_time, buffet.n_place, buffet.loops,
    )  # fmt: skip
    position = walk.einsum.tensors.index(buffet.tensor)
    for op in walk.operations:
        own.touch(op.time, op.place, op.elements[position], 0, walk.einsum.name, False)
    settle(own)
    return own


def compare(problem: Problem, tally: Counter[str]) -> None:
    layout = lay_out(problem)
    walks = walk_all(problem)
    buffets, _ = build_buffets(problem, walks, phases_of(walks), None)
    for key, node in layout.nodes.items():
        tally["nodes"] += 1
        sizes, fills = referee(problem, buffets[key], node.users[0])
        text = f"node {key}\n{drawing(problem)}"
        assert counted(sizes_at(node.all_touch)) == sizes, text
        carries = node.policy_carries if node.parent is None else fill_carries(layout, node)
        ours = fills_at(node.all_touch, node.all_touch, carries)
        assert counted(ours) == fills, text
        assert ours.total == sum(fills.values())
        tally["carried"] += fills != sizes
        for view in node.views:
            name = view.einsum.name
            own = touch((view,), partition((view,)))
            policies = (Reuse.SLIDE, Reuse.KEEP_PREVIOUS)
            for policy in policies:
                windows = referee(problem, alone(walks[name], buffets[key], policy), name)
                assert counted(sizes_at(own)) == windows[0], text
                found = counted(fills_at(own, own, retained_axes(own, policy)))
                assert found == windows[1], f"{name} {policy} {text}"


def run_many(strategy: Any, count: int) -> Counter[str]:
    tally: Counter[str] = Counter()

    @settings(max_examples=count, **SETTINGS)
    @given(strategy)
    def agree(problem: Problem) -> None:
        with suppress(Refused):
            compare(problem, tally)

    cast(Callable[[], None], agree)()
    return tally


@pytest.mark.thin(99)
@pytest.mark.parametrize("strategy", [problems(), fused_problems()], ids=["plain", "fused"])
def test_profiles_agree_with_sets(strategy: Any) -> None:
    tally = run_many(strategy, 30)
    assert tally["nodes"] > 25, tally
    assert tally["carried"] > 0, tally


@pytest.mark.slow
@pytest.mark.parametrize("strategy", [problems(), fused_problems()], ids=["plain", "fused"])
def test_profiles_agree_with_sets_at_length(strategy: Any) -> None:
    tally = run_many(strategy, 3_000)
    assert tally["nodes"] > 5_000, tally


def test_what_instances_load_together() -> None:
    """Windows of 3 in four instances, of which neighbours overlap by 2: 6 different elements in all."""
    e = einsum("E0", "I[p+r]", "W[r]", "O[p]", sizes={"p": 8, "r": 3})
    given_ = problem(e, dram("I", "W", "O"), glb("I"), loop("p", 4), spread("p", 1), rf("I"), mac("E0"))
    (node,) = (n for n in lay_out(given_, "slide").nodes.values() if n.component == "RF")
    assert sizes_at(node.all_touch).array().tolist() == [[3, 3, 3, 3], [3, 3, 3, 3]]
    together = fills_at(node.all_touch, node.all_touch, (), frozenset({1}))
    assert together.array().tolist() == [6, 6]
    assert [a.node for a in together.axes] == [2]
