"""The work of the stages of pipelines in each slot, as closed forms (docs/semantics.md, Pipelines).

If tiles are boxes and nothing stays from one iteration to the next, the first and all later whole iterations
of a loop move the same amounts, except for what is moved once (storage that is filled before the first
iteration, partial sums that are read again after it), and the last iteration moves the remainder of a tile.
So a wrap has three kinds of iterations, and its slots are those around the first iteration, those around the
last one, and the others, which are equal.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import product as cartesian
from typing import Any

from polymodel.analysis.result import (
    PipelineRun,
    PipelineSlot,
    Problem,
    StageWork,
    ordered_slots,
    phase_of,
    pipelines_of,
)
from polymodel.analysis.symbolic.atoms import ONE, Leaf, Role
from polymodel.analysis.symbolic.counts import count
from polymodel.analysis.symbolic.flows import FormLedger, HeldIteration, book
from polymodel.analysis.symbolic.forms import READS, TRAFFIC, ZERO, Form, number, product, summed
from polymodel.analysis.symbolic.layout import SymbolicLayout, check_visits
from polymodel.analysis.symbolic.spaces import ITERATIONS, Use
from polymodel.errors import NotSeparable
from polymodel.frozen import dataclass
from polymodel.mapping.looptree import PipelineSplit, decided_above, ties

MOST_LOOPS = 4  # temporal, above a pipeline: each has three kinds of iterations
Pair = tuple[Form, Form]
Held = Mapping[int, Use]  # position of a temporal loop -> which of its iterations


@dataclass(frozen=True)
class StageForms:
    """The work of one Einsum in one iteration: operations of the instance that executes most, and (component,
    bits that its busiest instance reads and writes), outermost first."""

    einsum: str
    operations: Form
    loads: tuple[tuple[str, Pair], ...]

    def times(self, n: Form) -> StageForms:
        loads = tuple((name, (reads * n, writes * n)) for name, (reads, writes) in self.loads)
        return StageForms(self.einsum, self.operations * n, loads)

    def plus(self, other: StageForms) -> StageForms:
        """The sum of both; the components are the same in all iterations."""
        pairs = zip(self.loads, other.loads, strict=True)
        loads = tuple((name, (a + c, b + d)) for (name, (a, b)), (_, (c, d)) in pairs)
        return StageForms(self.einsum, self.operations + other.operations, loads)

    @property
    def forms(self) -> Iterator[Form]:
        yield self.operations
        for _, pair in self.loads:
            yield from pair


@dataclass(frozen=True)
class WrapForms:
    """`times` equal wraps of `trips` iterations; `beyond[k]`: 1 if there are more than k iterations.

    `stages`: for each stage, per Einsum, its work in the first, a later and the last iteration.
    """

    times: Form
    trips: Form
    beyond: tuple[Form, ...]
    stages: tuple[tuple[tuple[StageForms, StageForms, StageForms], ...], ...]


@dataclass(frozen=True)
class PipelineForms:
    """A pipeline (node id of its split) as the kinds of its wraps. `components`: outermost first."""

    node: int
    components: tuple[str, ...]
    wraps: tuple[WrapForms, ...]

    @property
    def forms(self) -> Iterator[Form]:
        """All forms in it."""
        for wrap in self.wraps:
            yield from (wrap.times, wrap.trips, *wrap.beyond)
            for works in (x for stage in wrap.stages for x in stage):
                for work in works:
                    yield from work.forms

    def at(self, values: Mapping[str, int]) -> PipelineRun:
        """The slots for given symbols, with equal ones merged."""
        result: Counter[PipelineSlot] = Counter()
        for wrap in self.wraps:
            times = wrap.times.at(values)
            if times:
                stages = [[tuple(_numbers(w, values) for w in x) for x in stage] for stage in wrap.stages]
                for slot, n in _slots(self.components, stages, wrap.trips.at(values)):
                    result[slot] += n * times
        return PipelineRun(self.node, ordered_slots(result))

    def in_slots(self, of: Callable[[Form], Any]) -> PipelineRun:
        """The same for any symbols; `of` converts forms to numbers. Slots that do not exist have count 0."""
        slots = []
        for wrap in self.wraps:
            for phase, times, works in _slot_forms(wrap):
                stages = tuple(
                    tuple(StageWork(w.einsum, of(w.operations), _loads(w, of)) for w in stage)
                    for stage in works
                )
                shared = tuple((name, ((of(r), of(w)),)) for name, (r, w) in _joint(works))
                slots.append(PipelineSlot(phase, of(times), stages, shared))
        return PipelineRun(self.node, tuple(slots))


def _loads(work: StageForms, of: Callable[[Form], Any]) -> tuple[Any, ...]:
    return tuple((name, ((of(r), of(w)),)) for name, (r, w) in work.loads if r.terms or w.terms)


def _joint(stages: Sequence[Sequence[StageForms]]) -> list[tuple[str, Pair]]:
    """The joint loads in one slot of components that several stages may load."""
    result: dict[str, list[Pair]] = {}
    for stage in stages:
        own: dict[str, Pair] = {}
        for name, (r, w) in (x for work in stage for x in work.loads):
            if r.terms or w.terms:
                have = own.get(name, (ZERO, ZERO))
                own[name] = have[0] + r, have[1] + w
        for name, pair in own.items():
            result.setdefault(name, []).append(pair)
    return [
        (name, (_sum(r for r, _ in pairs), _sum(w for _, w in pairs)))
        for name, pairs in result.items()
        if len(pairs) > 1
    ]


def _sum(forms: Iterator[Form]) -> Form:
    total = ZERO
    for form in forms:
        total = total + form
    return total


def _slot_forms(wrap: WrapForms) -> Iterator[tuple[str, Form, tuple[tuple[StageForms, ...], ...]]]:
    """(phase, count, work by stage) of a wrap of n iterations: the slots with the first iteration in some
    stage, those with the last one but not the first, and all others."""
    many = len(wrap.stages)
    one = number(1)

    def iteration(stage: int, n: int) -> tuple[StageForms, ...]:
        """The n-th iteration of a stage, whatever its kind, if it exists."""
        if n == 0:
            return tuple(first for first, _, _ in wrap.stages[stage])
        there, after = wrap.beyond[n], wrap.beyond[n + 1]
        works = wrap.stages[stage]
        return tuple(later.times(after).plus(last.times(there - after)) for _, later, last in works)

    def before_last(stage: int, n: int) -> tuple[StageForms, ...]:
        """The iteration that is n before the last one and is not the first."""
        return tuple(last if n == 0 else later for _, later, last in wrap.stages[stage])

    for s in range(many):
        works = tuple(iteration(b, s - b) if b <= s else () for b in range(many))
        yield "fill" if s < many - 1 else "steady", wrap.times, works
    for j in range(many):
        works = tuple(before_last(b, b + j + 1 - many) if b + j + 1 >= many else () for b in range(many))
        yield "drain", wrap.times * wrap.beyond[j + 1], works
    rest = wrap.trips - one
    for k in range(1, many + 1):
        rest = rest - wrap.beyond[k]
    yield "steady", wrap.times * rest, tuple(before_last(b, 1) for b in range(many))


def _numbers(work: StageForms, values: Mapping[str, int]) -> StageWork | None:
    operations = work.operations.at(values)
    loads = ((name, (r.at(values), w.at(values))) for name, (r, w) in work.loads)
    result = tuple((name, (pair,)) for name, pair in loads if any(pair))
    return StageWork(work.einsum, operations, result) if operations or result else None


Kinds = tuple[StageWork | None, ...]


def _slots(
    components: tuple[str, ...], stages: Sequence[Sequence[Kinds]], n: int
) -> Iterator[tuple[PipelineSlot, int]]:
    """The slots of a wrap of n iterations, and the number of each."""
    many = len(stages)
    ends = {s for s in (*range(many + 1), *range(n - 2, n + many - 1)) if 0 <= s < n + many - 1}
    middle = many + 1

    def slot(s: int) -> PipelineSlot:
        here: list[tuple[StageWork, ...]] = []
        for b, stage in enumerate(stages):
            i = s - b
            kind = 0 if i == 0 else 2 if i == n - 1 else 1
            here.append(tuple(w for kinds in stage if (w := kinds[kind]) is not None) if 0 <= i < n else ())
        return PipelineSlot(phase_of(s, n, many), 1, tuple(here), _shared(components, here))

    for s in ends:
        yield slot(s), 1
    rest = n + many - 1 - len(ends)
    if rest:
        yield slot(middle), rest


def _shared(
    components: tuple[str, ...], stages: Sequence[Sequence[StageWork]]
) -> tuple[tuple[str, tuple[tuple[int, int], ...]], ...]:
    """The joint loads of the components that several stages load."""
    result: dict[str, dict[int, tuple[int, int]]] = {}
    for b, stage in enumerate(stages):
        for name, ((r, w),) in (x for work in stage for x in work.loads):
            have = result.setdefault(name, {}).get(b, (0, 0))
            result[name][b] = have[0] + r, have[1] + w
    return tuple(
        (name, ((sum(r for r, _ in pairs.values()), sum(w for _, w in pairs.values())),))
        for name in components
        if len(pairs := result.get(name, {})) > 1
    )


def pipeline_forms(layout: SymbolicLayout) -> tuple[PipelineForms, ...]:
    """Every pipeline of the mapping. Raises NotSeparable."""
    result = pipelines_of(layout.problem)
    for p in result:
        for e in p.einsums:
            _refuse_tiles(layout, e)
        check_visits(layout, p.einsums, _loops(layout, p)[0])
    return tuple(_pipeline(layout, p) for p in result)


def refuse_pipelines(problem: Problem) -> None:
    """Refuse pipelines whose iterations are not of three kinds along each loop."""
    for p in pipelines_of(problem):
        above = [loop for i, loop in problem.tree.loops(p.einsums[0]) if i < p.node]
        if p.outer is not None:
            raise _refused("inside a stage of another one")
        if sum(not loop.spatial for loop in above) > MOST_LOOPS:
            raise _refused(f"below more than {MOST_LOOPS} temporal loops")
        if any(loop.initial_tile_shape not in (None, loop.tile_shape) for loop in above):
            raise _refused("below loops with a first tile of their own")
        for e in p.einsums:
            if problem.cascade[e].is_copy:
                raise _refused(f"that copy ({e})")
            if decided_above(ties(problem.cascade, problem.tree, e)) >= 0:
                raise _refused(f"below loops that do not bind {e}")


def _refuse_tiles(layout: SymbolicLayout, einsum: str) -> None:
    """Refuse Einsums whose work in an iteration is not a product over the rank variables."""
    one = layout.problem.cascade[einsum]
    for tensor in one.tensors:
        space = layout.space(einsum, tensor)
        if space.tied or tensor in layout.lines or space.sums or space.access.stands_for:
            raise _refused(
                f"in which tiles of {tensor} in {einsum} are neither boxes nor windows of two variables"
            )
    if any(layout.space(einsum, a.tensor).halos for a in one.outputs):
        raise _refused(f"in which {einsum} writes windows")


def _refused(what: str) -> NotSeparable:
    return NotSeparable(
        f"stages of a Pipeline {what} overlap, which has no closed form",
        code="unsupported-pipeline",
    )


def _loops(layout: SymbolicLayout, p: PipelineSplit) -> tuple[int, tuple[int, ...]]:
    """The number of loops above the split, and the positions of the temporal ones."""
    above = [a for a in layout.paths[p.einsums[0]] if a.node < p.node]
    return len(above), tuple(i for i, a in enumerate(above) if not a.spatial)


@dataclass(frozen=True)
class _Iterations:
    """The kinds of iterations of the loops above a pipeline."""

    layout: SymbolicLayout
    p: PipelineSplit

    def _form(self, axis: int, held: Held, role: Role | None, leaf: Leaf = ONE) -> Form:
        """The form of a loop within the tile to which the outer iterations are fixed."""
        path = self.layout.paths[self.p.einsums[0]]
        stamps = self.layout.stamps(self.p.einsums[0], path[: axis + 1])
        v = path[axis].variable
        roles: dict[int, Role] = {i: "last" if held.get(i) == "last" else "first" for i in stamps.of(v)}
        roles.pop(axis)
        if role is not None:
            roles[axis] = role
        return summed(stamps.extent(v), stamps.ladder(v, roles), leaf)

    def trips(self, axis: int, held: Held) -> Form:
        return self._form(axis, held, "each")

    def beyond(self, axis: int, held: Held, n: int) -> Form:
        """1 if the loop has more than n iterations."""
        level = self.layout.paths[self.p.einsums[0]][axis].level("each")
        return self._form(axis, held, None, Leaf("reaches", n, (level,))) if n else number(1)

    def times(self, axis: int, held: Held) -> Form:
        """The number of iterations of the kind to which the loop is fixed."""
        if held[axis] == "first":
            return number(1)
        last = self.beyond(axis, held, 1)
        return last if held[axis] == "last" else self.trips(axis, held) - number(1) - last

    def last(self, axis: int, held: Held) -> Form:
        """1 if there is no iteration after it."""
        if held[axis] == "first":
            return number(1) - self.beyond(axis, held, 1)
        return number(1) if held[axis] == "last" else ZERO

    def works(self, einsum: str, held: Held) -> StageForms:
        """Return the work of an Einsum in one iteration."""
        layout, ledger = self.layout, FormLedger(every=False)
        book(layout, einsum, ledger, {}, HeldIteration(held, {i: self.last(i, held) for i in held}))
        hierarchy = layout.problem.hierarchy
        loads: dict[str, Pair] = {}
        for (_, node, tensor), entry in ledger.accesses.items():
            component = hierarchy[layout.nodes[node, tensor].component]
            for kind in TRAFFIC:
                action = component.action("read" if kind in READS else "write")
                _add(loads, component.name, kind, entry.first[kind] * action.whole_bits(layout.bits(tensor)))
        for (_, toll, tensor), entry in ledger.tolls.items():
            for kind in TRAFFIC:
                _add(loads, toll, kind, entry.first[kind] * layout.bits(tensor))
        inside = tuple((c.name, loads[c.name]) for c in hierarchy.components if c.name in loads)
        return StageForms(einsum, self._operations(einsum, held), inside)

    def _operations(self, einsum: str, held: Held) -> Form:
        stamps = self.layout.stamps(einsum, self.layout.executed[einsum])
        uses: dict[int, Use] = {
            i: "most" if a.spatial else held.get(i, "keep") for i, a in enumerate(stamps.axes)
        }
        return count(stamps, uses)


def _add(loads: dict[str, Pair], component: str, kind: str, bits: Form) -> None:
    reads, writes = loads.get(component, (ZERO, ZERO))
    loads[component] = (reads + bits, writes) if kind in READS else (reads, writes + bits)


def _pipeline(layout: SymbolicLayout, p: PipelineSplit) -> PipelineForms:
    """The kinds of wraps: one for each choice of iterations of the loops outside the pipelined one."""
    kinds, path = _Iterations(layout, p), layout.paths[p.einsums[0]]
    _, axes = _loops(layout, p)
    inner = next((i for i in axes if path[i].node == p.loop), None)
    outer = tuple(i for i in axes if i != inner)
    result: dict[object, WrapForms] = {}
    for chosen in cartesian(ITERATIONS, repeat=len(outer)):
        held: dict[int, Any] = dict(zip(outer, chosen, strict=True))
        times = product(kinds.times(i, held) for i in outer)
        if times == ZERO:
            continue
        beyond = tuple(
            number(1) if not n else ZERO if inner is None else kinds.beyond(inner, {**held}, n)
            for n in range(len(p.stages) + 1)
        )
        trips = number(1) if inner is None else kinds.trips(inner, held)
        stages = tuple(tuple(_works(kinds, e, held, inner) for e in stage) for stage in p.stages)
        key = trips, beyond, stages
        have = result.get(key)
        result[key] = WrapForms(times if have is None else have.times + times, trips, beyond, stages)
    names = tuple(c.name for c in layout.problem.hierarchy.components)
    return PipelineForms(p.node, names, tuple(result.values()))


def _works(
    kinds: _Iterations, einsum: str, held: Held, inner: int | None
) -> tuple[StageForms, StageForms, StageForms]:
    """The work in the first, a later and the last iteration of the pipelined loop."""
    if inner is None:
        one = kinds.works(einsum, held)
        return one, one, one
    along: tuple[Held, ...] = tuple({**held, inner: use} for use in ITERATIONS)
    first, later, last = (kinds.works(einsum, one) for one in along)
    return first, later, last
