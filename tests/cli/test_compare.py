"""`polymodel compare`: two specs side by side."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from polymodel.cli import main


def test_a_symbol_of_one_side_alone_can_be_compared(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    text = """mapping:
  nodes:
  - !Storage {component: DRAM, tensors: [A, B, C]}
  - !Temporal {rank_variable: m, tile_shape: SIZE}
  - !Storage {component: GLB, tensors: [A, B, C]}
  - !Compute {einsum: Matmul, component: MAC}
"""
    for name, size in (("fixed", "10"), ("open", "TM")):
        (tmp_path / f"{name}.yaml").write_text(text.replace("SIZE", size))
    sides = [
        "compare",
        str(tmp_path / "fixed.yaml"),
        str(tmp_path / "open.yaml"),
        "--with",
        "matmul,simple_two_level",
    ]
    assert main([*sides, "--set", "TM=10", "--format", "json"]) == 0
    assert all(row["a"] == row["b"] for row in json.loads(capsys.readouterr().out))
    assert main([*sides, "--set", "TN=10"]) == 2
    assert "unknown symbol TN" in capsys.readouterr().err
