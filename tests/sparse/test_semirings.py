"""Cascades whose `*` and `+` stand for other operators: what is left out, values, counts, traffic."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml
from scipy.sparse import csr_array
from scipy.sparse.csgraph import dijkstra

import polymodel as pm
from polymodel.arithmetic import Semiring
from polymodel.errors import Refused
from polymodel.sparse.execute.generations import Made
from polymodel.sparse.traffic.records import CascadeTraffic
from polymodel.spec.teaal.records import TeaalSpec
from tests.faults import faults
from tests.sparse.cascades import agree
from tests.sparse.random_cascades import by_data, following, shaped
from tests.sparse.test_generations import PAGE

FAR = float("inf")
PAIRS = [("add", "min"), ("add", "max"), ("max", "min"), ("min", "max")]
PATHS: dict[str, Any] = {
    "einsum": {
        "declaration": {"G": ["U", "V"], "F": ["U"], "N": ["V"], "D": ["V"]},
        "expressions": ["N[v] = G[u, v] * F[u]", "D[v] = N[v] + F[v]"],
        "operations": {"N": {"map": "add", "reduce": "min"}, "D": {"reduce": "min"}},
    },
    "mapping": {"loop-order": {"N": ["U", "V"], "D": ["V"]}},
}
Draw = Callable[[int], tuple[TeaalSpec, dict[str, np.ndarray], dict[str, int]]]


def in_another_semiring(draw: Draw, seed: int) -> None:
    """The executor equals the referee on every count, with other operators, zeros among the values."""
    spec, arrays, sizes = draw(seed)
    semiring = Semiring(*PAIRS[seed % len(PAIRS)])
    spec = replace(spec, expressions=tuple(replace(e, semiring=semiring) for e in spec.expressions))
    data = {t: np.where(a == 0, semiring.absent, a.astype(float) - 1) for t, a in arrays.items()}
    with suppress(Refused):
        agree(spec, data, sizes)


@pytest.mark.parametrize("draw", [shaped, by_data, following])
def test_every_count_equals_the_referee(draw: Draw) -> None:
    for seed in range(8):
        in_another_semiring(draw, seed)


@pytest.mark.slow
@pytest.mark.parametrize("draw", [shaped, by_data, following])
def test_every_count_equals_the_referee_at_length(draw: Draw) -> None:
    for seed in range(8, 600):
        in_another_semiring(draw, seed)


def edges(size: int, seed: int) -> np.ndarray:
    """Lengths from each place to each, infinite without an edge; some are 0."""
    rng = np.random.default_rng(seed)
    return np.where(rng.random((size, size)) < 0.2, rng.integers(0, 5, (size, size)), FAR)


def started(size: int) -> np.ndarray:
    return np.where(np.arange(size) == 0, 0.0, FAR)


def least(graph: np.ndarray) -> list[np.ndarray]:
    """Distances after each generation, until they stay."""
    result = [started(len(graph))]
    while len(result) < 2 or (result[-1] != result[-2]).any():
        before = result[-1]
        ahead = [min(before[u] + graph[u, v] for u in range(len(graph))) for v in range(len(graph))]
        result.append(np.array([min(a, b) for a, b in zip(before, ahead, strict=True)]))
    return result[1:]


@pytest.mark.parametrize("seed", range(3))
def test_shortest_paths_run_until_nothing_changes(seed: int) -> None:
    graph = edges(12, seed)
    found = pm.execute(pm.load(PATHS), {"G": graph, "F": started(12)}, carry={"F": "D"}, until="fixed_point")
    ran, want = (*found.earlier, found), least(graph)
    assert [one.results["D"].to_dense().tolist() for one in ran] == [w.tolist() for w in want]
    reached = [started(12), *want]
    for before, one in zip(reached, ran, strict=False):
        # An edge out of each place that is reached is added to its distance once.
        assert one.einsum("N").multiplies == np.isfinite(graph[np.isfinite(before)]).sum()
        assert all(check.agrees for check in one.check())
    spec = pm.load(PATHS).bind(U=12, V=12)
    once = pm.values(spec, {"G": graph, "F": started(12)})
    assert once["D"].tolist() == ran[0].results["D"].to_dense().tolist()


class Relaxed:
    """A front of the places whose distance fell; what a generation makes are ways over one edge more."""

    def __init__(self, size: int) -> None:
        self.distances = started(size)
        self.fronts = [self.distances]

    def __call__(self, made: Made) -> np.ndarray:
        ahead = made["N"].to_dense()
        fell = ahead < self.distances
        self.distances = np.minimum(ahead, self.distances)
        self.fronts.append(np.where(fell, ahead, FAR))
        return self.fronts[-1]

    def ended(self, made: Made) -> bool:
        return not (made["N"].to_dense() < self.distances).any()


def walked(graph: Any, size: int) -> tuple[Relaxed, CascadeTraffic]:
    """Traffic of a search by the machine of the page, with sums and minima."""
    text = PAGE.read_text(encoding="utf-8").split("# file: walk.yaml\n")[1].split("```")[0]
    text = text.replace('["N[v] = take(G[u, v], F[u], 0)"]', '["N[v] = G[u, v] * F[u]"]\n'
                        "  operations: {N: {map: add, reduce: min}}")  # fmt: skip
    relaxed = Relaxed(size)
    given = {"G": graph, "F": started(size)}
    spec = pm.load(yaml.safe_load(text))
    return relaxed, pm.traffic(spec, given, carry={"F": relaxed}, until=relaxed.ended)


def moved_by_hand(relaxed: Relaxed, starts: np.ndarray, targets: np.ndarray, found: CascadeTraffic) -> None:
    """Of each place in a front a row pointer and its edges, 32 bits each, and each place that is met."""
    assert len(found.generations) == len(relaxed.fronts) > 2
    for front, one in zip(relaxed.fronts, found.generations, strict=True):
        inside = np.flatnonzero(np.isfinite(front))
        ends = np.concatenate([targets[starts[u] : starts[u + 1]] for u in inside])
        moved = [(m.tensor, m.read, m.write) for m in one.einsum("N").memory("Memory").moved]
        met = np.unique(ends).size
        assert moved == [
            ("G", 32 * (inside.size + ends.size), None), ("F", 32 * inside.size, None), ("N", 0, 32 * met),
        ]  # fmt: skip


@pytest.mark.parametrize("seed", range(2))
def test_shortest_paths_move_the_edges_of_each_front(seed: int) -> None:
    graph = edges(15, seed)
    relaxed, found = walked(graph, 15)
    assert relaxed.distances.tolist() == least(graph)[-1].tolist()
    starts = np.append(0, np.cumsum(np.isfinite(graph).sum(axis=1)))
    moved_by_hand(relaxed, starts, np.nonzero(np.isfinite(graph))[1], found)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(3))
def test_shortest_paths_of_a_hundred_thousand_edges(seed: int) -> None:
    size, rng = 20_000, np.random.default_rng(seed)
    places = np.unique(rng.integers(0, size**2, 101_000))[:100_000]
    graph = csr_array((rng.uniform(0.1, 1, 100_000), (places // size, places % size)), (size, size))
    want = dijkstra(graph, indices=0)
    given = {"G": graph, "F": started(size)}
    found = pm.execute(pm.load(PATHS), given, carry={"F": "D"}, until="fixed_point")
    np.testing.assert_allclose(found.results["D"].to_dense(), want, rtol=1e-12)
    relaxed, moved = walked(graph, size)
    np.testing.assert_allclose(relaxed.distances, want, rtol=1e-12)
    moved_by_hand(relaxed, graph.indptr, graph.indices, moved)


def test_files_keep_zeros_where_something_else_is_left_out(tmp_path: Path) -> None:
    path = tmp_path / "g.tns"
    path.write_text("1 2 0\n2 3 4\n1 1 0\n")
    kept = pm.read_tensor(path, shape=[3, 3], fill=FAR)
    assert kept.to_dense().tolist() == [[0, 0, FAR], [FAR, FAR, 4], [FAR, FAR, FAR]]
    assert pm.read_tensor(path, shape=[3, 3]).nnz == 1
    assert "3 points that are not inf" in repr(kept)
    given = {"G": kept, "F": np.array([0, FAR, FAR])}
    found = pm.execute(pm.load(PATHS), given, carry={"F": "D"}, until="fixed_point")
    assert found.results["D"].to_dense().tolist() == [0, 0, 4]


def test_what_a_tensor_leaves_out_fits_its_use() -> None:
    with faults("duplicate-name", at="coords"):
        pm.SparseTensor.from_coo("A", ["K"], [4], [[1, 1]], [2, 3], fill=FAR)
    with faults("not-a-number", at="fill"):
        pm.SparseTensor.from_dense("A", ["K"], [1, 2], fill=float("nan"))
    made = pm.SparseTensor.from_dense("F", ["U"], [0, 1, -FAR], fill=-FAR)
    assert made.swizzled(["U"]).fill == made.renamed("G").fill == -FAR
    with faults("inconsistent-values", at="F"):
        pm.execute(pm.load(PATHS), {"G": np.zeros((3, 3)), "F": made})
    spec = pm.load(PATHS).bind(U=3, V=3)
    with faults("inconsistent-values", at="F"):
        pm.values(spec, {"G": np.zeros((3, 3)), "F": made})
    with pytest.raises(Refused):
        pm.SparseTensor.from_dense("G", ["U", "V"], np.eye(3), fill=1).to_scipy()


def changed(operations: dict[str, Any], *expressions: str) -> dict[str, Any]:
    einsum = {**PATHS["einsum"], "operations": operations}
    return {"einsum": {**einsum, **({"expressions": list(expressions)} if expressions else {})}}


@pytest.mark.parametrize(
    ("code", "at", "operations", "expressions"),
    [
        ("invalid-operator", "N", {"N": {"map": "mul", "reduce": "min"}, "D": {"reduce": "min"}}, ()),
        ("invalid-operator", "N", {"N": {"map": "add"}}, ()),
        ("unknown-choice", "N.map", {"N": {"map": "exp"}}, ()),
        ("unknown-choice", "N.reduce", {"N": {"reduce": "sub"}}, ()),
        ("unknown-name", "N.joined", {"N": {"joined": "add"}}, ()),
        ("unknown-name", "Q", {"Q": {"map": "add"}}, ()),
        ("wrong-type", "N", {"N": "min"}, ()),
        ("inconsistent-values", "D", {"N": {"map": "add", "reduce": "min"}}, ()),
        ("invalid-operator", "D", PATHS["einsum"]["operations"], ("N[v] = F[v]", "D[v] = F[v] - N[v]")),
    ],
)
def test_operators_that_do_not_fit_are_told(
    code: str, at: str, operations: dict[str, Any], expressions: tuple[str, ...]
) -> None:
    with faults(code, at=f"einsum.operations.{at}"):
        pm.load(changed(operations, *expressions))
