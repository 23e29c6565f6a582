"""Hypothesis strategy for fused chains whose shared loops bind only some of the Einsums below them."""

from __future__ import annotations

from hypothesis import assume
from hypothesis import strategies as st

from polymodel.analysis.result import Problem
from polymodel.arithmetic import Affine
from polymodel.mapping.looptree import Loop, LoopTree, Node
from polymodel.workload.einsum import Cascade, Einsum, TensorAccess
from tests.generators import LEVEL, Above, Drawing, if_legal
from tests.workloads import box, hull

POINTS = 300
# Per stage: how its input is indexed by its own variables, its weights, its output.
STAGES: dict[str, tuple[str, str, str]] = {
    "conv": ("{s}*p{i}+r{i}", "r{i}", "p{i}"),
    "conv channels": ("{s}*p{i}+r{i},c{i}", "r{i},c{i},m{i}", "p{i},m{i}"),
    "pool": ("{s}*p{i}+r{i},m{i}", "", "p{i},m{i}"),
    "matmul": ("p{i},c{i}", "c{i},m{i}", "p{i},m{i}"),
    "conv2d": ("{s}*p{i}+r{i},q{i}+s{i}", "r{i},s{i}", "p{i},q{i}"),
    "dilated": ("p{i}+2*r{i},m{i}", "r{i}", "p{i},m{i}"),
    "copy out": ("p{i},m{i}", "m{i}", "p{i},m{i}"),
}
FLAT = ("conv",)
PLANE = ("conv2d",)
DEEP = ("conv channels", "pool", "matmul", "dilated", "copy out")


def expression(text: str) -> Affine:
    total = Affine()
    for term in text.split("+"):
        factor, _, name = term.rpartition("*")
        total = total + Affine.variable(name).scaled(int(factor or 1))
    return total


def ranks(text: str) -> tuple[Affine, ...]:
    return tuple(expression(x) for x in text.split(",")) if text else ()


def reach(expr: Affine, sizes: dict[str, int]) -> int:
    return 1 + sum(c * (sizes[v] - 1) for v, c in expr.terms)


@st.composite
def chains(draw: st.DrawFn) -> Cascade:
    """2 to 4 Einsums in a chain with halos, strides, dilation; sometimes a first input that all read."""
    kinds = draw(st.sampled_from([FLAT, PLANE, DEEP, DEEP]))
    length = draw(st.sampled_from([2, 2, 3, 3, 4] if kinds is not PLANE else [2, 2, 3]))
    stages = [draw(st.sampled_from(kinds)) for _ in range(length)]
    sizes: dict[str, int] = {}
    einsums: list[Einsum] = []
    wanted: tuple[int, ...] | None = None
    total = 0
    for i in reversed(range(length)):
        texts = [t.format(i=i, s=draw(st.sampled_from([1, 1, 2]))) for t in STAGES[stages[i]]]
        source, weights, output = (ranks(t) for t in texts)
        for k, expr in enumerate(output):
            name = expr.variables[0]
            extra = 0 if wanted is None else draw(st.sampled_from([0, 0, 0, 1]))
            sizes[name] = draw(st.integers(2, 5)) if wanted is None else wanted[k] + extra
        for expr in (*source, *weights):
            for name in expr.variables:
                sizes.setdefault(name, draw(st.integers(1, 3)))
        wanted = tuple(reach(expr, sizes) for expr in source)
        forms = [(f"T{i}", source, False), (f"T{i + 1}", output, True)]
        if weights:
            forms.insert(1, (f"W{i}", weights, False))
        accesses = tuple(
            TensorAccess(t, tuple(f"R{n}" for n in range(len(x))), x, output=out) for t, x, out in forms
        )
        variables = tuple(dict.fromkeys(v for a in accesses for v in a.variables))
        ranges = {v: (0, sizes[v] - 1) for v in variables}
        count, bounds = hull(variables, box(ranges), ranges)
        total += count
        assume(bounds is not None and total <= POINTS)
        einsums.insert(0, Einsum(f"E{i}", variables, box(ranges), accesses, bounds))
    return Cascade(tuple(einsums))


class FusedDrawing(Drawing):
    """Loops above a split bind variables of its last Einsum, or of any."""

    def loop(self, group: tuple[Einsum, ...], above: Above) -> list[Node]:
        if len(group) == 1 or self.chance(1):
            return super().loop(group, above)
        leader = group[-1] if self.chance(8) else self.draw(st.sampled_from(group))
        name = self.draw(st.sampled_from(leader.rank_variables))
        bound = [e for e in group if name in e.rank_variables]
        hulls = [e.bound(name) for e in bound]
        width = max(h for _, h in hulls) - min(low for low, _ in hulls) + 1
        extent = above.extent.get((leader.name, name), width)
        if extent == 1 and self.chance(8):
            return []
        tile = self.draw(st.integers(1, extent))
        initial = self.draw(st.integers(1, extent)) if self.chance(1) else None
        trips = 1 + -(-max(extent - (initial or tile), 0) // tile)
        where = None
        if self.chance(2) and LEVEL["PE"] > max(above.deepest_storage, above.deepest_spatial - 1):
            where = ("PE", "X")
        for e in bound:
            above.extent[e.name, name] = min(extent, max(tile, initial or 0))
        if where is None:
            return [Loop(name, tile, initial)]
        above.deepest_spatial = max(above.deepest_spatial, LEVEL["PE"])
        above.trips[where] = above.trips.get(where, 1) * trips
        self.fanout[where] = max(self.fanout.get(where, 1), above.trips[where])
        for e in bound:
            self.reduced.setdefault(where, set()).update(
                (e.name, a.tensor) for a in e.outputs if name not in a.variables
            )
        return [Loop(name, tile, initial, True, *where)]


@st.composite
def lawless_fused(draw: st.DrawFn) -> Problem:
    """A fused chain as drawn, its dependences kept or not."""
    cascade = draw(chains())
    drawing = FusedDrawing(draw, cascade, False)
    tree = LoopTree(drawing.whole())
    return Problem(cascade, drawing.hierarchy(), tree)


@st.composite
def fused_problems(draw: st.DrawFn) -> Problem:
    """A small legal problem in which some loop binds only some of the Einsums below it."""
    return if_legal(draw(lawless_fused()))
