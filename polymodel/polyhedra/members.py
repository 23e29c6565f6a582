"""Numbers of points of several sets, by which of the sets each point belongs to."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from itertools import pairwise, product
from math import prod

from polymodel.errors import Refused
from polymodel.governor import charge, look
from polymodel.integers import np
from polymodel.polyhedra import isl
from polymodel.polyhedra.sets import bounding_box, is_box, size

Members = frozenset[int]
Box = tuple[tuple[int, int], ...]
MOST = 5000  # combinations of sets that are not boxes; more take minutes
DOING = "which points are in which sets"


def within(relation: isl.Map, place: int, low: int, high: int) -> isl.Map:
    """The part of a relation in whose domain one dimension lies between two inclusive bounds."""
    relation = relation.lower_bound_val(isl.dim_type.in_, place, isl.Val(low))
    return relation.upper_bound_val(isl.dim_type.in_, place, isl.Val(high))


def united(sets: Sequence[isl.Set]) -> isl.Set:
    """The union of one or more sets."""
    result = sets[0]
    for other in sets[1:]:
        result = result.union(other)
    return result.coalesce()


def points_by_members(sets: Sequence[Sequence[isl.Set]]) -> dict[Members, int]:
    """For each combination of sets, the number of points that belong to exactly these sets. Each set is given
    as parts that may overlap. Combinations without points are left out. Raises Refused where there are too
    many combinations."""
    distinct = {str(part): part for parts in sets for part in parts}
    if not all(is_box(part) for part in distinct.values()):
        return _of_sets(sets)
    boxes = {text: bounding_box(part) for text, part in distinct.items()}
    return _of_boxes([[box for part in parts if (box := boxes[str(part)])] for parts in sets])


def _of_boxes(sets: Sequence[Sequence[Box]]) -> dict[Members, int]:
    """The counts where all parts are boxes: along each dimension, the bounds of all boxes divide it into
    intervals."""
    every = [box for boxes in sets for box in boxes]
    result: dict[Members, int] = defaultdict(int)
    if not every:
        return result
    dims = range(len(every[0]))
    cuts = [sorted({end for box in every for end in (box[d][0], box[d][1] + 1)}) for d in dims]
    charge(3 * prod(len(c) for c in cuts) * len(sets), DOING)
    inside = np.zeros((len(sets), *(len(c) - 1 for c in cuts)), bool)
    for i, boxes in enumerate(sets):
        for box in boxes:
            ends = zip(cuts, box, strict=True)
            spans = tuple(slice(c.index(low), c.index(high + 1)) for c, (low, high) in ends)
            inside[i][spans] = True
    rows, which = np.unique(inside.reshape(len(sets), -1).T, axis=0, return_inverse=True)
    members = [frozenset(np.flatnonzero(row).tolist()) for row in rows]
    widths = [[b - a for a, b in pairwise(c)] for c in cuts]
    for row, sides in zip(which.ravel().tolist(), product(*widths), strict=True):
        result[members[row]] += prod(sides)
    result.pop(frozenset(), None)
    return dict(result)


def _of_sets(sets: Sequence[Sequence[isl.Set]]) -> dict[Members, int]:
    """The counts for arbitrary sets: each set splits the combinations found so far in two."""
    kinds: list[tuple[Members, isl.Set]] = []
    for i, parts in enumerate(sets):
        look(DOING)
        if not parts:
            continue
        new = united(parts)
        cut: list[tuple[Members, isl.Set]] = []
        for members, points in kinds:
            for now, here in ((members | {i}, points.intersect(new)), (members, points.subtract(new))):
                cut += [(now, here)] if not here.is_empty() else []
            new = new.subtract(points)
        kinds = cut + ([(frozenset({i}), new)] if not new.is_empty() else [])
        if len(kinds) > MOST:
            message = f"the sets divide the points into more than {MOST} kinds"
            raise Refused(message, "use fewer sets", code="too-large")
    result: dict[Members, int] = defaultdict(int)
    for members, points in kinds:
        result[members] += size(points)
    return dict(result)
