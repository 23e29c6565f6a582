"""Plans of first mappings: where each intermediate is exchanged, below which fused loops, at which sizes.

First all are as far out as they may be; then those that fit whole are in the first memory inside the backing
storage; then runs of Einsums share a loop, so that tiles of what does not fit whole fit there or further
inside. Good plans are varied tensor by tensor and run by run."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

from polymodel.factoring import divisors
from polymodel.mapper.join import Lives
from polymodel.mapper.records import Limits
from polymodel.mapper.space import EinsumSpace, Operand
from polymodel.mapper.templates import Sharing, exchanges_of

ROOM = 0.5  # of a memory, at most, for all that is exchanged there at one time
LONGEST_RUN = 4  # Einsums that share a loop where a plan is varied


@dataclass(frozen=True)
class EinsumInterface:
    """What neighbours see of one Einsum: its shape, and tile sizes below its fused loops."""

    shape: Sharing
    sizes: tuple[int, ...] = ()


Plan = tuple[EinsumInterface, ...]


@dataclass(frozen=True)
class Run:
    """Einsums from `first` on that share a loop: the variable of each, the size below it, what is exchanged
    below it, and in which memory."""

    first: int
    variables: tuple[int, ...]
    size: int
    tensors: frozenset[str]
    memory: int

    @property
    def stop(self) -> int:
        """The number of the first Einsum behind it."""
        return self.first + len(self.variables)

    def variable(self, number: int) -> int | None:
        at = number - self.first
        return self.variables[at] if 0 <= at < len(self.variables) else None


@dataclass(frozen=True)
class Sketch:
    """What a plan follows from: the memory of each intermediate that is exchanged above all loops, by its
    name, and the runs, none of which have an Einsum in common; a run's tensors are where it says."""

    where: tuple[tuple[str, int], ...]
    runs: tuple[Run, ...] = ()

    @property
    def memories(self) -> dict[str, int]:
        return {**dict(self.where), **{t: run.memory for run in self.runs for t in run.tensors}}

    def moved(self, tensor: str, memory: int) -> Sketch:
        """With a tensor in another memory, above all loops."""
        return replace(self, where=tuple((t, memory if t == tensor else m) for t, m in self.where))

    def with_run(self, run: Run) -> Sketch:
        """With a run instead of all that have an Einsum in common with it."""
        apart = tuple(r for r in self.runs if r.stop <= run.first or run.stop <= r.first)
        return replace(self, runs=(*apart, run))

    def without(self, run: Run) -> Sketch:
        return replace(self, runs=tuple(r for r in self.runs if r != run))


class Plans:
    """The plans of a cascade: those to begin with, and what is beside one."""

    def __init__(self, spaces: Sequence[EinsumSpace], limits: Limits, lives: Lives) -> None:
        self.spaces, self.limits, self.lives = spaces, limits, lives
        self.allowed = _memories(spaces, limits)

    def plan(self, sketch: Sketch) -> Plan:
        return _plan(self.spaces, sketch.memories, sketch.runs)

    def first(self) -> Iterator[Sketch]:
        """Those to begin with, no plan twice."""
        if not all(self.allowed.values()):
            return
        chosen = {t: min(several) for t, several in self.allowed.items()}
        farthest = Sketch(tuple(chosen.items()))
        seen = [self.plan(farthest)]
        yield farthest
        held, large = _whole(self.spaces, self.lives, self.allowed, chosen)
        whole = Sketch(tuple(chosen.items()))
        runs = [list(_runs(self.spaces, span, large, self.allowed, held)) for span in _spans(large)]
        several = [()] if self.limits.max_fused_loops == 0 else [(), *_one_of_each(runs)]
        for some in several:
            sketch = replace(whole, runs=some)
            if self.plan(sketch) not in seen:
                seen.append(self.plan(sketch))
                yield sketch

    def beside(self, sketch: Sketch) -> Iterator[Sketch]:
        """With one tensor in another memory, or one run less or more; of these, those that fit by what is
        exchanged alone."""
        within = {t for run in sketch.runs for t in run.tensors}
        others = [sketch.without(run) for run in sketch.runs]
        others += [
            sketch.moved(t, m)
            for t, now in sketch.where
            if t not in within
            for m in self.allowed[t]
            if m != now
        ]
        others += [sketch.with_run(run) for run in self._runs if run not in sketch.runs]
        return (x for x in others if self._fits(x))

    @cached_property
    def _runs(self) -> list[Run]:
        """Ways in which few neighbours share a loop."""
        if self.limits.max_fused_loops == 0:
            return []
        none, whole = [0.0] * len(self.spaces), {}
        for i, s in enumerate(self.spaces):
            for o in s.operands:
                if o.output and o.tensor in self.lives.last and any(self.allowed[o.tensor]):
                    whole[o.tensor] = range(i, self.lives.last[o.tensor] + 1)
        result: list[Run] = []
        for first in range(len(self.spaces)):
            for stop in range(first + 2, min(first + LONGEST_RUN, len(self.spaces)) + 1):
                inside = {t: r for t, r in whole.items() if first <= r.start and r.stop <= stop}
                if list(_spans(inside)) == [range(first, stop)] and _linked(inside, range(first, stop)):
                    result += _runs(self.spaces, range(first, stop), inside, self.allowed, none)
        return result

    def _fits(self, sketch: Sketch) -> bool:
        """Whether all that is exchanged at one time leaves room in every memory."""
        plan = self.plan(sketch)
        rooms = room_beside(self.spaces, plan, self.lives)
        for space, part, room in zip(self.spaces, plan, rooms, strict=True):
            left = list(room)
            for number, m, depth in part.shape.shared:
                v = part.shape.prefix[0] if depth else None
                left[m] -= bits_below(space.operands[number], space, v, part.sizes[0] if depth else 1)
            if any(x < 0 for x in left):
                return False
        return True


def _linked(inside: Mapping[str, range], span: range) -> bool:
    """Whether each of the Einsums hands something to a later one or takes it."""
    return all(any(r.start <= i < r.stop for r in inside.values()) for i in span)


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
                over = o.carried.variable if o.carried is not None else -1
                if v not in o.alone or v not in o.ranks or v == over:
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
            result.append(EinsumInterface(Sharing((), tuple((k, m, 0) for k, m, _ in shared))))
        else:
            variable = run.variable(i)
            assert variable is not None
            result.append(EinsumInterface(Sharing((variable,), shared), (run.size,)))
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
