"""Counts and steps of small sets against plain enumeration."""

from __future__ import annotations

import itertools
from collections import Counter

import islpy as isl
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from polymodel.arithmetic import Affine, Constraint
from polymodel.polyhedra import needs, sets, steps
from tests.faults import refused

Point = tuple[int, ...]


def tiles(extent: int, tile: int, halo: int) -> tuple[str, set[Point]]:
    """`[k, x]`: tile k of `tile` rows of `extent`, with a window of `halo`; as text and as points."""
    text = (
        f"{{ [c0, x0] : exists v0, v1 : 0 <= v0 < {extent} and 0 <= v1 < {halo} and x0 = v0 + v1 "
        f"and {tile}*c0 <= v0 < {tile}*c0 + {tile} }}"
    )
    return text, {(v // tile, v + r) for v in range(extent) for r in range(halo)}


@settings(max_examples=60, deadline=None)
@given(st.integers(1, 12), st.integers(1, 5), st.integers(1, 4))
def test_counts_agree_with_points(extent: int, tile: int, halo: int) -> None:
    text, points = tiles(extent, tile, halo)
    found = sets.parse_set(text)
    assert sets.size(found) == len(points)
    by_tile = sets.count_by(found, 1)
    assert list(by_tile) == [sum(p[0] == k for p in points) for k in range(max(p[0] for p in points) + 1)]


@settings(max_examples=60, deadline=None)
@given(st.integers(1, 12), st.integers(1, 5), st.integers(1, 4))
def test_kept_is_what_the_preceding_tile_held(extent: int, tile: int, halo: int) -> None:
    text, points = tiles(extent, tile, halo)
    candidates, stay = steps.resident_at_neighbor(text, text, 0, 1, ("at", 0), False)
    expected = {(k, x) for k, x in points if (k - 1, x) in points}
    assert sets.size(stay) == len(expected)
    assert sets.size(candidates) == sum(k > 0 for k, _ in points)
    _, forward = steps.resident_at_neighbor(text, text, 0, 1, ("at", 0), True)
    assert sets.size(forward) == len({(k, x) for k, x in points if (k + 1, x) in points})


def test_count_by_two_axes_of_a_triangle() -> None:
    found = sets.count_by(isl.Set("{ [a, b, x] : 0 <= a < 3 and 0 <= b <= a and 0 <= x <= a + b }"), 2)
    expected = np.zeros((3, 3), dtype=object)
    for a, b in itertools.product(range(3), range(3)):
        expected[a, b] = a + b + 1 if b <= a else 0
    assert (found == expected).all()


def test_bounding_box_of_a_constrained_space_and_of_none() -> None:
    m, n = Affine.variable("m"), Affine.variable("n")
    rules = (Constraint(m), Constraint(n - m), Constraint(Affine(((("n", -1)),), 7)), Constraint(m, "mod", 3))
    assert sets.bounding_box(sets.set_from_constraints("E", ("m", "n"), rules)) == ((0, 6), (0, 7))
    assert sets.bounding_box(sets.set_from_constraints("E", ("m", "n"), rules[:1])) is None
    with pytest.raises(ValueError, match="unknown variables"):
        sets.set_from_constraints("E", ("m",), rules)


def test_too_many_single_points_are_refused_not_listed() -> None:
    with refused("too-large"):
        sets.points_of(isl.Set("{ [a, b] : 0 <= a, b < 1000 }"))


def test_a_loop_of_one_iteration_never_moves() -> None:
    text, _ = tiles(4, 4, 1)
    assert not steps.moves(text, 0, 1, 0)
    assert not steps.depends(text, 0, 1, 0)


def nested(
    extents: tuple[int, int], tiles: tuple[tuple[int, ...], tuple[int, ...]]
) -> tuple[str, set[Point]]:
    """`[counters of p..., counters of r..., x]` with x = p + r, both tiled several times."""
    points: set[Point] = set()
    for values in itertools.product(*map(range, extents)):
        counters: list[int] = []
        for value, sizes in zip(values, tiles, strict=True):
            for size in sizes:
                counters.append(value // size)
                value %= size
        points.add((*counters, sum(values)))
    bounds, names = [], []
    for v, (extent, sizes) in enumerate(zip(extents, tiles, strict=True)):
        bounds.append(f"0 <= v{v} < {extent}")
        start = "0"
        for size in sizes:
            names.append(f"c{len(names)}")
            start = f"{start} + {size}*{names[-1]}"
            bounds.append(f"{start} <= v{v} < {start} + {size} and {names[-1]} >= 0")
    body = " and ".join(bounds)
    return f"{{ [{', '.join(names)}, x] : exists v0, v1 : x = v0 + v1 and {body} }}", points


@settings(max_examples=40, deadline=None)
@given(st.integers(2, 12), st.integers(2, 5), st.integers(1, 6), st.integers(1, 3))
def test_scanned_and_counted_sizes_agree(p: int, r: int, outer: int, inner: int) -> None:
    text, points = nested((p, r), ((outer, min(inner, outer)), (inner,)))
    found = sets.parse_set(text)
    assert sets.size(found) == len(points)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sets, "_SCANNED", 0)
        assert sets.size(found) == len(points)


def test_imperfect_tiles_of_three_levels_are_scanned() -> None:
    """A few hundred points; barvinok takes a quarter of a minute for them."""
    text, points = nested((57, 5), ((23, 7, 3), (4, 3, 2)))
    assert sets.size(sets.parse_set(text)) == len(points)


@settings(max_examples=25, deadline=None)
@given(st.integers(2, 9), st.integers(2, 5), st.integers(1, 6), st.integers(1, 3))
def test_scanned_and_counted_fibres_agree(p: int, r: int, outer: int, inner: int) -> None:
    text, points = nested((p, r), ((outer, min(inner, outer)), (inner,)))
    wanted = Counter(point[:-1] for point in points)
    for dims in (1, 99):
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(sets, "_VERY_MANY", dims)
            needs.sizes.cache_clear()
            found = needs.sizes(text, 3)
        assert {point: size for domain, size in found for point in sets.points_of(domain)} == wanted
