"""Models fitted to what is seen of a matrix, from the one that says least to the one that says most."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial

import numpy as np

from polymodel.sparse.density.blocks import Blocks
from polymodel.sparse.density.diagonals import Diagonals
from polymodel.sparse.density.hierarchical import Hierarchical
from polymodel.sparse.density.model import DensityModel, Floats, Ints
from polymodel.sparse.density.observed import Observed
from polymodel.sparse.density.row_column import RowColumn
from polymodel.sparse.density.sampled import SAMPLES, Sampled
from polymodel.sparse.density.structured import FixedStructured
from polymodel.sparse.density.uniform import Uniform

# Sizes of groups and of blocks that are tried; blocks of which less is full are none.
GROUPS, SIZES, FULL = (2, 4, 8, 16), (2, 3, 4, 5, 6, 8, 10, 12, 16, 24, 32), 0.5
# Diagonals that are told apart, at most, and how far above the background one has to be.
_DIAGONALS, _ABOVE, _TIMES = 4096, 5.0, 2.0


@dataclass(frozen=True)
class Candidate:
    """A kind of model, and how it is fitted: None where what is seen is nothing of the kind."""

    name: str
    fit: Callable[[Observed], DensityModel | None]


def candidates(whole: Observed) -> Iterator[Candidate]:
    """Kinds worth a trial, simplest first. Sizes of blocks are chosen from the whole matrix."""
    yield Candidate("uniform", uniform)
    yield Candidate("fixed_structured", groups)
    yield Candidate("diagonals", diagonals)
    for size in sizes_of_blocks(whole):
        yield Candidate(f"blocks of {size}", partial(blocks, size=size, arranged=uniform))
        yield Candidate(f"blocks of {size} on diagonals", partial(blocks, size=size, arranged=diagonals))
    yield Candidate("row_column", row_column)
    yield Candidate("sampled", sampled)


def uniform(seen: Observed) -> Uniform:
    """The number of nonzeros."""
    nnz = min(round(seen.nonzeros), seen.shape[0] * seen.shape[1])
    return Uniform.of(seen.tensor.ranks, seen.shape, nnz=nnz)


def groups(seen: Observed) -> FixedStructured | None:
    """n of m, where all groups are alike."""
    tensor = seen.tensor
    for m in GROUPS:
        for axis in (1, 0):
            if seen.shape[axis] % m:
                continue
            other = tensor.coords[1 - axis]
            numbers = other * (seen.shape[axis] // m) + tensor.coords[axis] // m
            counts = np.unique(numbers, return_counts=True)[1]
            n = int(counts[0])
            every = seen.shape[0] * seen.shape[1] * seen.share() / m
            if n < m and (counts == n).all() and abs(counts.size - every) < 1e-6 * every:
                return FixedStructured(tensor.ranks, seen.shape, n, m, tensor.ranks[axis])
    return None


def row_column(seen: Observed) -> RowColumn:
    """Nonzeros of rows and columns: those seen, for all of the line."""
    lines = []
    for axis in (0, 1):
        counts = np.bincount(seen.tensor.coords[axis], minlength=seen.shape[axis]).astype(np.float64)
        space, length = seen.open_points(axis), float(seen.shape[1 - axis])
        lines.append(np.minimum(counts * length / np.maximum(space, 1.0), length))
    least = min(float(x.sum()) for x in lines)
    rows, columns = (x * (least / max(float(x.sum()), 1e-300)) for x in lines)
    return RowColumn.of(seen.tensor.ranks, seen.shape, rows, columns)


def diagonals(seen: Observed) -> Diagonals | None:
    """Diagonals that stand out from the rest, each with its own share."""
    rows, columns = seen.shape
    away = seen.tensor.coords[1] - seen.tensor.coords[0]
    offsets, counts = np.unique(away, return_counts=True)
    length = np.minimum(rows, columns - offsets) - np.maximum(0, -offsets)
    points, chosen = float(rows) * columns * seen.share(), np.zeros(offsets.size, dtype=bool)
    space = length * seen.share()
    for _ in range(4):
        left = max(points - float(space[chosen].sum()), 1.0)
        usual = max(float(counts[~chosen].sum()), 0.5) / left * space
        before = chosen
        chosen = (counts > _TIMES * usual) & (counts > usual + _ABOVE * np.sqrt(usual) + 2)
        if (chosen == before).all():
            break
    if not chosen.any() or chosen.sum() > _DIAGONALS:
        return None
    found = offsets[chosen]
    space = seen.open_diagonals(found)
    fill = np.minimum(counts[chosen] / np.maximum(space, 1.0), 1.0)
    left = points - float(space.sum())
    rest = float(counts[~chosen].sum()) / left if left > 0 else 0.0
    return Diagonals.of(seen.tensor.ranks, seen.shape, found.tolist(), fill.tolist(), min(rest, 1.0))


def sizes_of_blocks(seen: Observed) -> list[int]:
    """The two sizes that say most briefly where the nonzeros are."""
    told = []
    for size in SIZES:
        if 4 * size > min(seen.shape):
            break
        arranged, counts = seen.blocks(size)
        full = float(counts.mean()) / size**2 if counts.size else 0.0
        if full < FULL:
            continue
        number = float(arranged.shape[0]) * arranged.shape[1]
        told.append((_bits(number, counts.size) + _bits(counts.size * size**2, float(counts.sum())), size))
    return [size for _, size in sorted(told)[:2]]


def _bits(points: float, nonzeros: float) -> float:
    """Nats that tell which points are nonzero."""
    share = nonzeros / points
    inside = 0.0 < share < 1.0
    return -points * (share * np.log(share) + (1 - share) * np.log1p(-share)) if inside else 0.0


def blocks(seen: Observed, size: int, arranged: Callable[[Observed], DensityModel | None]) -> Blocks | None:
    """Blocks of this size, arranged as another model says."""
    of_blocks, counts = seen.blocks(size)
    arrangement = arranged(of_blocks) if counts.size else None
    if arrangement is None:
        return None
    fill = Hierarchical(seen.tensor.ranks, (size, size), (1.0, float(counts.mean()) / size**2))
    return Blocks(seen.tensor.ranks, seen.shape, (size, size), arrangement, fill)


def sampled(seen: Observed) -> Sampled:
    """Some thousand tiles."""
    return Sampled.scaled(seen.tensor, seen.nonzeros, SAMPLES, 0)


def occupancies(coords: Ints, tile: tuple[int, int], columns: int) -> tuple[Ints, Floats]:
    """The first point of each nonempty tile, and its nonzeros."""
    step = -(-columns // tile[1])
    numbers, counts = np.unique(coords[0] // tile[0] * step + coords[1] // tile[1], return_counts=True)
    where = np.stack(np.divmod(numbers, step)) * np.array(tile, dtype=np.int64)[:, None]
    return where, counts.astype(np.float64)
