"""Plain data -> YAML text in the house style: block lists of tagged nodes, flow style inside them."""

from __future__ import annotations

import yaml

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


def _flow(value: object) -> str:
    if isinstance(value, dict):
        return "{" + ", ".join(f"{_flow(k)}: {_flow(v)}" for k, v in value.items()) + "}"
    if isinstance(value, (list, tuple)):
        return "[" + ", ".join(_flow(v) for v in value) + "]"
    text = yaml.safe_dump(value, default_flow_style=True, width=10**9, allow_unicode=True)
    return text.strip().removesuffix("\n...").strip()
