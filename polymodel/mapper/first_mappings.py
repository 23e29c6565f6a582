"""Fast first mappings: each Einsum on its own, for a plan of exchanges; equal Einsums are mapped once.

The templates of an Einsum are tried one after another: first one that keeps every tensor in every memory
that may hold it, then its neighbours, which omit, add or move one node.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import islice, permutations
from math import comb, inf, isfinite, prod
from operator import ge
from typing import TYPE_CHECKING, Any

import numpy as np

from polymodel.factoring import prime_factors
from polymodel.mapper.budget import CUT, Late, SearchTally, Watch
from polymodel.mapper.combine import Interest
from polymodel.mapper.descent import (
    GAIN,
    LEAST,
    Descent,
    Goal,
    LocalMapping,
    PointCosts,
    Stopped,
    TemplatePoints,
    TooManyPoints,
)
from polymodel.mapper.einsum_rules import in_order, numbered_bands
from polymodel.mapper.full_mappings import rules_of
from polymodel.mapper.iterative_deepening import Deepening
from polymodel.mapper.join import JoinRules
from polymodel.mapper.pmappings import Pmappings, equal_shapes
from polymodel.mapper.records import Request
from polymodel.mapper.space import EinsumSpace
from polymodel.mapper.templates import (
    Sharing,
    Template,
    TemplateNode,
    in_each_order,
    placements,
    staying,
    with_homes,
    with_policy,
)
from polymodel.objectives import uses

if TYPE_CHECKING:
    from polymodel.mapper.exchange_plans import EinsumInterface, Plan, Plans, Sketch

Array = Any
MANY = 10**8  # points of an Einsum above which first mappings are searched
VERY_MANY = 10**11  # points of an Einsum above which the full search takes longer than improving them
SEVERAL = 20  # Einsums above which it does as well
MOST_TEMPLATES = 40  # templates of an Einsum with given exchanges up to which all are tried
MOST_ORDERED = 5  # nodes up to which all orders are tried
FAIR = 300  # maximum steps of all descents, some milliseconds each
IMPROVED, LEAST_IMPROVED = 3000, 400  # steps of improved descents: in total, and at least for each
MOVES, LEAST_MOVES = (1000, 3000), 20  # changes of plans: in total over Einsums, and at least
BESIDE = 0.01  # exponent of figures that only break ties

# Mappings found earlier, by search, Einsum and part of a plan: the available space and the result.
Known = dict[object, list[tuple[tuple[float, ...], list[LocalMapping]]]]
# Templates whose points were all enumerated for one goal (None: too many): other goals reuse them.
Tried = dict[Template, TemplatePoints | None]
NOWHERE: Mapping[tuple[int, int], int] = {}


def possible(spaces: Sequence[EinsumSpace]) -> bool:
    """Return whether first mappings are supported: they are not if an Einsum awaits a tensor of a later one
    in a shared loop."""
    return not any(s.awaited for s in spaces)


def worthwhile(spaces: Sequence[EinsumSpace], request: Request) -> bool:
    """Return whether the full search may take longer than finding first mappings, which have any fused
    loops."""
    if any(request.limits.fused_loops(s.name) is not None for s in spaces):
        return False
    return any(rough_size(s) > MANY for s in spaces) and possible(spaces)


def soon_done(spaces: Sequence[EinsumSpace], request: Request) -> bool:
    """Return whether the full search ends before improved first mappings would pay off.

    With a time limit or an allowed gap, these may be the answer.
    """
    if request.time_limit is not None or request.eps or len(spaces) > SEVERAL:
        return False
    energy = request.objectives == ("energy",)
    return all(rough_size(s) <= VERY_MANY or (energy and _used_in_full(s)) for s in spaces)


def _used_in_full(space: EinsumSpace) -> bool:
    """Whether there are fanouts and all must be fully used, which leaves few points."""
    wide = [f for f in space.fanouts if f.width > 1]
    return bool(wide) and all(f.least == 1 for f in wide)


def rough_size(space: EinsumSpace) -> int:
    """Estimate of the number of tile sizes of one template that has every node."""
    if space.copy:
        return 1
    levels = len(space.operands) * (len(space.memories) - 1) + 1
    counts = (e for n in space.extents for e in prime_factors(n).values())
    return prod(comb(e + levels - 1, levels - 1) for e in counts)


def deepened(
    spaces: Sequence[EinsumSpace],
    request: Request,
    watch: Watch,
    briefly: bool = False,
    between: Callable[[Deepening], None] = lambda work: None,
) -> Deepening | None:
    """Return the joins of first mappings, or None if they do not fit together.

    First one quick mapping, regardless of the time; then, unless `briefly`, a quick one of every other plan,
    a `fair` one of each plan (the best quick one first), and improved ones of the best plan for each
    objective. `between`: called before improvements, which may take all time.
    """
    from polymodel.mapper.exchange_plans import Plans  # a search of one small Einsum has no plans

    work = Deepening(spaces, request, watch, rules_of(spaces, request))
    several = Plans(spaces, request.limits, work.rules.lives)
    known: Known = {}
    every = [(sketch, _OfPlan(work, several.plan(sketch), known)) for sketch in several.first()]
    for _, one in every:
        if not work.wholes or (not briefly and watch.has_time()):
            one.join(EinsumSearch.first)
    at_once = {id(one): tuple(one.least.values()) for _, one in every}
    best: dict[str, tuple[Sketch, _OfPlan]] = {}
    for sketch, one in () if briefly else sorted(every, key=lambda x: at_once[id(x[1])]):
        if watch.has_time():
            one.join(EinsumSearch.fair)
            for name in one.least:
                if name not in best or one.least[name] < best[name][1].least[name]:
                    best[name] = sketch, one
    if not briefly and watch.has_time():
        between(work)
    for moves in MOVES:
        for name in best:
            if watch.has_time():
                best[name] = _varied(name, best[name], several, work, known, moves)
            if watch.has_time():
                best[name][1].join(EinsumSearch.improved)
    return work if any(len(w) for w in work.wholes) else None


def _varied(
    name: str, best: tuple[Sketch, _OfPlan], several: Plans, work: Deepening, known: Known, moves: int
) -> tuple[Sketch, _OfPlan]:
    """Hill climbing from a plan towards better values of one objective, by changes of one tensor or run.

    `moves`: number of changes that are tried, in total over the Einsums.
    """
    left = max(moves // len(several.spaces), LEAST_MOVES) if len(several.spaces) > 1 else 0
    changed = True
    while changed and isfinite(best[1].least[name]):
        changed = False
        for sketch in several.neighbors(best[0]):
            left -= 1
            if left < 0 or not work.watch.has_time():
                return best
            one = _OfPlan(work, several.plan(sketch), known)
            one.join(EinsumSearch.fair)
            if one.least[name] < best[1].least[name] * (1 - GAIN):
                best, changed = (sketch, one), True
    return best


def _serves(before: tuple[tuple[float, ...], list[LocalMapping]], room: tuple[float, ...]) -> bool:
    """Return whether a result for other available space is valid for this one.

    It is if the space was the same, or if this space is no less, or the result does not need the difference.
    """
    fits = all(h <= r for f in before[1] for h, r in zip(f.held, room, strict=True))
    return before[0] == room or (fits and all(map(ge, before[0], room)))


class _OfPlan:
    """The mappings of one plan; Einsums of equal shape are searched once."""

    def __init__(self, work: Deepening, plan: Plan, known: Known) -> None:
        from polymodel.mapper.exchange_plans import remaining_capacity

        """`known`: results for other plans."""
        self.work, self.plan, self.known = work, plan, known
        self.rooms = remaining_capacity(work.spaces, plan, work.rules.lives)
        self.first = dict(equal_shapes(work.spaces, list(zip(work.named, plan, self.rooms, strict=True))))
        # the least score of each objective among the plan's mappings
        self.least = dict.fromkeys(work.rules.aims.objectives, inf)

    def join(self, looked_for: Callable[[EinsumSearch], list[LocalMapping]]) -> None:
        """Search every Einsum and join the results, if each Einsum has one."""
        goals = _goals(self.work.rules)
        found: dict[int, list[LocalMapping]] = {}
        for i in dict.fromkeys(self.first.values()):
            self.work.watch.begin_step(self.work.spaces[i].name)
            if not self.work.watch.has_time():
                looked_for = EinsumSearch.first  # what was improved for other Einsums is kept
                goals = goals[:1]
            several = self.known.setdefault(
                (looked_for, self.work.spaces[i].shape, self.work.named[i], self.plan[i]), []
            )
            served = next((x for x in several if _serves(x, self.rooms[i])), None)
            if served is None:
                steps = max(LEAST_IMPROVED, IMPROVED // (len(goals) * len({*self.first.values()})))
                # Rules leave few points, which the full search handles quickly.
                small = self.work.spaces[i].rules.placed and rough_size(self.work.spaces[i]) <= VERY_MANY
                steps = LEAST_IMPROVED if small else steps
                tried: Tried = {}
                searches = (
                    EinsumSearch(self.work, i, self.plan[i], self.rooms[i], g, steps, tried) for g in goals
                )
                served = self.rooms[i], [f for search in searches for f in looked_for(search)]
                several.append(served)
            found[i] = served[1]
            if not found[i]:
                return
        self.work.found = [
            [_points_of(self.work, i, part.shape, found[self.first[i]])] for i, part in enumerate(self.plan)
        ]
        before = len(self.work.wholes)
        self.work.join_at_once()
        aims = self.work.rules.aims
        rows = [w.figures() for w in self.work.wholes[before:] if len(w)]
        for name in self.least:
            scores = [aims.score(name, some[:, aims.admits(some)]) for some in rows]
            self.least[name] = min((float(np.min(f)) for f in scores if np.size(f)), default=inf)


def _interest(work: Deepening) -> Interest | None:
    """The figures by which tile sizes of one template are compared, if only these matter."""
    rules, limits = work.rules, work.request.limits
    if rules.buffers or work.request.at_most or work.request.shares or limits.sizes == "all":
        return None
    return replace(rules.interest, memories=(), eps=0.0, rough=0.0)


def _goals(rules: JoinRules) -> list[Goal]:
    """The minimised functions: every objective, every limited figure, and energy times latency."""
    aims = rules.aims
    names = dict.fromkeys((*aims.objectives, *(limit.name for limit in aims.limits)))
    result = [_goal(rules, name) for name in names]
    if len(result) > 1:
        result.append(_goal(rules, "edp"))
    return result


def _goal(rules: JoinRules, name: str) -> Goal:
    """Score of one figure; energy and latency break ties if it does not depend on them."""
    aims, made = rules.aims, {figure for figure, _ in uses(name)}
    energy, latency = (0.0 if f in made else BESIDE for f in ("energy", "latency"))

    def score(figures: PointCosts) -> Array:
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


class EinsumSearch:
    """Searches the templates of one Einsum one after another."""

    def __init__(
        self,
        work: Deepening,
        number: int,
        part: EinsumInterface,
        room: tuple[float, ...],
        goal: Goal,
        steps: int,
        tried: Tried,
        tally: SearchTally | None = None,
    ) -> None:
        """`steps`: step limit of the improved search. `tally`: with a time limit of its own."""
        self.steps, self.tried = steps, tried
        self.space, self.shape, self.sizes, self.goal = work.spaces[number], part.shape, part.sizes, goal
        self.above = tuple(TemplateNode(i, m, 0) for i, m in part.above)
        self.memories, self.band = work.rules.which, numbered_bands(self.space, work.request.limits)
        self.interest, self.limits = _interest(work), work.request.limits
        self.room, self.tally = room, tally or work.watch.tally()
        self.best: LocalMapping | None = None
        self.left = 0  # steps left

    def first(self) -> list[LocalMapping]:
        """The best of the starting points, if any fits.

        After the time limit the first that fits is returned.
        """
        for template in (several[0] for several in self._starts()):
            descent = self._descent(template)
            for placed in descent.places.starts():
                self._take(descent.point(placed, alone=True))
                if self._fitting() and not self.tally.has_time():
                    return self._fitting()
        return self._fitting()

    def fair(self) -> list[LocalMapping]:
        """The best result of descents from each unit's first template, until one of them fits."""
        return self._within(FAIR, self._look_briefly)

    def improved(self) -> list[LocalMapping]:
        """The best result of descents from all templates and their neighbours."""
        return self._within(self.steps, self._look_at_all)

    def _ask(self) -> None:
        """Raises Late once the step limit or the time limit has passed."""
        self.left -= 1
        if self.left < 0:
            raise Late
        self.tally.ask()

    def _within(self, steps: int, look: Callable[[], None]) -> list[LocalMapping]:
        self.left = steps
        try:
            look()
        except Stopped as stopped:
            self._take(stopped.found)
        except CUT:
            pass  # the best so far is kept
        return self._fitting()

    def _fitting(self) -> list[LocalMapping]:
        return [self.best] if self.best is not None and not self.best.excess else []

    def _look_at_starts(self, briefly: bool = False) -> None:
        """Descend from the first templates. `briefly`: a unit is done once one of its templates fits."""
        done: set[int] = set()
        for several in self._starts():
            for template in several:
                descent = self._descent(template)
                if self._exhausted(descent) is None:
                    break
            else:
                continue
            template = several[0]  # of many tile sizes, one order suffices
            if briefly and template.unit in done:
                continue
            descent = self._descent(template)
            for placed in descent.places.starts():
                found = descent.from_(placed)
                self._take(found)
                if not found.excess:
                    done.add(template.unit)

    def _look_briefly(self) -> None:
        if not self._look_at_every():
            self._look_at_starts(briefly=True)

    def _look_at_all(self) -> None:
        if self._look_at_every():
            return
        self._look_at_starts()
        while self.best is not None and self._next():
            pass

    def _look_at_every(self) -> bool:
        """Enumerate all templates and tile sizes. False if there are too many."""
        several = list(islice(self._every(), MOST_TEMPLATES + 1))
        if self.interest is None or len(several) > MOST_TEMPLATES:
            return False
        return all(map(self._tried, several))

    def _tried(self, template: Template) -> bool:
        """Enumerate all tile sizes of a template. False if there are too many.

        The points are kept for other goals: a point that was dropped because of a known mapping is no better
        for any goal than that mapping, which is among the points of its own template.
        """
        if template not in self.tried:
            self.tried[template] = self._points_of(self._descent(template))
        points = self.tried[template]
        if points is not None:
            self._better_of(points)
        return points is not None

    def _every(self) -> Iterator[Template]:
        """All templates with exactly the private nodes `above` fused loops."""
        depth = len(self.shape.prefix)
        for unit in range(1 if self.space.copy else len(self.space.units)):
            reach = len(self.space.memories) if self.space.copy else self.space.units[unit].memories
            if reach <= self.shape.innermost:
                continue
            for nodes in placements(self.space, self.limits, self.shape, reach):
                if {n for n in nodes if not n.shared and n.level <= depth} == {*self.above}:
                    for one in in_each_order(self.space, Template(self.shape, nodes, unit)):
                        yield from with_homes(self.space, one)

    def _take(self, found: LocalMapping) -> bool:
        if self.best is None or found.rank < self.best.rank:
            self.best = found
            return True
        return False

    def _next(self) -> bool:
        """Whether a neighbour of the best template is better; if so, it becomes the best."""
        best = self.best
        assert best is not None
        for template, placed in self._neighbors(best):
            descent = self._descent(template)
            better = self._exhausted(descent)
            if better or (better is None and self._take(descent.from_(placed))):
                return True
        return False

    def _exhausted(self, descent: Descent) -> bool | None:
        """Whether the best of all tile sizes of a template improves on the best; None if there are too
        many."""
        points = self._points_of(descent)
        return None if points is None else self._better_of(points)

    def _points_of(self, descent: Descent) -> TemplatePoints | None:
        """The undominated points of a template; None if there are too many."""
        if self.interest is None:
            return None
        try:
            return descent.every(self.interest, self.best)
        except TooManyPoints:
            return None

    def _better_of(self, points: TemplatePoints) -> bool:
        fits = self.best is not None and not self.best.excess
        result = points.best(self.goal, self._ask, self.best.score if self.best and fits else inf)
        return result is not None and self._take(result)

    def _descent(self, template: Template) -> Descent:
        return Descent(self.space, template, self.goal, self.memories, self.room, self._ask, self.sizes)

    def _starts(self) -> Iterator[list[Template]]:
        """Templates with every allowed private node, then with the required ones only, in all orders."""
        inner = self.shape.innermost
        for unit in range(1 if self.space.copy else len(self.space.units)):
            seen: set[tuple[tuple[int, int], ...]] = set()
            if not self.space.copy and self.space.units[unit].memories <= inner:
                continue
            for every in (True, False):
                held = self._private_nodes(unit, every)
                if tuple(held) in seen:
                    continue
                seen.add(tuple(held))
                orders = permutations(held) if not every and len(held) <= MOST_ORDERED else (held,)
                several = [t for order in orders for t in self._templates(unit, order)]
                if several:
                    yield several

    def _private_nodes(self, unit: int, every: bool) -> list[tuple[int, int]]:
        """(Memory, operand) of private nodes, outer memories first."""
        outermost = {n.operand: n.memory for n in self.above} | {i: m for i, m, _ in self.shape.shared}
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
        """Templates with private nodes `held` in this order.

        `along`: the variable along which nodes slide, by (memory, operand); others slide along the first
        allowed.
        """
        shared = tuple(TemplateNode(i, m, d, True) for i, m, d in self.shape.shared)
        depth = len(self.shape.prefix)
        if depth and any(m in self.space.rules.always for m, _ in held):
            return  # below fused loops nodes refill
        branch = tuple(
            with_policy(
                self.space,
                TemplateNode(i, m, depth + 1 + k),
                depth,
                along.get((m, i), self._along(m, i)[0]),
            )
            for k, (m, i) in enumerate(held)
        )
        outside = sorted((*shared, *self.above), key=lambda n: (n.level, n.memory))
        template = Template(self.shape, (*outside, *branch), unit)
        if in_order(template.nodes, self.band):
            for one in in_each_order(self.space, template):
                yield from with_homes(self.space, one)

    def _along(self, memory: int, operand: int) -> tuple[int, ...]:
        """The variables along which a node may slide (-1: it refills), in the order in which they are
        tried."""
        several = self.space.slides(memory, operand)
        return (-1, *several) if self.space.rules.placed or not several else several

    def _neighbors(self, found: LocalMapping) -> Iterator[tuple[Template, tuple[Array, ...]]]:
        """Yield neighbouring templates, with the slots of the current factors in them.

        They have one node fewer or more, or two nodes swapped, or another variable along which a node slides,
        or another set of loops over which it stays.
        """
        unit, depth = found.template.unit, found.template.depth
        held = [(n.memory, n.operand) for n in found.template.branch]
        along = {(n.memory, n.operand): n.slides for n in found.template.branch}
        for k in range(len(held) - 1):
            swapped = [*held[:k], held[k + 1], held[k], *held[k + 2 :]]
            yield from ((t, found.placed) for t in self._templates(unit, swapped, along))
        for m, i in held:
            for v in (v for v in self._along(m, i) if v != along[m, i]):
                yield from ((t, found.placed) for t in self._templates(unit, held, {**along, (m, i): v}))
        for k, (m, i) in enumerate(held):
            if self.space.operands[i].tensor not in self.space.keep[m]:
                merged = tuple(_merged(x, depth + k + 1) for x in found.placed)
                yield from ((t, merged) for t in self._templates(unit, held[:k] + held[k + 1 :], along))
        for m, i in self._private_nodes(unit, True):
            if (m, i) in held:
                continue
            for k in range(len(held) + 1):
                parted = tuple(_parted(x, depth + k + 1) for x in found.placed)
                more = [*held[:k], (m, i), *held[k:]]
                yield from ((t, parted) for t in self._templates(unit, more, along))
        moving = tuple(replace(n, stays=None) for n in found.template.nodes)
        for nodes in (moving, *staying(self.space, depth, moving)):
            if nodes != found.template.nodes:
                several = with_homes(self.space, Template(self.shape, nodes, unit))
                yield from ((t, found.placed) for t in several)
        for t in in_each_order(self.space, found.template):
            if t != found.template:
                yield t, found.placed


def _merged(placed: Array, level: int) -> Array:
    """Return slots without a level: its loops join those of the level above."""
    result = np.delete(placed, level, axis=1)
    result[:, level - 1] += placed[:, level]
    return result


def _parted(placed: Array, level: int) -> Array:
    """Return slots with one more level that has no loops."""
    return np.insert(placed, level, 0, axis=1)


def _points_of(work: Deepening, number: int, shape: Sharing, found: Sequence[LocalMapping]) -> Pmappings:
    n, which = len(found), len(work.rules.which)
    none = np.zeros(n, np.int64)
    above = np.zeros((len(shape.prefix), which, n))
    for slot in above[:1]:  # plans have one fused loop
        slot[:] = np.array([f.above for f in found]).reshape(n, which).T
    keys = np.array([f.keys.max(axis=0, initial=0) for f in found]).reshape(n, len(shape.prefix)).T
    more = np.array([f.more for f in found]).reshape(n, len(work.rules.aims.more)).T
    return Pmappings(
        work.spaces[number], shape, keys, np.array([f.energy for f in found]),
        np.array([f.latency for f in found]), more, np.array([f.private for f in found]).reshape(n, which).T,
        above, tuple(f.template for f in found), np.arange(n), np.arange(n), (),
        none - 1, none, "divisors", tuple((f.tiles, f.spread, f.keys) for f in found),
    )  # fmt: skip
