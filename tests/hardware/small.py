"""A small machine with symbols in capacity, fanout, energy and throughput, for tests of co-design."""

from __future__ import annotations

from functools import cache
from typing import Any

import polymodel as pm
from polymodel.stores.store import marked, parts_of

_SEARCHED: dict[str, pm.Spec] = {}


def front_of(spec: pm.Spec) -> tuple[tuple[float, float], ...]:
    """Energy and latency of the mappings that a search of this machine alone finds. Tests ask for the same
    ones again and again, so that each is searched once."""
    mark = marked([*parts_of(spec), spec.raw_explore])
    _SEARCHED.setdefault(mark, spec)
    return _front(mark)


@cache
def _front(mark: str) -> tuple[tuple[float, float], ...]:
    found = pm.explore(_SEARCHED[mark], objectives=["energy", "latency"])
    return tuple((p.energy, p.latency) for p in found)


def small(
    einsums: tuple[str, ...] = ("Z[m, n] = A[m, k] * B[k, n]",),
    ranks: dict[str, int] | None = None,
    energy: str = "1.0e-12",
    bits: int | str = 8,
    write: str = "",
    leak: float | str = 0,
    rounded: int | None = None,
    **symbols: Any,
) -> pm.Spec:
    """`einsums` on DRAM, GLB and an array of F; GLB has S bits, its accesses cost `energy` (writes `write`)
    per bit, or per action of `rounded` bits."""
    per = {} if rounded is None else {"bits_per_action": rounded}
    return pm.load(
        {
            "symbols": {"S": 512, "F": 1, "R": 1.0e9, **symbols},
            "arch": {
                "nodes": [
                    {
                        "type": "Memory", "name": "DRAM",
                        "tensors": {"keep": "~Intermediates", "may_keep": "All"},
                        "actions": [
                            {"name": "read", "energy": 20e-12, "throughput": "R"},
                            {"name": "write", "energy": 20e-12, "throughput": "R"},
                        ],
                    },
                    {
                        "type": "Memory", "name": "GLB", "size": "S", "area": "1.0e-12 * S",
                        "leak_power": leak,
                        "tensors": {"may_keep": "All"},
                        "actions": [
                            {"name": "read", "energy": energy, "throughput": "4 * R", **per},
                            {"name": "write", "energy": write or energy, "throughput": "4 * R", **per},
                        ],
                    },
                    {
                        "type": "Container", "name": "PE", "area": "2.0e-10",
                        "spatial": [{"name": "X", "fanout": "F", "may_reuse": "All"}],
                    },
                    {
                        "type": "Compute", "name": "MAC",
                        "actions": [{"name": "compute", "energy": 0.3e-12, "throughput": 1e9}],
                    },
                ]
            },
            "workload": {
                "rank_sizes": ranks or {"M": 8, "N": 4, "K": 6},
                "bits_per_value": {"All": bits},
                "einsums": list(einsums),
            },
        }
    )  # fmt: skip
