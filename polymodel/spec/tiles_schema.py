"""Schema of `data_tiles:` of a memory: how sparse operands are cut to fit it, and what a launch costs."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import AfterValidator, Field

from polymodel.spec.base import NameText, Number, SchemaObject, fault


class Configuration(SchemaObject):
    """Cycles that configure the array for one kernel, by what it computes."""

    add: Number = 824
    multiply: Number = 907


class ProductTiles(SchemaObject):
    """`product:` of `data_tiles:`: how products of two matrices are cut (docs/tiling/architecture.md).

    `strategy`: left out, `uniform` with a `tile` (sizes along the output's first rank, the shared rank and
    the output's second), else `search`. `capacity`: words of each operand's buffer. `order`: loops, outermost
    first; left out, the best. `pes`, `bandwidth`: multiplies and words a cycle. `overbook`: share of tiles
    that may exceed their buffer. `time_limit`: seconds of a search.
    """

    strategy: Literal["uniform", "panels", "dynamic", "overbooked", "search"] | None = None
    tile: tuple[Number, ...] | None = None
    capacity: Number | None = None
    order: Literal["ijk", "ikj", "kij", "jki", "kji", "jik"] | None = None
    objective: Literal["words", "time"] = "time"
    pes: Number = 1
    bandwidth: Number = 1
    overbook: Number = 0.1
    time_limit: Number = 30


def _tile_of_product(section: ProductTiles) -> ProductTiles:
    if section.tile is None:
        return section
    if len(section.tile) != 3:
        remedy = "write three sizes: along the output's first rank, the shared one, the output's second"
        raise fault(f"tile: has {len(section.tile)} sizes", remedy)
    if section.strategy not in (None, "uniform", "overbooked"):
        raise fault(f"strategy: {section.strategy} chooses its tiles itself", "leave out tile:")
    return section


CheckedProductTiles = Annotated[ProductTiles, AfterValidator(_tile_of_product)]


class DataTiles(SchemaObject):
    """`data_tiles:` of a memory: operands are cut so that each tile fits (docs/tiling/architecture.md).

    `fit`: what the capacity counts: `elements`, `words` of compressed tiles, or `stored`, bits of a tile in
    `format`. `capacity`: of one operand's buffer; left out, it follows from the memory's size. `word_bits`:
    bits of one word; left out, the widest value of the Einsum. `tiler`: how to cut; `objective`: what `best`
    makes least. `run`: which tiles become kernels. `configuration`, `ramp`, `empty`: cycles of a kernel.
    `ranks`: names of the two ranks that tensors of more are cut on; left out, the output's first two.
    `product`: how products of two matrices are cut.
    """

    fit: Literal["elements", "words", "stored"] = "elements"
    format: object = None
    capacity: Number | None = None
    word_bits: Number | None = None
    tiler: str = "best"
    objective: Literal["tiles", "cycles", "total"] = "total"
    run: Literal["nonempty", "all"] = "nonempty"
    configuration: Configuration = Field(default_factory=Configuration)
    ramp: Number = 8
    empty: Number = 10
    ranks: tuple[NameText, ...] | None = None
    product: CheckedProductTiles = Field(default_factory=ProductTiles)


def _fitting_keys(section: DataTiles) -> DataTiles:
    if (section.format is not None) != (section.fit == "stored"):
        if section.format is None:
            raise fault("fit: stored lacks its format", "write e.g. format: CSR")
        raise fault(f"fit: {section.fit} has no format", "leave format out, or write fit: stored")
    if section.ranks is not None and len(set(section.ranks)) != 2:
        raise fault(f"ranks: names {len(set(section.ranks))} different ranks", "name two, e.g. ranks: [M, N]")
    return section


CheckedDataTiles = Annotated[DataTiles, AfterValidator(_fitting_keys)]
