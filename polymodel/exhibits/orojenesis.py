"""Orojenesis: traffic bounds for every buffer size, beside measured traffic of GPUs."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache

from polymodel.exhibits.records import Exhibit, PublishedFigure
from polymodel.loading import Spec, load
from polymodel.slopes.chain_slope import chain_slope
from polymodel.slopes.ski_slope import ski_slope

MIB = 2**20
# MiB of L2 cache -> MiB of off-chip traffic of a float32 matmul of 4096^3, on SIMT cores and on tensor cores.
MEASURED = {2: (2754.6, 1617.9), 24: (650, 561.51), 40: (533, 411.06), 50: (373.39, 373.33)}
LEAST = {
    "unfused": 1476395008,
    "fused": 402653184,
}  # words of traffic of the two feed-forward layers of GPT-3 6.7B, 32k tokens


def _spec(einsums: list[str], sizes: dict[str, int], bits: int) -> Spec:
    return load({"workload": {"rank_sizes": sizes, "bits_per_value": {"All": bits}, "einsums": einsums}})


@cache
def least_words() -> dict[str, int]:
    """Return, for each curve, the least off-chip words of the two feed-forward layers with an unbounded
    buffer."""
    einsums = ["H[m, h] = X[m, k] * V[k, h]", "Y[m, n] = H[m, h] * W[h, n]"]
    pair = _spec(einsums, {"M": 32768, "K": 4096, "H": 16384, "N": 4096}, 16)
    least = chain_slope(pair).frame.groupby("curve")["accesses_words"].min()
    return {"unfused": int(least["unfused"]), "fused": int(least["ffmr_retain"])}


def sizes_that_matter(extent: int) -> list[int]:
    """Return one tile size for each number of tiles: the smallest, which needs the least space for the same
    traffic."""
    return sorted({-(-extent // tiles) for tiles in range(1, extent + 1)})


@cache
def bound_of_gemm(mebibytes: int) -> float:
    """Return the least off-chip traffic in MiB of a float32 matmul of 4096 x 4096 x 4096 with one buffer of
    the given size in MiB."""
    square = _spec(["Z[m, n] = A[m, k] * B[k, n]"], {"M": 4096, "K": 4096, "N": 4096}, 32)
    # Tile sizes that divide the extents do not suffice: in 2 MiB uneven tiles move a quarter less.
    tried = dict.fromkeys(("m", "n", "k"), sizes_that_matter(4096))
    slope = ski_slope(square, unit="bits", tiles=tried).frame
    fits = slope[slope["capacity_bits"] <= 8 * MIB * mebibytes]
    return int(fits["accesses_bits"].min()) / 8 / MIB


def figures() -> Iterator[PublishedFigure]:
    for curve, words in LEAST.items():
        yield PublishedFigure(
            f"feed-forward pair of GPT-3 6.7B, 32k tokens, {curve}: least traffic",
            "words",
            words,
            least_words()[curve],
        )
    for cache_size, measured in MEASURED.items():
        for kind, moved in zip(("SIMT cores", "tensor cores"), measured, strict=True):
            yield PublishedFigure(
                f"matmul of 4096^3, float32, L2 of {cache_size} MiB, {kind}: off chip", "MiB", moved,
                bound_of_gemm(cache_size),
                "theirs is measured; ours is what no mapping with one buffer of this size beats",
            )  # fmt: skip


EXHIBIT = Exhibit(
    "orojenesis",
    "Orojenesis: the least traffic for a buffer",
    "NVlabs Orojenesis, notebooks of figures 18 and 24a",
    "Ski slopes of one matmul, and of a pair of matmuls unfused and fused.",
    figures,
)
