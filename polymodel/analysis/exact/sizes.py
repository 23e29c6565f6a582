"""Sizes of transfers: what one stamp moves is a signed sum of products of sets, so is its size of numbers.

Per factor the stamps fall into few classes of equal sizes (interior and edge tiles; what is touched and what
of it stays); products of classes over the factors give every transfer.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass

from polymodel.analysis.exact.buffets import shape_of
from polymodel.analysis.exact.cached_counts import Array, Product
from polymodel.analysis.exact.transfers import modes
from polymodel.analysis.exact.uneven import Term
from polymodel.errors import Refused
from polymodel.polyhedra import sets, steps
from polymodel.polyhedra.needs import size_classes
from polymodel.schedule.touch import Factor, Touch

Parts = tuple[tuple[tuple[int, ...], Array], ...]
Sized = tuple[tuple[int, Product], ...]  # (elements of one transfer, how many per instance)
LIMIT = 20_000


@dataclass(frozen=True)
class Cut:
    """Whose transfers are asked for: instances of the first `charge` axes; `shared` axes move together."""

    charge: int
    shared: frozenset[int]

    def keep(self, factor: Factor) -> int:
        return sum(1 for a in factor.spatial if a < self.charge)

    def drop(self, factor: Factor) -> tuple[int, ...]:
        return tuple(k for k, a in enumerate(factor.spatial) if a >= self.charge and a in self.shared)


def moving_terms(now: Touch, held: Touch, carries: frozenset[int], cut: Cut, forward: bool) -> list[Term]:
    """The same elements that `transfers.moved` counts, as sets of (stamp of a transfer, element)."""
    whole = [sets.without(sets.parse_set(f.text), cut.drop(f)) for f in now.factors]
    found = [Term(1, tuple(whole))]
    for axis in sorted(carries):
        seen = modes(held.factors, axis)
        if seen is None:
            continue
        stay = []
        for f, h, mode in zip(now.factors, held.factors, seen, strict=True):
            shape = shape_of(f)
            candidates, kept = steps.kept(shape.text, h.text, shape.np, shape.nt, mode, forward)
            stay.append(steps.united(candidates, kept, cut.drop(f)) if cut.drop(f) else kept)
        found.append(Term(-1, tuple(stay)))
    return found


def projected(terms: Sequence[Term], factors: tuple[Factor, ...], cut: Cut) -> list[Term]:
    """Terms over single instances, united over those that move together."""
    return [
        Term(t.sign, tuple(sets.without(s, cut.drop(f)) for s, f in zip(t.factors, factors, strict=True)))
        for t in terms
    ]


def sized(terms: Sequence[Term], factors: tuple[Factor, ...], cut: Cut) -> Sized:
    """The transfers by size, per instance that is charged; those of no element are left out."""
    terms = [t for t in terms if not any(s.is_empty() for s in t.factors)]
    counts: dict[tuple[int, ...], int] = {(1,) * len(terms): 1}  # over factors without own instances
    spread: list[tuple[tuple[int, ...], Parts]] = [((1,) * len(terms), ())]
    for k, f in enumerate(factors):
        keep, stamps = cut.keep(f), len(f.spatial) - len(cut.drop(f)) + len(f.temporal)
        classes = size_classes([t.factors[k] for t in terms], stamps, keep)
        if keep:
            axes = f.spatial[:keep]
            spread = [
                (_times(one, two), (*parts, (axes, array))) for one, parts in spread for two, array in classes
            ]
        else:
            grown: dict[tuple[int, ...], int] = defaultdict(int)
            for one, n in counts.items():
                for two, array in classes:
                    grown[_times(one, two)] += n * int(array[()])
            counts = {sizes: n for sizes, n in grown.items() if any(sizes)}
        if len(spread) * len(counts) > LIMIT:
            raise Refused(
                "transfers that are rounded up to whole actions have too many different sizes",
                "give bits_per_action that divide bits_per_value, or choose tiles that divide their extents",
            )
    signs = [t.sign for t in terms]
    found: dict[int, list[Product]] = defaultdict(list)
    for one, parts in spread:
        for two, n in counts.items():
            size = sum(s * v for s, v in zip(signs, _times(one, two), strict=True))
            if size:
                found[size].append(Product(n, parts))
    return tuple((size, p) for size, products in sorted(found.items()) for p in products)


def _times(one: tuple[int, ...], two: tuple[int, ...]) -> tuple[int, ...]:
    return tuple(a * b for a, b in zip(one, two, strict=True))


def histogram(sizes: Sequence[tuple[int, Product]]) -> tuple[tuple[int, int], ...]:
    """(elements, how many transfers) over all instances."""
    found: dict[int, int] = defaultdict(int)
    for size, product in sizes:
        found[size] += product.total
    return tuple(sorted((size, n) for size, n in found.items() if n))
