"""How many chains of tile sizes one Einsum has below given fused loops: products per rank variable, summed
over the ways to spread the variables over fanouts. Exact integers; nothing is listed.

One variable's sizes at b nodes below a tile of n are t1 >= ... >= tb: with divisors of n, a product over its
primes of C(e + b, b); with all sizes, C(n + b - 1, b).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import pairwise, product
from math import comb, prod
from typing import Any

import numpy as np

from polymodel.errors import Refused
from polymodel.factoring import divisors, prime_factors
from polymodel.mapper.space import EinsumSpace
from polymodel.mapper.tilechains import spread_choices

Array = Any
MOST_KEYS = 5_000_000
PAIRS = 2**21  # rows that are multiplied at once


@dataclass(frozen=True)
class Spreads:
    """`ways` [n]: in how many ways variables are spread over the fanouts, none over more instances than it
    has. `columns`: per variable the numbers of instances in use, and [n] which of them."""

    ways: Array
    columns: tuple[tuple[Array, Array], ...]


@lru_cache(maxsize=65536)
def chains_below(size: int, nodes: int, even: bool) -> int:
    """Tile sizes of one variable at so many nodes, each at most, or a divisor of, the one above."""
    if not even:
        return comb(size + nodes - 1, nodes)
    return prod(comb(e + nodes, nodes) for e in prime_factors(size).values())


def fused_sizes(extent: int, loops: int, even: bool) -> Iterator[tuple[int, ...]]:
    """Sizes below so many fused loops over one variable, each smaller than the one above."""
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
        if not choices:  # a single iteration is spread nowhere
            ways = ways[: len(each)]
            continue
        some = np.array(each, np.int64).reshape(len(each), len(choices))
        rows, ways = _times(rows, ways, some, extents)
    columns = [np.unique(column, return_inverse=True) for column in rows.T]
    return Spreads(ways, tuple((values, number.reshape(-1)) for values, number in columns))


def _within(choices: tuple[tuple[int, ...], ...], width: int) -> Iterator[tuple[int, ...]]:
    """One choice per variable, together within the width."""
    if not choices:
        yield ()
        return
    for s in choices[0]:
        if s <= width:
            for rest in _within(choices[1:], width // s):
                yield (s, *rest)


def _times(rows: Array, ways: Array, some: Array, extents: Array) -> tuple[Array, Array]:
    """Every row with every other one, as far as the products divide the extents; equal ones are added."""
    if not len(some) or not len(rows):
        return rows[:0], ways[:0]
    found, counts = [], []
    step = max(1, PAIRS // len(some))
    for begin in range(0, len(rows), step):
        both = (rows[begin : begin + step, None, :] * some[None, :, :]).reshape(-1, rows.shape[1])
        fits = (extents % both == 0).all(axis=1)
        found.append(both[fits])
        counts.append(np.repeat(ways[begin : begin + step], len(some))[fits])
    unique, number = np.unique(np.concatenate(found), axis=0, return_inverse=True)
    total = np.zeros(len(unique), np.int64)
    np.add.at(total, number.reshape(-1), np.concatenate(counts))
    return unique, total


class Tables:
    """Numbers of chains of one Einsum, by the tile sizes below its fused loops.

    `bundles`: rank variables of which only the product of sizes is told apart; each by itself, if not given.
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
        """All chains, `free` sizes in the branch per bundle."""
        there = self.spreads(unit, inside)
        found = there.ways.astype(object)
        for b, number in enumerate(free):
            found = found * self._factor(b, prefix, number, there).sum(axis=0)[there.columns[b][1]]
        return sum(found.tolist())

    def keys(self, prefix: Sequence[int]) -> Array:
        """[D, n]: tile sizes below the fused loops, in the order of `counts`."""
        variables = sorted(set(prefix))
        sizes = [list(fused_sizes(self.space.extents[v], prefix.count(v), self.even)) for v in variables]
        n = prod(map(len, sizes))
        if n > MOST_KEYS:
            what = f"{self.space.name}: more than {MOST_KEYS:,} sizes of fused tiles"
            raise Refused(what, "count divisors only (sizes: divisors), or fewer fused loops")
        where = np.unravel_index(np.arange(n), tuple(map(len, sizes))) if sizes else ()
        rows, seen = np.zeros((len(prefix), n), np.int64), dict.fromkeys(variables, 0)
        for k, v in enumerate(prefix):
            at = variables.index(v)
            rows[k] = np.array([s[seen[v]] for s in sizes[at]], np.int64)[where[at]]
            seen[v] += 1
        return rows

    def counts(self, unit: int, inside: int, prefix: Sequence[int], nodes: int) -> Array:
        """[n], integers: chains per column of `keys`, with so many nodes in the branch (single variables)."""
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
            # The first axis (spreads of a variable) gives way to a last one (its sizes).
            dense = np.tensordot(dense, table, axes=(0, 1))
        found: Array = dense.reshape(-1)
        return found

    def spreads(self, unit: int, inside: int) -> Spreads:
        if (unit, inside) not in self._spreads:
            self._spreads[unit, inside] = spreads(self.space, self.bundles, unit, inside)
        return self._spreads[unit, inside]

    def _below(self, bundle: int, prefix: Sequence[int]) -> tuple[tuple[int, bool], ...]:
        """What a bundle's fused loops leave of it, and whether each size divides the one above."""
        loops = [(v, prefix.count(v)) for v in self.bundles[bundle]]
        key = (bundle, tuple(loops))
        if key not in self._ends:
            found = []
            extents = [self.space.extents[v] for v, _ in loops]
            each = [fused_sizes(n, many, self.even) for n, (_, many) in zip(extents, loops, strict=True)]
            for chosen in product(*each):
                chains = [(n, *sizes) for n, sizes in zip(extents, chosen, strict=True)]
                even = all(a % b == 0 for chain in chains for a, b in pairwise(chain))
                found.append((prod(chain[-1] for chain in chains), even))
            self._ends[key] = tuple(found)
        return self._ends[key]

    def _factor(self, bundle: int, prefix: Sequence[int], nodes: int, there: Spreads) -> Array:
        """[sizes below the bundle's fused loops, instances it is spread over]: chains below. What is spread
        is split evenly."""
        values = there.columns[bundle][0].tolist()
        ends = self._below(bundle, prefix)
        found = np.zeros((len(ends), len(values)), dtype=object)
        for i, (last, even) in enumerate(ends):
            for j, s in enumerate(values):
                if s == 1:
                    found[i, j] = chains_below(last, nodes, self.even)
                elif even and last % s == 0:
                    found[i, j] = chains_below(last // s, nodes, True)
        return found
