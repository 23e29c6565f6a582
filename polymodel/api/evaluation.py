"""The whole pipeline for one mapping, from a checked spec to a report. The only module that knows every
step.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from time import perf_counter
from typing import TYPE_CHECKING, Literal

from polymodel.analysis.result import Analysis, Engine, Problem, Traffic
from polymodel.cost.costs import costs
from polymodel.errors import Diagnostic, NotSeparable, SpecError
from polymodel.loading.spec import files_of
from polymodel.mapping.looptree import Loop, LoopTree
from polymodel.mapping.resolve import unbound_symbols
from polymodel.report.report import Report
from polymodel.schedule.legality import require_legal
from polymodel.spec.document import coerce_symbols, words_of
from polymodel.spec.faults import not_a, not_a_spec

if TYPE_CHECKING:
    from polymodel.loading import Spec
    from polymodel.report.closed import SymbolicReport
    from polymodel.workload.einsum import Cascade

ENGINES = ("auto", "exact", "enumerate", "symbolic")


def evaluate(spec: Spec, *, engine: str = "auto", symbols: Mapping[str, int] | None = None) -> Report:
    """The report of the spec's workload on its architecture under its mapping.

    `engine`: `symbolic` (closed forms), `exact`, `enumerate` (small cases only), or `auto`: symbolic where it
    applies, else exact; the numbers are the same. `symbols` gives values to tile sizes and other symbols.
    Raises SpecError for an invalid spec, Refused for what cannot be counted exactly.
    """
    from polymodel.loading import Spec as Loaded

    if not isinstance(spec, Loaded):
        raise not_a_spec("evaluate", spec)
    named = coerce_symbols(symbols)
    bound = spec.bind(**named) if named else spec  # type: ignore[arg-type]  # bind refuses what is not a number
    if bound.mapping is None:
        raise bound.no_mapping()
    faults = bound.check()
    if faults:
        raise SpecError(faults)
    problem = Problem(bound.workload, bound.arch, bound.mapping)
    result = _counted(problem, _engine(engine), bound.template, bound.names)
    return replace(result, folder=bound.data_folder, spec=bound)


def closed_forms(
    spec: Spec,
    *,
    tiles: bool = False,
    ranks: bool = False,
    assume: Literal["divides"] | None = None,
    bound: bool = False,
) -> SymbolicReport:
    """Every count, energy and latency in closed form; tile sizes that are symbols stay symbols.

    `tiles`: tile sizes that are numbers become symbols too (except 1); `ranks`: so do the extents of rank
    variables; `assume="divides"`: the textbook forms, which hold where every tile size divides the enclosing
    one. `bound`: symbols that have a value in the spec are replaced by it. With `ranks`, sizes of the
    workload may be symbols without a value. Raises SpecError for an invalid spec, and NotSeparable for a case
    that closed forms do not cover.
    """
    from polymodel.loading import Spec as Loaded
    from polymodel.report.closed import symbolic_report

    if not isinstance(spec, Loaded):
        raise not_a_spec("closed_forms", spec)
    spec = _with_placeholders(spec) if ranks else spec
    tree = spec.mapping if bound else spec.template
    if tree is None:
        raise spec.no_mapping()
    problem = Problem(spec.workload if ranks else _with_extents(spec), spec.arch, tree)
    if spec.mapping is not None and not unbound_symbols(spec.mapping):
        require_legal(replace(problem, tree=spec.mapping))
    result = symbolic_report(problem, tiles=tiles, ranks=ranks, assume=assume)
    return replace(result, sources=files_of(spec))


def _with_extents(spec: Spec) -> Cascade:
    """The workload. A SpecError about symbols without a value says how extents stay symbols."""
    try:
        return spec.workload
    except SpecError as error:
        other = "or keep every extent a symbol: --ranks, ranks=True in Python"
        raise SpecError(
            [
                replace(d, remedy=f"{d.remedy}; {other}") if d.code == "unbound-symbol" else d
                for d in error.diagnostics
            ]
        ) from None


# Divisible by every number up to 16, so that derived sizes (heads, groups) are integers.
STAND_IN = 720720


def _with_placeholders(spec: Spec) -> Spec:
    """The spec with a number for each symbol without a value that only the workload uses: extents become
    symbols, so that no form depends on the number."""
    open_there = {
        n for n, v in spec.symbols.items() if v is None and not isinstance(spec.declared.get(n), str)
    }
    used = words_of(spec.raw_workload.model_dump() if spec.raw_workload else None)
    tiles = set(unbound_symbols(spec.template)) if spec.template else set()
    both = sorted(open_there & used & tiles)
    if both:
        remedy = "leave out the loops whose tile is a whole rank, or give their tile sizes names of their own"
        text = f"{', '.join(both)}: a workload size without a value is also a tile size"
        raise SpecError([Diagnostic(text, remedy, code="inconsistent-values")])
    elsewhere = words_of(spec.raw_arch.model_dump() if spec.raw_arch else None)
    named = (open_there & used) - elsewhere
    return spec.bind(**dict.fromkeys(sorted(named), STAND_IN)) if named else spec


def evaluate_problem(
    problem: Problem,
    *,
    engine: str = "auto",
    template: LoopTree | None = None,
    names: Mapping[str, str] | None = None,
) -> Report:
    """The report of resolved objects: cascade, hierarchy and LoopTree.

    `template`: the LoopTree before its symbols have values, for `Report.symbolic`. `names`: the names of
    workload, architecture and mapping in the report.
    """
    given: object = problem
    if not isinstance(given, Problem):
        remedy = "pass pm.Problem(cascade, hierarchy, tree), or call pm.evaluate(spec)"
        raise not_a("problem", "evaluate_problem", given, remedy)
    unbound = _unbound_symbols(problem)
    if unbound:
        raise SpecError(unbound)
    chosen = _engine(engine)
    require_legal(problem)
    return _counted(problem, chosen, template, names)


def _counted(
    problem: Problem, chosen: Engine, template: LoopTree | None, names: Mapping[str, str] | None
) -> Report:
    """The report of a legal mapping."""
    start = perf_counter()
    live = any(c.allocation == "live" for c in problem.hierarchy.components)
    analysis = chosen.analyse(problem, live=live)
    result = costs(problem, analysis)
    return Report(problem, analysis, result, chosen, perf_counter() - start, template, names or {})


class Auto:
    """Closed forms where they apply, else the exact engine; both give the same numbers."""

    name = "auto"

    def __repr__(self) -> str:
        return "engine auto: closed forms where they apply, else relations"

    def analyse(self, problem: Problem, *, reuse: str | None = None, live: bool = False) -> Analysis:
        """Raises Refused where neither engine applies."""
        if not live:
            try:
                return _engine("symbolic").analyse(problem, reuse=reuse)
            except NotSeparable:
                pass
        return _engine("exact").analyse(problem, reuse=reuse, live=live)

    def traffic(self, problem: Problem, *, reuse: str | None = None) -> tuple[Traffic, ...]:
        """Raises Refused where neither engine applies."""
        try:
            return _engine("symbolic").traffic(problem, reuse=reuse)
        except NotSeparable:
            return _engine("exact").traffic(problem, reuse=reuse)


def _engine(name: str) -> Engine:
    # Imported when chosen: the engines share no code, and only one of them is needed.
    if name == "auto":
        return Auto()
    if name == "exact":
        from polymodel.analysis.exact import ENGINE as exact

        return exact
    if name == "enumerate":
        from polymodel.analysis.enumerate import ENGINE as enumerating

        return enumerating
    if name == "symbolic":
        from polymodel.analysis.symbolic import ENGINE as symbolic

        return symbolic
    message = f"there is no engine {name!r}"
    raise SpecError([Diagnostic(message, "engines: " + ", ".join(ENGINES), "engine", code="unknown-choice")])


def _unbound_symbols(problem: Problem) -> list[Diagnostic]:
    names: dict[str, str] = {}
    for _, node, _ in problem.tree.walk():
        if isinstance(node, Loop):
            for size in node.sizes:
                if isinstance(size, str):
                    names.setdefault(size, node.rank_variable)
    return [
        Diagnostic(
            f"symbol {s} (tile shape of a loop over {v}) has no value",
            f"bind it: spec.bind({s}=...), or leave it open: closed_forms(spec)",
            code="unbound-symbol",
        )
        for s, v in names.items()
    ]
