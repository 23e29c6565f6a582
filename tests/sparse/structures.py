"""Twelve matrices with the structures that models have to tell apart, all of them generated."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache

import numpy as np
from scipy.spatial import cKDTree

import polymodel as pm

Ints = np.ndarray[tuple[int, ...], np.dtype[np.int64]]


def united(*parts: pm.SparseTensor) -> pm.SparseTensor:
    """A point is nonzero where one of the parts is."""
    coords = np.concatenate([p.coords for p in parts], axis=1)
    ones = np.ones(coords.shape[1], dtype=np.int64)
    return pm.SparseTensor.from_coo("A", "IK", parts[0].shape, coords, ones)


def neighbours(points: int, near: int, seed: int) -> pm.SparseTensor:
    """The nearest neighbours of random points in a square, numbered strip by strip."""
    draw = np.random.default_rng(seed)
    place = draw.integers(0, 2**20, (points, 2))
    strips = place[:, 0] * int(points**0.5 / 3) >> 20
    place = place[np.lexsort((place[:, 1], strips))]
    columns = []
    for row in place if points <= 10_000 else ():
        away = ((place - row) ** 2).sum(axis=1)
        columns.append(np.argpartition(away, near + 1)[: near + 1])
    if not columns:
        columns = [cKDTree(place).query(place, near + 1)[1].reshape(-1)]
    rows = np.repeat(np.arange(points), near + 1)
    coords = np.stack([rows, np.concatenate(columns)])
    return pm.SparseTensor.from_coo("A", "IK", (points, points), coords, np.ones(rows.size, dtype=np.int64))


MADE: dict[str, Callable[[], pm.SparseTensor]] = {
    "stencil": lambda: pm.generate_tensor("stencil", 0, height=50, width=60),
    "finite elements": lambda: pm.generate_tensor("blocked", 1, blocks=240, block=6, reach=10, percent=70),
    "power law": lambda: pm.generate_tensor("power-law", 2, shape=[2000, 2000], entries=8000, symmetric=1),
    "R-MAT": lambda: pm.generate_tensor("power-law", 3, shape=[2048, 2048], entries=16000, skew=80),
    "incidence": lambda: pm.generate_tensor("incidence", 7, rows=3000, columns=900, window=120),
    "blocks": lambda: pm.generate_tensor("blocked", 4, blocks=100, block=8, reach=99, percent=4),
    "N:M": lambda: pm.FixedStructured(("I", "K"), (512, 512), 2, 4).draw(5),
    "noisy band": lambda: united(
        pm.generate_tensor("banded", 6, rows=1500, width=20, percent=30),
        pm.random_tensor("IK", [1500, 1500], 0.002, 6),
    ),
    "linear programme": lambda: pm.generate_tensor(
        "staircase", 8, stages=12, rows=60, columns=100, percent=8, coupling=8
    ),
    "road": lambda: pm.generate_tensor("stencil", 9, height=50, width=60, percent=65),
    "web": lambda: united(
        pm.generate_tensor("power-law", 10, shape=[2000, 2000], entries=7000, skew=80),
        pm.generate_tensor("banded", 10, rows=2000, width=12, percent=15),
    ),
    "neighbours": lambda: neighbours(2000, 8, 11),
}


# The same structures with 10^6 to 10^7 nonzeros.
LARGE: dict[str, Callable[[], pm.SparseTensor]] = {
    "stencil": lambda: pm.generate_tensor("stencil", 0, height=900, width=1110),
    "finite elements": lambda: pm.generate_tensor("blocked", 1, blocks=8000, block=6, reach=10, percent=70),
    "power law": lambda: pm.generate_tensor(
        "power-law", 2, shape=[250_000, 250_000], entries=1_000_000, symmetric=1
    ),
    "R-MAT": lambda: pm.generate_tensor("power-law", 3, shape=[262_144, 262_144], entries=2_000_000, skew=80),
    "incidence": lambda: pm.generate_tensor("incidence", 7, rows=600_000, columns=180_000, window=120),
    "blocks": lambda: pm.generate_tensor("blocked", 4, blocks=12_000, block=8, reach=60, percent=3),
    "N:M": lambda: pm.FixedStructured(("I", "K"), (2048, 2048), 2, 4).draw(5),
    "noisy band": lambda: united(
        pm.generate_tensor("banded", 6, rows=120_000, width=20, percent=30),
        pm.random_tensor("IK", [120_000, 120_000], 0.00002, 6),
    ),
    "linear programme": lambda: pm.generate_tensor(
        "staircase", 8, stages=80, rows=100, columns=150, percent=90, coupling=8
    ),
    "road": lambda: pm.generate_tensor("stencil", 9, height=900, width=1110, percent=65),
    "web": lambda: united(
        pm.generate_tensor("power-law", 10, shape=[250_000, 250_000], entries=900_000, skew=80),
        pm.generate_tensor("banded", 10, rows=250_000, width=12, percent=15),
    ),
    "neighbours": lambda: neighbours(130_000, 8, 11),
}


@cache
def structure(name: str) -> pm.SparseTensor:
    """The matrix of that name."""
    return MADE[name]().renamed("A", ("I", "K"))


# What the table tells: the quantities whose largest error stands in a column.
COLUMNS = ("nonempty tiles", "multiplies", "fullest tile", "mean load", "greatest load")


@cache
def fitted(name: str) -> pm.DensityFit:
    """The model chosen for the matrix of that name."""
    return pm.fit_density(structure(name))


def worst(found: pm.DensityFit) -> list[float | None]:
    """The largest error of the chosen model in each column; None where it has no such quantity."""
    columns: list[float | None] = []
    for name in COLUMNS:
        errors = [c.error for c in found.choice.chosen.compared if c.quantity.startswith(name)]
        columns.append(max((e for e in errors if e is not None), key=abs, default=None))
    return columns


def told(name: str, tensor: pm.SparseTensor, found: pm.DensityFit) -> tuple[float, str]:
    """The largest error of a fit, and its row in a table of docs/sparse/density.md."""
    errors = worst(found)
    cells = ["-" if e is None else f"{round(100 * e, 1) + 0.0:+.1f} %".replace("+0.0", "0.0") for e in errors]
    text = f"| {name} | {tensor.nnz:,} | `{found.name}` | {' | '.join(cells)} |"
    return max(abs(e) for e in errors if e is not None), text


def table() -> list[str]:
    """The rows of the table in docs/sparse/density.md, the structure with the largest error first."""
    rows = [told(name, structure(name), fitted(name)) for name in MADE]
    return [text for _, text in sorted(rows, reverse=True)]
