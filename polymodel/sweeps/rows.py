"""Columns of kept points, recomputed one by one by the cost code of `evaluate`."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from typing import Any

from polymodel.cost.costs import CostFigures
from polymodel.cost.records import Costs, Counts, violation_lines
from polymodel.objectives import OBJECTIVES, SPARSE, is_sum, on_sparse_data, value
from polymodel.sweeps.grid import Grid
from polymodel.sweeps.scenario import Scenario, Variant
from polymodel.sweeps.sparse.rows import is_sparse, sparse_cells
from polymodel.sweeps.values import Number

Cells = dict[str, Any]
Found = tuple[Scenario, Variant]


def cells(counts: Counts, costs: Costs, objectives: Sequence[str]) -> Cells:
    """Energy (J), latency (s), objectives, bits per component, feasibility and its reason."""
    figures = CostFigures(counts, costs)
    row: Cells = {"energy": figures.energy, "latency": figures.latency}
    row |= {f"{way}:{component}": bits for (component, way), bits in figures.moved_bits.items()}
    row["edp"] = row["energy"] * row["latency"]
    row |= {f"working_set:{component}": bits for component, bits in figures.working_sets.items()}
    row["feasible"] = not costs.violations
    row["reason"] = "; ".join(violation_lines(costs.violations))
    return row | {name: value(name, figures) for name in objectives if not on_sparse_data(name)}


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
    for key in ordered(tuple(keys)):
        columns[key] = [row.get(key, 0) for _, row in found]
    return columns


@lru_cache(maxsize=64)
def ordered(keys: tuple[str, ...]) -> tuple[str, ...]:
    """The columns in the order of tables."""
    words = [o.word for o in OBJECTIVES]
    order = (*words, *(SPARSE + w for w in words[:3]), "speedup", *(SPARSE + w for w in words[3:]), "label",
             "feasible", "reason")  # fmt: skip
    every = dict.fromkeys([*keys, "energy", "latency", "feasible", "reason"])
    sums = [k for k in every if is_sum(k)]
    return (
        *sums,
        *sorted((k for k in every if k not in sums), key=lambda k: order.index(k.partition(":")[0])),
    )


def exact_cells(
    where: Scenario, variant: Variant, point: Mapping[str, Number], objectives: Sequence[str]
) -> Cells:
    """The cells of a point of a compiled block, by the code of `evaluate`."""
    analysis, costs = where.exact(variant, point)
    result = cells(Counts(variant.problem, analysis), costs, objectives)
    if is_sparse(objectives):
        from polymodel.sweeps.sparse.exact import sparse_report

        result |= sparse_cells(sparse_report(where, variant, point, analysis, costs), objectives)
    return result
