"""A system of several cores, as Stream has them: each core on a branch below the memories that all share.

Cores of one file are instances of one core. What a core hands to another goes through a shared memory.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from polymodel.importers.tables import KeyedTable, Reading
from polymodel.importers.zigzag.machine import Written, machine_of, number_text
from polymodel.spec.faults import YamlNode

_STEERING = ("core_coordinates", "kernel_library", "type")
_NUMBERS = ("bandwidth", "unit_energy_cost")
MOST = 4096  # cores; a system has some tens


@dataclass
class _Core:
    """The cores of one file. `shared`: they hold data, and compute nothing."""

    title: str
    nodes: list[Written]
    shared: bool
    count: int = 1
    outside: bool = False  # whether one of them is the memory off chip


def system_of(
    reading: Reading, root: YamlNode, core_file: Callable[[str, YamlNode], YamlNode | None], clock: float
) -> list[Written]:
    """The nodes of `arch:`. `core_file`: what the file of a core holds, by its path in the system's file."""
    top = KeyedTable(reading, root, "")
    top.take("name")
    graph = top.table("graph")
    outside = {str(n.scalar) for t in (top, graph) if t is not None for n in t.items("offchip_core_id")}
    cores = _cores(reading, top, outside, core_file, clock)
    if len(reading.faults) or not cores:
        return []
    link = _link(reading, top, graph, clock)
    for key in _STEERING:
        given = top.take(key)
        if given is not None:
            reading.leave(given, key, "it limits a search", "say what to search in `explore:`")
    for entry in top.rest:
        why, remedy = "nothing here corresponds to it", "check that the counts do not need it"
        reading.leave(entry.value, entry.key, why, remedy, changes="counts", refused=True)
    units = [c for c in cores if not c.shared]
    if not units:
        message = "no core of the system computes"
        reading.fault(
            root, message, "import the system that has these cores", "cores", code="missing-component"
        )
        return []
    result: list[Written] = []
    for core in sorted((c for c in cores if c.shared), key=lambda c: not c.outside):
        result += _named(core, "")
    for core in units:
        branch = "" if core is units[-1] else core.title
        result += [_fanout(core, link, branch), *_named(core, branch)]
    if len(units) > 1 or units[0].count > 1:
        what = "what one core hands to another goes through the memories that all share, as off-chip data do"
        reading.note(root, what, "compare the links of the cores by hand", "cores")
    return result


def _cores(
    reading: Reading,
    top: KeyedTable,
    outside: set[str],
    core_file: Callable[[str, YamlNode], YamlNode | None],
    clock: float,
) -> list[_Core]:
    given = top.take("cores")
    listed: list[tuple[str, YamlNode]] = []
    if given is not None and given.entries is not None:
        listed = [(e.key, e.value) for e in given.entries]
    elif given is not None:
        listed = [(str(i), n) for i, n in enumerate(given.elements or ())]
    if not 0 < len(listed) <= MOST or any(not isinstance(n.scalar, str) for _, n in listed):
        message, remedy = (
            "cores are a list of files",
            "name 1 to 4096 files: cores: [core.yaml, offchip.yaml]",
        )
        reading.fault(given or top.node, message, remedy, "cores", code="wrong-type")
        return []
    found: dict[str, _Core] = {}
    titles: set[str] = set()
    for identity, node in listed:
        path = str(node.scalar)
        if path in found:
            found[path].count += 1
        else:
            root = core_file(path, node)
            if root is None:
                continue
            title = _title(root, path, titles)
            titles.add(title)
            shared = _holds_only(root)
            found[path] = _Core(title, machine_of(reading, root, clock, shared), shared)
        found[path].outside |= identity in outside
    return list(found.values())


def _title(root: YamlNode, path: str, taken: set[str]) -> str:
    name = root.entry("name")
    text = str(name.value.scalar) if name is not None else path.rsplit("/", 1)[-1].split(".")[0]
    tidy = "".join(c if c.isascii() and c.isalnum() else "_" for c in text).strip("_") or "core"
    tidy = tidy if tidy[0].isalpha() else f"core_{tidy}"
    return tidy if tidy not in taken else f"{tidy}_{len(taken)}"


def _holds_only(root: YamlNode) -> bool:
    """Whether a core has no units: its array has no size."""
    array = next((e.value for e in root.entries or () if e.key in ("operational_array", "multipliers")), None)
    sizes = array.entry("sizes") if array is not None else None
    return array is None or (sizes is not None and any(n.scalar == 0 for n in sizes.value.elements or ()))


def _link(
    reading: Reading, top: KeyedTable, graph: KeyedTable | None, clock: float
) -> dict[str, object] | None:
    """A bus between the shared memories and the cores; other connections are named."""
    tables = [t for t in (graph, top) if t is not None]
    numbers = {k: next((v for t in tables if (v := t.take(k)) is not None), None) for k in _NUMBERS}
    links = top.take("core_connectivity")
    kind = graph.text("type") if graph is not None else ""
    other = links or (graph.node if graph is not None and kind != "bus" else None)
    if other is not None:
        why = "here a bus, or nothing that takes time, leads from the shared memories to the cores"
        remedy = "write `link:` of the fanouts of the cores"
        reading.leave(other, "core_connectivity", why, remedy, changes="energy and latency")
    if graph is not None:
        for entry in graph.rest:
            why = "a bus here has no such key"
            reading.leave(entry.value, entry.key, why, "remove it", "graph", changes="latency")
    values = {k: n.scalar for k, n in numbers.items() if n is not None}
    amounts = {k: float(v) for k, v in values.items() if isinstance(v, (int, float)) and 0 <= v < 1e30}
    if other is not None or not amounts:
        return None
    result: dict[str, object] = {"topology": "bus"}
    if amounts.get("unit_energy_cost"):
        result["energy_per_bit_hop"] = amounts["unit_energy_cost"] * 1e-12
    if amounts.get("bandwidth"):
        result["throughput"] = f"{number_text(amounts['bandwidth'])} * {number_text(clock)}"
    return result if len(result) > 1 else None


def _fanout(core: _Core, link: dict[str, object] | None, branch: str) -> Written:
    dimension: dict[str, object] = {"name": "core", "fanout": core.count}
    if link is not None:
        dimension["link"] = dict(link)
    fields: dict[str, object] = {"name": core.title, "spatial": [dimension]}
    return "Container", {**fields, **({"branch": branch} if branch else {})}


def _named(core: _Core, branch: str) -> Iterator[Written]:
    """The components of a core, called after it, on its branch."""
    for tag, fields in core.nodes:
        on = {"branch": branch} if branch else {}
        yield tag, {**fields, "name": f"{core.title}_{fields['name']}", **on}
