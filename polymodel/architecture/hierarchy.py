"""The storage and compute hierarchy, resolved against a cascade.

Components are listed outermost first. A component's `spatial` dimensions replicate that
component and everything below it. Units: bits, joules, seconds, square metres, watts.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable
from dataclasses import replace
from typing import Any, Literal

from polymodel.arithmetic import is_priced
from polymodel.frozen import dataclass
from polymodel.quantities import drawn, engineering, in_units
from polymodel.spec.arch_schema import branches_to

# One buffer each for A, B and the output.
OPERANDS = 3
# With this limit, sums over tiles stay within 64 bits.
MOST_CYCLES, MOST_CAPACITY = 10**9, 2**62


@dataclass(frozen=True)
class ProductRules:
    """How products of two matrices are tiled. `capacity` (words of a buffer) is None where the rules of the
    memory decide, `order` where the best one is chosen; `tile`: sizes along i, k and j of uniform tiles."""

    strategy: Literal["uniform", "panels", "dynamic", "overbooked", "search"] = "search"
    tile: tuple[int, int, int] | None = None
    capacity: int | None = None
    order: str | None = None
    objective: Literal["words", "time"] = "time"
    pes: int = 1
    bandwidth: float = 1.0
    overbook: float = 0.1
    time_limit: float = 30.0


@dataclass(frozen=True)
class TileRules:
    """How operands are tiled for one memory, and the overhead of launching a tile. `config_add`,
    `config_multiply`, `ramp`, `empty`: cycles.

    `capacity` and `word_bits` are None where the memory's size and the Einsum's widest value decide.
    """

    fit: Literal["elements", "words", "stored"] = "elements"
    format: Any = None
    capacity: int | None = None
    word_bits: int | None = None
    tiler: str = "best"
    objective: Literal["tiles", "cycles", "total"] = "total"
    run: Literal["nonempty", "all"] = "nonempty"
    config_add: int = 824
    config_multiply: int = 907
    ramp: int = 8
    empty: int = 10
    ranks: tuple[str, ...] | None = None
    product: ProductRules = ProductRules()

    def __hash__(self) -> int:
        return hash((self.fit, self.capacity, self.tiler))  # a format may be a list as written


def capacity_of(rules: TileRules, size_bits: float, buffering: str, widest: int) -> int:
    """Capacity of one operand's buffer, in the unit of the fit; 0 if the memory is too small for any tile.

    The memory is divided into equal buffers for A, B and the output. With double buffering each buffer has
    half of that: the next tile is loaded while the other half is in use.
    """
    if rules.capacity is not None:
        return rules.capacity
    buffers = OPERANDS * (2 if buffering == "double" else 1)
    unit = 1 if rules.fit == "stored" else (rules.word_bits or widest)
    return 0 if math.isinf(size_bits) else int(size_bits // (buffers * unit))


def words_of(rules: TileRules, size_bits: float, buffering: str, widest: int) -> int | None:
    """Words of each operand's buffer for products; 0 if the memory is too small, None if its size is not
    limited.

    The capacity for products, else the capacity in words, else what follows from the memory's size.
    """
    if rules.product.capacity is not None:
        return rules.product.capacity
    if rules.fit == "words" and rules.capacity is not None:
        return rules.capacity
    if math.isinf(size_bits):
        return None
    return capacity_of(replace(rules, fit="words", capacity=None), size_bits, buffering, widest)


ActionKind = Literal["gate", "skip"]
IntersectionKind = Literal["two_finger", "leader_follower", "skip_ahead"]


@dataclass(frozen=True)
class SparseOptimization:
    """Accesses to `targets` at a component are skipped or gated where the used part of a leader is all zero.

    `by_einsum`: per Einsum the targets and their leaders. At a compute unit `targets` are empty, and the
    leaders are the tensors whose zero values make an operation ineffectual.
    """

    kind: ActionKind
    by_einsum: tuple[tuple[str, tuple[str, ...], tuple[str, ...]], ...]

    def of(self, einsum: str) -> tuple[tuple[str, ...], tuple[str, ...]]:
        """The targets and leaders in one Einsum."""
        for name, targets, leaders in self.by_einsum:
            if name == einsum:
                return targets, leaders
        return (), ()


@dataclass(frozen=True)
class IntersectionUnit:
    """How coordinates of two or more tensors are matched; `leader` applies to leader_follower only."""

    kind: IntersectionKind
    tensors: tuple[str, ...]
    leader: str = ""


# A compressed tile fits by its expected size, by the largest size, or with this probability.
Fit = Literal["expected", "worst"] | float


@dataclass(frozen=True)
class SparseRules:
    """The section `sparse:` of one component. `formats`: (tensor, format as written). `dense_outputs`:
    outputs that are transferred as in the dense schedule, whatever was computed. `fit`: the criterion by
    which tiles fit."""

    formats: tuple[tuple[str, Any], ...] = ()
    actions: tuple[SparseOptimization, ...] = ()
    intersections: tuple[IntersectionUnit, ...] = ()
    dense_outputs: tuple[str, ...] = ()
    fit: Fit = "expected"

    def __hash__(self) -> int:  # formats may be lists as written
        return hash((self.actions, self.intersections, self.dense_outputs, self.fit))

    def format_of(self, tensor: str) -> Any:
        """The format of a tensor as written; None if none is given, so that all its points are stored."""
        return dict(self.formats).get(tensor)


Kind = Literal["memory", "toll", "container", "compute"]


@dataclass(frozen=True)
class KindRules:
    """The behaviour of components of one kind: all that other modules know of a kind. `actions`: those that
    cost energy and time; the first is for data that move inward (or for operations). `sparse`: further
    actions on sparse data. `stores`: holds tensors, so that mappings name it. `passes`: tensors pass through
    without being stored. `computes`: executes Einsums."""

    actions: tuple[str, ...] = ()
    sparse: tuple[str, ...] = ()
    stores: bool = False
    passes: bool = False
    computes: bool = False


KINDS: dict[Kind, KindRules] = {
    "memory": KindRules(
        ("read", "write"), ("gated_read", "gated_write", "metadata_read", "metadata_write"), stores=True
    ),
    "toll": KindRules(("read", "write"), passes=True),
    "container": KindRules(),
    "compute": KindRules(("compute",), ("gated_compute",), computes=True),
}


@dataclass(frozen=True)
class TensorRule:
    """A set expression and the tensors that it selects in each Einsum."""

    text: str
    by_einsum: tuple[tuple[str, frozenset[str]], ...] = ()

    def tensors(self, einsum: str) -> frozenset[str]:
        return dict(self.by_einsum).get(einsum, frozenset())


Multicast = Literal["overlapping", "identical"]
Topology = Literal["bus", "mesh", "line", "ring", "tree", "switch", "all_to_all"]  # how hops are counted
# Searches count hops of these. Hops of rings and trees are not products over rank variables.
SEARCHED = ("bus", "mesh", "line", "switch", "all_to_all")


@dataclass(frozen=True)
class FanoutLink:
    """The interconnect of one fanout dimension: joules per bit and hop, a link's bit/s, seconds per hop."""

    energy_per_bit_hop: float = 0.0
    topology: Topology = "bus"
    throughput: float = math.inf
    hop_latency: float = 0.0

    @property
    def timed(self) -> bool:
        """True if traffic over it takes time."""
        return bool(self.hop_latency) or not math.isinf(self.throughput)

    @property
    def costs(self) -> bool:
        """True if traffic over it costs energy or time, and so has to be counted."""
        return bool(self.energy_per_bit_hop) or self.timed


def link_name(component: str, dim: str) -> str:
    """The name of a fanout dimension's interconnect in tables."""
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
    link: FanoutLink | None = None
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
class ActionCost:
    """Energy (joules) per bit, or per operation for compute; throughput in bits or operations per second.

    With `bits_per_action` set, energy is per action and each transfer rounds up to whole actions.
    """

    name: str
    energy: float = 0.0
    throughput: float = math.inf
    bits_per_action: int | None = None
    provenance: str = "given"

    def rounds(self, bits: int) -> bool:
        """True if a transfer of values of `bits` each may be rounded up to whole actions."""
        return self.bits_per_action is not None and bits % self.bits_per_action != 0

    def whole_bits(self, bits: int) -> int:
        """The size of a transfer of `bits`, rounded up to the bits of whole actions."""
        return (
            bits if self.bits_per_action is None else -(-bits // self.bits_per_action) * self.bits_per_action
        )


@dataclass(frozen=True)
class Component:
    """One level of the hierarchy; fields that do not apply to its kind keep their defaults.

    `branch` names the branch that leaves the hierarchy here, "" for the hierarchy itself: only Einsums that
    execute on a branch use its components.
    """

    name: str
    kind: Kind
    size_bits: float = math.inf
    allocation: Literal["tile", "live"] = "tile"
    actions: tuple[ActionCost, ...] = ()
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
    branch: str = ""

    @property
    def stores(self) -> bool:
        """True if mappings store tensors in it."""
        return KINDS[self.kind].stores

    @property
    def passes(self) -> bool:
        """True if tensors pass through it at a cost without being stored."""
        return KINDS[self.kind].passes

    @property
    def moves(self) -> bool:
        """True if tensors are transferred into it and out of it."""
        return self.stores or self.passes

    @property
    def computes(self) -> bool:
        """True if it executes Einsums."""
        return KINDS[self.kind].computes

    @property
    def acts(self) -> bool:
        """True if it has actions that cost energy or time; otherwise it only contains the levels below."""
        return bool(KINDS[self.kind].actions)

    @property
    def ways(self) -> tuple[ActionCost, ActionCost]:
        """The two actions of a component that moves tensors: for data moving inward, and for data moving
        outward."""
        down, up = KINDS[self.kind].actions
        return self.action(down), self.action(up)

    def action(self, name: str) -> ActionCost:
        """The action `name`; one of no energy and unlimited throughput if the component does not declare
        it."""
        for a in self.actions:
            if a.name == name:
                return a
        return ActionCost(name, provenance="default")

    @property
    def by_operator(self) -> tuple[str, ...]:
        """The actions of a compute unit for single operators."""
        return tuple(a.name for a in self.actions if self.computes and is_priced(a.name))

    def dim(self, name: str) -> FanoutDim:
        for d in self.spatial:
            if d.name == name:
                return d
        raise KeyError(f"component {self.name} has no fanout dimension {name}")


@dataclass(frozen=True)
class Hierarchy:
    """Components, outermost first; with `assume_overlap` transfers overlap with computation."""

    components: tuple[Component, ...]
    assume_overlap: bool = True
    name: str = ""

    def __repr__(self) -> str:
        return f"Hierarchy({names_text(self)})"

    def __str__(self) -> str:
        lines = "".join(f"\n  {line}" for line in hierarchy_text(self).splitlines())
        return f"Hierarchy{' ' if self.name else ': '}{names_text(self)}{lines}"

    def _repr_svg_(self) -> str:
        """Memories, fanouts and compute units as a picture for notebooks, outermost on top."""
        return drawn("svg", "architecture_svg", self)

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
    def memories(self) -> tuple[str, ...]:
        """The names of its memories, outermost first."""
        return tuple(c.name for c in self.components if c.stores)

    @property
    def tolls(self) -> tuple[str, ...]:
        """The names of components that tensors pass through without being stored, outermost first."""
        return tuple(c.name for c in self.components if c.passes)

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
        pairs = [(c, a) for c in self.components for a in KINDS[c.kind].actions]
        return tuple((c.name, a) for c, a in pairs if c.action(a).provenance == "default")

    def doubles(self, name: str) -> bool:
        """True if the memory holds each refilled tile twice, so that refills overlap with use."""
        c = self[name]
        return not self.assume_overlap and c.stores and c.buffering == "double"

    def waits(self, name: str) -> bool:
        """True if execution stops while the memory is refilled."""
        c = self[name]
        return not self.assume_overlap and c.stores and c.buffering == "single"

    def path_to(self, name: str) -> tuple[Component, ...]:
        """The components from the outermost one to this one, without those on other branches."""
        way, last = branches_to(self[name].branch), self.index(name)
        return tuple(c for c in self.components[: last + 1] if c.branch in way)

    def path_from(self, outer: str, inner: str) -> tuple[Component, ...]:
        """The components that data from one to another reach: all below the first, with the second."""
        first = self.index(outer)
        return tuple(c for c in self.path_to(inner) if self.index(c.name) > first)

    def crossed_links(self, one: str, other: str) -> tuple[tuple[str, FanoutDim], ...]:
        """The costly links that data between two components, in either direction, cross."""
        outer, inner = sorted((one, other), key=self.index)
        names = {c.name for c in self.path_from(outer, inner)}
        return tuple((c, d) for c, d in self.costly_links if c in names)

    def along(self, branches: Collection[str]) -> Hierarchy:
        """The same hierarchy with the components of other branches inactive."""
        no = TensorRule("Nothing")
        result = []
        for c in self.components:
            if c.branch and c.branch not in branches:
                spatial = tuple(replace(d, fanout=1, link=None) for d in c.spatial)
                kind: Kind = c.kind if c.stores else "container"
                c = replace(c, kind=kind, spatial=spatial, keep=no, may_keep=no)
            result.append(c)
        return replace(self, components=tuple(result))

    def instances(self, name: str) -> int:
        """Number of instances of the component: the product of all fanouts at it and on the path to it."""
        return math.prod(d.fanout for c in self.path_to(name) for d in c.spatial)


_FREE = "not given, so 0"


def facts(c: Component) -> tuple[str, ...]:
    """Capacity, actions, leakage and area of one component, one line each."""
    result = []
    if c.stores:
        size = "unbounded" if math.isinf(c.size_bits) else engineering(c.size_bits, "bit")
        result.append(size + (" (live)" if c.allocation == "live" else ""))
    for a in c.actions:
        unit = "operation" if c.computes else "bit"
        short, factor = in_units(unit)
        per = "action" if a.bits_per_action else short
        joules = a.energy if a.bits_per_action else a.energy / factor
        speed = "" if math.isinf(a.throughput) else f", {engineering(a.throughput, unit)}/s"
        result.append(f"{a.name} {engineering(joules, 'J')}/{per}{speed}")
    if c.leak_power:
        result.append(f"leaks {engineering(c.leak_power, 'W')}")
    if c.area:
        result.append(engineering(c.area, "m^2"))
    return tuple(result)


def hierarchy_text(hierarchy: Hierarchy) -> str:
    """One line per component, indented below the fanouts that replicate it."""
    lines = [] if hierarchy.assume_overlap else ["transfers do not overlap compute"]
    depths = {"": 0}
    for c in hierarchy.components:
        if c.branch not in depths:
            outer, _, name = c.branch.rpartition("/")
            lines.append("  " * depths[outer] + f"branch {name}:")
            depths[c.branch] = depths[outer] + 1
        depth = depths[c.branch]
        if c.spatial:
            dims = ", ".join(f"{d.name} x {d.fanout}" for d in c.spatial)
            lines.append("  " * depth + f"per {c.name} ({dims}; {hierarchy.instances(c.name)} in all):")
            depths[c.branch] = depth = depth + 1
            lines += ["  " * depth + f"{d.name}: {told}" for d in c.spatial if (told := _dim_text(d))]
        if c.acts:
            told = "; ".join((*facts(c), *_rules(c)))
            lines.append("  " * depth + f"{c.name} ({c.kind}): {told}".rstrip(": "))
            if c.sparse is not None:
                told = sparse_text(c.sparse) or "what it skips or gates is shown with a workload"
                lines.append("  " * depth + f"  sparse: {told}")
            if c.data_tiles is not None:
                lines.append("  " * depth + f"  data tiles: {tiles_text(c.data_tiles, c)}")
    return "\n".join(lines) + "\n"


def sources_text(hierarchy: Hierarchy) -> str:
    """The provenance of energies and areas: one line for each source that the spec names, and for numbers
    without one."""
    found: dict[str, dict[str, list[str]]] = {}
    for c in hierarchy.components:
        origins = [(a.name, a.provenance) for a in c.actions]
        origins += [("area", c.area_provenance)] if c.area else []
        for what, source in origins:
            found.setdefault(source, {}).setdefault(c.name, []).append(what)
    told = {s: ", ".join(f"{c} {' and '.join(names)}" for c, names in of.items()) for s, of in found.items()}
    unnamed = told.pop("given", "")
    lines = [f"{of}: {_FREE if source == 'default' else source}" for source, of in told.items()]
    if not lines:
        return "sources of energy and area: none is named\n" if unnamed else ""
    lines += [f"{unnamed}: as written, no source is named"] if unnamed else []
    return "sources of energy and area:\n" + "".join(f"  {line}\n" for line in lines)


def _dim_text(d: FanoutDim) -> str:
    """`may reuse Outputs; mesh, 50 fJ/b per hop, 64 Gb/s`: what a dimension has besides its fanout."""
    result = [] if d.may_reuse is None else [f"may reuse {d.may_reuse.text}"]
    if d.broadcast_partials:
        result.append("partial sums go to all")
    if d.multicast == "identical":
        result.append("overlapping tiles are not shared")
    if d.link is not None:
        short, factor = in_units("bit")
        wait = f" and {engineering(d.link.hop_latency, 's')}" if d.link.hop_latency else ""
        speed = "" if math.isinf(d.link.throughput) else f", {engineering(d.link.throughput, 'bit')}/s"
        joules = engineering(d.link.energy_per_bit_hop / factor, "J")
        result.append(f"{d.link.topology}, {joules}/{short}{wait} per hop{speed}")
    return "; ".join(result)


def _rules(c: Component) -> tuple[str, ...]:
    """`keeps ~Intermediates`, `ports separate`: properties that differ from their defaults."""
    result = [] if c.keep is None else [f"keeps {c.keep.text}"]
    result += [] if c.may_keep is None else [f"may keep {c.may_keep.text}"]
    result += ["partial sums are read first"] if c.read_first else []
    result += ["ports separate"] if c.ports == "separate" else []
    result += ["buffering single"] if c.buffering == "single" else []
    result += [f"{a.name}: {a.bits_per_action} b per action" for a in c.actions if a.bits_per_action]
    if c.fill_drain_latency:
        result.append(f"fill and drain {engineering(c.fill_drain_latency, 's')}")
    result += [] if c.clock is None else [f"clock {engineering(c.clock, 'Hz')}"]
    return tuple(result)


def sparse_text(rules: SparseRules) -> str:
    """`A in CSR; skip B on A; two_finger of A, B`."""
    result = [f"{tensor} in {_written(form)}" for tensor, form in rules.formats]
    for action in rules.actions:
        for _, targets, leaders in action.by_einsum:
            if leaders:
                result.append(f"{action.kind} {', '.join(targets) or 'compute'} on {', '.join(leaders)}")
    result += [f"{x.kind} of {', '.join(x.tensors)}" for x in rules.intersections]
    result += [f"{t} moves densely" for t in rules.dense_outputs]
    result += [f"tiles fit with probability {rules.fit:g}"] if isinstance(rules.fit, float) else []
    result += ["the fullest tiles fit"] if rules.fit == "worst" else []
    return "; ".join(dict.fromkeys(result))


def tiles_text(rules: TileRules, c: Component) -> str:
    """`128 elements by best (total); configured in 824 (add), 907 (multiply) cycles`, and the rules for
    products.

    A capacity that follows from the memory's size is given as well, unless each Einsum has a word width of
    its own.
    """
    fit = f"{_written(rules.format)} bits" if rules.fit == "stored" else rules.fit
    known = rules.capacity or rules.word_bits or rules.fit == "stored"
    # The width is derived only where none is given.
    room = f"{capacity_of(rules, c.size_bits, c.buffering, widest=1)} {fit}" if known else fit
    cycles = f"{rules.config_add} (add), {rules.config_multiply} (multiply) cycles"
    result = f"{room} by {rules.tiler} ({rules.objective}); configured in {cycles}"
    p = rules.product
    if p == ProductRules():
        return result
    tile = "" if p.tile is None else f" {' x '.join(map(str, p.tile))}"
    return f"{result}; products by {p.strategy}{tile} ({p.objective})"


def uncut_text(nodes: Iterable[object]) -> tuple[str, ...]:
    """A note on figures that do not account for tiles, if one of these memories tiles its operands."""
    cut = [str(getattr(n, "name", "")) for n in nodes if getattr(n, "data_tiles", None) is not None]
    if not cut:
        return ()
    said = f"{', '.join(dict.fromkeys(cut))}: tiles of data_tiles: and their costs are not counted here"
    return (f"{said}; evaluate a spec to see them",)


def _written(form: object) -> str:
    return "-".join(map(str, form)) if isinstance(form, list | tuple) else str(form)


def names_text(hierarchy: Hierarchy) -> str:
    """`simple_two_level: DRAM, GLB, MAC`"""
    head = f"{hierarchy.name}: " if hierarchy.name else ""
    return head + ", ".join(c.name for c in hierarchy.components)
