"""Hypothesis strategy for fused chains that mostly have closed forms: loops bind the last Einsum."""

from __future__ import annotations

from typing import cast

from hypothesis import strategies as st

from polymodel.analysis.result import Problem
from polymodel.architecture.hierarchy import Hierarchy
from polymodel.mapping.looptree import Loop, LoopTree, Node
from polymodel.reuse import Reuse
from polymodel.workload.einsum import Einsum
from tests.fused import chains
from tests.generators import Above, Drawing, if_legal


class SeparableDrawing(Drawing):
    """Shared loops are temporal, without other first tiles, and bind the last Einsum below them."""

    def policy(self) -> Reuse:
        return cast(Reuse, self.draw(st.sampled_from(["refill", "refill", "slide", "keep_previous"])))

    def loop(self, group: tuple[Einsum, ...], above: Above) -> list[Node]:
        if len(group) == 1 or self.chance(1):
            return super().loop(group, above)
        leader = group[-1]
        moving = [v for v in leader.outputs[0].variables if v[0] in "pq"]
        name = self.draw(st.sampled_from(leader.rank_variables if self.chance(1) else moving))
        bound = [e for e in group if name in e.rank_variables]
        low, high = leader.bound(name)
        extent = above.extent.get((leader.name, name), high - low + 1)
        tile = self.draw(st.integers(1, extent))
        first = self.first_tile(extent)
        for e in bound:
            above.extent[e.name, name] = max(tile, first or 0)
        return [Loop(name, tile, first)]

    def hierarchy(self) -> Hierarchy:
        self.simple = False
        return super().hierarchy()


@st.composite
def separable_problems(draw: st.DrawFn) -> Problem:
    """A small legal fused chain; few have no closed form."""
    cascade = draw(chains())
    drawing = SeparableDrawing(draw, cascade, True)
    tree = LoopTree(drawing.whole())
    return if_legal(Problem(cascade, drawing.hierarchy(), tree))
