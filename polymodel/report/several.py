"""Several tables as one text, one JSON object or one page."""

from __future__ import annotations

import json
from html import escape

from polymodel.report.execution_pictures import Pictures
from polymodel.report.export import table_json
from polymodel.report.page import page
from polymodel.report.table import Table

# Headings of a page, by the names of its tables.
_HEADS = {
    "einsums": "Work and time per Einsum", "ranks": "Coordinate accesses per loop rank",
    "slices": "Parts of partitioned inputs", "space": "Load per space point", "memories": "Bits moved",
    "units": "Work of units", "predictions": "What density models expect, beside exact counts",
    "tensaurus": "Kernel on the Tensaurus accelerator", "published": "What the paper states",
}  # fmt: skip


def formatted_tables(
    tables: list[Table], style: str, notes: tuple[str, ...], command: str, drawn: Pictures | None = None
) -> str:
    """The tables as `csv`, `json`, `html` (a page) or `table` (text). `command`: the title of the page.

    A page has the `notes` and what is `drawn`; text and data have the tables alone.
    """
    if style == "csv":
        return "\n".join(t.to_csv() for t in tables)
    if style == "json":
        return table_json(tables[0]) if len(tables) == 1 else _object(tables)
    if style == "html":
        told = "".join(f'<p class="note">{escape(n)}</p>' for n in notes)
        shown = "".join(
            f'<h2>{_HEADS[t.name]}</h2><div class="wide" tabindex="0">{t.html()}</div>'
            for t in tables
            if t.rows
        )
        return page(f"polymodel {command}", shown + _drawn(drawn) + told)
    return "\n\n".join(t.text(indent="") for t in tables) + "\n"


def _drawn(drawn: Pictures | None) -> str:
    if drawn is None:
        return ""
    found = [] if drawn.trees is None else [("Fibertrees", drawn.trees.svg)]
    found += [(f"{escape(name)} in space and time", grid.svg) for name, grid in drawn.grids]
    return "".join(
        f'<h2>{head}</h2><div class="picture" tabindex="0">{svg}</div>' for head, svg in found
    ) + "".join(f'<p class="note">{escape(why)}</p>' for why in drawn.left_out)


def _object(tables: list[Table]) -> str:
    return json.dumps({t.name: t.records() for t in tables}, indent=1) + "\n"
