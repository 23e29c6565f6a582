"""Closed forms of live elements: the peaks of `allocation: live` are those of a walk of all operations."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from typing import cast

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import polymodel as pm
from polymodel.analysis.enumerate import ENGINE as REFEREE
from polymodel.analysis.result import Analysis, Problem
from polymodel.analysis.symbolic import closed_counts
from polymodel.analysis.symbolic.listed_lives import may_be_most
from polymodel.errors import NotSeparable, Refused
from tests.analysis.test_agreement import SETTINGS, drawing
from tests.analysis.test_symbolic import EITHER, named
from tests.faults import refused
from tests.support.small_specs import chain, leaf, loop, memory, product, split, storage, unit


def lived(found: Analysis) -> tuple[dict[tuple[str, str], int], dict[tuple[int, str], int | None]]:
    """The joint peaks by memory and Einsum, and the most live elements of each buffet."""
    sets = {(w.component, w.einsum): w.bits for w in found.working_sets if w.measure == "live"}
    return sets, {(b.node, b.tensor): b.live for b in found.buffets}


def run_many(count: int) -> Counter[str]:
    """Compare with the referee, at numbers and with all tiles as symbols."""
    tally: Counter[str] = Counter()

    @settings(max_examples=count, **SETTINGS)
    @given(EITHER, st.sampled_from([None, None, "slide"]), st.booleans())
    def agree(problem: Problem, reuse: str | None, symbols: bool) -> None:
        tree, values = named(problem.tree) if symbols else (problem.tree, {})
        try:
            found = closed_counts(replace(problem, tree=tree), reuse=reuse, live=True).at(values)
            referee = REFEREE.analyse(problem, reuse=reuse, live=True)
        except (NotSeparable, Refused):
            return
        tally["closed"] += 1
        assert lived(found) == lived(referee), f"{drawing(problem)} reuse={reuse} {values}"

    cast(Callable[[], None], agree)()
    return tally


def test_live_peaks_agree_with_the_referee() -> None:
    assert run_many(25)["closed"] > 3


@pytest.mark.slow
def test_live_peaks_agree_with_the_referee_at_length() -> None:
    assert run_many(4_000)["closed"] > 800


@pytest.mark.parametrize("seed", range(20))
def test_branches_that_are_left_out_never_have_most(seed: int) -> None:
    """Of those with the same tree below, under any sum with factors that are not negative."""
    pick = np.random.default_rng(seed)
    parts, parents, trees = [], [], []
    for parent in range(4):
        steps = pick.integers(0, 3, (12, 4)) * (pick.random((12, 4)) < 0.5)
        parts.append(np.repeat(steps, pick.integers(1, 4, 12), axis=0).cumsum(axis=0))  # in order of time
        parents.append(np.full(len(parts[-1]), parent))
        trees.append(pick.integers(0, 2, len(parts[-1])))
    fewer, parent, tree = (np.concatenate(one) for one in (parts, parents, trees))
    rows, count = may_be_most(parent, tree, fewer)
    assert count.tolist() == np.bincount(parent[rows], minlength=4).tolist()
    assert len(rows) < len(fewer)
    for _ in range(100):
        total = fewer @ (pick.integers(0, 5, 4) * [1, -1, 1, -1])
        for own in {*zip(parent.tolist(), tree.tolist(), strict=True)}:
            mine = (parent == own[0]) & (tree == own[1])
            assert total[rows[mine[rows]]].max() == total[mine].max()


def spec_of(workload: object, *nodes: object, **symbols: int) -> pm.Spec:
    """A spec whose buffer of 60 bytes holds live elements only."""
    arch = {"nodes": [memory("DRAM", 1e-10), memory("GLB", 1e-12, 480, allocation="live"), unit()]}
    mapping = {"nodes": list(nodes)}
    return pm.load({"arch": arch, "workload": workload, "mapping": mapping, "symbols": symbols})


TILES = ("A", "B", "Z")
PRODUCT = (
    storage("DRAM", *TILES), *(loop(v, f"T{v.upper()}") for v in "mnk"), storage("GLB", *TILES), leaf("Z")
)  # fmt: skip
FUSED = (
    storage("DRAM", "A", "B", "C", "Z"), storage("GLB", "B", "C"), loop("m", "TM"),
    storage("GLB", "A", "T", "Z"), split([leaf("T")], [leaf("Z")]),
)  # fmt: skip
SIZES = {"M": 5, "N": 4, "K": 3}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("workload", "nodes", "tiles"),
    [
        (product(rank_sizes=SIZES), PRODUCT, {"TM": 5, "TN": 4, "TK": 3}),
        (chain(rank_sizes={**SIZES, "J": 2}), FUSED, {"TM": 5}),
    ],
    ids=["one Einsum", "two in a fused loop"],
)
def test_a_sweep_holds_what_evaluate_holds(
    workload: object, nodes: tuple[object, ...], tiles: dict[str, int]
) -> None:
    """Every point, by a formula: the same peaks, the same verdict on what fits, the same energy."""
    spec = spec_of(workload, *nodes, **tiles)
    grid = {name: range(1, size + 1) for name, size in tiles.items()}
    found = pm.sweep(spec, grid, objectives=["working_set:GLB", "energy"], keep="all")
    assert not found.notes
    assert len(found.frame) == found.points
    for _, row in found.frame.iloc[:: max(1, found.points // 5)].iterrows():
        point = {name: int(row[name]) for name in tiles}
        report = pm.evaluate(spec.bind(**point), engine="enumerate")
        assert row["working_set:GLB"] == report.value("working_set:GLB")
        assert bool(row["feasible"]) == report.feasible
        assert row["energy"] == pytest.approx(report.total_energy, rel=1e-12)


def test_rows_of_working_sets_stand_in_the_order_of_other_engines() -> None:
    spec = spec_of(chain(rank_sizes={**SIZES, "J": 2}), *FUSED, TM=2)
    found = [pm.evaluate(spec, engine=e).analysis.working_sets for e in ("symbolic", "exact")]
    assert [(w.einsum, w.component, w.measure) for w in found[0]] == [
        (w.einsum, w.component, w.measure) for w in found[1]
    ]


def test_what_is_not_counted_is_named() -> None:
    window = {
        "rank_sizes": {"P": 8, "R": 3, "W": 10}, "bits_per_value": {"All": 8},
        "einsums": ["O[p] = I[W=p + r] * F[r]"],
    }  # fmt: skip
    nodes = (storage("DRAM", "I", "F", "O"), loop("p", "TP"), storage("GLB", "I", "F", "O"), leaf("O"))
    spec = spec_of(window, *nodes, TP=3)  # windows are listed
    found = [pm.evaluate(spec, engine=e).analysis for e in ("symbolic", "enumerate")]
    assert lived(found[0]) == lived(found[1])
    window["einsums"] = ["O[p] = I[W=p + r] * F[r]", "U[p] = I[W=p + r] * F[r]"]  # two Einsums read them
    both = split([leaf("O")], [leaf("U")])
    nodes = (storage("DRAM", "I", "F", "O", "U"), storage("GLB", "I", "F"), loop("p", "TP"), both)
    forms = pm.closed_forms(spec_of(window, *nodes, TP=2))
    assert forms.value("accesses:DRAM") > 0
    with refused("unsupported-memory", kind=NotSeparable):
        forms.value("working_set:GLB")
