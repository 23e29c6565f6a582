"""Mappings of one Einsum inside a fused graph: the least traffic for each footprint in the buffer.

Fused loops are outermost, in a given order. Below them are a tile of each rank variable with loops in any
order, and one tile of each tensor in the buffer. A tensor that is tiled fused is stored below the fused loops
that tile it, and causes no traffic. The others are stored below all loops (or, *uneven*, directly below the
fused ones), remain while the loops inside do not move them (`reuse: slide`), and cause traffic at the backing
store. Rank variables that index the same tensors act as one: a loop over one of them outside a loop over the
other is never better than both at the inner position. Their tile sizes are combined, and combinations that
another one dominates in all relevant factors are dropped before anything is multiplied.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property, lru_cache
from itertools import product
from math import prod

import numpy as np
from numpy.typing import NDArray

from polymodel.pareto import undominated
from polymodel.slopes.curves import Curve, CurveOfBlocks, leaf
from polymodel.slopes.loop_nests import ChoiceBlock, as_indexed, blocks, order_classes, subsets

Ints = NDArray[np.int64]
BACKING, WHOLE = -1, 0  # storage of a tensor; other values: below this many fused loops
BLOCK = 2**20


@dataclass(frozen=True)
class OperationTensor:
    """One tensor: rank variables (positions) that index it, the weight of an element, and whether results are
    added to previous values, so that it is read before it is first written."""

    indexed: frozenset[int]
    output: bool
    weight: int
    accumulates: bool = False


@dataclass(frozen=True)
class EinsumStructure:
    """One Einsum without names: Einsums of equal structure have equal curves.

    `sizes`: per rank variable the tile sizes to try, ascending, the extent last; a tile divides the enclosing
    one.
    """

    sizes: tuple[tuple[int, ...], ...]
    operands: tuple[OperationTensor, ...]
    times: int = 1

    @property
    def extents(self) -> tuple[int, ...]:
        return tuple(s[-1] for s in self.sizes)

    def elements(self, operand: int) -> int:
        """Return the size of a tensor, with each element counting its weight."""
        o = self.operands[operand]
        return o.weight * prod(self.extents[v] for v in o.indexed)

    def least(self, operand: int) -> int:
        """Return the least traffic of a tensor, which includes reading its previous values if results are
        added to them."""
        return self.elements(operand) * (1 + self.operands[operand].accumulates)


@dataclass(frozen=True)
class GraphSetting:
    """The part of a mapping that is fixed by the neighbours.

    Fused loops (rank variables, outermost first), the storage of each tensor (BACKING, WHOLE, or the number
    of fused loops above its tile), the sets of tensors that may be uneven, the number of fused loops (heads)
    in whose iterations the buffer is freed, with tiles of 1 (`freed`), and `bounds` on iterations of fused
    loops: (rank variable, number, whether exactly it or any multiple of it).
    """

    loops: tuple[int, ...]
    held: tuple[int, ...]
    uneven: frozenset[frozenset[int]]
    freed: int = 0
    bounds: tuple[tuple[int, int, bool], ...] = ()

    def fits(self, variable: int, bound: int) -> bool:
        """Return whether a fused loop may have this number of iterations."""
        return all(
            bound == n if exactly else bound % n == 0 for v, n, exactly in self.bounds if v == variable
        )


@dataclass(frozen=True)
class OperationChoice:
    """One mapping: tiles of the fused loops, tiles below them, the order of the loops below, and uneven
    tensors."""

    fused: tuple[tuple[int, int], ...]
    tiles: tuple[int, ...]
    order: tuple[int, ...]
    uneven: frozenset[int]


@lru_cache(maxsize=8192)
def operation_curve(one: EinsumStructure, setting: GraphSetting) -> Curve:
    """Return accesses over footprint (without tensors held whole) of one Einsum."""
    table = _MappingTable(one, setting)
    front = CurveOfBlocks()
    for active, uneven in table.patterns():
        inner = {str(t): table.classes[t] for t in table.moving if t not in uneven}
        indexed = as_indexed({t: frozenset(map(str, c)) for t, c in inner.items()})
        for result in order_classes(tuple(map(str, active)), indexed):
            outside = {int(t): frozenset(map(int, o)) for t, o in result.outside}
            _Pattern(table, active, tuple(map(int, result.order)), uneven, outside).offer(front)
    return leaf(front.capacity, front.accesses * one.times, _describer(front))


def _describer(front: CurveOfBlocks) -> _Describe:
    return _Describe(tuple(front.sources), front.which)


@dataclass(frozen=True, eq=False)
class _Describe:
    sources: tuple[object, ...]
    which: Ints

    def __call__(self, point: int) -> OperationChoice:
        number, at = self.which[point].tolist()
        source = self.sources[number]
        assert isinstance(source, _BlockSource)
        return source.choice(at)


@dataclass(frozen=True, eq=False)
class _Axis:
    """Combined tile sizes of rank variables that index the same tensors; one row per combination.

    `fused`: tiles (rows, fused loops of these); `trips`: their iterations. `boxes`: elements below each
    number of fused loops (depth, rows). `inner`: tile below all loops; `again`: iterations there.
    """

    members: tuple[int, ...]
    fused: Ints
    trips: dict[int, Ints]
    boxes: Ints
    inner: Ints
    again: Ints

    @property
    def active(self) -> NDArray[np.bool_]:
        result: NDArray[np.bool_] = self.again > 1
        return result


@dataclass(frozen=True, eq=False)
class _MappingTable:
    one: EinsumStructure
    setting: GraphSetting

    @cached_property
    def moving(self) -> tuple[int, ...]:
        """Return the tensors that cause traffic at the backing store."""
        return tuple(t for t, h in enumerate(self.setting.held) if h == BACKING)

    @cached_property
    def tiled(self) -> tuple[int, ...]:
        return tuple(t for t, h in enumerate(self.setting.held) if h > 0)

    @cached_property
    def axes(self) -> tuple[_Axis, ...]:
        """One axis per set of relevant tensors; rank variables that index none are left out unless fused."""
        counted = self.moving + self.tiled
        met: dict[frozenset[int], list[int]] = {}
        for v in range(len(self.one.sizes)):
            users = frozenset(t for t in counted if v in self.one.operands[t].indexed)
            if users or v in self.setting.loops:
                met.setdefault(users, []).append(v)
        return tuple(_axis(self.one, self.setting, tuple(m)) for m in met.values())

    @cached_property
    def classes(self) -> tuple[frozenset[int], ...]:
        """Per tensor, the axes that index it."""
        indices = [o.indexed for o in self.one.operands]
        return tuple(
            frozenset(i for i, a in enumerate(self.axes) if a.members[0] in index) for index in indices
        )

    def patterns(self) -> Iterator[tuple[tuple[int, ...], frozenset[int]]]:
        """The axes that have a loop below the fused ones, and the tensors stored above those loops."""
        able = [i for i, a in enumerate(self.axes) if bool(a.active.any())]
        for active in subsets(able):
            touched = {t for t in self.moving if self.classes[t] & set(active)}
            for uneven in self._uneven(touched):
                inner = touched - uneven
                if all(any(c in self.classes[t] for t in inner) for c in active):
                    yield active, uneven

    def _uneven(self, touched: set[int]) -> set[frozenset[int]]:
        """Return the sets of tensors that may be uneven, if that makes a difference."""
        return {
            frozenset(some) for allowed in self.setting.uneven for some in subsets(sorted(allowed & touched))
        }


@lru_cache(maxsize=8192)
def _axis(one: EinsumStructure, setting: GraphSetting, members: tuple[int, ...]) -> _Axis:
    loops = [v for v in setting.loops if v in members]
    freed = setting.loops[: setting.freed]
    rows_fused, rows_inner = [], []
    choices = []
    for v in loops:
        whole, sizes = one.extents[v], (1,) if v in freed else one.sizes[v][:-1]
        choices.append([s for s in sizes if whole % s == 0 and setting.fits(v, whole // s)])
    for tiles in product(*choices):
        fused = dict(zip(loops, tiles, strict=True))
        for inner in _products(tuple(_below(one.sizes[v], fused.get(v, one.extents[v])) for v in members)):
            rows_fused.append(tiles)
            rows_inner.append(inner)
    fused_ = np.asarray(rows_fused, np.int64).reshape(len(rows_fused), len(loops))
    trips = {v: one.extents[v] // fused_[:, i] for i, v in enumerate(loops)}
    boxes = [np.full(len(fused_), prod(one.extents[v] for v in members), np.int64)]
    for v in setting.loops:
        boxes.append(boxes[-1] // trips[v] if v in trips else boxes[-1])
    inner_ = np.asarray(rows_inner, np.int64)
    return _Axis(members, fused_, trips, np.stack(boxes), inner_, boxes[-1] // inner_)


def _below(sizes: tuple[int, ...], enclosing: int) -> tuple[int, ...]:
    return tuple(s for s in (*sizes, enclosing) if s <= enclosing and enclosing % s == 0)


@lru_cache(maxsize=8192)
def _products(sizes: tuple[tuple[int, ...], ...]) -> tuple[int, ...]:
    """Return every product of one size of each variable."""
    return tuple(sorted({prod(p) for p in product(*map(set, sizes))}))


@dataclass(frozen=True, eq=False)
class _Pattern:
    """Loops below the fused ones: their axes and order, and what causes each tensor to be moved again."""

    table: _MappingTable
    active: tuple[int, ...]
    order: tuple[int, ...]
    uneven: frozenset[int]
    outside: dict[int, frozenset[int]]

    @cached_property
    def repeated(self) -> dict[int, tuple[frozenset[int], frozenset[int]]]:
        """Return, per moving tensor, the fused loops (rank variables) and the axes below, each iteration of
        which moves all of it again."""
        return {t: self._repeated(t) for t in self.table.moving}

    def _repeated(self, tensor: int) -> tuple[frozenset[int], frozenset[int]]:
        setting, index = self.table.setting, self.table.one.operands[tensor].indexed
        loops = setting.loops
        below = self.table.classes[tensor] & set(self.active)
        if tensor not in self.uneven and below:
            reach = len(loops)
        else:
            reach = max((i for i, v in enumerate(loops) if v in index), default=-1)
            reach = max(reach, setting.freed)
        fused = frozenset(v for v in loops[:reach] if v not in index)
        return fused, self.outside.get(tensor, frozenset()) if below else frozenset()

    def rows(self, at: int) -> Ints:
        """Return combined tile sizes of one axis that are not dominated."""
        axis, table = self.table.axes[at], self.table
        every = np.flatnonzero(axis.active == (at in self.active))
        counted: list[Ints] = []
        for t in table.tiled:
            if at in table.classes[t]:
                counted.append(axis.boxes[table.setting.held[t]])
        for t in table.moving:
            if at in table.classes[t]:
                counted.append(axis.boxes[-1] if t in self.uneven else axis.inner)
            fused, below = self.repeated[t]
            counted += [axis.trips[v] for v in fused if v in axis.trips]
            counted += [axis.again] if at in below else []
        if not len(every) or not counted:
            return every[:1]
        return every[undominated([c[every] for c in counted])]

    def offer(self, front: CurveOfBlocks) -> None:
        rows = [self.rows(i) for i in range(len(self.table.axes))]
        if not all(map(len, rows)):
            return
        for block in blocks([len(r) for r in rows], BLOCK):
            capacity, accesses = map(block.flat, self._figures(rows, block))
            front.offer(capacity, accesses, _BlockSource(self, tuple(rows), block))

    def _figures(self, rows: list[Ints], block: ChoiceBlock) -> tuple[Ints, Ints]:
        """Return (footprint, accesses) of a block of combinations of these rows."""
        table, one = self.table, self.table.one

        def spread(values: Ints, at: int) -> Ints:
            return block.along(values[rows[at]], at)

        footprint: Ints = np.asarray(0, np.int64)
        accesses: Ints = np.asarray(0, np.int64)
        for t in table.tiled + table.moving:
            held: Ints = np.asarray(one.operands[t].weight, np.int64)
            for c in table.classes[t]:
                axis = table.axes[c]
                depth = table.setting.held[t] if t in table.tiled else -1
                inner = t in table.moving and t not in self.uneven
                held = held * spread(axis.inner if inner else axis.boxes[depth], c)
            footprint = footprint + held
        for t in table.moving:
            moved: Ints = np.asarray(one.elements(t), np.int64)
            fused, below = self.repeated[t]
            for c, axis in enumerate(table.axes):
                for v in fused:
                    moved = moved * spread(axis.trips[v], c) if v in axis.trips else moved
                moved = moved * spread(axis.again, c) if c in below else moved
            written_first = 0 if one.operands[t].accumulates else one.elements(t)
            accesses = accesses + (2 * moved - written_first if one.operands[t].output else moved)
        return footprint, accesses


@dataclass(frozen=True, eq=False)
class _BlockSource:
    """The origin of the points of a block."""

    pattern: _Pattern
    rows: tuple[Ints, ...]
    block: ChoiceBlock

    def choice(self, at: int) -> OperationChoice:
        table = self.pattern.table
        one, loops = table.one, table.setting.loops
        places = self.block.choices(at)
        fused: dict[int, int] = {}
        tiles = list(one.extents)
        order: dict[int, tuple[int, ...]] = {}
        for c, (axis, place) in enumerate(zip(table.axes, places, strict=True)):
            row = int(self.rows[c][place])
            mine = [v for v in loops if v in axis.members]
            fused |= dict(zip(mine, axis.fused[row].tolist(), strict=True))
            enclosing = [fused.get(v, one.extents[v]) for v in axis.members]
            some = [_below(one.sizes[v], e) for v, e in zip(axis.members, enclosing, strict=True)]
            want = int(axis.inner[row])
            result = next(p for p in product(*some) if prod(p) == want)
            for v, t in zip(axis.members, result, strict=True):
                tiles[v] = t
            order[c] = tuple(v for v, t, e in zip(axis.members, result, enclosing, strict=True) if t < e)
        below = tuple(v for c in self.pattern.order for v in order[c])
        return OperationChoice(tuple((v, fused[v]) for v in loops), tuple(tiles), below, self.pattern.uneven)
