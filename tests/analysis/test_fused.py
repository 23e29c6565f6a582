"""Fused chains whose shared loops bind only some Einsums: legality and counts, exact = enumerate."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from typing import cast

import pytest
from hypothesis import given, settings

from polymodel.analysis.enumerate import ENGINE as REFEREE
from polymodel.analysis.enumerate import violation
from polymodel.analysis.exact import ENGINE as EXACT
from polymodel.analysis.result import Problem
from polymodel.errors import Refused
from polymodel.mapping.looptree import ties
from polymodel.schedule.legality import check
from tests.analysis.test_agreement import SETTINGS, differences, drawing
from tests.fused import lawless_fused


def compare(problem: Problem, tally: Counter[str]) -> None:
    """The same verdict on the dependences and, if they are kept, the same counts."""
    try:
        broken = violation(problem)
    except Refused:
        tally["outside both"] += 1
        with suppress(Refused):
            assert check(problem), drawing(problem)
        return
    faults = check(problem)
    assert bool(broken) == bool(faults), f"referee: {broken}; check: {faults}\n{drawing(problem)}"
    tally["broken" if broken else "kept"] += 1
    if broken:
        return
    kinds = {t for e in problem.tree.einsums for t in ties(problem.cascade, problem.tree, e).values()}
    tally.update(kinds)
    try:
        referee = REFEREE.analyse(problem, live=True)
    except Refused:
        tally["outside both"] += 1
        with pytest.raises(Refused):
            EXACT.analyse(problem, live=True)
        return
    try:
        ours = EXACT.analyse(problem, live=True)
    except Refused:
        tally["refused"] += 1
        return
    found = differences(ours, referee)
    assert not found, "\n".join([*found, drawing(problem)])


def run_many(count: int) -> Counter[str]:
    tally: Counter[str] = Counter()

    @settings(max_examples=count, **SETTINGS)
    @given(lawless_fused())
    def agree(problem: Problem) -> None:
        compare(problem, tally)

    cast(Callable[[], None], agree)()
    return tally


def test_fused_chains_agree() -> None:
    tally = run_many(40)
    assert tally["inferred"] > 3, tally
    assert tally["broken"] > 0, tally
    assert tally["refused"] < 0.1 * tally["kept"], tally


@pytest.mark.slow
def test_fused_chains_agree_at_length() -> None:
    tally = run_many(10_000)
    assert tally["inferred"] > 2_000, tally
    assert tally["repeated"] > 50, tally
    assert tally["refused"] < 0.03 * tally["kept"], tally
