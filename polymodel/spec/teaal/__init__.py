"""The TeAAL dialect: text -> checked records -> `Workload`.

`read_teaal` reads a spec alone; `polymodel.load` reads one as part of a whole spec.
"""

from polymodel.spec.other_tools import is_teaal
from polymodel.spec.teaal.schema import read_sections, read_teaal

__all__ = ["is_teaal", "read_sections", "read_teaal"]
