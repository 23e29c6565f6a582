"""No partition into rectangles that fit costs less than `cost_bound`: all of them, on small matrices."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from polymodel.sparse.tensor import SparseTensor
from polymodel.tiling.cost.model import Launch, Objective, cost_bound
from polymodel.tiling.fits.fit import Elements, Fit, Op, Words
from polymodel.tiling.plane.operands import pattern_of
from tests.tiling.slow import Rect, can_run, cycles, load

CONFIG = {"add": 824, "multiply": 907}


@cache
def partitions(height: int, width: int) -> tuple[tuple[Rect, ...], ...]:
    """Every way to cover the plane with rectangles, each once: the first free place is a corner."""

    def cover(free: frozenset[tuple[int, int]]) -> Iterator[tuple[Rect, ...]]:
        if not free:
            yield ()
            return
        row, col = min(free)
        for h in range(1, height - row + 1):
            for w in range(1, width - col + 1):
                box = {(row + i, col + j) for i in range(h) for j in range(w)}
                if not box <= free:
                    break
                for rest in cover(free - box):
                    yield ((row, col, h, w), *rest)

    return tuple(cover(frozenset((i, j) for i in range(height) for j in range(width))))


def test_partitions_are_all_there() -> None:
    """As many as are known: 8 of a 2 x 2 square, 322 of a 3 x 3 one."""
    assert [len(partitions(n, n)) for n in (1, 2, 3)] == [1, 8, 322]


def least(
    a: np.ndarray, b: np.ndarray, op: Op, rule: tuple[str, int], run: str, ramp: int
) -> dict[str, int] | None:
    """The least of each objective over all partitions whose tiles fit; None if none does."""
    found: list[tuple[int, int, int]] = []
    for rects in partitions(*a.shape):
        if any(load(a, b, r, rule, op) > rule[1] for r in rects):
            continue
        useful = [r for r in rects if can_run(a, b, r, op)]
        spent = sum(cycles(a, b, r, op) - 8 + ramp for r in useful)
        kernels = len(useful)
        if run == "all":
            spent, kernels = spent + 10 * (len(rects) - len(useful)), len(rects)
        found.append((kernels, spent, spent + kernels * CONFIG[op]))
    if not found:
        return None
    return dict(zip(("tiles", "cycles", "total"), map(min, zip(*found, strict=True)), strict=True))


@given(data=st.data())
@settings(max_examples=60, deadline=None)
def test_no_partition_costs_less(data: st.DataObject) -> None:
    height, width = data.draw(st.sampled_from([(1, 4), (2, 3), (3, 3), (4, 2)]))
    places = st.lists(st.booleans(), min_size=height * width, max_size=height * width)
    a, b = (np.array(data.draw(places)).reshape(height, width) for _ in "ab")
    op: Op = data.draw(st.sampled_from(["add", "multiply"]))
    kind = data.draw(st.sampled_from(["elements", "words"]))
    capacity = data.draw(st.integers(2, 8) if kind == "elements" else st.integers(7, 22))
    fit: Fit = Elements(capacity) if kind == "elements" else Words(capacity)
    run = data.draw(st.sampled_from(["nonempty", "all"]))
    ramp = data.draw(st.sampled_from([3, 8, 12]))
    launch = Launch(run=run, ramp=ramp)
    pattern = pattern_of(*(SparseTensor.from_dense("A", ("M", "N"), x.astype(int)) for x in (a, b)))
    best = least(a, b, op, (kind, capacity), run, ramp)
    if best is None:
        return
    objectives: tuple[Objective, ...] = ("tiles", "cycles", "total")
    for objective in objectives:
        assert cost_bound(pattern, op, fit, launch, objective) <= best[objective], objective


@pytest.mark.parametrize(("op", "expected"), [("add", 4 * 832 + 25 + 5), ("multiply", 3 * 915 + 20 + 4)])
def test_a_dense_matrix(op: Op, expected: int) -> None:
    """A full, B without its first row.

    Add at 12: 45 entries in 4 kernels, 25 places, five rows of at most 10 entries, each with an end.
    Multiply at 7: 20 places that both hold in 3 kernels, in four rows of 5.
    """
    a = np.ones((5, 5), dtype=int)
    b = a.copy()
    b[0] = 0
    pattern = pattern_of(*(SparseTensor.from_dense("A", ("M", "N"), x) for x in (a, b)))
    assert cost_bound(pattern, op, Elements(12 if op == "add" else 7)) == expected


def test_rows_over_the_capacity_reach_several_tiles() -> None:
    """Ten entries of A in one row at 4: three kernels, three ends of rows."""
    a = SparseTensor.from_dense("A", ("M", "N"), np.ones((1, 10), dtype=int))
    b = SparseTensor.from_coo("B", ("M", "N"), (1, 10), np.zeros((2, 0), dtype=int), [])
    assert cost_bound(pattern_of(a, b), "add", Elements(4)) == 3 * 832 + 10 + 3


def test_nothing_costs_nothing_or_one_empty_tile() -> None:
    none = SparseTensor.from_coo("A", ("M", "N"), (3, 3), np.zeros((2, 0), dtype=int), [])
    pattern = pattern_of(none, none)
    assert cost_bound(pattern, "add", Elements(4)) == 0
    assert cost_bound(pattern, "add", Elements(4), Launch(run="all")) == 834
    assert cost_bound(pattern, "multiply", Elements(4), Launch(run="all"), "tiles") == 1
