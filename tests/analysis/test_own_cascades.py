"""Recurrences and repeated reads as a user writes them, below loops in every order and with storage anywhere
among them. Engines, closed forms and sweeps say the same, in figures and in what is illegal."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import permutations, product
from typing import Any

import pytest

import polymodel as pm
from tests.analysis.test_agreement import differences
from tests.support.small_specs import leaf, loop, memory, split, storage, unit

CYCLE = ("Y[p, m] = X[p, m] * A[p, m]", "X[P=p+1, m] = Y[p, m] * B[m]")
RUNNING = "S[P=p+1, m] = S[p, m] + A[p, m]"
# Name -> Einsums, sizes of ranks, what is before the first generation.
CASCADES: dict[str, tuple[tuple[str, ...], dict[str, int], dict[str, Any]]] = {
    "prefix sum": ((RUNNING,), {"P": 4, "M": 2}, {"S": 0}),
    "prefix sum that begins with a tensor": ((RUNNING,), {"P": 4, "M": 2}, {"S": "S0"}),
    "Fibonacci": (("F[P=p+1] = F[p] + F[P=p-1]",), {"P": 6}, {"F": 1}),
    "Fibonacci that begins with a tensor": (("F[P=p+1] = F[p] + F[P=p-1]",), {"P": 6}, {"F": "F0"}),
    "neighbours": (("Z[X=x] = A[X=x-1] + A[X=x+1]",), {"X": 8}, {}),
    "sum of squares": (("Z[m] = A[m, k] * A[m, k]",), {"M": 4, "K": 3}, {}),
    "Gram": (("Z[M=m, K=k] = A[X=m] * A[X=k]",), {"X": 4, "M": 4, "K": 4}, {}),
    "added to": (("Z[m] += A[m, k] * B[k]",), {"M": 4, "K": 3}, {}),
    "the last one": ((RUNNING, "Z[m] = S[P, m]"), {"P": 4, "M": 2}, {"S": 0}),
    "the first one": ((RUNNING, "Z[m] = S[P=1, m]"), {"P": 4, "M": 2}, {"S": 0}),
    "one behind": ((RUNNING, "Z[p, m] = S[p, m] * B[p]"), {"P": 4, "M": 2}, {"S": 0}),
    "both": ((RUNNING, "Z[p, m] = S[P=p+1, m] * S[p, m]"), {"P": 4, "M": 2}, {"S": 0}),
    "cycle of two": (CYCLE, {"P": 4, "M": 2}, {"X": 1}),
    "cycle of two that begins with a tensor": (CYCLE, {"P": 4, "M": 2}, {"X": "X0"}),
    "cycle of three": (
        ("Y[p, m] = X[p, m] * A[p]", "W[p, m] = Y[p, m] + B[m]", "X[P=p+1, m] = W[p, m] * Y[p, m]"),
        {"P": 3, "M": 2},
        {"X": 1},
    ),
    "cycle of four": (
        (
            "Y[p, m] = X[p, m] * A[p]", "W[p] = Y[p, m]", "V[p, m] = W[p] * Y[p, m]",
            "X[P=p+1, m] = V[p, m] + X[p, m]",
        ),
        {"P": 3, "M": 2},
        {"X": 1},
    ),
    "leapfrog": (
        ("X[P=p+1, m] = X[p, m] + V[p, m]", "V[P=p+1, m] = V[p, m] + X[P=p+1, m]"),
        {"P": 4, "M": 2},
        {"X": 1, "V": 2},
    ),
    "wavefront": (
        ("D[I=i+1, J=j+1] = D[I=i, J=j+1] + D[I=i+1, J=j] + C[i, j]",),
        {"I": 3, "J": 3},
        {"D": 0},
    ),
    "stencil in time": (
        ("U[T=t+1, X=x] = U[T=t, X=x-1] + U[T=t, X=x] + U[T=t, X=x+1]",), {"T": 3, "X": 5}, {"U": 0},
    ),
    "neighbours of an intermediate": (
        ("T[X=x] = A[X=x] * B[X=x]", "Z[X=x] = T[X=x-1] + T[X=x+1]"), {"X": 6}, {},
    ),
}  # fmt: skip


def mappings(workload: dict[str, Any]) -> Iterator[tuple[dict[str, Any], list[range]]]:
    """The cascade below loops in every order, the buffer below each of them, at tiles named T0, T1."""
    arch = {"nodes": [memory("DRAM", 8e-12), memory("GLB", 1e-12), unit()]}
    cascade = pm.load({"arch": arch, "workload": workload}).workload
    leaves = [[leaf(e.name)] for e in cascade]
    below = [split(*leaves)] if len(leaves) > 1 else leaves[0]
    first, *rest = cascade.einsums
    common = [v for v in first.rank_variables if all(v in e.rank_variables for e in rest)]
    for count in range(min(len(common), 2) + 1):
        for order, at in product(permutations(common, count), range(count + 1)):
            nodes = [loop(v, f"T{i}") for i, v in enumerate(order)]  # type: ignore[arg-type]  # a symbol
            nodes.insert(at, storage("GLB", *cascade.tensors))
            tree = [storage("DRAM", *cascade.tensors), *nodes, *below]
            extents = [first.bound(v)[1] - first.bound(v)[0] + 1 for v in order]
            yield (
                {"arch": arch, "workload": workload, "mapping": {"nodes": tree}},
                [range(1, x) for x in extents],
            )


def counted(spec: pm.Spec, engine: str) -> pm.Report | None:
    """None where the mapping is illegal."""
    try:
        return pm.evaluate(spec, engine=engine)  # type: ignore[arg-type]  # a literal
    except pm.SpecError:
        return None


def swept(document: dict[str, Any], tiles: list[range]) -> dict[tuple[int, ...], tuple[float, float]]:
    """Energy and latency of the legal points."""
    symbols = {f"T{i}": list(sizes) for i, sizes in enumerate(tiles)}
    try:
        frame = pm.sweep(pm.load(document), symbols, objectives=("energy", "latency"), keep="all").frame
    except pm.SpecError:
        return {}  # no point is legal
    return {tuple(int(r[s]) for s in symbols): (r["energy"], r["latency"]) for _, r in frame.iterrows()}


@pytest.mark.slow
@pytest.mark.parametrize("name", CASCADES)
def test_engines_closed_forms_and_sweeps_agree(name: str) -> None:
    einsums, sizes, init = CASCADES[name]
    workload = {"rank_sizes": sizes, "bits_per_value": {"All": 8}, "einsums": list(einsums), "init": init}
    legal = 0
    for document, tiles in mappings(workload):
        points = swept(document, tiles) if tiles else None
        for sizes_here in product(*tiles):
            spec = pm.load(document, symbols={f"T{i}": t for i, t in enumerate(sizes_here)})
            walked, exact = (counted(spec, engine) for engine in ("enumerate", "exact"))
            assert (walked is None) == (exact is None)
            if points is not None:
                assert (walked is not None) == (sizes_here in points)
            if walked is None or exact is None:
                continue
            legal += 1
            assert not differences(exact.analysis, walked.analysis)
            if points is not None:
                figures = walked.total_energy, walked.total_latency
                assert points[sizes_here] == pytest.approx(figures, rel=1e-12)
            try:
                formed = pm.evaluate(spec, engine="symbolic")
            except pm.NotSeparable:
                continue
            assert not differences(formed.analysis, walked.analysis)
    assert legal
