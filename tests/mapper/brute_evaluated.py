"""Every mapping of one small Einsum, listed node by node and evaluated one by one: no formula is used, and no
code of `polymodel.mapper`."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from itertools import pairwise, permutations, product
from math import prod
from random import Random

from polymodel.analysis.result import Problem
from polymodel.api.evaluation import evaluate_problem
from polymodel.architecture.hierarchy import FanoutDim
from polymodel.arithmetic import Affine
from polymodel.errors import SpecError
from polymodel.loading import Spec
from polymodel.mapping.looptree import ComputeNode, Loop, LoopTree, Node, Split, StorageNode
from polymodel.workload.einsum import Einsum

Fused = tuple[tuple[str, int], ...]  # loops that Einsums share, with their tile sizes
Part = tuple[list[tuple[str, int]], tuple[Node, ...]]  # tensors above such loops (which), and a branch
Placed = tuple[str, int]  # a tensor and the number of its memory
Sizes = Mapping[str, tuple[tuple[int, ...], tuple[int, ...]]]  # variable -> tiles at the nodes, spreads


def divisors(n: int) -> list[int]:
    return [d for d in range(1, n + 1) if n % d == 0]


def chains(now: int, nodes: int) -> Iterator[tuple[int, ...]]:
    """Tile sizes at so many nodes, each a divisor of the one above."""
    if not nodes:
        yield ()
        return
    for size in divisors(now):
        for more in chains(size, nodes - 1):
            yield (size, *more)


class Listed:
    """The mappings of a spec's only Einsum: outer memories above inner ones, sizes that divide."""

    def __init__(self, spec: Spec) -> None:
        self.spec, (self.einsum,) = spec, spec.workload.einsums
        parts = spec.arch.components
        self.memories = [c for c in parts if c.kind == "memory"]
        self.unit = next(c.name for c in parts if c.kind == "compute")
        self.dims = [(i, c.name, d) for i, c in enumerate(parts) for d in c.spatial]
        self.place = {c.name: i for i, c in enumerate(parts)}
        ranges = zip(self.einsum.rank_variables, self.einsum.bounds, strict=True)
        self.extents = {v: high - low + 1 for v, (low, high) in ranges}

    def trees(self, taken: Callable[[], bool] = lambda: True) -> Iterator[LoopTree]:
        """Those that `taken` admits."""
        for nodes in self._nodes():
            each = {v: list(self._sizes(v, len(nodes))) for v in self.extents}
            for chosen in product(*each.values()):
                wide = [prod(spread[k] for _, spread in chosen) for k in range(len(self.dims))]
                fits = all(w <= d.fanout for w, (_, _, d) in zip(wide, self.dims, strict=True))
                if taken() and fits:
                    yield self._tree(nodes, dict(zip(each, chosen, strict=True)))

    def _nodes(self) -> Iterator[tuple[Placed, ...]]:
        """Which inner memories hold which tensor, and in which order."""
        inner = range(1, len(self.memories))
        for flags in product((False, True), repeat=len(inner) * len(self.einsum.tensors)):
            held = [x for x, there in zip(product(self.einsum.tensors, inner), flags, strict=True) if there]
            if all(self._holds(t, m) for t, m in held):
                for order in permutations(held):
                    if all(a[1] <= b[1] for a, b in pairwise(order)):
                        yield order

    def _holds(self, tensor: str, memory: int) -> bool:
        rule = self.memories[memory].may_keep
        return rule is None or tensor in rule.tensors(self.einsum.name)

    def size(self) -> int:
        """How many mappings there are, those beyond the width of a fanout included."""
        each = ([sum(1 for _ in self._sizes(v, len(n))) for v in self.extents] for n in self._nodes())
        return sum(map(prod, each))

    def _sizes(self, v: str, nodes: int) -> Iterator[tuple[tuple[int, ...], tuple[int, ...]]]:
        (out,) = self.einsum.outputs
        sums = v not in out.variables
        for spread in product(*(divisors(self.extents[v]) for _ in self.dims)):
            used = [d for (_, _, d), s in zip(self.dims, spread, strict=True) if s > 1]
            adds = all(d.reuses(self.einsum.name, out.tensor) for d in used)
            if any(self._apart_on_a_mesh(v, d) for d in used):
                continue
            if self.extents[v] % prod(spread) == 0 and (adds or not sums):
                for tiles in chains(self.extents[v] // prod(spread), nodes):
                    yield tiles, spread

    def _apart_on_a_mesh(self, v: str, dim: FanoutDim) -> bool:
        """Whether instances along a mesh would share parts of windows, which is outside the space."""
        windows = []
        for t in self.einsum.tensors:
            for rank in zip(*(a.projection for a in self.einsum.accesses_of(t)), strict=True):
                # a rank that all accesses read at one place is no window, even where others of the tensor are
                if any(v in e.variables and (self._overlaps(e) or len(set(rank)) > 1) for e in rank):
                    windows.append(t)
        shared = any(dim.shares(self.einsum.name, t, indexed=True) for t in windows)
        return shared and dim.link is not None and dim.link.topology not in ("bus", "switch")

    def _overlaps(self, expression: Affine) -> bool:
        """Whether it has the same value at two points."""
        steps = [[c * x for x in range(self.extents[v])] for v, c in expression.terms]
        values = [sum(point) for point in product(*steps)]
        return len({*values}) < len(values)

    def _tree(self, nodes: tuple[Placed, ...], sizes: Sizes) -> LoopTree:
        found: list[Node] = [StorageNode(self.memories[0].name, tuple(self.einsum.tensors))]
        now = dict(self.extents)
        waiting = list(range(len(self.dims)))
        for k in range(len(nodes) + 1):
            name = self.memories[nodes[k][1]].name if k < len(nodes) else self.unit
            ready = [f for f in waiting if self.dims[f][0] <= self.place[name]]
            waiting = [f for f in waiting if f not in ready]
            for v, (tiles, spread) in sizes.items():
                # Tiles at nodes are those of one instance; above fanouts further in they are shared.
                later = prod(spread[f] for f in waiting)
                goal = (tiles[k] if k < len(nodes) else 1) * later
                wide = prod(spread[f] for f in ready)
                if goal * wide < now[v]:
                    found.append(Loop(v, goal * wide))
                now[v] = goal * wide
            for f in ready:
                for v, (_, spread) in sizes.items():
                    if spread[f] > 1:
                        now[v] //= spread[f]
                        _, component, dim = self.dims[f]
                        found.append(Loop(v, now[v], spatial=True, component=component, dim=dim.name))
            if k < len(nodes):
                found.append(StorageNode(name, (nodes[k][0],)))
        return LoopTree((*found, ComputeNode(self.einsum.name, self.unit)))


Gap = tuple[int, tuple[int, ...]]  # a tile below the temporal loops above a node, and below each spatial one


class UnevenlyListed(Listed):
    """Tiles over fanouts need not divide: each is as small as so many instances allow, the last one has what
    is left. `every`: temporal tiles need not divide either."""

    def __init__(self, spec: Spec, every: bool = False) -> None:
        super().__init__(spec)
        self.every = every

    def trees(self, taken: Callable[[], bool] = lambda: True) -> Iterator[LoopTree]:
        for nodes in self._nodes():
            dims = self._between(nodes)
            each = [list(self._chains(v, n, dims)) for v, n in self.extents.items()]
            for chosen in product(*each):
                loops, used = self._loops(dict(zip(self.extents, chosen, strict=True)), dims)
                fits = all(used[f] <= d.fanout for f, (_, _, d) in enumerate(self.dims))
                if taken() and fits:
                    yield self._planted(nodes, loops)

    def size(self) -> int:
        result = 0
        for nodes in self._nodes():
            dims = self._between(nodes)
            result += prod(sum(1 for _ in self._chains(v, n, dims)) for v, n in self.extents.items())
        return result

    def _between(self, nodes: tuple[Placed, ...]) -> list[list[int]]:
        """Dimensions whose spatial loops stand right above each node, and above compute."""
        waiting, result = list(range(len(self.dims))), []
        for name in (*(self.memories[m].name for _, m in nodes), self.unit):
            result.append([f for f in waiting if self.dims[f][0] <= self.place[name]])
            waiting = [f for f in waiting if f not in result[-1]]
        return result

    def _chains(self, v: str, now: int, dims: list[list[int]]) -> Iterator[tuple[Gap, ...]]:
        if not dims:
            yield ()
            return
        for tile in range(1, now + 1) if self.every else divisors(now):
            if len(dims) == 1 and not dims[0] and tile > 1:
                continue  # below the last loop are single iterations
            for spatial in self._over(v, tile, dims[0]):
                for rest in self._chains(v, (tile, *spatial)[-1], dims[1:]):
                    yield ((tile, spatial), *rest)

    def _over(self, v: str, tile: int, dims: list[int]) -> Iterator[tuple[int, ...]]:
        if not dims:
            yield ()
            return
        dim, (out,) = self.dims[dims[0]][2], self.einsum.outputs
        adds = v in out.variables or dim.reuses(self.einsum.name, out.tensor)
        for inner in sorted({-(-tile // n) for n in (range(1, dim.fanout + 1) if adds else (1,))}):
            for rest in self._over(v, inner, dims[1:]):
                yield (inner, *rest)

    def _loops(
        self, chosen: Mapping[str, tuple[Gap, ...]], dims: list[list[int]]
    ) -> tuple[list[list[Node]], list[int]]:
        """Loops above each node and above compute, and how many instances of each dimension are in use."""
        now, used, result = dict(self.extents), [1] * len(self.dims), []
        for k, here in enumerate(dims):
            loops: list[Node] = []
            for v, gaps in chosen.items():
                loops += [Loop(v, gaps[k][0])] if gaps[k][0] < now[v] else []
                now[v] = gaps[k][0]
            for at, f in enumerate(here):
                for v, gaps in chosen.items():
                    inner = gaps[k][1][at]
                    used[f] *= -(-now[v] // inner)
                    _, component, dim = self.dims[f]
                    over = Loop(v, inner, spatial=True, component=component, dim=dim.name)
                    loops += [over] if inner < now[v] else []
                    now[v] = inner
            result.append(loops)
        result[-1] += [Loop(v, 1) for v, left in now.items() if left > 1]
        return result, used

    def _planted(self, nodes: tuple[Placed, ...], loops: list[list[Node]]) -> LoopTree:
        found: list[Node] = [StorageNode(self.memories[0].name, tuple(self.einsum.tensors))]
        for (tensor, memory), above in zip(nodes, loops, strict=False):
            found += [*above, StorageNode(self.memories[memory].name, (tensor,))]
        return LoopTree((*found, *loops[-1], ComputeNode(self.einsum.name, self.unit)))


class FusedPair:
    """The mappings of a chain of two Einsums on two memories that hand on its intermediate in the inner one,
    below loops over some of `shared` that both have: each other tensor has at most one node there, above one
    of these loops or in the branch of its Einsum. Fanouts are inside the inner memory, and tiles over them
    divide. `apart`: the intermediate is in the outer memory, and there are no such loops."""

    def __init__(self, spec: Spec, tensor: str, shared: tuple[str, ...], apart: bool = False) -> None:
        self.einsums, self.tensor, self.shared = spec.workload.einsums, tensor, shared
        self.apart, parts = apart, spec.arch.components
        self.outer, self.inner = (c.name for c in parts if c.kind == "memory")
        self.unit = next(c.name for c in parts if c.kind == "compute")
        self.dims = [(c.name, d) for c in parts for d in c.spatial]

    def trees(self, taken: Callable[[], bool] = lambda: True) -> Iterator[LoopTree]:
        """Those that `taken` admits."""
        for loops, firsts, seconds in self.structures():
            for both in product(firsts, seconds):
                if taken():
                    yield self.tree(loops, both)

    def structures(self) -> Iterator[tuple[Fused, list[Part], list[Part]]]:
        """Shared loops, and the parts of either Einsum below them, which go together in all ways."""
        for loops in self._shared_loops():
            first, second = (list(self._parts(e, loops)) for e in self.einsums)
            yield loops, first, second

    def size(self) -> int:
        """How many there are."""
        return sum(len(firsts) * len(seconds) for _, firsts, seconds in self.structures())

    def tree(self, loops: Fused, both: tuple[Part, Part]) -> LoopTree:
        """One mapping."""
        kept = "" if self.apart else self.tensor
        whole = tuple({t: None for e in self.einsums for t in e.tensors if t != kept})
        found: list[Node] = [StorageNode(self.outer, whole)]
        for k, (v, tile) in enumerate(loops):
            here = [t for above, _ in both for t, at in above if at == k]
            found += [*(StorageNode(self.inner, (t,)) for t in here), Loop(v, tile)]
        found += [] if self.apart else [StorageNode(self.inner, (self.tensor,))]
        return LoopTree((*found, Split(tuple(branch for _, branch in both))))

    def _shared_loops(self) -> Iterator[Fused]:
        for many in range(1 if self.apart else len(self.shared) + 1):
            for order in permutations(self.shared, many):
                sizes = (divisors(_extent(self.einsums[0], v))[:-1] for v in order)
                yield from (tuple(zip(order, tiles, strict=True)) for tiles in product(*sizes))

    def _parts(self, one: Einsum, loops: Fused) -> Iterator[Part]:
        """Tensors with nodes above shared loops, with the number of that loop; and the branch."""
        others = [t for t in one.tensors if self.apart or t != self.tensor]
        start = {v: _extent(one, v) for v in one.rank_variables} | {
            v: n for v, n in loops if v in one.rank_variables
        }
        for places in product((None, "branch", *range(len(loops))), repeat=len(others)):
            above = [(t, at) for t, at in zip(others, places, strict=True) if isinstance(at, int)]
            inside = [t for t, at in zip(others, places, strict=True) if at == "branch"]
            for order in permutations(inside):
                each = [list(self._sizes(one, v, n, len(order))) for v, n in start.items()]
                for chosen in product(*each):
                    wide = [prod(spread[k] for _, spread in chosen) for k in range(len(self.dims))]
                    if all(w <= d.fanout for w, (_, d) in zip(wide, self.dims, strict=True)):
                        sizes = dict(zip(start, chosen, strict=True))
                        yield above, self._branch(one, order, sizes, start)

    def _sizes(
        self, one: Einsum, v: str, now: int, nodes: int
    ) -> Iterator[tuple[tuple[int, ...], tuple[int, ...]]]:
        """Tiles of one instance at the nodes, and spreads."""
        (out,) = one.outputs
        for spread in product(*(divisors(now) for _ in self.dims)):
            used = [d for (_, d), s in zip(self.dims, spread, strict=True) if s > 1]
            adds = v in out.variables or all(d.reuses(one.name, out.tensor) for d in used)
            if now % prod(spread) == 0 and adds:
                for tiles in chains(now // prod(spread), nodes):
                    yield tiles, spread

    def _branch(
        self, one: Einsum, order: tuple[str, ...], tiles: Sizes, start: dict[str, int]
    ) -> tuple[Node, ...]:
        found: list[Node] = []
        now = dict(start)
        for k in range(len(order) + 1):
            for v, (sizes, spread) in tiles.items():
                goal = (sizes[k] if k < len(order) else 1) * prod(spread)
                found += [Loop(v, goal)] if goal < now[v] else []
                now[v] = goal
            found += [StorageNode(self.inner, (order[k],))] if k < len(order) else []
        for f, (component, dim) in enumerate(self.dims):
            for v, (_, spread) in tiles.items():
                if spread[f] > 1:
                    now[v] //= spread[f]
                    found.append(Loop(v, now[v], spatial=True, component=component, dim=dim.name))
        return (*found, ComputeNode(one.name, self.unit))


def _extent(one: Einsum, variable: str) -> int:
    low, high = one.bound(variable)
    return high - low + 1


def figures(spec: Spec, tree: LoopTree) -> tuple[float, float] | None:
    """Energy and latency, None where it does not fit."""
    report = evaluate_problem(Problem(spec.workload, spec.arch, tree))
    return (report.total_energy, float(report.total_latency)) if report.feasible else None


def sample(spec: Spec, pick: Random, most: int) -> list[LoopTree]:
    """All mappings, or about so many of them."""
    listed = Listed(spec)
    share = most / listed.size()
    return list(listed.trees(lambda: share >= 1 or pick.random() < share))


def evaluated(spec: Spec, trees: list[LoopTree]) -> list[tuple[float, float]]:
    """The figures of those that are legal and fit."""
    result = []
    for tree in trees:
        try:
            found = figures(spec, tree)
        except SpecError:
            continue
        if found is not None:
            result.append(found)
    return result
