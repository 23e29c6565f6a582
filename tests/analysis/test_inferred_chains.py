"""Chains of convolutions whose loops bind the last one: real sizes by hand, small ones by the referee."""

from __future__ import annotations

from random import Random
from typing import Any

import pytest

import polymodel as pm
from benchmarks.fused import chain
from polymodel.analysis.enumerate import ENGINE as REFEREE
from polymodel.analysis.exact import ENGINE as exact_engine
from polymodel.analysis.exact import lifetimes
from polymodel.analysis.result import Engine, Problem
from polymodel.analysis.symbolic import ENGINE as symbolic_engine
from polymodel.errors import NotSeparable
from tests.analysis.test_agreement import differences
from tests.seeds import seeds

EXACT: Engine = exact_engine
CLOSED: Engine = symbolic_engine


def _problem(count: int, size: int, channels: int, columns: bool) -> Problem:
    spec = chain(count, size, channels, columns=columns)
    assert spec.mapping is not None
    return Problem(spec.workload, spec.arch, spec.mapping)


@pytest.mark.parametrize("columns", [True, False])
@pytest.mark.parametrize(("count", "size", "channels"), [(2, 6, 2), (3, 6, 1), (4, 5, 1)])
@pytest.mark.thin(99)
def test_small_chains_agree_with_the_referee(
    count: int, size: int, channels: int, columns: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    given = _problem(count, size, channels, columns)
    referee = REFEREE.analyse(given, live=True)
    assert not differences(EXACT.analyse(given, live=True), referee)
    monkeypatch.setattr(lifetimes, "_LISTED", 0)  # products of factors also here
    assert not differences(EXACT.analyse(given, live=True), referee)


@pytest.mark.slow
@pytest.mark.parametrize("columns", [True, False])
def test_eight_fused_convolutions_of_which_the_last_is_bound(columns: bool) -> None:
    """1.5e10 operations: nothing is made twice, and the first row of pixels needs most rows of every map."""
    found = EXACT.analyse(_problem(8, 224, 64, columns))
    once = 64 * 64 * (3 * 224 - 2) ** 2  # at either border one row and one column of weights meet padding
    assert [c.operations for c in found.compute] == [once] * 8
    dram = {t.tensor: t.reads + t.writes for t in found.traffic if t.component == "DRAM"}
    weights = dict.fromkeys((f"F{i}" for i in range(8)), 64 * 64 * 9)
    assert dram == {"T0": 64 * 224**2, **weights, "T8": 64 * 224**2}
    rows = sum(range(2, 10))  # of T7 two, of T0 nine
    peak = max(w.bits for w in found.working_sets if (w.component, w.measure) == ("Buffer", "tile"))
    assert peak == 8 * 64 * (rows * 224 + (1 if columns else 224))


def drawn(seed: int) -> Problem:
    """Two or three convolutions, padded or not, of strides 1 and 2, whose maps stand between, above or below
    the loops over the rows and columns of the last one; tiles are uneven as they come."""
    rng = Random(seed)
    count, columns = rng.choice([2, 2, 3]), rng.random() < 0.7
    size, channels = (rng.randint(5, 8), rng.randint(1, 3)) if count == 2 else (rng.randint(4, 6), 1)
    window, maps, einsums = rng.choice([2, 3]), [size], []
    for i in range(count):
        stride, padding = rng.choice([1, 1, 1, 2]), rng.choice([0, 1])
        maps.append(max(1, (maps[-1] + 2 * padding - window) // stride + 1))
        einsums.append(_layer(i, stride, padding, columns))
    ranks = {"R": window, "S": window if columns else 1}
    for i, side in enumerate(maps):
        ranks |= {f"C{i}": channels, f"H{i}": side, f"W{i}": side if columns else 1}
    last, weights = count - 1, [f"F{i}" for i in range(count)]
    rows = [_loop(f"p{last}", rng.randint(1, maps[-1]))]
    inner = [_loop(f"q{last}", rng.randint(1, maps[-1]))] if columns else []
    shared = rng.random() < 0.2
    inner += [_loop(f"c{count}", 1)] if shared else []
    rows, inner = (rows, inner) if rng.random() < 0.8 else (inner, rows)
    reuse = rng.choice(["refill", "slide", "keep_previous"])
    kept = _stored("Buffer", [f"T{i}" for i in range(count)], reuse)
    tops = [*rows, kept, *inner], [*rows, *inner, kept], [kept, *rows, *inner]
    branches = []
    for i in range(count):
        sides = [k for k in (i + 1, i) if rng.random() < 0.6 and not (shared and k == count)]
        own = [_loop(f"c{k}", rng.randint(1, min(2, channels))) for k in sides]
        own += [_loop("r", 1)] if rng.random() < 0.3 else []
        place = {"component": "PE", "name": "X", "type": "Spatial"}
        own += [{**_loop(f"c{i + 1}", 1), **place}] if rng.random() < 0.3 else []
        unit = {"type": "Compute", "einsum": f"E{i}", "component": "MAC"}
        branches.append({"type": "Nested", "nodes": [*own, unit]})
    nodes = [
        _stored("DRAM", ["T0", *weights, f"T{count}"]), _stored("Weights", weights), *rng.choice(tops),
        _stored("Buffer", [f"T{count}"]), {"type": "Sequential", "nodes": branches},
    ]  # fmt: skip
    memories = [{"type": "Memory", "name": name} for name in ("DRAM", "Weights", "Buffer")]
    fan = {"type": "Container", "name": "PE", "spatial": [{"name": "X", "fanout": 8, "may_reuse": "All"}]}
    workload = {"rank_sizes": ranks, "bits_per_value": {"All": 8}, "einsums": einsums}
    arch = {"nodes": [*memories, fan, {"type": "Compute", "name": "MAC"}]}
    spec = pm.load({"arch": arch, "workload": workload, "mapping": {"nodes": nodes}})
    assert spec.mapping is not None
    return Problem(spec.workload, spec.arch, spec.mapping)


def _layer(i: int, stride: int, padding: int, columns: bool) -> dict[str, Any]:
    rows = f"{stride}*p{i} + r - {padding}"
    width = f"{stride}*q{i} + s - {padding}" if columns else f"q{i} + s"
    accesses = [
        {"name": f"T{i}", "projection": {f"C{i}": f"c{i}", f"H{i}": rows, f"W{i}": width}},
        {"name": f"F{i}", "projection": [f"c{i + 1}", f"c{i}", "r", "s"]},
        {
            "name": f"T{i + 1}",
            "projection": {f"C{i + 1}": f"c{i + 1}", f"H{i + 1}": f"p{i}", f"W{i + 1}": f"q{i}"},
            "output": True,
        },
    ]
    return {"name": f"E{i}", "tensor_accesses": accesses}


def _loop(variable: str, tile: int) -> dict[str, Any]:
    return {"type": "Temporal", "rank_variable": variable, "tile_shape": tile}


def _stored(component: str, tensors: list[str], reuse: str = "refill") -> dict[str, Any]:
    return {"type": "Storage", "component": component, "tensors": tensors, "reuse": reuse}


@pytest.mark.parametrize("block", seeds(1, [range(4), range(4, 200)]))
def test_closed_forms_of_drawn_chains_agree_with_the_referee(block: range) -> None:
    refused = 0
    for seed in block:
        problem = drawn(seed)
        try:
            found = CLOSED.analyse(problem, live=True)
        except NotSeparable:
            refused += 1
            continue
        assert not differences(found, REFEREE.analyse(problem, live=True)), seed
    assert refused <= len(block) / 50


@pytest.mark.parametrize("tile", [1, 2])
def test_what_only_the_first_iteration_makes_is_needed_no_longer(tile: int) -> None:
    """T3 has one element, made in the first iteration of the padded loop from T2, which none needs later."""
    nodes = [
        _stored("DRAM", ["T1", "W3", "W4", "T4"]),
        _stored("GLB", ["T2"], "keep_previous"),
        _split(
            [_compute("T2")],
            [_loop("p4", tile), _stored("GLB", ["T3"], "slide"), _split([_compute("T3")], [_compute("T4")])],
        ),
    ]
    memories = [{"type": "Memory", "name": name} for name in ("DRAM", "GLB")]
    einsums = [
        "T2[P2=p2] = T1[P2=p2]",
        "T3[p3] = T2[P2=2*p3 + r3 - 1] * W3[r3]",
        "T4[p4] = T3[P3=p4 + r4 - 1] * W4[r4]",
    ]
    spec = pm.load(
        {
            "arch": {"nodes": [*memories, {"type": "Compute", "name": "MAC"}]},
            "workload": {
                "rank_sizes": {"P4": 3, "R4": 2, "P3": 1, "R3": 3, "P2": 1},
                "bits_per_value": {"All": 1},
                "einsums": einsums,
            },
            "mapping": {"nodes": nodes},
        }
    )
    assert spec.mapping is not None
    problem = Problem(spec.workload, spec.arch, spec.mapping)
    assert not differences(CLOSED.analyse(problem), REFEREE.analyse(problem))


def _split(*branches: list[dict[str, Any]]) -> dict[str, Any]:
    return {"type": "Sequential", "nodes": [{"type": "Nested", "nodes": nodes} for nodes in branches]}


def _compute(einsum: str) -> dict[str, Any]:
    return {"type": "Compute", "einsum": einsum, "component": "MAC"}
