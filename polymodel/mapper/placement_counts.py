"""How many placements of one Einsum's tensors there are, by the order of operands in its branch: counted
memory by memory, without listing them.

Memories that storage orders keep apart are in bands: what stands in one band is above what stands in the
next. Within a band the nodes of one tensor are in order, those of different tensors in any order.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import lru_cache
from itertools import product
from math import prod

from polymodel.mapper.records import Limits
from polymodel.mapper.space import EinsumSpace
from polymodel.mapper.templates import Shape, lower_slots, slots_above

Sequences = dict[tuple[int, ...], int]


def arrangements(space: EinsumSpace, limits: Limits, shape: Shape, reach: int, every_slot: bool) -> Sequences:
    """Operands of the branch nodes, outermost first -> how many templates of the shape have them.

    `reach`: how many memories stand above compute. `every_slot`: above fused loops a node may stand
    anywhere; else only in the slots that `templates` uses.
    """
    if space.copy:
        return {(): 1}
    return dict(_Arranger(space, limits, shape, reach, every_slot).found)


class _Arranger:
    """Levels: 0 to D - 1 are the slots above fused loops, D is below them all (exchanges only), D + 1 the
    branch."""

    def __init__(
        self, space: EinsumSpace, limits: Limits, shape: Shape, reach: int, every_slot: bool
    ) -> None:
        self.space, self.shape, self.depth, self.reach = space, shape, len(shape.prefix), reach
        self.outer = {i: m for i, m, _ in shape.shared}
        self.below = {i: d for i, _, d in shape.shared}
        self.every_slot = every_slot
        self.bands = bands(space, limits, reach)
        self.found: Sequences = {}
        if self._shared_in_order():
            for counted in self._through().values():
                for order, ways in counted.items():
                    self.found[order] = self.found.get(order, 0) + ways

    def _shared_in_order(self) -> bool:
        """Whether exchanged tensors in outer bands stand above those in inner ones."""
        where = [(self._band(m), d) for _, m, d in self.shape.shared]
        return not any(a < b and da > db for a, da in where for b, db in where)

    def _band(self, memory: int) -> int:
        return next(k for k, band in enumerate(self.bands) if memory in band)

    def _through(self) -> dict[int, Sequences]:
        """Band after band: the innermost level in use -> orders in the branch -> ways."""
        found: dict[int, Sequences] = {0: {(): 1}}
        for k in range(len(self.bands)):
            after: dict[int, Sequences] = {}
            for low, orders in found.items():
                for level, counts in self._one_band(k, low).items():
                    into = after.setdefault(level, {})
                    for nodes, ways in counts.items():
                        for inner in _interleaved(nodes):
                            for order, before in orders.items():
                                whole = (*order, *inner)
                                into[whole] = into.get(whole, 0) + ways * before
            found = after
        return found

    def _one_band(self, k: int, low: int) -> dict[int, dict[tuple[int, ...], int]]:
        """Nodes of one band at or below level `low`: innermost level -> how many nodes of each operand are
        in the branch -> ways."""
        branch = self.depth + 1
        here = [d for _, m, d in self.shape.shared if m in self.bands[k]]
        later = [d for _, m, d in self.shape.shared if self._band(m) > k]
        most = min(later, default=branch)
        found: dict[int, dict[tuple[int, ...], int]] = {}
        so_far: dict[tuple[int, ...], int] = {}
        for level in range(low, most + 1):
            now = self._up_to(k, low, level)
            new = {nodes: n - so_far.get(nodes, 0) for nodes, n in now.items()}
            into = found.setdefault(max([level, *here]), {})
            for nodes, n in new.items():
                if n:
                    into[nodes] = into.get(nodes, 0) + n
            so_far = now
        return found

    def _up_to(self, k: int, low: int, high: int) -> dict[tuple[int, ...], int]:
        each = [self._chains(i, k, low, high) for i in range(len(self.space.operands))]
        found = {}
        for chosen in product(*(c.items() for c in each)):
            ways = prod(n for _, n in chosen)
            if ways:
                found[tuple(b for b, _ in chosen)] = ways
        return found

    def _chains(self, i: int, k: int, low: int, high: int) -> dict[int, int]:
        """One operand's nodes in a band, from level `low` to `high`: how many are in the branch -> ways."""
        tensor, branch = self.space.operands[i].tensor, self.depth + 1
        states = {(max(low, self.below.get(i, 0)), 0): 1}
        for m in self.bands[k]:
            if m <= self.outer.get(i, 0):
                continue
            after: dict[tuple[int, int], int] = {}
            for (level, inside), ways in states.items():
                if tensor not in self.space.keep[m]:
                    after[level, inside] = after.get((level, inside), 0) + ways
                for slot in self._slots(i, m) if tensor in self.space.may[m] else ():
                    if level <= slot <= high:
                        key = slot, inside + (slot == branch)
                        after[key] = after.get(key, 0) + ways
            states = after
        found: dict[int, int] = {}
        for (_, inside), ways in states.items():
            found[inside] = found.get(inside, 0) + ways
        return found

    def _slots(self, i: int, memory: int) -> tuple[int, ...]:
        if self.every_slot:
            return (*slots_above(self.space, self.shape, i, memory), self.depth + 1)
        return (*lower_slots(self.space, self.shape, i, memory, self.reach), self.depth + 1)


def bands(space: EinsumSpace, limits: Limits, reach: int) -> tuple[tuple[int, ...], ...]:
    """Memories inside the backing storage, apart where all nodes of one stand above those of the next."""
    found: list[list[int]] = []
    for m in range(1, reach):
        apart = limits.force_memory_order or any(f.below == m and f.width > 1 for f in space.fanouts)
        if apart or not found:
            found.append([])
        found[-1].append(m)
    return tuple(map(tuple, found))


@lru_cache(maxsize=4096)
def _interleaved(nodes: tuple[int, ...]) -> tuple[tuple[int, ...], ...]:
    """Every order of so many equal nodes of each operand."""

    def grow(left: Sequence[int]) -> Iterator[tuple[int, ...]]:
        if not any(left):
            yield ()
        for i, n in enumerate(left):
            if n:
                for rest in grow([*left[:i], n - 1, *left[i + 1 :]]):
                    yield (i, *rest)

    return tuple(grow(nodes))
