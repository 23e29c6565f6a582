"""The writer of SVG drawings: shapes and texts with every text escaped, sizes in pixels, and widths of
texts."""

from __future__ import annotations

from html import escape

from polymodel.errors import masked
from polymodel.frozen import dataclass

CHAR = 6.7
LINE = 16
PAD = 10
CAP = 7
INK = "#1f2933"
MUTED = "#616e7c"
# Fill and edge per component, in order of appearance; distinguishable in grey and for colour-blind readers.
PALETTE = (
    ("#dbeafe", "#2563a8"), ("#fde9d0", "#b45309"), ("#dcf3e3", "#1d7a46"), ("#efe3fa", "#7440a8"),
    ("#fbe0e6", "#b02a50"), ("#e2eef0", "#2b6b78"), ("#f3efcf", "#7d6b10"), ("#e6e6e6", "#4a4a4a"),
)  # fmt: skip
# Advances of DejaVu Sans, the widest of the fonts named below, in thousandths of the font size.
_CLASSES = (
    (300, "ijlIJ'"), (340, " .,:;/|\\"), (415, "ftr!()[]-`²"), (550, "?\"*_csz"), (700, "CRBAVXZ"),
    (790, "DGHNOQUY&"), (870, "wM#<>=+~^×"), (1000, "mW@%…→·"),
)  # fmt: skip
_ADVANCES = {c: advance for advance, letters in _CLASSES for c in letters}
SIZE = 11
NAME = 26  # characters of a name that are shown
STYLE = (
    "text{font-family:ui-sans-serif,'DejaVu Sans',Verdana,Arial,sans-serif;font-size:11px;fill:" + INK + "}"
    ".b{font-weight:bold}.m{fill:" + MUTED + "}"
)


def escaped(words: str) -> str:
    """The words as text of a drawing: markup is escaped, and control characters become `?`."""
    return escape(masked(words))


def width_of(content: str, *, bold: bool = False) -> float:
    """Upper bound of the width of a line of text, in pixels; letters missing from the table count as wide
    ones."""
    units = sum(_ADVANCES.get(c, 640 if c.isascii() else 1000) for c in content)
    return units * SIZE / 1000 * (1.13 if bold else 1)


def short(name: str, most: int = NAME) -> str:
    """The name; if longer than `most` characters, without its middle, which is given elsewhere."""
    if len(name) <= most:
        return name
    tail = most // 3
    return f"{name[: most - tail - 1]}…{name[-tail:]}"


@dataclass(frozen=True)
class Label:
    """Lines of text in one shape; the first may be bold."""

    lines: tuple[str, ...]
    bold: bool = True

    @property
    def width(self) -> float:
        wide = [width_of(t, bold=self.bold and i == 0) for i, t in enumerate(self.lines)]
        return max(wide, default=0)

    @property
    def height(self) -> float:
        return LINE * len(self.lines)

    def draw(self, x: float, middle: float) -> str:
        """The label as SVG, centred at x, around the height `middle`."""
        top = middle - self.height / 2 + LINE * 0.72
        parts = []
        for i, line in enumerate(self.lines):
            weight = ' class="b"' if self.bold and i == 0 else ""
            parts.append(text(x, top + i * LINE, line, weight))
        return "".join(parts)


def text(x: float, y: float, content: str, attributes: str = "", anchor: str = "middle") -> str:
    return f'<text x="{x:g}" y="{y:g}" text-anchor="{anchor}"{attributes}>{escaped(content)}</text>'


def wrapped(words: tuple[str, ...], limit: int) -> tuple[str, ...]:
    """Words joined by commas into lines of about `limit` characters."""
    lines: list[str] = []
    for i, word in enumerate(words):
        piece = word + ("," if i < len(words) - 1 else "")
        if lines and len(lines[-1]) + 1 + len(piece) <= limit:
            lines[-1] += " " + piece
        else:
            lines.append(piece)
    return tuple(lines)


def rectangle(x: float, y: float, w: float, h: float, fill: str, edge: str, *, dashed: bool = False) -> str:
    dash = ' stroke-dasharray="5 3"' if dashed else ""
    return (
        f'<rect x="{x:g}" y="{y:g}" width="{w:g}" height="{h:g}" rx="3" fill="{fill}" stroke="{edge}" '
        f'stroke-width="1.3"{dash}/>'
    )


def oval(x: float, y: float, w: float, h: float, fill: str, edge: str) -> str:
    return (
        f'<ellipse cx="{x + w / 2:g}" cy="{y + h / 2:g}" rx="{w / 2:g}" ry="{h / 2:g}" fill="{fill}" '
        f'stroke="{edge}" stroke-width="1.3"/>'
    )


def cylinder(x: float, y: float, w: float, h: float, fill: str, edge: str) -> str:
    """A drum in the box (x, y, w, h); its lid is 2 CAP high."""
    right, low = x + w, y + h - CAP
    arc = f"A {w / 2:g} {CAP} 0 0"
    body = f"M {x:g} {y + CAP:g} {arc} 1 {right:g} {y + CAP:g} V {low:g} {arc} 1 {x:g} {low:g} Z"
    lid = f"M {x:g} {y + CAP:g} {arc} 0 {right:g} {y + CAP:g}"
    return (
        f'<path d="{body}" fill="{fill}" stroke="{edge}" stroke-width="1.3"/>'
        f'<path d="{lid}" fill="none" stroke="{edge}" stroke-width="1.3"/>'
    )


def shape(
    kind: str, label: Label, x: float, y: float, w: float, h: float, shade: tuple[str, str] = ("", "")
) -> str:
    """A labelled shape centred at x from y down: `memory` (in its shade), `compute`, `spatial` or `plain`."""
    left, middle = x - w / 2, y + h / 2
    if kind == "memory":
        return cylinder(left, y, w, h, *shade) + label.draw(x, middle + CAP)
    if kind == "compute":
        drawn = oval(left, y, w, h, "#ffffff", INK)
    elif kind == "spatial":
        drawn = rectangle(left, y, w, h, "#fffbe6", "#8a6d00", dashed=True)
    else:
        drawn = rectangle(left, y, w, h, "#f5f7fa", "#7b8794")
    return drawn + label.draw(x, middle)


def line(x1: float, y1: float, x2: float, y2: float, width: float = 1.3) -> str:
    return (
        f'<line x1="{x1:g}" y1="{y1:g}" x2="{x2:g}" y2="{y2:g}" stroke="{MUTED}" stroke-width="{width:g}" '
        'stroke-linecap="round"/>'
    )


def described(words: str) -> str:
    """The description for readers who do not see the drawing."""
    return f"<desc>{escaped(words)}</desc>"


def titled(words: str) -> str:
    """The tooltip of a shape."""
    return f"<title>{escaped(words)}</title>"


def node(drawn: str, tooltip: str, kind: str = "node") -> str:
    """A shape with its text, or an edge, as one group with this tooltip."""
    return f'<g class="{kind}">{titled(tooltip)}{drawn}</g>'


def picture(width: float, height: float, title: str, body: list[str], description: str = "") -> str:
    """A complete SVG document on white; `description` describes it in words."""
    words = described(description) if description else ""
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width:.0f}" height="{height:.0f}" '
        f'viewBox="0 0 {width:.0f} {height:.0f}" role="img">{titled(title)}{words}'
        f"<style>{STYLE}</style>"
        f'<rect width="100%" height="100%" fill="#ffffff"/>\n' + "\n".join(body) + "\n</svg>\n"
    )


def colours(names: list[str]) -> dict[str, tuple[str, str]]:
    """Fill and edge colour per name, in order of appearance."""
    return {n: PALETTE[i % len(PALETTE)] for i, n in enumerate(dict.fromkeys(names))}
