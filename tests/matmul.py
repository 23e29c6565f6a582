"""One matrix product with a mapping in a line, for tests that are about something else."""

from __future__ import annotations

from collections.abc import Mapping

import polymodel as pm

Actions = Mapping[str, list[dict[str, object]]]


def matmul(
    path: str,
    ranks: Mapping[str, int | str],
    sizes: Mapping[str, int] | None = None,
    actions: Actions | None = None,
    symbols: Mapping[str, object] | None = None,
) -> pm.Spec:
    """`Z[m, n] = A[m, k] * B[k, n]` of 8-bit values, under e.g. `DRAM m:TM k:4 GLB:slide m:1`.

    A word in capitals stores all tensors (after a colon its reuse policy) in a memory of that name; `v:t`
    is a loop over v with tile t. `sizes` in bits by memory (else unbounded), `actions` by component.
    """
    given, every = dict(actions or {}), ["A", "B", "Z"]
    levels: list[dict[str, object]] = []
    nodes: list[dict[str, object]] = []
    for word in path.split():
        name, _, rest = word.partition(":")
        if name.isupper():
            size = (sizes or {}).get(name, "inf")
            levels.append({"type": "Memory", "name": name, "size": size, "actions": given.get(name, [])})
            levels[-1]["tensors"] = {"keep": "All"}
            reuse = rest or "refill"
            nodes.append({"type": "Storage", "component": name, "tensors": every, "reuse": reuse})
        else:
            nodes.append({"type": "Temporal", "rank_variable": name, "tile_shape": rest})
    levels.append({"type": "Compute", "name": "MAC", "actions": given.get("MAC", [])})
    nodes.append({"type": "Compute", "einsum": "Z", "component": "MAC"})
    return pm.load(
        {
            "schema_version": 1,
            "symbols": dict(symbols or {}),
            "arch": {"nodes": levels},
            "workload": {
                "rank_sizes": dict(ranks),
                "bits_per_value": {"All": 8},
                "einsums": ["Z[m, n] = A[m, k] * B[k, n]"],
            },
            "mapping": {"nodes": nodes},
        }
    )
