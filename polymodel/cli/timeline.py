"""The command `polymodel timeline`: the contents of one memory phase by phase, and the explanation of its
peak."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING

from polymodel.cli.codes import FINE, INFEASIBLE
from polymodel.cli.options import add_format, add_html, add_sources
from polymodel.cli.output import save_page, with_saved_files
from polymodel.cli.progress import waiting
from polymodel.cli.specs import evaluated
from polymodel.errors import writing
from polymodel.libraries import require

if TYPE_CHECKING:
    from polymodel.analysis.timeline import Timeline
    from polymodel.report.report import Report
    from polymodel.report.timeline import Peak
    from polymodel.view.table import Table

NAME, ABOUT = "timeline", "Show what a memory holds phase by phase, and explain its peak."
SHOWN = 40
ON_PAGE = 2_000  # maximum number of rows of a page: longer tables are not read and slow browsers down


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the options for sources, the memory to follow, and outputs."""
    add_sources(parser)
    parser.add_argument("--component", required=True, metavar="NAME", help="the memory to follow, e.g. GLB")
    parser.add_argument(
        "--measure",
        choices=("tile", "live"),
        default="tile",
        help="whole tiles while resident (default), or elements from first to last use",
    )
    parser.add_argument(
        "--limit",
        type=int,
        default=100_000,
        metavar="N",
        help="the most phases; beyond it inner loops are joined (default: 100000)",
    )
    add_format(parser)
    add_html(parser)
    parser.add_argument("--out", metavar="DIR", help="also save all phases as CSV, the peak and a picture")


def run(options: argparse.Namespace) -> tuple[str, int]:
    """Print the timeline in the chosen format; exit code 1 if a capacity is exceeded."""
    from polymodel.report.timeline import peak, table, timeline

    if options.out:
        require("matplotlib")
    with waiting("counting"):
        report = evaluated(options, "auto")
        found = timeline(report, options.component, options.measure, options.limit)
    rows = table(report.problem, found)
    most = peak(report.problem, report.analysis.buffets, found)
    text = _formatted(rows, most, options.format)
    told = save_page(options.html, lambda: _formatted(rows, most, "html"))
    if options.out:
        files = _save(Path(options.out), report, found, rows, most)
        told.append(f"saved {', '.join(map(str, files))}")
    return with_saved_files(text, told, options.format == "table"), FINE if report.feasible else INFEASIBLE


def _formatted(rows: Table, most: Peak, style: str) -> str:
    from polymodel.view.answer import Code, Section, notes
    from polymodel.view.files import table_json

    if style == "csv":
        return rows.to_csv()
    if style == "json":
        return table_json(rows)
    shown = ON_PAGE if style == "html" else SHOWN
    first = rows.first(shown)
    left = len(rows.rows) - shown
    more = f"... and {left:,} more phases: --format csv, or --out DIR\n" if left > 0 else ""
    if style == "html":
        from polymodel.view.html import page

        body = [Code(str(most)), Section("", first), *notes([more] if more else [])]
        return page(f"{most.component} over time", body)
    told = "".join(f"note: {n}\n" for n in rows.notes[1:])
    return f"{most}\n{first.text(indent='')}\n{more}{told}"


def _save(folder: Path, report: Report, found: Timeline, rows: Table, most: Peak) -> tuple[Path, ...]:
    """Save tables, text and picture under names that contain the memory and the options."""
    from polymodel.report.plots_timeline import save_picture
    from polymodel.report.timeline import saved_names
    from polymodel.spec.files import write_text

    files = tuple(folder / name for name in saved_names(found.component, found.measure))
    with writing(folder):
        folder.mkdir(parents=True, exist_ok=True)
        write_text(files[0], rows.to_csv())
        write_text(files[1], str(most))
        save_picture(found, report.problem.hierarchy[found.component].size_bits, files[2])
    return files
