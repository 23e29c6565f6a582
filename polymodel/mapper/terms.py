"""The costs of a template as sums of products of one factor per group of rank variables.

A `Term` counts elements of one tensor: all its tiles at a level, once per visit and instance. Elements that a
parent reads once for many instances exclude the instances that share them (`union`); the busiest instance has
its part of the total (`split`: over all instances of these fanouts; `own`: only over those whose data
differ). The rules are those of docs/semantics.md: an output is drained once per visit, and filled back except
for the visits that find no previous value.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from itertools import pairwise
from typing import Any

from polymodel.analysis.result import (
    Analysis,
    ComputeCounts,
    InstanceLoad,
    LinkTraffic,
    RefillLoad,
    TollTraffic,
    Traffic,
)
from polymodel.architecture.hierarchy import ActionCost
from polymodel.frozen import dataclass
from polymodel.mapper.aims import Added
from polymodel.mapper.kept_tiles import steps_of
from polymodel.mapper.pricing import (
    END,
    INSTANCES,
    NONE,
    OPERATIONS,
    Actions,
    CountPlaceholders,
    Fans,
    Form,
    Key,
    PricedTimes,
    Term,
    Transfers,
    VisitStep,
    plus,
    total,
)
from polymodel.mapper.space import EinsumSpace, Operand
from polymodel.mapper.templates import Template, TemplateNode

Array = Any
COMPUTE = -1
READS = ("reads_fill", "reads_drain")


@dataclass(frozen=True)
class CostTerms:
    """Costs as linear forms over terms. `energy`: joules of all actions; `times`: seconds; `nodes`: bits of
    each node, in the template's order; `more`: the other figures that add up, without the part that depends
    on latency. `besides`: for `jointly`, terms on which only some of the costs depend; `in_all`: the part of
    `times` common to all."""

    energy: Form
    times: PricedTimes
    nodes: tuple[tuple[Term, float], ...]
    besides: tuple[Form, ...] = ()
    more: tuple[Form, ...] = ()
    in_all: PricedTimes | None = None


def jointly(each: Sequence[CostTerms]) -> CostTerms:
    """Joint costs of templates that differ only in the memories of their operands: a point that is no worse
    in any of these forms is no worse in the forms of any template."""
    energy, apart = _least_of([c.energy for c in each])
    more = [_least_of(forms) for forms in zip(*(c.more for c in each), strict=True)]
    differing = dict.fromkeys([*apart, *(t for _, some in more for t in some)])
    times = {(tuple(form.items()), fixed): form for c in each for s in c.times.stages for form, fixed in s}
    besides = tuple({t: 1.0} for t in differing)
    every = PricedTimes((tuple((form, fixed) for (_, fixed), form in times.items()),), ())
    mine = [{(tuple(form.items()), fixed) for s in c.times.stages for form, fixed in s} for c in each]
    in_all = PricedTimes((tuple((times[x], x[1]) for x in times if all(x in some for some in mine)),), ())
    return CostTerms(energy, every, each[0].nodes, besides, tuple(form for form, _ in more), in_all)


def _least_of(forms: Sequence[Form]) -> tuple[Form, list[Key]]:
    """Return the termwise minimum of linear forms, and the terms that exceed it in some form."""
    terms = dict.fromkeys(t for form in forms for t in form)
    least = {t: min(form.get(t, 0.0) for form in forms) for t in terms}
    more = [t for t in terms if any(form.get(t, 0.0) > least[t] for form in forms)]
    return {t: c for t, c in least.items() if c}, more


class MovementTerms:
    """Collects the transfers of one execution of one Einsum: the counts of an engine, as forms. `totals`:
    elements of all instances per memory, operand and kind; `busiest`: bits that the busiest instance of a
    component reads and writes for refills of a memory that waits for them ("": everything else)."""

    def __init__(self, space: EinsumSpace, template: Template) -> None:
        self.space, self.template = space, template
        self.totals: dict[tuple[int, int], dict[str, Form]] = {}
        self.busiest: dict[tuple[str, str], tuple[Form, Form]] = {}
        self.tolls: dict[tuple[str, int], list[Form]] = {}
        self.links: dict[int, list[tuple[int, Form, Form, Form]]] = {}
        self.sparse_energy: Form = {}
        self.actions: dict[tuple[str, str, str], Form] = {}  # where transfers are rounded up to whole actions
        reach = 0 if space.copy or template.bottom else space.units[template.unit].fanouts
        self.fanouts = [(i, f) for i, f in enumerate(space.fanouts) if i < reach]

    def above(self, memory: int) -> Fans:
        """Fanouts that replicate the memory."""
        return frozenset(i for i, f in self.fanouts if f.below <= memory)

    def sharing_fanouts(self, outer: int, inner: int, operand: Operand) -> Fans:
        """Fanouts between two memories (or a memory and compute) across which the tensor is shared."""
        return frozenset(
            i for i, f in self.fanouts if outer < f.below <= inner and operand.tensor in f.reuses
        )

    def move(
        self,
        memory: int,
        kind: str,
        operand: int,
        elements: Form,
        busiest: Form,
        refilled: int,
        size: Term | None = None,
    ) -> None:
        """Add one kind of access at a memory: elements of all instances, and of the busiest one.
        `refilled`: the memory at the inner end of the link (`COMPUTE`: none). `size`: of one transfer
        (None: one value)."""
        name, bits = self.space.memories[memory].name, float(self.space.operands[operand].bits)
        if self.space.shares is not None:
            price, bits = self.space.shares.of(operand, memory, kind)
            self.sparse_energy = plus(self.sparse_energy, elements, price)
            # Sparse counts apply one fraction to everything that a memory moves: the busiest instance has at
            # least the mean, so that each tensor may have its own fraction.
            busiest = {x._replace(split=self.above(memory), own=NONE): c for x, c in elements.items()}
        forms = self.totals.setdefault((memory, operand), {})
        forms[kind] = plus(forms.get(kind, {}), elements)
        storage = "" if refilled == COMPUTE else self.space.memories[refilled].name
        waiting = storage if storage and self.space.hierarchy.waits(storage) else ""
        read = kind in READS
        action = self.space.hierarchy[name].ways[0 if read else 1]
        busiest, bits = self._filled((name, kind), action, operand, (elements, busiest), size, bits)
        self._load(name, waiting, read, busiest, bits)

    def _filled(
        self,
        at: tuple[str, str],
        action: ActionCost,
        operand: int,
        moved: tuple[Form, Form],
        size: Term | None,
        bits: float,
    ) -> tuple[Form, float]:
        """Return what the busiest instance moves, in units of the returned number of bits, with transfers
        rounded to whole actions; records all actions. `at`: the component and the kind of access."""
        o = self.space.operands[operand]
        if not action.rounds(o.bits):
            return moved[1], bits
        per_action = action.bits_per_action or 1
        each = float(action.whole_bits(o.bits) // per_action)
        every, busiest = (
            plus({}, form, each)
            if size is None
            else {Actions(Transfers(t, size), o.bits, per_action): c for t, c in form.items()}
            for form in moved
        )
        key = at[0], o.tensor, at[1]
        self.actions[key] = plus(self.actions.get(key, {}), every)
        return busiest, float(per_action)

    def _load(self, component: str, refill: str, read: bool, form: Form, bits: float) -> None:
        reads, writes = self.busiest.get((component, refill), ({}, {}))
        pair = (plus(reads, form, bits), writes) if read else (reads, plus(writes, form, bits))
        self.busiest[component, refill] = pair

    def cross(self, way: LinkCrossing) -> None:
        """Add the elements that pass the tolls and the costly buses of a link."""
        space, operand = self.space, self.space.operands[way.operand]
        for toll in space.tolls:
            if way.outer < toll.index < way.inner and operand.tensor in toll.tensors:
                outside = frozenset(j for j, f in self.fanouts if f.index <= toll.index)
                down, up = way.passing(outside)
                sums = self.tolls.setdefault((toll.name, way.operand), [{}, {}])
                actions = space.hierarchy[toll.name].ways
                for k, (kind, moved) in enumerate((("down", down), ("up", up))):
                    sums[k] = plus(sums[k], moved[0])
                    where = toll.name, kind
                    size, bits = way.size(outside), float(operand.bits)
                    busiest, bits = self._filled(where, actions[k], way.operand, moved, size, bits)
                    self._load(toll.name, "", k == 0, busiest, bits)
        for number, fan in enumerate(space.fanouts):
            if fan.costly and way.outer < fan.index <= way.inner:
                outside = frozenset(j for j, _ in self.fanouts if j < number)
                down, up = way.passing(outside)
                bits = float(operand.bits)
                if fan.topology in ("switch", "all_to_all"):
                    each = way.passing(outside | {number})
                    hops = plus({}, plus(each[0][0], each[1][0]))
                    if fan.topology == "switch":
                        down, up = each
                    else:  # no hop to the first instance, where the data are
                        hops = plus(hops, way.to_first(outside | {number}, number), -1)
                else:
                    hops = plus(self._hops(down[0], number, way, True), self._hops(up[0], number, way, False))
                row = way.operand, hops, plus({}, down[1], bits), plus({}, up[1], bits)
                self.links.setdefault(number, []).append(row)

    def _hops(self, form: Form, fanout: int, way: LinkCrossing, down: bool) -> Form:
        """Return hops of transfers that enter rows of a fanout. On a mesh, the distance to the farthest
        instance: 1 (on a line 0) + the sum over its loops, outermost first, of (trips - 1) x instances of the
        loops inside; in full if the loop shares the transfer, half on average otherwise."""
        fan, operand = self.space.fanouts[fanout], self.space.operands[way.operand]
        if fan.topology == "bus":
            return form
        shares = operand.tensor in fan.reuses
        alone = fan.broadcast or not (down and way.output)  # otherwise the first sharing instance receives it
        indexed = (members[0] in operand.alone | operand.windowed for members in self.space.bundles)
        weights = [0.0, *(0.5 if own or not shares else float(alone) for own in indexed)]
        result = plus({}, form, (fan.topology == "mesh") - weights[-1])
        for b, (before, here) in enumerate(pairwise(weights)):
            more = {term._replace(reaching=(fanout, b)): c for term, c in form.items()}
            result = plus(result, more, here - before)
        return result

    def analysis(self, count: Callable[[Form], Any]) -> Analysis:
        """Return the counts as an engine returns them; `count` returns the number that represents a form."""
        space = self.space
        names = [o.tensor for o in space.operands]
        moved = (
            (m, i, {kind: count(form) for kind, form in forms.items()})
            for (m, i), forms in self.totals.items()
        )
        traffic = tuple(Traffic(space.name, m, space.memories[m].name, names[i], **n) for m, i, n in moved)
        tolls = tuple(
            TollTraffic(space.name, toll, names[i], count(down), count(up))
            for (toll, i), (down, up) in self.tolls.items()
        )
        waiting = {name for name, refill in self.busiest if refill}
        refills = tuple(
            RefillLoad(space.name, name, refill, ((count(reads), count(writes)),))
            for (name, refill), (reads, writes) in self.busiest.items()
            if name in waiting
        ) + tuple(
            RefillLoad(space.name, name, "", ((count({}), count({})),))
            for name in sorted(waiting)
            if (name, "") not in self.busiest
        )
        return Analysis(
            "search", (), traffic, self._operations(count), tuple(self._loads(count)), (), tolls,
            links=tuple(self._link_traffic(count)), refills=refills,
        )  # fmt: skip

    def added(self, figure: Added, energy: Form) -> Form:
        """Return the form of a figure that adds up, from these counts."""
        result = plus({}, energy, figure.energy)
        space = self.space
        for component, way, weight in figure.moved:
            for (memory, i), forms in self.totals.items():
                if space.memories[memory].name == component:
                    for kind, form in forms.items():
                        if (kind in READS) == (way == "reads"):
                            result = plus(result, form, weight * space.operands[i].bits)
            for (toll, i), sums in self.tolls.items():
                if toll == component:
                    result = plus(result, sums[way == "writes"], weight * space.operands[i].bits)
        for component, way, weight in figure.busiest:
            for (name, _), loads in self.busiest.items():
                if name == component and way != "operations":
                    result = plus(result, loads[way == "writes"], weight)
        if space.copy or self.template.bottom:
            return result
        if figure.used is not None:  # one execution uses as many as all of them
            mine = [n for n, f in self.fanouts if f"{f.component}.{f.name}" == figure.used.dimension]
            return {Term(INSTANCES, END, spread=frozenset(mine)): 1.0 / space.times}
        unit = space.units[self.template.unit].name
        times = sum(w for c, way, w in figure.busiest if (c, way) == (unit, "operations"))
        times += figure.places * space.hierarchy.instances(unit)
        every = frozenset(i for i, _ in self.fanouts)
        return plus(result, {Term(OPERATIONS, END, split=every): 1.0}, times) if times else result

    def _loads(self, count: Callable[[Form], Any]) -> Iterator[InstanceLoad[Any]]:
        for name in dict.fromkeys(name for name, _ in self.busiest):
            mine = [pair for (other, _), pair in self.busiest.items() if other == name]
            reads, writes = (total(pair[k] for pair in mine) for k in (0, 1))
            yield InstanceLoad(self.space.name, name, ((count(reads), count(writes)),), 1)

    def _link_traffic(self, count: Callable[[Form], Any]) -> Iterator[LinkTraffic[Any]]:
        space = self.space
        for number, rows in self.links.items():
            fan = space.fanouts[number]
            hops = tuple((space.operands[i].tensor, count(form)) for i, form, _, _ in rows)
            load = count(total(row[2] for row in rows)), count(total(row[3] for row in rows))
            yield LinkTraffic(space.name, fan.component, fan.name, hops, (load,), count({}))

    def _operations(self, count: Callable[[Form], Any]) -> tuple[ComputeCounts[Any], ...]:
        space = self.space
        if space.copy or self.template.bottom:
            return ()
        unit, share = space.units[self.template.unit], 1.0
        every = frozenset(i for i, _ in self.fanouts)
        every_one: Form = {Term(OPERATIONS, END): 1.0}
        if space.shares is not None:
            energy, share = space.shares.executed(unit.name)
            self.sparse_energy = plus(self.sparse_energy, every_one, energy)
        busiest = count({Term(OPERATIONS, END, split=every): share})
        return (ComputeCounts(space.name, unit.name, count(every_one), busiest, count({})),)


def price_of(space: EinsumSpace, operand: int, memory: int, kind: str) -> tuple[float, float]:
    """Joules of one element in one kind of access, and its bits that take time; lower bounds where transfers
    are rounded up to whole actions."""
    if space.shares is not None:
        return space.shares.of(operand, memory, kind)
    bits = space.operands[operand].bits
    read, write = space.component(memory).ways
    action = read if kind in READS else write
    return bits / (action.bits_per_action or 1) * action.energy, float(bits)


@dataclass(frozen=True)
class LinkCrossing:
    """One link of one operand: components at its ends (positions in the hierarchy), fanouts between them that
    share the tensor, and the level of the tile. For an output: `fresh`, elements of all instances without a
    previous value at the parent, and whether there are any (`begun`). `reads`: reads of an input per
    operation. `behind`, `since`: as in `Term`. `steps`: those over which elements of the tile stay from one
    visit to the next."""

    operand: int
    outer: int
    inner: int
    level: int
    union: Fans
    broadcasts: Fans
    output: bool
    fresh: Form
    begun: bool
    slides: int = -1
    reads: int = 1
    behind: bool = False
    since: int = -1
    steps: tuple[VisitStep, ...] = ()

    def new(self, term: Term, times: float = 1.0) -> Form:
        """Return the elements of a term, so many times, less those that stay over any of the steps."""
        return {term: times} | {term._replace(step=step): -times for step in self.steps}

    def size(self, outside: Fans) -> Term | None:
        """Elements of one transfer, if these fanouts distinguish instances; None for values one by one."""
        inside = self.union - outside
        one = Term(self.operand, self.level, inside, each=True, behind=self.behind)
        return None if self.level == END else one

    def passing(self, outside: Fans) -> tuple[tuple[Form, Form], tuple[Form, Form]]:
        """Return (down, up), each of all instances and of the busiest; these fanouts separate instances."""
        inside = self.union - outside
        each = Term(
            self.operand, self.level, inside, slides=self.slides, behind=self.behind, since=self.since
        )
        times = float(self.reads) if self.level == END else 1.0
        moved = self.new(each, times), self.new(each._replace(split=outside), times)
        if not self.output:
            return moved, ({}, {})
        return self.received(outside), moved

    def to_first(self, outside: Fans, fanout: int) -> Form:
        """Return all of `passing` in both directions, but only of the first instances along a fanout."""
        down, up = replace(self, fresh={}).passing(outside)
        result = {t._replace(split=t.split | {fanout}): c for t, c in plus(down[0], up[0]).items()}
        all_get = self.union & outside & self.broadcasts - {fanout}
        # Tiles without previous values are those above the fanout: only their elements differ there.
        lacking = {_spread(t._replace(own=t.own | {fanout}), all_get): c for t, c in self.fresh.items()}
        return plus(result, lacking, -1) if self.output else result

    def received(self, outside: Fans) -> tuple[Form, Form]:
        """Return the partial sums that come back: to one of the instances that reduce them, along
        broadcasting fanouts to all. The busiest instance receives all but the sums of its first visit."""
        inside, all_get = self.union - outside, self.union & outside & self.broadcasts
        elements = self.new(Term(self.operand, self.level, self.union - all_get))
        lacking = {_spread(term, all_get): c for term, c in self.fresh.items()}
        busiest = self.new(Term(self.operand, self.level, inside, split=outside))
        first: Form = {Term(self.operand, 0, own=outside): 1.0} if self.begun else {}
        return plus(elements, lacking, -1), plus(busiest, first, -1)


def costs(space: EinsumSpace, template: Template) -> CostTerms:
    """All costs of a template, which do not depend on the variables of its fused loops."""
    key = template.nodes, template.parents, template.unit, template.bottom, template.depth, template.orders
    return space.prices.of_nodes(key, lambda: _costs(space, template))


def _costs(space: EinsumSpace, template: Template) -> CostTerms:
    t = MovementTerms(space, template)
    for i, o in enumerate(space.operands):
        held = [(n.memory, n.level) for n in template.nodes if n.operand == i]
        if not any(n.shared and n.operand == i for n in template.nodes):
            held.insert(0, (template.parents[i] if template.parents else 0, 0))
        if space.copy:
            _copied(t, i, o, held[0][0])
        elif o.output:
            _output(t, i, o, held)
        else:
            _input(t, i, o, held)
    counts = CountPlaceholders()
    analysis = t.analysis(counts.count)
    filled = tuple((key, counts.count(form)) for key, form in t.actions.items())
    energy, times = space.prices.of(analysis, filled, counts)
    if space.shares is not None:
        energy = t.sparse_energy
    nodes = tuple(
        (
            Term(n.operand, n.level, tile=True, into=_lowered(t, n), alive=_has_few_generations(space, n)),
            _buffered_bits(space, n),
        )
        for n in template.nodes
    )
    return CostTerms(energy, times, nodes, more=tuple(t.added(a, energy) for a in space.more))


def _has_few_generations(space: EinsumSpace, node: TemplateNode) -> bool:
    """Whether only few generations of an exchanged tensor are live at once; the join determines how many."""
    forward = space.operands[node.operand].carried is not None
    return node.shared and forward and space.memories[node.memory].live


def _buffered_bits(space: EinsumSpace, node: TemplateNode) -> float:
    """Bits of one element of a node in all buffers: double-buffered memories have two. On sparse data, a
    lower bound of the average over a tile that fits."""
    twice = not node.shared and space.hierarchy.doubles(space.memories[node.memory].name)
    bits = space.operands[node.operand].bits * (2 if twice else 1)
    return bits if space.shares is None else bits * space.shares.room(node.operand, node.memory)


def _lowered(t: MovementTerms, node: TemplateNode) -> int | None:
    """Return the level of the branch's next node, or None if the memory holds the whole tile. If the loops in
    between that index the tensor come first, a live-allocating memory holds at most the tile below these."""
    space, branch, o = t.space, t.template.branch, t.space.operands[node.operand]
    if o.behind >= 0 or o.tied | o.imaged:
        return None
    if not space.memories[node.memory].live or node not in branch or t.template.bottom:
        return None
    after = next((n for n in branch if n.level == node.level + 1), None)
    reach = len(space.memories) if after is None else after.memory
    if any(f.width > 1 and node.memory < f.below <= reach for _, f in t.fanouts):
        return None
    return END if after is None else after.level


def _copied(t: MovementTerms, i: int, o: Operand, memory: int) -> None:
    """Add a copy's transfers: each element of its output between outermost memories, unless these are
    equal."""
    k, other = next((k, x) for k, x in enumerate(t.space.operands) if x.output != o.output)
    ends = dict.fromkeys((o.tensor, other.tensor), 0)
    for n in t.template.nodes:
        ends[t.space.operands[n.operand].tensor] = n.memory
    if ends[o.tensor] != ends[other.tensor]:
        whole = {Term(i if o.output else k, 0): 1.0}
        t.move(memory, "writes_drain" if o.output else "reads_fill", i, whole, whole, COMPUTE)


def _input(t: MovementTerms, i: int, o: Operand, held: list[tuple[int, int]], behind: bool = False) -> None:
    """Add the reads of an operand; for an output, the reads of the previous generation (`behind`)."""
    sliding = {n.level: n.slides for n in t.template.nodes if n.operand == i}
    staying = {n.level: n.stays.since for n in t.template.nodes if n.operand == i and n.stays is not None}
    for outer, inner, level in _links(t, held):
        slides, since = sliding.get(level, -1), staying.get(level, -1)
        way = _crossing(t, i, o, (outer, inner, level), {}, False)
        way = replace(way, slides=slides, output=False, behind=behind, since=since)
        way = replace(way, steps=_kept(t, o, level, 0))
        (asked, busiest), _ = way.passing(t.above(outer))
        size = way.size(t.above(outer))
        t.move(outer, "reads_fill", i, asked, busiest, COMPUTE if level == END else inner, size)
        if level != END:
            every = Term(i, level, slides=slides, behind=behind, since=since)
            size = Term(i, level, each=True, behind=behind)
            t.move(inner, "writes_fill", i, way.new(every), way.new(_share(t, every, inner)), inner, size)
        t.cross(way)


def _kept(t: MovementTerms, o: Operand, level: int, above: int) -> tuple[VisitStep, ...]:
    """Return the steps of loops below the level `above` over which the tile of an operand at a level stays
    where it can."""
    keeps = any(n.keeps and n.level == level for n in t.template.branch)
    return steps_of(t.template.orders, o, range(above, level)) if keeps else ()


def _links(t: MovementTerms, held: list[tuple[int, int]]) -> Iterator[tuple[int, int, int]]:
    """Yield (memory, memory inside it, level of its tile), down to compute if the region has it."""
    for (outer, _), (inner, level) in pairwise(held):
        yield outer, inner, level
    if not t.template.bottom:
        yield held[-1][0], t.space.units[t.template.unit].memories, END


def _crossing(
    t: MovementTerms, i: int, o: Operand, link: tuple[int, int, int], fresh: Form, begun: bool
) -> LinkCrossing:
    outer, inner, level = link
    memories, union = t.space.memories, t.sharing_fanouts(outer, inner, o)
    end = t.space.units[t.template.unit].index if level == END else memories[inner].index
    broadcasts = frozenset(j for j, f in t.fanouts if f.broadcast)
    reads = 1 if o.output or o.behind >= 0 else o.reads  # otherwise each generation by itself
    place = memories[outer].index
    return LinkCrossing(i, place, end, level, union, broadcasts, o.output, fresh, begun, reads=reads)


def _share(t: MovementTerms, term: Term, memory: int) -> Term:
    """Return the busiest instance's part of a total."""
    return term._replace(split=t.above(memory))


def _output(t: MovementTerms, i: int, o: Operand, held: list[tuple[int, int]]) -> None:
    """Add drains upwards, and refills of partial sums. `fresh`: visits without a previous value to refill."""
    if o.behind >= 0:
        _input(t, i, o, held, behind=True)
    fresh: Form = {} if o.accumulates else {Term(i, 0): 1.0}
    begun = not o.accumulates
    above = 0  # the level of the next node further out that does not keep
    for outer, inner, level in _links(t, held):
        if t.space.memories[outer].read_first:
            fresh, begun = {}, False
        way = _crossing(t, i, o, (outer, inner, level), fresh, begun)
        way = replace(way, steps=_kept(t, o, level, above))
        above = above if any(n.keeps and n.level == level for n in t.template.branch) else level
        back, joint = way.passing(t.above(outer))
        end, size = COMPUTE if level == END else inner, way.size(t.above(outer))
        t.move(outer, "writes_drain", i, *joint, end, size)
        t.move(outer, "reads_fill", i, *back, end, size)
        t.cross(way)
        if level == END:
            return
        every, size = Term(i, level), Term(i, level, each=True)
        t.move(inner, "reads_drain", i, way.new(every), way.new(_share(t, every, inner)), inner, size)
        sent, busiest = way.received(t.above(inner))
        t.move(inner, "writes_fill", i, sent, busiest, inner, size)
        fresh = plus(way.new(every), sent, -1)


def _spread(term: Term, fans: Fans) -> Term:
    """Return the same elements, once per instance that shares them."""
    return term._replace(spread=term.spread | fans)
