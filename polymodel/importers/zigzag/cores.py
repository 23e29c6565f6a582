"""Import a system of several cores, as in Stream: each core is on a branch below the memories that all share.

Cores of one file are instances of one core. What one core passes to another goes through a shared memory.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field

from polymodel.importers.tables import KeyedTable, Reading
from polymodel.importers.zigzag.machine import Written, machine_of, number_text
from polymodel.spec.faults import YamlNode

_STEERING = ("core_coordinates", "kernel_library", "type", "technology_node")
_NUMBERS = ("bandwidth", "unit_energy_cost")
MOST = 4096  # cores; a system has a few dozen


@dataclass
class _Core:
    """The cores of one file. `shared`: they hold data, and compute nothing."""

    title: str
    nodes: list[Written]
    shared: bool
    places: list[str] = field(default_factory=list)  # the system's identifier of each of them
    outside: bool = False  # whether one of them is the off-chip memory

    @property
    def count(self) -> int:
        return len(self.places)

    def parted(self) -> tuple[list[Written], list[Written]]:
        """Return the outermost memory with its adjacent tolls, and everything inside it."""
        first = next((i for i, (tag, _) in enumerate(self.nodes) if tag == "Memory"), len(self.nodes))
        rest = (i for i, (tag, _) in enumerate(self.nodes) if i > first and tag != "Toll")
        end = next(rest, len(self.nodes))
        return self.nodes[:end], self.nodes[end:]


def system_of(
    reading: Reading, root: YamlNode, core_file: Callable[[str, YamlNode], YamlNode | None], clock: float
) -> list[Written]:
    """Return the nodes of `arch:`. `core_file`: reads the file of a core, given its path in the system's
    file."""
    top = KeyedTable(reading, root, "")
    top.take("name")
    graph = top.table("bus" if "bus" in top else "graph")
    outside = {str(n.scalar) for t in (top, graph) if t is not None for n in t.items("offchip_core_id")}
    cores = _cores(reading, top, outside, core_file, clock)
    if len(reading.faults) or not cores:
        return []
    network = _network(reading, top, graph, clock)
    sharing = [_places(n) for n in top.items("core_memory_sharing")]
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
    if len(units) > 1 or units[0].count > 1:
        what = "what one core hands to another goes through the memories that all share, as off-chip data do"
        reading.note(root, what, "compare the links of the cores by hand", "cores")
    outer = [c for c in cores if c.shared and c.outside] or [c for c in cores if c.shared][:1]
    result = [node for core in outer for node in _named(core.title, core.nodes, "")]
    network.off = next((w for core in outer for w in _widths(core)), None)
    groups = _groups(reading, root, cores, outer, network, sharing)
    if groups is not None:
        return [*result, *groups]
    for core in (c for c in cores if c.shared and c not in outer):
        result += _named(core.title, core.nodes, "")
    entry_ = outer[0].places[0] if outer else ""
    for core in units:
        branch = "" if core is units[-1] else core.title
        link = network.way(entry_, core.places)
        result += [_fanout(core.title, core.count, link, branch), *_named(core.title, core.nodes, branch)]
    network.name_others(reading, root)
    return result


def _groups(
    reading: Reading,
    root: YamlNode,
    cores: Sequence[_Core],
    outer: Sequence[_Core],
    network: _Network,
    sharing: Sequence[list[str]],
) -> list[Written] | None:
    """Return several equal groups of cores, each below a memory of its own: one that the cores share, or that
    is on the way to them. None if there are no such groups, or if they are not equal."""
    file = {place: c for c in cores for place in c.places}
    heads = {p: group[0] for group in sharing for p in group if p in file and group[0] in file}
    if not heads and outer:
        heads = network.homes(outer[0].places[0], {p for c in cores if c.shared for p in c.places})
    members: dict[str, list[str]] = {}
    for place, core in file.items():
        if core not in outer and (not core.shared or place in heads.values()):
            members.setdefault(heads.get(place, ""), []).append(place)
    if not heads or "" in members:
        if heads or sharing:
            what = (
                "cores that share memories with others stand beside cores that do not: each has its own here"
            )
            reading.leave(root, "core_memory_sharing", what, "write the hierarchy by hand", changes="counts",
                          refused=bool(sharing))  # fmt: skip
        return None
    kinds = {h: (file[h].title, sorted(file[p].title for p in ps if p != h)) for h, ps in members.items()}
    first, *others = members
    if any(kinds[h] != kinds[first] for h in others):
        what = "the cores around memories of their own are not alike"
        reading.leave(root, "cores", what, "write the hierarchy by hand", changes="counts")
        return None
    head = file[first]
    memory, rest = head.parted()
    entry = outer[0].places[0] if outer else ""
    link = network.way(entry, list(members))
    title = head.title if head.shared else f"{head.title}_shared"
    result = [_fanout(title, len(members), link, ""), *_named(title, memory, "")]
    units = list(dict.fromkeys(file[p].title for p in members[first] if not file[p].shared))
    for name in units:
        here = [p for p in members[first] if file[p].title == name]
        branch = "" if name == units[-1] else name
        nodes = rest if name == head.title else file[here[0]].nodes
        if sharing and name != head.title:
            nodes = file[here[0]].parted()[1]
        inner = None if sharing else network.way(first, here)
        result += [_fanout(name, len(here), inner, branch), *_named(name, nodes, branch)]
    network.name_others(reading, root)
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
    beside = top.take("offchip_core")
    if beside is not None:
        listed.append((OFF_CHIP, beside))
        outside.add(OFF_CHIP)
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
        if path not in found:
            root = core_file(path, node)
            if root is None:
                continue
            title = _title(root, path, titles)
            titles.add(title)
            shared = _holds_only(root)
            found[path] = _Core(title, machine_of(reading, root, clock, shared), shared)
        found[path].places.append(identity)
        found[path].outside |= identity in outside
    return list(found.values())


def _title(root: YamlNode, path: str, taken: set[str]) -> str:
    name = root.entry("name")
    text = str(name.value.scalar) if name is not None else path.rsplit("/", 1)[-1].split(".")[0]
    tidy = "".join(c if c.isascii() and c.isalnum() else "_" for c in text).strip("_") or "core"
    tidy = tidy if tidy[0].isalpha() else f"core_{tidy}"
    return tidy if tidy not in taken else f"{tidy}_{len(taken)}"


def _holds_only(root: YamlNode) -> bool:
    """Return whether a core has no units: its array has no size, or it is a tile that does not compute."""
    kind = root.entry("type")
    if root.entry("memory") is not None and kind is not None and str(kind.value.scalar).endswith("compute"):
        return False
    array = next((e.value for e in root.entries or () if e.key in ("operational_array", "multipliers")), None)
    sizes = array.entry("sizes") if array is not None else None
    return array is None or (sizes is not None and any(n.scalar == 0 for n in sizes.value.elements or ()))


OFF_CHIP = "off chip"  # the identifier of the core that has a key of its own


def _places(node: YamlNode) -> list[str]:
    """Return the cores that an entry names: `[0, 1]`, or `0, 1`."""
    if node.elements is not None:
        return [str(n.scalar) for n in node.elements]
    return [word.strip() for word in str(node.scalar).split(",")]


@dataclass(frozen=True)
class _Wire:
    """A link between cores, or a bus: `rate` in bits per cycle, `price` in pJ per cycle of use; None if not
    given."""

    cores: frozenset[str]
    rate: float | None
    price: float | None
    bus: bool


@dataclass
class _Network:
    """The connections between cores. `every`: a bus that connects all of them, if the file specifies one."""

    clock: float
    wires: list[_Wire] = field(default_factory=list)
    every: _Wire | None = None
    unknown: bool = False  # whether some requested link has no counterpart
    listed: YamlNode | None = None
    off: float | None = None  # bits per cycle of the off-chip memory, if a bus has no rate of its own

    def near(self, place: str) -> list[str]:
        return [p for w in self.wires if place in w.cores for p in sorted(w.cores - {place})]

    def homes(self, entry: str, shared: set[str]) -> dict[str, str]:
        """Return, for each core, the last memory on the shortest path to it, other than the one where data
        enter."""
        result: dict[str, str] = {}
        seen, front = {entry: ""}, [entry]
        while front:
            after: list[str] = []
            for place in front:
                for p in self.near(place):
                    if p not in seen:
                        seen[p] = p if p in shared else seen[place]
                        after.append(p)
            front = after
        result.update({p: home for p, home in seen.items() if home})
        return result

    def way(self, entry: str, places: Sequence[str]) -> dict[str, object] | None:
        """Return the link of a fanout over cores; None if the connections to them have no counterpart."""
        if self.every is not None:
            return self.link("bus", [self.every])
        if not self.wires or not places:
            return None
        wanted = {entry, *places}
        for w in self.wires:
            if w.bus and wanted <= w.cores:
                return self.link("bus", [w])
        direct = [w for p in places for w in self.wires if w.cores == {entry, p}]
        if len(direct) == len(places):
            return self.link("switch" if len(places) > 1 else "mesh", direct)
        chain, last, left = [], entry, set(places)
        while left:
            step = [(w, p) for p in sorted(left) for w in self.wires if w.cores == {last, p}]
            if len(step) != 1:
                self.unknown = True
                return None
            chain.append(step[0][0])
            last = step[0][1]
            left.remove(last)
        return self.link("mesh", chain)

    def link(self, topology: str, wires: Sequence[_Wire]) -> dict[str, object] | None:
        """Return a link in the spec's form; None if it takes neither time nor energy."""
        if len({(w.rate, w.price) for w in wires}) > 1:
            self.unknown = True
            return None
        result: dict[str, object] = {"topology": topology}
        rate, price = wires[0].rate, wires[0].price
        width = rate or self.off
        if price and width:
            result["energy_per_bit_hop"] = f"{number_text(price)}e-12 / {number_text(width)}"
        self.unknown |= bool(price and not width)
        if rate:
            result["throughput"] = f"{number_text(rate)} * {number_text(self.clock)}"
        return result if len(result) > 1 else None

    def name_others(self, reading: Reading, root: YamlNode) -> None:
        if self.unknown:
            why = "neither a bus, nor a chain, nor a link of its own leads to each core, or widths differ"
            remedy = "write `link:` of the fanouts of the cores"
            reading.leave(self.listed or root, "core_connectivity", why, remedy, changes="energy and latency")


def _network(reading: Reading, top: KeyedTable, graph: KeyedTable | None, clock: float) -> _Network:
    """Return the links that the file lists, or the bus or the mesh that it names."""
    tables = [t for t in (graph, top) if t is not None]
    numbers = {k: next((v for t in tables if (v := t.take(k)) is not None), None) for k in _NUMBERS}
    amounts = {k: _amount(n) for k, n in numbers.items() if n is not None}
    table = numbers["bandwidth"]
    if table is not None and table.entries is not None:
        why = "rates of single memories are those of their ports"
        reading.leave(table, "bandwidth", why, "lower `throughput:` of the memory", changes="latency")
    rate, price = amounts.get("bandwidth"), amounts.get("unit_energy_cost")
    result = _Network(clock)
    listed = top.take("core_connectivity")
    if listed is not None:
        result.listed = listed
        for node in listed.elements or ():
            one = KeyedTable(reading, node, "core_connectivity") if node.entries is not None else None
            joined = node if one is None else one.take("cores") or node
            own = (rate, price)
            if one is not None:
                given = [one.take(k) for k in _NUMBERS]
                own = (_said(given[0], rate), _said(given[1], price))
            bus = one is not None and one.text("type") == "bus"
            result.wires.append(_Wire(frozenset(_places(joined)), own[0], own[1], bus))
        off = [w for w in result.wires if OFF_CHIP in w.cores]
        if "offchip_core" in top and not off:  # a bus of its own leads to each core
            result.every = _Wire(frozenset(), None, price, True)
    elif graph is not None or rate or price:
        kind = graph.text("type") if graph is not None else ""
        mesh = kind == "2d_mesh"  # its links join cores; a bus leads from the memory off chip to all of them
        result.every = _Wire(frozenset(), None if mesh else rate, price, True)
        if kind not in ("", "bus", "2d_mesh"):
            why, remedy = f"there is no {kind} here", "write `link:` of the fanouts of the cores"
            reading.leave(top.node, "graph", why, remedy, changes="energy and latency")
    if graph is not None:
        for key in ("nb_rows", "nb_cols"):
            graph.take(key)
        for entry in graph.rest:
            if not entry.key.endswith("_core_id"):
                why = "a bus here has no such key"
                reading.leave(entry.value, entry.key, why, "remove it", "graph", changes="latency")
    return result


def _widths(core: _Core) -> Iterator[float]:
    """Yield the bits per cycle of the actions of the memories of a core."""
    for _, fields in core.nodes:
        actions = fields.get("actions")
        for action in actions if isinstance(actions, list) else ():
            yield float(str(action.get("throughput", 0)).split(" * ")[0])


def _said(node: YamlNode | None, otherwise: float | None) -> float | None:
    return otherwise if node is None else _amount(node)


def _amount(node: YamlNode) -> float | None:
    value = node.scalar
    right = isinstance(value, (int, float)) and not isinstance(value, bool) and 0 <= value < 1e30
    return float(value) if right and isinstance(value, (int, float)) else None


def _fanout(title: str, count: int, link: dict[str, object] | None, branch: str) -> Written:
    dimension: dict[str, object] = {"name": "core", "fanout": count}
    if link is not None:
        dimension["link"] = dict(link)
    fields: dict[str, object] = {"name": title, "spatial": [dimension]}
    return "Container", {**fields, **({"branch": branch} if branch else {})}


def _named(title: str, nodes: Sequence[Written], branch: str) -> Iterator[Written]:
    """Yield the components of a core, with its name as prefix, on its branch."""
    for tag, fields in nodes:
        on = {"branch": branch} if branch else {}
        yield tag, {**fields, "name": f"{title}_{fields['name']}", **on}
