"""Convert `workload:` and `renames:` of AccelForge: evaluate sizes, accept Einsums in both forms, resolve
conditions."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from polymodel.importers.accelforge.values import MOST_TEXT, EinsumView, NoValue, Scope
from polymodel.importers.tables import KeyedTable, Reading, flat, plain
from polymodel.spec.faults import TextFault, YamlNode
from polymodel.spec.numbers import Value
from polymodel.spec.one_line import parse_einsum

_EINSUM_KEYS = (
    "is_copy_operation", "n_instances", "rank_sizes", "iteration_space_shape", "operations",
)  # fmt: skip
_ACCESS_KEYS = (
    "name",
    "projection",
    "output",
    "bits_per_value",
    "persistent",
    "backing_storage_size_scale",
    "density",
)
_RANK = re.compile(r"\b([A-Za-z_]\w*)\s*:\s*")  # `H: p + r` of a one-line Einsum, here `H=p + r`


@dataclass
class ConditionScope:
    """The properties of an Einsum that a condition in a set expression may use before names are resolved."""

    name: str
    inputs: list[str] = field(default_factory=list)
    outputs: list[str] = field(default_factory=list)

    def count(self, text: str, produced: frozenset[str]) -> int:
        """Return the number of tensors in a predefined set. Raises NoValue for any other set."""
        every = [*self.inputs, *self.outputs]
        sets = {
            "All": every,
            "Tensors": every,
            "Inputs": self.inputs,
            "Outputs": self.outputs,
            "Intermediates": [t for t in every if t in produced],
            "Nothing": [],
        }
        name = text.strip().removesuffix("()")
        if name not in sets:
            raise NoValue(name)
        return len(sets[name])


@dataclass
class WorkloadSections:
    """The sections `workload:` and `renames:` as plain data."""

    sections: dict[str, object] = field(default_factory=dict)


def workload_of(
    reading: Reading, workload: YamlNode | None, renames: YamlNode | None, scope: Scope
) -> WorkloadSections:
    """Return both sections; one of them may be missing."""
    result = WorkloadSections()
    shapes: list[ConditionScope] = []
    if workload is not None:
        result.sections["workload"] = _workload(
            reading, KeyedTable(reading, workload, "workload"), scope, shapes
        )
    if renames is not None:
        table = _renames(reading, KeyedTable(reading, renames, "renames"), scope, shapes)
        if table:
            result.sections["renames"] = {"einsums": table}
    return result


def _workload(
    reading: Reading, table: KeyedTable, scope: Scope, shapes: list[ConditionScope]
) -> dict[str, object]:
    result: dict[str, object] = {}
    table.take("version")
    if "name" in table:
        result["name"] = table.text("name")
    sizes = table.table("rank_sizes")
    if sizes is not None:
        result["rank_sizes"] = _sizes(reading, sizes, scope)
    bounds = table.take("iteration_space_shape") or table.take("shape")
    table.take("shape")
    if bounds is not None:
        result["iteration_space_shape"] = {e.key: str(e.value.scalar) for e in bounds.entries or ()}
    bits = table.table("bits_per_value")
    if bits is not None:
        result["bits_per_value"] = _numbers(reading, bits, scope)
    persistent = table.take("persistent_tensors")
    if persistent is not None and persistent.scalar is not None:
        result["persistent_tensors"] = str(persistent.scalar)
    if "n_instances" in table:
        node = table.take("n_instances")
        result["n_instances"] = _whole(reading, node, scope, table.path) if node is not None else 1
    einsums = []
    for i, node in enumerate(table.items("einsums")):
        one = _einsum(reading, node, f"workload.einsums[{i}]", scope)
        if one is not None:
            einsums.append(one)
            shapes.append(_shape(one))
    result["einsums"] = einsums
    _assume_widths(reading, table, result, einsums)
    for entry in table.rest:
        why, remedy = "a workload here has no such key", "check that the counts do not need it"
        reading.leave(entry.value, entry.key, why, remedy, table.path, changes="counts", refused=True)
    return result


def _assume_widths(
    reading: Reading, table: KeyedTable, result: dict[str, object], einsums: Sequence[object]
) -> None:
    """Assume bytes where no width is given at all, as in older files, whose memories have widths."""
    accesses = [a for e in einsums if isinstance(e, dict) for a in e.get("tensor_accesses", ())]
    if "bits_per_value" in result or not accesses or any("bits_per_value" in a for a in accesses):
        return
    result["bits_per_value"] = {"All": 8}
    why, remedy = (
        "no tensor has a width: values are of 8 bits here",
        "write `bits_per_value:` of the workload",
    )
    reading.leave(
        table.node,
        "bits_per_value",
        why,
        remedy,
        table.path,
        changes="bits, and energy that is priced by them",
    )


def _sizes(reading: Reading, table: KeyedTable, scope: Scope) -> dict[str, Value]:
    """Return ranks and their sizes, which may be computed from one another."""
    given = {e.key: e.value.scalar for e in table.node.entries or ()}
    return _numbers(reading, table, scope.inside(given))


def _numbers(reading: Reading, table: KeyedTable, scope: Scope) -> dict[str, Value]:
    """A table of numbers."""
    return {e.key: _whole(reading, e.value, scope, table.path) for e in table.node.entries or ()}


def _whole(reading: Reading, node: YamlNode, scope: Scope, path: str) -> Value:
    try:
        value = scope.number(node.scalar)
    except NoValue as lacking:
        message = f"{lacking.word} has no value here"
        reading.fault(node, message, "write the number", path, code="missing-value")
        return 1
    if value != value or abs(value) > 2**62:
        message = f"{value} is not a number of values"
        reading.fault(node, message, "write a whole number", path, code="out-of-range")
        return 1
    return int(value) if value == int(value) else value


def _einsum(reading: Reading, node: YamlNode, path: str, scope: Scope) -> object | None:
    """Return one Einsum, written as text or as a table of tensor accesses."""
    if node.kind == "scalar":
        return _parsed(reading, node, str(node.scalar), path)
    table = KeyedTable(reading, node, path, "")
    result: dict[str, object] = {}
    text = table.take("einsum")
    if text is not None:
        parsed = _parsed(reading, text, str(text.scalar), f"{path}.einsum")
        if parsed is None:
            return None
        result.update(parsed)
    if "name" in table:
        result["name"] = table.text("name")
    accesses = table.items("tensor_accesses")
    if accesses:
        result["tensor_accesses"] = _accesses(reading, accesses, path, scope, result)
    for key in _EINSUM_KEYS:
        value = table.take(key)
        if value is not None and not (value.kind == "scalar" and value.scalar is None):
            result[key] = plain(value)
    shape = table.take("shape")
    if shape is not None and "iteration_space_shape" not in result:
        result["iteration_space_shape"] = [str(n.scalar) for n in flat(shape)]
    words = {what: table.text(f"{what}_op") for what in ("map", "reduce")}
    if any(words.values()) and "operations" not in result:
        result["operations"] = {what: word for what, word in words.items() if word}
    renames = table.take("renames")
    if renames is not None:
        result["renames"] = _table_of_renames(reading, renames, f"{path}.renames", scope)
    for entry in table.rest:
        why, remedy = "an Einsum here has no such key", "check that the counts do not need it"
        reading.leave(entry.value, entry.key, why, remedy, path, changes="counts", refused=True)
    return result


def _parsed(reading: Reading, node: YamlNode, text: str, path: str) -> dict[str, object] | None:
    """Return a one-line Einsum as the equivalent table; a tensor with two equal accesses is read once."""
    try:
        parsed = parse_einsum(_RANK.sub(r"\1=", text))
    except TextFault as fault:
        reading.fault(node, fault.message, fault.remedy, path, code=fault.code)
        return None
    accesses: list[dict[str, object]] = []
    for tensor, ranks, output in (*parsed.accesses[1:], parsed.accesses[0]):
        access: dict[str, object] = {"name": tensor, "projection": _projection(dict(ranks))}
        if output:
            access |= {"output": True} | ({"accumulate": True} if parsed.updates else {})
        if access in accesses:
            reading.note(node, f"{tensor} occurs twice: it is read once per operation", "", path)
        else:
            accesses.append(access)
    result: dict[str, object] = {"name": parsed.accesses[0][0], "tensor_accesses": accesses}
    operations = {"map": "add"} if parsed.joined == "+" else {}
    operations |= {"reduce": "mul"} if parsed.updates == "*" else {}
    return result | ({"operations": operations} if operations else {})


def _projection(ranks: Mapping[str, object]) -> object:
    """Return a list if every rank is indexed by its own variable, else a map rank -> expression."""
    alike = all(
        isinstance(e, str) and re.fullmatch(r"[A-Za-z_]\w*", e) and e.upper() == r for r, e in ranks.items()
    )
    return list(ranks.values()) if alike else dict(ranks)


def _accesses(
    reading: Reading, nodes: Sequence[YamlNode], path: str, scope: Scope, einsum: Mapping[str, object]
) -> list[dict[str, object]]:
    """Return full accesses; for an Einsum that is also written as text, they add keys to its tensors."""
    before = einsum.get("tensor_accesses")
    result: list[dict[str, object]] = list(before) if isinstance(before, list) else []
    for j, node in enumerate(nodes):
        below = f"{path}.tensor_accesses[{j}]"
        table = KeyedTable(reading, node, below)
        access: dict[str, object] = {}
        for key in _ACCESS_KEYS:
            value = table.take(key)
            if value is not None:
                access[key] = (
                    _whole(reading, value, scope, below) if key == "bits_per_value" else plain(value)
                )
        for entry in table.rest:
            why, remedy = "a tensor access here has no such key", "check that the counts do not need it"
            reading.leave(entry.value, entry.key, why, remedy, below, changes="counts", refused=True)
        same = next((a for a in result if a.get("name") == access.get("name") and "output" not in a), None)
        if same is not None and "projection" not in access:
            same.update(access)
        elif access in result:
            reading.note(node, f"{access.get('name')} occurs twice: it is read once per operation", "", below)
        else:
            result.append(access)
    return result


def _shape(einsum: object) -> ConditionScope:
    table = einsum if isinstance(einsum, dict) else {}
    shape = ConditionScope(str(table.get("name", "")))
    for access in table.get("tensor_accesses", ()):
        (shape.outputs if access.get("output") else shape.inputs).append(str(access.get("name")))
    return shape


def _renames(
    reading: Reading, table: KeyedTable, scope: Scope, shapes: Sequence[ConditionScope]
) -> list[dict[str, object]]:
    """Return `renames:`; entries with conditions are written per Einsum, with the side that holds there."""
    result: list[dict[str, object]] = []
    produced = frozenset(t for s in shapes for t in s.outputs)
    for i, node in enumerate(table.items("einsums")):
        entry = KeyedTable(reading, node, f"renames.einsums[{i}]")
        name = entry.text("name")
        conditional = _conditional(node)
        names = [s for s in shapes if name in ("default", s.name)] if conditional else []
        views = [(s.name, scope_of(scope, s, produced)) for s in names] or [(name, scope)]
        if conditional and not names:
            what = "conditions on the Einsum hold for none here: they are left to the workload"
            reading.note(node, what, "import the workload as well", entry.path)
            views = []
        for einsum, inner in views:
            one: dict[str, object] = {"name": einsum}
            for key in ("tensor_accesses", "rank_variables"):
                value = entry.take(key)
                if value is not None:
                    one[key] = _table_of_renames(reading, value, entry.below(key), inner)
            result.append(one)
        entry.seen.update(("name", "tensor_accesses", "rank_variables"))
        for rest in entry.rest:
            why = "renames here have no such key"
            reading.leave(
                rest.value, rest.key, why, "write it per Einsum", entry.path, changes="names", refused=True
            )
    table.seen.add("einsums")
    return result


def scope_of(scope: Scope, shape: ConditionScope, produced: frozenset[str]) -> Scope:
    """Return the scope of one Einsum before the workload is loaded."""

    def width(name: str) -> int:
        raise NoValue(f"{name}.bits_per_value")

    view = EinsumView(lambda text: shape.count(text, produced), width)
    return Scope(scope.variables, view, scope.fanouts)


def _conditional(node: YamlNode) -> bool:
    texts = (n.scalar[:MOST_TEXT] for n in node.walk() if isinstance(n.scalar, str))
    return any(re.search(r"\bif\b.*\belse\b", text, re.DOTALL) for text in texts)


def _table_of_renames(reading: Reading, node: YamlNode, path: str, scope: Scope) -> object:
    """Return renames as a table name -> set, or as a list with expected counts."""
    if node.entries is not None:
        return {e.key: _set(reading, e.value, f"{path}.{e.key}", scope) for e in node.entries}
    result = []
    for j, item in enumerate(flat(node)):
        table = KeyedTable(reading, item, f"{path}[{j}]")
        source = table.take("source")
        one: dict[str, object] = {"name": table.text("name")}
        if source is not None:
            one["source"] = _set(reading, source, table.below("source"), scope)
        count = table.take("expected_count")
        if count is not None and count.scalar is not None:
            one["expected_count"] = _whole(reading, count, scope, table.below("expected_count"))
        result.append(one)
    return result


def _set(reading: Reading, node: YamlNode, path: str, scope: Scope) -> str:
    """Return a set expression, with the side that its condition chooses."""
    try:
        return scope.chosen(str(node.scalar))
    except NoValue as lacking:
        message = f"{lacking.word} has no value in a condition"
        reading.fault(node, message, "write the set", path, code="missing-value")
        return "Nothing"
