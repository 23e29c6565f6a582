"""Misspelt keys read as what was meant, so that what they hold is checked in the same round.

The slip itself has been told by then: a spec with one is never used.
"""

from __future__ import annotations

from typing import Any

from pydantic import ValidationError

from polymodel.spec.base import SchemaObject
from polymodel.spec.convert import keys_at
from polymodel.spec.faults import close_to


def read_as_meant(data: object, model: type[SchemaObject], error: ValidationError) -> SchemaObject | None:
    """The section with each unknown key renamed to the known one next to it; None if that is not all."""
    meant: Any = _copied(data)
    for detail in error.errors(include_url=False):
        if detail["type"] == "missing":
            continue  # it may be there under the misspelt key
        loc = detail["loc"]
        near = close_to(str(loc[-1]), keys_at(model, loc)) if detail["type"] == "extra_forbidden" else ""
        here = _container(meant, loc[:-1])
        if not near or here is None or near in here:
            return None
        here[near] = here.pop(loc[-1])
    try:
        return model.model_validate(meant)
    except ValidationError:
        return None


def _copied(data: object) -> object:
    """Tables and lists anew; what else stands in them, as objects that Python gave, is the same."""
    if isinstance(data, dict):
        return {key: _copied(value) for key, value in data.items()}
    return [_copied(value) for value in data] if isinstance(data, list) else data


def _container(data: Any, loc: tuple[str | int, ...]) -> dict[Any, Any] | None:
    """What stands at this place of the data; pydantic's own names of branches are no part of it."""
    for part in loc:
        if isinstance(part, str) and part.startswith(("<", "[")):
            continue
        try:
            data = data[part]
        except (KeyError, IndexError, TypeError):
            return None
    return data if isinstance(data, dict) else None
