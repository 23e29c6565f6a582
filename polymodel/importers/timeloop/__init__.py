"""Timeloop's YAML becomes a spec that counts what Timeloop counts, and one Einsum becomes Timeloop's."""

from polymodel.importers.timeloop.export import export_timeloop
from polymodel.importers.timeloop.run import import_timeloop

__all__ = ["export_timeloop", "import_timeloop"]
