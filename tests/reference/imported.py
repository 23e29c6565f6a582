"""Timeloop's specs as problems, through the importer that users have."""

from __future__ import annotations

from typing import Any

import polymodel as pm


def problem_of(spec: dict[str, Any]) -> pm.Problem:
    """What the engines take. ValueError, on one line, for all that is wrong or would be left out."""
    try:
        imported = pm.import_timeloop(spec)
        read = imported.spec
    except pm.SpecError as error:
        raise ValueError("; ".join(d.message for d in error.diagnostics)) from error
    if imported.left_out:
        raise ValueError("; ".join(f"{d.path}: {d.message}" for d in imported.left_out))
    assert read.mapping is not None
    return pm.Problem(read.workload, read.arch, read.mapping)
