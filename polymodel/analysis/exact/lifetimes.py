"""Element-level lifetimes of large problems: exact peaks from products of small histograms.

docs/semantics.md, Occupancy. At a phase t, the elements between first and last use are those with first <= t,
less those with last < t. Within a residency both sets are unions over the time coordinates of products (equal
so far, then earlier), one factor per independent group of rank variables; `residencies` lists the groups,
`peaks` finds the phase with the largest weighted sum.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from math import lcm, prod

import numpy as np

from polymodel.analysis.exact.buffets import ExactBuffet, ExactLayout
from polymodel.analysis.exact.grids import Grids, unfollowed
from polymodel.analysis.exact.live_peaks import live_counts, nominal_trips
from polymodel.analysis.exact.occupancy import PeakBuffet, is_persistent, item_of
from polymodel.analysis.exact.peaks import ElementRows, Interleaving, PeakTerm, Rounding, TimeTree, tree
from polymodel.analysis.exact.residencies import CountedUse, Residency
from polymodel.analysis.exact.sweep import Ints
from polymodel.analysis.result import Resident, WorkingSet
from polymodel.errors import Refused
from polymodel.schedule.touch import RankBlock, axes_of, partition

_POINTS = 5_000_000
_RESTS = 1000
_ALL = 2**62
_LISTED = 30_000  # below this, listing is faster


@dataclass(frozen=True)
class Edge:
    """First or last uses of a residency as the executing Einsum sees them: up to axis `end`.

    `inclusive`: those with equal coordinates up to there have happened.
    """

    residency: Residency
    use: CountedUse
    end: int
    inclusive: bool


def edges(grids: Grids, residency: Residency, einsum: str) -> list[Edge]:
    """The edges that start and end before the phases of an Einsum; empty if all of them cancel out."""
    whole = len(grids.views[einsum].loops) + len(grids.views[einsum].offsets)
    result = []
    for use in residency.uses:
        mine = (whole, not use.last)
        end, inclusive = mine if use.user.einsum == einsum else grids.parting(einsum, use.user.einsum)
        result.append(Edge(residency, use, end, inclusive))
    apart = len({e.inclusive for e in result}) > 1 or any(e.end > residency.start for e in result)
    return result if apart else []


class Frame:
    """The phases of one Einsum and the buffets of one component that may be live in them.

    `every`: all phases are requested, not only the peak.
    """

    def __init__(
        self, grids: Grids, einsum: str, residencies: list[Residency], *, every: bool = False
    ) -> None:
        self.grids, self.einsum, self.every = grids, einsum, every
        found = [(r, edges(grids, r, einsum)) for r in residencies if self._concerns(r)]
        self.residencies = [r for r, mine in found if mine]
        self.nodes = list({(r.node.id, r.node.tensor): r.node for r in self.residencies}.values())
        self.edges = [e for _, mine in found for e in mine]
        self.temporal = grids.temporal(einsum)
        self.alone = partition((grids.views[einsum].bare(),))
        self.weights = [
            i.bits * i.scale * i.instances for i in (item_of(grids.layout, n) for n in self.nodes)
        ]
        self.whole = lcm(*(w.denominator for w in self.weights))
        self.roundings = self._roundings()
        self.spots = self._spots()
        self.groups = self._grouped()

    def _concerns(self, residency: Residency) -> bool:
        """Whether the buffet can be live here: on the path, or kept past the split."""
        tree = self.grids.layout.problem.tree
        if any(s.id == residency.node.id for s in tree.path(self.einsum)):
            return True
        shared, _ = self.grids.parting(self.einsum, residency.node.users[0])
        return residency.start < min(shared, residency.node.loops)

    def _roundings(self) -> tuple[Rounding, ...]:
        """Buffets whose bits are rounded up; with a single buffet, the peak of the sum is the rounded
        peak."""
        parts = [k for k, w in enumerate(self.weights) if w.denominator > 1]
        if len(parts) < 2:
            return ()
        result = tuple(Rounding(k, int(self.weights[k] * self.whole), self.whole) for k in parts)
        if prod(r.period for r in result) > _RESTS:
            names = ", ".join(self.nodes[k].tensor for k in parts)
            raise unfollowed(f"{names} take fractions of bits per element")
        return result

    def _spots(self) -> dict[str, tuple[tuple[int, int, int], ...]]:
        """Per user, spatial axes as parts of instances' coordinates: (axis, coordinate, multiplier).

        Buffets below the same loops are matched by these, others by fanout dimension, as in hardware.
        """
        grids = self.grids
        users = {r.node.users[0]: r for r in self.residencies}
        alike = len({r.spatial for r in self.residencies}) == 1
        for user, r in users.items():
            shared = r.node.loops if user == self.einsum else grids.parting(self.einsum, user)[0]
            alike = alike and all(a < shared for a in r.spatial)
        result, dims = {}, dict[tuple[str, str] | int, int]()
        for e in {e for r in self.residencies for e in r.node.users}:
            r = next(r for r in self.residencies if e in r.node.users)
            loops, trips = grids.views[e].loops, nominal_trips(grids.layout, e)
            parts = []
            for i, a in enumerate(r.spatial):
                dim = (loops[a][1].component, loops[a][1].dim)
                inner = [
                    trips[k] for k in r.spatial[i + 1 :] if (loops[k][1].component, loops[k][1].dim) == dim
                ]
                spot = dims.setdefault(a if alike else dim, len(dims))
                parts.append((a, spot, 1 if alike else prod(inner)))
            result[e] = tuple(parts)
        return result

    def _grouped(self) -> tuple[frozenset[int], ...]:
        """Classes of tied axes of the Einsum, and coordinates of instances (-1, -2, ...)."""
        ties = [set(self._own(block)) for block in self.alone]
        for edge in self.edges:
            ties += [set(self._columns(edge, b)) for b in range(len(edge.residency.blocks))]
        groups: list[set[int]] = []
        for tie in ties:
            if tie:
                hit = [g for g in groups if g & tie]
                groups = [g for g in groups if not g & tie] + [set().union(tie, *hit)]
        return tuple(frozenset(g) for g in sorted(groups, key=min))

    def _own(self, block: RankBlock) -> list[int]:
        """The executing Einsum's axes in one of its blocks."""
        axes = axes_of(self.grids.views[self.einsum])
        return [i for i, axis in enumerate(axes) if block.has(self.einsum, axis)]

    def _columns(self, edge: Edge, block: int) -> tuple[int, ...]:
        """Time axes of the executing Einsum that a block shares, and its instances' coordinates."""
        r = edge.residency
        mine = r.axes(block, edge.use.user, 0, 0, spatial=True)
        spots = {-1 - spot for axis, spot, _ in self.spots[edge.use.user.einsum] if axis in mine}
        return (*r.axes(block, edge.use.user, 0, edge.end), *sorted(spots))

    def _blocks(self, edge: Edge, group: frozenset[int]) -> list[int]:
        blocks = range(len(edge.residency.blocks))
        return [b for b in blocks if group & set(self._columns(edge, b))]

    def _loose(self, edge: Edge) -> int:
        """Elements of the blocks that share no axis with the executing Einsum."""
        r = edge.residency
        blocks = [b for b in range(len(r.blocks)) if not self._columns(edge, b)]
        return prod(int(edge.use.masks[b].sum()) for b in blocks)

    def _times(self, group: frozenset[int]) -> tuple[int, ...]:
        return tuple(a for a in self.temporal if a in group)

    def _phases(self, group: frozenset[int]) -> list[Ints]:
        """Stamps of the executing Einsum over the axes of a group."""
        blocks = [b for b in self.alone if group & set(self._own(b))]
        return self.grids.stamps(self.einsum, blocks, self._times(group))

    def _rows(self, edge: Edge, group: frozenset[int]) -> ElementRows:
        """Elements of an edge at each stamp of a group: the product of its blocks there."""
        spots = sorted(a for a in group if a < 0)
        sites = [np.zeros(1, dtype=np.int64) for _ in spots]
        times: dict[int, Ints] = {}
        count = 1
        for b in self._blocks(edge, group):
            spans = edge.residency.spans(b, edge.use.user, edge.end)
            keep = edge.use.masks[b][spans.element]
            stamps = spans.last if edge.use.last else spans.first
            more = int(keep.sum())
            here = self._sites(edge, spots, {a: c[keep] for a, c in spans.place.items()}, more)
            if count * more > _POINTS:
                raise unfollowed("too many elements of ranks that are tied together")
            sites = [np.repeat(s, more) + np.tile(h, count) for s, h in zip(sites, here, strict=True)]
            times = {a: np.repeat(c, more) for a, c in times.items()}
            times |= {a: np.tile(c[keep], count) for a, c in stamps.items()}
            count *= more
        given = tuple(times[a] for a in self._times(group) if a in times)
        return ElementRows(tuple(sites), given, count)

    def _sites(self, edge: Edge, spots: list[int], place: dict[int, Ints], count: int) -> list[Ints]:
        """A block's share of instances' coordinates."""
        result = [np.zeros(count, dtype=np.int64) for _ in spots]
        for axis, spot, times in self.spots[edge.use.user.einsum]:
            if axis in place:
                result[spots.index(-1 - spot)] = result[spots.index(-1 - spot)] + times * place[axis]
        return result

    @cached_property
    def _built(self) -> tuple[Interleaving, list[tuple[int, ...]]]:
        trees: list[TimeTree] = []
        reach = _ALL if self.every else lcm(*(r.period for r in self.roundings))
        columns: list[list[int]] = [[] for _ in self.edges]
        for group in self.groups:
            kinds: dict[tuple[int | bytes, ...], int] = {}
            rows: list[ElementRows] = []
            for i, edge in enumerate(self.edges):
                made = self._rows(edge, group)
                key: tuple[int | bytes, ...] = (made.depth, made.count)
                key += tuple(c.tobytes() for c in (*made.places, *made.stamps))
                if key not in kinds:
                    kinds[key] = len(rows)
                    rows.append(made)
                columns[i].append(kinds[key])
            trees.append(tree(self._phases(group), rows, reach))
        order = tuple(next(g for g, axes in enumerate(self.groups) if a in axes) for a in self.temporal)
        return Interleaving(tuple(trees), order), [tuple(c) for c in columns]

    def _position(self, axis: int) -> int:
        return sum(1 for a in self.temporal if a < axis)

    @cached_property
    def terms(self) -> tuple[PeakTerm, ...]:
        """The edges as terms of weight one; `buffet` numbers the frame's nodes."""
        result = []
        for edge, columns in zip(self.edges, self._built[1], strict=True):
            coefficient = edge.use.coefficient * self._loose(edge) * (-1 if edge.use.last else 1)
            start = self._position(min(edge.residency.start, edge.end))
            buffet = self.nodes.index(edge.residency.node)
            result.append(
                PeakTerm(1, coefficient, start, self._position(edge.end), edge.inclusive, columns, buffet)
            )
        return tuple(result)

    def single(self, buffet: int) -> int:
        """The largest number of live elements of one buffet."""
        return self._built[0].peak([t for t in self.terms if t.buffet == buffet], len(self.nodes))[0]

    def _weighted(self) -> list[PeakTerm]:
        scaled = [int(w * self.whole) for w in self.weights]
        return [replace(t, weight=scaled[t.buffet]) for t in self.terms]

    def over_time(self, loops: int) -> Ints:
        """Bits of every buffet (columns) in every iteration of the outer `loops` loops, at their maximum
        within it.

        Rows are in order of time. Raises Refused for several instances.
        """
        if any(self.spots.values()):
            raise unfollowed("phase by phase they are followed in one instance only")
        if self.roundings:
            raise unfollowed("phase by phase, several tensors take fractions of bits per element")
        depth = sum(1 for a in self.temporal if a < loops)
        counts = self._built[0].phases(self._weighted(), len(self.nodes), depth)
        columns = [-(-counts[:, k] * w.numerator // w.denominator) for k, w in enumerate(self.weights)]
        return np.stack(columns, axis=1) if columns else np.zeros((len(counts), 0), dtype=np.int64)

    def together(self) -> list[tuple[ExactBuffet, int]]:
        """Bits of every buffet at a phase where their sum is largest."""
        terms = self._weighted()
        interleaving = replace(self._built[0], roundings=self.roundings)
        counts = interleaving.peak(terms, len(self.nodes))[1] if terms else ()
        bits = [-(-n * w.numerator // w.denominator) for n, w in zip(counts, self.weights, strict=True)]
        return list(zip(self.nodes, bits, strict=True))


def lasting_bits(item: PeakBuffet) -> int:
    """Bits of a persistent tensor, which stays for the whole run."""
    assert item.fixed is not None
    size = item.fixed * item.bits * item.scale
    return -(-size.numerator // size.denominator) * item.instances


def _working_set(frame: Frame, component: str, fixed: list[PeakBuffet]) -> WorkingSet | None:
    """The joint peak of a component's live elements during one Einsum."""
    held = frame.together()
    held += [(item.node, lasting_bits(item)) for item in fixed]
    bits = sum(b for _, b in held)
    residents = [Resident(n.id, n.tensor, b) for n, b in held if b]
    residents.sort(key=lambda r: (r.node, r.tensor))
    return WorkingSet(component, frame.einsum, "live", bits, tuple(residents)) if bits else None


class ComponentLifetimes:
    """One component: the residencies of its buffets, and the buffets that persist whole."""

    def __init__(self, layout: ExactLayout, grids: Grids, component: str) -> None:
        self.grids, self.component = grids, component
        nodes = [n for n in layout.nodes.values() if n.component == component]
        self.fixed = [i for i in (item_of(layout, n) for n in nodes) if i.fixed is not None]
        lasting = [i.node for i in self.fixed]
        passing = [n for n in nodes if n.parent is not None or not is_persistent(layout, n.tensor)]
        self.passing = [Residency(grids, n) for n in passing]
        self.lasting = [Residency(grids, n) for n in lasting]
        for node in lasting:
            if node.all_touch.spatial:
                raise unfollowed(f"{node.tensor} persists in several instances of {component}")

    def working_set(self, einsum: str, counts: dict[tuple[int, str], int]) -> WorkingSet | None:
        """The joint peak during one Einsum; `counts` are raised to the peaks of its buffets."""
        frame = Frame(self.grids, einsum, self.passing)
        if self.fixed and any(frame.spots.values()):
            raise unfollowed(f"persistent tensors in {self.component} beside several instances of it")
        for part in (frame, *(Frame(self.grids, einsum, [r]) for r in self.lasting)):
            for i, node in enumerate(part.nodes):
                if einsum in node.users:
                    key = (node.id, node.tensor)
                    counts[key] = max(counts[key], part.single(i))
        return _working_set(frame, self.component, self.fixed)


def factored_counts(layout: ExactLayout) -> tuple[dict[tuple[int, str], int], tuple[WorkingSet, ...]]:
    """Peak live elements per buffet, and the joint peaks per component and Einsum (as `live_counts`)."""
    grids = Grids(layout)
    counts = dict.fromkeys(layout.nodes, 0)
    rows: list[WorkingSet] = []
    for component in layout.problem.hierarchy.components:
        if component.stores:
            part = ComponentLifetimes(layout, grids, component.name)
            for einsum in layout.problem.tree.einsums:
                row = part.working_set(einsum, counts)
                rows += [row] if row else []
    return counts, tuple(rows)


def lifetimes(layout: ExactLayout) -> tuple[dict[tuple[int, str], int], tuple[WorkingSet, ...]]:
    """`factored_counts`, or `live_counts` if operations are few or no product describes them."""
    operations = sum(prod(h - low + 1 for low, h in e.bounds) for e in layout.problem.cascade.einsums)
    if operations <= _LISTED:
        return live_counts(layout)
    try:
        return factored_counts(layout)
    except Refused as refusal:
        try:
            return live_counts(layout)
        except Refused:
            raise refusal from None
