"""Alwani et al., Fused-Layer CNN Accelerators: the front of VGGNet-E over feature-map traffic off chip and
feature-map storage on chip."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache

from polymodel.api.evaluation import evaluate
from polymodel.exhibits.records import Exhibit, PublishedFigure
from polymodel.loading import load
from polymodel.report.report import Report

MIB = 2**20


@cache
def front(variant: str) -> Report:
    """Return the front of VGGNet-E on a machine like that of the paper."""
    return evaluate(load("fused_layer_fpga", f"vgg_e_front/{variant}"))


def maps_off_chip(variant: str) -> int:
    """Return the bytes of feature maps that DRAM reads and writes."""
    rows = [r for r in front(variant).table("accesses").records() if r["component"] == "DRAM"]
    maps = [r for r in rows if not str(r["tensor"]).startswith("F")]
    return sum(int(r["read_bits"] or 0) + int(r["write_bits"] or 0) for r in maps) // 8


def maps_on_chip() -> int:
    """Return the joint peak of the feature maps of the fused mapping in bytes."""
    live = [r for r in front("tiled_fused").table("working_sets").records() if r["measure"] == "live"]
    return max(int(r["bits"] or 0) for r in live if r["component"] == "FeatureBuffer") // 8


def figures() -> Iterator[PublishedFigure]:
    moved, peak = maps_off_chip("tiled_fused"), maps_on_chip()
    yield PublishedFigure(
        "feature maps off chip, fused", "MiB", 3.6, moved / MIB,
        f"equal to the digits that are printed: MB there, read as 2**20 bytes; in 10**6 bytes ours are "
        f"{moved / 1e6:.2f}, {100 * (moved / 1e6 / 3.6 - 1):+.0f} %",
    )  # fmt: skip
    yield PublishedFigure(
        "buffer of the feature maps, fused", "KiB", 362, peak / 1024,
        "live elements; the order of operations within a pixel is not published. KB there, read as 2**10 "
        f"bytes; in 10**3 bytes ours are {peak / 1e3:.0f}, {100 * (peak / 1e3 / 362 - 1):+.0f} %",
    )  # fmt: skip
    yield PublishedFigure(
        "feature maps off chip, not fused",
        "MB",
        77,
        None,
        "theirs is a tiled design whose tiles are not published",
    )


EXHIBIT = Exhibit(
    "fused_layers",
    "Fused-layer CNN accelerators: the front of VGGNet-E",
    "Alwani et al., MICRO 2016, abstract and section 6",
    "Five convolutions and two pools, fused pixel by pixel; halos are kept.",
    figures,
    "polymodel evaluate fused_layer_fpga vgg_e_front/tiled_fused --live",
)
