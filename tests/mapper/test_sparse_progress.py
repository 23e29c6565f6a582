"""Choices on sparse data: equal machines are searched once, what a mapping uses is told; and the progress."""

from __future__ import annotations

from typing import Any

import pytest

import polymodel as pm
from polymodel.cli.explore import ExploreProgress
from polymodel.mapper.records import Progress
from polymodel.mapper.request import read_search_request
from tests.mapper.test_sparse import Case

SKIP, GATE = {"skip": "B", "on": "A"}, {"gate": "B", "on": "A"}


def searched(written: list[Any], choices: dict[str, Any]) -> list[str]:
    """The machines that an exploration searches, if the GLB has these actions already."""
    spec = Case((1, 2, 1), {"A": 0.5}, {"GLB": {"actions": written}}).spec
    constraints = {"sparse_choices": {"GLB": choices}}
    asked = read_search_request(spec, ["sparse_energy"], constraints, None, None, 1, None)
    return [one.text for one in asked.choices]


@pytest.mark.parametrize(
    ("written", "kinds", "texts"),
    [
        ([SKIP], ["skip", "none"], ["skip B"]),
        ([SKIP], ["none", "gate"], ["skip B"]),
        ([GATE], ["none", "skip", "gate"], ["gate B", "skip B"]),
        ([], ["none", "skip", "gate"], ["B moves", "skip B", "gate B"]),
    ],
)
def test_equal_machines_are_searched_once(written: list[Any], kinds: list[str], texts: list[str]) -> None:
    """Each is described by what it does: what the architecture skips is skipped without a choice."""
    assert searched(written, {"actions": [{"of": "B", "on": "A", "kinds": kinds}]}) == [
        f"GLB: {text}" for text in texts
    ]


def test_formats_with_parameters_are_told_apart() -> None:
    formats = [{"format": "COO", "index": 3}, {"format": "COO", "index": 5}, "COO", "COO"]
    texts = searched([], {"format": {"A": formats}})
    assert texts == ["GLB: A in COO index 3", "GLB: A in COO index 5", "GLB: A in COO"]


def test_what_is_not_used_is_not_chosen() -> None:
    """A mapping has choices for the tensors that its memories keep."""
    choices = {
        "DRAM": {"format": {"A": ["CSR"]}},
        "GLB": {
            "format": {"A": ["CSR"]},
            "actions": [{"of": "B", "on": "A", "kinds": ["skip"]}],
            "fit": ["worst"],
        },
    }
    spec = Case((2, 2, 1), {"A": 0.5}, {}, glb=600).spec
    words = {"A": "A in CSR", "B": "skip B"}
    for kept in ("A", "B", "A | B", "Z"):
        rules = {"GLB": {"keep": kept, "bypass": f"All - ({kept})"}}
        front = pm.explore(
            spec,
            objectives="sparse_energy",
            time_limit=2,
            constraints={"sparse_choices": choices, "memories": rules},
        )
        here = [word for tensor, word in words.items() if tensor in kept]
        here += ["fit worst"] if "A" in kept else []
        assert front.points
        for p in front:
            assert p.chosen == "; ".join(["DRAM: A in CSR", *([f"GLB: {', '.join(here)}"] if here else [])])


@pytest.mark.parametrize("limit", [None, 3.0])
def test_progress_never_decreases(limit: float | None) -> None:
    """One share of all searches, evaluations and the local search, which grows."""
    heard: list[Progress] = []
    choices = {"GLB": {"format": {"A": ["CSR", "COO", "dense"]}}}
    front = pm.explore(
        Case((2, 4, 2), {"A": 0.25}, {}, glb=80).spec,
        objectives=("sparse_energy", "sparse_latency"),
        constraints={"sparse_choices": choices},
        progress=heard.append,
        time_limit=limit,
    )
    assert front.points
    shares = [p.share for p in heard]
    assert shares == sorted(shares)
    assert shares[0] < 0.3
    assert shares[-1] <= 1
    assert len({round(s, 3) for s in shares}) > 3
    assert all(p.of.partition(",")[0] for p in heard)
    assert {p.of.partition(", choice ")[2] for p in heard} >= {"1 of 3", "2 of 3", "3 of 3"}


def test_the_line_of_progress_grows(monkeypatch: pytest.MonkeyPatch) -> None:
    """The time left is that of the whole, from its beginning."""
    monkeypatch.setattr("polymodel.cli.progress.LINE_EVERY", 30.0)
    monkeypatch.setattr("polymodel.cli.progress.BAR_AFTER", 2.0)
    lines: list[str] = []
    times = iter([0.0, 100.0, 200.0, 400.0])
    line = ExploreProgress(lines.append, live=False, clock=lambda: next(times))
    for done, overall in ((0, 0.25), (1, 0.5), (0, 0.5)):
        line(Progress(done, 2, "evaluate, choice 1 of 2", overall=overall))
    assert [text.split()[1:] for text in lines] == [
        ["25.0", "%", "evaluate,", "choice", "1", "of", "2", "100", "s", "about", "300", "s", "left"],
        ["50.0", "%", "evaluate,", "choice", "1", "of", "2", "200", "s", "about", "200", "s", "left"],
        ["50.0", "%", "evaluate,", "choice", "1", "of", "2", "400", "s", "about", "400", "s", "left"],
    ]
