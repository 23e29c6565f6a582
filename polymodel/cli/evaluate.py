"""The command `polymodel evaluate`: the report of a spec."""

from __future__ import annotations

import argparse

from polymodel.cli.codes import FINE, INFEASIBLE
from polymodel.cli.options import add_engine, add_format, add_sources
from polymodel.cli.output import (
    check_html,
    formatted,
    one_table,
    saved_text,
    tell,
    warn_without_plots,
    with_saved_files,
)
from polymodel.cli.progress import waiting
from polymodel.cli.specs import evaluated
from polymodel.errors import Diagnostic, SpecError
from polymodel.libraries import require

NAME, ABOUT = "evaluate", "Evaluate a spec and print the report."


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the options for sources, engine and outputs."""
    add_sources(parser)
    add_engine(parser)
    add_format(parser)
    parser.add_argument(
        "--table", metavar="NAME", help="print this table alone (default with --format csv: summary)"
    )
    parser.add_argument(
        "--live", action="store_true", help="also count lifetimes of single elements (slower)"
    )
    parser.add_argument(
        "--out", metavar="DIR", help="also save CSV tables, report.json, report.html and SVGs"
    )
    parser.add_argument(
        "--html", metavar="FILE", help="also save the whole report as one page, with pictures and plots"
    )
    parser.add_argument(
        "--parquet", action="store_true", help="with --out: save the tables as parquet as well"
    )


def run(options: argparse.Namespace) -> tuple[str, int]:
    """Print the report in the chosen format; exit code 1 if a capacity is exceeded."""
    from polymodel.cost.records import violation_lines
    from polymodel.report.export import check_table
    from polymodel.report.sparse_pointers import deciding_violations, verdict

    if options.table is not None:
        check_table(options.table)
    if options.parquet and not options.out:
        raise SpecError([Diagnostic("--parquet needs a folder", "add --out DIR", code="wrong-type")])
    check_html(options.html)
    if options.parquet:
        require("pyarrow")
    if options.html or options.out or (options.format == "html" and options.table is None):
        warn_without_plots()
    with waiting("counting"):
        report = evaluated(options, options.engine)
        text, told = formatted(report, options), []
        if options.html:
            report.to_html(options.html, live=options.live, command=options.command)
            told.append(f"saved {options.html}")
        if options.out:
            files = report.save(
                options.out, live=options.live, parquet=options.parquet, command=options.command
            )
            told.append(saved_text(files))
    text = with_saved_files(text, told, options.format == "table")
    if verdict(report)[0]:
        return text, FINE
    if one_table(options):
        tell("".join(f"! {text}\n" for text in violation_lines(deciding_violations(report))))
    return text, INFEASIBLE
