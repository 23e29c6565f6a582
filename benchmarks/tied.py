"""Sweeps of spaces that are not boxes, beside what points took that were evaluated one by one."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from typing import Any

import polymodel as pm
from benchmarks.rows import Row, rate

BEFORE = 140.0  # points per second, measured once
SAID = "each point evaluated by the exact engine (fixed figure)"
Sizes = Mapping[str, Sequence[int]]


def spec(einsum: Mapping[str, Any], sizes: Mapping[str, int], levels: Sequence[Mapping[str, Any]]) -> pm.Spec:
    """A nest of two levels of tiles between three memories; tiles that are words are symbols."""
    tensors = [a["name"] for a in einsum["tensor_accesses"]]
    actions = [{"name": a, "energy": 1e-12, "throughput": 1e9} for a in ("read", "write")]
    nodes: list[dict[str, Any]] = [{"type": "Storage", "component": "DRAM", "tensors": tensors}]
    for name, tiles in zip(("GLB", "RF"), levels, strict=True):
        nodes += [{"type": "Temporal", "rank_variable": v, "tile_shape": t} for v, t in tiles.items()]
        nodes.append({"type": "Storage", "component": name, "tensors": tensors})
    nodes.append({"type": "Compute", "einsum": einsum["name"], "component": "MAC"})
    names = ("DRAM", "GLB", "RF")
    memories = [{"type": "Memory", "name": n, "size": "inf", "actions": actions} for n in names]
    unit = {"type": "Compute", "name": "MAC", "actions": [{"name": "compute", "energy": 1e-12}]}
    symbols = {t: 1 for tiles in levels for t in tiles.values() if isinstance(t, str)}
    return pm.load(
        {
            "schema_version": 1,
            "arch": {"nodes": [*memories, unit]},
            "workload": {"rank_sizes": sizes, "bits_per_value": {"All": 8}, "einsums": [einsum]},
            "mapping": {"nodes": nodes},
            "symbols": symbols,
        }
    )


def access(tensor: str, projection: Any, output: bool = False) -> dict[str, Any]:
    return {"name": tensor, "projection": projection, "output": output}


def spread(count: int, most: int) -> list[int]:
    """`count` sizes from 1 to `most`, evenly apart."""
    return sorted({1 + i * (most - 1) // (count - 1) for i in range(count)})


def divisors(number: int) -> list[int]:
    return [t for t in range(1, number + 1) if number % t == 0]


def layer(stride: int, rows: int, channels: int) -> tuple[pm.Spec, Sizes]:
    """A 3x3 convolution of ResNet-50, padded by 1."""
    windows = {"H": f"{stride}*p + r - 1", "W": f"{stride}*q + s - 1"}
    accesses = [
        access("I", {"C": "c", **windows}),
        access("F", ["k", "c", "r", "s"]),
        access("O", ["k", "p", "q"], True),
    ]
    sizes = {"C": channels, "K": channels, "R": 3, "S": 3, "P": rows, "Q": rows}
    sizes |= {"H": stride * rows, "W": stride * rows}
    levels = [
        {"k": "TK", "c": "TC", "p": "TP", "q": "TQ"},
        {"k": "UK", "c": "UC", "p": "UP", "q": "UQ", "r": 1, "s": 1},
    ]
    inner = [t for t in (1, 2, 4, 7, 14) if t <= rows]
    tiles = {"TK": divisors(channels), "TC": divisors(channels), "UK": divisors(channels)}
    tiles |= {"UC": divisors(channels), "TP": spread(12, rows), "TQ": spread(12, rows)}
    tiles |= {"UP": inner, "UQ": inner}
    return spec({"name": "O", "tensor_accesses": accesses}, sizes, levels), tiles


def causal(length: int) -> tuple[pm.Spec, Sizes]:
    """The scores of causal attention, 16 heads of 64."""
    accesses = [
        access("Q", ["h", "m", "e"]),
        access("K", ["h", "n", "e"]),
        access("S", ["h", "m", "n"], True),
    ]
    einsum = {"name": "S", "iteration_space_shape": "n <= m", "tensor_accesses": accesses}
    levels = [{"h": "TH", "m": "TM", "n": "TN"}, {"h": 1, "m": "UM", "n": "UN", "e": "TE"}]
    tiles = {"TM": spread(16, length), "TN": spread(16, length), "UM": [1, 8, 32, 128], "UN": [1, 8, 32, 128]}
    tiles |= {"TH": list(range(1, 17)), "TE": list(range(1, 65))}
    return spec(einsum, {"H": 16, "M": length, "N": length, "E": 64}, levels), tiles


def flash(length: int, size: float | str = "inf") -> tuple[pm.Spec, Sizes]:
    """Causal attention in one nest, 16 heads of 64: scores stay on chip, keys and values are passed by."""

    def einsum(name: str, *accesses: dict[str, Any]) -> dict[str, Any]:
        return {"name": name, "iteration_space_shape": "n <= m", "tensor_accesses": list(accesses)}

    def storage(component: str, *tensors: str, reuse: str = "refill") -> dict[str, Any]:
        return {"type": "Storage", "component": component, "tensors": list(tensors), "reuse": reuse}

    def loop(variable: str) -> dict[str, Any]:
        return {"type": "Temporal", "rank_variable": variable, "tile_shape": f"T{variable.upper()}"}

    def branch(name: str, *loops: dict[str, Any]) -> dict[str, Any]:
        unit = {"type": "Compute", "einsum": name, "component": "MAC"}
        return {"type": "Nested", "nodes": [*loops, unit]}

    scores, weights = (access(name, ["h", "m", "n"]) for name in "SP")
    einsums = [
        einsum("S", access("Q", ["h", "m", "e"]), access("K", ["h", "n", "e"]), {**scores, "output": True}),
        einsum("P", scores, {**weights, "output": True}),
        einsum("O", weights, access("V", ["h", "n", "f"]), access("O", ["h", "m", "f"], True)),
    ]
    nodes = [
        storage("DRAM", "Q", "K", "V", "O"), loop("h"), loop("m"),
        storage("GLB", "Q", "O"), loop("n"),
        storage("GLB", "K", "V", reuse="keep_previous"), storage("GLB", "S", "P"),
        {"type": "Sequential", "nodes": [branch("S", loop("e")), branch("P"), branch("O", loop("f"))]},
    ]  # fmt: skip
    tiles = {"TM": spread(24, length), "TN": spread(24, length), "TH": list(range(1, 17))}
    tiles |= {"TE": list(range(1, 65)), "TF": list(range(1, 65))}
    actions = [{"name": a, "energy": 1e-12, "throughput": 1e9} for a in ("read", "write")]
    memories = [
        {"type": "Memory", "name": n, "size": s, "actions": actions}
        for n, s in (("DRAM", "inf"), ("GLB", size))
    ]
    unit = {"type": "Compute", "name": "MAC", "actions": [{"name": "compute", "energy": 1e-12}]}
    spec = pm.load(
        {
            "schema_version": 1,
            "arch": {"nodes": [*memories, unit]},
            "workload": {
                "rank_sizes": {"H": 16, "M": length, "N": length, "E": 64, "F": 64},
                "bits_per_value": {"All": 16},
                "einsums": einsums,
            },
            "mapping": {"nodes": nodes},
            "symbols": dict.fromkeys(tiles, 1),
        }
    )
    return spec, tiles


def spaces() -> dict[str, tuple[pm.Spec, Sizes]]:
    """The grids that are swept: name -> spec and values of its symbols."""
    return {
        "sweep ResNet-50's 3x3 of 56 x 56 x 64, padded": layer(1, 56, 64),
        "sweep ResNet-50's 3x3 of 28 x 28 x 128, padded, stride 2": layer(2, 28, 128),
        "sweep causal scores of 4096 x 4096": causal(4096),
        "sweep causal FlashAttention of 4096 x 4096": flash(4096),
        "sweep causal FlashAttention of 1024 x 1024 within 64 kbit": flash(1024, 65536),
        "sweep causal FlashAttention of 4096 x 4096 within 256 kbit": flash(4096, 262144),
    }


def tied() -> dict[str, Row]:
    """Points per second of one core, tables included: of a front, and of every point."""
    result = {}
    for name, (one, tiles) in spaces().items():
        for prune, said in ((None, ""), (False, ", every point")):
            start = time.process_time()
            swept = pm.sweep(one, tiles, objectives=("energy", "latency"), prune=prune)
            spent = time.process_time() - start
            result[f"{name}, {swept.points:.2g} points{said}"] = rate(swept.points / spent, BEFORE, SAID)
    return result
