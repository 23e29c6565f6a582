"""Hops over the interconnect of fanout dimensions, counted on the relations of transfers.

The hops of a transfer are the links that it crosses, which depend only on the coordinate in the dimension. So
in the product of factors only one, which has the dimension's loops, counts links; the others count transfers.
See docs/semantics.md, Interconnect.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from polymodel.analysis.exact.buffets import ExactBuffet, ExactLayout, shape_of
from polymodel.analysis.exact.cached_counts import Array, CountProduct, dense, total
from polymodel.analysis.exact.enumerated_partials import ListedChain, Moves, listable
from polymodel.analysis.exact.flows import (
    broadcast_axes,
    copy_of,
    ends_are_writes,
    fill_carries,
    fills_of,
    output_chain,
    result_view,
    shared_axes,
)
from polymodel.analysis.exact.live_peaks import nominal_trips
from polymodel.analysis.exact.occupancy import tensor_bits
from polymodel.analysis.exact.partials import OutputChain
from polymodel.analysis.exact.sweep import distinct
from polymodel.analysis.exact.transfers import modes
from polymodel.analysis.exact.uneven import RefilledChain
from polymodel.architecture.hierarchy import FanoutDim
from polymodel.errors import Refused
from polymodel.mapping.looptree import ComputeNode
from polymodel.polyhedra.steps import CrossingCount, crossed, crossed_at_steps, wholly_resident
from polymodel.schedule.touch import Factor, Touch, View, merge_blocks, touch

# Relations of all transfers between two storages, or between a storage and compute. Links and rules are those
# of `flows`, which counts; here senders and receivers are kept apart.

AnyOutputChain = OutputChain | RefilledChain | ListedChain


@dataclass(frozen=True)
class TransferRelation:
    """Transfers of one tensor between two components, to or from all instances in `now`.

    What `held` keeps over the transitions `carries` is not transferred. `sign`: -1 subtracts what is booked
    to earlier Einsums.
    """

    einsum: str
    tensor: str
    ends: tuple[str, str]
    shared: frozenset[int]
    now: Touch
    held: Touch
    carries: frozenset[int] = frozenset()
    up: bool = False
    forward: bool = False
    sign: int = 1


@dataclass(frozen=True)
class PartialSums:
    """Refilled partial sums of one level of an output's chain, from its parent to their receivers."""

    einsum: str
    tensor: str
    ends: tuple[str, str]
    shared: frozenset[int]
    now: Touch
    level: int
    chain: OutputChain | RefilledChain
    up: bool = False


@dataclass(frozen=True)
class ListedTransfers:
    """Rows (time, element, places along the spatial axes of `now`) of what moves, one per instance."""

    einsum: str
    tensor: str
    ends: tuple[str, str]
    shared: frozenset[int]
    now: Touch
    rows: Moves
    up: bool


def flows_of(layout: ExactLayout, tensor: str) -> Iterator[TransferRelation | PartialSums | ListedTransfers]:
    """All transfers of one tensor."""
    for name in layout.problem.tree.einsums:
        einsum = layout.problem.cascade[name]
        if tensor not in einsum.tensors:
            continue
        written = einsum.access_of(tensor).output
        if einsum.is_copy:
            if written:
                yield from _copied(layout, name, tensor)
            continue
        if written:
            yield from _results(layout, name, tensor)
        for view in layout.reads(name, tensor):
            parent = layout.chain(name, tensor)[-1]
            now = touch((view,), layout.blocks[tensor])
            ends = parent.component, _compute(layout, name)
            yield TransferRelation(name, tensor, ends, shared_axes(layout, name, tensor), now, now)
    for node in layout.nodes.values():
        if node.tensor == tensor and node.parent is not None:
            yield from _fills(layout, node)


def _compute(layout: ExactLayout, einsum: str) -> str:
    last = layout.problem.tree.path(einsum)[-1].node
    assert isinstance(last, ComputeNode)
    return last.component


def _results(
    layout: ExactLayout, einsum: str, tensor: str
) -> Iterator[TransferRelation | PartialSums | ListedTransfers]:
    chain = output_chain(layout, einsum, tensor)
    shared = shared_axes(layout, einsum, tensor)
    sums = _receivers(chain, shared, broadcast_axes(layout, einsum), result_view(layout, einsum, tensor))
    nodes = [level.node for level in chain.levels if level.node is not None]
    for child in range(1, len(chain.levels)):
        level = chain.levels[child]
        bottom = nodes[child].component if child < len(nodes) else _compute(layout, einsum)
        ends = nodes[child - 1].component, bottom
        if isinstance(chain, ListedChain):
            yield ListedTransfers(einsum, tensor, ends, shared, level.now, chain.drains(child), True)
        else:
            forward = ends_are_writes(chain, level)
            yield TransferRelation(
                einsum, tensor, ends, shared, level.now, level.held, level.carries, True, forward
            )
        if isinstance(sums, ListedChain):
            rows = sums.moves(child, filled=True)
            yield ListedTransfers(einsum, tensor, ends, shared, level.now, rows, False)
        else:
            yield PartialSums(einsum, tensor, ends, shared, level.fill_candidates, child, sums)


def _receivers(
    chain: AnyOutputChain, shared: frozenset[int], broadcast: frozenset[int], view: View
) -> AnyOutputChain:
    """The chain that knows the receivers of a refilled partial sum, if there is one."""
    if not isinstance(chain, OutputChain):
        return chain
    if not chain.reduction.first_touch_formula or not any(level.carries for level in chain.levels):
        return RefilledChain(chain.levels, shared, broadcast)
    return ListedChain(chain.levels, shared, broadcast, view) if listable(chain.levels, view) else chain


def _fills(layout: ExactLayout, node: ExactBuffet) -> Iterator[TransferRelation]:
    assert node.parent is not None
    ends = layout.nodes[node.parent, node.tensor].component, node.component
    carries, held = fill_carries(layout, node), node.all_touch
    for fill in fills_of(layout, node):
        yield TransferRelation(fill.einsum, node.tensor, ends, fill.shared, fill.now, held, carries)
        if fill.before is not None:
            yield TransferRelation(
                fill.einsum, node.tensor, ends, fill.shared, fill.before, held, carries, sign=-1
            )


def _copied(layout: ExactLayout, einsum: str, tensor: str) -> Iterator[TransferRelation]:
    if (moved := copy_of(layout, einsum, tensor)) is not None:
        source, target, now = moved
        yield TransferRelation(einsum, tensor, (source.component, target.component), frozenset(), now, now)


# A label in addition to the loop counters: the number of the link at the root of a tree, or to an instance of
# a switch.
ROOT = 10**6


@dataclass(frozen=True)
class AxisRoles:
    """The role of each spatial axis for one dimension: it names its row, is its coordinate, or comes after.

    `drop`: axes over which one transfer reaches several instances, including those that are its coordinate.
    """

    labels: frozenset[int]
    coordinate: tuple[tuple[int, int], ...]
    drop: frozenset[int]

    def crossing(self, factor: Factor, ways: Ways) -> CrossingCount:
        """The count for one factor."""
        own = dict(self.coordinate)
        spatial = {a: k for k, a in enumerate(factor.spatial)}
        labels = tuple(k for a, k in spatial.items() if ways.labelled and a in self.labels)
        drop = [k for a, k in spatial.items() if a in self.drop]
        where = tuple((k, own[a]) for a, k in spatial.items() if ways.links and a in own)
        by_link = ways.by_link and bool(where)
        return CrossingCount(labels, tuple(drop), where, ways.shift, by_link, ways.ring, ways.beyond)


def roles(
    layout: ExactLayout, flow: TransferRelation | PartialSums | ListedTransfers, dim: tuple[str, FanoutDim]
) -> AxisRoles:
    """The roles of the spatial axes of transfers; `dim` is (component, dimension)."""
    order = {(c, d.name): i for i, (c, d) in enumerate(layout.problem.hierarchy.dimensions)}
    here = order[dim[0], dim[1].name]
    trips = nominal_trips(layout, flow.einsum)
    axes = {a: order[axis.component, axis.dim] for a, axis in enumerate(flow.now.axes) if axis.spatial}
    coordinate = [a for a, position in axes.items() if position == here]
    return AxisRoles(
        labels=frozenset(a for a, position in axes.items() if position < here),
        coordinate=tuple((a, math.prod(trips[b] for b in coordinate if b > a)) for a in coordinate),
        drop=frozenset(a for a, position in axes.items() if position >= here and a in flow.shared),
    )


@dataclass(frozen=True)
class Ways:
    """One way of counting: links at one height of a tree, links of a chain or `ring`, or transfers.

    In a switch each instance has a link of its own, as at the lowest height of a tree; `beyond`: except for
    the first.
    """

    roles: AxisRoles
    shift: int | None
    links: bool
    by_link: bool
    labelled: bool
    ring: int = 0
    beyond: bool = False

    def counts_links(self, factor: Factor) -> bool:
        own = {a for a, _ in self.roles.coordinate}
        return self.links and bool(own & set(factor.spatial))

    def of(self, factor: Factor) -> CrossingCount:
        return self.roles.crossing(factor, self)

    def numbers(self, where: NDArray[np.int64]) -> NDArray[np.int64]:
        """The number of links that lead to each coordinate."""
        many: NDArray[np.int64] = np.minimum(where, self.ring - where) if self.ring else where + 1
        if self.shift is not None:
            many = (where >= 1).astype(np.int64) if self.beyond else np.ones_like(where)
        return many

    def axes(self, factor: Factor) -> tuple[int, ...]:
        crossing = self.of(factor)
        return tuple(factor.spatial[k] for k in crossing.labels) + ((ROOT,) if crossing.by_link else ())

    def product(self, sign: int, factors: tuple[Factor, ...], counts: list[Array]) -> CountProduct:
        """The product of one array per factor, labelled by `of`."""
        parts = [(self.axes(f), array) for f, array in zip(factors, counts, strict=True)]
        if self.by_link and not self.roles.coordinate:
            parts.append(((ROOT,), np.ones(1, dtype=object)))
        return CountProduct(sign, tuple(parts))


def flow_products(flow: TransferRelation, ways: Ways) -> list[CountProduct]:
    """Crossings of a flow: of everything, less what stays at each transition that is carried over.

    If all other factors keep a transfer whole, the factor that counts links loses those that only lead to
    kept parts; if any other does not, every instance gets its part anew.
    """
    factors = flow.now.factors
    result = [ways.product(flow.sign, factors, [crossed(f.text, ways.of(f)) for f in factors])]
    for axis in sorted(flow.carries):
        seen = modes(flow.held.factors, axis)
        if seen is None:
            continue
        before: list[Array] = []
        after: list[Array] = []
        for f, h, mode in zip(factors, flow.held.factors, seen, strict=True):
            shape = shape_of(f)
            args = (shape.text, h.text, shape.np, shape.nt, mode, flow.forward, ways.of(f))
            whole = (wholly_resident(*args),) * 2 if not ways.counts_links(f) else crossed_at_steps(*args)
            before.append(whole[0])
            after.append(whole[1])
        result.append(ways.product(-flow.sign, factors, before))
        if any(ways.counts_links(f) for f in factors):
            result.append(ways.product(flow.sign, factors, after))
    return result


def sum_products(sums: PartialSums, ways: Ways) -> list[CountProduct]:
    """Crossings of refilled partial sums, from the instances that receive them."""
    factors = sums.now.factors
    if isinstance(sums.chain, RefilledChain):
        return [
            ways.product(
                t.sign, factors, [ways.of(f).count(s) for f, s in zip(factors, t.factors, strict=True)]
            )
            for t in sums.chain.filled_terms(sums.level)
        ]
    reads, filled = sums.chain.reads(sums.level), sums.chain.filled(sums.level)
    if total(filled) != total(reads):
        raise Refused(
            f"partial sums of {sums.tensor} are carried and broadcast over a fanout whose link has a cost: "
            "its Einsum has too many iterations to list which instances share a transfer",
            "use reuse: refill for this output, or tiles that divide their extents",
            code="too-large",
        )
    return [_single(filled, sums.now, ways)] if total(reads) else []


def _single(filled: tuple[CountProduct, ...], now: Touch, ways: Ways) -> CountProduct:
    """Transfers with one destination each, from their number per instance."""
    order = now.spatial
    extents = dict.fromkeys(order, 1)
    for product in filled:
        for axes, array in product.parts:
            for k, a in enumerate(axes):
                extents[a] = max(extents[a], array.shape[k])
    shape = tuple(extents[a] for a in order)
    counts = dense(filled, order, shape).astype(object)
    own = dict(ways.roles.coordinate)
    grid = np.indices(shape, dtype=np.int64)
    where = sum(
        (grid[k] * own[a] for k, a in enumerate(order) if a in own), start=np.zeros(shape, dtype=np.int64)
    )
    if ways.links and own:
        counts = counts * ways.numbers(where)
    keep = [k for k, a in enumerate(order) if ways.labelled and a in ways.roles.labels]
    axes = tuple(order[k] for k in keep)
    rest = tuple(k for k in range(len(order)) if k not in keep)
    if not ways.by_link:
        return CountProduct(1, ((axes, _summed(counts, rest)),))
    side = where >> (ways.shift or 0)
    each = [_summed(counts * (side == i), rest) for i in range(int(side.max(initial=0)) + 1)]
    return CountProduct(1, (((*axes, ROOT), np.stack(each, axis=-1)),))


def _summed(values: Array | int, axes: tuple[int, ...]) -> Array:
    """The sum over `axes`, as an array even if it is a single number."""
    return np.asarray(np.asarray(values, dtype=object).sum(axis=axes), dtype=object)


def _merged(layout: ExactLayout, tensor: str, component: str, dim: FanoutDim) -> ExactLayout:
    """The layout with one factor for all loops of the dimension: its coordinate is their weighted sum."""
    blocks = layout.blocks[tensor]
    mine = {
        node
        for (_, t), view in layout.full.items()
        for node, loop, _ in view.loops
        if t == tensor and loop.spatial and (loop.component, loop.dim) == (component, dim.name)
    }
    which = [i for i, b in enumerate(blocks) if b.loops & mine]
    if len(which) < 2:
        return layout
    merged = merge_blocks(blocks, which)
    nodes = {k: replace(n, blocks=merged) if n.tensor == tensor else n for k, n in layout.nodes.items()}
    return replace(layout, nodes=nodes, blocks={**layout.blocks, tensor: merged})


def listed_products(flow: ListedTransfers, ways: Ways) -> list[CountProduct]:
    """Crossings of listed transfers: distinct (transfer, link) pairs."""
    time, element, places = flow.rows
    order, own = flow.now.spatial, dict(ways.roles.coordinate)
    labels = [k for k, a in enumerate(order) if ways.labelled and a in ways.roles.labels]
    rest = [k for k, a in enumerate(order) if k not in labels and a not in ways.roles.drop]
    where = sum((places[:, k] * own[a] for k, a in enumerate(order) if a in own), start=np.zeros_like(time))
    link, rows = np.zeros_like(time), np.arange(len(time))
    if ways.links and own and ways.shift is None:  # all links of the chain up to the coordinate
        many = ways.numbers(where)
        down = where > ways.ring - where if ways.ring else np.zeros_like(where, dtype=bool)
        rows = np.repeat(rows, many)
        link = np.arange(len(rows)) - np.repeat(np.cumsum(many) - many, many)
        link = np.where(np.repeat(down, many), -1 - link, link)
    elif ways.links and own:
        link = where >> (ways.shift or 0)
        if ways.beyond:
            rows = rows[where >= 1]
            link = link[where >= 1]
    table = [places[rows][:, labels], link, time[rows], element[rows], places[rows][:, rest]]
    axes = tuple(order[k] for k in labels)
    if not len(rows):
        return []
    crossed = distinct(np.column_stack(table))
    keep = len(labels)
    if ways.by_link:
        axes, keep = (*axes, ROOT), keep + 1
    if not keep:
        return [CountProduct(len(crossed), ())]
    where_to = tuple(crossed[:, :keep].T)
    counts = np.zeros(tuple(int(c.max()) + 1 for c in where_to), dtype=np.int64)
    np.add.at(counts, where_to, 1)
    return [CountProduct(1, ((axes, counts.astype(object)),))]


def _products(flow: TransferRelation | PartialSums | ListedTransfers, ways: Ways) -> list[CountProduct]:
    if isinstance(flow, ListedTransfers):
        return listed_products(flow, ways)
    return flow_products(flow, ways) if isinstance(flow, TransferRelation) else sum_products(flow, ways)


@dataclass
class _LinkRow:
    hops: dict[str, int]
    down: list[tuple[int, list[CountProduct]]]
    up: list[tuple[int, list[CountProduct]]]
    reach: int = 0


def link_rows(layout: ExactLayout) -> Iterator[tuple[str, str, FanoutDim, _LinkRow]]:
    """(Einsum, component, dimension, element-hops by tensor and products of what enters its rows)."""
    hierarchy, cascade = layout.problem.hierarchy, layout.problem.cascade
    for component, dim in hierarchy.costly_links:
        rows: dict[str, _LinkRow] = defaultdict(lambda: _LinkRow({}, [], []))
        assert dim.link is not None
        for tensor in cascade.tensors:
            plain = dim.link.topology == "bus" and not dim.link.hop_latency
            own = layout if plain else _merged(layout, tensor, component, dim)
            for flow in flows_of(own, tensor):
                if (component, dim) in hierarchy.crossed_links(*flow.ends):
                    _book(own, flow, (component, dim), rows[flow.einsum])
        for einsum, row in rows.items():
            yield einsum, component, dim, row


def _reach(flow: TransferRelation | PartialSums | ListedTransfers, role: AxisRoles) -> int:
    """The instances along a dimension up to the farthest one that a flow reaches or comes from."""
    if isinstance(flow, TransferRelation) and flow.sign < 0:
        return 0
    to_each = _products(flow, Ways(role, 0, links=True, by_link=True, labelled=False))
    if not to_each:
        return 0
    extent = max(
        part.shape[k] for p in to_each for axes, part in p.parts for k, a in enumerate(axes) if a == ROOT
    )
    reached = np.flatnonzero(dense(to_each, (ROOT,), (extent,)))
    return int(reached[-1]) + 1 if len(reached) else 0


def _book(
    layout: ExactLayout,
    flow: TransferRelation | PartialSums | ListedTransfers,
    dim: tuple[str, FanoutDim],
    row: _LinkRow,
) -> None:
    assert dim[1].link is not None
    topology = dim[1].link.topology
    role = roles(layout, flow, dim)
    depth = (dim[1].fanout - 1).bit_length()
    starred = topology in ("switch", "all_to_all")
    shifts: list[int | None] = list(range(depth)) if topology == "tree" else [0] if starred else [None]
    ring = dim[1].fanout if topology == "ring" else 0
    hops_ = 0
    if topology == "line":  # no hop to the first instance: one less per transfer
        hops_ -= total(_products(flow, Ways(role, None, links=False, by_link=False, labelled=False)))
    for shift in shifts if role.coordinate or not (ring or topology == "all_to_all") else ():
        ways = Ways(role, shift, topology != "bus", False, False, ring, topology == "all_to_all")
        hops_ += total(_products(flow, ways))
    row.hops[flow.tensor] = row.hops.get(flow.tensor, 0) + hops_
    if dim[1].link.hop_latency:
        row.reach = max(row.reach, _reach(flow, role))
    if not dim[1].link.timed or not shifts:
        return
    apart = topology in ("tree", "switch")  # several of these links lead into one row
    ways = Ways(role, shifts[-1], apart, by_link=apart, labelled=True)
    entering = _products(flow, ways)
    (row.up if flow.up else row.down).append((tensor_bits(layout, flow.tensor), entering))
