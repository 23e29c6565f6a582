"""Import ZigZag's and Stream's YAML as a spec: layers become Einsums, memories per operand become one
hierarchy."""

from polymodel.importers.zigzag.run import import_zigzag

__all__ = ["import_zigzag"]
