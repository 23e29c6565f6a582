"""Closed forms of `keep_previous` where the tile after the wrap of an inner loop meets the one before."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from typing import cast

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from polymodel.analysis.enumerate import ENGINE as REFEREE
from polymodel.analysis.result import Problem
from polymodel.analysis.symbolic import ENGINE as SYMBOLIC
from polymodel.analysis.symbolic import closed_counts
from polymodel.errors import NotSeparable, Refused
from polymodel.mapping.looptree import StorageNode
from tests.analysis.small import dram, einsum, loop, mac, moved, problem, spread
from tests.analysis.test_agreement import SETTINGS, differences, drawing
from tests.analysis.test_symbolic import named
from tests.seeds import seeds
from tests.wraps import wrapping_problems

KEPT = StorageNode("GLB", ("I",), "keep_previous")


def run_many(problems: st.SearchStrategy[Problem], count: int) -> Counter[str]:
    """Compare with the referee; how many problems have closed forms, and why others have none."""
    tally: Counter[str] = Counter()

    @settings(max_examples=count, **SETTINGS)
    @given(problems)
    def agree(problem: Problem) -> None:
        tally["examples"] += 1
        try:
            ours = SYMBOLIC.analyse(problem)
        except NotSeparable as refusal:
            tally[refusal.message] += 1
            return
        tally["closed"] += 1
        try:
            referee = REFEREE.analyse(problem)
        except Refused:
            return
        found = differences(ours, referee)
        assert not found, "\n".join([*found, drawing(problem)])

    cast(Callable[[], None], agree)()
    return tally


def test_windows_kept_over_wraps_agree_with_the_referee() -> None:
    """Loops in time: every mapping of a box has closed forms."""
    tally = run_many(wrapping_problems(), 60)
    assert tally["closed"] == tally["examples"], tally


@pytest.mark.slow
def test_windows_kept_over_wraps_agree_with_the_referee_at_length() -> None:
    tally = run_many(wrapping_problems(), 5_000)
    assert tally["closed"] == tally["examples"], tally


@pytest.mark.slow
@pytest.mark.parametrize("count", seeds(1, [40, 150]))
def test_instances_that_keep_windows_agree_with_the_referee(count: int) -> None:
    tally = run_many(wrapping_problems(spatial=4), count)
    assert tally["closed"] > 0.7 * tally["examples"], tally


@pytest.mark.slow
def test_buffets_that_stay_while_others_run_agree_with_the_referee() -> None:
    """Whether they stay may depend on the iteration: on trips of inner loops, on how close windows are."""
    tally = run_many(wrapping_problems(fused=True), 36)
    assert tally["closed"] > 0.97 * tally["examples"], tally
    assert not any("may stay" in reason for reason in tally), tally


@pytest.mark.slow
def test_buffets_that_stay_while_others_run_agree_with_the_referee_at_length() -> None:
    tally = run_many(wrapping_problems(fused=True), 5_000)
    assert not any("may stay" in reason for reason in tally), tally


@settings(max_examples=40, **SETTINGS)
@given(wrapping_problems(fused=True))
def test_tiles_in_symbols_give_the_numbers_where_others_run(problem: Problem) -> None:
    try:
        plain = SYMBOLIC.analyse(problem)
        tree, values = named(problem.tree)
        open_ = closed_counts(replace(problem, tree=tree))
    except NotSeparable:
        return
    assert not differences(open_.at(values), plain)


@settings(max_examples=60, **SETTINGS)
@given(wrapping_problems(spatial=2))
def test_forms_in_symbols_give_the_numbers(problem: Problem) -> None:
    """Symbols for all tiles and extents: the forms at their values are the engine's numbers."""
    try:
        plain = SYMBOLIC.analyse(problem)
        tree, values = named(problem.tree)
        one = problem.cascade.einsums[0]
        ranks = {v: f"X_{v}" for v in one.rank_variables}
        open_ = closed_counts(replace(problem, tree=tree), ranks=ranks)
    except NotSeparable:
        return
    values |= {
        f"X_{v}": high - low + 1 for v, (low, high) in zip(one.rank_variables, one.bounds, strict=True)
    }
    assert not differences(open_.at(values), plain)


def _convolution(rows: int, window: int, *tiles: int) -> Problem:
    """I[p + r] in a buffer below a loop over rows and, inside it, one over the window."""
    one = einsum("E0", "I[p+r]", "F[r]", "O[p]", sizes={"p": rows, "r": window})
    return problem(one, dram("I", "F", "O"), loop("p", tiles[0]), loop("r", tiles[1]), KEPT, mac())


@pytest.mark.parametrize(("tile", "fresh"), [(4, 6 + 3 + 1 + 3), (3, 5 + 3 + 0 + 3), (5, 7 + 3 + 2 + 3)])
def test_what_stays_over_a_wrap(tile: int, fresh: int) -> None:
    """Two tiles of p, and two of r of 3 values each: windows from 0, 3, then (the wrap) `tile`, `tile + 3`.

    Each has tile + 2 elements, so of the third one those from tile + 5 on are new.
    """
    given = _convolution(2 * tile, 6, tile, 3)
    assert moved(SYMBOLIC.analyse(given), "GLB", "I")[2] == fresh
    assert not differences(SYMBOLIC.analyse(given), REFEREE.analyse(given))


def test_the_last_tile_of_an_empty_one_is_empty() -> None:
    """k is split evenly: the partial tile at its end, which is empty, has no instances that could keep A."""
    sizes = {"m": 2, "n": 3, "k": 8}
    one = einsum("E0", "A[m]", "B[n,k]", "O[m]", sizes=sizes)
    loops = loop("k", 4), loop("n", 1), loop("k", 2), spread("k", 1)
    given = problem(one, dram("A", "B", "O"), *loops, StorageNode("RF", ("A",), "keep_previous"), mac())
    assert not differences(SYMBOLIC.analyse(given), REFEREE.analyse(given))
