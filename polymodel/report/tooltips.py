"""Tooltips of the boxes in pictures: the report's figures for a node or component."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import TYPE_CHECKING

from polymodel.mapping.looptree import ComputeNode, Loop
from polymodel.quantities import engineering

if TYPE_CHECKING:
    from polymodel.report.report import Report


def node_tips(report: Report) -> dict[int, str]:
    """Lines for each node of the LoopTree by its number: tiles and traffic, what a loop is around, costs."""
    found: dict[int, list[str]] = {}
    moved = _moved(report)
    seen = set()
    for row in report.table("tiles", live=False).records():
        node, tensor = row["node"], str(row["tensor"])
        assert isinstance(node, int)
        if (node, tensor) in seen:  # a node above a split has a row for each Einsum
            continue
        seen.add((node, tensor))
        read, written = moved.get((node, tensor), (0, 0))
        bits, visits = row["tile_bits"], row["visits"]
        assert isinstance(bits, int)
        found.setdefault(node, []).append(
            f"{tensor}: tile {engineering(bits, 'bit')}, {visits} visits; "
            f"reads {engineering(read, 'bit')}, writes {engineering(written, 'bit')}"
        )
    tree = report.problem.tree
    for here, node_, _ in tree.walk():
        if isinstance(node_, Loop):
            found[here] = [f"around {', '.join(tree.below.get(here, ()))}"]
        elif isinstance(node_, ComputeNode):
            found[here] = list(_costs(report, node_.einsum))
    return {here: "\n".join(lines) for here, lines in found.items()}


def _moved(report: Report) -> dict[tuple[int, str], tuple[int, int]]:
    """Bits read and written at each (node, tensor), all instances and executions."""
    counts = report.counts
    found: dict[tuple[int, str], tuple[int, int]] = {}
    for t in report.analysis.traffic:
        scale = counts.bits(t.tensor) * counts.executions(t.einsum)
        read, written = found.get((t.node, t.tensor), (0, 0))
        found[t.node, t.tensor] = read + t.reads * scale, written + t.writes * scale
    return found


def _costs(report: Report, einsum: str) -> Iterator[str]:
    for t in report.costs.latency:
        if t.einsum == einsum:
            yield f"{engineering(t.operations, 'operation')}, {engineering(t.seconds, 's')}"
            if t.limiting:
                yield f"limited by {t.limiting}"
    joules = math.fsum(i.energy for i in report.costs.energy if i.einsum == einsum)
    yield engineering(joules, "J")


def component_tips(report: Report) -> dict[str, str]:
    """Lines for each component by its name: energy, the longest time of use, the largest working set."""
    found: dict[str, list[str]] = {}
    total = report.total_energy
    for c in report.problem.hierarchy.components:
        lines = []
        joules = math.fsum(i.energy for i in report.costs.energy if i.component == c.name)
        if joules:
            lines.append(f"{engineering(joules, 'J')}, {100 * joules / total:.1f} % of all energy")
        busy = math.fsum(t.seconds for t in report.costs.times if t.component == c.name)
        if busy:
            lines.append(f"busy for {engineering(busy, 's')}")
        limits = [t.einsum for t in report.costs.latency if t.limiting == c.name]
        if limits:
            lines.append(f"limits {', '.join(limits)}")
        peaks = [n for n in report.costs.needs if n.component == c.name and n.counts]
        if peaks:
            most = max(peaks, key=lambda n: n.bits)
            lines.append(f"holds at most {engineering(most.bits, 'bit')}, during {most.einsum}")
        found[c.name] = lines
    return {name: "\n".join(lines) for name, lines in found.items()}
