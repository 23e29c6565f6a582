"""The report on files of other tools: kinds, what loads, what is compared."""

from __future__ import annotations

import json
from pathlib import Path

from tests.reference import peers

STATS = """\
Level 0
-------
=== MAC ===
    STATS
    -----
    Computes (total) : 12

Level 1
-------
=== DRAM ===

    STATS
    -----
    A:
        Scalar reads (per-instance)              : 12
        Scalar fills (per-instance)              : 0
    Z:
        Scalar updates (per-instance)            : 5

Networks
--------
Cycles: 12
Computes = 12
"""
RUN = """\
architecture:
  nodes:
  - !Component {name: DRAM, class: DRAM, attributes: {datawidth: 8}}
  - !Component {name: MAC, class: intmac}
problem:
  shape:
    name: Product
    dimensions: [M, K]
    data_spaces:
    - {name: A, projection: [[[M]], [[K]]]}
    - {name: Z, projection: [[[M]]], read_write: true}
  instance: {M: 4, K: 3}
"""
MAPPING = "mapping:\n- {target: DRAM, type: temporal, factors: [M=4, K=3], permutation: [K, M]}\n"
WORKLOAD = """\
workload:
  rank_sizes: {M: {{M}}, K: 3}
  bits_per_value: {All: 8}
  einsums: ["Z[m] = A[m, k] * B[k]"]
"""


def test_a_line_for_each_kind(tmp_path: Path) -> None:
    run = tmp_path / "one" / "ref"
    run.mkdir(parents=True)
    (run / peers.INPUT).write_text(RUN + "mapping: []\n")
    (run / "timeloop-mapper.map.yaml").write_text(MAPPING)
    (run / "timeloop-mapper.stats.txt").write_text(STATS)
    (tmp_path / "small.yaml").write_text(WORKLOAD)
    (tmp_path / "odd.yaml").write_text("arch: {nodes: [!Memory {name: A, odd: 1}]}\n")
    (tmp_path / "notes.yaml").write_text("x: 1\n")
    figures = {"simple|small|M=4|fused": {"actions": {"('Z', 'MAC', 'None', 'compute')": 12.0}}}
    (tmp_path / peers.FOUND).write_text(json.dumps(figures))
    found = {o.name: o for o in peers.check(tmp_path)}
    assert list(found) == [
        "Timeloop stored runs: 1 of 1 loaded",
        "AccelForge architectures: 0 of 1 loaded",
        "AccelForge workloads: 1 of 1 loaded",
        "other files",
    ]
    runs = found["Timeloop stored runs: 1 of 1 loaded"]
    assert runs.checked == 5
    assert runs.mismatches == ["one DRAM Z updates: ours 12, reference 5"]
    assert found["AccelForge workloads: 1 of 1 loaded"].checked == 1
    assert any("`odd`" in why for why in found["AccelForge architectures: 0 of 1 loaded"].uncomputed)
