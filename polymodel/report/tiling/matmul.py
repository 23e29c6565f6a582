"""Tiled multiplications as users see them: `tile_matmul` cuts Z = A B, `MatmulTiling` says what moves."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from html import escape
from math import inf
from pathlib import Path
from typing import TYPE_CHECKING

from polymodel.errors import Diagnostic, SpecError
from polymodel.governor import soft, until
from polymodel.report.page import CSS, noted
from polymodel.report.table import Table
from polymodel.report.tiling.inputs import Source, factor, operand
from polymodel.report.tiling.matmul_inputs import (
    Named,
    buffers_of,
    check_figures,
    grid_of,
    launch_of,
    orders_of,
    shape_of,
    strategy_of,
)
from polymodel.report.tiling.matmul_tables import (
    candidates_table,
    orders_table,
    pieces_table,
    summary_table,
    tiles_table,
)
from polymodel.spec.faults import suggestion
from polymodel.spec.output import write_text
from polymodel.spec.plain import check_classes, plainly
from polymodel.tiling.cost.model import Launch
from polymodel.tiling.matmul.cost import Machine
from polymodel.tiling.matmul.product import Product, product_of
from polymodel.tiling.matmul.search import STRATEGIES, Candidate, given_tiles, search
from polymodel.tiling.matmul.shapes import Asked, Objective
from polymodel.tiling.plane.operands import Transposed

if TYPE_CHECKING:
    import pandas
    from matplotlib.axes import Axes

TABLES = ("summary", "orders", "tiles", "candidates", "pieces")
SEARCH = 30.0  # seconds
_MOST = 12  # candidates that are printed
_EXACT = (
    "words, fetches, pairs, multiplies: exact counts of the patterns (values all one, nothing cancels); "
    "cycles: a model, max(multiplies / PEs, words / bandwidth) + launches x (configuration + ramp)"
)


def tile_matmul(
    a: Source,
    b: Source | Transposed | None = None,
    *,
    tile: Sequence[int] | None = None,
    capacity: int | Sequence[int | None] | None = None,
    strategy: Named | None = None,
    order: str | Sequence[str] | None = None,
    objective: Objective = "time",
    launch: Launch | None = None,
    pes: int = 1,
    bandwidth: float = 1.0,
    overbook: float = 0.1,
    grid: Sequence[Sequence[int]] | None = None,
    time_limit: float | None = None,
    names: Sequence[str] | None = None,
    progress: Callable[[str], None] | None = None,
) -> MatmulTiling:
    """Cut the product Z = A B into tiles that are reused, and say what moves and how long it takes.

    `a`, `b`: files, SparseTensors or SciPy matrices; without b A times A, with pm.Transposed() A times its
    transposed. Either `tile`, sizes (Ti, Tk, Tj) along i, k and j; or `capacity`, words of the buffer of each
    of A, B and Z, or three of these (None: unbounded), and a `strategy`: uniform, panels (of rows), dynamic,
    overbooked (a share `overbook` of the tiles may exceed the buffer), or search, which compares all by
    `objective`: words or time. `order`: loops, outermost first, e.g. "ikj", or several (all six). `pes`,
    `bandwidth`: multiplies and words a cycle. `grid`: sizes that are tried along i, k and j. A search that
    takes longer than `time_limit` seconds (30) says what it left; if it is given, whatever else takes longer
    raises TimeUp; `progress` is told what is being done.
    `names`: of the ranks of files, as for `tile`.

    Raises SpecError with all faults of the input; Refused where nothing fits, or the product is too large.
    """
    made = factor(b)
    machine = Machine(pes, bandwidth, launch_of(launch))
    chosen = strategy_of(strategy, tile, capacity)
    orders = orders_of(order)
    overbook, time_limit = plainly((overbook, time_limit))
    check_figures(objective, overbook, time_limit)
    buffers, sizes = buffers_of(capacity), grid_of(grid)
    shape = None if tile is None else shape_of(tile)
    first, told = operand(a, "A", names, "tile_matmul")
    second, more = (
        (made, ())
        if made is None or isinstance(made, Transposed)
        else operand(made, "B", names, "tile_matmul")
    )
    end, notes = soft(time_limit or SEARCH), (*told, *more)
    with until(inf if time_limit is None else end):
        product = product_of(first, second, progress)
    asked = Asked(buffers, machine, objective, orders, overbook, sizes, end, progress)
    if shape is not None:
        with until(inf if time_limit is None else end):
            best = given_tiles(product, shape, asked, chosen == "overbooked")
        return MatmulTiling(product, asked, best, (best,), notes)
    strategies = STRATEGIES if chosen == "search" else (chosen,)
    found = search(product, asked, strategies, overbook)
    return MatmulTiling(product, asked, found.best, found.candidates, (*notes, *found.notes))


@dataclass(frozen=True, eq=False)
class MatmulTiling:
    """A multiplication in tiles. `best`: what was asked for, or found; `candidates`: all that were counted.

    Tables are DataFrames; `table(name)` gives them as plain data.
    """

    product: Product
    asked: Asked
    best: Candidate
    found: tuple[Candidate, ...]
    told: tuple[str, ...] = field(default_factory=tuple)

    def __post_init__(self) -> None:
        remedy = "pm.tile_matmul(...) makes one"
        check_classes(self, remedy, {"product": Product, "best": Candidate, "found": tuple})

    @property
    def words(self) -> int:
        """Words moved, in the best order."""
        return self.best.traffic.words

    @property
    def cycles(self) -> float:
        """Modelled time of the best order."""
        return self.best.cycles

    @property
    def compulsory_words(self) -> int:
        """What A and B hold that meets, read once, and Z, written once, without headers: a lower bound."""
        return self.product.compulsory_words

    @property
    def ratio(self) -> float:
        """Words moved over the lower bound; 1 if there is nothing to move."""
        return self.words / self.compulsory_words if self.compulsory_words else 1.0

    @property
    def fits(self) -> bool:
        """True if no tile exceeds its buffer, or what does is streamed (overbooked)."""
        return self.best.fits

    @cached_property
    def _tables(self) -> dict[str, Table]:
        return {}

    def table(self, name: str) -> Table:
        """One of `TABLES` as plain data; SpecError for another name."""
        if name not in TABLES:
            raise SpecError([Diagnostic(f"no table {name}", suggestion(name, TABLES, "tables"))])
        if name not in self._tables:
            self._tables[name] = _MADE[name](self.product, self.asked, self.best, self.found)
        return self._tables[name]

    @property
    def summary(self) -> pandas.DataFrame:
        """Multiplies, pairs, words and cycles, and the lower bound."""
        return self.table("summary").frame()

    @property
    def orders(self) -> pandas.DataFrame:
        """Fetches, words and cycles of every order asked for, under the best tiles."""
        return self.table("orders").frame()

    @property
    def tiles(self) -> pandas.DataFrame:
        """Of A, B and Z: entries, words, nonempty tiles, words of all and of the fullest tile, capacity."""
        return self.table("tiles").frame()

    @property
    def candidates(self) -> pandas.DataFrame:
        """Every tiling that was counted, best first."""
        return self.table("candidates").frame()

    @property
    def pieces(self) -> pandas.DataFrame:
        """What is launched, one row each: pairs of uniform tiles (by i, j, k), panels, or pairs of ranges."""
        return self.table("pieces").frame()

    @property
    def notes(self) -> tuple[str, ...]:
        """What the figures are, and what to know beside them."""
        found = [_EXACT, *self.told]
        if self.best.traffic.streamed:
            found.append(
                "overbooked: some tiles exceed their buffer, and what exceeds it is moved at every use"
            )
        if not self.best.fits:
            found.append(f"some tiles exceed their buffers: {'/'.join(map(str, self.best.over))} of A/B/Z")
        return tuple(found)

    def to_csv(self, folder: str | Path) -> list[Path]:
        """Every table as NAME.csv in a folder, which is made if need be."""
        from polymodel.errors import writing

        written = []
        with writing(folder):
            base = Path(folder)
            base.mkdir(parents=True, exist_ok=True)
            for name in TABLES:
                file = base / f"{name}.csv"
                write_text(file, self.table(name).to_csv())
                written.append(file)
        return written

    def plot(self, ax: Axes | None = None) -> Axes:
        """Words of A, B and Z per order, stacked."""
        from polymodel.report.tiling.plots_matmul import plot_orders

        return plot_orders(self, ax=ax)

    def plot_strategies(self, ax: Axes | None = None) -> Axes:
        """The best of each strategy beside each other."""
        from polymodel.report.tiling.plots_matmul import plot_strategies

        return plot_strategies(self, ax=ax)

    def __repr__(self) -> str:
        moved = f"{self.words:,} words, {self.ratio:.3g} x the least"
        return f"MatmulTiling({self.best.strategy} {self.best.tile}, {self.best.traffic.order}: {moved})"

    def __str__(self) -> str:
        return "\n".join([self._headline(), *self._lines(), *(f"note: {n}" for n in self.notes)]) + "\n"

    def _headline(self) -> str:
        i, k, j = self.product.extents
        factors = f"{self.product.name} ({i:,} x {k:,}) times {self.product.second} ({k:,} x {j:,})"
        return f"{factors}: {self.best.strategy}, {self.best.tile}"

    def _shown(self) -> list[tuple[str, Table]]:
        shown = [(name, self.table(name)) for name in ("summary", "tiles", "orders")]
        if len(self.found) > 1:
            full = self.table("candidates")
            many = len(full.rows)
            title = f"candidates (the best {_MOST} of {many})" if many > _MOST else "candidates"
            shown.append((title, Table(full.name, full.columns, full.rows[:_MOST])))
        return shown

    def _lines(self) -> list[str]:
        return [line for title, table in self._shown() for line in ("", title, table.text(), "")]

    def _repr_html_(self) -> str:
        parts = "".join(
            f'<h4>{escape(title)}</h4><div class="wide">{t.html()}</div>' for title, t in self._shown()
        )
        notes = noted(self.notes)
        return f'<style>{CSS}</style><div class="pm"><p>{escape(self._headline())}</p>{parts}{notes}</div>'


_MADE: dict[str, Callable[[Product, Asked, Candidate, Sequence[Candidate]], Table]] = {
    "summary": summary_table,
    "orders": orders_table,
    "tiles": tiles_table,
    "candidates": candidates_table,
    "pieces": pieces_table,
}
