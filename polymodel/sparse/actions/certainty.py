"""How certain the loads of memories, tolls and links are, whose busiest instances decide on latencies.

Loads are those of the dense schedule, scaled as the traffic of the Einsum at the component is. That is right
where one instance moves everything, and where no sparse tensor differs between instances. Else it is the mean
of all instances, which the busiest has at least if the dense schedule gives all of them the same.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from polymodel.analysis.result import Analysis, InstanceLoad, PipelineRun, Problem, StageWork
from polymodel.sparse.actions.data import TensorData
from polymodel.sparse.actions.records import Certainty, ComputeCount, LoadLabel, SparseCounts, least_certain

Pairs = tuple[tuple[int, int], ...]


def load_labels(
    problem: Problem, analysis: Analysis, counts: SparseCounts, data: Mapping[str, TensorData]
) -> tuple[LoadLabel, ...]:
    """One label per Einsum and component that moves anything; of pipelined Einsums also of their compute."""
    return tuple(_Loads(problem, analysis, counts, data).labels())


class _Loads:
    def __init__(
        self, problem: Problem, analysis: Analysis, counts: SparseCounts, data: Mapping[str, TensorData]
    ) -> None:
        self.problem = problem
        self.analysis = analysis
        self.counts = counts
        self.data = data
        self.bits = {a.tensor: a.bits_per_value for e in problem.cascade for a in reversed(e.accesses)}
        self.rounded = {(t.einsum, t.component) for t in analysis.transfers}
        self.waiting = {(r.einsum, r.component) for r in analysis.refills}
        self.overlapped = {e for run in analysis.pipelines for e in einsums_in(run)}

    def labels(self) -> Iterator[LoadLabel]:
        for load in self.analysis.loads:
            yield self._memory(load) if self._here(load) else self._passed(load.einsum, load.component, load)
        for link in self.analysis.links:
            yield self._passed(link.einsum, link.component, None)
        for work in self.counts.compute:
            if work.einsum in self.overlapped:
                sure: Certainty = "exact" if _whole(work) else "estimate"
                yield LoadLabel(work.einsum, work.component, "exact", sure)

    def _here(self, load: InstanceLoad) -> bool:
        return any((a.einsum, a.component) == (load.einsum, load.component) for a in self.counts.accesses)

    def _memory(self, load: InstanceLoad) -> LoadLabel:
        """Of a storage: what all instances move is in its accesses."""
        key = load.einsum, load.component
        here = [a for a in self.counts.accesses if (a.einsum, a.component) == key]
        if all(a.actual == a.dense and not a.metadata_bits for a in here):
            return LoadLabel(*key, "exact", "exact")
        counted = least_certain(x for a in here for x in (a.label, a.metadata_label))
        # Whole actions, refills and slots of pipelines are scaled as the sum over all transfers is.
        if key in self.rounded:
            return LoadLabel(*key, "estimate", "estimate")
        if key in self.waiting or load.einsum in self.overlapped:
            return LoadLabel(*key, counted, "estimate")
        if load.instances == 1:
            return LoadLabel(*key, counted, counted)
        even = self._even(load)
        if even and not self._differ(load.einsum):
            return LoadLabel(*key, counted, counted)
        return LoadLabel(*key, counted, "lower bound" if even and counted != "bound" else "estimate")

    def _passed(self, einsum: str, component: str, toll: InstanceLoad | None) -> LoadLabel:
        """Of a toll or a link: scaled as what the next storage further out moves is, an estimate where one
        instance of it does not pass everything."""
        mine = [a for a in self.counts.accesses if a.einsum == einsum]
        if all(a.actual == a.dense for a in mine):
            return LoadLabel(einsum, component, "exact", "exact")
        compressed = any(a.absent or a.metadata_bits for a in mine)
        alone = toll is not None and toll.instances == 1 and not compressed
        simple = alone and einsum not in self.overlapped and (einsum, component) not in self.rounded
        label = least_certain(a.label for a in mine) if simple else "estimate"
        return LoadLabel(einsum, component, label, label)

    def _differ(self, einsum: str) -> bool:
        """Whether instances may meet other zeros: a loop over them indexes a tensor that has some."""
        spatial = {x.variable_in(einsum) for _, x in self.problem.tree.loops(einsum) if x.spatial}
        return any(
            spatial & set(a.variables)
            for a in self.problem.cascade[einsum].accesses
            if not self.data[a.tensor].dense
        )

    def _even(self, load: InstanceLoad) -> bool:
        """Whether the dense schedule gives every instance the same."""
        key = load.einsum, load.component
        mine = [t for t in self.analysis.traffic if (t.einsum, t.component) == key]
        reads = sum(t.reads * self.bits[t.tensor] for t in mine)
        writes = sum(t.writes * self.bits[t.tensor] for t in mine)
        each = [(r * load.instances, w * load.instances) for r, w in load.loads]
        return each == [(reads, writes)]


def _whole(work: ComputeCount) -> bool:
    return work.timed == work.dense


def einsums_in(item: StageWork | PipelineRun) -> tuple[str, ...]:
    """The Einsums that a stage of a pipeline executes."""
    if isinstance(item, StageWork):
        return (item.einsum,)
    return tuple(e for slot in item.slots for stage in slot.stages for x in stage for e in einsums_in(x))
