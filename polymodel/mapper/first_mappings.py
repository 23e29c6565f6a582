"""Whole mappings in a moment: every Einsum by itself, by a plan of what they exchange; equal ones once.

The templates are looked at one after another: first the one that keeps every tensor in every memory that may
hold it, then what leaves out, adds or moves one node.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import comb, inf, prod
from typing import Any

import numpy as np

from polymodel.factoring import divisors, prime_factors
from polymodel.mapper.budget import Late, Watch
from polymodel.mapper.descent import LEAST, Descent, Figures, Found, Goal, Stopped
from polymodel.mapper.einsum_rules import in_order, numbered_bands
from polymodel.mapper.full_mappings import rules_of
from polymodel.mapper.iterative_deepening import Deepening
from polymodel.mapper.join import JoinRules, Lives
from polymodel.mapper.pmappings import Pmappings, equal_shapes
from polymodel.mapper.records import Limits, Request
from polymodel.mapper.space import EinsumSpace, Operand
from polymodel.mapper.templates import Node, Shape, Template, exchanges_of, in_loop_orders
from polymodel.objectives import uses

# Plans of first mappings: where each intermediate is exchanged, below which fused loops, at which sizes.
#
# First all are as far out as they may be; then those that fit whole are in the first memory inside the
# backing storage; then runs of Einsums share a loop, so that tiles of what does not fit whole fit there or
# further inside.

ROOM = 0.5  # of a memory, at most, for all that is exchanged there at one time


@dataclass(frozen=True)
class Part:
    """What neighbours see of one Einsum: its shape, and tile sizes below its fused loops."""

    shape: Shape
    sizes: tuple[int, ...] = ()


Plan = tuple[Part, ...]


@dataclass(frozen=True)
class Run:
    """Einsums from `first` on that share a loop: the variable of each, the size below it, what is exchanged
    below it, and in which memory."""

    first: int
    variables: tuple[int, ...]
    size: int
    tensors: frozenset[str]
    memory: int

    def variable(self, number: int) -> int | None:
        at = number - self.first
        return self.variables[at] if 0 <= at < len(self.variables) else None


def plans(spaces: Sequence[EinsumSpace], limits: Limits, lives: Lives) -> Iterator[Plan]:
    """Each once."""
    where = _memories(spaces, limits)
    if not all(where.values()):
        return
    chosen = {t: min(allowed) for t, allowed in where.items()}
    seen = [_plan(spaces, chosen, ())]
    yield seen[0]
    held, large = _whole(spaces, lives, where, chosen)
    runs = [list(_runs(spaces, span, large, where, held)) for span in _spans(large)]
    several = [()] if limits.max_fused_loops == 0 else [(), *_one_of_each(runs)]
    for some in several:
        inside = {t: run.memory for run in some for t in run.tensors}
        plan = _plan(spaces, chosen | inside, some)
        if plan not in seen:
            seen.append(plan)
            yield plan


def _one_of_each(runs: Sequence[Sequence[Run]]) -> Iterator[tuple[Run, ...]]:
    """The first way of every span, the second ..., of those that have any."""
    ways = [r for r in runs if r]
    for k in range(max(map(len, ways), default=0)):
        yield tuple(r[min(k, len(r) - 1)] for r in ways)


def _memories(spaces: Sequence[EinsumSpace], limits: Limits) -> dict[str, list[int]]:
    """Per tensor the memories in which all of its Einsums may have its outermost tile."""
    where: dict[str, list[int]] = {}
    for s in spaces:
        reach = len(s.memories) if s.copy else max(u.memories for u in s.units)
        for o in s.operands:
            allowed = exchanges_of(s, o, limits, reach)
            where[o.tensor] = [m for m in where.get(o.tensor, allowed) if m in allowed]
    return where


def _whole(
    spaces: Sequence[EinsumSpace], lives: Lives, where: Mapping[str, list[int]], chosen: dict[str, int]
) -> tuple[list[float], dict[str, range]]:
    """Puts what fits whole into the first memory: bits held there per Einsum, and what does not fit, with the
    Einsums of its life."""
    held, large = [0.0] * len(spaces), {}
    for i, s in enumerate(spaces):
        for o in s.operands:
            if not o.output or o.tensor not in lives.last or 1 not in where[o.tensor]:
                continue
            bits, alive = float(o.elements * o.bits), range(i, lives.last[o.tensor] + 1)
            if all(held[k] + bits <= s.memories[1].capacity * ROOM for k in alive):
                chosen[o.tensor] = 1
                for k in alive:
                    held[k] += bits
            else:
                large[o.tensor] = alive
    return held, large


def _spans(large: Mapping[str, range]) -> Iterator[range]:
    """Lives that overlap, together."""
    now = range(0)
    for alive in sorted(large.values(), key=lambda r: r.start):
        if now and alive.start < now.stop:
            now = range(now.start, max(now.stop, alive.stop))
        else:
            if now:
                yield now
            now = alive
    if now:
        yield now


def _runs(
    spaces: Sequence[EinsumSpace],
    span: range,
    large: Mapping[str, range],
    where: Mapping[str, list[int]],
    held: Sequence[float],
) -> Iterator[Run]:
    """Ways to share one loop, inner memories first, in each the largest tiles that fit."""
    mine = frozenset(t for t, alive in large.items() if alive.start in span)
    first = next(o for o in spaces[span.start].operands if o.tensor in mine and o.output)
    for memory in sorted(frozenset.intersection(*(frozenset(where[t]) for t in mine)) - {0}, reverse=True):
        room = spaces[0].memories[memory].capacity * ROOM
        for start in (v for v in first.ranks if v in first.alone):
            variables = _followed(spaces, span, mine, start)
            if variables is None:
                continue
            for size in divisors(spaces[span.start].extents[start])[-2::-1]:
                needs = [
                    held[i] * (memory == 1) + _exchanged(spaces[i], mine, variables[i - span.start], size)
                    for i in span
                ]
                if max(needs) <= room:
                    yield Run(span.start, variables, size, mine, memory)
                    break


def _exchanged(space: EinsumSpace, tensors: frozenset[str], variable: int, size: int) -> float:
    """Bits of tiles that an Einsum exchanges below a loop."""
    return sum(bits_below(o, space, variable, size) for o in space.operands if o.tensor in tensors)


def _followed(
    spaces: Sequence[EinsumSpace], span: range, tensors: frozenset[str], start: int
) -> tuple[int, ...] | None:
    """The variable of each Einsum that indexes the same rank of what they exchange; None if there is none."""
    ranks: dict[str, int] = {}
    result: list[int] = []
    for i in span:
        read = [o for o in spaces[i].operands if o.tensor in ranks and not o.output]
        found = {o.ranks[ranks[o.tensor]] for o in read} if i > span.start else {start}
        if len(found) != 1 or min(found) < 0:
            return None
        v = found.pop()
        for o in spaces[i].operands:
            if o.tensor in tensors:
                if v not in o.alone or v not in o.ranks:
                    return None
                ranks.setdefault(o.tensor, o.ranks.index(v))
        result.append(v)
    return tuple(result)


def bits_below(o: Operand, space: EinsumSpace, variable: int | None, size: int) -> float:
    """Bits of a tensor below a loop over a variable with tiles of this size."""
    share = size / space.extents[variable] if variable is not None and variable in o.alone else 1.0
    return o.elements * o.bits * share


def _plan(spaces: Sequence[EinsumSpace], chosen: Mapping[str, int], runs: Sequence[Run]) -> Plan:
    result = []
    for i, s in enumerate(spaces):
        run = next((r for r in runs if r.variable(i) is not None), None)
        below = run.tensors if run is not None else frozenset()
        shared = tuple(
            (k, chosen[o.tensor], int(o.tensor in below))
            for k, o in enumerate(s.operands)
            if chosen[o.tensor]
        )
        if run is None or not any(d for _, _, d in shared):
            result.append(Part(Shape((), tuple((k, m, 0) for k, m, _ in shared))))
        else:
            variable = run.variable(i)
            assert variable is not None
            result.append(Part(Shape((variable,), shared), (run.size,)))
    return tuple(result)


def room_beside(spaces: Sequence[EinsumSpace], plan: Plan, lives: Lives) -> list[tuple[float, ...]]:
    """Per Einsum what tensors that pass it by leave of every memory."""
    memories = spaces[0].memories
    result = [[m.capacity for m in memories] for _ in plan]
    for i, (space, part) in enumerate(zip(spaces, plan, strict=True)):
        for number, m, depth in part.shape.shared:
            o = space.operands[number]
            loop = part.shape.prefix[0] if depth else None
            bits = bits_below(o, space, loop, part.sizes[0] if depth else 1)
            for k in range(i + 1, lives.last[o.tensor] + 1 if o.output else 0):
                if spaces[k].operand(o.tensor) is None:
                    result[k][m] -= bits
    return [tuple(x) for x in result]


# The mappings of a plan.

Array = Any
MANY = 10**8  # points of an Einsum beyond which these mappings are looked for
FAIR = 150  # steps of descents at most, some milliseconds each
IMPROVED, LEAST_IMPROVED = 3000, 400  # of better ones: of all Einsums and goals together, and of each
BESIDE = 0.01  # exponent of figures that are not minimised, which tell apart where the one is equal

NOWHERE: Mapping[tuple[int, int], int] = {}


def worthwhile(spaces: Sequence[EinsumSpace]) -> bool:
    """Whether the search itself may take longer than a moment."""
    return any(_points(s) > MANY for s in spaces)


def _points(space: EinsumSpace) -> int:
    """About how many tile sizes there are of one template with every node."""
    if space.copy:
        return 1
    levels = len(space.operands) * (len(space.memories) - 1) + 1
    counts = (e for n in space.extents for e in prime_factors(n).values())
    return prod(comb(e + levels - 1, levels - 1) for e in counts)


def deepened(spaces: Sequence[EinsumSpace], request: Request, watch: Watch) -> Deepening | None:
    """The joins of first mappings, or None where they do not fit beside each other: one at once, whatever the
    time, then a fair one of every plan, then better ones of the best plan."""
    work = Deepening(spaces, request, watch, rules_of(spaces, request))
    known: dict[object, list[Found]] = {}
    every = [_OfPlan(work, p, known) for p in plans(spaces, request.limits, work.rules.lives)]
    for one in every:
        if not work.wholes:
            one.join(_Search.first)
    best: _OfPlan | None = None
    for one in every:
        if watch.going_on():
            one.join(_Search.fair)
            best = one if best is None or one.least < best.least else best
    if best is not None and watch.going_on():
        best.join(_Search.improved)
    return work if any(len(w) for w in work.wholes) else None


class _OfPlan:
    """The mappings of one plan; Einsums of equal shape are looked at once."""

    def __init__(self, work: Deepening, plan: Plan, known: dict[object, list[Found]]) -> None:
        """`known`: what was found for other plans."""
        self.work, self.plan, self.known = work, plan, known
        self.rooms = room_beside(work.spaces, plan, work.rules.lives)
        self.first = dict(equal_shapes(work.spaces, list(zip(work.names, plan, self.rooms, strict=True))))
        self.least = inf

    def join(self, looked_for: Callable[[_Search], list[Found]]) -> None:
        """Join what is found of every Einsum, as far as there is something of each."""
        goals = _goals(self.work.rules)
        found: dict[int, list[Found]] = {}
        for i in dict.fromkeys(self.first.values()):
            self.work.watch.look(self.work.spaces[i].name)
            if not self.work.watch.going_on():
                looked_for = _Search.first  # what is better of the others counts all the same
            key = looked_for, self.work.spaces[i].shape, self.work.names[i], self.plan[i], self.rooms[i]
            if key not in self.known:
                steps = max(LEAST_IMPROVED, IMPROVED // (len(goals) * len({*self.first.values()})))
                searches = (_Search(self.work, i, self.plan[i], self.rooms[i], g, steps) for g in goals)
                self.known[key] = [f for search in searches for f in looked_for(search)]
            found[i] = self.known[key]
            if not found[i]:
                return
        self.work.found = [
            [_points_of(self.work, i, part.shape, found[self.first[i]])] for i, part in enumerate(self.plan)
        ]
        before = len(self.work.wholes)
        self.work.join_at_once()
        aims, name = self.work.rules.aims, self.work.request.objectives[0]
        rows = [w.figures() for w in self.work.wholes[before:] if len(w)]
        scores = [aims.score(name, some[:, aims.admits(some)]) for some in rows]
        self.least = min((float(np.min(f)) for f in scores if np.size(f)), default=inf)


def _goals(rules: JoinRules) -> list[Goal]:
    """What is minimised: every objective by itself, every figure that is limited, and energy and latency
    together."""
    aims = rules.aims
    names = dict.fromkeys((*aims.objectives, *(limit.name for limit in aims.limits)))
    result = [_goal(rules, name) for name in names]
    if len(result) > 1:
        result.append(_goal(rules, "edp"))
    return result


def _goal(rules: JoinRules, name: str) -> Goal:
    """One figure; energy and latency, so far as they are not in it, tell apart where it is equal."""
    aims, made = rules.aims, {figure for figure, _ in uses(name)}
    energy, latency = (0.0 if f in made else BESIDE for f in ("energy", "latency"))

    def score(figures: Figures) -> Array:
        if name == "edp":  # also where neither energy nor latency is a row
            first = np.maximum(figures.energy, LEAST) * np.maximum(figures.latency, LEAST)
        else:
            sums = [figures.energy] if aims.energy else []
            sums += [figures.latency] if aims.latency else []
            rows = [np.maximum(f, LEAST) for f in (*sums, *figures.more)]
            first = aims.score(name, [*rows, *(figures.bits[m] + 1 for m in rules.buffers)])
        tie = np.maximum(figures.energy, LEAST) ** energy * np.maximum(figures.latency, LEAST) ** latency
        result: Array = first * tie
        return result

    return score


class _Search:
    """The templates of one Einsum, one after another."""

    def __init__(
        self,
        work: Deepening,
        number: int,
        part: Part,
        room: tuple[float, ...],
        goal: Goal,
        steps: int,
    ) -> None:
        """`steps`: of better mappings at most."""
        self.steps = steps
        self.space, self.shape, self.sizes, self.goal = work.spaces[number], part.shape, part.sizes, goal
        self.memories, self.band = work.rules.which, numbered_bands(self.space, work.request.limits)
        self.room, self.tally = room, work.watch.tally()
        self.best: Found | None = None
        self.left = 0  # steps

    def first(self) -> list[Found]:
        """The best of the points from which descents start, if any of them fits."""
        for template in self._starts():
            for wide in (True, False):
                descent = self._descent(template)
                self._take(descent.point(descent.places.start(wide)))
        return self._fitting()

    def fair(self) -> list[Found]:
        """The best of what descents from every unit's first template lead to."""
        return self._within(FAIR, self._look_at_starts)

    def improved(self) -> list[Found]:
        """The best of what is found beside those as well."""
        return self._within(self.steps, self._look_at_all)

    def _ask(self) -> None:
        """Raises Late once the steps or the time are over."""
        self.left -= 1
        if self.left < 0:
            raise Late
        self.tally.ask()

    def _within(self, steps: int, look: Callable[[], None]) -> list[Found]:
        self.left = steps
        try:
            look()
        except Stopped as stopped:
            self._take(stopped.found)
        return self._fitting()

    def _fitting(self) -> list[Found]:
        return [self.best] if self.best is not None and not self.best.excess else []

    def _look_at_starts(self) -> None:
        for template in self._starts():
            descent = self._descent(template)
            self._take(descent.from_(descent.places.start(wide=True)))

    def _look_at_all(self) -> None:
        for template in self._starts():
            for wide in (True, False):
                descent = self._descent(template)
                self._take(descent.from_(descent.places.start(wide)))
        while self.best is not None and self._next():
            pass

    def _take(self, found: Found) -> bool:
        if self.best is None or found.rank < self.best.rank:
            self.best = found
            return True
        return False

    def _next(self) -> bool:
        """Whether a template beside the best one is better."""
        best = self.best
        assert best is not None
        for template, placed in self._beside(best):
            if self._take(self._descent(template).from_(placed)):
                return True
        return False

    def _descent(self, template: Template) -> Descent:
        return Descent(self.space, template, self.goal, self.memories, self.room, self._ask, self.sizes)

    def _starts(self) -> Iterator[Template]:
        """Every tensor in every memory that may hold it, then in those alone that must."""
        inner = self.shape.innermost
        for unit in range(1 if self.space.copy else len(self.space.units)):
            seen: set[tuple[tuple[int, int], ...]] = set()
            if not self.space.copy and self.space.units[unit].memories <= inner:
                continue
            for every in (True, False):
                held = self._held(unit, every)
                if tuple(held) not in seen:
                    seen.add(tuple(held))
                    yield from self._templates(unit, held)

    def _held(self, unit: int, every: bool) -> list[tuple[int, int]]:
        """(Memory, operand) of private nodes, outer memories first."""
        outermost = {i: m for i, m, _ in self.shape.shared}
        result: list[tuple[int, int]] = []
        if self.space.copy:
            return result
        for i, o in enumerate(self.space.operands):
            for m in range(outermost.get(i, 0) + 1, self.space.units[unit].memories):
                may, must = o.tensor in self.space.may[m], o.tensor in self.space.keep[m]
                if must or (may and every):
                    result.append((m, i))
        return sorted(result)

    def _templates(
        self, unit: int, held: Sequence[tuple[int, int]], along: Mapping[tuple[int, int], int] = NOWHERE
    ) -> Iterator[Template]:
        """`along`: what nodes slide along, by (memory, operand); others along the first variable they may."""
        shared = tuple(Node(i, m, d, True) for i, m, d in self.shape.shared)
        depth = len(self.shape.prefix)
        branch = tuple(
            Node(i, m, depth + 1 + k, slides=along.get((m, i), next(iter(self.space.slides(m, i)), -1)))
            for k, (m, i) in enumerate(held)
        )
        template = Template(self.shape, (*shared, *branch), unit)
        if in_order(template.nodes, self.band):
            yield from in_loop_orders(self.space, template)

    def _beside(self, found: Found) -> Iterator[tuple[Template, tuple[Array, ...]]]:
        """Templates with one node less, more, or elsewhere, or that slides otherwise, and where factors then
        stand."""
        unit, depth = found.template.unit, found.template.depth
        held = [(n.memory, n.operand) for n in found.template.branch]
        along = {(n.memory, n.operand): n.slides for n in found.template.branch}
        for m, i in held:
            for v in (v for v in self.space.slides(m, i) if v != along[m, i]):
                yield from ((t, found.placed) for t in self._templates(unit, held, {**along, (m, i): v}))
        for k, (m, i) in enumerate(held):
            if self.space.operands[i].tensor not in self.space.keep[m]:
                merged = tuple(_merged(x, depth + k + 1) for x in found.placed)
                yield from ((t, merged) for t in self._templates(unit, held[:k] + held[k + 1 :], along))
        for k in range(len(held) - 1):
            swapped = [*held[:k], held[k + 1], held[k], *held[k + 2 :]]
            yield from ((t, found.placed) for t in self._templates(unit, swapped, along))
        for m, i in self._held(unit, True):
            if (m, i) in held:
                continue
            for k in range(len(held) + 1):
                parted = tuple(_parted(x, depth + k + 1) for x in found.placed)
                more = [*held[:k], (m, i), *held[k:]]
                yield from ((t, parted) for t in self._templates(unit, more, along))


def _merged(placed: Array, level: int) -> Array:
    """Without a level: its loops are those of the level above."""
    result = np.delete(placed, level, axis=1)
    result[:, level - 1] += placed[:, level]
    return result


def _parted(placed: Array, level: int) -> Array:
    """With another level, below which no loops are."""
    return np.insert(placed, level, 0, axis=1)


def _points_of(work: Deepening, number: int, shape: Shape, found: Sequence[Found]) -> Pmappings:
    n, which = len(found), len(work.rules.which)
    none = np.zeros(n, np.int64)
    keys = np.array([f.keys.max(axis=0, initial=0) for f in found]).reshape(n, len(shape.prefix)).T
    more = np.array([f.more for f in found]).reshape(n, len(work.rules.aims.more)).T
    return Pmappings(
        work.spaces[number], shape, keys, np.array([f.energy for f in found]),
        np.array([f.latency for f in found]), more, np.array([f.private for f in found]).reshape(n, which).T,
        np.zeros((len(keys), which, n)), tuple(f.template for f in found), np.arange(n), np.arange(n), (),
        none - 1, none, "divisors", tuple((f.tiles, f.spread, f.keys) for f in found),
    )  # fmt: skip
