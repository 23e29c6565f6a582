"""exact = enumerate = symbolic under every reuse policy that takes the place of the nodes' own.

The last tests follow the recipe of docs/develop/recipes.md for a policy that the package does not have.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from itertools import combinations
from typing import cast

import pytest
from hypothesis import given, settings

import polymodel as pm
from polymodel import reuse
from polymodel.analysis.result import Problem
from polymodel.analysis.symbolic.engine import _traffic_of_policy
from polymodel.mapping.looptree import loop_notes
from polymodel.reuse import Reuse
from polymodel.schedule.legality import check
from tests.analysis.test_agreement import SETTINGS, drawing
from tests.analysis.verdicts import under_policies
from tests.fused import fused_problems
from tests.generators import problems
from tests.seeds import seeds


@pytest.mark.parametrize("count", seeds(1, [8, 3000]))
def test_counts_agree_under_every_policy(count: int) -> None:
    tally: Counter[str] = Counter()

    @settings(max_examples=count, **SETTINGS)
    @given(problems() | fused_problems())
    def agree(problem: Problem) -> None:
        found = under_policies(problem, tally)
        assert not found, "\n".join([*found, drawing(problem)])

    cast(Callable[[], None], agree)()
    counted = tally["counted under another policy"]
    assert counted >= 2 * count, tally
    assert tally["exact under another policy"] >= 0.98 * counted, tally
    assert tally["symbolic under another policy"] >= 0.2 * counted, tally


@pytest.mark.parametrize("count", seeds(1, [12, 3000]))
def test_legal_mappings_stay_legal_under_policies_that_keep_more(count: int) -> None:
    """What a report takes for granted of the other policies where each Einsum executes once."""
    tally: Counter[bool] = Counter()

    @settings(max_examples=count, **SETTINGS)
    @given(problems() | fused_problems())
    def stay(problem: Problem) -> None:
        if loop_notes(problem.cascade, problem.tree):
            return
        for less, more in combinations(Reuse, 2):
            assert more.keeps(less)
            assert not less.keeps(more)
            verdict = check(problem, less)
            assert verdict or not check(problem, more), drawing(problem)
            tally[not verdict] += 1

    cast(Callable[[], None], stay)()
    assert tally[True] >= count, tally


@pytest.fixture(scope="module")
def stationary() -> Iterator[Reuse]:
    """A policy more, by its one line: a tile stays while it is the same, and is filled anew when it moves."""
    policy = str.__new__(Reuse, "stationary")
    policy._name_, policy._value_ = "STATIONARY", "stationary"
    Reuse._value2member_map_["stationary"] = policy
    reuse._RULES[policy] = reuse._Rule("inner", "a tile stays while no loop moves it", "the same if so")
    yield policy
    del Reuse._value2member_map_["stationary"], reuse._RULES[policy]


@pytest.mark.slow
@pytest.mark.parametrize("count", seeds(1, [10, 3000]))
def test_engines_count_a_policy_that_is_added(count: int, stationary: Reuse) -> None:
    tally: Counter[str] = Counter()

    @settings(max_examples=count, **SETTINGS)
    @given(problems() | fused_problems())
    def agree(problem: Problem) -> None:
        found = under_policies(problem, tally, (stationary,))
        assert not found, "\n".join([*found, drawing(problem)])

    cast(Callable[[], None], agree)()
    counted = tally["counted under another policy"]
    assert counted >= 0.5 * count, tally
    assert tally["exact under another policy"] >= 0.98 * counted, tally
    assert tally["symbolic under another policy"] >= 0.2 * counted, tally


def test_policies_of_one_problem_are_counted_once_however_often_it_is_printed() -> None:
    spec = pm.load("matmul", "simple_two_level", "matmul/output_stationary", M=96)
    first = pm.evaluate(spec).table("reuse").rows
    counted = _traffic_of_policy.cache_info().misses
    assert pm.evaluate(spec).table("reuse").rows == first
    assert _traffic_of_policy.cache_info().misses == counted
    other = pm.evaluate(pm.load("matmul", "simple_two_level", "matmul/output_stationary", M=97))
    assert other.table("reuse").rows != first
    assert _traffic_of_policy.cache_info().misses == counted + 2
