"""Small problems made from the contract's dataclasses, for costs and reports."""

from __future__ import annotations

import math
from dataclasses import replace

from polymodel.analysis.result import Problem
from polymodel.architecture.hierarchy import ActionCost, Component, FanoutDim, Hierarchy
from polymodel.arithmetic import Affine, Constraint
from polymodel.mapping.looptree import ComputeNode, Loop, LoopTree, Node, Split, StorageNode
from polymodel.workload.einsum import Cascade, Einsum, TensorAccess


def einsum(
    name: str, sizes: dict[str, int], output: tuple[str, str], *inputs: tuple[str, str], bits: int = 8,
    n_instances: int = 1,
) -> Einsum:  # fmt: skip
    """Every access is (tensor, its rank variables separated by blanks)."""
    accesses = []
    for i, (tensor, text) in enumerate((output, *inputs)):
        variables = text.split()
        accesses.append(
            TensorAccess(
                tensor,
                tuple(v.upper() for v in variables),
                tuple(Affine.variable(v) for v in variables),
                output=i == 0,
                bits_per_value=bits,
            )
        )
    variables = tuple(dict.fromkeys(v for a in accesses for v in a.variables))
    constraints = tuple(
        c
        for v in variables
        for c in (
            Constraint(Affine.variable(v)),
            Constraint(Affine((), sizes[v] - 1) - Affine.variable(v)),
        )
    )
    bounds = tuple((0, sizes[v] - 1) for v in variables)
    return Einsum(name, variables, constraints, tuple(accesses), bounds, n_instances=n_instances)


def memory(
    name: str, energy: float, throughput: float, size: float = math.inf, *dims: FanoutDim
) -> Component:
    """Reads and writes cost the same."""
    actions = tuple(ActionCost(a, energy, throughput, provenance="oracle") for a in ("read", "write"))
    return Component(name, "memory", size_bits=size, actions=actions, spatial=dims)


MAC = Component("MAC", "compute", actions=(ActionCost("compute", 2, 1, provenance="oracle"),))


def temporal(variable: str, tile: int) -> Loop:
    return Loop(variable, tile)


def chain(shared_tile: int = 2) -> Problem:
    """Two chained matmuls, fused over m: the weights stay on chip, T1 lives in GLB only."""
    sizes = {"m": 8, "n0": 6, "n1": 4, "n2": 5}
    cascade = Cascade(
        (
            einsum("E0", sizes, ("T1", "m n1"), ("T0", "m n0"), ("W0", "n0 n1")),
            einsum("E1", sizes, ("T2", "m n2"), ("T1", "m n1"), ("W1", "n1 n2")),
        ),
        name="chain",
    )
    hierarchy = Hierarchy((memory("DRAM", 64, 16, 2**30), memory("GLB", 4, 64, 2**20), MAC), name="two_level")
    first: tuple[Node, ...] = (
        StorageNode("GLB", ("T0",)),
        temporal("n1", 1),
        temporal("n0", 1),
        temporal("m", 1),
        ComputeNode("E0", "MAC"),
    )
    second: tuple[Node, ...] = (
        StorageNode("GLB", ("T2",)),
        temporal("n1", 1),
        temporal("n2", 1),
        temporal("m", 1),
        ComputeNode("E1", "MAC"),
    )
    tree = LoopTree(
        (
            StorageNode("DRAM", ("T0", "W0", "W1", "T2")),
            StorageNode("GLB", ("W0", "W1")),
            temporal("m", shared_tile),
            StorageNode("GLB", ("T1",)),
            Split((first, second)),
        ),
        name="fused",
    )
    return Problem(cascade, hierarchy, tree)


def multicast() -> Problem:
    """One matmul over four register files: A is multicast, B and C go to one file each."""
    sizes = {"m": 8, "n": 4, "k": 6}
    e = einsum("E0", sizes, ("C", "m n"), ("A", "m k"), ("B", "k n"))
    e = replace(
        e, accesses=tuple(replace(a, bits_per_value=16 if a.tensor == "C" else 8) for a in e.accesses)
    )
    rf = memory("RF", 1, 256, 4096, FanoutDim("X", 4))
    hierarchy = Hierarchy((memory("DRAM", 64, 16, 2**30), memory("GLB", 4, 64, 2**20), rf, MAC))
    tree = LoopTree(
        (
            StorageNode("DRAM", ("A", "B", "C")),
            temporal("m", 4),
            StorageNode("GLB", ("A", "B", "C")),
            Loop("n", 1, spatial=True, component="RF", dim="X"),
            temporal("m", 2),
            StorageNode("RF", ("A", "B", "C")),
            temporal("k", 1),
            temporal("m", 1),
            ComputeNode("E0", "MAC"),
        )
    )
    return Problem(Cascade((e,)), hierarchy, tree)


def with_component(problem: Problem, name: str, changed: Component) -> Problem:
    """The problem with one component replaced."""
    components = tuple(changed if c.name == name else c for c in problem.hierarchy.components)
    return replace(problem, hierarchy=replace(problem.hierarchy, components=components))
