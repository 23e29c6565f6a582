"""A sparse tensor core: a layer of ResNet-50 with 2:4 sparse weights, as in Sparseloop's stored results."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from typing import Any

from polymodel.api.evaluation import evaluate
from polymodel.exhibits.records import Exhibit, PublishedFigure
from polymodel.loading import load
from polymodel.report.sparse import SparseReport

# Weights of 512 x 256, activations of 256 x 1024.
SIZES = {"M": 512, "K": 256, "N": 1024}
GROUP, KEPT = 4, 2
# Cycles and actual operations of the stored runs, dense and with 2:4 sparsity.
CYCLES, OPERATIONS = (131072, 65536), (134217728, 67108864)
# Actual accesses by (memory, tensor, kind) with 2:4; Sparseloop calls writes to the register file updates.
ACCESSES = {
    ("DRAM", "A", "reads_fill"): 65536,
    ("DRAM", "B", "reads_fill"): 262144,
    ("DRAM", "Z", "writes_drain"): 524288,
    ("SMEM", "A", "writes_fill"): 65536,
    ("SMEM", "A", "reads_fill"): 524288,
    ("SMEM", "B", "writes_fill"): 262144,
    ("SMEM", "B", "reads_fill"): 2097152,
    ("RF", "Z", "writes_drain"): 4 * 1048576,
}


def _memory(name: str, keep: str, formats: dict[str, Any]) -> dict[str, Any]:
    actions = [{"name": way, "energy": 0, "throughput": 1e18} for way in ("read", "write")]
    memory = {"type": "Memory", "name": name, "size": "inf", "tensors": {"keep": keep}, "actions": actions}
    return memory | ({"sparse": {"format": formats}} if formats else {})


def _loop(variable: str, tile: int) -> dict[str, Any]:
    return {"type": "Temporal", "rank_variable": variable, "tile_shape": tile}


def _spread(variable: str, tile: int, component: str, name: str) -> dict[str, Any]:
    return {"type": "Spatial", "rank_variable": variable, "tile_shape": tile, "component": component,
            "name": name}  # fmt: skip


@cache
def run(kept: int) -> SparseReport:
    """Evaluate the layer with the given number of nonzeros out of four weights: four arrays of 16 x 16
    multipliers, each processing one group of four weights."""
    weights = {"rank-order": ["M", "K"], "M": {"format": "U", "pbits": 0}, "K": "CP"}
    formats: dict[str, Any] = {"A": weights}
    spec: dict[str, Any] = {
        "arch": {"nodes": [
            _memory("DRAM", "All", formats), _memory("SMEM", "A | B", formats),
            {"type": "Container", "name": "Part",
             "spatial": [{"name": "Z", "fanout": 4, "may_reuse": "All"}]},
            _memory("RF", "Z", {}),
            {"type": "Container", "name": "PE",
             "spatial": [{"name": n, "fanout": 16, "may_reuse": "All"} for n in ("X", "Y")]},
            _memory("LRF", "A", formats),
            {"type": "Compute", "name": "MAC",
             "actions": [{"name": "compute", "energy": 0, "throughput": 1e9}],
             "sparse": {"actions": [{"skip": "compute", "on": "A"}]}},
        ]},
        "workload": {
            "rank_sizes": SIZES, "bits_per_value": {"All": 8},
            "densities": {"A": {"fixed_structured": {"n": kept, "m": GROUP, "rank": "K"}}},
            "einsums": ["Z[m, n] = A[m, k] * B[k, n]"],
        },
        "mapping": {"nodes": [
            {"type": "Storage", "component": "DRAM", "tensors": ["A", "B", "Z"]},
            {"type": "Storage", "component": "SMEM", "tensors": ["A"]},
            _loop("n", 256),
            {"type": "Storage", "component": "SMEM", "tensors": ["B"]},
            _loop("n", 128), _loop("m", 64), _spread("m", 16, "Part", "Z"),
            {"type": "Storage", "component": "RF", "tensors": ["Z"]},
            _loop("k", 64), _spread("m", 1, "PE", "Y"), _spread("k", GROUP, "PE", "X"), _loop("k", 1),
            {"type": "Storage", "component": "LRF", "tensors": ["A"]},
            _loop("n", 1),
            {"type": "Compute", "einsum": "Z", "component": "MAC"},
        ]},
    }  # fmt: skip
    result = evaluate(load(spec)).sparse
    assert result is not None
    return result


def figures() -> Iterator[PublishedFigure]:
    for kept, cycles, operations in zip((GROUP, KEPT), CYCLES, OPERATIONS, strict=True):
        found = run(kept)
        (compute,) = found.table("compute").records()
        name = f"{kept}:{GROUP}"
        yield PublishedFigure(f"{name}: cycles", "cycles", cycles, round(found.total_latency * 1e9))
        yield PublishedFigure(
            f"{name}: operations", "operations", operations, round(float(compute["effectual"] or 0))
        )
    moved = {
        (r["component"], r["tensor"], r["kind"]): round(float(r["actual"] or 0))
        for r in run(KEPT).table("accesses").records()
    }
    for (component, tensor, kind), printed in ACCESSES.items():
        ours = moved[component, tensor, kind]
        yield PublishedFigure(
            f"{KEPT}:{GROUP}: {component} {tensor} {kind}", "words", printed, ours,
            "" if ours == printed
            else "theirs adds up values of different places of a group in one step, as they are packed",
        )  # fmt: skip


EXHIBIT = Exhibit(
    "sparse_tensor_core",
    "Sparseloop: a sparse tensor core with two of every four weights",
    "Wu et al., MICRO 2022, figure 15: Accelergy-Project/micro22-sparseloop-artifact, ref_outputs",
    "A layer of ResNet-50 on 1,024 multipliers with the loops of the stored run, four weights on each.",
    figures,
)
