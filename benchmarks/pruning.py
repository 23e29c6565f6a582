"""Pruning before combining and by boxes, beside the whole grid in the same run or an earlier time."""

from __future__ import annotations

import polymodel as pm
from benchmarks.rows import Row, clocked, cpu_seconds, seconds
from polymodel.sweeps.values import Choice

EXTENT = 32  # 528 chains of two tiles along each rank variable: 1.5e8 mappings
LARGE = 512  # 131,328 chains along each rank variable: 2.3e15 mappings, of which axes alone leave 2.6e9
EVERY = ["A", "B", "Z"]


def matmul(extent: int) -> pm.Spec:
    """A matmul on three memories with two tile levels along every rank variable."""
    rates = ((64.0, 1.0, "inf"), (2.0, 8.0, 8 * 1024), (0.2, 64.0, 8 * 64))
    memories = [
        {
            "type": "Memory", "name": name, "size": size,
            "actions": [{"name": way, "energy": joules, "throughput": rate} for way in ("read", "write")],
        }
        for name, (joules, rate, size) in zip(("DRAM", "SRAM", "Register"), rates, strict=True)
    ]  # fmt: skip
    loops = [[{"type": "Temporal", "rank_variable": v, "tile_shape": f"T{v.upper()}{level}"} for v in "mnk"]
             for level in (1, 0)]  # fmt: skip
    return pm.load(
        {
            "schema_version": 1,
            "symbols": {f"T{v}{level}": None for v in "MNK" for level in (0, 1)},
            "arch": {
                "nodes": [
                    *memories,
                    {"type": "Compute", "name": "MAC", "actions": [{"name": "compute", "throughput": 8}]},
                ]
            },
            "workload": {
                "rank_sizes": dict.fromkeys("MNK", extent),
                "bits_per_value": {"All": 8},
                "einsums": ["Z[m, n] = A[m, k] * B[k, n]"],
            },
            "mapping": {
                "nodes": [
                    {"type": "Storage", "component": "DRAM", "tensors": EVERY}, *loops[0],
                    {"type": "Storage", "component": "SRAM", "tensors": EVERY}, *loops[1],
                    {"type": "Storage", "component": "Register", "tensors": EVERY},
                    {"type": "Compute", "einsum": "Z", "component": "MAC"},
                ]
            },
        }
    )  # fmt: skip


def pruning() -> dict[str, Row]:
    """All tile sizes of two levels, every mapping of the grid, with and without pruning; one front."""
    symbols: dict[str, Choice] = {f"T{v.upper()}{level}": pm.all_sizes(v) for level in (1, 0) for v in "mnk"}
    asked = ("energy", "latency", "working_set:SRAM")
    pm.sweep(matmul(4), symbols, objectives=asked)  # loads what it needs
    spec = matmul(EXTENT)
    pruned, some = clocked(lambda: pm.sweep(spec, symbols, objectives=asked))
    whole, every = clocked(lambda: pm.sweep(spec, symbols, objectives=asked, prune=False))
    if not pruned.frame.equals(whole.frame):
        raise AssertionError("the pruned front is not that of the whole grid")
    _, large = clocked(lambda: pm.sweep(matmul(LARGE), symbols, objectives=asked))
    name = f"all tile sizes of a matmul, three levels: {pruned.evaluated:.2g} of {whole.evaluated:.2g} points"
    return {
        name: seconds(some, every, "the same sweep without pruning"),
        f"all tile sizes of a {LARGE}^3 matmul, three levels": cpu_seconds(
            large, 48.0, "pruning axis by axis, before boxes (fixed figure)"
        ),
    }
