"""Energy (J) of every action and hop, and of leakage during the latency; time (s) of links."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from fractions import Fraction

from polymodel.architecture.hierarchy import ActionCost, FanoutDim, FanoutLink, Hierarchy, link_name
from polymodel.cost.algebra import NUMBERS, Algebra, Number, nothing
from polymodel.cost.records import ComponentTime, Counts, EinsumTime, EnergyItem, row_order

# Energy (J) and time (s) of transfers across fanout dimensions. A dimension's link appears beside the
# components as `PE.X`; its action is `hop`, counted in bit-hops.


def _link(counts: Counts, component: str, dim: str) -> FanoutLink:
    link = counts.problem.hierarchy[component].dim(dim).link
    assert link is not None, "engines count links that cost only"
    return link


def link_energies(counts: Counts) -> Iterator[EnergyItem]:
    """One item per Einsum, dimension and tensor: bits x hops x energy per bit-hop."""
    for t in counts.analysis.links:
        each = _link(counts, t.component, t.dim).energy_per_bit_hop
        for tensor, hops in t.hops:
            n = hops * counts.bits(tensor) * counts.executions(t.einsum)
            yield EnergyItem(
                t.einsum, link_name(t.component, t.dim), tensor, "hop", n, "bit-hop", each, n * each, "given"
            )


def longest_route(dim: FanoutDim, reach: Number, do: Algebra) -> Number:
    """Hops from where data enter a row of a dimension to the farthest of its first `reach` instances."""
    assert dim.link is not None
    beyond = reach + -1

    def at_most(limit: int) -> Number:
        return beyond + limit + do.largest((beyond, limit)) * -1

    match dim.link.topology:
        case "mesh":
            return reach
        case "line":
            return beyond
        case "ring":
            return at_most(dim.fanout // 2)
        case "all_to_all":
            return at_most(1)
        case "tree":
            return (dim.fanout - 1).bit_length()
    return 1


def link_times(counts: Counts, do: Algebra = NUMBERS) -> Iterator[ComponentTime]:
    """The time of each dimension whose link takes any: that for which its busiest link carries bits, or that
    of the longest route, through the dimensions of the component before it too, if it is longer."""
    hierarchy = counts.problem.hierarchy
    order = [(c, d.name) for c, d in hierarchy.dimensions]
    routes: dict[tuple[str, str], Number] = {}
    for t in counts.analysis.links:
        link, n = _link(counts, t.component, t.dim), counts.executions(t.einsum)
        if not link.timed:
            continue
        down, up = t.loads[0] if len(t.loads) == 1 else max(t.loads, key=lambda pair: (sum(pair), pair))
        seconds = (down + up) / link.throughput
        if not nothing(t.reach):
            hops = longest_route(hierarchy[t.component].dim(t.dim), t.reach, do)
            route = hops * link.hop_latency + routes.get((t.einsum, t.component), 0.0)
            routes[t.einsum, t.component] = route
            seconds = do.largest((seconds, do.where_moved(down + up, route)))
        dims = hierarchy.dimensions[: order.index((t.component, t.dim)) + 1]
        way = {c.name for c in hierarchy.path_to(t.component)}
        dims = tuple((c, d) for c, d in dims if c in way)
        entries = math.prod(d.fanout for _, d in dims[:-1])
        if link.topology == "tree":
            entries *= min(2, dims[-1][1].fanout)
        if link.topology == "switch":
            entries *= dims[-1][1].fanout
        yield ComponentTime(
            t.einsum, link_name(t.component, t.dim), "link", down * n, up * n, 0,
            seconds * n, 0.0, None, t.instances, entries,
        )  # fmt: skip


# Energy of components.


def energy_items(counts: Counts, latency: Iterable[EinsumTime]) -> tuple[EnergyItem, ...]:
    """One item per Einsum, component, tensor and action, in order of execution then hierarchy."""
    result = [*action_energies(counts), *_leakage(counts, latency)]
    order = row_order(counts.problem)
    return tuple(sorted(_merged(result), key=lambda i: order(i.einsum, i.component)))


def action_energies(counts: Counts) -> Iterator[EnergyItem]:
    """The energy of actions and hops: everything except leakage."""
    yield from _memory(counts)
    yield from _tolls(counts)
    yield from link_energies(counts)
    yield from _compute(counts)
    yield from _charges(counts)


def leak_power(hierarchy: Hierarchy, do: Algebra = NUMBERS) -> Number:
    """Watts of all instances of all components, which leak for the whole latency."""
    return do.total(c.leak_power * hierarchy.instances(c.name) for c in hierarchy.components)


def _item(einsum: str, component: str, tensor: str, action: ActionCost, count: Number) -> EnergyItem:
    return EnergyItem(
        einsum, component, tensor, action.name, count, "bit" if action.bits_per_action is None else "action",
        action.energy, count * action.energy, action.provenance,
    )  # fmt: skip


def _memory(counts: Counts) -> Iterator[EnergyItem]:
    for t in counts.analysis.traffic:
        read, write = counts.problem.hierarchy[t.component].ways
        ways = (read, "reads_fill", "reads_drain"), (write, "writes_drain", "writes_fill")
        for action, *kinds in ways:
            n = sum(counts.actions(t, kind, action) for kind in kinds)
            if not nothing(n):
                yield _item(t.einsum, t.component, t.tensor, action, n * counts.executions(t.einsum))


def _tolls(counts: Counts) -> Iterator[EnergyItem]:
    for t in counts.analysis.tolls:
        down, up = counts.problem.hierarchy[t.component].ways
        for action, kind in ((down, "down"), (up, "up")):
            n = counts.actions(t, kind, action)
            if not nothing(n):
                yield _item(t.einsum, t.component, t.tensor, action, n * counts.executions(t.einsum))


def _compute(counts: Counts) -> Iterator[EnergyItem]:
    for c in counts.analysis.compute:
        cost = counts.operation(c.einsum, c.component)
        n, every = (x * counts.executions(c.einsum) for x in (c.operations, c.every[0]))
        taken = [(action, n * times) for action, times in cost.actions] if not nothing(n) else []
        taken += [(action, _share(every, times)) for action, times in cost.finish]
        for action, count in taken:
            yield EnergyItem(
                c.einsum, c.component, "", action.name, count, "operation",
                action.energy, count * action.energy, action.provenance,
            )  # fmt: skip


def _share(operations: Number, times: Fraction) -> Number:
    """Finished results of so many operations; integers stay exact."""
    if not isinstance(operations, int):
        return operations * float(times)
    found = operations * times
    return int(found) if found.denominator == 1 else float(found)


def _charges(counts: Counts) -> Iterator[EnergyItem]:
    """Actions that the analysis names itself; those that the component does not declare are free."""
    for c in counts.analysis.charges:
        component = counts.problem.hierarchy[c.component]
        action, n = component.action(c.action), c.count * counts.executions(c.einsum)
        if component.computes:
            yield EnergyItem(
                c.einsum, c.component, c.tensor, action.name, n, "operation",
                action.energy, n * action.energy, action.provenance,
            )  # fmt: skip
        elif not nothing(n):
            each = action.bits_per_action
            yield _item(c.einsum, c.component, c.tensor, action, n if each is None else n / each)


def _leakage(counts: Counts, latency: Iterable[EinsumTime]) -> Iterator[EnergyItem]:
    hierarchy = counts.problem.hierarchy
    leaking = [(c, hierarchy.instances(c.name)) for c in hierarchy.components if c.leak_power]
    for t in latency:
        for c, instances in leaking:
            seconds: Number = t.seconds * instances
            if seconds:
                yield EnergyItem(
                    t.einsum, c.name, "", "leak", seconds, "second",
                    c.leak_power, seconds * c.leak_power, "given",
                )  # fmt: skip


def _merged(items: Iterable[EnergyItem]) -> Iterator[EnergyItem]:
    """Items of one Einsum, component, tensor and action (of several nodes, or both directions of a toll)
    merged."""
    groups: dict[tuple[str, ...], list[EnergyItem]] = {}
    for i in items:
        groups.setdefault((i.einsum, i.component, i.tensor, i.action), []).append(i)
    for same in groups.values():
        first = same[0]
        count: Number = sum(i.count for i in same)
        yield EnergyItem(
            first.einsum, first.component, first.tensor, first.action, count, first.unit,
            first.energy_each, count * first.energy_each, first.provenance,
        )  # fmt: skip
