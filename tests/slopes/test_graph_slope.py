"""Slopes of graphs: every mapping of tiny graphs, the engine's counts, compatible neighbours, refusals."""

from __future__ import annotations

from itertools import islice
from random import Random
from typing import Any

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

import polymodel as pm
from polymodel.slopes.fused_graph import FusionRules
from tests.faults import faults, refused
from tests.graphs import choices, graph, random_graph, referee
from tests.seeds import seeds

PROJECTION = "T[m, n] = A[m, k] * B[k, n]"
GRAPHS = {
    "chain": graph(
        PROJECTION, "U[m, p] = T[m, n] * C[n, p]", "V[m, q] = U[m, p] * D[p, q]", M=6, K=2, N=4, P=2, Q=3
    ),
    "branch": graph(
        PROJECTION, "U[m, p] = T[m, n] * C[n, p]", "V[m, q] = T[m, n] * D[n, q]", M=4, K=3, N=4, P=2, Q=2
    ),
    "residual": graph(
        PROJECTION, "U[m, n] = T[M=m, N=j] * C[j, n]", "V[m, n] = T[m, n] * U[m, n]", M=4, K=2, N=4, J=4
    ),
    "long residual": graph(
        PROJECTION, "U[m, n] = T[m, n]", "W[m, p] = U[m, n] * C[n, p]", "V[m, n] = T[m, n] * U[m, n]",
        M=4, K=2, N=4, P=2,
    ),
    "attention": graph(
        "QK[h, m, p] = Q[h, m, e] * K[h, p, e]", "S[h, m, p] = QK[h, m, p]",
        "Z[h, m, f] = S[h, m, p] * W[h, p, f]", H=2, M=4, P=2, E=2, F=2,
    ),
    "shared input": graph(
        "K[m, e] = I[m, d] * A[d, e]", "Q[m, e] = I[m, d] * B[d, e]", "S[m, p] = Q[m, e] * K[M=p, E=e]",
        M=4, E=2, D=2,
    ),
    "normalisation": graph(
        PROJECTION, "R[m] = T[m, n]", "Y[m, n] = T[m, n] * R[m]", "Z[m, p] = Y[m, n] * C[n, p]",
        M=4, K=2, N=4, P=2,
    ),
    "interleaved": graph(
        "I[m, e] = A[m, k] * B[k, e]", "Q[m, e] = I[m, e]", "S[m] = Q[m, e]", "V[m, e] = I[m, e] * G[e]",
        "W[m] = V[m, e] * S[m]", M=4, E=4, K=2,
    ),
}  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize("name", seeds(4, GRAPHS))
@pytest.mark.thin(3)
def test_curves_are_those_of_every_mapping(name: str) -> None:
    """Fused loops, sizes, orders, uneven tensors, groups and lives, all of them counted by walking."""
    slope = pm.graph_slope(GRAPHS[name], equal_outer_sizes=False)
    assert list(slope["tiled_fused"].figures) == referee(GRAPHS[name])
    assert list(slope["untiled_fused"].figures) == referee(GRAPHS[name], tiled=False)


@settings(max_examples=60, deadline=None)
@given(st.randoms(use_true_random=False))
def test_curves_of_random_graphs_are_those_of_every_mapping(choose: Random) -> None:
    spec = random_graph(choose)
    assume(sum(1 for _ in islice(choices(tuple(spec.workload), tiled=True), 2000)) < 2000)
    slope = pm.graph_slope(spec, equal_outer_sizes=False)
    assert list(slope["tiled_fused"].figures) == referee(spec)
    assert list(slope["untiled_fused"].figures) == referee(spec, tiled=False)
    assert all(all(slope.verdicts(p).values()) for p in slope["tiled_fused"].points)


@pytest.mark.parametrize("name", GRAPHS)
def test_neighbours_are_compatible_and_capacity_and_accesses_add_up(name: str) -> None:
    slope = pm.graph_slope(GRAPHS[name])
    for curve in slope.curves.values():
        for point in curve.points:
            verdicts = slope.verdicts(point)
            assert all(v and v.reason for v in verdicts.values())
            allowed = {"unfused": {"unfused"}, "untiled_fused": {"unfused", "untiled"}}
            assert {v.case for v in verdicts.values()} <= allowed.get(
                curve.name, {v.case for v in verdicts.values()}
            )


def counted(slope: Any, point: Any) -> tuple[int, dict[str, int]]:
    """Accesses of a point by the engine, mapping by mapping, and the footprint of each Einsum."""
    total, footprints = 0, {}
    once = set()
    for choice in point.einsums:
        one = slope.operation(point, choice.einsum).einsum
        report = slope.report(point, choice.einsum)
        moved = report.accesses[report.accesses["component"] == "DRAM"].set_index("tensor")
        held = dict(choice.held)
        for access in one.accesses:
            figures = int(moved.loc[access.tensor, ["read_elements", "write_elements"]].sum())
            if access.tensor not in held:
                total += figures
            elif not access.output and slope.graph.shared[access.tensor].producer is None:
                once.add(access.tensor)
        tiles = report.tiles[report.tiles["component"] == "Buffer"].set_index("tensor")["tile_elements"]
        footprints[choice.einsum] = sum(int(n) for t, n in tiles.items() if held.get(t) != 0)
    return total + sum(slope.graph.shared[t].elements for t in once), footprints


@pytest.mark.slow
@pytest.mark.parametrize("name", seeds(4, GRAPHS))
@pytest.mark.thin(99)
def test_every_mapping_of_a_point_is_what_evaluate_counts(name: str) -> None:
    slope = pm.graph_slope(GRAPHS[name])
    for point in slope["tiled_fused"].points:
        accesses, footprints = counted(slope, point)
        assert accesses == point.accesses
        assert max(footprints.values()) <= point.capacity


def test_the_ends_of_the_curves() -> None:
    slope = pm.graph_slope(GRAPHS["attention"])
    assert slope["unfused"].points[-1].accesses == slope.least_unfused
    assert slope["tiled_fused"].points[-1].accesses == slope.least_fused
    assert slope.least_unfused - slope.least_fused == 4 * 2 * 4 * 2  # QK and S are not written, nor read
    assert slope["tiled_fused"].at(10**9) == slope["tiled_fused"].points[-1]


@pytest.mark.slow
def test_full_attention_fusion_is_found_where_the_scores_do_not_fit() -> None:
    slope = pm.graph_slope(pm.load("attention", M=256, P=256), curves=["tiled_fused"])
    least = slope["tiled_fused"].points[-1]
    assert least.accesses == slope.least_fused
    assert dict(least.handed) == {"QK": "H M", "SM": "H M"}
    assert least.capacity < 256 * 256


def test_a_copy_of_an_input_moves_nothing() -> None:
    copied = pm.load("gpt3_6.7B", N_TOKENS=64)
    slope = pm.graph_slope(copied, curves=["unfused"])
    assert [m.einsum.name for m in slope.graph.members][:3] == ["V", "K", "Q"]
    assert slope.graph.shared["I"].producer is None


def test_frame_and_text() -> None:
    slope = pm.graph_slope(GRAPHS["chain"], unit="bits")
    words = pm.graph_slope(GRAPHS["chain"])
    assert [(c // 8, a // 8) for c, a in slope["tiled_fused"].figures] == list(words["tiled_fused"].figures)
    assert list(slope.frame.columns[:3]) == ["curve", "capacity_bits", "accesses_bits"]
    assert len(slope.frame) == sum(map(len, slope.curves.values()))
    assert "3 Einsums; points: unfused" in repr(slope)
    last = slope["tiled_fused"].points[-1]
    assert last["T"].einsum == "T"


def test_progress_is_told() -> None:
    told: list[tuple[str, int, int]] = []
    pm.graph_slope(GRAPHS["chain"], curves=["unfused"], progress=lambda *at: told.append(at))
    assert told == [("unfused", 1, 3), ("unfused", 2, 3), ("unfused", 3, 3)]


def test_what_has_no_slope_is_refused() -> None:
    with refused("unsupported-window", kind=pm.NotSeparable):
        pm.graph_slope(pm.load("conv2d"))
    with refused("unsupported-constraint", "layout"):
        pm.graph_slope(GRAPHS["chain"], layout="row major")
    with refused("unsupported-loop"):
        pm.graph_slope(GRAPHS["chain"], tiles={"m": [4]})
    with refused("unsupported-loop"):
        pm.graph_slope(GRAPHS["chain"], tiles="all")
    with faults("unknown-choice", at="curves[0]"):
        pm.graph_slope(GRAPHS["chain"], curves=["fused"])
    with faults("unknown-name", "unfused", at=""):
        pm.graph_slope(GRAPHS["chain"], curves=["tiled_fused"])["unfused"]
    with faults("unknown-choice", at="uneven[0]"):
        pm.graph_slope(GRAPHS["chain"], uneven=["weights"])
    with faults("unknown-choice", at="tiles.M"):
        pm.graph_slope(GRAPHS["chain"], tiles={"M": [2]})
    with faults("unknown-choice", at="roles.head[0]"):
        pm.graph_slope(GRAPHS["chain"], roles={"head": ["Y"]})


def test_rules_are_those_of_the_call() -> None:
    slope = pm.graph_slope(GRAPHS["chain"], curves=["unfused"], uneven=["B"], roles={"head": ["M"]})
    assert slope.graph.rules == FusionRules(uneven=("B",), equal_outer_sizes=True, roles=(("head", ("M",)),))
