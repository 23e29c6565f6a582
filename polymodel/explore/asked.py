"""What an exploration was asked for: the arguments of a call over the spec's `explore:` section, checked."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from polymodel.architecture.hierarchy import Hierarchy
from polymodel.architecture.numbers import Numbers
from polymodel.architecture.rules import Rules
from polymodel.errors import Diagnostic
from polymodel.explore.given import Constraints, given_section
from polymodel.explore.narrowed import narrowed
from polymodel.explore.records import Limits, Progress, Request
from polymodel.loading import Spec
from polymodel.spec.explore_schema import ExploreSection
from polymodel.spec.faults import Faults, Path, suggestion
from polymodel.spec.numbers import Value
from polymodel.workload.resolve import resolve_workload

PLAIN = ("energy", "latency", "energy_delay", "buffer")
SAME = {"edp": "energy_delay", "energy_delay_product": "energy_delay", "delay": "latency", "time": "latency"}


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
) -> Asked:
    """Everything checked at once; what is None comes from the section. Raises SpecError with every fault."""
    hierarchy = spec.arch
    section, early = given_section(constraints)
    reader = _Reader(spec, section)
    reader.given_faults.extend(early)
    if objectives is not None:
        several = isinstance(objectives, Sequence) and not isinstance(objectives, str)
        reader.give("objectives", tuple(objectives) if several else (objectives,))
    if eps is not None:
        reader.give("eps", eps)
    if time_limit is not None:
        reader.give("time_limit", time_limit)
    if isinstance(workers, bool) or not isinstance(workers, int) or workers < 1:
        fault = Diagnostic(f"{workers!r} is no number of processes", "use 1 or more", "workers")
        reader.given_faults.note(fault)
    heard: object = progress
    if heard is not None and not callable(heard):
        fault = Diagnostic(
            f"{heard!r} is no function", "pass one that takes a `Progress`, e.g. print", "progress"
        )
        reader.given_faults.note(fault)
    wanted = reader.objectives(hierarchy)
    limits = reader.limits(hierarchy)
    share, seconds = reader.eps(), reader.time_limit()
    machine = reader.narrowed(hierarchy)
    reader.raise_if_any()
    return Asked(Request(wanted, limits, share, seconds, workers, progress), machine)


class _Reader:
    """Reads each field from where it was given, and notes its faults with that place."""

    def __init__(self, spec: Spec, given: ExploreSection) -> None:
        self.spec = spec
        self.section = spec.raw_explore or ExploreSection()
        self.given = {name: getattr(given, name) for name in given.model_fields_set}
        self.argument: set[str] = set()
        self.section_faults = Faults(spec.locator)
        self.given_faults = Faults()
        self.cascade = spec.workload
        assert spec.raw_workload is not None
        found = resolve_workload(spec.raw_workload, spec.raw_renames, spec.symbols, Faults())
        self.scopes = found.scopes if found is not None else ()

    def give(self, name: str, value: object) -> None:
        """An argument of the call, which goes before all else."""
        self.given[name] = value
        self.argument.add(name)

    def raise_if_any(self) -> None:
        self.given_faults.extend(self.section_faults.found)
        self.given_faults.raise_if_any()

    def value(self, name: str) -> object:
        return self.given[name] if name in self.given else getattr(self.section, name)

    def where(self, name: str) -> tuple[Path, Faults]:
        """The path of a field, and where its faults are noted."""
        if name in self.argument:
            return (name,), self.given_faults
        if name in self.given:
            return ("constraints", name), self.given_faults
        return ("explore", name), self.section_faults

    def numbers(self, name: str) -> tuple[Numbers, Path]:
        path, faults = self.where(name)
        return Numbers(self.spec.symbols, faults), path

    def objectives(self, hierarchy: Hierarchy) -> tuple[str, ...]:
        path, faults = self.where("objectives")
        inner = [c.name for c in hierarchy.components if c.kind == "memory"][1:]
        plain = PLAIN if inner else PLAIN[:-1]
        known = (*plain, *(f"buffer:{n}" for n in inner))
        given = self.value("objectives")
        assert isinstance(given, tuple)
        found = tuple(dict.fromkeys(given))
        for i, name in enumerate(found):
            if name not in known:
                shown = name if isinstance(name, str) else repr(name)
                near = SAME.get(shown)
                remedy = f"did you mean {near}?" if near else _near_objective(shown, known, hierarchy)
                faults.add((*path, i), f"unknown objective {shown}", remedy)
        if not found:
            faults.add(path, "an exploration needs an objective", f"name some of {', '.join(known)}")
        return found

    def eps(self) -> float:
        numbers, path = self.numbers("eps")
        return numbers.at_least_zero(self.number("eps", numbers, path), path, "eps")

    def time_limit(self) -> float | None:
        if self.value("time_limit") is None:
            return None
        numbers, path = self.numbers("time_limit")
        found = numbers.positive(self.number("time_limit", numbers, path), path, "time limit")
        return None if math.isinf(found) else found

    def number(self, name: str, numbers: Numbers, path: Path) -> Value | str:
        """The field as a number or an expression; anything else is a fault, and 1."""
        found = self.value(name)
        if isinstance(found, (int, float, str)) and not isinstance(found, bool) and found == found:
            return found
        numbers.faults.add(path, f"{found!r} is not a number", "write a number")
        return 1

    def limits(self, hierarchy: Hierarchy) -> Limits:
        sizes, ordered = self.value("sizes"), self.value("force_memory_order")
        per_variable, path = self.numbers("max_fused_loops_per_rank_variable")
        text = self.number("max_fused_loops_per_rank_variable", per_variable, path)
        fuse, unfused = self.tensors("fuse"), self.tensors("unfused")
        if both := sorted(fuse & unfused):
            path, faults = self.where("unfused")
            what = f"{', '.join(both)} is to be fused and unfused"
            faults.add(path, what, "leave it out of `fuse` or of `unfused`")
        return Limits(
            max_fused_loops=self.fused_loops(),
            max_fused_loops_per_rank_variable=per_variable.whole(text, path, "number of fused loops"),
            sizes="all" if sizes == "all" else "divisors",
            force_memory_order=bool(ordered),
            loop_order=self.loop_order(),
            min_utilisation=self.min_utilisation(hierarchy),
            compute=self.compute(hierarchy),
            exchange=self.exchange(hierarchy),
            fuse=fuse,
            unfused=unfused,
        )

    def fused_loops(self) -> int | None:
        if self.value("max_fused_loops") is None:
            return None
        numbers, path = self.numbers("max_fused_loops")
        found = numbers.at_least_zero(
            self.number("max_fused_loops", numbers, path), path, "number of fused loops"
        )
        if found != int(found):
            numbers.faults.add(path, f"{found} is not a whole number", "write 0, 1, 2, ...")
        return int(found)

    def table(self, name: str) -> Mapping[str, object]:
        found = self.value(name)
        assert isinstance(found, Mapping)
        return found

    def loop_order(self) -> tuple[tuple[str, tuple[str, ...]], ...]:
        path, faults = self.where("loop_order")
        found = []
        for einsum, order in self.table("loop_order").items():
            assert isinstance(order, tuple)
            if not self.is_einsum(einsum, path, faults):
                continue
            known = self.cascade[einsum].rank_variables
            for i, v in enumerate(order):
                if v not in known:
                    near = suggestion(v, known, "rank variables")
                    faults.add((*path, einsum, i), f"{einsum} has no rank variable {v}", near)
                elif v in order[:i]:
                    faults.add((*path, einsum, i), f"rank variable {v} is given twice", "keep one of them")
            found.append((einsum, order))
        return tuple(found)

    def is_einsum(self, name: str, path: Path, faults: Faults) -> bool:
        known = [e.name for e in self.cascade]
        if name not in known:
            near = suggestion(name, known, "Einsums")
            faults.add((*path, name), f"unknown Einsum {name}", near, key=True)
        return name in known

    def compute(self, hierarchy: Hierarchy) -> tuple[tuple[str, str], ...]:
        path, faults = self.where("compute")
        known = [c.name for c in hierarchy.components if c.kind == "compute"]
        found = []
        for einsum, unit in self.table("compute").items():
            assert isinstance(unit, str)
            self.is_einsum(einsum, path, faults)
            if unit not in known:
                near = suggestion(unit, known, "compute units")
                faults.add((*path, einsum), f"unknown compute unit {unit}", near)
            found.append((einsum, unit))
        return tuple(found)

    def exchange(self, hierarchy: Hierarchy) -> frozenset[str] | None:
        names = self.value("exchange")
        if not isinstance(names, tuple):
            return None
        path, faults = self.where("exchange")
        known = [c.name for c in hierarchy.components if c.kind == "memory"][1:]
        for i, name in enumerate(names):
            if name not in known:
                near = suggestion(name, known, "memories below the backing storage")
                faults.add((*path, i), f"intermediates cannot be handed on in {name}", near)
        return frozenset(names)

    def min_utilisation(self, hierarchy: Hierarchy) -> tuple[tuple[str, str, float], ...]:
        numbers, path = self.numbers("min_utilisation")
        known: dict[str, list[str]] = {}
        for component, d in hierarchy.dimensions:
            known.setdefault(component, []).append(d.name)
        found = []
        for component, dims in self.table("min_utilisation").items():
            assert isinstance(dims, Mapping)
            if component not in known:
                near = suggestion(component, known, "components with a fanout")
                near = near if known else "leave it out: the architecture has no spatial dimension"
                what = f"component {component} has no fanout"
                numbers.faults.add((*path, component), what, near, key=True)
                continue
            for dim, share in dims.items():
                here = (*path, component, dim)
                least = numbers.at_least_zero(share, here, "utilisation")
                if dim not in known[component]:
                    near = suggestion(dim, known[component], "dimensions")
                    numbers.faults.add(here, f"{component} has no dimension {dim}", near, key=True)
                if least > 1:
                    numbers.faults.add(here, f"utilisation {least} is above 1", "write a share from 0 to 1")
                found.append((component, dim, least))
        return tuple(found)

    def tensors(self, name: str) -> frozenset[str]:
        """The intermediates that a set expression gives in any Einsum."""
        text = self.value(name)
        if not isinstance(text, str):
            return frozenset()
        path, faults = self.where(name)
        before = len(faults)
        assert self.spec.raw_arch is not None
        rule = Rules(self.spec.raw_arch, self.scopes, faults).rule("", text, path)
        assert rule is not None
        every = frozenset(t for _, tensors in rule.by_einsum for t in tensors)
        found = every & self.cascade.intermediates
        if every and not found and len(faults) == before:
            between = [t for t in self.cascade.tensors if t in self.cascade.intermediates]
            what = f"`{text}` is no intermediate: only what one Einsum writes and another reads is fused"
            faults.add(path, what, suggestion(text, between, "intermediates"))
        return found

    def narrowed(self, hierarchy: Hierarchy) -> Hierarchy:
        path, faults = self.where("memories")
        rules = self.value("memories")
        assert isinstance(rules, dict)
        assert self.spec.raw_arch is not None
        reader = Rules(self.spec.raw_arch, self.scopes, faults)
        return narrowed(hierarchy, self.cascade, rules, reader, path)


def _near_objective(name: str, known: Sequence[str], hierarchy: Hierarchy) -> str:
    if "," in name:
        return f"write {[n.strip() for n in name.split(',')]}"
    head, colon, memory = name.partition(":")
    if head == "buffer" and colon:
        outer = next((c.name for c in hierarchy.components if c.kind == "memory"), "")
        if memory == outer:
            return f"{memory} is the backing storage: name a memory below it"
        below = [n.partition(":")[2] for n in known if ":" in n]
        return suggestion(memory, below, "memories below the backing storage")
    return suggestion(name, known, "objectives")
