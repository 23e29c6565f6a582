"""Tailors: the savings of overbooked tiles over tiles sized for the worst case, and over the best tiles that
always fit."""

from __future__ import annotations

from collections.abc import Iterator

from polymodel.exhibits import sparse_at_size
from polymodel.exhibits.records import Exhibit, PublishedFigure
from polymodel.exhibits.sparse_tiles import (
    BUFFER,
    CLUSTERED,
    LARGER_BUFFER,
    by_structure,
    gains,
    mean,
    side,
)
from polymodel.exhibits.tiling_law import THIRD, WORKLOADS, expected_gains

OVER_WORST, OVER_BEST = 52.7, 2.3


def figures() -> Iterator[PublishedFigure]:
    yield from _small()
    yield from _at_size()
    best, clustered = gains("uniform", "overbooked"), gains("uniform", "overbooked", made=CLUSTERED)
    yield PublishedFigure(
        "over the best tiles that all fit: speed-up, ours words moved", "times", OVER_BEST, mean(best),
        f"{by_structure(best)}: the largest tiles that all fit are here nearly as large as those of which a "
        "tenth does not",
    )  # fmt: skip
    yield PublishedFigure(
        "the same, with one dense block", "times", OVER_BEST, mean(clustered),
        f"{by_structure(clustered)}. A dense block makes the best square tiles that all fit those for the "
        "worst case: so the more uneven the data, the nearer the gain is to that over the worst case",
    )  # fmt: skip
    saved = sparse_at_size.savings()
    yield PublishedFigure(
        "over tiles for the worst case: energy", "times", 22.5, _average(saved),
        f"{by_structure(saved)}: memory, last-level buffer and multipliers by the points of Horowitz, ISSCC "
        "2014, buffers beyond them extrapolated; tiles in processing elements are for the worst case in both",
    )  # fmt: skip
    yield PublishedFigure(
        "over the best tiles that all fit: energy", "times", 2.5, None,
        "at these sizes the best tiles that all fit move as many words: see the rows of that speed-up",
    )  # fmt: skip


def _small() -> Iterator[PublishedFigure]:
    worst, larger = gains("worst case", "overbooked"), gains("worst case", "overbooked", larger=True)
    free, free_larger = (gains("worst case", "overbooked", larger=x, results=False) for x in (False, True))
    yield PublishedFigure(
        "over tiles for the worst case: speed-up, ours words moved", "times", OVER_WORST, mean(worst),
        f"{by_structure(worst)}: 1,000 rows, buffers of {BUFFER:,} words, square tiles of {side(BUFFER)}",
    )  # fmt: skip
    yield PublishedFigure(
        "the same, of a larger matrix", "times", OVER_WORST, mean(larger),
        f"{by_structure(larger)}: 4,000 rows, buffers of {LARGER_BUFFER:,} words; the gain grows with both",
    )  # fmt: skip
    yield PublishedFigure(
        "the same, where no buffer limits tiles of results", "times", OVER_WORST, mean(free),
        f"{by_structure(free)}; larger: {by_structure(free_larger)}. The limit on tiles of results divides "
        f"the gain by {mean(free) / mean(worst):.1f}",
    )  # fmt: skip


def _at_size() -> Iterator[PublishedFigure]:
    limited, free = expected_gains(True), expected_gains(False)
    tile = side(THIRD)
    law = (
        f"tiles of {tile} x {tile} are refetched rows / {tile} times, as long as tiles meet; larger ones as "
        "much less often as they are larger, down to the results, which move once"
    )
    for what, found in (("30 MB in three parts", limited), ("the same, results not limited", free)):
        least, most = min(found, key=found.__getitem__), max(found, key=found.__getitem__)
        yield PublishedFigure(
            f"expected at {len(WORKLOADS)} published sizes and densities, {what}", "times", OVER_WORST,
            _average(found),
            f"nonzeros at random places; {law}. From {found[least]:.1f} ({least}) to {found[most]:.0f} "
            f"({most}), geometric mean {mean(found):.1f}",
        )  # fmt: skip
    measured = sparse_at_size.speedups("worst", "overbooked")
    yield PublishedFigure(
        "counted on generated matrices of published sizes, 30 MB in three parts", "times", OVER_WORST,
        _average(measured),
        f"{by_structure(measured)}. By the random places of the rows above the first gains "
        f"{limited['p2p-Gnutella31']:.0f}, mc2depi {limited['mc2depi']:.1f}, bcsstk17 "
        f"{limited['bcsstk17']:.1f}: nonzeros near the diagonal meet few tiles. How many of the workloads "
        "are graphs makes the mean",
    )  # fmt: skip


def _average(found: dict[str, float]) -> float:
    """Return the arithmetic mean (the abstract does not say which mean it gives)."""
    return sum(found.values()) / len(found)


EXHIBIT = Exhibit(
    "tailors",
    "Tailors: overbooked buffers",
    "Xue et al., MICRO 2023, abstract: means over 22 workloads on ExTensor",
    "Words of generated matrices times themselves; up to a tenth of the tiles exceed their buffers.",
    figures,
)
