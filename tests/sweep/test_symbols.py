"""Sweeps with tolls, over symbols of the architecture, with reasons, and over mappings: point by point."""

from __future__ import annotations

from collections import Counter
from itertools import product
from typing import Any

import pytest

import polymodel as pm
from tests.sweep.small import written
from tests.sweep.test_grids import check

ARCH = """
schema_version: 1
symbols: {TM: 4, TN: 6, TS: 2, TK: 3, S: 4000, R: 1.0e+9, E: 1.0e-12, F: 4, D: 1}
arch:
  nodes:
  - !Memory
    name: DRAM
    tensors: {keep: All}
    actions: [{name: read, energy: 8 * E, throughput: R}, {name: write, energy: 8 * E, throughput: R / 2}]
  - !Toll
    name: Crypto
    tensors: {keep: A | C}
    actions: [{name: read, energy: E, throughput: 3 * R}]
  - !Memory
    name: GLB
    size: S
    leak_power: 0.01
    tensors: {keep: All}
    actions: [{name: read, energy: E, throughput: 4 * R}, {name: write, energy: E, throughput: 4 * R}]
  - !Toll
    name: NoC
    tensors: {keep: All}
    actions: [{name: read, energy: 0.1 * E, throughput: 16 * R}]
  - !Container
    name: PE
    spatial: [{name: X, fanout: F, may_reuse: All}, {name: Y, fanout: 2 * F, may_reuse: A}]
  - !Memory
    name: Reg
    size: 600
    tensors: {keep: All}
    actions: [{name: read, energy: 0.1 * E, throughput: 2 * R}, {name: write, energy: 0.1 * E, throughput: R}]
  - !Compute
    name: MAC
    actions: [{name: compute, energy: 0.05 * E, throughput: R}]
workload:
  rank_sizes: {M: 14, N: 11, K: 9}
  bits_per_value: {All: 8}
  einsums: ["C[m, n] = A[m, k] * B[k, n]"]
"""


def spec() -> pm.Spec:
    return written(ARCH, nodes())


def nodes(outer: str = "mn") -> list[dict[str, object]]:
    every = ["A", "B", "C"]
    tiles = {"m": "TM", "n": "TN"}
    return [
        {"type": "Storage", "component": "DRAM", "tensors": every},
        *({"type": "Temporal", "rank_variable": v, "tile_shape": tiles[v]} for v in outer),
        {"type": "Storage", "component": "GLB", "tensors": every, "reuse": "slide"},
        {"type": "Spatial", "rank_variable": "m", "tile_shape": "TS", "component": "PE", "name": "X"},
        {"type": "Temporal", "rank_variable": "k", "tile_shape": "TK"},
        {"type": "Storage", "component": "Reg", "tensors": every},
        {"type": "Compute", "einsum": "C", "component": "MAC"},
    ]


TILES = {"TM": [1, 3, 4, 9, 14, 15], "TN": [2, 5, 11], "TS": [1, 2, 5], "TK": [1, 4, 9]}
COSTS = {"S": [300, 2000], "R": [1e8, 1e9], "E": [1e-12, 3e-12], "F": [1, 3, 9]}


def exact(spec: pm.Spec, point: dict[str, Any]) -> Any:
    """The report of the exact engine, or why there is none."""
    try:
        return pm.evaluate(spec.bind(**point), engine="exact")
    except pm.SpecError as error:
        return error.diagnostics[0].message


def rows_equal(found: pm.Sweep, every: int = 1) -> None:
    for i in range(0, len(found.frame), every):
        row = found.frame.iloc[i]
        report = pm.evaluate(found.spec(row), engine="exact")
        assert row["energy"] == pytest.approx(report.costs.total_energy, rel=1e-12)
        assert row["latency"] == pytest.approx(report.costs.total_latency, rel=1e-12)
        assert row["feasible"] == (not report.costs.violations)
        assert row["reason"] == "; ".join(map(str, report.costs.violations))
        moved = report.accesses.groupby("component")[["read_bits", "write_bits"]].sum()
        for component in ("DRAM", "Crypto", "GLB", "NoC", "Reg"):
            assert row[f"reads:{component}"] == moved.loc[component, "read_bits"]
            assert row[f"writes:{component}"] == moved.loc[component, "write_bits"]


def test_tolls_in_the_kernel() -> None:
    compared = check(spec(), TILES, 80)
    assert {"reads:Crypto", "writes:Crypto", "reads:NoC", "need:Reg", "fits:PE.X"} <= compared


@pytest.mark.slow
def test_sizes_throughputs_energies_and_fanouts_in_the_kernel() -> None:
    check(spec(), {**TILES, **COSTS}, 8)


@pytest.mark.slow
def test_every_point_has_a_row_or_a_reason() -> None:
    """Counts of reasons, and which points have a row, by the exact engine point by point."""
    values = {
        "TM": [3, 9, 15],
        "TN": [5, 11],
        "TS": [1, 2, 10],
        "TK": [4, 9],
        "S": [300, 2000],
        "F": [1, 3, 9],
    }
    found = pm.sweep(spec(), values, keep="all", where=["TM * TN <= 90"])
    reasons: Counter[str] = Counter()
    numbers = []
    for number, choice in enumerate(product(*values.values())):
        point = dict(zip(values, choice, strict=True))
        report = exact(spec(), point)
        if point["TM"] > 14 or point["TS"] > point["TM"]:
            reasons["tile size"] += 1
            assert isinstance(report, str)
        elif point["TM"] * point["TN"] > 90:
            reasons["where"] += 1
        elif isinstance(report, str):
            reasons["PE.X"] += 1
            assert "PE.X" in report
        else:
            numbers.append(number)
            if report.costs.violations:
                reasons[str(report.costs.violations[0]).split(" ")[0]] += 1
    assert found.frame["point"].tolist() == numbers
    told = {
        r: next(k for k in ("tile size", "where", "PE.X", "GLB", "Reg") if k in r) for r in found.infeasible
    }
    assert {told[r]: n for r, n in found.infeasible.items()} == reasons
    assert set(reasons) == {"tile size", "where", "PE.X", "GLB", "Reg"}
    rows_equal(found, 3)


def test_values_that_make_no_architecture_are_infeasible_and_the_others_are_swept() -> None:
    """With fixed tiles a fanout of 1 is too small for the mapping, and no throughput is 0."""
    found = pm.sweep(spec(), {"F": [1, 2, 3], "R": [0, 1e9]}, keep="all")
    assert found.frame[["F", "R"]].values.tolist() == [[2, 1e9], [3, 1e9]]
    assert sum(found.infeasible[r] for r in found.infeasible if "PE.X" in r) == 1
    assert sum(found.infeasible[r] for r in found.infeasible if "throughput" in r) == 3
    rows_equal(found)
    tiled = pm.sweep(spec(), {"F": [2, 3], "R": [0, 1e9], "TK": [3, 9, 10]}, keep="all")
    assert len(tiled.frame) == 4
    assert sum(tiled.infeasible[r] for r in tiled.infeasible if "throughput" in r) == 6
    assert sum(tiled.infeasible[r] for r in tiled.infeasible if "tile size" in r) == 2
    with pytest.raises(pm.SpecError, match="throughput"):
        pm.sweep(spec(), {"R": [0, -1]})


@pytest.mark.slow
def test_several_mappings_with_tolls() -> None:
    other = written(ARCH, nodes("nm")).template
    first = spec()
    assert first.template is not None
    assert other is not None
    values = {"TM": [3, 9], "TN": [5, 11], "TS": [2, 3], "TK": [4], "F": [3, 9]}
    found = pm.sweep(first, values, mappings=[first.template, other], keep="all")
    assert found.frame["mapping"].nunique() == 2
    assert set(found.frame["point"] // found.grid.size) == {0, 1}
    rows_equal(found)
    best = pm.sweep(first, values, mappings=[first.template, other])
    feasible = found.frame[found.frame["feasible"]]
    assert best.best()["energy"] == feasible["energy"].min()
    alone = [pm.sweep(one, values, keep="all") for one in (first, first.with_mapping(other))]
    assert found.frame["energy"].tolist() == [e for one in alone for e in one.frame["energy"]]
