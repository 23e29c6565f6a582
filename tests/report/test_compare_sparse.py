"""Reports of sparse data side by side: what is left of them beside the figures that count every zero."""

from __future__ import annotations

from pathlib import Path

import pytest

import polymodel as pm
from polymodel.cli import main

SPEC = """
arch:
  nodes:
  - !Memory
    name: DRAM
    tensors: {keep: All}
    actions: [{name: read, energy: 10, throughput: 8}, {name: write, energy: 10}]
  - !Memory {name: GLB, size: 500, tensors: {may_keep: All}, sparse: {format: {A: [UOP, CP]}}}
  - !Compute {name: MAC, actions: [{name: compute, energy: 1, throughput: 1}]}
workload:
  rank_sizes: {M: 8, N: 8, K: 8}
  bits_per_value: {All: 8}
  densities: {A: DENSITY}
  einsums: ["Z[m, n] = A[m, k] * B[k, n]"]
mapping:
  nodes:
  - !Storage {component: DRAM, tensors: [A, B, Z]}
  - !Temporal {rank_variable: n, tile_shape: 1}
  - !Storage {component: GLB, tensors: [A, B, Z]}
  - !Compute {einsum: Z, component: MAC}
"""


def test_sparse_figures_stand_beside_dense_ones(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The mapping fits on sparse data alone: its verdict is the one of `evaluate`."""
    paths = []
    for name, density in (("a", "0.1"), ("b", "0.2")):
        path = tmp_path / f"{name}.yaml"
        path.write_text(SPEC.replace("DENSITY", density), encoding="utf-8")
        paths.append(str(path))
    reports = [pm.evaluate(pm.load(path)) for path in paths]
    rows = {(r["quantity"], r["where"]): (r["a"], r["b"]) for r in pm.compare(*reports).rows.records()}
    assert rows["feasible", ""] == tuple(r.feasible for r in reports)
    assert rows["energy", "on sparse data"] == tuple(r.sparse.total_energy for r in reports)
    assert rows["latency", "on sparse data"] == tuple(r.sparse.total_latency for r in reports)
    assert rows["feasible", "on sparse data"] == tuple(r.sparse.feasible for r in reports)
    assert reports[0].sparse.feasible > reports[0].feasible
    evaluated, compared = main(["evaluate", paths[0]]), main(["compare", paths[0], paths[0]])
    assert evaluated == compared == 0
    assert "on sparse data" in capsys.readouterr().out


def test_what_is_not_counted_on_sparse_data_is_empty_and_says_why(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Figures that count every zero do not stand in for those that are refused."""

    def refuse(self: pm.Report) -> None:
        raise pm.Refused("data of this kind are not counted", code="unsupported-density")

    path = tmp_path / "a.yaml"
    path.write_text(SPEC.replace("DENSITY", "0.1"), encoding="utf-8")
    report = pm.evaluate(pm.load(str(path)))
    monkeypatch.setattr(pm.Report, "sparse", property(refuse))
    found = pm.compare(report, report)
    rows = [row for row in found.rows.rows if row[1] == "on sparse data"]
    assert len(rows) == 3
    assert all(row[3] is row[4] is None for row in rows)
    assert "a on sparse data is not counted: data of this kind are not counted" in found.notes
