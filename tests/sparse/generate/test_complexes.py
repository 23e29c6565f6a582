"""Boundary maps against their definition: lists of all largest simplices, and boundaries of boundaries."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from itertools import combinations, permutations
from math import comb, perm

import numpy as np
import pytest

import polymodel as pm
from tests.faults import faults, refused

Pair = tuple[int, int]


def placements(rows: int, columns: int) -> Iterator[list[Pair]]:
    for chosen in permutations(range(rows), columns):
        yield list(enumerate(chosen))


def pairings(points: list[int], loose: bool) -> Iterator[list[Pair]]:
    """Every largest set of pairs, the first point paired first."""
    if len(points) < 2:
        yield []
        return
    first, *others = points
    for other in others:
        for more in pairings([p for p in others if p != other], loose):
            yield [(first, other), *more]
    if loose:
        yield from pairings(others, False)


def literal(facets: Iterable[list[Pair]], apart: Callable[[Pair, Pair], bool]) -> list[Pair]:
    """Pairs of vertices, numbered as the facets in lexicographic order first meet them."""
    number: dict[Pair, int] = {}
    for facet in sorted(facets):
        for vertex in facet:
            number.setdefault(vertex, len(number))
    vertices = list(number)
    return [(a, b) for a, b in combinations(range(len(vertices)), 2) if apart(vertices[a], vertices[b])]


def pairs(found: pm.SparseTensor) -> list[Pair]:
    """The vertices of each row, numbered from the last column."""
    return [tuple(sorted(found.shape[1] - 1 - c)) for c in found.coords[1].reshape(-1, 2)]  # type: ignore[misc]  # two vertices a row


@pytest.mark.parametrize(("rows", "columns"), [(2, 2), (3, 2), (4, 3), (4, 4), (7, 6)])
def test_a_chessboard_is_numbered_by_its_placements(rows: int, columns: int) -> None:
    found = pm.generate_tensor("chessboard", rows=rows, columns=columns)
    assert found.shape == (comb(columns, 2) * perm(rows, 2), rows * columns)
    wanted = literal(placements(rows, columns), lambda a, b: a[0] != b[0] and a[1] != b[1])
    assert pairs(found) == wanted


@pytest.mark.parametrize("points", [4, 5, 6, 7, 9])
def test_a_matching_complex_is_numbered_by_its_matchings(points: int) -> None:
    found = pm.generate_tensor("matching", points=points)
    facets = pairings(list(range(points)), points % 2 == 1)
    assert pairs(found) == literal(facets, lambda a, b: not set(a) & set(b))


def test_a_simplex_has_all_pairs() -> None:
    assert pairs(pm.generate_tensor("simplex", points=21)) == list(combinations(range(21), 2))


@pytest.mark.parametrize(
    ("kind", "options"),
    [("chessboard", {"rows": 5, "columns": 4}), ("matching", {"points": 8}), ("simplex", {"points": 7})],
)
def test_the_boundary_of_a_boundary_is_nothing(kind: str, options: dict[str, int]) -> None:
    one, two, three = (pm.generate_tensor(kind, dimension=d, **options).to_dense() for d in (1, 2, 3))
    assert not (two[:, ::-1] @ one).any()  # columns are the last face first, rows the first
    assert not (three[:, ::-1] @ two).any()
    assert (np.abs(three).sum(axis=1) == 4).all()
    assert (one.sum(axis=1) == 0).all()


def test_a_seed_changes_nothing() -> None:
    one, two = (pm.generate_tensor("matching", seed, points=7) for seed in (0, 1))
    assert (one.coords == two.coords).all()
    assert (one.values == two.values).all()


@pytest.mark.parametrize(
    ("kind", "options", "code", "at"),
    [
        ("chessboard", {"rows": 3, "columns": 4}, "out-of-range", "columns"),
        ("chessboard", {"rows": 3, "columns": 3, "dimension": 3}, "out-of-range", "dimension"),
        ("matching", {"points": 7, "dimension": 3}, "out-of-range", "dimension"),
        ("simplex", {"points": 3, "dimension": 3}, "out-of-range", "dimension"),
    ],
)
def test_simplices_that_do_not_exist(kind: str, options: dict[str, int], code: str, at: str) -> None:
    with faults(code, at=at):
        pm.generate_tensor(kind, **options)


def test_too_many_simplices_are_refused_before_they_are_made() -> None:
    for kind, options in (
        ("chessboard", {"rows": 300, "columns": 200, "dimension": 20}),
        ("matching", {"points": 5000}),
        ("simplex", {"points": 10**9, "dimension": 3}),
    ):
        with refused("too-large", "1,000,000"):
            pm.generate_tensor(kind, **options)
