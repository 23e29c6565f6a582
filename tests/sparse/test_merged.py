"""Innermost loops that merge fibers into the output's are counted as if they were walked."""

from __future__ import annotations

from dataclasses import fields
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import polymodel as pm
from polymodel.errors import MemoryUp
from polymodel.sparse.execute import merged as merging
from polymodel.sparse.execute.records import EinsumCounts, ExecutionTimes
from polymodel.sparse.execute.run import run
from polymodel.sparse.fibertree import Level, LoopRank
from polymodel.spec.teaal.records import TeaalSpec
from tests.sparse.cascades import cascade, sparse

PRODUCT = {"A": "I K", "B": "K J", "Z": "I J"}
ORDERS = ("I K J", "K I J", "I1 I0 K J", "K1 I K0 J", "I J1 K J0", "J1 I K J0", "I1 K1 I0 K0 J1 J0")
SPLITS = {"I": "uniform_slice(3)", "K": "uniform_shape(5)", "J": "uniform_shape(7)"}


def product(order: str, space: list[str], time: list[str]) -> TeaalSpec:
    loops = order.split()
    split = {r: [SPLITS[r]] for r in "IKJ" if f"{r}1" in loops}
    if order == "I1 K1 I0 K0 J1 J0":
        split["I"] = ["uniform_shape(4)"]
    mapping: dict[str, Any] = {"loop_order": {"Z": loops}, "spacetime": {"Z": {"space": space, "time": time}}}
    if split:
        mapping["partitioning"] = {"Z": split}
    return cascade(PRODUCT, "Z[i, j] = A[i, k] * B[k, j]", **mapping)


def same(ours: EinsumCounts, walked: EinsumCounts) -> None:
    for field in fields(EinsumCounts):
        if field.name not in ("inputs", "levels", "times"):
            assert getattr(ours, field.name) == getattr(walked, field.name), field.name
    assert ours.times is not None
    assert walked.times is not None
    for field in fields(ExecutionTimes):
        assert np.array_equal(getattr(ours.times, field.name), getattr(walked.times, field.name)), field.name


def both_ways(spec: TeaalSpec, tensors: dict[str, np.ndarray], sizes: dict[str, int] | None = None) -> None:
    walked = run(spec, tensors, rank_sizes=sizes, keep_loops=True)
    for values in (True, False):
        ours = run(spec, tensors, rank_sizes=sizes, values=values)
        for a, b in zip(ours.einsums, walked.einsums, strict=True):
            same(a, b)
        for name, result in ours.results.items():
            assert np.array_equal(result.coords, walked.results[name].coords)
            assert np.array_equal(result.values, walked.results[name].values)


@settings(max_examples=40, deadline=None)
@given(st.integers(0, 10**6), st.sampled_from(ORDERS), st.sampled_from([1, 40, 2**20]), st.booleans())
def test_merged_as_walked(seed: int, order: str, block: int, counted: bool) -> None:
    rng = np.random.default_rng(seed)
    i, k, j = rng.integers(1, 40, 3)
    tensors = {"A": sparse(rng, (i, k), rng.random()), "B": sparse(rng, (k, j), rng.random())}
    if rng.random() < 0.4:  # all rows of B hold the same coordinates
        tensors["B"] = np.tile(sparse(rng, (1, j), rng.choice([0.5, 1.0])), (k, 1))
    loops = order.split()
    styles = [f"{name}{rng.choice(['', '.pos', '.coord'])}" for name in loops]
    cut = rng.integers(0, len(loops))
    spec = product(order, styles[:cut], styles[cut:])
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(merging, "BLOCK", block)
        patch.setattr(merging, "far_apart", lambda *_: not counted)
        both_ways(spec, tensors)


@pytest.mark.parametrize("block", [1, 10, 1000])
def test_one_long_fiber_is_merged_piece_by_piece(block: int, monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(3)
    monkeypatch.setattr(merging, "BLOCK", block)
    spec = cascade(
        {"A": "K", "B": "K J", "Z": "J"},
        "Z[j] = A[k] * B[k, j]",
        loop_order={"Z": ["K", "J"]},
        spacetime={"Z": {"space": [], "time": ["K", "J.coord"]}},
    )
    both_ways(spec, {"A": sparse(rng, (60,), 0.7), "B": sparse(rng, (60, 50), 0.2)})


def test_cascades_go_on_from_what_was_merged() -> None:
    rng = np.random.default_rng(5)
    spec = cascade(
        {"A": "I K", "B": "K J", "T": "I J", "C": "J L", "Z": "I L"},
        "T[i, j] = A[i, k] * B[k, j]",
        "Z[i, l] = T[i, j] * C[j, l]",
        loop_order={"T": ["I", "K", "J"], "Z": ["J", "I", "L"]},
        spacetime={"T": {"space": ["I"], "time": ["K", "J"]}, "Z": {"space": ["I"], "time": ["J", "L"]}},
    )
    shapes = {"A": (20, 30), "B": (30, 25), "C": (25, 15)}
    both_ways(spec, {name: sparse(rng, shape, 0.2) for name, shape in shapes.items()})


def test_values_that_cancel_are_counted_and_left_out() -> None:
    spec = product("I K J", ["I"], ["K", "J"])
    found = pm.execute(spec, {"A": np.array([[1, -1]]), "B": np.array([[2, 1], [2, 0]])})
    assert (found.einsums[0].output_nnz, found.einsums[0].zeros, found.results["Z"].nnz) == (2, 1, 1)


def test_taken_values_are_counted_and_not_added() -> None:
    """The last of several visits stands, so nothing is added; with values the loop is walked."""
    rng = np.random.default_rng(9)
    spec = cascade(
        PRODUCT,
        "Z[i, j] = take(A[i, k], B[k, j], 1)",
        loop_order={"Z": ["I", "K", "J"]},
        spacetime={"Z": {"space": ["I"], "time": ["K", "J"]}},
    )
    both_ways(spec, {"A": sparse(rng, (20, 30), 0.3), "B": sparse(rng, (30, 25), 0.3)})


def test_a_result_that_does_not_fit_is_not_begun() -> None:
    tensors = {"A": np.ones((3000, 1)), "B": np.ones((1, 3000))}
    spec = product("I K J", [], ["I", "K", "J"])
    with pm.limits(memory="400MB"), pytest.raises(MemoryUp, match="result of Z"):
        pm.execute(spec, tensors)
    with pm.limits(memory="400MB"):
        assert pm.execute(spec, tensors, values=False).einsums[0].output_nnz == 9 * 10**6


def test_few_values_far_apart_take_little_memory() -> None:
    last = 2**30
    a = pm.SparseTensor.from_coo("A", ("I", "K"), (2, 2), np.array([[0, 0, 1], [0, 1, 1]]), np.ones(3))
    b = pm.SparseTensor.from_coo(
        "B", ("K", "J"), (2, last + 1), np.array([[0, 0, 1], [0, last, last]]), np.ones(3)
    )
    spec = cascade(PRODUCT, "Z[i, j] = A[i, k] * B[k, j]", loop_order={"Z": ["I", "K", "J"]})
    with pm.limits(memory="1 GB"):
        made = run(spec, {"A": a, "B": b}).results["Z"]
    assert made.coords.tolist() == [[0, 0, 1], [0, last, last]]
    assert made.values.tolist() == [1, 2, 1]


@pytest.mark.parametrize(
    "left", ["bool", "int8", "uint8", "uint64", "float16", "float32", "float64", "complex64"]
)
@pytest.mark.parametrize("right", ["uint8", "uint64", "float32"])
def test_values_of_any_type_are_those_of_the_walk(left: str, right: str) -> None:
    rng = np.random.default_rng(5)
    a = (rng.integers(0, 100, (5, 6)) * (rng.random((5, 6)) < 0.6)).astype(left)
    b = (rng.integers(0, 200, (6, 7)) * (rng.random((6, 7)) < 0.6)).astype(right)
    spec = cascade(PRODUCT, "Z[i, j] = A[i, k] * B[k, j]", loop_order={"Z": ["I", "K", "J"]})
    walked = run(spec, {"A": a, "B": b}, keep_loops=True).results["Z"]
    ours = run(spec, {"A": a, "B": b}).results["Z"]
    wanted = a.astype(np.complex128) @ b.astype(np.complex128)
    for made in (walked, ours):
        assert made.values.dtype == walked.values.dtype
        dense = np.zeros(wanted.shape, dtype=np.complex128)
        dense[tuple(made.coords)] = made.values
        assert np.array_equal(dense, wanted)


@pytest.mark.parametrize("merges", [True, False])
def test_whole_numbers_of_64_bits_without_a_sign_are_not_rounded(merges: bool) -> None:
    a = np.array([[3, 0], [1, 2]], dtype=np.uint64)
    b = np.array([[2**60 + 1, 0], [5, 2**61 + 3]], dtype=np.uint64)
    spec = cascade(PRODUCT, "Z[i, j] = A[i, k] * B[k, j]", loop_order={"Z": ["I", "K", "J"]})
    made = run(spec, {"A": a, "B": b}, keep_loops=not merges).results["Z"]
    assert made.values.tolist() == [3 * (2**60 + 1), 2**60 + 11, 2 * (2**61 + 3)]


def test_lines_longer_than_any_fiber_hold_all_of_it() -> None:
    level = Level(
        LoopRank("J", ("J",), (9,)), np.array([1, 4], dtype=np.int64), np.array([0, 2], dtype=np.int64)
    )
    zero, window = np.zeros(9, dtype=np.int64), np.array([0] * 8 + [1], dtype=np.int64)
    fibers = merging.FiberVisits(level, zero, zero + 2, np.array([9], dtype=np.int64))
    assert fibers.lines(window, 2**61) == fibers.lines(window, 100) == (1, 2)
