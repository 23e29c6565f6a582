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
    assert main([*sides, "--set", "TM=10"]) == 0
    assert capsys.readouterr().out.endswith("note: --set TM is for b alone\n")
    assert main([*sides, "--set", "TN=10"]) == 2
    assert "unknown symbol TN" in capsys.readouterr().err


@pytest.mark.parametrize("swapped", [False, True])
def test_a_template_variable_of_one_side_alone(swapped: bool, capsys: pytest.CaptureFixture[str]) -> None:
    sides = ["conv1d,simple_two_level", "matmul,simple_two_level,matmul/output_stationary"]
    assert main(["compare", *(sides[::-1] if swapped else sides), "--var", "K=32"]) == 0
    assert capsys.readouterr().out.endswith(f"note: --var K is for {'a' if swapped else 'b'} alone\n")
    assert main(["compare", *sides, "--set", "K=32", "--var", "QQ=3"]) == 2
    told = capsys.readouterr().err.splitlines()
    assert [line for line in told if not line.startswith("  remedy: template variables: ALLOCATION, ")] == [
        "no template uses the variable QQ",
        "symbols.K: K is a template variable, not a symbol",
        "  remedy: give it as one: --var K=..., in Python load(..., K=...)",
    ]


def test_machines_with_a_clock_are_compared_in_cycles_too(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    library = Path(__file__).parents[2] / "arch" / "simple_two_level.yaml"
    text = library.read_text(encoding="utf-8")
    mine = tmp_path / "clocked.yaml"
    mine.write_text(text.replace("name: MAC\n", "name: MAC\n    clock: 2 GHz\n"), encoding="utf-8")
    work = "matmul/simple_two_level/output_stationary"
    assert main(["compare", str(mine), "simple_two_level", "--with", work, "--format", "json"]) == 0
    rows = {row["quantity"]: row for row in json.loads(capsys.readouterr().out) if not row["where"]}
    assert rows["cycles"]["a"] == pytest.approx(2e9 * rows["latency"]["a"])
    assert rows["cycles"]["b"] is None
