"""Peaks of what is held along rank variables that bounds tie together, also of buffets that come and go."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import product as cartesian

from polymodel.analysis.symbolic.between import Stay
from polymodel.analysis.symbolic.counts import loop_order, settled, touched
from polymodel.analysis.symbolic.cuts import PEAKS, Cut
from polymodel.analysis.symbolic.forms import ZERO, Form, Held, number, of_atom
from polymodel.analysis.symbolic.layout import policy, temporal
from polymodel.analysis.symbolic.peaks import Asked
from polymodel.analysis.symbolic.spaces import Axis, Group, Space
from polymodel.analysis.symbolic.visits import Gap
from polymodel.errors import NotSeparable
from polymodel.reuse import Reuse

Chains = tuple[list[Axis], list[Axis]]


@dataclass(frozen=True)
class Part:
    """A buffet in the phases of one Einsum, along tied variables.

    `fixed`: it holds the same at all stamps. `gap`: while its users do not run it is there at some stamps of
    a group's loops only, but for where `absent` is 0: then it is there whatever they do.
    """

    space: Space
    fixed: bool
    gap: tuple[Group, Gap] | None
    absent: Form


def gap_of(bare: Space, stay: Stay) -> tuple[Group, Gap] | None:
    """When a buffet that an Einsum does not use is there over steps of tied loops; None if never."""
    node, steps = stay.node, [i for i in temporal(bare) if i < stay.shared]
    tied = [i for i in steps if bare.axes[i].variable in bare.tied]
    within = [i for i in tied if stay.on_path and i >= node.depth]
    kept = [i for i in tied if i < node.depth and stay.carry.get(i, ZERO) != ZERO]
    if not within and not kept:
        return None
    names = {bare.axes[i].variable for i in within + kept}
    group, *others = (g for g in bare.groups if {g.u, g.v} & names)
    found = [_stays_over(node.space, group, i) for i in kept]
    if others or None in found or (kept and not _by_policy(stay, group)):
        raise unknown_gap(bare, stay)
    kept = [i for i, stays in zip(kept, found, strict=True) if stays]
    if not within and not kept:
        return None
    shared, depth = len(_loops(bare, group, stay.shared)), len(_loops(node.space, group, node.depth))
    policy = node.reuse if kept else Reuse.REFILL
    since = len(_loops(bare, group, min(kept, default=0)))
    return group, Gap(shared, depth, not stay.on_path, stay.before, policy, since)


def _loops(space: Space, group: Group, until: int) -> list[int]:
    """Positions of a group's loops among the outermost ones."""
    return [i for i, a in enumerate(space.axes[:until]) if a.variable in (group.u, group.v)]


def _by_policy(stay: Stay, group: Group) -> bool:
    """Whether nothing but the buffet's own policy decides about what stays."""
    own = {a: form for a, form in policy(stay.node).items() if form != ZERO}
    return group in stay.node.space.groups and stay.carry == own


def _stays_over(space: Space, group: Group, axis: int) -> bool | None:
    """Whether loops inside that are not the group's leave the tile as it is over a step; None: not known."""
    stays = True
    for i in temporal(space):
        v = space.axes[i].variable
        if i <= axis or v in (group.u, group.v) or v not in {*space.access.variables, *space.tied}:
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
        "use engine exact",
    )


@dataclass(frozen=True)
class _Row:
    """What is asked of one buffet along a group: what its tile holds, and what is there of it in a gap.

    `loops`: those that tell stamps; `own`: those further in, of a buffet in another branch.
    """

    number: int
    asked: Asked
    gap: Asked | None
    absent: Form
    loops: Chains
    own: Chains = ([], [])

    @property
    def every(self) -> tuple[Asked, ...]:
        if self.gap is None:
            return (self.asked,)
        return (self.gap,) if self.absent == number(1) else (self.asked, self.gap)


def tied_peaks(bare: Space, parts: Sequence[Part], held: tuple[Held, ...]) -> Iterator[tuple[Held, ...]]:
    """What is held at the stamps of tied variables that may be the peak; `held` without these variables."""
    found: dict[Group, list[_Row]] = {}
    for k, part in enumerate(parts):
        for group in () if part.fixed else part.space.groups:
            row = _row(bare, k, part, group)
            if row is not None:
                found.setdefault(group, []).append(row)
    choices = [_factors(group, rows) for group, rows in found.items()]
    _refuse_mixed(found)
    for choice in cartesian(*choices):
        sizes: list[Form] = [number(1)] * len(held)
        for factors in choice:
            for k, form in factors.items():
                sizes[k] = sizes[k] * form
        yield tuple(h.of(h.elements * size) for h, size in zip(held, sizes, strict=True))


def _row(bare: Space, k: int, part: Part, group: Group) -> _Row | None:
    what, rank = touched(part.space, group)
    mine = part.gap[1] if part.gap is not None and part.gap[0] == group else None
    if what == "none" and mine is None:
        return None
    every: Chains = (
        [part.space.axes[i] for i in part.space.of(group.u)],
        [part.space.axes[i] for i in part.space.of(group.v)],
    )
    asked = Asked(len(every[0]), len(every[1]), what, rank)
    if mine is None:
        return _Row(k, asked, None, part.absent, every)
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
            "use engine exact",
        )
    gap = replace(asked, gap=mine, order=order)
    return _Row(k, asked, gap, part.absent, loops, own)


def _factors(group: Group, rows: list[_Row]) -> list[dict[int, Form]]:
    """At each stamp that may be the peak, the size of each buffet's tile along a group."""
    chains = [max((list(row.loops[side]) for row in rows), key=len) for side in (0, 1)]
    for row in rows:
        for side in (0, 1):
            if row.loops[side] != chains[side][: len(row.loops[side])]:
                raise NotSeparable(
                    f"buffets stand below different loops over {group.u} and {group.v}, which a bound ties "
                    "together",
                    "use engine exact",
                )
    stamps = len(chains[0]), len(chains[1])
    rows = [_placed(row, chains) for row in rows]
    asked = tuple(dict.fromkeys(a for row in rows for a in row.every))
    places = 1 if len(asked) == 1 else PEAKS
    u, v = (tuple(a.level("each") for a in chain) for chain in chains)

    def size(a: Asked, place: int) -> Form:
        cut = Cut(group.region, u, v, asked=asked, item=asked.index(a), place=place, stamps=stamps)
        return of_atom(cut)

    def held(row: _Row, place: int) -> Form:
        if row.gap is None:
            return size(row.asked, place)
        there = size(row.gap, place) * row.absent
        return there if row.absent == number(1) else there + size(row.asked, place) * (number(1) - row.absent)

    return [{row.number: held(row, p) for row in rows} for p in range(places)]


def _placed(row: _Row, chains: list[list[Axis]]) -> _Row:
    """The row with the places of its loops in the chains, which its own ones lengthen."""
    if row.gap is None:
        return row
    places = []
    for side in (0, 1):
        begin = len(chains[side])
        chains[side].extend(row.own[side])
        places.append((*range(len(row.loops[side])), *range(begin, len(chains[side]))))
    return replace(row, gap=replace(row.gap, own=(places[0], places[1])))


def _refuse_mixed(found: Mapping[Group, list[_Row]]) -> None:
    """Refuse loops that one Einsum runs within other bounds, or under other names, than another."""
    owner: dict[int, Group] = {}
    for group, rows in found.items():
        for row in rows:
            for axis in (*row.loops[0], *row.loops[1]):
                if owner.setdefault(axis.node, group) != group:
                    raise NotSeparable(
                        f"Einsums run loops over {group.u} and {group.v} within other bounds, or under other "
                        "names",
                        "use engine exact",
                    )
