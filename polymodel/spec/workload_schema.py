"""Schema of `workload:` and `renames:`."""

from __future__ import annotations

import re
from typing import Annotated, Literal

from pydantic import BeforeValidator, Field, Tag

from polymodel.spec.affine_text import AccessText, EinsumText, parse_einsum
from polymodel.spec.base import (
    ConstraintText,
    NameText,
    Number,
    Projection,
    SchemaObject,
    SetKey,
    SetText,
    fault,
    one_of,
)
from polymodel.spec.faults import TextFault


class TensorAccess(SchemaObject):
    """How an Einsum touches a tensor.

    `projection`: a list of rank variables (ranks are their upper-cased names), or rank -> affine
    expression. `accumulate`: the output has values before, to which results are added. `bits_per_value`
    overrides the workload's. `density` overrides the workload's `densities`.
    """

    name: NameText
    projection: Projection
    output: bool = False
    accumulate: bool = False
    bits_per_value: Number | None = None
    persistent: bool = False
    backing_storage_size_scale: Number = 1
    density: object = None


class Rename(SchemaObject):
    """A name for a set of tensors or rank variables; `expected_count` is checked."""

    name: NameText
    source: SetText
    expected_count: int | None = None


RenameTable = Annotated[
    Annotated[tuple[Rename, ...], Tag("<list>")] | Annotated[dict[NameText, SetText], Tag("<mapping>")],
    one_of(
        "renames", {"<list>": (list, tuple), "<mapping>": dict}, "{input: T0} or [{name: input, source: T0}]"
    ),
]


class Operations(SchemaObject):
    """What the Einsum computes, for the executor: `map`, `reduce` and `populate` operators."""

    map: str | None = None
    reduce: str | None = None
    populate: str | None = None


def _shape_list(value: object) -> object:
    return [value] if isinstance(value, str) else value


class _Reordered(str):
    """A one-line Einsum that lists the ranks of a tensor in another order than an earlier one."""

    message: str
    remedy: str
    offset: int


def _orders(value: object) -> object:
    """One-line Einsums; ranks are named after variables, so that T[n, m] would be read as T[m, n]."""
    if not isinstance(value, (list, tuple)):
        return value
    first: dict[str, list[str]] = {}
    return [_in_order(item, first) if isinstance(item, str) else item for item in value]


def _in_order(text: str, first: dict[str, list[str]]) -> str:
    for access in re.finditer(r"([A-Za-z_]\w*)\s*\[([\w\s,]*)\]", text):
        tensor, names = access[1], [n.strip() for n in access[2].split(",")]
        known = first.setdefault(tensor, names)
        if known != names and sorted(known) == sorted(names) and len({*names}) == len(names):
            found = _Reordered(text)
            same = ", ".join(f"{n.upper()}={n}" for n in known)
            turned = ", ".join(f"{r.upper()}={n}" for r, n in zip(known, names, strict=True))
            found.message = (
                f"{tensor} is indexed [{', '.join(names)}] here and [{', '.join(known)}] above; ranks are "
                f"named after their variables, so both are {tensor}[{same}]"
            )
            found.remedy = f"write {tensor}[{turned}] for a transpose, or {tensor}[{', '.join(known)}]"
            found.offset = access.start()
            return found
    return text


def _one_line(value: object) -> object:
    """`Y[m, n] = A[m, k] * B[k, n]` as the mapping it stands for."""
    if not isinstance(value, str):
        return value
    if isinstance(value, _Reordered):
        raise fault(value.message, value.remedy, value.offset)
    try:
        parsed = parse_einsum(value)
    except TextFault as found:
        raise fault(
            found.message, found.remedy or "write e.g. Y[m, n] = A[m, k] * B[k, n]", found.offset
        ) from found
    accesses: list[dict[str, object]] = []
    read, accumulates = _updated(parsed)
    for tensor, ranks, output in (*read, parsed.accesses[0]):
        if len({r for r, _ in ranks}) < len(ranks):
            raise fault(f"tensor {tensor} has a rank twice", "name each rank: T[A=m, B=m]")
        access: dict[str, object] = {"name": tensor, "projection": dict(ranks), "output": output}
        accesses.append(access | ({"accumulate": True} if output and accumulates else {}))
    found_operations = {"map": "add"} if parsed.joined == "+" else {}
    einsum: dict[str, object] = {"name": parsed.accesses[0][0], "tensor_accesses": accesses}
    return einsum | ({"operations": found_operations} if found_operations else {})


def _updated(parsed: EinsumText) -> tuple[tuple[AccessText, ...], bool]:
    """What is read, and whether results are added to the output: `Z[m] = Z[m] + A[m]` is `Z[m] += A[m]`."""
    output, *read = parsed.accesses
    before = (output[0], output[1], False)
    if parsed.joined != "+" or parsed.accumulates or before not in read or len(read) < 2:
        return tuple(read), parsed.accumulates
    read.remove(before)
    indexing = {name for _, ranks, _ in (output,) for _, text in ranks for name in _names(text)}
    for name in (n for _, ranks, _ in read for _, text in ranks for n in _names(text)):
        if name not in indexing:
            tensor = output[0]
            raise fault(
                f"{tensor} is read in every iteration of {name}, over which it is summed up",
                f"write {tensor}[...] += ..., which adds to it once",
            )
    return tuple(read), True


def _names(text: str) -> list[str]:
    return re.findall(r"[A-Za-z_]\w*", text)


class Einsum(SchemaObject):
    """One Einsum. In YAML also as one line of text, then named after its output."""

    name: NameText
    tensor_accesses: tuple[TensorAccess, ...]
    is_copy_operation: bool = False
    n_instances: Number = 1
    rank_sizes: dict[NameText, Number] = Field(default_factory=dict)
    iteration_space_shape: Annotated[tuple[ConstraintText, ...], BeforeValidator(_shape_list)] = ()
    renames: RenameTable = Field(default_factory=dict)
    operations: Operations = Field(default_factory=Operations)


EinsumOrText = Annotated[Einsum, BeforeValidator(_one_line)]


def _set_list(value: object) -> object:
    return [value] if isinstance(value, str) else value


class Workload(SchemaObject):
    """A cascade of Einsums in execution order.

    `rank_sizes`: rank -> size. `iteration_space_shape`: rank variable -> ISL-style constraint.
    `bits_per_value`: set expression -> bits. `densities`: tensor -> share of nonzero points, or a density
    model (docs/sparse/density.md); a tensor without one has no zeros. `generational`: ranks along which
    tensors are carried forward (inferred where it is left out); `init`: tensor -> what its generations hold
    that nobody writes, a number or `identity`.
    """

    einsums: Annotated[tuple[EinsumOrText, ...], BeforeValidator(_orders)]
    rank_sizes: dict[NameText, Number] = Field(default_factory=dict)
    iteration_space_shape: dict[NameText, ConstraintText] = Field(default_factory=dict)
    bits_per_value: dict[SetKey, Number] = Field(default_factory=dict)
    n_instances: Number = 1
    persistent_tensors: Annotated[tuple[SetText, ...], BeforeValidator(_set_list)] = ()
    densities: dict[NameText, object] = Field(default_factory=dict)
    generational: Annotated[tuple[NameText, ...], BeforeValidator(_set_list)] = ()
    init: dict[NameText, Number] = Field(default_factory=dict)
    name: str = ""


class EinsumRenames(SchemaObject):
    """Renames for one Einsum; the Einsum named `default` stands for all of them."""

    name: NameText
    tensor_accesses: RenameTable = Field(default_factory=dict)
    rank_variables: RenameTable = Field(default_factory=dict)


class Renames(SchemaObject):
    """The top-level `renames:` section."""

    einsums: tuple[EinsumRenames, ...] = ()


SchemaVersion = Literal[1]
