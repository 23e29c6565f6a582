"""Switches of graph slopes, chains against the reference pairs, nests, the GPT-3 layer."""

from __future__ import annotations

import json
import sys
from dataclasses import replace
from pathlib import Path

import pytest

import polymodel as pm
from polymodel.mapping.looptree import ComputeNode, Loop, LoopTree, Split, StorageNode
from polymodel.slopes.fused_graph import FusionRules, fused_graph
from polymodel.slopes.graph_slope import GraphPoint
from polymodel.slopes.group_curves import GroupCurves, Handed, nesting_fault, on_cycles
from tests.faults import refused
from tests.graphs import Figures, graph, lowest, referee, sized

CASES = Path(__file__).parents[1] / "reference" / "cases" / "skislope"
PAIR = ("T[m, n] = A[m, k] * B[k, n]", "Z[m, p] = T[m, n] * C[n, p]")


def curve(spec: pm.Spec, name: str = "tiled_fused", **switches: object) -> Figures:
    """The rules of the notes, which leave outer sizes free, unless a switch says otherwise."""
    chosen: dict[str, object] = {"equal_outer_sizes": False, **switches}
    found = pm.graph_slope(spec, curves=[name], **chosen)  # type: ignore[arg-type]  # any switch
    return list(found[name].figures)


@pytest.mark.parametrize("case", ["chain_32_16_64_16", "gpt_ffn_2048_4096_16384_4096"])
def test_chains_of_two_equal_the_reference_where_the_rules_coincide(case: str) -> None:
    """Unfused and untiled fused are the same rules; the graph may also leave the pair unfused."""
    known = json.loads((CASES / f"{case}.json").read_text())
    sizes = {v.upper(): int(n) for v, n in zip("mknp", case.split("_")[-4:], strict=True)}
    slope = pm.graph_slope(graph(*PAIR, **sizes), uneven=False)
    unfused, untiled = ([(c, a) for c, a in known[f"{n}_pareto"]] for n in ("unfused", "untiled_fusion"))
    assert list(slope["unfused"].figures) == unfused
    assert list(slope["untiled_fused"].figures) == lowest(unfused + untiled)


@pytest.mark.parametrize("case", ["chain_32_16_64_16", "gpt_ffn_2048_4096_16384_4096"])
def test_tiled_chains_differ_from_ffmr_by_the_smaller_maximal_term(case: str) -> None:
    """Footprints add here, where FFMR counts the larger of the two maximal terms: with one fused loop, where
    nothing else differs, every reference point is a mapping of ours with the smaller term on top."""
    known = json.loads((CASES / f"{case}.json").read_text())
    sizes = {v.upper(): int(n) for v, n in zip("mknp", case.split("_")[-4:], strict=True)}
    found = pm.graph_slope(graph(*PAIR, **sizes), uneven=False, curves=["tiled_fused"])["tiled_fused"]
    met = 0
    for point in known["ffmr_drop"]["pareto"]:
        if len(point["fused_order"]) == 1:
            terms = [point[e]["max"] + point["T_tile_words"] for e in ("E1", "E2")]
            added = sum(point[e]["add"] for e in ("E1", "E2"))
            assert point["buffer_words"] == added + max(terms)
            ours = found.at(added + sum(terms))
            assert ours.accesses <= point["accesses_words"]
            met += ours.accesses == point["accesses_words"]
    assert met > 0
    assert found.points[-1].accesses == known["algorithmic_min_fused"]


def test_uneven_tensors_never_cost_more() -> None:
    spec = pm.load("matmul_chain_2")
    even, uneven = curve(spec, uneven=False), curve(spec)
    assert lowest(even + uneven) == uneven
    assert even != uneven


@pytest.mark.slow
def test_flipped_operands_swap_what_may_be_uneven() -> None:
    """Inputs and weights of the library's chain are named; `uneven` by role, as written and swapped."""
    spec = pm.load("attention", M=16, P=8, E=4)
    written, flipped, both = (
        curve(spec, uneven=["weight"], operands=o) for o in ("as_written", "flipped", "both")
    )
    assert flipped == curve(spec, uneven=["input"], operands="as_written")
    assert written != flipped
    assert lowest(both + written + flipped) == both
    assert curve(spec, operands="flipped") == curve(spec)  # nothing else tells operands apart


@pytest.mark.slow
def test_heads_outermost_leave_fewer_mappings() -> None:
    spec = pm.load("attention", M=16, P=16, E=8)
    free, heads = curve(spec), curve(spec, roles={"head": ["H"]})
    assert lowest(free + heads) == free
    slope = pm.graph_slope(spec, roles={"head": ["H"]})
    fused = [e.fused for p in slope["tiled_fused"].points for e in p.einsums if e.fused]
    assert fused
    assert {loops[0][0] for loops in fused} == {"h"}
    assert curve(spec, roles={"head": ["H"]}, head=False) == free


@pytest.mark.slow
def test_batches_come_next() -> None:
    einsums = (
        "QK[batch, head, m, p] = Q[batch, head, m, e] * K[batch, head, p, e]",
        "Z[batch, head, m, f] = QK[batch, head, m, p] * V[batch, head, p, f]",
    )
    spec = graph(*einsums, BATCH=2, HEAD=2, M=4, P=4, E=2, F=2)
    for batch, first in ((True, {("head", "batch")}), (False, {("head", "batch"), ("head", "m"), ("head",)})):
        slope = pm.graph_slope(spec, batch=batch)
        loops = [e.fused for p in slope["tiled_fused"].points for e in p.einsums if e.fused]
        assert {tuple(v for v, _ in some[:2]) for some in loops} <= first


@pytest.mark.parametrize("name", ["unfused", "untiled_fused", "tiled_fused"])
def test_head_by_head_is_one_head_many_times(name: str) -> None:
    """Buffers are freed between heads: capacity of one head, accesses of all."""
    heads, one = (pm.load("attention", H=h, M=16, P=16, E=8) for h in (4, 1))
    freed = curve(heads, name, roles={"head": ["H"]}, head_is_tiled_fusion=False, uneven=False)
    assert freed == [(c, 4 * a) for c, a in curve(one, name, uneven=False)]


@pytest.mark.parametrize("name", ["unfused", "untiled_fused", "tiled_fused"])
def test_within_a_head_tensors_may_go_through_the_backing_store(name: str) -> None:
    einsums = ("T[h, b] = S[h, b]", "U[h, b] = T[h, b]", "V[h, b] = T[h, b] * U[h, b]")
    freed = curve(
        graph(*einsums, H=3, B=2), name, roles={"head": ["H"]}, head_is_tiled_fusion=False, uneven=False
    )
    assert freed == [(c, 3 * a) for c, a in curve(graph(*einsums, H=1, B=2), name, uneven=False)]


def test_head_by_head_is_said_and_verified() -> None:
    spec = pm.load("gpt3_6.7B", N_TOKENS=64)
    slope = pm.graph_slope(spec, roles={"head": ["H"]}, head_is_tiled_fusion=False, curves=["untiled_fused"])
    last = slope["untiled_fused"].points[-1]
    assert dict(last.handed)["QK"] == "headed H"
    assert slope.verdicts(last)["QK", "QK_softmax", "QK"].case == "untiled"
    assert last["QK"].freed == 1


@pytest.mark.thin(99)
@pytest.mark.parametrize("sizes", [{"M": 4, "P": 4, "E": 2, "F": 2}, {"M": 2, "P": 4, "E": 4, "F": 2}])
def test_partial_overlap_equals_every_mapping_that_waits(sizes: dict[str, int]) -> None:
    spec = graph("T[m, p] = Q[m, e] * K[p, e]", "S[m, p] = T[m, p]", "Z[m, f] = S[m, p] * V[p, f]", **sizes)
    assert curve(spec, partial_overlap=True) == lowest(referee(spec) + sized(spec, waits=True))
    assert curve(spec, partial_overlap=True) != curve(spec)
    slope = pm.graph_slope(spec, partial_overlap=True, equal_outer_sizes=False)
    reasons = [v.reason for p in slope["tiled_fused"].points for v in slope.verdicts(p).values()]
    assert "" not in reasons
    assert any("waits for tiles of" in r for r in reasons)


SCORES = (
    "T[h, m, p] = Q[h, m, e] * K[h, p, e]",
    "S[h, m, p] = T[h, m, p]",
    "Z[h, m, f] = S[h, m, p] * V[h, p, f]",
)


@pytest.mark.parametrize("waits", [False, True])
def test_equal_outer_sizes_equal_every_mapping_with_such(waits: bool) -> None:
    spec = graph(
        "T[m, p] = Q[m, e] * K[p, e]", "S[m, p] = T[m, p]", "Z[m, f] = S[m, p] * V[p, f]", M=4, P=4, E=2, F=2
    )
    found = curve(spec, equal_outer_sizes=True, partial_overlap=waits)
    assert found == sized(spec, waits=waits, equal=True)
    assert lowest(found + curve(spec, partial_overlap=waits)) == curve(spec, partial_overlap=waits)


@pytest.mark.slow
def test_unequal_outer_sizes_are_told() -> None:
    spec = pm.load("attention", M=16, P=16, E=8)
    slope = pm.graph_slope(spec, equal_outer_sizes=True, curves=["tiled_fused"])
    assert slope["tiled_fused"].figures != tuple(curve(spec))
    assert all(v for p in slope["tiled_fused"].points for v in slope.verdicts(p).values())
    free = pm.graph_slope(spec, curves=["tiled_fused"], equal_outer_sizes=False)
    rules = replace(free.graph.rules, equal_outer_sizes=True)
    strict = replace(free, graph=replace(free.graph, rules=rules))
    told = {v.reason for p in free["tiled_fused"].points for v in strict.verdicts(p).values() if not v}
    assert any(t.startswith("outer loops over ") for t in told)


def test_fused_trees_are_what_the_slope_says() -> None:
    """Points whose Einsums have equal fused loops, as one LoopTree: legal, equal accesses, no larger."""
    slope = pm.graph_slope(graph(*SCORES, H=2, M=4, P=4, E=2, F=2), equal_outer_sizes=True)
    met = 0
    for point in slope["tiled_fused"].points:
        if len({e.fused for e in point.einsums}) > 1 or not point.einsums[0].fused:
            continue
        report = pm.evaluate_problem(pm.Problem(slope.cascade, slope.hierarchy, whole_tree(point)))
        moved = report.accesses.query("component == 'DRAM'")
        assert int(moved["read_elements"].sum() + moved["write_elements"].sum()) == point.accesses
        peak = report.working_sets.query("component == 'Buffer' and measure == 'tile'")["bits"].max()
        assert peak <= 8 * point.capacity
        met += 1
    assert met >= 2


def whole_tree(point: GraphPoint) -> LoopTree:
    """One nest of the fused loops that all Einsums have, with a branch each below."""
    fused = point.einsums[0].fused
    nodes: list[object] = [StorageNode("DRAM", ("Q", "K", "V", "Z"))]
    for depth in range(len(fused) + 1):
        nodes += [Loop(*fused[depth - 1])] if depth else []
        here = {t for e in point.einsums for t, d in e.held if d == depth}
        nodes += [StorageNode("Buffer", tuple(sorted(here)), "slide")] if here else []
    branches = []
    for e, tensors in zip(point.einsums, ("QKT", "TS", "SVZ"), strict=True):
        rest = tuple(t for t in tensors if t not in dict(e.held) and t not in e.uneven)
        branch: list[object] = [StorageNode("Buffer", e.uneven, "slide")] if e.uneven else []
        branch += [Loop(v, t) for v, t in e.order]
        branch += [StorageNode("Buffer", rest, "slide")] if rest else []
        branches.append((*branch, ComputeNode(e.einsum, "MAC")))
    return LoopTree((*nodes, Split(tuple(branches))))


@pytest.mark.slow
def test_partial_overlap_of_too_many_sizes_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys.modules[GroupCurves.__module__], "MOST_OPTIONS", 100)
    with refused("too-large", "100", "QK", "SM", "Softmax"):
        curve(pm.load("attention", M=16, P=16), partial_overlap=True)


def test_persistent_intermediates_go_through_the_backing_store() -> None:
    spec = pm.load("attention", M=8, P=8, E=4)
    kept = fused_graph(spec.workload, FusionRules(), "words", "divisors").shared["QK"]
    assert kept.fusable
    raw = pm.load(
        {
            "schema_version": 1,
            "workload": {
                "rank_sizes": {"M": 8, "N": 4},
                "bits_per_value": {"All": 8},
                "persistent_tensors": "T",
                "einsums": ["T[m, n] = A[m] * B[n]", "U[m] = T[m, n]"],
            },
        }
    )
    slope = pm.graph_slope(raw)
    assert slope["tiled_fused"].figures == slope["unfused"].figures
    assert slope["unfused"].points[-1].accesses == slope.least_fused


def test_a_group_whose_member_waits_for_all_of_a_row_is_no_nest() -> None:
    """R needs whole rows of T, Y needs R and the same tile of T: T cannot be handed on tile by tile."""
    rows = Handed("R", 1, 1, (1, 2))
    assert nesting_fault([Handed("T", 2, 0, (0, 1, 2)), rows]) == (
        "a consumer of R would run before all of its tile is made"
    )
    assert nesting_fault([Handed("T", 1, 0, (0, 1, 2)), rows]) == ""
    detour = [Handed("T", 2, 0, (0, 1, 3)), Handed("U", 1, 1, (1, 2)), Handed("V", 1, 2, (2, 3))]
    assert nesting_fault(detour) == "branches below 1 shared loops wait for one another"
    assert on_cycles(detour) == {"T", "U", "V"}
    assert on_cycles([Handed("T", 1, 0, (0, 1)), Handed("U", 1, 1, (1, 2))]) == set()


@pytest.mark.slow
def test_plot_has_the_minima_and_the_gain() -> None:
    pytest.importorskip("matplotlib").use("Agg")
    slope = pm.graph_slope(pm.load("attention"))
    ax = slope.plot()
    assert ax.get_title() == "Least traffic of the graph for each buffer capacity"
    assert ax.get_xlabel() == "buffer capacity (words)"
    texts = [t.get_text() for t in ax.texts]
    assert any("minimum, fused: 16,384" in t for t in texts)
    assert "3" in "".join(texts)


@pytest.mark.slow
def test_the_gpt3_layer_is_confirmed_by_evaluate() -> None:
    slope = pm.graph_slope(pm.load("gpt3_6.7B"))
    assert slope["tiled_fused"].points[-1].accesses == slope.least_fused == 218_103_808
    assert slope["unfused"].points[-1].accesses == slope.least_unfused == 922_746_880
    for point in slope["tiled_fused"].points[::8]:
        assert all(slope.verdicts(point).values())
        total = sum(
            slope.graph.shared[t].elements for t, how in point.handed if how != "backing" and t == "I"
        )
        for e in point.einsums:
            moved = slope.report(point, e.einsum).accesses.query("component == 'DRAM'").set_index("tensor")
            held = dict(e.held)
            moving = [t for t in moved.index if t not in held]
            total += int(moved.loc[moving, ["read_elements", "write_elements"]].to_numpy().sum())
        assert total == point.accesses
