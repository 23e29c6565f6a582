"""The cycles of a tile by cause: according to the model, to the rules of the blocks, and to the simulation.

The rules are those of tiling/cost/blocks.py; docs/tiling/simulation.md derives them.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from polymodel.integers import distinct_numbers
from polymodel.tiling.cost.blocks import (
    PATHS,
    TERMS,
    BlockTerms,
    Kind,
    RowParts,
    merged,
    row_parts,
    rows_of_a,
    rows_of_b,
)
from polymodel.tiling.cost.model import Launch
from polymodel.tiling.plane.pattern import Index, Ints
from polymodel.tiling.simulate.dataflows import SimulatedTile, TileOperand


@dataclass(frozen=True)
class TileTerms:
    """Cycles of one tile by cause."""

    entries: int
    ends: int
    waiting: int
    sending: int
    ramp: int

    @classmethod
    def of(cls, terms: BlockTerms) -> TileTerms:
        """The terms of the only tile."""
        return cls(*(int(getattr(terms, term)[0]) for term in TERMS))

    @property
    def cycles(self) -> int:
        return sum(getattr(self, term) for term in TERMS)


def measured(tile: SimulatedTile) -> TileTerms:
    """The activity of the limiting block in the simulation."""
    path = PATHS[tile.kind]
    did, ended = tile.did[path.decides], tile.ended[path.decides]
    behind = tile.cycles - ended
    sending = max(0, behind - path.behind) if tile.kind == "spmm" else 0
    return TileTerms(
        did["entry"] + did["skip"], did["end"], did["wait"] - path.ahead, sending,
        path.ahead + 1 + behind - sending,
    )  # fmt: skip


def modelled(kind: Kind, a: TileOperand, b: TileOperand, launch: Launch) -> TileTerms:
    """The terms of the model, which counts tokens: for element-wise products the longer of two streams (if
    the merge of rows is longer than that of columns, the difference is waiting), for matrix products the
    multiplies."""
    if launch.cycles == "blocks":
        return by_rule(kind, a, b)
    if kind in ("spmv", "spmm"):
        return TileTerms(_multiplies(a, b), 0, 0, 0, launch.ramp)
    rows = _row_parts(a, b)
    if not (rows.tile.size if kind == "add" else a.rows.size and b.rows.size):
        # One fiber without entries: its end, and tokens that depend on it, are part of the given cycles.
        behind = max(0, launch.empty - launch.ramp)
        return TileTerms(0, min(behind, 1), max(behind - 1, 0), 0, launch.empty - behind)
    which = rows.in_a | rows.in_b if kind == "add" else rows.in_a & rows.in_b
    entries, ends = int(rows.union[which].sum()), max(1, int(np.count_nonzero(which)))
    longer = 0 if kind == "add" else rows.tile.size + 1
    return TileTerms(entries, ends, max(0, longer - entries - ends), 0, launch.ramp)


def by_rule(kind: Kind, a: TileOperand, b: TileOperand) -> TileTerms:
    """The terms according to the rules of the blocks."""
    if kind == "add" or kind == "multiply":
        return TileTerms.of(merged(kind, _row_parts(a, b)))
    if kind == "spmv":
        entries = _counts(a.rows, a.shape[0])
        entries = entries[entries > 0]
        return TileTerms.of(rows_of_a(np.zeros_like(entries), entries, 1))
    entries, rows = _counts(b.rows, b.shape[0])[a.cols], a.rows.astype(np.int64)
    return TileTerms.of(rows_of_b(np.zeros_like(entries), rows, entries, _results(a, b)[rows], 1))


def _row_parts(a: TileOperand, b: TileOperand) -> RowParts:
    width = max(a.shape[1], 1)
    sides = [side.rows.astype(np.int64) * width + side.cols for side in (a, b)]
    places = distinct_numbers(np.concatenate(sides))
    in_a, in_b = (np.isin(places, side) for side in sides)
    return row_parts(places // width, np.zeros_like(places), in_a, in_b, 1)


def _results(a: TileOperand, b: TileOperand) -> Ints:
    """The number of entries of the product in each row."""
    held = _counts(b.rows, b.shape[0])
    each = held[a.cols]
    begins = np.append(0, np.cumsum(held))[a.cols]
    ends = np.cumsum(each)
    at = np.repeat(begins - (ends - each), each) + np.arange(int(each.sum()))
    places = distinct_numbers(np.repeat(a.rows.astype(np.int64), each) * max(b.shape[1], 1) + b.cols[at])
    return _counts(places // max(b.shape[1], 1), a.shape[0])


def _multiplies(a: TileOperand, b: TileOperand) -> int:
    return int(_counts(b.rows, b.shape[0])[a.cols].sum())


def _counts(of: Index, size: int) -> Ints:
    return np.bincount(of, minlength=size).astype(np.int64)
