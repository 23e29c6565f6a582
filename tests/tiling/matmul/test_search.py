"""All strategies beside each other: the best is no worse than any uniform shape, and nothing overflows."""

from __future__ import annotations

from dataclasses import replace
from itertools import product as every
from math import inf
from typing import Any, get_args

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from polymodel.api.matmul import tile_matmul
from polymodel.errors import TimeUp
from polymodel.sparse.density.random import random_tensor
from polymodel.tiling.matmul.cost import MatmulMachine
from polymodel.tiling.matmul.dynamic import Dynamic, dynamic
from polymodel.tiling.matmul.product import product_of
from polymodel.tiling.matmul.search import STRATEGIES, search
from polymodel.tiling.matmul.shapes import Objective, TilingSearch, grid_for
from polymodel.tiling.matmul.uniform import UniformTiles
from polymodel.tiling.matmul.walk import ORDERS
from tests.faults import faults, refused
from tests.tiling.matmul.drawn import factors, tensors

BUFFERS = st.tuples(*[st.integers(7, 60)] * 3)


@settings(max_examples=30, deadline=None)
@given(factors(8), BUFFERS, st.sampled_from(get_args(Objective)))
def test_the_best_is_never_worse_than_any_uniform_shape(
    operands: tuple[np.ndarray, np.ndarray], buffers: tuple[int, int, int], objective: Objective
) -> None:
    product = product_of(*tensors(*operands))
    asked = TilingSearch(buffers, MatmulMachine(2, 3.0), objective)
    found = search(product, asked)
    best = asked.value(found.best.traffic.words, found.best.cycles)
    for tile in every(*grid_for(product)):
        uniform = UniformTiles(product, tile)
        if max(s.largest - m for s, m in zip((uniform.a, uniform.b, uniform.z), buffers, strict=True)) > 0:
            continue
        for order in ORDERS:
            words = uniform.traffic(order).words
            cycles = asked.machine.cycles(product.multiplies, words, uniform.effectual)
            assert best <= asked.value(words, cycles)
    least = product.compulsory_words
    for candidate in found.candidates:
        assert candidate.traffic.words >= least
        held = all(w <= m for w, m in zip(candidate.largest, buffers, strict=True))
        assert held or candidate.strategy == "overbooked" or not candidate.fits
        again = asked.machine.cycles(product.multiplies, candidate.traffic.words, candidate.launches)
        assert candidate.cycles == again
    values = [asked.value(c.traffic.words, c.cycles) for c in found.candidates if c.fits]
    assert values == sorted(values)


def test_every_strategy_is_compared() -> None:
    rng = np.random.default_rng(1)
    product = product_of(*tensors(rng.random((50, 40)) < 0.1, rng.random((40, 60)) < 0.1))
    told: list[str] = []
    found = search(product, TilingSearch((60, 60, 60), MatmulMachine(), progress=told.append))
    assert {c.strategy for c in found.candidates} == {"uniform", "panels", "dynamic", "overbooked"}
    assert found.best.fits
    given_up = sum("given up" in note for note in found.notes)
    assert sum(c.strategy == "dynamic" for c in found.candidates) + given_up == 6
    over = next(c for c in found.candidates if c.strategy == "overbooked")
    assert any(over.over)
    assert isinstance(over.source, UniformTiles)
    sides = (over.source.a, over.source.b, over.source.z)
    assert all(n <= 0.1 * side.count for n, side in zip(over.over, sides, strict=True))
    assert {"row panels", "dynamic tiles: B stays, k first"} <= set(told)


def test_what_does_not_fit_is_refused() -> None:
    product = product_of(*tensors(np.ones((3, 3)), np.ones((3, 3))))
    with refused("over-capacity", "20"):
        search(product, TilingSearch((6, 20, 20), MatmulMachine()), ("uniform",))
    with faults("over-capacity", "B", at=""):
        search(product, TilingSearch((20, 6, 20), MatmulMachine()))


def test_a_search_out_of_time_says_what_it_left() -> None:
    product = product_of(*tensors(np.ones((30, 30)), np.ones((30, 30))))
    found = search(
        product,
        TilingSearch((2000, 2000, 2000), MatmulMachine(), until=0.0),
        ("panels", "uniform", "dynamic"),
    )
    assert found.best.strategy == "panels"
    assert any("were not looked at in time" in note for note in found.notes)
    assert sum("given up" in note for note in found.notes) == 6
    assert dynamic(product, (2000, 2000, 2000), stop=lambda launches: True) is None


def test_what_was_not_looked_at_in_time_is_not_said_to_fit_nothing() -> None:
    """Panels do not fit: row 0 of Z takes 65 words. Whether another shape does was not found out in time."""
    product = product_of(*tensors(np.ones((30, 30)), np.ones((30, 30))))
    asked = TilingSearch((64, 64, 64), MatmulMachine(), until=0.0)
    for strategies in (("panels", "uniform"), ("panels", "dynamic"), ("overbooked",), STRATEGIES):
        with pytest.raises(TimeUp, match="no tiles that fit were found in time"):
            search(product, asked, strategies)
    with refused("over-capacity", "uniform"):
        search(product, replace(asked, until=inf, grid=((30,), (30,), (30,))), ("uniform",))


@pytest.mark.parametrize("asked", [{"tile": (2, 2, 2)}, {"capacity": 64}])
def test_a_limit_of_time_is_told_as_it_was_asked_for(asked: dict[str, Any]) -> None:
    with pytest.raises(TimeUp, match=r"the time limit of 1e-09 s is over"):
        tile_matmul(random_tensor(["I", "J"], [8, 8], 0.5, seed=1), time_limit=1e-9, **asked)


def test_ranges_of_dynamic_tiles_cover_every_multiply_once() -> None:
    rng = np.random.default_rng(2)
    a, b = rng.random((20, 30)) < 0.3, rng.random((30, 25)) < 0.3
    product = product_of(*tensors(a, b))
    for stationary in ("A", "B"):
        found = dynamic(product, (50, 40, 70), stationary)
        assert isinstance(found, Dynamic)
        seen = np.zeros((20, 30, 25), dtype=int)
        for outer, outer_end, k, k_end, inner, inner_end in found.visits[:, :6]:
            i, j = ((outer, outer_end), (inner, inner_end))[:: 1 if stationary == "A" else -1]
            seen[i[0] : i[1], k:k_end, j[0] : j[1]] += 1
        assert seen.max() == 1
        assert (seen[a[:, :, None] & b[None]] == 1).all()
