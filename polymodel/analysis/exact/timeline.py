"""The tiles of one memory phase by phase: cells of any depth, with every step of every loop.

`inter_branch_peaks` follows tiles from visit to visit over the cells above the last split; here cells extend
down to the innermost loop, so that every buffet is followed, and nothing is left out.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from math import prod
from typing import cast

import numpy as np

from polymodel.analysis.exact.buffets import ExactLayout, lay_out, shape_of
from polymodel.analysis.exact.cached_counts import tally
from polymodel.analysis.exact.cells import Course, Sites, bare, courses, loops_to_last_split
from polymodel.analysis.exact.factor_tables import LIMIT, Masks
from polymodel.analysis.exact.grids import Grids
from polymodel.analysis.exact.inter_branch_peaks import ComponentSites
from polymodel.analysis.exact.lifetimes import ComponentLifetimes, Frame, lasting_bits
from polymodel.analysis.exact.live_peaks import _curves
from polymodel.analysis.exact.sweep import Ints, OperationTrace
from polymodel.analysis.result import Problem
from polymodel.analysis.timeline import Measure, Timeline
from polymodel.errors import Refused
from polymodel.integers import dtype_of, largest, summed
from polymodel.mapping.looptree import Split
from polymodel.polyhedra import needs
from polymodel.schedule.touch import partition, touch
from polymodel.workload.einsum import Einsum

LISTED = 30_000  # operations below which listing them is faster
_Site = tuple[tuple[tuple[str, str], int], ...]  # (component, dimension), coordinate


def timeline(problem: Problem, component: str, measure: Measure = "tile", limit: int = 100_000) -> Timeline:
    """The contents of a memory in every phase, in the instance that ever holds most.

    `limit`: the maximum number of phases; beyond it the iterations of inner loops are merged (a note says
    so). Raises Refused if even the loops above the splits have more, and for pipelines.
    """
    if any(isinstance(n, Split) and n.pipeline for _, n, _ in problem.tree.walk()):
        message = "branches of a pipeline overlap: there is no timeline of single phases"
        raise Refused(message, "write Sequential", code="unsupported-pipeline")
    layout = lay_out(problem)
    if measure == "live":
        return _of_elements(layout, component, limit)
    return _of_tiles(layout, component, limit)


# Tiles, by stamps


@dataclass
class _Whole(ComponentSites):
    """A memory followed in cells of `depths` loops each, with every step of them."""

    depths: dict[str, int] = field(default_factory=dict)

    @cached_property
    def courses(self) -> dict[str, Course]:
        return courses(self.layout, {}, self.depths)

    @cached_property
    def steps(self) -> Masks:
        """No step is dropped."""
        result: dict[int, int] = {}
        for name in self.layout.problem.tree.einsums:
            view = bare(self.layout, name)
            for f in touch((view,), partition((view,))).factors:
                for k, axis in enumerate(f.temporal):
                    node = view.loops[axis][0]
                    last = needs.extent(f.text, len(f.spatial) + k)[1]
                    result[node] = max(result.get(node, 0), last + 1)
        return {node: np.ones(count, dtype=bool) for node, count in result.items()}

    def resident_bits(self) -> tuple[Ints, Sites, int]:
        """(bits by phase and buffet at the site that ever holds most, all sites, the index of that one)."""
        phases = sum(len(c.cells) for c in self.courses.values())
        count = len(self.sites.rows)
        if phases * count * len(self.nodes) > LIMIT:
            message = f"{phases:,} phases in {count:,} different instances of {self.component} are too many"
            remedy = f"allow fewer phases, about {LIMIT // (count * len(self.nodes)):,}"
            raise Refused(message, remedy, code="too-large")
        bits = np.zeros((phases + 1, count, len(self.nodes)), dtype=self.kind)
        for k, node in enumerate(self.nodes):
            spans = self._spans(node)
            np.add.at(bits[:, :, k], (spans.first, spans.site), spans.bits)
            np.add.at(bits[:, :, k], (spans.last + 1, spans.site), -spans.bits)
        bits = np.cumsum(bits, axis=0, dtype=self.kind)[:phases]
        column = {(n.id, n.tensor): k for k, n in enumerate(self.nodes)}
        for einsum, course in self.courses.items():
            own = self._inside(einsum)
            tiles = np.array([*own.tiles, (0,) * len(own.keys)], dtype=self.kind)  # the last one: idle
            for k, key in enumerate(own.keys):
                bits[course.phases, :, column[key]] += tiles[:, k][own.which]
        site = int(np.argmax(bits.sum(axis=2).max(axis=0))) if phases else 0
        return bits[:, site], self.sites, site


def _of_tiles(layout: ExactLayout, component: str, limit: int) -> Timeline:
    depths, notes = _depths(layout, limit)
    memory = _Whole(layout, component, depths=depths)
    if not memory.nodes:
        return _nothing(component, "tile")
    bits, sites, site = memory.resident_bits()
    where = zip(sites.dims, sites.rows[site], strict=True)
    instance = tuple((f"{c}.{d}", int(k)) for (c, d), k in where if k)
    loops, order, stamps = _rows(layout, memory.courses)
    buffets = tuple((n.id, n.tensor) for n in memory.nodes)
    names = layout.problem.tree.einsums
    return Timeline(component, "tile", names, order, loops, stamps, buffets, bits, instance, notes)


def _nothing(component: str, measure: Measure) -> Timeline:
    """A memory that the mapping does not use."""
    none = np.zeros(0, dtype=np.int64)
    return Timeline(component, measure, (), none, (), none.reshape(0, 0), (), none.reshape(0, 0))


def _depths(layout: ExactLayout, limit: int) -> tuple[dict[str, int], tuple[str, ...]]:
    """The number of loops of each Einsum that make phases: all, or the outer ones as far as `limit`
    allows."""
    names = layout.problem.tree.einsums
    least = {e: loops_to_last_split(layout, e) for e in names}
    most = {e: len(bare(layout, e).loops) for e in names}
    for depth in range(max(most.values()), -1, -1):
        chosen = {e: max(least[e], min(most[e], depth)) for e in names}
        count = sum(stamps_of(layout, e, chosen[e]) for e in names)
        if count <= limit:
            joined = [e for e in names if stamps_of(layout, e, most[e]) > stamps_of(layout, e, chosen[e])]
            what = f"inner loops of {', '.join(joined)} are merged: each row shows their largest sum"
            return chosen, ((what,) if joined else ())
    raise Refused(
        f"the loops above the splits alone have {count:,} iterations; at most {limit:,} phases are shown",
        "use larger tiles in these loops, or allow more phases",
        code="too-large",
    )


def _rows(layout: ExactLayout, courses: dict[str, Course]) -> tuple[tuple[int, ...], Ints, Ints]:
    """Temporal loops (node ids), and per phase the Einsum's number and the loops' counters."""
    tree = layout.problem.tree
    ids = {e: [i for i, _ in tree.loops(e)] for e in courses}
    used = sorted({ids[e][a] for e, c in courses.items() for a in c.temporal})
    count = sum(len(c.cells) for c in courses.values())
    order, stamps = np.zeros(count, dtype=np.int64), np.full((count, len(used)), -1, dtype=np.int64)
    for number, (einsum, course) in enumerate(courses.items()):
        order[course.phases] = number
        for k, a in enumerate(course.temporal):
            stamps[course.phases, used.index(ids[einsum][a])] = course.cells[:, k]
    return tuple(used), order, stamps


def stamps_of(layout: ExactLayout, einsum: str, depth: int) -> int:
    """The number of temporal stamps of an Einsum above its loop number `depth`."""
    view = bare(layout, einsum).above(depth)
    factors = touch((view,), partition((view,))).factors
    return prod(int(tally(shape_of(f), 0, tuple(range(len(f.spatial))))) for f in factors)


# Elements, by listing or by stamps


def _of_elements(layout: ExactLayout, component: str, limit: int) -> Timeline:
    """As in `lifetimes`: operations are listed if they are few, or if no product describes them."""
    depths, notes = _depths(layout, limit)
    if sum(_operations(e) for e in layout.problem.cascade.einsums) <= LISTED and not notes:
        return _listed(layout, component)
    try:
        return _by_stamps(layout, component, depths, notes)
    except Refused as refusal:
        if notes:
            raise
        try:
            return _listed(layout, component)
        except Refused:
            raise refusal from None


def _operations(einsum: Einsum) -> int:
    return prod(high - low + 1 for low, high in einsum.bounds)


def _by_stamps(
    layout: ExactLayout, component: str, depths: dict[str, int], notes: tuple[str, ...]
) -> Timeline:
    """Every stamp of `depths` loops, with the largest sum further in; for a memory of one instance."""
    grids = Grids(layout)
    part = ComponentLifetimes(layout, grids, component)
    nodes = [*(r.node for r in part.passing), *(i.node for i in part.fixed)]
    if not nodes:
        return _nothing(component, "live")
    nodes = sorted(nodes, key=lambda n: (n.id, n.tensor))
    column = {(n.id, n.tensor): k for k, n in enumerate(nodes)}
    runs = courses(layout, {}, depths)
    loops, order, stamps = _rows(layout, runs)
    bits = np.zeros((len(order), len(nodes)), dtype=object)
    for item in part.fixed:
        bits[:, column[item.node.id, item.node.tensor]] = lasting_bits(item)
    for einsum, course in runs.items():
        frame = Frame(grids, einsum, part.passing, every=True)
        if frame.nodes:
            where = np.array([column[n.id, n.tensor] for n in frame.nodes])
            bits[course.phases[:, None], where] = frame.over_time(depths[einsum])
    bits = bits.astype(dtype_of(largest(bits)))
    buffets = tuple(column)
    return Timeline(
        component, "live", layout.problem.tree.einsums, order, loops, stamps, buffets, bits, (), notes
    )


def _listed(layout: ExactLayout, component: str) -> Timeline:
    sweep = OperationTrace(layout)
    curves = [
        curve
        for node in sorted(layout.nodes.values(), key=lambda n: (n.id, n.tensor))
        if node.component == component
        for curve in _curves(layout, sweep, node)[1]
    ]
    if not curves:
        return _nothing(component, "live")
    sites: dict[object, Ints] = {}
    for curve in curves:
        sites[curve.site] = summed([sites[curve.site], curve.bits] if curve.site in sites else [curve.bits])
    chosen = max(sites, key=lambda s: int(sites[s].max()))
    loops, begins, order, stamps = _listed_rows(layout, sweep)
    # within a phase, its first operation at which the sum is largest
    total = sites[chosen]
    ends = np.append(begins[1:], len(total))
    where = np.array([b + int(np.argmax(total[b:e])) for b, e in zip(begins, ends, strict=True)])
    mine = [c for c in curves if c.site == chosen]
    bits = np.stack([c.bits[where] for c in mine], axis=1)
    buffets = tuple((c.node.id, c.node.tensor) for c in mine)
    instance = tuple((f"{c}.{d}", k) for (c, d), k in cast(_Site, chosen))
    names = layout.problem.tree.einsums
    return Timeline(component, "live", names, order, loops, stamps, buffets, bits, instance)


def _listed_rows(layout: ExactLayout, sweep: OperationTrace) -> tuple[tuple[int, ...], Ints, Ints, Ints]:
    """Loops, the first operation time of each phase, its Einsum and its counters."""
    tree = layout.problem.tree
    temporal = {e: [(k, i) for k, (i, x) in enumerate(tree.loops(e)) if not x.spatial] for e in tree.einsums}
    used = sorted({i for mine in temporal.values() for _, i in mine})
    order = np.zeros(sweep.phase_count, dtype=np.int64)
    stamps = np.full((sweep.phase_count, len(used)), -1, dtype=np.int64)
    for number, einsum in enumerate(tree.einsums):
        at = sweep.phases[einsum]
        order[at] = number
        for k, i in temporal[einsum]:
            stamps[at, used.index(i)] = sweep.operations[einsum].counters[k]
    rows = np.column_stack([order, stamps])
    begins = np.flatnonzero(np.append(True, (rows[1:] != rows[:-1]).any(axis=1)))
    return tuple(used), begins, order[begins], stamps[begins]
