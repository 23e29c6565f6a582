"""Lines too heavy for a tile are cut across within their own panel: every place lies in one tile."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from polymodel.sparse.tensor import SparseTensor
from polymodel.tiling.cost.model import costs
from polymodel.tiling.fits.fit import Elements, Fit, Stored, Words
from polymodel.tiling.plane.operands import pattern_of
from polymodel.tiling.tilers.strips import StripPanels, in_panels


@pytest.mark.parametrize("by_columns", [False, True])
@given(data=st.data())
@settings(max_examples=60, deadline=None)
def test_panels_of_any_edges_are_partitions_that_fit(by_columns: bool, data: st.DataObject) -> None:
    height, width = data.draw(st.integers(1, 7)), data.draw(st.integers(1, 7))
    places = st.lists(st.booleans(), min_size=height * width, max_size=height * width)
    a, b = (np.array(data.draw(places), dtype=int).reshape(height, width) for _ in "ab")
    pattern = pattern_of(*(SparseTensor.from_dense(n, ("M", "N"), x) for n, x in (("A", a), ("B", b))))
    op = data.draw(st.sampled_from(["add", "multiply"]))
    fit: Fit = data.draw(
        st.sampled_from([Elements(2), Words(9), Words(12), Stored(200, "CSR"), Stored(200, "COO")])
    )
    size = height if by_columns else width
    edges = np.unique([0, size, *data.draw(st.lists(st.integers(0, size), max_size=3))])
    cut = in_panels(StripPanels.of(pattern, edges, by_columns, fit), op, fit, "panels")
    times = np.zeros(pattern.shape, dtype=int)
    for number, (row, col, tall, wide) in enumerate(cut.rects.table()):
        times[row : row + tall, col : col + wide] += 1
        inside = (pattern.rows >= row) & (pattern.rows < row + tall)
        inside &= (pattern.cols >= col) & (pattern.cols < col + wide)
        assert ((cut.ids == number) == inside).all()
    assert (times == 1).all()
    assert not costs(pattern, cut, op, fit).overflowing
