"""The legality of a mapping, decided before anything is counted; every engine relies on it.

Every element is complete, and still held, when it is read; instances may add up what they sum.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from typing import Protocol

from polymodel.architecture.hierarchy import Hierarchy
from polymodel.errors import Diagnostic, Refused, SpecError
from polymodel.frozen import dataclass
from polymodel.mapping.checks import check_mapping
from polymodel.mapping.looptree import (
    Loop,
    LoopTree,
    StorageNode,
    around,
    decided_above,
    storage_chain,
    ties,
    users,
)
from polymodel.mapping.resolve import ResolvedMapping
from polymodel.polyhedra import needs, sets, steps
from polymodel.reuse import Reuse, override
from polymodel.schedule import relations
from polymodel.schedule.executed import (
    Unexecutable,
    executed,
    lost,
    node_touches,
    parting,
    produced_for,
    retained_axes,
    scattered,
    unfinished,
)
from polymodel.schedule.touch import ExecutedPart, Factor, View, inner_offsets, loop_origins, partition, touch
from polymodel.spec.faults import Faults
from polymodel.workload.einsum import Cascade, Einsum, TensorAccess

# Reductions across instances: outputs spread over fanout dimensions that do not index them.


def unreduced(
    cascade: Cascade, hierarchy: Hierarchy, tree: LoopTree, parts: Mapping[str, tuple[ExecutedPart, ...]]
) -> Iterator[Diagnostic]:
    """Each spatial loop over a summed variable whose dimension may not reduce that output. Loops above the
    output's outermost storage are checked by `_split_sum`: nothing at all adds up what they spread."""
    for name in tree.einsums:
        einsum = cascade[name]
        for output in () if einsum.is_copy else einsum.outputs:
            home = storage_chain(tree, name, output.tensor)[0].id
            for position, (node, loop) in enumerate(tree.loops(name)):
                variable = loop.variable_in(name)
                if not loop.spatial or node < home or variable in output.variables:
                    continue
                dim = hierarchy[loop.component].dim(loop.dim)
                if variable not in einsum.rank_variables or dim.reuses(name, output.tensor):
                    continue
                if not _uses_several_instances(cascade, tree, einsum, output, parts[name], position):
                    continue
                yield Diagnostic(
                    f"output {output.tensor} of {name} is spread over {loop.component}.{loop.dim} by the loop"
                    f" over {variable} (node {node}), which does not index it, but the dimension may not "
                    "reduce it",
                    f"add {output.tensor} to may_reuse of {loop.component}.{loop.dim}, or unroll another "
                    "rank variable there",
                    path="mapping",
                    code="unreduced-output",
                )


def _uses_several_instances(
    cascade: Cascade,
    tree: LoopTree,
    einsum: Einsum,
    output: TensorAccess,
    parts: tuple[ExecutedPart, ...],
    position: int,
) -> bool:
    """True if the loop at a position of the Einsum's path uses more than one instance."""
    view = View(einsum, output, loop_origins(cascade, tree, einsum.name), parts=parts)
    for factor in touch((view,), partition((view,))).factors:
        if position in factor.spatial:
            low, high = needs.extent(factor.text, factor.spatial.index(position))
            return high > low
    return False


# The number of Einsums that may read one tensor, since legality compares every pair of them.

MAX_READERS = 100  # each pair takes about 0.5 ms


def check_readers(cascade: Cascade, tree: LoopTree, tensor: str) -> None:
    """Raises Refused if more Einsums of the mapping read a tensor than can be compared in a few seconds."""
    readers = sum(e.name in tree.paths for e in cascade.consumers(tensor))
    if readers > MAX_READERS:
        what = (
            f"{tensor} is read by {readers} Einsums of a mapping; legality is decided for up to {MAX_READERS}"
        )
        raise Refused(what, "map parts of the workload separately", code="unsupported-recurrence")


# Dependences.


class Mapped(Protocol):
    """A workload on an architecture under a LoopTree."""

    @property
    def cascade(self) -> Cascade: ...
    @property
    def hierarchy(self) -> Hierarchy: ...
    @property
    def tree(self) -> LoopTree: ...


def check(problem: Mapped, reuse: str | None = None, *, every: bool = True) -> tuple[Diagnostic, ...]:
    """One diagnostic per broken dependence (docs/semantics.md, Legality), with Einsums, loop and an element,
    and one per loop that spreads an output over a fanout that may not reduce it. `reuse`: the policy of every
    storage node, instead of its own. `every`: also check dependences that hold at all tile sizes or at none.
    Raises Refused if it takes too long."""
    policy = override(reuse)
    result: list[Diagnostic] = []
    cascade, tree = problem.cascade, problem.tree
    try:
        case = Case(problem, executed(cascade, tree, policy))
    except Unexecutable as why:
        return (Diagnostic(why.message, why.remedy, path="mapping", code="illegal-dependence"),)
    result += _repeated_accumulations(case)
    result += unreduced(cascade, problem.hierarchy, tree, case.parts)
    for tensor in cascade.tensors:
        producer = cascade.producer(tensor)
        if producer is None or producer.name not in tree.paths:
            continue
        exempt = producer.is_copy or case.parts[producer.name]
        if fault := None if exempt else _split_sum(case, tensor, producer.name):
            result.append(fault)
            continue
        check_readers(cascade, tree, tensor)
        for consumer in cascade.consumers(tensor):
            at_once = produced_for(cascade, tree, tensor, consumer.name)
            if consumer.name in tree.paths and (every or not at_once):
                reads = (a for a in consumer.accesses_of(tensor) if not a.output)
                pairs = (Dependence(tensor, producer.name, consumer.name, a) for a in reads)
                behind = tree.einsums.index(consumer.name) > tree.einsums.index(producer.name)
                decide = _dependence if behind else _generation
                faults = (decide(case, pair, policy) for pair in pairs)
                result += [fault for fault in faults if fault is not None][:1]
    return tuple(result)


def never_produced(cascade: Cascade) -> str:
    """Return the elements that an Einsum reads and the producer never produces, under any mapping; empty if
    there are none."""
    for tensor in cascade.tensors:
        producer = cascade.producer(tensor)
        for consumer in cascade.consumers(tensor) if producer is not None else ():
            if producer is None:
                continue
            for access in consumer.accesses_of(tensor):
                fault = _never_produced(cascade, Dependence(tensor, producer.name, consumer.name, access))
                if fault is not None:
                    return fault.message
    return ""


def _never_produced(cascade: Cascade, pair: Dependence) -> Diagnostic | None:
    """An element that is read and that no iteration of the producer produces."""
    producer, consumer = cascade[pair.producer], cascade[pair.consumer]
    views = [View(producer, producer.access_of(pair.tensor), ()), View(consumer, pair.read, ())]
    blocks = partition(views)
    element = relations.never(*(touch((v,), blocks).factors for v in views))
    if element is None:
        return None
    message = f"{pair.consumer} reads {pair.tensor} but {pair.producer} never produces it"
    return _fault(pair.tensor, views[0], element, message, "shrink the consumer's ranks")


@dataclass(frozen=True)
class Dependence:
    """An access that reads what an Einsum, possibly the same one, writes of a tensor."""

    tensor: str
    producer: str
    consumer: str
    read: TensorAccess


@dataclass(frozen=True)
class Case:
    """A problem, and the executed parts of Einsums that some loop above does not bind."""

    problem: Mapped
    parts: dict[str, tuple[ExecutedPart, ...]]

    @property
    def tree(self) -> LoopTree:
        return self.problem.tree

    @property
    def cascade(self) -> Cascade:
        return self.problem.cascade


def _repeated_accumulations(problem: Case) -> Iterator[Diagnostic]:
    """Faults of Einsums that add to existing values and execute more than once: they would add again."""
    for name in problem.tree.einsums:
        for access in problem.cascade[name].outputs:
            if access.accumulates and problem.parts[name]:
                node = decided_above(ties(problem.cascade, problem.tree, name))
                message = f"{name} adds to {access.tensor}, and would do so in every iteration of node {node}"
                remedy = f"bind a rank variable of {name} there, or move the loop into the other branches"
                yield Diagnostic(message, remedy, path="mapping", code="illegal-dependence")


def _split_sum(problem: Case, tensor: str, producer: str) -> Diagnostic | None:
    """Fault of one element summed in several instances of its outermost storage: nothing above adds these
    up."""
    chain = storage_chain(problem.tree, producer, tensor)
    above = [loop for i, loop in problem.tree.loops(producer) if chain and i < chain[0].id]
    if not any(loop.spatial for loop in above):
        return None
    view = _write(problem, producer, tensor, len(above))
    node = node_touches(view, view, (view,))
    element = scattered(node)
    if element is None:
        return None
    return _fault(
        tensor,
        view,
        element,
        f"{producer} sums {tensor} up in several instances of its outermost storage (node {chain[0].id}), "
        "above which nothing adds them",
        f"store {tensor} above the spatial loop as well, or let that loop index it",
    )


def _dependence(problem: Case, pair: Dependence, reuse: Reuse | None) -> Diagnostic | None:
    tree, tensor, producer, consumer = problem.tree, pair.tensor, pair.producer, pair.consumer
    blocks = partition(_ends(problem, pair))
    views = _ends(problem, pair, _shared_loops(tree, pair))
    made, read = (touch((v,), blocks).factors for v in views)
    where = f"{consumer} reads {tensor}"
    if problem.parts[producer]:
        # What is inferred is what is needed; whether the producer can produce it at all is checked
        # separately.
        at_once = produced_for(problem.cascade, tree, tensor, consumer)
        again = None if at_once else _recomputed(problem, pair, views[0], (made, read))
        return _never_produced(problem.cascade, pair) or again
    never = relations.never(made, read)
    if never is not None:
        message = f"{where} but {producer} never produces it"
        return _fault(tensor, views[0], never, message, _production_remedy(problem.cascade, pair))
    positions = sorted(p for f in made for p in f.temporal)
    return _unfinished(problem, pair, views[0], (made, read), positions) or _home(problem, pair, reuse)


def _production_remedy(cascade: Cascade, pair: Dependence) -> str:
    """The remedy for a read of elements that are never produced. `init` applies to a box of a tensor that is
    carried forward, or that is read at an earlier index than it is written at."""
    tensor, maker, reader = pair.tensor, cascade[pair.producer], cascade[pair.consumer]
    made, read = maker.access_of(tensor), reader.access_of(tensor)
    ranks = zip(made.projection, read.projection, strict=True)
    behind = any(a.terms == b.terms and b.constant < a.constant for a, b in ranks)
    if tensor not in cascade.recurrent and not behind:
        within = f"bound {reader.name} to what {maker.name} writes (iteration_space_shape)"
        return f"{within}, or let {maker.name} write everything that is read"
    if not sets.is_box(maker.relation(made).range()):
        why = f"init: {{{tensor}: 0}} requires that what it writes of {tensor} is a box"
        return f"let {maker.name} execute over all of its ranks, without bounds that tie them: {why}"
    return f"shrink the ranks of {reader.name}, or give the values before: init: {{{tensor}: 0}}"


def _generation(problem: Case, pair: Dependence, reuse: Reuse | None) -> Diagnostic | None:
    """Fault of a read, by the producer or an Einsum before it, of an earlier iteration: it must be produced
    by then. Every operation that produces an element must come strictly before each one that reads it, in
    stamp order."""
    tree, tensor, producer, consumer = problem.tree, pair.tensor, pair.producer, pair.consumer
    again = next((e for e in (producer, consumer) if problem.parts[e]), None)
    if again is not None:
        raise Refused(
            f"{tensor} is carried from one iteration to the next, and what {again} executes is decided by "
            "loops that do not bind it",
            f"bind a rank variable of {again} in each loop above it",
            code="unsupported-recurrence",
        )
    for p in around(tree, producer):
        if consumer in p.einsums and p.stage_of(consumer) != p.stage_of(producer):
            raise Refused(
                f"{tensor} is carried from {producer} to {consumer}, which another stage of the Pipeline "
                f"(node {p.node}) executes meanwhile",
                "write !Sequential, or put both into one stage",
                code="unsupported-pipeline",
            )
    ends = _in_time(problem, pair)
    blocks = partition(ends)
    made, read = (touch((v,), blocks).factors for v in ends)
    never = relations.never(made, read)
    if never is not None:
        message = f"{consumer} reads {tensor} but {producer} never produces it"
        return _fault(tensor, ends[0], never, message, _production_remedy(problem.cascade, pair))
    early = f"{consumer} reads {tensor} of an earlier iteration before {producer} has finished it"
    for position in sorted(p for f in made for p in f.temporal):
        late = relations.late(made, read, position)
        if late is not None:
            where, inside = ends[0].loops, position - len(ends[0].loops)
            at = (
                f"over {where[position][1].variable_in(producer)} (node {where[position][0]})"
                if inside < 0
                else f"inside a tile, over {ends[0].offsets[inside]},"
            )
            remedy = f"loop over {_carrying(problem, pair)} further out"
            return _fault(tensor, ends[0], late, f"{early}: iterations {at} come between", remedy)
    same = relations.together(made, read)
    if same is not None:
        remedy = f"put a temporal loop over {_carrying(problem, pair)} above them"
        message = f"{early}: no loop that both share carries it forward in time"
        return _fault(tensor, ends[0], same, message, remedy)
    return _home(problem, pair, reuse)


def _in_time(problem: Case, pair: Dependence) -> tuple[View, View]:
    """Both ends with all coordinates that order them: shared loops, for one Einsum also offsets in tiles."""
    if pair.producer != pair.consumer:
        return _ends(problem, pair, _shared_loops(problem.tree, pair))
    made, read = _ends(problem, pair)
    offsets = inner_offsets(made.einsum, made.loops)
    return replace(made, offsets=offsets), replace(read, offsets=offsets)


def _carrying(problem: Case, pair: Dependence) -> str:
    """The rank variable along which the producer carries a tensor forward."""
    access = problem.cascade[pair.producer].access_of(pair.tensor)
    ranks = dict(problem.cascade.generational).get(pair.tensor, access.ranks[:1])
    names = (
        v for r, x in zip(access.ranks, access.projection, strict=True) if r in ranks for v in x.variables
    )
    return next(names, "a rank variable of both")


def _shared_loops(tree: LoopTree, pair: Dependence) -> int:
    """The number of loops above the split at which two Einsums diverge."""
    split = parting(tree, pair.producer, pair.consumer)
    return sum(1 for i, _ in tree.loops(pair.producer) if i < split)


def _view(problem: Case, einsum: str, access: TensorAccess, loops: int | None = None) -> View:
    """One access of an Einsum with its loops, or with the outermost `loops` of them."""
    origins = loop_origins(problem.cascade, problem.tree, einsum)[:loops]
    return View(problem.cascade[einsum], access, origins, parts=problem.parts[einsum])


def _write(problem: Case, einsum: str, tensor: str, loops: int | None = None) -> View:
    return _view(problem, einsum, problem.cascade[einsum].access_of(tensor), loops)


def _ends(problem: Case, pair: Dependence, loops: int | None = None) -> tuple[View, View]:
    """The access that writes and the one that reads."""
    made = _write(problem, pair.producer, pair.tensor, loops)
    return made, _view(problem, pair.consumer, pair.read, loops)


def _below(problem: Case, tensor: str, names: Iterable[str], loops: int) -> tuple[View, ...]:
    """All accesses of a tensor by some Einsums, as seen by a node below `loops` loops."""
    return tuple(
        _view(problem, e, access, loops) for e in names for access in problem.cascade[e].accesses_of(tensor)
    )


def _unfinished(
    problem: Case,
    pair: Dependence,
    view: View,
    factors: tuple[tuple[Factor, ...], tuple[Factor, ...]],
    positions: Iterable[int],
) -> Diagnostic | None:
    """An element that is read before it is complete, because of a loop at one of the positions."""
    tensor, producer, consumer = pair.tensor, pair.producer, pair.consumer
    for position in positions:
        late = None if view.loops[position][1].spatial else relations.late(*factors, position)
        if late is not None:
            node, loop, _ = view.loops[position]
            return _fault(
                tensor,
                view,
                late,
                f"{consumer} reads {tensor} before {producer} has finished it: the loop over "
                f"{loop.variable_in(producer)} (node {node}) stands above their split",
                "move that loop below the split, or "
                + (_recompute(problem, pair, loop) or "bind it to a rank variable that keeps the dependence"),
            )
    return None


def _recompute(problem: Case, pair: Dependence, loop: Loop) -> str:
    """Remedy for a consumer with a halo: its own variable alone, so that the loop infers the producer. Empty
    if the loop binds the two by anything other than a rank of which the consumer reads windows."""
    producer, consumer = pair.producer, pair.consumer
    makes = problem.cascade[producer]
    theirs, own = loop.variable_in(producer), loop.variable_in(consumer)
    ranks = zip(makes.access_of(pair.tensor).projection, pair.read.projection, strict=True)
    if not any(theirs in a.variables and own in b.variables and len(b.variables) > 1 for a, b in ranks):
        return ""
    bound = f"loop over {own} of {consumer} alone"
    if own in makes.rank_variables:
        bound = f"give {producer} another name for {own}, so that the loop binds {consumer} alone"
    return f"{bound}: {producer} then produces what {consumer} needs, and recomputes halos that are not kept"


def _recomputed(
    problem: Case, pair: Dependence, view: View, factors: tuple[tuple[Factor, ...], tuple[Factor, ...]]
) -> Diagnostic | None:
    """Fault of a producer that infers or repeats its operations below its loops, if another consumer does not
    find its results. What it executes is complete (`executed`) and precedes the consumers of that
    iteration."""
    tree, tensor, producer, consumer = problem.tree, pair.tensor, pair.producer, pair.consumer
    tied = ties(problem.cascade, tree, producer)
    node = decided_above(tied)
    home = storage_chain(tree, producer, tensor)[0]
    if storage_chain(tree, consumer, tensor)[0].id != home.id:
        return _homeless(producer, consumer, tensor)
    if consumer in users(tree, node) and tied[node] == "inferred":
        inner = [p for p, (i, _, _) in enumerate(view.loops) if i > node]
        above = sum(1 for i, _, _ in view.loops if i < home.id)
        made, read = (tuple(_by_instance(f, above) for f in one) for one in factors)
        late = _unfinished(problem, pair, view, (made, read), inner)
        below = [p for p in inner if view.loops[p][0] < home.id]
        return late or _dropped(problem, pair, node, below)
    shared = len(view.loops)  # all above the split: an iteration's results are read in that iteration
    lacking = [steps.missing(b.text, a.text, 0) for a, b in zip(*factors, strict=True)]
    if all(x is None for x in lacking) and sum(1 for i, _ in tree.loops(producer) if i < home.id) <= shared:
        return None
    element = relations.never(*factors) or {}
    return _fault(
        tensor,
        view,
        element,
        f"{consumer} reads {tensor}, which {producer} executes only as Einsums below node {node} need it",
        f"put {consumer} below that loop, or bind a variable of {producer} with rank_variable",
    )


def _by_instance(factor: Factor, loops: int) -> Factor:
    """The factor with the instances of the outermost `loops` loops as data: each produces its own
    elements."""
    moved = [k for k, a in enumerate(factor.spatial) if a < loops]
    if not moved:
        return factor
    stamps = len(factor.spatial) + len(factor.temporal)
    names = [f"c{k}" for k in range(stamps)] + [f"x{k}" for k in range(len(factor.ranks))]
    order = [*(n for k, n in enumerate(names) if k not in moved), *(names[k] for k in moved)]
    text = needs.image((factor.text,), f"{{ [{', '.join(names)}] -> [{', '.join(order)}] }}")
    return replace(factor.of_text(text), spatial=factor.spatial[len(moved) :])


def _dropped(problem: Case, pair: Dependence, node: int, loops: list[int]) -> Diagnostic | None:
    """Fault of a read of what the producer's outermost storage has dropped: below loops of the producer's own
    it holds only what their iteration produces. `node`: the loop at which it is decided what the producer
    executes."""
    if not loops:
        return None
    tensor, producer, consumer = pair.tensor, pair.producer, pair.consumer
    views = _ends(problem, pair, loops[-1] + 1)
    blocks = partition(views)
    made, read = (touch((v,), blocks).factors for v in views)
    named = ", ".join(
        f"{views[0].loops[p][1].variable_in(producer)} (node {views[0].loops[p][0]})" for p in loops
    )
    remedy = f"store {tensor} above these loops"
    each = replace(views[0], versions=tuple(i for i, _, _ in views[0].loops if i <= node))
    element = relations.in_part(touch((each,), partition((each,))).factors, len(each.access.projection))
    if element is not None:
        message = (
            f"several iterations of the loops over {named} add up what {producer} produces of {tensor} for "
            f"{consumer}, but the storage of {tensor} is below them"
        )
        return _fault(tensor, each, element, message, remedy)
    lacking = [steps.missing(b.text, a.text, 0) for a, b in zip(made, read, strict=True)]
    if all(x is None for x in lacking):
        return None
    message = (
        f"{consumer} reads {tensor} in another iteration of the loops over {named} than the one that "
        f"produces it, but the storage of {tensor} is below them"
    )
    return _fault(tensor, views[0], relations.never(made, read) or {}, message, remedy)


def _home(problem: Case, pair: Dependence, reuse: Reuse | None) -> Diagnostic | None:
    """Fault of a read at the outermost storage node of an element that is not there, or not complete."""
    tree, tensor, producer, consumer = problem.tree, pair.tensor, pair.producer, pair.consumer
    home = storage_chain(tree, producer, tensor)[0]
    if storage_chain(tree, consumer, tensor)[0].id != home.id:
        return _homeless(producer, consumer, tensor)
    assert isinstance(home.node, StorageNode)
    loops = sum(1 for i, _ in tree.loops(producer) if i < home.id)
    made, read = _ends(problem, pair, loops)
    node = node_touches(made, read, _below(problem, tensor, users(tree, home.id), loops))
    where = f"{home.node.component} (node {home.id})"
    policy = reuse or home.node.reuse
    element = lost(
        node,
        policy,
        f"whether {where} holds all that {producer} writes of {tensor} when {consumer} reads it "
        "takes too long to decide",
        f"store {tensor} above the loops over it that stand above its storage",
    )
    if element is None:
        return _inner(problem, pair, reuse)
    return _fault(
        tensor,
        made,
        element,
        f"{consumer} reads {tensor} where {where} does not hold all that {producer} writes of it, "
        f"under reuse: {policy}",
        f"store {tensor} above the loops between, or tile both Einsums alike",
    )


def _homeless(producer: str, consumer: str, tensor: str) -> Diagnostic:
    message = f"{producer} and {consumer} share no storage node of {tensor}"
    return Diagnostic(message, f"store {tensor} above the split of the two", code="missing-storage")


def _inner(problem: Case, pair: Dependence, reuse: Reuse | None) -> Diagnostic | None:
    """Fault of a read at an inner shared storage node while parts of the element are in other instances."""
    tree, tensor, producer, consumer = problem.tree, pair.tensor, pair.producer, pair.consumer
    if any(problem.cascade[e].is_copy for e in (producer, consumer)):
        return None  # copies touch only outermost nodes
    theirs = {s.id for s in storage_chain(tree, consumer, tensor)}
    above = -1
    stays: tuple[int, ...] | None = None  # axes over which the parent keeps elements; None: all
    for step in storage_chain(tree, producer, tensor):
        if step.id not in theirs:
            break
        assert isinstance(step.node, StorageNode)
        loops = [loop for i, loop in tree.loops(producer) if i < step.id]
        policy = reuse or step.node.reuse
        if above >= 0:
            names = [e for e in users(tree, step.id) if not problem.cascade[e].is_copy]
            below, ends = _below(problem, tensor, names, len(loops)), _ends(problem, pair, len(loops))
            node = node_touches(*ends, below)
            kept = tuple(
                a for a in retained_axes(node.all, policy) if a >= above or stays is None or a in stays
            )
            where = f"{step.node.component} (node {step.id})"
            element = unfinished(
                below,
                ends,
                kept,
                f"whether {where} holds all of {tensor} in one instance when {consumer} reads it "
                "takes too long to decide",
                f"store {tensor} below the split, once for each branch, instead of in node {step.id}",
            )
            if element is not None:
                return _fault(
                    tensor,
                    ends[0],
                    element,
                    f"{consumer} reads {tensor} in {where} while other instances still hold parts "
                    f"that {producer} wrote",
                    f"store {tensor} below the split, once for each branch, instead of in node {step.id}",
                )
            stays = kept
        above = len(loops)
    return None


def _fault(tensor: str, view: View, element: relations.Element, message: str, remedy: str) -> Diagnostic:
    if element:
        ranks = view.access.ranks
        named = ", ".join(f"{ranks[r]}={v}" for r, v in sorted(element.items()))
        message = f"{message} (for example {tensor}[{named}])"
    return Diagnostic(message, remedy, path="mapping", code="illegal-dependence")


# The single check of mappings: every engine receives only mappings that passed it. Structure comes first
# (`mapping.checks`), since a mapping with structural faults has no meaningful dependences; then dependences
# and reductions. Engines refuse only what they cannot count.


def faults_of(problem: Mapped) -> tuple[Diagnostic, ...]:
    """Every fault of a mapping whose tile shapes are numbers; empty if it may be counted. Raises Refused if
    that takes too long to decide, or is not supported."""
    faults = Faults()
    check_mapping(ResolvedMapping(problem.tree), problem.cascade, problem.hierarchy, faults)
    return tuple(faults.found) or check(problem)


def require_legal(problem: Mapped) -> None:
    """Raises SpecError with every fault of the mapping."""
    faults = faults_of(problem)
    if faults:
        raise SpecError(faults)
