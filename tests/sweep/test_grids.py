"""The sweep's figures at random points of large grids are those of the exact engine at the same point."""

from __future__ import annotations

import random
from collections.abc import Iterator
from typing import Any
from unittest.mock import patch

import numpy as np
import pytest

import polymodel as pm
from benchmarks.bench import grids
from benchmarks.fused import SWEPT, front
from benchmarks.tied import spaces
from polymodel.analysis.exact import engine
from polymodel.cost.costs import CostFigures
from polymodel.sweeps.grid import make_grid, roles
from polymodel.sweeps.metrics import Block, need
from polymodel.sweeps.scenario import Scenario, scenario

BENCH, SPACES = grids(), spaces()
Figures = dict[str, Any]


def compiled(spec: pm.Spec, symbols: Any) -> tuple[Any, Scenario]:
    grid = make_grid(spec, symbols, ())
    return grid, scenario(spec, grid, roles(spec, grid), 0, "", 0, {})


def swept(
    grid: Any, block: Scenario, count: int, seed: int, peaks: bool
) -> Iterator[tuple[dict[str, Any], Figures]]:
    """Random points with legal tiles, and the kernel's figures there: each as [left, right] in its blocks."""
    kernel, pick = block.kernel, np.random.default_rng(seed)
    for _ in range(-(-count // 8)):
        digits = tuple(pick.integers(0, n, 4) for n in kernel.left_shape)
        columns = pick.choice(kernel.width, 4)
        ids = kernel.left_ids(digits, 4)
        for variant in block.variants:
            every = slice(0, kernel.width)
            placed = kernel.placed(digits, every)
            left = kernel.left(digits, 4)
            rows = Block(kernel.rows, left, slice(0, 4), every, None, placed, block.tables)
            found = variant.evaluator(rows)
            limits = variant.costing.limits
            figures: Figures = {
                "energy": found.energy,
                "latency": found.latency,
                **{f"need:{x.name}": need(x.phases, rows) for x in limits if peaks},
                **{f"fits:{x.name}": f for x, f in zip(limits, found.fits, strict=True)},
                **{f"{way}:{c}": rows.linear(linear) for c, way, linear in variant.costing.accesses},
            }
            for i, j in ((0, 0), (1, 1), (2, 2), (3, 3), (0, 1), (1, 2), (2, 3), (3, 0)):
                number = int(ids[i] + kernel.right_ids[columns[j]]) + variant.share
                place = i, columns[j]
                shape = 4, kernel.width
                yield (
                    grid.point(number),
                    {n: np.broadcast_to(v, shape)[place] for n, v in figures.items()},
                )


def exactly(spec: pm.Spec, peaks: bool) -> tuple[pm.Report, bool]:
    """The exact engine's report, and whether it has the working sets: without `peaks` those of a point that
    the engine refuses are left out, and all else is counted."""
    try:
        return pm.evaluate(spec, engine="exact"), True
    except pm.Refused:
        if peaks:
            raise
    with patch.object(engine, "_working_sets", return_value=()):
        return pm.evaluate(spec, engine="exact"), False


def check(spec: pm.Spec, symbols: Any, count: int, seed: int = 1, peaks: bool = True) -> set[str]:
    """Compare, without `peaks` all but working sets; gives the names of the figures that were."""
    grid, block = compiled(spec, symbols)
    compared: set[str] = set()
    misfits = 0
    for point, figures in swept(grid, block, count, seed, peaks):
        bound = {n: v for n, v in point.items() if n in spec.symbols}
        fanouts = [n for n in figures if n.startswith("fits:") and "." in n]
        if not all(figures[n] for n in fanouts):
            with pytest.raises(pm.SpecError):
                spec.bind(**bound)
            continue
        report, whole = exactly(spec.bind(**bound), peaks)
        assert figures["energy"] == pytest.approx(report.costs.total_energy, rel=1e-12), point
        assert figures["latency"] == pytest.approx(report.costs.total_latency, rel=1e-12), point
        bits = CostFigures(report.counts, report.costs).moved_bits
        counted = {f"{way}:{component}": n for (component, way), n in bits.items()}
        moved = {n: v for n, v in figures.items() if n.startswith(("reads:", "writes:"))}
        assert {n: int(v) for n, v in moved.items()} == {n: v for n, v in counted.items() if v or n in moved}
        needed: dict[str, int] = {}
        for n in report.costs.needs if peaks else ():
            if n.counts:
                needed[n.component] = max(needed.get(n.component, 0), n.bits)
        for component, bits in needed.items():
            assert int(figures[f"need:{component}"]) == bits, (component, point)
            fits = bits <= report.problem.hierarchy[component].size_bits
            assert bool(figures[f"fits:{component}"]) == fits
            misfits += not fits
        if whole:
            assert all(figures[n] for n in figures if n.startswith("fits:")) == (not report.costs.violations)
        compared |= figures.keys()
    return compared


NAMES = list(BENCH)


@pytest.mark.slow
@pytest.mark.parametrize("name", NAMES)
def test_some_points_of_the_benchmark_grids_equal_the_exact_engine(name: str) -> None:
    compared = check(*BENCH[name], 16)
    assert {"energy", "latency", "need:DRAM", "reads:DRAM", "writes:DRAM"} <= compared


@pytest.mark.slow
@pytest.mark.parametrize("name", NAMES)
def test_a_thousand_points_of_the_benchmark_grids_equal_the_exact_engine(name: str) -> None:
    check(*BENCH[name], 1000, seed=random.Random(name).randrange(2**30))


@pytest.mark.slow
@pytest.mark.parametrize("name", list(SPACES))
def test_a_thousand_points_of_spaces_that_are_no_boxes_equal_the_exact_engine(name: str) -> None:
    """Of FlashAttention without its working sets, whose closed form leaves out some uneven tiles."""
    compared = check(
        *SPACES[name], 1000, seed=random.Random(name).randrange(2**30), peaks="Flash" not in name
    )
    assert {"energy", "latency", "reads:DRAM", "writes:DRAM"} <= compared


@pytest.mark.slow
@pytest.mark.parametrize("allocation", ["tile", "live"])
@pytest.mark.parametrize("retained", [True, False])
def test_a_thousand_points_of_the_front_of_vgg_equal_exact_ones(retained: bool, allocation: str) -> None:
    """Of each of the four, of maps of 224 x 224: tips, and tiles of the channels of three layers."""
    spec, tiles = front(224, 64, retained=retained, allocation=allocation)
    tiles |= {n: sizes[-1:] for n, sizes in tiles.items() if n[:4] != "TIP_" and n[5:] not in SWEPT}
    compared = check(spec, tiles, 1000, seed=int(retained))
    assert {"energy", "latency", "need:FeatureBuffer", "reads:DRAM", "writes:DRAM"} <= compared
