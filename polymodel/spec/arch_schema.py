"""Schema of `arch:`. Units: bits, joules, seconds, watts, square metres."""

from __future__ import annotations

import math
from typing import Annotated, Literal

from pydantic import Field, Tag

from polymodel.spec.base import NameText, Number, SchemaObject, SetText, node_tag
from polymodel.spec.sparse_schema import SparseSection
from polymodel.spec.tiles_schema import CheckedDataTiles


class EnergyModel(SchemaObject):
    """Where energies, leakage and area come from: `constants`, `table`, `hwcomponents`, or an entry point.

    `values`: quantity -> number, for `constants`. `file`: a CSV table in the spec's folder, for
    `table`. `component`: the row group in it, or the name in `hwcomponents` (default: the component's
    name). `options`: handed to an entry point as they are; to `hwcomponents` as attributes. `source`
    becomes part of the provenance.
    """

    name: str
    values: dict[str, Number] = Field(default_factory=dict)
    file: str | None = None
    component: str | None = None
    source: str | None = None
    options: dict[str, object] = Field(default_factory=dict)


class Action(SchemaObject):
    """Energy in joules and throughput per second, each per bit (compute: per operation).

    With `bits_per_action`, energy is per action. An energy left out comes from the energy model.
    """

    name: str
    energy: Number | None = None
    throughput: Number = math.inf
    bits_per_action: Number | None = None
    source: str | None = None


class Link(SchemaObject):
    """The interconnect of a fanout dimension: joules per bit and hop, bits per second."""

    energy_per_bit_hop: Number = 0
    topology: Literal["bus", "mesh", "tree"] = "bus"
    throughput: Number = math.inf


class Fanout(SchemaObject):
    """A named fanout dimension. `may_reuse`: tensors that may be multicast or reduced across it, a set
    expression; left out, it is All."""

    name: NameText
    fanout: Number
    may_reuse: SetText | None = None
    broadcast_partials: bool = False
    multicast: Literal["overlapping", "identical"] = "overlapping"
    link: Link | None = None


class Tensors(SchemaObject):
    """Which tensors a component must keep, and which it may keep besides."""

    keep: SetText | None = None
    may_keep: SetText | None = None


class _Component(SchemaObject):
    name: NameText
    spatial: tuple[Fanout, ...] = ()
    leak_power: Number | None = None
    area: Number | None = None
    energy_model: EnergyModel | None = None
    source: str | None = None


class Memory(_Component):
    """A storage level: `size` in bits, actions `read` and `write`; sparse data also `gated_read`,
    `gated_write`, `metadata_read` and `metadata_write`."""

    type: Literal["Memory"] = "Memory"
    size: Number = math.inf
    allocation: Literal["tile", "live"] = "tile"
    tensors: Tensors = Field(default_factory=Tensors)
    actions: tuple[Action, ...] = ()
    read_first: bool = False
    ports: Literal["shared", "separate"] = "shared"
    buffering: Literal["single", "double"] = "double"
    fill_drain_latency: Number = 0
    clock: Number | None = None
    sparse: SparseSection | None = None
    data_tiles: CheckedDataTiles | None = None


class Toll(_Component):
    """Passes data on and charges actions (`read` downwards, `write` upwards); stores nothing."""

    type: Literal["Toll"] = "Toll"
    tensors: Tensors = Field(default_factory=Tensors)
    actions: tuple[Action, ...] = ()
    ports: Literal["shared", "separate"] = "shared"
    fill_drain_latency: Number = 0
    clock: Number | None = None


class Container(_Component):
    """A group, such as a processing element; its fanout replicates everything below."""

    type: Literal["Container"] = "Container"


class ComputeUnit(_Component):
    """Executes operations: actions `compute` and `gated_compute`. Tagged `!Compute`."""

    type: Literal["Compute"] = "Compute"
    actions: tuple[Action, ...] = ()
    fill_drain_latency: Number = 0
    clock: Number | None = None
    sparse: SparseSection | None = None


ArchNode = Annotated[
    Annotated[Memory, Tag("<Memory>")]
    | Annotated[Toll, Tag("<Toll>")]
    | Annotated[Container, Tag("<Container>")]
    | Annotated[ComputeUnit, Tag("<Compute>")],
    node_tag(("Memory", "Toll", "Container", "Compute"), "an architecture node"),
]


class Arch(SchemaObject):
    """Components, outermost first."""

    nodes: tuple[ArchNode, ...]
    assume_overlap: bool = True
    name: str = ""
