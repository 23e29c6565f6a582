"""Pictures of fronts: several in one picture, a third objective, a single point."""

from __future__ import annotations

from typing import Any

import pandas as pd
import pytest
from matplotlib.collections import PathCollection
from matplotlib.colors import same_color, to_rgba

import polymodel as pm
from polymodel.report.plots_sweep import explored_axes, front_axes

UNITS = {"energy": "J", "latency": "s", "buffer": "bit"}
BOTH = ("energy", "buffer")
FUSED = pd.DataFrame({"energy": [1e-6, 2e-6, 4e-6], "buffer": [512, 64, 0], "fused": ["T", "T", ""]})
PLAIN = pd.DataFrame({"energy": [2e-6, 3e-6], "buffer": [512, 256], "fused": ["", ""]})


def labels(ax: Any) -> list[str]:
    return [t.get_text() for t in ax.get_legend().get_texts()]


def staircases(ax: Any) -> list[tuple[str, object]]:
    return [(line.get_linestyle(), line.get_color()) for line in ax.lines]


@pytest.mark.parametrize(
    ("first", "second", "suffixes"),
    [
        ("", "", ("front 1", "front 2")),
        ("explored", "never fused", ("explored", "never fused")),
        ("", "never fused", ("front 1", "never fused")),
    ],
)
def test_fronts_in_one_picture_are_told_apart(first: str, second: str, suffixes: tuple[str, str]) -> None:
    ax = explored_axes(FUSED, BOTH, BOTH, UNITS, label=first)
    a, b = suffixes
    if not first:
        assert labels(ax) == ["fused: T, 2 points", "unfused, 1 point"]
    explored_axes(PLAIN, BOTH, BOTH, UNITS, ax, label=second)
    assert labels(ax) == [f"fused: T, 2 points ({a})", f"unfused, 1 point ({a})", f"unfused, 2 points ({b})"]
    assert len(set(staircases(ax))) == 2
    shapes = {points.get_paths()[0].vertices.tobytes() for points in ax.collections}
    assert len(shapes) == 3, "in grey, too"
    third = explored_axes(PLAIN, BOTH, BOTH, UNITS, ax)
    assert labels(third)[-1] == "unfused, 2 points (front 3)"
    assert len(set(staircases(ax))) == 3


@pytest.mark.parametrize("order", [(FUSED, PLAIN), (PLAIN, FUSED)])
def test_a_further_front_hides_nothing_of_the_first(order: tuple[pd.DataFrame, pd.DataFrame]) -> None:
    ax = explored_axes(order[0], BOTH, BOTH, UNITS)
    explored_axes(order[1].assign(buffer=order[1]["buffer"] * 20), BOTH, BOTH, UNITS, ax)
    assert ax.get_yscale() == "symlog", "a buffer of 0 bits is shown"
    for points in ax.collections:
        for x, y in points.get_offsets():
            assert ax.get_xlim()[0] <= x <= ax.get_xlim()[1]
            assert ax.get_ylim()[0] <= y <= ax.get_ylim()[1]


def test_the_legend_of_a_coloured_front_has_no_colour_of_its_bar() -> None:
    rows = FUSED.assign(latency=[3.0, 2.0, 1.0])
    ax = explored_axes(rows, ("energy", "buffer", "latency"), BOTH, UNITS)
    assert labels(ax) == ["fused: T, 2 points", "unfused, 1 point"]
    handles = ax.get_legend().legend_handles
    assert len({handle.get_marker() for handle in handles}) == 2
    for handle in handles:
        red, green, blue, _ = to_rgba(handle.get_markerfacecolor())
        assert red == green == blue
    plain = explored_axes(FUSED, BOTH, BOTH, UNITS)
    for handle, points in zip(plain.get_legend().legend_handles, plain.collections, strict=True):
        assert isinstance(handle, PathCollection)
        assert same_color(handle.get_facecolor(), points.get_facecolor())


def test_a_single_point_says_its_figures() -> None:
    one = pd.DataFrame({"energy": [1.5e-6], "latency": [2e-5], "fused": ["T"]})
    ax = explored_axes(one, ("energy",), ("energy", "latency"), UNITS)
    assert [t.get_text() for t in ax.texts] == ["fused: T\n1.5 µJ\n20 µs"]
    assert ax.get_legend() is None, "a marker of a legend would be taken for a point"
    assert ax.get_title() == "Pareto front over energy: one mapping"
    assert ax.get_xlim()[0] == ax.get_ylim()[0] == 0
    more = explored_axes(FUSED.assign(latency=[1.0, 2.0, 3.0]), BOTH, ("energy", "latency"), UNITS, ax)
    assert more.get_xlim()[1] >= 4e-6
    rows = pd.DataFrame({"energy": [1.0, 2.0], "latency": [1.0, 2.0], "mapping": ["a", "a"]})
    swept = front_axes(rows, rows.iloc[:1], ("energy", "latency"), ("J", "s"))
    assert not swept.texts, "rows off the front give it a scale"
    alone = front_axes(rows.iloc[:1], rows.iloc[:1], ("energy", "latency"), ("J", "s"))
    assert [t.get_text() for t in alone.texts] == ["Pareto front\n1 J\n1 s"]
    nothing = explored_axes(one.assign(energy=0.0), ("energy", "latency"), ("energy", "latency"), UNITS)
    assert [t.get_text() for t in nothing.texts] == ["fused: T\n0 J\n20 µs"]


def test_least_values_are_drawn_over_a_range_of_capacities() -> None:
    spec = pm.load("matmul/output_stationary", "simple_two_level")
    forms = pm.closed_forms(spec, tiles=True, ranks=True, assume="divides")
    least = forms.minimize("accesses:DRAM", "working_set:GLB", "S")
    sizes = {"M": 64, "K": 128, "N": 64}
    ax = least.plot("S", 10, 1e6, name="traffic (bit)", **sizes)
    (line,) = ax.lines
    capacities, values = line.get_data()
    assert capacities[0] > 10, "a byte of each operand takes more"
    assert list(values) == sorted(values, reverse=True)
    assert values[-1] == 8 * (64 * 128 + 128 * 64 + 64 * 64), "each operand once"
    assert values[3] == least.numbers(S=capacities[3], **sizes).value
    assert (ax.get_xlabel(), ax.get_ylabel()) == ("S", "least traffic (bit)")
    for name, ends in (("S", (10, 1)), ("Q", (1, 10))):
        with pytest.raises(pm.SpecError):
            least.plot(name, *ends, **sizes)
