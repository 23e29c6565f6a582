"""Traffic of a TeAAL spec on actual data: what formats, architecture and bindings make of its loops."""

from polymodel.sparse.traffic.model import traffic
from polymodel.sparse.traffic.records import (
    CascadeTraffic,
    EinsumTraffic,
    MemoryTraffic,
    TensorTraffic,
    UnitWork,
)

__all__ = ["CascadeTraffic", "EinsumTraffic", "MemoryTraffic", "TensorTraffic", "UnitWork", "traffic"]
