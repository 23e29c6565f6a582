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

from polymodel.explore.bounds import Bound
from polymodel.explore.combine import Combination, Interest, Part, group_numbers
from polymodel.explore.records import Limits
from polymodel.explore.space import EinsumSpace
from polymodel.explore.templates import Passing, Shape, Template, templates
from polymodel.explore.terms import costs
from polymodel.explore.tilechains import tile_chains
from polymodel.explore.undominated import undominated

Array = Any


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
    passing: Passing,
    depth: int,
    tally: Tally,
    bound: Bound | None = None,
    going_on: Callable[[], bool] = lambda: True,
) -> tuple[Pmappings, ...]:
    """Every shape of so many fused loops, its pmappings without those that others or `bound` beat.

    Without fused loops the space of exchanged tensors is left to the join, so that the least energy and
    latency are bounds for any number of fused loops. `going_on` is asked before each template.
    """
    by_shape: dict[Shape, list[Template]] = {}
    for t in templates(space, limits, passing, depth):
        by_shape.setdefault(t.shape, []).append(t)
    found: list[Pmappings] = []
    for shape, some in by_shape.items():
        parts = []
        for number, template in enumerate(some):
            if not going_on():
                return tuple(found)
            tally.templates += 1
            part = _evaluated(space, template, number, limits, interest, tally, bound)
            if part is not None:
                parts.append(part)
        if parts:
            merged = _merged(space, shape, tuple(some), parts, limits, interest)
            tally.kept += len(merged)
            found.append(merged)
    return tuple(found)


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


def _evaluated(
    space: EinsumSpace,
    template: Template,
    number: int,
    limits: Limits,
    interest: Interest,
    tally: Tally,
    bound: Bound | None,
) -> Part | None:
    """The undominated points of one template; None if none fits."""
    chains = tuple(tile_chains(space, template, v, limits.sizes) for v in range(len(space.variables)))
    tally.points += prod(c.count for c in chains)
    found = costs(space, template)
    joined = Combination(space, template, chains, found, interest, bound)
    for group in sorted(space.groups, key=lambda g: prod(chains[v].count for v in g)):
        joined.add(group)
    tally.too_large += joined.too_large
    if not joined.n:
        return None
    part = joined.part(number)
    groups = group_numbers(part.keys, len(part.energy))
    kept = undominated(part.figures(interest), groups)
    return Part(
        part.keys[:, kept], part.energy[kept], part.latency[kept], part.local[:, kept],
        part.above[:, :, kept], number, part.choice[kept],
    )  # fmt: skip


def equal_shapes(spaces: Sequence[EinsumSpace], keys: Sequence[object]) -> Iterator[tuple[int, int]]:
    """(Einsum, the first one of equal shape and key)."""
    first: dict[object, int] = {}
    for i, (s, key) in enumerate(zip(spaces, keys, strict=True)):
        yield i, first.setdefault((s.shape, key), i)
