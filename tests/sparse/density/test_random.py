"""Random tensors: their number of nonzeros, their spread, and that they are the same everywhere."""

from __future__ import annotations

import subprocess
import sys

import numpy as np
import pytest

import polymodel as pm
from tests.faults import faults


@pytest.mark.parametrize("density", [0.0, 0.01, 0.3, 0.5, 0.77, 1.0])
def test_one_density_places_exactly_its_share(density: float) -> None:
    tensor = pm.random_tensor("IJ", (40, 50), density, 7)
    assert tensor.nnz == round(density * 2000)
    assert tensor.values.size == 0 or (tensor.values.min() >= 1 and tensor.values.max() <= 9)


@pytest.mark.slow
def test_every_point_is_as_likely() -> None:
    """Of 3,000 draws of 4 of 12 points each point has about a third: chi-square of 11 degrees below 40."""
    hits = np.zeros(12)
    for seed in range(3_000):
        tensor = pm.random_tensor("IJ", (3, 4), 1 / 3, seed)
        hits[tensor.numbers] += 1
    assert ((hits - 1000) ** 2 / (1000 * 2 / 3)).sum() * 11 / 12 < 40


def test_huge_shapes_are_never_made() -> None:
    tensor = pm.random_tensor("IJK", (10**6, 10**6, 10**6), 1e-13, 1)
    assert tensor.nnz == 100_000
    assert abs(tensor.coords.mean() / 5e5 - 1) < 0.01


def test_rank_by_rank_densities_thin_the_fibers() -> None:
    model = pm.Hierarchical(("I", "J", "K"), (300, 40, 30), (0.5, 0.2, 0.3))
    tensor = pm.random_tensor(model.ranks, model.shape, model.densities, 5)
    assert abs(tensor.nnz - model.expected_nnz) < 5 * np.sqrt(float(model.variance(model.shape)))
    rows = np.unique(tensor.coords[0]).size
    assert abs(rows - model.expected_fibers(1)) < 5 * np.sqrt(300 * 0.25)
    assert pm.random_tensor("IJ", (5, 5), (1.0, 1.0), 0).nnz == 25
    assert pm.random_tensor("IJ", (5, 5), (0.0, 1.0), 0).nnz == 0


def test_the_same_seed_is_the_same_tensor_in_every_process() -> None:
    code = (
        "from polymodel.sparse.density import random_tensor as r\n"
        "a, b = r('IJ', (90, 80), 0.1, 3), r('IJ', (90, 80), (0.5, 0.2), 3)\n"
        "import sys; sys.stdout.write(f'{a.numbers.tolist()} {a.values.tolist()} {b.numbers.tolist()}')"
    )
    found = {
        subprocess.run(
            [sys.executable, "-c", code],
            capture_output=True,
            text=True,
            check=True,
            env={"PYTHONHASHSEED": seed, "PYTHONPATH": ":".join(sys.path)},
        ).stdout
        for seed in ("1", "2")
    }
    assert len(found) == 1
    assert len(next(iter(found))) > 1000


def test_the_uniform_model_describes_it() -> None:
    shape, tile, seeds = (30, 20), (4, 3), range(200)
    model = pm.Uniform.of("IJ", shape, density=0.05)
    drawn = []
    for seed in seeds:
        coords = pm.random_tensor("IJ", shape, 0.05, seed).coords
        drawn.append(len({(i // 4, j // 3) for i, j in coords.T.tolist()}))
    error = np.std(drawn) / np.sqrt(len(drawn))
    assert abs(np.mean(drawn) - model.expected_tiles(tile)) < 4 * error


def test_what_does_not_fit_is_told() -> None:
    for density in (-0.1, 1.1, float("nan"), (0.5,), (0.5, 2.0)):
        with pytest.raises(pm.SpecError):
            pm.random_tensor("IJ", (3, 4), density, 0)
    with faults("wrong-count", at="shape"):
        pm.random_tensor("IJ", (3,), 0.5, 0)
