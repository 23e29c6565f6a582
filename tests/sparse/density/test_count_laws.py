"""Distributions of counts: how far they reach, which of them agree, and a few of their values."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.stats import binom, poisson

import polymodel as pm
from polymodel.sparse.density import sampled
from polymodel.sparse.density.laws import RARE, CountLaws

MEANS = np.array([1e-9, 1e-4, 0.02, 0.7, 3.0, 40.0, 900.0])


def laws(mean: np.ndarray, variance: np.ndarray) -> CountLaws:
    zeros = np.zeros(mean.size)
    return CountLaws(mean, variance, -mean, zeros, np.full(mean.size, 1e9))


def test_sums_of_independent_points_do_not_reach_far() -> None:
    """Beyond it lies e^-40 of Poisson's and of the binomial distribution, and not much less."""
    shares = np.array([0.0, 0.3, 0.9])
    for share in shares:
        found = laws(MEANS, MEANS * (1 - share)).reach
        beyond = poisson.sf(found, MEANS) if share == 0 else binom.sf(found, np.ceil(MEANS / share), share)
        assert (beyond[MEANS > 1 if share else MEANS > 0] <= np.exp(-RARE)).all()
    assert (poisson.sf(laws(MEANS, MEANS).reach - 3, MEANS) > np.exp(-RARE - 12)).all()
    # Clustered counts have a tail of their own.
    assert (laws(MEANS, 2 * MEANS).reach > laws(MEANS, MEANS).reach).all()


def test_laws_that_agree_are_evaluated_once() -> None:
    draw = np.random.default_rng(1)
    mean = np.repeat(MEANS, 5) * (1 + 1e-12 * draw.standard_normal(35))
    one, group = laws(mean, mean).alike()
    assert one.size <= 2 * MEANS.size  # two where rounding divides a group
    assert mean[one][group] == pytest.approx(mean, rel=1e-8)
    assert laws(mean[:0], mean[:0]).alike()[0].size == 0
    apart = laws(MEANS, MEANS * np.linspace(0.5, 1.5, MEANS.size)).alike()[0]
    assert sorted(apart) == list(range(MEANS.size))


def test_a_few_values_are_those_of_the_list() -> None:
    model = pm.RowColumn.of("IK", (40, 50), np.arange(40) % 7 * 5, np.full(50, 11.5))
    asked = np.array([3.0, -1.0, 30.0, 3.5, 0.0])
    few = model.cdf((20, 40), asked)
    every = model.cdf((20, 40), np.arange(-1, 500))
    assert few == pytest.approx(every[(np.floor(asked) + 1).astype(int)], abs=1e-12)


def test_long_distributions_are_convolved_as_short_ones(monkeypatch: pytest.MonkeyPatch) -> None:
    draw = np.random.default_rng(2)
    values, kernel = draw.random(500), draw.random(90)
    wanted = np.convolve(values, kernel)
    monkeypatch.setattr(sampled, "_DIRECT", 0)
    assert sampled._convolved(values, kernel) == pytest.approx(wanted, rel=1e-9)
