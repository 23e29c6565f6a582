"""Sparse counts against a walk that looks at every transfer."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from itertools import combinations, product

import pytest
from hypothesis import assume, given, reject, settings
from hypothesis import strategies as st

from polymodel.analysis.enumerate import ENGINE
from polymodel.analysis.result import Problem
from polymodel.architecture.hierarchy import Hierarchy, SparseRules
from polymodel.errors import Refused
from polymodel.mapping.looptree import ComputeNode, Loop, LoopTree, StorageNode
from polymodel.schedule.legality import check
from polymodel.sparse.actions.counts import sparse_counts
from polymodel.sparse.actions.data import TensorData, dense_data
from polymodel.sparse.density import Actual, RankNnz, Uniform
from polymodel.sparse.tensor import SparseTensor
from tests.faults import refused
from tests.sparse.actions.literal import Literal
from tests.sparse.actions.small import TENSORS, WINDOWS, hierarchy, product_of, rule, small_problems

STATES = ("actual", "gated", "skipped", "absent")


def with_formats(problem: Problem, packed: set[tuple[str, str]]) -> Problem:
    """The same with tensors kept as lists of coordinates."""
    components = []
    for c in problem.hierarchy.components:
        rules = c.sparse or SparseRules()
        formats = tuple((t, "COO") for n, t in sorted(packed) if n == c.name)
        components.append(replace(c, sparse=replace(rules, formats=formats)))
    return replace(problem, hierarchy=Hierarchy(tuple(components)))


def shapes(problem: Problem) -> dict[str, tuple[int, ...]]:
    (einsum,) = problem.cascade.einsums
    top = {v: high for v, (_, high) in zip(einsum.rank_variables, einsum.bounds, strict=True)}
    return {a.tensor: tuple(x.value(top) + 1 for x in a.projection) for a in einsum.accesses}


def ranks(problem: Problem, tensor: str) -> tuple[str, ...]:
    (einsum,) = problem.cascade.einsums
    return einsum.access_of(tensor).ranks


def ours(problem: Problem, data: dict[str, TensorData], packed: set[tuple[str, str]]):
    """The room's counts in the walk's form, and its labels."""
    analysis = ENGINE.analyse(problem)
    counts = sparse_counts(with_formats(problem, packed), analysis, data)
    compute, accesses = counts.compute, counts.accesses
    found: Counter[tuple[str, int, str, str]] = Counter()
    labels = {}
    for a in accesses:
        for state in STATES:
            found[a.tensor, a.node, a.kind, state] += getattr(a, state)
        labels[a.tensor, a.node, a.kind] = a.label
    (c,) = compute
    for state in ("effectual", "ineffectual", "gated", "skipped", "busiest"):
        found["", 0, "operations", state] += getattr(c, state)
    labels["", 0, "operations"] = c.label
    labels["", 0, "busiest"] = c.busiest_label
    return found, labels


def same(found, wanted, approx: bool = False) -> None:
    keys = {k for k in (*found, *wanted) if (found[k] or wanted[k]) and k[-1] != "busiest"}
    for key in keys:
        assert found[key] == (pytest.approx(wanted[key], rel=1e-9, abs=1e-9) if approx else wanted[key]), key


def legal(problem: Problem) -> None:
    assume(not check(problem))


def drawn_data(problem: Problem, data: st.DataObject, shape: dict | None = None):
    """Drawn nonzeros of A and B, as points and as tensors, of these shapes, else of those touched."""
    shape = shape or shapes(problem)
    nonzero, known = {}, {"Z": dense_data("Z")}
    for t in ("A", "B"):
        points = list(product(*map(range, shape[t])))
        nonzero[t] = set(data.draw(st.lists(st.sampled_from(points), unique=True)))
        coords = [[p[r] for p in nonzero[t]] for r in range(len(shape[t]))]
        tensor = SparseTensor.from_coo(t, ranks(problem, t), shape[t], coords, [1] * len(nonzero[t]))
        known[t] = TensorData(t, Actual.of(tensor), tensor)
    return nonzero, known


def given_data(problem: Problem, data: st.DataObject, shape: dict | None = None):
    """The same, and which tensors are stored in a format where."""
    nonzero, known = drawn_data(problem, data, shape)
    packed = {(c, t) for c in ("DRAM", "GLB", "RF") for t in ("A", "B") if data.draw(st.booleans())}
    return nonzero, known, packed


@settings(max_examples=80, deadline=None)
@given(small_problems(), st.data())
def test_actual_data_is_counted_as_a_walk_counts(problem: Problem, data: st.DataObject) -> None:
    legal(problem)
    nonzero, known, packed = given_data(problem, data)
    walk = Literal(problem)
    wanted = walk(nonzero, packed)
    found, labels = ours(problem, known, packed)
    same(found, wanted)
    assert found["", 0, "operations", "busiest"] == max(walk.timed.values())
    assert set(labels.values()) == {"exact"}


@settings(max_examples=60, deadline=None)
@given(small_problems(largest=3, projections=WINDOWS), st.data())
def test_windows_of_actual_data_are_exact_where_they_say_so(problem: Problem, data: st.DataObject) -> None:
    legal(problem)
    nonzero, known, packed = given_data(problem, data)
    walk = Literal(problem)
    wanted = walk(nonzero, packed)
    found, labels = ours(problem, known, packed)
    for (tensor, node, kind), label in labels.items():
        for state in (*STATES, "effectual", "ineffectual"):
            if label == "exact" and kind != "busiest":
                assert found[tensor, node, kind, state] == wanted[tensor, node, kind, state]
    assert labels["", 0, "operations"] == "exact"


def mean_of_all(problem: Problem, data: st.DataObject):
    """A model of A and B, formats, and the mean of a walk over every placement of their nonzeros."""
    shape = shapes(problem)
    choices, known = [], {"Z": dense_data("Z")}
    for t in ("A", "B"):
        points = list(product(*map(range, shape[t])))
        n = data.draw(st.integers(0, min(2, len(points))))
        choices.append(list(combinations(points, n)))
        known[t] = TensorData(t, Uniform.of(ranks(problem, t), shape[t], nnz=n))
    assume(len(choices[0]) * len(choices[1]) <= 300)
    packed = {(c, t) for c in ("DRAM", "GLB", "RF") for t in ("A", "B") if data.draw(st.booleans())}
    walk, mean = Literal(problem), Counter()
    for a, b in product(*choices):
        for key, n in walk({"A": a, "B": b}, packed).items():
            mean[key] += n / (len(choices[0]) * len(choices[1]))
    return known, packed, mean


@settings(max_examples=40, deadline=None)
@given(small_problems(largest=3), st.data())
def test_uniform_densities_give_the_mean_over_all_placements(problem: Problem, data: st.DataObject) -> None:
    legal(problem)
    known, packed, mean = mean_of_all(problem, data)
    found, labels = ours(problem, known, packed)
    same(found, mean, approx=True)
    assert "bound" not in labels.values()


@settings(max_examples=40, deadline=None)
@given(small_problems(largest=3, projections=WINDOWS), st.data())
def test_of_windows_what_is_no_bound_is_the_mean(problem: Problem, data: st.DataObject) -> None:
    legal(problem)
    known, packed, mean = mean_of_all(problem, data)
    try:
        found, labels = ours(problem, known, packed)
    except Refused:
        # Several windows with gaps of one tensor, of which none contains the other.
        reject()
    for (tensor, node, kind), label in labels.items():
        for state in (*STATES, "effectual"):
            key = tensor, node, kind, state
            if label != "bound":
                assert found[key] == pytest.approx(mean[key], rel=1e-9, abs=1e-9), key
            elif state == "actual":
                assert found[key] >= mean[key] - 1e-9


@settings(max_examples=40, deadline=None)
@given(small_problems())
def test_the_walk_agrees_with_the_engines_on_dense_data(problem: Problem) -> None:
    legal(problem)
    found, labels = ours(problem, {t: dense_data(t) for t in TENSORS}, set())
    same(found, Literal(problem)({}))
    assert set(labels.values()) == {"exact"}
    assert all(isinstance(n, int) for n in found.values())


def gapped(sizes: dict[str, int], tile: int = 2, fanout: int = 2) -> Problem:
    """Instances that share B take every other p: their parts of A's windows together have gaps."""
    nodes = (
        StorageNode("DRAM", TENSORS), Loop("p", tile, None, True, "PE", "X"), Loop("p", 1),
        StorageNode("RF", ("B",)), ComputeNode("Z", "MAC"),
    )  # fmt: skip
    machine = hierarchy({"DRAM": (rule("skip", ("B",), ("A",)),)}, fanout=fanout)
    return Problem(product_of(WINDOWS, sizes), machine, LoopTree(nodes))


@pytest.mark.parametrize(
    ("p", "r", "tile", "fanout", "nnz"),
    [(4, 2, 2, 2, 2), (6, 2, 3, 2, 1), (6, 1, 2, 3, 2), (7, 2, 3, 3, 3), (5, 3, 2, 3, 2), (6, 2, 3, 2, 0)],
)
def test_windows_with_gaps_are_the_mean_over_all_placements(
    p: int, r: int, tile: int, fanout: int, nnz: int
) -> None:
    """Of uniform data the points of a part say how likely it is empty, wherever they are."""
    problem = gapped({"p": p, "r": r, "n": 2}, tile, fanout)
    size = p + r - 1
    known = {t: dense_data(t) for t in TENSORS}
    known["A"] = TensorData("A", Uniform.of(("R0",), (size,), nnz=nnz))
    walk, mean = Literal(problem), Counter()
    placements = list(combinations([(i,) for i in range(size)], nnz))
    for chosen in placements:
        for key, n in walk({"A": chosen}).items():
            mean[key] += n / len(placements)
    found, labels = ours(problem, known, set())
    same(found, mean, approx=True)
    assert "bound" not in labels.values()


def test_windows_with_gaps_of_a_model_with_places_are_refused() -> None:
    problem = gapped({"p": 4, "r": 2, "n": 2})
    known = {t: dense_data(t) for t in TENSORS}
    known["A"] = TensorData("A", RankNnz.of(("R0",), (5,), [1, 0, 0, 0, 1]))
    with refused("unsupported-window"):
        ours(problem, known, set())
    nonzero = SparseTensor.from_coo("A", ("R0",), (5,), [[0, 4]], [1, 1])
    known["A"] = TensorData("A", Actual.of(nonzero), nonzero)
    found, _ = ours(problem, known, set())
    same(found, Literal(problem)({"A": [(0,), (4,)]}))


def test_dense_outputs_move_whatever_was_computed() -> None:
    """At one memory only: further in they still move where something was computed."""
    nodes = (
        StorageNode("DRAM", TENSORS), Loop("m", 1), StorageNode("GLB", ("Z",)), Loop("k", 1),
        ComputeNode("Z", "MAC"),
    )  # fmt: skip
    plain = hierarchy({"MAC": (rule("skip", (), ("A", "B")),)})
    sizes = {"m": 3, "k": 4, "n": 2}
    ranks_of = {"A": ("m", "k"), "B": ("k", "n"), "Z": ("m", "n")}
    nonzero = {"A": {(0, 1), (1, 2)}, "B": {(1, 0), (3, 1)}}
    known = {"Z": dense_data("Z")}
    for t, points in nonzero.items():
        coords = [[p[i] for p in sorted(points)] for i in range(2)]
        shape = tuple(sizes[v] for v in ranks_of[t])
        tensor = SparseTensor.from_coo(t, ("R0", "R1"), shape, coords, [1] * len(points))
        known[t] = TensorData(t, Actual.of(tensor), tensor)
    wanted = {"": (1, 1), "DRAM": (6, 1), "GLB": (1, 24)}
    for name, drains in wanted.items():
        components = tuple(
            replace(c, sparse=SparseRules(dense_outputs=("Z",))) if c.name == name else c
            for c in plain.components
        )
        problem = Problem(product_of(ranks_of, sizes), Hierarchy(components), LoopTree(nodes))
        found, labels = ours(problem, known, set())
        same(found, Literal(problem)(nonzero))
        assert tuple(found["Z", node, "writes_drain", "actual"] for node in (0, 2)) == drains
        assert set(labels.values()) == {"exact"}
