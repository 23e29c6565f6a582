"""An architecture whose rules on what memories keep are narrowed for one exploration."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from polymodel.architecture.hierarchy import Component, Hierarchy, TensorRule
from polymodel.architecture.rules import Rules
from polymodel.spec.explore_schema import MemoryRule
from polymodel.spec.faults import Path, suggestion
from polymodel.workload.einsum import Cascade, Einsum

MARK = " | explore: "  # between what the architecture says of a rule and what the exploration does


def narrowed(
    hierarchy: Hierarchy, cascade: Cascade, rules: Mapping[str, MemoryRule], reader: Rules, path: Path
) -> Hierarchy:
    """The hierarchy in which each named memory keeps, besides what it must, what `keep` says, and may hold
    only what `may_keep` and `bypass` leave.

    `X.tensors` in an expression is what the architecture says X must keep. Faults go to `reader.faults`.
    """
    known = [c.name for c in hierarchy.components if c.kind == "memory"]
    found = {}
    for name, rule in rules.items():
        if name not in known:
            near = suggestion(name, known, "memories")
            reader.faults.add((*path, name), f"unknown memory {name}", near, key=True)
        else:
            found[name] = _Narrowing(hierarchy[name], rule, reader, (*path, name)).component(cascade)
    return replace(hierarchy, components=tuple(found.get(c.name, c) for c in hierarchy.components))


@dataclass
class _Narrowing:
    """One memory."""

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
        found = self.memory
        if kept:
            found = replace(found, keep=TensorRule(_joined(found.keep, kept), tuple(keeps)))
        if limited:
            found = replace(found, may_keep=TensorRule(_joined(found.may_keep, limited), tuple(mays)))
        return found

    def _texts(self, *names: str) -> str:
        return "; ".join(f"{n}: {text}" for n in names if (text := getattr(self.rule, n)))

    def _within(
        self, one: Einsum, keep: TensorRule | None, may: TensorRule | None, bypass: TensorRule | None
    ) -> tuple[frozenset[str], frozenset[str]]:
        """What the memory must and may hold in one Einsum."""
        every = frozenset(one.tensors)
        must = self.memory.keep.tensors(one.name) if self.memory.keep else frozenset()
        allowed = self.memory.may_keep.tensors(one.name) | must if self.memory.may_keep else every
        more = keep.tensors(one.name) if keep else frozenset()
        less = bypass.tensors(one.name) if bypass else frozenset()
        within = may.tensors(one.name) if may else every
        self._told("keep", more - allowed, one, "the architecture does not let it", "may_keep")
        self._told("bypass", less & must, one, "the architecture says that it must keep", "keep")
        if clash := more & less:
            self._fault("bypass", f"{_names(clash)} in Einsum {one.name} is in `keep` as well", "choose one")
        return must | more, (allowed & (within | more | must)) - less

    def _told(self, field: str, tensors: frozenset[str], one: Einsum, reason: str, of: str) -> None:
        if tensors:
            rule = self.memory.keep if of == "keep" else self.memory.may_keep
            text = f" ({of}: {rule.text})" if rule else ""
            what = f"{self.memory.name} cannot {field} {_names(tensors)} in Einsum {one.name}: {reason}{text}"
            self._fault(field, what, f"an exploration narrows rules; change `{of}` of {self.memory.name}")

    def _fault(self, field: str, what: str, remedy: str) -> None:
        self.reader.faults.add((*self.path, field), what, remedy)


def _names(tensors: frozenset[str]) -> str:
    return ", ".join(sorted(tensors))


def _joined(rule: TensorRule | None, told: str) -> str:
    return f"{rule.text}{MARK}{told}" if rule else f"{MARK}{told}"


def written(rule: TensorRule | None) -> str:
    """What the exploration says of a rule that it narrows, e.g. `bypass: All`; empty for those of the
    architecture alone."""
    return rule.text.partition(MARK)[2] if rule else ""
