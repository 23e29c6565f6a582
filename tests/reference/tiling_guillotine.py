"""The fewest tiles over guillotine cuts on a grid: both optima exactly, and a cutting that reaches the first.

The file's keys are `matrix|op|capacity|grid`; the second operand is the first with its rows rolled by 5.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from polymodel.tiling.fits.fit import Elements
from polymodel.tiling.plane.operands import Rolled, pattern_of
from polymodel.tiling.tilers.guillotine import guillotine, min_nonskipped
from tests.reference.common import Outcome, comparing, sections
from tests.reference.tiling_elementwise import OPS, Compared, is_partition
from tests.reference.tiling_matrices import matrix


def is_optimum(given: Mapping[str, Any]) -> bool:
    """True for files whose results are optima, by matrix, operation, capacity and grid."""
    results = given.get("results")
    return isinstance(results, dict) and any(
        key.count("|") == 3 or (isinstance(value, dict) and "min_tiles" in value)
        for key, value in results.items()
    )


def check(path: Path) -> list[Outcome]:
    """One outcome per optimum."""
    found = []
    for key, theirs in json.loads(path.read_text(encoding="utf-8"))["results"].items():
        with comparing(Outcome(f"guillotine {key}")) as outcome:
            _optimum(outcome, key, theirs, path)
        found.append(outcome)
    return found


def _optimum(outcome: Outcome, key: str, theirs: Mapping[str, Any], path: Path) -> None:
    if not isinstance(theirs, Mapping) or key.count("|") != 3:
        raise ValueError("matrix|op|capacity|grid and its optima are expected")
    name, op, capacity, _ = key.split("|")
    sections(theirs, {"grid": list})
    if op not in OPS:
        raise ValueError(f"operation {op!r}: one of {', '.join(OPS)} is expected")
    pattern = pattern_of(matrix(name, path), Rolled())
    compared = Compared(outcome, "", pattern, OPS[op], Elements(int(capacity)))
    rows, cols = theirs["grid"]
    cut = guillotine(pattern, compared.op, compared.fit, (rows, cols))
    compared.require("the cutting is not a partition", is_partition(pattern, cut))
    compared.equal("overflowing", compared.costs(cut).overflowing, 0)
    compared.equal("tiles", cut.tiles, theirs["min_tiles"])
    outcome.unknown("optimum", theirs, ("grid", "min_tiles", "min_nonskipped"))
    if "min_nonskipped" in theirs:
        ours = min_nonskipped(pattern, compared.op, compared.fit, (rows, cols))
        compared.equal("min_nonskipped", ours, theirs["min_nonskipped"])
