"""SIGMA: the traffic from its SRAM to its multipliers, and its time."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache

import numpy as np

from polymodel.exhibits.records import Exhibit, PublishedFigure
from polymodel.exhibits.teaal_designs import ARTIFACT, matrix, metric, multiplied, small_product
from polymodel.sparse.density import random_tensor
from polymodel.sparse.traffic.records import CascadeTraffic

# M, N, K -> bytes of A and B and nanoseconds of TeAAL's model, and nanoseconds as reported for SIGMA.
PRINTED = {
    (128, 2048, 4096): (429568, 33554432, 66375, 66454),
    (320, 3072, 4096): (1057280, 50331648, 100369, 100576),
    (1632, 36548, 1024): (1337344, 449101824, 879764, 880058),
    (2048, 4096, 32): (52736, 2097152, 4199, 4213),
    (35, 8457, 2560): (76800, 86599680, 169290, 169308),
    (31999, 1024, 84): (2148352, 17301504, 37988, 38454),
    (84, 1024, 4096): (282112, 16777216, 33319, 33376),
    (2048, 1, 128): (211456, 2048, 417, 470),
    (256, 256, 2048): (424448, 2097152, 4925, 5014),
}
DENSITY = 0.2
# Rows of B stored together; bytes delivered to the multipliers per nanosecond (128 values of 4 bytes).
FIBER = 128
BYTES = 4 * 128


@cache
def moved(m: int, n: int, k: int) -> CascadeTraffic:
    """Return the traffic of a product whose A is drawn with the published density.

    B is stored uncompressed, in fibers of 128 rows of a column, so that its traffic depends only on its
    shape: a single 1 in each fiber represents the fiber.
    """
    a = random_tensor(("K", "M"), (k, m), DENSITY, seed=1, name="A")
    rows = np.arange(0, k, FIBER)
    b = matrix("B", (k, n), np.stack([np.repeat(rows, n), np.tile(np.arange(n), rows.size)]))
    return multiplied("sigma", a, b)


def figures() -> Iterator[PublishedFigure]:
    yield from small_product("sigma")
    drawn = "theirs and ours are drawn at random"
    for (m, n, k), (of_a, of_b, modelled, reported) in PRINTED.items():
        found, name = moved(m, n, k), f"{m} x {n} x {k}"
        a, b = (metric(found, "Z", "DataSRAMBanks", tensor, "read") // 8 for tensor in ("A", "B"))
        yield PublishedFigure(f"{name}: A", "bytes", of_a, a, drawn)
        yield PublishedFigure(f"{name}: B", "bytes", of_b, b)
        yield PublishedFigure(f"{name}: time, TeAAL's model", "ns", modelled, (a + b) / BYTES, drawn)
        yield PublishedFigure(
            f"{name}: time, as reported for SIGMA", "ns", reported, (a + b) / BYTES,
            "ours if 128 values arrive per nanosecond throughout; filling and draining are not counted",
        )  # fmt: skip


EXHIBIT = Exhibit(
    "sigma",
    "SIGMA: products of a sparse and a dense matrix",
    f"Qin et al., HPCA 2020; Nayak et al., TeAAL, MICRO 2023, figure 9d: data of {ARTIFACT}",
    "Traffic of the library's TeAAL spec on random matrices of the published shapes, A of density 0.2.",
    figures,
)
