"""Elasticities against finite differences of the costs themselves, on either side."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from polymodel.analysis.enumerate import ENGINE
from polymodel.analysis.result import Analysis, Problem
from polymodel.architecture.hierarchy import ActionCost, Component, FanoutLink, Hierarchy
from polymodel.cost.costs import Cost, Elasticity, Knob, costs, elasticities
from polymodel.cost.records import Counts
from tests.cost.cases import chain, multicast
from tests.generators import problems

STEP = 1e-6


def turned(hierarchy: Hierarchy, knob: Knob, value: float) -> Hierarchy:
    """The hierarchy with one number changed."""
    change: dict[str, Any] = {"size_bits" if knob.name == "size" else knob.name: value}

    def component(c: Component) -> Component:
        if knob.component == c.name:
            if knob.name in ("energy", "throughput"):
                return replace(c, actions=tuple(
                    replace(a, **change) if a.name == knob.action else a for a in c.actions
                ))  # fmt: skip
            return replace(c, **change)
        dims = tuple(
            replace(d, link=replace(d.link, **change))
            if d.link is not None and knob.component == f"{c.name}.{d.name}"
            else d
            for d in c.spatial
        )
        return replace(c, spatial=dims)

    return replace(hierarchy, components=tuple(component(c) for c in hierarchy.components))


def figure(problem: Problem, analysis: Analysis, of: Cost) -> float:
    found = costs(problem, analysis)
    return found.total_energy if of == "energy" else found.total_latency


def check(problem: Problem, of: Cost) -> tuple[Elasticity, ...]:
    """Every slope is the quotient of differences, on its side; elasticities are slopes in relative terms."""
    analysis = ENGINE.analyse(problem)
    found = elasticities(Counts(problem, analysis), costs(problem, analysis), of)
    here = figure(problem, analysis, of)
    for e in found:
        if math.isnan(e.down):
            continue
        step = STEP * (e.value or 1.0)
        above, below = (
            figure(replace(problem, hierarchy=turned(problem.hierarchy, e.knob, e.value + s)), analysis, of)
            for s in (step, -step)
        )
        near = pytest.approx
        noise = 1e-8 * here / step
        assert e.slope_up == near((above - here) / step, rel=1e-4, abs=noise), e
        assert e.slope_down == near((here - below) / step, rel=1e-4, abs=noise), e
        if here:
            assert (e.up, e.down) == near((e.slope_up * e.value / here, e.slope_down * e.value / here))
    sizes = [max(abs(e.up), abs(e.down)) for e in found if not math.isnan(e.up + e.down)]
    assert sizes == sorted(sizes, reverse=True)
    return found


@st.composite
def priced(draw: st.DrawFn) -> Problem:
    """A drawn problem with small whole numbers everywhere, so that times often tie."""
    problem = draw(problems())
    numbers = st.sampled_from([1.0, 2.0, 4.0])
    components = []
    for c in problem.hierarchy.components:
        names = {"compute": ("compute",), "container": ()}.get(c.kind, ("read", "write"))
        actions = tuple(ActionCost(n, draw(numbers), draw(numbers)) for n in names)
        link = FanoutLink(draw(numbers), draw(st.sampled_from(["bus", "mesh", "tree"])), draw(numbers))
        linked = draw(st.integers(0, 3)) == 0
        components.append(replace(
            c, actions=actions, leak_power=draw(st.sampled_from([0.0, 1.0])),
            ports=draw(st.sampled_from(["shared", "separate"])),
            buffering=draw(st.sampled_from(["single", "double"])),
            fill_drain_latency=0.0 if c.kind == "container" else draw(st.sampled_from([0.0, 0.0, 3.0])),
            spatial=tuple(replace(d, link=link) if linked else d for d in c.spatial),
        ))  # fmt: skip
    hierarchy = Hierarchy(tuple(components), assume_overlap=draw(st.booleans()))
    return replace(problem, hierarchy=hierarchy)


@settings(max_examples=60, deadline=None, suppress_health_check=list(HealthCheck))
@given(priced(), st.sampled_from(["energy", "latency"]))
def test_slopes_are_quotients_of_differences(problem: Problem, of: Cost) -> None:
    check(problem, of)


@pytest.mark.parametrize("problem", [chain(), multicast()])
def test_energy_is_linear(problem: Problem) -> None:
    found = check(problem, "energy")
    assert sum(e.up for e in found if e.knob.name in ("energy", "leak_power")) == pytest.approx(1)
    assert all(e.slope_up == e.slope_down for e in found)


def test_latency_has_two_slopes_where_components_tie() -> None:
    """Twice as fast a unit brings DRAM to the limit; DRAM as fast as its work ties."""
    base = chain()
    found = {(e.knob.component, e.knob.action, e.knob.name): e for e in check(base, "latency")}
    assert found["MAC", "compute", "throughput"].up == pytest.approx(-1)
    assert found["GLB", "read", "throughput"].up == found["GLB", "read", "throughput"].down == 0
    tied = replace(base, hierarchy=turned(base.hierarchy, Knob("MAC", "compute", "throughput"), 192 / 101))
    both = {(e.knob.component, e.knob.action, e.knob.name): e for e in check(tied, "latency")}
    mac, glb = both["MAC", "compute", "throughput"], both["GLB", "read", "throughput"]
    # E0 takes 101 s either way; E1 still waits for the unit alone.
    assert mac.up > mac.down == pytest.approx(-1)
    assert glb.up == 0 > glb.down


def test_a_full_memory_cannot_shrink() -> None:
    base = chain()
    bits = max(n.bits for n in costs(base, ENGINE.analyse(base)).needs if n.component == "GLB" and n.counts)
    for size, down in ((float(bits), math.nan), (bits + 1.0, 0.0)):
        problem = replace(base, hierarchy=turned(base.hierarchy, Knob("GLB", "", "size"), size))
        found = [e for e in check(problem, "latency") if e.knob == Knob("GLB", "", "size")]
        assert [e.up for e in found] == [0.0]
        assert [e.down for e in found] == [pytest.approx(down, nan_ok=True)]
