"""JSON Schema of spec files, from the models that check them."""

from __future__ import annotations

from typing import Any

from polymodel.spec.document import SECTIONS

TAGS = "A node is written with a tag (`!Storage {...}`), or without one and with the key `type: Storage`."


def schema(kind: str = "spec") -> dict[str, Any]:
    """The schema of one section (`arch`, `workload`, `mapping`, `sweep`, ...) or of a whole `spec`."""
    head = {"$schema": "https://json-schema.org/draft/2020-12/schema", "$comment": TAGS}
    if kind != "spec":
        return {**head, **SECTIONS[kind].model_json_schema()}
    definitions: dict[str, Any] = {}
    properties: dict[str, Any] = {"schema_version": {"const": 1}}
    for name, model in SECTIONS.items():
        found = model.model_json_schema(ref_template="#/$defs/{model}")
        definitions.update(found.pop("$defs", {}))
        properties[name] = found
    properties["symbols"] = {
        "type": "object",
        "additionalProperties": {"type": ["number", "string", "null"]},
        "description": "Symbol -> number, expression over other symbols, or nothing yet.",
    }
    return {
        **head,
        "title": "polymodel spec",
        "type": "object",
        "properties": properties,
        "$defs": definitions,
    }
