"""Products in a report of tiles at memories: their tables, and their rows in the tables of all Einsums."""

from __future__ import annotations

from collections.abc import Sequence

from polymodel.errors import Refused
from polymodel.report.table import RATIO, Cell, Column, Table
from polymodel.report.tiling.level_moved import Moved
from polymodel.tiling.levels.product import ProductLevel

_ROLES = ("A", "B", "output")
_LISTED = 2 * 10**6  # tiles of a table that are still listed
MODEL = (
    "cycles of products are a model: max(multiplies / PEs, words / bandwidth) + launches x (configuration + "
    "ramp)"
)


def products_table(products: Sequence[ProductLevel]) -> Table:
    """How each product is cut and what that moves, all executions. `pairs` are launched, one kernel each;
    `least_words` are moved however tiles are cut, `ratio` is words over that."""
    columns = (
        Column("einsum"), Column("memory"), Column("a"), Column("b"), Column("output"), Column("strategy"),
        Column("order"), Column("tile"), Column("capacity_words"), Column("pairs"), Column("multiplies"),
        Column("config_cycles", "cycle"), Column("run_cycles", "cycle"), Column("total_cycles", "cycle"),
        Column("words"), Column("streamed_words"), Column("least_words"), Column("ratio", RATIO),
        Column("label"),
    )  # fmt: skip
    return Table("tiling_products", columns, tuple(_product(x) for x in products))


def _product(x: ProductLevel) -> tuple[Cell, ...]:
    best, n, t = x.best, x.executions, x.best.traffic
    least = x.product.compulsory_words
    return (
        x.einsum, x.memory.name, *x.tensors, best.strategy, t.order, best.tile, x.asked.buffers[0],
        best.launches * n, x.product.multiplies * n, x.config_cycles * n, x.run_cycles * n,
        x.total_cycles * n, t.words * n, t.streamed * n, least * n, t.words / least if least else 1.0,
        "exact",
    )  # fmt: skip


def product_tiles_table(products: Sequence[ProductLevel]) -> Table:
    """Tiles of A, B and the output of each product, of one execution; those of B have rows along the shared
    rank. Refused above two million."""
    columns = (
        Column("einsum"), Column("memory"), Column("tensor"), Column("role"), Column("tile"), Column("row"),
        Column("col"), Column("height"), Column("width"), Column("nnz"), Column("words"), Column("fits"),
        Column("label"),
    )  # fmt: skip
    rows: list[tuple[Cell, ...]] = []
    for x in products:
        for tensor, role, tiles, room in zip(x.tensors, _ROLES, x.tiles, x.asked.buffers, strict=True):
            if tiles.tiles + len(rows) > _LISTED:
                fault = f"{x.einsum}: {tiles.tiles:,} tiles of {tensor} are too many for a table"
                raise Refused(fault, "look at the table products")
            rects = tiles.rects
            arrays = (rects.row, rects.col, rects.height, rects.width, tiles.nnz, tiles.words)
            cells = zip(*(a.tolist() for a in (*arrays, tiles.words <= room)), strict=True)
            rows += [(x.einsum, x.memory.name, tensor, role, i, *c, "exact") for i, c in enumerate(cells)]
    return Table("tiling_product_tiles", columns, tuple(rows))


def moved_by(x: ProductLevel) -> list[Moved]:
    """What tiles of A, B and the output move. Tiles that stay are worked on again at every launch."""
    found = []
    for tensor, role, parent, words, tiles in zip(
        x.tensors, _ROLES, x.parents, x.words, x.tiles, strict=True
    ):
        into, read, written, out = (w * x.executions for w in words)
        if parent is None:  # the tensor is here for good
            into = out = 0
        count = tiles.tiles * x.executions
        found.append(
            Moved(x.einsum, x.memory, x.word_bits, tensor, role, parent, count, into, read, written, out)
        )
    return found
