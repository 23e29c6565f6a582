"""Cascades that run generation after generation: searches in graphs, power iterations, their traffic."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest
import yaml

import polymodel as pm
from polymodel.sparse.execute.generations import Made
from tests.faults import faults

PAGE = Path(__file__).parents[2] / "docs" / "sparse" / "traffic.md"
POWER = {
    "einsum": {
        "declaration": {"G": ["V", "U"], "R": ["U"], "S": ["V"]},
        "expressions": ["S[v] = G[v, u] * R[u]"],
    },
    "mapping": {"loop-order": {"S": ["V", "U"]}},
}


def walk() -> pm.Spec:
    """The spec of the page: along all edges out of the vertices of a front."""
    (text,) = re.findall(r"# file: walk.yaml\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)
    return pm.load(yaml.safe_load(text))


class Search:
    """What the next front is: all that was reached and not visited before."""

    def __init__(self, size: int, first: int) -> None:
        self.fronts = [[first]]
        self.start = np.arange(size) == first
        self.seen = self.start.copy()

    def __call__(self, made: Made) -> np.ndarray:
        fresh = np.setdiff1d(made["N"].coords[0], np.flatnonzero(self.seen))
        self.seen[fresh] = True
        self.fronts.append(fresh.tolist())
        return np.isin(np.arange(len(self.seen)), fresh)

    def ended(self, made: Made) -> bool:
        return bool(self.seen[made["N"].coords[0]].all())


def searched(edges: np.ndarray) -> tuple[list[list[int]], pm.CascadeTraffic]:
    search = Search(len(edges), 0)
    given = {"G": edges, "F": search.start}
    return search.fronts, pm.traffic(walk(), given, carry={"F": search}, until=search.ended)


@pytest.mark.parametrize(
    ("size", "edges"),
    [(40, 100), pytest.param(3000, 100_000, marks=pytest.mark.slow)],
    ids=["small", "large"],
)
def test_a_breadth_first_search_moves_the_edges_of_each_front(size: int, edges: int) -> None:
    """Of each vertex of a front a row pointer and its edges, 32 bits each, as for each that is reached."""
    rng = np.random.default_rng(size)
    graph = np.zeros((size, size))
    graph.reshape(-1)[rng.choice(size * size, edges, replace=False)] = 1
    fronts, found = searched(graph)
    reach, levels = graph != 0, [[0]]
    seen = np.arange(size) == 0
    while levels[-1]:
        fresh = reach[levels[-1]].any(axis=0) & ~seen
        seen |= fresh
        levels.append(np.flatnonzero(fresh).tolist())
    assert levels[:-1] == fronts
    degrees = (graph != 0).sum(axis=1)
    for front, one in zip(fronts, found.generations, strict=True):
        memory = one.einsum("N").memory("Memory")
        reached = int(graph[front].any(axis=0).sum())
        moved = [(m.tensor, m.read, m.write) for m in memory.moved]
        links = int(degrees[front].sum())
        assert moved == [
            ("G", 32 * (len(front) + links), None),
            ("F", 32 * len(front), None),
            ("N", 0, 32 * reached),
        ]
    memory = found.einsum("N").memory("Memory")
    assert memory.of("G").read == 32 * sum(len(f) + int(degrees[f].sum()) for f in fronts)
    assert found.time == pytest.approx(sum(one.time or 0 for one in found.generations))
    assert memory.time == pytest.approx(memory.bits / 64e9)


def test_a_power_iteration_counts_and_computes_every_generation() -> None:
    rng = np.random.default_rng(5)
    matrix = (rng.random((20, 20)) < 0.3) * rng.random((20, 20))
    start = rng.random(20) * (rng.random(20) < 0.5)
    found = pm.execute(pm.load(POWER), {"G": matrix, "R": start}, carry={"R": "S"}, until=4)
    want = start
    for one in (*found.earlier, found):
        assert one.einsum("S").multiplies == np.count_nonzero(matrix[:, want != 0])
        want = matrix @ want
        assert one.results["S"].to_dense() == pytest.approx(want)
    assert [row[0] for row in found.table("einsums").rows] == ["S (1)", "S (2)", "S (3)", "S (4)"]
    assert "4 generations" in str(found)


def test_a_fixed_point_ends_it() -> None:
    """A rotation that is the identity from the second generation on; a walk round a circle would not end."""
    fold = np.zeros((4, 4))
    fold[0, :] = 1
    found = pm.execute(pm.load(POWER), {"G": fold, "R": [1, 2, 3, 4]}, carry={"R": "S"}, until="fixed_point")
    assert [one.results["S"].to_dense().tolist() for one in (*found.earlier, found)] == [[10, 0, 0, 0]] * 2
    circle = np.roll(np.eye(4), 1, axis=0)
    with pm.limits(time=0.5), pytest.raises(pm.TimeUp):
        pm.execute(pm.load(POWER), {"G": circle, "R": [1, 0, 0, 0]}, carry={"R": "S"}, until="fixed_point")


def test_what_does_not_go_on_is_told() -> None:
    given = {"G": np.eye(3), "R": np.ones(3)}
    with pytest.raises(pm.SpecError) as caught:
        pm.execute(pm.load(POWER), given, carry={"Q": "S", "R": "T"})
    told = str(caught.value)
    assert "carry.Q: Q is not an input of the cascade" in told
    assert "carry.R: no Einsum makes 'T'" in told
    assert "until: nothing says when generations end" in told
    with faults("missing-argument", at="carry"):
        pm.execute(pm.load(POWER), given, until=3)
    with faults("wrong-type", at="until"):
        pm.traffic(walk(), {"G": np.eye(3), "F": np.ones(3)}, carry={"F": "N"}, until=0)
    with faults("shape-mismatch", at="carry.R"):
        pm.execute(pm.load(POWER), {"G": np.ones((2, 3)), "R": np.ones(3)}, carry={"R": "S"}, until=2)
