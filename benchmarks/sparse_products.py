"""Products of a sparse matrix with itself and with a dense one, each beside SciPy's in the same run."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Literal

import numpy as np
from scipy.sparse import csr_array

import polymodel as pm
from benchmarks.rows import Row, cpu_seconds
from polymodel.sparse.execute.records import Execution
from polymodel.sparse.traffic.records import CascadeTraffic
from polymodel.spec.teaal import read_teaal
from polymodel.spec.teaal.records import TeaalSpec

HERE = Path(__file__).resolve().parent
ROWS = 200_000
WIDE = 32
SLICED = """
einsum:
  declaration: {A: [I, K], B: [K, J], Z: [I, J]}
  expressions: ["Z[i, j] = A[i, k] * B[k, j]"]
mapping:
  partitioning: {Z: {I: [uniform_slice(8)]}}
  loop-order: {Z: [I1, I0, K, J]}
  spacetime: {Z: {space: [I1], time: [I0, K, J]}}
"""


def graph(entries: int, skew: int) -> pm.SparseTensor:
    """A symmetric power-law graph with `entries` links; more skew, more of them at few nodes."""
    options = {"entries": entries, "skew": skew, "symmetric": 1}
    return pm.generate_tensor("power-law", 1, shape=[ROWS, ROWS], name="A", ranks=["I", "K"], **options)


def cpu(action: Callable[[], object]) -> tuple[float, object]:
    """Processor time and result of one call: these take long, and their first call is like the others."""
    begun = time.process_time()
    result = action()
    return time.process_time() - begun, result


def moved(
    spec: TeaalSpec, a: pm.SparseTensor, b: pm.SparseTensor, replacement: Literal["lru", "optimal"]
) -> float:
    """Time of counting the traffic, whose multiplies have to be as many as A's columns and rows say."""
    took, traffic = cpu(lambda: pm.traffic(spec, {"A": a, "B": b}, replacement=replacement))
    assert isinstance(traffic, CascadeTraffic)
    if dict(traffic.einsum("Z").unit("Mul").counts)["mul"] != multiplies_of(a):
        raise AssertionError(f"{multiplies_of(a):,} multiplies are not what the traffic counts")
    return took


def gamma(entries: int) -> dict[str, Row]:
    """Time of counting Gamma's traffic, whose partial products are merged some rows at a time."""
    a = graph(entries, 69)
    matrix = csr_array((a.values.astype(float), tuple(a.coords)), shape=a.shape)
    peer, _ = cpu(lambda: matrix @ matrix)
    first = pm.SparseTensor.from_coo("A", ("K", "M"), a.shape, a.coords[::-1], a.values)
    given = {"A": first, "B": a.renamed("B", ("K", "N"))}
    took, traffic = cpu(lambda: pm.traffic(pm.load("teaal/gamma_traffic"), given, replacement="lru"))
    assert isinstance(traffic, CascadeTraffic)
    if traffic.einsum("Z").unit("FPMul").total != multiplies_of(a):
        raise AssertionError(f"{multiplies_of(a):,} multiplies are not what Gamma's traffic counts")
    name = (
        f"Gamma with its mergers, {a.nnz:,} nonzeros, {multiplies_of(a) / 1e6:,.0f} M multiplies, LRU cache"
    )
    return {name: cpu_seconds(took, peer, "SciPy's product")}


def multiplies_of(a: pm.SparseTensor) -> int:
    """Of A x A: per coordinate of the rank summed over, the nonzeros of its column times those of its row."""
    columns, rows = (np.bincount(c, minlength=ROWS) for c in (a.coords[1], a.coords[0]))
    return int((columns * rows).sum())


def counted(spec: TeaalSpec, a: pm.SparseTensor, b: pm.SparseTensor, values: bool, nnz: int) -> float:
    """Time of an execution, whose output has to have as many points as SciPy's product."""
    took, run = cpu(lambda: pm.execute(spec, {"A": a, "B": b}, values=values))
    assert isinstance(run, Execution)
    if run.einsums[0].output_nnz != nnz:
        raise AssertionError(f"SciPy's product has {nnz:,} points, not {run.einsums[0].output_nnz:,}")
    return took


def products(entries: int = 800_000) -> dict[str, Row]:
    """Counts, traffic and values."""
    sliced, cached = read_teaal(SLICED), read_teaal((HERE / "gustavson.yaml").read_text(encoding="utf-8"))
    result: dict[str, Row] = {}
    for skew, valued in ((69, False), (62, True)):
        a = graph(entries, skew)
        b = a.renamed("B", ("K", "J"))
        matrix = csr_array((a.values.astype(float), tuple(a.coords)), shape=a.shape)
        peer, product = cpu(lambda matrix=matrix: matrix @ matrix)
        nnz = product.nnz
        del product
        size = f"A x A, {a.nnz:,} nonzeros, {multiplies_of(a) / 1e6:,.0f} M multiplies"
        peer_name = "SciPy's product"
        if valued:
            result[f"{size}, with values"] = cpu_seconds(counted(sliced, a, b, True, nnz), peer, peer_name)
            continue
        result[f"{size}, counts and times"] = cpu_seconds(counted(sliced, a, b, False, nnz), peer, peer_name)
        lru, optimal = moved(cached, a, b, "lru"), moved(cached, a, b, "optimal")
        result[f"{size}, traffic with an LRU cache"] = cpu_seconds(lru, peer, peer_name)
        result[f"{size}, traffic with an optimal cache"] = cpu_seconds(optimal, peer, peer_name)
        dense = np.ones((ROWS, WIDE))
        wide = pm.SparseTensor.from_dense("B", ("K", "J"), dense)
        peer, product = cpu(lambda matrix=matrix, dense=dense: matrix @ dense)
        took = counted(sliced, a, wide, False, int(np.count_nonzero(product)))
        name = f"SpMM, {a.nnz:,} nonzeros, {WIDE} columns stamped in time, counts and times"
        result[name] = cpu_seconds(took, peer, "SciPy's product with an array")
    return result | gamma(entries // 4)
