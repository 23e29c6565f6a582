"""The command `polymodel gallery`: published results beside those of this package."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from polymodel.cli.codes import FINE
from polymodel.cli.options import LISTED, add_format, add_html
from polymodel.cli.output import check_targets, saved_text, warn_without_plots, with_saved_files
from polymodel.cli.progress import waiting
from polymodel.errors import Diagnostic, SpecError

if TYPE_CHECKING:
    from polymodel.exhibits.records import Gallery

NAME = "gallery"
ABOUT = "Recompute published results, and show both side by side."


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the options for the exhibits and outputs."""
    parser.add_argument(
        "exhibits",
        nargs="*",
        metavar="NAME",
        help="exhibits to compute; without any, all exhibits are listed",
    )
    parser.add_argument("--all", action="store_true", help="compute every exhibit")
    add_format(parser, LISTED)
    parser.add_argument("--out", metavar="DIR", help="also save them as CSV, JSON, text and one page")
    add_html(parser, "")


def run(options: argparse.Namespace) -> tuple[str, int]:
    """Print the figures of the chosen exhibits, or the list of all exhibits."""
    from polymodel.exhibits.listed import exhibits, gallery

    if not options.exhibits and not options.all:
        if options.out or options.html:
            what = f"{'--out' if options.out else '--html'} without exhibits: nothing is computed"
            raise SpecError([Diagnostic(what, "name some, or write --all", code="missing-argument")])
        width = max(len(e.name) for e in exhibits())
        lines = [f"{e.name:{width}}  {e.title}" for e in exhibits()]
        return "\n".join([*lines, "", "polymodel gallery NAME computes one, --all every one"]) + "\n", FINE
    check_targets(options)
    if options.html or options.out:
        warn_without_plots()
    with waiting("computing"):
        result, told = gallery(*options.exhibits), []
        if options.html:
            result.to_html(options.html, command=options.command)
            told.append(f"saved {options.html}")
        if options.out:
            told.append(saved_text(result.save(options.out, command=options.command)))
    return with_saved_files(_formatted(result, options.format), told, options.format == "table"), FINE


def _formatted(result: Gallery, style: str) -> str:
    if style == "json":
        from polymodel.view.files import table_json

        return table_json(result.exported())
    return result.to_csv() if style == "csv" else f"{result}"
