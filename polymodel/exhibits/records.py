"""Exhibits of the gallery: published figures beside those computed here."""

from __future__ import annotations

import textwrap
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from polymodel.errors import Diagnostic, SpecError
from polymodel.quantities import engineering
from polymodel.view.answer import Answer, Block, Line, Section, declared
from polymodel.view.table import Cell, Column, Table

if TYPE_CHECKING:
    from matplotlib.axes import Axes

Number = int | float | str

WIDE = 100  # characters of a line
_COLUMNS = tuple(map(Column, ("exhibit", "figure", "unit", "published", "ours", "difference", "why")))


@dataclass(frozen=True)
class PublishedFigure:
    """One published figure and the one computed here. `published` is a text where it is a word, or a claim
    without a number; `ours` is None where nothing is computed; `why` explains the agreement or the
    difference."""

    what: str
    unit: str
    published: Number
    ours: Number | None
    why: str = ""
    exhibit: str = ""

    @property
    def error(self) -> float | None:
        """The relative difference (ours / published - 1), 0 where both are equal; None where one of them is
        not a number."""
        if self.published == self.ours:
            return 0.0
        if isinstance(self.published, str) or self.ours is None or isinstance(self.ours, str):
            return None
        return self.ours / self.published - 1 if self.published else None


@dataclass(frozen=True)
class Exhibit:
    """A published result. `source`: its publication; `about`: what is computed, and how; `again`: a command
    that evaluates one of its specs as a starting point for variations, where the library has them."""

    name: str
    title: str
    source: str
    about: str
    figures: Callable[[], Iterator[PublishedFigure]]
    again: str = ""


@dataclass(frozen=True, eq=False)
class Gallery(Answer):
    """Exhibits with published figures beside those computed here."""

    exhibits: tuple[Exhibit, ...]
    rows: tuple[PublishedFigure, ...]

    @declared(title="Published figures, and ours")
    def figures(self) -> Table:
        """One row per figure: name, unit, published value, our value, relative difference, and its
        explanation."""
        cells: list[tuple[Cell, ...]] = [
            (f.exhibit, f.what, f.unit, _shown(f.published), _shown(f.ours), _percent(f.error), f.why)
            for f in self.rows
        ]
        return Table("figures", _COLUMNS, tuple(cells))

    def exported(self, name: str = "", *, live: bool = True) -> Table:
        """The figures as numbers without rounding; the difference is a fraction."""
        cells: list[tuple[Cell, ...]] = [
            (f.exhibit, f.what, f.unit, f.published, f.ours, f.error, f.why) for f in self.rows
        ]
        return Table(self.table(name).name, _COLUMNS, tuple(cells))

    @property
    def title(self) -> str:
        """The heading of the page."""
        return (
            self.exhibits[0].title if len(self.exhibits) == 1 else f"{len(self.exhibits)} published results"
        )

    def content(self, live: bool = True) -> list[Block]:
        """The sections of the page: each exhibit with its source and figures."""
        result: list[Block] = []
        for exhibit in self.exhibits:
            result += [Line()] if result else []
            result += [Line(exhibit.title), Line(_wrapped(f"source: {exhibit.source}"))]
            result += [Line(exhibit.about, "small"), *_compared(self.table("figures").of(exhibit.name))]
            result += [Line(f"to go on from: {exhibit.again}")] if exhibit.again else []
        return result

    def plot(self, ax: Axes | None = None) -> Axes:
        """Plot the ratio of our value to the published one for all figures that have both."""
        from polymodel.view.figures import bar_axes

        both = [(f.what, 100 * f.error) for f in self.rows if f.error is not None]
        if not both:
            message = "no figure here is a number in both"
            raise SpecError([Diagnostic(message, "name another exhibit", code="nothing-to-show")])
        columns = (Column("figure"), Column("difference in %"))
        return bar_axes(Table("figures", columns, tuple(both)), "difference in %", ax)


def _compared(figures: Table) -> list[Block]:
    """Return the figures of one exhibit, with reference numbers for the explanations listed below them, each
    of which is listed once."""
    reasons = {
        str(why): f"({n})" for n, why in enumerate(dict.fromkeys(filter(None, figures.column("why"))), 1)
    }
    rows = tuple((*row[:-1], reasons.get(str(row[-1]), "")) for row in figures.rows)
    names = [c.name for c in figures.columns if reasons or c.name != "why"]
    table = Table(figures.name, figures.columns, rows).only(*names)
    return [Section("", table), *(Line(_wrapped(f"{n} {why}")) for why, n in reasons.items())]


def _wrapped(text: str) -> str:
    return textwrap.fill(text, WIDE, initial_indent="  ", subsequent_indent="      ")


def _shown(value: Number | None) -> str:
    if value is None:
        return "not computed"
    return value if isinstance(value, str) else f"{value:,}" if isinstance(value, int) else engineering(value)


def _percent(error: float | None) -> str:
    if error is None:
        return ""
    if error == 0:
        return "equal"
    return f"{100 * error:+.0f} %" if abs(error) >= 0.1 else f"{100 * error:+.2g} %"
