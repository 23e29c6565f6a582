"""Values on sparse data: those of the same data as arrays, whatever operator decides what may be left out."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from scipy.sparse import csr_array, random_array
from scipy.sparse.csgraph import dijkstra

import polymodel as pm

FAR = float("inf")


def spec(operations: dict[str, str], output: list[str], *reads: tuple[str, Any], **more: Any) -> pm.Spec:
    accesses = [{"name": name, "projection": ranks} for name, ranks in reads]
    made = {"name": "Z", "projection": output, "output": True}
    einsum = {"name": "Z", "tensor_accesses": [*accesses, made], "operations": operations}
    used = {rank.upper() for _, ranks in reads for rank in ranks}
    ranks = {rank: size for rank, size in (("M", 4), ("K", 5), ("N", 3)) if rank in used}
    sizes = {"rank_sizes": ranks, "bits_per_value": {"All": 8}}
    return pm.load({"workload": {**sizes, "einsums": [einsum], **more}})


A, B, C = ("A", ["m", "k"]), ("B", ["k", "n"]), ("C", ["k"])
CASES: list[tuple[dict[str, str], list[str], tuple[tuple[str, Any], ...], dict[str, float]]] = [
    ({}, ["m", "n"], (A, B), {}),
    ({}, ["m", "n"], (A, B, C), {}),
    ({"map": "mul", "reduce": "max"}, ["m", "n"], (A, B), {}),  # a product that is left out is 0
    ({"map": "add", "reduce": "min"}, ["m", "n"], (A, B), {"A": FAR, "B": FAR, "Z": FAR}),
    ({"map": "add", "reduce": "max"}, ["n"], (A, B), {"A": -FAR, "B": -FAR, "Z": -FAR}),
    ({"map": "min", "reduce": "max"}, ["m", "n"], (A, B), {"A": -FAR, "B": -FAR, "Z": -FAR}),
    ({"map": "add", "reduce": "min"}, ["m", "n"], (A, B), {"A": FAR, "Z": FAR}),
    ({"map": "exp"}, ["m", "k"], (A,), {}),
    ({"map": "_0 * exp(_1)", "populate": "relu; _ + 1"}, ["m"], (A, C), {}),
    ({"map": "max"}, ["m", "k"], (A, C), {}),
    ({"map": "select"}, ["m", "k", "n"], (A, B), {}),
    ({"map": "exp(_0 - _1)"}, ["m", "k"], (A, C), {"A": -FAR}),
    ({"map": "_0 ** 2 / (_1 + 2)"}, ["m"], (A, C), {}),
]


@pytest.mark.parametrize("number", range(len(CASES)))
def test_values_are_those_of_arrays(number: int) -> None:
    operations, output, reads, default = CASES[number]
    random = np.random.default_rng(number)
    shapes = {"A": (4, 5), "B": (5, 3), "C": (5,)}
    sparse: dict[str, Any] = {}
    dense: dict[str, Any] = {}
    one = spec(operations, output, *reads, default={t: str(x) for t, x in default.items()})
    for name, ranks in reads:
        held = random.random(shapes[name]) < 0.4
        data = random.uniform(-2, 2, shapes[name])
        sparse[name] = pm.SparseTensor.from_coo(
            name, [r.upper() for r in ranks], shapes[name], np.array(np.nonzero(held)), data[held]
        )
        dense[name] = np.where(held, data, default.get(name, 0.0))
    want = pm.values(one, dense)["Z"]
    np.testing.assert_allclose(pm.values(one, sparse)["Z"], want, rtol=1e-13, equal_nan=False)
    some = {**sparse, reads[-1][0]: dense[reads[-1][0]]}
    np.testing.assert_allclose(pm.values(one, some)["Z"], want, rtol=1e-13, equal_nan=False)


def paths(nodes: int, generations: int) -> pm.Spec:
    """Shortest paths as EDGE has them: the least sum of a distance and an edge, or what was known before."""
    read = {"name": "D", "projection": {"P": "p", "U": "v"}}
    made = {"name": "D", "projection": {"P": "p + 1", "U": "v"}, "output": True}
    relaxed = [{"name": "D", "projection": ["p", "u"]}, {"name": "W", "projection": ["u", "v"]},
               {"name": "N", "projection": ["p", "v"], "output": True}]  # fmt: skip
    return pm.load({"workload": {
        "rank_sizes": {"P": generations, "U": nodes, "V": nodes}, "bits_per_value": {"All": 32},
        "default": {"W": "inf", "D": "inf", "N": "inf"}, "init": {"D": "D0"},
        "einsums": [
            {"name": "N", "tensor_accesses": relaxed, "operations": {"map": "add", "reduce": "min"}},
            {"name": "D", "tensor_accesses": [{"name": "N", "projection": ["p", "v"]}, read, made],
             "operations": {"map": "min"}},
        ],
    }})  # fmt: skip


def distances(graph: csr_array, generations: int) -> tuple[np.ndarray, int]:
    nodes = graph.shape[0]
    start = np.full(nodes, FAR)
    start[0] = 0
    edges = pm.SparseTensor.from_scipy("W", ["U", "V"], graph)
    found = pm.values(paths(nodes, generations), {"W": edges, "D0": start}, until="fixed_point")
    return found["D"][-1], found.generations["p"]


def test_shortest_paths_of_a_small_graph() -> None:
    graph = csr_array(random_array((30, 30), density=0.08, random_state=5))
    found, generations = distances(graph, 31)
    np.testing.assert_allclose(found, dijkstra(graph, indices=0))
    assert 1 < generations < 31


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(3))
def test_shortest_paths_of_a_hundred_thousand_edges(seed: int) -> None:
    nodes, random = 20_000, np.random.default_rng(seed)
    places = np.unique(random.integers(0, nodes**2, 101_000))[:100_000]
    graph = csr_array((random.uniform(0.1, 1, 100_000), (places // nodes, places % nodes)), (nodes, nodes))
    found, generations = distances(graph, 60)
    np.testing.assert_allclose(found, dijkstra(graph, indices=0), rtol=1e-12)
    assert generations < 60


@pytest.mark.slow
def test_shortest_paths_of_a_long_grid() -> None:
    """160 x 160 places, 101,760 edges: some hundred generations."""
    side, random = 160, np.random.default_rng(2)
    place = np.arange(side * side).reshape(side, side)
    pairs = np.concatenate([np.stack([place[:, :-1].ravel(), place[:, 1:].ravel()]),
                            np.stack([place[:-1].ravel(), place[1:].ravel()])], axis=1)  # fmt: skip
    pairs = np.concatenate([pairs, pairs[::-1]], axis=1)
    graph = csr_array((random.uniform(1, 2, pairs.shape[1]), (pairs[0], pairs[1])))
    assert graph.nnz == 101_760
    found, generations = distances(graph, 600)
    np.testing.assert_allclose(found, dijkstra(graph, indices=0), rtol=1e-12)
    assert 2 * side - 2 <= generations < 600
