"""Densities as they are written: a number, or a model's name with its parameters.

0.01                                       {uniform: {density: 0.01}}      {uniform: {nnz: 5000}}
{hierarchical: {I: 0.5, K: 0.1}}           {hierarchical: [0.5, 0.1]}
{fixed_structured: {n: 2, m: 4, rank: K}}  {banded: {width: 3, ranks: [I, K]}}
{rank_nnz: {rank: I, histogram: [3, 0, 2]}}   {rank_nnz: {file: a.mtx}}     {actual: a.mtx}
{diagonals: {offsets: [-1, 0, 1], fill: 0.9}} {row_column: {rows: [2, 0, 1], columns: [1, 1, 1]}}
{blocks: {size: [4, 4], arrangement: 0.1, fill: {fixed_structured: {n: 2, m: 4, rank: K}}}}
{rmat: {nnz: 5000, quarters: [0.57, 0.19, 0.19, 0.05]}}
{sampled: a.mtx}                              {sampled: {file: a.mtx, samples: 10000}}
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from polymodel.errors import Diagnostic, SpecError
from polymodel.sparse.density.actual import Actual
from polymodel.sparse.density.banded import Banded
from polymodel.sparse.density.blocks import Blocks
from polymodel.sparse.density.diagonals import Diagonals
from polymodel.sparse.density.hierarchical import Hierarchical
from polymodel.sparse.density.histogram import RankNnz
from polymodel.sparse.density.model import DensityModel
from polymodel.sparse.density.reader import Path, Read, Reader, is_number
from polymodel.sparse.density.row_column import RowColumn
from polymodel.sparse.density.sampled import Sampled
from polymodel.sparse.density.structured import FixedStructured
from polymodel.sparse.density.uniform import Uniform
from polymodel.spec.faults import suggestion


def _within(
    reader: Reader, path: Path, written: object, ranks: tuple[str, ...], shape: tuple[int, ...]
) -> DensityModel | None:
    """Return a model that is given inside another one; its faults are recorded with their location in the
    whole."""
    inside = Reader(ranks, shape, reader.read, reader.name)
    result = _model(inside, written)
    reader.faults += [((*path, *place), m, r, code) for place, m, r, code in inside.faults]
    return result


def _blocks(reader: Reader, path: Path, given: object) -> DensityModel | None:
    return Blocks.written_with(reader, path, given, _within)


# Name of a model -> function that reads its parameters; None after a fault, which the reader has recorded.
MODELS: dict[str, Callable[[Reader, Path, object], DensityModel | None]] = {
    "uniform": Uniform.written,
    "hierarchical": Hierarchical.written,
    "fixed_structured": FixedStructured.written,
    "banded": Banded.written,
    "rank_nnz": RankNnz.written,
    "row_column": RowColumn.written,
    "rmat": RowColumn.written_rmat,
    "diagonals": Diagonals.written,
    "blocks": _blocks,
    "sampled": Sampled.written,
    "actual": Actual.written,
}


def model_of(
    written: object,
    ranks: Sequence[str],
    shape: Sequence[int],
    *,
    read: Read | None = None,
    name: str = "",
) -> DensityModel | None:
    """The model that is written (see the module) for a tensor of these ranks and sizes.

    `read`: reads the tensor in a file (its faults are passed on); without it files are a fault. All faults
    are raised together as one SpecError. A model is returned as it is.
    """
    reader = Reader(tuple(ranks), tuple(int(s) for s in shape), read, name)
    result = _model(reader, written)
    if not reader.faults:
        return result
    raise SpecError([Diagnostic(m, r, ".".join(map(str, p)), code=code) for p, m, r, code in reader.faults])


def _model(reader: Reader, written: object) -> DensityModel | None:
    if isinstance(written, DensityModel):
        return written
    if is_number(written):
        return Uniform.written(reader, (), written)
    if not isinstance(written, Mapping) or len(written) != 1:
        remedy = f"a number from 0 to 1, or one of {', '.join(MODELS)} with parameters"
        reader.add((), f"{written!r} is not a density", remedy, code="out-of-range")
        return None
    kind, given = next(iter(written.items()))
    if kind not in MODELS:
        remedy = suggestion(str(kind), tuple(MODELS), "models")
        reader.add((str(kind),), f"density model {kind!r} is not known", remedy, code="unknown-choice")
        return None
    return MODELS[str(kind)](reader, (str(kind),), given)
