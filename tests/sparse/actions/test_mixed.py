"""Actions that look at a tensor known by its density and at one that is given, in either order."""

from __future__ import annotations

from typing import Any

import pytest

import polymodel as pm

ACTIONS = {"actions": [{"skip": "compute", "on": ["A", "B"]}]}


@pytest.mark.parametrize("given", ["A", "B"])
def test_given_and_modelled_leaders_together(given: str) -> None:
    """Point by point an operation is executed with the chance of the one where the other is nonzero."""
    read: list[dict[str, Any]] = [{"name": n, "energy": 1, "throughput": 1} for n in ("read", "write")]
    memory = {"type": "Memory", "name": "DRAM", "size": "inf", "tensors": {"keep": "All"}, "actions": read}
    mac = {"type": "Compute", "name": "MAC", "actions": [{"name": "compute", "energy": 1, "throughput": 1}]}
    nodes: list[dict[str, Any]] = [{"type": "Storage", "component": "DRAM", "tensors": ["A", "B", "Z"]}]
    nodes += [{"type": "Temporal", "rank_variable": v, "tile_shape": 1} for v in "mkn"]
    spec = pm.load(
        {
            "schema_version": 1,
            "workload": {
                "rank_sizes": {"M": 4, "K": 6, "N": 5},
                "bits_per_value": {"All": 8},
                "einsums": ["Z[m, n] = A[m, k] * B[k, n]"],
            },
            "arch": {"nodes": [memory, mac | {"sparse": ACTIONS}]},
            "mapping": {"nodes": [*nodes, {"type": "Compute", "einsum": "Z", "component": "MAC"}]},
        }
    )
    shape = {"A": (["M", "K"], [4, 6]), "B": (["K", "N"], [6, 5])}
    other, repeats = ("B", 5) if given == "A" else ("A", 4)
    tensor = pm.random_tensor(*shape[given], 0.3, seed=5)
    density = 0.5 if other == "A" else 0.2
    sparse = pm.sparsify(pm.evaluate(spec), tensors={given: tensor}, densities={other: density})
    (count,) = sparse.counts.compute
    assert count.executed == pytest.approx(repeats * tensor.nnz * density)
    assert count.ineffectual == pytest.approx(0, abs=1e-9)
