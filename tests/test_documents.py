"""The notebooks and the README: every cell and every example runs."""

from __future__ import annotations

import ast
import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parent.parent
NOTEBOOKS = sorted((ROOT / "notebooks").glob("*.ipynb"))


def run(source: str, names: dict[str, Any]) -> object:
    """Execute a cell; what its last line evaluates to is shown as a notebook would."""
    tree = ast.parse(source)
    last = tree.body.pop() if tree.body and isinstance(tree.body[-1], ast.Expr) else None
    exec(compile(tree, "cell", "exec"), names)
    return eval(compile(ast.Expression(last.value), "cell", "eval"), names) if last else None


def cells(notebook: Path) -> Iterator[str]:
    for cell in json.loads(notebook.read_text(encoding="utf-8"))["cells"]:
        if cell["cell_type"] == "code":
            yield "".join(cell["source"])


@pytest.mark.parametrize("notebook", NOTEBOOKS, ids=lambda p: p.stem)
def test_notebook_runs_and_shows(notebook: Path, capsys: pytest.CaptureFixture[str]) -> None:
    names: dict[str, Any] = {}
    shown = [value for source in cells(notebook) if (value := run(source, names)) is not None]
    assert shown
    for value in shown:
        html = getattr(value, "_repr_html_", None)
        # A figure answers None where it has no HTML of its own; then a notebook shows its picture.
        assert ((html() if html else None) or repr(value)).strip()
    if notebook.stem == "01_first_steps":
        printed = capsys.readouterr().out
        assert "64 rows" in printed
        assert "T[" in names["refusal"]


def test_readme_links_and_names_exist() -> None:
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    for target in re.findall(r"\]\(([^)#]+)\)", text):
        assert (ROOT / target).exists(), target
    for name in re.findall(r"^\| `([^|]+)` \|", text, re.MULTILINE):
        for workload in name.split("`, `"):
            assert (ROOT / "workloads" / f"{workload}.yaml").exists(), workload
