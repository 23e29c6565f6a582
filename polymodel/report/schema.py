"""What `polymodel schema` prints or writes."""

from __future__ import annotations

from pathlib import Path

from polymodel.errors import writing
from polymodel.spec.output import write_text
from polymodel.spec.schemas import KINDS, schema, schema_text

__all__ = ["KINDS", "schema", "schema_text", "write_schemas"]


def write_schemas(folder: str) -> list[Path]:
    """Write every schema as `KIND.schema.json` into the folder, which is made. SpecError if it cannot be."""
    found = []
    with writing(folder):
        root = Path(folder)
        root.mkdir(parents=True, exist_ok=True)
        for kind in KINDS:
            path = root / f"{kind}.schema.json"
            write_text(path, schema_text(kind))
            found.append(path)
    return found
