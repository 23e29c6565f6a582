"""Pictures of tilings: what is drawn is what was cut, at any size."""

from __future__ import annotations

from time import process_time

import matplotlib
import numpy as np
import pytest
from matplotlib.collections import LineCollection, PolyCollection

from polymodel.report.tiling.plots import (
    TilerBar,
    TilingPicture,
    cells,
    joined,
    plot_bars,
    plot_tilers,
    plot_tiles,
    segments,
    strokes,
)
from polymodel.sparse.tensor import SparseTensor
from polymodel.tiling.cost.model import costs
from polymodel.tiling.fits.fit import Elements
from polymodel.tiling.plane.operands import Alone, Rolled, pattern_of
from polymodel.tiling.plane.pattern import Pattern, Rects
from polymodel.tiling.tilers.trees import btree, simple
from tests.faults import faults
from tests.seeds import seeds

matplotlib.use("agg")


def pattern(rows: int, columns: int, points: int, seed: int = 0) -> Pattern:
    rng = np.random.default_rng(seed)
    at = np.stack([rng.integers(0, rows, points), rng.integers(0, columns, points)])
    a = SparseTensor.from_coo("M", ("I", "J"), (rows, columns), at, np.ones(points))
    return pattern_of(a, Alone())


def tiled(p: Pattern, capacity: int, tiler=btree) -> TilingPicture:
    found = costs(p, tiler(p, "add", Elements(capacity)), "add", Elements(capacity))
    return TilingPicture(p, found.cut.rects, found.runs, found.fits, "a title")


def painted(rects: Rects, shape: tuple[int, int]) -> np.ndarray:
    """Which tile each place is in, one by one."""
    found = np.full(shape, -1)
    for number, (row, col, height, width) in enumerate(rects.table().tolist()):
        found[row : row + height, col : col + width] = number
    return found


@pytest.mark.parametrize("tiler", [btree, simple])
@pytest.mark.parametrize("shape", [(13, 29), (1, 40), (40, 1), (32, 32)])
def test_borders_are_where_neighbours_are_in_different_tiles(shape: tuple[int, int], tiler: object) -> None:
    p = pattern(*shape, 60)
    rects = tiled(p, 7, tiler).rects
    owner = painted(rects, shape)
    across = np.zeros((shape[0] + 1, shape[1]), dtype=int)
    down = np.zeros((shape[0], shape[1] + 1), dtype=int)
    for (x0, y0), (x1, y1) in segments(rects)[0].tolist():
        if y0 == y1:
            across[y0, x0:x1] += 1
        else:
            assert x0 == x1
            down[y0:y1, x0] += 1
    assert (across[1:-1] == (owner[1:] != owner[:-1])).all()
    assert (down[:, 1:-1] == (owner[:, 1:] != owner[:, :-1])).all()
    assert not across[[0, -1]].any()
    assert not down[:, [0, -1]].any()


def test_a_grid_is_drawn_by_as_many_lines_as_it_has() -> None:
    p = pattern(64, 64, 900)
    rects = tiled(p, 20, simple).rects
    assert rects.tiles == 64
    lines, gaps = segments(rects)
    assert set(gaps.tolist()) == {8}
    assert len(lines) == len(set(rects.row.tolist())) + len(set(rects.col.tolist())) - 2


def test_joined_rectangles_cover_the_same_places() -> None:
    p = pattern(40, 50, 90)
    found = tiled(p, 3)
    idle = found.rects.taken(~found.launched)
    assert 0 < joined(idle).tiles <= idle.tiles
    assert ((painted(idle, p.shape) >= 0) == (painted(joined(idle), p.shape) >= 0)).all()
    assert joined(idle.taken(np.zeros(idle.tiles, dtype=bool))).tiles == 0


def test_cells_count_places() -> None:
    p = pattern(103, 57, 700)
    counts, steps = cells(p, 20)
    assert steps == (6, 3)
    slow = np.zeros(counts.shape, dtype=int)
    for row, col in zip(p.rows.tolist(), p.cols.tolist(), strict=True):
        slow[row // 6, col // 3] += 1
    assert (counts == slow).all()


def test_picture_says_what_it_shows() -> None:
    p = pattern(60, 90, 40)
    found = tiled(p, 1)
    ax = plot_tiles(found)
    assert ax.get_title() == "a title"
    assert ax.get_xlabel() == "J (coordinate)"
    assert ax.get_ylabel() == "I (coordinate)"
    (lines,) = (c for c in ax.collections if isinstance(c, LineCollection))
    assert len(lines.get_segments()) == len(segments(found.rects)[0])
    assert sum(isinstance(c, PolyCollection) for c in ax.collections) == 1  # idle tiles; all fit
    legend = ax.figure.legends[0].get_texts()[0].get_text()
    assert legend == f"not launched ({int((~found.launched).sum())} tiles)"
    with faults("not-positive-integer", at=""):
        plot_tiles(found, bins=0)


def test_tiles_that_do_not_fit_are_red() -> None:
    p = pattern(20, 20, 100)
    found = TilingPicture(p, Rects.whole(p.shape), np.array([True]), np.array([False]), "")
    assert [t.get_text() for t in plot_tiles(found).figure.legends[0].get_texts()] == [
        "does not fit (1 tile)"
    ]


@pytest.mark.parametrize("shape", [(1, 1), (1, 500), (500, 1), (3, 1000), (1000, 3), (2, 2)])
@pytest.mark.parametrize("points", seeds(2, [0, 40, 1]))
@pytest.mark.thin(5)
def test_any_shape_draws(shape: tuple[int, int], points: int) -> None:
    ax = plot_tiles(tiled(pattern(*shape, points), 16))
    ax.figure.canvas.draw()


@pytest.mark.slow
def test_a_million_places_and_many_tiles_draw_quickly() -> None:
    p = pattern(50_000, 50_000, 1_000_000)
    found = tiled(p, 128)
    assert found.rects.tiles > 10_000
    begun = process_time()
    plot_tiles(found).figure.canvas.draw()
    assert process_time() - begun < 5


def test_borders_of_small_tiles_fade() -> None:
    widths, opaque = strokes(np.array([300.0, 2.0]), np.array([100.0, 100.0]))
    assert widths[0] > widths[1]
    assert opaque[0] > opaque[1]
    # Close ones are a tint: it is seen, and what lies below it as well.
    for gap in (0.4, 1.0, 1.4):
        widths, opaque = strokes(np.array([300.0]), np.array([gap]))
        assert 0.2 < (widths * opaque)[0] / gap < 0.3
    # Seventy strips in a picture of 190 points are lines still, not a tint.
    widths, opaque = strokes(np.array([150.0]), np.array([2.7]))
    assert (widths * opaque)[0] > 0.3


def test_a_legend_says_that_borders_run_into_a_tint() -> None:
    p = pattern(400, 400, 4_000)
    for height, told in ((80, []), (1, ["tiles thinner than lines can show"])):
        rects = Rects.of([(row, 0, height, 400) for row in range(0, 400, height)])
        flags = np.ones(rects.tiles, dtype=np.bool_)
        figure = plot_tiles(TilingPicture(p, rects, flags, flags, "strips")).figure
        assert [text.get_text() for legend in figure.legends for text in legend.get_texts()] == told


def test_small_multiples_say_what_a_tint_is_as_well() -> None:
    p = pattern(600, 600, 9_000)
    strips = Rects.of([(row, 0, 3, 600) for row in range(0, 600, 3)])
    flags = np.ones(strips.tiles, dtype=np.bool_)
    figure = plot_tilers([TilingPicture(p, strips, flags, flags, "strips"), tiled(p, 128, simple)])
    (legend,) = figure.legends
    assert [text.get_text() for text in legend.get_texts()] == ["tiles thinner than lines can show"]
    figure.set_dpi(80)
    figure.canvas.draw()
    shown = np.asarray(figure.canvas.buffer_rgba())[:, :, :3].astype(int)
    box = figure.axes[0].get_window_extent()
    panel = shown[:, int(box.x0) + 2 : int(box.x1) - 2]
    orange = (panel[:, :, 0] - panel[:, :, 2]) > 15
    assert orange.mean() > 0.3, "strips are seen at 80 dots per inch"


@pytest.mark.slow
def test_one_row_of_pictures_keeps_titles_and_labels() -> None:
    p = pattern(400, 400, 4_000)
    figure = plot_tilers([tiled(p, 128)] * 4)
    figure.canvas.draw()
    high = figure.bbox.height
    for ax in figure.axes:
        box = ax.get_tightbbox()
        assert box is not None
        assert 0 <= box.y0 < box.y1 <= high


@pytest.mark.thin(99)
@pytest.mark.parametrize(("speedup", "told"), [(1.5, "1.50 x faster"), (0.5, "2.00 x slower")])
def test_bars_say_slower_where_it_is(speedup: float, told: str) -> None:
    bars = [TilerBar("simple", 4, 4, 4, None, None), TilerBar("other", 4, 4, 8, 0.0, speedup)]
    figure = plot_bars(bars, bound=2, against="simple", title="M")
    assert told in [text.get_text() for text in figure.axes[2].texts]


def test_small_multiples_and_bars() -> None:
    p = pattern_of(SparseTensor.from_coo("M", ("I", "J"), (9, 9), [[1, 5], [2, 3]], [1, 1]), Rolled())
    found = [tiled(p, c) for c in (2, 3, 4, 5, 6)]
    assert len([a for a in plot_tilers(found).axes if a.axison]) == 5
    bars = [
        TilerBar("simple", 9, 90, 50, None, None),
        TilerBar("best", 4, 40, 20, 1 - 40 / 90, 2.5, chosen=True),
    ]
    kernels, config, run = plot_bars(bars, bound=3, against="simple", title="t").axes
    assert [patch.get_width() for patch in kernels.patches] == [9, 4]
    assert [t.get_text() for t in config.texts] == ["", "-55.6 %"]
    assert [t.get_text() for t in run.texts] == ["", "2.50 x faster"]
    assert [t.get_text() for t in kernels.texts] == ["3.00 x bound", "1.33 x bound", "bound 3"]
    with faults("missing-argument", at=""):
        plot_bars([], bound=1, against="simple", title="")
    with faults("missing-argument", at=""):
        plot_tilers([])


def test_the_lowest_picture_of_each_column_has_its_coordinates() -> None:
    p = pattern(40, 60, 300)
    figure = plot_tilers([tiled(p, 128)] * 5)
    below = [ax.get_xlabel() != "" and ax.xaxis.get_tick_params()["labelbottom"] for ax in figure.axes[:5]]
    assert below == [False, False, True, True, True]
