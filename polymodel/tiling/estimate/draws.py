"""Data drawn from density models: as much as the model says, at places that it leaves open."""

from __future__ import annotations

import numpy as np

from polymodel.errors import Refused
from polymodel.sparse.density import (
    Actual,
    Banded,
    DensityModel,
    FixedStructured,
    Hierarchical,
    RankNnz,
    Uniform,
    random_tensor,
)
from polymodel.sparse.density.model import Ints
from polymodel.sparse.tensor import SparseTensor


def settled(model: DensityModel) -> bool:
    """Whether the model leaves no place open."""
    return isinstance(model, Actual | Banded)


def drawn(model: DensityModel, seed: int, name: str = "A") -> SparseTensor:
    """A matrix as the model says, the same for the same seed."""
    rows, cols = model.shape
    if isinstance(model, Actual):
        return model.tensor
    if isinstance(model, Hierarchical):
        return random_tensor(model.ranks, model.shape, model.densities, seed, name=name)
    generator = np.random.default_rng(seed)
    if isinstance(model, Uniform):
        numbers = _chosen(generator, np.array([model.nnz]), rows * cols)[1]
        coords = np.stack(np.divmod(numbers, cols))
    elif isinstance(model, Banded):
        coords = _band(model)
    elif isinstance(model, RankNnz) and len(model.along) == 1:
        axis = model.ranks.index(model.along[0])
        line, place = _chosen(generator, model.histogram, model.shape[1 - axis])
        coords = np.stack([place, line] if axis else [line, place])
    elif isinstance(model, FixedStructured):
        coords = _groups(generator, model)
    else:
        raise Refused(f"data of {type(model).__name__} are not drawn", "ask for qtree, btree or simple")
    return SparseTensor.from_coo(
        name, model.ranks, model.shape, coords, np.ones(coords.shape[1], dtype=np.int8)
    )


def _band(model: Banded) -> Ints:
    rows, cols = model.shape
    line = np.arange(rows, dtype=np.int64)
    low, high = np.clip(line - model.width, 0, cols), np.clip(line + model.width + 1, 0, cols)
    count = np.maximum(high - low, 0)
    row = np.repeat(line, count)
    start = np.repeat(low - (np.cumsum(count) - count), count)
    return np.stack([row, start + np.arange(row.size)])


def _groups(generator: np.random.Generator, model: FixedStructured) -> Ints:
    axis = model.ranks.index(model.rank)
    length, fibers, m = model.shape[axis], model.shape[1 - axis], model.m
    whole, rest = divmod(length, m)
    group, place = _chosen(generator, np.full(fibers * whole, model.n), m)
    fiber, along = group // max(whole, 1), group % max(whole, 1) * m + place
    if rest:
        last, place = _chosen(generator, np.full(fibers, min(model.n, rest)), rest)
        fiber, along = np.concatenate([fiber, last]), np.concatenate([along, whole * m + place])
    return np.stack([along, fiber] if axis == 0 else [fiber, along])


def _chosen(generator: np.random.Generator, counts: Ints, length: int) -> tuple[Ints, Ints]:
    """So many distinct places below `length` in each line: lines and places."""
    dense = 2 * counts > length
    wanted = np.where(dense, length - counts, counts)
    taken = np.zeros(0, dtype=np.int64)
    missing = wanted
    while missing.sum():
        line = np.repeat(np.arange(counts.size), missing)
        fresh = line * length + generator.integers(0, length, line.size)
        taken = np.unique(np.concatenate([taken, fresh]))
        missing = wanted - np.bincount(taken // length, minlength=counts.size)
    # Of lines more than half full the places that are left out were chosen.
    which = np.flatnonzero(dense)
    if which.size:
        every = (which[:, None] * length + np.arange(length)).ravel()
        sparse = taken[~dense[taken // length]]
        taken = np.concatenate([sparse, np.setdiff1d(every, taken, assume_unique=True)])
    return taken // length, taken % length
