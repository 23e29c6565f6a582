"""Estimates of tilings from density models, for each tiler.

Expected tiles of one size: both extents are halved until the fullest tile fits.

P(all tiles of a size fit) is the product over the tiles, corrected for pairs of tiles that hold the same
entries.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import numpy as np

from polymodel.errors import Diagnostic, Refused, SpecError
from polymodel.sparse.density import DensityModel
from polymodel.sparse.density.model import Floats, Ints, Label, edge_classes
from polymodel.sparse.tensor import SparseTensor
from polymodel.tiling.cost.model import Launch, costs
from polymodel.tiling.estimate.checked import checked
from polymodel.tiling.estimate.expected import Estimate, Sums, strips, tree
from polymodel.tiling.estimate.loads import Loads, launched, tokens
from polymodel.tiling.estimate.pieces import PartitionNode, parts_of, piece_of
from polymodel.tiling.estimate.source import MomentSource, OperandPair, UniformSource
from polymodel.tiling.fits.fit import Elements, Fit, Op
from polymodel.tiling.plane.operands import Alone, Rolled, Transposed, pattern_of

Second = DensityModel | SparseTensor | Rolled | Transposed | Alone
# Tilers with an analytical method; the results of all others come from data drawn from the models.
FORMULAS = ("simple", "qtree", "btree", "strips", "columns")
# Most entries drawn for one matrix, and in total; most matrices.
_MOST, _IN_ALL, _DRAWS = 2_000_000, 400_000, 24


def estimate(
    model: DensityModel,
    op: Op = "add",
    fit: Fit | None = None,
    tiler: str = "qtree",
    second: Second | None = None,
    launch: Launch | None = None,
) -> Estimate:
    """Return the expected tiling by `tiler` of matrices described by `model`, without data.

    `fit`: elements(128) by default. `second`: a model of B, whose positions are then independent of A's, or
    how B is derived from A: with rows rolled by 5 by default. Trees, tiles of one size and strips are derived
    analytically; other tilers run on small matrices drawn from the model. Raises SpecError for models that
    are not of two ranks or differ in shape, Refused for fits, models and tilers without estimates.
    """
    fit, launch, second = fit or Elements(128), launch or Launch(), second or Rolled()
    _check(model, second)
    if model.settled or isinstance(second, SparseTensor):
        return _measured(model, op, fit, tiler, second, launch)
    worked = _formula(model, second, tiler)
    if worked is None:
        return _measured(model, op, fit, tiler, second, launch)
    source = _source(model, op, fit, second)
    result = _priced(worked(source), op, tiler, launch, "expected")
    if _by_points(model, second):
        return checked(result, source, model, second, launch)
    return result


def _check(model: DensityModel, second: Second) -> None:
    faults = []
    if len(model.shape) != 2:
        message = f"shape {list(model.shape)}: tilings are estimated of matrices"
        faults.append(Diagnostic(message, "give two sizes, rows and columns", code="shape-mismatch"))
    if isinstance(second, DensityModel | SparseTensor) and second.shape != model.shape:
        what = f"B has the shape {list(second.shape)}, A {list(model.shape)}"
        faults.append(Diagnostic(what, "element-wise operands have one shape", code="shape-mismatch"))
    if isinstance(second, Transposed) and len(set(model.shape)) > 1:
        message = f"a matrix of {list(model.shape)} is not transposed"
        faults.append(Diagnostic(message, "it is not square", code="shape-mismatch"))
    if faults:
        raise SpecError(faults)


def _by_points(model: DensityModel, second: Second) -> bool:
    """Return whether the number of points alone determines the contents of a rectangle of either operand."""
    return model.points is not None and not (isinstance(second, DensityModel) and second.points is None)


def _formula(model: DensityModel, second: Second, tiler: str) -> Callable[[OperandPair], Sums] | None:
    """Return the analytical method for the tiler under these models, if there is one."""
    if isinstance(second, DensityModel) and second.settled:
        return None
    formulas: dict[str, Callable[[OperandPair], Sums]] = {
        "qtree": partial(tree, binary=False),
        "btree": partial(tree, binary=True),
    }
    if _by_points(model, second):
        formulas |= {
            "simple": simple,
            "strips": partial(strips, columns=False),
            "columns": partial(strips, columns=True),
        }
    return formulas.get(tiler)


def _source(model: DensityModel, op: Op, fit: Fit, second: Second) -> OperandPair:
    shape = (model.shape[0], model.shape[1])
    rolled = second.rows if isinstance(second, Rolled) else None
    law = model.points
    if law is not None:
        if isinstance(second, Transposed):
            # Off the diagonal a tile and its mirror image are at different positions.
            return UniformSource(shape, op, fit, law, None, law, mirrored=True)
        if not isinstance(second, DensityModel):
            return UniformSource(shape, op, fit, law, rolled, None)
        if second.points is not None:
            return UniformSource(shape, op, fit, law, None, second.points)
    if isinstance(second, Transposed):
        return MomentSource(shape, op, fit, model.regions(), None, model.regions(), True)
    other = second.regions() if isinstance(second, DensityModel) else None
    return MomentSource(shape, op, fit, model.regions(), rolled, other)


def _priced(found: Sums, op: Op, tiler: str, launch: Launch, label: Label) -> Estimate:
    useful = min(found.useful, found.tiles)
    kernels = found.tiles if launch.run == "all" else useful
    run = useful * launch.ramp + found.tokens + (kernels - useful) * launch.empty
    config = kernels * launch.config(op)
    figures = (found.tiles, found.nonempty, kernels, config, float(run))
    return Estimate(tiler, op, *figures, label, found.method, found.notes)


def _measured(model: DensityModel, op: Op, fit: Fit, tiler: str, second: Second, launch: Launch) -> Estimate:
    """Return the mean over tilings of drawn matrices, or the tiling of the data if the models determine
    them.
    """
    # Tilers are imported only where they run.
    from polymodel.tiling.tilers.named import cut

    known = model.settled and not (isinstance(second, DensityModel) and not second.settled)
    piece = None if known else _piece(model, op, fit, tiler, second)
    size = model.expected_nnz / (piece.count if piece else 1.0)
    if size > _MOST and model.data is None:
        what = f"{tiler} of {size:.3g} entries: it is estimated by tiling data drawn from the model"
        of_more = f"{', '.join(FORMULAS)} of uniform data, qtree and btree of all models"
        raise Refused(what, f"ask for at most {_MOST} entries, or for {of_more}", code="too-large")
    draws = 1 if known else int(np.clip(_IN_ALL // max(size, 1.0), 2, _DRAWS))
    rows = []
    for seed in range(draws):
        ours, theirs = model, second
        if piece and not isinstance(second, SparseTensor):
            ours, theirs = parts_of(model, second, piece, (seed, draws + seed))
        b = theirs.draw(draws + seed, "B") if isinstance(theirs, DensityModel) else theirs
        pattern = pattern_of(ours.draw(seed), b)
        found = costs(pattern, cut(pattern, op, fit, tiler, launch=launch), op, fit, launch)
        rows.append((found.tiles, found.nonempty, found.kernels, found.config_cycles, found.run_cycles))
    mean = np.array(rows, dtype=np.float64).mean(axis=0) * (piece.count if piece else 1.0)
    label: Label = "exact" if known and model.data is not None else "expected"
    method = "tiling the data" if known else f"tiling {draws} matrices drawn from the model"
    if piece is not None:
        method = f"tiling {draws} drawn parts of {piece.shape[0]} x {piece.shape[1]}, nodes of the tree"
    tiles, nonempty, kernels, config, run = (float(x) for x in mean)
    return Estimate(tiler, op, tiles, nonempty, kernels, config, run, label, method)


def _piece(model: DensityModel, op: Op, fit: Fit, tiler: str, second: Second) -> PartitionNode | None:
    """Return the part that represents a large uniform matrix, for tilers that start from a tree."""
    base, _, after = tiler.partition("+")
    drawn_too = not isinstance(second, Transposed | SparseTensor) and _by_points(model, second)
    if base not in ("qtree", "btree") or not after or not drawn_too:
        return None
    if model.expected_nnz <= _IN_ALL:
        return None
    return piece_of(_source(model, op, fit, second), model.expected_nnz, base == "btree")


def simple(source: OperandPair) -> Sums:
    """Return expected sums over tiles of the first size that fits."""
    height, width = source.shape
    left, best, total = 1.0, 0.0, np.zeros(4)
    while True:
        rects, counts = _tiles(source.shape, (height, width))
        laws = source.loads(rects)
        chance = source.all_fit((height, width), rects, counts, laws)
        # A tile within one that fits also fits: sizes that fit are nested, except for odd ones.
        reached = max(best, chance)
        share = reached - best
        if share > 1e-12:
            total += share * _sums(source, laws, counts)
        left, best = 1 - reached, reached
        if left < 1e-9 or (height, width) == (1, 1):
            break
        height, width = max(height // 2, 1), max(width // 2, 1)
    tiles, nonempty, useful, cost = (float(x) for x in total / max(best, 1e-300))
    notes = ("whether tiles fit together: as if only pairs of them depended on each other",)
    return Sums(tiles, nonempty, useful, cost, source.method, notes)


def _tiles(shape: tuple[int, int], size: tuple[int, int]) -> tuple[Ints, Floats]:
    sizes, counts = edge_classes(np.array(size, dtype=np.int64), shape)
    kept = counts > 0
    rects = np.concatenate([np.zeros_like(sizes[kept]), sizes[kept]], axis=1)
    return rects, counts[kept]


def _sums(source: OperandPair, laws: Loads, counts: Floats) -> Floats:
    fits = laws.mass / np.maximum(laws.fits, 1e-300)[:, None] * counts[:, None]
    run = launched(source.op, laws.entries, laws.share[:, None], source.same)
    each = tokens(source.op, laws, source.same)
    return np.array(
        [counts.sum(), (fits * (laws.entries > 0.5)).sum(), (fits * run).sum(), (fits * each).sum()]
    )
