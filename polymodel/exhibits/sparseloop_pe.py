"""Sparseloop's validation of a sparse processing element: cycles of the pointwise layers of a pruned
MobileNet."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from polymodel.api.evaluation import evaluate
from polymodel.exhibits.records import Exhibit, PublishedFigure
from polymodel.loading import load

# Layer -> output channels, positions, input channels; densities of activations and weights; cycles of
# Sparseloop with uniform densities, and of the cycle-level simulation against which it is validated.
PRINTED = {
    "L07": (64, 32 * 32, 64, 0.73, 0.52, 1592158, 1702140),
    "L09": (128, 16 * 16, 64, 0.86, 0.82, 1478912, 1499682),
    "L13": (256, 8 * 8, 128, 0.83, 0.64, 1114008, 1144158),
    "L19": (256, 8 * 8, 256, 0.61, 0.55, 1407190, 1457458),
    "L21": (256, 8 * 8, 256, 0.64, 0.60, 1610614, 1677684),
    "L23": (256, 8 * 8, 256, 0.61, 0.70, 1790969, 1821557),
    "L25": (512, 4 * 4, 256, 0.68, 0.65, 926942, 948572),
    "L27": (512, 4 * 4, 512, 0.58, 0.30, 729810, 775316),
}
# One multiplier that processes one pair of nonzeros per cycle of 1 ns, with unlimited operand bandwidth.
ARCH: dict[str, Any] = {
    "nodes": [
        {"type": "Memory", "name": "BackingStorage", "size": "inf", "tensors": {"keep": "All"},
         "actions": [{"name": way, "energy": 0, "throughput": 1e18} for way in ("read", "write")]},
        {"type": "Compute", "name": "MAC", "actions": [{"name": "compute", "energy": 0, "throughput": 1e9}],
         "sparse": {"actions": [{"skip": "compute", "on": ["I", "W"]}]}},
    ]
}  # fmt: skip
MAPPING: dict[str, Any] = {
    "nodes": [
        {"type": "Storage", "component": "BackingStorage", "tensors": ["I", "W", "O"]},
        *({"type": "Temporal", "rank_variable": variable, "tile_shape": 1} for variable in "mpc"),
        {"type": "Compute", "einsum": "O", "component": "MAC"},
    ]
}


def cycles(layer: str) -> int:
    """Return the expected cycles of a layer whose nonzeros are uniformly distributed."""
    channels, positions, inputs, activations, weights, _, _ = PRINTED[layer]
    workload: dict[str, Any] = {
        "rank_sizes": {"M": channels, "P": positions, "C": inputs}, "bits_per_value": {"All": 8},
        "densities": {"I": activations, "W": weights}, "einsums": ["O[m, p] = I[c, p] * W[c, m]"],
    }  # fmt: skip
    result = evaluate(load({"arch": ARCH, "workload": workload, "mapping": MAPPING})).sparse
    assert result is not None
    return round(result.total_latency * 1e9)


def figures() -> Iterator[PublishedFigure]:
    for layer, (*_, modelled, simulated) in PRINTED.items():
        found = cycles(layer)
        yield PublishedFigure(
            f"{layer}: cycles, Sparseloop", "cycles", modelled, found, "ours has a whole number of nonzeros"
        )
        yield PublishedFigure(
            f"{layer}: cycles, simulated on the data", "cycles", simulated, found,
            "nonzeros of the data meet more often than at random places; densities are rounded",
        )  # fmt: skip


EXHIBIT = Exhibit(
    "sparseloop_pe",
    "Sparseloop: cycles of a sparse processing element in the image of Eyeriss v2",
    "Wu et al., MICRO 2022, figure 12: Accelergy-Project/micro22-sparseloop-artifact, results-summary",
    "Pointwise layers of MobileNet 0.5, those with densities in the artifact; one pair of nonzeros a cycle.",
    figures,
)
