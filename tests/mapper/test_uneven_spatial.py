"""Tiles over fanouts that need not divide: the front is that of all mappings, each evaluated."""

from __future__ import annotations

from collections.abc import Iterator
from random import Random
from typing import Any

import pytest

import polymodel as pm
from polymodel.mapping.looptree import Loop
from tests.faults import refused
from tests.mapper.brute_evaluated import UnevenlyListed, evaluated
from tests.mapper.test_windows import fanouts, memory

EINSUMS = (
    "Z[m] = A[m,k] * B[k]",
    "Z[m,n] = A[m,k] * B[k,n]",
    "O[p] = I[W=p+r] * F[r]",
    "O[p] = I[W=2*p+r, c] * F[r,c]",
)
CARRIED = (
    "S[T=t+1, m] = S[t, m] * A[t, m]",
    "S[T=t+1, m] = S[t, m] * A[m]",
    "S[T=t+1, m, n] = S[t, m, n] * A[m] * B[t, n]",
    "S[T=t+1, m] = S[t, m] + S[T=t-1, m]",
)


def spec_of(pick: Random, texts: tuple[str, ...] = EINSUMS) -> pm.Spec:
    """One Einsum on DRAM, a buffer and a fanout above or below it, or above a scratchpad."""
    text = pick.choice(texts)
    sizes = {"m": (3, 5, 7), "k": (2, 3, 5), "n": (1, 2, 3), "p": (3, 5, 6), "r": (2, 3), "c": (1, 2)}
    sizes["t"] = (3, 4)
    shape = {v: f"0 <= {v} < {pick.choice(s)}" for v, s in sizes.items() if v in text}
    dims = fanouts(pick, pick.choice((1, 1, 2)))
    for d in dims:
        d.pop("link", None) if d.get("link", {}).get("topology") in ("mesh", "all_to_all") else None
    pes = {"type": "Container", "name": "PE", "spatial": dims}
    buffer = memory("GLB", 4, pick.choice((24, 40, 64, 160)), 32, buffering=pick.choice(("single", "double")))
    pad = memory("RF", 1, pick.choice((8, 16)), 64, tensors={"may_keep": pick.choice(("Inputs", "Outputs"))})
    inner = pick.choice(([buffer, pes], [pes, buffer], [pes, pad]))
    nodes = [memory("DRAM", 64, "inf", 16), *inner]
    rate = {"name": "compute", "energy": 2, "throughput": pick.choice((1, 8))}
    nodes.append({"type": "Compute", "name": "MAC", "actions": [rate]})
    work: dict[str, Any] = {"iteration_space_shape": shape, "bits_per_value": {"All": 8}, "einsums": [text]}
    if "t" in shape:
        work |= {"rank_sizes": {"T": int(shape["t"][-1])}, "init": {"S": pick.choice((0, 1))}}
    return pm.load(
        {
            "schema_version": 1,
            "workload": work,
            "arch": {"nodes": nodes, "assume_overlap": pick.random() < 0.7},
        }
    )


def check(spec: pm.Spec, pick: Random, most: int, every: bool = False) -> int:
    """Whether none of about so many mappings beats what the search finds, and, where these are all of them,
    what it finds is as good as one of them; how many there were."""
    asked: dict[str, Any] = {"spatial_sizes": "all", "sizes": "all" if every else "divisors"}
    mine = [(p.energy, p.latency) for p in pm.explore(spec, constraints=asked)]
    whole = UnevenlyListed(spec, every)
    share = most / whole.size()
    trees = whole.trees(lambda: share >= 1 or pick.random() < share)
    listed = evaluated(spec, list(trees))
    for energy, latency in listed:
        assert any(e <= energy * (1 + 1e-9) and x <= latency * (1 + 1e-9) for e, x in mine)
    for e, x in mine if share >= 1 else ():
        assert any(e == pytest.approx(a) and x == pytest.approx(b) for a, b in listed)
    return len(listed)


def small(
    pick: Random, most: int, every: bool = False, texts: tuple[str, ...] = EINSUMS
) -> Iterator[pm.Spec]:
    """Specs with so many mappings at most."""
    while True:
        spec = spec_of(pick, texts)
        if UnevenlyListed(spec, every).size() <= most:
            yield spec


@pytest.mark.slow
@pytest.mark.parametrize(("seed", "every"), [(1, False), (2, False), (3, True)])
def test_no_mapping_is_better(seed: int, every: bool) -> None:
    pick = Random(seed)
    specs = small(pick, 700, every)
    assert sum(check(next(specs), pick, 700, every) for _ in range(30)) > 1000


def test_no_mapping_of_a_running_value_is_better() -> None:
    pick = Random(1)
    assert check(next(small(pick, 40, texts=CARRIED)), pick, 40) > 5


@pytest.mark.slow
@pytest.mark.parametrize("every", [False, True])
def test_no_mapping_of_running_values_is_better(every: bool) -> None:
    pick = Random(5)
    specs = small(pick, 400, every, CARRIED)
    assert sum(check(next(specs), pick, 400, every) for _ in range(40)) > 1000


@pytest.mark.slow
def test_no_drawn_mapping_is_better() -> None:
    pick = Random(4)
    assert sum(check(spec_of(pick), pick, 30) for _ in range(15)) > 200


def product_spec(**more: Any) -> pm.Spec:
    nodes = [
        memory("DRAM", 64, "inf", 1000),
        {"type": "Container", "name": "PE", "spatial": [{"name": n, "fanout": 4, **more} for n in "XY"]},
        {"type": "Compute", "name": "MAC", "actions": [{"name": "compute", "energy": 2, "throughput": 1}]},
    ]
    shape = {"m": "0 <= m < 7", "n": "0 <= n < 5", "k": "0 <= k < 11"}
    work = {"iteration_space_shape": shape, "bits_per_value": {"All": 8}, "einsums": [EINSUMS[1]]}
    return pm.load({"schema_version": 1, "workload": work, "arch": {"nodes": nodes}})


def test_primes_fill_a_fanout() -> None:
    """Sixteen instances take (7/4 rounded up) x (11/4 rounded up) x 5 steps."""
    spec, asked = product_spec(), {"spatial_sizes": "all"}
    assert pm.explore(spec, objectives="latency").best().latency == 7 * 5 * 11
    best = pm.explore(spec, objectives="latency", constraints=asked).best()
    assert best.latency == 2 * 5 * 3
    assert best.report.total_latency == best.latency
    used = {"min_utilisation": {"PE": {"X": "max", "Y": "max"}}}
    assert len(pm.explore(spec, objectives="energy", constraints={**asked, **used})) == 1


@pytest.mark.parametrize(("sizes", "used"), [("divisors", 2), ("all", 3)])
def test_as_many_instances_as_the_sizes_of_temporal_tiles_leave(sizes: str, used: int) -> None:
    """Of 4 values 3 instances take 2, 2 and none; a temporal tile of 3, no divisor, leaves one for each."""
    nodes = [
        memory("DRAM", 64, "inf", 16),
        {"type": "Container", "name": "PE", "spatial": [{"name": "X", "fanout": 3, "may_reuse": "All"}]},
        {"type": "Compute", "name": "MAC", "actions": [{"name": "compute", "energy": 2, "throughput": 1}]},
    ]
    work: dict[str, Any] = {"iteration_space_shape": {"p": "0 <= p < 4"}, "bits_per_value": {"All": 8}}
    work["einsums"] = ["O[p] = I[p]"]
    spec = pm.load({"schema_version": 1, "workload": work, "arch": {"nodes": nodes}})
    asked = {"sizes": sizes, "spatial_sizes": "all", "min_utilisation": {"PE": {"X": "max"}}}
    front = pm.explore(spec, objectives="energy", constraints=asked)
    assert len(front)
    left, instances = 4, 1
    for node in front.best().mapping.nodes:
        if isinstance(node, Loop):
            instances *= -(-left // int(node.tile_shape)) if node.spatial else 1
            left = int(node.tile_shape)
    assert instances == used


def test_what_is_not_covered_is_told() -> None:
    asked = {"spatial_sizes": "all"}
    link = {"topology": "mesh", "energy_per_bit_hop": 1, "throughput": 8}
    with refused("unsupported-instances", "PE.X"):
        pm.explore(product_spec(link=link), constraints=asked)
    with refused("unsupported-instances", "factors"):
        pm.explore(product_spec(), constraints={**asked, "memories": {"DRAM": {"factors": {"m": 7}}}})
    with refused("unsupported-constraint", "spatial_sizes: all"):
        pm.mapspace(product_spec(), asked)
