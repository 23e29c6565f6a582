"""Tiler-Swift as built against dense arrays, and the published figures."""

from __future__ import annotations

import math
from dataclasses import replace
from functools import cache

import numpy as np
import pytest
from hypothesis import given, settings

from polymodel.tiling.cost.model import Launch
from polymodel.tiling.fits.fit import Elements, Op, Words
from polymodel.tiling.plane.operands import pattern_of
from polymodel.tiling.plane.pattern import Pattern
from polymodel.tiling.swift import compat
from polymodel.tiling.swift.compat import PublishedComparison, as_built, tiler_swift_comparison
from tests.faults import faults
from tests.tiling import slow
from tests.tiling.original import exact
from tests.tiling.test_model import joined, matrices, ops, random


@cache
def seeds() -> tuple[Pattern, ...]:
    """Four of the six matrices of the original's evaluation; `make reference` has all."""
    return tuple(map(pattern_of, exact()))


@cache
def comparison() -> PublishedComparison:
    return tiler_swift_comparison(seeds())


def simulated(a: slow.Dense, b: slow.Dense, rects: list[slow.Rect], op: str) -> int:
    """Cycles of tiles extracted as X[c:c+w, r:r+h]."""
    return sum(slow.cycles(a, b, (c, r, w, h), op) for r, c, h, w in rects)


@given(matrices, ops)
@settings(max_examples=40, deadline=None)
def test_tiles_are_simulated_transposed(two: tuple[slow.Dense, slow.Dense], op: Op) -> None:
    a, b = two
    for tiler, rects in (
        ("simple", slow.simple(a, b, ("elements", 7), "add")),
        ("qtree", slow.qtree(a, b, ("elements", 7), op)),
        ("btree", slow.btree(a, b, ("elements", 7), op)),
    ):
        found = as_built(joined(a, b), op, Elements(7), tiler)
        assert found.cut.rects.table().tolist() == sorted(list(r) for r in rects)
        assert found.run_cycles == simulated(a, b, rects, op)
        assert found.kernels == found.tiles == len(rects)
        assert found.estimate == sum(slow.estimate(a, b, r, op) for r in rects)
        assert found.cut.tiler == f"tiler-swift {tiler}"


def test_merges_are_not_checked() -> None:
    a = np.ones((4, 4), dtype=np.bool_)
    found = as_built(joined(a, a), "add", Elements(8))
    # Quarters of 2 x 2 hold 8 of 8 elements; both pairs become one tile of 16.
    assert found.cut.rects.table().tolist() == [[0, 0, 2, 4], [2, 0, 2, 4]]
    assert found.loads.tolist() == [16, 16]
    assert found.overflowing == 2
    # Simulated: rows 0-3 of columns 0-1, rows 0-3 of columns 2-3.
    assert found.cycles.tolist() == [8 + 8 + 4] * 2


def test_simple_takes_the_check_of_additions() -> None:
    a = np.ones((4, 4), dtype=np.bool_)
    assert as_built(joined(a, a), "multiply", Elements(16), "simple").tiles == 4
    assert slow.simple(a, a, ("elements", 16), "multiply") == [(0, 0, 4, 4)]


def test_entries_of_more_ranks_are_simulated_too() -> None:
    """Two entries behind the place (1, 0), which the tile of column 1 is given."""
    at = np.array([1, 1], dtype=np.int32)
    flags, inner = np.ones(2, dtype=np.bool_), np.array([1, 0], dtype=np.int32)
    plane = Pattern("A", "A", ("I", "J"), (2, 2), at, at * 0, flags, flags, 4, 3, inner, inner)
    found = as_built(plane, "add", Words(20), "btree", Launch(run="nonempty"))
    assert (found.tiles, found.run_cycles, found.launch.run) == (1, 8 + 3, "all")
    assert found.counts.inner_a.tolist() == [1]


def test_unknown_tilers_and_no_matrix_are_errors() -> None:
    with faults("unknown-choice", "strips", at=""):
        as_built(seeds()[3], "add", Elements(128), "strips")
    with faults("missing-argument", at="patterns"):
        tiler_swift_comparison([])


def test_published_bars() -> None:
    """Of four matrices; the claims are means over six."""
    bars = comparison().bars
    assert len(bars) == 24
    run = [b.deviation for b in bars if b.deviation is not None]
    assert len(run) == 22
    assert sum(abs(d) <= 0.025 for d in run) == 17
    assert max(abs(d) for d in run) < 0.06
    for bar in bars:
        if bar.published_config is not None:
            assert bar.as_built_config == pytest.approx(bar.published_config, rel=0.02)


def test_the_published_qtree_merges() -> None:
    """Without merging, configuration and run time are far from the bars called qtree."""
    off = []
    for pattern in seeds():
        read = compat.reading(compat.RUN_CYCLES, pattern.name, "add", "qtree+merge")
        if read is not None:
            off.append(abs(as_built(pattern, "add", Elements(128), "qtree").run_cycles / read - 1))
    assert sorted(off)[1] > 0.3


def test_other_matrices_have_no_published_bars() -> None:
    pattern = replace(joined(random((20, 30), 0.3, 1), random((20, 30), 0.3, 2)), name="mine")
    found = tiler_swift_comparison([pattern], capacity=40)
    assert all(
        b.published_run is None and b.published_config is None and b.deviation is None for b in found.bars
    )
    assert all(b.as_built_config and b.corrected_config_nonempty for b in found.bars)


def test_operands_that_never_meet_in_small_tiles() -> None:
    """No kernel of `simple` runs a multiplication: it is infinitely faster, and that is said so."""
    a, b = np.zeros((4, 4), dtype=np.bool_), np.zeros((4, 4), dtype=np.bool_)
    a[:, 0], b[:, 3] = True, True
    means = [m for m in tiler_swift_comparison([joined(a, b)], capacity=2).means if m.op == "multiply"]
    assert [m.corrected_speed_up_nonempty for m in means] == [0, 0]
    assert [m.corrected_reduction_nonempty for m in means] == [-math.inf, -math.inf]
    none = tiler_swift_comparison([joined(a, a * False)], capacity=2).means[-1]
    assert (none.corrected_speed_up_nonempty, none.corrected_reduction_nonempty) == (1, 0)
