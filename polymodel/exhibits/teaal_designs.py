"""Published figures of four accelerators in the artifact of TeAAL, and their comparison with this package.

The exhibits `gamma`, `outerspace`, `extensor` and `sigma` each begin with the metrics that the artifact
expects of one small product (scripts/check.py and scripts/run_*.py of FPSG-UIUC/micro23-teaal-artifact).
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from polymodel.api.on_data import traffic
from polymodel.exhibits.records import PublishedFigure
from polymodel.loading import load
from polymodel.sparse.tensor import Ints, SparseTensor
from polymodel.sparse.traffic.records import CascadeTraffic

ARTIFACT = "github.com/FPSG-UIUC/micro23-teaal-artifact"
RANKS = {"A": ("K", "M"), "B": ("K", "N")}
# The small product: K = 8, M = 6, N = 7; the coordinates of each row k.
SIZES = {"K": 8, "M": 6, "N": 7}
SMALL: dict[str, dict[int, tuple[int, ...]]] = {
    "A": {0: (1, 3, 5), 1: (0, 2), 2: (3, 4), 5: (1, 3), 6: (2, 4, 5), 7: (0, 4)},
    "B": {
        0: (2, 4, 6), 1: (0, 2, 3, 5, 6), 2: (0,), 3: (0, 4, 6), 4: (0, 2, 3, 5, 6), 5: (1, 2, 3, 4, 6),
        6: (0, 4, 5), 7: (2, 3, 4),
    },
}  # fmt: skip
TILES = {"K1": 4, "M1": 4, "N1": 4, "K0": 2, "M0": 2, "N0": 2}
# Design -> its TeAAL spec in the library.
SPECS = {
    "gamma": "teaal/gamma_traffic", "outerspace": "teaal/outerspace_traffic", "extensor": "teaal/extensor",
    "sigma": "teaal/sigma_traffic",
}  # fmt: skip
# Design -> (Einsum, component, tensor or unit, read or write) -> bits, or the number of actions.
PRINTED: dict[str, dict[tuple[str, ...], int]] = {
    "gamma": {
        ("T", "MainMemory", "B", "read"): 2368,
        ("T", "MainMemory", "A", "read"): 1600,
        ("T", "Intersect", "intersect"): 14,
        ("Z", "MainMemory", "Z", "read"): 0,
        ("Z", "MainMemory", "Z", "write"): 3456,
        ("Z", "HighRadixMerger", "T_MKN"): 60,
        ("Z", "FPMul", "mul"): 46,
        ("Z", "FPAdd", "add"): 13,
    },
    "outerspace": {
        ("T0", "MainMemory", "B", "read"): 2368,
        ("T0", "MainMemory", "A", "read"): 1664,
        ("T0", "FPMul", "mul"): 46,
        ("T1", "MainMemory", "T0", "read"): 5184,
        ("T1", "MainMemory", "T1", "read"): 0,
        ("T1", "MainMemory", "T1", "write"): 5184,
        ("Z", "MainMemory", "Z", "read"): 0,
        ("Z", "MainMemory", "Z", "write"): 3456,
        ("Z", "SortHW", "T1_MKN"): 71,
        ("Z", "FPAdd", "add"): 13,
    },
    "extensor": {
        ("Z", "MainMemory", "A", "read"): 7296,
        ("Z", "MainMemory", "B", "read"): 6464,
        ("Z", "MainMemory", "Z", "read"): 2560,
        ("Z", "MainMemory", "Z", "write"): 6912,
        ("Z", "FPMul", "mul"): 46,
        ("Z", "FPAdd", "add"): 13,
        ("Z", "K2Intersect", "intersect"): 4,
        ("Z", "K1Intersect", "intersect"): 39,
        ("Z", "K0Intersect", "intersect"): 84,
    },
    "sigma": {("Z", "DataSRAMBanks", "A", "read"): 4096, ("Z", "DataSRAMBanks", "B", "read"): 28672},
}


def matrix(name: str, shape: tuple[int, int], coords: Ints) -> SparseTensor:
    """Return an operand with a 1 at each of these coordinates, stored as [K, M] or [K, N]."""
    return SparseTensor.from_coo(name, RANKS[name], shape, coords, np.ones(coords.shape[1], dtype=np.int64))


def multiplied(design: str, a: SparseTensor, b: SparseTensor, **symbols: int) -> CascadeTraffic:
    """Return the traffic of the design for the product of two matrices; its caches evict the least recently
    used line."""
    return traffic(load(SPECS[design], symbols=symbols), {"A": a, "B": b}, replacement="lru")


def metric(found: CascadeTraffic, *path: str) -> int:
    """Return one of the metrics: bits that a memory reads or writes of a tensor, or the actions of a unit."""
    einsum, component, what, *way = path
    if way:
        moved = found.einsum(einsum).memory(component).of(what)
        return moved.read if way == ["read"] else moved.write or 0
    return dict(found.einsum(einsum).unit(component).counts)[what]


def small_product(design: str) -> Iterator[PublishedFigure]:
    """Return the metrics of the small product beside the values that the artifact expects."""
    a, b = (
        matrix(
            name,
            (SIZES["K"], SIZES[RANKS[name][1]]),
            np.array([(k, c) for k, row in SMALL[name].items() for c in row], dtype=np.int64).T,
        )
        for name in ("A", "B")
    )
    found = multiplied(design, a, b, **(TILES if design == "extensor" else {}))
    for path, printed in PRINTED[design].items():
        unit = "bits" if len(path) == 4 else "steps"
        yield PublishedFigure(f"small product: {' '.join(path)}", unit, printed, metric(found, *path))
