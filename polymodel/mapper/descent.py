"""Fast local search for a mapping of one Einsum: descent over the tile sizes of one template at a time.

Only feasibility is guaranteed. The result goes through the same join and evaluation as mappings of the full
search. Each prime factor of a bundle's extent is in a *slot*: in the loops below a level of the template,
or in the spread over a fanout. A move takes factors of one prime from one slot to another. Moves of two
bundles are tried together, since one may need the space that the other frees.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from copy import copy
from dataclasses import replace
from functools import cached_property
from itertools import combinations
from math import comb, inf, prod
from typing import Any

import numpy as np

from polymodel.factoring import prime_factors
from polymodel.frozen import dataclass
from polymodel.mapper.aims import Bound, KnownMappings
from polymodel.mapper.budget import CUT
from polymodel.mapper.combine import PRUNE_ABOVE, Combination, Interest
from polymodel.mapper.einsum_rules import spread_choices
from polymodel.mapper.pricing import Actions, Form, parts, worth
from polymodel.mapper.space import EinsumSpace
from polymodel.mapper.templates import Template
from polymodel.mapper.term_factors import Factors
from polymodel.mapper.terms import CostTerms, costs
from polymodel.mapper.tile_chains import TileChains, all_chains, broken_rules, free_sizes, spread_after

Array = Any
Group = tuple[int, ...]
PAIRED = 60  # moves of each of two bundles that are combined
LEAST = 1e-300
GAIN = 1e-9  # relative improvement below which a move does not count
ROUNDS = 60  # maximum number of moves from one start
MOST_CANDIDATES = 4_000  # chains of a bundle, or of several that windows join, up to which all are evaluated
MOST_PAIRS = 1_000_000  # pairs of points and candidates in one template
REMEMBERED = 512  # arrays of moves whose factors are cached
STILL: Mapping[int, _Several] = {}


@dataclass(frozen=True)
class PointCosts:
    """Costs of points: joules, seconds, other figures that add up (`more`), and space.

    `bits`: per memory of interest; `private`, `above`: the same without exchanged tensors, below and above
    fused loops; `held`: per memory. `excess`: relative excess over memories and fanouts, 0 if the points
    fit.
    """

    energy: Array
    latency: Array
    more: tuple[Array, ...]
    bits: tuple[Array, ...]
    private: tuple[Array, ...]
    above: tuple[Array, ...]
    held: tuple[Array, ...]
    excess: Array


Goal = Callable[[PointCosts], Array]


@dataclass(frozen=True)
class LocalMapping:
    """A mapping of one Einsum from the local search.

    Per bundle: tile sizes at the levels (`tiles`), instances (`spread`), sizes below the fused loops
    (`keys`) and exponents of its slots (`placed`). `private`, `above`: bits in the memories of interest
    without exchanged tensors, below and above its fused loops; `held`: all its bits in each memory.
    """

    template: Template
    tiles: Array
    spread: Array
    keys: Array
    energy: float
    latency: float
    more: tuple[float, ...]
    excess: float
    score: float
    placed: tuple[Array, ...]
    private: tuple[float, ...]
    above: tuple[float, ...]
    held: tuple[float, ...]

    @property
    def rank(self) -> tuple[float, float]:
        """Sort key: feasible mappings come first, then the score."""
        return self.excess, self.score


class TemplateSlots:
    """The slots of a template: the level or the fanout that each belongs to.

    `sizes`: fixed tile sizes below its fused loops.
    """

    def __init__(self, space: EinsumSpace, template: Template, sizes: tuple[int, ...] = ()) -> None:
        self.space, self.template, self.sizes = space, template, sizes
        self.depth = template.depth
        self.levels = self.depth + len(template.branch) + 1
        self.after = [spread_after(template, f.below) for f in space.fanouts]
        self.slots = self.levels + len(space.fanouts)
        inside = max(template.shape.innermost, template.cut)
        self.widths = [
            spread_choices(space, template.unit, inside, members[0], prod(space.extents[v] for v in members))
            for members in space.bundles
        ]

    def keys(self) -> Array:
        """Per bundle the tile sizes below its own fused loops, 0 for other loops."""
        result = np.zeros((len(self.space.bundles), self.depth), np.int64)
        for k, (v, size) in enumerate(zip(self.template.shape.prefix, self.sizes, strict=True)):
            result[next(b for b, members in enumerate(self.space.bundles) if v in members), k] = size
        return result

    @cached_property
    def primes(self) -> tuple[tuple[tuple[int, int], ...], ...]:
        """Per bundle the primes of its extent with their exponents."""
        return tuple(
            tuple(prime_factors(prod(self.space.extents[v] for v in members)).items())
            for members in self.space.bundles
        )

    def usable(self, bundle: int) -> list[int]:
        """Slots that may hold factors of a bundle."""
        wide = self.widths[bundle]
        return [*range(self.depth, self.levels), *(self.levels + f for f, w in enumerate(wide) if w != (1,))]

    def chains(self, bundle: int, placed: Array) -> TileChains:
        """The chains of tile sizes for exponents [primes, slots, n]."""
        base = np.array([p for p, _ in self.primes[bundle]], np.int64)[:, None, None]
        sizes = np.prod(base**placed, axis=0)  # [slots, n]
        spread = sizes[self.levels :]
        tiles = np.cumprod(sizes[: self.levels][::-1], axis=0)[::-1].copy()
        for f, position in enumerate(self.after):
            tiles[: position + 1] *= spread[f]
        extent = prod(self.space.extents[v] for v in self.space.bundles[bundle])
        return TileChains(extent, tiles, spread, np.zeros((self.depth, tiles.shape[1]), np.int64), True)

    def starts(self) -> Iterator[tuple[Array, ...]]:
        """Starting points without repetition: fanouts filled as far as possible (each bundle first once),
        and empty."""
        seen: set[bytes] = set()
        for order in (*self._rotations(), ()):
            placed = self.start(order)
            key = b"".join(x.tobytes() for x in placed)
            if key not in seen:
                seen.add(key)
                yield placed

    def _rotations(self) -> Iterator[tuple[int, ...]]:
        several = range(len(self.primes))
        return ((*several[k:], *several[:k]) for k in several)

    def start(self, order: Sequence[int]) -> tuple[Array, ...]:
        """All factors above the first node, where tiles are smallest, except those in fanouts.

        Bundles fill the fanouts in this order.
        """
        result = []
        for b, several in enumerate(self.primes):
            placed = np.zeros((len(several), self.slots, 1), np.int64)
            fused = self._fused(b)
            for k, (p, count) in enumerate(several):
                placed[k, : self.depth, 0] = [exponents.get(p, 0) for exponents in fused]
                placed[k, self.depth] = count - int(placed[k].sum())
            result.append(placed)
        left = [float(f.width) for f in self.space.fanouts]
        for b in order:
            for k, (p, _) in enumerate(self.primes[b]):
                for f in (f for f, w in enumerate(self.widths[b]) if len(w) > 1):
                    while result[b][k, self.depth, 0] and left[f] >= p:
                        result[b][k, self.levels + f] += 1
                        result[b][k, self.depth] -= 1
                        left[f] /= p
        return tuple(result)

    def _fused(self, bundle: int) -> list[dict[int, int]]:
        """The prime factors of a bundle in each fused loop."""
        now, result = dict(enumerate(self.space.extents)), []
        for v, size in zip(self.template.shape.prefix, self.sizes, strict=True):
            result.append(prime_factors(now[v] // size) if v in self.space.bundles[bundle] else {})
            now[v] = size
        return result

    def candidates(self, bundle: int) -> int:
        """Upper bound on the number of chains of a bundle."""
        branch = [n.operand for n in self.template.branch]
        free = free_sizes(self.space, branch, self.space.bundles[bundle][0])
        wide = prod(len(w) for w in self.widths[bundle])
        return wide * prod(comb(count + free, free) for _, count in self.primes[bundle])

    def of(self, bundle: int, chains: TileChains, at: int) -> Array:
        """The exponents [primes, slots, 1] of one chain."""
        tiles, spread = chains.tiles[:, at], chains.spread[:, at]
        steps = [int(x) // int(y) for x, y in zip(tiles, [*tiles[1:], 1], strict=True)]
        for f, position in enumerate(self.after):
            if position >= 0:
                steps[position] //= int(spread[f])
        factors = [prime_factors(size) for size in (*steps, *map(int, spread))]
        rows = [[some.get(p, 0) for some in factors] for p, _ in self.primes[bundle]]
        return np.array(rows, np.int64).reshape(len(rows), self.slots, 1)

    def moves(self, bundle: int, placed: Array) -> Array:
        """The exponents [primes, slots, n] after each possible move, the unmoved ones first."""
        result = [placed]
        usable = self.usable(bundle)
        for k in range(len(self.primes[bundle])):
            for a in usable:
                held = int(placed[k, a, 0])
                for count in sorted({1, 2, held} if held > 1 else {held}):
                    for b in usable:
                        if b != a and 0 < count <= held:
                            moved = placed.copy()
                            moved[k, a] -= count
                            moved[k, b] += count
                            result.append(moved)
        return np.concatenate(result, axis=2)


@dataclass(frozen=True)
class TemplatePoints:
    """Points of one template: per bundle the chain of each (`index`), and their figures (None: no points)."""

    descent: Descent
    chains: tuple[TileChains, ...]
    index: Mapping[int, Array]
    figures: PointCosts | None

    def best(self, goal: Goal, ask: Callable[[], None], below: float) -> LocalMapping | None:
        """The best point, or None if its score is not less than `below`."""
        if self.figures is None:
            return None
        scores = goal(self.figures)
        at = int(np.argmin(scores))
        if not scores[at] < below:
            return None
        places = self.descent.places
        placed = tuple(places.of(b, c, int(self.index[b][at])) for b, c in enumerate(self.chains))
        return self.descent.towards(goal, ask).point(placed, alone=True)


class Descent:
    """Local search over the tile sizes of one template."""

    def __init__(
        self,
        space: EinsumSpace,
        template: Template,
        goal: Goal,
        memories: Sequence[int],
        room: Sequence[float],
        ask: Callable[[], None],
        sizes: tuple[int, ...] = (),
    ) -> None:
        """`memories`: those of interest; `room`: available bits per memory; `sizes`: tile sizes below fused
        loops."""
        self.space, self.template, self.goal, self.memories = space, template, goal, memories
        self.room, self.ask = room, ask
        self.places = TemplateSlots(space, template, sizes)
        self.costs: CostTerms = costs(space, template)
        self.amounts = _Amounts(self.costs, template, len(space.memories))
        self._found: dict[tuple[int, bytes], tuple[TileChains, Array]] = {}
        self._moved: dict[tuple[int, bytes], Array] = {}
        self._factors: dict[tuple[Group, tuple[bytes, ...]], Array] = {}

    def from_(self, placed: tuple[Array, ...]) -> LocalMapping:
        """Return the local optimum that moves from a start reach.

        Raises Stopped with the best point so far if time or memory runs out.
        """
        now = self.point(placed)
        try:
            for _ in range(ROUNDS):
                better = self._step(now)
                if better is None:
                    break
                now = better
        except CUT as error:
            raise Stopped(now) from error
        return now

    def every(self, interest: Interest, known: LocalMapping | None) -> TemplatePoints:
        """The feasible points that are dominated neither by another one nor by `known`.

        Raises TooManyPoints if there are too many to enumerate, and Late once the time limit has passed.
        """
        some = self._combined(interest, known)
        if not some.n:
            return TemplatePoints(self, (), {}, None)
        points, none = some.part(0), (np.zeros(some.n),) * len(self.memories)
        figures = PointCosts(
            points.energy, points.latency, tuple(points.more), none, none, none, none, np.zeros(some.n)
        )
        return TemplatePoints(self, tuple(some.chains), some.points.index, figures)

    def towards(self, goal: Goal, ask: Callable[[], None]) -> Descent:
        """Return the same search with another goal."""
        other = copy(self)
        other.goal, other.ask = goal, ask
        return other

    def _combined(self, interest: Interest, known: LocalMapping | None) -> Combination:
        counts = [self.places.candidates(b) for b in range(len(self.space.bundles))]
        if any(prod(counts[b] for b in group) > MOST_CANDIDATES for group in self.space.groups):
            raise TooManyPoints
        memories = zip(self.space.memories, self.room, strict=True)
        roomy = replace(self.space, memories=tuple(replace(m, capacity=room) for m, room in memories))
        bound = None
        if known is not None and not known.excess:
            figures = interest.figures(known.energy, known.latency, known.more, ())
            rows = np.array(figures, float).reshape(-1, 1)
            nothing = np.zeros((len(rows), 1))  # lower bound on the rest of the mapping: none
            bound = Bound(KnownMappings(rows, len(rows), np.array([inf])), nothing, whole=True)
        self.ask()
        chains = all_chains(self.space, self.template, "divisors", self.places.sizes)

        def ask() -> None:
            if some.n > PRUNE_ABOVE:  # finding the undominated ones of many takes long
                raise TooManyPoints
            self.ask()

        some, pairs = Combination(roomy, self.template, chains, self.costs, interest, bound, ask), 0
        for group in sorted(self.space.groups, key=lambda g: prod(chains[b].count for b in g)):
            pairs += some.n * prod(chains[b].count for b in group)
            if pairs > MOST_PAIRS:
                raise TooManyPoints
            some.add(group)
        return some

    def _step(self, now: LocalMapping) -> LocalMapping | None:
        """The best move of a single bundle, or of two bundles if no single one improves."""
        bundles = range(len(now.placed))
        best: _Move | None = None
        for some in ([(b,) for b in bundles], list(combinations(bundles, 2))):
            for chosen in some:
                self.ask()
                other = self._best_move(now, chosen)
                if _better(other, now if best is None else best):
                    best = other
                if best is not None and len(chosen) > 1:
                    return self._mapping_of(best)
            if best is not None:
                return self._mapping_of(best)
        return None

    def _best_move(self, now: LocalMapping, chosen: tuple[int, ...]) -> _Move:
        several = {b: self._moves(b, now.placed[b]) for b in chosen}
        if len(chosen) > 1:
            several = {b: replace(x, kept=self._some(now, b, x)) for b, x in several.items()}
        figures = self.figures(now.placed, several)
        score = self.goal(figures)
        fits = figures.excess <= 0
        at = int(np.argmin(np.where(fits, score, inf)) if fits.any() else np.argmin(figures.excess))
        where = np.unravel_index(at, figures.excess.shape)
        placed = list(now.placed)
        for b, k in zip(chosen, where, strict=False):
            one = int(several[b].kept[k])
            placed[b] = several[b].placed[:, :, one : one + 1]
        return _Move(tuple(placed), figures, where, float(figures.excess[where]), float(score[where]))

    def _moves(self, bundle: int, placed: Array) -> _Several:
        key = bundle, placed.tobytes()
        if key not in self._moved:
            if len(self._moved) > REMEMBERED:
                self._moved.clear()
            self._moved[key] = self.places.moves(bundle, placed)
        return _Several(self._moved[key], np.arange(self._moved[key].shape[2]))

    def _some(self, now: LocalMapping, bundle: int, moves: _Several) -> Array:
        """Positions of the best moves of one bundle, by score and by excess, whether or not they fit."""
        if len(moves.kept) <= PAIRED:
            return moves.kept
        figures = self.figures(now.placed, {bundle: moves})
        score = self.goal(figures)[:, 0]
        room = np.argsort(figures.excess[:, 0] * 1e6 + score / max(abs(now.score), LEAST), kind="stable")
        gain = np.argsort(score, kind="stable")
        return np.unique(np.concatenate([[0], gain[: PAIRED // 2], room[: PAIRED // 2]]))

    def point(self, placed: tuple[Array, ...], alone: bool = False) -> LocalMapping:
        """Return one point with its figures. `alone`: its moves are not computed, since it is not moved."""
        stays = np.zeros(1, np.int64)
        here = {b: _Several(x, stays) for b, x in enumerate(placed)} if alone else {}
        figures = self.figures(placed, {}, here)
        return self._mapping_of(_Move(placed, figures, (0, 0), 0.0, float(self.goal(figures)[0, 0])))

    def _mapping_of(self, move: _Move) -> LocalMapping:
        """Return the mapping that results from a move."""
        several = [self._chains(b, x)[0] for b, x in enumerate(move.placed)]
        levels, fans = self.places.levels, len(self.space.fanouts)
        tiles = np.array([c.tiles[:, 0] for c in several], np.int64).reshape(len(several), levels)
        spread = np.array([c.spread[:, 0] for c in several], np.int64).reshape(len(several), fans)
        figures, at = move.figures, move.at
        energy, latency, excess = (float(x[at]) for x in (figures.energy, figures.latency, figures.excess))
        more, private, above, held = (
            tuple(float(x[at]) for x in some)
            for some in (figures.more, figures.private, figures.above, figures.held)
        )
        keys = self.places.keys()
        return LocalMapping(
            self.template, tiles, spread, keys, energy, latency, more, excess, move.score, move.placed,
            private, above, held,
        )  # fmt: skip

    def figures(
        self, placed: tuple[Array, ...], several: Mapping[int, _Several], here: Mapping[int, _Several] = STILL
    ) -> PointCosts:
        """Return costs of every combination of moves of up to two bundles [n, m], the other bundles as in
        `placed`.

        Without `several`, of the moves `here`.
        """
        # The first move is the identity; all moves of a bundle are computed at once anyway.
        stays = np.zeros(1, np.int64)
        each = several or here
        now = tuple(each.get(b) or replace(self._moves(b, x), kept=stays) for b, x in enumerate(placed))
        axes = {b: k for k, b in enumerate(several)}
        counts = [len(x.kept) for x in several.values()]
        shape = (*counts, *([1] * (2 - len(counts))))
        values = self._values(now, axes, shape)
        amounts = self.amounts.of(values[:-1])
        seconds = self.costs.times.seconds(lambda form: amounts[id(form)] if form else np.zeros(shape))
        latency = seconds * self.space.times
        energy = amounts[id(self.costs.energy)] * self.space.times + self.space.leak * latency
        linear = [amounts[id(form)] for form in self.costs.more]
        more = tuple(self.space.added_up(linear, latency))
        private, above, shared = ([amounts[id(f)] for f in some] for some in self.amounts.held)
        held = [a + b + c for a, b, c in zip(private, above, shared, strict=True)]
        excess = self._unfit(now, axes, shape) + values[-1] - 1
        for filled, room in zip(held, self.room, strict=True):
            if room < inf:
                excess = excess + np.maximum(filled / max(room, LEAST) - 1, 0)
        bits, below, over = (tuple(x[m] for m in self.memories) for x in (held, private, above))
        return PointCosts(energy, latency, more, bits, below, over, tuple(held), excess)

    def _chains(self, bundle: int, placed: Array) -> tuple[TileChains, Array]:
        """The chains of these exponents, and the number of violated rules and forbidden spreads of each
        [n]."""
        key = bundle, placed.tobytes()
        if key not in self._found:
            if len(self._found) > REMEMBERED:
                self._found.clear()
            c = self.places.chains(bundle, placed)
            broken = broken_rules(self.space, self.template, self.space.bundles[bundle][0], c)
            for row, admitted in zip(c.spread, self.places.widths[bundle], strict=True):
                broken = broken + ~np.isin(row, admitted)
            self._found[key] = c, broken.astype(float)
        return self._found[key]

    def _values(self, now: tuple[_Several, ...], axes: Mapping[int, int], shape: tuple[int, ...]) -> Array:
        """Return every part's value at every combination [parts + 1, n, m]. The last row exceeds 1 if
        instances have unequal shares."""
        result = np.ones((len(self.amounts.parts) + 1, 1, 1))
        for group in self.space.groups:
            factor = self._factor(group, now)[(slice(None), *np.ix_(*(now[b].kept for b in group)))]
            sizes = [1, 1]
            mine = [b for b in group if b in axes]
            for b in mine:
                sizes[axes[b]] = len(now[b].kept)
            if len(mine) == 2 and axes[mine[0]] > axes[mine[1]]:
                factor = factor.reshape(len(factor), *(len(now[b].kept) for b in mine)).transpose(0, 2, 1)
            result = result * factor.reshape(len(factor), *sizes)
        return np.broadcast_to(result, (len(result), *shape))

    def _factor(self, group: Group, now: tuple[_Several, ...]) -> Array:
        """Factors of a group for every part and, last, for unequal shares [parts + 1, candidates of its
        bundles].

        They are cached, since most recur from move to move.
        """
        key = group, tuple(now[b].placed.tobytes() for b in group)
        if key not in self._factors:
            if len(self._factors) > REMEMBERED:
                self._factors.clear()
            each = tuple(self._chains(b, x.placed)[0] for b, x in enumerate(now))
            made = Factors(self.space, self.template, each)
            rows = [made.of(part, group) for part in self.amounts.parts]
            rows.append(1.0 + made.unequal(self.amounts.parts, group))
            self._factors[key] = np.array(rows).reshape(len(rows), *(now[b].placed.shape[2] for b in group))
        return self._factors[key]

    def _unfit(self, now: tuple[_Several, ...], axes: Mapping[int, int], shape: tuple[int, ...]) -> Array:
        """Return the excess over fanouts and the shortfall of required utilisation, plus the number of
        violated rules."""
        result = np.zeros(shape)
        each = [(*self._chains(b, x.placed), x.kept) for b, x in enumerate(now)]
        reach = 0 if self.space.copy else self.space.units[self.template.unit].fanouts
        for f, fanout in enumerate(self.space.fanouts):
            used = np.ones(shape)
            for b, (c, _, kept) in enumerate(each):
                used = used * _along(c.spread[f][kept].astype(float), axes.get(b, 0))
            result = result + np.maximum(used / fanout.width - 1, 0)
            if fanout.least and f < reach:
                result = result + np.maximum(fanout.least * fanout.width / used - 1, 0)
        for b, (_, broken, kept) in enumerate(each):
            result = result + _along(broken[kept], axes.get(b, 0))
        return result


class _Amounts:
    """The values of all forms of a template, from the values of their parts.

    `held`: per memory the bits of private tensors below fused loops, of private tensors above them, and of
    exchanged tensors.
    """

    def __init__(self, found: CostTerms, template: Template, memories: int) -> None:
        private, above, shared = ([Form() for _ in range(memories)] for _ in range(3))
        for node, (term, bits) in zip(template.nodes, found.nodes, strict=True):
            below = private if node.level > template.depth else above
            form = (shared if node.shared else below)[node.memory]
            form[term] = form.get(term, 0.0) + bits
        self.held = private, above, shared
        self.forms: list[Form] = [found.energy, *found.more, *found.times.forms, *private, *above, *shared]
        self.parts = parts(self.forms)
        place = {part: k for k, part in enumerate(self.parts)}
        self.weights = np.zeros((len(self.forms), len(self.parts)))
        self.rounded: list[tuple[int, Actions, float]] = []
        for k, form in enumerate(self.forms):
            for key, c in form.items():
                if isinstance(key, Actions):
                    self.rounded.append((k, key, c))
                else:
                    self.weights[k, place[key]] += c
        self.place = place

    def of(self, values: Array) -> dict[int, Array]:
        """The value [n, m] of each form, by the identity of the form; `values` [parts, n, m]."""
        shape = values.shape[1:]
        sums = (self.weights @ values.reshape(len(values), prod(shape))).reshape(-1, *shape)
        for k, key, c in self.rounded:
            sums[k] += worth(key, lambda part: values[self.place[part]]) * c
        return {id(form): row for form, row in zip(self.forms, sums, strict=True)}


def _along(row: Array, axis: int) -> Array:
    return row[:, None] if axis == 0 else row[None, :]


class TooManyPoints(Exception):
    """There are too many points to enumerate."""


class Stopped(Exception):
    """Time or memory ran out; `found` is the best point so far."""

    def __init__(self, found: LocalMapping) -> None:
        super().__init__()
        self.found = found


@dataclass(frozen=True)
class _Several:
    """Exponents of a bundle [primes, slots, n], and the positions (`kept`) of those to evaluate."""

    placed: Array
    kept: Array


@dataclass(frozen=True)
class _Move:
    """The result of a move: exponents, position `at` in the figures, excess and score."""

    placed: tuple[Array, ...]
    figures: PointCosts
    at: tuple[Any, ...]
    excess: float
    score: float


def _better(one: _Move, other: LocalMapping | _Move) -> bool:
    if one.excess > 0 or other.excess > 0:
        return one.excess < other.excess - GAIN
    return one.score < other.score - GAIN * abs(other.score)
