"""Closed forms of everything that is counted, and their numbers."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from functools import cache, lru_cache
from typing import TYPE_CHECKING

from polymodel.analysis.result import (
    Analysis,
    Buffet,
    ComputeCounts,
    InstanceLoad,
    LinkTraffic,
    Problem,
    RefillLoad,
    TollTraffic,
    Traffic,
    WholeActions,
    mapped,
)
from polymodel.analysis.symbolic.counts import count, largest, nominal_trips, settled
from polymodel.analysis.symbolic.flows import FormLedger, RowForms, flows
from polymodel.analysis.symbolic.forms import (
    READS,
    TRAFFIC,
    Chain,
    ChainSize,
    Form,
    Larger,
    PeakForm,
    SymbolicAnalysis,
    Widest,
    WorkingSetForm,
    World,
    joined,
    number,
)
from polymodel.analysis.symbolic.inferred import Undecided, paths
from polymodel.analysis.symbolic.layout import (
    SymbolicBuffet,
    SymbolicLayout,
    lay_out,
    same_extents,
    under_policy,
)
from polymodel.analysis.symbolic.occupancy import working_sets
from polymodel.analysis.symbolic.spaces import LoopAxis, Space, Use, Window
from polymodel.architecture.hierarchy import FanoutDim
from polymodel.errors import NotSeparable
from polymodel.frozen import dataclass
from polymodel.mapping.looptree import ComputeNode, Loop, StorageNode, pipelines, users
from polymodel.reuse import Reuse, override

if TYPE_CHECKING:
    from polymodel.analysis.symbolic.pipelines import PipelineForms


class Symbolic:
    """Closed forms: boxes with ranks of one or two rank variables. Raises NotSeparable otherwise."""

    name = "symbolic"

    def __repr__(self) -> str:
        return "engine symbolic: closed forms"

    def analyse(self, problem: Problem, *, reuse: str | None = None, live: bool = False) -> Analysis:
        """The numbers of a problem without symbols."""
        refuse_rounding(problem)
        return closed_counts(problem, reuse=reuse, live=live).at({})

    def traffic(self, problem: Problem, *, reuse: str | None = None) -> tuple[Traffic, ...]:
        """The traffic of a problem without symbols; working sets are not computed."""
        return _traffic_of_policy(problem, override(reuse))


@lru_cache(maxsize=16)  # each printed report compares policies, and the same problem may be evaluated often
def _traffic_of_policy(problem: Problem, reuse: Reuse | None) -> tuple[Traffic, ...]:
    refuse_rounding(problem)
    _refuse_unsupported(problem)
    layout = under_policy(problem, reuse)
    rows = _traffic(layout, flows(layout, busiest=False))
    return tuple(mapped(row, Form, lambda form: form.at({})) for row in rows)


ENGINE = Symbolic()
MOST_LOOPS = 4  # loops whose single trips decide what stays: each doubles the number of forms


def closed_counts(
    problem: Problem,
    *,
    reuse: str | None = None,
    ranks: Mapping[str, str] | None = None,
    live: bool = False,
) -> SymbolicAnalysis:
    """Closed forms of everything; tile shapes that are names stay symbols. Raises NotSeparable.

    `ranks`: rank variable -> symbol that stands for its extent. `live`: with element-level lifetimes in all
    memories, not only in those that allocate by them.
    """
    _refuse_unsupported(problem)
    if pipelines(problem.tree):
        from polymodel.analysis.symbolic.pipelines import refuse_pipelines

        refuse_pipelines(problem)
    try:
        cases = list(_cases(problem, override(reuse), ranks, live, {}, number(1)))
    except NotSeparable as refusal:
        if live or ranks or not _are_intervals(problem, override(reuse)):
            raise
        try:  # a list of values distinguishes instances that are sometimes idle
            cases = list(_cases(problem, override(reuse), ranks, live, {}, number(1), points=True))
        except NotSeparable:
            raise refusal from None
    if len(cases) > 1 and any(case.whole for _, case in cases):
        refuse_rounding(problem)
    return joined(cases)


def _cases(
    problem: Problem,
    reuse: Reuse | None,
    ranks: Mapping[str, str] | None,
    live: bool,
    single: Mapping[int, bool],
    world: Form,
    points: bool = False,
) -> Iterator[World]:
    """The forms for each combination of loops having one trip or more, where it matters."""
    try:
        plain = not (ranks or single or points)
        layout = under_policy(problem, reuse) if plain else lay_out(problem, reuse, ranks, single, points)
    except Undecided as open_:
        if len(single) == MOST_LOOPS:
            raise NotSeparable(
                f"what stays depends on whether more than {MOST_LOOPS} loops have one trip",
                code="too-large",
            ) from open_
        for yes in (True, False):
            where = open_.settled if yes else number(1) - open_.settled
            yield from _cases(problem, reuse, ranks, live, {**single, open_.node: yes}, world * where, points)
    else:
        yield (
            world,
            _analysis(layout, live, cache(lambda: lay_out(problem, reuse, ranks, single, points=True))),
        )


def _are_intervals(problem: Problem, reuse: Reuse | None) -> bool:
    """Whether executed iterations of some Einsum were treated as intervals although they could be listed.

    That is so for an inferred Einsum, or one that is spread over instances.
    """
    try:
        result = paths(problem, reuse, {}).values()
    except (NotSeparable, Undecided):
        return False
    return any(not path.groups and (path.inferred or any(a.spatial for a in path.axes)) for path in result)


def _analysis(layout: SymbolicLayout, live: bool, listed: Callable[[], SymbolicLayout]) -> SymbolicAnalysis:
    """All forms of one layout. `listed`: the layout in which executed iterations are listed."""
    peaks, lives = _lives(layout, live, listed)
    ledger = flows(layout)
    whole = _rounded_actions(layout, ledger)
    return SymbolicAnalysis(
        _buffets(layout),
        _traffic(layout, ledger),
        tuple(_compute(layout, e) for e in layout.problem.tree.einsums),
        _loads(layout, ledger, whole),
        _in_order(layout, (*working_sets(layout), *peaks)),
        _tolls(layout, ledger),
        refills=_refills(layout, ledger),
        links=_links(layout, ledger),
        whole=whole,
        pipelines=_pipelines(layout),
        symbols=_symbols(layout),
        chains=_chains(layout),
        fanouts=tuple(_fanouts(layout)),
        single_trips=tuple(dict.fromkeys(_single_trips(layout))),
        same=tuple({pair[:2]: pair for pair in same_extents(layout)}.values()),
        lives=lives,
    )


def _pipelines(layout: SymbolicLayout) -> tuple[PipelineForms, ...]:
    if not pipelines(layout.problem.tree):
        return ()
    from polymodel.analysis.symbolic.pipelines import pipeline_forms

    return pipeline_forms(layout)


def _in_order(layout: SymbolicLayout, rows: tuple[WorkingSetForm, ...]) -> tuple[WorkingSetForm, ...]:
    """Rows by Einsum and component; the measures of each are in order already."""
    einsums = layout.problem.tree.einsums
    components = [c.name for c in layout.problem.hierarchy.components]
    return tuple(sorted(rows, key=lambda r: (einsums.index(r.einsum), components.index(r.component))))


def _lives(
    layout: SymbolicLayout, every: bool, listed: Callable[[], SymbolicLayout]
) -> tuple[tuple[WorkingSetForm, ...], tuple[tuple[int, str, PeakForm], ...]]:
    """Joint peaks of live elements, of memories that allocate them or of all, and those of each buffet."""
    if not every and all(c.allocation != "live" for c in layout.problem.hierarchy.components):
        return (), ()
    from polymodel.analysis.symbolic.lifetimes import live_elements, live_sets

    return live_sets(layout, every, listed), live_elements(layout, listed) if every else ()


def _rounded_actions(layout: SymbolicLayout, ledger: FormLedger) -> tuple[WholeActions[Form], ...]:
    if not any(layout.problem.rounding()):
        return ()
    from polymodel.analysis.symbolic.rounding import whole_actions

    return whole_actions(layout, ledger)


def _refills(layout: SymbolicLayout, ledger: FormLedger) -> tuple[RefillLoad[Form], ...]:
    hierarchy = layout.problem.hierarchy
    if not any(hierarchy.waits(c.name) for c in hierarchy.components):
        return ()
    from polymodel.analysis.symbolic.refills import refills

    return refills(layout, ledger)


def _refuse_unsupported(problem: Problem) -> None:
    hierarchy = problem.hierarchy
    for component, dim in hierarchy.costly_links:
        if dim.link is not None and dim.link.topology in ("tree", "ring"):
            kind = dim.link.topology
            what = f"the link of {component}.{dim.name} is a {kind}, whose hops have no closed form"
            raise NotSeparable(what, "use engine exact, or topology: bus or mesh", code="unsupported-link")


def refuse_rounding(problem: Problem) -> None:
    """Raise NotSeparable if transfers take whole actions: closed forms give no sizes of transfers."""
    for component, tensor, action in problem.rounding():
        bits = next(e.access_of(tensor).bits_per_value for e in problem.cascade if tensor in e.tensors)
        raise NotSeparable(
            f"{component.name}, {tensor}: {action.name} moves {action.bits_per_action} bits per action, "
            f"which does not divide {bits} bits per value, and the sizes of transfers have no closed form",
            "use engine exact, or give bits_per_action that divide bits_per_value",
            code="unsupported-rounding",
        )


def _symbols(layout: SymbolicLayout) -> tuple[str, ...]:
    sizes = [s for path in layout.paths.values() for a in path for s in a.level("each").sizes]
    sizes += [s for _, s in layout.sizes]
    return tuple(dict.fromkeys(s for s in sizes if isinstance(s, str)))


def _chains(layout: SymbolicLayout) -> tuple[Chain, ...]:
    result: dict[Chain, None] = {}
    forward = carried_variables(layout)
    for einsum, path in layout.paths.items():
        stamps = layout.stamps(einsum, path)
        for v in layout.problem.cascade[einsum].rank_variables:
            window, loops = stamps.window(v), [(i, path[i]) for i in stamps.of(v)]
            shared = [a for i, a in loops if window is not None and i < window.depth]
            widths = {w: width for g in stamps.listed for w, width in g.widths}
            whole: ChainSize = _enclosing(layout, stamps, v)
            if v in widths:
                whole = widths[v]
            elif window is not None:
                whole = _widest(window, shared)
            chain: list[ChainSize] = [whole]
            for _, a in loops[len(shared) :]:
                if a.start is None:
                    chain.append(a.tile)
                else:
                    result.update({(chain[-1], a.tile): None, (chain[-1], a.start): None})
                    chain.append(_larger(a.tile, a.start))
            if v in forward[einsum] and chain[-1] != 1:
                chain.append(1)  # whether iterations inside a tile are consecutive decides what is legal
            result[tuple(chain)] = None
    return tuple(result)


def _enclosing(layout: SymbolicLayout, stamps: Space, v: str) -> int | str:
    """Return the extent that encloses all tiles of a variable: that of all Einsums in its outermost loop."""
    extent, loops = stamps.extent(v), stamps.of(v)
    if not loops or isinstance(extent, str) or stamps.window(v) is not None:
        return extent
    cascade, axis = layout.problem.cascade, stamps.axes[loops[0]]
    every = ((e, axis.loop.variable_in(e)) for e in users(layout.problem.tree, axis.node) if axis.loop)
    bounds = [cascade[e].bound(w) for e, w in every if w in cascade[e].rank_variables]
    return max(high for _, high in bounds) - min(low for low, _ in bounds) + 1


def carried_variables(layout: SymbolicLayout) -> dict[str, set[str]]:
    """By Einsum the rank variables along which it reads or writes tensors that are carried forward."""
    result: dict[str, set[str]] = {e: set() for e in layout.paths}
    for tensor, line in layout.lines.items():
        for e in layout.paths:
            for access in layout.problem.cascade[e].accesses_of(tensor):
                for rank in line.ranks:
                    result[e] |= set(access.projection[rank].variables)
    return result


def _larger(tile: int | str, start: int | str | None) -> int | str | Larger:
    if start is None:
        return tile
    return max(tile, start) if isinstance(tile, int) and isinstance(start, int) else Larger(tile, start)


def _widest(window: Window, shared: list[LoopAxis]) -> ChainSize:
    """The widest window, in which the Einsum's own tiles must fit."""
    tile = _larger(shared[-1].tile, shared[-1].start) if shared else window.extent
    if isinstance(tile, int):
        return window.scale * tile + window.start
    return tile if (window.scale, window.start) == (1, 0) else Widest(tile, window.scale, window.start)


def _single_trips(layout: SymbolicLayout) -> Iterator[Form]:
    for einsum, path in layout.paths.items():
        stamps = layout.stamps(einsum, path)
        for i, a in enumerate(path):
            if any(path[j].start is not None for j in stamps.of(a.variable)):
                yield settled(stamps, i)


def _fanouts(layout: SymbolicLayout) -> Iterator[tuple[str, str, str, Form]]:
    """Products of nominal trips; for an inferred Einsum's own loops, those in its widest window."""
    for einsum, path in layout.paths.items():
        stamps = layout.stamps(einsum, path)
        trips: dict[tuple[str, str], Form] = {}
        for i, a in enumerate(path):
            if a.loop is not None and a.spatial:
                key = (a.loop.component, a.loop.dim)
                trips[key] = trips.get(key, number(1)) * nominal_trips(stamps, i)
        for (component, dim), form in trips.items():
            yield einsum, component, dim, form


def _order(layout: SymbolicLayout) -> dict[int, tuple[str, ...]]:
    return {i: n.tensors for i, n, _ in layout.problem.tree.walk() if isinstance(n, StorageNode)}


def _buffets(layout: SymbolicLayout) -> tuple[Buffet[Form], ...]:
    rows = []
    for node in layout.nodes.values():
        space, n = node.space, len(node.space.axes)
        stamps = space.bare
        apart: dict[int, Use] = dict.fromkeys(range(n), "keep")
        together: dict[int, Use] = dict.fromkeys(range(n), "merge")
        places: dict[int, Use] = {i: "keep" if a.spatial else "merge" for i, a in enumerate(space.axes)}
        rows.append(
            Buffet(
                node.id, node.component, node.tensor, node.reuse, node.users, node.parent,
                largest(space), count(space, apart), count(stamps, apart),
                count(stamps, places), count(space, together),
            )
        )  # fmt: skip
    return tuple(rows)


def _traffic(layout: SymbolicLayout, ledger: FormLedger) -> tuple[Traffic[Form], ...]:
    order = _order(layout)
    rows = []
    for einsum in layout.problem.tree.einsums:
        mine = [k for k in ledger.accesses if k[0] == einsum]
        for _, node_id, tensor in sorted(mine, key=lambda k: (k[1], order[k[1]].index(k[2]))):
            entry = ledger.accesses[einsum, node_id, tensor]
            component = layout.nodes[node_id, tensor].component
            rows.append(Traffic(einsum, node_id, component, tensor, **entry.whole))
    return tuple(rows)


def _tolls(layout: SymbolicLayout, ledger: FormLedger) -> tuple[TollTraffic[Form], ...]:
    rows = []
    for einsum in layout.problem.tree.einsums:
        for component in layout.problem.hierarchy.components:
            for tensor in layout.problem.cascade[einsum].tensors:
                entry = ledger.tolls.get((einsum, component.name, tensor))
                if entry is not None:
                    down, up = entry.whole["reads_fill"], entry.whole["writes_drain"]
                    rows.append(TollTraffic(einsum, component.name, tensor, down, up))
    return tuple(rows)


def _links(layout: SymbolicLayout, ledger: FormLedger) -> tuple[LinkTraffic[Form], ...]:
    """Each transfer enters a row of a dimension once. The first row is the busiest one."""
    costly = layout.problem.hierarchy.costly_links
    rows = [_link(layout, ledger, e, c, dim) for e in layout.problem.tree.einsums for c, dim in costly]
    return tuple(r for r in rows if r.hops or any(form.terms for pair in r.loads for form in pair))


def _link(
    layout: SymbolicLayout, ledger: FormLedger, einsum: str, component: str, dim: FanoutDim
) -> LinkTraffic[Form]:
    hops, down, up = [], Form(), Form()
    for tensor in layout.problem.cascade[einsum].tensors:
        entry = ledger.links.get((einsum, component, dim.name, tensor), RowForms())
        count = entry.whole["reads_fill"] + entry.whole["writes_drain"]
        hops += [(tensor, count)] if count.terms else []
        down = down + entry.first["reads_fill"] * layout.bits(tensor)
        up = up + entry.first["writes_drain"] * layout.bits(tensor)
    if dim.link is None or not dim.link.timed:
        return LinkTraffic(einsum, component, dim.name, tuple(hops), (), Form(), Form())
    path, far = layout.paths[einsum], Form()
    if dim.link.hop_latency:
        far = _replicated(
            layout, einsum, path, lambda loop: (loop.component, loop.dim) == (component, dim.name)
        )
    order = [(c, d.name) for c, d in layout.problem.hierarchy.dimensions]
    apart = dim.link.topology == "switch"  # each instance has its own link
    outside = order[: order.index((component, dim.name)) + apart]
    used = _replicated(layout, einsum, path, lambda loop: (loop.component, loop.dim) in outside)
    return LinkTraffic(einsum, component, dim.name, tuple(hops), ((down, up),), used, far)


def _compute(layout: SymbolicLayout, einsum: str) -> ComputeCounts[Form]:
    leaf = layout.problem.tree.path(einsum)[-1].node
    assert isinstance(leaf, ComputeNode)
    one = layout.problem.cascade[einsum]
    if one.is_copy:
        return ComputeCounts(einsum, leaf.component, Form(), Form(), Form())
    stamps = layout.stamps(einsum, layout.executed[einsum])
    spatial = [i for i, a in enumerate(stamps.axes) if a.spatial]
    every: dict[int, Use] = dict.fromkeys(range(len(stamps.axes)), "keep")
    most: dict[int, Use] = {i: "most" if i in spatial else "keep" for i in every}
    places: dict[int, Use] = {i: "keep" if i in spatial else "merge" for i in every}
    return ComputeCounts(
        einsum, leaf.component, count(stamps, every), count(stamps, most), count(stamps, places)
    )


@dataclass
class _Load:
    reads: Form
    writes: Form
    instances: Form


def _loads(
    layout: SymbolicLayout, ledger: FormLedger, whole: tuple[WholeActions[Form], ...]
) -> tuple[InstanceLoad[Form], ...]:
    rounded = {(w.einsum, w.node, w.tensor, w.kind): w.actions for w in whole}
    moving = {key for key, entry in ledger.accesses.items() if any(f.terms for f in entry.whole.values())}
    passing = {key for key, entry in ledger.tolls.items() if any(f.terms for f in entry.whole.values())}
    tables = []
    for one in (ledger, *ledger.further):
        found: dict[tuple[str, str], _Load] = {}
        for (einsum, node_id, tensor), entry in one.accesses.items():
            node = layout.nodes[node_id, tensor]
            if (einsum, node_id, tensor) in moving:
                depth = sum(1 for a in layout.paths[einsum] if a.node < node.id)
                bits = {k: _bits(layout, einsum, node, k, entry.first[k], rounded) for k in TRAFFIC}
                _add(found, (einsum, node.component), bits, _instances(layout, einsum, depth, None))
        for (einsum, toll, tensor), entry in one.tolls.items():
            level = layout.problem.hierarchy.index(toll)
            if (einsum, toll, tensor) in passing:
                bits = {k: form * layout.bits(tensor) for k, form in entry.first.items()}
                _add(found, (einsum, toll), bits, _instances(layout, einsum, None, level))
        tables.append(found)
    hierarchy = layout.problem.hierarchy
    order = [(e, c.name) for e in layout.problem.tree.einsums for c in hierarchy.components]
    rows = []
    for key in order:
        each = [table[key] for table in tables if key in table]
        if each:
            loads = dict.fromkeys((load.reads, load.writes) for load in each)
            rows.append(InstanceLoad(*key, tuple(loads), each[0].instances))
    return tuple(rows)


def _bits(
    layout: SymbolicLayout,
    einsum: str,
    node: SymbolicBuffet,
    kind: str,
    elements: Form,
    rounded: Mapping[tuple[str, int, str, str], Form],
) -> Form:
    """The bits that accesses of the busiest instance take, in whole actions."""
    action = layout.problem.hierarchy[node.component].action("read" if kind in READS else "write")
    key = einsum, node.id, node.tensor, kind
    if key in rounded:
        return rounded[key] * (action.bits_per_action or 1)
    return elements * action.whole_bits(layout.bits(node.tensor))


def _add(
    found: dict[tuple[str, str], _Load], key: tuple[str, str], bits: Mapping[str, Form], instances: Form
) -> None:
    reads = bits["reads_fill"] + bits["reads_drain"]
    writes = bits["writes_fill"] + bits["writes_drain"]
    if key not in found:
        found[key] = _Load(reads, writes, instances)
        return
    load = found[key]
    if load.instances != instances:
        raise NotSeparable(
            f"{key[1]} stands at several depths on the path of {key[0]}",
            code="unsupported-memory",
        )
    load.reads, load.writes = load.reads + reads, load.writes + writes


def _instances(layout: SymbolicLayout, einsum: str, depth: int | None, level: int | None) -> Form:
    """The number of instances of a storage at `depth`, or a toll at `level`, that the Einsum uses."""
    hierarchy = layout.problem.hierarchy

    def replicates(loop: Loop) -> bool:
        return level is None or hierarchy.index(loop.component) <= level

    return _replicated(layout, einsum, layout.paths[einsum][:depth], replicates)


def _replicated(
    layout: SymbolicLayout, einsum: str, axes: tuple[LoopAxis, ...], replicates: Callable[[Loop], bool]
) -> Form:
    """The number of combinations of the replicating spatial loops that the Einsum uses.

    It is one form for all depths between the same spatial loops.
    """
    kept = [i for i, a in enumerate(axes) if a.spatial and a.loop is not None and replicates(a.loop)]
    uses: dict[int, Use] = {i: "keep" if i in kept else "merge" for i in range(max(kept, default=-1) + 1)}
    return count(layout.stamps(einsum, axes[: len(uses)]), uses) if uses else number(1)
