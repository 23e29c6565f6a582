"""Symbols of a saved mapping replace what workload and architecture declare."""

from __future__ import annotations

from itertools import permutations
from pathlib import Path

import pytest

import polymodel as pm
from tests.faults import every_fault, faults
from tests.sweep.test_symbols import nodes, spec


def test_a_saved_winner_loads_back_beside_declared_symbols(tmp_path: Path) -> None:
    from tests.sweep.test_symbols import ARCH

    found = pm.sweep(spec(), {"R": [8.0e8, 2.0e9], "TM": [2, 4]}, objectives=("latency", "energy"))
    best = found.best()
    problem, mapping = tmp_path / "problem.yaml", tmp_path / "best.yaml"
    problem.write_text(ARCH, encoding="utf-8")
    mapping.write_text(found.mapping_yaml(best), encoding="utf-8")
    for sources in permutations((problem, mapping)):
        loaded = pm.load(*sources)
        assert float(str(loaded.symbols["R"])) == best["R"] != 1.0e9
        report = pm.evaluate(loaded)
        assert report.total_latency == pytest.approx(best["latency"], rel=1e-12)
        assert [n for n in report.notes if "symbol R is" in n]
        assert not [n for n in pm.evaluate(loaded.bind(R=1.0e9)).notes if "symbol R is" in n]


def test_two_declarations_still_contradict() -> None:
    with faults("duplicate-name", at="symbols.S"):
        pm.load({"symbols": {"S": 1}}, {"symbols": {"S": 2}})
    saved = {"symbols": {"S": 1}, "mapping": {"nodes": nodes()}}
    with every_fault(("duplicate-name", "symbols.S"), ("duplicate-name", "mapping")):
        pm.load(saved, {**saved, "symbols": {"S": 2}})
