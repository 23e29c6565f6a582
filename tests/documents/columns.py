"""The tables of reports, their columns with units and meanings, taken from reports of library specs."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import polymodel as pm
from polymodel.view.answer import Answer
from polymodel.view.table import Column, Table

UNITS = {
    "": "", "1": "share", "b/a": "ratio", "element/element": "ratio", "element": "elements", "bit": "bits",
    "operation": "operations", "s": "s", "J": "J", "J s": "J s", "W": "W", "m^2": "m²", "cycle": "cycles",
    "stamp": "stamps", "bit/s": "bits/s", "operation/s": "operations/s", "operation/bit": "operations/bit",
}  # fmt: skip


# Words that mean something else in one class than in the others.
OTHERWISE = {("ExecutionReport", "rank"): "the rank that the row is about"}


def shown() -> Iterator[tuple[str, str, Answer]]:
    """Class, how one gets it, and one of these answers."""
    dense = pm.evaluate(pm.load("two_engines", "matmul_chain_2/pipeline"))
    yield "Report", "`pm.evaluate(spec)`", dense
    machine = pm.evaluate(pm.load("tensaurus", "matmul", SPARSE="A"))
    yield (
        "SparseReport",
        "`report.sparse`, `pm.sparsify(report)`",
        pm.sparsify(machine, densities={"A": 0.1}),
    )
    tiled = pm.evaluate(pm.load("cgra_tiler_swift", "elementwise/row_bands")).tiling
    yield "TilingReport", "`report.tiling`, `pm.tile_levels(report)`", tiled
    matrix = pm.random_tensor(["I", "J"], [40, 30], 0.2, seed=1)
    product = pm.tile_matmul(matrix, pm.Transposed(), tile=[8, 8, 8])
    yield "MatmulTiling", "`pm.tile_matmul(a, b)`", product
    ones = pm.random_tensor(["J", "K"], [30, 8], 1.0, seed=2)
    run = pm.ExecutionReport(pm.execute(pm.load("tensaurus/spmm"), {"A": matrix, "B": ones}))
    yield "ExecutionReport", "`pm.ExecutionReport(pm.execute(spec, tensors))`", run
    a = pm.random_tensor(["K", "M"], [4, 4], 0.5, seed=1)
    b = pm.random_tensor(["K", "N"], [4, 4], 0.5, seed=2)
    moved = pm.TrafficReport(pm.traffic(pm.load("teaal/gamma_traffic"), {"A": a, "B": b}))
    yield "TrafficReport", "`pm.TrafficReport(pm.traffic(spec, tensors))`", moved


def meaning(owner: str, column: Column) -> str:
    """What the glossary says; KeyError where it says nothing, so that no column goes without."""
    found = OTHERWISE.get((owner, column.name)) or column.meaning
    if not found:
        raise KeyError(column.name)
    return found


def rows(owner: str, table: Table) -> Iterator[str]:
    """One line of a Markdown table per column."""
    for column in table.columns:
        yield f"| `{column.name}` | {UNITS[column.unit]} | {meaning(owner, column)} |"


def page() -> str:
    """All tables as Markdown."""
    lines: list[str] = []
    for name, made, one in shown():
        lines += [f"## {name}", "", f"{made} gives it.", ""]
        for table, declared in one.declared.items():
            lines += [f"### {name}.{table}", "", declared.words, ""]
            lines += ["| column | unit | meaning |", "|---|---|---|", *rows(name, one.table(table)), ""]
    return "\n".join(lines)


def missing() -> Mapping[str, str]:
    """Columns without a meaning -> the table that has them."""
    return {
        column.name: f"{name}.{table}"
        for name, _, one in shown()
        for table in one.tables
        for column in one.table(table).columns
        if not column.meaning
    }
