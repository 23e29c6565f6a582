"""docs/tiling/tiler_swift.md: its example runs; the limits in docs/tiling.md are those of the model."""

from __future__ import annotations

import re
from pathlib import Path

import matplotlib
import pytest

import polymodel as pm
from polymodel.tiling.cost.model import Launch
from polymodel.tiling.swift import compat
from tests.tiling.original import EXACT

matplotlib.use("agg")
ROOT = Path(__file__).resolve().parents[2]
CHAPTER = (ROOT / "docs/tiling/tiler_swift.md").read_text(encoding="utf-8")
LIMITS = " ".join(
    (ROOT / "docs/tiling.md").read_text(encoding="utf-8").split("## Limits and assumptions")[1].split()
)


def test_the_example_runs(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    (block,) = re.findall(r"```python\n(.*?)```", CHAPTER, re.DOTALL)
    monkeypatch.chdir(ROOT)
    names: dict[str, object] = {}
    exec(block, names)
    assert "Speed-up of the run against simple" in capsys.readouterr().out
    found = names["found"]
    assert isinstance(found, pm.TilerSwift)
    assert list(found.matrices) == list(EXACT)
    assert found.bars["published_run"].notna().sum() == 22


def test_links_and_pictures_exist() -> None:
    targets = re.findall(r"\]\(([^)#]+)\)", CHAPTER)
    assert "tiler_swift.png" in targets
    for target in targets:
        assert target.startswith("https://") or (ROOT / "docs/tiling" / target).exists(), target


def test_the_constants_are_those_of_a_launch() -> None:
    usual = Launch()
    assert f"{usual.config_add} cycles for add and {usual.config_multiply} for multiply" in LIMITS
    assert f"{usual.clock_mhz / 1000:.0f} GHz" in LIMITS
    assert f"by default {compat.CAPACITY} elements" in LIMITS
