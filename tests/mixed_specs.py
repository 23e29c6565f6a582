"""Random legal specs of all kinds of iteration spaces: boxes, and what goes beyond them.

`legal(number, seed)` gives one: kind by kind in turn, drawn until `validate` has nothing against it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from random import Random

import polymodel as pm
from polymodel.errors import Refused, SpecError
from polymodel.schedule.legality import faults_of
from tests.specs import (
    Doc,
    Drawn,
    Stage,
    Workload,
    attention,
    mapped,
    products,
    shared_ranks,
    windows,
)

Make = Callable[[Random, int], Workload]
TRIES = 200  # drawings of one spec


def _chain(pick: Random, count: int, window: Callable[[Random], tuple[int, int, int, int]]) -> Workload:
    """Convolutions in a row; `window`: stride, dilation, and what is cut off at either end of the input."""
    deep = pick.random() < 0.4
    sizes = {f"P{count}": pick.randint(2, 4)}
    steps = [(1, 1, 0, 0), *(window(pick) for _ in range(count))]
    for i in range(count, 0, -1):
        stride, dilation, low, high = steps[i]
        sizes[f"R{i}"] = pick.randint(1, 3)
        reach = stride * (sizes[f"P{i}"] - 1) + dilation * (sizes[f"R{i}"] - 1) + 1
        low = min(low, reach - 1)
        high = min(high, reach - 1 - low)
        steps[i] = stride, dilation, low, high
        sizes[f"P{i - 1}"] = reach - low - high
    if deep:
        sizes["C"] = pick.randint(1, 3)
    stages = []
    tail = ", c" if deep else ""
    for i in range(1, count + 1):
        stride, dilation, low, _ = steps[i]
        own = f"p{i}"
        index = f"{stride}*{own} + {dilation}*r{i} - {low}"
        text = f"T{i}[{own}{tail}] = T{i - 1}[P{i - 1}={index}{tail}] * W{i}[r{i}]"
        names = (own, f"r{i}", *(("c",) if deep else ()))
        tensors = (f"T{i - 1}", f"W{i}", f"T{i}")
        output = (own, *(("c",) if deep else ()))
        stages.append(Stage(f"T{i}", text, {v: sizes[v.upper()] for v in names}, tensors, output))
    return Workload(tuple(stages), sizes)


def padded(pick: Random, count: int) -> Workload:
    """Convolutions whose windows reach beyond their input at one end or both."""

    def window(pick: Random) -> tuple[int, int, int, int]:
        return pick.choice([1, 1, 2]), 1, pick.randint(0, 2), pick.randint(0, 2)

    return _chain(pick, count, window)


def with_holes(pick: Random, count: int) -> Workload:
    """Convolutions with strides that leave out values, and with dilated windows."""

    def window(pick: Random) -> tuple[int, int, int, int]:
        return *pick.choice([(2, 1), (3, 1), (3, 2), (1, 2), (2, 2), (1, 3)]), 0, 0

    return _chain(pick, count, window)


def causal(pick: Random, count: int) -> Workload:
    """Attention below a diagonal, or in a band along it."""
    made = attention(pick, max(2, min(count, 3)))
    ahead = pick.choice([0, 0, 0, 1])
    sizes = {**made.sizes, "M": pick.randint(2, 5), "L": pick.randint(2, 5)}
    bound = f"l <= m + {ahead}"
    if pick.random() < 0.4:
        bound = f"m - {pick.randint(1, 2)} <= l <= m + {ahead}"
        sizes["M"] = min(sizes["M"], sizes["L"])
    names = {s.name: "".join(s.extents) for s in made.stages}
    return _sized(made.stages, names, sizes, {"iteration_space_shape": {"l": bound}})


def triangular(pick: Random, count: int) -> Workload:
    """A product with a triangular matrix or a band, perhaps of a product, perhaps scaled afterwards."""
    rows = pick.randint(2, 5)
    sizes = {"I": rows, "K": rows, "H": rows, "J": pick.randint(1, 3), "N": pick.randint(1, 3)}
    every = (
        Stage("B", "B[K=h, j] = A[h, n] * V[n, j]", {}, ("A", "V", "B"), ("h", "j")),
        Stage("C", "C[i, j] = L[i, k] * B[k, j]", {}, ("L", "B", "C"), ("i", "j")),
        Stage("D", "D[i, j] = C[i, j] * W[j]", {}, ("C", "W", "D"), ("i", "j")),
    )
    some = every[1:2] if count == 1 else pick.choice([every[:2], every[1:]]) if count == 2 else every
    names = {"B": "hjn", "C": "ijk", "D": "ij"}
    bound = pick.choice(["k <= i", "k <= i", "i <= k", "k < i + 2", "i - 1 <= k <= i + 1"])
    return _sized(some, names, sizes, {"iteration_space_shape": {"k": bound}})


def _sized(
    stages: tuple[Stage, ...], names: dict[str, str], sizes: dict[str, int], more: Doc | None = None
) -> Workload:
    """Stages with the extents of their rank variables, one letter each."""
    found = tuple(replace(s, extents={v: sizes[v.upper()] for v in names[s.name]}) for s in stages)
    used = {v.upper() for s in found for v in s.extents}
    return Workload(found, {rank: n for rank, n in sizes.items() if rank in used}, more or {})


def three_variables(pick: Random, count: int) -> Workload:
    """Ranks of three rank variables: windows over positions in chunks, or windows of windows; and positions
    in chunks under a causal mask."""
    return pick.choice([chunked, window_of_windows])(pick, count)


def chunked(pick: Random, count: int) -> Workload:
    """Positions told by a chunk and a place in it, to which the index of a window may be added; scores of
    them may be causal."""
    chunk = pick.randint(2, 3)
    sizes = {"X": pick.randint(1, 3), "Y": chunk, **{v: pick.randint(1, 3) for v in "NLRE"}}
    more: Doc = {}
    if pick.random() < 0.5:
        text, inner = f"S[x, y, n] = Q[M={chunk}*x+y+r, n] * W[r]", "n"
        first = Stage("S", text, {}, ("Q", "W", "S"), ("x", "y", "n"))
    else:
        text, inner = f"S[x, y, l] = Q[M={chunk}*x+y, n] * K[l, n]", "l"
        first = Stage("S", text, {}, ("Q", "K", "S"), ("x", "y", "l"))
        if pick.random() < 0.4:
            sizes["L"] = chunk * sizes["X"]
            more = {"iteration_space_shape": {"l": f"l <= {chunk}*x + y"}}
    text = f"O[x, y, e] = S[x, y, {inner}] * U[{inner}, e]"
    second = Stage("O", text, {}, ("S", "U", "O"), ("x", "y", "e"))
    names = {"S": "xynr" if inner == "n" else "xyln", "O": f"xy{inner}e"}
    return _sized((first,) if count == 1 else (first, second), names, sizes, more)


def window_of_windows(pick: Random, count: int) -> Workload:
    """A rank of three rank variables that all overlap, perhaps with a factor for each result."""
    step = pick.randint(1, 3)
    sizes = {
        "P": pick.randint(2, 4),
        "R": pick.randint(1, 3),
        "S": pick.randint(1, 3),
        "C": pick.randint(1, 2),
    }
    stages = (
        Stage("T", f"T[p, c] = A[I=p+{step}*s+r, c] * W[r, s]", {}, ("A", "W", "T"), ("p", "c")),
        Stage("Z", "Z[p, c] = T[p, c] * B[p]", {}, ("T", "B", "Z"), ("p", "c")),
    )
    return _sized(stages[: min(count, 2)], {"T": "pcrs", "Z": "pc"}, sizes)


def recurrent(pick: Random, count: int) -> Workload:
    """A running value over the generations p, of sums that are made before, perhaps read afterwards."""
    sizes = {"P": pick.randint(2, 4), "M": pick.randint(1, 3), "K": pick.randint(1, 3)}
    every = {
        "S": Stage("S", "S[p, m] = A[p, k] * W[k, m]", {}, ("A", "W", "S"), ("p", "m")),
        "R": Stage("R", "R[P=p+1, m] = R[p, m] * S[p, m]", {}, ("R", "S"), ("p", "m")),
        "O": Stage("O", "O[p, m] = R[P=p+1, m] * V[m]", {}, ("R", "V", "O"), ("p", "m")),
    }
    chosen = {1: "R", 2: pick.choice(["SR", "RO"])}.get(count, "SRO")
    stages = tuple(every[e] for e in chosen)
    return _sized(stages, {"S": "pmk", "R": "pm", "O": "pm"}, sizes, {"init": {"R": 1}})


KINDS: dict[str, Make] = {
    "products": products,
    "windows": windows,
    "attention": attention,
    "shared ranks": shared_ranks,
    "padding": padded,
    "strides and dilations with holes": with_holes,
    "causal and banded attention": causal,
    "triangles and bands": triangular,
    "three rank variables": three_variables,
    "recurrences": recurrent,
}
FEWER = (attention, shared_ranks)  # of at most three Einsums
SLIDING = (windows, padded, with_holes)  # may be spread over instances window by window


@dataclass(frozen=True)
class Legal:
    """One legal spec: its kind, the document, and the loaded spec at numbers."""

    kind: str
    drawn: Drawn
    spec: pm.Spec
    bound: pm.Spec

    @property
    def problem(self) -> pm.Problem:
        assert self.bound.mapping is not None
        return pm.Problem(self.bound.workload, self.bound.arch, self.bound.mapping)


def legal(number: int, seed: int) -> Legal | None:
    """Spec `number` under a seed; None if none of many drawings is legal."""
    pick = Random(f"{seed}/{number}")
    kind = tuple(KINDS)[number % len(KINDS)]
    for _ in range(TRIES):
        one = _mixed(pick, KINDS[kind])
        try:
            spec = pm.load(one.document)
            found = Legal(kind, one, spec, spec.bind(**one.values))
            if not faults_of(found.problem):
                return found
        except (SpecError, Refused):
            continue
    return None


def _mixed(pick: Random, make: Make) -> Drawn:
    count = pick.choice([1, 1, 1, 2, 2, 3, 3, 3, 4, 4])
    workload = make(pick, min(count, 3) if make in FEWER else count)
    spread = make in SLIDING and count > 1 and pick.random() < 0.4
    return mapped(pick, workload, spread)
