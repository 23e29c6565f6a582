"""Writes several tables as one text, one JSON object or one page, as commands print them."""

from __future__ import annotations

from collections.abc import Sequence

from polymodel.view.answer import Answer
from polymodel.view.blocks import Block, Section
from polymodel.view.files import json_rows, json_text, table_json


def sections_of(answer: Answer, name: str | None = None) -> list[Section]:
    """The tables of an answer under their titles, or the one that is named."""
    names = answer.tables if name is None else (name,)
    return [Section(answer.declared[n].title, answer.plain(n), opened=True) for n in names]


def formatted_tables(
    sections: Sequence[Section], style: str, heading: str, more: Sequence[Block] = ()
) -> str:
    """The tables as `csv`, `json`, `html` (a page) or `table` (text).

    A page has the `heading` and, below the tables that have rows, `more`; text and data have tables alone.
    """
    tables = [s.table for s in sections]
    if style == "csv":
        return "\n".join(t.to_csv() for t in tables)
    if style == "json":
        if len(tables) == 1:
            return table_json(tables[0])
        return json_text({t.name: json_rows(t) for t in tables})
    if style == "html":
        from polymodel.view.html import page

        shown = [Section(s.title, s.table.bare()) for s in sections if s.table.rows]
        return page(heading, [*shown, *more])
    return "\n\n".join(t.text(indent="") for t in tables) + "\n"
