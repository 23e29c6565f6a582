"""Tiles as files: one .mtx file (.tns for tensors of other ranks) per operand and launched tile, and an
index.

Coordinates in a file are relative to the tile; a comment gives the origin of the tile in the operand.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from os import PathLike
from pathlib import Path
from typing import TypeAlias

import numpy as np

from polymodel.errors import Diagnostic, InternalError, Refused, SpecError, writing
from polymodel.sparse.files import write_tensor
from polymodel.sparse.formats.footprints import dcsr_words
from polymodel.sparse.tensor import SparseTensor
from polymodel.spec.faults import plainly
from polymodel.spec.files import spare, write_text
from polymodel.tiling.cost.model import CutCosts
from polymodel.tiling.plane.operands import Alone, Rolled, Second, Transposed
from polymodel.tiling.plane.pattern import Flags, Ints

FORMAT = "polymodel-tiles/1"
INDEX = "index.json"
Json: TypeAlias = "bool | int | float | str | list[Json] | dict[str, Json] | None"


def export(
    a: SparseTensor, second: Second, costs: CutCosts, folder: str | PathLike[str], *, most: int
) -> Path:
    """Write all launched tiles of both operands, and return the path of the index.

    A file holds the entries of an operand in one tile, even if there are none. The index has the figures of
    the tiling and, per tile, its origin, files, entries, words and cycles. It is written last: without an
    index the files are incomplete. An existing index is replaced, and so are files of the same names; others
    are kept. Refused for more than `most` tiles; raises SpecError if a file cannot be written.
    """
    most = plainly(most)
    if isinstance(most, bool) or not isinstance(most, int) or most < 1:
        message = f"most={most!r} is not a positive integer"
        raise SpecError([Diagnostic(message, "write e.g. most=20000", code="not-positive-integer")])
    if costs.kernels > most:
        many = costs.kernels * (1 if isinstance(second, Alone) else 2)
        fault = f"{costs.kernels:,} tiles are {many:,} files; up to {most:,} tiles are written unasked"
        remedy = f"ask for them: most={costs.kernels} (--most {costs.kernels}), or take a larger capacity"
        raise Refused(fault, remedy, code="too-large")
    with writing(folder):
        target = Path(folder)
        target.mkdir(parents=True, exist_ok=True)
    operands = {"A": _parts(a, costs, costs.pattern.in_a)}
    if not isinstance(second, Alone):
        operands["B"] = _parts(made(a, second, costs), costs, costs.pattern.in_b)
    launched = np.flatnonzero(costs.runs)
    index = target / INDEX
    _put_away(index)
    digits = max(4, len(str(launched.size)))
    tiles: list[Json] = []
    figures = _figures(costs)
    for number, tile in enumerate(launched.tolist(), 1):
        files: dict[str, Json] = {}
        for name, parts in operands.items():
            file = f"tile_{number:0{digits}d}_{name}{parts.ending}"
            parts.write(tile, target / file)
            files[name] = file
        tiles.append({"tile": tile, "files": files, **figures(tile)})
    with writing(index):
        text = json.dumps({**_head(a, costs), "tiles": tiles}, indent=1, ensure_ascii=False)
        write_text(index, text + "\n")
    return index


def _put_away(index: Path) -> None:
    """Remove the previous index, which would describe tiles that are being replaced. Raises SpecError for a
    file of that name that is not an index of tiles, and for one that is also an input."""
    with writing(index):
        if not index.is_file():
            return
        spare(index)
        with index.open("rb") as file:
            ours = FORMAT.encode() in file.read(200)
        if not ours:
            what = f"cannot write {index}: the file there is no index of tiles, and is not polymodel's"
            remedy = "name another folder, or move the file away"
            raise SpecError([Diagnostic(what, remedy, code="unwritable-file")])
        index.unlink()


def made(a: SparseTensor, second: Second, costs: CutCosts) -> SparseTensor:
    """Return B with its values, which are those of A if it is derived from A."""
    if isinstance(second, SparseTensor):
        return second
    if isinstance(second, Alone):
        return SparseTensor.from_coo("B", a.ranks, a.shape, a.coords[:, :0], a.values[:0])
    coords = a.coords.copy()
    if isinstance(second, Rolled):
        at = a.ranks.index(costs.pattern.own[0])  # the only rank of a vector, else the rank of rows
        coords[at] = (coords[at] + second.rows) % a.shape[at]
    elif isinstance(second, Transposed):
        one, other = (a.ranks.index(rank) for rank in costs.pattern.ranks)
        coords[[one, other]] = coords[[other, one]]
    return SparseTensor.from_coo(f"{a.name}_B", a.ranks, a.shape, coords, a.values)


@dataclass(frozen=True, eq=False)
class _OperandParts:
    """One operand, with its entries ordered by tile. `first`: the position of the first entry of each
    tile.
    """

    name: str
    ranks: tuple[str, ...]
    deep: tuple[int, ...]
    coords: Ints
    values: np.typing.NDArray[np.generic]
    first: Ints
    costs: CutCosts

    @cached_property
    def corners(self) -> Ints:
        return self.costs.cut.rects.table()

    @property
    def ending(self) -> str:
        return ".mtx" if len(self.ranks) == 2 else ".tns"

    def write(self, tile: int, path: Path) -> None:
        row, col, height, width = self.corners[tile].tolist()
        here = slice(int(self.first[tile]), int(self.first[tile + 1]))
        coords = self.coords[:, here].copy()
        rows, columns = self.costs.pattern.ranks
        vector = len(self.ranks) == 1
        offset = [col] if vector else [row, col]
        shape = (width,) if vector else (height, width, *self.deep)
        coords[: len(offset)] -= np.array(offset, dtype=np.int64)[:, None]
        said = (
            f"tile {tile} of {self.name}: first place {rows} {row}, {columns} {col} (counted from 0), "
            f"{height} x {width}"
        )
        part = SparseTensor(path.stem, self.ranks, shape, coords, self.values[here])
        write_tensor(part, path, comment=said, durable=False)  # thousands of them


def _parts(tensor: SparseTensor, costs: CutCosts, held: Flags) -> _OperandParts:
    """Sort the entries of the operand by tile, once; within a tile they keep their order."""
    pattern, cut = costs.pattern, costs.cut
    own = pattern.own
    placed = tensor if own == tensor.ranks else tensor.swizzled(own)
    ids = cut.ids[held]
    if ids.size != placed.nnz:
        raise InternalError(f"{tensor.name} has {placed.nnz} entries, its pattern {ids.size}")
    by_tile = np.argsort(ids, kind="stable")
    first = np.zeros(cut.tiles + 1, dtype=np.int64)
    np.cumsum(np.bincount(ids, minlength=cut.tiles), out=first[1:])
    return _OperandParts(
        tensor.name, own, placed.shape[2:], placed.coords[:, by_tile], placed.values[by_tile], first, costs
    )


def _figures(costs: CutCosts) -> Callable[[int], dict[str, Json]]:
    """Return the figures of a tile in the index."""
    counts = costs.counts
    rects = costs.cut.rects.table().tolist()
    nnz = {"A": counts.nnz_a, "B": counts.nnz_b}
    rows = {"A": counts.rows_a, "B": counts.rows_b}
    words = {name: np.asarray(dcsr_words(found, rows[name])) for name, found in nnz.items()}

    def figures(tile: int) -> dict[str, Json]:
        return {
            "rect": rects[tile],
            "nnz": {name: int(found[tile]) for name, found in nnz.items()},
            "words": {name: int(found[tile]) for name, found in words.items()},
            "load": int(costs.loads[tile]),
            "cycles": int(costs.cycles[tile]),
        }

    return figures


def _head(a: SparseTensor, costs: CutCosts) -> dict[str, Json]:
    p = costs.pattern
    return {
        "format": FORMAT,
        "version": 1,
        "matrix": p.name,
        "second": p.second,
        "op": costs.op,
        "fit": costs.fit.unit,
        "capacity": costs.fit.capacity,
        "tiler": costs.cut.tiler,
        "ranks": list(a.ranks),
        "cut": list(p.ranks),
        "shape": list(a.shape),
        "rect": "[first row, first column, height, width], counted from 0",
        "kernels": costs.kernels,
        "config_cycles": costs.config_cycles,
        "run_cycles": costs.run_cycles,
    }
