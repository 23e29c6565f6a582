"""Convert `mapping:` of AccelForge, whose LoopTrees have nearly the same form."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from polymodel.importers.accelforge.unsupported_keys import leave_rest
from polymodel.importers.tables import KeyedTable, Reading, flat, plain
from polymodel.spec.faults import YamlNode

_KEYS = {
    "Storage": ("component", "tensors"),
    "Temporal": ("rank_variable", "tile_shape", "initial_tile_shape"),
    "Spatial": ("rank_variable", "tile_shape", "initial_tile_shape", "component", "name"),
    "Compute": ("einsum", "component"),
}
_BRANCHES = ("Nested", "Sequential", "Pipeline")
_IMPLIED = {
    "Reservation": "what a tile reserves follows from its storage",
    "Toll": "tolls are passed by what they keep",
    "ProcessingStage": "tolls are passed by what they keep",
}
_SAID_ELSEWHERE = ("persistent", "_must_keep_tensors", "_backing", "_lower")


Written = tuple[str, dict[str, object]]


def mapping_of(reading: Reading, node: YamlNode, order: Mapping[str, int]) -> list[Written]:
    """Return the nodes of the tree. `order`: positions of components in the machine, if one is given."""
    table = KeyedTable(reading, node, "mapping")
    table.take("version")
    result = list(_nodes(reading, table.items("nodes"), "mapping.nodes"))
    leave_rest(table)
    return _lowered(reading, node, _shared_above(reading, node, result), order, frozenset())


def _lowered(
    reading: Reading, at: YamlNode, nodes: list[Written], order: Mapping[str, int], above: frozenset[str]
) -> list[Written]:
    """Move storages below the spatial loops that replicate their memory. For tensors that no other memory
    holds, AccelForge writes them above these loops, where a node denotes all instances together."""
    result = list(nodes)
    held = set(above)
    for tag, fields in nodes:
        branches = fields.get("nodes")
        if isinstance(branches, list):
            fields["nodes"] = _lowered(reading, at, branches, order, frozenset(held))
        if tag != "Storage":
            continue
        name, tensors = str(fields.get("component")), {str(t) for t in _listed(fields.get("tensors"))}
        start = next(i for i, n in enumerate(result) if n[1] is fields)
        last = start
        for i in range(start + 1, len(result)):
            if result[i][0] not in ("Storage", "Spatial"):
                break
            over = order.get(str(result[i][1].get("component")), -1)
            if result[i][0] == "Spatial" and 0 <= over <= order.get(name, -1):
                last = i
        if last > start and not tensors & held:
            result.insert(last, result.pop(start))
            what = (
                f"{', '.join(sorted(tensors))} in {name} stands below the spatial loops that replicate {name}"
            )
            reading.note(at, what, "there the node means all instances together", "mapping")
        held |= tensors
    return result


def _listed(value: object) -> list[object]:
    return value if isinstance(value, list) else [value]


def _nodes(reading: Reading, nodes: Iterable[YamlNode], path: str) -> Iterable[tuple[str, dict[str, object]]]:
    for i, node in enumerate(nodes):
        table = KeyedTable(reading, node, f"{path}[{i}]")
        tag = node.tag
        if tag in _IMPLIED:
            reading.note(node, f"!{tag} is not written: {_IMPLIED[tag]}", "", table.path)
        elif tag in _BRANCHES:
            tag = _bound(reading, table, tag)
            inner = list(_nodes(reading, table.items("nodes"), table.below("nodes")))
            leave_rest(table)
            yield tag, {"nodes": inner}
        elif tag in _KEYS:
            fields: dict[str, object] = {}
            older = table.take("compute") if tag == "Compute" else None  # the unit, in older files
            if older is not None:
                fields["component"] = plain(older)
            for key in _KEYS[tag]:
                value = table.take(key)
                if value is not None:
                    fields[key] = plain(value)
            for key in _SAID_ELSEWHERE:
                table.take(key)
            leave_rest(table)
            yield tag, fields
        else:
            what = f"!{tag} is not a node of a mapping" if tag else "a node of a mapping has a tag"
            remedy = f"use !{', !'.join((*_KEYS, *_BRANCHES))}"
            reading.fault(node, what, remedy, table.path, code="wrong-type")


def _bound(reading: Reading, table: KeyedTable, tag: str) -> str:
    """Return the tag of a split whose branches are bound to units, `binding: [0, 1]`: branches of the same
    unit run one after the other."""
    binding = table.take("binding")
    if binding is None:
        return tag
    units = [n.scalar for n in flat(binding)]
    if len(units) > 1 and len(set(map(str, units))) == 1:
        what = "the branches of a !Pipeline that are bound to one unit are !Sequential: they take turns"
        reading.note(binding, what, "", table.below("binding"))
        return "Sequential"
    why = "here each branch of a pipeline has units of its own, and others wait for nothing"
    remedy = "write !Sequential where branches share a unit"
    reading.leave(binding, "binding", why, remedy, table.path, changes="latency")
    return tag


def _shared_above(reading: Reading, at: YamlNode, nodes: list[Written]) -> list[Written]:
    """Move storages of one tensor in one memory with which several branches of a split begin above the split.
    In AccelForge the branches exchange the tensor in that memory, which is one storage in polymodel."""
    result: list[Written] = []
    for tag, fields in nodes:
        branches = fields.get("nodes")
        if not isinstance(branches, list):
            result.append((tag, fields))
            continue
        if tag in ("Sequential", "Pipeline"):
            heads = [_head(b) for b in branches]
            every = [pair for head in heads for pair in dict.fromkeys(head)]
            twice = [p for p in dict.fromkeys(every) if every.count(p) > 1]
            for component in dict.fromkeys(c for c, _ in twice):
                tensors = [t for c, t in twice if c == component]
                what = f"{', '.join(tensors)} in {component} stands above the split, for all of its branches"
                reading.note(at, what, "there each branch has a node for what they hand over", "mapping")
                result.append(("Storage", {"component": component, "tensors": tensors}))
            branches = [_without(b, set(twice)) for b in branches]
        result.append((tag, {**fields, "nodes": _shared_above(reading, at, branches)}))
    return result


def _head(branch: Written) -> list[tuple[str, str]]:
    """Return the pairs (component, tensor) of the storages with which a branch begins."""
    tag, fields = branch
    inner = fields.get("nodes")
    result: list[tuple[str, str]] = []
    for kind, node in inner if tag == "Nested" and isinstance(inner, list) else [branch]:
        if kind != "Storage":
            break
        result += [(str(node.get("component")), str(t)) for t in _listed(node.get("tensors"))]
    return result


def _without(branch: Written, gone: set[tuple[str, str]]) -> Written:
    """Return the branch without those storages at its beginning that were moved above it."""
    tag, fields = branch
    inner = fields.get("nodes")
    if tag != "Nested" or not isinstance(inner, list):
        return branch
    result, heads = [], True
    for kind, node in inner:
        heads &= kind == "Storage"
        component = str(node.get("component"))
        kept = [t for t in _listed(node.get("tensors")) if (component, str(t)) not in gone]
        if not heads:
            result.append((kind, node))
        elif kept:
            result.append((kind, {**node, "tensors": kept}))
    return tag, {**fields, "nodes": result}
