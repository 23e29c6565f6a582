"""Columns of kept points on sparse data, by the code of sparse reports."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from polymodel.cost.records import violation_lines
from polymodel.errors import InternalError
from polymodel.objectives import SPARSE, on_sparse_data, score, value

if TYPE_CHECKING:
    from polymodel.report.sparse import SparseReport

CLOSE = 1e-9  # relative difference between figures of many points at once and of single points


def is_sparse(objectives: Sequence[str]) -> bool:
    """True if any objective is on sparse data: then sparse tiles decide what fits."""
    return any(map(on_sparse_data, objectives))


def sparse_cells(report: SparseReport, objectives: Sequence[str]) -> dict[str, Any]:
    """Sparse energy (J), latency (s), bits per component (data and metadata), whether sparse tiles fit."""
    figures = report.figures
    row: dict[str, Any] = {
        f"{SPARSE}energy": figures.energy,
        f"{SPARSE}latency": figures.latency,
        f"{SPARSE}edp": figures.energy * figures.latency,
        "speedup": report.speedup,
        "label": report.label,
    }
    row |= {f"{SPARSE}{way}:{x}": bits for (x, way), bits in figures.moved_bits.items()}
    row |= {f"{SPARSE}working_set:{x}": bits for x, bits in figures.working_sets.items()}
    row["feasible"] = report.feasible
    row["reason"] = "; ".join(violation_lines(report.result.costs.violations))
    return row | {name: value(name, figures) for name in objectives if on_sparse_data(name)}


def agree(row: Mapping[str, Any], values: Sequence[float], objectives: Sequence[str]) -> None:
    """Raises InternalError if the figures of many points at once differ from those of one."""
    for name, found in zip(objectives, values, strict=False):
        if not math.isclose(score(name, row[name]), found, rel_tol=CLOSE, abs_tol=1e-300):
            raise InternalError(f"{name} is {row[name]!r} at a point, and {found!r} among others")
