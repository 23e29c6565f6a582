"""Windows over fanouts, tolls, links, refills that wait: no mapping of the space beats what the search
finds, and `evaluate` says the same of it."""

from __future__ import annotations

from random import Random
from typing import Any

import pytest

import polymodel as pm
from polymodel.loading import Spec
from polymodel.mapper.records import Request
from polymodel.mapper.search import search
from tests.mapper.brute_evaluated import Listed, evaluated, figures, sample

EINSUMS = (
    "O[p] = I[W=p+r] * F[r]",
    "O[p,m] = I[W=2*p+r] * F[r,m]",
    "O[p] = I[W=p+2*r, c] * F[r,c]",
    "O[p,m] = I[p,c] * F[c,m]",
)


def memory(name: str, energy: float, size: float | str, rate: int, **more: Any) -> dict[str, Any]:
    actions = [{"name": a, "energy": energy, "throughput": rate} for a in ("read", "write")]
    return {"type": "Memory", "name": name, "size": size, "actions": actions, **more}


def fanouts(pick: Random, many: int) -> list[dict[str, Any]]:
    link = {"energy_per_bit_hop": 2, "throughput": 8}
    return [
        {
            "name": name,
            "fanout": pick.choice((2, 3, 4)),
            "broadcast_partials": pick.random() < 0.5,
            "multicast": pick.choice(("overlapping", "identical")),
            "may_reuse": pick.choice(("All", "All", "Inputs", "Outputs")),
            **pick.choice(
                ({}, {"link": {**link, "topology": pick.choice(("bus", "mesh", "switch", "all_to_all"))}})
            ),
        }
        for name in "XY"[:many]
    ]


def spec_of(pick: Random) -> Spec:
    """One Einsum on DRAM, a buffer and a fanout above or below it."""
    text = pick.choice(EINSUMS)
    sizes = {"p": (2, 3, 4, 6), "r": (2, 3), "m": (1, 2), "c": (1, 2)}
    shape = {v: f"0 <= {v} < {pick.choice(s)}" for v, s in sizes.items() if v in text.replace("Einsum", "")}
    buffering = pick.choice(("single", "double"))
    buffer = memory("GLB", 4, pick.choice((24, 40, 64, 160)), 32, buffering=buffering)
    pes = {"type": "Container", "name": "PE", "spatial": fanouts(pick, pick.choice((1, 1, 2)))}
    nodes = [memory("DRAM", 64, "inf", 16), *pick.choice(([buffer, pes], [pes, buffer]))]
    if pick.random() < 0.4:
        paying = {"keep": pick.choice(("All", "Inputs"))}
        actions = memory("", 3, 0, 24)["actions"]
        wire = {"type": "Toll", "name": "Wire", "tensors": paying, "actions": actions}
        nodes.insert(pick.randint(1, 3), wire)
    rate = {"name": "compute", "energy": 2, "throughput": pick.choice((1, 8))}
    nodes.append({"type": "Compute", "name": "MAC", "actions": [rate]})
    work = {"iteration_space_shape": shape, "bits_per_value": {"All": 8}, "einsums": [text]}
    arch = {"nodes": nodes, "assume_overlap": pick.random() < 0.6}
    return pm.load({"schema_version": 1, "workload": work, "arch": arch})


def check(spec: Spec, pick: Random, most: int) -> int:
    """Compare the front with up to `most` listed mappings; how many there were."""
    found = search(spec.workload, spec.arch, Request()).candidates
    mine = [(c.energy, c.latency) for c in found]
    for c in found:
        assert figures(spec, c.tree) == (pytest.approx(c.energy), pytest.approx(c.latency))
    trees = sample(spec, pick, most)
    for energy, latency in evaluated(spec, trees):
        assert any(e <= energy * (1 + 1e-9) and x <= latency * (1 + 1e-9) for e, x in mine)
    return len(trees)


@pytest.mark.slow
def test_no_drawn_mapping_is_better() -> None:
    pick = Random(3)
    assert sum(check(spec_of(pick), pick, 12) for _ in range(12)) > 100


@pytest.mark.slow
def test_no_mapping_is_better() -> None:
    pick, many = Random(5), 0
    for _ in range(300):
        spec = spec_of(pick)
        many += check(spec, pick, 10**6) if Listed(spec).size() < 400 else 0
    assert many > 10_000


def test_rows_stay_where_they_are() -> None:
    """With the outputs along one dimension and the taps along the other, instances on a diagonal share what
    they read, and nothing is read twice."""
    dims = [{"name": "X", "fanout": 4}, {"name": "Y", "fanout": 3}]
    rate = {"name": "compute", "energy": 1, "throughput": 1}
    nodes = [
        memory("DRAM", 100, "inf", 1000),
        {"type": "Container", "name": "PE", "spatial": dims},
        {"type": "Compute", "name": "MAC", "actions": [rate]},
    ]
    work = {
        "iteration_space_shape": {"p": "0 <= p < 4", "r": "0 <= r < 3"},
        "bits_per_value": {"All": 8},
        "einsums": ["O[p] = I[W=p+r] * F[r]"],
    }
    spec = pm.load({"schema_version": 1, "workload": work, "arch": {"nodes": nodes}})
    (best,) = pm.explore(spec, objectives=["energy", "latency"])
    assert best.latency == 1
    assert {t.tensor: t.reads for t in best.report.analysis.traffic} == {"I": 6, "F": 3, "O": 0}
