"""Transfers filled up to whole actions: the front is that of all mappings, each of them evaluated."""

from __future__ import annotations

from random import Random
from typing import Any

import pytest

import polymodel as pm
from tests.faults import refused
from tests.mapper.brute_evaluated import Listed, evaluated, figures
from tests.mapper.test_windows import memory

EINSUMS = ("O[m] = I[m,c] * F[c]", "O[p] = I[W=p+r] * F[r]", "O[m,p] = I[p] * F[m]")


def filled(node: dict[str, Any], pick: Random) -> dict[str, Any]:
    """The component with actions that values of 8 bits do not fill evenly."""
    actions = [{**a, "bits_per_action": pick.choice((12, 20, 64))} for a in node["actions"]]
    return {**node, "actions": actions} if pick.random() < 0.7 else node


def spec_of(pick: Random) -> pm.Spec:
    """One Einsum on three memories, and a fanout or a toll at times."""
    text = pick.choice(EINSUMS)
    shape = {v: f"0 <= {v} < {pick.choice((2, 3, 4, 6))}" for v in "mcpr" if v in text}
    outer, inner = (
        {"may_keep": t} for t in pick.choice((("All", "Nothing"), ("I | O", "O"), ("I", "I | F"), ("F", "F")))
    )
    nodes = [
        filled(memory("DRAM", 64, "inf", 16), pick),
        filled(memory("GLB", 4, pick.choice((24, 48, 160)), 32, tensors=outer), pick),
        filled(memory("RF", 1, pick.choice((16, 48)), 64, tensors=inner), pick),
    ]
    wire = {"type": "Toll", "name": "Wire", "actions": memory("", 3, 0, 24)["actions"]}
    pes = {"type": "Container", "name": "PE", "spatial": [{"name": "X", "fanout": 2}]}
    nodes.insert(2, pick.choice((pes, filled(wire, pick), filled(wire, pick))))
    rate = {"name": "compute", "energy": 2, "throughput": 8}
    nodes.append({"type": "Compute", "name": "MAC", "actions": [rate]})
    work = {"iteration_space_shape": shape, "bits_per_value": {"All": 8}, "einsums": [text]}
    arch = {"nodes": nodes, "assume_overlap": pick.random() < 0.7}
    return pm.load({"schema_version": 1, "workload": work, "arch": arch})


def check(spec: pm.Spec) -> int:
    """Whether both fronts are the same; how many mappings there are."""
    trees = list(Listed(spec).trees())
    listed = evaluated(spec, trees)
    found = pm.explore(spec)
    assert [(p.energy, p.latency) for p in found] == [pytest.approx(x, rel=1e-9) for x in front_of(listed)]
    for p in found:
        assert figures(spec, p.mapping) == (pytest.approx(p.energy), pytest.approx(p.latency))
    return len(trees)


def front_of(listed: list[tuple[float, float]]) -> list[tuple[float, float]]:
    """Those that no other beats."""
    return _apart(sorted({x for x in listed if not any(_beats(y, x) for y in listed)}))


def _beats(one: tuple[float, float], other: tuple[float, float]) -> bool:
    better = any(a < b * (1 - 1e-9) for a, b in zip(one, other, strict=True))
    return better and all(a <= b * (1 + 1e-9) for a, b in zip(one, other, strict=True))


def _apart(points: list[tuple[float, float]]) -> list[tuple[float, float]]:
    """Without those that are another one but for rounding."""
    result: list[tuple[float, float]] = []
    for x in points:
        if not result or x != (pytest.approx(result[-1][0]), pytest.approx(result[-1][1])):
            result.append(x)
    return result


def small(pick: Random, most: int) -> pm.Spec:
    while True:
        spec = spec_of(pick)
        if 20 < Listed(spec).size() < most:
            return spec


@pytest.mark.parametrize("seed", range(2))
@pytest.mark.thin(2)
def test_the_front_is_that_of_all_mappings(seed: int) -> None:
    assert check(small(Random(seed), 200)) > 10


@pytest.mark.slow
def test_the_fronts_of_many_spaces() -> None:
    pick = Random(99)
    assert sum(check(small(pick, 400)) for _ in range(15)) > 1000


def test_what_is_not_covered_is_refused() -> None:
    glb = memory("GLB", 4, 64, 16)
    glb["actions"] = [{**a, "bits_per_action": 64} for a in glb["actions"]]
    nodes = [memory("DRAM", 64, "inf", 16), glb]
    nodes.append({"type": "Compute", "name": "MAC", "actions": [{"name": "compute", "energy": 2}]})
    work = {
        "iteration_space_shape": {"m": "0 <= m < 4"},
        "bits_per_value": {"All": 8},
        "einsums": ["O[m] = I[m]"],
        "densities": {"I": 0.5},
    }
    spec = pm.load({"schema_version": 1, "workload": work, "arch": {"nodes": nodes}})
    with refused("unsupported-rounding", "sizes"):
        pm.explore(spec, constraints={"sizes": "all"})
    with refused("unsupported-density", "bits_per_action"):
        pm.explore(spec, objectives="sparse_energy")
