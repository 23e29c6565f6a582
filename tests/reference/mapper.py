"""Mapper cases (`mapper-oracle/1`): what another tool's search returned, evaluated, and our search beside it.

Every mapping on a front is evaluated here: energy, latency, traffic of the outermost memory, peak of each
memory, and all counts of the first optimum. The tool's figures are exact for tiles that divide; where they
do not, and where a tile that several Einsums share is booked to each of them, they are bounds from above.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from math import isclose
from typing import Any

import polymodel as pm
from polymodel.analysis.result import Engine, Problem
from polymodel.errors import PolymodelError
from polymodel.mapping.looptree import LoopTree, StorageNode
from tests.reference import mapper_search
from tests.reference.accelforge import check_costs, check_traffic, entries, tile_bits, tree_of
from tests.reference.common import Outcome, sections
from tests.reference.lowering import lowered
from tests.reference.mapper_spec import Numbers, spec_of

FORMAT = "mapper-oracle/1"
CASE_KEYS = (
    "format name description note notes workload arch mapper runs counts_of_first_optimum verification cases"
).split()
RUN_KEYS = "objectives pmappings time optimum front points note notes".split()
POINT_KEYS = "values mapping counts_check note notes".split()
VALUE_KEYS = "energy latency energy_delay dram_bits peak_usage_bits".split()


@dataclass(frozen=True)
class Case:
    """A case with its spec; `relies`: its mappings fit only by what is live of their tiles."""

    name: str
    given: Numbers
    spec: pm.Spec
    relies: bool

    @property
    def verdict(self) -> Numbers:
        return self.given.get("verification") or {}


def case_of(given: Numbers, fallback: str) -> Case:
    """ValueError, KeyError or SpecError for what is not a case."""
    sections(given, {"workload": dict, "arch": list, "runs": list})
    relies = bool((given.get("verification") or {}).get("relies_on_lowering"))
    spec = spec_of(given, "live" if relies else "tile")
    return Case(str(given.get("name", fallback)), given, spec, relies)


def check(given: Numbers, fallback: str, engine: Engine, *, search: bool = True) -> Outcome:
    """The mappings of one case, evaluated; then our own search."""
    case = case_of(given, fallback)
    outcome = Outcome(f"mapper/{case.name}")
    outcome.unknown("case", given, CASE_KEYS)
    outcome.notes += [f"in the file: {given[k]}" for k in ("note", "notes") if given.get(k)]
    seen: dict[LoopTree, pm.Report] = {}
    counted: list[list[tuple[float, float]]] = []
    for number, run in enumerate(given["runs"]):
        outcome.unknown(f"run {number + 1}", run, RUN_KEYS)
        counted.append([])
        for at, point in enumerate(run.get("points", ())):
            where = f"{'+'.join(run['objectives'])} point {at + 1}"
            report = _check_point(outcome, case, where, point, engine, seen)
            if report is not None:
                pair = report.costs.total_energy, float(report.costs.total_latency)
                if shares_fetches(report.problem):
                    outcome.notes.append(f"{where} shares a tile of what the outermost memory holds: {pair}")
                else:
                    counted[-1].append(pair)
        _check_listing(outcome, run)
    _check_first(outcome, case, seen, engine)
    if search:
        mapper_search.compare(outcome, given, case.spec, counted)
    return outcome


def _check_listing(outcome: Outcome, run: Numbers) -> None:
    """The file agrees with itself: a front lists its points, an optimum is the best of them."""
    values = [p["values"] for p in run.get("points", ())]
    listed = [(e, x) for e, x in run.get("front") or ()]
    if listed and any((v["energy"], v["latency"]) not in listed for v in values):
        raise ValueError(f"the front of {run['objectives']} is not that of its points")
    if listed and len(listed) != len(values):
        outcome.notes.append(f"{run['objectives']}: {len(values)} of {len(listed)} mappings are given")
        return
    for name, best in (run.get("optimum") or {}).items():
        found = [v.get(name, v["energy"] * v["latency"] if name == "energy_delay" else None) for v in values]
        if None in found:
            raise ValueError(f"the optimum of {name} is none of the values of {run['objectives']}")
        if found and not isclose(min(found), best, rel_tol=1e-12):
            raise ValueError(f"the optimum of {name} is none of the points of {run['objectives']}")


def _check_point(
    outcome: Outcome, case: Case, where: str, point: Numbers, engine: Engine, seen: dict[LoopTree, pm.Report]
) -> pm.Report | None:
    outcome.unknown(where, point, POINT_KEYS)
    outcome.unknown(f"values of {where}", point["values"], VALUE_KEYS)
    tree = tree_of(point["mapping"], outcome)
    try:
        report = seen.get(tree) or pm.evaluate(case.spec.with_mapping(tree), engine=engine.name)
    except PolymodelError as fault:
        outcome.mismatches.append(f"{where}: not evaluated: {fault}")
        return None
    seen[tree] = report
    for violation in report.costs.violations:
        outcome.mismatches.append(f"{where}: {violation}")
    compare = comparison(outcome, report.problem)
    values = point["values"]
    ours = {"energy": report.costs.total_energy, "latency": float(report.costs.total_latency)}
    ours["energy_delay"] = ours["energy"] * ours["latency"]
    for name in ("energy", "latency", "energy_delay"):
        if name in values:
            compare(f"{where} {name}", ours[name], values[name])
    if "dram_bits" in values:
        compare(f"{where} bits at {outermost(case.spec)}", moved_bits(report), values["dram_bits"])
    _check_peaks(outcome, where, report, values.get("peak_usage_bits") or {}, engine)
    return report


def comparison(outcome: Outcome, problem: Problem) -> Any:
    """Equality where the tool's figures are exact, a bound from above where they are padded, else a note."""
    if understated(problem):
        return outcome.inform
    return outcome.at_most if padded(problem) else outcome.equal


def outermost(spec: pm.Spec) -> str:
    return next(c.name for c in spec.arch.components if c.kind == "memory")


def moved_bits(report: pm.Report) -> int:
    """Bits read and written at the outermost memory, all executions."""
    problem, total = report.problem, 0
    top = next(c.name for c in problem.hierarchy.components if c.kind == "memory")
    for row in report.analysis.traffic:
        if row.component == top:
            einsum = problem.cascade[row.einsum]
            width = einsum.access_of(row.tensor).bits_per_value
            total += (row.reads + row.writes) * width * einsum.n_instances
    return total


def _check_peaks(outcome: Outcome, where: str, report: pm.Report, peaks: Numbers, engine: Engine) -> None:
    """The tool's peaks are of tiles where it evaluates them; lifetimes can only make ours smaller.

    Of a copy within one memory it counts source and destination once.
    """
    problem = report.problem
    below = Problem(problem.cascade, problem.hierarchy, lowered(problem))
    moved = engine.analyse(below) if peaks else report.analysis
    copies = any(e.is_copy for e in problem.cascade)
    for level, bits in peaks.items():
        ours = [w.bits for w in moved.working_sets if (w.component, w.measure) == (level, "tile")]
        backing = copies and level == problem.hierarchy.components[0].name
        compare = outcome.inform if backing else outcome.at_most
        compare(f"{where} peak of {level}", max(ours, default=0), bits)


def _check_first(outcome: Outcome, case: Case, seen: dict[LoopTree, pm.Report], engine: Engine) -> None:
    """All counts of the first run's first mapping, and its energy as the case counted it."""
    first = next((p for run in case.given["runs"] for p in run.get("points", ())), None)
    report = seen.get(tree_of(first["mapping"], Outcome(""))) if first else None
    if report is None:
        return
    problem, table = report.problem, case.given.get("counts_of_first_optimum") or {}
    exact = comparison(outcome, problem) == outcome.equal
    shadow = outcome if exact else Outcome("")
    factors = {e.name: e.n_instances for e in problem.cascade}
    check_traffic(shadow, "first", problem, report.analysis, table, factors)
    check_costs(shadow.equal, problem, report.analysis, {"einsums": table})
    if table and exact:
        below = Problem(problem.cascade, problem.hierarchy, lowered(problem))
        sizes = tile_bits(problem, engine.analyse(below))
        for einsum, level, tensor, numbers in entries(table):
            if not problem.cascade[einsum].is_copy:
                ours = sizes.get((einsum, level, tensor), (0, 0))[0]
                outcome.equal(f"first {einsum} {level}.{tensor} bits", ours, numbers["occupancy_bits"])
    if not exact:
        outcome.notes += [f"the tool pads: {m}" for m in shadow.mismatches]
    counted = case.verdict.get("accelforge_mapping_counted_exactly")
    if counted is not None:
        outcome.equal("energy of the first mapping, counted", report.costs.total_energy, counted)


def _steps(problem: Problem) -> Iterator[tuple[str, list[tuple[int, int]]]]:
    """Per Einsum and rank variable: (enclosing tile, tile) of each loop over it, outermost first."""
    for einsum in problem.cascade:
        chains: dict[str, list[tuple[int, int]]] = {}
        for _, loop in problem.tree.loops(einsum.name):
            variable = loop.variable_in(einsum.name)
            if variable in einsum.rank_variables:
                chain = chains.setdefault(variable, [])
                enclosing = chain[-1][1] if chain else einsum.bound(variable)[1] + 1
                chain.append((enclosing, int(loop.tile_shape)))
        yield from ((einsum.name, chain) for chain in chains.values())


def padded(problem: Problem) -> bool:
    """True if some tile does not divide its enclosing one, or several Einsums fetch one tile together."""
    uneven = any(x % t for _, chain in _steps(problem) for x, t in chain)
    return uneven or shares_fetches(problem)


def understated(problem: Problem) -> bool:
    """True if the tool may count less than there is: tiles that do not divide a tile, uneven windows."""
    windows = any(len(x.variables) > 1 for e in problem.cascade for a in e.accesses for x in a.projection)
    uneven = [at for _, chain in _steps(problem) for at, (x, t) in enumerate(chain) if x % t]
    return bool(uneven) and (windows or max(uneven) > 0)


def shares_fetches(problem: Problem) -> bool:
    """True if a tensor has storage that several Einsums share below its outermost one."""
    held: set[str] = set()
    for number, node, _ in problem.tree.walk():
        if isinstance(node, StorageNode):
            below = problem.tree.below[number]
            for tensor in node.tensors:
                if tensor in held and sum(tensor in problem.cascade[e].tensors for e in below) > 1:
                    return True
            held |= set(node.tensors)
    return False
