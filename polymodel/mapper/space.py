"""One Einsum and the memories around it as the search models them: boxes, products, prices per element.

The search covers rectangular iteration spaces whose ranks are a rank variable or a sum of two. Other spaces
are refused with an explanation, as is everything that `terms` cannot price.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import field, replace
from functools import cached_property
from itertools import pairwise
from typing import TYPE_CHECKING, Any

from polymodel.analysis.result import Problem
from polymodel.analysis.symbolic.spaces import halos
from polymodel.architecture.hierarchy import Component, Hierarchy
from polymodel.cost.energy import leak_power
from polymodel.cost.records import NO_OPERATORS, ExecutedOperators
from polymodel.errors import NotSeparable, Refused
from polymodel.frozen import dataclass
from polymodel.mapper.aims import Added
from polymodel.mapper.einsum_rules import (
    NO_RULES,
    Generations,
    LoopRules,
    at_their_most,
    elements_of,
    generations_of,
    loop_rules,
    parted_alike,
    points_of,
    refuse_carried_uneven,
    refuse_uneven,
    require_counted,
    require_searchable,
    ties_of,
    touches_boxes,
)
from polymodel.mapper.kept_tiles import counted_policies
from polymodel.mapper.pricing import CountPrices
from polymodel.mapper.records import (
    ALIKE,
    FanoutDimension,
    Limits,
    MemoryLevel,
    Shares,
    TollPayers,
    Unit,
    counted_topology,
)
from polymodel.mapper.ties import is_counted, spreads
from polymodel.mapper.windows import RankWindow, TwoImages, images_of, neighbours_of, overlaps, variables_of
from polymodel.mapping.looptree import ComputeNode, LoopTree
from polymodel.reuse import Reuse
from polymodel.schedule.legality import never_produced
from polymodel.spec.arch_schema import branches_to
from polymodel.workload.einsum import Cascade, Einsum, require_plain

if TYPE_CHECKING:
    from polymodel.mapper.stencils import TouchedBoxes
    from polymodel.mapper.windows import Tie

Array = Any
REMEDY = "write its mapping by hand and evaluate or sweep it"
CARRIED = "unsupported-recurrence"


def _uncovered(what: str, code: str) -> Refused:
    return Refused(f"the search does not cover {what}", REMEDY, code=code)


@dataclass(frozen=True)
class Operand:
    """One tensor of an Einsum. `alone`: variables (positions) with a rank of their own, or that number the
    elements of a rank together, each pair of values another one; `elements`: their number; `ranks`: per rank
    the position of its variable, or -1 (no single variable, extent 1, or one that shared loops split
    differently than at the producer); `rounds`: whether some component rounds its transfers up to whole
    actions. `tied`: variables of the Einsum that are tied in pairs. `reads`: accesses that read each element.
    `accumulates`: an output to whose previous values results are added. `forward`: carried forward;
    `carried`: how it is touched, if not as a single generation; `first`: the variable in whose first
    iteration only it is read (-1: in all); `boxes`: where several elements of earlier generations are
    touched. `persistent`: it stays for the whole run in the memory of its outermost tile, once for each
    instance of the Einsum."""

    tensor: str
    output: bool
    bits: int
    alone: frozenset[int]
    windows: tuple[RankWindow | TwoImages, ...]
    ranks: tuple[int, ...]
    elements: int
    fusable: bool
    rounds: bool = False
    tied: frozenset[int] = frozenset()
    reads: int = 1
    accumulates: bool = False
    forward: bool = False
    carried: Generations | None = None
    first: int = -1
    boxes: TouchedBoxes | None = None
    persistent: bool = False

    @cached_property
    def parted(self) -> frozenset[int]:
        """Variables by which loops that Einsums share split the tensor."""
        return self.alone & frozenset(self.ranks)

    @property
    def over(self) -> int:
        """Return the variable of the tensor's recurrence (-1: none)."""
        return self.carried.variable if self.carried is not None else -1

    @property
    def behind(self) -> int:
        """Return the variable across whose iterations the previous generation is read (-1: none)."""
        return self.carried.variable if self.carried is not None and self.carried.back else -1

    @property
    def first_differs(self) -> frozenset[int]:
        """Variables whose first iteration touches other elements than later iterations."""
        together = self.boxes.variables if self.boxes is not None else ()
        return frozenset((self.behind, self.first, *together)) - {-1}

    def touched(self, elements: int, extents: Sequence[int]) -> int:
        """Return how many elements are accessed: without the last generation if all accesses read the
        previous one."""
        if self.boxes is not None and not self.output:
            others = math.prod(extents[v] for v in self.alone - {*self.boxes.variables})
            return self.boxes.elements() * others
        if self.behind < 0 or self.output or (self.carried is not None and self.carried.now):
            return elements
        return elements // extents[self.behind] * (extents[self.behind] - 1)

    def reads_per_operation(self, extents: Sequence[int]) -> float:
        """Average number of reads per operation; for an output, reads of the previous generation."""
        if self.boxes is not None:
            return self.boxes.reads / math.prod(extents[v] for v in self.boxes.variables if v >= 0)
        if self.first >= 0:
            return self.reads / extents[self.first]
        if self.carried is None:
            return 0.0 if self.output else float(self.reads * math.prod(w.reads for w in self.windows))
        extent = extents[self.carried.variable]
        return self.carried.now + self.carried.reads(extent) / extent

    @cached_property
    def windowed(self) -> frozenset[int]:
        return frozenset(v for w in self.windows for v in w.variables)

    @cached_property
    def imaged(self) -> frozenset[int]:
        """Variables of two images of a rank."""
        return frozenset(v for w in self.windows if isinstance(w, TwoImages) for v in w.variables)


@dataclass(frozen=True)
class EinsumSpace:
    """One Einsum. `variables`: those of extent above 1, with their `extents`; `keep`, `may`: per memory the
    tensors that it must and may hold; `exchange`: memories in which Einsums may exchange tensors. `shares`:
    lower bounds of accesses on sparse data (None: dense). `hierarchy`: reduced to what its components cost.
    `beside`: memories side by side with the one before them. `ties`: pairs of dependent variables. `more`:
    other figures that add up. `divide`: temporal tiles divide the enclosing tile; `even`: so do spatial
    tiles."""

    name: str
    variables: tuple[str, ...]
    extents: tuple[int, ...]
    operands: tuple[Operand, ...]
    copy: bool
    times: int
    memories: tuple[MemoryLevel, ...]
    fanouts: tuple[FanoutDimension, ...]
    units: tuple[Unit, ...]
    keep: tuple[frozenset[str], ...]
    may: tuple[frozenset[str], ...]
    leak: float
    exchange: frozenset[int]
    tolls: tuple[TollPayers, ...]
    hierarchy: Hierarchy
    einsum: Einsum = field(compare=False, repr=False)
    divide: bool = True
    even: bool = True
    shares: Shares | None = None
    rules: LoopRules = NO_RULES
    operators: ExecutedOperators = NO_OPERATORS
    beside: frozenset[int] = frozenset()
    ties: tuple[Tie, ...] = ()
    more: tuple[Added, ...] = ()

    @cached_property
    def operations(self) -> int:
        return points_of(self.extents, self.ties)

    def added_up(self, linear: Sequence[Array], latency: Array) -> list[Array]:
        """Return the figures of `more`, from the parts that are linear in the counts of one execution, and
        from the latency."""
        each = zip(self.more, linear, strict=True)
        return [a.stepped(form * self.times) + a.slope(self.leak) * latency for a, form in each]

    @cached_property
    def problem(self) -> Problem:
        """Return one execution of the Einsum for the cost rules, which do not depend on storage."""
        leaf = ComputeNode(self.name, self.units[0].name)
        alone = Cascade((replace(self.einsum, n_instances=1),))
        return Problem(alone, self.hierarchy, LoopTree((leaf,)))

    @cached_property
    def prices(self) -> CountPrices:
        """The cost rules applied to the counts of one execution."""
        return CountPrices(self.problem)

    @cached_property
    def bundles(self) -> tuple[tuple[int, ...], ...]:
        """Return variables that index the same tensors, grouped; variables in windows or pairs, and those of
        recurrences, are separate. Only the product of a bundle's tile sizes counts, and every chain of
        divisors of it is possible. With sizes that do not divide, each variable is its own bundle."""
        result: dict[object, list[int]] = {}
        for v in range(len(self.variables)):
            windowed = any(v in o.windowed | o.tied | o.first_differs | {o.over} for o in self.operands)
            alike = tuple((v in o.alone, v in o.parted) for o in self.operands), self.rules.apart(v)
            key = v if windowed or not (self.divide and self.even) else alike
            result.setdefault(key, []).append(v)
        return tuple(tuple(b) for b in result.values())

    @cached_property
    def groups(self) -> tuple[tuple[int, ...], ...]:
        """Return bundles (positions) connected by windows or pairs; every other one by itself."""
        parent = list(range(len(self.bundles)))
        bundle = {v: b for b, members in enumerate(self.bundles) for v in members}

        def root(b: int) -> int:
            while parent[b] != b:
                b = parent[b]
            return b

        pairs = [w.variables for o in self.operands for w in o.windows if not w.held]
        pairs += [(t.u, t.v) for t in self.ties]
        together = ([v for v in o.boxes.variables if v >= 0] for o in self.operands if o.boxes is not None)
        pairs += [pair for several in together for pair in pairwise(several)]
        for one, other in pairs:
            parent[root(bundle[other])] = root(bundle[one])
        result: dict[int, list[int]] = {}
        for b in range(len(self.bundles)):
            result.setdefault(root(b), []).append(b)
        return tuple(tuple(g) for g in result.values())

    def component(self, memory: int) -> Component:
        """The component of a memory, with the costs of its actions."""
        return self.hierarchy[self.memories[memory].name]

    def admits(self, fanout: int, variable: int) -> bool:
        """Return whether a rank variable may be spread over a fanout, with regard to windows. With `sizes:
        all`, the elements that instances read together where windows overlap are counted only if spatial
        tiles need not divide either. For a recurrent tensor, instances have unequal shares."""
        fan, carried = self.fanouts[fanout], any(variable in o.first_differs for o in self.operands)
        if carried or not all(self._parts(o, fan) for o in self.operands if variable in o.imaged):
            return False
        if not all(self.even and spreads(t, fan) for t in self.ties if variable in t.both):
            return False
        shared = any(fan.shares_windows(o.tensor) for o in self.operands if variable in o.windowed)
        return not shared or ((self.divide or not self.even) and fan.topology in ALIKE)

    def _parts(self, o: Operand, fan: FanoutDimension) -> bool:
        """Return whether variables of two images may be spread: instances, whose shares differ, have the same
        distance to their data, and share all common data or nothing."""
        return self.even and fan.topology in ALIKE and (fan.overlapping or o.tensor not in fan.reuses)

    def slides(self, memory: int, operand: int) -> tuple[int, ...]:
        """Return the variables along which a node may slide: those of the operand's windows, but not of pairs
        that are tied in too many points."""
        if memory not in self.rules.sliding:
            return ()
        o = self.operands[operand]
        many = (tie.both for tie in self.ties if not is_counted(tie.region))
        return tuple(sorted(o.windowed.difference(o.imaged, *many)))

    @cached_property
    def in_order(self) -> tuple[int, ...]:
        """The variables as loops between two nodes stand, outermost first: those over which a tensor is
        carried forward before those along which it has neighbours."""
        over = [o.boxes.over for o in self.operands if o.boxes is not None]
        return tuple(sorted(range(len(self.variables)), key=lambda v: v not in over))

    def operand(self, tensor: str) -> Operand | None:
        return next((o for o in self.operands if o.tensor == tensor), None)

    @cached_property
    def awaited(self) -> frozenset[int]:
        """Return variables of recurrences whose tensor a later Einsum produces."""
        carried = (o.carried for o in self.operands)
        return frozenset(c.variable for c in carried if c is not None and c.awaited)

    @cached_property
    def shape(self) -> object:
        """Everything on which costs depend: Einsums of equal shape have equal costs (apart from names)."""
        order = {o.tensor: i for i, o in enumerate(self.operands)}

        def numbered(tensors: frozenset[str]) -> frozenset[int]:
            return frozenset(order[t] for t in tensors if t in order)

        return (
            self.extents, self.copy, self.times, self.memories, self.units, self.leak, self.shares,
            self.operators, self.beside, self.ties,
            self.hierarchy, tuple((t.name, numbered(t.tensors)) for t in self.tolls),
            tuple(replace(o, tensor="", elements=0) for o in self.operands),
            tuple(
                (
                    f.width, f.below, f.least, numbered(f.reuses), f.broadcast, f.overlapping, f.costly,
                    f.topology,
                )
                for f in self.fanouts
            ),
            tuple(map(numbered, self.keep)), tuple(map(numbered, self.may)), self.rules,
        )  # fmt: skip


def einsum_spaces(cascade: Cascade, hierarchy: Hierarchy, limits: Limits) -> tuple[EinsumSpace, ...]:
    """Return the spaces of all Einsums in order of execution. Raises Refused for unsupported Einsums."""
    require_searchable(hierarchy, REMEDY)
    require_plain(cascade, "the search covers", REMEDY, products=True, carried=True, several=True)
    result = tuple(at_their_most(_space(e, cascade, hierarchy, limits)) for e in cascade.einsums)
    if any(o.boxes is not None for s in result for o in s.operands):
        from polymodel.mapper.stencils import boxes_apart

        result = boxes_apart(result, REMEDY)
    never = never_produced(cascade)
    if never:
        message = f"no mapping is legal: {never}"
        remedy = "let the consumer read only what is produced (shrink or shift its ranks), or make all of it"
        raise Refused(message, remedy, code="no-solution")
    _backed(result, cascade, hierarchy)
    return result


def _backed(spaces: tuple[EinsumSpace, ...], cascade: Cascade, hierarchy: Hierarchy) -> None:
    """Raise Refused unless the backing storage has space for all tensors at once, as the search assumes."""
    backing = next(c for c in hierarchy.components if c.stores)
    bits: dict[str, int] = {}
    for space, one in zip(spaces, cascade.einsums, strict=True):
        for o in space.operands:
            a = one.access_of(o.tensor)
            copies = one.n_instances if a.persistent else 1
            need = math.ceil(o.elements * o.bits * a.backing_scale) * copies
            bits[o.tensor] = max(need, bits.get(o.tensor, 0))
    every = sum(bits.values())
    if every > backing.size_bits:
        raise Refused(
            f"the search takes it that {backing.name} has room for all tensors at once: they need {every:,} "
            f"bits, it has {backing.size_bits:,.0f}",
            f"give {backing.name} at least that size, or {REMEDY}",
            code="unsupported-memory",
        )


def _prices(hierarchy: Hierarchy) -> Hierarchy:
    """The hierarchy without rules on tensors, sparse data and area, which do not enter costs."""
    bare = (
        replace(
            c, keep=None, may_keep=None, sparse=None, data_tiles=None, area=0.0, clock=None,
            spatial=tuple(replace(d, may_reuse=None) for d in c.spatial),
        )
        for c in hierarchy.components
    )  # fmt: skip
    return replace(hierarchy, components=tuple(bare))


def _rounding(one: Einsum, components: Iterable[Component], limits: Limits) -> frozenset[str]:
    """Tensors whose transfers some component rounds up to whole actions. Raises Refused where transfers may
    be of unequal size."""
    acting = [(c, a) for c in components if c.moves for a in c.actions]
    result = {x.tensor: c.name for c, a in acting for x in one.accesses if a.rounds(x.bits_per_value)}
    for name in result.values():
        rounding = f"`bits_per_action` of {name} that divides no value"
        if one.is_copy:
            raise _uncovered(f"copies ({one.name}) beside {rounding}", "unsupported-rounding")
        if limits.sizes == "all":
            what = f"the search covers {rounding} only where tile sizes divide"
            raise Refused(what, "leave `sizes: all` out, or " + REMEDY, code="unsupported-rounding")
    return frozenset(result)


def _space(one: Einsum, cascade: Cascade, whole: Hierarchy, limits: Limits) -> EinsumSpace:
    units = limits.units(one.name, one.is_copy, whole)
    hierarchy = whole.along({b for u in units for b in branches_to(u.branch)})
    if one.is_copy and hierarchy.costly_links:
        raise _uncovered(f"copies over links with costs ({one.name})", "unsupported-copy")
    rounding = _rounding(one, hierarchy.components, limits)
    variables = variables_of(one)
    memories = [c for c in hierarchy.components if c.stores]
    position = {v: i for i, v in enumerate(variables)}
    extents = tuple(one.bound(v)[1] - one.bound(v)[0] + 1 for v in variables)
    ties = ties_of(one, variables, REMEDY)
    operands = tuple(_operand(one, t, position, cascade) for t in one.tensors)
    require_counted(one, ties, operands, REMEDY)
    _require_even(one, memories, rounding, limits)
    besides = [x for x in _equal_tiles(one, memories, rounding, limits) if "live" not in x]
    refuse_uneven(one, ties, besides, REMEDY)
    for o in (o for o in operands if o.imaged):
        for what in (w for w in besides if "action" not in w or o.tensor in rounding):
            raise _uncovered(f"two images of {o.tensor} in {one.name} beside {what}", "unsupported-einsum")
    besides = [x for x in besides if "sizes" not in x]
    refuse_carried_uneven(one, operands, ties, besides, rounding, REMEDY)
    _require_counted_unevenly(hierarchy, rounding, limits)
    keep, may = _rules(one, memories)
    utilisation = {(c, d): least for c, d, least in limits.min_utilisation}
    return EinsumSpace(
        one.name,
        variables,
        extents,
        tuple(
            replace(
                o,
                rounds=o.tensor in rounding,
                tied=frozenset(v for t in ties for v in t.both),
                elements=o.touched(elements_of(o, extents, ties), extents),
            )
            for o in operands
        ),
        one.is_copy,
        one.n_instances,
        tuple(MemoryLevel.of(c, hierarchy.index(c.name)) for c in memories),
        tuple(_fanouts(one, hierarchy, memories, utilisation)),
        tuple(Unit.of(u, hierarchy) for u in units),
        keep,
        may,
        leak_power(whole),
        frozenset(
            i for i, m in enumerate(memories) if i and (limits.exchange is None or m.name in limits.exchange)
        )
        | {1},
        tuple(_tolls(one, hierarchy)),
        _prices(whole),
        one,
        limits.sizes != "all",
        limits.spatial_sizes != "all",
        rules=_rules_on_loops(one, loop_rules(one, hierarchy, memories, position, limits), operands, ties),
        operators=ExecutedOperators.priced(one, hierarchy),
        beside=frozenset(i for i, m in enumerate(memories) if (one.name, m.name) in limits.side_by_side),
        ties=ties,
    )


def _rules_on_loops(
    one: Einsum, rules: LoopRules, operands: Sequence[Operand], ties: tuple[Tie, ...]
) -> LoopRules:
    return counted_policies(one, rules, operands, ties) if rules.keeping else rules


def _require_even(
    one: Einsum, memories: Sequence[Component], rounding: frozenset[str], limits: Limits
) -> None:
    """Raise Refused for nodes that slide, together with features that are counted only if nodes refill."""
    sliding = {r.place: r.names for r in limits.rules if r.kind == "reuse"}
    besides = _equal_tiles(one, [m for m in memories if m.name in sliding], rounding, limits)
    for what in (w for w in besides if sliding and w != "copies"):
        place, names = next(iter(sliding.items()))
        policy = next(p for p in Reuse if p.carries and p in names)
        raise _uncovered(f"nodes of {place} that {policy} beside {what}", "unsupported-instances")


def _require_counted_unevenly(hierarchy: Hierarchy, rounding: frozenset[str], limits: Limits) -> None:
    """Raise Refused for spatial tiles that need not divide, in combination with features that are counted
    only if they do."""
    if limits.spatial_sizes != "all":
        return
    unlike = (f"{n}.{d.name}" for n, d in hierarchy.costly_links if d.link and d.link.topology not in ALIKE)
    besides = [
        *(f"{name}, whose instances are not as many hops away" for name in unlike),
        *(["`bits_per_action` that divides no value"] if rounding else []),
        *(f"`{r.written}` of {r.place}" for r in limits.rules if not r.spatial and r.kind != "no_refetch"),
    ]
    if besides:
        what = f"the search does not cover `spatial_sizes: all` beside {besides[0]}"
        raise Refused(what, "leave one of them out", code="unsupported-instances")


def _equal_tiles(
    one: Einsum, memories: Sequence[Component], rounding: frozenset[str], limits: Limits
) -> Iterator[str]:
    """Return features that are counted only if all tiles are equal."""
    if one.is_copy:
        yield "copies"
    if limits.sizes == "all":
        yield "`sizes: all`"
    if rounding:
        yield "`bits_per_action` that divides no value"
    if live := [m.name for m in memories if m.allocation == "live"]:
        yield f"`allocation: live` of {live[0]}"


def _tolls(one: Einsum, hierarchy: Hierarchy) -> Iterator[TollPayers]:
    for i, c in enumerate(hierarchy.components):
        if c.passes and c.keep is not None and c.actions:
            yield TollPayers(c.name, i, c.keep.tensors(one.name))


def _operand(one: Einsum, tensor: str, position: dict[str, int], cascade: Cascade) -> Operand:
    if touches_boxes(one, tensor, cascade, position):
        return _in_boxes(one, tensor, position, cascade)
    images = None if tensor in cascade.shifted else images_of(one, tensor, position)
    if images is None:
        joined, access, reads = neighbours_of(one, tensor, cascade, REMEDY)
    else:
        joined, access, reads = one, one.access_of(tensor), 1
    # What distinguishes neighbours has positions after the rank variables.
    held = [v for v in joined.rank_variables if v not in one.rank_variables and v in access.variables]
    sizes = {v: joined.bound(v)[1] + 1 for v in held}
    position = position | {v: len(position) + k for k, v in enumerate(held)}
    try:
        result = halos(joined, access)
    except NotSeparable as fault:
        raise Refused(fault.message, REMEDY, code=fault.code) from None
    joint = [h for h in result if h.p in position and h.r in position]
    merged = {position[v] for h in joint if not overlaps(one, h) for v in (h.p, h.r)}
    windows: tuple[RankWindow | TwoImages, ...] = tuple(
        RankWindow(position[h.p], position[h.r], h.shift_p, h.shift_r, sizes.get(h.r, 0))
        for h in joint
        if position[h.p] not in merged
    )
    windows += () if images is None else (images[1],)
    within = {v for w in windows for v in (w.p, w.r)}
    ranks: list[int] = []
    for k, expr in enumerate(access.projection):
        if images is not None and k == images[0]:
            ranks.append(-1)
            continue
        mine = [position[v] for v in expr.variables if v in position]
        if len(mine) == 1 and expr.variables[-1] in sizes:
            what = f"{one.name} reads {tensor} at several elements of a rank that no loop goes over"
            raise Refused(f"{what}, which the search does not cover", REMEDY, code="unsupported-window")
        ranks.append(mine[0] if len(mine) == 1 else -1)
        if len(mine) > 1 and not set(mine) <= within | merged:
            raise _uncovered(f"rank {expr} of {access.tensor} in {one.name}", "unsupported-window")
    alone = frozenset(r for r in ranks if r >= 0) | merged
    ranks = [r if parted_alike(one, access, k, cascade) else -1 for k, r in enumerate(ranks)]
    if alone & within or (windows and access.output):
        raise _uncovered(f"the windows of {access.tensor} in {one.name}", "unsupported-window")
    fusable = access.tensor in cascade.intermediates
    carried = generations_of(one, access.tensor, cascade, position, REMEDY)
    first = position[access.guard[0].expr.variables[0]] if access.stands_for else -1
    return Operand(
        access.tensor, access.output, access.bits_per_value, alone, windows, tuple(ranks), 0, fusable,
        reads=reads, accumulates=access.accumulates, carried=carried,
        first=first, forward=access.tensor in cascade.shifted,
        persistent=access.persistent,
    )  # fmt: skip


def _in_boxes(one: Einsum, tensor: str, position: dict[str, int], cascade: Cascade) -> Operand:
    """A tensor of which several elements of earlier generations are touched."""
    from polymodel.mapper.stencils import boxes_of

    access = one.access_of(tensor)
    what = f"{one.name} accesses {tensor} at several elements of a generation that are no boxes, at constant"
    what = f"{what} distances, of earlier ones"
    otherwise = Refused(f"{what}; the search does not cover that", REMEDY, code=CARRIED)
    boxes = boxes_of(one, tensor, cascade, position, otherwise)
    places = [[position[v] for v in x.variables if v in position] for x in access.projection]
    if any(len(mine) > 1 for mine in places):
        raise otherwise
    ranks = tuple(mine[0] if mine else -1 for mine in places)
    carried = Generations(boxes.over, 0, boxes.back) if boxes.over >= 0 else None
    return Operand(
        tensor, access.output, access.bits_per_value, frozenset(ranks) - {-1}, (), ranks, 0, False,
        carried=carried, forward=tensor in cascade.shifted, boxes=boxes, persistent=access.persistent,
    )  # fmt: skip


def _rules(
    one: Einsum, memories: list[Component]
) -> tuple[tuple[frozenset[str], ...], tuple[frozenset[str], ...]]:
    every = frozenset(one.tensors)
    keep = tuple(c.keep.tensors(one.name) if c.keep else frozenset() for c in memories)
    may = tuple(
        (c.may_keep.tensors(one.name) | k if c.may_keep else every)
        for c, k in zip(memories, keep, strict=True)
    )
    return keep, may


def _fanouts(
    one: Einsum, hierarchy: Hierarchy, memories: list[Component], least: dict[tuple[str, str], float]
) -> list[FanoutDimension]:
    result = []
    names = [m.name for m in memories]
    for c in hierarchy.components:
        above = sum(hierarchy.index(n) < hierarchy.index(c.name) for n in names)
        for d in c.spatial:
            reuses = frozenset(t for t in one.tensors if d.reuses(one.name, t))
            result.append(
                FanoutDimension(
                    c.name, d.name, d.fanout, above, least.get((c.name, d.name), 0.0), reuses,
                    d.broadcast_partials, d.multicast == "overlapping", hierarchy.index(c.name),
                    d.link is not None and d.link.costs,
                    counted_topology(d.link),
                )
            )  # fmt: skip
    return result
