"""Evaluation of mappings outside the space of the search; those that fit become candidates."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import partial
from math import inf

from polymodel.analysis.result import Problem
from polymodel.api.evaluation import evaluate_problem
from polymodel.architecture.hierarchy import Hierarchy
from polymodel.errors import Refused, SpecError
from polymodel.governor import until
from polymodel.mapper.budget import CUT, EVALUATION
from polymodel.mapper.confirm import figures_of
from polymodel.mapper.records import Candidate, Request, SearchStage
from polymodel.mapping.looptree import LoopTree
from polymodel.objectives import score
from polymodel.report.report import Report
from polymodel.workload.einsum import Cascade


def a_third(request: Request) -> Request:
    """The request with a third of its time limit: for the search, beside work before and after it."""
    limit = request.time_limit
    return request if limit is None else replace(request, time_limit=limit / 3)


def last_evaluation(request: Request, end: float) -> float:
    """When the last mapping is evaluated, before the time limit is reached at `end` (`time.monotonic`)."""
    return inf if request.time_limit is None else end - EVALUATION * request.time_limit


@dataclass(frozen=True)
class Standing:
    """How good a mapping is, smaller being better in each figure.

    `excess`: by how much memories and limits are exceeded, relative to these (0: not at all). `scores`: of
    the objectives. `costs`: energy (J) and latency (s).
    """

    excess: float
    scores: tuple[float, ...]
    costs: tuple[float, float]


@dataclass
class Evaluations:
    """Mappings that were evaluated, each once. Those that fit and keep the limits of the request are `found`.

    `has_time`: whether to continue; `end`: time limit (`time.monotonic`). `complete`: False once a mapping
    was not evaluated for want of time; `skipped`: there was no time to find all mappings to evaluate.
    """

    cascade: Cascade
    hierarchy: Hierarchy
    request: Request
    has_time: Callable[[], bool]
    end: float = inf
    complete: bool = True
    skipped: bool = False
    known: dict[LoopTree, Standing | None] = field(default_factory=dict)
    found: list[Candidate] = field(default_factory=list)

    def of(self, tree: LoopTree) -> Standing | None:
        """How good it is; None if it is illegal or not countable, or if time has run out."""
        if tree in self.known:
            return self.known[tree]
        self.complete = self.complete and self.has_time()
        if not self.complete:
            return None
        try:
            with until(self.end):
                report = evaluate_problem(Problem(self.cascade, self.hierarchy, tree))
        except CUT:
            self.complete = False
            return None
        except (SpecError, Refused):
            self.known[tree] = None
            return None
        result = self.known[tree] = self._standing(tree, report)
        return result

    def stage(self, name: str, tried: int, seconds: float) -> SearchStage:
        """The counts of this work: `tried` plans, mappings evaluated, and candidates among them."""
        many = sum(x is not None for x in self.known.values())
        return SearchStage(name, tried, many, len(self.found), 0, seconds)

    def _standing(self, tree: LoopTree, report: Report) -> Standing:
        candidate = _candidate(self.request, tree, report)
        each = zip(self.request.objectives, candidate.values, strict=True)
        scores = tuple(float(score(o, v)) for o, v in each)
        excess = sum(v.need_bits / v.have_bits - 1 if v.have_bits else inf for v in report.violations)
        for limit in self.request.at_most:
            number = report.value(limit.name)
            if not limit.admits(number):
                excess += float(score(limit.name, number)) / limit.score - 1 if limit.score else inf
        if not excess:
            self.found.append(candidate)
        return Standing(excess, scores, (candidate.energy, candidate.latency))


def _candidate(request: Request, tree: LoopTree, report: Report) -> Candidate:
    figures = figures_of(report)
    names = dict.fromkeys((*request.objectives, *(limit.name for limit in request.at_most)))
    named = tuple((name, float(report.value(name))) for name in names)
    values = tuple(dict(named)[o] for o in request.objectives)
    return Candidate(values, figures.energy, figures.latency, figures.buffers, partial(_itself, tree), named)


def _itself(tree: LoopTree) -> LoopTree:
    return tree
