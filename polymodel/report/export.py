"""What a report writes in addition to its tables: plain data with stable keys, sparse data, tiles,
pictures.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from polymodel.errors import Diagnostic, Refused, SpecError
from polymodel.report.evaluated import TABLES
from polymodel.report.tables import says_sparse, says_tiles
from polymodel.view.answer import Answer
from polymodel.view.files import Json, plain, write_csv, write_parquet

if TYPE_CHECKING:
    from polymodel.report.report import Report

FORMAT = "polymodel-report/1"


def check_table(name: str) -> None:
    """Raise SpecError unless a report has a table of this name; called before anything is counted."""
    from polymodel.report.sparse import TABLES as SPARSE
    from polymodel.report.tiling.level import TABLES as TILING

    known = (*TABLES, *(f"sparse_{n}" for n in SPARSE), *(f"tiling_{n}" for n in TILING))
    if name not in known:
        message = f"--table {name}: there is no such table"
        raise SpecError([Diagnostic(message, "tables: " + ", ".join(known), code="unknown-name")])


def as_data(report: Report, live: bool = True) -> dict[str, Json]:
    """The report as plain data with stable keys.

    `format`, `engine`, `feasible`, `total` (`latency_s`, `energy_J`, `area_m2`), `violations`, `notes`,
    and `tables`: name -> `units` and `rows`, one object per row. Exact counts are integers; an infinite
    figure (an unbounded memory) is the string "inf", an absent one null. Where the spec says anything of
    zeros, `sparse` has the same on sparse data, and the label of its numbers; where a memory cuts operands
    into tiles, `tiling` has these, or why there are none.
    """
    return {
        "format": FORMAT,
        "engine": report.analysis.engine,
        "feasible": report.feasible,
        "total": {
            "latency_s": plain(report.total_latency),
            "energy_J": plain(report.total_energy),
            "area_m2": plain(report.total_area),
        },
        "violations": [
            {
                "component": v.component,
                "einsum": v.einsum,
                "tensors": list(v.tensors),
                "need_bits": v.need_bits,
                "have_bits": plain(v.have_bits),
                "allocation": v.allocation,
            }
            for v in report.violations
        ],
        "notes": list(report.notes),
        "tables": report.tables_data(live),
        **({"sparse": _sparse_data(report)} if says_sparse(report.problem) else {}),
        **({"tiling": _tiling_data(report)} if says_tiles(report.problem) else {}),
    }


def _sparse_data(report: Report) -> Json:
    sparse = report.sparse
    return {
        "label": sparse.label,
        "feasible": sparse.feasible,
        "total": {"latency_s": plain(sparse.total_latency), "energy_J": plain(sparse.total_energy)},
        "notes": list(sparse.notes),
        "tables": sparse.tables_data(),
    }


def _tiling_data(report: Report) -> Json:
    try:
        result = report.tiling
    except Refused as refusal:
        return {"refused": refusal.message, "remedy": refusal.remedy}
    return {
        "label": result.label,
        "total": {
            "cycles": result.total_cycles,
            "latency_s": result.total_latency,
            "energy_J": result.total_energy,
        },
        "notes": list(result.notes),
        "tables": result.tables_data(),
    }


def save_sparse_files(report: Report, target: Path, parquet: bool) -> list[Path]:
    """Write the files on sparse data: a page, tables named `sparse_` and `tiling_`, and pictures of the spec.
    What is refused is left out; report.json gives the reason."""
    from polymodel.report.show import show_pictures

    result: list[Path] = []
    if says_sparse(report.problem):
        result += _named(report.sparse, "sparse", target, parquet)
        report.sparse.to_html(target / "sparse.html")
        result.append(target / "sparse.html")
    if says_tiles(report.problem):
        result += _named(report.tiling, "tiling", target, parquet)
    problem = report.problem
    return [*result, *show_pictures(target, problem.cascade, problem.hierarchy, problem.tree)]


def _named(answer: Answer, lead: str, target: Path, parquet: bool) -> list[Path]:
    """Write each table as a CSV file, and as parquet if requested, with a prefix for the kind of table."""
    result = []
    for name, table in answer.listed():
        result.append(target / f"{lead}_{name}.csv")
        write_csv(table, result[-1])
        if parquet:
            result.append(target / f"{lead}_{name}.parquet")
            write_parquet(table.frame(), result[-1])
    return result
