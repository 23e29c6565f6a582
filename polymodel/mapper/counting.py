"""The number of mappings, as an exact integer, without enumeration.

- Chains of tile sizes of one Einsum below given fused loops: products per rank variable, summed over the ways
  to spread the variables over fanouts. One variable's sizes at b nodes below a tile of n are t1 >= ... >= tb:
  with divisors of n, a product over its primes of C(e + b, b); with all sizes, C(n + b - 1, b).
- Placements of one Einsum's tensors, by the order of operands in its branch, memory by memory. Memories that
  storage orders separate are in bands: all nodes of one band are above those of the next. Within a band the
  nodes of one tensor are in order, those of different tensors in any order.
- Whole mappings: pmappings of one Einsum after another, counted by open loops, their tile sizes and live
  tensors, in the steps of the search's join (`join.step`). Tile sizes below open loops are numbered; the
  numbering depends only on the extents or tiles that these loops split, so that consecutive Einsums have the
  same numbers.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import lru_cache
from itertools import pairwise, product
from math import comb, prod
from typing import Any

import numpy as np

from polymodel.errors import Refused
from polymodel.factoring import divisors, prime_factors
from polymodel.frozen import dataclass
from polymodel.mapper.einsum_rules import bands, spread_choices
from polymodel.mapper.join import JoinStructure, Lives, above_of, step, taken_of
from polymodel.mapper.records import Limits
from polymodel.mapper.space import EinsumSpace
from polymodel.mapper.templates import Sharing, lower_slots, slots_above

Array = Any
MOST_KEYS = 5_000_000
PAIRS = 2**21  # rows that are multiplied at once
Sequences = dict[tuple[int, ...], int]


@dataclass(frozen=True)
class Spreads:
    """The ways to spread variables over the fanouts, none over more instances than its extent.

    `ways` [n]: the number of ways; `columns`: per variable the numbers of instances in use, and their index
    [n] for each way.
    """

    ways: Array
    columns: tuple[tuple[Array, Array], ...]


@lru_cache(maxsize=65536)
def chains_below(size: int, nodes: int, even: bool) -> int:
    """The number of chains of tile sizes at `nodes` nodes, each at most (`even`: a divisor of) the one
    above."""
    if not even:
        return comb(size + nodes - 1, nodes)
    return prod(comb(e + nodes, nodes) for e in prime_factors(size).values())


def fused_sizes(extent: int, loops: int, even: bool) -> Iterator[tuple[int, ...]]:
    """Tile sizes below `loops` fused loops over one variable, each smaller than the one above."""
    if not loops:
        yield ()
        return
    for size in divisors(extent)[:-1] if even else range(1, extent):
        for more in fused_sizes(size, loops - 1, even):
            yield (size, *more)


def spreads(space: EinsumSpace, bundles: Sequence[tuple[int, ...]], unit: int, inside: int) -> Spreads:
    """All ways to spread bundles of variables; `inside`: the innermost memory with an exchanged tensor."""
    whole = [prod(space.extents[v] for v in members) for members in bundles]
    choices = [
        spread_choices(space, unit, inside, members[0], n) for members, n in zip(bundles, whole, strict=True)
    ]
    rows, ways = np.ones((1, len(choices)), np.int64), np.ones(1, np.int64)
    extents = np.array(whole, np.int64).reshape(1, -1)
    for number, f in enumerate(space.fanouts):
        used = not space.copy and number < space.units[unit].fanouts
        least = f.least * f.width if used else 0.0
        each = [s for s in _within(tuple(c[number] for c in choices), f.width) if prod(s) >= least]
        if not choices:  # a single iteration is spread over nothing
            ways = ways[: len(each)]
            continue
        some = np.array(each, np.int64).reshape(len(each), len(choices))
        rows, ways = _times(rows, ways, some, extents)
    columns = [np.unique(column, return_inverse=True) for column in rows.T]
    return Spreads(ways, tuple((values, number.reshape(-1)) for values, number in columns))


def _within(choices: tuple[tuple[int, ...], ...], width: int) -> Iterator[tuple[int, ...]]:
    """One choice per variable whose product is within the width."""
    if not choices:
        yield ()
        return
    for s in choices[0]:
        if s <= width:
            for rest in _within(choices[1:], width // s):
                yield (s, *rest)


def _times(rows: Array, ways: Array, some: Array, extents: Array) -> tuple[Array, Array]:
    """Products of all pairs of rows that divide the extents; the ways of equal rows are added."""
    if not len(some) or not len(rows):
        return rows[:0], ways[:0]
    result, counts = [], []
    step = max(1, PAIRS // len(some))
    for begin in range(0, len(rows), step):
        both = (rows[begin : begin + step, None, :] * some[None, :, :]).reshape(-1, rows.shape[1])
        fits = (extents % both == 0).all(axis=1)
        result.append(both[fits])
        counts.append(np.repeat(ways[begin : begin + step], len(some))[fits])
    unique, number = np.unique(np.concatenate(result), axis=0, return_inverse=True)
    total = np.zeros(len(unique), np.int64)
    np.add.at(total, number.reshape(-1), np.concatenate(counts))
    return unique, total


class ChainTables:
    """Numbers of chains of one Einsum, by the tile sizes below its fused loops.

    `bundles`: groups of rank variables of which only the product of sizes matters (default: one per
    variable).
    """

    def __init__(
        self, space: EinsumSpace, sizes: str, bundles: Sequence[tuple[int, ...]] | None = None
    ) -> None:
        self.space, self.even = space, sizes != "all"
        self.bundles = bundles if bundles is not None else [(v,) for v in range(len(space.variables))]
        self._spreads: dict[tuple[int, int], Spreads] = {}
        self._tables: dict[object, Array] = {}
        self._ends: dict[object, tuple[tuple[int, bool], ...]] = {}

    def total(self, unit: int, inside: int, prefix: Sequence[int], free: Sequence[int]) -> int:
        """The number of all chains; `free`: per bundle the number of sizes in the branch."""
        there = self.spreads(unit, inside)
        result = there.ways.astype(object)
        for b, number in enumerate(free):
            result = result * self._factor(b, prefix, number, there).sum(axis=0)[there.columns[b][1]]
        return sum(result.tolist())

    def keys(self, prefix: Sequence[int]) -> Array:
        """Tile sizes below the fused loops [D, n], in the order of `counts`."""
        variables = sorted(set(prefix))
        sizes = [list(fused_sizes(self.space.extents[v], prefix.count(v), self.even)) for v in variables]
        n = prod(map(len, sizes))
        if n > MOST_KEYS:
            what = f"{self.space.name}: more than {MOST_KEYS:,} sizes of fused tiles"
            remedy = "count divisors only (sizes: divisors), or fewer fused loops"
            raise Refused(what, remedy, code="too-large")
        where = np.unravel_index(np.arange(n), tuple(map(len, sizes))) if sizes else ()
        rows, seen = np.zeros((len(prefix), n), np.int64), dict.fromkeys(variables, 0)
        for k, v in enumerate(prefix):
            at = variables.index(v)
            rows[k] = np.array([s[seen[v]] for s in sizes[at]], np.int64)[where[at]]
            seen[v] += 1
        return rows

    def counts(self, unit: int, inside: int, prefix: Sequence[int], nodes: int) -> Array:
        """The number of chains per column of `keys` [n], with `nodes` nodes in the branch (single variables
        only)."""
        key = (unit, inside, tuple(sorted(prefix)), nodes)
        if key not in self._tables:
            self._tables[key] = self._counted(unit, inside, prefix, nodes)
        return self._tables[key]

    def _counted(self, unit: int, inside: int, prefix: Sequence[int], nodes: int) -> Array:
        there = self.spreads(unit, inside)
        weights = there.ways.astype(object)
        axes = sorted(set(prefix))
        for v in range(len(self.bundles)):
            if v not in axes:
                weights = weights * self._factor(v, (), nodes, there)[0][there.columns[v][1]]
        if not axes:
            return np.array([sum(weights.tolist())], dtype=object)
        columns = tuple(there.columns[v][1] for v in axes)
        tables = [self._factor(v, prefix, nodes, there) for v in axes]
        dense = np.zeros(tuple(t.shape[1] for t in tables), dtype=object)
        np.add.at(dense, columns, weights)
        for table in tables:
            # The first axis (spreads of a variable) is replaced by a new last axis (its sizes).
            dense = np.tensordot(dense, table, axes=(0, 1))
        result: Array = dense.reshape(-1)
        return result

    def spreads(self, unit: int, inside: int) -> Spreads:
        if (unit, inside) not in self._spreads:
            self._spreads[unit, inside] = spreads(self.space, self.bundles, unit, inside)
        return self._spreads[unit, inside]

    def _below(self, bundle: int, prefix: Sequence[int]) -> tuple[tuple[int, bool], ...]:
        """Return tile sizes that remain below a bundle's fused loops, and whether each size divides the one
        above."""
        loops = [(v, prefix.count(v)) for v in self.bundles[bundle]]
        key = (bundle, tuple(loops))
        if key not in self._ends:
            result = []
            extents = [self.space.extents[v] for v, _ in loops]
            each = [fused_sizes(n, many, self.even) for n, (_, many) in zip(extents, loops, strict=True)]
            for chosen in product(*each):
                chains = [(n, *sizes) for n, sizes in zip(extents, chosen, strict=True)]
                even = all(a % b == 0 for chain in chains for a, b in pairwise(chain))
                result.append((prod(chain[-1] for chain in chains), even))
            self._ends[key] = tuple(result)
        return self._ends[key]

    def _factor(self, bundle: int, prefix: Sequence[int], nodes: int, there: Spreads) -> Array:
        """Return the number of chains below [sizes below the bundle's fused loops, instances that it is
        spread over].

        A spread over instances is an even split.
        """
        values = there.columns[bundle][0].tolist()
        ends = self._below(bundle, prefix)
        result = np.zeros((len(ends), len(values)), dtype=object)
        one_by_one = not self.space.awaited.isdisjoint({*prefix} & {*self.bundles[bundle]})
        for i, (last, even) in enumerate(ends):
            if one_by_one and last != 1:
                continue
            for j, s in enumerate(values):
                if s == 1:
                    result[i, j] = chains_below(last, nodes, self.even)
                elif even and last % s == 0:
                    result[i, j] = chains_below(last // s, nodes, True)
        return result


def arrangements(
    space: EinsumSpace, limits: Limits, shape: Sharing, reach: int, every_slot: bool
) -> Sequences:
    """Return the number of templates of a shape, by the operands of their branch nodes (outermost first).

    `reach`: the number of memories above compute. `every_slot`: nodes above fused loops may be in any slot;
    otherwise only in the slots that `templates` uses.
    """
    if space.copy:
        return {(): 1}
    return dict(_Arranger(space, limits, shape, reach, every_slot).found)


class _Arranger:
    """Counts the placements of storage nodes of one shape.

    Levels 0 to D - 1 are the slots above fused loops, D is below all of them (exchanges only), D + 1 is the
    branch.
    """

    def __init__(
        self, space: EinsumSpace, limits: Limits, shape: Sharing, reach: int, every_slot: bool
    ) -> None:
        self.space, self.shape, self.depth, self.reach = space, shape, len(shape.prefix), reach
        self.outer = {i: m for i, m, _ in shape.shared}
        self.below = {i: d for i, _, d in shape.shared}
        self.every_slot = every_slot
        self.bands = bands(space, limits, reach)
        self.found: Sequences = {}
        if self._shared_in_order():
            for counted in self._through().values():
                for order, ways in counted.items():
                    self.found[order] = self.found.get(order, 0) + ways

    def _shared_in_order(self) -> bool:
        """Whether exchanged tensors of outer bands are above those of inner bands."""
        where = [(self._band(m), d) for _, m, d in self.shape.shared]
        return not any(a < b and da > db for a, da in where for b, db in where)

    def _band(self, memory: int) -> int:
        return next(k for k, band in enumerate(self.bands) if memory in band)

    def _through(self) -> dict[int, Sequences]:
        """The ways for all bands, by the innermost level in use and the order in the branch."""
        result: dict[int, Sequences] = {0: {(): 1}}
        for k in range(len(self.bands)):
            after: dict[int, Sequences] = {}
            for low, orders in result.items():
                for level, counts in self._one_band(k, low).items():
                    into = after.setdefault(level, {})
                    for nodes, ways in counts.items():
                        for inner in _interleaved(nodes):
                            for order, before in orders.items():
                                whole = (*order, *inner)
                                into[whole] = into.get(whole, 0) + ways * before
            result = after
        return result

    def _one_band(self, k: int, low: int) -> dict[int, dict[tuple[int, ...], int]]:
        """Return the number of ways to place the nodes of one band at or below level `low`.

        The result is by the innermost level in use, then by the number of nodes of each operand in the
        branch.
        """
        branch = self.depth + 1
        here = [d for _, m, d in self.shape.shared if m in self.bands[k]]
        later = [d for _, m, d in self.shape.shared if self._band(m) > k]
        most = min(later, default=branch)
        result: dict[int, dict[tuple[int, ...], int]] = {}
        so_far: dict[tuple[int, ...], int] = {}
        for level in range(low, most + 1):
            now = self._up_to(k, low, level)
            new = {nodes: n - so_far.get(nodes, 0) for nodes, n in now.items()}
            into = result.setdefault(max([level, *here]), {})
            for nodes, n in new.items():
                if n:
                    into[nodes] = into.get(nodes, 0) + n
            so_far = now
        return result

    def _up_to(self, k: int, low: int, high: int) -> dict[tuple[int, ...], int]:
        each = [self._chains(i, k, low, high) for i in range(len(self.space.operands))]
        result = {}
        for chosen in product(*(c.items() for c in each)):
            ways = prod(n for _, n in chosen)
            if ways:
                result[tuple(b for b, _ in chosen)] = ways
        return result

    def _chains(self, i: int, k: int, low: int, high: int) -> dict[int, int]:
        """Ways to place one operand's nodes of a band between two levels, by their number in the branch."""
        tensor, branch = self.space.operands[i].tensor, self.depth + 1
        states = {(max(low, self.below.get(i, 0)), 0): 1}
        for m in self.bands[k]:
            if m <= self.outer.get(i, 0):
                continue
            after: dict[tuple[int, int], int] = {}
            for (level, inside), ways in states.items():
                if tensor not in self.space.keep[m]:
                    after[level, inside] = after.get((level, inside), 0) + ways
                for slot in self._slots(i, m) if tensor in self.space.may[m] else ():
                    if level <= slot <= high:
                        key = slot, inside + (slot == branch)
                        after[key] = after.get(key, 0) + ways
            states = after
        result: dict[int, int] = {}
        for (_, inside), ways in states.items():
            result[inside] = result.get(inside, 0) + ways
        return result

    def _slots(self, i: int, memory: int) -> tuple[int, ...]:
        if self.every_slot:
            return (*slots_above(self.space, self.shape, i, memory), self.depth + 1)
        return (*lower_slots(self.space, self.shape, i, memory, self.reach), self.depth + 1)


@lru_cache(maxsize=4096)
def _interleaved(nodes: tuple[int, ...]) -> tuple[tuple[int, ...], ...]:
    """Every order of the nodes, of which operand i has `nodes[i]` equal ones."""

    def grow(left: Sequence[int]) -> Iterator[tuple[int, ...]]:
        if not any(left):
            yield ()
        for i, n in enumerate(left):
            if n:
                for rest in grow([*left[:i], n - 1, *left[i + 1 :]]):
                    yield (i, *rest)

    return tuple(grow(nodes))


@dataclass(frozen=True)
class CountedShape:
    """One shape with its counts: `keys` [D, n] are tile sizes below fused loops, `counts` [n] exact
    integers."""

    shape: Sharing
    keys: Array
    counts: Array


@dataclass(frozen=True)
class _Entry:
    shape: Sharing
    above: tuple[int, ...]
    counts: Array


Exchanges = frozenset[tuple[str, int, int]]


class Joining:
    """The numbers of partial mappings by join structure."""

    def __init__(self, lives: Lives, even: bool) -> None:
        self.lives, self.even = lives, even
        self.states: dict[JoinStructure, Array] = {JoinStructure((), ()): np.array([1], dtype=object)}
        self._keys: dict[tuple[int, ...], Array] = {}
        self._positions: dict[tuple[int, ...], dict[tuple[int, ...], int]] = {}
        self._groups: dict[tuple[tuple[int, ...], int], Array] = {}

    def add(self, space: EinsumSpace, number: int, shapes: Sequence[CountedShape]) -> None:
        """Add the next Einsum of the cascade."""
        known: dict[tuple[tuple[int, ...], Exchanges], list[_Entry]] = {}
        for one in shapes:
            entry = self._entry(space, one)
            reads = taken_of(space, one.shape, number, self.lives)
            for c in range(len(entry.above) + 1):
                known.setdefault((entry.above[:c], reads), []).append(entry)
        after: dict[JoinStructure, Array] = {}
        for structure, counts in self.states.items():
            live = frozenset(
                (x.tensor, x.memory, x.depth)
                for x in structure.live
                if x.memory and space.operand(x.tensor) is not None
            )
            for entry in known.get((structure.above, live), ()):
                result = step(structure, space, entry.shape, number, self.lives)
                if result is not None:
                    joined = counts[self._group(entry.above, structure.depth)] * entry.counts
                    joined = self._summed(joined, entry.above, result.after.depth)
                    old = after.get(result.after)
                    after[result.after] = joined if old is None else old + joined
        self.states = after

    def total(self) -> int:
        return sum(int(n) for counts in self.states.values() for n in counts)

    def _entry(self, space: EinsumSpace, one: CountedShape) -> _Entry:
        order = np.lexsort(one.keys[::-1]) if len(one.keys) else np.zeros(1, np.int64)
        above = above_of(space, one.shape.prefix)
        self._keys.setdefault(above, one.keys[:, order])
        return _Entry(one.shape, above, one.counts[order])

    def _sizes(self, above: tuple[int, ...]) -> dict[tuple[int, ...], int]:
        """All tile sizes below open loops that split `above`, with their positions."""
        if above not in self._positions:
            result: list[tuple[int, ...]] = [()]
            for split in above:
                result = [
                    (*outer, *inner)
                    for outer in result
                    for inner in fused_sizes(split if split > 0 else outer[-1 - split], 1, self.even)
                ]
            self._positions[above] = {sizes: i for i, sizes in enumerate(result)}
        return self._positions[above]

    def _group(self, above: tuple[int, ...], depth: int) -> Array:
        """The position [n] of each column's first `depth` sizes among those of `depth` loops."""
        if (above, depth) not in self._groups:
            positions = self._sizes(above[:depth])
            columns = self._keys[above][:depth].T.tolist()
            self._groups[above, depth] = np.array([positions[tuple(c)] for c in columns], np.int64)
        return self._groups[above, depth]

    def _summed(self, counts: Array, above: tuple[int, ...], depth: int) -> Array:
        group = self._group(above, depth)
        result = np.zeros(len(self._sizes(above[:depth])), dtype=object)
        if len(group):
            starts = np.flatnonzero(np.concatenate([[True], group[1:] != group[:-1]]))
            result[group[starts]] = np.add.reduceat(counts, starts)
        return result
