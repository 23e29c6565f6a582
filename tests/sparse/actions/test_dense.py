"""Data without zeros: the sparse report is the dense one, whatever the rules."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import given, reject, settings
from hypothesis import strategies as st

from polymodel.analysis.result import Problem
from polymodel.api.evaluation import evaluate_problem
from polymodel.api.sparse import sparsify
from polymodel.architecture.hierarchy import Hierarchy, SparseOptimization, SparseRules
from polymodel.errors import Refused
from tests.generators import problems


def with_actions(problem: Problem, draw: st.DataObject) -> Problem:
    """Every memory gates or skips some tensors on others."""
    components = []
    for c in problem.hierarchy.components:
        rows = []
        for e in problem.cascade.einsums:
            targets = tuple(t for t in e.tensors if draw.draw(st.booleans()))
            leaders = tuple(a.tensor for a in e.inputs[:1])
            rows.append((e.name, targets, leaders))
        action = SparseOptimization(draw.draw(st.sampled_from(["gate", "skip"])), tuple(rows))
        components.append(replace(c, sparse=SparseRules((), (action,))) if c.kind == "memory" else c)
    return replace(problem, hierarchy=Hierarchy(tuple(components), problem.hierarchy.assume_overlap))


@settings(max_examples=60, deadline=None)
@given(problems(), st.data())
def test_density_one_changes_nothing(problem: Problem, data: st.DataObject) -> None:
    report = evaluate_problem(with_actions(problem, data), engine="enumerate")
    found = sparsify(report, densities=dict.fromkeys(problem.cascade.tensors, 1.0))
    # Remarks on actions without effect are all that is added.
    assert replace(found.result.analysis, notes=report.analysis.notes) == report.analysis
    assert found.result.costs == report.costs
    assert found.label == "exact"


@settings(max_examples=60, deadline=None)
@given(problems(), st.data())
def test_sparse_counts_never_exceed_dense_ones(problem: Problem, data: st.DataObject) -> None:
    report = evaluate_problem(with_actions(problem, data), engine="enumerate")
    inputs = {a.tensor for e in problem.cascade for a in e.inputs} - problem.cascade.intermediates
    try:
        found = sparsify(report, densities=dict.fromkeys(inputs, 0.5))
    except Refused as refusal:
        # Leaders whose parts have gaps, or two ranks of one variable.
        if not ("has gaps" in refusal.message or "indexes two ranks" in refusal.message):
            raise
        reject()
    for a in found.counts.accesses:
        assert min(a.actual, a.gated, a.skipped, a.absent) >= 0
        assert abs(a.actual + a.gated + a.skipped + a.absent - a.dense) < 1e-9 * a.dense
    for c in found.counts.compute:
        assert min(c.effectual, c.ineffectual, c.gated, c.skipped) >= 0
        assert abs(c.effectual + c.ineffectual + c.gated + c.skipped - c.dense) <= 1e-9 * c.dense
