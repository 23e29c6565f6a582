"""Functions on sparse data: a mapping counted on it, and density models compared with the data they
describe.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from os import PathLike
from typing import TYPE_CHECKING

from polymodel.errors import Diagnostic, Refused, SpecError
from polymodel.report.evaluated import Evaluated
from polymodel.report.predictions import Predictions
from polymodel.report.sparse import SparseReport, sparse_report
from polymodel.sparse.predicted import SLICES, TILES, Prediction, predictions
from polymodel.sparse.tensor import SparseTensor
from polymodel.spec.faults import not_a

if TYPE_CHECKING:
    from polymodel.report.report import Report


def sparsify(
    report: Report,
    tensors: Mapping[str, SparseTensor] | None = None,
    densities: Mapping[str, object] | None = None,
    *,
    confidence: float = 0.99,
) -> SparseReport:
    """The same mapping on sparse data.

    `tensors`: actual data, counted exactly. `densities`: tensor -> number from 0 to 1 or density model. Both
    replace what the workload gives; an input with neither has no zeros, a computed tensor those that follow
    from its operands. `confidence`: the probability with which `quantile_bits` are not exceeded. Raises
    SpecError for unknown tensors, shapes that do not fit, invalid densities and formats; Refused for what
    cannot be counted.
    """
    if not isinstance(report, Evaluated):
        raise not_a("report", "sparsify", report, "pass what pm.evaluate(spec) gives")
    if not 0 < confidence <= 1:
        message = f"confidence {confidence} is outside (0, 1]"
        raise SpecError([Diagnostic(message, "write e.g. 0.99", code="out-of-range")])
    return sparse_report(report, tensors, densities, confidence)


def predict(
    *sources: SparseTensor | str | PathLike[str],
    tiles: Sequence[int] = TILES,
    slices: int = SLICES,
    ranks: Sequence[str] | None = None,
) -> Predictions:
    """The expectations of uniform and row-histogram models for these tensors (or files), next to the actual
    counts.

    `tiles`: sizes of tiles, the same along every rank; `slices`: number of parts over which rows are
    distributed; `ranks`: names of the ranks of files, see `read_tensor`. Raises SpecError with the faults of
    all sources.
    """
    from polymodel.sparse.density import unfit
    from polymodel.sparse.files import read_file

    result: list[Prediction] = []
    warned: list[str] = []
    faults: list[SpecError] = []
    if not sources:
        message = "predict: no tensor is given"
        remedy = "pass tensors, or names of .mtx or .tns files"
        raise SpecError([Diagnostic(message, remedy, code="missing-argument")])
    for source in sources:
        if not isinstance(source, (SparseTensor, str, PathLike)):
            raise not_a("sparse tensor or file", "predict", source, "pass e.g. 'matrix.mtx.gz'")
        try:
            if isinstance(source, SparseTensor):
                tensor = source
            else:
                file = read_file(source, ranks=ranks)
                tensor = file.tensor
                warned += [f"{tensor.name}: {note}" for note in file.notes]
            result += predictions(tensor, tiles=tiles, slices=slices)
        except SpecError as error:
            faults.append(error)
            continue
        except Refused as refusal:
            name = source.name if isinstance(source, SparseTensor) else str(source)
            raise Refused(f"{name}: {refusal.message}", refusal.remedy, code=refusal.code) from refusal
        told = unfit(tensor)
        warned += [f"{tensor.name}: {told}"] if told else []
    if faults:
        raise SpecError(list(dict.fromkeys(d for e in faults for d in e.diagnostics)))
    return Predictions(tuple(result), tuple(warned))
