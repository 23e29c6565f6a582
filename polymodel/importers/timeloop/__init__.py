"""Timeloop's YAML becomes a spec that counts what Timeloop counts."""

from polymodel.importers.timeloop.run import import_timeloop

__all__ = ["import_timeloop"]
