"""Timeloop's reference cases, imported as they are, counted, and compared to the last number."""

from __future__ import annotations

import json
from fractions import Fraction
from pathlib import Path

import pytest

import polymodel as pm
from tests.reference.common import engine

CASES = Path(__file__).parent.parent / "reference" / "cases" / "timeloop"
FOLDERS = sorted(f.parent for f in CASES.glob("*/spec.yaml"))


def test_there_are_cases() -> None:
    assert len(FOLDERS) >= 3


@pytest.mark.parametrize("folder", FOLDERS, ids=lambda f: f.name)
def test_an_imported_case_counts_what_timeloop_counts(folder: Path) -> None:
    imported = pm.import_timeloop(folder / "spec.yaml")
    assert imported.complete
    spec = imported.spec
    assert spec.mapping is not None
    result = engine("exact").analyse(pm.Problem(spec.workload, spec.arch, spec.mapping))
    given = json.loads((folder / "result.json").read_text(encoding="utf-8"))
    rows = {(t.component, t.tensor): t for t in result.traffic}
    held = {(b.component, b.tensor): b for b in result.buffets}
    compute, compared = result.compute[0], 0
    for level, numbers in given["levels"].items():
        if level == compute.component:
            assert (compute.operations, compute.busiest) == (numbers["computes"], numbers["cycles"])
            continue
        for tensor, counts in numbers["tensors"].items():
            buffet, row = held.pop((level, tensor)), rows[level, tensor]
            assert buffet.tile_max == counts["utilized_capacity"]
            assert buffet.instances == counts["instances_used"]
            # Timeloop counts no reads that drain an output.
            kinds = {"reads": row.reads_fill, "fills": row.writes_fill, "updates": row.writes_drain}
            for kind, ours in kinds.items():
                assert Fraction(ours, buffet.instances) == counts[f"{kind}_per_instance"], (
                    level,
                    tensor,
                    kind,
                )
            compared += 5
    assert compared >= 15
    assert not held, "levels that Timeloop bypasses"
