"""The retained window as a set: what a node keeps from the visit before, against the referee."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import cast

import pytest
from hypothesis import assume, given, settings

from polymodel.analysis.enumerate.buffets import build_buffets
from polymodel.analysis.enumerate.execute import walk_all
from polymodel.analysis.enumerate.legality import phases_of
from polymodel.analysis.result import Problem
from polymodel.errors import Refused
from polymodel.schedule.relations import retained_window
from tests.analysis.test_agreement import SETTINGS, drawing
from tests.fused import fused_problems
from tests.generators import problems


def compare(problem: Problem, tally: Counter[str]) -> None:
    walks = walk_all(problem)
    buffets, _ = build_buffets(problem, walks, phases_of(walks), None)
    for buffet in buffets.values():
        if buffet.writer is not None and buffet.parent is not None:
            continue
        names = [f"c{i}" for i in range(buffet.n_time + buffet.n_place)]
        loops = [i for i, _ in problem.tree.loops(buffet.users[0]) if i < buffet.node]
        place = buffet.node, buffet.tensor
        kept = (len(x) for places in buffet.carried.values() for x in places.values())
        found = retained_window(
            problem.cascade, problem.tree, place, buffet.users, buffet.policy, names[: len(loops)]
        )
        largest = max(kept, default=0)
        assert (found[1] if found else 0) == largest, f"{place} {found} {largest}\n{drawing(problem)}"
        tally["kept" if largest else "nothing"] += 1


@pytest.mark.slow
def test_retained_windows_agree() -> None:
    tally: Counter[str] = Counter()

    @settings(max_examples=80, **SETTINGS)
    @given(problems() | fused_problems())
    def agree(problem: Problem) -> None:
        assume(not any(e.is_copy for e in problem.cascade))
        try:
            compare(problem, tally)
        except Refused:
            tally["refused"] += 1

    cast(Callable[[], None], agree)()
    assert tally["kept"] > 5, tally
    assert tally["refused"] < 10, tally
