"""Density models of a matrix at hand, to see what each of them foretells of its tilings."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from polymodel.errors import Diagnostic, Refused, SpecError
from polymodel.sparse.density import Banded, DensityModel, RankNnz, Uniform
from polymodel.sparse.tensor import SparseTensor
from polymodel.spec.faults import suggestion

FITTED = ("uniform", "rows", "banded")
# A band says where the entries are if so much of it is nonzero.
_FULL = 0.5


def fitted(
    tensor: SparseTensor, models: Sequence[str] | Mapping[str, DensityModel] | None = None
) -> dict[str, DensityModel]:
    """Models of a matrix by name: `uniform` (its number of entries), `rows` (those of each row), `banded`
    (the narrowest band with all of them; by default only where half of the band is nonzero).

    SpecError for other names, Refused for tensors of other than two ranks.
    """
    if len(tensor.ranks) != 2:
        raise Refused(f"{tensor.name} has {len(tensor.ranks)} ranks; tilings are estimated of matrices")
    if isinstance(models, Mapping):
        return dict(models)
    wanted = FITTED if models is None else tuple(models)
    unknown = [name for name in wanted if name not in FITTED]
    if unknown:
        raise SpecError([Diagnostic(f"there is no model {n!r}", suggestion(n, FITTED)) for n in unknown])
    found: dict[str, DensityModel] = {}
    for name in wanted:
        if name == "uniform":
            found[name] = Uniform.of(tensor.ranks, tensor.shape, nnz=tensor.nnz)
        elif name == "rows":
            found[name] = RankNnz.from_tensor(tensor)
        else:
            width = int(np.abs(tensor.coords[0] - tensor.coords[1]).max(initial=0))
            band = Banded(tensor.ranks, tensor.shape, width)
            if models is not None or tensor.nnz >= _FULL * band.expected_nnz:
                found[name] = band
    return found
