"""Convert ZigZag's accelerator into one hierarchy: memories by how many units share them, outermost first."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from polymodel.importers.tables import KeyedTable, Reading
from polymodel.importers.zigzag.layers import ROLES
from polymodel.spec.faults import YamlNode

Written = tuple[str, dict[str, object]]
_IGNORED = ("latency", "mem_type", "systolic_dimensions")
_ARRAYS = ("operational_array", "multipliers")
# Transfers of an operand that read a memory or write it, to and from the memories below and above.
_TRANSFERS = {"read": ("tl", "th"), "write": ("fh", "fl")}
_TYPES = {"read": ("read",), "write": ("write",), "read_write": ("read", "write")}


@dataclass(frozen=True)
class _Memory:
    """`alone`: dimensions of the array along which each unit has its own; `line`: its position in the file,
    starting at the array. `copies`: how many memories represent one of ZigZag's; `together`: how many of
    ZigZag's are one memory."""

    name: str
    table: KeyedTable
    operands: tuple[str, ...]
    alone: frozenset[str]
    line: int = 0
    copies: int = 1
    together: int = 1


def machine_of(reading: Reading, root: YamlNode, clock: float, shared: bool = False) -> list[Written]:
    """Return the nodes of `arch:`, outermost first. `shared`: of a core without units, only its memories."""
    top = KeyedTable(reading, root, "")
    top.take("name")
    array = next((t for t in map(top.table, _ARRAYS) if t is not None), None)
    if array is None and ("memory" in top or (shared and "memories" not in top)):
        return _tile(reading, top, clock, shared)
    if array is None and shared:
        return [part for m in _memories(reading, top, {}) for part in _memory(reading, m, clock)]
    if array is None:
        message = "the accelerator has no `operational_array:`"
        reading.fault(root, message, "add it: dimensions and sizes", code="missing-component")
        return []
    names = [str(n.scalar) for n in array.items("dimensions")]
    sizes = [_number(reading, n, "operational_array.sizes") for n in array.items("sizes")]
    if len(names) != len(sizes):
        what = f"{len(names)} dimensions and {len(sizes)} sizes"
        reading.fault(array.node, what, "give each its size", array.path, code="wrong-count")
        return []
    if shared:
        sizes = [1.0] * len(sizes)
    if 0 in sizes:
        what = "it has no units: Stream's cores that only hold data are memories which others share"
        reading.fault(
            array.node,
            what,
            "write its memory above the others of a core",
            array.path,
            code="missing-component",
        )
    fanouts = dict(zip(names, sizes, strict=True))
    memories = _memories(reading, top, fanouts)
    unit = _unit(reading, array, clock)
    share = top.take("utilization")
    if share is not None:
        why, remedy = "here units wait for what limits them", "lower `throughput:` of the compute unit"
        reading.leave(share, "utilization", why, remedy, changes="latency")
    precision = top.take("operand_precision")
    if precision is not None:
        what = "`operand_precision` is not read: widths are those of the layers"
        reading.note(precision, what, "write `bits_per_value:` of the workload", "operand_precision")
    for key in ("dataflows", "type", "core_type", "operator_types"):
        given = top.take(key)
        if given is not None:
            why, remedy = "it limits a search", "say what to search in `explore:` (docs/howto/explore.md)"
            reading.leave(given, key, why, remedy)
    for entry in top.rest:
        _left(reading, top, entry.key, entry.value)
    if len(reading.faults):
        return []
    if shared:
        return [part for m in memories for part in _memory(reading, m, clock)]
    result: list[Written] = []
    below: frozenset[str] = frozenset()
    for memory in memories:
        result += _containers([d for d in names if d in memory.alone - below], fanouts)
        below |= memory.alone
        result += _memory(reading, memory, clock)
    return [*result, *_containers([d for d in names if d not in below], fanouts), unit]


def _tile(reading: Reading, top: KeyedTable, clock: float, shared: bool) -> list[Written]:
    """Return a tile of an array of processors: `memory:` with a capacity and a rate, or only the `dma:` of a
    shim.

    Behind a shim is the off-chip memory. Its kernels specify what a processor does in a cycle.
    """
    table, ways = top.table("memory"), top.table("dma")
    kind = top.text("type")
    if table is None and ways is None:
        message, remedy = "the accelerator has no memory", "add `memories:`"
        reading.fault(top.node, message, remedy, "memories", code="missing-component")
        return []
    fields: dict[str, object] = {"name": "memory"}
    rates = {"read": 0.0, "write": 0.0}
    if ways is not None:
        bits = _value(reading, ways, "channel_bits") or 32
        rates = {"read": _value(reading, ways, "mm2s") * bits, "write": _value(reading, ways, "s2mm") * bits}
        _rest(reading, ways)
    if table is not None:
        fields["size"] = int(_value(reading, table, "capacity"))
        rates = dict.fromkeys(rates, _value(reading, table, "bandwidth_max"))
        table.take("bandwidth_min")
        _rest(reading, table)
    top.take("max_object_fifo_depth")
    what = "accesses and operations of a tile cost nothing: its file has no energies"
    reading.note(top.node, what, "write `energy:` of the actions", "memory")
    for entry in top.rest:
        _left(reading, top, entry.key, entry.value)
    actions: list[dict[str, object]] = [{"name": n} for n in rates]
    for action, rate in zip(actions, rates.values(), strict=True):
        if rate:
            action["throughput"] = f"{number_text(rate)} * {number_text(clock)}"
    held = " | ".join(ROLES.values())
    fields |= {"tensors": {"keep": held, "may_keep": held}, "actions": actions}
    if shared:
        return [("Memory", fields)]
    if not kind.endswith("compute"):
        message, remedy = (
            f"a tile of type {kind or 'none'} has no processor",
            "import the system of which it is part",
        )
        reading.fault(top.node, message, remedy, "type", code="missing-component")
        return []
    why = "what a processor does in a cycle is said by its kernels: one operation is taken"
    remedy = "raise `throughput:` of the compute unit"
    reading.leave(top.node, "type", why, remedy, kind, changes="latency")
    return [
        ("Memory", fields),
        ("Compute", {"name": "MAC", "actions": [{"name": "compute", "throughput": clock}]}),
    ]


def _number(reading: Reading, node: YamlNode, path: str) -> float:
    value = node.scalar
    if isinstance(value, (int, float)) and not isinstance(value, bool) and 0 <= value < float("inf"):
        return value
    reading.fault(node, f"{value} is not a number from 0 on", "write e.g. 64", path, code="out-of-range")
    return 1


def number_text(value: float) -> str:
    """Return a number as text of the spec, whole numbers without a point."""
    return str(int(value)) if value == int(value) else repr(value)


def _containers(dims: list[str], fanouts: dict[str, float]) -> list[Written]:
    if not dims:
        return []
    spatial = [{"name": d, "fanout": int(fanouts[d])} for d in dims]
    return [("Container", {"name": f"Array_{'_'.join(dims)}", "spatial": spatial})]


def _memories(reading: Reading, top: KeyedTable, fanouts: dict[str, float]) -> list[_Memory]:
    """Return the memories outermost first. The file lists them from the array on; memories that fewer units
    share are further inside."""
    dims = frozenset(fanouts)
    table = top.table("memories")
    result: list[_Memory] = []
    for entry in (table.node.entries or ()) if table is not None else ():
        one = KeyedTable(reading, entry.value, f"memories.{entry.key}", entry.key)
        operands = tuple(str(n.scalar) for n in one.items("operands"))
        strange = [o for o in operands if o not in ROLES]
        if strange or not operands:
            what = f"{', '.join(strange) or 'no operand'} is held in {entry.key}"
            reading.fault(entry.value, what, f"operands: {', '.join(ROLES)}", one.path, code="unknown-name")
        served = frozenset(str(n.scalar) for n in one.items("served_dimensions"))
        if served - dims:
            what = f"{', '.join(sorted(served - dims))} is not a dimension of the array"
            reading.fault(
                entry.value, what, f"dimensions: {', '.join(sorted(dims))}", one.path, code="unknown-name"
            )
        name = re.sub(r"\W+", "_", entry.key, flags=re.ASCII)
        title = name if name[:1].isalpha() else f"M{name}"
        result.append(_Memory(title, one, operands, dims - served, len(result)))
    if table is None or not result:
        message = "the accelerator has no memory"
        reading.fault(top.node, message, "add `memories:`", "memories", code="missing-component")
    result.reverse()
    result.sort(key=lambda m: len(m.alone))
    return _nested(reading, result, fanouts)


def _nested(reading: Reading, memories: Sequence[_Memory], fanouts: dict[str, float]) -> list[_Memory]:
    """Return the memories along more and more dimensions.

    A memory that serves a dimension along which an outer memory has instances is placed above that dimension,
    and represents all of its instances together.
    """
    result: list[_Memory] = []
    for memory in memories:
        outer = [
            i for i, m in enumerate(result) if m.line > memory.line and {*m.operands} & {*memory.operands}
        ]
        inner = [
            i for i, m in enumerate(result) if m.line < memory.line and {*m.operands} & {*memory.operands}
        ]
        apart = [i for i, m in enumerate(result) if not m.alone <= memory.alone]
        first, last = max(outer, default=-1) + 1, min([*inner, *apart], default=len(result))
        if first > last:
            result.append(_copied(reading, memory, result[-1], fanouts))
        elif last == len(result):
            result.append(memory)
        else:
            reach = (result[last - 1].alone if last else frozenset()) | (memory.alone & result[last].alone)
            own = sorted(memory.alone - reach)
            table, along = memory.table, ", ".join(own)
            why = (
                f"it serves dimensions along which {result[last].name} has instances: it stands above them,"
                f" all {memory.name} along {along or 'none'} together"
            )
            remedy = f"let loops along {along or 'these'} index what it holds: then counts are those there"
            reading.leave(
                table.node, "served_dimensions", why, remedy, table.path, owner=memory.name,
                changes="accesses of values that several instances hold",
            )  # fmt: skip
            together = math.prod(int(fanouts[d]) for d in own)
            result.insert(last, replace(memory, alone=reach, together=max(together, 1)))
    return result


def _copied(reading: Reading, memory: _Memory, outer: _Memory, fanouts: dict[str, float]) -> _Memory:
    """Return a memory that cannot be placed above the dimensions that it serves: one for each instance of the
    enclosing memory, with the energy of an access divided among them."""
    shared = sorted(outer.alone - memory.alone)
    why = (
        f"one {memory.name} serves {', '.join(shared)}, along which {outer.name} has instances: they do not"
        f" form one hierarchy, and each of these has its own {memory.name} here"
    )
    remedy = "write it by hand, or allow it: energies are those there where the array is full"
    table = memory.table
    reading.leave(
        table.node, "served_dimensions", why, remedy, table.path, owner=memory.name,
        changes="accesses of that memory", refused=True,
    )  # fmt: skip
    copies = math.prod(int(fanouts[d]) for d in shared)
    return replace(memory, alone=outer.alone | memory.alone, copies=max(copies, 1))


@dataclass(frozen=True)
class _Ports:
    """For reads and for writes: the bits of one access of the widest port, and the bits that all ports move
    in a cycle. `apart`: reads and writes have separate ports. `narrow`: (operand, transfer) -> bits of an
    access, if these are fewer."""

    access: dict[str, float]
    cycle: dict[str, float]
    apart: bool
    narrow: dict[tuple[str, str], float] = field(default_factory=dict)


def _memory(reading: Reading, memory: _Memory, clock: float) -> list[Written]:
    """Return the memory, between tolls if some of its ports are narrower than others."""
    table = memory.table
    values = {k: _value(reading, table, k) for k in ("size", "r_cost", "w_cost")}
    entry = table.node.entry("ports")
    listed = entry is not None and any(e.entry("bandwidth_max") for e in entry.value.elements or ())
    ports = _listed_ports(reading, memory) if listed else _counted_ports(reading, memory)
    actions = []
    for name in ("read", "write"):
        width, cost = ports.access[name], values[f"{name[0]}_cost"]
        if not width:
            what, remedy = f"{memory.name} has no bandwidth of {name}s", "add `ports:` with `bandwidth_max:`"
            reading.fault(table.node, what, remedy, table.path, code="no-counterpart")
            continue
        energy = f"{number_text(cost)}e-12 / {number_text(width * memory.copies)}"
        throughput = f"{number_text(ports.cycle[name] * memory.together)} * {number_text(clock)}"
        actions.append({"name": name, "energy": energy, "throughput": throughput})
    given = table.take("auto_cost_extraction")
    if given is not None and given.scalar is True:
        why, remedy = "the costs are those of an estimator then", "write them as `r_cost:` and `w_cost:`"
        reading.leave(
            given, "auto_cost_extraction", why, remedy, table.path, owner=memory.name, changes="energy",
            refused=True,
        )  # fmt: skip
    for key in ("min_r_granularity", "min_w_granularity"):
        given = table.take(key)
        if given is not None:
            _coarse(reading, memory, given, key)
    size = int(values["size"]) // _doubled(reading, memory) * memory.together
    _rest(reading, table)
    held = " | ".join(ROLES[o] for o in memory.operands)
    fields: dict[str, object] = {"name": memory.name, "size": size}
    fields |= {"ports": "separate"} if ports.apart else {}
    part = "Memory", {**fields, "tensors": {"keep": held, "may_keep": held}, "actions": actions}
    if not ports.narrow:
        return [part]
    what = f"{memory.name} has ports of several widths: tolls beside it have what the narrow ones cost more"
    reading.note(table.node, what, "an access of each costs the same there", table.path)
    above, below = (_tolls(memory, ports, values, side) for side in _SIDES)
    return [*above, part, *below]


# Transfers on the outer and on the inner side of a memory, each with the action whose cost it has: first
# downwards, then upwards.
_SIDES = {"above": (("fh", "write"), ("th", "read")), "below": (("tl", "read"), ("fl", "write"))}


def _tolls(memory: _Memory, ports: _Ports, values: Mapping[str, float], side: str) -> list[Written]:
    """Return the additional cost of accesses over narrow ports on one side of a memory, compared with its
    widest port."""
    prices: dict[tuple[str, ...], list[str]] = {}
    for operand in memory.operands:
        found = []
        for transfer, action in _SIDES[side]:
            cost, width = values[f"{action[0]}_cost"], ports.narrow.get((operand, transfer))
            wide = number_text(ports.access[action] * memory.copies)
            narrow = "" if width is None else number_text(width * memory.copies)
            found.append(
                f"{number_text(cost)}e-12 / {narrow} - {number_text(cost)}e-12 / {wide}" if narrow else "0"
            )
        if set(found) != {"0"}:
            prices.setdefault(tuple(found), []).append(ROLES[operand])
    result: list[Written] = []
    for down, up in prices:
        name = f"{memory.name}_ports_{side}{f'_{len(result)}' if result else ''}"
        actions = [{"name": "read", "energy": down}, {"name": "write", "energy": up}]
        keep = " | ".join(prices[down, up])
        result.append(("Toll", {"name": name, "tensors": {"keep": keep}, "actions": actions}))
    return result


def _doubled(reading: Reading, memory: _Memory) -> int:
    """Return 2 if each tile takes its space twice, so that the next one can be fetched."""
    given = memory.table.take("double_buffering_support")
    if given is not None and given.scalar is True:
        why, remedy = "transfers overlap computation here in every memory", "none is needed for counts"
        reading.leave(
            given, "double_buffering_support", why, remedy, memory.table.path, owner=memory.name,
            changes="latency",
        )  # fmt: skip
    given = memory.table.take("force_double_buffering")
    if given is None or given.scalar is not True:
        return 1
    why = "half of the memory is there for tiles, there a tensor that is held whole takes its room once"
    remedy = "raise `size:` where a tensor is held whole"
    reading.leave(
        given, "force_double_buffering", why, remedy, memory.table.path, owner=memory.name, changes="capacity"
    )
    return 2


def _counted_ports(reading: Reading, memory: _Memory) -> _Ports:
    """Return the ports of older files: one width for reads and one for writes, and numbers of ports."""
    table = memory.table
    table.take("ports")
    access = {n: _value(reading, table, f"{n[0]}_bw") for n in ("read", "write")}
    ports = {k: _value(reading, table, k) for k in ("r_port", "w_port", "rw_port")}
    apart = bool(ports["r_port"] and ports["w_port"])
    if apart and ports["rw_port"]:
        _mixed(reading, memory, table.take("rw_port") or table.node, "rw_port")
    shared = max(ports.values(), default=1)
    many = {"read": ports["r_port"], "write": ports["w_port"]} if apart else {"read": shared, "write": shared}
    return _Ports(access, {n: access[n] * max(many[n], 1) for n in access}, apart)


def _listed_ports(reading: Reading, memory: _Memory) -> _Ports:
    """Return ports listed with their width and the transfers that they serve. A cost is for an access of this
    width."""
    table = memory.table
    whole = table.take("ports") or table.node
    widths: dict[str, dict[tuple[str, str], float]] = {"read": {}, "write": {}}
    cycle, number = {"read": 0.0, "write": 0.0}, {"read": 0, "write": 0}
    kinds: set[str] = set()
    for i, node in enumerate(whole.elements or ()):
        port = KeyedTable(reading, node, f"{table.path}.ports[{i}]", memory.name)
        port.take("name")
        kind = port.text("type")
        if kind not in _TYPES:
            what = f"{kind or 'nothing'} is not a type of a port"
            reading.fault(node, what, f"one of {', '.join(_TYPES)}", port.path, code="unknown-choice")
            continue
        kinds.add(kind)
        width = _value(reading, port, "bandwidth_max")
        least = port.take("bandwidth_min")
        if i == 0 and least is not None:
            _coarse(reading, memory, least, "bandwidth_min")
        words = [w.strip() for n in port.items("allocation") for w in str(n.scalar).split(",")]
        pairs = list(zip(words[::2], words[1::2], strict=False))  # `- I1, tl` a line, or all in one list
        for action in _TYPES[kind]:
            served = [(o, t) for o, t in pairs if t in _TRANSFERS[action]]
            if served:
                widths[action] |= dict.fromkeys(served, width)
                cycle[action] += width
                number[action] += 1
        for entry in port.rest:
            _left(reading, port, entry.key, entry.value)
    if kinds >= {"read_write"} and len(kinds) > 1:
        _mixed(reading, memory, whole, "ports")
    if max(number.values()) > 1:
        why, remedy = "ports serve transfers of their own there, here all share them", "lower `throughput:`"
        reading.leave(whole, "ports", why, remedy, table.path, owner=memory.name, changes="latency")
    access = {n: max(w.values(), default=0.0) for n, w in widths.items()}
    narrow = {served: w for n, found in widths.items() for served, w in found.items() if 0 < w < access[n]}
    return _Ports(access, cycle, "read_write" not in kinds, narrow)


def _mixed(reading: Reading, memory: _Memory, node: YamlNode, key: str) -> None:
    why = "a memory here has ports for reads and writes apart, or shared ones"
    remedy = "raise `throughput:` by hand"
    reading.leave(node, key, why, remedy, memory.table.path, owner=memory.name, changes="latency")


def _coarse(reading: Reading, memory: _Memory, node: YamlNode, key: str) -> None:
    why = "an access takes its share of the energy of a full width"
    remedy = "write `bits_per_action:` of the action"
    reading.leave(node, key, why, remedy, memory.table.path, owner=memory.name, changes="energy")


def _value(reading: Reading, table: KeyedTable, key: str) -> float:
    node = table.take(key)
    return 0 if node is None else _number(reading, node, f"{table.path}.{key}")


def _unit(reading: Reading, table: KeyedTable, clock: float) -> Written:
    table.take("input_precision")
    given = [table.take(k) for k in ("unit_energy", "multiplier_energy")]
    node = next((n for n in given if n is not None), None)
    action: dict[str, object] = {"name": "compute", "throughput": clock}
    if node is not None:
        action["energy"] = f"{number_text(_number(reading, node, f'{table.path}.unit_energy'))}e-12"
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


_ANALOG = (
    "the price of a cell that computes is not known here",
    "write the array as in docs/howto/analog.md",
)
_WHY: dict[str, tuple[str, str]] = {
    **dict.fromkeys(("is_imc", "imc_type", "bit_serial_precision", "adc_resolution"), _ANALOG),
    "shared_memory_group_id": (
        "which cores share a memory is read of a system alone",
        "say it in the system's file: `core_memory_sharing:`",
    ),
}


def _left(reading: Reading, table: KeyedTable, key: str, node: YamlNode) -> None:
    """Report a key that is not read: areas have no unit in ZigZag; for an unknown key, any count may
    differ."""
    if key in ("area", "unit_area", "multiplier_area"):
        if node.scalar:
            why, remedy = "it has no unit there", "write `area:` in square metres"
            reading.leave(node, key, why, remedy, table.path, owner=table.owner, changes="area")
        return
    why, remedy = _WHY.get(key, ("nothing here corresponds to it", "check that the counts do not need it"))
    reading.leave(node, key, why, remedy, table.path, owner=table.owner, changes="counts", refused=True)
