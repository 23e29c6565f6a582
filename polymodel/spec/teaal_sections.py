"""How a TeAAL spec is told from others. Its reader is loaded only where there is one."""

from __future__ import annotations

from polymodel.spec.source import Node

OLD = "expression"  # what older specs call `expressions`
SECTIONS = ("einsum", "mapping", "format", "architecture", "bindings", "binding")


def is_teaal(root: Node) -> bool:
    """True if a document is a TeAAL spec: `einsum:` with a `declaration:` or `expressions:`."""
    entry = root.entry("einsum")
    return entry is not None and any(entry.value.entry(k) for k in ("declaration", "expressions", OLD))
