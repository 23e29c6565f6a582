"""Hops, refills that wait and doubled tiles: exact = enumerate on generated problems.

Every fanout has a link with a cost, and memories are single- or double-buffered without overlap.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any, cast

import pytest
from hypothesis import HealthCheck, event, given, settings
from hypothesis import strategies as st

import polymodel as pm
from polymodel.analysis.enumerate import ENGINE as REFEREE
from polymodel.analysis.exact import ENGINE as EXACT
from polymodel.analysis.result import Analysis, Problem
from polymodel.analysis.symbolic import ENGINE as SYMBOLIC
from polymodel.architecture.hierarchy import FanoutLink, Topology
from polymodel.errors import Refused
from polymodel.mapping.looptree import Loop, StorageNode
from polymodel.reuse import Reuse
from tests.analysis.test_agreement import differences, drawing
from tests.cost.cases import chain
from tests.faults import refused
from tests.generators import problems
from tests.seeds import seeds

REFUSED_AT_MOST = 0.01
SETTINGS: dict[str, Any] = {
    "deadline": None,
    "suppress_health_check": [HealthCheck.too_slow, HealthCheck.filter_too_much, HealthCheck.data_too_large],
    "print_blob": True,
}
LINKS = st.builds(
    FanoutLink,
    energy_per_bit_hop=st.just(1.0),
    topology=st.sampled_from(["bus", "mesh", "line", "ring", "tree", "switch", "all_to_all"]),
    throughput=st.sampled_from([math.inf, 8.0]),
)


@st.composite
def linked_problems(draw: st.DrawFn) -> Problem:
    """A generated problem with a costly link on every fanout dimension, some fanouts wider than used."""
    problem = draw(problems())
    components = []
    for c in problem.hierarchy.components:
        dims = tuple(
            replace(
                d,
                link=draw(LINKS),
                fanout=d.fanout + draw(st.sampled_from([0, 0, 1, 3])),
                multicast=draw(st.sampled_from(["overlapping", "overlapping", "identical"])),
            )
            for d in c.spatial
        )
        components.append(replace(c, spatial=dims, buffering=draw(st.sampled_from(["single", "double"]))))
    hierarchy = replace(problem.hierarchy, components=tuple(components), assume_overlap=draw(st.booleans()))
    return replace(problem, hierarchy=hierarchy)


def compare(problem: Problem, reuse: Reuse | None, tally: Counter[str]) -> None:
    try:
        referee = REFEREE.analyse(problem, reuse=reuse)
    except Refused:
        return  # the overriding policy makes the mapping illegal
    tally["examples"] += 1
    if any(isinstance(n, Loop) and n.spatial for _, n, _ in problem.tree.walk()):
        tally["spatial"] += 1
    try:
        ours = EXACT.analyse(problem, reuse=reuse)
    except Refused as refusal:
        tally["refused"] += 1
        event(f"refused: {refusal.message[:60]}")
        return
    tally["hops"] += bool(ours.links)
    tally["refills"] += bool(ours.refills)
    for mine, theirs in (
        (ours.links, referee.links),
        (ours.refills, referee.refills),
        (peaks(ours), peaks(referee)),
    ):
        text = "\n".join([*map(str, mine), "", *map(str, theirs), f"{reuse}", drawing(problem)])
        assert mine == theirs, text


def peaks(found: Analysis) -> tuple[tuple[str, str, str, int], ...]:
    return tuple((w.einsum, w.component, w.measure, w.bits) for w in found.working_sets)


def test_fills_that_another_einsum_pays_for_are_no_refill() -> None:
    """T1 is written in GLB by E0 and read there by E1: nothing of E1 waits for it."""
    base = chain()
    outer = StorageNode("DRAM", ("T0", "W0", "W1", "T1", "T2"))
    problem = replace(base, tree=replace(base.tree, nodes=(outer, *base.tree.nodes[1:])))
    components = tuple(replace(c, buffering="single") for c in base.hierarchy.components)
    hierarchy = replace(base.hierarchy, components=components, assume_overlap=False)
    problem = replace(problem, hierarchy=hierarchy)
    compare(problem, None, Counter())
    loads = {(r.einsum, r.component, r.storage): r.loads for r in EXACT.analyse(problem).refills}
    # E0 fills T0 and W0 (576 bits) and drains T1 (8 x 4 values); E1 fills W1 and drains T2.
    assert loads["E0", "GLB", "GLB"] == ((256, 576),)
    assert loads["E1", "GLB", "GLB"] == ((320, 160),)


@pytest.mark.slow
@pytest.mark.parametrize("count", seeds(1, [60, 200]))
def test_hops_and_refills_agree(count: int) -> None:
    tally: Counter[str] = Counter()
    policies = st.sampled_from([None, None, *Reuse])

    @settings(max_examples=count, **SETTINGS)
    @given(linked_problems(), policies)
    def agree(problem: Problem, reuse: Reuse | None) -> None:
        compare(problem, reuse, tally)

    cast(Callable[[], None], agree)()
    assert tally["refused"] <= REFUSED_AT_MOST * tally["examples"], tally
    assert min(tally["hops"], tally["refills"]) > tally["examples"] // 10, tally
    assert tally["spatial"] > tally["examples"] // 10, tally


@pytest.mark.slow
@pytest.mark.parametrize("count", seeds(2, [300]))
def test_closed_forms_of_buses_and_meshes_agree(count: int) -> None:
    tally: Counter[str] = Counter()

    @settings(max_examples=count, **SETTINGS)
    @given(linked_problems(), st.sampled_from([None, None, *Reuse]))
    def agree(problem: Problem, reuse: Reuse | None) -> None:
        try:
            ours, referee = SYMBOLIC.analyse(problem, reuse=reuse), REFEREE.analyse(problem, reuse=reuse)
        except Refused:
            return
        tally["hops"] += bool(referee.links)
        assert not differences(ours, referee), f"{reuse}\n{drawing(problem)}"

    cast(Callable[[], None], agree)()
    assert tally["hops"] > count // 10, tally


def waiting(problem: Problem) -> Problem:
    """The problem with links whose hops take time, of topologies that have closed forms."""
    parts, others = [], {"ring": "mesh", "tree": "line"}
    for c in problem.hierarchy.components:
        links = [d.link for d in c.spatial if d.link is not None]
        kinds = [cast(Topology, others.get(x.topology, x.topology)) for x in links]
        timed = [replace(x, hop_latency=1.0, topology=k) for x, k in zip(links, kinds, strict=True)]
        dims = tuple(replace(d, link=x) for d, x in zip(c.spatial, timed, strict=True))
        parts.append(replace(c, spatial=dims))
    return replace(problem, hierarchy=replace(problem.hierarchy, components=tuple(parts)))


@pytest.mark.slow
@pytest.mark.parametrize("count", seeds(3, [200]))
def test_engines_agree_in_how_far_data_go(count: int) -> None:
    tally: Counter[str] = Counter()

    @settings(max_examples=count, **SETTINGS)
    @given(linked_problems().map(waiting), st.sampled_from([None, None, *Reuse]))
    def agree(problem: Problem, reuse: Reuse | None) -> None:
        compare(problem, reuse, tally)
        try:
            closed, referee = SYMBOLIC.analyse(problem, reuse=reuse), REFEREE.analyse(problem, reuse=reuse)
        except Refused:
            return
        tally["closed"] += bool(referee.links)
        tally["far"] += any(row.reach > 1 for row in referee.links)
        assert closed.links == referee.links, f"{reuse}\n{drawing(problem)}"

    cast(Callable[[], None], agree)()
    assert min(tally["hops"], tally["closed"], tally["far"] * 3) > tally["examples"] // 10, tally


@pytest.mark.parametrize(
    ("topology", "hops"),
    [("bus", 1), ("mesh", 3), ("line", 2), ("ring", 2), ("tree", 3), ("switch", 1), ("all_to_all", 1)],
)
def test_a_link_takes_at_least_the_longest_route(topology: str, hops: int) -> None:
    """Three of five instances along Y (K of 5 in tiles of 2), two of six along X (N of 6 in tiles of 3): the
    route through X begins with that through Y."""
    spec = meshed(5, 6, "refill", link={"topology": topology, "hop_latency": 1}, TM=1, SK=2, SN=3)
    assert spec.mapping is not None
    along_x = {"bus": 1, "mesh": 2, "line": 1, "ring": 1, "tree": 3, "switch": 1, "all_to_all": 1}
    for engine in ("enumerate", "exact", *(() if topology in ("ring", "tree") else ("symbolic",))):
        report = pm.evaluate(spec, engine=engine)
        seconds = {t.component: t.seconds for t in report.costs.times if t.kind == "link"}
        assert seconds == {"PE.Y": hops, "PE.X": hops + along_x[topology]}, engine
        assert report.total_latency == hops + along_x[topology]
    alone = {"topology": topology, "hop_latency": 1e-9, "throughput": 1e6}
    by_bits = pm.evaluate(meshed(5, 6, "refill", link=alone, TM=1, SK=2, SN=3), engine="exact")
    limited = pm.evaluate(meshed(5, 6, "refill", link={**alone, "hop_latency": 0}, TM=1, SK=2, SN=3))
    assert by_bits.total_latency == limited.total_latency > 1e-4


def test_a_sweep_has_the_longest_route() -> None:
    spec = meshed(5, 6, "refill", link={"topology": "all_to_all", "hop_latency": 1e-6, "throughput": 1e9},
                  TM=1, SK=1, SN=1)  # fmt: skip
    swept = pm.sweep(spec, {"TM": [1, 7], "SK": [1, 2, 5], "SN": [1, 6]}, keep="all")
    assert not any("one by one" in note for note in swept.notes)
    for row in swept.frame.to_dict("records"):
        values = {n: row[n] for n in ("TM", "SK", "SN")}
        assert row["latency"] == pytest.approx(pm.evaluate(spec.bind(**values), engine="exact").total_latency)
    with refused("unsupported-link", "PE", "Y"):
        pm.explore(spec)


MESH = {"energy_per_bit_hop": 1e-12, "topology": "mesh", "throughput": 1e6}


def meshed(rows: int, columns: int, reuse: str, link: Mapping[str, object] = MESH, **symbols: int) -> pm.Spec:
    """A product on a mesh of rows and columns, whose tiles need not divide."""
    dims = [{"name": n, "fanout": k, "link": link} for n, k in (("Y", rows), ("X", columns))]
    actions = [{"name": a, "energy": 1e-12} for a in ("read", "write")]
    along = {"type": "Spatial", "component": "PE"}
    stored = {"type": "Storage", "tensors": ["A", "B", "Z"]}
    return pm.load(
        {
            "schema_version": 1,
            "workload": {
                "rank_sizes": {"M": 7, "K": 5, "N": 6},
                "bits_per_value": {"All": 8},
                "einsums": ["Z[m, n] = A[m, k] * B[k, n]"],
            },
            "arch": {
                "nodes": [
                    {"type": "Memory", "name": "DRAM", "size": "inf", "actions": actions},
                    {"type": "Container", "name": "PE", "spatial": dims},
                    {"type": "Memory", "name": "RF", "size": "inf", "actions": actions},
                    {"type": "Compute", "name": "MAC", "actions": [{"name": "compute", "energy": 1e-12}]},
                ]
            },
            "mapping": {
                "nodes": [
                    {**stored, "component": "DRAM"},
                    {"type": "Temporal", "rank_variable": "m", "tile_shape": "TM"},
                    {**along, "rank_variable": "k", "tile_shape": "SK", "name": "Y"},
                    {**along, "rank_variable": "n", "tile_shape": "SN", "name": "X"},
                    {"type": "Temporal", "rank_variable": "m", "tile_shape": 1},
                    {**stored, "component": "RF", "reuse": reuse},
                    {"type": "Compute", "einsum": "Z", "component": "MAC"},
                ]
            },
            "symbols": symbols,
        }
    )


@pytest.mark.thin(99)
@pytest.mark.parametrize("reuse", ["refill", "slide"])
def test_a_sweep_over_a_mesh_is_what_evaluate_finds(reuse: str) -> None:
    spec = meshed(5, 6, reuse, TM=1, SK=1, SN=1)
    swept = pm.sweep(spec, {"TM": [1, 3, 7], "SK": [1, 2, 5], "SN": [1, 2, 4]}, keep="all")
    assert not any("one by one" in note for note in swept.notes)
    for row in swept.frame.sample(5, random_state=1).to_dict("records"):
        values = {n: row[n] for n in ("TM", "SK", "SN")}
        report = pm.evaluate(spec.bind(**values), engine="exact")
        assert row["energy"] == pytest.approx(report.total_energy, rel=1e-12)
        assert row["latency"] == pytest.approx(report.total_latency, rel=1e-12)


@pytest.mark.slow
@pytest.mark.parametrize("order", ["pm", "mp"])
@pytest.mark.parametrize("topology", ["bus", "mesh", "line", "tree", "switch", "all_to_all", "ring"])
def test_windows_that_are_sent_one_by_one_share_a_dimension_with_a_loop_that_multicasts(
    topology: str, order: str
) -> None:
    """Two windows of 3 with 2 elements in common are 6 transfers, each to the instances of both columns."""
    link = {"energy_per_bit_hop": 1, "topology": topology, "throughput": 1}
    dims = [{"name": "X", "fanout": 4, "multicast": "identical", "link": link}]
    nodes = [
        {"type": "Memory", "name": "DRAM", "size": "inf"},
        {"type": "Container", "name": "PE", "spatial": dims},
        {"type": "Compute", "name": "MAC"},
    ]
    shape = {"p": "0 <= p < 2", "r": "0 <= r < 3", "m": "0 <= m < 2"}
    along = {"type": "Spatial", "tile_shape": 1, "component": "PE", "name": "X"}
    spread = [{**along, "rank_variable": v} for v in order]
    stored = {"type": "Storage", "component": "DRAM", "tensors": ["I", "F", "O"]}
    spec = pm.load(
        {
            "schema_version": 1,
            "workload": {
                "iteration_space_shape": shape,
                "bits_per_value": {"All": 1},
                "einsums": ["O[p,m] = I[W=p+r] * F[r,m]"],
            },
            "arch": {"nodes": nodes},
            "mapping": {"nodes": [stored, *spread, {"type": "Compute", "einsum": "O", "component": "MAC"}]},
        }
    )
    found = [e.analyse(Problem(spec.workload, spec.arch, spec.mapping)).links for e in (EXACT, REFEREE)]
    assert found[0] == found[1]
    hops = dict(found[0][0].hops)
    meshed = {"pm": 18, "mp": 21}[order]
    by_hand = {"bus": 6, "mesh": meshed, "line": meshed - 6, "tree": {"pm": 18, "mp": 24}[order],
               "switch": 12, "all_to_all": 9, "ring": 12}  # fmt: skip
    assert hops["I"] == by_hand[topology]
    if topology == "bus":
        closed = pm.evaluate(spec, engine="symbolic").analysis
        assert [(x.hops, x.loads) for x in closed.links] == [(x.hops, x.loads) for x in found[0]]
