"""Words that ExTensor's tiles move of generated matrices of published sizes, for the exhibits `tailors` and
`drt`; and what moving them takes in energy."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache

import numpy as np

from polymodel.api.matmul import tile_matmul
from polymodel.exhibits.gamma import PEERS, UNKNOWNS, mesh, peers
from polymodel.exhibits.sparse_tiles import side
from polymodel.exhibits.tiling_law import THIRD
from polymodel.sparse.generate import generate_tensor
from polymodel.sparse.tensor import Ints, SparseTensor
from polymodel.spec.energy_records import EnergyRequest
from polymodel.spec.published import published

ORDER = "jki"  # of ExTensor: tiles of B stay, those of A and of the result stream past
PARTS = (1, 4, 8, 16)  # sizes tried along each rank: the whole of it, a quarter ...
# Words of 8 bytes that a third of the buffer of a processing element holds: 64 kB.
PE_THIRD = 64 * 2**10 // 8 // 3
LAST_LEVEL, PE = 30 * 2**20 * 8, 64 * 2**10 * 8  # bits
WORD = 64  # bits


def _square(rows: int, coords: Ints) -> SparseTensor:
    ones = np.ones(coords.shape[1], dtype=np.int64)
    return SparseTensor.from_coo("A", ("I", "K"), (rows, rows), coords, ones)


# Of the published rows; nonzeros within 7 % of those published.
MADE: dict[str, Callable[[], SparseTensor]] = {
    "p2p-Gnutella31": lambda: _square(PEERS, peers()),
    "poisson3Da": lambda: _square(UNKNOWNS, mesh()),
    "mc2depi": lambda: generate_tensor("stencil", 0, height=725, width=725, percent=75),
    "bcsstk17": lambda: generate_tensor("blocked", 1, blocks=1829, block=6, reach=60, percent=5),
}
# Coordinates of i, k and j in a tile of ExTensor: those of the artifact of TeAAL (scripts/extensor.py), which
# has two of these matrices.
OWN_TILES = {"p2p-Gnutella31": (32 * 128, 64 * 128, 128 * 128), "poisson3Da": (32 * 128, 64 * 128, 96 * 128)}


@dataclass(frozen=True)
class MovedWords:
    """Words between memory and last-level buffer, by strategy: tiles for the worst case, ExTensor's own (None
    if they are not published), the largest that mostly fit, and those that grow. `elements`: words between
    that buffer and processing elements, with tiles for the worst case; `multiplies`: products."""

    worst: int
    own: int | None
    overbooked: int
    dynamic: int
    elements: int
    multiplies: int


@cache
def moved(name: str) -> MovedWords:
    """Return the words that the matrix of this structure times itself moves."""
    matrix = MADE[name]()
    worst = tile_matmul(matrix, tile=(side(THIRD),) * 3, order=ORDER)
    along = tuple(-(-matrix.shape[0] // parts) for parts in PARTS)
    overbooked = tile_matmul(
        matrix, capacity=THIRD, strategy="overbooked", order=ORDER, objective="words", grid=(along,) * 3
    )
    dynamic = tile_matmul(matrix, capacity=THIRD, strategy="dynamic", order=ORDER, objective="words")
    own = OWN_TILES.get(name)
    return MovedWords(
        worst.words,
        None if own is None else tile_matmul(matrix, tile=own, order=ORDER).words,
        overbooked.words,
        dynamic.words,
        tile_matmul(matrix, tile=(side(PE_THIRD),) * 3, objective="words").words,
        worst.product.multiplies,
    )


def speedups(before: str, after: str) -> dict[str, float]:
    """Return, for each structure whose words before are known, the ratio of words before to words after."""
    both = {name: (getattr(moved(name), before), getattr(moved(name), after)) for name in MADE}
    return {name: old / new for name, (old, new) in both.items() if old is not None}


def energy(name: str, words: int) -> float:
    """Return the joules of these words between memory and last-level buffer, and of all that is alike for all
    tiles there: words of the processing elements, products and sums."""
    found = moved(name)
    last, own = _each("sram", LAST_LEVEL), _each("sram", PE)
    # A product reads two values, and reads and writes a sum.
    inside = found.elements * (last + own) + found.multiplies * (4 * own + _each("float_mac"))
    return words * (_each("dram") + last) + inside


def savings() -> dict[str, float]:
    """Return, for each structure, the ratio of energies of tiles for the worst case and overbooked ones."""
    return {n: energy(n, moved(n).worst) / energy(n, moved(n).overbooked) for n in MADE}


def _each(component: str, size: float = 0.0) -> float:
    """Return the joules of a word of a memory of so many bits, or of a product of 32 bits with its sum."""
    if component == "float_mac":
        asked = EnergyRequest(component, ("compute",), options={"bits": 32})
        return published(asked).values["compute"]
    request = EnergyRequest(component, ("read",), size=size) if size else EnergyRequest(component, ("read",))
    return WORD * published(request).values["read"]
