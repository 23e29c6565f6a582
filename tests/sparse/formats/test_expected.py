"""Expected bits against the mean over every placement of the nonzeros; tiles against tensors of their own."""

from __future__ import annotations

from itertools import combinations, product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from polymodel.sparse.density import Actual, RankNnz, Uniform, random_tensor
from polymodel.sparse.formats import (
    CISS,
    CP,
    RLE,
    UOP,
    B,
    Format,
    NamedFormat,
    PerRank,
    U,
    Widths,
    expected_total,
    footprint,
    tile_footprints,
)
from polymodel.sparse.formats.levels import levels_of_groups
from polymodel.sparse.tensor import SparseTensor
from tests.faults import faults
from tests.sparse.formats.walked import tensors

MATRIX: list[Format] = [
    PerRank((U(pbits=7, fhbits=3, rhbits=11), CP(cbits=5, pbits=9, fhbits=2))),
    PerRank((CP(cbits=5, pbits=9, fhbits=2), B(pbits=9, fhbits=1))),
    PerRank((RLE(rbits=1, pbits=3), RLE(rbits=1, pbits=5, overlong="escape"))),
    PerRank((B(pbits=1), RLE(rbits=1, pbits=6, overlong="zero"))),
    PerRank((UOP(obits=13), RLE(rbits=None, pbits=6))),
    NamedFormat("COO"),
    NamedFormat("CSR"),
    NamedFormat("CSC"),
    NamedFormat("DCSR", Widths(8, None, 4)),
    NamedFormat("CSF"),
]


def placements(shape: tuple[int, ...], nnz: int) -> list[SparseTensor]:
    """Every way to place the nonzeros."""
    points = list(product(*(range(s) for s in shape)))
    ranks = "IJK"[: len(shape)]
    return [
        SparseTensor.from_coo("A", ranks, shape, np.array(chosen).T, np.ones(nnz, np.int64))
        for chosen in combinations(points, nnz)
    ]


def part(tensor: SparseTensor, start: tuple[int, ...], tile: tuple[int, ...]) -> SparseTensor:
    """One tile as a tensor of its own, its coordinates from its origin."""
    size = tuple(min(t, s - b) for t, s, b in zip(tile, tensor.shape, start, strict=True))
    inside = [
        (tuple(c - b for c, b in zip(p, start, strict=True)), v)
        for p, v in zip(tensor.coords.T.tolist(), tensor.values.tolist(), strict=True)
        if all(b <= c < b + t for c, b, t in zip(p, start, tile, strict=True))
    ]
    coords = np.array([p for p, _ in inside], dtype=np.int64).reshape(len(inside), len(size)).T
    return SparseTensor.from_coo("A", tensor.ranks, size, coords, np.array([v for _, v in inside], np.int64))


def parts(tensor: SparseTensor, tile: tuple[int, ...]) -> dict[tuple[int, ...], SparseTensor]:
    """Number of a tile along each rank -> the tile, for those that are not empty."""
    grid = [range(-(-s // t)) for s, t in zip(tensor.shape, tile, strict=True)]
    found = {
        at: part(tensor, tuple(a * t for a, t in zip(at, tile, strict=True)), tile) for at in product(*grid)
    }
    return {at: one for at, one in found.items() if one.nnz}


@pytest.mark.parametrize("format", MATRIX, ids=lambda f: f.name)
def test_expected_bits_are_the_mean_over_all_placements(format: Format) -> None:
    shape, nnz = (3, 4), 3
    mean = np.mean([footprint(t, format).total for t in placements(shape, nnz)])
    found = footprint(Uniform.of(("I", "J"), shape, nnz=nnz), format)
    assert found.total == pytest.approx(mean, rel=1e-12)
    assert found.label == "expected"


def test_expected_bits_of_three_ranks() -> None:
    shape, nnz = (2, 3, 2), 4
    for format in (NamedFormat("CSF"), PerRank((CP(cbits=2, pbits=3), U(pbits=1), RLE(rbits=1, pbits=4)))):
        mean = np.mean([footprint(t, format).total for t in placements(shape, nnz)])
        assert footprint(Uniform.of("IJK", shape, nnz=nnz), format).total == pytest.approx(mean, rel=1e-12)


@pytest.mark.parametrize("format", MATRIX, ids=lambda f: f.name)
@pytest.mark.thin(5)
def test_expected_bits_of_all_tiles(format: Format) -> None:
    """Edge tiles have their own sizes; of empty tiles nothing is stored, not even headers of ranks."""
    shape, nnz, tile = (3, 4), 3, (2, 3)
    model = Uniform.of(("I", "J"), shape, nnz=nnz)
    totals, full = [], []
    for tensor in placements(shape, nnz):
        found = parts(tensor, tile)
        totals.append(sum(footprint(t, format).total for t in found.values()))
        first = found.get((0, 0))
        full.append(footprint(first, format).total if first is not None else 0)
    assert expected_total(model, format, tile) == pytest.approx(np.mean(totals), rel=1e-12)
    assert footprint(model, format, tile).total == pytest.approx(np.mean(full), rel=1e-12)
    both = footprint(model, format, [tile, (1, 4)])
    assert np.asarray(both.total)[0] == pytest.approx(float(footprint(model, format, tile).total))


@settings(max_examples=60, deadline=None)
@given(tensors(least=2, most=3, size=6), st.data())
def test_tiles_have_the_bits_of_tensors_of_their_own(tensor: SparseTensor, data: st.DataObject) -> None:
    tile = tuple(data.draw(st.integers(1, s + 1)) for s in tensor.shape)
    inner = [U(pbits=3, fhbits=2), RLE(rbits=1, pbits=4), B(pbits=2, rhbits=5), CP(cbits=None, pbits=1)]
    rules = tuple(data.draw(st.sampled_from(inner)) for _ in tensor.ranks)
    cut = tuple(min(t, s) for t, s in zip(tile, tensor.shape, strict=True))
    for format in (PerRank(rules), NamedFormat("CSF"), NamedFormat("COO", Widths(index=None))):
        where, found = tile_footprints(tensor, format, tile)
        walked = {at: footprint(one, format).total for at, one in parts(tensor, cut).items()}
        assert [tuple(a) for a in where.at.tolist()] == sorted(walked)
        assert np.asarray(found.total).tolist() == [walked[at] for at in sorted(walked)]


def test_groups_that_are_no_grid() -> None:
    """Groups may start anywhere; one that is empty takes no fiber."""
    coords = np.array([[0, 1, 5], [2, 2, 3]])
    origins, sizes = np.array([[0, 0], [4, 0], [4, 2]]), np.array([4, 4])
    found = levels_of_groups(("I", "J"), coords, np.array([0, 0, 2]), 3, origins, sizes, (8, 5))
    assert [np.asarray(f).tolist() for f in found.fibers] == [[1, 0, 1], [2, 0, 1]]
    assert np.asarray(found.shape[1]).tolist() == [4, 4, 3]
    runs = found.runs
    assert runs is not None
    assert np.asarray(runs(1, 1)).tolist() == [4, 0, 1]
    assert np.asarray(runs(0, 1)).tolist() == [0, 0, 1]


def test_ciss_of_tiles_of_a_model_is_a_lower_bound() -> None:
    model = Uniform.of(("I", "J"), (4, 3), nnz=4)
    bound = footprint(model, CISS(2), (4, 3))
    assert bound.label == "bound"
    mean = np.mean([footprint(t, CISS(2)).total for t in placements((4, 3), 4)])
    assert 0.6 * mean < bound.total < mean


@pytest.mark.parametrize(
    ("shape", "nnz", "parts"),
    [((300, 40), 1500, 8), ((64, 64), 400, 16), ((2000, 3, 3), 900, 8), ((5, 50), 60, 8)],
)
@pytest.mark.parametrize("assign", ["data", "nnz"])
def test_ciss_of_uniform_data_is_expected_within_a_few_percent(
    shape: tuple[int, ...], nnz: int, parts: int, assign: str
) -> None:
    ranks = "IJK"[: len(shape)]
    format = CISS(parts, assign=assign)  # type: ignore[arg-type]  # one of two words
    rng = np.random.default_rng(5)
    drawn = []
    for _ in range(60):
        points = np.stack(np.unravel_index(rng.choice(np.prod(shape), nnz, replace=False), shape))
        tensor = SparseTensor.from_coo("A", ranks, shape, points, np.ones(nnz, np.int64))
        drawn.append(footprint(tensor, format).total)
    found = footprint(Uniform.of(ranks, shape, nnz=nnz), format)
    assert found.label == "expected"
    assert found.total == pytest.approx(np.mean(drawn), rel=0.03)


def test_a_histogram_of_rows_knows_the_lanes_of_ciss() -> None:
    tensor = random_tensor(("I", "J"), (50, 30), 0.1, 4)
    found = footprint(RankNnz.from_tensor(tensor), CISS(4))
    assert found.total == footprint(tensor, CISS(4)).total


def test_the_actual_model_is_exact() -> None:
    tensor = random_tensor(("I", "J"), (50, 30), 0.1, 4)
    for format in MATRIX:
        found = footprint(Actual.of(tensor), format)
        assert (found.total, found.label) == (footprint(tensor, format).total, "exact")
        tiles = parts(tensor, (8, 7))
        total = sum(footprint(one, format).total for one in tiles.values())
        assert footprint(Actual.of(tensor), format, (8, 7)).total == pytest.approx(total / 35)


@pytest.mark.parametrize("assign", ["data", "nnz"])
def test_ciss_of_every_tile_is_that_of_the_tile_alone(assign: str) -> None:
    """64 tiles and more are dealt side by side."""
    tensor = random_tensor(("I", "J"), (60, 50), density=0.1, seed=3)
    format = CISS(3, assign=assign)  # type: ignore[arg-type] # one of the literals
    for tile in ((7, 6), (30, 25)):
        one_by_one = {at: footprint(one, format).total for at, one in parts(tensor, tile).items()}
        where, found = tile_footprints(tensor, format, tile)
        ours = {tuple(at): total for at, total in zip(where.at.tolist(), found.total, strict=True)}
        assert ours == one_by_one
        assert found.label == "exact"


def test_what_is_asked_wrongly() -> None:
    tensor = SparseTensor.from_coo("A", "IJ", [4, 4], [[0, 3], [1, 2]], [1, 1])
    with faults("missing-argument", "tile_footprints", at=""):
        footprint(tensor, NamedFormat("CSR"), (2, 2))
    with faults("wrong-count", at=""):
        tile_footprints(tensor, NamedFormat("CSR"), (2,))
