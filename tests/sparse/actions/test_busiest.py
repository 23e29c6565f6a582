"""The busiest instance: exact of known rows, the mean of the maximum of uniform data, else a lower bound."""

from __future__ import annotations

from dataclasses import replace
from itertools import combinations, product
from typing import Any

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

import polymodel as pm
from polymodel.analysis.enumerate import ENGINE
from polymodel.analysis.result import Problem
from polymodel.architecture.hierarchy import Hierarchy, SparseRules
from polymodel.sparse.actions.counts import sparse_counts
from polymodel.sparse.actions.data import TensorData, dense_data
from polymodel.sparse.actions.records import ComputeCount
from polymodel.sparse.density import RankNnz, Uniform, model_of
from polymodel.sparse.tensor import SparseTensor
from tests.sparse.actions.literal import Literal
from tests.sparse.actions.small import rule, small_problems
from tests.sparse.actions.test_literal import legal, ranks, shapes

M, K, N = 64, 48, 3


def document(*tiles: dict[str, object], fanout: int = 8, leaders: object = "A") -> dict[str, Any]:
    """A matmul on an array of multipliers that skip on the nonzeros of A."""
    mac = {
        "type": "Compute", "name": "MAC", "actions": [{"name": "compute", "energy": 1, "throughput": 1}],
        "sparse": {"actions": [{"skip": "compute", "on": leaders}]},
    }  # fmt: skip
    every = ["A", "B", "Z"]
    action = [{"name": n, "energy": 1} for n in ("read", "write")]
    dram = {"type": "Memory", "name": "DRAM", "size": "inf", "actions": action, "tensors": {"keep": "All"}}
    pe = {"type": "Container", "name": "PE", "spatial": [{"name": "X", "fanout": fanout}]}
    return {
        "schema_version": 1,
        "arch": {"nodes": [dram, pe, mac]},
        "workload": {
            "rank_sizes": {"M": M, "K": K, "N": N},
            "bits_per_value": {"All": 8},
            "einsums": ["Z[m, n] = A[m, k] * B[k, n]"],
        },
        "mapping": {
            "nodes": [
                {"type": "Storage", "component": "DRAM", "tensors": every},
                *tiles,
                *({"type": "Temporal", "rank_variable": v, "tile_shape": 1} for v in "mnk"),
                {"type": "Compute", "einsum": "Z", "component": "MAC"},
            ]
        },
    }


def spec(*tiles: dict[str, object], fanout: int = 8, leaders: object = "A") -> pm.Spec:
    return pm.load(document(*tiles, fanout=fanout, leaders=leaders))


def spatial(variable: str, tile: int) -> dict[str, object]:
    where = {"component": "PE", "name": "X"}
    return {"type": "Spatial", "rank_variable": variable, "tile_shape": tile, **where}


def temporal(variable: str, tile: int) -> dict[str, object]:
    return {"type": "Temporal", "rank_variable": variable, "tile_shape": tile}


def rows() -> np.ndarray:
    """Rows of a power law: few hold most of the nonzeros."""
    ordered = np.minimum(K, 60 / np.arange(1, M + 1) ** 0.9).astype(np.int64)
    return np.random.default_rng(5).permutation(ordered)


def count_of(found: pm.Spec, **densities: object) -> ComputeCount:
    (count,) = pm.sparsify(pm.evaluate(found), densities=densities).counts.compute
    return count


def with_rows(histogram: np.ndarray, seed: int = 3) -> SparseTensor:
    """Data with so many nonzeros in each row."""
    draw = np.random.default_rng(seed)
    points = [(m, k) for m, n in enumerate(histogram) for k in draw.choice(K, n, replace=False)]
    return SparseTensor.from_coo("A", ("M", "K"), (M, K), np.array(points).T, [1] * len(points))


@pytest.mark.parametrize(
    ("tiles", "place"),
    [
        ((spatial("m", 8),), np.arange(M) // 8),
        ((temporal("m", 8), spatial("m", 1)), np.arange(M) % 8),
        ((temporal("k", 6), temporal("m", 16), spatial("m", 2)), np.arange(M) % 16 // 2),
    ],
)
def test_known_rows_say_which_instance_has_most(
    tiles: tuple[dict[str, object], ...], place: np.ndarray
) -> None:
    histogram = rows()
    found = count_of(spec(*tiles), A={"rank_nnz": {"rank": "M", "histogram": histogram.tolist()}})
    wanted = N * int(np.bincount(place, histogram).max())
    assert (found.busiest, found.busiest_label) == (wanted, "exact")
    assert found.imbalance == pytest.approx(wanted * 8 / (N * histogram.sum()))
    assert found.imbalance > 1.2
    data = with_rows(histogram)
    report = pm.sparsify(pm.evaluate(spec(*tiles)), {"A": data})
    (given_data,) = report.counts.compute
    assert (given_data.busiest, given_data.busiest_label) == (wanted, "exact")
    assert report.total_latency == wanted


FILL = [0.3, 0.5, 0.9, 0.5, 0.3]
DIAGONALS = {"diagonals": {"offsets": [-2, -1, 0, 1, 2], "fill": FILL, "background": 0.02}}
BLOCKS = {"blocks": {"size": [4, 4], "arrangement": {"hierarchical": [1, 0.1]}, "fill": 0.8}}
PLACES = {
    "blocks of rows": ((spatial("m", 8),), np.arange(M) // 8),
    "every eighth row": ((temporal("m", 8), spatial("m", 1)), np.arange(M) % 8),
    "blocks of four rows": ((temporal("m", 32), spatial("m", 4)), np.arange(M) % 32 // 4),
}


@pytest.mark.parametrize(
    ("density", "name", "label"),
    [
        (DIAGONALS, "blocks of rows", "expected"),
        (DIAGONALS, "every eighth row", "expected"),
        (BLOCKS, "blocks of rows", "expected"),
        (BLOCKS, "blocks of four rows", "expected"),
        (BLOCKS, "every eighth row", "estimate"),
    ],
)
@pytest.mark.thin(99)
def test_models_of_structure_give_the_mean_of_the_maximum(
    density: dict[str, object], name: str, label: str
) -> None:
    """Against the mean over drawn data, in latency and with its label."""
    tiles, place = PLACES[name]
    report = pm.sparsify(pm.evaluate(spec(*tiles)), densities={"A": density})
    (found,) = report.counts.compute
    assert found.busiest_label == label
    model = model_of(density, ("M", "K"), (M, K))
    assert model is not None
    most = [N * np.bincount(place[model.draw(seed).coords[0]], minlength=8).max() for seed in range(150)]
    near = 4 * float(np.std(most)) / len(most) ** 0.5 + (0.02 if label == "expected" else 0.1) * np.mean(most)
    assert abs(found.busiest - np.mean(most)) < near
    assert found.busiest > 1.05 * found.timed / 8
    assert report.total_latency == pytest.approx(found.busiest)
    if label == "expected":
        mean = count_of(spec(*tiles), A=model.density).busiest
        assert abs(mean - np.mean(most)) > abs(found.busiest - np.mean(most))


def test_known_rows_and_columns_say_which_instance_has_most() -> None:
    draw = np.random.default_rng(2)
    histogram, columns = rows(), np.bincount(draw.integers(0, K, int(rows().sum())), minlength=K)
    density = {"row_column": {"rows": histogram.tolist(), "columns": columns.tolist()}}
    for tiles, place in PLACES.values():
        found = count_of(spec(*tiles), A=density)
        assert (found.busiest, found.busiest_label) == (N * np.bincount(place, histogram).max(), "exact")
    part = count_of(spec(spatial("k", 6)), A=density)
    assert (part.busiest, part.busiest_label) == (N * columns.reshape(8, 6).sum(axis=1).max(), "exact")
    both = count_of(spec(spatial("m", 16), spatial("k", 24)), A=density)
    assert both.busiest_label == "estimate"
    assert both.busiest >= N * histogram.reshape(4, 16).sum(axis=1).max() / 2


def test_a_uniform_tensor_gives_the_mean_of_the_maximum() -> None:
    """Against the mean over drawn data, within four standard errors."""
    tiles, nnz = (temporal("m", 8), spatial("m", 1)), M * K // 8
    found = count_of(spec(*tiles), A=0.125)
    draw = np.random.default_rng(11)
    most = []
    for _ in range(2000):
        points = draw.choice(M * K, nnz, replace=False)
        most.append(N * np.bincount(points // K % 8).max())
    assert found.busiest_label == "expected"
    assert abs(found.busiest - np.mean(most)) < 4 * np.std(most) / len(most) ** 0.5
    assert found.busiest > 1.1 * nnz * N / 8


def touching(m: int, k: int, *tiles: dict[str, object]) -> pm.Spec:
    """The same with the first m rows and k columns of A alone."""
    given = document(*tiles)
    given["workload"]["iteration_space_shape"] = {"m": f"0 <= m < {m}", "k": f"0 <= k < {k}"}
    return pm.load(given)


@pytest.mark.parametrize(
    ("tiles", "place"),
    [((spatial("m", 8),), np.arange(40) // 8), ((temporal("m", 8), spatial("m", 1)), np.arange(40) % 8)],
)
def test_ranks_of_which_a_part_is_touched(tiles: tuple[dict[str, object], ...], place: np.ndarray) -> None:
    """The other rows count nowhere; of uniform data they take their share of the nonzeros."""
    found, histogram = touching(40, K, *tiles), rows()
    count = count_of(found, A={"rank_nnz": {"rank": "M", "histogram": histogram.tolist()}})
    wanted = N * int(np.bincount(place, histogram[:40]).max())
    assert (count.busiest, count.busiest_label) == (wanted, "exact")
    (given_data,) = pm.sparsify(pm.evaluate(found), {"A": with_rows(histogram)}).counts.compute
    assert given_data.busiest == wanted
    # Of fibers of which a part is touched nothing is known but the mean.
    part = count_of(touching(40, 20, *tiles), A={"rank_nnz": {"rank": "M", "histogram": histogram.tolist()}})
    assert part.busiest_label == "lower bound"
    uniform, draw, most = count_of(touching(40, 20, *tiles), A=0.125), np.random.default_rng(11), []
    for _ in range(2000):
        row, column = np.divmod(draw.choice(M * K, M * K // 8, replace=False), K)
        most.append(N * np.bincount(place[row[(row < 40) & (column < 20)]]).max())
    assert uniform.busiest_label == "expected"
    assert abs(uniform.busiest - np.mean(most)) < 4 * np.std(most) / len(most) ** 0.5


def test_instances_that_share_the_leader_have_equal_parts() -> None:
    found = count_of(spec(spatial("n", 1), fanout=3), A=0.125)
    assert (found.busiest, found.busiest_label) == (M * K // 8, "expected")
    assert found.imbalance == 1


@pytest.mark.parametrize(
    ("tiles", "leaders", "densities", "label"),
    [
        ((spatial("m", 8),), ["A", "B"], {"A": 0.125, "B": 0.5}, "lower bound"),
        ((spatial("m", 9),), ["A", "B"], {"A": 0.125, "B": 0.5}, "estimate"),
        ((spatial("k", 6),), "A", {"A": {"rank_nnz": {"rank": "M", "histogram": [6] * M}}}, "lower bound"),
        ((spatial("k", 6),), "A", {"A": {"fixed_structured": {"rank": "K", "n": 1, "m": 3}}}, "expected"),
    ],
)
def test_a_mean_is_not_called_the_maximum(
    tiles: tuple[dict[str, object], ...], leaders: object, densities: dict[str, object], label: str
) -> None:
    found = count_of(spec(*tiles, leaders=leaders), **densities)
    assert found.busiest_label == label
    whole = spec(*tiles, leaders=leaders)
    dense = pm.evaluate(whole).analysis.compute[0]
    assert found.busiest == pytest.approx(dense.busiest * found.timed / found.dense)


def one_leader(problem: Problem) -> Problem:
    """The same with a compute unit that skips on A."""
    skips = SparseRules(actions=(rule("skip", (), ("A",)),))
    parts = (replace(c, sparse=skips if c.name == "MAC" else None) for c in problem.hierarchy.components)
    return replace(problem, hierarchy=Hierarchy(tuple(parts)))


@settings(max_examples=60, deadline=None)
@given(small_problems(), st.data())
def test_the_mean_over_all_placements(problem: Problem, data: st.DataObject) -> None:
    problem = one_leader(problem)
    legal(problem)
    shape = shapes(problem)["A"]
    points = list(product(*map(range, shape)))
    n = data.draw(st.integers(0, min(2, len(points))))
    placed = list(combinations(points, n))
    assume(len(placed) <= 120)
    known = {t: dense_data(t) for t in ("B", "Z")}
    known["A"] = TensorData("A", Uniform.of(ranks(problem, "A"), shape, nnz=n))
    (count,) = sparse_counts(problem, ENGINE.analyse(problem), known).compute
    walk, total = Literal(problem), 0
    for chosen in placed:
        walk({"A": set(chosen)})
        total += max(walk.timed.values(), default=0)
    assert count.busiest_label in ("exact", "expected")
    assert count.busiest == pytest.approx(total / len(placed), rel=2e-6, abs=1e-6)


@settings(max_examples=60, deadline=None)
@given(small_problems(), st.data())
def test_rows_over_all_placements(problem: Problem, data: st.DataObject) -> None:
    """Exact where rows stay whole; else no more than the mean of the maximum, where shares are even."""
    problem = one_leader(problem)
    legal(problem)
    m, k = shapes(problem)["A"]
    histogram = data.draw(st.lists(st.integers(0, min(k, 2)), min_size=m, max_size=m))
    each = [list(combinations([(i, j) for j in range(k)], n)) for i, n in enumerate(histogram)]
    assume(np.prod([len(x) for x in each]) <= 150)
    known = {t: dense_data(t) for t in ("B", "Z")}
    known["A"] = TensorData("A", RankNnz.of(ranks(problem, "A"), (m, k), histogram))
    (count,) = sparse_counts(problem, ENGINE.analyse(problem), known).compute
    walk, most = Literal(problem), []
    for chosen in product(*each):
        walk({"A": {p for row in chosen for p in row}})
        most.append(max(walk.timed.values(), default=0))
    if count.busiest_label == "exact":
        assert set(most) == {count.busiest}
    elif count.busiest_label == "expected":
        assert count.busiest == pytest.approx(np.mean(most), rel=2e-6, abs=1e-6)
    elif count.busiest_label == "lower bound":
        assert count.busiest <= np.mean(most) + 1e-9


@pytest.mark.thin(99)
@pytest.mark.parametrize("other", ["uniform", "rank_nnz", "row_column"])
def test_of_several_leaders_the_instance_with_the_greatest_mean_counts(other: str) -> None:
    """Rows of a power law on 8 instances: the mean of all instances was 40 % below the busiest one."""
    histogram, columns = rows(), np.minimum(np.arange(K)[::-1] // 16, N)
    models = {
        "uniform": Uniform.of(("K", "N"), (K, N), density=0.4),
        "rank_nnz": RankNnz.of(("K", "N"), (K, N), columns),
        "row_column": pm.RowColumn.of("KN", (K, N), columns, [16, 16, int(columns.sum()) - 32]),
    }
    found = spec(spatial("m", 8), leaders=["A", "B"])
    own = RankNnz.of(("M", "K"), (M, K), histogram)
    count = count_of(found, A=own, B=models[other])
    report, busiest = pm.evaluate(found), []
    for seed in range(40):
        data = {"A": with_rows(histogram, seed), "B": models[other].draw(seed, "B")}
        busiest.append(pm.sparsify(report, data).counts.compute[0].busiest)
    mean = float(np.mean(busiest))
    assert count.busiest_label == "lower bound"
    assert 0.9 * mean < count.busiest <= mean
    assert count.busiest > 1.3 * count.timed / 8
