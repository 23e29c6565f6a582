"""Density models fitted to a given matrix, to compare their predictions of its tilings."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from polymodel.errors import Diagnostic, Refused, SpecError
from polymodel.sparse.density import Banded, DensityModel, RankNnz, Uniform
from polymodel.sparse.tensor import SparseTensor
from polymodel.spec.faults import listed, suggestion

FITTED = ("uniform", "rows", "banded")
# Fraction of nonzeros above which a band describes the positions of the entries.
_FULL = 0.5
# Most rows that are counted separately.
_MOST_ROWS = 10**8


def fitted(
    tensor: SparseTensor, models: Sequence[str] | Mapping[str, DensityModel] | None = None
) -> dict[str, DensityModel]:
    """Return density models of a matrix by name: `uniform` (its number of entries), `rows` (the number of
    entries of each row), `banded` (the narrowest band with all entries; by default only if half of the band
    is nonzero).

    Raises SpecError for other names and for models of another shape, Refused for tensors that are not
    matrices and for `rows` of more than 10^8 rows (which are left out by default).
    """
    if len(tensor.ranks) != 2:
        fault = f"{tensor.name} has {len(tensor.ranks)} ranks; tilings are estimated of matrices"
        remedy = "cut the data itself: pm.tile (no --estimate) takes two ranks of any tensor"
        raise Refused(fault, remedy, code="unsupported-shape")
    if isinstance(models, Mapping) and models:
        return _checked_models(tensor, models)
    models = () if models == {} else models
    wanted: tuple[str, ...]
    if models is None:
        wanted = FITTED if tensor.shape[0] <= _MOST_ROWS else ("uniform", "banded")
    else:
        wanted = tuple(str(m) for m in listed("models", models, "['uniform']"))
    if not wanted:
        raise SpecError(
            [
                Diagnostic(
                    "no model is named", f"leave models out for {', '.join(FITTED)}", code="missing-argument"
                )
            ]
        )
    unknown = [name for name in wanted if name not in FITTED]
    if unknown:
        raise SpecError(
            [
                Diagnostic(f"there is no model {n!r}", suggestion(n, FITTED), code="unknown-choice")
                for n in unknown
            ]
        )
    result: dict[str, DensityModel] = {}
    for name in wanted:
        if name == "uniform":
            result[name] = Uniform.of(tensor.ranks, tensor.shape, nnz=tensor.nnz)
        elif name == "rows":
            if tensor.shape[0] > _MOST_ROWS:
                message = f"{tensor.name} has {tensor.shape[0]:,} rows, too many to count"
                raise Refused(message, "take uniform", code="too-large")
            result[name] = RankNnz.from_tensor(tensor)
        else:
            width = int(np.abs(tensor.coords[0] - tensor.coords[1]).max(initial=0))
            band = Banded(tensor.ranks, tensor.shape, width)
            if models is not None or tensor.nnz >= _FULL * band.expected_nnz:
                result[name] = band
    return result


def _checked_models(tensor: SparseTensor, models: Mapping[str, object]) -> dict[str, DensityModel]:
    faults, result = [], {}
    for name, model in models.items():
        if not isinstance(model, DensityModel):
            remedy = "pass e.g. pm.Uniform.of(['I', 'J'], [100, 100], density=0.1)"
            message = f"models: {name}: {model!r} is not a density model"
            faults.append(Diagnostic(message, remedy, code="wrong-type"))
        elif model.shape != tensor.shape:
            mine, theirs = (" x ".join(map(str, x.shape)) for x in (model, tensor))
            what = f"models: {name}: the model is {mine}, {tensor.name} {theirs}"
            faults.append(Diagnostic(what, "give a model of the same shape", code="shape-mismatch"))
        else:
            result[name] = model
    if faults:
        raise SpecError(faults)
    return result
