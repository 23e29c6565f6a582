"""Formulas on the command line are those of Python."""

from __future__ import annotations

import csv
import io
import json
from pathlib import Path

import pytest
import sympy

import polymodel as pm
from polymodel.cli import FINE, main
from polymodel.report.closed import SymbolicReport
from tests.fuzz.lines import SPEC

Captured = pytest.CaptureFixture[str]
SOURCES = ("matmul/output_stationary", "simple_two_level")
OPEN = ("forms", *SOURCES, "--tiles", "--ranks")


@pytest.fixture(scope="module")
def forms() -> SymbolicReport:
    return pm.closed_forms(pm.load(*SOURCES), tiles=True, ranks=True)


def printed(capsys: Captured, *words: str) -> str:
    code = main(words)
    out, err = capsys.readouterr()
    assert (code, err) == (FINE, "")
    return out


def test_tables_are_those_of_python(capsys: Captured, forms: SymbolicReport) -> None:
    whole = printed(capsys, *OPEN)
    assert forms.table().shown().text(indent="") in whole
    assert "other tables: tiles, accesses," in whole
    assert f"they hold for {forms.domain}" in whole
    for name in forms.tables[1:]:
        text = printed(capsys, *OPEN, "--table", name)
        assert forms.table(name).shown().text(indent="") in text
        assert "other tables" not in text


def test_every_format(capsys: Captured, forms: SymbolicReport) -> None:
    assert json.loads(printed(capsys, *OPEN, "--format", "json")) == forms.as_data()
    assert printed(capsys, *OPEN, "--format", "csv") == forms.to_csv()
    rows = json.loads(printed(capsys, *OPEN, "--table", "accesses", "--format", "json"))
    assert [r["read_bits"] for r in rows][:2] == ["8·K·M·⌈N/TN0⌉", "8·K·N·⌈M/TM0⌉"]
    assert "<table" in printed(capsys, *OPEN, "--table", "accesses", "--format", "html")
    lines = printed(capsys, *OPEN, "--table", "accesses", "--format", "latex").splitlines()
    assert lines[0] == r"\begin{tabular}{lllllllllll}"
    assert lines[1].startswith(r"einsum & component & tensor & read\_bits & ")
    assert lines[3].startswith(
        rf"Matmul & DRAM & A & ${pm.latex(forms.table('accesses').cell(0, 'read_bits'))}$ &"
    )
    assert (lines[2], lines[-1]) == (r"\hline", r"\end{tabular}")


def test_objectives_under_an_assumption_and_at_numbers(capsys: Captured, forms: SymbolicReport) -> None:
    words = ("--assume", "divides", "--at", "TM0=32", "--objective", "accesses:DRAM", "--objective", "edp")
    found = csv.reader(io.StringIO(printed(capsys, *OPEN, *words, "--format", "csv")))
    there = forms.assuming("divides").at(TM0=32)
    expected = there.listed_formulas("", {n: there.value(n) for n in ("accesses:DRAM", "edp")})
    assert list(found) == list(csv.reader(io.StringIO(expected.to_csv())))
    sizes = {"TM0": 32, "TN0": 16, "TK0": 8, "M": 64, "N": 64, "K": 64}
    at = [w for name, size in sizes.items() for w in ("--at", f"{name}={size}")]
    row = printed(capsys, *OPEN, *at, "--objective", "accesses:DRAM", "--format", "csv").splitlines()[1]
    assert row == f"accesses:DRAM,{forms.at(**sizes).value('accesses:DRAM')}"


def test_the_value_of_a_symbol_of_the_spec_is_taken(capsys: Captured, tmp_path: Path) -> None:
    spec = tmp_path / "spec.yaml"
    spec.write_text(SPEC, encoding="utf-8")
    given = ("forms", str(spec), "--objective", "working_set:GLB", "--format", "csv")
    formula, number = (printed(capsys, *given, *more).splitlines()[1] for more in ((), ("--set", "TM=3")))
    assert formula == "working_set:GLB,80·TM + 192"
    assert number == "working_set:GLB,432"


def test_the_least_traffic_under_a_capacity(capsys: Captured, forms: SymbolicReport) -> None:
    under = ("--minimize", "accesses:DRAM", "--under", "working_set:GLB=S")
    text = printed(capsys, *OPEN, *under)
    least = forms.minimize("accesses:DRAM", "working_set:GLB", "S")
    rows = dict(csv.reader(io.StringIO(printed(capsys, *OPEN, *under, "--format", "csv"))))
    assert rows["for large S"] == "32·sqrt(2)·K·M·N/sqrt(S) + 8·M·N"
    symbols = {**forms.symbols, "S": sympy.Symbol("S", positive=True)}
    for name, formula in {"least accesses:DRAM": least.value, **least.at}.items():
        assert sympy.simplify(sympy.sympify(rows[name].replace("·", "*"), symbols) - formula) == 0
    assert "TM0 divides M" in text
    assert "least over real tile sizes" in text


def test_out_and_html_save(capsys: Captured, forms: SymbolicReport, tmp_path: Path) -> None:
    page, folder = tmp_path / "page.html", tmp_path / "out"
    out = printed(capsys, *OPEN, "--html", str(page), "--out", str(folder))
    assert f"saved {page}" in out
    assert "⌈M/TM0⌉" in page.read_text(encoding="utf-8")
    assert {f"{t}.csv" for t in forms.tables} < {p.name for p in folder.iterdir()}


def test_latex_of_text_is_escaped() -> None:
    from polymodel.report.formula import latex_cell

    assert latex_cell("a_b & 5% {x}\\") == r"a\_b \& 5\% \{x\}\textbackslash{}"
    assert latex_cell(sympy.ceiling(sympy.Symbol("M") / 3)) == r"$\left\lceil{\frac{M}{3}}\right\rceil$"
    assert (latex_cell(None), latex_cell(7), latex_cell(True)) == ("-", "$7$", "True")
