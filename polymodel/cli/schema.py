"""The command `polymodel schema`: JSON Schemas of the input files, for editors and checks."""

from __future__ import annotations

import argparse
from pathlib import Path

from polymodel.cli.codes import FINE
from polymodel.errors import Diagnostic, SpecError, writing

NAME, ABOUT = "schema", "Print the JSON Schema of a kind of file, for editors and checks."


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the options for which schema to print, or where to write all of them."""
    kinds = "spec arch workload renames mapping sweep explore codesign symbols teaal energy_table"
    parser.add_argument("kind", nargs="?", choices=kinds.split(), help="default: spec, any file of ours")
    parser.add_argument("--out", metavar="DIR", help="write all of them, as DIR/KIND.schema.json")


def run(options: argparse.Namespace) -> tuple[str, int]:
    """Print a JSON Schema, generated from the models that check the files."""
    from polymodel.spec.schemas import schema_text

    if options.out is None:
        return schema_text(options.kind or "spec"), FINE
    if options.kind is not None:
        message = f"--out writes every schema, not only {options.kind}"
        raise SpecError([Diagnostic(message, "leave one out", code="ineffective-argument")])
    return "".join(f"wrote {path}\n" for path in write_schemas(options.out)), FINE


def write_schemas(folder: str) -> list[Path]:
    """Write all schemas as `KIND.schema.json` into the folder, which is created. Raises SpecError if that
    fails."""
    from polymodel.spec.files import write_text
    from polymodel.spec.schemas import KINDS, schema_text

    result = []
    with writing(folder):
        root = Path(folder)
        root.mkdir(parents=True, exist_ok=True)
        for kind in KINDS:
            path = root / f"{kind}.schema.json"
            write_text(path, schema_text(kind))
            result.append(path)
    return result
