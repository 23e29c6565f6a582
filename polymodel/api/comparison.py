"""Two reports side by side."""

from __future__ import annotations

from polymodel.report.compare import Comparison, comparison
from polymodel.report.evaluated import Evaluated
from polymodel.spec.faults import not_a


def compare(a: Evaluated, b: Evaluated, names: tuple[str, str] | None = None) -> Comparison:
    """Latency, energy, operations, recomputation, traffic and working sets of two reports, side by side.

    The specs may differ in any way. Operations are those executed, by all instances; the recompute factor has
    rows for Einsums that repeat iterations under either mapping; energy (J) has a row per Einsum and one per
    component, leakage included; `accesses:MEMORY` are the bits that each Einsum reads from the outermost
    memory and writes to it. `names`: of the two in pictures, by default the names of workload, machine and
    mapping that differ.
    """
    for given in (a, b):
        if not isinstance(given, Evaluated):
            raise not_a("report", "compare", given, "pass what pm.evaluate(spec) gives")
    return comparison(a, b, names)
