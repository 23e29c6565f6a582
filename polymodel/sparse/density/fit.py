"""Does uniform data look like this? The dispersion of row occupancies tells."""

from __future__ import annotations

import warnings
from math import prod

import numpy as np

from polymodel.errors import Diagnostic, SpecError
from polymodel.sparse.density.model import DensityModel, SparseWarning
from polymodel.sparse.density.uniform import Uniform
from polymodel.sparse.tensor import SparseTensor

# Of uniform tensors one in a million is told to be none.
_CHANCE = 1e-6
# Fewer nonzeros per row than this make a skew dispersion.
_SPARSE = 5.0


def unfit(tensor: SparseTensor, model: DensityModel | None = None) -> str:
    """Why `uniform` does not fit the rows of a tensor, or "" if it does. `model`: by default uniform of its
    nnz.

    Two tests on the number of nonzeros of each row (fiber of the top rank), each with a chance of one in a
    million to object to uniform data: the dispersion sum (x - mean)^2 / variance is far from that of random
    rows on either side (chi-square with one degree per row less one, by Wilson and Hilferty's cube root), or
    the largest row is one that random data do not have. Tensors of one row, and models that are not uniform,
    always fit.
    """
    from scipy.special import ndtri, pdtrc

    uniform = model if model is not None else Uniform.of(tensor.ranks, tensor.shape, nnz=tensor.nnz)
    law = uniform.points
    if law is None or len(tensor.ranks) == 0 or tensor.shape[0] < 2 or not tensor.nnz:
        return ""
    if tensor.shape != uniform.shape:
        what = f"{tensor.name} is {tensor.shape}, the model {uniform.shape}"
        raise SpecError([Diagnostic(what, "compare a tensor with a model of its shape")])
    rows, points = tensor.shape[0], prod(tensor.shape[1:])
    counts = np.bincount(tensor.coords[0], minlength=rows)
    mean, variance = float(law.mean(points)), float(law.variance(points))
    if not variance:
        return ""
    largest, usual = int(counts.max()), float(uniform.expected_max((1, *tensor.shape[1:])))
    told = f"its largest row has {largest:,} nonzeros, where uniform data have about {usual:,.3g}"
    # Rows of a fixed sum are that much more alike than independent ones: variance (rows - 1) / rows is
    # theirs.
    statistic = float(((counts - mean) ** 2).sum()) / (variance * rows / (rows - 1))
    freedom = rows - 1
    limit = abs(float(ndtri(_CHANCE / 2)))
    score = ((statistic / freedom) ** (1 / 3) - (1 - 2 / (9 * freedom))) / (2 / (9 * freedom)) ** 0.5
    # In sparse rows pairs of nonzeros are counted, about as a Poisson law has them: skewer than chi-square.
    pairs = float((counts * (counts - 1)).sum()) / 2
    few = (
        float(pdtrc(pairs - 1, rows * (variance + mean * mean - mean) / 2))
        if pairs and mean < _SPARSE
        else 0.0
    )
    if score < -limit or (score > limit and few < _CHANCE):
        side, times = ("more" if score > 0 else "less"), statistic / freedom
        ratio = f"their variance is {times:.3g} times as large"
        return f"rows are {side} uneven than uniform data's, {ratio}; {told}"
    if rows * float(law.sf(points, largest - 1)) < _CHANCE:
        return told
    return ""


def check_fit(tensor: SparseTensor, model: DensityModel | None = None) -> bool:
    """Warn (SparseWarning) when `uniform` is asked of data whose rows it does not fit; True if it fits."""
    told = unfit(tensor, model)
    if told:
        remedy = "give the histogram of the rows (rank_nnz) or the tensor (actual)"
        warnings.warn(f"{tensor.name} is not uniform: {told}; {remedy}", SparseWarning, stacklevel=2)
    return not told
