"""Problems that may be illegal: the gate against the referee, then all engines against each other."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import cast

from hypothesis import assume, given, settings
from hypothesis.strategies import SearchStrategy

from polymodel.analysis.enumerate import ENGINE as REFEREE
from polymodel.analysis.result import Problem
from polymodel.analysis.symbolic import ENGINE as SYMBOLIC
from polymodel.errors import Refused
from polymodel.reuse import Reuse
from polymodel.schedule.legality import faults_of
from tests.analysis.test_agreement import POLICIES, SETTINGS, compare, differences, drawing
from tests.generators import legal


def engines_and_gate_agree(problems: SearchStrategy[Problem], count: int) -> Counter[str]:
    """Compare the engines, and the gate with the referee, on `count` of these problems."""
    tally: Counter[str] = Counter()

    @settings(max_examples=count, **SETTINGS)
    @given(problems, POLICIES)
    def agree(problem: Problem, reuse: Reuse | None) -> None:
        try:
            broken = legal(problem)
        except Refused:
            assume(False)
        assert bool(faults_of(problem)) == (broken is not None), drawing(problem)
        assume(broken is None)
        compare(problem, reuse, tally)
        closed_forms_agree(problem, tally)

    cast(Callable[[], None], agree)()
    return tally


def closed_forms_agree(problem: Problem, tally: Counter[str], reuse: Reuse | None = None) -> None:
    """Assert that the closed forms, where there are any, count what the referee counts."""
    try:
        ours = SYMBOLIC.analyse(problem, reuse=reuse)
        referee = REFEREE.analyse(problem, reuse=reuse)
    except Refused:  # NotSeparable, or the overriding policy makes the mapping illegal
        return
    tally["closed forms"] += 1
    found = differences(ours, referee)
    assert not found, "\n".join([*found, f"reuse={reuse}", drawing(problem)])
