"""The commands `polymodel schema` and `polymodel new`: what one begins with."""

from __future__ import annotations

import argparse
from collections.abc import Callable

from polymodel.errors import Diagnostic, SpecError

FINE = 0


def add_new_commands(add: Callable[[str, str], argparse.ArgumentParser]) -> None:
    """`add` makes a parser of a name and what it does."""
    parser = add("schema", "Print the JSON Schema of a kind of file, for editors and checks.")
    kinds = "spec arch workload renames mapping sweep explore symbols teaal energy_table"
    parser.add_argument("kind", nargs="?", choices=kinds.split(), help="default: spec, any file of ours")
    parser.add_argument("--out", metavar="DIR", help="write all of them, as DIR/KIND.schema.json")
    parser.set_defaults(run=run_schema)
    parser = add("new", "Print a commented starter spec, or write it to a new file.")
    parser.add_argument("file", nargs="?", help="a new file; or a folder (DIR/), for one file for each part")
    parts = ("spec", "arch", "workload", "mapping", "teaal")
    parser.add_argument("--kind", choices=parts, default="spec", help="what to write (default: a whole spec)")
    parser.add_argument("--schema", action="store_true", help="also write its schema beside it")
    parser.set_defaults(run=run_new)


def run_schema(options: argparse.Namespace) -> tuple[str, int]:
    """JSON Schema, from the same models that check the files."""
    from polymodel.report.schema import schema_text, write_schemas

    if options.out is None:
        return schema_text(options.kind or "spec"), FINE
    if options.kind is not None:
        raise SpecError([Diagnostic(f"--out writes every schema, not only {options.kind}", "leave one out")])
    return "".join(f"wrote {path}\n" for path in write_schemas(options.out)), FINE


def run_new(options: argparse.Namespace) -> tuple[str, int]:
    """A starter spec that evaluates as it stands."""
    from polymodel.report.starter import STARTERS, next_command, write_starter

    if options.file is None:
        return STARTERS[options.kind], FINE
    written = write_starter(options.file, options.kind, options.schema)
    files = [str(path) for path in written if path.suffix == ".yaml"] or [options.file]
    return f"wrote {', '.join(map(str, written))}; try: {next_command(options.kind, files)}\n", FINE
