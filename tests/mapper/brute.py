"""The referee of the search: every mapping of one tiny Einsum, by formulas of a few lines, and their costs.

No code of `polymodel.mapper` is used. Matmul-like Einsums only (every rank is one rank variable), `reuse:
refill`. On two or three memories, with spatial loops between the second and the third: the outermost memory
holds everything, each other any subset of the tensors in any order of nodes, an outer memory's above an
inner one's. Fanouts reuse all tensors and broadcast partial sums.

A *cut* is a place on an Einsum's path where nodes stand; a *chain* gives a rank variable's tile at each cut.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cache, cached_property
from itertools import combinations, pairwise, permutations, product

import numpy as np
from numpy.typing import NDArray

from polymodel.architecture.hierarchy import Hierarchy
from polymodel.workload.einsum import Einsum, TensorAccess

Floats = NDArray[np.float64]
Front = list[tuple[float, float]]
Shared = tuple[tuple[str, int], ...]  # loops (rank variable, tile), outermost first


@cache
def visits(extent: int, tiles: tuple[int, ...]) -> int:
    """How many innermost tiles there are, clipped at every level: counted one by one."""
    if not tiles:
        return 1
    starts = range(0, extent, tiles[0])
    return sum(visits(min(tiles[0], extent - start), tiles[1:]) for start in starts)


@cache
def tilings(extent: int, cuts: int, every: bool) -> tuple[tuple[int, ...], ...]:
    """Tiles at so many cuts, outermost first; each divides the one above, or is just no larger."""
    if not cuts:
        return ((),)
    here = [t for t in range(1, extent + 1) if every or extent % t == 0]
    return tuple((t, *rest) for t in here for rest in tilings(t, cuts - 1, every))


@dataclass(frozen=True)
class Place:
    """Where a tensor is held: the memory, and the cut above which the loops are."""

    memory: int
    tensor: str
    cut: int


@dataclass(frozen=True)
class Path:
    """An Einsum below shared loops, with nodes at cuts; the cuts of shared loops come first.

    `own`: tensors held by the group for it, at the last shared cut. `spatial`: number of cuts above the
    spatial loops, None without.
    """

    einsum: Einsum
    shared: Shared
    places: tuple[Place, ...]
    own: tuple[str, ...] = ()
    cuts: int = 0
    spatial: int | None = None


@dataclass
class Figures:
    """Costs of all tile sizes of a path: arrays over its grid. `held`: per place its bits; `busy`: seconds of
    every memory."""

    energy: Floats
    latency: Floats
    held: list[Floats]
    tiles: list[tuple[tuple[str, tuple[int, ...], tuple[int, ...]], ...]] = field(default_factory=list)
    busy: list[Floats] = field(default_factory=list)


@dataclass(frozen=True)
class Machine:
    """A hierarchy in plain figures: per memory joules and seconds per bit (read, write) and bits it holds."""

    hierarchy: Hierarchy

    @cached_property
    def names(self) -> list[str]:
        return [c.name for c in self.hierarchy.components if c.kind == "memory"]

    @cached_property
    def unit(self) -> str:
        return next(c.name for c in self.hierarchy.components if c.kind == "compute")

    def price(self, memory: int, action: str) -> tuple[float, float]:
        found = self.hierarchy[self.names[memory]].action(action)
        return found.energy, 1 / found.throughput

    def may(self, memory: int, one: Einsum, tensor: str) -> bool:
        rule = self.hierarchy[self.names[memory]].may_keep
        return rule is None or tensor in rule.tensors(one.name)

    def size(self, memory: int) -> float:
        return self.hierarchy[self.names[memory]].size_bits

    @cached_property
    def fanouts(self) -> list[tuple[str, str, int]]:
        return [(c, d.name, d.fanout) for c, d in self.hierarchy.dimensions]


@dataclass(frozen=True)
class _Grid:
    """Chains of all rank variables, one axis each: visits and tile at each cut, spread over fanouts."""

    visits: dict[str, list[Floats]]
    tile: dict[str, list[Floats]]
    spread: dict[str, list[Floats]]
    shape: tuple[int, ...]
    chains: dict[str, list[tuple[tuple[int, ...], tuple[int, ...]]]]

    def spreads(self, access: TensorAccess) -> Floats:
        """Instances that need the same elements of a tensor."""
        found: Floats = np.ones((1,) * len(self.shape))
        for v, per_dim in self.spread.items():
            if v not in access.variables:
                for s in per_dim:
                    found = found * s
        return found

    def instances(self) -> Floats:
        found: Floats = np.ones((1,) * len(self.shape))
        for per_dim in self.spread.values():
            for s in per_dim:
                found = found * s
        return found


def _grid(path: Path, machine: Machine, every: bool) -> _Grid:
    one = path.einsum
    chains: dict[str, list[tuple[tuple[int, ...], tuple[int, ...]]]] = {}
    for v in one.rank_variables:
        extent = one.bound(v)[1] + 1
        above, inside = [], extent
        for w, t in path.shared:
            inside = t if w == v else inside
            above.append(inside)
        options = []
        widths = [f for _, _, f in machine.fanouts] if path.spatial is not None else []
        for factors in product(*(range(1, w + 1) for w in widths)):
            for tiles in tilings(inside, path.cuts, every):
                if _spreads(inside, tiles, math.prod(factors), path.spatial):
                    options.append(((*above, *tiles), factors))
        chains[v] = options
    shape = tuple(len(c) for c in chains.values())
    counted, sizes, spread = {}, {}, {}
    for axis, (v, options) in enumerate(chains.items()):
        extent = one.bound(v)[1] + 1
        form = tuple(-1 if i == axis else 1 for i in range(len(shape)))

        def column(values: list[float], form: tuple[int, ...] = form) -> Floats:
            return np.array(values, np.float64).reshape(form)

        depth = len(path.shared) + path.cuts
        first = len(path.shared) + (path.spatial if path.spatial is not None else path.cuts)
        counted[v] = [
            column(
                [visits(extent, tiles[: i + 1]) / (math.prod(f) if i >= first else 1) for tiles, f in options]
            )
            for i in range(depth)
        ]
        sizes[v] = [column([tiles[i] for tiles, _ in options]) for i in range(depth)]
        spread[v] = [column([f[d] for _, f in options]) for d in range(len(options[0][1]))]
    return _Grid(counted, sizes, spread, shape, chains)


def _spreads(inside: int, tiles: tuple[int, ...], units: int, at: int | None) -> bool:
    """True if the tile below the spatial loops, times the units, divides the tile above them."""
    if at is None:
        return True
    above = tiles[at - 1] if at else inside
    below = tiles[at] if at < len(tiles) else 1
    return above % (below * units) == 0


def figures(path: Path, machine: Machine, every: bool = False, keep: bool = False) -> Figures:
    """Energy, latency and tile bits of every chain of a path, as the page of counting rules says."""
    one, grid = path.einsum, _grid(path, machine, every)
    memories = range(len(machine.names))
    moved = {(m, a): np.zeros(grid.shape) for m in memories for a in ("read", "write")}
    operations = math.prod(high + 1 for _, high in one.bounds)
    bits = {a.tensor: a.bits_per_value for a in one.accesses}
    first = len(path.shared) + path.spatial if path.spatial is not None else None
    for access in one.accesses:
        _count(access, path, grid, moved, operations, first)
    units = grid.instances()
    compute = machine.hierarchy[machine.unit].action("compute")
    energy = np.full(grid.shape, operations * compute.energy)
    latency = np.broadcast_to(operations / compute.throughput / units, grid.shape)
    busy = []
    for m in memories:
        time: Floats = np.zeros(grid.shape)
        for action in ("read", "write"):
            each, seconds = machine.price(m, action)
            energy += moved[m, action] * each
            time = time + moved[m, action] * seconds
        busy.append(np.broadcast_to(time / (units if m > 1 else 1), grid.shape))
        latency = np.maximum(latency, busy[-1])
    held = []
    for p in path.places:
        access, tile = one.access_of(p.tensor), np.full(grid.shape, float(bits[p.tensor]))
        for v in access.variables:
            tile = tile * _at(grid.tile, v, p.cut, one)
        held.append(tile)
    fits = _widths_fit(grid, machine)
    tiles = [tuple(zip(grid.chains, *zip(*c, strict=True), strict=True)) for c in _all(grid)] if keep else []
    index = np.flatnonzero(np.broadcast_to(fits, grid.shape).ravel())
    return Figures(
        energy.ravel()[index],
        np.ascontiguousarray(latency).ravel()[index],
        [h.ravel()[index] for h in held],
        [tiles[i] for i in index] if keep else [],
        [b.ravel()[index] for b in busy],
    )


def _all(grid: _Grid) -> Iterator[tuple[tuple[tuple[int, ...], tuple[int, ...]], ...]]:
    return product(*grid.chains.values())


def _at(table: dict[str, list[Floats]], v: str, cut: int, one: Einsum) -> Floats | float:
    """A variable's figure at a cut; above all cuts its whole extent."""
    return table[v][cut - 1] if cut else float(one.bound(v)[1] + 1)


def _widths_fit(grid: _Grid, machine: Machine) -> NDArray[np.bool_]:
    fits = np.ones((1,) * len(grid.shape), bool)
    for d, (_, _, width) in enumerate(machine.fanouts):
        used: Floats = np.ones((1,) * len(grid.shape))
        for per_dim in grid.spread.values():
            used = used * (per_dim[d] if per_dim else 1.0)
        fits = fits & (used <= width)
    return fits


def _count(
    access: TensorAccess,
    path: Path,
    grid: _Grid,
    moved: dict[tuple[int, str], Floats],
    operations: int,
    first: int | None,
) -> None:
    """Bits that one tensor moves. `first`: the cut above which the spatial loops stand."""
    one, tensor, width = path.einsum, access.tensor, access.bits_per_value
    whole = math.prod(one.bound(v)[1] + 1 for v in access.variables)
    holders = [p for p in path.places if p.tensor == tensor]
    if tensor not in path.own:
        holders = [Place(0, tensor, 0), *holders]
    same = grid.spreads(access)

    def below(p: Place) -> bool:
        return first is not None and p.cut > first

    for parent, child in pairwise(holders):
        fills = np.full(grid.shape, float(whole))
        for v in one.rank_variables:
            if v not in access.variables:
                fills = fills * (grid.visits[v][child.cut - 1] if child.cut else 1.0)
        each = same if below(child) and not below(parent) else 1.0
        if access.output:
            again = fills - whole
            moved[parent.memory, "write"] += fills * width
            moved[child.memory, "read"] += fills * each * width
            moved[parent.memory, "read"] += again * width
            moved[child.memory, "write"] += again * each * width
        else:
            moved[parent.memory, "read"] += fills * width
            moved[child.memory, "write"] += fills * each * width
    last = holders[-1]
    used = operations / (1.0 if below(last) or first is None else same)
    moved[last.memory, "read"] += used * width
    if access.output:
        fresh = whole * (same if below(last) else 1.0)
        moved[last.memory, "read"] -= fresh * width
        moved[last.memory, "write"] += used * width


def front(energy: Floats, latency: Floats) -> Front:
    """The pairs that no other beats."""
    order = np.lexsort((latency, energy))
    found: Front = []
    for i in order:
        if not found or latency[i] < found[-1][1]:
            found.append((float(energy[i]), float(latency[i])))
    return found


# One Einsum


def placements(
    tensors: tuple[str, ...], memories: int, ordered: bool = True
) -> Iterator[tuple[tuple[int, str], ...]]:
    """All sequences of nodes: any subset per memory below the outermost, in any order.

    `ordered`: an outer memory's nodes above an inner one's; else only those of one tensor are in order.
    """
    if memories == 1:
        yield ()
        return
    for above in placements(tensors, memories - 1, ordered):
        for n in range(len(tensors) + 1):
            for held in permutations(tensors, n):
                yield from _merged(above, tuple((memories - 1, t) for t in held), ordered)


def _merged(
    above: tuple[tuple[int, str], ...], below: tuple[tuple[int, str], ...], ordered: bool
) -> Iterator[tuple[tuple[int, str], ...]]:
    if ordered or not above or not below:
        yield (*above, *below)
        return
    for at in combinations(range(len(above) + len(below)), len(below)):
        up, low = iter(above), iter(below)
        nodes = tuple(next(low) if i in at else next(up) for i in range(len(above) + len(below)))
        chains = [[m for m, u in nodes if u == t] for _, t in below]
        if all(chain == sorted(chain) for chain in chains):
            yield nodes


def paths_of_one(one: Einsum, machine: Machine, ordered: bool = True) -> Iterator[Path]:
    for nodes in placements(one.tensors, len(machine.names), ordered):
        if not all(machine.may(m, one, t) for m, t in nodes):
            continue
        places = tuple(Place(m, t, i + 1) for i, (m, t) in enumerate(nodes))
        above = sum(m < 2 for m, _ in nodes) if machine.fanouts else None
        yield Path(one, (), places, (), len(nodes), above)


def one_einsum(
    one: Einsum, hierarchy: Hierarchy, every: bool = False, ordered: bool = True
) -> tuple[Front, int]:
    """The front of energy and latency, and how many mappings there are that fit or do not."""
    machine, many = Machine(hierarchy), 0
    best: list[Front] = []
    for path in paths_of_one(one, machine, ordered):
        found = figures(path, machine, every)
        many += len(found.energy)
        fits = np.ones(len(found.energy), bool)
        for m in range(1, len(machine.names)):
            inside = [h for p, h in zip(path.places, found.held, strict=True) if p.memory == m]
            fits &= sum(inside, np.zeros(len(fits))) <= machine.size(m)
        best.append(front(found.energy[fits], found.latency[fits]))
    return joined(best), many


def joined(fronts: list[Front]) -> Front:
    points = [p for f in fronts for p in f]
    return front(np.array([e for e, _ in points]), np.array([x for _, x in points]))


def added(fronts: list[Front]) -> Front:
    """One after the other."""
    total: Front = [(0.0, 0.0)]
    for f in fronts:
        total = joined([[(a + e, b + x) for a, b in total for e, x in f]])
    return total
