"""Columns of kept points, recomputed one by one with evaluate's own cost code."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from polymodel.cost.context import Counts
from polymodel.cost.records import Costs
from polymodel.sweep.grid import Grid
from polymodel.sweep.scenario import Scenario, Variant
from polymodel.sweep.sparse.rows import PREFIX, is_sparse, sparse_cells
from polymodel.sweep.values import Number

Cells = dict[str, Any]
Found = tuple[Scenario, Variant]


def cells(costs: Costs, accesses: Mapping[str, int], objectives: Sequence[str]) -> Cells:
    """Energy (J), latency (s), objectives, bits per component, feasibility and its reason."""
    row: Cells = {"energy": costs.total_energy, "latency": costs.total_latency, **accesses}
    row["edp"] = row["energy"] * row["latency"]
    for n in costs.needs:
        if n.counts:
            name = f"working_set:{n.component}"
            row[name] = max(row.get(name, 0), n.bits)
    row["feasible"] = not costs.violations
    row["reason"] = "; ".join(str(v) for v in costs.violations)
    for name in objectives:
        if name.startswith("accesses:"):
            component = name.partition(":")[2]
            row[name] = row.get(f"reads:{component}", 0) + row.get(f"writes:{component}", 0)
        if not name.startswith(PREFIX):
            row.setdefault(name, 0)
    return row


def accesses_of(counts: Counts) -> dict[str, int]:
    """Bits read from and written to every memory and toll (down and up), all instances and executions."""
    found: dict[str, int] = {}
    for t in counts.analysis.traffic:
        bits = counts.bits(t.tensor) * counts.executions(t.einsum)
        for way, n in (("reads", t.reads), ("writes", t.writes)):
            found[f"{way}:{t.component}"] = found.get(f"{way}:{t.component}", 0) + n * bits
    for p in counts.analysis.tolls:
        bits = counts.bits(p.tensor) * counts.executions(p.einsum)
        for way, n in (("reads", p.down), ("writes", p.up)):
            found[f"{way}:{p.component}"] = found.get(f"{way}:{p.component}", 0) + n * bits
    return found


def table(
    grid: Grid, names: Sequence[str], rows: Iterable[tuple[int, Cells]], symbols: Sequence[str]
) -> dict[str, list[Any]]:
    """Rows as columns: point, mapping, symbols, then every cell that any row has (0 where absent)."""
    found = list(rows)
    keys = dict.fromkeys(k for _, row in found for k in row)
    points = [grid.point(number % grid.size) for number, _ in found]
    columns: dict[str, list[Any]] = {
        "point": [number for number, _ in found],
        "mapping": [names[number // grid.size] for number, _ in found],
    }
    for name in symbols:
        columns[name] = [p[name] for p in points]
    for key in _ordered(keys):
        columns[key] = [row.get(key, 0) for _, row in found]
    return columns


def _ordered(keys: Iterable[str]) -> list[str]:
    ways = ("reads", "writes", "accesses", "working_set")
    sparse = (
        "sparse_energy",
        "sparse_latency",
        "sparse_edp",
        "speedup",
        *(PREFIX + w for w in ways),
        "label",
    )
    order = ("energy", "latency", "edp", *ways, *sparse, "feasible", "reason")
    return sorted(dict.fromkeys([*keys, "energy", "latency", "feasible", "reason"]),
                  key=lambda k: order.index(k.partition(":")[0]))  # fmt: skip


def exact_cells(
    where: Scenario, variant: Variant, point: Mapping[str, Number], objectives: Sequence[str]
) -> Cells:
    """A point of a compiled block by evaluate's own code."""
    analysis, costs = where.exact(variant, point)
    found = cells(costs, accesses_of(Counts(variant.problem, analysis)), objectives)
    if is_sparse(objectives):
        from polymodel.sweep.sparse.exact import sparse_report

        found |= sparse_cells(sparse_report(where, variant, point, analysis, costs), objectives)
    return found
