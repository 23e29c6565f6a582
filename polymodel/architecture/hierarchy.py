"""The storage and compute hierarchy, resolved against a cascade.

Components are listed outermost first. A component's `spatial` dimensions replicate that
component and everything below it. Units: bits, joules, seconds, square metres, watts.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

from polymodel.architecture.sparse_rules import SparseRules
from polymodel.architecture.tile_rules import TileRules
from polymodel.quantities import drawn

Kind = Literal["memory", "toll", "container", "compute"]


@dataclass(frozen=True)
class TensorRule:
    """A set expression and what it means for each Einsum."""

    text: str
    by_einsum: tuple[tuple[str, frozenset[str]], ...] = ()

    def tensors(self, einsum: str) -> frozenset[str]:
        return dict(self.by_einsum).get(einsum, frozenset())


Multicast = Literal["overlapping", "identical"]


@dataclass(frozen=True)
class Link:
    """The interconnect of one fanout dimension: joules per bit and hop, bits per second of one link."""

    energy_per_bit_hop: float = 0.0
    topology: Literal["bus", "mesh", "tree"] = "bus"
    throughput: float = math.inf

    @property
    def costs(self) -> bool:
        """True if what crosses it costs energy or time, so that its traffic has to be counted."""
        return bool(self.energy_per_bit_hop) or not math.isinf(self.throughput)


def link_name(component: str, dim: str) -> str:
    """How tables name the interconnect of a fanout dimension."""
    return f"{component}.{dim}"


@dataclass(frozen=True)
class FanoutDim:
    """One named fanout dimension. `may_reuse` None means every tensor may be shared.

    `multicast`: of a tensor that a loop over the dimension indexes, tiles of several instances may overlap;
    `overlapping` shares the common elements, `identical` sends each instance its own (Timeloop's rule).
    """

    name: str
    fanout: int
    may_reuse: TensorRule | None = None
    broadcast_partials: bool = False
    link: Link | None = None
    multicast: Multicast = "overlapping"

    def reuses(self, einsum: str, tensor: str) -> bool:
        """True if `tensor` may be multicast or reduced across this dimension in `einsum`."""
        return self.may_reuse is None or tensor in self.may_reuse.tensors(einsum)

    def shares(self, einsum: str, tensor: str, *, indexed: bool) -> bool:
        """True if a loop over the dimension shares elements of `tensor` among its instances.

        `indexed`: whether the loop's rank variable stands in the Einsum's access of the tensor.
        """
        return self.reuses(einsum, tensor) and not (indexed and self.multicast == "identical")


@dataclass(frozen=True)
class Action:
    """Energy (joules) per bit, or per operation for compute; throughput in bits or operations per second.

    With `bits_per_action` set, energy is per action and each transfer rounds up to whole actions.
    """

    name: str
    energy: float = 0.0
    throughput: float = math.inf
    bits_per_action: int | None = None
    provenance: str = "given"

    def rounds(self, bits: int) -> bool:
        """True if transfers of values of `bits` each may have to be filled up to whole actions."""
        return self.bits_per_action is not None and bits % self.bits_per_action != 0

    def whole_bits(self, bits: int) -> int:
        """What one transfer of `bits` takes: as many bits as its actions move."""
        return (
            bits if self.bits_per_action is None else -(-bits // self.bits_per_action) * self.bits_per_action
        )


@dataclass(frozen=True)
class Component:
    """One level of the hierarchy; fields that do not apply to its kind keep their defaults."""

    name: str
    kind: Kind
    size_bits: float = math.inf
    allocation: Literal["tile", "live"] = "tile"
    actions: tuple[Action, ...] = ()
    leak_power: float = 0.0
    area: float = 0.0
    area_provenance: str = "given"
    spatial: tuple[FanoutDim, ...] = ()
    keep: TensorRule | None = None
    may_keep: TensorRule | None = None
    read_first: bool = False
    ports: Literal["shared", "separate"] = "shared"
    buffering: Literal["single", "double"] = "double"
    fill_drain_latency: float = 0.0
    clock: float | None = None
    sparse: SparseRules | None = None
    data_tiles: TileRules | None = None

    def action(self, name: str) -> Action:
        """The action `name`; a free, infinitely fast one if the component does not name it."""
        for a in self.actions:
            if a.name == name:
                return a
        return Action(name, provenance="default")

    def dim(self, name: str) -> FanoutDim:
        for d in self.spatial:
            if d.name == name:
                return d
        raise KeyError(f"component {self.name} has no fanout dimension {name}")


@dataclass(frozen=True)
class Hierarchy:
    """Components outermost first; `assume_overlap` lets transfers hide behind compute."""

    components: tuple[Component, ...]
    assume_overlap: bool = True
    name: str = ""

    def __repr__(self) -> str:
        from polymodel.architecture.text import names_text

        return f"Hierarchy({names_text(self)})"

    def __str__(self) -> str:
        from polymodel.architecture.text import hierarchy_text, names_text

        lines = "".join(f"\n  {line}" for line in hierarchy_text(self).splitlines())
        return f"Hierarchy{' ' if self.name else ': '}{names_text(self)}{lines}"

    def _repr_svg_(self) -> str:
        """For notebooks: memories, fanouts and compute units, outermost on top."""
        return drawn("svg_architecture", "architecture_svg", self)

    def __getitem__(self, name: str) -> Component:
        for c in self.components:
            if c.name == name:
                return c
        raise KeyError(f"no component {name}; there are {', '.join(c.name for c in self.components)}")

    def index(self, name: str) -> int:
        """Position in the hierarchy, 0 outermost."""
        for i, c in enumerate(self.components):
            if c.name == name:
                return i
        raise KeyError(f"no component {name}; there are {', '.join(c.name for c in self.components)}")

    @property
    def dimensions(self) -> tuple[tuple[str, FanoutDim], ...]:
        """Every (component, fanout dimension), outermost first: the order in which data cross them."""
        return tuple((c.name, d) for c in self.components for d in c.spatial)

    @property
    def costly_links(self) -> tuple[tuple[str, FanoutDim], ...]:
        """Dimensions whose link costs energy or time."""
        return tuple((c, d) for c, d in self.dimensions if d.link is not None and d.link.costs)

    @property
    def free_actions(self) -> tuple[tuple[str, str], ...]:
        """Every (component, action) that costs nothing because no energy is given, outermost first."""
        names = {"memory": ("read", "write"), "toll": ("read", "write"), "compute": ("compute",)}
        pairs = [(c, a) for c in self.components for a in names.get(c.kind, ())]
        return tuple((c.name, a) for c, a in pairs if c.action(a).provenance == "default")

    def doubles(self, name: str) -> bool:
        """True if the memory keeps two of each tile that is refilled, to hide the refill."""
        c = self[name]
        return not self.assume_overlap and c.kind == "memory" and c.buffering == "double"

    def waits(self, name: str) -> bool:
        """True if nothing runs while the memory is refilled."""
        c = self[name]
        return not self.assume_overlap and c.kind == "memory" and c.buffering == "single"

    def instances(self, name: str) -> int:
        """How many of the component exist: the product of all fanouts at and above it."""
        total = 1
        for c in self.components[: self.index(name) + 1]:
            for d in c.spatial:
                total *= d.fanout
        return total
