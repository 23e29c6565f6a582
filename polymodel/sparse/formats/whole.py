"""Define formats of ranks and of whole tensors: their bits, one rule per rank, and formats known by name."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from math import prod
from typing import Literal

import numpy as np

from polymodel.errors import Diagnostic, Refused, SpecError
from polymodel.frozen import dataclass
from polymodel.integers import distinct_numbers
from polymodel.sparse.assign import fullest_parts, least_loaded, part_loads
from polymodel.sparse.density.model import Label
from polymodel.sparse.formats.levels import Count, RankLevels, bits_for
from polymodel.sparse.tensor import Ints

# Formats of one rank, and the bits they take.
#
# Source of the notation: TeAAL (MICRO'23): rhbits per rank, fhbits per fiber, cbits and pbits per element.
# RLE and offset pairs: Sparseloop (MICRO'22).

Layout = Literal["contiguous", "interleaved"]


@dataclass(frozen=True, eq=False)
class RankBits:
    """Bits of one rank: headers, coordinate information (including bit masks, runs and offsets), and
    payloads."""

    rank: str
    headers: Count
    coordinates: Count
    payloads: Count

    @property
    def total(self) -> Count:
        return self.headers + self.coordinates + self.payloads


@dataclass(frozen=True, kw_only=True)
class RankRule(ABC):
    """Base class of all formats of a rank, with a header per fiber (`fhbits`) and one per rank (`rhbits`)."""

    fhbits: int = 0
    rhbits: int = 0

    def __post_init__(self) -> None:
        wrong = [
            Diagnostic(
                f"{type(self).__name__}: {key} is {value}",
                "a whole number of bits, at least 0",
                code="out-of-range",
            )
            for key, value in vars(self).items()
            if isinstance(value, int | float)
            and not isinstance(value, bool)
            and (value < 0 or value != int(value))
        ]
        if wrong:
            raise SpecError(wrong)

    def headers(self, levels: RankLevels, depth: int) -> Count:
        """Return the bits of headers. Without a root fiber (an empty tile) the rank has no header either."""
        return levels.fibers[0] * self.rhbits + levels.fibers[depth] * self.fhbits

    @abstractmethod
    def bits(self, levels: RankLevels, depth: int) -> RankBits:
        """Return the bits of rank number `depth`."""


@dataclass(frozen=True, kw_only=True)
class U(RankRule):
    """Uncompressed: every point of each existing fiber has a payload (and a coordinate, if cbits > 0)."""

    pbits: int
    cbits: int = 0
    layout: Layout = "contiguous"

    def bits(self, levels: RankLevels, depth: int) -> RankBits:
        fibers = levels.fibers[depth]
        elements = fibers * levels.shape[depth]
        return RankBits(
            levels.ranks[depth], self.headers(levels, depth), elements * self.cbits, elements * self.pbits
        )


@dataclass(frozen=True, kw_only=True)
class CP(RankRule):
    """Compressed (TeAAL's C): coordinate and payload of each element that is present."""

    cbits: int | None
    pbits: int
    layout: Layout = "contiguous"

    def bits(self, levels: RankLevels, depth: int) -> RankBits:
        elements = levels.coords[depth]
        width = bits_for(levels.shape[depth]) if self.cbits is None else self.cbits
        return RankBits(
            levels.ranks[depth], self.headers(levels, depth), elements * width, elements * self.pbits
        )


@dataclass(frozen=True, kw_only=True)
class B(RankRule):
    """Bit mask: `cbits` (1) for each point of a fiber, and a payload for each element that is present."""

    pbits: int
    cbits: int = 1
    layout: Layout = "contiguous"

    def bits(self, levels: RankLevels, depth: int) -> RankBits:
        fibers = levels.fibers[depth]
        mask = fibers * levels.shape[depth] * self.cbits
        return RankBits(
            levels.ranks[depth], self.headers(levels, depth), mask, levels.coords[depth] * self.pbits
        )


@dataclass(frozen=True, kw_only=True)
class RLE(RankRule):
    """Run lengths: in front of each payload the number of absent coordinates before it, in `rbits`.

    Coordinates behind the last one present are not stored. A run longer than 2^rbits - 1, `overlong`:
    - "zero": every 2^rbits absent coordinates become a full run and a payload of zero for the last of them;
    - "escape": a full run without a payload says that the next run goes on (so runs hold 2^rbits - 2);
    - "refuse": Refused.
    `rbits` None: as many as the size of the rank needs.
    """

    rbits: int | None
    pbits: int
    overlong: Literal["zero", "escape", "refuse"] = "zero"

    def bits(self, levels: RankLevels, depth: int) -> RankBits:
        rank, size = levels.ranks[depth], levels.shape[depth]
        elements = levels.coords[depth]
        width = bits_for(size) if self.rbits is None else self.rbits
        extra = 0 if self.rbits is None else self._extra(levels, depth, self.rbits)
        more = extra if self.overlong == "zero" else 0
        return RankBits(
            rank,
            self.headers(levels, depth),
            (elements + extra) * width,
            (elements + more) * self.pbits,
        )

    def _extra(self, levels: RankLevels, depth: int, rbits: int) -> Count:
        """Return the number of additional runs that are needed because other runs are too long."""
        span = 2**rbits if self.overlong != "escape" else 2**rbits - 1
        if not span:
            message = "RLE with an escape needs runs of at least 1 bit"
            raise SpecError([Diagnostic(message, "rbits: 1 or more", code="out-of-range")])
        size = levels.shape[depth]
        if bool((size <= span) if isinstance(size, int | float) else (size <= span).all()):
            return 0
        if levels.runs is None:
            message = f"how long the runs of {levels.ranks[depth]} are is not known"
            remedy = "give a run the bits that the size of the rank needs, or use the tensor itself"
            raise Refused(message, remedy, code="unsupported-format")
        result = levels.runs(depth, span)
        if self.overlong == "refuse" and bool(
            (result > 0) if isinstance(result, int | float) else result.any()
        ):
            what = f"runs of {levels.ranks[depth]} are longer than {span - 1}"
            raise Refused(what, "give more rbits, or say what to do", code="unsupported-format")
        return result


@dataclass(frozen=True, kw_only=True)
class UOP(RankRule):
    """Offset pairs: a fiber has one offset more than it has points; element p lies between offsets p and p +
    1 of the next level."""

    obits: int

    def bits(self, levels: RankLevels, depth: int) -> RankBits:
        fibers = levels.fibers[depth]
        offsets = fibers * (levels.shape[depth] + 1) * self.obits
        return RankBits(levels.ranks[depth], self.headers(levels, depth), offsets, fibers * 0)


# Formats of whole tensors, with one rule per rank, and formats known by name.

Named = Literal["dense", "COO", "CSR", "CSC", "DCSR", "CSF"]


@dataclass(frozen=True)
class Widths:
    """Bits of a value, of a coordinate (None: the width that the size of its rank needs) and of a pointer."""

    data: int = 32
    index: int | None = 32
    pointer: int = 32

    def __post_init__(self) -> None:
        wrong = [
            Diagnostic(f"{key} width is {value}", "a whole number of bits, at least 0", code="out-of-range")
            for key, value in vars(self).items()
            if value is not None and (value < 0 or value != int(value))
        ]
        if wrong:
            raise SpecError(wrong)


@dataclass(frozen=True, eq=False)
class Footprint:
    """Bits of a tensor in a format. Counts are numbers, or arrays with one entry per tile.

    `payload`: the payloads of the last rank, which are values (including stored zeros). `metadata`: all the
    rest, including payloads of upper ranks (pointers) and padding. `useful`: values of nonzeros only.
    `padding`: bits that hold no data.
    """

    format: str
    ranks: tuple[RankBits, ...]
    useful: Count
    label: Label
    padding: Count = 0

    @property
    def payload(self) -> Count:
        return self.ranks[-1].payloads if self.ranks else self.useful

    @property
    def total(self) -> Count:
        result: Count = self.padding if self.ranks else self.useful
        for rank in self.ranks:
            result = result + rank.total
        return result

    @property
    def metadata(self) -> Count:
        return self.total - self.payload

    @property
    def efficiency(self) -> Count:
        """Useful bits divided by all bits."""
        return self.useful / np.maximum(self.total, 1)

    def __repr__(self) -> str:
        """Format as one line; for many tiles give their number and their total bits."""
        tiles = f" of {np.size(self.total):,} tiles" if np.shape(self.total) else ""
        total, metadata = (np.sum(count) for count in (self.total, self.metadata))
        share = f", {metadata / total:.1%} of them metadata" if total else ""
        digits = ",.1f" if isinstance(total, float) else ","
        return f"Footprint({self.format}{tiles}: {total:{digits}} bits ({self.label}){share})"

    def per_rank(self) -> dict[str, Count]:
        """Rank -> bits."""
        return {rank.rank: rank.total for rank in self.ranks}


@dataclass(frozen=True)
class Format(ABC):
    """A format of whole tensors. `order`: that of the ranks as stored, () for the tensor's own."""

    @property
    @abstractmethod
    def name(self) -> str:
        """The name of the format in tables."""

    def order(self, ranks: Sequence[str]) -> tuple[str, ...]:
        """Return the ranks of a tensor in the order in which the format stores them. Raises SpecError if it
        cannot store them."""
        return tuple(ranks)

    @abstractmethod
    def bits(self, levels: RankLevels) -> Footprint:
        """Return the bits of a tensor whose levels are in stored order."""


@dataclass(frozen=True)
class PerRank(Format):
    """A format with one rule per rank, outermost first. `ranks`: their names, () where the rules apply by
    position."""

    rules: tuple[RankRule, ...]
    ranks: tuple[str, ...] = ()
    title: str = ""

    @property
    def name(self) -> str:
        return self.title or "-".join(type(rule).__name__ for rule in self.rules)

    def order(self, ranks: Sequence[str]) -> tuple[str, ...]:
        wanted = self.ranks or tuple(ranks)
        faults = [
            Diagnostic(
                f"{self.name}: rank {rank} is none of {list(ranks)}",
                "name the ranks of the tensor",
                code="unknown-name",
            )
            for rank in wanted
            if rank not in ranks
        ]
        faults += [
            Diagnostic(
                f"{self.name}: rank {rank} has no format",
                "give one to every rank of the tensor",
                code="missing-key",
            )
            for rank in ranks
            if rank not in wanted
        ]
        if len(self.rules) != len(wanted):
            what = f"{self.name}: {len(self.rules)} formats for {len(wanted)} ranks {list(wanted)}"
            faults.append(Diagnostic(what, "one per rank", code="wrong-count"))
        if faults:
            raise SpecError(faults)
        return wanted

    def bits(self, levels: RankLevels) -> Footprint:
        result = tuple(rule.bits(levels, k) for k, rule in enumerate(self.rules))
        value = getattr(self.rules[-1], "pbits", 0) if self.rules else 0
        return Footprint(self.name, result, levels.nnz * value, levels.label)


@dataclass(frozen=True)
class NamedFormat(Format):
    """dense: all points, zeros too. COO: nnz x (coordinates + value). CSR, CSC: rows + 1 pointers, nnz x
    (coordinate + value). DCSR, and CSF for any order: per rank but the last a pointer more than coordinates,
    and these; then as CSR."""

    kind: Named
    widths: Widths = Widths()

    @property
    def name(self) -> str:
        return self.kind

    def order(self, ranks: Sequence[str]) -> tuple[str, ...]:
        if self.kind in ("CSR", "CSC", "DCSR") and len(ranks) != 2:
            if len(ranks) == 1:
                what = f"{self.kind} holds matrices, {ranks[0]} is the only rank here"
                remedy = "use COO, or one format for the rank, such as [B]"
                raise SpecError([Diagnostic(what, remedy, code="wrong-count")])
            what = f"{self.kind} holds matrices, there are {len(ranks)} ranks {list(ranks)}"
            raise SpecError([Diagnostic(what, "use CSF for tensors", code="wrong-count")])
        return tuple(reversed(ranks)) if self.kind == "CSC" else tuple(ranks)

    def bits(self, levels: RankLevels) -> Footprint:
        data, index, pointer = self.widths.data, self.widths.index, self.widths.pointer
        if self.kind == "COO":
            return self._coo(levels)
        if self.kind == "dense":
            return self._dense(levels)
        inner: RankRule = CP(cbits=index, pbits=pointer, rhbits=pointer)
        if self.kind in ("CSR", "CSC"):
            inner = UOP(obits=pointer)
        last = max(len(levels.ranks) - 1, 0)
        rules = (*([inner] * last), *([CP(cbits=index, pbits=data)] if levels.ranks else []))
        result = PerRank(rules, title=self.kind).bits(levels)
        return Footprint(self.kind, result.ranks, levels.nnz * data, levels.label)

    def _dense(self, levels: RankLevels) -> Footprint:
        points: Count = 1
        most = prod([float(self.widths.data), *(float(np.max(s, initial=0)) for s in levels.shape)])
        for size in levels.shape:
            # Products that exceed 64 bits use Python's integers.
            wide = isinstance(size, np.ndarray) and size.dtype.kind == "i" and most >= 2.0**62
            points = points * (np.asarray(size, dtype=object) if wide else size)
        result = [RankBits(rank, 0, 0, 0) for rank in levels.ranks[:-1]]
        result += [RankBits(rank, 0, 0, points * self.widths.data) for rank in levels.ranks[-1:]]
        return Footprint("dense", tuple(result), levels.nnz * self.widths.data, levels.label)

    def _coo(self, levels: RankLevels) -> Footprint:
        nnz, last = levels.nnz, len(levels.ranks) - 1
        result = []
        for k, (rank, size) in enumerate(zip(levels.ranks, levels.shape, strict=True)):
            width = bits_for(size) if self.widths.index is None else self.widths.index
            result.append(RankBits(rank, nnz * 0, nnz * width, nnz * (self.widths.data if k == last else 0)))
        return Footprint("COO", tuple(result), nnz * self.widths.data, levels.label)


@dataclass(frozen=True)
class CISS(Format):
    """Compressed interleaved sparse slices for `parts` processing elements; see `formats.ciss`.

    `assign`: the next slice goes to the lane with the least data, header included ("data"), or with the
    fewest nonzeros ("nnz"). For a density model that does not describe how slices differ, and for single
    tiles of one, the bits are a lower bound with equally long lanes.
    """

    parts: int
    widths: Widths = Widths(index=16)
    assign: Literal["data", "nnz"] = "data"

    def __post_init__(self) -> None:
        if self.parts < 1:
            message = f"CISS with {self.parts} lanes"
            raise SpecError([Diagnostic(message, "at least 1", code="not-positive-integer")])

    @property
    def name(self) -> str:
        return "CISS"

    def order(self, ranks: Sequence[str]) -> tuple[str, ...]:
        if len(ranks) < 2:
            what = f"CISS stores slices of tensors, there are {len(ranks)} ranks"
            raise SpecError([Diagnostic(what, "use COO for vectors", code="wrong-count")])
        return tuple(ranks)

    def slot(self, levels: RankLevels) -> Count:
        """Return the bits of one slot of a lane: a value and a coordinate of each rank but one.

        A header holds the first coordinate where other slots hold the second; if widths are not given, the
        larger of both sizes determines the width.
        """
        if self.widths.index is not None:
            return self.widths.data + (len(levels.ranks) - 1) * self.widths.index
        shared: Count = np.maximum(bits_for(levels.shape[0]), bits_for(levels.shape[1]))
        rest: Count = 0
        for size in levels.shape[2:]:
            rest = rest + bits_for(size)
        return self.widths.data + (shared if isinstance(shared, np.ndarray) else int(shared)) + rest

    def entries(self, levels: RankLevels) -> tuple[Count, Label]:
        """Return the number of entries (one slot of every lane each), which is the number of slots of the
        longest lane.

        Under a model of random rows this is the maximum load in nonzeros plus the mean number of headers,
        accurate to one or two percent.
        """
        slices = levels.coords[0]
        if levels.slices is not None and levels.slice_tile is not None:
            return self._of_tiles(levels.slices, levels.slice_tile, np.shape(levels.nnz)), levels.label
        if levels.slices is not None:
            loads = levels.slices + 1
            lanes = least_loaded(loads if self.assign == "data" else levels.slices, self.parts)
            return int(part_loads(loads, lanes, self.parts).max(initial=0)), levels.label
        if levels.label == "exact":
            message = "the nonzeros of single slices are not known"
            raise Refused(message, "give the tensor itself", code="unsupported-density")
        if levels.lanes is not None:
            try:
                return levels.lanes(self.parts) + max(
                    min(1.0, float(slices)), float(slices) / self.parts
                ), "expected"
            except Refused:
                pass  # the model does not provide the distribution of its slices
        return (levels.nnz + slices) / self.parts, "bound"

    def _of_tiles(self, slices: Ints, tile: Ints, shape: tuple[int, ...]) -> Ints:
        """Return the entries of every tile; an empty tile has none."""
        result = np.zeros(shape, dtype=np.int64)
        filled = distinct_numbers(tile)
        longest = fullest_parts(slices + (self.assign == "data"), tile, self.parts, slices + 1)
        result[filled] = longest[1]
        return result

    def bits(self, levels: RankLevels) -> Footprint:
        slot, nnz, slices = self.slot(levels), levels.nnz, levels.coords[0]
        entries, label = self.entries(levels)
        data = self.widths.data
        result = [RankBits(levels.ranks[0], slices * slot, nnz * 0, nnz * 0)]
        result += [RankBits(rank, nnz * 0, nnz * 0, nnz * 0) for rank in levels.ranks[1:-1]]
        result.append(RankBits(levels.ranks[-1], nnz * 0, nnz * (slot - data), nnz * data))
        padding = (entries * self.parts - nnz - slices) * slot
        return Footprint("CISS", tuple(result), nnz * data, label, padding)
