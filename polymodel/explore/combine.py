"""Points of one template: the candidates of its rank variables, combined group by group.

After each step those go that exceed a memory or a fanout, that a known whole mapping rules out, and, where
many are left, those that another one beats in every product so far.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from math import prod
from typing import Any

import numpy as np

from polymodel.explore.bounds import Bound
from polymodel.explore.space import EinsumSpace
from polymodel.explore.templates import Template
from polymodel.explore.terms import Costs, Factors, Form, Term
from polymodel.explore.tilechains import TileChains
from polymodel.explore.undominated import undominated

Array = Any
PRUNE_ABOVE = 20_000


@dataclass(frozen=True)
class Interest:
    """What later steps look at: energy, latency, and which memories (positions) hold tiles of several
    Einsums or are an objective; `buffers`: positions of the latter; `relaxed`: exchanged tensors take no
    space. `eps`: share by which energy and latency may be above those of points that are left out; `rough`:
    by which all figures may (a first guess)."""

    energy: bool
    latency: bool
    memories: tuple[int, ...]
    buffers: tuple[int, ...] = ()
    relaxed: bool = False
    eps: float = 0.0
    rough: float = 0.0

    def figures(self, energy: Array, latency: Array, peaks: Sequence[Array]) -> list[Array]:
        """The objectives' figures of points: energy and latency, as far as wanted, then peaks."""
        found = [energy] if self.energy else []
        return [*found, *([latency] if self.latency else []), *peaks]

    def compared(
        self, energy: Array, latency: Array, peaks: Sequence[Array], space: Sequence[Array]
    ) -> list[Array]:
        """The same and what takes space, as far as they are told apart."""
        objectives = self.figures(energy, latency, peaks)
        if self.rough:
            return [coarse(f, self.rough) for f in (*objectives, *space)]
        if self.eps:
            objectives = [coarse(f, self.eps) for f in objectives]
        return [*objectives, *space]


@dataclass(frozen=True)
class Part:
    """Points of one template: see `Pmappings`. `below`: positions in the lower region, if there is one."""

    keys: Array
    energy: Array
    latency: Array
    local: Array
    above: Array
    number: int
    choice: Array
    lower: int = -1
    below: Array | None = None

    def figures(self, interest: Interest) -> list[Array]:
        space = [*self.local, *(row for slot in self.above for row in slot)]
        return interest.compared(self.energy, self.latency, (), space)

    def only(self, kept: Array) -> Part:
        return replace(
            self,
            keys=self.keys[:, kept],
            energy=self.energy[kept],
            latency=self.latency[kept],
            local=self.local[:, kept],
            above=self.above[:, :, kept],
            choice=self.choice[kept],
            below=None if self.below is None else self.below[kept],
        )

    def undominated(self, interest: Interest) -> Part:
        return self.only(undominated(self.figures(interest), group_numbers(self.keys, len(self.energy))))


def coarse(figure: Array, eps: float) -> Array:
    """Figures by the cell of a logarithmic grid they lie in."""
    with np.errstate(divide="ignore"):
        found: Array = np.floor(np.log(figure) / np.log1p(eps))
    return found


def group_numbers(keys: Array, n: int) -> Array:
    """Equal columns get equal numbers."""
    if not len(keys):
        return np.zeros(n, np.int64)
    if len(keys) == 1:
        return keys[0]
    return np.unique(keys, axis=1, return_inverse=True)[1].reshape(-1)


class Combination:
    """Partial candidates: the product of every term over the groups joined so far."""

    def __init__(
        self,
        space: EinsumSpace,
        template: Template,
        chains: tuple[TileChains, ...],
        found: Costs,
        interest: Interest,
        bound: Bound | None,
    ) -> None:
        self.interest = interest
        self.space, self.template, self.chains, self.costs = space, template, chains, found
        self.bound = bound
        factors = Factors(space, chains)
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
        self.factors = {(t, g): factors.of(t, g).reshape(-1) for t in self.terms for g in space.groups}
        self.n = 1
        self.too_large = 0
        if not self.left:
            self._keep(self._fitting())

    def add(self, group: tuple[int, ...]) -> None:
        """Combine with the candidates of another group of rank variables."""
        counts = tuple(self.chains[v].count for v in group)
        m = prod(counts)
        self.left.remove(group)

        def outer(a: Array, b: Array, times: bool = True) -> Array:
            return (a[:, None] * b[None, :] if times else a[:, None] + b[None, :]).reshape(-1)

        one = np.zeros(m, np.int64)
        for t in self.terms:
            self.values[t] = outer(self.values[t], self.factors[t, group])
        position = np.unravel_index(np.arange(m), counts)
        for f in range(len(self.space.fanouts)):
            wide = prod_of([self.chains[v].spread[f][p] for v, p in zip(group, position, strict=True)], m)
            self.spread[f] = outer(self.spread[f], wide)
        keys = np.zeros((self.template.depth, self.n * m), np.int64)
        for k, v in enumerate(self.template.shape.prefix):
            mine = next((b for b in group if v in self.space.bundles[b]), None)
            size = one if mine is None else self.chains[mine].keys[k][position[group.index(mine)]]
            keys[k] = outer(self.keys[k], size, times=False)
        self.keys = keys
        self.index = {v: np.repeat(i, m) for v, i in self.index.items()}
        for v, p in zip(group, position, strict=True):
            self.index[v] = np.tile(p, self.n)
        self.n *= m
        self._keep(self._fitting())
        if self.bound is not None and self.n:
            self._keep(self._hopeful(self.bound))
        if self.n > PRUNE_ABOVE and self.left:
            self._keep(self._undominated())

    def _fitting(self) -> Array:
        """Points that no memory and no fanout rules out, whatever the other variables do."""
        fits = np.ones(self.n, bool)
        for m, memory in enumerate(self.space.memories):
            if not np.isinf(memory.capacity):
                fits &= self._held(m) <= memory.capacity
        completions = prod(self.chains[b].count for group in self.left for b in group)
        self.too_large += int(self.n - fits.sum()) * completions
        # Copies use no fanout, and the region above a cut leaves them to the one below.
        above = self.space.copy or self.template.bottom
        reach = 0 if above else self.space.units[self.template.unit].fanouts
        for number, (f, wide) in enumerate(zip(self.space.fanouts, self.spread, strict=True)):
            fits &= wide <= f.width
            if f.least and not self.left and number < reach:
                fits &= wide >= f.least * f.width
        return fits

    def _rest(self, term: Term, extreme: Callable[[Array], Any]) -> float:
        """The smallest or largest factor that the groups not joined yet can give."""
        return prod(float(extreme(self.factors[term, g])) for g in self.left)

    def _hopeful(self, bound: Bound) -> Array:
        """Points whose best completion no known whole mapping beats."""

        def least(form: Form) -> Array:
            found = np.zeros(self.n)
            for t, c in form.items():
                found = found + self.values[t] * (c * self._rest(t, np.min if c > 0 else np.max))
            return found

        latency = np.zeros(self.n)
        for _, form, fixed in self.costs.times:
            latency = np.maximum(latency, least(form) + fixed)
        latency = latency * self.space.times
        energy = least(self.costs.energy) * self.space.times + self.space.leak * latency
        peaks = [self._held(m) for m in self.interest.buffers]
        return bound.hopeful(self.interest.figures(energy, latency, peaks))

    def _held(self, memory: int) -> Array:
        """The least bits in a memory."""
        found = np.zeros(self.n)
        for n, (t, bits) in zip(self.template.nodes, self.costs.nodes, strict=True):
            if n.memory == memory and not (n.shared and self.interest.relaxed):
                found = found + self.values[t] * (self._rest(t, np.min) * bits)
        return found

    def _undominated(self) -> Array:
        figures = []
        for t in self.terms:
            figures.append(self.values[t])
            if t in self.signed:
                figures.append(-self.values[t])
        figures += self.ends()
        for f, wide in zip(self.space.fanouts, self.spread, strict=True):
            if f.width > 1:
                figures.append(wide)
                if f.least:
                    figures.append(-wide)
        return undominated(figures, group_numbers(self.keys, self.n))

    def ends(self) -> list[Array]:
        """How often each prime divides the tile that the region needs, and those that it gives (negative)."""
        found: list[Array] = []
        for level, sign in ((1, 1), (-1, -1)):
            if not (self.template.top if sign > 0 else self.template.bottom):
                continue
            for v, i in sorted(self.index.items()):
                c = self.chains[v]
                found += [sign * _multiplicity(c.tiles[level], p)[i] for p in primes(c.extent)]
        return found

    def _keep(self, which: Array) -> None:
        if which.dtype == bool and which.all():
            return
        self.values = {t: v[which] for t, v in self.values.items()}
        self.spread = [w[which] for w in self.spread]
        self.keys = self.keys[:, which]
        self.index = {v: i[which] for v, i in self.index.items()}
        self.n = int(which.sum()) if which.dtype == bool else len(which)

    def part(self, number: int) -> Part:
        """Energy, latency and space of every point."""
        space = self.space
        latency = np.zeros(self.n)
        for _, form, fixed in self.costs.times:
            latency = np.maximum(latency, self.form(form) + fixed)
        latency = latency * space.times
        local, above = self.slots()
        energy = self.energy() + space.leak * latency
        return Part(self.keys, energy, latency, local, above, number, self.choice())

    def slots(self) -> tuple[Array, Array]:
        """Bits [memories, n] in the branch, and [D, memories, n] above the fused loops, without exchanges."""
        depth, memories = self.template.depth, self.interest.memories
        slots = np.zeros((depth + 1, len(memories), self.n))
        for node, (t, bits) in zip(self.template.nodes, self.costs.nodes, strict=True):
            if not node.shared and node.memory in memories:
                slots[min(node.level, depth), memories.index(node.memory)] += self.values[t] * bits
        return slots[depth], slots[:depth]

    def choice(self) -> Array:
        """The number of every point among all combinations of the variables' candidates."""
        counts = tuple(c.count for c in self.chains)
        where = tuple(self.index[v] for v in range(len(counts)))
        return np.ravel_multi_index(where, counts) if counts else np.zeros(self.n, np.int64)

    def energy(self) -> Array:
        """Joules of all actions, without leakage."""
        return self.form(self.costs.energy) * self.space.times

    def form(self, form: Form) -> Array:
        found = np.zeros(self.n)
        for t, c in form.items():
            found = found + self.values[t] * c
        return found


@lru_cache(maxsize=4096)
def primes(n: int) -> tuple[int, ...]:
    """The primes that divide n."""
    found, p = [], 2
    while n > 1:
        if n % p == 0:
            found.append(p)
            while n % p == 0:
                n //= p
        p = p + 1 if p * p <= n else n
    return tuple(found)


def _multiplicity(values: Array, p: int) -> Array:
    """How often p divides each value."""
    left, found = values.copy(), np.zeros(len(values), np.int64)
    while True:
        divides = left % p == 0
        if not divides.any():
            return found
        found += divides
        left = np.where(divides, left // p, left)


def prod_of(arrays: Sequence[Array], n: int) -> Array:
    found = np.ones(n)
    for a in arrays:
        found = found * a
    return found
