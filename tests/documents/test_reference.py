"""The reference pages: every name, column, command and fault is there, and every function has an example."""

from __future__ import annotations

import argparse
import inspect
import re
from pathlib import Path

import polymodel as pm
from polymodel.report import report
from tests.documents import columns, commands, errors
from tests.documents.page import ROOT, blocks

REFERENCE = ROOT / "docs" / "reference"
PYTHON = "\n".join(p.read_text(encoding="utf-8") for p in sorted((REFERENCE / "api").glob("*.md")))


def test_every_public_name_is_documented_and_has_a_docstring() -> None:
    shown = re.findall(r"^\.\. auto(?:function|class):: polymodel\.(\w+)$", PYTHON, re.MULTILINE)
    assert sorted(shown) == sorted(pm.__all__)
    assert not [name for name in pm.__all__ if not (getattr(pm, name).__doc__ or "").strip()]
    front = (REFERENCE / "api.md").read_text(encoding="utf-8")
    assert not [name for name in pm.__all__ if f"`{name}`" not in front]


def test_every_public_function_has_an_example_that_runs() -> None:
    """Below the heading of its name, and called there; the page runner runs it."""
    functions = [name for name in pm.__all__ if inspect.isfunction(getattr(pm, name))]
    assert len(functions) > 30
    sections = dict(re.findall(r"^## (\w+)\n(.*?)(?=^## |\Z)", PYTHON, re.MULTILINE | re.DOTALL))
    without = [
        name
        for name in functions
        if not any(
            b.language == "python" and b.skipped is None and f"pm.{name}(" in b.text
            for b in blocks(sections[name])
        )
    ]
    assert not without


def test_every_column_has_a_unit_and_a_meaning() -> None:
    assert columns.missing() == {}
    page = columns.page()
    assert all(f"### Report.{name}\n" in page for name in report.TABLES)
    assert "| `fill_bits` | bits | the part of the writes that comes from the parent memory |" in page


def test_every_command_is_explained_and_has_an_example() -> None:
    page = (REFERENCE / "cli.md").read_text(encoding="utf-8")
    shown = [line for b in blocks(page) if b.language == "console" for line in b.text.splitlines()]
    for name, parser in commands.commands().items():
        assert f"## polymodel {name}\n" in page, name
        assert f"_generated/cli/{name.replace(' ', '_')}.md" in page, name
        assert any(line.startswith(f"$ polymodel {name} ") for line in shown), name
        told = commands.section(parser)
        assert all(f"`{option}" in told or f", {option}" in told for option in options(parser)), name


def options(parser: argparse.ArgumentParser) -> list[str]:
    """The long options of a parser, but for help."""
    found = re.findall(r"^\s+(?:-\w, )?(--[\w-]+)", parser.format_help(), re.MULTILINE)
    return [option for option in found if option != "--help"]


def test_every_fault_of_the_corpus_is_on_the_page() -> None:
    page = errors.page()
    cases = sorted(errors.BAD.rglob("*.txt"))
    assert len(cases) > 100
    for path in cases:
        assert f"**{path.stem.replace('_', ' ')}**\n" in page
    assert (
        "At `mapping.nodes[3].nodes[1].nodes[0].tile_shape`: `tile size 0 is not a whole number of at" in page
    )


def test_new_kinds_of_faults_get_a_place(tmp_path: Path) -> None:
    """A folder that is new, and a first word that is."""
    found = errors.grouped([tmp_path / "odd_thing.txt", tmp_path / "yaml_tab.txt"])
    assert [(heading, [p.name for p in cases]) for heading, _, cases in found] == [
        ("YAML", ["yaml_tab.txt"]),
        ("Odd", ["odd_thing.txt"]),
    ]
    text = "2 faults in the input\nf.yaml:2:1: a.b: no `x`\n    x: 1\n    ^\n  remedy: y\nalone\n"
    told = list(errors.faults(text))
    assert [(t.path, t.message, t.source, t.remedy) for t in told] == [
        ("a.b", "no `x`", ("x: 1", "^"), "y"),
        ("", "alone", (), ""),
    ]
