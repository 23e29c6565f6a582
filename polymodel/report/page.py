"""One HTML page for everything that is written as one: its looks, its script, its policy."""

from __future__ import annotations

import re
from base64 import b64encode
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cache
from hashlib import sha256
from html import escape
from importlib.resources import files

from polymodel.errors import masked
from polymodel.report.drawing import INK, MUTED

# What fragments in notebooks bring; whole pages add assets/report.css.
CSS = f"""
.pm{{font:14px/1.45 system-ui,'DejaVu Sans',Arial,sans-serif;color:{INK}}}
.pm table{{border-collapse:collapse;margin:.4em 0 1.2em;font-size:13px}}
.pm th{{text-align:left;border-bottom:2px solid #9aa5b1;padding:3px 10px;white-space:nowrap}}
.pm td{{text-align:left;border-bottom:1px solid #e4e7eb;padding:2px 10px;white-space:nowrap}}
.pm th.n,.pm td.n{{text-align:right;font-variant-numeric:tabular-nums}}
.pm .bad{{color:#a61b1b;font-weight:bold}}.pm .note{{color:{MUTED}}}
.pm .wide{{overflow-x:auto;margin:.5em 0 1.2em}}.pm pre{{overflow-x:auto}}
.pm summary{{cursor:pointer;font-weight:bold;margin:.4em 0}}
"""


@dataclass(frozen=True)
class Part:
    """A section of a page: its heading, what stands below it, and whether that is unfolded at first."""

    title: str
    body: str
    opened: bool = False

    @property
    def anchor(self) -> str:
        """What links lead to: the heading in small letters."""
        return re.sub(r"[^a-z0-9]+", "-", self.title.lower()).strip("-") or "part"


@cache
def _asset(name: str) -> str:
    return (files("polymodel.report") / "assets" / name).read_text(encoding="utf-8")


def page(title: str, body: str, parts: Sequence[Part] = ()) -> str:
    """A whole HTML document: nothing in it is fetched, and no script but its own may run.

    Tables with a head sort, and filter where they have more than a few rows. `parts` fold, below a table of
    contents.
    """
    script, title = _asset("report.js"), masked(title)
    allowed = b64encode(sha256(script.encode()).digest()).decode()
    policy = (
        f"default-src 'none'; style-src 'unsafe-inline'; script-src 'sha256-{allowed}'; "
        "base-uri 'none'; form-action 'none'"
    )
    return (
        '<!DOCTYPE html>\n<html lang="en"><head><meta charset="utf-8">'
        f'<meta http-equiv="Content-Security-Policy" content="{policy}">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>{escape(title)}</title><style>{CSS}{_asset('report.css')}</style></head>\n"
        f'<body class="pm"><main><h1>{escape(title)}</h1>\n{body}\n{_folded(parts)}</main>\n'
        f"<script>{script}</script></body></html>\n"
    )


def _folded(parts: Sequence[Part]) -> str:
    if not parts:
        return ""
    places: dict[str, Part] = {}
    for part in parts:  # names that differ in signs alone would lead to one place
        again = sum(p.anchor == part.anchor for p in places.values())
        places[f"{part.anchor}-{again + 1}" if again else part.anchor] = part
    links = "".join(f'<li><a href="#{at}">{escape(p.title)}</a></li>' for at, p in places.items())
    sections = "\n".join(
        f'<details class="part" id="{at}"{" open" if p.opened else ""}>'
        f"<summary><h2>{escape(p.title)}</h2></summary>\n{p.body}</details>"
        for at, p in places.items()
    )
    return f'<nav aria-label="Contents"><ul>{links}</ul></nav>\n{sections}\n'


def preformatted(text: str) -> str:
    return f'<pre tabindex="0">{escape(text)}</pre>'


def saveable(text: str, name: str) -> str:
    """Text that a reader may copy, or save as the file `name`."""
    return f'<pre class="file" data-file="{escape(name)}" tabindex="0">{escape(text)}</pre>'


def facts(pairs: Iterable[tuple[str, str]]) -> str:
    """Names and what they are, as a table without a head."""
    rows = "".join(f'<tr><th scope="row">{escape(k)}</th><td>{escape(v)}</td></tr>' for k, v in pairs)
    return f'<table class="facts">{rows}</table>'


def noted(notes: Iterable[str]) -> str:
    """A paragraph per note."""
    return "".join(f'<p class="note">{escape(n)}</p>' for n in notes)


def plotted(svg: str, name: str) -> str:
    """A plot that is as wide as the page, or scrolls where its letters get too small; "" for none."""
    if not svg:
        return ""
    return f'<figure class="plot" tabindex="0" aria-label="{escape(name)}">{svg}</figure>'


def drawn(svg: str, name: str = "picture") -> str:
    """An SVG picture as large as it is, which scrolls where it is larger than the page."""
    return f'<div class="picture" tabindex="0" role="group" aria-label="{escape(name)}">{svg}</div>'
