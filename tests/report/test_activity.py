"""Space-time activity: every compute at its place, clocks as a slow count has them, pages that are safe."""

from __future__ import annotations

import re
from base64 import b64encode
from collections.abc import Callable
from hashlib import sha256
from html import unescape
from html.parser import HTMLParser
from pathlib import Path
from xml.etree import ElementTree

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from polymodel.report.activity import Activities, Activity
from polymodel.report.execution import WHOLE, activity_page
from polymodel.report.fibertree_layout import DrawnFibertree
from polymodel.report.svg_activity import draw_activity
from polymodel.sparse.tensor import SparseTensor
from polymodel.view.html import asset
from tests.faults import every_fault, faults, refused

SVG = "{http://www.w3.org/2000/svg}"
HOSTILE = "<script>alert('&\"')</script>"
ROWS = ((0, 1, 3), (2,), (0, 1, 2, 3), ())


def product(columns: int = 2, name: str = "Y", a: str = "A") -> Activities:
    """Y[i, k] = A[i, j] B[j, k]: a row of A per space point and column of B; time is the coordinate j."""
    computes = [
        Activity((i, k), (j,), ((a, (i, j)), ("B", (j, k)), (name, (i, k))))
        for i, row in enumerate(ROWS)
        for j in row
        for k in range(columns)
    ]
    return Activities(name, tuple(computes), ("I", "K"), ("J",))


def operands(columns: int = 2) -> dict[str, SparseTensor]:
    dense = np.array([[int(j in row) * (i + 1) for j in range(4)] for i, row in enumerate(ROWS)])
    b = np.arange(1, 4 * columns + 1).reshape(4, columns)
    tensors = (("A", ("I", "J"), dense), ("B", ("J", "K"), b), ("Y", ("I", "K"), dense @ b))
    return {name: SparseTensor.from_dense(name, ranks, values) for name, ranks, values in tensors}


def sections(page: str) -> list[ElementTree.Element]:
    return [ElementTree.fromstring(svg) for svg in re.findall(r"<svg.*?</svg>", page, re.DOTALL)]


class Tags(HTMLParser):
    """Tags and attributes of a page, and the text outside of scripts and styles."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.found: list[tuple[str, dict[str, str | None]]] = []
        self.words: list[str] = []
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.found.append((tag, dict(attrs)))

    def handle_data(self, data: str) -> None:
        self.words.append(data)


def test_golden_activity(golden: Callable[[str, str], None]) -> None:
    golden("activity.svg", draw_activity(product()).svg)
    golden("activity_slip.svg", draw_activity(product(), slip=True).svg)
    golden("activity.html", activity_page(product(1), operands(1)).html)


stamps = st.tuples(st.integers(0, 3), st.integers(0, 3))


@settings(max_examples=60, deadline=None)
@given(st.lists(st.tuples(stamps, stamps), max_size=30))
def test_clocks_are_those_of_a_slow_count(places: list[tuple[tuple[int, int], tuple[int, int]]]) -> None:
    computes = tuple(Activity(space, time, (("Y", ()),)) for space, time in places)
    lock, slip = (Activities("Y", computes, slip=s) for s in (False, True))
    assert lock.lock_steps == lock.count == len({t for _, t in places})
    longest = 0
    for space in {s for s, _ in places}:
        longest = max(longest, len({t for s, t in places if s == space}))
    assert slip.slip_steps == slip.count == longest
    for number, (space, time) in enumerate(places):
        assert lock.steps[number] == sum(t < time for t in {t for _, t in places})
        assert slip.steps[number] == sum(t < time for t in {t for s, t in places if s == space})
    points = len({s for s, _ in places})
    for run in (lock, slip):
        busy = len(set(places)) / (points * run.count) if places else 0.0
        assert run.utilisation == pytest.approx(busy)
        assert 0 <= run.utilisation <= 1
    assert lock.ideal_steps == pytest.approx(len(places) / points if points else 0)
    assert draw_activity(lock).svg.count('class="cell"') == len(set(places))


def test_every_compute_stands_at_its_row_and_step() -> None:
    run = product()
    root = ElementTree.fromstring(draw_activity(run).svg)
    found = {}
    for group in root.iter(f"{SVG}g"):
        if group.get("class") == "cell":
            words = tuple(str(t.text) for t in group.iter(f"{SVG}text"))
            found[words] = group.get("data-steps")
    assert found == {c.label: str(step) for c, step in zip(run.computes, run.steps, strict=True)}
    assert found["A[2,3]", "B[3,1]", "Y[2,1]"] == "3"


def test_the_caption_says_how_well_space_is_used() -> None:
    svg = draw_activity(product()).svg
    # 3 + 1 + 4 nonzeros, 2 columns; rows 0 to 2 work; columns 0 to 3 of A are the steps
    assert "16 computes on 6 space points, 4 steps (lock-step): utilisation 66.7 %" in svg
    assert "lock-step 4, slip 4, ideal (computes / space points) 2.667 steps" in svg
    assert svg.count("#e4e7eb") == 6 * 4 - 16


def test_long_runs_wrap_and_nothing_overlaps() -> None:
    computes = [Activity((0,), (t,), (("A", (t, t, 100)), ("Y", (t,)))) for t in range(40)]
    computes += [Activity((1,), (7,), (("A", (7, 7, 7)), ("Y", (7,))))] * 2
    root = ElementTree.fromstring(draw_activity(Activities("Y", tuple(computes))).svg)
    boxes = [
        tuple(float(r.attrib[k]) for k in ("x", "y", "width", "height"))
        for r in list(root.iter(f"{SVG}rect"))[1:]
    ]
    assert len(boxes) == 80
    bands: dict[float, int] = {}
    for _, y, _, _ in boxes:
        bands[y] = bands.get(y, 0) + 1
    assert len(bands) > 2
    assert max(bands.values()) - min(bands.values()) <= len(bands), "no band of one step below long ones"
    width, height = float(root.attrib["width"]), float(root.attrib["height"])
    for i, (x, y, w, h) in enumerate(boxes):
        assert 0 <= x < x + w <= width <= 1300
        assert 0 <= y < y + h <= height
        for a, b, c, d in boxes[:i]:
            assert x + w <= a or a + c <= x or y + h <= b or b + d <= y


def test_too_many_computes_are_refused_with_advice() -> None:
    many = product(8)
    assert len(many.computes) == 64
    for draw in (draw_activity, activity_page):
        with refused("too-large", "Y", "64", "60") as error:
            draw(many)
        assert "leave `spacetime` out of its mapping" in error.value.remedy
    assert draw_activity(many, limit=64).svg
    assert activity_page(many, limit=64).html
    with faults("out-of-range", at=""):
        draw_activity(many, limit=0)


def test_stamps_and_points_must_fit() -> None:
    crooked = Activities("Y", (Activity((0,), (0, 1), ()), Activity((0, 1), (0,), ())), ("I",))
    with every_fault(("shape-mismatch", ""), ("shape-mismatch", "")):
        draw_activity(crooked)
    with faults("shape-mismatch", at=""):
        activity_page(product(), {"A": SparseTensor.from_dense("A", ("I", "J", "K"), np.ones((1, 1, 1)))})
    with faults("nothing-to-show", at=""):
        activity_page(())


def test_the_page_lights_what_is_touched() -> None:
    page = activity_page(product(1), operands(1)).html
    a, b, y, steps = sections(page)
    for svg, points in ((a, 0), (b, 1), (y, 2)):
        run = product(1)
        for group in svg.iter(f"{SVG}g"):
            if group.get("class") != "cell":
                continue
            path = tuple(int(n) for n in re.findall(r"= (\d+)", str(group.findtext(f"{SVG}title"))))
            touched = {
                s
                for c, s in zip(run.computes, run.steps, strict=True)
                if c.points[points][1][: len(path)] == path
            }
            assert touched == {int(n) for n in str(group.get("data-steps", "")).split()}
            assert (group.get("data-made") is not None) == (svg is y)
    assert steps.findtext(f"{SVG}desc") == " ".join(product(1).caption)


def test_without_scripts_everything_is_there() -> None:
    page = activity_page((product(), product(1, "Z")), operands()).html
    tags = Tags(page)
    bars = [a for t, a in tags.found if a.get("class") == "bar"]
    assert len(bars) == 2
    assert all("hidden" in a for a in bars)
    words = "".join(tags.words)
    for compute in product().computes:
        assert ", ".join(compute.label) in words
    assert sum(t == "li" for t, _ in tags.found) == 8
    assert page.count('aria-live="polite"') == 2


def test_nothing_is_fetched_and_one_script_is_allowed() -> None:
    page = activity_page(product(), operands())
    assert not re.search(r"(src|href)=|@import|url\(", page.html)
    assert page.html.count("<script>") == 1
    digest = b64encode(sha256(asset("activity.js").encode()).digest()).decode()
    assert f"default-src 'none'; style-src 'unsafe-inline'; script-src 'sha256-{digest}';" in page.html
    assert f"<script>{asset('activity.js')}</script>" in page.html
    unsafe = r"innerHTML|outerHTML|insertAdjacent|document\.write|eval\(|Function\("
    assert not re.search(unsafe, asset("activity.js"))


def test_hostile_names_are_text() -> None:
    run = product(1, HOSTILE, f'"{HOSTILE}')
    named = Activities(run.einsum, run.computes, (HOSTILE, "K"), ("</svg></script>",))
    tensors = {f'"{HOSTILE}': operands()["A"].renamed(HOSTILE, ("</title>", '"onload="x'))}
    page = activity_page(named, tensors, title=f"{HOSTILE}</title>")
    plain = activity_page(product(1), {"A": operands()["A"]})
    hostile, tame = Tags(page.html), Tags(plain.html)
    assert [t for t, _ in hostile.found] == [t for t, _ in tame.found]
    assert [sorted(a) for _, a in hostile.found] == [sorted(a) for _, a in tame.found]
    assert HOSTILE in "".join(hostile.words)
    drawing = draw_activity(named, title=HOSTILE)
    assert "<script" not in drawing.svg
    ElementTree.fromstring(drawing.svg)
    frame = page._repr_html_()
    assert [t for t, _ in Tags(frame).found] == ["iframe"]
    assert Tags(frame).found[0][1]["srcdoc"] == page.html


def test_large_operands_show_what_is_touched() -> None:
    large = SparseTensor.from_dense("B", ("J", "K"), np.ones((WHOLE, 2)))
    page = activity_page(product(1), {"B": large}).html
    _, b, y, _ = sections(page)
    assert f"shape {WHOLE} x 2; only what is touched of {2 * WHOLE} nonzeros, 4 nonzeros" in "".join(
        b.itertext()
    )
    assert sum(g.get("class") == "cell" for g in b.iter(f"{SVG}g")) == 4 + 4
    values = [str(g.findtext(f"{SVG}title")).split(": ")[-1] for g in y.iter(f"{SVG}g") if g.get("class")]
    assert [v for v in values if "=" not in v] == ["3", "1", "4"]


def test_flattened_coordinates_and_tensors_without_ranks() -> None:
    computes = tuple(
        Activity((0,), (t,), (("A", ((t, 1), t)), ("s", ()), ("Y", ((t, 1),)))) for t in range(3)
    )
    run = Activities("Y", computes, ("P",), ("T",))
    flat = DrawnFibertree("A", ("JK", "I"), (2, 1), np.array([[0, 1, 2], [1, 1, 1], [0, 1, 2]]), np.ones(3))
    page = activity_page(run, {"A": flat, "s": SparseTensor.from_dense("s", (), np.array(3))})
    a, s, y, steps = sections(page.html)
    assert "JK = (2,1), I = 2: 1" in "".join(a.itertext())
    assert "rank 0, 1 nonzero" in "".join(s.itertext())
    assert "A[(2,1),2]" in "".join(steps.itertext())
    assert "(2,1)" in "".join(y.itertext())


def test_a_page_saves(tmp_path: Path) -> None:
    page = activity_page(product())
    assert page.save(tmp_path / "a.html").read_text(encoding="utf-8") == page.html
    with faults("unknown-format", "a.svg", at=""):
        page.save(tmp_path / "a.svg")
    assert unescape(page._repr_html_()).count("<!DOCTYPE html>") == 1


def test_an_einsum_that_computes_nothing() -> None:
    empty = Activities("Y", ())
    assert "0 computes on 0 space points" in draw_activity(empty).svg
    assert "Einsum Y" in activity_page(empty).html
