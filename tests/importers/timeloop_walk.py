"""A Timeloop nest executed point by point: what its counts are by definition, for small problems.

Nothing here knows of polymodel: loops run as they are written, tiles are sets of elements. A storage takes
in, along the innermost loop that its tile depends on, what it did not hold an iteration earlier; loops
further in cost nothing. Instances along a spatial loop share a tensor exactly if the loop does not index it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

Element = tuple[int, ...]
Stamp = tuple[int, ...]


@dataclass(frozen=True)
class Loop:
    """`last`: the bound in the last iteration of the variable's loops outside; `gap`: the memory above."""

    variable: str
    bound: int
    last: int
    spatial: bool
    gap: int


@dataclass(frozen=True)
class Tensor:
    """Ranks as sums of (variable, factor); `kept`: the memories that hold it, outermost first."""

    name: str
    ranks: tuple[tuple[tuple[str, int], ...], ...]
    output: bool
    kept: tuple[int, ...]

    @property
    def variables(self) -> frozenset[str]:
        return frozenset(v for rank in self.ranks for v, _ in rank)

    def element(self, point: Mapping[str, int]) -> Element:
        return tuple(sum(point[v] * f for v, f in rank) for rank in self.ranks)


def size(loops: Sequence[Loop], variable: str) -> int:
    """The size of a dimension that these loops, outermost first, run through."""
    total = 0
    for x in loops:
        if x.variable == variable:
            total = total * x.bound + x.last - 1
    return total + 1


def executed(loops: Sequence[Loop], variables: Sequence[str]) -> Iterator[tuple[Stamp, dict[str, int]]]:
    """Every iteration: the counters of all loops, and the values of the variables."""

    def below(
        at: int, stamp: Stamp, value: dict[str, int], last: dict[str, bool]
    ) -> Iterator[tuple[Stamp, dict[str, int]]]:
        if at == len(loops):
            yield stamp, dict(value)
            return
        x = loops[at]
        trips = x.last if last[x.variable] else x.bound
        for counter in range(trips):
            inner = {**value, x.variable: value[x.variable] * x.bound + counter}
            ending = {**last, x.variable: last[x.variable] and counter == trips - 1}
            yield from below(at + 1, (*stamp, counter), inner, ending)

    yield from below(0, (), dict.fromkeys(variables, 0), dict.fromkeys(variables, True))


@dataclass(frozen=True)
class Counts:
    """Summed over instances; of an output `fills` and `reads` are those of partial sums."""

    fills: dict[tuple[int, str], int]
    reads: dict[tuple[int, str], int]
    updates: dict[tuple[int, str], int]
    computes: int


def walk(loops: Sequence[Loop], tensors: Sequence[Tensor], variables: Sequence[str]) -> Counts:
    """Words moved per memory (by number) and tensor."""
    points = list(executed(loops, variables))
    counts = Counts({}, {}, {}, len(points))
    for tensor in tensors:
        for parent, child in zip(tensor.kept, [*tensor.kept[1:], None], strict=True):
            if child is None:
                _operands(counts, loops, tensor, parent, points)
            else:
                _between(counts, loops, tensor, parent, child, points)
    return counts


def _operands(
    counts: Counts,
    loops: Sequence[Loop],
    tensor: Tensor,
    parent: int,
    points: list[tuple[Stamp, dict[str, int]]],
) -> None:
    """Every operation reads its operands; the instances that need the same word at once get one read."""
    apart = [i for i, x in enumerate(loops) if not _joined(x, tensor, parent)]
    used = {(tuple(stamp[i] for i in apart), tensor.element(p)) for stamp, p in points}
    counts.updates[parent, tensor.name] = len(used) if tensor.output else 0
    if not tensor.output:
        counts.reads[parent, tensor.name] = len(used)


def _joined(x: Loop, tensor: Tensor, parent: int) -> bool:
    return x.spatial and x.gap >= parent and x.variable not in tensor.variables


def _between(
    counts: Counts,
    loops: Sequence[Loop],
    tensor: Tensor,
    parent: int,
    child: int,
    points: list[tuple[Stamp, dict[str, int]]],
) -> None:
    above = [i for i, x in enumerate(loops) if x.gap < child]
    times = [i for i in above if not loops[i].spatial and loops[i].bound > 1]
    depends = [i for i in times if loops[i].variable in tensor.variables]
    slides = depends[-1] if depends else -1
    tiles: dict[Stamp, set[Element]] = {}
    for stamp, point in points:
        key = tuple(c if i in above else 0 for i, c in enumerate(stamp))
        if all(key[i] == 0 for i in times if i > slides):
            tiles.setdefault(key, set()).add(tensor.element(point))
    fresh: dict[Stamp, set[Element]] = {}
    stale: dict[Stamp, set[Element]] = {}
    for key, tile in tiles.items():
        fresh[key] = tile - _beside(tiles, key, slides, -1)
        stale[key] = tile - _beside(tiles, key, slides, 1)
    joined = [i for i in above if _joined(loops[i], tensor, parent)]
    if tensor.output:
        counts.updates[parent, tensor.name] = _once(stale, joined)
        if not any(x.spatial for x in loops):
            counts.fills[child, tensor.name] = _again(fresh, tensor, points, above)
    else:
        counts.fills[child, tensor.name] = sum(len(tile) for tile in fresh.values())
        counts.reads[parent, tensor.name] = _once(fresh, joined)


def _beside(tiles: Mapping[Stamp, set[Element]], key: Stamp, slides: int, step: int) -> set[Element]:
    """What the same instance holds an iteration earlier or later."""
    if slides < 0 or (step < 0 and key[slides] == 0):
        return set()
    return tiles.get((*key[:slides], key[slides] + step, *key[slides + 1 :]), set())


def _once(moved: Mapping[Stamp, set[Element]], joined: Sequence[int]) -> int:
    found = {
        (tuple(0 if i in joined else c for i, c in enumerate(k)), e)
        for k, tile in moved.items()
        for e in tile
    }
    return len(found)


def _again(
    fresh: Mapping[Stamp, set[Element]],
    tensor: Tensor,
    points: list[tuple[Stamp, dict[str, int]]],
    above: Sequence[int],
) -> int:
    """Partial sums that come back: elements that an earlier iteration has worked on."""
    first: dict[Element, Stamp] = {}
    for stamp, point in points:
        key = tuple(c if i in above else 0 for i, c in enumerate(stamp))
        first.setdefault(tensor.element(point), key)
    return sum(first[e] < key for key, tile in fresh.items() for e in tile)
