"""Inputs that follow the branches they reach: `python -m tests.fuzz.atheris TARGET -runs=N`.

TARGET is one of the readers of texts or of bytes, e.g. "number expressions", "YAML", "Matrix Market".
"""

from __future__ import annotations

import os
import sys
import tempfile
from contextlib import suppress
from importlib import import_module
from pathlib import Path

import atheris  # type: ignore[import-untyped]  # it has no types

WATCHED = ("polymodel.spec", "polymodel.sparse.files", "polymodel.sweeps.expressions")
with atheris.instrument_imports(include=list(WATCHED)):
    for name in ("spec.numbers", "spec.document", "spec.expressions", "spec.template", "sparse.files"):
        import_module(f"polymodel.{name}")
    import_module("polymodel.sweeps.expressions")

from polymodel.errors import PolymodelError  # noqa: E402  # what is watched comes first
from tests.fuzz.targets import TARGETS  # noqa: E402  # what is watched comes first

BYTES = ("YAML", "specs, bytes and words", "TeAAL specs", "Matrix Market", "FROSTT", "gzip", "energy tables")


def main(arguments: list[str]) -> None:
    """Never returns: libFuzzer ends the process, with 0 if all went well."""
    target = TARGETS[arguments[1]]
    folder = Path(tempfile.mkdtemp())
    os.chdir(folder)

    def one(data: bytes) -> None:
        given = data if target.name in BYTES else data.decode("utf-8", "replace")
        with suppress(PolymodelError):
            target.read(given, folder)

    atheris.Setup([arguments[0], *arguments[2:]], one)
    atheris.Fuzz()


if __name__ == "__main__":
    main(sys.argv)
