"""The matrices that cases of tilings name."""

from __future__ import annotations

from pathlib import Path

from polymodel.sparse.files import read_tensor
from polymodel.sparse.tensor import SparseTensor

SHIPPED = Path(__file__).parent.parent / "data" / "matrices"


def matrix(name: str, path: Path) -> SparseTensor:
    """`matrices/NAME.mtx.gz` in the folder of the case file or in one above it, else the shipped one.

    FileNotFoundError if there is none: a case that cannot be compared.
    """
    folders = [folder / "matrices" for folder in path.resolve().parents] + [SHIPPED]
    for folder in folders:
        file = folder / f"{name}.mtx.gz"
        if file.is_file():
            return read_tensor(file, name)
    raise FileNotFoundError(2, "no such matrix", str(SHIPPED / f"{name}.mtx.gz"))
