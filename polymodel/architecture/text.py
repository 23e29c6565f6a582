"""The hierarchy in words."""

from __future__ import annotations

import math
from collections.abc import Iterable

from polymodel.architecture.hierarchy import Component, FanoutDim, Hierarchy
from polymodel.architecture.sparse_rules import SparseRules
from polymodel.architecture.tile_rules import ProductRules, TileRules, capacity_of
from polymodel.quantities import engineering

_FREE = "not given, so 0"


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
    lines, depth = [] if hierarchy.assume_overlap else ["transfers do not overlap compute"], 0
    for c in hierarchy.components:
        if c.spatial:
            dims = ", ".join(f"{d.name} x {d.fanout}" for d in c.spatial)
            lines.append("  " * depth + f"per {c.name} ({dims}; {hierarchy.instances(c.name)} in all):")
            depth += 1
            lines += ["  " * depth + f"{d.name}: {told}" for d in c.spatial if (told := _dim_text(d))]
        if c.kind != "container":
            told = "; ".join((*facts(c), *_rules(c)))
            lines.append("  " * depth + f"{c.name} ({c.kind}): {told}".rstrip(": "))
            if c.sparse is not None:
                told = sparse_text(c.sparse) or "what it leaves out is told beside a workload"
                lines.append("  " * depth + f"  sparse: {told}")
            if c.data_tiles is not None:
                lines.append("  " * depth + f"  data tiles: {tiles_text(c.data_tiles, c)}")
    return "\n".join(lines) + "\n"


def sources_text(hierarchy: Hierarchy) -> str:
    """Where energies and areas come from: a line for each source that the spec names, and what has none."""
    found: dict[str, dict[str, list[str]]] = {}
    for c in hierarchy.components:
        origins = [(a.name, a.provenance) for a in c.actions]
        origins += [("area", c.area_provenance)] if c.area else []
        for what, source in origins:
            found.setdefault(source, {}).setdefault(c.name, []).append(what)
    told = {s: ", ".join(f"{c} {' and '.join(names)}" for c, names in of.items()) for s, of in found.items()}
    unnamed = told.pop("given", "")
    lines = [f"{of}: {_FREE if source == 'default' else source}" for source, of in told.items()]
    if not lines:
        return "sources of energy and area: none is named\n" if unnamed else ""
    lines += [f"{unnamed}: as written, no source is named"] if unnamed else []
    return "sources of energy and area:\n" + "".join(f"  {line}\n" for line in lines)


def _dim_text(d: FanoutDim) -> str:
    """`may reuse Outputs; mesh, 50 fJ/b per hop, 64 Gb/s`: what a dimension has beyond its fanout."""
    found = [] if d.may_reuse is None else [f"may reuse {d.may_reuse.text}"]
    if d.broadcast_partials:
        found.append("partial sums go to all")
    if d.multicast == "identical":
        found.append("overlapping tiles are not shared")
    if d.link is not None:
        speed = "" if math.isinf(d.link.throughput) else f", {engineering(d.link.throughput, 'bit')}/s"
        found.append(f"{d.link.topology}, {engineering(d.link.energy_per_bit_hop, 'J')}/b per hop{speed}")
    return "; ".join(found)


def _rules(c: Component) -> tuple[str, ...]:
    """`keeps ~Intermediates`, `ports separate`: what differs from a component that says nothing."""
    found = [] if c.keep is None else [f"keeps {c.keep.text}"]
    found += [] if c.may_keep is None else [f"may keep {c.may_keep.text}"]
    found += ["partial sums are read first"] if c.read_first else []
    found += ["ports separate"] if c.ports == "separate" else []
    found += ["buffering single"] if c.buffering == "single" else []
    found += [f"{a.name}: {a.bits_per_action} b per action" for a in c.actions if a.bits_per_action]
    if c.fill_drain_latency:
        found.append(f"fill and drain {engineering(c.fill_drain_latency, 's')}")
    found += [] if c.clock is None else [f"clock {engineering(c.clock, 'Hz')}"]
    return tuple(found)


def sparse_text(rules: SparseRules) -> str:
    """`A in CSR; skip B on A; two_finger of A, B`."""
    found = [f"{tensor} in {_written(form)}" for tensor, form in rules.formats]
    for action in rules.actions:
        for _, targets, leaders in action.by_einsum:
            if leaders:
                found.append(f"{action.kind} {', '.join(targets) or 'compute'} on {', '.join(leaders)}")
    found += [f"{x.kind} of {', '.join(x.tensors)}" for x in rules.intersections]
    found += [f"{t} moves densely" for t in rules.dense_outputs]
    return "; ".join(dict.fromkeys(found))


def tiles_text(rules: TileRules, c: Component) -> str:
    """`128 elements by best (total); configured in 824 (add), 907 (multiply) cycles`, and products.

    A capacity that follows from the size is told as well, unless each Einsum has its own words.
    """
    fit = f"{_written(rules.format)} bits" if rules.fit == "stored" else rules.fit
    known = rules.capacity or rules.word_bits or rules.fit == "stored"
    # The width is asked for only where nothing says it.
    room = f"{capacity_of(rules, c.size_bits, c.buffering, widest=1)} {fit}" if known else fit
    cycles = f"{rules.config_add} (add), {rules.config_multiply} (multiply) cycles"
    found = f"{room} by {rules.tiler} ({rules.objective}); configured in {cycles}"
    p = rules.product
    if p == ProductRules():
        return found
    tile = "" if p.tile is None else f" {' x '.join(map(str, p.tile))}"
    return f"{found}; products by {p.strategy}{tile} ({p.objective})"


def uncut_text(nodes: Iterable[object]) -> tuple[str, ...]:
    """A note for figures that count no tiles, if a memory of these cuts its operands."""
    cut = [str(getattr(n, "name", "")) for n in nodes if getattr(n, "data_tiles", None) is not None]
    if not cut:
        return ()
    said = f"{', '.join(dict.fromkeys(cut))}: tiles by data_tiles: are not counted here, nor what they cost"
    return (f"{said}; evaluate a spec to see them",)


def _written(form: object) -> str:
    return "-".join(map(str, form)) if isinstance(form, list | tuple) else str(form)


def names_text(hierarchy: Hierarchy) -> str:
    """`simple_two_level: DRAM, GLB, MAC`"""
    head = f"{hierarchy.name}: " if hierarchy.name else ""
    return head + ", ".join(c.name for c in hierarchy.components)
