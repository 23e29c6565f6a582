"""Pictures of sweeps: labels, units, and clear words where there is nothing to draw."""

from __future__ import annotations

import matplotlib as mpl
import pytest

import polymodel as pm

mpl.use("Agg")


@pytest.fixture(scope="module")
def found() -> pm.Sweep:
    nodes = [
        {"type": "Storage", "component": "DRAM", "tensors": ["A", "B", "C"]},
        {"type": "Temporal", "rank_variable": "m", "tile_shape": "TM"},
        {"type": "Temporal", "rank_variable": "k", "tile_shape": "TK"},
        {"type": "Storage", "component": "GLB", "tensors": ["A", "B", "C"]},
        {"type": "Compute", "einsum": "Matmul", "component": "MAC"},
    ]
    spec = pm.load("matmul", "simple_two_level", {"mapping": {"nodes": nodes}})
    objectives = ("accesses:DRAM", "working_set:GLB")
    symbols = {"TM": pm.all_sizes("m"), "TK": pm.divisors("k")}
    return pm.sweep(spec, symbols, objectives=objectives, keep="all")


def test_front(found: pm.Sweep) -> None:
    ax = found.plot("front")
    assert (ax.get_xlabel(), ax.get_ylabel()) == ("accesses:DRAM (bit)", "working_set:GLB (bit)")
    labels = [t.get_text() for t in ax.get_legend().get_texts()]
    assert f"Pareto front, {len(found.front)} points" in labels


def test_heat_map(found: pm.Sweep) -> None:
    ax = found.plot("heat", "TM", "TK")
    assert (ax.get_xlabel(), ax.get_ylabel()) == ("TM", "TK")
    assert len(ax.get_xticks()) <= 12
    assert ax.images[0].get_array().shape == (7, 64)


def test_traffic_by_level(found: pm.Sweep) -> None:
    ax = found.plot("traffic")
    assert [t.get_text() for t in ax.get_legend().get_texts()] == ["DRAM", "GLB"]
    assert ax.get_ylabel() == "accesses (bit)"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("heat", "TM"), "over two symbols"),
        (("heat", "TM", "TX"), "over two symbols"),
        (("pie",), "no picture 'pie'"),
    ],
)
def test_what_cannot_be_drawn(found: pm.Sweep, arguments: tuple[str, ...], message: str) -> None:
    with pytest.raises(pm.SpecError, match=message):
        found.plot(*arguments)
