"""What all schema objects share: frozen, no unknown keys, located faults, expression-valued fields."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Annotated, Any, TypeVar

from pydantic import BaseModel, ConfigDict, Discriminator, PlainValidator, Tag, ValidationError
from pydantic_core import PydanticCustomError

from polymodel.errors import SpecError
from polymodel.spec.affine_text import parse_affine, parse_constraints
from polymodel.spec.convert import faults_of, shown
from polymodel.spec.faults import Faults, TextFault
from polymodel.spec.numbers import evaluate_number, symbols_in
from polymodel.spec.plain import plainly
from polymodel.spec.setexpr import parse_set

Expression = int | float | str
T = TypeVar("T")
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*\Z")


class SchemaObject(BaseModel):
    """Base of everything a spec is made of. Building one with bad arguments raises SpecError."""

    model_config = ConfigDict(
        frozen=True, extra="forbid", validate_default=False, arbitrary_types_allowed=True
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


def fault(message: str, remedy: str = "", offset: int = 0) -> PydanticCustomError:
    """A fault for a field validator to raise; braces in texts are kept as they are."""
    return PydanticCustomError("fault", "{message}", {"message": message, "remedy": remedy, "offset": offset})


def _checked(
    read: Callable[[str], object], what: str, example: str, numbers: bool
) -> Callable[[object], object]:
    def check(value: object) -> object:
        if numbers and isinstance(value, (int, float)) and not isinstance(value, bool):
            if value != value:
                raise fault("nan is not a number", "write a number")
            return value
        if not isinstance(value, str):
            raise fault(f"{shown(value)} is not {what}", f"write e.g. {example}")
        try:
            read(value)
        except TextFault as found:
            raise fault(found.message, found.remedy, found.offset) from found
        return value

    return check


def _number(text: str) -> object:
    return None if symbols_in(text) else evaluate_number(text)


def _name(text: str) -> None:
    if not _NAME.match(text):
        raise TextFault(
            f"{text!r} is not a name", 0, "names are letters, digits and _, and start with a letter or _"
        )


def _variable(text: str) -> None:
    if not _NAME.match(text):
        remedy = f"give the rank a name: projection: {{H: {text}}}"
        raise TextFault(f"{text!r} is not a single rank variable", 0, remedy)


def _affine(value: object) -> object:
    """A constant of YAML may be a float or any integer: it is held to what a written one is."""
    if isinstance(value, float) and not value.is_integer():
        raise fault(f"{value} is not a whole number", "coefficients are integers")
    if isinstance(value, (int, float)) and not isinstance(value, bool):
        _affine_text(str(int(value)))
        return int(value)
    return _affine_text(value)


_affine_text = _checked(parse_affine, "an affine expression", "2*p + r", False)
Number = Annotated[
    Expression,
    PlainValidator(_checked(_number, "a number", "128 or 8 * 1024", True), json_schema_input_type=Expression),
]
AffineText = Annotated[int | str, PlainValidator(_affine, json_schema_input_type=int | str)]
ConstraintText = Annotated[
    str,
    PlainValidator(
        _checked(parse_constraints, "a constraint", "0 <= m < 128", False), json_schema_input_type=str
    ),
]
SetText = Annotated[
    str,
    PlainValidator(
        _checked(parse_set, "a set expression", "~(input | output)", False), json_schema_input_type=str
    ),
]
SetKey = Annotated[
    str,
    PlainValidator(
        _checked(lambda text: parse_set(text, key=True), "a set expression", "All", False),
        json_schema_input_type=str,
    ),
]
NameText = Annotated[str, PlainValidator(_checked(_name, "a name", "m", False), json_schema_input_type=str)]


def one_of(word: str, shapes: dict[str, type | Sequence[type]], example: str) -> Discriminator:
    """Chooses between forms of a value by its Python type; tags `<...>` never show in paths."""

    def choose(value: Any) -> str | None:
        for tag, kinds in shapes.items():
            if isinstance(value, tuple(kinds) if isinstance(kinds, Sequence) else kinds):
                return tag
        return None

    return Discriminator(
        choose, custom_error_type="fault", custom_error_message="{message}",
        custom_error_context={
            "message": f"{word} must be {example}", "remedy": f"write {example}", "offset": 0,
        },
    )  # fmt: skip


VariableText = Annotated[
    str, PlainValidator(_checked(_variable, "a rank variable", "m", False), json_schema_input_type=str)
]
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
