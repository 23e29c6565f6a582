"""Eyeriss on AlexNet: the traffic of its row-stationary mappings, layer by layer."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from functools import cache
from typing import Any

from polymodel.api.evaluation import evaluate
from polymodel.exhibits import sparseloop_dram
from polymodel.exhibits.records import Exhibit, PublishedFigure
from polymodel.loading import load
from polymodel.report.report import Report

MB = 1e6
BATCH, BITS = 4, 16
CLOCK = 200e6


@dataclass(frozen=True)
class Layer:
    """A convolution of AlexNet, and the parameters of its row-stationary mapping.

    `size`: rows and columns of the output; `kept`, `images`, `rows`: numbers of output channels, images and
    output rows whose partial sums the global buffer holds; in one pass a set of PEs processes `filters`
    filters of `channels` channels; `filter_sets` and `channel_sets` such sets operate in parallel.
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
# The paper's table of mapping parameters gives CONV3 four channels and four sets of filters (q = 4, r = 1, t
# = 4). Its measured traffic, 50.2 MB, is 4/3 of CONV4's 37.4, as are its operations: the ratio that one
# mapping for both layers gives. LAYERS uses the mapping of CONV4; this is the one of the paper's table.
CONV3_OF_THE_PAPER = replace(LAYERS["CONV3"], channels=4, channel_sets=1, filter_sets=4)
# Layer -> 1e9 multiply-accumulates, active PEs, milliseconds of processing, megabytes of accesses of the
# global buffer and of DRAM, as printed. The file named below has 21.3 ms for CONV3; with the other
# layers only 21.8 ms adds up to the 103.5 ms of its last row.
PRINTED = {
    "CONV1": (0.42, 154, 16.5, 18.5, 5.0),
    "CONV2": (0.90, 135, 39.2, 77.6, 4.0),
    "CONV3": (0.60, 156, 21.8, 50.2, 3.0),
    "CONV4": (0.45, 156, 16.0, 37.4, 2.1),
    "CONV5": (0.30, 156, 10.0, 24.9, 1.3),
}
# Milliseconds of each layer with what is loaded and configured before, in the same table of the paper.
TOTAL_LATENCIES = (20.9, 41.9, 23.6, 18.4, 10.5)


@cache
def evaluated(layer: Layer) -> Report:
    """Evaluate a layer under its mapping on the library's model of Eyeriss."""
    return evaluate(load("eyeriss_like", {"workload": layer.workload(), "mapping": layer.mapping()}))


def moved(layer: Layer, component: str, less: tuple[str, ...] = ("fill",)) -> float:
    """Return the megabytes that a memory reads and writes for all images, without its fills from the next
    outer memory (and without its `drain` to that memory, where `less` names it)."""
    bits = 0
    for row in evaluated(layer).table("accesses").records():
        if row["component"] == component:
            bits += int(row["read_bits"] or 0) + int(row["write_bits"] or 0)
            bits -= sum(int(row[f"{kind}_bits"] or 0) for kind in less)
    return bits / 8 / MB


def active(layer: Layer) -> int:
    """Return the number of active PEs."""
    (one,) = evaluated(layer).analysis.compute
    return one.instances


def least_time(layer: Layer) -> float:
    """Return the time in milliseconds if no PE ever stalls."""
    (one,) = evaluated(layer).analysis.compute
    return one.busiest * layer.groups / CLOCK * 1e3


def latency(layer: Layer) -> float:
    """Return the latency of the model in milliseconds."""
    return evaluated(layer).total_latency * 1e3


def operations(layer: Layer) -> int:
    """Return the multiply-accumulates of all images."""
    return sum(t.operations for t in evaluated(layer).costs.latency)


def packed(name: str) -> float:
    """Return the DRAM traffic in megabytes, reduced by the compression ratios of Sparseloop's table."""
    return moved(LAYERS[name], "DRAM") / sparseloop_dram.LAYERS[name.lower()].ratio


def _listed(values: Iterable[float], digits: int) -> str:
    return ", ".join(f"{v:.{digits}f}" for v in values)


ROUNDED = "equal to the digits that are printed"


def counted() -> str:
    """Return the explanation of the counted global-buffer traffic, with the totals under alternative counting
    rules for one layer."""
    first = LAYERS["CONV1"]
    every, ours = moved(first, "GLB", ()), moved(first, "GLB")
    return (
        f"{ROUNDED}; reads and writes less fills from DRAM: of CONV1 {every:.2f} less {every - ours:.2f}, "
        f"and {moved(first, 'GLB', ('fill', 'drain')):.2f} if drains to DRAM were left out as well. The "
        "table names no rule; this one agrees wherever the mapping is the paper's"
    )


def waiting() -> str:
    """Return the explanation of the stalls that the modelled times leave out."""
    times = _listed(map(latency, LAYERS.values()), 1)
    return (
        "the time if no PE ever waits, not the latency of the model; theirs was measured. Evaluated on "
        f"eyeriss_like, CONV1 to CONV5 take {times} ms: from CONV2 on they wait for the GLB, whose link of "
        "four words per clock is chosen for illustration"
    )


def compressed() -> str:
    """Return the explanation of the part of the DRAM differences that is due to compression."""
    ratios = _listed((v.ratio for v in sparseloop_dram.LAYERS.values()), 1)
    return (
        "ours before compression, theirs with feature maps coded by run lengths; divided by the ratios of "
        f"the exhibit sparseloop_dram ({ratios}) ours are {_listed(map(packed, LAYERS), 2)} MB"
    )


def figures() -> Iterator[PublishedFigure]:
    borrowed = (
        "counted as in the other layers, but under CONV4's mapping (6 channels, 2 sets of filters), chosen "
        "because it agrees; the next row is CONV3 under its own"
    )
    rule, time, coded = counted(), waiting(), compressed()
    for name, (macs, pes, milliseconds, buffer, dram) in PRINTED.items():
        layer = LAYERS[name]
        yield PublishedFigure(f"{name}: multiply-accumulates", "G", macs, operations(layer) / 1e9, ROUNDED)
        yield PublishedFigure(f"{name}: active PEs", "PEs", pes, active(layer))
        yield PublishedFigure(
            f"{name}: global buffer", "MB", buffer, moved(layer, "GLB"),
            borrowed if name == "CONV3" else rule,
        )  # fmt: skip
        if name == "CONV3":
            yield PublishedFigure(
                "CONV3, mapping of the paper: global buffer", "MB", buffer, moved(CONV3_OF_THE_PAPER, "GLB"),
                "4 channels, 4 sets of filters (q = 4, r = 1, t = 4). The 50.2 that are printed are 4/3 of "
                "CONV4's 37.4, as are the operations: we take it that both were measured under one mapping",
            )  # fmt: skip
        yield PublishedFigure(f"{name}: DRAM", "MB", dram, moved(layer, "DRAM"), coded)
        yield PublishedFigure(f"{name}: processing, no PE waits", "ms", milliseconds, least_time(layer), time)
    busy, whole = (sum(t) / 1e3 for t in (map(least_time, LAYERS.values()), map(latency, LAYERS.values())))
    yield PublishedFigure(
        "all: frames per second, no PE waits", "frames/s", 35, BATCH / busy,
        f"of the times above; with the latencies of the model {BATCH / whole:.1f}. The processing times that "
        f"are printed make {BATCH / sum(p[2] for p in PRINTED.values()) * 1e3:.1f}: the 35 are those of the "
        f"total latencies of the same table, {sum(TOTAL_LATENCIES):.1f} ms, which include loading and "
        "configuration",
    )  # fmt: skip
    per_word = sum(map(operations, LAYERS.values())) * BITS / 8 / MB
    yield PublishedFigure(
        "all: DRAM accesses per multiply-accumulate", "words", 0.0029,
        sum(moved(v, "DRAM") for v in LAYERS.values()) / per_word,
        f"ours before compression; with the same ratios {sum(map(packed, LAYERS)) / per_word:.4f}",
    )  # fmt: skip


EXHIBIT = Exhibit(
    "eyeriss",
    "Eyeriss: AlexNet's convolutions, row-stationary",
    "Chen et al., Eyeriss, JSSC 52(1), 2017: the table of AlexNet's layers at 1 V, four images, as "
    "github.com/cucapra/fodlam has it in data/eyeriss-alexnet.csv; frames per second and DRAM "
    "accesses per operation: the abstract",
    "Each layer under one row-stationary mapping, CONV3 under that of CONV4; of the global buffer, what "
    "it reads and writes less its fills from DRAM.",
    figures,
    "polymodel evaluate eyeriss_like alexnet --var BATCH=4 --var BITS=16  # under another mapping than this "
    "table's, which docs/gallery.md writes to files",
)
