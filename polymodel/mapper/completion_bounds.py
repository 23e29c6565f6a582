"""Lower bounds on the rest of the cascade, for every shape and tile size of an Einsum's fused loops.

A whole mapping is a path through join structures (open loops, tile sizes, live tensors) with one pmapping per
step. Here a step has the least cost for its shape, tile sizes and available space (the memory less live
tensors). The shortest paths before and after a step then bound all whole mappings that contain it. Shapes
with known pmappings have the costs of these; other shapes have the bounds of `lower_bounds`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from math import prod
from typing import Any

import numpy as np

from polymodel.mapper.aims import Bound, KnownMappings
from polymodel.mapper.budget import SearchTally
from polymodel.mapper.join import JoinRules, JoinStructure, Lives, Outlook, above_of, pairs, step, taken_of
from polymodel.mapper.lower_bounds import Floors
from polymodel.mapper.pmappings import Pmappings
from polymodel.mapper.records import Limits
from polymodel.mapper.space import EinsumSpace
from polymodel.mapper.templates import Exchanges, Passing, Sharing, shapes
from polymodel.mapper.tile_chains import sizes_below
from polymodel.pareto import rows_of

Array = Any
MOST_KEYS = 3_000_000  # tile sizes of all shapes of an Einsum; above it, bounds ignore tile sizes


@dataclass
class ShapeTiles:
    """One shape of an Einsum with its tile sizes.

    `keys` [fused loops, n]: the tile sizes; `own` [memories, n]: bits of the exchanged tensors; `first`:
    the position of its first tile sizes among those of all shapes of the Einsum.
    """

    shape: Sharing
    keys: Array
    own: Array
    first: int

    def __len__(self) -> int:
        return int(self.keys.shape[1])

    @property
    def places(self) -> slice:
        return slice(self.first, self.first + len(self))

    def of(self, keys: Array) -> Array:
        """Positions of the columns `keys` among the tile sizes of this shape."""
        if not len(keys) or (len(self) == 1 and not self.keys.any()):
            return np.zeros(keys.shape[1], np.int64)
        base = int(max(keys.max(initial=0), self.keys.max(initial=0))) + 1
        mine, theirs = _numbered(self.keys, base), _numbered(keys, base)
        order = np.argsort(mine)
        result: Array = order[np.searchsorted(mine[order], theirs)]
        return result


def _numbered(keys: Array, base: int) -> Array:
    result = np.zeros(keys.shape[1], object if base ** len(keys) > 2**62 else np.int64)
    for row in keys:
        result = result * base + row
    return result


def open_shapes(
    space: EinsumSpace, limits: Limits, passing: Passing, depth: int, floors: Floors
) -> Iterator[Sharing]:
    """Shapes of up to `depth` fused loops that have mappings by the lower bounds."""
    for shape in every_shape(space, limits, passing, depth):
        if floors.of(shape.exchanges) is not None:
            yield shape


def every_shape(space: EinsumSpace, limits: Limits, passing: Passing, depth: int) -> Iterator[Sharing]:
    """All shapes of up to `depth` fused loops."""
    reach = len(space.memories) if space.copy else max(u.memories for u in space.units)
    for d in range(depth + 1):
        yield from shapes(space, limits, passing, d, reach)


def exchanged_inside(
    space: EinsumSpace, limits: Limits, passing: Passing, depth: int, rules: JoinRules
) -> set[Exchanges]:
    """Exchanges further inside than the first memory whose tensors fit at some tile size."""
    some = [s for s in every_shape(space, limits, passing, depth) if s.innermost > 1]
    result = set()
    for c in choices_of(space, some, "", rules):  # at tile sizes of 1, which take the least space
        if (c.own <= rules.capacity[:, None]).all(axis=0).any():
            result.add(c.shape.exchanges)
    return result


def choices_of(
    space: EinsumSpace, some: Sequence[Sharing], sizes: str, rules: JoinRules
) -> Iterator[ShapeTiles]:
    count = 0
    for shape in some:
        keys = keys_of(space, shape.prefix, sizes)
        own = np.zeros((len(rules.which), keys.shape[1]))
        for i, m, k in shape.shared:
            if m in rules.which:
                o = space.operands[i]
                ranks = [o.ranks.index(v) for v in shape.prefix[:k]]
                own[rules.which.index(m)] += rules.lives.least(o.tensor, m, ranks, np.maximum(keys[:k], 1))
        yield ShapeTiles(shape, keys, own, count)
        count += keys.shape[1]


def keys_of(space: EinsumSpace, prefix: tuple[int, ...], sizes: str) -> Array:
    """All tile sizes of fused loops [loops, n]; without `sizes`, one column of zeros for all of them."""
    if not sizes:
        return np.zeros((len(prefix), 1), np.int64)
    result: list[tuple[int, ...]] = [()]
    for k, v in enumerate(prefix):
        before = next((j for j in range(k - 1, -1, -1) if prefix[j] == v), None)
        result = [
            (*t, size)
            for t in result
            for now in [space.extents[v] if before is None else t[before]]
            for size in sizes_below(now, sizes)
            if size < now
        ]
    return np.array(result, np.int64).reshape(len(result), len(prefix)).T


def most_keys(space: EinsumSpace, prefix: tuple[int, ...], sizes: str) -> int:
    """Upper bound on the number of tile sizes."""
    return prod(len(sizes_below(space.extents[v], sizes)) for v in prefix)


def entries_of(space: EinsumSpace, shape: Sharing, number: int, lives: Lives) -> Iterator[object]:
    """Return the keys (`follows`) of structures that the shape may follow."""
    above = above_of(space, shape.prefix)
    reads = taken_of(space, shape, number, lives)
    for c in range(len(above) + 1):
        if len(above) == max(c, shape.own_depth):
            yield above[:c], reads


def follows(space: EinsumSpace, structure: JoinStructure) -> object:
    reads = frozenset(
        (x.tensor, x.memory, x.depth)
        for x in structure.live
        if x.memory and space.operand(x.tensor) is not None
    )
    return structure.above, reads


def unlike(some: Mapping[Sharing, Array], done: Mapping[Sharing, Array]) -> dict[Sharing, Array]:
    """Return the tile sizes of `some` that are not `done` yet, without shapes that have none left."""
    left = {shape: mine & ~done.get(shape, np.zeros(len(mine), bool)) for shape, mine in some.items()}
    return {shape: mine for shape, mine in left.items() if mine.any()}


@dataclass
class _EinsumSteps:
    """The steps of one Einsum: state `before`, tile sizes `over`, state `after` (all [n]).

    `at` [levels, n]: the entry of the table of lower bounds for the space that live tensors leave.
    """

    before: Array
    over: Array
    after: Array
    at: Array

    def only(self, kept: Array) -> _EinsumSteps:
        return rows_of(self, kept)


@dataclass
class _States:
    """All states between two Einsums: the tile sizes of each structure, numbered through from `first`."""

    tiles: dict[JoinStructure, ShapeTiles]
    count: int


class CompletionBounds:
    """All paths through the cascade, and lower bounds of their costs."""

    def __init__(
        self,
        spaces: Sequence[EinsumSpace],
        limits: Limits,
        rules: JoinRules,
        floors: Sequence[Floors],
        passing: Sequence[Passing],
        depth: int,
        known: KnownMappings,
        tally: SearchTally,
        coarse: bool = False,
    ) -> None:
        """`coarse`: bounds ignore tile sizes. Raises Late once the time limit has passed."""
        self.tally = tally
        self.spaces, self.rules, self.edges = spaces, rules, known.edges
        self.weights = known.weights
        self.sums = known.sums + len(self.weights)
        several = [
            tuple(open_shapes(s, limits, p, depth, f))
            for s, p, f in zip(spaces, passing, floors, strict=True)
        ]
        many = max(
            sum(most_keys(s, x.prefix, limits.sizes) for x in mine)
            for s, mine in zip(spaces, several, strict=True)
        )
        self.choices = [
            tuple(choices_of(s, mine, limits.sizes if many <= MOST_KEYS and not coarse else "", rules))
            for s, mine in zip(spaces, several, strict=True)
        ]
        self.axis = rules.buffers[0] if rules.buffers else 0
        self.usage = floors[0].ladders[self.axis] if rules.which else np.array([np.inf])
        self.tables = [self._table(mine, f) for mine, f in zip(self.choices, floors, strict=True)]
        self.states = [
            _States(
                {
                    JoinStructure((), ()): ShapeTiles(
                        Sharing((), ()), np.zeros((0, 1), int), np.zeros((0, 1)), 0
                    )
                },
                1,
            )
        ]
        self.steps: list[_EinsumSteps] = []
        for i in range(len(spaces)):
            steps, states = self._stage(i)
            self.steps.append(steps)
            self.states.append(states)
        self.rest: list[Array] = []
        self.least: list[Array] = []
        self.behind: list[Array] = []

    def _table(self, mine: Sequence[ShapeTiles], floors: Floors) -> Array:
        """Lower bounds [sums, all tile sizes, levels of space and one entry for no fit]."""
        n = sum(len(c) for c in mine)
        result = np.full((self.sums, n, len(self.usage) + 1), np.inf)
        for c in mine:
            least = floors.of(c.shape.exchanges)
            if least is None:
                continue
            at = [
                np.minimum(np.searchsorted(x, (cap - own) * (1 - 1e-12)), len(x) - 1)[:, None]
                for x, cap, own in zip(floors.ladders, self.rules.capacity, c.own, strict=True)
            ]
            fits = (c.own <= self.rules.capacity[:, None]).all(axis=0)[:, None]
            if self.rules.which:
                left = self.usage[None, :] - c.own[self.axis][:, None]
                levels = floors.ladders[self.axis]
                at[self.axis] = np.minimum(np.searchsorted(levels, left * (1 - 1e-12)), len(levels) - 1)
                fits = fits & (left >= 0)
            sums = least[(slice(None), *at)] if at else least[:, None, None]
            sums = self._mixed(np.broadcast_to(sums, (len(sums), len(c), len(self.usage))))
            result[:, c.places, :-1] = np.where(fits[None], sums, np.inf)
        return result

    def _mixed(self, sums: Array) -> Array:
        """The sums [sums, ...] with their mixtures appended."""
        if not len(self.weights):
            return sums
        with np.errstate(invalid="ignore"):
            return np.concatenate([sums, np.tensordot(self.weights, sums, axes=1)])

    def _stage(self, number: int) -> tuple[_EinsumSteps, _States]:
        space, before = self.spaces[number], self.states[number]
        wanted: dict[object, list[ShapeTiles]] = {}
        for c in self.choices[number]:
            for key in entries_of(space, c.shape, number, self.rules.lives):
                wanted.setdefault(key, []).append(c)
        groups: list[tuple[Array, Array, Array]] = []
        reached: dict[JoinStructure, list[int]] = {}
        tiles: list[Array] = []
        for structure, old in before.tiles.items():
            self.tally.ask()
            passing = self._passing(space, structure, old.keys)
            for c in wanted.get(follows(space, structure), ()):
                self.tally.ask()
                result = step(structure, space, c.shape, number, self.rules.lives)
                if result is None:
                    continue
                for a, b in pairs(old.keys, c.keys, structure.depth):
                    self.tally.points += len(a)
                    fits = (passing[:, a] + c.own[:, b] <= self.rules.capacity[:, None]).all(axis=0)
                    a, b = a[fits], b[fits]
                    if len(a):
                        reached.setdefault(result.after, []).append(len(groups))
                        groups.append((old.first + a, c.first + b, self._left(passing[:, a])))
                        tiles.append(c.keys[: result.after.depth, b])
        after: list[Array] = [np.zeros(0, np.int64)] * len(groups)
        states: dict[JoinStructure, ShapeTiles] = {}
        count = 0
        for structure, mine in reached.items():
            unique, which = _unique(np.concatenate([tiles[k] for k in mine], axis=1))
            states[structure] = ShapeTiles(Sharing((), ()), unique, np.zeros((0, 0)), count)
            begin = 0
            for k in mine:
                end = begin + tiles[k].shape[1]
                after[k] = count + which[begin:end]
                begin = end
            count += unique.shape[1]
        if not groups:
            none = np.zeros(0, np.int64)
            return _EinsumSteps(none, none, none, np.zeros((len(self.edges), 0), np.int64)), _States({}, 0)
        steps = _EinsumSteps(
            np.concatenate([g[0] for g in groups]),
            np.concatenate([g[1] for g in groups]),
            np.concatenate(after),
            np.concatenate([g[2] for g in groups], axis=1),
        )
        return steps, _States(states, count)

    def _passing(self, space: EinsumSpace, structure: JoinStructure, tiles: Array) -> Array:
        """Return bits of live tensors that the Einsum does not touch [memories, n]."""
        which = self.rules.which
        result = np.zeros((len(which), tiles.shape[1]))
        for live in structure.live:
            if space.operand(live.tensor) is None and live.memory in which:
                result[which.index(live.memory)] += self.rules.lives.occupied_bits(live, tiles)
        return result

    def _left(self, passing: Array) -> Array:
        """Return entries of the tables for the space that remains at each level [levels, n]."""
        if not self.rules.which:
            return np.zeros((1, passing.shape[1]), np.int64)
        left = np.minimum(self.edges, self.rules.capacity[self.axis])[:, None] - passing[self.axis][None, :]
        at = np.minimum(np.searchsorted(self.usage, left * (1 - 1e-12)), len(self.usage) - 1)
        result: Array = np.where(left >= 0, at, len(self.usage))
        return result

    def work_out(self, bound: KnownMappings | None) -> None:
        """Compute shortest paths, and drop steps that are on no path better than the known mappings.

        Raises Late once the time limit has passed; the bounds computed before, if any, then remain.
        """
        ahead = [np.zeros((self.sums, len(self.edges), 1))]
        for steps, table, states in zip(self.steps, self.tables, self.states[1:], strict=True):
            self.tally.ask()
            reached = ahead[-1][:, :, steps.before] + table[:, steps.over, steps.at]
            ahead.append(_least(reached, steps.after, states.count))
        behind = np.zeros((self.sums, len(self.edges), self.states[-1].count))
        for structure, last in self.states[-1].tiles.items():
            if self.rules.lives.inside and not structure.inside:
                behind[:, :, last.places] = np.inf
        rests: list[Array] = []
        leasts: list[Array] = []
        behinds = [behind]
        for i in range(len(self.steps) - 1, -1, -1):
            self.tally.ask()
            steps, table = self.steps[i], self.tables[i]
            costs = table[:, steps.over, steps.at]
            outside = ahead[i][:, :, steps.before] + behinds[0][:, :, steps.after]
            n = table.shape[1]
            rests.insert(0, _least(np.where(np.isfinite(costs), outside, np.inf), steps.over, n))
            leasts.insert(0, _least(outside + costs, steps.over, n))
            onwards = costs + behinds[0][:, :, steps.after]
            behinds.insert(0, _least(onwards, steps.before, self.states[i].count))
            if bound is not None and len(steps.over):
                kept = self._hopeful(bound, outside + costs)
                if not kept.all():
                    self.steps[i] = steps.only(np.flatnonzero(kept))
        self.rest, self.least, self.behind = rests, leasts, behinds

    def _hopeful(self, known: KnownMappings, sums: Array) -> Array:
        n = sums.shape[2]
        figures = [np.zeros(n)] * (self.sums - len(self.weights) + len(self.rules.buffers))
        none = np.zeros((self.sums, len(self.edges)))
        return Bound(known, none).hopeful(figures, sums)

    def hopeful(self, number: int, known: KnownMappings | None) -> dict[Sharing, Array]:
        """Return shapes of an Einsum, and masks of tile sizes, that a whole mapping better than the known
        ones may use."""
        open_ = np.zeros(self.tables[number].shape[1], bool)
        open_[self.steps[number].over] = True
        if known is not None:
            open_ &= self._hopeful(known, self.least[number])
        return {c.shape: open_[c.places] for c in self.choices[number] if open_[c.places].any()}

    def choice(self, number: int, shape: Sharing) -> ShapeTiles:
        return next(c for c in self.choices[number] if c.shape == shape)

    def refine(
        self,
        number: int,
        shape: Sharing,
        points: Pmappings | None,
        some: Array | None = None,
    ) -> None:
        """Raise the bounds of a shape to the costs of its pmappings, at some tile sizes (None: at all)."""
        c = self.choice(number, shape)
        table = np.full((self.sums, len(c), len(self.usage) + 1), np.inf)
        if points is not None and len(points):
            place = c.of(points.keys)
            at = np.zeros(len(points), np.int64)
            if self.rules.which:
                bits = points.local + points.above.sum(axis=0) + c.own[:, place]
                at = np.minimum(
                    np.searchsorted(self.usage, bits[self.axis] * (1 - 1e-12)), len(self.usage) - 1
                )
            figures = self.rules.interest.figures(points.energy, points.latency, points.more, ())
            sums = np.stack(figures) if figures else np.zeros((0, len(points)))
            for row, figure in zip(table, self._mixed(sums), strict=True):
                np.minimum.at(row, (place, at), figure)
            np.minimum.accumulate(table[:, :, :-1], axis=2, out=table[:, :, :-1])
        if some is not None:
            table[:, ~some] = 0.0
        mine = self.tables[number]
        mine[:, c.places] = np.maximum(mine[:, c.places], table)

    def near_best(self, share: float) -> list[dict[Sharing, Array]]:
        """Return, per Einsum, the shapes and tile sizes on paths within `share` of the shortest, at any level
        and sum."""
        best = self.behind[0][:, :, :1]
        result = []
        for number, least in enumerate(self.least):
            near = (least <= best * (1 + share)) & np.isfinite(least)
            open_ = near.any(axis=(0, 1)) if self.sums else np.isfinite(least).any(axis=(0, 1))
            result.append({c.shape: open_[c.places] for c in self.choices[number] if open_[c.places].any()})
        return result

    def rest_of(self, number: int, shape: Sharing, keys: Array | None = None) -> Array:
        """Return lower bounds on a whole mapping without this shape's own costs [sums, levels, tile
        sizes]."""
        c = self.choice(number, shape)
        mine = self.rest[number][:, :, c.places]
        return mine if keys is None else mine[:, :, c.of(keys)]

    def behind_of(self, number: int, structure: JoinStructure, tiles: Array) -> Array:
        """Return lower bounds on the Einsums from `number` on, after states of a structure [sums, levels,
        n]."""
        return self._behind(self.behind[number], number, structure, tiles)

    def least_behind(self, number: int, structure: JoinStructure, tiles: Array) -> Array:
        """Return these bounds if the whole capacity is available [sums, n]."""
        return self._behind(self.behind[number][:, -1], number, structure, tiles)

    def outlook(self, number: int, known: KnownMappings) -> Outlook:
        """The bounds that the join after an Einsum uses; `depends_on` is everything that they depend on."""
        depends_on = self.behind[number], self.states[number].tiles
        return Outlook(known, partial(self.behind_of, number), partial(self.least_behind, number), depends_on)

    def _behind(self, table: Array, number: int, structure: JoinStructure, tiles: Array) -> Array:
        states = self.states[number].tiles.get(structure)
        if states is None:
            return np.full((*table.shape[:-1], tiles.shape[1]), np.inf)
        return table[..., states.first + states.of(tiles)]


def _unique(tiles: Array) -> tuple[Array, Array]:
    """The distinct columns, and the number of each column among them."""
    if not len(tiles):
        return np.zeros((0, 1), np.int64), np.zeros(tiles.shape[1], np.int64)
    result, which = np.unique(tiles, axis=1, return_inverse=True)
    return result, which.reshape(-1)


def _least(values: Array, of: Array, count: int) -> Array:
    """The least of the values [..., n] with each number below `count`; infinite for numbers that do not
    occur."""
    result = np.full((*values.shape[:-1], count), np.inf)
    if len(of):
        order = np.argsort(of, kind="stable")
        mine = of[order]
        starts = np.flatnonzero(np.concatenate([[True], mine[1:] != mine[:-1]]))
        result[..., mine[starts]] = np.minimum.reduceat(values[..., order], starts, axis=-1)
    return result
