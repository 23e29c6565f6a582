"""Figures that papers and documents print, beside ours, computed here."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import polymodel as pm
from polymodel.exhibits import fused_layers, timeloop_page
from polymodel.exhibits.looptree import CAPACITY, CYCLES, READS, WRITES, capacities, reads_and_writes, spec
from polymodel.exhibits.orojenesis import bound_of_gemm, least_words
from polymodel.sparse.tensaurus import published as tensaurus_figures
from polymodel.tiling.swift.compat import MATRICES
from tests.documents.validation_words import CLAIMS
from tests.reference.tiling_matrices import matrix

DIFFERENT = "**different**"


@dataclass(frozen=True)
class Figure:
    """One published figure: what, theirs, ours, and why they differ or how they agree."""

    what: str
    theirs: str
    ours: str
    why: str

    def text(self) -> str:
        """A row of a Markdown table."""
        return (
            "| "
            + " | ".join(c.replace("|", "\\|") for c in (self.what, self.theirs, self.ours, self.why))
            + " |"
        )


def looptree() -> Iterator[Figure]:
    """Two fused matmuls, the published test of the LoopTree model."""
    report = pm.evaluate(spec())
    reads, writes = reads_and_writes(report)
    peaks = capacities(report)
    for what, theirs, ours in (
        (f"reads less drains, {len(READS)} figures, their sum", READS, reads),
        (f"writes, {len(WRITES)} figures, their sum", WRITES, writes),
        (f"capacities of {len(CAPACITY)} levels, their sum", CAPACITY, peaks),
    ):
        same = "each is equal" if dict(theirs) == dict(ours) else DIFFERENT
        yield Figure(
            f"LoopTree model, two fused matmuls: {what}",
            f"{sum(theirs.values())}",
            f"{sum(ours.values())}",
            same,
        )
    cycles = int(report.total_latency)
    yield Figure("the same: cycles", f"{CYCLES}", f"{cycles}", "equal" if cycles == CYCLES else DIFFERENT)


def fused_cnn() -> Iterator[Figure]:
    """The fused front of VGGNet-E."""
    moved, peak = fused_layers.maps_off_chip("tiled_fused"), fused_layers.maps_on_chip()
    name = "Alwani et al., MICRO 2016, front of VGGNet-E, fused"
    yield Figure(
        f"{name}: feature maps off chip",
        "3.6 MB",
        f"{moved:,} bytes = {moved / fused_layers.MIB:.2f} MiB",
        "equal as printed" if f"{moved / fused_layers.MIB:.1f}" == "3.6" else DIFFERENT,
    )
    yield Figure(
        f"{name}: buffer", "362 KB", f"{peak:,} bytes = {peak / 1024:.0f} KiB",
        "live elements of the feature maps; the order of operations within a pixel is not published",
    )  # fmt: skip
    yield Figure(
        "the same: off chip, not fused", "77 MB", "not computed",
        "theirs is a tiled design whose tiles are not published ([more](differences.md))",
    )  # fmt: skip


def orojenesis() -> Iterator[Figure]:
    """Bounds of Orojenesis, and the measured traffic that they bound."""
    name = "Orojenesis, feed-forward pair of GPT-3 6.7B, 32k tokens: least words"
    for curve, words, theirs in (("unfused", "not fused", 1476395008), ("fused", "fused", 402653184)):
        ours = least_words()[curve]
        same = "equal; theirs follows from the published setup" if ours == theirs else DIFFERENT
        yield Figure(f"{name}, {words}", f"{theirs:,}", f"{ours:,}", same)
    measured = zip((2, 24, 40, 50), (2754.6, 650, 533, 373.39), (1617.9, 561.51, 411.06, 373.33), strict=True)
    for cache, simt, tensor in measured:
        bound = bound_of_gemm(cache)
        yield Figure(
            f"Orojenesis, matmul of 4096 x 4096 x 4096, float32, GPU with {cache} MiB of cache: MiB off chip",
            f"{simt} (SIMT), {tensor} (tensor cores)", f"at least {bound:.1f}",
            "theirs is measured; ours is the bound that no mapping with one buffer of this size beats"
            if bound <= tensor else "measured below the bound: it counts reads of DRAM alone, or caches more",
        )  # fmt: skip


def timeloop_document() -> Iterator[Figure]:
    """The example of Timeloop's page about its output."""
    ours = tuple(timeloop_page.counted().values())
    theirs = tuple(timeloop_page.PRINTED.values())
    yield Figure(
        "Timeloop's page about its output: weights, inputs, outputs, computes, cycles",
        ", ".join(f"{x:,}" for x in theirs), ", ".join(f"{x:,}" for x in ours),
        "equal" if ours == theirs else DIFFERENT,
    )  # fmt: skip


def worded(value: object) -> str:
    """A figure of any kind."""
    return "not computed" if value is None else f"{value:g}" if isinstance(value, float) else str(value)


def tensaurus() -> Iterator[Figure]:
    """Tensaurus' paper."""
    for record in tensaurus_figures():
        theirs, ours = map(worded, (record.published, record.ours))
        yield Figure(f"Tensaurus: {record.quantity}, {record.unit}", theirs, ours, record.note)


def tiler_swift() -> Iterator[Figure]:
    """Tiler-Swift's claims."""
    means = pm.tiler_swift_comparison(
        [matrix(f"ts_{name}", Path(__file__), name).renamed(name) for name in MATRICES]
    ).means
    for row in means.to_dict("records"):
        name = f"Tiler-Swift, {row['op']}, {row['tiler']} against simple"
        why = "with the three defects of its program rebuilt: {}; ours is without them"
        for what, key in (("run, times as fast", "speed_up"), ("configuration, % less", "reduction")):
            theirs, built, ours = (
                row[k] for k in (f"claimed_{key}", f"as_built_{key}", f"corrected_{key}_all")
            )
            yield Figure(f"{name}: {what}", f"{theirs}", f"{ours:.2f}", why.format(f"{built:.2f}"))


def section() -> str:
    """What is computed from this repository alone, as Markdown."""
    found = [
        figure
        for part in (looptree, timeloop_document, fused_cnn, orojenesis, tensaurus)
        for figure in part()
    ]
    lines = [
        f"## {PUBLISHED}", "",
        "What papers and documents print, beside what we compute.", "", *HEAD,
        *(figure.text() for figure in found),
        *(Figure(what, "a claim", "not computed", why).text() for what, why in CLAIMS.items()), "",
    ]  # fmt: skip
    return "\n".join(lines)


HEAD = ("| figure | published | ours | why |", "|---|---|---|---|")
PUBLISHED = "Published figures"
TILER_SWIFT = "Published figures of Tiler-Swift"


def tiler_swift_section() -> str:
    """What needs the matrices of Tiler-Swift's evaluation, as Markdown."""
    why = "Its six matrices are not part of the repository: `make reference DATA=DIR` compares this table."
    return "\n".join([f"## {TILER_SWIFT}", "", why, "", *HEAD, *(f.text() for f in tiler_swift()), ""])
