"""The whole pipeline: a checked spec to a report. The only module that knows every step."""

from __future__ import annotations

from collections.abc import Mapping
from time import perf_counter
from typing import TYPE_CHECKING

from polymodel.analysis.engine import Engine, Problem
from polymodel.cost.costs import costs
from polymodel.errors import Diagnostic, Refused, SpecError
from polymodel.mapping.looptree import Loop, Split
from polymodel.report.report import Report
from polymodel.schedule.legality import check

if TYPE_CHECKING:
    from polymodel.loading import Spec

ENGINES = ("auto", "exact", "enumerate", "symbolic")


def evaluate(spec: Spec, *, engine: str = "auto", symbols: Mapping[str, int] | None = None) -> Report:
    """What the spec's workload costs on its architecture under its mapping.

    `engine`: `exact`, `enumerate` (small cases only), or `auto`. `symbols` gives values to tile sizes
    and other symbols. Raises SpecError for a wrong spec, Refused for what cannot be counted exactly.
    """
    bound = spec.bind(**symbols) if symbols else spec
    if bound.mapping is None:
        raise SpecError([Diagnostic("the spec has no mapping", "add `mapping:`, or load one beside it")])
    faults = bound.check()
    if faults:
        raise SpecError(faults)
    return evaluate_problem(Problem(bound.workload, bound.arch, bound.mapping), engine=engine)


def evaluate_problem(problem: Problem, *, engine: str = "auto") -> Report:
    """The same for resolved objects: cascade, hierarchy and LoopTree."""
    _refuse_what_is_not_built(problem)
    unbound = _unbound_symbols(problem)
    if unbound:
        raise SpecError(unbound)
    chosen = _engine(engine)
    faults = check(problem)
    if faults:
        raise SpecError(faults)
    start = perf_counter()
    live = any(c.allocation == "live" for c in problem.hierarchy.components)
    analysis = chosen.analyse(problem, live=live)
    found = costs(problem, analysis)
    return Report(problem, analysis, found, chosen, perf_counter() - start)


def _engine(name: str) -> Engine:
    # Imported when chosen: the engines do not share a line, and only one of them is needed.
    if name in ("auto", "exact"):
        from polymodel.analysis.exact import ENGINE as exact

        return exact
    if name == "enumerate":
        from polymodel.analysis.enumerate import ENGINE as enumerating

        return enumerating
    if name == "symbolic":
        raise Refused("engine symbolic is not built yet", "use engine exact, which gives the same numbers")
    raise SpecError([Diagnostic(f"there is no engine {name!r}", "engines: " + ", ".join(ENGINES))])


def _refuse_what_is_not_built(problem: Problem) -> None:
    for _, node, _ in problem.tree.walk():
        if isinstance(node, Split) and node.pipeline:
            raise Refused("Pipeline: branches that overlap are not evaluated yet", "write Sequential")
        if isinstance(node, Loop) and node.per_einsum:
            bound = ", ".join(f"{e}: {v}" for e, v in node.per_einsum)
            raise Refused(
                f"a loop that binds other rank variables in some Einsums ({bound}) is not evaluated yet",
                "name the shared rank variable alike in all its Einsums",
            )


def _unbound_symbols(problem: Problem) -> list[Diagnostic]:
    names: dict[str, str] = {}
    for _, node, _ in problem.tree.walk():
        if isinstance(node, Loop):
            for size in (node.tile_shape, node.initial_tile_shape):
                if isinstance(size, str):
                    names.setdefault(size, node.rank_variable)
    return [
        Diagnostic(f"symbol {s} (tile shape of a loop over {v}) has no value", f"bind it: spec.bind({s}=...)")
        for s, v in names.items()
    ]
