"""Restrictions on the mappings of one Einsum: constraints, memory order, fanouts, and bounds that relate
ranks."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise, product
from math import inf, prod
from typing import TYPE_CHECKING

from polymodel.analysis.symbolic.spaces import (
    TiedGroup,
    carried_line,
    check_access,
    groups,
    same_elements,
)
from polymodel.architecture.hierarchy import SEARCHED, Component, Hierarchy
from polymodel.errors import NotSeparable, Refused
from polymodel.factoring import divisors
from polymodel.mapper.records import Limits
from polymodel.mapper.windows import Tie
from polymodel.mapping.resolve import OTHERS, LoopRule
from polymodel.reuse import Reuse
from polymodel.workload.einsum import Cascade, Einsum, TensorAccess

if TYPE_CHECKING:
    from polymodel.mapper.space import EinsumSpace, Operand
    from polymodel.mapper.templates import TemplateNode


# The rules of an exploration on the loops of one Einsum, by positions of its rank variables.

Factor = tuple[int, LoopRule]  # a rank variable (position) and a rule on its factor
OTHER = -1  # in a loop order: the variables that it does not name


@dataclass(frozen=True)
class LoopRules:
    """The rules of an exploration on the loops of one Einsum. `only`: per fanout the variables that may be
    spread over it (None: all); `spread`: per fanout the rules on factors of variables; `blocks`: the same
    for the temporal loops of each memory; `once`: (memory, operand) fetched once; `orders`: (memory,
    variables of its temporal loops, outermost first, OTHER for unnamed ones); `sliding`: memories whose
    nodes may slide; `keeping`: those whose nodes below no fused loops keep what the preceding visit held;
    `always`: those in which nodes may do nothing else."""

    only: tuple[frozenset[int] | None, ...] = ()
    spread: tuple[tuple[Factor, ...], ...] = ()
    blocks: tuple[tuple[Factor, ...], ...] = ()
    once: tuple[tuple[int, int], ...] = ()
    orders: tuple[tuple[int, tuple[int, ...]], ...] = ()
    sliding: frozenset[int] = frozenset()
    keeping: frozenset[int] = frozenset()
    always: frozenset[int] = frozenset()

    @property
    def of_blocks(self) -> bool:
        """Return whether rules on temporal loops exist, so that the memory to which a loop belongs is
        relevant."""
        return self.placed or bool(self.once)

    @property
    def placed(self) -> bool:
        """Whether rules on the factors or the order of a memory's loops exist."""
        return any(self.blocks) or bool(self.orders)

    def single(self, memory: int, variable: int) -> bool:
        """Return whether the rules leave a memory's loops over a variable a single iteration."""
        several = self.blocks[memory] if self.blocks else ()
        return any(v == variable and rule.relation != ">=" and rule.number == 1 for v, rule in several)

    def factors(self, variable: int) -> tuple[tuple[int, LoopRule], ...]:
        """The rules on factors of a variable, each with its memory."""
        every = ((m, v, rule) for m, several in enumerate(self.blocks) for v, rule in several)
        return tuple((m, rule) for m, v, rule in every if v == variable)

    def place(self, memory: int, variable: int) -> int | None:
        """Return the position of a variable in a memory's loop order; None if it is unrestricted."""
        sequence = next((s for m, s in self.orders if m == memory), ())
        named = variable if variable in sequence else OTHER
        return sequence.index(named) if named in sequence else None

    def inside(self, memory: int, variable: int, other: int) -> bool:
        """Whether a memory's loops over `other` must be inside those over `variable`."""
        first, second = self.place(memory, variable), self.place(memory, other)
        return first is not None and second is not None and first < second

    def apart(self, variable: int) -> object:
        """Return a key that is equal only for variables to which the same rules apply."""
        named = any(v == variable for row in (*self.spread, *self.blocks) for v, _ in row)
        named = named or any(variable in sequence for _, sequence in self.orders)
        return variable if named else -1, tuple(o is None or variable in o for o in self.only)

    def spreads(self, fanout: int, variable: int, choices: tuple[int, ...]) -> tuple[int, ...]:
        """The numbers of instances among `choices` that the rules admit."""
        allowed = self.only[fanout] if self.only else None
        if allowed is not None and variable not in allowed:
            choices = tuple(c for c in choices if c == 1)
        for v, rule in self.spread[fanout] if self.spread else ():
            if v == variable:
                choices = tuple(c for c in choices if rule.admits(c))
        return choices


NO_RULES = LoopRules()


def require_searchable(hierarchy: Hierarchy, by_hand: str) -> None:
    """Raises Refused for link topologies that searches do not count, and where there is no memory."""
    for name, d in hierarchy.costly_links:
        assert d.link is not None
        if d.link.hop_latency:
            remedy = (
                f"leave its `hop_latency:` out, explore, and evaluate what is found with it; or {by_hand}"
            )
            what = f"the search does not count how far data go on the link of {name}.{d.name}"
            raise Refused(what, remedy, code="unsupported-link")
        if d.link.topology not in SEARCHED:
            remedy = f"leave its `link:` out, explore, and evaluate what is found with it; or {by_hand}"
            what = f"the search does not count hops of the link of {name}.{d.name}, a {d.link.topology}"
            raise Refused(what, remedy, code="unsupported-link")
    if not any(c.stores for c in hierarchy.components):
        raise Refused("the architecture has no memory", "add a !Memory", code="missing-component")


def loop_rules(
    one: Einsum, hierarchy: Hierarchy, memories: list[Component], position: dict[str, int], limits: Limits
) -> LoopRules:
    """The rules that concern an Einsum, by positions of its variables and operands."""
    if not limits.rules:
        return LoopRules()
    fans = [f"{c.name}.{d.name}" for c in hierarchy.components for d in c.spatial]
    names = [m.name for m in memories]
    only: list[frozenset[int] | None] = [None] * len(fans)
    factors: dict[str, list[Factor]] = {n: [] for n in (*fans, *names)}
    once: list[tuple[int, int]] = []
    orders: list[tuple[int, tuple[int, ...]]] = []
    for rule in limits.rules:
        tensors = rule.tensors(one.name)
        if rule.kind == "variables":
            allowed = frozenset(position[v] for v in rule.names if v in position)
        elif rule.kind == "must_reuse":
            indexing = {v for a in one.accesses if a.tensor in tensors for v in a.variables}
            allowed = frozenset(i for v, i in position.items() if v not in indexing)
        elif rule.kind == "order":
            if any(m.allocation == "live" for m in memories):
                what = f"{rule.place} {rule.written} beside `allocation: live`, which depends on the order"
                raise Refused(what, "leave one of them out", code="unsupported-memory")
            sequence = tuple(
                OTHER if v == OTHERS else position[v] for v in rule.sequence if v == OTHERS or v in position
            )
            orders += [(names.index(rule.place), sequence)] if len(sequence) > 1 else []
            continue
        elif rule.kind == "reuse":
            continue
        elif rule.kind == "factors":
            single = [v for v in rule.names if v in one.rank_variables and v not in position]
            if single and not rule.admits(1):
                what = f"{rule.place} {rule.written}: rank variable {single[0]} of {one.name} has one value"
                message = f"no mapping obeys {what}"
                raise Refused(message, "leave the factor out, or ask for 1", code="contradictory-constraints")
            factors[rule.place] += [(position[v], rule) for v in rule.names if v in position]
            continue
        else:
            held = (i for i, t in enumerate(one.tensors) if t in tensors)
            once += [(names.index(rule.place), i) for i in held]
            continue
        f = fans.index(rule.place)
        before = only[f]
        only[f] = allowed if before is None else allowed & before
    policies = [(names.index(r.place), r.names) for r in limits.rules if r.kind == "reuse"]
    return LoopRules(
        tuple(only),
        tuple(tuple(factors[f]) for f in fans),
        tuple(tuple(factors[m]) for m in names),
        tuple(once),
        tuple(orders),
        frozenset(m for m, some in policies if Reuse.SLIDE in some),
        frozenset(m for m, some in policies if Reuse.KEEP_PREVIOUS in some),
        frozenset(m for m, some in policies if Reuse.REFILL not in some),
    )


# Order of the storage nodes of one Einsum: nodes of outer memories are above those of inner ones. Memories
# without a fanout between them, none of which may hold a tensor of another, are side by side: for example
# scratchpads for inputs, weights and partial sums. Their nodes may be in any order.

Bands = tuple[tuple[int, ...], ...]


def side_by_side(cascade: Cascade, hierarchy: Hierarchy) -> tuple[tuple[str, str], ...]:
    """Return (Einsum, memory) for each memory that is side by side with the previous one, by the rules of the
    architecture.

    Memories are grouped from the outside in; the backing storage is in no group.
    """
    result = []
    memories = [c for c in hierarchy.components if c.stores]
    for one in cascade.einsums:
        held: frozenset[str] = frozenset()
        for outer, inner in pairwise(memories[1:]):
            held |= _tensors(outer, one.name, one.tensors)
            mine = _tensors(inner, one.name, one.tensors)
            if held & mine or _fanned_out(hierarchy, outer, inner):
                held = frozenset()
            else:
                result.append((one.name, inner.name))
    return tuple(result)


def _tensors(memory: Component, einsum: str, tensors: Sequence[str]) -> frozenset[str]:
    """The tensors that the memory may hold."""
    if memory.may_keep is None:
        return frozenset(tensors)
    keep = memory.keep.tensors(einsum) if memory.keep else frozenset()
    return memory.may_keep.tensors(einsum) | keep


def _fanned_out(hierarchy: Hierarchy, outer: Component, inner: Component) -> bool:
    parts = hierarchy.components[hierarchy.index(outer.name) + 1 : hierarchy.index(inner.name) + 1]
    return any(d.fanout > 1 for c in parts for d in c.spatial)


def bands(space: EinsumSpace, limits: Limits, reach: int) -> Bands:
    """Memories inside the backing storage, in bands: all nodes of one band are above those of the next."""
    result: list[list[int]] = []
    for m in range(1, reach):
        across = any(f.below == m and f.width > 1 for f in space.fanouts)
        if not result or across or (limits.force_memory_order and m not in space.beside):
            result.append([])
        result[-1].append(m)
    return tuple(map(tuple, result))


def numbered_bands(space: EinsumSpace, limits: Limits) -> dict[int, int]:
    """The number of each memory's band."""
    several = bands(space, limits, len(space.memories))
    return {m: number for number, band in enumerate(several) for m in band}


def in_order(nodes: tuple[TemplateNode, ...], band: Mapping[int, int]) -> bool:
    """Whether nodes of one band are above those of the next, and nodes of one tensor in a band are in
    memory order. `band`: that of each memory, by `numbered_bands`."""

    def bound(a: TemplateNode, b: TemplateNode) -> bool:
        return a.operand == b.operand or band[a.memory] != band[b.memory]

    return not any(a.memory < b.memory and a.level > b.level and bound(a, b) for a in nodes for b in nodes)


def apart_at(space: EinsumSpace, limits: Limits, cut: int) -> bool:
    """Whether all nodes of memories up to the cut are above those of memories inside it."""

    def across(band: tuple[int, ...]) -> bool:
        used = [m for m in band if space.may[m]]
        return any(m <= cut for m in used) and any(m > cut for m in used)

    return not any(across(b) for b in bands(space, limits, len(space.memories)))


def cuttable(space: EinsumSpace, limits: Limits) -> bool:
    """True if the hierarchy may be cut: even tiles, memories in order, no fanout above the cut, and no
    times other than those of memories to which both regions contribute."""
    if len(space.memories) < 3 or not space.hierarchy.assume_overlap:
        return False
    inner = space.memories[cuts(space, limits)[-1]].index
    if any(t.index < inner for t in space.tolls) or any(f.costly and f.index <= inner for f in space.fanouts):
        return False
    if any(o.first_differs for o in space.operands):
        return False
    if any(m.live for m in space.memories) or space.rules.of_blocks or space.rules.sliding - {1}:
        return False
    if space.rules.keeping - {1}:
        return False
    if not space.even:
        return False
    ordered = all(apart_at(space, limits, cut) for cut in cuts(space, limits))
    wide = any(f.width > 1 and f.below <= 1 for f in space.fanouts)
    deep = bool(space.variables) and len(space.memories) > 2 and all(u.memories > 2 for u in space.units)
    return limits.sizes != "all" and ordered and not space.copy and deep and not wide


def cuts(space: EinsumSpace, limits: Limits) -> list[int]:
    """The memories where a hierarchy may be cut: the first one inside the backing storage, and those in
    which an intermediate may be exchanged."""
    most = min(max(space.exchange), min(u.memories for u in space.units) - 1)
    handed = [o.tensor for o in space.operands if o.fusable and o.tensor not in limits.unfused]
    held = (m for m in range(2, most + 1) if m in space.exchange and not space.may[m].isdisjoint(handed))
    return [1, *held]


# The numbers of instances over which the rank variables of an Einsum may be spread.

MOST_USES = 200_000  # numbers of instances of all fanouts that are distinguished


def spread_choices(
    space: EinsumSpace, unit: int, inside: int, variable: int, extent: int | None = None
) -> list[tuple[int, ...]]:
    """Per fanout the numbers of instances over which the variable may be spread; only 1 above an exchanged
    tensor (`inside`: the innermost memory that holds one). `extent`: of several variables that index the
    same tensors, together."""
    reach = 0 if space.copy else space.units[unit].fanouts
    choices: list[tuple[int, ...]] = []
    for number, f in enumerate(space.fanouts):
        reduced = (o for o in space.operands if o.output and variable not in o.alone)
        barred = number >= reach or f.below <= inside or not space.admits(number, variable)
        if barred or any(o.tensor not in f.reuses for o in reduced):
            some: tuple[int, ...] = (1,)
        else:
            whole = extent or space.extents[variable]
            some = tuple(d for d in (divisors(whole) if space.even else range(1, whole + 1)) if d <= f.width)
        # A rule on a fanout does not concern compute units that are not below it.
        choices.append(some if number >= reach else space.rules.spreads(number, variable, some))
    return choices


def at_their_most(space: EinsumSpace) -> EinsumSpace:
    """Return the space with `least` shares of fanouts as numbers where they are infinite (as high as
    possible): outer dimensions first, as far as the loops over them allow, regardless of memory capacities.
    No compute unit is excluded."""
    if space.copy or all(f.least < inf for f in space.fanouts):
        return space
    uses = [_best_use(space, unit) for unit in range(len(space.units))]
    fanouts = []
    for number, f in enumerate(space.fanouts):
        mine = [use[number] for use, u in zip(uses, space.units, strict=True) if number < u.fanouts]
        fanouts.append(replace(f, least=min(mine, default=1) / f.width) if f.least == inf else f)
    return replace(space, fanouts=tuple(fanouts))


def _best_use(space: EinsumSpace, unit: int) -> tuple[int, ...]:
    """Instances in use per fanout, maximised for one fanout after another."""
    reach = space.units[unit].fanouts
    used = {(1,) * reach}
    for members in space.bundles:
        spreads = list(_spreads(space, unit, members))
        grown = {tuple(a * b for a, b in zip(u, s, strict=True)) for u in used for s in spreads}
        used = {u for u in grown if all(x <= f.width for x, f in zip(u, space.fanouts, strict=False))} or used
        if len(used) > MOST_USES:
            message = f"{space.name} may use its fanouts in more than {MOST_USES:,} ways"
            raise Refused(message, "write the least utilisation as a number", code="too-large")
    asked = [k for k, f in enumerate(space.fanouts[:reach]) if f.least == inf]
    return max(used, key=lambda u: [u[k] for k in asked])


def _spreads(space: EinsumSpace, unit: int, members: tuple[int, ...]) -> Iterator[tuple[int, ...]]:
    """The ways to spread variables that index the same tensors together."""
    extent = prod(space.extents[v] for v in members)
    choices = spread_choices(space, unit, 0, members[0], extent)[: space.units[unit].fanouts]
    if space.even:
        return (s for s in product(*choices) if extent % prod(s) == 0)
    return (s for s in product(*choices) if _part_in(space, extent, s))


def _part_in(space: EinsumSpace, extent: int, spread: Sequence[int]) -> bool:
    """Whether an extent, or a tile of it that temporal loops leave, can be split as evenly as possible over
    `n` instances of each fanout. Dimensions above the same memory have no temporal loop between them."""
    left, above = {extent}, -1
    for n, f in zip(spread, space.fanouts, strict=False):
        if f.below != above:
            divide = {d for t in left for d in divisors(t)} if space.divide else set()
            left, above = divide or {*range(1, max(left) + 1)}, f.below
        left = {-(-t // n) for t in left if -(-t // -(-t // n)) == n}
        if not left:
            return False
    return True


# Rank variables tied by bounds of an iteration space: padded windows, masks, bands. A space that is a box
# except for such pairs is a product of the ranges of its other variables and of one set of points per pair.
# So each pair contributes one factor to every count, which depends on the tile sizes of both variables.


def _pairs(einsum: Einsum) -> tuple[TiedGroup, ...]:
    """The groups of tied variables. Raises NotSeparable if one of them is not a pair."""
    result = groups(einsum)
    more = next((g for g in result if len(g.variables) != 2), None)
    if more is not None:
        raise NotSeparable(
            f"the iteration space of {einsum.name} is not a box, and bounds tie more than two rank variables "
            f"together: {', '.join(more.variables)}",
            code="unsupported-space",
        )
    return result


def is_box(one: Einsum) -> bool:
    """Whether no bound ties rank variables together."""
    try:
        return not _pairs(one)
    except NotSeparable:
        return False


def ties_of(one: Einsum, variables: Sequence[str], remedy: str) -> tuple[Tie, ...]:
    """The ties of an Einsum, shifted to start at 0. Raises Refused if its space is not a product of pairs."""
    try:
        result = _pairs(one)
    except NotSeparable as fault:
        message = f"the search covers boxes and pairs of tied variables: {fault.message}"
        raise Refused(message, remedy, code="unsupported-space") from None
    return tuple(Tie(variables.index(g.u), variables.index(g.v), g.region) for g in result)


def require_counted(one: Einsum, ties: Iterable[Tie], operands: Iterable[Operand], remedy: str) -> None:
    """Raise Refused for tensors whose element counts do not follow from the tiles of a pair."""
    for tie in ties:
        for o in operands:
            partly = any(w for w in o.windows if w.held or len({w.p, w.r} & tie.both) == 1)
            partly |= bool(o.imaged & tie.both)
            what, rank = tie.of(o)
            if partly or (what == "rank" and 1 not in rank):
                windows = f"the windows of {o.tensor} in {one.name}, whose iteration space is not a box"
                raise Refused(f"the search does not cover {windows}", remedy, code="unsupported-window")


def refuse_uneven(one: Einsum, ties: Sequence[Tie], besides: Iterable[str], remedy: str) -> None:
    """Raise Refused for `besides`, which is counted only if all tiles are equal."""
    for what in besides if ties else ():
        subject = f"the iteration space of {one.name} is not a box"
        message = f"{subject}, which the search does not cover beside {what}"
        raise Refused(message, remedy, code="unsupported-instances")


def elements_of(operand: Operand, extents: Sequence[int], ties: Sequence[Tie]) -> int:
    """Elements of a tensor that the Einsum touches."""
    tied = frozenset(v for t in ties for v in t.both)
    result = prod(t.moved((0, 0), t.of(operand)) for t in ties)
    result *= prod(extents[v] for v in operand.alone - tied)
    return result * prod(w.touched(extents) for w in operand.windows if w.p not in tied)


def points_of(extents: Sequence[int], ties: Sequence[Tie]) -> int:
    """Points of the iteration space."""
    tied = frozenset(v for t in ties for v in t.both)
    return prod(n for v, n in enumerate(extents) if v not in tied) * prod(t.points for t in ties)


def parted_alike(one: Einsum, access: TensorAccess, rank: int, cascade: Cascade) -> bool:
    """Return whether loops over a rank split a tensor as at its producer: both start at the same value."""
    maker = cascade.producer(access.tensor)
    if access.output or maker is None or access.tensor in cascade.shifted:
        return True
    ends = (one, access.projection[rank]), (maker, maker.access_of(access.tensor).projection[rank])
    lows = {e.bound(v)[0] for e, x in ends for v in x.variables if v in e.rank_variables}
    return len(lows) < 2


# Tensors carried forward: within a tile of the rank variable over which it is carried, an Einsum touches
# what is produced there, and of the generation before it what the first iteration of the tile reads. No
# iteration reads what is before the first generation.


@dataclass(frozen=True)
class Generations:
    """How an Einsum accesses a recurrent tensor.

    `variable`: the rank variable (position) of the recurrence; `now`: the number of reads of the newest
    generation; `back`: the distances of the other reads. `awaited`: a later Einsum produces the tensor, so
    that both are below a loop over single values of the variable.
    """

    variable: int
    now: int
    back: tuple[int, ...]
    awaited: bool = False

    def reads(self, extent: int) -> int:
        """Reads of earlier generations in `extent` iterations; those before the first generation do not
        count."""
        return sum(max(extent - away, 0) for away in self.back)


def generations_of(
    one: Einsum, tensor: str, cascade: Cascade, position: Mapping[str, int], remedy: str
) -> Generations | None:
    """The generations that an Einsum touches; None if all iterations read at most one. Raises Refused for
    other reads."""
    maker = cascade.producer(tensor)
    if tensor not in cascade.shifted or maker is None:
        return None
    what = f"{one.name} reads {tensor} at other steps than this generation and the preceding one, of several"
    otherwise = Refused(f"{what}: the search does not cover that", remedy, code="unsupported-recurrence")
    try:
        line = carried_line(cascade, maker, tensor)
        for access in one.accesses_of(tensor):
            check_access(one, access, line, maker.access_of(tensor))
    except NotSeparable:
        if one is not maker:
            return None  # one element in each operation
        raise otherwise from None
    indices = {a.projection[line.rank] for a in one.accesses_of(tensor)}
    write = maker.access_of(tensor).projection[line.rank]
    if not same_elements(one, line, tensor):
        message = f"{one.name} accesses {tensor} at several elements of a generation"
        raise Refused(message, remedy, code="unsupported-recurrence")
    if len(indices) == 1 and not any(x.terms for x in indices):
        return None
    v = next((u for x in indices for u in x.variables), "")
    away = [a.projection[line.rank].constant - write.constant for a in one.accesses_of(tensor)]
    alike = all(x.variables == (v,) for x in indices) and one.bound(v) == maker.bound(write.variables[0])
    read_alone = all(e is maker for e in (one, *cascade.consumers(tensor)))  # several generations back
    if not alike or max(away) > 0 or v not in position or (min(away) < -1 and not read_alone):
        raise otherwise
    sums = [u for u in position if one is maker and u not in one.access_of(tensor).variables]
    if sums and min(away) < 0:
        what = f"{one.name} carries {tensor} forward and sums up over {sums[0]}"
        message = f"{what}; the search covers one of both in an Einsum"
        raise Refused(message, "sum up in an Einsum of its own", code="unsupported-recurrence")
    now = sum(not a.output and x == 0 for a, x in zip(one.accesses_of(tensor), away, strict=True))
    early = one is not maker and one in cascade.earlier_readers(tensor)
    return Generations(position[v], now, tuple(-x for x in away if x < 0), early)


def touches_boxes(one: Einsum, tensor: str, cascade: Cascade, variables: Collection[str]) -> bool:
    """Whether an Einsum touches elements of several generations, or several elements of one, of a tensor that
    is carried along several ranks, or that holds what is before. `variables`: those of extent above 1."""
    access, maker = one.access_of(tensor), cascade.producer(tensor)
    if access.stands_for:
        v = access.guard[0].expr.variables[0]
        others = {(a.projection, a.guard) for a in one.accesses_of(tensor)}
        return len(access.guard) > 1 or len(others) > 1 or v in access.variables or v not in variables
    if maker is None or tensor not in cascade.recurrent:
        return False
    if maker is not one:
        several = touches_boxes(maker, tensor, cascade, maker.rank_variables)
        return several and (bool(access.guard) or len(one.accesses_of(tensor)) > 1)
    try:
        line = carried_line(cascade, maker, tensor)
        for a in one.accesses_of(tensor):
            check_access(one, a, line, maker.access_of(tensor))
    except NotSeparable:
        return True
    return not same_elements(one, line, tensor)


def refuse_carried_uneven(
    one: Einsum, operands: Sequence[Operand], ties: Sequence[Tie], besides: Sequence[str],
    rounding: Collection[str], remedy: str,
) -> None:  # fmt: skip
    """Raise Refused for recurrent tensors together with anything that is counted only if all tiles are equal.

    With transfers rounded to whole actions (`rounding`) and one generation each, all transfers are equal.
    """
    for o in (o for o in operands if o.first_differs):
        one_each = o.carried is None or (o.output and set(o.carried.back) == {1})
        tied = any(v in t.both for t in ties for v in o.first_differs)
        for what in ("bounds that tie the rank variable to another one", *besides)[not tied :]:
            if "action" in what and (o.tensor not in rounding or one_each):
                continue
            subject = f"{one.name} touches a tensor that is carried forward"
            message = f"{subject}, which the search does not cover beside {what}"
            raise Refused(message, remedy, code="unsupported-recurrence")
