"""ZigZag's and Stream's YAML becomes a spec: layers become Einsums, memories by operand one hierarchy."""

from polymodel.importers.zigzag.run import import_zigzag

__all__ = ["import_zigzag"]
