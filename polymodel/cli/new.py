"""The command `polymodel new`: a commented starter spec."""

from __future__ import annotations

import argparse

from polymodel.cli.codes import FINE

NAME, ABOUT = "new", "Print a commented starter spec, or write it to a new file."


def add_options(parser: argparse.ArgumentParser) -> None:
    """What to write, and where."""
    parser.add_argument("file", nargs="?", help="a new file; or a folder (DIR/), for one file for each part")
    parts = ("spec", "arch", "workload", "mapping", "teaal")
    parser.add_argument("--kind", choices=parts, default="spec", help="what to write (default: a whole spec)")
    parser.add_argument("--schema", action="store_true", help="also write its schema beside it")


def run(options: argparse.Namespace) -> tuple[str, int]:
    """A starter spec that evaluates as it stands."""
    from polymodel.report.starter import STARTERS, next_command, write_starter

    if options.file is None:
        return STARTERS[options.kind], FINE
    written = write_starter(options.file, options.kind, options.schema)
    files = [str(path) for path in written if path.suffix == ".yaml"] or [options.file]
    return f"wrote {', '.join(map(str, written))}; try: {next_command(options.kind, files)}\n", FINE
