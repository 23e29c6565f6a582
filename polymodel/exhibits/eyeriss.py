"""Eyeriss on AlexNet: what its row-stationary mappings move, layer by layer."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from typing import Any

from polymodel.api.evaluation import evaluate
from polymodel.exhibits.records import Exhibit, PublishedFigure
from polymodel.loading import load
from polymodel.report.report import Report

MB = 1e6
BATCH, BITS = 4, 16
CLOCK = 200e6


@dataclass(frozen=True)
class Layer:
    """A convolution of AlexNet, and the parameters of its row-stationary mapping.

    `size`: rows and columns of the output; `kept`, `images`, `rows`: output channels, images and output rows
    whose partial sums lie in the global buffer; in one pass a set of PEs does `filters` of `channels`;
    `filter_sets` and `channel_sets` of them lie side by side.
    """

    channels_out: int
    channels_in: int
    size: int
    kernel: int
    stride: int
    groups: int
    kept: int
    images: int
    rows: int
    filters: int
    channels: int
    channel_sets: int
    filter_sets: int

    def workload(self) -> dict[str, Any]:
        sizes = {"b": BATCH, "m": self.channels_out, "c": self.channels_in, "p": self.size, "q": self.size}
        step = f"{self.stride} * " if self.stride > 1 else ""
        accesses = [
            {"name": "I", "projection": {"B": "b", "C": "c", "H": f"{step}p + r", "W": f"{step}q + s"}},
            {"name": "F", "projection": ["m", "c", "r", "s"]},
            {"name": "O", "projection": ["b", "m", "p", "q"], "output": True},
        ]
        shape = {**sizes, "r": self.kernel, "s": self.kernel}
        return {
            "bits_per_value": {"All": BITS},
            "iteration_space_shape": {v: f"0 <= {v} < {n}" for v, n in shape.items()},
            "einsums": [
                {
                    "name": "Conv",
                    "n_instances": self.groups,
                    "renames": {"input": "I", "weight": "F", "output": "O"},
                    "tensor_accesses": accesses,
                }
            ],
        }

    def mapping(self) -> dict[str, Any]:
        rows = [_spatial("p", 14, "Y")] if self.rows > 14 else []
        return {
            "nodes": [
                _storage("DRAM", "I", "F", "O"),
                _temporal("b", self.images), _temporal("m", self.kept), _temporal("p", self.rows),
                _storage("GLB", "O"),
                _temporal("c", self.channels * self.channel_sets),
                _storage("GLB", "I"),
                _temporal("m", self.filters * self.filter_sets),
                *rows, _spatial("p", 1, "X"), _spatial("r", 1, "Y"),
                _spatial("m", self.filters, "X" if self.rows <= 7 else "Y"),
                _spatial("c", self.channels, "Y"),
                _storage("FilterSpad", "F"),
                _temporal("b", 1), _temporal("q", 1),
                _storage("IfmapSpad", "I", reuse="slide"), _storage("PsumSpad", "O"),
                _temporal("s", 1), _temporal("c", 1), _temporal("m", 1),
                {"type": "Compute", "einsum": "Conv", "component": "MAC"},
            ]
        }  # fmt: skip


def _storage(component: str, *tensors: str, **more: str) -> dict[str, Any]:
    return {"type": "Storage", "component": component, "tensors": list(tensors), **more}


def _temporal(variable: str, tile: int) -> dict[str, Any]:
    return {"type": "Temporal", "rank_variable": variable, "tile_shape": tile}


def _spatial(variable: str, tile: int, name: str) -> dict[str, Any]:
    return {"type": "Spatial", "rank_variable": variable, "tile_shape": tile, "component": "PE", "name": name}


LAYERS = {
    "CONV1": Layer(96, 3, 55, 11, 4, 1, 96, 1, 7, 16, 1, 1, 2),
    "CONV2": Layer(128, 48, 27, 5, 1, 2, 64, 1, 27, 16, 2, 1, 1),
    "CONV3": Layer(384, 256, 13, 3, 1, 1, 64, 4, 13, 16, 3, 2, 2),
    "CONV4": Layer(192, 192, 13, 3, 1, 2, 64, 4, 13, 16, 3, 2, 2),
    "CONV5": Layer(128, 192, 13, 3, 1, 2, 64, 4, 13, 16, 3, 2, 2),
}
# Layer -> millions of multiply-accumulates, active PEs, milliseconds of processing, megabytes of accesses of
# the global buffer and of DRAM, as printed.
PRINTED = {
    "CONV1": (420, 154, 16.5, 18.5, 5.0),
    "CONV2": (900, 135, 39.2, 77.6, 4.0),
    "CONV3": (600, 156, 21.8, 50.2, 3.0),
    "CONV4": (450, 156, 16.0, 37.4, 2.1),
    "CONV5": (300, 156, 10.0, 24.9, 1.3),
}


@cache
def evaluated(layer: str) -> Report:
    """A layer under its mapping on the machine of the library."""
    one = LAYERS[layer]
    return evaluate(load("eyeriss_like", {"workload": one.workload(), "mapping": one.mapping()}))


def moved(layer: str, component: str) -> float:
    """Megabytes that a memory exchanges with what is further in, all images."""
    bits = 0
    for row in evaluated(layer).table("accesses").records():
        if row["component"] == component:
            bits += int(row["read_bits"] or 0) + int(row["write_bits"] or 0)
            bits -= int(row["fill_bits"] or 0)
    return bits / 8 / MB


def active(layer: str) -> int:
    """PEs that work."""
    (one,) = evaluated(layer).analysis.compute
    return one.instances


def least_time(layer: str) -> float:
    """Milliseconds if no PE ever waits."""
    (one,) = evaluated(layer).analysis.compute
    return one.busiest * LAYERS[layer].groups / CLOCK * 1e3


def operations(layer: str) -> int:
    """Multiply-accumulates of all images."""
    return sum(t.operations for t in evaluated(layer).costs.latency)


def figures() -> Iterator[PublishedFigure]:
    rounded = "equal to the digits that are printed"
    for layer, (macs, pes, milliseconds, buffer, dram) in PRINTED.items():
        told = rounded
        if layer == "CONV3":
            told += "; channels and sets chosen as CONV4 has them (4 channels, 4 sets of filters: 69.2 MB)"
        yield PublishedFigure(
            f"{layer}: multiply-accumulates", "millions", macs, operations(layer) / 1e6, rounded
        )
        yield PublishedFigure(f"{layer}: active PEs", "PEs", pes, active(layer))
        yield PublishedFigure(f"{layer}: global buffer", "MB", buffer, moved(layer, "GLB"), told)
        yield PublishedFigure(
            f"{layer}: DRAM", "MB", dram, moved(layer, "DRAM"),
            "ours before compression; theirs has feature maps compressed run by run",
        )  # fmt: skip
        yield PublishedFigure(
            f"{layer}: processing", "ms", milliseconds, least_time(layer),
            "ours if no PE ever waits; theirs was measured",
        )  # fmt: skip
    words = sum(moved(layer, "DRAM") for layer in LAYERS) * MB * 8 / BITS
    yield PublishedFigure(
        "all: DRAM accesses per multiply-accumulate", "words", 0.0029,
        words / sum(map(operations, LAYERS)), "ours before compression",
    )  # fmt: skip


EXHIBIT = Exhibit(
    "eyeriss",
    "Eyeriss: AlexNet's convolutions, row-stationary",
    "Chen et al., Eyeriss, JSSC 52(1), 2017: the table of AlexNet's layers at 1 V, four images, as "
    "github.com/cucapra/fodlam has it in data/eyeriss-alexnet.csv; DRAM accesses per operation: the abstract",
    "Each layer under one row-stationary mapping; of the global buffer, what it exchanges with the array.",
    figures,
    "polymodel evaluate eyeriss_like alexnet --var BATCH=4 --var BITS=16  # under another mapping than this "
    "table's, which are built in polymodel/exhibits/eyeriss.py",
)
