"""Transfers that take whole actions: their sizes, and the bits that they then move per instance.

docs/semantics.md, Whole actions. Only what an action rounds up is considered; the links are those of `flows`.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from math import prod
from typing import NoReturn

import numpy as np

from polymodel.analysis.exact.buffets import ExactBuffet, ExactLayout, shape_of
from polymodel.analysis.exact.cached_counts import Array, CountProduct
from polymodel.analysis.exact.enumerated_partials import LIMIT, ListedChain, listable
from polymodel.analysis.exact.flows import (
    KINDS,
    ProductLedger,
    copy_of,
    fill_carries,
    fills_of,
    output_chain,
    result_view,
    shared_axes,
    tolls_on_path,
)
from polymodel.analysis.exact.occupancy import tensor_bits
from polymodel.analysis.exact.partials import OutputChain, OutputLevel
from polymodel.analysis.exact.sweep import Ints, distinct, operations, rank, stacked
from polymodel.analysis.exact.transfers import modes
from polymodel.analysis.exact.uneven import RefilledChain, SetProduct
from polymodel.analysis.result import TransferSizes
from polymodel.architecture.hierarchy import ActionCost
from polymodel.errors import Refused
from polymodel.mapping.looptree import StorageNode
from polymodel.polyhedra import sets, steps
from polymodel.polyhedra.needs import size_classes
from polymodel.schedule.touch import Factor, Touch

# Sizes of transfers: what one stamp moves is a signed sum of products of sets, so that its size is a sum of
# products of numbers. Per factor the stamps fall into few classes of equal sizes (interior and edge tiles;
# what is touched and what of it stays); products of classes over the factors give every transfer.

Parts = tuple[tuple[tuple[int, ...], Array], ...]
Sized = tuple[tuple[int, CountProduct], ...]  # (elements of one transfer, transfers per instance)
MOST_LISTED = 20_000


@dataclass(frozen=True)
class ChargedAxes:
    """The instances whose transfers are requested: those of the first `charge` axes; `shared` axes move
    together."""

    charge: int
    shared: frozenset[int]

    def keep(self, factor: Factor) -> int:
        return sum(1 for a in factor.spatial if a < self.charge)

    def drop(self, factor: Factor) -> tuple[int, ...]:
        return tuple(k for k, a in enumerate(factor.spatial) if a >= self.charge and a in self.shared)


def moving_terms(
    now: Touch, held: Touch, carries: frozenset[int], cut: ChargedAxes, forward: bool
) -> list[SetProduct]:
    """The elements that `transfers.moved` counts, as sets of (stamp of a transfer, element)."""
    whole = [sets.without(sets.parse_set(f.text), cut.drop(f)) for f in now.factors]
    result = [SetProduct(1, tuple(whole))]
    for axis in sorted(carries):
        seen = modes(held.factors, axis)
        if seen is None:
            continue
        stay = []
        for f, h, mode in zip(now.factors, held.factors, seen, strict=True):
            shape = shape_of(f)
            candidates, kept = steps.resident_at_neighbor(
                shape.text, h.text, shape.np, shape.nt, mode, forward
            )
            stay.append(steps.united(candidates, kept, cut.drop(f)) if cut.drop(f) else kept)
        result.append(SetProduct(-1, tuple(stay)))
    return result


def projected(terms: Sequence[SetProduct], factors: tuple[Factor, ...], cut: ChargedAxes) -> list[SetProduct]:
    """Terms over single instances, united over those that move together."""
    return [
        SetProduct(
            t.sign, tuple(sets.without(s, cut.drop(f)) for s, f in zip(t.factors, factors, strict=True))
        )
        for t in terms
    ]


def sized(terms: Sequence[SetProduct], factors: tuple[Factor, ...], cut: ChargedAxes) -> Sized:
    """The transfers by size, per instance that is charged, without empty ones."""
    terms = [t for t in terms if not any(s.is_empty() for s in t.factors)]
    counts: dict[tuple[int, ...], int] = {(1,) * len(terms): 1}  # over factors without own instances
    spread: list[tuple[tuple[int, ...], Parts]] = [((1,) * len(terms), ())]
    for k, f in enumerate(factors):
        keep, stamps = cut.keep(f), len(f.spatial) - len(cut.drop(f)) + len(f.temporal)
        classes = size_classes([t.factors[k] for t in terms], stamps, keep)
        if keep:
            axes = f.spatial[:keep]
            spread = [
                (_times(one, two), (*parts, (axes, array))) for one, parts in spread for two, array in classes
            ]
        else:
            grown: dict[tuple[int, ...], int] = defaultdict(int)
            for one, n in counts.items():
                for two, array in classes:
                    grown[_times(one, two)] += n * int(array[()])
            counts = {sizes: n for sizes, n in grown.items() if any(sizes)}
        if len(spread) * len(counts) > MOST_LISTED:
            raise Refused(
                "transfers that are rounded up to whole actions have too many different sizes",
                "give bits_per_action that divide bits_per_value, or choose tiles that divide their extents",
                code="too-large",
            )
    signs = [t.sign for t in terms]
    result: dict[int, list[CountProduct]] = defaultdict(list)
    for one, parts in spread:
        for two, n in counts.items():
            size = sum(s * v for s, v in zip(signs, _times(one, two), strict=True))
            if size:
                result[size].append(CountProduct(n, parts))
    return tuple((size, p) for size, products in sorted(result.items()) for p in products)


def _times(one: tuple[int, ...], two: tuple[int, ...]) -> tuple[int, ...]:
    return tuple(a * b for a, b in zip(one, two, strict=True))


def histogram(sizes: Sequence[tuple[int, CountProduct]]) -> tuple[tuple[int, int], ...]:
    """(elements, number of transfers) over all instances."""
    result: dict[int, int] = defaultdict(int)
    for size, product in sizes:
        result[size] += product.total
    return tuple(sorted((size, n) for size, n in result.items() if n))


# (Einsum, node or None at a toll, component, tensor, kind)
Row = tuple[str, int | None, str, str, str]
READS = ("reads_fill", "reads_drain", "down")
NOBODY: frozenset[int] = frozenset()


@dataclass(frozen=True)
class Booking:
    """Accesses of one kind: `bits` for each that `products` count per instance."""

    row: Row
    bits: int
    products: tuple[CountProduct, ...]

    @property
    def einsum(self) -> str:
        return self.row[0]

    @property
    def component(self) -> str:
        return self.row[2]

    @property
    def reads(self) -> bool:
        """Whether it reads: out of a memory, or down through a toll."""
        return self.row[4] in READS


def action_of(layout: ExactLayout, row: Row) -> ActionCost:
    """The action of a kind of access at its component."""
    down, up = layout.problem.hierarchy[row[2]].ways
    return down if row[4] in READS else up


def rounds(layout: ExactLayout, row: Row) -> bool:
    return action_of(layout, row).rounds(tensor_bits(layout, row[3]))


def by_value(layout: ExactLayout, einsum: str, node: ExactBuffet, kind: str) -> bool:
    """Whether compute is at the other end."""
    if kind not in ("reads_fill", "writes_drain") or layout.problem.cascade[einsum].is_copy:
        return False
    return layout.chain(einsum, node.tensor)[-1] is node


def bookings(
    layout: ExactLayout, ledger: ProductLedger, transfers: dict[Row, list[Sized]]
) -> Iterator[Booking]:
    """Every access and passage with its bits; rounded transfers in whole actions."""
    for (einsum, node_id, tensor), kinds in ledger.accesses.items():
        node = layout.nodes[node_id, tensor]
        for kind in KINDS:
            row: Row = einsum, node_id, node.component, tensor, kind
            bits = tensor_bits(layout, tensor)
            if not kinds.get(kind) or (rounds(layout, row) and not by_value(layout, einsum, node, kind)):
                continue
            yield Booking(row, action_of(layout, row).whole_bits(bits), tuple(kinds[kind]))
    for p in ledger.tolls:
        row = p.row
        if p.single or not rounds(layout, row):
            bits = action_of(layout, row).whole_bits(tensor_bits(layout, p.tensor))
            yield Booking(row, bits, p.products)
    for row, found in transfers.items():
        action, bits = action_of(layout, row), tensor_bits(layout, row[3])
        assert action.bits_per_action is not None
        products = tuple(
            CountProduct(p.sign * (action.whole_bits(size * bits) // action.bits_per_action), p.parts)
            for sizes in found
            for size, p in sizes
        )
        yield Booking(row, action.bits_per_action, products)


def transfer_rows(
    layout: ExactLayout, ledger: ProductLedger, transfers: dict[Row, list[Sized]]
) -> tuple[TransferSizes, ...]:
    """Rows by Einsum, first at memories in tree order, then at tolls."""
    found: dict[Row, list[tuple[int, CountProduct]]] = defaultdict(list)
    for row, each in transfers.items():
        found[row] += [pair for sizes in each for pair in sizes]
    for p in ledger.tolls:
        row = p.row
        if p.single and rounds(layout, row):
            found[row] += [(1, product) for product in p.products]
    problem = layout.problem
    rows: list[Row] = []
    nodes = [(i, n) for i, n, _ in problem.tree.walk() if isinstance(n, StorageNode)]
    for einsum in problem.tree.einsums:
        rows += [(einsum, i, n.component, t, kind) for i, n in nodes for t in n.tensors for kind in KINDS]
        tolls = [c.name for c in problem.hierarchy.components if c.passes]
        tensors = problem.cascade[einsum].tensors
        rows += [(einsum, None, c, t, kind) for c in tolls for t in tensors for kind in ("down", "up")]
    counted = ((row, histogram(found[row])) for row in rows if row in found)
    return tuple(TransferSizes(*row, sizes) for row, sizes in counted if sizes)


def transfers_of(layout: ExactLayout) -> dict[Row, list[Sized]]:
    """The sizes of all transfers that are rounded up, per charged instance."""
    wanted = {tensor for _, tensor, _ in layout.problem.rounding()}
    walk = _LinkWalk(layout)
    for tensor in layout.problem.cascade.tensors:
        if tensor in wanted:
            walk.tensor(tensor)
    for einsum in layout.problem.cascade if wanted else ():
        for output in einsum.outputs if einsum.is_copy and einsum.name in layout.problem.tree.paths else ():
            walk.copied(einsum.name, output.tensor)
    return walk.found


@dataclass
class _LinkWalk:
    """Every link between two storages, as terms of what crosses it at each stamp."""

    layout: ExactLayout
    found: dict[Row, list[Sized]] = field(default_factory=lambda: defaultdict(list))

    def tensor(self, tensor: str) -> None:
        cascade = self.layout.problem.cascade
        for name in self.layout.problem.tree.einsums:
            einsum = cascade[name]
            if tensor in einsum.tensors and einsum.access_of(tensor).output and not einsum.is_copy:
                self.results(name, tensor)
        for node in self.layout.nodes.values():
            if node.tensor == tensor and node.parent is not None:
                self.fills(node)

    def fills(self, node: ExactBuffet) -> None:
        """As `flows` counts them: each booked to the first Einsum that touches the element."""
        assert node.parent is not None
        parent = self.layout.nodes[node.parent, node.tensor]
        carries, held = fill_carries(self.layout, node), node.all_touch
        for fill in fills_of(self.layout, node):
            for row, cut in self.downwards(fill.einsum, parent, node, fill.now, fill.shared):
                terms = moving_terms(fill.now, held, carries, cut, False)
                if fill.before is not None:
                    terms += _minus(moving_terms(fill.before, held, carries, cut, False))
                self.found[row].append(sized(terms, fill.now.factors, cut))

    def downwards(
        self, einsum: str, parent: ExactBuffet, child: ExactBuffet, now: Touch, shared: frozenset[int]
    ) -> Iterator[tuple[Row, ChargedAxes]]:
        """The rows of a fill that are requested, with the instances whose transfers count there."""
        yield from self._ends(einsum, parent, child, now, shared, ("reads_fill", "down", "writes_fill"))

    def upwards(
        self, einsum: str, parent: ExactBuffet, child: ExactBuffet, now: Touch, shared: frozenset[int]
    ) -> Iterator[tuple[Row, ChargedAxes]]:
        yield from self._ends(einsum, parent, child, now, shared, ("writes_drain", "up", "reads_drain"))

    def _ends(
        self,
        einsum: str,
        parent: ExactBuffet,
        child: ExactBuffet,
        now: Touch,
        shared: frozenset[int],
        kinds: tuple[str, str, str],
    ) -> Iterator[tuple[Row, ChargedAxes]]:
        tensor = parent.tensor
        ends: list[tuple[Row, ChargedAxes]] = [
            ((einsum, parent.id, parent.component, tensor, kinds[0]), ChargedAxes(parent.loops, shared)),
            ((einsum, child.id, child.component, tensor, kinds[2]), ChargedAxes(len(now.axes), NOBODY)),
        ]
        for toll, charge in tolls_on_path(self.layout, einsum, parent, child.component, now):
            ends.append(((einsum, None, toll, tensor, kinds[1]), ChargedAxes(charge, shared)))
        yield from (end for end in ends if rounds(self.layout, end[0]))

    def results(self, einsum: str, tensor: str) -> None:
        """Drains and refilled partial sums along the chain of an output's storages."""
        layout = self.layout
        chain = output_chain(layout, einsum, tensor)
        levels, shared = chain.levels, shared_axes(layout, einsum, tensor)
        broadcast = chain.reduction.broadcast if isinstance(chain, OutputChain) else chain.broadcast
        alike = isinstance(chain, OutputChain) and not chain.reduction.first_touch_formula
        sums: RefilledChain | ListedChain = RefilledChain(levels, shared, broadcast)
        if any(level.carries for level in levels) and not alike:
            sums = ListedChain(levels, shared, broadcast, result_view(layout, einsum, tensor))
        for child in range(1, len(levels) - 1):
            parent, node, now = levels[child - 1].node, levels[child].node, levels[child].now
            assert parent is not None
            assert node is not None
            for row, cut in self.upwards(einsum, parent, node, now, shared):
                self.found[row].append(self.drains(row, levels[child], node, cut))
            for row, cut in self.downwards(einsum, parent, node, now, shared):
                self.found[row].append(self.sums(row, sums, child, cut))

    def drains(self, row: Row, level: OutputLevel, node: ExactBuffet, cut: ChargedAxes) -> Sized:
        """Elements whose run ends; one by one if consumers keep runs alive after the last write."""
        if not level.carries or level.now == level.held:
            terms = moving_terms(level.now, level.held, level.carries, cut, True)
            return sized(terms, level.now.factors, cut)
        if not can_list(node):
            self.refuse(row)
        return by_size(drained(node, level.carries), level.now.spatial, cut)

    def sums(self, row: Row, chain: RefilledChain | ListedChain, child: int, cut: ChargedAxes) -> Sized:
        """Partial sums that the parent reads out, or that reach the child's instances."""
        level, at_parent = chain.levels[child], row[4] == "reads_fill"
        if isinstance(chain, ListedChain):
            if not listable(chain.levels, chain.view):
                self.refuse(row)
            return by_size(chain.moves(child, filled=not at_parent), level.now.spatial, cut)
        if not at_parent:
            terms = projected(chain.filled_terms(child), level.fill_candidates.factors, cut)
            return sized(terms, level.fill_candidates.factors, cut)
        if chain.levels[child - 1].read_first:
            terms = moving_terms(level.now, level.held, level.carries, cut, False)
            return sized(terms, level.now.factors, cut)
        if level.spans:
            return ()
        part = level.apart
        terms = moving_terms(part.now, part.held, part.carries, cut, False)
        terms += _minus(projected(chain.empty(child), part.now.factors, cut))
        return sized(terms, part.now.factors, cut)

    def copied(self, einsum: str, tensor: str) -> None:
        """One transfer per stamp of the destination, at both ends."""
        if (moved := copy_of(self.layout, einsum, tensor)) is None:
            return
        source, target, now = moved
        for node, kind in ((source, "reads_fill"), (target, "writes_fill")):
            row, cut = (einsum, node.id, node.component, node.tensor, kind), ChargedAxes(node.loops, NOBODY)
            if rounds(self.layout, row):
                terms = moving_terms(now, now, NOBODY, cut, False)
                self.found[row].append(sized(terms, now.factors, cut))

    def refuse(self, row: Row) -> NoReturn:
        action, bits = action_of(self.layout, row), tensor_bits(self.layout, row[3])
        raise Refused(
            f"{row[2]}, {row[3]} in {row[0]}: {action.name} moves {action.bits_per_action} bits per action, "
            f"which does not divide {bits} bits per value, and the sizes of transfers are not counted where "
            "it is carried",
            "use reuse: refill for this output, or give bits_per_action that divide bits_per_value",
            code="unsupported-rounding",
        )


def _minus(terms: Sequence[SetProduct]) -> list[SetProduct]:
    return [SetProduct(-t.sign, t.factors) for t in terms]


def by_size(moves: tuple[Ints, Ints, Ints], axes: Sequence[int], cut: ChargedAxes) -> Sized:
    """Transfers by size from rows (time, element, places along the spatial `axes`), which may repeat."""
    time, element, places = moves
    own = [k for k, a in enumerate(axes) if a < cut.charge or a not in cut.shared]
    if not len(time):
        return ()
    stamps = distinct(np.column_stack([time, places[:, own], element]))[:, :-1]
    ids = rank(stamps)
    _, firsts, sizes = np.unique(ids, return_index=True, return_counts=True)
    kept = [k for k, a in enumerate(axes) if a < cut.charge]
    where = stamps[firsts][:, 1 : 1 + len(kept)]
    shape = tuple(int(n) + 1 for n in where.max(axis=0, initial=0))
    result = []
    for size in np.unique(sizes):
        mine = where[sizes == size]
        counts = np.full(shape, len(mine), dtype=np.int64)
        if kept:
            flat = np.ravel_multi_index(tuple(mine.T), shape)
            counts = np.bincount(flat, minlength=prod(shape)).reshape(shape)
        result.append((int(size), CountProduct(1, ((tuple(axes[k] for k in kept), counts.astype(object)),))))
    return tuple(result)


def can_list(node: ExactBuffet) -> bool:
    """Whether the node's users together are small enough."""
    return sum(prod(h - low + 1 for low, h in v.einsum.bounds) for v in node.views) <= LIMIT


def drained(node: ExactBuffet, carries: frozenset[int]) -> tuple[Ints, Ints, Ints]:
    """(end, element, places) of all runs in which the element was written, whoever keeps them alive."""
    touch = node.all_touch
    stamps, places, elements, writes = [], [], [], []
    for view in node.views:
        ops = operations(view)
        stamps.append(stacked([ops.counters[a] for a in touch.temporal], ops.count))
        places.append(stacked([ops.counters[a] for a in touch.spatial], ops.count))
        elements.append(ops.elements(view.access))
        writes.append(np.full(ops.count, view.access.output))
    stamp, place, write = np.concatenate(stamps), np.concatenate(places), np.concatenate(writes)
    element, visit, where = rank(np.concatenate(elements)), rank(stamp), rank(place)
    order = np.lexsort((visit, element, where))
    p, x, v, s = where[order], element[order], visit[order], stamp[order]
    joined = (p[1:] == p[:-1]) & (x[1:] == x[:-1])
    next_visit = v[1:] == v[:-1] + 1
    if touch.temporal:
        axis = np.argmax(s[1:] != s[:-1], axis=1)
        next_visit &= np.isin(np.asarray(touch.temporal)[axis], sorted(carries))
    joined &= next_visit | (v[1:] == v[:-1])
    run = np.concatenate(([0], np.cumsum(~joined)))
    last = np.concatenate((~joined, [True]))
    dirty = np.bincount(run, weights=write[order]) > 0
    return v[last][dirty], x[last][dirty], place[order][last][dirty]
