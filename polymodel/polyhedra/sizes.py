"""How large several sets are at each stamp, for one factor: classes of stamps with equal sizes."""

from __future__ import annotations

from collections.abc import Sequence

import islpy as isl
import numpy as np
from numpy.typing import NDArray

from polymodel.polyhedra.counting import count_by, fibre_sizes

Sizes = tuple[int, ...]


def _pieces(points: isl.Set, stamps: int) -> list[tuple[isl.Set, int]]:
    """Disjoint (stamps, how many points of `[stamp..., x...]` have them); sizes are positive."""
    data = points.dim(isl.dim_type.set) - stamps
    if points.is_empty():
        return []
    if data == 0:
        return [(points, 1)]
    identity = isl.Map.identity(points.get_space().map_from_set()).intersect_domain(points)
    relation = identity.project_out(isl.dim_type.in_, stamps, data)
    relation = relation.project_out(isl.dim_type.out, 0, stamps)
    return [(p.domain, p.size) for p in fibre_sizes(relation)]


def size_classes(
    members: Sequence[isl.Set], stamps: int, keep: int
) -> list[tuple[Sizes, NDArray[np.object_]]]:
    """Each different row of sizes, with the number of its stamps per value of the first `keep` counters.

    `members`: sets `[stamp..., x...]` with `stamps` leading stamp dimensions. Stamps at which all of them
    are empty are left out.
    """
    groups: list[tuple[Sizes, isl.Set]] = []
    done: Sizes = ()
    for points in members:
        found: dict[Sizes, isl.Set] = {}
        pieces = _pieces(points, stamps)
        filled = points.project_out(isl.dim_type.set, stamps, points.dim(isl.dim_type.set) - stamps)
        fresh = filled  # stamps that no member before has
        for sizes, where in groups:
            for piece, size in pieces:
                _add(found, (*sizes, size), where.intersect(piece))
            _add(found, (*sizes, 0), where.subtract(filled))
            fresh = fresh.subtract(where)
        for piece, size in pieces:
            _add(found, (*done, size), piece.intersect(fresh))
        groups = list(found.items())
        done = (*done, 0)
    return [(sizes, count_by(where, keep)) for sizes, where in groups]


def _add(found: dict[Sizes, isl.Set], sizes: Sizes, where: isl.Set) -> None:
    if not where.is_empty():
        found[sizes] = found[sizes].union(where) if sizes in found else where
