"""The tables of a tiled multiplication, as plain data."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from polymodel.errors import Refused
from polymodel.report.table import RATIO, Cell, Column, Table
from polymodel.report.tiling.matmul_inputs import UNBOUNDED
from polymodel.tiling.matmul.dynamic import Dynamic
from polymodel.tiling.matmul.panels import Panels
from polymodel.tiling.matmul.product import Product
from polymodel.tiling.matmul.search import Candidate
from polymodel.tiling.matmul.shapes import Asked
from polymodel.tiling.matmul.uniform import Uniform
from polymodel.tiling.matmul.walk import Traffic
from polymodel.tiling.plane.pattern import Ints

_LISTED = 2 * 10**6  # rows of a table that are still made
_WORDS = ("A_read_words", "B_read_words", "Z_read_words", "Z_write_words", "total_words")


def summary_table(product: Product, asked: Asked, best: Candidate, _: Sequence[Candidate]) -> Table:
    """One quantity a row, with its unit and how certain it is."""
    source, t = best.source, best.traffic
    rows: list[tuple[Cell, ...]] = [("multiplies", product.multiplies, "multiplies", "exact")]
    if isinstance(source, Uniform):
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
        ("of these for what exceeds a buffer", t.streamed, "words", "exact"),
        ("least words (what is used, once)", least, "words", "bound"),
        ("words / least", round(t.words / least, 4) if least else 1.0, "", "bound"),
        ("configuration and ramps", asked.machine.overhead(best.launches), "cycles", "model"),
        ("all", round(best.cycles, 3), "cycles", "model"),
    ]
    columns = Column("quantity"), Column("value", "element"), Column("unit"), Column("label")
    return Table("summary", columns, tuple(rows))


def orders_table(product: Product, asked: Asked, best: Candidate, _: Sequence[Candidate]) -> Table:
    """Every order asked for, under the best tiles; panels and dynamic tiles have one order of their own."""
    traffic = [best.traffic]
    if isinstance(best.source, Uniform):
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


def _order(product: Product, asked: Asked, best: Candidate, t: Traffic) -> tuple[Cell, ...]:
    cycles = asked.machine.cycles(product.multiplies, t.words, best.launches)
    words = t.a_read, t.b_read, t.z_read, t.z_write, t.words
    return t.order, t.a_fetches, t.b_fetches, t.z_visits, *words, t.streamed, _ratio(product, t), cycles


def _ratio(product: Product, t: Traffic) -> float:
    return t.words / product.compulsory_words if product.compulsory_words else 1.0


def tiles_table(product: Product, asked: Asked, best: Candidate, _: Sequence[Candidate]) -> Table:
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


def _cut(best: Candidate) -> list[tuple[int, int]]:
    """Different tiles of A, B and Z that hold entries, and their words together."""
    source = best.source
    if isinstance(source, Uniform):
        return [(side.count, side.total) for side in (source.a, source.b, source.z)]
    if isinstance(source, Panels):
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
    """How many different rectangles, and the most words that each has, together."""
    if not words.size:
        return 0, 0
    order = np.lexsort([words, *ranges])
    table = np.stack(ranges)[:, order]
    last = np.append((table[:, 1:] != table[:, :-1]).any(axis=0), True)
    return int(np.count_nonzero(last)), int(words[order][last].sum())


def candidates_table(product: Product, asked: Asked, _: Candidate, found: Sequence[Candidate]) -> Table:
    """Everything that was counted, best first."""
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


def pieces_table(product: Product, asked: Asked, best: Candidate, _: Sequence[Candidate]) -> Table:
    """What is launched: pairs of tiles (uniform, dynamic; in the order of the launches) or panels."""
    if best.launches > _LISTED:
        raise Refused(f"{best.launches:,} launches are too many for a table", "look at the tables of sums")
    source = best.source
    if isinstance(source, Uniform):
        p = source.pairs
        return _numbered(
            ("i_tile", "k_tile", "j_tile", "A_words", "B_words", "Z_words"), (p.i, p.k, p.j, p.a, p.b, p.z)
        )
    if isinstance(source, Panels):
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
