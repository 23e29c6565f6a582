"""NVDLA: frames per second of ResNet-50 for seven sizes of the convolution core."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache

from polymodel.api.evaluation import evaluate
from polymodel.exhibits.records import Exhibit, PublishedFigure
from polymodel.loading import load
from polymodel.report.report import Report


@dataclass(frozen=True)
class Core:
    """A configuration of the core: numbers of kernels and channels processed in parallel, buffer size in KiB,
    memory throughput in GB/s, and published frames per second."""

    kernels: int
    channels: int
    buffer: int
    bandwidth: float
    printed: float

    @property
    def multipliers(self) -> int:
        return self.kernels * self.channels

    def rows(self) -> dict[int, int]:
        """Return the rows of an output band by the rows of a feature map: as many as fit in the buffer."""
        return {512: {112: 2, 56: 14, 28: 28}, 256: {112: 2, 56: 4, 28: 14}, 128: {112: 2, 56: 2, 28: 4}}[
            self.buffer
        ] | {14: 14 if self.buffer > 128 else 7, 7: 7, 1: 1}


# The page gives the number of multipliers. Their split is our choice, except for the largest core (its
# specification).
CORES = (
    Core(32, 64, 512, 20, 269),
    Core(32, 32, 256, 15, 153),
    Core(16, 32, 256, 10, 93),
    Core(8, 32, 256, 5, 46),
    Core(8, 16, 256, 2, 20),
    Core(8, 8, 128, 1, 7.3),
    Core(4, 8, 128, 0.5, 3.6),
)


@cache
def evaluated(core: Core) -> Report:
    """Evaluate ResNet-50 layer by layer."""
    sizes = {
        "KERNELS": core.kernels, "CHANNELS": core.channels, "BUFFER": core.buffer,
        "BANDWIDTH": core.bandwidth, "ROWS": core.rows(),
    }  # fmt: skip
    return evaluate(load("resnet_50", "nvdla_like", variables=sizes))


def frames(core: Core) -> float:
    """Return the frames per second."""
    return 1 / evaluated(core).value("latency")


def figures() -> Iterator[PublishedFigure]:
    for core in CORES:
        why = "theirs is an estimate by a model not printed; ours has additions as layers of their own"
        yield PublishedFigure(
            f"{core.multipliers} multipliers, {core.buffer} KB, {core.bandwidth:g} GB/s", "frames/s",
            core.printed, frames(core), why,
        )  # fmt: skip


EXHIBIT = Exhibit(
    "nvdla",
    "NVDLA: ResNet-50 on seven sizes of the convolution core",
    "NVDLA Primer, nvdla.org/primer.html, the table of area and performance at 1 GHz, 8-bit integers",
    "Layer by layer; a layer takes as long as the slower of memory and multipliers. The first has three "
    "channels, and keeps as many of the core busy.",
    figures,
    "polymodel evaluate nvdla_like resnet_50 --var BANDWIDTH=20",
)
