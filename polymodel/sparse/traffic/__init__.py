"""Compute the traffic of a TeAAL spec on actual data, from its loops, formats, architecture and bindings."""

from polymodel.sparse.traffic.model import traffic
from polymodel.sparse.traffic.records import (
    CascadeTraffic,
    EinsumTraffic,
    MemoryTraffic,
    TensorTraffic,
    UnitWork,
)

__all__ = ["CascadeTraffic", "EinsumTraffic", "MemoryTraffic", "TensorTraffic", "UnitWork", "traffic"]
