"""Reports on the tuning loop between tiler and model: every step, its time and saving, the best tiles."""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING

from polymodel.frozen import dataclass
from polymodel.quantities import engineering
from polymodel.report.tiling.tables import UNITS, room
from polymodel.sparse.tensor import SparseTensor
from polymodel.spec.faults import check_classes
from polymodel.tiling.cost.model import CutCosts
from polymodel.tiling.fits.fit import Stored
from polymodel.tiling.plane.operands import Second
from polymodel.tiling.plane.pattern import Cut, Pattern
from polymodel.tiling.tuning.tune import Step, Tuned
from polymodel.view.answer import Answer, Block, Facts, Line, Section, declared, notes
from polymodel.view.table import Column, Table

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from polymodel.report.tiling.tile import Tiling

_UNTRIED = "guillotine cuts are not tried here: tiler best (pm.tile, no --tune) looks at them too"


@dataclass(frozen=True, eq=False)
class Tuning(Answer):
    """The result of the tuning loop. `a`, `second`: the operands. `tuned`: its steps, and the costs of the
    best tiling."""

    a: SparseTensor
    second: Second
    pattern: Pattern
    tuned: Tuned
    told: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        remedy = "pm.tune_tiling(...) makes one"
        check_classes(self, remedy, {"a": SparseTensor, "tuned": Tuned})

    @property
    def costs(self) -> CutCosts:
        """Costs of the best tiling."""
        return self.tuned.costs

    @property
    def cut(self) -> Cut:
        """The best tiling."""
        return self.costs.cut

    @property
    def chosen(self) -> Step:
        """The step that found the best tiling."""
        return self.tuned.chosen

    @property
    def bound(self) -> int:
        """A lower bound of the objective over all tilings (`bound`)."""
        return self.tuned.bound

    @property
    def ended(self) -> str:
        """The reason why the loop ended."""
        return self.tuned.ended

    @property
    def seconds(self) -> float:
        """The time of tiler and model, over all steps."""
        return self.tuned.seconds

    @property
    def seconds_saved(self) -> float:
        """The time that one run saves compared with the tiling of the first step, the binary tree."""
        return self.tuned.saved(self.tuned.steps[-1])

    @property
    def break_even(self) -> int | None:
        """The number of runs after which the time of the loop beyond its first step is saved; None: never."""
        return self.tuned.break_even

    @declared
    def steps(self) -> Table:
        """One row per turn of the loop. `figure`: what the objective counts, `best`: the least so far; both
        exact counts of the data. `tiler_s`: seconds that cutting and costing took, `saved_s`: what one run
        of the best so far takes less than one of the first step."""
        cycles = ("config_cycles", "run_cycles", "total_cycles")
        columns = (
            Column("step"), Column("proposal"), Column("why"), Column("fits"), Column("tiles"),
            Column("kernels"), *(Column(c, "cycle") for c in cycles), Column("figure"), Column("best"),
            Column("improved"), Column("tiler_s", "s"), Column("saved_s", "s"), Column("label"),
        )  # fmt: skip
        rows = tuple(
            (
                s.number, s.proposal.name, s.why, s.fits, s.tiles, s.kernels, s.config_cycles, s.run_cycles,
                s.total_cycles, s.figure if s.fits else None, s.best, s.improved, s.seconds,
                self.tuned.saved(s), "exact",
            )
            for s in self.tuned.steps
        )  # fmt: skip
        return Table("tuning", columns, rows, self.notes)

    @cached_property
    def tiling(self) -> Tiling:
        """Return the best tiling, as `tile` does."""
        from polymodel.report.tiling.tables import TilingTask
        from polymodel.report.tiling.tile import Tiling

        c = self.costs
        task = TilingTask(self.pattern, c.op, c.fit, c.launch, self.tuned.objective)
        return Tiling(self.a, self.second, task, c, c.cut.tiler, self.seconds, self.told)

    @property
    def notes(self) -> tuple[str, ...]:
        """A comparison of the time spent with the time saved, and what was not tried."""
        told = (*self.told, f"the loop ended: {self.ended}", _paying(self.tuned))
        return told if self.chosen.figure <= self.bound else (*told, _UNTRIED)

    def plot(self, ax: Axes | None = None) -> Axes:
        """The objective at every step, the best so far, the bound, and the proposals that were
        improvements."""
        from polymodel.report.tiling.plots import plot_tuning

        return plot_tuning(self, ax)

    def __repr__(self) -> str:
        figure = f"{self.chosen.figure:,} {UNITS[self.tuned.objective]}"
        return f"Tuning({self.pattern.name}: {figure} by {self.cut.tiler}, {len(self.tuned.steps)} steps)"

    @property
    def title(self) -> str:
        """The heading of its page."""
        return f"Tuning of {self.pattern.name}"

    def content(self, live: bool = True) -> list[Block]:
        """The figures, and every step."""
        shown = ("step", "proposal", "tiles", "kernels", "figure", "best", "tiler_s", "saved_s")
        steps = Section("", self.table("steps").bare().only(*shown), opened=True)
        return [Facts(headline(self)), Line(), steps, *notes(self.notes)]


def headline(found: Tuning) -> list[tuple[str, str]]:
    """Return the main figures."""
    c, first, unit = found.costs, found.tuned.steps[0], UNITS[found.tuned.objective]
    # As `tile` has it: such bounds know of what both operands hold, or of the bits of entries, alone.
    loose = " (a loose bound)" if c.op == "multiply" or isinstance(c.fit, Stored) else ""
    over = f"; this is {found.chosen.figure / found.bound:.3f} x that" if found.bound else ""
    return [
        ("matrix", f"{found.pattern.name} and {found.pattern.second}, {c.op}, {room(c.fit)}"),
        (
            "best",
            f"{found.chosen.figure:,} {unit} by {c.cut.tiler}: {c.tiles:,} tiles, {c.kernels:,} kernels",
        ),
        ("first", f"{first.figure:,} by {first.proposal.name}"),
        ("bound", f"{found.bound:,}{loose}{over}"),
    ]


def _paying(tuned: Tuned) -> str:
    spent = f"tiler and model took {engineering(tuned.seconds, 's')} for {len(tuned.steps)} steps"
    gain = tuned.saved(tuned.steps[-1])
    if gain <= 0:
        return f"{spent}; no run gets shorter than with {tuned.steps[0].proposal.name}, the first"
    runs = tuned.break_even
    than = f"{engineering(gain, 's')} less than with {tuned.steps[0].proposal.name}, the first"
    pays = f"the loop pays after {runs:,} run{'s' if runs != 1 else ''} on this pattern"
    return f"{spent}; each run takes {than}: {pays}"
