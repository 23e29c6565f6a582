"""docs/sparse/traffic.md: its example runs and prints what its table says."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.sparse.traffic.data import ROOT

PAGE = (ROOT / "docs/sparse/traffic.md").read_text(encoding="utf-8")


def test_the_example(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)
    (code,) = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)
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


@pytest.mark.parametrize("name", ["gamma_traffic", "outerspace_traffic", "extensor", "sigma_traffic"])
def test_the_designs_are_there(name: str) -> None:
    assert f"`{name}`" in PAGE
    assert Path(ROOT / f"workloads/teaal/{name}.yaml").is_file()
