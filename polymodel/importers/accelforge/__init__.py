"""AccelForge's YAML becomes a spec: workload, architecture, mapping."""

from polymodel.importers.accelforge.run import import_accelforge

__all__ = ["import_accelforge"]
