"""The worked example of docs/sparse/pictures.md."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from polymodel.report.activity import Activities, Activity
from polymodel.report.fibertree_layout import choose, levels

TEXT = (Path(__file__).resolve().parents[2] / "docs" / "sparse" / "pictures.md").read_text(encoding="utf-8")


def test_the_example_of_the_chapter(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (block,) = re.findall(r"```python\n(.*?)```", TEXT, re.DOTALL)
    names: dict[str, Any] = {}
    exec(block, names)
    tensor = names["A"]
    assert (tmp_path / "a.svg").exists()
    chosen = choose(levels(tensor), 48)
    assert chosen.root is not None
    assert (len(chosen.root.cells), chosen.fibers, tensor.nnz) == (2, (1, 2), 6)
    computes = tuple(
        Activity((i,), (j,), (("A", (i, j)), ("B", (j,)), ("Y", (i,)))) for i, j in tensor.coords.T.tolist()
    )
    run = Activities("Y", computes)
    assert (len(run.computes), len(run.spaces), run.lock_steps, run.slip_steps) == (6, 2, 4, 3)
    assert run.utilisation == 0.75
    assert run.with_clock(True).utilisation == 1
    assert run.ideal_steps == 3
