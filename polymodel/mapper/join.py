"""Whole mappings from pmappings: Einsum by Einsum along the cascade, states of equal structure side by side.

Of states with equal open loops, tile sizes and live tensors, those go that another one beats in every figure
that later steps look at. The last stage is the front.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from polymodel.governor import Threads
from polymodel.mapper.aims import Aims, Bound, KnownMappings
from polymodel.mapper.budget import SearchTally, always, once
from polymodel.mapper.combine import Interest, group_numbers
from polymodel.mapper.pmappings import Pmappings
from polymodel.mapper.space import EinsumSpace, Operand
from polymodel.mapper.templates import Passing, Sharing
from polymodel.pareto import rows_of, undominated

# Partial mappings of the first Einsums of a cascade: what the rest has to know of them.
#
# Loops that are still open, the tensors that are not consumed yet, and the space that open loop nests take.
# A nest is everything below one open fused loop. What is stored above the loop of a nest (by an Einsum in it,
# or an exchanged tensor made in it) is there as long as the nest runs; what is exchanged below it, from its
# producer to its last consumer. So the peak inside nest d is a maximum over its branches, to which what
# is held for the whole nest is added.

Array = Any


@dataclass(frozen=True)
class Live:
    """A tensor that has been made and will be read. `memory` 0: it is in the backing storage.

    `ranks`: for each open loop that its producer stands below, the rank it indexes (-1: none). Of what is
    read before it is made, those of the loops that carry it forward. `until`: so many loops stay open for it.
    `over`: below so many loops, the last of which carries it forward, it is made and read, so that few
    generations are alive at a time (-1: such loops have ended).
    """

    tensor: str
    memory: int
    depth: int
    ranks: tuple[int, ...]
    until: int = 0
    over: int = 0


@dataclass(frozen=True)
class JoinStructure:
    """`above`: per open loop the extent it splits, or -1-k where it splits the tile of open loop k. `inside`:
    something was handed on further inside than the first memory, where that is asked for (`Lives.inside`)."""

    above: tuple[int, ...]
    live: tuple[Live, ...]
    inside: bool = False

    @property
    def depth(self) -> int:
        return len(self.above)


@dataclass(frozen=True)
class StateSource:
    """Where states came from: positions in the group `group` of the stage before, and in shape `shape`."""

    group: int
    shape: int
    state: Array
    point: Array


@dataclass(frozen=True)
class States:
    """States of one structure. `tiles` [depth, n]; `peak` [depth + 1, memories, n]: the largest space inside
    each open nest (0: the whole) so far; `held` [depth + 1, memories, n]: what each nest holds throughout."""

    structure: JoinStructure
    tiles: Array
    energy: Array
    latency: Array
    more: Array
    peak: Array
    held: Array
    origin: Array
    sources: tuple[StateSource, ...]

    def __len__(self) -> int:
        return len(self.energy)

    def only(self, positions: Array) -> States:
        return rows_of(self, positions)


def start(memories: int, more: int) -> States:
    """Before the first Einsum; `more`: figures besides energy and latency that add up."""
    zero, nothing = np.zeros((1, memories, 1)), np.zeros(1)
    none, origin = np.zeros((0, 1), np.int64), np.zeros((2, 1), int)
    return States(JoinStructure((), ()), none, nothing, nothing, np.zeros((more, 1)), zero, zero, origin, ())


@dataclass(frozen=True)
class Lives:
    """What a cascade says of its exchanged tensors: bits per value, extents of the ranks, which Einsum is the
    first and which the last to touch each, and which one makes it (the first, but for what is awaited).
    `carried`: of those that are carried forward, along which rank, and which Einsum is the last to touch more
    than one generation. `live`: memories that allocate what is live. `inside`: only whole mappings that hand
    something on further inside than the first memory are wanted."""

    bits: dict[str, float]
    extents: dict[str, tuple[int, ...]]
    last: dict[str, int]
    first: dict[str, int]
    made: dict[str, int]
    carried: dict[str, tuple[int, int]] = field(default_factory=dict)
    live: frozenset[int] = frozenset()
    inside: bool = False

    @property
    def awaited(self) -> tuple[str, ...]:
        """Tensors that are read before they are made."""
        return tuple(t for t, n in self.made.items() if self.first[t] < n)

    def passed_until(self, tensor: str) -> int:
        """The last Einsum that loops which carry the tensor forward may stay open for."""
        if self.first[tensor] < self.made[tensor]:
            return self.made[tensor]
        return self.carried[tensor][1] if self.live and tensor in self.carried else -1

    def occupied_bits(self, x: Live, tiles: Array) -> Array:
        """Bits that a tensor takes below these tile sizes of loops: its tile; in a memory that allocates what
        is live, as many generations as are alive."""
        size = self.size(x.tensor, x.ranks[: x.depth], tiles[: x.depth])
        if x.memory not in self.live or x.tensor not in self.carried:
            return size
        rank, last = self.carried[x.tensor]
        every = self.extents[x.tensor][rank]
        if last == self.made[x.tensor]:
            return size / every * min(2, every)  # what is read, and what is made of it
        if x.over < 0:
            return size / every
        return size / every * (np.minimum(tiles[x.over - 1] + 1, every) if x.over else every)

    def least(self, tensor: str, memory: int, ranks: Sequence[int], tiles: Array) -> Array:
        """Bits that a tensor takes there at least, whatever the loops further in."""
        size = self.size(tensor, ranks, tiles)
        if memory not in self.live or tensor not in self.carried:
            return size
        return size / self.extents[tensor][self.carried[tensor][0]]

    def size(self, tensor: str, ranks: Sequence[int], tiles: Array) -> Array:
        """Bits of a tile below loops over `ranks` with these tile sizes [loops, n]."""
        sizes: dict[int, Array] = dict(enumerate(self.extents[tensor]))
        sizes.update(zip(ranks, tiles, strict=False))
        result = np.full(tiles.shape[1] if tiles.ndim == 2 else 1, float(self.bits[tensor]))
        for size in sizes.values():
            result = result * size
        return result


def _stored_share(space: EinsumSpace, operand: Operand) -> float:
    """The share of its dense bits that an exchanged tensor takes, wherever it is."""
    if space.shares is None:
        return 1.0
    number = space.operands.index(operand)
    return min(space.shares.room(number, m) for m in range(len(space.memories)))


def lives_of(spaces: Sequence[EinsumSpace]) -> Lives:
    """The exchanged tensors of a cascade."""
    fusable = [(i, s, o) for i, s in enumerate(spaces) for o in s.operands if o.fusable]
    return Lives(
        {o.tensor: o.bits * _stored_share(s, o) for _, s, o in fusable},
        {o.tensor: tuple(s.extents[r] if r >= 0 else 1 for r in o.ranks) for _, s, o in fusable if o.output},
        {o.tensor: i for i, _, o in fusable},
        {o.tensor: i for i, _, o in reversed(fusable)},
        {o.tensor: i for i, _, o in fusable if o.output},
        _carried(fusable),
        frozenset(i for i, m in enumerate(spaces[0].memories) if m.live),
    )


def _carried(fusable: Sequence[tuple[int, EinsumSpace, Operand]]) -> dict[str, tuple[int, int]]:
    """The generational rank of each tensor that is carried forward, and the last Einsum that goes over it."""
    result: dict[str, tuple[int, int]] = {}
    for i, _, o in fusable:
        if o.carried is not None:
            result[o.tensor] = o.ranks.index(o.carried.variable), i
    return result


def passing_of(spaces: Sequence[EinsumSpace], lives: Lives, number: int) -> Passing:
    """Whether tensors that this Einsum does not touch may be exchanged across it, and whether its output is
    then read before they all are."""
    mine = spaces[number]
    ends = [
        lives.last[t]
        for t, begun in lives.first.items()
        if begun < number < lives.last[t] and mine.operand(t) is None
    ]
    # Loops that carry something forward pass all Einsums by until it is made.
    until = {t: lives.passed_until(t) for t in lives.made}
    ends += [n for t, n in until.items() if lives.first[t] <= number <= n]
    made = {o.tensor for o in mine.operands if o.output and o.tensor in lives.last} - {*lives.awaited}
    reads = [i for i, s in enumerate(spaces) for o in s.operands if o.tensor in made and not o.output]
    return Passing(bool(ends), bool(ends and reads) and min(reads) <= min(ends))


@dataclass(frozen=True)
class JoinStep:
    """How an Einsum with one shape follows a structure. `begun`: exchanged tensors that it is the first to
    touch; `ended`: those it is the last to read; `after`: the structure behind it."""

    begun: tuple[Live, ...]
    ended: tuple[Live, ...]
    after: JoinStructure


def above_of(space: EinsumSpace, prefix: tuple[int, ...]) -> tuple[int, ...]:
    """Per fused loop the extent it splits, or -1-k where it splits the tile of loop k."""
    seen: dict[int, int] = {}
    result = []
    for k, v in enumerate(prefix):
        result.append(-1 - seen[v] if v in seen else space.extents[v])
        seen[v] = k
    return tuple(result)


def step(
    structure: JoinStructure, space: EinsumSpace, shape: Sharing, number: int, lives: Lives
) -> JoinStep | None:
    """The step, or None where the Einsum's fused loops and exchanges do not fit those that are open."""
    prefix, c = shape.prefix, structure.depth
    if len(prefix) != max(c, shape.own_depth):
        return None
    above = above_of(space, prefix)
    if above[:c] != structure.above:
        return None
    shared = {space.operands[i].tensor: (m, d) for i, m, d in shape.shared}
    for live in structure.live:
        if not _reads_as_produced(live, space, prefix, shared.pop(live.tensor, (0, 0))):
            return None
    begun, known = [], {x.tensor: x for x in structure.live}
    for o in (o for o in space.operands if o.tensor in lives.last):
        ranks = tuple(o.ranks.index(v) if v in o.parted else -1 for v in prefix)
        if lives.first[o.tensor] == number:
            if not o.output and not shape.forced:
                return None
            memory, depth = shared.pop(o.tensor, (0, 0))
            if not o.output:
                begun.append(Live(o.tensor, memory, depth, ranks[: shape.forced], shape.forced))
                continue
            few = memory in lives.live and lives.passed_until(o.tensor) > number
            until = shape.forced if few else 0
            begun.append(Live(o.tensor, memory, depth, ranks, until, until))
        elif o.output:
            known[o.tensor] = replace(known[o.tensor], ranks=ranks, until=0)
        elif known[o.tensor].over and lives.passed_until(o.tensor) == number:
            known[o.tensor] = replace(known[o.tensor], until=0)
    if shared or (shape.forced and not space.awaited and not any(x.until for x in begun)):
        return None
    ended = tuple(x for x in structure.live if lives.last[x.tensor] == number)
    rest = (*(known[x.tensor] for x in structure.live if x not in ended), *begun)
    depth = max((max(x.depth if x.memory else 0, x.until) for x in rest), default=0)
    kept = tuple(replace(x, ranks=x.ranks[:depth], over=x.over if x.over <= depth else -1) for x in rest)
    inside = structure.inside or (lives.inside and shape.innermost > 1)
    return JoinStep(tuple(begun), ended, JoinStructure(above[:depth], kept, inside))


def taken_of(
    space: EinsumSpace, shape: Sharing, number: int, lives: Lives
) -> frozenset[tuple[str, int, int]]:
    """What an Einsum takes from where it was exchanged, or puts there if that was read before:
    (tensor, memory, depth) each."""
    exchanged = ((space.operands[i].tensor, m, d) for i, m, d in shape.shared)
    return frozenset(x for x in exchanged if lives.first[x[0]] < number)


def _reads_as_produced(
    live: Live, space: EinsumSpace, prefix: tuple[int, ...], mine: tuple[int, int]
) -> bool:
    """True if the Einsum reads the tensor where it is, tile by tile as it was made, or does not read it."""
    o = space.operand(live.tensor)
    if o is None:
        return True
    if mine != (live.memory, live.depth):
        return False
    return all(
        rank >= 0 and prefix[k] in o.alone and o.ranks[rank] == prefix[k] for k, rank in enumerate(live.ranks)
    )


def joined_space(
    before: States,
    taken: Array,
    points: Pmappings,
    chosen: Array,
    found: JoinStep,
    lives: Lives,
    which: tuple[int, ...],
) -> tuple[Array, Array]:
    """(`peak`, `held`) behind an Einsum, for pairs of states `taken` and pmappings `chosen`.

    `which`: memories (positions in the hierarchy) in the order of the arrays.
    """
    c, d_own = before.structure.depth, len(points.shape.prefix)
    keys = points.keys[:, chosen]
    n = len(chosen)
    memories = len(which)
    peak = np.zeros((d_own + 1, memories, n))
    held = np.zeros((d_own + 1, memories, n))
    peak[: c + 1] = before.peak[:, :, taken]
    held[: c + 1] = before.held[:, :, taken]
    start_level = np.zeros((d_own + 1, memories, n))
    for live in before.structure.live:
        if live.memory in which:
            size = lives.occupied_bits(live, keys)
            if live.depth == c or len(live.ranks) <= live.depth:
                start_level[live.depth, which.index(live.memory)] += size
    own = points.local[:, chosen].copy()
    for d in range(d_own):
        held[d + 1] += points.above[d][:, chosen]
    for made in (x for x in found.begun if x.memory in which):
        size = lives.occupied_bits(made, keys)
        at = which.index(made.memory)
        if made.depth == d_own:
            own[at] += size
        else:
            held[made.depth + 1, at] += size
    peak[d_own] = np.maximum(peak[d_own], start_level[d_own] + own)
    after = found.after.depth
    for d in range(d_own, after, -1):
        peak[d - 1] = np.maximum(peak[d - 1], peak[d] + held[d] + start_level[d - 1])
    for live in found.ended:
        inside = live.depth + 1 <= after and len(live.ranks) <= live.depth
        if live.memory in which and inside:
            size = lives.occupied_bits(live, keys)
            held[live.depth + 1, which.index(live.memory)] += size
    return peak[: after + 1], held[: after + 1]


def least_peaks(
    peak: Array,
    held: Array,
    structure: JoinStructure,
    tiles: Array,
    lives: Lives,
    which: tuple[int, ...],
) -> Array:
    """The peaks [memories, n] if nothing were added to what is open."""
    n = peak.shape[2]
    base = np.zeros((len(structure.above) + 1, len(which), n))
    for live in structure.live:
        if live.memory in which and len(live.ranks) <= live.depth:
            size = lives.occupied_bits(live, tiles)
            base[live.depth, which.index(live.memory)] += size
    total = peak[-1]
    worst = total
    for d in range(len(structure.above), 0, -1):
        total = np.maximum(total + held[d] + base[d - 1], peak[d - 1])
        worst = total
    return worst


# The join, and what of a state later steps look at.

PAIRS = 2_000_000


@dataclass(frozen=True)
class JoinRules:
    """What the join needs besides states and pmappings. `aims`: the rows; `buffers`: positions in `which`
    whose peak is one. `coarse`: Einsums behind which states are compared by cells of a grid (None: all)."""

    lives: Lives
    which: tuple[int, ...]
    capacity: Array
    interest: Interest
    buffers: tuple[int, ...]
    aims: Aims
    coarse: frozenset[int] | None = None

    def behind(self, number: int) -> JoinRules:
        """As they are behind an Einsum."""
        if self.coarse is None or number in self.coarse:
            return self
        return replace(self, interest=replace(self.interest, eps=0.0))


@dataclass(frozen=True)
class Outlook:
    """Whole mappings that are known, and what the Einsums to come cost at least behind states of a structure
    and their tile sizes: [sums, levels, n], and with all the space there is [sums, n]."""

    known: KnownMappings
    behind: Callable[[JoinStructure, Array], Array]
    least_behind: Callable[[JoinStructure, Array], Array]
    told: tuple[object, ...] = ()  # all that their answers depend on


Stage = tuple[States, ...]


def first_stage(rules: JoinRules) -> Stage:
    return (start(len(rules.which), len(rules.aims.more)),)


def next_stage(
    before: Stage,
    shapes: Sequence[Pmappings],
    space: EinsumSpace,
    number: int,
    rules: JoinRules,
    tally: SearchTally,
    going_on: Callable[[], bool] = always,
    outlook: Outlook | None = None,
    workers: int = 1,
) -> Stage:
    """The states behind Einsum `number`. `workers`: threads, as nearly all of the time goes by in numpy."""
    figures = [(p.shape, p.keys, p.energy, p.latency, p.more, p.local, p.above) for p in shapes]
    bounds = None if outlook is None else (outlook.known, outlook.told)
    return once(
        tally,
        lambda: ("join", before, figures, space, number, rules, bounds),
        lambda: _joined(before, shapes, space, number, rules, tally, going_on, outlook, workers),
        lambda _: going_on(),
    )


def _joined(
    before: Stage,
    shapes: Sequence[Pmappings],
    space: EinsumSpace,
    number: int,
    rules: JoinRules,
    tally: SearchTally,
    going_on: Callable[[], bool],
    outlook: Outlook | None,
    workers: int,
) -> Stage:
    rules = rules.behind(number)
    steps = [
        (g, s, result)
        for g, states in enumerate(before)
        for s, points in enumerate(shapes)
        if (result := step(states.structure, space, points.shape, number, rules.lives)) is not None
    ]

    def joined(which: tuple[int, int, JoinStep]) -> tuple[list[States], SearchTally]:
        g, s, result = which
        states, points, parts, mine = before[g], shapes[s], [], SearchTally()
        for taken, chosen in pairs(states.tiles, points.keys, states.structure.depth):
            if not going_on():
                break
            source = StateSource(g, s, taken, chosen)
            part = _combined(states, points, taken, chosen, result, rules, mine, source, outlook)
            parts += [part] if part is not None else []
        return parts, mine

    parts: dict[JoinStructure, list[States]] = {}
    with Threads(workers) as pool:
        run = pool.each if workers > 1 else map
        for (_, _, result), (some, mine) in zip(steps, run(joined, steps), strict=True):
            if some:
                parts.setdefault(result.after, []).extend(some)
            tally.points += mine.points
            tally.too_large += mine.too_large
        merged = tuple(run(lambda item: _merged(item[0], item[1], rules, outlook), parts.items()))
    tally.templates += len(steps)
    tally.kept += sum(len(m) for m in merged)
    return merged


def pairs(tiles: Array, keys: Array, depth: int) -> Iterator[tuple[Array, Array]]:
    """Pairs of states [loops, n] and points [loops, m] with equal tile sizes of the open loops, in blocks."""
    n, m = tiles.shape[1], keys.shape[1]
    groups = np.zeros(n + m, np.int64)
    if depth:
        groups = group_numbers(np.concatenate([tiles, keys[:depth]], axis=1), n + m)
    mine, theirs = groups[:n], groups[n:]
    order = np.argsort(theirs, kind="stable")
    low = np.searchsorted(theirs[order], mine, side="left")
    count = np.searchsorted(theirs[order], mine, side="right") - low
    begin = 0
    ends = np.cumsum(count)
    while begin < n:
        end = int(np.searchsorted(ends, (ends[begin - 1] if begin else 0) + PAIRS, side="right"))
        end = max(end, begin + 1)
        some = count[begin:end]
        total = int(some.sum())
        if total:
            taken = np.repeat(np.arange(begin, end), some)
            offset = np.arange(total) - np.repeat(np.cumsum(some) - some, some)
            yield taken, order[np.repeat(low[begin:end], some) + offset]
        begin = end


def _combined(
    states: States,
    points: Pmappings,
    taken: Array,
    chosen: Array,
    found: JoinStep,
    rules: JoinRules,
    tally: SearchTally,
    source: StateSource,
    outlook: Outlook | None,
) -> States | None:
    tally.points += len(taken)
    peak, held = joined_space(states, taken, points, chosen, found, rules.lives, rules.which)
    depth = found.after.depth
    tiles = points.keys[:depth, chosen]
    most = least_peaks(peak, held, found.after, tiles, rules.lives, rules.which)
    # The whole takes at least this; what of it is below open loops and what beside them tells nothing more.
    peak[0] = most
    ok = (most <= rules.capacity[:, None]).all(axis=0)
    tally.too_large += int(len(ok) - ok.sum())
    if not ok.any():
        return None
    energy = states.energy[taken] + points.energy[chosen]
    latency = states.latency[taken] + points.latency[chosen]
    more = states.more[:, taken] + points.more[:, chosen]
    origin = np.stack([np.zeros(len(taken), int), np.arange(len(taken))])
    whole = States(found.after, tiles, energy, latency, more, peak, held, origin, (source,))
    # Bounds take longer than comparing: few are left for them.
    return _hopeful(_pruned(whole.only(np.flatnonzero(ok)), rules, outlook), rules, outlook)


def _hopeful(states: States, rules: JoinRules, outlook: Outlook | None) -> States | None:
    """Those that may be part of better whole mappings than are known."""
    if outlook is None:
        return states
    rest = outlook.behind(states.structure, states.tiles)
    peaks = [states.peak[0, m] for m in rules.buffers]
    figures = rules.interest.figures(states.energy, states.latency, states.more, peaks)
    none = np.zeros(rest.shape[:2])
    left = np.flatnonzero(Bound(outlook.known, none).hopeful(figures, rest))
    return states.only(left) if len(left) else None


def _merged(
    structure: JoinStructure, parts: Sequence[States], rules: JoinRules, outlook: Outlook | None
) -> States:
    if len(parts) == 1:
        return _compact(parts[0])
    shift = np.cumsum([0, *(len(p.sources) for p in parts)])
    origin = [np.stack([p.origin[0] + s, p.origin[1]]) for p, s in zip(parts, shift, strict=False)]
    whole = States(
        structure,
        np.concatenate([p.tiles for p in parts], axis=1),
        np.concatenate([p.energy for p in parts]),
        np.concatenate([p.latency for p in parts]),
        np.concatenate([p.more for p in parts], axis=1),
        np.concatenate([p.peak for p in parts], axis=2),
        np.concatenate([p.held for p in parts], axis=2),
        np.concatenate(origin, axis=1),
        tuple(s for p in parts for s in p.sources),
    )
    return _compact(_pruned(whole, rules, outlook))


def _compact(states: States) -> States:
    """Leave of the sources only what the states refer to."""
    sources = []
    position = states.origin[1].copy()
    for k, s in enumerate(states.sources):
        mine = states.origin[0] == k
        used = states.origin[1][mine]
        sources.append(StateSource(s.group, s.shape, s.state[used], s.point[used]))
        position[mine] = np.arange(len(used))
    origin = np.stack([states.origin[0], position])
    return States(
        states.structure, states.tiles, states.energy, states.latency, states.more, states.peak, states.held,
        origin, tuple(sources),
    )  # fmt: skip


def _pruned(states: States, rules: JoinRules, outlook: Outlook | None) -> States:
    peaks = [states.peak[0, m] for m in rules.buffers]
    space = [f for d in range(1, states.structure.depth + 1) for f in (*states.peak[d], *states.held[d])]
    energy, latency, more, interest = states.energy, states.latency, states.more, rules.interest
    if outlook is not None and (interest.eps or interest.rough):
        # A share of the whole counts: what others add to it is no less than this.
        rest = list(outlook.least_behind(states.structure, states.tiles))
        energy = energy + rest.pop(0) if interest.energy else energy
        latency = latency + rest.pop(0) if interest.latency else latency
        more = more + np.array(rest[: len(more)]) if len(more) else more
    figures = interest.compared(energy, latency, more, peaks, space)
    return states.only(undominated(figures, group_numbers(states.tiles, len(states))))
