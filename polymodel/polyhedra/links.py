"""Links: those that transfers cross, and receivers of partial sums, for one factor `[p..., t..., x...]`.

A transfer is one combination of the dimensions that are neither dropped nor the coordinate; it crosses
the links on the way to every coordinate that it holds, each once. docs/semantics.md, Interconnect.

Receivers:
`np`, `nt`: the child's spatial and temporal dimensions; `np_parent`, `nt_parent`: those that are
the parent's, which lead. Sets, not counts: docs/semantics.md, Links.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

import islpy as isl
import numpy as np
from numpy.typing import NDArray

from polymodel.polyhedra import steps
from polymodel.polyhedra.build import parse_map, parse_set, without
from polymodel.polyhedra.counting import count_by
from polymodel.polyhedra.steps import Mode

Counts = NDArray[np.object_]


@dataclass(frozen=True)
class Crossing:
    """What to count per value of the dimensions `labels`.

    `coordinate`: (dimension, weight) pairs whose sum is the instance's coordinate. `shift`: None counts a
    chain's links 0..coordinate; else the tree's links at height `shift`, numbered coordinate >> shift.
    With an empty `coordinate` transfers are counted. `drop`: dimensions that are united over. `by_link`:
    the link's number is one more label.
    """

    labels: tuple[int, ...]
    drop: tuple[int, ...]
    coordinate: tuple[tuple[int, int], ...] = ()
    shift: int | None = None
    by_link: bool = False

    def relation(self, dims: int) -> isl.Map:
        """`{ [dims] -> [labels, link, transfer] }`."""
        names = [f"d{i}" for i in range(dims)]
        link = ["e"] if self.coordinate else []
        rest = [i for i in range(dims) if i not in self.labels and i not in self.drop]
        image = [names[i] for i in self.labels] + link + [names[i] for i in rest]
        where = " + ".join(f"{w}*{names[i]}" for i, w in self.coordinate)
        body = "true"
        if self.coordinate:
            body = f"0 <= e <= {where}" if self.shift is None else f"e = floor(({where})/{2**self.shift})"
        return parse_map(f"{{ [{', '.join(names)}] -> [{', '.join(image)}] : {body} }}")

    def count(self, points: isl.Set) -> Counts:
        """How many (transfer, link) pairs there are, per label."""
        crossed = points.apply(self.relation(points.dim(isl.dim_type.set)))
        return count_by(crossed.coalesce(), len(self.labels) + self.by_link)


@lru_cache(maxsize=8192)
def crossed(text: str, crossing: Crossing) -> Counts:
    """Of everything in the factor."""
    return crossing.count(parse_set(text))


@lru_cache(maxsize=8192)
def crossed_at_steps(
    text: str, held: str, np: int, nt: int, mode: Mode, forward: bool, crossing: Crossing
) -> tuple[Counts, Counts]:
    """Of what is touched at stamps that have a neighbour: of all of it, and of what is not held there."""
    candidates, stay = steps.kept(text, held, np, nt, mode, forward)
    return crossing.count(candidates), crossing.count(candidates.subtract(stay))


@lru_cache(maxsize=8192)
def kept_whole(
    text: str, held: str, np: int, nt: int, mode: Mode, forward: bool, crossing: Crossing
) -> Counts:
    """Transfers, per label, of which every instance keeps its part."""
    candidates, stay = steps.kept(text, held, np, nt, mode, forward)
    if not crossing.drop:
        return crossing.count(stay)
    relation = crossing.relation(candidates.dim(isl.dim_type.set))
    left = candidates.apply(relation).subtract(candidates.subtract(stay).apply(relation))
    return count_by(left.coalesce(), len(crossing.labels))


SET = isl.dim_type.set


def widen(points: isl.Set, positions: tuple[int, ...]) -> isl.Set:
    """Insert free dimensions so that they end up at `positions` (ascending)."""
    for position in sorted(positions):
        points = points.insert_dims(SET, position, 1)
    return points


def of_each(points: isl.Set, touched: isl.Set) -> isl.Set:
    """Touches that are in `points` by all dimensions but the last ones, which `points` does not have."""
    total = points.dim(SET)
    return touched.intersect(points.insert_dims(SET, total, touched.dim(SET) - total))


def inner_first(points: isl.Set, np: int, nt: int, np_parent: int, nt_parent: int) -> isl.Set:
    """Touches at the first time, over all children of one parent instance, within the parent's stamp."""
    between = tuple(range(np_parent, np))
    times = without(points, between)
    spread = isl.Map.identity(times.get_space().map_from_set()).intersect_domain(times)
    spread = spread.project_out(isl.dim_type.in_, np_parent + nt_parent, nt - nt_parent)
    first = spread.lexmin().range()
    return points.intersect(widen(first, between))


def receivers(points: isl.Set, single: tuple[int, ...], every: tuple[int, ...]) -> isl.Set:
    """Per stamp and element the instances that receive: first along `single`, all along `every`."""
    if not single:
        return points
    narrow = without(points, every)
    positions = [s - sum(1 for e in every if e < s) for s in single]
    spread = isl.Map.identity(narrow.get_space().map_from_set()).intersect_domain(narrow)
    for position in sorted(positions, reverse=True):
        spread = spread.project_out(isl.dim_type.in_, position, 1)
    return points.intersect(widen(spread.lexmin().range(), every))


def under(points: isl.Set, parents: isl.Set, np: int, nt: int, np_parent: int, nt_parent: int) -> isl.Set:
    """Touches whose parent's stamp and element are in `parents` (`[p_parent, t_parent, x]`)."""
    wide = widen(parents, tuple(range(np_parent, np)))
    return points.intersect(widen(wide, tuple(range(np + nt_parent, np + nt))))
