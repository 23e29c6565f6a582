"""Tile sizes of one rank variable at every level of a template."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import product
from typing import Any

import numpy as np

from polymodel.errors import Refused
from polymodel.factoring import divisors
from polymodel.mapper.einsum_rules import spread_choices
from polymodel.mapper.loop_homes import parted_loops
from polymodel.mapper.space import EinsumSpace, Operand
from polymodel.mapper.templates import Template

# Of all chains t1 >= t2 >= ... only few can be best, whatever the other variables do. A node whose tensor the
# variable does not index wants a large tile (fewer visits), and may have that of the node above it at no
# cost to any other; a node whose tensor it indexes wants a small one (less space), and may have that of the
# node below. So sizes are free only where a node of the second kind is followed by one of the first. Windows
# (`p + r`) want both, and stay free. That holds for sizes that do not divide as well: leaving out a level
# of splitting never makes more tiles.

Array = Any
MOST_CHAINS = 2_000_000


@dataclass(frozen=True)
class TileChains:
    """The candidates of one bundle of rank variables. `tiles` [levels, n]: tile sizes (products, of several
    variables) below the loops above each level; `spread` [fanouts, n]: instances it is spread over; `keys`
    [fused loops, n]: tile sizes below its own fused loops, 0 at others; `even`: every size divides."""

    extent: int
    tiles: Array
    spread: Array
    keys: Array
    even: bool

    @property
    def count(self) -> int:
        return int(self.tiles.shape[1])

    def only(self, kept: Array) -> TileChains:
        """Those where it is True."""
        if kept.all():
            return self
        return replace(self, tiles=self.tiles[:, kept], spread=self.spread[:, kept], keys=self.keys[:, kept])


def all_chains(space: EinsumSpace, template: Template, sizes: str) -> tuple[TileChains, ...]:
    """The chains of every bundle of variables that can be best. Raises Refused where there are too many."""
    return tuple(tile_chains(space, template, b, sizes) for b in range(len(space.bundles)))


def tile_chains(space: EinsumSpace, template: Template, bundle: int, sizes: str) -> TileChains:
    """The chains of one bundle that can be best. Raises Refused where there are too many."""
    members = space.bundles[bundle]
    extent = math.prod(space.extents[v] for v in members)
    if len(members) > 1 and sizes == "all":
        raise AssertionError("sizes that do not divide are chosen variable by variable")
    positions = [spread_after(template, f.below) for f in space.fanouts]
    kinds = _kinds(space, template, members[0])
    told = {m for m, _ in space.rules.factors(members[0])}
    homes = template.homes[members[0]] if template.homes else ()
    slides = any(n.slides == members[0] for n in template.nodes)
    if slides or any(not some or told & {*some} for some in homes):
        kinds = ["free"] * len(kinds)  # no size is as good as another one
    pattern, symbols = _pattern(kinds)
    tiles: list[list[int]] = []
    spreads: list[tuple[int, ...]] = []
    keys: list[tuple[int, ...]] = []
    for spread in _spreads(space, template, members[0], extent, sizes):
        wide = math.prod(spread)
        kind = sizes if wide == 1 or sizes != "all" else "divisors"  # what is spread is split evenly
        scale = [
            math.prod(s for s, p in zip(spread, positions, strict=True) if p >= level)
            for level in range(template.depth + 1 + len(kinds))
        ]
        for products, mine in _prefix_sizes(space, template, members, kind):
            if products[-1] % wide:
                continue
            fixed = [x // wide for x in products]
            for free in _descending(fixed[-1], symbols, kind):
                branch = [fixed[-1] if g == -1 else 1 if g == -2 else free[g] for g in pattern]
                tiles.append([w * s for w, s in zip((*fixed, *branch), scale, strict=True)])
                spreads.append(spread)
                keys.append(mine)
                if len(tiles) > MOST_CHAINS:
                    names = " and ".join(space.variables[v] for v in members)
                    what = f"more than {MOST_CHAINS:,} chains of tile sizes of {names}"
                    raise Refused(f"{space.name}: {what}", "search divisors only (sizes: divisors)")
    n = len(tiles)
    result = TileChains(
        extent,
        np.array(tiles, dtype=np.int64).reshape(n, template.depth + 1 + len(kinds)).T,
        np.array(spreads, dtype=np.int64).reshape(n, len(space.fanouts)).T,
        np.array(keys, dtype=np.int64).reshape(n, template.depth).T,
        sizes != "all",
    )
    return result.only(broken_rules(space, template, members[0], result) == 0) if n else result


def broken_rules(space: EinsumSpace, template: Template, variable: int, chains: TileChains) -> Array:
    """How many rules on temporal loops each chain breaks [n]."""
    result = np.zeros(chains.count, np.int64)
    if not space.rules.of_blocks or space.copy:
        return result
    trips = _trips_below(space, template, chains)
    if template.homes:
        homes, factors = template.homes[variable], space.rules.factors(variable)
        for level, some in enumerate(homes):
            result += (trips[level] > 1) & (not some)
        if factors:
            pairs = np.array([row for pair in around(space, template, chains) for row in pair])
            rows, number = np.unique(pairs, axis=1, return_inverse=True)
            every = (tuple((int(a), int(b)) for a, b in zip(r[::2], r[1::2], strict=True)) for r in rows.T)
            obeyed = [parted_loops(tiles, homes, factors, chains.even) is not None for tiles in every]
            result += ~np.array(obeyed)[number.reshape(-1)]
    for memory, i in space.rules.once:
        o = space.operands[i]
        held = [n.level for n in template.nodes if n.operand == i and n.memory == memory]
        if held and variable not in o.alone and variable not in o.windowed:
            result += np.prod(np.array(trips[: held[0]]), axis=0) > 1
    return result


def _trips_below(space: EinsumSpace, template: Template, chains: TileChains) -> list[Array]:
    """Iterations of the temporal loops right below each level [n]."""
    return [-(-outer // inner) for outer, inner in around(space, template, chains)]


def around(space: EinsumSpace, template: Template, chains: TileChains) -> list[tuple[Array, Array]]:
    """Tile sizes above and below the temporal loops right below each level [n]."""
    result = []
    positions = [spread_after(template, f.below) for f in space.fanouts]
    for level, size in enumerate(chains.tiles):
        inner = chains.tiles[level + 1] if level + 1 < len(chains.tiles) else np.ones_like(size)
        for f, position in enumerate(positions):
            inner = inner * chains.spread[f] if position == level else inner
        result.append((size, inner))
    return result


def spread_after(template: Template, below: int) -> int:
    """The last level whose node stands above a fanout with that many memories above it."""
    first = 1 if template.top else 0
    return max((n.level for n in template.nodes if n.memory < below), default=first) if below else -1


def _kinds(space: EinsumSpace, template: Template, variable: int) -> list[str]:
    """What each level of the branch wants of the variable: `small`, `large` or both (`free`).

    The region above wants to give a small tile, the region below to get a large one.
    """
    result = ["small"] if template.top else []
    slides = False
    for n in template.branch:
        o = space.operands[n.operand]
        kind = _kind(o, variable)
        # What is live of the tile above is less the smaller this one.
        result.append("free" if slides and kind == "large" else kind)
        slides = space.memories[n.memory].live and variable in o.windowed
    return [*result, "large"] if template.bottom else result


def _kind(o: Operand, variable: int) -> str:
    if o.rounds and variable in o.alone:
        return "free"  # large tiles fill more of their last action
    if variable == o.behind:
        return "free"  # large tiles hold what is read of the generation before
    # Of a tied variable more values of the other one may be in a larger tile.
    both = variable in o.windowed or variable in o.tied
    return "small" if variable in o.alone else "free" if both else "large"


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


def _spreads(
    space: EinsumSpace, template: Template, variable: int, extent: int, sizes: str
) -> Iterator[tuple[int, ...]]:
    """How a variable (or several, of that extent together) may be spread over the fanouts."""
    if template.bottom:  # the region below spreads variables, and keeps the rules on that
        yield (1,) * len(space.fanouts)
        return
    inside = max(template.shape.innermost, template.cut)
    choices = spread_choices(space, template.unit, inside, variable, extent)
    if sizes == "few":
        choices = [tuple(dict.fromkeys((c[0], c[-1]))) if c else () for c in choices]
    for spread in product(*choices):
        if extent % math.prod(spread) == 0:
            yield spread


def free_sizes(space: EinsumSpace, branch: Sequence[int], variable: int) -> int:
    """How many sizes of the variable are free in a branch with nodes of these operands, outermost first."""
    return _pattern([_kind(space.operands[i], variable) for i in branch])[1]


def _prefix_sizes(
    space: EinsumSpace, template: Template, members: tuple[int, ...], sizes: str
) -> Iterator[tuple[tuple[int, ...], tuple[int, ...]]]:
    """The product of the members' sizes at each slot above and between the fused loops, and the size of a
    member below each of its loops (0: a loop over another variable)."""
    prefix = template.shape.prefix

    def grow(
        now: dict[int, int], products: tuple[int, ...], keys: tuple[int, ...]
    ) -> Iterator[tuple[tuple[int, ...], tuple[int, ...]]]:
        if len(keys) == len(prefix):
            yield products, keys
            return
        v = prefix[len(keys)]
        if v not in now:
            yield from grow(now, (*products, products[-1]), (*keys, 0))
            return
        for size in sizes_below(now[v], sizes):
            if size < now[v]:
                after = {**now, v: size}
                yield from grow(after, (*products, math.prod(after.values())), (*keys, size))

    whole = {v: space.extents[v] for v in members}
    yield from grow(whole, (math.prod(whole.values()),), ())


def _descending(most: int, count: int, sizes: str) -> Iterator[tuple[int, ...]]:
    if not count:
        yield ()
        return
    for size in sizes_below(most, sizes):
        for more in _descending(size, count - 1, sizes):
            yield (size, *more)


def sizes_below(most: int, sizes: str) -> Sequence[int]:
    if sizes == "all":
        return range(1, most + 1)
    every = divisors(most)
    return every if sizes == "divisors" else tuple(sorted({1, *every[len(every) - 1 :: -3]}))


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


def unbundled(starts: Sequence[int], products: Sequence[int]) -> list[tuple[int, ...]]:
    """Sizes of several variables whose products are given, each dividing the one before.

    `starts`: the sizes before; the first variable shrinks first. One variable may have any sizes.
    """
    if len(starts) == 1:
        return [(p,) for p in products]
    now, result = list(starts), []
    for goal in products:
        spare = math.prod(now) // goal
        for i, size in enumerate(now):
            taken = math.gcd(size, spare)
            now[i], spare = size // taken, spare // taken
        result.append(tuple(now))
    return result
