"""Uniform data fit, skewed and regular ones do not, and the warning says by how much."""

from __future__ import annotations

import warnings

import numpy as np
import pytest

from polymodel.sparse.density import RankNnz, SparseWarning, Uniform, check_fit, random_tensor, unfit
from polymodel.sparse.tensor import SparseTensor
from tests.faults import faults


def of_rows(counts: list[int], columns: int) -> SparseTensor:
    coords = [[i for i, c in enumerate(counts) for _ in range(c)], [j for c in counts for j in range(c)]]
    return SparseTensor.from_coo("A", "IJ", (len(counts), columns), coords, np.ones(sum(counts)))


@pytest.mark.parametrize(
    ("shape", "density"),
    [
        ((1000, 1000), 1e-5),
        ((100, 100), 0.05),
        ((20, 30), 0.97),
        ((5, 2000), 0.01),
        ((2, 10), 0.3),
        ((9, 9, 9), 0.1),
    ],
)
def test_uniform_data_fit(shape: tuple[int, ...], density: float) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for seed in range(40):
            assert check_fit(random_tensor("IJK"[: len(shape)], shape, density, seed))


def test_skewed_rows_are_told_with_their_largest() -> None:
    counts = np.minimum(500, 300 / np.arange(1, 201)).astype(int).tolist()
    with pytest.warns(SparseWarning, match=r"A is not uniform: rows are more uneven .* largest row has 300 "):
        assert not check_fit(of_rows(counts, 500))


def test_regular_rows_are_told() -> None:
    assert "less uneven" in unfit(of_rows([10] * 200, 100))


def test_one_long_row_is_told() -> None:
    rows = np.bincount(random_tensor("IJ", (2000, 400), 0.005, 1).coords[0], minlength=2000)
    rows[7] = 25
    told = unfit(of_rows(rows.tolist(), 400))
    assert "largest row has 25 nonzeros" in told


def test_other_models_and_trivial_tensors_fit() -> None:
    tensor = of_rows([50] + [1] * 50, 100)
    assert unfit(tensor)
    assert check_fit(tensor, RankNnz.from_tensor(tensor))
    assert unfit(of_rows([30], 100)) == ""
    assert unfit(of_rows([0, 0], 3)) == ""
    assert unfit(of_rows([3, 3], 3)) == ""
    with faults("shape-mismatch", at=""):
        unfit(tensor, Uniform.of("IJ", (3, 3), nnz=2))
