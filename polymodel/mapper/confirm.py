"""Evaluate every mapping that the search finds, and make it a point with its figures and report.

The figures of the evaluation must equal those of the search.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from itertools import combinations, takewhile
from math import inf, isinf
from pathlib import Path
from time import monotonic, perf_counter
from typing import TYPE_CHECKING

from polymodel.analysis.result import Problem
from polymodel.api.evaluation import evaluate, evaluate_problem
from polymodel.architecture.hierarchy import Hierarchy
from polymodel.cost.costs import total_area
from polymodel.errors import InternalError, Refused, SpecError, writing
from polymodel.frozen import dataclass
from polymodel.governor import elsewhere, until
from polymodel.loading import Spec, mapping_to_yaml
from polymodel.loading.spec import protected_files
from polymodel.mapper.aims import grows_with_peaks
from polymodel.mapper.budget import CUT
from polymodel.mapper.einsum_rules import is_box, touches_boxes
from polymodel.mapper.records import CLOSE, Candidate, Limits
from polymodel.mapper.windows import variables_of
from polymodel.mapping.looptree import Loop, LoopTree, StorageNode, pipelines
from polymodel.mapping.mapspace_constraints import WORKING_SET, measured_memory
from polymodel.objectives import (
    SearchFigures,
    canonical,
    is_objective,
    on_dense_data,
    on_sparse_data,
    renamed,
    score,
    uses,
    value,
)
from polymodel.quantities import engineering
from polymodel.report.report import Report
from polymodel.spec.files import write_text
from polymodel.workload.einsum import Cascade, Einsum

if TYPE_CHECKING:
    from polymodel.report.sparse import SparseReport
    from polymodel.sparse.actions.data import TensorData
    from polymodel.sparse.actions.records import Certainty


Data = Mapping[str, "TensorData"] | None  # of sparse tensors, where figures on sparse data are requested

START = 1.0  # seconds that worker processes need to start
LONGEST = 10.0  # seconds; large cascades have fronts of hundreds of mappings, each a third of a second


@dataclass(frozen=True)
class MappingFigures:
    """Energy (J), latency (s) and peak bits of every memory below the backing storage of one mapping.

    `confirmed`: the figures are those of `evaluate`; otherwise those of the search, whose peaks are upper
    bounds. `sparse`: energy and latency on sparse data, where requested; `label`: how certain they are;
    `fits`: whether the sparse tiles fit. `named`: other figures by the names of objectives.
    """

    energy: float
    latency: float
    buffers: tuple[tuple[str, float], ...]
    confirmed: bool = True
    sparse: tuple[float, float] | None = None
    label: Certainty = "exact"
    named: tuple[tuple[str, float], ...] = ()
    fits: bool = True


def search_figures(candidate: Candidate) -> MappingFigures:
    """The figures that the search computed."""
    return MappingFigures(
        candidate.energy, candidate.latency, candidate.buffers, False, named=candidate.named
    )


def confirmed(spec: Spec, candidate: Candidate, data: Data = None) -> MappingFigures:
    """The figures of `evaluate`, with those on sparse data if `data` is given.

    Raises InternalError if they differ from those of the search. With `data`, energy and latency of the
    search are lower bounds on sparse data and are not compared.
    """
    try:
        report = evaluate_problem(Problem(spec.workload, spec.arch, candidate.tree))
    except SpecError as fault:
        raise bug(spec, candidate, f"evaluate does not accept it: {fault.diagnostics[0].message}") from fault
    if data is None:
        return compared(spec, candidate, report)
    from polymodel.report.sparse import with_data

    result, sparse = on_sparse_tiles(spec, candidate, report), with_data(report, data)
    figures = sparse.total_energy, sparse.total_latency
    return replace(result, sparse=figures, label=sparse.label, fits=sparse.feasible)


def on_sparse_tiles(spec: Spec, candidate: Candidate, report: Report) -> MappingFigures:
    """Return the figures of a report on dense data, for a search that computed lower bounds on sparse data.

    With compressed tiles the search also underestimates the space of dense tiles, so that nothing is
    compared.
    """
    from polymodel.mapper.sparse_room import compressed

    if not compressed(spec.arch):
        return fitting(spec, candidate, report)
    return replace(figures_of(report), named=tuple((n, report.value(n)) for n, _ in candidate.named))


def compared(spec: Spec, candidate: Candidate, report: Report) -> MappingFigures:
    """The figures of a report. Raises InternalError if they differ from those of the search."""
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
    """Return the figures of a report, without comparing energy and latency.

    Raises InternalError if the mapping does not fit, or if a peak exceeds that of the search.
    """
    result = replace(
        figures_of(report), named=tuple((n, value(n, report.figures)) for n, _ in candidate.named)
    )
    if not report.feasible:
        raise bug(spec, candidate, "it does not fit: " + "; ".join(map(str, report.violations)))
    peaks = dict(result.buffers)
    for memory, bits in candidate.buffers:
        if peaks.get(memory, 0) > bits * (1 + CLOSE):
            what = f"the peak of {memory} is {peaks[memory]:.0f} bit to evaluate and {bits:.0f} to the search"
            raise bug(spec, candidate, what)
    return result


def below(candidate: Candidate, found: MappingFigures) -> bool:
    """Return whether a peak is lower than the search counted it."""
    peaks = dict(found.buffers)
    return any(m in peaks and peaks[m] < bits * (1 - CLOSE) for m, bits in candidate.buffers)


def loose_peaks(
    cascades: Iterable[Cascade], hierarchies: Iterable[Hierarchy], limits: Limits, figures: Iterable[str]
) -> str:
    """Why searches may count larger working sets than `evaluate` does, so that a mapping that fits by
    `evaluate` is left out; an empty text where both count the same, or where no peak matters. `figures`:
    objectives and figures with limits."""
    asked = {memory for n in figures for what, memory in uses(n) if what == WORKING_SET}
    inner = [c for h in hierarchies for c in [c for c in h.components if c.stores][1:]]
    matter = [c for c in inner if not isinf(c.size_bits) or c.name in asked]
    live = list(dict.fromkeys(c.name for c in matter if c.allocation == "live"))
    return "; ".join(_reasons(list(cascades), limits, live)) if matter else ""


def _reasons(cascades: Sequence[Cascade], limits: Limits, live: list[str]) -> Iterator[str]:
    if live:
        yield f"{', '.join(live)} {'have' if len(live) > 1 else 'has'} `allocation: live`"
    # With two Einsums, some iteration of a shared loop has all tiles above the loop. With three Einsums and
    # two iterations, the middle one may run after tiles of the first are freed, or before tiles of the last
    # exist.
    fusible = any(len(c.einsums) > 2 and c.intermediates - limits.unfused for c in cascades)
    if fusible and limits.max_fused_loops != 0:
        yield "tiles above fused loops count as long as the loops run"
    if not all(is_box(e) for c in cascades for e in c.einsums):
        yield "tiles of tied rank variables count as the largest of each"
    if any(_in_several_boxes(e, c) for c in cascades for e in c.einsums):
        yield "tiles of what is before the first generations count as the largest of each tensor"


def _in_several_boxes(one: Einsum, cascade: Cascade) -> bool:
    """Whether tiles of several tensors are largest at different stamps, as those of what is before are."""
    variables = variables_of(one)
    found = [a for a in one.accesses if touches_boxes(one, a.tensor, cascade, variables)]
    return len({a.tensor for a in found}) > 1 or any(a.stands_for for a in found)


def figures_of(report: Report) -> MappingFigures:
    """Energy, latency and peaks of a report."""
    peaks: dict[str, float] = {c.name: 0 for c in report.problem.hierarchy.components if c.stores}
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
    """Return the figures of each candidate, by evaluation as far as time and memory allow.

    `done(number)` is called with the number evaluated so far; if it returns False, the evaluation stops. The
    remaining candidates keep the figures of the search: candidates not reached within `longest` seconds or by
    the `end` (`time.monotonic`), and those for which there is not enough memory.
    """
    result: list[MappingFigures] = []
    if monotonic() >= end:  # the first evaluation loads libraries, which is not interrupted
        return [search_figures(c) for c in candidates]
    try:
        with until(end):
            _confirm(spec, candidates, result, workers, done, longest, data)
    except CUT:
        pass
    return result + [search_figures(c) for c in candidates[len(result) :]]


def _confirm(
    spec: Spec,
    candidates: Sequence[Candidate],
    found: list[MappingFigures],
    workers: int,
    done: Callable[[int], bool],
    longest: float,
    data: Data,
) -> None:
    """Append the evaluated figures to `found`."""
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
    """Evaluate the remaining candidates in joblib's processes (or on a Dask cluster, within
    `joblib.parallel_config("dask")`)."""
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
        except KeyboardInterrupt:  # Ctrl-C reaches the worker processes as well
            done(len(found))


def _share(spec: Spec, candidates: Sequence[Candidate], data: Data) -> list[MappingFigures]:
    return [_known(spec, c, data) for c in candidates]


def _known(spec: Spec, candidate: Candidate, data: Data) -> MappingFigures:
    """Return the figures of `evaluate`, or of the search if `evaluate` refuses to count (mostly lifetimes).

    The refusal is raised when the report is requested.
    """
    try:
        return confirmed(spec, candidate, data)
    except ReadTogether:
        raise
    except Refused:
        return search_figures(candidate)


class ReadTogether(Refused):
    """Einsums that share loops each hold a tensor that neither passes to the other, which the search counts
    wrongly."""

    code = "unsupported-reuse"


def bug(spec: Spec, candidate: Candidate, what: str) -> InternalError | ReadTogether:
    """Return the error for a disagreement between search and evaluation.

    The search counts each Einsum on its own, except for exchanged tensors. That is wrong if several Einsums
    below one loop access a tensor from further outside: a storage node above the loop then serves all of
    them.
    """
    for tensor, one, other in _read_together(spec.workload, candidate.tree):
        if spec.workload.producer(tensor) is None:
            does = "read"
            remedy = "in one of the two, as a tensor of its own, or set max_fused_loops: 0"
            remedy = f"name {tensor} otherwise {remedy}"
        else:
            does, remedy = "touch", f"have {tensor} handed on inside (`fuse`), or write the mapping by hand"
        message = (
            f"{one} and {other} share loops and both {does} {tensor}, which neither hands on to the other; "
            "the search takes each to store its own, and found mappings where that is not so"
        )
        return ReadTogether(message, remedy)
    text = mapping_to_yaml(candidate.tree, spec.used_symbols())
    return InternalError(f"the search and evaluate disagree on a mapping (please report it): {what}\n{text}")


def _read_together(cascade: Cascade, tree: LoopTree) -> Iterator[tuple[str, str, str]]:
    """Yield tensors of the backing storage, each with two Einsums below a common loop that access it."""
    root = tree.nodes[0]
    backed = root.tensors if isinstance(root, StorageNode) else ()
    for one, other in combinations(tree.einsums, 2):
        both = zip(tree.path(one), tree.path(other), strict=False)
        same = takewhile(lambda steps: steps[0].id == steps[1].id, both)
        if any(isinstance(step.node, Loop) for step, _ in same):
            mine, theirs = ({*cascade[e].tensors} for e in (one, other))
            yield from ((t, one, other) for t in backed if t in mine & theirs)


# One mapping of a front: its figures, its LoopTree and its report.


@dataclass(frozen=True, eq=False)
class Point:
    """A mapping of a front, with energy in joules and latency in seconds.

    `number`: its position in the front. `chosen`: the formats, actions and rules chosen for sparse data,
    which `spec` contains. `sparse_energy`, `sparse_latency` and `speedup` are None without sparse
    objectives.
    """

    number: int
    base: Spec
    candidate: Candidate
    objectives: tuple[str, ...]
    found: MappingFigures
    chosen: str = ""

    @cached_property
    def figures(self) -> MappingFigures:
        """The figures of `evaluate`; raises InternalError if those of the search differ."""
        return self.found if self.found.confirmed else confirmed(self.base, self.candidate)

    @property
    def energy(self) -> float:
        return self.found.energy

    @property
    def latency(self) -> float:
        return self.found.latency

    @property
    def edp(self) -> float:
        """Energy-delay product, in joule seconds."""
        return self.energy * self.latency

    @property
    def energy_delay(self) -> float:
        """Older name of `edp`."""
        return self.edp

    @property
    def sparse_energy(self) -> float | None:
        return None if self.found.sparse is None else self.found.sparse[0]

    @property
    def sparse_latency(self) -> float | None:
        return None if self.found.sparse is None else self.found.sparse[1]

    @property
    def speedup(self) -> float | None:
        """Dense latency over sparse latency."""
        if self.sparse_latency is None:
            return None
        return self.latency / self.sparse_latency if self.sparse_latency else inf

    @property
    def buffers(self) -> dict[str, float]:
        """Peak bits of each memory below the backing storage (of one instance)."""
        return dict(self.found.buffers)

    def value(self, objective: str) -> float:
        """One figure by name: energy, latency, edp, area, working_set:MEMORY, other objectives and limits.

        On sparse data also sparse_energy, sparse_latency, sparse_edp and speedup. Older names work too.
        Raises KeyError for other names.
        """
        name = meant(objective, self.base)
        sparse, known = self.found.sparse, dict(self.found.named)
        if name == "speedup" and sparse is not None:
            return self.speedup or 0.0
        of_sparse = on_sparse_data(name)
        if (of_sparse and sparse is None) or not is_objective(name):
            raise KeyError(objective)
        if name in known:
            return known[name]
        energy, latency = sparse if of_sparse and sparse else (self.energy, self.latency)
        dense = on_dense_data(name)
        area = total_area(self.base.arch) if ("area", "") in uses(dense) else 0.0
        result: float = value(dense, SearchFigures(energy, latency, self.buffers, area))
        return result

    @cached_property
    def values(self) -> tuple[float, ...]:
        """The figures in the order of the objectives."""
        return tuple(self.value(o) for o in self.objectives)

    @cached_property
    def scores(self) -> tuple[float, ...]:
        """The minimised value of each objective: the reciprocal where the objective is maximised."""
        return tuple(float(score(o, v)) for o, v in zip(self.objectives, self.values, strict=True))

    @cached_property
    def spec(self) -> Spec:
        """The spec with this mapping; `evaluate` gives the same figures."""
        return self.base.with_mapping(self.candidate.tree)

    @property
    def mapping(self) -> LoopTree:
        result = self.spec.mapping
        assert result is not None
        return result

    @cached_property
    def report(self) -> Report:
        """The report of this mapping, evaluated on first access.

        Raises InternalError if its figures differ from those of the search.
        """
        result = evaluate(self.spec)
        check = compared if self.found.sparse is None else on_sparse_tiles
        check(self.base, self.candidate, result)
        return result

    @property
    def sparse(self) -> SparseReport:
        """The report on sparse data, for the densities of the workload."""
        return self.report.sparse

    @property
    def yaml(self) -> str:
        """The mapping as YAML that loads back, with the symbols of workload and architecture, and with the
        sections `sparse` that were chosen for it."""
        base = self.base
        return mapping_to_yaml(self.candidate.tree, base.used_symbols(), base.sparse_sections)

    def save(self, path: str | Path) -> Path:
        """Write the mapping to a file, which `pm.load(workload, architecture, path)` reads back unchanged."""
        with protected_files(self.base), writing(path):
            write_text(path, self.yaml)
        return Path(path)

    @cached_property
    def fused(self) -> tuple[str, ...]:
        """Intermediates that never reach the backing storage."""
        return fused_tensors(self.candidate.tree, self.base.workload, backing(self.base))

    @cached_property
    def fused_loops(self) -> str:
        """Loops that several Einsums share, with their tile shapes."""
        return fused_loops(self.candidate.tree)

    def __repr__(self) -> str:
        peaks = ", ".join(f"{m} {engineering(b, 'bit')}" for m, b in self.found.buffers)
        figures = f"{engineering(self.energy, 'J')}, {engineering(self.latency, 's')}, {peaks}"
        if self.found.sparse is not None:
            joules, seconds = self.found.sparse
            figures = f"sparse {engineering(joules, 'J')}, {engineering(seconds, 's')}; dense {figures}"
            figures += f"; {self.chosen}" if self.chosen else ""
        return f"Mapping {self.number}: {figures}\n{self.mapping!r}"

    def _repr_html_(self) -> str:
        from polymodel.report.svg import looptree_svg
        from polymodel.view.answer import Code, Picture
        from polymodel.view.html import fragment

        return fragment([Code(repr(self).splitlines()[0]), Picture("LoopTree", looptree_svg(self.mapping))])


def meant(objective: str, spec: Spec) -> str:
    """Return the canonical name of an objective: older words, and a working set without a memory, are
    resolved."""

    def known(name: str) -> str:
        return f"{WORKING_SET}:{measured_memory(spec.arch)}" if name == WORKING_SET else name

    return renamed(canonical(objective), known)


def backing(spec: Spec) -> str:
    """The outermost memory."""
    return spec.arch.memories[0]


def fused_tensors(tree: LoopTree, cascade: Cascade, backing: str) -> tuple[str, ...]:
    """Intermediates that no node of the backing storage holds, in order of first appearance."""
    held = {
        t
        for _, n, _ in tree.walk()
        if isinstance(n, StorageNode) and n.component == backing
        for t in n.tensors
    }
    return tuple(t for t in cascade.tensors if t in cascade.intermediates and t not in held)


def fused_loops(tree: LoopTree) -> str:
    """Loops above several Einsums with their tile shapes, by Einsums: `A-C: m 16, n 8; D-E: m 4`.

    A loop whose iterations a pipeline overlaps is `m 8 pipelined`; one with a first tile of 9, `m 8 first 9`.
    """
    groups: dict[tuple[str, ...], list[str]] = {}
    overlapped = {p.loop for p in pipelines(tree)}
    for number, node, _ in tree.walk():
        if isinstance(node, Loop) and len(below := tree.below[number]) > 1:
            text = f"{node.rank_variable} {node.tile_shape}"
            text += "" if node.initial_tile_shape is None else f" first {node.initial_tile_shape}"
            groups.setdefault(below, []).append(text + " pipelined" * (number in overlapped))
    return "; ".join(f"{e[0]}-{e[-1]}: {', '.join(loops)}" for e, loops in groups.items())
