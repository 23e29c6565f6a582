"""The plots of a report as SVG for a page: letters as outlines, names that clash with nothing, few bytes."""

from __future__ import annotations

import io
import re
from collections.abc import Iterator
from html import escape
from itertools import pairwise
from typing import TYPE_CHECKING

from polymodel.errors import Refused
from polymodel.report.caches import without_trace
from polymodel.report.plots import plot, plot_height
from polymodel.report.plots_timeline import timeline_axes
from polymodel.report.report import Report
from polymodel.report.timeline import timeline

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

STEPS = 500  # of a timeline; of more phases each step shows the largest of a few
PLACES = 10  # parts of a point to which lines are drawn
_PATH = re.compile(r'(?<=\sd=")[^"]*(?=")')
_WORDS = re.compile(r"[A-Za-z]|-?[\d.]+(?:e-?\d+)?")
Shown = tuple[str, str, tuple[str, ...]]  # title, picture, notes


def plots_of(report: Report) -> list[Shown]:
    """Working sets, energy, roofline, and over time each memory that holds anything."""
    found: list[Shown] = []
    for name in ("working_sets", "energy", "roofline"):
        figure, ax = blank(8, plot_height(report, name))
        plot(report, name, ax)
        title = f"Plot: {name.replace('_', ' ')}"
        found.append((title, inline(figure, title, f"p{len(found)}"), ()))
    return [*found, *_over_time(report, len(found))]


def _over_time(report: Report, number: int) -> Iterator[Shown]:
    for c in report.problem.hierarchy.components:
        if c.kind != "memory":
            continue
        title = f"Plot: {c.name} over time"
        try:
            held = timeline(report, c.name)
        except Refused as refusal:
            yield title, "", (f"left out: {refusal}",)
            continue
        if not held.buffets:
            continue
        figure, ax = blank(9, 4.5)
        timeline_axes(held, c.size_bits, ax, steps=STEPS)
        yield title, inline(figure, title, f"p{number}"), ()
        number += 1


def blank(width: float, height: float) -> tuple[Figure, Axes]:
    """A figure that pyplot does not know, inches wide and high."""
    without_trace()
    from matplotlib.figure import Figure

    figure = Figure(figsize=(width, height), layout="constrained")
    return figure, figure.subplots()


def inline(figure: Figure, title: str, prefix: str) -> str:
    """A figure as an SVG element; `prefix` starts the names in it, so that two pictures share a page."""
    from matplotlib import rc_context

    out = io.StringIO()
    with rc_context({"svg.fonttype": "path", "svg.hashsalt": prefix}):
        figure.savefig(out, format="svg", metadata={"Date": None})
    return _tidy(out.getvalue(), title, prefix)


def _tidy(svg: str, title: str, prefix: str) -> str:
    """What a page needs of matplotlib's file: short paths, own names, and no style that all would get."""
    svg = svg[svg.index("<svg") :]
    svg = re.sub(r"<!--.*?-->|<metadata>.*?</metadata>|<style.*?</style>", "", svg, flags=re.DOTALL)
    svg = svg.replace("xlink:href=", "href=")
    used = set(re.findall(r'(?:href="|url\()#([^")]+)', svg))
    svg = re.sub(r' id="([^"]+)"', lambda m: f' id="{prefix}-{m[1]}"' if m[1] in used else "", svg)
    svg = re.sub(r'(href="|url\()#', rf"\1#{prefix}-", svg)
    svg = _PATH.sub(lambda m: _shorter(m[0]), svg)
    svg = re.sub(r"\s*\n\s*", "\n", svg)
    svg = re.sub(r"<(g)>\s*</\1>", "", svg)
    looks = 'style="stroke-linejoin:round;stroke-linecap:butt" role="img"'
    return svg.replace("<svg ", f"<svg {looks} ", 1).replace(
        ">", f"><title>{escape(title.removeprefix('Plot: '))}</title>", 1
    )


def _shorter(path: str) -> str:
    """The same lines to a tenth of a point, in relative steps, without points that lie on a line."""
    words = _WORDS.findall(path)
    if {w for w in words if w.isalpha()} - {"M", "L", "z"} or len(words) < 30:
        return path.replace("\n", "").strip()
    out: list[str] = []
    at = 0
    points: list[tuple[int, int]] = []
    while at < len(words):
        word = words[at]
        if word in ("M", "z"):
            out.append(_steps(points))
            points = []
        if word == "z":
            out.append("z")
            at += 1
            continue
        points.append((round(float(words[at + 1]) * PLACES), round(float(words[at + 2]) * PLACES)))
        at += 3
    return "".join([*out, _steps(points)])


def _steps(points: list[tuple[int, int]]) -> str:
    """`M x y`, then `h`, `v` and `l` from point to point."""
    if not points:
        return ""
    kept = [points[0]]
    for p, after in zip(points[1:], [*points[2:], None], strict=True):
        if p == kept[-1] and after is not None:
            continue
        level = after is not None and any(
            kept[-1][i] == p[i] == after[i] and (p[1 - i] - kept[-1][1 - i]) * (after[1 - i] - p[1 - i]) >= 0
            for i in (0, 1)
        )
        if not level:
            kept.append(p)
    text = f"M{_number(kept[0][0])} {_number(kept[0][1])}"
    for (x, y), (u, v) in pairwise(kept):
        dx, dy = u - x, v - y
        if dx and dy:
            text += f"l{_number(dx)} {_number(dy)}"
        elif dx or dy:
            text += f"h{_number(dx)}" if dx else f"v{_number(dy)}"
    return text


def _number(tenths: int) -> str:
    return f"{tenths / PLACES:g}" if abs(tenths) < 10**6 else f"{tenths / PLACES:.1f}"
