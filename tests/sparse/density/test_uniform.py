"""Uniform data against enumeration, against exact products of whole numbers, and against long precision."""

from __future__ import annotations

from fractions import Fraction
from itertools import combinations, product
from math import comb

import mpmath
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from polymodel.errors import SpecError
from polymodel.sparse.density import Hypergeometric, Uniform
from tests.faults import faults, refused


def every_placement(
    shape: tuple[int, ...], nnz: int, tile: tuple[int, ...]
) -> list[dict[tuple[int, ...], int]]:
    """Occupancy of each tile, by tile number, for every way to place `nnz` nonzeros."""
    points = list(product(*map(range, shape)))
    tiles = list(product(*(range(-(-s // t)) for s, t in zip(shape, tile, strict=True))))
    found = []
    for chosen in combinations(points, nnz):
        counts = dict.fromkeys(tiles, 0)
        for point in chosen:
            counts[tuple(x // t for x, t in zip(point, tile, strict=True))] += 1
        found.append(counts)
    return found


@pytest.mark.parametrize(
    ("shape", "nnz", "tile"),
    [
        ((5,), 2, (2,)),
        ((3, 4), 3, (2, 2)),
        ((3, 4), 4, (2, 3)),
        ((2, 3, 2), 3, (1, 2, 2)),
        ((3, 3), 7, (2, 2)),
    ],
)
def test_every_answer_is_that_of_all_placements(shape, nnz, tile) -> None:
    placements = every_placement(shape, nnz, tile)
    model = Uniform.of("ABC"[: len(shape)], shape, nnz=nnz)
    first = np.array([next(iter(p.values())) for p in placements])
    assert model.expected(tile) == pytest.approx(first.mean(), rel=1e-12)
    assert model.variance(tile) == pytest.approx(first.var(), rel=1e-12, abs=1e-12)
    assert model.p_empty(tile) == pytest.approx((first == 0).mean(), rel=1e-12)
    for s in range(-1, nnz + 2):
        assert model.cdf(tile, s) == pytest.approx((first <= s).mean(), abs=1e-12)
    for confidence in (0.05, 0.5, 0.9, 1.0):
        assert model.quantile(tile, confidence) == np.quantile(first, confidence, method="inverted_cdf")
    assert model.number_of_tiles(tile) == len(placements[0])
    assert model.expected_tiles(tile) == pytest.approx(
        np.mean([sum(v > 0 for v in p.values()) for p in placements]), rel=1e-12
    )
    assert model.expected_squares(tile) == pytest.approx(
        np.mean([sum(v * v for v in p.values()) for p in placements]), rel=1e-12
    )
    greatest = np.array([max(p.values()) for p in placements])
    assert model.expected_max(tile) == pytest.approx(greatest.mean(), rel=1e-9)
    assert model.cdf_max(tile, range(nnz + 1)) == pytest.approx(
        [(greatest <= s).mean() for s in range(nnz + 1)], abs=1e-12
    )
    assert model.expected_max_lower(tile) <= greatest.mean() + 1e-12
    assert model.expected_max_upper(tile) >= greatest.mean() - 1e-12


def test_prefixes_are_counted_rank_by_rank() -> None:
    shape, nnz, tile = (3, 2, 2), 3, (2, 2, 1)
    model = Uniform.of("IJK", shape, nnz=nnz)
    points = list(product(*map(range, shape)))
    placements = list(combinations(points, nnz))
    for depth in range(4):
        plain = np.mean([len({p[:depth] for p in chosen}) for chosen in placements])
        inside = np.mean(
            [
                len({(p[:depth], tuple(x // t for x, t in zip(p, tile, strict=True))) for p in chosen})
                for chosen in placements
            ]
        )
        assert model.expected_fibers(depth) == pytest.approx(plain, rel=1e-12)
        assert model.expected_fibers(depth, tile) == pytest.approx(inside, rel=1e-12)
    assert model.expected_coordinates(1) == model.expected_fibers(2)
    with faults("out-of-range", at=""):
        model.expected_fibers(4)


@given(data=st.data())
@settings(max_examples=60, deadline=None)
def test_probabilities_are_those_of_exact_products(data) -> None:
    size = data.draw(st.integers(1, 400))
    nnz, tile = data.draw(st.integers(0, size)), data.draw(st.integers(0, size))
    law = Hypergeometric(size, nnz)
    pmf = [Fraction(comb(nnz, s) * comb(size - nnz, tile - s), comb(size, tile)) for s in range(tile + 1)]
    s = np.arange(tile + 1)
    assert law.pmf(tile, s) == pytest.approx(np.array([float(p) for p in pmf]), rel=1e-11, abs=1e-300)
    below = np.array([float(sum(pmf[: k + 1])) for k in s])
    above = np.array([float(sum(pmf[k + 1 :])) for k in s])
    assert law.cdf(tile, s) == pytest.approx(below, rel=1e-11, abs=1e-15)
    assert law.sf(tile, s) == pytest.approx(above, rel=1e-11, abs=1e-15)
    assert law.p_empty(tile) == pytest.approx(float(pmf[0]), rel=1e-11, abs=1e-300)
    for confidence in (0.1, 0.5, 0.99):
        wanted = next(k for k in s if below[k] >= confidence - 1e-13)
        assert law.quantile(tile, confidence) == wanted


def log_choose(size: mpmath.mpf, count: mpmath.mpf) -> mpmath.mpf:
    return mpmath.loggamma(size + 1) - mpmath.loggamma(count + 1) - mpmath.loggamma(size - count + 1)


@pytest.mark.parametrize("size", [10**9, 10**12, 10**15, 10**18, 9 * 10**18])
@pytest.mark.parametrize("nnz", [1, 37, 5_000, 10**6, 77_000_000])
@pytest.mark.parametrize("mean", [0.001, 0.5, 12.0, 300.0])
@pytest.mark.thin(8)
def test_long_precision_agrees_up_to_1e18_points(size: int, nnz: int, mean: float) -> None:
    tile = min(size, max(1, round(mean * size / nnz)))
    law = Hypergeometric(size, nnz)
    with mpmath.workdps(60):
        possible = tile + nnz <= size
        exact = (
            mpmath.mpf(0)
            if not possible
            else mpmath.exp(
                log_choose(mpmath.mpf(size - tile), mpmath.mpf(nnz)) - log_choose(mpmath.mpf(size), nnz)
            )
        )
        assert float(law.p_empty(tile)) == pytest.approx(float(exact), rel=1e-9, abs=1e-300)
        assert float(law.p_nonempty(tile)) == pytest.approx(float(1 - exact), rel=1e-9)
        for s in {int(tile * nnz / size) + d for d in (-3, 0, 1, 40)}:
            if max(0, tile + nnz - size) <= s <= min(tile, nnz):
                log_p = log_choose(mpmath.mpf(nnz), s) + log_choose(
                    mpmath.mpf(size - nnz), mpmath.mpf(tile - s)
                )
                p = mpmath.exp(log_p - log_choose(mpmath.mpf(size), mpmath.mpf(tile)))
                assert float(law.pmf(tile, s)) == pytest.approx(float(p), rel=1e-9, abs=1e-300)


@pytest.mark.parametrize(("size", "nnz"), [(10**7, 10**6), (10**18, 10**15), (10**18, 10**18 - 5)])
def test_wide_and_nearly_full_laws(size: int, nnz: int) -> None:
    """Tails that are integrated agree with sums of single probabilities, and both sides make 1."""
    law = Hypergeometric(size, nnz)
    for tile in {round(f * size) for f in (1e-3, 0.3, 0.77)}:
        mean, spread = float(law.mean(tile)), float(np.sqrt(law.variance(tile)))
        for score in (-6.0, -2.0, -0.1, 0.0, 0.1, 3.0, 8.0):
            s = min(max(int(mean + score * spread), 0), nnz, tile)
            assert float(law.cdf(tile, s) + law.sf(tile, s)) == pytest.approx(1, abs=1e-12)
            if 1 < spread < 3000:
                k = np.arange(s + 1, s + 1 + int(14 * spread))
                assert float(law.sf(tile, s)) == pytest.approx(float(law.pmf(tile, k).sum()), rel=1e-9)
        for confidence in (0.01, 0.5, 0.999):
            s = int(law.quantile(tile, confidence))
            assert float(law.cdf(tile, s)) >= confidence - 1e-12
            assert s == 0 or float(law.cdf(tile, s - 1)) < confidence


def test_the_smaller_tail_is_the_one_that_is_summed() -> None:
    """All of 5 nonzeros but with a chance of 5 missed / points: the mean is just below 5."""
    law = Hypergeometric(10**12, 5)
    assert float(law.cdf(10**12 - 2, 4)) == pytest.approx(5 * 2e-12, rel=1e-9)
    assert float(law.sf(2, 0)) == pytest.approx(5 * 2e-12, rel=1e-9)


def test_integrals_meet_sums_where_they_change_over() -> None:
    """Standard deviations just below and above the change, against sums in long precision."""
    size, nnz = 10**9, 10**6
    law = Hypergeometric(size, nnz)
    for tile in (6_000_000, 7_000_000):
        s = int(law.mean(tile) + 4 * np.sqrt(law.variance(tile)))
        with mpmath.workdps(40):
            p = mpmath.exp(
                log_choose(mpmath.mpf(nnz), s)
                + log_choose(mpmath.mpf(size - nnz), tile - s)
                - log_choose(mpmath.mpf(size), tile)
            )
            total, k = mpmath.mpf(0), s
            while p > total * mpmath.mpf(10) ** -20:
                total += p
                p *= mpmath.mpf((nnz - k) * (tile - k)) / ((k + 1) * (size - nnz - tile + k + 1))
                k += 1
            assert float(law.sf(tile, s - 1)) == pytest.approx(float(total), rel=1e-9)


def test_densities_round_to_whole_numbers_of_nonzeros() -> None:
    assert Uniform.of("IJ", (10, 10), density=0.125).nnz == 12
    assert Uniform.of("I", (10**18,), density=0.1).nnz == round(Fraction(0.1) * 10**18)
    assert Uniform.of((), (), nnz=1).expected_max(()) == 1
    for wrong in (
        {"density": 1.5},
        {"density": -0.1},
        {"density": float("nan")},
        {"nnz": 101},
        {"nnz": -1},
        {},
    ):
        with pytest.raises(SpecError):
            Uniform.of("IJ", (10, 10), **wrong)
    with refused("number-too-large", "64"):
        Uniform.of("IJ", (10**10, 10**10), nnz=5)


def test_tiles_are_checked_and_cut_to_the_shape() -> None:
    model = Uniform.of("IJ", (10, 10), nnz=20)
    assert model.expected((50, 10)) == 20
    assert model.p_empty([[1, 1], [2, 5], [10, 10]]).shape == (3,)
    for wrong in ((0, 1), (1,), 3, (1.5, 2)):
        with pytest.raises(SpecError):
            model.expected(wrong)


def test_a_grid_of_tiles_is_quick() -> None:
    """10^4 tile shapes at once give what each gives alone."""
    model = Uniform.of("IJK", (12_000, 9_000, 28_000), nnz=77_000_000)
    sizes = np.random.default_rng(0).integers(1, 9_000, (10_000, 3))
    many = model.p_empty(sizes), model.expected_tiles(sizes), model.quantile(sizes[:100], 0.999)
    for chosen in (0, 17, 99):
        one = sizes[chosen]
        assert many[0][chosen] == model.p_empty(one)
        assert many[1][chosen] == model.expected_tiles(one)
        assert many[2][chosen] == model.quantile(one, 0.999)


@pytest.mark.slow
@pytest.mark.parametrize(("size", "nnz"), [(4_000_000, 36_000), (10**6, 300), (10**12, 100_000)])
def test_of_two_halves_the_fuller_one_has_half_and_the_mean_deviation(size: int, nnz: int) -> None:
    """max(X, n - X) in long precision; wide laws included."""
    model = Uniform.of("I", (size,), nnz=nnz)
    half = size // 2
    spread = int(20 * nnz**0.5)
    k = np.arange(max(0, nnz // 2 - spread), min(nnz, nnz // 2 + spread) + 1)
    wanted = float(model.points.pmf(half, k) @ np.maximum(k, nnz - k))
    assert model.expected_max((half,)) == pytest.approx(wanted, rel=1e-6)


@pytest.mark.slow
def test_many_wide_tiles_agree_with_a_transform_of_their_sum() -> None:
    """Tiles of 1,000 nonzeros: wide sums against the plain coefficient, for a few s."""
    model = Uniform.of("IJ", (4_000, 4_000), nnz=200_000)
    tile, s = (20, 4_000), np.array([1_050, 1_080, 1_110])
    tiles, points = 200, 80_000
    k = np.arange(s.max() + 1)
    share = 200_000 / 16_000_000
    with mpmath.workdps(30):
        log_pmf = [
            log_choose(mpmath.mpf(points), int(x))
            + int(x) * mpmath.log(share)
            + (points - int(x)) * mpmath.log(1 - share)
            for x in k
        ]
    pmf = np.array([float(mpmath.exp(p)) for p in log_pmf])
    length = 1 << 18
    for most in s:
        transform = np.fft.fft(np.where(k <= most, pmf, 0.0), n=length)
        summed = np.fft.ifft(transform**tiles).real[200_000]
        whole = float(
            mpmath.exp(
                log_choose(mpmath.mpf(16_000_000), 200_000)
                + 200_000 * mpmath.log(share)
                + 15_800_000 * mpmath.log(1 - share)
            )
        )
        assert float(model.cdf_max(tile, most)) == pytest.approx(summed / whole, rel=1e-6)


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("size", [2**63 - 1, 2**63 - 2, 10**18 + 9])
def test_halves_of_the_widest_tensors_are_never_empty(size: int) -> None:
    law = Hypergeometric(size, size // 2)
    tiles = [size - size // 2, size - size // 2 - 1, size - size // 2 + 1]
    assert law.p_empty(tiles).tolist() == [0, 0, 0]
    assert law.p_nonempty(tiles).tolist() == [1, 1, 1]
