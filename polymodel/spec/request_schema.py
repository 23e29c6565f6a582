"""Schemas of `explore:` (objectives and mapspace constraints), `sweep:` (the grid of a sweep) and `codesign:`
(the machines of a co-design)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Literal

from pydantic import BeforeValidator, Field, StrictBool

from polymodel.objectives import relation_of, written
from polymodel.spec.base import NameText, Number, SchemaObject, SetText


def _listed(value: object) -> object:
    """One name stands for a list of it."""
    return (value,) if isinstance(value, str) else value


def _written(value: object) -> object:
    """Objectives as texts: a table of weights is their sum, and one of them stands for a list of it."""
    if isinstance(value, (str, Mapping)):
        return (written(value),) if value else value
    if isinstance(value, (list, tuple)):
        return tuple(written(item) if isinstance(item, Mapping) else item for item in value)
    return value


def limit_texts(value: object) -> object:
    """Limits as texts: `{latency: 2 ms}` is `latency <= 2 ms`."""
    if isinstance(value, str):
        return (value,)
    if isinstance(value, Mapping):
        return tuple(f"{name} {relation_of(str(name))} {number}" for name, number in value.items())
    return tuple(value) if isinstance(value, list) else value


Listed = BeforeValidator(_listed, json_schema_input_type=str | tuple[str, ...])
Texts = Annotated[tuple[str, ...], Listed]
_Weights = dict[str, int | float]
Objectives = Annotated[
    tuple[str, ...],
    BeforeValidator(_written, json_schema_input_type=str | _Weights | tuple[str | _Weights, ...]),
]
FigureLimits = Annotated[
    tuple[str, ...],
    BeforeValidator(limit_texts, json_schema_input_type=str | dict[str, int | float | str] | tuple[str, ...]),
]
Names = Annotated[tuple[NameText, ...], Listed]


Factors = dict[NameText, int | str]
Policy = Literal["refill", "slide"]
Policies = Annotated[tuple[Policy, ...], Listed]


class MemoryRule(SchemaObject):
    """What one memory must keep, may keep besides, and may not keep: set expressions that narrow the rules
    of the architecture and never lift them. `factors`: rank variable -> how many iterations the temporal
    loops over it have that stand right below the memory (`4`, `<= 4`, `>= 4`). `order`: rank variables of
    these loops, from the outermost in; `...` stands for any others. `no_refetch`: tensors that are
    fetched into it once: no loop above them goes over a variable that does not index them. `reuse`: policies
    that its storage nodes may have, `refill` among them."""

    keep: SetText | None = None
    may_keep: SetText | None = None
    bypass: SetText | None = None
    factors: Factors = Field(default_factory=dict)
    order: Texts | None = None
    no_refetch: SetText | None = None
    reuse: Policies = ("refill",)


class FanoutRule(SchemaObject):
    """How one fanout dimension is used. `variables`: those that may be spread over it; `factors`: rank
    variable -> over how many instances; `must_reuse`: tensors that all of its instances share."""

    variables: Names | None = None
    factors: Factors = Field(default_factory=dict)
    must_reuse: SetText | None = None


class ExploreSection(SchemaObject):
    """`objectives`: energy, latency, edp, area, utilisation, accesses:MEMORY and so on, or weighted sums of
    them; on sparse data sparse_energy, sparse_latency, sparse_edp. `limits`: figures that mappings keep.
    `eps`: share by which a point left
    out may be better than one kept. `time_limit`: seconds.

    The others say which mappings are looked at, as in `Limits`: `loop_order` (Einsum -> rank variables of
    fused loops, outermost first), `min_utilisation` (component -> dimension -> least share of the fanout),
    `compute` (Einsum -> component), `exchange` (memories in which
    intermediates may be handed on), `fuse` and `unfused` (sets of intermediates), `memories` (memory -> what
    it keeps and bypasses, and its loops), `fanouts` (component -> dimension -> how it is used).
    """

    objectives: Objectives = ("energy", "latency")
    limits: FigureLimits = ()
    eps: Number = 0
    time_limit: Number | None = None
    max_fused_loops: Number | None = None
    max_fused_loops_per_rank_variable: Number = 1
    sizes: Literal["divisors", "all"] = "divisors"
    force_memory_order: StrictBool = True
    loop_order: dict[NameText, Names] = Field(default_factory=dict)
    min_utilisation: dict[NameText, dict[NameText, Number]] = Field(default_factory=dict)
    compute: dict[NameText, NameText] = Field(default_factory=dict)
    exchange: Names | None = None
    fuse: SetText | None = None
    unfused: SetText | None = None
    memories: dict[NameText, MemoryRule] = Field(default_factory=dict)
    fanouts: dict[NameText, dict[NameText, FanoutRule]] = Field(default_factory=dict)


Choices = dict[NameText, int | float | str | tuple[int | float, ...]]


class SweepSection(SchemaObject):
    """`symbols`: name -> list of numbers, or a text such as `divisors(m)`, `range(1, 65)` or `2*TM`."""

    symbols: Choices = Field(default_factory=dict)
    where: tuple[str, ...] = ()
    objectives: Objectives = ("energy", "latency")
    keep: Literal["front", "all", "top"] = "front"
    top: int | None = None


class CodesignSection(SchemaObject):
    """`hardware`: symbol of the architecture -> its values, a list of numbers, or a text such as
    `powers(2, 64)`, `range(1, 9)` or `2*F`. `where`: comparisons of symbols that every machine satisfies.
    `objectives`, `limits`, `eps` and `time_limit` (seconds): of the joint front. `layer_by_layer`: each
    Einsum is a layer of its own."""

    hardware: Choices = Field(default_factory=dict)
    where: tuple[str, ...] = ()
    objectives: Objectives = ("energy", "latency", "area")
    limits: FigureLimits = ()
    layer_by_layer: StrictBool = False
    eps: int | float = 0
    time_limit: int | float | None = None
