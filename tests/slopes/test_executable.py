"""What a slope of a graph shows can be executed, or says that it is a lower bound; costly roles are told."""

from __future__ import annotations

from typing import Any

import pytest

import polymodel as pm
from polymodel.slopes.chain_slope import ChainSlope
from tests.graphs import document, graph
from tests.seeds import seeds

PROJECTION = "T[m, n] = A[m, k] * B[k, n]"
SMALL: dict[str, tuple[tuple[str, ...], dict[str, int]]] = {
    "chain": (
        (PROJECTION, "U[m, p] = T[m, n] * C[n, p]", "V[m, q] = U[m, p] * D[p, q]"),
        {"M": 6, "K": 2, "N": 4, "P": 2, "Q": 3},
    ),
    "attention": (
        (
            "T[h, m, p] = Q[h, m, e] * K[h, p, e]",
            "S[h, m, p] = T[h, m, p]",
            "Z[h, m, f] = S[h, m, p] * W[h, p, f]",
        ),
        {"H": 2, "M": 4, "P": 4, "E": 2, "F": 2},
    ),
    "branch": (
        (PROJECTION, "U[m, p] = T[m, n] * C[n, p]", "V[m, q] = T[m, n] * D[n, q]"),
        {"M": 4, "K": 3, "N": 4, "P": 2, "Q": 2},
    ),
    "residual": (
        (PROJECTION, "U[m, n] = T[M=m, N=j] * C[j, n]", "V[m, n] = T[m, n] * U[m, n]"),
        {"M": 4, "K": 2, "N": 4, "J": 4},
    ),
    "normalisation": (
        (PROJECTION, "R[m] = T[m, n]", "Y[m, n] = T[m, n] * R[m]", "Z[m, p] = Y[m, n] * C[n, p]"),
        {"M": 4, "K": 2, "N": 4, "P": 2},
    ),
}  # fmt: skip


def actions(energy: float) -> list[dict[str, object]]:
    return [{"name": name, "energy": energy} for name in ("read", "write")]


def executed(name: str) -> list[tuple[int, int]]:
    """(words of buffer, words moved) of whole mappings that `explore` finds, as `evaluate` counts them."""
    einsums, sizes = SMALL[name]
    backing = {"keep": "All - Intermediates", "may_keep": "All"}
    levels = [
        {"type": "Memory", "name": "DRAM", "tensors": backing, "actions": actions(1.0)},
        {"type": "Memory", "name": "Buffer", "size": 8e6, "tensors": {"keep": "All"}, "actions": actions(0)},
        {"type": "Compute", "name": "MAC", "actions": [{"name": "compute", "energy": 0}]},
    ]
    spec = pm.load({**document(*einsums, **sizes), "arch": {"nodes": levels}})
    found = []
    for point in pm.explore(spec, objectives=("energy", "buffer")):
        report = pm.evaluate(spec.with_mapping(point.mapping))
        moved = report.accesses.query("component == 'DRAM'")
        held = report.working_sets.query("component == 'Buffer' and measure == 'tile'")["bits"].max()
        found.append((int(held) // 8, int(moved["read_elements"].sum() + moved["write_elements"].sum())))
    return found


@pytest.mark.slow
@pytest.mark.thin(3)
@pytest.mark.parametrize("name", seeds(2, sorted(SMALL, key=len)))
def test_every_point_that_is_shown_can_be_executed(name: str) -> None:
    einsums, sizes = SMALL[name]
    slope = pm.graph_slope(graph(*einsums, **sizes))
    mappings = executed(name)
    for curve in slope.curves.values():
        assert curve.title == curve.name
        for point in curve.points:
            assert not point.apart
            assert any(c <= point.capacity and a <= point.accesses for c, a in mappings), point
    assert set(slope.frame["mapping"]) == {"executable"}
    assert not slope.notes


@pytest.mark.slow
def test_attention_moves_what_can_be_executed() -> None:
    spec = pm.load("attention")
    assert pm.graph_slope(spec)["tiled_fused"].at(2048).accesses == 36_864
    assert pm.graph_slope(spec, equal_outer_sizes=False)["tiled_fused"].at(2048).accesses == 32_768


def test_a_lower_bound_says_so_everywhere() -> None:
    slope = pm.graph_slope(pm.load("attention"), equal_outer_sizes=False)
    curve = slope["tiled_fused"]
    point = curve.at(2048)
    assert "\n  lower bound: outer loops over QK differ: 4 tiles along m of QK, 64 along" in repr(point)
    assert point.brief.startswith("lower bound; QK (")
    assert repr(curve).startswith("tiled_fused (lower bound): 29 points")
    assert "tiled_fused (lower bound) 29" in repr(slope)
    assert "tiled_fused (lower bound)" in repr(slope.curves)
    assert "note: tiled_fused is a lower bound" in str(slope)
    assert "tiled_fused is a lower bound" in slope._repr_html_()
    rows = slope.frame.set_index(["curve", "capacity_words"])["mapping"]
    assert rows["tiled_fused", point.capacity] == "lower bound"
    assert rows["tiled_fused", curve.points[-1].capacity] == "executable"
    assert set(rows["unfused"]) == {"executable"}
    assert not curve.points[-1].apart
    (label,) = [line.get_label() for line in slope.plot().lines if str(line.get_label()).startswith("tiled")]
    assert str(label).startswith("tiled_fused (lower bound): ")


def test_graphs_of_many_sizes_show_a_lower_bound_and_say_so() -> None:
    slope = pm.graph_slope(pm.load("attention", M=8192, P=8192), curves=["tiled_fused"])
    assert slope["tiled_fused"].title == "tiled_fused (lower bound)"
    assert not slope.graph.rules.equal_outer_sizes


@pytest.mark.slow
def test_roles_that_cost_traffic_are_told() -> None:
    """All heads of a group decode with the same keys and values: outer loops over heads fetch them again."""
    scores = ("T[h, g, p] = Q[h, g, e] * K[h, p, e]", "S[h, g, p] = T[h, g, p]")
    decode = graph(*scores, "Z[h, g, f] = S[h, g, p] * V[h, p, f]", H=4, G=2, P=16, E=4, F=4)
    slope = pm.graph_slope(decode, roles={"head": ["G", "H"]})
    (note,) = slope.notes
    assert note.startswith("roles: fused loops over h, g stand outermost, which makes tiled_fused worse than")
    assert note.endswith("1,088 instead of 576 words at 26 words of buffer")
    assert f"note: {note}" in str(slope)
    for others in ({"head": ["H"]}, None):
        assert not pm.graph_slope(decode, roles=others).notes


def test_beats_unfused_from_there_on() -> None:
    """A curve that is better, then not, then better again beats unfused from the last change on."""

    class Known(ChainSlope):
        def _accesses(self, curve: str, capacity: float) -> int | None:
            steps: Any = {"unfused": ((1, 9), (3, 5)), "fused": ((1, 8), (4, 5), (6, 4))}
            return next((a for c, a in reversed(steps[curve]) if c <= capacity), None)

        def _points(self, curve: str) -> Any:
            every: Any = {"unfused": (1, 3), "fused": (1, 4, 6)}
            return [type("Point", (), {"capacity": c}) for c in every[curve]]

    plain = pm.chain_slope(pm.load("matmul_chain_2", M=4, N0=4, N1=4, N2=4), curves=["unfused"])
    known = Known(**{n: getattr(plain, n) for n in plain.__dataclass_fields__})
    assert known.beats_unfused_from("fused") == 6
    assert known.beats_unfused_from("unfused") is None
