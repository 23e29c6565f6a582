"""The hierarchy and the workload in words."""

from __future__ import annotations

import math

from polymodel.architecture.hierarchy import Component, Hierarchy
from polymodel.report.quantities import engineering
from polymodel.workload.einsum import Cascade, Einsum


def facts(c: Component) -> tuple[str, ...]:
    """Capacity, actions, leakage and area of one component, one line each."""
    found = []
    if c.kind == "memory":
        size = "unbounded" if math.isinf(c.size_bits) else engineering(c.size_bits, "bit")
        found.append(size + (" (live)" if c.allocation == "live" else ""))
    for a in c.actions:
        unit = "operation" if c.kind == "compute" else "bit"
        per = "action" if a.bits_per_action else {"operation": "op", "bit": "b"}[unit]
        speed = "" if math.isinf(a.throughput) else f", {engineering(a.throughput, unit)}/s"
        found.append(f"{a.name} {engineering(a.energy, 'J')}/{per}{speed}")
    if c.leak_power:
        found.append(f"leaks {engineering(c.leak_power, 'W')}")
    if c.area:
        found.append(engineering(c.area, "m^2"))
    return tuple(found)


def hierarchy_text(hierarchy: Hierarchy) -> str:
    """One line per component, indented below the fanouts that replicate it."""
    lines, depth = [], 0
    for c in hierarchy.components:
        if c.spatial:
            dims = ", ".join(f"{d.name} x {d.fanout}" for d in c.spatial)
            lines.append("  " * depth + f"per {c.name} ({dims}; {hierarchy.instances(c.name)} in all):")
            depth += 1
        if c.kind != "container":
            lines.append("  " * depth + f"{c.name} ({c.kind}): {'; '.join(facts(c))}".rstrip(": "))
    return "\n".join(lines) + "\n"


def einsum_text(e: Einsum) -> str:
    """`T1[m, n1] = T0[m, n0] * W0[n0, n1]`; ranks that differ from their index are named."""

    def access(tensor: str) -> str:
        a = e.access_of(tensor)
        parts = [
            str(x) if str(x).upper() == rank else f"{rank}={x}"
            for rank, x in zip(a.ranks, a.projection, strict=True)
        ]
        return f"{tensor}[{', '.join(parts)}]"

    made = ", ".join(access(a.tensor) for a in e.outputs)
    return f"{made} = {' * '.join(access(a.tensor) for a in e.inputs)}"


def cascade_text(cascade: Cascade) -> str:
    """One line per Einsum with the ranges of its rank variables."""
    lines = []
    wide = max((len(e.name) for e in cascade), default=0)
    for e in cascade:
        ranges = ", ".join(
            f"{low} <= {v} <= {high}" for v, (low, high) in zip(e.rank_variables, e.bounds, strict=True)
        )
        tail = (" (copy)" if e.is_copy else "") + (f" x {e.n_instances}" if e.n_instances > 1 else "")
        lines.append(f"{e.name.ljust(wide)}  {einsum_text(e)}{tail}    {ranges}")
    return "\n".join(lines) + "\n"
