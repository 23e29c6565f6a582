"""Tensors that are carried forward: the front is that of all mappings, listed one by one and each of them
evaluated."""

from __future__ import annotations

from random import Random
from typing import Any

import pytest

import polymodel as pm
from tests.faults import refused
from tests.mapper.brute_evaluated import Listed, UnevenlyListed, evaluated
from tests.mapper.brute_recurrences import ListedPairs
from tests.mapper.test_accesses import machine
from tests.mapper.test_whole_actions import check
from tests.mapper.test_windows import memory

ALONE = (
    "S[P=p+1, m] = S[p, m] + A[p, m]",
    "S[P=p+1, m] = S[p, m] * A[m]",
    "S[P=p+1] = S[p] * A[p] * A[p]",
    "S[P=p+1, m, n] = S[p, m, n] * A[m] * B[p, n]",
    "S[P=p+1] = S[p] * S[p] * A[p]",
)
FAR = (  # several generations back, one or more of them
    "S[P=p+1, m] = S[p, m] + S[P=p-1, m]",
    "S[P=p+2, m] = S[p, m] + A[p, m]",
    "S[P=p+1] = S[p] * S[P=p-1] * A[p]",
    "S[P=p+1, m] = S[p, m] * S[P=p-2, m]",
    "S[P=p+3] = S[p] * A[p] * S[P=p+2] * S[p]",
)
FOLLOWED = (  # by what reads the results, and what the inner memory may hold
    (("S[P=p+1, m] = S[p, m] + A[p, m]", "Z[p, m] = S[P=p+1, m] * B[p]"), "S"),
    (("S[P=p+1, m] = S[p, m] + A[p, m]", "Z[p, m] = S[p, m] + S[P=p+1, m]"), "S"),
    (("S[P=p+1, m] = S[p, m] * A[m]", "Z[m] = S[p, m]"), "S"),
    (("S[P=p+1] = S[p] + A[p]", "Z[p, m] = S[P=p+1] * B[m]"), "S | Z"),
    (("A[p, m] = B[p] * C[m]", "S[P=p+1, m] = S[p, m] + A[p, m]"), "S | A"),
    (("S[P=p+1, m] = S[p, m] + A[p, m]", "Z[m] = S[P, m] * B[m]"), "S"),
)
DELAYED = (  # the second Einsum alone reads what is before
    (("S[P=p+1, m] = A[p, m] * B[m]", "Z[p, m] = S[p, m] + A[p, m]"), "S"),
    (("S[P=p+1] = A[p] * B[p]", "Z[p, m] = S[p] * C[m]"), "S | Z"),
    (("S[P=p+1, m] = A[p, m] * B[m]", "Z[p, m] = S[p, m] + S[P=p+1, m]"), "S"),
    (("S[P=p+1, m] = A[p, m]", "Z[m] = S[p, m]"), "S"),
)
CYCLES = (  # the first Einsum awaits what the second one makes
    (("Y[p, m] = S[p, m] * A[p, m]", "S[P=p+1, m] = Y[p, m] * B[m]"), "S | Y"),
    (("Y[p] = S[p, m]", "S[P=p+1, m] = Y[p] * B[m]"), "S"),
    (("Y[p, m] = S[p, m] * A[m]", "S[P=p+1, m] = S[p, m] + Y[p, m]"), "S | Y"),
    (("Y[p, m] = S[p, m]", "S[P=p+1, M=n] = Y[p, m] * B[n, m]"), "S"),
)
Pairs = tuple[tuple[tuple[str, str], str], ...]


def loaded(
    einsums: tuple[str, ...], sizes: dict[str, int], init: dict[str, Any], arch: dict[str, Any]
) -> pm.Spec:
    shape = {v: f"0 <= {v} < {n}" for v, n in sizes.items() if v in "".join(einsums)}
    work = {
        "iteration_space_shape": shape,
        "rank_sizes": {"P": sizes["p"]},
        "bits_per_value": {"All": 8},
        "einsums": list(einsums),
        "generational": ["P"],
        "init": init,
    }
    return pm.load({"schema_version": 1, "workload": work, "arch": arch})


def alone(pick: Random, most: int, some: tuple[str, ...] = ALONE) -> pm.Spec:
    """One Einsum that goes on from what it made, on two memories or three."""
    far = some is FAR
    while True:
        sizes = {v: pick.choice((2, 3, 4, 6)) for v in "pmn"}
        sizes["p"] = pick.choice((4, 6)) if far else sizes["p"]
        init = {"S": pick.choice((0, "identity", 1 if far else "T"))}
        spec = loaded((pick.choice(some),), sizes, init, machine(pick))
        if 20 < Listed(spec).size() < most:
            return spec


def rounded(pick: Random, most: int) -> pm.Spec:
    """One Einsum that goes on from the generation before, in memories that move whole actions."""
    while True:
        sizes = {v: pick.choice((2, 3, 4, 6)) for v in "pmn"}
        arch = machine(pick)
        for node in (n for n in arch["nodes"] if n["type"] == "Memory" and n["name"] != "DRAM"):
            per_action = pick.choice((12, 20, 24))
            node["actions"] = [{**a, "bits_per_action": per_action} for a in node["actions"]]
        init = {"S": pick.choice((0, "identity", "T"))}
        spec = loaded((pick.choice(ALONE),), sizes, init, arch)
        if 10 < Listed(spec).size() < most:
            return spec


def pair(pick: Random, most: int, some: Pairs = FOLLOWED + CYCLES + DELAYED) -> pm.Spec:
    """Two Einsums on two memories."""
    while True:
        einsums, may = pick.choice(some)
        sizes = {"p": pick.choice((2, 4)), "m": 2, "n": 2}
        rule = {"may_keep": may}
        buffer = memory("GLB", 4, pick.choice((16, 32, 40, 64)), 32, tensors=rule)
        rate = {"name": "compute", "energy": 2, "throughput": pick.choice((1, 8))}
        unit = {"type": "Compute", "name": "MAC", "actions": [rate]}
        arch = {"nodes": [memory("DRAM", 64, "inf", 16), buffer, unit]}
        spec = loaded(einsums, sizes, {"S": 0}, arch)
        if 20 < ListedPairs(spec).size() < most:
            return spec


def uneven(pick: Random, most: int) -> pm.Spec:
    """One Einsum whose tiles need not divide, on two memories."""
    while True:
        sizes = {"p": pick.choice((4, 5, 7)), "m": pick.choice((1, 2, 3)), "n": 2}
        buffer = memory("GLB", 4, pick.choice((16, 32, 40, 64)), 32)
        unit = {
            "type": "Compute",
            "name": "MAC",
            "actions": [{"name": "compute", "energy": 2, "throughput": 4}],
        }
        arch = {"nodes": [memory("DRAM", 64, "inf", 16), buffer, unit]}
        spec = loaded((pick.choice(ALONE[:3] + FAR),), sizes, {"S": 0}, arch)
        if 10 < UnevenlyListed(spec, every=True).size() < most:
            return spec


def check_pair(spec: pm.Spec) -> int:
    """Whether both fronts are the same; how many mappings there are."""
    return same_front(spec, list(ListedPairs(spec).trees()))


def check_uneven(spec: pm.Spec) -> int:
    return same_front(spec, list(UnevenlyListed(spec, every=True).trees()), "all")


def same_front(spec: pm.Spec, trees: list[pm.LoopTree], sizes: str = "divisors") -> int:
    listed = sorted(evaluated(spec, trees))
    best: list[tuple[float, float]] = []
    for energy, latency in listed:
        if not best or latency < best[-1][1] * (1 - 1e-9):
            best.append((energy, latency))
    found = [(p.energy, p.latency) for p in pm.explore(spec, constraints={"sizes": sizes})]
    assert found == [pytest.approx(x, rel=1e-9) for x in best]
    return len(listed)


@pytest.mark.slow
def test_the_front_is_that_of_all_mappings() -> None:
    assert check(alone(Random(3), 50)) > 10
    assert check(alone(Random(1), 50, FAR)) > 10
    assert check_uneven(uneven(Random(1), 40)) > 5
    assert check(rounded(Random(5), 60)) > 10
    assert check_pair(pair(Random(2), 50, FOLLOWED + CYCLES)) > 10
    assert check_pair(pair(Random(5), 110, CYCLES)) > 5


@pytest.mark.slow
def test_the_fronts_of_many_spaces() -> None:
    pick = Random(23)
    assert sum(check(alone(pick, 300)) for _ in range(40)) > 1500
    assert sum(check(alone(pick, 200, FAR)) for _ in range(40)) > 1500
    assert sum(check_uneven(uneven(pick, 250)) for _ in range(30)) > 500
    assert sum(check(rounded(pick, 300)) for _ in range(30)) > 500
    assert sum(check_pair(pair(pick, 500)) for _ in range(40)) > 1500


def test_what_carries_forward_stands_above_all_fanouts() -> None:
    """Spatial loops stand below the loop that carries the vector forward, though nothing is stored there."""
    dims = {"name": "X", "fanout": 2}
    arch = {
        "nodes": [
            memory("DRAM", 64, "inf", 16),
            memory("GLB", 4, 160, 32),
            {"type": "Container", "name": "PE", "spatial": [dims]},
            {"type": "Compute", "name": "MAC"},
        ]
    }
    einsums = ("Y[p, m] = S[p, n] * A[n, m]", "S[P=p+1, N=m] = Y[p, m]")
    spec = loaded(einsums, {"p": 2, "m": 4, "n": 4}, {"S": 0}, arch)
    (best,) = pm.explore(spec, objectives="latency")
    assert best.report.total_latency == best.latency
    assert pm.mapspace(spec).size() > 1000


@pytest.mark.parametrize("generations", [4, 64])
def test_a_memory_that_allocates_what_is_live_holds_few_generations(generations: int) -> None:
    buffer = memory("GLB", 4, 16, 32, tensors={"may_keep": "S"}, allocation="live")
    unit = {"type": "Compute", "name": "MAC"}
    arch = {"nodes": [memory("DRAM", 64, "inf", 16), buffer, unit]}
    spec = loaded(FOLLOWED[1][0], {"p": generations, "m": 2}, {"S": 0}, arch)
    best = pm.explore(spec, objectives="energy")[0]
    moved = {t.tensor for t in best.report.analysis.traffic if t.component == "DRAM"}
    assert moved == {"A", "Z"}  # the sums are handed on in a buffer of two values


def test_what_is_read_otherwise_is_refused() -> None:
    arch = {"nodes": [memory("DRAM", 64, "inf", 16), {"type": "Compute", "name": "MAC"}]}
    sizes = {"p": 4, "m": 4, "k": 4}
    for text, told in (
        ("S[P=p+1, m] = S[p, m] * A[p, k]", "carries S forward and sums up over k"),
        ("S[P=p+1, M=m] = S[p, M=k] * A[m, k]", "at several elements of a generation"),
    ):
        with pytest.raises(pm.Refused, match=told):
            pm.explore(loaded((text,), sizes, {"S": 0}, arch))
    texts = ("S[P=p+2, m] = S[p, m] + A[p, m]", "Z[p, m] = S[p, m] * B[p]")
    with refused("unsupported-recurrence", "S"):
        pm.explore(loaded(texts, sizes, {"S": 0}, arch))
    rounded = memory("GLB", 4, 64, 32)
    rounded["actions"] = [{**a, "bits_per_action": 12} for a in rounded["actions"]]
    rounding = {"nodes": [arch["nodes"][0], rounded, arch["nodes"][1]]}
    with refused("unsupported-recurrence", "bits_per_action"):
        pm.explore(loaded((FAR[0],), sizes, {"S": 1}, rounding))
