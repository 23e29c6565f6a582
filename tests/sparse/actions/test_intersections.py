"""Coordinates that intersections read, against fingers that move one by one."""

from __future__ import annotations

from dataclasses import replace
from itertools import product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import polymodel as pm
from polymodel.analysis.enumerate import ENGINE
from polymodel.analysis.result import Problem
from polymodel.architecture.hierarchy import Hierarchy, IntersectionUnit, SparseRules
from polymodel.mapping.looptree import Loop, StorageNode
from polymodel.sparse.actions.counts import sparse_counts
from polymodel.sparse.actions.data import TensorData, dense_data
from polymodel.sparse.density import Uniform
from polymodel.sparse.tensor import SparseTensor
from tests.sparse.actions.literal import operations
from tests.sparse.actions.small import small_problems
from tests.sparse.actions.test_literal import drawn_data, legal, ranks, shapes


def two_finger(a: list[int], b: list[int]) -> int:
    """Coordinates read: each finger reads the one it stands at."""
    i = j = 0
    read = {("a", 0), ("b", 0)}
    while i < len(a) and j < len(b):
        read |= {("a", i), ("b", j)}
        x, y = a[i], b[j]
        i, j = i + (x <= y), j + (y <= x)
        if i < len(a):
            read.add(("a", i))
        if j < len(b):
            read.add(("b", j))
    return len(read)


def skip_ahead(a: list[int], b: list[int]) -> int:
    """Matches, and runs of comparisons that advance one finger."""
    i = j = steps = 0
    last = ""
    while i < len(a) and j < len(b):
        now = "both" if a[i] == b[j] else "a" if a[i] < b[j] else "b"
        steps += now == "both" or now != last
        last = now
        i, j = i + (now != "b"), j + (now != "a")
    return steps


def by_hand(problem: Problem, kind: str, nonzero: dict[str, set[tuple[int, ...]]]) -> int:
    """Below the innermost storage of A and B, at every counter of k."""
    (einsum,) = problem.cascade.einsums
    path = problem.tree.path(einsum.name)
    outer = max(s.id for s in path if isinstance(s.node, StorageNode) and {"A", "B"} & set(s.node.tensors))
    loops = [(s.id, s.node.rank_variable) for s in path if isinstance(s.node, Loop)]
    order = [*loops, *((-1, v) for v in einsum.rank_variables)]
    total = 0
    walked = operations(problem)
    for at, (i, variable) in enumerate(order):
        if variable != "k" or not (i > outer or i == -1):
            continue

        def counter(op, digit) -> int:
            number, v = digit
            return op.offsets[einsum.rank_variables.index(v)] if number == -1 else op.counters[number]

        if len({counter(op, (i, variable)) for op in walked}) < 2:
            continue
        fibers: dict[tuple[int, ...], tuple[set[int], set[int]]] = {}
        for op in walked:
            pair = fibers.setdefault(tuple(counter(op, d) for d in order[:at]), (set(), set()))
            for t, coords in zip("AB", pair, strict=True):
                if op.touched[t][0] in nonzero[t]:
                    coords.add(counter(op, (i, variable)))
        for a, b in fibers.values():
            if a and b:
                one, two = sorted(a), sorted(b)
                how = {"two_finger": two_finger, "skip_ahead": skip_ahead}
                total += len(one) if kind == "leader_follower" else how[kind](one, two)
    return total


def ruled(problem: Problem, kind: str) -> Problem:
    leader = "A" if kind == "leader_follower" else ""
    rule = SparseRules((), (), (IntersectionUnit(kind, ("A", "B"), leader),))
    components = tuple(
        replace(c, sparse=rule if c.kind == "compute" else None) for c in problem.hierarchy.components
    )
    return replace(problem, hierarchy=Hierarchy(components))


@settings(max_examples=80, deadline=None)
@given(small_problems(largest=5), st.sampled_from(["two_finger", "skip_ahead", "leader_follower"]), st.data())
def test_given_data_are_read_as_fingers_do(problem: Problem, kind: str, data: st.DataObject) -> None:
    legal(problem)
    problem = ruled(problem, kind)
    nonzero, known = drawn_data(problem, data)
    found = sparse_counts(problem, ENGINE.analyse(problem), known).intersections
    assert sum(x.coordinates for x in found) == by_hand(problem, kind, nonzero)
    assert {x.label for x in found} <= {"exact"}


@settings(max_examples=30, deadline=None)
@given(small_problems(largest=3), st.sampled_from(["two_finger", "leader_follower"]), st.data())
def test_densities_give_the_mean_of_leaders_and_bound_fingers(
    problem: Problem, kind: str, data: st.DataObject
) -> None:
    legal(problem)
    from itertools import combinations

    problem, shape = ruled(problem, kind), shapes(problem)
    known, choices = {"Z": dense_data("Z")}, []
    for t in ("A", "B"):
        points = list(product(*map(range, shape[t])))
        n = data.draw(st.integers(0, min(2, len(points))))
        choices.append([set(c) for c in combinations(points, n)])
        known[t] = TensorData(t, Uniform.of(ranks(problem, t), shape[t], nnz=n))
    if len(choices[0]) * len(choices[1]) > 400:
        return
    every = [by_hand(problem, kind, {"A": a, "B": b}) for a, b in product(*choices)]
    mean = sum(every) / len(every)
    found = sparse_counts(problem, ENGINE.analyse(problem), known).intersections
    total = sum(x.coordinates for x in found)
    if kind == "leader_follower":
        assert total == pytest.approx(mean, rel=1e-9, abs=1e-12)
    else:
        assert total >= mean - 1e-9
        assert {x.label for x in found} <= {"bound"}


@pytest.mark.parametrize("kind", ["two_finger", "leader_follower"])
def test_edge_tiles_of_models_that_know_places_are_bounded(kind: str) -> None:
    """Rows of A are known, m is cut into 5 and 3: no placement reads more than is told on average."""
    act = [{"name": n, "energy": 0, "throughput": 1e9} for n in ("read", "write")]
    rule: dict[str, object] = {"tensors": ["A", "B"], "kind": kind}
    if kind == "leader_follower":
        rule["leader"] = "A"
    memory = {"type": "Memory", "size": "inf", "tensors": {"keep": "All"}, "actions": act}
    every = {"type": "Storage", "tensors": ["A", "B", "Z"]}
    spec = {
        "arch": {"nodes": [
            {**memory, "name": "DRAM"}, {**memory, "name": "Buf", "sparse": {"intersect": [rule]}},
            {"type": "Compute", "name": "MAC", "actions": [{**act[0], "name": "compute"}]},
        ]},
        "workload": {"rank_sizes": {"M": 8, "K": 10, "N": 6}, "bits_per_value": {"All": 8},
                     "einsums": ["Z[m, n] = A[m, k] * B[k, n]"]},
        "mapping": {"nodes": [
            {**every, "component": "DRAM"}, {"type": "Temporal", "rank_variable": "m", "tile_shape": 5},
            {**every, "component": "Buf"},
            *({"type": "Temporal", "rank_variable": v, "tile_shape": 1} for v in "knm"),
            {"type": "Compute", "einsum": "Z", "component": "MAC"},
        ]},
    }  # fmt: skip
    report = pm.evaluate(pm.load(spec))
    rows = [0, 1, 5, 2, 0, 3, 7, 1]
    told = pm.sparsify(report, densities={"A": {"rank_nnz": {"histogram": rows}}, "B": 0.3})
    read = []
    generator = np.random.default_rng(0)
    for seed in range(20):
        dense = np.zeros((8, 10))
        for i, n in enumerate(rows):
            dense[i, generator.choice(10, n, replace=False)] = 1
        data = {
            "A": SparseTensor.from_dense("A", ("M", "K"), dense),
            "B": pm.random_tensor(["K", "N"], [10, 6], 0.3, seed),
        }
        read.append(pm.sparsify(report, tensors=data).intersections["coordinates"].sum())
    assert set(told.intersections["label"]) == {"bound"}
    assert np.mean(read) <= told.intersections["coordinates"].sum()
