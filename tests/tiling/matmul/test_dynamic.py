"""Dynamic tiles against a machine that grows them one coordinate at a time."""

from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from polymodel.tiling.matmul.dynamic import GROWS, Grow, dynamic
from polymodel.tiling.matmul.product import product_of
from tests.tiling.matmul.drawn import factors, tensors
from tests.tiling.matmul.slow_dynamic import Walk
from tests.tiling.matmul.test_uniform import figures

BUFFERS = st.tuples(*[st.integers(7, 60)] * 3)


@settings(max_examples=150, deadline=None)
@given(factors(8), BUFFERS, st.sampled_from(["A", "B"]), st.sampled_from(GROWS))
def test_tiles_grow_as_the_machine_grows_them(
    operands: tuple[np.ndarray, np.ndarray], buffers: tuple[int, int, int], stationary: str, grow: Grow
) -> None:
    product = product_of(*tensors(*operands))
    found = dynamic(product, buffers, stationary, grow)
    assert found is not None
    machine = Walk(*operands, buffers, stationary, grow)
    theirs = machine.run()
    ours = figures(found.traffic())
    assert ours == {name: theirs[name] for name in ours}
    assert found.launches == theirs["pairs"]
    assert product.multiplies == theirs["multiplies"]
    assert found.largest == tuple(machine.fullest.values())
    assert all(held <= m for held, m in zip(found.largest, buffers, strict=True))
