"""Runs notebooks and stores what their cells show: python -m tests.documents.notebooks [NOTEBOOK...]

A reader on a site that only shows files sees tables and pictures; the documentation runs them anew.
"""

from __future__ import annotations

import re
import sys
import time
from pathlib import Path
from typing import Any

import nbformat
from nbclient import NotebookClient

from tests.documents.page import ROOT

LIMIT = 300  # seconds of one cell: the machine may be busy
# Folders of the machine on which a notebook was run.
_HERE = re.compile(rf"{re.escape(str(ROOT))}/?|/tmp/tmp\w+/")


def without_folders(shown: Any) -> Any:
    """An output, or a part of one, without the folders of the machine."""
    if isinstance(shown, str):
        return _HERE.sub("", shown)
    if isinstance(shown, list):
        return [without_folders(part) for part in shown]
    return {k: without_folders(v) for k, v in shown.items()} if isinstance(shown, dict) else shown


def stored(path: Path) -> float:
    """Run one notebook in its folder and write it with its outputs; returns the seconds that it took."""
    book = nbformat.read(path, as_version=4)
    began = time.perf_counter()
    NotebookClient(book, timeout=LIMIT, resources={"metadata": {"path": str(path.parent)}}).execute()
    spent = time.perf_counter() - began
    for cell in book.cells:
        cell.metadata.pop("execution", None)
        for output in cell.get("outputs", ()):
            output.get("metadata", {}).pop("needs_background", None)
        if cell.cell_type == "code":
            # What is written to stderr tells of progress, and is another text each time.
            kept = [o for o in cell.outputs if o.get("name") != "stderr"]
            cell.outputs = [nbformat.from_dict(without_folders(o)) for o in kept]
    book.metadata = {
        "kernelspec": {"display_name": "Python 3", "language": "python", "name": "python3"},
        "language_info": {"name": "python"},
    }
    nbformat.write(book, path)
    return spent


def main(arguments: list[str]) -> int:
    for path in map(Path, arguments) if arguments else sorted((ROOT / "notebooks").glob("*.ipynb")):
        sys.stdout.write(f"{path.name}: {stored(path.resolve()):.1f} s\n")
        sys.stdout.flush()
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
