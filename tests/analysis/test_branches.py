"""Branches of the hierarchy: only what executes on a branch goes along it."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

import polymodel as pm
from polymodel.analysis.result import Problem
from polymodel.api.evaluation import evaluate_problem
from polymodel.architecture.hierarchy import (
    ActionCost,
    Component,
    FanoutDim,
    FanoutLink,
    Hierarchy,
    TensorRule,
)
from tests.faults import every_fault, refused
from tests.support.small_specs import fanout, leaf, loop, memory, split, spread, storage, unit

ENGINES = ("symbolic", "exact", "enumerate")
PRICED = tuple(ActionCost(n, 1e-12, 1e9) for n in ("read", "write"))
ALL = TensorRule("All", tuple((e, frozenset("ABCIOTWXYZ")) for e in ("C", "O", "T", "Z")))
WORKLOAD = {
    "rank_sizes": {"M": 4, "N": 2, "K": 3},
    "bits_per_value": {"All": 8},
    "einsums": ["T[m, n] = X[m, k] * Y[k, n]", "Z[m, n] = T[m, n]"],
}


def side(name: str, kind: Any, **more: Any) -> Component:
    return Component(name, kind, branch="side", **more)


SIDE = (
    side("Lanes", "container", spatial=(FanoutDim("X", 5, link=FanoutLink(1e-12, "mesh", 1e3)),)),
    side("Wire", "toll", keep=ALL, actions=PRICED),
    side("VReg", "memory", keep=ALL, actions=PRICED, spatial=(FanoutDim("Y", 2),)),
    side("VPU", "compute"),
)


@pytest.mark.parametrize("place", [1, 2])
def test_an_idle_branch_changes_nothing(place: int) -> None:
    spec = pm.load("conv2d", "eyeriss_like", "conv2d/eyeriss_like/row_stationary")
    parts = spec.arch.components
    wider = replace(spec.arch, components=(*parts[:place], *SIDE, *parts[place:]))
    one = evaluate_problem(Problem(spec.workload, spec.arch, spec.mapping))
    other = evaluate_problem(Problem(spec.workload, wider, spec.mapping))
    for name in ("traffic", "tolls", "links", "compute", "buffets"):
        assert getattr(one.analysis, name) == getattr(other.analysis, name)
    assert one.total_energy == other.total_energy
    assert one.summary.equals(other.summary)
    assert [wider.instances(c.name) for c in parts] == [spec.arch.instances(c.name) for c in parts]
    assert (wider.instances("Wire"), wider.instances("VPU")) == (5, 10)


def machine(**toll: Any) -> list[dict[str, Any]]:
    link = {"energy_per_bit_hop": 1e-12, "topology": "bus"}
    on = {"branch": "vector"}
    wire = {"type": "Toll", "name": "Wire", "tensors": {"keep": "All"}, **on}
    wire["actions"] = [{"name": n, "energy": 1e-12, "throughput": 1e9} for n in ("read", "write")]
    return [
        memory("GLB", 1e-12), {**fanout("Lanes", fanout=4, link=link), **on}, wire,
        {**memory("VReg", 1e-12), **on, "tensors": {"keep": "All"}}, {**unit("VPU"), **on},
        fanout("PE", fanout=3), unit("MAC", leak_power=1.0),
    ]  # fmt: skip


def mapped(second: str = "VPU") -> list[dict[str, Any]]:
    first = [spread("k", 1), loop("m", 1), loop("n", 1), leaf("T")]
    other = [spread("m", 1, "Lanes"), storage("VReg", "T", "Z"), loop("n", 1), leaf("Z", second)]
    return [storage("GLB", "X", "Y", "T", "Z"), split(first, other)]


@pytest.mark.parametrize("engine", ENGINES)
def test_each_einsum_goes_its_own_way(engine: str) -> None:
    spec = pm.load({"arch": {"nodes": machine()}, "workload": WORKLOAD, "mapping": {"nodes": mapped()}})
    found = pm.evaluate(spec, engine=engine).analysis
    tolls = {(t.einsum, t.tensor): (t.down, t.up) for t in found.tolls}
    assert tolls == {("Z", "T"): (8, 0), ("Z", "Z"): (0, 8)}  # down to and up from 4 lanes
    assert [(t.einsum, t.component, dict(t.hops)) for t in found.links] == [("Z", "Lanes", {"T": 8, "Z": 8})]
    assert [c.instances for c in found.compute] == [3, 4]
    assert spec.arch.instances("MAC") == 3


@pytest.mark.parametrize("engine", ENGINES)
def test_a_branch_of_a_branch_leaves_it_where_it_begins(engine: str) -> None:
    """What executes on the inner unit passes lanes and wire of the outer branch, not its registers, as on a
    machine that has nothing else."""
    on = {"branch": "vector/special"}
    whole = machine()
    inner = [{**fanout("Pair", fanout=2), **on}, {**memory("SReg", 1e-12), **on}, {**unit("SFU"), **on}]
    nodes = [*whole[:3], *inner, *whole[3:]]
    tree = mapped("SFU")
    spatial = [spread("m", 2, "Lanes"), spread("m", 1, "Pair")]
    tree[1]["nodes"][1]["nodes"] = [*spatial, storage("SReg", "T", "Z"), loop("n", 1), leaf("Z", "SFU")]
    found = pm.load({"workload": WORKLOAD, "arch": {"nodes": nodes}, "mapping": {"nodes": tree}})
    way = [{k: v for k, v in n.items() if k != "branch"} for n in (*whole[:3], *inner)]
    work = {"rank_sizes": {"M": 4, "N": 2}, "bits_per_value": {"All": 8}, "einsums": ["Z[m, n] = T[m, n]"]}
    tree = [storage("GLB", "T", "Z"), *tree[1]["nodes"][1]["nodes"]]
    alone = pm.load({"workload": work, "arch": {"nodes": way}, "mapping": {"nodes": tree}})
    one, other = (pm.evaluate(s, engine=engine).analysis for s in (found, alone))
    assert [t for t in one.tolls if t.einsum == "Z"] == list(other.tolls) != []
    assert [t for t in one.links if t.einsum == "Z"] == list(other.links) != []
    rows = ([t for t in a.traffic if t.einsum == "Z"] for a in (one, other))
    counts = [[(t.component, t.tensor, t.reads, t.writes) for t in moved] for moved in rows]
    assert counts[0] == counts[1]
    assert [found.arch.instances(n) for n in ("SFU", "VReg", "VPU", "MAC")] == [8, 4, 4, 3]
    assert [c.name for c in found.arch.path_to("VPU")] == ["GLB", "Lanes", "Wire", "VReg", "VPU"]
    assert "    branch special:\n" in str(found.arch)
    assert "on branch vector/special" in found.arch._repr_svg_()
    for wrong in ([whole[0], *inner, *whole[1:]], [*whole[:5], *whole[5:], *inner]):
        with pytest.raises(pm.SpecError) as raised:
            pm.load({"workload": WORKLOAD, "arch": {"nodes": wrong}})
        assert {d.code for d in raised.value.diagnostics} == {"invalid-component"}


@pytest.mark.parametrize("engine", ENGINES)
def test_a_toll_behind_the_unit_is_not_passed(engine: str) -> None:
    """Units stand in line where nothing says that they branch off."""
    parts = [memory("GLB", 1e-12), unit("First"), {**machine()[2], "branch": ""}, unit("Second")]
    parts.insert(2, {**memory("Far", 1e-12), "tensors": {"keep": "X"}})
    nodes = [storage("GLB", "X", "Y", "T"), loop("m", 1), loop("n", 1), loop("k", 1), leaf("T", "First")]
    work = {**WORKLOAD, "einsums": WORKLOAD["einsums"][:1]}
    spec = pm.load({"arch": {"nodes": parts}, "workload": work, "mapping": {"nodes": nodes}})
    assert pm.evaluate(spec, engine=engine).analysis.tolls == ()


def test_what_is_refused() -> None:
    given = {"arch": {"nodes": machine()}, "workload": WORKLOAD, "mapping": {"nodes": mapped("MAC")}}
    with every_fault(
        ("invalid-structure", "mapping.nodes[1].nodes[1].nodes[0].component"),
        ("invalid-structure", "mapping.nodes[1].nodes[1].nodes[1].component"),
    ):
        pm.load(given)
    parts = machine()
    parts[1], parts[5] = parts[5], parts[1]
    parts[3]["branch"] = "alone"
    with pytest.raises(pm.SpecError) as fault:
        pm.load({"arch": {"nodes": parts}})
    told = [d.message for d in fault.value.diagnostics]
    ended = [f"{name} is on branch vector, which ended above" for name in ("VPU", "Lanes")]
    assert told == ["branch alone has no compute unit", *ended]
    with refused("missing-argument"):
        pm.explore(pm.load({"arch": {"nodes": machine()}, "workload": WORKLOAD}), objectives=["energy"])


def test_a_search_uses_each_way_for_what_executes_on_it() -> None:
    work = {**WORKLOAD, "einsums": WORKLOAD["einsums"][:1]}
    spec = pm.load({"arch": {"nodes": machine()}, "workload": work})
    best = pm.explore(spec, objectives=["energy"], constraints={"compute": {"T": "MAC"}})[0]
    plain = [n for n in machine() if "branch" not in n]
    other = pm.explore(pm.load({"arch": {"nodes": plain}, "workload": work}), objectives=["energy"])[0]
    assert pm.evaluate(best.spec).total_energy == pm.evaluate(other.spec).total_energy


def test_text_and_picture_tell_branches() -> None:
    arch = Hierarchy((Component("GLB", "memory"), *SIDE, Component("MAC", "compute")), name="m")
    lines = str(arch).splitlines()
    assert [x for x in lines if "branch" in x or "MAC" in x[2:6]] == ["  branch side:", "  MAC (compute)"]
    assert "on branch side" in arch._repr_svg_()
