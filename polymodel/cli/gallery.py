"""The command `polymodel gallery`: published results, ours beside theirs."""

from __future__ import annotations

import argparse

from polymodel.cli.codes import FINE
from polymodel.cli.options import LISTED, add_format, add_html
from polymodel.cli.output import check_html, write_page
from polymodel.cli.progress import waiting

NAME = "gallery"
ABOUT = "Compute published results anew, and show ours beside theirs."


def add_options(parser: argparse.ArgumentParser) -> None:
    """Which exhibits, and outputs."""
    parser.add_argument(
        "exhibits", nargs="*", metavar="NAME", help="what to compute; without any, what there is is listed"
    )
    parser.add_argument("--all", action="store_true", help="compute every exhibit")
    add_format(parser, LISTED)
    add_html(parser, "")


def run(options: argparse.Namespace) -> tuple[str, int]:
    """Print the figures of some exhibits, or which there are."""
    from polymodel.exhibits.listed import exhibits, gallery

    if not options.exhibits and not options.all:
        width = max(len(e.name) for e in exhibits())
        lines = [f"{e.name:{width}}  {e.title}" for e in exhibits()]
        return "\n".join([*lines, "", "polymodel gallery NAME computes one, --all every one"]) + "\n", FINE
    check_html(options.html)
    with waiting("computing"):
        result = gallery(*options.exhibits)
    write_page(result, options)
    table = result.table("figures")
    if options.format == "json":
        from polymodel.view.files import table_json

        return table_json(table), FINE
    return table.to_csv() if options.format == "csv" else f"{result}", FINE
