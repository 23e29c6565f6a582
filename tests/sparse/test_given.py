"""Tensors as callers hold them, given to `execute`, `traffic` and `tile`."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse

import polymodel as pm
from tests.faults import faults
from tests.sparse.cascades import cascade, sparse

SPEC = cascade({"A": "M K", "B": "K N", "Z": "M N"}, "Z[m, n] = A[m, k] * B[k, n]")


@pytest.mark.parametrize("form", ["coo", "csr", "csc", "bsr", "dia", "lil", "dok"])
@pytest.mark.parametrize("kind", ["array", "matrix"])
def test_scipy_sparse_matrices_are_tensors(form: str, kind: str) -> None:
    rng = np.random.default_rng(2)
    a, b = sparse(rng, (4, 5), 0.5), sparse(rng, (5, 3), 0.5)
    made = getattr(scipy.sparse, f"{form}_{kind}")
    found = pm.execute(SPEC, {"A": made(a), "B": b})
    assert np.array_equal(found.results["Z"].to_dense(), a @ b)
    given = {"A": made(np.ones((4, 4), dtype=int)), "B": made(np.eye(4, dtype=int))}
    assert pm.traffic(pm.load("teaal/gamma_traffic"), given).einsum("Z").unit("FPMul").total == 16


@pytest.mark.parametrize(
    ("given", "said"),
    [
        (None, "B: None is not a tensor of numbers"),
        ({}, "B: a dict is not a tensor of numbers"),
        (np.array([["a"]]), "B: an array of text is not a tensor of numbers"),
        (np.zeros(5), "B is declared with 2 ranks ['K', 'N'], the tensor has 1"),
        (scipy.sparse.coo_array(np.ones(5)), "B is declared with 2 ranks ['K', 'N'], the tensor has 1"),
        ("b.mtx", "B: 'b.mtx' is not a tensor"),
        ([[1], [1, 2]], "its lists differ in length"),
    ],
)
def test_what_is_no_tensor_is_told_with_the_ways(given: object, said: str) -> None:
    for call in (pm.execute, pm.traffic):
        with pytest.raises(pm.SpecError) as told:
            call(SPEC, {"A": None, "B": given})  # type: ignore[dict-item,operator]  # what is wrong on purpose
        assert said in str(told.value)
        assert "A: None is not a tensor of numbers" in str(told.value)
        assert all(d.remedy for d in told.value.diagnostics)


def test_tile_takes_arrays() -> None:
    dense = np.diag(np.arange(1, 60))
    own, same = pm.tile(dense), pm.tile(scipy.sparse.coo_array(dense))
    assert repr(own) == repr(same)
    with faults("wrong-type", "A", at=""):
        pm.tile(np.array([["a", "b"]]))
