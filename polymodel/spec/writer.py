"""Plain data -> YAML text in the house style: block lists of tagged nodes, flow style inside them."""

from __future__ import annotations

import yaml

Scalar = str | int | float | bool | None
_BLOCK = ("nodes", "einsums")


def dump(document: dict[str, object]) -> str:
    """YAML of nested dictionaries, lists and `(tag, fields)` pairs."""
    lines: list[str] = []
    for key, value in document.items():
        lines += _entry(key, value, 0)
    return "\n".join(lines) + "\n"


def _entry(key: str, value: object, indent: int) -> list[str]:
    pad = " " * indent
    if isinstance(value, dict) and any(k in _BLOCK for k in value):
        lines = [f"{pad}{key}:"]
        for k, v in value.items():
            lines += _entry(k, v, indent + 2)
        return lines
    if key in _BLOCK and isinstance(value, list) and value:
        return [f"{pad}{key}:", *(line for item in value for line in _item(item, indent))]
    return [f"{pad}{key}: {_flow(value)}"]


def _item(item: object, indent: int) -> list[str]:
    pad = " " * indent
    if isinstance(item, tuple):
        tag, fields = item
        if any(k in _BLOCK for k in fields):
            lines = [f"{pad}- !{tag}"]
            for k, v in fields.items():
                lines += _entry(k, v, indent + 2)
            return lines
        return [f"{pad}- !{tag} {_flow(fields)}"]
    return [f"{pad}- {_flow(item)}"]


def _flow(value: object) -> str:
    if isinstance(value, dict):
        return "{" + ", ".join(f"{_flow(k)}: {_flow(v)}" for k, v in value.items()) + "}"
    if isinstance(value, (list, tuple)):
        return "[" + ", ".join(_flow(v) for v in value) + "]"
    text = yaml.safe_dump(value, default_flow_style=True, width=10**9, allow_unicode=True)
    return text.strip().removesuffix("\n...").strip()
