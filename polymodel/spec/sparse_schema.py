"""Schema of `sparse:` in an architecture: formats, gating and skipping, intersections."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import AfterValidator, BeforeValidator, Field

from polymodel.spec.base import NameText, SchemaObject, SetKey, SetText, fault


def _several(value: object) -> object:
    return [value] if isinstance(value, str) else value


Sets = Annotated[tuple[SetText, ...], BeforeValidator(_several)]


class SparseAction(SchemaObject):
    """`{skip: B, on: A}`: accesses of B where what is used of A is all zero; `gate:` saves energy only.

    Tensors are names or set expressions, one or a list. In a compute unit `{skip: compute, on: [A, B]}`;
    `on` left out, it is all operands.
    """

    gate: Sets = ()
    skip: Sets = ()
    on: Sets = ()


def _one_kind(action: SparseAction) -> SparseAction:
    if bool(action.gate) == bool(action.skip):
        raise fault("an action has one of gate: and skip:", "write e.g. {skip: B, on: A}")
    return action


class Intersection(SchemaObject):
    """How coordinates of tensors are matched: `{tensors: [A, B], kind: two_finger}`.

    `leader`: of leader_follower, the tensor whose coordinates are looked up in the others.
    """

    tensors: tuple[NameText, ...]
    kind: Literal["two_finger", "leader_follower", "skip_ahead"]
    leader: NameText | None = None


class SparseSection(SchemaObject):
    """`sparse:` of a memory or compute unit.

    `format`: tensors (a name or set expression) -> `CSR`, `[U, CP]`, ... (docs/sparse/formats.md);
    what has none is stored point by point. `dense_outputs`: outputs (names or set expressions) that this
    memory exchanges with the next one further in as the dense schedule says; without it, only elements
    that an operation computed.
    """

    format: dict[SetKey, object] = Field(default_factory=dict)
    actions: tuple[Annotated[SparseAction, AfterValidator(_one_kind)], ...] = ()
    intersect: tuple[Intersection, ...] = ()
    dense_outputs: Sets = ()
