"""Tile sizes of one rank variable at every level of a template."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from itertools import product
from typing import Any

import numpy as np

from polymodel.errors import Refused
from polymodel.factoring import divisors, prime_factors
from polymodel.frozen import dataclass
from polymodel.mapper.einsum_rules import spread_choices
from polymodel.mapper.loop_homes import parted_loops
from polymodel.mapper.records import TooManyChains
from polymodel.mapper.space import EinsumSpace, Operand
from polymodel.mapper.templates import ANY, Template
from polymodel.pareto import rows_of

# Of all chains t1 >= t2 >= ... only few can be optimal, whatever the chains of other variables are. For a
# node whose tensor the variable does not index, a large tile is best (fewer visits), and it may have that of
# the node above it at no cost to others; for a node whose tensor it indexes, a small one is best (less
# space), and it may have that of the node below. So sizes are free only if a node of the second kind is
# followed by one of the first. Windows (`p + r`) are of both kinds, and remain free. This requires that
# removing a level of splitting never makes more tiles. If sizes need not divide, that is true only above at
# most one more size: N(7; 5, 3, 2) = 4, but N(7; 3, 2) = 5. `_uneven_pattern` ties fewer levels then.

Array = Any
MOST_CHAINS = 2_000_000
MOST_TOGETHER = 2**24


@dataclass(frozen=True)
class TileChains:
    """The candidates of one bundle of rank variables.

    `tiles` [levels, n]: tile sizes (of several variables: products) below the loops above each level;
    `spread` [fanouts, n]: instances; `keys` [fused loops, n]: tile sizes below its own fused loops, 0 for
    others; `even`: every size divides. `shared` [fanouts, n]: the tile above the spatial loop of each fanout,
    split equally except that the last instance has the remainder; None if all instances have the same.
    """

    extent: int
    tiles: Array
    spread: Array
    keys: Array
    even: bool
    shared: Array | None = None

    @property
    def count(self) -> int:
        return int(self.tiles.shape[1])

    def only(self, kept: Array) -> TileChains:
        """The chains where the mask is True."""
        return self if kept.all() else rows_of(self, kept)

    def at(self, positions: Array) -> TileChains:
        """Return the candidates at these positions, each once."""
        kept = np.zeros(self.count, bool)
        kept[positions] = True
        return self.only(kept)

    def positions(self, some: TileChains) -> Array:
        """Return the positions of the candidates that are among `some`."""
        wanted, mine = (np.concatenate([c.tiles, c.spread, c.keys]).T for c in (some, self))
        known = {row.tobytes() for row in wanted}
        return np.array([i for i, row in enumerate(mine) if row.tobytes() in known], np.int64)

    def around_fanouts(self, positions: Sequence[int]) -> list[tuple[Array, Array]]:
        """Return tiles above and below the spatial loop of each fanout [n]; `positions`: the levels that they
        follow."""
        result: list[tuple[Array, Array]] = []
        for f, at in reversed(list(enumerate(positions))):
            if self.shared is not None:
                result.append((self.shared[f], -(-self.shared[f] // self.spread[f])))
                continue
            one = np.ones_like(self.tiles[0])
            later = f + 1 < len(positions) and positions[f + 1] == at
            inner = result[-1][0] if later else self.tiles[at + 1] if at + 1 < len(self.tiles) else one
            result.append((inner * self.spread[f], inner))
        return result[::-1]


def whole_chain(extent: int, like: TileChains) -> TileChains:
    """The chain of a dimension that no loop iterates over: whole at every level, and not spread over
    instances."""
    tiles = np.full((len(like.tiles), 1), extent, dtype=np.int64)
    spread, keys = (np.full((len(x), 1), k, dtype=np.int64) for k, x in ((1, like.spread), (0, like.keys)))
    return TileChains(extent, tiles, spread, keys, like.even)


def prod_of(arrays: Sequence[Array], n: int) -> Array:
    """The product of arrays [n]."""
    result = np.ones(n)
    for a in arrays:
        result = result * a
    return result


@dataclass(frozen=True)
class PointTiles:
    """One candidate of every rank variable.

    `tiles` [variables, levels]: tile sizes; `spread` [variables, fanouts]: instances in use; `shared`
    [variables, fanouts]: the tiles above spatial loops.
    """

    tiles: Array
    spread: Array
    shared: Array


def all_chains(
    space: EinsumSpace, template: Template, sizes: str, fused: Sequence[int] = ()
) -> tuple[TileChains, ...]:
    """The chains of every bundle of variables that can be optimal. Raises TooManyChains.

    `fused`: the tile sizes below the fused loops, if these are given.
    """
    return tuple(tile_chains(space, template, b, sizes, fused) for b in range(len(space.bundles)))


def tile_chains(
    space: EinsumSpace, template: Template, bundle: int, sizes: str, fused: Sequence[int] = ()
) -> TileChains:
    """The chains of one bundle that can be optimal. Raises TooManyChains."""
    members = space.bundles[bundle]
    extent = math.prod(space.extents[v] for v in members)
    assert len(members) == 1 or sizes != "all", "sizes that do not divide are chosen variable by variable"
    positions = [spread_after(template, f.below) for f in space.fanouts]
    kinds = _kinds(space, template, members[0])
    ruled = {m for m, _ in space.rules.factors(members[0])}
    homes = template.homes[members[0]] if template.homes else ()
    slides = any(n.slides == members[0] or n.stays is not None or n.keeps for n in template.nodes)
    slides = slides or any(
        n.slides == ANY and members[0] in space.operands[n.operand].windowed for n in template.nodes
    )
    slides = slides or any(members[0] in o.boxes.variables for o in space.operands if o.boxes)
    if slides or (template.family and homes) or any(not some or ruled & {*some} for some in homes):
        kinds = ["free"] * len(kinds)  # no two sizes are equally good
        pattern, symbols = _without_barred_loops(space, template, members[0], len(kinds))
    else:
        pattern, symbols = _pattern(kinds, sizes != "all")
    tiles: list[list[int]] = []
    spreads: list[tuple[int, ...]] = []
    keys: list[tuple[int, ...]] = []
    for spread in _spreads(space, template, members[0], extent, sizes):
        wide = math.prod(spread)
        kind = sizes if wide == 1 or sizes != "all" else "divisors"  # spatial tiles are split evenly
        scale = [
            math.prod(s for s, p in zip(spread, positions, strict=True) if p >= level)
            for level in range(template.depth + 1 + len(kinds))
        ]
        for products, mine in _prefix_sizes(space, template, members, kind, fused):
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
                    message = f"{space.name}: {what}"
                    remedy = "search divisors only (sizes: divisors)"
                    raise TooManyChains(message, remedy)
    n = len(tiles)
    result = TileChains(
        extent,
        np.array(tiles, dtype=np.int64).reshape(n, template.depth + 1 + len(kinds)).T,
        np.array(spreads, dtype=np.int64).reshape(n, len(space.fanouts)).T,
        np.array(keys, dtype=np.int64).reshape(n, template.depth).T,
        sizes != "all",
    )
    if not space.even and sizes != "few" and not template.bottom:
        result = _with_uneven(result, positions, [*_UnevenChains(space, template, members[0], sizes, kinds)])
    if template.shape.forced and members[0] in space.awaited:
        result = result.only(result.tiles[template.depth] == 1)  # single values
    return result.only(broken_rules(space, template, members[0], result) == 0) if result.count else result


@dataclass(frozen=True)
class UnevenChain:
    """One candidate of a variable, as in `TileChains`."""

    tiles: tuple[int, ...]
    spread: tuple[int, ...]
    shared: tuple[int, ...]
    keys: tuple[int, ...]


def _with_uneven(even: TileChains, positions: Sequence[int], more: Sequence[UnevenChain]) -> TileChains:
    """Even and uneven chains together."""
    if not more:
        return even
    shared = np.array([above for above, _ in even.around_fanouts(positions)], np.int64)

    def both(some: Array, rows: Sequence[tuple[int, ...]]) -> Array:
        return np.concatenate([some, np.array(rows, np.int64).reshape(len(rows), len(some)).T], axis=1)

    return TileChains(
        even.extent,
        both(even.tiles, [c.tiles for c in more]),
        both(even.spread, [c.spread for c in more]),
        both(even.keys, [c.keys for c in more]),
        False,
        both(shared, [c.shared for c in more]),
    )


class _UnevenChains:
    """The chains of one variable that is spread over some fanout, with uneven tiles.

    The chains of `tile_chains`, in which all sizes divide and there is nothing below the last spatial loop,
    are not included. If temporal sizes divide, those between two spatial loops are free only as `_pattern`
    specifies: the remainder of the last instance is split by the smallest of them, whatever is in between.
    Sizes directly above and below a spatial loop are always free.
    """

    def __init__(
        self, space: EinsumSpace, template: Template, variable: int, sizes: str, kinds: Sequence[str]
    ) -> None:
        self.space, self.template, self.variable, self.sizes = space, template, variable, sizes
        inside = max(template.shape.innermost, template.cut)
        self.choices = spread_choices(space, template.unit, inside, variable)
        self.after = [spread_after(template, f.below) for f in space.fanouts]
        self.depth, self.last = template.depth, template.depth + len(kinds)
        self.kinds = ["free" if sizes == "all" else kind for kind in kinds]
        self.gaps = sorted({a for a, c in zip(self.after, self.choices, strict=True) if c != (1,)})

    def __iter__(self) -> Iterator[UnevenChain]:
        for products, keys in _prefix_sizes(self.space, self.template, (self.variable,), self.sizes):
            for tiles, fanned in self._below(0, products[-1]) if self.gaps else ():
                whole = (*products, *tiles)
                at = [self.after[f] + 1 for f in range(len(self.after))]
                rest = {f: (1, whole[k] if k < len(whole) else 1) for f, k in enumerate(at)} | fanned
                spread, shared = zip(*(rest[f] for f in range(len(at))), strict=True)
                if math.prod(spread) > 1 and not self._divides(spread, shared):
                    yield UnevenChain(whole, spread, shared, keys)

    def _below(self, number: int, tile: int) -> Iterator[tuple[tuple[int, ...], dict[int, tuple[int, int]]]]:
        """Tiles of the levels after a gap, and instances and their shared tile per fanout.

        The tile right below the gap is given.
        """
        begin = self.gaps[number - 1] + 2 if number else self.depth + 1
        ends = number == len(self.gaps)
        end = self.last if ends else self.gaps[number]
        kinds = self.kinds[begin - self.depth - 1 : end - self.depth]
        pattern, symbols = _pattern(kinds if ends else [*kinds, "free"])
        for some in _descending(tile, symbols, self.sizes):
            mine = tuple(tile if g == -1 else 1 if g == -2 else some[g] for g in pattern)
            if ends:
                yield mine, {}
                continue
            fans = [f for f, a in enumerate(self.after) if a == end]
            for parted, inner in self._parted(fans, mine[-1]):
                given = (inner,) if end < self.last else ()
                for tiles, rest in self._below(number + 1, inner):
                    yield (*mine[:-1], *given, *tiles), parted | rest

    def _parted(self, fans: Sequence[int], tile: int) -> Iterator[tuple[dict[int, tuple[int, int]], int]]:
        """Yield a tile split over the instances of these fanouts, and the part of one instance."""
        if not fans:
            yield {}, tile
            return
        for several in self.choices[fans[0]]:
            inner = -(-tile // several)
            if -(-tile // inner) == several:
                for rest, least in self._parted(fans[1:], inner):
                    yield {fans[0]: (several, tile), **rest}, least

    def _divides(self, spread: Sequence[int], shared: Sequence[int]) -> bool:
        """Whether the chain, or one of equal cost, is among those whose sizes all divide.

        Below the last spatial loop a tile of windows may consist of neighbours; in those chains it is
        strided.
        """
        if self.sizes == "all" or any(a % s for a, s in zip(shared, spread, strict=True)):
            return False
        below = shared[-1] // spread[-1] if self.after[-1] == self.last else 1
        return below == 1 or not any(self.variable in o.windowed for o in self.space.operands)


def broken_rules(space: EinsumSpace, template: Template, variable: int, chains: TileChains) -> Array:
    """Return the number of rules on temporal loops that each chain violates [n].

    Rules on factors count only if the chain violates no other rule. Loops over the variable also count as
    violations where nodes that keep their tiles must have none, and missing loops where these nodes need one.
    """
    result = np.zeros(chains.count, np.int64)
    staying = [n for n in template.nodes if n.stays is not None]
    if space.copy or not (space.rules.of_blocks or staying):
        return result
    trips = _trips_below(space, template, chains)
    for n in staying:
        assert n.stays is not None
        if variable in space.operands[n.operand].alone:
            several = range(n.stays.within, n.level)
            result += sum((trips[level] > 1 for level in several), start=0 * result)
        if variable == n.stays.after:
            result += trips[n.stays.since] == 1
    if template.homes:
        homes, factors = template.homes[variable], space.rules.factors(variable)
        for level, some in enumerate(homes):
            result += (trips[level] > 1) & (not some)
        if factors:
            left = np.flatnonzero(result == 0)
            pairs = np.array([row[left] for pair in around(space, template, chains) for row in pair])
            rows, number = np.unique(pairs, axis=1, return_inverse=True)
            every = (tuple((int(a), int(b)) for a, b in zip(r[::2], r[1::2], strict=True)) for r in rows.T)
            obeyed = [parted_loops(tiles, homes, factors, chains.even) is not None for tiles in every]
            result[left] += ~np.array(obeyed, bool)[number.reshape(-1)]
    for memory, i in space.rules.once:
        o = space.operands[i]
        held = [n.level for n in template.nodes if n.operand == i and n.memory == memory]
        if held and variable not in o.alone and variable not in o.windowed:
            result += np.prod(np.array(trips[: held[0]]), axis=0) > 1
    return result


def require_combinable(space: EinsumSpace, found: Sequence[TileChains]) -> None:
    """Raises Refused for more combinations of tile sizes than there is memory for, where variables are not
    in pairs."""
    for group in space.groups if any(o.boxes is not None for o in space.operands) else ():
        if math.prod(found[b].count for b in group) > MOST_TOGETHER:
            names = " and ".join(space.variables[space.bundles[b][0]] for b in group)
            what = f"{space.name}: more than {MOST_TOGETHER:,} combinations of tile sizes of {names}"
            remedy = "let fewer memories hold its tensors (`may_keep`, `bypass`)"
            raise Refused(what, remedy, code="too-large")


def count_at_most(space: EinsumSpace, template: Template) -> int:
    """Return an upper bound on the number of chains of a bundle of the template, if all sizes are free and
    divide."""
    result = 0
    for members in space.bundles:
        extent = math.prod(space.extents[v] for v in members)
        _, free = _without_barred_loops(space, template, members[0], len(template.branch))
        spreads = sum(1 for _ in _spreads(space, template, members[0], extent, "divisors"))
        levels = free + template.depth
        steps = (math.comb(n + levels, levels) for n in prime_factors(extent).values())
        result = max(result, spreads * math.prod(steps))
    return result


def _without_barred_loops(
    space: EinsumSpace, template: Template, variable: int, levels: int
) -> tuple[list[int], int]:
    """Return the `_pattern` of a number of levels at which sizes are free, except below levels that must have
    no loop.

    Rules, or nodes that keep their tiles, may forbid temporal loops over the variable there: both sizes are
    equal.
    """
    homes = template.homes[variable] if template.homes else ()
    barred = {level for level, some in enumerate(homes) if not some}
    for n in template.nodes:
        if n.stays is not None and variable in space.operands[n.operand].alone:
            barred |= {*range(n.stays.within, n.level)}
    pattern, free = [-1], 0
    for level in range(template.depth, template.depth + levels):
        pattern.append(pattern[-1] if level in barred else free)
        free += level not in barred
    return pattern[1:], free


def _trips_below(space: EinsumSpace, template: Template, chains: TileChains) -> list[Array]:
    """Iterations of the temporal loops right below each level [n]."""
    return [-(-outer // inner) for outer, inner in around(space, template, chains)]


def around(space: EinsumSpace, template: Template, chains: TileChains) -> list[tuple[Array, Array]]:
    """Tile sizes above and below the temporal loops right below each level [n]."""
    result = []
    positions = [spread_after(template, f.below) for f in space.fanouts]
    fanned = chains.around_fanouts(positions)
    for level, size in enumerate(chains.tiles):
        inner = chains.tiles[level + 1] if level + 1 < len(chains.tiles) else np.ones_like(size)
        first = next((f for f, position in enumerate(positions) if position == level), None)
        result.append((size, inner if first is None else fanned[first][0]))
    return result


def spread_after(template: Template, below: int) -> int:
    """The last level whose node is above a fanout with `below` memories above it; it is below all fused
    loops."""
    first = 1 if template.top else template.depth
    return max((first, *(n.level for n in template.nodes if n.memory < below))) if below else -1


def _kinds(space: EinsumSpace, template: Template, variable: int) -> list[str]:
    """Return the tile size that is best for each level of the branch: `small`, `large` or either (`free`).

    For the region above it is best to provide a small tile, for the region below to get a large one.
    """
    result = ["small"] if template.top else []
    slides = False
    for n in template.branch:
        o = space.operands[n.operand]
        kind = _kind(o, variable)
        # the smaller this tile is, the less of the tile above is live
        result.append("free" if slides and kind == "large" else kind)
        slides = space.memories[n.memory].live and variable in o.windowed
    return [*result, "large"] if template.bottom else result


def _kind(o: Operand, variable: int) -> str:
    if o.rounds and variable in o.alone:
        return "free"  # large tiles fill more of their last action
    if variable == o.behind:
        return "free"  # large tiles hold what is read of the previous generation
    # with a larger tile of a tied variable, more values of the other one may be in it
    both = variable in o.windowed or variable in o.tied
    return "small" if variable in o.alone else "free" if both else "large"


def _pattern(kinds: Sequence[str], divide: bool = True) -> tuple[list[int], int]:
    """Per node the number of its free size (-1: the size above the branch, -2: 1), and the number of free
    sizes.

    `divide`: each size divides the one above it.
    """
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
    return (pattern, free) if divide or free < 2 else _uneven_pattern(kinds, pattern, free)


def _uneven_pattern(kinds: Sequence[str], even: Sequence[int], free: int) -> tuple[list[int], int]:
    """Return the `_pattern` if sizes need not divide, from the pattern with two or more free sizes that
    divide.

    With at most one size below it, no level of splitting makes fewer tiles. So nodes of the last free size
    share it, and nodes for which a large tile is best have that of the previous node among those of the
    second-last size. All others have sizes of their own.
    """
    pattern: list[int] = []
    for i, (kind, group) in enumerate(zip(kinds, even, strict=True)):
        follows = i > 0 and even[i - 1] == group
        if group == -2:
            pattern.append(-2)
        elif follows and (group == free - 1 or (group == free - 2 and kind == "large")):
            pattern.append(pattern[-1])
        else:
            pattern.append(max(pattern, default=-1) + 1)
    return pattern, max(pattern) + 1


def _spreads(
    space: EinsumSpace, template: Template, variable: int, extent: int, sizes: str
) -> Iterator[tuple[int, ...]]:
    """The ways to spread a variable (or several, of that joint extent) over the fanouts."""
    if template.bottom:  # the region below spreads variables, and satisfies the rules on spreading
        yield (1,) * len(space.fanouts)
        return
    inside = max(template.shape.innermost, template.cut)
    choices = spread_choices(space, template.unit, inside, variable, extent)
    if not space.even:
        kept = () if sizes == "all" else divisors(extent)  # other numbers have chains of their own
        choices = [tuple(c for c in several if c == 1 or c in kept) for several in choices]
    if sizes == "few":
        choices = [tuple(dict.fromkeys((c[0], c[-1]))) if c else () for c in choices]
    for spread in product(*choices):
        if extent % math.prod(spread) == 0:
            yield spread


def free_sizes(space: EinsumSpace, branch: Sequence[int], variable: int, divide: bool = True) -> int:
    """The number of free sizes of the variable in a branch with nodes of these operands, outermost first.

    `divide`: each size divides the one above it.
    """
    return _pattern([_kind(space.operands[i], variable) for i in branch], divide)[1]


def _prefix_sizes(
    space: EinsumSpace, template: Template, members: tuple[int, ...], sizes: str, fused: Sequence[int] = ()
) -> Iterator[tuple[tuple[int, ...], tuple[int, ...]]]:
    """Products of the members' sizes at each slot above and between fused loops, and sizes below each fused
    loop.

    The size below a loop over another variable is 0. `fused`: these sizes, if given.
    """
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
        for size in fused[len(keys) : len(keys) + 1] if fused else sizes_below(now[v], sizes):
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


def trips(extent: Array, levels: Sequence[tuple[Array, bool]], each: bool = False) -> Array:
    """Return the number of tiles below nested loops of these tile sizes: N(X; t, ...) = X//t N(t; ...) + N(X
    mod t; ...).

    Of a loop with True only the first tile counts. `each`: count values instead of tiles.
    """
    if not levels:
        return extent if each else (extent > 0).astype(np.int64)
    (size, first), inner = levels[0], levels[1:]
    if first:
        return trips(np.minimum(extent, size), inner, each)
    return extent // size * trips(size, inner, each) + trips(extent % size, inner, each)


def beyond(extent: Array, levels: Sequence[Array], step: int) -> Array:
    """The sum over those tiles of their excess over `step`."""
    if not levels:
        return np.maximum(extent - step, 0)
    size, inner = levels[0], levels[1:]
    return extent // size * beyond(size, inner, step) + beyond(extent % size, inner, step)


def unbundled(starts: Sequence[int], products: Sequence[int]) -> list[tuple[int, ...]]:
    """Sizes of several variables whose products are given, each dividing the one before.

    `starts`: the sizes before; the first variable shrinks first. A single variable may have any sizes.
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
