"""Small changes of a mapping: tiles of temporal loops, places of storage nodes, new loops, first tiles.

The changed mapping may be illegal, or exceed memories: whoever asks for it evaluates it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cached_property

from polymodel.factoring import divisors
from polymodel.mapper.records import Limits
from polymodel.mapping.looptree import ComputeNode, Loop, LoopTree, Node, Split, StorageNode
from polymodel.workload.einsum import Cascade

Nodes = tuple[Node, ...]
Sizes = Mapping[tuple[str, str], int]  # (Einsum, rank variable) -> the tile that encloses a node
FEW = 8  # first tiles are all looked at up to this tile, else some


@dataclass(frozen=True)
class TreeChanges:
    """The changes of mappings of a cascade.

    `tiles`: of loops and storage; `first`: of first tiles. New loops above splits obey the limits on fused
    loops.
    """

    cascade: Cascade
    limits: Limits
    tiles: bool = True
    first: bool = False

    @cached_property
    def _extents(self) -> Sizes:
        return {
            (e.name, v): high - low + 1
            for e in self.cascade.einsums
            for v, (low, high) in zip(e.rank_variables, e.bounds, strict=True)
        }

    def of(self, tree: LoopTree) -> Iterator[LoopTree]:
        """Every mapping that one change makes."""
        sizes = self._extents
        root = 1 if tree.nodes and isinstance(tree.nodes[0], StorageNode) else 0
        for nodes in self._changed(tree.nodes[root:], sizes):
            yield LoopTree((*tree.nodes[:root], *nodes), tree.name)

    def pairs(self, tree: LoopTree) -> Iterator[LoopTree]:
        """Mappings with another tile of a shared loop and a storage node above shared loops, at once."""
        if self.tiles:
            for nodes in self._shared_tiles(tree.nodes, self._extents):
                yield from (LoopTree(moved, tree.name) for moved in _lifted(nodes))

    def _shared_tiles(self, nodes: Nodes, sizes: Sizes) -> Iterator[Nodes]:
        """Every tile that divides, of each loop above a split."""
        for k, node in enumerate(nodes):
            rest = nodes[k + 1 :]
            if isinstance(node, Split):
                for b, branch in enumerate(node.branches):
                    for changed in self._shared_tiles(branch, sizes) if _splits(branch) else ():
                        branches = (*node.branches[:b], changed, *node.branches[b + 1 :])
                        yield (*nodes[:k], replace(node, branches=branches))
            elif _in_time(node) and isinstance(node, Loop) and not node.uneven and _splits(rest):
                for size in divisors(self._around(node, rest, sizes))[:-1]:
                    below = _without(rest, replace(node, tile_shape=size))
                    if size != node.tile_shape and below is not None:
                        yield (*nodes[:k], replace(node, tile_shape=size), *below)
                sizes = self._below(node, rest, sizes)

    def _changed(self, nodes: Nodes, sizes: Sizes) -> Iterator[Nodes]:
        """Every change of these nodes or of what is below them."""
        if not nodes:
            return
        node, *others = nodes
        rest = tuple(others)
        if isinstance(node, Loop):
            if not node.spatial and not node.uneven:
                yield from self._loop_changed(node, rest, sizes)
                if self.tiles and rest and isinstance(rest[0], StorageNode):  # the node goes above the loop
                    yield (rest[0], node, *rest[1:])
            sizes = self._below(node, rest, sizes)
        elif self.tiles and isinstance(node, StorageNode) and rest and _in_time(rest[0]):
            yield (rest[0], node, *rest[1:])
        elif isinstance(node, Split):
            yield from self._split_changed(node, sizes)
            return
        if self.tiles and (isinstance(node, ComputeNode) or (rest and not isinstance(rest[0], Loop))):
            before = not isinstance(node, Loop)
            for loop in self._new_loops((node, *rest) if before else rest, sizes):
                below = _without(rest if not before else (node, *rest), loop)
                if below is not None:
                    yield (loop, *below) if before else (node, loop, *below)
        for changed in self._changed(rest, sizes):
            yield (node, *changed)

    def _split_changed(self, split: Split, sizes: Sizes) -> Iterator[Nodes]:
        for k, branch in enumerate(split.branches):
            for changed in self._changed(branch, sizes):
                yield (replace(split, branches=(*split.branches[:k], changed, *split.branches[k + 1 :])),)
            if self.tiles and len(branch) > 1 and isinstance(branch[0], StorageNode):
                left = (*split.branches[:k], branch[1:], *split.branches[k + 1 :])
                yield (branch[0], replace(split, branches=left))

    def _below(self, loop: Loop, rest: Nodes, sizes: Sizes) -> Sizes:
        result = dict(sizes)
        for e in _einsums(rest):
            key, tile = (e, loop.variable_in(e)), loop.within(e).tile_shape
            if key in result and isinstance(tile, int):
                result[key] = min(result[key], tile)
        return result

    def _around(self, loop: Loop, rest: Nodes, sizes: Sizes) -> int:
        """The tile that a loop splits."""
        return max((sizes.get((e, loop.variable_in(e)), 1) for e in _einsums(rest)), default=1)

    def _loop_changed(self, loop: Loop, rest: Nodes, sizes: Sizes) -> Iterator[Nodes]:
        whole, tile = self._around(loop, rest, sizes), loop.tile_shape
        if not isinstance(tile, int):
            return
        several = divisors(whole)
        if self.tiles:
            lower, upper = [d for d in several if d < tile][-1:], [d for d in several if d > tile][:1]
            for size in (*lower, *upper):
                below = _without(rest, replace(loop, tile_shape=size))
                if size >= whole:
                    yield rest
                elif below is not None:
                    yield (replace(loop, tile_shape=size), *below)
        if self.first:
            begin = loop.initial_tile_shape
            assert begin is None or isinstance(begin, int), "a found mapping has numbers"
            for size, first in _first_tiles(whole, tile, begin):
                changed = replace(loop, tile_shape=size, initial_tile_shape=first)
                if _tightest(rest, loop) <= size:
                    yield (changed, *rest)

    def _new_loops(self, rest: Nodes, sizes: Sizes) -> Iterator[Loop]:
        """Temporal loops above nodes: over rank variables that all Einsums below have by one name."""
        einsums = _einsums(rest)
        shared = len(einsums) > 1
        if shared and self.limits.max_fused_loops is not None:
            return
        for v in self.cascade[einsums[0]].rank_variables:
            if any((e, v) not in sizes for e in einsums):
                continue
            whole = max(sizes[e, v] for e in einsums)
            if shared and whole < max(self._extents[e, v] for e in einsums):
                continue  # it has a fused loop
            for size in sorted({1, *divisors(whole)[:-1][-1:]}):
                if size < whole:
                    yield Loop(v, size)


def _splits(nodes: Nodes) -> bool:
    return any(isinstance(n, Split) for n in nodes)


def _lifted(nodes: Nodes) -> Iterator[Nodes]:
    """The nodes with one storage node below a shared loop right above it, and the same within branches."""
    for k, node in enumerate(nodes):
        if isinstance(node, Split):
            for b, branch in enumerate(node.branches):
                for changed in _lifted(branch) if _splits(branch) else ():
                    branches = (*node.branches[:b], changed, *node.branches[b + 1 :])
                    yield (*nodes[:k], replace(node, branches=branches))
        elif _in_time(node) and _splits(nodes[k:]):
            for moved, left in _taken(nodes[k + 1 :]):
                yield (*nodes[:k], moved, node, *left)


def _taken(nodes: Nodes) -> Iterator[tuple[StorageNode, Nodes]]:
    """Each storage node among and below these, with what is left."""
    for k, node in enumerate(nodes):
        if isinstance(node, StorageNode):
            yield node, (*nodes[:k], *nodes[k + 1 :])
        elif isinstance(node, Split):
            for b, branch in enumerate(node.branches):
                for moved, left in _taken(branch):
                    branches = (*node.branches[:b], left, *node.branches[b + 1 :])
                    yield moved, (*nodes[:k], replace(node, branches=branches))


def _in_time(node: Node) -> bool:
    return isinstance(node, Loop) and not node.spatial


def _einsums(nodes: Nodes) -> list[str]:
    """The Einsums below nodes."""
    result: list[str] = []
    for n in nodes:
        if isinstance(n, ComputeNode):
            result.append(n.einsum)
        elif isinstance(n, Split):
            result += [e for b in n.branches for e in _einsums(b)]
    return result


def _without(nodes: Nodes, outer: Loop) -> Nodes | None:
    """The nodes below a loop, without temporal loops over its variable that have nothing left to split.

    None if a tile below is in the way.
    """
    result: list[Node] = []
    tile = outer.tile_shape
    assert isinstance(tile, int)
    for n in nodes:
        if isinstance(n, Split):
            branches = [_without(b, outer) for b in n.branches]
            if any(b is None for b in branches):
                return None
            n = replace(n, branches=tuple(b for b in branches if b is not None))
        elif isinstance(n, Loop) and n.rank_variable == outer.rank_variable and isinstance(n.tile_shape, int):
            if n.tile_shape >= tile:
                if n.spatial:
                    return None
                continue
            if tile % n.tile_shape:
                return None
        result.append(n)
    return tuple(result)


def _tightest(nodes: Nodes, outer: Loop) -> int:
    """The largest tile below a loop over its variable."""
    most = 0
    for n in nodes:
        if isinstance(n, Split):
            most = max(most, *(_tightest(b, outer) for b in n.branches))
        elif isinstance(n, Loop) and n.rank_variable == outer.rank_variable and isinstance(n.tile_shape, int):
            most = max(most, n.tile_shape)
    return most


def _first_tiles(whole: int, tile: int, first: int | None) -> Iterator[tuple[int, int | None]]:
    """Tiles with first tiles of a loop over `whole`: other first tiles, and tiles near by that leave the
    first one what does not divide."""
    if first is not None:
        yield tile, None
        yield from ((tile, near) for near in (first - 1, first + 1) if 0 < near < whole and near != tile)
    some = range(1, min(2 * tile, whole)) if tile <= FEW else (tile // 2, whole % tile, tile - 1, tile + 1)
    for other in some:
        if other not in (0, tile, first) and other < whole:
            yield tile, other
    for size in (tile - 2, tile - 1, tile + 1, tile + 2):
        if 0 < size < whole and whole % size:
            yield size, whole % size
            yield size, size + whole % size
