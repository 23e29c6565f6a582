"""Many kept rows, evaluated as arrays, are those that `evaluate` gives one by one."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

import polymodel as pm
from tests.faults import faults
from tests.matmul import matmul
from tests.sweep.small import ACTIONS, without_forms

FLOATS = ("energy", "latency", "edp", "utilisation", "2*energy + latency")
VALUES = {"TM": [1, 4, 7, 24, 25], "TN": [3, 20], "TK": [18, 5]}
GRID: dict[str, Any] = {"TM": range(14), "TN": pm.divisors("n"), "TK": [4, 18]}
EVERY = ("energy", "2*energy + latency", "utilisation", "area", "accesses:DRAM", "working_set:GLB")


def spec_of(size: Any = 2000, ranks: tuple[int, int, int] = (24, 20, 18), **symbols: Any) -> pm.Spec:
    """A matmul on two memories, with symbols for the tiles of the inner one."""
    extents = dict(zip("MNK", ranks, strict=True))
    return matmul("DRAM m:TM n:TN k:TK GLB", extents, {"GLB": size}, ACTIONS, symbols)


def both(
    monkeypatch: pytest.MonkeyPatch, spec: pm.Spec, values: dict[str, Any], **options: Any
) -> pd.DataFrame:
    """The rows evaluated as arrays, after a comparison with those evaluated one by one."""
    wanted = pm.sweep(spec, values, keep="all", **options)
    monkeypatch.setattr("polymodel.sweeps.run.EXACT_ROWS", 0)
    options |= {"store": Path(options["store"]) / "again"} if "store" in options else {}
    found = pm.sweep(spec, values, keep="all", **options)
    assert any("evaluated as arrays" in n for n in found.notes)
    assert not any("evaluated as arrays" in n for n in wanted.notes)
    assert list(found.frame.columns) == list(wanted.frame.columns)
    assert len(found.frame)
    for name, cells in wanted.frame.items():
        ours = found.frame[name]
        if name in FLOATS:
            np.testing.assert_allclose(ours, cells, rtol=1e-15 * 8)
        elif name == "reason":
            assert ours.str.extract(r"^(\w*)")[0].tolist() == cells.str.extract(r"^(\w*)")[0].tolist()
        else:
            assert ours.tolist() == cells.tolist()
    return found.frame


def test_points_that_do_not_fit_and_every_kind_of_objective(monkeypatch: pytest.MonkeyPatch) -> None:
    rows = both(monkeypatch, spec_of(600), GRID, objectives=EVERY)
    assert set(rows["feasible"]) == {True, False}


def test_linked_symbols_constraints_and_architectures(monkeypatch: pytest.MonkeyPatch) -> None:
    spec = spec_of("S", S=None)
    values = {"S": [300, 20_000], "TM": [1, 2, 3, 5], "TN": "TM + 1", "TK": [2, 6]}
    rows = both(monkeypatch, spec, values, where=["TM <= TK"])
    assert (rows["TN"] == rows["TM"] + 1).all()
    assert rows["feasible"].nunique() == 2


def test_several_mappings_in_a_store_beside_points_without_forms(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    spec = without_forms(spec_of())
    assert spec.template is not None
    both(monkeypatch, spec, VALUES, mappings=[spec.template, spec_of().template], store=tmp_path)


def test_counts_beyond_int64(monkeypatch: pytest.MonkeyPatch) -> None:
    rows = both(
        monkeypatch, spec_of("inf", (2**40, 2**40, 2**10)), {"TM": [2**20, 3], "TN": [5, 2**30], "TK": [7]}
    )
    assert max(rows["reads:DRAM"]) > 2**63


def test_objectives_of_compiled_points() -> None:
    spec = spec_of(10_000)
    rows = pm.sweep(spec, VALUES, objectives=EVERY, keep="all").frame
    compiled = pm.compile(spec, EVERY)
    found = compiled(rows)
    for name in EVERY:
        np.testing.assert_allclose(found[name].astype(float), rows[name].astype(float), rtol=1e-15 * 8)
    one = compiled({n: int(rows[n].iloc[0]) for n in VALUES})
    assert one["accesses:DRAM"].tolist() == rows["accesses:DRAM"].tolist()[:1]
    with faults("unknown-choice", at="objectives[0]"):
        pm.compile(spec, ["enrgy"])
    with faults("unknown-choice", at="objectives"):
        pm.compile(spec, ["sparse_energy"])
