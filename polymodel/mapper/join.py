"""Whole mappings from pmappings, joined Einsum by Einsum along the cascade.

States with equal open loops, tile sizes and live tensors are compared, and dominated ones are dropped. The
last stage is the front.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import field, replace
from typing import Any

import numpy as np

from polymodel.frozen import dataclass
from polymodel.mapper.aims import Aims, Bound, KnownMappings
from polymodel.mapper.budget import SearchTally, Threads, always, once
from polymodel.mapper.combine import Interest, group_numbers
from polymodel.mapper.pmappings import Pmappings
from polymodel.mapper.space import EinsumSpace, Operand
from polymodel.mapper.templates import Passing, Sharing
from polymodel.pareto import rows_of, undominated

# A state is a partial mapping of the first Einsums of a cascade, as far as the rest depends on it: open
# loops, tensors that are not consumed yet, and the occupancy of open loop nests. A nest is everything below
# one open fused loop. What is stored above the loop of a nest (by an Einsum in it, or an exchanged tensor
# produced in it) is resident as long as the nest runs; what is exchanged below it is resident from its
# producer to its last consumer. So the peak inside nest d is a maximum over its branches, to which what the
# whole nest holds is added.

Array = Any


@dataclass(frozen=True)
class Live:
    """A tensor that has been produced and will be read. `memory` 0: it is in the backing storage. `ranks`:
    for each open loop above its producer, the rank that the loop indexes (-1: none); for a tensor that is
    read before it is produced, of the loops of its recurrence. `until`: the number of loops that stay open
    for it. `over`: the number of loops, the last of which is that of its recurrence, below which it is
    produced and read, so that few generations are live at a time (-1: these loops have ended)."""

    tensor: str
    memory: int
    depth: int
    ranks: tuple[int, ...]
    until: int = 0
    over: int = 0


@dataclass(frozen=True)
class JoinStructure:
    """Open loops and live tensors of a state. `above`: per open loop the extent it splits, or -1-k where it
    splits the tile of open loop k. `inside`: a tensor was exchanged further inside than the first memory
    (tracked if `Lives.inside`)."""

    above: tuple[int, ...]
    live: tuple[Live, ...]
    inside: bool = False

    @property
    def depth(self) -> int:
        return len(self.above)


@dataclass(frozen=True)
class StateSource:
    """The origin of states: positions in group `group` of the previous stage, and in shape `shape`."""

    group: int
    shape: int
    state: Array
    point: Array


@dataclass(frozen=True)
class States:
    """States of one structure. `tiles` [depth, n]; `peak` [depth + 1, memories, n]: the peak occupancy
    inside each open nest (0: the whole) so far; `held` [depth + 1, memories, n]: what each nest holds
    throughout."""

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
    """The state before the first Einsum; `more`: the number of other figures that add up."""
    zero, nothing = np.zeros((1, memories, 1)), np.zeros(1)
    none, origin = np.zeros((0, 1), np.int64), np.zeros((2, 1), int)
    return States(JoinStructure((), ()), none, nothing, nothing, np.zeros((more, 1)), zero, zero, origin, ())


@dataclass(frozen=True)
class Lives:
    """Lifetimes of the exchanged tensors of a cascade: bits per value, extents of the ranks, the first and
    last Einsum that access each, and its producer (the first one unless it is awaited). `carried`: for
    recurrent tensors, the rank, and the last Einsum that accesses more than one generation. `live`: memories
    with `allocation: live`. `inside`: only mappings that exchange a tensor further inside than the first
    memory count."""

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
        """Tensors that are read before they are produced."""
        return tuple(t for t, n in self.made.items() if self.first[t] < n)

    def passed_until(self, tensor: str) -> int:
        """Return the last Einsum for which loops of the tensor's recurrence may stay open."""
        if self.first[tensor] < self.made[tensor]:
            return self.made[tensor]
        return self.carried[tensor][1] if self.live and tensor in self.carried else -1

    def occupied_bits(self, x: Live, tiles: Array) -> Array:
        """Bits of a live tensor below these tile sizes: its tile, or in a memory with `allocation: live`
        its live generations."""
        size = self.size(x.tensor, x.ranks[: x.depth], tiles[: x.depth])
        if x.memory not in self.live or x.tensor not in self.carried:
            return size
        rank, last = self.carried[x.tensor]
        every = self.extents[x.tensor][rank]
        if last == self.made[x.tensor]:
            return size / every * min(2, every)  # what is read, and what is produced from it
        if x.over < 0:
            return size / every
        return size / every * (np.minimum(tiles[x.over - 1] + 1, every) if x.over else every)

    def least(self, tensor: str, memory: int, ranks: Sequence[int], tiles: Array) -> Array:
        """Return a lower bound of a tensor's bits, whatever the loops further inside are."""
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
    """Return the fraction of its dense bits that an exchanged tensor takes, in any memory."""
    if space.shares is None:
        return 1.0
    number = space.operands.index(operand)
    return min(space.shares.room(number, m) for m in range(len(space.memories)))


def lives_of(spaces: Sequence[EinsumSpace]) -> Lives:
    """The exchanged tensors of a cascade."""
    fusable = [(i, s, o) for i, s in enumerate(spaces) for o in s.operands if o.fusable]
    # After the ranks: variables that jointly number the elements of one rank. No shared loop is over these.
    return Lives(
        {o.tensor: o.bits * _stored_share(s, o) for _, s, o in fusable},
        {
            o.tensor: tuple(s.extents[r] if r >= 0 else 1 for r in (*o.ranks, *sorted(o.alone - o.parted)))
            for _, s, o in fusable
            if o.output
        },
        {o.tensor: i for i, _, o in fusable},
        {o.tensor: i for i, _, o in reversed(fusable)},
        {o.tensor: i for i, _, o in fusable if o.output},
        _carried(fusable),
        frozenset(i for i, m in enumerate(spaces[0].memories) if m.live),
    )


def _carried(fusable: Sequence[tuple[int, EinsumSpace, Operand]]) -> dict[str, tuple[int, int]]:
    """Return the generational rank of each recurrent tensor, and the last Einsum that iterates over it."""
    result: dict[str, tuple[int, int]] = {}
    for i, _, o in fusable:
        if o.carried is not None:
            result[o.tensor] = o.ranks.index(o.carried.variable), i
    return result


def passing_of(spaces: Sequence[EinsumSpace], lives: Lives, number: int) -> Passing:
    """Return whether tensors that this Einsum does not access may be exchanged across it, and whether its
    output is then read before all of these are."""
    mine = spaces[number]
    ends = [
        lives.last[t]
        for t, begun in lives.first.items()
        if begun < number < lives.last[t] and mine.operand(t) is None
    ]
    # loops that carry a tensor forward include all Einsums up to its producer
    until = {t: lives.passed_until(t) for t in lives.made}
    ends += [n for t, n in until.items() if lives.first[t] <= number <= n]
    made = {o.tensor for o in mine.operands if o.output and o.tensor in lives.last} - {*lives.awaited}
    reads = [i for i, s in enumerate(spaces) for o in s.operands if o.tensor in made and not o.output]
    return Passing(bool(ends), bool(ends and reads) and min(reads) <= min(ends))


@dataclass(frozen=True)
class JoinStep:
    """How an Einsum with one shape follows a structure. `begun`: exchanged tensors that it touches first;
    `ended`: those that it touches last; `after`: the resulting structure."""

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
    """Return the step, or None if the Einsum's fused loops and exchanges are incompatible with the
    structure."""
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
    """(tensor, memory, depth) of exchanged tensors that the Einsum reads, or produces after they were
    read."""
    exchanged = ((space.operands[i].tensor, m, d) for i, m, d in shape.shared)
    return frozenset(x for x in exchanged if lives.first[x[0]] < number)


def _reads_as_produced(
    live: Live, space: EinsumSpace, prefix: tuple[int, ...], mine: tuple[int, int]
) -> bool:
    """Return whether the Einsum does not read the tensor, or reads it where it is, tile by tile as
    produced."""
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
    """(`peak`, `held`) after an Einsum, for pairs of states `taken` and pmappings `chosen`. `which`:
    memories (positions in the hierarchy) in the order of the arrays."""
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
    """Return a lower bound of the peaks [memories, n], as if nothing were added to open nests."""
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


# The join, and the comparison of states.

PAIRS = 2_000_000


@dataclass(frozen=True)
class JoinRules:
    """Everything other than states and pmappings on which the join depends. `aims`: the rows; `buffers`:
    positions in `which` whose peak is a row. `coarse`: Einsums after which states are compared on a
    logarithmic grid (None: all)."""

    lives: Lives
    which: tuple[int, ...]
    capacity: Array
    interest: Interest
    buffers: tuple[int, ...]
    aims: Aims
    coarse: frozenset[int] | None = None

    def behind(self, number: int) -> JoinRules:
        """Return the rules that apply after an Einsum."""
        if self.coarse is None or number in self.coarse:
            return self
        return replace(self, interest=replace(self.interest, eps=0.0))


@dataclass(frozen=True)
class Outlook:
    """Known whole mappings, and lower bounds on the remaining Einsums, by structure and tile sizes of
    states: [sums, levels, n], and with all capacity available [sums, n]."""

    known: KnownMappings
    behind: Callable[[JoinStructure, Array], Array]
    least_behind: Callable[[JoinStructure, Array], Array]
    depends_on: tuple[object, ...] = ()  # everything that the bounds depend on


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
    has_time: Callable[[], bool] = always,
    outlook: Outlook | None = None,
    workers: int = 1,
) -> Stage:
    """The states after Einsum `number`. `workers`: threads, since nearly all time is spent in numpy."""
    figures = [(p.shape, p.keys, p.energy, p.latency, p.more, p.local, p.above) for p in shapes]
    bounds = None if outlook is None else (outlook.known, outlook.depends_on)
    return once(
        tally,
        lambda: ("join", before, figures, space, number, rules, bounds),
        lambda: _joined(before, shapes, space, number, rules, tally, has_time, outlook, workers),
        lambda _: has_time(),
    )


def _joined(
    before: Stage,
    shapes: Sequence[Pmappings],
    space: EinsumSpace,
    number: int,
    rules: JoinRules,
    tally: SearchTally,
    has_time: Callable[[], bool],
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
            if not has_time():
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
    # The total is at least this; how it is split between nests no longer matters.
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
    # bounds take longer than comparisons, so that they come after these
    return _hopeful(_pruned(whole.only(np.flatnonzero(ok)), rules, outlook), rules, outlook)


def _hopeful(states: States, rules: JoinRules, outlook: Outlook | None) -> States | None:
    """Return states that may be part of whole mappings better than the known ones."""
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
    """States with only those source positions that they refer to."""
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
        # `eps` is relative to the whole, to which the rest adds at least this
        rest = list(outlook.least_behind(states.structure, states.tiles))
        energy = energy + rest.pop(0) if interest.energy else energy
        latency = latency + rest.pop(0) if interest.latency else latency
        more = more + np.array(rest[: len(more)]) if len(more) else more
    figures = interest.compared(energy, latency, more, peaks, space)
    return states.only(undominated(figures, group_numbers(states.tiles, len(states))))
