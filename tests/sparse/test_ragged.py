"""Lists of different lengths are not an array: told wherever numbers are taken, and never a traceback."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import polymodel as pm
from tests.faults import every_fault, faults

RAGGED: Any = [[1], [2, 3]]
WRONG: Any = [3, "a"]
HALF: Any = [3, 2.5]
INFINITE: Any = [3, float("inf")]
COORDS = [[0, 1], [0, 2]]
INPUTS: Any = {"A": RAGGED, "B": RAGGED}


@pytest.mark.parametrize(
    ("call", "told"),
    [
        (lambda: pm.SparseTensor.from_coo("A", "IJ", [3, 3], RAGGED, [1, 2]), "coords: "),
        (lambda: pm.SparseTensor.from_coo("A", "IJ", [3, 3], COORDS, RAGGED), "values: "),
        (lambda: pm.SparseTensor.from_coo("A", "IJ", [3, 3], RAGGED, RAGGED), "2 faults"),
        (lambda: pm.SparseTensor.from_dense("A", "IJ", RAGGED), "dense: "),
        (lambda: pm.RankNnz.of("IJ", [2, 3], RAGGED), "histogram: "),
        (lambda: pm.execute(pm.load("tensaurus/spmm"), INPUTS), "2 faults"),
        (lambda: pm.traffic(pm.load("teaal/gamma_traffic"), INPUTS), "2 faults"),
    ],
)
def test_lists_of_different_lengths(call: Callable[[], object], told: str) -> None:
    with pytest.raises(pm.SpecError, match=told) as caught:
        call()
    assert "is not an array: its lists differ in length" in str(caught.value)


def test_several_densities_may_not_be_nested() -> None:
    with every_fault(("out-of-range", "density[0]"), ("out-of-range", "density[1]")):
        pm.random_tensor("IJ", [3, 3], RAGGED, seed=1)


@pytest.mark.parametrize("shape", [WRONG, HALF, INFINITE])
def test_sizes_are_whole_numbers(shape: Any) -> None:
    with faults("not-an-integer", at="shape[1]"):
        pm.SparseTensor.from_coo("A", "IJ", shape, COORDS, [1, 2])
    assert pm.SparseTensor.from_coo("A", "IJ", [3.0, np.int8(3)], COORDS, [1, 2]).shape == (3, 3)  # type: ignore[list-item]  # a whole number, too
