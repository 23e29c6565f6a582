"""What every tiler owes on every input: an exact partition, nothing over capacity, the same answer twice."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from functools import partial

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from polymodel.errors import Refused, SpecError
from polymodel.sparse.tensor import SparseTensor
from polymodel.tiling.fits.fit import Elements, Fit, Op, Stored, Words
from polymodel.tiling.plane.operands import Alone, Rolled, Second, Transposed, pattern_of
from polymodel.tiling.plane.pattern import Cut, Pattern, TileCounts
from polymodel.tiling.tilers import named as tilers
from tests.seeds import seeds
from tests.tiling import slow
from tests.tiling.test_operands import Points, held, tensor
from tests.tiling.test_stored import bits

Tiler = Callable[[Pattern, Op, Fit], Cut]
TILERS: dict[str, Tiler] = {
    name: partial(tilers.cut, tiler=name)
    for name in (*tilers.NAMES, "qtree+merge", "btree+merge", "strips+fixpoint")
}
# Those that look at a whole grid, however few entries there are.
SLOW = ("guillotine", "best")
OPS: tuple[Op, ...] = ("add", "multiply")
FORMATS = ("CSR", "CSC", "COO", "dense", "B-B", "RLE-RLE")


def full_load(pattern: Pattern, fit: Fit, op: Op, rect: tuple[int, int, int, int]) -> int:
    """How full a rectangle of a matrix makes the fullest memory, counted the slow way."""
    if isinstance(fit, Stored):
        return bits(fit.format, pattern, rect, op)
    a, b = (np.zeros(pattern.shape, np.bool_) for _ in "AB")
    a[pattern.rows[pattern.in_a], pattern.cols[pattern.in_a]] = True
    b[pattern.rows[pattern.in_b], pattern.cols[pattern.in_b]] = True
    return slow.load(a, b, rect, ("words" if isinstance(fit, Words) else "elements", 0), op)


def check_partition(pattern: Pattern, cut: Cut) -> None:
    """The tiles cover the plane once, are in order, and hold the points that are said to be theirs."""
    table = cut.rects.table()
    assert (table[:, 2:] > 0).all()
    assert (table[:, :2] >= 0).all()
    assert (table[:, 0] <= pattern.shape[0] - table[:, 2]).all()
    assert (table[:, 1] <= pattern.shape[1] - table[:, 3]).all()
    rects = [tuple(map(int, rect)) for rect in table]
    assert rects == sorted(rects)
    assert sum(h * w for _, _, h, w in rects) == pattern.shape[0] * pattern.shape[1]
    if math.prod(pattern.shape) <= 10**6:
        times = np.zeros(pattern.shape, dtype=int)
        for r, c, h, w in rects:
            times[r : r + h, c : c + w] += 1
        assert (times == 1).all()
    else:
        for k, (r, c, h, w) in enumerate(rects):
            for s, d, i, j in rects[k + 1 :]:
                assert r + h <= s or s + i <= r or c + w <= d or d + j <= c
    assert cut.ids.size == pattern.points
    r, c, h, w = table[cut.ids].T
    assert ((pattern.rows >= r) & (pattern.rows < r + h)).all()
    assert ((pattern.cols >= c) & (pattern.cols < c + w)).all()


def check(pattern: Pattern, op: Op, fit: Fit, name: str, each: bool = True) -> Cut:
    """All that a tiler owes. `each`: count every tile the slow way too."""
    found = TILERS[name](pattern, op, fit)
    check_partition(pattern, found)
    counts = TileCounts(pattern, found.ids, found.tiles)
    assert int(counts.nnz_a.sum()) == pattern.nnz_a
    assert int(counts.nnz_b.sum()) == pattern.nnz_b
    assert int(counts.union.sum()) == pattern.points
    assert (fit.loads(counts, found.rects, op) <= fit.capacity).all()
    if each:
        for r, c, h, w in found.rects.table().tolist():
            assert full_load(pattern, fit, op, (r, c, h, w)) <= fit.capacity
    again = TILERS[name](pattern, op, fit)
    assert (again.rects.table() == found.rects.table()).all()
    assert (again.ids == found.ids).all()
    return found


def roomy(fit: Fit, op: Op, pattern: Pattern) -> bool:
    """Whether every single place fits."""
    height, width = pattern.shape
    places = ((r, c, 1, 1) for r in range(height) for c in range(width))
    return all(full_load(pattern, fit, op, place) <= fit.capacity for place in places)


@st.composite
def matrices(draw: st.DrawFn) -> Pattern:
    shape = (draw(st.integers(1, 12)), draw(st.integers(1, 12)))
    point = st.tuples(st.integers(0, shape[0] - 1), st.integers(0, shape[1] - 1))
    points: Points = draw(st.sets(point, max_size=40))
    given: list[Second] = [Alone(), Rolled(draw(st.integers(-9, 30)))]
    given.append(tensor(draw(st.sets(point, max_size=40)), shape, name="B"))
    if shape[0] == shape[1]:
        given.append(Transposed())
    return pattern_of(tensor(points, shape), draw(st.sampled_from(given)))


FITS = st.one_of(
    st.integers(1, 40).map(Elements),
    st.integers(3, 60).map(Words),
    st.tuples(st.integers(1, 1200), st.sampled_from(FORMATS)).map(lambda t: Stored(*t)),
)

SMALL = st.sets(st.tuples(st.integers(0, 8), st.integers(0, 6)), max_size=30)


@pytest.mark.parametrize("name", TILERS)
@settings(max_examples=25, deadline=None)
@given(pattern=matrices(), fit=FITS, op=st.sampled_from(OPS))
def test_a_partition_without_overflow_or_an_error(name: str, pattern: Pattern, fit: Fit, op: Op) -> None:
    if roomy(fit, op, pattern):
        check(pattern, op, fit, name)
    else:
        with pytest.raises(SpecError, match="capacity"):
            TILERS[name](pattern, op, fit)


@settings(max_examples=60, deadline=None)
@given(pattern=matrices(), capacity=st.integers(1, 40))
def test_strips_keep_their_bound(pattern: Pattern, capacity: int) -> None:
    """With rows of at most r <= C entries every strip but the last holds more than C - r."""
    heaviest = np.bincount(pattern.rows, pattern.in_a.astype(int) + pattern.in_b, minlength=1).max()
    if heaviest <= capacity:
        entries = pattern.nnz_a + pattern.nnz_b
        tiles = tilers.cut(pattern, "add", Elements(capacity), "strips").tiles
        assert tiles <= max(1, math.ceil(entries / (capacity - heaviest + 1)))


@pytest.mark.parametrize("name", TILERS)
@settings(max_examples=15, deadline=None)
@given(points=st.sets(st.tuples(*[st.integers(0, 4)] * 4), max_size=40), data=st.data())
def test_tensors_on_any_two_ranks(name: str, points: Points, data: st.DataObject) -> None:
    cut = tuple(data.draw(st.permutations("IJKL")))[:2]
    a = tensor(points, (5, 5, 5, 5))
    op = data.draw(st.sampled_from(OPS))
    seconds: list[Second] = [Rolled(2), Alone(), Transposed()]
    pattern = pattern_of(a, data.draw(st.sampled_from(seconds)), cut)
    places: dict[tuple[int, ...], int] = {}
    for which in (pattern.in_a, pattern.in_b):
        for p in held(pattern, which):
            places[p[:2]] = places.get(p[:2], 0) + 1
    fit = data.draw(st.sampled_from([Elements(2 * max(places.values(), default=1)), Words(400)]))
    found = check(pattern, op, fit, name, each=False)
    assert found.tiles >= 1


@pytest.mark.parametrize("name", ["simple", "qtree", "btree"])
@settings(max_examples=20, deadline=None)
@given(points=SMALL, data=st.data())
def test_stored_zeros_change_nothing(name: str, points: Points, data: st.DataObject) -> None:
    zeros = data.draw(st.sets(st.tuples(st.integers(0, 8), st.integers(0, 6)), max_size=9)) - points
    coords = np.array([*points, *zeros], dtype=np.int64).reshape(-1, 2).T
    values = np.array([1.0] * len(points) + [0.0] * len(zeros))
    padded = SparseTensor.from_coo("A", ("I", "J"), (9, 7), coords, values)
    cuts = [TILERS[name](pattern_of(a), "add", Elements(4)) for a in (tensor(points, (9, 7)), padded)]
    assert (cuts[0].rects.table() == cuts[1].rects.table()).all()


@pytest.mark.parametrize(("name", "mirrored"), [("strips", "columns"), ("columns", "strips")])
@settings(max_examples=20, deadline=None)
@given(pattern=matrices(), capacity=st.integers(2, 30))
def test_columns_are_strips_of_the_transposed_plane(
    name: str, mirrored: str, pattern: Pattern, capacity: int
) -> None:
    shape, both = pattern.shape[::-1], (pattern.in_a, pattern.in_b)
    a, b = (tensor({p[::-1] for p in held(pattern, which)}, shape) for which in both)
    there = TILERS[mirrored](pattern_of(a, b), "add", Elements(capacity)).rects.transposed()
    here = TILERS[name](pattern, "add", Elements(capacity)).rects
    assert sorted(there.table().tolist()) == here.table().tolist()


@pytest.mark.parametrize("name", TILERS)
@settings(max_examples=10, deadline=None)
@given(
    points=st.sets(st.tuples(st.integers(0, 8), st.integers(0, 6)), max_size=30), capacity=st.integers(2, 9)
)
def test_the_plane_turned_twice_is_the_plane(name: str, points: Points, capacity: int) -> None:
    a = tensor(points, (9, 7))
    twice = a.swizzled(("J", "I")).swizzled(("I", "J"))
    over = pattern_of(a.swizzled(("J", "I")), Rolled(3), ("I", "J"))
    cuts = [
        TILERS[name](p, "add", Elements(capacity))
        for p in (pattern_of(a, Rolled(3)), pattern_of(twice, Rolled(3)), over)
    ]
    assert all((cut.rects.table() == cuts[0].rects.table()).all() for cut in cuts)


EDGES: dict[str, tuple[Points, tuple[int, ...]]] = {
    "empty": (set(), (8, 8)),
    "single entry": ({(3, 4)}, (7, 9)),
    "one place": ({(0, 0)}, (1, 1)),
    "one row": ({(0, c) for c in range(0, 40, 3)}, (1, 40)),
    "one column": ({(r, 0) for r in range(0, 41, 2)}, (41, 1)),
    "vector": ({(c,) for c in range(0, 50, 7)}, (50,)),
    "odd sizes": ({(r, (5 * r) % 13) for r in range(37)}, (37, 13)),
    "dense": ({(r, c) for r in range(11) for c in range(17)}, (11, 17)),
    "one heavy row": ({(5, c) for c in range(30)}, (12, 30)),
    "cube": ({(i, j, (i + j) % 6) for i in range(6) for j in range(4)}, (6, 4, 6)),
}


@pytest.mark.parametrize("op", seeds(1, OPS))
@pytest.mark.parametrize("case", EDGES)
@pytest.mark.parametrize("name", TILERS)
@pytest.mark.thin(8)
def test_edge_cases(name: str, case: str, op: Op) -> None:
    points, shape = EDGES[case]
    formats = {1: "CP", 2: "CSR", 3: "CSF"}[len(shape)]
    fits: tuple[Fit, ...] = (Elements(7), Words(24), Stored(600, formats), Elements(2), Words(70))
    seconds: tuple[Second, ...] = (Rolled(5), Alone(), Rolled(-1))
    if name in SLOW:
        fits, seconds = fits[:3], seconds[:1]
    for second in seconds:
        pattern = pattern_of(tensor(points, shape), second)
        for fit in fits:
            check(pattern, op, fit, name, each=len(shape) == 2)


@pytest.mark.parametrize("name", TILERS)
@pytest.mark.thin(99)
def test_a_vast_plane_takes_no_time(name: str) -> None:
    """10^12 rows and columns, five entries: depth, areas and numbers of places outgrow 32 and 64 bits."""
    side = 10**12
    a = tensor({(0, 0), (1, side - 1), (side // 2, 7), (side - 1, 0), (side - 1, side - 1)}, (side, side))
    fits = (Elements(2), Stored(2000, "CSR"), Elements(4), Words(20), Stored(2000, "COO(index=40)"))
    for op in OPS[: 1 if name in SLOW else 2]:
        for fit in fits[: 2 if name in SLOW else 5]:
            pattern = pattern_of(a, Alone())
            start = time.process_time()
            try:
                found = TILERS[name](pattern, op, fit)
            except Refused:
                assert name in ("simple", "guillotine")  # too many tiles, too coarse a grid
                continue
            assert time.process_time() - start < (5 if name in SLOW else 1)
            check_partition(pattern, found)
            assert (
                fit.loads(TileCounts(pattern, found.ids, found.tiles), found.rects, op) <= fit.capacity
            ).all()
