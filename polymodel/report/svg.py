"""LoopTrees as SVG: loops are rectangles, storage cylinders, compute ovals, splits forks."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping

from polymodel.architecture.hierarchy import (
    Component,
    Hierarchy,
    facts,
    hierarchy_text,
    sparse_text,
    tiles_text,
)
from polymodel.frozen import dataclass
from polymodel.mapping.looptree import (
    ComputeNode,
    Loop,
    LoopTree,
    Node,
    Split,
    StorageNode,
    looptree_text,
    node_notes,
    node_text,
)
from polymodel.spec.arch_schema import branches_to
from polymodel.view.drawing import (
    CAP,
    LINE,
    PAD,
    Label,
    colours,
    line,
    node,
    picture,
    rectangle,
    shape,
    short,
    text,
    width_of,
    wrapped,
)
from polymodel.workload.einsum import Cascade

GAP = 14
FORK = 26
BETWEEN = 22
MARGIN = 16
Colours = dict[str, tuple[str, str]]


@dataclass(frozen=True)
class Box:
    """A node's shape before it is placed."""

    node: Node
    label: Label
    width: float
    height: float
    told: str


@dataclass(frozen=True)
class BranchColumns:
    """A chain of boxes and, below them, the columns of a split's branches; `split`: how the branches run."""

    boxes: tuple[Box, ...]
    branches: tuple[BranchColumns, ...]
    split: str
    width: float
    height: float


def label(node: Node, mark: str = "") -> Label:
    """Return the text of a node; `mark` says what a loop infers or repeats. Long names are shortened."""
    if isinstance(node, StorageNode):
        policy = (node.reuse.label.replace("_", " "),) if node.reuse.label else ()
        return Label((short(node.component), *_listed(node.tensors), *policy))
    if isinstance(node, ComputeNode):
        return Label((short(node.einsum), short(node.component)))
    assert isinstance(node, Loop)
    first = "" if node.initial_tile_shape is None else f", first {short(str(node.initial_tile_shape))}"
    tile = "" if node.tiles else f": tile {short(str(node.tile_shape))}"
    head = f"{'parallel' if node.spatial else 'for'} {short(node.rank_variable)}{tile}{first}"
    bound = wrapped(tuple(f"{short(e)}: {short(v)}" for e, v in node.per_einsum), 24)
    bound += wrapped(tuple(f"tile {short(str(t))} in {short(e)}" for e, t in node.tiles), 28)
    bound += wrapped(tuple(f"first {short(str(t))} in {short(e)}" for e, t in node.first_tiles), 28)
    where = (f"over {short(node.component)}.{short(node.dim)}",) if node.spatial else ()
    noted = tuple(
        line
        for verb in mark.split("; ")
        if verb
        for line in wrapped(tuple(short(n, 40) for n in verb.split(", ")), 28)
    )
    return Label((head, *bound, *where, *noted), bold=False)


def _listed(tensors: tuple[str, ...]) -> tuple[str, ...]:
    """Break names into lines such that the box is about twice as wide as it is high."""
    names = tuple(short(t) for t in tensors)
    return wrapped(names, max(18, round(2.4 * math.sqrt(sum(len(n) + 2 for n in names)))))


def _box(node: Node, mark: str, told: str) -> Box:
    words = label(node, mark)
    width, height = words.width + 2 * PAD, words.height + PAD
    if isinstance(node, StorageNode):
        return Box(node, words, max(width, 70), height + 3 * CAP, told)
    if isinstance(node, ComputeNode):
        return Box(node, words, max(width * 1.3, 80), height + PAD, told)
    return Box(node, words, max(width, 90), height, told)


def _column(
    nodes: tuple[Node, ...], ids: Iterator[int], noted: Mapping[int, str], tips: Mapping[int, str]
) -> BranchColumns:
    marked = []
    for n in nodes:
        here = next(ids)
        mark = noted.get(here, "")
        told = f"{node_text(n, mark)}\n{tips[here]}" if here in tips else node_text(n, mark)
        marked.append((n, mark, told))
    boxes = tuple(_box(*each) for each in marked if not isinstance(each[0], Split))
    height = sum(b.height for b in boxes) + GAP * max(len(boxes) - 1, 0)
    width = max((b.width for b in boxes), default=0.0)
    last = nodes[-1] if nodes else None
    if not isinstance(last, Split):
        return BranchColumns(boxes, (), "", width, height)
    branches = tuple(_column(b, ids, noted, tips) for b in last.branches)
    spread = sum(b.width for b in branches) + BETWEEN * (len(branches) - 1)
    deep = max((b.height for b in branches), default=0.0)
    mark = marked[-1][1]
    kind = f"pipeline: {mark}" if mark else "pipeline" if last.pipeline else "sequential"
    wide = max(width, spread, 100, 2 * width_of(kind) + 2 * PAD if mark else 0)
    return BranchColumns(boxes, branches, kind, wide, height + 2 * FORK + deep)


def _shape(box: Box, x: float, y: float, shades: Colours) -> str:
    of, place = box.node, (box.label, x, y, box.width, box.height)
    if isinstance(of, StorageNode):
        return node(shape("memory", *place, shades[of.component]), box.told)
    if isinstance(of, ComputeNode):
        return node(shape("compute", *place), box.told)
    return node(shape("spatial" if isinstance(of, Loop) and of.spatial else "plain", *place), box.told)


def _draw(column: BranchColumns, x: float, y: float, shades: Colours, out: list[str]) -> None:
    """Draw a column centred at x from y downwards; lines first, so that shapes cover them."""
    shapes = []
    for i, box in enumerate(column.boxes):
        if i:
            out.append(line(x, y - GAP, x, y))
        shapes.append(_shape(box, x, y, shades))
        y += box.height + (GAP if i < len(column.boxes) - 1 else 0)
    out += shapes
    if not column.branches:
        return
    bar = y + FORK
    out.append(line(x, y, x, bar))
    spread = sum(b.width for b in column.branches) + BETWEEN * (len(column.branches) - 1)
    left = x - spread / 2
    centres = []
    for branch in column.branches:
        centres.append(left + branch.width / 2)
        left += branch.width + BETWEEN
    out.append(line(min(centres[0], x), bar, max(centres[-1], x), bar, 3))
    out.append(text(x + 6, bar - 8, column.split, ' class="m"', "start"))
    for i, (centre, branch) in enumerate(zip(centres, column.branches, strict=True)):
        out.append(line(centre, bar, centre, bar + FORK))
        out.append(text(centre + 5, bar + 15, str(i + 1), ' class="m"', "start"))
        _draw(branch, centre, bar + FORK, shades, out)


def looptree_svg(
    tree: LoopTree, cascade: Cascade | None = None, tips: Mapping[int, str] | None = None
) -> str:
    """The LoopTree as an SVG document; branches are numbered in order of execution.

    With the cascade, loops say which Einsums they infer or repeat. The tooltip of each node has its full
    text, and the entry of `tips` for its number.
    """
    noted = node_notes(tree, cascade)
    column = _column(tree.nodes, iter(range(10**9)), noted, tips or {})
    shades = colours([n.component for _, n, _ in tree.walk() if isinstance(n, StorageNode)])
    body: list[str] = []
    _draw(column, MARGIN + column.width / 2, MARGIN, shades, body)
    size = column.width + 2 * MARGIN, column.height + 2 * MARGIN
    return picture(*size, f"LoopTree {tree.name}".strip(), body, looptree_text(tree, cascade))


# The hierarchy as SVG: memories are cylinders, compute ovals, fanouts frames around what they replicate.

BOX_GAP = 16
INSET = 14
HEAD = LINE + 12


def _size(component: Component) -> tuple[Label, float, float]:
    label = Label((short(component.name), *facts(component)))
    height = label.height + (3 * CAP + PAD if component.stores else 2 * PAD)
    factor = 1.3 if component.computes else 1
    return label, max(label.width * factor + 2 * PAD, 110), height


def fanout_text(component: Component) -> str:
    """`PE: X 16, Y 16` for the frame of a component's fanout."""
    dims = ", ".join(f"{short(d.name)} × {d.fanout}" for d in component.spatial)
    return f"{short(component.name)}: {dims}"


def _component_note(hierarchy: Hierarchy, component: Component, tips: Mapping[str, str]) -> str:
    """Return the full description of one component, one statement per line."""
    lines = [f"{component.name} ({component.kind})", *facts(component)]
    lines += [f"on branch {component.branch}"] if component.branch else []
    if (many := hierarchy.instances(component.name)) > 1:
        lines.append(f"{many} instances")
    if component.sparse is not None:
        lines.append(f"sparse: {sparse_text(component.sparse)}")
    if component.data_tiles is not None:
        lines.append(f"data tiles: {tiles_text(component.data_tiles, component)}")
    return "\n".join([*lines, *filter(None, [tips.get(component.name, "")])])


def architecture_svg(hierarchy: Hierarchy, tips: Mapping[str, str] | None = None) -> str:
    """The hierarchy as an SVG document, outermost component on top.

    The tooltip of each component has its full description, and the entry of `tips` for its name.
    """
    frames = sum(1 for c in hierarchy.components if c.spatial)
    sizes = {c.name: _size(c) for c in hierarchy.components}
    # A frame may be wider than its content because of its own title.
    inner = max(
        [w for _, w, _ in sizes.values()]
        + [width_of(fanout_text(c)) + 2 * PAD for c in hierarchy.components if c.spatial]
    )
    width = inner + 2 * (MARGIN + frames * INSET) + 2 * PAD
    x, y = width / 2, float(MARGIN)
    shades = colours(list(hierarchy.memories))
    lines: list[str] = []
    shapes: list[str] = []
    open_frames: list[tuple[Component, float]] = []
    closed: list[tuple[int, Component, float, float]] = []  # depth, whose fanout, top, bottom
    ends: dict[str, float] = {}  # where the last component of each branch ends

    def close(way: tuple[str, ...], y: float) -> float:
        """End the frames of branches that are not on a path."""
        while open_frames and open_frames[-1][0].branch not in way:
            inner, top = open_frames.pop()
            closed.append((len(open_frames), inner, top, y))
            y += PAD
        return y

    for c in hierarchy.components:
        way = branches_to(c.branch)
        y = close(way, y)
        if c.spatial:
            open_frames.append((c, y))
            y += HEAD
        label, w, h = sizes[c.name]
        if not c.acts:
            continue
        above = next((ends[b] for b in reversed(way) if b in ends), None)
        if above is not None:
            lines.append(line(x, above, x, y))
        drawn_shape = shape(c.kind, label, x, y, w, h, shades.get(c.name, ("", "")))
        shapes.append(node(drawn_shape, _component_note(hierarchy, c, tips or {})))
        ends[c.branch] = y + h
        y += h + BOX_GAP
    y = max(ends.values(), default=y) + PAD
    y = close((), y)
    drawn: list[str] = []
    titles: list[str] = []
    for depth, c, top, low in closed:
        left = MARGIN + depth * INSET
        drawn.insert(0, rectangle(left, top, width - 2 * left, low - top, "none", "#8a6d00", dashed=True))
        titles.append(_titled(left + 8, top + LINE, fanout_text(c)))
    body = [*drawn, *lines, *titles, *shapes]
    return picture(
        width, y + MARGIN, f"Architecture {hierarchy.name}".strip(), body, hierarchy_text(hierarchy)
    )


def _titled(x: float, y: float, title: str) -> str:
    """Draw a frame's title on a white background, since a line to the framed component may cross it."""
    patch = f'<rect x="{x - 2:g}" y="{y - 11:g}" width="{width_of(title) + 4:g}" height="15" fill="#ffffff"/>'
    return patch + text(x, y, title, ' class="m"', "start")
