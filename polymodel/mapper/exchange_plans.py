"""Plans of first mappings: the memory and the fused loops of each exchanged intermediate, with tile sizes.

The first plan exchanges every intermediate as far outside as allowed. Then intermediates that fit whole move
into the first memory inside the backing storage. Then runs of Einsums share a loop, so that tiles of larger
intermediates fit there or further inside. Good plans are varied by single tensors and runs.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import field, replace
from functools import cached_property

from polymodel.factoring import divisors
from polymodel.frozen import dataclass
from polymodel.mapper.join import Lives
from polymodel.mapper.records import Limits
from polymodel.mapper.space import EinsumSpace, Operand
from polymodel.mapper.templates import Sharing, exchanges_of

FIRST = 1  # the memory inside the backing storage
SMALLER = 2  # steps (in divisors) by which tiles that do not fit may shrink
ROOM = 0.5  # largest share of a memory for everything that is exchanged there at one time
LONGEST_RUN = 4  # Einsums that share a loop where a plan is varied


@dataclass(frozen=True)
class EinsumInterface:
    """The part of an Einsum's mapping on which its neighbours depend.

    Its shape, the tile sizes below its fused loops, and its private nodes above these loops as (operand,
    memory). `run`: the Einsums below the same loops.
    """

    shape: Sharing
    sizes: tuple[int, ...] = ()
    above: tuple[tuple[int, int], ...] = ()
    run: range = field(default=range(0), compare=False)


Plan = tuple[EinsumInterface, ...]


@dataclass(frozen=True)
class Run:
    """Consecutive Einsums, starting with `first`, that share one loop.

    `variables`: the loop variable in each Einsum; `size`: the tile size; `tensors`: those exchanged below
    the loop, in `memory`. `above`: (Einsum, operand) that the first memory holds above the loop.
    """

    first: int
    variables: tuple[int, ...]
    size: int
    tensors: frozenset[str]
    memory: int
    above: frozenset[tuple[int, int]] = frozenset()

    @property
    def stop(self) -> int:
        """The number of the Einsum after the run."""
        return self.first + len(self.variables)

    def variable(self, number: int) -> int | None:
        at = number - self.first
        return self.variables[at] if 0 <= at < len(self.variables) else None


@dataclass(frozen=True)
class Sketch:
    """The decisions of a plan: memories of intermediates exchanged above all loops, and disjoint runs.

    Tensors of a run are in the run's memory.
    """

    where: tuple[tuple[str, int], ...]
    runs: tuple[Run, ...] = ()

    @property
    def memories(self) -> dict[str, int]:
        return {**dict(self.where), **{t: run.memory for run in self.runs for t in run.tensors}}

    def moved(self, tensor: str, memory: int) -> Sketch:
        """With a tensor in another memory, above all loops."""
        return replace(self, where=tuple((t, memory if t == tensor else m) for t, m in self.where))

    def with_run(self, run: Run) -> Sketch:
        """With a run in place of all runs that overlap it."""
        apart = tuple(r for r in self.runs if r.stop <= run.first or run.stop <= r.first)
        return replace(self, runs=(*apart, run))

    def without(self, run: Run) -> Sketch:
        return replace(self, runs=tuple(r for r in self.runs if r != run))


class Plans:
    """The plans of a cascade: initial ones, and the neighbours of a plan."""

    def __init__(self, spaces: Sequence[EinsumSpace], limits: Limits, lives: Lives) -> None:
        self.spaces, self.limits, self.lives = spaces, limits, lives
        self.allowed = _memories(spaces, limits)

    def plan(self, sketch: Sketch) -> Plan:
        return _plan(self.spaces, sketch.memories, sketch.runs)

    def first(self) -> Iterator[Sketch]:
        """Initial plans, without repetition."""
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

    def neighbors(self, sketch: Sketch) -> Iterator[Sketch]:
        """Plans with one tensor in another memory, or one run removed, added or changed.

        Only plans whose exchanged tensors fit.
        """
        within = {t for run in sketch.runs for t in run.tensors}
        others = [sketch.without(run) for run in sketch.runs]
        others += [
            sketch.moved(t, m)
            for t, now in sketch.where
            if t not in within
            for m in self.allowed[t]
            if m != now
        ]
        others += [sketch.without(run).with_run(other) for run in sketch.runs for other in self._near(run)]
        others += [sketch.with_run(run) for run in self._runs if run not in sketch.runs]
        return (x for x in map(self._fitted, others) if x is not None)

    def _fitted(self, sketch: Sketch) -> Sketch | None:
        """The sketch with tiles reduced to fit; None if that takes more than SMALLER steps."""
        for _ in range(SMALLER + 1):
            full = self._full(sketch)
            if not full:
                return sketch
            large = [r for r in sketch.runs if any(r.first <= i < r.stop for i in full)]
            for run in large:
                sketch = sketch.without(run).with_run(replace(run, size=self._neighbor_size(run, -1)))
            if not large:
                break
        return None

    def _neighbor_size(self, run: Run, steps: int) -> int:
        """The tile size of a run moved by a number of divisors, clamped to the first and last."""
        several = divisors(self.spaces[run.first].extents[run.variables[0]])[:-1]
        return several[min(max(several.index(run.size) + steps, 0), len(several) - 1)]

    def _near(self, run: Run) -> Iterator[Run]:
        """The run with other tile sizes, or with one tensor more or less above the loop."""
        sizes = list(dict.fromkeys(self._neighbor_size(run, k) for k in (0, -1, 1, -2, 2)))
        einsums = zip(range(run.first, run.stop), run.variables, strict=True)
        toggled = [run.above ^ {(i, k)} for i, v in einsums for k in _operands_above(self.spaces[i], v)]
        for above in (run.above, *toggled):
            several = (replace(run, size=size, above=above) for size in sizes)
            yield from (other for other in several if other != run)

    @cached_property
    def _runs(self) -> list[Run]:
        """All ways in which a few consecutive Einsums may share a loop."""
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

    def _full(self, sketch: Sketch) -> list[int]:
        """The Einsums during which exchanged tensors exceed some memory."""
        result = []
        plan = self.plan(sketch)
        rooms = remaining_capacity(self.spaces, plan, self.lives)
        for i, (space, part, room) in enumerate(zip(self.spaces, plan, rooms, strict=True)):
            left = list(room)
            for number, m, depth in part.shape.shared:
                v = part.shape.prefix[0] if depth else None
                left[m] -= bits_below(space.operands[number], space, v, part.sizes[0] if depth else 1)
            for number, m in part.above:
                left[m] -= bits_below(space.operands[number], space, None, 1)
            if any(x < 0 for x in left):
                result.append(i)
        return result


def _linked(inside: Mapping[str, range], span: range) -> bool:
    """Whether each Einsum of the span produces or consumes one of the tensors."""
    return all(any(r.start <= i < r.stop for r in inside.values()) for i in span)


def _one_of_each(runs: Sequence[Sequence[Run]]) -> Iterator[tuple[Run, ...]]:
    """Yield the first run of every span, then the second, and so on, while any remain."""
    ways = [r for r in runs if r]
    for k in range(max(map(len, ways), default=0)):
        yield tuple(r[min(k, len(r) - 1)] for r in ways)


def _memories(spaces: Sequence[EinsumSpace], limits: Limits) -> dict[str, list[int]]:
    """Per tensor the memories that may hold its outermost tile for all of its Einsums."""
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
    """Assign tensors that fit whole to the first memory (in `chosen`).

    Returns the bits held there during each Einsum, and the other tensors with the Einsums of their
    lifetimes.
    """
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
    """Unions of overlapping lifetimes."""
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
    """Ways to share one loop, inner memories first, with the largest tiles that fit each."""
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
    """Bits of the tiles that an Einsum exchanges below a loop."""
    return sum(bits_below(o, space, variable, size) for o in space.operands if o.tensor in tensors)


def _followed(
    spaces: Sequence[EinsumSpace], span: range, tensors: frozenset[str], start: int
) -> tuple[int, ...] | None:
    """Return the variable of each Einsum that indexes the same rank of the exchanged tensors; None if there
    is none."""
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
                if v not in o.alone or v not in o.ranks or v == o.over:
                    return None
                ranks.setdefault(o.tensor, o.ranks.index(v))
        result.append(v)
    return tuple(result)


def bits_below(o: Operand, space: EinsumSpace, variable: int | None, size: int) -> float:
    """Bits of a tensor below a loop over a variable with this tile size."""
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
            above = tuple((k, FIRST) for n, k in sorted(run.above) if n == i)
            einsums = range(run.first, run.stop)
            result.append(EinsumInterface(Sharing((variable,), shared), (run.size,), above, einsums))
    return tuple(result)


def _operands_above(space: EinsumSpace, variable: int) -> Iterator[int]:
    """Operands that the first memory may hold above a loop over a variable: those that it does not index."""
    if (
        space.copy
        or FIRST in space.rules.always
        or any(f.below <= FIRST and f.width > 1 for f in space.fanouts)
    ):
        return
    for k, o in enumerate(space.operands):
        stays = variable not in o.alone and variable not in o.windowed and variable not in o.tied
        if stays and not o.fusable and o.carried is None and o.tensor in space.may[FIRST]:
            yield k


def remaining_capacity(spaces: Sequence[EinsumSpace], plan: Plan, lives: Lives) -> list[tuple[float, ...]]:
    """Return, per Einsum, the capacity of every memory that the tensors of other Einsums leave.

    Those tensors are tensors that the Einsum does not access, and everything above a loop that a run of
    Einsums shares.
    """
    memories = spaces[0].memories
    result = [[m.capacity for m in memories] for _ in plan]
    for i, (space, part) in enumerate(zip(spaces, plan, strict=True)):
        for number, m in part.above:
            for k in (k for k in part.run if k != i):
                result[k][m] -= bits_below(space.operands[number], space, None, 1)
        for number, m, depth in part.shape.shared:
            o = space.operands[number]
            loop = part.shape.prefix[0] if depth else None
            bits = bits_below(o, space, loop, part.sizes[0] if depth else 1)
            if not o.output:
                continue
            last = lives.last[o.tensor]
            runs = [r for r in (plan[i].run, plan[last].run) if r and not depth]
            begin, end = min([i, *(r.start for r in runs)]), max([last + 1, *(r.stop for r in runs)])
            for k in range(begin, end):
                if spaces[k].operand(o.tensor) is None:
                    result[k][m] -= bits
    return [tuple(x) for x in result]
