"""Timeloop v3 specs and results: imported, per-instance counts compared. Reads leave out drains."""

from __future__ import annotations

import json
import re
from fractions import Fraction
from pathlib import Path
from typing import Any

from polymodel.analysis.result import Analysis, Engine
from tests.reference.common import Outcome, sections
from tests.reference.imported import problem_of

Numbers = dict[str, Any]


def check(spec: Numbers, folder: Path, engine: Engine) -> Outcome:
    """Compare one folder (spec.yaml with result.json)."""
    outcome = Outcome(f"timeloop/{folder.name}")
    sections(spec, {"problem": dict, "architecture": dict, "mapping": list})
    result = engine.analyse(problem_of(spec))
    given = json.loads((folder / "result.json").read_text())
    compute = result.compute[0]
    imperfect = any(re.search(r"=\s*\d+\s*,\s*\d+", str(m.get("factors"))) for m in spec["mapping"])
    for level, numbers in given["levels"].items():
        if level == compute.component:
            outcome.equal("computes", compute.operations, numbers["computes"])
            compare = outcome.inform if imperfect else outcome.equal
            compare("cycles", compute.busiest, numbers["cycles"])
            continue
        for tensor, counts in numbers["tensors"].items():
            _check_tensor(outcome, result, level, tensor, counts)
    return outcome


def _check_tensor(outcome: Outcome, result: Analysis, level: str, tensor: str, given: Numbers) -> None:
    """Capacity, reads, fills and updates of one instance."""
    buffet = next((b for b in result.buffets if (b.component, b.tensor) == (level, tensor)), None)
    row = next((t for t in result.traffic if (t.component, t.tensor) == (level, tensor)), None)
    where = f"{level}.{tensor}"
    if buffet is None or row is None:
        for kind in ("utilized_capacity", "reads_per_instance", "fills_per_instance", "updates_per_instance"):
            outcome.equal(f"{where} {kind} (bypassed)", 0, given[kind])
        return
    outcome.equal(f"{where} capacity", buffet.tile_max, given["utilized_capacity"])
    outcome.equal(f"{where} instances", buffet.instances, given["instances_used"])
    for kind, ours in (("reads", row.reads_fill), ("fills", row.writes_fill), ("updates", row.writes_drain)):
        per_instance = Fraction(ours, buffet.instances)
        outcome.equal(f"{where} {kind}", per_instance, given[f"{kind}_per_instance"])
