"""A cascade with other extents: what a closed form over extents is about."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from polymodel.affine import Affine, Constraint
from polymodel.workload.einsum import Cascade, Einsum


def bounds_alone(constraint: Constraint) -> bool:
    """True for `v >= low` and `v <= high`: the side of a range, which goes with the extent of `v`."""
    terms = constraint.expr.terms
    return constraint.kind == "ge" and len(terms) == 1 and abs(terms[0][1]) == 1


def resized(cascade: Cascade, extents: Mapping[str, int]) -> Cascade:
    """The same Einsums over boxes of other extents (rank variable -> extent); lower ends stay.

    Constraints over several rank variables stay as well; that they still hold is the caller's business.
    """
    return replace(cascade, einsums=tuple(_resized(e, extents) for e in cascade.einsums))


def _resized(einsum: Einsum, extents: Mapping[str, int]) -> Einsum:
    bounds, sides = [], []
    for v, (low, high) in zip(einsum.rank_variables, einsum.bounds, strict=True):
        high = low + extents[v] - 1 if v in extents else high
        bounds.append((low, high))
        if v in extents:
            sides += [Constraint(Affine(((v, 1),), -low)), Constraint(Affine(((v, -1),), high))]
    kept = [c for c in einsum.constraints if not (bounds_alone(c) and c.expr.terms[0][0] in extents)]
    return replace(einsum, bounds=tuple(bounds), constraints=(*sides, *kept))
