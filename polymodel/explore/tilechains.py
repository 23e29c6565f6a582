"""Tile sizes of one rank variable at every level of a template.

Of all chains t1 >= t2 >= ... only few can be best, whatever the other variables do. A node whose tensor the
variable does not index wants a large tile (fewer visits), and may have that of the node above it at no
cost to any other; a node whose tensor it indexes wants a small one (less space), and may have that of the
node below. So sizes are free only where a node of the second kind is followed by one of the first. Windows
(`p + r`) want both, and stay free. That holds for sizes that do not divide as well: leaving out a level
of splitting never makes more tiles.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import product
from typing import Any

import numpy as np

from polymodel.errors import Refused
from polymodel.explore.space import EinsumSpace, Operand
from polymodel.explore.templates import Template

Array = Any
MOST_CHAINS = 2_000_000


@dataclass(frozen=True)
class TileChains:
    """The candidates of one rank variable. `tiles` [levels, n]: tile sizes below the loops above each level;
    `spread` [fanouts, n]: instances the variable is spread over; `even`: every size divides."""

    extent: int
    tiles: Array
    spread: Array
    even: bool

    @property
    def count(self) -> int:
        return int(self.tiles.shape[1])


@lru_cache(maxsize=4096)
def divisors(n: int) -> tuple[int, ...]:
    """Every divisor, ascending."""
    small = [d for d in range(1, math.isqrt(n) + 1) if n % d == 0]
    return tuple(sorted({*small, *(n // d for d in small)}))


def tile_chains(space: EinsumSpace, template: Template, variable: int, sizes: str) -> TileChains:
    """The chains of one variable that can be best. Raises Refused where there are too many."""
    extent = space.extents[variable]
    depth = template.depth
    positions = [_after(template, f.below) for f in space.fanouts]
    kinds = _kinds(space, template, variable)
    pattern, symbols = _pattern(kinds)
    tiles: list[list[int]] = []
    spreads: list[tuple[int, ...]] = []
    for spread in _spreads(space, template, variable):
        rest = extent // math.prod(spread)
        kind = sizes if rest == extent else "divisors"  # what is spread is split evenly
        scale = [
            math.prod(s for s, p in zip(spread, positions, strict=True) if p >= level)
            for level in range(depth + 1 + len(kinds))
        ]
        for fixed in _prefix_sizes(template, variable, rest, kind):
            for free in _descending(fixed[-1], symbols, kind):
                branch = [fixed[-1] if g == -1 else 1 if g == -2 else free[g] for g in pattern]
                tiles.append([w * s for w, s in zip((*fixed, *branch), scale, strict=True)])
                spreads.append(spread)
                if len(tiles) > MOST_CHAINS:
                    what = f"more than {MOST_CHAINS:,} chains of tile sizes of {space.variables[variable]}"
                    raise Refused(f"{space.name}: {what}", "search divisors only (sizes: divisors)")
    table = np.array(tiles, dtype=np.int64).reshape(len(tiles), -1).T
    wide = np.array(spreads, dtype=np.int64).reshape(len(tiles), len(space.fanouts)).T
    return TileChains(extent, table, wide, sizes == "divisors")


def _after(template: Template, below: int) -> int:
    """The last level whose node stands above a fanout with that many memories above it."""
    first = 1 if template.top else 0
    return max((n.level for n in template.nodes if n.memory < below), default=first) if below else -1


def _kinds(space: EinsumSpace, template: Template, variable: int) -> list[str]:
    """What each level of the branch wants of the variable: `small`, `large` or both (`free`).

    The region above wants to give a small tile, the region below to get a large one.
    """
    found = ["small"] if template.top else []
    found += [_kind(space.operands[n.operand], variable) for n in template.branch]
    return [*found, "large"] if template.bottom else found


def _kind(o: Operand, variable: int) -> str:
    return "small" if variable in o.alone else "free" if variable in o.windowed else "large"


def _pattern(kinds: Sequence[str]) -> tuple[list[int], int]:
    """Per node the number of its free size (-1: the size above the branch, -2: 1), and how many are free."""
    pattern = [-2] * len(kinds)
    waiting: list[int] = []
    above, free = -1, 0
    for i, kind in enumerate(kinds):
        if kind == "small":
            waiting.append(i)
            continue
        if kind == "free" or waiting:
            for j in (*waiting, i):
                pattern[j] = free
            above, free, waiting = free, free + 1, []
        else:
            pattern[i] = above
    return pattern, free


def _spreads(space: EinsumSpace, template: Template, variable: int) -> Iterator[tuple[int, ...]]:
    """How the variable may be spread over the fanouts."""
    for spread in product(*spread_choices(space, template.unit, template.shape.innermost, variable)):
        if space.extents[variable] % math.prod(spread) == 0:
            yield spread


def spread_choices(space: EinsumSpace, unit: int, inside: int, variable: int) -> list[tuple[int, ...]]:
    """Per fanout, over how many instances the variable may be spread; windows are not spread, nor is
    anything over fanouts above an exchanged tensor (`inside`: the innermost memory that holds one)."""
    reach = 0 if space.copy else space.units[unit].fanouts
    windowed = any(variable in o.windowed for o in space.operands)
    choices: list[tuple[int, ...]] = []
    for number, f in enumerate(space.fanouts):
        reduced = (o for o in space.operands if o.output and variable not in o.alone)
        barred = windowed or number >= reach or f.below <= inside
        if barred or any(o.tensor not in f.reuses for o in reduced):
            choices.append((1,))
        else:
            choices.append(tuple(d for d in divisors(space.extents[variable]) if d <= f.width))
    return choices


def free_sizes(space: EinsumSpace, branch: Sequence[int], variable: int) -> int:
    """How many sizes of the variable are free in a branch with nodes of these operands, outermost first."""
    return _pattern([_kind(space.operands[i], variable) for i in branch])[1]


def _prefix_sizes(template: Template, variable: int, rest: int, sizes: str) -> Iterator[tuple[int, ...]]:
    """The variable's size at each slot above and between the fused loops."""

    def grow(found: tuple[int, ...], loops: tuple[int, ...]) -> Iterator[tuple[int, ...]]:
        if not loops:
            yield found
        elif loops[0] != variable:
            yield from grow((*found, found[-1]), loops[1:])
        else:
            for size in _below(found[-1], sizes):
                if size < found[-1]:
                    yield from grow((*found, size), loops[1:])

    yield from grow((rest,), template.shape.prefix)


def _descending(most: int, count: int, sizes: str) -> Iterator[tuple[int, ...]]:
    if not count:
        yield ()
        return
    for size in _below(most, sizes):
        for more in _descending(size, count - 1, sizes):
            yield (size, *more)


def _below(most: int, sizes: str) -> Sequence[int]:
    return divisors(most) if sizes == "divisors" else range(1, most + 1)


def trips(extent: Array, levels: Sequence[Array]) -> Array:
    """How many tiles there are below nested loops: N(X; t, ...) = X//t N(t; ...) + N(X mod t; ...)."""
    if not levels:
        return (extent > 0).astype(np.int64)
    size, inner = levels[0], levels[1:]
    return extent // size * trips(size, inner) + trips(extent % size, inner)


def beyond(extent: Array, levels: Sequence[Array], step: int) -> Array:
    """The sum over those tiles of what is left of each after `step` iterations."""
    if not levels:
        return np.maximum(extent - step, 0)
    size, inner = levels[0], levels[1:]
    return extent // size * beyond(size, inner, step) + beyond(extent % size, inner, step)
