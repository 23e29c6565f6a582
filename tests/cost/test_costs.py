"""Costs against numbers that are worked out by hand, or that another tool reports for the same case."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

import polymodel as pm
from polymodel.analysis.enumerate import ENGINE
from polymodel.analysis.exact import ENGINE as EXACT
from polymodel.analysis.result import Engine, Problem
from polymodel.architecture.hierarchy import ActionCost, Component, TensorRule
from polymodel.cost.costs import costs
from polymodel.cost.records import Costs
from polymodel.mapping.looptree import Loop, LoopTree
from tests.cost.cases import chain, memory, multicast, with_component


def cost(problem: Problem) -> Costs:
    return costs(problem, ENGINE.analyse(problem))


def changed(problem: Problem, name: str, **fields: Any) -> Problem:
    return with_component(problem, name, replace(problem.hierarchy[name], **fields))


def seconds(found: Costs, einsum: str) -> dict[str, float]:
    return {t.component: t.seconds for t in found.times if t.einsum == einsum}


def total(found: Costs, component: str) -> float:
    return sum(i.energy for i in found.energy if i.component == component)


def test_fused_chain_agrees_with_the_reference_tool() -> None:
    found = cost(chain())
    assert found.total_energy == 115264
    assert found.total_latency == 352
    assert seconds(found, "E0") == {"DRAM": 36, "GLB": 101, "MAC": 192}
    assert seconds(found, "E1") == {"DRAM": 30, "GLB": 82.5, "MAC": 160}
    by_tensor = {(i.einsum, i.component, i.tensor, i.action): i.energy for i in found.energy}
    assert by_tensor["E0", "GLB", "T1", "read"] + by_tensor["E0", "GLB", "T1", "write"] == 11264
    assert by_tensor["E1", "DRAM", "T2", "write"] == 20480
    assert by_tensor["E0", "MAC", "", "compute"] == 384


def test_spatial_case_divides_latency_over_instances() -> None:
    found = cost(multicast())
    assert found.total_energy == 105600
    assert seconds(found, "E0") == {"DRAM": 80, "GLB": 46, "RF": 11.25, "MAC": 48}
    assert found.latency[0].limiting == "DRAM"
    assert [(t.instances, t.available) for t in found.times if t.component == "RF"] == [(4, 4)]


def test_counts_stay_integers_and_provenance_is_kept() -> None:
    items = cost(chain()).energy
    assert items
    assert all(type(i.count) is int for i in items)
    assert {i.provenance for i in items} == {"oracle"}


def test_leakage_is_power_times_latency_of_every_instance() -> None:
    leaky = changed(multicast(), "RF", leak_power=0.5)
    found = [i for i in cost(leaky).energy if i.action == "leak"]
    assert [(i.component, i.count, i.energy) for i in found] == [("RF", 4 * 80, 0.5 * 4 * 80)]


def test_executions_multiply_energy_and_latency_but_no_occupancy() -> None:
    once = multicast()
    einsum = replace(once.cascade["E0"], n_instances=3)
    thrice = replace(once, cascade=replace(once.cascade, einsums=(einsum,)))
    one, three = cost(once), cost(thrice)
    assert three.total_energy == 3 * one.total_energy
    assert three.total_latency == 3 * one.total_latency
    assert three.latency[0].operations == 3 * one.latency[0].operations
    assert [n.bits for n in three.needs] == [n.bits for n in one.needs]


def test_separate_ports_take_the_slower_direction() -> None:
    # E0 at GLB: 1536 + 1280 + 1536 bits read, 192 + 1536 + 384 bits written, 64 bits/s each way.
    assert seconds(cost(changed(chain(), "GLB", ports="separate")), "E0")["GLB"] == 4352 / 64


def test_fill_drain_latency_adds_once_per_execution() -> None:
    found = cost(changed(chain(), "MAC", fill_drain_latency=5.0))
    assert seconds(found, "E0")["MAC"] == 197
    assert found.total_latency == 352 + 10


def test_clock_gives_cycles() -> None:
    found = cost(changed(chain(), "MAC", clock=2.0))
    assert [t.cycles for t in found.latency] == [384, 320]
    assert [t.cycles for t in found.times if t.component == "DRAM"] == [None, None]


def test_missing_action_is_free_and_says_so() -> None:
    found = cost(changed(chain(), "GLB", actions=()))
    assert total(found, "GLB") == 0
    assert {i.provenance for i in found.energy if i.component == "GLB"} == {"default"}
    assert seconds(found, "E0")["GLB"] == 0


def test_whole_actions_that_divide_a_value_are_counted_exactly() -> None:
    actions = tuple(ActionCost(a, 1.0, bits_per_action=4) for a in ("read", "write"))
    found = cost(changed(chain(), "GLB", actions=actions))
    reads = {
        i.tensor: i.count for i in found.energy if (i.einsum, i.component, i.action) == ("E0", "GLB", "read")
    }
    assert reads == {"W0": 1536 // 4, "T1": 1280 // 4, "T0": 1536 // 4}
    assert {i.unit for i in found.energy if i.component == "GLB"} == {"action"}


def test_operands_round_up_one_by_one() -> None:
    # RF reads 16-bit C values and 8-bit A and B values with 16-bit actions; only fills move in tiles.
    wide = ActionCost("read", 1.0, bits_per_action=16)
    found = cost(changed(multicast(), "RF", actions=(wide,)))
    reads = {i.tensor: i.count for i in found.energy if (i.component, i.action) == ("RF", "read")}
    # A and B are read once per operation (192); C is read 160 times as a partial sum and 32 times to drain.
    assert reads == {"A": 192, "B": 192, "C": 192}


def test_transfers_round_up_one_by_one() -> None:
    """Per instance and visit of RF: 2 x 6 of A, 6 of B, 2 of C, each in 8-bit values except C (16 bits)."""
    wide = ActionCost("write", 1.0, 256.0, bits_per_action=40)
    found = cost(changed(multicast(), "RF", actions=(wide,)))
    writes = {i.tensor: i.count for i in found.energy if (i.component, i.action) == ("RF", "write")}
    # 4 visits in 4 instances. A: ceil(96 / 40) each, B: ceil(48 / 40); C is never filled, but written by
    # compute value by value: 192 operations of one action each.
    assert writes == {"A": 16 * 3, "B": 16 * 2, "C": 192}
    # The busiest of four equal instances writes (12 + 8 + 48) actions of 40 bits.
    assert seconds(found, "E0")["RF"] == 68 * 40 / 256


def test_multicast_rounds_once_at_the_parent() -> None:
    """One read at GLB serves four register files: in 4 visits 12 elements of A, 4 x 6 of B."""
    wide = ActionCost("read", 1.0, bits_per_action=40)
    found = cost(changed(multicast(), "GLB", actions=(wide,)))
    reads = {i.tensor: i.count for i in found.energy if (i.component, i.action) == ("GLB", "read")}
    # C drains to DRAM in 2 tiles of 4 x 4 values of 16 bits: ceil(256 / 40) each.
    assert reads == {"A": 4 * 3, "B": 4 * 5, "C": 2 * 7}


def test_whole_tiles_of_actions_cost_what_plain_division_gives() -> None:
    wide = ActionCost("read", 1.0, 64.0, bits_per_action=16)
    plain = replace(wide, energy=1.0 / 16, bits_per_action=None)
    one = cost(changed(multicast(), "GLB", actions=(wide,)))
    other = cost(changed(multicast(), "GLB", actions=(plain,)))
    assert total(one, "GLB") == total(other, "GLB")
    assert seconds(one, "E0") == seconds(other, "E0")


def test_too_small_a_memory_is_named_with_need_and_have() -> None:
    found = cost(changed(chain(), "GLB", size_bits=500))
    assert len(found.violations) == 1
    v = found.violations[0]
    assert (v.component, v.einsum, v.need_bits, v.have_bits, v.allocation) == ("GLB", "E0", 512, 500, "tile")
    assert set(v.tensors) == {"W0", "W1", "T0", "T1"}
    assert "512" in str(v)
    assert "short of 12" in str(v)


def test_live_allocation_is_checked_with_live_counts() -> None:
    problem = changed(chain(), "GLB", size_bits=500, allocation="live")
    found = costs(problem, ENGINE.analyse(problem, live=True))
    live = {n.einsum: n for n in found.needs if n.component == "GLB" and n.counts}
    assert {n.measure for n in live.values()} == {"live"}
    tile = {n.einsum: n.bits for n in found.needs if n.component == "GLB" and n.measure == "tile"}
    assert all(live[e].bits <= tile[e] for e in tile)


def without_overlap(problem: Problem) -> Problem:
    return replace(problem, hierarchy=replace(problem.hierarchy, assume_overlap=False))


def test_single_buffering_adds_the_refill_time() -> None:
    # E0 fills 576 bits: 36 s at DRAM, the slower end. E1 fills 160 and drains 320 bits: 30 s.
    found = cost(without_overlap(changed(chain(), "GLB", buffering="single")))
    assert [(t.seconds, t.limiting) for t in found.latency] == [(192 + 36, "MAC"), (160 + 30, "MAC")]
    assert [(r.component, r.seconds) for t in found.latency for r in t.refills] == [("GLB", 36), ("GLB", 30)]


def test_single_buffering_does_not_pay_twice_when_refills_dominate() -> None:
    slow = with_component(chain(), "DRAM", memory("DRAM", 64, 1, 2**30))
    found = cost(without_overlap(changed(slow, "GLB", buffering="single")))
    assert [t.seconds for t in found.latency] == [576 + 192, 480 + 160]


def test_double_buffering_takes_twice_the_tile() -> None:
    plain, double = cost(multicast()), cost(without_overlap(multicast()))
    bits = {n.component: n.bits for n in plain.needs if n.measure == "tile"}
    twice = {n.component: n.bits for n in double.needs if n.measure == "tile"}
    assert twice == {"DRAM": bits["DRAM"], "GLB": 2 * bits["GLB"], "RF": 2 * bits["RF"]}
    assert double.total_latency == plain.total_latency


@pytest.mark.parametrize("engine", [ENGINE, EXACT])
def test_backing_tiles_are_not_doubled(engine: Engine) -> None:
    # E0: W0 192 + W1 160 + T0 96 bits are refilled, T1 (64) has its home in GLB. E1: T2 (80) instead of T0.
    problem = without_overlap(chain())
    needs = costs(problem, engine.analyse(problem)).needs
    bits = {n.einsum: n.bits for n in needs if (n.component, n.measure) == ("GLB", "tile")}
    assert bits == {"E0": 2 * 448 + 64, "E1": 2 * 432 + 64}
    residents = {
        r.tensor: r.bits for n in needs if (n.component, n.einsum) == ("GLB", "E0") for r in n.residents
    }
    assert residents == {"W0": 384, "W1": 320, "T0": 192, "T1": 64}


@pytest.mark.parametrize("engine", [ENGINE, EXACT])
def test_refills_of_many_instances_take_the_slower_end(engine: Engine) -> None:
    # Per file 48 of A, 24 of B in, 8 of C out: 704 bits, 2.75 s. At GLB 1152 out and 512 in: 26 s of its 46.
    problem = without_overlap(changed(multicast(), "RF", buffering="single"))
    found = costs(problem, engine.analyse(problem))
    assert [(r.component, r.seconds) for t in found.latency for r in t.refills] == [("RF", 26)]
    assert [(t.seconds, t.limiting) for t in found.latency] == [(80 + 26, "DRAM")]


@pytest.mark.parametrize("engine", [ENGINE, EXACT])
def test_refills_of_unequal_instances_take_as_long_as_the_busiest(engine: Engine) -> None:
    # File 0 has three columns: 48 of A, 72 of B in, 24 of C out: 1344 bits at 256 bits/s; file 1 has one.
    base = multicast()
    wide = tuple(
        replace(n, tile_shape=3) if isinstance(n, Loop) and n.spatial else n for n in base.tree.nodes
    )
    fast = with_component(base, "GLB", memory("GLB", 4, 6656, 2**20))
    problem = changed(replace(fast, tree=LoopTree(wide)), "RF", buffering="single")
    problem = without_overlap(with_component(problem, "DRAM", memory("DRAM", 64, 1e9, 2**30)))
    found = costs(problem, engine.analyse(problem))
    # MAC 0 executes 144 of the 192 operations.
    assert [(t.seconds, t.limiting) for t in found.latency] == [(144 + 5.25, "MAC")]


def test_tolls_charge_what_passes_down_and_up() -> None:
    keep = TensorRule("All", (("E0", frozenset({"T0", "W0", "T1"})), ("E1", frozenset({"T1", "W1", "T2"}))))
    toll = Component(
        "Bus", "toll", actions=(ActionCost("read", 2.0, 8.0), ActionCost("write", 3.0, 8.0)), keep=keep
    )
    base = chain()
    dram, *rest = base.hierarchy.components
    found = cost(replace(base, hierarchy=replace(base.hierarchy, components=(dram, toll, *rest))))
    charged = {
        (i.einsum, i.tensor, i.action): (i.count, i.energy) for i in found.energy if i.component == "Bus"
    }
    assert charged == {
        ("E0", "T0", "read"): (384, 768.0),
        ("E0", "W0", "read"): (192, 384.0),
        ("E1", "W1", "read"): (160, 320.0),
        ("E1", "T2", "write"): (320, 960.0),
    }
    assert seconds(found, "E0")["Bus"] == 72
    assert seconds(found, "E1")["Bus"] == 60


def test_roofline_and_limiters() -> None:
    found = cost(multicast())
    p = found.roofline[0]
    assert (p.memory, p.operations, p.moved_bits) == ("DRAM", 192, 1280)
    assert (p.intensity, p.bandwidth, p.peak) == (192 / 1280, 16, 4)
    assert p.attainable == p.achieved == 192 / 80
    ranked = [(x.component, x.rank, x.slack) for x in found.limiters]
    assert ranked == [("DRAM", 1, 0), ("MAC", 2, 32), ("GLB", 3, 34), ("RF", 4, 68.75)]
    assert (found.limiters[0].next_limiter, found.limiters[0].speedup) == ("MAC", 80 / 48)


def grouped(workload: str, arch: str = "two_engines", **asked: Any) -> tuple[pm.Report, list[Any]]:
    report = pm.evaluate(pm.load(arch, workload, M=16, N0=8, N1=12, N2=10), **asked)
    return report, list(report.grouped)


@pytest.mark.thin(99)
@pytest.mark.parametrize("engine", ["exact", "enumerate"])
@pytest.mark.parametrize("mapping", ["pipeline", "tiled_fused"])
def test_fused_einsums_stand_together_under_their_roof(engine: str, mapping: str) -> None:
    """Two products that hand on T1 inside DRAM: one after the other their units take turns, in a pipeline the
    busier one says how fast both can be."""
    report, (p,) = grouped(f"matmul_chain_2/{mapping}", engine=engine)
    work = {t.einsum: t.operations for t in report.costs.latency}
    moved = report.accesses.query("component == 'DRAM'")
    assert (p.einsum, p.memory, p.compute) == ("Matmul1, Matmul2", "DRAM", "EngineA, EngineB")
    assert p.operations == sum(work.values())
    assert p.moved_bits == moved["read_bits"].sum() + moved["write_bits"].sum()
    assert p.achieved == pytest.approx(p.operations / report.total_latency, rel=1e-12, abs=0)
    busy = max(work.values()) if mapping == "pipeline" else sum(work.values())
    assert p.peak == pytest.approx(p.operations / (busy / 64e9), rel=1e-12, abs=0)
    assert p.achieved <= p.attainable * (1 + 1e-12)
    assert p.attainable == pytest.approx(min(p.peak, p.intensity * p.bandwidth), rel=1e-12, abs=0)
    limits = {t.limiting: t.seconds for t in report.costs.latency}
    assert p.limiting == max(limits, key=lambda c: limits[c])
    table = report.table("group_roofline")
    assert [row[0] for row in table.rows] == [p.einsum]


def test_einsums_are_grouped_by_what_they_share() -> None:
    """By tensors that stay on chip without a loop, and not where tensors lie in the outermost memory."""
    _, together = grouped("matmul_chain_2/untiled_fused", "simple_two_level")
    assert [p.einsum for p in together] == ["Matmul1, Matmul2"]
    report, apart = grouped("matmul_chain_2/unfused", "simple_two_level")
    assert tuple(apart) == report.costs.roofline


def test_area_counts_instances() -> None:
    found = cost(changed(multicast(), "RF", area=2e-9, area_provenance="synthesis"))
    assert found.total_area == 8e-9
    assert [(a.instances, a.provenance) for a in found.area if a.component == "RF"] == [(4, "synthesis")]


def test_one_roof_is_said_once() -> None:
    """Bandwidths are bits over seconds, which may differ in the last digit between Einsums."""
    report = pm.evaluate(pm.load("simple_two_level", "matmul_chain_3"))
    assert len({p.bandwidth for p in report.costs.roofline}) == 1
    assert len({p.bandwidth for p in pm.evaluate(pm.load("tpu_v4i", "gpt3_6.7B")).costs.roofline}) == 4
    ax = report.plot("roofline")
    labels = [str(line.get_label()) for line in ax.lines]
    assert len([text for text in labels if text.startswith("DRAM ")]) == 1
