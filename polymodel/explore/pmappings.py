"""The mappings of one Einsum that can be part of a best whole mapping (pmappings), per shape.

Candidates of the rank variables are joined group by group; after each join those go that exceed a memory,
and those that another one beats in every product so far. Nothing that is left out can be on a front: all
costs grow with all products (a product that lowers a cost must be equal).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from math import prod
from typing import Any

import numpy as np

from polymodel.explore.records import Limits
from polymodel.explore.space import EinsumSpace
from polymodel.explore.templates import Shape, Template, templates
from polymodel.explore.terms import Costs, Factors, Form, Term, costs
from polymodel.explore.tilechains import TileChains, tile_chains
from polymodel.explore.undominated import undominated

Array = Any
PRUNE_ABOVE = 20_000


@dataclass(frozen=True)
class Interest:
    """What later steps look at: energy, latency, and which memories (positions) hold tiles of several
    Einsums or are an objective."""

    energy: bool
    latency: bool
    memories: tuple[int, ...]


@dataclass(frozen=True)
class Pmappings:
    """The pmappings of one Einsum and shape. `keys` [D, n]: tile sizes below the fused loops. `energy` (J),
    `latency` (s), `local` [memories, n] and `above` [D, memories, n] (bits) in the branch and at the slots
    above fused loops, without exchanged tensors; memories are those of `Interest`. `template` [n] numbers
    `templates`, `choice` [n] the point among the template's."""

    space: EinsumSpace
    shape: Shape
    keys: Array
    energy: Array
    latency: Array
    local: Array
    above: Array
    templates: tuple[Template, ...]
    template: Array
    choice: Array
    sizes: str

    def __len__(self) -> int:
        return len(self.energy)

    def only(self, positions: Array) -> Pmappings:
        return replace(
            self,
            keys=self.keys[:, positions],
            energy=self.energy[positions],
            latency=self.latency[positions],
            local=self.local[:, positions],
            above=self.above[:, :, positions],
            template=self.template[positions],
            choice=self.choice[positions],
        )

    def tiles(self, position: int) -> tuple[Template, Array, Array]:
        """A point's template, its tile sizes [variables, levels] and its spread [variables, fanouts]."""
        template = self.templates[int(self.template[position])]
        found = [tile_chains(self.space, template, v, self.sizes) for v in range(len(self.space.variables))]
        chosen = np.unravel_index(int(self.choice[position]), tuple(c.count for c in found)) if found else ()
        tiles = np.array([c.tiles[:, k] for c, k in zip(found, chosen, strict=True)])
        spread = np.array([c.spread[:, k] for c, k in zip(found, chosen, strict=True)])
        return template, tiles, spread


@dataclass
class Tally:
    """How much was looked at."""

    templates: int = 0
    points: int = 0
    kept: int = 0
    too_large: int = 0


def pmappings(
    space: EinsumSpace,
    limits: Limits,
    interest: Interest,
    passing: bool,
    tally: Tally,
    going_on: Callable[[], bool] = lambda: True,
) -> tuple[Pmappings, ...]:
    """Every shape with its undominated pmappings. `going_on` is asked before each template."""
    by_shape: dict[Shape, list[Template]] = {}
    for t in templates(space, limits, passing):
        by_shape.setdefault(t.shape, []).append(t)
    found: list[Pmappings] = []
    for shape, some in by_shape.items():
        parts = []
        for number, template in enumerate(some):
            if not going_on():
                return tuple(found)
            tally.templates += 1
            part = _evaluated(space, template, number, limits, interest, tally)
            if part is not None:
                parts.append(part)
        if parts:
            merged = _merged(space, shape, tuple(some), parts, limits, interest)
            tally.kept += len(merged)
            found.append(merged)
    return tuple(found)


@dataclass(frozen=True)
class Part:
    keys: Array
    energy: Array
    latency: Array
    local: Array
    above: Array
    number: int
    choice: Array

    def figures(self, interest: Interest) -> list[Array]:
        found = [self.energy] if interest.energy else []
        found += [self.latency] if interest.latency else []
        return [*found, *self.local, *(row for slot in self.above for row in slot)]


def _merged(
    space: EinsumSpace,
    shape: Shape,
    some: tuple[Template, ...],
    parts: Sequence[Part],
    limits: Limits,
    interest: Interest,
) -> Pmappings:
    def joined(name: str) -> Array:
        return np.concatenate([getattr(p, name) for p in parts], axis=-1)

    number = np.concatenate([np.full(len(p.energy), p.number) for p in parts])
    whole = Pmappings(
        space, shape, joined("keys"), joined("energy"), joined("latency"), joined("local"), joined("above"),
        some, number, joined("choice"), limits.sizes,
    )  # fmt: skip
    figures = Part(
        whole.keys, whole.energy, whole.latency, whole.local, whole.above, 0, whole.choice
    ).figures(interest)
    return whole.only(undominated(figures, group_numbers(whole.keys, len(number))))


def group_numbers(keys: Array, n: int) -> Array:
    """Equal columns get equal numbers."""
    if not len(keys):
        return np.zeros(n, np.int64)
    if len(keys) == 1:
        return keys[0]
    return np.unique(keys, axis=1, return_inverse=True)[1].reshape(-1)


def _evaluated(
    space: EinsumSpace, template: Template, number: int, limits: Limits, interest: Interest, tally: Tally
) -> Part | None:
    """The undominated points of one template; None if none fits."""
    chains = tuple(tile_chains(space, template, v, limits.sizes) for v in range(len(space.variables)))
    tally.points += prod(c.count for c in chains)
    found = costs(space, template)
    joined = _Join(space, template, chains, found)
    for group in sorted(space.groups, key=lambda g: prod(chains[v].count for v in g)):
        joined.add(group)
    tally.too_large += joined.too_large
    if not joined.n:
        return None
    part = joined.part(number, interest)
    groups = group_numbers(part.keys, len(part.energy))
    kept = undominated(part.figures(interest), groups)
    return Part(
        part.keys[:, kept], part.energy[kept], part.latency[kept], part.local[:, kept],
        part.above[:, :, kept], number, part.choice[kept],
    )  # fmt: skip


class _Join:
    """Partial candidates: the product of every term over the groups joined so far."""

    def __init__(
        self, space: EinsumSpace, template: Template, chains: tuple[TileChains, ...], found: Costs
    ) -> None:
        self.space, self.template, self.chains, self.costs = space, template, chains, found
        self.factors = Factors(space, chains)
        forms: list[Form] = [found.energy, *(form for _, form, _ in found.times)]
        terms = {t: None for form in forms for t in form}
        terms.update({t: None for t, _ in found.nodes})
        self.terms = tuple(terms)
        self.signed = {t for form in forms for t, c in form.items() if c < 0}
        self.values: dict[Term, Array] = {t: np.ones(1) for t in self.terms}
        self.spread: list[Array] = [np.ones(1) for _ in space.fanouts]
        self.keys: Array = np.zeros((template.depth, 1), np.int64)
        self.index: dict[int, Array] = {}
        self.left = list(space.groups)
        self.n = 1
        self.too_large = 0

    def add(self, group: tuple[int, ...]) -> None:
        """Combine with the candidates of another group of rank variables."""
        counts = tuple(self.chains[v].count for v in group)
        m = prod(counts)
        self.left.remove(group)

        def outer(a: Array, b: Array, times: bool = True) -> Array:
            return (a[:, None] * b[None, :] if times else a[:, None] + b[None, :]).reshape(-1)

        one = np.zeros(m, np.int64)
        for t in self.terms:
            self.values[t] = outer(self.values[t], self.factors.of(t, group).reshape(-1))
        position = np.unravel_index(np.arange(m), counts)
        for f in range(len(self.space.fanouts)):
            wide = prod_of([self.chains[v].spread[f][p] for v, p in zip(group, position, strict=True)], m)
            self.spread[f] = outer(self.spread[f], wide)
        keys = np.zeros((self.template.depth, self.n * m), np.int64)
        for k, v in enumerate(self.template.shape.prefix):
            size = self.chains[v].tiles[k + 1][position[group.index(v)]] if v in group else one
            keys[k] = outer(self.keys[k], size, times=False)
        self.keys = keys
        self.index = {v: np.repeat(i, m) for v, i in self.index.items()}
        for v, p in zip(group, position, strict=True):
            self.index[v] = np.tile(p, self.n)
        self.n *= m
        self._keep(self._fitting())
        if self.n > PRUNE_ABOVE and self.left:
            self._keep(self._undominated())

    def _fitting(self) -> Array:
        """Points that no memory and no fanout rules out, whatever the other variables do."""
        fits = np.ones(self.n, bool)
        least = {t: prod(float(self.factors.of(t, g).min()) for g in self.left) for t, _ in self.costs.nodes}
        for m, memory in enumerate(self.space.memories):
            if np.isinf(memory.capacity):
                continue
            held = [
                (t, bits)
                for n, (t, bits) in zip(self.template.nodes, self.costs.nodes, strict=True)
                if n.memory == m
            ]
            if held:
                fits &= sum(self.values[t] * (least[t] * bits) for t, bits in held) <= memory.capacity
        self.too_large += int(self.n - fits.sum())
        for f, wide in zip(self.space.fanouts, self.spread, strict=True):
            fits &= wide <= f.width
            if f.least and not self.left:
                fits &= wide >= f.least * f.width
        return fits

    def _undominated(self) -> Array:
        figures = []
        for t in self.terms:
            figures.append(self.values[t])
            if t in self.signed:
                figures.append(-self.values[t])
        for f, wide in zip(self.space.fanouts, self.spread, strict=True):
            if f.width > 1:
                figures.append(wide)
                if f.least:
                    figures.append(-wide)
        return undominated(figures, group_numbers(self.keys, self.n))

    def _keep(self, which: Array) -> None:
        if which.dtype == bool and which.all():
            return
        self.values = {t: v[which] for t, v in self.values.items()}
        self.spread = [w[which] for w in self.spread]
        self.keys = self.keys[:, which]
        self.index = {v: i[which] for v, i in self.index.items()}
        self.n = self.keys.shape[1] if len(self.keys) else len(next(iter(self.values.values())))

    def part(self, number: int, interest: Interest) -> Part:
        """Energy, latency and space of every point."""
        space = self.space
        energy = self._form(self.costs.energy) * space.times
        latency = np.zeros(self.n)
        for _, form, fixed in self.costs.times:
            latency = np.maximum(latency, self._form(form) + fixed)
        latency = latency * space.times
        depth = self.template.depth
        slots = np.zeros((depth + 1, len(interest.memories), self.n))
        for node, (t, bits) in zip(self.template.nodes, self.costs.nodes, strict=True):
            if not node.shared and node.memory in interest.memories:
                slots[min(node.level, depth), interest.memories.index(node.memory)] += self.values[t] * bits
        counts = tuple(c.count for c in self.chains)
        where = tuple(self.index[v] for v in range(len(counts)))
        choice = np.ravel_multi_index(where, counts) if counts else np.zeros(self.n, np.int64)
        energy = energy + space.leak * latency
        return Part(self.keys, energy, latency, slots[depth], slots[:depth], number, choice)

    def _form(self, form: Form) -> Array:
        found = np.zeros(self.n)
        for t, c in form.items():
            found = found + self.values[t] * c
        return found


def prod_of(arrays: Sequence[Array], n: int) -> Array:
    found = np.ones(n)
    for a in arrays:
        found = found * a
    return found


def equal_shapes(spaces: Sequence[EinsumSpace]) -> Iterator[tuple[int, int]]:
    """(Einsum, the first one of equal shape)."""
    first: dict[object, int] = {}
    for i, s in enumerate(spaces):
        yield i, first.setdefault(s.shape, i)
