"""Bits of tiles against the footprint of every tile cut out as a tensor of its own."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from polymodel.errors import SpecError
from polymodel.sparse.formats import CISS, footprint, parse_format
from polymodel.sparse.tensor import SparseTensor
from polymodel.tiling.fits.fit import Op, Stored, Words, elements, stored, words
from polymodel.tiling.plane.operands import pattern_of
from polymodel.tiling.plane.pattern import Pattern, Rects, TileCounts
from polymodel.tiling.tilers.strips import StripPanels, line_sums
from tests.faults import faults, refused
from tests.tiling.test_operands import Points, held, tensor

ESCAPE = {"format": "RLE", "rbits": 1, "overlong": "escape"}
MATRICES: tuple[Any, ...] = (
    "CSR", "CSC", "DCSR", "COO", "CSF", "dense", "U-U", "U-CP", "CP-CP", "B-B", "U-B", "B-CP", "UOP-CP",
    "RLE-RLE", "COO(data=8, index=4)", "CISS(parts=2)", "CISS(parts=3, data=7)",
    [{"format": "CP", "cbits": 3}, {"format": "RLE", "rbits": 1}], [ESCAPE, ESCAPE],
    [{"format": "RLE", "rbits": 2, "fhbits": 5, "rhbits": 9}, "U"],
    {"J": "CP", "I": {"format": "B", "rhbits": 3}, "rank-order": ["J", "I"]},
    parse_format({"format": "CSR", "index": 5, "pointer": 6}, ("I", "J")),
)  # fmt: skip
TENSORS = (
    "CSF",
    "COO",
    "dense",
    "U-CP-B",
    "CP-U-RLE",
    "UOP-B-CP",
    "CISS(parts=2)",
    {"K": "CP", "I": "U", "J": "B"},
)
VECTORS = ("CP", "B", "U", "COO", "CSF", [{"format": "RLE", "rbits": 1}])


@st.composite
def drawn(draw: st.DrawFn) -> tuple[Pattern, Any]:
    """Two operands with a format of theirs: matrices mostly."""
    number = draw(st.sampled_from([2, 2, 3, 1]))
    shape = tuple(draw(st.lists(st.integers(1, 6), min_size=number, max_size=number)))
    point = st.tuples(*(st.integers(0, s - 1) for s in shape))
    a, b = (tensor(draw(st.sets(point, max_size=20)), shape, name=name) for name in "AB")
    names = "IJK"[:number]
    cut = tuple(draw(st.permutations(names)))[:2]
    format = draw(st.sampled_from({1: VECTORS, 2: MATRICES, 3: TENSORS}[number]))
    return pattern_of(a, b, cut), format


def inside(points: Points, rect: tuple[int, ...]) -> Points:
    """Entries of a rectangle, counted from its first place."""
    top, left, height, width = rect
    return {
        (p[0] - top, p[1] - left, *p[2:])
        for p in points
        if top <= p[0] < top + height and left <= p[1] < left + width
    }


def cut_out(points: Points, rect: tuple[int, ...], pattern: Pattern) -> SparseTensor:
    shape = (*rect[2:], *pattern.sizes)
    skip = 2 - min(2, len(pattern.own))
    found = tensor({p[skip:] for p in inside(points, rect)}, shape[skip:])
    return found.renamed("tile", pattern.own)


def bits(format: Any, pattern: Pattern, rect: tuple[int, ...], op: Op) -> int:
    """What a tile takes, operand by operand."""
    a, b = (set(held(pattern, which)) for which in (pattern.in_a, pattern.in_b))
    if not inside(a | b, rect):
        return 0
    output = a | b if op == "add" else a & b
    return max(int(footprint(cut_out(p, rect, pattern), format).total) for p in (a, b, output))


@settings(max_examples=150, deadline=None)
@given(drawn(), st.data(), st.sampled_from(["add", "multiply"]))
def test_bits_are_those_of_tiles_cut_out(drawn: tuple[Pattern, Any], data: st.DataObject, op: Op) -> None:
    pattern, format = drawn
    height, width = pattern.shape
    r, c = data.draw(st.integers(1, height)), data.draw(st.integers(1, width))
    lower, right = height - r, width - c
    all_rects = [(0, 0, r, c), (0, c, r, right), (r, 0, lower, c), (r, c, lower, right)]
    kept = [k for k, rect in enumerate(all_rects) if rect[2] and rect[3]]
    number = np.array([kept.index(k) if k in kept else -1 for k in range(4)], dtype=np.int32)
    ids = number[2 * (pattern.rows >= r) + (pattern.cols >= c)]
    rects = Rects.of([all_rects[k] for k in kept])
    found = stored(format, 100).loads(TileCounts(pattern, ids, len(kept)), rects, op)
    assert found.dtype == np.int64
    assert found.tolist() == [bits(format, pattern, all_rects[k], op) for k in kept]


@settings(max_examples=150, deadline=None)
@given(drawn(), st.data(), st.sampled_from(["add", "multiply"]))
def test_loads_never_fall_when_a_rectangle_grows(
    drawn: tuple[Pattern, Any], data: st.DataObject, op: Op
) -> None:
    pattern, format = drawn

    def side(size: int) -> list[int]:
        return sorted(data.draw(st.lists(st.integers(0, size), min_size=4, max_size=4)))

    top, up, down, bottom = side(pattern.shape[0])
    left, west, east, right = side(pattern.shape[1])
    if up == down or west == east:
        return
    loads = []
    for r0, r1, c0, c1 in ((up, down, west, east), (top, bottom, left, right)):
        rows, cols = pattern.rows, pattern.cols
        some = pattern.taken((rows >= r0) & (rows < r1) & (cols >= c0) & (cols < c1))
        counts = TileCounts(some, np.zeros(some.points, np.int32), 1)
        loads.append(int(stored(format, 1).loads(counts, Rects.of([(r0, c0, r1 - r0, c1 - c0)]), op)[0]))
    assert loads[0] <= loads[1]


def test_slices_dealt_by_nonzeros_may_take_less_when_there_are_more() -> None:
    """Why they are refused: lanes are as long as their headers too, which dealing does not see."""
    format = CISS(2, assign="nnz")
    rows = [1, 3, 1, 1, 1, 10]  # without the fifth, the last goes to the lane with three headers
    lengths = {(i, j) for i, n in enumerate(rows) for j in range(n)}
    fewer = {(i, j) for i, j in lengths if i != 4}
    more, less = (footprint(tensor(points, (6, 10)), format).total for points in (lengths, fewer))
    assert less > more
    pattern = pattern_of(tensor({(0, 0)}, (2, 2)))
    with refused("unsupported-format"):
        Stored(9, format).format_of(pattern)
    with refused("unsupported-format", "refuse"):
        stored(["CP", {"format": "RLE", "rbits": 1, "overlong": "refuse"}], 9).format_of(pattern)


def test_numbers_beyond_64_bits_are_more_than_any_memory() -> None:
    side = 10**12
    pattern = pattern_of(tensor({(0, 0), (side - 1, side - 1)}, (side, side)))
    counts = TileCounts(pattern, np.zeros(pattern.points, np.int32), 1)
    whole = Rects.whole(pattern.shape)
    assert stored("dense", 64).loads(counts, whole, "add").tolist() == [2**62]
    assert stored("CSR", 64).loads(counts, whole, "add").tolist() == [32 * (side + 1) + 64 * 4]
    assert stored("COO(index=40)", 64).loads(counts, whole, "add").tolist() == [4 * 112]
    full = tensor({(0, 0, 0)}, (2**21, 2**21, 2**21))
    cube = pattern_of(full)
    one = TileCounts(cube, np.zeros(cube.points, np.int32), 1)
    assert stored("dense", 64).loads(one, Rects.whole(cube.shape), "add").tolist() == [2**62]
    assert Words(9).loads(one, Rects.whole(cube.shape), "add").tolist() == [16]


def test_faults_are_told_at_once() -> None:
    with pytest.raises(SpecError) as caught:
        stored(7, 0)
    assert [d.message.split(" is ")[0] for d in caught.value.diagnostics] == ["capacity 0", "7"]
    pattern = pattern_of(tensor({(0, 0)}, (2, 2)))
    with faults("unknown-choice", at="format"):
        stored("CSRR", 9).format_of(pattern)
    with faults("wrong-count", at="format"):
        stored("CSR", 9).format_of(pattern_of(tensor({(0, 0, 0)}, (2, 2, 2))))


def test_fits_are_equal_when_they_say_the_same() -> None:
    assert stored(["U", "CP"], 9) == stored(["U", "CP"], 9)
    assert hash(stored({"I": "U"}, 9)) == hash(stored({"I": "U"}, 9))
    assert (elements(), words(40).capacity, stored("CSR", 5).unit) == (elements(128), 40, "bits")


@given(drawn(), st.data())
@settings(max_examples=150, deadline=None)
def test_strips_take_what_sums_over_lines_tell(given: tuple[Pattern, Any], data: st.DataObject) -> None:
    """Of every strip of every panel, rows or columns, and of pieces of single lines, as their points do."""
    pattern, format = given
    fit = stored(format, 100)
    op: Op = data.draw(st.sampled_from(["add", "multiply"]))
    by_columns = data.draw(st.booleans())
    over = pattern.shape[0 if by_columns else 1]
    edges = np.array([0, *sorted(data.draw(st.sets(st.integers(1, over - 1))) if over > 1 else ()), over])
    panels = StripPanels.of(pattern, edges, by_columns, fit)
    heavy = np.flatnonzero(np.diff(panels.lines.at))
    for some in (panels, *((panels.crossed(heavy, fit),) if heavy.size else ())):
        if not some.additive(fit):
            continue
        told = some.load_sums(op, fit)
        lines = some.lines
        for one in range(lines.number):
            for last in range(one + 1, int(lines.stop[one]) + 1):
                strip = np.array([one]), np.array([last])
                assert told.loads(*strip, op, fit) == some.loads(*strip, op, fit)


def test_which_formats_sums_tell() -> None:
    a = tensor({(0, 1), (2, 2)}, (3, 3))
    pattern = pattern_of(a)
    found = {
        name: tuple(line_sums(pattern, stored(name, 99), along, False) for along in (0, 1))
        for name in ("CSR", "CSC", "COO", "dense", "CSF", "B-B", "RLE-RLE", "CISS(parts=2)")
    }
    both, rows, none = (True, True), (True, False), (False, False)
    assert found == {
        "CSR": both, "CSC": both, "COO": both, "dense": both, "CSF": rows, "B-B": rows, "RLE-RLE": none,
        "CISS(parts=2)": none,
    }  # fmt: skip
    assert line_sums(pattern, stored("CSF", 99), 1, True)
    assert not line_sums(pattern, words(99), 0, False)


@given(drawn(), st.sampled_from(["add", "multiply"]))
@settings(max_examples=150, deadline=None)
def test_every_entry_takes_its_bits(given: tuple[Pattern, Any], op: Op) -> None:
    """Tiles of any size take so many bits for each of their entries at least."""
    pattern, format = given
    fit = stored(format, 1)
    for height, width in ((1, 1), (2, 3), pattern.shape):
        number = pattern.rows // height * pattern.shape[1] + pattern.cols // width
        tiles, ids = np.unique(number, return_inverse=True)
        row, col = tiles // pattern.shape[1] * height, tiles % pattern.shape[1] * width
        sides = np.minimum(height, pattern.shape[0] - row), np.minimum(width, pattern.shape[1] - col)
        counts = TileCounts(pattern, ids, tiles.size)
        held = counts.union if op == "add" else np.maximum(counts.nnz_a, counts.nnz_b)
        rects = Rects(row.astype(np.int64), col.astype(np.int64), *(s.astype(np.int64) for s in sides))
        assert (fit.loads(counts, rects, op) >= held * fit.entry_bits(pattern)).all()
