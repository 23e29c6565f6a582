"""Pages and pictures from the command line."""

from __future__ import annotations

import csv
import re
from pathlib import Path

import pytest

from polymodel.cli import BAD_INPUT, FINE, INFEASIBLE, main
from polymodel.report.report import TABLES
from tests.cli.test_cli import SMALL, Captured, run

# From small pieces of markup that a file name or a spec may hold.
NAME = "<img src=x onerror=alert(1)>&'\"<b>.yaml"

A = "matmul,simple_two_level,matmul/output_stationary"
B = "matmul,simple_two_level,matmul/weight_stationary"


@pytest.fixture
def spec(tmp_path: Path) -> str:
    path = tmp_path / NAME
    path.write_text(SMALL, encoding="utf-8")
    return str(path)


def test_show_draws(capsys: Captured, spec: str, tmp_path: Path) -> None:
    code, out, _ = run(capsys, "show", spec, "--format", "html", "--out", str(tmp_path / "pictures"))
    assert code == FINE
    assert out.count("<svg") == 3
    names = ["architecture.svg", "cascade.svg", "looptree.svg"]
    assert sorted(p.name for p in (tmp_path / "pictures").iterdir()) == names


def test_show_says_what_waits_for_data(capsys: Captured, tmp_path: Path) -> None:
    code, out, _ = run(capsys, "show", "teaal/gamma", "--format", "html")
    assert code == FINE
    assert "waits for the value of K, M, N" in out
    code, out, err = run(capsys, "show", "teaal/gamma", "--out", str(tmp_path / "pictures"))
    assert (code, out) == (BAD_INPUT, "")
    assert "nothing to draw" in err
    assert "remedy: leave out --out; parts that need data are shown as text" in err
    assert not list(tmp_path.iterdir())


def test_out_saves_every_table(capsys: Captured, spec: str, tmp_path: Path) -> None:
    out = tmp_path / "out"
    code, _, _ = run(capsys, "evaluate", spec, "--engine", "enumerate", "--out", str(out), "--live")
    assert code == FINE
    names = {p.name for p in out.iterdir()}
    assert {f"{t}.csv" for t in TABLES} <= names
    assert {"report.json", "report.html", "report.txt", "looptree.svg", "architecture.svg"} <= names
    tiles = list(csv.DictReader((out / "tiles.csv").open(encoding="utf-8")))
    assert all(int(r["live_bits"]) <= int(r["tile_bits"]) for r in tiles)


@pytest.mark.slow
def test_html_saves_the_page_and_prints_the_report(capsys: Captured, spec: str, tmp_path: Path) -> None:
    page = tmp_path / "report.html"
    code, out, err = run(capsys, "evaluate", spec, "--set", "TM=5", "--html", str(page))
    assert (code, err) == (FINE, "")
    assert "Working sets" in out
    assert out.endswith(f"saved {page}\n")
    text = page.read_text(encoding="utf-8")
    assert "polymodel evaluate &#39;" in text, "the command line is told"
    assert "--set TM=5" in text
    code, out, err = run(capsys, "evaluate", spec, "--format", "csv", "--html", str(page))
    assert (code, err) == (FINE, f"saved {page}\n")
    assert out.startswith("einsum,")
    nowhere = str(tmp_path / "no" / "such" / "folder.html")
    code, out, err = run(capsys, "evaluate", spec, "--html", nowhere)
    assert (code, out) == (BAD_INPUT, "")
    assert "Traceback" not in err
    assert "there is no such folder" in err
    _, _, told = run(capsys, "evaluate", "nothing.yaml", "--html", nowhere)
    assert told == err, "before the work"


@pytest.mark.slow
def test_names_and_texts_are_escaped(capsys: Captured, spec: str, tmp_path: Path) -> None:
    for words in (("evaluate", spec), ("show", spec), ("compare", spec, spec)):
        _, text, _ = run(capsys, *words, "--format", "html")
        assert "<img" not in text
        assert "<b>" not in text
        assert text.count("<script>") == text.count("</script>") == 1


@pytest.mark.slow
def test_what_does_not_fit_stands_at_the_top(capsys: Captured, tmp_path: Path) -> None:
    small = tmp_path / "tight.yaml"
    small.write_text(re.sub(r"size: 8 \* [^#\n]*", "size: 64", SMALL), encoding="utf-8")
    page = tmp_path / "tight.html"
    code, _, _ = run(capsys, "evaluate", str(small), "--html", str(page))
    assert code == INFEASIBLE
    text = page.read_text(encoding="utf-8")
    assert text.index('<p class="bad">') < text.index("<nav")
    assert '<span class="bad">no</span>' in text


@pytest.mark.parametrize(
    "words",
    [
        ("compare", A, B),
        ("timeline", *A.split(","), "--component", "GLB"),
        ("show", "attention", "simple_two_level"),
        ("evaluate", *A.split(","), "--table", "accesses"),
    ],
)
def test_pages_share_their_looks_and_script(capsys: Captured, words: tuple[str, ...]) -> None:
    code = main([*words, "--format", "html"])
    text = capsys.readouterr().out
    assert code == FINE
    assert "Content-Security-Policy" in text
    assert "aria-sort" in text
    assert "<table" in text or "<svg" in text


def test_a_comparison_sorts_by_exact_figures(capsys: Captured) -> None:
    _, text, _ = run(capsys, "compare", A, B, "--format", "html")
    assert '<td class="n" title="0.000262144 s">262.1 µs</td>' in text


@pytest.mark.slow
def test_a_long_timeline_is_cut_on_its_page(capsys: Captured) -> None:
    _, text, _ = run(capsys, "timeline", *A.split(","), "--component", "GLB", "--format", "html")
    _, rows, _ = run(capsys, "timeline", *A.split(","), "--component", "GLB", "--format", "csv")
    many = len(rows.splitlines()) - 1
    assert text.count("<tr>") == 2_000 + 1
    assert f"... and {many - 2_000:,} more phases" in text


def test_a_comparison_says_what_its_sides_are(capsys: Captured) -> None:
    _, text, _ = run(capsys, "compare", A, B, "--format", "html")
    assert f'<th scope="row">a</th><td>{A}</td>' in text
    assert f"<title>{A} and {B} compared</title>" in text


@pytest.mark.thin(3)
@pytest.mark.parametrize(
    "words",
    [("show", *A.split(",")), ("compare", A, B), ("timeline", *A.split(","), "--component", "GLB")],
    ids=lambda words: words[0],
)
def test_pages_are_saved_beside_the_text(capsys: Captured, tmp_path: Path, words: tuple[str, ...]) -> None:
    file = tmp_path / "page.html"
    code, out, _ = run(capsys, *words, "--html", str(file))
    assert code == FINE
    assert out.endswith(f"\nsaved {file}\n")
    assert file.read_text(encoding="utf-8") == run(capsys, *words, "--format", "html")[1]
    code, _, told = run(capsys, *words, "--html", str(tmp_path / "none" / "page.html"))
    assert code == BAD_INPUT
    assert str(tmp_path / "none") in told
