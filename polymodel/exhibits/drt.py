"""Dynamic reflexive tiling: the savings of tiles that grow until they fill buffers, over uniform tiles."""

from __future__ import annotations

from collections.abc import Iterator

from polymodel.exhibits.records import Exhibit, PublishedFigure
from polymodel.exhibits.sparse_tiles import BUFFER, by_structure, gains, mean, side


def figures() -> Iterator[PublishedFigure]:
    worst, best = gains("worst case", "dynamic"), gains("uniform", "dynamic")
    yield PublishedFigure(
        "ExTensor: speed-up, ours words moved, over tiles for the worst case", "times", 3.3, mean(worst),
        f"{by_structure(worst)}: 1,000 rows, buffers of {BUFFER:,} words, square tiles of {side(BUFFER)}",
    )  # fmt: skip
    free = gains("worst case", "dynamic", results=False)
    yield PublishedFigure(
        "ExTensor: the same, where no buffer limits tiles of results", "times", 3.3, mean(free),
        f"{by_structure(free)}: the published gain is between this and the one above, where results "
        "have a buffer as large as that of an operand",
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
    "Words of four generated matrices times themselves; tiles grow by single coordinates.",
    figures,
)
