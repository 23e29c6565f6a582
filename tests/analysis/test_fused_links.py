"""Fused chains with inferred Einsums: hops, refills and whole actions, exact = enumerate."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import cast

import pytest
from hypothesis import given, settings

import polymodel as pm
from tests.analysis import test_links, test_rounding
from tests.fused import fused_problems
from tests.seeds import seeds


@pytest.mark.slow
@pytest.mark.parametrize("count", seeds(1, [10, 80]))
@pytest.mark.parametrize(
    ("strategy", "compare"),
    [
        (test_links.linked_problems, test_links.compare),
        (test_rounding.rounding_problems, test_rounding.compare),
    ],
    ids=["links", "rounding"],
)
def test_fused_chains_agree_in_detail(
    strategy: Callable[..., object], compare: Callable[..., None], count: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    for module in (test_links, test_rounding):
        monkeypatch.setattr(module, "problems", fused_problems)
    tally: Counter[str] = Counter()

    @settings(max_examples=count, **test_links.SETTINGS)
    @given(strategy())
    def agree(problem: pm.Problem) -> None:
        compare(problem, None, tally)

    cast(Callable[[], None], agree)()
    assert tally["examples"] >= 0.75 * count, tally
    assert tally["refused"] <= 0.15 * tally["examples"], tally
