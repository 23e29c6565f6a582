"""What a memory holds phase by phase: exact against the referee, operation by operation."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from typing import Any, cast

import pytest
from hypothesis import given, settings

from polymodel.analysis.enumerate.buffets import build_buffets
from polymodel.analysis.enumerate.engine import first_accesses, in_tree_order
from polymodel.analysis.enumerate.execute import walk_all
from polymodel.analysis.enumerate.legality import phases_of
from polymodel.analysis.enumerate.occupancy import PhaseOrder as Phases
from polymodel.analysis.enumerate.occupancy import occupied_bits
from polymodel.analysis.exact import timeline as exact_timeline
from polymodel.analysis.exact.timeline import timeline
from polymodel.analysis.result import Problem
from polymodel.analysis.timeline import Measure, Timeline
from polymodel.errors import Refused
from polymodel.mapping.looptree import Loop, Split
from tests.analysis.small import dram, einsum, loop, mac, problem
from tests.analysis.test_agreement import SETTINGS, drawing
from tests.fused import fused_problems
from tests.generators import problems

Row = tuple[str, tuple[tuple[int, int], ...]]  # Einsum, (loop, counter)...


def referee(problem: Problem, component: str, measure: str) -> list[tuple[Row, dict[Any, dict[Any, int]]]]:
    """Per phase of the timeline: by instance, bits per buffet where an operation time in it has most."""
    walks = walk_all(problem)
    by_key, _ = build_buffets(problem, walks, phases_of(walks), None)
    executing = {o.time: name for name, w in walks.items() for o in w.operations}
    times = tuple(sorted(executing))
    phases = Phases(times, tuple(executing[t] for t in times))
    firsts = first_accesses(problem.cascade)
    bits = {
        b.key: occupied_bits(problem, b, firsts[b.tensor], phases, measure)
        for b in in_tree_order(problem.tree, list(by_key.values()))
        if b.component == component
    }
    instances = {i for part in bits.values() for i in part}
    found: list[tuple[Row, dict[Any, dict[Any, int]]]] = []
    for number, (time, name) in enumerate(zip(times, phases.einsums, strict=True)):
        row = (name, counters(problem, name, time))
        if not found or found[-1][0] != row:
            found.append((row, {}))
        for i in instances:
            here = {key: part[i][number] for key, part in bits.items() if i in part}
            best = found[-1][1].get(i)
            if best is None or sum(here.values()) > sum(best.values()):
                found[-1][1][i] = here
    return found


def counters(problem: Problem, name: str, time: tuple[int, ...]) -> tuple[tuple[int, int], ...]:
    """(loop, counter) of the temporal loops on the path."""
    values, found = iter(time), []
    for step in problem.tree.path(name):
        if isinstance(step.node, Split):
            next(values)
        elif isinstance(step.node, Loop) and not step.node.spatial:
            found.append((step.id, next(values)))
    return tuple(found)


def rows_of(found: Timeline) -> list[Row]:
    rows = []
    for number, stamp in zip(found.einsum, found.stamps, strict=True):
        mine = tuple((i, int(c)) for i, c in zip(found.loops, stamp, strict=True) if c >= 0)
        rows.append((found.einsums[number], mine))
    return rows


def compare(problem: Problem, tally: Counter[str]) -> None:
    text = drawing(problem)
    measures: tuple[Measure, ...] = ("tile", "live")
    for component in problem.hierarchy.components:
        for measure in measures if component.kind == "memory" else ():
            ours = timeline(problem, component.name, measure)
            theirs = referee(problem, component.name, measure)
            if not ours.buffets:
                assert not any(any(h.values()) for _, at in theirs for h in at.values())
                continue
            where = f"{component.name} {measure}\n{text}"
            assert rows_of(ours) == [row for row, _ in theirs], where
            totals = {
                i: [sum(at.get(i, {}).values()) for _, at in theirs]
                for i in {i for _, at in theirs for i in at}
            }
            assert int(ours.total.max()) == max(max(t) for t in totals.values()), where
            instance = next(i for i in totals if tuple((f"{c}.{d}", k) for c, d, k in i) == ours.instance)
            assert ours.total.tolist() == totals[instance], where
            if measure == "tile":
                tally["joined"] += joined(problem, component.name, ours)
                for k, key in enumerate(ours.buffets):
                    assert ours.bits[:, k].tolist() == [at[instance].get(key, 0) for _, at in theirs], where
            tally[measure] += 1
            tally["varying"] += len(set(ours.total.tolist())) > 1


def joined(problem: Problem, component: str, fine: Timeline) -> bool:
    """With fewer phases each is the largest of those that it stands for."""
    try:
        coarse = timeline(problem, component, fine.measure, len(fine.total) - 1)
    except Refused:
        return False
    assert coarse.notes
    assert len(coarse.total) < len(fine.total)
    assert coarse.total.max() == fine.total.max()
    if coarse.instance != fine.instance:
        return False
    kept: dict[Row, list[int]] = {row: [] for row in rows_of(coarse)}
    for (name, counters_), total in zip(rows_of(fine), fine.total.tolist(), strict=True):
        (mine,) = (r for r in kept if r[0] == name and set(r[1]) <= set(counters_))
        kept[mine].append(total)
    assert coarse.total.tolist() == [max(totals) for totals in kept.values()]
    return True


def compare_products(problem: Problem, tally: Counter[str]) -> None:
    """Elements by products of factors: in memories of one instance, and with inner loops joined."""
    for component in problem.hierarchy.components:
        if component.kind != "memory":
            continue
        try:
            ours = timeline(problem, component.name, "live")
        except Refused:
            tally["refused"] += 1
            continue
        theirs = referee(problem, component.name, "live")
        where = f"{component.name}\n{drawing(problem)}"
        if ours.buffets:
            totals = (
                [sum(at.get(ours.instance, {}).values()) for _, at in theirs] if not ours.instance else []
            )
            assert not totals or ours.total.tolist() == totals, where
            tally["live"] += bool(totals)
            tally["varying"] += len(set(totals)) > 1
            tally["joined"] += joined(problem, component.name, ours)


def only_products(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing is listed operation by operation."""

    def refuse(*_: object) -> Timeline:
        raise Refused("not listed here")

    monkeypatch.setattr(exact_timeline, "LISTED", 0)
    monkeypatch.setattr(exact_timeline, "_listed", refuse)


def run_many(
    strategy: Any, count: int, check: Callable[[Problem, Counter[str]], None] = compare
) -> Counter[str]:
    tally: Counter[str] = Counter()

    @settings(max_examples=count, **SETTINGS)
    @given(strategy)
    def agree(problem: Problem) -> None:
        with suppress(Refused):
            check(problem, tally)

    cast(Callable[[], None], agree)()
    return tally


@pytest.mark.thin(99)
@pytest.mark.parametrize("strategy", [problems(), fused_problems()], ids=["plain", "fused"])
def test_timelines_agree_with_the_referee(strategy: Any) -> None:
    tally = run_many(strategy, 15)
    assert min(tally["tile"], tally["live"]) > 10, tally
    assert tally["varying"] > 2, tally
    assert tally["joined"] > 0, tally


@pytest.mark.thin(99)
@pytest.mark.parametrize("strategy", [problems(), fused_problems()], ids=["plain", "fused"])
def test_lives_by_products_agree(strategy: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    only_products(monkeypatch)
    tally = run_many(strategy, 15, compare_products)
    assert tally["live"] > 7, tally
    assert min(tally["varying"], tally["joined"]) > 0, tally


@pytest.mark.slow
@pytest.mark.parametrize("strategy", [problems(), fused_problems()], ids=["plain", "fused"])
def test_lives_by_products_agree_at_length(strategy: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    only_products(monkeypatch)
    tally = run_many(strategy, 1_000, compare_products)
    assert tally["live"] > 400, tally


@pytest.mark.slow
@pytest.mark.parametrize("strategy", [problems(), fused_problems()], ids=["plain", "fused"])
def test_timelines_agree_with_the_referee_at_length(strategy: Any) -> None:
    tally = run_many(strategy, 1_000)
    assert min(tally["tile"], tally["live"]) > 400, tally


def test_large_persistent_tensors_add_up() -> None:
    """W has 2**34 elements of 8 bits, in every phase; its two ranks are independent of each other."""
    e = einsum("E0", "A[m,k]", "W[k,n]", "Z[m,n]", sizes={"m": 4, "k": 2**17, "n": 2**17}, W=True)
    found = timeline(problem(e, dram("A", "W", "Z"), loop("m", 1), mac()), "DRAM")
    sizes = dict(zip((t for _, t in found.buffets), found.bits.T.tolist(), strict=True))
    assert sizes["W"] == [2**34 * 8] * 4
    assert sizes["A"] == sizes["Z"] == [2**19 * 8] * 4
