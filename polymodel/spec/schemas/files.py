"""One schema for each kind of file; the kind follows from the section that a file must have."""

from __future__ import annotations

import json
from typing import Any

from polymodel.spec.document import SECTIONS
from polymodel.spec.energy import COLUMNS
from polymodel.spec.schemas.build import definitions
from polymodel.spec.schemas.teaal import teaal_parts
from polymodel.spec.schemas.texts import ROOT
from polymodel.spec.yaml_text import CURRENT

Json = dict[str, Any]
DIALECT = "http://json-schema.org/draft-07/schema#"
_REQUESTS = ("sweep", "explore", "codesign")
# Kind of file -> sections it may have besides those of its own; the first kind has all of them.
_BESIDE: dict[str, tuple[str, ...]] = {
    "spec": tuple(SECTIONS),
    "arch": (),
    "workload": ("renames",),
    "renames": (),
    "mapping": _REQUESTS,
    "sweep": _REQUESTS,
    "explore": _REQUESTS,
    "codesign": _REQUESTS,
    "symbols": _REQUESTS,
    "teaal": ("arch", *_REQUESTS),
}
KINDS = (*_BESIDE, "energy_table")
TITLES = {
    "spec": "A whole polymodel spec, or any part of one",
    "arch": "An architecture",
    "workload": "A workload",
    "renames": "Renames",
    "mapping": "A mapping (a LoopTree)",
    "sweep": "A sweep",
    "explore": "An exploration",
    "codesign": "A co-design",
    "symbols": "Values of symbols",
    "teaal": "A TeAAL spec",
    "energy_table": "A table of energies (CSV): the columns of one row",
}


def schema(kind: str = "spec") -> Json:
    """The schema of one kind of file (`KINDS`). KeyError if there is no such kind."""
    if kind == "energy_table":
        return _energy_table()
    sections = [s for s in (kind, *_BESIDE[kind]) if s in SECTIONS]
    properties: Json = {"schema_version": _version()}
    parts: dict[str, Json] = {}
    if kind == "teaal":
        own, parts = teaal_parts()
        properties |= own
    for name in dict.fromkeys(sections):
        root, found = definitions(SECTIONS[name])
        parts |= found
        properties[name] = {"description": ROOT[name], "allOf": [{"$ref": f"#/$defs/{root}"}]}
    properties["symbols"] = {
        "description": ROOT["symbols"],
        "type": ["object", "null"],
        "additionalProperties": {"type": ["number", "string", "null"]},
        "examples": [{"TM": 16, "TN": "2 * TM", "TK": None}],
    }
    required = {"required": ["einsum" if kind == "teaal" else kind]} if kind != "spec" else {}
    return {
        **_head(kind),
        "type": "object",
        "properties": properties,
        **required,
        "$defs": dict(sorted(parts.items())),
    }


def schema_text(kind: str) -> str:
    """The schema as the text of a file."""
    return json.dumps(schema(kind), indent=1, allow_nan=False) + "\n"


def _head(kind: str) -> Json:
    note = "Made by `polymodel schema`. A node has its tag (`!Storage {...}`) or the key `type: Storage`."
    return {"$schema": DIALECT, "title": TITLES[kind], "$comment": note}


def _version() -> Json:
    return {"description": ROOT["schema_version"], "const": CURRENT, "default": CURRENT}


def _energy_table() -> Json:
    texts = {
        "component": "Name of the component.",
        "quantity": "An action (joules per bit or per action; compute: per operation), "
        "`area` (square metres) or `leak_power` (watts).",
        "value": "A number or an expression.",
        "source": "Where the number was published.",
    }
    columns = {name: {"type": "string", "description": texts[name]} for name in (*COLUMNS, "source")}
    return {
        **_head("energy_table"),
        "type": "object",
        "properties": columns,
        "required": list(COLUMNS),
    }
