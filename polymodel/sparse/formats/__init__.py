"""Formats of sparse tensors: per rank and of whole tensors, their footprints, and the CISS encoder.

footprint(tensor, parse_format("CSR", tensor.ranks)).total          # bits, exact
footprint(Uniform.of("IJ", (1000, 1000), density=0.01), csr)        # expected
tile_footprints(tensor, csr, (64, 64))                              # of all nonempty tiles at once
decode(encode(tensor, parts=8))
"""

from polymodel.sparse.formats.ciss import Encoded, decode, encode
from polymodel.sparse.formats.footprints import (
    dcsr_words,
    expected_total,
    footprint,
    tile_footprints,
)
from polymodel.sparse.formats.levels import (
    RankLevels,
    TileLevels,
    expected_levels,
    levels_of,
    scattered_levels,
    tile_levels,
)
from polymodel.sparse.formats.parse import parse_format, teaal_format
from polymodel.sparse.formats.whole import (
    CISS,
    CP,
    RLE,
    UOP,
    B,
    Footprint,
    Format,
    NamedFormat,
    PerRank,
    RankBits,
    RankRule,
    U,
    Widths,
)

__all__ = [
    "CISS",
    "CP",
    "RLE",
    "UOP",
    "B",
    "Encoded",
    "Footprint",
    "Format",
    "NamedFormat",
    "PerRank",
    "RankBits",
    "RankLevels",
    "RankRule",
    "TileLevels",
    "U",
    "Widths",
    "dcsr_words",
    "decode",
    "encode",
    "expected_levels",
    "expected_total",
    "footprint",
    "levels_of",
    "parse_format",
    "scattered_levels",
    "teaal_format",
    "tile_footprints",
    "tile_levels",
]
