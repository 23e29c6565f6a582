"""What windows share over a step of a loop, against sets; on integers, arrays and SymPy."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pytest
import sympy
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from polymodel.analysis.symbolic.atoms import INTEGERS, ArrayOps, ChainLevel, Role
from polymodel.analysis.symbolic.pair_atoms import Side, StepOverlap
from polymodel.analysis.symbolic.render import Renderer
from tests.analysis.test_agreement import SETTINGS

Span = tuple[int, int]
SHORT: tuple[tuple[Role, ...], ...] = (("pair",), ("wrap",), ("pair", "wrap"), ("each", "pair"))
LONG: tuple[tuple[Role, ...], ...] = (
    ("each", "pair", "wrap"),
    ("each", "wrap", "wrap"),
    ("first", "wrap"),
    ("first", "to second", "wrap"),
    ("last", "wrap"),
    ("first", "to last", "wrap"),
    ("to third",),
)
ONTO = {"to second": 1, "to third": 2, "to last": 1}  # the steps that there must be


@dataclass(frozen=True)
class Stamp:
    """Before and after a step: a variable's tile of one instance, and that of the first instance."""

    mine: tuple[Span, Span]
    largest: tuple[Span, Span]


def _tile(span: Span, tile: int, counter: int) -> Span:
    low = min(span[0] + counter * tile, span[1])
    return low, min(low + tile, span[1])


def _trips(span: Span, tile: int) -> int:
    return -(-(span[1] - span[0]) // tile)


def _stamps(levels: tuple[ChainLevel, ...], s: Stamp) -> Iterator[tuple[Span, Span]]:
    """All pairs of tiles, counter by counter: visits are those of the first instance."""
    if not levels:
        yield s.mine
        return
    level, rest = levels[0], levels[1:]
    tile = level.tile
    assert isinstance(tile, int)

    def at(*counters: int) -> Stamp:
        lead = (0, 0) if level.spatial else counters
        mine, largest = (
            tuple(_tile(x, tile, k) for x, k in zip(spans, ks, strict=True))
            for spans, ks in ((s.mine, counters), (s.largest, lead))
        )
        return Stamp(mine, largest)  # type: ignore[arg-type]  # two counters make pairs

    trips = [_trips(x, tile) for x in s.largest]
    if level.role == "pair":
        chosen = [(k, k + 1) for k in range(trips[0] - 1)]
    elif level.role == "wrap":
        chosen = [(trips[0] - 1, 0)]
    elif level.role == "last":
        chosen = [(trips[0] - 1, trips[1] - 1)]
    elif level.role in ONTO:
        after = trips[0] - 1 if level.role == "to last" else ONTO[level.role]
        chosen = [(after - 1, after)]
    elif level.role == "first":
        chosen = [(0, 0)]
    else:
        chosen = [(k, k) for k in range(max(trips))]
    for counters in chosen:
        yield from _stamps(rest, at(*counters))


def counted(meet: StepOverlap) -> int:
    sides = []
    for side in (meet.p, meet.r):
        assert isinstance(side.extent, int)
        whole = ((0, side.extent), (0, side.extent))
        sides.append(list(_stamps(side.levels, Stamp(whole, whole))))
    total = 0
    for p in sides[0]:
        for r in sides[1]:
            before, after = (
                {meet.a * i + meet.b * j for i in range(*p[k]) for j in range(*r[k])} for k in (0, 1)
            )
            total += len(before & after)
    return total


@st.composite
def sides(draw: st.DrawFn, long: bool = True) -> Side:
    """Loops that step or wrap, and perhaps one of instances, whose tiles shrink."""
    extent = draw(st.integers(1, 12))
    roles = draw(st.sampled_from((*SHORT, *LONG) if long else SHORT))
    levels = []
    spread = draw(st.integers(0, 2 * len(roles))) if long else -1
    size = extent
    for place, role in enumerate(roles):
        if spread == place and role != "pair":
            size = draw(st.integers(1, size))
            levels.append(ChainLevel(size, draw(st.sampled_from(["each", "first"])), True))
        enclosing, size = size, draw(st.integers(1, size))
        if role in ONTO:
            most = (enclosing - 1) // ONTO[role]
            assume(most)
            size = min(size, most)
        levels.append(ChainLevel(size, role))
    if spread == len(roles):
        levels.append(ChainLevel(draw(st.integers(1, size)), "each", True))
    return Side(extent, tuple(levels))


RATIOS = st.sampled_from([(1, 1), (2, 1), (1, 3), (2, 3), (5, 2)])


@settings(max_examples=250, **SETTINGS)
@given(sides(), sides(), RATIOS)
def test_common_windows_are_those_of_sets(p: Side, r: Side, ratio: tuple[int, int]) -> None:
    meet = StepOverlap(p, r, *ratio)
    assert meet.value(INTEGERS, {}) == counted(meet)
    assert replace(meet, any=True).value(INTEGERS, {}) == int(counted(meet) > 0)


def _named(meet: StepOverlap) -> tuple[StepOverlap, dict[str, int], list[tuple[str, ...]]]:
    values: dict[str, int] = {}
    chains: list[tuple[str, ...]] = []

    def of(side: Side, letter: str) -> Side:
        names = [f"{letter}{i}" for i in range(len(side.sizes))]
        values.update(zip(names, side.sizes, strict=True))  # type: ignore[arg-type]  # numbers in these examples
        chains.append(tuple(names))
        loops = zip(names[1:], side.levels, strict=True)
        return Side(names[0], tuple(ChainLevel(n, lv.role, lv.spatial) for n, lv in loops))

    return StepOverlap(of(meet.p, "p"), of(meet.r, "r"), meet.a, meet.b), values, chains


@pytest.mark.slow
@settings(max_examples=8, **SETTINGS)
@given(sides(long=False), sides(long=False), st.sampled_from([(1, 1), (2, 1), (1, 2)]))
def test_arrays_and_expressions_give_the_same(p: Side, r: Side, ratio: tuple[int, int]) -> None:
    meet = StepOverlap(p, r, *ratio)
    open_, values, chains = _named(meet)
    assert open_.symbols == set(values)
    wanted = counted(meet)
    arrays: dict[str, Any] = {n: np.array([v, v]) for n, v in values.items()}
    assert list(np.broadcast_to(open_.value(ArrayOps(), arrays), 2)) == [wanted, wanted]
    renderer = Renderer(chains)
    expression = sympy.sympify(open_.value(renderer.ops, renderer.symbols))
    assert expression.subs({renderer.symbols[n]: v for n, v in values.items()}) == wanted
