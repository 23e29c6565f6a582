"""Files that other tools publish with them: a line for each, with what is compared or why nothing is.

Stored runs of Timeloop are imported from the processed input that the tool wrote beside its figures;
operations and cycles are those of its summary. Other files are listed.
"""

from __future__ import annotations

import re
from pathlib import Path

import polymodel as pm
from polymodel.errors import PolymodelError
from tests.reference.common import Outcome

INPUT = "parsed-processed-input.yaml"
STATS = "timeloop-model.stats.txt"
_FIGURES = {"operations": r"^Computes = (\d+)", "cycles": r"^Cycles: (\d+)"}
# Without a run beside them these are inputs of other tools, or belong to a run.
SUFFIXES = (".yaml", ".json")


def check(root: Path) -> list[Outcome]:
    """One outcome per stored run, and one per folder of other files."""
    runs = sorted(root.rglob(INPUT))
    beside = {path.parent for path in runs}
    others = sorted({p.parent for p in root.rglob("*") if p.suffix in SUFFIXES} - beside)
    listed = [_listed(folder, root) for folder in others]
    return [*(_run(path, root) for path in runs), *listed]


def _listed(folder: Path, root: Path) -> Outcome:
    number = sum(p.suffix in SUFFIXES for p in folder.iterdir())
    why = f"{number} files without a stored run that is read here"
    return Outcome(_name(folder, root), uncomputed=[f"not checked: {why}"])


def _name(folder: Path, root: Path) -> str:
    return str(folder.relative_to(root))


def _run(path: Path, root: Path) -> Outcome:
    outcome = Outcome(_name(path.parent, root))
    stats = path.with_name(STATS)
    if not stats.is_file():
        outcome.uncomputed.append("not checked: the run of a mapper: its mapping is not part of the input")
        return outcome
    told = stats.read_text(encoding="utf-8", errors="replace")
    try:
        report = pm.evaluate(pm.import_timeloop(path).spec)
    except PolymodelError as fault:
        outcome.uncomputed.append(f"not checked: {' '.join(str(fault).split())}")
        return outcome
    (unit,) = report.analysis.compute
    ours = {"operations": unit.operations, "cycles": unit.busiest}
    for what, pattern in _FIGURES.items():
        if found := re.search(pattern, told, re.MULTILINE):
            outcome.equal(what, ours[what], int(found[1]))
    return outcome
