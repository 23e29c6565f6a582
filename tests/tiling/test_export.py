"""Tiles as files: read back and put together they are the operands."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from polymodel.errors import Refused
from polymodel.sparse.density.random import random_tensor
from polymodel.sparse.files import read_tensor
from polymodel.sparse.tensor import SparseTensor
from polymodel.tiling.cost.model import CutCosts, Launch, costs
from polymodel.tiling.export import export
from polymodel.tiling.fits.fit import Elements, Op
from polymodel.tiling.plane.operands import Alone, Rolled, Second, Transposed, pattern_of
from polymodel.tiling.tilers.trees import btree
from tests.faults import faults

RANKS = ("I", "J", "K")


def tensor(shape: tuple[int, ...], density: float, seed: int) -> SparseTensor:
    made = random_tensor(RANKS[: len(shape)], shape, density, seed)
    values = np.random.default_rng(seed).normal(size=made.nnz)
    return SparseTensor.from_coo("M", made.ranks, made.shape, made.coords, values)


def cut(
    a: SparseTensor, second: Second, op: Op = "add", capacity: int = 9, run: str = "nonempty"
) -> CutCosts:
    pattern = pattern_of(a, second)
    launch = Launch(run="all" if run == "all" else "nonempty")
    return costs(pattern, btree(pattern, op, Elements(capacity)), op, Elements(capacity), launch)


def assembled(folder: Path, operand: str, a: SparseTensor) -> np.ndarray:
    """The operand from its files, tile by tile, every place at most once."""
    index = json.loads((folder / "index.json").read_text())
    rows, columns = (index["ranks"].index(r) if r in index["ranks"] else None for r in index["cut"])
    found = np.zeros(a.shape)
    for tile in index["tiles"]:
        part = read_tensor(folder / tile["files"][operand]).to_dense()
        row, col, height, width = tile["rect"]
        at: list[slice] = [slice(None)] * len(a.shape)
        for axis, first, size in ((rows, row, height), (columns, col, width)):
            if axis is not None:
                at[axis] = slice(first, first + size)
        assert not found[tuple(at)].any()
        assert np.count_nonzero(part) == tile["nnz"][operand]
        found[tuple(at)] = part
    return found


@pytest.mark.parametrize("shape", [(13, 17), (1, 40), (40, 1), (7, 5, 3), (31,)])
@pytest.mark.parametrize("op", ["add", "multiply"])
@pytest.mark.thin(5)
def test_files_give_the_operands_again(tmp_path: Path, shape: tuple[int, ...], op: Op) -> None:
    a = tensor(shape, 0.3, 3)
    index = export(a, Rolled(2), cut(a, Rolled(2), op, 20, "all"), tmp_path, most=999)
    assert index == tmp_path / "index.json"
    dense = a.to_dense()
    assert (assembled(tmp_path, "A", a) == dense).all()
    assert (assembled(tmp_path, "B", a) == np.roll(dense, 2, axis=0)).all()


def test_what_is_not_launched_is_not_written(tmp_path: Path) -> None:
    a = SparseTensor.from_coo("M", ("I", "J"), (8, 8), [[0, 7], [0, 7]], [2, 3])
    found = cut(a, Rolled(1), "multiply", 1)
    export(a, Rolled(1), found, tmp_path, most=9)
    assert found.tiles > found.kernels
    assert len(list(tmp_path.glob("tile_*_A.mtx"))) == found.kernels
    assert len(list(tmp_path.glob("tile_*_B.mtx"))) == found.kernels


def test_second_operands_keep_their_values(tmp_path: Path) -> None:
    a = tensor((9, 9), 0.4, 5)
    b = tensor((9, 9), 0.2, 6).renamed("other")
    for number, (second, expected) in enumerate(((Transposed(), a.to_dense().T), (b, b.to_dense()))):
        folder = tmp_path / str(number)
        export(a, second, cut(a, second), folder, most=99)
        assert (assembled(folder, "B", a) == expected).all()
    export(a, Alone(), cut(a, Alone()), tmp_path / "alone", most=99)
    assert not list((tmp_path / "alone").glob("*_B.mtx"))
    assert (assembled(tmp_path / "alone", "A", a) == a.to_dense()).all()


def test_files_say_where_they_lie(tmp_path: Path) -> None:
    a = SparseTensor.from_coo("M", ("I", "J"), (4, 6), [[0, 3], [1, 5]], [2.5, -1.0])
    found = cut(a, Alone(), capacity=1)
    index = json.loads(export(a, Alone(), found, tmp_path, most=9).read_text())
    last = index["tiles"][-1]
    assert last["nnz"] == {"A": 1, "B": 0}
    assert last["words"] == {"A": 7, "B": 3}
    assert index["capacity"] == 1
    row, col, height, width = last["rect"]
    text = (tmp_path / last["files"]["A"]).read_text().splitlines()
    assert f"first place I {row}, J {col} (counted from 0), {height} x {width}" in text[1]
    assert text[2:] == [f"{height} {width} 1", f"{3 - row + 1} {5 - col + 1} -1"]


def test_too_many_files_are_refused_and_bad_places_told(tmp_path: Path) -> None:
    a = tensor((30, 30), 0.5, 1)
    found = cut(a, Rolled())
    with pytest.raises(Refused, match=f"most={found.kernels}"):
        export(a, Rolled(), found, tmp_path / "no", most=found.kernels - 1)
    assert not (tmp_path / "no").exists()
    with faults("not-positive-integer", at=""):
        export(a, Rolled(), found, tmp_path, most=0)
    (tmp_path / "file").write_text("")
    with faults("unwritable-file", at=""):
        export(a, Rolled(), found, tmp_path / "file", most=999)
