"""A TeAAL spec as readable text."""

from __future__ import annotations

from polymodel.spec.teaal.records import (
    Configuration,
    Directive,
    EinsumMapping,
    Level,
    Partition,
    Stamp,
    TeaalSpec,
)


def spec_text(spec: TeaalSpec) -> str:
    """Tensors, a table of Einsums (partitioning, loop order, space-time), then the hardware."""
    lines = [f"TeAAL spec {spec.name}".rstrip()]
    lines += _columns([_tensor(t, spec) for t in spec.declaration], "  ")
    sizes = ", ".join(f"{r} = {s}" for r, s in spec.rank_sizes.items() if str(s) != r)
    if sizes:
        lines.append(f"  sizes: {sizes}")
    for expression in spec.expressions:
        mapping = spec.mapping_of(expression.name)
        lines.append(f"  {expression.text}")
        lines += _columns(_mapping(mapping), "    ")
    for form in spec.formats:
        ranks = ", ".join(f"{r.rank} {r.format}" for r in form.ranks)
        lines.append(f"  format {form.configuration} of {form.tensor}: {ranks}")
    for configuration in spec.configurations:
        lines += _hardware(configuration)
    for found in spec.einsum_bindings:
        names = ", ".join(dict.fromkeys(b.component for b in found.bindings))
        lines.append(f"  {found.einsum} on {found.config}: bound to {names or 'nothing'}")
    return "\n".join(lines)


def directive_text(directive: Directive) -> str:
    """As it is written in a spec."""
    if directive.kind == "flatten":
        return "flatten()"
    if directive.kind == "follow":
        return f"follow({directive.leader})"
    if directive.kind == "uniform_occupancy":
        return f"uniform_occupancy({directive.leader}.{directive.size})"
    return f"{directive.kind}({directive.size})"


def partition_text(partition: Partition) -> str:
    """As it is written in a spec."""
    ranks = partition.ranks[0] if len(partition.ranks) == 1 else f"({', '.join(partition.ranks)})"
    return f"{ranks}: [{', '.join(directive_text(d) for d in partition.directives)}]"


def _tensor(tensor: str, spec: TeaalSpec) -> tuple[str, ...]:
    declared, stored = spec.declaration[tensor], spec.rank_order[tensor]
    order = f"stored as [{', '.join(stored)}]" if stored != declared else ""
    return tensor, f"[{', '.join(declared)}]", order


def _mapping(mapping: EinsumMapping) -> list[tuple[str, ...]]:
    rows: list[tuple[str, ...]] = []
    for i, partition in enumerate(mapping.partitioning):
        rows.append(("" if i else "partitioning", partition_text(partition)))
    rows.append(("loop order", " ".join(mapping.loop_order)))
    if mapping.spacetime is not None:
        places = dict(mapping.spacetime.fanout)
        space = ", ".join(
            _stamp(s) + (f" on {places[s.rank]}" if s.rank in places else "") for s in mapping.spacetime.space
        )
        rows.append(("space", space or "-"))
        time = ", ".join(_stamp(s) for s in mapping.spacetime.time) or "-"
        rows.append(("time", time + ("; slip" if mapping.spacetime.slip else "")))
    return rows


def _stamp(stamp: Stamp) -> str:
    return stamp.rank if stamp.style == "pos" else f"{stamp.rank}.coord"


def _hardware(configuration: Configuration) -> list[str]:
    rows: list[tuple[str, ...]] = []

    def add(level: Level, depth: int) -> None:
        count = f" x {level.instances}" if level.instances > 1 else ""
        rows.append(("  " * depth + level.name + count, ""))
        for c in level.local:
            given = ", ".join(f"{k} {v}" for k, v in c.attributes.items())
            rows.append(("  " * (depth + 1) + c.name, f"{c.kind}{': ' if given else ''}{given}"))
        for below in level.subtree:
            add(below, depth + 1)

    add(configuration.root, 0)
    return [f"  architecture {configuration.name}", *_columns(rows, "    ")]


def _columns(rows: list[tuple[str, ...]], indent: str) -> list[str]:
    widths = [
        max((len(r[i]) for r in rows), default=0) for i in range(max((len(r) for r in rows), default=0))
    ]
    return [(indent + "  ".join(c.ljust(w) for c, w in zip(r, widths, strict=False))).rstrip() for r in rows]
