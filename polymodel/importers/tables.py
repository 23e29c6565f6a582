"""Read tables of other tools' YAML key by key; keys that were not read are reported by name."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from polymodel.importers.imported import Findings, LeftOut
from polymodel.spec.faults import YamlEntry, YamlNode

NO_MERGE = "nomerge"  # the tag of a mapping that `<<<` leaves as it is


class Reading(Findings):
    """The findings while tables are read key by key."""

    def leave(
        self,
        node: YamlNode,
        key: str,
        why: str,
        remedy: str,
        path: str = "",
        *,
        owner: str = "",
        changes: str = "",
        refused: bool = False,
    ) -> None:
        """Record a key that has no counterpart. `changes`: figures that differ. `refused`: the import
        stops."""
        message = f"`{key}` is not converted: {why}"
        below, place = f"{path}.{key}" if path else key, node.place()
        more = {"key": key, "owner": owner, "why": why, "changes": changes}
        self.leave_out(LeftOut(message, remedy, below, place, **more, refused=refused))


class KeyedTable:
    """A mapping of the file. `path`: its location. `owner`: the component or Einsum that it belongs to."""

    def __init__(self, reading: Reading, node: YamlNode, path: str, owner: str = "") -> None:
        self.reading = reading
        self.node = node
        self.path = path
        self.owner = owner
        self.seen: set[str] = set()
        if node.entries is None and not (node.kind == "scalar" and node.scalar is None):
            message = f"a mapping is expected, here is a {node.kind}"
            reading.fault(node, message, "write `key: value`", path, code="wrong-type")

    def __contains__(self, key: str) -> bool:
        return self.node.entry(key) is not None

    def take(self, key: str) -> YamlNode | None:
        """Return the value of a key, and mark the key as read."""
        self.seen.add(key)
        entry = self.node.entry(key)
        return entry.value if entry is not None else None

    def text(self, key: str) -> str:
        """Return the value of a key as text; empty if it is absent."""
        node = self.take(key)
        return "" if node is None or node.scalar is None else str(node.scalar)

    def table(self, key: str) -> KeyedTable | None:
        """Return the mapping below a key."""
        node = self.take(key)
        return None if node is None else KeyedTable(self.reading, node, self.below(key), self.owner)

    def items(self, key: str) -> tuple[YamlNode, ...]:
        """Return the elements of a list, with nested lists flattened; a single value is a list of one."""
        node = self.take(key)
        return () if node is None else tuple(flat(node))

    def below(self, key: str) -> str:
        return f"{self.path}.{key}" if self.path else key

    @property
    def rest(self) -> tuple[YamlEntry, ...]:
        """Return keys that were not read."""
        return tuple(e for e in self.node.entries or () if e.key not in self.seen)


def lifted(node: YamlNode, wrappers: tuple[str, ...], keys: tuple[str, ...]) -> YamlNode:
    """Return a mapping of an older file in the current form: `keys` are moved out of the mappings that held
    them, some of them with a leading underscore."""
    own = {e.key for e in node.entries or ()}
    inner: list[YamlEntry] = []
    outer: list[YamlEntry] = []
    for entry in node.entries or ():
        if entry.key not in wrappers or entry.value.entries is None:
            outer.append(entry)
            continue
        moved = [e for e in entry.value.entries if e.key.removeprefix("_") in keys and e.key not in own]
        rest = tuple(e for e in entry.value.entries if e not in moved)
        inner += [replace(e, key=e.key.removeprefix("_")) for e in moved]
        if rest:
            outer.append(replace(entry, value=replace(entry.value, entries=rest)))
    return node if not inner else replace(node, entries=(*outer, *inner))


def flat(node: YamlNode) -> Iterable[YamlNode]:
    """Return the elements of a list with nested lists, such as included ones, flattened."""
    if node.elements is None:
        if node.kind != "scalar" or node.scalar is not None:
            yield node
        return
    for element in node.elements:
        if element.elements is not None:
            yield from flat(element)
        else:
            yield element


def plain(node: YamlNode) -> object:
    """Return the value as plain data, with tags in the form (tag, fields)."""
    if node.entries is not None:
        fields = {e.key: plain(e.value) for e in node.entries}
        return (node.tag, fields) if node.tag and node.tag != NO_MERGE else fields
    if node.elements is not None:
        return [plain(e) for e in node.elements]
    return node.scalar
