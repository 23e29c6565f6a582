"""Expected predictions against exact ones of random tensors, and closed forms at the ends of the range."""

from __future__ import annotations

import time
from collections.abc import Callable
from math import comb, prod

import numpy as np
import pytest

from polymodel.sparse.density import Hierarchical, RankNnz, Uniform
from polymodel.sparse.tensaurus import TensaurusReport, Tiles, tensaurus
from polymodel.sparse.tensaurus.statistics import ExpectedStatistics
from polymodel.sparse.tensor import SparseTensor
from tests.sparse import data

TRIALS = 120


def drawn(shape: tuple[int, ...], nnz: int, seed: int) -> SparseTensor:
    """Exactly nnz nonzeros, every placement alike."""
    at = np.random.default_rng(seed).choice(prod(shape), nnz, replace=False)
    coords = np.array(np.unravel_index(at, shape))
    return SparseTensor.from_coo("A", "IJK"[: len(shape)], shape, coords, np.ones(nnz))


CASES = {
    "MTTKRP": ((60, 20, 30), 1500, {"F": 8}, Tiles(i=16, j=7, k=11)),
    "TTMc": ((60, 20, 30), 900, {"U": 8, "V": 6}, Tiles(i=16, j=7, k=11)),
    "SpMM": ((200, 100), 2500, {"K": 40}, Tiles(i=32, j=25)),
    "SpMV": ((200, 100), 1200, {}, Tiles()),
}


@pytest.mark.thin(99)
@pytest.mark.parametrize("kernel", CASES)
def test_expected_numbers_are_means_of_exact_ones(kernel: str) -> None:
    shape, nnz, dense, tiles = CASES[kernel]
    ranks = ("I", "J", "K")[: len(shape)]
    ours = tensaurus(kernel, Uniform(ranks, shape, nnz), **dense, tiles=tiles)
    runs = [tensaurus(kernel, drawn(shape, nnz, n), **dense, tiles=tiles) for n in range(TRIALS)]
    assert ours.label == "expected"

    def near(of: Callable[[TensaurusReport], float], within: float) -> None:
        values = np.array([of(r) for r in runs], dtype=float)
        error = values.std() / TRIALS**0.5
        assert abs(of(ours) - values.mean()) <= max(within * values.mean(), 4 * error), (
            of(ours),
            values.mean(),
        )

    for sums in ("multiplies", "executed", "fibers", "slices"):
        near(lambda r, name=sums: getattr(r, name), 1e-9)
    for flow in range(len(ours.flows)):
        near(lambda r, n=flow: r.flows[n].bits, 0.02)
    # Fibers of a slice are taken in proportion to its nonzeros; the busiest lane has relatively fewer.
    near(lambda r: r.steps, 0.04)
    for stage in range(len(ours.stages)):
        near(lambda r, n=stage: r.stages[n].largest, 0.05)
        near(lambda r, n=stage: r.stages[n].slip, 0.05)
    for n, stage in enumerate(ours.stages):
        mean = np.mean([r.stages[n].lockstep for r in runs])
        if stage.lockstep_label == "expected":
            assert stage.lockstep == pytest.approx(mean, rel=0.1)
        else:
            assert stage.lockstep <= 1.05 * mean


# Means over 400 random tensors, 8 lanes: I, J, K, nonzeros, largest load, lock-step time of rows.
MONTE_CARLO = [
    (64, 32, 1, 256, 35.0175, 62.0125),
    (1000, 1000, 1, 5000, 628.635, 1078.0925),
    (512, 64, 1, 3277, 413.9, 668.885),
    (100, 20, 30, 3000, 390.2675, 499.495),
]


@pytest.mark.parametrize(("i", "j", "k", "nnz", "largest", "lockstep"), MONTE_CARLO)
def test_dealing_equals_many_random_tensors(
    i: int, j: int, k: int, nnz: int, largest: float, lockstep: float
) -> None:
    dealt = ExpectedStatistics(Uniform(("I", "J", "K"), (i, j, k), nnz)).deal(i, (j, k), 8, 0, 0.0)
    assert nnz / 8 + dealt.largest - dealt.mean_slots == pytest.approx(largest, rel=0.01)
    assert dealt.lockstep == pytest.approx(lockstep, rel=0.025)


def test_fibers_are_counted_by_their_probability() -> None:
    """E[N_ij] = I J (1 - C(IJK - K, n) / C(IJK, n)), with whole numbers."""
    i, j, k, n = 9, 8, 7, 60
    report = tensaurus("MTTKRP", Uniform(("I", "J", "K"), (i, j, k), n), F=5)
    empty = comb(i * j * k - k, n) / comb(i * j * k, n)
    assert report.fibers == pytest.approx(i * j * (1 - empty), rel=1e-12)
    assert report.multiplies == pytest.approx(5 * n + 5 * report.fibers, rel=1e-12)


@pytest.mark.parametrize("kernel", ["MTTKRP", "TTMc", "SpMM", "SpMV"])
def test_a_full_tensor_is_the_same_either_way(kernel: str) -> None:
    shape = (40, 24, 20) if kernel in ("MTTKRP", "TTMc") else (40, 24)
    full = SparseTensor.from_dense("A", "IJK"[: len(shape)], np.ones(shape))
    tiles = Tiles(i=9, j=5)
    counted = tensaurus(kernel, full, tiles=tiles)
    expected = tensaurus(kernel, Uniform(full.ranks, shape, prod(shape)), tiles=tiles)
    for ours, theirs in zip(expected.flows, counted.flows, strict=True):
        assert (ours.memory, ours.way, ours.tensor) == (theirs.memory, theirs.way, theirs.tensor)
        # Edge tiles are dealt as full ones are.
        assert ours.bits == pytest.approx(theirs.bits, rel=0.1)
    assert expected.multiplies == pytest.approx(counted.multiplies, rel=1e-12)
    assert expected.steps == pytest.approx(counted.steps, rel=0.1)


def test_an_empty_model_has_no_work() -> None:
    report = tensaurus("MTTKRP", Uniform(("I", "J", "K"), (9, 9, 9), 0))
    assert report.multiplies == report.steps == report.moved("HBM", "A") == 0
    assert report.seconds > 0


def test_clusters_make_fewer_fibers() -> None:
    uniform = tensaurus("MTTKRP", Uniform(("I", "J", "K"), (100, 100, 100), 5000))
    clustered = tensaurus("MTTKRP", Hierarchical(("I", "J", "K"), (100, 100, 100), (1.0, 0.05, 0.1)))
    assert clustered.nnz == pytest.approx(uniform.nnz)
    assert clustered.fibers < 0.2 * uniform.fibers


def test_a_query_for_a_large_tensor_is_fast() -> None:
    """nell-2 of the paper; the first query of a process also loads what it needs."""
    model = Uniform(("I", "J", "K"), (12_000, 9_000, 28_000), 77_000_000)
    start = time.process_time()
    report = tensaurus("MTTKRP", model)
    assert time.process_time() - start < 3
    assert report.nnz == 77_000_000


def test_models_that_know_their_rows_balance_as_the_data_do() -> None:
    """A histogram of rows fixes the dealing of slices: what hangs on rows alone is that of the data."""
    tensor = data.tensor("web")
    actual = tensaurus("SpMM", tensor).stages[0]
    found = tensaurus("SpMM", RankNnz.from_tensor(tensor)).stages[0]
    assert (found.largest, found.lockstep) == (actual.largest, actual.lockstep)
