"""ExTensor: tiled sparse products, with intersections of tiles at three levels."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from polymodel.api.matmul import tile_matmul
from polymodel.exhibits import sparse_at_size
from polymodel.exhibits.records import Exhibit, PublishedFigure
from polymodel.exhibits.teaal_designs import ARTIFACT, small_product
from polymodel.sparse.tensor import SparseTensor
from polymodel.tiling.matmul.uniform import UniformTiles

# Matrix -> bytes of A, B, partial results and results, and the least that any tiles move: data/baselines/
# extensor.csv of the artifact, as reported for ExTensor.
REPORTED = {
    "p2p-Gnutella31": ((12312364, 3391516, 53963488, 8601616), 15247008),
    "poisson3Da": ((12591632, 6295816, 94640960, 47320480), 59827456),
}


def refetched(name: str, renumbered: bool) -> float:
    """Return the words that tiles of ExTensor's sizes move, in its order, over those of each tile once.
    `renumbered`: rows and columns are numbered at random."""
    matrix = sparse_at_size.MADE[name]()
    if renumbered:
        order = np.random.default_rng(0).permutation(matrix.shape[0])
        coords = order[matrix.coords]
        matrix = SparseTensor.from_coo("A", matrix.ranks, matrix.shape, coords, matrix.values)
    best = tile_matmul(matrix, tile=sparse_at_size.OWN_TILES[name], order=sparse_at_size.ORDER).best
    assert isinstance(best.source, UniformTiles)
    return best.traffic.words / best.source.tiled_words


def figures() -> Iterator[PublishedFigure]:
    yield from small_product("extensor")
    ordered = refetched("poisson3Da", renumbered=False)
    why = {
        "p2p-Gnutella31": "ours is a graph with as many links between as many peers, numbered at random; the "
        "published numbering is not here",
        "poisson3Da": "ours is a mesh with as many couplings, numbered at random; how it is numbered "
        "decides: from "
        f"one face to the opposite one it is {ordered:.2f}, as results are then met by fewer tiles",
    }
    for name, (moved, least) in REPORTED.items():
        yield PublishedFigure(
            f"like {name}: traffic over that of each tile once", "times", sum(moved) / least,
            refetched(name, renumbered=True), why[name],
        )  # fmt: skip


EXHIBIT = Exhibit(
    "extensor",
    "ExTensor: sparse matrix products tile by tile",
    "Hegde et al., MICRO 2019; Nayak et al., TeAAL, MICRO 2023: scripts/check.py and figure 8a of "
    f"{ARTIFACT}",
    "Traffic, intersections and operations of the library's TeAAL spec on the small product of the artifact; "
    "words of tiles of its sizes on generated matrices.",
    figures,
)
