"""Energy (J) and time (s) of what crosses the interconnect of fanout dimensions.

A dimension's link appears beside the components as `PE.X`; its action is `hop`, counted in bit-hops.
"""

from __future__ import annotations

import math
from collections.abc import Iterator

from polymodel.architecture.hierarchy import Link, link_name
from polymodel.cost.context import Counts
from polymodel.cost.records import ComponentTime, EnergyItem


def _link(counts: Counts, component: str, dim: str) -> Link:
    link = counts.problem.hierarchy[component].dim(dim).link
    assert link is not None, "engines count links that cost only"
    return link


def link_energies(counts: Counts) -> Iterator[EnergyItem]:
    """One item per Einsum, dimension and tensor: bits times hops times the energy of one bit and hop."""
    for t in counts.analysis.links:
        each = _link(counts, t.component, t.dim).energy_per_bit_hop
        for tensor, hops in t.hops:
            n = hops * counts.bits(tensor) * counts.executions(t.einsum)
            yield EnergyItem(
                t.einsum, link_name(t.component, t.dim), tensor, "hop", n, "bit-hop", each, n * each, "given"
            )


def link_times(counts: Counts) -> Iterator[ComponentTime]:
    """How long the busiest link of each dimension with a finite throughput carries bits, down and up."""
    hierarchy = counts.problem.hierarchy
    order = [(c, d.name) for c, d in hierarchy.dimensions]
    for t in counts.analysis.links:
        link, n = _link(counts, t.component, t.dim), counts.executions(t.einsum)
        if math.isinf(link.throughput):
            continue
        down, up = t.loads[0] if len(t.loads) == 1 else max(t.loads, key=lambda pair: (sum(pair), pair))
        dims = hierarchy.dimensions[: order.index((t.component, t.dim)) + 1]
        entries = math.prod(d.fanout for _, d in dims[:-1])
        if link.topology == "tree":
            entries *= min(2, dims[-1][1].fanout)
        yield ComponentTime(
            t.einsum, link_name(t.component, t.dim), "link", down * n, up * n, 0,
            (down + up) / link.throughput * n, 0.0, None, t.instances, entries,
        )  # fmt: skip
