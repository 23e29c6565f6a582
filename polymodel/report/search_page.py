"""The result of a search as HTML: all points as a sortable table, the best ones with LoopTree and YAML.

Sweeps and explorations pass plain records; this module imports neither.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING

from polymodel.frozen import dataclass
from polymodel.mapping.looptree import LoopTree
from polymodel.report.plots_sweep import fronts
from polymodel.report.provenance import spec_part
from polymodel.report.svg import looptree_svg
from polymodel.view.answer import (
    Block,
    Code,
    Facts,
    Fold,
    Line,
    Pairs,
    Part,
    Picture,
    Section,
    made_part,
    notes,
)
from polymodel.view.inline import blank, inline
from polymodel.view.table import Table

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from polymodel.loading import Spec

MOST_ROWS = 3000  # a page with more opens slowly
MOST_TREES = 12
ROWS = "row"  # names of rows, to which points of plots lead


@dataclass(frozen=True)
class Best:
    """A mapping that a page shows. `row`: its position in the table; `name`: of its file, without extension;
    `figures`: follow its name in the heading."""

    row: int
    name: str
    figures: str
    spec: Spec
    tree: LoopTree
    yaml: str


@dataclass(frozen=True)
class Plot:
    """A plot: `draw` receives the axes; `width` and `height` in inches. `over`: the columns of the table on
    its axes, if its points are rows: each links to its row, and to the mapping of that row."""

    title: str
    draw: Callable[[Axes], object]
    width: float = 8.0
    height: float = 4.6
    over: tuple[str, str] | None = None


@dataclass(frozen=True)
class Finding:
    """The contents of a page on a search.

    `facts`: the figures at its top; `promise`: the quality of the result; `notes`: remarks; `table`: a row
    per point, best first, of which the page shows `MOST_ROWS`; `best`: those shown with their mapping;
    `looked`: tables of the examined points, and the reasons for invalid ones; `asked`: the request; `specs`:
    the specs searched, by heading.
    """

    facts: Pairs
    promise: tuple[str, ...]
    notes: tuple[str, ...]
    table: Table
    best: tuple[Best, ...]
    pictures: tuple[Plot, ...]
    looked: tuple[tuple[str, Table], ...]
    asked: Pairs
    specs: tuple[tuple[str, Spec], ...]
    found: bool = True


def search_title(what: str, spec: Spec) -> str:
    """The heading of a page: the kind of search, the workload and the architecture."""
    names = [n for n in (spec.names.get(k, "") for k in ("workload", "architecture")) if n]
    return f"{what} of {' on '.join(names)}" if names else what


def picked(total: int, first: Sequence[int], most: int = MOST_TREES) -> tuple[int, ...]:
    """The rows of `total` that are shown with their mapping: `first`, then some spread over all up to `most`,
    in order."""
    result = dict.fromkeys(first)
    spread = min(total, most)
    for k in range(spread):
        if len(result) >= most:
            break
        result[round(k * (total - 1) / max(spread - 1, 1))] = None
    return tuple(sorted(result))


def search_figures(found: Finding) -> list[Block]:
    """Return the figures at the top, the quality of the result, and remarks."""
    state = [] if found.found else [Line("nothing valid was found", "bad")]
    return [Facts(found.facts), *state, *(Line(p) for p in found.promise), *notes(found.notes)]


def search_sections(found: Finding, plots: bool, command: str) -> list[Part]:
    """Return the sections of the page. `plots=False` leaves out what requires matplotlib, `command` is the
    command line to be shown."""
    shown = plotted(found.pictures, found.table) if plots else ()
    parts = [_table(found), *shown, *_mappings(found), *_looked(found)]
    parts.append(made_part(command, found.asked))
    return [*parts, *(spec_part(spec, title) for title, spec in found.specs)]


def _table(found: Finding) -> Part:
    table, total = found.table, len(found.table.rows)
    told = []
    if total > MOST_ROWS:
        table = Table(table.name, table.columns, table.rows[:MOST_ROWS], table.notes)
        told.append(f"the first {MOST_ROWS:,} of {total:,} rows; files of the tables have all of them")
    links = {b.row: b.name for b in found.best}
    if links:
        told.append("Where a number is a link, it leads to the mapping.")
    if not total:
        return Part("Table: points", notes(["no rows: no point is kept"]), opened=True)
    shown = Section("", table.bare(), link=lambda row: links.get(row, ""), rows=ROWS)
    return Part("Table: points", [*notes(told), shown], opened=True)


def plotted(pictures: Sequence[Plot], table: Table | None = None) -> Iterator[Part]:
    """Return a section per picture, the first one open. `table`: the rows to which points of pictures
    belong."""
    for number, picture in enumerate(pictures):
        figure, ax = blank(picture.width, picture.height)
        picture.draw(ax)
        if picture.over is not None and table is not None:
            _linked(ax, picture.over, table)
        title = f"Plot: {picture.title}"
        svg = inline(figure, title, f"p{number}")
        yield Part(title, [Picture(title, svg, plot=True)], opened=not number)


def _linked(ax: Axes, over: tuple[str, str], table: Table) -> None:
    """Links from points of fronts to the rows that have their figures; the page's script follows them."""
    import numpy as np

    columns = [[float(v) if isinstance(v, (int, float)) else None for v in table.column(c)] for c in over]
    rows = {place: row for row, place in enumerate(zip(*columns, strict=True)) if row < MOST_ROWS}
    for points in (p for parts in fronts(ax).values() for p in parts):
        found = [rows.get((x, y)) for x, y in np.asarray(points.get_offsets(), float).tolist()]
        points.set_urls([None if row is None else f"#{ROWS}-{row}" for row in found])


def _mappings(found: Finding) -> Iterator[Part]:
    if not found.best:
        return
    shown = []
    for number, best in enumerate(found.best):
        inside = mapping_blocks(best.name, best.spec, best.tree, best.yaml)
        shown.append(Fold(f"{best.name}: {best.figures}", inside, opened=not number, anchor=best.name))
    total = len(found.table.rows)
    some = f"{len(shown)} of {total:,}: the best in each objective, others from all along." * (
        total > len(shown)
    )
    told = "Each YAML loads in the place of the mapping: it evaluates to the figures of its row."
    yield Part("Mappings", [*notes([f"{some} {told}".strip()]), *shown], opened=True)


def mapping_blocks(name: str, spec: Spec, tree: LoopTree, yaml: str) -> tuple[Block, ...]:
    """A mapping as LoopTree, and as a file of that name."""
    picture = Picture(f"LoopTree of {name}", looptree_svg(tree, spec.workload))
    return picture, Code(yaml, f"{name}.yaml")


def _looked(found: Finding) -> Iterator[Part]:
    for title, table in found.looked:
        if table.rows:
            yield Part(title, [Section("", table)])
