"""The hierarchy as SVG: memories are cylinders, compute ovals, fanouts frames around what they replicate."""

from __future__ import annotations

from collections.abc import Mapping

from polymodel.architecture.hierarchy import (
    Component,
    Hierarchy,
    facts,
    hierarchy_text,
    sparse_text,
    tiles_text,
)
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
)

GAP = 16
MARGIN = 16
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


def _told(hierarchy: Hierarchy, component: Component, tips: Mapping[str, str]) -> str:
    """Everything about one component, a line each."""
    lines = [f"{component.name} ({component.kind})", *facts(component)]
    if (many := hierarchy.instances(component.name)) > 1:
        lines.append(f"{many} instances")
    if component.sparse is not None:
        lines.append(f"sparse: {sparse_text(component.sparse)}")
    if component.data_tiles is not None:
        lines.append(f"data tiles: {tiles_text(component.data_tiles, component)}")
    return "\n".join([*lines, *filter(None, [tips.get(component.name, "")])])


def architecture_svg(hierarchy: Hierarchy, tips: Mapping[str, str] | None = None) -> str:
    """The hierarchy as an SVG document, outermost component on top.

    Each component tells itself in full under the mouse, and what `tips` has for its name.
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
    bottom: float | None = None
    for c in hierarchy.components:
        if c.spatial:
            open_frames.append((c, y))
            y += HEAD
        label, w, h = sizes[c.name]
        if not c.acts:
            continue
        if bottom is not None:
            lines.append(line(x, bottom, x, y))
        drawn_shape = shape(c.kind, label, x, y, w, h, shades.get(c.name, ("", "")))
        shapes.append(node(drawn_shape, _told(hierarchy, c, tips or {})))
        bottom = y + h
        y = bottom + GAP
    y = (bottom or y) + PAD
    drawn: list[str] = []
    titles: list[str] = []
    for depth, (c, top) in reversed(list(enumerate(open_frames))):
        left = MARGIN + depth * INSET
        drawn.insert(0, rectangle(left, top, width - 2 * left, y - top, "none", "#8a6d00", dashed=True))
        titles.append(_titled(left + 8, top + LINE, fanout_text(c)))
        y += PAD
    body = [*drawn, *lines, *titles, *shapes]
    return picture(
        width, y + MARGIN, f"Architecture {hierarchy.name}".strip(), body, hierarchy_text(hierarchy)
    )


def _titled(x: float, y: float, title: str) -> str:
    """A frame's title on a patch of white, since the line to what it frames may cross it."""
    patch = f'<rect x="{x - 2:g}" y="{y - 11:g}" width="{width_of(title) + 4:g}" height="15" fill="#ffffff"/>'
    return patch + text(x, y, title, ' class="m"', "start")
