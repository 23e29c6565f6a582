"""The number of passes of attention over its keys, for any mapping."""

from __future__ import annotations

from collections.abc import Iterator

from polymodel.exhibits.records import Exhibit, PublishedFigure
from polymodel.loading import load
from polymodel.workload.einsum import passes

# Workload -> the traversed rank of the keys (for the second one, that of their chunks), passes, description.
PRINTED = {
    "attention_cascade": ("P", 3, "softmax with maximum, sum and division, each over all keys", ""),
    "attention_two_pass": ("C", 2, "softmax beside maxima of chunks, corrected by that of all", ""),
    "attention_one_pass": (
        "C", 1, "softmax with running maxima and sums, over chunks of keys",
        "the cascade of FlashAttention-2; a chunk, which is on chip, is walked twice",
    ),
}  # fmt: skip


def counted(workload: str, rank: str) -> int:
    """Return the number of passes over a rank of the keys."""
    return next(p.passes for p in passes(load(workload).workload) if (p.tensor, p.rank) == ("K", rank))


def figures() -> Iterator[PublishedFigure]:
    for workload, (rank, printed, called, why) in PRINTED.items():
        yield PublishedFigure(called, "passes", printed, counted(workload, rank), why)


EXHIBIT = Exhibit(
    "passes",
    "FuseMax: passes of attention over its keys",
    "Nayak et al., FuseMax, MICRO 2024: the taxonomy of attention's cascades",
    "Counted on the cascades of Einsums alone.",
    figures,
    "polymodel evaluate simple_two_level attention_one_pass",
)
