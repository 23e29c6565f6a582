"""The page of a search: what stands in it, what it leads to, and what it leaves out is told."""

from __future__ import annotations

import re
from html import unescape
from pathlib import Path
from typing import Literal

import pytest

import polymodel as pm
from polymodel.mapper.front import Front
from polymodel.report.search_page import MOST_ROWS, MOST_TREES, picked
from polymodel.sweeps.result import Sweep
from tests.faults import faults
from tests.report.test_report_page import checked

MAPPING = """
mapping:
  nodes:
  - !Storage {component: DRAM, tensors: [A, B, C]}
  - !Temporal {rank_variable: m, tile_shape: TM}
  - !Temporal {rank_variable: k, tile_shape: TK}
  - !Storage {component: GLB, tensors: [A, B, C], reuse: slide}
  - !Compute {einsum: Matmul, component: MAC}
symbols: {TM: 8, TK: 8}
"""
FILES = re.compile(r'<pre class="file" data-file="([^"]+)"[^>]*>(.*?)</pre>', re.DOTALL)


@pytest.fixture(scope="module")
def swept(tmp_path_factory: pytest.TempPathFactory) -> Sweep:
    file = tmp_path_factory.mktemp("swept") / "tiled.yaml"
    file.write_text(MAPPING, encoding="utf-8")
    symbols = {"TM": pm.all_sizes("m"), "TK": pm.divisors("k")}
    objectives = ("accesses:DRAM", "working_set:GLB")
    return pm.sweep(
        pm.load("matmul", "simple_two_level", file), symbols, objectives=objectives, where=["TK <= TM"]
    )


@pytest.fixture(scope="module")
def explored() -> Front:
    spec = pm.load("matmul_chain_2", "simple_two_level", M=16, N0=8)
    return pm.explore(spec, objectives=("energy", "buffer"), constraints={"max_fused_loops": 1}, eps=0.05)


def figures(table: str) -> list[list[str]]:
    """Exact figures of a table, or texts, row by row."""
    return [
        [unescape(title.split(" ")[0] or re.sub("<[^>]*>", "", text))
         for title, text in re.findall(r'<td(?:[^>]*?title="([^"]*)")?[^>]*>(.*?)</td>', row)]
        for row in re.findall(r"<tr[^>]*>(<td.*?)</tr>", table, re.DOTALL)
    ]  # fmt: skip


@pytest.mark.slow
def test_the_page_of_a_sweep(swept: Sweep, tmp_path: Path) -> None:
    text = swept.to_html(tmp_path / "sweep.html", command="polymodel sweep x --where 'TK <= TM'")
    assert (tmp_path / "sweep.html").read_text(encoding="utf-8") == text
    found = checked(text)
    assert "<h1>Sweep of matmul on simple_two_level</h1>" in text
    assert "no worse in any objective" in text
    assert "polymodel sweep x --where &#39;TK &lt;= TM&#39;" in text
    rows = figures(text[text.index('id="table-points"') : text.index('id="plot-front"')])
    assert [[int(v) for v in row[:5]] for row in rows] == swept.frame[
        ["point", "TM", "TK", *swept.objectives]
    ].to_numpy().tolist()
    counted = figures(text[text.index('id="what-became-of-all-points"') :])[:3]
    assert sum(int(row[1]) for row in counted) == swept.points
    assert ["infeasible", "120", "left out by `where`"] in counted
    assert sum(i.startswith("point-") for i in found.ids) == MOST_TREES
    assert f"point-{swept.best()['point']}" in found.ids
    assert f"point-{swept.best('working_set:GLB')['point']}" in found.ids


def test_its_mappings_evaluate_to_the_figures_of_their_rows(swept: Sweep, tmp_path: Path) -> None:
    files = dict(FILES.findall(swept.to_html(plots=False)))
    best = swept.best()
    (tmp_path / "best.yaml").write_text(unescape(files[f"point-{best['point']}.yaml"]), encoding="utf-8")
    report = pm.evaluate(pm.load("matmul", "simple_two_level", tmp_path / "best.yaml"))
    moved = report.table("accesses").where(lambda r: r["component"] == "DRAM")
    bits = sum(int(r["read_bits"] or 0) + int(r["write_bits"] or 0) for r in moved.records())
    assert bits == best["accesses:DRAM"]
    (tmp_path / "spec.yaml").write_text(unescape(files["spec-as-loaded.yaml"]), encoding="utf-8")
    again = pm.sweep(
        pm.load(tmp_path / "spec.yaml"), {"TM": pm.all_sizes("m"), "TK": pm.divisors("k")},
        objectives=swept.objectives, where=["TK <= TM"],
    )  # fmt: skip
    assert again.frame.equals(swept.frame)


def test_the_page_of_a_front(explored: Front, tmp_path: Path) -> None:
    text = explored.to_html(tmp_path / "front.html")
    found = checked(text)
    assert "Within a factor of 1.05 in every objective" in text
    rows = figures(
        text[text.index('id="table-points"') : text.index('id="plot-working-set-glb-over-energy"')]
    )
    assert [float(row[1]) for row in rows] == [p.energy for p in explored]
    assert "max_fused_loops" in text
    shown = [i for i in found.ids if re.fullmatch(r"mapping-\d+", i)]
    assert f"mapping-{explored.best('buffer').number}" in shown
    files = dict(FILES.findall(text))
    assert all(unescape(files[f"{n}.yaml"]) == explored[int(n[8:])].yaml for n in shown)
    assert "join Matmul2" in text


def test_one_objective_and_no_matplotlib(swept: Sweep) -> None:
    front = pm.explore(pm.load("matmul", "simple_two_level", M=8, N=8, K=8), objectives="energy")
    checked(front.to_html())
    assert "<h2>Plot" not in front.to_html() + swept.to_html(plots=False)


def test_what_is_nothing_says_why(tmp_path: Path) -> None:
    file = tmp_path / "large.yaml"
    file.write_text(MAPPING.replace("reuse: slide", "reuse: refill"), encoding="utf-8")
    spec = pm.load("matmul", "simple_two_level", file, M=4096, N=4096)
    found = pm.sweep(spec, {"TM": [4096], "TK": [64]}, objectives=("energy", "latency"))
    text = found.to_html()
    checked(text)
    assert "nothing valid was found" in text
    assert "working set larger than its size" in text
    arch = (Path(pm.__file__).parents[1] / "arch/simple_two_level.yaml").read_text(encoding="utf-8")
    assert "{may_keep: All}" in arch
    tight = re.sub(r"size: (?!inf).*", "size: 16", arch.replace("{may_keep: All}", "{keep: All}"))
    (tmp_path / "tight.yaml").write_text(tight, encoding="utf-8")
    front = pm.explore(pm.load("matmul", tmp_path / "tight.yaml", M=8, N=8, K=8), objectives="energy")
    text = front.to_html()
    checked(text)
    assert "nothing valid was found" in text
    assert "a mapping exists if" in text


def test_values_of_symbols_keep_all_their_digits(tmp_path: Path) -> None:
    """Rounded to six digits, two points next to each other would look alike."""
    small = MAPPING.replace("GLB, tensors: [A, B, C]", "GLB, tensors: [B]")  # rows of A and C would not fit
    (tmp_path / "tiled.yaml").write_text(small, encoding="utf-8")
    spec = pm.load("matmul", "simple_two_level", tmp_path / "tiled.yaml", M=2_000_000)
    found = pm.sweep(spec, {"TM": [1_234_567, 1_234_568], "TK": [64]}, objectives=("energy",), keep="all")
    text = found.to_html(plots=False)
    checked(text)
    assert "1234567, 1234568 (2 values)" in text
    assert "TM = 1234567, TK = 64" in text
    assert "TM = 1234568, TK = 64" in text


@pytest.mark.parametrize("keep", ["front", "top", "all"])
def test_every_point_is_counted_once(tmp_path: Path, keep: Literal["front", "top", "all"]) -> None:
    """Kept, beaten, too large for the buffer, or left out by `where`."""
    file = tmp_path / "tiled.yaml"
    file.write_text(MAPPING.replace("reuse: slide", "reuse: refill"), encoding="utf-8")
    spec = pm.load("matmul", "simple_two_level", file, M=1024, N=1024)
    found = pm.sweep(
        spec, {"TM": pm.divisors("m"), "TK": [1, 2, 64]}, objectives=("energy", "latency"), keep=keep, top=2,
        where=["TM != 2"],
    )  # fmt: skip
    text = found.to_html(plots=False)
    rows = figures(text[text.index('id="what-became-of-all-points"') : text.index('id="how-it-was-made"')])
    assert sum(int(row[1]) for row in rows) == found.points == 33
    kinds = {row[0] for row in rows}
    assert "infeasible" in kinds
    infeasible = len(found.frame) - int(found.frame["feasible"].sum())
    assert (f"{infeasible} of the infeasible points are kept" in text) == (keep == "all")
    assert (infeasible > 0) == (keep == "all")


def test_which_rows_have_their_mapping() -> None:
    assert picked(3, [0, 2]) == (0, 1, 2)
    assert picked(1, [0, 0]) == (0,)
    some = picked(1000, [0, 999, 500])
    assert len(some) == MOST_TREES
    assert {0, 500, 999} <= set(some)
    assert picked(1000, range(20)) == tuple(range(20))


@pytest.mark.slow
def test_a_long_table_is_cut_and_says_so(tmp_path: Path) -> None:
    file = tmp_path / "tiled.yaml"
    file.write_text(MAPPING, encoding="utf-8")
    symbols = {"TM": pm.all_sizes("m"), "TK": pm.all_sizes("k")}
    spec = pm.load("matmul", "simple_two_level", file)
    found = pm.sweep(spec, symbols, objectives=("energy",), keep="all")
    assert len(found.frame) > MOST_ROWS
    text = found.to_html(plots=False)
    assert f"the first {MOST_ROWS:,} of {len(found.frame):,} rows" in text
    assert text.count("<tr") < MOST_ROWS + 50


def test_a_page_that_cannot_be_written_is_told_before_the_work(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    from polymodel.cli import main

    for file in (tmp_path, tmp_path / "no" / "page.html"):
        for command in ("sweep", "explore"):
            assert main([command, "matmul", "simple_two_level", "--html", str(file)]) == 2
            assert "cannot write" in capsys.readouterr().err
    front = pm.explore(pm.load("matmul", "simple_two_level", M=4, N=4, K=4), objectives="energy")
    with faults("unwritable-file", at=""):
        front.to_html(tmp_path)
