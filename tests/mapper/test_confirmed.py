"""Points are evaluated before they are returned, and what is told where that is not so."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from dataclasses import replace
from time import monotonic

import pytest

import polymodel as pm
from polymodel import governor
from polymodel.errors import InternalError
from polymodel.mapper import confirm, search
from polymodel.mapper.records import Candidate, SearchResult
from tests.faults import faults, refused
from tests.mapper.conftest import OBJECTIVES
from tests.seeds import seeds


def _changed(found: SearchResult, **values: float) -> SearchResult:
    first: Candidate = found.candidates[0]
    return replace(found, candidates=(replace(first, **values), *found.candidates[1:]))  # type: ignore[arg-type]  # floats by name


@pytest.mark.thin(99)
@pytest.mark.parametrize("figure", ["energy", "latency"])
def test_a_search_that_disagrees_with_evaluate_is_a_bug(
    spec: pm.Spec, monkeypatch: pytest.MonkeyPatch, figure: str
) -> None:
    true = search.search

    def wrong(*arguments: object) -> SearchResult:
        found = true(*arguments)  # type: ignore[arg-type]  # handed on as they are
        first = found.candidates[0]
        return _changed(found, **{figure: getattr(first, figure) * (1 + 1e-6)})

    monkeypatch.setattr(search, "search", wrong)
    with pytest.raises(InternalError, match=f"its {figure} is") as caught:
        pm.explore(spec)
    assert "!Storage {component: DRAM" in str(caught.value)


@pytest.mark.slow
def test_a_peak_above_the_search_is_a_bug_and_one_below_is_shown(
    spec: pm.Spec, monkeypatch: pytest.MonkeyPatch
) -> None:
    true = search.search

    def shifted(bits: float) -> None:
        def higher(*arguments: object) -> SearchResult:
            found = true(*arguments)  # type: ignore[arg-type]  # handed on as they are
            peaks = tuple((m, b + bits) for m, b in found.candidates[0].buffers)
            first = replace(found.candidates[0], buffers=peaks)
            return replace(found, candidates=(first,))

        monkeypatch.setattr(search, "search", higher)

    shifted(8)
    found = pm.explore(spec, objectives=("energy", "buffer"))
    assert found[0].buffers["GLB"] == found[0].candidate.buffers[0][1] - 8
    assert "1 of these mappings hold less at their peak than the search counted" in repr(found)
    shifted(-8)
    with pytest.raises(InternalError, match="the peak of GLB is"):
        pm.explore(spec, objectives=("energy", "buffer"))


def test_points_beyond_the_first_are_evaluated_when_looked_at(
    spec: pm.Spec, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(search, "CONFIRMED", 2)
    found = pm.explore(spec, objectives=OBJECTIVES)
    assert found.frame["confirmed"].tolist()[:2] == [True, True]
    assert not found.frame["confirmed"].iloc[2:].any()
    assert f"{len(found) - 2} points have the figures of the search" in repr(found)
    assert found[3].figures.confirmed
    assert found[3].figures.energy == found[3].report.total_energy


@pytest.mark.slow
def test_processes_give_the_same_front(
    front: pm.Front, spec: pm.Spec, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(confirm, "START", 0.0)
    monkeypatch.setattr(search, "LONGEST", 600.0)  # processes may start slowly
    found = pm.explore(spec, objectives=OBJECTIVES, workers=2)
    assert [p.found for p in found] == [p.found for p in front]


@pytest.mark.slow
def test_ending_the_evaluation_in_processes_early_is_no_warning(
    front: pm.Front, spec: pm.Spec, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(confirm, "START", 0.0)
    some = [p.candidate for p in front] * 4
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        found = confirm.all_confirmed(spec, some, 2, lambda number: number < 1)
    assert len(found) == len(some)
    assert not found[-1].confirmed


def test_a_picture_labels_its_axes(front: pm.Front) -> None:
    ax = front.plot()
    assert (ax.get_xlabel(), ax.get_ylabel()) == ("energy (J)", "working_set:GLB (bit)")
    labels = [t.get_text() for t in ax.get_legend().get_texts()]
    assert any(label.startswith("fused: T1") for label in labels)
    both = front.plot("energy", "buffer", ax=front.plot("energy", "buffer"))
    shades = {tuple(points.get_facecolor()[0]) for points in both.collections}
    assert len(shades) == len(both.collections)  # fronts in one picture have colours of their own
    other = front.plot("latency", "buffer:GLB")
    assert (other.get_xlabel(), other.get_ylabel()) == ("latency (s)", "working_set:GLB (bit)")
    with faults("unknown-name", "bufer", at=""):
        front.plot("energy", "bufer")


def test_reports_are_compared_with_the_search(
    front: pm.Front, spec: pm.Spec, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also of points that are not evaluated before the front is returned, here for want of time."""
    monkeypatch.setattr(search, "LONGEST", 0.0)
    found = pm.explore(spec, objectives=OBJECTIVES)
    assert not found.frame["confirmed"].any()
    assert [p.report.total_energy for p in found] == [p.energy for p in front]
    wrong = replace(found[0], candidate=replace(found[0].candidate, energy=1.0))
    with pytest.raises(InternalError, match="its energy is"):
        wrong.report.accesses  # noqa: B018  # it is made when it is looked at


@pytest.mark.slow
def test_what_evaluate_refuses_keeps_the_figures_of_the_search(
    spec: pm.Spec, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object) -> None:
        raise pm.Refused("too many lifetimes")

    monkeypatch.setattr(confirm, "evaluate_problem", refuse)
    found = pm.explore(spec)
    assert not found[0].found.confirmed
    assert f"{len(found)} points have the figures of the search" in repr(found)
    with pytest.raises(pm.Refused, match="too many lifetimes"):
        found[0].figures  # noqa: B018  # they are counted when looked at


@pytest.mark.slow
@pytest.mark.parametrize(("m", "e"), seeds(1, [(4, 2), (8, 4)]))
def test_a_tensor_that_two_fused_einsums_read_is_no_bug(m: int, e: int) -> None:
    """Each has to store X by itself for the search to count it; told by name, with what to do."""
    sizes, text = {"M": m, "P": m, "H": 2, "E": e}, "O[h, m, e] = S[h, m, p] * X[h, p, e]"
    workload = {"rank_sizes": sizes, "bits_per_value": {"All": 8}}
    first = "S[h, m, p] = Q[h, m, e] * X[h, p, e]"
    spec = pm.load({"workload": {**workload, "einsums": [first, text]}}, "simple_two_level")
    with refused("unsupported-reuse", "S", "O", "X") as caught:
        pm.explore(spec, objectives=("energy", "buffer"))
    assert "max_fused_loops: 0" in str(caught.value)
    assert len(pm.explore(spec, objectives=("energy", "buffer"), constraints={"max_fused_loops": 0}))
    own = {"workload": {**workload, "einsums": [first, text.replace("X", "Y")]}}
    assert len(pm.explore(pm.load(own, "simple_two_level"), objectives=("energy", "buffer")))


def test_evaluation_ends_by_the_limit_that_was_asked_for(
    spec: pm.Spec, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of a command whose start took most of the time, and which has no time left once that has passed."""
    ends: list[float] = []
    true = confirm.all_confirmed

    def noted(
        base: pm.Spec,
        some: Sequence[Candidate],
        workers: int,
        done: Callable[[int], bool],
        longest: float,
        end: float,
    ) -> list[confirm.MappingFigures]:
        ends.append(end)
        return true(base, some, workers, done, longest, end=end)

    monkeypatch.setattr(search, "all_confirmed", noted)
    begun = monotonic() - 39
    with governor.searches(begun + 40):
        assert len(pm.explore(spec, objectives="energy", time_limit=40))
    assert begun + 40 < ends[0] <= begun + 42
    late = true(spec, [p.candidate for p in pm.explore(spec)], 1, lambda number: True, end=monotonic())
    assert not any(f.confirmed for f in late)
