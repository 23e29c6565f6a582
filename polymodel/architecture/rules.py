"""Set expressions of an architecture, evaluated for every Einsum."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from polymodel.architecture.hierarchy import TensorRule
from polymodel.spec import Arch, Memory, Toll
from polymodel.spec.faults import Faults, Path, TextFault
from polymodel.spec.setexpr import SetScope, parse_set, tensor_set


class Rules:
    """Evaluates `keep`, `may_keep` and `may_reuse`; `X.tensors` is what component X must keep."""

    def __init__(self, arch: Arch, scopes: Sequence[SetScope], faults: Faults) -> None:
        self.scopes = scopes
        self.faults = faults
        self.keeps = {n.name: n.tensors.keep for n in arch.nodes if isinstance(n, (Memory, Toll))}
        self.known: dict[tuple[str, str], frozenset[str]] = {}
        self.open: list[str] = []

    def rule(self, component: str, text: str | None, path: Path) -> TensorRule | None:
        """The rule for one expression; `component` is the one whose `keep` it may be, if `path` is in the
        architecture. None for None."""
        if text is None:
            return None
        tree = parse_set(text)
        found: list[tuple[str, frozenset[str]]] = []
        keep = path[0] == "arch" and path[-1] == "keep"
        for scope in self.scopes:
            try:
                if keep:
                    found.append((scope.einsum, self._kept(component, scope)))
                else:
                    found.append((scope.einsum, tensor_set(tree, self._with_components(scope))))
            except TextFault as fault:
                self.faults.text(path, fault)
                break
        return TensorRule(text, tuple(found))

    def _with_components(self, scope: SetScope) -> SetScope:
        def component(name: str) -> frozenset[str] | None:
            return self._kept(name, scope) if name in self.keeps else None

        return replace(scope, component=component, component_names=tuple(self.keeps))

    def _kept(self, component: str, scope: SetScope) -> frozenset[str]:
        key = (component, scope.einsum)
        if key in self.known:
            return self.known[key]
        if component in self.open:
            cycle = " -> ".join([*self.open[self.open.index(component) :], component])
            raise TextFault(f"components refer to each other's tensors: {cycle}", 0, "break the cycle")
        text = self.keeps[component]
        if text is None:
            return frozenset()
        self.open.append(component)
        try:
            self.known[key] = tensor_set(parse_set(text), self._with_components(scope))
        finally:
            self.open.pop()
        return self.known[key]
