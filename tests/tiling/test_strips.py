"""Strips of rows and of columns, against loops over dense arrays; their guarantee; known counts."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from polymodel.sparse.files import read_tensor
from polymodel.sparse.tensor import SparseTensor
from polymodel.tiling.cost.model import costs, lower_bound
from polymodel.tiling.fits.fit import Elements, Fit, Op, Words
from polymodel.tiling.plane.operands import pattern_of
from polymodel.tiling.plane.pattern import Cut, Ints, Pattern, Rects, TileCounts
from polymodel.tiling.tilers.lines import _reached, up_to
from polymodel.tiling.tilers.named import cut
from polymodel.tiling.tilers.strips import columns, strips
from tests.faults import every_fault, refused
from tests.tiling import slow

MATRICES = Path(__file__).parent.parent / "data" / "matrices"


class Asked(Fit):
    """Entries, and words, as a fit that says nothing about how it counts."""

    @property
    def unit(self) -> str:
        return "elements"

    def loads(self, counts: TileCounts, rects: Rects, op: Op) -> Ints:
        return Elements(self.capacity).loads(counts, rects, op)


class AskedWords(Asked):
    def loads(self, counts: TileCounts, rects: Rects, op: Op) -> Ints:
        return Words(self.capacity).loads(counts, rects, op)


FITS: dict[str, tuple[type[Fit], str, int]] = {
    "elements": (Elements, "elements", 2),
    "words": (Words, "words", 9),
    "asked elements": (Asked, "elements", 2),
    "asked words": (AskedWords, "words", 9),
}


def operands(rows: int, cols: int, share: float, seed: int) -> tuple[np.ndarray, np.ndarray, Pattern]:
    rng = np.random.default_rng(seed)
    a, b = (rng.random((rows, cols)) < share * rng.random((rows, 1)) for _ in range(2))
    tensors = [SparseTensor.from_dense(n, ("I", "J"), x.astype(int)) for n, x in (("A", a), ("B", b))]
    return a, b, pattern_of(tensors[0], tensors[1])


def is_partition(found: Cut, pattern: Pattern) -> None:
    """Every place is in one rectangle, every point in the one that its number says."""
    plane = np.full(pattern.shape, -1)
    for number, (r, c, h, w) in enumerate(found.rects.table()):
        assert h > 0
        assert w > 0
        assert r + h <= pattern.shape[0]
        assert c + w <= pattern.shape[1]
        assert (plane[r : r + h, c : c + w] == -1).all()
        plane[r : r + h, c : c + w] = number
    assert (plane >= 0).all()
    assert plane[pattern.rows, pattern.cols].tolist() == found.ids.tolist()


@given(
    st.integers(1, 14),
    st.integers(1, 14),
    st.floats(0, 1.5),
    st.integers(0, 10**6),
    st.sampled_from(sorted(FITS)),
    st.sampled_from(["add", "multiply"]),
    st.integers(0, 14),
)
@settings(max_examples=250, deadline=None)
def test_strips_are_those_of_loops(
    rows: int, cols: int, share: float, seed: int, kind: str, op: Op, room: int
) -> None:
    a, b, pattern = operands(rows, cols, share, seed)
    rule, name, least = FITS[kind]
    fit = rule(least + room)
    found = strips(pattern, op, fit)
    assert sorted(map(tuple, found.rects.table())) == sorted(slow.strips(a, b, (name, fit.capacity), op))
    is_partition(found, pattern)
    across = columns(pattern, op, fit)
    is_partition(across, pattern)
    if name == "elements":
        wanted = slow.strips(a.T, b.T, (name, fit.capacity), op)
        assert sorted((r, c, h, w) for c, r, w, h in wanted) == sorted(map(tuple, across.rects.table()))
    for rect in across.rects.table():
        assert slow.load(a, b, tuple(rect), (name, fit.capacity), op) <= fit.capacity


def test_ends_are_looked_up_as_they_are_searched_for(monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(6)
    for _ in range(20):
        held = up_to(rng.integers(0, 4, rng.integers(0, 12)))
        for room in (-1, 0, 1, 5, 100):
            near = [[n for n, x in enumerate(held) if n == p or x <= y + room] for p, y in enumerate(held)]
            for table in (0, 100):
                monkeypatch.setattr("polymodel.tiling.tilers.lines._TABLE", table)
                assert _reached(held, room).tolist() == [max(ends) for ends in near[:-1]]


@given(st.integers(1, 60), st.integers(1, 60), st.floats(0, 1), st.integers(0, 10**6), st.integers(0, 40))
@settings(max_examples=50, deadline=None)
def test_strips_keep_to_their_guarantee(rows: int, cols: int, share: float, seed: int, room: int) -> None:
    a, b, pattern = operands(rows, cols, share, seed)
    each = a.sum(axis=1) + b.sum(axis=1)
    heaviest, total = max(int(each.max()), 1), int(each.sum())
    capacity = heaviest + room
    assert strips(pattern, "add", Elements(capacity)).tiles <= max(-(-total // (capacity - heaviest + 1)), 1)


@pytest.mark.parametrize(
    ("name", "tiles"),
    [
        ("diagonal", 31),
        ("chessboard", 20),
        ("matching", 12),
        ("pairs", 7),
        ("relations2", 16),
        ("relations", 11),
    ],
)
def test_tiles_of_whole_matrices(name: str, tiles: int) -> None:
    pattern = pattern_of(read_tensor(MATRICES / f"{name}.mtx.gz"))
    assert strips(pattern, "add", Elements(128)).tiles == tiles


def test_long_matrices_of_other_fits_are_cut_in_parts() -> None:
    pattern = pattern_of(read_tensor(MATRICES / "web.mtx.gz"))
    for tiler in (strips, columns):
        exact, asked = (tiler(pattern, "add", fit(16)).tiles for fit in (Elements, Asked))
        assert exact <= asked <= exact * 1.025


def test_an_entry_that_fits_nowhere_is_named() -> None:
    eye = SparseTensor.from_dense("A", ("I", "J"), np.eye(3))
    for tiler in (strips, columns):
        for fit in (Elements(1), Asked(1)):
            with every_fault(("over-capacity", ""), ("over-capacity", ""), ("over-capacity", "")):
                tiler(pattern_of(eye, eye), "add", fit)


@pytest.mark.parametrize("fit", [Elements(4), Words(17)])
def test_more_lines_than_64_bits_number_are_refused_by_one_tiler_not_by_the_best(fit: Fit) -> None:
    """Three rows of 2^62 columns, each too heavy alone: crossed, they would have 3 x 2^62 lines."""
    at = np.arange(0, 2**62, 2**58)
    coords = np.stack([np.repeat(np.arange(3), at.size), np.tile(at, 3)])
    long = SparseTensor.from_coo("A", ("I", "J"), (3, 2**62), coords, np.ones(coords.shape[1]))
    pattern = pattern_of(long, long)
    with refused("number-too-large", "4611686018427387904", "62"):
        strips(pattern, "add", fit)
    found = cut(pattern, "add", fit, "best")
    spent = costs(pattern, found, "add", fit)
    assert spent.overflowing == 0
    assert spent.nonempty >= lower_bound(pattern, "add", fit) > 1
