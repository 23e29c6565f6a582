"""Two products in panels: figures against dense loops, schedules against a machine of buffers."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from polymodel.sparse.tensor import SparseTensor
from polymodel.tiling.matmul.chain import chain_of
from polymodel.tiling.matmul.pipeline import WAYS, PanelWork, PipelineMachine, Way, pipeline
from tests.tiling.matmul.slow import points, words
from tests.tiling.matmul.slow_pipeline import machine as buffered


@st.composite
def works(draw: st.DrawFn) -> PanelWork:
    """Panels with arbitrary figures; the second product of some has nothing to do."""
    many = draw(st.integers(0, 6))
    row = st.lists(st.integers(0, 12), min_size=many, max_size=many)
    columns = [np.array(draw(row), dtype=np.int64) for _ in range(6)]
    columns[4] += 1
    some = columns[5] > 0
    return PanelWork(columns[0], columns[1] * some, columns[2], columns[3] * some, columns[4], columns[5])


@st.composite
def machines(draw: st.DrawFn) -> PipelineMachine:
    pes = draw(st.integers(2, 5))
    return PipelineMachine(
        pes, draw(st.integers(1, pes - 1)), draw(st.sampled_from([0.5, 1.0, 2.0, 3.0])),
        draw(st.integers(0, 9)), draw(st.integers(0, 3)), draw(st.booleans()), draw(st.integers(1, 3)),
    )  # fmt: skip


@settings(max_examples=60, deadline=None)
@given(works(), machines(), st.sampled_from(WAYS))
def test_schedules_are_those_of_a_machine_with_buffers(
    work: PanelWork, on: PipelineMachine, way: Way
) -> None:
    found = pipeline(work, way, on)
    cycles, stored = buffered(work, way, on)
    assert (found.cycles, list(found.ends)) == (cycles, stored)
    assert max(found.busy.values(), default=0) <= found.cycles


def test_the_example_of_the_chapter() -> None:
    """Three equal panels, worked out by hand in docs/tiling/pipelines.md."""
    each = [np.full(3, n, dtype=np.int64) for n in (10, 4, 6, 6, 20, 10)]
    on = PipelineMachine(2, 1, 1.0, 5, 2, False, 2)
    found = {way: pipeline(PanelWork(*each), way, on) for way in WAYS}
    assert {way: (p.cycles, p.words) for way, p in found.items()} == {
        "separate": (111, 96), "fused": (98, 60), "pipelined": (104, 60),
    }  # fmt: skip


def tensor(name: str, ranks: str, dense: np.ndarray) -> SparseTensor:
    return SparseTensor.from_dense(name, tuple(ranks), dense.tolist())


@settings(max_examples=40, deadline=None)
@given(st.integers(0, 10**6), st.booleans(), st.integers(20, 60))
def test_panels_hand_on_what_they_make(seed: int, turned: bool, room: int) -> None:
    rng = np.random.default_rng(seed)
    sizes = rng.integers(1, 9, 4).tolist()
    a, b, c = ((rng.random(shape) < rng.random()).astype(int) for shape in pairwise(sizes))
    found = chain_of(tensor("A", "IK", a), tensor("B", "KL", b), tensor("C", "LJ", c), (room,) * 5, turned)
    if turned:
        a, b, c = c.T, b.T, a.T
    t, z = a @ b, a @ b @ c
    begins = found.begins.tolist()
    work = PanelWork.of(found)
    on = iter(range(work.panels))
    for first, last in pairwise(begins):
        rows = slice(first, last)
        if not t[rows].any():
            continue
        q = next(on)
        sides = (a[rows], (t[rows] != 0).astype(int), (z[rows] != 0).astype(int))
        assert all(words(points(side)) <= room for side in sides)
        named = [k for k in range(b.shape[0]) if a[rows, k].any() and b[k].any()]
        used = [k for k in range(c.shape[0]) if t[rows, k].any() and c[k].any()]
        assert work.load_1[q] == words(points(sides[0])) + sum(2 * int(b[k].sum()) + 2 for k in named)
        assert work.load_2[q] == sum(2 * int(c[k].sum()) + 2 for k in used)
        assert work.store_t[q] == words(points(sides[1]))
        assert work.store_z[q] == words(points(sides[2]))
        assert work.multiplies_1[q] == t[rows].sum()
        assert work.multiplies_2[q] == (sides[1] @ c).sum()
    assert next(on, None) is None
    assert found.intermediate_words == work.store_t.sum()


def test_figures_of_a_way_are_consistent() -> None:
    """T is moved only where the products run apart; a kernel that stays configured never makes it slower."""
    rng = np.random.default_rng(1)
    columns: list[Any] = [rng.integers(1, 50, 20) for _ in range(6)]
    work = PanelWork(*columns)
    for way in WAYS:
        on = (PipelineMachine(8, 4, 2.0, 90, 8, once, 2) for once in (False, True))
        anew, kept = (pipeline(work, way, machine) for machine in on)
        extra = 2 * int(work.store_t.sum()) if way == "separate" else 0
        assert anew.words == int((work.load_1 + work.load_2 + work.store_z).sum()) + extra
        assert kept.cycles <= anew.cycles
        assert anew.launches == 40
