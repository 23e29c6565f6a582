"""Which model is chosen of a matrix, tiles that are sampled, and the table of twelve structures."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

import polymodel as pm
from polymodel.sparse.density import Actual, model_of, sampled_tiles
from polymodel.sparse.density.choice import FURTHER_TILES, FURTHER_UNITS, TILES, UNITS, nested_groups
from polymodel.sparse.density.diagonal_gaps import Gap
from polymodel.sparse.density.fit_diagonals import diagonals
from polymodel.sparse.density.observed import BlockSample, Observed, chosen
from polymodel.sparse.density.sampled_tiles import tiles_met
from polymodel.sparse.density.slices import greedy
from tests.faults import faults, refused
from tests.sparse import off_shapes, structures

ROOT = Path(__file__).resolve().parents[3]
IK = ("I", "K")
SMALL = {
    "uniform": lambda: pm.random_tensor("IK", [250, 300], 0.03, 1),
    "fixed_structured": lambda: pm.FixedStructured(IK, (128, 128), 2, 4).draw(5),
    "diagonals": lambda: pm.generate_tensor("stencil", height=24, width=30),
    "blocks of 6 on diagonals": lambda: pm.generate_tensor("blocked", 1, blocks=50, block=6, reach=3),
    "row_column": lambda: pm.generate_tensor("power-law", 2, shape=[500, 500], entries=3000),
    "sampled": lambda: structures.neighbours(400, 6, 1),
}


@pytest.mark.parametrize(
    "name",
    [
        pytest.param(n, marks=pytest.mark.slow) if n in ("blocks of 6 on diagonals", "sampled") else n
        for n in SMALL
    ],
)
@pytest.mark.thin(99)
def test_the_model_of_the_structure_is_chosen(name: str) -> None:
    found = pm.fit_density(SMALL[name](), tiles=(8, 32))
    assert found.name == name
    assert found.choice.chosen.near
    chosen = found.models.query("chosen == 'yes'")
    assert chosen["model"].tolist() == [name]
    assert float(found.models["behind"].min()) == 0
    errors = found.errors.query("model == @name")
    assert errors["error"].abs().max() == pytest.approx(
        float(chosen["worst"].abs().item())
    )  # fmt: skip


def cube(sides: tuple[int, int, int], share: float, seed: int) -> pm.SparseTensor:
    """A grid of three dimensions, with links to neighbours that exist with this probability."""
    draw, (high, deep, wide) = np.random.default_rng(seed), sides
    cell = np.arange(high * deep * wide)
    place = np.stack(np.unravel_index(cell, sides))
    parts = [np.stack([cell, cell])]
    for axis, step in enumerate((deep * wide, wide, 1)):
        there = cell[(place[axis] < sides[axis] - 1) & (draw.random(cell.size) < share)]
        link = np.stack([there, there + step])
        parts += [link, link[::-1]]
    coords = np.concatenate(parts, axis=1)
    return pm.SparseTensor.from_coo("A", IK, (cell.size,) * 2, coords, np.ones(coords.shape[1]))


GRIDS: dict[str, tuple[Callable[[], pm.SparseTensor], dict[int, Gap]]] = {
    "5 points": (lambda: pm.generate_tensor("stencil", height=40, width=48), {1: (48, 47, 1)}),
    "road": (lambda: pm.generate_tensor("stencil", 9, height=50, width=60, percent=65), {1: (60, 59, 1)}),
    "9 points": (
        lambda: pm.generate_tensor("stencil", 3, height=64, width=32, points=9, percent=50),
        {1: (32, 31, 1), 31: (32, 0, 1), 33: (32, 31, 1)},
    ),
    "cube": (lambda: cube((12, 14, 16), 1.0, 1), {1: (16, 15, 1), 16: (224, 208, 16)}),
    "thin cube": (lambda: cube((20, 12, 15), 0.8, 1), {1: (15, 14, 1), 15: (180, 165, 15)}),
}


@pytest.mark.parametrize("name", GRIDS)
def test_gaps_of_diagonals_are_found(name: str) -> None:
    """Grids are told at any shape of tiles; spread over the diagonals, gaps made 24 % too many tiles of
    24 x 24 of the first one."""
    made, gaps = GRIDS[name]
    tensor = made()
    found = diagonals(Observed.whole(tensor))
    assert found is not None
    assert {o: tuple(gap) for o, *gap in found.gaps if o > 0} == gaps
    assert found.expected_nnz == pytest.approx(tensor.nnz, rel=1e-9)
    part = diagonals(Observed.part(tensor, BlockSample.of((tensor.shape[0], tensor.shape[1]))))
    assert part is not None
    assert part.gaps == found.gaps
    assert part.expected_nnz == pytest.approx(tensor.nnz, rel=0.03)
    data = Actual.of(tensor)
    for tile in ((24, 24), (7, 40), (60, 5), (100, 100), (1, 256)):
        assert float(found.expected_tiles(tile)) == pytest.approx(float(data.expected_tiles(tile)), rel=0.05)
        assert float(found.expected_max(tile)) == pytest.approx(float(data.expected_max(tile)), rel=0.1)


def test_there_are_no_gaps_where_nonzeros_are_missing_by_chance() -> None:
    for seed in range(5):
        model = pm.Diagonals.of(IK, (600, 600), [-40, -1, 0, 1, 40], [0.3, 0.5, 1, 0.5, 0.3], 0.001)
        found = diagonals(Observed.whole(model.draw(seed)))
        assert found is not None
        assert found.gaps == ()


def test_a_matrix_that_is_not_square_is_multiplied_by_its_transpose() -> None:
    tensor = pm.random_tensor("IK", [40, 60], 0.1, 1)
    fitted = pm.fit_density(tensor, tiles=(8,), units=4)
    (told,) = (c for c in fitted.choice.tried[0].compared if c.unit == "multiplies")
    met = tensor.to_dense().astype(bool).astype(int)
    assert (told.quantity, told.actual) == ("multiplies of A x A^T", (met @ met.T).sum())
    # A nonzero meets itself, and each of the 39 other points of its column with a chance of 239 / 2399.
    assert told.expected == pytest.approx(240 * (1 + 39 * 239 / 2399), rel=1e-12)


# N:M of blocks: side of the matrix, block, n of m blocks along which rank, and n of m points of a block.
Nested = tuple[int, tuple[int, int], tuple[int, int, str], tuple[int, int, str] | None]
NESTED: dict[str, Nested] = {
    "2:4 of blocks of 8 x 8": (96, (8, 8), (2, 4, "K"), None),
    "2:4 of blocks of 8 x 8, 2:4 inside": (128, (8, 8), (2, 4, "K"), (2, 4, "K")),
    "2:8 of blocks of 1 x 4, 2:4 inside": (96, (1, 4), (2, 8, "K"), (2, 4, "K")),
    "3:4 of blocks of 4 x 2, 1:2 inside": (64, (4, 2), (3, 4, "I"), (1, 2, "I")),
}


def _some(draw: np.random.Generator, shape: tuple[int, int], n: int, m: int, rank: str) -> np.ndarray:
    """n of every m points of a matrix along a rank."""
    high, wide = shape if rank == "K" else shape[::-1]
    places = draw.random((high, wide // m, m)).argsort(axis=2) < n
    return places.reshape(high, wide) if rank == "K" else places.reshape(high, wide).T


def nested(name: str) -> pm.SparseTensor:
    side, size, outer, inner = NESTED[name]
    draw = np.random.default_rng(3)
    blocks = _some(draw, (side // size[0], side // size[1]), *outer)
    points = np.kron(blocks, np.ones(size, dtype=bool))
    if inner is not None:
        points = points & _some(draw, (side, side), *inner)
    return pm.SparseTensor.from_dense("A", IK, points.astype(np.int64))


@pytest.mark.parametrize("name", NESTED)
def test_groups_of_blocks_are_found_where_all_groups_are_alike(name: str) -> None:
    """And where a point or a block is missing, they are not."""
    tensor = nested(name)
    found = nested_groups(Observed.whole(tensor))
    assert found is not None
    assert found.name == name
    model = found.fit(Observed.whole(tensor))
    assert model.expected_nnz == tensor.nnz
    # Rows, or columns, that hold a number of nonzeros that is certain.
    assert model.square_multiplies() == Actual.of(tensor).square_multiplies()
    where = tensor.coords // np.array(model.size_of_block)[:, None]
    block, point = (where != where[:, :1]).any(axis=0), np.arange(tensor.nnz) > 0
    for kept in (block, point):
        less = nested_groups(Observed.whole(chosen(tensor, kept)))
        assert less is None or (less.inner, less.full) == (None, False)


def test_a_matrix_of_groups_of_blocks_is_told_by_them() -> None:
    """Where tiles cut blocks or groups, too: samples are far too low in the fullest tile there."""
    tensor = nested("2:4 of blocks of 8 x 8")
    found = pm.fit_density(tensor, tiles=(32,), units=2)
    assert (found.name, found.choice.chosen.near) == ("2:4 of blocks of 8 x 8", True)
    drawn = [Actual.of(found.model.draw(seed)) for seed in range(8)]
    for tile in ((12, 12), (20, 20)):
        wanted = np.mean([float(data.expected_max(tile)) for data in drawn])
        assert float(found.model.expected_max(tile)) == pytest.approx(wanted, rel=0.1), tile


def test_blocks_at_random_places_are_in_no_groups() -> None:
    uniform = pm.Uniform.of(IK, (16, 16), nnz=128)
    for fill in (1.0, 0.6, pm.FixedStructured(IK, (8, 8), 2, 4)):
        tensor = pm.Blocks.of(IK, (128, 128), (8, 8), uniform, fill).draw(1)
        assert nested_groups(Observed.whole(tensor)) is None


def test_the_rest_is_not_seen() -> None:
    """Of every row, column and diagonal of blocks three in five are seen; a model is fitted to these."""
    tensor = pm.random_tensor("IK", [640, 640], 0.05, 1)
    split = BlockSample.of((640, 640))
    assert split.side == 32
    part = Observed.part(tensor, split)
    assert part.share() == pytest.approx(0.6)
    assert part.nonzeros == pytest.approx(tensor.nnz, rel=0.02)
    assert part.open_points(0) == pytest.approx(np.full(640, 384.0))
    assert part.open_points(1) == pytest.approx(np.full(640, 384.0))
    assert part.open_diagonals(np.array([0, 32, -64])) == pytest.approx([384, 384, 352], rel=0.01)
    assert split.seen(part.tensor.coords[0], part.tensor.coords[1]).all()
    blocks, counts = part.blocks((4, 4))
    assert counts.sum() == part.tensor.nnz
    assert blocks.share() == pytest.approx(0.6, abs=0.02)


def test_sampled_tiles_speak_for_all_within_their_errors() -> None:
    tensor = pm.generate_tensor("power-law", 1, shape=[1500, 1500], entries=20_000, skew=74)
    data = Actual.of(tensor)
    found = [pm.Sampled.from_tensor(tensor, 1000, seed) for seed in range(3)]
    for tile in ((1, 1500), (8, 8), (32, 32), (128, 128), (256, 1500)):
        for one in found:
            tiles, squares = one.errors(tile)
            wanted = float(data.expected_tiles(tile)), float(data.expected_squares(tile))
            assert float(one.expected_tiles(tile)) == pytest.approx(wanted[0], rel=5 * tiles + 0.01), tile
            assert float(one.expected_squares(tile)) == pytest.approx(wanted[1], rel=5 * squares + 0.01)
            assert float(one.expected(tile)) == pytest.approx(float(data.expected(tile)), rel=0.15)
        top = np.mean([float(one.expected_max(tile)) for one in found])
        assert top == pytest.approx(float(data.expected_max(tile)), rel=0.2), tile
    assert [one.square_multiplies() for one in found] == 3 * [data.square_multiplies()]


@pytest.mark.parametrize("tile", [(8, 8), (16, 16)])
def test_tiles_count_by_the_chance_of_being_met(tile: tuple[int, int]) -> None:
    """And so that they hold all nonzeros; the mean of 1/x over all draws has a larger error."""
    tensor = pm.generate_tensor("stencil", 9, height=24, width=30, percent=65)
    data = Actual.of(tensor)
    tiles, squares = float(data.expected_tiles(tile)), float(data.expected_squares(tile))
    errors = []
    for seed in range(12):
        found = pm.Sampled.from_tensor(tensor, tensor.nnz // 4, seed)
        seen = found.met(tile)
        assert float(seen.weight @ seen.occupancy) == pytest.approx(tensor.nnz, rel=1e-12)
        each = np.repeat(seen.occupancy, seen.draws)
        plain = float((1 / each).mean()), float(each.mean())
        ours = float(found.expected_tiles(tile)), float(found.expected_squares(tile))
        both = np.array([ours, (plain[0] * tensor.nnz, plain[1] * tensor.nnz)])
        errors.append(both / (tiles, squares) - 1)
    (tiles_by, squares_by), (plain_tiles, plain_squares) = np.sqrt(np.mean(np.square(errors), axis=0))
    assert tiles_by < 0.9 * plain_tiles
    assert squares_by < 0.4 * plain_squares


def test_all_tiles_are_exact_where_all_nonzeros_are_drawn() -> None:
    tensor = pm.generate_tensor("stencil", height=10, width=13)
    data, found = Actual.of(tensor), pm.Sampled.from_tensor(tensor, 10**6)
    for tile in ((1, 1), (1, 130), (8, 8), (64, 16), (130, 130)):
        for answer in (
            "expected",
            "variance",
            "p_empty",
            "expected_tiles",
            "expected_squares",
            "expected_max",
        ):
            wanted = float(getattr(data, answer)(tile))
            assert float(getattr(found, answer)(tile)) == pytest.approx(wanted, rel=1e-9, abs=1e-9), tile
    assert found.square_multiplies() == data.square_multiplies()
    assert found.expected_fibers(1) == data.expected_fibers(1)
    # Other shapes lie between the sampled ones.
    tiles = [float(found.expected_tiles((size, size))) for size in (8, 11, 16)]
    assert tiles == sorted(tiles, reverse=True)
    assert greedy(found, 4).max_load == pytest.approx(greedy(data, 4).max_load, rel=0.1)


def test_three_ranks_are_sampled() -> None:
    tensor = pm.generate_tensor("power-law", 4, shape=[50, 60, 70], entries=3000)
    found, data = pm.Sampled.from_tensor(tensor), Actual.of(tensor)
    assert float(found.expected_tiles((8, 8, 8))) == pytest.approx(float(data.expected_tiles((8, 8, 8))))
    with refused("unsupported-density", "square"):
        found.square_multiplies()
    with refused("unsupported-shape"):
        pm.fit_density(tensor)


def test_it_is_read_as_written() -> None:
    tensor = pm.generate_tensor("stencil", height=10, width=13).renamed("A", IK)
    for written in ({"sampled": "a.mtx"}, {"sampled": {"file": "a.mtx", "samples": 100}}):
        found = model_of(written, IK, (130, 130), read=lambda _: tensor)
        assert isinstance(found, pm.Sampled)
    with faults("not-an-integer", at="sampled.samples"):
        model_of({"sampled": {"file": "a.mtx", "samples": 1}}, IK, (130, 130), read=lambda _: tensor)
    with faults("empty-tensor", at="tensor"):
        pm.Sampled.from_tensor(pm.SparseTensor.from_coo("A", IK, (3, 3), [[], []], []))


def test_all_tiles_are_counted_where_there_are_no_more_than_draws() -> None:
    """A hub in a block of rows that no drawn nonzero need be in."""
    draw = np.random.default_rng(4)
    rows = np.concatenate([draw.integers(0, 300, 900), np.repeat(draw.integers(57, 76, 3), 250)])
    coords = np.stack([rows, draw.integers(0, 300, rows.size)])
    tensor = pm.SparseTensor.from_coo("A", IK, (300, 300), coords, np.ones(rows.size))
    data, known = Actual.of(tensor), pm.Sampled.from_tensor(tensor, 40)
    for tile in ((19, 300), (60, 70), (300, 9)):
        for answer in ("expected", "variance", "expected_tiles", "expected_squares", "expected_max"):
            wanted = float(getattr(data, answer)(tile))
            assert float(getattr(known, answer)(tile)) == pytest.approx(wanted, rel=1e-12), (tile, answer)
        assert known.errors(tile) == (0.0, 0.0)
    assert max(known.errors((7, 7))) > 0


@pytest.mark.parametrize("tile", [(1, 1), (1, 64), (64, 1), (3, 50), (16, 16), (301, 7), (100, 260)])
def test_tiles_are_looked_up_row_by_row_as_they_are_counted(
    tile: tuple[int, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    """In a table of all tiles, in the list of those met, or in the rows of these."""
    tensor = pm.random_tensor("IK", [301, 260], 0.05, 2)
    drawn = np.random.default_rng(1).choice(tensor.nnz, 50, replace=False)
    found = []
    for table, per_row in ((1 << 25, 1 << 40), (0, 1 << 40), (0, 0)):
        monkeypatch.setattr(sampled_tiles, "_TABLE", table)
        monkeypatch.setattr(sampled_tiles, "_PER_ROW", per_row)
        found.append(tiles_met(tensor, tile, drawn))
    where, counts = Actual.of(tensor).occupancies(tile)
    met = {tuple(p) for p in (tensor.coords[:, drawn] // np.array(tile)[:, None]).T.tolist()}
    few = -(-301 // tile[0]) * -(-260 // tile[1]) <= drawn.size
    wanted = [n for p, n in zip(where.T.tolist(), counts.tolist(), strict=True) if few or tuple(p) in met]
    for one in found:
        assert one.occupancy.tolist() == wanted
        assert float(one.weight @ one.occupancy) == pytest.approx(tensor.nnz, rel=1e-9)


def test_the_fullest_tile_is_counted_where_draws_may_miss_it() -> None:
    """Of a part of the data, which stands for more, an exponential tail leads beyond it."""
    tensor = pm.generate_tensor("power-law", 3, shape=[900, 900], entries=9000, skew=70)
    found, part = pm.Sampled.from_tensor(tensor, 60), pm.Sampled.scaled(tensor, 2.0 * tensor.nnz, 60, 0)
    for tile in ((3, 5), (13, 7), (1, 64), (40, 40)):
        fullest = float(Actual.of(tensor).expected_max(tile))
        assert float(found.expected_max(tile)) == fullest
        assert found.cdf_max(tile, [fullest - 1, fullest]).tolist() == [0.0, 1.0]
    assert float(part.expected_max((3, 5))) > float(found.met((3, 5)).occupancy.max())


def test_tiles_that_64_bits_cannot_number_are_sampled() -> None:
    shape = (1 << 40, 1 << 41, 1 << 42)
    draw = np.random.default_rng(5)
    near = np.array([draw.integers(0, 4, 300) * 1000 + draw.integers(0, 9, 300) for _ in shape])
    tensor = pm.SparseTensor.from_coo("A", "IJK", shape, near, np.ones(300))
    data, found = Actual.of(tensor), pm.Sampled.from_tensor(tensor, 299)
    assert float(found.expected_tiles((9, 9, 9))) == pytest.approx(
        float(data.expected_tiles((9, 9, 9))), rel=0.02
    )
    assert float(found.expected_max((9, 9, 9))) == float(data.expected_max((9, 9, 9)))


def test_shapes_that_no_power_of_two_has_are_sampled_as_well() -> None:
    """Blocks of 60 x 100 on a staircase: interpolated, nonempty tiles were 58 % too many."""
    tensor = pm.generate_tensor("staircase", 8, stages=12, rows=60, columns=100, percent=8, coupling=8)
    found, data = pm.Sampled.from_tensor(tensor), Actual.of(tensor)
    for tile in ((60, 100), (100, 100), (11, 90), (24, 24)):
        assert float(found.expected_tiles(tile)) == pytest.approx(float(data.expected_tiles(tile)), rel=0.05)
        assert float(found.expected_max(tile)) == pytest.approx(float(data.expected_max(tile)), rel=0.05)
        assert max(found.errors(tile)) < 0.05


@pytest.mark.slow
def test_more_samples_are_drawn_where_few_do_not_tell(monkeypatch: pytest.MonkeyPatch) -> None:
    """Sixteen tiles are too few."""
    monkeypatch.setattr("polymodel.sparse.density.choice.SAMPLES", 16)
    found = pm.fit_density(structures.neighbours(400, 6, 1)).choice
    assert found.chosen.near
    first, *more = (f for f in found.tried if f.name.startswith("sampled"))
    assert not first.near
    assert found.chosen == more[-1]
    assert not any(f.near for f in more[:-1])


@pytest.mark.slow
def test_the_table_of_twelve_structures() -> None:
    """Within 10 % (nonempty tiles, multiplies, mean load) and 20 % (fullest tile, greatest load)."""
    rows = structures.table()
    text = (ROOT / "docs" / "sparse" / "density.md").read_text(encoding="utf-8")
    assert "\n".join(rows) in text
    for name in structures.MADE:
        errors = structures.worst(structures.fitted(name))
        for error, room in zip(errors, (0.1, 0.1, 0.2, 0.1, 0.2), strict=True):
            assert error is None or abs(error) <= room, name


@pytest.mark.slow
def test_the_twelve_structures_at_shapes_that_are_not_compared() -> None:
    """Within the same tolerances; the page says how far off each is."""
    rows = [
        off_shapes.row(name, structures.structure(name), structures.fitted(name)) for name in structures.MADE
    ]
    text = (ROOT / "docs" / "sparse" / "density.md").read_text(encoding="utf-8")
    assert "\n".join(row for _, row in sorted(rows, reverse=True)) in text
    assert max(away for away, _ in rows) <= 1


def test_shapes_that_are_not_compared_are_others() -> None:
    compared = {(tile, tile) for tile in TILES} | set(FURTHER_TILES)
    assert not compared & set(off_shapes.TILES)
    assert not {UNITS, *FURTHER_UNITS} & set(off_shapes.UNITS)
    tensor = pm.random_tensor("IK", [300, 200], 0.05, 3)
    assert off_shapes.beyond(off_shapes.errors(Actual.of(tensor), Actual.of(tensor))) == 0
    found = off_shapes.errors(Actual.of(tensor), pm.Uniform.of(IK, (300, 200), nnz=2 * tensor.nnz))
    assert found["greatest load"][0] > 0.8
