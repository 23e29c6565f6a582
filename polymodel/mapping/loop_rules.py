"""What an exploration says of loops, per memory and per fanout dimension."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from polymodel.architecture.hierarchy import Hierarchy
from polymodel.architecture.resolve import Rules
from polymodel.spec.faults import Path, suggestion
from polymodel.spec.numbers import Numbers
from polymodel.spec.request_schema import FanoutRule, MemoryRule
from polymodel.workload.einsum import Cascade

LOOP_RULES = ("factors", "order", "variables", "must_reuse", "no_refetch")
OTHERS = "..."  # in an order of loops: any that are not named
_FACTOR = re.compile(r"\s*(<=|>=|==|=|)\s*(.*)")


@dataclass(frozen=True)
class LoopRule:
    """One rule on loops. `kind`: factors, order, no_refetch, reuse (of a memory), factors, variables,
    must_reuse (of a fanout COMPONENT.DIMENSION); `place`: which one; `names`: rank variables, policies or,
    per Einsum, tensors;
    `relation` and `number`: of factors; `sequence`: of an order, with `OTHERS`; `written`: as the exploration
    says it."""

    kind: str
    place: str
    written: str
    names: frozenset[str] = frozenset()
    by_einsum: tuple[tuple[str, frozenset[str]], ...] = ()
    relation: str = "="
    number: int = 1
    sequence: tuple[str, ...] = ()

    def tensors(self, einsum: str) -> frozenset[str]:
        """Those that it is about in one Einsum."""
        return dict(self.by_einsum).get(einsum, frozenset())

    @property
    def spatial(self) -> bool:
        """Whether it is about a fanout."""
        return self.kind in ("variables", "must_reuse") or "." in self.place

    def admits(self, number: Any) -> Any:
        """Whether a factor (or each of an array) obeys it."""
        if self.relation == "=":
            return number == self.number
        return number <= self.number if self.relation == "<=" else number >= self.number


@dataclass
class LoopRuleReader:
    """Reads the rules of one section, and notes their faults."""

    cascade: Cascade
    hierarchy: Hierarchy
    sets: Rules
    numbers: Numbers

    def memories(self, given: Mapping[str, MemoryRule], path: Path) -> Iterator[LoopRule]:
        """Of memories; unknown ones are told elsewhere."""
        known = list(self.hierarchy.memories)
        for name, rule in given.items():
            if name in known:
                yield from self._factors(name, rule.factors, (*path, name, "factors"))
                yield from self._order(name, rule.order, (*path, name, "order"))
                yield from self._tensors("no_refetch", name, rule.no_refetch, (*path, name, "no_refetch"))
                yield from self._policies(name, rule.reuse, (*path, name, "reuse"))

    def fanouts(self, given: Mapping[str, Mapping[str, FanoutRule]], path: Path) -> Iterator[LoopRule]:
        """Of fanout dimensions."""
        known: dict[str, list[str]] = {}
        for component, d in self.hierarchy.dimensions:
            known.setdefault(component, []).append(d.name)
        for component, dims in given.items():
            if component not in known:
                near = (
                    suggestion(component, list(known), "components with a fanout")
                    if known
                    else "leave it out"
                )
                self.numbers.faults.add(
                    (*path, component), f"component {component} has no fanout", near, key=True
                )
                continue
            for dim, rule in dims.items():
                here = (*path, component, dim)
                if dim not in known[component]:
                    near = suggestion(dim, known[component], "dimensions")
                    self.numbers.faults.add(here, f"{component} has no dimension {dim}", near, key=True)
                    continue
                place = f"{component}.{dim}"
                yield from self._variables(place, rule.variables, (*here, "variables"))
                yield from self._factors(place, rule.factors, (*here, "factors"))
                yield from self._tensors("must_reuse", place, rule.must_reuse, (*here, "must_reuse"))

    def _variables(self, place: str, names: Sequence[str] | None, path: Path) -> Iterator[LoopRule]:
        if names is None:
            return
        for i, name in enumerate(names):
            self._known(name, (*path, i))
        yield LoopRule("variables", place, f"variables: {', '.join(names) or '[]'}", frozenset(names))

    def _factors(self, place: str, factors: Mapping[str, int | str], path: Path) -> Iterator[LoopRule]:
        for name, text in factors.items():
            self._known(name, (*path, name), key=True)
            relation, number = "=", text
            if isinstance(text, str):
                found = _FACTOR.fullmatch(text)
                assert found is not None
                relation, number = found[1] or "=", found[2]
            whole = self.numbers.whole(number, (*path, name), "number of iterations")
            written = f"factors: {{{name}: {text}}}"
            relation = "=" if relation == "==" else relation
            yield LoopRule("factors", place, written, frozenset({name}), (), relation, whole)

    def _order(self, place: str, names: Sequence[str] | None, path: Path) -> Iterator[LoopRule]:
        if names is None:
            return
        named = [n for n in names if n != OTHERS]
        for i, name in enumerate(names):
            if name != OTHERS:
                self._known(name, (*path, i))
                if named.count(name) > 1:
                    self.numbers.faults.add((*path, i), f"rank variable {name} is given twice", "keep one")
        yield LoopRule(
            "order", place, f"order: [{', '.join(names)}]", frozenset(named), sequence=tuple(names)
        )

    def _policies(self, place: str, policies: Sequence[str], path: Path) -> Iterator[LoopRule]:
        if "refill" not in policies:
            remedy = "write `reuse: [refill, slide]`: a node that no window slides along refills"
            self.numbers.faults.add(path, "the policies that nodes may have lack refill", remedy)
        elif "slide" in policies:
            yield LoopRule("reuse", place, f"reuse: [{', '.join(policies)}]", frozenset(policies))

    def _tensors(self, kind: str, place: str, text: str | None, path: Path) -> Iterator[LoopRule]:
        rule = self.sets.rule("", text, path)
        if rule is not None:
            yield LoopRule(kind, place, f"{kind}: {text}", by_einsum=rule.by_einsum)

    def _known(self, name: str, path: Path, key: bool = False) -> None:
        known = list(dict.fromkeys(v for e in self.cascade for v in e.rank_variables))
        if name not in known:
            near = suggestion(name, known, "rank variables")
            self.numbers.faults.add(path, f"no Einsum has a rank variable {name}", near, key=key)
