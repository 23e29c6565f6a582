"""docs/sparse/traffic.md: its example runs and prints what its table says."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest
import yaml

import polymodel as pm
from tests.sparse.traffic.data import ROOT

PAGE = (ROOT / "docs/sparse/traffic.md").read_text(encoding="utf-8")


def test_the_example(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)
    code, *_ = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)
    names: dict = {}
    exec(code, names)
    *printed, last = capsys.readouterr().out.splitlines()
    table = PAGE.split("written |\n", 1)[1].split("\n\n", 1)[0].splitlines()[1:]
    said = [[cell.strip() for cell in row.strip("|").split("|")] for row in table]
    ours = [["" if cell == "None" else cell for cell in line.split(" ")] for line in printed]
    assert ours == said
    found = names["found"]
    assert last == f"{found.blocks} {found.time}"
    assert found.blocks == (("T", "Z"),)
    assert found.time == 640 / 2**40 + 384 / 2**40 + 768 / 2**40
    assert found.einsum("T").memory("MainMemory").of("B").read == 10 * 64


def test_the_energies(tmp_path: Path) -> None:
    """Those that the page writes, in the example above them."""
    lines = re.findall(r"^- (\{name: (?:MainMemory|FPMul).*\})$", PAGE, re.MULTILINE)
    text = (ROOT / "workloads/teaal/gamma_traffic.yaml").read_text(encoding="utf-8")
    for line in lines:
        old = re.findall(rf"- (\{{name: {yaml.safe_load(line)['name']}.*\}})$", text, re.MULTILINE)
        text = text.replace(old[0], line)
    a, b = np.array([[1, 1], [0, 0], [0, 1]]), np.array([[1, 0, 1, 1], [0, 1, 0, 0], [1, 1, 0, 0]])
    (tmp_path / "priced.yaml").write_text(text, encoding="utf-8")
    found = pm.traffic(pm.load(tmp_path / "priced.yaml"), {"A": a, "B": b})
    memory = [e.memory("MainMemory").energy for e in found.einsums]
    assert memory == pytest.approx([(640 + 384) * 4e-12, 768 * 4e-12], rel=1e-15)
    assert found.energy == pytest.approx(7.176e-9, rel=1e-15)
    assert found.without_energy == ("Intersect", "HighRadixMerger", "FPAdd")
    assert "energy of all: 7.176 nJ, without Intersect, HighRadixMerger, FPAdd" in str(
        pm.TrafficReport(found)
    )
    assert found.memories["energy"].sum() == pytest.approx(sum(memory), rel=1e-15)


@pytest.mark.parametrize("name", ["gamma_traffic", "outerspace_traffic", "extensor", "sigma_traffic"])
def test_the_designs_are_there(name: str) -> None:
    assert f"`{name}`" in PAGE
    assert Path(ROOT / f"workloads/teaal/{name}.yaml").is_file()
