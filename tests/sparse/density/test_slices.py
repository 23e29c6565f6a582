"""Slices of rows: counted ones against loops, expected ones against means over random tensors."""

from __future__ import annotations

import time

import numpy as np
import pytest

from polymodel.sparse.density import (
    Actual,
    Banded,
    DensityModel,
    FixedStructured,
    Hierarchical,
    RankNnz,
    Uniform,
    random_tensor,
)
from polymodel.sparse.density.slices import SliceCosts, greedy, load_bounds, nway, shape_tiles
from tests.faults import faults, refused


def of_lists(rows: list[int], slices: list[list[int]]) -> tuple[int, int, int]:
    """Greatest load, lock-step time and occupied slices of lists of rows, empty rows left out."""
    loads = [[rows[r] for r in members if rows[r]] for members in slices]
    longest = max(map(len, loads))
    steps = sum(max((x[p] for x in loads if p < len(x)), default=0) for p in range(longest))
    return max(map(sum, loads)), steps, sum(bool(x) for x in loads)


def dealt(rows: list[int], slices: int) -> list[list[int]]:
    found: list[list[int]] = [[] for _ in range(slices)]
    for row, load in enumerate(rows):
        if load:
            loads = [sum(rows[r] for r in members) for members in found]
            found[loads.index(min(loads))].append(row)
    return found


def same(found: SliceCosts, wanted: tuple[int, int, int]) -> None:
    assert (found.max_load, found.lockstep, found.occupied) == wanted
    assert found.lower <= found.max_load <= found.upper


@pytest.mark.parametrize("seed", range(6))
def test_known_rows_are_dealt_as_a_loop_deals_them(seed: int) -> None:
    generator = np.random.default_rng(seed)
    rows = (generator.integers(0, 12, 23) * generator.integers(0, 2, 23)).tolist()
    model = RankNnz.of(("I", "J"), (23, 12), rows)
    for count in (1, 2, 5, 30):
        same(greedy(model, count), of_lists(rows, dealt(rows, count)))
        blocks = [list(range(r, min(r + count, 23))) for r in range(0, 23, count)]
        same(shape_tiles(model, count), of_lists(rows, blocks))
    assert nway(model, 4) == shape_tiles(model, 6)
    assert greedy(model, 5).nonempty_rows == np.count_nonzero(rows)
    assert greedy(model, 5).imbalance == pytest.approx(greedy(model, 5).max_load * 5 / sum(rows))


def test_rows_are_known_of_data_histograms_and_bands() -> None:
    tensor = random_tensor("IJK", (7, 5, 4), 0.2, 3)
    rows = [int((tensor.coords[0] == i).sum()) for i in range(7)]
    assert Actual.of(tensor).known_rows().tolist() == rows
    assert RankNnz.from_tensor(tensor).known_rows().tolist() == rows
    assert RankNnz.from_tensor(tensor, ("J", "I")).known_rows().tolist() == rows
    assert greedy(Actual.of(tensor), 2).label == "exact"
    assert greedy(RankNnz.from_tensor(tensor), 2).label == "expected"
    for band in (Banded("IJ", (7, 5), 1), Banded("IJK", (4, 5, 6), 2, ("J", "K")), Banded("IJ", (9, 3), 2)):
        one = np.array(
            [float(Actual.of(_dense(band)).tensor.coords[0].tolist().count(i)) for i in range(band.shape[0])]
        )
        assert band.known_rows().tolist() == one.tolist()
    assert FixedStructured("IJ", (3, 10), 2, 4).known_rows().tolist() == [6, 6, 6]
    assert Uniform.of("IJ", (4, 4), nnz=3).known_rows() is None
    assert RankNnz.from_tensor(tensor, ("J",)).known_rows() is None


def _dense(band: Banded):
    from polymodel.sparse.tensor import SparseTensor

    axes = [band.ranks.index(r) for r in band.band]
    grid = np.indices(band.shape)
    return SparseTensor.from_dense("A", band.ranks, np.abs(grid[axes[0]] - grid[axes[1]]) <= band.width)


def mean_of(drawn: list[SliceCosts], what: str) -> tuple[float, float]:
    values = [getattr(s, what) for s in drawn]
    return float(np.mean(values)), float(np.std(values) / len(values) ** 0.5)


@pytest.mark.parametrize(
    ("shape", "density", "slices"),
    [
        ((64, 32), 0.125, 8),
        ((20, 50), 0.1, 8),
        ((30, 4), 0.5, 8),
        ((33, 1000), 0.5, 32),
        ((40, 1000), 0.5, 16),
        ((1000, 1000), 0.0004, 8),
        ((100, 1000), 0.03, 64),
        ((200, 300), 0.03, 3),
        ((50, 10), 0.98, 4),
        ((9, 100), 0.003, 8),
        ((60, 9, 8), 0.05, 5),
        ((100, 50), (0.5, 0.2), 8),
        ((100, 20, 20), (0.8, 0.3, 0.4), 8),
    ],
)
@pytest.mark.thin(99)
def test_random_rows_agree_with_means_of_data(shape, density, slices) -> None:
    """Greedy loads within 5 % of the mean of data, lock step within 10 %, blocks within 3 %."""
    ranks = "IJK"[: len(shape)]
    model: DensityModel
    if isinstance(density, tuple):
        model = Hierarchical(tuple(ranks), shape, density)
    else:
        model = Uniform.of(ranks, shape, density=density)
    data = [Actual.of(random_tensor(ranks, shape, density, seed)) for seed in range(60)]
    for found, drawn, error in (
        (greedy(model, slices), [greedy(a, slices) for a in data], 0.05),
        (shape_tiles(model, 5), [shape_tiles(a, 5) for a in data], 0.03),
        (nway(model, slices), [nway(a, slices) for a in data], 0.03),
    ):
        assert found.label == "expected"
        for what, within in (("max_load", error), ("lockstep", 2 * error)):
            mean, deviation = mean_of(drawn, what)
            assert abs(getattr(found, what) - mean) < within * mean + 3 * deviation, what
        for what in ("nonempty_rows", "max_row", "occupied"):
            mean, deviation = mean_of(drawn, what)
            assert abs(getattr(found, what) - mean) < 4 * deviation + 0.03 * mean, what
        assert found.lower <= found.max_load <= found.upper


def test_bounds_are_those_of_the_text() -> None:
    assert load_bounds(100, 7, 8) == (12.5, 12.5 + 7 * 7 / 8)
    assert load_bounds(10, 7, 8)[0] == 7


def test_a_tensor_of_77_million_nonzeros_is_quick() -> None:
    started = time.process_time()
    model = Uniform.of("IJK", (12_000, 9_000, 28_000), nnz=77_000_000)
    found = greedy(model, 8)
    assert found.lower < found.max_load < found.upper
    assert float(model.expected_fibers(2)) == pytest.approx(55_060_000, rel=1e-3)
    assert nway(model, 8).max_load == pytest.approx(9_625_000 + 1.4236 * (77e6 / 8 * 7 / 8) ** 0.5, rel=2e-4)
    assert time.process_time() - started < 10


def test_edges() -> None:
    empty = Uniform.of("IJ", (10, 10), nnz=0)
    for found in (greedy(empty, 3), shape_tiles(empty, 3), greedy(RankNnz.of("IJ", (3, 3), [0, 0, 0]), 2)):
        assert found.max_load == found.lockstep == found.nonempty_rows == 0
        assert found.imbalance == 1
    one = greedy(Uniform.of("IJ", (10, 10), nnz=17), 1)
    assert one.max_load == one.lockstep == 17
    with faults("not-positive-integer", at=""):
        greedy(empty, 0)
    with faults("not-positive-integer", at=""):
        shape_tiles(empty, 0)
    with faults("not-positive-integer", at=""):
        nway(empty, 0)
    with refused("unsupported-density", "FixedStructured"):
        greedy(FixedStructured(("I", "J"), (8, 8), 2, 4, "I"), 2)
