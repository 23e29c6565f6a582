"""pydantic's errors as located faults: our paths, our words, a remedy for each."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, get_args

from pydantic import BaseModel, ValidationError

from polymodel.spec.faults import MAX_FAULTS, Faults, Path, close_to, suggestion
from polymodel.spec.foreign import key_of_another_tool
from polymodel.spec.source import UNKNOWN_TAG

if TYPE_CHECKING:
    from pydantic_core import ErrorDetails

_TYPES = {
    "string_type": ("text", "write a name"),
    "bool_type": ("true or false", "write true or false"),
    "bool_parsing": ("true or false", "write true or false"),
    "tuple_type": ("a list", "write [a, b] or one `- item` a line"),
    "list_type": ("a list", "write [a, b] or one `- item` a line"),
    "dict_type": ("a mapping", "write {key: value} or one `key: value` a line"),
    "model_type": ("a mapping", "write {key: value} or one `key: value` a line"),
    "model_attributes_type": ("a mapping", "write {key: value} or one `key: value` a line"),
    "int_type": ("a whole number", "write a whole number"),
    "int_parsing": ("a whole number", "write a whole number"),
    "int_from_float": ("a whole number", "write a whole number"),
}


def faults_of(error: ValidationError, model: type[BaseModel], prefix: Path, faults: Faults) -> None:
    """Add every error of a validation that started at `prefix` with `model` to `faults`."""
    details = error.errors(include_url=False)[: MAX_FAULTS + 1]
    unknown = [(d["loc"][:-1], str(d["loc"][-1])) for d in details if d["type"] == "extra_forbidden"]
    for detail in details:
        loc = detail["loc"]
        if detail["type"] == "missing" and any(
            where == loc[:-1] and close_to(key, [str(loc[-1])]) for where, key in unknown
        ):
            continue  # told at the misspelt key
        _one(detail, model, prefix, faults)


def _one(detail: ErrorDetails, model: type[BaseModel], prefix: Path, faults: Faults) -> None:
    loc = detail["loc"]
    on_key = bool(loc) and loc[-1] == "[key]"
    path = prefix + tuple(p for p in loc if not (isinstance(p, str) and p.startswith(("<", "["))))
    context: dict[str, Any] = detail.get("ctx", {})
    kind, given = detail["type"], detail.get("input")
    if given == UNKNOWN_TAG and loc[-1:] == ("type",):
        return
    if kind == "fault":
        faults.add(
            path, str(context["message"]), str(context["remedy"]), key=on_key, offset=context["offset"]
        )
    elif kind == "node_tag":
        _node_tag(path, context, given, faults)
    elif kind == "missing":
        faults.add(path[:-1], f"key `{path[-1]}` is missing", f"add `{path[-1]}:`")
    elif kind in ("extra_forbidden", "unexpected_keyword_argument"):
        other = key_of_another_tool(path)
        if other is not None:
            faults.add(path, f"`{path[-1]}` is a key of {other[0]}'s, not of ours", other[1], key=True)
            return
        near = suggestion(str(path[-1]), keys_at(model, loc), "known keys")
        faults.add(path, f"unknown key `{path[-1]}`", near, key=True)
    elif kind == "literal_error":
        _literal(path, str(context.get("expected", "")), given, faults)
    elif kind in _TYPES:
        what, remedy = _TYPES[kind]
        faults.add(path, f"{shown(given)} is not {what}", remedy)
    else:
        message = str(detail["msg"])
        faults.add(path, message[:1].lower() + message[1:], "see `polymodel schema` for what is expected")


def shown(value: object) -> str:
    """A given value in the text of a fault."""
    if value is None:
        return "an empty value"
    if isinstance(value, dict):
        return "a mapping"
    if isinstance(value, (list, tuple)):
        return "a list"
    text = repr(value)
    return text if len(text) <= 60 else text[:57] + "..."


def _node_tag(path: Path, context: dict[str, Any], given: object, faults: Faults) -> None:
    known = str(context["known"]).split()
    kind = given.get("type") if isinstance(given, dict) else None
    if kind == UNKNOWN_TAG:
        return  # told by the reader
    if isinstance(kind, str):
        near = close_to(kind, known)
        remedy = f"did you mean !{near}?" if near else "use one of them"
        faults.add(path, f"!{kind} does not belong here: {context['message']}", remedy)
    else:
        faults.add(path, str(context["message"]), f"write e.g. `- !{known[0]}` or the key `type: {known[0]}`")


def _literal(path: Path, expected: str, given: object, faults: Faults) -> None:
    words = [w.strip().strip("'") for w in expected.replace(" or ", ", ").split(",")]
    faults.add(
        path, f"{given!r} is not one of {', '.join(words)}", suggestion(str(given), words, "write one of")
    )


def keys_at(model: type[BaseModel], loc: tuple[str | int, ...]) -> list[str]:
    """Field names of the model that the unknown key `loc[-1]` was given to."""
    here: list[Any] = [model]
    for part in loc[:-1]:
        here = [found for h in here for found in _step(h, part)]
    found: list[str] = []
    for h in here:
        for m in _models(h):
            found.extend(n for n in m.model_fields if n not in found)
    return [f for f in found if f != "type"]


def _step(annotation: Any, part: str | int) -> list[Any]:
    if isinstance(part, str) and part.startswith("<"):
        name = part.strip("<>")
        named = [m for m in _models(annotation) if m.__name__.removesuffix("Unit") == name]
        return named or [annotation]
    if isinstance(part, int):
        return [annotation]
    models = [m for m in _models(annotation) if part in m.model_fields]
    if models:
        return [m.model_fields[part].annotation for m in models]
    return [annotation]


def _models(annotation: Any) -> list[type[BaseModel]]:
    """Models inside an annotation such as `tuple[A | B, ...]`."""
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return [annotation]
    return [m for a in get_args(annotation) for m in _models(a)]
