"""docs/tiling/tiler_swift.md: its example runs; the limits in docs/tiling.md are those of the model."""

from __future__ import annotations

import re
from pathlib import Path

import matplotlib
import pytest

import polymodel as pm
from polymodel.tiling.cost.model import Launch
from polymodel.tiling.fits.fit import Elements
from polymodel.tiling.swift import published
from polymodel.tiling.swift.compat import as_built
from tests.tiling.test_compat import comparison, seeds

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
    assert found.original


def test_links_and_pictures_exist() -> None:
    targets = re.findall(r"\]\(([^)#]+)\)", CHAPTER)
    assert "tiler_swift.png" in targets
    for target in targets:
        assert target.startswith("https://") or (ROOT / "docs/tiling" / target).exists(), target


def test_how_many_times_the_tiles_simple_makes() -> None:
    simple = [b for b in comparison().bars if (b.op, b.tiler) == ("multiply", "simple")]
    most = max(b.as_built_tiles / b.corrected_tiles for b in simple)
    assert f"up to {most:.1f} times the tiles" in CHAPTER


def test_the_constants_are_those_of_a_launch() -> None:
    usual = Launch()
    assert f"{usual.config_add} cycles for add and {usual.config_multiply} for multiply" in LIMITS
    assert f"{usual.clock_mhz / 1000:.0f} GHz" in LIMITS
    assert f"by default {published.CAPACITY} elements" in LIMITS


def test_tokens_decide_the_bars_of_one_matrix() -> None:
    """Of the cycles as built, tokens are the most for bcsstm26 where tiles are unequal, and for no other."""
    shares = []
    for pattern in seeds():
        found = as_built(pattern, "add", Elements(published.CAPACITY), "btree")
        empty = found.cycles == found.launch.empty
        tokens = int((found.cycles[~empty] - found.launch.ramp).sum())
        shares.append(tokens / found.run_cycles)
        assert pattern.name == "ts_bcsstm26" or empty.mean() > 0.5
    assert shares[0] > 0.9
    assert max(shares[1:]) < 0.6
    deviations = [abs(b.deviation) for b in comparison().bars if b.deviation is not None]
    near = sum(d <= 0.025 for d in deviations)
    assert f"{near} of the {len(deviations)} bars come out within 2.5 % and all within 6 %" in LIMITS
