"""The optimum of guillotine cuts, against plain recursion over all cuts of tiny grids; what is refused."""

from __future__ import annotations

from functools import lru_cache

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from polymodel.errors import SpecError
from polymodel.sparse.tensor import SparseTensor
from polymodel.tiling.cost.model import lower_bound
from polymodel.tiling.fits.fit import Elements, Op
from polymodel.tiling.plane.operands import Alone, pattern_of
from polymodel.tiling.tilers.guillotine import guillotine, min_nonskipped
from tests.faults import every_fault, refused
from tests.tiling import slow
from tests.tiling.test_strips import FITS, is_partition, operands

OPS: tuple[Op, ...] = ("add", "multiply")


def fewest(
    a: np.ndarray, b: np.ndarray, fit: tuple[str, int], op: str, grid: tuple[int, int], all_: bool
) -> int:
    """Every cut between cells, one after the other; a rectangle that fits is a tile."""
    rows, cols = ([round(n * i / g) for i in range(g + 1)] for n, g in zip(a.shape, grid, strict=True))

    @lru_cache(None)
    def of(r: int, end: int, c: int, last: int) -> int:
        rect = (rows[r], cols[c], rows[end] - rows[r], cols[last] - cols[c])
        if slow.load(a, b, rect, fit, op) <= fit[1]:
            return 1 if all_ else int(slow.can_run(a, b, rect, op))
        below = [of(r, m, c, last) + of(m, end, c, last) for m in range(r + 1, end)]
        beside = [of(r, end, c, m) + of(r, end, m, last) for m in range(c + 1, last)]
        return min(below + beside)  # an empty list is a cell that does not fit: ValueError

    return of(0, len(rows) - 1, 0, len(cols) - 1)


@given(
    st.tuples(st.integers(1, 8), st.integers(1, 8)),
    st.tuples(st.integers(1, 5), st.integers(1, 5)),
    st.floats(0, 1.5),
    st.integers(0, 10**6),
    st.sampled_from(sorted(FITS)),
    st.sampled_from(["add", "multiply"]),
    st.integers(0, 12),
)
@settings(max_examples=200, deadline=None)
def test_optimum_is_that_of_recursion(
    shape: tuple[int, int], cells: tuple[int, int], share: float, seed: int, kind: str, op: Op, room: int
) -> None:
    a, b, pattern = operands(*shape, share, seed)
    rule, name, least = FITS[kind]
    fit = rule(least + room)
    grid = (min(cells[0], shape[0]), min(cells[1], shape[1]))
    try:
        tiles, useful = (fewest(a, b, (name, fit.capacity), op, grid, all_) for all_ in (True, False))
    except ValueError:
        with refused("over-capacity"):
            guillotine(pattern, op, fit, cells)
        return
    found = guillotine(pattern, op, fit, cells)
    is_partition(found, pattern)
    assert found.tiles == tiles
    assert min_nonskipped(pattern, op, fit, cells) == useful
    for rect in found.rects.table():
        assert slow.load(a, b, tuple(rect), (name, fit.capacity), op) <= fit.capacity


def test_what_is_refused() -> None:
    many = SparseTensor.from_dense("A", ("I", "J"), np.ones((160, 160)))
    with refused("too-large", "25,600", "20,000"):
        guillotine(pattern_of(many), "add", Elements(128))
    assert guillotine(pattern_of(many), "add", Elements(128), (20, 20)).tiles == 400
    with refused("over-capacity", "100", "20"):
        guillotine(pattern_of(many), "add", Elements(128), (10, 10))
    with refused("too-large", "coarser"):
        guillotine(pattern_of(many), "add", Elements(128), (100, 100))
    with every_fault(("not-positive-integer", ""), ("not-positive-integer", "")):
        guillotine(pattern_of(many), "add", Elements(128), (0, True))
    with pytest.raises(SpecError, match="the entry alone needs 2"):
        guillotine(pattern_of(many), "add", Elements(1), (10, 10))


def test_more_tiles_than_short_numbers_hold() -> None:
    """Any two cells are too many, which the bound does not see: numbers of 8 bits are tried and given up."""
    three = np.zeros((24, 24))
    three[::2, ::2] = three[1::2, ::2] = three[::2, 1::2] = 1
    pattern = pattern_of(SparseTensor.from_dense("A", ("I", "J"), three), Alone())
    for op in OPS:
        assert lower_bound(pattern, op, Elements(5)) < 127
        found = guillotine(pattern, op, Elements(5), (12, 12))
        assert found.tiles == 144
        is_partition(found, pattern)


def test_a_fit_that_is_asked_has_a_limit() -> None:
    _, _, pattern = operands(60, 60, 0.9, 1)
    with refused("too-large", "asked"):
        guillotine(pattern, "add", FITS["asked elements"][0](64))
