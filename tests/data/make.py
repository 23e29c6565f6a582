"""The matrices in tests/data and workloads/data, all of them generated: python -m tests.data.make
[--check].

Every file is made by `pm.generate_tensor` from the call that the index beside it gives; headers, fields and
stored zeros are chosen so that readers meet each. With --check nothing is written; exit code 1 if a file is
not as made.
"""

from __future__ import annotations

import argparse
import gzip
import json
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np

import polymodel as pm

ROOT = Path(__file__).resolve().parents[2]
TESTS, WORKLOADS = ROOT / "tests" / "data" / "matrices", ROOT / "workloads" / "data"
Header = Literal["general", "symmetric"]
Field = Literal["real", "integer", "pattern"]


@dataclass(frozen=True)
class Made:
    """One file: what it is like, the call that makes it, and how it is written down."""

    name: str
    about: str
    kind: str
    options: Mapping[str, Any]
    seed: int = 0
    header: Header = "general"
    field: Field = "pattern"
    zeros: int = 0  # every so-manieth entry is stored as a zero; 0: none
    folder: Path = TESTS

    @property
    def file(self) -> Path:
        """Where it lies."""
        order = len(self.options.get("shape", (0, 0)))
        return self.folder / f"{self.name}.{'mtx' if order == 2 else 'tns'}.gz"

    @property
    def call(self) -> str:
        """The call as Python."""
        given = "".join(f", {k}={v!r}" for k, v in self.options.items())
        return f"pm.generate_tensor({self.kind!r}, {self.seed}{given})"

    @property
    def tensor(self) -> pm.SparseTensor:
        """As it is generated, before some values become zeros."""
        return pm.generate_tensor(self.kind, self.seed, **self.options)


# Rows of 60 entries and more; the largest of all.
FRAME = {"blocks": 64, "block": 6, "reach": 10, "percent": 70}
RELATIONS = {"rows": 340, "columns": 35, "least": 3, "most": 4, "window": 16}
FILES = (
    Made("frame", "finite elements: 64 nodes of 6 unknowns, a band of dense blocks", "blocked", FRAME, 1,
         "symmetric", "real"),
    Made("web", "a power-law graph", "power-law", {"shape": [1400, 1400], "entries": 4000, "symmetric": 1}, 2,
         "symmetric"),
    Made("band", "a band of numbers", "banded", {"rows": 600, "width": 30, "percent": 10}, 3,
         "general", "real"),
    Made("circuit", "a narrow band; every sixth stored entry is a zero", "banded",
         {"rows": 1200, "width": 25, "percent": 7}, 4, "general", "real", 6),
    Made("mesh", "a plane mesh of triangles", "stencil", {"height": 24, "width": 30, "points": 7}, 0,
         "symmetric"),
    Made("network", "a grid of which two links in five are missing", "stencil",
         {"height": 26, "width": 28, "percent": 60}, 5, "symmetric", "real"),
    Made("programme", "a linear programme in eight stages with six rows over all", "staircase",
         {"stages": 8, "rows": 27, "columns": 58, "percent": 8, "coupling": 6}, 16, "general", "real"),
    Made("diagonal", "a full diagonal", "banded", {"rows": 1922}),
    Made("chessboard", "boundary map of two rooks on a board of 7 x 6", "chessboard",
         {"rows": 7, "columns": 6}),
    Made("matching", "boundary map of two pairs of 9 points", "matching", {"points": 9}),
    Made("pairs", "boundary map of all pairs of 21 points", "simplex", {"points": 21}),
    Made("relations", "repeated relations among generators, half of the rows empty", "incidence",
         {**RELATIONS, "repeat": 6, "empty": 48}, 7),
    Made("relations2", "repeated relations among generators, a fifth of the rows empty", "incidence",
         {**RELATIONS, "repeat": 4, "empty": 18}, 8),
    Made("facts", "facts of a relation and three entities, whose numbers are skewed", "power-law",
         {"shape": [60, 1500, 1600, 1700], "entries": 6000, "skew": 85}, 9),
    Made("relations", "repeated relations among generators, half of the rows empty", "incidence",
         {**RELATIONS, "repeat": 6, "empty": 48}, 7, folder=WORKLOADS),
    Made("relations2", "repeated relations among generators, a fifth of the rows empty", "incidence",
         {**RELATIONS, "repeat": 4, "empty": 18}, 8, folder=WORKLOADS),
)  # fmt: skip


def text(made: Made) -> str:
    """The file, unpacked: Matrix Market, or FROSTT for what is not a matrix."""
    tensor = made.tensor
    coords, values = tensor.coords, tensor.values
    if made.header == "symmetric":
        below = coords[0] >= coords[1]
        coords, values = coords[:, below], values[below]
    if made.zeros:
        values = np.where(np.arange(1, values.size + 1) % made.zeros == 0, 0, values)
    if made.file.name.endswith(".tns.gz"):
        head: list[str] = []
    else:
        head = [
            f"%%MatrixMarket matrix coordinate {made.field} {made.header}",
            f"% {made.about}: {made.call}",
            f"{tensor.shape[0]} {tensor.shape[1]} {values.size}",
        ]
    places = (" ".join(str(c + 1) for c in place) for place in coords.T.tolist())
    if made.field == "pattern":
        return "\n".join([*head, *places]) + "\n"
    # Eighths are exact in any reader.
    told = (str(v) if made.field == "integer" else repr(v / 8) for v in values.tolist())
    return "\n".join([*head, *(f"{p} {v}" for p, v in zip(places, told, strict=True))]) + "\n"


def row(made: Made) -> dict[str, Any]:
    """What the index says of a file, counted from what was generated."""
    tensor = made.tensor
    found: dict[str, Any] = {
        "name": made.name,
        "file": made.file.name,
        "about": made.about,
        "made_by": made.call,
    }
    if len(tensor.shape) > 2:
        distinct = [int(np.unique(c).size) for c in tensor.coords]
        return {**found, "order": len(tensor.shape), "dims": list(tensor.shape), "nnz": tensor.nnz,
                "distinct_per_mode": distinct}  # fmt: skip
    below = int((tensor.coords[0] >= tensor.coords[1]).sum())
    stored = below if made.header == "symmetric" else tensor.nnz
    zeros = stored // made.zeros if made.zeros else 0
    kept = np.ones(tensor.nnz, dtype=bool)
    if made.zeros:
        kept[made.zeros - 1 :: made.zeros] = False
    rows = np.bincount(tensor.coords[0][kept], minlength=tensor.shape[0])
    return {
        **found, "rows": tensor.shape[0], "cols": tensor.shape[1], "stored_entries": stored,
        "header_symmetry": made.header, "field": made.field, "explicit_zeros_expanded": zeros,
        "nnz": int(kept.sum()), "max_row_nnz": int(rows.max()), "empty_rows": int((rows == 0).sum()),
    }  # fmt: skip


def index(folder: Path) -> str:
    """The index of a folder as JSON, a line for each file."""
    rows = ",\n".join(json.dumps(row(made)) for made in FILES if made.folder == folder)
    return f"[\n{rows}\n]\n"


def stale() -> Iterator[Path]:
    """Files that are not as made, and files that nothing makes."""
    for made in FILES:
        if not made.file.is_file() or gzip.decompress(made.file.read_bytes()).decode() != text(made):
            yield made.file
    for folder in (TESTS, WORKLOADS):
        path = folder / "index.json"
        if not path.is_file() or path.read_text(encoding="utf-8") != index(folder):
            yield path
        known = {path, *(made.file for made in FILES)}
        yield from sorted(p for p in folder.iterdir() if p not in known)


def main(arguments: list[str] | None = None) -> int:
    """Write them all, or look whether they are as made."""
    parser = argparse.ArgumentParser(prog="python -m tests.data.make", description=__doc__)
    parser.add_argument("--check", action="store_true", help="write nothing; exit 1 if a file is not as made")
    if not parser.parse_args(arguments).check:
        for folder in (TESTS, WORKLOADS):
            folder.mkdir(parents=True, exist_ok=True)
            (folder / "index.json").write_text(index(folder), encoding="utf-8")
        for made in FILES:
            made.file.write_bytes(gzip.compress(text(made).encode(), 9, mtime=0))
    found = list(stale())
    for path in found:
        sys.stderr.write(f"{path.relative_to(ROOT)}: not as generated\n")
    return int(bool(found))


if __name__ == "__main__":
    sys.exit(main())
