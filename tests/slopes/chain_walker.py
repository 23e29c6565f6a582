"""An independent referee of chain slopes: walks every mapping's loops and watches what is in the buffer."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cache
from itertools import permutations, product
from math import prod

Point = tuple[int, int]
Tiles = tuple[tuple[str, int], ...]


@dataclass(frozen=True)
class Product:
    """An Einsum in one-letter rank variables: (tensor, index), the output first."""

    tensors: tuple[tuple[str, str], ...]

    @property
    def variables(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys("".join(index for _, index in self.tensors)))


def parse(text: str) -> Product:
    found = re.findall(r"(\w+)\[([^]]*)\]", text)
    return Product(tuple((t, index.replace(", ", "")) for t, index in found))


def divisors(x: int) -> list[int]:
    return [d for d in range(1, x + 1) if x % d == 0]


def front(points: Iterable[Point]) -> list[Point]:
    found: list[Point] = []
    for point in sorted(set(points)):
        if not found or point[1] < found[-1][1]:
            found.append(point)
    return found


@cache
def walks(
    one: Product, sizes: Tiles, fused: Tiles, free: frozenset[str], whole: frozenset[str], retain: bool
) -> frozenset[tuple[int, int, int]]:
    """(additive, maximal, accesses) of every inner tile, order and choice of what is kept."""
    extents, above = dict(sizes), dict(fused)
    moved = [t for t, _ in one.tensors if t not in free | whole]
    tied = [t for t, index in one.tensors if t in moved and set(index) & set(above)]
    options = [divisors(above.get(v, extents[v])) for v in one.variables]
    found = set()
    for chosen in product(*options):
        tile = dict(zip(one.variables, chosen, strict=True))
        loops = [v for v in one.variables if tile[v] < above.get(v, extents[v])]
        for order in permutations(loops):
            for keep in product((False, True), repeat=len(tied) if retain else 0):
                kept = {t for t, k in zip(tied, keep, strict=False) if k}
                drop = set(tied) - kept if above else set()
                accesses = walk(one, extents, fused, tile, order, set(moved), drop)
                additive = maximal = 0
                for tensor, index in one.tensors:
                    if tensor in free:
                        maximal += prod(above.get(v, extents[v]) for v in index)
                    elif tensor in moved and above and tensor not in drop:
                        additive += prod(tile[v] for v in index)
                    elif tensor in moved:
                        maximal += prod(tile[v] for v in index)
                found.add((additive, maximal, accesses))
    return frozenset(found)


def walk(
    one: Product,
    extents: dict[str, int],
    fused: Tiles,
    tile: dict[str, int],
    order: tuple[str, ...],
    moved: set[str],
    drop: set[str],
) -> int:
    """Words to and from the backing store, tile by tile."""
    above = dict(fused)
    inside: dict[str, tuple[int, ...]] = {}
    written: set[tuple[str, tuple[int, ...]]] = set()
    count = 0
    for outer in product(*(range(0, extents[v], t) for v, t in fused)):
        for tensor in drop:
            inside.pop(tensor, None)
        begin = dict(zip(above, outer, strict=True))
        ranges = [range(0, above.get(v, extents[v]), tile[v]) for v in order]
        for inner in product(*ranges):
            at = {v: begin.get(v, 0) for v in one.variables}
            for v, i in zip(order, inner, strict=True):
                at[v] += i
            for tensor, index in one.tensors:
                here = tuple(at[v] for v in index)
                if tensor not in moved or inside.get(tensor) == here:
                    continue
                inside[tensor] = here
                words = prod(tile[v] for v in index)
                count += words
                if tensor == one.tensors[0][0] and (tensor, here) in written:
                    count += words
                written.add((tensor, here))
    return count


def group(
    members: tuple[Product, ...], links: tuple[str, ...], sizes: dict[str, int], whole: set[str], retain: bool
) -> Iterator[Point]:
    """All mappings of Einsums below shared fused loops (of a single Einsum: below none)."""
    held = sum(
        prod(sizes[v] for v in dict(one.tensors)[t])
        for t in whole
        for one in [next(m for m in members if t in dict(m.tensors))]
    )
    shared = [
        v
        for v in members[0].variables
        if all(v in one.variables for one in members)
        and all(v in dict(one.tensors)[t] for t in links for one in members if t in dict(one.tensors))
    ]
    for n in range(1, len(shared) + 1) if links else (0,):
        for order in permutations(shared, n):
            for tiles in product(*([d for d in divisors(sizes[v]) if d < sizes[v]] for v in order)):
                fused = tuple(zip(order, tiles, strict=True))
                every = [
                    walks(
                        one,
                        tuple((v, sizes[v]) for v in one.variables),
                        fused,
                        frozenset(links),
                        frozenset(whole),
                        retain,
                    )
                    for one in members
                ]
                for rows in product(*every):
                    capacity = sum(a for a, _, _ in rows) + max(m for _, m, _ in rows)
                    yield held + capacity, sum(x for _, _, x in rows)


def slopes(texts: list[str], sizes: dict[str, int], how: str, every: bool = False) -> list[Point]:
    """A curve of a chain: all ways to hand on each intermediate (unfused, held whole, or tiled)."""
    chain = [parse(t) for t in texts]
    links = [one.tensors[0][0] for one in chain[:-1]]
    ways = {
        "unfused": "u",
        "untiled_fused": "uw",
        "ffmr_drop": "ut",
        "ffmr_retain": "ut",
        "best": "uwt",
    }[how]
    found: list[Point] = []
    for handed in product(ways, repeat=len(links)):
        if how not in ("unfused", "best") and set(handed) == {"u"}:
            continue
        if every and "u" in handed:
            continue
        points: list[Point] = [(0, 0)]
        start = 0
        for end in range(len(chain)):
            if end < len(links) and handed[end] == "t":
                continue
            whole = {links[i] for i in (start - 1, end) if 0 <= i < len(links) and handed[i] == "w"}
            mine = front(
                group(
                    tuple(chain[start : end + 1]), tuple(links[start:end]), sizes, whole, how != "ffmr_drop"
                )
            )
            points = front((max(a, c), b + d) for a, b in points for c, d in mine)
            start = end + 1
        found += points
    return front(found)
