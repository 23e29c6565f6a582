"""Reports as HTML: a fragment for notebooks, a self-contained page for files."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape
from pathlib import Path

from polymodel.errors import Refused, writing
from polymodel.report.beside import beside, pointers
from polymodel.report.counted import says_sparse, says_tiles
from polymodel.report.drawing import INK, MUTED
from polymodel.report.report import TABLES, Report
from polymodel.report.svg import looptree_svg
from polymodel.report.svg_architecture import architecture_svg
from polymodel.report.text import headline, sections

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


def page(title: str, body: str) -> str:
    """A whole HTML document; nothing in it is fetched from elsewhere."""
    return (
        f'<!DOCTYPE html>\n<html lang="en"><head><meta charset="utf-8"><title>{escape(title)}</title>'
        f"<style>body{{margin:2em}}{CSS}</style></head>\n"
        f'<body class="pm"><h1>{escape(title)}</h1>\n{body}\n</body></html>\n'
    )


def preformatted(text: str) -> str:
    return f"<pre>{escape(text)}</pre>"


def _head(report: Report, more: Sequence[tuple[str, str]]) -> str:
    """The headline; `more`: what to say of sparse figures."""
    figures = (*headline(report), *more)
    rows = "".join(f"<tr><th>{escape(k)}</th><td>{escape(v)}</td></tr>" for k, v in figures)
    state = "yes" if report.feasible else '<span class="bad">no</span>'
    wrong = "".join(f'<p class="bad">{escape(str(v))}</p>' for v in report.violations)
    notes = "".join(f'<p class="note">{escape(n)}</p>' for n in report.notes)
    return f"<table>{rows}<tr><th>feasible</th><td>{state}</td></tr></table>{wrong}{notes}"


def fragment(report: Report, *, live: bool) -> str:
    """Figures, the LoopTree and the main tables; further tables are folded away."""
    parts = [f"<style>{CSS}</style>", '<div class="pm">', _head(report, pointers(report))]
    tree = looptree_svg(report.problem.tree, report.problem.cascade)
    parts.append(f'<details open><summary>LoopTree</summary><div class="wide">{tree}</div></details>')
    for i, (title, table, _) in enumerate(sections(report, live=live)):
        opened = " open" if i < 3 else ""
        notes = "".join(f'<p class="note">{escape(n)}</p>' for n in table.notes)
        parts.append(
            f"<details{opened}><summary>{escape(title)}</summary>"
            f'<div class="wide">{table.html()}</div>{notes}</details>'
        )
    parts.append("</div>")
    return "\n".join(parts)


def _tiling(report: Report) -> str:
    from polymodel.report.tiling.level import body  # here, as it makes its pages with this module

    try:
        return body(report.tiling)
    except Refused as refusal:
        return f'<p class="note">not cut: {escape(str(refusal))}</p>'


def to_html(report: Report, file: str | Path | None = None, live: bool = True) -> str:
    """The report with all tables and both pictures as one page; hover over a number for its exact value."""
    arch = architecture_svg(report.problem.hierarchy)
    tree = looptree_svg(report.problem.tree, report.problem.cascade)
    parts = [
        _head(report, beside(report)),
        f'<h2>LoopTree</h2><div class="wide">{tree}</div>',
        f'<h2>Architecture</h2><div class="wide">{arch}</div>',
    ]
    for name in TABLES:
        table = report.table(name, live=live)
        if name in ("fusion", "pipelines") and not table.rows:
            continue
        notes = "".join(f'<p class="note">{escape(n)}</p>' for n in table.notes)
        title = escape(name.replace("_", " "))
        parts.append(f'<h2>{title}</h2><div class="wide">{table.html()}</div>{notes}')
    if says_sparse(report.problem):
        from polymodel.report.sparse_text import body  # here, as it makes its pages with this module

        parts.append(f"<h1>On sparse data</h1>\n{body(report.sparse)}")
    if says_tiles(report.problem):
        parts.append(f"<h1>Cut into tiles</h1>\n{_tiling(report)}")
    names = [v for k, v in headline(report) if k in ("workload", "architecture")]
    text = page(" on ".join(names) or "polymodel report", "\n".join(parts))
    if file is not None:
        with writing(file):
            Path(file).write_text(text, encoding="utf-8")
    return text
