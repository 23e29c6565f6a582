"""Plots and drawings: figures as SVG elements of a page, and finished ones for notebooks and files."""

from __future__ import annotations

import io
import re
from dataclasses import field
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING

from polymodel.errors import Diagnostic, SpecError, writing
from polymodel.frozen import dataclass
from polymodel.spec.files import write_text
from polymodel.view.drawing import titled
from polymodel.view.figures import legible, without_trace

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


# Figures of matplotlib as SVG elements of a page: outlined letters, unique names, few bytes.

PLACES = 10  # line coordinates are rounded to this part of a point
_PATH = re.compile(r'(?<=\sd=")[^"]*(?=")')
_WORDS = re.compile(r"[A-Za-z]|-?[\d.]+(?:e-?\d+)?")


def blank(width: float, height: float) -> tuple[Figure, Axes]:
    """A figure unknown to pyplot, in inches."""
    without_trace()
    from matplotlib.figure import Figure

    figure = Figure(figsize=(width, height), layout="constrained")
    return figure, figure.subplots()


def inline(figure: Figure, title: str, prefix: str) -> str:
    """A figure as an SVG element; `prefix`: start of its names, so that two plots can share a page."""
    from matplotlib import rc_context

    out = io.StringIO()
    with rc_context({"svg.fonttype": "path", "svg.hashsalt": prefix}):
        legible(figure).savefig(out, format="svg", metadata={"Date": None})
    return _tidy(out.getvalue(), title, prefix)


def _tidy(svg: str, title: str, prefix: str) -> str:
    """The part of matplotlib's file that a page needs: short paths, unique names, and no global style."""
    svg = svg[svg.index("<svg") :]
    svg = re.sub(r"<!--.*?-->|<metadata>.*?</metadata>|<style.*?</style>", "", svg, flags=re.DOTALL)
    svg = svg.replace("xlink:href=", "href=")
    given = set(re.findall(r' id="([^"]+)"', svg))
    used = given & set(re.findall(r'(?:href="|url\()#([^")]+)', svg))  # links to elsewhere on the page stay
    svg = re.sub(r' id="([^"]+)"', lambda m: f' id="{prefix}-{m[1]}"' if m[1] in used else "", svg)
    svg = re.sub(
        r'(href="|url\()#([^")]+)', lambda m: f"{m[1]}#{prefix}-{m[2]}" if m[2] in used else m[0], svg
    )
    svg = _PATH.sub(lambda m: _shorter(m[0]), svg)
    svg = re.sub(r"\s*\n\s*", "\n", svg)
    svg = re.sub(r"<(g)>\s*</\1>", "", svg)
    looks = 'style="stroke-linejoin:round;stroke-linecap:butt" role="img"'
    return svg.replace("<svg ", f"<svg {looks} ", 1).replace(
        ">", f">{titled(title.removeprefix('Plot: '))}", 1
    )


def _shorter(path: str) -> str:
    """The same lines to a tenth of a point, in relative steps, without collinear points."""
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


# A finished drawing or page: shown by a notebook, saved as a file.


def _saved(text: str, path: str | Path, ending: str) -> Path:
    file = Path(path)
    if file.suffix.lower() != ending:
        message = f"{file} does not end in {ending}, and that is what it would hold"
        remedy = f"name it {file.with_suffix(ending).name}"
        raise SpecError([Diagnostic(message, remedy, code="unknown-format")])
    with writing(file):
        write_text(file, text)
    return file


@dataclass(frozen=True)
class Drawing:
    """An SVG document with its title."""

    title: str
    svg: str = field(repr=False)

    def _repr_svg_(self) -> str:
        return self.svg

    def save(self, path: str | Path) -> Path:
        """Write the drawing to a file that ends in .svg.

        Raises SpecError for another ending or an invalid place.
        """
        return _saved(self.svg, path, ".svg")


@dataclass(frozen=True)
class Page:
    """A self-contained HTML document that loads nothing from elsewhere.

    `height`: of its frame in a notebook, in pixels.
    """

    title: str
    html: str = field(repr=False)
    height: int = 640

    def _repr_html_(self) -> str:
        """The page in a frame of its own, in which its script runs without access to anything else."""
        from polymodel.view.html import filled

        return filled("frame.html", title=self.title, document=self.html, height=self.height)

    def save(self, path: str | Path) -> Path:
        """Write the page to a file that ends in .html.

        Raises SpecError for another ending or an invalid place.
        """
        return _saved(self.html, path, ".html")
