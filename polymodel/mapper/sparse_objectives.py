"""Objectives on sparse data: mappings are found by lower bounds, evaluated on the data, and rated."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import combinations
from math import inf, prod
from time import monotonic

import numpy as np
from numpy.typing import NDArray

from polymodel.architecture.hierarchy import Component, Hierarchy
from polymodel.cost.records import ExecutedOperators, operation_cost
from polymodel.errors import Refused
from polymodel.loading import Spec
from polymodel.mapper.aims import WORKING_SET
from polymodel.mapper.confirm import MappingFigures, Point, all_confirmed, bug, confirmed
from polymodel.mapper.einsum_rules import is_box
from polymodel.mapper.records import Candidate, Quality, Request, SearchResult, Shares, Sizes, Toll
from polymodel.mapper.sparse_room import (
    Rooms,
    bits_of_one,
    compressed,
    free_room,
    least_tile_bits,
    payload_bits,
    stored_shares,
)
from polymodel.mapper.terms import READS
from polymodel.objectives import on_dense_data
from polymodel.report.sparse import SparseReport, with_data
from polymodel.reuse import Reuse
from polymodel.sparse.actions.data import TensorData
from polymodel.sparse.actions.join import GroupTable, VariableParts, weighted_count
from polymodel.sparse.actions.places import differs, effectual_points, seen_by
from polymodel.sparse.actions.records import KINDS, AccessCount, least_certain
from polymodel.sparse.actions.storage import KeptTensor, stored_as, written_format
from polymodel.sparse.actions.zeros import is_union, require_known, stopping
from polymodel.workload.einsum import Cascade, Einsum, require_plain

# Lower bounds on the accesses and operations that remain on sparse data, whatever the mapping is. Sparse
# counts (`sparse.actions`) eliminate a transfer where a part of a leader is empty. The part has at least one
# point, so it is nonempty with at least the probability that one point is: the product of these probabilities
# over the leaders is a lower bound on the fraction of transfers that happen. With prices reduced accordingly,
# the figures of the search are lower bounds of sparse energy and latency, and exact if all actions depend on
# single points.

OUTER = ("reads_fill", "writes_drain")  # at the memory that serves what is further in
PARTIAL = ("reads_fill", "writes_fill")  # of outputs: visits that find a partial sum
REMEDY = "evaluate mappings written by hand, or sweep them"


def least_shares(
    cascade: Cascade,
    hierarchy: Hierarchy,
    data: Mapping[str, TensorData],
    sizes: Sizes,
    rooms: Rooms | None = None,
) -> tuple[Shares, ...]:
    """Return one record of lower bounds per Einsum. `rooms`: space bounds of compressed tensors.

    Raises Refused for data whose tiles differ, with tile sizes that need not divide, and if anything other
    than memories and compute takes energy or time.
    """
    paid = any(c.passes and c.actions for c in hierarchy.components) or bool(hierarchy.costly_links)
    if paid or not hierarchy.assume_overlap:
        what = "tolls, links with costs and `assume_overlap: false`"
        raise Refused(f"the search on sparse data does not cover {what}", REMEDY, code="unsupported-density")
    require_plain(cascade, "the search on sparse data covers", REMEDY)
    moving = [(c, a) for c in hierarchy.components if c.stores for a in c.actions]
    for c in (c for c, a in moving for e in cascade for x in e.accesses if a.rounds(x.bits_per_value)):
        what = f"`bits_per_action` of {c.name} that divides no value"
        raise Refused(f"the search on sparse data does not cover {what}", REMEDY, code="unsupported-density")
    for one in (e for e in cascade if not is_box(e)):
        what = f"the iteration space of {one.name}, which is not a box"
        raise Refused(f"the search on sparse data does not cover {what}", REMEDY, code="unsupported-density")
    each = (_Least(e, hierarchy, data, sizes).shares() for e in cascade.einsums)
    if not rooms:
        return tuple(each)
    held = stored_shares(cascade, hierarchy, rooms)
    return tuple(replace(s, held=h) for s, h in zip(each, held, strict=True))


class _Least:
    def __init__(
        self, einsum: Einsum, hierarchy: Hierarchy, data: Mapping[str, TensorData], sizes: Sizes
    ) -> None:
        self.einsum, self.hierarchy, self.data, self.sizes = einsum, hierarchy, data, sizes
        self.memories = [c for c in hierarchy.components if c.stores]
        self._joint: dict[frozenset[str], float] = {}

    def shares(self) -> Shares:
        moved = tuple(
            tuple(
                tuple((kind, self._toll(a.tensor, m, kind)) for kind in KINDS)
                for m in range(len(self.memories))
            )
            for a in self.einsum.accesses
        )
        units = tuple(self._unit(c) for c in self.hierarchy.components if c.computes)
        return Shares(moved, units)

    def _leaders(self, component: Component, tensor: str, kinds: Sequence[str]) -> set[str]:
        """The tensors whose zeros make accesses of a tensor idle at a component ("": its operations)."""
        result: set[str] = set()
        for action in component.sparse.actions if component.sparse else ():
            targets, leaders = action.of(self.einsum.name)
            if action.kind in kinds and (tensor in targets or not tensor):
                result |= {x for x in leaders if x == tensor or stopping(self.einsum, x)}
        return result

    def _above(self, tensor: str, outermost: int, kinds: Sequence[str]) -> frozenset[str]:
        """Return the leaders at any of the outermost memories that may hold the tensor, without leaders that
        have no zeros."""
        if self.einsum.is_copy:
            return frozenset()
        result: set[str] = set()
        for number, c in enumerate(self.memories[:outermost]):
            if not number or self._may(c, tensor):
                result |= self._leaders(c, tensor, kinds)
        return self._sparse(result)

    def _may(self, component: Component, tensor: str) -> bool:
        rules = (component.keep, component.may_keep)
        return rules[1] is None or any(r is not None and tensor in r.tensors(self.einsum.name) for r in rules)

    def _sparse(self, leaders: set[str]) -> frozenset[str]:
        return frozenset(x for x in leaders if not self.data[x].dense)

    def _chance(self, leaders: frozenset[str]) -> float:
        """Return a lower bound of the probability (for given data: the fraction of transfers) that parts of
        all leaders are nonempty."""
        given = frozenset(x for x in leaders if self.data[x].actual is not None)
        if self._tied(leaders):
            return 0.0  # the nonzeros of one may all be where the other has none
        result = self._common(given)
        for x in sorted(leaders - given):
            result *= self._point(x)
        return result

    def _tied(self, tensors: frozenset[str]) -> bool:
        """Return whether a model and another tensor's model or data both locate nonzeros along one rank
        variable."""
        accesses = [self.einsum.access_of(t) for t in sorted(tensors)]
        differing = [a for a in accesses if differs(self.data[a.tensor], a)]
        return any(
            set(a.variables) & set(b.variables)
            for a, b in combinations(differing, 2)
            if self.data[a.tensor].actual is None or self.data[b.tensor].actual is None
        )

    def _differ(self, tensors: frozenset[str]) -> bool:
        return any(differs(self.data[t], self.einsum.access_of(t)) for t in tensors)

    def _point(self, tensor: str) -> float:
        """The probability that one point is nonzero."""
        self._even(tensor)
        ones = tuple(np.ones(1, np.int64) for _ in self.einsum.access_of(tensor).ranks)
        return float(self.data[tensor].nonempty(ones).reshape(-1)[0])

    def _common(self, tensors: frozenset[str]) -> float:
        """Return the fraction of iterations in which none of these tensors, of given data, is zero.

        If tiles divide, every transfer represents equally many iterations, and happens if all tensors are
        nonzero in any of them.
        """
        if not tensors:
            return 1.0
        if tensors not in self._joint:
            size = {v: high - low + 1 for v, (low, high) in self._bounds().items()}
            tables = [self._table(t) for t in sorted(tensors)]
            axes = {
                v: VariableParts(
                    np.ones(n, np.int64), {k: np.arange(n) for k, t in enumerate(tables) if v in t.variables}
                )
                for v, n in size.items()
            }
            self._joint[tensors] = weighted_count(tables, axes) / prod(size.values())
        return self._joint[tensors]

    def _bounds(self) -> dict[str, tuple[int, int]]:
        return dict(zip(self.einsum.rank_variables, self.einsum.bounds, strict=True))

    def _table(self, tensor: str) -> GroupTable:
        self._even(tensor)
        access, actual, bounds = self.einsum.access_of(tensor), self.data[tensor].actual, self._bounds()
        assert actual is not None, "asked for given data only"
        names = [x.terms[0][0] for x in access.projection]
        ids = [
            actual.rank(r) - x.constant - bounds[v][0]
            for r, x, v in zip(access.ranks, access.projection, names, strict=True)
        ]
        return GroupTable.of(names, ids, actual.nnz, different=True)

    def _even(self, tensor: str) -> None:
        """Raises Refused where tiles of nonuniform data may differ in size."""
        known, access, bounds = self.data[tensor], self.einsum.access_of(tensor), self._bounds()
        if known.placeless and known.actual is None:
            return
        reason = ""
        if self.sizes == "all":
            reason = "with `sizes: all` tiles of different sizes"
        elif not all(len(x.terms) == 1 and x.terms[0][1] == 1 for x in access.projection):
            reason = "behind ranks of several rank variables tiles"
        else:
            spans = [bounds[x.terms[0][0]] for x in access.projection]
            source = known.model if known.actual is None else known.actual
            assert source is not None, "a tensor without data or model is the same everywhere"
            if tuple(high - low + 1 for low, high in spans) != tuple(source.shape):
                reason = f"of {tensor}, of which {self.einsum.name} uses a part, tiles"
        if reason:
            message = f"{self.einsum.name}: {reason} hold unknown shares of the nonzeros of {tensor}"
            remedy = f"give {tensor} a uniform density, leave `sizes` at divisors, or {REMEDY}"
            raise Refused(message, remedy, code="unsupported-density")

    def _stored_format(self, component: Component, tensor: str) -> KeptTensor | None:
        """Return the format in which a component keeps a tensor; None if every point is stored by itself."""
        for name, written in component.sparse.formats if component.sparse else ():
            if name == tensor:
                result = stored_as(written_format(self.einsum.access_of(tensor), written))
                return result if result.elides or result.blocks else None
        return None

    def _toll(self, tensor: str, memory: int, kind: str) -> Toll:
        """Lower bounds of joules and bits of one element, averaged over the dense counts."""
        component, access = self.memories[memory], self.einsum.access_of(tensor)
        way, bits = "read" if kind in READS else "write", access.bits_per_value
        price, gated = price_of(component, way), price_of(component, f"gated_{way}")
        how, known = self._stored_format(component, tensor), self.data[tensor]
        nonzeros = how is not None and how.elides and not known.dense
        held = self._nonzero_share(tensor) if nonzeros else 1.0
        turns, actual = (
            self._left(
                tensor,
                nonzeros,
                self._leading(tensor, memory, kind, kinds),
                access.output and kind in PARTIAL,
            )
            for kinds in (("skip",), ("skip", "gate"))
        )
        if how is not None and how.blocks:
            least = self._nonzero_share(tensor) * payload_bits(how) / bits
            held, turns, actual = held * least, turns * least, actual * least
        more = 0.0
        if how is not None and how.elides and held:
            # metadata per value: stored bits of a nonzero, less the value as counted
            density = known.model.density if known.model is not None else held
            more = (density * bits_of_one(how, len(access.ranks)) - held * bits) / held
        named = any(a.name == f"metadata_{way}" for a in component.actions)
        about = price_of(component, f"metadata_{way}") if named else price
        each = bits * price + more * about  # of an element that moves
        other = bits * gated
        joules = actual * max(each - other, 0.0) + turns * min(each, other)
        if each < 0:
            joules = held * each
        time = turns * bits + actual * more if more >= 0 else turns * (bits + more)
        return joules, time

    def _leading(self, tensor: str, memory: int, kind: str, kinds: Sequence[str]) -> frozenset[str]:
        """Tensors whose zeros eliminate transfers: leaders of actions, and for an output, those that make
        operations idle on any unit, since its elements move only where an operation is executed."""
        result = self._above(tensor, memory + (kind in OUTER), kinds)
        if self.einsum.is_copy or not self.einsum.access_of(tensor).output:
            return result
        # The outer of the two memories that exchange it decides whether it moves densely.
        outer = [m for i, m in enumerate(self.memories[:memory]) if not i or self._may(m, tensor)]
        outer = [self.memories[memory]] if kind in OUTER else outer
        if all(m.sparse is not None and tensor in m.sparse.dense_outputs for m in outer):
            return result
        units = (c for c in self.hierarchy.components if c.computes)
        return result.union(*(self._idle(c, len(self.memories), kinds) for c in units))

    def _nonzero_share(self, tensor: str) -> float:
        """Return the fraction of points that are nonzero."""
        known = self.data[tensor]
        self._even(tensor)
        return self._common(frozenset({tensor})) if known.actual is not None else known.density

    def _left(self, tensor: str, nonzeros: bool, leaders: frozenset[str], partial: bool) -> float:
        """Return the fraction of elements that move: those whose leaders' parts are nonempty and, with
        `nonzeros`, that are nonzero."""
        known = self.data[tensor]
        if partial and self._differ(leaders):
            return 0.0  # the nonzeros may all be where sums begin
        if not nonzeros:
            return self._chance(leaders)
        leaders -= {tensor}
        if known.actual is not None:
            return self._chance(leaders | {tensor})
        if self._tied(leaders | {tensor}):
            return 0.0
        if known.computed and leaders:
            return min(self._chance(leaders), known.density)  # as the counts do
        return self._chance(leaders) * known.density

    def _unit(self, component: Component) -> tuple[str, float, float]:
        if self.einsum.is_copy:
            return component.name, 0.0, 0.0
        within = self.hierarchy.index(component.name)
        reach = sum(self.hierarchy.index(m.name) < within for m in self.memories)
        effectual = self._effectual()
        turns, executed = (
            max(effectual, self._chance(self._idle(component, reach, kinds)))
            for kinds in (("skip",), ("skip", "gate"))
        )
        cost = operation_cost(component, ExecutedOperators.priced(self.einsum, self.hierarchy))
        price, gated = cost.energy, component.action("gated_compute").energy
        joules = executed * max(price - gated, 0.0) + turns * min(price, gated) + cost.finish_energy
        return component.name, joules, turns

    def _idle(self, component: Component, reach: int, kinds: Sequence[str]) -> frozenset[str]:
        """Return the tensors whose zeros make operations idle: by actions of the unit, and (except for sums)
        by any action on the operands on their way to it."""
        result = self._sparse(self._leaders(component, "", kinds))
        if is_union(self.einsum):
            return result
        stops = [a.tensor for a in self.einsum.inputs if stopping(self.einsum, a.tensor)]
        return result.union(*(self._above(t, reach, kinds) for t in stops))

    def _effectual(self) -> float:
        """Return the fraction of operations whose result may be nonzero, which are executed."""
        einsum = self.einsum
        require_known(einsum, self.data)
        if any(self.data[a.tensor].actual is not None for a in einsum.inputs):
            return 0.0
        result = effectual_points(einsum, seen_by(einsum, self.data))
        return 0.0 if result.label == "estimate" else result.number / result.of


def price_of(component: Component, action: str) -> float:
    """Return joules per bit; 0 for an action that is not declared."""
    result = component.action(action)
    return result.energy / (result.bits_per_action or 1)


# Sparse objectives: mappings are found by lower bounds, evaluated on sparse data, and rated. Let LB be the
# search's figures with least shares (above), and S those of a sparse report. For any mapping m there is a
# mapping q on the front of the search with LB(q) <= LB(m) <= S(m), and a mapping r among those evaluated with
# S(r) <= f(q) LB(q). So S(r) <= f S(m) in every objective, where f is the greatest f(q).

CLOSE = 1e-9
LONGEST = 30.0  # seconds of evaluation without a time limit
# Limits for mappings that lower bounds do not lead to: seconds, or multiples of the search's time.
LEAST, TIMES = 5.0, 3.0
ROUNDS = 3
MOST = 24  # mappings of each further search that are evaluated

Floats = NDArray[np.float64]


def bounded(spec: Spec, hierarchy: Hierarchy, request: Request, data: Mapping[str, TensorData]) -> Request:
    """The request of the search: its energy and latency are lower bounds of those on sparse data."""
    if request.limits.spatial_sizes == "all":
        what = "a search on sparse data covers tiles over fanouts that divide"
        raise Refused(what, f"leave `spatial_sizes: all` out, or {REMEDY}", code="unsupported-instances")
    if any(r.kind == "reuse" and Reuse.KEEP_PREVIOUS in r.names for r in request.limits.rules):
        what = "the search on sparse data does not cover nodes that keep_previous"
        raise Refused(what, f"leave that policy out of `reuse`, or {REMEDY}", code="unsupported-instances")
    rooms = least_tile_bits(spec.workload, hierarchy, data, request.limits.sizes)
    # A limit on a working set counts dense bits: no tile counts with more than these.
    limited = {x.name.partition(":")[2] for x in request.at_most if x.name.startswith(f"{WORKING_SET}:")}
    rooms = {k: replace(r, share=min(r.share, 1.0)) if k[0] in limited else r for k, r in rooms.items()}
    shares = least_shares(spec.workload, hierarchy, data, request.limits.sizes, rooms)
    bounded = replace(request, objectives=_plain(request.objectives), shares=shares)
    return replace(bounded, room=free_room(spec.workload, hierarchy, rooms))


def _plain(objectives: Sequence[str]) -> tuple[str, ...]:
    return tuple(map(on_dense_data, objectives))


def sparse_points(
    spec: Spec,
    found: SearchResult,
    objectives: tuple[str, ...],
    data: Mapping[str, TensorData],
    workers: int,
    done: Callable[[int, int], bool],
    end: float,
) -> list[Point]:
    """The search's mappings that were evaluated on sparse data.

    Mappings at the ends of the front come first, then repeatedly those in the middle. Compressed tiles of
    some may not fit. `done(number, of)` is called with the progress; if it returns False, the evaluation
    ends. Raises InternalError if a figure is below its bound, and Refused if no mapping can be counted.
    """
    some = [found.candidates[i] for i in spread(len(found.candidates))]
    figures = all_confirmed(spec, some, workers, lambda n: done(n, len(some)), LONGEST, data, end)
    pairs = [(c, f) for c, f in zip(some, figures, strict=True) if f.sparse is not None]
    if some and not pairs:  # evaluated again to raise the refusal; otherwise there was no time for any
        pairs = [(some[0], confirmed(spec, some[0], data))]
    for c, f in pairs:
        _check(spec, c, f)
    return [Point(0, spec, c, objectives, f) for c, f in pairs]


def admitted(point: Point, request: Request) -> bool:
    """True if its tiles fit, and it obeys the limits on working sets."""
    kept = (x.admits(point.value(x.name)) for x in request.at_most if x.name.startswith(f"{WORKING_SET}:"))
    return point.found.fits and all(kept)


def more_points(
    spec: Spec,
    found: SearchResult,
    points: Sequence[Point],
    objectives: tuple[str, ...],
    data: Mapping[str, TensorData],
    request: Request,
    search: Callable[[Request], SearchResult],
    before: float,
) -> list[Point]:
    """Return mappings that lower bounds do not find, from searches with the fractions and space of the best
    mappings.

    `request`: that of the search. Ends `before` that time (`time.monotonic`); without a time limit, after
    three times as long as the search took, between 5 and 30 s.
    """
    own = monotonic() + min(max(LEAST, TIMES * found.seconds), LONGEST)
    end = own if before == inf else before
    every, seen = list(points), {p.candidate.tree for p in points}
    for trial in _trials(spec, data, request, every):
        left = end - monotonic()
        stopped = request.stop is not None and request.stop()
        good = bool(every) and quality(found, every, 0, every).factor <= 1 + CLOSE
        if left <= 0 or stopped or good:
            break
        others = search(replace(trial, time_limit=left)).candidates
        some = [others[i] for i in spread(len(others)) if others[i].tree not in seen][:MOST]
        left = max(end - monotonic(), 0.0)
        for c, f in zip(some, all_confirmed(spec, some, 1, lambda _: True, left, data, before), strict=True):
            if f.sparse is not None:
                seen.add(c.tree)
            point = Point(0, spec, c, objectives, f)
            if f.sparse is not None and admitted(point, request):
                every.append(point)
    return every[len(points) :]


def _trials(
    spec: Spec, data: Mapping[str, TensorData], request: Request, known: Sequence[Point]
) -> Iterator[Request]:
    """Yield requests with other prices and objectives; those of later rounds depend on the mappings `known`
    by then."""
    assert request.shares is not None, "asked for sparse data only"
    least = request.shares
    if compressed(spec.arch):
        # With the largest share that any tile needs, every mapping found fits; with that of large tiles,
        # most.
        rooms = least_tile_bits(spec.workload, spec.arch, data, request.limits.sizes)
        for which in ("most", "usual"):
            held = stored_shares(spec.workload, spec.arch, rooms, which)
            least = tuple(replace(s, held=h) for s, h in zip(least, held, strict=True))
            request = replace(request, shares=least, room=())
            yield replace(request, progress=None)
    if not known:
        return
    first = tuple(known)
    for turn in range(ROUNDS):
        if turn == 1:
            yield replace(request, shares=None, progress=None)
        for k in range(len(request.objectives)):
            # first the mapping with the least bound, then the best so far
            figures = [p.values[k] for p in known] if turn else [p.candidate.values[k] for p in first]
            best = known[int(np.argmin(figures))]
            sparse = with_data(best.report, data)
            alike = replace(request, shares=calibrated(least, sparse), progress=None)
            yield replace(alike, objectives=request.objectives[k : k + 1])
            if len(request.objectives) > 1 and turn:
                yield alike
    inner = [c.name for c in spec.arch.components if c.stores and c.size_bits != inf][:2]
    names = tuple(dict.fromkeys((*request.objectives, *(f"working_set:{n}" for n in inner))))
    yield replace(request, objectives=names, progress=None)


def _check(spec: Spec, candidate: Candidate, found: MappingFigures) -> None:
    """Raises InternalError if a figure on sparse data is below the search's lower bound."""
    assert found.sparse is not None, "only evaluated mappings are checked"
    for name, bound, figure in zip(
        ("energy", "latency"), (candidate.energy, candidate.latency), found.sparse, strict=True
    ):
        if figure < bound * (1 - CLOSE):
            what = f"its sparse {name} is {figure!r}, below the search's bound {bound!r}"
            raise bug(spec, candidate, what)


def spread(n: int) -> list[int]:
    """0 .. n - 1: the ends, then repeatedly the middle of each interval."""
    result = list(range(min(n, 1))) + ([n - 1] if n > 1 else [])
    waiting = deque([(0, n - 1)])
    while waiting:
        low, high = waiting.popleft()
        middle = (low + high) // 2
        if low < middle < high:
            result.append(middle)
            waiting += [(low, middle), (middle, high)]
    return result


def factor(bounds: Floats, figures: Floats) -> float:
    """Return the largest factor by which the evaluated mappings may be above any mapping, minimised over
    them.

    Each mapping is above one of the `bounds` [n, objectives]; `figures` [m, objectives]. Infinite if a bound
    is 0 and no figure attains it.
    """
    worst = 1.0
    for low in bounds:
        with np.errstate(divide="ignore", invalid="ignore"):
            ratio = np.where(low > 0, figures / low, np.where(figures > 0, np.inf, 1.0))
        worst = max(worst, float(ratio.max(axis=1).min(initial=np.inf)))
    return worst


def quality(
    found: SearchResult,
    points: Sequence[Point],
    besides: int,
    front: Sequence[Point],
    proven: Floats | None = None,
) -> Quality:
    """The quality of a front.

    `found`: the result of the search, whose values are the bounds; `points`: all evaluated points, `besides`:
    the number of these that are not mappings of the search; `proven`: better bounds.
    """
    bounds = np.array([c.values for c in found.candidates]).reshape(len(found.candidates), -1)
    bounds = proven if proven is not None and len(proven) else bounds
    figures = np.array([p.values for p in front]).reshape(len(front), -1)
    label = least_certain(p.found.label for p in front)
    each = tuple(factor(bounds[:, [k]].min(axis=0)[None], figures[:, [k]]) for k in range(bounds.shape[1]))
    known = len(points) - besides
    large = sum(not p.found.fits for p in points)
    return Quality(factor(bounds, figures), each, known, len(found.candidates), besides, label, large)


def calibrated(least: tuple[Shares, ...], sparse: SparseReport) -> tuple[Shares, ...]:
    """Return fractions from a sparse report, one record per Einsum; lower bounds where the mapping moves
    nothing."""
    problem = sparse.dense.problem
    memories = list(problem.hierarchy.memories)
    moved: dict[tuple[str, str, str, str], list[AccessCount]] = {}
    for a in sparse.counts.accesses:
        moved.setdefault((a.einsum, a.tensor, a.component, a.kind), []).append(a)
    result = []
    for one, shares in zip(problem.cascade.einsums, least, strict=True):
        rows = tuple(
            tuple(
                tuple(
                    (
                        kind,
                        _toll(problem.hierarchy, bits, moved.get((one.name, tensor, m, kind), []))
                        or shares.of(i, number, kind),
                    )
                    for kind in KINDS
                )
                for number, m in enumerate(memories)
            )
            for i, (tensor, bits) in enumerate((x.tensor, x.bits_per_value) for x in one.accesses)
        )
        result.append(replace(shares, moved=rows, units=_units(one, shares, sparse)))
    return tuple(result)


def _toll(hierarchy: Hierarchy, bits: int, counts: list[AccessCount]) -> Toll | None:
    """Joules and bits of one element of the dense counts; None if there is none."""
    dense = sum(a.dense for a in counts)
    if not dense:
        return None
    component = hierarchy[counts[0].component]
    way = "read" if counts[0].kind in READS else "write"
    named = any(a.name == f"metadata_{way}" for a in component.actions)
    actual, gated = sum(a.actual for a in counts) * bits, sum(a.gated for a in counts) * bits
    more = sum(a.metadata_bits for a in counts)
    joules = actual * price_of(component, way) + gated * price_of(component, f"gated_{way}")
    joules += more * price_of(component, f"metadata_{way}" if named else way)
    return joules / dense, (actual + gated + more) / dense


def _units(one: Einsum, least: Shares, sparse: SparseReport) -> tuple[tuple[str, float, float], ...]:
    known = {c.component: c for c in sparse.counts.compute if c.einsum == one.name and c.dense}
    result = []
    for name, joules, share in least.units:
        count, component = known.get(name), sparse.dense.problem.hierarchy[name]
        if count is not None:
            hierarchy = sparse.dense.problem.hierarchy
            cost = operation_cost(component, ExecutedOperators.priced(one, hierarchy))
            each = count.executed * cost.energy + count.dense * cost.finish_energy
            each += count.gated * component.action("gated_compute").energy
            joules, share = each / count.dense, count.timed / count.dense
        result.append((name, joules, share))
    return tuple(result)
