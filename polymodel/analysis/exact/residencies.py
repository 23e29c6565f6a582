"""The users of a buffet during one residency, and the first and last use of each element, block by block.

The ranks and rank variables of a tensor fall into independent blocks, so that the elements of a residency are
a product of sets and the first (last) use of an element is the interleaving of those of its parts. Only the
blocks' own points are listed: as many as their variables have values, not as many as operations.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from itertools import combinations, product

import numpy as np
from numpy.typing import NDArray

from polymodel.analysis.exact.buffets import ExactBuffet
from polymodel.analysis.exact.grids import (
    Grids,
    PointGrid,
    contained,
    numbered,
    one_of_each,
    packed,
    unfollowed,
)
from polymodel.analysis.exact.live_peaks import node_carries
from polymodel.analysis.exact.sweep import Ints, coordinates, rank
from polymodel.schedule.touch import RankBlock, View, every_access, partition

Mask = NDArray[np.bool_]
Masks = tuple[Mask, ...]
_CLASSES = 9  # enough for a stencil over a plane: reads before the first generation, and beyond four edges
_PARTS = 500


@dataclass(frozen=True)
class ElementSpans:
    """Per element of a block (ids): its instance, and the first and last of its stamps, by axis."""

    element: Ints
    place: dict[int, Ints]
    first: dict[int, Ints]
    last: dict[int, Ints]


@dataclass(frozen=True)
class User:
    """One access of the tensor by an Einsum, by its position among the accesses of that Einsum to it."""

    einsum: str
    access: int = 0


@dataclass(frozen=True)
class CountedUse:
    """`coefficient` x the elements in all `masks` (one per block): first or `last` use, by Einsum `user`."""

    coefficient: int
    masks: Masks
    user: User
    last: bool


class Residency:
    """The elements of one buffet, visit by visit: elements of different visits are different.

    `start`: the axis from which on time passes within one residency: the outermost loop over whose steps some
    element is carried, otherwise the first coordinate below the node.
    """

    def __init__(self, grids: Grids, node: ExactBuffet) -> None:
        self.grids, self.node = grids, node
        self.views: dict[User, View] = {
            User(e, k): view
            for e in node.users
            for k, view in enumerate(every_access(grids.layout.full[e, node.tensor]))
        }
        self.users = tuple(self.views)
        self.blocks: tuple[RankBlock, ...] = partition(tuple(self.views.values()))
        self.spatial = node.all_touch.spatial
        self._spans: dict[tuple[int, User, int], ElementSpans] = {}
        self._grids: dict[tuple[int, User], PointGrid] = {}
        self.ids = self._each()
        carries = node_carries(grids.layout, node) & set(node.all_touch.temporal)
        if carries and not self._is_product():
            self.blocks = node.blocks  # over these, a visit's elements of all users are a product
            self._grids.clear()
            self.ids = self._each()
            del self.present
        steps = {a: self._step(a) for a in sorted(carries)}
        self.steps = {a: step for a, step in steps.items() if all(into.any() for into, _ in step)}
        self.start = min(self.steps, default=node.loops)

    def _is_product(self) -> bool:
        """True if a visit's elements of all users are a product over the blocks: those of one user."""
        return any(all(bool(m[user].all()) for m in self.present) for user in self.users)

    def grid(self, block: int, user: User) -> PointGrid:
        """The points of an Einsum over its part of a block at which this access of it touches an element."""
        if (block, user) not in self._grids:
            found = self.grids.of(user.einsum, (self.blocks[block],))
            for bound in self.views[user].access.guard:
                if set(bound.expr.variables) <= set(found.values):
                    found = found.within(bound)
            self._grids[block, user] = found
        return self._grids[block, user]

    def axes(self, block: int, user: User, low: int, high: int, spatial: bool = False) -> tuple[int, ...]:
        """Axes of a block with low <= position < high: temporal ones, or the spatial ones above the node."""
        mine = self.grid(block, user).axes
        if spatial:
            return tuple(a for a in self.spatial if a in mine)
        return tuple(a for a in self.grids.temporal(user.einsum) if low <= a < high and a in mine)

    def _ranks(self, block: int, user: User) -> list[Ints]:
        grid, access = self.grid(block, user), self.views[user].access
        columns = []
        for r in self.blocks[block].ranks:
            columns.append(coordinates(access.projection[r], grid.values, grid.count))
        return columns

    def _key(self, block: int) -> tuple[list[Ints], int, int]:
        """All users' points: (instances, time above the node, ranks; how many of the first, the second)."""
        spatial = self.axes(block, self.users[0], 0, 0, spatial=True)
        above = self.axes(block, self.users[0], 0, self.node.loops)
        parts = []
        for user in self.users:
            grid = self.grid(block, user)
            parts.append([*(grid.axes[a] for a in (*spatial, *above)), *self._ranks(block, user)])
        columns = [np.concatenate(same) for same in zip(*parts, strict=True)]
        return columns, len(spatial), len(above)

    def _each(self) -> list[dict[User, Ints]]:
        """Per block, user and point: the element, numbered over all users."""
        result = []
        for block in range(len(self.blocks)):
            counts = [self.grid(block, user).count for user in self.users]
            rows = packed(self._key(block)[0], sum(counts))
            parts = np.split(numbered(rows.keys, rows.bound)[0], np.cumsum(counts)[:-1])
            result.append(dict(zip(self.users, parts, strict=True)))
        return result

    def size(self, block: int) -> int:
        return 1 + max(int(i.max()) for i in self.ids[block].values())

    @cached_property
    def present(self) -> tuple[dict[User, Mask], ...]:
        """Per block and user: which elements it touches."""
        result = []
        for block in range(len(self.blocks)):
            size = self.size(block)
            masks = {}
            for user, ids in self.ids[block].items():
                masks[user] = np.zeros(size, dtype=bool)
                masks[user][ids] = True
            result.append(masks)
        return tuple(result)

    def spans(self, block: int, user: User, end: int) -> ElementSpans:
        """First and last use by one Einsum, over the time coordinates before axis `end`."""
        key = (block, user, end)
        if key not in self._spans:
            grid, ids, size = self.grid(block, user), self.ids[block][user], self.size(block)
            axes = self.axes(block, user, 0, end)
            stamps = packed([grid.axes[a] for a in axes], grid.count)
            first, last = np.full(size, stamps.bound), np.full(size, -1)
            np.minimum.at(first, ids, stamps.keys)
            np.maximum.at(last, ids, stamps.keys)
            element = np.flatnonzero(last >= 0)
            where = one_of_each(ids, size)[element]
            place = {a: grid.axes[a][where] for a in self.axes(block, user, 0, 0, spatial=True)}
            firsts, lasts = stamps.columns(first[element]), stamps.columns(last[element])
            self._spans[key] = ElementSpans(
                element, place, dict(zip(axes, firsts, strict=True)), dict(zip(axes, lasts, strict=True))
            )
        return self._spans[key]

    # Elements that stay from one visit to the next

    def _step(self, axis: int) -> list[tuple[Mask, Mask]]:
        """Per block: elements that a step of the loop at `axis` adds, and those that it keeps.

        That step moves all loops further in back from their last to their first iteration.
        """
        return [self._in_step(block, axis) for block in range(len(self.blocks))]

    def _in_step(self, block: int, axis: int) -> tuple[Mask, Mask]:
        above = self.axes(block, self.users[0], 0, self.node.loops)
        held, stamp, stamps = self._visits_by_element(block)
        here = np.arange(len(stamps))
        if axis in above:
            changed = np.array(above)[(stamps[1:] != stamps[:-1]).argmax(axis=1)] == axis
            into, out = np.append(False, changed), np.append(changed, False)
            before, after = here - 1, here + 1
        else:
            outer = rank(stamps[:, [i for i, a in enumerate(above) if a < axis]])
            edges = np.flatnonzero(np.diff(outer, prepend=-1, append=-1))
            first, last = edges[:-1][outer], edges[1:][outer] - 1
            into, out, before, after = here == first, here == last, last, first
        given, bound = held * len(stamps) + stamp, (int(held.max()) + 1) * len(stamps)
        result = [np.zeros(len(held), dtype=bool), np.zeros(len(held), dtype=bool)]
        for mask, may, other in zip(result, (into, out), (before, after), strict=True):
            asked = np.flatnonzero(may[stamp])
            mask[asked] = contained((held * len(stamps) + other[stamp])[asked], given, bound)
        return result[0], result[1]

    def _visits_by_element(self, block: int) -> tuple[Ints, Ints, Ints]:
        """Per element id: its identity over all visits, and the number of its visit; all visits in order."""
        columns, spatial, above = self._key(block)
        where = one_of_each(np.concatenate([*self.ids[block].values()]), self.size(block))
        rows = [c[where] for c in columns]
        lasting = packed([*rows[:spatial], *rows[spatial + above :]], len(where))
        visits = packed(rows[spatial : spatial + above], len(where))
        numbers, different = numbered(visits.keys, visits.bound)
        stamps = visits.columns(different)
        table = np.stack(stamps, axis=1) if stamps else np.zeros((1, 0), dtype=np.int64)
        return numbered(lasting.keys, lasting.bound)[0], numbers, table

    # Elements by the Einsums that use them

    @cached_property
    def uses(self) -> tuple[CountedUse, ...]:
        """First and last uses of residencies, as a signed sum of product sets with one Einsum each.

        A residency starts at every visit of an element, less those into which the element is carried.
        """
        result: dict[tuple[bytes | User | bool, ...], CountedUse] = {}
        for count, masks, user, last in self._cells():
            sets = [(count, masks)]
            for step in self.steps.values():
                sets.append((-count, tuple(m & s[last] for m, s in zip(masks, step, strict=True))))
            for number, chosen in sets:
                if all(m.any() for m in chosen):
                    key: tuple[bytes | User | bool, ...] = (*_bytes(chosen), user, last)
                    before = result[key].coefficient if key in result else 0
                    result[key] = CountedUse(before + number, chosen, user, last)
        return tuple(use for use in result.values() if use.coefficient)

    def _cells(self) -> Iterator[tuple[int, Masks, User, bool]]:
        """(sign, product set, the access that uses its elements first (last) in a visit, whether last)."""
        kinds: dict[tuple[bytes, ...], list[User]] = {}
        for user in self.users:
            kinds.setdefault(_bytes(tuple(p[user] for p in self.present)), []).append(user)
        groups = list(kinds.values())
        if len(groups) > _CLASSES:
            raise unfollowed(f"{len(groups)} accesses touch different parts of {self.node.tensor}")
        for size in range(1, len(groups) + 1):
            for chosen in combinations(range(len(groups)), size):
                users = tuple(u for u in self.users if any(u in groups[g] for g in chosen))
                for count, masks in self._only(groups, chosen):
                    for last in (False, True):
                        for part, user in self._ends(users, masks, last):
                            yield count, part, user, last

    def _common(self, users: tuple[User, ...]) -> Masks:
        return tuple(np.logical_and.reduce([p[u] for u in users]) for p in self.present)

    def _only(self, groups: list[list[User]], chosen: tuple[int, ...]) -> list[tuple[int, Masks]]:
        """The elements that exactly the chosen groups use, as a signed sum of product sets."""
        rest = [g for g in range(len(groups)) if g not in chosen]
        total: dict[tuple[bytes, ...], tuple[int, Masks]] = {}
        for size in range(len(rest) + 1):
            for more in combinations(rest, size):
                masks = self._common(tuple(groups[g][0] for g in (*chosen, *more)))
                if all(m.any() for m in masks):
                    key = _bytes(masks)
                    total[key] = (total.get(key, (0, masks))[0] + (-1) ** size, masks)
        return [value for value in total.values() if value[0]]

    def _ends(self, users: tuple[User, ...], masks: Masks, last: bool) -> list[tuple[Masks, User]]:
        """Parts of a product set, each with the access among `users` that uses its elements first (last).

        An element is written before it is read, since mappings are legal, unless its producer is executed
        again.
        """
        written = next((u for u in users if self.views[u].access.output), None)
        if written is not None and not self.views[written].parts:
            if not last:
                return [(masks, written)]
            users = tuple(u for u in users if u != written) or users
        result = [(masks, users[0])]
        for user in users[1:]:
            result = [part for m, best in result for part in self._pair(best, user, m, last)]
            if len(result) > _PARTS:
                raise unfollowed(f"which access uses {self.node.tensor} first or last changes too often")
        return result

    def _pair(self, one: User, other: User, masks: Masks, last: bool) -> list[tuple[Masks, User]]:
        """Parts of a product set by which of two accesses uses an element first (last).

        That is decided at the outermost time coordinate in which their uses differ; two accesses of one
        Einsum may use an element at one time.
        """
        end, other_earlier = self.grids.parting(one.einsum, other.einsum)
        codes = [self._apart(block, one, other, end, last) for block in range(len(masks))]
        parts = []
        for values in product(*(np.unique(c[m]).tolist() for c, m in zip(codes, masks, strict=True))):
            first = min((v for v in values if v), key=abs, default=1 if other_earlier else -1)
            winner = other if (first > 0) != last else one
            mine = tuple(m & (c == v) for m, c, v in zip(masks, codes, values, strict=True))
            parts.append((mine, winner))
        return [(masks, parts[0][1])] if len({winner for _, winner in parts}) == 1 else parts

    def _apart(self, block: int, one: User, other: User, end: int, last: bool) -> Ints:
        """Per element: 1 + the first axis in which their uses differ, negative if `one` is first; or 0."""
        result = np.zeros(self.size(block), dtype=np.int64)
        spans = [self.spans(block, user, end) for user in (one, other)]
        both, here, there = np.intersect1d(
            spans[0].element, spans[1].element, assume_unique=True, return_indices=True
        )
        first, second = ((s.last if last else s.first) for s in spans)
        for axis in sorted(first, reverse=True):
            a, b = first[axis][here], second[axis][there]
            result[both] = np.where(a == b, result[both], np.sign(a - b) * (axis + 1))
        return result


def _bytes(masks: Masks) -> tuple[bytes, ...]:
    return tuple(np.packbits(m).tobytes() for m in masks)
