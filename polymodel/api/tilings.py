"""Functions that tile sparse operands: they read and check their arguments and return an answer."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from os import PathLike
from typing import TYPE_CHECKING, Literal

from polymodel.api.operands import Source, fitting, operand, operation, second_operand
from polymodel.errors import Diagnostic, Refused, SpecError
from polymodel.report.evaluated import Evaluated
from polymodel.report.tiling.estimates import TILERS, Foretold, TilingEstimates
from polymodel.report.tiling.level import TilingReport, tiling_report
from polymodel.report.tiling.swift import TilerSwift
from polymodel.report.tiling.tables import TilingTask, several
from polymodel.report.tiling.tile import Tiling
from polymodel.report.tiling.tune import Tuning
from polymodel.sparse.density.model import DensityModel
from polymodel.sparse.tensor import SparseTensor
from polymodel.spec.faults import Faults, not_a, shown
from polymodel.tiling.cost.model import CutCosts, Launch, Objective, costs
from polymodel.tiling.estimate import estimate
from polymodel.tiling.estimate.fitted import fitted
from polymodel.tiling.estimate.pieces import Second as SecondModel
from polymodel.tiling.fits.fit import Fit, Op
from polymodel.tiling.plane.operands import Rolled, Second, pattern_of
from polymodel.tiling.swift import compat as published
from polymodel.tiling.swift.compat import tiler_swift_comparison as compared
from polymodel.tiling.tilers.named import cut, tiler_parts
from polymodel.tiling.tuning.tune import PATIENCE, Ending, tune

if TYPE_CHECKING:
    from polymodel.report.report import Report

PUBLISHED = "qtree+merge"  # the name in Tiler-Swift's documentation is qtree


def tile(
    a: Source,
    b: Source | Second | None = None,
    *,
    op: str = "add",
    fit: Fit | None = None,
    tiler: str = "best",
    objective: Objective = "total",
    ranks: Sequence[str] | None = None,
    names: Sequence[str] | None = None,
    launch: Launch | None = None,
    compat: Literal["tiler-swift"] | None = None,
) -> Tiling:
    """Tile two sparse operands so that tiles fit, and give the cost of running them.

    `a`, `b`: files (.mtx, .tns, also .gz), SparseTensors, arrays or SciPy matrices; `b` also pm.Rolled(rows),
    pm.Transposed() or pm.Alone(), or by name (rolled:5, transposed, nothing); by default B is A with its rows
    rolled by 5. `op`: add or multiply, element by element. `fit`: pm.elements(C), pm.words(M) or
    pm.stored(format, bits). `tiler`: a name, also NAME+merge and NAME+fixpoint; `best` tries all and takes
    the least by `objective`: `total` (configuration and run), `cycles` (run, then kernels) or `tiles`
    (kernels launched, then tiles). `ranks`: the two that are tiled, rows first. `names`: of a file's ranks; a
    .tns file with as many columns has no values. `launch`: cycles per kernel, and which tiles are launched.
    `compat`: "tiler-swift" reproduces that tool with the defects behind its published figures.

    Raises SpecError for invalid input, and for an entry that fits no tile; Refused for what a tiler does not
    support.
    """
    faults = Faults()
    with faults.noting():
        if launch is not None and not isinstance(launch, Launch):
            raise not_a("Launch", "tile", launch, "pass e.g. pm.Launch(run='all')")
    with faults.noting():
        if compat not in (None, "tiler-swift"):
            raise not_a("compat", "tile", compat, "write 'tiler-swift', or leave it out")
        if compat is None:
            tiler_parts(tiler, objective)
        elif launch is not None:
            launch.by_tokens("Tiler-Swift's figures")
    with faults.noting():
        action = operation(op)
    with faults.noting():
        rule = fitting(fit)
    with faults.noting():
        first, remarks = operand(a, "A", names)
    with faults.noting():
        second, more = second_operand(b, names)
    faults.raise_if_any()
    pattern = pattern_of(first, second, ranks)
    task = TilingTask(pattern, action, rule, launch or Launch(), objective, compat is not None)
    if task.compat and tiler == "best":
        tiler, more = PUBLISHED, (*more, f"Tiler-Swift has no best: this is its {PUBLISHED}")
    result = task.rival(tiler)
    assert result.costs is not None
    assert result.seconds is not None
    return Tiling(first, second or Rolled(), task, result.costs, tiler, result.seconds, (*remarks, *more))


def tune_tiling(
    a: Source,
    b: Source | Second | None = None,
    *,
    op: str = "add",
    fit: Fit | None = None,
    objective: Objective = "total",
    launch: Launch | None = None,
    ranks: Sequence[str] | None = None,
    names: Sequence[str] | None = None,
    patience: int = PATIENCE,
    budget: float | None = None,
    runs: float | None = None,
) -> Tuning:
    """Tile with feedback: the model's figure of one tiling decides which one is tried next.

    Operands, `op`, `fit`, `ranks`, `names` and `launch` as for `tile`. `objective`: "tiles" (kernels),
    "cycles" (run) or "total" (configuration and run). The loop ends when the lower bound is reached, after
    `patience` consecutive proposals without improvement, when nothing is left to try, after `budget` seconds,
    or when it has taken longer than `runs` runs of the tiles can still save. Never worse than the binary
    tree, or any step.

    Raises SpecError with all faults of the input, and for an entry that fits no tile.
    """
    if launch is not None and not isinstance(launch, Launch):
        raise not_a("Launch", "tune_tiling", launch, "pass e.g. pm.Launch(run='all')")
    action, rule = operation(op), fitting(fit)
    ending = Ending(patience, budget, runs)
    first, told = operand(a, "A", names)
    second, more = second_operand(b, names)
    pattern = pattern_of(first, second, ranks)
    result = tune(pattern, action, rule, objective, launch, ending)
    return Tuning(first, second or Rolled(), pattern, result, (*told, *more))


def estimate_tiling(
    source: DensityModel | Source,
    *,
    op: str = "add",
    fit: Fit | None = None,
    tilers: Sequence[str] | None = None,
    second: SecondModel | None = None,
    models: Sequence[str] | Mapping[str, DensityModel] | None = None,
    launch: Launch | None = None,
    names: Sequence[str] | None = None,
) -> TilingEstimates:
    """The expected results of tilers on matrices of which only a density model is known.

    `source`: a density model of a matrix (pm.Uniform.of(["I", "J"], [1000, 1000], density=0.01), ..), or a
    tensor or file, to which models are fitted and whose actual tilings are shown next to them. `second`: a
    model of B for independent operands, or pm.Rolled(rows), pm.Transposed(), pm.Alone(); by default B is A
    with its rows rolled by 5. `models` (of a tensor): some of `uniform`, `rows`, `banded`, or models by name.
    `tilers`: by default simple, qtree, btree, strips and columns; others are run on data drawn from the
    model. `names`: of a file's ranks, as for `tile`.

    Raises SpecError for invalid input, Refused where no estimate can be made.
    """
    if launch is not None and not isinstance(launch, Launch):
        raise not_a("Launch", "estimate_tiling", launch, "pass e.g. pm.Launch(run='all')")
    (launch or Launch()).by_tokens("estimates")
    if second is not None and not isinstance(second, SecondModel):
        raise not_a("second operand", "estimate_tiling", second, "pass a density model, or pm.Rolled(5)")
    action, rule = operation(op), fitting(fit)
    tensor: SparseTensor | None = None
    told: tuple[str, ...] = ()
    if isinstance(source, DensityModel):
        if models is not None:
            message = "models are fitted to data; the source is a model"
            raise SpecError([Diagnostic(message, "leave one out", code="ineffective-argument")])
        known: Mapping[str, DensityModel] = {type(source).__name__: source}
    else:
        tensor, told = operand(source, "A", names)
        known = fitted(tensor, models)
    result, refused = _estimates(tensor, known, action, rule, _tilers_named(tilers), second, launch)
    return TilingEstimates(tuple(result), action, rule, (*told, *refused))


def _tilers_named(tilers: Sequence[str] | None) -> tuple[str, ...]:
    """The requested tilers; a single name is a list of one."""
    if tilers is None:
        return TILERS
    result = (tilers,) if isinstance(tilers, str) else several(tilers)
    if not result:
        message = "no tiler is named"
        remedy = f"leave tilers out for {', '.join(TILERS)}"
        raise SpecError([Diagnostic(message, remedy, code="missing-argument")])
    return result


def estimate_shape(
    shape: Sequence[int],
    density: float,
    *,
    op: str = "add",
    fit: Fit | None = None,
    tilers: Sequence[str] | None = None,
    second: SecondModel | None = None,
    launch: Launch | None = None,
) -> TilingEstimates:
    """The estimates for uniform random matrices of a shape and density: `estimate_tiling` with plain
    arguments."""
    from polymodel.sparse.density import Uniform

    ranks = tuple(f"R{n}" for n in range(len(shape))) if len(shape) != 2 else ("I", "J")
    model = Uniform.of(ranks, shape, density=density)
    return estimate_tiling(model, op=op, fit=fit, tilers=tilers, second=second, launch=launch)


def _estimates(
    tensor: SparseTensor | None,
    models: Mapping[str, DensityModel],
    op: Op,
    fit: Fit,
    tilers: tuple[str, ...],
    second: SecondModel | None,
    launch: Launch | None,
) -> tuple[list[Foretold], list[str]]:
    """All estimates, and the reasons for missing ones. Raises Refused if all are missing."""
    told: list[str] = []
    made = dict(_tiled(tensor, op, fit, tilers, second, launch, told)) if tensor is not None else {}
    result: list[Foretold] = []
    refused: list[Refused] = []
    left: dict[tuple[str, str], list[str]] = {}  # model and reason: tilers
    for name, model in models.items():
        for tiler in tilers:
            try:
                told_by = estimate(model, op, fit, tiler, second, launch)
            except Refused as refusal:
                refused.append(refusal)
                left.setdefault((name, refusal.message), []).append(tiler)
                continue
            shape = " x ".join(str(s) for s in model.shape)
            result.append(Foretold(tensor.name if tensor else shape, name, told_by, made.get(tiler)))
    if not result:
        raise refused[0]
    for (name, why), tilers_left in left.items():
        told.append(f"not estimated ({name}): {', '.join(tilers_left)}: {why}")
    return result, told


def _tiled(
    tensor: SparseTensor,
    op: Op,
    fit: Fit,
    tilers: tuple[str, ...],
    second: SecondModel | None,
    launch: Launch | None,
    told: list[str],
) -> Iterator[tuple[str, CutCosts]]:
    """The tiling of each tiler on the data, or the reason why there is none; empty where B is a model."""
    if isinstance(second, DensityModel):
        return
    pattern = pattern_of(tensor, second)
    for tiler in tilers:
        try:
            yield tiler, costs(pattern, cut(pattern, op, fit, tiler), op, fit, launch)
        except Refused as refusal:
            told.append(f"{tiler} does not tile the data: {refusal.message}")


def tile_levels(
    report: Report,
    tensors: Mapping[str, SparseTensor] | None = None,
    densities: Mapping[str, object] | None = None,
) -> TilingReport:
    """Tile the operands of the mapping for every memory with `data_tiles:`.

    `tensors`, `densities`: data that replace those of the workload, as for `sparsify`. Raises SpecError for
    invalid data and for an entry that fits no tile; Refused for Einsums that are neither an element-wise add
    or multiply nor a product of two matrices, and for products of which only a density is known.
    """
    if not isinstance(report, Evaluated):
        raise not_a("report", "tile_levels", report, "pass what pm.evaluate(spec) gives")
    return tiling_report(report, tensors, densities)


def tiler_swift_comparison(
    matrices: Sequence[Source], *, capacity: int = published.CAPACITY, launch: Launch | None = None
) -> TilerSwift:
    """Tiler-Swift's charts for these matrices: as published, as its program was built, and corrected.

    `matrices`: files (.mtx, also .gz), SparseTensors or SciPy matrices, each the operand A; B is A with its
    rows rolled by 5, as in the original's evaluation. Published bars are those of its six matrices, which are
    recognised by name and size, at its `capacity` of 128 elements. `launch`: cycles per kernel.

    Raises SpecError with all faults of the input, and for an entry that fits no tile.
    """
    if isinstance(matrices, (str, PathLike, SparseTensor)) or hasattr(matrices, "tocoo"):
        fault = "one matrix is given where several are expected"
        raise SpecError([Diagnostic(fault, "write [matrix], or name more of them", code="wrong-count")])
    listed: object = matrices
    if not isinstance(listed, Iterable):
        what = f"{shown(listed)} is not a list of matrices"
        raise SpecError([Diagnostic(what, "write e.g. ['a.mtx', 'b.mtx']", "matrices", code="wrong-type")])
    if launch is not None and not isinstance(launch, Launch):
        raise not_a("Launch", "tiler_swift_comparison", launch, "pass e.g. pm.Launch(config_add=500)")
    (launch or Launch()).by_tokens("Tiler-Swift's figures")
    read = [operand(m, f"M{number}") for number, m in enumerate(matrices, 1)]
    names = [tensor.name.removeprefix("ts_") for tensor, _ in read]
    twice = [name for name in dict.fromkeys(names) if names.count(name) > 1]
    if twice:
        remedy = "bars are distinguished by names: give each matrix once, under its own name"
        raise SpecError(
            [
                Diagnostic(f"the matrix {name} is given more than once", remedy, code="duplicate-name")
                for name in twice
            ]
        )
    patterns = [pattern_of(tensor, Rolled(5)) for tensor, _ in read]
    result = compared(patterns, capacity, launch)
    return TilerSwift(result, capacity, tuple(note for _, told in read for note in told))
