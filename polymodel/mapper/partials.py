"""Partial candidates of one template, and what later steps can tell of them.

Two terms with proportional factors in all groups that are still to come stay proportional. So only their sum
counts in every figure (energy, the seconds of a port, the bits of a memory), and points are compared by few
sums rather than by every term.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from polymodel.mapper.space import EinsumSpace
from polymodel.mapper.templates import Template
from polymodel.mapper.terms import Costs, Form, Term

Array = Any
Group = tuple[int, ...]


@dataclass(frozen=True)
class Points:
    """`values`: the product of each term so far [n]; `spread` [fanouts, n]: instances in use; `keys` [D, n]:
    tile sizes below the fused loops, 0 if not chosen yet; `index`: per bundle the candidate [n]."""

    values: Mapping[Term, Array]
    spread: Array
    keys: Array
    index: Mapping[int, Array]
    n: int

    def only(self, which: Array) -> Points:
        """Those at these positions (or where it is True)."""
        if which.dtype == bool:
            if which.all():
                return self
            which = np.flatnonzero(which)
        return Points(
            {t: v[which] for t, v in self.values.items()},
            self.spread[:, which],
            self.keys[:, which],
            {b: i[which] for b, i in self.index.items()},
            len(which),
        )

    def between(self, begin: int, end: int) -> Points:
        """Those from one position to another."""
        some = slice(begin, end)
        return Points(
            {t: v[some] for t, v in self.values.items()},
            self.spread[:, some],
            self.keys[:, some],
            {b: i[some] for b, i in self.index.items()},
            max(0, min(end, self.n) - begin),
        )

    def paired(self, other: Points, mine: Array, theirs: Array) -> Points:
        """Pairs of points, by their positions [n] here and there."""
        return Points(
            {t: v[mine] * other.values[t][theirs] for t, v in self.values.items()},
            self.spread[:, mine] * other.spread[:, theirs],
            self.keys[:, mine] + other.keys[:, theirs],
            {b: i[mine] for b, i in self.index.items()} | {b: i[theirs] for b, i in other.index.items()},
            len(mine),
        )


class Figures:
    """The figures that a template's points are compared by."""

    def __init__(
        self,
        space: EinsumSpace,
        template: Template,
        costs: Costs,
        factors: Mapping[tuple[Term, Group], Array],
        forms: Sequence[Form],
        memories: Sequence[int],
        relaxed: bool,
    ) -> None:
        """`forms`: those that grow with energy or latency, as far as these matter; `memories`: those whose
        space matters."""
        self.space, self.template = space, template
        self.scaled = {key: _scaled(f) for key, f in factors.items()}
        self.forms = [*forms, *_held(template, costs, memories, relaxed)]

    def of(self, points: Points, others: Sequence[Group]) -> Iterator[Array]:
        """Smaller is better in every one [n]; `others`: the groups that are not among the points'."""
        alike: dict[Term, tuple[tuple[bytes, ...], float]] = {}
        for form in self.forms:
            sums: dict[tuple[bytes, ...], Array] = {}
            for t, c in form.items():
                if t not in alike:
                    some = [self.scaled[t, g] for g in others]
                    alike[t] = tuple(b for b, _ in some), float(np.prod([s for _, s in some]))
                kind, scale = alike[t]
                value = points.values[t] * (c * scale)
                sums[kind] = sums[kind] + value if kind in sums else value
            yield from sums.values()
        if others:
            for f, wide in zip(self.space.fanouts, points.spread, strict=True):
                if f.width > 1:
                    yield wide
                    if f.least:
                        yield -wide


def _scaled(factor: Array) -> tuple[bytes, float]:
    """A factor but for its scale, and the scale."""
    scale = float(factor[0]) if len(factor) and factor[0] else 1.0
    return (factor / scale).tobytes(), scale


def _held(template: Template, costs: Costs, memories: Sequence[int], relaxed: bool) -> list[Form]:
    """Bits in each memory, apart for every slot, and for exchanged tensors."""
    found: dict[tuple[int, int, bool], Form] = {}
    for n, (t, bits) in zip(template.nodes, costs.nodes, strict=True):
        if n.memory in memories and not (n.shared and relaxed):
            form = found.setdefault((n.memory, min(n.level, template.depth), n.shared), {})
            form[t] = form.get(t, 0.0) + bits
    return list(found.values())
