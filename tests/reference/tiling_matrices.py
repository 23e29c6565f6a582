"""Matrices that records of tilings name: beside the records first, then in the repository's own data."""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import lru_cache
from pathlib import Path

from polymodel.sparse.files import read_tensor
from polymodel.sparse.tensor import SparseTensor
from polymodel.tiling.plane.operands import Rolled, Second, Transposed

OURS = Path(__file__).parents[1] / "data/matrices"
SUFFIXES = (".mtx.gz", ".mtx")


def find_matrix(name: str, near: Path, *aliases: str) -> Path:
    """The file NAME.mtx.gz in `matrices` beside the file `near` or above it, then in tests/data/matrices.

    `aliases`: other names that the file may have. ValueError names the places looked at; so it does for
    names that are no names.
    """
    names = [n for n in (name, *aliases) if re.fullmatch(r"[\w.+-]+", n) and not n.startswith(".")]
    places = list(_places(near)) if names else []
    for place in places:
        for one in names:
            for suffix in SUFFIXES:
                if (place / f"{one}{suffix}").is_file():
                    return place / f"{one}{suffix}"
    looked = ", ".join(str(p) for p in places) or "no folder: the name is none"
    raise ValueError(f"the matrix {name} is missing; looked for {name}.mtx.gz in {looked}")


def matrix(name: str, near: Path, *aliases: str) -> SparseTensor:
    """The matrix that a record near this file names."""
    return _read(find_matrix(name, near, *aliases))


@lru_cache(maxsize=4)
def _read(path: Path) -> SparseTensor:
    return read_tensor(path)


def _places(near: Path) -> Iterator[Path]:
    """`matrices` beside the file and in the folders above it, as far as there are such; then our own."""
    for folder in near.resolve().parents:
        if (folder / "matrices").is_dir():
            yield folder / "matrices"
    yield OURS


def second_of(said: str) -> Second:
    """The second operand in words: `rows rolled by N` or `transposed`. ValueError for anything else."""
    text = said.lower()
    rolled = re.search(r"\brows? rolled by (-?\d+)\b", text)
    if rolled:
        return Rolled(int(rolled[1]))
    if re.match(r"(the )?(a )?transposed?\b", text):
        return Transposed()
    raise ValueError(f"second operand {said!r}: rows rolled by N or transposed is expected")
