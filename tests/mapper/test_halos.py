"""Chains of windows fused with halos: what is found is evaluated, and is no worse than mappings by hand."""

from __future__ import annotations

from itertools import pairwise, product
from random import Random
from typing import Any

import pytest
import yaml

import polymodel as pm
from polymodel.errors import SpecError
from polymodel.importers.onnx import import_onnx
from polymodel.loading import Spec
from polymodel.mapping.looptree import ComputeNode, Loop, LoopTree, Node, Split, StorageNode
from polymodel.reuse import Reuse
from tests.faults import faults, refused
from tests.importers.onnx_networks import Net
from tests.mapper.brute_evaluated import divisors, figures
from tests.mapper.test_windows import memory

MAC = {"type": "Compute", "name": "MAC", "actions": [{"name": "compute", "energy": 2, "throughput": 4}]}


def spec_of(size: int, taps: int, stride: int, padding: int, bits: int, layers: int) -> Spec:
    """Layers of one-dimensional convolutions, the first of which reads every `stride`-th value."""
    einsums, ranks, shape = [], {}, {}
    names = ["I", *(f"T{k}" for k in range(1, layers)), "O"]
    for k, (read, made) in enumerate(pairwise(names), 1):
        step = stride if k == 1 else 1
        low = f" - {padding}" if padding else ""
        einsums.append(f"{made}[X{k}=p{k}] = {read}[X{k - 1}={step}*p{k}+r{k}{low}] * F{k}[r{k}]")
        shape[f"r{k}"] = f"0 <= r{k} < {taps}"
    ranks[f"X{layers}"] = size
    for k in range(layers, 0, -1):
        step = stride if k == 1 else 1
        size = step * (size - 1) + taps - 2 * padding
        ranks[f"X{k - 1}"] = size
    nodes = [memory("DRAM", 64, "inf", 16), memory("GLB", 4, bits, 32), MAC]
    work = {
        "rank_sizes": ranks, "iteration_space_shape": shape, "bits_per_value": {"All": 8}, "einsums": einsums,
    }  # fmt: skip
    return pm.load({"schema_version": 1, "workload": work, "arch": {"nodes": nodes}})


def by_hand(spec: Spec) -> list[LoopTree]:
    """All layers below one loop over the last output, weights above it, under every policy and tile."""
    last = spec.workload.einsums[-1]
    handed = tuple(t for t in spec.workload.tensors if t in spec.workload.intermediates)
    weights = tuple(t for t in spec.workload.tensors if t.startswith("F"))
    variable = last.outputs[0].variables[0]
    extent = last.bound(variable)[1] + 1
    result = []
    for tile, policy, kept in product(divisors(extent)[:-1], (Reuse.SLIDE, Reuse.REFILL), (True, False)):
        above: list[Node] = [StorageNode("DRAM", ("I", *weights, "O"))]
        above += [StorageNode("GLB", weights)] if kept else []
        below = [StorageNode("GLB", ("I", *handed), policy), StorageNode("GLB", ("O",))]
        leaves = tuple((ComputeNode(e.name, "MAC"),) for e in spec.workload.einsums)
        result.append(LoopTree((*above, Loop(variable, tile), *below, Split(leaves))))
    return result


def check(spec: Spec) -> tuple[int, bool]:
    """How many mappings by hand fit, none of which is better than what is found; and whether halos help."""
    asked = {"halos": ["retained", "recomputed"]}
    found = [(p.energy, p.latency) for p in pm.explore(spec, constraints=asked)]
    plain = [(p.energy, p.latency) for p in pm.explore(spec)]

    def beaten(energy: float, latency: float, front: list[tuple[float, float]]) -> bool:
        return any(e <= energy * (1 + 1e-9) and x <= latency * (1 + 1e-9) for e, x in front)

    assert all(beaten(*p, found) for p in plain)
    many = 0
    for tree in by_hand(spec):
        try:
            cost = figures(spec, tree)
        except SpecError:
            continue
        if cost is not None:
            many += 1
            assert beaten(*cost, found)
    return many, not all(beaten(*p, plain) for p in found)


def test_two_convolutions() -> None:
    """What is found makes nothing twice, fetches nothing twice, and hands on in the buffer."""
    spec = spec_of(12, 3, 1, 0, 128, 2)
    front = pm.explore(spec, objectives="energy", constraints={"halos": "retained"})
    best = front.best()
    hand = [cost[0] for cost in (figures(spec, tree) for tree in by_hand(spec)[:1]) if cost is not None]
    assert best.fused == ("T1",)
    assert best.energy <= min(hand)
    (note,) = (n for n in front.notes if "halos" in n)
    assert "mappings of chains fused with halos were evaluated" in note


@pytest.mark.slow
@pytest.mark.parametrize("seed", [1, 2])
def test_no_mapping_by_hand_is_better(seed: int) -> None:
    pick, many, helped = Random(seed), 0, 0
    for _ in range(12):
        size, taps, layers = pick.choice((4, 6, 8, 12)), pick.choice((2, 3)), pick.choice((2, 2, 3))
        padding = pick.choice((0, 0, 1)) if taps == 3 else 0
        spec = spec_of(size, taps, pick.choice((1, 1, 2)), padding, pick.choice((64, 96, 128, 200)), layers)
        fitting, better = check(spec)
        many, helped = many + fitting, helped + better
    assert many > 30
    assert helped > 3


def test_what_is_not_covered_is_told() -> None:
    spec, asked = spec_of(4, 3, 1, 0, 96, 2), {"halos": "retained"}
    rules: dict[str, Any] = {"memories": {"GLB": {"factors": {"p1": 2}}}}
    with refused("unsupported-constraint"):
        pm.explore(spec, constraints={**asked, **rules})
    with refused("unsupported-constraint", "halos"):
        pm.mapspace(spec, asked)
    with faults("unknown-choice", at="constraints.halos[0]"):
        pm.explore(spec, constraints={"halos": ["kept"]})


@pytest.mark.slow
def test_the_front_of_vgg_e_is_fused_as_by_hand() -> None:
    """Five convolutions and two poolings: no more energy than the packaged mapping that retains halos, and no
    more traffic off chip."""
    by_hand = pm.evaluate(pm.load("fused_layer_fpga", "vgg_e_front/tiled_fused"))
    spec = pm.load("fused_layer_fpga", "vgg_e_front")
    asked = {"halos": ["retained", "recomputed"]}
    best = pm.explore(spec, objectives="energy", constraints=asked, time_limit=200).best()
    assert set(best.fused) == {"M11", "M12", "M1", "M21", "M22", "M2"}
    assert best.energy <= by_hand.value("energy")
    assert best.report.value("accesses:DRAM") <= by_hand.value("accesses:DRAM")


@pytest.mark.slow
def test_a_padded_network_from_onnx_is_fused_with_halos() -> None:
    """Maps that do not fit the buffer are handed on in it all the same, and none is made twice."""
    n = Net({"x": (1, 3, 32, 32)})
    x = n.conv(n.pool(n.conv(n.conv("x", 3, 8, 3), 8, 8, 3), 2, 2), 8, 16, 3)
    text = import_onnx(n.proto(x), bits=8).text
    fan = {"type": "Container", "name": "PE", "spatial": [{"name": "X", "fanout": 8, "may_reuse": "All"}]}
    nodes = [memory("DRAM", 64, "inf", 16), memory("GLB", 4, 6 * 1024 * 8, 64), fan, MAC]
    spec = pm.load(yaml.safe_load(text), {"arch": {"nodes": nodes}})
    plain = pm.explore(spec, objectives="energy", time_limit=60).best()
    asked = {"halos": ["retained", "recomputed"]}
    best = pm.explore(spec, objectives="energy", constraints=asked, time_limit=60).best()
    assert len(best.fused) == 3
    assert best.energy < 0.9 * plain.energy
    assert best.report.value("accesses:DRAM") < 0.5 * plain.report.value("accesses:DRAM")
