"""The report of the GPT-3 layer in a real browser: nothing fetched, no errors, and everything can be used.

The browser is the one that POLYMODEL_BROWSER names, or chromium or chrome on the PATH. Without one these
tests are skipped; in CI they fail, for there the page has to be seen.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import polymodel as pm
from polymodel.report.activity import Activities, Activity
from polymodel.report.execution import activity_page
from tests.browser.visit import SIZES, WIDEST, Visit
from tests.seeds import seeds


@pytest.fixture(scope="module")
def report(tmp_path_factory: pytest.TempPathFactory) -> Path:
    file = tmp_path_factory.mktemp("page") / "report.html"
    spec = pm.load("gpt3_6.7B", "tpu_v4i", "gpt3_6.7B/fused", N_TOKENS=2048)
    pm.evaluate(spec).to_html(
        file, live=False, command="polymodel evaluate gpt3_6.7B tpu_v4i --html report.html"
    )
    assert file.stat().st_size < 3_000_000
    return file


@pytest.fixture(scope="module", params=seeds(1, SIZES))
def visit(request: pytest.FixtureRequest, browser: Any, report: Path) -> Iterator[Visit]:
    found = Visit(browser, request.param)
    found.page.goto(report.as_uri())
    yield found
    assert found.complaints == []
    assert {url.split(":")[0] for url in found.asked} == {"file"}
    assert len(found.asked) == 1
    found.page.close()


@pytest.mark.slow
def test_nothing_is_wider_than_the_page(visit: Visit, tmp_path: Path) -> None:
    page = visit.page
    width = page.viewport_size["width"]
    picture = page.screenshot(path=tmp_path / f"report_{width}.png")
    assert len(picture) > 10_000
    page.click("text=open all")
    assert page.eval_on_selector_all("details.part:not([open])", "found => found.length") == 0
    assert page.evaluate(WIDEST) <= width
    tables = page.eval_on_selector_all(".wide", "found => found.map(w => [w.scrollWidth, w.clientWidth])")
    assert len(tables) > 10
    assert any(inside > outside for inside, outside in tables), "wide tables scroll in their own place"
    sizes = page.eval_on_selector_all(
        "svg", "found => found.map(s => [s.getBoundingClientRect().width, s.getBoundingClientRect().height])"
    )
    assert len(sizes) == 11
    assert all(w > 100 and h > 100 for w, h in sizes)


@pytest.mark.slow
def test_headings_sort_by_value(visit: Visit) -> None:
    page = visit.page
    page.click("nav a[href='#table-accesses']")
    heads = page.locator("#table-accesses thead th")
    names = [name.strip() for name in heads.all_text_contents()]
    read = names.index("read")
    before = visit.column("table-accesses", read)
    button = heads.nth(read).locator("button")
    button.click()
    assert heads.nth(read).get_attribute("aria-sort") == "ascending"
    numbers = [int(v) for v in visit.column("table-accesses", read)]
    assert numbers == sorted(map(int, before))
    assert len(set(map(len, map(str, numbers)))) > 3, "sorted as texts these would stand otherwise"
    button.press("Enter")
    assert heads.nth(read).get_attribute("aria-sort") == "descending"
    assert [int(v) for v in visit.column("table-accesses", read)] == sorted(map(int, before), reverse=True)
    button.press("Space")
    assert heads.nth(read).get_attribute("aria-sort") == "none"
    assert visit.column("table-accesses", read) == before
    heads.nth(0).locator("button").click()
    assert visit.column("table-accesses", 0)[0] == "AV"
    assert heads.nth(read).get_attribute("aria-sort") == "none"


def test_figures_beyond_floats_and_infinity_are_in_order(browser: Any, tmp_path: Path) -> None:
    from polymodel.view.answer import Section
    from polymodel.view.html import page as whole
    from polymodel.view.table import Column, Table

    values = (2**60 + 1, 2**60, float("inf"), None, -3, 2**60 + 2, 0.5)
    table = Table("t", (Column("bits", "bit"),), tuple((v,) for v in values))
    file = tmp_path / "numbers.html"
    file.write_text(whole("numbers", [Section("", table)]), encoding="utf-8")
    visit = Visit(browser, 1280)
    visit.page.goto(file.as_uri())
    visit.page.click("th button")
    script = "cells => cells.map(c => c.title.split(' ')[0])"
    order = visit.page.eval_on_selector_all("tbody td", script)
    assert order == ["-3", "0.5", str(2**60), str(2**60 + 1), str(2**60 + 2), "inf", ""]
    visit.page.click("th button")
    order = visit.page.eval_on_selector_all("tbody td", script)
    assert order == ["inf", str(2**60 + 2), str(2**60 + 1), str(2**60), "0.5", "-3", ""]
    assert visit.complaints == []
    visit.page.close()


@pytest.mark.slow
def test_rows_are_filtered(visit: Visit) -> None:
    page = visit.page
    page.click("nav a[href='#table-accesses']")
    box = page.locator("#table-accesses input[type=search]")
    told = page.locator("#table-accesses output")
    many = len(visit.column("table-accesses", 0))
    box.fill("ffa glb")
    shown = page.locator("#table-accesses tbody tr:visible")
    texts = shown.all_text_contents()
    assert 0 < len(texts) < many
    assert all("FFA" in text and "GLB" in text for text in texts)
    assert told.text_content() == f"{len(texts)} of {many} rows"
    box.fill("no such word")
    assert shown.count() == 0
    box.fill("")
    assert shown.count() == many


def test_sections_fold_and_links_open_them(visit: Visit) -> None:
    page = visit.page
    page.click("text=fold all")
    assert page.eval_on_selector_all("details.part[open]", "found => found.length") == 0
    assert not page.locator("#table-summary table").is_visible()
    page.locator("#table-summary > summary").press("Enter")
    assert page.locator("#table-summary table").is_visible()
    page.locator("nav a[href='#spec-as-loaded']").press("Enter")
    page.wait_for_selector("#spec-as-loaded[open]")
    assert "rank_variable: h" in (page.locator("#spec-as-loaded pre").text_content() or "")
    page.locator("#table-summary > summary").click()
    assert not page.locator("#table-summary table").is_visible()


def test_columns_explain_themselves(visit: Visit) -> None:
    page = visit.page
    page.click("nav a[href='#table-tiles']")
    more = page.locator("#table-tiles details.terms")
    more.locator("summary").press("Enter")
    assert "bits of the largest tile" in (more.text_content() or "")
    assert more.locator("dd").first.is_visible()


def test_pictures_tell_and_fit(visit: Visit) -> None:
    page = visit.page
    page.click("nav a[href='#looptree']")
    picture = page.locator("#looptree .picture")
    width = page.viewport_size["width"]
    assert picture.evaluate("p => p.scrollWidth") > width
    assert picture.evaluate("p => p.scrollLeft") > 0, "it starts where its root is"
    told = picture.locator("g.node title").first.text_content() or ""
    assert "I_in: tile 67.11 Mb" in told
    button = page.locator("#looptree button")
    assert button.text_content() == ("fit to the page" if width == 1280 else "smaller")
    button.click()
    ratio = "s.getBoundingClientRect().width / s.viewBox.baseVal.width"
    scale = f"p => {{ var s = p.querySelector('svg'); return {ratio}; }}"
    assert 0.79 < picture.evaluate(scale) < 0.99, "smaller, and yet to be read"
    if width == 1280:
        assert picture.evaluate("p => p.scrollWidth") <= width
    button.click()
    assert picture.evaluate(scale) == pytest.approx(1)


@pytest.mark.slow
def test_letters_of_plots_stay_readable(visit: Visit) -> None:
    """Letters of eight points are nearly eleven pixels; plots fit half a page of 1280 pixels, and scroll
    before their letters are six."""
    page = visit.page
    page.click("text=open all")
    if page.viewport_size["width"] == 1280:
        assert not page.eval_on_selector_all(
            ".plot", "found => found.filter(p => p.scrollWidth > p.clientWidth)"
        )
    widths = page.eval_on_selector_all(
        ".plot svg", "found => found.map(s => s.getBoundingClientRect().width / s.viewBox.baseVal.width)"
    )
    assert len(widths) == 8
    assert min(widths) * 8 >= 6.3
    places = page.eval_on_selector_all(".plot", "found => found.map(p => [p.tabIndex, p.ariaLabel])")
    assert all(at == 0 and name.startswith("Plot: ") for at, name in places), "keys scroll them"


@pytest.mark.slow
def test_paper_shows_what_is_folded(visit: Visit) -> None:
    page = visit.page
    page.click("text=fold all")
    page.evaluate("window.dispatchEvent(new Event('beforeprint'))")
    assert page.eval_on_selector_all("details:not(.chart):not([open])", "found => found.length") == 0
    if page.viewport_size["width"] == 1280:
        page.emulate_media(media="print")
        tables = "found => found.filter(t => t.scrollWidth > t.closest('.wide').clientWidth).length"
        assert page.eval_on_selector_all(".wide table", tables) == 0
        page.emulate_media(media="screen")
    page.evaluate("window.dispatchEvent(new Event('afterprint'))")
    assert page.eval_on_selector_all("details.part[open]", "found => found.length") == 0


def test_it_reads_without_scripts_and_in_the_dark(browser: Any, report: Path) -> None:
    visit = Visit(browser, 400, java_script_enabled=False, color_scheme="dark")
    visit.page.goto(report.as_uri())
    assert visit.page.locator("#table-summary table").is_visible()
    assert visit.complaints == []
    visit.page.close()


@pytest.mark.parametrize("scheme", seeds(1, ["dark", "light"]))
def test_pages_of_activity_follow_the_scheme(browser: Any, tmp_path: Path, scheme: str) -> None:
    points = [Activity((i % 2, 0), (i,), (("A", (i,)), ("Y", (0,)))) for i in range(6)]
    page = activity_page(Activities("Y", tuple(points), ("P", "Q"), ("I",)))
    visit = Visit(browser, 400, color_scheme=scheme)
    visit.page.goto(page.save(tmp_path / "activity.html").as_uri())
    colours = visit.page.evaluate(
        "[getComputedStyle(document.body).backgroundColor, getComputedStyle(document.body).color]"
    )
    ground, ink = (sum(map(int, re.findall(r"\d+", c)[:3])) for c in colours)
    assert (ground > ink + 400) if scheme == "light" else (ink > ground + 400)
    assert visit.page.evaluate(WIDEST) <= 400
    assert visit.page.eval_on_selector_all("figure, .wide", "found => found.every(f => f.tabIndex === 0)")
    assert visit.complaints == []
    visit.page.close()


def test_a_script_of_a_spec_does_not_run(browser: Any, tmp_path: Path) -> None:
    """Should a text ever come through, the policy stops it."""
    from polymodel.view.answer import Html
    from polymodel.view.html import page as whole

    file = tmp_path / "hostile.html"
    body = "<script>document.title = 'ran'</script><img src=x onerror=\"document.title = 'ran'\">"
    file.write_text(whole("calm", [Html(body)]), encoding="utf-8")
    visit = Visit(browser, 1280)
    visit.page.goto(file.as_uri())
    assert visit.page.title() == "calm"
    assert any("Content Security Policy" in text for text in visit.complaints)
    visit.page.close()
