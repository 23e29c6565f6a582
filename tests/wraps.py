"""Hypothesis strategy for boxes with sliding windows, kept over the wraps of inner loops."""

from __future__ import annotations

from hypothesis import assume
from hypothesis import strategies as st

from polymodel.analysis.result import Problem
from polymodel.architecture.hierarchy import Hierarchy
from polymodel.mapping.looptree import Loop, LoopTree, Node
from polymodel.reuse import Reuse
from polymodel.workload.einsum import Cascade, Einsum
from tests.analysis.small import einsum
from tests.generators import Above, Drawing, legal

WINDOWS = (
    ("I[p+r]", "F[r,m]", "O[p,m]"),
    ("I[2p+r,c]", "F[r,c]", "O[p]"),
    ("I[p+2r]", "F[r,m]", "O[p,m]"),
    ("I[3p+2r]", "F[r]", "O[p]"),
    ("I[3p+r,m]", "F[r]", "O[p,m]"),
    ("I[2p+4r]", "F[r]", "O[p,m]"),
    ("I[p+r,q+s]", "F[r,s]", "O[p,q]"),
    ("A[m]", "B[n,k]", "C[m+n]"),
    ("A[m,k]", "B[k,n]", "C[m,n]"),
)
CHAINS = (
    (("I[p+r]", "F[r,m]", "T[p,m]"), ("T[p,m]", "B[m]", "O[p,m]")),
    (("A[m,k]", "B[k]", "T[m,k]"), ("T[m,k]", "X[j+k]", "O[m,j]")),
)


@st.composite
def boxes(draw: st.DrawFn, fused: bool) -> Cascade:
    shapes = draw(st.sampled_from(CHAINS)) if fused else (draw(st.sampled_from(WINDOWS)),)
    letters = dict.fromkeys(c for forms in shapes for form in forms for c in form if c.islower())
    most = 7 if len(letters) < 4 else 4
    sizes: dict[str, int | tuple[int, int]] = {v: draw(st.integers(1, most)) for v in letters}
    return Cascade(tuple(einsum(f"E{i}", *forms, sizes=sizes) for i, forms in enumerate(shapes)))


class Wraps(Drawing):
    """Mostly temporal loops, one above the other, and tensors that stay from one visit to the next."""

    def __init__(self, draw: st.DrawFn, cascade: Cascade, spatial: int) -> None:
        super().__init__(draw, cascade, True)
        self.spatial = spatial

    def policy(self) -> Reuse:
        return self.draw(st.sampled_from(["keep_previous", "keep_previous", "keep_previous", "slide"]))

    def spatial_slot(
        self, group: tuple[Einsum, ...], names: dict[str, str], above: Above
    ) -> tuple[str, str] | None:
        return super().spatial_slot(group, names, above) if self.chance(self.spatial) else None

    def loop(self, group: tuple[Einsum, ...], above: Above) -> list[Node]:
        found: list[Node] = []
        for _ in range(self.draw(st.integers(1, 3))):
            found += super().loop(group, above)
        return [n for n in found if not (isinstance(n, Loop) and n.uneven)]

    def hierarchy(self) -> Hierarchy:
        self.simple = False
        return super().hierarchy()


@st.composite
def wrapping_problems(draw: st.DrawFn, spatial: int = 0, fused: bool = False) -> Problem:
    """A small legal problem; `spatial`: tenths of the loops that may be spatial."""
    cascade = draw(boxes(fused))
    drawing = Wraps(draw, cascade, spatial)
    tree = LoopTree(drawing.whole())
    problem = Problem(cascade, drawing.hierarchy(), tree)
    assume(legal(problem) is None)
    return problem
