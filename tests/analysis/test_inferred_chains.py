"""Chains of convolutions whose loops bind the last one: real sizes by hand, small ones by the referee."""

from __future__ import annotations

import pytest

from benchmarks.fused import chain
from polymodel.analysis.enumerate import ENGINE as REFEREE
from polymodel.analysis.exact import ENGINE as exact_engine
from polymodel.analysis.exact import lifetimes
from polymodel.analysis.result import Engine, Problem
from tests.analysis.test_agreement import differences

EXACT: Engine = exact_engine


def _problem(count: int, size: int, channels: int, columns: bool) -> Problem:
    spec = chain(count, size, channels, columns=columns)
    assert spec.mapping is not None
    return Problem(spec.workload, spec.arch, spec.mapping)


@pytest.mark.parametrize("columns", [True, False])
@pytest.mark.parametrize(("count", "size", "channels"), [(2, 6, 2), (3, 6, 1), (4, 5, 1)])
@pytest.mark.thin(3)
def test_small_chains_agree_with_the_referee(
    count: int, size: int, channels: int, columns: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    given = _problem(count, size, channels, columns)
    referee = REFEREE.analyse(given, live=True)
    assert not differences(EXACT.analyse(given, live=True), referee)
    monkeypatch.setattr(lifetimes, "_LISTED", 0)  # products of factors also here
    assert not differences(EXACT.analyse(given, live=True), referee)


@pytest.mark.parametrize("columns", [True, False])
def test_eight_fused_convolutions_of_which_the_last_is_bound(columns: bool) -> None:
    """1.5e10 operations: nothing is made twice, and the first row of pixels needs most rows of every map."""
    found = EXACT.analyse(_problem(8, 224, 64, columns))
    once = 64 * 64 * (3 * 224 - 2) ** 2  # at either border one row and one column of weights meet padding
    assert [c.operations for c in found.compute] == [once] * 8
    dram = {t.tensor: t.reads + t.writes for t in found.traffic if t.component == "DRAM"}
    weights = dict.fromkeys((f"F{i}" for i in range(8)), 64 * 64 * 9)
    assert dram == {"T0": 64 * 224**2, **weights, "T8": 64 * 224**2}
    rows = sum(range(2, 10))  # of T7 two, of T0 nine
    peak = max(w.bits for w in found.working_sets if (w.component, w.measure) == ("Buffer", "tile"))
    assert peak == 8 * 64 * (rows * 224 + (1 if columns else 224))
