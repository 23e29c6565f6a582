"""Dynamic reflexive tiling: the savings of tiles that grow until they fill buffers, over uniform tiles."""

from __future__ import annotations

from collections.abc import Iterator

from polymodel.exhibits import sparse_at_size
from polymodel.exhibits.records import Exhibit, PublishedFigure
from polymodel.exhibits.sparse_tiles import BUFFER, by_structure, gains, mean, side

EXTENSOR = 3.3


def figures() -> Iterator[PublishedFigure]:
    own = sparse_at_size.speedups("own", "dynamic")
    at_size = sparse_at_size.speedups("worst", "dynamic")
    worst, best = gains("worst case", "dynamic"), gains("uniform", "dynamic")
    yield PublishedFigure(
        "ExTensor: speed-up, ours words moved, over its own tiles, published sizes", "times", EXTENSOR,
        mean(own),
        f"{by_structure(own)}: tile sizes of ExTensor's runs; 30 MB in three parts. On these DRT moves each "
        "word once, so the gain is what ExTensor moves too often",
    )  # fmt: skip
    yield PublishedFigure(
        "ExTensor: the same, over tiles for the worst case, published sizes", "times", "not told",
        mean(at_size), by_structure(at_size),
    )  # fmt: skip
    yield PublishedFigure(
        "ExTensor: the same, of small matrices", "times", "not told", mean(worst),
        f"{by_structure(worst)}: 1,000 rows, buffers of {BUFFER:,} words, square tiles of {side(BUFFER)}",
    )  # fmt: skip
    free = gains("worst case", "dynamic", results=False)
    yield PublishedFigure(
        "ExTensor: the same, where no buffer limits tiles of results", "times", "not told", mean(free),
        by_structure(free),
    )  # fmt: skip
    yield PublishedFigure(
        "ExTensor: the same, over the best tiles that all fit", "times", "not told", mean(best),
        f"{by_structure(best)}: the best uniform tiles are found by a search that knows the data",
    )  # fmt: skip
    for machine, printed in (("OuterSPACE", 5.1), ("MatRaptor", 1.6)):
        yield PublishedFigure(
            f"{machine}: speed-up", "times", printed, None, "tiles of its dataflow are not modelled"
        )


EXHIBIT = Exhibit(
    "drt",
    "Dynamic reflexive tiling: tiles that grow until buffers are full",
    "Odemuyiwa et al., ASPLOS 2023, abstract: means over matrices of SuiteSparse",
    "Words of generated matrices times themselves; tiles grow by single coordinates.",
    figures,
)
