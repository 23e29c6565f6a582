"""JSON Schemas of all files that users write: from the models that check them, with a text for every key."""

from polymodel.spec.schemas.files import KINDS, schema, schema_text

__all__ = ["KINDS", "schema", "schema_text"]
