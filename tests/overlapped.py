"""Hypothesis strategy for pipelines: splits that overlap, mostly below a loop, a compute unit per Einsum."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import strategies as st

from polymodel.analysis.result import Problem
from polymodel.architecture.hierarchy import Component, Hierarchy
from polymodel.mapping.looptree import ComputeNode, Loop, LoopTree, Node, Split
from polymodel.workload.einsum import Einsum
from tests.fused import FusedDrawing, chains
from tests.generators import Above, Drawing
from tests.workloads import cascades


class Overlapping(Drawing):
    """As any drawing, with loops above most splits."""

    def below(self, group: tuple[Einsum, ...], above: Above) -> tuple[Node, ...]:
        first = self.loop(group, above) if len(group) > 1 and self.chance(8) else []
        return (*first, *super().below(group, above))


class OverlappingFused(Overlapping, FusedDrawing):
    """The same for chains whose loops bind only some Einsums."""


@st.composite
def lawless_overlapped(draw: st.DrawFn, fused: bool = False, simple: bool = False) -> Problem:
    """A small problem with most of its splits as pipelines, its dependences kept or not."""
    cascade = draw(chains() if fused else cascades(simple=simple))
    drawing = (OverlappingFused if fused else Overlapping)(draw, cascade, simple)
    nodes = drawing.whole()
    names = [e.name for e in cascade.einsums]
    tree = LoopTree(_overlapped(draw, nodes, names))
    hierarchy = drawing.hierarchy()
    last = hierarchy.components[-1]
    # The first unit has the fanout of all: the others stand below it.
    units = [replace(last, name="MAC0"), *(Component(f"MAC{k}", "compute") for k in range(1, len(names)))]
    return Problem(cascade, Hierarchy((*hierarchy.components[:-1], *units)), tree)


def _overlapped(draw: st.DrawFn, nodes: tuple[Node, ...], names: list[str]) -> tuple[Node, ...]:
    found: list[Node] = []
    for node in nodes:
        if isinstance(node, ComputeNode):
            node = replace(node, component=f"MAC{names.index(node.einsum)}")
        elif isinstance(node, Loop) and node.component == "MAC":
            node = replace(node, component="MAC0")
        elif isinstance(node, Split):
            branches = tuple(_overlapped(draw, b, names) for b in node.branches)
            node = Split(branches, draw(st.integers(0, 9)) < 8)
        found.append(node)
    return tuple(found)
