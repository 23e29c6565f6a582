"""Import Timeloop's YAML as a spec that counts what Timeloop counts, and export one Einsum as Timeloop's
YAML."""

from polymodel.importers.timeloop.export import export_timeloop
from polymodel.importers.timeloop.run import import_timeloop

__all__ = ["export_timeloop", "import_timeloop"]
