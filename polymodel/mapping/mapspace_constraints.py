"""The mapspace constraints of an `explore:` section: checked names and numbers, and narrowed keep rules."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace

from polymodel.architecture.hierarchy import Component, Hierarchy, TensorRule
from polymodel.architecture.resolve import Rules
from polymodel.frozen import dataclass
from polymodel.mapping.resolve import LoopRule, LoopRuleReader
from polymodel.objectives import (
    BY_WORD,
    LIMIT_REMEDY,
    OBJECTIVES,
    SPARSE,
    FigureLimit,
    addable,
    canonical,
    is_sum,
    known_names,
    limit_of,
    on_sparse_data,
    read_limit,
    renamed,
    terms_of,
    unit_of,
    uses,
    written,
)
from polymodel.spec.arch_schema import Arch
from polymodel.spec.faults import Faults, Path, close_to, suggestion
from polymodel.spec.numbers import Numbers, UnboundSymbol, Value, amount_in, symbols_in
from polymodel.spec.section_schemas import ExploreSection, MemoryRule
from polymodel.workload.einsum import Cascade, Einsum
from polymodel.workload.resolve import Resolved

# Objectives that are sums over Einsums; the search knows the peaks of memories as well.
COSTS = tuple(o.word for o in OBJECTIVES if not o.of and uses(o.word) <= {("energy", ""), ("latency", "")})
SPARSE_COSTS = tuple(SPARSE + word for word in COSTS if BY_WORD[word].sparse)
WORKING_SET = "working_set"
MOST = "max"  # a utilisation that is as high as it can be


def check_section(
    section: ExploreSection | None,
    symbols: Mapping[str, Value | None],
    workload: Resolved | None,
    arch: Arch | None,
    hierarchy: Hierarchy | None,
    faults: Faults,
) -> None:
    """Add every fault of a section; without a workload and an architecture, only the faults of its numbers.

    A number that depends on a symbol without a value is not a fault: the spec can still be evaluated.
    """
    if section is None:
        return
    result = Faults(faults.locator)
    NumericConstraints(section, symbols, result).check()
    if workload is not None and arch is not None and hierarchy is not None:
        MapspaceConstraints(section, symbols, workload, arch, result).check_names(hierarchy)
    faults.extend(d for d in result.found if d.code != UnboundSymbol.code)


class NumericConstraints:
    """Reads the numbers of a section; an invalid one becomes a fault and is replaced by a valid one."""

    def __init__(self, section: ExploreSection, symbols: Mapping[str, Value | None], faults: Faults) -> None:
        self.section = section
        self.symbols = symbols
        self.section_faults = faults

    def check(self) -> None:
        self.eps()
        self.time_limit()
        self.fused_loops()
        self.fused_loops_per_rank_variable()

    def value(self, name: str) -> object:
        return getattr(self.section, name)

    def where(self, name: str) -> tuple[Path, Faults]:
        """The path of a field, and the faults of the section."""
        return ("explore", name), self.section_faults

    def numbers(self, name: str) -> tuple[Numbers, Path]:
        path, faults = self.where(name)
        return Numbers(self.symbols, faults), path

    def eps(self) -> float:
        numbers, path = self.numbers("eps")
        return numbers.at_least_zero(self.number("eps", numbers, path), path, "eps")

    def time_limit(self) -> float | None:
        if self.value("time_limit") is None:
            return None
        numbers, path = self.numbers("time_limit")
        result = numbers.positive(self.number("time_limit", numbers, path), path, "time limit")
        return None if math.isinf(result) else result

    def number(self, name: str, numbers: Numbers, path: Path) -> Value | str:
        """The field as a number or an expression; anything else is a fault and reads as 1."""
        result = self.value(name)
        if isinstance(result, str) and result.isidentifier() and not {*symbols_in(result)} <= {*self.symbols}:
            near = close_to(result, self.symbols)
            remedy = f"did you mean {near}?" if near else "write a number"
            message = f"{result!r} is neither a number nor a symbol"
            numbers.faults.add(path, message, remedy, code="wrong-type")
            return 1
        if isinstance(result, (int, float, str)) and not isinstance(result, bool) and result == result:
            return result
        numbers.faults.add(path, f"{result!r} is not a number", "write a number", code="not-a-number")
        return 1

    def fused_loops(self) -> int | None:
        if self.value("max_fused_loops") is None:
            return None
        numbers, path = self.numbers("max_fused_loops")
        result = numbers.at_least_zero(
            self.number("max_fused_loops", numbers, path), path, "number of fused loops"
        )
        if result != int(result):
            message = f"{result} is not a whole number"
            numbers.faults.add(path, message, "write 0, 1, 2, ...", code="not-an-integer")
        return int(result)

    def fused_loops_per_rank_variable(self) -> int:
        numbers, path = self.numbers("max_fused_loops_per_rank_variable")
        text = self.number("max_fused_loops_per_rank_variable", numbers, path)
        return numbers.whole(text, path, "number of fused loops")


class MapspaceConstraints(NumericConstraints):
    """Reads a whole section against the names of a workload and an architecture."""

    def __init__(
        self,
        section: ExploreSection,
        symbols: Mapping[str, Value | None],
        workload: Resolved,
        arch: Arch,
        faults: Faults,
    ) -> None:
        super().__init__(section, symbols, faults)
        self.cascade, self.scopes = workload.cascade, workload.scopes
        self.raw_arch = arch

    def check_names(self, hierarchy: Hierarchy) -> None:
        self.objectives(hierarchy)
        self.figure_limits(hierarchy)
        self.fusion()
        self.loop_order()
        self.min_utilisation(hierarchy)
        self.compute(hierarchy)
        self.exchange(hierarchy)
        self.narrowed(hierarchy)
        self.loop_rules(hierarchy)

    def objectives(self, hierarchy: Hierarchy) -> tuple[str, ...]:
        """The objectives under their canonical names (`objectives.canonical`), without repetition.

        `working_set` or `buffer` without a memory means the memory of `measured_memory`.
        """
        path, faults = self.where("objectives")
        given = self.value("objectives")
        assert isinstance(given, tuple)
        result: list[str] = []
        for i, name in enumerate(given):
            meant = self._figure(written(name), (*path, i), faults, hierarchy)
            result += [meant] if meant is not None else []
        self._sparse_objectives(result, path, faults)
        if not given:
            known = ", ".join(searched_figures(hierarchy))
            message = "an exploration needs an objective"
            faults.add(path, message, f"name some of {known}", code="missing-argument")
        return tuple(dict.fromkeys(result))

    def _figure(self, shown: str, path: Path, faults: Faults, hierarchy: Hierarchy) -> str | None:
        """The canonical name of an objective; None and a fault if it is not one."""
        known = searched_figures(hierarchy)
        meant = renamed(canonical(shown), lambda n: _measured(hierarchy) if n == WORKING_SET else n)
        if is_sum(meant):
            known = addable(known)
        wrong = next((n for _, n in terms_of(meant) if n not in known), None)
        if wrong is None:
            return meant
        said = shown if wrong == meant else wrong
        faults.add(path, *_not_minimised(said, wrong, known, hierarchy), code="unknown-choice")
        return None

    def figure_limits(self, hierarchy: Hierarchy) -> tuple[FigureLimit, ...]:
        """The limits on figures of a report, such as `latency <= 2 ms`."""
        path, faults = self.where("limits")
        given = self.value("limits")
        result = []
        for i, text in enumerate(given if isinstance(given, tuple) else (given,)):
            parts = read_limit(text)
            if parts is None:
                faults.add((*path, i), f"{text!r} is not a limit", LIMIT_REMEDY, code="wrong-type")
                continue
            name = self._figure(parts[0], (*path, i), faults, hierarchy)
            if name is None:
                continue
            limit = limit_of(name, *parts[1:], amount_in(parts[2], unit_of(name)))
            if isinstance(limit, str):
                faults.add((*path, i), limit, LIMIT_REMEDY, code="out-of-range")
            elif on_sparse_data(name):
                message = f"{name} is not limited: sparse figures are bounded"
                faults.add((*path, i), message, "limit dense ones", code="unsupported-constraint")
            else:
                result.append(limit)
        return tuple(result)

    def _sparse_objectives(self, names: Sequence[str], path: Path, faults: Faults) -> None:
        """Objectives on sparse data need sparse tensors, and cannot be combined with objectives on dense
        data."""
        sparse = [n for n in names if on_sparse_data(n)]
        if not sparse:
            return
        bits = (f"{WORKING_SET}:", WORKING_SET)
        dense = [n for n in names if n not in sparse and not n.startswith(bits)]
        dense += [n for n in sparse if not all(one.startswith(SPARSE) for _, one in terms_of(n))]
        if self.value("limits"):
            message = "limits are on figures of dense data"
            faults.add(path, message, "leave them out, or explore dense data", code="conflicting-arguments")
        if dense:
            what = f"{', '.join(dense)} count dense data, {', '.join(sparse)} sparse data"
            remedy = "explore twice, or name objectives of one kind; the front shows both figures"
            faults.add(path, what, remedy, code="conflicting-arguments")
        with_density = [a for e in self.cascade for a in e.accesses if a.density is not None]
        if not with_density:
            what = f"{sparse[0]} needs sparse tensors, and the workload gives no density"
            faults.add(path, what, "write e.g. `densities: {A: 0.1}` into the workload", code="missing-value")

    def fusion(self) -> tuple[frozenset[str], frozenset[str]]:
        """Intermediates that must be fused, and those that must not."""
        fuse, unfused = self.tensors("fuse"), self.tensors("unfused")
        if both := sorted(fuse & unfused):
            path, faults = self.where("unfused")
            what = f"{', '.join(both)} is to be fused and unfused"
            faults.add(path, what, "leave it out of `fuse` or of `unfused`", code="conflicting-arguments")
        staying = {a.tensor for e in self.cascade for a in e.accesses if a.persistent}
        if both := sorted(fuse & staying):
            path, faults = self.where("fuse")
            what = f"{', '.join(both)} is to be fused, but a persistent one stays in the backing storage"
            remedy = "leave it out of `fuse` or of the persistent tensors"
            faults.add(path, what, remedy, code="conflicting-arguments")
        return fuse, unfused

    def table(self, name: str) -> Mapping[str, object]:
        result = self.value(name)
        assert isinstance(result, Mapping)
        return result

    def loop_order(self) -> tuple[tuple[str, tuple[str, ...]], ...]:
        path, faults = self.where("loop_order")
        result = []
        for einsum, order in self.table("loop_order").items():
            assert isinstance(order, tuple)
            if not self.is_einsum(einsum, path, faults):
                continue
            known = self.cascade[einsum].rank_variables
            for i, v in enumerate(order):
                if v not in known:
                    near = suggestion(v, known, "rank variables")
                    message = f"{einsum} has no rank variable {v}"
                    faults.add((*path, einsum, i), message, near, code="unknown-name")
                elif v in order[:i]:
                    what = f"rank variable {v} is given twice"
                    faults.add((*path, einsum, i), what, "keep one of them", code="duplicate-name")
            result.append((einsum, order))
        return tuple(result)

    def is_einsum(self, name: str, path: Path, faults: Faults) -> bool:
        known = [e.name for e in self.cascade]
        if name not in known:
            near = suggestion(name, known, "Einsums")
            faults.add((*path, name), f"unknown Einsum {name}", near, key=True, code="unknown-name")
        return name in known

    def compute(self, hierarchy: Hierarchy) -> tuple[tuple[str, str], ...]:
        path, faults = self.where("compute")
        known = [c.name for c in hierarchy.components if c.computes]
        result = []
        for einsum, unit in self.table("compute").items():
            assert isinstance(unit, str)
            self.is_einsum(einsum, path, faults)
            if unit not in known:
                near = suggestion(unit, known, "compute units")
                faults.add((*path, einsum), f"unknown compute unit {unit}", near, code="unknown-name")
            result.append((einsum, unit))
        return tuple(result)

    def exchange(self, hierarchy: Hierarchy) -> frozenset[str] | None:
        names = self.value("exchange")
        if not isinstance(names, tuple):
            return None
        path, faults = self.where("exchange")
        known = list(hierarchy.memories[1:])
        for i, name in enumerate(names):
            if name not in known:
                near = suggestion(name, known, "memories below the backing storage")
                message = f"intermediates cannot be handed on in {name}"
                faults.add((*path, i), message, near, code="unknown-choice")
        return frozenset(names)

    def min_utilisation(self, hierarchy: Hierarchy) -> tuple[tuple[str, str, float], ...]:
        numbers, path = self.numbers("min_utilisation")
        known: dict[str, list[str]] = {}
        for component, d in hierarchy.dimensions:
            known.setdefault(component, []).append(d.name)
        result = []
        for component, dims in self.table("min_utilisation").items():
            assert isinstance(dims, Mapping)
            if component not in known:
                near = suggestion(component, known, "components with a fanout")
                near = near if known else "leave it out: the architecture has no spatial dimension"
                what = f"component {component} has no fanout"
                numbers.faults.add((*path, component), what, near, key=True, code="unknown-name")
                continue
            for dim, share in dims.items():
                here = (*path, component, dim)
                least = math.inf if share == MOST else numbers.at_least_zero(share, here, "utilisation")
                if dim not in known[component]:
                    near = suggestion(dim, known[component], "dimensions")
                    message = f"{component} has no dimension {dim}"
                    numbers.faults.add(here, message, near, key=True, code="unknown-name")
                if 1 < least < math.inf:
                    fault = f"utilisation {least} is above 1"
                    numbers.faults.add(here, fault, "write a share from 0 to 1", code="out-of-range")
                result.append((component, dim, least))
        return tuple(result)

    def tensors(self, name: str) -> frozenset[str]:
        """The intermediates that a set expression selects in any Einsum."""
        text = self.value(name)
        if not isinstance(text, str):
            return frozenset()
        path, faults = self.where(name)
        before = len(faults)
        rule = Rules(self.raw_arch, self.scopes, faults).rule("", text, path)
        assert rule is not None
        every = frozenset(t for _, tensors in rule.by_einsum for t in tensors)
        result = every & self.cascade.intermediates
        if every and not result and len(faults) == before:
            between = [t for t in self.cascade.tensors if t in self.cascade.intermediates]
            what = f"`{text}` is not an intermediate: one Einsum has to write it and another to read it"
            faults.add(path, what, suggestion(text, between, "intermediates"), code="unknown-name")
        return result

    def loop_rules(self, hierarchy: Hierarchy) -> tuple[LoopRule, ...]:
        """The rules on loops that `memories` and `fanouts` give."""
        result: list[LoopRule] = []
        for name in ("memories", "fanouts"):
            numbers, path = self.numbers(name)
            given = self.value(name)
            assert isinstance(given, dict)
            sets = Rules(self.raw_arch, self.scopes, numbers.faults)
            reader = LoopRuleReader(self.cascade, hierarchy, sets, numbers)
            result += reader.memories(given, path) if name == "memories" else reader.fanouts(given, path)
        return tuple(result)

    def narrowed(self, hierarchy: Hierarchy) -> Hierarchy:
        path, faults = self.where("memories")
        rules = self.value("memories")
        assert isinstance(rules, dict)
        reader = Rules(self.raw_arch, self.scopes, faults)
        return narrow_keep_rules(hierarchy, self.cascade, rules, reader, path)


def measured_memory(hierarchy: Hierarchy) -> str:
    """The memory that `working_set` alone refers to: the outermost one of limited size below the backing
    storage; without one, the innermost memory."""
    inner = [c for c in hierarchy.components if c.stores][1:]
    return next((c.name for c in inner if c.size_bits != math.inf), inner[-1].name)


def _measured(hierarchy: Hierarchy) -> str:
    """`working_set` with its memory, if there is a memory that it can refer to."""
    several = sum(c.stores for c in hierarchy.components) > 1
    return f"{WORKING_SET}:{measured_memory(hierarchy)}" if several else WORKING_SET


def searched_figures(hierarchy: Hierarchy) -> tuple[str, ...]:
    """The figures that a search can minimise: every figure of a report on dense data except the working set
    of the backing storage, which holds every tensor; on sparse data energy, latency and EDP."""
    backing = [f"{WORKING_SET}:{name}" for name in hierarchy.memories[:1]]
    every = (n for n in known_names(hierarchy.memories, hierarchy.tolls) if n not in backing)
    return (*every, *SPARSE_COSTS)


def _not_minimised(shown: str, meant: str, known: Sequence[str], hierarchy: Hierarchy) -> tuple[str, str]:
    """The message and remedy of the fault for an objective that the search does not minimise."""
    memories = list(hierarchy.memories)
    moving = [c.name for c in hierarchy.components if c.moves]
    word, colon, memory = meant.partition(":")
    what = f"explore does not minimise {shown}"
    if word == WORKING_SET and colon and memory in memories[:1]:
        return f"{what}: {memory} is the backing storage, which holds every tensor", "name a memory below it"
    if word == SPARSE + WORKING_SET:
        remedy = f"use {meant.removeprefix(SPARSE)}"
        return f"{what}: the search knows only a bound of compressed tiles", remedy
    if word in BY_WORD and BY_WORD[word].most:
        return f"{shown} is best at its most, and weighted sums at their least", "name it by itself"
    plain = word.removeprefix(SPARSE)
    if plain != word and plain in BY_WORD and (not colon or memory in moving):
        reason = "on sparse data the search bounds only energy and time"
        return f"{what}: {reason}", "sweep mappings over it, or minimise sparse_energy"
    return f"unknown objective {shown}", _near_objective(shown, known)


def _near_objective(name: str, known: Sequence[str]) -> str:
    if "," in name:
        return f"write {[n.strip() for n in name.split(',')]}"
    head, colon, memory = canonical(name).partition(":")
    if head == WORKING_SET and colon:
        below = [n.partition(":")[2] for n in known if ":" in n]
        return suggestion(memory, below, "memories below the backing storage")
    return suggestion(name, known, "objectives")


NARROWED_BY = " | explore: "  # separates the rule of the architecture from that of the exploration


def narrow_keep_rules(
    hierarchy: Hierarchy, cascade: Cascade, rules: Mapping[str, MemoryRule], reader: Rules, path: Path
) -> Hierarchy:
    """The hierarchy in which each named memory also keeps the tensors of `keep`, and may hold only those that
    `may_keep` and `bypass` allow.

    `X.tensors` in an expression is what the architecture requires X to keep. Faults are added to
    `reader.faults`.
    """
    known = list(hierarchy.memories)
    result = {}
    for name, rule in rules.items():
        if name not in known:
            near = suggestion(name, known, "memories")
            reader.faults.add((*path, name), f"unknown memory {name}", near, key=True, code="unknown-name")
        else:
            result[name] = _Narrowing(hierarchy[name], rule, reader, (*path, name)).component(cascade)
    return replace(hierarchy, components=tuple(result.get(c.name, c) for c in hierarchy.components))


@dataclass
class _Narrowing:
    """Narrows the keep rules of one memory."""

    memory: Component
    rule: MemoryRule
    reader: Rules
    path: Path

    def component(self, cascade: Cascade) -> Component:
        before = len(self.reader.faults)
        keep, may, bypass = (
            self.reader.rule(self.memory.name, getattr(self.rule, n), (*self.path, n))
            for n in ("keep", "may_keep", "bypass")
        )
        if len(self.reader.faults) > before:
            return self.memory
        keeps, mays = [], []
        for one in cascade:
            must, may_hold = self._within(one, keep, may, bypass)
            keeps.append((one.name, must))
            mays.append((one.name, may_hold))
        kept, limited = self._texts("keep"), self._texts("may_keep", "bypass")
        result = self.memory
        if kept:
            result = replace(result, keep=TensorRule(_joined(result.keep, kept), tuple(keeps)))
        if limited:
            result = replace(result, may_keep=TensorRule(_joined(result.may_keep, limited), tuple(mays)))
        return result

    def _texts(self, *names: str) -> str:
        return "; ".join(f"{n}: {text}" for n in names if (text := getattr(self.rule, n)))

    def _within(
        self, one: Einsum, keep: TensorRule | None, may: TensorRule | None, bypass: TensorRule | None
    ) -> tuple[frozenset[str], frozenset[str]]:
        """The tensors that the memory must hold and those that it may hold, in one Einsum."""
        every = frozenset(one.tensors)
        must = self.memory.keep.tensors(one.name) if self.memory.keep else frozenset()
        allowed = self.memory.may_keep.tensors(one.name) | must if self.memory.may_keep else every
        more = keep.tensors(one.name) if keep else frozenset()
        less = bypass.tensors(one.name) if bypass else frozenset()
        within = may.tensors(one.name) if may else every
        self._contradiction("keep", more - allowed, one, "the architecture does not let it", "may_keep")
        self._contradiction("bypass", less & must, one, "the architecture says that it must keep", "keep")
        if clash := more & less:
            self._fault("bypass", f"{_names(clash)} in Einsum {one.name} is in `keep` as well", "choose one")
        return must | more, (allowed & (within | more | must)) - less

    def _contradiction(self, field: str, tensors: frozenset[str], one: Einsum, reason: str, of: str) -> None:
        if tensors:
            rule = self.memory.keep if of == "keep" else self.memory.may_keep
            text = f" ({of}: {rule.text})" if rule else ""
            what = f"{self.memory.name} cannot {field} {_names(tensors)} in Einsum {one.name}: {reason}{text}"
            self._fault(field, what, f"an exploration narrows rules; change `{of}` of {self.memory.name}")

    def _fault(self, field: str, what: str, remedy: str) -> None:
        self.reader.faults.add((*self.path, field), what, remedy, code="contradictory-constraints")


def _names(tensors: frozenset[str]) -> str:
    return ", ".join(sorted(tensors))


def _joined(rule: TensorRule | None, told: str) -> str:
    return f"{rule.text}{NARROWED_BY}{told}" if rule else f"{NARROWED_BY}{told}"


def narrowing_text(rule: TensorRule | None) -> str:
    """The part of a narrowed rule that comes from the exploration, e.g. `bypass: All`; empty for a rule of
    the architecture."""
    return rule.text.partition(NARROWED_BY)[2] if rule else ""
