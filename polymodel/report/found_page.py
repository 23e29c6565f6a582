"""What a search found as HTML: all of it as a table that sorts, the best with LoopTree and YAML.

Sweeps and explorations hand over plain records: this room knows neither.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING

from polymodel.errors import writing
from polymodel.loading.named import kept_files
from polymodel.mapping.looptree import LoopTree
from polymodel.report.page import Part, drawn, facts, noted, page, plotted, saveable
from polymodel.report.plots_inline import blank, inline
from polymodel.report.provenance import Pairs, made, spec_part
from polymodel.report.svg import looptree_svg
from polymodel.report.table import Table
from polymodel.spec.output import write_text

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from polymodel.loading import Spec

MOST_ROWS = 3000  # a page with more takes long to open
MOST_TREES = 12


@dataclass(frozen=True)
class Best:
    """A mapping that a page shows. `row`: where it stands in the table; `name`: of its file, without
    ending; `figures`: behind its name in the heading."""

    row: int
    name: str
    figures: str
    spec: Spec
    tree: LoopTree
    yaml: str


@dataclass(frozen=True)
class Picture:
    """A plot: `draw` gets the axes; `width` and `height` in inches."""

    title: str
    draw: Callable[[Axes], object]
    width: float = 8.0
    height: float = 4.6


@dataclass(frozen=True)
class Finding:
    """What a page tells of a search.

    `facts`: the figures at its top; `promise`: how good the answer is; `notes`: what else to know;
    `table`: a row per point, best first, of which the page shows `MOST_ROWS`; `best`: those with a mapping
    to look at; `looked`: tables of what was looked at, and why points are none; `asked`: what was asked;
    `specs`: what was searched, by heading.
    """

    title: str
    facts: Pairs
    promise: tuple[str, ...]
    notes: tuple[str, ...]
    table: Table
    best: tuple[Best, ...]
    pictures: tuple[Picture, ...]
    looked: tuple[tuple[str, Table], ...]
    asked: Pairs
    specs: tuple[tuple[str, Spec], ...]
    found: bool = True


def picked(total: int, first: Sequence[int]) -> tuple[int, ...]:
    """Which of `total` rows are shown with their mapping: `first`, then some spread over all, in order."""
    found = dict.fromkeys(first)
    spread = min(total, MOST_TREES)
    for k in range(spread):
        if len(found) >= MOST_TREES:
            break
        found[round(k * (total - 1) / max(spread - 1, 1))] = None
    return tuple(sorted(found))


def found_html(found: Finding, file: str | Path | None = None, plots: bool = True, command: str = "") -> str:
    """The page. `plots=False` leaves out what takes matplotlib, `command` is the command line to be told."""
    parts = [_table(found), *(_plots(found) if plots else ()), *_mappings(found), *_looked(found)]
    parts.append(Part("How it was made", made(command, found.asked)))
    parts += [spec_part(spec, title) for title, spec in found.specs]
    state = [] if found.found else ['<p class="bad">nothing valid was found</p>']
    head = [facts(found.facts), *state, *(f"<p>{escape(p)}</p>" for p in found.promise), noted(found.notes)]
    text = page(found.title, "\n".join(head), parts)
    if file is not None:
        with kept_files(*(spec for _, spec in found.specs)), writing(file):
            write_text(file, text)
    return text


def _table(found: Finding) -> Part:
    table, total = found.table, len(found.table.rows)
    notes = []
    if total > MOST_ROWS:
        table = Table(table.name, table.columns, table.rows[:MOST_ROWS], table.notes)
        notes.append(f"the first {MOST_ROWS:,} of {total:,} rows; files of the tables have all of them")
    links = {b.row: b.name for b in found.best}
    if links:
        notes.append("Where a number is a link, it leads to the mapping.")
    if not total:
        notes = ["no rows: no point is kept"]
        return Part("Table: points", noted(notes), opened=True)
    shown = table.html(link=lambda row: links.get(row, ""))
    return Part("Table: points", f'{noted(notes)}<div class="wide">{shown}</div>', opened=True)


def _plots(found: Finding) -> Iterator[Part]:
    for number, picture in enumerate(found.pictures):
        figure, ax = blank(picture.width, picture.height)
        picture.draw(ax)
        title = f"Plot: {picture.title}"
        svg = inline(figure, title, f"p{number}")
        yield Part(title, plotted(svg, title), opened=not number)


def _mappings(found: Finding) -> Iterator[Part]:
    if not found.best:
        return
    shown = []
    for number, best in enumerate(found.best):
        tree = drawn(looptree_svg(best.tree, best.spec.workload), f"LoopTree of {best.name}")
        shown.append(
            f'<details class="one" id="{escape(best.name)}"{"" if number else " open"}><summary><h3>'
            f"{escape(best.name)}: {escape(best.figures)}</h3></summary>{tree}"
            f"{saveable(best.yaml, f'{best.name}.yaml')}</details>"
        )
    total = len(found.table.rows)
    some = f"{len(shown)} of {total:,}: the best in each objective, others from all along." * (
        total > len(shown)
    )
    told = "Each YAML loads in the place of the mapping: it evaluates to the figures of its row."
    yield Part("Mappings", noted([f"{some} {told}".strip()]) + "\n".join(shown), opened=True)


def _looked(found: Finding) -> Iterator[Part]:
    for title, table in found.looked:
        if table.rows:
            yield Part(title, f'<div class="wide">{table.html()}</div>{noted(table.notes)}')
