"""Every notebook runs, cell by cell, and shows its results as a browser would see them.

All run in this process: starting a kernel takes longer than most notebooks. The slow suite builds the site,
which executes them in kernels of their own.
"""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from IPython.core.interactiveshell import InteractiveShell

from tests.documents.notebooks import without_folders
from tests.documents.page import ROOT
from tests.seeds import seeds

NOTEBOOKS = sorted((ROOT / "notebooks").glob("*.ipynb"))
QUICK = 3  # of these, the first


@pytest.mark.slow
@pytest.mark.parametrize("path", seeds(QUICK, NOTEBOOKS), ids=lambda path: path.stem)
def test_a_notebook_runs(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(path.parent)
    monkeypatch.setenv("MPLBACKEND", "agg")
    shell = InteractiveShell()
    shown = 0
    for cell in json.loads(path.read_text(encoding="utf-8"))["cells"]:
        if cell["cell_type"] == "code":
            result = shell.run_cell("".join(cell["source"]))
            result.raise_error()
            if result.result is not None:
                # Figures publish themselves, and leave no format to the shell.
                formats, _ = shell.display_formatter.format(result.result)
                shown += formats.keys() != {"text/plain"}
    assert shown, "no cell ends with a table, a tree or a formula"


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_notebook_is_stored_with_what_it_shows(path: Path) -> None:
    cells = [c for c in json.loads(path.read_text(encoding="utf-8"))["cells"] if c["cell_type"] == "code"]
    shown = [o for c in cells for o in c["outputs"]]
    assert len(shown) >= len(cells) / 2, "python -m tests.documents.notebooks stores what cells show"
    assert not [o for o in shown if o["output_type"] == "error"]
    assert without_folders(shown) == shown
