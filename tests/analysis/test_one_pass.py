"""Attention in one pass: values, traffic, and the room that it needs, whatever the number of chunks."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import polymodel as pm
from polymodel.workload.einsum import passes
from tests.analysis.test_agreement import differences
from tests.faults import every_fault, refused
from tests.support.small_specs import memory, unit

MAPPING = "attention_one_pass/one_pass"
FILE = Path(__file__).parents[2] / "workloads" / "attention_one_pass" / "simple_two_level" / "one_pass.yaml"


def softmax(q: np.ndarray, k: np.ndarray, v: np.ndarray) -> np.ndarray:
    scores = np.einsum("hpe,hme->hpm", q, k)
    weights = np.exp(scores - scores.max(-1, keepdims=True))
    return np.asarray(np.einsum("hpm,hmf->hpf", weights / weights.sum(-1, keepdims=True), v))


@pytest.mark.parametrize("chunks", [1, 2, 7])
def test_values_are_those_of_attention(chunks: int) -> None:
    rng = np.random.default_rng(chunks)
    spec = pm.load("attention_one_pass", H=2, C=chunks, M=5, P=9, E=6)
    q, k, v = (rng.normal(0, 3, (2, *shape)) for shape in ((9, 6), (chunks, 5, 6), (chunks, 5, 6)))
    found = pm.values(spec, {"Q": q, "K": k, "V": v})
    want = softmax(q, k.reshape(2, -1, 6), v.reshape(2, -1, 6))
    assert np.abs(found["AV"] - want).max() < 1e-12
    assert found.generations == {"c": chunks}


def test_two_passes_compute_attention_as_well() -> None:
    rng = np.random.default_rng(2)
    q, k, v = (rng.normal(0, 3, (2, *shape)) for shape in ((9, 6), (4, 5, 6), (4, 5, 6)))
    found = pm.values(pm.load("attention_two_pass", H=2, C=4, M=5, P=9, E=6), {"Q": q, "K": k, "V": v})
    want = softmax(q, k.reshape(2, -1, 6), v.reshape(2, -1, 6))
    assert np.abs(found["AV"] - want).max() < 1e-12


@pytest.mark.parametrize(("p", "tiles"), [(16, 2), (20, 3)])
def test_keys_and_values_pass_once_for_each_tile_of_queries(p: int, tiles: int) -> None:
    """FlashAttention's traffic: Q and the result once, K and V once for every tile of 8 queries."""
    spec = pm.load("simple_two_level", MAPPING, H=2, C=3, M=4, P=p, E=6)
    found = pm.evaluate(spec)
    moved = {
        t.tensor: t.reads_fill + t.writes_drain
        for t in found.analysis.traffic
        if t.component == "DRAM" and t.reads_fill + t.writes_drain
    }
    keys = 2 * 3 * 4 * 6
    assert moved == {"Q": 2 * p * 6, "K": tiles * keys, "V": tiles * keys, "AV": 2 * p * 6}


def test_the_last_chunk_of_keys_may_be_shorter() -> None:
    """Ten keys in chunks of four: values are those of attention over ten, and no more keys are moved."""
    sizes = {"H": 1, "M": 4, "LENGTH": 10, "P": 5, "E": 3}
    rng = np.random.default_rng(4)
    q, k, v = (rng.normal(0, 3, (1, *shape)) for shape in ((5, 3), (3, 4, 3), (3, 4, 3)))
    want = softmax(q, *(x.reshape(1, -1, 3)[:, :10] for x in (k, v)))
    found = pm.values(pm.load("attention_one_pass", **sizes), {"Q": q, "K": k, "V": v})
    assert np.abs(found["AV"] - want).max() < 1e-12
    spec = pm.load("simple_two_level", MAPPING, TP=2, **sizes)
    referee, *others = (pm.evaluate(spec, engine=e).analysis for e in ("enumerate", "exact", "symbolic"))
    assert not any(differences(one, referee) for one in others)
    moved = {t.tensor: t.reads_fill for t in referee.traffic if t.component == "DRAM"}
    assert moved["K"] == moved["V"] == 3 * 10 * 3  # once for each tile of queries


def test_without_closed_forms_of_live_peaks_the_others_are_there() -> None:
    """Traffic, energy and latency do not depend on the allocation; what needs the peak is refused by name."""
    sizes = {"TP": "TP", "H": 1, "C": 2, "M": 2, "P": 4, "E": 2}
    live, whole = (
        pm.closed_forms(pm.load("simple_two_level", MAPPING, ALLOCATION=a, **sizes)) for a in ("live", "tile")
    )
    for name in ("accesses:DRAM", "energy", "latency"):
        assert live.value(name) == whole.value(name)
    with refused("unsupported-memory", "RM", kind=pm.NotSeparable):
        live.value("working_set:GLB")
    with refused("unsupported-memory", kind=pm.NotSeparable):
        live.table("working_sets")
    assert [name for name, _ in live.listed()] == [n for n in whole.tables if n != "working_sets"]
    assert any("no working sets" in note and "live" in note for note in live.notes)


@pytest.mark.slow
@pytest.mark.parametrize(("bits", "shared"), [(300, True), (3000, False)])
def test_a_search_finds_the_mapping_of_one_pass(bits: int, shared: bool) -> None:
    """In a small buffer Einsums share a loop over the chunks; each mapping found is evaluated."""
    arch = {"nodes": [memory("DRAM", 8e-12), memory("GLB", 1e-12, bits), unit()]}
    spec = pm.load({"arch": arch}, "attention_one_pass", H=1, C=4, M=4, P=8, E=4)
    found = pm.explore(spec, objectives="energy")
    assert found.complete
    assert found.gap < 1e-9
    mine, theirs = (dict(found[0].mapping.loops(e)) for e in ("QK", "RM"))
    assert any(loop.rank_variable == "c" for i, loop in mine.items() if i in theirs) == shared


@pytest.mark.slow
def test_a_search_finds_flash_attention_in_a_buffer_of_any_number_of_chunks() -> None:
    """Where few generations are alive, as much room as for four chunks is enough for sixteen."""
    arch = {"nodes": [memory("DRAM", 8e-12), memory("GLB", 1e-12, 900, allocation="live"), unit()]}
    rooms = set()
    for chunks in (4, 16):
        spec = pm.load({"arch": arch}, "attention_one_pass", H=1, C=chunks, M=4, P=8, E=4)
        best = pm.explore(spec, objectives="energy")[0]
        assert {t.tensor for t in best.report.analysis.traffic if t.component == "DRAM"} == {*"QKV", "AV"}
        rooms.add(max(n.bits for n in best.report.costs.needs if n.component == "GLB" and n.counts))
    assert rooms == {624}


@pytest.mark.slow
def test_closed_forms_are_the_formula_of_flash_attention() -> None:
    """Q and the result once, K and V once for each tile of queries; a sweep has the same numbers."""
    spec = pm.load("simple_two_level", MAPPING, TP="TP", H=2, C=3, M=4, P=20, E=6)
    found = pm.closed_forms(spec, ranks=True).value("accesses:DRAM")
    assert str(found) == "8*H*(E + F)*(C*M*ceiling(P/TP) + P)"
    swept = pm.sweep(spec, {"TP": [1, 3, 8, 20]}, keep="all").frame
    moved = (swept["reads:DRAM"] + swept["writes:DRAM"]).tolist()
    assert moved == [8 * 2 * 6 * (2 * 3 * 4 * -(-20 // tile) + 2 * 20) for tile in (1, 3, 8, 20)]


@pytest.mark.slow
def test_the_room_that_is_alive_does_not_depend_on_the_number_of_chunks() -> None:
    arch = {"nodes": [memory("DRAM", 8e-12), memory("GLB", 1e-12, allocation="live"), unit()]}
    rooms = set()
    for chunks in (3, 4, 7):  # with a chunk that is neither the first nor the last
        found = pm.evaluate(pm.load({"arch": arch}, "attention_one_pass", FILE, H=1, C=chunks, M=2, P=8, E=2))
        held = [w.bits for w in found.analysis.working_sets if (w.component, w.measure) == ("GLB", "live")]
        rooms.add(max(held))
    assert len(rooms) == 1


@pytest.mark.parametrize("length", [512, *(pytest.param(n, marks=pytest.mark.slow) for n in (4096, 131072))])
def test_sequences_of_any_length_need_the_room_of_their_tiles(length: int) -> None:
    """The most is alive while weights meet the second key of V, when one key of them is used up, or while the
    last query is scored."""
    for queries, keys in ((128, 64), (64, 128)):
        sizes = {"P": length, "C": length // keys, "M": keys, "TP": queries, "H": 1, "E": 128, "BITS": 16}
        found = pm.evaluate(pm.load("simple_two_level", MAPPING, ALLOCATION="live", GLB_KIB=128, **sizes))
        weighted = 3 * 128 * queries + 4 * queries + queries * (keys - 1) + 128
        scored = 2 * 128 * queries + 2 * queries + 128 * keys + queries * keys - (keys - 1)
        rows = [w for w in found.analysis.working_sets if (w.component, w.measure) == ("GLB", "live")]
        assert max(w.bits for w in rows) == 16 * max(weighted, scored)
        moved = sum(t.reads_fill + t.writes_drain for t in found.analysis.traffic if t.component == "DRAM")
        assert moved == 2 * 128 * (length * length // queries + length)
        assert found.feasible


def walks(workload: pm.Spec, tensor: str, rank: str) -> int:
    return next(p.passes for p in passes(workload.workload) if (p.tensor, p.rank) == (tensor, rank))


@pytest.mark.slow
def test_passes_over_keys_are_those_that_dependences_ask_for() -> None:
    """Three for a softmax with its maximum first, two with maxima of chunks that are corrected, one with
    running ones; within a chunk its own maximum asks for a second."""
    assert walks(pm.load("attention_cascade"), "K", "P") == 3
    assert [walks(pm.load("attention_one_pass"), "K", rank) for rank in ("C", "M", "E")] == [1, 2, 1]
    assert [walks(pm.load("attention_two_pass"), "K", rank) for rank in ("C", "M", "E")] == [2, 2, 1]
    assert walks(pm.load("matmul"), "A", "K") == 1
    report = pm.evaluate(pm.load("simple_two_level", MAPPING, H=1, C=2, M=2, P=8, E=2))
    found = [(p.tensor, p.rank, p.passes, ", ".join(p.begun_by)) for p in passes(report.problem.cascade)]
    assert list(report.table("passes").rows) == found == report.passes.to_records(index=False).tolist()
    assert ("K", "M", 2, "QK, SLN") in found


def test_scans_and_iterations_compute_what_loops_do() -> None:
    rng = np.random.default_rng(3)
    a, b, x = rng.random((6, 4)), rng.random((6, 4)), rng.random(6)
    accesses = [
        {"name": "H", "projection": ["t", "n"]},
        {"name": "A", "projection": ["t", "n"]},
        {"name": "B", "projection": ["t", "n"]},
        {"name": "X", "projection": ["t"]},
        {"name": "H", "projection": {"T": "t + 1", "N": "n"}, "output": True},
    ]
    scan = {"name": "H", "tensor_accesses": accesses, "operations": {"map": "_0 * _1 + _2 * _3"}}
    sizes = {"rank_sizes": {"T": 6, "N": 4}, "bits_per_value": {"All": 16}}
    spec = pm.load({"workload": {**sizes, "init": {"H": 0}, "einsums": [scan]}})
    state = np.zeros(4)
    for t in range(6):
        state = a[t] * state + b[t] * x[t]
    assert np.abs(pm.values(spec, {"A": a, "B": b, "X": x})["H"][-1] - state).max() < 1e-14


GRAPH = {
    "rank_sizes": {"P": 200, "U": 1000, "V": 1000},
    "bits_per_value": {"All": 32},
    "init": {"D": "D0"},
    "einsums": [
        {
            "name": "D",
            "operations": {"map": "add", "reduce": "min"},
            "tensor_accesses": [
                {"name": "D", "projection": ["p", "u"]},
                {"name": "W", "projection": ["u", "v"]},
                {"name": "D", "projection": {"P": "p + 1", "U": "v"}, "output": True},
            ],
        }
    ],
}


def edges_of(kind: str) -> np.ndarray:
    """100,000 edges between 1,000 vertices: anywhere, mostly between hubs, or to the nearest alone."""
    rng = np.random.default_rng(5)
    numbers = np.arange(1000)
    likely = {
        "anywhere": np.zeros((1000, 1000)),
        "hubs": -np.log(1 + numbers)[:, None] - np.log(1 + numbers),
        "roads": -1e3 * np.abs(numbers[:, None] - numbers),
    }[kind] - np.log(rng.exponential(size=(1000, 1000)))
    np.fill_diagonal(likely, -np.inf)
    result = np.zeros(10**6, bool)
    result[np.argpartition(likely, -(10**5), axis=None)[-(10**5) :]] = True
    return result.reshape(1000, 1000)


GRAPHS = ["anywhere", *(pytest.param(kind, marks=pytest.mark.slow) for kind in ("hubs", "roads"))]


@pytest.mark.parametrize("weighted", [True, False])
@pytest.mark.parametrize("kind", GRAPHS)
def test_shortest_paths_end_at_a_fixed_point(kind: str, weighted: bool) -> None:
    """Dijkstra's distances, without weights those of a breadth-first search, in graphs of 100,000 edges."""
    csgraph = pytest.importorskip("scipy.sparse.csgraph")
    lengths = np.random.default_rng(6).integers(1, 50, (1000, 1000)) if weighted else np.ones((1000, 1000))
    roads = np.where(edges_of(kind), lengths, np.inf)
    np.fill_diagonal(roads, 0)
    start = np.full(1000, np.inf)
    start[0] = 0
    found = pm.values(pm.load({"workload": GRAPH}), {"W": roads, "D0": start}, until="fixed_point")
    want = csgraph.dijkstra(np.where(np.isinf(roads), 0, roads), indices=0)
    assert np.array_equal(found["D"][-1], want)
    assert found.generations["p"] < (100 if kind == "roads" else 20)


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["anywhere", "hubs", "roads"])
def test_page_ranks_of_large_graphs_are_those_of_networkx(kind: str) -> None:
    networkx = pytest.importorskip("networkx")
    links = edges_of(kind)
    out = links.sum(1)
    step = 0.85 * np.where(out[:, None] > 0, links / np.maximum(out, 1)[:, None], 1 / 1000).T + 0.15 / 1000
    sizes = {"rank_sizes": {"P": 200, "U": 1000, "V": 1000}, "bits_per_value": {"All": 32}}
    work = {**sizes, "init": {"R": 0.001}, "einsums": ["R[P=p+1, U=v] = G[v, u] * R[p, u]"]}
    before = [np.zeros(1000)]

    def settled(newest: dict[str, np.ndarray]) -> bool:
        before.append(newest["R"])
        return bool(np.abs(before[-1] - before[-2]).max() < 1e-13)

    found = pm.values(pm.load({"workload": work}), {"G": step}, until=settled)
    graph = networkx.from_numpy_array(links, create_using=networkx.DiGraph)
    want = networkx.pagerank(graph, alpha=0.85, tol=1e-13, max_iter=500)
    assert found["R"][-1] == pytest.approx(np.array([want[v] for v in range(1000)]), rel=1e-8)


def test_page_ranks_are_those_of_the_eigenvector() -> None:
    rng = np.random.default_rng(7)
    links = (rng.random((200, 200)) < 0.1) + np.eye(200)
    step = 0.85 * (links / links.sum(0)) + 0.15 / 200
    sizes = {"rank_sizes": {"P": 100, "U": 200, "V": 200}, "bits_per_value": {"All": 32}}
    rank = "R[P=p+1, U=v] = G[v, u] * R[p, u]"
    spec = pm.load({"workload": {**sizes, "init": {"R": 0.005}, "einsums": [rank]}})

    def settled(newest: dict[str, np.ndarray]) -> bool:
        return bool(np.abs(step @ newest["R"] - newest["R"]).max() < 1e-14)

    found = pm.values(spec, {"G": step}, until=settled)
    weights, vectors = np.linalg.eig(step)
    want = np.real(vectors[:, np.argmax(np.real(weights))])
    assert np.abs(found["R"][-1] - want / want.sum()).max() < 1e-12
    assert found.generations["p"] < 100


def test_what_does_not_fit_is_named() -> None:
    spec = pm.load("attention_one_pass", H=1, C=2, M=2, P=3, E=2)
    with every_fault(("missing-value", ""), ("shape-mismatch", ""), ("unknown-name", "")) as caught:
        pm.values(spec, {"K": np.zeros((1, 2, 2)), "V": np.zeros((1, 2, 2, 2)), "AV": np.zeros(3)})
    assert "K is 1x2x2, the workload touches 1x2x2x2" in str(caught.value)
    assert "AV is not an input of the workload" in str(caught.value)
    odd = {"rank_sizes": {"M": 2}, "bits_per_value": {"All": 8}, "operators": {"frobnicate": {}}}
    access = [{"name": "A", "projection": ["m"]}, {"name": "Z", "projection": ["m"], "output": True}]
    einsum = {"name": "Z", "tensor_accesses": access, "operations": {"map": "frobnicate"}}
    with refused("unsupported-operation", "frobnicate"):
        pm.values(pm.load({"workload": {**odd, "einsums": [einsum]}}), {"A": np.zeros(2)})
