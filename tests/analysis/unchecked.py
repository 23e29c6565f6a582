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
from polymodel.errors import NotSeparable, Refused
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
        try:
            ours = SYMBOLIC.analyse(problem)
        except NotSeparable:
            return
        tally["closed forms"] += 1
        found = differences(ours, REFEREE.analyse(problem))
        assert not found, "\n".join([*found, drawing(problem)])

    cast(Callable[[], None], agree)()
    return tally
