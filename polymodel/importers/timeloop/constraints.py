"""Constraints in a section of their own: what they say of data spaces holds as if it stood at the level."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from polymodel.importers.timeloop.parts import Held, Part, held_of
from polymodel.importers.timeloop.reading import Fields, Reading, name_and_count
from polymodel.spec.faults import suggestion
from polymodel.spec.source import Node

SECTIONS = ("constraints", "architecture_constraints")
_KINDS = ("dataspace", "datatype", "bypass")


def constrained(
    reading: Reading, sections: Mapping[str, Node], parts: Sequence[Part], tensors: Mapping[str, str]
) -> tuple[Part, ...]:
    """The parts with what `keep:` and `bypass:` of the sections add; the rest is for a search, and named."""
    found = {p.name: p for p in parts}
    for section in SECTIONS:
        node = sections.get(section)
        if node is None:
            continue
        items = node.elements
        if items is None:
            fields = Fields(reading, node, section)
            fields.ignore("version")
            items = fields.items("targets")
        for i, item in enumerate(items):
            target = Fields(reading, item, f"{section}[{i}]")
            part = found.get(name_and_count(target.text("target", "name"))[0])
            if target.text("type").lower() not in _KINDS or part is None:
                continue
            inner = target.fields("constraints") or target
            name_strange(reading, inner, tensors)
            held = held_of(inner, tensors)
            both = Held(part.held.keep | held.keep, part.held.bypass | held.bypass)
            found[part.name] = replace(part, held=both)
    return tuple(found.values())


def name_strange(reading: Reading, fields: Fields, tensors: Mapping[str, str]) -> None:
    """Leave out by name what is kept or bypassed, but is no data space of the problem."""
    for node in (*fields.items("keep", "keep_only"), *fields.items("bypass")):
        for word in str(node.scalar).replace(",", " ").split() if node.kind == "scalar" else ():
            if word not in tensors:
                remedy = suggestion(word, tensors, "data spaces") if tensors else "import the problem as well"
                reading.leave(node, f"{word} is no data space of a problem here", remedy, fields.path)
