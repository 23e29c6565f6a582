"""Reports on Tiler-Swift's published figures: next to ours, with its defects and without them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Literal

from polymodel.frozen import dataclass
from polymodel.spec.faults import check_classes
from polymodel.tiling.fits.fit import Op
from polymodel.tiling.swift import compat
from polymodel.tiling.swift.compat import PublishedComparison
from polymodel.view.answer import Answer, Block, Line, Section, declared, notes
from polymodel.view.table import RATIO, Column, Table

if TYPE_CHECKING:
    from matplotlib.figure import Figure

Quantity = Literal["run", "config"]
_BARS = (
    "published_run", "published_config", "as_built_tiles", "as_built_overflowing", "as_built_run",
    "as_built_config", "corrected_tiles", "corrected_kernels", "corrected_run_all", "corrected_run_nonempty",
    "corrected_config_all", "corrected_config_nonempty",
)  # fmt: skip
_SPEED_UPS = (
    "claimed_speed_up", "as_built_speed_up", "corrected_speed_up_all", "corrected_speed_up_nonempty",
)  # fmt: skip
_REDUCTIONS = (
    "claimed_reduction", "as_built_reduction", "corrected_reduction_all", "corrected_reduction_nonempty",
)  # fmt: skip
_SHORT = ("claimed", "as built", "corrected, all", "corrected, nonempty")
NOTES = (
    "published: bars measured in the charts of Tiler-Swift, off by about 1 % of a chart's scale; its qtree is"
    " qtree+merge here",
    "as built (exact counts): with its three defects, as its program is: simple checks additions only, merges"
    " are not checked, tiles are simulated transposed",
    "corrected (exact counts): without them; all: every tile is launched, as there; nonempty: only tiles that"
    " can have a result",
    "means of savings are those of the percentages, as in the document; of nonempty tiles, where one may save"
    " nothing, what the mean ratio saves",
)


@dataclass(frozen=True, eq=False)
class TilerSwift(Answer):
    """Published figures beside ours. Printed, it is text; in a notebook, HTML.

    `comparison`: every bar and every mean. `capacity`: elements a memory holds.
    """

    comparison: PublishedComparison
    capacity: int
    told: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        remedy = "pm.tiler_swift_comparison(...) makes one"
        check_classes(self, remedy, {"comparison": PublishedComparison, "capacity": int})

    @property
    def matrices(self) -> tuple[str, ...]:
        """Names of the matrices, in the given order."""
        return tuple(dict.fromkeys(b.matrix for b in self.comparison.bars))

    @property
    def original(self) -> bool:
        """True if these are the original's six matrices and its memory, to which its claimed means refer."""
        known = {b.matrix for b in self.comparison.bars if b.published_run is not None}
        return set(self.matrices) == set(compat.MATRICES) == known

    @declared
    def means(self) -> Table:
        """Per operation and tiler, against `simple`: speed-ups of the run, configuration saved in %:
        geometric means over the matrices, beside what the original's document claims of its six."""
        columns = (
            Column("op"), Column("tiler"), *(Column(n, RATIO) for n in _SPEED_UPS),
            *(Column(n, "%") for n in _REDUCTIONS),
        )  # fmt: skip
        rows = tuple(
            (m.op, m.tiler, *(getattr(m, n) for n in (*_SPEED_UPS, *_REDUCTIONS)))
            for m in self.comparison.means
        )
        return Table("means", columns, rows, self.notes)

    @declared
    def bars(self) -> Table:
        """Per matrix, operation and tiler: cycles to run and to configure, tiles and kernels. `published_*`:
        read off the charts, missing where there is nothing to read. `as_built_*`: with the defects;
        `overflowing`: tiles that do not fit. `corrected_*`: without. `deviation`: run cycles as built over
        the published ones, less 1."""
        columns = (
            Column("matrix"), Column("op"), Column("tiler"),
            *(Column(n, "" if n.endswith(("tiles", "kernels", "overflowing")) else "cycle") for n in _BARS),
            Column("deviation", "1"),
        )  # fmt: skip
        rows = tuple(
            (b.matrix, b.op, b.tiler, *(getattr(b, n) for n in _BARS), b.deviation)
            for b in self.comparison.bars
        )
        return Table("bars", columns, rows, self.notes)

    @property
    def notes(self) -> tuple[str, ...]:
        """Explanations of the figures, and what they cannot be compared with."""
        other = "claimed figures are means over the six matrices of Tiler-Swift, 128 elements a memory; ours"
        here = f"{other} are means over what is given here"
        return (*self.told, *NOTES, *(() if self.original else (here,)))

    def plot(self, quantity: Quantity = "run", op: Op = "add") -> Figure:
        """One of the original's four charts, redrawn: bars of cycles, a panel per matrix.

        `quantity`: "run" or "config". SpecError for others, and for more than 24 matrices.
        """
        from polymodel.report.tiling.plots_swift import plot_chart

        return plot_chart(self.comparison.bars, quantity, op)

    def plot_means(self) -> Figure:
        """Speed-ups and savings that the document claims, beside ours as built and corrected."""
        from polymodel.report.tiling.plots_swift import plot_means

        return plot_means(self.comparison.means)

    def __repr__(self) -> str:
        return f"TilerSwift({', '.join(self.matrices)}; {self.capacity} elements)"

    @property
    def title(self) -> str:
        """The heading of its page."""
        return "Tiler-Swift's figures beside ours"

    def content(self, live: bool = True) -> list[Block]:
        """The claims, then run and configuration cycles of every bar."""
        result: list[Block] = []
        for title, table in sections(self):
            result += [Section(title, table, opened=table.name == "means"), Line()]
        return [*result, *notes(self.notes)]


def sections(found: TilerSwift) -> list[tuple[str, Table]]:
    """Tables for people, each with a title: the claims, then run and configuration cycles of every bar."""
    against = "against simple (geometric means)"
    return [
        (f"Speed-up of the run {against}", _against(found, _SPEED_UPS)),
        (f"Configuration cycles saved {against}, in %", _against(found, _REDUCTIONS)),
        *((title, _cycles(found, what)) for title, what in _CYCLES),
        ("Tiles, and how many of them do not fit", _tiles(found)),
    ]


def _against(found: TilerSwift, names: Sequence[str]) -> Table:
    # As ratios in print: a prefix before a per cent sign would be odd.
    return _renamed(found.table("means"), ("op", "tiler"), names, unit=RATIO)


_CYCLES = (("Cycles to run", "run"), ("Cycles to configure", "config"))


def _cycles(found: TilerSwift, what: str) -> Table:
    names = f"published_{what}", f"as_built_{what}", f"corrected_{what}_all", f"corrected_{what}_nonempty"
    return _renamed(found.table("bars"), ("matrix", "op", "tiler"), names, ("published", *_SHORT[1:]))


def _tiles(found: TilerSwift) -> Table:
    names = "as_built_tiles", "as_built_overflowing", "corrected_tiles", "corrected_kernels"
    told = "as built", "as built, overflowing", "corrected", "corrected, launched"
    return _renamed(found.table("bars"), ("matrix", "op", "tiler"), names, told)


def _renamed(
    table: Table, keys: Sequence[str], names: Sequence[str], told: Sequence[str] = _SHORT, unit: str = ""
) -> Table:
    """Return some columns of a table under shorter names; the title says what they contain."""
    columns = (*map(Column, keys), *(Column(n, unit) for n in told))
    return Table(table.name, columns, table.only(*keys, *names).rows)
