"""Tilings of matrices for element-wise addition and multiplication: every field of every record.

All numbers have tolerance zero, except those of tilings merged to a fixpoint (`*_fixpoint`): they depend on
the order of merges, which the file does not give. Theirs are an indication: ours must be a partition without
overflow and have at most 1.05 times as many tiles (rounded up); other differences are notes. (Our order gives
the same numbers on all records here: there are no such notes.)
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from math import ceil
from pathlib import Path
from typing import Any

import numpy as np

from polymodel.errors import Refused
from polymodel.tiling.cost.model import ESTIMATED_RAMP, CutCosts, costs, lower_bound
from polymodel.tiling.fits.fit import Elements, Fit, Op, Words
from polymodel.tiling.plane.operands import pattern_of
from polymodel.tiling.plane.pattern import Cut, Pattern, Rects
from polymodel.tiling.tilers.merge import merged
from polymodel.tiling.tilers.strips import strips
from polymodel.tiling.tilers.trees import btree, qtree, qtree_merge, simple
from polymodel.tiling.tilers.uniform import grid
from tests.reference.common import Outcome, comparing, sections
from tests.reference.tiling_matrices import matrix, second_of

OPS: dict[str, Op] = {"add": "add", "mul": "multiply", "multiply": "multiply"}
FITS: dict[str, type[Fit]] = {"elements": Elements, "words": Words}
# More tiles than the reference's fixpoint by no more than this factor.
SLACK = 1.05
Make = Callable[[Pattern, Op, Fit], Cut]


def is_elementwise(given: Mapping[str, Any]) -> bool:
    """True for files whose results are tilings of a matrix and a second operand."""
    results = given.get("results")
    return isinstance(results, list) and any(
        isinstance(r, dict) and "matrix" in r and ("second_operand" in r or OPS.keys() & r.keys())
        for r in results
    )


def check(path: Path) -> list[Outcome]:
    """One outcome per record."""
    found = []
    for number, record in enumerate(json.loads(path.read_text(encoding="utf-8"))["results"]):
        with comparing(Outcome(_name(record, f"{path.stem}_{number + 1}"))) as outcome:
            _record(outcome, record, path)
        found.append(outcome)
    return found


def _name(record: Any, otherwise: str) -> str:
    if not isinstance(record, Mapping) or "matrix" not in record:
        return otherwise
    return f"{record['matrix']}, {record.get('model')} {record.get('capacity')}"


def _record(outcome: Outcome, record: Mapping[str, Any], path: Path) -> None:
    sections(record, {"matrix": str, "model": str, "capacity": int, "second_operand": str})
    if record["model"] not in FITS:
        raise ValueError(f"model {record['model']!r}: {' or '.join(FITS)} is expected")
    ops = [key for key in OPS if key in record]
    if not ops:
        raise ValueError(f"no operation: one of {', '.join(OPS)} is expected")
    a = matrix(record["matrix"], path)
    pattern, fit = (
        pattern_of(a, second_of(record["second_operand"])),
        FITS[record["model"]](record["capacity"]),
    )
    outcome.unknown("record", record, ("matrix", "shape", "nnz", "model", "capacity", "second_operand", *OPS))
    if "shape" in record:
        outcome.equal("rows", a.shape[0], record["shape"][0])
        outcome.equal("columns", a.shape[1], record["shape"][1])
    if "nnz" in record:
        outcome.equal("nnz", a.nnz, record["nnz"])
    for key in ops:
        sections(record, {key: dict})
        _operation(Compared(outcome, key, pattern, OPS[key], fit), record[key])


@dataclass(frozen=True)
class Compared:
    """What one operation's tilings are compared with."""

    outcome: Outcome
    where: str
    pattern: Pattern
    op: Op
    fit: Fit

    def costs(self, cut: Cut) -> CutCosts:
        return costs(self.pattern, cut, self.op, self.fit)

    def equal(self, what: str, ours: int, theirs: int) -> None:
        self.outcome.equal(f"{self.where} {what}", ours, theirs)

    def require(self, what: str, holds: bool) -> None:
        self.outcome.checked += 1
        if not holds:
            self.outcome.mismatches.append(f"{self.where} {what}")


def _operation(compared: Compared, given: Mapping[str, Any]) -> None:
    for name, theirs in given.items():
        if name == "lower_bound_nonempty_tiles":
            compared.equal(name, lower_bound(compared.pattern, compared.op, compared.fit), theirs)
        elif name == "simple":
            _simple(compared, theirs)
        elif name in TILERS:
            _tiling(compared, name, TILERS[name](compared.pattern, compared.op, compared.fit), theirs)
        elif name in FIXPOINTS:
            fixpoint(compared, name, FIXPOINTS[name], theirs)
        else:
            compared.outcome.unknown(compared.where, [name], ())


TILERS: dict[str, Make] = {"qtree": qtree, "qtree_merge": qtree_merge, "btree": btree, "row_strips": strips}
FIXPOINTS: dict[str, Make] = {"btree_fixpoint": btree, "qtree_fixpoint": qtree, "simple_fixpoint": simple}


def _tiling(compared: Compared, name: str, cut: Cut, theirs: Mapping[str, Any]) -> None:
    compared.require(f"{name} is not a partition", is_partition(compared.pattern, cut))
    found = compared.costs(cut)
    _numbers(compared, name, found, found.tiles, theirs)
    _rectangles(compared, name, cut.rects, theirs)


def _simple(compared: Compared, theirs: Mapping[str, Any]) -> None:
    """Tiles of one size: all are counted, those with entries are told apart."""
    height, width = grid(compared.pattern, compared.op, compared.fit)
    try:
        cut = simple(compared.pattern, compared.op, compared.fit)
        compared.require("simple is not a partition", is_partition(compared.pattern, cut))
    except Refused:  # too many tiles to list: those with entries are enough to compare
        cut = occupied(compared.pattern, height, width)
    rows, cols = compared.pattern.shape
    found = compared.costs(cut)
    _numbers(compared, "simple", found, -(-rows // height) * -(-cols // width), theirs)
    _rectangles(compared, "simple", cut.rects.taken(found.counts.union > 0), theirs)
    for key, size in (("tile_h", height), ("tile_w", width)):
        if key in theirs:
            compared.equal(f"simple {key}", size, theirs[key])


def occupied(pattern: Pattern, height: int, width: int) -> Cut:
    """The tiles of one size that have points; the others are left out."""
    rows, cols = pattern.shape
    across = -(-cols // width)
    at = (pattern.rows.astype(np.int64) // height) * across + pattern.cols // width
    tiles, ids = np.unique(at, return_inverse=True)
    row, col = tiles // across * height, tiles % across * width
    return Cut(Rects(row, col, np.minimum(height, rows - row), np.minimum(width, cols - col)), ids, "simple")


def _numbers(compared: Compared, name: str, found: CutCosts, tiles: int, theirs: Mapping[str, Any]) -> None:
    """`tiles`: all of them; `found` may leave out empty ones."""
    ours = figures(found, tiles)
    compared.outcome.unknown(
        f"{compared.where} {name}", theirs, (*ours, "rect_digest", "rects", "tile_h", "tile_w")
    )
    for key, value in ours.items():
        if key in theirs:
            compared.equal(f"{name} {key}", value, theirs[key])


def figures(found: CutCosts, tiles: int) -> dict[str, int]:
    """What a record says of so many tiles; `found`: the costs of all of them, or of all but empty ones."""
    config = found.launch.config(found.op)
    return {
        "tiles": tiles,
        "nonempty": found.nonempty,
        "both_nonempty": found.both_nonempty,
        "overflowing": found.overflowing,
        "est_runtime": found.estimate + ESTIMATED_RAMP * (tiles - found.tiles),
        "runnable": found.kernels,
        "token_cycles": found.run_cycles,
        "config_cycles_all": tiles * config,
        "config_cycles_runnable": found.config_cycles,
    }


def _rectangles(compared: Compared, name: str, rects: Rects, theirs: Mapping[str, Any]) -> None:
    table = sorted(rects.table().tolist())
    if "rect_digest" in theirs:
        ours = hashlib.sha256(json.dumps(table, separators=(",", ":")).encode()).hexdigest()[:16]
        compared.require(
            f"{name} rect_digest: ours {ours}, reference {theirs['rect_digest']}",
            ours == theirs["rect_digest"],
        )
    if "rects" in theirs:
        listed = sorted([int(n) for n in rect] for rect in theirs["rects"])
        missing = [r for r in listed if r not in table]
        compared.require(f"{name} rects: {len(missing)} not ours, first {missing[:1]}", table == listed)


def fixpoint(compared: Compared, name: str, make: Make, theirs: Mapping[str, Any]) -> None:
    """A tiling merged until nothing more fits, beside theirs, which merges in another order."""
    pattern, op, fit = compared.pattern, compared.op, compared.fit
    cut = merged(pattern, op, fit, make(pattern, op, fit))
    found = compared.costs(cut)
    compared.require(f"{name} is not a partition", is_partition(pattern, cut))
    compared.equal(f"{name} overflowing", found.overflowing, 0)
    compared.outcome.at_most(f"{compared.where} {name} tiles", found.tiles, ceil(theirs["tiles"] * SLACK))
    for key, value in figures(found, found.tiles).items():
        if key in theirs:
            what = f"{compared.where} {name} {key} (merged in an order of its own: an indication)"
            compared.outcome.inform(what, value, theirs[key])


def is_partition(pattern: Pattern, cut: Cut) -> bool:
    """True if the rectangles cover every place once, and every point is in the one that it is said to be."""
    rects = cut.rects
    top, left, bottom, right = rects.row, rects.col, rects.row + rects.height, rects.col + rects.width
    if not ((rects.height > 0) & (rects.width > 0)).all():
        return False
    rows, cols = (
        np.unique(np.concatenate([a, b, [0, n]]))
        for a, b, n in zip((top, left), (bottom, right), pattern.shape, strict=True)
    )
    if rows[0] or cols[0] or rows[-1] != pattern.shape[0] or cols[-1] != pattern.shape[1]:
        return False
    # How many rectangles cover each place between edges: corners, summed along both sides.
    paint = np.zeros((rows.size, cols.size), dtype=np.int16)
    for at, across, sign in ((top, left, 1), (bottom, right, 1), (top, right, -1), (bottom, left, -1)):
        np.add.at(paint, (np.searchsorted(rows, at), np.searchsorted(cols, across)), sign)
    for axis in (0, 1):
        np.cumsum(paint, axis=axis, out=paint)
    ids, at, across = cut.ids, pattern.rows, pattern.cols
    inside = (top[ids] <= at) & (at < bottom[ids]) & (left[ids] <= across) & (across < right[ids])
    return bool((paint[:-1, :-1] == 1).all() and inside.all())
