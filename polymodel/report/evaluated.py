"""The figures of one evaluation: frozen records, with tables that are built on demand.

`report.report` adds what is derived from them: closed forms, sparse data, tiles, timelines, pages.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import AbstractContextManager
from dataclasses import field
from functools import cached_property
from math import prod
from typing import TYPE_CHECKING, ClassVar

from polymodel.analysis.result import Analysis, Buffet, Engine, Problem, Traffic
from polymodel.cost.costs import Cost, CostFigures, needs, objective_value, stored_bits
from polymodel.cost.latency import group_roofline
from polymodel.cost.records import CapacityViolation, Costs, Counts, RooflinePoint
from polymodel.errors import Diagnostic, Refused, SpecError
from polymodel.frozen import dataclass
from polymodel.loading.spec import protected_files
from polymodel.mapping.looptree import Loop, LoopTree, Split, StorageNode, loop_notes, ties
from polymodel.quantities import engineering
from polymodel.report import tables
from polymodel.report.fusion import fusion, retained
from polymodel.reuse import Reuse
from polymodel.schedule.legality import check
from polymodel.schedule.touch import essential_constraints
from polymodel.spec.faults import check_classes
from polymodel.view.answer import Answer, declared
from polymodel.view.table import Cell, Column, Table
from polymodel.workload.einsum import passes

if TYPE_CHECKING:
    import pandas

    from polymodel.loading import Spec


# Capacity of a fused chain by the additive and maximal formula (FFMR), next to the tree's working set.
#
# FFMR: all fused loops stand above all unfused ones. With `S[i, T]` the tile of tensor T that Einsum i uses
# at a memory, `A_i` sums those that no co-iterated rank indexes, `M_i` the others; capacity = sum of A_i +
# max of M_i. `ffmr_drop`: tensors with a co-iterated rank go after every fused iteration. `ffmr_retain`: some
# stay for longer and count in A_i. Without fused loops the Einsums are `untiled_fused`: the largest of their
# working sets. Source: the Fusion-Friendly Mapping Rule of Orojenesis' second version (docs/develop/rules.md,
# Fusion).

REMEDY = "the formula speaks of Einsums in a chain under one !Sequential, with their own loops below it"


@dataclass(frozen=True)
class FootprintShare:
    """The contribution of one tensor to the formula: bits of its tile at one storage node; `einsums` use
    it.
    """

    tensor: str
    node: int
    einsums: tuple[str, ...]
    bits: int
    additive: bool


@dataclass(frozen=True)
class CapacityFormula:
    """The formula for one memory, and the tree's peak of whole tiles (`tree_bits`).

    `equal`: the two are provably equal; otherwise the tree's peak is at most the formula's.
    """

    component: str
    variant: str
    shares: tuple[FootprintShare, ...]
    maximal: tuple[tuple[str, int], ...]
    tree_bits: int
    equal: bool

    @property
    def additive_bits(self) -> int:
        return sum(s.bits for s in self.shares if s.additive)

    @property
    def formula_bits(self) -> int:
        """Sum of A_i + max of M_i."""
        return self.additive_bits + max((bits for _, bits in self.maximal), default=0)


@dataclass(frozen=True)
class FusedChain:
    """A tree of the form: fused loops (id, loop), the split, Einsums in order of execution."""

    fused: tuple[tuple[int, Loop], ...]
    split: int
    einsums: tuple[str, ...]


def chain_of(problem: Problem) -> FusedChain:
    """The parts of a tree of FFMR's form. Raises Refused with the difference for other trees."""
    tree, cascade = problem.tree, problem.cascade
    splits = [(i, node) for i, node, _ in tree.walk() if isinstance(node, Split)]
    if len(splits) != 1:
        raise Refused(f"the mapping has {len(splits)} splits, not one", REMEDY, code="invalid-structure")
    split, node = splits[0]
    if node.pipeline:
        message = "branches of a Pipeline hold their tiles all the time"
        raise Refused(message, REMEDY, code="unsupported-pipeline")
    for einsum in tree.einsums:
        if cascade[einsum].is_copy:
            raise Refused(f"{einsum} is a copy, which holds nothing", REMEDY, code="unsupported-copy")
    for tensor in cascade.tensors:
        users = [i for i, e in enumerate(tree.einsums) if tensor in cascade[e].tensors]
        if users and users[-1] - users[0] >= len(users):
            names = f"{tree.einsums[users[0]]} and {tree.einsums[users[-1]]}"
            message = f"{tensor} is used by {names}, but not by every Einsum between them"
            raise Refused(message, REMEDY, code="unsupported-einsum")
        if any(a.persistent for e in cascade.einsums for a in e.accesses if a.tensor == tensor):
            message = f"{tensor} is persistent: it stays in all phases"
            raise Refused(message, REMEDY, code="unsupported-memory")
    if not problem.hierarchy.assume_overlap:
        message = "under assume_overlap: false double buffers hold tiles twice"
        raise Refused(message, REMEDY, code="unsupported-memory")
    loops = tree.loops(tree.einsums[0])
    fused = tuple((i, loop) for i, loop in loops if i < split and not loop.spatial)
    return FusedChain(fused, split, tree.einsums)


def capacities(counts: Counts) -> tuple[CapacityFormula, ...]:
    """The formula for every memory that holds anything, outermost first; Refused for other forms."""
    chain = chain_of(counts.problem)
    held = {b.component for b in counts.analysis.buffets}
    return tuple(
        _capacity(counts, chain, c.name) for c in counts.problem.hierarchy.components if c.name in held
    )


def _capacity(counts: Counts, chain: FusedChain, component: str) -> CapacityFormula:
    mine = [b for b in counts.analysis.buffets if b.component == component]
    shares = tuple(_share(counts, chain, b) for b in mine)
    maximal = tuple(
        (e, sum(s.bits for s in shares if e in s.einsums and not s.additive)) for e in chain.einsums
    )
    variant = "ffmr_drop" if chain.fused else "untiled_fused"
    if any(s.additive and _co_iterated(counts.problem, chain, s) for s in shares):
        variant = "ffmr_retain"
    peaks = [w for w in counts.analysis.working_sets if (w.component, w.measure) == (component, "tile")]
    tree = max((w.bits for w in peaks), default=0)
    found = CapacityFormula(component, variant, shares, maximal, tree, False)
    equal = _settled(counts.problem, chain) and _equal(counts.problem, chain, found)
    return CapacityFormula(component, variant, shares, maximal, tree, equal)


def _share(counts: Counts, chain: FusedChain, b: Buffet) -> FootprintShare:
    """A tensor is additive if it stays from one fused iteration to the next, or if no fused loop moves it."""
    bits = stored_bits(counts, b.tensor, b.tile_max, b.parent is None)
    share = FootprintShare(b.tensor, b.node, b.einsums, bits, bool(chain.fused))
    above = any(i > b.node for i, _ in chain.fused)
    stays = above or b.reuse.stays_over("moving") or not _co_iterated(counts.problem, chain, share)
    return FootprintShare(b.tensor, b.node, b.einsums, bits, bool(chain.fused) and stays)


def _co_iterated(problem: Problem, chain: FusedChain, share: FootprintShare) -> bool:
    """True if a fused loop goes over a rank of the tensor, in some Einsum that uses it.

    Of an Einsum that a loop infers every tensor is taken to follow the loop; of one that it repeats, none.
    """
    for einsum in share.einsums:
        tied = ties(problem.cascade, problem.tree, einsum)
        indexed = problem.cascade[einsum].access_of(share.tensor).variables
        for i, loop in chain.fused:
            if tied[i] == "inferred" or (tied[i] == "bound" and loop.variable_in(einsum) in indexed):
                return True
    return False


def _settled(problem: Problem, chain: FusedChain) -> bool:
    """True if the first tiles of all loops are the largest, for all tensors simultaneously."""
    for einsum in chain.einsums:
        e = problem.cascade[einsum]
        if len(essential_constraints(e)) > 2 * len(e.rank_variables):
            return False
        if set(ties(problem.cascade, problem.tree, einsum).values()) - {"bound"}:
            return False
        if any(
            loop.initial_tile_shape not in (None, loop.tile_shape) for _, loop in problem.tree.loops(einsum)
        ):
            return False
    return not any(isinstance(n, StorageNode) and n.reuse.carries for _, n, _ in problem.tree.walk())


def _equal(problem: Problem, chain: FusedChain, found: CapacityFormula) -> bool:
    """True if a whole tile of the largest M_i is resident together with all additive tensors: see
    docs/semantics.md."""
    if not chain.fused:
        return True
    added = [s for s in found.shares if s.additive]
    ranges = [_iterations(problem, chain, e) for e in chain.einsums]
    if any(s.node > chain.fused[0][0] for s in added) or any(r != ranges[0] for r in ranges):
        return False
    trips, full = ([n for n, _ in ranges[0][1]], [n for _, n in ranges[0][1]])
    most = max(bits for _, bits in found.maximal)
    for place, (_, bits) in enumerate(found.maximal):
        users = [[chain.einsums.index(e) for e in s.einsums] for s in added]
        later = any(min(u) > place for u in users)
        earlier = any(max(u) < place for u in users)
        left = prod(full) - later - (earlier and trips == full)
        if bits == most and min(trips) > 1 and left > 0:
            return True
    return False


Range = tuple[tuple[tuple[int, int], ...], tuple[tuple[int, int], ...]]


def _iterations(problem: Problem, chain: FusedChain, einsum: str) -> Range:
    """Ranges of the variables that an Einsum's fused loops go over, and of each loop the iterations and
    those of them with a whole tile (of the first instance, where spatial loops stand above)."""
    enclosing: dict[str, int] = {}
    result, bounds = [], []
    for i, loop in problem.tree.loops(einsum):
        if i > chain.split:
            break
        v = loop.variable_in(einsum)
        low, high = problem.cascade[einsum].bound(v)
        extent, tile = enclosing.get(v, high - low + 1), int(loop.tile_shape)
        if not loop.spatial:
            result.append((-(-extent // tile), extent // tile))
        bounds.append((low, high))
        enclosing[v] = tile
    return tuple(bounds), tuple(result)


def ffmr(counts: Counts) -> Table:
    """One row per memory: the formula's capacity and the tree's, in bits of one instance.

    `variant`: ffmr_drop, ffmr_retain or untiled_fused. `additive` lists what counts for all Einsums,
    `maximal` the M_i. `tree_bits` is the peak of whole tiles (working set, measure `tile`), never more than
    `formula_bits`; `sure`: whether the two are sure to be equal.
    """
    columns = (
        Column("component"), Column("variant"), Column("additive_bits", "bit"), Column("additive"),
        Column("maximal_bits", "bit"), Column("maximal"), Column("formula_bits", "bit"),
        Column("tree_bits", "bit"), Column("equal"), Column("sure"),
    )  # fmt: skip
    rows: list[tuple[Cell, ...]] = []
    for c in capacities(counts):
        added = ", ".join(f"{s.tensor} {engineering(s.bits, 'bit')}" for s in c.shares if s.additive)
        largest = ", ".join(f"{e} {engineering(bits, 'bit')}" for e, bits in c.maximal)
        rows.append((
            c.component, c.variant, c.additive_bits, added, c.formula_bits - c.additive_bits, largest,
            c.formula_bits, c.tree_bits, c.formula_bits == c.tree_bits, c.equal,
        ))  # fmt: skip
    return Table("ffmr", columns, tuple(rows))


# The results of an evaluation.


@dataclass(frozen=True, eq=False)
class Evaluated(Answer):
    """The costs of one mapping: the counts, everything derived from them, and their tables."""

    CALLED: ClassVar[str] = "Report"

    problem: Problem
    analysis: Analysis
    costs: Costs
    engine: Engine
    seconds: float = 0.0
    template: LoopTree | None = None
    names: Mapping[str, str] = field(default_factory=dict)
    folder: str = ""
    spec: Spec | None = None

    # the summary comes first: it is the default table
    @declared
    def summary(self) -> Table:
        """Operations, seconds and joules per Einsum and in total."""
        return tables.summary(self.costs)

    @declared
    def tiles(self) -> Table:
        """Tile sizes (what a storage node holds at a time), their sums over all stamps, and the number of
        stamps."""
        return self.lived("tiles", True)

    @declared
    def accesses(self) -> Table:
        """Bits read, written, filled and drained by all instances in all executions."""
        return tables.accesses(self.counts)

    @declared
    def reuse(self) -> Table:
        """Distinct elements held, accesses, bits exchanged with the parent, and the traffic under each reuse
        policy: the difference is what a better placement could save."""
        return tables.reuse(self.counts, *self.policies)

    @declared
    def lifetimes(self) -> Table:
        """The Einsums, and branches of a split, during which each tile is live."""
        return self.lived("lifetimes", True)

    @declared
    def working_sets(self) -> Table:
        """Peak occupancy of a memory over the phases of each Einsum, against its size, by each `measure`.
        `checked` marks the measure that the capacity is checked against: use `query("checked")` before taking
        the largest, since `reserved` ignores lifetimes."""
        return self.lived("working_sets", True)

    @declared
    def latency(self) -> Table:
        """Busy seconds of each component for each Einsum."""
        return tables.latency(self.costs)

    @declared
    def energy(self) -> Table:
        """Joules of every action, and the provenance of each number."""
        return tables.energy(self.costs)

    @declared
    def bottleneck(self) -> Table:
        """The component that limits each Einsum, and the next one."""
        return tables.bottleneck(self.costs)

    @declared
    def roofline(self) -> Table:
        """The position of each Einsum under its roofline."""
        return tables.roofline(self.costs.roofline)

    @declared
    def group_roofline(self) -> Table:
        """The position of each group of fused Einsums under its roofline: Einsums that share a loop, or of
        which one passes the other a tensor that is not stored in the outermost memory."""
        return tables.roofline(self.grouped, "group_roofline")

    @declared
    def area(self) -> Table:
        """Area per component."""
        return tables.area(self.costs)

    @declared
    def fusion(self) -> Table:
        """The Einsums that loops infer or repeat: recomputed operations, and the reads that they cause."""
        return fusion(self.counts, *self.retained)

    @declared
    def pipelines(self) -> Table:
        """Overlapping stages: slots and phases of every pipeline."""
        return tables.pipelines(self.costs)

    @declared
    def passes(self) -> Table:
        """The least number of passes over each rank of each input, whatever the mapping: another pass begins
        where an Einsum reads the result of a reduction over the rank and itself iterates over that rank."""
        return tables.passes(passes(self.problem.cascade))

    def __post_init__(self) -> None:
        remedy = "pm.evaluate(spec) makes reports"
        check_classes(self, remedy, {"problem": Problem, "analysis": Analysis, "costs": Costs})

    @property
    def feasible(self) -> bool:
        """True if all tensors fit into the memories where the mapping stores them."""
        return not self.costs.violations

    @property
    def violations(self) -> tuple[CapacityViolation, ...]:
        """Memories that are too small: the Einsum, the tensors, required and available bits."""
        return self.costs.violations

    @property
    def total_energy(self) -> float:
        """Joules."""
        return self.costs.total_energy

    @property
    def total_latency(self) -> float:
        """Seconds."""
        return self.costs.total_latency

    @property
    def total_area(self) -> float:
        """Square metres."""
        return self.costs.total_area

    @cached_property
    def notes(self) -> tuple[str, ...]:
        """Remarks on the figures: the engine's notes, outputs that are written only in part, names that look
        misspelt, and where a TeAAL mapping differs from its spec."""
        from polymodel.loading.typos import likely_typos
        from polymodel.workload.spaces import unwritten

        own = self.spec.own_remarks if self.spec is not None else ()
        told = (*self.analysis.notes, *likely_typos(self.problem.cascade), *own)
        return told + tuple(
            f"{tensor} has {' x '.join(map(str, sizes))} elements, {count} of which no iteration writes, "
            f"e.g. {tensor}[{', '.join(map(str, element))}]"
            for tensor, sizes, count, element in unwritten(self.problem.cascade)
        )

    @cached_property
    def counts(self) -> Counts:
        return Counts(self.problem, self.analysis)

    @cached_property
    def grouped(self) -> tuple[RooflinePoint, ...]:
        """The position of each group of fused Einsums under its roofline."""
        return group_roofline(self.counts, self.costs.times, self.costs.latency)

    @cached_property
    def figures(self) -> CostFigures:
        """The quantities of which objectives are composed."""
        return CostFigures(self.counts, self.costs)

    def value(self, objective: str) -> float:
        """The value of an objective named as in searches: `edp`, `utilisation`, `accesses:DRAM`,
        `working_set:GLB` and so on (`polymodel.objectives`). Raises SpecError for an unknown name."""
        return objective_value(objective, self.problem.hierarchy, self.figures)

    @cached_property
    def _live(self) -> tuple[Analysis | None, tuple[str, ...]]:
        """The analysis with lifetimes of elements, or the reason why it is missing."""
        if any(b.live is not None for b in self.analysis.buffets):
            return self.analysis, ()
        try:
            return self.engine.analyse(self.problem, live=True), ()
        except Refused as refusal:
            return None, (f"live figures are left out: {refusal.message}",)

    @cached_property
    def policies(self) -> tuple[dict[str, tuple[Traffic, ...]], tuple[str, ...]]:
        """The traffic under each reuse policy, and the reason for each that is missing."""
        given = {b.reuse for b in self.analysis.buffets if b.parent is not None}
        result: dict[str, tuple[Traffic, ...]] = {}
        notes: list[str] = []
        for policy in Reuse:
            if given == {policy}:
                result[policy] = self.analysis.traffic
                continue
            try:
                broken = () if self._stays_legal(policy) else check(self.problem, policy)
                if broken:
                    notes.append(f"{policy} is left out: {broken[0].message}")
                    continue
                result[policy] = self.engine.traffic(self.problem, reuse=policy)
            except Refused as refusal:
                notes.append(f"{policy} is left out: {refusal.message}")
        return result, tuple(notes)

    def _stays_legal(self, policy: Reuse) -> bool:
        """True if the mapping is known to be legal under a policy: where each Einsum executes once, every
        element found under the mapping's own policies is found under one that keeps at least as much."""
        if loop_notes(self.problem.cascade, self.problem.tree):
            return False
        return all(policy.keeps(Reuse(b.reuse)) for b in self.analysis.buffets)

    @cached_property
    def retained(self) -> tuple[Analysis | None, tuple[str, ...]]:
        """The analysis if no inferred iteration were executed twice, or the reason why it is missing."""
        try:
            other = retained(self.problem)
            if other is self.problem:
                return self.analysis, ()
            broken = check(other)
            if broken:
                return None, (f"extra traffic is left out: {broken[0].message}",)
            return self.engine.analyse(other), ()
        except Refused as refusal:
            return None, (f"extra traffic is left out: {refusal.message}",)

    def table(self, name: str = "", *, live: bool = True) -> Table:
        """One table as plain data, by default the summary. Raises SpecError for an unknown name.

        `live=False` leaves out lifetimes of elements that are not counted yet.
        """
        return super().table(name) if live or name not in LIVED else self.lived(name, False)

    def lived(self, name: str, live: bool) -> Table:
        """A table with lifetimes of elements, which are counted on demand if `live`."""
        analysis, notes = self._live if live else (self.analysis, ())
        if name == "working_sets":
            held = self.costs.needs if analysis is None else needs(Counts(self.problem, analysis))
            return tables.working_sets(held, notes)
        buffets = (analysis or self.analysis).buffets
        peaks = {(b.node, b.tensor): b.live for b in buffets if b.live is not None}
        make = tables.tiles if name == "tiles" else tables.lifetimes
        return make(self.counts, peaks, notes)

    def ffmr(self) -> pandas.DataFrame:
        """Capacity of a fused chain by the additive and maximal formula, next to the tree's working set.

        See `report.evaluated.ffmr`. Raises Refused with the reason for mappings of another form.
        """
        return ffmr(self.counts).frame()

    def sensitivity(self, of: Cost = "energy") -> pandas.DataFrame:
        """Elasticities of `energy` or `latency` with respect to every number of the architecture: energies,
        throughputs, leakage, latencies, sizes. See `report.tables.sensitivity`; raises SpecError for another
        cost."""
        if of not in ("energy", "latency"):
            message = f"there is no sensitivity of {of!r}"
            raise SpecError([Diagnostic(message, "energy or latency", code="unknown-choice")])
        return tables.sensitivity(self.counts, self.costs, of).frame()

    def keeping(self) -> AbstractContextManager[None]:
        """While files are written, none of the files that the spec was read from can be overwritten."""
        return protected_files(self.spec)


LIVED = ("tiles", "lifetimes", "working_sets")  # tables with lifetimes of elements
TABLES = tuple(Evaluated.declared)
