"""Generate boundary maps of simplicial complexes: mathematical objects that are the same on every machine.

A complex is given by its vertices and by the pairs of vertices that are compatible; its simplices are all
sets of pairwise compatible vertices. Vertices are numbered in the order in which they first occur in the
lexicographic list of the largest simplices. Rows are the simplices of one dimension in lexicographic order of
these numbers, columns their faces in reverse order. The entry of a simplex and the face without its vertex i
is (-1)^i.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import combinations, product
from math import comb, perm

import numpy as np

from polymodel.errors import Refused
from polymodel.sparse.tensor import Ints

Pair = tuple[int, int]
Entries = tuple[tuple[int, int], Ints, Ints]
# Simplices of a complex that are listed; each is a row.
MOST_SIMPLICES = 10**6


def chessboard(rows: int, columns: int, dimension: int) -> Entries:
    """Return the boundary map of placements of rooks that do not attack each other; vertices are the squares
    of a board.

    The largest simplices have a rook in every column (there are no more columns than rows). They are listed
    by the row of the first column's rook, then by that of the second.
    """
    _check_size(comb(columns, dimension + 1) * perm(rows, dimension + 1))
    squares = sorted(product(range(columns), range(rows)), key=lambda s: (_rooks(s, rows, columns), s))
    return _boundary(_cliques(squares, _apart, dimension + 1))


def matching(points: int, dimension: int) -> Entries:
    """Return the boundary map of sets of disjoint pairs of points; vertices are the pairs."""
    _check_size(comb(points, 2 * (dimension + 1)) * comb(points, 2) ** dimension)
    pairs = sorted(combinations(range(points), 2), key=lambda p: (_pairing(p, points), p))
    return _boundary(_cliques(pairs, lambda a, b: not set(a) & set(b), dimension + 1))


def simplex(points: int, dimension: int) -> Entries:
    """Return the boundary map of all sets of points."""
    _check_size(comb(points, dimension + 1))
    return _boundary(list(combinations(range(points), dimension + 1)))


def _check_size(simplices: int) -> None:
    if simplices > MOST_SIMPLICES:
        message = f"up to {simplices:,} simplices; at most {MOST_SIMPLICES:,} are listed"
        raise Refused(message, "ask for a smaller complex, or for a lower dimension", code="too-large")


def _apart(a: Pair, b: Pair) -> bool:
    return a[0] != b[0] and a[1] != b[1]


def _rooks(square: Pair, rows: int, columns: int) -> tuple[int, ...]:
    """Return the first placement with a rook on this square: every other column takes the first free row."""
    free = iter(row for row in range(rows) if row != square[1])
    return tuple(square[1] if column == square[0] else next(free) for column in range(columns))


def _pairing(pair: Pair, points: int) -> tuple[Pair, ...]:
    """Return the first largest set of pairs that contains this one: the other points are paired in order."""
    others = [p for p in range(points) if p not in pair]
    return tuple(sorted([pair, *zip(others[::2], others[1::2], strict=False)]))


def _cliques(vertices: Sequence[Pair], together: object, size: int) -> list[tuple[int, ...]]:
    """Return the sets of `size` pairwise compatible vertices, in lexicographic order."""
    assert callable(together)
    later = [
        {b for b in range(a + 1, len(vertices)) if together(vertices[a], vertices[b])}
        for a in range(len(vertices))
    ]

    def extended(chosen: tuple[int, ...], possible: set[int]) -> Iterator[tuple[int, ...]]:
        if len(chosen) == size:
            yield chosen
            return
        for vertex in sorted(possible):
            yield from extended((*chosen, vertex), possible & later[vertex])

    return list(extended((), set(range(len(vertices)))))


def _boundary(simplices: Sequence[tuple[int, ...]]) -> Entries:
    """Return the boundary map of all simplices of one dimension."""
    size = len(simplices[0]) if simplices else 0
    faces = sorted({s[:i] + s[i + 1 :] for s in simplices for i in range(size)})
    number = {face: len(faces) - 1 - n for n, face in enumerate(faces)}
    coords = [(row, number[s[:i] + s[i + 1 :]]) for row, s in enumerate(simplices) for i in range(size)]
    signs = [(-1) ** i for _ in simplices for i in range(size)]
    result = np.array(coords, dtype=np.int64).reshape(-1, 2).T
    return (max(1, len(simplices)), max(1, len(faces))), result, np.array(signs, dtype=np.int64)
