"""Co-design searches that are cut short, or bound working sets: how far from the least they may be."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import polymodel as pm
from polymodel.errors import TimeUp
from polymodel.hardware import points, search
from polymodel.mapper.front import Front
from polymodel.mapper.lower_bounds import compulsory_peaks
from polymodel.mapper.records import Limits
from polymodel.mapper.space import einsum_spaces
from polymodel.spec.arch_schema import Tensors
from tests.hardware.small import small
from tests.hardware.test_codesign import CHAIN, changed


@pytest.mark.slow
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
    assert all(name in _undecided(found) for name in _better(found))
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


def _undecided(found: pm.Codesign) -> str:
    return " ".join(n for n in found.notes if "is not decided" in n)


def _better(found: pm.Codesign) -> list[str]:
    """Machines that may have less than the best one here, by their bounds alone."""
    return [
        row.machine.name
        for o in found.objectives
        for row in found.rows
        if not row.complete
        and row.machine.name != found.best(o).machine.name
        and row.bounds[o] < found.best(o).figures[o]
    ]


def test_machines_of_an_unfinished_search_are_not_ranked(monkeypatch: pytest.MonkeyPatch) -> None:
    """The larger memory costs more with each mapping, but its bound is below the least of the smaller one."""
    spec = small(energy="1.0e-15 * S")
    searched = search.explored

    def cut(*args: Any) -> Front:
        front = searched(*args)
        return replace(front, found=replace(front.found, complete=False, bounds=(0.0,) * 9))

    monkeypatch.setattr(search, "explored", cut)
    found = pm.codesign(spec, {"S": [512, 4096]}, objectives=["energy"])
    assert len(found) == 1
    assert "1 point on 1 of 2 machines" in repr(found)
    assert _better(found) == ["S=4096" if found[0].machine.symbols["S"] == 512 else "S=512"]
    assert _better(found)[0] in _undecided(found)
    monkeypatch.setattr(search, "explored", searched)
    exact = pm.codesign(spec, {"S": [512, 4096]}, objectives=["energy"])
    assert not _undecided(exact)


def test_a_time_limit_that_ends_in_the_evaluation_leaves_the_answer(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Tables that need evaluated mappings are left out by name, and all else is saved and on the page."""
    spec, hardware = small(CHAIN, {"M": 4, "N": 4, "K": 4, "L": 4}), {"S": [512]}
    pm.codesign(spec, hardware, objectives=["energy"], time_limit=60).save(tmp_path / "whole")

    def late(*_: object) -> None:
        raise TimeUp("the time limit is over", "allow more time")

    monkeypatch.setattr(points, "evaluate_problem", late)
    monkeypatch.setattr(points, "evaluate", late)
    found = pm.codesign(spec, hardware, objectives=["energy"], time_limit=60)
    assert "roofline is left out" in found.notes[-1]
    found.save(tmp_path / "out")
    assert "Machines and mappings" in found.to_html()
    whole, out = ({p.stem for p in (tmp_path / name).iterdir()} for name in ("whole", "out"))
    assert whole - out == {"roofline"}


def test_evaluated_mappings_are_not_evaluated_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """What the reports of a point say is what `evaluate` says of its specs."""
    found = pm.codesign(small(), {"S": [512, 4096]}, objectives=["energy", "area"])
    each = [[pm.evaluate(s) for s in p.specs] for p in found]
    monkeypatch.setattr(points, "evaluate", None)
    for point, reports in zip(found, each, strict=True):
        for mine, other in zip(point.reports, reports, strict=True):
            assert mine.to_csv() == other.to_csv()
            assert (mine.spec, mine.names) == (other.spec, other.names)


@pytest.mark.parametrize("again", [False, True])
def test_ctrl_c_ends_with_the_best_so_far(again: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """The searches after it have no time; at the next Ctrl-C there is no answer."""
    searched, limits = search.explored, []

    def pressed(spec: pm.Spec, checked: Any, *rest: Any) -> Front:
        front = searched(spec, checked, *rest)
        limits.append(checked.request.time_limit)
        short = replace(front.found, complete=False, bounds=(0.0,) * 9)
        return replace(front, found=short, interrupted=again or len(limits) == 1)

    monkeypatch.setattr(search, "explored", pressed)
    spec, hardware = small(), {"S": [512, 1024]}
    if again:
        with pytest.raises(KeyboardInterrupt):
            pm.codesign(spec, hardware, eps=0.1, objectives=["energy"])
        return
    found = pm.codesign(spec, hardware, eps=0.1, objectives=["energy"])
    assert limits == [None, 0.1]
    assert found.interrupted
    assert len(found) == 1
    assert any(n.startswith("interrupted") for n in found.notes)


def test_searches_that_are_cut_short_share_what_is_left_of_the_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """The first of two has half of the time at first, and all that the second one leaves; a search that goes
    on keeps the mappings and the bounds that it had."""
    searched, limits = search.explored, []

    def cut(spec: pm.Spec, checked: Any, *rest: Any) -> Front:
        front = searched(spec, checked, *rest)
        limits.append(checked.request.time_limit)
        if len(limits) in (1, 3):
            known = (0.0,) * len(front.found.bounds) if len(limits) > 1 else front.found.bounds
            points = front.points if len(limits) == 1 else ()
            short = replace(front.found, complete=False, bounds=known)
            return replace(front, found=short, points=points)
        return front

    monkeypatch.setattr(search, "explored", cut)
    found = pm.codesign(small(), {"S": [512, 1024]}, eps=0.1, objectives=["energy"], time_limit=60)
    assert len(limits) == 4
    assert limits[0] < 30 < 50 < limits[1]
    assert limits[2] > 50 < limits[3]
    assert found.complete
    whole = pm.codesign(small(), {"S": [512, 1024]}, eps=0.1, objectives=["energy"])
    assert found.front.to_csv() == whole.front.to_csv()


def test_a_search_that_goes_on_keeps_what_it_had() -> None:
    def answer(figures: list[float], mappings: Any, bound: float) -> search.Answered:
        return search.Answered({"energy": np.array(figures)}, mappings, False, "", {"energy": bound})

    few, more = answer([2.0, 3.0], ("b", "c"), 1.0), answer([1.5], ("a",), 0.5)
    both = few.with_more(more, "energy")
    assert both.mappings == ("a", "b", "c")
    assert both.figures["energy"].tolist() == [1.5, 2.0, 3.0]
    assert both.bounds == {"energy": 1.0}
    whole = replace(more, complete=True)
    assert few.with_more(whole, "energy") is whole


def test_mappings_of_other_machines_serve_where_a_search_was_cut_short(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Prices per action are searched apart. The search of the largest memory ends without a mapping, and has
    those of the smaller ones; the others are as if nothing had been cut short."""
    spec = small(ranks={"M": 4, "N": 4, "K": 4}, energy="1.0e-13 * sqrt(S)", rounded=24)
    hardware = {"S": [128, 256, 512]}
    exact = pm.codesign(spec, hardware, objectives=["energy"])
    searched = search.explored

    def cut(one: pm.Spec, *rest: Any) -> Front:
        front = searched(one, *rest)
        if one.arch["GLB"].size_bits < 512:
            return front
        short = replace(front.found, complete=False, bounds=(0.0,) * len(front.found.bounds))
        return replace(front, found=short, points=())

    monkeypatch.setattr(search, "explored", cut)
    monkeypatch.setattr(search, "UNUSED", 1.0)  # the search that was cut short does not go on
    found = pm.codesign(spec, hardware, objectives=["energy"], time_limit=60)
    assert [r.least for r in found.rows[:2]] == [r.least for r in exact.rows[:2]]
    *smaller, largest = found.rows
    assert not largest.complete
    bound = (row.machine.layers[0] for row in smaller)
    best = (pm.explore(one, objectives=["energy"]).best() for one in bound)
    each = [pm.evaluate(spec.bind(S=512).with_mapping(p.mapping)).total_energy for p in best]
    assert largest.least["energy"] == pytest.approx(min(each), rel=1e-12, abs=0)
    order = search.SearchTask(spec, ("energy",), ("energy",), {"max_fused_loops": 0}, 0, None, True)
    tree = pm.explore(spec, objectives=["energy"]).best().mapping
    known = search.Answered({"energy": np.zeros(0)}, (), False, "", {}, late=True)
    tried = search._tried(order, tree, known)
    assert tried is not None
    assert tried.figures["energy"].tolist() == [pm.evaluate(spec.with_mapping(tree)).total_energy]
    held = next(n.tensors[0] for n in tree.nodes if getattr(n, "component", "") == "GLB")
    barred = replace(order, constraints={"memories": {"GLB": {"bypass": held}}})
    assert search._tried(barred, tree, known) is None
    assert search._tried(replace(order, spec=spec.bind(S=8)), tree, known) is None


def test_machines_without_a_point_say_why() -> None:
    """An area above its limit is no matter of mappings; a search that was cut short proves nothing."""
    nothing = pm.codesign(small(), {"S": [128, 256]}, where=["S >= 300"])
    assert not nothing.rows
    found = pm.codesign(small(), {"S": [128, 256]}, objectives=["energy"], limits=["area <= 4e-10"])
    small_one, large_one = (r.reason for r in found.rows)
    assert small_one == ""
    assert large_one == "its area is 0.000456 mm^2, and the limit 0.0004 mm^2"
    none = pm.codesign(small(), {"S": [128, 256]}, objectives=["energy"], limits=["area <= 1e-12"])
    assert any(n.startswith("why there is no point: S=128: its area") for n in none.notes)


def test_workers_may_be_threads() -> None:
    """They receive no signals, and have no flag to look at."""
    joblib = pytest.importorskip("joblib")
    spec, hardware = small(ranks={"M": 2, "N": 2, "K": 2}, rounded=24), {"S": [128, 256]}
    with joblib.parallel_config("threading"):
        found = pm.codesign(spec, hardware, objectives=["energy"], workers=2)
    assert found.front.to_csv() == pm.codesign(spec, hardware, objectives=["energy"]).front.to_csv()


def test_a_front_over_live_buffers_is_exact_with_working_sets_bounded_from_above() -> None:
    moves = [{"name": name, "energy": 1e-12} for name in ("read", "write")]
    buffer: dict[str, Any] = {"type": "Memory", "name": "GLB", "size": "S", "tensors": {"may_keep": "All"}}
    memory = {"type": "Memory", "name": "DRAM", "tensors": {"keep": "All"}, "actions": moves}
    work = {"rank_sizes": {"P": 4, "R": 2}, "bits_per_value": {"All": 8}, "einsums": ["O[p] = I[p] * F[r]"]}
    found = [
        pm.codesign(
            pm.load(
                {
                    "symbols": {"S": 56},
                    "arch": {
                        "nodes": [memory, {**buffer, "allocation": kind}, {"type": "Compute", "name": "MAC"}]
                    },
                    "workload": work,
                }
            ),
            {"S": [24, 56]},
            objectives="energy",
        )
        for kind in ("live", "tile")
    ]
    loose = "with working sets bounded from above (GLB has `allocation: live`)"
    assert [loose in str(f) for f in found] == [True, False]
    assert "the front is exact over the machines given" in str(found[1])
