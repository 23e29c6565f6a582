"""Matrices that records of tilings name: beside the records, in the folder of data, or generated.

Some records are about matrices of public collections. Those that are mathematical objects are generated
exactly; the others are not part of the repository: they lie in the folder that `reading` is given (`make
reference DATA=DIR`).
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from functools import lru_cache
from pathlib import Path

from polymodel.sparse.files import read_tensor
from polymodel.sparse.tensor import SparseTensor
from polymodel.tiling.plane.operands import Rolled, Second, Transposed
from tests.reference.common import Absent
from tests.tiling.original import EXACT

OURS = Path(__file__).parents[1] / "data/matrices"
SUFFIXES = (".mtx.gz", ".mtx")
# Matrices of public collections that records name and nobody can generate.
ELSEWHERE = frozenset(
    ("rel5", "relat5", "1138_bus", "add32", "bcsstk13", "ca-GrQc", "cage8", "jagmesh7", "lp_e226")
)
_FOLDER: ContextVar[Path | None] = ContextVar("data", default=None)


@contextmanager
def reading(folder: Path | None) -> Iterator[None]:
    """Inside, matrices are looked for in this folder too, or in `matrices` in it."""
    token = _FOLDER.set(folder)
    try:
        yield
    finally:
        _FOLDER.reset(token)


def find_matrix(name: str, near: Path, *aliases: str) -> Path:
    """The file NAME.mtx.gz in `matrices` beside the file `near` or above it, then in the folder of data, then
    ours.

        `aliases`: other names that the file may have. ValueError names the places looked at; so it does for
        names that are not names. Absent if it is known to be elsewhere and no folder of data is given.
    """
    names = [n for n in (name, *aliases) if re.fullmatch(r"[\w.+-]+", n) and not n.startswith(".")]
    places = list(_places(near)) if names else []
    for place in places:
        for one in names:
            for suffix in SUFFIXES:
                if (place / f"{one}{suffix}").is_file():
                    return place / f"{one}{suffix}"
    plain = name.removeprefix("ts_")
    if names and plain in EXACT:
        return OURS / f"{EXACT[plain]}.mtx.gz"
    if names and plain in ELSEWHERE and _FOLDER.get() is None:
        raise Absent(
            f"the matrix {name} is not part of the repository; name its folder: make reference DATA=DIR"
        )
    looked = ", ".join(str(p) for p in places) or "no folder: the name is none"
    raise ValueError(f"the matrix {name} is missing; looked for {name}.mtx.gz in {looked}")


def matrix(name: str, near: Path, *aliases: str) -> SparseTensor:
    """The matrix that a record near this file names."""
    return _read(find_matrix(name, near, *aliases)).renamed(name)


@lru_cache(maxsize=4)
def _read(path: Path) -> SparseTensor:
    return read_tensor(path)


def _places(near: Path) -> Iterator[Path]:
    """`matrices` beside the file and in the folders above it, as far as there are such; then as `reading`
    says."""
    for folder in near.resolve().parents:
        if (folder / "matrices").is_dir():
            yield folder / "matrices"
    if given := _FOLDER.get():
        yield from (p for p in (given / "matrices", given) if p.is_dir())
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
