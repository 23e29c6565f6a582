"""Transfers in whole actions: exact = enumerate where actions do not divide the bits of a value."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from typing import cast

import pytest
from hypothesis import event, given, settings
from hypothesis import strategies as st

from polymodel.analysis.enumerate import ENGINE as REFEREE
from polymodel.analysis.exact import ENGINE as EXACT
from polymodel.analysis.result import Problem
from polymodel.analysis.symbolic import closed_counts
from polymodel.architecture.hierarchy import ActionCost, Component
from polymodel.errors import Refused
from polymodel.mapping.looptree import Loop, StorageNode
from polymodel.reuse import Reuse
from polymodel.workload.einsum import Cascade
from tests.analysis.small import dram, einsum, hierarchy, loop, mac, problem, spread
from tests.analysis.test_agreement import SETTINGS, differences, drawing
from tests.generators import problems

REFUSED_AT_MOST = 0.05  # of 200; about 0.002 are, but examples come in clusters
REFUSED_AT_LENGTH = 0.01
POLICIES = st.sampled_from([None, None, *Reuse])


@st.composite
def rounding_problems(draw: st.DrawFn) -> Problem:
    """Values of 5 to 17 bits, actions of 8 to 64 bits at memories and tolls; refills wait in some."""
    drawn = draw(problems())
    bits = {t: draw(st.integers(5, 17)) for t in drawn.cascade.tensors}
    einsums = tuple(
        replace(e, accesses=tuple(replace(a, bits_per_value=bits[a.tensor]) for a in e.accesses))
        for e in drawn.cascade
    )
    components = []
    for c in drawn.hierarchy.components:
        if c.kind in ("memory", "toll"):
            names = draw(st.sampled_from([("read",), ("write",), ("read", "write")]))
            actions = tuple(ActionCost(n, 1.0, bits_per_action=draw(st.integers(8, 64))) for n in names)
            c = cast(Component, replace(c, actions=actions, buffering="single"))
        components.append(c)
    hierarchy = replace(drawn.hierarchy, components=tuple(components), assume_overlap=draw(st.booleans()))
    cascade = cast(Cascade, replace(drawn.cascade, einsums=einsums))
    return replace(drawn, cascade=cascade, hierarchy=hierarchy)


def compare(given: Problem, reuse: Reuse | None, tally: Counter[str]) -> None:
    try:
        referee = REFEREE.analyse(given, reuse=reuse)
    except Refused:
        return  # the overriding policy makes the mapping illegal
    tally["examples"] += 1
    try:
        ours = EXACT.analyse(given, reuse=reuse)
    except Refused as refusal:
        tally["refused"] += 1
        event(f"refused: {refusal.message[:60]}")
        return
    tally["spatial"] += any(isinstance(n, Loop) and n.spatial for _, n, _ in given.tree.walk())
    tally["large"] += any(size > 1 for t in ours.transfers for size, _ in t.sizes)
    tally["tolls"] += any(t.node is None for t in ours.transfers)
    found = differences(ours, referee)
    for mine, theirs in ((ours.transfers, referee.transfers), (ours.refills, referee.refills)):
        if mine != theirs:
            found += ["", *map(str, mine), "", *map(str, theirs)]
    assert not found, "\n".join([*found, f"reuse={reuse}", drawing(given)])


def run_many(count: int) -> Counter[str]:
    tally: Counter[str] = Counter()

    @settings(max_examples=count, **SETTINGS)
    @given(rounding_problems(), POLICIES)
    def agree(given_: Problem, reuse: Reuse | None) -> None:
        compare(given_, reuse, tally)

    cast(Callable[[], None], agree)()
    return tally


def test_sizes_of_transfers_agree() -> None:
    tally = run_many(36)
    assert tally["refused"] <= REFUSED_AT_MOST * tally["examples"], tally
    assert min(tally["large"], tally["spatial"]) > tally["examples"] // 4, tally
    assert tally["tolls"] > tally["examples"] // 10, tally


@pytest.mark.slow
def test_sizes_of_transfers_agree_at_length() -> None:
    tally = run_many(5_000)
    assert tally["refused"] <= REFUSED_AT_LENGTH * tally["examples"], tally


def closed(given: Problem, tally: Counter[str]) -> None:
    """Closed forms of whole actions give those of the exact engine, and the loads that follow from them."""
    try:
        exact = EXACT.analyse(given, reuse="refill")
        ours = closed_counts(given, reuse="refill").at({})
    except Refused as refusal:
        event(f"refused: {refusal.message[:60]}")
        return
    tally["examples"] += bool(ours.whole)
    found = differences(replace(ours, working_sets=()), replace(exact, working_sets=()))
    bits = {t: given.cascade.accesses_of(t)[0].bits_per_value for t in given.cascade.tensors}
    counted = {}
    for t in exact.transfers:
        action = given.hierarchy[t.component].action("read" if t.kind.startswith("reads") else "write")
        if action.rounds(bits[t.tensor]):
            whole = sum(n * action.whole_bits(size * bits[t.tensor]) for size, n in t.sizes)
            counted[t.einsum, t.node, t.component, t.tensor, t.kind] = whole // (action.bits_per_action or 1)
    mine = {(w.einsum, w.node, w.component, w.tensor, w.kind): w.actions for w in ours.whole if w.actions}
    tally["uneven"] += any(len(t.sizes) > 1 for t in exact.transfers)
    assert (found, mine) == ([], counted), drawing(given)


@st.composite
def nests(draw: st.DrawFn) -> Problem:
    """A product on three memories with loops of any tiles between them, and actions of any width."""
    sizes = {v: draw(st.integers(1, 9)) for v in "mnk"}
    left = dict(sizes)
    tensors = ("A", "B", "C")

    def loops() -> list[Loop]:
        found = []
        for v in draw(st.lists(st.sampled_from("mnk"), max_size=3)):
            left[v] = draw(st.integers(1, left[v]))
            found.append(loop(v, left[v]))
        return found

    def storage(name: str) -> list[StorageNode]:
        kept = tuple(t for t in tensors if draw(st.booleans()))
        return [StorageNode(name, kept, Reuse.REFILL)] if kept else []

    base = problem(
        einsum("E0", "A[m,k]", "B[k,n]", "C[m,n]", sizes=sizes),
        dram(*tensors), *loops(), *storage("GLB"), *loops(), *storage("RF"), *loops(), mac(),
        hardware=hierarchy(),
    )  # fmt: skip
    bits = {t: draw(st.integers(5, 17)) for t in tensors}
    einsums = tuple(
        replace(e, accesses=tuple(replace(a, bits_per_value=bits[a.tensor]) for a in e.accesses))
        for e in base.cascade
    )
    components = tuple(
        replace(
            c,
            read_first=draw(st.booleans()),
            actions=tuple(
                ActionCost(n, 1.0, bits_per_action=draw(st.sampled_from([None, 8, 24, 100])))
                for n in ("read", "write")
            ),
        )
        if c.kind == "memory"
        else c
        for c in base.hierarchy.components
    )
    cascade = cast(Cascade, replace(base.cascade, einsums=einsums))
    return replace(base, cascade=cascade, hierarchy=replace(base.hierarchy, components=components))


def close_many(count: int) -> Counter[str]:
    tally: Counter[str] = Counter()

    @settings(max_examples=count, **SETTINGS)
    @given(nests())
    def agree(given_: Problem) -> None:
        closed(given_, tally)

    cast(Callable[[], None], agree)()
    return tally


@pytest.mark.slow
def test_closed_forms_of_whole_actions_agree() -> None:
    tally = close_many(40)
    assert min(tally["examples"], 2 * tally["uneven"]) > 10, tally


@pytest.mark.slow
def test_closed_forms_of_whole_actions_agree_at_length() -> None:
    tally = close_many(3_000)
    assert min(tally["examples"], 2 * tally["uneven"]) > 1_000, tally


@pytest.mark.slow
@settings(max_examples=1_000, **SETTINGS)
@given(rounding_problems())
def test_what_closed_forms_do_not_refuse_is_right(given_: Problem) -> None:
    """Chains, fanouts, windows, tolls: most are refused."""
    closed(given_, Counter())


def matmul(sizes: dict[str, int], order: str, tile: int, lanes: int) -> Problem:
    """Tiles of C[m,n] that stay in GLB and RF where they can; the tile of k is spread over PEs."""
    e0 = einsum("E0", "A[m,k]", "B[k,n]", "C[m,n]", sizes=sizes)
    base = problem(
        e0,
        dram("A", "B", "C"),
        *(loop(v, tile) for v in order),
        StorageNode("GLB", ("A", "B", "C"), "keep_previous"),
        spread("k", lanes),
        StorageNode("RF", ("A", "B", "C"), "keep_previous"),
        loop("m", 1),
        loop("n", 1),
        mac(),
        hardware=hierarchy(),
    )
    actions = tuple(ActionCost(name, 1.0, bits_per_action=24) for name in ("read", "write"))
    components = tuple(replace(c, actions=actions) for c in base.hierarchy.components)
    return replace(base, hierarchy=replace(base.hierarchy, components=components))


def test_carried_sums_that_are_spread_unevenly() -> None:
    """k = 7 in tiles of 3 over three PEs: two of them are idle in the last tile and drain before."""
    given = matmul({"m": 5, "n": 5, "k": 7}, "mnk", 3, 1)
    ours, referee = EXACT.analyse(given), REFEREE.analyse(given)
    assert ours.transfers == referee.transfers
    assert ours.loads == referee.loads


def test_large_carried_tiles_need_no_list() -> None:
    """4,096 million iterations: sizes from factors, which add up to what is counted elsewhere."""
    given = matmul({"m": 1000, "n": 1000, "k": 4096}, "mkn", 64, 16)
    found = EXACT.analyse(given)
    sizes = {(t.node, t.tensor, t.kind): dict(t.sizes) for t in found.transfers}
    for t in found.traffic:
        for kind in ("reads_drain", "writes_fill"):
            counted = sizes.get((t.node, t.tensor, kind), {})
            assert sum(size * n for size, n in counted.items()) == getattr(t, kind)
    # 15 x 15 tiles of 64 x 64, 2 x 15 of 64 x 40 and one of 40 x 40, each drained in all 64 tiles of k.
    drained = {64 * 64: 225 * 64, 64 * 40: 30 * 64, 40 * 40: 64}
    assert sizes[4, "C", "reads_drain"] == drained
    assert sizes[4, "C", "writes_fill"] == {n: times * 63 // 64 for n, times in drained.items()}
