"""Fused layers of real sizes, whose loops bind only the last layer: what the others execute is inferred."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import polymodel as pm
from benchmarks.rows import Row, milliseconds

Timer = Callable[[Callable[[], object], int], float]


def chain(count: int, size: int, channels: int, *, columns: bool = True) -> pm.Spec:
    """`count` padded 3 x 3 convolutions, one output row (and pixel, with `columns`) of the last at a time.

    The rows of every map that the next row needs stay on chip; weights are there throughout.
    """
    last = count - 1
    weights = [f"F{i}" for i in range(count)]
    fused: list[dict[str, Any]] = [
        {"type": "Temporal", "rank_variable": f"p{last}", "tile_shape": 1},
        _storage("Buffer", [f"T{i}" for i in range(count)], "slide"),
    ]
    if columns:
        fused.append({"type": "Temporal", "rank_variable": f"q{last}", "tile_shape": 1})
    fused.append(_storage("Buffer", [f"T{count}"]))
    branches = [
        {
            "type": "Nested",
            "nodes": [
                {"type": "Temporal", "rank_variable": f"c{i + 1}", "tile_shape": min(16, channels)},
                {"type": "Compute", "einsum": f"E{i}", "component": "MAC"},
            ],
        }
        for i in range(count)
    ]
    nodes = [
        _storage("DRAM", ["T0", *weights, f"T{count}"]),
        _storage("WeightBuffer", weights),
        *fused,
        {"type": "Sequential", "nodes": branches},
    ]
    memories = [{"type": "Memory", "name": name} for name in ("DRAM", "WeightBuffer", "Buffer")]
    sizes = {"R": 3, "S": 3}
    for i in range(count + 1):
        sizes |= {f"C{i}": channels, f"H{i}": size, f"W{i}": size}
    return pm.load(
        {
            "arch": {"nodes": [*memories, {"type": "Compute", "name": "MAC"}]},
            "workload": {
                "rank_sizes": sizes,
                "bits_per_value": {"All": 8},
                "einsums": [_convolution(i) for i in range(count)],
            },
            "mapping": {"nodes": nodes},
        }
    )


def _storage(component: str, tensors: list[str], reuse: str = "refill") -> dict[str, Any]:
    return {"type": "Storage", "component": component, "tensors": tensors, "reuse": reuse}


def _convolution(i: int) -> dict[str, Any]:
    source = {f"C{i}": f"c{i}", f"H{i}": f"p{i} + r - 1", f"W{i}": f"q{i} + s - 1"}
    weight = {f"C{i + 1}": f"c{i + 1}", f"C{i}": f"c{i}", "R": "r", "S": "s"}
    made = {f"C{i + 1}": f"c{i + 1}", f"H{i + 1}": f"p{i}", f"W{i + 1}": f"q{i}"}
    accesses = [
        {"name": f"T{i}", "projection": source},
        {"name": f"F{i}", "projection": weight},
        {"name": f"T{i + 1}", "projection": made, "output": True},
    ]
    return {"name": f"E{i}", "tensor_accesses": accesses}


def fused(seconds: Timer) -> dict[str, Row]:
    """Chains and the front of VGGNet-E by the exact engine; nothing is asserted about the times."""
    eight, pair = chain(8, 224, 64), chain(2, 8, 1)
    front = pm.load("fused_layer_fpga", "vgg_e_front/tiled_fused")
    walked = seconds(lambda: pm.evaluate(pair, engine="enumerate"), 3)
    return {
        "eight fused 3x3 convolutions of 224 x 224 x 64, inferred": milliseconds(
            seconds(lambda: pm.evaluate(eight, engine="exact"), 5),
            walked,
            "enumerate engine, two of 8 x 8 x 1",
        ),
        "VGG-E front, five convolutions and two pools, with live": milliseconds(
            seconds(lambda: pm.evaluate(front, engine="exact"), 5),
            walked,
            "enumerate engine, two convolutions of 8 x 8 x 1",
        ),
    }
