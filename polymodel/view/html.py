"""The writer of HTML: templates that escape all values, and the assets of complete pages.

Imported only when a page or a notebook's fragment is made, since the template engine takes time to load.
"""

from __future__ import annotations

import re
from base64 import b64encode
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cache
from hashlib import sha256
from importlib.resources import files
from typing import TYPE_CHECKING

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from polymodel.errors import masked
from polymodel.view.drawing import INK, MUTED

if TYPE_CHECKING:
    from polymodel.view.answer import Block, Part, Section
    from polymodel.view.table import Cell, Column, Table

# The styles of fragments in notebooks; complete pages use assets/report.css.
CSS = f"""
.pm{{font:14px/1.45 system-ui,'DejaVu Sans',Arial,sans-serif;color:{INK}}}
.pm table{{border-collapse:collapse;margin:.4em 0 1.2em;font-size:13px}}
.pm th{{text-align:left;border-bottom:2px solid #9aa5b1;padding:3px 10px;white-space:nowrap}}
.pm td{{text-align:left;border-bottom:1px solid #e4e7eb;padding:2px 10px;white-space:nowrap}}
.pm th.n,.pm td.n{{text-align:right;font-variant-numeric:tabular-nums}}
.pm td.f{{white-space:normal;max-width:32em;overflow-wrap:anywhere}}.pm td.f .one{{white-space:nowrap}}
.pm .bad{{color:#a61b1b;font-weight:bold}}.pm .note{{color:{MUTED}}}
.pm .wide{{overflow-x:auto;margin:.5em 0 1.2em}}.pm pre{{overflow-x:auto}}
.pm summary{{cursor:pointer;font-weight:bold;margin:.4em 0}}
"""
_POWER = re.compile(r"\^(\w+|\([^()]*\))")
_LINE = 60  # characters of a formula that stay on one line


@dataclass(frozen=True)
class Head:
    """The heading of a column, for the template."""

    text: str
    title: str
    right: bool


@dataclass(frozen=True)
class TemplateCell:
    """One cell, for the template. `spans`: pieces of a formula, and whether each is raised."""

    text: str
    title: str = ""
    right: bool = False
    link: str = ""
    spans: tuple[tuple[str, bool], ...] = ()

    @property
    def short(self) -> bool:
        """Whether a formula stays on one line."""
        return len(self.text) <= _LINE


@dataclass(frozen=True)
class HtmlTable:
    """A table, for the template; exact values are in the tooltips of cells, and pages sort by them."""

    heads: tuple[Head, ...]
    rows: tuple[tuple[TemplateCell, ...], ...]


def _masked(value: object) -> object:
    """Texts with control characters masked; `Markup` was checked before."""
    return masked(value) if isinstance(value, str) and not isinstance(value, Markup) else value


@dataclass(frozen=True)
class UntitledTable:
    """A table without a title, for templates that take a section."""

    table: Table
    tag: str = "section"
    title: str = ""
    about: str = ""
    more: str = ""
    rows: str = ""
    exact: None = None
    link: None = None


@cache
def _engine() -> Environment:
    engine = Environment(
        loader=PackageLoader("polymodel.view"),
        autoescape=True,  # every text, whatever the template's name
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
        finalize=_masked,
    )
    engine.filters["grid"] = grid
    return engine


def filled(template: str, **values: object) -> str:
    """A template with these values; every text is escaped unless it is `Markup`."""
    return _engine().get_template(template).render(values)


@cache
def asset(name: str) -> str:
    """The text of a stylesheet or a script."""
    return (files("polymodel.view") / "assets" / name).read_text(encoding="utf-8")


def table_html(table: Table) -> str:
    """A table with its notes, as a notebook shows it alone."""
    return filled("blocks.html", blocks=(UntitledTable(table),), folded=False)


def written(blocks: Iterable[Block], *, folded: bool = False) -> str:
    """The blocks in sequence. `folded`: tables fold under their titles, as in notebooks."""
    return filled("blocks.html", blocks=tuple(blocks), folded=folded)


def fragment(blocks: Iterable[Block]) -> str:
    """The blocks with their styles, as a notebook shows them."""
    return filled("fragment.html", css=Markup(CSS), body=Markup(written(blocks, folded=True)))


def page(
    title: str,
    blocks: Iterable[Block],
    parts: Sequence[Part] = (),
    *,
    looks: str = "report.css",
    scripts: Sequence[str] = ("report.js", "chart.js"),
) -> str:
    """A complete HTML document: it loads nothing, and no script but its own may run.

    Tables with a head can be sorted, and filtered if they have more than a few rows. `parts` fold, below a
    table of contents. `looks` and `scripts`: names of assets.
    """
    code = "\n".join(asset(s) for s in scripts)
    allowed = b64encode(sha256(code.encode()).digest()).decode()
    policy = (
        f"default-src 'none'; style-src 'unsafe-inline'; script-src 'sha256-{allowed}'; "
        "img-src data:; base-uri 'none'; form-action 'none'"  # heat maps hold their cells as an image
    )
    return filled(
        "page.html",
        title=masked(title),
        policy=Markup(policy),
        css=Markup(CSS + asset(looks)),
        script=Markup(code),
        body=Markup(written(blocks)),
        parts=[(anchor, part, Markup(written(part.blocks))) for anchor, part in _anchored(parts).items()],
    )


def _anchored(parts: Sequence[Part]) -> dict[str, Part]:
    """The parts by their link targets: titles that differ only in punctuation are numbered."""
    places: dict[str, Part] = {}
    for part in parts:
        again = sum(p.anchor == part.anchor for p in places.values())
        places[f"{part.anchor}-{again + 1}" if again else part.anchor] = part
    return places


def grid(section: Section | UntitledTable) -> HtmlTable:
    """The cells of a section's table, with their tooltips."""
    table, exact = section.table, section.exact
    many = range(len(table.columns))
    titled = [exact is not None and any(exact(r, i) for r in range(len(table.rows))) for i in many]
    right = [table.numeric(i) or titled[i] for i in many]
    heads = zip(table.headings, table.columns, right, strict=True)
    return HtmlTable(
        tuple(Head(text, c.meaning, r) for text, c, r in heads),
        tuple(
            tuple(_cell(section, at, i, row[i], table.columns[i], right[i]) for i in many)
            for at, row in enumerate(table.rows)
        ),
    )


def _cell(
    section: Section | UntitledTable, at: int, i: int, value: Cell, column: Column, right: bool
) -> TemplateCell:
    text = column.shown(value)
    if column.formula:
        return TemplateCell(text, spans=_spans(text))
    rounded = right or (isinstance(value, str) and text != value)
    title = f"{value} {column.unit}".rstrip() if rounded and value is not None else ""
    if section.exact is not None and (said := section.exact(at, i)):
        title = said
    link = section.link(at) if not i and section.link is not None else ""
    return TemplateCell(text, title, right, link)


def _spans(formula: str) -> tuple[tuple[str, bool], ...]:
    """The pieces of a formula, powers raised."""
    result: list[tuple[str, bool]] = []
    at = 0
    for power in _POWER.finditer(formula):
        result += [(formula[at : power.start()], False), (power[1].strip("()"), True)]
        at = power.end()
    return (*result, (formula[at:], False))
