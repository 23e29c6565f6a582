"""Schema of `data_tiles:` of a memory: how sparse operands are cut to fit it, and what a launch costs."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import AfterValidator, Field

from polymodel.spec.base import Number, SchemaObject, fault


class Configuration(SchemaObject):
    """Cycles that configure the array for one kernel, by what it computes."""

    add: Number = 824
    multiply: Number = 907


class DataTiles(SchemaObject):
    """`data_tiles:` of a memory: operands are cut so that each tile fits (docs/tiling/architecture.md).

    `fit`: what the capacity counts: `elements`, `words` of compressed tiles, or `stored`, bits of a tile in
    `format`. `capacity`: of one operand's buffer; left out, it follows from the memory's size. `word_bits`:
    bits of one word; left out, the widest value of the Einsum. `tiler`: how to cut; `objective`: what `best`
    makes least. `run`: which tiles become kernels. `configuration`, `ramp`, `empty`: cycles of a kernel.
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


def _format_of_stored(section: DataTiles) -> DataTiles:
    if (section.format is not None) != (section.fit == "stored"):
        if section.format is None:
            raise fault("fit: stored lacks its format", "write e.g. format: CSR")
        raise fault(f"fit: {section.fit} has no format", "leave format out, or write fit: stored")
    return section


CheckedDataTiles = Annotated[DataTiles, AfterValidator(_format_of_stored)]
