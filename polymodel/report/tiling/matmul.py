"""Reports on tiled multiplications: `tile_matmul` cuts Z = A B, `MatmulTiling` gives the traffic."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import field
from typing import TYPE_CHECKING

import numpy as np

from polymodel.errors import Refused
from polymodel.frozen import dataclass
from polymodel.spec.faults import check_classes
from polymodel.tiling.matmul.dynamic import Dynamic
from polymodel.tiling.matmul.panels import RowPanels
from polymodel.tiling.matmul.product import PatternProduct
from polymodel.tiling.matmul.search import TilingCandidate
from polymodel.tiling.matmul.shapes import UNBOUNDED, TilingSearch
from polymodel.tiling.matmul.streams import kind_of, overhead, product_cycles, streamed_cycles
from polymodel.tiling.matmul.uniform import UniformTiles
from polymodel.tiling.matmul.walk import OrderTraffic
from polymodel.tiling.plane.pattern import Ints
from polymodel.view.answer import Answer, Block, Line, Section, declared, notes
from polymodel.view.table import RATIO, Cell, Column, Table

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from polymodel.report.tiling.simulation import TileSimulation

_LISTED = 2 * 10**6  # rows of a table that are still made
_WORDS = ("A_read_words", "B_read_words", "Z_read_words", "Z_write_words", "total_words")
_MOST = 12  # candidates that are printed
_EXACT = (
    "words, fetches, pairs, multiplies: exact counts of the patterns (values all one, nothing cancels); "
    "cycles: a model, max("
)
_TOKENS = "multiplies / PEs, words / bandwidth) + launches x (configuration + ramp)"
_BLOCKS = "entries, ends and waits of streams, words / bandwidth) + launches x (configuration + ramp)"


@dataclass(frozen=True, eq=False)
class MatmulTiling(Answer):
    """A multiplication in tiles. `best`: the requested tiling, or the best one found; `candidates`: all
    tilings that were counted.

    Tables are DataFrames; `table(name)` gives them as plain data.
    """

    product: PatternProduct
    asked: TilingSearch
    best: TilingCandidate
    found: tuple[TilingCandidate, ...]
    told: tuple[str, ...] = field(default_factory=tuple)

    def __post_init__(self) -> None:
        remedy = "pm.tile_matmul(...) makes one"
        check_classes(self, remedy, {"product": PatternProduct, "best": TilingCandidate, "found": tuple})

    @property
    def words(self) -> int:
        """Words moved, in the best loop order."""
        return self.best.traffic.words

    @property
    def cycles(self) -> float:
        """Modelled time of the best loop order."""
        return self.best.cycles

    @property
    def compulsory_words(self) -> int:
        """Words of the entries of A and B that contribute to a product, read once, and of Z, written once,
        without headers: a lower bound."""
        return self.product.compulsory_words

    @property
    def ratio(self) -> float:
        """Words moved over the lower bound; 1 if there is nothing to move."""
        return self.words / self.compulsory_words if self.compulsory_words else 1.0

    @property
    def fits(self) -> bool:
        """True if no tile exceeds its buffer, or the excess is streamed (overbooked)."""
        return self.best.fits

    @declared
    def summary(self) -> Table:
        """Multiplies, pairs, words and cycles, and the lower bound."""
        return summary_table(self.product, self.asked, self.best)

    @declared
    def orders(self) -> Table:
        """Fetches, words and cycles of every requested loop order, under the best tiles."""
        return orders_table(self.product, self.asked, self.best)

    @declared
    def tiles(self) -> Table:
        """The tiles of A, B and Z: entries, words, nonempty tiles, words of all and of the fullest tile,
        capacity."""
        return tiles_table(self.product, self.asked, self.best)

    @declared
    def candidates(self) -> Table:
        """Every tiling that was counted, best first."""
        return candidates_table(self.product, self.found)

    @declared
    def pieces(self) -> Table:
        """The launches: pairs of uniform tiles (by i, j, k), panels, or pairs of ranges."""
        return pieces_table(self.best)

    @property
    def title(self) -> str:
        """The heading: what is multiplied, and how it is cut."""
        i, k, j = self.product.extents
        factors = f"{self.product.name} ({i:,} x {k:,}) times {self.product.second} ({k:,} x {j:,})"
        return f"{factors}: {self.best.strategy}, {self.best.tile}"

    @property
    def notes(self) -> tuple[str, ...]:
        """Explanations of the figures, and remarks."""
        blocks = self.asked.machine.launch.cycles == "blocks"
        result = [_EXACT + (_BLOCKS if blocks else _TOKENS), *self.told]
        if self.best.traffic.streamed:
            result.append(
                "overbooked: some tiles exceed their buffer, and what exceeds it is moved at every use"
            )
        if not self.best.fits:
            result.append(f"some tiles exceed their buffers: {'/'.join(map(str, self.best.over))} of A/B/Z")
        return tuple(result)

    def plot(self, ax: Axes | None = None) -> Axes:
        """Words of A, B and Z per order, stacked."""
        from polymodel.report.tiling.plots import plot_orders

        return plot_orders(self, ax=ax)

    def plot_strategies(self, ax: Axes | None = None) -> Axes:
        """Bars of the best tiling of each strategy."""
        from polymodel.report.tiling.plots import plot_strategies

        return plot_strategies(self, ax=ax)

    def simulate(self, *, most: int = 200, seed: int = 0) -> TileSimulation:
        """Simulate launches, at most so many drawn at random, token by token on blocks of a streaming
        dataflow with one multiplier, row by row of A, and compare them with the multiplies and the ramp of
        the model."""
        from polymodel.report.tiling.simulation import TileSimulation
        from polymodel.tiling.simulate.launched import of_product

        run = of_product(self.best.source, self.asked.machine.launch, most, seed)
        name = f"{self.product.name} times {self.product.second}"
        return TileSimulation(name, kind_of(self.product), self.best.launches, run)

    def __repr__(self) -> str:
        moved = f"{self.words:,} words, {self.ratio:.3g} x the least"
        return f"MatmulTiling({self.best.strategy} {self.best.tile}, {self.best.traffic.order}: {moved})"

    def content(self, live: bool = True) -> list[Block]:
        """Totals, tiles and loop orders, the best of the compared tilings, and explanations of the
        figures."""
        result: list[Block] = [Line(self.title)]
        for title, table in self._shown():
            result += [Line(), Section(title, table, opened=True), Line()]
        return [*result, *notes(self.notes)]

    def _shown(self) -> list[tuple[str, Table]]:
        shown = [(name, self.table(name)) for name in ("summary", "tiles", "orders")]
        if len(self.found) > 1:
            full = self.table("candidates")
            many = len(full.rows)
            title = f"candidates (the best {_MOST} of {many})" if many > _MOST else "candidates"
            shown.append((title, full.first(_MOST)))
        return shown


def summary_table(product: PatternProduct, asked: TilingSearch, best: TilingCandidate) -> Table:
    """One quantity per row, with its unit and its certainty label."""
    source, t = best.source, best.traffic
    rows: list[tuple[Cell, ...]] = [("multiplies", product.multiplies, "multiplies", "exact")]
    if isinstance(source, UniformTiles):
        rows += [
            ("pairs of tiles, dense", source.dense_pairs, "pairs", "exact"),
            ("candidate pairs", source.candidates, "pairs", "exact"),
            ("effectual pairs", source.effectual, "pairs", "exact"),
            ("entries of partial products", source.partial_outputs, "entries", "exact"),
        ]
    least = product.compulsory_words
    rows += [
        ("launches", best.launches, "kernels", "exact"),
        ("order of the loops", t.order, "", ""),
        ("words moved", t.words, "words", "exact"),
        ("of these for words beyond a buffer", t.streamed, "words", "exact"),
        ("least words (each used word once)", least, "words", "bound"),
        ("words / least", round(t.words / least, 4) if least else 1.0, "", "bound"),
        ("configuration and ramps", overhead(asked.machine, source, best.launches), "cycles", "model"),
        ("all", round(best.cycles, 3), "cycles", "model"),
    ]
    if asked.machine.launch.cycles == "blocks":
        rows.insert(-2, ("entries, ends and waits of streams", streamed_cycles(source), "cycles", "model"))
    columns = Column("quantity"), Column("value", "element"), Column("unit"), Column("label")
    return Table("summary", columns, tuple(rows))


def orders_table(product: PatternProduct, asked: TilingSearch, best: TilingCandidate) -> Table:
    """Every requested loop order, under the best tiles; panels and dynamic tiles have a single order."""
    traffic = [best.traffic]
    if isinstance(best.source, UniformTiles):
        streamed = asked.buffers if best.strategy == "overbooked" else None
        traffic = [
            best.traffic if order == best.traffic.order else best.source.traffic(order, streamed)
            for order in asked.orders
        ]
    columns = (
        Column("order"), Column("A_fetches", "element"), Column("B_fetches", "element"),
        Column("Z_visits", "element"), *(Column(name, "element") for name in _WORDS),
        Column("streamed_words", "element"), Column("ratio", RATIO), Column("cycles", "cycle"),
    )  # fmt: skip
    return Table("orders", columns, tuple(_order(product, asked, best, t) for t in traffic))


def _order(
    product: PatternProduct, asked: TilingSearch, best: TilingCandidate, t: OrderTraffic
) -> tuple[Cell, ...]:
    cycles = product_cycles(asked.machine, best.source, t.words, best.launches)
    words = t.a_read, t.b_read, t.z_read, t.z_write, t.words
    return t.order, t.a_fetches, t.b_fetches, t.z_visits, *words, t.streamed, _ratio(product, t), cycles


def _ratio(product: PatternProduct, t: OrderTraffic) -> float:
    return t.words / product.compulsory_words if product.compulsory_words else 1.0


def tiles_table(product: PatternProduct, asked: TilingSearch, best: TilingCandidate) -> Table:
    """A, B and Z: how they are cut, and how full the buffers get."""
    columns = (
        Column("tensor"), Column("nnz", "element"), Column("words", "element"), Column("tiles", "element"),
        Column("tiled_words", "element"), Column("largest_words", "element"),
        Column("capacity_words", "element"), Column("over", "element"),
    )  # fmt: skip
    cut = _cut(best)
    rows = []
    for at, (name, whole) in enumerate(zip("ABZ", (product.a, product.b, product.z), strict=True)):
        count, total = cut[at]
        room = None if asked.buffers[at] >= UNBOUNDED else asked.buffers[at]
        over = None if room is None else best.over[at]
        rows.append((name, whole.nnz, whole.words, count, total, best.largest[at], room, over))
    return Table("tiles", columns, tuple(rows))


def _cut(best: TilingCandidate) -> list[tuple[int, int]]:
    """Return the number of different tiles of A, B and Z with entries, and their total words."""
    source = best.source
    if isinstance(source, UniformTiles):
        return [(side.count, side.total) for side in (source.a, source.b, source.z)]
    if isinstance(source, RowPanels):
        rows = source.product.b.row_nnz
        whole = int(np.count_nonzero(rows)), int(2 * rows.sum() + 2 * np.count_nonzero(rows))
        a, z = ((int(np.count_nonzero(x)), int(x.sum())) for x in (source.a, source.z))
        return [a, whole, z]
    at = source.column
    names = (("outer", "k", "s"), ("k", "inner", "v"), ("outer", "inner", "after"))
    s, v, z = (
        _different([at(one), at(f"{one}_end"), at(two), at(f"{two}_end")], at(words))
        for one, two, words in names
    )
    return [s, v, z] if source.stationary == "A" else [v, s, z]


def _different(ranges: list[Ints], words: Ints) -> tuple[int, int]:
    """Return the number of different rectangles, and the sum of the most words of each."""
    if not words.size:
        return 0, 0
    order = np.lexsort([words, *ranges])
    table = np.stack(ranges)[:, order]
    last = np.append((table[:, 1:] != table[:, :-1]).any(axis=0), True)
    return int(np.count_nonzero(last)), int(words[order][last].sum())


def candidates_table(product: PatternProduct, found: Sequence[TilingCandidate]) -> Table:
    """All tilings that were counted, best first."""
    columns = (
        Column("strategy"), Column("tile"), Column("order"), Column("launches", "element"),
        Column("total_words", "element"), Column("ratio", RATIO), Column("cycles", "cycle"),
        Column("A_largest_words", "element"), Column("B_largest_words", "element"),
        Column("Z_largest_words", "element"), Column("A_over", "element"), Column("B_over", "element"),
        Column("Z_over", "element"), Column("fits"),
    )  # fmt: skip
    rows = tuple(
        (
            c.strategy, c.tile, c.traffic.order, c.launches, c.traffic.words, _ratio(product, c.traffic),
            c.cycles, *c.largest, *c.over, c.fits,
        )
        for c in found
    )  # fmt: skip
    return Table("candidates", columns, rows)


def pieces_table(best: TilingCandidate) -> Table:
    """The launches: pairs of tiles (uniform, dynamic; in order of launch) or panels."""
    if best.launches > _LISTED:
        message = f"{best.launches:,} launches are too many for a table"
        raise Refused(message, "look at the tables of sums", code="too-large")
    source = best.source
    if isinstance(source, UniformTiles):
        p = source.pairs
        return _numbered(
            ("i_tile", "k_tile", "j_tile", "A_words", "B_words", "Z_words"), (p.i, p.k, p.j, p.a, p.b, p.z)
        )
    if isinstance(source, RowPanels):
        names = ("row", "rows", "A_words", "B_words", "Z_words", "B_rows")
        columns = (source.begins[:-1], source.heights, source.a, source.b, source.z, source.b_rows)
        return _numbered(names, columns)
    return _ranges(source)


def _ranges(source: Dynamic) -> Table:
    at = source.column
    one, two = ("i", "j") if source.stationary == "A" else ("j", "i")
    first, other = ("A", "B") if source.stationary == "A" else ("B", "A")
    names = (one, f"{one}_end", "k", "k_end", two, f"{two}_end", f"{first}_words", f"{other}_words")
    own = ("outer", "outer_end", "k", "k_end", "inner", "inner_end", "s", "v", "before", "after")
    return _numbered((*names, "Z_before_words", "Z_words"), tuple(at(name) for name in own))


def _numbered(names: tuple[str, ...], columns: tuple[Ints, ...]) -> Table:
    rows = tuple(zip(*(column.tolist() for column in columns), strict=True))
    return Table("pieces", tuple(Column(name, "element") for name in names), rows)


TABLES = tuple(MatmulTiling.declared)
