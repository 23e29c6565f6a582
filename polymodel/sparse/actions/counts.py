"""Compute the sparse counts of a whole analysis: every operation and access is actual, gated, skipped or
absent."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from math import isinf, prod
from typing import Any

import numpy as np

from polymodel.analysis.result import (
    Analysis,
    ComputeCounts,
    InstanceLoad,
    PipelineRun,
    Problem,
    StageWork,
    Traffic,
)
from polymodel.architecture.hierarchy import Component
from polymodel.errors import Refused
from polymodel.mapping.looptree import storage_chain
from polymodel.sparse.actions.busiest import Instances, operations_by_instance, parts_of_instances
from polymodel.sparse.actions.capacity import overbooked, resident
from polymodel.sparse.actions.data import TensorData
from polymodel.sparse.actions.intersections import intersection_counts
from polymodel.sparse.actions.links import Condition, EinsumLinks, sharpest
from polymodel.sparse.actions.places import effectual_points, seen_by, touched_by
from polymodel.sparse.actions.reach import Looked, effectual_only
from polymodel.sparse.actions.records import (
    KINDS,
    AccessCount,
    Certainty,
    ComputeCount,
    LoadLabel,
    SparseCounts,
    at_most,
    larger,
    least_certain,
)
from polymodel.sparse.actions.storage import (
    AccessShare,
    Formats,
    KeptTensor,
    TileBits,
    moved,
    tiling_bits,
    transfer_digits,
)
from polymodel.sparse.actions.sums import NOTHING, LinkSums, Number, Tables
from polymodel.sparse.actions.zeros import empty_before, require_carried_anywhere, require_known, stopping

# An action has no effect under a mapping in which its memory does not hold the tensor that it names.


def idle_actions(problem: Problem, data: Mapping[str, TensorData]) -> tuple[str, ...]:
    """Return a note for each action that has no effect: one per memory, kind of action and tensor that no
    Einsum of the action keeps there, and one per tensor that leads an action although its zeros do not make
    any operation idle."""
    every = (text for c in problem.hierarchy.components for text in _idle(problem, c, data))
    return tuple(dict.fromkeys(every))


def _idle(problem: Problem, component: Component, data: Mapping[str, TensorData]) -> Iterator[str]:
    for number, action in enumerate(component.sparse.actions if component.sparse else ()):
        for einsum, targets, on in action.by_einsum:
            passing = [t for t in on if t not in targets and not stopping(problem.cascade[einsum], t)]
            for tensor in (t for t in passing if not data[t].dense):
                yield (
                    f"{component.name}.sparse.actions[{number}]: {action.kind} on {tensor} does nothing in "
                    f"{einsum}, of which what is absent in {tensor} stops no operation"
                )
        leaders: dict[str, dict[str, None]] = {}
        held: set[str] = set()
        for einsum, targets, on in action.by_einsum:
            for tensor in targets:
                leaders.setdefault(tensor, {}).update(dict.fromkeys(on))
                chain = storage_chain(problem.tree, einsum, tensor)
                if any(getattr(s.node, "component", "") == component.name for s in chain):
                    held.add(tensor)
        for tensor in (t for t in leaders if t not in held):
            name, zeros = component.name, ", ".join(leaders[tensor])
            where = f"{name}.sparse.actions[{number}]"
            yield (
                f"{where}: {action.kind} {tensor} on {zeros} does nothing, for {name} does not hold {tensor} "
                f"under this mapping; say it at a memory that holds {tensor}, or keep {tensor} in {name}"
            )


# Certainty labels of the loads of memories, tolls and links, whose busiest instances determine latencies.
#
# A load is that of the dense schedule, scaled in proportion to the traffic of the Einsum at the component.
# This is correct where one instance moves everything, and where no sparse tensor differs between instances.
# Otherwise it is the mean over all instances, a lower bound for the busiest one if the dense schedule gives
# all of them the same load.

Pairs = tuple[tuple[int, int], ...]


def load_labels(
    problem: Problem, analysis: Analysis, counts: SparseCounts, data: Mapping[str, TensorData]
) -> tuple[LoadLabel, ...]:
    """Return one label per Einsum and component that moves data; for pipelined Einsums also one for their
    compute unit."""
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
        """Return the label of a storage, whose accesses include the transfers of all instances."""
        key = load.einsum, load.component
        here = [a for a in self.counts.accesses if (a.einsum, a.component) == key]
        if all(a.actual == a.dense and not a.metadata_bits for a in here):
            return LoadLabel(*key, "exact", "exact")
        counted = least_certain(x for a in here for x in (a.label, a.metadata_label))
        # Whole actions, refills and slots of pipelines are scaled like the sum over all transfers.
        if key in self.rounded:
            return LoadLabel(*key, "estimate", "estimate")
        if key in self.waiting or load.einsum in self.overlapped:
            return LoadLabel(*key, counted, "estimate")
        if load.instances == 1:
            return LoadLabel(*key, counted, counted)
        even = self._even(load)
        if (even and not self._differ(load.einsum)) or self._takes_no_time(load.component):
            return LoadLabel(*key, counted, counted)
        return LoadLabel(*key, counted, "lower bound" if even and counted != "bound" else "estimate")

    def _passed(self, einsum: str, component: str, toll: InstanceLoad | None) -> LoadLabel:
        """Return the label of a toll or a link. Its traffic is scaled like the transfers of the next outer
        storage, which is an estimate unless a single instance of it passes all of them."""
        mine = [a for a in self.counts.accesses if a.einsum == einsum]
        if all(a.actual == a.dense for a in mine):
            return LoadLabel(einsum, component, "exact", "exact")
        compressed = any(a.absent or a.metadata_bits for a in mine)
        alone = toll is not None and toll.instances == 1 and not compressed
        simple = alone and einsum not in self.overlapped and (einsum, component) not in self.rounded
        label = least_certain(a.label for a in mine) if simple else "estimate"
        return LoadLabel(einsum, component, label, label)

    def _differ(self, einsum: str) -> bool:
        """Return whether instances may encounter different zeros: a loop over instances indexes a tensor that
        has zeros."""
        spatial = {x.variable_in(einsum) for _, x in self.problem.tree.loops(einsum) if x.spatial}
        return any(
            spatial & set(a.variables)
            for a in self.problem.cascade[einsum].accesses
            if not self.data[a.tensor].dense
        )

    def _takes_no_time(self, component: str) -> bool:
        """Return whether no load of a component's busiest instance takes any time, so that latencies do not
        depend on it: its reads and writes have no throughput."""
        return all(isinf(way.throughput) for way in self.problem.hierarchy[component].ways)

    def _even(self, load: InstanceLoad) -> bool:
        """Return whether the dense schedule gives every instance the same load."""
        key = load.einsum, load.component
        mine = [t for t in self.analysis.traffic if (t.einsum, t.component) == key]
        reads = sum(t.reads * self.bits[t.tensor] for t in mine)
        writes = sum(t.writes * self.bits[t.tensor] for t in mine)
        each = [(r * load.instances, w * load.instances) for r, w in load.loads]
        return each == [(reads, writes)]


def _whole(work: ComputeCount) -> bool:
    return work.timed == work.dense


def einsums_in(item: StageWork | PipelineRun) -> tuple[str, ...]:
    """Return the Einsums that a stage of a pipeline executes."""
    if isinstance(item, StageWork):
        return (item.einsum,)
    return tuple(e for slot in item.slots for stage in slot.stages for x in stage for e in einsums_in(x))


SKIPS, ACTIONS = ("skip",), ("skip", "gate")


def in_order(effectual: Any, executed: Any, turns: Any, whole: Any) -> tuple[Any, Any, Any]:
    """Return the numbers of effectual operations, of executed ones and of those that take a cycle, limited so
    that each is at most the next and none exceeds the total. Accepts numbers or arrays."""
    executed = larger(executed, effectual)
    turns = at_most(larger(turns, executed), whole)
    executed = at_most(executed, turns)
    return at_most(effectual, executed), executed, turns


def compute_count(
    row: ComputeCounts,
    effectual: Number,
    executed: Number,
    turns: Number,
    busiest: Number,
    label: Certainty = "expected",
    busiest_label: Certainty = "expected",
) -> ComputeCount:
    """Return the record of operations whose numbers are `in_order`. Accepts numbers or arrays."""
    return ComputeCount(
        row.einsum, row.component, row.operations, effectual, executed - effectual, turns - executed,
        row.operations - turns, label, busiest, row.instances, busiest_label,
    )  # fmt: skip


def access_count(
    row: Traffic, kind: str, m: AccessShare, label: Certainty = "expected", about: Certainty = "expected"
) -> AccessCount:
    """Return the record of one kind of access. `about`: the certainty label of its metadata. Accepts numbers
    or arrays."""
    return AccessCount(
        row.einsum, row.node, row.component, row.tensor, kind, m.dense, m.actual, m.gated, m.held - m.turns,
        m.dense - m.held, label, m.metadata, about,
    )  # fmt: skip


class EinsumActions:
    """Computes the counts of one Einsum."""

    def __init__(
        self, problem: Problem, einsum: str, data: Mapping[str, TensorData], formats: Formats
    ) -> None:
        self.structure = EinsumLinks(problem, einsum)
        seen = seen_by(problem.cascade[einsum], data)
        self.data = seen | {name: seen[used.tensor] for name, used in self.structure.operands.items()}
        self.formats = formats
        self.tilings: dict[tuple[str, str, frozenset[int]], TileBits] = {}
        self.tables = Tables()
        self.notes: list[str] = []
        # Operations that take a cycle, and operations that are executed, once they are counted.
        self.operations: tuple[Number, Number] | None = None

    def compute(self, dense: ComputeCounts) -> ComputeCount:
        """Return the numbers of operations: effectual, ineffectual but executed, gated, skipped."""
        whole = dense.operations
        sums = LinkSums(self.structure, self.data, self.tables)
        self._require_carried(sums)
        effectual, label = self._effectual(whole)
        skips = sums.looked(SKIPS)
        every = sums.looked(ACTIONS).conditions
        # Counts that are equal by definition share one number, so that rounding differences do not
        # appear as operations.
        if effectual_only(self.structure, self.data, ACTIONS):
            executed, second = effectual, label
        else:
            executed, second = self._remaining(sums, "operations", sums.looked(ACTIONS), whole, False)
        if sharpest(skips.conditions) == sharpest(every):
            turns, about = executed, second
        else:
            turns, about = self._remaining(sums, "operations", skips, whole, False)
        label = least_certain((label, about, second))
        effectual, executed, turns = in_order(effectual, executed, turns, whole)
        self.operations = turns, executed
        busiest, sure = self._busiest(sums, skips.conditions, dense, turns, about)
        return compute_count(dense, effectual, executed, turns, busiest, label, sure)

    def _busiest(
        self,
        sums: LinkSums,
        skips: tuple[Condition, ...],
        dense: ComputeCounts,
        turns: Number,
        label: Certainty,
    ) -> tuple[Number, Certainty]:
        """Return the number of operations of the busiest instance, and its label. `label`: that of `turns`,
        the operations of all instances that take a cycle."""
        useful = sharpest(c for c in skips if not self.data[c.leader].dense)
        if not useful:
            return dense.busiest, "exact"
        if dense.instances == 1:
            return turns, label
        followed = self.structure.box and sums.total("operations") == dense.operations
        if followed and all(self.data[c.leader].actual is not None for c in useful):
            tables = {c: sums.table(c) for c in useful}
            result = operations_by_instance(self.structure, useful, tables)
            return int(result.max(initial=0)), "exact"
        fullest = self._fullest(useful[0], dense) if followed and len(useful) == 1 else None
        if fullest is not None:
            return fullest
        even = dense.busiest * dense.instances == dense.operations
        mean, sure = dense.busiest * turns / dense.operations, even and label not in ("bound", "estimate")
        most = self._greatest_mean(sums, useful) if followed else None
        if most is not None:
            # The mean of the maximum is at least the maximum of the means.
            mean, sure = most, True
        whose = "the mean" if most is None else "the greatest mean of any"
        self.notes.append(
            f"{self.structure.name}: operations of the busiest instance of {dense.component} are taken as "
            f"{whose}{', the least they can be' if sure else ''}: its time may be longer"
        )
        return mean, "lower bound" if sure else "estimate"

    def _greatest_mean(self, sums: LinkSums, useful: tuple[Condition, ...]) -> float | None:
        """Return the largest expected number of operations of an instance; None where positions are
        unknown."""
        spatial = {i for i, loop in self.structure.loops if loop.spatial}
        parts = {c.variable: parts_of_instances(c, spatial) for c in self.structure.counters}
        return sums.most_of_an_instance(useful, parts)

    def _fullest(self, condition: Condition, dense: ComputeCounts) -> tuple[Number, Certainty] | None:
        """Return the number of operations of the busiest instance, and its label, where a single leader with
        a density model determines it."""
        settings = {c.variable: (c,) for c in self.structure.counters}
        instances = Instances(self.structure, settings, condition, self.data[condition.leader])
        if instances.dense({v: np.zeros((), np.int64) for v in settings}) != dense.busiest:
            return None
        label = instances.certainty(dict.fromkeys(settings, 0))
        if label is None:
            return None
        result = float(instances.busiest({v: np.zeros((), np.int64) for v in settings}))
        return int(result) if result.is_integer() and label == "exact" else result, label

    def _effectual(self, whole: int) -> tuple[Number, Certainty]:
        """Return the number of operations whose result may be nonzero, and its label. All factors of a
        product must be nonzero, and any term of a sum."""
        einsum = self.structure.einsum
        require_known(einsum, self.data)
        result = effectual_points(einsum, self.data, empty_before(self.structure.problem.cascade))
        if result.of == 1:
            return whole * result.number, result.label
        each_alike = self.structure.box and whole == prod(c.size for c in self.structure.counters)
        if each_alike and whole % result.of == 0 and isinstance(result.number, int):
            return whole // result.of * result.number, result.label
        return whole * result.number / result.of, result.label if each_alike else "estimate"

    def _require_carried(self, sums: LinkSums) -> None:
        """Raise Refused where actions eliminate operations that carry a tensor forward: the next generation
        would lack the values that they pass on."""
        einsum = self.structure.einsum
        written = {a.tensor for a in einsum.outputs}
        carried = [a.tensor for a in einsum.inputs if a.tensor in written and self.data[a.tensor].dense]
        leaders = sums.looked(ACTIONS).leaders
        if carried and leaders:
            on = ", ".join(dict.fromkeys(leaders))
            message = f"{einsum.name}: actions on {on} leave out operations that carry {carried[0]} forward"
            remedy = f"remove actions with `on: {on}` on `compute` and on operands of {einsum.name}"
            raise Refused(message, remedy, code="unsupported-recurrence")

    def access(self, dense: Traffic) -> tuple[AccessCount, ...]:
        """Return one record per kind of access that occurs."""
        return tuple(self._one(dense, kind) for kind in KINDS if getattr(dense, kind))

    def _one(self, row: Traffic, kind: str) -> AccessCount:
        dense: int = getattr(row, kind)
        nonzeros = self.formats.compressed(row.component, row.tensor) and not self.data[row.tensor].dense
        ways = self.structure.ways(row.tensor, row.node, kind)
        if not ways:
            held, label = self._scaled(row.tensor, dense, nonzeros)
            return self._record(row, kind, dense, held, held, held, label)
        every = [LinkSums(self.structure, self.data, self.tables, chain) for chain in ways]
        result = [
            self._left(sums, kind, part, nonzeros)
            for sums, part in zip(every, self._parts(every, kind, dense), strict=True)
        ]
        held, turns, actual = (sum(column) for column in tuple(zip(*result, strict=True))[:3])
        label = least_certain(f[3] for f in result)
        if label == "bound" and self.operations is not None and self._for_operations(every, kind):
            turns, actual = (min(x, n) for x, n in zip((turns, actual), self.operations, strict=True))
        return self._record(row, kind, dense, held, turns, actual, label)

    def _for_operations(self, every: Sequence[LinkSums], kind: str) -> bool:
        """Return whether each moved element of an output belongs to executed operations of its own, whose
        number position-dependent models give. Then no more elements move than operations are executed."""
        placed = any(not d.placeless and d.actual is None for d in self.data.values())
        own = all(sums.link is not None and sums.link.reached and sums.followed for sums in every)
        return placed and own and kind != "writes_fill"

    def _parts(self, every: list[LinkSums], kind: str, dense: int) -> list[Number]:
        """Divide `dense` among several paths."""
        if len(every) == 1:
            return [dense]
        each = [sums.total(kind) if sums.followed else 1 for sums in every]
        whole = sum(each)
        return list(each) if whole == dense else [dense * part / whole for part in each]

    def _left(
        self, sums: LinkSums, kind: str, dense: Number, nonzeros: bool
    ) -> tuple[Number, Number, Number, Certainty]:
        """Return how many elements are held, how many of these take a cycle, how many move, and the certainty
        label of these numbers."""
        held, label = self._remaining(sums, kind, NOTHING, dense, nonzeros)
        skips, every = sums.looked(SKIPS), sums.looked(ACTIONS)
        if kind in ("reads_fill", "writes_fill") and not sums.followed:
            # Elements that an operation reads from the previous generation move even if it is not executed.
            skips, every = sums.alone(SKIPS), sums.alone(ACTIONS)
        turns, first = self._remaining(sums, kind, skips, dense, nonzeros)
        actual, second = self._remaining(sums, kind, every, dense, nonzeros)
        return held, turns, actual, least_certain((label, first, second))

    def _record(
        self,
        row: Traffic,
        kind: str,
        dense: int,
        held: Number,
        turns: Number,
        actual: Number,
        label: Certainty,
    ) -> AccessCount:
        how = self.formats.known.get((row.component, row.tensor))
        bits = self.formats.accesses[row.tensor].bits_per_value if how is not None else 0

        def tiling(how: KeptTensor) -> TileBits:
            return self._tiling(row, kind, how)

        m = moved(dense, held, turns, actual, how, tiling, bits)
        about = label
        if how is not None:
            shared: Certainty = "exact" if m.share in (0, 1) else "expected"
            about = least_certain((label, tiling(how).label, shared))
        return access_count(row, kind, m, about if how is not None and how.blocks else label, about)

    def _tiling(self, row: Traffic, kind: str, how: KeptTensor) -> TileBits:
        digits = transfer_digits(self.structure, row.tensor, row.node, kind)
        key = row.component, row.tensor, digits
        if key not in self.tilings:
            self.tilings[key] = tiling_bits(
                self.structure, row.tensor, digits, self.data[row.tensor], self.formats, how
            )
        return self.tilings[key]

    def _remaining(
        self, sums: LinkSums, kind: str, looked: Looked, dense: Number, nonzeros: bool
    ) -> tuple[Number, Certainty]:
        """Return how much of `dense` remains, and the certainty label of that number."""
        self._overlapping(sums)
        if not looked and not nonzeros:
            return dense, "bound" if looked.loose else "exact"
        bounded = looked.loose
        data = [self.data[t] for t in (*looked.leaders, *([sums.tensor] if nonzeros else []))]
        if self.structure.box and sums.followed and sums.total(kind) == dense:
            label: Certainty = "exact" if all(d.label == "exact" for d in data) else "expected"
            result = sums.total(kind, looked, nonzeros)
            own = self.data[sums.tensor] if nonzeros else None
            sure = sums.sure(kind, looked, nonzeros)
            named = not sure and self._places(sums, looked.conditions)
            bounded = named or bounded
            if not sure and not named and sums.partial(kind):
                self._partial_sums(sums, looked.leaders)
            if own is not None and own.actual is None and looked and not sure:
                return min(result, sums.total(kind, NOTHING, True)), "bound"
            if own is not None and own.actual is None and looked and (own.computed or looked.by_value):
                # An output's nonzeros lie where its operands' do: the product of chances may be too low.
                touched = sums.total(kind, looked)
                if own.computed and looked.by_value and effectual_only(self.structure, self.data, SKIPS):
                    # Every element that is touched ends up nonzero.
                    return touched, label if sums.sure(kind, looked, False) and not bounded else "bound"
                return min(touched, sums.total(kind, NOTHING, True)), "bound"
            return result, label if sure and not bounded else "bound"
        bounded = self._places(sums, looked.conditions) or sums.overlap(looked.conditions) or bounded
        if self.structure.box and sums.followed and sums.total(kind) > dense:
            # Instances share reads of elements that are in the windows of several. A read takes place where
            # any of them needs it, so at most as often as all of theirs together.
            most = dense * (self.data[sums.tensor].density if nonzeros else 1.0)
            self.note(sums.tensor, False)
            return min(most, sums.total(kind, looked, nonzeros)), "bound"
        # A part that holds a nonzero of the tensor satisfies the conditions that the tensor itself leads.
        led = {c: self.structure.led(c.leader).tensor for c in looked.conditions}
        mine = tuple(c for c in looked.conditions if not nonzeros or led[c] != sums.tensor)
        bounded = bounded or (nonzeros and sums.tied(looked.conditions))
        looked = replace(looked, conditions=mine)
        low, high = sums.shares(looked, kind) if looked else (1.0, 1.0)
        scale = self.data[sums.tensor].density if nonzeros else 1.0
        # Where positions matter, the probability is that of a tile at a random position, which is no bound.
        placed = any(not d.placeless and not d.dense for d in data)
        self.note(sums.tensor, low == high or placed)
        if placed:
            return dense * high * scale, "estimate"
        return dense * high * scale, "expected" if low == high and not bounded else "bound"

    def _scaled(self, tensor: str, dense: int, nonzeros: bool) -> tuple[Number, Certainty]:
        """Return the remaining accesses of a copy, or of a tensor without a link, where every element moves
        equally often."""
        data = self.data[tensor]
        if not nonzeros:
            return dense, "exact"
        points = data.actual.size if data.actual is not None else 0
        touched = touched_by(self.structure.einsum, self.structure.used(tensor).accesses[0])
        whole = data.actual is not None and touched == tuple(map(range, data.actual.shape))
        if data.actual is not None and whole and dense % points == 0:
            return dense // points * data.actual.nnz, "exact"
        return dense * data.density, "expected" if data.actual is None else "estimate"

    def _places(self, sums: LinkSums, conditions: Iterable[Condition]) -> bool:
        """Return True, and add a note, if a position-dependent model leads an action by tiles of several
        sizes, or by tiles with gaps that it does not describe."""
        leaders = {c.leader: sums.has_gaps(c) for c in conditions if sums.uneven(c)}
        for leader, gaps in leaders.items():
            why = "do not consist of consecutive elements, and its model does not describe such tiles"
            which = "they"
            if not gaps:
                why, which = "differ in size, and its model knows places", "the smaller ones"
            text = (
                f"{self.structure.name}: tiles of {leader} {why}; {which} are taken never to be empty: give "
                "the data for exact numbers"
            )
            if text not in self.notes:
                self.notes.append(text)
        return bool(leaders)

    def _overlapping(self, sums: LinkSums) -> None:
        """Add a note on actions that are not counted because instances share elements of their windows."""
        conditions = () if sums.link is None else sums.link.conditions
        for leader in dict.fromkeys(c.leader for c in conditions if c.overlapping):
            text = f"{self.structure.name}: windows of {sums.tensor} share elements between instances"
            text += f", which have parts of {leader} of their own; no such transfer is taken to be eliminated"
            if not self.data[leader].dense and text not in self.notes:
                self.notes.append(text)

    def _partial_sums(self, sums: LinkSums, leaders: Sequence[str]) -> None:
        """Add a note that the number of partial sums that are read is an upper bound."""
        modelled = [t for t in leaders if self.data[t].actual is None]
        text = (
            f"{self.structure.name}: at most as many partial sums of {sums.tensor} are read as are written, "
            f"since the model of {', '.join(modelled)} does not say which tiles are empty: give the data for "
            "exact numbers"
        )
        if modelled and text not in self.notes:
            self.notes.append(text)

    def note(self, tensor: str, equal: bool) -> None:
        """Add a note that transfers were not followed one by one."""
        which = f"transfers of {tensor}" if tensor else "operations"
        how = "all tiles alike" if equal else "at most: by the tile that is empty most rarely"
        text = f"{self.structure.name}: {which} are not followed tile by tile here; counted {how}"
        if text not in self.notes:
            self.notes.append(text)


def sparse_counts(
    problem: Problem, analysis: Analysis, data: Mapping[str, TensorData], confidence: float = 0.99
) -> SparseCounts:
    """Return the operations, accesses and footprints of every Einsum, each for one execution.

    `data`: what is known of the nonzeros of every tensor. `confidence`: the probability with which a
    footprint's `quantile_bits` are not exceeded. Raises Refused, with the names concerned, for what cannot be
    counted.
    """
    require_carried_anywhere(problem.cascade, data)
    formats = Formats(problem)
    each = {e.name: EinsumActions(problem, e.name, data, formats) for e in problem.cascade.einsums}
    compute = tuple(
        each[c.einsum].compute(c) if c.operations else ComputeCount(c.einsum, c.component, 0, 0)
        for c in analysis.compute
    )
    accesses = tuple(x for row in analysis.traffic for x in each[row.einsum].access(row))
    held = (resident(problem, b, data, formats, confidence) for b in analysis.buffets)
    footprints = tuple(f for f in held if f is not None)
    accesses, again = overbooked(problem, analysis, accesses, footprints, data, formats)
    mapped = (e for e in each.values() if e.structure.name in problem.tree.paths)
    met = tuple(x for e in mapped for x in intersection_counts(e.structure, e.data))
    notes = (*idle_actions(problem, data), *(n for e in each.values() for n in e.notes), *again) + tuple(
        f"{d.tensor} is computed: its nonzeros are taken as uniform, {d.density:.4g} of its points"
        for d in data.values()
        if d.computed and d.actual is None
    )
    if any(not d.dense for d in data.values()):
        notes += tuple(
            f"{t} is carried from one iteration to the next, and is taken to have no zeros"
            for t in problem.cascade.recurrent
            if data[t].dense
        )
    labels = load_labels(problem, analysis, SparseCounts(compute, accesses), data)
    notes += tuple(_uneven(x) for x in labels if x.busiest_label != x.label)
    return SparseCounts(compute, accesses, footprints, notes, met, labels)


def _uneven(load: LoadLabel) -> str:
    """Return the note on a busiest instance whose load is not counted by itself."""
    least = ", the least it can move" if load.busiest_label == "lower bound" else ""
    return (
        f"{load.einsum}: the busiest instance of {load.component} is taken to be spared like all others"
        f"{least}: its time may be longer"
    )
