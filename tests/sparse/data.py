"""Generated tensors by name: tests/data/matrices, with what its index says of each."""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path
from typing import Any

from polymodel.sparse.files import read_file
from polymodel.sparse.files.readers import TensorFile
from polymodel.sparse.tensor import SparseTensor

FOLDER = Path(__file__).resolve().parents[1] / "data" / "matrices"


@cache
def index() -> dict[str, dict[str, Any]]:
    """Name -> row of the index."""
    rows = json.loads((FOLDER / "index.json").read_text(encoding="utf-8"))
    return {row["name"]: row for row in rows}


@cache
def file(name: str) -> TensorFile:
    """The tensor with the record of its file: a matrix has ranks I, J; the facts R, E1, E2, E3."""
    row = index()[name]
    facts = "order" in row
    ranks = ("R", "E1", "E2", "E3") if facts else ("I", "J")
    return read_file(FOLDER / row["file"], "A", ranks, shape=row["dims"] if facts else None)


def tensor(name: str) -> SparseTensor:
    """The tensor A of that name in the index."""
    return file(name).tensor
