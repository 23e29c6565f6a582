"""Tensors of which an Einsum accesses several elements of earlier generations, each within a box: stencils in
time, values beyond their edges, and values before several generations.

The elements in a tile are a union of boxes, not a product over rank variables. They are counted for each
choice of tile sizes of all variables that determine them. Some ranks have reads of other elements of the
previous generation. Loops over these are below loops over as many generations as these elements are back: a
tile of more generations has all of these ranks, as in legal mappings if there are neighbours on both sides.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import lru_cache
from math import prod
from typing import TYPE_CHECKING, Any

import numpy as np

from polymodel.analysis.symbolic.box_unions import LoopUses, Ranks, coordinates, number_of_elements
from polymodel.analysis.symbolic.generations import box_of, variables_that_decide
from polymodel.analysis.symbolic.regions import BoxUnion
from polymodel.errors import Refused
from polymodel.frozen import dataclass
from polymodel.workload.einsum import Cascade, Einsum, TensorAccess

if TYPE_CHECKING:
    from polymodel.mapper.space import EinsumSpace

Array = Any


@dataclass(frozen=True)
class TouchedBoxes:
    """How an Einsum accesses a tensor: in the boxes of `region`, whose own variables are the rank variables
    at these positions (-1: one of extent 1), with these `ranks`. `reads`: how often operations read it, over
    these variables; `made`: elements that the Einsum produces; `over`: the variable of the recurrence (-1: an
    input), and `moved`: those along which other elements of the previous generation are read; `back`: the
    distances of the reads in generations."""

    variables: tuple[int, ...]
    region: BoxUnion
    ranks: Ranks
    reads: int
    made: int = 0
    over: int = -1
    moved: frozenset[int] = frozenset()
    reach: int = 1
    back: tuple[int, ...] = ()

    def elements(self) -> int:
        """Return the number of elements that are accessed but not produced."""
        return self.of_tiles(self.region.extents[: self.region.own])[1]

    def of_tiles(self, sizes: Sequence[int]) -> tuple[int, int]:
        """Return, for equal tiles of these sizes of the variables, the elements in the largest tile, and over
        all tiles those that are not produced there."""
        return _of_tiles(self.region, self.ranks, tuple(sizes), self.made)

    def is_legal(self, tiles: Mapping[int, Array]) -> Array:
        """Return whether candidates keep the order of generations. `tiles`: for each variable its tile sizes
        at every level [levels, n], in shapes that broadcast."""
        result: Array = np.ones((), bool)
        extents = dict(zip(self.variables, self.region.extents, strict=False))
        for v in sorted(self.moved & tiles.keys()):
            if self.over in tiles:
                result = result & ~((tiles[v] < extents[v]) & (tiles[self.over] > self.reach)).any(axis=0)
        return result


@lru_cache(maxsize=2**16)
def _of_tiles(region: BoxUnion, ranks: Ranks, sizes: tuple[int, ...], made: int) -> tuple[int, int]:
    every = coordinates(region, ranks)
    assert every is not None
    tiles = [((s, s),) for s in sizes] + [()] * (len(region.extents) - len(sizes))
    most, total = (
        number_of_elements(region, every, tiles, [use] * len(tiles))
        for use in (LoopUses(most=(0,)), LoopUses(kept=(0,)))
    )
    if most is None or total is None:
        what = "the search does not count a stencil of so many accesses at so many tiles"
        raise Refused(what, "write its mapping by hand and evaluate or sweep it", code="too-large")
    return int(most.sum()), int(total.sum()) - made


def boxes_of(
    one: Einsum, tensor: str, cascade: Cascade, position: Mapping[str, int], otherwise: Refused
) -> TouchedBoxes:
    """Return how an Einsum accesses a tensor that it produces in other iterations, or that holds values
    before these.

    Raises `otherwise` for accesses that are not boxes at constant distances.
    """
    accesses = one.accesses_of(tensor)
    if any(x.terms != y.terms for a in accesses for x, y in _pairs(a, accesses[0])):
        raise otherwise
    names = variables_that_decide(one, accesses)
    boxes = [box_of(one, names, a.guard) for a in accesses]
    if any(box is None for box in boxes):
        raise otherwise
    extents = [one.bound(v)[1] - one.bound(v)[0] + 1 for v in names]
    guards = tuple(box for box in boxes if box is not None)
    ranks = []
    for rank, expr in enumerate(accesses[0].projection):
        factors = [expr.coefficient(v) for v in names]
        away = [a.projection[rank].constant - expr.constant for a in accesses[1:]]
        ranks += [(*factors, *away)] if any(factors) or any(away) else []
    region = BoxUnion((*extents, *(2 for _ in accesses[1:])), (), guards)
    if coordinates(region, tuple(ranks)) is None:
        raise otherwise
    volumes = [prod(max(high - low + 1, 0) for low, high in box) for box in guards]
    reads = sum(n for a, n in zip(accesses, volumes, strict=True) if not a.output)
    places = tuple(position.get(v, -1) for v in names)
    write = next((a for a in accesses if a.output), None)
    if write is None:
        return TouchedBoxes(places, region, tuple(ranks), reads)
    return _carried(one, cascade, write, position, otherwise, (places, region, tuple(ranks), reads))


def _pairs(one: TensorAccess, other: TensorAccess) -> list[tuple[Any, Any]]:
    return list(zip(one.projection, other.projection, strict=True))


def _carried(
    one: Einsum, cascade: Cascade, write: TensorAccess, position: Mapping[str, int], otherwise: Refused,
    found: tuple[tuple[int, ...], BoxUnion, Ranks, int],
) -> TouchedBoxes:  # fmt: skip
    """Return how an Einsum accesses a tensor that it produces: earlier generations, along one rank."""
    accesses = [a for a in one.accesses_of(write.tensor) if not a.output]
    away = [[x.constant - y.constant for x, y in _pairs(write, a)] for a in accesses]
    forward = [r for r, expr in enumerate(write.projection) if expr.terms and all(d[r] > 0 for d in away)]
    every = {v for x in write.projection for v in x.variables}
    waits = any(e is not one for e in cascade.earlier_readers(write.tensor))
    if len(forward) != 1 or waits or write.guard or write.accumulates or not every >= {*position}:
        raise otherwise
    (line,) = forward
    (v,) = write.projection[line].variables
    shifted = {r for r in range(len(write.projection)) if r != line and any(d[r] for d in away)}
    moved = {w for r in shifted for w in write.projection[r].variables}
    reach = min((d[line] for d in away if any(d[r] for r in shifted)), default=1)
    places, region, ranks, reads = found
    made = prod(region.extents[: region.own])
    beside = frozenset(position[w] for w in moved if w in position)
    back = tuple(sorted(d[line] for d in away))
    return TouchedBoxes(places, region, ranks, reads, made, position.get(v, -1), beside, reach, back)


def boxes_apart(spaces: tuple[EinsumSpace, ...], remedy: str) -> tuple[EinsumSpace, ...]:
    """Return the spaces, such that Einsums that access several elements of earlier generations share no
    loops.

    Raises Refused if such Einsums are combined with features that are not counted together with them.
    """
    boxed = [s for s in spaces if any(o.boxes is not None for o in s.operands)]
    for s in boxed:
        besides = {
            "`sizes: all`": not s.divide,
            "`spatial_sizes: all`": not s.even,
            "`allocation: live`": any(m.live for m in s.memories),
            "`bits_per_action` that divides no value": any(o.rounds for o in s.operands),
            "rules on temporal loops": s.rules.of_blocks,
            "bounds that tie rank variables": bool(s.ties),
        }
        for what in (name for name, there in besides.items() if there):
            covered = f"several elements of earlier generations ({s.name}) beside {what}"
            message = f"the search does not cover {covered}"
            raise Refused(message, remedy, code="unsupported-recurrence")
    apart = {o.tensor for s in boxed for o in s.operands}
    each = ([replace(o, fusable=o.fusable and o.tensor not in apart) for o in s.operands] for s in spaces)
    return tuple(replace(s, operands=tuple(some)) for s, some in zip(spaces, each, strict=True))
