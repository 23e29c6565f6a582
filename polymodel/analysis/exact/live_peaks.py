"""Peaks of `live` occupancy: every element is followed from its first to its last use.

docs/semantics.md, Occupancy. Works on the arrays of `sweep`.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from polymodel.analysis.exact.buffets import ExactBuffet, ExactLayout
from polymodel.analysis.exact.flows import output_carries
from polymodel.analysis.exact.occupancy import item_of
from polymodel.analysis.exact.sweep import BuffetUses, Ints, OperationTrace, distinct
from polymodel.analysis.result import Resident, WorkingSet
from polymodel.errors import Refused
from polymodel.integers import summed
from polymodel.mapping.looptree import decided_above, tie, ties, users
from polymodel.polyhedra import needs

_CELLS = 60_000_000


def node_carries(layout: ExactLayout, node: ExactBuffet) -> frozenset[int]:
    """Transitions over which elements stay in the node (outputs: only while the parent keeps them)."""
    if node.producer is None or node.parent is None:
        return node.policy_carries
    chain = layout.chain(node.producer, node.tensor)
    return output_carries(layout, chain)[[n.id for n in chain].index(node.id)]


def _open_visits(layout: ExactLayout, uses: BuffetUses) -> Ints:
    """Per visit: 1 if elements may stay from the previous visit."""
    node = uses.node
    carries = node_carries(layout, node)
    temporal = node.all_touch.temporal
    result = np.zeros(len(uses.stamps), dtype=np.int64)
    if len(uses.stamps) > 1 and carries:
        first = (np.diff(uses.stamps, axis=0) != 0).argmax(axis=1)
        allowed = np.array([a in carries for a in temporal], dtype=np.int64)
        result[1:] = allowed[first]
    return result


def _runs(uses: BuffetUses, opened: Ints) -> tuple[Ints, Ints, Ints]:
    """(instance, first phase, last phase) of every run of every element in every instance."""
    order = np.lexsort((uses.phase, uses.visit, uses.element, uses.place))
    place, element = uses.place[order], uses.element[order]
    visit, phase = uses.visit[order], uses.phase[order]
    same = (place[1:] == place[:-1]) & (element[1:] == element[:-1])
    step = visit[1:] - visit[:-1]
    joined = same & ((step == 0) | ((step == 1) & (opened[visit[1:]] == 1)))
    start = np.concatenate(([True], ~joined))
    begins = np.flatnonzero(start)
    ends = np.concatenate((begins[1:], [len(place)])) - 1
    return place[begins], phase[begins], phase[ends]


def _counts(place: Ints, first: Ints, last: Ints, weight: Ints, places: int, phases: int) -> Ints:
    """Sum of weights per instance and phase over intervals [first, last]."""
    if places * (phases + 1) > _CELLS:
        message = "too many instances and phases to follow each element's lifetime"
        remedy = "ask for whole tiles (`allocation: tile`), or use a smaller workload"
        raise Refused(message, remedy, code="too-large")
    change = np.zeros((places, phases + 1), dtype=np.int64)
    np.add.at(change, (place, first), weight)
    np.add.at(change, (place, last + 1), -weight)
    return np.asarray(np.cumsum(change, axis=1)[:, :phases], dtype=np.int64)


def nominal_trips(layout: ExactLayout, einsum: str) -> list[int]:
    """Trips of every loop on a path over its nominal enclosing tile.

    A loop that binds no variable of the Einsum, and one on a path where Einsums have tiles or variables of
    their own, has those of the bound Einsum with most trips.
    """
    tree, cascade = layout.problem.tree, layout.problem.cascade
    own = {einsum: _own_trips(layout, einsum)}
    differs = tree.differs(einsum)
    result: list[int] = []
    for node, loop in tree.loops(einsum):
        if node in own[einsum] and not differs:
            result.append(own[einsum][node])
            continue
        bound = [e for e in users(tree, node) if tie(cascade, tree, e, node, loop) == "bound"]
        for e in bound:
            if e not in own:
                own[e] = _own_trips(layout, e)
        result.append(max(own[e][node] for e in bound))
    return result


def _own_trips(layout: ExactLayout, einsum: str) -> dict[int, int]:
    """Trips, over its nominal enclosing tile, of every loop that binds a variable of the Einsum."""
    tree, cascade = layout.problem.tree, layout.problem.cascade
    tied = ties(cascade, tree, einsum)
    last = decided_above(tied)
    enclosing: dict[str, int] = {}
    trips: dict[int, int] = {}
    entered = False
    for node, loop in tree.loops(einsum):
        if node > last and not entered:
            enclosing.update(_windows(layout, einsum, last))
            entered = True
        if tied[node] != "bound":
            continue
        v = loop.variable_in(einsum)
        if v not in enclosing:
            below = [einsum] if loop.uneven else users(tree, node)
            bound = [e for e in below if tie(cascade, tree, e, node, loop) == "bound"]
            boxes = [cascade[e].bound(loop.variable_in(e)) for e in bound]
            high = cascade[einsum].bound(v)[1] if tree.differs(einsum) else max(h for _, h in boxes)
            enclosing[v] = high - min(low for low, _ in boxes) + 1
        tile = int(loop.tile_shape)
        first = tile if loop.initial_tile_shape is None else int(loop.initial_tile_shape)
        trips[node] = 1 + max(0, -(-(enclosing[v] - first) // tile))
        enclosing[v] = min(max(tile, first), enclosing[v])
    return trips


def _windows(layout: ExactLayout, einsum: str, last: int) -> dict[str, int]:
    """The maximum extent of each variable of an Einsum at one stamp down to node `last`, if it is
    inferred."""
    result: dict[str, int] = {}
    view = next(v for (e, _), v in layout.full.items() if e == einsum)
    if "inferred" in ties(layout.problem.cascade, layout.problem.tree, einsum).values():
        for part in view.parts:
            outer = sum(1 for i in part.loops if i <= last)
            for k, v in enumerate(part.variables):
                result[v] = needs.widest(part.text, outer, len(part.loops) + k)
    return result


def _sites(
    layout: ExactLayout, node: ExactBuffet, uses: BuffetUses
) -> list[tuple[tuple[tuple[str, str], int], ...]]:
    """The physical coordinates of each of the node's instances, outer loop most significant."""
    einsum = node.users[0]
    trips = nominal_trips(layout, einsum)
    loops = layout.problem.tree.loops(einsum)
    result = []
    for row in uses.places:
        where: dict[tuple[str, str], int] = {}
        for axis, value in zip(node.all_touch.spatial, row, strict=True):
            dim = (loops[axis][1].component, loops[axis][1].dim)
            where[dim] = where.get(dim, 0) * trips[axis] + int(value)
        result.append(tuple(sorted((d, k) for d, k in where.items() if k)))
    return result


@dataclass(frozen=True)
class _Curve:
    """Bits of one buffet in one instance at `site`, by phase."""

    node: ExactBuffet
    site: object
    bits: Ints


def _curves(layout: ExactLayout, sweep: OperationTrace, node: ExactBuffet) -> tuple[int, list[_Curve]]:
    """The most live elements of a buffet in one instance, and its bits in every instance."""
    if not node.visited:
        return 0, []
    uses = sweep.uses(node)
    sites = _sites(layout, node, uses)
    item = item_of(layout, node)
    place, first, last = _runs(uses, _open_visits(layout, uses))
    counts = _counts(place, first, last, np.ones_like(place), len(sites), sweep.phase_count)
    most = int(counts.max())
    if item.fixed is not None:  # persistent: all of it stays, whoever uses it
        held = distinct(np.stack([uses.place, uses.element], axis=1))
        amounts = np.bincount(held[:, 0], minlength=len(sites))
        counts = np.repeat(amounts[:, None], sweep.phase_count, axis=1)
    return most, [_Curve(node, s, c) for s, c in zip(sites, item.in_bits(counts), strict=True)]


def _peaks(sweep: OperationTrace, component: str, curves: list[_Curve]) -> Iterator[WorkingSet]:
    """Peak of `live` per Einsum for one component."""
    by_site: dict[object, list[_Curve]] = {}
    for curve in curves:
        by_site.setdefault(curve.site, []).append(curve)
    found: dict[str, WorkingSet] = {}
    for here in by_site.values():
        total = summed([c.bits for c in here])
        for einsum, phases in sweep.phases.items():
            at = int(phases[np.argmax(total[phases])])
            bits = int(total[at])
            if bits and (einsum not in found or bits > found[einsum].bits):
                residents = tuple(
                    Resident(c.node.id, c.node.tensor, int(c.bits[at]))
                    for c in sorted(here, key=lambda c: (c.node.id, c.node.tensor))
                    if c.bits[at]
                )
                found[einsum] = WorkingSet(component, einsum, "live", bits, residents)
    yield from found.values()


def live_counts(layout: ExactLayout) -> tuple[dict[tuple[int, str], int], tuple[WorkingSet, ...]]:
    """Peak live elements per buffet, and the joint peaks per component and Einsum."""
    sweep = OperationTrace(layout)
    counts: dict[tuple[int, str], int] = {}
    rows: list[WorkingSet] = []
    for component in layout.problem.hierarchy.components:
        curves: list[_Curve] = []
        for key, node in layout.nodes.items():
            if node.component == component.name:
                counts[key], mine = _curves(layout, sweep, node)
                curves += mine
        if component.stores:
            rows += _peaks(sweep, component.name, curves)
    return counts, tuple(rows)
