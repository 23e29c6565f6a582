"""The ski slopes of a chain of Einsums: how much buffer fusion needs, and how much traffic it saves.

Four curves of least backing-store traffic over buffer capacity:
- `unfused`: every intermediate is written to the backing store and read back;
- `untiled_fused`: intermediates are held whole in the buffer; footprint = the larger of the neighbours';
- `ffmr_drop`, `ffmr_retain`: loops over shared ranks are fused (the fusion-friendly mapping rule); of an
  intermediate one fused tile is held; capacity = sum of the additive terms + the largest maximal one.
  Tensors that fused loops index are dropped after every fused iteration, or (`ffmr_retain`) may be kept.
`best` allows any of these at every link between neighbours.

In chains of more than two Einsums fused groups are consecutive Einsums, and links between groups are unfused.
Fronts of groups are pruned, then combined along the chain by dynamic programming (docs/develop/rules.md,
Fusion). Source: Huang et al., "Mind the Gap: Attainable Data Movement and Operational Intensity Bounds for
Tensor Algorithms" (Orojenesis, ISCA 2024), and the fusion-friendly mapping rule of Orojenesis' second
version.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Literal, get_args

from polymodel.analysis.result import Problem
from polymodel.api.evaluation import evaluate_problem
from polymodel.errors import Diagnostic, Refused, SpecError
from polymodel.mapping.looptree import ComputeNode, Loop, LoopTree, Node, Split, StorageNode
from polymodel.mapping.resolve import mapping_to_yaml
from polymodel.slopes.curves import (
    Curve,
    CurvePoints,
    Curves,
    check_point,
    checked_capacity,
    figures_text,
    fitting,
    fitting_or_fault,
    in_turn,
    lowest,
)
from polymodel.slopes.fused_einsum import FusedChoice
from polymodel.slopes.fused_segments import Chain, Segment, Workbench, chain_of
from polymodel.slopes.levels import check_counts, plain_hierarchy, two_levels, weights_of
from polymodel.slopes.options import SlopeOptions
from polymodel.spec.faults import not_a_spec, suggestion
from polymodel.view.answer import Answer, Block, Line, Section, declared
from polymodel.view.table import Cell, Table, table_of
from polymodel.workload.einsum import Cascade

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from polymodel.loading import Spec
    from polymodel.report.report import Report

CurveName = Literal["unfused", "untiled_fused", "ffmr_drop", "ffmr_retain", "best"]
Link = Literal["unfused", "untiled", "tiled"]


@dataclass(frozen=True)
class ChainPoint:
    """One mapping of the chain: its groups in order, and how each intermediate is passed on (`links`).

    `capacity` and `accesses` are in the slope's unit.
    """

    capacity: int
    accesses: int
    segments: tuple[Segment, ...]
    links: tuple[tuple[str, Link], ...]
    unit: str = "words"

    @property
    def brief(self) -> str:
        """Return the groups, each with its fused loops."""
        return " | ".join(_group(s) for s in self.segments)

    def __repr__(self) -> str:
        lines = [figures_text(self), *(f"  {t}: {how}" for t, how in self.links)]
        for s in self.segments:
            lines += [f"  {_group(s)}"] if s.loops else []
            for c in s.choices:
                tiles = " ".join(f"{v}={t}" for v, t in c.tiles)
                lines.append(f"  {c.einsum}: loops {' '.join(c.order) or '(none)'}, tiles {tiles}")
        return "\n".join(lines)


def _group(segment: Segment) -> str:
    loops = " ".join(f"{loop.variables[0]}={loop.tile}" for loop in segment.loops)
    return "+".join(segment.einsums) + (f", fused loops {loops}" if loops else "")


@dataclass(frozen=True, eq=False, repr=False)
class ChainSlope(Answer):
    """Curves by name, each with capacity ascending and accesses descending; a curve without points is empty.

    `compared`: how many mappings of single Einsums were compared.
    """

    problem: Problem
    chain: Chain
    curves: Mapping[str, CurvePoints[ChainPoint]]
    unit: str
    compared: int
    seconds: float
    spec: Spec | None = None

    def keeping(self) -> AbstractContextManager[None]:
        """Return a context that protects the files from which the spec was read against overwriting."""
        from polymodel.loading.spec import protected_files

        return protected_files(self.spec)

    @declared(name="curves")
    def steps(self) -> Table:
        """Return one row per point of each curve: capacity, accesses, groups, fused loops, mappings below
        them."""
        rows = [self._row(name, p) for name, points in self.curves.items() for p in points]
        units = dict.fromkeys((f"capacity_{self.unit}", f"accesses_{self.unit}"), self.unit)
        return table_of("curves", rows, units, [*self._row("", ChainPoint(0, 0, (), ()))])

    @declared
    def summary(self) -> Table:
        """Return one row per curve: number of points, the smallest capacity, the least traffic and the
        capacity that it needs (the maximal effectual buffer), the gain over `unfused` at that capacity, and
        the smallest capacity from which on the curve has less traffic than `unfused`."""
        rows: list[dict[str, Cell]] = []
        for name, points in self.curves.items():
            last = points[-1] if points else None
            rows.append(
                {
                    "curve": name,
                    "points": len(points),
                    f"smallest_capacity_{self.unit}": points[0].capacity if points else None,
                    f"max_effectual_buffer_{self.unit}": last.capacity if last else None,
                    f"least_accesses_{self.unit}": last.accesses if last else None,
                    "gain": self.least_unfused / last.accesses if last else None,
                    f"beats_unfused_from_{self.unit}": self.beats_unfused_from(name),
                }
            )
        return table_of("summary", rows, {n: self.unit for n in rows[0] if n.endswith(f"_{self.unit}")})

    def _row(self, name: str, p: ChainPoint) -> dict[str, Cell]:
        choices = [c for s in p.segments for c in s.choices]
        loops = (" ".join(f"{loop.variables[0]}={loop.tile}" for loop in s.loops) for s in p.segments)
        kept = (f"{t} ({role})" for c in choices for t, role in c.roles if role in ("add", "keep"))
        return {
            "curve": name,
            f"capacity_{self.unit}": p.capacity,
            f"accesses_{self.unit}": p.accesses,
            "groups": " | ".join("+".join(s.einsums) for s in p.segments),
            "links": ", ".join(f"{t}: {how}" for t, how in p.links),
            "fused_tiles": " | ".join(loops),
            "tiles": "; ".join(f"{c.einsum}: " + " ".join(f"{v}={t}" for v, t in c.tiles) for c in choices),
            "orders": "; ".join(f"{c.einsum}: " + " ".join(c.order) for c in choices),
            "additive": ", ".join(kept),
        }

    def at(self, curve: str, capacity: float) -> ChainPoint:
        """Return the point of a curve with the least traffic that fits a capacity. Raises SpecError if
        nothing fits."""
        points = self._points(curve)
        return points[fitting_or_fault(curve, points.figures, capacity, self.unit)]

    def _accesses(self, curve: str, capacity: float) -> int | None:
        """Return the least traffic at a capacity; None if nothing fits."""
        figures = self._points(curve).figures
        at = fitting(figures, capacity)
        return None if at is None else figures[at][1]

    def beats_unfused_from(self, curve: str) -> int | None:
        """Return the smallest capacity from which on a curve has less traffic than `unfused` at all larger
        ones.

        None if it does not have less traffic at the largest capacity.
        """
        steps = sorted({p.capacity for c in (curve, "unfused") for p in self._points(c)})
        result = None
        for capacity in reversed(steps):
            plain, fused = self._accesses("unfused", capacity), self._accesses(curve, capacity)
            if fused is None or (plain is not None and fused >= plain):
                break
            result = capacity
        return result

    def gain(self, capacity: float) -> float | None:
        """Return unfused traffic divided by the least traffic of all curves at a capacity; None if `unfused`
        does not fit."""
        capacity = checked_capacity(f"{'ChainSlope'}.gain", capacity, self.unit)
        plain = self._accesses("unfused", capacity)
        if plain is None:
            return None
        result = (self._accesses(name, capacity) for name in self.curves)
        return plain / min(a for a in result if a is not None)

    @property
    def least_unfused(self) -> int:
        """Return the traffic if every element of every Einsum's tensors moves once, in the slope's unit."""
        accesses = (a for one in self.chain.einsums for a in one.accesses)
        return sum(self._bench.size(a.tensor) * (1 + a.accumulates) for a in accesses)

    @property
    def least_fused(self) -> int:
        """Return the traffic if, in addition, no intermediate moves, in the slope's unit."""
        return self.least_unfused - 2 * sum(map(self._bench.size, self.chain.links))

    @cached_property
    def _bench(self) -> Workbench:
        return Workbench(self.chain, "divisors", _weights(self.chain, self.unit))

    def _points(self, curve: str) -> CurvePoints[ChainPoint]:
        if curve not in self.curves:
            message = f"there is no curve {curve!r}"
            raise SpecError([Diagnostic(message, suggestion(curve, self.curves), code="unknown-name")])
        return self.curves[curve]

    def looptree(self, point: ChainPoint) -> LoopTree:
        """Return the mapping of one point, on the two outermost memories."""
        return self._tree("looptree", point)

    def _tree(self, call: str, point: ChainPoint) -> LoopTree:
        check_point(point, ChainPoint, call, 'pass a point of a curve: slope.at("unfused", capacity)')
        return chain_tree(self.chain, point.segments, two_levels(self.problem.hierarchy))

    def mapping_yaml(self, point: ChainPoint) -> str:
        """Return the mapping of one point as YAML that can be loaded."""
        return mapping_to_yaml(self._tree("mapping_yaml", point))

    def report(self, point: ChainPoint) -> Report:
        """Return the report of `evaluate` for one point; accesses are equal, and the working set is at most
        the capacity."""
        tree = self._tree("report", point)
        return evaluate_problem(Problem(self.problem.cascade, self.problem.hierarchy, tree))

    def plot(self, ax: Axes | None = None) -> Axes:
        """Plot the curves on logarithmic axes.

        With both algorithmic minima, the maximal effectual buffer of each curve, and the gain of fusion.
        """
        from polymodel.report.plots_slope import chain_axes

        curves = {n: [(p.capacity, p.accesses) for p in ps] for n, ps in self.curves.items() if ps}
        return chain_axes(curves, self.unit, self.least_unfused, self.least_fused, ax)

    def __repr__(self) -> str:
        points = ", ".join(f"{name} {len(result)}" for name, result in self.curves.items())
        names = " -> ".join(one.name for one in self.chain.einsums)
        return f"ChainSlope({names}: points: {points}; {self.compared} mappings of Einsums)"

    def __str__(self) -> str:
        return f"{self!r}\n{self.curves!r}"

    def content(self, live: bool = True) -> list[Block]:
        """Return one row per curve."""
        return [Line(self.title), Section("", self.table("summary"))]


def chain_slope(
    spec: Spec,
    *,
    einsums: str | Sequence[str] | None = None,
    curves: CurveName | Sequence[CurveName] = ("unfused", "untiled_fused", "ffmr_drop", "ffmr_retain"),
    whole: bool = False,
    tiles: Literal["divisors", "all"] | Mapping[str, Sequence[int]] = "divisors",
    unit: Literal["words", "bits"] = "words",
) -> ChainSlope:
    """The ski slopes of a chain of Einsums, fused and not; an architecture is not needed.

    `einsums`: names of consecutive ones, by default all. `curves`: those to compute besides `unfused`.
    `whole`: fused curves fuse every link, not some. `tiles`: divisors (fused tiles divide the extent, tiles
    below divide the fused tile), all sizes, or the sizes to try per rank variable (of fused loops: that of
    the group's first Einsum). Counts are those of one instance (`n_instances`).

    Raises SpecError with every option that is wrong and for fewer than two Einsums, Refused for what is not a
    chain (branches, residuals, copies, different numbers of instances) and for counts beyond 2^62,
    NotSeparable for windows, halos between Einsums, and spaces that are not boxes.
    """
    start = time.perf_counter()
    from polymodel.loading import Spec as Loaded

    if not isinstance(spec, Loaded):
        raise not_a_spec("chain_slope", spec)
    every, options = spec.workload, SlopeOptions()
    if einsums is not None:
        einsums = options.names(("einsums",), einsums, [e.name for e in every], "Einsum")
    asked = options.names(("curves",), curves, get_args(CurveName), "curve")
    whole = options.truth("whole", whole)
    some = [e for e in every if einsums is None or e.name in einsums]
    options.tiles(tiles, some, {v for e in every for v in e.rank_variables})
    options.unit(unit)
    options.raise_if_any()
    names = tuple(dict.fromkeys(("unfused", *asked)))  # every curve is compared with the unfused one
    chain = chain_of(every, einsums)
    weights = _weights(chain, unit)
    check_counts(chain.einsums, weights)
    bench = Workbench(chain, tiles, weights)
    result: dict[str, CurvePoints[ChainPoint]] = {
        name: CurvePoints(_decoded(chain, _curve(bench, name, whole), unit)) for name in names
    }
    cascade = Cascade(chain.einsums, every.rank_sizes, every.name)
    hierarchy = spec.arch if spec.raw_arch is not None else plain_hierarchy()
    problem = Problem(cascade, hierarchy, LoopTree(()))
    shown, seconds = Curves(result, unit), time.perf_counter() - start
    return ChainSlope(problem, chain, shown, unit, bench.compared, seconds, spec)


def _weights(chain: Chain, unit: str) -> dict[str, int]:
    result: dict[str, int] = {}
    for one in chain.einsums:
        for tensor, width in weights_of(one, unit).items():
            if result.setdefault(tensor, width) != width:
                message = f"{tensor} has elements of different width in two Einsums"
                raise Refused(message, 'use unit="words"', code="unsupported-einsum")
    return result


State = tuple[int, bool, bool]  # number of Einsums so far, last tensor held whole, anything fused


def _curve(bench: Workbench, name: str, whole: bool) -> Curve:
    """Return the front over all ways to divide the chain into groups, link by link."""
    chain = bench.chain
    untiled, tiled = name in ("untiled_fused", "best"), name in ("ffmr_drop", "ffmr_retain", "best")
    every = whole and name != "unfused"
    done: dict[State, Curve | None] = {(0, False, False): None}
    for first in range(len(chain)):
        before = {s: f for s, f in done.items() if s[0] == first}
        for (_, held, fused), front in before.items():
            for last in range(first, len(chain) if tiled else first + 1):
                end = last == len(chain) - 1
                for hands in (False,) if end or not untiled else (False, True):
                    if every and not (end or hands):
                        continue
                    resident = {chain.links[first - 1]} if held else set()
                    resident |= {chain.links[last]} if hands else set()
                    segment = bench.front(first, last, name != "ffmr_drop", frozenset(resident))
                    made = segment if front is None else in_turn(front, segment)
                    state = (last + 1, hands, fused or hands or last > first)
                    already = done.get(state)
                    done[state] = made if already is None else lowest([already, made])
    ends = {s: f for s, f in done.items() if s[0] == len(chain) and f is not None}
    # fused curves fuse at least one link
    return lowest(f for (_, _, fused), f in ends.items() if f and (fused or name in ("unfused", "best")))


def _decoded(chain: Chain, front: Curve, unit: str) -> Iterator[ChainPoint]:
    rows = zip(front.capacity.tolist(), front.accesses.tolist(), strict=True)
    for point, (capacity, accesses) in enumerate(rows):
        segments = tuple(front.choices(point))
        yield ChainPoint(capacity, accesses, segments, tuple(_links(chain, segments)), unit)


def _links(chain: Chain, segments: tuple[Segment, ...]) -> list[tuple[str, Link]]:
    roles = {t: role for s in segments for c in s.choices for t, role in c.roles}
    names: dict[str, Link] = {"free": "tiled", "resident": "untiled"}
    return [(t, names.get(roles[t], "unfused")) for t in chain.links]


def chain_tree(chain: Chain, segments: tuple[Segment, ...], levels: tuple[str, str, str]) -> LoopTree:
    """Return the mapping; `levels`: the backing store, the buffer and the compute unit."""
    outer, inner, compute = levels
    resident = dict.fromkeys(t for s in segments for t in s.resident)
    within = {t for s in segments for c in s.choices for t, role in c.roles if role == "free"}
    every = dict.fromkeys(t for one in chain.einsums for t in one.tensors)
    nodes: list[Node] = [StorageNode(outer, tuple(t for t in every if t not in within | set(resident)))]
    if resident:
        nodes.append(StorageNode(inner, tuple(resident)))
    branches = [tuple(_segment(chain, s, inner, compute)) for s in segments]
    return LoopTree((*nodes, *(branches[0] if len(branches) == 1 else (Split(tuple(branches)),))))


def _segment(chain: Chain, segment: Segment, buffer: str, compute: str) -> Iterator[Node]:
    """Return the nodes of one group: fused loops, between them the tensors that are kept or passed on, and a
    branch per Einsum."""
    held: list[list[str]] = [[] for _ in range(len(segment.loops) + 1)]
    branches = []
    for k, choice in enumerate(segment.choices):
        above, branch = _branch(chain, segment, k, choice, buffer, compute)
        for tensor, level in above:
            held[level].append(tensor)
        branches.append(branch)
    handed = dict.fromkeys(t for c in segment.choices for t, role in c.roles if role == "free")
    held[-1] += handed
    for level, tensors in enumerate(held):
        if level:
            loop = segment.loops[level - 1]
            names = tuple(zip(segment.einsums, loop.variables, strict=True))
            others = tuple((e, v) for e, v in names if v != loop.variables[0])
            yield Loop(loop.variables[0], loop.tile, per_einsum=others)
        if tensors:
            yield StorageNode(buffer, tuple(tensors))
    if len(branches) == 1:
        yield from branches[0]
    else:
        yield Split(tuple(branches))


def _branch(
    chain: Chain, segment: Segment, k: int, choice: FusedChoice, buffer: str, compute: str
) -> tuple[list[tuple[str, int]], tuple[Node, ...]]:
    """Return (tensors above the branch, each below this many fused loops), and the nodes of the branch."""
    one = next(e for e in chain.einsums if e.name == choice.einsum)
    above: list[tuple[str, int]] = []
    here: list[list[str]] = [[] for _ in range(len(choice.order) + 1)]
    for tensor, role in choice.roles:
        index = one.access_of(tensor).variables
        below = max((i + 1 for i, v in enumerate(choice.order) if v in index), default=0)
        fused = max((i + 1 for i, loop in enumerate(segment.loops) if loop.variables[k] in index), default=0)
        if role in ("free", "resident"):
            continue
        if role == "keep" or (role == "add" and not below):
            above.append((tensor, fused))
        else:
            here[below].append(tensor)
    tiles = dict(choice.tiles)
    nodes: list[Node] = []
    for level, tensors in enumerate(here):
        if level:
            nodes.append(Loop(choice.order[level - 1], tiles[choice.order[level - 1]]))
        if tensors:
            nodes.append(StorageNode(buffer, tuple(tensors)))
    return above, (*nodes, ComputeNode(choice.einsum, compute))
