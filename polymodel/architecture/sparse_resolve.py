"""`sparse:` of a component, resolved: set expressions bound per Einsum, what meets nowhere refused."""

from __future__ import annotations

from typing import Any

from polymodel.architecture.rules import Rules
from polymodel.architecture.sparse_rules import ActionKind, Intersection, SparseAction, SparseRules
from polymodel.spec.faults import Faults, Path, TextFault, suggestion
from polymodel.spec.setexpr import SetScope, parse_set, tensor_set
from polymodel.spec.sparse_schema import Intersection as IntersectionSpec
from polymodel.spec.sparse_schema import SparseAction as ActionSpec
from polymodel.spec.sparse_schema import SparseSection

OPERATION = "compute"


def resolve_sparse(
    section: SparseSection | None, compute: bool, path: Path, rules: Rules, faults: Faults
) -> SparseRules | None:
    """The rules of one component; every fault is added to `faults`. `compute`: it is a compute unit."""
    if section is None:
        return None
    formats = _formats(section, (*path, "format"), rules, faults)
    actions = tuple(
        _action(a, compute, (*path, "actions", i), rules, faults) for i, a in enumerate(section.actions)
    )
    met = tuple(
        _intersection(x, (*path, "intersect", i), rules, faults) for i, x in enumerate(section.intersect)
    )
    return SparseRules(formats, actions, met, _dense_outputs(section, compute, path, rules, faults))


def _dense_outputs(
    section: SparseSection, compute: bool, path: Path, rules: Rules, faults: Faults
) -> tuple[str, ...]:
    """Tensors that any of the expressions gives; each is an output of some Einsum."""
    at = (*path, "dense_outputs")
    if compute and section.dense_outputs:
        faults.add(at, "a compute unit stores no outputs", "say it at the memories that hold them")
    before, found = len(faults), dict[str, None]()
    for number, scope in enumerate(rules.scopes):
        members = _union(section.dense_outputs, number, at, rules)
        outputs = tensor_set(parse_set("Outputs"), scope)
        found |= dict.fromkeys(_ordered(members & outputs, scope))
    if section.dense_outputs and rules.scopes and not found and len(faults) == before:
        what = f"no Einsum computes any of {', '.join(section.dense_outputs)}"
        faults.add(at, what, "name outputs, or Outputs for all")
    return tuple(found)


def _formats(section: SparseSection, path: Path, rules: Rules, faults: Faults) -> tuple[tuple[str, Any], ...]:
    """Tensor by tensor; `Other` is all that no other key names."""
    found: dict[str, Any] = {}
    keys: dict[str, str] = {}
    for key, value in sorted(section.format.items(), key=lambda item: item[0].strip() == "Other"):
        for tensor in _covered(key, (*path, key), rules, faults, frozenset(found)):
            if tensor in found and found[tensor] != value:
                what = f"`{keys[tensor]}` and `{key}` give {tensor} different formats"
                remedy = "use Other for the tensors that no other key names"
                faults.add((*path, key), what, remedy, key=True)
            found.setdefault(tensor, value)
            keys.setdefault(tensor, key)
    return tuple(found.items())


def _covered(key: str, path: Path, rules: Rules, faults: Faults, taken: frozenset[str]) -> tuple[str, ...]:
    everything = dict.fromkeys(t for s in rules.scopes for t in s.tensors)
    if key.strip() == "Other":
        return tuple(t for t in everything if t not in taken)
    tree = parse_set(key, key=True)
    members: set[str] = set()
    for scope in rules.scopes:
        try:
            members |= tensor_set(tree, scope)
        except TextFault as fault:
            faults.text(path, fault, key=True)
            break
    return tuple(t for t in everything if t in members)


def _action(spec: ActionSpec, compute: bool, path: Path, rules: Rules, faults: Faults) -> SparseAction:
    word: ActionKind = "gate" if spec.gate else "skip"
    texts = spec.gate or spec.skip
    operation = tuple(t.strip() for t in texts) == (OPERATION,)
    if compute and not operation:
        remedy = f"write {{{word}: compute, on: [...]}}, or move it to the memory that is read"
        faults.add((*path, word), f"a compute unit can {word} its operations only", remedy)
    if not compute and operation:
        faults.add((*path, word), f"a memory cannot {word} operations", "move it to the compute unit")
    if not spec.on and not operation:
        faults.add(path, f"{word}: {', '.join(texts)} lacks on:", "name the tensors whose zeros decide")
    if compute != operation:
        return SparseAction(word, ())
    before = len(faults)
    found = []
    for number, scope in enumerate(rules.scopes):
        targets = () if operation else _union(texts, number, (*path, word), rules)
        leaders = _union(spec.on or ("Inputs",), number, (*path, "on"), rules)
        if leaders and (targets or operation):
            found.append((scope.einsum, _ordered(targets, scope), _ordered(leaders, scope)))
    if rules.scopes and not found and len(faults) == before:
        what = f"no Einsum has both {', '.join(texts)} and {', '.join(spec.on)}"
        faults.add((*path, "on"), what, "name tensors of one Einsum")
    return SparseAction(word, tuple(found))


def _union(texts: tuple[str, ...], number: int, path: Path, rules: Rules) -> frozenset[str]:
    """The tensors that any of the expressions gives in one Einsum."""
    found: set[str] = set()
    for i, text in enumerate(texts):
        rule = rules.rule("", text, (*path, i) if len(texts) > 1 else path)
        if rule is not None and number < len(rule.by_einsum):
            found |= rule.by_einsum[number][1]
    return frozenset(found)


def _ordered(tensors: frozenset[str] | tuple[str, ...], scope: SetScope) -> tuple[str, ...]:
    return tuple(t for t in scope.tensors if t in tensors)


def _intersection(spec: IntersectionSpec, path: Path, rules: Rules, faults: Faults) -> Intersection:
    known = list(dict.fromkeys(t for s in rules.scopes for t in s.tensors))
    for i, tensor in enumerate(spec.tensors):
        if rules.scopes and tensor not in known:
            faults.add(
                (*path, "tensors", i), f"unknown tensor {tensor}", suggestion(tensor, known, "tensors")
            )
    if len(set(spec.tensors)) < 2:
        faults.add((*path, "tensors"), "an intersection needs two tensors or more", "name them: [A, B]")
    leads = spec.kind == "leader_follower"
    if leads and spec.leader not in spec.tensors:
        given = f"leader {spec.leader} is none of them" if spec.leader else "leader_follower lacks its leader"
        faults.add((*path, "leader") if spec.leader else path, given, f"write leader: {spec.tensors[0]}")
    if not leads and spec.leader:
        faults.add((*path, "leader"), f"{spec.kind} has no leader", "leave it out")
    return Intersection(spec.kind, spec.tensors, spec.leader or "")
