"""Blocks of combinations: each combination once and in order, whatever the size of the blocks is."""

from __future__ import annotations

from itertools import product

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from polymodel.slopes.loop_nests import blocks, subsets


@given(st.lists(st.integers(0, 5), max_size=4), st.integers(1, 200))
def test_blocks_give_every_combination_once(lengths: list[int], most: int) -> None:
    values = [np.arange(n) * 10**k for k, n in enumerate(lengths)]
    figures, choices = [], []
    for block in blocks(lengths, most):
        total = sum((block.along(v, k) for k, v in enumerate(values)), np.int64(0))
        flat = block.flat(total)
        assert len(flat) <= max(most, int(np.prod(lengths[1:])) if lengths else 1)
        figures += flat.tolist()
        choices += [block.choices(at) for at in range(len(flat))]
    assert choices == list(product(*map(range, lengths)))
    assert figures == [sum(i * 10**k for k, i in enumerate(chosen)) for chosen in choices]


def test_subsets_are_small_ones_first() -> None:
    assert list(subsets("ab")) == [(), ("a",), ("b",), ("a", "b")]
    assert list(subsets("ab", 1)) == [("a",), ("b",), ("a", "b")]
    assert list(subsets("")) == [()]
