"""Outputs that stay in instances which do not all take part in every visit, counted by hand."""

from __future__ import annotations

import pytest

from polymodel.analysis.engine import Problem
from polymodel.analysis.enumerate import ENGINE as REFEREE
from polymodel.analysis.exact import ENGINE as EXACT
from polymodel.analysis.exact import listed
from polymodel.errors import Refused
from polymodel.mapping.looptree import StorageNode
from tests.analysis.small import dram, einsum, hierarchy, loop, mac, moved, problem, rule, spread
from tests.analysis.test_agreement import differences


def _spread_unevenly() -> Problem:
    """k = 0, 1, 2 go to instances 0, 1, 2, then k = 3, 4 to instances 0, 1; all keep their sums of C."""
    e0 = einsum("E0", "A[m,k]", "C[m]", sizes={"m": 2, "k": 5})
    return problem(
        e0,
        dram("A", "C"),
        loop("k", 3),
        spread("k", 1),
        StorageNode("RF", ("A", "C"), "keep_previous"),
        mac(),
        hardware=hierarchy(may_reuse=rule("E0", "C")),
    )


def test_an_instance_that_falls_idle_drains_early_and_the_others_together() -> None:
    """Instance 2 drains 2 elements after the first visit; 0 and 1 drain theirs as one at the end."""
    given = _spread_unevenly()
    ours, referee = EXACT.analyse(given, live=True), REFEREE.analyse(given, live=True)
    assert moved(ours, "DRAM", "C") == (0, 0, 0, 4)
    # 10 operations; the first on each of the 6 sums finds nothing to read.
    assert moved(ours, "RF", "C") == (4, 6, 0, 10)
    assert not differences(ours, referee)


def test_a_producer_above_the_limit_is_refused_by_name(monkeypatch: pytest.MonkeyPatch) -> None:
    given = _spread_unevenly()
    monkeypatch.setattr(listed, "LIMIT", 9)
    with pytest.raises(Refused, match="partial sums of C are spread over a fanout unevenly") as refusal:
        EXACT.analyse(given)
    assert "reuse: refill" in str(refusal.value)
    assert EXACT.analyse(given, reuse="refill").traffic == REFEREE.analyse(given, reuse="refill").traffic
