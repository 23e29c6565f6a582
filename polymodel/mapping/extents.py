"""Extents of loops: tile sizes within their enclosing tile, spatial trips within the fanout."""

from __future__ import annotations

from polymodel.architecture.hierarchy import Hierarchy
from polymodel.mapping.looptree import Loop, Node, Split
from polymodel.mapping.placement import users
from polymodel.mapping.resolve import ResolvedMapping, tree_locator, written_sizes
from polymodel.spec.faults import Faults, Path
from polymodel.workload.einsum import Cascade

# Enclosing extent of (Einsum, rank variable); None while a symbol hides it.
Extents = dict[tuple[str, str], int | None]


def check_extents(mapping: ResolvedMapping, cascade: Cascade, hierarchy: Hierarchy, faults: Faults) -> None:
    """Refuse tiles larger than the enclosing extent and spatial loops that exceed their fanout.

    The outermost loop over a variable splits the span of its bounding boxes over the Einsums below.
    """
    _Walker(mapping, cascade, hierarchy, faults).visit(mapping.tree.nodes, {}, {})


class _Walker:
    def __init__(
        self, mapping: ResolvedMapping, cascade: Cascade, hierarchy: Hierarchy, faults: Faults
    ) -> None:
        self.mapping = mapping
        self.cascade = cascade
        self.hierarchy = hierarchy
        self.faults = faults
        self.ids = iter(range(10**9))

    def visit(self, nodes: tuple[Node, ...], extents: Extents, trips: dict[tuple[str, str], int]) -> None:
        extents, trips = dict(extents), dict(trips)
        for node in nodes:
            here = next(self.ids)
            if isinstance(node, Split):
                for branch in node.branches:
                    self.visit(branch, extents, trips)
            elif isinstance(node, Loop):
                self._loop(here, node, extents, trips)

    def _loop(self, here: int, loop: Loop, extents: Extents, trips: dict[tuple[str, str], int]) -> None:
        below = users(self.mapping.tree, here)
        keys = [
            (e, loop.variable_in(e)) for e in below if loop.variable_in(e) in self.cascade[e].rank_variables
        ]
        self._enter(loop, [key for key in keys if key not in extents], extents)
        counts = [
            self._group(here, loop, group, extents)
            for group in ([[key] for key in keys] if loop.uneven else [keys])
        ]
        known = [c for c in counts if c is not None]
        if loop.spatial and known and len(known) == len(counts):
            self._check_fanout(here, loop, max(known), trips)
        for name in reversed(below):
            if name not in dict(keys):
                self._infer(name, below, extents)

    def _group(self, here: int, loop: Loop, keys: list[tuple[str, str]], extents: Extents) -> int | None:
        """Check and enter the tile of Einsums that share it; its trips unless a symbol hides them."""
        einsum = keys[0][0] if keys else ""
        seen = loop.within(einsum)
        known = [extents[key] for key in keys]
        enclosing = None if None in known or not known else max(k for k in known if k is not None)
        tile, first = seen.tile_shape, seen.initial_tile_shape
        for path, size in written_sizes(loop):
            if isinstance(size, int) and path[1:] in ((), (einsum,)):
                self._check_size(here, seen.variable_in(einsum), path, size, enclosing)
        inner = None if isinstance(tile, str) or isinstance(first, str) else max(tile, first or 0)
        extents.update(dict.fromkeys(keys, inner))
        if enclosing is None or isinstance(tile, str) or isinstance(first, str):
            return None
        return self._trips(enclosing, tile, first)

    def _enter(self, loop: Loop, fresh: list[tuple[str, str]], extents: Extents) -> None:
        """The range that an outermost loop over a variable splits; with tiles per Einsum, each its own."""
        bounds = [self.cascade[e].bound(v) for e, v in fresh]
        if loop.uneven:
            extents.update({key: high - low + 1 for key, (low, high) in zip(fresh, bounds, strict=True)})
        elif fresh:
            span = max(high for _, high in bounds) - min(low for low, _ in bounds) + 1
            extents.update(dict.fromkeys(fresh, span))

    def _infer(self, name: str, below: tuple[str, ...], extents: Extents) -> None:
        """The widest window of each rank variable that the only consumer below needs of `name`."""
        einsum = self.cascade[name]
        for access in einsum.outputs:
            readers = [
                self.cascade[e] for e in below if e != name and access.tensor in self.cascade[e].tensors
            ]
            if len(readers) != 1:
                continue
            for mine, theirs in zip(
                access.projection, readers[0].access_of(access.tensor).projection, strict=True
            ):
                if len(mine.terms) != 1 or abs(mine.terms[0][1]) != 1:
                    continue
                variable = mine.terms[0][0]
                low, high = einsum.bound(variable)
                width: int | None = 1
                for v, c in theirs.terms:
                    bound = readers[0].bound(v)
                    extent = extents.get((readers[0].name, v), bound[1] - bound[0] + 1)
                    width = None if width is None or extent is None else width + abs(c) * (extent - 1)
                known = extents.get((name, variable), high - low + 1)
                extents[name, variable] = None if width is None or known is None else min(known, width)

    @staticmethod
    def _trips(enclosing: int, tile: int, first: int | None) -> int:
        if first is None:
            return -(-enclosing // tile)
        return 1 + max(0, -(-(enclosing - first) // tile))

    def _check_size(self, here: int, variable: str, key: Path, size: int, enclosing: int | None) -> None:
        path = (*tree_locator(self.mapping, here), *key)
        if size < 1:
            self.faults.add(path, f"tile size {size} is below 1", "write 1 or more")
        elif enclosing is not None and size > enclosing:
            message = f"tile size {size} of {variable} is larger than the enclosing extent {enclosing}"
            self.faults.add(path, message, f"write at most {enclosing}")

    def _check_fanout(self, here: int, loop: Loop, count: int, trips: dict[tuple[str, str], int]) -> None:
        key = (loop.component, loop.dim)
        total = trips.get(key, 1) * count
        trips[key] = total
        fanout = self.hierarchy[loop.component].dim(loop.dim).fanout
        if total > fanout:
            message = (
                f"the spatial loops over {loop.component}.{loop.dim} need {total} instances, it has {fanout}"
            )
            remedy = "enlarge tile_shape, or put the rest in a temporal loop"
            self.faults.add((*tree_locator(self.mapping, here), "tile_shape"), message, remedy)
