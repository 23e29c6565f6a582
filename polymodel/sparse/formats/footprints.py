"""Compute the bits of a tensor, of its tiles, or the expected bits under a density model, in a format."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from polymodel.errors import Diagnostic, SpecError
from polymodel.sparse.density.model import DensityModel
from polymodel.sparse.fibertree import Fibertree
from polymodel.sparse.formats.levels import (
    Count,
    RankLevels,
    TileLevels,
    expected_levels,
    expected_tiling,
    levels_of,
    levels_of_tree,
    tile_levels,
)
from polymodel.sparse.formats.parse import parse_format, teaal_format
from polymodel.sparse.formats.whole import Footprint, Format, RankBits
from polymodel.sparse.tensor import SparseTensor
from polymodel.spec.faults import not_a
from polymodel.spec.teaal.records import TensorFormat

Source = SparseTensor | Fibertree | DensityModel | RankLevels


def footprint(source: Source, format: Format | object, tile: ArrayLike | None = None) -> Footprint:
    """Return the bits of a tensor in a format: exact for a tensor or fibertree, expected for a density model.

    `format`: a Format, TeAAL's record of one, or what `parse_format` accepts ("CSR", ["U", "CP"], ...).
    `tile` (one size per rank): for a density model the expectation for one full tile, with any leading axes
    elementwise; for a model that is data (`Actual`) the mean over all tiles, empty ones included; for a
    tensor use `tile_footprints`.
    """
    if not isinstance(source, Source):
        raise not_a(
            "tensor or density model", "footprint", source, "pass e.g. pm.read_tensor('matrix.mtx.gz')"
        )
    format = format_of(format, source.ranks)
    data = source.data if isinstance(source, DensityModel) else None
    if isinstance(source, DensityModel) and data is not None:
        if tile is not None:
            return _mean_tile(source, data, format, tile)
        source = data
    if isinstance(source, DensityModel):
        return format.bits(expected_levels(source, tile, format.order(source.ranks)))
    if tile is not None:
        message = "a tile of actual data"
        raise SpecError([Diagnostic(message, "use tile_footprints: tiles differ", code="missing-argument")])
    order = format.order(source.ranks)
    if isinstance(source, SparseTensor):
        return format.bits(levels_of(source, order))
    if order != source.ranks:
        what = f"{format.name} stores ranks {list(order)}, the levels are {list(source.ranks)}"
        raise SpecError([Diagnostic(what, "swizzle the tensor first", code="shape-mismatch")])
    return format.bits(levels_of_tree(source) if isinstance(source, Fibertree) else source)


def format_of(written: Format | object, ranks: Sequence[str]) -> Format:
    """Return the format that `format` denotes, for a tensor with these ranks."""
    if isinstance(written, Format):
        return written
    return teaal_format(written) if isinstance(written, TensorFormat) else parse_format(written, ranks)


def _mean_tile(model: DensityModel, data: SparseTensor, format: Format, tile: ArrayLike) -> Footprint:
    sizes = model.tiles(tile)
    if sizes.ndim != 1:
        what = f"tile shapes {sizes.shape[:-1]} of actual data"
        raise SpecError([Diagnostic(what, "give one at a time", code="wrong-count")])
    result = tile_footprints(data, format, sizes.tolist())[1]
    number = float(model.number_of_tiles(sizes))

    def mean(count: Count) -> float:
        return float(np.sum(count)) / number

    ranks = tuple(
        RankBits(r.rank, mean(r.headers), mean(r.coordinates), mean(r.payloads)) for r in result.ranks
    )
    return Footprint(result.format, ranks, mean(result.useful), result.label, mean(result.padding))


def tile_footprints(
    tensor: SparseTensor, format: Format | object, tile: Sequence[int]
) -> tuple[TileLevels, Footprint]:
    """Return the bits of every nonempty tile of the tiling by boxes of this shape, all at once; edge tiles
    may be smaller.

    Coordinates count from a tile's origin. The counts of the footprint are arrays with one entry per tile;
    `TileLevels.at` gives the positions of the tiles, in the order of the ranks as stored.
    """
    format = format_of(format, tensor.ranks)
    order = format.order(tensor.ranks)
    sizes = dict(zip(tensor.ranks, tile, strict=True)) if len(tile) == len(tensor.ranks) else {}
    stored = tensor if order == tensor.ranks else tensor.swizzled(order)
    result = tile_levels(stored, [sizes[r] for r in order] if sizes else tile)
    return result, format.bits(result.levels)


def expected_total(model: DensityModel, format: Format | object, tile: Sequence[int]) -> float:
    """Return the expected bits of all nonempty tiles of a tiling together, edge tiles included."""
    format = format_of(format, model.ranks)
    order = format.order(model.ranks)
    total: Any = 0.0
    for number, levels in expected_tiling(model, tile, order):
        total += number * format.bits(levels).total
    return float(total)


def dcsr_words(nnz: Count, rows: Count) -> Count:
    """Return the words of a tile in the DCSR of a streaming dataflow: 2 nnz + 2 R + 3, with R nonempty rows.

    There is one word per item (nnz values, nnz and R coordinates, R + 1 pointers), and two more for segment
    headers. The format DCSR has the same items in bits, and no headers.
    """
    return 2 * nnz + 2 * rows + 3
