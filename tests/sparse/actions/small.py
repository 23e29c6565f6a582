"""Small matrix products on three levels with drawn loops, actions and data."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import strategies as st

from polymodel.analysis.result import Problem
from polymodel.architecture.hierarchy import Component, FanoutDim, Hierarchy, SparseOptimization, SparseRules
from polymodel.arithmetic import Affine, Constraint
from polymodel.mapping.looptree import ComputeNode, Loop, LoopTree, Node, StorageNode
from polymodel.spec.numbers import parse_affine
from polymodel.workload.einsum import Cascade, Einsum, TensorAccess

TENSORS = ("A", "B", "Z")
RANKS: dict[str, tuple[str, ...]] = {"A": ("m", "k"), "B": ("k", "n"), "Z": ("m", "n")}


WINDOWS: dict[str, tuple[str, ...]] = {"A": ("p + r",), "B": ("r", "n"), "Z": ("p", "n")}


def product_of(projections: dict[str, tuple[str, ...]], sizes: dict[str, int]) -> Cascade:
    """One Einsum Z on a box of these sizes."""
    accesses = tuple(
        TensorAccess(t, tuple(f"R{i}" for i in range(len(r))), tuple(map(parse_affine, r)), output=t == "Z")
        for t, r in projections.items()
    )
    variables = tuple(sizes)
    constraints = tuple(
        c
        for v in variables
        for c in (Constraint(Affine.variable(v)), Constraint(Affine((), sizes[v] - 1) - Affine.variable(v)))
    )
    bounds = tuple((0, sizes[v] - 1) for v in variables)
    return Cascade((Einsum("Z", variables, constraints, accesses, bounds),))


def rule(kind: str, targets: tuple[str, ...], leaders: tuple[str, ...]) -> SparseOptimization:
    return SparseOptimization(kind, (("Z", targets, leaders),))


def hierarchy(
    actions: dict[str, tuple[SparseOptimization, ...]],
    fanout: int = 1,
    formats: dict[str, object] | None = None,
) -> Hierarchy:
    """DRAM, GLB, PE (X), RF, MAC."""
    names = (("DRAM", "memory"), ("GLB", "memory"), ("PE", "container"), ("RF", "memory"), ("MAC", "compute"))
    components = []
    for name, kind in names:
        c = Component(name, kind)
        if name == "PE":
            c = replace(c, spatial=(FanoutDim("X", fanout),))
        if name in actions or formats:
            c = replace(c, sparse=SparseRules(tuple((formats or {}).items()), actions.get(name, ())))
        components.append(c)
    return Hierarchy(tuple(components))


@st.composite
def loops(draw: st.DrawFn, extents: dict[str, int], most: int) -> list[Node]:
    """Temporal loops over drawn variables with drawn tiles; `extents` shrink to what is left."""
    found: list[Node] = []
    for _ in range(draw(st.integers(0, most))):
        v = draw(st.sampled_from(sorted(extents)))
        tile = draw(st.integers(1, extents[v]))
        found.append(Loop(v, tile))
        extents[v] = tile
    return found


@st.composite
def small_problems(
    draw: st.DrawFn, largest: int = 4, projections: dict[str, tuple[str, ...]] = RANKS
) -> Problem:
    """A mapping of one product: GLB and RF hold some tensors, perhaps a spatial loop between."""
    names = dict.fromkeys(v for r in projections.values() for x in r for v in parse_affine(x).variables)
    sizes = {v: draw(st.integers(1, largest)) for v in names}
    extents = dict(sizes)
    nodes: list[Node] = [StorageNode("DRAM", TENSORS)]
    nodes += draw(loops(extents, 2))
    fanout = 1
    for component in ("GLB", "RF"):
        held = tuple(t for t in TENSORS if draw(st.booleans()))
        if component == "RF" and draw(st.booleans()):
            v = draw(st.sampled_from(sorted(extents)))
            tile = draw(st.integers(1, extents[v]))
            nodes.append(Loop(v, tile, None, True, "PE", "X"))
            fanout = -(-extents[v] // tile)
            extents[v] = tile
        if held:
            nodes.append(StorageNode(component, held))
        nodes += draw(loops(extents, 2))
    nodes.append(ComputeNode("Z", "MAC"))
    actions: dict[str, list[SparseOptimization]] = {}
    for component in ("DRAM", "GLB", "RF"):
        for target in TENSORS:
            if draw(st.integers(0, 3)) == 0:
                leaders = draw(st.sampled_from([("A",), ("B",), ("A", "B")]))
                kind = draw(st.sampled_from(["gate", "skip"]))
                actions.setdefault(component, []).append(rule(kind, (target,), leaders))
    if draw(st.booleans()):
        actions["MAC"] = [
            rule(draw(st.sampled_from(["gate", "skip"])), (), draw(st.sampled_from([("A",), ("A", "B")])))
        ]
    tree = LoopTree(tuple(nodes))
    return Problem(
        product_of(projections, sizes), hierarchy({c: tuple(a) for c, a in actions.items()}, fanout), tree
    )
