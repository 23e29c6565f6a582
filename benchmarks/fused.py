"""Fused layers of real sizes, whose loops bind only the last layer: what the others execute is inferred."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import polymodel as pm
from benchmarks.rows import Row, milliseconds, rate
from benchmarks.tied import Sizes, divisors

Timer = Callable[[Callable[[], object], int], float]
ONE_BY_ONE = 1.0  # points per second, measured once


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


# Of each layer the variables of its loops over channels: those that it makes, and those that it reads.
LAYERS = {
    "Conv1_1": ("c11", "c0"),
    "Conv1_2": ("c12", "c11"),
    "Pool1": ("c12",),
    "Conv2_1": ("c21", "c12"),
    "Conv2_2": ("c22", "c21"),
    "Pool2": ("c22",),
    "Conv3_1": ("c31", "c22"),
}


def front(size: int, channels: int, *, retained: bool, allocation: str = "tile") -> tuple[pm.Spec, Sizes]:
    """The front of VGGNet-E, fused, and all sizes of its tiles: the tip, and the channels of each layer.

    `retained`: what the next tip needs stays on chip, and is not made again.
    """

    def loop(variable: str, tile: str) -> dict[str, Any]:
        return {"type": "Temporal", "rank_variable": variable, "tile_shape": tile}

    tips = list(range(1, size // 4 + 1))
    sizes = {"c0": 3, "c11": channels, "c12": channels, "c21": 2 * channels, "c22": 2 * channels}
    sizes["c31"] = 4 * channels
    tiles = {"TIP_ROWS": tips, "TIP_COLUMNS": tips}
    branches = []
    for layer, (made, *read) in LAYERS.items():
        names = {v: f"{side}_{layer}" for side, v in zip(("MADE", "READ"), (made, *read), strict=False)}
        tiles |= {name: divisors(sizes[v]) for v, name in names.items()}
        unit = {"type": "Compute", "einsum": layer, "component": "MAC"}
        branches.append({"type": "Nested", "nodes": [*(loop(v, n) for v, n in names.items()), unit]})
    weights = ["F11", "F12", "F21", "F22", "F31"]
    maps = ["I", "M11", "M12", "M1", "M21", "M22", "M2"]
    rows, columns = loop("p31", "TIP_ROWS"), loop("q31", "TIP_COLUMNS")
    kept = _storage("FeatureBuffer", maps, "slide" if retained else "refill")
    nodes = [
        _storage("DRAM", ["I", "O", *weights]),
        _storage("WeightBuffer", weights),
        *([rows, kept, columns] if retained else [rows, columns, kept]),
        _storage("FeatureBuffer", ["O"]),
        {"type": "Sequential", "nodes": branches},
    ]
    actions = [{"name": a, "energy": 1e-12, "throughput": 1e9} for a in ("read", "write")]
    memories: list[dict[str, Any]] = [
        {"type": "Memory", "name": "DRAM", "size": "inf", "actions": actions},
        {"type": "Memory", "name": "WeightBuffer", "size": "inf", "actions": actions},
        {"type": "Memory", "name": "FeatureBuffer", "size": 500 * 36 * 1024, "allocation": allocation},
    ]
    memories[-1]["actions"] = actions
    unit = {"type": "Compute", "name": "MAC", "actions": [{"name": "compute", "energy": 1e-12}]}
    spec = pm.load(
        "vgg_e_front",
        {
            "arch": {"nodes": [*memories, unit]},
            "mapping": {"nodes": nodes},
            "symbols": dict.fromkeys(tiles, 1),
        },
        variables={"SIZE": size, "CHANNELS": channels},
    )
    return spec, tiles


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


SWEPT = ("Conv1_2", "Conv2_2", "Conv3_1")  # layers of which all tiles of channels are swept


def swept_fronts() -> dict[str, Row]:
    """Points per second of one core, tables included: all tips, and all tiles of channels of three layers."""
    result = {}
    for retained, allocation, said in (
        (True, "tile", "retained"),
        (False, "tile", "recomputed"),
        (True, "live", "retained, live"),
    ):
        spec, tiles = front(224, 64, retained=retained, allocation=allocation)
        tiles |= {n: sizes[-1:] for n, sizes in tiles.items() if n[:4] != "TIP_" and n[5:] not in SWEPT}
        start = time.process_time()
        swept = pm.sweep(spec, tiles, objectives=("energy", "latency"), prune=False)
        spent = time.process_time() - start
        name = f"sweep VGG-E front, halos {said}, {swept.points:.2g} points, every point"
        result[name] = rate(swept.points / spent, ONE_BY_ONE, "each point by the exact engine (fixed figure)")
    return result


def fused(seconds: Timer) -> dict[str, Row]:
    """Chains and the front of VGGNet-E by the exact engine, and sweeps of it; nothing is asserted about the
    times."""
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
        **swept_fronts(),
    }
