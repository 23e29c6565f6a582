"""Tiles counted by classes = the same tiles listed point by point, on drawn nests."""

from __future__ import annotations

from collections import Counter
from itertools import product
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from polymodel.polyhedra import nests
from polymodel.polyhedra.nests import LinearInequality, LoopCut, Nest
from polymodel.polyhedra.sets import count_of

SETTINGS: dict[str, Any] = {
    "deadline": None,
    "suppress_health_check": [HealthCheck.too_slow, HealthCheck.data_too_large],
}


@st.composite
def drawn(draw: st.DrawFn) -> Nest:
    """A small nest of one to three variables, with bounds and ranks."""
    width = draw(st.sampled_from([1, 2, 2, 3]))
    extents = tuple(draw(st.integers(1, 4 if width == 3 else 7)) for _ in range(width))
    room, loops = list(extents), []
    for _ in range(draw(st.integers(0, 4))):
        v = draw(st.integers(0, width - 1))
        tile = draw(st.integers(1, room[v]))
        first = draw(st.one_of(st.just(tile), st.integers(1, room[v])))
        loops.append(LoopCut(v, tile, first))
        room[v] = max(tile, first)
    small = st.sampled_from([-1, 0, 1, 1] if width == 3 else [-2, -1, 0, 1, 1, 2])
    rows = st.tuples(*[small] * width)
    bounds = [LinearInequality(draw(rows), draw(st.integers(-3, 6))) for _ in range(draw(st.integers(0, 2)))]
    ranks = tuple(tuple(abs(c) for c in draw(rows)) for _ in range(draw(st.integers(0, 2))))
    order = draw(st.permutations(range(len(loops))))  # of the counters
    path = tuple(sorted(range(len(loops)), key=lambda k: order[k]))
    kept = tuple(b for b in bounds if any(b.coefficients))
    return Nest(extents, tuple(loops[i] for i in order), path, kept, ranks)


def touched(nest: Nest) -> set[tuple[int, ...]]:
    """All (counters, elements), point by point."""
    found = set()
    for point in product(*(range(e) for e in nest.extents)):
        if any(_value(b.coefficients, point) + b.constant < 0 for b in nest.bounds):
            continue
        base, counters = [0] * len(point), [0] * len(nest.loops)
        for i in nest.path:
            cut = nest.loops[i]
            inside = point[cut.variable] - base[cut.variable]
            if inside >= cut.first:
                counters[i] = 1 + (inside - cut.first) // cut.tile
                base[cut.variable] += cut.first + (counters[i] - 1) * cut.tile
        found.add((*counters, *(_value(r, point) for r in nest.ranks)))
    return found


def _value(row: tuple[int, ...], point: tuple[int, ...]) -> int:
    return sum(c * x for c, x in zip(row, point, strict=True))


@pytest.mark.parametrize("few", [0, nests.FEW])
@settings(max_examples=60, **SETTINGS)
@given(drawn(), st.data())
def test_classes_count_what_the_points_are(few: int, nest: Nest, data: st.DataObject) -> None:
    rows, loops = touched(nest), len(nest.loops)
    kept = tuple(i for i in range(loops) if data.draw(st.booleans()))
    shown = tuple(i for i in kept if data.draw(st.booleans()))
    elements = data.draw(st.booleans())
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(nests, "FEW", few)  # 0: all are counted with parameters
        found = nests.tally(nest, shown, kept, elements)
        widest = nests.widest(nest)
    different = {(*(r[i] for i in kept), *(r[loops:] if elements else ())) for r in rows}
    expected = Counter(tuple(r[kept.index(i)] for i in shown) for r in different)
    if found is not None:
        places = np.argwhere(found != 0) if shown else np.zeros((int(found != 0), 0), int)
        assert {tuple(p): int(found[tuple(p)]) for p in places.tolist()} == expected
    assert widest == max(Counter(r[:loops] for r in rows).values(), default=0)


def test_a_count_with_parameters_is_the_count_at_each_value() -> None:
    """Halves of floors, edges of pieces, and no points at all."""
    text = (
        "[e0, e1, k0] -> { [x] : exists v0, v1 : 0 <= v0 < e0 and 0 <= v1 < e1 "
        "and x = 3v0 + 2v1 and v0 - v1 + k0 >= 0 }"
    )
    points = np.array(list(product(range(5), range(5), range(-4, 5))))
    expected = [
        len({3 * a + 2 * b for a in range(e0) for b in range(e1) if a - b + k0 >= 0}) for e0, e1, k0 in points
    ]
    assert count_of(text).at(points).tolist() == expected


def test_counts_beyond_64_bits_are_whole() -> None:
    count = count_of("[a, b] -> { [x, y] : 0 <= x < a and 0 <= y < b }")
    assert count.at(np.array([[2**40, 2**41]])).tolist() == [2**81]


def test_a_rank_with_a_constant_index_alone_is_countable() -> None:
    """Its nest has no variable at all: `A[M=0]`."""
    assert Nest(extents=(), loops=(), path=(), bounds=(), ranks=((),)).countable
