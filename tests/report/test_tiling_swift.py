"""Tiler-Swift's published figures beside ours, as a report and as charts."""

from __future__ import annotations

from pathlib import Path

import matplotlib
import numpy as np
import pytest
from matplotlib.figure import Figure

import polymodel as pm
from polymodel.errors import SpecError
from polymodel.report.tiling.plots_swift import plot_chart, plot_means
from polymodel.report.tiling.swift import TilerSwift
from polymodel.sparse.tensor import SparseTensor
from polymodel.tiling.cost.model import Launch
from polymodel.tiling.fits.fit import Op
from polymodel.tiling.swift import compat
from tests.faults import faults
from tests.tiling.original import EXACT, all_six

matplotlib.use("agg")
FILE = str(Path(__file__).resolve().parents[1] / "data" / "matrices" / "pairs.mtx.gz")


@pytest.fixture(scope="module")
def found() -> TilerSwift:
    """All six names and sizes; the places of two are our own, so figures over all of them are not published
    ones."""
    return pm.tiler_swift_comparison(all_six())


def heights(figure: Figure) -> list[list[float]]:
    """Of all bars, panel by panel, those of one series after the other."""
    return [[bar.get_height() for bars in ax.containers for bar in bars] for ax in figure.axes]


def test_claims_stand_beside_what_becomes_of_them(found: TilerSwift) -> None:
    means = found.means.set_index(["op", "tiler"])
    assert list(means["claimed_speed_up"]) == [2.97, 2.62, 3.89, 3.75]
    assert list(means["claimed_reduction"]) == [80.89, 76.82, 89.98, 89.91]
    assert means.attrs["units"]["corrected_reduction_all"] == "%"
    assert found.original
    assert not any("what is given here" in note for note in found.notes)


def test_bars_are_those_of_the_charts(found: TilerSwift) -> None:
    bars = found.bars
    assert len(bars) == 36
    assert bars["published_run"].notna().sum() == 34
    first = bars.iloc[0]
    assert (first["matrix"], first["op"], first["tiler"]) == ("bcsstm26", "add", "simple")
    assert (first["published_run"], first["as_built_tiles"]) == (16720, 1089)
    assert first["deviation"] == pytest.approx(first["as_built_run"] / 16720 - 1)
    exact = bars[bars["matrix"].isin(EXACT)]
    assert (len(exact), (exact["deviation"].abs() <= 0.025).sum()) == (24, 17)


def test_tiles_that_do_not_fit_are_told(found: TilerSwift) -> None:
    bars = found.bars
    over = bars[bars["as_built_overflowing"] > 0]
    assert set(over["tiler"]) == {"qtree+merge"}
    assert "as built, overflowing" in str(found)
    assert "merges are not checked" in found._repr_html_()
    assert repr(found) == f"TilerSwift({', '.join(compat.MATRICES)}; 128 elements)"


def test_another_matrix_of_the_same_name_has_no_published_bars() -> None:
    other = SparseTensor.from_dense("ts_rel5", ("I", "J"), np.eye(9))
    one = pm.tiler_swift_comparison([other])
    assert one.matrices == ("rel5",)
    assert one.bars["published_run"].isna().all()
    assert not one.original
    assert "means over what is given here" in str(one)
    assert len(heights(one.plot())[0]) == 3 * 3


def test_another_memory_has_no_published_bars() -> None:
    one = pm.tiler_swift_comparison(all_six()[5:], capacity=64, launch=Launch(config_add=100))
    assert one.bars["published_config"].isna().all()
    assert (one.bars["as_built_config"] % 100)[one.bars["op"] == "add"].eq(0).all()


@pytest.mark.slow
@pytest.mark.parametrize("op", ["add", "multiply"])
@pytest.mark.parametrize("quantity", ["run", "config"])
@pytest.mark.thin(2)
def test_charts_show_every_bar(found: TilerSwift, quantity: str, op: Op) -> None:
    drawn = plot_chart(found.comparison.bars, quantity, op)
    fields = (f"published_{quantity}", f"as_built_{quantity}", f"corrected_{quantity}_all",
              f"corrected_{quantity}_nonempty")  # fmt: skip
    bars = found.bars
    for ax, shown, matrix in zip(drawn.axes, heights(drawn), compat.MATRICES, strict=True):
        mine = bars[(bars["matrix"] == matrix) & (bars["op"] == op)]
        assert ax.get_title() == matrix
        assert shown == [0 if np.isnan(v) else v for f in fields for v in mine[f].astype(float)]
        unread = int(mine[fields[0]].isna().sum())
        assert [t.get_text() for t in ax.texts] == ["not read"] * unread


def test_means_are_drawn_with_their_figures(found: TilerSwift) -> None:
    for ax, what, most in zip(found.plot_means().axes, ("speed_up", "reduction"), (16, 16), strict=True):
        columns = [c for c in found.means.columns if what in c]
        figures = {f"{v:.2f}" for c in columns for v in found.means[c]}
        assert 10 <= len(figures) <= most
        assert figures <= {t.get_text() for t in ax.texts}


def test_a_mean_that_does_not_exist_is_a_dash() -> None:
    """One entry: no tiler saves anything, and operands that never meet have no ratio to speak of."""
    one = pm.tiler_swift_comparison([SparseTensor.from_dense("A", ("I", "J"), np.array([[0, 1]]))])
    assert one.means["corrected_reduction_all"].eq(0).all()
    assert plot_means(one.comparison.means).axes


def test_bad_input(found: TilerSwift) -> None:
    for given, told in (
        ([], "no matrix to compare"),
        (FILE, "one matrix is given where several"),
        ([FILE, FILE], "pairs is given more than once"),
        ([3], "sparse tensor or file"),
    ):
        with pytest.raises(SpecError, match=told):
            pm.tiler_swift_comparison(given)
    with faults("wrong-type", "Launch", at=""):
        pm.tiler_swift_comparison([FILE], launch=3)  # type: ignore[arg-type]  # that is the fault
    with pytest.raises(SpecError) as both:
        plot_chart(found.comparison.bars, "tiles", "divide")  # type: ignore[arg-type]  # that too
    assert len(both.value.diagnostics) == 2
    with faults("nothing-to-show", at=""):
        plot_means(())
