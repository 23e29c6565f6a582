"""Pictures of sweeps: labels, units, and clear words where there is nothing to draw."""

from __future__ import annotations

from itertools import combinations
from time import sleep
from typing import Any

import matplotlib as mpl
import numpy as np
import pandas as pd
import pytest

import polymodel as pm
from polymodel.report.plots_sweep import explored_axes, level_axes
from polymodel.sweeps.rows import table
from tests.faults import faults

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
    assert ax.images[0].get_interpolation() == "nearest", "no shades between what fits and what does not"


def test_traffic_by_level(found: pm.Sweep) -> None:
    ax = found.plot("traffic")
    named = [t.get_text().partition(":")[0] for t in ax.get_legend().get_texts()]
    assert named == ["GLB", "DRAM"], "the larger one first"
    assert ax.get_ylabel() == "accesses (bit)"


def test_traffic_of_one_level_along_many_values(found: pm.Sweep) -> None:
    ax = found.plot("traffic", "TM", level="GLB")
    assert [t.get_text() for t in ax.get_legend().get_texts()] == ["GLB"]
    assert len(ax.get_xticks()) <= 12
    rows = found.frame.loc[found.frame.groupby("TM")["accesses:DRAM"].idxmin()]
    moved = (rows["reads:GLB"] + rows["writes:GLB"]).tolist()
    (area,) = ax.collections
    assert area.get_datalim(ax.transData).ymax == max(moved) < ax.get_ylim()[1] < 1.1 * max(moved)
    with faults("unknown-name", at="level"):
        found.plot("traffic", level="GBL")
    with faults("ineffective-argument", at="level"):
        found.plot("front", level="GLB")


def test_the_time_of_a_sweep_is_that_of_the_whole_call(
    found: pm.Sweep, monkeypatch: pytest.MonkeyPatch
) -> None:
    def slow(*arguments: Any) -> dict[str, list[Any]]:
        sleep(0.2)
        return table(*arguments)

    monkeypatch.setattr("polymodel.sweeps.run.table", slow)
    swept = pm.sweep(found.specs[0], {"TM": [1, 2], "TK": [1, 2]}, keep="all")
    assert swept.seconds > 0.2
    assert swept.rate < 20


def test_a_lone_bar_is_no_wall() -> None:
    ax = level_axes(pd.DataFrame({"GLB": [3.0]}), ("energy", "J"), "point")
    assert list(ax.get_xticks()) == [0], "there is no point between two"
    assert ax.get_xlim() == (-1.5, 1.5)


@pytest.fixture(scope="module")
def leaking() -> pm.Sweep:
    """A sweep by energy on three levels; the outermost leaks."""
    rate = [{"name": w, "energy": 2e-12, "throughput": 1e9} for w in ("read", "write")]
    compute = [{"name": "compute", "energy": 20e-12, "throughput": 1e9}]
    arch = {"nodes": [
        {"type": "Memory", "name": "DRAM", "actions": rate, "leak_power": 4e-4},
        {"type": "Memory", "name": "GLB", "actions": rate},
        {"type": "Compute", "name": "MAC", "actions": compute},
    ]}  # fmt: skip
    nodes = [
        {"type": "Storage", "component": "DRAM", "tensors": ["A", "B", "C"]},
        {"type": "Temporal", "rank_variable": "m", "tile_shape": "TM"},
        {"type": "Temporal", "rank_variable": "k", "tile_shape": "TK"},
        {"type": "Storage", "component": "GLB", "tensors": ["A", "B", "C"]},
        {"type": "Compute", "einsum": "Matmul", "component": "MAC"},
    ]
    spec = pm.load("matmul", {"arch": arch, "mapping": {"nodes": nodes}}, M=24, N=8, K=12)
    symbols = {"TM": pm.all_sizes("m"), "TK": pm.divisors("k")}
    return pm.sweep(spec, symbols, objectives=("energy",), keep="all")


def test_energy_by_level_along_a_symbol(leaking: pm.Sweep) -> None:
    ax = leaking.plot("energy", "TM")
    assert [t.get_text() for t in ax.get_legend().get_texts()] == ["leakage", "MAC", "GLB", "DRAM"]
    assert (ax.get_xlabel(), ax.get_ylabel()) == ("TM", "energy (J)")
    assert ax.get_title() == "Energy by level, least energy at each TM"
    assert [t.get_text() for t in ax.get_xticklabels()][:3] == ["1", "3", "5"]
    least = leaking.frame.groupby("TM")["energy"].min()
    tops = [b.get_y() + b.get_height() for b in ax.patches][-len(least) :]
    assert tops == pytest.approx(least.tolist())
    assert ax.get_ylim()[0] == 0


@pytest.mark.slow
def test_traffic_by_level_along_a_symbol(leaking: pm.Sweep) -> None:
    ax = leaking.plot("traffic", "TK")
    assert [t.get_text() for t in ax.get_xticklabels()] == ["1", "2", "3", "4", "6", "12"]
    rows = leaking.frame.loc[leaking.frame.groupby("TK")["energy"].idxmin()]
    dram = (rows["reads:DRAM"] + rows["writes:DRAM"]).tolist()
    assert [b.get_height() for b in ax.patches][: len(dram)] == dram
    everything = leaking.plot("energy")
    assert everything.get_title() == f"Energy by level of {len(leaking.frame)} points"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("heat", "TM"), "over two symbols"),
        (("heat", "TM", "TX"), "over two symbols"),
        (("energy", "TX"), "along one symbol"),
        (("traffic", "TM", "TK"), "along one symbol"),
        (("pie",), "no picture 'pie'"),
    ],
)
def test_what_cannot_be_drawn(found: pm.Sweep, arguments: tuple[str, ...], message: str) -> None:
    with pytest.raises(pm.SpecError, match=message):
        found.plot(*arguments)


def test_pictures_along_a_symbol_need_every_point(found: pm.Sweep) -> None:
    front = pm.sweep(found.specs[0], {"TM": [1, 2], "TK": [1, 64]})
    with faults("nothing-to-show", at=""):
        front.plot("energy", "TM")


def test_a_front_over_three_objectives_is_no_staircase(found: pm.Sweep) -> None:
    objectives = ("accesses:DRAM", "working_set:GLB", "energy")
    three = pm.sweep(found.specs[0], {"TM": pm.all_sizes("m"), "TK": [4, 16]}, objectives=objectives)
    ax = three.plot("front")
    assert not ax.lines
    bars = [a for a in ax.figure.axes if a is not ax]
    assert [b.get_ylabel() for b in bars] == ["energy (J)"]
    assert len(found.plot("front").lines) == 1


def test_axes_have_prefixes_and_a_title(found: pm.Sweep) -> None:
    ax = found.plot("front")
    assert {ax.xaxis.get_major_formatter()(20_000.0), ax.yaxis.get_major_formatter()(20_000.0)} == {"20 kb"}
    assert ax.get_title() == "Pareto front over accesses:DRAM, working_set:GLB"


def two_mappings() -> pm.Sweep:
    def nodes(name: str, held: list[str]) -> dict[str, object]:
        return {"mapping": {"name": name, "nodes": [
            {"type": "Storage", "component": "DRAM", "tensors": ["A", "B", "C"]},
            {"type": "Temporal", "rank_variable": "m", "tile_shape": "TM"},
            {"type": "Temporal", "rank_variable": "k", "tile_shape": "TK"},
            {"type": "Storage", "component": "GLB", "tensors": held, "reuse": "slide"},
            {"type": "Compute", "einsum": "Matmul", "component": "MAC"},
        ]}}  # fmt: skip

    every, bypass = (
        pm.load("matmul", "simple_two_level", nodes(n, t))
        for n, t in (("whole", ["A", "B", "C"]), ("bypass", ["A", "C"]))
    )
    assert every.template
    assert bypass.template
    return pm.sweep(
        every, {"TM": pm.divisors("m"), "TK": pm.divisors("k")}, keep="all",
        mappings=[every.template, bypass.template], objectives=("accesses:DRAM", "working_set:GLB"),
    )  # fmt: skip


def test_several_mappings_have_colours_and_are_named() -> None:
    swept = two_mappings()
    assert set(swept.front["mapping"]) == {"whole", "bypass"}
    labels = [t.get_text().partition(",")[0] for t in swept.plot("front").get_legend().get_texts()]
    assert {"whole", "bypass"} <= set(labels)
    ax = swept.plot("heat", "TM", "TK")
    assert "whole, bypass" in ax.get_title()
    drawn = ax.images[0].get_array()
    assert ax.images[0].norm.vmax == drawn.max()


def test_traffic_is_in_the_order_that_it_says(found: pm.Sweep) -> None:
    few = pm.sweep(found.specs[0], {"TM": [1, 64, 8], "TK": [1, 64]}, objectives=("energy",), keep="all")
    ax = few.plot("traffic")
    tops = [b.get_y() + b.get_height() for b in ax.patches][-len(few.frame) :]
    ordered = few.frame.sort_values("energy", kind="stable")
    moved = ordered[[c for c in ordered.columns if c.startswith(("reads:", "writes:"))]].sum(axis=1)
    assert tops == moved.tolist()
    assert ax.get_xlabel() == "point, by energy"
    many = found.plot("traffic")
    assert not many.patches
    assert len(many.collections) == 2


def test_a_sweep_shows_itself_in_a_notebook(found: pm.Sweep) -> None:
    page = found._repr_html_()
    assert "448 points" in page
    assert ">accesses:DRAM</th>" in page
    first = found.objectives[0]
    rows = found.frame.sort_values(["feasible", first], ascending=[False, True], kind="stable")
    assert all(f'title="{v:.0f} bit">' in page for v in rows[first].head(12))
    assert f"{len(found.frame) - 12} more rows" in page
    assert "<table" not in pm.sweep(found.specs[0], {"TM": [1], "TK": [2]}, where=["TM > 1"])._repr_html_()


def test_a_level_that_a_stack_would_hide_is_a_line_of_its_own() -> None:
    rows = pd.DataFrame({"DRAM": [1e6, 2e6, 4e6], "GLB": [1e9, 1e9, 9e8], "RF": [0.0, 2e9, 3e9]})
    ax = level_axes(rows, ("accesses", "bit"), "point")
    assert ax.get_title() == "Traffic by level of 3 points (logarithmic)"
    assert [line.get_label() for line in ax.lines] == ["DRAM", "GLB", "RF"]
    assert not ax.patches
    low, high = ax.get_ylim()
    assert low < 0, "0 has a place as well"
    assert high > 3e9
    named = [t.get_text() for t in ax.get_legend().get_texts()]
    assert named == ["RF: 3 Gb", "GLB: 900 Mb", "DRAM: 4 Mb"]
    near = level_axes(rows[["GLB", "RF"]], ("accesses", "bit"), "point")
    assert len(near.patches) == 6
    assert near.get_yscale() == "linear"


@pytest.mark.parametrize(("low", "ratio"), [(1.7e9, 1.0001), (3.3e-9, 1.0001), (1.7e9, 900.0), (7.0, 90.0)])
def test_labels_below_a_front_stand_beside_each_other(low: float, ratio: float) -> None:
    values = np.linspace(low, low * ratio, 5)
    rows = pd.DataFrame({"mapping": "mapping", "a": values, "b": values[::-1], "c": values, "fused": ""})
    ax = explored_axes(rows, "abc", ("a", "b"), dict.fromkeys("abc", "J"))
    assert ax.figure is not None
    ax.figure.canvas.draw()
    boxes = [t.get_window_extent() for t in ax.get_xticklabels() if t.get_text()]
    assert len(boxes) > 1
    assert not [1 for one, other in combinations(boxes, 2) if one.overlaps(other)]
