"""Closed forms of loops with an initial_tile_shape: symbolic = enumerate, forms = SymPy = numbers."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from random import Random
from typing import cast

import pytest
from hypothesis import event, given, settings

from polymodel.analysis.engine import Problem
from polymodel.analysis.enumerate import ENGINE as REFEREE
from polymodel.analysis.symbolic import ENGINE as SYMBOLIC
from polymodel.errors import NotSeparable, Refused
from polymodel.mapping.looptree import Reuse
from tests.analysis.test_agreement import SETTINGS, differences, drawing
from tests.analysis.test_symbolic import POLICIES
from tests.first_tiles import first_tile_problems
from tests.layers import fused_layers


def run_many(count: int) -> Counter[str]:
    """Compare with the referee; returns how many problems have closed forms."""
    tally: Counter[str] = Counter()

    @settings(max_examples=count, **SETTINGS)
    @given(first_tile_problems(), POLICIES)
    def agree(problem: Problem, reuse: Reuse | None) -> None:
        tally["examples"] += 1
        try:
            ours = SYMBOLIC.analyse(problem, reuse=reuse)
        except NotSeparable as refusal:
            event(f"refused: {refusal.message[-50:]}")
            return
        try:
            referee = REFEREE.analyse(problem, reuse=reuse)
        except Refused:
            return
        tally["closed"] += 1
        found = differences(ours, referee)
        assert not found, "\n".join([*found, f"reuse={reuse}", drawing(problem)])

    cast(Callable[[], None], agree)()
    return tally


def fused_layers_agree(count: int) -> float:
    """Compare `count` random mappings of small layers; the share that has closed forms."""
    pick, closed = Random(11), 0
    for _ in range(count):
        problem = fused_layers(pick, 0.4)
        try:
            ours = SYMBOLIC.analyse(problem)
            referee = REFEREE.analyse(problem)
        except Refused:
            continue
        closed += 1
        found = differences(ours, referee)
        assert not found, "\n".join([*found, drawing(problem)])
    return closed / count


def test_fused_layers_agree_with_the_referee() -> None:
    assert fused_layers_agree(150) > 0.5


@pytest.mark.slow
def test_fused_layers_agree_with_the_referee_at_length() -> None:
    assert fused_layers_agree(20_000) > 0.5


def test_first_tiles_agree_with_the_referee() -> None:
    tally = run_many(300)
    assert tally["closed"] > 0.5 * tally["examples"], tally


@pytest.mark.slow
def test_first_tiles_agree_with_the_referee_at_length() -> None:
    tally = run_many(10_000)
    assert tally["closed"] > 0.5 * tally["examples"], tally
