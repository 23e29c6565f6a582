"""An accelerator of ZigZag's as one hierarchy: memories by how many units share them, outermost first."""

from __future__ import annotations

import re
from dataclasses import dataclass
from itertools import pairwise

from polymodel.importers.tables import KeyedTable, Reading
from polymodel.importers.zigzag.layers import ROLES
from polymodel.spec.faults import YamlNode

Written = tuple[str, dict[str, object]]
_IGNORED = ("latency", "auto_cost_extraction", "ports", "mem_type")
_ARRAYS = ("operational_array", "multipliers")


@dataclass(frozen=True)
class _Memory:
    """`alone`: dimensions of the array along which there is one for every unit."""

    name: str
    table: KeyedTable
    operands: tuple[str, ...]
    alone: frozenset[str]


def machine_of(reading: Reading, root: YamlNode, clock: float) -> list[Written]:
    """The nodes of `arch:`, outermost first."""
    top = KeyedTable(reading, root, "")
    top.take("name")
    array = next((t for t in map(top.table, _ARRAYS) if t is not None), None)
    if array is None:
        reading.fault(root, "the accelerator has no `operational_array:`", "add it: dimensions and sizes")
        return []
    names = [str(n.scalar) for n in array.items("dimensions")]
    sizes = [_number(reading, n, "operational_array.sizes") for n in array.items("sizes")]
    if len(names) != len(sizes):
        what = f"{len(names)} dimensions and {len(sizes)} sizes"
        reading.fault(array.node, what, "give each its size", array.path)
        return []
    memories = _memories(reading, top, frozenset(names))
    unit = _unit(reading, array, clock)
    for entry in top.rest:
        _left(reading, top, entry.key, entry.value)
    if len(reading.faults):
        return []
    found: list[Written] = []
    below: frozenset[str] = frozenset()
    fanouts = dict(zip(names, sizes, strict=True))
    for memory in memories:
        found += _containers([d for d in names if d in memory.alone - below], fanouts)
        below |= memory.alone
        found.append(_memory(reading, memory, clock))
    return [*found, *_containers([d for d in names if d not in below], fanouts), unit]


def _number(reading: Reading, node: YamlNode, path: str) -> float:
    value = node.scalar
    if isinstance(value, (int, float)) and not isinstance(value, bool) and 0 <= value < float("inf"):
        return value
    reading.fault(node, f"{value} is not a number from 0 on", "write e.g. 64", path)
    return 1


def _text(value: float) -> str:
    return str(int(value)) if value == int(value) else repr(value)


def _containers(dims: list[str], fanouts: dict[str, float]) -> list[Written]:
    if not dims:
        return []
    spatial = [{"name": d, "fanout": int(fanouts[d])} for d in dims]
    return [("Container", {"name": f"Array_{'_'.join(dims)}", "spatial": spatial})]


def _memories(reading: Reading, top: KeyedTable, dims: frozenset[str]) -> list[_Memory]:
    """Outermost first. The file lists them from the array on; what fewer units share stands further in."""
    table = top.table("memories")
    found: list[_Memory] = []
    for entry in (table.node.entries or ()) if table is not None else ():
        one = KeyedTable(reading, entry.value, f"memories.{entry.key}", entry.key)
        operands = tuple(str(n.scalar) for n in one.items("operands"))
        strange = [o for o in operands if o not in ROLES]
        if strange or not operands:
            what = f"{', '.join(strange) or 'no operand'} is held in {entry.key}"
            reading.fault(entry.value, what, f"operands: {', '.join(ROLES)}", one.path)
        served = frozenset(str(n.scalar) for n in one.items("served_dimensions"))
        if served - dims:
            what = f"{', '.join(sorted(served - dims))} is not a dimension of the array"
            reading.fault(entry.value, what, f"dimensions: {', '.join(sorted(dims))}", one.path)
        name = re.sub(r"\W+", "_", entry.key, flags=re.ASCII)
        found.append(_Memory(name if name[:1].isalpha() else f"M{name}", one, operands, dims - served))
    if table is None or not found:
        reading.fault(top.node, "the accelerator has no memory", "add `memories:`", "memories")
    found.reverse()
    found.sort(key=lambda m: len(m.alone))
    for outer, inner in pairwise(found):
        if not outer.alone <= inner.alone:
            here, there = (", ".join(sorted(m.alone)) for m in (outer, inner))
            what = f"{outer.name} has an instance along {here}, {inner.name} along {there}"
            remedy = "one hierarchy has memories along more and more dimensions; write it by hand"
            what += ": they do not form one hierarchy"
            reading.fault(inner.table.node, what, remedy, inner.table.path)
    return found


def _memory(reading: Reading, memory: _Memory, clock: float) -> Written:
    table = memory.table
    values = {k: _value(reading, table, k) for k in ("size", "r_bw", "w_bw", "r_cost", "w_cost")}
    ports = {k: _value(reading, table, k) for k in ("r_port", "w_port", "rw_port")}
    apart = bool(ports["r_port"] and ports["w_port"])
    if apart and ports["rw_port"]:
        node = table.take("rw_port") or table.node
        why = "a memory here has ports for reads and writes apart, or shared ones"
        remedy = "raise `throughput:` by hand"
        reading.leave(node, "rw_port", why, remedy, table.path, owner=memory.name, changes="latency")
    many = {"read": ports["r_port"], "write": ports["w_port"]} if apart else dict.fromkeys(
        ("read", "write"), max(ports.values(), default=1)
    )  # fmt: skip
    actions = []
    for name, letter in (("read", "r"), ("write", "w")):
        width, cost = values[f"{letter}_bw"], values[f"{letter}_cost"]
        action: dict[str, object] = {"name": name}
        if width:
            action |= {"energy": f"{_text(cost)}e-12 / {_text(width)}"}
            action |= {"throughput": f"{_text(width * max(many[name], 1))} * {_text(clock)}"}
        actions.append(action)
    for key in ("min_r_granularity", "min_w_granularity"):
        given = table.take(key)
        if given is not None:
            why = "an access takes its share of the energy of a full width"
            reading.leave(
                given, key, why, "write `bits_per_action:` of the action", table.path, owner=memory.name,
                changes="energy",
            )  # fmt: skip
    _rest(reading, table)
    held = " | ".join(ROLES[o] for o in memory.operands)
    fields: dict[str, object] = {"name": memory.name, "size": int(values["size"])}
    fields |= {"ports": "separate"} if apart else {}
    return "Memory", {**fields, "tensors": {"keep": held, "may_keep": held}, "actions": actions}


def _value(reading: Reading, table: KeyedTable, key: str) -> float:
    node = table.take(key)
    return 0 if node is None else _number(reading, node, f"{table.path}.{key}")


def _unit(reading: Reading, table: KeyedTable, clock: float) -> Written:
    table.take("input_precision")
    given = [table.take(k) for k in ("unit_energy", "multiplier_energy")]
    node = next((n for n in given if n is not None), None)
    action: dict[str, object] = {"name": "compute", "throughput": clock}
    if node is not None:
        action["energy"] = f"{_text(_number(reading, node, f'{table.path}.unit_energy'))}e-12"
    else:
        why = "the cost of a cell is a model of in-memory computing there"
        remedy = "give `unit_energy:`"
        reading.leave(table.node, "unit_energy", why, remedy, table.path, changes="energy", refused=True)
    _rest(reading, table)
    return "Compute", {"name": "MAC", "actions": [action]}


def _rest(reading: Reading, table: KeyedTable) -> None:
    for key in _IGNORED:
        table.take(key)
    for entry in table.rest:
        _left(reading, table, entry.key, entry.value)


def _left(reading: Reading, table: KeyedTable, key: str, node: YamlNode) -> None:
    """A key that is not read: areas have no unit there; of an unknown one, any count may differ."""
    if key in ("area", "unit_area", "multiplier_area"):
        if node.scalar:
            why, remedy = "it has no unit there", "write `area:` in square metres"
            reading.leave(node, key, why, remedy, table.path, owner=table.owner, changes="area")
        return
    why, remedy = "nothing here corresponds to it", "check that the counts do not need it"
    reading.leave(node, key, why, remedy, table.path, owner=table.owner, changes="counts", refused=True)
