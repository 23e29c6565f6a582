"""Traffic of a TeAAL spec on actual data: what formats, architecture and bindings make of its loops."""

from polymodel.sparse.traffic.model import traffic
from polymodel.sparse.traffic.records import EinsumTraffic, MemoryTraffic, Moved, Traffic, UnitWork

__all__ = ["EinsumTraffic", "MemoryTraffic", "Moved", "Traffic", "UnitWork", "traffic"]
