"""Points of one template: candidates of its rank variables, combined one group of variables at a time.

After each step, points are dropped that exceed a memory or a fanout, or that a known whole mapping excludes.
If many points remain, dominated ones are dropped as well.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import lru_cache, partial
from math import prod
from typing import Any

import numpy as np

from polymodel.frozen import dataclass
from polymodel.mapper.aims import Bound
from polymodel.mapper.pricing import Actions, Form, Part, Term, parts, worth
from polymodel.mapper.space import EinsumSpace
from polymodel.mapper.templates import Template
from polymodel.mapper.term_factors import Factors
from polymodel.mapper.terms import CostTerms
from polymodel.mapper.tile_chains import TileChains, prod_of
from polymodel.pareto import lexicographic_ranks, rows_of, undominated

Array = Any
PRUNE_ABOVE = 20_000
BLOCK = 2**18  # points that are made at once
Group = tuple[int, ...]
Extreme = Callable[..., Any]  # np.min or np.max


@dataclass(frozen=True)
class PartialPoints:
    """Points in which some groups of rank variables are chosen.

    `values`: each term's product over the chosen groups [n]; `spread` [fanouts, n]: instances in use;
    `keys` [D, n]: tile sizes below the fused loops, 0 if not chosen yet; `index`: per bundle the candidate
    [n].
    """

    values: Mapping[Part, Array]
    spread: Array
    keys: Array
    index: Mapping[int, Array]
    n: int

    def only(self, which: Array) -> PartialPoints:
        """The points at these positions, or where the mask is True."""
        if which.dtype == bool:
            if which.all():
                return self
            which = np.flatnonzero(which)
        return self._at(which, len(which))

    def part(self, begin: int, end: int) -> PartialPoints:
        """The points from one position to another."""
        return self._at(slice(begin, end), max(0, min(end, self.n) - begin))

    def _at(self, which: Array | slice, n: int) -> PartialPoints:
        values = {t: v[which] for t, v in self.values.items()}
        index = {b: i[which] for b, i in self.index.items()}
        return PartialPoints(values, self.spread[:, which], self.keys[:, which], index, n)

    def paired(self, other: PartialPoints, mine: Array, theirs: Array) -> PartialPoints:
        """Return pairs of points, by their positions [n] in this set and in the other."""
        return PartialPoints(
            {t: v[mine] * other.values[t][theirs] for t, v in self.values.items()},
            self.spread[:, mine] * other.spread[:, theirs],
            self.keys[:, mine] + other.keys[:, theirs],
            {b: i[mine] for b, i in self.index.items()} | {b: i[theirs] for b, i in other.index.items()},
            len(mine),
        )


class PartialFigures:
    """The figures by which the points of a template are compared."""

    def __init__(
        self,
        space: EinsumSpace,
        template: Template,
        costs: CostTerms,
        factors: Mapping[tuple[Part, Group], Array],
        forms: Sequence[Form],
        memories: Sequence[int],
        relaxed: bool,
    ) -> None:
        """`forms`: the forms of energy and latency that matter; `memories`: those whose occupancy matters."""
        self.space, self.template, self.factors = space, template, factors
        self.scaled: dict[tuple[Part, Group], tuple[bytes, float]] = {}
        self.forms = [*forms, *_occupied_bits(template, costs, memories, relaxed)]

    def of(self, points: PartialPoints, others: Sequence[Group]) -> Iterator[Array]:
        """Yield the figures [n], smaller being better in each; `others`: the groups not chosen yet."""
        alike: dict[Part, tuple[tuple[bytes, ...], float]] = {}
        sizes: dict[Part, None] = {}
        for form in self.forms:
            # Transfers are compared by their number and by their size, since the number of actions grows
            # with both.
            sums: dict[tuple[object, tuple[bytes, ...]], Array] = {}
            for key, c in form.items():
                filled = (key.transfers.size, key.bits, key.per_action) if isinstance(key, Actions) else None
                t = key.transfers if isinstance(key, Actions) else key
                if isinstance(key, Actions):
                    sizes[key.transfers.size] = None
                if t not in alike:
                    some = [self._shape(t, g) for g in others]
                    alike[t] = tuple(b for b, _ in some), float(np.prod([s for _, s in some]))
                kind, scale = alike[t]
                value = points.values[t] * (c * scale)
                which = filled, kind
                sums[which] = sums[which] + value if which in sums else value
            yield from sums.values()
        yield from (points.values[t] for t in sizes)
        if others:
            for f, wide in zip(self.space.fanouts, points.spread, strict=True):
                if f.width > 1 and not f.least:
                    yield wide

    def _shape(self, term: Part, group: Group) -> tuple[bytes, float]:
        if (term, group) not in self.scaled:
            self.scaled[term, group] = _scaled(self.factors[term, group])
        return self.scaled[term, group]


def _scaled(factor: Array) -> tuple[bytes, float]:
    """Return a factor divided by its first entry (as bytes), and that entry."""
    scale = float(factor[0]) if len(factor) and factor[0] else 1.0
    return (factor / scale).tobytes(), scale


def _occupied_bits(
    template: Template, costs: CostTerms, memories: Sequence[int], relaxed: bool
) -> list[Form]:
    """Return bits in each memory as forms, separately for every slot and for exchanged tensors."""
    result: dict[tuple[int, int, bool], Form] = {}
    for n, (t, bits) in zip(template.nodes, costs.nodes, strict=True):
        if n.memory in memories and not (n.shared and relaxed):
            form = result.setdefault((n.memory, min(n.level, template.depth), n.shared), {})
            form[t] = form.get(t, 0.0) + bits
    return list(result.values())


@dataclass(frozen=True)
class Interest:
    """The figures that later steps use, by which points of one Einsum are compared.

    `energy`, `latency`: whether they count. `memories`: positions of memories that hold tiles of several
    Einsums or whose peak is an objective; `buffers`: positions of the latter. `relaxed`: exchanged tensors
    take no space. `eps`: relative margin of the objectives within which points may be dropped; `rough`: the
    margin for space (used where any good mapping will do). `added`: lower bounds on what the rest of a
    whole mapping adds to the sums, since `eps` is relative to the whole. `ties`: only one of energy and
    latency is an objective, and the other breaks ties.
    """

    energy: bool
    latency: bool
    memories: tuple[int, ...]
    buffers: tuple[int, ...] = ()
    relaxed: bool = False
    eps: float = 0.0
    rough: float = 0.0
    added: tuple[float, ...] = ()
    ties: bool = False

    def figures(
        self, energy: Array, latency: Array, more: Sequence[Array], peaks: Sequence[Array]
    ) -> list[Array]:
        """The rows of points: energy and latency if they count, the other sums, then peaks."""
        result = [energy] if self.energy else []
        return [*result, *([latency] if self.latency else []), *more, *peaks]

    def compared(
        self,
        energy: Array,
        latency: Array,
        more: Sequence[Array],
        peaks: Sequence[Array],
        space: Sequence[Array],
    ) -> list[Array]:
        """The rows and the occupied bits as they are compared, rounded to `eps` and `rough`."""
        sums = self.figures(energy, latency, more, ())
        objectives = [*sums, *peaks]
        if self.ties and self.energy != self.latency and not self.eps:
            objectives = with_ties(objectives, latency if self.energy else energy)
        if self.eps:
            added = self.added or (0.0,) * len(sums)
            sums = [f + a for f, a in zip(sums, added, strict=True)]
            objectives = [coarse(f, self.eps) for f in (*sums, *peaks)]
        return [*objectives, *((coarse(f, self.rough) for f in space) if self.rough else space)]


def with_ties(objectives: Sequence[Array], tie: Array) -> list[Array]:
    """Figures that compare points by the objectives, and by `tie` where all objectives are equal.

    Equal means up to rounding; smaller is better.
    """
    ranks = lexicographic_ranks([*objectives, tie])
    return [*objectives, ranks] if len(objectives) > 1 else [ranks]


@dataclass(frozen=True)
class CombinedPoints:
    """Points of one template (`number`) or of several, as in `Pmappings`.

    `below`: positions in the lower region, if there is one.
    """

    keys: Array
    energy: Array
    latency: Array
    more: Array
    local: Array
    above: Array
    number: int | Array
    choice: Array
    lower: int | Array = -1
    below: Array | None = None

    def figures(self, interest: Interest) -> list[Array]:
        space = [*self.local, *(row for slot in self.above for row in slot)]
        return interest.compared(self.energy, self.latency, self.more, (), space)

    def only(self, kept: Array) -> CombinedPoints:
        return rows_of(self, kept)

    def undominated(self, interest: Interest) -> CombinedPoints:
        return self.only(undominated(self.figures(interest), group_numbers(self.keys, len(self.energy))))


def coarse(figure: Array, eps: float) -> Array:
    """The index of each figure in a logarithmic grid of step 1 + eps."""
    with np.errstate(divide="ignore"):
        result: Array = np.floor(np.log(figure) / np.log1p(eps))
    return result


def group_numbers(keys: Array, n: int) -> Array:
    """A number for each column of `keys`; equal columns have equal numbers."""
    if not len(keys):
        return np.zeros(n, np.int64)
    if len(keys) == 1:
        return keys[0]
    return np.unique(keys, axis=1, return_inverse=True)[1].reshape(-1)


class Combination:
    """Builds the points of a template: the product of every term over the groups joined so far."""

    def __init__(
        self,
        space: EinsumSpace,
        template: Template,
        chains: tuple[TileChains, ...],
        found: CostTerms,
        interest: Interest,
        bound: Bound | None,
        ask: Callable[[], None] = lambda: None,
        many: int = PRUNE_ABOVE,
    ) -> None:
        """`many`: the number of points above which dominated points are dropped."""
        self.interest, self.ask, self.many = interest, ask, many
        self.space, self.template, self.chains, self.costs = space, template, chains, found
        self.bound = bound
        factors = Factors(space, template, chains)
        forms: list[Form] = [found.energy, *found.more, *found.besides, *found.times.forms]
        self.terms = parts([*forms, {t: 1.0 for t, _ in found.nodes}])
        depth = template.depth
        ones = {t: np.ones(1) for t in self.terms}
        self.points = PartialPoints(
            ones, np.ones((len(space.fanouts), 1)), np.zeros((depth, 1), np.int64), {}, 1
        )
        self.possible = all(c.count for c in chains)  # rules may leave some variable no candidate
        groups = space.groups if self.possible else ()
        self.left = list(groups)
        self.factors = {(t, g): factors.of(t, g).reshape(-1) for t in self.terms for g in groups}
        self.unequal = {g: factors.unequal(self.terms, g).reshape(-1) for g in groups}
        self.timed = interest.latency or space.leak > 0 or any(a.timed for a in space.more)
        linear = [*([found.energy] if interest.energy else []), *found.more]
        self.forms = [*linear, *(found.besides if linear else ()), *(found.times.forms if self.timed else ())]
        where = [i for i, m in enumerate(space.memories) if i in interest.memories or m.capacity < np.inf]
        self.figures = PartialFigures(
            space, template, found, self.factors, self.forms, where, interest.relaxed
        )
        self.too_large, self.thinned = 0, False  # thinned: whether dominated points were dropped
        self._extremes: dict[tuple[Extreme, int], dict[Part, float]] = {}
        self._of_group: dict[tuple[Group, Extreme], dict[Part, float]] = {}
        if not self.possible:
            self.points = self.points.only(np.zeros(0, np.int64))
        elif not self.left:
            one = self.points
            self.points = self._hopeful_of(one.paired(one, *self._fitting(one, one, 1)))

    @property
    def n(self) -> int:
        return self.points.n

    @property
    def keys(self) -> Array:
        return self.points.keys

    def add(self, group: tuple[int, ...]) -> None:
        """Combine the points with the candidates of one more group.

        Raises Late once the time limit has passed.
        """
        if not self.possible:
            return
        before, mine = self.points, self._candidates(group)
        self.left.remove(group)
        every = 1.0
        others = [g for g in self.space.groups if g != group]
        if before.n * mine.n > self.many and others:
            m = mine.n
            mine = self._undominated(mine, others)
            every = m / mine.n
        prune = bool(self.left)  # after the last group the caller compares points, with more information
        rows = max(1, BLOCK // max(mine.n, 1))
        parts: list[PartialPoints] = []
        for begin in range(0, max(before.n, 1), rows):
            self.ask()
            block = before.part(begin, begin + rows)
            part = self._hopeful_of(block.paired(mine, *self._fitting(block, mine, every)))
            if part.n > self.many and before.n > rows and prune:
                part = self._undominated(part, self.left)
            parts.append(part)
        self.points = _together(parts) if len(parts) != 1 else parts[0]
        if self.n > self.many and prune:
            self.ask()
            self.points = self._undominated(self.points, self.left)

    def _candidates(self, group: tuple[int, ...]) -> PartialPoints:
        """All candidates of one group."""
        counts = tuple(self.chains[v].count for v in group)
        m = prod(counts)
        position = dict(zip(group, np.unravel_index(np.arange(m), counts), strict=True))
        spread = [
            prod_of([self.chains[v].spread[f][p] for v, p in position.items()], m)
            for f in range(len(self.space.fanouts))
        ]
        keys = np.zeros((self.template.depth, m), np.int64)
        for k, v in enumerate(self.template.shape.prefix):
            mine = next((b for b in group if v in self.space.bundles[b]), None)
            if mine is not None:
                keys[k] = self.chains[mine].keys[k][position[mine]]
        values = {t: self.factors[t, group] for t in self.terms}
        points = PartialPoints(values, np.array(spread).reshape(-1, m), keys, position, m)
        wanted = ~self.unequal[group]
        for row, sizes in zip(keys, self.bound.sizes if self.bound is not None else (), strict=False):
            if row.any():
                wanted &= (row == 0) | np.isin(row, sizes)
        return points.only(wanted)

    def _hopeful_of(self, points: PartialPoints) -> PartialPoints:
        """Return the points that no known whole mapping excludes."""
        if self.bound is not None and points.n and points.index:
            points = points.only(self._hopeful(points, self.bound))
        return points

    def _fitting(self, some: PartialPoints, mine: PartialPoints, every: float) -> tuple[Array, Array]:
        """Return positions of the pairs that fit memories and fanouts for some choice of the other variables.

        Each pair represents `every` original pairs. This test comes first, since it leaves few pairs to
        compute.
        """
        fits = np.ones((some.n, mine.n), bool)
        for m, memory in enumerate(self.space.memories):
            if not np.isinf(memory.capacity):
                fits &= self._least_bits_of_pairs(some, mine, m) <= memory.capacity
        completions = prod(self.chains[b].count for group in self.left for b in group)
        self.too_large += int((fits.size - int(fits.sum())) * every) * completions
        # Copies use no fanout, and the region above a cut leaves fanouts to the region below it.
        above = self.space.copy or self.template.bottom
        reach = 0 if above else self.space.units[self.template.unit].fanouts
        for number, f in enumerate(self.space.fanouts):
            wide = some.spread[number][:, None] * mine.spread[number][None, :]
            fits &= wide <= f.width
            if f.least and number < reach:
                fits &= wide * self._most(number) >= f.least * f.width
        rows, columns = np.nonzero(fits)
        return rows, columns

    def _rest(self, extreme: Extreme) -> dict[Part, float]:
        """Return, per term, the smallest or largest factor that the remaining groups can contribute."""
        key = extreme, len(self.left)
        if key not in self._extremes:
            each = [self._extreme_of(g, extreme) for g in self.left]
            self._extremes[key] = {t: prod(one[t] for one in each) for t in self.terms}
        return self._extremes[key]

    def _extreme_of(self, group: Group, extreme: Extreme) -> dict[Part, float]:
        """Return the smallest or largest factor of every term along one group."""
        if (group, extreme) not in self._of_group:
            every = extreme(np.array([self.factors[t, group] for t in self.terms]), axis=1)
            self._of_group[group, extreme] = dict(zip(self.terms, every.tolist(), strict=True))
        return self._of_group[group, extreme]

    def least(self, form: Form) -> float:
        """Lower bound of a form over all ways to complete the points."""
        every = ((c, key, self._rest(np.min if c > 0 else np.max)) for key, c in form.items())
        return float(sum(c * worth(key, rest.__getitem__) for c, key, rest in every))

    def _hopeful(self, points: PartialPoints, bound: Bound) -> Array:
        """Return a mask of the points whose best completion no known whole mapping dominates."""
        known: dict[tuple[Extreme, Part], Array] = {}

        def completed(extreme: Extreme, part: Part) -> Array:
            if (extreme, part) not in known:
                known[extreme, part] = points.values[part] * self._rest(extreme)[part]
            return known[extreme, part]

        def least(form: Form) -> Array:
            result = np.zeros(points.n)
            for key, c in form.items():
                result += c * worth(key, partial(completed, np.min if c > 0 else np.max))
            return result

        latency = np.full(points.n, bound.seconds)
        if self.timed:
            times = self.costs.in_all or self.costs.times
            latency = np.maximum(times.seconds(least) * self.space.times, latency)
        energy = least(self.costs.energy) * self.space.times + self.space.leak * latency
        more = self.space.added_up([least(form) for form in self.costs.more], latency)
        peaks = [self._least_bits(points, m) for m in self.interest.buffers]
        return bound.coarser.hopeful(self.interest.figures(energy, latency, more, peaks))

    def _least_bits(self, points: PartialPoints, memory: int) -> Array:
        """Lower bounds [n] of the bits in a memory."""
        result = np.zeros(points.n)
        for t, bits in self._nodes(memory):
            result = result + points.values[t] * bits
        return result

    def _least_bits_of_pairs(self, some: PartialPoints, mine: PartialPoints, memory: int) -> Array:
        """Lower bounds [some, mine] of the bits in a memory for all pairs."""
        result = np.zeros((some.n, mine.n))
        for t, bits in self._nodes(memory):
            result += (some.values[t] * bits)[:, None] * mine.values[t][None, :]
        return result

    def _nodes(self, memory: int) -> Iterator[tuple[Term, float]]:
        """Return the terms of a memory's nodes, and the least bits per unit given the remaining groups."""
        for n, (t, bits) in zip(self.template.nodes, self.costs.nodes, strict=True):
            if n.memory == memory and not (n.shared and self.interest.relaxed):
                yield t, self._rest(np.min)[t] * bits

    def _most(self, fanout: int) -> int:
        """Return the largest number of instances that the remaining groups can use."""
        return prod(int(self.chains[b].spread[fanout].max(initial=1)) for g in self.left for b in g)

    def _undominated(self, points: PartialPoints, others: Sequence[tuple[int, ...]]) -> PartialPoints:
        """Return the points that no other point dominates, whatever the groups `others` contribute."""
        self.thinned = True
        figures = list(self.figures.of(points, others))
        if self.interest.rough:
            figures = [coarse(f, self.interest.rough) if f.min() > 0 else f for f in figures]
        figures += self._ends(points)
        # Where a minimum utilisation is required, neither more nor fewer instances are better.
        used = [n for n, f in enumerate(self.space.fanouts) if others and f.width > 1 and f.least]
        alike = np.concatenate([points.keys, points.spread[used].astype(np.int64)])
        return points.only(undominated(figures, group_numbers(alike, points.n)))

    def ends(self) -> list[Array]:
        """Return exponents of each prime in the tile that the region needs, and (negated) in the tile that it
        provides."""
        return self._ends(self.points)

    def _ends(self, points: PartialPoints) -> list[Array]:
        result: list[Array] = []
        for level, sign in ((1, 1), (-1, -1)):
            if not (self.template.top if sign > 0 else self.template.bottom):
                continue
            for v, i in sorted(points.index.items()):
                c = self.chains[v]
                result += [sign * _multiplicity(c.tiles[level], p)[i] for p in primes(c.extent)]
        return result

    def part(self, number: int) -> CombinedPoints:
        """Energy, latency and space of every point."""
        space = self.space
        latency = self.costs.times.seconds(self.form) * space.times
        local, above = self.slots()
        energy = self.energy() + space.leak * latency
        more = np.array(space.added_up([self.form(f) for f in self.costs.more], latency)).reshape(-1, self.n)
        return CombinedPoints(self.points.keys, energy, latency, more, local, above, number, self.choice())

    def distinguishing_forms(self) -> list[Array]:
        """The value of every form that matters, at every point."""
        return [self.form(f) for f in self.forms]

    def slots(self) -> tuple[Array, Array]:
        """Bits in the branch [memories, n] and above the fused loops [D, memories, n].

        Exchanged tensors are left out.
        """
        depth, memories = self.template.depth, self.interest.memories
        slots = np.zeros((depth + 1, len(memories), self.n))
        for node, (t, bits) in zip(self.template.nodes, self.costs.nodes, strict=True):
            if not node.shared and node.memory in memories:
                slots[min(node.level, depth), memories.index(node.memory)] += self.points.values[t] * bits
        return slots[depth], slots[:depth]

    def choice(self) -> Array:
        """Return the number of every point among all combinations of the variables' candidates."""
        counts = tuple(c.count for c in self.chains)
        where = tuple(self.points.index[v] for v in range(len(counts)))
        return np.ravel_multi_index(where, counts) if counts else np.zeros(self.n, np.int64)

    def energy(self) -> Array:
        """Joules of all actions, without leakage."""
        return self.form(self.costs.energy) * self.space.times

    def form(self, form: Form) -> Array:
        return self._form(form, self.points)

    def _form(self, form: Form, points: PartialPoints) -> Array:
        result = np.zeros(points.n)
        for key, c in form.items():
            result = result + worth(key, points.values.__getitem__) * c
        return result


def _together(parts: Sequence[PartialPoints]) -> PartialPoints:
    first = parts[0]
    return PartialPoints(
        {t: np.concatenate([p.values[t] for p in parts]) for t in first.values},
        np.concatenate([p.spread for p in parts], axis=1),
        np.concatenate([p.keys for p in parts], axis=1),
        {b: np.concatenate([p.index[b] for p in parts]) for b in first.index},
        sum(p.n for p in parts),
    )


@lru_cache(maxsize=4096)
def primes(n: int) -> tuple[int, ...]:
    """The primes that divide n."""
    result, p = [], 2
    while n > 1:
        if n % p == 0:
            result.append(p)
            while n % p == 0:
                n //= p
        p = p + 1 if p * p <= n else n
    return tuple(result)


def _multiplicity(values: Array, p: int) -> Array:
    """The exponent of p in each value."""
    left, result = values.copy(), np.zeros(len(values), np.int64)
    while True:
        divides = left % p == 0
        if not divides.any():
            return result
        result += divides
        left = np.where(divides, left // p, left)
