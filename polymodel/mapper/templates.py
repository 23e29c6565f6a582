"""The mappings of one Einsum without tile sizes: which memories hold its tensors, and between which loops."""

from __future__ import annotations

from collections.abc import Container, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import permutations, product

from polymodel.mapper.einsum_rules import in_order, numbered_bands
from polymodel.mapper.kept_tiles import Order, block_orders
from polymodel.mapper.loop_homes import Homes, loop_homes, widest_homes
from polymodel.mapper.records import Limits
from polymodel.mapper.space import EinsumSpace, Operand

# A template has the fused loops (`prefix`, one rank variable each), and below them storage nodes in an order,
# with a block of loops over any rank variables above each. The order of loops between two nodes is free:
# counts and tiles do not depend on it. `level` of a node: k <= D is below the first k fused loops, D + j is
# the j-th node of the branch.

Exchanges = tuple[tuple[int, int], ...]
ANY = -2  # the variable along which a node slides, or that of the outer loop: whichever costs least


@dataclass(frozen=True)
class Sharing:
    """The part of a mapping on which other Einsums depend: fused loops and exchanged tensors.

    `prefix`: fused loops by variable (positions). `shared`: tensors exchanged inside the backing storage, as
    (operand, memory, number of fused loops above). `forced`: the number of fused loops that stay open until
    an awaited tensor is produced, or a recurrent tensor is read.
    """

    prefix: tuple[int, ...]
    shared: tuple[tuple[int, int, int], ...]
    forced: int = 0

    @property
    def own_depth(self) -> int:
        return max((self.forced, *(depth for _, _, depth in self.shared)))

    @property
    def exchanges(self) -> Exchanges:
        """(operand, memory) of the exchanged tensors."""
        return tuple((i, m) for i, m, _ in self.shared)

    @property
    def innermost(self) -> int:
        """The innermost memory that holds an exchanged tensor, 0 without any."""
        return max((memory for _, memory, _ in self.shared), default=0)

    def fuses(self, space: EinsumSpace, limits: Limits) -> bool:
        """Whether these are the fused loops that the Einsum must have, with exchanges below."""
        loops = limits.fused_loops(space.name)
        if loops is None:
            return True
        mine = tuple(space.variables[v] for v in self.prefix)
        above = (space.operands[i].tensor for i, _, depth in self.shared if not depth)
        return mine == loops and not any(map(limits.below_loops, above))


@dataclass(frozen=True)
class ArrayResidency:
    """The loops above its instances over which a node inside a fanout keeps its tile.

    They are the loops that do not index its tensor, in the blocks from that below level `since` on. `after`:
    the tensor's variable whose loop in that block is outside these (-1: no temporal loop indexes the tensor;
    ANY: any of these, or none).
    """

    since: int
    after: int

    @property
    def within(self) -> int:
        """Return the first level below which no loop indexes the tensor."""
        return self.since + (self.after != -1)


@dataclass(frozen=True)
class TemplateNode:
    """One tensor in one memory; `shared` nodes hold an exchanged tensor.

    `slides`: the variable of the loop right above it, across whose iterations it keeps the overlap of its
    windows (-1: it refills; ANY: any variable that it may slide along). `stays`: loops above its instances
    over which it keeps its tile (None: none). `keeps`: it keeps all that the preceding visit held.
    """

    operand: int
    memory: int
    level: int
    shared: bool = False
    slides: int = -1
    stays: ArrayResidency | None = None
    keeps: bool = False


@dataclass(frozen=True)
class Template:
    """Nodes by level. Operands without a shared node come from memory 0, or from those of `parents`.

    A template may be one region of a hierarchy cut in two: with `bottom` the rest is below (the last level is
    the tile that it gets), with `top` the rest is above (level 1 is the tile that it needs); `cut` is the
    innermost memory above. `homes`: the memories to which loops belong, if rules depend on it. `family`:
    represents all of `members_of` it, and costs no more than any of them at the same tile sizes. `orders`: of
    the loops in each block above nodes that keep, if there are any.
    """

    shape: Sharing
    nodes: tuple[TemplateNode, ...]
    unit: int
    parents: tuple[int, ...] = ()
    top: bool = False
    bottom: bool = False
    cut: int = 0
    homes: Homes = ()
    family: bool = False
    orders: tuple[Order, ...] = ()

    @property
    def depth(self) -> int:
        return len(self.shape.prefix)

    @property
    def branch(self) -> tuple[TemplateNode, ...]:
        return tuple(n for n in self.nodes if n.level > self.depth)


@dataclass(frozen=True)
class Passing:
    """Whether other Einsums may exchange tensors across this one.

    If so, it may be below loops that none of its own exchanged tensors needs. `bound`: these loops index its
    output, which is read below them.
    """

    any: bool = False
    bound: bool = False


def templates(
    space: EinsumSpace,
    limits: Limits,
    passing: Passing,
    depth: int,
    wanted: Container[Sharing] | None = None,
    loose: bool = False,
) -> Iterator[Template]:
    """Every template with `depth` fused loops, of the shapes in `wanted` (None: all).

    `loose`: the order of exchanged tensors is free.
    """
    for family in families(space, limits, passing, depth, wanted, loose):
        yield from members_of(space, family)


def families(
    space: EinsumSpace,
    limits: Limits,
    passing: Passing,
    depth: int,
    wanted: Container[Sharing] | None = None,
    loose: bool = False,
) -> Iterator[Template]:
    """Yield the templates as `templates` does, except that one family represents the templates that differ
    only in the variables along which nodes slide, in the loop outside those over which a node stays, and in
    loop homes."""
    for unit in range(1 if space.copy else len(space.units)):
        reach = len(space.memories) if space.copy else space.units[unit].memories
        for shape in shapes(space, limits, passing, depth, reach):
            if wanted is None or shape in wanted:
                for nodes in _placed(space, limits, shape, reach, loose):
                    yield from _families(space, Template(shape, nodes, unit))


def in_each_order(space: EinsumSpace, template: Template) -> Iterator[Template]:
    """Yield the template with each order of loops above its nodes that keep; itself if there are none."""
    if not any(n.keeps for n in template.nodes):
        yield template
        return
    yield from (replace(template, orders=x) for x in block_orders(space, template.branch))


def _families(space: EinsumSpace, template: Template) -> Iterator[Template]:
    """Yield the template, and variants with one of its nodes keeping its tile; as families if they have
    several members."""
    if any(n.keeps for n in template.nodes):
        for nodes in product(*(_sliding(space, n) for n in template.nodes)):
            yield from in_each_order(space, replace(template, nodes=nodes))
        for nodes in _staying_beside(space, template.nodes):
            one = replace(template, nodes=nodes)
            yield replace(one, homes=_all_homes(space, one), family=True)
        return
    several = any(n.slides == ANY for n in template.nodes) or (space.rules.placed and not space.copy)
    several = several and space.divide and space.even
    yield replace(template, homes=_all_homes(space, template), family=True) if several else template
    for nodes in _staying(space, template.depth, template.nodes):
        one = replace(template, nodes=nodes)
        yield replace(one, homes=_all_homes(space, one), family=True)


def members_of(space: EinsumSpace, family: Template) -> Iterator[Template]:
    """Yield the templates that one of `families` represents: the template itself if it is the only one."""
    if not family.family:
        yield family
        return
    plain = replace(family, homes=(), family=False)
    for nodes in product(*(_sliding(space, n) for n in family.nodes)):
        for some in _ways_to_stay(space, family.depth, nodes):
            yield from with_homes(space, replace(plain, nodes=some))


def _all_homes(space: EinsumSpace, template: Template) -> Homes:
    """Return all memories to which the loops of a template may belong, in any assignment of `with_homes`."""
    if not space.rules.placed or space.copy:
        return ()
    indexed = [o.alone | o.windowed for o in space.operands]
    reach = space.units[template.unit].memories
    return widest_homes(space.rules, indexed, len(space.variables), template.nodes, reach)


def with_homes(space: EinsumSpace, template: Template) -> Iterator[Template]:
    """Yield the template with each assignment of its loops to memories that rules distinguish."""
    if not space.rules.placed or space.copy:
        yield template
        return
    indexed = [o.alone | o.windowed for o in space.operands]
    reach = space.units[template.unit].memories
    for homes in loop_homes(space.rules, indexed, len(space.variables), template.nodes, reach):
        yield replace(template, homes=homes)


def shapes(space: EinsumSpace, limits: Limits, passing: Passing, depth: int, reach: int) -> Iterator[Sharing]:
    """Every shape with `depth` fused loops; `reach`: the number of memories above compute."""
    choices = [[(i, m) for m in exchanges_of(space, o, limits, reach)] for i, o in enumerate(space.operands)]
    for chosen in product(*choices):
        held = [(i, m) for i, m in chosen if m > 0]
        for prefix in _prefixes(space, limits, held, passing, depth):
            several = _forced(space, passing, held, prefix)
            each = (_depths(space.operands[i], prefix) for i, _ in held)
            for depths, forced in product([*product(*each)], several):
                shared = tuple((i, m, d) for (i, m), d in zip(held, depths, strict=True))
                shape = Sharing(prefix, shared, forced)
                if shape.own_depth == len(prefix) or passing.any:
                    yield shape


def exchanges_of(space: EinsumSpace, o: Operand, limits: Limits, reach: int) -> list[int]:
    """Return memories that may hold the tensor's outermost tile; 0 is the backing storage.

    Persistent intermediates are only there: elsewhere they would need space in every Einsum of the run.
    """
    result = []
    if o.tensor in space.may[0] and not (o.fusable and o.tensor in limits.fuse):
        result.append(0)
    if _inside(o, limits):
        # memories outside its outermost tile do not hold it
        kept = min((m for m in range(len(space.keep)) if o.tensor in space.keep[m]), default=reach)
        inner = (m for m in range(1, min(reach, kept + 1)) if m in space.exchange - space.rules.always)
        result += [m for m in inner if o.tensor in space.may[m]]
    return result


def _inside(o: Operand, limits: Limits) -> bool:
    """Whether a tensor may be exchanged inside the backing storage."""
    return o.fusable and not o.persistent and o.tensor not in limits.unfused


def _prefixes(
    space: EinsumSpace, limits: Limits, held: list[tuple[int, int]], passing: Passing, depth: int
) -> Iterator[tuple[int, ...]]:
    """Yield orders of fused loops: loops that index every exchanged tensor below them come first."""
    fusable = frozenset().union(*(space.operands[i].parted for i, _ in held)) if held else frozenset()
    for o in space.operands if passing.any else ():
        fusable |= o.parted if o.output or not passing.bound else frozenset()
    usable = sorted(fusable)
    order = dict(limits.loop_order).get(space.name, ())
    rank = {space.variables.index(v): i for i, v in enumerate(order) if v in space.variables}

    def grow(prefix: tuple[int, ...]) -> Iterator[tuple[int, ...]]:
        if len(prefix) == depth:
            yield prefix
            return
        for v in usable:
            if prefix.count(v) >= limits.max_fused_loops_per_rank_variable:
                continue
            if v in rank and any(rank.get(w, -1) > rank[v] for w in prefix):
                continue
            yield from grow((*prefix, v))

    yield from grow(())


def _forced(
    space: EinsumSpace, passing: Passing, held: Sequence[tuple[int, int]], prefix: tuple[int, ...]
) -> tuple[int, ...]:
    """Return the possible numbers of fused loops that must stay open; empty if a required loop is missing.

    Loops of an awaited tensor's recurrence must stay open. A memory with `allocation: live` holds few
    generations if consumers share such a loop, so that it may stay open for them. If no tensor is exchanged
    across the Einsum, as in lower bounds, no loop must stay open.
    """

    def through(variables: Iterable[int]) -> int:
        return len(prefix) - min(prefix[::-1].index(v) for v in variables)

    if not passing.any:
        return (0,)
    if space.awaited:
        return (through(space.awaited),) if space.awaited <= {*prefix} else ()
    made = ((space.operands[i], space.memories[m].live) for i, m in held)
    over = {o.carried.variable for o, live in made if live and o.output and o.carried is not None}
    return (0, through(over & {*prefix})) if over & {*prefix} else (0,)


def _depths(o: Operand, prefix: tuple[int, ...]) -> range:
    """Return the possible numbers of fused loops above the tensor's exchange.

    All of them index it, and none is that of its recurrence, since no generation would remain there until the
    next iteration.
    """
    most = 0
    while most < len(prefix) and prefix[most] in o.parted and prefix[most] != o.over:
        most += 1
    return range(most + 1)


def outer_templates(
    space: EinsumSpace,
    limits: Limits,
    passing: Passing,
    depth: int,
    cut: int,
    wanted: Container[Sharing] | None = None,
    loose: bool = False,
) -> Iterator[Template]:
    """Yield templates of the region of memories up to `cut`, which has all exchanges.

    Some exchange is in memory `cut` itself, unless that is the first one inside the backing storage.
    """
    for shape in shapes(space, limits, passing, depth, cut + 1):
        if max((m for _, m, _ in shape.shared), default=1) == cut and (wanted is None or shape in wanted):
            for nodes in placements(space, limits, shape, cut + 1, loose):
                yield from in_each_order(space, Template(shape, nodes, 0, bottom=True, cut=cut))


def inner_templates(
    space: EinsumSpace, limits: Limits, parents: tuple[int, ...], cut: int, last: int | None = None
) -> Iterator[Template]:
    """Templates of the region of memories inside `cut`, for operands that come from `parents`.

    Down to memory `last`, if that is not all of it.
    """
    units = enumerate(space.units) if last is None else [(0, space.units[0])]
    for unit, u in units:
        reach = u.memories if last is None else last + 1
        if reach <= cut:
            continue
        subsets = [list(_holdings(space, i, cut, reach)) for i in range(len(space.operands))]
        for chosen in product(*subsets):
            private = [(i, m) for i, held in enumerate(chosen) for m in held]
            for placed in _arranged(space, limits, Sharing((), ()), (), private, reach, 2):
                for nodes in _ways(space, 0, placed):
                    yield Template(Sharing((), ()), nodes, unit, parents, True, last is not None, cut)


def placements(
    space: EinsumSpace, limits: Limits, shape: Sharing, reach: int, loose: bool = False
) -> Iterator[tuple[TemplateNode, ...]]:
    """The nodes of every template of a shape."""
    for nodes in _placed(space, limits, shape, reach, loose):
        yield from _ways(space, len(shape.prefix), nodes)


def _ways(
    space: EinsumSpace, depth: int, nodes: tuple[TemplateNode, ...]
) -> Iterator[tuple[TemplateNode, ...]]:
    """Yield the nodes with each combination of variables along which they may slide, and with each way in
    which one of them keeps its tile."""
    for some in product(*(_sliding(space, n) for n in nodes)):
        yield from (some, *staying(space, depth, some))


def _placed(
    space: EinsumSpace, limits: Limits, shape: Sharing, reach: int, loose: bool = False
) -> Iterator[tuple[TemplateNode, ...]]:
    """Yield the nodes of every template of a shape; nodes that may slide have the variable ANY."""
    shared = tuple(TemplateNode(i, m, d, True) for i, m, d in shape.shared)
    if space.copy:
        yield shared
        return
    outer = {n.operand: n.memory for n in shared}
    subsets = [list(_holdings(space, i, outer.get(i, 0), reach)) for i in range(len(space.operands))]
    for chosen in product(*subsets):
        private = [(i, m) for i, held in enumerate(chosen) for m in held]
        if shape.prefix and any(m in space.rules.always for _, m in private):
            continue  # below fused loops nodes refill
        if loose:
            for nodes in _arranged(space, limits, shape, (), private, reach):
                yield (*shared, *nodes)
        else:
            yield from _arranged(space, limits, shape, shared, private, reach)


def _holdings(space: EinsumSpace, i: int, outermost: int, reach: int) -> Iterator[tuple[int, ...]]:
    """The subsets of memories inside the outermost one that may hold the operand."""
    tensor = space.operands[i].tensor
    inner = range(outermost + 1, reach)
    for bits in product(*([(False, True)] * len(inner))):
        held = tuple(m for m, b in zip(inner, bits, strict=True) if b)
        if all(tensor in space.may[m] for m in held) and all(
            tensor not in space.keep[m] or m in held for m in inner
        ):
            yield held


def _arranged(
    space: EinsumSpace,
    limits: Limits,
    shape: Sharing,
    shared: tuple[TemplateNode, ...],
    private: list[tuple[int, int]],
    reach: int,
    first: int = 1,
) -> Iterator[tuple[TemplateNode, ...]]:
    """Every assignment of private nodes to slots above fused loops and to positions in the branch.

    `reach`: the number of memories that may have nodes. `first`: distance from the fused loops to the
    branch's first level.
    """
    depth, band = len(shape.prefix), numbered_bands(space, limits)
    slots = [(*lower_slots(space, shape, i, m, reach), depth) for i, m in private]
    for chosen in product(*slots):
        above = [TemplateNode(i, m, k) for (i, m), k in zip(private, chosen, strict=True) if k < depth]
        rest = [(i, m) for (i, m), k in zip(private, chosen, strict=True) if k == depth]
        fixed = (*shared, *above)
        if not in_order(fixed, band):
            continue
        for order in permutations(rest):
            branch = tuple(TemplateNode(i, m, depth + first + j) for j, (i, m) in enumerate(order))
            if in_order((*fixed, *branch), band):
                mine = (with_policy(space, n, depth) for n in branch)
                yield tuple(sorted((*fixed, *mine), key=lambda n: (n.level, n.memory)))


def with_policy(space: EinsumSpace, node: TemplateNode, depth: int, along: int = ANY) -> TemplateNode:
    """A node of a branch below `depth` fused loops with the policy that costs least: it keeps, slides along
    a variable, or refills."""
    if node.memory in space.rules.keeping and not depth:
        return replace(node, keeps=True)
    return replace(node, slides=along) if space.slides(node.memory, node.operand) else node


def _sliding(space: EinsumSpace, node: TemplateNode) -> list[TemplateNode]:
    """Return the node with each variable along which it may slide.

    Refilling is never better than sliding, except under rules on the order of the loops above it.
    """
    if node.slides != ANY:
        return [node]
    along = [replace(node, slides=v) for v in space.slides(node.memory, node.operand)]
    return [replace(node, slides=-1), *along] if space.rules.placed else along


def staying(
    space: EinsumSpace, depth: int, nodes: tuple[TemplateNode, ...]
) -> Iterator[tuple[TemplateNode, ...]]:
    """The nodes with one of them staying over loops above its instances, in each possible way."""
    for some in _staying(space, depth, nodes):
        yield from _ways_to_stay(space, depth, some)


def _staying(
    space: EinsumSpace, depth: int, nodes: tuple[TemplateNode, ...]
) -> Iterator[tuple[TemplateNode, ...]]:
    """Yield the nodes with one of them staying, without a choice of the loop outside those over which it
    stays (ANY)."""
    places = [
        max((depth, *(n.level for n in nodes if n.memory < f.below)))
        for f in space.fanouts
        if f.width > 1 and f.below
    ]
    for k, n in enumerate(nodes) if not any(n.keeps for n in nodes) else ():
        below = [p for p in places if p < n.level] if n.level > depth and may_stay(space, n) else []
        for since in range(depth, max(below, default=depth - 1) + 1):
            yield (*nodes[:k], replace(n, stays=ArrayResidency(since, ANY)), *nodes[k + 1 :])


def _staying_beside(
    space: EinsumSpace, nodes: tuple[TemplateNode, ...]
) -> Iterator[tuple[TemplateNode, ...]]:
    """Yield the nodes with one that stays in a memory whose nodes do not keep; then no node keeps."""
    if any(n.keeps and n.memory in space.rules.always for n in nodes):
        return
    others = tuple(
        replace(n, keeps=False, slides=ANY if space.slides(n.memory, n.operand) else -1) if n.keeps else n
        for n in nodes
    )
    for some in _staying(space, 0, others):
        if any(n.stays is not None and n.memory not in space.rules.keeping for n in some):
            yield some


def _ways_to_stay(
    space: EinsumSpace, depth: int, nodes: tuple[TemplateNode, ...]
) -> Iterator[tuple[TemplateNode, ...]]:
    """Yield the nodes with each choice of the loop outside those over which one of them keeps its tile;
    unchanged if none does."""
    k, stays = next(((k, n.stays) for k, n in enumerate(nodes) if n.stays is not None), (0, None))
    if stays is None:
        yield nodes
        return
    since, alone = stays.since, space.operands[nodes[k].operand].alone
    several = [bundle[0] for bundle in space.bundles if bundle[0] in alone]
    # A node that slides along a loop over a variable of the tensor has that loop innermost.
    across = any(m.level == since + 1 and m.slides in alone for m in nodes)
    for after in () if across else several if since or depth else (*several, -1):
        yield (*nodes[:k], replace(nodes[k], stays=ArrayResidency(since, after)), *nodes[k + 1 :])


def may_stay(space: EinsumSpace, node: TemplateNode) -> bool:
    """Whether a node may keep its tile over loops above its instances.

    Its tensor is read without windows, its memory's nodes may slide, and all tiles are equal.
    """
    o = space.operands[node.operand]
    plain = not (o.output or o.windows or o.first_differs or o.forward or space.ties or space.copy)
    equal = space.divide and space.even and space.shares is None and not any(m.live for m in space.memories)
    others = any(v not in o.alone for v in range(len(space.variables)))
    return node.memory in space.rules.sliding and plain and equal and others and not node.shared


def slots_above(space: EinsumSpace, shape: Sharing, operand: int, memory: int) -> range:
    """Return slots above fused loops for a node.

    None for a memory inside a fanout, whose loops are below all fused ones, and none for a recurrent tensor,
    which other Einsums below the loops access as well.
    """
    exchanged = next((d for i, _, d in shape.shared if i == operand), 0)
    replicated = any(f.below <= memory and f.width > 1 for f in space.fanouts)
    none = replicated or space.operands[operand].forward
    return range(exchanged, exchanged if none else len(shape.prefix))


def lower_slots(space: EinsumSpace, shape: Sharing, operand: int, memory: int, reach: int) -> tuple[int, ...]:
    """Return the slots that may be optimal.

    If the next loop indexes the tensor, the slot below it is never worse, except for nodes of a memory
    further in between. No slot is above an exchange in this memory or one further outside.
    """
    depth, alone = len(shape.prefix), space.operands[operand].alone
    closed = max((d for _, m, d in shape.shared if m <= memory), default=0)
    if memory + 1 == reach:
        closed = depth
    inside = [d for _, m, d in shape.shared if m > memory]

    def lowered(k: int) -> bool:
        free = (
            not space.rules.placed
            and not space.operands[operand].rounds
            and space.operands[operand].behind != shape.prefix[k]
            and k < closed
            and all(d > k for d in inside)
            and (k + 1 < depth or not inside)
        )
        return shape.prefix[k] in alone and free

    return tuple(k for k in slots_above(space, shape, operand, memory) if not lowered(k))


def deepest(spaces: Sequence[EinsumSpace], limits: Limits) -> int:
    """The largest number of fused loops above any tensor that may be exchanged inside the backing storage."""
    per = limits.max_fused_loops_per_rank_variable
    inside = (o for s in spaces for o in s.operands if _inside(o, limits))
    ranks = [len(o.alone) * per for o in inside]
    most = max(ranks, default=0)
    return most if limits.max_fused_loops is None else min(most, limits.max_fused_loops)
