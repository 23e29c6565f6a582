"""The exact engine on nests of uneven tiles, beside its time before tiles were counted by classes.

The earlier figures were measured once, at the extents that are named; they grew with the third power of the
extents.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence

import polymodel as pm
from benchmarks.rows import Row, cpu_seconds
from polymodel.analysis.result import Problem

Tiles = Mapping[str, int]
CAUSAL = [{"m": 370001, "n": 290003}, {"m": 1103, "n": 701}, {"m": 37, "n": 23}]
SMALLER = [{"m": 149, "n": 113}, {"m": 47, "n": 31}, {"m": 13, "n": 7}]
SIX = {"m": (701, 307, 103, 47, 11, 3), "n": (607, 203, 97, 31, 13, 5), "k": (503, 211, 89, 23, 7, 2)}


def nest(einsum: str, sizes: Mapping[str, int], levels: Sequence[Tiles], where: str = "") -> Problem:
    """A product of two matrices with a memory above and below each level of tiles."""
    result, _, operands = einsum.replace(" ", "").partition("=")
    forms = [*operands.split("*"), result]
    accesses = []
    for form in forms:
        tensor, _, indices = form.rstrip("]").partition("[")
        accesses.append({"name": tensor, "projection": indices.split(","), "output": form == result})
    tensors = [str(a["name"]) for a in accesses]
    one: dict[str, object] = {"name": tensors[-1], "tensor_accesses": accesses}
    if where:
        one["iteration_space_shape"] = where
    names = [f"L{i}" for i in range(len(levels) + 1)]
    actions = [{"name": a, "energy": 1e-12, "throughput": 1e9} for a in ("read", "write")]
    nodes: list[dict[str, object]] = [{"type": "Storage", "component": names[0], "tensors": tensors}]
    for name, tiles in zip(names[1:], levels, strict=True):
        nodes += [{"type": "Temporal", "rank_variable": v, "tile_shape": t} for v, t in tiles.items()]
        nodes.append({"type": "Storage", "component": name, "tensors": tensors})
    nodes.append({"type": "Compute", "einsum": tensors[-1], "component": "MAC"})
    memories = [{"type": "Memory", "name": n, "size": "inf", "actions": actions} for n in names]
    unit = {"type": "Compute", "name": "MAC", "actions": [{"name": "compute", "energy": 1e-12}]}
    spec = pm.load(
        {
            "schema_version": 1,
            "arch": {"nodes": [*memories, unit]},
            "workload": {"rank_sizes": sizes, "bits_per_value": {"All": 8}, "einsums": [one]},
            "mapping": {"nodes": nodes},
        }
    )
    assert spec.mapping is not None
    return Problem(spec.workload, spec.arch, spec.mapping)


def spent(problem: Problem) -> float:
    """CPU seconds of one evaluation, of which nothing is known before."""
    start = time.process_time()
    pm.evaluate_problem(problem, engine="exact")
    return time.process_time() - start


def exact() -> dict[str, Row]:
    """Three levels of tiles below a diagonal, and six of a product."""
    spent(nest("Z[m,n] = A[m,k] * B[k,n]", {"M": 4, "N": 4, "K": 4}, [{"m": 2}]))  # imports
    product = "S[m,n] = Q[m,e] * K[n,e]"
    causal = nest(product, {"M": 10**6, "N": 10**6, "E": 64}, CAUSAL, "n <= m")
    smaller = nest(product, {"M": 400, "N": 400, "E": 64}, SMALLER, "n <= m")
    levels = [dict(zip(SIX, tiles, strict=True)) for tiles in zip(*SIX.values(), strict=True)]
    six = nest("Z[m,n] = A[m,k] * B[k,n]", {"M": 1000, "N": 1000, "K": 1000}, levels)
    before = "this engine before tiles were counted by classes"
    return {
        "exact, causal product of 10^6 x 10^6, three uneven levels": cpu_seconds(
            spent(causal), 42.1, f"{before}, at 100 x 100 (fixed figure)"
        ),
        "exact, causal product of 400 x 400, three uneven levels": cpu_seconds(
            spent(smaller), 93.0, f"{before}, tiles of other sizes (fixed figure)"
        ),
        "exact, product of 1000^3, six uneven levels": cpu_seconds(
            spent(six), 90.0, f"{before} (fixed figure)"
        ),
    }
