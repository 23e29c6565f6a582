"""Fronts of points in any number of objectives, however they come."""

from __future__ import annotations

import time

import numpy as np
import pytest

from polymodel.sweep.pareto import Front


@pytest.mark.parametrize("objectives", [1, 2, 3, 4])
@pytest.mark.parametrize("most", [4, 1000])
def test_a_front_does_not_depend_on_the_order_nor_on_repeats(objectives: int, most: int) -> None:
    pick = np.random.default_rng(objectives * most)
    values = pick.integers(0, most, (objectives, 300)).astype(float)
    ids = pick.permutation(300)
    front = Front(objectives)
    for part in np.array_split(pick.permutation(300), 7):
        front.offer(values[:, part], ids[part])
        front.offer(values[:, part], ids[part])
    front.offer(front.values, front.ids)
    expected = {
        int(ids[i])
        for i, v in enumerate(values.T)
        if not any(
            (w <= v).all() and ((w < v).any() or ids[j] < ids[i]) for j, w in enumerate(values.T) if j != i
        )
    }  # fmt: skip
    assert sorted(front.ids.tolist()) == sorted(expected)
    assert (np.lexsort((front.ids, *front.values[::-1])) == np.arange(len(front.ids))).all()


def test_a_large_front_in_three_objectives_takes_seconds() -> None:
    """One Python step per point of the front, at each block, took minutes."""
    pick = np.random.default_rng(1)
    front = Front(3)
    start = time.perf_counter()
    for block in range(6):
        values = pick.random((3, 8000)) + 0.01
        values *= np.exp(pick.random(8000) * 0.03) / np.sqrt((values**2).sum(axis=0))
        front.offer(values, np.arange(8000) + 8000 * block)
    assert len(front.ids) > 5000
    assert time.perf_counter() - start < 60
