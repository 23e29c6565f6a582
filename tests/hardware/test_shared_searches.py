"""Which machines share a search, by sizes, prices, leakage and throughputs: each keeps its own front."""

from __future__ import annotations

from dataclasses import replace
from random import Random
from typing import Any

import numpy as np
import pytest

import polymodel as pm
from polymodel.hardware import machines
from tests.hardware.small import small
from tests.hardware.test_codesign import CHAIN, changed, literal_front, same, separately


@pytest.mark.slow
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


SMALLEST = {"M": 2, "N": 2, "K": 2}
DIAMOND = (
    "T[m, n] = A[m, k] * B[k, n]", "U[m, n] = A[m, k] * C[k, n]", "Z[m, l] = T[m, n] * U[m, n] * D[n, l]",
)  # fmt: skip


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


@pytest.mark.slow
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


@pytest.mark.slow
def test_leakage_and_prices_of_one_way_share_a_search() -> None:
    """What leaks and what a write costs follow the size; a read costs the same everywhere."""
    hardware: dict[str, Any] = {"S": [128, 256, 512, 1024]}
    spec = small(write="1.0e-12 + 1.0e-14 * S", leak="1.0e-4 * S")
    found = pm.codesign(spec, hardware, objectives=("energy", "latency"))
    same(found, separately([(spec, 1)], hardware, ("energy", "latency"), {}))
    assert found.searches == 1
    point = found.best("energy")
    assert point.figures["energy"] == pytest.approx(point.reports[0].total_energy, rel=1e-12, abs=0)


def operating_at(spec: pm.Spec, energy: str) -> pm.Spec:
    """With this energy per operation."""
    action = pm.Action(name="compute", energy=energy, throughput=1e9)
    return changed(spec, "MAC", actions=(action,))


def test_prices_of_operations_share_a_search() -> None:
    """All mappings execute as many operations."""
    layers = [(operating_at(small(E=1, ranks=r), "1.0e-13 * E"), n) for r, n in ((None, 2), (SMALLEST, 1))]
    hardware: dict[str, Any] = {"E": [1, 3, 9], "S": [128]}
    found = pm.codesign(layers, hardware, objectives=("energy", "latency"))
    assert found.searches == 2
    for row in found.rows:
        alone = pm.codesign(layers, {n: [v] for n, v in row.machine.symbols.items()}, objectives=("energy",))
        assert row.least["energy"] == pytest.approx(alone[0].figures["energy"], rel=1e-12, abs=0)


@pytest.mark.slow
def test_prices_of_operations_of_fused_layers_share_a_search() -> None:
    """Not where operations may be recomputed, or where there are several units to choose from."""
    spec = operating_at(small(CHAIN, {"M": 2, "K": 2, "N": 4, "L": 3}, E=1), "1.0e-13 * E")
    hardware: dict[str, Any] = {"E": [1, 3, 9], "S": [96, 512]}
    found = pm.codesign(spec, hardware, objectives=("energy", "latency"))
    assert found.searches == 1
    each_machine_as_by_itself(spec, found)
    halos: dict[str, Any] = {"halos": ["retained", "recomputed"]}
    apart = pm.codesign(spec, hardware, objectives=("energy", "latency"), constraints=halos)
    assert apart.searches == 3


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


def two_way(spec: pm.Spec) -> pm.Spec:
    """With a second fanout dimension Y of G instances."""
    assert spec.raw_arch is not None
    dims = spec.raw_arch.nodes[2].spatial
    return changed(spec, "PE", spatial=(*dims, dims[0].model_copy(update={"name": "Y", "fanout": "G"})))


def test_fanouts_share_a_search() -> None:
    """More leaks where there are more instances. With a share of the instances that must be in use, each by
    itself."""
    spec = small(leak=1.0e-4, ranks={"M": 4, "N": 3, "K": 2})
    hardware: dict[str, Any] = {"S": [128, 512], "F": [1, 3]}
    found = pm.codesign(spec, hardware, objectives=("energy", "latency"))
    assert found.searches == 1
    each_machine_as_by_itself(spec, found)
    used: dict[str, Any] = {"min_utilisation": {"PE": {"X": 0.5}}}
    assert pm.codesign(spec, {"F": [2, 3]}, constraints=used).searches == 2


@pytest.mark.slow
def test_fanouts_of_fused_layers_share_a_search() -> None:
    """An Einsum may use more instances than the other; of two layers one has fewer Einsums."""
    spec = small(CHAIN, {"M": 2, "K": 2, "N": 4, "L": 3}, leak=1.0e-4)
    hardware: dict[str, Any] = {"S": [96, 512], "F": [1, 4]}
    found = pm.codesign(spec, hardware, objectives=("energy", "latency"))
    assert found.searches == 1
    each_machine_as_by_itself(spec, found)
    layers = [(small(CHAIN, {"M": 2, "K": 2, "N": 2, "L": 2}), 1), (small(ranks={"M": 4, "N": 3, "K": 2}), 2)]
    several = pm.codesign(layers, {"F": [1, 2]}, objectives=("energy", "latency"))
    assert several.searches == 2
    same(several, separately(layers, {"F": [1, 2]}, ("energy", "latency"), {}))


@pytest.mark.slow
def test_two_fanouts_share_a_search() -> None:
    """Beside a working set as an objective, so that what is found is evaluated. Where no machine has the most
    instances of both, one of them is shared."""
    spec = two_way(small(ranks={"M": 4, "N": 4, "K": 2}, G=2))
    hardware: dict[str, Any] = {"F": [2, 4], "G": [1, 2, 4]}
    objectives = ("energy", "latency", "working_set:GLB")
    found = pm.codesign(spec, hardware, objectives=objectives)
    assert found.searches == 1
    for row in found.rows:
        front = pm.explore(spec.bind(**row.machine.symbols), objectives=objectives)
        assert row.points == len(front)
        for name in objectives:
            assert row.least[name] == pytest.approx(min(p.value(name) for p in front), rel=1e-12, abs=0)
    few = pm.codesign(spec, hardware, where=["F * G <= 8"], objectives=("energy", "latency"))
    assert few.searches == 2
    each_machine_as_by_itself(spec, few)


def below_a_fanout(**fields: Any) -> pm.Spec:
    """A chain on a machine with a register file in each of F PEs."""
    chain = small(CHAIN, {"M": 2, "K": 2, "N": 2, "L": 2}, Q=1e9, T=1e9)
    return changed(with_registers(chain), "RF", **fields)


@pytest.mark.parametrize(
    "spec",
    [
        pytest.param(below_a_fanout(), id="above fused loops", marks=pytest.mark.slow),
        pytest.param(changed(small(), "GLB", allocation="live"), id="live"),
        pytest.param(
            changed(
                changed(with_registers(small(Q=1e9, T=1e9)), "GLB", tensors=pm.Tensors(may_keep="A")),
                "RF", tensors=pm.Tensors(may_keep="Z"),
            ),
            id="side by side",
        ),
    ],
)  # fmt: skip
def test_one_instance_is_searched_apart_where_its_mappings_are_others(
    spec: pm.Spec, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A memory in the only instance of a fanout holds what fused loops share; one that allocates what is live
    holds less above it; and what memories above and below it hold may stand in any order. Of three memories
    that would be so as well if they shared searches, which does not pay."""
    monkeypatch.setattr(machines, "DEEP", 3)
    found = pm.codesign(spec, {"F": [1, 2, 4]}, objectives=("energy", "latency"))
    assert found.searches == 2
    each_machine_as_by_itself(spec, found)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(60))
def test_random_fanouts_share_a_search(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """With tiles over fanouts that divide or not, links that cost something, throughputs that differ,
    memories inside the fanout, and a second one."""
    monkeypatch.setattr(machines, "DEEP", 3)
    pick = Random(seed)
    ranks = {n: pick.randint(2, 6) for n in "MNK"}
    spec = small(ranks=ranks, leak=pick.choice([0, 1e-3]), S=pick.choice([96, 200, 1024]), G=2, Q=1e9, T=1e9)
    hardware: dict[str, Any] = {"F": sorted(pick.sample([1, 2, 3, 4, 5, 6], pick.randint(2, 4)))}
    if pick.random() < 0.3:
        spec = with_registers(spec, pick.choice(["shared", "separate"]))
        hardware |= pick.choice([{}, {"Q": [2e7, 1e9], "T": [1e8, 1e9]}])
    if pick.random() < 0.5:
        hardware["R"] = [2e7, 1e9]
    assert spec.raw_arch is not None
    dims = spec.raw_arch.nodes[2].spatial
    if pick.random() < 0.4:
        link = {"energy_per_bit_hop": 1e-13, "topology": pick.choice(["bus", "mesh", "line"])}
        dims = (type(dims[0]).model_validate({**dims[0].model_dump(exclude_none=True), "link": link}),)
        spec = changed(spec, "PE", spatial=dims)
    elif pick.random() < 0.5:
        spec = two_way(spec)
        hardware["G"] = pick.choice([[1, 2], [2, 3], [1, 2, 4]])
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


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(40))
def test_random_fanouts_of_fused_layers_share_a_search(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Chains of two and three, products of what two Einsums make; the front of each machine to its last
    point."""
    monkeypatch.setattr(machines, "DEEP", 3)
    pick = Random(seed)
    einsums = pick.choice([CHAIN, (*CHAIN, "Y[m, p] = Z[m, l] * D[l, p]"), DIAMOND])
    ranks = {n: pick.choice([2, 2, 3, 4]) for n in "MNKLP" if n.lower() in "".join(einsums)}
    spec = small(
        einsums, ranks, leak=pick.choice([0, 1e-3]), S=pick.choice([48, 96, 200, 1024]), G=2, Q=1e9, T=1e9
    )
    hardware: dict[str, Any] = {"F": sorted(pick.sample([1, 2, 3, 4], pick.randint(2, 3)))}
    if pick.random() < 0.4:
        spec = two_way(spec)
        hardware["G"] = [1, 2]
    elif pick.random() < 0.4:  # one PE is searched apart then
        spec, hardware["F"] = with_registers(spec), [1, 2, 4]
    if pick.random() < 0.5:
        hardware["S"] = sorted(pick.sample([40, 64, 128, 512], 2))
    found = pm.codesign(spec, hardware, objectives=("energy", "latency"))
    each_machine_as_by_itself(spec, found)
    assert found.searches < len(found.rows)
