"""Coordinates and values: order, duplicates, zeros, faults."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse

import polymodel as pm
from tests.faults import refused


def test_duplicates_are_summed_zeros_dropped_and_points_ordered() -> None:
    found = pm.SparseTensor.from_coo("A", "IJ", (3, 4), [[2, 0, 2, 1, 1], [1, 3, 1, 0, 0]], [1, 2, 3, 5, -5])
    assert found.coords.tolist() == [[0, 2], [3, 1]]
    assert found.values.tolist() == [2, 4]
    assert found.numbers.tolist() == [3, 9]


def test_dense_scipy_and_swizzle_agree() -> None:
    dense = np.random.default_rng(1).integers(0, 3, (4, 5))
    tensor = pm.SparseTensor.from_dense("A", "IJ", dense)
    assert (tensor.to_dense() == dense).all()
    assert (tensor.swizzled("JI").to_dense() == dense.T).all()
    assert (tensor.to_scipy().toarray() == dense).all()
    assert (
        pm.SparseTensor.from_scipy("A", "IJ", scipy.sparse.csc_array(dense)).coords == tensor.coords
    ).all()


def test_more_points_than_64_bits_number() -> None:
    found = pm.SparseTensor.from_coo("A", "IJ", (2**40, 2**40), [[5, 5, 1], [2, 2, 9]], [1, 1, 1])
    assert found.coords.tolist() == [[1, 5], [9, 2]]
    assert found.values.tolist() == [1, 2]
    with refused("number-too-large", "64"):
        _ = found.numbers


def test_rank_zero() -> None:
    found = pm.SparseTensor.from_coo("s", (), (), np.zeros((0, 1), np.int64), [7.0])
    assert found.size == 1
    assert found.to_dense() == 7.0


def test_every_fault_is_told() -> None:
    with pytest.raises(pm.SpecError) as error:
        pm.SparseTensor.from_coo("A", "IJ", (3, 4), [[0, 3], [-1, 9]], [1.0, float("nan")])
    text = str(error.value)
    assert "rank I are outside 0..2" in text
    assert "2 coordinates of rank J" in text
    assert "value 2 is nan" in text
