"""The cascade as SVG: Einsums and tensors from top to bottom, along the data."""

from __future__ import annotations

from math import prod

from polymodel.polyhedra.sets import size, spans
from polymodel.report.layered import Item, Layout, Leg, layered
from polymodel.view.drawing import (
    INK,
    LINE,
    MUTED,
    PAD,
    Label,
    node,
    picture,
    rectangle,
    short,
    text,
    width_of,
    wrapped,
)
from polymodel.workload.einsum import (
    Cascade,
    Einsum,
    TensorAccess,
    cascade_text,
    einsum_text,
    einsum_words,
    remarks,
    sizes_text,
    touched,
)

MARGIN = 16
WIDE = 34  # characters of a formula in a line
MOST = 6  # lines of a formula; the rest is told under the mouse
HEAD = 5.0
# Fill and edge of each kind; the kind is written in the box too, so that no one depends on colours.
KINDS = {
    "input": ("#dbeafe", "#2563a8"),
    "intermediate": ("#f5f7fa", "#7b8794"),
    "output": ("#dcf3e3", "#1d7a46"),
    "Einsum": ("#fffbe6", "#8a6d00"),
}
KEY = "boxes with a bar are Einsums, round ones tensors; data flow downwards"


def cascade_svg(cascade: Cascade) -> str:
    """The workload as an SVG document: intermediates between the Einsums that make and read them.

    Ranks stand with the tensors, projections with the Einsums. What is too long is shortened and told in full
    under the mouse, as are the sizes of iteration spaces and tensors.
    """
    names = _in_order(cascade)
    number = {name: i for i, name in enumerate(names)}
    labels = [_label(cascade, kind, name) for kind, name in names]
    items = [Item(max(w.width + 2 * PAD, 70), w.height + PAD) for w in labels]
    flows = _flows(cascade)
    ends = [(number[a], number[b]) for a, b, _ in flows]
    plan = layered(items, [(min(pair), max(pair)) for pair in ends])
    body = [_edge(leg, [_told_edge(*flows[e]) for e in leg.edges]) for leg in plan.legs]
    for (kind, name), words, item, (x, y) in zip(names, labels, items, plan.places, strict=True):
        drawn = _box(cascade, kind, name, words, item, (x, y))
        body.append(node(drawn, _told(cascade, kind, name)))
    return _whole(cascade, plan, body)


def _whole(cascade: Cascade, plan: Layout, body: list[str]) -> str:
    width = max(plan.width, width_of(KEY))
    moved = [f'<g transform="translate({MARGIN + (width - plan.width) / 2:g} {MARGIN})">', *body, "</g>"]
    moved.append(text(MARGIN, MARGIN + plan.height + 2 * LINE, KEY, ' class="m"', "start"))
    size = width + 2 * MARGIN, plan.height + 2 * LINE + 2 * MARGIN
    return picture(*size, f"Cascade {cascade.name}".strip(), moved, cascade_text(cascade))


Named = tuple[str, str]  # "einsum" or "tensor", and the name


def _in_order(cascade: Cascade) -> list[Named]:
    """Every box, each after all that flows into it."""
    found: dict[Named, None] = {}
    for e in cascade:
        found.update(dict.fromkeys(("tensor", a.tensor) for a in e.inputs))
        found["einsum", e.name] = None
        found.update(dict.fromkeys(("tensor", a.tensor) for a in e.outputs))
    return list(found)


def _flows(cascade: Cascade) -> list[tuple[Named, Named, TensorAccess]]:
    """Each access as (from, to, access)."""
    found = []
    for e in cascade:
        for a in e.accesses:
            ends: tuple[Named, Named] = ("tensor", a.tensor), ("einsum", e.name)
            found.append((*(ends[::-1] if a.output else ends), a))
    return found


def kind_of(cascade: Cascade, tensor: str) -> str:
    """`input`, `intermediate` or `output`."""
    if cascade.producer(tensor) is None:
        return "input"
    return "intermediate" if tensor in cascade.intermediates else "output"


def persistent(cascade: Cascade, tensor: str) -> bool:
    """True if a copy stays in backing storage for the whole run."""
    return any(a.persistent for e in cascade for a in e.accesses if a.tensor == tensor)


def shape_of(cascade: Cascade, tensor: str) -> tuple[tuple[str, int], ...]:
    """(rank, size) of the box of all elements that any Einsum touches; none lies in the padding."""
    ranks = next(a.ranks for e in cascade for a in e.accesses if a.tensor == tensor)
    ends = spans(touched(cascade, tensor))
    return tuple((rank, last - first + 1) for rank, (first, last) in zip(ranks, ends, strict=True))


def _label(cascade: Cascade, kind: str, name: str) -> Label:
    if kind == "einsum":
        e = cascade[name]
        lines = _formula(e)
        if len(lines) > MOST:
            lines = (*lines[: MOST - 1], "…")
        sizes = wrapped(tuple(short(s) for s in sizes_text(e).split(", ")), WIDE)
        return Label((short(name) + (" (copy)" if e.is_copy else ""), *lines, *sizes[:MOST]))
    shape = tuple(f"{short(rank, 12)} {size}" for rank, size in shape_of(cascade, name))
    role = kind_of(cascade, name) + (", persistent" if persistent(cascade, name) else "")
    return Label((short(name), *(s.replace(",", " ×") for s in wrapped(shape, WIDE - 8)), role))


def _formula(e: Einsum) -> tuple[str, ...]:
    """The formula in lines, broken before operators; then its remarks."""
    lines: list[str] = []
    for word in einsum_words(e):
        piece = short("· " + word[2:] if word.startswith("* ") else word, WIDE + 8)
        if lines and len(lines[-1]) + 1 + len(piece) <= WIDE:
            lines[-1] += " " + piece
        else:
            lines.append(piece)
    return (*lines, *(short(r, WIDE + 8) for r in remarks(e) if r != "copy"))


def _told(cascade: Cascade, kind: str, name: str) -> str:
    """Everything about one box, a line each."""
    if kind == "einsum":
        e = cascade[name]
        points = prod(high - low + 1 for low, high in e.bounds)
        most = "" if not e.constraints else " at most"
        noted = f" ({'; '.join(remarks(e))})" if remarks(e) else ""
        lines = [f"Einsum {name}{noted}", einsum_text(e), sizes_text(e)]
        lines.append(
            f"{points:,} iterations{most}" + (f", {e.n_instances} times" if e.n_instances > 1 else "")
        )
        return "\n".join(lines)
    shape = shape_of(cascade, name)
    access = next(a for e in cascade for a in e.accesses if a.tensor == name)
    sizes = " × ".join(f"{rank} {wide}" for rank, wide in shape)
    box, elements = prod(wide for _, wide in shape), size(touched(cascade, name))
    held = f"{elements:,} elements" if elements == box else f"{elements:,} of its {box:,} elements are used,"
    role = kind_of(cascade, name) + (", persistent" if persistent(cascade, name) else "")
    lines = [f"tensor {name} ({role})", f"{sizes}: {held} of {access.bits_per_value} bits"]
    made = cascade.producer(name)
    lines += [f"made by {made.name}"] if made else []
    readers = ", ".join(e.name for e in cascade.consumers(name))
    return "\n".join([*lines, *([f"read by {readers}"] if readers else [])])


def _told_edge(a: Named, b: Named, access: TensorAccess) -> str:
    pairs = zip(access.ranks, access.projection, strict=True)
    return f"{a[1]} → {b[1]}: {access.tensor}[{', '.join(f'{rank}={x}' for rank, x in pairs)}]"


def _box(cascade: Cascade, kind: str, name: str, words: Label, item: Item, place: tuple[float, float]) -> str:
    (x, y), left = place, place[0] - item.width / 2
    fill, edge = KINDS["Einsum" if kind == "einsum" else kind_of(cascade, name)]
    if kind == "einsum":
        drawn = rectangle(left, y, item.width, item.height, fill, edge)
        bar = y + LINE + PAD / 2 - 0.5
        drawn += f'<path d="M {left:g} {bar:g} h {item.width:g}" stroke="{edge}" stroke-width="1"/>'
        return drawn + words.draw(x, y + item.height / 2)
    shape = (
        f'<rect x="{left:g}" y="{y:g}" width="{item.width:g}" height="{item.height:g}" rx="14" '
        f'fill="{fill}" stroke="{edge}" stroke-width="{2.6 if persistent(cascade, name) else 1.3:g}"/>'
    )
    return shape + words.draw(x, y + item.height / 2)


def _edge(leg: Leg, told: list[str]) -> str:
    (x, y), (u, v) = leg.start, leg.end
    v -= HEAD if leg.arrives else 0
    enters = min(leg.enters, v)
    middle = (leg.leaves + enters) / 2
    path = f"M {x:g} {y:g} V {leg.leaves:g} C {x:g} {middle:g} {u:g} {middle:g} {u:g} {enters:g} V {v:g}"
    drawn = f'<path d="{path}" fill="none" stroke="{MUTED}" stroke-width="1.3"/>'
    if leg.arrives:
        drawn += f'<path d="M {u - 4:g} {v:g} h 8 l -4 {HEAD:g} Z" fill="{INK}"/>'
    return node(drawn, "\n".join(told), "edge")
