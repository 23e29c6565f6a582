"""Convert AccelForge's YAML to a spec, and a spec to AccelForge's YAML: workload, architecture, mapping."""

from polymodel.importers.accelforge.export import export_accelforge
from polymodel.importers.accelforge.run import import_accelforge

__all__ = ["export_accelforge", "import_accelforge"]
