"""What a tensor workload costs on a memory hierarchy under a mapping, counted exactly.

import polymodel as pm
spec = pm.load("architecture.yaml", "workload.yaml", "mapping.yaml", N_TOKENS=2048)
report = pm.evaluate(spec)
print(report)
report.tiles, report.accesses, report.energy      # DataFrames
"""

from __future__ import annotations

from polymodel.libraries import from_stub, tell_missing

tell_missing()
__version__ = "0.1.0"

# The names stand in the stub beside this file, and nowhere else.
__getattr__, __dir__, __all__ = from_stub(__name__, __file__)
