"""Partial mappings of the first Einsums of a cascade: what the rest has to know of them.

Loops that are still open, the tensors that are not consumed yet, and the space that open loop nests take.
A nest is everything below one open fused loop. What is stored above the loop of a nest (by an Einsum in it,
or an exchanged tensor made in it) is there as long as the nest runs; what is exchanged below it, from its
producer to its last consumer. So the peak inside nest d is a maximum over its branches, to which what
is held for the whole nest is added.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from polymodel.mapper.pmappings import Pmappings
from polymodel.mapper.space import EinsumSpace
from polymodel.mapper.templates import Passing, Shape

Array = Any


@dataclass(frozen=True)
class Live:
    """A tensor that has been made and will be read. `memory` 0: it is in the backing storage.

    `ranks`: for each open loop that its producer stands below, the rank it indexes (-1: none).
    """

    tensor: str
    memory: int
    depth: int
    ranks: tuple[int, ...]


@dataclass(frozen=True)
class Structure:
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

    structure: Structure
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
        return replace(
            self,
            tiles=self.tiles[:, positions],
            energy=self.energy[positions],
            latency=self.latency[positions],
            more=self.more[:, positions],
            peak=self.peak[:, :, positions],
            held=self.held[:, :, positions],
            origin=self.origin[:, positions],
        )


def start(memories: int, more: int) -> States:
    """Before the first Einsum; `more`: figures besides energy and latency that add up."""
    zero, nothing = np.zeros((1, memories, 1)), np.zeros(1)
    none, origin = np.zeros((0, 1), np.int64), np.zeros((2, 1), int)
    return States(Structure((), ()), none, nothing, nothing, np.zeros((more, 1)), zero, zero, origin, ())


@dataclass(frozen=True)
class Lives:
    """What a cascade says of its exchanged tensors: bits per value, extents of the ranks, who reads last.
    `inside`: only whole mappings that hand something on further inside than the first memory are wanted."""

    bits: dict[str, int]
    extents: dict[str, tuple[int, ...]]
    last: dict[str, int]
    inside: bool = False

    def size(self, tensor: str, ranks: Sequence[int], tiles: Array) -> Array:
        """Bits of a tile below loops over `ranks` with these tile sizes [loops, n]."""
        sizes: dict[int, Array] = dict(enumerate(self.extents[tensor]))
        sizes.update(zip(ranks, tiles, strict=False))
        result = np.full(tiles.shape[1] if tiles.ndim == 2 else 1, float(self.bits[tensor]))
        for size in sizes.values():
            result = result * size
        return result


def lives_of(spaces: Sequence[EinsumSpace]) -> Lives:
    """The exchanged tensors of a cascade."""
    fusable = [(i, s, o) for i, s in enumerate(spaces) for o in s.operands if o.fusable]
    return Lives(
        {o.tensor: o.bits for _, _, o in fusable},
        {o.tensor: tuple(s.extents[r] if r >= 0 else 1 for r in o.ranks) for _, s, o in fusable if o.output},
        {o.tensor: i for i, _, o in fusable if not o.output},
    )


def passing_of(spaces: Sequence[EinsumSpace], lives: Lives, number: int) -> Passing:
    """Whether tensors that this Einsum does not touch may be exchanged across it, and whether its output is
    then read before they all are."""
    mine = spaces[number]
    ends = [
        lives.last[o.tensor]
        for i, s in enumerate(spaces[:number])
        for o in s.operands
        if o.output and lives.last.get(o.tensor, i) > number and mine.operand(o.tensor) is None
    ]
    made = {o.tensor for o in mine.operands if o.output and o.tensor in lives.last}
    reads = [i for i, s in enumerate(spaces) for o in s.operands if o.tensor in made and not o.output]
    return Passing(bool(ends), bool(ends and reads) and min(reads) <= min(ends))


@dataclass(frozen=True)
class JoinStep:
    """How an Einsum with one shape follows a structure. `made`: its exchanged output, if any; `ended`:
    tensors it is the last to read; `after`: the structure behind it."""

    made: Live | None
    ended: tuple[Live, ...]
    after: Structure


def above_of(space: EinsumSpace, prefix: tuple[int, ...]) -> tuple[int, ...]:
    """Per fused loop the extent it splits, or -1-k where it splits the tile of loop k."""
    seen: dict[int, int] = {}
    result = []
    for k, v in enumerate(prefix):
        result.append(-1 - seen[v] if v in seen else space.extents[v])
        seen[v] = k
    return tuple(result)


def step(
    structure: Structure, space: EinsumSpace, shape: Shape, number: int, lives: Lives
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
        if not _meets(live, space, prefix, shared.pop(live.tensor, (0, 0))):
            return None
    made = None
    for o in space.operands:
        if o.output and o.tensor in lives.last:
            memory, depth = shared.pop(o.tensor, (0, 0))
            made = Live(
                o.tensor, memory, depth, tuple(o.ranks.index(v) if v in o.alone else -1 for v in prefix)
            )
    if shared:
        return None
    ended = tuple(x for x in structure.live if lives.last[x.tensor] == number)
    rest = tuple(x for x in structure.live if x not in ended) + ((made,) if made else ())
    depth = max((x.depth for x in rest if x.memory), default=0)
    kept = tuple(replace(x, ranks=x.ranks[:depth]) for x in rest)
    inside = structure.inside or (lives.inside and shape.innermost > 1)
    return JoinStep(made, ended, Structure(above[:depth], kept, inside))


def _meets(live: Live, space: EinsumSpace, prefix: tuple[int, ...], mine: tuple[int, int]) -> bool:
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
            size = lives.size(live.tensor, live.ranks[: live.depth], keys[: live.depth])
            if live.depth == c or len(live.ranks) <= live.depth:
                start_level[live.depth, which.index(live.memory)] += size
    own = points.local[:, chosen].copy()
    for d in range(d_own):
        held[d + 1] += points.above[d][:, chosen]
    made = found.made
    if made is not None and made.memory in which:
        size = lives.size(made.tensor, made.ranks[: made.depth], keys[: made.depth])
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
            size = lives.size(live.tensor, live.ranks[: live.depth], keys[: live.depth])
            held[live.depth + 1, which.index(live.memory)] += size
    return peak[: after + 1], held[: after + 1]


def most_held(
    peak: Array,
    held: Array,
    structure: Structure,
    tiles: Array,
    lives: Lives,
    which: tuple[int, ...],
) -> Array:
    """The peaks [memories, n] if nothing were added to what is open."""
    n = peak.shape[2]
    base = np.zeros((len(structure.above) + 1, len(which), n))
    for live in structure.live:
        if live.memory in which and len(live.ranks) <= live.depth:
            size = lives.size(live.tensor, live.ranks[: live.depth], tiles[: live.depth])
            base[live.depth, which.index(live.memory)] += size
    total = peak[-1]
    worst = total
    for d in range(len(structure.above), 0, -1):
        total = np.maximum(total + held[d] + base[d - 1], peak[d - 1])
        worst = total
    return worst
