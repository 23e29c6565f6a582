"""The ski slope of a whole graph: the least backing-store traffic for every buffer capacity, fused or not.

Each Einsum has its own mapping (`einsum_mappings`), neighbours must be compatible (`compatibility`), and
whole graphs are joined in the workload's order (`graph_join`). Two levels, counts in words or bits.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import combinations
from typing import TYPE_CHECKING, Literal, get_args

from polymodel.analysis.result import Problem
from polymodel.api.evaluation import evaluate_problem
from polymodel.errors import Diagnostic, SpecError
from polymodel.mapping.looptree import ComputeNode, Loop, LoopTree, Node, StorageNode
from polymodel.reuse import Reuse
from polymodel.slopes.compatibility import FusedLoop, OperationMapping, Verdict, compatible
from polymodel.slopes.curves import (
    Curve,
    CurvePoints,
    Curves,
    check_point,
    counted,
    figures_text,
    fitting,
    fitting_or_fault,
    no_einsum,
    shown,
    steps_text,
)
from polymodel.slopes.fused_graph import ROLES, FusedGraph, FusionRules, Kind, Operands, fused_graph
from polymodel.slopes.graph_join import join
from polymodel.slopes.group_curves import EinsumChoice
from polymodel.slopes.levels import plain_hierarchy, two_levels
from polymodel.slopes.options import TRUTH, SlopeOptions
from polymodel.slopes.tile_sizes import TileSizes
from polymodel.spec.faults import not_a_spec, suggestion
from polymodel.view.answer import Answer, declared
from polymodel.view.table import Cell, Table, table_of
from polymodel.workload.einsum import Cascade, Einsum

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from polymodel.architecture.hierarchy import Hierarchy
    from polymodel.loading import Spec
    from polymodel.report.report import Report


# The request of a `graph_slope` call: its curves, and its options as rules.

CURVES = ("unfused", "untiled_fused", "tiled_fused")


def kinds_of(rules: FusionRules) -> dict[str, tuple[Kind, ...]]:
    """Return the kinds of shared tensors that each curve allows."""
    freed: tuple[Kind, ...] = () if rules.head_is_tiled_fusion else ("headed",)
    return {
        "unfused": ("backing",),
        "untiled_fused": ("backing", "whole", *freed),
        "tiled_fused": ("backing", "whole", *freed, "tiled"),
    }


def selected_curves(options: SlopeOptions, curves: object) -> tuple[str, ...]:
    before = len(options.faults)
    result = options.names(("curves",), curves, CURVES, "curve")
    if not result and len(options.faults) == before:
        message = "a slope needs a curve"
        options.faults.add(("curves",), message, f"name some of {', '.join(CURVES)}", code="missing-argument")
    return result


def switches_as_rules(
    options: SlopeOptions, plain: FusionRules, uneven: object, roles: object, cascade: Cascade
) -> FusionRules:
    """Return the options of a call as rules, with the names in `uneven` and `roles` resolved."""
    options.choice(("operands",), plain.operands, get_args(Operands), "choice")
    return replace(
        plain,
        head=options.truth("head", plain.head),
        batch=options.truth("batch", plain.batch),
        head_is_tiled_fusion=options.truth("head_is_tiled_fusion", plain.head_is_tiled_fusion),
        uneven=_uneven(options, uneven, cascade),
        partial_overlap=options.truth("partial_overlap", plain.partial_overlap),
        equal_outer_sizes=options.truth("equal_outer_sizes", plain.equal_outer_sizes),
        roles=_roles(options, roles, cascade),
    )


def _uneven(options: SlopeOptions, uneven: object, cascade: Cascade) -> bool | tuple[str, ...]:
    if isinstance(uneven, TRUTH):
        return bool(uneven)
    named = {t for e in cascade for t in e.tensors} | {n for e in cascade for n, _ in e.renames}
    return options.names(("uneven",), uneven, sorted(named), "tensor or rename")


def _roles(options: SlopeOptions, roles: object, cascade: Cascade) -> tuple[tuple[str, tuple[str, ...]], ...]:
    """Return the ranks and rank variables of each role."""
    ranks = {r for e in cascade for a in e.accesses for r in a.ranks}
    known = sorted(ranks | {v for e in cascade for v in e.rank_variables})
    result = []
    given = {} if roles is None else options.table("roles", roles, "roles", '{"head": ["H"]}')
    for role, names in given.items():
        options.choice(("roles", str(role)), role, ROLES, "role")
        result.append((role, options.names(("roles", str(role)), names, known, "rank")))
    return tuple(result)


# Which points of a graph's curve can be executed, which are lower bounds, and whether roles increase traffic.

LOWER_BOUND, EXECUTABLE = "lower bound", "executable"
MOST_WAYS = 800  # tilings of all shared tensors with equal outer sizes, up to which these are the default


def affordable(graph: FusedGraph) -> FusedGraph:
    """Return the graph with equal outer sizes if these give few enough tilings, otherwise without this
    rule."""
    strict = replace(graph.rules, equal_outer_sizes=True)
    ways = sum(len(t.tilings(strict)) for t in graph.shared.values() if t.fusable)
    return replace(graph, rules=replace(strict, equal_outer_sizes=ways <= MOST_WAYS))


def sized(one: Einsum, choice: EinsumChoice) -> OperationMapping:
    """Return the properties of one Einsum of a point on which its neighbours depend."""
    extents = {v: one.bound(v)[1] - one.bound(v)[0] + 1 for v in one.rank_variables}
    loops = tuple(FusedLoop(v, t, extents[v] // t) for v, t in choice.fused)
    return OperationMapping(one, loops, choice.held)


def tied(graph: FusedGraph) -> Iterator[tuple[int, int, str]]:
    """Return pairs of Einsums (positions) and the tensor that they share, a producer first."""
    for name, tensor in graph.shared.items():
        users = tensor.users
        pairs = combinations(users, 2) if tensor.producer is None else ((users[0], u) for u in users[1:])
        yield from ((a, b, name) for a, b in pairs)


def apart(graph: FusedGraph, einsums: Sequence[EinsumChoice]) -> str:
    """Return why a mapping of the graph cannot be executed as it is; empty if it can."""
    strict = replace(graph.rules, equal_outer_sizes=True)
    if graph.rules == strict:
        return ""
    mappings = [sized(m.einsum, c) for m, c in zip(graph.members, einsums, strict=True)]
    verdicts = (compatible(mappings[a], mappings[b], t, strict) for a, b, t in tied(graph))
    return next((v.reason for v in verdicts if not v), "")


def notes_of(
    graph: FusedGraph, curves: Mapping[str, Sequence[tuple[int, int]]], lower: bool, unit: str
) -> tuple[str, ...]:
    """Return notes on the curves: which of them are lower bounds, and whether roles increase traffic."""
    bounds = [bound_note()] if lower else []
    if "tiled_fused" not in curves:
        return tuple(bounds)
    kinds = kinds_of(graph.rules)["tiled_fused"]
    return (*bounds, *worse_with_roles(graph, kinds, curves["tiled_fused"], unit))


def bound_note() -> str:
    """Return the meaning of a lower bound, and how to avoid it."""
    return (
        f"tiled_fused is a {LOWER_BOUND}: at some points outer tile sizes differ between Einsums, and no "
        "mapping that runs as it stands is known to move as little; equal_outer_sizes=True, with fewer "
        "`tiles` where there are too many, gives points that can be executed"
    )


def worse_with_roles(
    graph: FusedGraph, kinds: tuple[Kind, ...], figures: Sequence[tuple[int, int]], unit: str
) -> list[str]:
    """Return a note if loops over heads and batches, which must be outermost, make the curve worse than
    without roles."""
    names = dict.fromkeys(v for m in graph.members for v in m.outermost)
    if not names:
        return []
    free = tuple(replace(m, outermost=()) for m in graph.members)
    shared = {n: replace(t, heads=frozenset()) for n, t in graph.shared.items()}
    rules = replace(graph.rules, head=False, batch=False)
    plain = join(replace(graph, members=free, shared=shared, rules=rules), kinds).curve
    without = list(zip(plain.capacity.tolist(), plain.accesses.tolist(), strict=True))
    worst = (1.0, 0, 0, 0)
    for capacity, least in without:
        at = fitting(figures, capacity)
        if at is not None:
            worst = max(worst, (figures[at][1] / least, capacity, figures[at][1], least))
    ratio, capacity, mine, least = worst
    if ratio == 1.0:
        return []
    return [
        f"roles: fused loops over {', '.join(names)} stand outermost, which makes tiled_fused worse than "
        f"without (head=False) by up to {ratio:.3g} times: {mine:,} instead of {least:,} {unit} at "
        f"{capacity:,} {unit} of buffer"
    ]


@dataclass(frozen=True)
class GraphPoint:
    """One mapping of the whole graph. `einsums`: the mapping of each, in the workload's order.

    `handed`: per shared tensor "backing", "whole", or the tiled ranks, outermost first ("H M"; with "headed "
    before them where buffers are freed between heads). `apart`: why the mapping cannot be executed as it is,
    so that its figures are a lower bound; empty if it can.
    """

    capacity: int
    accesses: int
    handed: tuple[tuple[str, str], ...]
    einsums: tuple[EinsumChoice, ...]
    unit: str = "words"
    apart: str = ""

    def __getitem__(self, einsum: str) -> EinsumChoice:
        for e in self.einsums:
            if e.einsum == einsum:
                return e
        raise no_einsum(einsum, [e.einsum for e in self.einsums])

    @property
    def brief(self) -> str:
        """Return the tensors that stay in the buffer, with the ranks along which they are tiled."""
        kept = [f"{t} ({how})" for t, how in self.handed if how != "backing"]
        bound = f"{LOWER_BOUND}; " if self.apart else ""
        return bound + (", ".join(kept) if kept else "unfused")

    def __repr__(self) -> str:
        words = {"backing": "backing store", "whole": "whole in the buffer"}
        handed = [f"  {t}: {words.get(how, f'tiles of {how}')}" for t, how in self.handed]
        width = max((len(e.einsum) for e in self.einsums), default=0) + 1
        loops = [f"  {e.einsum + ':':{width}} {choice_text(e)}" for e in self.einsums]
        key = "  per Einsum: fused loops | loops below, each with its tile [tensors stored between the two]"
        bound = [f"  {LOWER_BOUND}: {self.apart}"] if self.apart else []
        return "\n".join([figures_text(self), *bound, *handed, *loops, key])


@dataclass(frozen=True, eq=False)
class GraphCurve:
    """One curve, capacity ascending, accesses descending. `states`: maximum number of partial graphs kept at
    once.

    `title`: its name, and whether it is a lower bound (some of its mappings cannot be executed as they are).
    """

    name: str
    graph: FusedGraph
    curve: Curve
    states: int
    seconds: float
    unit: str = "words"

    def __len__(self) -> int:
        return len(self.curve)

    @cached_property
    def figures(self) -> tuple[tuple[int, int], ...]:
        """Return (capacity, accesses) of each point."""
        return tuple(zip(self.curve.capacity.tolist(), self.curve.accesses.tolist(), strict=True))

    @cached_property
    def bounds(self) -> tuple[str, ...]:
        """Return, per point, why it is a lower bound; empty for mappings that can be executed."""
        if self.name != "tiled_fused":
            return ("",) * len(self)
        return tuple(apart(self.graph, self._chosen(i)) for i in range(len(self)))

    @property
    def title(self) -> str:
        return f"{self.name} ({LOWER_BOUND})" if any(self.bounds) else self.name

    @cached_property
    def points(self) -> CurvePoints[GraphPoint]:
        return CurvePoints(self.point(i) for i in range(len(self)))

    def point(self, at: int) -> GraphPoint:
        """Return the choices behind one point."""
        capacity, accesses = self.figures[at]
        einsums = self._chosen(at)
        return GraphPoint(
            capacity, accesses, tuple(self._handed(einsums)), einsums, self.unit, self.bounds[at]
        )

    def _chosen(self, at: int) -> tuple[EinsumChoice, ...]:
        chosen = {c.einsum: c for c in self.curve.choices(at) if isinstance(c, EinsumChoice)}
        return tuple(chosen[m.einsum.name] for m in self.graph.members)

    def at(self, capacity: float) -> GraphPoint:
        """Return the point with the least traffic that fits a capacity. Raises SpecError if nothing fits."""
        return self.point(fitting_or_fault(self.name, self.figures, capacity, self.unit))

    def __repr__(self) -> str:
        points = [self.point(i) for i in shown(len(self))]
        return steps_text(f"{self.title}: {counted(len(self))}", self.figures, points)

    def _handed(self, einsums: tuple[EinsumChoice, ...]) -> Iterable[tuple[str, str]]:
        for name, tensor in self.graph.shared.items():
            result = []
            for at in tensor.users:
                one, choice = self.graph.members[at].einsum, einsums[at]
                depth = dict(choice.held).get(name)
                if not depth:
                    result.append("backing" if depth is None else "whole")
                    continue
                access = one.access_of(name)
                ranks = {
                    e.variables[0]: r
                    for e, r in zip(access.projection, access.ranks, strict=True)
                    if e.variables
                }
                freed = "headed " if depth <= choice.freed else ""
                result.append(freed + " ".join(ranks[v] for v, _ in choice.fused[:depth]))
            yield name, max(result, key=len)


@dataclass(frozen=True, eq=False, repr=False)
class GraphSlope(Answer):
    """Curves of one graph. `hierarchy`: the architecture for evaluating single mappings.

    `notes`: notes on the curves.
    """

    cascade: Cascade
    graph: FusedGraph
    curves: Mapping[str, GraphCurve]
    unit: str
    hierarchy: Hierarchy
    seconds: float
    notes: tuple[str, ...] = ()
    spec: Spec | None = None

    def keeping(self) -> AbstractContextManager[None]:
        """Return a context that protects the files from which the spec was read against overwriting."""
        from polymodel.loading.spec import protected_files

        return protected_files(self.spec)

    def __getitem__(self, curve: str) -> GraphCurve:
        if curve not in self.curves:
            remedy = suggestion(curve, list(self.curves), "curves")
            raise SpecError([Diagnostic(f"there is no curve {curve!r}", remedy, code="unknown-name")])
        return self.curves[curve]

    @property
    def least_unfused(self) -> int:
        """Return the traffic if every Einsum moves each of its tensors once."""
        operations = (m.operation for m in self.graph.members)
        return sum(o.times * o.least(t) for o in operations for t in range(len(o.operands)))

    @property
    def least_fused(self) -> int:
        """Return the traffic if workload inputs and results move once and intermediates never."""
        members, shared = self.graph.members, self.graph.shared
        own = sum(
            m.operation.times * m.operation.least(i)
            for m in members
            for i, t in enumerate(m.einsum.tensors)
            if t not in shared
        )
        once = [t for t in shared.values() if t.producer is None]
        forced = [t for t in shared.values() if t.producer is not None and not t.fusable]
        return (
            own
            + sum(t.times * t.elements for t in once)
            + sum(t.times * t.elements * len(t.users) for t in forced)
        )

    @declared(name="curves")
    def steps(self) -> Table:
        """Return one row per curve and point: capacity, accesses, whether they are those of an executable
        mapping or a lower bound, how each shared tensor is passed on, and the loops."""
        rows: list[dict[str, Cell]] = []
        for name, curve in self.curves.items():
            for p in curve.points:
                figures: dict[str, Cell] = {
                    f"capacity_{self.unit}": p.capacity,
                    f"accesses_{self.unit}": p.accesses,
                }
                handed: dict[str, Cell] = {f"tensor_{t}": how for t, how in p.handed}
                loops: dict[str, Cell] = {f"einsum_{e.einsum}": choice_text(e) for e in p.einsums}
                is_ = LOWER_BOUND if p.apart else EXECUTABLE
                rows.append({"curve": name, **figures, "mapping": is_, **handed, **loops})
        units = dict.fromkeys((f"capacity_{self.unit}", f"accesses_{self.unit}"), self.unit)
        return table_of("curves", rows, units)

    def operation(self, point: GraphPoint, einsum: str) -> OperationMapping:
        """Return the properties of one Einsum of a point on which its neighbours depend; `footprint` without
        tensors held whole."""
        return self._operation("operation", point, einsum)

    def _operation(self, call: str, point: GraphPoint, einsum: str) -> OperationMapping:
        self._check(call, point)
        known = {m.einsum.name: m.einsum for m in self.graph.members}
        if einsum not in known:
            raise no_einsum(einsum, list(known))
        return sized(known[einsum], point[einsum])

    def _check(self, call: str, point: object) -> None:
        curve = next(reversed([*self.curves]), "unfused")
        check_point(point, GraphPoint, call, f'pass a point of a curve: slope["{curve}"].at(capacity)')

    def verdicts(self, point: GraphPoint) -> dict[tuple[str, str, str], Verdict]:
        """Return, per shared tensor and pair of Einsums (first, second, tensor), why they are compatible, in
        words."""
        self._check("verdicts", point)
        names = [m.einsum.name for m in self.graph.members]
        result = {}
        for a, b, tensor in tied(self.graph):
            both = self.operation(point, names[a]), self.operation(point, names[b])
            result[names[a], names[b], tensor] = compatible(*both, tensor, self.graph.rules)
        return result

    def looptree(self, point: GraphPoint, einsum: str) -> LoopTree:
        """Return one Einsum's mapping alone, on the two outermost memories. Traffic of tensors in `held` is
        not part of the slope."""
        outer, inner, compute = two_levels(self.hierarchy)
        one, choice = self._operation("looptree", point, einsum).einsum, point[einsum]
        held = dict(choice.held)
        nodes: list[Node] = [StorageNode(outer, one.tensors)]
        for depth in range(len(choice.fused) + 1):
            nodes += [Loop(*choice.fused[depth - 1])] if depth else []
            here = [t for t, d in choice.held if d == depth]
            here += choice.uneven if depth == len(choice.fused) else ()
            nodes += [StorageNode(inner, tuple(here), Reuse.SLIDE)] if here else []
        nodes += [Loop(v, t) for v, t in choice.order]
        rest = tuple(t for t in one.tensors if t not in held and t not in choice.uneven)
        nodes += [StorageNode(inner, rest, Reuse.SLIDE)] if rest else []
        return LoopTree((*nodes, ComputeNode(einsum, compute)))

    def report(self, point: GraphPoint, einsum: str) -> Report:
        """Return the report of `evaluate` for one Einsum's mapping alone."""
        one = self._operation("report", point, einsum).einsum
        alone = Cascade((one,), self.cascade.rank_sizes, self.cascade.name)
        return evaluate_problem(Problem(alone, self.hierarchy, self.looptree(point, einsum)))

    def plot(self, ax: Axes | None = None) -> Axes:
        """Plot the curves on logarithmic axes, with minima, maximal effectual buffers and the gain of
        fusion."""
        from polymodel.report.plots_slope import chain_axes

        curves = {curve.title: curve.figures for curve in self.curves.values()}
        result = chain_axes(curves, self.unit, self.least_unfused, self.least_fused, ax)
        result.set_title("Least traffic of the graph for each buffer capacity", fontsize=10)
        return result

    def __repr__(self) -> str:
        lengths = ", ".join(f"{curve.title} {len(curve)}" for curve in self.curves.values())
        return f"GraphSlope({len(self.graph.members)} Einsums; points: {lengths})"

    def __str__(self) -> str:
        return "\n".join([repr(self), repr(self.curves), *(f"  note: {n}" for n in self.notes)])


def choice_text(choice: EinsumChoice) -> str:
    """Return loops of one Einsum as text: fused ones, a bar, the others; uneven tensors in brackets."""
    fused = " ".join(f"{v}={t}" for v, t in choice.fused)
    below = " ".join(f"{v}={t}" for v, t in choice.order)
    uneven = f" [{' '.join(choice.uneven)}]" if choice.uneven else ""
    return f"{fused} | {below}{uneven}".strip()


def graph_slope(
    spec: Spec,
    *,
    curves: str | Iterable[str] = CURVES,
    tiles: TileSizes = "divisors",
    unit: Literal["words", "bits"] = "words",
    head: bool = True,
    batch: bool = True,
    head_is_tiled_fusion: bool = True,
    uneven: bool | str | Iterable[str] = True,
    operands: Operands = "both",
    partial_overlap: bool = False,
    equal_outer_sizes: bool | None = None,
    roles: Mapping[str, str | Iterable[str]] | None = None,
    layout: object = None,
    progress: Callable[[str, int, int], None] | None = None,
) -> GraphSlope:
    """Least backing-store traffic of a whole workload for every buffer capacity; no architecture is needed.

    `curves`: `unfused`, `untiled_fused` (shared tensors may be held whole), `tiled_fused` (also passed on
    tile by tile). `equal_outer_sizes=False` lets sizes of outer fused loops differ between neighbours, which
    is faster, but gives a lower bound; None: only with many sizes (more than 800 ways to tile the shared
    tensors). Points, tables and plots say what is a lower bound. `tiles`: divisors, or divisors to try per
    rank variable. `unit`: words or bits. `roles`: ranks that are heads or batches, `{"head": ["H"], "batch":
    ["B"]}`; by default, ranks with such names; a note says if they cost traffic. The other options are those
    of `FusionRules`. `progress` is called with (curve, Einsums joined, all of them).

    Raises NotSeparable for ranks that are not a single rank variable, Refused for `layout`, sizes that are
    not divisors and counts beyond 2^62, SpecError with every option that is wrong.
    """
    start = time.perf_counter()
    from polymodel.loading import Spec as Loaded

    if not isinstance(spec, Loaded):
        raise not_a_spec("graph_slope", spec)
    cascade, options = spec.workload, SlopeOptions()
    names = selected_curves(options, curves)
    options.tiles(tiles, cascade, {v for e in cascade for v in e.rank_variables})
    options.unit(unit)
    options.called("progress", progress)
    plain = FusionRules(head, batch, head_is_tiled_fusion, True, operands, partial_overlap, True)
    plain = plain if equal_outer_sizes is None else replace(plain, equal_outer_sizes=equal_outer_sizes)
    rules = switches_as_rules(options, plain, uneven, roles, cascade)
    options.raise_if_any()
    graph = fused_graph(cascade, replace(rules, layout=layout), unit, tiles)
    graph = affordable(graph) if equal_outer_sizes is None else graph
    result = _joined(graph, names, unit, progress)
    lower = any(any(c.bounds) for c in result.values())
    notes = notes_of(graph, {n: c.figures for n, c in result.items()}, lower, unit)
    hierarchy = spec.arch if spec.raw_arch is not None else plain_hierarchy()
    shown = Curves(result, unit, {n: c.title for n, c in result.items()})
    return GraphSlope(cascade, graph, shown, unit, hierarchy, time.perf_counter() - start, notes, spec)


def _joined(
    graph: FusedGraph,
    names: Iterable[str],
    unit: str,
    progress: Callable[[str, int, int], None] | None,
) -> dict[str, GraphCurve]:
    kinds = kinds_of(graph.rules)
    result: dict[str, GraphCurve] = {}
    for name in names:
        begin = time.perf_counter()

        def tell(done: int, of: int, name: str = name) -> None:
            if progress:
                progress(name, done, of)

        joined = join(graph, kinds[name], tell)
        seconds = time.perf_counter() - begin
        result[name] = GraphCurve(name, graph, joined.curve, joined.states, seconds, unit)
    return result
