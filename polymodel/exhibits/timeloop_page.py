"""The example on Timeloop's documentation page about its output."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache

from polymodel.api.evaluation import evaluate
from polymodel.exhibits.records import Exhibit, PublishedFigure
from polymodel.loading import load

PRINTED = {"weights": 3072, "inputs": 576, "outputs": 512, "computes": 49152, "cycles": 3072}


@cache
def counted() -> dict[str, int]:
    """Return the sizes of the tensors, the operations, and the cycles of 16 PEs."""
    sizes = {"p": 16, "r": 3, "c": 32, "k": 32}
    accesses: list[dict[str, object]] = [
        {"name": "W", "projection": ["k", "c", "r"]},
        {"name": "I", "projection": {"C": "c", "H": "p + r"}},
        {"name": "O", "projection": ["k", "p"], "output": True},
    ]
    pe = {"type": "Container", "name": "PE", "spatial": [{"name": "X", "fanout": 16}]}
    mac = {"type": "Compute", "name": "MAC", "actions": [{"name": "compute", "throughput": 1}]}
    storage = {"type": "Storage", "component": "M", "tensors": ["W", "I", "O"]}
    loop = {"type": "Spatial", "rank_variable": "k", "tile_shape": 2, "component": "PE", "name": "X"}
    report = evaluate(
        load(
            {
                "workload": {
                    "iteration_space_shape": {v: f"0 <= {v} < {n}" for v, n in sizes.items()},
                    "bits_per_value": {"All": 8},
                    "einsums": [{"name": "E", "tensor_accesses": accesses}],
                }
            },
            {"arch": {"nodes": [{"type": "Memory", "name": "M"}, pe, mac]}},
            {"mapping": {"nodes": [storage, loop, {"type": "Compute", "einsum": "E", "component": "MAC"}]}},
        )
    )
    tiles = {r["tensor"]: r["tile_elements"] for r in report.table("tiles").records()}
    operations = report.table("summary").records()[-1]["operations"]
    result = {"weights": tiles["W"], "inputs": tiles["I"], "outputs": tiles["O"], "computes": operations}
    return {name: int(n or 0) for name, n in result.items()} | {"cycles": int(report.total_latency)}


def figures() -> Iterator[PublishedFigure]:
    for what, n in PRINTED.items():
        yield PublishedFigure(what, "cycles" if what == "cycles" else "values", n, counted()[what])


EXHIBIT = Exhibit(
    "timeloop_page",
    "Timeloop's page about its output: a convolution on 16 PEs",
    "Timeloop's documentation, the page about the output of the model",
    "A convolution of one dimension, output channels spread over the PEs.",
    figures,
)
