"""What users see of the loop between tiler and model."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import polymodel as pm
from polymodel.api.tilings import tune_tiling
from polymodel.quantities import engineering
from polymodel.report.tiling.plots import plot_tuning
from polymodel.report.tiling.tune import Tuning
from polymodel.sparse.tensor import SparseTensor
from polymodel.tiling.cost.model import Launch, costs
from polymodel.tiling.fits.fit import Elements, Words, stored
from polymodel.tiling.plane.operands import Alone, Transposed
from polymodel.tiling.tilers.trees import btree

FILE = Path(__file__).parent.parent / "data" / "matrices" / "programme.mtx.gz"


@pytest.fixture(scope="module")
def found() -> Tuning:
    return tune_tiling(FILE, op="mul", launch=Launch(clock_mhz=100))


def test_steps_are_a_table(found: Tuning) -> None:
    steps = found.steps
    assert list(steps["step"]) == list(range(1, len(steps) + 1))
    assert list(steps["proposal"][:2]) == ["btree", "strips"]
    assert (steps["total_cycles"] == steps["config_cycles"] + steps["run_cycles"]).all()
    assert (steps["config_cycles"] == 907 * steps["kernels"]).all()
    assert list(steps["best"]) == list(np.minimum.accumulate(steps["figure"].astype(int)))
    assert list(steps["saved_s"]) == pytest.approx(list((steps["figure"][0] - steps["best"]) * 1e-8))
    assert set(steps["label"]) == {"exact"}
    assert steps["tiler_s"].sum() == pytest.approx(found.seconds)
    assert all(steps["why"])
    assert steps.attrs["units"]["tiler_s"] == "s"


def test_never_worse_than_the_binary_tree(found: Tuning) -> None:
    tree = costs(found.pattern, btree(found.pattern, "multiply", Elements(128)), "multiply", Elements(128))
    assert found.costs.total_cycles <= tree.total_cycles == found.steps["figure"][0]
    assert found.bound <= found.costs.total_cycles


def test_time_spent_stands_beside_time_saved(found: Tuning) -> None:
    assert found.seconds_saved == pytest.approx(found.steps["saved_s"].iloc[-1])
    assert found.break_even is not None
    assert f"pays after {found.break_even:,} run" in str(found)
    assert "the loop ended: " in str(found)


def test_no_saving_is_told() -> None:
    """One entry: the tree is one tile, and no better one exists."""
    one = tune_tiling(SparseTensor.from_dense("A", ("M", "N"), np.array([[0, 1]])), Alone())
    assert one.break_even is None
    assert "no run gets shorter than with btree" in str(one)
    assert one.ended == "the lower bound is reached"


def test_the_result_is_a_tiling(found: Tuning) -> None:
    tiling = found.tiling
    assert tiling.costs is found.costs
    assert tiling.tiler == found.cut.tiler == found.chosen.proposal.name
    assert len(tiling.tiles) == found.costs.tiles
    assert str(found.costs.tiles) in str(tiling)


def test_texts_and_pictures(found: Tuning) -> None:
    assert repr(found).startswith(
        f"Tuning(programme: {found.chosen.figure:,} cycles of configuration and running"
    )
    assert f"{found.chosen.figure:,}" in str(found)
    assert "<table" in found._repr_html_()
    axes = found.plot()
    best = next(line for line in axes.lines if line.get_label() == "best so far")
    assert list(best.get_ydata()) == [s.best for s in found.tuned.steps]
    points = next(line for line in axes.lines if line.get_label() == "proposal")
    assert list(points.get_ydata()) == [s.figure for s in found.tuned.steps if s.fits]
    legend = axes.get_legend()
    assert legend is not None
    told = [t.get_text() for t in legend.get_texts()]
    better = [s for s in found.tuned.steps if s.improved]
    assert told[told.index("improvements by step") + 1 :] == [
        f"{s.number} {s.proposal.name}: {engineering(s.figure)}" for s in better
    ]
    assert not axes.texts, "names beside points run into each other"
    assert axes.get_title() == f"programme: {found.costs.op}, 128 elements; the loop ended: {found.ended}"
    assert plot_tuning(found, axes) is axes


@pytest.mark.slow
def test_operands_fits_and_objectives() -> None:
    square = SparseTensor.from_dense("A", ("M", "N"), np.triu(np.ones((9, 9), dtype=int)))
    for second in (Alone(), Transposed(), square, None):
        for fit in (Elements(7), Words(20)):
            for objective in ("tiles", "cycles", "total"):
                tuned = tune_tiling(square, second, op="multiply", fit=fit, objective=objective)
                assert not tuned.costs.overflowing
                assert tuned.bound <= tuned.chosen.figure


def test_wrong_arguments_are_told() -> None:
    square = SparseTensor.from_dense("A", ("M", "N"), np.eye(3, dtype=int))
    wrong: list[tuple[dict[str, object], str]] = [
        ({"launch": "fast"}, "Launch"),
        ({"op": "max"}, "max"),
        ({"fit": 128}, "fits"),
        ({"objective": "time"}, "objective 'time'"),
        ({"patience": 0, "runs": -1}, "2 faults"),
        ({"ranks": ("M", "X")}, "X"),
    ]
    for options, said in wrong:
        with pytest.raises(pm.SpecError, match=said) as caught:
            tune_tiling(square, **options)  # type: ignore[arg-type]  # wrong arguments on purpose
        assert all(d.remedy for d in caught.value.diagnostics)


def test_it_is_in_the_facade() -> None:
    assert pm.tune_tiling is tune_tiling
    assert pm.Tuning is Tuning


def test_bounds_that_say_little_are_called_loose(found: Tuning) -> None:
    told = f"bound   {found.bound:,} (a loose bound); this is {found.chosen.figure / found.bound:.3f} x that"
    assert told in str(found)
    assert told.partition("bound      ")[2] in found._repr_html_()
    small = SparseTensor.from_dense("A", ("M", "N"), np.eye(6))
    assert "loose" not in str(tune_tiling(small, Alone(), fit=Elements(2)))
    assert "(a loose bound)" in str(tune_tiling(small, Alone(), fit=stored("CSR", 400)))
