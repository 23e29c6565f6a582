"""The comparison with optima that AccelForge's mapper stored: no worse, worse, or not compared."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.reference import optima
from tests.reference.check import shown

MACHINE = """\
arch:
  nodes:
  - !Memory
    name: MainMemory
    size: inf
    tensors: {keep: ~Intermediates, may_keep: All}
    actions: [{name: read, energy: 1}, {name: write, energy: 1}]
  - !Memory
    name: GLB
    size: 1e6
    tensors: {keep: ~MainMemory, may_keep: All}
    actions: [{name: read, energy: 0}, {name: write, energy: 0}]
  - !Compute {name: MAC, actions: [{name: compute, energy: 0}]}
"""
WORKLOAD = """\
workload:
  rank_sizes: {M: 2, K: 3}
  bits_per_value: {All: 8}
  einsums: ["T[m] = A[m, k] * B[k]", "Z[m] = T[m] * C[m]"]
"""


def test_optima_are_compared_in_their_space(tmp_path: Path) -> None:
    (tmp_path / "machine.yaml").write_text(MACHINE)
    (tmp_path / "two.yaml").write_text(WORKLOAD)
    once = 8.0 * (6 + 3 + 2 + 2)  # A, B, C and Z
    stored = {
        "machine|two||fused": {"energy": once, "latency": 0.0},
        "machine|two||unfused": {"energy": once + 8 * (2 + 2), "latency": 0.0},  # T is written and read
        "machine|two|N=1|unfused": {"energy": once, "latency": 0.0},
        "other|two||fused": {"energy": 1.0, "latency": 0.0},
    }
    (tmp_path / optima.FOUND).write_text(json.dumps(stored))
    fused, unfused, better, other = optima.check(tmp_path, seconds=60)
    assert (fused.checked, fused.mismatches, fused.fault) == (1, [], "")
    assert (unfused.checked, unfused.mismatches, unfused.fault) == (1, [], "")
    assert len(better.mismatches) == 1
    assert other.uncomputed == ["its files are not here"]


def test_a_listed_difference_keeps_the_value_that_was_reached(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "machine.yaml").write_text(MACHINE)
    (tmp_path / "two.yaml").write_text(WORKLOAD)
    key, once = "machine|two||fused", 8.0 * (6 + 3 + 2 + 2)
    (tmp_path / optima.FOUND).write_text(json.dumps({key: {"energy": once - 1, "latency": 0.0}}))
    for reached, differs in ((once, 0), (once - 0.5, 1)):
        monkeypatch.setitem(optima.LISTED, key, (reached, "half of each sum is lost"))
        (found,) = optima.check(tmp_path, seconds=60)
        assert len(found.mismatches) == differs
        assert "listed difference: energy ours 104, reference 103: half of each sum is lost" in shown(
            found, notes=False
        )
