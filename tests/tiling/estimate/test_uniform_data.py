"""Estimates against tilings of uniform random matrices: within 5 % of their means."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache

import numpy as np
import pytest

from polymodel.sparse.density import Uniform, random_tensor
from polymodel.tiling.cost.model import costs
from polymodel.tiling.estimate import Second, estimate
from polymodel.tiling.fits.fit import Elements, Fit, Op, Words
from polymodel.tiling.plane.operands import Alone, Rolled, Transposed, pattern_of
from polymodel.tiling.plane.pattern import Cut, Pattern
from polymodel.tiling.tilers.strips import columns, strips
from polymodel.tiling.tilers.trees import btree, qtree, simple
from tests.seeds import seeds

CUTS: dict[str, Callable[[Pattern, Op, Fit], Cut]] = {
    "simple": simple,
    "qtree": qtree,
    "btree": btree,
    "strips": strips,
    "columns": columns,
}
SECONDS = ("rolled", "independent", "alone")
QUICK = [
    ((300, 300), 0.01),
    ((40, 30), 0.3),
    ((1000, 50), 0.02),
    ((7, 900), 0.1),
    ((3000, 3000), 2e-4),
]
# Random level, few tiles, heights near the 5 rows of the roll, rows that do not fit alone.
MORE = [
    ((200, 200), 0.05),
    ((50, 2000), 0.01),
    ((500, 400), 0.03),
    ((60, 400), 0.3),
    ((20, 5000), 0.02),
    ((2000, 16), 0.1),
    ((5, 300), 0.2),
    ((4000, 4000), 1e-4),
    ((129, 257), 0.1),
    ((64, 64), 0.25),
]

_DRAWS = 80


@cache
def _patterns(shape: tuple[int, int], density: float, second: str, seeds: int) -> tuple[Pattern, ...]:
    ranks, found = ("I", "J"), []
    for seed in range(seeds):
        a = random_tensor(ranks, shape, density, seed)
        b = random_tensor(ranks, shape, density, 1000 + seed) if second == "independent" else None
        found.append(pattern_of(a, b or (Rolled(5) if second == "rolled" else Alone())))
    return tuple(found)


def _compare(shape: tuple[int, int], density: float, fit: Fit, seeds: int) -> list[str]:
    """Where an estimate is off by more than 5 % and the means' own uncertainty."""
    model, wrong = Uniform.of(("I", "J"), shape, density=density), []
    for second in SECONDS:
        seconds: dict[str, Second] = {"rolled": Rolled(5), "independent": model, "alone": Alone()}
        given = seconds[second]
        for op in ("add", "multiply"):
            for name, cutter in CUTS.items():
                counted = []
                # Tiles of one size are one of two numbers, four times apart: their mean needs more matrices.
                draws = _DRAWS if name == "simple" else seeds
                for pattern in _patterns(shape, density, second, draws):
                    made = costs(pattern, cutter(pattern, op, fit), op, fit)
                    counted.append((made.tiles, made.nonempty, made.kernels, made.run_cycles))
                table = np.array(counted, dtype=np.float64)
                mean, deviation = table.mean(axis=0), table.std(axis=0, ddof=1)
                # A size that none of so many matrices has may still be that of one in so many.
                unseen = 0.75 * mean / draws if name == "simple" else 0.0
                error = 2.5 * deviation / np.sqrt(draws) + unseen
                found = estimate(model, op, fit, name, given)
                told = np.array([found.tiles, found.nonempty, found.kernels, found.run_cycles])
                if (np.abs(told - mean) > 0.05 * mean + error).any():
                    wrong.append(f"{name} {op} {second}: {told.round(1)} for {mean.round(1)}")
    return wrong


@pytest.mark.slow
@pytest.mark.thin(5)
@pytest.mark.parametrize(("shape", "density"), seeds(1, [QUICK[1], *QUICK[:1], *QUICK[2:]]))
def test_entries_are_met_within_5_percent(shape: tuple[int, int], density: float) -> None:
    assert _compare(shape, density, Elements(128), 8) == []


@pytest.mark.slow
@pytest.mark.parametrize(("shape", "density"), QUICK + MORE)
@pytest.mark.parametrize("capacity", [32, 128, 512])
def test_entries_are_met_over_the_grid(shape: tuple[int, int], density: float, capacity: int) -> None:
    assert _compare(shape, density, Elements(capacity), 40) == []


@pytest.mark.slow
@pytest.mark.parametrize(("shape", "density"), QUICK + MORE)
@pytest.mark.parametrize("words", [256, 700])
def test_words_are_met_over_the_grid(shape: tuple[int, int], density: float, words: int) -> None:
    assert _compare(shape, density, Words(words), 30) == []


@pytest.mark.slow
@pytest.mark.parametrize(("name", "cutter"), [("strips", strips), ("columns", columns)])
def test_strips_that_one_operand_leaves_empty_are_not_launched(
    name: str, cutter: Callable[[Pattern, Op, Fit], Cut]
) -> None:
    """2000 entries of A beside 60 of B, 16 in a tile: of some 176 strips 50 hold any of B."""
    ranks, shape, fit = ("I", "J"), (200, 200), Elements(16)
    kernels = []
    for seed in range(20):
        a, b = (random_tensor(ranks, shape, n / 40_000, seed + 100 * n) for n in (2000, 60))
        pattern = pattern_of(a, b)
        kernels.append(costs(pattern, cutter(pattern, "multiply", fit), "multiply", fit).kernels)
    models = [Uniform.of(ranks, shape, nnz=n) for n in (2000, 60)]
    found = estimate(models[0], "multiply", fit, name, models[1])
    assert found.kernels == pytest.approx(np.mean(kernels), rel=0.06)
    assert found.tiles > 3 * found.kernels


@pytest.mark.parametrize("name", CUTS)
def test_one_operand_alone_has_no_products(name: str) -> None:
    model = Uniform.of(("I", "J"), (200, 200), density=0.05)
    found = estimate(model, "multiply", Elements(16), name, Alone())
    assert (found.kernels, found.run_cycles) == (0, 0)
    assert found.nonempty > 100


@pytest.mark.slow
@pytest.mark.thin(5)
@pytest.mark.parametrize("op", seeds(1, ["multiply", "add"]))
@pytest.mark.parametrize(("shape", "density"), [((911, 37), 0.2), ((300, 300), 0.05), ((900, 20), 0.3)])
@pytest.mark.parametrize("capacity", seeds(1, [1000, 2000]))
def test_long_strips_of_words(op: Op, shape: tuple[int, int], density: float, capacity: int) -> None:
    """Of many rows in a strip each takes words too; not so many as if the strip were the whole matrix."""
    fit, model = Words(capacity), Uniform.of(("I", "J"), shape, density=density)
    tiles = [strips(p, op, fit).tiles for p in _patterns(shape, density, "rolled", 8)]
    assert estimate(model, op, fit, "strips").tiles == pytest.approx(np.mean(tiles), rel=0.02)


@pytest.mark.slow
def test_tiles_of_one_size_beside_their_mirror_images() -> None:
    """All tiles of the transposed matrix fit where all of the matrix do: that is not a second chance."""
    fit, tiles = Elements(300), []
    for seed in range(150):
        pattern = pattern_of(random_tensor(("I", "J"), (150, 150), 0.2, seed), Transposed())
        tiles.append(simple(pattern, "multiply", fit).tiles)
    model = Uniform.of(("I", "J"), (150, 150), density=0.2)
    found = estimate(model, "multiply", fit, "simple", Transposed())
    error = 2.5 * np.std(tiles, ddof=1) / np.sqrt(len(tiles))
    assert found.tiles == pytest.approx(np.mean(tiles), abs=0.05 * np.mean(tiles) + error)
