"""Hypothesis strategies for mappings in which many loops have a first tile of a size of its own."""

from __future__ import annotations

from hypothesis import assume
from hypothesis import strategies as st

from polymodel.analysis.result import Problem
from polymodel.mapping.looptree import Loop, LoopTree
from tests.fused import chains
from tests.generators import Drawing, if_legal
from tests.separable import SeparableDrawing
from tests.workloads import cascades


class FirstTiles(Drawing):
    """Over boxes."""

    def first_tile(self, extent: int) -> int | None:
        return self.draw(st.integers(1, extent)) if self.chance(4) else None


class FusedFirstTiles(FirstTiles, SeparableDrawing):
    """Of chains with halos; loops above splits bind the last Einsum below them."""


@st.composite
def first_tile_problems(draw: st.DrawFn) -> Problem:
    """A small legal problem over boxes, or a fused chain, with a first tile of its own in some loop."""
    fused = draw(st.integers(0, 2)) == 0
    cascade = draw(chains() if fused else cascades(simple=True))
    drawing = (FusedFirstTiles if fused else FirstTiles)(draw, cascade, fused or draw(st.booleans()))
    tree = LoopTree(drawing.whole())
    problem = Problem(cascade, drawing.hierarchy(), tree)
    assume(first_tiles(problem))
    return if_legal(problem)


def first_tiles(problem: Problem) -> int:
    """How many loops have a first tile of a size of its own."""
    loops = [n for _, n, _ in problem.tree.walk() if isinstance(n, Loop)]
    return sum(n.initial_tile_shape not in (None, n.tile_shape) for n in loops)
