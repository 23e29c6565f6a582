"""Tilings as estimated by density models: without data, or next to the tilings of a tensor."""

from __future__ import annotations

from typing import TYPE_CHECKING

from polymodel.frozen import dataclass
from polymodel.report.tiling.tables import room
from polymodel.spec.faults import check_classes
from polymodel.tiling.cost.model import CutCosts
from polymodel.tiling.estimate import Estimate
from polymodel.tiling.estimate.fitted import FITTED
from polymodel.tiling.fits.fit import Fit, Op
from polymodel.view.answer import Answer, Block, Line, Section, declared, notes
from polymodel.view.table import Cell, Column, Table

if TYPE_CHECKING:
    from matplotlib.axes import Axes

TILERS = ("simple", "qtree", "btree", "strips", "columns")
_NOTE = "estimates are expected values of the models; actual figures are exact counts of the data"


@dataclass(frozen=True, eq=False)
class Foretold:
    """One estimate: the costs that a model of a tensor predicts for a tiler, and the costs on the data, if
    any."""

    tensor: str
    model: str
    estimate: Estimate
    actual: CutCosts | None

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
    """Estimated tilings: `frame` is a DataFrame with one row per model and tiler, `notes` warn of misleading
    figures.

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
        """How the estimates were computed, what they leave out, and which ones were refused."""
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
        result: list[Block] = []
        for title in dict.fromkeys(f.tensor for f in self.found):
            head = f"{title}: {self.op}, {room(self.fit)}"
            result += [Section(head, shown.of(title), opened=True), Line()]
        return [*result, *notes(self.notes)]

    def plot(self, quantity: str = "tiles", *, ax: Axes | None = None) -> Axes:
        """Bars of the figure that each model predicts, tiler by tiler, next to the actual figure."""
        from polymodel.report.tiling.plots import plot_estimates

        return plot_estimates(self.found, quantity, task=f"{self.op}, {room(self.fit)}", ax=ax)


def _row(found: Foretold) -> tuple[Cell, ...]:
    told, real = found.estimate, found.actual
    actual: tuple[Cell, ...] = (None, None) if real is None else (real.tiles, real.total_cycles)
    numbers = (told.tiles, told.kernels, told.config_cycles, told.run_cycles, told.total_cycles)
    errors = (found.error("tiles"), found.error("total_cycles"))
    return found.tensor, found.model, told.tiler, *numbers, told.label, *actual, *errors


__all__ = ["FITTED", "Foretold", "TilingEstimates"]
