"""Effectual operations and computed patterns of drawn cascades against all their points, one by one."""

from __future__ import annotations

from itertools import product

from hypothesis import given, reject, settings
from hypothesis import strategies as st

from polymodel.analysis.enumerate import ENGINE
from polymodel.errors import Refused
from polymodel.sparse.actions.counts import sparse_counts
from polymodel.sparse.actions.inputs import tensor_data, tensor_shape
from polymodel.sparse.tensor import SparseTensor
from polymodel.workload.einsum import Cascade, Einsum
from tests.generators import problems

Pattern = set[tuple[int, ...]]


def points(einsum: Einsum) -> list[dict[str, int]]:
    """Every iteration, those that constraints leave."""
    ranges = (range(low, high + 1) for low, high in einsum.bounds)
    every = (dict(zip(einsum.rank_variables, values, strict=True)) for values in product(*ranges))
    return [p for p in every if all(_holds(c, p) for c in einsum.constraints)]


def _holds(constraint, point: dict[str, int]) -> bool:
    value = constraint.expr.value(point)
    if constraint.kind == "eq":
        return value == 0
    return value >= 0 if constraint.kind == "ge" else value % constraint.modulus == 0


def executed(cascade: Cascade, nonzero: dict[str, Pattern]) -> dict[str, int]:
    """Effectual operations of each Einsum; patterns of outputs are added to `nonzero`."""
    found = {}
    for e in cascade.einsums:
        hits = 0
        made: dict[str, Pattern] = {a.tensor: set() for a in e.outputs}
        for p in points(e):
            at = {a.tensor: tuple(x.value(p) for x in a.projection) for a in e.accesses}
            if all(at[a.tensor] in nonzero[a.tensor] for a in e.inputs):
                hits += 1
                for t in made:
                    made[t].add(at[t])
        nonzero.update(made)
        found[e.name] = hits
    return found


@settings(max_examples=150, deadline=None)
@given(problems(), st.data())
def test_work_and_patterns_are_those_of_all_points(problem, data: st.DataObject) -> None:
    cascade = problem.cascade
    given_tensors, nonzero = {}, {}
    for t in cascade.tensors:
        if cascade.producer(t) is not None:
            continue
        shape = tensor_shape(cascade, t)
        every = list(product(*map(range, shape)))
        chosen = data.draw(st.lists(st.sampled_from(every), unique=True, max_size=len(every)))
        nonzero[t] = set(chosen)
        first = next(a for e in cascade.einsums for a in e.accesses if a.tensor == t)
        coords = [[p[r] for p in chosen] for r in range(len(shape))]
        given_tensors[t] = SparseTensor.from_coo(t, first.ranks, shape, coords, [1] * len(chosen))
    wanted = executed(cascade, nonzero)
    analysis = ENGINE.analyse(problem)
    try:
        known = tensor_data(cascade, given_tensors)
        counts = sparse_counts(problem, analysis, known)
    except Refused:
        reject()
    for t, d in known.items():
        if d.actual is not None:
            assert set(map(tuple, d.actual.coords.T.tolist())) == nonzero[t], t
    for c in counts.compute:
        if c.label == "exact" and c.dense == len(points(cascade[c.einsum])):
            assert c.effectual == wanted[c.einsum]
