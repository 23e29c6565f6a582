"""A good mapping of one Einsum in a moment: tile sizes by local search, one template after another.

Nothing is promised of what is found but that it fits: it goes through the same join and the same evaluation
as what the search finds later. A prime factor of a bundle's extent stands in a *slot*: in the loops below a
level of the template, or in the spread over a fanout. A move takes factors of one prime from one slot to
another; moves of two bundles are looked at together, as one may need the room that the other one leaves.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import combinations
from math import inf, prod
from typing import Any

import numpy as np

from polymodel.factoring import prime_factors
from polymodel.mapper.budget import CUT
from polymodel.mapper.einsum_rules import spread_choices
from polymodel.mapper.space import EinsumSpace
from polymodel.mapper.templates import Template, TileChains, broken_rules, spread_after
from polymodel.mapper.term_factors import Factors
from polymodel.mapper.terms import Costs, Form, Part, costs, parts, worth

Array = Any
Group = tuple[int, ...]
PAIRED = 60  # moves of each of two bundles that are looked at together
LEAST = 1e-300
GAIN = 1e-9  # relative, below which a move is none
ROUNDS = 60  # moves at most from one start


@dataclass(frozen=True)
class Figures:
    """What points cost: joules, seconds, other figures that add up (`more`), bits per memory of interest
    (`private`: without exchanged tensors); `excess`: by how much they exceed memories and fanouts, 0 if
    they fit."""

    energy: Array
    latency: Array
    more: tuple[Array, ...]
    bits: tuple[Array, ...]
    private: tuple[Array, ...]
    excess: Array


Goal = Callable[[Figures], Array]


@dataclass(frozen=True)
class Found:
    """A mapping of one Einsum: its template, per bundle its tile sizes at the levels, its spread and the
    sizes below its fused loops, the exponents of its slots (`placed`), and its bits in the memories of
    interest without exchanged tensors."""

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

    @property
    def rank(self) -> tuple[float, float]:
        """What fits goes before what does not."""
        return self.excess, self.score


class Places:
    """The slots of a template: which level and which fanouts each stands below. `sizes`: tile sizes below its
    fused loops, which stay as they are."""

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
        """Per bundle the tile sizes below its own fused loops, 0 at others."""
        result = np.zeros((len(self.space.bundles), self.depth), np.int64)
        for k, (v, size) in enumerate(zip(self.template.shape.prefix, self.sizes, strict=True)):
            result[next(b for b, members in enumerate(self.space.bundles) if v in members), k] = size
        return result

    @cached_property
    def primes(self) -> tuple[tuple[tuple[int, int], ...], ...]:
        """Per bundle the primes of its extent, with how often they divide it."""
        return tuple(
            tuple(prime_factors(prod(self.space.extents[v] for v in members)).items())
            for members in self.space.bundles
        )

    def usable(self, bundle: int) -> list[int]:
        """Slots that may hold factors of a bundle."""
        wide = self.widths[bundle]
        return [*range(self.depth, self.levels), *(self.levels + f for f, w in enumerate(wide) if w != (1,))]

    def chains(self, bundle: int, placed: Array) -> TileChains:
        """The chains of exponents [primes, slots, n]."""
        base = np.array([p for p, _ in self.primes[bundle]], np.int64)[:, None, None]
        sizes = np.prod(base**placed, axis=0)  # [slots, n]
        spread = sizes[self.levels :]
        tiles = np.cumprod(sizes[: self.levels][::-1], axis=0)[::-1].copy()
        for f, position in enumerate(self.after):
            tiles[: position + 1] *= spread[f]
        extent = prod(self.space.extents[v] for v in self.space.bundles[bundle])
        return TileChains(extent, tiles, spread, np.zeros((self.depth, tiles.shape[1]), np.int64), True)

    def start(self, wide: bool) -> tuple[Array, ...]:
        """All factors above the first node, where tiles are smallest; `wide`: as many as may be in
        fanouts."""
        result = []
        left = [float(f.width) for f in self.space.fanouts]
        for b, several in enumerate(self.primes):
            placed = np.zeros((len(several), self.slots, 1), np.int64)
            fused = self._fused(b)
            for k, (p, count) in enumerate(several):
                placed[k, : self.depth, 0] = [exponents.get(p, 0) for exponents in fused]
                here = count - int(placed[k].sum())
                for f in (f for f, w in enumerate(self.widths[b]) if wide and len(w) > 1):
                    while here and left[f] >= p:
                        placed[k, self.levels + f] += 1
                        left[f], here = left[f] / p, here - 1
                placed[k, self.depth] = here
            result.append(placed)
        return tuple(result)

    def _fused(self, bundle: int) -> list[dict[int, int]]:
        """The prime factors that each fused loop takes of a bundle."""
        now, result = dict(enumerate(self.space.extents)), []
        for v, size in zip(self.template.shape.prefix, self.sizes, strict=True):
            result.append(prime_factors(now[v] // size) if v in self.space.bundles[bundle] else {})
            now[v] = size
        return result

    def moves(self, bundle: int, placed: Array) -> Array:
        """The exponents [primes, slots, n] that one move makes of these [primes, slots, 1], themselves
        first."""
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


class Descent:
    """Local search among the tile sizes of one template."""

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
        """`memories`: those of interest; `room`: bits that there are in each memory; `sizes`: tile sizes
        below the fused loops."""
        self.space, self.template, self.goal, self.memories = space, template, goal, memories
        self.room, self.ask = room, ask
        self.places = Places(space, template, sizes)
        self.costs: Costs = costs(space, template)
        forms: list[Form] = [self.costs.energy, *self.costs.more, *self.costs.times.forms]
        self.terms = parts([*forms, {t: 1.0 for t, _ in self.costs.nodes}])
        self.group_of = {b: g for g in space.groups for b in g}

    def from_(self, placed: tuple[Array, ...]) -> Found:
        """The best point that moves lead to, or that they have led to once time is over."""
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

    def _step(self, now: Found) -> Found | None:
        """The best of the moves of single bundles, else of two."""
        bundles = range(len(now.placed))
        best = now
        for some in ([(b,) for b in bundles], list(combinations(bundles, 2))):
            for chosen in some:
                self.ask()
                other = self._best_move(now, chosen)
                if _better(other, best):
                    best = other
                if best is not now and len(chosen) > 1:
                    return best
            if best is not now:
                return best
        return None

    def _best_move(self, now: Found, chosen: tuple[int, ...]) -> Found:
        several = {b: self.places.moves(b, now.placed[b]) for b in chosen}
        if len(chosen) > 1:
            several = {b: self._some(now, b, x) for b, x in several.items()}
        figures = self.figures(now.placed, several)
        score = self.goal(figures)
        fits = figures.excess <= 0
        at = int(np.argmin(np.where(fits, score, inf)) if fits.any() else np.argmin(figures.excess))
        where = np.unravel_index(at, figures.excess.shape)
        placed = list(now.placed)
        for b, k in zip(chosen, where, strict=False):
            placed[b] = several[b][:, :, k : k + 1]
        return self.point(tuple(placed))

    def _some(self, now: Found, bundle: int, moves: Array) -> Array:
        """Of many moves those that are best by themselves, whether or not they fit."""
        if moves.shape[2] <= PAIRED:
            return moves
        figures = self.figures(now.placed, {bundle: moves})
        score = self.goal(figures)[:, 0]
        room = np.argsort(figures.excess[:, 0] * 1e6 + score / max(abs(now.score), LEAST), kind="stable")
        gain = np.argsort(score, kind="stable")
        kept = np.unique(np.concatenate([[0], gain[: PAIRED // 2], room[: PAIRED // 2]]))
        result: Array = moves[:, :, kept]
        return result

    def point(self, placed: tuple[Array, ...]) -> Found:
        """One point, with its figures."""
        figures = self.figures(placed, {})
        several = [self.places.chains(b, x) for b, x in enumerate(placed)]
        levels, fans = self.places.levels, len(self.space.fanouts)
        tiles = np.array([c.tiles[:, 0] for c in several], np.int64).reshape(len(placed), levels)
        spread = np.array([c.spread[:, 0] for c in several], np.int64).reshape(len(placed), fans)
        energy, latency, excess, score = (
            float(x[0, 0]) for x in (figures.energy, figures.latency, figures.excess, self.goal(figures))
        )
        more, private = (tuple(float(x[0, 0]) for x in some) for some in (figures.more, figures.private))
        keys = self.places.keys()
        return Found(
            self.template, tiles, spread, keys, energy, latency, more, excess, score, placed, private
        )

    def figures(self, placed: tuple[Array, ...], several: Mapping[int, Array]) -> Figures:
        """Of every combination of `several` exponents of up to two bundles [n, m], the others as `placed`."""
        chains = tuple(self.places.chains(b, several.get(b, x)) for b, x in enumerate(placed))
        counts = [several[b].shape[2] for b in several]
        axes = {b: k for k, b in enumerate(several)}
        shape = (*counts, *([1] * (2 - len(counts))))
        made = Factors(self.space, self.template, chains)
        values = {t: self._value(made, t, axes, shape) for t in self.terms}
        seconds = self.costs.times.seconds(lambda form: _form(form, values, shape))
        latency = seconds * self.space.times
        energy = _form(self.costs.energy, values, shape) * self.space.times + self.space.leak * latency
        linear = [_form(form, values, shape) for form in self.costs.more]
        more = tuple(self.space.added_up(linear, latency))
        private, shared = self._held(values, shape, False), self._held(values, shape, True)
        held = [a + b for a, b in zip(private, shared, strict=True)]
        excess = self._unfit(chains, axes, shape)
        for filled, room in zip(held, self.room, strict=True):
            if room < inf:
                excess = excess + np.maximum(filled / max(room, LEAST) - 1, 0)
        bits, apart = (tuple(x[m] for m in self.memories) for x in (held, private))
        return Figures(energy, latency, more, bits, apart, excess)

    def _value(self, made: Factors, term: Part, axes: Mapping[int, int], shape: tuple[int, ...]) -> Array:
        result = np.ones(shape)
        for group in self.space.groups:
            factor = made.of(term, group)
            mine = [b for b in group if b in axes]
            factor = factor.reshape([factor.shape[group.index(b)] for b in mine] or [1])
            if len(mine) == 2 and axes[mine[0]] > axes[mine[1]]:
                factor = factor.T
            if len(mine) == 1:
                factor = _along(factor, axes[mine[0]])
            result = result * factor
        return result

    def _held(self, values: Mapping[Part, Array], shape: tuple[int, ...], shared: bool) -> list[Array]:
        """Bits in every memory, of exchanged tensors or of the others."""
        result = [np.zeros(shape) for _ in self.space.memories]
        for node, (term, bits) in zip(self.template.nodes, self.costs.nodes, strict=True):
            if node.shared == shared:
                result[node.memory] = result[node.memory] + values[term] * bits
        return result

    def _unfit(self, chains: Sequence[TileChains], axes: Mapping[int, int], shape: tuple[int, ...]) -> Array:
        """By how much fanouts are too narrow, or used too little."""
        result = np.zeros(shape)
        reach = 0 if self.space.copy else self.space.units[self.template.unit].fanouts
        for f, fanout in enumerate(self.space.fanouts):
            used = np.ones(shape)
            for b, c in enumerate(chains):
                used = used * _along(c.spread[f].astype(float), axes.get(b, 0))
            result = result + np.maximum(used / fanout.width - 1, 0)
            if fanout.least and f < reach:
                result = result + np.maximum(fanout.least * fanout.width / used - 1, 0)
        for b, c in enumerate(chains):
            broken = broken_rules(self.space, self.template, self.space.bundles[b][0], c)
            for row, admitted in zip(c.spread, self.places.widths[b], strict=True):
                broken = broken + ~np.isin(row, admitted)
            result = result + _along(broken.astype(float), axes.get(b, 0))
        return result


def _along(row: Array, axis: int) -> Array:
    return row[:, None] if axis == 0 else row[None, :]


class Stopped(Exception):
    """Time is over; `found`: the best so far."""

    def __init__(self, found: Found) -> None:
        super().__init__()
        self.found = found


def _form(form: Form, values: Mapping[Part, Array], shape: tuple[int, ...]) -> Array:
    result = np.zeros(shape)
    for key, c in form.items():
        result = result + worth(key, values.__getitem__) * c
    return result


def _better(one: Found, other: Found) -> bool:
    if one.excess > 0 or other.excess > 0:
        return one.excess < other.excess - GAIN
    return one.score < other.score - GAIN * abs(other.score)
