"""The request of an exploration: arguments of the call override the spec's `explore:` section; all are
checked."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import fields, replace
from math import inf
from typing import TYPE_CHECKING

from polymodel.architecture.hierarchy import Hierarchy
from polymodel.cost.costs import total_area
from polymodel.errors import Diagnostic
from polymodel.frozen import dataclass
from polymodel.loading import Spec
from polymodel.mapper.aims import WORKING_SET
from polymodel.mapper.einsum_rules import side_by_side
from polymodel.mapper.records import Halos, Limits, Move, Progress, Request
from polymodel.mapping.mapspace_constraints import MOST, MapspaceConstraints
from polymodel.mapping.resolve import LoopRule
from polymodel.spec.document import Document, read_mapping
from polymodel.spec.faults import Faults, Path, plainly, shown
from polymodel.spec.section_schemas import ExploreSection, limit_texts, without_tensors
from polymodel.spec.yaml_text import flow_text
from polymodel.stores.store import check_store
from polymodel.workload.resolve import resolve_workload

if TYPE_CHECKING:
    from polymodel.mapper.sparse_choices import SparseArchitecture

Constraints = Limits | Mapping[str, object] | ExploreSection
READ = ("rules", "side_by_side")  # fields that the spec determines
LimitsGiven = Sequence[str] | Mapping[str, object] | str
SHARES = 'write {"PE": {"X": 0.5}} or (("PE", "X", 0.5),)'


def section_of_arguments(constraints: object) -> tuple[ExploreSection, tuple[Diagnostic, ...]]:
    """Return a section that sets only the given arguments, and the faults of arguments that had to be
    omitted."""
    if constraints is None:
        return ExploreSection(), ()
    if isinstance(constraints, ExploreSection):
        return constraints, ()
    if isinstance(constraints, Limits):
        return _read(*_of_limits(constraints))
    if not isinstance(constraints, Mapping):
        remedy = 'write e.g. {"max_fused_loops": 1}, or pm.Limits(max_fused_loops=1)'
        fault = Diagnostic(
            f"{shown(constraints)} is not a set of constraints", remedy, "constraints", code="wrong-type"
        )
        return ExploreSection(), (fault,)
    return _read({str(k): v for k, v in constraints.items()})


def of_part(constraints: Constraints | None, part: Spec, whole: Spec) -> Constraints | None:
    """Return constraints of a whole workload, restricted to some of its Einsums.

    Faulty constraints are kept, so that the search reports them.
    """
    mine, every = part.raw_workload, whole.raw_workload
    if constraints is None or mine is None or every is None:
        return constraints
    if not isinstance(constraints, Limits):
        section, faults = section_of_arguments(constraints)
        return constraints if faults else section.of_part(mine, every)
    others = {e.name for e in every.einsums} - {e.name for e in mine.einsums}
    apart = every.tensors - mine.tensors | (every.handed_on - mine.handed_on)
    changed: dict[str, object] = {}
    for name in ("loop_order", "compute"):
        given = getattr(constraints, name)
        if isinstance(given, Mapping) or _rows(given, 2):
            changed[name] = tuple(row for row in dict(given).items() if row[0] not in others)
    for name in ("fuse", "unfused"):
        names = getattr(constraints, name)
        if isinstance(names, str):
            changed[name] = without_tensors(names, apart)
        elif isinstance(names, Collection):
            changed[name] = frozenset(names) - apart
    return replace(constraints, **changed)  # type: ignore[arg-type]  # fields as they were given


def _read(
    data: dict[str, object], faults: tuple[Diagnostic, ...] = ()
) -> tuple[ExploreSection, tuple[Diagnostic, ...]]:
    document = Document()
    read_mapping({"explore": data}, document)
    read_faults = [
        replace(d, path=d.path.replace("explore", "constraints", 1)) for d in document.faults.found
    ]
    # The rest is read as well, so that its faults are reported together with these.
    result = document.sections.get("explore", document.rest)
    assert isinstance(result, ExploreSection)
    return result, (*faults, *read_faults)


def _of_limits(limits: Limits) -> tuple[dict[str, object], tuple[Diagnostic, ...]]:
    """The fields as a dictionary; each may already have the dictionary's form."""
    data: dict[str, object] = {f.name: getattr(limits, f.name) for f in fields(limits) if f.name not in READ}
    faults: list[Diagnostic] = []
    for name in ("loop_order", "compute"):
        if _rows(data[name], 2):
            data[name] = dict(data[name])  # type: ignore[call-overload]  # rows of two
    given = data["min_utilisation"]
    if _rows(given, 3):
        data["min_utilisation"] = _nested(limits)
    elif not isinstance(given, Mapping):
        del data["min_utilisation"]
        what = f"{given!r} is not a set of (component, dimension, share)"
        faults.append(Diagnostic(what, SHARES, "constraints.min_utilisation", code="wrong-type"))
    for name in ("fuse", "unfused"):
        given = data[name]
        if isinstance(given, Collection) and not isinstance(given, str):
            data[name] = " | ".join(sorted(map(str, given))) or None
    return data, tuple(faults)


def _rows(given: object, width: int) -> bool:
    """Whether a field has the form of the record: rows of this many cells."""
    return (
        isinstance(given, Collection)
        and not isinstance(given, (str, Mapping))
        and all(isinstance(row, (tuple, list)) and len(row) == width for row in given)
    )


def _nested(limits: Limits) -> dict[str, dict[str, object]]:
    shares: dict[str, dict[str, object]] = {}
    for component, dim, least in limits.min_utilisation:
        shares.setdefault(component, {})[dim] = MOST if least == inf else least
    return shares


@dataclass(frozen=True)
class CheckedRequest:
    """The request, and the architecture with its rules narrowed by those of the exploration.

    `choices`: architectures that differ in their handling of zeros, if the exploration chooses among
    several. `section`: the section `explore` that makes the same request, which has what was passed as
    arguments in the place of what the spec says.
    """

    request: Request
    hierarchy: Hierarchy
    choices: tuple[SparseArchitecture, ...] = ()
    section: ExploreSection | None = None


def read_search_request(
    spec: Spec,
    objectives: Sequence[str] | str | None,
    constraints: Constraints | None,
    eps: float | None,
    time_limit: float | None,
    workers: int,
    progress: Callable[[Progress], None] | None,
    store: object = None,
    resume: object = True,
    limits: LimitsGiven | None = None,
) -> CheckedRequest:
    """Check all arguments together; those that are None come from the section.

    Raises SpecError with every fault.
    """
    hierarchy, _ = spec.arch, spec.workload  # raises SpecError if one is missing
    section, early = section_of_arguments(constraints)
    reader = _RequestReader(spec, section)
    reader.given_faults.extend(early)
    reader.taken = constraints.rules if isinstance(constraints, Limits) else ()
    if objectives is not None:
        several = isinstance(objectives, Sequence) and not isinstance(objectives, str)
        reader.give("objectives", tuple(objectives) if several else (objectives,))
    if limits is not None:
        reader.give("limits", limit_texts(limits))
    if eps is not None:
        reader.give("eps", plainly(eps))
    if time_limit is not None:
        reader.give("time_limit", plainly(time_limit))
    workers = plainly(workers)
    if isinstance(workers, bool) or not isinstance(workers, int) or workers < 1:
        message = f"{workers!r} is not a number of processes"
        reader.given_faults.add(("workers",), message, "use 1 or more", code="not-positive-integer")
    heard: object = progress
    if heard is not None and not callable(heard):
        message, remedy = f"{heard!r} is not a function", "pass one that takes a `Progress`, e.g. print"
        reader.given_faults.add(("progress",), message, remedy, code="wrong-type")
    with reader.given_faults.noting():
        check_store(store)
    if not isinstance(resume, bool):
        message = f"{resume!r} is neither True nor False"
        reader.given_faults.add(("resume",), message, "pass True or False", code="wrong-type")
    wanted = reader.objectives(hierarchy)
    at_most = reader.figure_limits(hierarchy)
    narrowed = reader.limits(hierarchy)
    share, seconds = reader.eps(), reader.time_limit()
    if share and at_most:
        path, faults = reader.where("eps")
        what = "with eps a mapping within the limits may be omitted in favour of one outside them"
        faults.add(path, what, "leave out eps, or the limits", code="conflicting-arguments")
    machine = reader.narrowed(hierarchy)
    choices = reader.sparse_choices(spec, wanted)
    reader.raise_if_any()
    request = Request(wanted, narrowed, share, seconds, workers, progress)
    request = replace(request, at_most=at_most, area=total_area(hierarchy))
    section = reader.section_of(spec, objectives=wanted, eps=share, time_limit=seconds)
    return CheckedRequest(request, machine, choices, section)


class _RequestReader(MapspaceConstraints):
    """Reads each field from the place where it was given, and reports its faults at that place."""

    def __init__(self, spec: Spec, given: ExploreSection) -> None:
        assert spec.raw_workload is not None
        assert spec.raw_arch is not None
        workload = resolve_workload(spec.raw_workload, spec.raw_renames, spec.symbols, Faults())
        assert workload is not None
        section = spec.raw_explore or ExploreSection()
        super().__init__(section, spec.symbols, workload, spec.raw_arch, Faults(spec.locator))
        self.given = {name: getattr(given, name) for name in given.model_fields_set}
        self.argument: set[str] = set()
        self.taken: tuple[LoopRule, ...] = ()  # rules of a `Limits` record, already checked
        self.given_faults = Faults()

    def give(self, name: str, value: object) -> None:
        """Set an argument of the call, which overrides everything else."""
        self.given[name] = value
        self.argument.add(name)

    def raise_if_any(self) -> None:
        self.given_faults.extend(self.section_faults.found)
        self.given_faults.raise_if_any()

    def value(self, name: str) -> object:
        return self.given[name] if name in self.given else super().value(name)

    def where(self, name: str) -> tuple[Path, Faults]:
        """Return the path of a field, and the collector of its faults."""
        if name in self.argument:
            return (name,), self.given_faults
        if name in self.given:
            return ("constraints", name), self.given_faults
        return super().where(name)

    def section_of(self, spec: Spec, **checked: object) -> ExploreSection:
        """Return the section of the spec with all that was passed as arguments. `checked`: fields as read."""
        passed = {**self.given, **{n: value for n, value in checked.items() if n in self.given}}
        return (spec.raw_explore or ExploreSection()).model_copy(update=passed)

    def sparse_choices(self, spec: Spec, objectives: Sequence[str]) -> tuple[SparseArchitecture, ...]:
        given = self.value("sparse_choices")
        if not given:
            return ()
        from polymodel.mapper.sparse_choices import combinations_of  # the sparse modules take long to load

        assert isinstance(given, dict), "the section is checked"
        return combinations_of(spec, given, objectives, *self.where("sparse_choices"))

    def halos(self) -> tuple[Halos, ...]:
        given = self.value("halos")
        named = given if isinstance(given, tuple) else ()
        every: tuple[Halos, ...] = ("retained", "recomputed")
        return tuple(h for h in every if h in named)

    def moves(self) -> tuple[Move, ...]:
        given = self.value("moves")
        named = given if isinstance(given, tuple) else ()
        every: tuple[Move, ...] = ("pipelines", "initial_tiles")
        return tuple(m for m in every if m in named)

    def limits(self, hierarchy: Hierarchy) -> Limits:
        sizes, ordered = self.value("sizes"), self.value("force_memory_order")
        fuse, unfused = self.fusion()
        return Limits(
            max_fused_loops=self.fused_loops(),
            max_fused_loops_per_rank_variable=self.fused_loops_per_rank_variable(),
            sizes="all" if sizes == "all" else "divisors",
            halos=self.halos(),
            moves=self.moves(),
            spatial_sizes="all" if self.value("spatial_sizes") == "all" else "divisors",
            force_memory_order=bool(ordered),
            loop_order=self.loop_order(),
            min_utilisation=self.min_utilisation(hierarchy),
            compute=self.compute(hierarchy),
            exchange=self.exchange(hierarchy),
            fuse=fuse,
            unfused=unfused,
            rules=self.loop_rules(hierarchy) or self.taken,
            side_by_side=side_by_side(self.cascade, hierarchy),
        )


def with_memory_limits(hierarchy: Hierarchy, request: Request) -> tuple[Hierarchy, Request]:
    """Return both with limits on working sets as sizes of the memories; other limits are kept."""
    most = {
        x.name.partition(":")[2]: x.number for x in request.at_most if x.name.startswith(f"{WORKING_SET}:")
    }
    more = dict(request.room)

    def size(name: str, bits: float) -> float:
        return min(bits, most.get(name, inf)) + more.get(name, 0.0)

    components = tuple(replace(c, size_bits=size(c.name, c.size_bits)) for c in hierarchy.components)
    left = tuple(x for x in request.at_most if not x.name.startswith(f"{WORKING_SET}:"))
    return replace(hierarchy, components=components), replace(request, at_most=left)


BY_NAME = ("memories", "fanouts", "sparse_choices")  # rules of components


def request_rows(request: Request, section: ExploreSection | None) -> Iterator[tuple[str, str]]:
    """A request for readers: names and values of all that it says. `section`: the one that makes it."""
    usual = Limits()
    yield "objectives", ", ".join(request.objectives)
    if request.at_most:
        yield "limits", ", ".join(limit.for_readers() for limit in request.at_most)
    yield "eps", f"{request.eps:g}"
    if request.time_limit is not None:
        yield "time limit", f"{request.time_limit:g} s"
    for f in fields(Limits):
        value = getattr(request.limits, f.name)
        if value != getattr(usual, f.name):
            text = ", ".join(sorted(value)) if isinstance(value, frozenset) else str(value)
            if f.name == "rules":
                text = "; ".join(f"{rule.place} {rule.written}" for rule in request.limits.rules)
            if f.name == "side_by_side":
                text = ", ".join(dict.fromkeys(memory for _, memory in value))
            yield f.name, text
    said = (
        {} if section is None else section.model_dump(include={*BY_NAME}, exclude_unset=True, by_alias=True)
    )
    yield from ((name, flow_text(rules)) for name, rules in said.items() if rules)
