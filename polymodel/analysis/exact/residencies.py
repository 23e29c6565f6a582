"""Who is in a buffet during one residency, and when each element is first and last used, block by block.

The ranks and rank variables of a tensor fall into independent blocks, so the elements of a residency are
a product of sets and the first (last) use of an element is the interleaving of those of its parts. Only
the blocks' own points are listed: as many as their variables have values, not as many as operations.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from itertools import combinations

import numpy as np
from numpy.typing import NDArray

from polymodel.analysis.exact.buffets import Node
from polymodel.analysis.exact.grids import Grid, Grids, table, unfollowed
from polymodel.analysis.exact.live import node_carries
from polymodel.analysis.exact.sweep import Ints, distinct, rank
from polymodel.schedule.touch import Block, partition

Mask = NDArray[np.bool_]
_CLASSES = 5


@dataclass(frozen=True)
class Spans:
    """Per element of a block (`element`, ids): its instance, and the first and last of its stamps."""

    element: Ints
    place: Ints
    first: Ints
    last: Ints


@dataclass(frozen=True)
class Share:
    """`coefficient` x the elements in all `masks`, started by Einsum `first` and finished by `last`."""

    coefficient: int
    masks: tuple[Mask, ...]
    first: str
    last: str


class Residency:
    """The elements of one buffet, or those of its points that `keep` has in some blocks.

    `start` is the axis from which on time passes within one residency. `mixed`, if set, says which points of
    which block must be told apart: elements that stay longer than others (see `residencies`).
    """

    def __init__(
        self,
        grids: Grids,
        node: Node,
        blocks: tuple[Block, ...] | None = None,
        keep: dict[int, Mask] | None = None,
    ) -> None:
        self.grids, self.node, self.keep = grids, node, keep or {}
        views = tuple(grids.layout.full[e, node.tensor] for e in node.users)
        self.blocks: tuple[Block, ...] = blocks or partition(views)
        self.spatial = node.all_touch.spatial
        self.carries = tuple(sorted(node_carries(grids.layout, node) & set(node.all_touch.temporal)))
        self.start = node.loops
        self.mixed: tuple[int, Mask] | None = None
        self._spans: dict[tuple[int, str, int], Spans] = {}
        self.ids = self._each(node.loops)
        if self.carries:
            if not blocks and any(len({m.tobytes() for m in p.values()}) > 1 for p in self.present):
                self.blocks = node.blocks  # over these, a visit's elements of all users are a product
                self.ids = self._each(node.loops)
            self.ids = self._joined()
            self.__dict__.pop("present", None)

    def variables(self, block: int, user: str) -> frozenset[str]:
        return frozenset(v for e, v in self.blocks[block].variables if e == user)

    def grid(self, block: int, user: str) -> Grid:
        return self.grids.of(user, self.variables(block, user))

    def axes(self, block: int, user: str, low: int, high: int, spatial: bool = False) -> tuple[int, ...]:
        """Axes of a block with low <= position < high: temporal ones, or the spatial ones above the node."""
        mine = self.grid(block, user).axes
        if spatial:
            return tuple(a for a in self.spatial if a in mine)
        return tuple(a for a in self.grids.temporal(user) if low <= a < high and a in mine)

    def _ranks(self, block: int, user: str) -> list[Ints]:
        grid = self.grid(block, user)
        access = self.grids.layout.full[user, self.node.tensor].access
        columns = []
        for r in self.blocks[block].ranks:
            expr = access.projection[r]
            total = np.full(grid.count, expr.constant, dtype=np.int64)
            for v, k in expr.terms:
                total = total + k * grid.values[v]
            columns.append(total)
        return columns

    def _key(self, block: int, user: str, upto: int) -> Ints:
        """Instance, time coordinates above axis `upto`, and ranks of every point."""
        grid = self.grid(block, user)
        above = self.axes(block, user, 0, upto)
        spatial = self.axes(block, user, 0, 0, spatial=True)
        columns = [grid.axes[a] for a in (*spatial, *above)]
        return table([*columns, *self._ranks(block, user)], grid.count)

    def _ids(self, block: int, upto: int) -> dict[str, Ints]:
        """Per user and point: the element, numbered over all users; other residencies' are other elements."""
        keys = [self._key(block, e, upto) for e in self.node.users]
        numbers = rank(np.concatenate(keys))
        cuts = np.cumsum([len(k) for k in keys])[:-1]
        return dict(zip(self.node.users, np.split(numbers, cuts), strict=True))

    def _each(self, upto: int) -> list[dict[str, Ints]]:
        return [self._ids(b, upto) for b in range(len(self.blocks))]

    def size(self, block: int) -> int:
        return 1 + max(int(i.max()) for i in self.ids[block].values())

    def _kept(self, block: int) -> dict[str, Ints]:
        """The points of every user that count."""
        counts = [self.grid(block, e).count for e in self.node.users]
        mask = self.keep.get(block, np.ones(sum(counts), dtype=bool))
        parts = np.split(mask, np.cumsum(counts)[:-1])
        return {e: np.flatnonzero(m) for e, m in zip(self.node.users, parts, strict=True)}

    @cached_property
    def present(self) -> tuple[dict[str, Mask], ...]:
        """Per block and user: which elements it touches."""
        found = []
        for block in range(len(self.blocks)):
            size, kept = self.size(block), self._kept(block)
            masks = {}
            for user, ids in self.ids[block].items():
                masks[user] = np.zeros(size, dtype=bool)
                masks[user][ids[kept[user]]] = True
            found.append(masks)
        return tuple(found)

    def spans(self, block: int, user: str, end: int) -> Spans:
        """First and last use by one Einsum, over the time coordinates before axis `end`."""
        key = (block, user, end)
        if key not in self._spans:
            grid = self.grid(block, user)
            stamps = grid.table(self.axes(block, user, 0, end))
            places = grid.table(self.axes(block, user, 0, 0, spatial=True))
            ids, kept = self.ids[block][user], self._kept(block)[user]
            order = kept[np.lexsort((rank(stamps)[kept], ids[kept]))]
            begins = np.flatnonzero(np.diff(ids[order], prepend=-1) != 0)
            ends = np.append(begins[1:], len(order)) - 1
            first, last = order[begins], order[ends]
            self._spans[key] = Spans(ids[first], places[first], stamps[first], stamps[last])
        return self._spans[key]

    # Residencies that run on over several visits

    def _joined(self) -> list[dict[str, Ints]]:
        """Runs in place of visits' elements; only where one block at most changes from visit to visit."""
        name = f"{self.node.tensor} in {self.node.component}"
        blocks = range(len(self.blocks))
        user = self.node.users[0]
        carried = list(self.carries)
        if carried != [a for a in self.node.all_touch.temporal if a >= carried[0]]:
            raise unfollowed(f"{name} is carried over some of its inner loops only")
        while carried and not self._carried_at(carried[0]):
            carried.pop(0)
        if not carried:
            return self.ids
        self.start = start = carried[0]
        late = {b: self.axes(b, user, start, self.node.loops) for b in blocks}
        moving = [b for b in blocks if late[b] and not self._static(b, start)]
        others = [a for b in blocks if b not in moving for a in late[b] if self._moves(b, a)]
        inner = [
            b
            for b in moving
            if max(late[b]) > min([*others, *(late[m][0] for m in moving if m != b)], default=start)
        ]
        if len(moving) > 1 or (moving and others and max(late[moving[0]]) > min(others)):
            block = inner[-1]
            if block in self.keep:
                raise unfollowed(f"{name} is carried over loops that change its tile in several ways")
            self.mixed = block, self._throughout(block, start)
            return self.ids
        return [self._runs(b, start) if b in moving else self._ids(b, start) for b in blocks]

    def _all(self, block: int, axes: tuple[int, ...]) -> Ints:
        """Coordinates of all users' points (their axes above the node are the same)."""
        return np.concatenate([self.grid(block, e).table(axes) for e in self.node.users])

    def _moves(self, block: int, axis: int) -> bool:
        column = self._all(block, (axis,))
        return bool(column.min() != column.max())

    def _visits(self, block: int, start: int) -> tuple[Ints, Ints]:
        """Of every point: (coordinates above `start`, those above the node), numbered in order of time."""
        user = self.node.users[0]
        prefix = rank(self._all(block, self.axes(block, user, 0, start)))
        return prefix, rank(self._all(block, self.axes(block, user, 0, self.node.loops)))

    def _visit_rows(self, block: int, start: int) -> tuple[Ints, Ints, Ints, Ints]:
        """Per different (element of the longer residency, visit): (first point, element, prefix, stamp)."""
        points = np.unique(np.concatenate([*self.ids[block].values()]), return_index=True)[1]
        if block in self.keep:
            points = points[self.keep[block][points]]
        elements = np.concatenate([*self._ids(block, start).values()])
        prefix, stamps = self._visits(block, start)
        return points, elements[points], prefix[points], stamps[points]

    def _throughout(self, block: int, start: int) -> Mask:
        """The points whose elements are there in all visits between two steps of the loops above `start`."""
        _, elements, _, _ = self._visit_rows(block, start)
        prefix, stamps = self._visits(block, start)
        every = np.concatenate([*self._ids(block, start).values()])
        visits = np.bincount(distinct(np.stack([prefix, stamps], axis=1))[:, 0])
        held = np.bincount(elements, minlength=int(every.max()) + 1)
        return np.asarray(held[every] == visits[prefix])

    def _static(self, block: int, start: int) -> bool:
        """Whether every instance holds the same in all visits of a residency."""
        points = self._visit_rows(block, start)[0]
        return bool(self._throughout(block, start)[points].all())

    def _carried_at(self, axis: int) -> bool:
        """Whether any element is in both tiles around a step of the loop at `axis`."""
        user = self.node.users[0]
        for block in range(len(self.blocks)):
            inner = self.axes(block, user, axis, self.node.loops)
            if not inner:
                continue
            if inner[0] == axis:
                if not self._neighbours(block, axis):
                    return False
            elif not self._wraps(block, inner[0]):
                return False
        return True

    def _neighbours(self, block: int, axis: int) -> bool:
        """Whether a step of `axis`, a loop of this block, leaves some element in the tile."""
        points, elements, _, stamps = self._visit_rows(block, axis)
        order = np.lexsort((stamps, elements))
        column = self._all(block, (axis,))[points, 0][order]
        e, s = elements[order], stamps[order]
        return bool(((e[1:] == e[:-1]) & (s[1:] == s[:-1] + 1) & (column[1:] != column[:-1])).any())

    def _wraps(self, block: int, start: int) -> bool:
        """Whether an element is in the first and the last tile of a pass over the loops from `start`."""
        _, elements, prefix, stamps = self._visit_rows(block, start)
        everywhere, every = self._visits(block, start)
        low = np.full(int(everywhere.max()) + 1, np.iinfo(np.int64).max)
        high = np.full(len(low), -1)
        np.minimum.at(low, everywhere, every)
        np.maximum.at(high, everywhere, every)
        return bool(np.intersect1d(elements[stamps == low[prefix]], elements[stamps == high[prefix]]).size)

    def _runs(self, block: int, start: int) -> dict[str, Ints]:
        """Per user and point: the run of its element, visits in a row being joined."""
        points, elements, _, stamps = self._visit_rows(block, start)
        order = np.lexsort((stamps, elements))
        e, s = elements[order], stamps[order]
        breaks = np.concatenate(([True], (e[1:] != e[:-1]) | (s[1:] != s[:-1] + 1)))
        visit = np.concatenate([*self.ids[block].values()])[points]
        run = np.zeros(self.size(block), dtype=np.int64)
        run[visit[order]] = np.cumsum(breaks) - 1
        return {user: run[ids] for user, ids in self.ids[block].items()}

    # Elements by the Einsums that use them

    @cached_property
    def shares(self) -> tuple[Share, ...]:
        """The elements as a signed sum of product sets, each started by one Einsum and ended by one."""
        kinds: dict[tuple[bytes, ...], list[str]] = {}
        for user in self.node.users:
            kinds.setdefault(tuple(np.packbits(p[user]).tobytes() for p in self.present), []).append(user)
        groups = list(kinds.values())
        if len(groups) > _CLASSES:
            raise unfollowed(f"{len(groups)} Einsums use different parts of {self.node.tensor}")
        found: dict[tuple[tuple[bytes, ...], str, str], tuple[int, tuple[Mask, ...]]] = {}
        for size in range(1, len(groups) + 1):
            for chosen in combinations(range(len(groups)), size):
                exact = self._only(groups, chosen)
                if exact:
                    users = tuple(u for u in self.node.users if any(u in groups[g] for g in chosen))
                    ends = self._starter(users), self._finisher(users)
                    for key, (count, masks) in exact.items():
                        before = found.get((key, *ends), (0, masks))[0]
                        found[(key, *ends)] = (before + count, masks)
        return tuple(Share(count, masks, *ends) for (_, *ends), (count, masks) in found.items() if count)

    def _common(self, users: tuple[str, ...]) -> tuple[Mask, ...]:
        return tuple(np.logical_and.reduce([p[u] for u in users]) for p in self.present)

    def _only(
        self, groups: list[list[str]], chosen: tuple[int, ...]
    ) -> dict[tuple[bytes, ...], tuple[int, tuple[Mask, ...]]]:
        """The elements that exactly the chosen groups use, as a signed sum of product sets."""
        rest = [g for g in range(len(groups)) if g not in chosen]
        total: dict[tuple[bytes, ...], tuple[int, tuple[Mask, ...]]] = {}
        for size in range(len(rest) + 1):
            for more in combinations(rest, size):
                masks = self._common(tuple(groups[g][0] for g in (*chosen, *more)))
                if all(m.any() for m in masks):
                    key = tuple(np.packbits(m).tobytes() for m in masks)
                    total[key] = (total.get(key, (0, masks))[0] + (-1) ** size, masks)
        return {key: value for key, value in total.items() if value[0]}

    def _starter(self, users: tuple[str, ...]) -> str:
        """The Einsum that uses each common element first: its producer, which comes before all readers."""
        if self.node.producer in users:
            return self.node.producer
        for user in users:
            if all(self._before(user, u, users, last=False) for u in users if u != user):
                return user
        raise unfollowed(f"{self.node.tensor} is first used by another Einsum from element to element")

    def _finisher(self, users: tuple[str, ...]) -> str:
        readers = tuple(u for u in users if u != self.node.producer) or users
        for user in reversed(readers):
            if all(self._before(u, user, users, last=True) for u in readers if u != user):
                return user
        raise unfollowed(f"{self.node.tensor} is last used by another Einsum from element to element")

    def _before(self, one: str, other: str, users: tuple[str, ...], *, last: bool) -> bool:
        """Whether the first (last) use by `one` is before that by `other`, for every common element."""
        end, other_earlier = self.grids.parting(one, other)
        strict = not other_earlier
        for block, mask in enumerate(self._common(users)):
            times = []
            for user in (one, other):
                spans = self.spans(block, user, end)
                times.append((spans.last if last else spans.first)[mask[spans.element]])
            a, b = np.split(rank(np.concatenate(times)), 2)
            if (a > b).any():
                return False
            strict = strict or bool((a < b).all())
        return strict


def residencies(grids: Grids, node: Node) -> list[Residency]:
    """The elements of a buffet, in parts where some stay over the wraps of a loop and others do not."""
    whole = Residency(grids, node)
    waiting, found = [whole], []
    while waiting:
        part = waiting.pop()
        if part.mixed is None:
            found.append(part)
            continue
        block, mask = part.mixed
        for half in (mask, ~mask):
            if half.any():
                waiting.append(Residency(grids, node, whole.blocks, {**part.keep, block: half}))
    return found
