"""Co-design searches that are cut short: how far from the least their figures may be."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

import polymodel as pm
from polymodel.hardware import search
from polymodel.mapper.front import Front
from polymodel.mapper.lower_bounds import compulsory_peaks
from polymodel.mapper.records import Limits
from polymodel.mapper.space import einsum_spaces
from polymodel.spec.arch_schema import Tensors
from tests.hardware.small import small
from tests.hardware.test_codesign import CHAIN, changed


@pytest.mark.thin(99)
@pytest.mark.parametrize("objectives", [("energy", "latency"), ("edp", "area")], ids=str)
def test_a_search_that_is_cut_short_has_bounds(
    objectives: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of every machine and of all: no more than the least there is, which a search to the end finds."""
    spec, hardware = small(CHAIN, {"M": 8, "N": 8, "K": 8, "L": 8}), {"S": [512, 4096], "R": [1e9, 2e9]}
    exact = pm.codesign(spec, hardware, objectives=objectives)
    assert exact.gap == 0
    assert exact.bounds == {o: exact.best(o).figures[o] for o in objectives}
    searched = search.explored
    asked = [0]

    def cut(*args: Any) -> Front:
        """Each second search knows of half of its mappings, as if its time had been over."""
        front = searched(*args)
        asked[0] += 1
        if asked[0] % 2:
            return front
        short = replace(front.found, complete=False, bounds=tuple(b / 2 for b in front.found.bounds))
        return replace(front, found=short, points=front.points[1:] or front.points)

    monkeypatch.setattr(search, "explored", cut)
    found = pm.codesign(spec, hardware, objectives=objectives)
    assert not found.complete
    for one, other in zip(found.rows, exact.rows, strict=True):
        for name, bound in one.bounds.items():
            least = other.least[name]
            assert least is None or bound <= least * (1 + 1e-9)
    for o in objectives:
        least = exact.best(o).figures[o]
        assert found.bounds[o] <= least * (1 + 1e-9)
        assert found.best(o).figures[o] <= least * (1 + found.gaps[o]) * (1 + 1e-9)
    assert any("may be above the least" in n for n in found.notes)
    gaps = found.machines["gap"].tolist()
    assert 0.0 in gaps
    assert any(gap > 0 for gap in gaps)


@pytest.mark.parametrize("overlap", [True, False])
def test_a_memory_that_must_keep_tensors_has_a_least_peak(overlap: bool) -> None:
    """An element of each, and as much again where the next tile is loaded beside: some mapping has no more.
    A search that is cut short knows as much."""
    spec = small(ranks={"M": 4, "N": 2, "K": 2})
    spec = changed(spec, "GLB", tensors=Tensors(keep="A | Z", may_keep="All"))
    assert spec.raw_arch is not None
    spec = replace(spec, raw_arch=spec.raw_arch.model_copy(update={"assume_overlap": overlap}))
    objective = "working_set:GLB"
    exact = pm.explore(spec, objectives=[objective])
    spaces = einsum_spaces(spec.workload, spec.arch, Limits())
    (least,) = compulsory_peaks(spaces, ["GLB"])
    assert least == exact.best().value(objective) == (16 if overlap else 32)
    big = changed(small(ranks={"M": 256, "N": 256, "K": 256}, S=2**20), "GLB", tensors=Tensors(keep="A | Z"))
    found = pm.codesign(big, {"S": [2**18, 2**20], "F": [4, 16]}, objectives=[objective], time_limit=0.01)
    assert found.bounds[objective] >= 16
    assert found.gap < float("inf")
