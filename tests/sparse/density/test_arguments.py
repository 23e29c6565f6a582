"""What density models and random tensors are given: each wrong argument is told by name, with a remedy."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import polymodel as pm
from tests.faults import faults

A = pm.random_tensor("IJ", (4, 4), 0.5, 1)
IJ = ["I", "J"]
NAN = math.nan
Call = Callable[..., object]
# The call, its arguments, and for each fault its place and what its message begins with.
WRONG: list[tuple[Call, tuple[object, ...], dict[str, str]]] = [
    (pm.Uniform, (IJ, [4, 4], 0.5), {"nnz": "0.5 is not a number of nonzeros"}),
    (pm.Uniform, (IJ, [4, 4], -1), {"nnz": "-1 nonzeros do not fit into 16 points"}),
    (pm.Uniform, (IJ, [4, 4], 17), {"nnz": "17 nonzeros do not fit into 16 points"}),
    (pm.Uniform, (IJ, [4, 4], NAN), {"nnz": "nan is not a number of nonzeros"}),
    (pm.Uniform, (IJ, [4, 4], "x"), {"nnz": "'x' is not a number of nonzeros"}),
    (pm.Uniform, (IJ, [4, 4], True), {"nnz": "True is not a number of nonzeros"}),
    (pm.Uniform, (IJ, [4, 4.5], 4), {"shape[1]": "size 4.5 of a rank is not a positive integer"}),
    (pm.Uniform, (3, [4, 4], 4), {"ranks": "3 is not a list of names"}),
    (pm.Uniform, ("IJ", 4, 4), {"shape": "4 is not a list of sizes"}),
    (pm.Uniform, (["I", 2], [4, 0], 4), {"ranks[1]": "2 is not a name", "shape[1]": "size 0 of a rank"}),
    (pm.Uniform, ("IJK", [4, 4], 4), {"shape": "ranks ['I', 'J', 'K'] and shape [4, 4] do not fit"}),
    (pm.Banded, ("IJ", [4, 4], "x"), {"width": "a band of width 'x'"}),
    (pm.Banded, ("IJ", [4, 4], 1.5), {"width": "a band of width 1.5"}),
    (pm.Banded, ("IJ", [4, 4], NAN, ("I", "Q")), {"band[1]": "a band on rank Q", "width": "a band of"}),
    (pm.Banded, ("IJ", [4, 4], 1, ("I",)), {"band": "a band lies between two ranks, not 1"}),
    (pm.Banded, ("IJ", [4, 4], 1, 3), {"band": "3 is not a list of names"}),
    (pm.Banded, ("I", [4], 1), {"ranks": "a band needs two ranks, and there is I"}),
    (pm.FixedStructured, ("IJ", [4, 4], 5, 4), {"n": "5 of 4 coordinates cannot be nonzero"}),
    (pm.FixedStructured, ("IJ", [4, 4], NAN, "x"), {"m": "'x' is no", "n": "nan is no"}),
    (pm.FixedStructured, ("IJ", [4, 4], 2, 4, "Q"), {"rank": "groups along rank Q: there is none"}),
    (pm.Hierarchical, ("IJ", [4, 4], 0.5), {"densities": "0.5 is not a list of densities"}),
    (pm.Hierarchical, ("IJ", [4, 4], [0.5, NAN]), {"densities[1]": "density nan of rank J"}),
    (pm.Hierarchical, ("IJ", [4, 4], [2, "x"]), {"densities[0]": "density 2", "densities[1]": "'x' is no"}),
    (pm.RankNnz.of, ("IJ", [4, 4], ["a"]), {"histogram": "it holds something else than numbers"}),
    (pm.RankNnz.of, ("IJ", [4, 4], [1, 2, 3, NAN]), {"histogram": "1 entries of the histogram are not"}),
    (pm.RankNnz.of, ("IJ", [4, 4], [1, 2]), {"histogram": "the histogram along ['I'] has (2,) entries"}),
    (pm.RankNnz.of, ("IJ", [4, 4], [1, 2, 3, 4], "Q"), {"along[0]": "a histogram along rank Q"}),
    (pm.RankNnz.from_tensor, (A, "Q"), {"along[0]": "a histogram along rank Q"}),
    (pm.Actual, (IJ, [4, 5], A), {"tensor": "['I', 'J'] of [4, 5] is not SparseTensor(A: I=4 x J=4"}),
    (pm.random_tensor, (3, [3], 0.5, 1), {"ranks": "3 is not a list of names"}),
    (pm.random_tensor, ("I", [3], True, 1), {"density": "True is not a density"}),
    (pm.random_tensor, ("I", [3], [NAN], 1), {"density[0]": "density nan is outside [0, 1]"}),
    (pm.random_tensor, ("I", [True], 0.5, True), {"shape[0]": "size True", "seed": "True is"}),
    (
        pm.random_tensor,
        (["I", "I"], [3, -1], 2, -1),
        {"ranks": "names ['I', 'I'] do", "shape[1]": "size -1", "density": "density 2", "seed": "-1"},
    ),
]  # fmt: skip


@pytest.mark.parametrize(("call", "given", "told"), WRONG)
def test_it_is_told(call: Call, given: tuple[object, ...], told: dict[str, str]) -> None:
    with pytest.raises(pm.SpecError) as caught:
        call(*given)
    found = caught.value.diagnostics
    assert {d.path: d.message[: len(told.get(d.path, ""))] for d in found} == told
    assert len(found) == len(told)
    assert all(d.remedy for d in found)


@pytest.mark.parametrize(
    ("options", "code", "at"),
    [
        ({"density": "x"}, "out-of-range", "density"),
        ({"density": NAN}, "out-of-range", "density"),
        ({"density": 0.1, "nnz": 4}, "conflicting-arguments", "density"),
        ({}, "conflicting-arguments", "density"),
        ({"nnz": 2.5}, "wrong-type", "nnz"),
    ],
)
def test_uniform_of(options: dict[str, float], code: str, at: str) -> None:
    with faults(code, at=at):
        pm.Uniform.of(IJ, [4, 4], **options)  # type: ignore[arg-type]  # wrong on purpose


def test_what_is_not_a_tensor_has_no_model() -> None:
    with faults("wrong-type", "Actual.of", "a.mtx", at=""):
        pm.Actual.of("a.mtx")  # type: ignore[arg-type]  # wrong on purpose
    with faults("wrong-type", "Actual", at=""):
        pm.Actual(("I", "J"), (4, 4), None)  # type: ignore[arg-type]  # wrong on purpose


def test_other_forms_of_right_arguments_are_the_same() -> None:
    forms: list[tuple[Any, Any]] = [([4, 4], 4.0), (np.array([4, 4]), np.int8(4)), ((4, 4), 4)]
    letters: Any = "IJ"
    assert {pm.Uniform(letters, *form) for form in forms} == {pm.Uniform(("I", "J"), (4, 4), 4)}
    nothing: Any = ("IJ", [4, 4], 0)
    assert pm.Uniform(*nothing).expected_nnz == 0
    thinned: Any = ("IJ", [4, 4], np.array([0.5, 1]))
    assert pm.Hierarchical(*thinned) == pm.Hierarchical(("I", "J"), (4, 4), (0.5, 1.0))
