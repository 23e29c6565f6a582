"""The best uniform shape against all shapes of the grid; the bounds that spare most of them."""

from __future__ import annotations

from itertools import product as every
from typing import get_args

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from polymodel.tiling.cost.model import Launch
from polymodel.tiling.matmul.cost import MatmulMachine
from polymodel.tiling.matmul.product import product_of
from polymodel.tiling.matmul.shapes import Bounds, Objective, TilingSearch, best_shapes, grid_for, sizes
from polymodel.tiling.matmul.uniform import UniformTiles
from polymodel.tiling.matmul.walk import ORDERS
from tests.tiling.matmul.drawn import factors, tensors

BUFFERS = st.tuples(*[st.integers(7, 60)] * 3)
MACHINES = st.sampled_from(
    [
        MatmulMachine(),
        MatmulMachine(4, 0.5, Launch(config_multiply=3)),
        MatmulMachine(launch=Launch(config_multiply=0)),
    ]
)
ASKED_ORDERS = st.sampled_from([ORDERS, ("ijk",), ("kji", "ikj")])


@settings(max_examples=40, deadline=None)
@given(
    factors(10),
    BUFFERS,
    st.sampled_from(get_args(Objective)),
    MACHINES,
    ASKED_ORDERS,
    st.sampled_from([0.0, 0.3]),
)
def test_no_shape_of_the_grid_is_better(
    operands: tuple[np.ndarray, np.ndarray],
    buffers: tuple[int, int, int],
    objective: Objective,
    machine: MatmulMachine,
    orders: tuple[str, ...],
    share: float,
) -> None:
    product = product_of(*tensors(*operands))
    asked = TilingSearch(buffers, machine, objective, orders, share)
    found = best_shapes(product, asked)
    values = []
    for tile in every(*grid_for(product)):
        uniform = UniformTiles(product, tile)
        sides = list(zip((uniform.a, uniform.b, uniform.z), buffers, strict=True))
        if any(sum(w > m for w in side.words.tolist()) > share * side.count for side, m in sides):
            continue
        for order in orders:
            words = uniform.traffic(order, buffers).words
            values.append(asked.value(words, machine.cycles(product.multiplies, words, uniform.effectual)))
    best = found.best[0]
    assert min(values) == asked.value(best.traffic.words, best.cycles)
    assert len(values) == found.fitting * len(orders)
    assert len(found.best) + found.passed == found.fitting
    assert found.left == 0
    assert share or all(held <= m for held, m in zip(best.largest, buffers, strict=True))


@settings(max_examples=60, deadline=None)
@given(factors(10), st.tuples(*[st.integers(1, 10)] * 3))
def test_bounds_are_below_what_is_counted(
    operands: tuple[np.ndarray, np.ndarray], tile: tuple[int, int, int]
) -> None:
    uniform = UniformTiles(product_of(*tensors(*operands)), tile)
    z = uniform.z.total, uniform.z.count
    least = Bounds(uniform.product).least(tile, z, (uniform.a.largest, uniform.b.largest))
    assert least.pairs <= uniform.effectual
    for order in ORDERS:
        assert least.words[order[-1]] <= uniform.traffic(order).words


def test_sizes_are_powers_of_two_and_even_splits() -> None:
    assert sizes(1) == (1,)
    assert sizes(10) == (1, 2, 3, 4, 5, 8, 10)
    assert sizes(100) == (4, 8, 16, 25, 32, 34, 50, 64, 100)


def test_time_that_runs_out_is_told() -> None:
    rng = np.random.default_rng(0)
    product = product_of(*tensors(rng.random((40, 40)) < 0.2, rng.random((40, 40)) < 0.2))
    found = best_shapes(product, TilingSearch((100, 100, 100), MatmulMachine(), until=0.0))
    assert found.best == ()
    assert found.left == found.fitting > 100
    told: list[str] = []
    found = best_shapes(product, TilingSearch((100, 100, 100), MatmulMachine(), progress=told.append))
    assert found.left == 0
    assert told[0] == "tile shapes: which fit"
    assert told[-1].startswith("tile shapes: ")
    # The bounds are there to spare work.
    assert len(found.best) < found.passed
