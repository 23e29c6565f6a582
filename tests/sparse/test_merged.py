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
from polymodel.sparse.execute.records import EinsumCounts, Times
from polymodel.sparse.execute.run import run
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
    for field in fields(Times):
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
    loops = order.split()
    styles = [f"{name}{rng.choice(['', '.pos', '.coord'])}" for name in loops]
    cut = rng.integers(0, len(loops))
    spec = product(order, styles[:cut], styles[cut:])
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(merging, "BLOCK", block)
        patch.setattr(merging, "_wide", lambda *_: not counted)
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
