"""Dependences over a whole grid: kept at all points, at some, or at none."""

from __future__ import annotations

from typing import Any

import pytest

import polymodel as pm
from polymodel.errors import Refused, SpecError
from polymodel.sweep import pointwise
from tests.sweep.small import written

# Sums over k, by A in time and by B in space; C has no storage above the instances that sum it up.
ROW = """
arch:
  nodes:
  - !Memory {name: DRAM, actions: [{name: read, energy: 1}, {name: write, energy: 1}]}
  - !Container {name: PE, spatial: [{name: X, fanout: 8, may_reuse: All}]}
  - !Memory {name: RF, actions: [{name: read, energy: 0.1}, {name: write, energy: 0.1}]}
  - !Compute {name: MAC, actions: [{name: compute, energy: 1}]}
symbols: {A: null, B: null}
workload:
  rank_sizes: {M: 2, K: 8}
  bits_per_value: {All: 8}
  einsums: ["C[m] = A[m, k]"]
"""
NODES: list[dict[str, Any]] = [
    {"type": "Storage", "component": "DRAM", "tensors": ["A"]},
    {"type": "Temporal", "rank_variable": "k", "tile_shape": "A"},
    {"type": "Spatial", "rank_variable": "k", "tile_shape": "B", "component": "PE", "name": "X"},
    {"type": "Storage", "component": "RF", "tensors": ["C"]},
    {"type": "Compute", "einsum": "C", "component": "MAC"},
]
EVERY = {"A": list(range(1, 9)), "B": list(range(1, 9))}


def _swept(grid: dict[str, Any], where: list[str] | None = None) -> Any:
    return pm.sweep(written(ROW, NODES), grid, objectives=("energy",), keep="all", where=where or [])


def _points(swept: Any) -> set[tuple[int, int]]:
    return set(zip(swept.frame["A"], swept.frame["B"], strict=True))


def test_points_between_the_finest_and_the_coarsest_are_checked() -> None:
    """Both (1, 1) and (8, 8) run on one instance; (8, 1) sums C up in eight."""
    swept = _swept(EVERY)
    assert any("sums C up in several instances" in note for note in swept.notes)
    assert _points(swept) == {(a, a) for a in range(1, 9)}
    with pytest.raises(SpecError, match="sums C up in several instances"):
        pm.evaluate(written(ROW, NODES).bind(A=8, B=1))


def test_a_large_grid_with_broken_points_says_how_to_leave_them_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pointwise, "MOST", 20)
    with pytest.raises(Refused, match=r"break a dependence.*sums C up in several instances") as refusal:
        _swept(EVERY)
    assert "`where` over symbols of one rank variable" in refusal.value.remedy
    swept = _swept(EVERY, ["A == B"])
    assert not any("one by one" in note for note in swept.notes)
    assert _points(swept) == {(a, a) for a in range(1, 9)}


def test_a_grid_in_which_all_points_are_broken_is_an_error() -> None:
    with pytest.raises(SpecError, match="sums C up in several instances"):
        _swept({"A": [4, 8], "B": [1, 2, 3]})
