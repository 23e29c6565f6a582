"""Schema of `mapping:`: the nodes of a LoopTree as they are written."""

from __future__ import annotations

from typing import Annotated, Literal, Union

from pydantic import BeforeValidator, Field, Tag

from polymodel.spec.base import NameText, Number, SchemaObject, fault, node_tag, one_of
from polymodel.spec.setexpr import KEYWORDS
from polymodel.spec.yaml_text import MAPPING_TAGS

RankVariable = Annotated[
    Annotated[NameText, Tag("<name>")] | Annotated[dict[NameText, NameText], Tag("<mapping>")],
    one_of("a rank variable", {"<name>": str, "<mapping>": dict}, "m or {EinsumA: p, EinsumB: q}"),
]
_TILE = Annotated[Number, Tag("<number>")]
_TILES = Annotated[dict[NameText, Number], Tag("<mapping>")]
_SHAPES: dict[str, type | tuple[type, ...]] = {"<number>": (int, float, str), "<mapping>": dict}
_EXAMPLE = "8, TM or {EinsumA: 8, EinsumB: 4}"
TileShape = Annotated[_TILE | _TILES, one_of("a tile size", _SHAPES, _EXAMPLE)]
FirstTile = Annotated[
    _TILE | _TILES | Annotated[None, Tag("<none>")],
    one_of("a first tile size", {**_SHAPES, "<none>": type(None)}, _EXAMPLE),
]


def _listed(value: object) -> object:
    """A node of a mapping lists its tensors by name; sets stand in architectures."""
    if isinstance(value, str):
        example = f"[{value}]" if value.isidentifier() and value not in KEYWORDS else "[A, B]"
        raise fault(
            f"{value!r} is no list: a node of a mapping lists its tensors by name, and takes no sets",
            f"write {example}",
        )
    return value


class Storage(SchemaObject):
    """Tiles of `tensors` held by `component` from here down. `reuse`: see the counting rules."""

    type: Literal["Storage"] = "Storage"
    component: NameText
    tensors: Annotated[tuple[NameText, ...], BeforeValidator(_listed)]
    reuse: Literal["refill", "slide", "keep_previous"] = "refill"


class Temporal(SchemaObject):
    """A loop in time. `tile_shape`: values of the rank variable below the loop, or a symbol's name.

    A dictionary gives Einsums their own tile sizes: of tied ranks that have other sizes.
    """

    type: Literal["Temporal"] = "Temporal"
    rank_variable: RankVariable
    tile_shape: TileShape
    initial_tile_shape: FirstTile = None


class Spatial(SchemaObject):
    """A loop in space, over the fanout dimension `name` of `component`."""

    type: Literal["Spatial"] = "Spatial"
    rank_variable: RankVariable
    tile_shape: TileShape
    initial_tile_shape: FirstTile = None
    component: NameText
    name: NameText


class Compute(SchemaObject):
    """The leaf: `einsum` executes on `component`."""

    type: Literal["Compute"] = "Compute"
    einsum: NameText
    component: NameText


class Nested(SchemaObject):
    """Nodes one below the other."""

    type: Literal["Nested"] = "Nested"
    nodes: tuple[MappingNode, ...]


class Sequential(SchemaObject):
    """Branches that run one after the other."""

    type: Literal["Sequential"] = "Sequential"
    nodes: tuple[MappingNode, ...]


class Pipeline(SchemaObject):
    """Branches that run overlapped, each on another iteration of the loop above."""

    type: Literal["Pipeline"] = "Pipeline"
    nodes: tuple[MappingNode, ...]


MappingNode = Annotated[
    Union[  # noqa: UP007  # forward references rule out the bar
        Annotated[Storage, Tag("<Storage>")],
        Annotated[Temporal, Tag("<Temporal>")],
        Annotated[Spatial, Tag("<Spatial>")],
        Annotated[Compute, Tag("<Compute>")],
        Annotated["Nested", Tag("<Nested>")],
        Annotated["Sequential", Tag("<Sequential>")],
        Annotated["Pipeline", Tag("<Pipeline>")],
    ],
    node_tag(MAPPING_TAGS, "a mapping node"),
]


class MappingSpec(SchemaObject):
    """A whole mapping."""

    nodes: tuple[MappingNode, ...] = Field(default_factory=tuple)
    name: str = ""


Nested.model_rebuild()
Sequential.model_rebuild()
Pipeline.model_rebuild()
MappingSpec.model_rebuild()
