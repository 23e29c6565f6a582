"""Formulas checked against drawn data: where a formula deviates, the mean of the drawn data is used.

The formulas replace the rows of a tile, or the contents of its second operand, by their averages. For tiles
of few entries or memories of few words the error may be large, depending on shape, density and capacity
together. Therefore matrices are drawn and tiled (for large matrices nodes of the tree, or bands of lines),
and the value of a formula is kept where it agrees with them.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from polymodel.errors import Refused
from polymodel.sparse.density import DensityModel
from polymodel.sparse.density.model import Floats
from polymodel.tiling.cost.model import Launch, costs
from polymodel.tiling.estimate.expected import Estimate
from polymodel.tiling.estimate.pieces import PartitionNode, Second, band_of, parts_of, piece_of
from polymodel.tiling.estimate.source import OperandPair
from polymodel.tiling.fits.fit import Elements, Words
from polymodel.tiling.plane.operands import Alone, Transposed, pattern_of

# Total number of entries of both operands that are drawn (more for `simple`, whose tile count takes few
# values).
_ENTRIES, _OF_SIMPLE = 400_000, 1_600_000
# Least and greatest number of matrices.
_LEAST, _MOST = 8, 160
# Samples are drawn until the errors of means are this small, or formulas certainly are within `_NEAR`.
# Formulas may differ by `_AGREED` plus 3 errors.
_ERROR, _AGREED, _NEAR = 0.005, 0.015, 0.04
_UNSEEN = "rows of tiles are taken at their average: too much data to be checked by drawing"
_UNKNOWN = "in words: which size of tiles fits hangs on rows, of more data than are drawn"
_FIELDS = ("tiles", "nonempty", "kernels", "run_cycles")


@dataclass(frozen=True, eq=False)
class _Drawn:
    """Means of tiles, nonempty tiles, kernels and run cycles, and their standard errors."""

    mean: Floats
    error: Floats
    method: str


def checked(
    found: Estimate, source: OperandPair, model: DensityModel, second: Second, launch: Launch
) -> Estimate:
    """Return the estimate, with drawn means in place of values that differ from them by more than their
    uncertainty.

    Refused for `simple` in words if the data have more entries than are drawn.
    """
    seen = _drawn(found, source, model, second, launch)
    if seen is None:
        # Only distributions of entries are known to be valid for every size of the memory.
        far = isinstance(source.fit, Words)
        if far and found.tiler == "simple":
            # One size for all tiles: if rows decide between two sizes, the formula may differ by a half.
            message = "ask for another tiler, or for a fit in elements"
            raise Refused(_UNKNOWN, message, code="unsupported-density")
        return replace(found, notes=(*found.notes, _UNSEEN)) if far else found
    formulas = _figures(found)
    off = ~_exact(found, source) & (np.abs(formulas - seen.mean) > _AGREED * seen.mean + 3 * seen.error)
    if not off.any():
        return found
    tiles, nonempty, kernels, run = (float(x) for x in np.where(off, seen.mean, formulas))
    nonempty = min(nonempty, tiles)
    kernels = min(kernels, tiles)
    names = [name.replace("_", " ") for name, one in zip(_FIELDS, off, strict=True) if one]
    method = seen.method if off.all() else f"{found.method}; {', '.join(names)} by {seen.method}"
    return replace(
        found, tiles=tiles, nonempty=nonempty, kernels=kernels, run_cycles=run, method=method,
        config_cycles=kernels * launch.config(source.op), notes=() if off.all() else found.notes,
    )  # fmt: skip


def _figures(found: Estimate) -> Floats:
    return np.array([found.tiles, found.nonempty, found.kernels, found.run_cycles])


def _exact(found: Estimate, source: OperandPair) -> np.typing.NDArray[np.bool_]:
    """Return whether no check is needed: distributions of entries are exact, and so are the tiles of
    trees.
    """
    known = found.tiler in ("qtree", "btree") and isinstance(source.fit, Elements)
    return np.array([known, known, False, False])


def _drawn(
    found: Estimate, source: OperandPair, model: DensityModel, second: Second, launch: Launch
) -> _Drawn | None:
    """Return tilings of drawn matrices or parts; None if there are too many entries and no part is
    representative."""
    # Tilers are imported only where they run.
    from polymodel.tiling.tilers.named import cut

    nnz = model.expected_nnz
    other = 0.0 if isinstance(second, Alone) else nnz
    if isinstance(second, DensityModel):
        other = second.expected_nnz
    size, budget = max(nnz + other, 1.0), _OF_SIMPLE if found.tiler == "simple" else _ENTRIES
    piece = None
    if _LEAST * size > budget:
        piece = None if isinstance(second, Transposed) else _piece(found, source, size)
        if piece is None:
            return None
        size = max(size / piece.count, 1.0)
    scale, most = piece.count if piece else 1.0, int(np.clip(budget // size, _LEAST, _MOST))
    rows: list[tuple[int, int, int, int]] = []
    mean = error = np.zeros(4)
    formulas, exact = _figures(found), _exact(found, source)
    while len(rows) < most:
        seeds = len(rows), _MOST + len(rows)
        ours, theirs = (model, second) if piece is None else parts_of(model, second, piece, seeds)
        b = theirs.draw(seeds[1], "B") if isinstance(theirs, DensityModel) else theirs
        pattern = pattern_of(ours.draw(seeds[0]), b)
        made = costs(pattern, cut(pattern, source.op, source.fit, found.tiler), source.op, source.fit, launch)
        rows.append((made.tiles, made.nonempty, made.kernels, made.run_cycles))
        if len(rows) >= _LEAST:
            table = np.array(rows, dtype=np.float64)
            mean, error = table.mean(axis=0), table.std(axis=0, ddof=1) / len(rows) ** 0.5
            # Another size, with four times or a quarter of the tiles, which none of the matrices has.
            error = np.maximum(error, 0.75 * mean / len(rows)) if found.tiler == "simple" else error
            near = np.abs(formulas - mean) + 3 * error <= _NEAR * mean
            if (exact | near | (error <= _ERROR * mean)).all():
                break
    of = "matrices" if piece is None else f"parts of {piece.shape[0]} x {piece.shape[1]}"
    return _Drawn(mean * scale, error * scale, f"tiling {len(rows)} drawn {of}")


def _piece(found: Estimate, source: OperandPair, entries: float) -> PartitionNode | None:
    """Return a part that represents a large matrix and is small enough to be drawn repeatedly; `entries`: of
    A and B."""
    piece = None
    if found.tiler in ("qtree", "btree"):
        piece = piece_of(source, entries, found.tiler == "btree")
    elif found.tiler in ("strips", "columns"):
        piece = band_of(source.shape, found.tiles, found.tiler == "columns")
    return None if piece is None or _LEAST * entries / piece.count > _ENTRIES else piece
