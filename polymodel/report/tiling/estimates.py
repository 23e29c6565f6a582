"""Tilings as density models foretell them: without data, or beside what tilers make of a tensor."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from polymodel.errors import Diagnostic, Refused, SpecError
from polymodel.report.tiling.inputs import Source, fitting, operand, operation
from polymodel.report.tiling.tables import room, several
from polymodel.sparse.density.model import DensityModel
from polymodel.sparse.tensor import SparseTensor
from polymodel.spec.coerce import check_classes
from polymodel.spec.faults import not_a
from polymodel.tiling.cost.model import Costs, Launch, costs
from polymodel.tiling.estimate import Estimate, estimate
from polymodel.tiling.estimate.fitted import FITTED, fitted
from polymodel.tiling.fits.fit import Fit, Op
from polymodel.tiling.plane.operands import Alone, Rolled, Transposed, pattern_of
from polymodel.tiling.tilers.named import cut
from polymodel.view.answer import Answer, declared
from polymodel.view.blocks import Block, Line, Section, notes
from polymodel.view.table import Cell, Column, Table

if TYPE_CHECKING:
    from matplotlib.axes import Axes

Second = DensityModel | Rolled | Transposed | Alone
TILERS = ("simple", "qtree", "btree", "strips", "columns")
_NOTE = "estimates are expected values of the models; actual figures are exact counts of the data"


@dataclass(frozen=True, eq=False)
class Foretold:
    """One estimate: what a model of a tensor says of a tiler, and what the tiler made of the data, if any."""

    tensor: str
    model: str
    estimate: Estimate
    actual: Costs | None

    def error(self, quantity: str) -> float | None:
        """(estimated - actual) / actual of `tiles`, `kernels`, `run_cycles` or `total_cycles`."""
        if self.actual is None:
            return None
        told, real = float(getattr(self.estimate, quantity)), float(getattr(self.actual, quantity))
        if real:
            return (told - real) / real
        return 0.0 if told == 0 else None


@dataclass(frozen=True, eq=False)
class TilingEstimates(Answer):
    """Estimated tilings: `frame` is a DataFrame with one row per model and tiler, `notes` say what misleads.

    Columns: tensor, model, tiler, tiles, kernels, config_cycles, run_cycles, total_cycles and label (of the
    estimate), then of the data actual_tiles and actual_cycles (all, configuration included), and the errors
    (estimated - actual) / actual of tiles and of all cycles; empty where there are no data.
    """

    found: tuple[Foretold, ...]
    op: Op
    fit: Fit
    told: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        remedy = "pm.estimate_tiling(...) makes one"
        check_classes(self, remedy, {"found": tuple})

    @declared(title="Estimated tilings")
    def estimates(self) -> Table:
        """One row per tensor, model and tiler."""
        columns = (
            Column("tensor"), Column("model"), Column("tiler"), Column("tiles", "element"),
            Column("kernels", "element"), Column("config_cycles", "cycle"), Column("run_cycles", "cycle"),
            Column("total_cycles", "cycle"), Column("label"), Column("actual_tiles", "element"),
            Column("actual_cycles", "cycle"), Column("tiles_error", "1"), Column("cycles_error", "1"),
        )  # fmt: skip
        return Table("tiling_estimates", columns, tuple(_row(f) for f in self.found), self.notes)

    @property
    def notes(self) -> tuple[str, ...]:
        """How estimates were found, what they leave out, and which were refused."""
        ways: dict[str, list[str]] = {}
        for f in self.found:
            ways.setdefault(f"{f.model}: {f.estimate.method}", []).append(f.estimate.tiler)
        methods = [f"{way} ({', '.join(tilers)})" for way, tilers in ways.items()]
        more: dict[str, dict[str, None]] = {}
        for f in self.found:
            for note in f.estimate.notes:
                more.setdefault(note, {})[f.estimate.tiler] = None
        limits = [f"{', '.join(tilers)}: {note}" for note, tilers in more.items()]
        return (_NOTE, *self.told, *methods, *limits)

    def __repr__(self) -> str:
        names = ", ".join(dict.fromkeys(f.tensor for f in self.found))
        return f"TilingEstimates({names}: {len(self.found)} estimates)"

    @property
    def title(self) -> str:
        """The heading of its page."""
        return f"Estimated tilings: {self.op}, {room(self.fit)}"

    def content(self, live: bool = True) -> list[Block]:
        """A table per tensor; figures of the data where there are data."""
        columns = self.table("estimates").columns[1:]
        if all(f.actual is None for f in self.found):
            columns = columns[:8]
        shown = self.table("estimates").only("tensor", *(c.name for c in columns))
        found: list[Block] = []
        for title in dict.fromkeys(f.tensor for f in self.found):
            head = f"{title}: {self.op}, {room(self.fit)}"
            found += [Section(head, shown.of(title), opened=True), Line()]
        return [*found, *notes(self.notes)]

    def plot(self, quantity: str = "tiles", *, ax: Axes | None = None) -> Axes:
        """Bars of what each model foretells, tiler by tiler, beside the actual figure."""
        from polymodel.report.tiling.plots import plot_estimates

        return plot_estimates(self.found, quantity, task=f"{self.op}, {room(self.fit)}", ax=ax)


def estimate_tiling(
    source: DensityModel | Source,
    *,
    op: str = "add",
    fit: Fit | None = None,
    tilers: Sequence[str] | None = None,
    second: Second | None = None,
    models: Sequence[str] | Mapping[str, DensityModel] | None = None,
    launch: Launch | None = None,
    names: Sequence[str] | None = None,
) -> TilingEstimates:
    """What tilers are expected to make of matrices that are known by a density model only.

    `source`: a density model of a matrix (pm.Uniform.of(["I", "J"], [1000, 1000], density=0.01), ..), or a
    tensor or file, to which models are fitted and beside whose tilings they are shown. `second`: a model of B
    for independent operands, or pm.Rolled(rows), pm.Transposed(), pm.Alone(); B is A with its rows rolled by
    5 by default. `models` (of a tensor): some of `uniform`, `rows`, `banded`, or models by name. `tilers`:
    simple, qtree, btree, strips and columns by default; others are run on data drawn from the model.
    `names`: of a file's ranks, as for `tile`.

    Raises SpecError for wrong input, Refused where no estimate can be made.
    """
    if launch is not None and not isinstance(launch, Launch):
        raise not_a("Launch", "estimate_tiling", launch, "pass e.g. pm.Launch(run='all')")
    if second is not None and not isinstance(second, Second):
        raise not_a("second operand", "estimate_tiling", second, "pass a density model, or pm.Rolled(5)")
    action, rule = operation(op), fitting(fit)
    tensor: SparseTensor | None = None
    told: tuple[str, ...] = ()
    if isinstance(source, DensityModel):
        if models is not None:
            raise SpecError([Diagnostic("models are fitted to data; the source is a model", "leave one out")])
        known: Mapping[str, DensityModel] = {type(source).__name__: source}
    else:
        tensor, told = operand(source, "A", names)
        known = fitted(tensor, models)
    found, refused = _foretold(tensor, known, action, rule, _named(tilers), second, launch)
    return TilingEstimates(tuple(found), action, rule, (*told, *refused))


def _named(tilers: Sequence[str] | None) -> tuple[str, ...]:
    """The tilers asked for; a single name is one too."""
    if tilers is None:
        return TILERS
    found = (tilers,) if isinstance(tilers, str) else several(tilers)
    if not found:
        raise SpecError([Diagnostic("no tiler is named", f"leave tilers out for {', '.join(TILERS)}")])
    return found


def estimate_shape(
    shape: Sequence[int],
    density: float,
    *,
    op: str = "add",
    fit: Fit | None = None,
    tilers: Sequence[str] | None = None,
    second: Second | None = None,
    launch: Launch | None = None,
) -> TilingEstimates:
    """The same of uniform random matrices of a shape and density: `estimate_tiling` with plain arguments."""
    from polymodel.sparse.density import Uniform

    ranks = tuple(f"R{n}" for n in range(len(shape))) if len(shape) != 2 else ("I", "J")
    model = Uniform.of(ranks, shape, density=density)
    return estimate_tiling(model, op=op, fit=fit, tilers=tilers, second=second, launch=launch)


def _foretold(
    tensor: SparseTensor | None,
    models: Mapping[str, DensityModel],
    op: Op,
    fit: Fit,
    tilers: tuple[str, ...],
    second: Second | None,
    launch: Launch | None,
) -> tuple[list[Foretold], list[str]]:
    """All estimates, and why some of them are missing. Refused if all are."""
    told: list[str] = []
    made = dict(_tiled(tensor, op, fit, tilers, second, launch, told)) if tensor is not None else {}
    found: list[Foretold] = []
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
            found.append(Foretold(tensor.name if tensor else shape, name, told_by, made.get(tiler)))
    if not found:
        raise refused[0]
    for (name, why), tilers_left in left.items():
        told.append(f"not estimated ({name}): {', '.join(tilers_left)}: {why}")
    return found, told


def _tiled(
    tensor: SparseTensor,
    op: Op,
    fit: Fit,
    tilers: tuple[str, ...],
    second: Second | None,
    launch: Launch | None,
    told: list[str],
) -> Iterator[tuple[str, Costs]]:
    """What each tiler makes of the data, or why it does not; nothing where B is a model."""
    if isinstance(second, DensityModel):
        return
    pattern = pattern_of(tensor, second)
    for tiler in tilers:
        try:
            yield tiler, costs(pattern, cut(pattern, op, fit, tiler), op, fit, launch)
        except Refused as refusal:
            told.append(f"{tiler} does not tile the data: {refusal.message}")


def _row(found: Foretold) -> tuple[Cell, ...]:
    told, real = found.estimate, found.actual
    actual: tuple[Cell, ...] = (None, None) if real is None else (real.tiles, real.total_cycles)
    numbers = (told.tiles, told.kernels, told.config_cycles, told.run_cycles, told.total_cycles)
    errors = (found.error("tiles"), found.error("total_cycles"))
    return found.tensor, found.model, told.tiler, *numbers, told.label, *actual, *errors


__all__ = ["FITTED", "Foretold", "TilingEstimates", "estimate_shape", "estimate_tiling"]
