"""What a packaged workload amounts to: multiply-accumulates, and parameters.

A parameter is an element of a tensor that an Einsum calls its weight, and that comes from outside: nothing
makes it, and it is not a cache, which matrix units hold as they hold weights.
"""

from __future__ import annotations

from polymodel.workload.einsum import Cascade
from polymodel.workload.totals import operations, products, weights

macs = products
__all__ = ["macs", "operations", "parameters"]


def parameters(cascade: Cascade) -> dict[str, int]:
    """Weight -> its elements over all instances."""
    return {t: elements for t, (elements, _) in weights(cascade).items() if not t.startswith("Cache")}
