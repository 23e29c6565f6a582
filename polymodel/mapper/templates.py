"""The mappings of one Einsum: where its tensors are stored, and the tile sizes of its loops."""

from __future__ import annotations

import math
from collections.abc import Container, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import permutations, product
from typing import Any

import numpy as np

from polymodel.errors import Refused
from polymodel.factoring import divisors
from polymodel.mapper.einsum_rules import in_order, numbered_bands, spread_choices
from polymodel.mapper.loop_homes import Homes, loop_homes, parted_loops
from polymodel.mapper.records import Limits
from polymodel.mapper.space import EinsumSpace, Operand

# Where one Einsum's tensors are stored: which memories hold them, between which loops, in which order.
#
# A template has the fused loops (`prefix`, one rank variable each) and below them storage nodes in an order,
# with a block of loops over any rank variables above each. Loops between two nodes need no order: counts and
# tiles do not depend on it. `level` of a node: k <= D stands below the first k fused loops, D + j is the
# j-th node of the branch.

Exchanges = tuple[tuple[int, int], ...]


@dataclass(frozen=True)
class Sharing:
    """What neighbours see: fused loops by variable (positions), and tensors exchanged inside the backing
    storage as (operand, memory, depth: how many fused loops stand above)."""

    prefix: tuple[int, ...]
    shared: tuple[tuple[int, int, int], ...]

    @property
    def own_depth(self) -> int:
        return max((depth for _, _, depth in self.shared), default=0)

    @property
    def exchanges(self) -> Exchanges:
        """The exchanged tensors and their memories: (operand, memory) each."""
        return tuple((i, m) for i, m, _ in self.shared)

    @property
    def innermost(self) -> int:
        """The innermost memory that holds an exchanged tensor, 0 without any."""
        return max((memory for _, memory, _ in self.shared), default=0)


@dataclass(frozen=True)
class TemplateNode:
    """One tensor in one memory; `shared` nodes hold an exchanged tensor. `slides`: the variable of the loop
    right above it, over whose steps it keeps what its windows have in common (-1: it refills)."""

    operand: int
    memory: int
    level: int
    shared: bool = False
    slides: int = -1


@dataclass(frozen=True)
class Template:
    """Nodes by level. Operands without a shared node come from memory 0, or from those of `parents`.

    A template may be one region of a hierarchy cut in two: `bottom` says that the rest is below (the last
    level then is the tile that it gets), `top` that the rest is above (level 1 is the tile that it needs);
    `cut` is the innermost memory above. `homes`: which memories loops belong to, where rules tell them apart.
    """

    shape: Sharing
    nodes: tuple[TemplateNode, ...]
    unit: int
    parents: tuple[int, ...] = ()
    top: bool = False
    bottom: bool = False
    cut: int = 0
    homes: Homes = ()

    @property
    def depth(self) -> int:
        return len(self.shape.prefix)

    @property
    def branch(self) -> tuple[TemplateNode, ...]:
        return tuple(n for n in self.nodes if n.level > self.depth)


@dataclass(frozen=True)
class Passing:
    """Whether other Einsums may exchange tensors across this one, so that it may stand below loops that none
    of its own exchanged tensors needs; `bound`: such loops index its output, which is read below them."""

    any: bool = False
    bound: bool = False


def templates(
    space: EinsumSpace,
    limits: Limits,
    passing: Passing,
    depth: int,
    wanted: Container[Sharing] | None = None,
    loose: bool = False,
) -> Iterator[Template]:
    """Every template with so many fused loops (of the shapes that are wanted). `loose`: exchanged tensors are
    bound to no order."""
    for unit in range(1 if space.copy else len(space.units)):
        reach = len(space.memories) if space.copy else space.units[unit].memories
        for shape in shapes(space, limits, passing, depth, reach):
            if wanted is None or shape in wanted:
                for nodes in _placements(space, limits, shape, reach, loose):
                    yield from with_homes(space, Template(shape, nodes, unit))


def with_homes(space: EinsumSpace, template: Template) -> Iterator[Template]:
    """The template, with the memories that its loops may belong to where rules tell them apart."""
    if not space.rules.placed or space.copy:
        yield template
        return
    indexed = [o.alone | o.windowed for o in space.operands]
    reach = space.units[template.unit].memories
    for homes in loop_homes(space.rules, indexed, len(space.variables), template.nodes, reach):
        yield replace(template, homes=homes)


def shapes(space: EinsumSpace, limits: Limits, passing: Passing, depth: int, reach: int) -> Iterator[Sharing]:
    """Every shape with so many fused loops; `reach`: how many memories stand above compute."""
    choices = [[(i, m) for m in exchanges_of(space, o, limits, reach)] for i, o in enumerate(space.operands)]
    for chosen in product(*choices):
        held = [(i, m) for i, m in chosen if m > 0]
        for prefix in _prefixes(space, limits, held, passing, depth):
            for depths in product(*(_depths(space.operands[i], prefix) for i, _ in held)):
                shape = Sharing(prefix, tuple((i, m, d) for (i, m), d in zip(held, depths, strict=True)))
                if shape.own_depth == len(prefix) or passing.any:
                    yield shape


def exchanges_of(space: EinsumSpace, o: Operand, limits: Limits, reach: int) -> list[int]:
    """Memories in which the tensor may have its outermost tile; 0 is the backing storage."""
    result = []
    if o.tensor in space.may[0] and not (o.fusable and o.tensor in limits.fuse):
        result.append(0)
    if o.fusable and o.tensor not in limits.unfused:
        # Memories outside its outermost tile do not hold it.
        kept = min((m for m in range(len(space.keep)) if o.tensor in space.keep[m]), default=reach)
        inner = (m for m in range(1, min(reach, kept + 1)) if m in space.exchange)
        result += [m for m in inner if o.tensor in space.may[m]]
    return result


def _prefixes(
    space: EinsumSpace, limits: Limits, held: list[tuple[int, int]], passing: Passing, depth: int
) -> Iterator[tuple[int, ...]]:
    """Orders of fused loops; each indexes every exchanged tensor below it, the others' loops come last."""
    fusable = frozenset().union(*(space.operands[i].alone for i, _ in held)) if held else frozenset()
    for o in space.operands if passing.any else ():
        fusable |= o.alone if o.output or not passing.bound else frozenset()
    usable = sorted(fusable)
    order = dict(limits.loop_order).get(space.name, ())
    rank = {space.variables.index(v): i for i, v in enumerate(order) if v in space.variables}

    def grow(prefix: tuple[int, ...]) -> Iterator[tuple[int, ...]]:
        if len(prefix) == depth:
            yield prefix
            return
        for v in usable:
            if prefix.count(v) >= limits.max_fused_loops_per_rank_variable:
                continue
            if v in rank and any(rank.get(w, -1) > rank[v] for w in prefix):
                continue
            yield from grow((*prefix, v))

    yield from grow(())


def _depths(o: Operand, prefix: tuple[int, ...]) -> range:
    """How many fused loops may stand above the tensor's exchange: all of them index it."""
    most = 0
    while most < len(prefix) and prefix[most] in o.alone:
        most += 1
    return range(most + 1)


def outer_templates(
    space: EinsumSpace,
    limits: Limits,
    passing: Passing,
    depth: int,
    cut: int,
    wanted: Container[Sharing] | None = None,
    loose: bool = False,
) -> Iterator[Template]:
    """The region of memories up to `cut`, in which all exchanges are: some in memory `cut` itself, if it is
    not the first inside the backing storage."""
    for shape in shapes(space, limits, passing, depth, cut + 1):
        if max((m for _, m, _ in shape.shared), default=1) == cut and (wanted is None or shape in wanted):
            for nodes in _placements(space, limits, shape, cut + 1, loose):
                yield Template(shape, nodes, 0, bottom=True, cut=cut)


def inner_templates(
    space: EinsumSpace, limits: Limits, parents: tuple[int, ...], cut: int, last: int | None = None
) -> Iterator[Template]:
    """The region of memories inside `cut`, for operands that come from `parents`; down to memory `last` where
    that is not all of it."""
    units = enumerate(space.units) if last is None else [(0, space.units[0])]
    for unit, u in units:
        reach = u.memories if last is None else last + 1
        if reach <= cut:
            continue
        subsets = [list(_holdings(space, i, cut, reach)) for i in range(len(space.operands))]
        for chosen in product(*subsets):
            private = [(i, m) for i, held in enumerate(chosen) for m in held]
            for nodes in _arranged(space, limits, Sharing((), ()), (), private, reach, 2):
                yield Template(Sharing((), ()), nodes, unit, parents, True, last is not None, cut)


def _placements(
    space: EinsumSpace, limits: Limits, shape: Sharing, reach: int, loose: bool
) -> Iterator[tuple[TemplateNode, ...]]:
    shared = tuple(TemplateNode(i, m, d, True) for i, m, d in shape.shared)
    if space.copy:
        yield shared
        return
    outer = {n.operand: n.memory for n in shared}
    subsets = [list(_holdings(space, i, outer.get(i, 0), reach)) for i in range(len(space.operands))]
    for chosen in product(*subsets):
        private = [(i, m) for i, held in enumerate(chosen) for m in held]
        if loose:
            for nodes in _arranged(space, limits, shape, (), private, reach):
                yield (*shared, *nodes)
        else:
            yield from _arranged(space, limits, shape, shared, private, reach)


def _holdings(space: EinsumSpace, i: int, outermost: int, reach: int) -> Iterator[tuple[int, ...]]:
    """Which memories inside the outermost one hold the operand."""
    tensor = space.operands[i].tensor
    inner = range(outermost + 1, reach)
    for bits in product(*([(False, True)] * len(inner))):
        held = tuple(m for m, b in zip(inner, bits, strict=True) if b)
        if all(tensor in space.may[m] for m in held) and all(
            tensor not in space.keep[m] or m in held for m in inner
        ):
            yield held


def _arranged(
    space: EinsumSpace,
    limits: Limits,
    shape: Sharing,
    shared: tuple[TemplateNode, ...],
    private: list[tuple[int, int]],
    reach: int,
    first: int = 1,
) -> Iterator[tuple[TemplateNode, ...]]:
    """Every assignment of private nodes to slots above fused loops and to positions in the branch.

    `reach`: how many memories may have nodes. `first`: how far below the fused loops the branch's first
    level is.
    """
    depth, band = len(shape.prefix), numbered_bands(space, limits)
    slots = [(*lower_slots(space, shape, i, m, reach), depth) for i, m in private]
    for chosen in product(*slots):
        above = [TemplateNode(i, m, k) for (i, m), k in zip(private, chosen, strict=True) if k < depth]
        rest = [(i, m) for (i, m), k in zip(private, chosen, strict=True) if k == depth]
        fixed = (*shared, *above)
        if not in_order(fixed, band):
            continue
        for order in permutations(rest):
            branch = tuple(TemplateNode(i, m, depth + first + j) for j, (i, m) in enumerate(order))
            if in_order((*fixed, *branch), band):
                for sliding in product(*(_sliding(space, n) for n in branch)):
                    yield tuple(sorted((*fixed, *sliding), key=lambda n: (n.level, n.memory)))


def _sliding(space: EinsumSpace, node: TemplateNode) -> list[TemplateNode]:
    """The node with each variable that it may slide along: where there is one, refilling is never better, but
    for rules on the order of the loops above it."""
    along = [replace(node, slides=v) for v in space.slides(node.memory, node.operand)]
    return [node, *along] if space.rules.placed or not along else along


def slots_above(space: EinsumSpace, shape: Sharing, operand: int, memory: int) -> range:
    """Slots above fused loops; none for a memory inside a fanout, whose loops stand below all fused ones."""
    exchanged = next((d for i, _, d in shape.shared if i == operand), 0)
    replicated = any(f.below <= memory and f.width > 1 for f in space.fanouts)
    return range(exchanged, exchanged if replicated else len(shape.prefix))


def lower_slots(space: EinsumSpace, shape: Sharing, operand: int, memory: int, reach: int) -> tuple[int, ...]:
    """Those that may be best: where the next loop indexes the tensor, the slot below it is never worse, but
    for nodes of a memory further in between. None are above an exchange in this memory or one further out."""
    depth, alone = len(shape.prefix), space.operands[operand].alone
    closed = max((d for _, m, d in shape.shared if m <= memory), default=0)
    if memory + 1 == reach:
        closed = depth
    inside = [d for _, m, d in shape.shared if m > memory]

    def lowered(k: int) -> bool:
        free = (
            not space.rules.placed
            and not space.operands[operand].rounds
            and k < closed
            and all(d > k for d in inside)
            and (k + 1 < depth or not inside)
        )
        return shape.prefix[k] in alone and free

    return tuple(k for k in slots_above(space, shape, operand, memory) if not lowered(k))


def deepest(spaces: Sequence[EinsumSpace], limits: Limits) -> int:
    """The most fused loops that any exchanged tensor may be below."""
    per = limits.max_fused_loops_per_rank_variable
    ranks = [len(o.alone) * per for s in spaces for o in s.operands if o.fusable]
    most = max(ranks, default=0)
    return most if limits.max_fused_loops is None else min(most, limits.max_fused_loops)


# Tile sizes of one rank variable at every level of a template.
#
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
