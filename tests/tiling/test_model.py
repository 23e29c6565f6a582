"""Costs of cuts against dense arrays, tile by tile."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from polymodel.errors import SpecError
from polymodel.sparse.tensor import SparseTensor
from polymodel.tiling.cost.model import Launch, costs
from polymodel.tiling.fits.fit import Elements, Fit, Op, Words
from polymodel.tiling.plane.operands import pattern_of
from polymodel.tiling.plane.pattern import Cut, Pattern, Rects, TileCounts, ordered
from polymodel.tiling.tilers.named import NAMES, cut
from tests.faults import faults
from tests.tiling import slow


def random(shape: tuple[int, int], share: float, seed: int) -> slow.Dense:
    return np.random.default_rng(seed).random(shape) < share


def joined(a: slow.Dense, b: slow.Dense) -> Pattern:
    one, two = (SparseTensor.from_dense(n, ("I", "J"), x.astype(int)) for n, x in (("A", a), ("B", b)))
    return pattern_of(one, two)


def cut_of(pattern: Pattern, rects: list[slow.Rect]) -> Cut:
    """The cut with these rectangles, points placed by a dense map of the plane."""
    place = np.full(pattern.shape, -1)
    for number, (r, c, h, w) in enumerate(rects):
        assert (place[r : r + h, c : c + w] == -1).all()
        place[r : r + h, c : c + w] = number
    assert (place >= 0).all()
    return ordered(Rects.of(rects), place[pattern.rows, pattern.cols].astype(np.int32), "by hand")


matrices = st.builds(
    lambda h, w, x, y, seed: (random((h, w), x, seed), random((h, w), y, seed + 1)),
    st.integers(1, 9),
    st.integers(1, 9),
    st.sampled_from([0.0, 0.1, 0.4, 0.9]),
    st.sampled_from([0.0, 0.1, 0.4, 0.9]),
    st.integers(0, 2**16),
)
ops = st.sampled_from(["add", "multiply"])


@given(matrices, ops, st.sampled_from(["nonempty", "all"]), st.integers(2, 12))
@settings(max_examples=60, deadline=None)
def test_costs_are_those_of_dense_tiles(
    given_: tuple[slow.Dense, slow.Dense], op: Op, run: str, capacity: int
) -> None:
    a, b = given_
    pattern = joined(a, b)
    rects = sorted(slow.btree(a, b, ("elements", capacity), op))
    launch = Launch(config_add=100, config_multiply=200, run=run)  # type: ignore[arg-type]  # drawn as a str
    found = costs(pattern, cut_of(pattern, rects), op, Elements(capacity), launch)
    can = [slow.can_run(a, b, rect, op) for rect in rects]
    launched = [True] * len(rects) if run == "all" else can
    spent = [slow.cycles(a, b, r, op) if go else 0 for r, go in zip(rects, launched, strict=True)]
    assert found.runs.tolist() == launched
    assert found.cycles.tolist() == spent
    assert found.estimates.tolist() == [slow.estimate(a, b, r, op) for r in rects]
    assert (found.tiles, found.kernels, found.overflowing) == (len(rects), sum(launched), 0)
    assert found.nonempty == slow.nonempty(a, b, rects)
    assert found.both_nonempty == sum(slow.can_run(a, b, r, "multiply") for r in rects)
    assert found.config_cycles == sum(launched) * (100 if op == "add" else 200)
    assert found.total_cycles == found.config_cycles + sum(spent)
    assert found.estimate == sum(found.estimates)


@given(matrices, ops, st.sampled_from([Elements(6), Words(17)]))
@settings(max_examples=40, deadline=None)
def test_loads_and_overflows_are_those_of_dense_tiles(
    given_: tuple[slow.Dense, slow.Dense], op: Op, fit: Fit
) -> None:
    a, b = given_
    pattern = joined(a, b)
    half = max(a.shape[0] // 2, 1)
    rects = [(0, 0, half, a.shape[1]), (half, 0, a.shape[0] - half, a.shape[1])][: min(a.shape[0], 2)]
    found = costs(pattern, cut_of(pattern, rects), op, fit)
    rule = (fit.unit, fit.capacity)
    expected = [slow.load(a, b, rect, rule, op) for rect in rects]
    assert found.loads.tolist() == expected
    assert found.overflowing == sum(load > fit.capacity for load in expected)


def test_a_tensor_of_more_ranks_counts_entries() -> None:
    """Two entries behind one place are two tokens and one row."""
    index = np.array([0, 0, 1], dtype=np.int32)
    flags = np.ones(3, dtype=np.bool_)
    plane = Pattern("A", "B", ("I", "J"), (2, 2), index, np.array([1, 1, 0]), flags, flags, depth=4, levels=3)
    one = costs(plane, Cut(Rects.whole((2, 2)), np.zeros(3, dtype=np.int32), "whole"), "add", Elements(9))
    assert one.cycles.tolist() == [8 + 3 + 2]
    assert one.loads.tolist() == [6]


def test_counts_are_shared_and_lazy() -> None:
    pattern = joined(random((4, 4), 0.5, 1), random((4, 4), 0.5, 2))
    found = costs(
        pattern, Cut(Rects.whole((4, 4)), np.zeros(pattern.points, np.int32), "w"), "add", Elements(99)
    )
    assert isinstance(found.counts, TileCounts)
    assert "cycles" not in vars(found)
    assert found.launch == Launch()


def test_seconds_follow_the_clock() -> None:
    assert Launch(clock_mhz=500).seconds(1000) == pytest.approx(2e-6)


def test_all_faults_of_a_launch_are_told_at_once() -> None:
    with pytest.raises(SpecError) as caught:
        Launch(config_add=-1, ramp=True, run="some", clock_mhz=0)  # type: ignore[arg-type]  # a wrong word
    assert all(word in str(caught.value) for word in ("config_add -1", "ramp True", "'some'", "clock_mhz 0"))


def test_cycles_of_any_launch_stay_within_64_bits() -> None:
    """The largest constants there may be: sums are those of Python; larger ones are told, not wrapped."""
    a = random((6, 5), 1, 0)
    pattern, most = joined(a, a), 10**9
    launch = Launch(most, most, ramp=most, empty=most, run="all")
    cut = cut_of(pattern, [(row, col, 1, 1) for row in range(6) for col in range(5)])
    found = costs(pattern, cut, "add", Elements(2), launch)
    assert found.run_cycles == 30 * (most + 2)
    assert found.total_cycles == 30 * (2 * most + 2)
    for name in ("config_add", "config_multiply", "ramp", "empty"):
        with faults("not-an-integer", "10", at=""):
            replace(launch, **dict[str, Any]({name: 10**9 + 1}))
    for clock in (10**400, float("inf"), float("nan"), 1e-10):
        with faults("out-of-range", "clock_mhz", at=""):
            Launch(clock_mhz=clock)


@pytest.mark.parametrize("kind", [Elements, Words])
@pytest.mark.parametrize("op", ["add", "multiply"])
def test_memories_without_end(kind: type[Fit], op: Op) -> None:
    """2^62 is one tile for every tiler; more is told by name."""
    pattern = joined(random((4, 5), 0.5, 0), random((4, 5), 0.5, 1))
    assert {cut(pattern, op, kind(2**62), tiler).tiles for tiler in NAMES} == {1}
    with faults("number-too-large", "62", at=""):
        kind(2**62 + 1)
