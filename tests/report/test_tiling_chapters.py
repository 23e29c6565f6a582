"""docs/tiling/architecture.md and feedback.md: their examples run, their numbers are those that come out."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

import polymodel as pm

ROOT = Path(__file__).resolve().parents[2]
LEVEL, LOOP = (
    (ROOT / f"docs/tiling/{name}.md").read_text(encoding="utf-8") for name in ("architecture", "feedback")
)


def test_the_section_that_is_shown_says_the_defaults(tmp_path: Path) -> None:
    (block,) = re.findall(r"```yaml\n(.*?)```", LEVEL, re.DOTALL)
    path = tmp_path / "arch.yaml"
    nodes = "".join(f"  {line}\n" for line in f"{block}- !Compute {{name: PE}}".splitlines())
    path.write_text(f"arch:\n  nodes:\n{nodes}", encoding="utf-8")
    shown = pm.load(path).arch["MEM"].data_tiles
    bare = pm.Memory(name="MEM", size=3 * 8 * 512, data_tiles={})  # type: ignore[arg-type]  # read as from a file
    other = pm.load(pm.Arch(nodes=(bare, pm.ComputeUnit(name="PE")))).arch["MEM"].data_tiles
    assert shown is not None
    assert other is not None
    assert (shown.capacity, shown.word_bits) == (128, 16)
    assert shown.ranks == ("M", "N")
    for name in (
        "fit", "tiler", "objective", "run", "config_add", "config_multiply", "ramp", "empty", "product",
    ):  # fmt: skip
        assert getattr(shown, name) == getattr(other, name)
    for name in ("objective", "pes", "bandwidth", "overbook", "time_limit"):
        assert getattr(shown.product, name) == getattr(other.product, name)


def test_the_table_of_the_example() -> None:
    rows = re.findall(r"^\| `(\w+)`, ([\d,]+) (\w+) \| (\w+) \| (.*) \|$", LEVEL, re.MULTILINE)
    assert len(rows) == 4
    for arch, capacity, unit, op, figures in rows:
        report = pm.evaluate(pm.load(arch, "elementwise/row_bands", OP=op))
        (row,) = report.tiling.table("summary").records()
        assert (f"{row['capacity']:,}", row["unit"]) == (capacity, unit)
        keys = ("tiles", "kernels", "config_cycles", "run_cycles", "total_cycles")
        assert [f"{row[k]:,}" for k in keys] == figures.split(" | ")
        if (arch, op) == ("cgra_tiler_swift", "add"):
            assert row["cycle_bound"] == row["total_cycles"] == 12614


def test_the_product_of_the_example(monkeypatch: pytest.MonkeyPatch) -> None:
    names: dict[str, Any] = {}
    (block,) = re.findall(r"```python\n(.*?)```", LEVEL, re.DOTALL)
    monkeypatch.chdir(ROOT)
    exec(compile(block, "chapter", "exec"), names)
    (row,) = names["tiled"].table("products").records()
    figures = f"{row['words']:,} words of at least {row['least_words']:,}, and {row['total_cycles']:,} cycles"
    assert f"takes {row['tile']}, {figures}" in " ".join(LEVEL.split())


def test_the_table_of_the_product() -> None:
    rows = re.findall(r"^\| `(\w+)` \| ([\w ]+) \| (\w+) \| (.*) \|$", LEVEL, re.MULTILINE)
    assert len(rows) == 2
    for arch, tile, order, figures in rows:
        (row,) = pm.evaluate(pm.load(arch, "gram/output_stationary")).tiling.table("products").records()
        assert (row["tile"], row["order"]) == (tile, order)
        cycles = (f"{row[k]:,}" for k in ("config_cycles", "run_cycles", "total_cycles"))
        ratio = f"{row['ratio']:.2f}"
        assert [f"{row['pairs']:,}", f"{row['words']:,}", ratio, *cycles] == figures.split(" | ")
        assert f"{row['multiplies']:,} multiplies" in LEVEL
        assert f"at least {row['least_words']:,}" in " ".join(LEVEL.split())


def test_the_figures_of_the_loop() -> None:
    found = pm.tune_tiling(ROOT / "tests/data/matrices/programme.mtx.gz", op="multiply", fit=pm.elements(128))
    by_name = {s.proposal.name: s.figure for s in found.tuned.steps}
    said = {
        "btree": "31,955", "strips": "33,313", "strips in 3 panels": "24,164", "columns": "21,624",
        "panels": "21,624",
    }  # fmt: skip
    assert {name: f"{by_name[name]:,}" for name in said} == said
    assert found.chosen.figure == 21624
    words = " ".join(LOOP.split())
    assert "31,955 cycles, strips 33,313, three panels 24,164, and columns" in words


def test_what_the_loop_leaves_to_the_best_of_all_tilers() -> None:
    path = ROOT / "tests/data/matrices/programme.mtx.gz"
    loop = pm.tune_tiling(path, fit=pm.elements(128))
    figures = f"{pm.tile(path, fit=pm.elements(128), objective='total').costs.total_cycles:,} cycles against"
    assert f"{figures} the loop's {loop.chosen.figure:,} for `programme`" in " ".join(LOOP.split())
    assert any("guillotine cuts are not tried here" in note for note in loop.notes)
    reached = pm.tune_tiling(ROOT / "tests/data/matrices/relations.mtx.gz", fit=pm.elements(128))
    assert not any("guillotine" in note for note in reached.notes)
