"""YAML text: plain data as block lists of tagged nodes, a whole spec as one document, files as read."""

from __future__ import annotations

from collections.abc import Mapping

import yaml

from polymodel.spec.base import SchemaObject
from polymodel.spec.faults import Joined, Locator, Without
from polymodel.spec.numbers import Value
from polymodel.spec.source import NodeLocator

Scalar = str | int | float | bool | None
_BLOCK = ("nodes", "einsums")


def dump(document: dict[str, object], width: int | None = None) -> str:
    """YAML of nested dictionaries, lists and `(tag, fields)` pairs.

    `width`: what would make a line longer than this is written over several; None: it never is.
    """
    lines: list[str] = []
    for key, value in document.items():
        lines += _entry(key, value, 0, width)
    return "\n".join(lines) + "\n"


def _entry(key: str, value: object, indent: int, width: int | None) -> list[str]:
    pad = " " * indent
    if isinstance(value, dict) and any(k in _BLOCK for k in value):
        lines = [f"{pad}{key}:"]
        for k, v in value.items():
            lines += _entry(k, v, indent + 2, width)
        return lines
    if key in _BLOCK and isinstance(value, list) and value:
        return [f"{pad}{key}:", *(line for item in value for line in _item(item, indent, width))]
    line = f"{pad}{key}: {_flow(value)}"
    if width is None or len(line) <= width or not value:
        return [line]
    if isinstance(value, dict):
        return [
            f"{pad}{key}:",
            *(x for k, v in value.items() for x in _entry(_flow(k), v, indent + 2, width)),
        ]
    if isinstance(value, list):
        return [f"{pad}{key}:", *(line for item in value for line in _item(item, indent, width))]
    return [line]


def _item(item: object, indent: int, width: int | None) -> list[str]:
    pad = " " * indent
    if isinstance(item, tuple):
        tag, fields = item
        line = f"{pad}- !{tag} {_flow(fields)}"
        if any(k in _BLOCK for k in fields) or (width is not None and len(line) > width):
            lines = [f"{pad}- !{tag}"]
            for k, v in fields.items():
                lines += _entry(k, v, indent + 2, width)
            return lines
        return [line]
    line = f"{pad}- {_flow(item)}"
    if isinstance(item, dict) and item and width is not None and len(line) > width:
        inner = [x for k, v in item.items() for x in _entry(_flow(k), v, indent + 2, width)]
        return [f"{pad}- {inner[0].lstrip()}", *inner[1:]]
    return [line]


def _flow(value: object, inside: bool = False) -> str:
    """One line. `inside` brackets, texts with commas or brackets of their own have to be quoted."""
    if isinstance(value, dict):
        return "{" + ", ".join(f"{_flow(k, True)}: {_flow(v, True)}" for k, v in value.items()) + "}"
    if isinstance(value, (list, tuple)):
        return "[" + ", ".join(_flow(v, True) for v in value) + "]"
    if inside:
        return _written([value]).removeprefix("[").removesuffix("]")
    return _written(value).removesuffix("\n...").strip()


def _written(value: object) -> str:
    return yaml.safe_dump(value, default_flow_style=True, width=10**9, allow_unicode=True).strip()


class _Dumper(yaml.SafeDumper):
    """Without anchors: equal lists in two places are written twice."""

    def ignore_aliases(self, data: object) -> bool:
        return True


def spec_yaml(
    sections: Mapping[str, SchemaObject], symbols: Mapping[str, Value | str | None] | None = None
) -> str:
    """One document that loads to the same spec: symbols with their values, every section as it was read.

    Templates are filled in and files are joined; comments are gone, tags are `type:` keys.
    """
    lines: dict[str, object] = {"schema_version": 1}
    if symbols:
        lines["symbols"] = dict(symbols)
    for name, section in sections.items():
        lines[name] = section.model_dump(exclude_unset=True, by_alias=True)
    return yaml.dump(
        lines, Dumper=_Dumper, sort_keys=False, default_flow_style=None, width=110, allow_unicode=True
    )


def files_as_read(locator: Locator) -> dict[str, str]:
    """The text of every file that a section came from, by name, before templates are filled in."""
    if isinstance(locator, Joined):
        return {**files_as_read(locator.second), **files_as_read(locator.first)}
    if isinstance(locator, Without):
        return files_as_read(locator.base)
    if not isinstance(locator, NodeLocator):
        return {}
    sources = [entry.source for entry in locator.sections.values()]
    return {s.file: "\n".join(s.original or s.lines) for s in sources if s.file}
