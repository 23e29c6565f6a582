"""Models of structure, checked by drawing: rows and columns, diagonals, blocks, 2:4 of blocks."""

from __future__ import annotations

from collections import Counter
from functools import cache
from itertools import combinations, product
from typing import Any

import numpy as np
import pytest

import polymodel as pm
from polymodel.errors import Refused
from polymodel.sparse.density import Actual, DensityModel, model_of
from polymodel.sparse.density.slices import greedy
from tests.faults import faults, refused

IK = ("I", "K")
GRAPH = pm.generate_tensor("power-law", 1, shape=[256, 256], entries=1500)
MODELS: dict[str, DensityModel] = {
    "hubs": pm.RowColumn.from_tensor(GRAPH),
    "stencil": pm.Diagonals.of(IK, (120, 120), [-12, -1, 0, 1, 12], [0.9, 0.7, 1, 0.7, 0.9]),
    "noisy band": pm.Diagonals.of(IK, (90, 110), range(-4, 5), 0.4, background=0.005),
    "symmetric": pm.Diagonals.of(
        IK, (120, 120), [-12, -1, 0, 1, 12], [0.9, 0.6, 0.8, 0.6, 0.9], background=0.003, symmetric=True
    ),
    "grid": pm.Diagonals.of(
        IK,
        (120, 130),
        [-12, -1, 0, 1, 12],
        [0.9, 0.7, 1, 0.7, 0.8],
        0.002,
        gaps=[(1, 12, 11, 1), (-1, 12, 0, 1), (12, 60, 48, 12)],
    ),
    "symmetric grid": pm.Diagonals.of(
        IK,
        (120, 120),
        [-12, -1, 0, 1, 12],
        [0.9, 0.6, 0.8, 0.6, 0.9],
        0.003,
        symmetric=True,
        gaps=[(-12, 60, 0, 12), (-1, 12, 0, 1), (0, 20, 5, 3), (1, 12, 11, 1), (12, 60, 48, 12)],
    ),
    "elements": pm.Blocks.of(
        IK, (96, 96), (6, 6), pm.Diagonals.of(IK, (16, 16), range(-3, 4), [0.7, 0.7, 0.7, 1, 0.7, 0.7, 0.7])
    ),
    "random blocks": pm.Blocks.of(IK, (100, 90), (4, 4), pm.Uniform.of(IK, (25, 23), density=0.1), 0.6),
    "two of four blocks": pm.Blocks.of(
        IK, (64, 64), (4, 4), pm.FixedStructured(IK, (16, 16), 2, 4), pm.FixedStructured(IK, (4, 4), 2, 4)
    ),
}
TILES = [(1, 1), (1, 16), (8, 8), (12, 12), (32, 20)]
DRAWN = 25
ANSWERS = ("expected", "p_empty", "expected_tiles", "expected_squares")


@pytest.mark.parametrize(
    "fill",
    [
        0.5,
        pm.Uniform.of(IK, (6, 6), nnz=18),
        pm.FixedStructured(IK, (6, 6), 1, 3),
        pm.FixedStructured(IK, (6, 6), 2, 3, "I"),
        pm.Blocks.of(IK, (6, 6), (2, 2), pm.Uniform.of(IK, (3, 3), nnz=4), 0.7),
    ],
    ids=repr,
)
def test_blocks_are_filled_each_by_itself(fill: DensityModel | float) -> None:
    model = pm.Blocks.of(IK, (120, 180), (6, 6), pm.Uniform.of(IK, (20, 30), density=1.0), fill)
    tensor = model.draw(3)
    held = tensor.to_dense().reshape(20, 6, 30, 6).swapaxes(1, 2).reshape(600, 36) != 0
    assert len(np.unique(held, axis=0)) > 550
    if isinstance(fill, (pm.Uniform, pm.FixedStructured)):
        assert set(held.sum(axis=1)) == {round(fill.expected_nnz)}
    near = 6 * (model.fill.variance((1, 1)) / 600) ** 0.5 + 1e-9  # of 36 places the farthest off
    assert np.abs(held.mean(axis=0) - model.fill.density).max() < near


@pytest.mark.parametrize("tile", [(1, 128), (128, 1), (4, 160), (3, 128), (2, 2), (1, 60)])
def test_rows_of_a_full_block_are_one(tile: tuple[int, int]) -> None:
    """Eight equal rows are no eight chances to be the fullest: E[max] was 18 % too high."""
    arrangement = pm.Uniform.of(IK, (20, 20), nnz=40)
    model = pm.Blocks.of(IK, (160, 160), (8, 8), arrangement, 1.0)
    drawn = [float(Actual.of(model.draw(seed)).expected_max(tile)) for seed in range(60)]
    assert float(model.expected_max(tile)) == pytest.approx(np.mean(drawn), rel=0.04), tile


@cache
def matrices(name: str) -> list[Actual]:
    """Drawn from a model."""
    return [Actual.of(MODELS[name].draw(seed)) for seed in range(DRAWN)]


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.thin(99)
def test_tiles_are_those_of_drawn_matrices(name: str) -> None:
    model = MODELS[name]
    drawn = matrices(name)
    assert np.mean([a.expected_nnz for a in drawn]) == pytest.approx(model.expected_nnz, rel=0.03)
    for tile in TILES:
        # The law of cut blocks in groups is one of independent parts.
        cut = name == "two of four blocks" and any(t % 4 for t in tile)
        for answer in ANSWERS if not cut else ANSWERS[:1]:
            seen = np.array([float(getattr(a, answer)(tile)) for a in drawn])
            near = 4 * float(seen.std()) / len(drawn) ** 0.5 + 0.015 * abs(float(seen.mean())) + 1e-3
            assert float(getattr(model, answer)(tile)) == pytest.approx(float(seen.mean()), abs=near), tile
        greatest = np.array([float(a.expected_max(tile)) for a in drawn])
        found = float(model.expected_max(tile))
        mean = float(greatest.mean())
        near = 4 * float(greatest.std()) / len(drawn) ** 0.5 + 0.02 * mean
        if model.max_label(tile) == "expected":
            assert found == pytest.approx(mean, abs=near), tile
        else:
            # Lower bound of tiles that take from each other, upper bound of those that share blocks.
            low = name == "hubs"
            assert (found - mean) * (1 if low else -1) < near, tile
            assert found == pytest.approx(mean, rel=0.1 if low else 0.4), tile


def law_of_points(model: pm.Diagonals, rect: tuple[int, int, int, int]) -> np.ndarray:
    """P(0), P(1), .. nonzeros of a rectangle, one point after the other; mirror images come together."""
    row, column, height, width = rect
    fill = dict(zip(model.offsets, model.fill, strict=True))
    gaps = {offset: gap for offset, *gap in model.gaps}
    points = [(i, k) for i in range(row, row + height) for k in range(column, column + width)]
    groups = Counter((min(p), max(p)) if model.symmetric else p for p in points)
    law = np.zeros(height * width + 1)
    law[0] = 1.0
    for (i, k), number in groups.items():
        period, start, length = gaps.get(k - i, (1, 0, 0))
        share = model.background if (i - start) % period < length else fill.get(k - i, model.background)
        law = (1 - share) * law + share * np.concatenate((np.zeros(number), law[:-number]))
    return law


@pytest.mark.parametrize("gaps", [[], [(-1, 4, 0, 1), (0, 7, 5, 3), (1, 4, 3, 1)]])
@pytest.mark.parametrize("symmetric", [False, True])
@pytest.mark.parametrize("background", [0.0, 0.05])
def test_the_law_of_a_rectangle_is_that_of_its_points(
    symmetric: bool, background: float, gaps: list[tuple[int, int, int, int]]
) -> None:
    told = [-3, -1, 0, 1, 3], [0.9, 0.6, 0.8, 0.6, 0.9], background, symmetric, gaps
    model = pm.Diagonals.of(IK, (12, 12), *told)
    rects = [(0, 0, 4, 4), (4, 4, 5, 5), (0, 3, 4, 6), (6, 2, 3, 5), (2, 3, 7, 1), (0, 0, 12, 12)]
    s = np.arange(145.0)
    found = model.regions().laws(np.array(rects)).above(s)
    for rect, above in zip(rects, found, strict=True):
        law = law_of_points(model, rect)
        wanted = 1 - np.cumsum(np.append(law, np.zeros(s.size - law.size)))
        assert np.abs(above - wanted).max() < 1e-12, rect
        # A row is empty if none of its points is nonzero.
        row, column, height, width = rect
        some = sum(1 - law_of_points(model, (row + i, column, 1, width))[0] for i in range(height))
        assert model.regions().rows(np.array([rect]))[0] == pytest.approx(some, rel=1e-12)


GRIDS = {
    "5 points": pm.generate_tensor("stencil", height=20, width=24),
    "9 points": pm.generate_tensor("stencil", height=14, width=31, points=9),
}


@pytest.mark.parametrize("symmetric", [False, True])
@pytest.mark.parametrize("name", GRIDS)
def test_a_grid_is_its_diagonals_and_their_gaps(name: str, symmetric: bool) -> None:
    tensor = GRIDS[name].renamed("A", IK)
    data, width = Actual.of(tensor), 24 if name == "5 points" else 31
    ends = [(1, width, width - 1, 1), (-1, width, 0, 1)]
    offsets = [-width, -1, 0, 1, width]
    if name == "9 points":
        offsets += [width + 1, width - 1, -width - 1, 1 - width]
        ends += [(o, width, width - 1, 1) for o in (width + 1, 1 - width)]
        ends += [(o, width, 0, 1) for o in (width - 1, -width - 1)]
    model = pm.Diagonals.of(IK, tensor.shape, offsets, 1.0, symmetric=symmetric, gaps=ends)
    assert model.expected_nnz == tensor.nnz
    assert (model.draw(1).numbers == tensor.numbers).all()
    for tile in product((1, 5, 12, 24, 100, 480), (1, 7, 12, 32, 480)):
        for answer in (*ANSWERS, "variance", "expected_max"):
            wanted = float(getattr(data, answer)(tile))
            found = float(getattr(model, answer)(tile))
            assert found == pytest.approx(wanted, rel=1e-9, abs=1e-9), (tile, answer)
    assert model.square_multiplies() == data.square_multiplies()
    assert model.expected_fibers(1) == data.expected_fibers(1)
    assert greedy(model, 4).max_load == greedy(data, 4).max_load


def test_rows_of_tiles_represent_others_where_there_are_very_many(monkeypatch: pytest.MonkeyPatch) -> None:
    model = MODELS["grid"]
    tiles = [(1, 1), (3, 2), (7, 5), (24, 24)]
    known = [[float(getattr(model, a)(t)) for a in (*ANSWERS, "expected_max")] for t in tiles]
    monkeypatch.setattr("polymodel.sparse.density.diagonal_gaps._MOST", 150)
    assert isinstance(model, pm.Diagonals)
    again = pm.Diagonals.of(
        IK, model.shape, model.offsets, model.fill, model.background, gaps=model.gaps
    )  # fmt: skip
    for tile, wanted in zip(tiles, known, strict=True):
        found = [float(getattr(again, a)(tile)) for a in (*ANSWERS, "expected_max")]
        assert found == pytest.approx(wanted, rel=0.06), tile


def test_gaps_are_checked_and_read_as_written() -> None:
    given = [(1, 4, 3, 1), (-1, 4, 0, 1)]
    model = pm.Diagonals.of(IK, (9, 9), [-1, 1], 0.5, symmetric=True, gaps=given)
    assert model.gaps == ((-1, 4, 0, 1), (1, 4, 3, 1))
    written = {
        "diagonals": {"offsets": [-1, 1], "fill": 0.5, "symmetric": True, "gaps": [list(g) for g in given]}
    }
    assert model_of(written, IK, (9, 9)) == model
    wrong: list[tuple[Any, str]] = [
        ([(2, 4, 3, 1)], "diagonal 2, which is not listed"),
        ([(1, 4, 3, 1), (1, 5, 3, 1)], "has a gap already"),
        ([(1, 1, 0, 1)], "a gap of period 1"),
        ([(1, 4, 4, 1)], "a gap that starts at 4"),
        ([(1, 4, 3, 4)], "a gap of 4 rows"),
        ([(1, 4, 3)], "is not a gap"),
        ("1", "is not a list of gaps"),
        ([(1, 4, 3, 1)], "has a gap that diagonal -1 has not"),
        ([(1, 4, 3, 1), (-1, 4, 1, 1)], "has a gap that diagonal"),
    ]
    for gaps, fault in wrong:
        with pytest.raises(pm.SpecError, match=fault):
            pm.Diagonals.of(IK, (9, 9), [-1, 1], 0.5, symmetric=True, gaps=gaps)


def test_no_tile_holds_more_than_its_points() -> None:
    """Of a road 5 x 5 tiles have 13 points; a binomial of equal moments has some with more, 15.3 expected."""
    road = pm.Diagonals.of(IK, (594, 594), [-27, -1, 0, 1, 27], [0.65, 0.63, 1, 0.63, 0.65], symmetric=True)
    assert float(road.expected_max((5, 5))) == pytest.approx(13)
    blocks = pm.Blocks.of(IK, (480, 480), (8, 8), pm.Diagonals.of(IK, (60, 60), [0], 1, 0.04, symmetric=True))
    fullest = [float(Actual.of(blocks.draw(seed)).expected_max((24, 24))) for seed in range(40)]
    assert float(blocks.expected_max((24, 24))) == pytest.approx(np.mean(fullest), rel=0.04)


@pytest.mark.parametrize("name", ["stencil", "symmetric", "elements"])
def test_products_are_those_of_drawn_matrices(name: str) -> None:
    seen = np.array([a.square_multiplies() for a in matrices(name)])
    near = 4 * float(seen.std()) / DRAWN**0.5
    assert MODELS[name].square_multiplies() == pytest.approx(float(seen.mean()), abs=near)


def test_the_mirror_image_of_a_symmetric_matrix_is_the_matrix() -> None:
    rows, columns = MODELS["symmetric"].draw(3).coords
    assert {*zip(rows, columns, strict=True)} == {*zip(columns, rows, strict=True)}
    found = pm.fit_density(MODELS["symmetric"].draw(3))
    fitted = found.choice.tried[1].model
    assert isinstance(fitted, pm.Diagonals)
    assert fitted.symmetric
    for wrong, told in (((120, 90), "a symmetric matrix of 120 x 90"), ((9, 9), "not filled as diagonal 1")):
        with pytest.raises(pm.SpecError, match=told):
            pm.Diagonals.of(IK, wrong, [-1, 1], [0.5, 0.4], symmetric=True)
    written = {"diagonals": {"offsets": [-1, 1], "fill": 0.5, "symmetric": True}}
    assert model_of(written, IK, (9, 9)) == pm.Diagonals.of(IK, (9, 9), [-1, 1], 0.5, symmetric=True)
    with faults("wrong-type", at="diagonals.symmetric"):
        model_of({"diagonals": {"offsets": [0], "symmetric": 1}}, IK, (9, 9))


@pytest.mark.thin(99)
@pytest.mark.parametrize("name", MODELS)
def test_the_law_of_a_tile_is_the_one_drawn(name: str) -> None:
    model, tile = MODELS[name], (12, 12)
    if name == "two of four blocks":
        tile = (8, 8)
    seen = np.zeros(160)
    for drawn in matrices(name):
        data = drawn.tensor
        where = [c // t for c, t in zip(data.coords, tile, strict=True)]
        full = [s // t for s, t in zip(model.shape, tile, strict=True)]
        grid = np.zeros(full, dtype=np.int64)
        inside = (where[0] < full[0]) & (where[1] < full[1])
        np.add.at(grid, (where[0][inside], where[1][inside]), 1)
        seen += np.bincount(grid.ravel(), minlength=160)
    known = np.cumsum(seen) / seen.sum()
    assert model.cdf(tile, np.arange(160)) == pytest.approx(known, abs=0.02)
    assert float(model.expected(tile)) == pytest.approx(float((1 - known).sum()), rel=0.02)
    pmf = np.diff(np.concatenate(([0.0], model.cdf(tile, np.arange(145)))))
    # The law has the mean and the variance that the model tells.
    assert pmf @ np.arange(145) == pytest.approx(float(model.expected(tile)), rel=0.01)
    spread = float(pmf @ np.arange(145) ** 2 - (pmf @ np.arange(145)) ** 2)
    assert spread == pytest.approx(float(model.variance(tile)), rel=0.03)


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize("tile", [(8, 8), (12, 32)])
def test_the_law_of_the_fullest_tile_is_the_one_drawn(name: str, tile: tuple[int, int]) -> None:
    model = MODELS[name]
    found = model.cdf_max(tile, np.arange(400))
    assert (np.diff(found) >= -1e-12).all()
    # The mean of this law is the expected maximum.
    assert float((1 - found).sum()) == pytest.approx(float(model.expected_max(tile)), rel=1e-3)
    if model.max_label(tile) == "expected":
        greatest = [float(a.expected_max(tile)) for a in matrices(name)]
        known = np.array([np.mean(np.array(greatest) <= s) for s in range(400)])
        # Smirnov's bound, one in a thousand.
        assert np.abs(known - found).max() < 1.95 / DRAWN**0.5


def test_the_law_of_the_fullest_tile_of_other_models() -> None:
    rows = pm.RankNnz.of(IK, (8, 8), [3, 0, 5, 2, 8, 1, 1, 4])
    groups = pm.FixedStructured(IK, (16, 16), 2, 4)
    band = pm.Banded(IK, (9, 9), 1)
    some = pm.Sampled.from_tensor(pm.generate_tensor("power-law", 1, shape=[512, 512], entries=9000), 300)
    for model, tile in ((rows, (2, 8)), (rows, (2, 4)), (groups, (4, 2)), (groups, (4, 4)), (band, (2, 3))):
        found = model.cdf_max(tile, np.arange(-1, 65))
        assert found[0] == 0
        assert float((1 - found[1:]).sum()) == pytest.approx(float(model.expected_max(tile)), rel=0.02)
    found = some.cdf_max((16, 16), np.arange(200))
    median = float(np.searchsorted(found, 0.5))
    assert median == pytest.approx(float(some.expected_max((16, 16))), abs=1.01)
    other = some.cdf_max((9, 9), np.arange(200))
    assert float(np.searchsorted(other, 0.5)) == pytest.approx(float(some.expected_max((9, 9))), abs=1.01)


@pytest.mark.parametrize("name", ["hubs", "stencil", "elements", "two of four blocks"])
def test_multiplications_of_a_matrix_with_itself(name: str) -> None:
    model = MODELS[name]
    drawn = np.array([a.square_multiplies() for a in matrices(name)])
    near = 4 * float(drawn.std()) / DRAWN**0.5 + 0.005 * float(drawn.mean())
    assert model.square_multiplies() == pytest.approx(float(drawn.mean()), abs=near)
    if name == "hubs":
        assert model.square_multiplies() == Actual.of(GRAPH).square_multiplies()


def test_multiplications_of_random_rows_and_columns_with_themselves() -> None:
    """Where the numbers of rows and columns are expectations, points are independent."""
    model = pm.RowColumn.of(IK, (3, 3), [0.9, 1.3, 0.4], [1.1, 0.6, 0.9])
    place = model.by_place()
    assert place is not None
    p = np.asarray(place.numbers / place.of)
    wanted = float((p @ p).sum() + (np.diag(p) * (1 - np.diag(p))).sum())
    assert model.square_multiplies() == pytest.approx(wanted, rel=1e-9)


@pytest.mark.parametrize("blocks", [0, 1, 2, 4])
def test_multiplications_of_so_many_blocks_with_themselves(blocks: int) -> None:
    model = pm.Blocks.of(IK, (4, 4), (2, 2), pm.Uniform.of(IK, (2, 2), nnz=blocks))
    each = []
    for some in combinations(range(4), blocks):
        there = np.isin(np.arange(4), some).reshape(2, 2).astype(np.int64)
        full = np.kron(there, np.ones((2, 2), np.int64))
        each.append(int((full @ full).sum()))
    assert model.square_multiplies() == pytest.approx(np.mean(each), rel=1e-12)


def test_multiplications_of_blocks_whose_rows_and_columns_differ() -> None:
    """Above the diagonal of every block there is one nonzero: no row meets a column that has one."""
    above = pm.Diagonals.of(IK, (2, 2), [1])
    model = pm.Blocks.of(IK, (4, 4), (2, 2), pm.Diagonals.of(IK, (2, 2), [-1, 0, 1]), above)
    assert model.square_multiplies() == Actual.of(model.draw(0)).square_multiplies() == 0


def test_multiplications_of_cut_blocks_are_refused() -> None:
    model = pm.Blocks.of(IK, (3, 3), (2, 2), pm.Uniform.of(IK, (2, 2), nnz=2), 0.5)
    with refused("unsupported-density"):
        model.square_multiplies()


def test_multiplications_of_a_wide_band_exceed_64_bits() -> None:
    side = 3_000_000
    assert pm.Banded(IK, (side, side), side).square_multiplies() == pytest.approx(float(side) ** 3, rel=1e-12)


def test_a_recursive_graph_has_no_more_nonzeros_than_its_quarters_lead_to() -> None:
    some = pm.RowColumn.from_rmat(IK, 4, 9, (0.7, 0, 0.2, 0.1), None)
    assert some.expected_nnz == pytest.approx(9)
    with faults("out-of-range", at="nnz"):
        pm.RowColumn.from_rmat(IK, 4, 10, (0.7, 0, 0.2, 0.1))


def test_a_full_band_is_counted_as_the_band() -> None:
    band, same = pm.Banded(IK, (60, 50), 3), pm.Diagonals.of(IK, (60, 50), range(-3, 4))
    assert same.settled
    for tile in ((1, 1), (4, 4), (7, 5), (60, 3), (32, 32)):
        for answer in (*ANSWERS, "variance", "expected_max"):
            wanted = float(getattr(band, answer)(tile))
            assert float(getattr(same, answer)(tile)) == pytest.approx(wanted, rel=1e-9, abs=1e-12)
        assert same.cdf(tile, np.arange(40)) == pytest.approx(band.cdf(tile, np.arange(40)), abs=1e-12)
    rows = band.known_rows()
    assert rows is not None
    assert greedy(same, 4).max_load == greedy(band, 4).max_load


def test_rows_and_columns_are_known() -> None:
    model = MODELS["hubs"]
    rows = np.bincount(GRAPH.coords[0], minlength=256)
    assert model.known_rows().tolist() == rows.tolist()
    assert float(model.expected_fibers(1)) == (rows > 0).sum()
    assert float(model.expected_fibers(2)) == pytest.approx(1500)
    assert float(model.expected_max((1, 256))) == rows.max()
    assert model.max_label((1, 256)) == "expected"
    assert model.max_label((8, 8)) == "bound"
    same = pm.RowColumn.of(IK, (3, 4), [2, 2, 2], [3, 1, 1, 1])
    assert same.cdf((3, 1), [0, 1, 2]) == pytest.approx([0, 0.75, 0.75])
    # A column that all rows have is sure, and the others are alike.
    assert same.regions().mean(np.array([[0, 0, 1, 1], [1, 2, 1, 1]])) == pytest.approx([1, 1 / 3], rel=1e-6)


@pytest.mark.parametrize("skew", [60, 75])
def test_parameters_of_a_recursive_graph_stand_for_its_matrices(skew: int) -> None:
    zero = skew / 100
    quarters = [zero * zero, zero * (1 - zero), zero * (1 - zero), (1 - zero) ** 2]
    model = pm.RowColumn.from_rmat(IK, 512, 4000, quarters)
    drawn = [
        Actual.of(pm.generate_tensor("power-law", seed, shape=[512, 512], entries=4000, skew=skew))
        for seed in range(8)
    ]
    assert model.expected_nnz == pytest.approx(4000)
    assert np.mean([d.expected_fibers(1) for d in drawn]) == pytest.approx(model.expected_fibers(1), rel=0.02)
    for tile, near in (((8, 8), 0.1), ((32, 32), 0.15), ((64, 512), 0.1)):
        for answer, own in (("expected_tiles", 0.03), ("expected_squares", 0.05), ("expected_max", near)):
            seen = float(np.mean([getattr(d, answer)(tile) for d in drawn]))
            assert float(getattr(model, answer)(tile)) == pytest.approx(seen, rel=own), (tile, answer)
    plain = pm.RowColumn.from_rmat(IK, 512, 4000, quarters, seed=None)
    assert plain.rows[0] == plain.rows.max()
    assert sorted(plain.rows) == pytest.approx(sorted(model.rows))


@pytest.mark.slow
def test_empty_rows_of_a_large_matrix_stay_empty() -> None:
    draw = np.random.default_rng(1)
    lines = [np.bincount(draw.integers(0, 150, 10**6) ** 2, minlength=40_000) for _ in range(2)]
    model = pm.RowColumn.of(IK, (40_000, 40_000), *lines)
    assert float(model.expected_fibers(1)) == (lines[0] > 0).sum()
    assert float(model.expected_tiles((40_000, 1))) == (lines[1] > 0).sum()
    assert float(model.expected_max((1, 40_000))) == lines[0].max()


@pytest.mark.slow
def test_large_matrices_are_quick() -> None:
    """Places are not listed one by one where there are too many."""
    side = 2_000_000
    mesh = pm.Diagonals.of(IK, (side, side), [-1400, -1, 0, 1, 1400])
    assert float(mesh.expected_tiles((32, 32))) == pytest.approx(437_324)
    assert float(mesh.expected_max((32, 32))) == 94
    rows = 1 + (np.arange(side // 8) % 97 == 0) * 60
    hubs = pm.RowColumn.of(IK, (side // 8, side // 8), rows, rows)
    mean = float(hubs.expected_nnz) / float(hubs.number_of_tiles((32, 32)))
    assert float(hubs.expected((32, 32))) == pytest.approx(mean, rel=0.01)


def test_tilings_are_estimated() -> None:
    for name in ("noisy band", "random blocks"):
        found = pm.estimate_tiling(MODELS[name], tilers=["qtree"]).found[0].estimate
        assert found.tiles > 1, name


@pytest.mark.parametrize(
    ("written", "told"),
    [
        ({"diagonals": {"offsets": [0, 0]}}, "stands there twice"),
        ({"diagonals": {"offsets": [9]}}, "those from -7 to 7"),
        ({"diagonals": {"offsets": [0, 1], "fill": [0.5]}}, "1 fills for 2 diagonals"),
        ({"diagonals": {"offsets": [0], "fill": 1.5}}, "outside"),
        ({"row_column": {"rows": [1] * 8}}, "needs columns"),
        ({"row_column": {"rows": [1] * 8, "columns": [2] * 8}}, "have 8 nonzeros in all, the columns 16"),
        ({"row_column": {"rows": [9] * 8, "columns": [9] * 8}}, "8 of the rows have no number"),
        ({"row_column": {"rows": [1] * 7, "columns": [1] * 7}}, "not 8 numbers"),
        ({"rmat": {"nnz": 70}}, "70 is not a whole number from 0 to 64"),
        ({"rmat": {"nnz": 7, "quarters": [0.5, 0.5]}}, "not four shares"),
        ({"blocks": {"size": [3, 3]}}, "blocks need arrangement"),
        ({"blocks": {"size": 2, "arrangement": 7}}, "outside"),
        ({"blocks": {"size": 2, "arrangement": {"banded": 1}}}, "not estimated"),
        ({"blocks": {"size": [2, 2, 2], "arrangement": 0.1}}, "two sizes"),
    ],
)
def test_wrong_parameters_are_told(written: object, told: str) -> None:
    with pytest.raises((pm.SpecError, Refused), match=told):
        model_of(written, IK, (8, 8))


def test_models_of_matrices_take_two_ranks() -> None:
    with faults("wrong-count", at="ranks"):
        pm.Diagonals.of("IJK", (4, 4, 4), [0])
    with faults("shape-mismatch", at="arrangement"):
        pm.Blocks.of(IK, (8, 8), (2, 2), pm.Uniform.of(IK, (8, 8), density=0.5))
    with faults("wrong-type", "density", at=""):
        pm.Blocks(IK, (8, 8), (2, 2), 0.5, pm.Uniform.of(IK, (2, 2), density=0.5))
