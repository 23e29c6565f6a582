"""Assignment of an Einsum's temporal loops to memories, where rules of an exploration depend on it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from functools import lru_cache
from itertools import combinations_with_replacement
from typing import TYPE_CHECKING

from polymodel.factoring import divisors
from polymodel.mapper.einsum_rules import OTHER, LoopRules
from polymodel.mapping.resolve import LoopRule

if TYPE_CHECKING:
    from polymodel.mapper.templates import TemplateNode

# [variable][level] -> memories, outermost first, to which the loops over the variable at the level may belong
Homes = tuple[tuple[tuple[int, ...], ...], ...]


def loop_homes(
    rules: LoopRules,
    indexed: Sequence[frozenset[int]],
    variables: int,
    nodes: Sequence[TemplateNode],
    reach: int,
) -> list[Homes]:
    """Return all assignments of one Einsum's temporal loops to memories that rules may distinguish.

    Loops belong to memories from the outermost to the innermost; one loop may be split among consecutive
    memories. A loop above a node of a memory belongs to a memory outside it, or to one that has a node above
    the loop. A loop below the node belongs to the memory itself or to one further inside; if it does not
    index the node's tensor, it may also belong to a memory outside. `indexed`: per operand the variables that
    index it; `reach`: the number of memories above compute. Loops at one level may be in any order.
    """
    levels = max((n.level for n in nodes), default=0) + 1
    low, high = _bounds(indexed, variables, nodes, levels, reach)
    usable = _usable(rules, variables, reach)
    every = sorted(frozenset().union(*usable))

    def parted(level: int, cuts: tuple[int, ...]) -> Iterator[tuple[int, ...]]:
        """Yield the memories at which the loops of one level and the next are divided."""
        if level == levels:
            yield (*cuts, reach - 1)
            return
        least = min(min(low[level], default=0), high[level - 1])
        first = max(cuts[-1], least)
        some = [m for m in every if first <= m <= high[level - 1]] or [max(first, high[level - 1])]
        for m in some:
            yield from parted(level + 1, (*cuts, m))

    result: dict[Homes, None] = {}
    for cuts in parted(1, (0,)):
        homes = tuple(
            tuple(
                tuple(m for m in mine if max(cuts[k], low[k][v]) <= m <= min(cuts[k + 1], high[k]))
                for k in range(levels)
            )
            for v, mine in enumerate(usable)
        )
        for ordered in _in_orders(rules, homes, levels):
            result.update(dict.fromkeys(_sliding_in(rules, ordered, nodes, indexed)))
    return _widest(list(result))


def widest_homes(
    rules: LoopRules,
    indexed: Sequence[frozenset[int]],
    variables: int,
    nodes: Sequence[TemplateNode],
    reach: int,
) -> Homes:
    """Return all memories to which loops may belong in any of these assignments, whatever nodes slide
    along."""
    levels = max((n.level for n in nodes), default=0) + 1
    low, high = _bounds(indexed, variables, nodes, levels, reach)
    return tuple(
        tuple(tuple(m for m in mine if low[k][v] <= m <= high[k]) for k in range(levels))
        for v, mine in enumerate(_usable(rules, variables, reach))
    )


def _usable(rules: LoopRules, variables: int, reach: int) -> list[tuple[int, ...]]:
    """Per variable the memories that may have loops over it."""
    return [tuple(m for m in range(reach) if not rules.single(m, v)) for v in range(variables)]


def _bounds(
    indexed: Sequence[frozenset[int]], variables: int, nodes: Sequence[TemplateNode], levels: int, reach: int
) -> tuple[list[list[int]], list[int]]:
    """The outermost memory of loops [level][variable], and the innermost one [level]."""
    low, high = [], []
    for level in range(levels):
        above = [n for n in nodes if n.level <= level]
        outer = max((n.memory for n in above), default=0)
        inner = min((n.memory - 1 for n in nodes if n.level > level), default=reach - 1)
        high.append(max(outer, inner))
        low.append(
            [max((n.memory for n in above if v in indexed[n.operand]), default=0) for v in range(variables)]
        )
    return low, high


def _in_orders(rules: LoopRules, homes: Homes, levels: int) -> list[Homes]:
    """The assignments that obey the loop orders.

    The levels with loops of a memory are divided among the positions of its order.
    """
    result = [homes]
    for memory, sequence in rules.orders:
        result = [left for one in result for left in _in_order(one, memory, sequence, levels)]
    return result


def _in_order(homes: Homes, memory: int, sequence: tuple[int, ...], levels: int) -> Iterator[Homes]:
    mine = [k for k in range(levels) if any(memory in row[k] for row in homes)]
    used = [v for v in sequence if v == OTHER or any(memory in row for row in homes[v])]
    if len(mine) < 2 or len(used) < 2:
        yield homes
        return
    last = len(mine) - 1
    for cuts in combinations_with_replacement(range(len(mine)), len(used) - 1):
        spans = list(zip((0, *cuts), (*cuts, last), strict=True))
        allowed: dict[int, set[int]] = {}
        for v, (first, end) in zip(used, spans, strict=True):
            allowed.setdefault(v, set()).update(mine[first : end + 1])
        free = allowed.get(OTHER, set(mine))
        yield tuple(
            tuple(
                some if k in allowed.get(v, free) else tuple(m for m in some if m != memory)
                for k, some in enumerate(row)
            )
            for v, row in enumerate(homes)
        )


def _sliding_in(
    rules: LoopRules, homes: Homes, nodes: Sequence[TemplateNode], indexed: Sequence[frozenset[int]]
) -> list[Homes]:
    """The assignments in which loops that nodes slide along, or stay over, are innermost at their levels."""
    result = [homes]
    for n in nodes:
        if n.stays is not None:
            over = frozenset(range(len(homes))) - indexed[n.operand]
            result = [left for one in result for left in _innermost(rules, one, over, n.stays.since)]
        if n.slides >= 0:
            along = frozenset([n.slides])
            result = [left for one in result for left in _innermost(rules, one, along, n.level - 1)]
    return result


def _innermost(rules: LoopRules, homes: Homes, inside: frozenset[int], level: int) -> Iterator[Homes]:
    """Yield assignments in which loops over the variables `inside` belong to one memory or further inside,
    and all others to it or further outside."""
    for memory in sorted({m for v in inside for m in homes[v][level]}):
        kept: list[set[int]] = []
        for v, row in enumerate(homes):
            if v in inside:
                kept.append({m for m in row[level] if m >= memory})
                continue
            here = memory in row[level] and not any(rules.inside(memory, x, v) for x in inside)
            kept.append({m for m in row[level] if m < memory} | ({memory} if here else set()))
        yield tuple(
            (*row[:level], tuple(m for m in row[level] if m in some), *row[level + 1 :])
            for row, some in zip(homes, kept, strict=True)
        )


def _widest(found: list[Homes]) -> list[Homes]:
    """Return the assignments that are not contained in another one."""

    def contains(one: Homes, other: Homes) -> bool:
        return all(
            set(b) <= set(a) for x, y in zip(one, other, strict=True) for a, b in zip(x, y, strict=True)
        )

    return [h for h in found if not any(other != h and contains(other, h) for other in found)]


Tiles = tuple[tuple[int, int], ...]  # per level of one variable: its tile above the loops there and below
Parted = tuple[tuple[tuple[int, int], ...], ...]  # per level (memory, tile below the part of the loops there)


@lru_cache(maxsize=65536)
def parted_loops(
    tiles: Tiles, homes: tuple[tuple[int, ...], ...], factors: tuple[tuple[int, LoopRule], ...], even: bool
) -> Parted | None:
    """Return the loops over one variable, divided among memories such that the rules on factors are
    satisfied, or None.

    `factors`: (memory, rule); `even`: tiles divide the enclosing ones.
    """
    ruled = sorted({m for m, _ in factors})
    states: dict[tuple[int, ...], Parted] = {(1,) * len(ruled): ()}
    for (outer, inner), some in zip(tiles, homes, strict=True):
        after: dict[tuple[int, ...], Parted] = {}
        for parts in _parts(outer, inner, some, even):
            for state, before in states.items():
                now, size = list(state), outer
                for memory, tile in parts:
                    if memory in ruled:
                        now[ruled.index(memory)] *= -(-size // tile)
                    size = tile
                after.setdefault(tuple(now), (*before, parts))
        states = after
    for state, parts_found in states.items():
        if all(rule.admits(state[ruled.index(m)]) for m, rule in factors):
            return parts_found
    return None


def _parts(
    outer: int, inner: int, homes: tuple[int, ...], even: bool
) -> Iterator[tuple[tuple[int, int], ...]]:
    """Every way to split loops from one tile to another among memories, the outermost first."""
    if outer == inner:
        yield ()
        return
    if not homes:
        return
    memory, rest = homes[0], homes[1:]
    sizes: Iterable[int] = (inner,)
    if rest:
        sizes = [inner * d for d in divisors(outer // inner)] if even else range(inner, outer + 1)
    for tile in sizes:
        for more in _parts(tile, inner, rest, even):
            yield ((memory, tile), *more) if tile < outer else more
