"""Generate random matrices with realistic structures, drawn with integers only, so that they are the same on
every machine."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

import numpy as np

from polymodel.errors import Refused
from polymodel.sparse.tensor import Ints

Draw = np.random.Generator
# A power law whose most likely points are full gives few new entries per draw, and is refused.
_ROUNDS = 200


def banded(draw: Draw, rows: int, columns: int, width: int, percent: int) -> Ints:
    """Return points within `width` of the diagonal, each kept with this probability; the diagonal itself is
    full."""
    centre = np.arange(rows) * columns // rows
    row, offset = (
        a.ravel() for a in np.meshgrid(np.arange(rows), np.arange(-width, width + 1), indexing="ij")
    )
    column = centre[row] + offset
    inside = (column >= 0) & (column < columns)
    row, column, offset = row[inside], column[inside], offset[inside]
    kept = (offset == 0) | _chance(draw, row.size, percent)
    return np.stack([row[kept], column[kept]])


def blocked(draw: Draw, blocks: int, block: int, reach: int, percent: int) -> Ints:
    """Return dense blocks, as in a finite-element mesh with `block` unknowns per node.

    Nodes are coupled with themselves and, with this probability, with each of the `reach` nodes before them;
    the pattern is therefore symmetric.
    """
    node = np.repeat(np.arange(blocks), reach)
    other = node - np.tile(np.arange(1, reach + 1), blocks)
    kept = (other >= 0) & _chance(draw, node.size, percent)
    node, other = node[kept], other[kept]
    diagonal = np.arange(blocks)
    tops, lefts = np.concatenate([node, other, diagonal]), np.concatenate([other, node, diagonal])
    down, across = (a.ravel() for a in np.meshgrid(np.arange(block), np.arange(block), indexing="ij"))
    return np.stack([(x[:, None] * block + y[None, :]).ravel() for x, y in ((tops, down), (lefts, across))])


def power_law(draw: Draw, shape: Sequence[int], entries: int, skew: int, symmetric: bool) -> Ints:
    """Return a recursive graph (R-MAT) of any order, where few coordinates have many entries and many have
    few.

    In each rank every bit of a coordinate is 0 with a probability of `skew` percent, independently; then
    coordinates are shuffled. If symmetric, there are `entries` points below the diagonal and their mirror
    images, and none on it.
    """
    points = prod(shape)
    room = shape[0] * (shape[0] - 1) // 2 if symmetric else points
    if entries > room or points >= 2**62:
        remedy = "ask for fewer entries" if entries > room else "ask for a smaller shape"
        raise Refused(f"{entries:,} entries in {points:,} points", remedy, code="too-large")
    found = np.zeros(0, dtype=np.int64)
    for _ in range(_ROUNDS):
        found = np.concatenate(
            [found, _skewed(draw, shape, 2 * (entries - found.size) + 64, skew, symmetric)]
        )
        found = found[np.sort(np.unique(found, return_index=True)[1])][:entries]
        if found.size == entries:
            break
    else:
        raise Refused(
            f"{entries:,} entries with a skew of {skew}: the heavy places are full before they are drawn",
            "ask for fewer entries or for less skew",
            code="too-large",
        )
    coords = np.array(np.unravel_index(found, shape), dtype=np.int64)
    orders = [
        np.argsort(draw.integers(0, 2**62, size), kind="stable") for size in shape[: 1 if symmetric else None]
    ]
    coords = np.stack([orders[0 if symmetric else rank][row] for rank, row in enumerate(coords)])
    return np.concatenate([coords, coords[::-1]], axis=1) if symmetric else coords


def _skewed(draw: Draw, shape: Sequence[int], number: int, skew: int, symmetric: bool) -> Ints:
    """Return row-major numbers of points inside the shape, in the order of drawing."""
    coords = np.zeros((len(shape), number), dtype=np.int64)
    for rank, size in enumerate(shape):
        for _ in range((size - 1).bit_length()):
            coords[rank] = 2 * coords[rank] + ~_chance(draw, number, skew)
    inside = (coords < np.array(shape)[:, None]).all(axis=0)
    if symmetric:
        inside &= coords[0] != coords[1]
        coords = np.stack([coords.max(axis=0), coords.min(axis=0)])
    numbers: Ints = np.ravel_multi_index(tuple(coords[:, inside]), tuple(shape)).astype(np.int64)
    return numbers


# Neighbours to the right and below; the others follow, because links have both directions.
_NEIGHBOURS = ((0, 1), (1, 0), (1, 1), (1, -1))


def stencil(draw: Draw, height: int, width: int, points: int, percent: int) -> Ints:
    """Return the cells of a grid, numbered row by row, with their neighbours: 5, 7 (one diagonal) or 9 points
    including the cell.

    Each link exists with this probability, in both directions.
    """
    down, across = (a.ravel() for a in np.meshgrid(np.arange(height), np.arange(width), indexing="ij"))
    cell = np.arange(height * width)
    parts = [np.stack([cell, cell])]
    for below, right in _NEIGHBOURS[: (points - 1) // 2]:
        y, x = down + below, across + right
        there = (y < height) & (x >= 0) & (x < width) & _chance(draw, cell.size, percent)
        link = np.stack([cell[there], (y * width + x)[there]])
        parts += [link, link[::-1]]
    return np.concatenate(parts, axis=1)


def incidence(
    draw: Draw, rows: int, columns: int, least: int, most: int, window: int, repeat: int, empty: int
) -> Ints:
    """Return rows of `least` to `most` entries, as of hyperedges or of relations between generators.

    The entries of a row lie in a window of columns that moves down with the rows. A set is repeated in up to
    `repeat` rows; each row is left empty with a probability of `empty` percent.
    """
    result: list[tuple[int, int]] = []
    row = 0
    while row < rows:
        start = min(row * columns // rows, columns - window)
        number = int(draw.integers(least, most + 1))
        inside = np.argsort(draw.integers(0, 2**62, window), kind="stable")[:number]
        for _ in range(int(draw.integers(1, repeat + 1))):
            if row < rows and not _chance(draw, 1, empty)[0]:
                result += [(row, start + int(column)) for column in inside]
            row += 1
    return np.array(result, dtype=np.int64).reshape(-1, 2).T


def staircase(draw: Draw, stages: int, rows: int, columns: int, percent: int, coupling: int) -> Ints:
    """Return the constraints of a staged linear programme with stages of `rows` x `columns`, each coupled to
    the previous one.

    Points in a stage's own columns have an entry with this probability, those in the columns of the previous
    stage with half of it; every row has at least one. `coupling` rows at the end cover all columns with four
    times the probability.
    """
    height, width = stages * rows + coupling, stages * columns
    row, column = (a.ravel() for a in np.meshgrid(np.arange(height), np.arange(width), indexing="ij"))
    behind = row // rows - column // columns
    chance = np.select(
        [row >= stages * rows, behind == 0, behind == 1], [8 * percent, 2 * percent, percent], 0
    )
    kept = draw.integers(0, 200, row.size) < chance
    last = np.arange(height)
    first = np.stack(
        [last, np.minimum(last // rows, stages - 1) * columns + draw.integers(0, columns, height)]
    )
    return np.concatenate([np.stack([row[kept], column[kept]]), first], axis=1)


def _chance(draw: Draw, number: int, percent: int) -> np.ndarray[tuple[int], np.dtype[np.bool_]]:
    return draw.integers(0, 100, number) < percent
