"""Options that a user expects of every command: each has them, or the page of commands says why not.

`python -m tests.cli.test_habits` prints the table of docs/reference/cli.md.
"""

from __future__ import annotations

import argparse
import json
import sys
from importlib import import_module
from keyword import iskeyword
from pathlib import Path

import pytest

from polymodel.cli import main
from polymodel.cli.output import FORMATS
from tests.documents.commands import commands

PAGE = Path(__file__).parents[2] / "docs" / "reference" / "cli.md"
NO_AMOUNTS = "prints no amounts of data"
PUBLISHED = "units as published"
FORMULAS = "formulas are in the units that their columns name"
NO_SPEC = "reads no Einsums with a mapping"
FILES = "writes a file of its own format"
PICTURES = "draws a spec, whose data are its YAML"
VERDICT = "one verdict and its faults"
PRINTED = "`--format html` prints it"
WITH_OUT = "`--out` saves it"
QUICK = "ends at once"
IMPORTS = ("import timeloop", "import accelforge", "import zigzag", "import onnx")
WRITERS = dict.fromkeys((*IMPORTS, "export", "schema", "new"), FILES)
# Habit -> command that does not have it -> why.
REASONS: dict[str, dict[str, str]] = {
    "--units": {**dict.fromkeys(WRITERS, NO_AMOUNTS), "validate": NO_AMOUNTS, "forms": FORMULAS,
                "gallery": PUBLISHED},
    "--einsum": dict.fromkeys(
        (*IMPORTS, "sparse", "execute", "traffic", "tensaurus", "tile", "gallery", "schema", "new"), NO_SPEC
    ),
    "json": {**WRITERS, "show": PICTURES},
    "csv": {**WRITERS, "show": PICTURES, "validate": VERDICT},
    "--out": {"validate": VERDICT, "new": FILES},
    "--html": {**WRITERS, "validate": VERDICT, "sparse": PRINTED, "tile": PRINTED},
    "progress": {"schema": QUICK, "new": QUICK},
}  # fmt: skip


def module_of(command: str) -> object:
    name = command.split()[0]
    return import_module(f"polymodel.cli.{name}{'_' if iskeyword(name) else ''}")


def has(command: str, parser: argparse.ArgumentParser, habit: str) -> bool:
    options = {text: action for action in parser._actions for text in action.option_strings}
    if habit.startswith("--"):
        return habit in options
    if habit == "progress":
        shown = vars(module_of(command)).values()
        return any(getattr(value, "__module__", "") == "polymodel.cli.progress" for value in shown)
    return "--format" in options and habit in (options["--format"].choices or ())


def table() -> str:
    """One row for each command; what it does not have has a letter, explained below."""
    reasons = list(dict.fromkeys(why for each in REASONS.values() for why in each.values()))
    letters = {why: f"({chr(ord('a') + i)})" for i, why in enumerate(reasons)}
    heads = [f"`{habit}`" if habit != "progress" else "progress after 2 s" for habit in REASONS]
    lines = [f"| command | {' | '.join(heads)} |", "|---" * (len(REASONS) + 1) + "|"]
    for name in commands():
        cells = [letters[each[name]] if name in each else "yes" for each in REASONS.values()]
        lines.append(f"| `{name}` | {' | '.join(cells)} |")
    return "\n".join([*lines, "", "; ".join(f"{mark} {why}" for why, mark in letters.items()) + "."])


@pytest.mark.parametrize("habit", REASONS)
def test_each_command_has_the_option_or_a_reason(habit: str) -> None:
    every = commands()
    assert {n for n, parser in every.items() if not has(n, parser, habit)} == set(REASONS[habit])


def test_the_page_has_the_table() -> None:
    assert table() in PAGE.read_text(encoding="utf-8"), "python -m tests.cli.test_habits"


@pytest.mark.parametrize(
    "line",
    [
        "compare matmul/output_stationary matmul/weight_stationary --with simple_two_level",
        "tensaurus SpMM --shape 100,100 --nnz 500",
        pytest.param("tensaurus --published", marks=pytest.mark.slow),
    ],
)
def test_out_saves_what_each_format_prints(
    line: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = line.split()
    assert main([*words, "--out", str(tmp_path), "--html", str(tmp_path / "page.html")]) == 0
    printed = capsys.readouterr().out
    saved = {p.name: p.read_text(encoding="utf-8") for p in tmp_path.iterdir()}
    stem = words[0]
    assert sorted(saved) == sorted(["page.html", *(f"{stem}.{end}" for end in FORMATS)])
    assert printed.startswith(saved[f"{stem}.txt"])
    assert saved["page.html"] == saved[f"{stem}.html"]
    rows = json.loads(saved[f"{stem}.json"])
    assert len(rows) >= 10
    assert main([*words, "--format", "csv"]) == 0
    assert capsys.readouterr().out.replace("\r", "") == saved[f"{stem}.csv"].replace("\r", "")


if __name__ == "__main__":
    sys.stdout.write(table() + "\n")
