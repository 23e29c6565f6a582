"""The base of all schema objects: frozen, no unknown keys, fields that accept expressions; and the errors of
pydantic as located faults in polymodel's words."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Annotated, Any, TypeVar, get_args

from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Discriminator,
    Tag,
    TypeAdapter,
    ValidationError,
    ValidationInfo,
)
from pydantic_core import PydanticCustomError, core_schema

from polymodel.errors import SpecError
from polymodel.spec.expressions import parse_set
from polymodel.spec.faults import (
    MAX_FAULTS,
    UNKNOWN_TAG,
    Faults,
    Path,
    TextFault,
    close_to,
    plainly,
    suggestion,
)
from polymodel.spec.numbers import (
    Dimension,
    evaluate_number,
    in_base_units,
    parse_affine,
    parse_constraints,
    symbols_in,
)
from polymodel.spec.other_tools import key_of_another_tool

if TYPE_CHECKING:
    from pydantic import GetCoreSchemaHandler, GetJsonSchemaHandler
    from pydantic.json_schema import JsonSchemaValue
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
    "float_type": ("a number", "write a number"),
    "float_parsing": ("a number", "write a number"),
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
            continue  # reported at the misspelt key
        _add_fault(detail, model, prefix, faults)


def _add_fault(detail: ErrorDetails, model: type[BaseModel], prefix: Path, faults: Faults) -> None:
    loc = detail["loc"]
    on_key = bool(loc) and loc[-1] == "[key]"
    path = prefix + tuple(p for p in loc if not (isinstance(p, str) and p.startswith(("<", "["))))
    context: dict[str, Any] = detail.get("ctx", {})
    kind, given = detail["type"], detail.get("input")
    if given == UNKNOWN_TAG and loc[-1:] == ("type",):
        return
    if kind == "fault":
        faults.add(
            path,
            str(context["message"]),
            str(context["remedy"]),
            key=on_key,
            offset=context["offset"],
            code=str(context["code"]),
        )
    elif kind == "node_tag":
        _node_tag(path, context, given, faults)
    elif kind == "missing":
        faults.add(path[:-1], f"key `{path[-1]}` is missing", f"add `{path[-1]}:`", code="missing-key")
    elif kind in ("extra_forbidden", "unexpected_keyword_argument"):
        other = key_of_another_tool(path)
        if other is not None:
            fault = f"`{path[-1]}` is a key of {other[0]}'s, not of ours"
            faults.add(path, fault, other[1], key=True, code="foreign-file")
            return
        near = suggestion(str(path[-1]), keys_at(model, loc), "known keys")
        faults.add(path, f"unknown key `{path[-1]}`", near, key=True, code="unknown-key")
    elif kind == "literal_error":
        _literal(path, str(context.get("expected", "")), given, faults)
    elif kind in _TYPES:
        what, remedy = _TYPES[kind]
        faults.add(path, f"{shown(given)} is not {what}", remedy, code="wrong-type")
    else:
        message = str(detail["msg"])
        faults.add(
            path,
            message[:1].lower() + message[1:],
            "see `polymodel schema` for what is expected",
            code="wrong-type",
        )


def shown(value: object) -> str:
    """A given value as text for a fault."""
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
        return  # reported by the reader
    if isinstance(kind, str):
        near = close_to(kind, known)
        remedy = f"did you mean !{near}?" if near else "use one of them"
        message = f"!{kind} does not belong here: {context['message']}"
        faults.add(path, message, remedy, code="invalid-structure")
    else:
        what = f"write e.g. `- !{known[0]}` or the key `type: {known[0]}`"
        faults.add(path, str(context["message"]), what, code="wrong-type")


def _literal(path: Path, expected: str, given: object, faults: Faults) -> None:
    words = [w.strip().strip("'") for w in expected.replace(" or ", ", ").split(",")]
    message = f"{given!r} is not one of {', '.join(words)}"
    faults.add(path, message, suggestion(str(given), words, "write one of"), code="unknown-choice")


def keys_at(model: type[BaseModel], loc: tuple[str | int, ...]) -> list[str]:
    """Field names of the model in which `loc[-1]` is an unknown key.

    Fields of the class itself come before inherited ones, since they are more specific and long lists are
    cut.
    """
    here: list[Any] = [model]
    for part in loc[:-1]:
        here = [found for h in here for found in _within(h, part)]
    result: list[str] = []
    for h in here:
        for m in _models(h):
            result.extend(n for n in _own_first(m) if n not in result)
    return [f for f in result if f != "type"]


def _own_first(model: type[BaseModel]) -> list[str]:
    """Field names, from the class itself up to its most distant base."""
    classes = [c for c in model.__mro__ if issubclass(c, BaseModel)]
    return sorted(model.model_fields, key=lambda name: sum(name in c.model_fields for c in classes))


def _within(annotation: Any, part: str | int) -> list[Any]:
    if isinstance(part, str) and part.startswith("<"):
        name = part.strip("<>")
        named = [m for m in _models(annotation) if m.__name__.removesuffix("Unit") == name]
        return named or [annotation]
    if isinstance(part, int):
        return [annotation]
    models = [m for m in _models(annotation) if part in m.model_fields]
    for m in models:
        m.model_rebuild()  # nodes name classes that are defined after them; types until then are bare names
    if models:
        return [m.model_fields[part].annotation for m in models]
    return [annotation]


def _models(annotation: Any) -> list[type[BaseModel]]:
    """Models inside an annotation such as `tuple[A | B, ...]`."""
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return [annotation]
    return [m for a in get_args(annotation) for m in _models(a)]


Expression = int | float | str
T = TypeVar("T")
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*\Z")


class SchemaObject(BaseModel):
    """Base of all parts of a spec. Construction with invalid arguments raises SpecError."""

    model_config = ConfigDict(
        frozen=True,
        extra="forbid",
        validate_default=False,
        arbitrary_types_allowed=True,
        defer_build=True,  # one validator per section, built at its first use; none for its parts
    )

    def __init__(self, /, **data: object) -> None:
        try:
            super().__init__(**{name: plainly(value) for name, value in data.items()})
        except ValidationError as error:
            faults = Faults()
            faults_of(error, type(self), (), faults)
            raise SpecError(faults.found) from error

    # Nested objects are validated by pydantic itself, so that one error holds every fault.
    __init__.__pydantic_base_init__ = True  # type: ignore[attr-defined]  # read by pydantic only


def fault(message: str, remedy: str = "", offset: int = 0, *, code: str) -> PydanticCustomError:
    """A fault for a field validator to raise; braces in texts are kept literally."""
    context = {"message": message, "remedy": remedy, "offset": offset, "code": code}
    return PydanticCustomError("fault", "{message}", context)


def passed_on(found: TextFault, remedy: str = "") -> PydanticCustomError:
    """A fault of a text, for a field validator to raise; `remedy`: used if the fault has none."""
    return fault(found.message, found.remedy or remedy, found.offset, code=found.code)


def _checked(
    read: Callable[[str], object], what: str, example: str, numbers: bool
) -> Callable[[object], object]:
    def check(value: object) -> object:
        if numbers and isinstance(value, (int, float)) and not isinstance(value, bool):
            if value != value:
                raise fault("nan is not a number", "write a number", code="not-a-number")
            return value
        if not isinstance(value, str):
            raise fault(f"{shown(value)} is not {what}", f"write e.g. {example}", code="wrong-type")
        try:
            read(value)
        except TextFault as found:
            raise passed_on(found) from found
        return value

    return check


def _number(text: str) -> object:
    return None if symbols_in(text) else evaluate_number(text)


def _name(text: str) -> None:
    if not _NAME.match(text):
        message = f"{text!r} is not a name"
        remedy = "names are letters, digits and _, and start with a letter or _"
        raise TextFault(message, 0, remedy, code="invalid-name")


def _variable(text: str) -> None:
    if not _NAME.match(text):
        remedy = f"give the rank a name: projection: {{H: {text}}}"
        raise TextFault(f"{text!r} is not a single rank variable", 0, remedy)


def _affine(value: object) -> object:
    """A constant in YAML may be a float or any integer; it has to satisfy the rules for written constants."""
    if isinstance(value, float) and not value.is_integer():
        raise fault(f"{value} is not a whole number", "coefficients are integers", code="not-an-integer")
    if isinstance(value, (int, float)) and not isinstance(value, bool):
        _affine_text(str(int(value)))
        return int(value)
    return _affine_text(value)


class _Read:
    """A value that a function checks; `given`: what may stand in a file, for JSON schemas.

    It is what pydantic's `PlainValidator` is, but for a schema of `given` that pydantic builds at each of the
    hundred places where a number or a name may stand: a third of the time that validators take to be made.
    """

    def __init__(self, check: Callable[[object], object], given: Any) -> None:
        self.check, self.given = check, given

    def __get_pydantic_core_schema__(
        self, source: object, handler: GetCoreSchemaHandler
    ) -> core_schema.CoreSchema:
        return core_schema.no_info_plain_validator_function(self.check)

    def __get_pydantic_json_schema__(
        self, schema: core_schema.CoreSchema, handler: GetJsonSchemaHandler
    ) -> JsonSchemaValue:
        return handler(TypeAdapter(self.given).core_schema)


def _plain_number(value: object) -> object:
    """A number as such, or a text that is one, such as `1e-3`; true and false are none."""
    given = value
    if isinstance(value, str) and not symbols_in(value):
        try:
            given = evaluate_number(value)
        except TextFault as found:
            raise passed_on(found) from found
    if isinstance(given, bool) or not isinstance(given, (int, float)):
        raise fault(f"{shown(value)} is not a number", "write a number", code="wrong-type")
    if given != given:
        raise fault("nan is not a number", "write a number", code="not-a-number")
    return given


def _factor(value: object) -> object:
    if isinstance(value, str) or (isinstance(value, int) and not isinstance(value, bool)):
        return value
    message = f"{shown(value)} is not a whole number or a bound on one"
    raise fault(message, "write e.g. 4 or '<= 4'", code="wrong-type")


_affine_text = _checked(parse_affine, "an affine expression", "2*p + r", False)
Number = Annotated[Expression, _Read(_checked(_number, "a number", "128 or 8 * 1024", True), Expression)]


# Where a plain union of types stood, pydantic would add the name of each type to the path of the fault.
PlainNumber = Annotated[int | float, _Read(_plain_number, int | float)]
Factor = Annotated[int | str, _Read(_factor, int | str)]


def in_units(dimension: Dimension | Callable[[str], Dimension]) -> BeforeValidator:
    """Converts texts with a unit of the dimension to numbers; the dimension may depend on the `name` next to
    the value."""

    def read(value: object, info: ValidationInfo) -> object:
        known = dimension if isinstance(dimension, Dimension) else dimension(str(info.data.get("name")))
        try:
            return in_base_units(value, known)
        except TextFault as found:
            raise passed_on(found) from found

    return BeforeValidator(read)


AffineText = Annotated[int | str, _Read(_affine, int | str)]
ConstraintText = Annotated[
    str, _Read(_checked(parse_constraints, "a constraint", "0 <= m < 128", False), str)
]
SetText = Annotated[str, _Read(_checked(parse_set, "a set expression", "~(input | output)", False), str)]
SetKey = Annotated[
    str, _Read(_checked(lambda text: parse_set(text, key=True), "a set expression", "All", False), str)
]
NameText = Annotated[str, _Read(_checked(_name, "a name", "m", False), str)]


def one_of(word: str, shapes: dict[str, type | Sequence[type]], example: str) -> Discriminator:
    """Chooses between forms of a value by its Python type; the tags `<...>` never appear in paths."""

    def choose(value: Any) -> str | None:
        for tag, kinds in shapes.items():
            if isinstance(value, tuple(kinds) if isinstance(kinds, Sequence) else kinds):
                return tag
        return None

    return Discriminator(
        choose, custom_error_type="fault", custom_error_message="{message}",
        custom_error_context={
            "message": f"{word} must be {example}", "remedy": f"write {example}", "offset": 0,
            "code": "wrong-type",
        },
    )  # fmt: skip


VariableText = Annotated[str, _Read(_checked(_variable, "a rank variable", "m", False), str)]
Projection = Annotated[
    Annotated[tuple[VariableText, ...], Tag("<list>")]
    | Annotated[dict[NameText, AffineText], Tag("<mapping>")],
    one_of("a projection", {"<list>": (list, tuple), "<mapping>": dict}, "[m, k] or {H: p + r, W: q}"),
]


def node_tag(known: tuple[str, ...], what: str) -> Discriminator:
    """Chooses a node class by its tag (`!Memory`, read as the key `type`)."""

    def choose(value: Any) -> str | None:
        if isinstance(value, BaseModel):
            return f"<{type(value).__name__.removesuffix('Unit')}>"
        kind = value.get("type") if isinstance(value, dict) else None
        return f"<{kind}>" if kind in known else None

    shown = ", ".join("!" + k for k in known)
    return Discriminator(
        choose, custom_error_type="node_tag", custom_error_message="{message}",
        custom_error_context={"message": f"{what} needs one of the tags {shown}", "known": " ".join(known)},
    )  # fmt: skip
