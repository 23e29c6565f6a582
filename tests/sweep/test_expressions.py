"""Constraints and linked symbols over arrays: exact also where int64 or float64 is not."""

from __future__ import annotations

import numpy as np
import pytest

import polymodel as pm
from polymodel.sweeps.expressions import constraint, of_text
from tests.faults import faults
from tests.sweep.small import matmul

BIG = np.array([2**40, 3, 2**40 + 1])


@pytest.mark.parametrize(
    ("text", "holds"),
    [
        ("T * T <= 10 ** 12", [False, True, False]),
        ("T * T - T * T >= 0", [True, True, True]),
        ("T * T * T < 2 * 1152921504606846976", [False, True, False]),
        ("T * 4611686018427387904 + 5 > 100 and T > 3", [True, False, True]),
    ],
)
def test_products_do_not_wrap_around(text: str, holds: list[bool]) -> None:
    assert np.broadcast_to(constraint(text).holds({"T": BIG}), 3).tolist() == holds


def test_rounded_quotients_are_exact_above_2_to_53() -> None:
    values = {"M": np.array([2**60 + 1, 7]), "T": np.array([2, 2])}
    assert of_text("ceil(M / T)", values).tolist() == [2**59 + 1, 4]
    assert of_text("floor(M / T)", values).tolist() == [2**59, 3]
    assert of_text("ceil(0.5 * T)", values).tolist() == [1.0, 1.0]
    with faults("undefined-result", at=""):
        of_text("ceil(M / (T - 2))", values)


def test_a_sweep_under_a_large_constraint() -> None:
    size = 2**50
    symbols = {"TM": [1, 5, size - 1, size], "TN": [20], "TK": [18], "S": [2**50, 1]}
    found = pm.sweep(matmul(size), symbols, where=["TM * S <= 2 ** 60", "TM * S >= 0"], keep="all")
    assert found.frame[["TM", "S"]].values.tolist() == [
        [1, 2**50], [1, 1], [5, 2**50], [5, 1], [size - 1, 1], [size, 1],
    ]  # fmt: skip
