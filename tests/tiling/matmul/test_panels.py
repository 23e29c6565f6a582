"""Row panels against a machine that packs row by row."""

from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from polymodel.tiling.matmul.cost import MatmulMachine
from polymodel.tiling.matmul.panels import panels_of
from polymodel.tiling.matmul.product import product_of
from polymodel.tiling.matmul.search import search
from polymodel.tiling.matmul.shapes import TilingSearch
from tests.tiling.matmul.drawn import factors, tensors
from tests.tiling.matmul.slow import points, words


def packed(a: np.ndarray, z: np.ndarray, capacity: int, z_capacity: float) -> list[tuple[int, int]]:
    """(first row, rows) of each panel: a row is added while both panels still fit."""
    found, first = [], 0
    for row in range(1, len(a)):
        if words(points(a[first : row + 1])) > capacity or words(points(z[first : row + 1])) > z_capacity:
            found.append((first, row - first))
            first = row
    return [*found, (first, len(a) - first)]


@settings(max_examples=80, deadline=None)
@given(factors(12), st.integers(1, 40), st.none() | st.integers(1, 60))
def test_panels_are_packed_row_by_row(
    operands: tuple[np.ndarray, np.ndarray], capacity: int, z_capacity: int | None
) -> None:
    a, b = operands
    z = (a @ b != 0).astype(int)
    found = panels_of(product_of(*tensors(a, b)), capacity, z_capacity)
    theirs = packed(a, z, capacity, np.inf if z_capacity is None else z_capacity)
    assert list(zip(found.begins[:-1].tolist(), found.heights.tolist(), strict=True)) == theirs
    moved, read, rows, launches = [0, 0], 0, 0, 0
    for number, (first, height) in enumerate(theirs):
        part = a[first : first + height]
        met = {k for _, k in points(part) if b[k].any()}
        assert found.a[number] == words(points(part))
        assert found.z[number] == words(points(z[first : first + height]))
        assert found.b[number] == sum(2 * int(b[k].sum()) + 2 for k in met)
        read, rows, launches = read + int(found.b[number]), rows + len(met), launches + bool(met)
        if met:
            moved = [moved[0] + words(points(part)), moved[1] + words(points(z[first : first + height]))]
    t = found.traffic()
    assert (t.a_read, t.z_write, t.b_read, t.z_read) == (*moved, read, 0)
    assert (t.a_fetches, t.b_fetches, t.z_visits, found.launches) == (launches, rows, launches, launches)
    named = b[a.any(axis=0)]
    assert found.b_row_max == max([2 * int(n) + 2 for n in named.sum(axis=1) if n], default=0)


def test_a_long_row_of_b_that_nothing_names_needs_no_room() -> None:
    """Row 1 of B has 9 entries, 20 words, but column 1 of A is empty."""
    a, b = np.zeros((2, 2), dtype=int), np.zeros((2, 9), dtype=int)
    a[:, 0] = b[1] = b[0, 3] = 1
    found = search(product_of(*tensors(a, b)), TilingSearch((64, 4, 64), MatmulMachine()), ("panels",)).best
    assert (found.largest, found.over, found.fits) == ((11, 4, 11), (0, 0, 0), True)
