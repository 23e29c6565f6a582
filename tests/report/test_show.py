"""A spec in words: what stands in it beside Einsums, components and nodes."""

from __future__ import annotations

from pathlib import Path

import pytest

from polymodel.cli import main

SOURCES = """
workload:
  rank_sizes: {M: 8, N: 4, K: 4}
  bits_per_value: {A: 8, B: 4, Z: 16}
  persistent_tensors: B
  densities: {A: 0.25}
  einsums: ["Z[m, n] = A[m, k] * B[k, n]"]
arch:
  nodes:
  - !Memory
    name: DRAM
    size: inf
    actions:
    - {name: read, energy: 7e-12, source: a datasheet}
    - {name: write, energy: 7e-12, source: a datasheet}
  - !Memory
    name: GLB
    size: 4096
    area: 1e-6
    actions: [{name: read, energy: 1e-12}, {name: write}]
    sparse: {format: {A: CSR}, actions: [{skip: B, on: A}]}
  - !Compute {name: MAC, actions: [{name: compute}]}
"""


def test_show_prints_widths_sources_and_what_is_sparse(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    (tmp_path / "sources.yaml").write_text(SOURCES)
    assert main(["show", str(tmp_path / "sources.yaml")]) == 0
    out = capsys.readouterr().out
    told = """\
densities: A 0.25
bits per value: 8 of A; 4 of B; 16 of Z
persistent: B
  sparse: A in CSR; skip B on A
sources of energy and area:
  DRAM read and write: a datasheet
  GLB write, MAC compute: not given, so 0
  GLB read and area: as written, no source is named
"""
    assert main(["show", str(tmp_path / "sources.yaml"), "--format", "html"]) == 0
    page = capsys.readouterr().out
    for line in told.splitlines():
        assert f"  {line}\n" in out
        assert f"{line}\n" in page


def test_show_tells_how_often_inputs_are_walked(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["show", "attention_cascade"]) == 0
    told = "one begins in each of QK, Exponential (over QK), Quotient (over EX)"
    assert told in capsys.readouterr().out
    assert main(["show", "attention_one_pass"]) == 0
    assert "K along C" not in capsys.readouterr().out
