"""The lists from which the peaks of live elements of an Einsum are computed: its phases and all uses, class
by class."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

from polymodel.analysis.symbolic.cross_branch_residency import divergence, shared_loops
from polymodel.analysis.symbolic.forms import HeldBuffet, of_atom
from polymodel.analysis.symbolic.layout import SymbolicBuffet, SymbolicLayout
from polymodel.analysis.symbolic.listed_lives import (
    ListedGroup,
    ListedLife,
    ListedUse,
    LiveClass,
    LivePeak,
)
from polymodel.analysis.symbolic.occupancy import OccupancyItem
from polymodel.analysis.symbolic.regions import NeededRegion, Region
from polymodel.analysis.symbolic.spaces import LoopAxis, TiedGroup
from polymodel.errors import NotSeparable

Key = tuple[str, object, object]  # a group of variables of an Einsum, a loop, or a rank of a tensor


def listed_lives(
    layout: SymbolicLayout, einsum: str, component: str, items: Sequence[OccupancyItem]
) -> tuple[HeldBuffet, ...]:
    """Return the live elements at the peak phase of an Einsum, for each choice of tile sizes."""
    lasting = tuple(i.held for i in items if i.fixed)
    moving = [i for i in items if not i.fixed]
    if not moving:
        return lasting
    for item in moving:
        _refuse(layout, item)
    uses = _Uses(layout, einsum, [i.node for i in moving])
    every = tuple(a.level("each") for a in uses.axes.values())
    classes, order = uses.classes()
    ends = tuple(uses.ends(i.node) for i in moving)
    weights = tuple(i.held.bits * i.held.numerator * i.held.count for i in moving)
    peaks = (LivePeak(Region((), ()), every, k, classes, order, ends, weights) for k in range(len(moving)))
    return (*lasting, *(i.held.of(of_atom(peak)) for i, peak in zip(moving, peaks, strict=True)))


def _refuse(layout: SymbolicLayout, item: OccupancyItem) -> None:
    """Refuse buffets unless one Einsum uses their elements first and another one uses them last."""
    node, why = item.node, ""
    cascade, einsums = layout.problem.cascade, node.users
    if len(node.users) > 2 or (len(node.users) == 2 and node.producer != node.users[0]):
        why = f"several Einsums read {node.tensor}"
    elif any(a.spatial for a in node.space.axes):
        why = "it is below spatial loops"
    elif node.producer is not None and node.parent is not None and node.reuse.carries:
        why = f"what stays of {node.tensor} depends on storage further out"
    elif any(cascade[e].is_copy for e in layout.problem.tree.einsums):
        why = "a copy runs"
    elif layout.sizes or node.tensor in layout.lines or item.held.denominator > 1:
        why = f"{node.tensor} has symbolic extents, is carried forward, or takes fractions of bits"
    elif any(a.stands_for or a.guard for a in (layout.access(e, node.tensor) for e in einsums)):
        why = f"several elements of {node.tensor} are read at once"
    elif any(layout.windows[e] and not layout.listed.get(e) for e in layout.problem.tree.einsums):
        why = "Einsums are inferred in windows, or execute again"
    if why:
        raise NotSeparable(
            f"{node.component}: {why}, and peaks of live elements are not listed there",
            code="unsupported-memory",
        )


@dataclass(frozen=True)
class _Uses:
    """An Einsum that runs, and the buffets whose elements may be live at the same time."""

    layout: SymbolicLayout
    einsum: str
    nodes: Sequence[SymbolicBuffet]

    @cached_property
    def einsums(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys((self.einsum, *(e for node in self.nodes for e in node.users))))

    @cached_property
    def groups(self) -> dict[str, list[TiedGroup]]:
        """The variables of each Einsum in groups: those coupled by bounds, ranks or executed iterations form
        one group."""
        return {e: self._groups(e) for e in self.einsums}

    def _groups(self, name: str) -> list[TiedGroup]:
        stamps = self.layout.stamps(name, self.layout.paths[name])
        result = list(stamps.groups)
        seen = {v for g in result for v in g.variables}
        for v in (*stamps.einsum.rank_variables, *(a.variable for a in stamps.axes)):
            if v not in seen:
                result.append(TiedGroup((v,), Region((int(stamps.extent(v)),), ())))
                seen.add(v)
        return result

    @cached_property
    def axes(self) -> dict[int, LoopAxis]:
        """All loops that matter, by node id."""
        every = (a for e in self.einsums for g in self.groups[e] for a in self.loops(e, g))
        return dict(sorted({a.node: a for a in every}.items()))

    @cached_property
    def places(self) -> dict[int, int]:
        return {node: place for place, node in enumerate(self.axes)}

    def group_of(self, name: str, variable: str) -> int:
        return next(k for k, g in enumerate(self.groups[name]) if variable in g.variables)

    def loops(self, name: str, group: TiedGroup) -> list[LoopAxis]:
        """The loops over a group's variables, and loops further in that decide what executes. For Einsums
        other than the running one: those that both share, those that distinguish visits, and those that
        decide."""
        path = self.layout.paths[name]
        until = len(path)
        if name != self.einsum:
            depths = [node.depth for node in self.nodes if name in node.users]
            deciding = {a.node for a in group.deciding}
            last = max((i + 1 for i, a in enumerate(path) if a.node in deciding), default=0)
            until = max(shared_loops(self.layout, self.einsum, name) or 0, last, *depths)
        above = path[:until]
        return [a for a in (*above, *group.beyond(path)) if a.variable in group.variables]

    @cached_property
    def joined(self) -> dict[Key, int]:
        """The class of each group, loop and rank."""
        sets: list[set[Key]] = []
        for e in self.einsums:
            for k, group in enumerate(self.groups[e]):
                sets.append({("group", e, k), *(("loop", a.node, "") for a in self.loops(e, group))})
        for b, node in enumerate(self.nodes):
            for e in node.users:
                for j, expr in enumerate(self.layout.access(e, node.tensor).projection):
                    mine = {("group", e, self.group_of(e, v)) for v, c in expr.terms if c}
                    sets.append({("rank", b, j), *mine})
        merged: list[set[Key]] = []
        for one in sets:
            apart = [other for other in merged if not other & one]
            merged = [*apart, one.union(*(other for other in merged if other & one))]
        return {key: number for number, keys in enumerate(merged) for key in keys}

    def classes(self) -> tuple[tuple[LiveClass, ...], tuple[int, ...]]:
        """The classes, and the class of each loop and offset that distinguishes phases."""
        used = sorted(set(self.joined.values()))
        result, kept = [], []
        for number in used:
            lives = tuple(self.life(b, number) for b in range(len(self.nodes)))
            phases = self.use(self.einsum, number)
            if phases.groups or any(lives):
                result.append(LiveClass(phases, lives))
                kept.append(number)
        path = [a for a in self.layout.paths[self.einsum] if not a.spatial]
        order = [self.joined["loop", a.node, ""] for a in path]
        variables = self.layout.problem.cascade[self.einsum].rank_variables
        order += [self.joined["group", self.einsum, self.group_of(self.einsum, v)] for v in variables]
        return tuple(result), tuple(kept.index(number) for number in order)

    def use(self, name: str, number: int, buffet: int | None = None) -> ListedUse:
        """The phases of an Einsum along a class, or its uses of a buffet."""
        path = self.layout.paths[name]
        mine = [k for k in range(len(self.groups[name])) if self.joined["group", name, k] == number]
        until = len(path) if name == self.einsum else shared_loops(self.layout, self.einsum, name)
        times = [a for a in path[:until] if not a.spatial and self.joined["loop", a.node, ""] == number]
        offsets: list[tuple[int, int]] = []
        if name == self.einsum:
            for v in self.layout.problem.cascade[name].rank_variables:
                k = self.group_of(name, v)
                offsets += [(k, self.groups[name][k].variables.index(v))] if k in mine else []
        visits: list[LoopAxis] = []
        ranks = []
        if buffet is not None:
            node = self.nodes[buffet]
            visits = [a for a in path[: node.depth] if self.joined["loop", a.node, ""] == number]
            for j, expr in enumerate(self.layout.access(name, node.tensor).projection):
                if self.joined["rank", buffet, j] == number:
                    terms = ((self.group_of(name, v), v, c) for v, c in expr.terms if c)
                    ranks.append((
                        tuple((k, self.groups[name][k].variables.index(v), c) for k, v, c in terms),
                        expr.constant,
                    ))  # fmt: skip
        needed = {k for k, _ in offsets} | {k for terms, _ in ranks for k, _, _ in terms}
        needed |= {self.group_of(name, a.variable) for a in (*times, *visits)}
        chosen = sorted(needed)
        return ListedUse(
            tuple(self.listed(name, k) for k in chosen),
            tuple(self.places[a.node] for a in times),
            tuple((chosen.index(k), v) for k, v in offsets),
            tuple(self.places[a.node] for a in visits),
            tuple((tuple((chosen.index(k), v, c) for k, v, c in terms), n) for terms, n in ranks),
        )

    def listed(self, name: str, number: int) -> ListedGroup:
        group = self.groups[name][number]
        einsum, loops = self.layout.problem.cascade[name], self.loops(name, group)
        by = [[a for a in loops if a.variable == v] for v in group.variables]
        lows = (einsum.bound(v)[0] if v in einsum.rank_variables else 0 for v in group.variables)
        if any(a.spatial for mine in by for a in mine) and isinstance(group.region, NeededRegion):
            for a in group.deciding:
                if a.spatial:
                    raise NotSeparable(
                        "spatial loops decide what inferred Einsums execute",
                        code="unsupported-inference",
                    )
        return ListedGroup(
            group.region,
            tuple(tuple(self.places[a.node] for a in mine) for mine in by),
            tuple(any(a.spatial for a in mine) for mine in by),
            tuple(lows),
        )

    def life(self, buffet: int, number: int) -> ListedLife | None:
        node = self.nodes[buffet]
        first, last = (self.use(e, number, buffet) for e in (node.users[0], node.users[-1]))
        if not (first.groups or last.groups or first.ranks):
            return None
        elsewhere = any(
            self.joined["loop", a.node, ""] != number and not a.spatial
            for a in self.layout.paths[node.users[0]][: node.depth]
        )
        if node.reuse.carries and first.visits and elsewhere:
            raise NotSeparable(
                f"{node.tensor} stays between visits of loops over independent rank variables",
                code="unsupported-reuse",
            )
        return ListedLife(first, last if len(node.users) > 1 else None, node.reuse)

    def ends(self, node: SymbolicBuffet) -> tuple[bool, bool]:
        """Whether a buffet's elements have begun, and ended, in an iteration of all loops that are shared."""
        result = []
        for user, own in ((node.users[0], True), (node.users[-1], False)):
            if user == self.einsum:
                result.append(own)
            else:
                _, mine, theirs = divergence(self.layout, self.einsum, user)
                result.append(theirs < mine)
        return result[0], result[1]
