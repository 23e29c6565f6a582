"""Schema of `arch:`. Units: bits, joules, seconds, watts, square metres; texts may have others (`2.5 pJ`)."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Annotated, Literal

from pydantic import AfterValidator, BeforeValidator, Field, Tag

from polymodel.spec.base import NameText, Number, SchemaObject, SetKey, SetText, fault, in_units, node_tag
from polymodel.spec.faults import Faults
from polymodel.spec.numbers import AREA, DATA, ENERGY, FREQUENCY, POWER, RATE, TIME, WORK, Dimension
from polymodel.spec.yaml_text import COMPONENT_TAGS


def _of_action(name: str) -> Dimension:
    """The unit of an action's throughput: bits for reads and writes, else operations."""
    return RATE if name.endswith(("read", "write")) else WORK


Joules = Annotated[Number, in_units(ENERGY)]
Bits = Annotated[Number, in_units(DATA)]
Seconds = Annotated[Number, in_units(TIME)]
Hertz = Annotated[Number, in_units(FREQUENCY)]


class Configuration(SchemaObject):
    """Cycles that configure the array for one kernel, by the kernel's operation."""

    add: Number = 824
    multiply: Number = 907


class ProductTiles(SchemaObject):
    """`product:` of `data_tiles:`: how products of two matrices are tiled (docs/tiling/architecture.md).

    `strategy`: by default `uniform` with a `tile` (sizes along the output's first rank, the shared rank and
    the output's second), else `search`. `capacity`: words of each operand's buffer. `order`: loops, outermost
    first; by default the best. `pes`, `bandwidth`: multiplications and words per cycle. `overbook`: share of
    tiles that may exceed their buffer. `time_limit`: seconds of a search.
    """

    strategy: Literal["uniform", "panels", "dynamic", "overbooked", "search"] | None = None
    tile: tuple[Number, ...] | None = None
    capacity: Number | None = None
    order: Literal["ijk", "ikj", "kij", "jki", "kji", "jik"] | None = None
    objective: Literal["words", "time"] = "time"
    pes: Number = 1
    bandwidth: Number = 1
    overbook: Number = 0.1
    time_limit: Number = 30


def _tile_of_product(section: ProductTiles) -> ProductTiles:
    if section.tile is None:
        return section
    if len(section.tile) != 3:
        remedy = "write three sizes: along the output's first rank, the shared one, the output's second"
        raise fault(f"tile: has {len(section.tile)} sizes", remedy, code="wrong-count")
    if section.strategy not in (None, "uniform", "overbooked"):
        message = f"strategy: {section.strategy} chooses its tiles itself"
        raise fault(message, "leave out tile:", code="conflicting-arguments")
    return section


CheckedProductTiles = Annotated[ProductTiles, AfterValidator(_tile_of_product)]


class DataTiles(SchemaObject):
    """`data_tiles:` of a memory: operands are tiled so that each tile fits (docs/tiling/architecture.md).

    `fit`: the unit of the capacity: `elements`, `words` of compressed tiles, or `stored`, bits of a tile in
    `format`. `capacity`: of one operand's buffer; by default derived from the memory's size. `word_bits`:
    bits of one word; by default the widest value of the Einsum. `tiler`: the tiling algorithm; `objective`:
    what `best` minimises. `run`: which tiles become kernels. `configuration`, `ramp`, `empty`: cycles of a
    kernel. `ranks`: the two ranks along which tensors of more ranks are tiled; by default the output's first
    two. `product`: how products of two matrices are tiled.
    """

    fit: Literal["elements", "words", "stored"] = "elements"
    format: object = None
    capacity: Number | None = None
    word_bits: Number | None = None
    tiler: str = "best"
    objective: Literal["tiles", "cycles", "total"] = "total"
    run: Literal["nonempty", "all"] = "nonempty"
    configuration: Configuration = Field(default_factory=Configuration.model_construct)
    ramp: Number = 8
    empty: Number = 10
    ranks: tuple[NameText, ...] | None = None
    product: CheckedProductTiles = Field(default_factory=ProductTiles.model_construct)


def _fitting_keys(section: DataTiles) -> DataTiles:
    if (section.format is not None) != (section.fit == "stored"):
        if section.format is None:
            raise fault("fit: stored needs a format", "write e.g. format: CSR", code="missing-key")
        message = f"fit: {section.fit} has no format"
        raise fault(message, "leave format out, or write fit: stored", code="missing-key")
    if section.ranks is not None and len(set(section.ranks)) != 2:
        what = f"ranks: names {len(set(section.ranks))} different ranks"
        raise fault(what, "name two, e.g. ranks: [M, N]", code="wrong-count")
    return section


CheckedDataTiles = Annotated[DataTiles, AfterValidator(_fitting_keys)]


def _several(value: object) -> object:
    return [value] if isinstance(value, str) else value


Sets = Annotated[tuple[SetText, ...], BeforeValidator(_several)]


class SparseAction(SchemaObject):
    """`{skip: B, on: A}`: accesses of B are skipped where the used part of A is all zero; `gate:` saves
    energy only.

    Tensors are names or set expressions, one or a list. In a compute unit `{skip: compute, on: [A, B]}`; `on`
    is all operands by default.
    """

    gate: Sets = ()
    skip: Sets = ()
    on: Sets = ()


def _one_kind(action: SparseAction) -> SparseAction:
    if bool(action.gate) == bool(action.skip):
        message = "an action has one of gate: and skip:"
        raise fault(message, "write e.g. {skip: B, on: A}", code="conflicting-arguments")
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

    `format`: tensors (a name or set expression) -> `CSR`, `[U, CP]`, ... (docs/sparse/formats.md); a tensor
    without one is stored point by point. `dense_outputs`: outputs (names or set expressions) that this memory
    exchanges with the next inner one as in the dense schedule; by default only computed elements are
    exchanged. `fit`: the criterion by which a compressed tile fits: `expected`, `worst` or `{probability:
    0.9}` (docs/sparse/capacity.md).
    """

    format: dict[SetKey, object] = Field(default_factory=dict)
    actions: tuple[Annotated[SparseAction, AfterValidator(_one_kind)], ...] = ()
    intersect: tuple[Intersection, ...] = ()
    dense_outputs: Sets = ()
    fit: object = "expected"


class SparseActionChoice(SchemaObject):
    """`{of: B, on: A, kinds: [skip, gate, none]}`: the choices for B where A is zero. In a compute unit `of:
    compute`."""

    of: Sets
    on: Sets = ()
    kinds: Annotated[tuple[Literal["skip", "gate", "none"], ...], BeforeValidator(_several)]


class SparseChoices(SchemaObject):
    """The choices of an exploration on sparse data for one memory or compute unit: each combination is a
    separate architecture. `format`: tensor -> formats; `actions`: in addition to those of the architecture;
    `fit`: criteria by which tiles fit."""

    format: dict[NameText, tuple[object, ...]] = Field(default_factory=dict)
    actions: tuple[SparseActionChoice, ...] = ()
    fit: tuple[object, ...] = ()


class EnergyModel(SchemaObject):
    """The source of energies, leakage and area: `constants`, `table`, `published`, `compound`,
    `hwcomponents`, or an entry point.

    `values`: quantity -> number, for `constants`. `file`: a CSV table in the spec's folder, for `table`.
    `component`: its group of rows in the table, or its name in `hwcomponents` (default: the component's
    name). `options`: passed unchanged to an entry point, as attributes to `hwcomponents`. `source` becomes
    part of the provenance.
    """

    name: str
    values: dict[str, Number] = Field(default_factory=dict)
    file: str | None = None
    component: str | None = None
    source: str | None = None
    options: dict[str, object] = Field(default_factory=dict)


class Action(SchemaObject):
    """Energy in joules and throughput per second, each per bit (compute: per operation).

    With `bits_per_action`, energy is per action. An energy that is not given comes from the energy model.
    """

    name: str
    energy: Joules | None = None
    throughput: Annotated[Number, in_units(_of_action)] = math.inf
    bits_per_action: Bits | None = None
    source: str | None = None


class Link(SchemaObject):
    """The interconnect of a fanout dimension: joules per bit and hop, bits per second, seconds per hop."""

    energy_per_bit_hop: Joules = 0
    topology: Literal["bus", "mesh", "line", "ring", "tree", "switch", "all_to_all"] = "bus"
    throughput: Annotated[Number, in_units(RATE)] = math.inf
    hop_latency: Seconds = 0


class Fanout(SchemaObject):
    """A named fanout dimension. `may_reuse`: a set expression (default All) for the tensors that may be
    multicast or reduced across it."""

    name: NameText
    fanout: Number
    may_reuse: SetText | None = None
    broadcast_partials: bool = False
    multicast: Literal["overlapping", "identical"] = "overlapping"
    link: Link | None = None


class Tensors(SchemaObject):
    """The tensors that a component must keep, and those that it may keep in addition."""

    keep: SetText | None = None
    may_keep: SetText | None = None


class _Component(SchemaObject):
    name: NameText
    spatial: tuple[Fanout, ...] = ()
    leak_power: Annotated[Number, in_units(POWER)] | None = None
    area: Annotated[Number, in_units(AREA)] | None = None
    energy_model: EnergyModel | None = None
    source: str | None = None
    branch: str = ""


class Acting(_Component):
    """A component whose actions cost energy and time."""

    actions: tuple[Action, ...] = ()
    fill_drain_latency: Seconds = 0
    clock: Hertz | None = None


class Moving(Acting):
    """A component that tensors are transferred into and out of."""

    tensors: Tensors = Field(default_factory=Tensors.model_construct)
    ports: Literal["shared", "separate"] = "shared"


class Memory(Moving):
    """A storage level: `size` in bits, actions `read` and `write`; sparse data also `gated_read`,
    `gated_write`, `metadata_read` and `metadata_write`."""

    type: Literal["Memory"] = "Memory"
    size: Bits = math.inf
    allocation: Literal["tile", "live"] = "tile"
    read_first: bool = False
    buffering: Literal["single", "double"] = "double"
    sparse: SparseSection | None = None
    data_tiles: CheckedDataTiles | None = None


class Toll(Moving):
    """Passes data on and charges actions (`read` inward, `write` outward); stores nothing."""

    type: Literal["Toll"] = "Toll"


class Container(_Component):
    """A group, such as a processing element; its fanout replicates everything below."""

    type: Literal["Container"] = "Container"


class ComputeUnit(Acting):
    """Executes operations: actions `compute` and `gated_compute`. Tagged `!Compute`."""

    type: Literal["Compute"] = "Compute"
    sparse: SparseSection | None = None


ArchNode = Memory | Toll | Container | ComputeUnit
_Tagged = Annotated[
    Annotated[Memory, Tag("<Memory>")]
    | Annotated[Toll, Tag("<Toll>")]
    | Annotated[Container, Tag("<Container>")]
    | Annotated[ComputeUnit, Tag("<Compute>")],
    node_tag(COMPONENT_TAGS, "an architecture node"),
]


class Arch(SchemaObject):
    """Components, outermost first."""

    nodes: tuple[_Tagged, ...]
    assume_overlap: bool = True
    name: str = ""

    @property
    def memories(self) -> tuple[str, ...]:
        """The names of its memories."""
        return tuple(n.name for n in self.nodes if isinstance(n, Memory))

    @property
    def tolls(self) -> tuple[str, ...]:
        """The names of components that tensors pass through without being stored."""
        return tuple(n.name for n in self.nodes if isinstance(n, Moving) and not isinstance(n, Memory))

    def with_sparse(self, sections: Mapping[str, SparseSection]) -> Arch:
        """The architecture with other sections `sparse` of memories and compute units; names that it does
        not have change nothing."""

        def changed(node: ArchNode) -> ArchNode:
            if node.name not in sections or not isinstance(node, (Memory, ComputeUnit)):
                return node
            return node.model_copy(update={"sparse": sections[node.name]})

        return self.model_copy(update={"nodes": tuple(map(changed, self.nodes))})


def branches_to(branch: str) -> tuple[str, ...]:
    """The branches on the way to one, itself the last: `a/b` leaves `a`, which leaves the hierarchy, ``."""
    parts = branch.split("/") if branch else []
    return tuple("/".join(parts[:k]) for k in range(len(parts) + 1))


def check_branches(arch: Arch, faults: Faults) -> None:
    """The components of a branch are consecutive, but for branches that leave it behind its first one, and a
    compute unit is among them."""
    known = {b for n in arch.nodes if isinstance(n, ComputeUnit) for b in branches_to(n.branch)}
    ended: set[str] = set()
    begun = {""}
    for i, (node, before) in enumerate(zip(arch.nodes, ("", *(n.branch for n in arch.nodes)), strict=False)):
        place = ("arch", "nodes", i, "branch")
        way = branches_to(node.branch)
        ended |= set(branches_to(before)) - {*way}
        if len(way) > 2 and way[-2] not in begun:
            what = f"{node.name} is on a branch of {way[-2]}, of which nothing stands before it"
            remedy = f"write its first component before, or `branch: {node.branch.rpartition('/')[2]}`"
            faults.add(place, what, remedy, code="invalid-component")
        begun |= {*way}
        if ended & {*way}:
            what = f"{node.name} is on branch {node.branch}, which ended above"
            faults.add(place, what, "put the components of a branch together", code="invalid-component")
        if node.branch and node.branch not in known:
            what = f"branch {node.branch} has no compute unit"
            faults.add(place, what, "put a !Compute with this `branch:` there", code="missing-component")
            known.add(node.branch)
