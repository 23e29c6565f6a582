"""What is handed on further inside than the first memory is searched last, as far as it may be part of better
whole mappings; what lies below a cut is combined once for all origins of operands."""

from __future__ import annotations

import importlib
import random
from dataclasses import replace

import numpy as np
import pytest

from polymodel.mapper.budget import Tally
from polymodel.mapper.full_mappings import rules_of
from polymodel.mapper.join import JoinRules
from polymodel.mapper.records import Limits, Request
from polymodel.mapper.regions import inner_regions, origins
from polymodel.mapper.space import einsum_spaces
from tests.mapper.test_completion_bounds import LONG
from tests.mapper.test_search import ATTENTION, CHAIN, front, spec_of
from tests.seeds import seeds

THREE = ("energy", "latency", "buffer")
search = importlib.import_module("polymodel.mapper.search")


def some_case(pick: random.Random) -> tuple[list[str], dict[str, int], int, int]:
    einsums = pick.choice([CHAIN, LONG, ATTENTION])
    sizes = {r: pick.choice([2, 4, 6]) for r in "MNKPQEF" if any(r.lower() in e for e in einsums)}
    return einsums, sizes, pick.choice([160, 400, 900]), pick.choice([48, 100, 300])


@pytest.mark.slow
@pytest.mark.parametrize("seed", seeds(1, [2, 0, 1, *range(3, 12)]))
def test_searching_exchanges_in_the_first_memory_first_loses_no_point(
    seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    pick = random.Random(seed)
    spec = spec_of(*some_case(pick), [])
    limits = Limits(max_fused_loops=pick.choice([1, 2]))
    objectives = pick.choice([("energy",), ("energy", "latency"), ("energy", "buffer"), THREE])
    apart = front(spec, objectives, limits)
    monkeypatch.setattr(search, "_exchanged_outside", lambda spaces, request: [])
    at_once = front(spec, objectives, limits)
    assert apart.shape == at_once.shape
    np.testing.assert_allclose(apart, at_once, rtol=1e-12)


@pytest.mark.slow
@pytest.mark.parametrize("seed", seeds(1, [2, 0, 1, 3]))
def test_they_hand_on_in_the_registers(seed: int) -> None:
    """Else the test before would show nothing."""
    pick = random.Random(seed)
    spec = spec_of(*some_case(pick), [])
    limits = Limits(max_fused_loops=pick.choice([1, 2]))
    every = front(spec, ("energy",), limits)
    outside = front(spec, ("energy",), replace(limits, exchange=frozenset({"GLB"})))
    assert len(every)
    assert not len(outside) or every[0, 0] < outside[0, 0] * (1 - 1e-9)


@pytest.mark.parametrize("seed", seeds(1, range(4)))
def test_origins_searched_at_once_are_those_searched_one_by_one(seed: int) -> None:
    pick = random.Random(30 + seed)
    fan = {"name": "X", "fanout": pick.choice([2, 4]), "may_reuse": pick.choice(["All", "Outputs"])}
    einsums, sizes, glb, rf = some_case(pick)
    spec = spec_of(einsums, sizes, glb, rf, [fan])
    limits = Limits()
    for objectives in (("energy",), ("energy", "latency")):
        spaces = einsum_spaces(spec.workload, spec.arch, limits)
        interest = rules_of(spaces, Request(objectives, limits)).interest
        for cut in (1, 2):
            several = origins(spaces[0], cut)
            assert len(several) > 1
            joint = inner_regions(spaces[0], limits, interest, several, cut, Tally())
            for parents, mine in zip(several, joint, strict=True):
                (alone,) = inner_regions(spaces[0], limits, interest, [parents], cut, Tally())
                tables = [
                    np.unique(np.vstack([x.energy, x.rest, x.ports, x.local, x.needs]).round(9), axis=1)
                    for x in (mine, alone)
                ]
                assert tables[0].shape == tables[1].shape
                np.testing.assert_allclose(tables[0], tables[1], rtol=1e-9)


@pytest.mark.slow
@pytest.mark.parametrize("seed", seeds(1, [3, 0, 1, 2, 4, 5]))
def test_cells_at_few_joins_keep_the_promise_of_eps(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Cells of a grid at one join only, the one that the rules choose, and so wider ones."""
    pick = random.Random(60 + seed)
    spec = spec_of(*some_case(pick), [])
    limits, eps = Limits(max_fused_loops=1), 0.05
    exact = front(spec, THREE, limits)
    for name in ("full_mappings", "iterative_deepening"):
        monkeypatch.setattr(importlib.import_module(f"polymodel.mapper.{name}"), "COARSE", 1)
    near = front(spec, THREE, limits, eps)
    assert len(near) <= len(exact)
    for point in exact:
        assert (near <= point * (1 + eps) * (1 + 1e-12)).all(axis=1).any()


def test_rules_compare_by_cells_where_they_say() -> None:
    spec = spec_of(LONG, {"M": 4, "N": 4, "K": 4, "P": 4, "Q": 4}, 400, 48, [])
    request = Request(THREE, Limits(), eps=0.1)
    rules: JoinRules = rules_of(einsum_spaces(spec.workload, spec.arch, request.limits), request)
    some = replace(rules, coarse=frozenset({1}))
    assert rules.behind(0).interest.eps == some.behind(1).interest.eps > 0
    assert some.behind(0).interest.eps == 0
