"""Innermost loops that only reduce are counted, some nodes above them at a time, as if they were walked."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from polymodel.sparse.execute import streamed
from polymodel.sparse.execute.run import run
from polymodel.spec.teaal.records import TeaalSpec
from tests.sparse.cascades import cascade, sparse
from tests.sparse.test_merged import same

# Ranks of the tensors, the expression, and orders of the loops; the innermost reduces, or the one above it.
KERNELS: dict[str, tuple[dict[str, str], str, tuple[str, ...]]] = {
    "vector": (
        {"A": "I J", "X": "J", "Y": "I"},
        "Y[i] = A[i, j] * X[j]",
        ("I J", "I1 I0 J", "J1 I J0", "I1 J1 I0 J0"),
    ),
    "one tensor": ({"A": "I J", "Y": "I"}, "Y[i] = A[i, j]", ("I J", "I1 I0 J")),
    "three": ({"A": "I J", "B": "I J", "X": "J", "Y": "I"}, "Y[i] = A[i, j] * B[i, j] * X[j]", ("I J",)),
    "inner product": (
        {"A": "I J", "B": "K J", "Y": "I K"},
        "Y[i, k] = A[i, j] * B[k, j]",
        ("I K J", "K I J", "I1 J1 I0 K J0"),
    ),
    "dense below": (
        {"A": "I J", "X": "J K", "Y": "I K"},
        "Y[i, k] = A[i, j] * X[j, k]",
        ("I J K", "J1 I J0 K", "I1 I0 J K", "I1 J1 I0 J0 K", "K1 I J K0"),
    ),
    "other below": (
        {"A": "I J", "B": "I K", "Y": "I K"},
        "Y[i, k] = A[i, j] * B[i, k]",
        ("I J K",),
    ),
}
SPLITS = {"I": "uniform_slice(3)", "J": "uniform_shape(5)", "K": "uniform_shape(2)"}


def kernel(name: str, order: str, space: list[str] | None, time: list[str]) -> TeaalSpec:
    ranks, expression, _ = KERNELS[name]
    loops = order.split()
    split = {r: [SPLITS[r]] for r in "IJK" if f"{r}1" in loops}
    mapping: dict[str, Any] = {"loop_order": {"Y": loops}}
    if space is not None:
        mapping["spacetime"] = {"Y": {"space": space, "time": time}}
    if split:
        mapping["partitioning"] = {"Y": split}
    return cascade(ranks, expression, **mapping)


@settings(max_examples=120, deadline=None)
@given(st.integers(0, 10**6), st.sampled_from(sorted(KERNELS)), st.sampled_from([1, 9, 2**20]))
def test_streamed_as_walked(seed: int, name: str, block: int) -> None:
    rng = np.random.default_rng(seed)
    ranks, _, orders = KERNELS[name]
    order = str(rng.choice(orders))
    sizes = dict(zip("IJK", rng.integers(1, 12, 3), strict=True))
    tensors = {}
    for tensor in ranks:
        if tensor != "Y":
            shape = tuple(int(sizes[r]) for r in ranks[tensor].split())
            tensors[tensor] = sparse(rng, shape, rng.choice([0.3, 0.8, 1.0]))
    loops = order.split()
    styles = [f"{loop}{rng.choice(['', '', '.coord'])}" for loop in loops]
    cut = int(rng.integers(0, len(loops)))
    spec = kernel(name, order, None if rng.random() < 0.3 else styles[:cut], styles[cut:])
    walked = run(spec, tensors, keep_loops=True).einsums[0]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(streamed, "BLOCK", block)
        ours = run(spec, tensors, values=False).einsums[0]
    ours = replace(ours, stands_for={})  # of a dense rank only one coordinate is kept
    if walked.times is None:
        times = run(kernel(name, order, [], loops), tensors, keep_loops=True).einsums[0].times
        ours, walked = replace(ours, times=times), replace(walked, times=times)
    same(ours, walked)


@pytest.mark.parametrize("name", sorted(KERNELS))
def test_these_are_streamed(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    done = []
    stream = streamed.stream
    monkeypatch.setattr(streamed, "stream", lambda *given: done.append(stream(*given)) or done[-1])
    ranks, _, orders = KERNELS[name]
    order = orders[0]
    shapes = {t: tuple(5 for _ in r.split()) for t, r in ranks.items() if t != "Y"}
    tensors = {t: np.ones(shape) for t, shape in shapes.items()}
    run(kernel(name, order, [], order.split()), tensors, values=False)
    assert [type(found) for found in done] == [streamed.Streamed]
