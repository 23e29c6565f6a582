"""What a packaged workload amounts to: multiply-accumulates and parameters, from its iteration spaces.

A multiply-accumulate is an operation of an Einsum without a `map` of its own: a product that is summed up. A
parameter is an element of a tensor that an Einsum calls its weight, and that comes from outside: nothing
makes it, and it is no cache.
"""

from __future__ import annotations

from math import prod

from polymodel.affine import Affine
from polymodel.polyhedra.counting import size
from polymodel.workload.einsum import Cascade, Einsum


def operations(einsum: Einsum) -> int:
    """Iterations over all instances."""
    return size(einsum.iteration_space) * einsum.n_instances


def macs(cascade: Cascade) -> int:
    """Multiply-accumulates of the whole workload."""
    return sum(operations(e) for e in cascade if not e.is_copy and dict(e.operations).get("map") is None)


def extent(einsum: Einsum, projection: Affine) -> int:
    """Values that one index of a tensor runs through."""
    ends = [[c * end for end in einsum.bound(v)] for v, c in projection.terms]
    return sum(max(e) for e in ends) - sum(min(e) for e in ends) + 1


def parameters(cascade: Cascade) -> dict[str, int]:
    """Weight -> its elements over all instances."""
    made = {a.tensor for e in cascade for a in e.outputs}
    found: dict[str, int] = {}
    for einsum in cascade:
        weights = dict(einsum.renames).get("weight", frozenset())
        for access in einsum.inputs:
            if access.tensor in weights - made and not access.tensor.startswith("Cache"):
                elements = prod(extent(einsum, p) for p in access.projection) * einsum.n_instances
                found[access.tensor] = max(found.get(access.tensor, 0), elements)
    return found
