"""The reference engine: counts by walking through every operation with plain Python sets."""

from __future__ import annotations

from polymodel.analysis.enumerate.buffets import BuffetWalk, Chains, build_buffets
from polymodel.analysis.enumerate.execute import walk_all
from polymodel.analysis.enumerate.legality import first_violation, phases_of
from polymodel.analysis.enumerate.links import Wires, largest
from polymodel.analysis.enumerate.occupancy import PhaseOrder, live_peak, working_sets
from polymodel.analysis.enumerate.pipeline import PipelineSlots
from polymodel.analysis.enumerate.traffic import ElementLedger, Row, Simulation
from polymodel.analysis.enumerate.walk import EinsumWalk, physical
from polymodel.analysis.result import (
    Analysis,
    Buffet,
    ComputeCounts,
    InstanceLoad,
    Problem,
    RefillLoad,
    TollTraffic,
    Traffic,
    TransferSizes,
    pipelines_of,
)
from polymodel.errors import Refused
from polymodel.mapping.looptree import LoopTree, StorageNode
from polymodel.reuse import override
from polymodel.workload.einsum import Cascade, TensorAccess


class Enumerate:
    """The engine that enumerates all operations. Raises Refused above about 300,000 operations."""

    name = "enumerate"

    def __repr__(self) -> str:
        return "engine enumerate: every operation executed"

    def traffic(self, problem: Problem, *, reuse: str | None = None) -> tuple[Traffic, ...]:
        """The traffic of the whole analysis: all counts come from the same walk."""
        return self.analyse(problem, reuse=reuse).traffic

    def analyse(self, problem: Problem, *, reuse: str | None = None, live: bool = False) -> Analysis:
        """Every count of `analysis.result`, in elements and operations; see docs/semantics.md."""
        overlapped = pipelines_of(problem)
        policy = override(reuse)
        walks = walk_all(problem, policy)
        phases = phases_of(walks)
        by_key, chains = build_buffets(problem, walks, phases, policy)
        broken = first_violation(problem, walks, chains)
        if broken:
            index = ", ".join(map(str, broken.element))
            reads = broken.consumer != broken.producer
            does = (
                f"reads {broken.tensor}[{index}] of {broken.producer}"
                if reads
                else f"writes {broken.tensor}[{index}]"
            )
            message = f"{broken.consumer} {does}, but {broken.reason}"
            remedy = f"move the storage of {broken.tensor} or the loops above both Einsums"
            raise Refused(message, remedy, code="illegal-dependence")
        firsts = first_accesses(problem.cascade)
        bits = {t: a.bits_per_value for t, a in firsts.items()}
        inside = frozenset(e for p in overlapped for e in p.einsums)
        ledger = ElementLedger(bits, Wires(problem, bits), problem.hierarchy, inside)
        for tensor in problem.cascade.tensors:
            Simulation(problem, walks, chains, tensor, ledger).play()
        play_copies(walks, chains, ledger)
        ledger.settle()
        buffets = in_tree_order(problem.tree, list(by_key.values()))
        timeline = _timeline(walks)
        measures = ("tile", "reserved", "live") if live else ("tile", "reserved")
        return Analysis(
            engine=self.name,
            buffets=tuple(_buffet_record(b, timeline if live else None) for b in buffets),
            traffic=_traffic_rows(problem, buffets, ledger),
            compute=tuple(_compute_row(w) for w in walks.values()),
            loads=_load_rows(problem, ledger),
            working_sets=working_sets(problem, buffets, firsts, timeline, measures),
            tolls=_toll_rows(problem, ledger),
            links=ledger.wires.rows(problem),
            refills=_refill_rows(problem, ledger),
            transfers=_transfer_rows(problem, buffets, ledger),
            pipelines=PipelineSlots(problem, overlapped, walks, ledger).runs() if overlapped else (),
        )


def first_accesses(cascade: Cascade) -> dict[str, TensorAccess]:
    """The first access of each tensor in cascade order; it gives the tensor's bits per value."""
    firsts: dict[str, TensorAccess] = {}
    for einsum in cascade.einsums:
        for access in einsum.accesses:
            firsts.setdefault(access.tensor, access)
    return firsts


def in_tree_order(tree: LoopTree, buffets: list[BuffetWalk]) -> list[BuffetWalk]:
    """Sorted by node id, then by the order of tensors in the node."""
    nodes = {i: node.tensors for i, node, _ in tree.walk() if isinstance(node, StorageNode)}
    return sorted(buffets, key=lambda b: (b.node, nodes[b.node].index(b.tensor)))


def _timeline(walks: dict[str, EinsumWalk]) -> PhaseOrder:
    executing = {o.time: name for name, w in walks.items() for o in w.operations}
    times = tuple(sorted(executing))
    return PhaseOrder(times, tuple(executing[t] for t in times))


def _buffet_record(b: BuffetWalk, timeline: PhaseOrder | None) -> Buffet:
    tiles = [(p, tile) for places in b.tiles.values() for p, tile in places.items()]
    sizes = [len(tile) for _, tile in tiles]
    return Buffet(
        node=b.node,
        component=b.component,
        tensor=b.tensor,
        reuse=b.policy,
        einsums=b.users,
        parent=b.parent.node if b.parent else None,
        tile_max=max(sizes, default=0),  # its users may read only what is before the first generation
        tile_total=sum(sizes),
        visits=len(sizes),
        instances=len({p for p, _ in tiles}),
        distinct=len({x for _, tile in tiles for x in tile}),
        live=live_peak(b, timeline) if timeline else None,
    )


def _traffic_rows(problem: Problem, buffets: list[BuffetWalk], ledger: ElementLedger) -> tuple[Traffic, ...]:
    """One row per Einsum and buffet that it touches, even if nothing was booked."""
    rows = []
    for einsum in problem.tree.einsums:
        for b in buffets:
            if einsum in b.users:
                counts = ledger.traffic.get((einsum, b.node, b.tensor), {})
                rows.append(Traffic(einsum, b.node, b.component, b.tensor, **counts))
    return tuple(rows)


def _compute_row(walk: EinsumWalk) -> ComputeCounts:
    done: dict[object, int] = {}
    if not walk.einsum.is_copy:
        for op in walk.operations:
            where = physical(walk.spatial, op.place)
            done[where] = done.get(where, 0) + 1
    total, busiest = sum(done.values()), max(done.values(), default=0)
    return ComputeCounts(walk.einsum.name, walk.compute.component, total, busiest, len(done))


def _load_rows(problem: Problem, ledger: ElementLedger) -> tuple[InstanceLoad, ...]:
    """Per Einsum and component, the Pareto-maximal (read, write) loads over the instances."""
    rows = []
    for einsum in problem.tree.einsums:
        for component in problem.hierarchy.components:
            per_instance = ledger.loads.get((einsum, component.name))
            if per_instance:
                loads = largest(per_instance.values())
                rows.append(InstanceLoad(einsum, component.name, loads, len(per_instance)))
    return tuple(rows)


def _refill_rows(problem: Problem, ledger: ElementLedger) -> tuple[RefillLoad, ...]:
    """Each end of the refills of single-buffered storages, then the rest at those components."""
    names = [c.name for c in problem.hierarchy.components]
    waiting = [name for name in names if problem.hierarchy.waits(name)]
    rows = []
    for einsum in problem.tree.einsums:
        left: dict[str, dict[object, list[int]]] = {}
        for storage in waiting:
            for component in names:
                shares = ledger.shares.get((einsum, component, storage))
                if shares:
                    rows.append(RefillLoad(einsum, component, storage, largest(shares.values())))
                    whole = ledger.loads[einsum, component]
                    rest = left.setdefault(component, {i: list(pair) for i, pair in whole.items()})
                    for instance, pair in shares.items():
                        rest[instance] = [a - b for a, b in zip(rest[instance], pair, strict=True)]
        rows += [RefillLoad(einsum, c, "", largest(left[c].values())) for c in names if c in left]
    return tuple(rows)


def _toll_rows(problem: Problem, ledger: ElementLedger) -> tuple[TollTraffic, ...]:
    rows = []
    for einsum in problem.tree.einsums:
        for component in problem.hierarchy.components:
            for tensor in problem.cascade[einsum].tensors:
                moved = ledger.tolls.get((einsum, component.name, tensor))
                if moved:
                    rows.append(TollTraffic(einsum, component.name, tensor, down=moved[0], up=moved[1]))
    return tuple(rows)


def _transfer_rows(
    problem: Problem, buffets: list[BuffetWalk], ledger: ElementLedger
) -> tuple[TransferSizes, ...]:
    """Rows by Einsum, first at memories in tree order, then at tolls."""
    kinds = ("reads_fill", "reads_drain", "writes_fill", "writes_drain")
    rows: list[Row] = []
    for einsum in problem.tree.einsums:
        rows += [(einsum, b.node, b.component, b.tensor, kind) for b in buffets for kind in kinds]
        rows += [
            (einsum, None, c.name, tensor, kind)
            for c in problem.hierarchy.components
            for tensor in problem.cascade[einsum].tensors
            for kind in ("down", "up")
        ]
    return tuple(TransferSizes(*row, ledger.sizes(row)) for row in rows if row in ledger.gathered)


def play_copies(walks: dict[str, EinsumWalk], chains: Chains, ledger: ElementLedger) -> None:
    """Copies: one read at the source's backing node and one write at the destination's per element."""
    for name, walk in walks.items():
        if not walk.einsum.is_copy:
            continue
        source = next(a for a in walk.einsum.accesses if not a.output)
        origin = chains[name, source.tensor][0]
        for position, access in enumerate(walk.einsum.accesses):
            if not access.output:
                continue
            target = chains[name, access.tensor][0]
            if target.component == origin.component:
                continue
            done = set()
            for op in walk.operations:
                stamp = (op.time[: target.n_time], op.place[: target.n_place], op.elements[position])
                if stamp not in done:
                    done.add(stamp)
                    ledger.moment = stamp[0], False
                    together = target.tensor, *stamp[:2]
                    ledger.access(name, origin, op.place[: origin.n_place], "reads_fill", together)
                    ledger.access(name, target, op.place[: target.n_place], "writes_fill", together)
                    ends = origin.component, target.component
                    ledger.wires.transfer(
                        target.tensor, ends, [(name, walk.spatial, op.place[: target.n_place])], 0
                    )
