"""Formats of one rank, and the bits they take.

Source of the notation: TeAAL (MICRO'23): rhbits per rank, fhbits per fiber, cbits and pbits per element. RLE
and offset pairs: Sparseloop (MICRO'22).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Literal

from polymodel.errors import Diagnostic, Refused, SpecError
from polymodel.sparse.formats.levels import Count, Levels, bits_for

Layout = Literal["contiguous", "interleaved"]


@dataclass(frozen=True, eq=False)
class RankBits:
    """Bits of one rank: headers, what tells coordinates (also bit masks, runs, offsets), and payloads."""

    rank: str
    headers: Count
    coordinates: Count
    payloads: Count

    @property
    def total(self) -> Count:
        return self.headers + self.coordinates + self.payloads


@dataclass(frozen=True, kw_only=True)
class RankRule(ABC):
    """What all formats of a rank have: a header per fiber (`fhbits`) and one per rank (`rhbits`)."""

    fhbits: int = 0
    rhbits: int = 0

    def __post_init__(self) -> None:
        wrong = [
            Diagnostic(f"{type(self).__name__}: {key} is {value}", "a whole number of bits, at least 0")
            for key, value in vars(self).items()
            if isinstance(value, int | float)
            and not isinstance(value, bool)
            and (value < 0 or value != int(value))
        ]
        if wrong:
            raise SpecError(wrong)

    def headers(self, levels: Levels, depth: int) -> Count:
        """Bits of headers; without a root fiber (an empty tile) there is no header of the rank either."""
        return levels.fibers[0] * self.rhbits + levels.fibers[depth] * self.fhbits

    @abstractmethod
    def bits(self, levels: Levels, depth: int) -> RankBits:
        """Bits of rank number `depth`."""


@dataclass(frozen=True, kw_only=True)
class U(RankRule):
    """Uncompressed: every point of each fiber that exists has a payload (and a coordinate, if cbits > 0)."""

    pbits: int
    cbits: int = 0
    layout: Layout = "contiguous"

    def bits(self, levels: Levels, depth: int) -> RankBits:
        fibers = levels.fibers[depth]
        elements = fibers * levels.shape[depth]
        return RankBits(
            levels.ranks[depth], self.headers(levels, depth), elements * self.cbits, elements * self.pbits
        )


@dataclass(frozen=True, kw_only=True)
class CP(RankRule):
    """Coordinate and payload of each element that is present: compressed, TeAAL's C."""

    cbits: int | None
    pbits: int
    layout: Layout = "contiguous"

    def bits(self, levels: Levels, depth: int) -> RankBits:
        elements = levels.coords[depth]
        width = bits_for(levels.shape[depth]) if self.cbits is None else self.cbits
        return RankBits(
            levels.ranks[depth], self.headers(levels, depth), elements * width, elements * self.pbits
        )


@dataclass(frozen=True, kw_only=True)
class B(RankRule):
    """Bit mask: `cbits` (1) for each point of a fiber, a payload for each element that is present."""

    pbits: int
    cbits: int = 1
    layout: Layout = "contiguous"

    def bits(self, levels: Levels, depth: int) -> RankBits:
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

    def bits(self, levels: Levels, depth: int) -> RankBits:
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

    def _extra(self, levels: Levels, depth: int, rbits: int) -> Count:
        """Runs that are there only because another one is too long."""
        span = 2**rbits if self.overlong != "escape" else 2**rbits - 1
        if not span:
            raise SpecError(
                [Diagnostic("RLE with an escape needs runs of at least 1 bit", "rbits: 1 or more")]
            )
        size = levels.shape[depth]
        if bool((size <= span) if isinstance(size, int | float) else (size <= span).all()):
            return 0
        if levels.runs is None:
            raise Refused(
                f"how long the runs of {levels.ranks[depth]} are is not known",
                "give a run the bits that the size of the rank needs, or use the tensor itself",
            )
        found = levels.runs(depth, span)
        if self.overlong == "refuse" and bool((found > 0) if isinstance(found, int | float) else found.any()):
            raise Refused(
                f"runs of {levels.ranks[depth]} are longer than {span - 1}",
                "give more rbits, or say what to do",
            )
        return found


@dataclass(frozen=True, kw_only=True)
class UOP(RankRule):
    """Offset pairs: per fiber one offset more than it has points; element p is offsets p to p + 1 below."""

    obits: int

    def bits(self, levels: Levels, depth: int) -> RankBits:
        fibers = levels.fibers[depth]
        offsets = fibers * (levels.shape[depth] + 1) * self.obits
        return RankBits(levels.ranks[depth], self.headers(levels, depth), offsets, fibers * 0)
