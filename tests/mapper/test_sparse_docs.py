"""docs/sparse/exploration.md: its example runs, and its numbers are those that come out."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import polymodel as pm
from polymodel.mapping.mapspace_constraints import SPARSE_COSTS

ROOT = Path(__file__).parents[2]
TEXT = (ROOT / "docs" / "sparse" / "exploration.md").read_text(encoding="utf-8")


@pytest.mark.slow
def test_the_example_runs_and_its_table_is_right(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT / "docs" / "sparse")
    code, _ = re.findall(r"```python\n(.*?)```", TEXT, re.DOTALL)
    names: dict[str, object] = {}
    exec(compile(code, "exploration.md", "exec"), names)
    front = names["front"]
    assert isinstance(front, pm.Front)
    rows = [
        [float(x) for x in line.split("|")[1:-1]] for line in re.findall(r"^\| \d.*$", TEXT, re.MULTILINE)
    ]
    columns = {
        "sparse_energy": 1e12, "sparse_latency": 1e9, "speedup": 1, "energy": 1e12, "working_set:Buffer": 1
    }  # fmt: skip
    found = [[p.number, *(p.value(n) * scale for n, scale in columns.items())] for p in front]
    assert rows == [pytest.approx(row, rel=5e-4) for row in found]
    assert set(SPARSE_COSTS) <= set(re.findall(r"^\| (\w+) \|", TEXT, re.MULTILINE))


@pytest.mark.slow
def test_the_numbers_in_the_text(tmp_path: Path) -> None:
    source = (ROOT / "docs" / "sparse" / "actions.yaml").read_text(encoding="utf-8")
    spec = pm.load(ROOT / "docs" / "sparse" / "actions.yaml")
    written = pm.evaluate(spec).sparse
    assert f"{written.total_energy * 1e12:.1f} pJ and {written.total_latency * 1e6:.3f} us" in TEXT
    front = pm.explore(spec, objectives=SPARSE_COSTS[:2])
    assert front.sparse is not None
    assert front.sparse.factor == pytest.approx(1)
    assert front.notes[0].startswith("exact")
    bounds = [min(c.values[k] for c in front.found.candidates) for k in range(2)]
    least = TEXT.replace("\n  ", " ")
    assert (
        f"energy is at least {bounds[0] * 1e12:.1f} pJ and latency at least {bounds[1] * 1e9:.1f} ns" in least
    )
    dense = pm.explore(spec, objectives=("energy", "latency"))
    assert [p.energy for p in dense] == [pytest.approx(665.6e-12)]
    same = source.replace("{A: COO}", "{A: {format: COO, index: 3}}")
    same = same.replace("      actions:\n      - {skip: B, on: A}\n", "      dense_outputs: Z\n", 1)
    same = same.replace("      - {gate: B, on: A}\n", "      - {gate: B, on: A}\n      dense_outputs: Z\n", 1)
    assert same.count("dense_outputs") == 2
    (tmp_path / "same.yaml").write_text(same)
    front = pm.explore(pm.load(tmp_path / "same.yaml"), objectives=SPARSE_COSTS[:2])
    assert front.sparse is not None
    assert front.sparse.factor == pytest.approx(1)
    (best,) = front
    assert (
        f"of {best.value('sparse_energy') * 1e12:.0f} pJ and {best.value('sparse_latency') * 1e9:.0f} ns"
        in TEXT.replace("\n  ", " ")
    )
