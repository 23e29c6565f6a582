"""Loop orders of one tile level, collapsed to what they mean for the traffic of each tensor."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from itertools import permutations

Indexed = tuple[tuple[str, frozenset[str]], ...]
Moves = tuple[frozenset[str], str]  # loops outside that do not index the tensor, the loop it slides along


@dataclass(frozen=True)
class OrderClass:
    """Orders that refill alike: `order` is one of them (outermost first).

    `outside`: per tensor, the loops that do not index it but stand outside a loop that does; each of
    their steps moves the whole tensor again (`slide`, and loops of one trip do not count).
    `slid`: per tensor, the innermost loop that indexes it if its tiles overlap along that one, else "".
    """

    order: tuple[str, ...]
    outside: tuple[tuple[str, frozenset[str]], ...]
    slid: tuple[tuple[str, str], ...] = ()


@lru_cache(maxsize=4096)
def order_classes(active: tuple[str, ...], tensors: Indexed, windows: Indexed = ()) -> tuple[OrderClass, ...]:
    """The orders of these loops that no other order beats for every tensor.

    `windows`: per tensor, the variables along which its tiles overlap (none where it is missing).
    """
    overlapping = dict(windows)
    found: dict[tuple[Moves, ...], tuple[str, ...]] = {}
    for order in permutations(active):
        moves = (_moves(order, indexed, overlapping.get(t, frozenset())) for t, indexed in tensors)
        found.setdefault(tuple(moves), order)
    kept = [m for m in found if not any(o != m and all(map(_no_more, o, m)) for o in found)]
    names = [name for name, _ in tensors]
    return tuple(
        OrderClass(
            found[moves],
            tuple((t, outside) for t, (outside, _) in zip(names, moves, strict=True)),
            tuple((t, slid) for t, (_, slid) in zip(names, moves, strict=True)),
        )
        for moves in kept
    )


def _moves(order: tuple[str, ...], indexed: frozenset[str], overlapping: frozenset[str]) -> Moves:
    innermost = max((i for i, v in enumerate(order) if v in indexed), default=-1)
    slid = order[innermost] if innermost >= 0 and order[innermost] in overlapping else ""
    return frozenset(v for v in order[: innermost + 1] if v not in indexed), slid


def _no_more(one: Moves, other: Moves) -> bool:
    """True if a tensor moves no more in the first way than in the second."""
    return one[0] <= other[0] and other[1] in ("", one[1])


def as_indexed(tensors: Mapping[str, frozenset[str]]) -> Indexed:
    """A hashable table of which variables index which tensor."""
    return tuple(tensors.items())
