"""The meaning of set expressions in each Einsum: predefined sets, renames, tensors of other Einsums.

A `default` rename whose `expected_count` does not hold in some Einsum is a fault only where a set expression
uses that name in that Einsum; otherwise the name is undefined there. An Einsum's own renames are always
checked.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace

from polymodel.frozen import dataclass
from polymodel.spec.expressions import KEYWORDS, NamedSet, SetScope, evaluate_set, parse_set
from polymodel.spec.faults import Faults, Path, TextFault, suggestion
from polymodel.spec.section_schemas import Einsum as EinsumSpec
from polymodel.spec.section_schemas import Renames, Workload


@dataclass(frozen=True)
class RenameSource:
    """One rename as written: its expression, its place in the file, and whether it is a default."""

    name: str
    text: str
    expected: int | None
    path: Path
    default: bool
    variables: bool


@dataclass(frozen=True)
class AccessSummary:
    """Facts about the tensors of the whole workload that follow from the accesses alone.

    `consumed`: tensors that are read by an Einsum other than their producer.
    """

    produced: frozenset[str]
    consumed: frozenset[str]
    shared: frozenset[str]
    tensors: tuple[str, ...]
    variables: frozenset[str]

    @property
    def intermediates(self) -> frozenset[str]:
        return self.produced & self.consumed


def facts_of(workload: Workload, variables: Mapping[str, Mapping[str, frozenset[str]]]) -> AccessSummary:
    """`variables`: Einsum -> tensor -> its rank variables."""
    accesses = [(e.name, a) for e in workload.einsums for a in e.tensor_accesses]
    users: dict[str, set[str]] = {}
    makers: dict[str, set[str]] = {}
    for einsum, a in accesses:
        if a.output:
            makers.setdefault(a.name, set()).add(einsum)
    for einsum, a in accesses:
        users.setdefault(a.name, set()).add(einsum)
    return AccessSummary(
        frozenset(a.name for _, a in accesses if a.output),
        frozenset(a.name for e, a in accesses if not a.output and e not in makers.get(a.name, ())),
        frozenset(t for t, found in users.items() if len(found) > 1),
        tuple(dict.fromkeys(a.name for _, a in accesses)),
        frozenset(v for tensors in variables.values() for vs in tensors.values() for v in vs),
    )


def base_scope(
    einsum: EinsumSpec,
    facts: AccessSummary,
    variables: Mapping[str, frozenset[str]],
    persistent: frozenset[str],
) -> SetScope:
    """The scope of one Einsum without renames."""
    tensors = tuple(dict.fromkeys(a.name for a in einsum.tensor_accesses))
    own = frozenset(tensors)
    named = {
        "All": own,
        "Tensors": own,
        "Inputs": frozenset(a.name for a in einsum.tensor_accesses if not a.output),
        "Outputs": frozenset(a.name for a in einsum.tensor_accesses if a.output),
        "Intermediates": facts.intermediates & own,
        "Shared": facts.shared & own,
        "Persistent": persistent & own,
    }
    ordered = tuple(dict.fromkeys(v for t in tensors for v in sorted(variables.get(t, ()))))
    return SetScope(
        einsum.name,
        tensors,
        ordered,
        named,
        frozenset(facts.tensors),
        variables,
        known_variables=facts.variables,
    )


def rename_sources(
    workload: Workload, renames: Renames | None, faults: Faults
) -> dict[str, dict[str, RenameSource]]:
    """Einsum -> name -> the rename that applies: the Einsum's own precedes named ones, and these precede
    defaults."""
    names = [e.name for e in workload.einsums]
    result: dict[str, dict[str, RenameSource]] = {n: {} for n in names}
    sections = list(enumerate(renames.einsums if renames else ()))
    for i, section in sorted(sections, key=lambda item: item[1].name != "default"):
        path: Path = ("renames", "einsums", i)
        if section.name != "default" and section.name not in result:
            faults.add(
                (*path, "name"),
                f"unknown Einsum {section.name}",
                suggestion(section.name, [*names, "default"]),
                code="unknown-name",
            )
            continue
        targets = names if section.name == "default" else [section.name]
        default = section.name == "default"
        written = [
            *_table(section.tensor_accesses, (*path, "tensor_accesses"), default, False, faults),
            *_table(section.rank_variables, (*path, "rank_variables"), default, True, faults),
        ]
        for target in targets:
            result[target].update((r.name, r) for r in written)
    for i, einsum in enumerate(workload.einsums):
        own = _table(einsum.renames, ("workload", "einsums", i, "renames"), False, False, faults)
        result[einsum.name].update((r.name, r) for r in own)
    _check_names(result, faults, [a.name for e in workload.einsums for a in e.tensor_accesses])
    return result


def _table(table: object, path: Path, default: bool, variables: bool, faults: Faults) -> list[RenameSource]:
    result: list[RenameSource] = []
    if isinstance(table, dict):
        return [RenameSource(n, s, None, (*path, n), default, variables) for n, s in table.items()]
    for i, r in enumerate(table if isinstance(table, tuple) else ()):
        if any(r.name == other.name for other in result):
            message = f"rename {r.name} is given twice"
            faults.add((*path, i, "name"), message, "keep one of them", code="duplicate-name")
        result.append(RenameSource(r.name, r.source, r.expected_count, (*path, i), default, variables))
    return result


def _check_names(found: dict[str, dict[str, RenameSource]], faults: Faults, tensors: Iterable[str]) -> None:
    known = frozenset(tensors)
    for sources in found.values():
        for source in sources.values():
            if source.name in (*KEYWORDS, "Other"):
                message = f"rename {source.name} is a predefined set"
                faults.add(source.path, message, "choose another name", key=True, code="name-conflict")
            elif source.name in known:
                what = f"rename {source.name} is a tensor's name"
                faults.add(source.path, what, "choose another name", key=True, code="name-conflict")


class RenameResolver:
    """Evaluates the renames of one Einsum on demand, detecting cycles."""

    def __init__(self, scope: SetScope, sources: Mapping[str, RenameSource], faults: Faults) -> None:
        self.sources = sources
        self.faults = faults
        self.scope = replace(scope, rename=self.lookup, rename_names=tuple(sources))
        self.known: dict[str, NamedSet | TextFault] = {}
        self.open: list[str] = []

    def lookup(self, name: str) -> NamedSet | None:
        """The set that rename `name` stands for; None if there is no such rename. Raises TextFault."""
        if name not in self.sources:
            return None
        if name not in self.known:
            self.known[name] = self._evaluated(self.sources[name])
        result = self.known[name]
        if isinstance(result, TextFault):
            raise result
        return result

    def _evaluated(self, source: RenameSource) -> NamedSet | TextFault:
        if source.name in self.open:
            cycle = " -> ".join([*self.open[self.open.index(source.name) :], source.name])
            message = f"renames refer to each other: {cycle}"
            return TextFault(message, 0, "break the cycle", code="cyclic-definition")
        self.open.append(source.name)
        try:
            result = evaluate_set(parse_set(source.text), self.scope)
        except TextFault as fault:
            return self._faulty(source, fault)
        finally:
            self.open.pop()
        wanted = "rank_variables" if source.variables else "tensors"
        if source.path[0] == "renames" and result.kind not in (wanted, "either"):
            return TextFault(
                f"rename {source.name} gives {result.kind.replace('_', ' ')}",
                0,
                f"move it under {'rank_variables' if result.kind == 'rank_variables' else 'tensor_accesses'}",
                code="wrong-type",
            )
        if source.expected is not None and len(result.members) != source.expected:
            return self._miscounted(source, result)
        return result

    def _faulty(self, source: RenameSource, fault: TextFault) -> TextFault:
        if isinstance(fault, Undefined):
            return Undefined(fault.message, 0, fault.remedy)
        path = (*source.path, "source") if isinstance(source.path[-1], int) else source.path
        self.faults.text(path, fault)
        return Undefined(f"rename {source.name} is faulty", 0, "mend the rename")

    def _miscounted(self, source: RenameSource, found: NamedSet) -> TextFault:
        members = ", ".join(sorted(found.members)) or "nothing"
        return Undefined(
            f"rename {source.name} should give {source.expected} in Einsum {self.scope.einsum}, but "
            f"`{source.text}` gives {len(found.members)}: {members}",
            0,
            f"give Einsum {self.scope.einsum} a rename of its own, or change expected_count",
        )

    def check_all(self) -> tuple[tuple[str, frozenset[str]], ...]:
        """All renames that have a value in this Einsum; its own renames without one are faults."""
        resolved: list[tuple[str, frozenset[str]]] = []
        for name, source in self.sources.items():
            try:
                found = self.lookup(name)
            except TextFault as fault:
                if not (source.default and isinstance(fault, Undefined)):
                    self.faults.add(source.path, fault.message, fault.remedy, code=fault.code)
                continue
            if found is not None:
                resolved.append((name, found.members))
        return tuple(resolved)


class Undefined(TextFault):
    """A rename that has no value in this Einsum; a fault only where it is used."""
