"""Short ways to write the small problems that are counted by hand."""

from __future__ import annotations

from collections.abc import Mapping

from polymodel.analysis.result import Analysis, Buffet, Problem, Traffic
from polymodel.architecture.hierarchy import Component, FanoutDim, Hierarchy, TensorRule
from polymodel.mapping.looptree import ComputeNode, Loop, LoopTree, Node, StorageNode
from polymodel.workload.einsum import Cascade, Einsum, TensorAccess
from tests.workloads import box, index, sketch


def einsum(
    name: str, *forms: str, sizes: Mapping[str, int | tuple[int, int]], copy: bool = False, **access: bool
) -> Einsum:
    """`einsum("E0", "A[m,k]", "B[k]", "C[m]", sizes=...)`: the last form is the output; 8-bit values.

    A size is an extent from 0, or the first and the last value.
    """
    parsed = sketch(name, *forms).forms
    found = tuple(
        TensorAccess(
            tensor,
            tuple(f"R{i}" for i in range(len(indices))),
            tuple(index(x) for x in indices),
            output=position == len(parsed) - 1,
            persistent=access.get(tensor, False),
        )
        for position, (tensor, indices) in enumerate(parsed)
    )
    variables = tuple(dict.fromkeys(v for a in found for v in a.variables))
    given = {v: sizes[v] for v in variables}
    ranges = {v: s if isinstance(s, tuple) else (0, s - 1) for v, s in given.items()}
    return Einsum(name, variables, box(ranges), found, tuple(ranges.values()), is_copy=copy)


def rule(einsum_name: str, *tensors: str) -> TensorRule:
    return TensorRule("given", ((einsum_name, frozenset(tensors)),))


def hierarchy(
    *, may_reuse: TensorRule | None = None, broadcast: bool = False, toll: TensorRule | None = None
) -> Hierarchy:
    """DRAM, a toll if it keeps anything, GLB, PE with dimension X of 4, RF, MAC."""
    net = (Component("Net", "toll", keep=toll),) if toll else ()
    return Hierarchy(
        (
            Component("DRAM", "memory"),
            *net,
            Component("GLB", "memory"),
            Component("PE", "container", spatial=(FanoutDim("X", 4, may_reuse, broadcast),)),
            Component("RF", "memory"),
            Component("MAC", "compute"),
        )
    )


def dram(*tensors: str) -> StorageNode:
    return StorageNode("DRAM", tensors)


def glb(*tensors: str) -> StorageNode:
    return StorageNode("GLB", tensors)


def rf(*tensors: str) -> StorageNode:
    return StorageNode("RF", tensors)


def loop(variable: str, tile: int) -> Loop:
    return Loop(variable, tile)


def spread(variable: str, tile: int) -> Loop:
    return Loop(variable, tile, spatial=True, component="PE", dim="X")


def mac(name: str = "E0") -> ComputeNode:
    return ComputeNode(name, "MAC")


def problem(einsums: Einsum | tuple[Einsum, ...], *nodes: Node, hardware: Hierarchy | None = None) -> Problem:
    given = einsums if isinstance(einsums, tuple) else (einsums,)
    return Problem(Cascade(given), hardware or hierarchy(), LoopTree(nodes))


def buffet(result: Analysis, component: str, tensor: str) -> Buffet:
    (found,) = (b for b in result.buffets if (b.component, b.tensor) == (component, tensor))
    return found


def moved(result: Analysis, component: str, tensor: str, name: str = "E0") -> tuple[int, int, int, int]:
    """reads_fill, reads_drain, writes_fill, writes_drain of one Einsum, level and tensor."""
    found: list[Traffic] = [
        t for t in result.traffic if (t.einsum, t.component, t.tensor) == (name, component, tensor)
    ]
    (row,) = found
    return row.reads_fill, row.reads_drain, row.writes_fill, row.writes_drain
