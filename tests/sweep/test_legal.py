"""Dependences over a whole grid: kept at all points, at some, or at none."""

from __future__ import annotations

from itertools import product
from math import comb, prod
from pathlib import Path
from typing import Any

import joblib
import pandas as pd
import pytest

import polymodel as pm
from polymodel.errors import NotSeparable, TimeUp
from polymodel.sweeps import legal, pointwise, run, work_units
from tests.analysis.test_symbolic_tied import access
from tests.faults import faults, refused
from tests.seeds import seeds
from tests.support.small_specs import leaf, loop, memory, split, storage, unit
from tests.sweep.small import same, written

# Sums over k, by A in time and by B in space; C has no storage above the instances that sum it up.
ROW = """
arch:
  nodes:
  - !Memory {name: DRAM, actions: [{name: read, energy: 1}, {name: write, energy: 1}]}
  - !Container {name: PE, spatial: [{name: X, fanout: 8, may_reuse: All}]}
  - !Memory {name: RF, actions: [{name: read, energy: 0.1}, {name: write, energy: 0.1}]}
  - !Compute {name: MAC, actions: [{name: compute, energy: 1}]}
symbols: {A: null, B: null}
workload:
  rank_sizes: {M: 2, K: 8}
  bits_per_value: {All: 8}
  einsums: ["C[m] = A[m, k]"]
"""
NODES: list[dict[str, Any]] = [
    {"type": "Storage", "component": "DRAM", "tensors": ["A"]},
    {"type": "Temporal", "rank_variable": "k", "tile_shape": "A"},
    {"type": "Spatial", "rank_variable": "k", "tile_shape": "B", "component": "PE", "name": "X"},
    {"type": "Storage", "component": "RF", "tensors": ["C"]},
    {"type": "Compute", "einsum": "C", "component": "MAC"},
]
EVERY = {"A": list(range(1, 9)), "B": list(range(1, 9))}


# T is summed over k and read below the same loops: whatever they split over k is read too early.
FUSED = """
arch:
  nodes:
  - !Memory {name: DRAM, actions: [{name: read, energy: 1, throughput: 1}, {name: write, energy: 1}]}
  - !Memory {name: GLB, size: 150, actions: [{name: read, energy: 0.1}, {name: write, energy: 0.1}]}
  - !Compute {name: MAC, actions: [{name: compute, energy: 1, throughput: 1}]}
symbols: {TM: null, TK: null, TI: null}
workload:
  rank_sizes: {M: 5, K: 4}
  bits_per_value: {All: 8}
  einsums: ["T[m] = A[m, k]", "Z[m, k] = A[m, k] * T[m]"]
"""


def _own(einsum: str, variable: str, tile: str) -> dict[str, Any]:
    loop = {"type": "Temporal", "rank_variable": variable, "tile_shape": tile}
    return {"type": "Nested", "nodes": [loop, {"type": "Compute", "einsum": einsum, "component": "MAC"}]}


SHARED: list[dict[str, Any]] = [
    {"type": "Storage", "component": "DRAM", "tensors": ["A", "Z"]},
    {"type": "Temporal", "rank_variable": "m", "tile_shape": "TM"},
    {"type": "Temporal", "rank_variable": "k", "tile_shape": "TK"},
    {"type": "Storage", "component": "GLB", "tensors": ["A", "T", "Z"]},
    {"type": "Sequential", "nodes": [_own("T", "m", "TI"), _own("Z", "k", "1")]},
]
TILES: dict[str, Any] = {"TM": pm.all_sizes("m"), "TK": pm.all_sizes("k"), "TI": pm.all_sizes("m")}
LEGAL = sum(range(1, 6))  # TI <= TM, and TK is whole
EARLY = "Z reads T before T has finished it: the loop over k (node 2) stands above their split"
KEEPS: list[dict[str, Any]] = [{"keep": "front"}, {"keep": "all"}, {"keep": "top", "top": 5}]


def _swept(grid: dict[str, Any], where: list[str] | None = None) -> Any:
    return pm.sweep(written(ROW, NODES), grid, objectives=("energy",), keep="all", where=where or [])


def _points(swept: Any) -> set[tuple[int, int]]:
    return set(zip(swept.frame["A"], swept.frame["B"], strict=True))


def _one_by_one(monkeypatch: pytest.MonkeyPatch, *arguments: Any, **options: Any) -> Any:
    """The same sweep, each of its points by `evaluate`."""

    def refused(*_: Any, **__: Any) -> None:
        raise NotSeparable("asked for", code="unsupported-symbol")

    with monkeypatch.context() as patched:
        patched.setattr(run, "scenario", refused)
        return pm.sweep(*arguments, **options)


def test_points_between_the_finest_and_the_coarsest_are_decided() -> None:
    """Both (1, 1) and (8, 8) run on one instance; (8, 1) sums C up in eight."""
    swept = _swept(EVERY)
    assert not swept.notes
    assert _points(swept) == {(a, a) for a in range(1, 9)}
    (reason,) = (r for r in swept.infeasible if "sums C up in several instances" in r)
    assert swept.infeasible[reason] == sum(range(8))  # B < A
    assert f"infeasible: 28 ({reason})" in repr(swept)
    assert reason in swept.to_html(plots=False)
    with faults("illegal-dependence", "C", at="mapping"):
        pm.evaluate(written(ROW, NODES).bind(A=8, B=1))


def test_a_large_grid_with_broken_points_is_decided_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pointwise, "MOST", 20)
    assert _points(_swept(EVERY)) == {(a, a) for a in range(1, 9)}
    assert _points(_swept(EVERY, ["A == B"])) == {(a, a) for a in range(1, 9)}


@pytest.mark.thin(99)
@pytest.mark.parametrize("prune", [True, False], ids=["pruned", "whole"])
@pytest.mark.parametrize("kept", KEEPS, ids=str)
def test_rows_and_counts_are_those_of_points_one_by_one(
    kept: dict[str, Any], prune: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    spec = written(FUSED, SHARED)
    options: dict[str, Any] = {"objectives": ("energy", "working_set:GLB"), "prune": prune, **kept}
    swept = pm.sweep(spec, TILES, **options)
    single = _one_by_one(monkeypatch, spec, TILES, **options)
    same_rows(swept, single)
    assert set(swept.frame["TK"]) == {4}
    if kept["keep"] != "front" or not prune:
        assert swept.infeasible[EARLY] == single.infeasible[EARLY] == 3 * LEGAL
        assert swept.feasible == single.feasible


def test_legal_points_are_not_pruned_for_illegal_ones() -> None:
    """Each TK below 4 holds less of A and Z than 4 does, and is illegal."""
    options: dict[str, Any] = {"objectives": ("energy", "working_set:GLB")}
    spec = written(FUSED, SHARED)
    swept = pm.sweep(spec, TILES, **options, prune=True)
    assert swept.pruned
    same_rows(swept, pm.sweep(spec, TILES, **options, prune=False))
    same_rows(swept, pm.sweep(spec, TILES, **options, where=["TK == 4"], prune=True), "point", "TK")


@pytest.mark.parametrize("kept", seeds(1, KEEPS), ids=str)
def test_processes_stores_and_resumed_runs_count_the_same(
    kept: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(run, "LINES", 100)
    monkeypatch.setattr(run, "BLOCK", 400)
    monkeypatch.setattr(work_units, "SAVE_EVERY", 0.0)
    spec, calls = written(FUSED.replace("M: 5", "M: 64").replace("size: 150", "size: 2000"), SHARED), 0
    options: dict[str, Any] = {"objectives": ("energy", "latency"), **kept}
    whole = pm.sweep(spec, TILES, **options)
    assert whole.infeasible[EARLY] == 3 * sum(range(1, 65))

    def interrupt(done: int, total: int, seconds: float) -> None:
        nonlocal calls
        calls += 1
        if calls == 3:
            raise KeyboardInterrupt

    broken = pm.sweep(spec, TILES, **options, store=tmp_path, progress=interrupt)
    assert not broken.complete
    assert broken.infeasible.get(EARLY, 0) < whole.infeasible[EARLY]
    same(pm.sweep(spec, TILES, **options, store=tmp_path), whole)
    same(pm.sweep(spec, TILES, **options, workers=2), whole)


@pytest.mark.slow
def test_a_dask_cluster_counts_the_same() -> None:
    distributed = pytest.importorskip("distributed")
    spec, options = written(FUSED, SHARED), {"objectives": ("energy", "latency")}
    with (
        distributed.LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address=None) as cluster,
        distributed.Client(cluster),
        joblib.parallel_config("dask"),
    ):
        two = pm.sweep(spec, TILES, **options, workers=3)
    same(two, pm.sweep(spec, TILES, **options))


@pytest.mark.parametrize("kept", seeds(1, KEEPS), ids=str)
def test_sparse_figures_of_legal_points_alone(kept: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    spec = written(FUSED.replace("einsums:", "densities: {A: 0.25}\n  einsums:"), SHARED)
    options: dict[str, Any] = {"objectives": ("sparse_energy", "sparse_working_set:GLB"), **kept}
    swept = pm.sweep(spec, TILES, **options)
    assert not swept.notes
    single = _one_by_one(monkeypatch, spec, TILES, **options)
    same_rows(swept, single)
    assert swept.infeasible[EARLY] == single.infeasible[EARLY] == 3 * LEGAL


def test_more_sets_of_loops_than_are_looked_at_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(legal, "MOST", 2)
    monkeypatch.setattr(pointwise, "MOST", 7)
    with refused("too-large", "Z", "T") as refusal:
        pm.sweep(written(FUSED, SHARED), TILES)
    assert "leave some out by `where`" in refusal.value.remedy


def test_sets_of_loops_that_no_verdict_tells_apart_are_decided_at_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Of the twelve sets in which loops run more than once, the loop over k alone matters."""
    spec, looks = written(FUSED, SHARED), []
    check = legal.check
    monkeypatch.setattr(legal, "check", lambda problem, **_: looks.append(problem) or check(problem))
    assert set(pm.sweep(spec, TILES, keep="all").frame["TK"]) == {4}
    assert len(looks) < 10


# A product over five rank variables: those points are legal that hold all of k above the split.
WIDE = (
    FUSED.replace("rank_sizes: {M: 5, K: 4}", "rank_sizes: {M: 4, N: 4, P: 4, Q: 4, K: 4}")
    .replace("A[m, k]", "A[m, n, p, q, k]")
    .replace("Z[m, k]", "Z[m, n, p, q, k]")
    .replace("T[m]", "T[m, n, p, q]")
)


@pytest.mark.parametrize(
    ("most", "below", "sizes"), seeds(1, [(100, "U", [1, 2, 4]), (10_000, "UV", [1, 2, 3, 4])])
)
def test_more_sets_of_loops_than_may_be_looked_at(
    most: int, below: str, sizes: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The tiles below the split make many sets, of 400 and more points, that no verdict tells apart."""
    own = [{"type": "Temporal", "rank_variable": v, "tile_shape": f"{t}{v}"} for t in below for v in "mnpqk"]
    above = [{"type": "Temporal", "rank_variable": v, "tile_shape": f"T{v}"} for v in "mnpqk"]
    branches = [
        {"type": "Nested", "nodes": [*loops, {"type": "Compute", "einsum": e, "component": "MAC"}]}
        for e, loops in (("T", own), ("Z", []))
    ]
    spec_nodes = [SHARED[0], *above, SHARED[3], {"type": "Sequential", "nodes": branches}]
    names = [n["tile_shape"] for n in (*above, *own)]
    free = ", ".join(f"{n}: null" for n in names)
    spec = written(WIDE.replace("{TM: null, TK: null, TI: null}", f"{{{free}}}"), spec_nodes)
    seen, kinds = [], legal._kinds
    monkeypatch.setattr(legal, "_kinds", lambda *a: (k := kinds(*a), seen.append(len(k.once)))[0])
    for module in (legal, pointwise):
        monkeypatch.setattr(module, "MOST", most)
    swept = pm.sweep(spec, dict.fromkeys(names, sizes), objectives=["energy", "working_set:GLB"], prune=False)
    assert prod(seen) > most
    deep, count = len(below), len(sizes)
    chains = comb(count + deep, 1 + deep)  # of one variable: tiles that do not grow
    early = next(r for r in swept.infeasible if "reads T before T has finished it" in r)
    assert swept.infeasible[early] == (chains - comb(count - 1 + deep, deep)) * chains**4
    assert swept.evaluated == chains**5
    assert set(swept.frame["Tk"]) == {4}
    assert not any("one by one" in n for n in swept.notes)


def test_the_time_limit_holds_while_points_are_decided(monkeypatch: pytest.MonkeyPatch) -> None:
    def passed(doing: str = "") -> None:
        raise TimeUp(doing)

    monkeypatch.setattr(legal, "look", passed)
    swept = pm.sweep(written(FUSED, SHARED), TILES)
    assert not swept.complete
    assert "stopped at the time limit after 0 of" in swept.notes[0]


def same_rows(a: Any, b: Any, *leave_out: str) -> None:
    pd.testing.assert_frame_equal(
        a.frame.drop(columns=list(leave_out)), b.frame.drop(columns=list(leave_out)), check_exact=True
    )


def test_a_grid_in_which_all_points_are_broken_is_an_error() -> None:
    with faults("illegal-dependence", "C", at="mapping"):
        _swept({"A": [4, 8], "B": [1, 2, 3]})


def banded(**tiles: int | None) -> pm.Spec:
    """Sums of a band whose readers share both loops: a tile of columns that cuts a row of it breaks it."""
    einsums = [
        {
            "name": name,
            "iteration_space_shape": "2*m <= n and n < 2*m + 2",
            "tensor_accesses": [access(t, list(ranks), t == name) for t, ranks in accesses],
        }
        for name, accesses in (
            ("D", (("P", "mn"), ("D", "m"))),
            ("O", (("P", "mn"), ("D", "m"), ("O", "mn"))),
        )
    ]
    inner = (loop("m", 1), loop("n", 1))
    nodes = [storage("DRAM", "P", "D", "O"), loop("m", "TM"), loop("n", "TN"), storage("GLB", "P", "D", "O")]
    nodes.append(split([*inner, leaf("D")], [*inner, leaf("O")]))
    return pm.load(
        {
            "schema_version": 1,
            "arch": {"nodes": [memory("DRAM", 1e-10), memory("GLB", 1e-12), unit()]},
            "workload": {
                "rank_sizes": {"M": 6, "N": 12},
                "bits_per_value": {"All": 8},
                "einsums": einsums,
            },
            "mapping": {"nodes": nodes},
            "symbols": tiles,
        }
    )


def test_a_verdict_that_depends_on_sizes_is_that_of_each_point() -> None:
    """Where bounds tie the variables of shared loops, points in which the same loops run once may differ."""
    points = list(product((1, 2, 6), (2, 3, 4, 12)))
    columns = dict(zip(("TM", "TN"), map(list, zip(*points, strict=True)), strict=True))
    found = pm.compile(banded(TM=None, TN=None))(columns)
    assert found["legal"].tolist() == [tn % 2 == 0 for _, tn in points]
    assert all("before D has finished it" in r for r in found["reason"][~found["legal"]])
    swept = pm.sweep(banded(TM=None, TN=None), {"TM": [1, 2, 6], "TN": [2, 3, 4, 12]}, keep="all").frame
    legal = {(a, b) for a, b, fits in zip(swept["TM"], swept["TN"], swept["feasible"], strict=True) if fits}
    assert legal == {point for point in points if point[1] % 2 == 0}
    for (tm, tn), energy, legal_here in zip(points, found["energy"], found["legal"], strict=True):
        if legal_here:
            assert energy == pm.evaluate(banded(TM=tm, TN=tn)).total_energy
