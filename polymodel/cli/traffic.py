"""The command `polymodel traffic`: data movement of a TeAAL spec with bindings on given data."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING

from polymodel.cli.codes import FINE
from polymodel.cli.output import check_html, check_table, saved_files, write_file
from polymodel.cli.parser import symbols
from polymodel.cli.progress import waiting
from polymodel.cli.teaal import (
    add_data,
    add_outputs,
    carried,
    last_generation,
    load_teaal,
    title_of,
)
from polymodel.cli.tensors import rank_sizes, tensors_of

if TYPE_CHECKING:
    from polymodel.loading import Spec

NAME, ABOUT = "traffic", "What a TeAAL spec with format, architecture and bindings moves on data."


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the options for the spec, its data and outputs."""
    add_data(parser)
    parser.add_argument(
        "--replacement",
        choices=("lru", "optimal"),
        help="what a full cache drops: the line used least recently (lru), or the one whose next use is "
        "furthest in the future (optimal); by default a full cache is refused",
    )
    add_outputs(parser, "")


def run(options: argparse.Namespace) -> tuple[str, int]:
    """Print bits per memory and tensor, counts per unit, and times."""
    with waiting("counting"):
        return _counted(options, load_teaal(options)), FINE


def _counted(options: argparse.Namespace, spec: Spec) -> str:
    from polymodel.api.on_data import traffic
    from polymodel.report.traffic import TrafficReport
    from polymodel.view.answer import formatted_tables, notes, sections_of

    check_table(options.table, tuple(TrafficReport.declared))
    check_html(options.html)
    tensors = tensors_of(options, spec, rank_sizes(options.size))
    found = traffic(
        spec,
        tensors,
        symbols=symbols(options.set),
        replacement=options.replacement,
        carry=carried(options),
        until=last_generation(options),
    )
    report = TrafficReport(found)
    title, more = f"polymodel traffic {title_of(options.spec)}", notes(report.notes)
    if options.format == "table" and options.table is None:
        text = str(report)
    else:
        text = formatted_tables(sections_of(report, options.table), options.format, title, more)
    files = list(report.to_csv(options.out)) if options.out else []
    if options.html:
        files.append(write_file(Path(options.html), formatted_tables(report.sections(), "html", title, more)))
    return text + (saved_files(files, options.format) if files else "")
