"""The references that results are compared with: intermediates, takes, and Einsums without a reference."""

from __future__ import annotations

import numpy as np
import pytest

from polymodel.sparse.execute import check as checking
from polymodel.sparse.execute.check import Unchecked
from polymodel.sparse.execute.run import run
from polymodel.sparse.tensor import SparseTensor
from tests.faults import refused
from tests.sparse.cascades import cascade, sparse

RANKS = {"A": "K M", "B": "K N", "T": "K M N", "Z": "M N"}
OUTER = ("T[k, m, n] = A[k, m] * B[k, n]", "Z[m, n] = T[k, m, n]")
GAMMA = ("T[k, m, n] = take(A[k, m], B[k, n], 1)", "Z[m, n] = A[k, m] * T[k, m, n]")
GATHER = ("T[k, m, n] = A[k, m] * B[k, n]", "Z[m, n] = take(T[k, m, n], A[k, m], 0)")
ROWS = ("Z[m, k] = take(A[k, m], B[k, n], 0)",)


def arrays() -> dict[str, np.ndarray]:
    rng = np.random.default_rng(4)
    return {"A": sparse(rng, (9, 8), 0.3), "B": sparse(rng, (9, 7), 0.3)}


@pytest.mark.parametrize("dense", [10**9, 0])
@pytest.mark.parametrize("texts", [OUTER, GAMMA, ROWS])
def test_cascades_are_checked_both_ways(
    texts: tuple[str, ...], dense: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A sum of one factor, a take of one, and a take that meets its value several times."""
    monkeypatch.setattr(checking, "DENSE", dense)
    found = run(cascade({**RANKS, "Z": "M K"} if texts == ROWS else RANKS, *texts), arrays())
    checks = found.check()
    assert [c.agrees for c in checks] == [True] * len(texts)
    assert {c.reference for c in checks} == {"numpy.einsum" if dense else "scipy.sparse"}
    z = found.results["Z"]
    wrong = SparseTensor(z.name, z.ranks, z.shape, z.coords, z.values + (np.arange(z.nnz) == 2))
    object.__setattr__(found, "results", {**found.results, "Z": wrong})
    assert not found.check()[-1].agrees
    assert found.check()[-1].largest_difference == 1


@pytest.mark.parametrize("dense", [10**9, 0])
def test_an_einsum_without_a_reference_keeps_no_other_from_it(
    dense: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(checking, "DENSE", dense)
    found = run(cascade(RANKS, *GATHER), arrays())
    first, second = found.checks()
    assert not isinstance(first, Unchecked)
    assert first.agrees
    assert isinstance(second, Unchecked)
    assert "keeps the last value" in str(second.refused)
    with refused("unsupported-operation"):
        found.check()


def test_what_has_no_factor_with_its_rank_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(checking, "DENSE", 0)
    found = run(
        cascade({"A": "K", "Z": "K N"}, "Z[k, n] = A[k]"), {"A": arrays()["A"][:, 0]}, rank_sizes={"N": 4}
    )
    with refused("too-large", "N"):
        found.check()
