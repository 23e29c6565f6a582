"""Points of the output that are met in several parts of a rank cut by data: each is one output."""

from __future__ import annotations

from random import Random
from typing import Any

import numpy as np
import pytest
import yaml

import polymodel as pm
from polymodel.sparse.execute import check as checking
from polymodel.sparse.execute.run import run
from polymodel.sparse.tensor import SparseTensor
from polymodel.sparse.traffic import traffic
from polymodel.spec.teaal import read_teaal
from polymodel.spec.teaal.records import TeaalSpec
from tests.sparse.cascades import cascade, sparse
from tests.sparse.random_cascades import MATMUL, MATRICES


def cut_columns(expression: str = MATMUL) -> TeaalSpec:
    """Loops K N1 M N0, the parts of N one coordinate of each row of B."""
    split = {"Z": {"N": ["uniform_occupancy(B.1)"]}}
    return cascade(MATRICES, expression, partitioning=split, loop_order={"Z": ["K", "N1", "M", "N0"]})


A = np.array([[1], [1]])
# Row 0 has the parts 0: {0} and 2: {2}, row 1 the part 0: {2}; n = 2 lies in the part 2, then in the part 0.
B = np.array([[5, 0, 7], [0, 0, 11]])


@pytest.mark.parametrize("keep", [False, True])
@pytest.mark.parametrize("values", [False, True])
def test_a_point_in_two_parts_by_hand(keep: bool, values: bool) -> None:
    """Three products, 5 for n = 0 and 7 and 11 for n = 2: two outputs and one add."""
    found = run(cut_columns(), {"A": A, "B": B}, keep_loops=keep, values=values)
    (z,) = found.einsums
    assert (z.multiplies, z.updates, z.output_nnz, z.adds_excluding_first_touch) == (3, 3, 2, 1)
    assert z.zeros == 0
    if values:
        assert found.results["Z"].to_dense().tolist() == [[5, 0, 18]]


def test_values_of_two_parts_that_cancel_are_one_zero() -> None:
    found = run(cut_columns(), {"A": A, "B": np.array([[5, 0, 7], [0, 0, -7]])})
    assert (found.einsums[0].output_nnz, found.einsums[0].zeros, found.results["Z"].nnz) == (2, 1, 1)


def test_a_part_that_is_zero_by_itself_is_no_zero() -> None:
    """1 * 2 + 1 * -2 in the part of k = 0 and 3 in that of k = 1; A has two rows k in one part."""
    declared = {"A": "K J M", "B": "K J N", "Z": "M N"}
    split = {"Z": {"N": ["uniform_occupancy(B.1)"]}}
    order = {"Z": ["K", "N1", "M", "J", "N0"]}
    text = "Z[m, n] = A[k, j, m] * B[k, j, n]"
    spec = cascade(declared, text, partitioning=split, loop_order=order)
    b = np.array([[[1, 0, 2], [0, 0, -2]], [[0, 0, 3], [0, 0, 0]]])
    found = run(spec, {"A": np.ones((2, 2, 1), dtype=int), "B": b})
    assert (found.einsums[0].output_nnz, found.einsums[0].zeros) == (2, 0)
    assert found.results["Z"].to_dense().tolist() == [[1, 0, 3]]


def test_a_take_keeps_the_last_value_over_parts() -> None:
    """It overwrites what another part of the same point took before; it does not add."""
    found = run(cut_columns("Z[m, n] = take(A[k, m], B[k, n], 1)"), {"A": A, "B": B})
    assert found.results["Z"].to_dense().tolist() == [[5, 0, 11]]
    assert (found.einsums[0].output_nnz, found.einsums[0].adds_excluding_first_touch) == (2, 0)


def test_many_parts_counted_without_values() -> None:
    """n = 299 lies in 256 parts, more than a byte holds: (0, 1) and (k + 2, 299) are the parts of row k."""
    b = np.zeros((256, 300), dtype=int)
    b[:, [0, 1, 299]] = 1
    b[np.arange(256), np.arange(256) + 2] = 1
    order = {"Z": ["K", "N1", "M", "N0"]}
    split = {"Z": {"N": ["uniform_occupancy(B.2)"]}}
    spec = cascade(MATRICES, MATMUL, partitioning=split, loop_order=order)
    for values in (True, False):
        (z,) = run(spec, {"A": np.ones((256, 1), dtype=int), "B": b}, values=values).einsums
        assert (z.multiplies, z.output_nnz, z.adds_excluding_first_touch) == (1024, 259, 765)


def parted(rnd: Random) -> tuple[dict[str, list[str]], list[str]]:
    """A random partitioning of the three ranks, up to two levels, by shape and by data; and a loop order."""
    leaders = {"K": "AB", "M": "A", "N": "B"}
    splits: dict[str, list[str]] = {}
    for rank, tensors in leaders.items():
        made = []
        for step in sorted(rnd.sample([1, 2, 3, 4, 6], rnd.randrange(3)), reverse=True):
            leader = rnd.choice(tensors)
            by_data = rnd.random() < 0.7 or (made and "occupancy" in made[-1])
            made.append(f"uniform_occupancy({leader}.{step})" if by_data else f"uniform_shape({step})")
        if made:
            splits[rank] = made
    chains = [[f"{r}{i}" for i in range(len(splits.get(r, [])), -1, -1)] for r in leaders]
    chains = [c if len(c) > 1 else [c[0][0]] for c in chains]
    order = []
    while any(chains):
        order.append(rnd.choice([c for c in chains if c]).pop(0))
    return splits, order


BOUND: dict[str, Any] = {
    "format": {
        t: {"C": {"rank-order": [r], r: {"format": "C", "cbits": 32, "pbits": 32}}}
        for t, r in (("A", "K"), ("B", "N"))
    },
    "architecture": {
        "accel": [
            {
                "name": "System",
                "attributes": {"clock_frequency": 10**9},
                "local": [
                    {"name": "Mul", "class": "Compute", "attributes": {"type": "mul"}},
                    {"name": "Add", "class": "Compute", "attributes": {"type": "add"}},
                ],
            }
        ]
    },
    "bindings": {
        "Z": [
            {"config": "accel", "prefix": "z"},
            {"component": "Mul", "bindings": [{"op": "mul"}]},
            {"component": "Add", "bindings": [{"op": "add"}]},
        ]
    },
}


def agrees(seed: int) -> bool:
    """One random partitioning: execute, traffic and the check against plain products of matrices.

    False where the executor refuses it.
    """
    rnd, rng = Random(seed), np.random.default_rng(seed)
    splits, order = parted(rnd)
    sizes = {r: rnd.randint(1, 12) for r in "KMN"}
    a = sparse(rng, (sizes["K"], sizes["M"]), rnd.choice([0.2, 0.5, 1]))
    b = sparse(rng, (sizes["K"], sizes["N"]), rnd.choice([0.2, 0.5, 1]))
    text = {
        "einsum": {"declaration": {t: list(r.split()) for t, r in MATRICES.items()}, "expressions": [MATMUL]},
        "mapping": {
            "partitioning": {"Z": splits},
            "loop-order": {"Z": order},
            "spacetime": {"Z": {"space": [], "time": order}},
        },
        **BOUND,
    }
    spec = read_teaal(yaml.safe_dump(text))
    products = int(((a != 0).sum(1) * (b != 0).sum(1)).sum())
    outputs = int(((a != 0).astype(int).T @ (b != 0).astype(int) > 0).sum())
    given = {"A": a, "B": b}
    try:
        found = run(spec, given)
    except pm.Refused:
        return False
    (z,) = found.einsums
    got = (z.multiplies, z.output_nnz, z.adds_excluding_first_touch, z.zeros)
    assert got == (products, outputs, products - outputs, 0), (seed, splits, order)
    assert np.array_equal(found.results["Z"].to_dense(), a.T @ b)
    assert found.check()[0].agrees
    (bare,) = run(spec, given, values=False).einsums
    assert (bare.output_nnz, bare.adds_excluding_first_touch) == (outputs, products - outputs)
    moved = traffic(spec, {t: SparseTensor.from_dense(t, MATRICES[t].split(), x) for t, x in given.items()})
    assert moved.einsum("Z").unit("Mul").total == products
    assert moved.einsum("Z").unit("Add").total == products - outputs
    return True


@pytest.mark.slow
@pytest.mark.parametrize("first", range(0, 200, 50))
@pytest.mark.thin(2)
def test_any_partitioning_has_the_same_outputs(first: int) -> None:
    ran = [agrees(seed) for seed in range(first, first + 50)]
    assert sum(ran) >= 25


def test_large_data_cut_by_data(monkeypatch: pytest.MonkeyPatch) -> None:
    """Against SciPy: the points of the result are the outputs where nothing cancels."""
    monkeypatch.setattr(checking, "DENSE", 0)
    rng = np.random.default_rng(3)
    a, b = sparse(rng, (90, 80), 0.06), sparse(rng, (90, 70), 0.08)
    columns = ["uniform_occupancy(B.8)", "uniform_occupancy(B.2)"]
    split = {"Z": {"K": ["uniform_shape(16)"], "M": ["uniform_occupancy(A.8)"], "N": columns}}
    order = {"Z": ["K1", "M1", "N2", "N1", "K0", "M0", "N0"]}
    found = run(cascade(MATRICES, MATMUL, partitioning=split, loop_order=order), {"A": a, "B": b})
    (checked,), (z,) = found.check(), found.einsums
    assert checked.agrees
    assert z.output_nnz == checked.points == int(np.count_nonzero(a.T @ b))
    assert z.adds_excluding_first_touch == z.multiplies - z.output_nnz
