"""exact = enumerate = symbolic under every reuse policy that takes the place of the nodes' own."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import cast

import pytest
from hypothesis import given, settings

from polymodel.analysis.result import Problem
from tests.analysis.test_agreement import SETTINGS, drawing
from tests.analysis.verdicts import under_policies
from tests.fused import fused_problems
from tests.generators import problems
from tests.seeds import seeds


@pytest.mark.parametrize("count", seeds(1, [30, 3000]))
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
