"""Whole mappings of the search as candidates: their values, and LoopTrees reconstructed from the join."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property, partial
from typing import Any

import numpy as np

from polymodel.frozen import dataclass
from polymodel.mapper.aims import Aims, aims_of, follows
from polymodel.mapper.combine import Interest, coarse, with_ties
from polymodel.mapper.join import JoinRules, Stage, States, lives_of
from polymodel.mapper.kept_tiles import written_order
from polymodel.mapper.loop_homes import parted_loops
from polymodel.mapper.pmappings import Chains, Pmappings
from polymodel.mapper.records import Candidate, Limits, Request
from polymodel.mapper.space import EinsumSpace
from polymodel.mapper.templates import Template
from polymodel.mapper.tile_chains import PointTiles, TileChains, around
from polymodel.mapping.looptree import ComputeNode, Loop, LoopTree, Node, Split, StorageNode
from polymodel.pareto import undominated
from polymodel.reuse import Reuse

# The figures of partial mappings that matter for a request: objectives, and memories that hold exchanged
# tiles.

Array = Any
PRUNES = 1  # comparisons on a logarithmic grid before an Einsum's points are joined
COARSE = 3  # joins after which states are compared on a logarithmic grid: those that leave most states
# Parts of eps: for partial mappings, for the margin over known mappings, for the front.
CELLS, BEATEN, THIN = 0.6, 0.1, 0.3


def aims_in(spaces: Sequence[EinsumSpace], request: Request) -> Aims:
    """The rows of a request."""
    operations = float(sum(s.operations * s.times for s in spaces if not s.copy))
    return aims_of(request.objectives, request.at_most, operations, request.area)


def rules_of(spaces: Sequence[EinsumSpace], request: Request) -> JoinRules:
    """Return the figures that are relevant: those of the objectives, and memories in which tiles of several
    Einsums are held.

    A working set without a memory is that of the outermost bounded one.
    """
    memories = spaces[0].memories
    bounded = [i for i, m in enumerate(memories) if i and not np.isinf(m.capacity)] or [len(memories) - 1]
    named = {m.name: i for i, m in enumerate(memories)} | {"": bounded[0]}
    aims = aims_in(spaces, request)
    wanted = [named[memory] for memory in aims.peaks]
    meeting = {
        m
        for s in spaces
        for o in s.operands
        if o.fusable and o.tensor not in s.keep[0] and o.tensor not in request.limits.unfused
        for m in sorted(s.exchange)
        if o.tensor in s.may[m] and not np.isinf(memories[m].capacity)
    }
    which = tuple(sorted(meeting | set(wanted)))
    interest = Interest(
        aims.energy,
        aims.latency,
        which,
        tuple(wanted),
        eps=(1 + share_of(request.eps, CELLS)) ** (1 / (min(COARSE, len(spaces)) + PRUNES)) - 1
        if request.eps
        else 0.0,
        ties=aims.energy != aims.latency,
    )
    capacity = np.array([memories[m].capacity for m in which])
    return JoinRules(lives_of(spaces), which, capacity, interest, tuple(which.index(m) for m in wanted), aims)


def share_of(eps: float, part: float) -> float:
    """The relative loss allowed in one of the pruning steps, if all together may cost `eps`."""
    result: float = (1 + eps) ** part - 1
    return result


def named_limits(space: EinsumSpace, limits: Limits) -> object:
    """Return the limits that name an Einsum and its tensors, except for its compute units, which are part of
    its shape.

    Einsums of equal shape and equal named limits have the same mappings.
    """
    order = dict(limits.loop_order).get(space.name, ())
    tensors = tuple((o.tensor in limits.fuse, o.tensor in limits.unfused) for o in space.operands)
    loops = limits.fused_loops(space.name)
    fused = None if loops is None else tuple(map(space.variables.index, loops))
    return tuple(space.variables.index(v) for v in order if v in space.variables), tensors, fused, space.more


def all_bits(spaces: Sequence[EinsumSpace]) -> float:
    """Bits of all tensors."""
    sizes = {o.tensor: float(o.elements * o.bits) for s in spaces for o in s.operands}
    return sum(sizes.values())


# Candidates and their LoopTrees.


@dataclass(frozen=True)
class ChosenMapping:
    """One Einsum's mapping. `open_after`: the number of its fused loops shared with the next Einsum."""

    space: EinsumSpace
    template: Template
    sizes: PointTiles
    open_after: int

    @property
    def tiles(self) -> Array:
        """Tile sizes [variables, levels]."""
        return self.sizes.tiles

    @property
    def spread(self) -> Array:
        """Instances in use [variables, fanouts]."""
        return self.sizes.spread

    def above_fanouts(self, variable: int, fanouts: Sequence[int], inner: int) -> int:
        """The tile above the spatial loops over these fanouts, given the tile `inner` below them."""
        over = (f for f in fanouts if self.spread[variable][f] > 1)
        return next((int(self.sizes.shared[variable][f]) for f in over), inner)

    def shared_at(self, depth: int) -> list[tuple[str, int]]:
        """(tensor, memory) exchanged below this many fused loops."""
        o = self.space.operands
        return [(o[i].tensor, m) for i, m, d in self.template.shape.shared if d == depth]


def looptree(chosen: Sequence[ChosenMapping], name: str = "") -> LoopTree:
    """The LoopTree. Tensors that are not exchanged are in the backing storage, at the root."""
    backed: dict[str, None] = {}
    for c in chosen:
        exchanged = {i for i, _, _ in c.template.shape.shared}
        backed.update((o.tensor, None) for i, o in enumerate(c.space.operands) if i not in exchanged)
    root = StorageNode(chosen[0].space.memories[0].name, tuple(backed))
    return LoopTree(((root,) if backed else ()) + _below(chosen, 0), name)


def _below(chosen: Sequence[ChosenMapping], depth: int) -> tuple[Node, ...]:
    """Everything below `depth` fused loops, of Einsums that share these."""
    runs: list[list[ChosenMapping]] = [[]]
    for c in chosen:
        runs[-1].append(c)
        if c.open_after <= depth:
            runs.append([])
    runs = [r for r in runs if r]
    if len(runs) == 1:
        return (*_stored(runs[0], depth, set()), *_run(runs[0], depth))
    users: dict[tuple[str, int], int] = {}
    for run in runs:
        for item in {s for c in run for s in c.shared_at(depth)}:
            users[item] = users.get(item, 0) + 1
    common = [item for item, n in users.items() if n > 1]
    memories = chosen[0].space.memories
    above = tuple(StorageNode(memories[m].name, (t,)) for t, m in common)
    branches = tuple((*_stored(run, depth, set(common)), *_run(run, depth)) for run in runs)
    return (*above, Split(branches))


def _stored(run: Sequence[ChosenMapping], depth: int, elsewhere: set[tuple[str, int]]) -> tuple[Node, ...]:
    """Storage nodes at this depth, outer memories first, of Einsums that share everything below it."""
    result: dict[tuple[int, str], None] = {}
    for c in run:
        result.update(((m, t), None) for t, m in c.shared_at(depth) if (t, m) not in elsewhere)
        for n in c.template.nodes:
            if not n.shared and n.level == depth:
                result[n.memory, c.space.operands[n.operand].tensor] = None
    memories = run[0].space.memories
    return tuple(StorageNode(memories[m].name, (t,)) for m, t in sorted(result, key=lambda key: key[0]))


def _run(run: Sequence[ChosenMapping], depth: int) -> tuple[Node, ...]:
    first = run[0]
    if depth < first.template.depth and (len(run) > 1 or depth < first.template.depth):
        return (_fused_loop(run, depth), *_below(run, depth + 1))
    return _branch(first)


def _fused_loop(run: Sequence[ChosenMapping], depth: int) -> Loop:
    names = {c.space.name: c.space.variables[c.template.shape.prefix[depth]] for c in run}
    variable = next(iter(names.values()))
    first = run[0]
    tile = int(first.tiles[first.template.shape.prefix[depth]][depth + 1])
    others = tuple((e, v) for e, v in names.items() if v != variable)
    return Loop(variable, tile, per_einsum=others)


def _branch(c: ChosenMapping) -> tuple[Node, ...]:
    """The private part of one Einsum: blocks of loops, storage, spatial loops, compute."""
    space, template, depth = c.space, c.template, c.template.depth
    if space.copy:
        return (ComputeNode(space.name, space.units[0].name),)
    nodes: list[Node] = []
    size = [int(t[depth]) for t in c.tiles] if len(c.tiles) else []
    waiting = [f for f in range(len(space.fanouts)) if len(c.spread) and any(s[f] > 1 for s in c.spread)]
    held: int | None = None
    for n in template.branch:
        ready = [f for f in waiting if space.fanouts[f].below <= n.memory]
        waiting = [f for f in waiting if f not in ready]
        goal = [int(t[n.level]) for t in c.tiles]
        before = size[n.slides] if n.slides >= 0 else 0
        _block(c, nodes, size, goal, ready, _Above(n.level - 1, held, _last(c, n.level - 1, n.slides)))
        held = n.operand if space.memories[n.memory].live else None
        steps = n.slides >= 0 and before > c.above_fanouts(n.slides, ready, goal[n.slides])
        steps = steps or n.stays is not None
        policy = Reuse.KEEP_PREVIOUS if n.keeps else Reuse.SLIDE if steps else Reuse.REFILL
        name = space.memories[n.memory].name
        nodes.append(StorageNode(name, (space.operands[n.operand].tensor,), reuse=policy))
    _block(c, nodes, size, [1] * len(size), waiting, _Above(depth + len(template.branch), held, ()))
    nodes += [Loop(space.variables[v], 1) for v in space.in_order if size[v] > 1]
    unit = space.units[template.unit].name
    return (*nodes, ComputeNode(space.name, unit))


@dataclass(frozen=True)
class _Above:
    """A block of loops.

    Its level, the operand that a live-allocating node above holds, and the variables whose loops are
    innermost among the temporal ones, in this order.
    """

    level: int
    held: int | None
    last: tuple[int, ...]


def _last(c: ChosenMapping, level: int, slides: int) -> tuple[int, ...]:
    """Return variables whose loops are the innermost of a block.

    These are loops over which an inner node keeps its tile, and the loop along which the node below slides.
    """
    staying = [n for n in c.template.nodes if n.stays is not None and n.stays.since == level]
    over = [v for n in staying for v in range(len(c.tiles)) if v not in c.space.operands[n.operand].alone]
    return (*(v for v in over if v != slides), *([slides] if slides >= 0 else []))


def _temporal(c: ChosenMapping, size: list[int], goal: list[int], block: _Above) -> list[tuple[int, int]]:
    """Return the temporal loops of a block as (variable, tile), outermost first.

    Without rules, the loops are ordered such that the least of the operand is live.
    """
    space = c.space
    if block.level < len(c.template.orders):
        order = written_order(space, c.template.orders[block.level])
        return [(v, goal[v]) for v in order if goal[v] < size[v]]
    if not c.template.homes or block.held is not None:
        order = sorted(_order(space, block.held, size, goal), key=partial(_place, block.last))
        return [(v, goal[v]) for v in order if goal[v] < size[v]]
    result: list[tuple[int, int]] = []
    for v, tile in _loops_by_memory(space, c.template, c.sizes, block.level, block.last):
        if result and result[-1][0] == v:
            result.pop()
        result.append((v, tile))
    return result


def _loops_by_memory(
    space: EinsumSpace, template: Template, sizes: PointTiles, level: int, last: tuple[int, ...]
) -> list[tuple[int, int]]:
    """The temporal loops right below a level as (variable, tile), in the order of memories and their rules.

    Loops over the variables `last` are innermost.
    """
    result = []
    for v, rows in enumerate(zip(sizes.tiles, sizes.spread, sizes.shared, strict=True)):
        tiles, wide, shared = (np.array(row)[:, None] for row in rows)
        keys = np.zeros((0, 1), np.int64)
        mine = TileChains(space.extents[v], tiles, wide, keys, space.divide, None if space.even else shared)
        tiles_of = tuple((int(a[0]), int(b[0])) for a, b in around(space, template, mine))
        parted = parted_loops(tiles_of, template.homes[v], space.rules.factors(v), space.divide)
        if parted is None:
            raise AssertionError(f"{space.name}: the loops over {space.variables[v]} break a rule")
        result += [(_place(last, v), m, space.rules.place(m, v) or 0, v, -tile) for m, tile in parted[level]]
    return [(v, -tile) for _, _, _, v, tile in sorted(result)]


def _place(last: tuple[int, ...], v: int) -> int:
    """Return the position of a variable's loops among those required to be innermost; 0 for others, which
    come before."""
    return last.index(v) + 1 if v in last else 0


def _order(space: EinsumSpace, held: int | None, size: list[int], goal: list[int]) -> list[int]:
    every = list(space.in_order)
    if held is None:
        return every
    o, slides = space.operands[held], -1
    for w in o.windows[:1]:
        slides = w.p
        if not w.held:
            p, r = ((goal[w.p], size[w.r]), (size[w.p], goal[w.r]))
            slides = w.p if w.elements(*p) <= w.elements(*r) else w.r
    return sorted(every, key=lambda v: 0 if v in o.alone else 1 if v == slides else 2)


def _block(
    c: ChosenMapping, nodes: list[Node], size: list[int], goal: list[int], fanouts: list[int], block: _Above
) -> None:
    """Append temporal loops, then spatial ones, that reduce the tile sizes `size` to `goal`."""
    space = c.space
    inner = [c.above_fanouts(v, fanouts, g) for v, g in enumerate(goal)]
    for v, tile in _temporal(c, size, inner, block):
        nodes.append(Loop(space.variables[v], tile))
        size[v] = tile
    for f in fanouts:
        for v in (v for members in space.bundles for v in members):  # the order in which hops are counted
            if c.spread[v][f] > 1:
                size[v] = -(-size[v] // int(c.spread[v][f]))
                fan = space.fanouts[f]
                name, component = space.variables[v], fan.component
                nodes.append(Loop(name, size[v], spatial=True, component=component, dim=fan.name))


@dataclass(frozen=True)
class FullMappings:
    """One run of the join: its stages, the pmappings of every Einsum in it, and its rules."""

    joined: tuple[Stage, ...]
    found: tuple[tuple[Pmappings, ...], ...]
    rules: JoinRules

    def __len__(self) -> int:
        return sum(len(s) for s in self.joined[-1])

    @cached_property
    def _tiles(self) -> dict[tuple[int, int, int], tuple[Template, PointTiles]]:
        return {}

    @cached_property
    def _chains(self) -> tuple[Chains, ...]:
        """Chains per Einsum, since many mappings have the same template."""
        return tuple({} for _ in self.found)

    def tiles(self, einsum: int, shape: int, point: int) -> tuple[Template, PointTiles]:
        """A pmapping's template and tile sizes, cached since whole mappings share most of them."""
        key = einsum, shape, point
        if key not in self._tiles:
            self._tiles[key] = self.found[einsum][shape].tiles(point, self._chains[einsum])
        return self._tiles[key]

    def figures(self) -> Array:
        """Rows of the whole mappings [rows, n]."""
        every = [
            self.rules.interest.figures(
                s.energy, s.latency, s.more, [s.peak[0, m] for m in self.rules.buffers]
            )
            for s in self.joined[-1]
        ]
        return np.stack([np.concatenate(f) for f in zip(*every, strict=True)])


def candidates_of(
    wholes: Sequence[FullMappings], spaces: Sequence[EinsumSpace], request: Request
) -> tuple[Candidate, ...]:
    """The whole mappings on the front that obey the limits; with `eps` only one of several close ones."""
    wholes = [w for w in wholes if len(w)]
    if not wholes:
        return ()
    figures = np.concatenate([w.figures() for w in wholes], axis=1)
    aims = wholes[0].rules.aims
    left = np.flatnonzero(aims.admits(figures))
    scores = list(aims.scores(figures[:, left]))
    if request.eps:
        scores = [coarse(f, share_of(request.eps, THIN)) for f in scores]
    elif aims.energy != aims.latency:
        states = [s for w in wholes for s in w.joined[-1]]
        other = np.concatenate([s.latency if aims.energy else s.energy for s in states])
        scores = with_ties(scores, other[left])
    kept = left[undominated(scores)]
    places = [(w, s, k) for w in wholes for s in w.joined[-1] for k in range(len(s))]
    result = [_candidate(*places[int(n)], spaces, figures[:, n]) for n in kept]
    return tuple(sorted(result, key=lambda c: c.values))


def _candidate(
    whole: FullMappings, states: States, k: int, spaces: Sequence[EinsumSpace], rows: Array
) -> Candidate:
    rules = whole.rules
    chosen = _traced(whole, states, k)
    energy, latency = float(states.energy[k]), float(states.latency[k])
    peaks = [float(p) for p in states.peak[0, :, k]]
    buffers = tuple((spaces[0].memories[m].name, p) for m, p in zip(rules.which, peaks, strict=True))
    aims = rules.aims
    values = tuple(float(aims.value(name, rows)) for name in aims.objectives)
    names = dict.fromkeys((*aims.objectives, *(limit.name for limit in aims.limits)))
    named = tuple((name, float(aims.value(name, rows))) for name in names if not follows(name))
    return Candidate(values, energy, latency, buffers, partial(looptree, chosen), named)


def _traced(whole: FullMappings, last: States, position: int) -> list[ChosenMapping]:
    """Return the pmappings of a state of the last stage, first Einsum first."""
    chosen: list[ChosenMapping] = []
    states = last
    for i in range(len(whole.found) - 1, -1, -1):
        number, at = (int(x) for x in states.origin[:, position])
        source = states.sources[number]
        template, sizes = whole.tiles(i, source.shape, int(source.point[at]))
        space = whole.found[i][source.shape].space
        chosen.append(ChosenMapping(space, template, sizes, states.structure.depth))
        states, position = whole.joined[i][source.group], int(source.state[at])
    return chosen[::-1]
