"""docs/reference/files.md from the schemas: `python -m tests.editors.files_page` writes it anew."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from polymodel.spec.schemas import KINDS, schema

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs/reference/files.md"
INTRO = Path(__file__).with_name("files_intro.md")
SHOWN = {
    "arch": "Architecture",
    "workload": "Workload",
    "renames": "Renames",
    "mapping": "Mapping",
    "sweep": "Sweep",
    "explore": "Exploration",
    "codesign": "Co-design",
    "teaal": "TeAAL spec",
    "energy_table": "Table of energies (CSV)",
}
NODES = {"ComputeUnit": "!Compute (of an architecture)", "Compute": "!Compute (of a mapping)"}
TAGGED = ("Memory", "Toll", "Container", "Storage", "Temporal", "Spatial", "Nested", "Sequential", "Pipeline")
FREE = """`name`, `description` and `notes` at the top of a file are free, and keys that begin with `x-`:
nothing reads them. They are for remarks and for YAML anchors (`x-size: &size 64`, later `*size`). Any other
key that is not a section is a fault."""
Json = dict[str, Any]


def text() -> str:
    """The whole page."""
    parts = [INTRO.read_text(encoding="utf-8").rstrip(), ""]
    parts += ["## Keys of every file", "", *_table(_common())]
    parts += [FREE, ""]
    seen: set[str] = set()
    for kind, title in SHOWN.items():
        found = schema(kind)
        parts += [f"## {title}", ""]
        if kind == "energy_table":
            parts += _table(found)
            continue
        if kind == "teaal":
            sections = ("einsum", "mapping", "format", "architecture", "bindings", "binding")
            parts += _table({**found, "properties": {k: found["properties"][k] for k in sections}})
            for key in ("einsum", "mapping"):
                parts += [f"### `{key}:`", "", *_table(found["properties"][key])]
            spacetime = found["properties"]["mapping"]["properties"]["spacetime"]["additionalProperties"]
            parts += ["### An entry of `spacetime:`", "", *_table(spacetime)]
        else:
            parts += [found["properties"][kind]["description"], ""]
        for name in _reached(found, found["properties"][kind] if kind != "teaal" else found["$defs"]):
            if name in seen or (kind == "teaal" and not name.startswith("Teaal")):
                continue
            seen.add(name)
            parts += _definition(name, found["$defs"][name])
    return "\n".join(parts).rstrip() + "\n"


def _common() -> Json:
    found = schema("spec")
    return {"properties": {k: found["properties"][k] for k in ("schema_version", "symbols")}}


def _reached(found: Json, start: object) -> list[str]:
    """Definitions in the order in which they are met, from the outside in."""
    names: list[str] = list(start) if start is found["$defs"] else []
    waiting = [start]
    while waiting:
        for name in _references(waiting.pop(0)):
            if name not in names:
                names.append(name)
                waiting.append(found["$defs"][name])
    return names


def _references(part: object) -> list[str]:
    if isinstance(part, list):
        return [n for p in part for n in _references(p)]
    if not isinstance(part, dict):
        return []
    own = [part["$ref"].rsplit("/", 1)[1]] if isinstance(part.get("$ref"), str) else []
    return own + [n for key, p in part.items() if key != "$ref" for n in _references(p)]


def _definition(name: str, part: Json) -> list[str]:
    title = NODES.get(name) or (f"!{name}" if name in TAGGED else name.removeprefix("Teaal"))
    options = [o for o in part.get("anyOf", [part]) if "properties" in o]
    lines = [f"### `{title}`" if name in TAGGED or name in NODES else f"### {title}", ""]
    if part.get("description"):
        lines += [part["description"], ""]
    for option in options:
        lines += _table(option)
    return lines


def _table(part: Json) -> list[str]:
    """Key, what it takes, what it means."""
    needed = part.get("required", [])
    lines = ["| key | takes | meaning |", "|---|---|---|"]
    for key, value in part["properties"].items():
        if key == "type" and "const" in value:
            continue
        meaning = value.get("description", "")
        if value.get("examples"):
            meaning += f" E.g. {' or '.join(_code(e) for e in value['examples'])}."
        star = " (needed)" if key in needed else ""
        lines.append(f"| `{key}`{star} | {_takes(value)} | {_cell(meaning)} |")
    return [*lines, ""]


def _takes(value: Json) -> str:
    if "const" in value:
        return _code(value["const"])
    if "enum" in value:
        return ", ".join(_code(v) for v in value["enum"] if v is not None)
    if "anyOf" in value:
        return " or ".join(dict.fromkeys(_takes(v) for v in value["anyOf"] if v != {"type": "null"}))
    if "allOf" in value:
        return _takes(value["allOf"][0])
    if "$ref" in value:
        return _cell(value["$ref"].rsplit("/", 1)[1].removeprefix("Teaal"))
    kinds = value.get("type", [])
    kinds = [kinds] if isinstance(kinds, str) else kinds
    if {"number", "string"} <= set(kinds):
        return "number or expression"
    words = {
        "string": "text",
        "object": "mapping",
        "array": "list",
        "boolean": "true or false",
        "integer": "number",
    }
    return " or ".join(words.get(k, k) for k in kinds if k != "null") or "anything"


def _code(value: object) -> str:
    shown = value if isinstance(value, str) else json.dumps(value)
    return f"`{_cell(shown)}`"


def _cell(value: str) -> str:
    return value.replace("|", "\\|")


if __name__ == "__main__":
    assert set(SHOWN) | {"spec", "symbols"} == set(KINDS)
    PAGE.write_text(text(), encoding="utf-8")
