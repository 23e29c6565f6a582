"""A test case of the LoopTree model: two matmuls fused row by row."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from typing import Any

from polymodel.api.evaluation import evaluate
from polymodel.exhibits.records import Exhibit, PublishedFigure
from polymodel.loading import Spec, load
from polymodel.report.report import Report

Triple = tuple[str, str, str]
READS: dict[Triple, int] = {
    ("L0", "Fmap1", "Fc1"): 18, ("L0", "Filter1", "Fc1"): 8, ("L0", "Filter2", "Fc2"): 32,
    ("L0", "Fmap3", "Fc2"): 0, ("L1", "Fmap1", "Fc1"): 18, ("L1", "Filter1", "Fc1"): 72,
    ("L1", "Filter2", "Fc2"): 288, ("L1", "Fmap3", "Fc2"): 216, ("L2", "Fmap2", "Fc1"): 36,
    ("L2", "Fmap2", "Fc2"): 36, ("L3", "Fmap1", "Fc1"): 72, ("L3", "Fmap2", "Fc2"): 288,
}  # fmt: skip
WRITES: dict[Triple, int] = {
    ("L0", "Fmap3", "Fc2"): 72, ("L1", "Fmap3", "Fc2"): 288, ("L1", "Filter1", "Fc1"): 8,
    ("L1", "Filter2", "Fc2"): 32, ("L1", "Fmap1", "Fc1"): 18, ("L2", "Fmap2", "Fc1"): 72,
    ("L3", "Fmap1", "Fc1"): 72, ("L3", "Fmap2", "Fc2"): 288,
}  # fmt: skip
CAPACITY = {"L0": 130, "L1": 50, "L2": 4, "L3": 1}
CYCLES = 54


def _access(name: str, output: bool = False, **projection: str) -> dict[str, Any]:
    return {"name": name, "projection": projection, "output": output}


def _storage(component: str, *tensors: str, reuse: str = "slide") -> dict[str, Any]:
    return {"type": "Storage", "component": component, "tensors": list(tensors), "reuse": reuse}


def _branch(variable: str, spread: str, tensor: str, einsum: str, reuse: str) -> dict[str, Any]:
    nodes = [
        {"type": "Temporal", "rank_variable": variable, "tile_shape": 1},
        {"type": "Spatial", "rank_variable": spread, "tile_shape": 1, "component": "PE", "name": "X"},
        _storage("L3", tensor, reuse=reuse),
        {"type": "Compute", "einsum": einsum, "component": "MAC"},
    ]
    return {"type": "Nested", "nodes": nodes}


def spec(reuse: str = "slide") -> Spec:
    """Return two matmuls of 9 rows on four memory levels, with values of one bit, so that bits equal
    elements."""
    memories = [
        {"type": "Memory", "name": f"L{i}", "actions": [{"name": "read"}, {"name": "write"}]}
        for i in range(4)
    ]
    pe = {"type": "Container", "name": "PE", "spatial": [{"name": "X", "fanout": 8}]}
    mac = {"type": "Compute", "name": "MAC", "clock": 1, "actions": [{"name": "compute", "throughput": 1}]}
    first = [
        _access("Fmap1", C="c1", P="p1"),
        _access("Filter1", C="c1", M="m1"),
        _access("Fmap2", True, M="m1", P="p1"),
    ]
    second = [
        _access("Fmap2", M="c2", P="p2"),
        _access("Filter2", M="c2", N="m2"),
        _access("Fmap3", True, N="m2", P="p2"),
    ]
    return load(
        {
            "arch": {"nodes": [*memories[:3], pe, memories[3], mac]},
            "workload": {
                "rank_sizes": {"P": 9, "C": 2, "M": 4, "N": 8},
                "bits_per_value": {"All": 1},
                "einsums": [
                    {"name": "Fc1", "tensor_accesses": first},
                    {"name": "Fc2", "tensor_accesses": second},
                ],
            },
            "mapping": {
                "nodes": [
                    _storage("L0", "Filter1", "Filter2", "Fmap1", "Fmap3", reuse=reuse),
                    _storage("L1", "Filter1", "Filter2", reuse=reuse),
                    {"type": "Temporal", "rank_variable": "p2", "tile_shape": 1},
                    _storage("L1", "Fmap1", "Fmap3", reuse=reuse),
                    _storage("L2", "Fmap2", reuse=reuse),
                    {
                        "type": "Sequential",
                        "nodes": [
                            _branch("c1", "m1", "Fmap1", "Fc1", reuse),
                            _branch("c2", "m2", "Fmap2", "Fc2", reuse),
                        ],
                    },
                ]
            },
        }
    )


def reads_and_writes(report: Report) -> tuple[dict[Triple, int], dict[Triple, int]]:
    """Return (component, tensor, Einsum) -> elements read (without drains) and written, counted as LoopTree
    does."""
    rows = {(t.component, t.tensor, t.einsum): t for t in report.analysis.traffic}
    return {k: t.reads_fill for k, t in rows.items()}, {k: t.writes for k, t in rows.items() if t.writes}


def capacities(report: Report) -> dict[str, int]:
    """Return component -> values reserved at the same time; storage above a split counts in all its
    branches.
    """
    result: dict[str, int] = {}
    for w in report.analysis.working_sets:
        if w.measure == "reserved":
            result[w.component] = max(result.get(w.component, 0), w.bits)
    return result


@cache
def _report() -> Report:
    return evaluate(spec())


def figures() -> Iterator[PublishedFigure]:
    reads, writes = reads_and_writes(_report())
    for what, theirs, ours in (("read, but for drains", READS, reads), ("written", WRITES, writes)):
        for (level, tensor, einsum), n in theirs.items():
            yield PublishedFigure(
                f"{level}: {tensor} {what} by {einsum}", "values", n, ours.get((level, tensor, einsum), 0)
            )
    held = capacities(_report())
    for level, n in CAPACITY.items():
        yield PublishedFigure(f"{level}: held at once", "values", n, held.get(level, 0))
    yield PublishedFigure("time", "cycles", CYCLES, int(_report().total_latency))


EXHIBIT = Exhibit(
    "looptree",
    "The LoopTree model's test of two fused matmuls",
    "timeloop-python, tests/looptree: test_accesses.py, test_capacity.py, test_latency.py",
    "Fused row by row, one branch after the other; capacity counts what stands above a split in both.",
    figures,
)
