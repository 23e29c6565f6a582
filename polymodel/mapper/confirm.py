"""Every mapping that the search finds, evaluated: its figures must be those that the search gave it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import combinations, takewhile
from math import inf
from time import perf_counter
from typing import TYPE_CHECKING

from polymodel.analysis.result import Problem
from polymodel.api.evaluation import evaluate_problem
from polymodel.errors import InternalError, Refused, SpecError
from polymodel.governor import until
from polymodel.loading import Spec, mapping_to_yaml
from polymodel.mapper.aims import grows_with_peaks
from polymodel.mapper.budget import CUT
from polymodel.mapper.records import Candidate
from polymodel.mapping.looptree import Loop, LoopTree, StorageNode
from polymodel.processes import elsewhere
from polymodel.report.report import Report
from polymodel.workload.einsum import Cascade

if TYPE_CHECKING:
    from polymodel.sparse.actions.data import TensorData
    from polymodel.sparse.actions.records import Certainty

Data = Mapping[str, "TensorData"] | None  # of sparse tensors, where these are asked for

CLOSE = 1e-9  # relative; sums of the same floats in another order differ by less
START = 1.0  # seconds that other processes need to start
LONGEST = 10.0  # seconds; large cascades have fronts of hundreds of mappings, each a third of a second


@dataclass(frozen=True)
class MappingFigures:
    """What a mapping costs (J, s), and the peak bits of every memory below the backing storage. `confirmed`:
    they are those of `evaluate`; else those of the search, whose peaks may be above them. `sparse`: the same
    costs on sparse data, where these were asked for, and how certain they are (`label`). `named`: other
    figures by the names of objectives."""

    energy: float
    latency: float
    buffers: tuple[tuple[str, float], ...]
    confirmed: bool = True
    sparse: tuple[float, float] | None = None
    label: Certainty = "exact"
    named: tuple[tuple[str, float], ...] = ()


def searched(candidate: Candidate) -> MappingFigures:
    """The figures as the search gave them."""
    return MappingFigures(
        candidate.energy, candidate.latency, candidate.buffers, False, named=candidate.named
    )


def confirmed(spec: Spec, candidate: Candidate, data: Data = None) -> MappingFigures:
    """The figures of `evaluate`. Raises InternalError if they are not those of the search. With `data` those
    of sparse data as well: what the search says of energy and latency is then something else."""
    try:
        report = evaluate_problem(Problem(spec.workload, spec.arch, candidate.tree))
    except SpecError as fault:
        raise bug(spec, candidate, f"evaluate does not accept it: {fault.diagnostics[0].message}") from fault
    if data is None:
        return compared(spec, candidate, report)
    from polymodel.report.sparse import with_data

    result, sparse = fitting(spec, candidate, report), with_data(report, data)
    return replace(result, sparse=(sparse.total_energy, sparse.total_latency), label=sparse.label)


def compared(spec: Spec, candidate: Candidate, report: Report) -> MappingFigures:
    """The figures of a report. Raises InternalError if they are not those of the search."""
    result = fitting(spec, candidate, report)
    exact = [(n, mine) for n, mine in candidate.named if not grows_with_peaks(n)]
    found = dict(result.named)
    for name, mine, theirs in (
        ("energy", candidate.energy, result.energy),
        ("latency", candidate.latency, result.latency),
        *((name, mine, found[name]) for name, mine in exact),
    ):
        if abs(mine - theirs) > CLOSE * max(abs(mine), abs(theirs)):
            raise bug(spec, candidate, f"its {name} is {theirs!r} to evaluate and {mine!r} to the search")
    return result


def fitting(spec: Spec, candidate: Candidate, report: Report) -> MappingFigures:
    """The same without a look at energy and latency: it fits, and its peaks are no more than was said."""
    result = replace(figures_of(report), named=tuple((n, report.value(n)) for n, _ in candidate.named))
    if not report.feasible:
        raise bug(spec, candidate, "it does not fit: " + "; ".join(map(str, report.violations)))
    peaks = dict(result.buffers)
    for memory, bits in candidate.buffers:
        if peaks.get(memory, 0) > bits * (1 + CLOSE):
            what = f"the peak of {memory} is {peaks[memory]:.0f} bit to evaluate and {bits:.0f} to the search"
            raise bug(spec, candidate, what)
    return result


def below(candidate: Candidate, found: MappingFigures) -> bool:
    """True if a peak is lower than the search counted it."""
    peaks = dict(found.buffers)
    return any(m in peaks and peaks[m] < bits * (1 - CLOSE) for m, bits in candidate.buffers)


def figures_of(report: Report) -> MappingFigures:
    """Energy, latency and peaks of one report."""
    peaks: dict[str, float] = {c.name: 0 for c in report.problem.hierarchy.components if c.kind == "memory"}
    for n in report.costs.needs:
        if n.counts:
            peaks[n.component] = max(peaks[n.component], n.bits)
    return MappingFigures(report.total_energy, report.total_latency, tuple(peaks.items())[1:])


def all_confirmed(
    spec: Spec,
    candidates: Sequence[Candidate],
    workers: int,
    done: Callable[[int], bool],
    longest: float = LONGEST,
    data: Data = None,
    end: float = inf,
) -> list[MappingFigures]:
    """The figures of each candidate; `done(number)` is told how many there are, and False ends the work:
    those left keep the figures of the search. So do those not reached within so many seconds, those that are
    not done at the `end` (`time.monotonic`), and those for which there is no memory."""
    result: list[MappingFigures] = []
    try:
        with until(end):
            _confirm(spec, candidates, result, workers, done, longest, data)
    except CUT:
        pass
    return result + [searched(c) for c in candidates[len(result) :]]


def _confirm(
    spec: Spec,
    candidates: Sequence[Candidate],
    found: list[MappingFigures],
    workers: int,
    done: Callable[[int], bool],
    longest: float,
    data: Data,
) -> None:
    """Adds to what is found."""
    begun = perf_counter()
    for candidate in candidates:
        if not done(len(found)):
            return
        passed, left = perf_counter() - begun, len(candidates) - len(found)
        if passed > longest:
            return
        if workers > 1 and passed > START and passed * left > 2 * START * len(found):
            _together(spec, candidates, found, workers, done, longest, data)
            return
        found.append(_known(spec, candidate, data))


def _together(
    spec: Spec,
    candidates: Sequence[Candidate],
    found: list[MappingFigures],
    workers: int,
    done: Callable[[int], bool],
    longest: float,
    data: Data,
) -> None:
    """The rest in joblib's processes (or on a Dask cluster, within `joblib.parallel_config("dask")`)."""
    from joblib import delayed

    begun, rest = perf_counter(), candidates[len(found) :]
    size = max(1, len(rest) // (4 * workers))
    shares = [rest[i : i + size] for i in range(0, len(rest), size)]
    with elsewhere(workers, (delayed(_share)(spec, share, data) for share in shares)) as running:
        try:
            for part in running:
                found += part
                if not done(len(found)) or perf_counter() - begun > longest:
                    break
        except KeyboardInterrupt:  # Ctrl-C reaches the processes as well
            done(len(found))


def _share(spec: Spec, candidates: Sequence[Candidate], data: Data) -> list[MappingFigures]:
    return [_known(spec, c, data) for c in candidates]


def _known(spec: Spec, candidate: Candidate, data: Data) -> MappingFigures:
    """The figures of `evaluate`, or of the search where `evaluate` refuses to count (lifetimes, mostly): the
    refusal is told when the report is looked at."""
    try:
        return confirmed(spec, candidate, data)
    except ReadTogether:
        raise
    except Refused:
        return searched(candidate)


class ReadTogether(Refused):
    """Einsums below one loop each hold a tensor that none of them hands on, and the search cannot tell."""


def bug(spec: Spec, candidate: Candidate, what: str) -> InternalError | ReadTogether:
    """What is raised where search and evaluation disagree.

    The search counts Einsums by themselves but for what they hand on. That is wrong where several below one
    loop read a tensor from further out: a storage node above the loop is for all of them.
    """
    for tensor, one, other in _read_together(spec.workload, candidate.tree):
        message = (
            f"{one} and {other} share loops and both read {tensor}, which neither hands on to the other; the "
            "search takes each to store its own, and found mappings where that is not so"
        )
        remedy = (
            f"name {tensor} otherwise in one of the two, as a tensor of its own, or set max_fused_loops: 0"
        )
        return ReadTogether(message, remedy)
    text = mapping_to_yaml(candidate.tree, spec.used_symbols())
    return InternalError(f"the search and evaluate disagree on a mapping (please report it): {what}\n{text}")


def _read_together(cascade: Cascade, tree: LoopTree) -> Iterator[tuple[str, str, str]]:
    """Tensors in the backing storage, and two Einsums below one loop that both read them."""
    root = tree.nodes[0]
    backed = root.tensors if isinstance(root, StorageNode) else ()
    for one, other in combinations(tree.einsums, 2):
        both = zip(tree.path(one), tree.path(other), strict=False)
        same = takewhile(lambda steps: steps[0].id == steps[1].id, both)
        if any(isinstance(step.node, Loop) for step, _ in same):
            mine, theirs = ({a.tensor for a in cascade[e].inputs} for e in (one, other))
            yield from ((t, one, other) for t in backed if t in mine & theirs)
