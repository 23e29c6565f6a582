"""What Tiler-Swift published: claims of its document and bars read off its charts.

Source: https://github.com/pohantw/tiler_swift (MIT licence, (c) its authors Po-Han Chen and Bo Wun Cheng),
README.md and img/elem{add,mul}_{runtime,config_time}.png. The charts print no numbers: their bars were
measured, so each reading is off by about 1 % of its chart's scale; a bar too low to be read is None.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType

from polymodel.tiling.fits.fit import Op

# Matrices of the charts, from left to right (the document speaks of five; the charts show six).
MATRICES = ("bcsstm26", "ch7-6-b1", "mk9-b1", "n4c6-b1", "relat5", "rel5")
# Their rows, columns and entries: another matrix of the same name has no published bars.
SIZES: Mapping[str, tuple[int, int, int]] = MappingProxyType(
    {
        "bcsstm26": (1922, 1922, 1922),
        "ch7-6-b1": (630, 42, 1260),
        "mk9-b1": (378, 36, 756),
        "n4c6-b1": (210, 21, 420),
        "relat5": (340, 35, 1058),
        "rel5": (340, 35, 656),
    }
)
# Elements of one memory: 0.5 KiB, half of it for each operand, of 2-byte words.
CAPACITY = 128


@dataclass(frozen=True)
class Claim:
    """A tiler against `simple`: its mean speed-up, and by how many per cent configuration time falls."""

    speed_up: float
    reduction: float


CLAIMS: Mapping[tuple[Op, str], Claim] = MappingProxyType(
    {
        ("add", "qtree+merge"): Claim(2.97, 80.89),
        ("add", "btree"): Claim(2.62, 76.82),
        ("multiply", "qtree+merge"): Claim(3.89, 89.98),
        ("multiply", "btree"): Claim(3.75, 89.91),
    }
)

Bars = tuple[float | None, ...]

CONFIG_CYCLES: Mapping[tuple[Op, str], Bars] = MappingProxyType(
    {
        ("add", "simple"): (896983, 289511, 66739, 20411, 66739, 66739),
        ("add", "qtree+merge"): (50304, 25661, 13267, None, 20411, 12404),
        ("add", "btree"): (50985, 29358, 13267, 6677, 28196, 15805),
        ("multiply", "simple"): (973118, 318024, 73757, 22709, 73757, 73757),
        ("multiply", "qtree+merge"): (26757, 14518, 5426, 5426, 8116, 6393),
        ("multiply", "btree"): (27159, 14518, 7312, None, 11960, 8116),
    }
)

RUN_CYCLES: Mapping[tuple[Op, str], Bars] = MappingProxyType(
    {
        ("add", "simple"): (16720, 3635, 932, 324, 1032, 1032),
        ("add", "qtree+merge"): (6693, 481, 304, None, 487, 388),
        ("add", "btree"): (6693, 568, 355, 168, 605, 440),
        ("multiply", "simple"): (16403, 3633, 931, 323, 1008, 1008),
        ("multiply", "qtree+merge"): (5848, 323, 206, 144, 315, 291),
        ("multiply", "btree"): (5848, 350, 226, None, 359, 311),
    }
)


def reading(bars: Mapping[tuple[Op, str], Bars], matrix: str, op: Op, tiler: str) -> float | None:
    """A chart's bar; None if the chart has none for it, or none that can be read."""
    found = bars.get((op, tiler))
    if found is None or matrix not in MATRICES:
        return None
    return found[MATRICES.index(matrix)]
