"""Numbers that others have published for fused mappings.

`looptree_cascaded_mm`: Accelergy-Project/timeloop-python b8aaf2c, tests/looptree/test_accesses.py,
test_capacity.py and test_latency.py, the fused mapping with sequential branches. Their reads leave out those
that drain an output; their capacity counts what stands above a split in all branches (`reserved` here).
"""

from __future__ import annotations

from pathlib import Path

import pytest

import polymodel as pm

SPEC = Path(__file__).parent / "specs" / "looptree_cascaded_mm.yaml"
READS = {
    ("L0", "Fmap1", "Fc1"): 18,
    ("L0", "Filter1", "Fc1"): 8,
    ("L0", "Filter2", "Fc2"): 32,
    ("L0", "Fmap3", "Fc2"): 0,
    ("L1", "Fmap1", "Fc1"): 18,
    ("L1", "Filter1", "Fc1"): 72,
    ("L1", "Filter2", "Fc2"): 288,
    ("L1", "Fmap3", "Fc2"): 216,
    ("L2", "Fmap2", "Fc1"): 36,
    ("L2", "Fmap2", "Fc2"): 36,
    ("L3", "Fmap1", "Fc1"): 72,
    ("L3", "Fmap2", "Fc2"): 288,
}
WRITES = {
    ("L0", "Fmap3", "Fc2"): 72,
    ("L1", "Fmap3", "Fc2"): 288,
    ("L1", "Filter1", "Fc1"): 8,
    ("L1", "Filter2", "Fc2"): 32,
    ("L1", "Fmap1", "Fc1"): 18,
    ("L2", "Fmap2", "Fc1"): 72,
    ("L3", "Fmap1", "Fc1"): 72,
    ("L3", "Fmap2", "Fc2"): 288,
}
CAPACITY = {"L0": 130, "L1": 50, "L2": 4, "L3": 1}
CYCLES = 54


@pytest.mark.parametrize("engine", ["exact", "enumerate", "auto"])
@pytest.mark.parametrize("reuse", ["slide", "refill"])
def test_cascaded_matmuls_fused(reuse: str, engine: str, tmp_path: Path) -> None:
    file = tmp_path / "spec.yaml"
    file.write_text(SPEC.read_text(encoding="utf-8").replace("reuse: slide", f"reuse: {reuse}"))
    report = pm.evaluate(pm.load(file), engine=engine)
    traffic = {(t.component, t.tensor, t.einsum): t for t in report.analysis.traffic}
    assert {key: t.reads_fill for key, t in traffic.items()} == READS
    assert {key: t.writes for key, t in traffic.items() if t.writes} == WRITES
    reserved: dict[str, int] = {}
    for w in report.analysis.working_sets:
        if w.measure == "reserved":
            reserved[w.component] = max(reserved.get(w.component, 0), w.bits)
    assert reserved == CAPACITY
    assert report.total_latency == CYCLES  # one operation per second and unit
