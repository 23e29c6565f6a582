"""Lower bounds against all partitions of tiny planes into rectangles."""

from __future__ import annotations

import numpy as np
import pytest

from polymodel.tiling.cost.model import costs, kernel_bound, lower_bound
from polymodel.tiling.fits.fit import Elements, Fit, Op, Words, stored
from polymodel.tiling.plane.pattern import Ints, Rects, TileCounts
from tests.faults import faults
from tests.tiling import slow
from tests.tiling.test_model import cut_of, joined, random


@pytest.mark.parametrize("op", ["add", "multiply"])
@pytest.mark.parametrize("fit", [Elements(2), Elements(3), Words(11), Words(13)])
def test_no_partition_has_fewer(op: Op, fit: Fit) -> None:
    reached = 0
    for seed in range(12):
        shape = ((3, 3), (2, 4), (4, 2))[seed % 3]
        a, b = random(shape, 0.5, seed), random(shape, 0.5, seed + 100)
        pattern, rule = joined(a, b), (fit.unit, fit.capacity)
        fewest = {how: slow.fewest_tiles(a, b, rule, op, how) for how in ("all", "nonempty", "launch")}
        bound, kernels = lower_bound(pattern, op, fit), kernel_bound(pattern, op, fit)
        assert 0 <= kernels <= bound <= fewest["nonempty"] <= fewest["all"]
        assert kernels <= fewest["launch"]
        reached += bound == fewest["nonempty"]
    assert reached > 0


def test_multiply_may_launch_fewer_than_hold_entries() -> None:
    """Operands that never meet: three tiles and more hold entries, none is launched."""
    a, b = np.zeros((6, 2), dtype=np.bool_), np.zeros((6, 2), dtype=np.bool_)
    a[:, 0] = b[:, 1] = True
    pattern = joined(a, b)
    assert lower_bound(pattern, "multiply", Elements(2)) == 3
    assert kernel_bound(pattern, "multiply", Elements(2)) == 0
    assert slow.fewest_tiles(a, b, ("elements", 2), "multiply", "launch") == 0


def test_bounds_by_hand() -> None:
    """A: 6 entries in 3 rows; B: 2 in 1 row, of them 1 shared. Union: 7 in 4 rows."""
    a, b = np.zeros((5, 4), dtype=np.bool_), np.zeros((5, 4), dtype=np.bool_)
    a[:3, :2] = True
    b[2, 1], b[4, 3] = True, True
    pattern = joined(a, b)
    assert lower_bound(pattern, "add", Elements(3)) == 3  # (6 + 2) / 3
    assert lower_bound(pattern, "multiply", Elements(3)) == 2  # 6 / 3
    assert kernel_bound(pattern, "multiply", Elements(3)) == 1
    assert lower_bound(pattern, "add", Words(13)) == 3  # (14 + 8) / 10
    assert lower_bound(pattern, "multiply", Words(13)) == 2  # (12 + 6) / 10
    assert kernel_bound(pattern, "multiply", Words(13)) == 1  # (2 + 2) / 10


def test_nothing_takes_no_tile_and_words_too_few_are_an_error() -> None:
    none = joined(np.zeros((3, 3), dtype=np.bool_), np.zeros((3, 3), dtype=np.bool_))
    for fit in (Elements(1), Words(1), Rows(1)):
        assert lower_bound(none, "add", fit) == kernel_bound(none, "multiply", fit) == 0
    with faults("over-capacity", at=""):
        lower_bound(joined(random((3, 3), 1, 0), random((3, 3), 1, 0)), "add", Words(6))


class Rows(Fit):
    """Rows of the union: a fit of which the bounds know nothing."""

    @property
    def unit(self) -> str:
        return "rows"

    def loads(self, counts: TileCounts, rects: Rects, op: Op) -> Ints:
        return counts.rows_union


def test_of_other_fits_only_the_whole_is_asked() -> None:
    full = joined(random((3, 3), 1, 0), random((3, 3), 1, 0))
    assert lower_bound(full, "add", Rows(2)) == 2
    assert lower_bound(full, "add", Rows(3)) == 1
    assert kernel_bound(full, "multiply", Rows(2)) == 1


@pytest.mark.parametrize(
    "form", ["CSR", "CSC", "COO", "dense", "DCSR", ["UOP", "CP"], ["U", "B"], ["CP", "RLE"]]
)
@pytest.mark.parametrize("op", ["add", "multiply"])
def test_bits_of_entries_alone_bound_tiles_of_a_format(form: str | list[str], op: Op) -> None:
    """Every tile of any size takes at least the bits of its entries, so all tiles together do."""
    a, b = random((6, 7), 0.5, 3), random((6, 7), 0.4, 4)
    pattern = joined(a, b)
    for height, width in ((1, 1), (2, 3), (6, 7)):
        corners = [(r, c) for r in range(0, 6, height) for c in range(0, 7, width)]
        cut = cut_of(pattern, [(r, c, min(height, 6 - r), min(width, 7 - c)) for r, c in corners])
        most = int(stored(form, 1).loads(TileCounts(pattern, cut.ids, cut.tiles), cut.rects, op).max())
        found = costs(pattern, cut, op, stored(form, most))
        assert found.overflowing == 0
        assert 1 <= lower_bound(pattern, op, found.fit) <= found.nonempty
        assert 1 <= kernel_bound(pattern, op, found.fit) <= found.kernels


def test_bits_of_entries_by_hand() -> None:
    """30 values of 8 bits, with two coordinates of 32 in COO, one in CSR, and none in dense tiles."""
    a = np.ones((5, 6), dtype=np.bool_)
    pattern = joined(a, a)
    assert lower_bound(pattern, "add", stored("COO(data=8)", 100)) == 22  # 2160 bits
    assert lower_bound(pattern, "add", stored({"format": "CSR", "data": 8}, 100)) == 12  # 1200
    assert lower_bound(pattern, "add", stored("dense", 100)) == 10  # 960
    assert kernel_bound(pattern, "multiply", stored("COO(data=8)", 150)) == 15
    assert lower_bound(pattern, "add", stored("COO(data=8)", 10**6)) == 1


def test_what_is_empty_is_no_reason_for_a_second_tile() -> None:
    """One entry in a column of 34: all of it takes more than 1000 bits of CSR, a tile of the entry 96."""
    one = np.zeros((34, 1), dtype=np.bool_)
    one[31, 0] = True
    pattern, fit = joined(one, one), stored("CSR", 1000)
    assert (
        fit.loads(TileCounts(pattern, np.zeros(1, dtype=np.int32), 1), Rects.whole((34, 1)), "add")[0] > 1000
    )
    assert lower_bound(pattern, "add", fit) == 1
    cut = cut_of(pattern, [(0, 0, 17, 1), (17, 0, 17, 1)])
    assert costs(pattern, cut, "add", fit).overflowing == 0
    assert costs(pattern, cut, "add", fit).nonempty == 1
