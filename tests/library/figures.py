"""What a packaged workload amounts to: multiply-accumulates, and parameters; what a machine can do at most.

A parameter is an element of a tensor that an Einsum calls its weight, and that comes from outside: nothing
makes it, and it is not a cache, which matrix units hold as they hold weights.
"""

from __future__ import annotations

from math import prod

import polymodel as pm
from polymodel.workload.einsum import Cascade
from polymodel.workload.totals import operations, products, weights
from tests.library.published import PEAKS

macs = products
__all__ = ["macs", "operations", "parameters", "peak"]


def parameters(cascade: Cascade) -> dict[str, int]:
    """Weight -> its elements over all instances."""
    return {t: elements for t, (elements, _) in weights(cascade).items() if not t.startswith("Cache")}


def peak(machine: str) -> float:
    """Multiply-accumulates a second of all its multipliers."""
    arch = pm.load(machine, **PEAKS[machine][0]).arch
    mac = next(c for c in arch.components if c.name in ("MAC", "FPU"))
    fanouts = prod(d.fanout for c in arch.components for d in c.spatial)
    return fanouts * float(mac.action("compute").throughput)
