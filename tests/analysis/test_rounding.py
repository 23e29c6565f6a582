"""Transfers in whole actions: exact = enumerate where actions do not divide the bits of a value."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from typing import cast

from hypothesis import event, given, settings
from hypothesis import strategies as st

from polymodel.analysis.engine import Problem
from polymodel.analysis.enumerate import ENGINE as REFEREE
from polymodel.analysis.exact import ENGINE as EXACT
from polymodel.architecture.hierarchy import Action, Component
from polymodel.errors import Refused
from polymodel.mapping.looptree import Loop, Reuse
from polymodel.workload.einsum import Cascade
from tests.analysis.test_agreement import SETTINGS, differences, drawing
from tests.generators import problems

REFUSED_AT_MOST = 0.01
POLICIES = st.sampled_from([None, None, "refill", "slide", "keep_previous"])


@st.composite
def rounding_problems(draw: st.DrawFn) -> Problem:
    """Values of 5 to 17 bits, actions of 8 to 64 bits at memories and tolls; refills wait in some."""
    problem = draw(problems())
    bits = {t: draw(st.integers(5, 17)) for t in problem.cascade.tensors}
    einsums = tuple(
        replace(e, accesses=tuple(replace(a, bits_per_value=bits[a.tensor]) for a in e.accesses))
        for e in problem.cascade
    )
    components = []
    for c in problem.hierarchy.components:
        if c.kind in ("memory", "toll"):
            names = draw(st.sampled_from([("read",), ("write",), ("read", "write")]))
            actions = tuple(Action(n, 1.0, bits_per_action=draw(st.integers(8, 64))) for n in names)
            c = cast(Component, replace(c, actions=actions, buffering="single"))
        components.append(c)
    hierarchy = replace(problem.hierarchy, components=tuple(components), assume_overlap=draw(st.booleans()))
    cascade = cast(Cascade, replace(problem.cascade, einsums=einsums))
    return replace(problem, cascade=cascade, hierarchy=hierarchy)


def compare(problem: Problem, reuse: Reuse | None, tally: Counter[str]) -> None:
    try:
        referee = REFEREE.analyse(problem, reuse=reuse)
    except Refused:
        return  # the overriding policy makes the mapping illegal
    tally["examples"] += 1
    try:
        ours = EXACT.analyse(problem, reuse=reuse)
    except Refused as refusal:
        tally["refused"] += 1
        event(f"refused: {refusal.message[:60]}")
        return
    tally["spatial"] += any(isinstance(n, Loop) and n.spatial for _, n, _ in problem.tree.walk())
    tally["large"] += any(size > 1 for t in ours.transfers for size, _ in t.sizes)
    tally["tolls"] += any(t.node is None for t in ours.transfers)
    found = differences(ours, referee)
    for mine, theirs in ((ours.transfers, referee.transfers), (ours.refills, referee.refills)):
        if mine != theirs:
            found += ["", *map(str, mine), "", *map(str, theirs)]
    assert not found, "\n".join([*found, f"reuse={reuse}", drawing(problem)])


def run_many(count: int) -> Counter[str]:
    tally: Counter[str] = Counter()

    @settings(max_examples=count, **SETTINGS)
    @given(rounding_problems(), POLICIES)
    def agree(problem: Problem, reuse: Reuse | None) -> None:
        compare(problem, reuse, tally)

    cast(Callable[[], None], agree)()
    return tally


def test_sizes_of_transfers_agree() -> None:
    tally = run_many(200)
    assert tally["refused"] <= REFUSED_AT_MOST * tally["examples"], tally
    assert min(tally["large"], tally["spatial"]) > tally["examples"] // 4, tally
    assert tally["tolls"] > tally["examples"] // 10, tally
