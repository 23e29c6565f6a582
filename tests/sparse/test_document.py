"""The numbers of docs/sparse.md."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from polymodel.sparse.predicted import predictions
from tests.sparse import data

TEXT = (Path(__file__).resolve().parents[2] / "docs" / "sparse.md").read_text(encoding="utf-8")


def test_the_power_law_graph() -> None:
    found = {p.quantity: p for p in predictions(data.tensor("web"))}
    load = found["fullest of 8 slices"]
    assert abs(load.error("uniform") or 1) == pytest.approx(0.05, abs=0.005)
    for quantity in ("lock-step time of 8 slices", "multiplies of A x A"):
        p = found[quantity]
        assert p.uniform is not None
        assert f"{p.actual:,.0f}" in TEXT
        assert f"{p.uniform:,.0f}" in TEXT
    assert f"{data.tensor('web').nnz:,} nonzeros" in TEXT


@pytest.mark.slow
def test_the_band() -> None:
    found = {p.quantity: p for p in predictions(data.tensor("frame"))}
    tiles = found["nonempty tiles of 16 x 16"]
    assert f"{(tiles.uniform or 0) / tiles.actual:.1f} times as many" in TEXT


def test_links_exist() -> None:
    folder = Path(__file__).resolve().parents[2] / "docs"
    targets = re.findall(r"\]\(([^)#]+)\)", TEXT)
    assert targets
    assert not [t for t in targets if not (folder / t).exists()]
