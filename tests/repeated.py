"""Hypothesis strategy for mappings in which loops execute an Einsum all over again in each iteration."""

from __future__ import annotations

from hypothesis import assume
from hypothesis import strategies as st

from polymodel.analysis.result import Problem
from polymodel.arithmetic import Affine
from polymodel.mapping.looptree import LoopTree, Node, Reuse, ties
from polymodel.workload.einsum import Cascade, Einsum, TensorAccess
from tests.fused import FusedDrawing
from tests.generators import Above, if_legal
from tests.workloads import box, hull

POINTS = 150
# What a loop above the split is over, what is executed again below it, and what reads its result outside.
DRIVERS = ("D[m,n]=A[m,n]", "D[m,n]=A[m,k]*B[k,n]", "D[m]=A[m,n]", "D[m,n]=A[m+n]")
AGAIN = (
    "S[p]=U[p,q]",
    "S[p,q]=U[p,q]",
    "S[p]=U[p+q]",
    "S[m,p]=U[m,p,q]",
    "S[m]=U[m,q]",
    "S[p]=U[p,q]*D[m,n]",
)
READERS = ("", "", "R[p]=S*V[p]", "R[q]=S*V[q]")


def _einsum(text: str, name: str, output: tuple[str, ...], sizes: dict[str, int]) -> Einsum:
    """An Einsum from its text; `S` alone is the result of the one before, indexed as that is."""
    forms: list[tuple[str, tuple[Affine, ...], bool]] = []
    left, right = text.split("=")
    for k, form in enumerate([*right.split("*"), left]):
        tensor, _, inside = form.rstrip("]").partition("[")
        indices = inside.split(",") if inside else list(output)
        projection = tuple(
            sum((Affine.variable(v) for v in i.split("+")[1:]), Affine.variable(i.split("+")[0]))
            for i in indices
        )
        forms.append((tensor, projection, k == len(right.split("*"))))
    accesses = tuple(
        TensorAccess(t, tuple(f"R{n}" for n in range(len(x))), x, output=out) for t, x, out in forms
    )
    variables = tuple(dict.fromkeys(v for a in accesses for v in a.variables))
    ranges = {v: (0, sizes[v] - 1) for v in variables}
    count, bounds = hull(variables, box(ranges), ranges)
    assume(bounds is not None and count <= POINTS)
    return Einsum(name, variables, box(ranges), accesses, bounds)


@st.composite
def cascades(draw: st.DrawFn) -> Cascade:
    """An Einsum that loops bind, one with none or few of its variables, perhaps a reader of the latter."""
    sizes = {v: draw(st.integers(1, 3)) for v in "mnkpq"}
    driver = _einsum(draw(st.sampled_from(DRIVERS)), "D", (), sizes)
    text = draw(st.sampled_from(AGAIN))
    if "D" in text:
        made = driver.outputs[0].projection
        text = text.replace("D[m,n]", f"D[{','.join(map(str, made))}]")
    again = _einsum(text, "S", (), sizes)
    pair = [driver, again] if "D" in text or draw(st.booleans()) else [again, driver]
    reader = draw(st.sampled_from(READERS))
    if reader:
        output = tuple(map(str, again.outputs[0].projection))
        pair.append(_einsum(reader, "R", output, sizes))
    return Cascade(tuple(pair))


class RepeatedDrawing(FusedDrawing):
    """Storage and loops in turns above the splits, loops over variables of any Einsum below."""

    def policy(self) -> Reuse:
        return self.draw(st.sampled_from(["refill", "slide", "keep_previous", "keep_previous"]))

    def loop(self, group: tuple[Einsum, ...], above: Above) -> list[Node]:
        if len(group) > 1 and self.draw(st.booleans()):
            return super().loop(tuple(reversed(group)), above)
        return super().loop(group, above)


def repeats(problem: Problem) -> bool:
    """True if some loop executes an Einsum again."""
    tied = [ties(problem.cascade, problem.tree, e) for e in problem.tree.einsums]
    return any("repeated" in found.values() for found in tied)


@st.composite
def lawless_repeated(draw: st.DrawFn) -> Problem:
    """A small problem as drawn, its dependences kept or not."""
    cascade = draw(cascades())
    drawing = RepeatedDrawing(draw, cascade, False)
    return Problem(cascade, drawing.hierarchy(), LoopTree(drawing.whole()))


@st.composite
def repeated_problems(draw: st.DrawFn) -> Problem:
    """A small legal problem in which some loop executes an Einsum again."""
    problem = draw(lawless_repeated())
    assume(repeats(problem))
    return if_legal(problem)
