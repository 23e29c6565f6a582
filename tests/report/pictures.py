"""What any picture of boxes and edges must be: nothing overlaps, is cut, or runs through something else."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import combinations
from xml.etree import ElementTree

from polymodel.view.drawing import width_of

SVG = "{http://www.w3.org/2000/svg}"
SLACK = 0.6  # pixels: coordinates are rounded to six digits, and lines have a width
Point = tuple[float, float]


@dataclass(frozen=True)
class Rect:
    left: float
    top: float
    right: float
    bottom: float

    def meets(self, other: Rect) -> bool:
        """True if they share more than an edge."""
        across = min(self.right, other.right) - max(self.left, other.left)
        along = min(self.bottom, other.bottom) - max(self.top, other.top)
        return across > SLACK and along > SLACK

    def holds(self, other: Rect) -> bool:
        return (
            self.left <= other.left + SLACK
            and self.top <= other.top + SLACK
            and self.right >= other.right - SLACK
            and self.bottom >= other.bottom - SLACK
        )

    def has(self, point: Point) -> bool:
        """True for a point well inside."""
        x, y = point
        return self.left + 1 < x < self.right - 1 and self.top + 1 < y < self.bottom - 1


@dataclass(frozen=True)
class Shown:
    """A box with its text and what it tells."""

    box: Rect
    texts: tuple[tuple[str, Rect], ...]
    told: str


@dataclass(frozen=True)
class Seen:
    """A picture taken apart: its size, boxes, text beside boxes, and edges as points along them."""

    page: Rect
    nodes: tuple[Shown, ...]
    loose: tuple[tuple[str, Rect], ...]
    edges: tuple[tuple[Point, ...], ...]


def taken_apart(svg: str) -> Seen:
    root = ElementTree.fromstring(svg)
    _, _, width, height = map(float, root.attrib["viewBox"].split())
    nodes: list[Shown] = []
    loose: list[tuple[str, Rect]] = []
    edges: list[tuple[Point, ...]] = []
    _visit(root, (0.0, 0.0), nodes, loose, edges)
    return Seen(Rect(0, 0, width, height), tuple(nodes), tuple(loose), tuple(edges))


def _visit(
    element: ElementTree.Element,
    moved: Point,
    nodes: list[Shown],
    loose: list[tuple[str, Rect]],
    edges: list[tuple[Point, ...]],
) -> None:
    if found := re.match(r"translate\((\S+) (\S+)\)", element.get("transform", "")):
        moved = moved[0] + float(found[1]), moved[1] + float(found[2])
    if element.get("class") == "node":
        told = element.findtext(f"{SVG}title") or ""
        texts = tuple(_text(t, moved) for t in element.iter(f"{SVG}text"))
        nodes.append(Shown(_shape(element, moved), texts, told))
        return
    if element.get("class") == "edge":
        line = next(element.iter(f"{SVG}path"))
        edges.append(tuple(_along(line.attrib["d"], moved)))
        return
    if element.tag == f"{SVG}text":
        loose.append(_text(element, moved))
    if element.tag == f"{SVG}line":
        x1, y1, x2, y2 = (float(element.attrib[k]) for k in ("x1", "y1", "x2", "y2"))
        ends = ((x1 + moved[0], y1 + moved[1]), (x2 + moved[0], y2 + moved[1]))
        edges.append(tuple(_between(*ends)))
    for child in element:
        _visit(child, moved, nodes, loose, edges)


def _between(a: Point, b: Point) -> Iterator[Point]:
    for k in range(65):
        yield a[0] + (b[0] - a[0]) * k / 64, a[1] + (b[1] - a[1]) * k / 64


def _shape(group: ElementTree.Element, moved: Point) -> Rect:
    for child in group:
        if child.tag == f"{SVG}rect":
            x, y, w, h = (float(child.attrib[k]) for k in ("x", "y", "width", "height"))
        elif child.tag == f"{SVG}ellipse":
            cx, cy, rx, ry = (float(child.attrib[k]) for k in ("cx", "cy", "rx", "ry"))
            x, y, w, h = cx - rx, cy - ry, 2 * rx, 2 * ry
        elif child.tag == f"{SVG}path":  # a drum: from its left upper corner to the right one, down and back
            d = child.attrib["d"].split()
            x, y, cap = float(d[1]), float(d[2]), float(d[5])
            w, h = float(d[9]) - x, float(d[12]) - y + 2 * cap
            y -= cap
        else:
            continue
        return Rect(x + moved[0], y + moved[1], x + w + moved[0], y + h + moved[1])
    raise AssertionError("a node without a shape")


def _text(element: ElementTree.Element, moved: Point) -> tuple[str, Rect]:
    content = element.text or ""
    width = width_of(content, bold=element.get("class") == "b")
    x, y = float(element.attrib["x"]) + moved[0], float(element.attrib["y"]) + moved[1]
    left = x - width / 2 if element.get("text-anchor") == "middle" else x
    return content, Rect(left, y - 8.5, left + width, y + 2.5)


def _along(d: str, moved: Point) -> Iterator[Point]:
    """Points along `M x y V y C x y x y x y V y`."""
    words = iter(d.split())
    at = (0.0, 0.0)
    for word in words:
        if word == "M":
            at = float(next(words)) + moved[0], float(next(words)) + moved[1]
            yield at
        elif word == "V":
            goal = at[0], float(next(words)) + moved[1]
            yield from _between(at, goal)
            at = goal
        elif word == "C":
            n = [float(next(words)) + moved[i % 2] for i in range(6)]
            p = [at, (n[0], n[1]), (n[2], n[3]), (n[4], n[5])]
            for k in range(65):
                t = k / 64
                weights = ((1 - t) ** 3, 3 * t * (1 - t) ** 2, 3 * t * t * (1 - t), t**3)
                x, y = (sum(w * q[i] for w, q in zip(weights, p, strict=True)) for i in (0, 1))
                yield x, y
            at = p[3]
        else:
            raise AssertionError(f"an edge with {word}")


def faults(svg: str) -> list[str]:
    """What is wrong with a picture, in words; empty if nothing is."""
    seen = taken_apart(svg)
    found = []
    for a, b in combinations(seen.nodes, 2):
        if a.box.meets(b.box):
            found.append(f"boxes overlap: {a.told!r} and {b.told!r}")
    words = [(text, rect) for n in seen.nodes for text, rect in n.texts] + list(seen.loose)
    for n in seen.nodes:
        found += [f"{text!r} leaves its box" for text, rect in n.texts if not n.box.holds(rect)]
    for (one, a), (two, b) in combinations(words, 2):
        if a.meets(b):
            found.append(f"texts overlap: {one!r} and {two!r}")
    for text, rect in seen.loose:
        found += [f"{text!r} lies on a box: {n.told!r}" for n in seen.nodes if rect.meets(n.box)]
    for thing in [n.box for n in seen.nodes] + [rect for _, rect in words]:
        if not seen.page.holds(thing):
            found.append(f"{thing} is outside the picture")
    for edge in seen.edges:
        for n in seen.nodes:
            inside = [p for p in edge if n.box.has(p)]
            if inside:
                found.append(f"an edge runs through {n.told!r} at {inside[0]}")
        if any(not seen.page.holds(Rect(*p, *p)) for p in edge):
            found.append("an edge leaves the picture")
    return found
