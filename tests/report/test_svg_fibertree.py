"""Fibertrees: every coordinate where it belongs, nothing on top of something else, nothing unescaped."""

from __future__ import annotations

import re
import time
from collections.abc import Callable
from itertools import groupby
from pathlib import Path
from xml.etree import ElementTree

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from polymodel.report.fibertree_layout import DrawnFibertree, choose, levels
from polymodel.report.svg_fibertree import draw_fibertree, draw_fibertrees, draw_parts
from polymodel.sparse.tensor import SparseTensor
from polymodel.view.drawing import CHAR
from tests.faults import faults, refused

SVG = "{http://www.w3.org/2000/svg}"
Golden = Callable[[str, str], None]
Box = tuple[float, float, float, float]


def small() -> SparseTensor:
    dense = np.zeros((3, 4, 2), dtype=np.int64)
    dense[0, 1] = (5, 7)
    dense[0, 3, 1] = 2
    dense[2, 0, 0] = 11
    return SparseTensor.from_dense("A", ("I", "J", "K"), dense)


def sliced(tensor: SparseTensor, parts: int) -> DrawnFibertree:
    """Rows dealt out in turn: a partitioned form, with a rank more than the tensor has."""
    columns = np.vstack([tensor.coords[:1] % parts, tensor.coords])
    top = tensor.ranks[0]
    names = (f"{top}1", f"{top}0", *tensor.ranks[1:])
    return DrawnFibertree(tensor.name, names, (1,) * len(names), columns, tensor.values)


def random(shape: tuple[int, ...], seed: int, density: float = 0.4) -> SparseTensor:
    numbers = np.random.default_rng(seed)
    dense = numbers.integers(1, 100, shape) * (numbers.random(shape) < density)
    return SparseTensor.from_dense("T", tuple("IJKLM"[: len(shape)]), dense)


def cells(svg: str) -> list[tuple[str, str]]:
    """Tooltip and coordinate of every coordinate drawn."""
    root = ElementTree.fromstring(svg)
    groups = [g for g in root.iter(f"{SVG}g") if g.get("class") == "cell"]
    return [(str(g.findtext(f"{SVG}title")), str(g.findtext(f"{SVG}text"))) for g in groups]


def boxes(svg: str) -> tuple[list[Box], list[Box]]:
    """Rectangles without the background, and the places of texts, in the picture's coordinates."""
    root = ElementTree.fromstring(svg)
    shapes: list[Box] = []
    words: list[Box] = []

    def walk(at: ElementTree.Element, dx: float, dy: float) -> None:
        moved = re.match(r"translate\((\S+) (\S+)\)", at.get("transform", ""))
        if moved:
            dx, dy = dx + float(moved[1]), dy + float(moved[2])
        if at.tag == f"{SVG}rect" and at.get("width") != "100%":
            x, y, w, h = (float(at.attrib[k]) for k in ("x", "y", "width", "height"))
            shapes.append((x + dx, y + dy, x + dx + w, y + dy + h))
        if at.tag == f"{SVG}text":
            x, y, wide = float(at.attrib["x"]) + dx, float(at.attrib["y"]) + dy, len(str(at.text)) * CHAR
            left = x if at.get("text-anchor", "start") == "start" else x - wide / 2
            words.append((left, y - 9, left + wide, y + 1))
        for child in at:
            walk(child, dx, dy)

    walk(root, 0, 0)
    return shapes, words


def apart(a: Box, b: Box) -> bool:
    near = 0.01
    return a[2] <= b[0] + near or b[2] <= a[0] + near or a[3] <= b[1] + near or b[3] <= a[1] + near


def inside(a: Box, b: Box) -> bool:
    return b[0] <= a[0] and b[1] <= a[1] and a[2] <= b[2] and a[3] <= b[3]


def expected(tensor: SparseTensor) -> set[str]:
    """Tooltips of all coordinates by slicing the dense array, one prefix at a time."""
    dense, found = tensor.to_dense(), set()
    for index in np.ndindex(*tensor.shape):
        for deep in range(1, len(index) + 1):
            part = dense[index[:deep]]
            if np.any(part):
                at = ", ".join(f"{r} = {c}" for r, c in zip(tensor.ranks, index[:deep], strict=False))
                found.add(at if deep < len(index) else f"{at}: {part}")
    return found


def test_golden_pictures(golden: Golden) -> None:
    golden("fibertree.svg", draw_fibertree(small()).svg)
    golden("fibertree_parts.svg", draw_parts(sliced(small(), 2)).svg)
    rows, columns = np.indices((40, 30))
    striped = SparseTensor.from_dense("Long", ("M", "K"), ((7 * rows + 3 * columns) % 5 == 0) * (rows + 1))
    golden("fibertree_long.svg", draw_fibertree(striped, limit=12).svg)


@settings(max_examples=15, deadline=None)
@given(st.lists(st.integers(1, 4), min_size=1, max_size=4), st.integers(0, 10**6))
def test_every_coordinate_stands_once(shape: list[int], seed: int) -> None:
    tensor = random(tuple(shape), seed)
    found = cells(draw_fibertree(tensor, limit=1000).svg)
    assert {tip for tip, _ in found} == expected(tensor)
    assert len(found) == len(expected(tensor))
    for tip, shown in found:
        assert tip.split(":")[0].split(" = ")[-1] == shown


@settings(max_examples=15, deadline=None)
@given(
    st.lists(st.integers(1, 30), min_size=1, max_size=3),
    st.integers(0, 10**6),
    st.sampled_from([1, 5, 20, 60]),
)
def test_nothing_overlaps_whatever_is_left_out(shape: list[int], seed: int, limit: int) -> None:
    drawing = draw_fibertree(random(tuple(shape), seed), limit=limit)
    shapes, words = boxes(drawing.svg)
    root = ElementTree.fromstring(drawing.svg)
    frame = (0.0, 0.0, float(root.attrib["width"]), float(root.attrib["height"]))
    for box in (*shapes, *words):
        assert inside(box, frame)
    for i, a in enumerate(shapes):
        for b in shapes[:i]:
            assert apart(a, b) or inside(a, b) or inside(b, a)
    for i, a in enumerate(words):
        assert all(apart(a, b) for b in words[:i])
        assert all(apart(a, b) or inside(a, b) for b in shapes)


@pytest.mark.parametrize("limit", [1, 7, 30])
def test_what_is_left_out_is_counted(limit: int) -> None:
    tensor = random((20, 15, 10), 3)
    chosen = choose(levels(tensor), limit)
    assert chosen.root is not None
    points = [tuple(c) for c in tensor.coords.T.tolist()]
    for rank in range(3):
        assert chosen.fibers[rank] == len({p[:rank] for p in points})
    drawn = 0
    for fiber in chosen.root.walk():
        assert fiber.cells
        above = fiber.cells[0].path[:-1]
        mine = {p[len(above)] for p in points if p[: len(above)] == above}
        assert len(fiber.cells) + fiber.more == len(mine)
        assert [c.path[-1] for c in fiber.cells] == sorted(mine)[: len(fiber.cells)]
        drawn += sum(c.below is None for c in fiber.cells)
    assert drawn <= limit
    svg = draw_fibertree(tensor, limit=limit).svg
    assert f"… {chosen.fibers[2] - chosen.drawn[2]:,} more fibers" in svg
    assert f"Rank K: {chosen.fibers[2]:,} fibers, {chosen.drawn[2]:,} of them drawn." in svg


def test_a_tensor_up_to_the_limit_is_drawn_whole() -> None:
    tensor = random((4, 4, 3), 2)
    chosen = choose(levels(tensor), tensor.nnz)
    assert chosen.root is not None
    assert not any(f.more for f in chosen.root.walk())
    assert chosen.drawn == chosen.fibers
    assert "…" not in draw_fibertree(tensor, limit=tensor.nnz).svg


def test_parts_are_fibertrees_of_their_own() -> None:
    tensor = random((5, 4, 2), 7)
    whole = {tip for tip, _ in cells(draw_fibertree(tensor, limit=99).svg)}
    svg = draw_parts(sliced(tensor, 3), limit=99).svg
    assert {tip.replace("I0", "I") for tip, _ in cells(svg)} == whole
    for number in range(3):
        count = int((tensor.coords[0] % 3 == number).sum())
        assert f"T[I1 = {number}] [I0, J, K]" in svg
        assert f">{count} nonzeros<" in svg
    with refused("too-large", "20"):
        draw_parts(random((20, 3), 0, 1.0))
    with faults("unsupported-shape", "v", at=""):
        draw_parts(SparseTensor.from_dense("v", ("I",), [1, 2]))


def test_a_flattened_rank_has_tuples() -> None:
    tensor = small()
    flat = DrawnFibertree("A", ("I", "JK"), (1, 2), tensor.coords, tensor.values)
    found = cells(draw_fibertree(flat).svg)
    assert [t for t, _ in found if "JK" in t][:2] == ["I = 0, JK = (1,0): 5", "I = 0, JK = (1,1): 7"]
    turned = DrawnFibertree("A", ("I", "JK"), (1, 2), tensor.coords[:, ::-1], tensor.values[::-1])
    assert draw_fibertree(turned).svg == draw_fibertree(flat).svg
    parts = DrawnFibertree("A", ("JK", "I"), (2, 1), tensor.coords[[1, 2, 0]], tensor.values)
    assert "A[JK = (1,0)] [I]" in draw_parts(parts).svg


def test_no_rank_no_nonzero_and_other_numbers() -> None:
    root = draw_fibertree(SparseTensor.from_dense("s", (), np.array(2.5)))
    assert ">2.5<" in root.svg
    assert "rank 0, 1 nonzero<" in root.svg
    empty = draw_fibertree(SparseTensor.from_dense("z", ("I", "J"), np.zeros((2, 3))))
    assert "no nonzeros" in empty.svg
    assert not cells(empty.svg)
    tips = {t for t, _ in cells(draw_fibertree(SparseTensor.from_dense("c", ("I",), [1 + 2j, 0.123456])).svg)}
    assert tips == {"I = 0: 1+2j", "I = 1: 0.123+0j"}
    values = [9870.0, 0.12345, 2.5e9, True]
    tips = {t for t, _ in cells(draw_fibertree(SparseTensor.from_dense("f", ("I",), values)).svg)}
    assert {t.split(": ")[1] for t in tips} == {"9870", "0.123", "2.5e+09", "1"}


HOSTILE = "<script>alert('&\"')</script>"


def test_names_are_text_and_never_markup() -> None:
    tensor = SparseTensor.from_dense(HOSTILE, (HOSTILE + "0", "</svg>"), [[1, 0], [2, 3]])
    for drawing in (
        draw_fibertree(tensor),
        draw_parts(tensor),
        draw_fibertrees((tensor, small()), title=HOSTILE),
    ):
        tags = {e.tag for e in ElementTree.fromstring(drawing.svg).iter()}
        assert not {t for t in tags if "script" in t}
        assert "<script" not in drawing.svg
        assert HOSTILE in " ".join(ElementTree.fromstring(drawing.svg).itertext())


def test_a_drawing_shows_and_saves(tmp_path: Path) -> None:
    drawing = draw_fibertree(small(), title="The small one")
    assert drawing._repr_svg_() == drawing.svg
    assert repr(drawing) == "Drawing(title='The small one')"
    file = drawing.save(tmp_path / "a.svg")
    assert file.read_text(encoding="utf-8") == drawing.svg
    with faults("unknown-format", "a.png", at=""):
        drawing.save(tmp_path / "a.png")
    with faults("unwritable-file", "a.svg", "none", at=""):
        drawing.save(tmp_path / "none" / "a.svg")
    root = ElementTree.fromstring(drawing.svg)
    assert root.get("role") == "img"
    assert root.findtext(f"{SVG}title") == "The small one"
    assert "4 nonzeros. Rank I: 1 fiber. Rank J: 2 fibers. Rank K: 3 fibers." in str(
        root.findtext(f"{SVG}desc")
    )


def test_bad_wishes() -> None:
    with faults("not-positive-integer", at="limit"):
        draw_fibertree(small(), limit=0)
    with faults("nothing-to-show", at="tensors"):
        draw_fibertrees(())


def test_colours_follow_the_rank_not_its_parts() -> None:
    svg = draw_fibertree(sliced(small(), 2)).svg
    found = re.findall(r'style="fill:(#\w+)">(\w+)<', svg)
    assert [name for _, name in found] == ["I1", "I0", "J", "K"]
    assert [len(list(same)) for _, same in groupby(c for c, _ in found)] == [2, 1, 1]


def test_a_large_tensor_is_drawn_at_once() -> None:
    rows = np.random.default_rng(0).integers(0, 1000, (3, 500_000))
    tensor = SparseTensor.from_coo("L", ("I", "J", "K"), (1000, 1000, 1000), rows, np.ones(500_000))
    before = time.process_time()
    svg = draw_fibertree(tensor).svg
    assert time.process_time() - before < 5
    assert len(svg) < 100_000
