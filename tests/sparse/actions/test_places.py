"""Models that know places, where an Einsum touches a part of a tensor, or some points more often than others.

What is called expected is the mean over all data that the model allows, of which every one is walked."""

from __future__ import annotations

from collections import Counter
from itertools import combinations, product

import numpy as np
import pytest
from hypothesis import assume, given, reject, settings
from hypothesis import strategies as st

import polymodel as pm
from polymodel.analysis.result import Problem
from polymodel.errors import Refused
from polymodel.sparse.actions.data import TensorData, dense_data
from polymodel.sparse.actions.inputs import tensor_data
from polymodel.sparse.density import Banded, DensityModel, FixedStructured, RankNnz
from polymodel.sparse.tensor import SparseTensor
from tests.faults import refused
from tests.sparse.actions.literal import Literal
from tests.sparse.actions.small import RANKS, WINDOWS, product_of, small_problems
from tests.sparse.actions.test_busiest import K, N, count_of, rows, spatial, spec, temporal, touching
from tests.sparse.actions.test_literal import STATES, legal, ours, ranks, shapes

Matrix = list[tuple[int, int]]


def drawn(histogram: np.ndarray, seed: int) -> np.ndarray:
    """A matrix with so many nonzeros in each row, of K columns."""
    found, draw = np.zeros((histogram.size, K), bool), np.random.default_rng(seed)
    for row, n in enumerate(histogram):
        found[row, draw.choice(K, n, replace=False)] = True
    return found


def test_rows_that_are_not_touched_count_nowhere() -> None:
    """560.6, the mean over all rows, was called expected."""
    histogram, found = rows(), touching(40, K, spatial("m", 8))
    count = count_of(found, A={"rank_nnz": {"rank": "M", "histogram": histogram.tolist()}})
    counted = {int(drawn(histogram, seed)[:40].sum()) * N for seed in range(3)}
    assert counted == {387} == {count.effectual}
    assert (count.label, count.busiest_label) == ("expected", "exact")


@pytest.mark.slow
def test_rows_of_which_a_part_is_touched() -> None:
    """Their nonzeros fall into the part by chance; the busiest instance has no less than the mean."""
    histogram, found = rows(), touching(40, 20, temporal("m", 8), spatial("m", 1))
    count = count_of(found, A={"rank_nnz": {"rank": "M", "histogram": histogram.tolist()}})
    matrices = [drawn(histogram, seed)[:40, :20] for seed in range(400)]
    operations = np.array([N * m.sum() for m in matrices])
    assert count.label == "expected"
    assert count.effectual == pytest.approx(N * histogram[:40].sum() * 20 / K)
    assert abs(count.effectual - operations.mean()) < 4 * operations.std() / 20
    busiest = [N * np.bincount(np.arange(40) % 8, m.sum(axis=1)).max() for m in matrices]
    assert count.busiest_label == "lower bound"
    assert operations.mean() / 10 < count.busiest <= np.mean(busiest)


def test_two_models_along_one_rank_meet_where_both_have_nonzeros() -> None:
    """The product of the densities gave an eighth of the operations."""
    along = {
        t: {"rank_nnz": {"rank": "K", "histogram": [n] * 6 + [0] * 42}} for t, n in (("A", 64), ("B", N))
    }
    count = count_of(spec(spatial("m", 8), leaders=["A", "B"]), **along)
    assert (count.effectual, count.timed, count.label) == (64 * 6 * N, 64 * 6 * N, "expected")


def test_what_two_models_along_one_rank_compute_is_nonzero_where_they_meet() -> None:
    """The product of their mean densities left half of it zero."""
    einsum = product_of(RANKS, {"m": 3, "k": 4, "n": 2})
    models = {
        t: RankNnz.of(("R0", "R1"), shape, [n, 0, 0, n - 1], [rank])
        for t, shape, n, rank in (("A", (3, 4), 3, "R1"), ("B", (4, 2), 2, "R0"))
    }
    found = tensor_data(einsum, densities=models)["Z"]
    assert found.dense  # the first k alone makes every point nonzero
    models["A"] = RankNnz.of(("R0", "R1"), (3, 4), [2, 0, 0, 1], ["R1"])
    found = tensor_data(einsum, densities=models)["Z"]
    assert found.density == pytest.approx(1 - (1 - 2 / 3) * (1 - 1 / 3 * 1 / 2))
    models["A"] = RankNnz.of(("R0", "R1"), (3, 4), [4, 0, 2], ["R0"])
    models["B"] = RankNnz.of(("R0", "R1"), (4, 2), [1, 1, 1, 1], ["R0"])
    found = tensor_data(einsum, densities=models)["Z"]
    assert found.density == pytest.approx((1 - (1 / 2) ** 4 + 0 + 1 - (3 / 4) ** 4) / 3)


def test_points_that_are_used_more_often_weigh_more() -> None:
    document = {
        "schema_version": 1,
        "arch": {"nodes": [{"type": "Memory", "name": "DRAM", "size": "inf", "tensors": {"keep": "All"}},
                           {"type": "Compute", "name": "MAC"}]},
        "workload": {
            "rank_sizes": {"P": 4, "R": 3}, "bits_per_value": {"All": 8},
            "einsums": ["Z[p] = A[H=p + r] * B[r]"],
            "iteration_space_shape": {"p": "0 <= p < 4", "r": "0 <= r < 3"},
        },
        "mapping": {"nodes": [
            {"type": "Storage", "component": "DRAM", "tensors": ["A", "B", "Z"]},
            {"type": "Temporal", "rank_variable": "p", "tile_shape": 1},
            {"type": "Temporal", "rank_variable": "r", "tile_shape": 1},
            {"type": "Compute", "einsum": "Z", "component": "MAC"}]},
    }  # fmt: skip
    report = pm.evaluate(pm.load(document))
    (rank,) = report.problem.cascade["Z"].access_of("A").ranks
    for at, uses in enumerate((1, 2, 3, 3, 2, 1)):
        histogram = [int(i == at) for i in range(6)]
        found = pm.sparsify(report, densities={"A": {"rank_nnz": {"rank": rank, "histogram": histogram}}})
        assert found.counts.compute[0].effectual == uses


def test_sums_of_given_data_are_counted() -> None:
    document = {
        "schema_version": 1,
        "arch": {"nodes": [{"type": "Memory", "name": "DRAM", "size": "inf", "tensors": {"keep": "All"}},
                           {"type": "Compute", "name": "MAC"}]},
        "workload": {
            "rank_sizes": {"P": 6}, "bits_per_value": {"All": 8},
            "einsums": ["Z[p] = A[p] + B[p]"],
        },
        "mapping": {"nodes": [
            {"type": "Storage", "component": "DRAM", "tensors": ["A", "B", "Z"]},
            {"type": "Temporal", "rank_variable": "p", "tile_shape": 1},
            {"type": "Compute", "einsum": "Z", "component": "MAC"}]},
    }  # fmt: skip
    dense = {"A": np.array([1, 1, 0, 0, 0, 0]), "B": np.array([0, 1, 1, 0, 0, 0])}
    given = {t: SparseTensor.from_dense(t, ("P",), values) for t, values in dense.items()}
    (count,) = pm.sparsify(pm.evaluate(pm.load(document)), given).counts.compute
    assert (count.effectual, count.label) == (3, "exact")


def test_a_part_of_which_a_model_tells_nothing_is_refused() -> None:
    with refused("unsupported-density", "Z", "A", "FixedStructured"):
        count_of(touching(40, 14, spatial("m", 8)), A={"fixed_structured": {"rank": "K", "n": 1, "m": 4}})
    whole = count_of(touching(40, 16, spatial("m", 8)), A={"fixed_structured": {"rank": "K", "n": 1, "m": 4}})
    assert (whole.effectual, whole.label) == (40 * 4 * N, "expected")
    band = count_of(touching(40, 20, spatial("m", 8)), A={"banded": {"width": 2}})
    inside = sum(abs(m - k) <= 2 for m in range(40) for k in range(20))
    assert band.effectual == inside * N


def lines(shape: tuple[int, int], axis: int, histogram: list[int]) -> list[Matrix]:
    """Every matrix with so many nonzeros in each line of an axis."""
    places = [[(i, j) if axis == 0 else (j, i) for j in range(shape[1 - axis])] for i in range(shape[axis])]
    each = [list(combinations(p, n)) for p, n in zip(places, histogram, strict=True)]
    assume(np.prod([len(x) for x in each]) <= 24)
    return [[p for line in chosen for p in line] for chosen in product(*each)]


def drawn_model(
    draw: st.DrawFn, names: tuple[str, ...], touched: tuple[int, int]
) -> tuple[DensityModel, list[Matrix]]:
    """A model that knows places, of a matrix that may be larger than what is touched, and all its data."""
    shape = (touched[0] + draw(st.integers(0, 2)), touched[1] + draw(st.integers(0, 2)))
    axis = draw(st.integers(0, 1))
    kind = draw(st.sampled_from(["rows", "rows", "groups", "band"]))
    if kind == "band":
        width = draw(st.integers(0, 2))
        return Banded(names, shape, width), [[p for p in np.ndindex(*shape) if abs(p[0] - p[1]) <= width]]
    if kind == "groups":
        model = FixedStructured(names, shape, 1, 2, names[1 - axis])
        groups = [(i, j // 2) for i in range(shape[axis]) for j in range(0, shape[1 - axis], 2)]
        places = [
            [(i, j) if axis == 0 else (j, i) for j in range(2 * g, min(2 * g + 2, shape[1 - axis]))]
            for i, g in groups
        ]
        assume(2 ** len(groups) <= 24)
        return model, [list(chosen) for chosen in product(*places)]
    length, size = shape[1 - axis], shape[axis]
    histogram = draw(st.lists(st.integers(0, min(length, 2)), min_size=size, max_size=size))
    return RankNnz.of(names, shape, histogram, [names[axis]]), lines(shape, axis, histogram)


@st.composite
def placed(draw: st.DrawFn, problem: Problem) -> tuple[dict[str, TensorData], dict[str, list[Matrix]]]:
    """Models of A and B, at least one of which knows places."""
    known, data = {"Z": dense_data("Z")}, {}
    for tensor in ("A", "B"):
        touched = shapes(problem)[tensor]
        model, data[tensor] = drawn_model(draw, ranks(problem, tensor), (touched[0], touched[1]))
        known[tensor] = TensorData(tensor, model)
    return known, data


def compared(problem: Problem, known: dict, data: dict, packed: set[tuple[str, str]]) -> None:
    try:
        found, labels = ours(problem, known, packed)
    except Refused:
        reject()
    walk, mean, most = Literal(problem), Counter(), 0.0
    number = len(data["A"]) * len(data["B"])
    for a, b in product(data["A"], data["B"]):
        counts = walk({"A": set(a), "B": set(b)}, packed)
        most += max(walk.timed.values(), default=0) / number
        for key, n in counts.items():
            mean[key] += n / number
    for (tensor, node, kind), label in labels.items():
        for state in (*STATES, "effectual", "ineffectual"):
            key = tensor, node, kind, state
            if label in ("exact", "expected") and kind != "busiest":
                assert found[key] == pytest.approx(mean[key], rel=1e-9, abs=1e-9), (key, label)
            elif label == "bound" and state == "actual":
                assert found[key] >= mean[key] - 1e-9, key
    busiest, label = found["", 0, "operations", "busiest"], labels["", 0, "busiest"]
    if label in ("exact", "expected"):
        assert busiest == pytest.approx(most, rel=2e-6, abs=1e-6)
    elif label == "lower bound":
        assert busiest <= most + 1e-9
    assert found["", 0, "operations", "effectual"] == pytest.approx(mean["", 0, "operations", "effectual"])


@settings(max_examples=120, deadline=None)
@given(small_problems(largest=3), st.data())
def test_what_is_called_expected_is_the_mean_over_all_data(problem: Problem, data: st.DataObject) -> None:
    legal(problem)
    known, every = data.draw(placed(problem))
    packed = {(c, t) for c in ("DRAM", "GLB", "RF") for t in ("A", "B") if data.draw(st.booleans())}
    compared(problem, known, every, packed)


@settings(max_examples=40, deadline=None)
@given(small_problems(largest=3, projections=WINDOWS), st.data())
def test_of_windows_too(problem: Problem, data: st.DataObject) -> None:
    legal(problem)
    size = shapes(problem)["A"][0] + data.draw(st.integers(0, 1))
    histogram = data.draw(st.lists(st.integers(0, 1), min_size=size, max_size=size))
    model, every = drawn_model(data.draw, ranks(problem, "B"), shapes(problem)["B"])
    known = {
        "A": TensorData("A", RankNnz.of(ranks(problem, "A"), (size,), histogram)),
        "B": TensorData("B", model), "Z": dense_data("Z"),
    }  # fmt: skip
    chosen = [[(i,) for i, n in enumerate(histogram) if n]]
    packed = {(c, t) for c in ("DRAM", "GLB", "RF") for t in ("A", "B") if data.draw(st.booleans())}
    compared(problem, known, {"A": chosen, "B": every}, packed)
