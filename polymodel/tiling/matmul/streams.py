"""Launches of a product on the blocks of a streaming dataflow: the cycles of all of them, by rule."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from polymodel.governor import look
from polymodel.tiling.cost.blocks import PATHS, Kind, rows_of_a, rows_of_b
from polymodel.tiling.matmul.cost import MatmulMachine
from polymodel.tiling.matmul.dynamic import Dynamic
from polymodel.tiling.matmul.panels import RowPanels
from polymodel.tiling.matmul.product import EntryCoordinates, PatternProduct, spread
from polymodel.tiling.matmul.uniform import UniformTiles
from polymodel.tiling.plane.pattern import Index, Ints

# Rows of A, entries of A and products that are created at a time, unless one launch has more.
_PIECE = 1 << 18


def kind_of(product: PatternProduct) -> Kind:
    """A matrix B with one column is a vector."""
    return "spmv" if product.extents[2] == 1 else "spmm"


def boxes_of(source: UniformTiles | RowPanels | Dynamic) -> Ints:
    """First and last + 1 along i, k and j of every launch."""
    i, k, j = source.product.extents
    if isinstance(source, UniformTiles):
        pairs = source.pairs
        columns = [
            edge
            for at, size, extent in zip((pairs.i, pairs.k, pairs.j), source.tile, (i, k, j), strict=True)
            for edge in (at * size, np.minimum((at + 1) * size, extent))
        ]
        return np.stack(columns, axis=1)
    if isinstance(source, RowPanels):
        on = source.launched
        first, last = source.begins[:-1][on], source.begins[1:][on]
        zero = np.zeros_like(first)
        return np.stack([first, last, zero, zero + k, zero, zero + j], axis=1)
    at = source.column
    names = ("outer", "k", "inner") if source.stationary == "A" else ("inner", "k", "outer")
    return np.stack([at(f"{name}{end}") for name in names for end in ("", "_end")], axis=1)


def product_cycles(
    machine: MatmulMachine, source: UniformTiles | RowPanels | Dynamic, words: int, launches: int
) -> float:
    """Cycles of a tiled product: launches in sequence, whose tokens overlap with transfers."""
    if machine.launch.cycles == "tokens":
        return machine.cycles(source.product.multiplies, words, launches)
    return max(streamed_cycles(source), words / machine.bandwidth) + overhead(machine, source, launches)


def overhead(machine: MatmulMachine, source: UniformTiles | RowPanels | Dynamic, launches: int) -> int:
    """The cycles to configure and to fill the pipelines for the given number of launches."""
    if machine.launch.cycles == "tokens":
        return machine.overhead(launches)
    return launches * (machine.launch.config("multiply") + PATHS[kind_of(source.product)].ramp)


@lru_cache(maxsize=1)
def streamed_cycles(source: UniformTiles | RowPanels | Dynamic) -> int:
    """The block cycles of all launches, in any order, without their ramps."""
    every = launch_cycles(source)
    return int(every.sum()) - every.size * PATHS[kind_of(source.product)].ramp


def launch_cycles(source: UniformTiles | RowPanels | Dynamic) -> Ints:
    """The block cycles of every launch, ramp included."""
    every, product = boxes_of(source), source.product
    found = [np.zeros(0, dtype=np.int64)]
    for piece in _pieces(every[:, 1] - every[:, 0], _PIECE):
        look("cycles of launches on blocks")
        found.append(_some(kind_of(product), product, every[piece]))
    return np.concatenate(found)


@dataclass(frozen=True, eq=False)
class _RowRanges:
    """The part of some rows of a matrix in a range of columns: the position of the first entry, and the
    number of entries."""

    begin: Ints
    count: Ints


def _parts(of: EntryCoordinates, row: Index, first: Index, last: Index) -> _RowRanges:
    """Return the entries of the given rows from column `first` up to `last`."""
    width, rows = of.shape[1], row.astype(np.int64)
    if not first.size or (int(first.max()) == 0 and int(last.min()) == width):
        return _RowRanges(of.starts[rows], of.row_nnz[rows])
    places = of.rows.astype(np.int64) * width + of.cols
    begin, end = (np.searchsorted(places, rows * width + at) for at in (first, last))
    return _RowRanges(begin, end - begin)


def _some(kind: Kind, product: PatternProduct, every: Ints) -> Ints:
    """The cycles of some launches."""
    i, i_end, k, k_end, j, j_end = every.T
    launch = np.repeat(np.arange(every.shape[0]), i_end - i)
    row = spread(i, i_end - i)
    in_a = _parts(product.a, row, k[launch], k_end[launch])
    if kind == "spmv":
        held = in_a.count > 0
        return rows_of_a(launch[held], in_a.count[held], every.shape[0]).cycles
    result = np.zeros(every.shape[0], dtype=np.int64)
    of_launch = np.bincount(launch, weights=in_a.count, minlength=every.shape[0]).astype(np.int64)
    ends = np.cumsum(i_end - i)
    for piece in _pieces(of_launch, _PIECE):
        rows = slice(int(ends[piece.start] - (i_end - i)[piece.start]), int(ends[piece.stop - 1]))
        at, many = spread(in_a.begin[rows], in_a.count[rows]), in_a.count[rows]
        of, number = np.repeat(launch[rows], many), np.repeat(np.arange(rows.start, rows.stop), many)
        in_b = _parts(product.b, product.a.cols[at], j[of], j_end[of])
        results = np.zeros(launch.size, dtype=np.int64)
        for some in _pieces(in_b.count, 4 * _PIECE, number):
            look()
            columns = product.b.cols[spread(in_b.begin[some], in_b.count[some])].astype(np.int64)
            places = np.repeat(number[some], in_b.count[some]) * product.extents[2] + columns
            places.sort()
            new = np.ones(places.size, dtype=np.bool_)
            np.not_equal(places[1:], places[:-1], out=new[1:])
            results[rows] += np.bincount(places[new] // product.extents[2], minlength=launch.size)[rows]
        found = rows_of_b(
            of - piece.start, row[number], in_b.count, results[number], piece.stop - piece.start
        )
        result[piece] = found.cycles
    return result


def _pieces(counts: Ints, most: int, keys: Ints | None = None) -> Iterator[slice]:
    """Consecutive pieces that count about `most` each; with `keys`, equal ones are in one piece."""
    ends, at = np.cumsum(counts), 0
    while at < counts.size:
        done = int(ends[at - 1]) if at else 0
        end = max(at + 1, int(np.searchsorted(ends, done + most, side="right")))
        if keys is not None and end < counts.size:
            end = int(np.searchsorted(keys, keys[end - 1], side="right"))
        yield slice(at, end)
        at = end
