"""The contents of a TeAAL spec as frozen records, built by the parser and read by the executor and the
converter.

Grammar and meaning: docs/sparse.md. Sizes of partitions may be symbols; everything else is resolved.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from polymodel.arithmetic import ORDINARY, Semiring
from polymodel.errors import Refused

Kind = Literal["uniform_shape", "nway_shape", "uniform_occupancy", "follow", "flatten", "uniform_slice"]
# Splits that need the data, not only the shape.
DATA_DEPENDENT = frozenset({"uniform_occupancy", "uniform_slice"})


@dataclass(frozen=True)
class Index:
    """One index of a tensor: a sum of integer multiples of rank variables, as (variable, factor) pairs, and a
    constant.

    `strides`: (variable, scalar) for each variable that is multiplied by a scalar without a value yet, `g` in
    `g * x + r`; the variable's integer factor multiplies the scalar.
    """

    terms: tuple[tuple[str, int], ...]
    strides: tuple[tuple[str, str], ...] = ()
    constant: int = 0

    @property
    def variable(self) -> str | None:
        """The rank variable, where the index is nothing else."""
        alone = len(self.terms) == 1 and self.terms[0][1] == 1 and not self.strides and not self.constant
        return self.terms[0][0] if alone else None

    def __str__(self) -> str:
        by = dict(self.strides)
        factors = [(f"{by[v]}*{v}" if v in by else v, f) for v, f in self.terms]
        text = " + ".join(text if f == 1 else f"{f}*{text}" for text, f in factors)
        return f"{text} {'-' if self.constant < 0 else '+'} {abs(self.constant)}" if self.constant else text


@dataclass(frozen=True)
class IndexedTensor:
    """A tensor with its indices, one per declared rank; rank 0 has none."""

    tensor: str
    indices: tuple[Index, ...] = ()


@dataclass(frozen=True)
class FactorProduct:
    """factor * factor * ...: tensors, names of scalars, and numbers; `negative`: it is subtracted."""

    factors: tuple[IndexedTensor | str | float, ...]
    negative: bool = False


@dataclass(frozen=True)
class Take:
    """take(factor, .., n): the value of factor number n (from 0) where all factors are nonzero.

    `factors`: its tensors; `which` is an index among these, -1 if a scalar is taken. `scalars`: names and
    numbers among the factors, each with its position.
    """

    factors: tuple[IndexedTensor, ...]
    which: int
    scalars: tuple[tuple[int, str | float], ...] = ()


@dataclass(frozen=True)
class Expression:
    """output = term + term - ...; the Einsum is named after its output tensor. `semiring`: the operators that
    `*` and `+` stand for."""

    output: IndexedTensor
    terms: tuple[FactorProduct | Take, ...]
    text: str = ""
    semiring: Semiring = ORDINARY

    @property
    def name(self) -> str:
        return self.output.tensor

    @property
    def operands(self) -> tuple[IndexedTensor, ...]:
        """The tensors on the right-hand side, in order of the text (a repeated tensor is listed
        repeatedly)."""
        return tuple(f for t in self.terms for f in t.factors if isinstance(f, IndexedTensor))


@dataclass(frozen=True)
class Directive:
    """One operation of a partitioning. `size`: of the split (a symbol's name until it has a value); `leader`:
    of uniform_occupancy and follow. `partitioner`: the name of a user's function that chooses where the
    leader's fibers are split, instead of after equal numbers of coordinates."""

    kind: Kind
    size: int | str = 0
    leader: str = ""
    partitioner: str = ""


@dataclass(frozen=True)
class Partition:
    """The operations on one rank (or, for flatten, on several adjacent ranks), outermost split first."""

    ranks: tuple[str, ...]
    directives: tuple[Directive, ...]


@dataclass(frozen=True)
class Stamp:
    """One rank of a spacetime entry, stamped by position (`pos`, the default) or by coordinate."""

    rank: str
    style: Literal["pos", "coord"] = "pos"


@dataclass(frozen=True)
class SpaceTime:
    """The loop ranks that run in space, and those that run in time.

    `fanout` (not in TeAAL) says on which fanout dimension of an architecture a space rank runs, as pairs
    (rank, "dimension" or "component.dimension").
    """

    space: tuple[Stamp, ...]
    time: tuple[Stamp, ...]
    slip: bool = False
    fanout: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True)
class EinsumMapping:
    """How one Einsum runs. `loop_order` names ranks after partitioning, outermost first; always filled in
    (the default is the order of the output's ranks, then those of the inputs, split in place)."""

    einsum: str
    partitioning: tuple[Partition, ...] = ()
    loop_order: tuple[str, ...] = ()
    spacetime: SpaceTime | None = None


@dataclass(frozen=True)
class RankFormat:
    """One rank of a format: C (compressed) or U (uncompressed); widths in bits, None where not given."""

    rank: str
    format: Literal["C", "U", "B"] = "C"
    cbits: int | None = None
    pbits: int | None = None
    fhbits: int | None = None
    rhbits: int | None = None
    layout: Literal["contiguous", "interleaved"] = "contiguous"


@dataclass(frozen=True)
class TensorFormat:
    """One named configuration of a tensor's format; `rank_order` is that of the stored tensor."""

    tensor: str
    configuration: str
    ranks: tuple[RankFormat, ...]
    rank_order: tuple[str, ...] = ()


Attribute = int | float | str | bool
Class = Literal["DRAM", "Buffet", "Cache", "Compute", "Intersector", "Merger", "Sequencer"]
MEMORIES = ("DRAM", "Buffet", "Cache")


@dataclass(frozen=True)
class HardwareComponent:
    """A part of the hardware.

    `kind`: its class; `instances`: how many there are in all; `path`: names of the levels from the root to
    the one it stands in. `attributes` as written: bandwidth (bits per second), width (bits), depth (lines),
    read_energy and write_energy (joules per bit), energy (of a unit, joules per operation);
    `type` of Compute is mul or add, of Intersector two-finger, leader-follower or skip-ahead. A text where a
    number belongs is an expression over symbols.
    """

    name: str
    kind: Class
    instances: int = 1
    path: tuple[str, ...] = ()
    attributes: Mapping[str, Attribute] = field(default_factory=dict)

    def number(self, key: str) -> int | float | None:
        """A numeric attribute, None where it is not given. Refused while it waits for a symbol's value."""
        result = self.attributes.get(key)
        if isinstance(result, (str, bool)):
            message = f"{key} of {self.name} is {result}, no number yet"
            raise Refused(message, "give values to its symbols", code="wrong-type")
        return result

    @property
    def type(self) -> str:
        return str(self.attributes.get("type", ""))


@dataclass(frozen=True)
class HardwareLevel:
    """One level of the tree: `instances` copies of it in each copy of the level around it."""

    name: str
    instances: int = 1
    attributes: Mapping[str, Attribute] = field(default_factory=dict)
    local: tuple[HardwareComponent, ...] = ()
    subtree: tuple[HardwareLevel, ...] = ()

    @property
    def components(self) -> tuple[HardwareComponent, ...]:
        """Those of this level, then those of the levels in it, in order of the text."""
        return self.local + tuple(c for level in self.subtree for c in level.components)


@dataclass(frozen=True)
class NamedArchitecture:
    """One named architecture; Einsums choose theirs with `config`."""

    name: str
    root: HardwareLevel

    @property
    def components(self) -> tuple[HardwareComponent, ...]:
        return self.root.components

    @property
    def clock_frequency(self) -> int | float | None:
        """Of the root level, in hertz."""
        result = self.root.attributes.get("clock_frequency")
        return None if isinstance(result, (str, bool)) else result

    def component(self, name: str) -> HardwareComponent:
        """Return the component of this name. Raises KeyError if there is none."""
        for result in self.components:
            if result.name == name:
                return result
        raise KeyError(f"no component {name}; there are {', '.join(c.name for c in self.components)}")


@dataclass(frozen=True)
class Binding:
    """The use of one component by one Einsum; fields that are not given are empty.

    Memories: `tensor`, `rank` (after partitioning, or root), `type`, `format` (a configuration of the
    tensor's format) and, for a Buffet, `evict_on` (a loop rank, or root) and `style`. Compute: `op`.
    Intersector: `rank`, `leader`. Merger: `tensor`, `init_ranks`, `final_ranks`. Sequencer: `rank`.
    """

    component: str
    tensor: str = ""
    rank: str = ""
    type: Literal["", "coord", "payload", "elem"] = ""
    format: str = ""
    evict_on: str = ""
    style: Literal["lazy", "eager"] = "lazy"
    op: Literal["", "mul", "add"] = ""
    leader: str = ""
    init_ranks: tuple[str, ...] = ()
    final_ranks: tuple[str, ...] = ()


@dataclass(frozen=True)
class EinsumBindings:
    """Everything one Einsum binds, in order of the text. `config`: a Configuration's name."""

    einsum: str
    config: str = ""
    prefix: str = ""
    bindings: tuple[Binding, ...] = ()

    def of(self, component: str) -> tuple[Binding, ...]:
        """The bindings to one component."""
        return tuple(b for b in self.bindings if b.component == component)


@dataclass(frozen=True)
class TeaalSpec:
    """A whole spec. `declaration`: tensor -> ranks as declared; `rank_order`: tensor -> ranks as stored.

    `rank_sizes`: where the file gives them (TeAAL's own files do not: they come from the data, or from
    symbols named after the ranks). `architecture` and `bindings` are the checked sections as plain data, None
    where absent; `configurations` and `einsum_bindings` are the same as records. `bits_per_value`: tensor ->
    bits, where the file gives them; `init`: tensor -> what its generations before the first one hold.
    """

    declaration: Mapping[str, tuple[str, ...]]
    expressions: tuple[Expression, ...]
    rank_order: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    mappings: tuple[EinsumMapping, ...] = ()
    rank_sizes: Mapping[str, int | str] = field(default_factory=dict)
    formats: tuple[TensorFormat, ...] = ()
    architecture: Mapping[str, object] | None = None
    bindings: Mapping[str, object] | None = None
    name: str = ""
    configurations: tuple[NamedArchitecture, ...] = ()
    einsum_bindings: tuple[EinsumBindings, ...] = ()
    bits_per_value: Mapping[str, int | str] = field(default_factory=dict)
    init: Mapping[str, float | str] = field(default_factory=dict)

    def __str__(self) -> str:
        return spec_text(self)

    def mapping_of(self, einsum: str) -> EinsumMapping:
        """Return the mapping of one Einsum. Raises KeyError if there is no such Einsum."""
        for result in self.mappings:
            if result.einsum == einsum:
                return result
        raise KeyError(f"no Einsum {einsum}; there are {', '.join(m.einsum for m in self.mappings)}")

    def expression(self, einsum: str) -> Expression:
        """The expression that makes a tensor; KeyError if there is none."""
        for result in self.expressions:
            if result.name == einsum:
                return result
        raise KeyError(f"no Einsum {einsum}; there are {', '.join(e.name for e in self.expressions)}")

    def absent(self, tensor: str) -> float:
        """The value of a sparse tensor at points without an entry: the value that the sums of its Einsums
        leave out."""
        used = (e for e in self.expressions if tensor in (e.name, *(o.tensor for o in e.operands)))
        return next((e.semiring.absent for e in used), 0.0)

    def bindings_of(self, einsum: str) -> EinsumBindings:
        """The bindings of one Einsum; empty ones where the file gives none."""
        result = (b for b in self.einsum_bindings if b.einsum == einsum)
        return next(result, EinsumBindings(einsum))

    def configuration(self, name: str = "") -> NamedArchitecture:
        """The architecture of this name, or the only one. KeyError if there is none."""
        for result in self.configurations:
            if result.name == name or (not name and len(self.configurations) == 1):
                return result
        raise KeyError(f"no architecture {name}; there are {[c.name for c in self.configurations]}")

    def format_of(self, tensor: str, configuration: str) -> TensorFormat | None:
        """A configuration of a tensor's format, None where there is none."""
        result = (f for f in self.formats if (f.tensor, f.configuration) == (tensor, configuration))
        return next(result, None)

    @property
    def inputs(self) -> tuple[str, ...]:
        """Tensors that no expression makes, in order of first use."""
        made = {e.name for e in self.expressions}
        used = dict.fromkeys(o.tensor for e in self.expressions for o in e.operands)
        return tuple(t for t in used if t not in made)


def spec_text(spec: TeaalSpec) -> str:
    """Tensors, a table of Einsums (partitioning, loop order, space-time), then the hardware."""
    lines = [f"TeAAL spec {spec.name}".rstrip()]
    lines += _columns([_tensor(t, spec) for t in spec.declaration], "  ")
    sizes = ", ".join(f"{r} = {s}" for r, s in spec.rank_sizes.items() if str(s) != r)
    if sizes:
        lines.append(f"  sizes: {sizes}")
    for expression in spec.expressions:
        mapping = spec.mapping_of(expression.name)
        lines.append(f"  {expression.text}")
        lines += _columns(_mapping(mapping), "    ")
    for form in spec.formats:
        ranks = ", ".join(f"{r.rank} {r.format}" for r in form.ranks)
        lines.append(f"  format {form.configuration} of {form.tensor}: {ranks}")
    for configuration in spec.configurations:
        lines += _hardware(configuration)
    for found in spec.einsum_bindings:
        names = ", ".join(dict.fromkeys(b.component for b in found.bindings))
        lines.append(f"  {found.einsum} on {found.config}: bound to {names or 'nothing'}")
    return "\n".join(lines)


def directive_text(directive: Directive) -> str:
    """As it is written in a spec."""
    if directive.kind == "flatten":
        return "flatten()"
    if directive.kind == "follow":
        return f"follow({directive.leader})"
    if directive.kind == "uniform_occupancy":
        return f"{directive.partitioner or directive.kind}({directive.leader}.{directive.size})"
    return f"{directive.kind}({directive.size})"


def partition_text(partition: Partition) -> str:
    """As it is written in a spec."""
    ranks = partition.ranks[0] if len(partition.ranks) == 1 else f"({', '.join(partition.ranks)})"
    return f"{ranks}: [{', '.join(directive_text(d) for d in partition.directives)}]"


def _tensor(tensor: str, spec: TeaalSpec) -> tuple[str, ...]:
    declared, stored = spec.declaration[tensor], spec.rank_order[tensor]
    order = f"stored as [{', '.join(stored)}]" if stored != declared else ""
    return tensor, f"[{', '.join(declared)}]", order


def _mapping(mapping: EinsumMapping) -> list[tuple[str, ...]]:
    rows: list[tuple[str, ...]] = []
    for i, partition in enumerate(mapping.partitioning):
        rows.append(("" if i else "partitioning", partition_text(partition)))
    rows.append(("loop order", " ".join(mapping.loop_order)))
    if mapping.spacetime is not None:
        places = dict(mapping.spacetime.fanout)
        space = ", ".join(
            _stamp(s) + (f" on {places[s.rank]}" if s.rank in places else "") for s in mapping.spacetime.space
        )
        rows.append(("space", space or "-"))
        time = ", ".join(_stamp(s) for s in mapping.spacetime.time) or "-"
        rows.append(("time", time + ("; slip" if mapping.spacetime.slip else "")))
    return rows


def _stamp(stamp: Stamp) -> str:
    return stamp.rank if stamp.style == "pos" else f"{stamp.rank}.coord"


def _hardware(configuration: NamedArchitecture) -> list[str]:
    rows: list[tuple[str, ...]] = []

    def add(level: HardwareLevel, depth: int) -> None:
        count = f" x {level.instances}" if level.instances > 1 else ""
        rows.append(("  " * depth + level.name + count, ""))
        for c in level.local:
            given = ", ".join(f"{k} {v}" for k, v in c.attributes.items())
            rows.append(("  " * (depth + 1) + c.name, f"{c.kind}{': ' if given else ''}{given}"))
        for below in level.subtree:
            add(below, depth + 1)

    add(configuration.root, 0)
    return [f"  architecture {configuration.name}", *_columns(rows, "    ")]


def _columns(rows: list[tuple[str, ...]], indent: str) -> list[str]:
    widths = [
        max((len(r[i]) for r in rows), default=0) for i in range(max((len(r) for r in rows), default=0))
    ]
    return [(indent + "  ".join(c.ljust(w) for c, w in zip(r, widths, strict=False))).rstrip() for r in rows]
