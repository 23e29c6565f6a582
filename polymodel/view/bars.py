"""Bars of one figure of a table, for answers without a picture of their own; tables of words as they are."""

from __future__ import annotations

from typing import TYPE_CHECKING

from polymodel.errors import Diagnostic, SpecError
from polymodel.quantities import axis_unit
from polymodel.spec.faults import suggestion
from polymodel.view.figures import axes
from polymodel.view.table import Table, shown

if TYPE_CHECKING:
    from matplotlib.axes import Axes

MOST = 40  # bars that can be told apart
WORDS = 40  # characters of a row's name
COLOUR = "#2563a8"


def bar_axes(table: Table, what: str = "", ax: Axes | None = None) -> Axes:
    """A bar per row, at most 40, named by the texts of the row. SpecError for what is no figure."""
    figures = [c.name for i, c in enumerate(table.columns) if table.numeric(i)]
    if not figures and not what:
        return text_axes(table, ax)
    chosen = what or next(iter(figures), "")
    if chosen not in figures:
        message = f"table {table.name} has no figure {chosen!r}".removesuffix(" ''")
        raise SpecError([Diagnostic(message, suggestion(chosen, figures, "figures"), "what")])
    at = next(i for i, c in enumerate(table.columns) if c.name == chosen)
    rows = [row for row in table.rows if isinstance(row[at], (int, float))][:MOST]
    words = [i for i in range(len(table.columns)) if not table.numeric(i)]
    names = [" ".join(str(row[i]) for i in words if row[i] not in (None, ""))[:WORDS] for row in rows]
    drawn = axes(ax, 7, 1.2 + 0.28 * len(rows))
    places = range(len(rows))
    bars = drawn.barh(places, [float(row[at] or 0) for row in rows], color=COLOUR)
    drawn.bar_label(bars, [shown(row[at], table.columns[at]) for row in rows], fontsize=8, padding=3)
    drawn.set_yticks(list(places), names, fontsize=8)
    drawn.invert_yaxis()
    drawn.margins(x=0.18)
    unit = f" ({axis_unit(table.columns[at].unit)})" if table.columns[at].unit else ""
    drawn.set_xlabel(f"{table.columns[at].heading}{unit}")
    drawn.set_title(f"{table.name.replace('_', ' ')}: {table.columns[at].meaning or chosen}", fontsize=10)
    return drawn


def text_axes(table: Table, ax: Axes | None = None) -> Axes:
    """The table as it is printed, at most 40 rows: for one that has words alone."""
    lines = table.first(MOST).text(indent="").splitlines()
    drawn = axes(ax, max(4, 0.075 * max(map(len, lines))), 0.6 + 0.17 * len(lines))
    drawn.text(0, 1, "\n".join(lines), family="monospace", fontsize=8, va="top", parse_math=False)
    drawn.set_axis_off()
    drawn.set_title(table.name.replace("_", " "), fontsize=10)
    return drawn
