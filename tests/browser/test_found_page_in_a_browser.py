"""Pages of sweeps and fronts in a real browser, and what every page owes readers: keys, names, contrast."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

import polymodel as pm
from polymodel.report.show import show_html
from polymodel.report.tiling.text import compared_blocks
from polymodel.view.answer import Section
from polymodel.view.html import page as whole
from polymodel.view.table import Column, Table
from tests.browser.visit import SIZES, WIDEST, Visit
from tests.hardware.small import small
from tests.report.test_found_page import MAPPING
from tests.seeds import seeds

COPIED = ("copied", "selected: copy it with the keyboard")
# Text against what is painted behind it, as WCAG counts it; the least ratio, and where it is.
CONTRAST = """() => {
  const light = rgb => { const [r, g, b] = rgb.match(/[\\d.]+/g).map(v => v / 255).map(
    v => v <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4);
    return 0.2126 * r + 0.7152 * g + 0.0722 * b; };
  let least = [99, ''];
  for (const e of document.querySelectorAll('h1,h2,h3,p,a,td,th,button,input,summary,pre,output,dt,dd')) {
    let at = e, behind = 'rgb(255, 255, 255)';
    for (; at; at = at.parentElement) {
      const paint = getComputedStyle(at).backgroundColor;
      if (paint !== 'rgba(0, 0, 0, 0)') { behind = paint; break; }
    }
    const [a, b] = [light(getComputedStyle(e).color), light(behind)].sort((x, y) => y - x);
    const ratio = (a + 0.05) / (b + 0.05);
    if (ratio < least[0]) { least = [ratio, e.outerHTML.slice(0, 80)]; }
  }
  return least; }"""


@pytest.fixture(scope="module")
def pages(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    folder = tmp_path_factory.mktemp("pages")
    # Where a file lies is on the page too: no checkout may be too deep for it.
    folder = folder / "/".join(["a_folder_that_is_deep"] * 6)
    folder.mkdir(parents=True)
    (folder / "tiled.yaml").write_text(MAPPING, encoding="utf-8")
    spec = pm.load("matmul", "simple_two_level", folder / "tiled.yaml")
    symbols = {"TM": pm.all_sizes("m"), "TK": pm.divisors("k")}
    objectives = ("accesses:DRAM", "working_set:GLB")
    pm.sweep(spec, symbols, objectives=objectives).to_html(folder / "sweep.html")
    chain = pm.load("matmul_chain_2", "simple_two_level", M=16, N0=8)
    pm.explore(chain, objectives=("energy", "buffer"), eps=0.05).to_html(folder / "front.html")
    pm.evaluate(spec).to_html(folder / "report.html")
    shown = show_html(spec.workload, spec.arch, spec.mapping)
    (folder / "show.html").write_text(shown, encoding="utf-8")
    matrix = pm.random_tensor(["I", "J"], [60, 60], 0.1, seed=0)
    tiled = compared_blocks(pm.tile(matrix, fit=pm.elements(32)))
    (folder / "tile.html").write_text(whole("tile", tiled), encoding="utf-8")
    return {p.stem: p for p in folder.glob("*.html")}


@pytest.fixture(scope="module", params=seeds(1, SIZES))
def sweep(request: pytest.FixtureRequest, browser: Any, pages: dict[str, Path]) -> Iterator[Visit]:
    found = Visit(browser, request.param)
    found.page.goto(pages["sweep"].as_uri())
    yield found
    assert found.complaints == []
    assert [url.split(":")[0] for url in found.asked] == ["file"]
    found.page.close()


@pytest.mark.slow
def test_nothing_is_wider_than_the_page(sweep: Visit) -> None:
    sweep.page.click("text=open all")
    assert sweep.page.evaluate(WIDEST) <= sweep.page.viewport_size["width"]


@pytest.mark.slow
def test_points_sort_by_what_they_are(sweep: Visit) -> None:
    heads = sweep.page.locator("#table-points thead th")
    at = [t.strip() for t in heads.all_text_contents()].index("working set:GLB")
    heads.nth(at).locator("button").click()
    bits = [int(v) for v in sweep.column("table-points", at)]
    assert bits == sorted(bits)
    assert len(bits) == 15
    heads.nth(at).locator("button").click()
    assert [int(v) for v in sweep.column("table-points", at)] == bits[::-1]


@pytest.mark.slow
def test_a_row_leads_to_its_mapping_and_that_can_be_taken_along(sweep: Visit, tmp_path: Path) -> None:
    page = sweep.page
    page.click("text=fold all")
    page.locator("nav a[href='#table-points']").click()
    link = page.locator("#table-points tbody a").nth(2)
    name = (link.get_attribute("href") or "").removeprefix("#")
    link.press("Enter")
    page.wait_for_selector(f"#{name}[open]")
    text = page.locator(f"#{name} pre.file")
    assert text.is_visible()
    with page.expect_download() as saved:
        page.locator(f"#{name} button", has_text="save as").click()
    assert saved.value.suggested_filename == f"{name}.yaml"
    saved.value.save_as(tmp_path / "saved.yaml")
    assert (tmp_path / "saved.yaml").read_text(encoding="utf-8") == text.text_content()
    pm.load("matmul", "simple_two_level", tmp_path / "saved.yaml").check()
    page.locator(f"#{name} button", has_text="copy").click()
    assert page.locator(f"#{name} .tools output").text_content() in COPIED
    assert page.evaluate("getSelection().toString()").strip() == (text.text_content() or "").strip()


@pytest.mark.slow
@pytest.mark.parametrize("name", seeds(1, ["report", "front", "sweep", "show", "tile"]))
def test_every_page_is_for_everyone(browser: Any, pages: dict[str, Path], name: str) -> None:
    """What assistive software needs, in light and dark, and at twice the size."""
    for scheme in ("light", "dark"):
        visit = Visit(browser, 1280, color_scheme=scheme, reduced_motion="reduce")
        page = visit.page
        page.goto(pages[name].as_uri())
        page.eval_on_selector_all("details", "found => found.forEach(d => d.open = true)")
        ratio, where = page.evaluate(CONTRAST)
        assert ratio >= 4.5, where
        page.set_viewport_size({"width": 640, "height": 450})
        assert page.evaluate(WIDEST) <= 640
        page.close()
    visit = Visit(browser, 1280)
    page = visit.page
    page.goto(pages[name].as_uri())
    assert page.get_attribute("html", "lang") == "en"
    levels = page.eval_on_selector_all("h1,h2,h3,h4", "found => found.map(h => Number(h.tagName[1]))")
    assert levels[0] == 1
    assert levels.count(1) == 1
    assert all(b <= a + 1 for a, b in pairwise(levels))
    assert page.eval_on_selector_all("body > *:not(main):not(script)", "found => found.length") == 0
    assert page.eval_on_selector_all("th:not([scope])", "found => found.length") == 0
    svgs = "svg:not([role=img]), svg:not(:has(> title))"
    assert page.eval_on_selector_all(svgs, "found => found.length") == 0
    named = "[role=group]:not([aria-label]), button:empty, .tools input:not(label input)"
    assert page.eval_on_selector_all(named, "found => found.length") == 0
    scrolls = "pre:not([tabindex]), .wide:not([tabindex]), .picture:not([tabindex])"
    assert page.eval_on_selector_all(scrolls, "found => found.length") == 0
    assert visit.complaints == []
    page.close()


@pytest.mark.slow
@pytest.mark.parametrize("place", seeds(1, ["%74able-points", "%", "nowhere", ""]))
def test_a_link_to_anywhere_leaves_the_page_whole(browser: Any, pages: dict[str, Path], place: str) -> None:
    visit = Visit(browser, 1280)
    visit.page.goto(f"{pages['sweep'].as_uri()}#{place}")
    visit.page.click("text=fold all")
    assert visit.page.eval_on_selector_all("details.part[open]", "found => found.length") == 0
    visit.page.click("text=open all")
    assert visit.complaints == []
    visit.page.close()


def dragged(visit: Visit, target: Any) -> None:
    """A rectangle over the middle of a picture."""
    target.scroll_into_view_if_needed()
    box = target.bounding_box()
    mouse = visit.page.mouse
    mouse.move(box["x"] + 0.3 * box["width"], box["y"] + 0.3 * box["height"])
    mouse.down()
    mouse.move(box["x"] + 0.7 * box["width"], box["y"] + 0.7 * box["height"], steps=3)
    mouse.up()


@pytest.mark.slow
def test_columns_are_plotted_and_looked_at_more_closely(browser: Any, pages: dict[str, Path]) -> None:
    visit = Visit(browser, 1280)
    page = visit.page
    page.goto(pages["sweep"].as_uri())
    page.click("text=open all")
    chart = page.locator("details.chart").first
    chart.locator("summary").click()
    points = chart.locator("circle")
    table = page.locator("table", has=page.locator("thead")).first
    rows = table.locator("tbody tr").count()
    assert points.count() == rows > 5
    assert "energy: " in (points.first.locator("title").text_content() or "")
    linear = [circle.get_attribute("cx") for circle in points.all()]
    chart.get_by_label("logarithmic across").check()
    assert [circle.get_attribute("cx") for circle in points.all()] != linear
    dragged(visit, chart.locator("svg"))
    assert 0 < points.count() < rows
    chart.get_by_role("button", name="show all points").click()
    assert points.count() == rows
    page.locator("input[type=search]").first.fill("\u00b5J 64")
    assert points.count() < rows
    figure = page.locator("figure.plot").first
    whole = figure.locator("svg").get_attribute("viewBox")
    dragged(visit, figure.locator("svg"))
    assert figure.locator("svg").get_attribute("viewBox") != whole
    figure.get_by_role("button", name="show all of the plot").click()
    assert figure.locator("svg").get_attribute("viewBox") == whole
    assert visit.complaints == []
    page.close()


@pytest.mark.slow
def test_a_point_of_a_codesign_leads_to_its_machine_and_loop_tree(browser: Any, tmp_path: Path) -> None:
    """Also where that is folded away."""
    found = pm.codesign(small(), {"S": [128, 512], "F": [1, 2]}, objectives=["energy", "area"])
    found.to_html(tmp_path / "machines.html")
    visit = Visit(browser, 1280)
    page = visit.page
    page.goto((tmp_path / "machines.html").as_uri())
    last = len(found) - 1
    at = page.locator(f"figure.plot svg a[href='#row-{last}']").first
    assert at.locator("title").text_content().startswith(f"point: {last}")
    assert not page.locator(f"#point-{last} svg").first.is_visible()
    at.click()
    shown = page.locator(f"#point-{last}[open] svg")
    assert [shown.nth(k).is_visible() for k in (0, 1)] == [True, True]  # the machine and the LoopTree
    assert visit.complaints == []
    page.close()


def test_a_point_of_a_front_leads_to_its_loop_tree(browser: Any, pages: dict[str, Path]) -> None:
    visit = Visit(browser, 1280)
    page = visit.page
    page.goto(pages["front"].as_uri())
    rows = page.locator("#table-points tbody tr")
    points = page.locator("figure.plot").first.locator("svg a")
    assert points.count() == rows.count()
    for row in (0, 1):  # one with its mapping on the page, one without
        at = page.locator(f"figure.plot svg a[href='#row-{row}']").first
        assert f"mapping: {row}\nenergy: " in (at.locator("title").text_content() or "")
        page.click("text=fold all")
        at.evaluate("link => link.dispatchEvent(new MouseEvent('click', {bubbles: true, cancelable: true}))")
        seen = "#mapping-0 .picture svg" if row == 0 else "#table-points tr.found"
        page.wait_for_selector(seen, state="visible")
    assert visit.complaints == []
    page.close()


@pytest.mark.slow
def test_keys_reach_every_control(browser: Any, pages: dict[str, Path]) -> None:
    visit = Visit(browser, 1280)
    page = visit.page
    page.goto(pages["sweep"].as_uri())
    page.click("text=open all")
    can = "a[href], button, input, summary, [tabindex='0']"
    total = page.eval_on_selector_all(can, "found => found.filter(e => e.checkVisibility()).length")
    page.evaluate("document.activeElement.blur(); scrollTo(0, 0)")
    seen = set()
    for _ in range(total + 5):
        page.keyboard.press("Tab")
        at = "e => [...document.querySelectorAll('*')].indexOf(document.activeElement)"
        seen.add(page.evaluate(f"({at})()"))
    assert len(seen - {-1}) >= total
    page.close()


@pytest.mark.slow
def test_a_large_front_sorts_at_once(browser: Any, tmp_path: Path) -> None:
    """Ten times the rows, about ten times the work (a sort by pairs would take a hundred times)."""
    script = """() => { const began = performance.now();
      for (const head of document.querySelectorAll('th button')) { head.click(); head.click(); }
      const filter = document.querySelector('input[type=search]');
      for (const words of ['point 29', '']) {
        filter.value = words; filter.dispatchEvent(new Event('input')); }
      document.body.offsetHeight;
      return performance.now() - began; }"""
    columns = (Column("name"), Column("energy", "J"), Column("bits", "bit"))
    visit = Visit(browser, 1280)
    least = {}
    for size in (300, 3000):
        rows = tuple((f"point {k * 7919 % 3001}", k * 7919 % 3001 / 7, 2**60 + k) for k in range(size))
        file = tmp_path / f"{size}.html"
        file.write_text(whole("large", [Section("", Table("t", columns, rows))]), encoding="utf-8")
        visit.page.goto(file.as_uri())
        least[size] = min(visit.page.evaluate(script) for _ in range(5))
    assert least[3000] < 50 * max(least[300], 1.0)
    visit.page.fill("input[type=search]", "point 29")
    assert (visit.page.locator("output").text_content() or "").endswith("of 3000 rows")
    visit.page.close()


@pytest.mark.slow
def test_names_and_comments_of_any_kind_stay_text(browser: Any, tmp_path: Path) -> None:
    """Ends of scripts and comments, signs beyond the first plane, right-to-left names, a megabyte of YAML."""
    folder = tmp_path / "</scr" / "ipt> -->🚀 שלום"
    folder.mkdir(parents=True)
    mapping = MAPPING + "# </script><script>document.title = 'ran'</script> --> ]]> 🚀 שלום\n"
    mapping += "# a long comment, line by line, and nothing else in it\n" * 20_000
    (folder / "tiled -->.yaml").write_text(mapping, encoding="utf-8")
    spec = pm.load("matmul", "simple_two_level", folder / "tiled -->.yaml")
    command = "polymodel evaluate '</script><script>document.title = 1</script>' <!-- 🚀"
    pm.evaluate(spec).to_html(tmp_path / "a.html", live=False, plots=False, command=command)
    symbols = {"TM": [4, 8], "TK": [8]}
    pm.sweep(spec, symbols, objectives=("energy", "latency")).to_html(tmp_path / "b.html", command=command)
    for name in ("a.html", "b.html"):
        for width in SIZES:
            visit = Visit(browser, width)
            visit.page.goto((tmp_path / name).as_uri())
            visit.page.click("text=open all")
            text = visit.page.locator("main").text_content() or ""
            assert command in text
            assert "tiled -->.yaml" in text
            assert "שלום" in text
            assert "ran" not in visit.page.title()
            assert visit.page.evaluate(WIDEST) <= width
            assert visit.complaints == []
            visit.page.close()
