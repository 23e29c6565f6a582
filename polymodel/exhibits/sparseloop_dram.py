"""Sparseloop's validation of compressed feature maps: off-chip traffic of AlexNet's convolutions on
Eyeriss.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from polymodel.api.evaluation import evaluate
from polymodel.exhibits.records import Exhibit, PublishedFigure
from polymodel.loading import load

WORD, RUN = 16, 5


@dataclass(frozen=True)
class CompressedLayer:
    """A convolution of four images. `loops`: the loops around the global buffer with their tile sizes, as in
    the artifact; `kept`: the number of output channels whose weights stay below the global buffer; `read`:
    compressed words of weights, inputs and outputs that its run moves; `ratio`: dense traffic divided by
    compressed traffic, as computed by its script from its stored runs."""

    filters: int
    channels: int
    size: int
    window: int
    stride: int
    inputs: float
    outputs: float
    loops: tuple[tuple[str, int], ...]
    kept: int
    read: tuple[int, int, int]
    ratio: float


LAYERS = {
    "conv1": CompressedLayer(
        96, 3, 56, 11, 4, 0.999, 0.378, (("q", 7), ("n", 1), ("c", 1)), 32, (1115136, 776160, 455197), 1.2
    ),
    "conv2": CompressedLayer(
        256, 48, 28, 5, 1, 0.6, 0.169, (("q", 14), ("n", 2), ("m", 32), ("c", 4)), 16,
        (1228800, 1061684, 135676), 1.4,
    ),
    "conv3": CompressedLayer(
        384, 256, 13, 3, 1, 0.275, 0.303, (("m", 64), ("c", 4)), 64,
        (884736, 380161, 78654), 1.7,
    ),
    "conv4": CompressedLayer(
        384, 192, 13, 3, 1, 0.207, 0.304, (("m", 64), ("c", 4)), 64,
        (663552, 214618, 78914), 1.9,
    ),
    "conv5": CompressedLayer(
        256, 192, 13, 3, 1, 0.23, 0.1, (("m", 64), ("c", 4)), 64,
        (442368, 158976, 17306), 1.9,
    ),
}  # fmt: skip


def _memory(name: str, keep: str, formats: dict[str, Any]) -> dict[str, Any]:
    actions = [{"name": way, "energy": 0, "throughput": 1e18} for way in ("read", "write")]
    sparse = {"sparse": {"format": formats}} if formats else {}
    memory = {"type": "Memory", "name": name, "size": "inf", "tensors": {"keep": keep}, "actions": actions}
    return memory | sparse


def _loop(variable: str, tile: int) -> dict[str, Any]:
    return {"type": "Temporal", "rank_variable": variable, "tile_shape": tile}


def _runs(*ranks: str) -> dict[str, Any]:
    """Return run lengths of 5 bits along the last rank; the other ranks need no storage."""
    *above, last = ranks
    outer = {rank: {"format": "U", "pbits": 0} for rank in above}
    return {"rank-order": list(ranks), **outer, last: {"format": "RLE", "rbits": RUN, "pbits": WORD}}


def spec(layer: CompressedLayer) -> dict[str, Any]:
    """Return the convolution on DRAM, a global buffer for feature maps and a buffer for weights; feature maps
    are compressed in DRAM."""
    formats = {"O": _runs("N", "M", "P", "Q")}
    if layer.inputs < 0.9:
        formats["I"] = _runs("N", "C", "H", "W")
    across, s = layer.size, layer.stride
    return {
        "arch": {"nodes": [
            _memory("DRAM", "All", formats), _memory("GLB", "I | O", {}), _memory("Weights", "F", {}),
            {"type": "Compute", "name": "MAC",
             "actions": [{"name": "compute", "energy": 0, "throughput": 1e9}]},
        ]},
        "workload": {
            "rank_sizes": {
                "N": 4, "M": layer.filters, "C": layer.channels, "P": across, "Q": across, "R": layer.window,
                "S": layer.window, "H": (across - 1) * s + layer.window, "W": (across - 1) * s + layer.window,
            },
            "bits_per_value": {"All": WORD}, "densities": {"I": layer.inputs, "O": layer.outputs},
            "einsums": [{"name": "O", "tensor_accesses": [
                {"name": "I", "projection": {"N": "n", "C": "c", "H": f"{s}*p + r", "W": f"{s}*q + s"}},
                {"name": "F", "projection": ["m", "c", "r", "s"]},
                {"name": "O", "projection": ["n", "m", "p", "q"], "output": True},
            ]}],
        },
        "mapping": {"nodes": [
            {"type": "Storage", "component": "DRAM", "tensors": ["I", "F", "O"]},
            *(_loop(v, tile) for v, tile in layer.loops[:-1]),
            {"type": "Storage", "component": "GLB", "tensors": ["O"]},
            _loop(*layer.loops[-1]),
            {"type": "Storage", "component": "GLB", "tensors": ["I"]},
            _loop("m", layer.kept),
            {"type": "Storage", "component": "Weights", "tensors": ["F"]},
            *(_loop(v, 1) for v in "npqcrsm"),
            {"type": "Compute", "einsum": "O", "component": "MAC"},
        ]},
    }  # fmt: skip


@dataclass(frozen=True)
class OffChipWords:
    """Values of weights, inputs and outputs moved off chip, and all bits with and without zeros."""

    values: tuple[int, int, int]
    compressed: float
    dense: int


def moved(layer: CompressedLayer) -> OffChipWords:
    """Return the DRAM reads and writes of a layer."""
    found = evaluate(load(spec(layer))).sparse
    assert found is not None
    rows = {str(r["tensor"]): r for r in found.table("accesses").records() if r["component"] == "DRAM"}
    actual = {name: round(float(r["actual"] or 0)) for name, r in rows.items()}
    bits = sum(float(r["actual_bits"] or 0) + float(r["metadata_bits"] or 0) for r in rows.values())
    dense = sum(int(r["dense"] or 0) for r in rows.values()) * WORD
    return OffChipWords((actual["F"], actual["I"], actual["O"]), bits, dense)


def figures() -> Iterator[PublishedFigure]:
    for name, layer in LAYERS.items():
        found = moved(layer)
        for what, printed, ours in zip(
            ("weights", "inputs", "outputs"), layer.read, found.values, strict=True
        ):
            why = "ours has a whole number of nonzeros"
            yield PublishedFigure(f"{name}: {what}", "words", printed, ours, "" if printed == ours else why)
        yield PublishedFigure(
            f"{name}: times less than dense, maps packed", "times", layer.ratio,
            found.dense / found.compressed, "equal to the digits that are printed",
        )  # fmt: skip


EXHIBIT = Exhibit(
    "sparseloop_dram",
    "Sparseloop: AlexNet's maps, compressed off chip on Eyeriss",
    "Wu et al., MICRO 2022, table 7: Accelergy-Project/micro22-sparseloop-artifact, stored runs and script",
    "Loops around the global buffer and densities as in the artifact; runs of 5 bits before values of 16.",
    figures,
)
