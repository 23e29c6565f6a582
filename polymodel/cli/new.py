"""The command `polymodel new`: write a commented starter spec, or a copy of a packaged file to edit."""

from __future__ import annotations

import argparse

from polymodel.cli.codes import FINE
from polymodel.errors import Diagnostic, SpecError

NAME, ABOUT = "new", "Print a commented starter spec or a packaged file, or write it to a new file."


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the options for what to write, and where."""
    parser.add_argument("file", nargs="?", help="a new file; or a folder (DIR/), for one file for each part")
    parts = ("spec", "arch", "workload", "mapping", "teaal")
    what = parser.add_mutually_exclusive_group()
    what.add_argument("--kind", choices=parts, default="spec", help="what to write (default: a whole spec)")
    what.add_argument(
        "--from", dest="packaged", metavar="NAME", help="a packaged architecture, workload or mapping instead"
    )
    what.add_argument(
        "--list", action="store_true", help="the packaged names instead, each with a line about it"
    )
    parser.add_argument("--schema", action="store_true", help="also write its schema beside it")


def run(options: argparse.Namespace) -> tuple[str, int]:
    """Write a starter spec that evaluates without changes, or an unchanged packaged file."""
    from polymodel.report.starter import (
        STARTERS,
        next_command,
        packaged_file,
        packaged_names,
        write_copy,
        write_starter,
    )

    if options.list:
        if options.file is not None or options.schema:
            what = "a file" if options.file is not None else "--schema"
            message = f"--list beside {what}: nothing is written"
            raise SpecError([Diagnostic(message, "leave one out", code="conflicting-arguments")])
        return packaged_names(), FINE
    if options.packaged is not None:
        packaged = packaged_file(options.packaged)
        if options.file is None:
            return packaged.text, FINE
        written = write_copy(options.file, packaged, options.schema)
        following = f"polymodel {packaged.uses} {options.file}"
    elif options.file is None:
        return STARTERS[options.kind], FINE
    else:
        written = write_starter(options.file, options.kind, options.schema)
        specs = [str(path) for path in written if path.suffix == ".yaml"] or [options.file]
        following = next_command(options.kind, specs)
    return f"wrote {', '.join(map(str, written))}; try: {following}\n", FINE
