"""Any point of any template costs what `evaluate` says of its LoopTree: energy, latency and space."""

from __future__ import annotations

import os
import random
from itertools import product
from typing import Any

import numpy as np
import pytest

import polymodel as pm
from polymodel.loading import Spec
from polymodel.mapper.combine import Combination, Interest
from polymodel.mapper.full_mappings import ChosenMapping, looptree
from polymodel.mapper.pmappings import separated
from polymodel.mapper.records import Limits, Sizes
from polymodel.mapper.space import EinsumSpace, einsum_spaces
from polymodel.mapper.templates import Passing, Template, families, members_of, templates
from polymodel.mapper.terms import costs
from polymodel.mapper.tile_chains import all_chains
from polymodel.mapping.resolve import LoopRule
from tests.seeds import seeds

EINSUMS = (
    "C[m,n] = A[m,k] * B[k,n]",
    "O[p,m] = I[H=p+r] * F[r,m]",
    "O[p,m] = I[H=2*p+r, c] * F[r,m,c]",
    "O[p,q,m] = I[H=p+r,W=3*q+2*s] * F[r,s,m]",
    "D[b,m] = E[b,m] * S[m]",
    "C[m,n] = A[m,k,b] * B[k,b,n]",
    "C[m,b,n,p] = A[m,b,k] * B[k,n,p]",
)


def machine(pick: random.Random) -> dict[str, Any]:
    def actions(read: float, write: float, throughput: int) -> list[dict[str, Any]]:
        return [
            {"name": "read", "energy": read, "throughput": throughput},
            {"name": "write", "energy": write, "throughput": throughput / 2},
        ]

    topology = pick.choice(["bus", "mesh", "line", "switch", "all_to_all"])
    link = {"energy_per_bit_hop": 0.5, "topology": topology, "throughput": 20} if pick.random() < 0.3 else {}
    toll = {
        "type": "Toll",
        "name": "Wire",
        "tensors": {"keep": pick.choice(["All", "Inputs", "Outputs"])},
        "actions": actions(0.25, 0.5, 40),
    }
    flags = {
        "buffering": pick.choice(["single", "double"]),
        "ports": pick.choice(["shared", "separate"]),
        "leak_power": pick.choice([0, 3]),
        "read_first": pick.random() < 0.2,
        "fill_drain_latency": pick.choice([0, 5]),
    }
    fans = [
        {
            "name": name,
            "fanout": pick.choice([1, 2, 4]),
            "may_reuse": pick.choice(["All", "Inputs", "Outputs", "Nothing"]),
            "broadcast_partials": pick.random() < 0.5,
            "multicast": pick.choice(["overlapping", "identical"]),
            **({"link": link} if link and pick.random() < 0.7 else {}),
        }
        for name in "XY"
    ]
    glb = {"type": "Memory", "name": "GLB", "size": "inf", "actions": actions(4, 5, 64), **flags}
    rf = {"type": "Memory", "name": "RF", "size": "inf", "actions": actions(1, 1.5, 32), **flags}
    pes = {"type": "Container", "name": "PE", "spatial": fans}
    wire = pick.randrange(8)
    inner = [glb, pes, rf]
    return {
        "assume_overlap": pick.random() < 0.7,
        "nodes": [
            {"type": "Memory", "name": "DRAM", "tensors": {"keep": "All"}, "actions": actions(64, 70, 16)},
            *inner[:wire],
            *([toll] if wire < 4 else []),
            *inner[wire:],
            {
                "type": "Compute",
                "name": "MAC",
                "actions": [{"name": "compute", "energy": 2, "throughput": 3}],
            },
        ],
    }


def filled(arch: dict[str, Any], pick: random.Random) -> dict[str, Any]:
    """The machine with actions of so many bits that transfers are filled up to whole ones, here and there."""
    for node in arch["nodes"]:
        for action in node.get("actions", ()) if node["type"] != "Compute" else ():
            if pick.random() < 0.5:
                action["bits_per_action"] = pick.choice([3, 12, 20, 64])
    return arch


def spec_of(pick: random.Random, sizes: Sizes, whole_actions: bool = False) -> Spec:
    text = pick.choice(EINSUMS)
    choices = [2, 3, 4, 6] if sizes == "divisors" else [3, 5, 6]
    shape = {v: f"0 <= {v} < {pick.choice(choices)}" for v in "bcmnkpqrs" if v in text}
    workload = {"iteration_space_shape": shape, "bits_per_value": {"All": 8}, "einsums": [text]}
    arch = filled(machine(pick), pick) if whole_actions else machine(pick)
    return pm.load({"workload": workload, "arch": arch})


def some_template(space: EinsumSpace, limits: Limits, pick: random.Random) -> Template:
    found = list(templates(space, limits, Passing(), 0))
    return pick.choice(found)


def compared(spec: Spec, space: EinsumSpace, template: Template, sizes: Sizes, pick: random.Random) -> bool:
    chains = all_chains(space, template, sizes)
    interest = Interest(True, True, (1, 2))
    whole = Combination(space, template, chains, costs(space, template), interest, None)
    for group in space.groups:
        whole.add(group)
    if not whole.n:
        return False
    part = whole.part(0)
    k = pick.randrange(len(part.energy))
    index = np.unravel_index(int(part.choice[k]), tuple(c.count for c in chains))
    tiles = np.array([c.tiles[:, i] for c, i in zip(chains, index, strict=True)])
    wide = np.array([c.spread[:, i] for c, i in zip(chains, index, strict=True)])
    none = np.zeros((len(chains), 0), np.int64)
    sizes = separated(space, template, tiles, wide, none)
    tree = looptree([ChosenMapping(space, template, sizes, 0)])
    report = pm.evaluate(spec.with_mapping(tree))
    assert part.energy[k] == pytest.approx(report.costs.total_energy, rel=1e-12), tree
    assert part.latency[k] == pytest.approx(report.costs.total_latency, rel=1e-12), tree
    sets = [w for w in report.analysis.working_sets if w.measure == "tile"]
    for at, memory in enumerate(("GLB", "RF")):
        peak = max((w.bits for w in sets if w.component == memory), default=0)
        assert part.local[at, k] == peak, tree
    return bool(np.any(sizes.spread > 1))


SLIDING = tuple(LoopRule("reuse", name, "reuse: [refill, slide]") for name in ("GLB", "RF"))


@pytest.mark.slow
def test_points_that_slide_cost_what_evaluate_says() -> None:
    pick, many = random.Random(5), 0
    while many < 10:
        spec = spec_of(pick, "divisors")
        limits = Limits(rules=SLIDING)
        (space,) = einsum_spaces(spec.workload, spec.arch, limits)
        template = some_template(space, limits, pick)
        if any(n.slides >= 0 for n in template.nodes):
            compared(spec, space, template, "divisors", pick)
            many += 1


@pytest.mark.thin(3)
@pytest.mark.parametrize(
    ("sizes", "whole_actions"),
    [*seeds(1, [("divisors", False), ("all", False)]), pytest.param("divisors", True)],
)
def test_points_cost_what_evaluate_says(sizes: Sizes, whole_actions: bool) -> None:
    pick, spread = random.Random(7), 0
    for _ in range(14 if whole_actions or not os.environ.get("POLYMODEL_LONG") else 50):
        spec = spec_of(pick, sizes, whole_actions)
        limits = Limits(sizes=sizes)
        (space,) = einsum_spaces(spec.workload, spec.arch, limits)
        spread += compared(spec, space, some_template(space, limits, pick), sizes, pick)
    assert spread > 1


@pytest.mark.slow
def test_families_cost_no_more_than_their_members() -> None:
    """With the same tiles, which are among theirs: so where no tiles of a family are good enough, none of a
    member are."""
    several, staying = 0, 0
    factor = LoopRule("factors", "RF", "factors: {p: 1}", frozenset("pk"))
    for text, rules in product(("O[p,m] = I[W=p+r] * F[r,m]", "Z[m] = A[m,k] * B[k]"), ((), (factor,))):
        shape = {v: f"0 <= {v} < 2" for v in "mkpr" if v in text}
        work = {"iteration_space_shape": shape, "bits_per_value": {"All": 8}, "einsums": [text]}
        spec = pm.load({"workload": work, "arch": machine(random.Random(1))})
        limits = Limits(rules=(*SLIDING, *rules))
        (space,) = einsum_spaces(spec.workload, spec.arch, limits)
        for family in random.Random(2).sample([*families(space, limits, Passing(), 0)], 8):
            least = priced(space, family)
            some = [*members_of(space, family)]
            several += len(some) > 1
            staying += any(n.stays is not None for n in family.nodes)
            for tiles, figures in (x for member in some for x in priced(space, member)):
                assert any(
                    all(a <= b * (1 + 1e-12) for a, b in zip(mine, figures, strict=True))
                    for same, mine in least
                    if same == tiles
                )
    assert several > 10
    assert staying > 3


def priced(space: EinsumSpace, template: Template) -> list[tuple[bytes, tuple[float, float]]]:
    """The tiles of all bundles at every point, with energy and latency."""
    chains = all_chains(space, template, "divisors")
    if not all(c.count for c in chains):
        return []
    whole = Combination(space, template, chains, costs(space, template), Interest(True, True, ()), None)
    for group in space.groups:
        whole.add(group)
    part = whole.part(0)
    rows = [np.concatenate([c.tiles, c.spread]).T[whole.points.index[b]] for b, c in enumerate(chains)]
    marks = (row.tobytes() for row in np.concatenate(rows, axis=1))
    return [*zip(marks, zip(part.energy.tolist(), part.latency.tolist(), strict=True), strict=True)]
