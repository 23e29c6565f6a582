"""Every model against a list of all tensors it allows, with their odds, and slow loops over tiles."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import combinations, product
from math import comb, prod
from random import Random

import numpy as np
import pytest

from polymodel.sparse.density import (
    Actual,
    Banded,
    DensityModel,
    Diagonals,
    FixedStructured,
    Hierarchical,
    RankNnz,
)
from polymodel.sparse.tensor import SparseTensor
from tests.faults import faults

Points = frozenset[tuple[int, ...]]


def hierarchical(shape: tuple[int, ...], densities: tuple[float, ...]) -> Iterator[tuple[Points, float]]:
    """Every choice of every coordinate, rank by rank."""
    found: dict[Points, float] = {frozenset([()]): 1.0}
    for size, density in zip(shape, densities, strict=True):
        grown: dict[Points, float] = {}
        for prefixes, p in found.items():
            children = sorted((*x, c) for x in prefixes for c in range(size))
            for kept in product((False, True), repeat=len(children)):
                chosen = frozenset(c for c, k in zip(children, kept, strict=True) if k)
                odds = prod(density if k else 1 - density for k in kept)
                grown[chosen] = grown.get(chosen, 0.0) + p * odds
        found = grown
    yield from found.items()


def independent_fibers(fibers: list[list[Points]]) -> Iterator[tuple[Points, float]]:
    """One set of each list, all alike."""
    for chosen in product(*fibers):
        yield frozenset().union(*chosen), 1 / prod(map(len, fibers))


def structured(shape: tuple[int, ...], axis: int, n: int, m: int) -> Iterator[tuple[Points, float]]:
    groups = []
    others = [range(1) if a == axis else range(s) for a, s in enumerate(shape)]
    for line in product(*others):
        for start in range(0, shape[axis], m):
            group = range(start, min(start + m, shape[axis]))
            points = [(*line[:axis], c, *line[axis + 1 :]) for c in group]
            groups.append([frozenset(x) for x in combinations(points, min(n, len(points)))])
    yield from independent_fibers(groups)


def histogram(
    shape: tuple[int, ...], axes: tuple[int, ...], counts: np.ndarray
) -> Iterator[tuple[Points, float]]:
    fibers = []
    points = list(product(*map(range, shape)))
    for key in product(*(range(shape[a]) for a in axes)):
        inside = [p for p in points if tuple(p[a] for a in axes) == key]
        fibers.append([frozenset(x) for x in combinations(inside, int(counts[key]))])
    yield from independent_fibers(fibers)


def diagonals(
    shape: tuple[int, ...], offsets: tuple[int, ...], fill: float
) -> Iterator[tuple[Points, float]]:
    points = [p for p in product(*map(range, shape)) if p[1] - p[0] in offsets]
    for kept in product((False, True), repeat=len(points)):
        odds = prod(fill if k else 1 - fill for k in kept)
        yield frozenset(p for p, k in zip(points, kept, strict=True) if k), odds


def banded(shape: tuple[int, ...], axes: tuple[int, int], width: int) -> Iterator[tuple[Points, float]]:
    yield frozenset(p for p in product(*map(range, shape)) if abs(p[axes[0]] - p[axes[1]]) <= width), 1.0


COUNTS = np.array([0, 2, 1, 3])
FIBERS = np.array([[0, 2], [1, 1], [2, 0]])
CASES = {
    "hierarchical": (
        Hierarchical(("I", "J"), (3, 3), (0.6, 0.3)),
        lambda: hierarchical((3, 3), (0.6, 0.3)),
        [(1, 1), (2, 2), (1, 3), (3, 1), (3, 3)],
    ),
    "hierarchical of three ranks": (
        Hierarchical(("I", "J", "K"), (2, 2, 2), (0.7, 0.5, 0.4)),
        lambda: hierarchical((2, 2, 2), (0.7, 0.5, 0.4)),
        [(1, 2, 1), (2, 1, 2), (1, 1, 1)],
    ),
    "two of four": (
        FixedStructured(("I", "K"), (2, 8), 2, 4),
        lambda: structured((2, 8), 1, 2, 4),
        [(1, 4), (2, 2), (1, 3), (2, 8), (1, 1), (2, 5)],
    ),
    "two of three, uneven": (
        FixedStructured(("K", "I"), (7, 2), 2, 3, "K"),
        lambda: structured((7, 2), 0, 2, 3),
        [(2, 1), (3, 2), (4, 1), (5, 2), (1, 2), (7, 1)],
    ),
    "one of five, last group shorter": (
        FixedStructured(("K",), (13,), 1, 5),
        lambda: structured((13,), 0, 1, 5),
        [(2,), (4,), (6,), (13,)],
    ),
    "band": (
        Banded(("I", "J"), (7, 9), 2),
        lambda: banded((7, 9), (0, 1), 2),
        [(1, 1), (2, 3), (3, 3), (4, 2), (7, 9), (5, 4)],
    ),
    "band of three ranks": (
        Banded(("K", "I", "J"), (5, 3, 8), 1, ("J", "K")),
        lambda: banded((5, 3, 8), (2, 0), 1),
        [(2, 2, 3), (1, 1, 4), (5, 3, 8), (4, 1, 6)],
    ),
    "diagonals": (
        Diagonals.of(("I", "J"), (4, 3), (-2, 0, 1), 0.4),
        lambda: diagonals((4, 3), (-2, 0, 1), 0.4),
        [(1, 1), (2, 2), (1, 3), (4, 1), (3, 2), (4, 3)],
    ),
    "rows": (
        RankNnz.of(("I", "J"), (4, 4), COUNTS),
        lambda: histogram((4, 4), (0,), COUNTS),
        [(1, 1), (1, 4), (2, 2), (3, 3), (4, 2), (1, 3), (4, 4)],
    ),
    "fibers of three ranks": (
        RankNnz.of(("I", "J", "K"), (3, 2, 3), FIBERS, ("I", "J")),
        lambda: histogram((3, 2, 3), (0, 1), FIBERS),
        [(1, 1, 1), (2, 1, 2), (2, 2, 3), (1, 2, 2), (3, 2, 1)],
    ),
    "columns": (
        RankNnz.of(("I", "J"), (3, 4), np.array([3, 0, 1, 2]), ("J",)),
        lambda: histogram((3, 4), (1,), np.array([3, 0, 1, 2])),
        [(2, 1), (3, 3), (1, 2)],
    ),
}


def occupancies(points: Points, shape: tuple[int, ...], tile: tuple[int, ...]) -> dict[tuple[int, ...], int]:
    found = dict.fromkeys(product(*(range(-(-s // t)) for s, t in zip(shape, tile, strict=True))), 0)
    for point in points:
        found[tuple(x // t for x, t in zip(point, tile, strict=True))] += 1
    return found


def compare(
    model: DensityModel, tensors: list[tuple[Points, float]], tile: tuple[int, ...], near: float = 0.15
) -> None:
    shape = model.shape
    everywhere = [(occupancies(points, shape, tile), p) for points, p in tensors]
    full = [
        t for t in everywhere[0][0] if all((x + 1) * w <= s for x, w, s in zip(t, tile, shape, strict=True))
    ]
    values = np.array([counts[t] for counts, _ in everywhere for t in full])
    weights = np.array([p / len(full) for _, p in everywhere for _ in full])
    mean = weights @ values
    assert model.expected(tile) == pytest.approx(mean, rel=1e-9)
    assert model.variance(tile) == pytest.approx(weights @ (values - mean) ** 2, rel=1e-9, abs=1e-12)
    assert model.p_empty(tile) == pytest.approx(weights[values == 0].sum(), rel=1e-9, abs=1e-15)
    cdf = np.array([weights[values <= s].sum() for s in range(prod(tile) + 1)])
    assert model.cdf(tile, range(prod(tile) + 1)) == pytest.approx(cdf, abs=1e-12)
    assert model.cdf(tile, -1) == 0
    for confidence in (0.01, 0.5, 0.83, 0.999, 1.0):
        assert model.quantile(tile, confidence) == np.argmax(cdf >= confidence - 1e-12)
    p = np.array([p for _, p in everywhere])
    nonempty = p @ np.array([sum(v > 0 for v in c.values()) for c, _ in everywhere])
    assert model.expected_tiles(tile) == pytest.approx(nonempty, rel=1e-9)
    assert model.number_of_tiles(tile) == len(everywhere[0][0])
    squares = p @ np.array([sum(v * v for v in c.values()) for c, _ in everywhere])
    assert model.expected_squares(tile) == pytest.approx(squares, rel=1e-9)
    greatest = p @ np.array([max(c.values()) for c, _ in everywhere])
    if model.max_label(tile) == "bound":
        low = not isinstance(model, Hierarchical)
        assert (greatest - model.expected_max(tile)) * (1 if low else -1) > -1e-9
        assert model.expected_max(tile) == pytest.approx(greatest, rel=near)
    else:
        assert model.expected_max(tile) == pytest.approx(greatest, rel=1e-9)


@pytest.mark.parametrize("name", CASES)
def test_every_answer_is_that_of_all_tensors(name: str) -> None:
    model, listed, tiles = CASES[name]
    tensors = list(listed())
    assert sum(p for _, p in tensors) == pytest.approx(1)
    assert model.expected_nnz == pytest.approx(sum(p * len(points) for points, p in tensors))
    assert model.label == "expected"
    for tile in tiles:
        compare(model, tensors, tile)
    for depth in range(len(model.ranks) + 1):
        wanted = sum(p * len({x[:depth] for x in points}) for points, p in tensors)
        assert model.expected_fibers(depth) == pytest.approx(wanted, rel=1e-9)


def drawn(random: Random) -> tuple[DensityModel, list[tuple[Points, float]]]:
    """A small model of any kind with random parameters, and all its tensors (at most 500)."""
    while True:
        order = random.randint(1, 3)
        ranks, shape = tuple("IJK"[:order]), tuple(random.randint(1, 6) for _ in range(order))
        axes = tuple(random.sample(range(order), random.randint(1, order)))
        kind = random.choice(("structured", "banded", "histogram", "hierarchical"))
        if kind == "structured":
            m = random.randint(1, 5)
            n, size = random.randint(0, m), shape[axes[0]]
            groups = [min(m, size - start) for start in range(0, size, m)]
            if prod(comb(g, min(n, g)) for g in groups) ** (prod(shape) // size) <= 500:
                model = FixedStructured(ranks, shape, n, m, ranks[axes[0]])
                return model, list(structured(shape, axes[0], n, m))
        elif kind == "banded" and len(axes) > 1:
            width = random.randint(0, 6)
            return Banded(ranks, shape, width, (ranks[axes[0]], ranks[axes[1]])), list(
                banded(shape, (axes[0], axes[1]), width)
            )
        elif kind == "histogram":
            sizes = [shape[a] for a in axes]
            room = prod(shape) // prod(sizes)
            counts = np.array([random.randint(0, room) for _ in range(prod(sizes))]).reshape(sizes)
            if prod(comb(room, int(c)) for c in counts.ravel()) <= 500:
                model_of_rows = RankNnz.of(ranks, shape, counts, tuple(ranks[a] for a in axes))
                return model_of_rows, list(histogram(shape, axes, counts))
        elif kind == "hierarchical" and prod(shape) <= 8:
            densities = tuple(random.choice((0.0, 1.0, random.random())) for _ in shape)
            return Hierarchical(ranks, shape, densities), list(hierarchical(shape, densities))


@pytest.mark.parametrize("seed", range(4))
def test_random_parameters(seed: int) -> None:
    random = Random(seed)
    for _ in range(15):
        model, tensors = drawn(random)
        compare(model, tensors, tuple(random.randint(1, s) for s in model.shape), near=1.0)
        for depth in range(len(model.ranks) + 1):
            wanted = sum(p * len({x[:depth] for x in points}) for points, p in tensors)
            assert model.expected_fibers(depth) == pytest.approx(wanted, rel=1e-9)


def test_bounds_are_told_from_expected_maxima() -> None:
    assert CASES["hierarchical"][0].max_label((1, 3)) == "expected"
    assert CASES["hierarchical"][0].max_label((1, 1)) == "bound"
    assert CASES["two of four"][0].max_label((1, 4)) == "expected"
    assert CASES["two of four"][0].max_label((1, 2)) == "bound"
    assert CASES["rows"][0].max_label((2, 4)) == "expected"
    assert CASES["rows"][0].max_label((2, 2)) == "bound"
    assert CASES["band"][0].max_label((2, 2)) == "expected"


@pytest.mark.parametrize("shape", [(6, 5), (4, 3, 5), (7,), (2**31, 2**31, 2**31)])
def test_actual_data_is_counted(shape: tuple[int, ...]) -> None:
    generator = np.random.default_rng(3)
    coords = np.unique(generator.integers(0, np.minimum(shape, 7), (12, len(shape))), axis=0).T
    tensor = SparseTensor.from_coo("A", "IJK"[: len(shape)], shape, coords, np.ones(coords.shape[1]))
    model = Actual.of(tensor)
    points = frozenset(tuple(int(x) for x in p) for p in tensor.coords.T)
    assert model.label == model.max_label((1,) * len(shape)) == "exact"
    if max(shape) > 100:
        # More points than 64 bits can number: nonempty tiles alone can be listed.
        for tile in ((1, 1, 1), (2, 1, 3), (2**31, 4, 1)):
            found = {tuple(x // t for x, t in zip(p, tile, strict=True)) for p in points}
            assert model.expected_tiles(tile) == len(found)
        return
    for tile in product(*((1, 2, s) for s in shape)):
        compare(model, [(points, 1.0)], tile)
    for depth in range(len(shape) + 1):
        assert model.expected_fibers(depth) == len({p[:depth] for p in points})


def test_a_histogram_of_data_is_that_of_its_fibers() -> None:
    tensor = SparseTensor.from_coo("A", "IJK", (3, 2, 2), [[0, 0, 2], [0, 1, 1], [1, 1, 0]], [1, 1, 1])
    assert RankNnz.from_tensor(tensor).histogram.tolist() == [2, 0, 1]
    assert RankNnz.from_tensor(tensor, ("K", "I")).histogram.tolist() == [[0, 0, 1], [2, 0, 0]]


def test_what_does_not_fit_is_told() -> None:
    with faults("duplicate-name", at="ranks"):
        Hierarchical(("I", "I"), (3, 3), (0.5, 0.5))
    with faults("not-positive-integer", at="shape[1]"):
        Banded(("I", "J"), (3, 0), 1)
    with faults("out-of-range", at="densities[0]"):
        Hierarchical(("I", "J"), (3, 3), (1.5, 0.2))
    with faults("wrong-count", at="densities"):
        Hierarchical(("I", "J"), (3, 3), (0.5,))
    with faults("out-of-range", at="n"):
        FixedStructured(("I",), (8,), 5, 4)
    with faults("unknown-name", at="rank"):
        FixedStructured(("I",), (8,), 2, 4, "Q")
    with faults("not-an-integer", at="width"):
        Banded(("I", "J"), (8, 8), -1)
    with faults("wrong-count", at="ranks"):
        Banded(("I",), (8,), 1)
    with faults("shape-mismatch", at="histogram"):
        RankNnz.of(("I", "J"), (2, 4), [1, 2, 3])
    with faults("out-of-range", at="histogram"):
        RankNnz.of(("I", "J"), (2, 4), [5, -1])
    with faults("unknown-name", at="along[0]"):
        RankNnz.of(("I", "J"), (2, 4), [1, 1], ("Q",))
    with faults("out-of-range", at="histogram"):
        RankNnz(("I", "J"), (2, 4), np.array([0.5, 1]), ("I",))


def test_laws_too_long_to_write_out_are_normal() -> None:
    """Blocks of millions of nonzeros: a mixture of one normal law per block."""
    rows = np.array([3_000_000, 9_000_000, 5_000_000, 5_000_000])
    model = RankNnz.of(("I", "J"), (4, 20_000_000), rows)
    tile = (2, 10_000_000)
    # Blocks of 12 and 10 million nonzeros, cut in half.
    assert model.expected(tile) == pytest.approx(5_500_000)
    assert model.cdf(tile, 5_500_000) == pytest.approx(0.5, abs=1e-9)
    low, high = model.quantile(tile, [0.25, 0.75])
    assert low == pytest.approx(5_000_000, abs=2)
    assert high == pytest.approx(6_000_000, abs=2)
    top = float(model.expected_max(tile))
    spread = (3e6 / 4 * (1 - 3 / 20) + 9e6 / 4 * (1 - 9 / 20)) ** 0.5
    # Two independent halves of the larger block (a lower bound): the mean and 0.564 deviations.
    assert model.max_label(tile) == "bound"
    assert top == pytest.approx(6_000_000 + spread * np.pi**-0.5, abs=20)
    band = Banded(("I", "J"), (10**5, 10**5), 90_000)
    assert band.quantile((50_000, 50_000), [0.5, 1.0]).tolist() == [2_450_005_000, 2_500_000_000]
