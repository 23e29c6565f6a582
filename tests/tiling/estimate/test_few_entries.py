"""Estimates of tiles of few entries, in memories of few words and beside a sparser operand: where averages of
rows and of what the second operand holds do not do, drawn data stand for the formulas."""

from __future__ import annotations

import numpy as np
import pytest

from polymodel.sparse.density import Uniform
from polymodel.tiling.cost.model import Launch, costs
from polymodel.tiling.estimate import Estimate, estimate
from polymodel.tiling.fits.fit import Elements, Fit, Op, Words
from polymodel.tiling.plane.operands import Rolled, pattern_of
from polymodel.tiling.tilers.named import cut
from tests.faults import refused
from tests.seeds import seeds

RANKS = ("I", "J")


def _off(
    model: Uniform, second: Uniform | Rolled, op: Op, fit: Fit, tiler: str, launch: Launch | None = None
) -> tuple[list[str], Estimate]:
    """What is further than 5 % and 3 standard errors from the mean of 10 tilings, and the estimate."""
    found, table = estimate(model, op, fit, tiler, second, launch), []
    for seed in range(10):
        b = second.draw(9000 + seed) if isinstance(second, Uniform) else second
        pattern = pattern_of(model.draw(7000 + seed), b)
        made = costs(pattern, cut(pattern, op, fit, tiler), op, fit, launch)
        table.append((made.tiles, made.kernels, made.config_cycles, made.run_cycles))
    mean, error = np.mean(table, axis=0), np.std(table, axis=0, ddof=1) / len(table) ** 0.5
    told = (found.tiles, found.kernels, found.config_cycles, found.run_cycles)
    names = ("tiles", "kernels", "config", "run")
    wrong = [
        f"{n}: {t:.1f} for {m:.1f}"
        for n, t, m, e in zip(names, told, mean, error, strict=True)
        if abs(t - m) > 0.05 * m + 3 * e
    ]
    return wrong, found


@pytest.mark.slow
@pytest.mark.thin(9)
@pytest.mark.parametrize(
    ("shape", "density", "fit", "op", "tiler"),
    seeds(
        6,
        [
            ((37, 911), 0.5, Words(60), "add", "simple"),
            ((37, 911), 0.5, Words(60), "add", "qtree"),
            ((150, 150), 0.9, Words(60), "multiply", "qtree"),
            ((150, 150), 0.9, Words(60), "multiply", "btree"),
            ((131, 134), 0.7, Words(400), "add", "columns"),
            ((1, 3000), 0.2, Elements(50), "multiply", "strips"),  # 600 entries are 12 full strips
            ((200, 200), 0.05, Elements(3), "multiply", "qtree"),
            ((200, 200), 0.05, Elements(3), "multiply", "simple"),
            ((200, 200), 0.05, Elements(3), "add", "strips"),
            ((200, 200), 0.05, Elements(3), "multiply", "columns"),
        ],
    ),
)
def test_little_memories(shape: tuple[int, int], density: float, fit: Fit, op: Op, tiler: str) -> None:
    model = Uniform.of(RANKS, shape, density=density)
    wrong, found = _off(model, Rolled(5), op, fit, tiler)
    assert wrong == []
    assert "drawn matrices" in found.method


@pytest.mark.parametrize("tiler", ["strips", "columns", "qtree"])
@pytest.mark.parametrize(("few", "many"), [(67, 2000), (2000, 67)])
@pytest.mark.thin(99)
def test_an_operand_many_times_sparser(few: int, many: int, tiler: str) -> None:
    models = [Uniform.of(RANKS, (200, 200), nnz=n) for n in (many, few)]
    assert _off(models[0], models[1], "multiply", Elements(16), tiler)[0] == []


def test_all_tiles_run_where_so_asked() -> None:
    model = Uniform.of(RANKS, (100, 150), density=0.9)
    wrong, found = _off(model, Rolled(5), "multiply", Words(60), "qtree", Launch(run="all"))
    assert wrong == []
    assert found.kernels == found.tiles


@pytest.mark.slow
@pytest.mark.parametrize("tiler", ["strips", "qtree"])
@pytest.mark.parametrize("rows", seeds(1, [300, -5, 5]))
def test_parts_of_large_matrices_stand_for_all(tiler: str, rows: int) -> None:
    """30,000 entries are not drawn as a whole so often; one matrix tells of the mean well enough."""
    model, fit = Uniform.of(RANKS, (700, 701), nnz=30_000), Words(60)
    ops: tuple[Op, ...] = ("add", "multiply")
    for op in ops:
        found = estimate(model, op, fit, tiler, Rolled(rows))
        pattern = pattern_of(model.draw(1), Rolled(rows))
        made = costs(pattern, cut(pattern, op, fit, tiler), op, fit)
        told = (found.tiles, found.kernels, found.run_cycles)
        assert told == pytest.approx((made.tiles, made.kernels, made.run_cycles), rel=0.05)


def test_what_is_too_large_to_be_checked_says_so() -> None:
    model = Uniform.of(RANKS, (10**5, 10**5), nnz=10**7)
    with refused("unsupported-density"):
        estimate(model, "add", Words(60), "simple")
    assert not any("too much data" in note for note in estimate(model, "add", Words(60), "qtree").notes)
