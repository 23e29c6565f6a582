"""Estimates of models other than uniform data, against tilings of data drawn from them."""

from __future__ import annotations

import time

import numpy as np
import pytest

from polymodel.errors import SpecError
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
from polymodel.tiling.cost.model import Launch, costs
from polymodel.tiling.estimate import Second, estimate
from polymodel.tiling.fits.fit import Elements, Op
from polymodel.tiling.plane.operands import Alone, Rolled, Transposed, pattern_of
from polymodel.tiling.tilers.named import cut
from tests.faults import faults, refused

RANKS = ("I", "J")
SKEWED = np.minimum(200, 2000 // (1 + np.arange(300)))


@pytest.mark.parametrize("tiler", ["qtree", "btree"])
@pytest.mark.parametrize(
    ("op", "second"),  # nothing is multiplied with nothing
    [
        *(("add", second) for second in (Rolled(5), Alone(), Transposed())),
        *(("multiply", second) for second in (Rolled(5), Transposed())),
    ],
)
@pytest.mark.parametrize(
    "model",
    [
        RankNnz.of(RANKS, (300, 300), SKEWED),
        RankNnz.of(RANKS, (300, 300), SKEWED, along=("J",)),
        FixedStructured(RANKS, (128, 128), 2, 8),
        FixedStructured(RANKS, (120, 120), 1, 16, "I"),
        Hierarchical(RANKS, (200, 200), (0.4, 0.1)),
    ],
    ids=["rows", "columns", "structured", "structured rows", "hierarchical"],
)
@pytest.mark.thin(99)
def test_trees_of_all_models_are_met_within_10_percent(
    model: DensityModel, second: Second, tiler: str, op: Op
) -> None:
    assert not isinstance(second, DensityModel)
    tilings = []
    for seed in range(12):
        pattern = pattern_of(model.draw(seed), second)
        made = costs(pattern, cut(pattern, op, Elements(64), tiler), op, Elements(64))
        tilings.append((made.tiles, made.kernels, made.total_cycles))
    table = np.array(tilings, dtype=np.float64)
    mean, error = table.mean(axis=0), 2.5 * table.std(axis=0, ddof=1) / len(table) ** 0.5
    found = estimate(model, op, Elements(64), tiler, second)
    assert found.label == "expected"
    told = np.array([found.tiles, found.kernels, found.total_cycles])
    assert (np.abs(told - mean) <= 0.1 * mean + error).all(), (told, mean)


@pytest.mark.parametrize(
    "model",
    [
        RankNnz.of(RANKS, (6, 10), [0, 10, 3, 9, 1, 5]),
        FixedStructured(RANKS, (5, 11), 2, 4),
        FixedStructured(RANKS, (11, 5), 3, 4, "I"),
        Banded(RANKS, (7, 5), 1),
        Uniform.of(RANKS, (6, 7), nnz=30),
    ],
)
def test_drawn_data_are_as_the_model_says(model: DensityModel) -> None:
    tensor = model.draw(3)
    assert tensor.nnz == model.expected_nnz
    dense = np.zeros(model.shape, dtype=int)
    np.add.at(dense, tuple(tensor.coords), 1)
    assert dense.max() == 1
    if isinstance(model, RankNnz):
        assert dense.sum(axis=1).tolist() == model.histogram.tolist()
    if isinstance(model, FixedStructured):
        lines = dense if model.rank == "J" else dense.T
        for start in range(0, lines.shape[1], 4):
            part = lines[:, start : start + 4]
            assert (part.sum(axis=1) == min(model.n, part.shape[1])).all()
    if isinstance(model, Banded):
        rows, cols = np.nonzero(dense)
        assert np.abs(rows - cols).max() == 1
        assert np.nonzero(model.draw(4).coords - tensor.coords)[0].size == 0


@pytest.mark.parametrize("tiler", ["qtree+merge", "btree+fixpoint", "panels", "strips"])
def test_the_data_themselves_are_tiled(tiler: str) -> None:
    tensor = random_tensor(RANKS, (200, 150), 0.03, 1)
    pattern = pattern_of(tensor)
    made = costs(pattern, cut(pattern, "add", Elements(64), tiler), "add", Elements(64))
    found = estimate(Actual.of(tensor), "add", Elements(64), tiler)
    assert (found.label, found.tiles, found.total_cycles) == ("exact", made.tiles, made.total_cycles)


@pytest.mark.slow
@pytest.mark.parametrize("tiler", ["qtree+merge", "btree+merge", "panels"])
def test_other_tilers_are_run_on_drawn_data(tiler: str) -> None:
    model = Uniform.of(RANKS, (300, 300), density=0.02)
    tilings = []
    for seed in range(100, 112):
        pattern = pattern_of(random_tensor(RANKS, (300, 300), 0.02, seed))
        made = costs(pattern, cut(pattern, "add", Elements(64), tiler), "add", Elements(64))
        tilings.append((made.tiles, made.total_cycles))
    found = estimate(model, "add", Elements(64), tiler)
    assert (found.tiles, found.total_cycles) == pytest.approx(tuple(np.mean(tilings, axis=0)), rel=0.03)
    assert found == estimate(model, "add", Elements(64), tiler)


@pytest.mark.thin(99)
@pytest.mark.parametrize(("tiler", "op"), [("qtree+merge", "add"), ("btree+merge", "multiply")])
def test_a_node_of_the_tree_stands_for_a_large_matrix(tiler: str, op: Op) -> None:
    model = Uniform.of(RANKS, (3000, 5000), density=0.03)
    pattern = pattern_of(random_tensor(RANKS, model.shape, 0.03, 1))
    made = costs(pattern, cut(pattern, op, Elements(128), tiler), op, Elements(128))
    found = estimate(model, op, Elements(128), tiler)
    assert "nodes of the tree" in found.method
    assert (found.tiles, found.run_cycles) == pytest.approx((made.tiles, made.run_cycles), rel=0.03)


@pytest.mark.slow
@pytest.mark.parametrize("tiler", ["simple", "qtree", "btree", "strips", "columns", "qtree+merge"])
@pytest.mark.parametrize("op", ["add", "multiply"])
def test_time_does_not_grow_with_nonzeros(tiler: str, op: Op) -> None:
    model = Uniform.of(RANKS, (10**6, 10**6), nnz=10**9)
    start = time.process_time()
    found = estimate(model, op, Elements(128), tiler)
    assert time.process_time() - start < 1.0
    least = (2 if op == "add" else 1) * 10**9 / 128
    assert least <= found.tiles < 10 * least


def test_launching_all_tiles_costs_more() -> None:
    model = Uniform.of(RANKS, (2000, 2000), nnz=2000)
    some = estimate(model, "multiply", Elements(32), "simple")
    every = estimate(model, "multiply", Elements(32), "simple", launch=Launch(run="all"))
    assert every.kernels == pytest.approx(every.tiles)
    assert every.run_cycles - some.run_cycles == pytest.approx(10 * (every.tiles - some.kernels), rel=1e-6)


def test_what_is_not_estimated_is_refused_by_name() -> None:
    from polymodel.tiling.fits.fit import stored

    big = Uniform.of(RANKS, (10**6, 10**6), nnz=10**9)
    with refused("too-large", "panels"):
        estimate(big, "add", Elements(128), "panels")
    with refused("unsupported-format"):
        estimate(big, "add", stored("csr", 4096), "qtree")
    both = RankNnz.of(RANKS, (2, 2), [[1, 0], [0, 1]], along=RANKS)
    with refused("unsupported-density", "RankNnz"):
        estimate(both, "add", Elements(1), "qtree")


def test_all_faults_are_told() -> None:
    model = Uniform.of(("I", "J", "K"), (4, 4, 4), nnz=3)
    with pytest.raises(SpecError) as caught:
        estimate(model, second=Uniform.of(RANKS, (4, 5), nnz=3))
    assert len(caught.value.diagnostics) == 2
    with faults("shape-mismatch", "square", at=""):
        estimate(Uniform.of(RANKS, (4, 5), nnz=3), second=Transposed())


def test_beside_given_data_the_whole_matrix_is_drawn(monkeypatch: pytest.MonkeyPatch) -> None:
    """No part of a large matrix stands for all where B is data: it was drawn whole and counted as a part."""
    model = Uniform.of(RANKS, (300, 300), nnz=3000)
    second = model.draw(9, "B")
    whole = estimate(model, "add", Elements(16), "qtree+merge", second)
    monkeypatch.setattr("polymodel.tiling.estimate.run._IN_ALL", 2000)
    told = estimate(model, "add", Elements(16), "qtree+merge", second)
    assert told.tiles == pytest.approx(whole.tiles, rel=0.1)
