"""The iterations that execute at each stamp, for Einsums below loops that bind none of their variables.

Such an Einsum executes at each stamp what its consumers below the loop need and the outermost storage of its
output no longer holds (`inferred`), or everything again (`repeated`): docs/develop/rules.md, Loops and
executions. The stamps are those of the path down to the innermost such loop, where it is decided what
executes. Like everything else, the result is a product over independent classes of ranks, variables and
loops.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from functools import cached_property, partial
from typing import TYPE_CHECKING

from polymodel.errors import Refused
from polymodel.frozen import dataclass
from polymodel.mapping.looptree import (
    Loop,
    LoopTree,
    Split,
    StorageNode,
    Tie,
    decided_above,
    storage_chain,
    ties,
    users,
)
from polymodel.polyhedra import needs, steps
from polymodel.polyhedra.sets import bounded
from polymodel.polyhedra.steps import Order, Trace
from polymodel.reuse import Reuse
from polymodel.schedule.touch import (
    ExecutedPart,
    Factor,
    RankBlock,
    Touch,
    View,
    affine_in,
    chain,
    constraint_facts,
    joint_blocks,
    loop_origins,
    merge_blocks,
    partition,
    touch,
)
from polymodel.workload.einsum import Cascade, TensorAccess

if TYPE_CHECKING:
    import islpy


# Whether a storage node still holds, when an element is read, everything that was produced of it. The
# decision is exact. An instance holds an element without interruption as long as it touches it at every visit
# and the policy keeps it over every step between visits. So the element is lost if, for one stamp that
# produces it and one that reads it, the two are in different instances, or differ in a counter over whose
# steps nothing stays, or some visit between them does not touch it. Each is a union of products over the
# factors of the node, and a product has a point if each factor has one: no joint relation is ever built. See
# docs/semantics.md, Carry and Legality.

Query = Callable[[int], "islpy.Set"]  # elements that are lost, for the factor at a position


@dataclass(frozen=True)
class HeldTouches:
    """What one Einsum produces, another reads, and all users together hold, factor by factor."""

    made: Touch
    read: Touch
    all: Touch

    @cached_property
    def traces(self) -> tuple[Trace, ...]:
        triples = zip(self.made.factors, self.read.factors, self.all.factors, strict=True)
        return tuple(Trace(m.text, r.text, h.text, len(m.spatial), len(m.temporal)) for m, r, h in triples)

    def order(self, position: int, axis: int) -> Order:
        """The number of temporal axes of a factor before `axis`, and whether `axis` belongs to the factor."""
        mine = self.all.factors[position].temporal
        return sum(1 for a in mine if a < axis), axis in mine

    def elsewhere(self, axis: int, position: int) -> islpy.Set:
        """Elements lost because they were produced in another instance along `axis`."""
        mine = self.all.factors[position].spatial
        return steps.elsewhere(self.traces[position], mine.index(axis) if axis in mine else None)

    def revisited(self, axis: int, position: int) -> islpy.Set:
        """Elements lost because `axis` is the first counter that differs, and nothing stays over its
        steps."""
        return steps.revisited(self.traces[position], *self.order(position, axis))

    def dropped(self, after: int, before: int, idle: int, position: int) -> islpy.Set:
        """Elements lost because a visit in between, which differs from both at these axes, lacks them in
        factor `idle`."""
        orders = self.order(position, after), self.order(position, before)
        return steps.dropped(self.traces[position], *orders, position == idle)


def node_touches(producer: View, consumer: View, users: tuple[View, ...]) -> HeldTouches:
    """The touches of a node; every view has the loops above it, `users` are all views."""
    blocks = joint_blocks(users, partition(users))
    return HeldTouches(touch((producer,), blocks), touch((consumer,), blocks), touch(users, blocks))


def innermost_dependent(node: Touch) -> int:
    """The innermost temporal axis on which the tile depends, -1 if there is none."""
    result = -1
    for factor in node.factors:
        for q, axis in enumerate(factor.temporal):
            if axis > result and steps.depends(factor.text, len(factor.spatial), len(factor.temporal), q):
                result = axis
    return result


def lost(node: HeldTouches, reuse: Reuse, what: str, remedy: str) -> dict[int, int] | None:
    """An element that is read but not held, as rank -> index; None if there is none. Raises Refused, with
    `what` and `remedy`, if isl takes too long."""
    if all(
        steps.missing(t.read, t.made, 0) is None and steps.touched_once(t.made, t.np, t.nt)
        for t in node.traces
    ):
        return None  # everything is produced at the stamp that reads it
    with bounded(what, remedy):
        for query in _losses(node, reuse):
            element = _common(node, query)
            if element is not None:
                return element
    return None


def scattered(node: HeldTouches) -> dict[int, int] | None:
    """An element that is produced in one instance and read in another; None if there is none."""
    for axis in node.all.spatial:
        element = _common(node, partial(node.elsewhere, axis))
        if element is not None:
            return element
    return None


def retained_axes(node: Touch, reuse: Reuse) -> tuple[int, ...]:
    """The temporal axes over whose steps the policy keeps elements."""
    if not reuse.carries:
        return ()
    innermost = innermost_dependent(node) if reuse.by_tile else -1
    return tuple(a for a in node.temporal if reuse.stays(a, innermost))


def unfinished(
    users: tuple[View, ...], pair: tuple[View, View], kept: tuple[int, ...], what: str, remedy: str
) -> dict[int, int] | None:
    """An element that the second of `pair` reads in one instance while parts of it are still in another one;
    None if there is none. Partial sums are combined at the parent only when their runs end. Raises Refused as
    `lost` does."""
    blocks = partition(users)
    first, second, every = (touch(views, blocks) for views in (pair[:1], pair[1:], users))
    if scattered(HeldTouches(first, second, every)) is None:
        return None
    whole = merge_blocks(blocks, range(len(blocks)))
    (made,), (read,), (held_,) = (touch(views, whole).factors for views in (pair[:1], pair[1:], users))
    trace = Trace(made.text, read.text, held_.text, len(made.spatial), len(made.temporal))
    positions = tuple(held_.temporal.index(a) for a in kept)
    with bounded(what, remedy):
        point = steps.sample(steps.unfinished(trace, positions))
    return None if point is None else dict(zip(held_.ranks, point, strict=True))


def _losses(node: HeldTouches, reuse: Reuse) -> Iterator[Query]:
    """All ways to lose an element, each as a query that is applied to every factor."""
    for axis in node.all.spatial:
        yield partial(node.elsewhere, axis)
    kept = retained_axes(node.all, reuse)
    for axis in node.all.temporal:
        if axis not in kept:
            yield partial(node.revisited, axis)
    for idle in range(len(node.all.factors)):
        for after in kept:
            for before in kept:
                yield partial(node.dropped, after, before, idle)


def _common(node: HeldTouches, query: Query) -> dict[int, int] | None:
    """An element for which every factor has an answer to the query; None if some factor has none."""
    factors = node.all.factors
    answers = []
    for position in range(len(factors)):
        answers.append(query(position))
        if answers[-1].is_empty():
            return None
    points = (steps.sample(a) or () for a in answers)
    pairs = zip(factors, points, strict=True)
    return {rank: value for f, point in pairs for rank, value in zip(f.ranks, point, strict=True)}


# The iterations that execute.


class Unexecutable(Refused):
    """No order of execution obeys the mapping: the mapping is illegal, rather than unsupported."""

    code = "illegal-dependence"


class Mixed(Exception):
    """The blocks at these positions are not independent."""

    def __init__(self, which: set[int]) -> None:
        super().__init__(sorted(which))
        self.which = which


def executed(
    cascade: Cascade, tree: LoopTree, reuse: Reuse | None = None
) -> dict[str, tuple[ExecutedPart, ...]]:
    """The parts of every Einsum of the tree; empty for an Einsum that each loop above it binds. `reuse`
    overrides the policies that decide what is still held. Raises Unexecutable if there is no order of
    execution, Refused for what is not supported."""
    result = _Inference(cascade, tree, reuse)
    for name in reversed(tree.einsums):
        result.of(name)
    return {name: result.parts[name] for name in tree.einsums}


def parting(tree: LoopTree, one: str, other: str) -> int:
    """The id of the split at which the paths of two Einsums diverge."""
    both = zip(tree.path(one), tree.path(other), strict=False)
    return next(a.id for a, b in both if isinstance(a.node, Split) and a.branch != b.branch)


def produced_for(cascade: Cascade, tree: LoopTree, tensor: str, consumer: str) -> bool:
    """Return whether the elements of a tensor that a consumer needs are produced right before it, in storage
    shared by both, whatever the tile sizes: the producer is inferred, and none of its own loops is above the
    split."""
    producer = cascade.producer(tensor)
    if producer is None or not {producer.name, consumer} <= tree.paths.keys():
        return False
    if tree.einsums.index(consumer) <= tree.einsums.index(producer.name):
        return False
    tied = ties(cascade, tree, producer.name)
    node, split = decided_above(tied), parting(tree, producer.name, consumer)
    homes = {storage_chain(tree, e, tensor)[0].id for e in (producer.name, consumer)}
    above = any(node < i < split for i in tied)
    return tied.get(node) == "inferred" and consumer in users(tree, node) and len(homes) == 1 and not above


@dataclass(frozen=True)
class Decision:
    """The place where it is decided what an Einsum executes: the loops above (bound or not), and the
    storage."""

    name: str
    ties: dict[int, Tie]
    loops: tuple[tuple[int, Loop, int], ...]
    node: int

    @property
    def depth(self) -> int:
        return sum(1 for i, _, _ in self.loops if i <= self.node)


class _Inference:
    def __init__(self, cascade: Cascade, tree: LoopTree, reuse: Reuse | None) -> None:
        self.cascade, self.tree, self.reuse = cascade, tree, reuse
        self.parts: dict[str, tuple[ExecutedPart, ...]] = {}
        self.open: set[str] = set()

    def of(self, name: str) -> tuple[ExecutedPart, ...]:
        if name in self.parts:
            return self.parts[name]
        if name in self.open:
            raise Unexecutable(
                f"what {name} executes depends on itself: loops above it bind Einsums that need each other",
                "bind a rank variable of each Einsum with rank_variable: {Einsum: variable}",
            )
        self.open.add(name)
        found = ties(self.cascade, self.tree, name)
        if set(found.values()) <= {"bound"}:
            self.parts[name] = ()
            return ()
        loops = loop_origins(self.cascade, self.tree, name)
        decision = Decision(name, found, loops, decided_above(found))
        if "inferred" in found.values():
            self.parts[name] = self.inferred(decision)
        else:
            self.parts[name] = self.repeated(decision)
        return self.parts[name]

    def view(self, name: str, access: TensorAccess, loops: int) -> View:
        """An Einsum's access below the outermost `loops` loops of its path."""
        origins = loop_origins(self.cascade, self.tree, name)
        return View(self.cascade[name], access, origins[:loops], parts=self.of(name))

    def repeated(self, d: Decision) -> tuple[ExecutedPart, ...]:
        """All iterations, at every stamp of the Einsums that the innermost such loop binds."""
        for i, loop, _ in d.loops:
            if loop.spatial and d.ties[i] == "repeated":
                raise Unexecutable(
                    f"{d.name} would execute completely in every instance of {loop.component}.{loop.dim} "
                    "at the same time",
                    "move that loop into the branches that have its rank variable",
                )
        self.refuse_early_readers(d)
        bare = TensorAccess("", (), ())
        drivers = tuple(
            self.view(e, bare, d.depth)
            for e in users(self.tree, d.node)
            if ties(self.cascade, self.tree, e)[d.node] == "bound"
        )
        own = _own(self, d, bare)
        blocks = joint_blocks(drivers, partition((*drivers, own)))
        stamps = touch(drivers, blocks)
        texts = {f.block: f.text for f in stamps.factors}
        parts = _parts(d, own, blocks, stamps, texts)
        for output in self.cascade[d.name].outputs:
            view = View(own.einsum, output, d.loops[: d.depth], parts=parts)
            for f in touch((view,), partition((view,))).factors:
                axes = (*f.spatial, *f.temporal)
                free = tuple(k for k, a in enumerate(axes) if d.ties[d.loops[a][0]] != "bound")
                if not needs.determined(f.text, len(axes), free):
                    raise _partial_results(d, [d.loops[a] for a in axes if d.ties[d.loops[a][0]] == "bound"])
        return parts

    def refuse_early_readers(self, d: Decision) -> None:
        """Refuses unfinished inputs: an Einsum that repeats below a loop reads all its inputs each time."""
        for node, loop, _ in d.loops:
            if d.ties[node] == "bound":
                continue
            for tensor in (a.tensor for a in self.cascade[d.name].inputs):
                maker = self.cascade.producer(tensor)
                if maker is None or maker.name not in users(self.tree, node):
                    continue
                v = loop.variable_in(maker.name)
                bound = ties(self.cascade, self.tree, maker.name)[node] == "bound"
                if not bound or not _steps(self.cascade, self.tree, maker.name, node):
                    continue
                if not self.produced_at_first(maker.name, d.name, tensor, node):
                    raise Unexecutable(
                        f"{d.name} executes in every iteration of the loop over {v} (node {node}), and each "
                        f"produces only a part of what {maker.name} gives it",
                        f"move the loop over {v} below the split, or bind a rank variable of {d.name}: "
                        f"rank_variable: {{{maker.name}: {v}, {d.name}: ...}}",
                    )

    def produced_at_first(self, maker: str, reader: str, tensor: str, node: int) -> bool:
        """True if the first iteration of a loop produces everything that the reader ever reads of the
        tensor."""
        if set(ties(self.cascade, self.tree, maker).values()) != {"bound"}:
            return False
        origins = loop_origins(self.cascade, self.tree, maker)
        above = sum(1 for i, _, _ in origins if i <= node)
        makes = View(self.cascade[maker], self.cascade[maker].access_of(tensor), origins[:above])
        reads = [View(self.cascade[reader], a, ()) for a in self.cascade[reader].accesses_of(tensor)]
        blocks = partition([makes, *reads])
        made, *read = (touch((v,), blocks).factors for v in (makes, *reads))
        wanted = [{f.block: f.text for f in factors} for factors in read]
        return all(
            needs.first_covers(f.text, len(f.spatial) + len(f.temporal), each[f.block])
            for f in made
            for each in wanted
            if f.ranks
        )

    def inferred(self, d: Decision) -> tuple[ExecutedPart, ...]:
        """Return the iterations that the consumers below need at each stamp and that the outermost storage
        does not hold."""
        einsum = self.cascade[d.name]
        if d.ties[d.node] != "inferred":
            message = f"{d.name} stands below a loop that its consumers do not share, inside one that they do"
            remedy = "move that loop into the branch that has its rank variable"
            raise Refused(message, remedy, code="unsupported-inference")
        if len(einsum.outputs) > 1:
            what = f"{d.name} has several outputs, and what it executes is inferred"
            raise Refused(what, code="unsupported-inference")
        tensor = einsum.outputs[0].tensor
        home = storage_chain(self.tree, d.name, tensor)[0]
        assert isinstance(home.node, StorageNode)
        above = sum(1 for i, _, _ in d.loops if i < home.id)
        policy = self.reuse or home.node.reuse
        if above > d.depth and policy.carries:
            raise Refused(
                f"{tensor} stays from visit to visit inside loops of {d.name} that are inside the loop "
                "which decides what it executes",
                f"store {tensor} above these loops, or use reuse: refill",
                code="unsupported-inference",
            )
        above = min(above, d.depth)
        consumers = [
            c for c in self.cascade.consumers(tensor) if c.name in self.tree.paths and c.name != d.name
        ]
        below = users(self.tree, d.node)
        reads = [(c.name, access) for c in consumers for access in c.accesses_of(tensor)]
        drivers = tuple(self.view(c, access, d.depth) for c, access in reads if c in below)
        keepers = tuple(self.view(c, access, above) for c, access in reads)
        own = _own(self, d, einsum.outputs[0])
        blocks = partition((*drivers, *keepers, own))
        while True:
            blocks = joint_blocks(keepers, joint_blocks(drivers, blocks))
            stamps = touch(drivers, blocks)
            try:
                missing = _missing(stamps, touch(keepers, blocks), above, policy, tensor)
                return _parts(d, own, blocks, stamps, missing)
            except Mixed as mixed:
                blocks = merge_blocks(blocks, mixed.which)


def _steps(cascade: Cascade, tree: LoopTree, einsum: str, node: int) -> bool:
    """True if a loop that binds a variable of the Einsum has more than one iteration anywhere."""
    extent: dict[str, int] = {}
    for i, loop in tree.loops(einsum):
        v = loop.variable_in(einsum)
        if v not in cascade[einsum].rank_variables:
            continue
        low, high = cascade[einsum].bound(v)
        tile = int(loop.tile_shape)
        first = tile if loop.initial_tile_shape is None else int(loop.initial_tile_shape)
        inside = extent.get(v, high - low + 1)
        if i == node:
            return inside > first
        extent[v] = min(inside, max(tile, first))
    return False


def _own(inference: _Inference, d: Decision, access: TensorAccess) -> View:
    """The Einsum with those loops above the decision that bind its variables."""
    bound = tuple(loop for loop in d.loops if loop[0] <= d.node and d.ties[loop[0]] == "bound")
    return View(inference.cascade[d.name], access, bound)


def _missing(needed: Touch, held: Touch, above: int, policy: Reuse, tensor: str) -> dict[int, str]:
    """Per block, the stamps and elements that are needed and not held: products at every step. Within a visit
    of the storage the first need of an element counts; at its first stamp, only what did not stay from the
    previous visit."""
    result: dict[int, str] = {}
    for f in needed.factors:
        outer = sum(1 for a in f.spatial if a < above), sum(1 for a in f.temporal if a < above)
        text = needs.first_need(f.text, len(f.spatial), len(f.temporal), *outer)
        if text is None:
            raise Unexecutable(
                f"several instances would produce the same elements of {tensor} into one storage at one time",
                f"store {tensor} below the spatial loop, or make that loop temporal",
            )
        result[f.block] = text
    remaining: set[int] = set()  # blocks of axes further in over whose steps not everything stays
    for axis in sorted(retained_axes(held, policy), reverse=True):
        _subtract_stayed(result, needed, held, axis, remaining)
    return result


def _subtract_stayed(
    found: dict[int, str], needed: Touch, held: Touch, axis: int, remaining: set[int]
) -> None:
    """Subtract what stays over the steps at one axis; all axes further in are already handled."""
    staying: dict[int, tuple[str, str, bool]] = {}
    for f in held.factors:
        mode = transition_mode(f, axis)
        if mode is None:
            return  # the step never happens
        staying[f.block] = needs.staying(f.text, len(f.spatial), len(f.temporal), mode)
    owner = next(f for f in held.factors if axis in f.temporal)
    if any(needs.is_empty(stay) for _, stay, _ in staying.values()):
        remaining.add(owner.block)
        return
    partial = {b for b, (_, _, whole) in staying.items() if not whole}
    involved = partial | remaining | {owner.block}
    if len(involved) > 1:
        raise Mixed(involved)
    if partial:
        remaining.add(owner.block)
    mine = next(f for f in needed.factors if f.block == owner.block)
    found[owner.block] = needs.without_stamps(
        found[owner.block],
        staying[owner.block][1],
        len(mine.spatial),
        len(mine.temporal),
        len(owner.spatial),
        len(owner.temporal),
        bool(partial),
    )


def transition_mode(factor: Factor, axis: int) -> steps.Mode | None:
    """The transition at stamp position `axis` as seen by a factor; None if it cannot happen."""
    spatial, temporal = len(factor.spatial), len(factor.temporal)
    if axis in factor.temporal:
        q = factor.temporal.index(axis)
        return ("at", q) if steps.moves(factor.text, spatial, temporal, q) else None
    after = [q for q, position in enumerate(factor.temporal) if position > axis]
    return ("wrap", after[0]) if after else ("eq", 0)


def _parts(
    d: Decision, own: View, blocks: tuple[RankBlock, ...], stamps: Touch, texts: dict[int, str]
) -> tuple[ExecutedPart, ...]:
    """The executed part of each block: the iterations that produce what is missing, with their own loops."""
    factors = {f.block: f for f in stamps.factors}
    result = []
    for number, block in enumerate(blocks):
        f = factors.get(number)
        variables = tuple(v for v in own.einsum.rank_variables if (d.name, v) in block.variables)
        positions = (*f.spatial, *f.temporal) if f else ()
        if positions or variables:
            outer = tuple(d.loops[p] for p in positions)
            result.append(_part(d, own, block, variables, outer, texts.get(number)))
    return tuple(result)


def _part(
    d: Decision,
    own: View,
    block: RankBlock,
    variables: tuple[str, ...],
    outer: tuple[tuple[int, Loop, int], ...],
    wanted: str | None,
) -> ExecutedPart:
    names = {v: f"v{k}" for k, v in enumerate(variables)}
    counters = [f"l{i}" for i, _, _ in outer]
    head = ", ".join([*counters, *names.values()])
    facts = constraint_facts(own.einsum, names)
    ranks = [affine_in(own.access.projection[r], names) for r in block.ranks]
    image = f"{{ [{head}] -> [{', '.join([*counters, *ranks])}] }}"
    space = wanted if wanted is not None else "{ [] }"
    whole = needs.pulled_back(space, image, _set(head, [facts]))
    options = [facts]
    for v in variables:
        mine = [(f"l{i}", loop) for i, loop, _ in own.loops if loop.variable_in(d.name) == v]
        origin = next((o for _, loop, o in own.loops if loop.variable_in(d.name) == v), 0)
        options = [o + c for o in options for c, _ in chain(names[v], mine, origin)]
    executes = needs.pulled_back(space, image, _set(head, options))
    if "inferred" in d.ties.values() and whole != executes and not needs.is_subset(whole, executes):
        raise _partial_results(d, [x for x in own.loops if x[1].variable_in(d.name) in variables])
    everything = _set(", ".join(names.values()), [facts])
    if "inferred" not in d.ties.values() and needs.leaves_out(executes, len(outer), everything):
        raise _partial_results(d, [x for x in own.loops if x[1].variable_in(d.name) in variables])
    below = [x for x in d.loops if x[0] > d.node and x[1].variable_in(d.name) in variables]
    inner = [f"l{i}" for i, _, _ in below]
    offsets, begins = [f"o{k}" for k in range(len(variables))], [f"b{k}" for k in range(len(variables))]
    inferred = "inferred" in d.ties.values()
    options = [[]]
    for k, v in enumerate(variables):
        mine = [(f"l{i}", loop) for i, loop, _ in below if loop.variable_in(d.name) == v]
        begin: int | str = begins[k]
        if not inferred:
            above = [x for x in own.loops if x[1].variable_in(d.name) == v]
            mine = [*((f"l{i}", loop) for i, loop, _ in above), *mine]
            begin = next((o for i, loop, o in d.loops if loop.variable_in(d.name) == v), 0)
        chains = [[*c, f"{offsets[k]} = {names[v]} - ({base})"] for c, base in chain(names[v], mine, begin)]
        options = [o + c for o in options for c in chains]
    dims = ", ".join([*counters, *inner, *names.values(), *offsets, *begins])
    starts = needs.starts(executes, len(outer), len(variables)) if inferred else ()
    if not inferred:
        options = [[*o, *(f"{b} = 0" for b in begins)] for o in options]
    text = needs.tiled(executes, len(outer), len(variables), len(inner), _set(dims, options), starts)
    return ExecutedPart((*(i for i, _, _ in outer), *(i for i, _, _ in below)), variables, text)


def _set(dims: str, options: Iterable[list[str]]) -> str:
    body = " or ".join(f"({' and '.join(o) or 'true'})" for o in options)
    return f"{{ [{dims}] : {body} }}"


def _partial_results(d: Decision, loops: list[tuple[int, Loop, int]]) -> Unexecutable:
    """The error if some iteration of the loops would produce partial results."""
    named = ", ".join(f"{loop.variable_in(d.name)} (node {i})" for i, loop, _ in loops)
    return Unexecutable(
        f"{d.name} would produce only parts of its results: the loops over {named} stand above a loop "
        f"(node {d.node}) that binds none of its variables",
        "move them below the split, or bind a rank variable with rank_variable: {Einsum: variable}",
    )
