"""Columns of kept points on sparse data, by the code that makes sparse reports."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from polymodel.cost.context import Counts
from polymodel.errors import InternalError

if TYPE_CHECKING:
    from polymodel.report.sparse import SparseReport

PREFIX = "sparse_"
CLOSE = 1e-9  # figures of many points at once, beside those of one
PLAIN = ("sparse_energy", "sparse_latency", "sparse_edp")
WAYS = ("sparse_reads", "sparse_writes", "sparse_accesses", "sparse_working_set")


def is_sparse(objectives: Sequence[str]) -> bool:
    """True if any objective is about sparse data: then what fits is decided by sparse tiles."""
    return any(o.startswith(PREFIX) for o in objectives)


def sparse_cells(report: SparseReport, objectives: Sequence[str]) -> dict[str, Any]:
    """Sparse energy (J), latency (s), bits per component (data and metadata), whether sparse tiles fit."""
    row: dict[str, Any] = {
        "sparse_energy": report.total_energy,
        "sparse_latency": report.total_latency,
        "sparse_edp": report.total_energy * report.total_latency,
        "speedup": report.speedup,
        "label": report.label,
        **_bits(report),
    }
    for n in report.result.costs.needs:
        if n.counts:
            name = f"sparse_working_set:{n.component}"
            row[name] = max(row.get(name, 0), n.bits)
    row["feasible"] = report.feasible
    row["reason"] = "; ".join(str(v) for v in report.result.costs.violations)
    for name in objectives:
        way, _, component = name.partition(":")
        if way == "sparse_accesses":
            ways = (f"{PREFIX}{x}:{component}" for x in ("reads", "writes"))
            row[name] = sum(row.get(x, 0) for x in ways)
        if way.startswith(PREFIX):
            row.setdefault(name, 0)
    return row


def agree(row: Mapping[str, Any], values: Sequence[float], objectives: Sequence[str]) -> None:
    """Raises InternalError where the figures of many points at once are not those of one."""
    for name, value in zip(objectives, values, strict=False):
        if not math.isclose(row[name], value, rel_tol=CLOSE, abs_tol=1e-300):
            raise InternalError(f"{name} is {row[name]!r} at a point, and {value!r} among others")


def _bits(report: SparseReport) -> dict[str, float]:
    """Bits that every memory and toll reads and writes (a toll: down and up), all executions."""
    counts = Counts(report.dense.problem, report.result.analysis)
    found: dict[str, float] = {}

    def add(way: str, component: str, bits: float) -> None:
        name = f"{PREFIX}{way}:{component}"
        found[name] = found.get(name, 0) + bits

    for a in report.counts.accesses:
        bits = a.actual * counts.bits(a.tensor) + a.metadata_bits
        add(a.kind.partition("_")[0], a.component, bits * counts.executions(a.einsum))
    for p in counts.analysis.tolls:
        each = counts.bits(p.tensor) * counts.executions(p.einsum)
        add("reads", p.component, p.down * each)
        add("writes", p.component, p.up * each)
    return found
