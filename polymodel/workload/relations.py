"""The ISL and networkx views of Einsums and cascades, built on first use."""

from __future__ import annotations

from typing import TYPE_CHECKING

from polymodel.polyhedra.build import map_from_affine, set_from_constraints
from polymodel.polyhedra.sets import lacking

if TYPE_CHECKING:
    import islpy
    import networkx

    from polymodel.workload.einsum import Cascade, Einsum


def iteration_space(einsum: Einsum) -> islpy.Set:
    """`I_e`: a set over the rank variables in order of first appearance."""
    return set_from_constraints(einsum.name, einsum.rank_variables, einsum.constraints)


def access_relation(einsum: Einsum, tensor: str) -> islpy.Map:
    """`A[e,T]: I_e -> T`, restricted to the iteration space."""
    access = einsum.access_of(tensor)
    relation = map_from_affine(einsum.name, einsum.rank_variables, tensor, access.ranks, access.projection)
    return relation.intersect_domain(einsum.iteration_space)


def touched(cascade: Cascade, tensor: str) -> islpy.Set:
    """The elements of a tensor that any iteration of any Einsum touches."""
    found: islpy.Set | None = None
    for einsum in cascade:
        if tensor in einsum.tensors:
            here = access_relation(einsum, tensor).range()
            found = here if found is None else found.union(here)
    assert found is not None, "every tensor is touched"
    return found


def unwritten(cascade: Cascade) -> tuple[tuple[str, tuple[int, ...], int, tuple[int, ...]], ...]:
    """Outputs of which no iteration writes some elements: (tensor, sizes, how many, the first of them).

    Only of tensors whose every rank has a size.
    """
    known = dict(cascade.rank_sizes)
    found = []
    for einsum in cascade.einsums:
        for access in einsum.outputs:
            sizes = tuple(known[r] for r in access.ranks if r in known)
            if len(sizes) == len(access.ranks):
                missing = lacking(access_relation(einsum, access.tensor).range(), sizes)
                found += [(access.tensor, sizes, *missing)] if missing is not None else []
    return tuple(found)


def cascade_graph(cascade: Cascade) -> networkx.DiGraph:
    """Bipartite DiGraph of Einsums and tensors; edges follow the data."""
    import networkx

    graph: networkx.DiGraph = networkx.DiGraph()
    for einsum in cascade.einsums:
        graph.add_node(("einsum", einsum.name), kind="einsum", name=einsum.name)
        for access in einsum.accesses:
            graph.add_node(("tensor", access.tensor), kind="tensor", name=access.tensor)
            ends = (("tensor", access.tensor), ("einsum", einsum.name))
            graph.add_edge(*(reversed(ends) if access.output else ends))
    return graph
