"""Timeloop's specs as problems, through the importer that users have."""

from __future__ import annotations

from typing import Any

from polymodel.analysis.result import Problem
from polymodel.errors import SpecError
from polymodel.importers.timeloop import import_timeloop


def problem_of(spec: dict[str, Any]) -> Problem:
    """What the engines take. ValueError, on one line, for all that is wrong or would be left out."""
    try:
        imported = import_timeloop(spec)
        read = imported.spec
    except SpecError as error:
        raise ValueError("; ".join(d.message for d in error.diagnostics)) from error
    if imported.left_out:
        raise ValueError("; ".join(f"{d.path}: {d.message}" for d in imported.left_out))
    assert read.mapping is not None
    return Problem(read.workload, read.arch, read.mapping)
