"""What an exploration was asked for: the arguments of a call over the spec's `explore:` section, checked."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from polymodel.architecture.hierarchy import Hierarchy
from polymodel.errors import Diagnostic
from polymodel.loading import Spec
from polymodel.mapper.constraints import Constraints, given_section
from polymodel.mapper.records import Limits, Progress, Request
from polymodel.mapping.wanted import Wanted
from polymodel.spec.explore_schema import ExploreSection
from polymodel.spec.faults import Faults, Path
from polymodel.spec.plain import plainly
from polymodel.sweep.parallel import check_store
from polymodel.workload.resolve import resolve_workload


@dataclass(frozen=True)
class Asked:
    """The request, and the architecture with its rules narrowed by those of the exploration."""

    request: Request
    hierarchy: Hierarchy


def asked_for(
    spec: Spec,
    objectives: Sequence[str] | str | None,
    constraints: Constraints | None,
    eps: float | None,
    time_limit: float | None,
    workers: int,
    progress: Callable[[Progress], None] | None,
    store: object = None,
    resume: object = True,
) -> Asked:
    """Everything checked at once; what is None comes from the section. Raises SpecError with every fault."""
    hierarchy, _ = spec.arch, spec.workload  # SpecError where one is missing
    section, early = given_section(constraints)
    reader = _Reader(spec, section)
    reader.given_faults.extend(early)
    if objectives is not None:
        several = isinstance(objectives, Sequence) and not isinstance(objectives, str)
        reader.give("objectives", tuple(objectives) if several else (objectives,))
    if eps is not None:
        reader.give("eps", plainly(eps))
    if time_limit is not None:
        reader.give("time_limit", plainly(time_limit))
    workers = plainly(workers)
    if isinstance(workers, bool) or not isinstance(workers, int) or workers < 1:
        fault = Diagnostic(f"{workers!r} is no number of processes", "use 1 or more", "workers")
        reader.given_faults.note(fault)
    heard: object = progress
    if heard is not None and not callable(heard):
        fault = Diagnostic(
            f"{heard!r} is no function", "pass one that takes a `Progress`, e.g. print", "progress"
        )
        reader.given_faults.note(fault)
    with reader.given_faults.noting():
        check_store(store)
    if not isinstance(resume, bool):
        fault = Diagnostic(f"{resume!r} is neither True nor False", "pass True or False", "resume")
        reader.given_faults.note(fault)
    wanted = reader.objectives(hierarchy)
    limits = reader.limits(hierarchy)
    share, seconds = reader.eps(), reader.time_limit()
    machine = reader.narrowed(hierarchy)
    reader.raise_if_any()
    return Asked(Request(wanted, limits, share, seconds, workers, progress), machine)


class _Reader(Wanted):
    """Reads each field from where it was given, and notes its faults with that place."""

    def __init__(self, spec: Spec, given: ExploreSection) -> None:
        assert spec.raw_workload is not None
        assert spec.raw_arch is not None
        workload = resolve_workload(spec.raw_workload, spec.raw_renames, spec.symbols, Faults())
        assert workload is not None
        section = spec.raw_explore or ExploreSection()
        super().__init__(section, spec.symbols, workload, spec.raw_arch, Faults(spec.locator))
        self.given = {name: getattr(given, name) for name in given.model_fields_set}
        self.argument: set[str] = set()
        self.given_faults = Faults()

    def give(self, name: str, value: object) -> None:
        """An argument of the call, which goes before all else."""
        self.given[name] = value
        self.argument.add(name)

    def raise_if_any(self) -> None:
        self.given_faults.extend(self.section_faults.found)
        self.given_faults.raise_if_any()

    def value(self, name: str) -> object:
        return self.given[name] if name in self.given else super().value(name)

    def where(self, name: str) -> tuple[Path, Faults]:
        """The path of a field, and where its faults are noted."""
        if name in self.argument:
            return (name,), self.given_faults
        if name in self.given:
            return ("constraints", name), self.given_faults
        return super().where(name)

    def limits(self, hierarchy: Hierarchy) -> Limits:
        sizes, ordered = self.value("sizes"), self.value("force_memory_order")
        fuse, unfused = self.fusion()
        return Limits(
            max_fused_loops=self.fused_loops(),
            max_fused_loops_per_rank_variable=self.fused_loops_per_rank_variable(),
            sizes="all" if sizes == "all" else "divisors",
            force_memory_order=bool(ordered),
            loop_order=self.loop_order(),
            min_utilisation=self.min_utilisation(hierarchy),
            compute=self.compute(hierarchy),
            exchange=self.exchange(hierarchy),
            fuse=fuse,
            unfused=unfused,
        )
