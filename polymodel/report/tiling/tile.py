"""Reports on tilings: `tile` cuts two operands, `Tiling` gives the costs."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING

from polymodel.frozen import dataclass
from polymodel.report.tiling.tables import BASE, COLUMNS, Rival, TilingTask, compared, several, summary_table
from polymodel.sparse.tensor import SparseTensor
from polymodel.tiling.cost.model import CutCosts, Launch, cost_bound, kernel_bound, lower_bound
from polymodel.tiling.fits.fit import Fit, Op, Words
from polymodel.tiling.plane.operands import Second
from polymodel.tiling.plane.pattern import Cut, Pattern
from polymodel.tiling.tilers.named import Objective
from polymodel.view.answer import Answer, Block, declared
from polymodel.view.files import Json
from polymodel.view.table import Column, Table

if TYPE_CHECKING:
    import pandas
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from polymodel.report.tiling.simulation import TileSimulation


@dataclass(frozen=True, eq=False)
class Tiling(Answer):
    """A tiling of two operands, and its costs.

    `a`, `second`: the operands; a B that is derived from A says how. `task`: the request, with which other
    tilers are run too. `costs`: tiling, counts and cycles, one number per tile. `asked`: the requested tiler;
    `tiler` is the one that made the tiles. `seconds`: the time to find the tiles. Printed, it is text; in a
    notebook, HTML.
    """

    a: SparseTensor
    second: Second
    task: TilingTask
    costs: CutCosts
    asked: str
    seconds: float
    told: tuple[str, ...] = ()

    @property
    def objective(self) -> Objective:
        """The measure by which `best` and some tilers choose."""
        return self.task.objective

    @property
    def pattern(self) -> Pattern:
        return self.costs.pattern

    @property
    def cut(self) -> Cut:
        return self.costs.cut

    @property
    def op(self) -> Op:
        return self.costs.op

    @property
    def fit(self) -> Fit:
        return self.costs.fit

    @property
    def launch(self) -> Launch:
        return self.costs.launch

    @property
    def tiler(self) -> str:
        """The tiler that made the tiles: for `best`, the one that won."""
        return self.cut.tiler

    @cached_property
    def lower_bound(self) -> int:
        """The least number of tiles with entries of any tiling of the operands (`bound`)."""
        return lower_bound(self.pattern, self.op, self.fit)

    @property
    def ratio(self) -> float | None:
        """Tiles that hold entries over the bound; None if there are no entries."""
        return self.costs.nonempty / self.lower_bound if self.lower_bound else None

    @cached_property
    def cycles_bound(self) -> int:
        """A lower bound of the cycles to configure and to run together, for any tiling (`bound`)."""
        return cost_bound(self.pattern, self.op, self.fit, self.launch)

    @property
    def notes(self) -> tuple[str, ...]:
        """How the input was changed, what does not fit, and explanations of the numbers."""
        from polymodel.report.tiling.text import notes

        return tuple(notes(self))

    @declared
    def tiles(self) -> Table:
        """One row per tile, in order of (row, col); counts are exact. `row`, `col`: its first coordinates.
        `words`: of the fullest of three buffers (A, B, a bound of the output) as DCSR. `cycles`: of its
        run, 0 where it is not `launched`. `fits`: within the capacity."""
        return tiles_table(self)

    @declared(title="Tilers beside each other")
    def summary(self) -> Table:
        """This tiling beside the other tilers, one row each. `over_bound`: nonempty tiles over the lower
        bound. `speedup`: run cycles of `simple` over those here, `config_reduction`: share of its
        configuration cycles that is saved. `search_s`: seconds that finding the tiles took."""
        return self.summary_table()

    @cached_property
    def own(self) -> Rival:
        """This tiling as one of the compared ones."""
        return Rival(self.asked, self.costs, self.seconds, chosen=True)

    @cached_property
    def _compared(self) -> dict[tuple[str, ...] | None, tuple[Rival, ...]]:
        return {}

    def rivals(self, tilers: Sequence[str] | None = None) -> tuple[Rival, ...]:
        """Return the tilings of these tilers, or of the default ones; each list is computed once."""
        names = None if tilers is None else several(tilers)
        if names not in self._compared:
            self._compared[names] = compared(self.task, self.own, names)
        return self._compared[names]

    def summary_table(self, tilers: Sequence[str] | None = None) -> Table:
        """`summary` as plain data."""
        return summary_table(self.rivals(tilers), self.lower_bound)

    def comparison(self, tilers: Sequence[str] | None = None) -> pandas.DataFrame:
        """Return `summary` with the named tilers; columns relative to `simple` are empty if it is not among
        them."""
        return self.summary_table(tilers).frame()

    def advice(self, tilers: Sequence[str] | None = None) -> tuple[str, ...]:
        """The interpretation of the figures, one line each: distance from the bound, where time is spent,
        better tilers."""
        from polymodel.report.tiling.advice import advice

        return advice(self, tilers)

    def plot(self, *, bins: int | None = None, ax: Axes | None = None) -> Axes:
        """The matrix with its tiles."""
        from polymodel.report.tiling.plots import BINS, plot_tiles
        from polymodel.report.tiling.text import tiled

        return plot_tiles(
            tiled(self.own, self.costs, self.lower_bound), bins=BINS if bins is None else bins, ax=ax
        )

    def plot_tilers(self, tilers: Sequence[str] | None = None) -> Figure:
        """The matrix with the tiles of several tilers side by side."""
        from polymodel.report.tiling.plots import plot_tilers
        from polymodel.report.tiling.text import distinct, small

        shown = distinct(self.rivals(tilers))
        return plot_tilers([small(r, r.costs) for r in shown if r.costs is not None])

    def plot_comparison(self, tilers: Sequence[str] | None = None) -> Figure:
        """Bars: kernels, configuration and run cycles of every tiler, relative to `simple`."""
        from polymodel.report.tiling.plots import plot_bars
        from polymodel.report.tiling.text import bars, headline

        least = kernel_bound if self.launch.run == "nonempty" else lower_bound
        bound = least(self.pattern, self.op, self.fit)
        return plot_bars(bars(self.rivals(tilers)), bound=bound, against=BASE, title=headline(self))

    def export(self, folder: str | PathLike[str], *, most: int = 20_000) -> Path:
        """Every launched tile as one file per operand, and `index.json`, whose path is returned.

        Refused for more than `most` tiles, SpecError where it cannot be written.
        """
        from polymodel.tiling.export import export

        return export(self.a, self.second, self.costs, folder, most=most)

    def simulate(self, *, most: int = 200, seed: int = 0) -> TileSimulation:
        """Simulate launched tiles, at most so many drawn at random, token by token on blocks of a streaming
        dataflow, and compare them with the cycles of the model. Raises Refused for tensors of other than two
        ranks."""
        from polymodel.report.tiling.simulation import TileSimulation
        from polymodel.tiling.simulate.launched import of_cut

        run = of_cut(self.costs, most, seed)
        return TileSimulation(self.pattern.name, self.op, self.costs.kernels, run)

    def as_data(self, *, live: bool = True) -> dict[str, Json]:
        """Figures and tiles as plain data with stable keys."""
        from polymodel.report.tiling.text import as_data

        return as_data(self)

    def save(
        self,
        folder: str | PathLike[str],
        *,
        live: bool = False,
        parquet: bool = False,
        command: str = "",
        tilers: Sequence[str] | None = None,
    ) -> tuple[Path, ...]:
        """Save everything to one folder, with pictures of the tiles, the tilers and their comparison as
        SVG."""
        from polymodel.report.tiling.files import save

        return save(self, folder, tilers, command)

    @property
    def title(self) -> str:
        """The heading of its page."""
        return f"Tiles of {self.pattern.name}"

    def content(self, live: bool = True) -> list[Block]:
        """What was cut, and the figures."""
        from polymodel.report.tiling.text import tiling_blocks

        return tiling_blocks(self)

    def head(self, live: bool = True) -> list[Block]:
        """What was cut, and the figures, with all tilers next to it."""
        from polymodel.report.tiling.text import compared_blocks

        return compared_blocks(self)

    def __repr__(self) -> str:
        c = self.costs
        return (
            f"Tiling({self.pattern.name}: {self.op}, {self.fit.capacity} {self.fit.unit}, {self.tiler}: "
            f"{c.tiles:,} tiles, {c.kernels:,} kernels, {c.total_cycles:,} cycles)"
        )

    def _repr_html_(self) -> str:
        from polymodel.view.html import fragment

        return fragment(self.head())


def tiles_table(tiling: Tiling) -> Table:
    """Every tile with its contents and costs."""
    c, rects = tiling.costs, tiling.cut.rects
    held = Words(1).loads(c.counts, rects, tiling.op)
    arrays = (
        rects.row, rects.col, rects.height, rects.width, c.counts.nnz_a, c.counts.nnz_b, held, c.cycles,
        c.fits, c.runs,
    )  # fmt: skip
    units = {"words": "word", "cycles": "cycle"}
    columns = tuple(Column(n, units.get(n, "")) for n in COLUMNS)
    return Table("tiles", columns, tuple(zip(*(a.tolist() for a in arrays), strict=True)))
