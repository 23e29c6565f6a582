"""Densities of computed tensors against all placements, and fused cascades with sparse intermediates."""

from __future__ import annotations

from itertools import combinations, product

import numpy as np
import pytest

import polymodel as pm
from polymodel.sparse.actions.inputs import tensor_data
from polymodel.sparse.density import Uniform
from polymodel.sparse.tensor import SparseTensor
from tests.sparse.actions.small import RANKS, WINDOWS, product_of


def mean_density(sizes: dict[str, int], nnz: dict[str, int], projections=RANKS) -> float:
    """Share of nonzero points of Z over every placement of the nonzeros of A and B, point by point."""
    cascade = product_of(projections, sizes)
    (einsum,) = cascade.einsums
    top = {v: n - 1 for v, n in sizes.items()}
    placements = []
    for t in ("A", "B"):
        shape = [x.value(top) + 1 for x in einsum.access_of(t).projection]
        placements.append(list(combinations(product(*map(range, shape)), nnz[t])))
    found, total = 0, 0
    for a, b in product(*placements):
        hit = set()
        for values in product(*(range(n) for n in sizes.values())):
            point = dict(zip(sizes, values, strict=True))
            at = {x.tensor: tuple(p.value(point) for p in x.projection) for x in einsum.accesses}
            if at["A"] in a and at["B"] in b:
                hit.add(at["Z"])
        found += len(hit)
        total += 1
    return found / total


@pytest.mark.parametrize(
    ("sizes", "nnz"),
    [
        ({"m": 2, "k": 3, "n": 2}, {"A": 2, "B": 3}),
        ({"m": 1, "k": 4, "n": 2}, {"A": 3, "B": 2}),
        ({"m": 2, "k": 2, "n": 2}, {"A": 1, "B": 4}),
    ],
)
def test_the_density_of_a_product_is_the_mean_over_all_placements(sizes, nnz) -> None:
    cascade = product_of(RANKS, sizes)
    models = {}
    for t in ("A", "B"):
        shape = [sizes[v] for v in RANKS[t]]
        models[t] = Uniform.of(("R0", "R1"), shape, nnz=nnz[t])
    z = tensor_data(cascade, densities=models)["Z"]
    assert z.density * sizes["m"] * sizes["n"] == pytest.approx(mean_density(sizes, nnz), rel=1e-12)


def test_the_density_of_a_window_of_one_sparse_tensor_is_exact() -> None:
    sizes = {"p": 3, "r": 2, "n": 1}
    cascade = product_of(WINDOWS, sizes)
    z = tensor_data(cascade, densities={"A": Uniform.of(("R0",), (4,), nnz=2)})["Z"]
    assert z.density * 3 == pytest.approx(mean_density(sizes, {"A": 2, "B": 2}, WINDOWS), rel=1e-12)


def sparse_of(name: str, ranks: tuple[str, ...], dense: np.ndarray) -> SparseTensor:
    return SparseTensor.from_dense(name, ranks, dense)


def test_the_pattern_of_a_product_of_data_is_that_of_the_matrix_product() -> None:
    rng = np.random.default_rng(5)
    a, b = (rng.random((9, 7)) < 0.3).astype(int), (rng.random((7, 5)) < 0.4).astype(int)
    cascade = product_of(RANKS, {"m": 9, "k": 7, "n": 5})
    tensors = {"A": sparse_of("A", ("R0", "R1"), a), "B": sparse_of("B", ("R0", "R1"), b)}
    z = tensor_data(cascade, tensors)["Z"].actual
    assert z is not None
    assert (z.to_dense() == (a @ b > 0)).all()
    one = tensor_data(cascade, {"A": tensors["A"]})["Z"].actual
    assert one is not None
    assert (one.to_dense() == np.repeat(a.any(axis=1)[:, None], 5, axis=1)).all()


FUSED = {
    "arch": {
        "nodes": [
            {"type": "Memory", "name": "DRAM", "size": "inf", "tensors": {"keep": "~Intermediates"},
             "sparse": {"format": {"A": "COO"}}},
            {"type": "Memory", "name": "GLB", "size": "inf", "tensors": {"keep": "All"},
             "sparse": {"format": {"T": "COO"},
                        "actions": [{"skip": "C", "on": "T"}, {"skip": "B", "on": "A"}]}},
            {"type": "Compute", "name": "MAC",
             "sparse": {"actions": [{"skip": "compute", "on": "Inputs"}]}},
        ]
    },
    "workload": {
        "rank_sizes": {"M": 6, "K": 5, "N": 4, "P": 3},
        "bits_per_value": {"All": 8},
        "einsums": ["T[m, n] = A[m, k] * B[k, n]", "Z[m, p] = T[m, n] * C[n, p]"],
    },
    "mapping": {
        "nodes": [
            {"type": "Storage", "component": "DRAM", "tensors": ["A", "B", "C", "Z"]},
            {"type": "Storage", "component": "GLB", "tensors": ["B", "C"]},
            {"type": "Temporal", "rank_variable": "m", "tile_shape": 2},
            {"type": "Storage", "component": "GLB", "tensors": ["A", "T", "Z"]},
            {"type": "Sequential", "nodes": [
                {"type": "Nested", "nodes": [
                    {"type": "Temporal", "rank_variable": v, "tile_shape": 1} for v in ("m", "n", "k")
                ] + [{"type": "Compute", "einsum": "T", "component": "MAC"}]},
                {"type": "Nested", "nodes": [
                    {"type": "Temporal", "rank_variable": v, "tile_shape": 1} for v in ("m", "p", "n")
                ] + [{"type": "Compute", "einsum": "Z", "component": "MAC"}]},
            ]},
        ]
    },
}  # fmt: skip


def test_a_fused_cascade_counts_its_sparse_intermediate() -> None:
    """Against loops over all points, on data."""
    report = pm.evaluate(pm.load(FUSED))
    rng = np.random.default_rng(2)
    a, b = (rng.random((6, 5)) < 0.3).astype(int), (rng.random((5, 4)) < 0.5).astype(int)
    tensors = {"A": sparse_of("A", ("M", "K"), a), "B": sparse_of("B", ("K", "N"), b)}
    found = pm.sparsify(report, tensors)
    t = a @ b > 0
    work = {c.einsum: c for c in found.counts.compute}
    assert work["T"].effectual == sum(a[m, k] * b[k, n] for m in range(6) for k in range(5) for n in range(4))
    assert work["Z"].effectual == t.sum() * 3
    assert {c.ineffectual for c in work.values()} == {0}
    reads = {(x.einsum, x.component, x.tensor, x.kind): x for x in found.counts.accesses}
    assert reads["Z", "GLB", "T", "reads_fill"].actual == t.sum() * 3
    assert reads["Z", "GLB", "C", "reads_fill"].actual == t.sum() * 3
    assert reads["Z", "GLB", "C", "reads_fill"].skipped == (~t).sum() * 3
    assert reads["T", "DRAM", "A", "reads_fill"].actual == a.sum()
    assert reads["T", "GLB", "B", "reads_fill"].actual == a.sum() * 4
    assert {x.label for x in found.counts.accesses} == {"exact"}
    assert found.label == "expected"  # metadata of T go with the share of its transfers that is left
    (tile,) = (f for f in found.counts.footprints if f.tensor == "T")
    most = max(int(t[m : m + 2].sum()) for m in range(0, 6, 2))
    assert tile.bits == most * (8 + 1 + 2)  # a value, and coordinates of 2 rows and 4 columns


def test_a_fused_cascade_with_densities_is_close_to_random_data() -> None:
    report = pm.evaluate(pm.load(FUSED))
    found = pm.sparsify(report, densities={"A": 0.3, "B": 0.5})
    assert found.label in ("expected", "bound")
    z = found.data["T"].density
    assert 0 < z < 1
    work = {c.einsum: c for c in found.counts.compute}
    assert work["Z"].effectual == pytest.approx(6 * 4 * 3 * z)
    given = pm.sparsify(report, densities={"A": 0.3, "B": 0.5, "T": 0.25})
    assert {c.einsum: c for c in given.counts.compute}["Z"].effectual == 6 * 4 * 3 * 0.25


def test_a_computed_leader_spares_as_much_as_it_is_empty() -> None:
    """Its density is not a whole number of nonzeros; reads gated by single points follow it all the same."""
    report = pm.evaluate(pm.load("matmul_chain_2", "simple_two_level", "matmul_chain_2/unfused"))
    data = tensor_data(
        report.problem.cascade, densities={report.problem.cascade.einsums[0].inputs[0].tensor: 0.01}
    )
    made = data[report.problem.cascade.einsums[0].outputs[0].tensor]
    assert made.share is not None
    one = tuple(np.array([1]) for _ in made.model.ranks)
    assert made.nonempty(one)[0] == pytest.approx(made.share, rel=1e-12)
    whole = tuple(np.array([s]) for s in made.model.shape)
    assert made.nonempty(whole)[0] == pytest.approx(1)


def graph_layer(order: str) -> pm.Spec:
    """Features times weights, then a sum over neighbours; the multiplier skips on edges and features."""
    skips = [{"skip": "compute", "on": "A"}, {"skip": "compute", "on": "X"}]
    nests = [(einsum, [loop(v) for v in loops]) for einsum, loops in (("T", "jfh"), ("Z", order))]
    stages = [[*loops, {"type": "Compute", "einsum": e, "component": "MAC"}] for e, loops in nests]
    return pm.load(
        {
            "schema_version": 1,
            "arch": {
                "nodes": [
                    {"type": "Memory", "name": "DRAM", "tensors": {"keep": "All"}, "actions": []},
                    {"type": "Compute", "name": "MAC", "actions": [], "sparse": {"actions": skips}},
                ]
            },
            "workload": {
                "rank_sizes": {"I": 40, "J": 40, "F": 12, "H": 6},
                "bits_per_value": {"All": 8},
                "einsums": ["T[j, h] = X[j, f] * W[f, h]", "Z[i, h] = A[i, j] * T[j, h]"],
            },
            "mapping": {
                "nodes": [
                    {"type": "Storage", "component": "DRAM", "tensors": ["A", "X", "W", "T", "Z"]},
                    {"type": "Sequential", "nodes": [{"type": "Nested", "nodes": s} for s in stages]},
                ]
            },
        }
    )


def loop(variable: str) -> dict[str, object]:
    return {"type": "Temporal", "rank_variable": variable, "tile_shape": 1}


@pytest.mark.parametrize("order", ["ijh", "hij", "jhi"])
def test_a_graph_layer_writes_only_what_was_summed(order: str) -> None:
    """One write of Z per executed operation: of each edge and each hidden feature, of 9,600 dense ones."""
    rng = np.random.default_rng(len(order))
    edges, features = (rng.random((40, 40)) < 0.04).astype(int), (rng.random((40, 12)) < 0.1).astype(int)
    report = pm.evaluate(graph_layer(order))
    given_data = {"A": sparse_of("A", ("I", "J"), edges), "X": sparse_of("X", ("J", "F"), features)}
    known = pm.sparsify(report, given_data)
    expected = pm.sparsify(report, densities={"A": edges.mean(), "X": features.mean()})
    for found, label in ((known, "exact"), (expected, "expected")):
        (work,) = (c for c in found.counts.compute if c.einsum == "Z")
        (write,) = (
            a for a in found.counts.accesses if (a.tensor, a.kind, a.einsum) == ("Z", "writes_drain", "Z")
        )
        assert (write.dense, write.label) == (9_600, label)
        assert write.actual == pytest.approx(edges.sum() * 6) == pytest.approx(work.executed)
