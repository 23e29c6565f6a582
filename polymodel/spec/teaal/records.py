"""What a TeAAL spec says, as frozen records: made by the parser, read by the executor and the converter.

Grammar and meaning: docs/sparse.md. Sizes of partitions may be symbols; everything else is resolved.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

Kind = Literal["uniform_shape", "nway_shape", "uniform_occupancy", "follow", "flatten", "uniform_slice"]
# Splits that need the data, not only the shape.
DATA_DEPENDENT = frozenset({"uniform_occupancy", "uniform_slice"})


@dataclass(frozen=True)
class Index:
    """One index of a tensor: a sum of integer multiples of rank variables, as (variable, factor) pairs."""

    terms: tuple[tuple[str, int], ...]

    @property
    def variable(self) -> str | None:
        """The rank variable, where the index is nothing else."""
        return self.terms[0][0] if len(self.terms) == 1 and self.terms[0][1] == 1 else None


@dataclass(frozen=True)
class Operand:
    """A tensor with its indices, one per declared rank; rank 0 has none."""

    tensor: str
    indices: tuple[Index, ...] = ()


@dataclass(frozen=True)
class Product:
    """factor * factor * ...: tensors, names of scalars, and numbers."""

    factors: tuple[Operand | str | float, ...]


@dataclass(frozen=True)
class Take:
    """take(factor, .., n): where all are nonzero, the value of factor number `which` (from 0)."""

    factors: tuple[Operand, ...]
    which: int


@dataclass(frozen=True)
class Expression:
    """output = term + term + ...; the Einsum is named after its output tensor."""

    output: Operand
    terms: tuple[Product | Take, ...]
    text: str = ""

    @property
    def name(self) -> str:
        return self.output.tensor

    @property
    def operands(self) -> tuple[Operand, ...]:
        """The tensors on the right, in order of the text (one that occurs twice stands twice)."""
        return tuple(f for t in self.terms for f in t.factors if isinstance(f, Operand))


@dataclass(frozen=True)
class Directive:
    """One operation of a partitioning. `size`: of the split (a symbol's name where it is not a number yet);
    `leader`: of uniform_occupancy and follow."""

    kind: Kind
    size: int | str = 0
    leader: str = ""


@dataclass(frozen=True)
class Partition:
    """What is done to one rank (or, for flatten, to several adjacent ones), outermost split first."""

    ranks: tuple[str, ...]
    directives: tuple[Directive, ...]


@dataclass(frozen=True)
class Stamp:
    """One rank of a spacetime entry, stamped by position (`pos`, the default) or by coordinate."""

    rank: str
    style: Literal["pos", "coord"] = "pos"


@dataclass(frozen=True)
class SpaceTime:
    space: tuple[Stamp, ...]
    time: tuple[Stamp, ...]
    slip: bool = False


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


@dataclass(frozen=True)
class TeaalSpec:
    """A whole spec. `declaration`: tensor -> ranks as declared; `rank_order`: tensor -> ranks as stored.

    `rank_sizes`: where the file gives them (TeAAL's own files do not: they come from the data, or from
    symbols named after the ranks). `architecture` and `bindings` are the checked sections as plain data, None
    where absent.
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

    def mapping_of(self, einsum: str) -> EinsumMapping:
        """The mapping of one Einsum; KeyError if there is no such Einsum."""
        for found in self.mappings:
            if found.einsum == einsum:
                return found
        raise KeyError(f"no Einsum {einsum}; there are {', '.join(m.einsum for m in self.mappings)}")

    @property
    def inputs(self) -> tuple[str, ...]:
        """Tensors that no expression makes, in order of first use."""
        made = {e.name for e in self.expressions}
        used = dict.fromkeys(o.tensor for e in self.expressions for o in e.operands)
        return tuple(t for t in used if t not in made)
