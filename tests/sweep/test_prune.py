"""Pruning before combining: the front is that of the whole grid, rows and numbers included."""

from __future__ import annotations

from typing import Any
from unittest import mock

import numpy as np
import pytest
from hypothesis import HealthCheck, assume, event, given, note, reject, settings
from hypothesis import strategies as st

import polymodel as pm
from benchmarks.pruning import matmul as large_matmul
from polymodel.analysis.symbolic.atoms import ONE, SIZE, Atom, ChainLevel, Leaf
from polymodel.analysis.symbolic.forms import Form
from polymodel.sweeps import boxes
from polymodel.sweeps import kernel as kernels
from polymodel.sweeps import run as sweeping
from polymodel.sweeps.axes import SymbolAxis
from polymodel.sweeps.grid import make_grid, roles
from polymodel.sweeps.kernel import ArrayKernel
from polymodel.sweeps.plan import FormRows
from polymodel.sweeps.prune import columns, pruned
from polymodel.sweeps.scenario import scenario
from polymodel.sweeps.work_units import Units

Tree = dict[str, Any]

# Einsums with their rank sizes, rank variables from small to large
WORKLOADS: tuple[tuple[list[str], dict[str, int], str], ...] = (
    (["Z[m, n] = A[m, k] * B[k, n]"], {"M": 7, "N": 5, "K": 6}, "mnk"),
    (["Z[p] = I[W=p+r] * F[r]"], {"P": 8, "R": 3}, "pr"),
    (["Z[p, m] = I[W=p+r, c] * F[r, c, m]"], {"P": 6, "R": 3, "C": 4, "M": 3}, "prcm"),
    (["Z[p, q] = I[H=p+r, W=q+s] * F[r, s]"], {"P": 5, "R": 3, "Q": 6, "S": 2}, "prqs"),
    (["T[m, n] = A[m, k] * B[k, n]", "Z[m, q] = T[m, n] * C[n, q]"],
     {"M": 6, "N": 4, "K": 3, "Q": 5}, "m"),
)  # fmt: skip
OBJECTIVES = (
    "energy", "latency", "edp", "accesses:DRAM", "reads:GLB", "writes:DRAM", "working_set:GLB",
    "working_set:RF",
)  # fmt: skip


def actions(draw: st.DrawFn, *names: str) -> list[Tree]:
    energies, rates = st.sampled_from([0, 1, 3]), st.sampled_from([1, 2, 7])
    return [{"name": n, "energy": draw(energies), "throughput": draw(rates)} for n in names]


def memory(draw: st.DrawFn, name: str, sizes: list[Any]) -> Tree:
    return {
        "type": "Memory", "name": name, "size": draw(st.sampled_from(sizes)), "tensors": {"may_keep": "All"},
        "actions": actions(draw, "read", "write"), "leak_power": draw(st.sampled_from([0, 1])),
        "ports": draw(st.sampled_from(["shared", "separate"])),
    }  # fmt: skip


def storage(draw: st.DrawFn, component: str, tensors: list[str]) -> list[Tree]:
    kept = [t for t in tensors if draw(st.integers(0, 4))]
    reuse = draw(st.sampled_from(["refill", "refill", "slide"]))
    return [{"type": "Storage", "component": component, "tensors": kept, "reuse": reuse}] if kept else []


@st.composite
def sweeps(draw: st.DrawFn) -> tuple[Tree, dict[str, list[int]], int]:
    """A spec with tile symbols, values of each, and how many points that makes."""
    einsums, ranks, variables = draw(st.sampled_from(WORKLOADS))
    fused = len(einsums) > 1
    symbols: dict[str, list[int]] = {}
    chosen = draw(st.lists(st.sampled_from(variables), min_size=1, max_size=4))

    def loops(names: list[str], spatial: bool = False) -> list[Tree]:
        found = []
        for v in names:
            symbol = f"T{v.upper()}{len(symbols)}"
            symbols[symbol] = draw(st.sampled_from([list(range(1, 9)), [5, 3, 2, 1], [1, 2, 4, 6]]))
            place = {"component": "PE", "name": "X"} if spatial else {}
            found.append(
                {
                    "type": "Spatial" if spatial else "Temporal",
                    **place,
                    "rank_variable": v,
                    "tile_shape": symbol,
                }
            )
        return found

    cut = draw(st.integers(0, len(chosen)))
    every = ["A", "B", "C", "T", "Z"] if fused else ["A", "B", "I", "F", "Z"]
    tensors = [t for t in every if any(f"{t}[" in e for e in einsums)]
    nodes = [{"type": "Storage", "component": "DRAM", "tensors": tensors}, *loops(chosen[:cut])]
    if fused:
        nodes[0] = {**nodes[0], "tensors": [t for t in tensors if t != "T"]}
        nodes.append({"type": "Storage", "component": "GLB", "tensors": tensors})
        inner = [["k"], ["q"]]
        branches = [[*loops(v), {"type": "Compute", "einsum": e[0], "component": "MAC"}]
                    for e, v in zip(einsums, inner, strict=True)]  # fmt: skip
        nodes.append({"type": "Sequential", "nodes": [{"type": "Nested", "nodes": b} for b in branches]})
    else:
        nodes += [*storage(draw, "GLB", tensors), *loops(chosen[cut:])]
        if draw(st.booleans()):
            nodes += loops([draw(st.sampled_from(variables))], spatial=True)
        nodes += storage(draw, "RF", tensors)
        nodes.append({"type": "Compute", "einsum": "Z", "component": "MAC"})
    arch = {
        "nodes": [
            memory(draw, "DRAM", ["inf"]),
            memory(draw, "GLB", ["inf", 60, 130, 300]),
            {"type": "Container", "name": "PE", "spatial": [{"name": "X", "fanout": 3, "may_reuse": "All"}]},
            memory(draw, "RF", ["inf", 20, 60]),
            {"type": "Compute", "name": "MAC", "actions": actions(draw, "compute")},
        ]
    }
    workload = {
        "rank_sizes": ranks, "einsums": einsums,
        "bits_per_value": {"All": draw(st.sampled_from([1, 3]))},
    }  # fmt: skip
    size = 1
    for values in symbols.values():
        size *= len(values)
    open_ = dict.fromkeys(symbols)
    return {"arch": arch, "workload": workload, "mapping": {"nodes": nodes}, "symbols": open_}, symbols, size


def same_front(spec: pm.Spec, symbols: Any, **asked: Any) -> pm.Sweep:
    """The pruned sweep, after comparing it with the whole one."""
    whole = pm.sweep(spec, symbols, prune=False, **asked)
    pruned = pm.sweep(spec, symbols, prune=True, **asked)
    assert pruned.frame.equals(whole.frame), (pruned.frame, whole.frame)
    assert pruned.points == whole.points
    assert pruned.evaluated + pruned.pruned == whole.evaluated
    assert skipped(pruned) == skipped(whole)
    assert pruned.feasible <= whole.feasible
    for reason, count in pruned.infeasible.items():
        assert count <= whole.infeasible[reason]
    assert in_boxes(spec, symbols, whole, **asked).evaluated <= pruned.evaluated
    return pruned


def in_boxes(spec: pm.Spec, symbols: Any, whole: pm.Sweep, **asked: Any) -> pm.Sweep:
    """The sweep by boxes of the grid, however small it is, after comparing it with the whole one."""
    small = {"FEWEST": 1, "POINTS": 2, "BOXES": 64, "SEEDS": 3, "SHARE": 500}
    with mock.patch.multiple(boxes, **small):
        found = pm.sweep(spec, symbols, prune=True, **asked)
    assert found.frame.equals(whole.frame), (found.frame, whole.frame)
    assert found.points == whole.points
    assert found.evaluated + found.pruned == whole.evaluated
    assert skipped(found) == skipped(whole)
    for reason, count in found.infeasible.items():
        assert count <= whole.infeasible[reason]
    return found


def skipped(sweep: pm.Sweep) -> int:
    return sum(n for reason, n in sweep.infeasible.items() if "tile size" in reason)


def no_closed_form(*arguments: object) -> None:
    raise next(a for a in arguments if isinstance(a, pm.Refused))


@pytest.mark.slow
@settings(max_examples=60, deadline=None, suppress_health_check=list(HealthCheck))
@given(sweeps(), st.lists(st.sampled_from(OBJECTIVES), min_size=1, max_size=3, unique=True))
def test_fronts_are_those_of_the_whole_grid(
    case: tuple[Tree, dict[str, list[int]], int], objectives: list[str]
) -> None:
    tree, symbols, size = case
    assume(size <= 5000)
    note(str(tree["mapping"]))
    with mock.patch.object(sweeping, "evaluate_points", side_effect=no_closed_form):
        try:
            spec = pm.load(tree)
            best = pm.sweep(spec, symbols, objectives=objectives, keep="top", top=7, prune=False)
        except (pm.SpecError, pm.Refused) as why:
            event(str(why)[:90])
            reject()
        same_front(spec, symbols, objectives=objectives)
        in_boxes(spec, symbols, best, objectives=objectives, keep="top", top=7)


def matmul(size: Any = 700, inner: Any = 60, energy: int = 1, leak: int = 0) -> pm.Spec:
    """Two tile levels of every variable."""
    rate = [{"name": w, "energy": energy, "throughput": 1} for w in ("read", "write")]
    every = ["A", "B", "Z"]
    loops = [[{"type": "Temporal", "rank_variable": v, "tile_shape": f"T{v.upper()}{i}"} for v in "mnk"]
             for i in (1, 0)]  # fmt: skip
    return pm.load(
        {
            "symbols": {**{f"T{v}{i}": None for v in "MNK" for i in (0, 1)}, "S": 500},
            "arch": {
                "nodes": [
                    {"type": "Memory", "name": "DRAM", "actions": rate, "leak_power": leak},
                    {"type": "Memory", "name": "GLB", "size": size, "actions": rate},
                    {"type": "Memory", "name": "RF", "size": inner, "actions": rate},
                    {"type": "Compute", "name": "MAC", "actions": [{"name": "compute", "throughput": 1}]},
                ]
            },
            "workload": {
                "rank_sizes": {"M": 12, "N": 10, "K": 9},
                "bits_per_value": {"All": 1},
                "einsums": ["Z[m, n] = A[m, k] * B[k, n]"],
            },
            "mapping": {
                "nodes": [
                    {"type": "Storage", "component": "DRAM", "tensors": every}, *loops[0],
                    {"type": "Storage", "component": "GLB", "tensors": every}, *loops[1],
                    {"type": "Storage", "component": "RF", "tensors": every},
                    {"type": "Compute", "einsum": "Z", "component": "MAC"},
                ]
            },
        }
    )  # fmt: skip


LEVELS = {f"T{v.upper()}{i}": pm.all_sizes(v) for i in (1, 0) for v in "mnk"}


def test_chains_are_pruned_as_a_whole() -> None:
    found = same_front(matmul(), LEVELS)
    assert found.pruned > 15 * found.evaluated
    assert f"pruned: {found.pruned} points" in repr(found)


@pytest.mark.slow
def test_one_level_keeps_the_smallest_size_of_each_trip_count() -> None:
    nodes = [
        {"type": "Storage", "component": "DRAM", "tensors": ["A", "B", "C"]},
        {"type": "Temporal", "rank_variable": "k", "tile_shape": "TK"},
        {"type": "Storage", "component": "GLB", "tensors": ["A", "B", "C"]},
        {"type": "Compute", "einsum": "Matmul", "component": "MAC"},
    ]
    spec = pm.load("matmul", "simple_two_level", {"mapping": {"nodes": nodes}}, M=8, N=8, K=4096)
    found = same_front(spec, {"TK": pm.all_sizes("k")}, objectives=("accesses:DRAM", "working_set:GLB"))
    assert found.evaluated <= 2 * 64


@pytest.mark.thin(99)
@pytest.mark.parametrize("where", ["TM1 != 6", "TM1 <= TN1", "TM1 * TM0 > 9", "TK0 + TK1 + TM1 > 14"])
def test_constraints(where: str) -> None:
    found = same_front(matmul(), {**LEVELS, "TN1": [5]}, where=[where])
    assert found.pruned


def test_linked_symbols_and_several_architectures() -> None:
    spec = matmul("S")
    symbols: dict[str, Any] = {**LEVELS, "TN1": "min(10, 2*TM0)", "TN0": "1", "S": [90, 300]}
    same_front(spec, {**symbols, "TN0": [1]})


def test_leakage_makes_latency_count() -> None:
    symbols: dict[str, Any] = {**LEVELS, "TN1": [5], "TN0": [5]}
    found = same_front(matmul(energy=0, leak=1, size="inf", inner=40), symbols, objectives=["energy"])
    assert found.best()["energy"] > 0


def test_windows_are_pruned_as_far_as_any_filter_allows() -> None:
    """Of a sum of two products over two axes, what is pruned is all that one axis can tell."""
    nodes = [
        {"type": "Storage", "component": "DRAM", "tensors": ["I", "W", "O"]},
        *({"type": "Temporal", "rank_variable": v, "tile_shape": f"T{v.upper()}"} for v in "pr"),
        {"type": "Storage", "component": "GLB", "tensors": ["I", "W", "O"]},
        {"type": "Compute", "einsum": "Conv", "component": "MAC"},
    ]
    memories = [{"type": "Memory", "name": n, "tensors": {"may_keep": "All"}} for n in ("DRAM", "GLB")]
    arch = {"nodes": [*memories, {"type": "Compute", "name": "MAC"}]}
    spec = pm.load("conv1d", {"arch": arch, "mapping": {"nodes": nodes}}, P=24, R=5)
    symbols: dict[str, Any] = {
        "TP": [5, 9, 1, 7, 24, *range(23, 9, -1), 8, 6, 4, 3, 2],
        "TR": [5, 1, 2, 4, 3],
    }
    every = pm.sweep(spec, symbols, objectives=["reads:DRAM"], keep="all").frame
    reads = every.pivot(index="TP", columns="TR", values="reads:DRAM").loc[list(symbols["TP"])].to_numpy()
    grid = make_grid(spec, symbols, ())
    block = scenario(spec, grid, roles(spec, grid), 0, "", 0, {})
    axes = {a.names: a for a in pruned(block, ["reads:DRAM"], grid).axes}
    left = [i for i, r in enumerate(reads) if not any((q <= r).all() for q in reads[:i])]
    assert axes["TP",].columns["TP"].tolist() == [symbols["TP"][i] for i in left]
    assert 2 <= len(left) < 6


@pytest.mark.parametrize("objectives", [("energy",), ("accesses:DRAM", "energy"), ("latency",), ("edp",)])
@pytest.mark.parametrize("values", [[1, 2, 3, 4, 6, 12], [12, 1, 6, 2, 4, 3]])
def test_what_is_worse_for_sure_goes_whatever_its_number(
    objectives: tuple[str, ...], values: list[int]
) -> None:
    """Without limits the largest tiles are best, which have the highest numbers."""
    symbols: dict[str, Any] = {
        "TM1": values,
        "TM0": [1],
        "TN1": [1, 2, 5, 10],
        "TN0": [1],
        "TK1": [3],
        "TK0": [1],
    }
    found = same_front(matmul("inf", "inf"), symbols, objectives=objectives)
    if "energy" in objectives:
        assert found.evaluated == 1


@pytest.mark.slow
@pytest.mark.parametrize("prune", [True, False])
def test_progress_is_that_of_the_work(prune: bool) -> None:
    told: list[tuple[int, int]] = []
    small = mock.patch.object(sweeping, "LINES", 2), mock.patch.object(kernels, "RIGHT", 64)
    with small[0], small[1], mock.patch.object(sweeping, "BLOCK", 64):
        found = pm.sweep(matmul(), LEVELS, prune=prune, progress=lambda done, of, _: told.append((done, of)))
    assert {of for _, of in told} == {found.evaluated}
    assert told[-1][0] == found.evaluated
    assert len(told) > 3
    assert 0 < told[0][0] < found.evaluated


def test_only_fronts_are_pruned() -> None:
    symbols: dict[str, Any] = {**LEVELS, "TN1": [5], "TN0": [5], "TK1": [9], "TK0": [3]}
    for keep in ("all", "top"):
        found = pm.sweep(matmul(), symbols, keep=keep, prune=True)
        assert not found.pruned
    assert not pm.sweep(matmul(), symbols).pruned, "too few points to be worth it"


def test_axes_without_a_legal_choice_have_nothing_to_prune() -> None:
    """No tile fits m: every point is counted under its tiles, as without pruning."""
    symbols: dict[str, Any] = {**LEVELS, "TM1": [13, 14], "TN1": [5], "TN0": [5]}
    found = same_front(matmul(), symbols)
    assert (found.evaluated, found.pruned, len(found.frame)) == (0, 0, 0)


def test_stores_and_workers(tmp_path: Any) -> None:
    symbols: dict[str, Any] = {**LEVELS, "TK1": [3, 9], "TK0": [2, 3]}
    whole = pm.sweep(matmul(), symbols, prune=True)
    found = pm.sweep(matmul(), symbols, prune=True, store=tmp_path, workers=2)
    again = pm.sweep(matmul(), symbols, prune=True, store=tmp_path, workers=2)
    for other in (found, again):
        assert other.frame.equals(whole.frame)
        assert (other.pruned, other.evaluated) == (whole.pruned, whole.evaluated)
        assert other.infeasible == whole.infeasible


@pytest.mark.slow
def test_boxes_of_a_large_grid_in_a_store(tmp_path: Any) -> None:
    """Several units, two processes: the rows and counts of one."""
    spec, asked = large_matmul(128), ("energy", "latency", "working_set:SRAM")
    whole = pm.sweep(spec, LEVELS, objectives=asked)
    assert whole.evaluated < 10**6 < whole.pruned
    found = pm.sweep(spec, LEVELS, objectives=asked, store=tmp_path, workers=2)
    again = pm.sweep(spec, LEVELS, objectives=asked, store=tmp_path, workers=2)
    for other in (found, again):
        assert other.frame.equals(whole.frame)
        assert (other.pruned, other.evaluated, other.infeasible) == (
            whole.pruned, whole.evaluated, whole.infeasible
        )  # fmt: skip


def test_what_was_found_before_a_sweep_is_broken_off_is_kept() -> None:
    """Boxes are looked at until the time is over; the rows are the front of what was looked at."""
    looks = iter([None] * 3)

    def look(self: Units) -> None:
        if next(looks, 0) == 0:
            raise pm.TimeUp("the time is over")

    with mock.patch.multiple(boxes, FEWEST=1, BOXES=16), mock.patch.object(Units, "look", look):
        found = pm.sweep(matmul(), LEVELS, prune=True)
    assert not found.complete
    assert len(found.frame)
    assert "stopped at the time limit" in str(found.notes)


NUMBERS = st.lists(st.integers(-5, 5), min_size=2, max_size=4)


@settings(max_examples=80, deadline=None)
@given(NUMBERS, st.integers(1, 9), st.integers(0, 2))
def test_columns_tell_all_that_holds_whatever_the_other_axis(
    coefficients: list[int], extent: int, shift: int
) -> None:
    """Of sums of two products nothing is missed; of longer ones nothing wrong is said."""
    mine = [Atom(12, (ChainLevel("T", "each"),), leaf) for leaf in (ONE, Leaf("over", shift), SIZE, ONE)]
    other = [Atom(extent, (ChainLevel("S", "each"),), leaf) for leaf in (ONE, Leaf("over", 1))]
    products = [(mine[0], other[0]), (mine[1],), (mine[0], other[1]), (mine[1], other[1], other[0])]
    form = Form(tuple((p, c) for p, c in zip(products, coefficients, strict=False) if c))
    sizes = [np.arange(1, n + 1) for n in (12, extent)]
    axes = [
        SymbolAxis((n,), {n: t}, np.arange(len(t)), len(t), len(t)) for n, t in zip("TS", sizes, strict=True)
    ]
    kernel = ArrayKernel(axes, FormRows(), {})
    place = [a.names for a in kernel.axes].index(("T",))
    values = np.array([[form.at({"T": t, "S": s}) for s in sizes[1].tolist()] for t in sizes[0].tolist()])
    found = [c for c, _ in columns(kernel, [form], place)]
    said = np.array([[all(c[a] <= c[b] for c in found) for b in range(12)] for a in range(12)])
    true = np.array([[(values[a] <= values[b]).all() for b in range(12)] for a in range(12)])
    assert not (said & ~true).any()
    if len(coefficients) == 2:
        assert (said == true).all()
