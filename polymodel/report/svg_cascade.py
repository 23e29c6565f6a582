"""The cascade as SVG: Einsums and tensors from top to bottom, along the data."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

from polymodel.frozen import dataclass
from polymodel.polyhedra.sets import size, spans
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

# Places for the boxes of an acyclic graph: layers from top to bottom, few crossings, edges around boxes.
#
# After Sugiyama, Tagawa and Toda (1981): layers by longest path, a bend in every layer that an edge skips,
# order within layers by barycentres, and places that are nearest to those of neighbours while the order
# holds. A bend takes room like a box, so no edge runs through a box.

BEND = 10.0  # room of an edge that passes a layer
APART = 20.0  # between boxes
SWEEPS = 12
PULL = 80


@dataclass(frozen=True)
class PlacedBox:
    """A box to place, pixels wide and high."""

    width: float
    height: float


@dataclass(frozen=True)
class Leg:
    """Part of an edge: straight down from `start` to the height `leaves`, across to the height `enters`, and
    straight down to `end`. Boxes are placed only next to the vertical parts. `edges`: those that share it."""

    start: tuple[float, float]
    leaves: float
    enters: float
    end: tuple[float, float]
    edges: tuple[int, ...]
    arrives: bool  # at a box, not at a bend


@dataclass(frozen=True)
class GraphLayout:
    """Centre and top of each item, the legs of all edges, and the size of everything."""

    places: tuple[tuple[float, float], ...]
    legs: tuple[Leg, ...]
    width: float
    height: float


def layered(items: Sequence[PlacedBox], edges: Sequence[tuple[int, int]], gap: float = 34.0) -> GraphLayout:
    """Lay out items so that edges run downwards; every edge goes from an item to a later one.

    Edges that leave one item share their bends. `gap`: pixels between layers.
    """
    depth = _depths(len(items), edges)
    graph = _Graph(items, edges, depth)
    rows = graph.ordered()
    xs = graph.placed(rows)
    tops, y = [], 0.0
    for row in rows:
        tops.append(y)
        y += max(graph.height(n) for n in row) + gap
    bottoms = [t - gap for t in (*tops[1:], y)]
    places = tuple((xs[i], (tops[d] + bottoms[d] - items[i].height) / 2) for i, d in enumerate(depth))
    width = max((xs[n] + graph.width(n) / 2 for n in range(len(graph.layer))), default=0.0)
    return GraphLayout(places, _legs(graph, xs, tops, bottoms), width, max(y - gap, 0.0))


def _depths(count: int, edges: Sequence[tuple[int, int]]) -> list[int]:
    """Return the longest path from any source; sources are placed just above the first item that reads
    them."""
    depth = [0] * count
    for a, b in sorted(edges, key=lambda e: e[1]):
        depth[b] = max(depth[b], depth[a] + 1)
    reached = {b for _, b in edges}
    for i in range(count):
        below = [depth[b] for a, b in edges if a == i]
        if i not in reached and below:
            depth[i] = min(below) - 1
    return depth


class _Graph:
    """Items and bends as one graph whose edges connect adjacent layers. Bends are numbered after items."""

    def __init__(
        self, items: Sequence[PlacedBox], edges: Sequence[tuple[int, int]], depth: Sequence[int]
    ) -> None:
        self.items = items
        self.layer = list(depth)
        self.links: dict[tuple[int, int], list[int]] = {}
        self.bends: dict[tuple[int, int], int] = {}
        for number, (a, b) in enumerate(edges):
            at = a
            for d in range(depth[a] + 1, depth[b]):
                if (a, d) not in self.bends:
                    self.bends[a, d] = len(self.layer)
                    self.layer.append(d)
                at = self._link(at, self.bends[a, d], number)
            self._link(at, b, number)
        self.above: list[list[int]] = [[] for _ in self.layer]
        self.below: list[list[int]] = [[] for _ in self.layer]
        for a, b in self.links:
            self.above[b].append(a)
            self.below[a].append(b)

    def _link(self, a: int, b: int, edge: int) -> int:
        self.links.setdefault((a, b), []).append(edge)
        return b

    def bend(self, n: int) -> bool:
        return n >= len(self.items)

    def width(self, n: int) -> float:
        return BEND if self.bend(n) else self.items[n].width

    def height(self, n: int) -> float:
        return 0.0 if self.bend(n) else self.items[n].height

    def ordered(self) -> list[list[int]]:
        """Return the layers with few crossings: the best of several barycentre sweeps, alternately downwards
        and upwards."""
        rows: list[list[int]] = [[] for _ in range(max(self.layer, default=-1) + 1)]
        for n, d in enumerate(self.layer):
            rows[d].append(n)
        best, fewest = [list(r) for r in rows], self._crossings(rows)
        for sweep in range(SWEEPS):
            down = sweep % 2 == 0
            near = self.above if down else self.below
            for d in range(1, len(rows)) if down else range(len(rows) - 2, -1, -1):
                fixed = {n: i for i, n in enumerate(rows[d - 1 if down else d + 1])}
                own = {n: i * len(fixed) / len(rows[d]) for i, n in enumerate(rows[d])}
                centre = {
                    n: sum(fixed[m] for m in near[n]) / len(near[n]) if near[n] else own[n] for n in rows[d]
                }
                rows[d].sort(key=lambda n: centre[n])
            found = self._crossings(rows)
            if found < fewest:
                best, fewest = [list(r) for r in rows], found
        return best

    def _crossings(self, rows: list[list[int]]) -> int:
        place = {n: i for row in rows for i, n in enumerate(row)}
        count = 0
        for row in rows:
            links = sorted((place[a], place[b]) for a in row for b in self.below[a])
            for i, (a, b) in enumerate(links):
                count += sum(1 for c, e in links[i + 1 :] if c > a and e < b)
        return count

    def placed(self, rows: list[list[int]]) -> list[float]:
        """Return the centres from 0 rightwards, each as near to those of its neighbours as its row allows."""
        xs = [0.0] * len(self.layer)
        for row in rows:
            for n, x in zip(row, self._spread(row, [0.0] * len(row), [1.0] * len(row)), strict=True):
                xs[n] = x
        for sweep in range(PULL):
            for row in rows if sweep % 2 == 0 else rows[::-1]:
                wanted, weights = [], []
                for n in row:
                    near = [(m, self._weight(n, m)) for m in (*self.above[n], *self.below[n])]
                    total = sum(w for _, w in near)
                    wanted.append(sum(w * xs[m] for m, w in near) / total if total else xs[n])
                    weights.append(total or 0.1)
                for n, x in zip(row, self._spread(row, wanted, weights), strict=True):
                    xs[n] = x
        left = min((x - self.width(n) / 2 for n, x in enumerate(xs)), default=0.0)
        return [x - left for x in xs]

    def _weight(self, n: int, m: int) -> float:
        """Return the attraction between neighbours, which is symmetric, since otherwise the layout would
        drift.

        Long edges are kept straight; a source that only one box reads is placed near that box.
        """
        if any(not self.above[k] and len(self.below[k]) == 1 for k in (n, m)):
            return 0.1
        return (1.0, 2.0, 8.0)[self.bend(n) + self.bend(m)]

    def _spread(self, row: list[int], wanted: list[float], weights: list[float]) -> list[float]:
        """Return the least-squares approximation of the desired positions in this order without overlap
        (pooled neighbours)."""
        offsets, at = [], 0.0
        for i, n in enumerate(row):
            if i:
                at += (self.width(row[i - 1]) + self.width(n)) / 2 + APART
            offsets.append(at)
        pools: list[list[float]] = []  # weight, weighted sum, members
        for want, weight, offset in zip(wanted, weights, offsets, strict=True):
            pools.append([weight, weight * (want - offset), 1])
            while len(pools) > 1 and pools[-2][1] / pools[-2][0] > pools[-1][1] / pools[-1][0]:
                last = pools.pop()
                pools[-1] = [a + b for a, b in zip(pools[-1], last, strict=True)]
        bases = [total / weight for weight, total, members in pools for _ in range(int(members))]
        return [base + offset for base, offset in zip(bases, offsets, strict=True)]


def _legs(graph: _Graph, xs: list[float], tops: list[float], bottoms: list[float]) -> tuple[Leg, ...]:
    """Return the legs of all edges, which leave a box at its middle and arrive spread over its upper side."""
    legs = []
    for b, d in enumerate(graph.layer):
        sources = sorted(graph.above[b], key=lambda n: xs[n])
        room = 0.0 if graph.bend(b) else 0.7 * graph.width(b)
        end = bottoms[d] if graph.bend(b) else (tops[d] + bottoms[d] - graph.height(b)) / 2
        for i, a in enumerate(sources):
            port = xs[b] + room * ((i + 1) / (len(sources) + 1) - 0.5)
            up = graph.layer[a]
            leaves = bottoms[up]
            start = leaves if graph.bend(a) else (tops[up] + leaves + graph.height(a)) / 2
            edges = tuple(graph.links[a, b])
            legs.append(Leg((xs[a], start), leaves, tops[d], (port, end), edges, not graph.bend(b)))
    return tuple(legs)


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

    Ranks stand with the tensors, projections with the Einsums. Long texts are shortened; tooltips have them
    in full, with the sizes of iteration spaces and tensors.
    """
    names = _in_order(cascade)
    number = {name: i for i, name in enumerate(names)}
    labels = [_label(cascade, kind, name) for kind, name in names]
    items = [PlacedBox(max(w.width + 2 * PAD, 70), w.height + PAD) for w in labels]
    flows = _flows(cascade)
    ends = [(number[a], number[b]) for a, b, _ in flows]
    plan = layered(items, [(min(pair), max(pair)) for pair in ends])
    body = [_edge(leg, [_edge_note(*flows[e]) for e in leg.edges]) for leg in plan.legs]
    for (kind, name), words, item, (x, y) in zip(names, labels, items, plan.places, strict=True):
        drawn = _box(cascade, kind, name, words, item, (x, y))
        body.append(node(drawn, _box_note(cascade, kind, name)))
    return _whole(cascade, plan, body)


def _whole(cascade: Cascade, plan: GraphLayout, body: list[str]) -> str:
    width = max(plan.width, width_of(KEY))
    moved = [f'<g transform="translate({MARGIN + (width - plan.width) / 2:g} {MARGIN})">', *body, "</g>"]
    moved.append(text(MARGIN, MARGIN + plan.height + 2 * LINE, KEY, ' class="m"', "start"))
    size = width + 2 * MARGIN, plan.height + 2 * LINE + 2 * MARGIN
    return picture(*size, f"Cascade {cascade.name}".strip(), moved, cascade_text(cascade))


Named = tuple[str, str]  # "einsum" or "tensor", and the name


def _in_order(cascade: Cascade) -> list[Named]:
    """Return every box, each after all boxes that it depends on."""
    result: dict[Named, None] = {}
    for e in cascade:
        result.update(dict.fromkeys(("tensor", a.tensor) for a in e.inputs))
        result["einsum", e.name] = None
        result.update(dict.fromkeys(("tensor", a.tensor) for a in e.outputs))
    return list(result)


def _flows(cascade: Cascade) -> list[tuple[Named, Named, TensorAccess]]:
    """Each access as (from, to, access)."""
    result = []
    for e in cascade:
        for a in e.accesses:
            ends: tuple[Named, Named] = ("tensor", a.tensor), ("einsum", e.name)
            result.append((*(ends[::-1] if a.output else ends), a))
    return result


def kind_of(cascade: Cascade, tensor: str) -> str:
    """`input`, `intermediate` or `output`."""
    if cascade.producer(tensor) is None:
        return "input"
    return "intermediate" if tensor in cascade.intermediates else "output"


def persistent(cascade: Cascade, tensor: str) -> bool:
    """True if a copy stays in backing storage for the whole run."""
    return any(a.persistent for e in cascade for a in e.accesses if a.tensor == tensor)


def shape_of(cascade: Cascade, tensor: str) -> tuple[tuple[str, int], ...]:
    """(rank, size) of the bounding box of all elements that any Einsum touches; none lies in the padding."""
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


def _box_note(cascade: Cascade, kind: str, name: str) -> str:
    """Return the full description of one box, one statement per line."""
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


def _edge_note(a: Named, b: Named, access: TensorAccess) -> str:
    pairs = zip(access.ranks, access.projection, strict=True)
    return f"{a[1]} → {b[1]}: {access.tensor}[{', '.join(f'{rank}={x}' for rank, x in pairs)}]"


def _box(
    cascade: Cascade, kind: str, name: str, words: Label, item: PlacedBox, place: tuple[float, float]
) -> str:
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
