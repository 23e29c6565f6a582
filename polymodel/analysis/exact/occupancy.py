"""Tile sizes and working sets: the largest joint size over all stamps, by classes of stamps.

Stamps fall into few classes on which every tile has one size (interior and edge tiles, first and last
iterations). Per independent set of loops the classes are found with ISL; the peak is the maximum over their
combinations, so that it is exact however many stamps there are.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from fractions import Fraction
from functools import lru_cache
from math import prod
from typing import Any

import numpy as np
from numpy.typing import NDArray

from polymodel.analysis.exact.buffets import ExactBuffet, ExactLayout, shape_of
from polymodel.analysis.exact.cached_counts import SEVERAL_LOOPS, Array, FactorShape, tally
from polymodel.analysis.result import Resident, WorkingSet
from polymodel.errors import Refused
from polymodel.integers import times
from polymodel.mapping.looptree import Split, StorageNode
from polymodel.polyhedra import needs, nests, sets
from polymodel.polyhedra.needs import Row
from polymodel.polyhedra.nests import part_of
from polymodel.schedule.touch import Factor, Touch, View, axes_of, merge_blocks, partition, touch

_COMBINATIONS = 2_000_000


@dataclass(frozen=True)
class PeakBuffet:
    """One buffet of a peak: its bits per element, its multiplicity, and when it is resident."""

    node: ExactBuffet
    bits: int
    scale: Fraction = Fraction(1)
    instances: int = 1
    fixed: int | None = None
    not_first: tuple[int, ...] | None = None
    not_last: tuple[int, ...] | None = None

    def in_bits(self, elements: NDArray[Any]) -> NDArray[Any]:
        """Bits of this many elements: scaled and rounded up, for every execution."""
        bits = times(elements, self.bits * self.scale.numerator)
        return times(-(-bits // self.scale.denominator), self.instances)


@lru_cache(maxsize=16384)
def largest(shape: FactorShape) -> int:
    """The largest tile of one factor."""
    if shape.nest is not None and len(shape.nest.loops) >= SEVERAL_LOOPS:
        result = nests.widest(shape.nest)
        if result is not None:
            return result
    return max((size for _, size in needs.sizes(shape.text, shape.np + shape.nt)), default=0)


def tile_numbers(node: ExactBuffet) -> tuple[int, int, int, int, int]:
    """(largest, total, visits, instances, distinct) of a buffet's tiles."""
    if not node.visited:
        return (0, 0, 0, 0, 0)
    result = [1, 1, 1, 1, 1]
    for f in node.all_touch.factors:
        s = shape_of(f)
        dims = s.np + s.nt + len(f.ranks)
        numbers = (
            largest(s),
            int(tally(s, 0)),
            int(tally(s, 0, tuple(range(s.np + s.nt, dims)))),
            int(tally(s, 0, tuple(range(s.np, dims)))) if s.np else 1,
            int(tally(s, 0, tuple(range(s.np + s.nt)))) if f.ranks else 1,
        )
        result = [a * b for a, b in zip(result, numbers, strict=True)]
    return (result[0], result[1], result[2], result[3], result[4])


def tensor_bits(layout: ExactLayout, tensor: str) -> int:
    """Bits per value: of the first access in cascade order."""
    return layout.problem.cascade.accesses_of(tensor)[0].bits_per_value


def is_persistent(layout: ExactLayout, tensor: str) -> bool:
    return any(a.persistent for a in layout.problem.cascade.accesses_of(tensor))


def item_of(layout: ExactLayout, node: ExactBuffet) -> PeakBuffet:
    """The buffet with its bits, scale and, if persistent, its fixed size."""
    accesses = layout.problem.cascade.accesses_of(node.tensor)
    scale, count, fixed = Fraction(1), 1, None
    if node.parent is None:
        scale = accesses[0].backing_scale
        if any(a.persistent for a in accesses):
            count = max(layout.problem.cascade[e].n_instances for e in node.users)
            fixed = distinct_elements(node)
    elif layout.problem.hierarchy.doubles(node.component):
        count = 2
    return PeakBuffet(node, tensor_bits(layout, node.tensor), scale, count, fixed)


def distinct_elements(node: ExactBuffet) -> int:
    """The most distinct elements that one instance of the node ever holds."""
    result = 1
    for f in node.all_touch.factors:
        s = shape_of(f)
        result *= int(tally(s, s.np, tuple(range(s.np, s.np + s.nt))).max())
    return result


def _residence(layout: ExactLayout, einsum: str, node: ExactBuffet) -> PeakBuffet | None:
    """The buffet as an item of this Einsum's phases; None if it is never resident there."""
    item = item_of(layout, node)
    if node.parent is None and is_persistent(layout, node.tensor):
        return item
    if einsum in node.users:
        return item
    before = after = False
    shared_before = shared_after = -1
    for user in node.users:
        _, mine, theirs = divergence(layout, einsum, user)
        loops = _shared_loops(layout, einsum, user)
        before, after = before or theirs < mine, after or theirs > mine
        if theirs < mine:
            shared_before = max(shared_before, loops)
        else:
            shared_after = max(shared_after, loops)
    if before and after:
        return item
    reach = shared_before if before else shared_after
    between = tuple(a for a in range(node.loops, reach) if not _is_spatial(layout, einsum, a))
    if not between:
        return None
    return replace(item, not_last=between) if before else replace(item, not_first=between)


def _is_spatial(layout: ExactLayout, einsum: str, axis: int) -> bool:
    return layout.problem.tree.loops(einsum)[axis][1].spatial


def has_gaps(layout: ExactLayout, einsum: str, component: str) -> bool:
    """True if a carried tile may stay allocated while this Einsum, which does not use it, runs."""
    tree = layout.problem.tree
    on_path = {s.id for s in tree.path(einsum)}
    for node in layout.nodes.values():
        if node.component != component or node.id in on_path or not node.policy_carries:
            continue
        shared = _shared_loops(layout, einsum, node.users[0])
        if any(a < shared for a in node.policy_carries):
            return True
    mine = [n for n in layout.nodes.values() if n.component == component and n.id in on_path]
    for node in mine:
        around = _around(layout, einsum, node)
        if einsum not in node.users:
            if node.policy_carries or (around and _other_ranges(layout, einsum, node)):
                return True
        elif (node.policy_carries or around) and idles_while_others_run(layout, einsum, node):
            return True  # also resident where this Einsum is idle
    return False


def _around(layout: ExactLayout, einsum: str, node: ExactBuffet) -> bool:
    """True if other users of the node run before and after the Einsum within one of the node's stamps."""
    before = after = False
    for user in node.users:
        if user != einsum:
            _, mine, theirs = divergence(layout, einsum, user)
            shared = range(node.loops, _shared_loops(layout, einsum, user))
            again = any(not _is_spatial(layout, einsum, axis) for axis in shared)
            before, after = before or again or theirs < mine, after or again or theirs > mine
    return before and after


def _other_ranges(layout: ExactLayout, einsum: str, node: ExactBuffet) -> bool:
    """True if a user of the node runs its shared loops over other iterations than this Einsum."""
    return any(
        not same_stamps(layout, einsum, user, _shared_loops(layout, einsum, user)) for user in node.users
    )


def _shared_loops(layout: ExactLayout, one: str, other: str) -> int:
    """The number of loops above the split at which two Einsums diverge."""
    split, _, _ = divergence(layout, one, other)
    return sum(1 for i, _ in layout.problem.tree.loops(one) if i < split)


def items_of(layout: ExactLayout, einsum: str, component: str, reserved: bool) -> list[PeakBuffet]:
    """The buffets of a component that may be resident while an Einsum runs."""
    result: list[PeakBuffet] = []
    on_path = {s.id for s in layout.problem.tree.path(einsum) if isinstance(s.node, StorageNode)}
    for node in layout.nodes.values():
        if node.component != component:
            continue
        if node.id in on_path:
            item = item_of(layout, node) if reserved else _residence(layout, einsum, node)
            if item is not None:
                result.append(item)
        elif node.parent is None and is_persistent(layout, node.tensor):
            result.append(item_of(layout, node))
    return sorted(result, key=lambda i: (i.node.id, i.node.tensor))


def _stamps(layout: ExactLayout, einsum: str, items: list[PeakBuffet], everywhere: bool) -> Touch:
    """The Einsum's own stamps over all loops that matter, grouped so that items' factors fit.

    `everywhere`: its times, in all instances in which some item is, whether it runs there or not.
    """
    view = next(v for (e, _), v in layout.full.items() if e == einsum)
    depth = max((i.node.loops for i in items if i.fixed is None), default=0)
    for i in items:
        depth = max(depth, *(a + 1 for a in (i.not_first or ()) + (i.not_last or ())), 0)
    bare = view.bare(depth)
    blocks, axes = partition((bare,)), axes_of(bare)
    for i in items:
        for f in () if i.fixed is not None else i.node.all_touch.factors:
            mine = [axes[a] for a in (*f.spatial, *f.temporal)]
            hit = [k for k, b in enumerate(blocks) if any(b.has(einsum, axis) for axis in mine)]
            if len(hit) > 1:
                blocks = merge_blocks(blocks, hit)
    stamps = touch((bare,), blocks)
    if not everywhere:
        return stamps
    return replace(stamps, factors=tuple(_at_all_places(f, items) for f in stamps.factors))


def _at_all_places(factor: Factor, items: list[PeakBuffet]) -> Factor:
    """The times of a factor in every instance that any item reaches."""
    extents = dict.fromkeys(factor.spatial, 1)
    for f in (f for i in items if i.fixed is None for f in i.node.all_touch.factors):
        for position, axis in enumerate(f.spatial):
            extents[axis] = max(extents.get(axis, 1), needs.extent(f.text, position)[1] + 1)
    places = tuple(extents[axis] for axis in factor.spatial)
    return factor.of_text(needs.at_all_places(factor.text, places)) if places else factor


def peak(
    layout: ExactLayout, einsum: str, component: str, measure: str, items: list[PeakBuffet]
) -> WorkingSet | None:
    """The largest joint size of the items over the Einsum's stamps, with the residents."""
    if not items:
        return None
    beside = measure == "reserved" and any(
        i.fixed is None and idles_while_others_run(layout, einsum, i.node) for i in items
    )
    stamps = _stamps(layout, einsum, items, beside)
    tables = []
    for f in stamps.factors:
        tables.append(_classes_of_nest(f, items) or _classes(f.text, f.spatial, f.temporal, items))
    shape = tuple(len(t) for t in tables)
    if prod(shape) > _COMBINATIONS:
        message = f"the tiles of {component} under {einsum} have too many different sizes to combine"
        remedy = "use larger tiles in the loops above them, or tiles that divide their extents"
        raise Refused(message, remedy, code="too-large")
    each = [_bits_over_classes(item, k, tables) for k, item in enumerate(items)]
    total = np.zeros(shape, dtype=each[0].dtype)
    for value in each:
        total = np.asarray(total + value, dtype=total.dtype)
    best = np.unravel_index(int(np.argmax(total)), shape) if shape else ()
    residents = []
    for item, value in zip(items, each, strict=True):
        bits = int(np.broadcast_to(value, shape)[best])
        if bits:
            residents.append(Resident(item.node.id, item.node.tensor, bits))
    return WorkingSet(component, einsum, measure, int(total[best]), tuple(residents))


def _bits_over_classes(item: PeakBuffet, position: int, tables: list[list[Row]]) -> Array:
    """Bits of one item for every combination of classes (object integers, broadcastable)."""
    rank = len(tables)
    value = np.ones((1,) * rank, dtype=object)
    first = np.ones((1,) * rank, dtype=bool)
    last = np.ones((1,) * rank, dtype=bool)
    for axis, table in enumerate(tables):
        shape = [1] * rank
        shape[axis] = len(table)
        sizes = np.array([row[position][0] for row in table], dtype=object)
        value = np.asarray(value * sizes.reshape(shape), dtype=object)
        first = first & np.array([row[position][1] for row in table]).reshape(shape)
        last = last & np.array([row[position][2] for row in table]).reshape(shape)
    constant = prod(
        largest(shape_of(f)) for f in item.node.all_touch.factors if not (f.spatial or f.temporal)
    )
    value = value * constant if item.fixed is None else value * 0 + item.fixed
    if item.not_first is not None:
        value = value * ~first
    if item.not_last is not None:
        value = value * ~last
    return item.in_bits(np.asarray(value, dtype=object))


def _classes(
    text: str, spatial: tuple[int, ...], temporal: tuple[int, ...], items: list[PeakBuffet]
) -> list[Row]:
    """Distinct rows over the stamps of one factor: per item (size factor, at first, at last)."""
    mine = (*spatial, *temporal)
    requests: list[tuple[tuple[tuple[str, tuple[int, ...]], ...], tuple[int, ...], tuple[int, ...]]] = []
    for item in items:
        inside = []
        if item.fixed is None:
            for f in item.node.all_touch.factors:
                axes = (*f.spatial, *f.temporal)
                if axes and set(axes) <= set(mine):
                    inside.append((f.text, tuple(mine.index(a) for a in axes)))
        flags = []
        for loops in (item.not_first, item.not_last):
            flags.append(tuple(temporal.index(a) for a in (loops or ()) if a in temporal))
        requests.append((tuple(inside), flags[0], flags[1]))
    return _largest_rows(list(needs.rows(text, len(spatial), len(temporal), tuple(requests))))


def _classes_of_nest(factor: Factor, items: list[PeakBuffet]) -> list[Row] | None:
    """Return rows by classes of tiles, if there are many loops and all items are always resident; otherwise
    None."""
    nest, axes = factor.nest, (*factor.spatial, *factor.temporal)
    if nest is None or len(nest.loops) < SEVERAL_LOOPS or any(i.not_first or i.not_last for i in items):
        return None
    parts, owners = [], []
    for k, item in enumerate(items):
        for f in () if item.fixed is not None else item.node.all_touch.factors:
            mine = (*f.spatial, *f.temporal)
            if mine and set(mine) <= set(axes):
                loops = [axes.index(a) for a in mine]
                if f.nest is None:
                    return None
                part = part_of(nest, factor.variables, f.nest, f.variables, loops)
                if part is None:
                    return None
                parts.append(part)
                owners.append(k)
    found = nests.size_rows(nest, parts)
    if found is None:
        return None
    rows = []
    for sizes in found:
        each = [prod(s for s, o in zip(sizes, owners, strict=True) if o == k) for k in range(len(items))]
        rows.append(tuple((size, True, True) for size in each))
    return _largest_rows(list(dict.fromkeys(rows)))


def _largest_rows(rows: list[Row]) -> list[Row]:
    """Rows that no other row exceeds: an item counts for more with a larger size, and away from its edges."""
    if len(rows) < 2:
        return rows
    table = np.array(
        [[(size, not first, not last) for size, first, last in row] for row in rows], dtype=object
    )
    table = table.reshape(len(rows), -1)
    kept: list[int] = []
    for i in np.argsort(-table.sum(axis=1), kind="stable"):  # rows that exceed a row come before it
        if not any((table[i] <= table[k]).all() for k in kept):
            kept.append(int(i))
    return [rows[i] for i in sorted(kept)]


def divergence(layout: ExactLayout, one: str, other: str) -> tuple[int, int, int]:
    """(id of the split at which two Einsums diverge, branch of the one, branch of the other)."""
    tree = layout.problem.tree
    for a, b in zip(tree.path(one), tree.path(other), strict=False):
        if isinstance(a.node, Split) and a.branch != b.branch:
            return a.id, a.branch, b.branch
    raise KeyError((one, other))


def _shared_stamps(layout: ExactLayout, einsums: tuple[str, str], reach: int) -> list[tuple[Factor, Factor]]:
    """Factor by factor, the iterations that two Einsums run of the `reach` loops that they share."""
    views: list[View] = []
    for einsum in einsums:
        views.append(next(v for (e, _), v in layout.full.items() if e == einsum).bare(reach))
    blocks = partition(views)
    one, other = (touch((view,), blocks).factors for view in views)
    return list(zip(one, other, strict=True))


def same_stamps(layout: ExactLayout, one: str, other: str, reach: int) -> bool:
    """True if two Einsums run the same iterations of their first `reach` loops."""
    return all(sets.same(a.text, b.text) for a, b in _shared_stamps(layout, (one, other), reach))


def idles_while_others_run(layout: ExactLayout, einsum: str, node: ExactBuffet) -> bool:
    """True if another user of a node above the Einsum runs in an instance while the Einsum is idle there.

    Both run products of factors over the loops above the node, so that one factor decides.
    """
    if not node.all_touch.spatial:
        return False
    for user in node.users:
        if user == einsum:
            continue
        found = [
            needs.at_times_of(theirs.text, mine.text, len(mine.spatial))
            for mine, theirs in _shared_stamps(layout, (einsum, user), node.loops)
        ]
        if all(some for some, _ in found) and any(idle for _, idle in found):
            return True
    return False
