"""The command `polymodel show`: the parts of a spec as text or pictures."""

from __future__ import annotations

import argparse
from functools import partial
from pathlib import Path

from polymodel.cli.codes import FINE
from polymodel.cli.options import PICTURED, add_html, add_sources
from polymodel.cli.output import save_page, with_saved_files
from polymodel.cli.progress import waiting
from polymodel.cli.specs import load_spec

NAME, ABOUT = "show", "Show the workload, the architecture and the LoopTree of a spec."


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the options for sources and outputs."""
    add_sources(parser)
    parser.add_argument("--format", choices=PICTURED, default="table", help="text (default) or a page")
    add_html(parser)
    parser.add_argument(
        "--out", metavar="DIR", help="also write cascade.svg, architecture.svg and looptree.svg"
    )


@waiting("reading")
def run(options: argparse.Namespace) -> tuple[str, int]:
    """Show the parts of a spec as text or pictures."""
    from polymodel.report.show import show_html, show_pictures, show_text

    spec = load_spec(options)
    parts = spec.resolved
    if spec.teaal is None:
        parts = (
            spec.workload if spec.raw_workload is not None else None,
            spec.arch if spec.raw_arch is not None else None,
            spec.mapping,
        )
    whole = f"{spec}\n" if spec.teaal is not None else ""
    drawn = partial(show_html, *parts, spec.variable_declarations, whole)
    text = drawn() if options.format == "html" else whole or show_text(*parts, spec.variable_declarations)
    if options.format != "html":
        text += "".join(f"note: {remark}\n" for remark in spec.variable_remarks)
    saved = save_page(options.html, drawn)
    if options.out:
        saved.append(f"saved {', '.join(map(str, show_pictures(Path(options.out), *parts)))}")
    return with_saved_files(text, saved, options.format != "html"), FINE
