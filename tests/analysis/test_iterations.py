"""Iterated workloads on data: solvers, scans and graph algorithms give what NumPy, SciPy, networkx give."""

from __future__ import annotations

import numpy as np
import pytest

import polymodel as pm

Ranks = dict[str, str]
Einsum = dict[str, object]


def einsum(output: tuple[str, Ranks], *read: tuple[str, Ranks], **operations: str) -> Einsum:
    accesses = [{"name": name, "projection": ranks} for name, ranks in read]
    made = {"name": output[0], "projection": output[1], "output": True}
    return {"name": output[0], "tensor_accesses": [*accesses, made], "operations": operations}


def workload(sizes: dict[str, int], *einsums: Einsum | str, **more: object) -> pm.Spec:
    ranked = {"rank_sizes": sizes, "bits_per_value": {"All": 64}}
    return pm.load({"workload": {**ranked, "einsums": list(einsums), **more}})


def conjugate_gradients(size: int, steps: int) -> pm.Spec:
    """A cycle of nine Einsums: two products of vectors and one with the matrix in each step."""
    now, after, one = {"K": "k", "U": "u"}, {"K": "k + 1", "U": "u"}, {"K": "k"}
    return workload(
        {"K": steps, "U": size, "V": size},
        einsum(("AD", now), ("A", {"U": "u", "V": "v"}), ("D", {"K": "k", "U": "v"})),
        einsum(("RR", one), ("R", now), ("R", now)),
        einsum(("DAD", one), ("D", now), ("AD", now)),
        einsum(("STEP", one), ("RR", one), ("DAD", one), map="divide"),
        einsum(("X", after), ("X", now), ("STEP", one), ("D", now), map="_0 + _1 * _2"),
        einsum(("R", after), ("R", now), ("STEP", one), ("AD", now), map="_0 - _1 * _2"),
        einsum(("SS", one), ("R", after), ("R", after)),
        einsum(("TURN", one), ("SS", one), ("RR", one), map="divide"),
        einsum(("D", after), ("R", after), ("TURN", one), ("D", now), map="_0 + _1 * _2"),
        init={"X": 0, "R": "B", "D": "B"},
    )


def test_conjugate_gradients_solve_a_system() -> None:
    rng = np.random.default_rng(3)
    half = rng.normal(size=(40, 40))
    matrix, right = half @ half.T + 40 * np.eye(40), rng.normal(size=40)

    def small(newest: dict[str, np.ndarray]) -> bool:
        return bool(np.linalg.norm(newest["R"]) < 1e-11)

    found = pm.values(conjugate_gradients(40, 80), {"A": matrix, "B": right}, until=small)
    assert np.abs(found["X"][-1] - np.linalg.solve(matrix, right)).max() < 1e-12
    assert found.generations["k"] < 40


def test_a_selective_scan_is_a_loop() -> None:
    """Mamba (Gu and Dao, 2023, algorithm 2): the state is scaled by exp(delta A) and moved by delta B x."""
    now, whole = {"T": "t", "D": "d"}, {"T": "t", "D": "d", "N": "n"}
    after = {**whole, "T": "t + 1"}
    spec = workload(
        {"T": 30, "D": 6, "N": 4},
        einsum(("DA", whole), ("S", now), ("A", {"D": "d", "N": "n"}), map="exp(_0 * _1)"),
        "DBX[t, d, n] = S[t, d] * B[t, n] * X[t, d]",
        einsum(("H", after), ("H", whole), ("DA", whole), ("DBX", whole), map="_0 * _1 + _2"),
        einsum(("Y", now), ("H", after), ("C", {"T": "t", "N": "n"})),
        init={"H": 0},
    )
    rng = np.random.default_rng(4)
    x, b, c = rng.normal(size=(30, 6)), rng.normal(size=(30, 4)), rng.normal(size=(30, 4))
    step, decay = rng.uniform(0.01, 0.1, (30, 6)), -rng.uniform(1, 5, (6, 4))
    found = pm.values(spec, {"X": x, "B": b, "C": c, "S": step, "A": decay})
    state, want = np.zeros((6, 4)), np.zeros((30, 6))
    for t in range(30):
        state = np.exp(step[t][:, None] * decay) * state + step[t][:, None] * b[t] * x[t][:, None]
        want[t] = state @ c[t]
    assert np.abs(found["Y"] - want).max() < 1e-12


def graphs() -> dict[str, np.ndarray]:
    """Adjacency, from column to row, of graphs with 100,000 edges: even, with hubs, and a strip."""
    rng = np.random.default_rng(6)
    weight = rng.pareto(1.5, 1000) + 0.1
    hubs = rng.choice(1000, (400_000, 2), p=weight / weight.sum())
    hubs = np.unique(hubs[hubs[:, 0] != hubs[:, 1]], axis=0)
    strip = np.abs(np.subtract.outer(np.arange(1000), np.arange(1000)))
    found = {"even": rng.random((1000, 1000)) < 0.1, "strip": (strip <= 51) & (strip > 0)}
    found["hubs"] = np.zeros((1000, 1000), bool)
    found["hubs"][tuple(rng.permutation(hubs)[:100_000].T)] = True
    return found


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["even", "hubs", "strip"])
def test_page_ranks_are_those_of_networkx(kind: str) -> None:
    networkx = pytest.importorskip("networkx")
    pytest.importorskip("scipy")
    edges = graphs()[kind]
    assert 90_000 < edges.sum() < 110_000
    graph = networkx.from_numpy_array(edges.T.astype(int), create_using=networkx.DiGraph)
    out = edges.sum(0)
    spread = np.where(out, edges / np.maximum(out, 1), 1 / 1000)
    step = {"P": "p + 1", "U": "v"}
    spec = workload(
        {"P": 200, "U": 1000, "V": 1000},
        einsum(("M", {"P": "p", "V": "v"}), ("G", {"V": "v", "U": "u"}), ("R", {"P": "p", "U": "u"})),
        einsum(("R", step), ("M", {"P": "p", "V": "v"}), map=f"0.85 * _0 + {0.15 / 1000!r}"),
        init={"R": 0.001},
    )
    ranks: list[np.ndarray] = [np.zeros(1000)]

    def settled(newest: dict[str, np.ndarray]) -> bool:
        ranks.append(newest["R"].copy())
        return bool(np.abs(ranks[-1] - ranks[-2]).sum() < 1e-13)

    found = pm.values(spec, {"G": spread}, until=settled)
    want = networkx.pagerank(graph, alpha=0.85, tol=1e-15, max_iter=500)
    assert np.abs(found["R"][-1] - np.array([want[v] for v in range(1000)])).max() < 1e-12
    assert found.generations["p"] < 200


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["even", "hubs", "strip"])
def test_levels_and_distances_are_those_of_networkx_and_scipy(kind: str) -> None:
    networkx, csgraph = pytest.importorskip("networkx"), pytest.importorskip("scipy.sparse.csgraph")
    edges = graphs()[kind]
    rng = np.random.default_rng(8)
    lengths = np.where(edges, rng.integers(1, 50, edges.shape), np.inf)
    reached, known = {"P": "p", "V": "v"}, {"P": "p", "U": "v"}
    spec = workload(
        {"P": 60, "U": 1000, "V": 1000},
        einsum(
            ("N", reached),
            ("W", {"V": "v", "U": "u"}),
            ("D", {"P": "p", "U": "u"}),
            map="add",
            reduce="min",
        ),
        einsum(("D", {**known, "P": "p + 1"}), ("N", reached), ("D", known), map="min"),
        init={"D": "D0"},
    )
    start = np.full(1000, np.inf)
    start[0] = 0
    graph = networkx.from_numpy_array(edges.T.astype(int), create_using=networkx.DiGraph)
    levels = networkx.single_source_shortest_path_length(graph, 0)
    ones = np.where(edges, 1.0, np.inf)
    found = pm.values(spec, {"W": ones, "D0": start}, until="fixed_point")["D"][-1]
    assert found.tolist() == [levels.get(v, np.inf) for v in range(1000)]
    found = pm.values(spec, {"W": lengths, "D0": start}, until="fixed_point")["D"][-1]
    want = csgraph.dijkstra(np.where(edges, lengths, 0).T, indices=0)
    assert np.array_equal(found, want)
