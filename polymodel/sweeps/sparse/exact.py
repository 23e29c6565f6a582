"""Kept points on sparse data, one by one, by the code of sparse reports."""

from __future__ import annotations

from collections.abc import Mapping

from polymodel.analysis.result import Analysis
from polymodel.analysis.symbolic import ENGINE
from polymodel.cost.records import Costs
from polymodel.errors import InternalError
from polymodel.report.report import Report
from polymodel.report.sparse import SparseReport, with_data
from polymodel.sweeps.scenario import Scenario, Variant
from polymodel.sweeps.sparse.columns import bound_problem
from polymodel.sweeps.sparse.figures import SparseEvaluator
from polymodel.sweeps.values import Number


def sparse_report(
    where: Scenario, variant: Variant, point: Mapping[str, Number], analysis: Analysis, costs: Costs
) -> SparseReport:
    """The report of `sparsify` at a point of a compiled block."""
    if not isinstance(variant.evaluator, SparseEvaluator):
        raise InternalError("the block was made for dense data")
    problem = bound_problem(variant.problem, where.values(point))
    report = Report(problem, analysis, costs, ENGINE, folder=where.spec.data_folder)
    return with_data(report, variant.evaluator.plan.data)
