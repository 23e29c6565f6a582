"""Pipelines slot by slot: the loads and operations of every stage in each of its iterations."""

from __future__ import annotations

from collections import Counter, defaultdict
from itertools import groupby

from polymodel.analysis.enumerate.links import largest
from polymodel.analysis.enumerate.traffic import ElementLedger, Instance
from polymodel.analysis.enumerate.walk import EinsumWalk, Time, physical
from polymodel.analysis.result import PipelineRun, PipelineSlot, Problem, StageWork, ordered_slots, phase_of
from polymodel.mapping.looptree import PipelineSplit

Loads = dict[str, dict[Instance, list[int]]]  # component -> instance -> [read bits, write bits]


class PipelineSlots:
    """The slots of all pipelines, from the events that the ledger recorded with their times."""

    def __init__(
        self,
        problem: Problem,
        found: tuple[PipelineSplit, ...],
        walks: dict[str, EinsumWalk],
        ledger: ElementLedger,
    ) -> None:
        self.problem, self.found = problem, found
        self.names = [c.name for c in problem.hierarchy.components]
        self.depth = {p.node: walks[p.einsums[0]].above[p.node][0] for p in found}
        self.keys = {p.node: self._keys(p, walks) for p in found}
        self.home = {e: p for p in found for e in p.einsums}  # inner pipelines come last
        self.operations: dict[tuple[str, Time], Counter[Instance]] = defaultdict(Counter)
        self.loads: dict[tuple[str, Time], Loads] = defaultdict(lambda: defaultdict(dict))
        for e, p in self.home.items():
            if not walks[e].einsum.is_copy:
                for o in walks[e].operations:
                    where = physical(walks[e].spatial, o.place)
                    self.operations[e, o.time[: self.depth[p.node]]][where] += 1
        for (e, component, time, at_end), instances in ledger.timed.items():
            if e in self.home:
                into = self.loads[e, self._iteration(self.home[e], time, at_end)][component]
                for instance, pair in instances.items():
                    have = into.setdefault(instance, [0, 0])
                    have[0], have[1] = have[0] + pair[0], have[1] + pair[1]

    def _keys(self, p: PipelineSplit, walks: dict[str, EinsumWalk]) -> list[Time]:
        return sorted({o.time[: self.depth[p.node]] for e in p.einsums for o in walks[e].operations})

    def _iteration(self, p: PipelineSplit, time: Time, at_end: bool) -> Time:
        """The iteration of an event that belongs to a stamp."""
        stamp = time[: self.depth[p.node]]
        if at_end:  # a run may end while Einsums outside keep it alive
            return [k for k in self.keys[p.node] if k[: len(stamp)] <= stamp][-1]
        return next(k for k in self.keys[p.node] if k[: len(stamp)] == stamp)

    def runs(self) -> tuple[PipelineRun, ...]:
        """Every pipeline that is not in a stage of another."""
        return tuple(self.run(p, ()) for p in self.found if p.outer is None)

    def run(self, p: PipelineSplit, outer: Time) -> PipelineRun:
        """The slots of one pipeline in one iteration of the loops around it."""
        keys = [k for k in self.keys[p.node] if k[: len(outer)] == outer]
        wraps = groupby(keys, key=lambda k: k[:-1] if p.loop is not None else k)
        counts: Counter[PipelineSlot] = Counter()
        for _, members in wraps:
            wrap, stages = list(members), len(p.stages)
            for s in range(len(wrap) + stages - 1):
                at = [wrap[s - b] if 0 <= s - b < len(wrap) else None for b in range(stages)]
                work = tuple(self.stage(p, b, key) for b, key in enumerate(at))
                counts[PipelineSlot(phase_of(s, len(wrap), stages), 1, work, self.shared(p, at))] += 1
        return PipelineRun(p.node, ordered_slots(counts))

    def stage(self, p: PipelineSplit, b: int, key: Time | None) -> tuple[StageWork | PipelineRun, ...]:
        """The work of a stage in an iteration, Einsums and inner pipelines in order of execution."""
        result: dict[object, StageWork | PipelineRun] = {}
        for e in () if key is None else p.stages[b]:
            home = self.home[e]
            if home is p:
                assert key is not None
                work = StageWork(e, *self.work(e, key))
                if work.operations or work.loads:
                    result[e] = work
                continue
            while home.outer != p.node:
                home = next(q for q in self.found if q.node == home.outer)
            if home.node not in result:
                assert key is not None
                run = self.run(home, key)
                if run.slots:
                    result[home.node] = run
        return tuple(result.values())

    def work(self, einsum: str, key: Time) -> tuple[int, tuple[tuple[str, tuple[tuple[int, int], ...]], ...]]:
        busiest = max(self.operations.get((einsum, key), Counter()).values(), default=0)
        return busiest, self.pareto(self.loads.get((einsum, key), {}))

    def pareto(self, loads: Loads) -> tuple[tuple[str, tuple[tuple[int, int], ...]], ...]:
        return tuple((c, largest(loads[c].values())) for c in self.names if c in loads)

    def shared(
        self, p: PipelineSplit, at: list[Time | None]
    ) -> tuple[tuple[str, tuple[tuple[int, int], ...]], ...]:
        """Joint loads of the components that at least two stages load in one slot."""
        joint: Loads = defaultdict(dict)
        users: dict[str, set[int]] = defaultdict(set)
        for b, key in enumerate(at):
            for (e, time), loads in self.loads.items() if key is not None else ():
                if e not in p.stages[b] or time[: len(key or ())] != key:
                    continue
                for component, instances in loads.items():
                    users[component].add(b)
                    for instance, pair in instances.items():
                        have = joint[component].setdefault(instance, [0, 0])
                        have[0], have[1] = have[0] + pair[0], have[1] + pair[1]
        return self.pareto({c: joint[c] for c in joint if len(users[c]) > 1})
