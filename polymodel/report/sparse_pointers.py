"""The sparsity in a spec, in one line each next to the figures that count every point."""

from __future__ import annotations

from typing import TYPE_CHECKING

from polymodel.cost.records import violation_lines
from polymodel.errors import Refused
from polymodel.quantities import engineering
from polymodel.report.tables import says_sparse, says_tiles, time_taken
from polymodel.view.answer import Line

if TYPE_CHECKING:
    from polymodel.cost.records import CapacityViolation
    from polymodel.report.report import Report


def pointers(report: Report) -> list[tuple[str, str]]:
    """How to obtain the sparse figures, without counting anything, as (name, text)."""
    result = []
    if says_sparse(report.problem):
        result.append(("sparse data", "not in these figures, which count every zero: report.sparse"))
    if says_tiles(report.problem):
        result.append(("in tiles", "not in these figures, which count every zero: report.tiling"))
    return result


def sparse_figures(report: Report) -> list[tuple[str, str]]:
    """The sparse figures themselves, for a page that has their sections too, as (name, text)."""
    result = []
    if says_sparse(report.problem):
        sparse = report.sparse
        spent = f"{time_taken(sparse.result.costs)}, {engineering(sparse.total_energy, 'J')}"
        result.append(("sparse data", f'{spent} ({sparse.label}): see "On sparse data" below'))
    if says_tiles(report.problem):
        result.append(("in tiles", _tiled(report)))
    return result


def verdict(report: Report) -> tuple[bool, str]:
    """Whether the mapping fits, and the verdict in words; if the spec describes zeros, compressed sizes
    decide, as in sweeps with sparse objectives."""
    words = {True: "yes", False: "NO"}
    if not _zeros_decide(report):
        return report.feasible, words[report.feasible]
    sparse = report.sparse
    wrong = "; ".join(violation_lines(deciding_violations(report)))
    result = f"{words[sparse.feasible]} on sparse data ({sparse.label}{': ' + wrong if wrong else ''})"
    return sparse.feasible, f"{result}; {words[report.feasible]} with every zero stored"


def deciding_violations(report: Report) -> tuple[CapacityViolation, ...]:
    """Return the memories that are too small, if `verdict` says that the mapping does not fit."""
    return report.sparse.result.violations if _zeros_decide(report) else report.violations


def capacity_lines(report: Report) -> list[Line]:
    """What does not fit, one line per memory, beside a verdict that counts zeros; what fits on sparse data
    only is no fault."""
    lines = violation_lines(report.violations)
    if not _zeros_decide(report):
        return [Line(text, "bad") for text in lines]
    return [Line(f"with every zero stored, {text}; on sparse data it fits", "note") for text in lines]


def _zeros_decide(report: Report) -> bool:
    """Return whether compressed tiles fit although full ones do not, or the other way round."""
    return says_sparse(report.problem) and report.sparse.feasible != report.feasible


def _tiled(report: Report) -> str:
    try:
        tiling = report.tiling
    except Refused:
        return "not cut: the reason is at the end"
    cycles = f"{tiling.total_cycles:,.10g} cycles"
    seconds = tiling.total_latency
    spent = cycles if seconds is None else f"{engineering(seconds, 's')} ({cycles})"
    what = "to configure and run the tiles of sparse operands"
    return f'{spent} {what} ({tiling.label}): see "Cut into tiles" below'
