"""Closed forms hold in their stated domain, for any extents and tiles in it, and refuse outside."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from itertools import pairwise
from typing import Any, cast

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import polymodel as pm
from polymodel.analysis.exact import ENGINE as EXACT
from polymodel.analysis.result import Problem
from polymodel.analysis.symbolic.forms import names_in, size_in
from polymodel.errors import NotSeparable, Refused
from polymodel.mapping.checks import check_extents
from polymodel.mapping.looptree import LoopTree
from polymodel.mapping.resolve import ResolvedMapping, bind_tree
from polymodel.report.closed import SymbolicReport, symbolic_report
from polymodel.schedule.legality import check
from polymodel.spec.faults import Faults
from polymodel.workload.einsum import resized
from tests.analysis.test_agreement import SETTINGS, differences, drawing
from tests.first_tiles import FirstTiles
from tests.generators import Drawing
from tests.workloads import cascades

SIZES = (1, 1, 2, 3, 4, 5)


@st.composite
def boxes(draw: st.DrawFn) -> Problem:
    """A small problem over boxes, most of several Einsums, some extents 1; its dependences kept or not."""
    cascade = draw(cascades(simple=draw(st.booleans())))
    kind = draw(st.sampled_from([Drawing, Drawing, FirstTiles]))
    single = {v: 1 for e in cascade for v in e.rank_variables if draw(st.integers(0, 5)) == 0}
    cascade = resized(cascade, single)
    drawing = kind(draw, cascade, draw(st.booleans()))
    tree = LoopTree(drawing.whole())
    return Problem(cascade, drawing.hierarchy(), tree)


def roomy(problem: Problem) -> Problem:
    """The same with fanouts that have room for more."""
    parts = tuple(
        replace(c, spatial=tuple(replace(d, fanout=d.fanout + 3) for d in c.spatial))
        for c in problem.hierarchy.components
    )
    return replace(problem, hierarchy=replace(problem.hierarchy, components=parts))


def chosen(draw: Callable[[Any], Any], forms: SymbolicReport) -> dict[str, int]:
    """Values for all symbols, nearly all of which fit."""
    values: dict[str, int] = {}
    same = {b: a for a, b, _ in forms.analysis.same}
    for chain in forms.analysis.chains:
        for size in chain[:1]:
            for name in names_in((size,)):
                equal = same.get(name, name)
                equal = equal if isinstance(equal, str) else name
                if name not in values:
                    values[name] = values.get(equal, draw(st.sampled_from(SIZES)))
    for chain in forms.analysis.chains:
        for outer, tile in pairwise(chain):
            for name in names_in((tile,)):
                if name not in values:
                    most = max(1, size_in(outer, values))
                    values[name] = draw(st.integers(1, most)) if draw(st.integers(0, 3)) else most
    return values


def at(problem: Problem, forms: SymbolicReport, values: dict[str, int]) -> Problem:
    """The problem with these sizes, as a spec with them would give it."""
    cascade = resized(problem.cascade, {v: values[s] for v, s in forms.domain.sizes.items()})
    tree = bind_tree(ResolvedMapping(forms.problem.tree), values, Faults()).tree
    return Problem(cascade, problem.hierarchy, tree)


def illegal(problem: Problem) -> str:
    """What a spec with these sizes is refused for."""
    faults = Faults()
    check_extents(ResolvedMapping(problem.tree), problem.cascade, problem.hierarchy, faults)
    found = [*faults.found, *([] if faults.found else check(problem))]
    return found[0].message if found else ""


def run_many(count: int) -> Counter[str]:
    """Random problems, all sizes symbols, other sizes put in: equal to the exact engine, or refused."""
    tally: Counter[str] = Counter()

    @settings(max_examples=count, **SETTINGS)
    @given(boxes(), st.data())
    def hold(problem: Problem, data: st.DataObject) -> None:
        problem = roomy(problem)
        tally["problems"] += 1
        try:
            forms = symbolic_report(problem, tiles=data.draw(st.integers(0, 3)) > 0, ranks=True)
        except NotSeparable:
            return
        values = chosen(data.draw, forms)
        there = at(problem, forms, values)
        try:
            why = illegal(there)
        except Refused:
            return
        told = f"{values}\n{forms.domain}\n{drawing(forms.problem)}\n{drawing(there)}"
        faults = forms.domain.faults(values)
        tally["compared"] += 1
        if faults:
            tally["refused"] += 1
            if not why:
                tally["narrower"] += 1
                broken = [c for c in forms.domain.stated if not c.holds(values)]
                assert broken, told
                assert all(c.relation == "=" or "box" in c.about for c in broken), told
            elif all(c.holds(values) for c in forms.domain.conditions):
                assert forms.domain.breaking.further, told
                tally["at values only"] += 1
            return
        assert not why, f"{why}\n{told}"
        if not forms.domain.breaking.further:
            assert all(c.holds(values) for c in forms.domain.conditions), told
        tally["fused"] += len(problem.cascade) > 1
        tally["ones"] += 1 in values.values()
        try:
            numbers = EXACT.analyse(there)
        except Refused:
            return
        tally["equal"] += 1
        assert not differences(forms.analysis.at(values), numbers), told

    cast(Callable[[], None], hold)()
    return tally


def batched(sizes: dict[str, int], tile: str = "TM") -> pm.Spec:
    memory = {"type": "Memory", "name": "DRAM", "tensors": {"keep": "All"}, "actions": []}
    loop = {"type": "Temporal", "rank_variable": "m", "tile_shape": tile}
    return pm.load(
        {
            "schema_version": 1,
            "arch": {"nodes": [memory, {"type": "Compute", "name": "MAC", "actions": []}]},
            "workload": {
                "rank_sizes": sizes,
                "bits_per_value": {"All": 8},
                "einsums": ["Z[b, m] = A[b, m, k] * W[m, k]"],
            },
            "mapping": {
                "nodes": [
                    {"type": "Storage", "component": "DRAM", "tensors": ["A", "W", "Z"]},
                    loop,
                    {"type": "Compute", "einsum": "Z", "component": "MAC"},
                ]
            },
        }
    )


def test_an_extent_of_1_in_the_spec_is_a_symbol_like_others() -> None:
    forms = pm.closed_forms(batched({"B": 1, "M": 8, "K": 4}), ranks=True)
    assert str(forms.summary["operations"].iloc[0]) == "B*K*M"
    there = forms.at(B=8, M=8, K=4, TM=2)
    report = pm.evaluate(batched({"B": 8, "M": 8, "K": 4}, "2"))
    assert there.summary["operations"].tolist() == report.summary["operations"].tolist() == [256, 256]
    reads = ["component", "tensor", "read_elements", "write_elements"]
    assert there.accesses[reads].to_dict("list") == report.accesses[reads].to_dict("list")


def test_the_domain_is_stated_and_values_outside_are_refused() -> None:
    forms = pm.closed_forms(batched({"B": 1, "M": 8, "K": 4}), ranks=True)
    assert str(forms.domain) == "TM, B, M, K: whole numbers from 1 on; TM <= M"
    assert "hold for TM, B, M, K: whole numbers from 1 on; TM <= M" in str(forms)
    assert "TM &lt;= M" in forms._repr_html_()
    told = r"TM = 9, M = 8 are outside the domain of these closed forms: TM <= M \(.*\n.*stay within TM, B"
    for refusing in (forms.at, forms.at(M=8).at, lambda **v: forms.table("tiles").at({"B": 1, "K": 1, **v})):
        with pytest.raises(pm.SpecError, match=told):
            refusing(M=8, TM=9)
    textbook = forms.assuming("divides")
    assert "TM divides M" in str(textbook.domain)
    with pytest.raises(pm.SpecError, match=r"TM = 3, M = 8 are outside .*: TM divides M"):
        textbook.at(M=8, TM=3)


def test_compiled_cells_refuse_points_outside_the_domain() -> None:
    forms = pm.closed_forms(batched({"B": 1, "M": 8, "K": 4}), ranks=True)
    cell = forms.tiles["visits"].iloc[0] + forms.summary["operations"].iloc[0]
    compiled = pm.compile_cell(cell, ["TM", "B", "M", "K"], domain=forms.domain)
    assert compiled([1, 2], [8, 1], 8, 4).tolist() == [257, 33]
    for tile, told in ((9, "TM <= M"), (0, "TM >= 1")):
        with pytest.raises(pm.SpecError, match=rf"outside the domain .*{told}, at TM={tile}, B=8, M=8, K=4"):
            compiled([1, tile], 8, 8, 4)


def test_loops_that_must_run_once_are_stated() -> None:
    """T is summed up over k, whose loop stands above the split of producer and consumer."""
    memory = {"type": "Memory", "name": "DRAM", "tensors": {"keep": "All"}, "actions": []}
    stage = [[{"type": "Compute", "einsum": e, "component": "MAC"}] for e in "TZ"]
    spec = pm.load(
        {
            "schema_version": 1,
            "arch": {"nodes": [memory, {"type": "Compute", "name": "MAC", "actions": []}]},
            "workload": {
                "rank_sizes": {"M": 4, "K": 8},
                "bits_per_value": {"All": 8},
                "einsums": ["T[m] = A[m, k]", "Z[m, k] = T[m] * B[m, k]"],
            },
            "mapping": {
                "nodes": [
                    {"type": "Storage", "component": "DRAM", "tensors": ["A", "B", "T", "Z"]},
                    {"type": "Temporal", "rank_variable": "m", "tile_shape": 2},
                    {"type": "Temporal", "rank_variable": "k", "tile_shape": 8},
                    {"type": "Sequential", "nodes": [{"type": "Nested", "nodes": s} for s in stage]},
                ]
            },
        }
    )
    forms = pm.closed_forms(spec, tiles=True, ranks=True)
    assert str(forms.domain).endswith("TM0 <= M; TK0 <= K; TK0 = K")
    assert forms.at(M=6, K=5, TK0=5, TM0=6).summary["operations"].iloc[-1] == 60
    with pytest.raises(
        pm.SpecError, match=r"TK0 = 4, K = 5 are outside .*TK0 = K .*before T has finished it"
    ):
        forms.at(K=5, TK0=4)


def of_two_kernels(padding: str) -> pm.Spec:
    """A convolution, and a scaling whose r has another extent; every Einsum by itself."""
    memory = {"type": "Memory", "name": "DRAM", "tensors": {"keep": "All"}, "actions": []}
    stages = [[{"type": "Compute", "einsum": e, "component": "MAC"}] for e in "TZ"]
    return pm.load(
        {
            "schema_version": 1,
            "arch": {"nodes": [memory, {"type": "Compute", "name": "MAC", "actions": []}]},
            "workload": {
                "rank_sizes": {"P0": 12, "P1": 10, "R0": 3, "R1": 5},
                "bits_per_value": {"All": 8},
                "einsums": [
                    f"T[P1=p] = A[P0=p + r{padding}] * V[R0=r]",
                    "Z[P1=p] = T[P1=p] * W[R1=r]",
                ],
            },
            "mapping": {
                "nodes": [
                    {"type": "Storage", "component": "DRAM", "tensors": ["A", "V", "T", "W", "Z"]},
                    {"type": "Sequential", "nodes": [{"type": "Nested", "nodes": s} for s in stages]},
                ]
            },
        }
    )


def test_extents_that_differ_between_einsums_are_refused_with_a_remedy_that_helps() -> None:
    """Those of padded spaces, too, which have closed forms with numbers for extents."""
    plain = of_two_kernels("")
    with pytest.raises(NotSeparable, match=r"^r: extents differ between Einsums") as told:
        pm.closed_forms(plain, ranks=True)
    assert told.value.remedy == "leave extents numbers: no --ranks, ranks=False in Python"
    assert pm.closed_forms(plain, ranks=False).summary["operations"].tolist() == [30, 50, 80]
    padded = of_two_kernels(" - 1")
    with pytest.raises(NotSeparable, match=r"^r: extents differ between Einsums"):
        pm.closed_forms(padded, ranks=True)
    exact = pm.evaluate(padded, engine="exact").summary["operations"].tolist()
    assert pm.closed_forms(padded, ranks=False).summary["operations"].tolist() == exact


@pytest.mark.slow
def test_forms_hold_for_other_extents_and_tiles() -> None:
    tally = run_many(40)
    assert tally["equal"] >= 0.3 * tally["problems"], tally
    assert tally["narrower"] <= 0.1 * tally["compared"], tally
    assert min(tally["fused"], tally["ones"]) >= 3, tally


@pytest.mark.slow
def test_forms_hold_for_other_extents_and_tiles_at_length() -> None:
    tally = run_many(5000)
    assert tally["equal"] >= 0.3 * tally["problems"], tally
    assert tally["narrower"] <= 0.05 * tally["compared"], tally
