"""Hypothesis strategies for small cascades: the shapes of access and space that engines must handle."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction
from itertools import product

from hypothesis import assume
from hypothesis import strategies as st

from polymodel.arithmetic import Affine, Constraint
from polymodel.workload.einsum import Cascade, Einsum, TensorAccess

POINTS = 200

Form = tuple[str, tuple[str, ...]]  # tensor and its index expressions


def index(text: str) -> Affine:
    """`p`, `2p+r`, `m-n+3`: single-letter coefficients before a name, signs between terms."""
    total = Affine()
    for part in text.replace("-", "+-").split("+"):
        if not part:
            continue
        sign, body = (-1, part[1:]) if part[0] == "-" else (1, part)
        digits = len(body) - len(body.lstrip("0123456789"))
        factor, name = int(body[:digits] or 1), body[digits:]
        term = Affine.variable(name).scaled(sign * factor) if name else Affine((), sign * factor)
        total = total + term
    return total


@dataclass(frozen=True)
class Sketch:
    """An Einsum before its variables have sizes; the last form is the output."""

    name: str
    forms: tuple[Form, ...]
    is_copy: bool = False


def sketch(name: str, *forms: str, is_copy: bool = False) -> Sketch:
    parsed = []
    for form in forms:
        tensor, rest = form.rstrip("]").split("[")
        parsed.append((tensor, tuple(rest.split(","))))
    return Sketch(name, tuple(parsed), is_copy)


def matmul() -> tuple[Sketch, ...]:
    return (sketch("E0", "A[m,k]", "B[k,n]", "C[m,n]"),)


def single_forms() -> dict[str, tuple[Sketch, ...]]:
    """One Einsum each: every kind of projection."""
    return {
        "matmul": matmul(),
        "matvec": (sketch("E0", "A[m,k]", "B[k]", "C[m]"),),
        "halo": (sketch("E0", "I[p+r]", "F[r,m]", "O[p,m]"),),
        "stride": (sketch("E0", "I[2p+r]", "F[r,m]", "O[p,m]"),),
        "holes": (sketch("E0", "I[3p+r,c]", "F[r,c]", "O[p]"),),
        "dilation": (sketch("E0", "I[p+2r]", "F[r]", "O[p]"),),
        "conv2d": (sketch("E0", "I[p+r,q+s]", "F[r,s]", "O[p,q]"),),
        "diagonal": (sketch("E0", "A[m,m]", "B[n]", "C[m,n]"),),
        "skew": (sketch("E0", "A[m+n]", "B[m-n+3]", "C[m,n]"),),
        "skewed output": (sketch("E0", "A[m]", "B[n]", "C[m+n]"),),
    }


def cascade_forms() -> dict[str, tuple[Sketch, ...]]:
    """Two or three Einsums: chains, shared inputs, copies."""
    return {
        "chain": (
            sketch("E0", "T0[m,a]", "W0[a,b]", "T1[m,b]"),
            sketch("E1", "T1[m,b]", "W1[b,c]", "T2[m,c]"),
        ),
        "elementwise": (
            sketch("E0", "I[p+r]", "F[r,m]", "T1[p,m]"),
            sketch("E1", "T1[p,m]", "B[m]", "T2[p,m]"),
        ),
        "two convs": (
            sketch("E0", "I[p+r]", "F[r]", "T1[p]"),
            sketch("E1", "T1[q+s]", "G[s]", "T2[q]"),
        ),
        "renamed": (
            sketch("E0", "A[m,k]", "B[k]", "T1[m]"),
            sketch("E1", "T1[x]", "D[x,y]", "T2[x,y]"),
        ),
        "chain of 3": (
            sketch("E0", "T0[m,a]", "T1[m,a]"),
            sketch("E1", "T1[m,a]", "W1[a,b]", "T2[m,b]"),
            sketch("E2", "T2[m,b]", "T1[m,d]", "T3[m,d]"),
        ),
        "shared input": (
            sketch("E0", "X[m,k]", "V[k,n]", "Q[m,n]"),
            sketch("E1", "X[m,k]", "W[k,o]", "R[m,o]"),
        ),
        "attention": (
            sketch("E0", "X[m,k]", "V[k,n]", "Q[m,n]"),
            sketch("E1", "Q[m,n]", "K[l,n]", "S[m,l]"),
            sketch("E2", "S[m,l]", "U[l,e]", "O[m,e]"),
        ),
        "copy": (
            sketch("E0", "I[m,k]", "A[m,k]", is_copy=True),
            sketch("E1", "A[m,k]", "B[k,n]", "C[m,n]"),
        ),
        "diagonal consumer": (
            sketch("E0", "A[m,k]", "B[k,n]", "T1[m,n]"),
            sketch("E1", "T1[m,m]", "D[m,j]", "T2[j]"),
        ),
    }


@st.composite
def _sizes(draw: st.DrawFn, sketches: tuple[Sketch, ...]) -> dict[str, tuple[int, int]]:
    """An inclusive range for each rank variable, so that producers cover what consumers read."""
    names = dict.fromkeys(v for s in sketches for _, f in s.forms for x in f for v in index(x).variables)
    widths = (3, 4, 2, 5, 6, 1) if len(names) <= 3 else (3, 2, 4, 1) if len(names) <= 5 else (2, 3, 1)
    ranges: dict[str, tuple[int, int]] = {}
    for name in names:
        low = draw(st.sampled_from([0] * 8 + [1, -1]))
        ranges[name] = (low, low + draw(st.sampled_from(widths)) - 1)
    if {"p", "r", "q", "s"} <= set(names) and len(sketches) == 2:
        ranges["p"] = (ranges["q"][0] + ranges["s"][0], ranges["q"][1] + ranges["s"][1])
    if {"p", "g"} <= set(names):
        ranges["g"] = (ranges["p"][0] + 1, ranges["p"][1] + 1)
    if {"x", "q"} <= set(names) and len(sketches) == 2:
        ranges["x"] = (ranges["q"][0], ranges["q"][1] + 1)
    for wide, needed in (("m", "x"), ("n", "m"), ("a", "d")):
        if needed in names and wide in names and len(sketches) > 1 and (wide != "n" or "j" in names):
            ranges[wide] = ranges[needed]
    return ranges


def box(ranges: dict[str, tuple[int, int]]) -> tuple[Constraint, ...]:
    """`low <= v <= high` for each rank variable."""
    sides = []
    for name, (low, high) in ranges.items():
        sides.append(Constraint(Affine(((name, 1),), -low)))
        sides.append(Constraint(Affine(((name, -1),), high)))
    return tuple(sides)


def hull(variables: tuple[str, ...], constraints: tuple[Constraint, ...], ranges: dict[str, tuple[int, int]]):
    """Number of points and the tight bounding box (None if there is no point)."""
    found = []
    for values in product(*(range(ranges[v][0], ranges[v][1] + 1) for v in variables)):
        if all(c.holds(dict(zip(variables, values, strict=True))) for c in constraints):
            found.append(values)
    return len(found), tuple((min(c), max(c)) for c in zip(*found, strict=True)) if found else None


@st.composite
def _extra(draw: st.DrawFn, variables: tuple[str, ...], chained: bool) -> tuple[Constraint, ...]:
    """Sometimes a triangular or a periodic restriction of the iteration space."""
    if len(variables) < 2 or draw(st.integers(0, 9)) >= (2 if chained else 4):
        return ()
    a, b = draw(st.permutations(variables))[:2]
    kind = draw(st.sampled_from(["triangle", "band", "mod"]))
    if kind == "triangle":
        return (Constraint(Affine(((a, 1), (b, -1)), draw(st.integers(0, 1)))),)
    if kind == "band":
        return (
            Constraint(Affine(((a, 1), (b, -1)), 1)),
            Constraint(Affine(((a, -1), (b, 1)), 1)),
        )
    return (Constraint(Affine(((a, 1), (b, 1)), draw(st.integers(0, 1))), "mod", 2),)


@st.composite
def _narrower(
    draw: st.DrawFn, variables: tuple[str, ...], kept: tuple[str, ...], ranges: dict[str, tuple[int, int]]
) -> dict[str, tuple[int, int]]:
    """The ranges of one Einsum's variables, sometimes cut at either end; those in `kept` stay."""
    found = {v: ranges[v] for v in variables}
    if draw(st.integers(0, 9)) >= 4:
        return found
    for v in variables:
        low, high = found[v]
        if v not in kept and high > low:
            end = draw(st.integers(0, 3))
            found[v] = (low + (end == 1), high - (end == 2))
    return found


def several_access_forms() -> dict[str, tuple[Sketch, ...]]:
    """Einsums that read one tensor several times: squares, stencils, Gram matrices, and their producers."""
    return {
        "square": (sketch("E0", "A[m,k]", "A[m,k]", "C[m]"),),
        "stencil": (sketch("E0", "A[x]", "A[x+2]", "C[x]"),),
        "stencil of 2 ranks": (sketch("E0", "A[x+1,y]", "A[x,y+1]", "A[x,y]", "C[x,y]"),),
        "Gram": (sketch("E0", "A[m,k]", "A[n,k]", "C[m,n]"),),
        "Gram of three": (sketch("E0", "A[m]", "A[n]", "A[k+1]", "C[m,k]"),),
        "Gram of two ranks": (sketch("E0", "A[m,x]", "A[n,y]", "C[m,y]"),),
        "Gram of an intermediate": (
            sketch("E0", "A[m,k]", "T1[m]"),
            sketch("E1", "T1[m]", "T1[n]", "T2[m,n]"),
        ),
        "windows": (sketch("E0", "I[p+r]", "F[r]", "I[2p]", "O[p]"),),
        "transposed": (sketch("E0", "A[m,n]", "A[n,m]", "C[m,n]"),),
        "stencil of an intermediate": (
            sketch("E0", "A[x,k]", "T1[x]"),
            sketch("E1", "T1[q]", "T1[q+1]", "T2[q]"),
        ),
        "shared by two": (
            sketch("E0", "A[m,k]", "A[m,k]", "T1[m]"),
            sketch("E1", "T1[m]", "A[m,k]", "T2[m,k]"),
        ),
    }


def stencil_forms() -> dict[str, tuple[Sketch, ...]]:
    """What reads neighbours of the generations before, beyond edges of other ranks as well."""
    return {
        "stencil in time": (sketch("E0", "U[p,x]", "U[p,x+2]", "U[p+1,x+1]"),),
        "stencil of three points": (sketch("E0", "U[p,x]", "U[p,x+1]", "U[p,x+2]", "U[p+1,x+1]"),),
        "wave": (sketch("E0", "U[p,x+1]", "U[p-1,x+1]", "U[p,x]", "U[p,x+2]", "U[p+1,x+1]"),),
        "upwind": (sketch("E0", "U[p,x]", "U[p,x+1]", "A[x]", "U[p+1,x+1]"),),
        "stencil of 2 ranks in time": (sketch("E0", "U[p,x,y]", "U[p,x+1,y+1]", "U[p+1,x+1,y+1]"),),
        "wavefront": (sketch("E0", "H[p,y+1]", "H[p+1,y]", "H[p+1,y+1]"),),
        "wavefront of three": (sketch("E0", "H[p,y+1]", "H[p+1,y]", "H[p,y]", "X[p,y]", "H[p+1,y+1]"),),
    }


def recurrence_forms() -> dict[str, tuple[Sketch, ...]]:
    """Cascades that carry tensors from one iteration to the next: alone, in cycles, with readers."""
    return {
        **stencil_forms(),
        "prefix sum": (sketch("E0", "S[p]", "A[p]", "S[p+1]"),),
        "scan of sums": (sketch("E0", "S[p,m]", "A[p,k]", "S[p+1,m]"),),
        "lag of 2": (sketch("E0", "S[p+1]", "S[p]", "A[p]", "S[p+2]"),),
        "lags of 1 and 3": (sketch("E0", "S[p+2]", "S[p]", "A[p]", "S[p+3]"),),
        "shift of 2": (sketch("E0", "S[p,m]", "A[p,m]", "S[p+2,m]"),),
        "reader of two generations": (
            sketch("E0", "S[p,m]", "A[p,m]", "S[p+1,m]"),
            sketch("E1", "S[p,m]", "S[p-1,m]", "D[p,m]"),
        ),
        "backwards index": (sketch("E0", "S[p-1,m]", "A[p,m]", "S[p,m]"),),
        "cycle of 2": (
            sketch("E0", "X[p,m]", "A[p,m]", "Y[p,m]"),
            sketch("E1", "Y[p,m]", "B[m]", "X[p+1,m]"),
        ),
        "cycle of 3": (
            sketch("E0", "X[p,m]", "A[p]", "Y[p,m]"),
            sketch("E1", "Y[p,m]", "Z[p]"),
            sketch("E2", "Z[p]", "B[m]", "X[p+1,m]"),
        ),
        "cycle of 4": (
            sketch("E0", "X[p,m]", "A[p]", "Y[p,m]"),
            sketch("E1", "Y[p,m]", "X[p,m]", "Z[p,m]"),
            sketch("E2", "Z[p,m]", "B[m]", "V[p]"),
            sketch("E3", "V[p]", "Z[p,m]", "X[p+1,m]"),
        ),
        "cycle of 2 with neighbours": (
            sketch("E0", "U[p,x]", "U[p,x+2]", "W[p,x+1]"),
            sketch("E1", "W[p,x+1]", "U[p,x+1]", "A[x]", "U[p+1,x+1]"),
        ),
        "cycle of 2 over two generations": (
            sketch("E0", "X[p+1]", "X[p]", "A[p,k]", "Y[p]"),
            sketch("E1", "Y[p]", "X[p+1]", "X[p+2]"),
        ),
        "square of a running value": (sketch("E0", "R[p,m]", "R[p,m]", "A[p,m]", "A[p,m]", "R[p+1,m]"),),
        "what is added up of a running value": (
            sketch("E0", "R[p,m]", "A[p,m]", "R[p+1,m]"),
            sketch("E1", "R[p+1,m]", "B[m,f]", "Z[f]"),
        ),
        "running value and its reader": (
            sketch("E0", "R[p,m]", "A[p,m]", "R[p+1,m]"),
            sketch("E1", "R[p,m]", "R[p+1,m]", "D[p,m]"),
        ),
        "read afterwards": (
            sketch("E0", "R[p,m]", "A[p,k]", "R[p+1,m]"),
            sketch("E1", "R[g,m]", "D[g]"),
        ),
        "two running values": (
            sketch("E0", "R[p]", "A[p,m]", "R[p+1]"),
            sketch("E1", "R[p]", "R[p+1]", "Q[p]", "T1[p]"),
            sketch("E2", "T1[p]", "C[p,m]", "Q[p+1]"),
        ),
    }


def delay_forms() -> dict[str, tuple[Sketch, ...]]:
    """Cascades in which a later Einsum alone reads S of iterations before the first one that makes it."""
    return {
        "delay of 1": (
            sketch("E0", "A[p,m]", "B[m]", "S[p+1,m]"),
            sketch("E1", "S[p,m]", "A[p,m]", "D[p,m]"),
        ),
        "delay of 2": (
            sketch("E0", "A[p,k]", "S[p+2]"),
            sketch("E1", "S[p]", "C[p,m]", "D[m]"),
        ),
        "filter of 2 taps": (
            sketch("E0", "A[p,m]", "S[p+1,m]"),
            sketch("E1", "S[p,m]", "S[p+1,m]", "D[p,m]"),
        ),
        "delay in a chain": (
            sketch("E0", "A[p]", "S[p+1]"),
            sketch("E1", "S[p]", "B[p]", "T[p]"),
            sketch("E2", "S[p]", "T[p]", "D[p]"),
        ),
        "delay of another index": (
            sketch("E0", "A[p,m]", "S[p+1,m]"),
            sketch("E1", "S[g,m]", "D[g]"),
        ),
        "delay and running value": (
            sketch("E0", "R[p]", "A[p]", "R[p+1]"),
            sketch("E1", "R[p]", "B[p,m]", "S[p+1,m]"),
            sketch("E2", "S[p,m]", "D[p,m]"),
        ),
    }


@st.composite
def cascades(
    draw: st.DrawFn, simple: bool = False, given: Mapping[str, tuple[Sketch, ...]] | None = None
) -> Cascade:
    """A cascade of 1 to 3 Einsums with at most POINTS points in all. `given`: of these forms only."""
    if given is not None:
        sketches = given[draw(st.sampled_from(sorted(given)))]
    elif simple:
        sketches = draw(st.sampled_from([matmul(), single_forms()["halo"], cascade_forms()["chain"]]))
    else:
        forms = draw(st.sampled_from([single_forms(), cascade_forms(), cascade_forms()]))
        sketches = forms[draw(st.sampled_from(sorted(forms)))]
    ranges = draw(_sizes(sketches))
    widths = {t: draw(st.sampled_from([1, 8, 16])) for s in sketches for t, _ in s.forms}
    instances = draw(st.sampled_from([1, 1, 1, 2]))
    outputs = {s.forms[-1][0] for s in sketches}
    inputs = sorted({t for s in sketches for t, _ in s.forms} - outputs)
    lasting = set() if simple else {t for t in inputs if draw(st.integers(0, 9)) == 0}
    scale = Fraction(1) if simple else draw(st.sampled_from([Fraction(1)] * 6 + [Fraction(3, 2)]))
    einsums, total = [], 0
    for s in sketches:
        accesses = tuple(
            TensorAccess(
                tensor,
                tuple(f"R{i}" for i in range(len(forms))),
                tuple(index(x) for x in forms),
                output=(tensor, forms) == s.forms[-1],
                bits_per_value=widths[tensor],
                persistent=tensor in lasting,
                backing_scale=scale,
            )
            for tensor, forms in s.forms
        )
        variables = tuple(dict.fromkeys(v for a in accesses for v in a.variables))
        own = {v: ranges[v] for v in variables}
        if not simple and len(sketches) > 1 and not s.is_copy:
            read_later = any(s.forms[-1][0] == t for other in sketches for t, _ in other.forms[:-1])
            own = draw(_narrower(variables, accesses[-1].variables if read_later else (), ranges))
        limits = box(own)
        if not simple and not s.is_copy:
            limits += draw(_extra(variables, len(sketches) > 1))
        count, bounds = hull(variables, limits, own)
        assume(bounds is not None)
        total += count
        einsums.append(Einsum(s.name, variables, limits, accesses, bounds, s.is_copy, instances))
    assume(total <= POINTS)
    return Cascade(tuple(einsums))


__all__ = ["POINTS", "box", "cascades", "hull", "index"]
