"""Tailors: the savings of overbooked tiles over tiles sized for the worst case, and over the best tiles that
always fit."""

from __future__ import annotations

from collections.abc import Iterator

from polymodel.exhibits.records import Exhibit, PublishedFigure
from polymodel.exhibits.sparse_tiles import BUFFER, LARGER_BUFFER, by_structure, gains, mean, side


def figures() -> Iterator[PublishedFigure]:
    worst, best = gains("worst case", "overbooked"), gains("uniform", "overbooked")
    larger = gains("worst case", "overbooked", larger=True)
    free, free_larger = (gains("worst case", "overbooked", larger=x, results=False) for x in (False, True))
    yield PublishedFigure(
        "over tiles for the worst case: speed-up, ours words moved", "times", 52.7, mean(worst),
        f"{by_structure(worst)}: 1,000 rows, buffers of {BUFFER:,} words, square tiles of {side(BUFFER)}",
    )  # fmt: skip
    yield PublishedFigure(
        "the same, of a larger matrix", "times", 52.7, mean(larger),
        f"{by_structure(larger)}: 4,000 rows, buffers of {LARGER_BUFFER:,} words; the gain grows with both",
    )  # fmt: skip
    yield PublishedFigure(
        "the same, where no buffer limits tiles of results", "times", 52.7, mean(free),
        f"{by_structure(free)}; larger: {by_structure(free_larger)}. So the limit on tiles of results "
        f"divides the gain by {mean(free) / mean(worst):.1f}; the rest of the difference is not explained",
    )  # fmt: skip
    yield PublishedFigure(
        "over the best tiles that all fit: speed-up, ours words moved", "times", 2.3, mean(best),
        f"{by_structure(best)}: pays where few tiles are much fuller than others; "
        "here results limit tiles as well",
    )  # fmt: skip
    for over, printed in (("tiles for the worst case", 22.5), ("the best tiles that all fit", 2.5)):
        yield PublishedFigure(
            f"over {over}: energy", "times", printed, None, "energies of ExTensor's parts were not at hand"
        )


EXHIBIT = Exhibit(
    "tailors",
    "Tailors: overbooked buffers",
    "Xue et al., MICRO 2023, abstract: means over 22 workloads on ExTensor",
    "Words of generated matrices times themselves; up to a tenth of the tiles exceed their buffers.",
    figures,
)
