"""Convert `arch:` of AccelForge: nodes keep the order of the file, and constraints go to `explore:`."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from polymodel.importers.accelforge.components import ActionPrices, WrittenComponent, component_of
from polymodel.importers.accelforge.einsums import Einsums
from polymodel.importers.accelforge.latency import LARGEST
from polymodel.importers.accelforge.older import as_now, own_variables
from polymodel.importers.accelforge.unsupported_keys import leave_rest
from polymodel.importers.accelforge.values import NoValue, Scope
from polymodel.importers.tables import KeyedTable, Reading
from polymodel.spec.faults import YamlEntry, YamlNode

TAGS = ("Memory", "Toll", "Container", "Compute")
_FANOUT = ("Fanout", "Container")
_OTHERS = re.compile(r"~\s*(\w+)\.tensors")  # a rule for tensors that another component does not hold
_GROUPS = ("Hierarchical", "Hierarchy", "Fork")
# AccelForge's networks: the topologies by which their hops are counted.
_HOPS = ("hop", "hops")  # the second in older files
_TOPOLOGIES = {"": "line", "mesh": "line", "all_to_all": "all_to_all"}


@dataclass
class _GroupFacts:
    """Information from groups on the components inside: components whose fanouts are positions in an array,
    the networks that start there, the components in line within the array, and the branch of each component,
    named after the first compute unit of its fork."""

    instances: list[str] = field(default_factory=list)
    placed: list[str] = field(default_factory=list)
    in_line: set[str] = field(default_factory=set)
    branches: dict[str, str] = field(default_factory=dict)


@dataclass
class ArchSections:
    """The sections `arch:` and `explore:` as plain data."""

    nodes: list[tuple[str, dict[str, object]]] = field(default_factory=list)
    explore: dict[str, object] = field(default_factory=dict)


def arch_of(
    reading: Reading, node: YamlNode, scope: Scope, einsums: Einsums, sparse: Mapping[str, Sequence[YamlNode]]
) -> ArchSections:
    """Return the machine. `einsums`: the Einsums for which sets and widths are evaluated. `sparse`: what
    another section specifies for components."""
    table = KeyedTable(reading, node, "arch")
    variables = table.take("variables")
    inner = scope.inside({e.key: raw(e.value) for e in (variables.entries if variables else None) or ()})
    result = ArchSections()
    found = _GroupFacts()
    nodes = list(_flat(reading, table.items("nodes"), "arch.nodes", found))
    inner = Scope(inner.variables, inner.view, _fanouts(nodes, inner))
    kept = {n: k for t in nodes for n, k in [(_text(t, "name"), _keep_text(t))] if n}
    above: list[str] = []
    pending: list[KeyedTable] = []
    covering: object = None  # the fanout that a network links, up to the next memory or unit
    for given in nodes:
        if given.node.tag == "Network":
            pending.append(given)
            if given.node.entry("spatial") is None:
                continue
            given = _own_fanout(given)
        together = inner.fanouts.get(f"{given.owner}.get_fanout", 1) if given.owner in found.instances else 1
        said = tuple(sparse.get(given.owner, ()))
        own = inner.inside(own_variables(given.node))
        part = WrittenComponent(given, own, einsums, kept, tuple(above), together, said)
        for tag, fields in component_of(reading, part, result.explore):
            if pending and "spatial" in fields:
                network, spatial = pending.pop(), fields["spatial"]
                fields["spatial"] = _linked(reading, network, spatial, inner, network.owner in found.placed)
                covering = fields["spatial"]
            elif covering and "spatial" in fields:
                fields["spatial"] = _linked_alike(covering, fields["spatial"])
            covering = covering if tag == "Container" else None
            branch = found.branches.get(given.owner, "")
            if not branch and tag == "Compute" and "spatial" in fields and given is not nodes[-1]:
                branch = given.owner  # in AccelForge its fanout replicates only itself
            if branch:
                fields["branch"] = branch
            result.nodes.append((tag, fields))
        if given.node.tag == "Memory":
            above.append(_text(given, "name"))
    for given in pending:
        why, remedy = "no fanout follows that it could link", "write `link:` of a fanout dimension"
        reading.leave(given.node, "Network", why, remedy, given.path, changes="energy and latency")
    leave_rest(table)
    _backed(reading, node, result)
    return result


def _backed(reading: Reading, node: YamlNode, found: ArchSections) -> None:
    """Adapt memories that keep tensors which another memory does not hold. AccelForge evaluates what that
    memory holds in the mapping, polymodel what its rule allows. Therefore these memories may be bypassed by
    tensors that the other one may hold, and intermediates may be exchanged in them."""
    rules = {str(f["name"]): t for _, f in found.nodes if isinstance(t := f.get("tensors"), dict)}
    asked: list[str] = []
    for name, tensors in rules.items():
        outer = _OTHERS.fullmatch(str(tensors.get("keep", "")).strip())
        held = rules.get(outer[1], {}) if outer is not None else {}
        if held.get("may_keep") == "All":
            what = f"{name} need not keep what passes it by: intermediates are handed on there or further out"
            reading.note(node, what, "", "arch")
            del tensors["keep"]
            asked.append(name)
    if asked:
        found.explore["exchange"] = asked


def raw(node: YamlNode) -> object:
    """Return a variable as it is written."""
    return node.scalar if node.kind == "scalar" else node.plain()


def _flat(reading: Reading, nodes: Iterable[YamlNode], path: str, found: _GroupFacts) -> Iterable[KeyedTable]:
    """Yield the components in order; groups yield their content, and `found` records what is needed about
    it."""
    for i, node in enumerate(nodes):
        table = KeyedTable(reading, as_now(node), f"{path}[{i}]")
        table.owner = _text(table, "name")
        if node.tag in _GROUPS:
            table.take("name")
            inner = list(_flat(reading, table.items("nodes"), table.below("nodes"), found))
            if node.tag == "Fork":
                yield from _fork(reading, table, inner, found)
                continue
            if node.entry("spatial") is not None:
                table.owner = table.owner or "Hierarchy"
                yield _own_fanout(table)
            leave_rest(table)
            found.in_line |= {t.owner for t in inner}
            yield from inner
        elif node.tag == "Array":
            inner = list(_flat(reading, table.items("nodes"), table.below("nodes"), found))
            yield from _array(reading, table, inner, found)
        elif node.tag == "Network" and node.entry("nodes") is not None:
            inner = list(_flat(reading, table.items("nodes"), table.below("nodes"), found))
            yield from _around(reading, table, inner, found)
        elif node.tag in (*TAGS, *_FANOUT, "Network"):
            yield table
        else:
            what = f"!{node.tag} is not a component" if node.tag else "a component has a tag"
            remedy = "use !Memory, !Toll, !Container or !Compute"
            reading.fault(node, what, remedy, table.path, code="wrong-type")


def _fork(
    reading: Reading, fork: KeyedTable, inner: Sequence[KeyedTable], found: _GroupFacts
) -> Iterable[KeyedTable]:
    """Yield the components of a fork, on a branch of their own. A branch on which nothing executes serves no
    Einsum, but leaks where its components do."""
    inside = {t.owner for t in inner if t.owner in found.branches}  # of forks in this one
    units = [t.owner for t in inner if t.node.tag == "Compute"]
    units.sort(key=lambda name: name in inside)
    if not units:
        why, remedy = "nothing executes on it, so that no tensor enters it", "give it a !Compute"
        reading.leave(fork.node, "Fork", why, remedy, fork.path, changes="leakage and area")
        return ()
    for key in ("forked_power_gateable", "non_forked_power_gateable"):
        gated = fork.take(key)
        if gated is not None and gated.scalar in (True, "True"):
            why, remedy = "here everything leaks for as long as anything executes", "write less `leak_power:`"
            reading.leave(gated, key, why, remedy, fork.path, changes="leakage")
    leave_rest(fork)
    begun = False  # a fork without components of this one before it is beside it
    for one in inner:
        if one.owner not in inside:
            found.branches[one.owner], begun = units[0], True
        elif begun:
            found.branches[one.owner] = f"{units[0]}/{found.branches[one.owner]}"
    return inner


def _array(
    reading: Reading, array: KeyedTable, inner: Iterable[KeyedTable], found: _GroupFacts
) -> Iterable[KeyedTable]:
    """Yield the memories of an array above its fanout, and the network between. Several instances of a memory
    at different positions of the array hold parts of the same tiles, and count as one memory."""
    inner = list(inner)
    networks = [t for t in inner if t.node.tag == "Network"]
    yield from _places(reading, array, [t for t in inner if t.node.tag != "Network"], found)
    if found.instances:
        found.placed += [n.owner for n in networks]
    yield from networks
    entries = tuple(e for e in array.node.entries or () if e.key != "nodes")
    yield _renamed(array, replace(array.node, tag="Container", entries=entries))


def _places(
    reading: Reading, array: KeyedTable, inner: Iterable[KeyedTable], found: _GroupFacts
) -> Iterable[KeyedTable]:
    """Yield the components of an array; instances at several positions become one memory."""
    for table in inner:
        if table.node.tag in ("Memory", "Toll") and table.node.entry("spatial") is not None:
            found.instances.append(table.owner)
            what = f"the instances of {table.owner} in array {array.owner} are one memory together"
            why = (
                "sizes, throughputs, leakage and areas are added up; hops do not ask which one data come from"
            )
            reading.note(table.node, what, why, table.path)
        yield table


def _around(
    reading: Reading, network: KeyedTable, inner: Sequence[KeyedTable], found: _GroupFacts
) -> Iterable[KeyedTable]:
    """Yield the components that a network contains in older files. The components from the first fanout on
    are reached over its links; memories before it are located at its positions. A fanout of a component in
    line also replicates what follows it in that line."""
    first = next((i for i, t in enumerate(inner) if _replicates(t, found)), len(inner))
    gone = ("nodes", "shape") if first == len(inner) else ("nodes", "spatial", "shape")
    own = replace(network.node, entries=tuple(e for e in network.node.entries or () if e.key not in gone))
    yield from _places(reading, network, inner[:first], found)
    if found.instances:
        found.placed.append(network.owner)
    yield _renamed(network, own)
    yield from inner[first:]


def _replicates(table: KeyedTable, found: _GroupFacts) -> bool:
    """Return whether a component in an array also replicates what follows it."""
    if table.node.tag in (*_FANOUT, "Network"):
        return True
    return table.owner in found.in_line and table.node.entry("spatial") is not None


def _renamed(table: KeyedTable, node: YamlNode) -> KeyedTable:
    result = KeyedTable(table.reading, node, table.path, table.owner)
    result.owner = table.owner
    return result


def _own_fanout(network: KeyedTable) -> KeyedTable:
    """Return the fanout that a network or hierarchy itself has in older files, as a container after it."""
    network.seen.add("spatial")
    entries = tuple(e for e in network.node.entries or () if e.key in ("name", "spatial"))
    if network.node.entry("name") is None:
        at = network.node
        name = YamlNode(at.source, at.line, at.column, scalar=network.owner)
        entries = (*entries, YamlEntry("name", at.line, at.column, at.source, name))
    return _renamed(network, replace(network.node, tag="Container", entries=entries))


def _text(table: KeyedTable, key: str) -> str:
    entry = table.node.entry(key)
    return "" if entry is None or entry.value.scalar is None else str(entry.value.scalar)


def _keep_text(table: KeyedTable) -> str:
    tensors = table.node.entry("tensors")
    keep = tensors.value.entry("keep") if tensors is not None else None
    return str(keep.value.scalar) if keep is not None and keep.value.scalar is not None else ""


def _fanouts(nodes: Iterable[KeyedTable], scope: Scope) -> Mapping[str, int]:
    """Return the fanouts of components by name, and those of a compute-in-memory array, which are the
    dimensions with ARRAY in their names."""
    result = {"total": 1, "reuse_input": 1, "reuse_output": 1, "reuse_weight": 1}
    for table in nodes:
        spatial = table.node.entry("spatial")
        for item in (spatial.value.elements if spatial is not None else None) or ():
            keys: dict[str, YamlEntry] = {e.key: e for e in item.entries or ()}
            try:
                fanout = scope.number(keys["fanout"].value.scalar) if "fanout" in keys else 1
            except NoValue:
                continue
            if not 1 <= fanout <= LARGEST:
                continue
            own = f"{table.owner}.get_fanout"
            result[own] = result.get(own, 1) * int(fanout)
            if "ARRAY" not in str(keys["name"].value.scalar if "name" in keys else ""):
                continue
            reused = " ".join(str(keys[k].value.scalar) for k in ("reuse", "may_reuse") if k in keys)
            result["total"] *= int(fanout)
            for role in ("input", "output", "weight"):
                if re.search(rf"\b{role}\b", reused):
                    result[f"reuse_{role}"] *= int(fanout)
    return result


def _note_hops(reading: Reading, network: KeyedTable, link: Mapping[str, object], placed: bool) -> None:
    """Note how counts of a network differ. `placed`: it starts at memories at several positions."""
    remedy = "compare the hops in `energy` of a report, or write `link:` yourself"
    latency = network.take("total_latency")
    changes = ""
    if placed and link["topology"] == "line":
        changes, why = "energy and latency", "its hops start at the edge, there at the places of memories"
    elif "throughput" in link or latency is not None:
        changes, why = "latency", "what enters a row limits it, there what goes on from its first instance"
    elif "hop_latency" in link and link["topology"] == "line":
        changes, why = "latency", "its longest route has no hop to the first instance, there it has one"
    if changes:
        reading.leave(
            network.node, "Network", why, remedy, network.path, owner=network.owner, changes=changes
        )
    else:
        reading.note(network.node, f"{network.owner} is the link of the fanout behind it", "", network.path)


def _linked_alike(covering: object, spatial: object) -> object:
    """Return a fanout after another one that a network links, with the same link."""
    link = covering[0].get("link") if isinstance(covering, list) and covering else None
    return [{**one, "link": link} for one in spatial] if link and isinstance(spatial, list) else spatial


def _linked(reading: Reading, network: KeyedTable, spatial: object, scope: Scope, placed: bool) -> object:
    """Return the fanout after a network, linked by its hops."""
    network.take("name")
    kind = network.text("topology")
    if kind not in _TOPOLOGIES:
        why, remedy = f"there is no topology {kind} here", "it is read as a line; write `link:` yourself"
        reading.leave(
            network.node, "topology", why, remedy, network.path, owner=network.owner,
            changes="energy and latency",
        )  # fmt: skip
    link: dict[str, object] = {"topology": _TOPOLOGIES.get(kind, "line")}
    for node in network.items("actions"):
        action = KeyedTable(reading, node, f"{network.path}.actions")
        name = action.text("name")
        if name not in _HOPS:
            why, remedy = "a link here counts hops alone", "write its price as that of `hop`, or as a toll's"
            reading.leave(
                node, name, why, remedy, action.path, owner=network.owner, changes="energy and latency"
            )
            continue
        prices = ActionPrices.of(reading, action, scope.number, hop=True)
        if prices.delay:
            link["hop_latency"] = prices.delay
        if prices.energy:
            link["energy_per_bit_hop"] = prices.energy / (prices.bits or 1)
        if prices.throughput is not None and prices.throughput != float("inf"):
            link["throughput"] = prices.throughput * (prices.bits or 1)
    _note_hops(reading, network, link, placed)
    for key in ("area", "leak_power"):
        given = network.take(key)
        if given is not None and given.scalar not in (0, None):
            why, remedy = "a link here has none", f"write `{key}:` of the container behind it"
            reading.leave(
                given, key, why, remedy, network.path, owner=network.owner, changes="leakage and area"
            )
    for key in ("component_class", "tensors", "actions"):
        network.take(key)
    leave_rest(network)
    return [{**one, "link": link} for one in spatial] if isinstance(spatial, list) else spatial
