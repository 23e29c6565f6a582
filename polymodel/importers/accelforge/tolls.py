"""Convert AccelForge's tolls to one for each direction and each width of values, since a toll has one price
in polymodel."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from polymodel.importers.tables import KeyedTable, Reading
from polymodel.spec.faults import YamlEntry, YamlNode

if TYPE_CHECKING:
    from polymodel.importers.accelforge.components import Written, WrittenComponent


def keep_of(node: YamlNode) -> str:
    """Return the set of tensors that a component keeps, as it is written."""
    tensors = node.entry("tensors")
    keep = tensors.value.entry("keep") if tensors is not None else None
    return "All" if keep is None or keep.value.scalar is None else str(keep.value.scalar)


def narrowed(part: WrittenComponent, tensors: Sequence[str], number: int) -> WrittenComponent:
    """Return the toll for some of its tensors alone. The first one keeps name and fanout, others are
    numbered."""
    node = part.table.node
    text = f"({keep_of(node)}) & ({' | '.join(tensors)})"
    place = YamlNode(node.source, node.line, node.column)
    keep = YamlEntry("keep", node.line, node.column, node.source, replace(place, scalar=text))
    kept = YamlEntry("tensors", node.line, node.column, node.source, replace(place, entries=(keep,)))
    gone = ("tensors", "spatial") if number else ("tensors",)
    entries = (*(e for e in node.entries or () if e.key not in gone), kept)
    table = KeyedTable(part.table.reading, replace(node, entries=entries), part.table.path)
    table.owner = f"{part.name}_{number}" if number else part.name
    return replace(part, table=table)


def directions_of(reading: Reading, part: WrittenComponent) -> list[tuple[str, str]]:
    """Yield pairs of a direction and the set of tensors that pass in it (empty: all). Down is `read`, up is
    `write`."""
    node = part.table.take("direction")
    if node is None:
        return [("up_and_down", "")]
    given = [(e.key, e.value) for e in node.entries] if node.entries is not None else [("", node)]
    result = []
    for text, value in given:
        word = str(value.scalar)
        if word not in ("up", "down", "up_and_down"):
            what = f"{word[:40]} is not a direction"
            reading.fault(value, what, "up, down or up_and_down", part.table.path, code="unknown-choice")
        result.append((word, text))
    return result


def tolls_of(
    reading: Reading,
    part: WrittenComponent,
    fields: dict[str, object],
    actions: dict[str, dict[str, object]],
    directions: list[tuple[str, str]],
) -> Iterator[Written]:
    price = actions.get("read") or next(iter(actions.values()), None)
    tensors = fields.get("tensors")
    keep = str(tensors.get("keep", "All")) if isinstance(tensors, dict) else "All"
    several = len(directions) > 1
    if several:
        what = f"{part.name} has several directions: it is one toll for each"
        reading.note(part.table.node, what, "latencies of the two are not added", part.table.path)
    for direction, text in directions:
        one = dict(fields)
        if several:
            one["name"] = part.name if direction == directions[0][0] else f"{part.name}_{direction}"
            one["tensors"] = {"keep": f"({keep}) & ({text})"}
            if one["name"] != part.name:
                one.pop("spatial", None)
        names = {"up": ("write",), "down": ("read",)}.get(direction, ("read", "write"))
        if price is not None:
            one["actions"] = [{**price, "name": name} for name in names]
        yield "Toll", one
