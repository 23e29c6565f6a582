"""The occupancy of each hardware instance by each buffet in each phase."""

from __future__ import annotations

from bisect import bisect_left
from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import accumulate
from math import ceil, inf

from polymodel.analysis.enumerate.buffets import BuffetWalk
from polymodel.analysis.enumerate.traffic import Instance
from polymodel.analysis.enumerate.walk import Element, Place, Time, physical
from polymodel.analysis.result import Problem, Resident, WorkingSet
from polymodel.mapping.looptree import PipelineSplit, around, pipelines
from polymodel.workload.einsum import TensorAccess

BuffetKey = tuple[int, str]  # node, tensor
Span = tuple[Place, int, int, int]  # instance, first phase, last phase (inclusive), elements


@dataclass(frozen=True)
class PhaseOrder:
    """All phases in order, and the Einsum that executes in each."""

    phases: tuple[Time, ...]
    einsums: tuple[str, ...]

    def opening(self, stamp: Time) -> int:
        """Index of the first phase at or after the beginning of a stamp."""
        return bisect_left(self.phases, stamp)

    def closing(self, stamp: Time) -> int:
        """Index of the last phase within a stamp."""
        return bisect_left(self.phases, (*stamp, inf)) - 1


def runs(buffet: BuffetWalk) -> Iterator[tuple[Place, list[Time]]]:
    """For each instance, its visits in groups that are connected by a carried element."""
    groups: dict[Place, list[list[Time]]] = defaultdict(list)
    for t in buffet.visits:
        for p in buffet.tiles[t]:
            if buffet.carried[t][p]:
                groups[p][-1].append(t)
            else:
                groups[p].append([t])
    for p, found in groups.items():
        for group in found:
            yield p, group


def tile_spans(buffet: BuffetWalk, timeline: PhaseOrder) -> Iterator[Span]:
    """`tile`: from first to last use within a run, always the tile of the current or previous visit."""
    for p, visits in runs(buffet):
        begin, end = buffet.asked[visits[0], p][0], buffet.asked[visits[-1], p][1]
        starts = [begin, *(timeline.opening(t) for t in visits[1:]), end + 1]
        for t, start, stop in zip(visits, starts, starts[1:], strict=False):
            yield p, start, stop - 1, len(buffet.tiles[t][p])


def reserved_spans(buffet: BuffetWalk, timeline: PhaseOrder) -> Iterator[Span]:
    """`reserved`: each tile throughout its stamp."""
    for t, places in buffet.tiles.items():
        for p, tile in places.items():
            yield p, timeline.opening(t), timeline.closing(t), len(tile)


def live_spans(buffet: BuffetWalk, timeline: PhaseOrder) -> Iterator[Span]:
    """`live`: each element from its first to its last use within its run."""
    lives: dict[tuple[Place, Element, Time], list[int]] = {}
    for t, places in buffet.tiles.items():
        for p, tile in places.items():
            for x, use in tile.items():
                life = lives.setdefault((p, x, buffet.run[t][p][x]), [use.first, use.last])
                life[0], life[1] = min(life[0], use.first), max(life[1], use.last)
    for (p, _, _), (first, last) in lives.items():
        yield p, first, last, 1


def lasting_spans(buffet: BuffetWalk, timeline: PhaseOrder) -> Iterator[Span]:
    """A persistent tensor: everything that its backing instance ever holds, in every phase."""
    held: dict[Place, set[Element]] = defaultdict(set)
    for places in buffet.tiles.values():
        for p, tile in places.items():
            held[p] |= set(tile)
    for p, elements in held.items():
        yield p, 0, len(timeline.phases) - 1, len(elements)


MEASURES = {"tile": tile_spans, "reserved": reserved_spans, "live": live_spans}


def counts(spans: Iterable[Span], length: int) -> dict[Place, list[int]]:
    """Elements per phase, for each instance."""
    steps: dict[Place, list[int]] = {}
    for p, first, last, size in spans:
        step = steps.setdefault(p, [0] * (length + 1))
        step[first] += size
        step[last + 1] -= size
    return {p: list(accumulate(step))[:length] for p, step in steps.items()}


def live_peak(buffet: BuffetWalk, timeline: PhaseOrder) -> int:
    """The most elements of one instance that are between first and last use at the same time."""
    return max(
        (max(c) for c in counts(live_spans(buffet, timeline), len(timeline.phases)).values()), default=0
    )


def occupied_bits(
    problem: Problem,
    buffet: BuffetWalk,
    first: TensorAccess,
    timeline: PhaseOrder,
    measure: str,
    copies: int = 1,
) -> dict[Instance, list[int]]:
    """Bits of one buffet per hardware instance and phase; `copies` of each tile unless it persists."""
    users = [e for e in problem.cascade if buffet.tensor in e.tensors]
    lasting = buffet.parent is None and any(e.access_of(buffet.tensor).persistent for e in users)
    factor = max(e.n_instances for e in users) if lasting else 1
    if buffet.parent is not None and problem.hierarchy.doubles(buffet.component):
        factor = 2
    factor *= 1 if lasting else copies
    scale = first.backing_scale if buffet.parent is None else 1
    spans = lasting_spans if lasting else MEASURES[measure]
    per_place = counts(spans(buffet, timeline), len(timeline.phases))
    weight = first.bits_per_value * scale
    bits = {n: ceil(n * weight) * factor for n in {n for c in per_place.values() for n in c}}
    return {physical(buffet.loops, p): [bits[n] for n in c] for p, c in per_place.items()}


def _component_peaks(
    component: str,
    parts: dict[tuple[int, str], dict[Instance, list[int]]],
    timeline: PhaseOrder,
    measure: str,
) -> Iterator[WorkingSet]:
    """The peak of one component within each Einsum's phases; of several, the first one."""
    peaks: dict[str, tuple[int, int, Instance]] = {}
    for instance in sorted({i for part in parts.values() for i in part}):
        here = [part[instance] for part in parts.values() if instance in part]
        for phase, total in enumerate(map(sum, zip(*here, strict=True))):
            einsum = timeline.einsums[phase]
            best = peaks.get(einsum)
            if total and (best is None or (-total, phase) < (-best[0], best[1])):
                peaks[einsum] = (total, phase, instance)
    for einsum, (total, phase, instance) in peaks.items():
        residents = tuple(
            Resident(node, tensor, part[instance][phase])
            for (node, tensor), part in parts.items()
            if instance in part and part[instance][phase]
        )
        yield WorkingSet(component, einsum, measure, total, residents)


class Stages:
    """Working sets of one component under the Einsums of pipelines: other stages count at their peaks."""

    def __init__(
        self,
        problem: Problem,
        buffets: list[BuffetWalk],
        firsts: dict[str, TensorAccess],
        timeline: PhaseOrder,
        component: str,
        measure: str,
    ) -> None:
        self.problem, self.firsts, self.timeline = problem, firsts, timeline
        self.component, self.measure = component, measure
        self.buffets = [b for b in buffets if b.component == component]

    def rows(self) -> Iterator[WorkingSet]:
        for einsum in self.problem.tree.einsums:
            if around(self.problem.tree, einsum):
                row = self.row(einsum, None)
                if row is not None:
                    yield row

    def copies(self, b: BuffetWalk, einsum: str) -> int | None:
        """The number of tiles of a buffet above stages that use it, 0 for others; None if it is another
        stage's."""
        copies = 0
        on_path = any(s.id == b.node for s in self.problem.tree.path(einsum))
        for p in around(self.problem.tree, einsum):
            if b.node > p.node and b.users[0] in p.einsums and p.stage_of(b.users[0]) != p.stage_of(einsum):
                return None
            if on_path and b.node < p.node:
                copies = max(copies, p.copies(b.node, b.users))
        return copies

    def peaks(self, einsum: str, buffets: dict[BuffetKey, int]) -> Iterator[WorkingSet]:
        """The peak of what stages share, and that of everything else, while the Einsum runs."""
        for shared in (True, False):
            measure = "reserved" if shared else self.measure
            parts = {
                b.key: occupied_bits(
                    self.problem, b, self.firsts[b.tensor], self.timeline, measure, max(buffets[b.key], 1)
                )
                for b in self.buffets
                if b.key in buffets and bool(buffets[b.key]) is shared
            }
            found = _component_peaks(self.component, parts, self.timeline, self.measure)
            yield from (w for w in found if w.einsum == einsum)

    def row(self, einsum: str, inside: PipelineSplit | None) -> WorkingSet | None:
        """The peak of all buffets, or of those in the Einsum's stage of a pipeline alone."""
        scope = inside.node if inside else -1
        mine = [b for b in self.buffets if b.node > scope and (not inside or b.users[0] in inside.einsums)]
        copies = {b.key: n for b in mine if (n := self.copies(b, einsum)) is not None}
        held = list(self.peaks(einsum, copies))
        for p in around(self.problem.tree, einsum):
            if p.node > scope:
                others = (s for b, s in enumerate(p.stages) if b != p.stage_of(einsum))
                peaks = ([self.row(e, p) for e in stage] for stage in others)
                held += [max(r, key=lambda w: w.bits) for each in peaks if (r := [w for w in each if w])]
        if not held:
            return None
        residents = tuple(sorted((r for w in held for r in w.residents), key=lambda r: (r.node, r.tensor)))
        return WorkingSet(self.component, einsum, self.measure, sum(w.bits for w in held), residents)


def working_sets(
    problem: Problem,
    buffets: list[BuffetWalk],
    firsts: dict[str, TensorAccess],
    timeline: PhaseOrder,
    measures: tuple[str, ...],
) -> tuple[WorkingSet, ...]:
    """Peaks of every component in every Einsum's phases. `buffets` are in order of node and tensor."""
    result: list[WorkingSet] = []
    for measure in measures:
        for component in problem.hierarchy.components:
            parts = {
                b.key: occupied_bits(problem, b, firsts[b.tensor], timeline, measure)
                for b in buffets
                if b.component == component.name
            }
            rows = _component_peaks(component.name, parts, timeline, measure)
            result += (r for r in rows if not around(problem.tree, r.einsum))
            if measure != "live" and pipelines(problem.tree):
                result += Stages(problem, buffets, firsts, timeline, component.name, measure).rows()
    einsums, components = problem.tree.einsums, [c.name for c in problem.hierarchy.components]
    return tuple(
        sorted(
            result,
            key=lambda w: (einsums.index(w.einsum), components.index(w.component), measures.index(w.measure)),
        )
    )
