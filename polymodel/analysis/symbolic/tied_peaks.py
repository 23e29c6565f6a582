"""Peak occupancy along rank variables coupled by bounds, including buffets that are held only at some
stamps."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from itertools import product as cartesian
from math import prod

from polymodel.analysis.symbolic.counts import settled
from polymodel.analysis.symbolic.cross_branch_residency import Stay, steps_are_disjoint
from polymodel.analysis.symbolic.forms import ZERO, Form, HeldBuffet, number, of_atom
from polymodel.analysis.symbolic.layout import (
    SymbolicBuffet,
    SymbolicLayout,
    is_whole_tile,
    policy,
    temporal,
)
from polymodel.analysis.symbolic.listings import BuffetLoops, ListedPeak
from polymodel.analysis.symbolic.pair_atoms import CutAtom
from polymodel.analysis.symbolic.regions import PEAKS, Gap, TileQuery
from polymodel.analysis.symbolic.spaces import LoopAxis, Space, TiedGroup
from polymodel.analysis.symbolic.tied_groups import has_holes, loop_order, ranks_of, touched
from polymodel.errors import NotSeparable
from polymodel.reuse import Reuse

Chains = tuple[list[LoopAxis], list[LoopAxis]]
MOST_PEAKS = 2**16  # the most combinations of stamps of several groups, of which any may be the peak


@dataclass(frozen=True)
class TiedBuffet:
    """A buffet in the phases of one Einsum, along coupled variables.

    `fixed`: it holds the same at all stamps. `gap`: while its users do not run, it is held at some stamps of
    a group's loops only; if `absent` is 0, at all of them.
    """

    space: Space
    fixed: bool
    gap: tuple[TiedGroup, Gap] | None
    absent: Form


def gap_of(bare: Space, stay: Stay, once: frozenset[int]) -> tuple[TiedGroup, Gap] | None:
    """When a buffet that an Einsum does not use is held over steps of coupled loops; None if never.

    `once`: loops in whose first iteration only its users execute: it is held over none of their steps.
    """
    node = stay.node
    every = [i for i in temporal(bare) if i < stay.shared and settled(bare, i).constant != 1]
    steps = [i for i in every if i not in once]
    differs = [i for i in steps if i < node.depth and not _alike(bare, node.space, i)]
    tied = [i for i in steps if i in differs or bare.axes[i].variable in bare.tied]
    within = [i for i in tied if stay.on_path and i >= node.depth]
    kept = [i for i in tied if i < node.depth and stay.carry.get(i, ZERO) != ZERO]
    kept = [i for i in kept if i not in differs or not steps_are_disjoint(node.space, i)]
    if differs and stay.on_path and any(i >= node.depth for i in steps):
        raise unknown_gap(bare, stay)  # the number of steps of a tile decides whether it is held at all
    if not within and not kept:
        return None
    if differs or any(bare.axes[i].variable in bare.tied for i in every if i in once):
        raise unknown_gap(bare, stay)
    names = {bare.axes[i].variable for i in within + kept}
    group, *others = (g for g in bare.groups if names & set(g.variables))
    both = [(space, i) for space in (bare, node.space) for i in _loops(space, group, len(space.axes))]
    spread = any(space.axes[i].spatial for space, i in both)
    if spread or has_holes(node.space, group):
        raise unknown_gap(bare, stay)
    found = [_unchanged_over_step(node.space, group, i) for i in kept]
    if others or None in found or (kept and not _by_policy(stay, group)):
        raise unknown_gap(bare, stay)
    kept = [i for i, stays in zip(kept, found, strict=True) if stays]
    if not within and not kept:
        return None
    shared, depth = len(_loops(bare, group, stay.shared)), len(_loops(node.space, group, node.depth))
    policy = node.reuse if kept else Reuse.REFILL
    since = len(_loops(bare, group, min(kept, default=0)))
    return group, Gap(shared, depth, not stay.on_path, stay.before, policy, since)


def _alike(bare: Space, space: Space, axis: int) -> bool:
    """Whether two Einsums run a loop within the same bounds."""
    regions = [{g.region for g in x.groups if x.axes[axis].variable in g.variables} for x in (bare, space)]
    return regions[0] == regions[1]


def _loops(space: Space, group: TiedGroup, until: int) -> list[int]:
    """Positions of a group's loops among the outermost ones."""
    return [i for i, a in enumerate(space.axes[:until]) if a.variable in group.variables]


def _by_policy(stay: Stay, group: TiedGroup) -> bool:
    """Whether only the buffet's own policy decides what stays."""
    own = {a: form for a, form in policy(stay.node).items() if form != ZERO}
    return group in stay.node.space.groups and stay.carry == own


def _unchanged_over_step(space: Space, group: TiedGroup, axis: int) -> bool | None:
    """Whether inner loops outside the group leave the tile unchanged over a step; None: unknown."""
    stays = True
    for i in temporal(space):
        v = space.axes[i].variable
        if i <= axis or v in group.variables or v not in {*space.access.variables, *space.tied}:
            continue
        once = None if v in space.tied else settled(space, i)
        if once == number(1):
            continue
        split = any(j < axis for j in space.of(v)) or space.window(v) is not None
        if once != ZERO or split or v not in space.single:
            return None
        stays = False
    return stays


def unknown_gap(bare: Space, stay: Stay) -> NotSeparable:
    return NotSeparable(
        f"{stay.node.tensor} may stay in {stay.node.component} while {bare.einsum.name} runs, over steps "
        "of loops whose rank variables a bound ties together",
        code="unsupported-space",
    )


@dataclass(frozen=True)
class _BuffetCounts:
    """The counts of one buffet along a group: what its tile holds, and what is held of it in a gap.

    `loops`: those that determine stamps; `own`: those further in, for a buffet in another branch.
    """

    number: int
    asked: TileQuery
    gap: TileQuery | None
    absent: Form
    loops: Chains
    own: Chains = ([], [])

    @property
    def every(self) -> tuple[TileQuery, ...]:
        if self.gap is None:
            return (self.asked,)
        return (self.gap,) if self.absent == number(1) else (self.asked, self.gap)


def tied_peaks(
    bare: Space, parts: Sequence[TiedBuffet], held: tuple[HeldBuffet, ...]
) -> Iterator[tuple[HeldBuffet, ...]]:
    """The contents at the stamps of coupled variables that may be the peak; `held`: the contents without
    these variables."""
    found: dict[TiedGroup, list[_BuffetCounts]] = {}
    listed: dict[TiedGroup, list[tuple[int, Space]]] = {}
    moving = [part.space for part in parts if not part.fixed]
    holes = {group for space in moving for group in space.groups if has_holes(space, group)}
    for k, part in enumerate(parts):
        mine = part.space.groups if part.gap is None else (*part.space.groups, part.gap[0])
        for group in () if part.fixed else dict.fromkeys(mine):
            if group in holes:
                _refuse_gap(bare, part, group)
                listed.setdefault(group, []).append((k, part.space))
                continue
            row = _row(bare, k, part, group)
            if row is not None:
                found.setdefault(group, []).append(row)
    choices = [_factors(group, rows) for group, rows in found.items()]
    choices += [_listed_factors(group, spaces) for group, spaces in listed.items()]
    _refuse_mixed(found, listed)
    if prod(map(len, choices)) > MOST_PEAKS:
        raise NotSeparable(
            f"while {bare.einsum.name} runs, more than {MOST_PEAKS} stamps of variables that bounds tie "
            "together may be the peak of what is held",
            code="too-large",
        )
    for choice in cartesian(*choices):
        sizes: list[Form] = [number(1)] * len(held)
        for factors in choice:
            for k, form in factors.items():
                sizes[k] = sizes[k] * form
        yield tuple(h.of(h.elements * size) for h, size in zip(held, sizes, strict=True))


def _refuse_gap(bare: Space, part: TiedBuffet, group: TiedGroup) -> None:
    """Refuse a buffet that is held only at some stamps along a group whose tiles are listed value by
    value."""
    if part.gap is not None and part.gap[0] == group:
        raise NotSeparable(
            f"{part.space.access.tensor} may stay while {bare.einsum.name} runs, over steps of loops whose "
            "rank variables a bound ties together, and tiles along them have holes",
            code="unsupported-space",
        )


def _row(bare: Space, k: int, part: TiedBuffet, group: TiedGroup) -> _BuffetCounts | None:
    what, rank = touched(part.space, group) if group in part.space.groups else ("none", (0, 0))
    mine = part.gap[1] if part.gap is not None and part.gap[0] == group else None
    if what == "none" and mine is None:
        return None
    every: Chains = (
        [part.space.axes[i] for i in part.space.of(group.u)],
        [part.space.axes[i] for i in part.space.of(group.v)],
    )
    asked = TileQuery(len(every[0]), len(every[1]), what, rank)
    if mine is None:
        return _BuffetCounts(k, asked, None, part.absent, every)
    space = part.space if mine.inside else bare
    positions = _loops(space, group, len(space.axes))[: max(mine.shared, mine.depth)]
    order = loop_order(space, group, positions)
    above = order[: mine.shared].count("u"), order[: mine.shared].count("v")
    mapped: Chains = (
        [space.axes[i] for i in positions if space.axes[i].variable == group.u],
        [space.axes[i] for i in positions if space.axes[i].variable == group.v],
    )
    loops = mapped[0][: above[0]], mapped[1][: above[1]]
    own = mapped[0][above[0] :], mapped[1][above[1] :]
    if part.absent != number(1) and (own[0] or own[1]):
        raise NotSeparable(
            f"{part.space.access.tensor} may stay in part while {bare.einsum.name} runs, over steps of loops "
            "of which a bound ties some together",
            code="unsupported-space",
        )
    gap = replace(asked, gap=mine, order=order)
    return _BuffetCounts(k, asked, gap, part.absent, loops, own)


def _factors(group: TiedGroup, rows: list[_BuffetCounts]) -> list[dict[int, Form]]:
    """At each stamp that may be the peak, the size of each buffet's tile along a group."""
    chains = [max((list(row.loops[side]) for row in rows), key=len) for side in (0, 1)]
    for row in rows:
        for side in (0, 1):
            if row.loops[side] != chains[side][: len(row.loops[side])]:
                raise NotSeparable(
                    f"buffets stand below different loops over {group.u} and {group.v}, which a bound ties "
                    "together",
                    code="unsupported-space",
                )
    stamps = len(chains[0]), len(chains[1])
    rows = [_placed(row, chains) for row in rows]
    asked = tuple(dict.fromkeys(a for row in rows for a in row.every))
    places = 1 if len(asked) == 1 else PEAKS
    u, v = (tuple(a.level("each") for a in chain) for chain in chains)

    def size(a: TileQuery, place: int) -> Form:
        cut = CutAtom(group.region, u, v, asked=asked, item=asked.index(a), place=place, stamps=stamps)
        return of_atom(cut)

    def held(row: _BuffetCounts, place: int) -> Form:
        if row.gap is None:
            return size(row.asked, place)
        there = size(row.gap, place) * row.absent
        return there if row.absent == number(1) else there + size(row.asked, place) * (number(1) - row.absent)

    return [{row.number: held(row, p) for row in rows} for p in range(places)]


def _listed_factors(group: TiedGroup, spaces: list[tuple[int, Space]]) -> list[dict[int, Form]]:
    """The same if tiles along a group are listed value by value."""
    chains = []
    for v in group.variables:
        every = [[space.axes[i] for i in space.of(v)] for _, space in spaces]
        chains.append(max(every, key=len))
        if any(axes != chains[-1][: len(axes)] for axes in every):
            raise NotSeparable(
                f"buffets stand below different loops over {v}, which bounds tie to others",
                code="unsupported-space",
            )
    loops = tuple(tuple(a.level("each") for a in chain) for chain in chains)
    held = [
        BuffetLoops(tuple(len(space.of(v)) for v in group.variables), ranks_of(space, group))
        for _, space in spaces
    ]
    asked = tuple(dict.fromkeys(held))

    def size(one: BuffetLoops, place: int) -> Form:
        return of_atom(ListedPeak(group.region, loops, asked, asked.index(one), place))

    places = 1 if len(asked) == 1 else PEAKS
    return [{k: size(one, p) for (k, _), one in zip(spaces, held, strict=True)} for p in range(places)]


def _placed(row: _BuffetCounts, chains: list[list[LoopAxis]]) -> _BuffetCounts:
    """The row with the places of its loops in the chains; its own loops extend these."""
    if row.gap is None:
        return row
    places = []
    for side in (0, 1):
        begin = len(chains[side])
        chains[side].extend(row.own[side])
        places.append((*range(len(row.loops[side])), *range(begin, len(chains[side]))))
    return replace(row, gap=replace(row.gap, own=(places[0], places[1])))


def _refuse_mixed(
    found: Mapping[TiedGroup, list[_BuffetCounts]], listed: Mapping[TiedGroup, list[tuple[int, Space]]]
) -> None:
    """Refuse loops that one Einsum runs within other bounds, or under other names, than another."""
    owner: dict[int, TiedGroup] = {}
    users = [(group, axis) for group, rows in found.items() for row in rows for axis in chain(*row.loops)]
    users += [
        (group, axis)
        for group, spaces in listed.items()
        for _, space in spaces
        for axis in space.axes
        if axis.variable in group.variables
    ]
    for group, axis in users:
        if owner.setdefault(axis.node, group) != group:
            raise NotSeparable(
                f"Einsums run loops over {' and '.join(group.variables)} within other bounds, or under other "
                "names",
                code="unsupported-space",
            )


def own_tile(layout: SymbolicLayout, einsum: str, node: SymbolicBuffet) -> SymbolicBuffet:
    """The buffet with its tiles within the bounds of an Einsum on whose path it is."""
    if einsum != node.producer and node.producer in node.users and is_whole_tile(node.space):
        return node  # it holds everything produced, of which the Einsum may read only a part
    if einsum in node.users and node.space.carried is None:
        return replace(node, space=layout.space(einsum, node.tensor, node.depth))
    bare = layout.stamps(einsum, layout.paths[einsum])
    if all(_alike(bare, node.space, i) for i in range(node.depth)):
        return node
    raise NotSeparable(
        f"{node.tensor} stands in {node.component} below loops that {einsum}, which does not use it, runs "
        "within other bounds",
        code="unsupported-space",
    )
