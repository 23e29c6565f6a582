"""The pattern of two operands against sets of tuples, and words of tiles against CSF built literally."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from math import prod
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from polymodel.errors import SpecError
from polymodel.sparse.files import read_tensor
from polymodel.sparse.tensor import SparseTensor
from polymodel.tiling.fits.fit import Words
from polymodel.tiling.plane import operands as union_module
from polymodel.tiling.plane.operands import Alone, Rolled, Second, Transposed, pattern_of
from polymodel.tiling.plane.pattern import Pattern, Rects, TileCounts
from tests.faults import every_fault, faults

Points = set[tuple[int, ...]]


def tensor(
    points: Iterable[tuple[int, ...]], shape: Sequence[int], ranks: str = "", name: str = "A"
) -> SparseTensor:
    names = tuple(ranks or "IJKLM"[: len(shape)])
    coords = np.array(sorted(points), dtype=np.int64).reshape(-1, len(shape)).T
    return SparseTensor.from_coo(name, names, shape, coords, np.ones(coords.shape[1]))


def held(pattern: Pattern, which: np.ndarray) -> list[tuple[int, ...]]:
    """Full coordinates (row, col, others) of the points that an operand has."""
    deep = [] if pattern.deep is None else list(pattern.deep[:, which])
    columns = [pattern.rows[which], pattern.cols[which], *deep]
    return list(zip(*(column.tolist() for column in columns), strict=True))


def having(pattern: Pattern, who: str) -> list[tuple[int, ...]]:
    return held(pattern, getattr(pattern, who))


def csf_words(points: Points, ranks: int) -> int:
    """Items of a compressed sparse fiber tree: values, and per level its coordinates and its segment, which
    has a pointer more than there are fibers."""
    words = len(points)
    parents: set[tuple[int, ...]] = {()}
    for depth in range(1, ranks + 1):
        here = {point[:depth] for point in points}
        words += len(here) + len(parents) + 1
        parents = here
    return words


@st.composite
def operands(draw: st.DrawFn) -> tuple[Points, Points, tuple[int, ...]]:
    shape = tuple(draw(st.lists(st.integers(1, 5), min_size=1, max_size=4)))
    point = st.tuples(*(st.integers(0, s - 1) for s in shape))
    return draw(st.sets(point, max_size=25)), draw(st.sets(point, max_size=25)), shape


@settings(max_examples=60, deadline=None)
@given(operands(), st.data(), st.booleans())
def test_points_are_those_of_sets_of_tuples(
    drawn: tuple[Points, Points, tuple[int, ...]], data: st.DataObject, packed: bool
) -> None:
    one, two, shape = drawn
    names = "IJKL"[: len(shape)]
    order = data.draw(st.permutations(range(len(shape))))
    cut = data.draw(st.permutations(range(len(shape))))[:2]
    rest = [k for k in range(len(shape)) if k not in cut]
    b = tensor(
        {tuple(p[k] for k in order) for p in two},
        [shape[k] for k in order],
        "".join(names[k] for k in order),
        "B",
    )
    with pytest.MonkeyPatch.context() as patch:
        if not packed:
            patch.setattr(union_module, "PACKED", -1)
        found = pattern_of(tensor(one, shape), b, tuple(names[k] for k in cut))
    own = [*cut, *rest]
    wanted = [sorted({tuple(p[k] for k in own) for p in points}) for points in (one, two)]
    if len(shape) == 1:
        wanted = [[(0, *p) for p in points] for points in wanted]
    assert held(found, found.in_a) == wanted[0]
    assert held(found, found.in_b) == wanted[1]
    assert bool((found.in_a | found.in_b).all())
    assert held(found, np.ones(found.points, bool)) == sorted({*wanted[0], *wanted[1]})
    sizes = [shape[k] for k in own]
    assert found.shape == ((1, sizes[0]) if len(sizes) == 1 else (sizes[0], sizes[1]))
    assert (found.depth, found.levels) == (prod(sizes[2:]), max(2, len(sizes)))
    assert found.own == tuple(names[k] for k in own)


@settings(max_examples=60, deadline=None)
@given(operands(), st.data())
def test_words_are_those_of_fibertrees_built_tile_by_tile(
    drawn: tuple[Points, Points, tuple[int, ...]], data: st.DataObject
) -> None:
    one, two, shape = drawn
    names = tuple("IJKL"[: len(shape)])
    cut = tuple(data.draw(st.permutations(names)))[:2]
    a, b = tensor(one, shape), tensor(two, shape, name="B")
    found, alone = pattern_of(a, b, cut), pattern_of(a, Alone(), cut)
    height, width = found.shape
    r, c = data.draw(st.integers(0, height)), data.draw(st.integers(0, width))
    rects = Rects.of(
        [(0, 0, r, c), (0, c, r, width - c), (r, 0, height - r, c), (r, c, height - r, width - c)]
    )
    counts, single = (
        TileCounts(p, (2 * (p.rows >= r) + (p.cols >= c)).astype(np.int32), 4) for p in (found, alone)
    )
    words = Words(1).loads(single, rects, "multiply")
    for t, (top, left, h, w) in enumerate(rects.table().tolist()):
        for which, nnz, rows, inner in (
            (found.in_a, counts.nnz_a, counts.rows_a, counts.inner_a),
            (found.in_b, counts.nnz_b, counts.rows_b, counts.inner_b),
        ):
            tile = {p for p in held(found, which) if top <= p[0] < top + h and left <= p[1] < left + w}
            built = csf_words(tile, max(2, len(shape)))
            assert 2 * nnz[t] + 2 * rows[t] + 2 * inner[t] + 3 + found.levels - 2 == built
            if which is found.in_a:
                assert words[t] == built


@settings(max_examples=40, deadline=None)
@given(operands(), st.integers(-12, 12), st.booleans())
def test_made_operands_are_those_of_arrays(
    drawn: tuple[Points, Points, tuple[int, ...]], by: int, packed: bool
) -> None:
    one, _, shape = drawn
    a = tensor(one, shape)
    full = np.zeros(shape, bool)
    full[tuple(a.coords)] = True
    cases: list[tuple[Second | None, np.ndarray]] = [
        (None, np.roll(full, 5, axis=0)),
        (Rolled(by), np.roll(full, by, axis=0)),
        (Alone(), np.zeros(shape, bool)),
    ]
    if len(shape) > 1 and shape[0] == shape[1]:
        cases.append((Transposed(), np.swapaxes(full, 0, 1)))
    with pytest.MonkeyPatch.context() as patch:
        if not packed:
            patch.setattr(union_module, "PACKED", -1)
        for second, made in cases:
            found = pattern_of(a, second)
            points = sorted(zip(*(x.tolist() for x in np.nonzero(made)), strict=True))
            wanted = [(0, *p) for p in points] if len(shape) == 1 else points
            assert held(found, found.in_b) == wanted


def test_the_first_rank_that_is_cut_is_rolled_and_the_cut_ranks_transposed() -> None:
    a = tensor({(0, 1, 2), (2, 0, 1)}, (3, 2, 3))
    assert having(pattern_of(a, Rolled(1), ("K", "J")), "in_b") == [(0, 1, 0), (2, 0, 2)]
    assert pattern_of(a, Rolled(1), ("K", "J")).second == "A, K rolled by 1"
    assert having(pattern_of(a, Transposed(), ("K", "I")), "in_b") == [(0, 2, 1), (2, 1, 0)]


def test_shapes_that_no_number_holds() -> None:
    """10^12 a side, and sizes near 2^63: coordinates are compared rank by rank."""
    huge = 10**12
    a = tensor({(0, 0), (5, huge - 1), (huge - 1, 7)}, (huge, huge))
    found = pattern_of(a, Rolled(-6))
    assert held(found, found.in_a) == [(0, 0), (5, huge - 1), (huge - 1, 7)]
    assert held(found, found.in_b) == [(huge - 7, 7), (huge - 6, 0), (huge - 1, huge - 1)]
    long = 2**63 - 1
    vast = pattern_of(tensor({(long - 1, long - 1), (1, 0)}, (long, long)), Rolled(2**62))
    assert held(vast, vast.in_b) == [(2**62 - 1, long - 1), (2**62 + 1, 0)]
    vector = pattern_of(tensor({(3,), (2**61,)}, (2**62,)), Rolled(-4))
    assert held(vector, vector.in_b) == [(0, 2**61 - 4), (0, 2**62 - 1)]


def test_values_of_any_kind_have_a_pattern() -> None:
    for values in (np.array([1j, 2.5]), np.array([True, True]), np.array([1.5, -2], np.float32)):
        a = SparseTensor.from_coo("A", ("I", "J"), (3, 3), [[2, 0], [1, 1]], values)
        assert having(pattern_of(a), "in_a") == [(0, 1), (2, 1)]


@pytest.mark.filterwarnings("ignore:.*duplicates")
def test_explicit_zeros_and_duplicates_of_files_are_no_entries_of_their_own(tmp_path: Path) -> None:
    lines = ["%%MatrixMarket matrix coordinate real general", "4 3 6"]
    lines += ["1 1 2", "3 2 0", "1 1 3", "4 3 1", "2 2 1", "2 2 -1"]
    (tmp_path / "a.mtx").write_text("\n".join(lines) + "\n")
    found = pattern_of(read_tensor(tmp_path / "a.mtx"), Alone())
    assert held(found, found.in_a) == [(0, 0), (3, 2)]


NOT_ROWS: Any = 2.5
NOTHING_KNOWN: Any = 5
FAULTS: list[tuple[Any, Any, list[str]]] = [
    (None, ("I", "Kk"), ["'Kk' is not among the ranks of A", "did you mean K?"]),
    (None, ("L", "M"), ["rank 'L'", "rank 'M'", "its ranks are: I, J, K"]),
    (None, ("I", "I"), ["rank I is named 2 times"]),
    (None, ("I",), ["1 ranks are named", "two ranks are cut of A"]),
    (None, "IJ", ["ranks: 'IJ' is not a list of names", "['I', 'J']"]),
    (None, ("I", 3), ["is not a list of names"]),
    (Transposed(), None, ["A is 3 x 4 in I and J: its transpose is 4 x 3"]),
    (NOTHING_KNOWN, None, ["5 is not a second operand"]),
    (tensor({(0, 0)}, (3, 4), name="B"), None, ["B has the ranks I, J, A I, J, K"]),
    (tensor({(0, 0, 0)}, (5, 3, 4), "KIJ", "B"), ("I", "X"), ["rank 'X'"]),
    (
        tensor({(0, 0, 0)}, (3, 4, 9), name="B"),
        ("X", "I"),
        ["rank 'X'", "B has the shape I=3, J=4, K=9, A I=3, J=4, K=5"],
    ),
]


@pytest.mark.parametrize(("second", "ranks", "said"), FAULTS)
def test_all_faults_are_told_at_once(second: Any, ranks: Any, said: list[str]) -> None:
    with pytest.raises(SpecError) as caught:
        pattern_of(tensor({(0, 0, 0)}, (3, 4, 5)), second, ranks)
    assert all(word in str(caught.value) for word in said), str(caught.value)


def test_what_is_no_tensor_or_has_no_ranks_is_told() -> None:
    with faults("wrong-type", "matrix.mtx", at=""):
        pattern_of("matrix.mtx")  # type: ignore[arg-type]  # the fault under test
    with faults("wrong-count", "s", at=""):
        pattern_of(SparseTensor.from_coo("s", (), (), [], [1.0]))
    with faults("wrong-count", at=""):
        pattern_of(tensor({(0,)}, (4,)), Transposed())
    with every_fault(("unknown-name", "ranks"), ("wrong-count", "ranks")):
        pattern_of(tensor({(0,)}, (4,)), None, ("I", "J"))


@pytest.mark.parametrize("rows", [NOT_ROWS, True, "5", None])
def test_rows_are_counted_in_whole_numbers(rows: Any) -> None:
    with faults("not-an-integer", at="rows"):
        Rolled(rows)


def test_integers_of_numpy_are_whole_numbers() -> None:
    a = tensor({(0, 1), (2, 0)}, (4, 4))
    by: Any = np.int64(3)
    found = pattern_of(a, Rolled(by))
    assert having(found, "in_b") == having(pattern_of(a, Rolled(3)), "in_b")
    assert type(Words(np.int32(9)).capacity) is int  # type: ignore[arg-type]  # what ranges of NumPy hold
