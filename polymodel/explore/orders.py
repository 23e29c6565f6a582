"""Loop orders of one tile level, collapsed to what they mean for the traffic of each tensor."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from itertools import permutations

Indexed = tuple[tuple[str, frozenset[str]], ...]


@dataclass(frozen=True)
class OrderClass:
    """Orders that refill alike: `order` is one of them (outermost first).

    `outside`: per tensor, the loops that do not index it but stand outside a loop that does; each of
    their steps moves the whole tensor again (`slide`, and loops of one trip do not count).
    """

    order: tuple[str, ...]
    outside: tuple[tuple[str, frozenset[str]], ...]


@lru_cache(maxsize=4096)
def order_classes(active: tuple[str, ...], tensors: Indexed) -> tuple[OrderClass, ...]:
    """The orders of these loops that no other order beats for every tensor."""
    found: dict[tuple[frozenset[str], ...], tuple[str, ...]] = {}
    for order in permutations(active):
        found.setdefault(tuple(_outside(order, indexed) for _, indexed in tensors), order)
    kept = [
        sets
        for sets in found
        if not any(o != sets and all(a <= b for a, b in zip(o, sets, strict=True)) for o in found)
    ]
    names = [name for name, _ in tensors]
    return tuple(OrderClass(found[sets], tuple(zip(names, sets, strict=True))) for sets in kept)


def _outside(order: tuple[str, ...], indexed: frozenset[str]) -> frozenset[str]:
    innermost = max((i for i, v in enumerate(order) if v in indexed), default=-1)
    return frozenset(v for v in order[: innermost + 1] if v not in indexed)


def as_indexed(tensors: Mapping[str, frozenset[str]]) -> Indexed:
    """A hashable table of which variables index which tensor."""
    return tuple(tensors.items())
