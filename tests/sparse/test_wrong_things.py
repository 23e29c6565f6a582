"""What is not a tensor, file, shape or mapping is told wherever data are taken, with what to pass instead."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import polymodel as pm

A = pm.random_tensor(["I", "J"], [4, 5], 0.5, seed=1)
WRONG: Any = 5
HALF: Any = "half"
FILE: Any = "b.mtx"
SIZES: Any = [2.5]
ARRAY: Any = np.ones((64, 64))


def dense() -> pm.Report:
    return pm.evaluate(pm.load("matmul/weight_stationary", "simple_two_level"))


@pytest.mark.parametrize(
    ("call", "told"),
    [
        (lambda: pm.read_tensor(WRONG), "read_tensor: 5 is not a name of a file"),
        (lambda: pm.write_tensor(FILE, WRONG), "write_tensor: 'b.mtx' is not a sparse tensor"),
        (lambda: pm.write_tensor(A, WRONG), "write_tensor: 5 is not a name of a file"),
        (lambda: pm.footprint(WRONG, "CSR"), "footprint: 5 is not a tensor or density model"),
        (lambda: pm.draw_fibertree(WRONG), "draw_fibertree: 5 is not a tensor"),
        (lambda: pm.ExecutionReport(WRONG), "ExecutionReport: 5 is not an execution"),
        (lambda: pm.predict(WRONG), "predict: 5 is not a sparse tensor or file"),
        (lambda: pm.predict(), "no tensor is given"),
        (lambda: pm.random_tensor(["I"], WRONG, 0.5, 1), "shape: 5 is not a list of sizes"),
        (lambda: pm.random_tensor(["I"], SIZES, 0.5, 1), "size 2.5 of a rank is not a positive integer"),
        (lambda: pm.random_tensor(["I"], [4], HALF, 1), "'half' is not a density"),
        (lambda: pm.random_tensor(["I"], [4], 1.5, -1), "2 faults"),
        (lambda: pm.execute(pm.load("tensaurus/spmm"), WRONG), "tensors: 5 is not a mapping"),
        (lambda: pm.execute(pm.load("tensaurus/spmm"), {"A": A, "B": FILE}), "pass pm.read_tensor"),
        (lambda: pm.sparsify(dense(), densities=WRONG), "densities: 5 is not a mapping"),
        (lambda: pm.sparsify(dense(), tensors=WRONG), "tensors: 5 is not a mapping"),
        (lambda: pm.sparsify(dense(), tensors={"A": ARRAY}), "A: a ndarray is not a sparse tensor"),
    ],
)
def test_it_is_told(call: Any, told: str) -> None:
    with pytest.raises(pm.SpecError, match=told):
        call()
