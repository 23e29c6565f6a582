"""Fronts over formats, actions and rules on what fits, against all mappings of all combinations."""

from __future__ import annotations

from itertools import product
from random import Random
from typing import Any

import numpy as np
import pytest

import polymodel as pm
from polymodel.mapping.looptree import StorageNode
from tests.faults import faults
from tests.mapper.test_sparse import BOTH, COO, Case, brute_front, figures_of, mappings, trees
from tests.seeds import seeds

SIZES = [(2, 1, 1), (1, 2, 1), (1, 2, 2), (2, 2, 1), (1, 4, 1)]
FORMATS: list[Any] = [COO, "CSR", ["U", "CP"], "dense"]


def drawn(seed: int) -> tuple[Case, dict[str, Any], list[dict[str, Any]]]:
    """A case, what is chosen from, and the rules of every combination, written out one by one."""
    pick = Random(seed)
    forms = pick.sample(FORMATS, pick.choice([1, 2]))
    kinds = pick.sample(["skip", "gate", "none"], pick.choice([1, 2]))
    fits = pick.sample(["expected", "worst", {"probability": 0.7}], pick.choice([0, 0, 2]))
    glb: dict[str, Any] = {
        "format": {"A": forms}, "actions": [{"of": "B", "on": "A", "kinds": kinds}], "fit": fits,
    }  # fmt: skip
    choices: dict[str, Any] = {"GLB": glb}
    units = pick.sample(["skip", "none"], pick.choice([0, 2]))
    if units:
        choices["MAC"] = {"actions": [{"of": "compute", "on": ["A"], "kinds": units}]}
    every = []
    for form, kind, fit, unit in product(forms, kinds, fits or ["expected"], units or ["none"]):
        rules: dict[str, Any] = {"GLB": {"format": {"A": form}, "fit": fit}}
        if kind != "none":
            rules["GLB"]["actions"] = [{kind: "B", "on": "A"}]
        if unit != "none":
            rules["MAC"] = {"actions": [{unit: "compute", "on": "A"}]}
        every.append(rules)
    densities = {"A": pick.choice([0.25, 0.5])}
    return Case(pick.choice(SIZES), densities, {}, glb=pick.choice([32, 48, 80])), choices, every


@pytest.mark.parametrize("seed", seeds(1, [4, 0, 1, 2, 3, *range(5, 50)]))
def test_the_front_is_one_of_all_combinations(seed: int) -> None:
    case, choices, combinations = drawn(seed)
    front = pm.explore(case.spec, objectives=BOTH, constraints={"sparse_choices": choices})
    some = 5 if seed == 4 else 200
    every, whole = [], True
    for rules in combinations:
        spec = Case(case.sizes, case.densities, rules, glb=case.glb).spec
        whole &= len(trees(spec)) <= some
        every += [(s.total_energy, s.total_latency) for s in mappings(spec, some)]
    assert front.sparse is not None
    ours, factor = [figures_of(p) for p in front], front.sparse.factor * (1 + 1e-9)
    for true in every:
        assert any(all(x <= factor * t for x, t in zip(p, true, strict=True)) for p in ours)
    for p in front:
        again = pm.evaluate(p.spec).sparse
        assert figures_of(p) == (again.total_energy, again.total_latency)
        assert again.feasible
        nodes = [n for _, n, _ in p.mapping.walk() if isinstance(n, StorageNode) and n.component == "GLB"]
        assert p.chosen.startswith("GLB: A in ") == any("A" in n.tensors for n in nodes)
    if whole and factor < 1 + 1e-6:
        best = brute_front(*(np.array(column) for column in zip(*every, strict=True)))
        assert ours == [pytest.approx(p, rel=1e-9) for p in best]


@pytest.mark.slow
def test_what_is_shown() -> None:
    """Each point names its choice, and its spec has it."""
    choices = {
        "GLB": {"format": {"A": [COO, "dense"]}},
        "MAC": {"actions": [{"of": "compute", "kinds": ["skip"]}]},
    }
    front = pm.explore(
        Case((1, 2, 1), {"A": 0.5}, {}).spec, objectives=BOTH, constraints={"sparse_choices": choices}
    )
    assert list(front.frame["chosen"]) == [p.chosen for p in front]
    assert all(p.chosen.endswith("MAC: skip compute") for p in front)
    assert all(p.spec.arch["MAC"].sparse.actions for p in front)
    assert "MAC: skip compute" in str(front)


def test_combinations_that_time_was_over_for() -> None:
    """They are told, and nothing is said of how near their mappings may be."""
    choices = {"GLB": {"format": {"A": [COO, "CSR", "dense"]}}}
    front = pm.explore(
        Case((1, 2, 1), {"A": 0.5}, {}).spec, objectives=BOTH, time_limit=1e-6,
        constraints={"sparse_choices": choices},
    )  # fmt: skip
    assert not front.complete
    assert "2 of 3 combinations of sparse_choices" in front.found.unsearched
    assert not front.bounds


@pytest.mark.parametrize(
    ("choices", "objectives", "code", "at", "named"),
    [
        ({"GLBB": {}}, BOTH, "unknown-name", "constraints.sparse_choices.GLBB", "GLB"),
        (
            {"GLB": {"format": {"A": ["CSRR"]}}},
            BOTH,
            "unknown-choice",
            "constraints.sparse_choices.GLB.format.A",
            "",
        ),
        ({"GLB": {"format": {"A": []}}}, BOTH, "missing-argument", "constraints.sparse_choices", ""),
        (
            {"GLB": {"actions": [{"of": "B", "on": "A", "kinds": ["skp"]}]}},
            BOTH,
            "unknown-choice",
            "constraints.sparse_choices.GLB.actions[0].kinds[0]",
            "",
        ),
        ({"GLB": {"fit": ["tight"]}}, BOTH, "unknown-choice", "constraints.sparse_choices.GLB.fit", ""),
        (
            {"GLB": {"fit": [{"probability": p / 100} for p in range(1, 66)]}},
            BOTH,
            "too-large",
            "constraints.sparse_choices",
            "",
        ),
        (
            {"GLB": {"format": {"A": ["CSR"]}}},
            ("energy",),
            "conflicting-arguments",
            "constraints.sparse_choices",
            "",
        ),
    ],
)
def test_wrong_choices(
    choices: dict[str, Any], objectives: tuple[str, ...], code: str, at: str, named: str
) -> None:
    with faults(code, *named.split(), at=at):
        pm.explore(
            Case((1, 2, 1), {"A": 0.5}, {}).spec,
            objectives=objectives,
            constraints={"sparse_choices": choices},
        )
