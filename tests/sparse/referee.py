"""What the plain interpreter of `oracle` records, the tensors it walks, and how it splits and intersects."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import product as all_of

Coord = int | tuple[int, ...]


@dataclass
class Referee:
    """What one Einsum did."""

    result: dict[tuple[int, ...], float] = field(default_factory=dict)
    iterations: Counter = field(default_factory=Counter)
    intersected: dict[str, Counter] = field(default_factory=dict)
    driven: dict[str, Counter] = field(default_factory=dict)
    looked: dict[str, Counter] = field(default_factory=dict)
    reads: Counter = field(default_factory=Counter)
    writes: Counter = field(default_factory=Counter)
    multiplies: int = 0
    term_adds: int = 0
    updates: int = 0
    adds: int = 0
    stamps: list[tuple[tuple, tuple]] = field(default_factory=list)

    def times(self) -> tuple[int, int, int, int, int]:
        """Lock-step time, slip time, distinct points of space, distinct pairs, collisions."""
        seen: dict[tuple, set] = {}
        for space, time in self.stamps:
            seen.setdefault(space, set()).add(time)
        pairs = sum(len(s) for s in seen.values())
        slip = max((len(s) for s in seen.values()), default=0)
        return (len({t for _, t in self.stamps}), slip, len(seen), pairs, len(self.stamps) - pairs)

    def load(self) -> dict[tuple, int]:
        return dict(Counter(space for space, _ in self.stamps))


@dataclass
class Nonzeros:
    """One occurrence of a tensor: its nonzeros in play, and the ranks that are bound by looking up."""

    name: str
    points: list[tuple[dict[str, Coord], float]]

    def fiber(self, rank: str) -> list[Coord]:
        return sorted({p[rank] for p, _ in self.points})

    def at(self, rank: str, coord: Coord) -> Nonzeros:
        kept = [({r: c for r, c in p.items() if r != rank}, v) for p, v in self.points if p[rank] == coord]
        return Nonzeros(self.name, kept)


def tiling(step: int, finer: Callable[[int], int]) -> Callable[[int], int]:
    return lambda c: finer(c) // step * step


def filled(payload: dict) -> bool:
    return "value" in payload or any(filled(p) for p in payload.values())


def slices(tensor: Nonzeros, rank: str, count: int) -> dict[int, int]:
    """Each coordinate to the slice with the fewest nonzeros so far, ties to the lowest."""
    loads = [0] * count
    found = {}
    for c in tensor.fiber(rank):
        found[c] = loads.index(min(loads))
        loads[found[c]] += sum(p[rank] == c for p, _ in tensor.points)
    return found


def haloed(
    points: list,
    index: str,
    terms: Sequence[tuple[str, int]],
    leader: str,
    cuts: dict[str, Callable[[int], int]],
    sizes: dict[str, int],
) -> list:
    """Each nonzero once for every tile of the leader whose lowest and highest coordinate enclose it."""
    reached: dict[tuple[int, ...], set[int]] = {}
    for where in all_of(*(range(sizes[v.upper()]) for v, _ in terms)):
        at = {v.upper(): c for (v, _), c in zip(terms, where, strict=True)}
        tile = tuple(cut(at[leader]) for cut in cuts.values())
        reached.setdefault(tile, set()).add(sum(f * at[v.upper()] for v, f in terms))
    return [
        ({**p, **dict(zip(cuts, tile, strict=True))}, value)
        for tile, coords in reached.items()
        for p, value in points
        if min(coords) <= p[index] <= max(coords)
    ]


def two_finger(a: Iterator, b: Iterator) -> Iterator:
    first, second = next(a, None), next(b, None)
    while first is not None and second is not None:
        if first[0] == second[0]:
            yield first[0], {**first[1], **second[1]}
            first, second = next(a, None), next(b, None)
        elif first[0] < second[0]:
            first = next(a, None)
        else:
            second = next(b, None)
