"""What is handed on further inside than the first memory is searched last, as far as it may be part of better
whole mappings; what lies below a cut is combined once for all origins of operands."""

from __future__ import annotations

import importlib
import random
import time
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import polymodel as pm
from polymodel.mapper import first_mappings, pmappings
from polymodel.mapper.budget import SearchTally
from polymodel.mapper.confirm import confirmed
from polymodel.mapper.full_mappings import rules_of
from polymodel.mapper.join import JoinRules
from polymodel.mapper.records import Limits, Request
from polymodel.mapper.regions import InnerPoints, _first_fitting, inner_regions, origins
from polymodel.mapper.space import einsum_spaces
from polymodel.pareto import undominated
from tests.mapper.test_completion_bounds import LONG
from tests.mapper.test_search import ATTENTION, CHAIN, actions, front, spec_of
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


@pytest.mark.slow
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
            joint = inner_regions(spaces[0], limits, interest, several, cut, SearchTally())
            for parents, mine in zip(several, joint, strict=True):
                (alone,) = inner_regions(spaces[0], limits, interest, [parents], cut, SearchTally())
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


WINDOW = {
    "name": "Z",
    "tensor_accesses": [
        {"name": "A", "projection": {"N": "n", "W": "p+r"}},
        {"name": "B", "projection": ["n", "r", "m"]},
        {"name": "Z", "projection": ["m", "p"], "output": True},
    ],
}


def deep_spec(pick: random.Random, several: int, held: str = "All") -> pm.Spec:
    """So many memories inside the backing storage, and an array above the innermost one. `held`: what the
    memories between the outermost and the innermost ones may hold."""
    fans = [{"name": "X", "fanout": pick.choice([2, 3]), "may_reuse": pick.choice(["All", "Inputs"])}]
    leak = pick.choice([0, 0, 30])
    sizes = [pick.choice(s) for s in ([200, 500], [80, 160], [40, 60], [16, 24])]
    names = ["GLB", "LB", "SP", "RF"][:several]
    memories = [
        {"type": "Memory", "name": name, "size": size, "actions": actions(8 / (k + 1), 64)}
        for k, (name, size) in enumerate(zip(names, [*sizes[: len(names) - 1], sizes[-1]], strict=True))
    ]
    for memory in memories[1:-1]:
        memory["tensors"] = {"may_keep": held}
    unit = {"type": "Compute", "name": "MAC", "actions": [{"name": "compute", "energy": 2, "throughput": 1}]}
    nodes = [
        {"type": "Memory", "name": "DRAM", "tensors": {"keep": "All"}, "actions": actions(64, 16)},
        {"type": "Container", "name": "Chip", "leak_power": leak},
        *memories[:-1],
        {"type": "Container", "name": "PE", "spatial": fans},
        memories[-1],
        unit,
    ]
    windowed = pick.random() < 0.5
    extents = {"M": 2, "N": 4, **({"P": 4, "R": 2, "W": 5} if windowed else {"K": pick.choice([4, 6])})}
    einsums = [WINDOW] if windowed else ["Z[m,n] = A[m,k] * B[k,n]"]
    workload = {"rank_sizes": extents, "bits_per_value": {"All": 8}, "einsums": einsums}
    return pm.load({"workload": workload, "arch": {"nodes": nodes}})


@pytest.mark.parametrize(
    ("seed", "several", "objectives", "held"),
    [
        (0, 3, ("energy",), "Outputs"),
        *(pytest.param(seed, 3, ("energy",), "All", marks=pytest.mark.slow) for seed in range(12)),
        *(pytest.param(seed, 4, ("energy",), "All", marks=pytest.mark.slow) for seed in range(2)),
        *(pytest.param(seed, 3, ("energy", "latency"), "All", marks=pytest.mark.slow) for seed in range(3)),
        *(pytest.param(seed, 3, ("edp",), "All", marks=pytest.mark.slow) for seed in range(3)),
    ],
)
def test_a_region_that_is_cut_itself_has_the_same_front(
    seed: int, several: int, objectives: tuple[str, ...], held: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The quick case has fewer templates."""
    spec = deep_spec(random.Random(seed), several, held)
    monkeypatch.setattr(first_mappings, "MANY", 0)  # whatever the size, the least energy comes first
    request = Request(objectives, Limits())
    found = search.search(spec.workload, spec.arch, request)
    for candidate in found.candidates:
        confirmed(spec, candidate)
    for module in ("regions", "search"):
        monkeypatch.setattr(f"polymodel.mapper.{module}.cut_again", lambda *_: None)
    whole = search.search(spec.workload, spec.arch, request)
    figures = [np.array([c.values for c in x.candidates]) for x in (found, whole)]
    np.testing.assert_allclose(*figures, rtol=1e-9)
    assert found.complete
    np.testing.assert_array_less(found.bounds, figures[0].min(axis=0) * (1 + 1e-9))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("seed", "objectives"),
    [
        (1, ("energy", "latency")),
        *(pytest.param(seed, ("energy",), marks=pytest.mark.slow) for seed in range(8)),
        *(pytest.param(seed, ("energy", "latency"), marks=pytest.mark.slow) for seed in range(8)),
        *(pytest.param(seed, ("edp",), marks=pytest.mark.slow) for seed in range(4)),
        *(pytest.param(seed, ("energy", "accesses:DRAM"), marks=pytest.mark.slow) for seed in range(4)),
    ],
)
def test_known_mappings_leave_fewer_points_below_a_cut_and_the_same_front(
    seed: int, objectives: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    figures, points = with_and_without(deep_spec(random.Random(seed), 2), objectives, monkeypatch)
    assert points[0] < points[1]
    np.testing.assert_allclose(*figures, rtol=1e-9)


@pytest.mark.slow
@pytest.mark.parametrize("objectives", [("energy",), ("energy", "latency"), ("edp",), THREE])
@pytest.mark.parametrize("seed", seeds(1, [0, 1, 2, *range(3, 12)]))
def test_known_mappings_of_chains_leave_the_same_front(
    seed: int, objectives: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    pick = random.Random(seed)
    fan = {"name": "X", "fanout": pick.choice([2, 4]), "may_reuse": pick.choice(["All", "Outputs"])}
    spec = spec_of(*some_case(pick), [fan] if pick.random() < 0.7 else [])
    named = tuple("working_set:GLB" if x == "buffer" else x for x in objectives)
    figures, points = with_and_without(spec, named, monkeypatch)
    assert points[0] <= points[1]
    np.testing.assert_allclose(*figures, rtol=1e-9)


def with_and_without(
    spec: pm.Spec, objectives: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> tuple[list[Any], list[int]]:
    """Fronts, and numbers of points below cuts, where known mappings bound these and where they do not."""
    monkeypatch.setattr(first_mappings, "MANY", 0)  # so that mappings are known before regions are searched
    figures, points = [], []
    inner, request = pmappings.inner_regions, Request(objectives, Limits(max_fused_loops=1))
    for bounded in (True, False):
        made: list[int] = []

        def searched(*given: Any, bounded: bool = bounded, made: list[int] = made) -> list[InnerPoints]:
            result = inner(*given) if bounded else inner(*given[:6])
            made.append(sum(len(r.energy) for r in result))
            return result

        monkeypatch.setattr(pmappings, "inner_regions", searched)
        found = search.search(spec.workload, spec.arch, request)
        assert found.complete
        figures.append(np.array([c.values for c in found.candidates]))
        assert (np.array(found.bounds) <= figures[-1].min(axis=0, initial=np.inf) * (1 + 1e-9)).all()
        points.append(sum(made))
    return figures, points


def test_points_told_apart_by_energy_are_those_that_none_beats() -> None:
    """By tables as by comparing each with each; of alike ones one stays."""
    pick = np.random.default_rng(7)
    for n in (1, 2, 40):
        energy, needs = pick.integers(0, 6, n).astype(float), pick.integers(0, 4, (3, n))
        first = _first_fitting(energy, needs)[tuple(needs)]
        kept = {(energy[i], *needs[:, i]) for i in np.flatnonzero(first == np.arange(n))}
        assert kept == {(energy[i], *needs[:, i]) for i in undominated([energy, *needs.astype(float)])}


def four_memories(size: int) -> pm.Spec:
    """A product on four memories, the innermost of which are 8 x 8."""
    levels = (("L3", 8 * 2**23, 8, 512), ("L2", 2**20, 2, 2048), ("L1", 8 * 2**10, 0.5, 4096))
    nodes: list[dict[str, Any]] = [{"type": "Memory", "name": "DRAM", "actions": actions(64, 64)}]
    nodes += [
        {"type": "Memory", "name": n, "size": bits, "actions": actions(e, x)} for n, bits, e, x in levels
    ]
    nodes[-1]["spatial"] = [{"name": d, "fanout": 8, "may_reuse": "All"} for d in "XY"]
    nodes.append({"type": "Compute", "name": "MAC", "actions": [{"name": "compute", "energy": 1}]})
    workload = {
        "rank_sizes": dict.fromkeys("MNK", size),
        "bits_per_value": {"All": 8},
        "einsums": ["Z[m, n] = A[m, k] * B[k, n]"],
    }
    return pm.load({"workload": workload, "arch": {"nodes": nodes}})


@pytest.mark.slow
def test_energy_and_latency_on_four_memories_take_seconds() -> None:
    """The least energy is found first, by cuts that it alone allows."""
    begun = time.process_time()
    found = pm.explore(four_memories(1024), time_limit=600)
    assert time.process_time() - begun < 40
    assert found.complete
    assert found.gap == 0


def test_einsums_of_equal_shape_are_searched_once_though_limits_name_them() -> None:
    einsums = ["T[m,n] = A[m,k] * B[k,n]", "U[m,n] = A[m,k] * C[k,n]", "Z[m,n] = T[m,n] * U[m,n]"]
    spec = spec_of(einsums, dict.fromkeys("MNK", 4), 400, 0, [])

    def looked_at(limits: Limits) -> set[str]:
        return {s.of for s in search.search(spec.workload, spec.arch, Request(("energy",), limits)).stages}

    units = (("T", "MAC"), ("U", "MAC"))
    assert "T, U" in looked_at(Limits(unfused=frozenset("TU"), compute=units))
    assert "T, U" not in looked_at(Limits(unfused=frozenset("T"), compute=units, max_fused_loops=0))
