"""Sparse reports for terminals and as HTML."""

from __future__ import annotations

from html import escape
from pathlib import Path

from polymodel.errors import writing
from polymodel.quantities import engineering
from polymodel.report.page import CSS, facts, noted, page
from polymodel.report.sparse import TABLES, SparseReport
from polymodel.report.table import Table
from polymodel.spec.output import write_text


def headline(report: SparseReport) -> list[tuple[str, str]]:
    """The few figures that everything else explains."""
    dense = report.dense
    ratio = dense.total_energy / report.total_energy if report.total_energy else 1.0
    known = [
        f"{d.tensor} {d.density:.4g}{' (computed)' if d.computed else ''}"
        for d in report.data.values()
        if not d.dense
    ]
    return [
        ("densities", ", ".join(known) or "no tensor has zeros"),
        ("latency", f"{engineering(report.total_latency, 's')} ({report.speedup:.4g} x faster than dense)"),
        ("energy", f"{engineering(report.total_energy, 'J')} (dense: {ratio:.4g} x as much)"),
        ("numbers are", report.label),
    ]


def sections(report: SparseReport) -> list[tuple[str, Table]]:
    """Title and table in the order in which they are read; empty ones are left out."""
    table = report.table
    accesses = table("accesses").where(lambda r: r["actual"] != r["dense"] or bool(r["metadata_bits"]))
    counted = ("dense", "actual", "gated", "skipped", "absent", "label", "metadata_bits", "metadata_label")
    shown = ("einsum", "component", "tensor", "kind", *counted)
    found = [
        ("Dense and sparse", table("summary")),
        ("Operations", table("compute")),
        ("Accesses that change (elements)", accesses.only(*shown)),
        ("Footprints of the largest tiles", table("footprints")),
        ("Intersections (coordinates read)", table("intersections")),
        ("Working sets", table("capacity")),
    ]
    return [(title, t) for title, t in found if t.rows]


def sparse_text(report: SparseReport) -> str:
    """The whole sparse report as text."""
    figures = headline(report)
    wide = max(len(name) for name, _ in figures)
    lines = [f"{name.ljust(wide)}  {value}" for name, value in figures]
    for title, table in sections(report):
        lines += ["", title, table.text()]
    lines += [f"note: {n}" for n in report.notes]
    return "\n".join(lines) + "\n"


def _head(report: SparseReport) -> str:
    return facts(headline(report)) + noted(report.notes)


def fragment(report: SparseReport) -> str:
    """Figures and tables for a notebook."""
    parts = [f"<style>{CSS}</style>", '<div class="pm">', _head(report)]
    for i, (title, table) in enumerate(sections(report)):
        opened = " open" if i < 2 else ""
        parts.append(
            f"<details{opened}><summary>{escape(title)}</summary>"
            f'<div class="wide">{table.html()}</div></details>'
        )
    return "\n".join([*parts, "</div>"])


def body(report: SparseReport) -> str:
    """Figures and all tables, as a part of a page."""
    parts = [_head(report)]
    for name in TABLES:
        table = report.table(name)
        parts.append(f'<h2>{escape(name)}</h2><div class="wide">{table.html()}</div>')
    return "\n".join(parts)


def to_html(report: SparseReport, file: str | Path | None = None) -> str:
    """All tables as one page."""
    text = page("Sparse report", body(report))
    if file is not None:
        with writing(file):
            write_text(file, text)
    return text
