"""The schema objects' own JSON Schemas, tidied: a text for every key, and nodes as editors see them.

An editor reads `!Storage {component: GLB}` as a mapping without the key `type`, so a node may have it or not;
which node is meant then follows from its keys.
"""

from __future__ import annotations

import math
from typing import Any, cast, get_args

from polymodel.spec.arch_schema import ArchNode
from polymodel.spec.base import SchemaObject
from polymodel.spec.schemas.texts import TEXTS, TYPE, Said
from polymodel.spec.yaml_text import MAPPING_TAGS

Json = dict[str, Any]
ARCH_NODES = tuple(node.__name__ for node in get_args(ArchNode))
MAPPING_NODES = MAPPING_TAGS
NAME = "[A-Za-z_][A-Za-z0-9_]*"
# Keys for which a single item is read as a list of one.
_LISTED = {
    ("Workload", "persistent_tensors"), ("Einsum", "iteration_space_shape"), ("SparseAction", "gate"),
    ("SparseAction", "skip"), ("SparseAction", "on"),
}  # fmt: skip
_LINE = "An Einsum as text, e.g. `C[m, n] = A[m, k] * B[k, n]`."


def definitions(model: type[SchemaObject]) -> tuple[str, dict[str, Json]]:
    """The name of the model's own definition, and all that it needs, each by the name of its model."""
    raw = model.model_json_schema(ref_template="#/$defs/{model}")
    result: dict[str, Json] = raw.pop("$defs", {})
    result[model.__name__] = raw
    return model.__name__, {name: _definition(name, part) for name, part in result.items()}


def _definition(name: str, raw: Json) -> Json:
    if name in ARCH_NODES or name in MAPPING_NODES or "properties" in raw:
        return _object(name, raw)
    return cast(Json, _tidy(raw))


def _object(name: str, raw: Json) -> Json:
    """Return the schema of one model: its keys with their texts, and no other keys."""
    keys = {key: _key(name, key, value) for key, value in raw.get("properties", {}).items()}
    result: Json = {"type": "object", "description": _about(raw), "properties": keys}
    needed = [k for k in raw.get("required", []) if k != "type"]
    if needed:
        result["required"] = needed
    return {**result, "additionalProperties": False}


def _about(raw: Json) -> str:
    return " ".join(str(raw.get("description", "")).split("\n\n")[0].split())


def _key(model: str, key: str, raw: Json) -> Json:
    tag = model.removesuffix("Unit")
    if key == "type":
        return {"const": tag, "description": TYPE.format(tag=tag)}
    text = TEXTS[model][key]
    value = cast(Json, _tidy(raw))
    if (model, key) in _LISTED:
        kept = {"default": value.pop("default")} if "default" in value else {}
        value = {"anyOf": [{"type": "string"}, value], **kept}
    if (model, key) == ("Workload", "einsums"):
        value["items"] = {"anyOf": [{"type": "string", "description": _LINE}, value["items"]]}
    return described(value, text)


def described(value: Json, text: Said) -> Json:
    """The schema of a value with its description, default and examples."""
    default = value.pop("default", None)
    extra: Json = {} if default in (None, [], {}, "") else {"default": default}
    shown = f" Default: {_shown(extra['default'])}." if extra else ""
    if isinstance(extra.get("default"), dict):
        shown = ""
    examples = {"examples": list(text.examples)} if text.examples else {}
    if "$ref" in value:
        value = {"allOf": [value]}
    return {"description": text.text + shown, **value, **extra, **examples}


def _shown(value: object) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    return ", ".join(map(str, value)) if isinstance(value, list) else str(value)


def _tidy(value: object) -> object:
    """The schema without titles and redundant entries; infinity is written `inf`, as in the files."""
    if isinstance(value, float) and math.isinf(value):
        return "inf"
    if isinstance(value, list):
        return [_tidy(v) for v in value]
    if not isinstance(value, dict):
        return value
    result: Json = {k: _tidy(v) for k, v in value.items() if not (k == "title" and isinstance(v, str))}
    for word in ("anyOf", "oneOf"):
        if word in result:
            result.update(_union(result.pop(word)))
    result.pop("discriminator", None)
    return result


def _union(options: list[Json]) -> Json:
    """Alternatives: plain types become one list of types."""
    types: list[str] = []
    rest: list[Json] = []
    for option in options:
        kind = option.get("type")
        if set(option) == {"type"}:
            types += kind if isinstance(kind, list) else [str(kind)]
        elif option not in rest:
            rest.append(option)
    types = [t for t in dict.fromkeys(types) if not (t == "integer" and "number" in types)]
    merged = [{"type": types if len(types) > 1 else types[0]}] if types else []
    together = merged + rest
    return together[0] if len(together) == 1 else {"anyOf": together}
