"""Which machines share a search, by sizes, prices, leakage and throughputs: each keeps its own front."""

from __future__ import annotations

from dataclasses import replace
from random import Random
from typing import Any

import numpy as np
import pytest

import polymodel as pm
from tests.hardware.small import small
from tests.hardware.test_codesign import CHAIN, changed, literal_front, same, separately


@pytest.mark.parametrize("ports", ["shared", pytest.param("separate", marks=pytest.mark.slow)])
def test_throughputs_of_memories_share_a_search(ports: str) -> None:
    """A mapping takes as long as its slowest component; what leaks meanwhile costs more where memories
    are slow. Of a cascade the times of Einsums add up: its machines are searched apart."""
    spec = changed(small(leak="1.0e-3 * S"), "GLB", ports=ports)
    hardware: dict[str, Any] = {"S": [128, 512], "R": [2e7, 1e8, 1e9]}
    found = pm.codesign(spec, hardware, objectives=("energy", "latency"))
    same(found, separately([(spec, 1)], hardware, ("energy", "latency"), {}))
    assert found.searches == 1
    chain = small(CHAIN, {"M": 2, "K": 2, "N": 2, "L": 2})
    apart: dict[str, Any] = {"R": [2e7, 1e9]}
    several = pm.codesign(chain, apart, objectives=("energy", "latency"))
    same(several, separately([(chain, 1)], apart, ("energy", "latency"), {}))
    assert several.searches == 2


def with_registers(spec: pm.Spec, ports: str = "shared") -> pm.Spec:
    """The machine with a register file of Q bit/s in each PE, and multipliers of T operations per second."""
    assert spec.raw_arch is not None
    *outer, unit = spec.raw_arch.nodes
    rates = (pm.Action(name="read", throughput="Q"), pm.Action(name="write", throughput="2 * Q"))
    registers = pm.Memory(name="RF", size=64, actions=rates, ports=ports, tensors=pm.Tensors(may_keep="Z"))
    compute = pm.Action(name="compute", energy=0.3e-12, throughput="T")
    nodes = (*outer, registers, unit.model_copy(update={"actions": (compute,)}))
    raw = spec.raw_arch.model_copy(update={"nodes": nodes})
    return replace(spec, raw_arch=raw)


@pytest.mark.parametrize("ports", ["shared", pytest.param("separate", marks=pytest.mark.slow)])
def test_throughputs_of_units_and_of_memories_in_each_share_a_search(ports: str) -> None:
    """What the busiest instance moves and executes says how long it takes."""
    spec = with_registers(small(ranks={"M": 2, "N": 3, "K": 2}, F=2, Q=1e9, T=1e9, leak=1e-3), ports)
    hardware: dict[str, Any] = {"Q": [2e7, 1e9], "T": [2e6, 1e9]}
    found = pm.codesign(spec, hardware, objectives=("energy", "latency"))
    assert found.searches == 1
    for row in found.rows:  # on each machine, not only on the best ones
        bound = spec.bind(**row.machine.symbols)
        front = pm.explore(bound, objectives=["energy", "latency"])
        for name in ("energy", "latency"):
            least = min(p.value(name) for p in front)
            assert row.least[name] == pytest.approx(least, rel=1e-12, abs=0)
    both = literal_front({(p.energy, p.latency) for p in pm.explore(spec, objectives=["energy", "latency"])})
    same(found, both)  # the fastest machine is the best one


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(40))
def test_random_throughputs_share_a_search(seed: int) -> None:
    pick = Random(seed)
    ranks = {n: pick.randint(2, 6) for n in "MNK"}
    spec = small(
        ranks=ranks, F=pick.choice([1, 2, 3, 4]), Q=1e9, T=1e9, S=pick.choice([96, 200, 1024]),
        leak=pick.choice([0, 1e-3]),
    )  # fmt: skip
    spec = with_registers(spec, pick.choice(["shared", "separate"]))
    hardware: dict[str, Any] = {
        n: sorted(pick.sample([2e6, 2e7, 1e8, 1e9], pick.randint(1, 3))) for n in "QTR"
    }
    found = pm.codesign(spec, hardware, objectives=("energy", "latency"))
    mine = np.array([[p.figures["energy"], p.figures["latency"]] for p in found.points])
    every = np.array(separately([(spec, 1)], hardware, ("energy", "latency"), {}))
    for these, others in ((mine, every), (every, mine)):  # times of two machines may differ by rounding alone
        assert (these[:, None] <= others[None] * (1 + 1e-12)).all(axis=2).any(axis=0).all()
    assert found.searches == 1 or len(found.rows) < 3
    for row in found.rows:
        alone = pm.explore(spec.bind(**row.machine.symbols), objectives="latency").best().latency
        assert row.least["latency"] == pytest.approx(alone, rel=1e-12, abs=0)


def test_leakage_and_prices_of_one_way_share_a_search() -> None:
    """What leaks and what a write costs follow the size; a read costs the same everywhere."""
    hardware: dict[str, Any] = {"S": [128, 256, 512, 1024]}
    spec = small(write="1.0e-12 + 1.0e-14 * S", leak="1.0e-4 * S")
    found = pm.codesign(spec, hardware, objectives=("energy", "latency"))
    same(found, separately([(spec, 1)], hardware, ("energy", "latency"), {}))
    assert found.searches == 1
    point = found.best("energy")
    assert point.figures["energy"] == pytest.approx(point.reports[0].total_energy, rel=1e-12, abs=0)


def test_what_another_machine_beats_but_for_rounding_is_left_out() -> None:
    """Both have the same area, 0.1 * 3 or 0.3 * 1, which floats tell apart; accesses of one cost more."""
    spec = changed(small(energy="1.0e-12 * (1 + Y)", X=3, Y=0), "GLB", area="1.0e-6 * (0.1 * X + 0.3 * Y)")
    same_area = ["X + 3 * Y <= 3", "X + 3 * Y >= 3"]
    found = pm.codesign(spec, {"X": [0, 3], "Y": [0, 1]}, where=same_area, objectives=("energy", "area"))
    assert len({r.machine.area for r in found.rows}) == 2
    assert [p.machine.symbols for p in found] == [{"X": 3, "Y": 0}]


def test_prices_per_action_are_searched_apart() -> None:
    """Transfers that are filled up to whole actions cost no fixed price per bit."""
    hardware: dict[str, Any] = {"S": [128, 256, 1024]}
    spec = small(energy="1.0e-13 * sqrt(S)", rounded=24)
    found = pm.codesign(spec, hardware, objectives=("energy", "latency"))
    same(found, separately([(spec, 1)], hardware, ("energy", "latency"), {}))
    assert found.searches == 3


def each_machine_as_by_itself(spec: pm.Spec, found: pm.Codesign) -> None:
    """The least energy and latency of each machine, and how many mappings none beats there."""
    for row in found.rows:
        front = pm.explore(spec.bind(**row.machine.symbols), objectives=["energy", "latency"])
        assert row.points == len(front)
        for name in ("energy", "latency"):
            least = min(p.value(name) for p in front)
            assert row.least[name] == pytest.approx(least, rel=1e-12, abs=0)


def test_fanouts_share_a_search() -> None:
    """More leaks where there are more instances. With one instance by itself; with a share of the instances
    that must be in use, and of cascades, each by itself."""
    spec = small(leak=1.0e-4, ranks={"M": 4, "N": 3, "K": 2})
    hardware: dict[str, Any] = {"S": [128, 512], "F": [2, 3, 4]}
    found = pm.codesign(spec, hardware, objectives=("energy", "latency"))
    assert found.searches == 1
    each_machine_as_by_itself(spec, found)
    assert pm.codesign(spec, {"F": [1, 2, 3]}).searches == 2
    used: dict[str, Any] = {"min_utilisation": {"PE": {"X": 0.5}}}
    assert pm.codesign(spec, {"F": [2, 3]}, constraints=used).searches == 2
    chain = small(CHAIN, {"M": 2, "K": 2, "N": 2, "L": 2})
    assert pm.codesign(chain, {"F": [2, 4]}).searches == 2


def test_of_two_fanouts_the_one_of_most_numbers_shares_a_search() -> None:
    """Beside a working set as an objective, so that what is found is evaluated."""
    spec = small(ranks={"M": 4, "N": 4, "K": 2}, G=2)
    assert spec.raw_arch is not None
    dims = spec.raw_arch.nodes[2].spatial
    more = dims[0].model_copy(update={"name": "Y", "fanout": "G"})
    spec = changed(spec, "PE", spatial=(*dims, more))
    hardware: dict[str, Any] = {"F": [2, 4], "G": [2, 3, 4]}
    objectives = ("energy", "latency", "working_set:GLB")
    found = pm.codesign(spec, hardware, objectives=objectives)
    assert found.searches == 2
    for row in found.rows:
        front = pm.explore(spec.bind(**row.machine.symbols), objectives=objectives)
        assert row.points == len(front)
        for name in objectives:
            assert row.least[name] == pytest.approx(min(p.value(name) for p in front), rel=1e-12, abs=0)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(60))
def test_random_fanouts_share_a_search(seed: int) -> None:
    """With tiles over fanouts that divide or not, links that cost something, and throughputs that differ."""
    pick = Random(seed)
    ranks = {n: pick.randint(2, 6) for n in "MNK"}
    spec = small(ranks=ranks, leak=pick.choice([0, 1e-3]), S=pick.choice([96, 200, 1024]))
    hardware: dict[str, Any] = {"F": sorted(pick.sample([2, 3, 4, 5, 6], pick.randint(2, 4)))}
    if pick.random() < 0.5:
        hardware["R"] = [2e7, 1e9]
    assert spec.raw_arch is not None
    dims = spec.raw_arch.nodes[2].spatial
    if pick.random() < 0.4:
        link = {"energy_per_bit_hop": 1e-13, "topology": pick.choice(["bus", "mesh", "line"])}
        dims = (type(dims[0]).model_validate({**dims[0].model_dump(exclude_none=True), "link": link}),)
        spec = changed(spec, "PE", spatial=dims)
    sizes = pick.choice(["divisors", "all"]) if dims[0].link is None else "divisors"
    asked: dict[str, Any] = {"spatial_sizes": sizes}
    found = pm.codesign(spec, hardware, objectives=("energy", "latency"), constraints=asked)
    for row in found.rows:
        bound = spec.bind(**row.machine.symbols)
        front = pm.explore(bound, objectives=["energy", "latency"], constraints=asked)
        for name in ("energy", "latency"):
            least = min(p.value(name) for p in front)
            assert row.least[name] == pytest.approx(least, rel=1e-12, abs=0)
    assert found.searches < len(found.rows)
