"""Slopes as people meet them: short texts, and faults that say what to ask for instead."""

from __future__ import annotations

import pickle
from typing import Any

import pytest

import polymodel as pm
from tests.faults import faults, refused
from tests.graphs import graph

PAIR = ("T[m, n] = A[m, k] * B[k, n]", "Z[m, p] = T[m, n] * C[n, p]")


@pytest.fixture(scope="module")
def spec() -> pm.Spec:
    return graph(*PAIR, M=12, K=6, N=8, P=4)


@pytest.fixture(scope="module")
def slopes(spec: pm.Spec) -> dict[str, Any]:
    return {
        "ski": pm.ski_slope(graph(PAIR[0], M=12, K=6, N=8)),
        "chain": pm.chain_slope(spec),
        "graph": pm.graph_slope(spec),
    }


def short(thing: object) -> list[str]:
    lines = repr(thing).split("\n")
    assert len(lines) <= 14
    assert max(map(len, lines)) <= 130
    return lines


def test_curves_are_short_tables_with_units(slopes: dict[str, Any]) -> None:
    curve = slopes["graph"]["tiled_fused"]
    lines = short(curve)
    assert len(curve) > 9
    assert lines[0] == f"tiled_fused: {len(curve)} points"
    assert "capacity words" in lines[1]
    assert "accesses words" in lines[1]
    assert f"... {len(curve) - 8} more" in lines[7]
    last = curve.points[-1]
    assert lines[11].split()[:3] == [str(len(curve) - 1), str(last.capacity), str(last.accesses)]
    assert ".frame" in lines[12]
    for points in (curve.points, slopes["chain"].curves["ffmr_drop"], slopes["ski"].points):
        assert short(points)[0] == f"{len(points)} points:"
        assert isinstance(points, tuple)
        again = pickle.loads(pickle.dumps(points))
        assert again == points
        assert repr(again) == repr(points)


def test_sets_of_curves_are_a_row_each(slopes: dict[str, Any]) -> None:
    for name in ("graph", "chain"):
        curves = slopes[name].curves
        lines = short(curves)
        assert lines[0].split("  ")[1:3] == ["curve", ""] or "max effectual buffer words" in lines[0]
        assert [line.split()[0] for line in lines[2:-1]] == list(curves)
        assert dict(curves).keys() == curves.keys()
    empty = pm.chain_slope(graph(*PAIR, M=1, K=4, N=1, P=3), curves="ffmr_drop")
    assert short(empty.curves)[3].split() == ["ffmr_drop", "0", "-", "-", "-"]
    assert repr(empty.curves["ffmr_drop"]) == "no points"


def test_points_say_what_they_cost_and_how_they_are_mapped(slopes: dict[str, Any]) -> None:
    point = slopes["graph"]["tiled_fused"].points[-1]
    figures = f"{point.capacity:,} words of buffer, {point.accesses:,} words to and from the backing store"
    lines = short(point)
    assert lines[0] == figures
    assert lines[1].startswith("  T: tiles of ")
    assert lines[2].split()[0] == "T:"
    assert lines[3].split()[0] == "Z:"
    fused = slopes["chain"].curves["ffmr_retain"][-1]
    lines = short(fused)
    assert lines[0].startswith(f"{fused.capacity:,} words of buffer")
    assert lines[1] == "  T: tiled"
    assert lines[2].startswith("  T+Z, fused loops m=")
    assert short(slopes["ski"].points[-1])[0].endswith("the backing store")
    bits = pm.graph_slope(graph(*PAIR, M=2, K=2, N=2, P=2), unit="bits")["unfused"]
    assert "bits of buffer" in repr(bits.at(10**6))
    assert "capacity bits" in repr(bits)


def test_the_inside_of_a_graph_slope_is_no_flood(slopes: dict[str, Any]) -> None:
    slope = slopes["graph"]
    assert len(repr(slope.graph)) < 200
    assert len(repr(slope["tiled_fused"].curve)) < 200


def test_below_the_smallest_capacity_the_fault_names_it(slopes: dict[str, Any]) -> None:
    calls = {
        "graph": slopes["graph"]["tiled_fused"].at,
        "chain": lambda c: slopes["chain"].at("unfused", c),
        "ski": slopes["ski"].at,
    }
    for at in calls.values():
        for capacity in (2, 0, -5):
            with faults("over-capacity", at=""):
                at(capacity)
        assert at(3).capacity == 3
        with faults("wrong-type", "nan", at=""):
            at(float("nan"))
        with faults("wrong-type", "kB", at=""):
            at("2 kB")


def test_other_things_than_points_are_told(slopes: dict[str, Any]) -> None:
    for call in ("report", "looptree", "verdicts"):
        more = () if call == "verdicts" else ("T",)
        with pytest.raises(pm.SpecError, match=f'{call}: None is not a point.*\n.*slope."tiled_fused"'):
            getattr(slopes["graph"], call)(None, *more)
    for name in ("chain", "ski"):
        for call in ("report", "looptree", "mapping_yaml"):
            with faults("wrong-type", at=""):
                getattr(slopes[name], call)(3)


def test_unknown_einsums_of_a_point_are_told(slopes: dict[str, Any]) -> None:
    slope = slopes["graph"]
    point = slope["tiled_fused"].at(100)
    for call in (slope.report, slope.looptree, slope.operation):
        with faults("unknown-name", "Q", "T", "Z", at=""):
            call(point, "Q")
    with faults("unknown-name", "Q", "T", "Z", at=""):
        point["Q"]


def test_a_branch_leads_to_slopes_of_graphs() -> None:
    apart = graph("T[m] = A[m]", "Z[m] = B[m]", M=2)
    with refused("unsupported-einsum", "Z", "T", "pm.graph_slope"):
        pm.chain_slope(apart)
    residual = graph("T[m, n] = A[m, n]", "Z[m, n] = T[m, n] * A[m, n]", M=2, N=2)
    with refused("unsupported-einsum", "T", "Z", "pm.graph_slope"):
        pm.chain_slope(residual)
