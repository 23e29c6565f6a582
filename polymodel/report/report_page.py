"""The report of an evaluation as HTML: a fragment for notebooks, a page with everything for files."""

from __future__ import annotations

import re
from html import escape
from pathlib import Path

from polymodel.errors import Refused, writing
from polymodel.loading.named import kept_files
from polymodel.report.beside import beside, pointers, verdict
from polymodel.report.counted import says_sparse, says_tiles
from polymodel.report.page import CSS, Part, drawn, facts, noted, page, plotted
from polymodel.report.provenance import provenance
from polymodel.report.report import TABLES, Report
from polymodel.report.svg import looptree_svg
from polymodel.report.svg_architecture import architecture_svg
from polymodel.report.svg_cascade import cascade_svg
from polymodel.report.table import Table
from polymodel.report.text import headline, sections
from polymodel.report.tips import component_tips, node_tips
from polymodel.spec.output import write_text

OPENED = ("summary", "bottleneck")  # tables that are unfolded at first
ABOUT = {
    "summary": "what each Einsum costs, and all of them",
    "tiles": "what a storage node holds at a time",
    "accesses": "bits read and written by all instances",
    "reuse": "what each policy would move: the gap is what a better placement could win",
    "lifetimes": "in which branches of a split a tile is alive",
    "working_sets": "the peak of what a memory holds while an Einsum runs, against its size",
    "latency": "how long each component works for each Einsum",
    "energy": "every action with its energy, and where that number comes from",
    "bottleneck": "what limits each Einsum, and what would next",
    "roofline": "where each Einsum stands under its roof",
    "area": "area per component",
    "fusion": "what is executed again, and what is read because of it",
    "pipelines": "stages that overlap",
}


def fragment(report: Report, *, live: bool) -> str:
    """Figures, the LoopTree and the main tables; further tables are folded away."""
    parts = [f"<style>{CSS}</style>", '<div class="pm">', _head(report, pointers(report))]
    tree = looptree_svg(report.problem.tree, report.problem.cascade, node_tips(report))
    parts.append(f'<details open><summary>LoopTree</summary><div class="wide">{tree}</div></details>')
    for i, (title, table, _) in enumerate(sections(report, live=live)):
        opened = " open" if i < 3 else ""
        parts.append(f"<details{opened}><summary>{escape(title)}</summary>{_shown(table)}</details>")
    parts.append("</div>")
    return "\n".join(parts)


def _head(report: Report, more: list[tuple[str, str]], good: bool | None = None, words: str = "") -> str:
    """The headline, then what does not fit, and notes; `more`: what to say of sparse figures.

    `good`, `words`: whether it fits, sparse data heard, and how to say it.
    """
    good = report.feasible if good is None else good
    words = re.sub(r"(^|; )NO\b", r"\1no", escape(words or ("yes" if good else "no")))
    state = words if good else f'<span class="bad">{words}</span>'
    figures = facts((*headline(report), *more)).removesuffix("</table>")
    wrong = "".join(f'<p class="bad">{escape(str(v))}</p>' for v in report.violations)
    last = f'<tr><th scope="row">feasible</th><td>{state}</td></tr></table>'
    return f"{figures}{last}{wrong}{noted(report.notes)}"


def _shown(table: Table) -> str:
    return f'<div class="wide">{table.html()}</div>{noted(table.notes)}'


def to_html(
    report: Report,
    file: str | Path | None = None,
    live: bool = True,
    plots: bool = True,
    command: str = "",
) -> str:
    """The report as one page: figures, pictures, plots, all tables, and what they were made from.

    Nothing is fetched: it opens from a file and prints. Tables sort by exact value and filter; hover over a
    number for that value. `live=False` leaves out lifetimes of elements, `plots=False` everything that takes
    matplotlib. `command`: the command line that asked, to be told.
    """
    parts = [*_pictures(report), *(_plots(report) if plots else ()), *_tables(report, live)]
    parts += [*_zeros(report), *provenance(report, command)]
    names = [v for k, v in headline(report) if k in ("workload", "architecture")]
    text = page(
        " on ".join(names) or "polymodel report", _head(report, beside(report), *verdict(report)), parts
    )
    if file is not None:
        with kept_files(report.spec), writing(file):
            write_text(file, text)
    return text


def _pictures(report: Report) -> list[Part]:
    problem = report.problem
    tree = looptree_svg(problem.tree, problem.cascade, node_tips(report))
    machine = architecture_svg(problem.hierarchy, component_tips(report))
    told = noted(["Point at a box for its numbers; large pictures scroll."])
    return [
        Part("LoopTree", drawn(tree, "LoopTree") + told, opened=True),
        Part("Cascade", drawn(cascade_svg(problem.cascade), "Cascade") + told),
        Part("Architecture", drawn(machine, "Architecture") + told),
    ]


def _plots(report: Report) -> list[Part]:
    from polymodel.report.plots_inline import plots_of  # here, as it takes matplotlib

    figures = plots_of(report)
    return [
        Part(title, f"{plotted(svg, title)}{noted(notes)}", opened=i < 2)
        for i, (title, svg, notes) in enumerate(figures)
    ]


def _tables(report: Report, live: bool) -> list[Part]:
    found = []
    for name in TABLES:
        table = report.table(name, live=live)
        if name in ("fusion", "pipelines", "area") and not table.rows:
            continue
        about = noted([ABOUT[name]])
        title = name.replace("_", " ").capitalize()
        found.append(Part(f"Table: {title}", about + _shown(table), opened=name in OPENED))
    return found


def _zeros(report: Report) -> list[Part]:
    """What the spec says of zeros: the sparse report, and tiles."""
    found = []
    if says_sparse(report.problem):
        from polymodel.report.sparse_text import body  # here, as it makes its pages with this module's

        found.append(Part("On sparse data", body(report.sparse), opened=True))
    if says_tiles(report.problem):
        found.append(Part("Cut into tiles", _tiling(report), opened=True))
    return found


def _tiling(report: Report) -> str:
    from polymodel.report.tiling.level import body  # here, as it makes its pages with this module's

    try:
        return body(report.tiling)
    except Refused as refusal:
        return noted([f"not cut: {refusal}"])
