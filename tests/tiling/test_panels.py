"""Panels of strips: the unequal ones are the best of all runs of units; never more tiles than strips."""

from __future__ import annotations

from itertools import combinations, pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from polymodel.sparse.files import read_tensor
from polymodel.tiling.fits.fit import Op, Words
from polymodel.tiling.plane.operands import pattern_of
from polymodel.tiling.tilers import panels as panels_module
from polymodel.tiling.tilers.panels import panels
from polymodel.tiling.tilers.strips import columns, strips
from tests.tiling import slow
from tests.tiling.test_strips import FITS, MATRICES, is_partition, operands


def strips_between(
    a: np.ndarray, b: np.ndarray, edges: tuple[int, ...], fit: tuple[str, int], op: str
) -> int:
    """Tiles with entries of the strips of rows of each panel of columns, one after the other."""
    found = 0
    for start, stop in pairwise(edges):
        one, two = a[:, start:stop], b[:, start:stop]
        found += slow.nonempty(one, two, slow.strips(one, two, fit, op))
    return found


@given(
    st.tuples(st.integers(2, 12), st.integers(2, 12)),
    st.floats(0.2, 1.5),
    st.integers(0, 10**6),
    st.booleans(),
    st.sampled_from(["add", "multiply"]),
    st.integers(0, 6),
)
@settings(max_examples=100, deadline=None)
def test_unequal_panels_are_the_best_of_all(
    shape: tuple[int, int], share: float, seed: int, by_columns: bool, op: Op, room: int
) -> None:
    a, b, pattern = operands(*shape, share, seed)
    heaviest = int((a + b.astype(int)).max()) if pattern.points else 1
    # Lines that must be cut across are counted by their load: lines that fit leave nothing to estimate.
    lines = a.sum(axis=int(not by_columns)) + b.sum(axis=int(not by_columns))
    capacity = max(heaviest, int(lines.max())) + room
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(panels_module, "_UNITS", (1,))
        found = panels_module.unequal_edges(pattern, op, FITS["elements"][0](capacity), by_columns)
    if by_columns:
        a, b = a.T, b.T
    weight = a.sum() + b.sum() if op == "add" else max(a.sum(), b.sum())
    if weight // capacity < 2:
        assert found is None
        return
    assert found is not None
    over = np.nonzero(a | b)[1]
    points = (a + b.astype(int))[np.nonzero(a | b)]
    units = panels_module._units(over, points, int(weight // capacity), a.shape[1])
    inner = units[1:-1].tolist()
    ways = [(0, *chosen, a.shape[1]) for n in range(len(inner) + 1) for chosen in combinations(inner, n)]
    fit = ("elements", capacity)
    fewest = min(strips_between(a, b, way, fit, op) for way in ways)
    assert strips_between(a, b, tuple(found.tolist()), fit, op) == fewest


@given(
    st.tuples(st.integers(1, 25), st.integers(1, 25)),
    st.floats(0, 1.5),
    st.integers(0, 10**6),
    st.sampled_from(sorted(FITS)),
    st.sampled_from(["add", "multiply"]),
    st.integers(0, 30),
)
@settings(max_examples=100, deadline=None)
def test_panels_are_no_more_than_strips(
    shape: tuple[int, int], share: float, seed: int, kind: str, op: Op, room: int
) -> None:
    _, _, pattern = operands(*shape, share, seed)
    rule, _, least = FITS[kind]
    fit = rule(least + room)
    found = panels(pattern, op, fit)
    is_partition(found, pattern)
    assert found.tiles <= strips(pattern, op, fit).tiles
    if kind == "elements":
        assert found.tiles <= columns(pattern, op, fit).tiles


def test_panels_halve_the_waste_of_heavy_rows() -> None:
    """Rows of 80 entries and more in tiles of 128: strips waste a third, panels less than a twentieth."""
    pattern = pattern_of(read_tensor(MATRICES / "frame.mtx.gz"))
    fit = FITS["elements"][0](128)
    assert strips(pattern, "add", fit).tiles == 684
    assert panels(pattern, "add", fit).tiles <= 1.05 * 492
    assert panels(pattern, "add", Words(512)).tiles < 0.9 * strips(pattern, "add", Words(512)).tiles
